"""Some records of very many, from all of their time: where there are more of them, more are taken.

How many there are is told by rollups, and each part is read by the index of times, so that it takes
as long for millions as for thousands.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.answers import is_answer, noted
from callpact.audit.namesakes import Namesakes
from callpact.audit.record import Record
from callpact.audit.store import Filter, Store

PLACES = 20
"""Parts of a window, with as many records each, that are looked into."""
_GOLDEN = (5**0.5 - 1) / 2
_COARSE, _FINE = 1_000, 240


class Stretch(Struct, frozen=True):
    """A span of time, the end excluded, and how many records it has."""

    begin: int
    end: int
    calls: int


def stretches(store: Store, where: Filter) -> list[Stretch]:
    """How many records there are through time, from the first that is left to the last."""
    latest = store.log(where, limit=1)
    if not latest:
        return []
    last, window = latest[0].at, where
    if where.since is None:
        # Else only the latest hours would be told.
        window = replace(where, since=_counted(store, replace(where, since=0), _COARSE)[0].begin)
    found = _counted(store, window, _FINE)
    early = store.log(replace(where, until=found[0].end), limit=1)
    if not early:  # Rollups reach further back than records.
        found = found[bisect_left(found, 1, key=lambda one: _has_any(store, where, one.end)) :]
        early = store.log(replace(where, until=found[0].end), limit=1)
    first = _first(store, where, found[0].begin, early[0].at, last)
    bounds = ((max(one.begin, first), min(one.end, last + 1), one.calls) for one in found)
    return [Stretch(*each) for each in bounds if each[0] < each[1]]


def _counted(store: Store, where: Filter, spans: int) -> list[Stretch]:
    trend = store.trend(where, "tool", spans=spans)
    sums = map(sum, zip(*trend.counts.values(), strict=True))
    begins = (trend.begin + number * trend.span for number in range(spans))
    found = zip(begins, sums, strict=False)
    return [Stretch(begin, begin + trend.span, calls) for begin, calls in found if calls]


def _has_any(store: Store, where: Filter, until: int) -> int:
    return len(store.log(replace(where, until=until), limit=1))


def _first(store: Store, where: Filter, begin: int, first: int, last: int) -> int:
    """When the first record was, or so little before that it does not matter in all that time."""
    begin = max(begin, where.since or 0)
    while first - begin > (last - first) // PLACES:
        middle = (begin + first) // 2
        found = store.log(replace(where, since=begin, until=middle + 1), limit=1)
        if found:
            first = found[0].at
        else:
            begin = middle + 1
    return begin


def places(found: Sequence[Stretch], count: int) -> list[tuple[int, int]]:
    """That time in parts with as many records each, not in their order: there may be room for few."""
    total, seen = sum(one.calls for one in found), 0
    bounds: list[int] = []
    for one in found:
        # Within a stretch they are taken to come evenly.
        while len(bounds) * total < (seen + one.calls) * count:
            part = len(bounds) * total / count - seen
            bounds.append(one.begin + int((one.end - one.begin) * part / one.calls))
        seen += one.calls
    bounds.append(found[-1].end)
    parts = [(begin, end) for begin, end in pairwise(bounds) if begin < end]
    order = sorted(range(len(parts)), key=lambda number: number * _GOLDEN % 1)
    return [parts[-1 - number] for number in order]


def spread(
    look: Callable[[int, int, int], list[Record]], parts: Sequence[tuple[int, int]], limit: int
) -> Iterator[list[Record]]:
    """Records of each part, `limit` of them at most; then others of where there are more."""
    left = deque(parts)
    while left:
        begin, end = left.popleft()
        is_moment = end - begin == 1  # It has no parts.
        found = look(begin, end, limit * PLACES if is_moment else limit)
        yield found
        if len(found) >= limit and found[-1].at - begin > 1:
            middle = (begin + found[-1].at) // 2
            left += ((middle, found[-1].at), (begin, middle))


def sizes(records: Iterable[Record]) -> dict[str, int]:
    """Bytes of answers by their hash: equal ones count once."""
    return {r.output.sha256: r.output.size for r in records if r.output is not None}


class Sample:
    """Records with their payloads: so many at most, and of so many bytes."""

    def __init__(self, store: Namesakes, most: int, most_bytes: int, *, looks: int) -> None:
        self._store = store
        self._most = most
        self._most_bytes = most_bytes
        self._looks_left = looks
        self._seen: set[int] = set()
        self._found: dict[str, Record] = {}
        self._sizes: dict[str, int] = {}
        self._most_spread = most * 9 // 10
        self.at_once = self._most_spread // PLACES

    @property
    def records(self) -> list[Record]:
        """All that were taken, each once."""
        return list(self._found.values())

    def take(self, where: Filter, limit: int) -> list[Record]:
        """Take the newest that fit."""
        found = self._read(where, limit)
        self._keep(found)
        return found

    def take_at(self, where: Filter, moments: Iterable[int]) -> None:
        """Take the answers of moments of which something is noted, as long as looks are left."""
        for at in moments:
            if at in self._seen or not self._looks_left:
                continue
            self._looks_left -= 1
            self._seen.add(at)
            found = self._read(replace(where, since=at, until=at + 1), self.at_once)
            self._keep([one for one in found if is_answer(one) and any(noted(one))])

    def take_spread(self, where: Filter, found: Sequence[Stretch], share: float) -> None:
        """Take this share from all the time that there are records of; at most nine tenths of all."""
        if not found:
            return
        end = len(self._found) + share * self._most_spread
        parts = places(found, max(1, round(PLACES * share)))

        def look(begin: int, until: int, limit: int) -> list[Record]:
            return self.take(replace(where, since=begin, until=until), limit)

        for _ in spread(look, parts, self.at_once):
            if len(self._found) >= end or self._is_full:
                break

    @property
    def _is_full(self) -> bool:
        is_large = sum(self._sizes.values()) > self._most_bytes
        return is_large or len(self._found) >= self._most

    def _read(self, where: Filter, limit: int) -> list[Record]:
        if self._is_full:
            return []
        limit = min(limit, self._most - len(self._found))
        return self._store.log(where, limit=limit, with_payloads=True)

    def _keep(self, records: Sequence[Record]) -> None:
        self._found.update((record.id, record) for record in records)
        self._sizes |= sizes(records)
