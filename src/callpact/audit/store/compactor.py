"""Moves the journal into a store: one thread, in batches, from where the last one stopped.

The store keeps the position in each segment together with the records, so a line is either in the
store or in the journal, whichever process is killed. One process at a time moves lines, elected by
a lock, and also those of dead processes. A failing store is retried with increasing delays.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from callpact.audit.journal.file_locks import hold, release
from callpact.audit.journal.health import add_health
from callpact.audit.journal.lines import decode_line, encode_line
from callpact.audit.journal.segments import (
    MAX_SEGMENT_SECONDS,
    SECONDS_BETWEEN_LOGS,
    journals_in,
    segments,
)
from callpact.audit.store.interface import Moved, Overtaken
from callpact.errors import CallpactError

if TYPE_CHECKING:
    from callpact.audit.record import Record
    from callpact.audit.store import Store

BATCH_BYTES = 8 << 20
"""Bytes of the journal that are added to the store at once."""
DUE_BYTES = 4 << 20
"""Bytes of the journal, about 20,000 lines, from which on they become a file of the store."""
DUE_SEGMENTS = 100
"""Segments of the journal from which on they become a file of the store."""
DUE_SECONDS = 60.0
"""The longest time that lines wait in the journal before they become a file of the store."""
SECONDS_BETWEEN_PASSES = 0.25
"""Interval between passes over the journal; the delay until PostgreSQL has a record."""
SECONDS_BETWEEN_UPKEEP = 3_600.0
"""Interval at which expired records are removed and files of a day merged."""
MAX_SECONDS_BETWEEN_TRIES = 30.0
"""The longest delay before a failing store is tried again."""

_LOCK = "lock"
_ASIDE = "refused.log"
_ENOUGH = 3
_log = logging.getLogger("callpact.audit")


class _Batch(Struct, frozen=True):
    """Lines of the journal: their records, the number of unreadable ones, and the end positions."""

    records: list[Record]
    unreadable: int
    after: dict[str, int]


class Compactor:
    """Moves the lines of the journals in a folder into a store, from `start` to `close`.

    Only the compactor's thread uses the store, which stays open. It calls `upkeep` at the start
    and once an hour.
    """

    def __init__(
        self, folder: Path, store: Store, upkeep: Callable[[], object] | None = None
    ) -> None:
        self.added = 0
        """Records that were new to the store."""
        self.unreadable = 0
        """Lines that were skipped: incomplete, or not a record."""
        self.refused = 0
        """Records that the store rejected, moved to the file `refused.log`."""
        self._folder = folder
        self._store = store
        self._upkeep = upkeep
        self._upkeep_at = 0.0
        self._changed = threading.Condition()
        self._wanted = 0
        self._reached = 0
        self._is_closing = False
        self._is_abandoned = False
        self._taken: Mapping[str, int] | None = None
        self._waiting_since: float | None = None
        self._counted = (0, 0)  # Of the unreadable and the refused, those in the health file.
        self._logged_at = -SECONDS_BETWEEN_LOGS
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Start the thread, which begins with lines of earlier processes."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="callpact-audit", daemon=True)
            self._thread.start()
        return self

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all lines written so far are in the store; False after the timeout."""
        self.start()
        with self._changed:
            self._wanted += 1
            wanted = self._wanted
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._reached >= wanted, timeout)

    def close(self, timeout: float = 30.0) -> bool:
        """Move the lines that an eager store lacks, and stop; False after the timeout.

        After the timeout, the thread closes the store when it ends.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        with self._changed:
            self._is_abandoned = self._thread.is_alive()
            return not self._is_abandoned

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                wanted, is_last = self._wanted, self._is_closing
            try:
                self._count()
                for journal in journals_in(self._folder):
                    journal.rotate(older_than=MAX_SEGMENT_SECONDS)
                is_whole = self._move(is_forced=wanted > self._reached, is_last=is_last)
                if not is_last:
                    self._keep_up()
                failures = 0
            except Exception as error:  # noqa: BLE001 - boundary: any error of a store is retried
                self._complain(error)
                self._taken = None
                is_whole = False
                failures += 1
            with self._changed:
                if is_whole:
                    self._reached = wanted
                    self._changed.notify_all()
                if is_last:
                    break
                self._rest(wanted, failures)
        with self._changed:
            if self._is_abandoned:
                self._store.close()

    def _rest(self, wanted: int, failures: int) -> None:
        """Wait until the next pass is due; a failing store is not hurried."""
        seconds = min(SECONDS_BETWEEN_PASSES * 2 ** min(failures, 10), MAX_SECONDS_BETWEEN_TRIES)
        self._changed.wait_for(
            lambda: self._is_closing or (not failures and self._wanted > wanted), seconds
        )

    def _keep_up(self) -> None:
        now = time.monotonic()
        if self._upkeep is not None and now >= self._upkeep_at:
            self._upkeep_at = now + SECONDS_BETWEEN_UPKEEP
            self._upkeep()

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged_at >= SECONDS_BETWEEN_LOGS:
            self._logged_at = now
            text = "the audit store does not take records (%s: %s); they wait in %s"
            _log.error(text, type(error).__name__, error, self._folder)

    def _count(self) -> None:
        """Add new counts to the health file; if that fails, try again the next time."""
        unreadable, refused = self._counted
        if (unreadable, refused) != (self.unreadable, self.refused):
            with suppress(OSError):
                add_health(
                    self._folder,
                    unreadable=self.unreadable - unreadable,
                    refused=self.refused - refused,
                )
                self._counted = (self.unreadable, self.refused)

    # --- moving -----------------------------------------------------------------------------

    def _move(self, *, is_forced: bool, is_last: bool) -> bool:
        """Move due lines; False if another process holds the lock."""
        sizes = _sizes(self._folder)
        if not sizes:
            self._waiting_since = None
            return True
        if self._taken is None or not self._store.is_eager:
            self._taken = self._store.taken()
        if not is_forced and not self._is_due(sizes, is_last=is_last):
            return self._remove(sizes)
        lock = self._elected()
        if lock is None:
            return False
        try:
            while self._move_batch():
                pass
        except Overtaken:
            self._taken = None
            return False
        finally:
            release(lock)
        self._waiting_since = None
        return self._remove(_sizes(self._folder))

    def _is_due(self, sizes: Mapping[str, int], *, is_last: bool) -> bool:
        taken = self._taken or {}
        waiting = sum(size - taken.get(name, 0) for name, size in sizes.items())
        if not waiting:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if is_last or self._store.is_eager:
            return self._store.is_eager  # Queries also read the journal: closing needs no files.
        is_late = now - self._waiting_since >= DUE_SECONDS
        return is_late or is_much(waiting, len(sizes))

    def _elected(self) -> int | None:
        """The lock of the process that moves lines; None if another process holds it."""
        fd = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if hold(fd):
            return fd
        os.close(fd)
        return None

    def _move_batch(self) -> bool:
        """Move one batch; False if there is none left."""
        before = self._store.taken()
        batch = _read_batch(self._folder, before)
        self._taken = before
        if all(before.get(name, 0) == at for name, at in batch.after.items()):
            return False
        self._add(batch.records, Moved(before, batch.after))
        self._taken = batch.after
        if batch.unreadable:
            self.unreadable += batch.unreadable
            self._count()
            text = "%s lines of the audit journal in %s are no records"
            _log.error(text, batch.unreadable, self._folder)
        return True

    def _remove(self, sizes: Mapping[str, int]) -> bool:
        """Remove segments that are fully in the store and that no process writes."""
        taken = self._taken or {}
        for name, size in sizes.items():
            if taken.get(name, 0) < size:
                continue
            path = self._folder / name
            try:
                fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            is_removed = False
            try:
                if hold(fd) and os.fstat(fd).st_size == size:
                    path.unlink(missing_ok=True)
                    is_removed = True
            finally:
                release(fd)
            if is_removed:
                # After the release: a journal that opens a segment waits for this lock, and holds
                # its own, which `store` needs.
                for journal in journals_in(self._folder):
                    journal.store(name)
        return True

    # --- adding -----------------------------------------------------------------------------

    def _add(self, records: Sequence[Record], moved: Moved) -> None:
        try:
            self.added += self._store.add(records, moved)
        except CallpactError:
            raise  # A failure of the store itself: disk full, locked, unreachable.
        except Exception:
            if len(records) <= 1:
                raise
            self._sift(records)
            self._store.add([], moved)

    def _sift(self, records: Sequence[Record]) -> None:
        """Add all records but those that the store rejects, by bisection."""
        refused: list[Record] = []
        good: Record | None = None
        parts = [records]
        while parts:
            part = parts.pop()
            try:
                self.added += self._store.add(part)
                good = part[0]
            except CallpactError:
                raise
            except Exception:
                if len(part) == 1:
                    refused.append(part[0])
                    if good is None and len(refused) >= _ENOUGH:
                        raise  # The store rejects all records.
                else:
                    middle = len(part) // 2
                    parts += (part[middle:], part[:middle])
        for record in refused:
            self._add_doubtful(record, good)

    def _add_doubtful(self, record: Record, good: Record | None) -> None:
        """Set a record aside if the store rejects it repeatedly, and accepts another one."""
        for attempt in range(_ENOUGH):
            try:
                self.added += self._store.add([record])
            except CallpactError:
                raise
            except Exception as error:
                if good is None:
                    raise
                self._store.add([good])  # Raises if the store itself fails.
                if attempt == _ENOUGH - 1:
                    self._set_aside(record, error)
            else:
                return

    def _set_aside(self, record: Record, cause: Exception) -> None:
        fd = os.open(self._folder / _ASIDE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, encode_line(record))
        finally:
            os.close(fd)
        self.refused += 1
        self._count()
        _log.error("the audit store refuses the record %s: %s", record.id, type(cause).__name__)


def is_much(waiting: int, segments: int) -> bool:
    """True if the bytes or segments of a journal are enough to become a file."""
    return waiting >= DUE_BYTES or segments >= DUE_SEGMENTS


def _sizes(folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in segments(folder):
        with suppress(FileNotFoundError):
            sizes[path.name] = path.stat().st_size
    return sizes


def _read_batch(folder: Path, taken: Mapping[str, int]) -> _Batch:
    """Lines of all segments from the stored positions on, up to `BATCH_BYTES`."""
    records: list[Record] = []
    after: dict[str, int] = {}
    unreadable, left = 0, BATCH_BYTES
    for path in segments(folder):
        at = taken.get(path.name, 0)
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            # Before the size is read: an unlocked segment has its last line already.
            is_left = hold(fd)
            end = os.fstat(fd).st_size
            data = _lines(fd, at, end, left, is_left=is_left) if left > 0 and at < end else b""
        finally:
            release(fd)
        for line in data.split(b"\n"):
            if not line:
                continue
            record = decode_line(line)
            if record is None:
                unreadable += 1
            else:
                records.append(record)
        left -= len(data)
        after[path.name] = at + len(data)
    return _Batch(records, unreadable, after)


def _lines(segment: int, at: int, end: int, size: int, *, is_left: bool) -> bytes:
    """Whole lines from a position on; of a complete segment also a last line without a newline."""
    while True:
        data = os.pread(segment, min(size, end - at), at)
        if is_left and at + len(data) >= end:
            return data
        whole = data.rfind(b"\n") + 1
        if whole or len(data) < size:
            return data[:whole]
        size *= 2
