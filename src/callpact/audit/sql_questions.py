"""What is counted of calls, whatever engine is behind it: which rollups or index answer a question.

A window is made of whole days, whole hours and the records at both its ends (`histogram.pieces`);
records that are not rolled up yet are counted beside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter, sub
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine, Row
from callpact.audit.histogram import (
    DAY,
    FIRST,
    HOUR,
    LAST,
    Piece,
    floor,
    pieces,
    spans,
    whole_hours,
)
from callpact.audit.hours import calls_by_hour, calls_within, marks_by_hour, sums_by_hour
from callpact.audit.sql_log import Log, calls_in, order_of, rows_by_id, waiting_from
from callpact.audit.sql_rollups import HOURS_FROM
from callpact.audit.sql_rows import BY_CAUSE, BY_CELL, BY_DOOR, BY_TOOL, DAILY
from callpact.audit.sql_sums import Noted, Sum, Tally, Times
from callpact.audit.sql_terms import (
    CALLER_COLUMNS,
    Others,
    Source,
    Where,
    cell_terms,
    fitting_callers,
    narrowed,
    terms,
)
from callpact.audit.store import MAX_ROWS, Cause, Filter, GroupBy, Rate, Trend
from callpact.errors import UsageError

_Key = tuple[str, str]
"""A tool and an error key."""
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
        if not fitting.is_daily or not self._knows_hours(where):
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
        if by == "hour" and found.unit == BY_TOOL and self._knows_hours(where):
            return replace(found, unit=BY_CELL)
        return found

    def _knows_hours(self, where: Filter) -> bool:
        """True if the rollups by cell of all days of a window know the hours of their calls."""
        first = FIRST if where.since is None else where.since
        return first >= self._engine.kept_number(HOURS_FROM, FIRST)

    def _sums(self, where: Filter, by: GroupBy, *, others: Others | None = None) -> dict[str, Sum]:
        """How calls went, by group; or those of `others` than the filter asks for."""
        fitting = self._terms(where, by, others=others)
        found = [
            (part, self._counted(part, by))
            for part in self._parts(where, fitting, finest=by == "hour")
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
        for part in self._parts(where, fitting, finest=finest):
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

    def _parts(self, where: Filter, terms: Where, *, finest: bool = False) -> Iterator[_Part]:
        """All that is to be counted of a window."""
        rolled: list[tuple[int, int]] = []
        rolled_up = self._engine.kept_number(terms.rolled_up)
        has_hours = finest or not terms.is_daily or self._knows_hours(where)
        for piece in self._pieces(where, finest=finest, has_hours=has_hours):
            window = piece.begin, piece.end
            if piece.unit == "record":
                yield _Part("records", terms.ends(piece, rolled_up))
            elif piece.unit == "hour" and terms.is_daily:
                yield _Part("hours", terms.hours(window), window)
            else:
                yield _Part("rollups", terms.rollups(window, daily=piece.unit == "day"))
            if piece.unit != "record" or terms.is_daily:
                rolled.append(window)
        since = waiting_from(self._engine)
        waiting = [(max(begin, since), end) for begin, end in rolled if end > since]
        if waiting:
            yield _Part("records", terms.pending(rolled_up, waiting))

    def _pieces(self, where: Filter, *, finest: bool, has_hours: bool) -> Iterator[Piece]:
        """The window in pieces; where records are gone, the smallest rollups that hold a piece."""
        gone = self._engine.kept_number("gone_before", FIRST)
        span, unit = (HOUR, "hour") if has_hours else (DAY, "day")
        taken: set[int] = set()
        for piece in pieces(where.since, where.until, finest=finest):
            if piece.unit == "day" or (piece.unit == "hour" and has_hours):
                yield piece
            elif floor(piece.begin, span) >= gone:
                yield Piece("record", piece.begin, piece.end)
            else:
                for start in range(floor(piece.begin, span), piece.end, span):
                    if start >= gone:
                        yield Piece("record", max(start, piece.begin), piece.end)
                        break
                    if start not in taken:
                        taken.add(start)
                        yield Piece(unit, start, start + span)

    def _counted(self, part: _Part, by: GroupBy) -> Sequence[Row]:
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

    def causes(self, where: Filter, limit: int) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window."""
        with self._engine.reading():
            where = narrowed(self._engine, where)
            fitting, parameters = cell_terms(self._engine, where)
            sql = f"SELECT id FROM cells WHERE key IS NOT NULL AND {fitting or '1 = 1'}"  # noqa: S608 - our own terms
            chosen = {id_ for (id_,) in self._engine.rows(sql, parameters)}
            calls = self._by_cell(where) if chosen else {}
            names = rows_by_id(self._engine, "tool, key FROM cells", calls)
            of: Counter[str] = Counter()
            causes: defaultdict[_Key, Times] = defaultdict(Times)
            for cell, times in calls.items():
                tool, key = names[cell]
                of[tool] += times.calls
                if cell in chosen:
                    causes[tool, key].add(times.calls, times.first, times.last)
            commonest = sorted(causes.items(), key=lambda item: (-item[1].calls, item[0]))[:limit]
            shown = {cause: times.last for cause, times in commonest}
            of_cells = {
                cell: (tool, key)
                for cell, (tool, key) in names.items()
                if cell in chosen and (tool, key) in shown
            }
            messages = self._messages(where, of_cells, shown)
        return [
            Cause(
                tool,
                key,
                message=messages[tool, key],
                calls=times.calls,
                of=of[tool],
                first=times.first,
                last=times.last,
            )
            for (tool, key), times in commonest
        ]

    def _messages(
        self, where: Filter, of_cells: Mapping[int, _Key], last: Mapping[_Key, int]
    ) -> dict[_Key, str]:
        """Those of the latest calls; of calls that are gone, the last ones of their kinds."""
        fits, parameters = fitting_callers(self._engine, where)
        sql = f"SELECT id FROM callers WHERE {fits or '1 = 1'}"  # noqa: S608 - our own terms
        callers = {id_ for (id_,) in self._engine.rows(sql, parameters)}
        messages: dict[_Key, str] = {}
        sql = "SELECT number, id, at, cell, caller, more FROM calls INDEXED BY calls_at WHERE at IN"
        latest = self._engine.among(sql, list(set(last.values())))
        for _, _, at, cell, caller, more in sorted(latest, key=order_of):
            key = of_cells.get(cell)
            if key is not None and at == last[key] and caller in callers:
                messages[key] = rows.more_of(more).message or ""
        sql = f"SELECT coalesce(message_at, {FIRST}), id, message FROM cells WHERE id IN"  # noqa: S608 - constants
        gone = [cell for cell, key in of_cells.items() if key not in messages]
        for _, cell, message in sorted(self._engine.among(sql, gone), key=itemgetter(0)):
            messages[of_cells[cell]] = message or ""
        return messages

    def _by_cell(self, where: Filter) -> dict[int, Times]:
        """All calls of a window by what they have in common, whatever became of them."""
        everything = Filter(
            tool=where.tool,
            namespace=where.namespace,
            caller=where.caller,
            client=where.client,
            version=where.version,
            contract=where.contract,
            via=where.via,
        )
        fitting = terms(self._engine, everything, ("tool", "key"))
        found: defaultdict[int, Times] = defaultdict(Times)
        for part in self._parts(where, fitting):
            if part.of == "hours":
                for cell, times in self._timed(part, where).items():
                    found[cell].add(times.calls, times.first, times.last)
                continue
            counts = "cell, CAST(sum(calls) AS bigint), min(first), max(last)"
            if part.of == "records":
                counts = "calls.cell, count(*), min(at), max(at)"
            sql = f"SELECT {counts} FROM {part.source.sql} GROUP BY 1"  # noqa: S608 - our own terms
            for cell, calls, first, last in self._engine.rows(sql, part.source.parameters):
                found[cell].add(calls, first, last)
        return found

    def _timed(self, part: _Part, where: Filter) -> dict[int, Times]:
        """Calls by cell, from rollups that know hours: of what failed, records tell when it was."""
        found: defaultdict[int, Times] = defaultdict(Times)
        known = f"{self._engine.strung('hours')}, min(first), max(last)"
        sql = f"SELECT cell, start, {known} FROM {part.source.sql} GROUP BY 1, 2"  # noqa: S608 - our own terms
        for cell, day, kept, first, last in self._engine.rows(sql, part.source.parameters):
            hours = range(*((end - day) // HOUR for end in part.window))
            if within := calls_within(kept or b"", hours):
                calls, begin, end = within
                begun, ended = day + begin * HOUR, day + end * HOUR + HOUR - 1
                found[cell].add(calls, max(first, begun), min(last, ended))
        gone = self._engine.kept_number("gone_before", FIRST)
        failed = terms(self._engine, replace(where, outcome="failed")).records(part.window)
        sql = f"SELECT calls.cell, min(at), max(at) FROM {failed.sql} GROUP BY 1"  # noqa: S608 - our own terms
        for cell, first, last in self._engine.rows(sql, failed.parameters):
            if cell in found:  # Else it is not rolled up yet.
                times = found[cell]
                times.first = times.first if times.first < gone else first
                times.last = last
        return found

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


class _Part(Struct, frozen=True):
    """What is to be counted of a window: rollups, those that know hours, or records."""

    of: Literal["rollups", "hours", "records"]
    source: Source
    window: tuple[int, int] = (FIRST, LAST)
    """Which hours are meant, of all that the source has."""

    def holds(self, hour: int) -> bool:
        """True if an hour is meant."""
        return self.window[0] <= hour < self.window[1]


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
