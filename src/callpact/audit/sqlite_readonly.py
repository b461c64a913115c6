"""The SQLite store for those who may read it and not write: nothing is made, nothing is changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from callpact.audit.migrations import STEPS, version_of
from callpact.audit.sqlite import SqliteStore
from callpact.audit.sqlite_file import BUSY_SECONDS, SqliteFile, add_aggregate
from callpact.errors import InvalidConfig


class ReadOnlyStore(SqliteStore):
    """Answers for a SQLite file; what would write raises.

    Raises:
        InvalidConfig: if the file is of another version than this callpact's.
        UsageError: if it cannot be read, and from all methods that write.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(_ReadOnlyFile(Path(path)))


class _ReadOnlyFile(SqliteFile):
    def __init__(self, path: Path) -> None:
        self.path = path
        with self.told():
            self.connection = _connect(path)
        try:
            with self.told():
                _check(version_of(self.connection), path)
                add_aggregate(self.connection)
        except BaseException:
            self.connection.close()
            raise


def _check(version: int, path: Path) -> None:
    if version != len(STEPS):
        raise InvalidConfig(
            f"'{path}' is an audit log of version {version}, and this callpact reads version "
            f"{len(STEPS)} where it may not write; ask whoever may to open it once with the same"
        )


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that has read something: before, nothing is opened."""
    forms = ["mode=ro"]
    if not path.with_name(f"{path.name}-wal").exists():
        # Without its log nobody writes the file, and what a reader would make beside it is missing.
        forms.append("mode=ro&immutable=1")
    while True:
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{forms.pop(0)}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            if not forms:
                raise
        else:
            return connection
