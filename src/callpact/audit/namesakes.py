"""The records of one tool under every id that it had: its own, and those that are its aliases now.

A call is on record under the id of its tool. One that was given another id since, and keeps the
former as an alias, has records under both.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from msgspec.structs import replace

from callpact.audit.reading import pages_of
from callpact.audit.record import Record
from callpact.audit.store import MAX_ROWS, Filter, GroupBy, Noted, Store
from callpact.tool import Tool


class Namesakes:
    """The records of one tool in a store; a filter need not name it."""

    def __init__(self, store: Store, tool: Tool) -> None:
        self._store = store
        others = (name for name in tool.aliases if store.log(Filter(tool=name), limit=1))
        self.names = tuple(dict.fromkeys((tool.id, *others)))

    def _each(self, where: Filter) -> list[Filter]:
        """A filter for each name; the same one if it names a tool."""
        if where.tool is not None:
            return [where]
        return [replace(where, tool=name) for name in self.names]

    def records(self, where: Filter, limit: int = MAX_ROWS + 1) -> Iterator[Record]:
        """Records with their payloads, the newest first; by default one more than a report takes."""
        found = (
            chain.from_iterable(pages_of(self._store, each, limit, with_payloads=True))
            for each in self._each(where)
        )
        return islice(_merged(found), limit)

    def counts(self, where: Filter, by: GroupBy) -> dict[str, int]:
        """How many calls there are, by group."""
        counts: dict[str, int] = {}
        for rate in (rate for each in self._each(where) for rate in self._store.rates(each, by)):
            counts[rate.group] = counts.get(rate.group, 0) + rate.calls
        return counts

    def answer_notes(self, where: Filter) -> list[Noted]:
        """Rules that answers broke, by place, the commonest under each name."""
        return [
            found
            for each in self._each(where)
            for found in self._store.notes(each, of_answers=True)
        ]


def _merged(found: Iterable[Iterable[Record]]) -> Iterator[Record]:
    return heapq.merge(*found, key=lambda record: (record.at, record.id), reverse=True)
