"""Rollups: how calls went by hour and by day, so that questions about millions read thousands.

There are rollups in all, by caller, and by each facet of cells (what calls have in common), for
hours and days; by cell, and by caller together with anything else, for days alone, as there are
nearly as many of these in an hour as there are records. Records are rolled up when many of them have
come: then far fewer rows are written than for each batch. Till then questions count those records
themselves; `rolled_up` and `rolled_up_days` tell which.
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

PENDING = 20_000
"""Records that wait to be rolled up, at most; with them those of one batch."""
PENDING_DAYS = 50_000
"""Records that wait for the rollups that there are of days alone, at most; the same."""

_UPSERT_PLACE = """
INSERT INTO place_rollups (unit, start, place, calls, first, last) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (unit, start, place) DO UPDATE SET calls = place_rollups.calls + excluded.calls,
first = CASE WHEN excluded.first < place_rollups.first THEN excluded.first
ELSE place_rollups.first END,
last = CASE WHEN excluded.last > place_rollups.last THEN excluded.last
ELSE place_rollups.last END"""
_PENDING = "SELECT at, caller, cell, mark FROM calls WHERE number > ?"

_Key = tuple[int, int, int, int]
"""Unit, caller, start, cell."""
_FAILED, _REJECTED, _OUTCOMES = 1, 2, 4
_LANE, _MASK = 32, (1 << 32) - 1
_HISTOGRAM = 4 * _LANE


class Rollups:
    """Keeps rollups; used within transactions that write."""

    def __init__(self, engine: Engine, naming: Naming) -> None:
        self._engine = engine
        self._naming = naming

    def roll_up(self, last: int, *, waiting: int | None = None) -> None:
        """Roll up what is not, if so many wait; `last` is the number of the last record."""
        if last - self._engine.kept_number("rolled_up") >= (waiting or PENDING):
            self._add_hours()
            self._engine.keep_number("rolled_up", last)
        if last - self._engine.kept_number("rolled_up_days") >= (waiting or PENDING_DAYS):
            self._add_days()
            self._engine.keep_number("rolled_up_days", last)

    def _add_hours(self) -> None:
        found, outcomes, counts = self._waiting("rolled_up")
        by_cell: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        by_caller: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for at, caller, cell, mark in found:
            hour, call = at // HOUR, counts[mark * _OUTCOMES + outcomes[cell]]
            by_cell[hour, cell].append(call)
            by_caller[hour, caller].append(call)
        facets = self._naming.facets([*outcomes])
        hours: dict[_Key, int] = {}
        for (hour, cell), calls in by_cell.items():
            part = sum(calls)
            for unit, group in facets[cell]:
                key = unit, 0, hour * HOUR, group
                hours[key] = hours.get(key, 0) + part
        for (hour, caller), calls in by_caller.items():
            hours[BY_CALLER, caller, hour * HOUR, 0] = part = sum(calls)
            key = 0, 0, hour * HOUR, 0
            hours[key] = hours.get(key, 0) + part
        days: dict[_Key, int] = {}
        for (unit, caller, start, group), part in hours.items():
            key = unit | DAILY, caller, start // DAY * DAY, group
            days[key] = days.get(key, 0) + part
        told = _Told(counts.base)
        sums = hours | days
        # When the first and the last call was is asked of cells alone.
        self._engine.add_rollups([(*key, *told[sums[key]], key[2], key[2]) for key in sorted(sums)])

    def _add_days(self) -> None:
        found, outcomes, counts = self._waiting("rolled_up_days")
        both: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for at, caller, cell, mark in found:
            call = counts[mark * _OUTCOMES + outcomes[cell]]
            both[caller, at // DAY * DAY, cell] += at, call
        facets = self._naming.facets([*outcomes])
        days: dict[_Key, _Sum] = {}
        for (caller, day, cell), calls in both.items():
            part = _sum_of(calls)
            days[DAILY | BY_CELL | BY_CALLER, caller, day, cell] = part
            _merge(days, (DAILY | BY_CELL, 0, day, cell), part)
            for unit, group in facets[cell]:
                if unit | BY_CALLER in DAILY_UNITS:
                    _merge(days, (DAILY | unit | BY_CALLER, caller, day, group), part)
        told = _Told(counts.base)
        self._engine.add_rollups(
            [(*key, *told[days[key][2]], *days[key][:2]) for key in sorted(days)]
        )

    def _waiting(self, name: str) -> tuple[Sequence[Row], dict[int, int], _Counts]:
        """The records that are not rolled up, the outcome of their cells, and what each adds."""
        found = self._engine.rows(_PENDING, (self._engine.kept_number(name),))
        cells = list({row[2] for row in found})
        outcomes: dict[int, int] = {}
        for id_, gate in self._engine.among("SELECT id, gate FROM cells WHERE id IN", cells):
            failed, rejected = rows.outcome_of(gate)
            outcomes[id_] = failed * _FAILED + rejected * _REJECTED
        return found, outcomes, _Counts(min((row[3] for row in found), default=0))

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


class _Counts(dict[int, int]):
    """What a call adds, by its mark and outcome: calls, failed, rejected, warned, histogram.

    Each has 32 bits of one integer, as the buckets of a histogram, so that all are added at once.
    """

    def __init__(self, least: int) -> None:
        self.base = rows.bucket_in(least)
        """The first bucket of all: what is below would be carried along through every addition."""

    def __missing__(self, call: int) -> int:
        mark, outcome = divmod(call, _OUTCOMES)
        failed, rejected = _FAILED & outcome > 0, _REJECTED & outcome > 0
        warned = mark & rows.IS_WARNED > 0
        counts = 1 | failed << _LANE | rejected << 2 * _LANE | warned << 3 * _LANE
        self[call] = counts = counts | one_in(rows.bucket_in(mark) - self.base) << _HISTOGRAM
        return counts


class _Told(dict[int, tuple[Any, ...]]):
    """Counts as the columns of a row; most rollups are of one call, and like others."""

    def __init__(self, base: int) -> None:
        self._base = base

    def __missing__(self, counts: int) -> tuple[Any, ...]:
        told = counts & (1 << _HISTOGRAM) - 1
        calls, failed = told & _MASK, told >> _LANE & _MASK
        rejected, warned = told >> 2 * _LANE & _MASK, told >> 3 * _LANE
        histogram = packed(counts >> _HISTOGRAM, self._base)
        self[counts] = row = (calls, failed, rejected, warned, histogram)
        return row


_Sum = tuple[int, int, int]
"""When the first and the last was, and counts."""


def _sum_of(calls: list[int]) -> _Sum:
    """Of times and counts by turns."""
    if len(calls) == 2:
        at, counts = calls
        return at, at, counts
    times = calls[::2]
    return min(times), max(times), sum(calls[1::2])


def _merge(sums: dict[_Key, _Sum], key: _Key, part: _Sum) -> None:
    held = sums.get(key)
    if held is not None:
        first, last, counts = part
        part = min(held[0], first), max(held[1], last), held[2] + counts
    sums[key] = part
