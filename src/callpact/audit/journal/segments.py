"""The journal: append-only files that hold each record before the call's result leaves.

A process appends to its own segments and holds a lock (`flock`) on the one that it writes, so an
unlocked segment is complete, even after `kill -9`. The journal knows nothing of stores;
`compactor.py` moves lines into a store and removes segments. A write that fails loses its record.
If the folder is removed, the lines of the open segment that no store has are written again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import structs

from callpact.audit.journal.file_locks import CAN_HOLD, hold, release, sync_folder
from callpact.audit.journal.health import FILE, Health, add_health, health_of
from callpact.errors import UsageError

MAX_SEGMENT_BYTES = 16 << 20
"""Size at which a segment of the journal is closed and a new one is opened."""
MAX_SEGMENT_SECONDS = 300.0
"""Age at which a segment of the journal is closed; it is removed once a store has it."""
SECONDS_BETWEEN_LOGS = 60.0
"""A continuing loss of records is logged at most this often."""
SUFFIX = ".jsonl"
"""The suffix of segment files."""

_SECONDS_BETWEEN_LOOKS = 1.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_log = logging.getLogger("callpact.audit")
_now = time.monotonic

Durability = Literal["write", "fsync"]


class Journal:
    """Appends lines to segment files in a folder, from any thread, each with one write.

    With `durability="fsync"` a line also survives a loss of power. `taken` returns how many bytes
    of a segment a store has; None if the store was removed.

    Raises:
        UsageError: the durability is not known, or the system has no `flock`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durability: Durability = "write",
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
        taken: Callable[[str], int | None] = lambda _: 0,
    ) -> None:
        if durability not in {"write", "fsync"}:
            raise UsageError(f"durability must be 'write' or 'fsync', got {durability!r:.100}")
        if not CAN_HOLD:
            raise UsageError("the journal of the audit log needs flock, which this system lacks")
        self.folder = folder
        self.lost = 0
        """Records that could not be kept."""
        self._syncs = durability == "fsync"
        self._write = _write_and_sync if self._syncs else os.write
        self._max = max_segment_bytes
        self._taken = taken
        self._counted = 0  # The part of `lost` that is in the health file.
        self._begin_lock()
        self._fd = -1
        self._name = ""
        self._lines = 0
        self._left_behind: dict[str, tuple[int, int]] = {}  # Lines and bytes of former segments.
        self._stored = 0  # Lines of former segments that a store has.
        self._left = max_segment_bytes
        self._opened_at = 0.0
        self._is_torn = False
        self._look_at = 0.0
        self._logged_at = -SECONDS_BETWEEN_LOGS
        self._is_closed = False
        with _adding:
            _journals.add(self)

    def _begin_lock(self) -> None:
        lock = threading.Lock()
        # Bound methods: `with` adds a tenth to the time of a write.
        self._acquire, self._release = lock.acquire, lock.release

    def append(self, line: bytes) -> bool:
        """Write one line, which ends with a newline; False if it is lost. Raises nothing."""
        self._acquire()
        try:
            if _now() >= self._look_at:
                self._look()
            written = self._write(self._fd, line)
            left = self._left = self._left - written
            if written != len(line):
                return self._tear(written, len(line))
            self._lines += 1
            if left <= 0:
                self._try_to_leave()
        except OSError as error:
            self._fail(error)
            return False
        else:
            return True
        finally:
            self._release()

    def _tear(self, written: int, size: int) -> bool:
        self._is_torn = True
        self._look_at = 0.0
        if written == size - 1:  # Without its newline the line is still a whole record.
            self._lines += 1
            return True
        self._lose(1, f"{written} of {size} bytes were written")
        return False

    def rotate(self, older_than: float = 0.0) -> None:
        """Close a segment that is at least this many seconds old, so that it can be removed."""
        self._acquire()
        try:
            if self._left < self._max and _now() - self._opened_at >= older_than:
                self._leave()
            elif self._fd >= 0 and not os.fstat(self._fd).st_nlink:
                self._rescue()
            self._count_lost()
        except OSError as error:
            self._fail(error, lines=0)
        finally:
            self._release()

    def close(self) -> None:
        """Close the segment. Lines that are appended later are lost, and counted."""
        self._acquire()
        try:
            self._try_to_leave()
            self._is_closed = True
            self._count_lost()
        finally:
            self._release()

    def store(self, name: str) -> None:
        """Record that a store has all lines of a former segment."""
        self._acquire()
        try:
            lines, _ = self._left_behind.pop(name, (0, 0))
            self._stored += lines
        finally:
            self._release()

    def health(self) -> Health:
        """Counts of records that could not be kept, by all processes that write to this folder."""
        known = health_of(self.folder)
        return structs.replace(known, lost=max(known.lost, self.lost))

    def _look(self) -> None:
        """Ensure that there is an open segment, in the folder, that ends with a newline."""
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
            self._rescue()
        if self._fd < 0:
            self._open()
        if self._is_torn:  # A partial line must not corrupt the next one.
            self._left -= os.write(self._fd, b"\n")
            self._is_torn = False
        self._look_at = _now() + _SECONDS_BETWEEN_LOOKS

    def _rescue(self) -> None:
        """Write the lines of a removed segment into a new one; count those that are lost."""
        taken = self._taken(self._name)
        lost = sum(
            lines
            for name, (lines, size) in self._left_behind.items()
            if taken is None or (self._taken(name) or 0) < size
        )
        if taken is None:  # The store was removed as well.
            lost += self._stored
        self._left_behind.clear()
        self._stored = 0
        if not (self.folder / FILE).exists():
            self._counted = 0
        size = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size - (taken or 0), taken or 0) if size > (taken or 0) else b""
        count = data.count(b"\n")
        release(self._forget())
        if lost:
            self._lose(lost, "its folder was removed while it was written")
        try:
            self._open()
            view = memoryview(data)
            while view:
                written = os.write(self._fd, view)
                self._left -= written
                view = view[written:]
        except OSError as error:
            self._lose(count, error.strerror or str(error))
            raise
        self._lines = count
        text = (
            "the audit journal in %s was removed while it was written: %s records are written again"
        )
        _log.warning(text, self.folder, count)

    def _open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the journal is closed")
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        while True:
            name = f"{time.time_ns():020}-{os.getpid()}{SUFFIX}"
            try:
                fd = os.open(self.folder / name, flags, 0o600)
            except FileExistsError:
                continue
            # Before it is locked, a compactor takes it for a complete one and may remove it.
            hold(fd, wait=True)
            if os.fstat(fd).st_nlink:
                break
            release(fd)
        self._fd, self._name = fd, name
        self._opened_at = _now()
        with contextlib.suppress(OSError):
            add_health(self.folder)  # Create the file while there is room.
        if self._syncs:
            sync_folder(self.folder)

    def _leave(self) -> None:
        if self._fd < 0:
            return
        status = os.fstat(self._fd)
        if not status.st_nlink:
            self._rescue()
            status = os.fstat(self._fd)
        if self._lines:
            self._left_behind[self._name] = self._lines, status.st_size
        release(self._forget())

    def _try_to_leave(self) -> None:
        try:
            self._leave()
        except OSError as error:
            _log.debug("a segment could not be closed: %s", error)

    def _forget(self) -> int:
        fd, self._fd = self._fd, -1
        self._left, self._lines = self._max, 0
        self._is_torn = False
        self._look_at = 0.0
        return fd

    def _fail(self, error: OSError, lines: int = 1) -> None:
        if lines:
            self._lose(lines, error.strerror or str(error))
        if error.errno in _FULL:
            return
        self._try_to_leave()  # A new file may be writable.

    def _count_lost(self) -> None:
        """Add new losses to the health file; if that fails, try again the next time."""
        if self.lost > self._counted:
            with contextlib.suppress(OSError):
                add_health(self.folder, lost=self.lost - self._counted)
                self._counted = self.lost

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        self._count_lost()
        now = _now()
        if now - self._logged_at >= SECONDS_BETWEEN_LOGS:
            self._logged_at = now
            _log.error(
                "the audit journal in %s cannot be written (%s): calls go on without it; "
                "records lost so far: %s",
                self.folder,
                reason,
                self.lost,
            )

    def _begin_anew(self) -> None:
        """Reset in a forked process: the segment and its lock belong to the parent."""
        self._begin_lock()
        self.lost = self._counted = self._stored = 0
        self._left_behind.clear()
        if self._fd >= 0:
            os.close(self._forget())


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()
_adding = threading.Lock()


def journals_in(folder: Path) -> list[Journal]:
    """The journals of this process that write to a folder."""
    with _adding:
        return [journal for journal in _journals if journal.folder == folder]


def _after_fork() -> None:
    global _adding  # noqa: PLW0603 - a thread of the parent may hold it
    _adding = threading.Lock()
    for journal in tuple(_journals):
        journal._begin_anew()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _write_and_sync(fd: int, line: bytes) -> int:
    written = os.write(fd, line)
    os.fdatasync(fd)
    return written


# --- segments -------------------------------------------------------------------------------


def segments(folder: Path) -> list[Path]:
    """The segments of all processes, the oldest first; empty without a folder."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)]
