"""Opens the audit log: where it is, what writes into it, what answers for it.

A log is a folder: the journal that calls are written to, and the store that they end up in; the
store may be a PostgreSQL server instead, of which the folder has the journal alone. Several
processes may share one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from callpact.audit.journal import Durability, Journal
from callpact.audit.postgres_address import Address, is_address
from callpact.audit.recorder import Recorder
from callpact.errors import CallpactError, UsageError
from callpact.folders import data_folder

if TYPE_CHECKING:
    from callpact.audit.indexer import Indexer
    from callpact.audit.store import Store
    from callpact.secrets import Secrets

KEEP_DAYS = 90
"""Days that records are kept unless the configuration says otherwise."""
_DAY_MS = 86_400_000
_START_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""How long a store that cannot be opened is left alone; records wait in the journal meanwhile."""
_STORE = "audit.db"
_JOURNAL = "journal"
_log = logging.getLogger("callpact.audit")


class Place(Struct, frozen=True):
    """Where a log is: its folder, and its server if it has one. As text, it shows no password."""

    folder: Path
    server: Address | None = None

    @property
    def journal(self) -> Path:
        """Each server has a journal of its own: what waits for one must not end up in another."""
        name = _JOURNAL if self.server is None else f"{_JOURNAL}-{self.server.digest}"
        return self.folder / name

    def prepare(self) -> None:
        """Make the folder, for this user alone.

        Raises:
            UsageError: it cannot be made.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.server is None:
                (self.folder / _STORE).touch(mode=0o600)
        except OSError as error:
            raise UsageError(
                f"the audit log cannot be kept in {self.folder}: {error.strerror}; name another "
                "folder with --audit, or leave it out with --audit off"
            ) from None

    def open_store(self) -> Store:
        """The store alone, without what is left in the journal.

        Raises:
            CallpactError: it cannot be opened, with what to do.
        """
        if self.server is None:
            from callpact.audit.sqlite import SqliteStore

            return SqliteStore(self.folder / _STORE)
        from callpact.audit.postgres import PostgresStore

        return PostgresStore(self.server.url)

    def __str__(self) -> str:
        return str(self.server or self.folder)


def place_of(where: str | Path | Place | None = None) -> Place:
    """A log by its folder, or the address of its server; that of the user if none is named.

    Raises:
        InvalidConfig: an address that cannot be read.
    """
    if isinstance(where, Place):
        return where
    if isinstance(where, str) and is_address(where):
        return Place(data_folder("audit"), Address(where))
    return Place(data_folder("audit") if where is None else Path(where))


def folder_of(where: str | Path | None = None) -> Path:
    """The folder of a log; that of the user if none is named."""
    return place_of(where).folder


def open_store(where: str | Path | Place | None = None) -> Store:
    """The store of a log, with what is left in its journal.

    Raises:
        CallpactError: it cannot be opened, with what to do.
    """
    from callpact.audit.indexer import Indexer

    place = place_of(where)
    if place.server is None:
        place.prepare()
    store = place.open_store()
    # Who only asks a server has no journal.
    if place.server is None or place.journal.is_dir():
        with Indexer(place.journal, store) as indexer:
            if not indexer.flush():
                _log.warning(
                    "the journal in %s is not in the store yet; the answer may lack calls",
                    place.folder,
                )
    return store


@contextlib.contextmanager
def auditing(
    where: str | Path | Place | None = None,
    *,
    secrets: Iterable[Secrets] = (),
    hashes_only: Iterable[str] = (),
    durability: Durability = "write",
    keep_days: float = KEEP_DAYS,
    keep_bytes: int | None = None,
) -> Generator[Recorder]:
    """Keep a record of every call, for as long as this is open; gives the observer.

    Raises:
        CallpactError: the log cannot be opened, with what to do.
    """
    place = place_of(where)
    place.prepare()
    journal = Journal(place.journal, durability=durability)
    keep_since = int(time.time() * 1000 - keep_days * _DAY_MS)
    indexing = _Indexing(place, keep_since, keep_bytes)
    # A call needs the journal alone: whoever waits for the first answer does not wait for the rest.
    indexing.start_in(_START_SECONDS)
    try:
        yield Recorder(journal, secrets=secrets, hashes_only=hashes_only)
    finally:
        journal.close()
        indexing.close()


class _Indexing:
    """The store and what fills it, opened when there is time, and tried again if it cannot be."""

    def __init__(self, place: Place, keep_since: int, keep_bytes: int | None) -> None:
        self._place = place
        self._keep_since = keep_since
        self._keep_bytes = keep_bytes
        self._open: tuple[Indexer, Store] | None = None
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start_in(self, seconds: float) -> None:
        """Open the store after some seconds, and again until it is open."""
        self._thread = threading.Thread(
            target=self._start, args=(seconds,), name="callpact-audit-open", daemon=True
        )
        self._thread.start()

    def _start(self, seconds: float) -> None:
        while not self._is_closing.wait(seconds) and not self._try():
            seconds = RETRY_SECONDS

    def _try(self) -> bool:
        """Open the store, let go of what is too old, and begin to fill it; False if it cannot."""
        from callpact.audit.indexer import Indexer

        try:
            store = self._place.open_store()
            try:
                store.retention(older_than=self._keep_since, larger_than=self._keep_bytes)
            except CallpactError:
                store.close()
                raise
        except CallpactError as error:
            _log.error("records wait in %s: %s", self._place.journal, error)
            return False
        self._open = Indexer(self._place.journal, store).start(), store
        return True

    def close(self) -> None:
        """Index what is there, and end."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join()
        if self._open is None:
            self._try()
        if self._open is not None:
            indexer, store = self._open
            indexer.close()
            store.close()
