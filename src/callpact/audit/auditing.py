"""Opens the audit log: where it is, what writes into it, what answers for it.

A log is a folder: the journal that calls are written to, and the store that they end up in. Several
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

from callpact.audit.journal import Durability, Journal
from callpact.audit.recorder import Recorder
from callpact.errors import CallpactError, UsageError
from callpact.folders import data_folder

if TYPE_CHECKING:
    from callpact.audit.indexer import Indexer
    from callpact.audit.sqlite import SqliteStore
    from callpact.audit.store import Store
    from callpact.secrets import Secrets

KEEP_DAYS = 90
"""Days that records are kept unless the configuration says otherwise."""
_DAY_MS = 86_400_000
_START_SECONDS = 1.0
_STORE = "audit.db"
_JOURNAL = "journal"
_log = logging.getLogger("callpact.audit")


def folder_of(where: str | Path | None = None) -> Path:
    """The folder of a log; that of the user if none is named."""
    return data_folder("audit") if where is None else Path(where)


def open_store(where: str | Path | None = None) -> Store:
    """The store of a log, with what is left in its journal.

    Raises:
        CallpactError: it cannot be opened, with what to do.
    """
    from callpact.audit.indexer import Indexer
    from callpact.audit.sqlite import SqliteStore

    folder = folder_of(where)
    _prepare(folder)
    store = SqliteStore(folder / _STORE)
    with Indexer(folder / _JOURNAL, store) as indexer:
        if not indexer.flush():
            _log.warning(
                "the journal in %s is not in the store yet; the answer may lack calls", folder
            )
    return store


def _prepare(folder: Path) -> None:
    """A folder with a store in it, for this user alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / _STORE).touch(mode=0o600)
    except OSError as error:
        raise UsageError(
            f"the audit log cannot be kept in {folder}: {error.strerror}; name another folder with "
            "--audit, or leave it out with --audit off"
        ) from None


@contextlib.contextmanager
def auditing(
    where: str | Path | None = None,
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
    folder = folder_of(where)
    _prepare(folder)
    journal = Journal(folder / _JOURNAL, durability=durability)
    keep_since = int(time.time() * 1000 - keep_days * _DAY_MS)
    indexing = _Indexing(folder, keep_since, keep_bytes)
    # A call needs the journal alone: whoever waits for the first answer does not wait for the rest.
    later = threading.Timer(_START_SECONDS, indexing.start)
    later.daemon = True
    later.start()
    try:
        yield Recorder(journal, secrets=secrets, hashes_only=hashes_only)
    finally:
        later.cancel()
        later.join()
        journal.close()
        indexing.close()


class _Indexing:
    """The store and what fills it, opened when there is time."""

    def __init__(self, folder: Path, keep_since: int, keep_bytes: int | None) -> None:
        self._folder = folder
        self._keep_since = keep_since
        self._keep_bytes = keep_bytes
        self._open: tuple[Indexer, SqliteStore] | None = None

    def start(self) -> None:
        """Open the store, let go of what is too old, and begin to fill it."""
        from callpact.audit.indexer import Indexer
        from callpact.audit.sqlite import SqliteStore

        try:
            store = SqliteStore(self._folder / _STORE)
            store.retention(older_than=self._keep_since, larger_than=self._keep_bytes)
        except CallpactError as error:
            _log.error("records wait in %s: %s", self._folder / _JOURNAL, error)
            return
        self._open = Indexer(self._folder / _JOURNAL, store).start(), store

    def close(self) -> None:
        """Index what is there, and end."""
        if self._open is None:
            self.start()
        if self._open is not None:
            indexer, store = self._open
            indexer.close()
            store.close()
