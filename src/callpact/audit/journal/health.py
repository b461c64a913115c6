"""Counts of records that an audit log could not keep, shared by all processes that write to it.

The counts are one small file of fixed size in the folder of the journal. It is created while there
is room, so it can be updated on a full disk. Several processes may add to it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from msgspec import Struct, structs

from callpact.audit.journal.file_locks import hold, release

FILE = "health"
"""The name of the file, in the folder of the journal."""

_DIGITS = 19


class Health(Struct, frozen=True):
    """How many calls are missing from the log or damaged; all 0 for a healthy log."""

    lost: int = 0
    """Calls whose record could not be written: a full disk, a folder that was removed."""
    unreadable: int = 0
    """Lines of the journal that are not a whole record: written in part."""
    refused: int = 0
    """Records that the store rejected, moved to the file `refused.log`."""

    @property
    def is_well(self) -> bool:
        """True if every call is on record."""
        return not (self.lost or self.unreadable or self.refused)


def health_of(journal: Path) -> Health:
    """The counts of all processes so far; `journal` is the folder of the journal."""
    try:
        return _parsed((journal / FILE).read_bytes()[:_SIZE])
    except OSError:
        return Health()


def add_health(journal: Path, *, lost: int = 0, unreadable: int = 0, refused: int = 0) -> None:
    """Add to the counts; creates the file if it is missing, and does not wait for the lock.

    Raises:
        OSError: the file cannot be written, or another process holds its lock.
    """
    fd = os.open(journal / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not hold(fd):
            raise BlockingIOError(errno.EAGAIN, "another process holds its lock")
        before = _parsed(os.pread(fd, _SIZE, 0))
        now = (before.lost + lost, before.unreadable + unreadable, before.refused + refused)
        os.pwrite(fd, _LINE % now, 0)
    finally:
        release(fd)


_LINE = b" ".join([b"%%0%dd" % _DIGITS] * len(structs.fields(Health))) + b"\n"
_SIZE = len(_LINE % (0, 0, 0))


def _parsed(data: bytes) -> Health:
    parts = data.split()
    is_whole = len(data) == _SIZE and len(parts) == 3 and all(part.isdigit() for part in parts)
    return Health(*map(int, parts)) if is_whole else Health()
