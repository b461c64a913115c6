"""The questions to the SQLite store: which rollups or which index answers each.

A window is made of whole days, whole hours and the records at both its ends (`histogram.pieces`).
Logs are bounded by rollups first, which tell how far back one has to go for enough records, and
then read by the index that has them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from callpact.audit import sqlite_rows as rows
from callpact.audit.histogram import (
    DAY,
    FIRST,
    HOUR,
    LAST,
    Piece,
    one_in,
    pieces,
    quantiles,
    unpacked,
    whole_hours,
)
from callpact.audit.record import Record
from callpact.audit.sqlite_file import SqliteFile
from callpact.audit.sqlite_rows import BY_CALLER, BY_CELL, DAILY
from callpact.audit.store import MAX_ROWS, Cause, Filter, GroupBy, Rate
from callpact.errors import UsageError

_DENSE = 20_000
_CELL_PARTS = ("tool", "namespace", "gate", "code", "key", "version", "contract")
_NOT_OF_NOTES = ("caller", "gate", "code", "key", "outcome")
_CALL = ", ".join(f"calls.{name}" for name in rows.CALL.split(", "))
_HOUR_OF = f"at - ((at % {HOUR}) + {HOUR}) % {HOUR}"


class Noted(Struct, frozen=True):
    """A rule at a place in a tool's inputs or outputs, and how many calls it was noted of."""

    tool: str
    version: str | None
    kind: str
    """issue, warning or change."""
    code: str
    path: str
    """With `*` for indexes."""
    calls: int
    first: int
    last: int


class _Where(Struct, frozen=True):
    """A filter as SQL, for rollups and for records alike."""

    unit: int
    """Which rollups answer it: `BY_CELL`, `BY_CALLER`, both or neither."""
    sql: str
    parameters: tuple[str, ...]

    @property
    def for_rollups(self) -> str:
        """Terms that begin with the unit."""
        everyone = "" if self.unit & BY_CALLER else " AND caller = 0"
        return f"unit = ?{everyone} AND {self.sql}"

    @property
    def is_daily(self) -> bool:
        """True if there are no hourly rollups that could answer it."""
        return self.unit == BY_CELL | BY_CALLER


class _Source(Struct, frozen=True):
    """Records as what follows FROM."""

    sql: str
    parameters: tuple[Any, ...]


class _Sum:
    """What is counted of a group of calls."""

    __slots__ = ("calls", "failed", "histogram", "rejected", "warned")

    def __init__(self) -> None:
        self.calls = self.failed = self.rejected = self.warned = self.histogram = 0


class _Times:
    """How often something was, and when for the first and the last time."""

    __slots__ = ("calls", "first", "last")

    def __init__(self) -> None:
        self.calls, self.first, self.last = 0, LAST, FIRST

    def add(self, calls: int, first: int, last: int) -> None:
        self.calls += calls
        self.first = min(self.first, first)
        self.last = max(self.last, last)


class Questions:
    """Reads the file of a store."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, id: str) -> Record | None:
        """One record with its payloads."""
        with self._file.reading():
            sql = f"SELECT {_CALL} FROM calls WHERE id = ?"  # noqa: S608 - constants
            found = self._file.execute(sql, (rows.kept_id(id),)).fetchall()
            return next(iter(self._records(found, with_payloads=True)), None)

    def log(
        self, where: Filter, limit: int, before: tuple[int, str] | None, *, with_payloads: bool
    ) -> list[Record]:
        """Records, the newest first."""
        begin = FIRST if where.since is None else where.since
        end = LAST if where.until is None else where.until
        if before is not None:
            end = min(end, before[0] + 1)
        last = None if before is None else (before[0], rows.kept_id(before[1]))
        found: list[Any] = []
        with self._file.reading():
            terms = _terms(where)
            while limit > len(found) and begin < end:
                low, calls = self._stretch(terms, begin, end, limit - len(found))
                if not calls:
                    break
                found += self._newest(terms, (low, end), calls, limit - len(found), last)
                end = low
            return list(self._records(found, with_payloads=with_payloads))

    def _stretch(self, where: _Where, begin: int, end: int, limit: int) -> tuple[int, int]:
        """From where on there are enough calls, and how many rollups count from there."""
        calls, low = 0, end
        sql = (
            f"SELECT start, calls FROM rollups WHERE {where.for_rollups} "  # noqa: S608 - our own terms
            "AND start >= ? AND start < ? ORDER BY start DESC"
        )
        span = DAY if where.is_daily else HOUR
        unit = where.unit | (DAILY if where.is_daily else 0)
        for start, count in self._file.execute(
            sql, (unit, *where.parameters, _floor(begin, span), end)
        ):
            if calls >= limit and start != low:
                break
            calls, low = calls + count, start
        return max(low, begin), calls

    def _newest(
        self,
        where: _Where,
        window: tuple[int, int],
        calls: int,
        limit: int,
        before: tuple[int, str | bytes] | None,
    ) -> list[Any]:
        """The last of a stretch of time: few are gone to by what they are, many are met by time."""
        source = (
            _by_what_they_are(where, window)
            if where.unit and calls <= _DENSE
            else _by_time(where, window)
        )
        after = "" if before is None else " AND (calls.at, calls.id) < (?, ?)"
        sql = (
            f"SELECT {_CALL} FROM {source.sql}{after} "  # noqa: S608 - our own terms
            "ORDER BY calls.at DESC, calls.id DESC LIMIT ?"
        )
        return self._file.execute(sql, (*source.parameters, *(before or ()), limit)).fetchall()

    def _records(self, found: Sequence[Any], *, with_payloads: bool) -> Iterator[Record]:
        json = "json" if with_payloads else "NULL"
        cells = self._by_id(f"{rows.CELL} FROM cells", (row[4] for row in found))
        callers = self._by_id("name FROM callers", (row[5] for row in found))
        payloads = self._by_id(
            f"sha256, size, form, {json} FROM payloads", (id_ for row in found for id_ in row[-2:])
        )
        for row in found:
            flags, sent, given = row[6], row[-2], row[-1]
            both = (
                rows.payload_of_row(payloads.get(sent), hash_only=bool(flags & rows.INPUT_IS_HASH)),
                rows.payload_of_row(
                    payloads.get(given), hash_only=bool(flags & rows.OUTPUT_IS_HASH)
                ),
            )
            yield rows.record_of(row, cells[row[4]], callers[row[5]][0], both)

    def _by_id(self, columns: str, ids: Iterable[int | None]) -> dict[int, Any]:
        wanted = list({id_ for id_ in ids if id_ is not None})
        found = self._file.among(f"SELECT id, {columns} WHERE id IN", wanted)
        return {id_: rest for id_, *rest in found}

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first."""
        with self._file.reading():
            terms = _terms(where, by)
            sums: defaultdict[int, _Sum] = defaultdict(_Sum)
            for piece in self._pieces(where, terms, finest=by == "hour"):
                if piece.unit == "record":
                    self._count_records(terms, piece, by, sums)
                else:
                    self._count(terms, piece, by, sums)
            groups = self._grouped(sums, by)
        rates = [
            Rate(
                group,
                calls=sum(part.calls for part in parts),
                failed=sum(part.failed for part in parts),
                rejected=sum(part.rejected for part in parts),
                warned=sum(part.warned for part in parts),
                **_quantiles(sum(part.histogram for part in parts)),
            )
            for group, parts in groups.items()
        ]
        return sorted(rates, key=lambda rate: (-rate.calls, rate.group))[:MAX_ROWS]

    def _grouped(self, sums: dict[int, _Sum], by: GroupBy) -> dict[str, list[_Sum]]:
        """The sums of cells, callers or hours under the names that are asked for."""
        groups: defaultdict[str, list[_Sum]] = defaultdict(list)
        if by == "hour":
            return {str(hour): [part] for hour, part in sums.items()}
        column = "name FROM callers" if by == "caller" else f"{by} FROM cells"
        names = self._by_id(column, sums)
        for id_, part in sums.items():
            groups[names[id_][0] or ""].append(part)
        return groups

    def _pieces(self, where: Filter, terms: _Where, *, finest: bool = False) -> Iterator[Piece]:
        """The window in pieces; where records are gone, the smallest rollups that hold a piece."""
        sql = "SELECT value FROM meta WHERE name = 'gone_before'"
        gone = (self._file.execute(sql).fetchone() or (FIRST,))[0]
        span, unit = (DAY, "day") if terms.is_daily else (HOUR, "hour")
        taken: set[int] = set()
        for piece in pieces(where.since, where.until, finest=finest):
            if piece.unit == "day" or (piece.unit == "hour" and not terms.is_daily):
                yield piece
            elif (finest and terms.is_daily) or _floor(piece.begin, span) >= gone:
                yield Piece("record", piece.begin, piece.end)
            else:
                for start in range(_floor(piece.begin, span), piece.end, span):
                    if start >= gone:
                        yield Piece("record", max(start, piece.begin), piece.end)
                        break
                    if start not in taken:
                        taken.add(start)
                        yield Piece(unit, start, start + span)

    def _count(
        self, where: _Where, piece: Piece, by: GroupBy, sums: defaultdict[int, _Sum]
    ) -> None:
        column = {"caller": "caller", "hour": "start"}.get(by, "cell")
        sql = (
            f"SELECT {column}, calls, failed, rejected, warned, histogram FROM rollups "  # noqa: S608 - our own terms
            f"WHERE {where.for_rollups} AND start >= ? AND start < ?"
        )
        unit = where.unit | (DAILY if piece.unit == "day" else 0)
        # The one loop over very many rows: it calls nothing that it need not.
        for group, calls, failed, rejected, warned, histogram in self._file.execute(
            sql, (unit, *where.parameters, piece.begin, piece.end)
        ).fetchall():
            part = sums[group]
            part.calls += calls
            part.warned += warned
            if failed:
                part.failed += failed
                part.rejected += rejected
            part.histogram += unpacked(histogram)

    def _count_records(
        self, where: _Where, piece: Piece, by: GroupBy, sums: defaultdict[int, _Sum]
    ) -> None:
        group = {"caller": "calls.caller", "hour": _HOUR_OF}.get(by, "calls.cell")
        source = _ends_of(where, piece)
        sql = (
            f"SELECT {group}, bucket, count(*), sum(gate IS NOT NULL), "  # noqa: S608 - our own terms
            "sum(ifnull(gate IN ('access', 'input'), 0)), "
            f"sum((flags & {rows.IS_WARNED}) > 0) FROM {source.sql} GROUP BY 1, 2"
        )
        for id_, bucket, calls, failed, rejected, warned in self._file.execute(
            sql, source.parameters
        ):
            part = sums[id_]
            part.calls += calls
            part.failed += failed
            part.rejected += rejected
            part.warned += warned
            part.histogram += one_in(bucket, calls)

    def causes(self, where: Filter, limit: int) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window."""
        with self._file.reading():
            calls = self._by_cell(where)
            terms, parameters = _cell_terms(where)
            sql = f"SELECT id FROM cells WHERE key IS NOT NULL AND {terms}"  # noqa: S608 - our own terms
            chosen = {id_ for (id_,) in self._file.execute(sql, parameters)}
            names = self._by_id("tool, key FROM cells", calls)
            of: Counter[str] = Counter()
            causes: defaultdict[tuple[str, str], _Times] = defaultdict(_Times)
            cells: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
            for cell, times in calls.items():
                tool, key = names[cell]
                of[tool] += times.calls
                if cell in chosen:
                    causes[tool, key].add(times.calls, times.first, times.last)
                    cells[tool, key].append(cell)
            commonest = sorted(causes, key=lambda cause: (-causes[cause].calls, cause))[:limit]
            return [
                Cause(
                    tool,
                    key,
                    message=self._message(where, cells[tool, key], causes[tool, key].last),
                    calls=causes[tool, key].calls,
                    of=of[tool],
                    first=causes[tool, key].first,
                    last=causes[tool, key].last,
                )
                for tool, key in commonest
            ]

    def _by_cell(self, where: Filter) -> dict[int, _Times]:
        """All calls of a window by what they have in common, whatever became of them."""
        everything = Filter(
            tool=where.tool,
            namespace=where.namespace,
            caller=where.caller,
            version=where.version,
            contract=where.contract,
        )
        terms = _terms(everything, "tool")
        found: defaultdict[int, _Times] = defaultdict(_Times)
        for piece in self._pieces(where, terms):
            parameters: tuple[Any, ...]
            if piece.unit == "record":
                source = _ends_of(terms, piece)
                sql = f"SELECT calls.cell, count(*), min(at), max(at) FROM {source.sql} GROUP BY 1"  # noqa: S608 - our own terms
                parameters = source.parameters
            else:
                sql = (
                    "SELECT cell, sum(calls), min(first), max(last) FROM rollups "  # noqa: S608 - our own terms
                    f"WHERE {terms.for_rollups} AND start >= ? AND start < ? GROUP BY cell"
                )
                unit = terms.unit | (DAILY if piece.unit == "day" else 0)
                parameters = (unit, *terms.parameters, piece.begin, piece.end)
            for cell, calls, first, last in self._file.execute(sql, parameters):
                found[cell].add(calls, first, last)
        return found

    def _message(self, where: Filter, cells: list[int], at: int) -> str:
        """That of the latest call; of a call that is gone, the last one of its kind."""
        callers, parameters = _caller_terms(where)
        marks = ", ".join("?" * len(cells))
        row = self._file.execute(
            "SELECT message FROM calls INDEXED BY calls_cell "  # noqa: S608 - our own terms
            f"WHERE cell IN ({marks}) AND at = ? AND {callers} ORDER BY id DESC LIMIT 1",
            (*cells, at, *parameters),
        ).fetchone()
        if row is None:
            row = self._file.execute(
                f"SELECT message FROM cells WHERE id IN ({marks}) ORDER BY message_at DESC",  # noqa: S608 - marks
                cells,
            ).fetchone()
        return row[0] or ""

    def notes(self, where: Filter, limit: int) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first."""
        for name in _NOT_OF_NOTES:
            if getattr(where, name) is not None:
                raise UsageError(f"notes are not kept by '{name}'; leave it out of the filter")
        terms, parameters = _cell_terms(where)
        sql = (
            "SELECT place, sum(calls), min(first), max(last) FROM place_rollups "  # noqa: S608 - our own terms
            f"WHERE unit = ? AND place IN (SELECT id FROM places WHERE {terms}) "
            "AND start >= ? AND start < ? GROUP BY place"
        )
        found: defaultdict[int, _Times] = defaultdict(_Times)
        with self._file.reading():
            for piece in pieces(*whole_hours(where.since, where.until)):
                unit = DAILY if piece.unit == "day" else 0
                for place, calls, first, last in self._file.execute(
                    sql, (unit, *parameters, piece.begin, piece.end)
                ):
                    found[place].add(calls, first, last)
            commonest = sorted(found, key=lambda place: (-found[place].calls, place))[:limit]
            names = self._by_id("tool, version, kind, code, path FROM places", commonest)
        told: list[Noted] = []
        for place in commonest:
            tool, version, kind, code, path = names[place]
            times = found[place]
            told.append(
                Noted(tool, version, kind, code, path, times.calls, times.first, times.last)
            )
        return told


def _quantiles(histogram: int) -> dict[str, float]:
    return dict(zip(("p50", "p95", "p99"), quantiles(histogram, 0.5, 0.95, 0.99), strict=True))


def _floor(at: int, span: int) -> int:
    return at if at == FIRST else at // span * span


def _by_time(where: _Where, window: tuple[int, int]) -> _Source:
    """The records of a window one after the other, those that fit."""
    sql = (
        "calls INDEXED BY calls_at CROSS JOIN cells ON cells.id = calls.cell "
        f"WHERE {where.sql} AND calls.at >= ? AND calls.at < ?"
    )
    return _Source(sql, (*where.parameters, *window))


def _by_what_they_are(where: _Where, window: tuple[int, int]) -> _Source:
    """The records of a window by the cells, and callers, that rollups have for its days."""
    by_caller = where.unit & BY_CALLER
    sql = (
        "(SELECT DISTINCT caller, cell FROM rollups "  # noqa: S608 - our own terms
        f"WHERE {where.for_rollups} AND start >= ? AND start < ?) AS g CROSS JOIN calls "
        + ("INDEXED BY calls_caller" if by_caller else "INDEXED BY calls_cell")
        + " ON calls.cell = g.cell"
        + (" AND calls.caller = g.caller" if by_caller else "")
        + " CROSS JOIN cells ON cells.id = calls.cell WHERE calls.at >= ? AND calls.at < ?"
    )
    unit = DAILY | BY_CELL | by_caller
    days = _floor(window[0], DAY), window[1]
    return _Source(sql, (unit, *where.parameters, *days, *window))


def _ends_of(where: _Where, piece: Piece) -> _Source:
    """Where the records of a piece are: less than an hour, or less than a day of a caller."""
    window = piece.begin, piece.end
    return _by_what_they_are(where, window) if where.is_daily else _by_time(where, window)


def _terms(where: Filter, by: GroupBy | None = None) -> _Where:
    """Which rollups have what a filter and a group ask for."""
    cells, cell_parameters = _cell_terms(where)
    callers, caller_parameters = _caller_terms(where)
    has_caller, has_cell = where.caller is not None, cells != "1"
    unit = 0
    if has_cell or by not in {None, "caller", "hour"}:
        unit |= BY_CELL
    if has_caller or by == "caller":
        unit |= BY_CALLER
    sql = f"{callers} AND cell IN (SELECT id FROM cells WHERE {cells})" if has_cell else callers  # noqa: S608 - our own terms
    return _Where(unit, sql, (*caller_parameters, *cell_parameters))


def _cell_terms(where: Filter) -> tuple[str, list[str]]:
    terms: list[str] = []
    parameters: list[str] = []
    for name in _CELL_PARTS:
        wanted = getattr(where, name)
        if wanted is not None:
            terms.append(f"ifnull({name}, '') {_sign(wanted)} ?")
            parameters.append(_pattern(wanted))
    if where.outcome is not None:
        terms.append("gate IS NULL" if where.outcome == "ok" else "gate IS NOT NULL")
    return " AND ".join(terms) or "1", parameters


def _caller_terms(where: Filter) -> tuple[str, list[str]]:
    wanted = where.caller
    if wanted is None:
        return "1", []
    names = f"SELECT id FROM callers WHERE ifnull(name, '') {_sign(wanted)} ?"  # noqa: S608 - one of two signs
    return f"caller IN ({names})", [_pattern(wanted)]


def _sign(text: str) -> str:
    return "GLOB" if "*" in text else "="


def _pattern(text: str) -> str:
    """A text for `=` or GLOB, where `*` is the one character that is not meant literally."""
    return text.replace("[", "[[]").replace("?", "[?]") if "*" in text else text
