"""Run everything that `make test` checks, group by group, and print the time of each.

All groups run, also after one has failed. Groups can be named: `make test GROUPS="lint unit"`.
Every command runs in a clean environment: the caller's shell cannot hide a fault or cause one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# Many tests wait for processes that they started: more workers than processors.
WORKERS = str(min(8, 2 * (os.cpu_count() or 2)))
PYTEST = ["-m", "pytest", "-q", "-n", WORKERS]
HERE = [str(BIN / "python"), *PYTEST]

# The distribution's own Python has an environment of its own.
OTHER_VENV = ROOT / ".venv-distribution"
# Tests of the code that parses, checks and matches text: the parts that depend on `re`.
TEXT_TESTS = [
    "tests/agent",
    "tests/audit/test_redaction.py",
    "tests/cli/test_check.py",
    "tests/jsonreader",
    "tests/property",
    "tests/schema",
    "tests/secrets",
    "tests/sources",
    "tests/test_patterns.py",
]

GROUPS: dict[str, list[list[str]]] = {
    "lint": [
        [str(BIN / "ruff"), "check", "--no-cache", "."],
        [str(BIN / "ruff"), "format", "--no-cache", "--check", "."],
    ],
    "imports": [[str(BIN / "lint-imports")]],
    "types": [[str(BIN / "pyright")]],
    "unit": [
        [
            *HERE,
            "tests",
            *(f"--ignore=tests/{name}" for name in ("contract", "property", "docs", "e2e")),
        ]
    ],
    "contract": [[*HERE, "tests/contract"]],
    "property": [[*HERE, "tests/property"]],
    "docs": [[*HERE, "tests/docs"], ["make", "--no-print-directory", "docs"]],
    "e2e": [[*HERE, "tests/e2e"]],
    "conformance": [[str(BIN / "python"), "scripts/conformance.py"]],
    "endpoints": [[str(BIN / "python"), "scripts/endpoints.py"]],
    "distribution": [],  # filled in by `distribution_commands`: it may need an environment first
}

# Variables that the package clients (pip, npm) and TLS need; everything else is cleared.
KEPT = frozenset(
    {
        "ALL_PROXY",
        "CI",
        "CURL_CA_BUNDLE",
        "HOME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "NO_PROXY",
        "PATH",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
    }
)
KEPT_PREFIXES = ("PIP_", "NPM_CONFIG_", "UV_")


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the package clients need, and no others."""
    return {
        name: text
        for name, text in variables.items()
        if name.upper() in KEPT or name.upper().startswith(KEPT_PREFIXES)
    }


def version_of(python: str) -> str:
    """Return the version of an interpreter, such as `3.11.2`; empty if it does not start."""
    line = [python, "-I", "-c", "import platform; print(platform.python_version())"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def distribution_python() -> str:
    """Return the path of the operating system's own `python3`; empty if there is none."""
    return shutil.which("python3", path=os.confstr("CS_PATH")) or ""


def reason_to_skip(version: str, mine: str) -> str:
    """Return why the distribution's Python is not tried as well; empty if it is."""
    if not version:
        return "The operating system has no python3 of its own: nothing to try."
    if version == mine:
        return f"The operating system's python3 is {version}, the version of all other groups."
    if tuple(map(int, version.split(".")[:2])) < (3, 11):
        return f"The operating system's python3 is {version}; callpact needs 3.11."
    return ""


def distribution_commands(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the commands of the group `distribution`, after building its environment."""
    python = distribution_python()
    version = version_of(python) if python else ""
    if reason := reason_to_skip(version, version_of(sys.executable)):
        print(reason)
        return []
    build(python, version, environment)
    print(f"Python {version}: what parses, checks and matches text.", flush=True)
    return [[str(OTHER_VENV / "bin" / "python"), *PYTEST, *TEXT_TESTS]]


def build(python: str, version: str, environment: Mapping[str, str]) -> None:
    """Create the environment of the distribution's Python, unless an equal one is there."""
    pins = [ROOT / "requirements" / name for name in ("run.txt", "test.txt")]
    digest = hashlib.sha256(version.encode())
    for path in (*pins, ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    stamp = OTHER_VENV / "built.stamp"
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return
    print(f"making the environment of Python {version} in {OTHER_VENV.name} …", flush=True)
    shutil.rmtree(OTHER_VENV, ignore_errors=True)
    target = str(OTHER_VENV / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "--python", target, "install"]
    commands = [
        # Without pip of its own: Debian's Python has no ensurepip unless python3-venv is there.
        [python, "-m", "venv", "--without-pip", str(OTHER_VENV)],
        *([*install, "--require-hashes", "-r", str(path)] for path in pins),
        [*install, "--no-deps", "--no-build-isolation", "--editable", "."],
    ]
    for command in commands:
        subprocess.run(command, cwd=ROOT, env=dict(environment), check=True)
    stamp.write_text(digest.hexdigest())


def main(names: list[str], groups: Mapping[str, list[list[str]]] = GROUPS) -> int:
    """Run the named groups, or all; 0 if every one of them passed."""
    unknown = [name for name in names if name not in groups]
    if unknown:
        print(f"no such group: {', '.join(unknown)}; there are {', '.join(groups)}")
        return 2
    environment = clean_environment(os.environ)
    # A shell ignores interrupts in what it starts in the background; the tests send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results: list[tuple[str, float, bool]] = []
    versions = [version_of(sys.executable)]
    for name in names or list(groups):
        print(f"\n== {name}", flush=True)
        begun = time.monotonic()
        commands = groups[name]
        if name == "distribution":
            commands = distribution_commands(environment)
            versions += [version_of(command[0]) for command in commands]
        ok = all(
            subprocess.run(line, cwd=ROOT, env=environment, check=False).returncode == 0
            for line in commands
        )
        results.append((name, time.monotonic() - begun, ok))
    print(f"\n== groups (Python {' and '.join(versions)})")
    for name, seconds, ok in results:
        print(f"{name:>12} {seconds:7.1f} s  {'ok' if ok else 'FAILED'}")
    return 0 if all(ok for _, _, ok in results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
