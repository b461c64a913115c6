"""The journal: where a record is kept before its answer leaves, one line for each, never changed.

A process appends to segments of its own, each held by a lock (`flock`) for as long as it is
written: what nobody holds is whole, also after `kill -9`. It knows nothing of stores; `compactor.py`
moves lines into one and removes segments. A write that fails costs its record. If somebody removes
the folder, lines of the open segment that no store has are written again into a new one.
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
"""Size from which on a segment of the journal is not written any more."""
MAX_SEGMENT_SECONDS = 300.0
"""Age from which on a segment of the journal is not written any more, and goes once a store has it."""
SECONDS_BETWEEN_LOGS = 60.0
"""A loss that goes on is logged this often at most."""
SUFFIX = ".jsonl"
"""How the names of segments end."""

_SECONDS_BETWEEN_LOOKS = 1.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_log = logging.getLogger("callpact.audit")
_now = time.monotonic

Durability = Literal["write", "fsync"]


class Journal:
    """Appends lines to segment files in a folder, from any thread, each with one write.

    With `durability="fsync"` a line also outlives a loss of power. `taken` gives how many bytes of a
    segment a store has; None if the store is gone.

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
        self._told = 0  # Of these, what `health.py` has counted.
        self._begin_lock()
        self._fd = -1
        self._name = ""
        self._lines = 0
        self._left_behind: dict[str, tuple[int, int]] = {}  # Lines and bytes of former segments.
        self._stored = 0  # Lines of those that a store has.
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
        # Bound: `with` costs a tenth of a write more.
        self._acquire, self._release = lock.acquire, lock.release

    def append(self, line: bytes) -> bool:
        """Keep one line, which ends in a line end; False if it is lost. Raises nothing."""
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
        if written == size - 1:  # All but the line end is a whole record.
            self._lines += 1
            return True
        self._lose(1, f"{written} of {size} bytes were written")
        return False

    def rotate(self, older_than: float = 0.0) -> None:
        """Write no more to a segment of that many seconds, so that it goes once a store has it."""
        self._acquire()
        try:
            if self._left < self._max and _now() - self._opened_at >= older_than:
                self._leave()
            elif self._fd >= 0 and not os.fstat(self._fd).st_nlink:
                self._rescue()
            self._tell()
        except OSError as error:
            self._fail(error, lines=0)
        finally:
            self._release()

    def close(self) -> None:
        """Let go of the segment. What is appended later is lost, and counted."""
        self._acquire()
        try:
            self._try_to_leave()
            self._is_closed = True
            self._tell()
        finally:
            self._release()

    def store(self, name: str) -> None:
        """Note that a store has all lines of a former segment."""
        self._acquire()
        try:
            lines, _ = self._left_behind.pop(name, (0, 0))
            self._stored += lines
        finally:
            self._release()

    def health(self) -> Health:
        """What could not be kept, here and by all who write to this folder."""
        known = health_of(self.folder)
        return structs.replace(known, lost=max(known.lost, self.lost))

    def _look(self) -> None:
        """See to it that there is a segment, that it is in the folder, and whole."""
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
            self._rescue()
        if self._fd < 0:
            self._open()
        if self._is_torn:  # What was half-written must not spoil what follows.
            self._left -= os.write(self._fd, b"\n")
            self._is_torn = False
        self._look_at = _now() + _SECONDS_BETWEEN_LOOKS

    def _rescue(self) -> None:
        """Write the lines of a removed segment into a new one; count those that are nowhere."""
        taken = self._taken(self._name)
        lost = sum(
            lines
            for name, (lines, size) in self._left_behind.items()
            if taken is None or (self._taken(name) or 0) < size
        )
        if taken is None:  # The store was removed, too.
            lost += self._stored
        self._left_behind.clear()
        self._stored = 0
        if not (self.folder / FILE).exists():
            self._told = 0
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
            # Until it is locked a compactor takes it for one that is left, and may remove it.
            hold(fd, wait=True)
            if os.fstat(fd).st_nlink:
                break
            release(fd)
        self._fd, self._name = fd, name
        self._opened_at = _now()
        with contextlib.suppress(OSError):
            add_health(self.folder)  # Now, while there is room for it.
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
        self._try_to_leave()  # Perhaps another file can be written.

    def _tell(self) -> None:
        """Count what is lost for those who come later; if that fails, the next time."""
        if self.lost > self._told:
            with contextlib.suppress(OSError):
                add_health(self.folder, lost=self.lost - self._told)
                self._told = self.lost

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        self._tell()
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
        """In a forked process: the segment and its lock are the parent's."""
        self._begin_lock()
        self.lost = self._told = self._stored = 0
        self._left_behind.clear()
        if self._fd >= 0:
            os.close(self._forget())


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()
_adding = threading.Lock()


def journals_in(folder: Path) -> list[Journal]:
    """The journals of this process that write into a folder."""
    with _adding:
        return [journal for journal in _journals if journal.folder == folder]


def _after_fork() -> None:
    global _adding  # noqa: PLW0603 - a thread that is not here may hold it
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
    """The segments of all processes, the oldest first; none if there is no folder."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)]
