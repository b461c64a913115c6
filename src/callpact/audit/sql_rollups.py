"""Rollups: how calls went by hour and by day, so that questions about millions read thousands.

There are rollups in all, by cell (what calls have in common), by each facet of cells, and by caller;
by caller together with anything else by day alone, as there are nearly as many of these in an hour as
there are records. Records are rolled up when `PENDING` of them have come: then far fewer rows are written than
for each batch. Till then questions count those records themselves; `rolled_up` tells which.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine, Row
from callpact.audit.histogram import DAY, HOUR, one_in, packed
from callpact.audit.record import Record
from callpact.audit.sql_names import Naming
from callpact.audit.sql_rows import BY_CALLER, BY_CELL, DAILY, DAILY_UNITS

PENDING = 10_000
"""Records that wait to be rolled up, at most; with them those of one batch."""

_UPSERT_PLACE = """
INSERT INTO place_rollups (unit, start, place, calls, first, last) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (unit, start, place) DO UPDATE SET calls = place_rollups.calls + excluded.calls,
first = CASE WHEN excluded.first < place_rollups.first THEN excluded.first
ELSE place_rollups.first END,
last = CASE WHEN excluded.last > place_rollups.last THEN excluded.last
ELSE place_rollups.last END"""
_PENDING = "SELECT at, caller, cell, bucket, flags FROM calls WHERE number > ?"

_Call = tuple[int, int]
"""When, and what it adds to the counts."""
_Key = tuple[int, int, int, int]
"""Unit, caller, start, cell."""
_Sum = list[int]
"""First, last, and all counts in one integer: calls, failed, rejected, warned, histogram.

Each has 32 bits, as the buckets of a histogram, so that all are added by one addition.
"""
_LANE, _MASK = 32, (1 << 32) - 1
_HISTOGRAM = 4 * _LANE


class Rollups:
    """Keeps rollups; used within transactions that write."""

    def __init__(self, engine: Engine, naming: Naming) -> None:
        self._engine = engine
        self._naming = naming

    def add(self, last: int) -> None:
        """Roll up all records that are not; `last` is the number of the last one."""
        found = self._engine.rows(_PENDING, (self._engine.kept_number("rolled_up"),))
        # What is below the first bucket of all would be carried along through every addition.
        base = min((row[3] for row in found), default=0)
        sums = self._summed(found, base)
        self._engine.add_rollups([_row(key, base, *sums[key]) for key in sorted(sums)])
        self._engine.keep_number("rolled_up", last)

    def add_places(self, records: Collection[Record]) -> None:
        """Count where and what the notes of these records are."""
        times: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for record in records:
            if record.issues or record.warnings or record.changes:
                ids = {self._naming.place(record, place) for place in rows.places_of(record)}
                for id_ in ids:
                    times[0, record.at // HOUR * HOUR, id_].append(record.at)
                    times[DAILY, record.at // DAY * DAY, id_].append(record.at)
        self._engine.execute_all(
            _UPSERT_PLACE, [(*key, len(ats), min(ats), max(ats)) for key, ats in times.items()]
        )

    def _summed(self, found: Sequence[Row], base: int) -> dict[_Key, _Sum]:
        """Calls by every unit: the finest from the calls, the others from the finest."""
        cells = list({row[2] for row in found})
        select = "SELECT id, gate FROM cells WHERE id IN"
        outcomes = {id_: rows.outcome_of(gate) for id_, gate in self._engine.among(select, cells)}
        counts = _Counts(base)
        both: defaultdict[tuple[int, int, int], list[_Call]] = defaultdict(list)
        by_cell: defaultdict[tuple[int, int], list[_Call]] = defaultdict(list)
        by_caller: defaultdict[tuple[int, int], list[_Call]] = defaultdict(list)
        for at, caller, cell, bucket, flags in found:
            call = at, counts[bucket, outcomes[cell], flags & rows.IS_WARNED]
            hour = at // HOUR
            both[caller, hour // 24 * DAY, cell].append(call)
            by_cell[hour, cell].append(call)
            by_caller[hour, caller].append(call)
        sums: dict[_Key, _Sum] = {}
        facets = self._naming.facets(cells)
        for (caller, day, cell), calls in both.items():
            part = _sum_of(calls)
            sums[DAILY | BY_CELL | BY_CALLER, caller, day, cell] = part
            for unit, group in facets[cell]:
                if unit | BY_CALLER in DAILY_UNITS:
                    _merge(sums, (DAILY | unit | BY_CALLER, caller, day, group), part)
        for (hour, cell), calls in by_cell.items():
            part, start, day = _sum_of(calls), hour * HOUR, hour // 24 * DAY
            for unit, group in ((BY_CELL, cell), *facets[cell]):
                _merge(sums, (unit, 0, start, group), part)
                _merge(sums, (DAILY | unit, 0, day, group), part)
        for (hour, caller), calls in by_caller.items():
            part, start, day = _sum_of(calls), hour * HOUR, hour // 24 * DAY
            _merge(sums, (BY_CALLER, caller, start, 0), part)
            _merge(sums, (DAILY | BY_CALLER, caller, day, 0), part)
            _merge(sums, (0, 0, start, 0), part)
            _merge(sums, (DAILY, 0, day, 0), part)
        return sums


class _Counts(dict[tuple[int, tuple[bool, bool], int], int]):
    """What a call adds, by its bucket, whether it failed and was rejected, and was warned of."""

    def __init__(self, base: int) -> None:
        self._base = base

    def __missing__(self, call: tuple[int, tuple[bool, bool], int]) -> int:
        bucket, (failed, rejected), warned = call
        counts = 1 | failed << _LANE | rejected << 2 * _LANE | (warned > 0) << 3 * _LANE
        self[call] = counts = counts | one_in(bucket - self._base) << _HISTOGRAM
        return counts


def _sum_of(calls: list[_Call]) -> _Sum:
    if len(calls) == 1:
        at, counts = calls[0]
        return [at, at, counts]
    ats, counts = zip(*calls, strict=True)
    return [min(ats), max(ats), sum(counts)]


def _merge(sums: dict[_Key, _Sum], key: _Key, part: _Sum) -> None:
    held = sums.get(key)
    if held is None:
        sums[key] = part.copy()
        return
    first, last, counts = part
    held[0] = min(held[0], first)
    held[1] = max(held[1], last)
    held[2] += counts


def _row(key: _Key, base: int, first: int, last: int, counts: int) -> tuple[Any, ...]:
    told = counts & (1 << _HISTOGRAM) - 1
    calls, failed = told & _MASK, told >> _LANE & _MASK
    rejected, warned = told >> 2 * _LANE & _MASK, told >> 3 * _LANE
    histogram = packed(counts >> _HISTOGRAM, base)
    return *key, calls, failed, rejected, warned, first, last, histogram
