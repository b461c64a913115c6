"""Opens the audit log: its location, its recorder and its store.

A log is a folder with the journal, which calls are written to, and the store, which the journal is
moved into. With a PostgreSQL server as the store, the folder has only the journal. Several
processes may share a log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from callpact.audit.journal.recorder import OnLoss, Recorder
from callpact.audit.journal.segments import Durability, Journal, segments
from callpact.audit.store.compactor import Compactor, is_much
from callpact.audit.store.manifest import read_manifest
from callpact.audit.store.postgres_address import Address, is_address
from callpact.audit.store.retention import keep, keep_segments
from callpact.errors import CallpactError, UsageError
from callpact.folders import data_folder

if TYPE_CHECKING:
    from callpact.audit.store import Store
    from callpact.secrets.keys import Secrets

KEEP_DAYS = 90
"""Days that records are kept unless the configuration says otherwise."""
_START_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""How long to wait before a store that cannot be opened is tried again; records wait in the journal."""
CLOSE_SECONDS = 3.0
"""How long the end of a command or server waits for the store of the audit log."""
_UPKEEP_SECONDS = 3_600.0
_STORE = "store"
_JOURNAL = "journal"
_ID = "id"
_log = logging.getLogger("callpact.audit")


class LogPlace(Struct, frozen=True):
    """The location of a log: its folder, and its server if it has one. Its text has no password."""

    folder: Path
    server: Address | None = None

    @property
    def journal(self) -> Path:
        """The folder of the journal; one for each server, so that records reach the right one."""
        name = _JOURNAL if self.server is None else f"{_JOURNAL}-{self.server.digest}"
        return self.folder / name

    @property
    def can_compact(self) -> bool:
        """False if records stay in the journal because DuckDB is not installed."""
        return self.server is not None or find_spec("duckdb") is not None

    def prepare(self) -> None:
        """Create the folder, readable only by this user.

        Raises:
            UsageError: it cannot be created.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.journal.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the audit log cannot be kept in {self.folder}: {error.strerror}; name another "
                "folder with --audit, or leave it out with --audit off"
            ) from None

    def open_store(self) -> Store:
        """Open the store; that of a server does not read the journal.

        Raises:
            CallpactError: it cannot be opened, with the remedy.
        """
        if self.server is None:
            from callpact.audit.store.parquet import ParquetStore

            return ParquetStore(self.folder)
        from callpact.audit.store.postgres import PostgresStore

        return PostgresStore(self.server.url, self._journal_id())

    def taken(self, segment: str) -> int | None:
        """How many bytes of a segment the store has, by its manifest; None if the store is gone."""
        if self.server is not None:
            return 0  # The server ignores records that it has.
        try:
            manifest = read_manifest(self.folder / _STORE)
        except CallpactError:
            return 0
        return None if manifest is None else manifest.taken.get(segment, 0)

    def _journal_id(self) -> str:
        """The unique id of this journal, created once; a server may store several journals."""
        path = self.journal / _ID
        if not self.journal.is_dir():
            return ""
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, uuid.uuid4().hex.encode())
            os.close(fd)
        return path.read_text("ascii")

    def __str__(self) -> str:
        return str(self.server or self.folder)


def place_of(where: str | Path | LogPlace | None = None) -> LogPlace:
    """The location of a log from a folder or the address of a server; by default the user's log.

    Raises:
        InvalidConfig: the address is malformed.
    """
    if isinstance(where, LogPlace):
        return where
    if isinstance(where, str) and is_address(where):
        return LogPlace(data_folder("audit"), Address(where))
    return LogPlace(data_folder("audit") if where is None else Path(where))


def open_store(where: str | Path | LogPlace | None = None) -> Store:
    """Open the store of a log, for queries over all recorded calls.

    Raises:
        CallpactError: it cannot be opened, with the remedy.
    """
    place = place_of(where)
    store = place.open_store()
    if not _is_flush_due(place):
        return store
    compactor = Compactor(place.journal, store)
    is_flushed = compactor.flush()
    if not compactor.close() or not is_flushed:
        text = "the journal in %s is not in the store yet; the answer may lack calls"
        _log.warning(text, place.folder)
    return store


def _is_flush_due(place: LogPlace) -> bool:
    """True if a reader must move the journal first: to a server, or because it is large."""
    try:
        sizes = [path.stat().st_size for path in segments(place.journal)]
    except OSError:
        return False
    if place.server is not None:
        return bool(sizes)
    parts = [part for part in (place.folder, place.journal, place.folder / _STORE) if part.exists()]
    may_write = all(os.access(part, os.R_OK | os.W_OK | os.X_OK) for part in parts)
    return may_write and is_much(0, len(sizes))


@contextlib.contextmanager
def record_calls(
    where: str | Path | LogPlace | None = None,
    *,
    secrets: Iterable[Secrets] = (),
    hashes_only: Iterable[str] = (),
    durability: Durability = "write",
    keep_days: float = KEEP_DAYS,
    keep_bytes: int | None = None,
    on_loss: OnLoss = "answer",
) -> Generator[Recorder]:
    """Record every call while the context is open; gives the observer for the runtime.

    With `on_loss="refuse"`, a call whose record cannot be written gets an error.

    Raises:
        CallpactError: the log cannot be opened, with the remedy.
    """
    place = place_of(where)
    place.prepare()
    journal = Journal(place.journal, durability=durability, taken=place.taken)
    upkeep = _Upkeep(place, keep_days, keep_bytes)
    # A call needs only the journal: the first result does not wait for the store.
    upkeep.start_in(_START_SECONDS)
    try:
        yield Recorder(journal, secrets=secrets, hashes_only=hashes_only, on_loss=on_loss)
    finally:
        journal.close()
        upkeep.close()


class _Upkeep:
    """Opens the store in the background, moves the journal into it, and removes old records."""

    def __init__(self, place: LogPlace, keep_days: float, keep_bytes: int | None) -> None:
        self._place = place
        self._keep_days = keep_days
        self._keep_bytes = keep_bytes
        self._store: Store | None = None
        self._compactor: Compactor | None = None
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start_in(self, seconds: float) -> None:
        """Open the store after some seconds, and retry until it is open."""
        self._thread = threading.Thread(
            target=self._start, args=(seconds,), name="callpact-audit-open", daemon=True
        )
        self._thread.start()

    def _start(self, seconds: float) -> None:
        is_closing = self._is_closing.wait(seconds)
        while not is_closing:
            if not self._place.can_compact:
                self._keep_segments()
                seconds = _UPKEEP_SECONDS
            elif self._try():
                self._is_closing.wait()
                break
            else:
                seconds = RETRY_SECONDS
            is_closing = self._is_closing.wait(seconds)
        self._end()

    def _keep_segments(self) -> None:
        size = {} if self._keep_bytes is None else {"keep_bytes": self._keep_bytes}
        try:
            keep_segments(self._place.journal, _now(), keep_days=self._keep_days, **size)
        except OSError as error:
            _log.error("old records in %s cannot be removed: %s", self._place.journal, error)

    def _try(self) -> bool:
        """Open the store and start its compactor; False if it cannot be opened."""
        try:
            store = self._place.open_store()
        except CallpactError as error:
            _log.error("records wait in %s: %s", self._place.journal, error)
            return False

        self._store = store
        self._compactor = Compactor(self._place.journal, store, self._keep_up).start()
        return True

    def _keep_up(self) -> None:
        """Remove records beyond the retention, and merge small files."""
        if self._store is not None:
            days, size = self._keep_days, self._keep_bytes
            keep(self._store, self._place.journal, _now(), keep_days=days, keep_bytes=size)
            self._store.tidy()

    def _end(self) -> None:
        is_late = self._compactor is None and self._place.can_compact and self._is_due()
        if is_late:
            self._try()
        if self._compactor is None or self._store is None:
            return
        if is_late:
            self._compactor.flush(CLOSE_SECONDS)
        if not self._compactor.close(CLOSE_SECONDS):
            _log.error("the store does not answer; records wait in %s", self._place.journal)
            return
        if is_late:  # No other process removes old records for short commands.
            try:
                self._keep_up()
            except CallpactError as error:
                _log.error("old records are not removed: %s", error)
        self._store.close()

    def _is_due(self) -> bool:
        """True if a process that ends now moves its records: to a server, or with many segments."""
        with contextlib.suppress(OSError):
            count = len(segments(self._place.journal))
            return bool(count) if self._place.server is not None else is_much(0, count)
        return False

    def close(self) -> None:
        """Move due records and stop, without waiting longer than `CLOSE_SECONDS` for the store."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS + 0.5)


def _now() -> int:
    return time.time_ns() // 1_000_000
