"""The command line on a pseudo terminal of a given width.

Not a test: tests call `on_terminal`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import command_line

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*words, columns=80, keys="", output=None, cwd=None, **more):
    """Run a command on a terminal: exit code, what was shown, and that without colours.

    `output` is a file for standard output, instead of the terminal.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    stdout = theirs if output is None else os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
    running = subprocess.Popen(
        [sys.executable, "-m", "callpact", *map(str, words)],
        stdin=theirs,
        stdout=stdout,
        stderr=theirs,
        cwd=cwd,
        env=command_line.environment(TERM="xterm-256color", **more),
    )
    for descriptor in {theirs, stdout}:
        os.close(descriptor)
    os.write(ours, keys.encode())
    shown = b""
    with contextlib.suppress(OSError):  # The terminal is gone when the process ends.
        while part := os.read(ours, 65_536):
            shown += part
    os.close(ours)
    code = running.wait(timeout=60)
    raw = shown.decode().replace("\r\n", "\n")
    return SimpleNamespace(code=code, raw=raw, text=_STYLE.sub("", raw))
