"""File locks (`flock`) that the system releases when a process is killed."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None

CAN_HOLD = fcntl is not None
"""False where the system has no `flock`."""


def hold(fd: int, *, wait: bool = False) -> bool:
    """Lock a file until it is closed; False if another process holds the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def release(fd: int) -> None:
    """Unlock and close a file, even if a forked process still has it open."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that its file names survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
