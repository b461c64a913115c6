"""The command line, run in the process of a test.

Not a test: tests take the fixture with `run = command_line.run`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from callpact.cli import main


@pytest.fixture
def run(monkeypatch, capfdbinary):
    """Run a command line in this process: exit code, standard output, standard error."""
    path = list(sys.path)

    def run_(*args):
        monkeypatch.setattr(sys, "argv", ["callpact", *map(str, args)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(code=left.value.code or 0, out=out.decode(), err=err.decode())

    yield run_
    sys.path[:] = path


def unread(*words):
    """A command in a process of its own, whose output nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-m", "callpact", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
