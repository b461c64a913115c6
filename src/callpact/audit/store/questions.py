"""The questions of a store, for every engine that runs the SQL of `queries.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from callpact.audit.record import Record
from callpact.audit.store import queries
from callpact.audit.store.protocol import (
    HOUR,
    MAX_ROWS,
    Cause,
    Filter,
    GroupBy,
    Noted,
    Rate,
    Span,
    Step,
    Trend,
)
from callpact.audit.store.queries import Query
from callpact.audit.store.rows import parts_of_place, record_of


class Questions(ABC):
    """Answers from the rows that an engine gives."""

    @abstractmethod
    def _rows(self, query: Query) -> Sequence[Sequence[Any]]:
        """All rows of a question."""

    def _newest(self, query: Query, limit: int) -> Sequence[Sequence[Any]]:
        """The rows of a question that wants the newest first, by time and id."""
        return self._rows(query) if limit else ()

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of those with the same id the latest."""
        found = self._newest(queries.find(id), 1)
        return record_of(found[0], with_payloads=True) if found else None

    def ids_like(self, begin: str, end: str, *, limit: int = 4) -> list[str]:
        """Ids that begin and end with these texts, those of the latest calls first."""
        return [id_ for _, id_ in self._rows(queries.ids_like(begin, end, _bounded(limit)))]

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
        limit = _bounded(limit)
        found = self._newest(queries.log(where, limit, before), limit)
        return [record_of(row, with_payloads=with_payloads) for row in found]

    def around(self, record: Record, *, within: int, limit: int) -> list[Record]:
        """Calls of the same caller, client and tool near a call, the earliest first."""
        found = self._rows(queries.around(record, within, _bounded(limit)))
        return [record_of(row, with_payloads=False) for row in found]

    def near_refused(self, where: Filter, *, within: int, limit: int) -> list[Step]:
        """The latest calls refused for their input, and the calls of the same callers near them."""
        found = self._rows(queries.near_refused(where, within, _bounded(limit)))
        return [Step(*row) for row in found]

    def span(self, where: Filter) -> Span | None:
        """How many calls fit, and when; None if there are none."""
        for calls, first, last in self._rows(queries.span(where)):
            if calls:
                return Span(calls, first, last)
        return None

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first; an hour is named by its first millisecond."""
        found = self._rows(queries.rates(where, by))
        return [Rate(*counts, *quantiles) for *counts, quantiles in found]

    def trend(self, where: Filter, by: GroupBy, *, spans: int = 24) -> Trend:
        """How many calls each group had over time, in at most this number of spans."""
        latest = self._rows(queries.last(where))
        if not latest or latest[0][0] is None:
            return Trend(0, HOUR, {})
        parts = queries.spans(where, latest[0][0], max(1, _bounded(spans)))
        counts: dict[str, list[int]] = {}
        for group, start, calls in self._rows(queries.trend(where, by, parts)):
            # Calls may come between the two questions.
            number = min(max(0, (start - parts.start) // parts.step), len(parts) - 1)
            counts.setdefault(group, [0] * len(parts))[number] += calls
        return Trend(parts.start, parts.step, counts)

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window."""
        return [Cause(*row) for row in self._rows(queries.causes(where, _bounded(limit)))]

    def notes(self, where: Filter, *, limit: int = 1_000, of_answers: bool = False) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first."""
        found = self._rows(queries.notes(where, _bounded(limit), of_answers=of_answers))
        return [
            Noted(tool, version, *parts_of_place(place), *counts)
            for tool, version, place, *counts in found
        ]


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))
