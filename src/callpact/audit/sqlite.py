"""The store of the audit log that needs no server: one SQLite file that several processes share.

Records are rows; beside them, in the same transaction, hourly and daily rollups are kept, with a
histogram of durations. So questions about millions of calls read some thousand rows, and are exact:
where a window begins or ends within an hour, the records of that hour are counted. Retention lets
go of records; their rollups stay for `ROLLUPS_KEPT` longer. Windows over what is gone are taken in
whole hours, and in whole days for a caller together with anything else.

In filters and groups, what a record does not have (no caller, no version) is the empty text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from callpact.audit.record import Record
from callpact.audit.sqlite_file import SqliteFile
from callpact.audit.sqlite_keeping import ROLLUPS_KEPT, Keeper
from callpact.audit.sqlite_questions import Noted, Questions
from callpact.audit.store import MAX_ROWS, Cause, Filter, GroupBy, Rate

__all__ = ["ROLLUPS_KEPT", "Noted", "SqliteStore"]


class SqliteStore:
    """Keeps records in a SQLite file, which is made if it is not there.

    Raises:
        InvalidConfig: if the file is not an audit log, or of a later callpact.
        UsageError: if it cannot be used: locked, read-only, a full disk, damaged. All methods
            raise it; what was to be written then is not.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(Path(path))
        self._keeper = Keeper(self._file)
        self._questions = Questions(self._file)

    def add(self, records: Sequence[Record]) -> int:
        """Keep records; those whose id is there already are passed over. Gives how many are new."""
        return self._keeper.add(records)

    def find(self, id: str) -> Record | None:
        """One record with its payloads."""
        return self._questions.find(id)

    def log(
        self,
        where: Filter,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        with_payloads: bool = False,
    ) -> list[Record]:
        """Records, the newest first; `before` is the time and id of the last one of a page.

        Of inputs and outputs they have the hashes alone, unless `with_payloads` asks for more.
        """
        return self._questions.log(where, _bounded(limit), before, with_payloads=with_payloads)

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first; an hour is told by its first millisecond."""
        return self._questions.rates(where, by)

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window.

        All calls are those of the same caller, version and contract, if the filter names them.
        """
        return self._questions.causes(where, _bounded(limit))

    def notes(self, where: Filter, *, limit: int = 1_000) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first, in whole hours.

        Raises:
            UsageError: if the filter asks for more than time, tool, namespace, version, contract.
        """
        return self._questions.notes(where, _bounded(limit))

    def retention(self, *, older_than: int | None = None, larger_than: int | None = None) -> int:
        """Let go of records before a time, or of the oldest until it is small enough; how many.

        Rollups are kept for `ROLLUPS_KEPT` more than `older_than`; for the sake of size they go
        only after the last record.
        """
        return self._keeper.retention(older_than=older_than, larger_than=larger_than)

    @property
    def size(self) -> int:
        """Bytes of the file that hold something."""
        return self._file.size

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))
