"""The store of the audit log that needs no server: one SQLite file that several processes share."""

from __future__ import annotations

from pathlib import Path

from callpact.audit.sql_keeping import ROLLUPS_KEPT
from callpact.audit.sql_store import SqlStore
from callpact.audit.sql_sums import Noted
from callpact.audit.sqlite_file import SqliteFile

__all__ = ["ROLLUPS_KEPT", "Noted", "SqliteStore"]


class SqliteStore(SqlStore):
    """Keeps records in a SQLite file, which is made if it is not there.

    Raises:
        InvalidConfig: if the file is not an audit log, or of a later callpact.
        UsageError: if it cannot be used: locked, read-only, a full disk, damaged. All methods
            raise it; what was to be written then is not.
    """

    def __init__(self, path: str | Path | SqliteFile) -> None:
        self._file = path if isinstance(path, SqliteFile) else SqliteFile(path)
        super().__init__(self._file)
