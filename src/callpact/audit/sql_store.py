"""A store of the audit log in tables of a database; `sqlite.py` and `postgres.py` say of which.

Records are rows; beside them hourly and daily rollups are kept, with a histogram of durations. So
questions about millions of calls read some thousand rows, and are exact: where a window begins or
ends within an hour, the records of that hour are counted. Retention lets go of records; their
rollups stay for `ROLLUPS_KEPT` longer. Windows over what is gone are taken in whole hours.

In filters and groups, what a record does not have (no caller, no version) is the empty text.
"""

from __future__ import annotations

from collections.abc import Sequence

from callpact.audit.engine import Engine
from callpact.audit.record import Record
from callpact.audit.sql_causes import Causes
from callpact.audit.sql_keeping import Keeper
from callpact.audit.sql_log import Log
from callpact.audit.sql_questions import Questions
from callpact.audit.sql_sums import Noted
from callpact.audit.store import MAX_ROWS, Cause, Filter, GroupBy, Rate, Trend


class SqlStore:
    """Keeps records in a database.

    Raises:
        UsageError: by all methods, if it cannot be used; what was to be written then is not.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keeper = Keeper(engine)
        self._log = Log(engine)
        self._questions = Questions(engine)
        self._causes = Causes(engine)

    def add(self, records: Sequence[Record]) -> int:
        """Keep records; one that is there with the same id and time is passed over.

        Gives how many are new.
        """
        return self._keeper.add(records)

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of those with the same id the latest."""
        return self._log.find(id)

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
        return self._log.log(where, _bounded(limit), before, with_payloads=with_payloads)

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first; an hour is told by its first millisecond."""
        return self._questions.rates(where, by)

    def trend(self, where: Filter, by: GroupBy, *, spans: int = 24) -> Trend:
        """How many calls each group had over time, in so many spans at most.

        Spans are of whole hours, of whole days where only those are counted. A filter that does not
        say since when is answered for as many hours up to the latest call.
        """
        return self._questions.trend(where, by, max(1, _bounded(spans)))

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window.

        All calls are those of the same caller, version, contract and door, if the filter names them.
        """
        return self._causes.commonest(where, _bounded(limit))

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
        """Bytes that hold something."""
        return self._engine.size

    def close(self) -> None:
        """Let go of the file or connection."""
        self._engine.close()


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))
