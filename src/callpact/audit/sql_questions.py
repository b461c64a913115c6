"""What is counted of calls, whatever engine is behind it: which rollups or index answer a question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from typing import Any

from msgspec.structs import replace

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine, Row, rows_by_id
from callpact.audit.histogram import (
    DAY,
    FIRST,
    HOUR,
    LAST,
    floor,
    pieces,
    spans,
    whole_hours,
)
from callpact.audit.hours import calls_by_hour, marks_by_hour, sums_by_hour
from callpact.audit.sql_log import Log
from callpact.audit.sql_parts import Part, knows_hours, parts_of
from callpact.audit.sql_rollups import HOURS_FROM
from callpact.audit.sql_rows import BY_CAUSE, BY_CELL, BY_DOOR, BY_TOOL, DAILY
from callpact.audit.sql_sums import Noted, Sum, Tally, Times
from callpact.audit.sql_terms import (
    CALLER_COLUMNS,
    Others,
    Where,
    calls_in,
    cell_terms,
    fitting_callers,
    narrowed,
    terms,
)
from callpact.audit.store import MAX_ROWS, Filter, GroupBy, Rate, Trend
from callpact.errors import UsageError

_DAYS_IN_HOURS = 10
_NOT_OF_NOTES = ("caller", "client", "gate", "code", "key", "via", "outcome")


class Questions:
    """Counts the calls of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log = Log(engine)

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first."""
        with self._engine.reading():
            where = narrowed(self._engine, where)
            others = self._fewer(where, by)
            if others is None:
                groups = self._sums(where, by)
            else:
                groups = self._sums(_without(where, others), by)
                for group, part in self._sums(where, by, others=others).items():
                    groups[group].add(part, -1)
        rates = [part.rate_of(group) for group, part in groups.items() if part.calls]
        return sorted(rates, key=lambda rate: (-rate.calls, rate.group))[:MAX_ROWS]

    def _fewer(self, where: Filter, by: GroupBy) -> Others | None:
        """What a filter leaves out, if that is less: then all are counted without the others."""
        if by in CALLER_COLUMNS:
            return None
        fitting = self._terms(where, by)
        if by != "hour" or not fitting.cells:
            everyone = terms(self._engine, _without(where, "callers"), (by,))
            # All cells are many, too: to count all calls by them takes its time.
            share = 0.75 if everyone.unit == BY_CELL else 0.5
            return "callers" if self._are_most_callers(where, share) else None
        if not fitting.is_daily or not knows_hours(self._engine, where):
            return None
        everyone = terms(self._engine, _without(where, "callers"))
        # Of causes and doors there are few rollups of all callers.
        share = 0.5 if everyone.unit in {BY_CAUSE, BY_DOOR} else 0.8
        if self._are_most_callers(where, share):
            return "callers"
        return "cells" if self._are_most_cells(where, everyone) else None

    def _are_most_cells(self, where: Filter, fitting: Where) -> bool:
        """True if most calls of a window are what is asked for."""
        first = FIRST if where.since is None else floor(where.since, DAY)
        window = first, LAST if where.until is None else where.until
        everything = terms(self._engine, Filter()).rollups(window, daily=True)
        most = calls_in(self._engine, fitting.rollups(window, daily=True))
        return 2 * most > calls_in(self._engine, everything)

    def _are_most_callers(self, where: Filter, share: float) -> bool:
        """True if a filter asks for more than a share of callers, in a window told of all alike."""
        fits, parameters = fitting_callers(self._engine, where)
        if not parameters:
            return False
        # Where hours are not known, callers are told by the day at best, and all calls by the hour.
        known = self._engine.kept_number(HOURS_FROM, FIRST)
        if any(end is not None and end < known for end in (where.since, where.until)):
            return False
        sql = f"SELECT count(*), count(CASE WHEN {fits} THEN 1 END) FROM callers"  # noqa: S608 - our own terms
        row = self._engine.row(sql, parameters)
        return row is not None and row[1] > share * row[0]

    def _terms(self, where: Filter, by: GroupBy, *, others: Others | None = None) -> Where:
        """Which rollups have what is asked for."""
        found = terms(self._engine, where, (by,), others=others)
        # By the hour there are many of tools: days that know their hours are read more quickly.
        if by == "hour" and found.unit == BY_TOOL and knows_hours(self._engine, where):
            return replace(found, unit=BY_CELL)
        return found

    def _sums(self, where: Filter, by: GroupBy, *, others: Others | None = None) -> dict[str, Sum]:
        """How calls went, by group; or those of `others` than the filter asks for."""
        fitting = self._terms(where, by, others=others)
        found = [
            (part, self._counted(part, by))
            for part in parts_of(self._engine, where, fitting, finest=by == "hour")
        ]
        names = self._names((id_ for _, counted in found for id_, *_ in counted), by)
        sums, tally = defaultdict[str, Sum](Sum), Tally()
        for part, counted in found:
            match part.of:
                case "rollups":
                    for id_, calls, failed, rejected, warned, histogram in counted:
                        group = sums[names[id_]]
                        group.calls += calls
                        group.failed += failed
                        group.rejected += rejected
                        group.warned += warned
                        group.histogram += self._engine.sum_in(histogram)
                case "records":
                    for id_, mark, calls in counted:
                        tally[names[id_]][mark] += calls
                case "hours" if by == "hour":
                    for day, kept in _strung((day, kept) for _, day, kept in counted):
                        for hour, summed in sums_by_hour(kept):
                            if part.holds(start := day + hour * HOUR):
                                sums[str(start)].add(summed)
                case "hours":
                    days = (((names[id_], day), kept) for id_, day, kept in counted)
                    for (name, day), kept in _strung(days):
                        for hour, mark, calls in marks_by_hour(kept):
                            if part.holds(day + hour * HOUR):
                                tally[name][mark] += calls
        for name, summed in tally.sums():
            sums[name].add(summed)
        return sums

    def _names(self, ids: Iterable[int], by: GroupBy) -> dict[int, str]:
        """The names that are asked for, of cells, callers or hours."""
        if by == "hour":
            return {hour: str(hour) for hour in ids}
        column = CALLER_COLUMNS.get(by)
        column = f"{by} FROM cells" if column is None else f"{column} FROM callers"
        return {id_: name or "" for id_, (name,) in rows_by_id(self._engine, column, ids).items()}

    def trend(self, where: Filter, by: GroupBy, most: int) -> Trend:
        """How many calls each group had over time, in so many spans at most."""
        with self._engine.reading():
            where = narrowed(self._engine, where)
            last = self._log.last_call(where)
            if last is None:
                return Trend(0, HOUR, {})
            until = last + 1
            since = (until - 1) // HOUR * HOUR - (most - 1) * HOUR
            since = since if where.since is None else where.since
            # Hours are many, above all where they are read from rollups of days.
            days = 2 if terms(self._engine, where, (by,)).is_daily else _DAYS_IN_HOURS
            unit = HOUR if until - since <= days * DAY else DAY
            parts = spans(since, until, most, unit)
            # Cut only where it was given: whole hours are read from rollups.
            window = replace(
                where,
                since=parts.start if where.since is None else since,
                until=parts.stop if where.until is None else min(parts.stop, where.until),
            )
            finest = unit == HOUR or by == "hour"
            others = self._fewer(window, by)
            if others is None:
                counts = self._spread(window, by, parts, finest=finest)
            else:
                counts = self._spread(_without(window, others), by, parts, finest=finest)
                fewer = self._spread(window, by, parts, finest=finest, others=others)
                for group, those in fewer.items():
                    counts[group] = list(map(sub, counts[group], those))
        return Trend(parts.start, parts.step, {g: each for g, each in counts.items() if any(each)})

    def _spread(
        self,
        where: Filter,
        by: GroupBy,
        parts: range,
        *,
        finest: bool,
        others: Others | None = None,
    ) -> dict[str, list[int]]:
        """How many calls there were, by group and span."""
        fitting = self._terms(where, by, others=others)
        found: list[Row] = []
        for part in parts_of(self._engine, where, fitting, finest=finest):
            if part.of == "hours":
                for id_, day, kept in self._counted(part, by):
                    for hour, calls in calls_by_hour(kept or b""):
                        if part.holds(start := day + hour * HOUR):
                            found.append((start if by == "hour" else id_, start, calls))
                continue
            column, start, calls = _group(by), "start", "CAST(sum(calls) AS bigint)"
            if part.of == "records":
                column, start, calls = _group_of_records(by), rows.HOUR_OF, "count(*)"
            sql = f"SELECT {column}, {start}, {calls} FROM {part.source.sql} GROUP BY 1, 2"  # noqa: S608 - our own terms
            found += self._engine.rows(sql, part.source.parameters)
        names = self._names((id_ for id_, _, _ in found), by)
        counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(parts))
        for id_, start, calls in found:
            # Of days whose records are gone, all is told with the first span.
            counts[names[id_]][max(0, (start - parts.start) // parts.step)] += calls
        return counts

    def _counted(self, part: Part, by: GroupBy) -> Sequence[Row]:
        """What there is of a part, by cell, caller or hour: counts, marks, or hours of days."""
        match part.of:
            case "rollups":
                counts = ", ".join(
                    f"CAST(sum({name}) AS bigint)"
                    for name in ("calls", "failed", "rejected", "warned")
                )
                # There may be very many rows: the database sums them up.
                columns = f"{_group(by)}, {counts}, {self._engine.summed('histogram')}"
                groups = "1"
            case "records":
                columns, groups = f"{_group_of_records(by)}, mark, count(*)", "1, 2"
            case "hours":
                # Rows come by caller and day, so that these are put together at once.
                group = "caller" if by == "hour" else _group(by)
                columns, groups = f"{group}, start, {self._engine.strung('hours')}", "1, 2"
        sql = f"SELECT {columns} FROM {part.source.sql} GROUP BY {groups}"  # noqa: S608 - our own terms
        return self._engine.rows(sql, part.source.parameters)

    def notes(self, where: Filter, limit: int) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first."""
        for name in _NOT_OF_NOTES:
            if getattr(where, name) is not None:
                raise UsageError(f"notes are not kept by '{name}'; leave it out of the filter")
        fitting, parameters = cell_terms(self._engine, where)
        sql = (
            "SELECT place, CAST(sum(calls) AS bigint), min(first), max(last) FROM place_rollups "  # noqa: S608 - our own terms
            f"WHERE unit = ? AND place IN (SELECT id FROM places WHERE {fitting or '1 = 1'}) "
            "AND start >= ? AND start < ? GROUP BY place"
        )
        found: defaultdict[int, Times] = defaultdict(Times)
        with self._engine.reading():
            for piece in pieces(*whole_hours(where.since, where.until)):
                unit = DAILY if piece.unit == "day" else 0
                for place, calls, first, last in self._engine.rows(
                    sql, (unit, *parameters, piece.begin, piece.end)
                ):
                    found[place].add(calls, first, last)
            commonest = sorted(found, key=lambda place: (-found[place].calls, place))[:limit]
            names = rows_by_id(
                self._engine, "tool, version, kind, code, path FROM places", commonest
            )
        told: list[Noted] = []
        for place in commonest:
            tool, version, kind, code, path = names[place]
            times = found[place]
            told.append(
                Noted(tool, version, kind, code, path, times.calls, times.first, times.last)
            )
        return told


def _strung(kept: Iterable[tuple[Any, bytes | None]]) -> Iterator[tuple[Any, bytes]]:
    """What is kept of the hours of each group, one after the other."""
    groups: defaultdict[Any, list[bytes]] = defaultdict(list)
    for group, part in kept:
        groups[group].append(part or b"")
    for group, parts in groups.items():
        yield group, b"".join(parts)


def _without(where: Filter, others: Others) -> Filter:
    """A filter that asks for all callers, or for all cells."""
    if others == "callers":
        return replace(where, caller=None, client=None)
    return Filter(where.since, where.until, caller=where.caller, client=where.client)


def _group(by: GroupBy) -> str:
    return "caller" if by in CALLER_COLUMNS else "start" if by == "hour" else "cell"


def _group_of_records(by: GroupBy) -> str:
    return rows.HOUR_OF if by == "hour" else f"calls.{_group(by)}"
