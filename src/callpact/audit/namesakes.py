"""The records of one tool under every id that it had: its own, and those that are its aliases now.

A call is on record under the id of its tool. One that was given another id since, and keeps the
former as an alias, has records under both.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

from msgspec.structs import replace

from callpact.audit.reading import records_of
from callpact.audit.record import Record
from callpact.audit.store import MAX_ROWS, Cause, Filter, GroupBy, Store
from callpact.tool import Tool

if TYPE_CHECKING:
    from callpact.audit.sql_sums import Noted


class _Noting(Protocol):
    def notes(self, where: Filter, *, limit: int = ...) -> list[Noted]: ...


class Namesakes:
    """What a store has to tell of one tool; a filter need not name it."""

    def __init__(self, store: Store, tool: Tool) -> None:
        self.store = store
        others = (name for name in tool.aliases if store.log(Filter(tool=name), limit=1))
        self.names = tuple(dict.fromkeys((tool.id, *others)))

    @property
    def has_notes(self) -> bool:
        """True if rules that were broken are counted."""
        return hasattr(self.store, "notes")

    def each(self, where: Filter) -> list[Filter]:
        """A filter for each name; the same one if it names a tool."""
        if where.tool is not None:
            return [where]
        return [replace(where, tool=name) for name in self.names]

    def records(self, where: Filter) -> Iterator[Record]:
        """As many as a report takes, and one more, the newest first."""
        found = (records_of(self.store, each) for each in self.each(where))
        return islice(_merged(found), MAX_ROWS + 1)

    def log(self, where: Filter, *, limit: int, with_payloads: bool = False) -> list[Record]:
        """Records, the newest first."""
        found = [
            self.store.log(each, limit=limit, with_payloads=with_payloads)
            for each in self.each(where)
        ]
        return found[0] if len(found) == 1 else list(islice(_merged(found), limit))

    def counts(self, where: Filter, by: GroupBy) -> dict[str, int]:
        """How many calls there are, by group."""
        counts: dict[str, int] = {}
        for rate in (rate for each in self.each(where) for rate in self.store.rates(each, by)):
            counts[rate.group] = counts.get(rate.group, 0) + rate.calls
        return counts

    def causes(self, where: Filter, *, limit: int) -> list[Cause]:
        """The commonest error keys under each name."""
        return [
            found for each in self.each(where) for found in self.store.causes(each, limit=limit)
        ]

    def notes(self, where: Filter, *, limit: int) -> list[Noted]:
        """Rules that were broken, by place, the commonest under each name."""
        store = cast("_Noting", self.store)
        return [found for each in self.each(where) for found in store.notes(each, limit=limit)]


def _merged(found: Iterable[Iterable[Record]]) -> Iterator[Record]:
    return heapq.merge(*found, key=lambda record: (record.at, record.id), reverse=True)
