"""The built wheel, installed into an environment of its own with the hashed requirements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


def run(*command, **more):
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **more
    )


def build(folder):
    made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    return next(folder.glob("callpact-*.whl"))


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build(folder)
    venv.create(folder / "venv", with_pip=True)
    bin_ = folder / "venv" / SCRIPTS
    install = [bin_ / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    core = ROOT / "requirements" / "core.txt"
    for what in (["--require-hashes", "-r", core], ["--no-deps", wheel]):
        done = run(*install, *what)
        assert done.returncode == 0, done.stderr
    return bin_


def test_the_installed_command_says_its_version(bin_folder, tmp_path):
    done = run(bin_folder / "callpact", "--version", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("callpact ")


def test_the_first_steps_work_from_the_wheel(bin_folder, tmp_path):
    assert run(bin_folder / "callpact", "init", cwd=tmp_path).returncode == 0
    done = run(bin_folder / "callpact", "call", "tools.greet", "name=Ada", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["Hello, Ada!"]
    done = run(bin_folder / "callpact", "call", "tools.greet", cwd=tmp_path)
    assert done.returncode == 3


def test_importing_callpact_brings_no_heavy_part(bin_folder, tmp_path):
    heavy = ("pydantic", "pydantic_core", "mcp", "mcp_types", "starlette", "typer", "rich")
    code = f"import sys, callpact; print([m for m in {heavy!r} if m in sys.modules])"
    done = run(bin_folder / "python", "-c", code, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_package_is_typed(bin_folder, tmp_path):
    code = "import callpact, pathlib; print((pathlib.Path(callpact.__file__).parent / 'py.typed').exists())"
    assert run(bin_folder / "python", "-c", code, cwd=tmp_path).stdout.strip() == "True"


@pytest.mark.parametrize("how", [["serve", "--stdio"], ["install", "claude-code", "--print"]])
def test_serving_without_the_extra_says_what_to_install(bin_folder, tmp_path, how):
    run(bin_folder / "callpact", "init", cwd=tmp_path)
    done = run(bin_folder / "callpact", *how, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'callpact[mcp]'" in done.stderr
