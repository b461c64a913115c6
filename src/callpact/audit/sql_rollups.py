"""Rollups: how calls went by hour and by day, so that questions about millions read thousands.

There are rollups in all, by caller, and by each facet of cells (what calls have in common), for
hours and days; by cell, and by caller together with anything else, for days alone, as there are
nearly as many of these in an hour as there are records: the rollups of cells know the hours of their
calls instead (`hours.py`). Records are rolled up when many of them have come: then far fewer rows are
written than for each batch. Till then questions count those records themselves; `rolled_up` and
`rolled_up_days` tell which, and `waiting_from` where they begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine, Row
from callpact.audit.histogram import DAY, FIRST, HOUR, LAST, one_in, packed
from callpact.audit.hours import HOURS, packed_call
from callpact.audit.record import Record
from callpact.audit.sql_names import Naming
from callpact.audit.sql_rows import BY_CALLER, BY_CELL, DAILY, DAILY_UNITS

PENDING = 20_000
"""Records that wait to be rolled up, at most; with them those of one batch."""
PENDING_DAYS = 50_000
"""Records that wait for the rollups that there are of days alone, at most; the same."""

_WAITING_FROM = "waiting_from"
"""The name of the time of the first record that is not in all rollups."""

HOURS_FROM = "hours_from"
"""The name of the first day whose rollups by cell know all hours; all days, if there is none."""

_UPSERT_PLACE = """
INSERT INTO place_rollups (unit, start, place, calls, first, last) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (unit, start, place) DO UPDATE SET calls = place_rollups.calls + excluded.calls,
first = CASE WHEN excluded.first < place_rollups.first THEN excluded.first
ELSE place_rollups.first END,
last = CASE WHEN excluded.last > place_rollups.last THEN excluded.last
ELSE place_rollups.last END"""

_Key = tuple[int, int, int, int]
"""Unit, caller, start, cell."""
_LANE, _MASK = 32, (1 << 32) - 1
_HISTOGRAM = 4 * _LANE


class Rollups:
    """Keeps rollups; used within transactions that write."""

    def __init__(self, engine: Engine, naming: Naming) -> None:
        self._engine = engine
        self._naming = naming

    def wait_for(self, records: Collection[Record]) -> None:
        """Note since when there are records that are not rolled up: these are new."""
        first = min((record.at for record in records), default=LAST)
        if first < self._engine.kept_number(_WAITING_FROM, LAST):
            self._engine.keep_number(_WAITING_FROM, first)

    def roll_up(self, last: int, *, waiting: int | None = None) -> None:
        """Roll up what is not, if so many wait; `last` is the number of the last record."""
        hours = last - self._engine.kept_number("rolled_up")
        days = last - self._engine.kept_number("rolled_up_days")
        are_days_due = days >= (waiting or PENDING_DAYS)
        # Never days before hours: a log counts on it that all the rest waits for days.
        if hours and (are_days_due or hours >= (waiting or PENDING)):
            self._add_hours()
            self._engine.keep_number("rolled_up", last)
        if are_days_due:
            self._add_days()
            self._engine.keep_number("rolled_up_days", last)
            self._engine.keep_number(_WAITING_FROM, LAST)

    def _add_hours(self) -> None:
        counts = self._counts("rolled_up")
        hours: dict[_Key, int] = {}
        by_cell = self._waiting("rolled_up", f"{rows.HOUR_OF}, cell")
        facets = self._naming.facets(list({cell for _, cell, _ in by_cell}))
        for hour, cell, marks in by_cell:
            part = counts[marks]
            for unit, group in facets[cell]:
                key = unit, 0, hour, group
                hours[key] = hours.get(key, 0) + part
        for hour, caller, marks in self._waiting("rolled_up", f"{rows.HOUR_OF}, caller"):
            hours[BY_CALLER, caller, hour, 0] = part = counts[marks]
            hours[0, 0, hour, 0] = hours.get((0, 0, hour, 0), 0) + part
        days: dict[_Key, int] = {}
        for (unit, caller, start, group), part in hours.items():
            key = unit | DAILY, caller, start // DAY * DAY, group
            days[key] = days.get(key, 0) + part
        sums = hours | days
        # When the first and the last call was is asked of cells alone.
        self._engine.add_rollups(
            [(*key, *counts.columns(sums[key]), key[2], key[2], None) for key in sorted(sums)]
        )

    def _add_days(self) -> None:
        counts, hours = self._counts("rolled_up_days", HOURS), _Hours()
        found = self._waiting(
            "rolled_up_days",
            f"caller, {rows.DAY_OF}, cell",
            "min(at), max(at)",
            marks=f"mark * {HOURS} + {rows.HOUR_IN_DAY}",
        )
        facets = self._naming.facets(list({cell for _, _, cell, *_ in found}))
        days: dict[_Key, _Sum] = {}
        for caller, day, cell, first, last, marks in found:
            start, summed = day * DAY, counts[marks]
            part = first, last, summed, hours[marks]
            days[DAILY | BY_CELL | BY_CALLER, caller, start, cell] = part
            _merge(days, (DAILY | BY_CELL, 0, start, cell), part)
            part = first, last, summed, None
            for unit, group in facets[cell]:
                if unit | BY_CALLER in DAILY_UNITS:
                    _merge(days, (DAILY | unit | BY_CALLER, caller, start, group), part)
        self._engine.add_rollups(
            [
                (*key, *counts.columns(summed), first, last, told)
                for key, (first, last, summed, told) in sorted(days.items())
            ]
        )

    def _counts(self, name: str, hours: int = 1) -> _Counts:
        sql = "SELECT min(mark) FROM calls WHERE number > ?"
        row = self._engine.row(sql, (self._engine.kept_number(name),))
        return _Counts((row[0] if row else None) or 0, hours)

    def _waiting(self, name: str, groups: str, *more: str, marks: str = "mark") -> Sequence[Row]:
        """The records that are not rolled up by groups, each with the marks of its records."""
        columns = ", ".join((groups, *more, self._engine.joined(marks)))
        numbers = ", ".join(str(n) for n in range(1, groups.count(",") + 2))
        sql = f"SELECT {columns} FROM calls WHERE number > ? GROUP BY {numbers}"  # noqa: S608 - our own terms
        return self._engine.rows(sql, (self._engine.kept_number(name),))

    def add_places(self, records: Collection[Record]) -> None:
        """Count where and what the notes of these records are."""
        noted = [
            (record, place)
            for record in records
            if record.issues or record.warnings or record.changes
            for place in rows.places_of(record)
        ]
        ids = self._naming.places(noted)
        times: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        # Each place of a record once, also where several share a name.
        for _, id_, at in {
            (id(record), id_, record.at) for (record, _), id_ in zip(noted, ids, strict=True)
        }:
            times[0, at // HOUR * HOUR, id_].append(at)
            times[DAILY, at // DAY * DAY, id_].append(at)
        self._engine.execute_all(
            _UPSERT_PLACE, [(*key, len(ats), min(ats), max(ats)) for key, ats in times.items()]
        )


class _Counts(dict[str, int]):
    """What calls of some marks add: calls, failed, rejected, warned, histogram.

    Each has 32 bits of one integer, as the buckets of a histogram, so that all are added at once.
    `least` is the least mark of all: what is below would be carried along through every addition.
    Marks of a day stand together with one of so many `hours`.
    """

    def __init__(self, least: int, hours: int) -> None:
        self._base = rows.bucket_in(least)
        self._hours = hours

    def __missing__(self, marks: str) -> int:
        if "," in marks:
            return sum(map(self.__getitem__, marks.split(",")))
        mark = int(marks) // self._hours
        counts = 1 | one_in(rows.bucket_in(mark) - self._base) << _HISTOGRAM
        for lane, flag in enumerate((rows.IS_FAILED, rows.IS_REJECTED, rows.IS_WARNED), 1):
            counts |= (mark & flag > 0) << lane * _LANE
        self[marks] = counts
        return counts

    def columns(self, counts: int) -> tuple[Any, ...]:
        """Counts as the columns of a row."""
        told = counts & (1 << _HISTOGRAM) - 1
        calls, failed = told & _MASK, told >> _LANE & _MASK
        rejected, warned = told >> 2 * _LANE & _MASK, told >> 3 * _LANE
        return calls, failed, rejected, warned, packed(counts >> _HISTOGRAM, self._base)


class _Hours(dict[str, bytes]):
    """Marks of a day as its rollups keep them."""

    def __missing__(self, marks: str) -> bytes:
        if "," in marks:
            return b"".join(map(self.__getitem__, marks.split(",")))
        mark, hour = divmod(int(marks), HOURS)
        self[marks] = kept = packed_call(hour, mark)
        return kept


_Sum = tuple[int, int, int, bytes | None]
"""When the first and the last was, counts, and the hours, if they are told."""


def _merge(sums: dict[_Key, _Sum], key: _Key, part: _Sum) -> None:
    held = sums.get(key)
    if held is not None:
        first, last, counts, hours = part
        hours = None if hours is None or held[3] is None else held[3] + hours
        part = min(held[0], first), max(held[1], last), held[2] + counts, hours
    sums[key] = part


def waiting_from(engine: Engine) -> int:
    """The time of the first record that is not in all rollups."""
    return engine.kept_number(_WAITING_FROM, FIRST)
