"""What an audit log could not keep: counts that outlive the processes that counted them.

They stand in one small file of fixed size in the folder of the journal, made while there is room:
it can be written where a full disk takes nothing new. Several processes may add to it.
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
    """How many calls are not on record as they should be; all 0 for a log that is well."""

    lost: int = 0
    """Calls whose record could not be written: a full disk, a folder that was removed."""
    unreadable: int = 0
    """Lines of the journal that were no record: begun, and not written to their end."""
    refused: int = 0
    """Records that the store took no way, set aside in the file `refused.log`."""

    @property
    def is_well(self) -> bool:
        """True if every call is on record."""
        return not (self.lost or self.unreadable or self.refused)


def health_of(journal: Path) -> Health:
    """What a log could not keep, by all processes so far; `journal` is the folder of its journal."""
    try:
        return _parsed((journal / FILE).read_bytes()[:_SIZE])
    except OSError:
        return Health()


def add_health(journal: Path, *, lost: int = 0, unreadable: int = 0, refused: int = 0) -> None:
    """Add to what is counted; makes the file if need be, and waits for nobody.

    Raises:
        OSError: it cannot be written, or another process is at it.
    """
    fd = os.open(journal / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not hold(fd):
            raise BlockingIOError(errno.EAGAIN, "another process is at it")
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
