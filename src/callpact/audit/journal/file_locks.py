"""Locks on files that a killed process lets go of by itself (`flock`)."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None

CAN_HOLD = fcntl is not None
"""False where the system has no such locks."""


def hold(fd: int, *, wait: bool = False) -> bool:
    """Lock a file until it is closed; False if another holds it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def release(fd: int) -> None:
    """Let go of a file, also where a forked process still has it open."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
