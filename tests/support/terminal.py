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


def on_terminal(*words, columns=80, keys="", **more):
    """Run a command on a terminal: exit code, what was shown, and that without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    running = subprocess.Popen(
        [sys.executable, "-m", "callpact", *map(str, words)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=command_line.environment(TERM="xterm-256color", **more),
    )
    os.close(theirs)
    os.write(ours, keys.encode())
    shown = b""
    with contextlib.suppress(OSError):  # The terminal is gone when the process ends.
        while part := os.read(ours, 65_536):
            shown += part
    os.close(ours)
    code = running.wait(timeout=60)
    raw = shown.decode().replace("\r\n", "\n")
    return SimpleNamespace(code=code, raw=raw, text=_STYLE.sub("", raw))
