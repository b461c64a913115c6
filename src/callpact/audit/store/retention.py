"""Removes records that are too old or too many, and delays a removal that is unusually large.

With a clock that is a year ahead, every record is too old. So a removal by age of records long
past the limit, or of a large part of the log, is held for a day: it is written to a file beside
the journal, and carried out only if it is still due then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from callpact.audit.journal.file_locks import hold, release
from callpact.audit.journal.health import add_health
from callpact.audit.journal.segments import segments
from callpact.audit.store.interface import DAY, Store, Stored

HELD_MS = DAY
"""How long an unusually large removal by retention is held."""
LATE_MS = 3 * DAY
"""How long past the limit records may be to be removed without delay."""
MAX_SHARE = 0.25
"""The share of the log that is removed without delay, if it is more than one day."""
MAX_JOURNAL_BYTES = 1 << 30
"""Size of a journal without a store at which its oldest segments are removed."""
_FILE = "held"
_log = logging.getLogger("callpact.audit")


class Held(Struct, frozen=True):
    """A removal that is held: since when, and its extent."""

    at: int
    """Epoch milliseconds, by the clock that may be wrong."""
    older_than: int
    parts: int
    """Files, days or segments."""
    size: int


def held_retention(journal: Path) -> Held | None:
    """The removal that is held, or None; `journal` is the folder of the journal."""
    try:
        return msgspec.json.decode((journal / _FILE).read_bytes(), type=Held)
    except (OSError, msgspec.DecodeError):
        return None


def keep(
    store: Store, journal: Path, now: int, *, keep_days: float, keep_bytes: int | None = None
) -> int:
    """Remove records older than some days, and the oldest beyond a size; returns their number."""
    older_than = int(now - keep_days * DAY)
    may = _may_remove(store.stored(), journal, now, older_than)
    return store.retention(older_than=older_than if may else None, larger_than=keep_bytes)


def keep_segments(
    journal: Path, now: int, *, keep_days: float, keep_bytes: int = MAX_JOURNAL_BYTES
) -> int:
    """Remove the oldest unlocked segments of a journal without a store.

    Returns the number of removed records, which are counted as lost.
    """
    parts: list[Stored] = []
    for path in segments(journal):
        with suppress(FileNotFoundError):
            status = path.stat()
            last = status.st_mtime_ns // 1_000_000
            parts.append(Stored(path.name, last, last, status.st_size))
    older_than = int(now - keep_days * DAY)
    may = _may_remove(parts, journal, now, older_than)
    size, gone = sum(part.size for part in parts), 0
    for part in sorted(parts, key=lambda part: (part.last, part.name)):
        if (may and part.last < older_than) or size > keep_bytes:
            removed = _remove(journal / part.name)
            gone += removed
            size -= part.size
    if gone:
        with suppress(OSError):
            add_health(journal, lost=gone)
        text = "%s records were removed from %s, which nothing moves into a store: install "
        _log.warning(text + "'callpact[audit]' to keep more of them", gone, journal)
    return gone


def _remove(segment: Path) -> int:
    """Remove an unlocked segment; returns the number of its lines."""
    try:
        fd = os.open(segment, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        if not hold(fd):
            return 0
        with open(fd, "rb", closefd=False) as file:
            count = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        segment.unlink(missing_ok=True)
        return count
    finally:
        release(fd)


def _may_remove(parts: Sequence[Stored], journal: Path, now: int, older_than: int) -> bool:
    """True if expired parts may be removed now; else the removal is held and logged."""
    wanted = [part for part in parts if part.last < older_than]
    before = held_retention(journal)
    if not wanted or not _is_unusual(parts, wanted, older_than):
        _forget(journal)
        return True
    if before is not None and before.at <= now - HELD_MS:
        _forget(journal)
        return True
    if before is None or before.at > now:
        before = Held(now, older_than, len(wanted), sum(part.size for part in wanted))
        with suppress(OSError):
            journal.mkdir(0o700, parents=True, exist_ok=True)
            (journal / _FILE).write_bytes(msgspec.json.encode(before))
    text = (
        "retention would remove %s of %s files of the audit log in %s (%s bytes), more than usual: "
    )
    text += "is the clock of this machine right? It is held for 24 hours, and then carried out"
    _log.warning(text, len(wanted), len(parts), journal.parent, before.size)
    return False


def _is_unusual(parts: Sequence[Stored], wanted: Sequence[Stored], older_than: int) -> bool:
    if any(part.last < older_than - LATE_MS for part in wanted):
        return True
    days = {part.last // DAY for part in wanted}
    share = sum(part.size for part in wanted) / max(1, sum(part.size for part in parts))
    return len(days) > 1 and share > MAX_SHARE


def _forget(journal: Path) -> None:
    with suppress(OSError):
        (journal / _FILE).unlink(missing_ok=True)
