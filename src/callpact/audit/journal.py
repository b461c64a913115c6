"""The journal: where a record is kept before its answer leaves, one line for each, never changed.

A process appends to segments of its own, each held by a lock (`flock`) for as long as it is
written: what nobody holds is whole, also after `kill -9`. It knows nothing of stores; `indexer.py`
moves lines into one and removes segments. A write that fails costs its record, never a call.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from callpact.audit.record import Payload, Record, payload_of
from callpact.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None

MAX_SEGMENT_BYTES = 16 << 20
"""Size from which on a segment of the journal is not written any more."""
SECONDS_BETWEEN_LOGS = 60.0
"""A loss that goes on is logged this often at most."""
SUFFIX = ".jsonl"
"""How the names of segments end."""

_SECONDS_BETWEEN_LOOKS = 1.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_log = logging.getLogger("callpact.audit")
_write, _now = os.write, time.monotonic

Durability = Literal["write", "fsync"]


class Journal:
    """Appends lines to segment files in a folder, from any thread, each with one write.

    With `durability="fsync"` a line also outlives a loss of power.

    Raises:
        UsageError: the durability is not known, or the system has no `flock`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durability: Durability = "write",
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
    ) -> None:
        if durability not in {"write", "fsync"}:
            raise UsageError(f"durability must be 'write' or 'fsync', got {durability!r:.100}")
        if fcntl is None:
            raise UsageError("the journal of the audit log needs flock, which this system lacks")
        self.folder = folder
        self.lost = 0
        """Records that could not be kept."""
        self._syncs = durability == "fsync"
        self._max = max_segment_bytes
        self._lock = threading.Lock()
        self._fd = -1
        self._size = 0
        self._is_torn = False
        self._unseen = 0  # Lines since the segment was last seen to have a name.
        self._look_at = 0.0
        self._logged_at = -SECONDS_BETWEEN_LOGS
        self._is_closed = False
        _journals.add(self)

    def append(self, line: bytes) -> bool:
        """Keep one line, which ends in a line end; False if it is lost. Raises nothing."""
        with self._lock:
            try:
                if _now() >= self._look_at:
                    self._look()
                if self._is_torn:  # What was half-written must not spoil this one.
                    line = b"\n" + line
                written = _write(self._fd, line)
                self._size = size = self._size + written
                if written != len(line) or self._is_torn:
                    self._is_torn = written < len(line)
                    if written < len(line) - 1:  # All but the line end is a whole record.
                        self._lose(1, f"{written} of {len(line)} bytes were written")
                        return False
                self._unseen += 1
                if self._syncs:
                    os.fdatasync(self._fd)
                if size >= self._max:
                    self._leave()
            except OSError as error:
                self._fail(error)
                return False
            return True

    def rotate(self) -> None:
        """Write no more to the present segment, so that it can be removed once it is indexed."""
        with self._lock:
            if self._size:
                self._leave()

    def close(self) -> None:
        """Let go of the segment. What is appended later is lost, and counted."""
        with self._lock:
            self._leave()
            self._is_closed = True

    def _look(self) -> None:
        """See to it that there is a segment, and that it still stands in the folder."""
        if self._fd >= 0 and self._is_removed():
            self._leave()
        if self._fd < 0:
            self._open()
        self._unseen = 0
        self._look_at = _now() + _SECONDS_BETWEEN_LOOKS

    def _is_removed(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def _open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the journal is closed")
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        while True:
            name = f"{time.time_ns():020}-{os.getpid()}{SUFFIX}"
            try:
                fd = os.open(self.folder / name, flags, 0o600)
            except FileExistsError:
                continue
            # Until it is locked an indexer takes it for one that is left, and may remove it.
            hold(fd, wait=True)
            if os.fstat(fd).st_nlink:
                break
            release(fd)
        self._fd = fd
        if self._syncs:
            _sync(self.folder)

    def _leave(self) -> None:
        if self._fd < 0:
            return
        if self._unseen and self._is_removed():
            self._lose(self._unseen, "its segment was removed while it was written")
        release(self._forget())

    def _forget(self) -> int:
        fd, self._fd = self._fd, -1
        self._size = self._unseen = 0
        self._is_torn = False
        self._look_at = 0.0
        return fd

    def _fail(self, error: OSError) -> None:
        self._lose(1, error.strerror or str(error))
        if error.errno in _FULL:
            return
        try:
            self._leave()  # Perhaps another file can be written.
        except OSError as again:
            _log.debug("a segment could not be closed: %s", again)

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
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
        self._lock = threading.Lock()
        self.lost = 0
        if self._fd >= 0:
            os.close(self._forget())


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in tuple(_journals):
        journal._begin_anew()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- lines and segments ---------------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def encode_line(record: Struct) -> bytes:
    """A record, or what reads as one, as one line of the journal, with its line end."""
    return _encoder.encode(record) + b"\n"


def decode_line(line: bytes) -> Record | None:
    """The record of a line; None for one that was not written to its end.

    Hashes that the line leaves out are made here: a call does not wait for them.
    """
    try:
        record = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    sent, given = record.input, record.output
    if _lacks_hash(sent) or _lacks_hash(given):
        return msgspec.structs.replace(record, input=_hashed(sent), output=_hashed(given))
    return record


def _lacks_hash(payload: Payload | None) -> bool:
    return payload is not None and not payload.sha256


def _hashed(payload: Payload | None) -> Payload | None:
    if payload is None or payload.sha256 or payload.json is None:
        return payload
    return payload_of(payload.json.encode())


def segments(folder: Path) -> list[Path]:
    """The segments of all processes, the oldest first; none if there is no folder."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names)]


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
