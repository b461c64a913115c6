"""Moves the journal into a store: one thread, in batches, from where it stopped.

How far a segment is indexed stands in a file beside it, which is locked while somebody indexes it:
several processes may share a folder, and each takes over what a dead one left. Nothing is counted
as indexed before the store has it; a store that fails is tried again, later and later.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from callpact.audit.files import hold, release
from callpact.audit.health import add_health
from callpact.audit.journal import (
    MAX_SEGMENT_SECONDS,
    SECONDS_BETWEEN_LOGS,
    SUFFIX,
    journals_in,
    segments,
)
from callpact.audit.lines import decode_line, encode_line
from callpact.errors import CallpactError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from callpact.audit.record import Record
    from callpact.audit.store import Store

BATCH_BYTES = 8 << 20
"""Bytes of the journal that go into the store at once."""
SECONDS_BETWEEN_PASSES = 0.25
"""How soon the store has what was called."""
MAX_SECONDS_BETWEEN_TRIES = 30.0
"""How long a store that fails is left alone at most."""

_POSITION = ".at"
_DIGITS = 20
_ASIDE = "refused.log"
_ENOUGH = 3
_log = logging.getLogger("callpact.audit")


class Indexer:
    """Moves what is in a folder of journals into a store, from `start` to `close`.

    The store is used by the thread of the indexer alone, and stays open.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self.indexed = 0
        """Records that were new to the store."""
        self.unreadable = 0
        """Lines that were passed over: begun and not written to their end, or no record."""
        self.refused = 0
        """Records that the store took no way, set aside in the file `refused.log`."""
        self._folder = folder
        self._store = store
        self._changed = threading.Condition()
        self._wanted = 0
        self._reached = 0
        self._is_closing = False
        self._told = (0, 0)  # Of the unreadable and the refused, what `health.py` has counted.
        self._logged_at = -SECONDS_BETWEEN_LOGS
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Begin with what is left of earlier processes."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="callpact-audit", daemon=True)
            self._thread.start()
        return self

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all that was written so far is in the store; False if it is not in time."""
        self.start()
        with self._changed:
            self._wanted += 1
            wanted = self._wanted
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._reached >= wanted, timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Index what is there, and end; what the store does not take is left for the next start."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

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
                self._tidy()
                self._count()
                for journal in journals_in(self._folder):
                    journal.rotate(older_than=MAX_SEGMENT_SECONDS)
                busy = [path for path in segments(self._folder) if not self._index(path)]
                is_whole, failures = not busy, 0
            except Exception as error:  # noqa: BLE001 - boundary: whatever a store raises, it is tried again
                self._complain(error)
                is_whole = False
                failures += 1
            with self._changed:
                if is_whole:
                    self._reached = wanted
                    self._changed.notify_all()
                if is_last:
                    return
                self._rest(wanted, failures)

    def _tidy(self) -> None:
        """Remove positions of segments that are gone: their indexer was killed in between."""
        for path in self._folder.glob(f"*{_POSITION}"):
            segment = path.with_suffix(SUFFIX)
            if not segment.exists():
                self._index(segment)

    def _rest(self, wanted: int, failures: int) -> None:
        """Until the next pass is due; nobody hurries a store that has trouble."""
        seconds = min(SECONDS_BETWEEN_PASSES * 2 ** min(failures, 10), MAX_SECONDS_BETWEEN_TRIES)
        self._changed.wait_for(
            lambda: self._is_closing or (not failures and self._wanted > wanted), seconds
        )

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged_at >= SECONDS_BETWEEN_LOGS:
            self._logged_at = now
            text = "the audit store does not take records (%s: %s); they wait in %s"
            _log.error(text, type(error).__name__, error, self._folder)

    def _index(self, path: Path) -> bool:
        """Index a segment to its present end; False if another process is at it."""
        with _position_of(path) as position:
            if position is None:
                return False
            try:
                segment = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                position.remove()
                return True
            try:
                # First: what nobody holds now has its last line already.
                is_left = hold(segment)
                self._move(segment, position, is_left=is_left)
                if is_left:
                    path.unlink()
                    position.remove()
            finally:
                release(segment)
        return True

    def _move(self, segment: int, position: _Position, *, is_left: bool) -> None:
        end, at = os.fstat(segment).st_size, position.read()
        at = at if at <= end else 0
        while at < end:
            data = _lines(segment, at, end, is_left=is_left)
            if not data:
                return
            lines = [line for line in data.split(b"\n") if line]
            records = [record for line in lines if (record := decode_line(line)) is not None]
            self._add(records)
            at += len(data)
            # Not before: what is read again would be counted again.
            if (position.write(at) or is_left) and len(records) < len(lines):
                self._pass_over(len(lines) - len(records))

    def _pass_over(self, count: int) -> None:
        self.unreadable += count
        self._count()
        _log.error("%s lines of the audit journal in %s are no records", count, self._folder)

    def _count(self) -> None:
        """Count for those who come later; if that fails, the next time."""
        unreadable, refused = self._told
        if (unreadable, refused) != (self.unreadable, self.refused):
            with suppress(OSError):
                add_health(
                    self._folder,
                    unreadable=self.unreadable - unreadable,
                    refused=self.refused - refused,
                )
                self._told = (self.unreadable, self.refused)

    def _add(self, records: Sequence[Record]) -> None:
        if not records:
            return
        try:
            self.indexed += self._store.add(records)
        except CallpactError:
            raise  # The store's own trouble: no room, locked, out of reach.
        except Exception:
            if len(records) == 1:
                raise
            self._add_singly(records)

    def _add_singly(self, records: Sequence[Record]) -> None:
        """One record that the store cannot take must not keep all others out."""
        refused: list[Record] = []
        good: Record | None = None
        for record in records:
            try:
                self.indexed += self._store.add([record])
                good = record
            except CallpactError:
                raise
            except Exception:
                refused.append(record)
                if good is None and len(refused) >= _ENOUGH:
                    raise  # It takes none: the store has trouble.
        for record in refused:
            self._add_doubtful(record, good)

    def _add_doubtful(self, record: Record, good: Record | None) -> None:
        """Set a record aside if the store refuses it, and nothing else, time after time."""
        for attempt in range(_ENOUGH):
            try:
                self.indexed += self._store.add([record])
            except CallpactError:
                raise
            except Exception as error:
                if good is None:
                    raise
                self._store.add([good])  # Raises if the fault is not the record's.
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


def _lines(segment: int, at: int, end: int, *, is_left: bool) -> bytes:
    """Whole lines from a place on; of a segment that is left also a last one without its end."""
    size = BATCH_BYTES
    while True:
        data = os.pread(segment, min(size, end - at), at)
        if is_left and at + len(data) >= end:
            return data
        whole = data.rfind(b"\n") + 1
        if whole or len(data) < size:
            return data[:whole]
        size *= 2


class _Position:
    """How far a segment is indexed."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def read(self) -> int:
        text = os.pread(self._fd, _DIGITS, 0)
        return int(text) if len(text) == _DIGITS and text.isdigit() else 0

    def write(self, at: int) -> bool:
        """False if the disk is full: what is in the store by now is read once more, and known."""
        with suppress(OSError):
            return os.pwrite(self._fd, f"{at:0{_DIGITS}}".encode(), 0) == _DIGITS
        return False

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self._path.unlink()


@contextmanager
def _position_of(segment: Path) -> Generator[_Position | None]:
    """The position of a segment, for nobody else meanwhile; None if somebody else has it."""
    path = segment.with_suffix(_POSITION)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    is_ours = hold(fd)
    try:
        yield _Position(path, fd) if is_ours else None
    finally:
        release(fd)
