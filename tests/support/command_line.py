"""The command line, run in the process of a test.

Not a test: tests take the fixture with `run = command_line.run`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from callpact.cli.main import main


@pytest.fixture
def run(monkeypatch, capfdbinary):
    """Run a command line in this process: exit code, standard output, standard error."""
    path = list(sys.path)
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]

    def run_(*args):
        monkeypatch.setattr(sys, "argv", ["callpact", *map(str, args)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(code=left.value.code or 0, out=out.decode(), err=err.decode())

    yield run_
    sys.path[:] = path
    for handler in [each for each in root.handlers if each not in handlers]:
        handler.close()
        root.removeHandler(handler)
    root.setLevel(level)


def environment(**more):
    """The variables of a clean shell; `PYTHONUNBUFFERED` and the like would hide what users see."""
    kept = ("PATH", "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "SYSTEMROOT", "TEMP")
    return {name: os.environ[name] for name in kept if name in os.environ} | more


def unread(*words, stderr=subprocess.PIPE):
    """A command in a process of its own, whose output nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-m", "callpact", *words],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=stderr,
            env=environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)


def redirected(redirections, *words):
    """A command in a process of its own, with these redirections of a shell (`>&-`)."""
    line = f'exec "$@" {redirections}'
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", sys.executable, "-m", "callpact", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=60,
        check=False,
    )
