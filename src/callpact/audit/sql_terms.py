"""Filters as SQL: which rollups have what a question asks for, and by which index records are found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.engine import Engine
from callpact.audit.histogram import DAY, HOUR, Piece, floor
from callpact.audit.sql_rows import (
    BY_CALLER,
    BY_CELL,
    DAILY,
    DAILY_UNITS,
    DAY_OF,
    FACETS,
    HOURLY_UNITS,
)
from callpact.audit.store import Filter

_KEPT = frozenset((*HOURLY_UNITS, *DAILY_UNITS))
_PARTS = ("tool", "namespace", "gate", "code", "key", "version", "contract", "via")
CALLER_COLUMNS = {"caller": "name", "client": "client"}
"""What is known of who called, and its column."""
_CALLER_TEXTS = {"caller": "coalesce(name, '')", "client": "client"}
_SHORT = 6 * HOUR  # All records of so long are read as quickly as the index of a day.
_MANY_CELLS = 500
_OPTIONAL = frozenset({"gate", "code", "key", "version"})


class Where(Struct, frozen=True):
    """A filter as SQL, for rollups and for records alike."""

    unit: int
    """Which rollups answer it: none, of cells or of a facet of them, of callers, or of both."""
    cells: str
    """Terms about cells, empty for all."""
    callers: str
    of_cells: tuple[str, ...]
    of_callers: tuple[str, ...]
    has_many_cells: bool = False

    @property
    def is_daily(self) -> bool:
        """True if there are no hourly rollups that could answer it."""
        return self.unit in DAILY_UNITS

    @property
    def rolled_up(self) -> str:
        """The name of the number of the last record that its rollups count."""
        return "rolled_up_days" if self.is_daily else "rolled_up"

    def rollups(self, window: tuple[int, int], *, daily: bool, unit: int | None = None) -> Source:
        """The rollups of a window, of a day or an hour each; of another unit, if that is given."""
        unit = self.unit if unit is None else unit
        everyone = "caller = 0 AND "
        if unit & BY_CALLER:
            # Also where all are meant: rows are by caller first, and only then by time.
            everyone = "" if self.of_callers else "caller IN (SELECT id FROM callers) AND "
        # Where each of very many cells would be looked for, all are met by caller and time.
        cell = "cell + 0" if self.has_many_cells else "cell"
        fitting = self._terms(unit & ~BY_CALLER, cell)
        sql = f"unit = ? AND {everyone}{fitting} AND start >= ? AND start < ?"
        parameters = (unit | (DAILY if daily else 0), *self._parameters, *window)
        return Source(f"rollups WHERE {sql}", parameters)

    def hours(self, window: tuple[int, int]) -> Source:
        """The rollups of days that know the hours of their calls: of all days that a window touches."""
        days = floor(window[0], DAY), window[1]
        return self.rollups(days, daily=True, unit=BY_CELL | (self.unit & BY_CALLER))

    def by_time(self, window: tuple[int, int]) -> Source:
        """The records of a window one after the other, those that fit."""
        sql = f"calls INDEXED BY calls_at WHERE {self._terms(BY_CELL)} AND at >= ? AND at < ?"
        return Source(sql, (*self._parameters, *window))

    def by_what_they_are(self, window: tuple[int, int]) -> Source:
        """The records of a window by the cells, and callers, that rollups have for its days."""
        days = floor(window[0], DAY), window[1]
        unit = BY_CELL | BY_CALLER if self.of_callers else BY_CELL
        groups = self.rollups(days, daily=True, unit=unit)
        caller = " AND calls.caller = g.caller" if self.of_callers else ""
        sql = (
            f"(SELECT start / {DAY} AS day, start, caller, cell FROM {groups.sql}) AS g "  # noqa: S608 - our own terms
            f"CROSS JOIN calls INDEXED BY calls_what ON {DAY_OF} = g.day "
            f"AND calls.cell = g.cell{caller} AND at >= g.start AND at < g.start + {DAY} "
            "WHERE at >= ? AND at < ?"
        )
        return Source(sql, (*groups.parameters, *window))

    def pending(self, rolled_up: int, windows: Iterable[tuple[int, int]]) -> Source:
        """The records of some windows that are not rolled up yet."""
        bounds = [bound for window in windows for bound in window]
        within = " OR ".join(["at >= ? AND at < ?"] * (len(bounds) // 2)) or "1 = 0"
        # Found by their number alone: an index of times would lead through all that are rolled up.
        sql = f"calls NOT INDEXED WHERE number > ? AND {self._terms(BY_CELL)} AND ({within})"
        return Source(sql, (rolled_up, *self._parameters, *bounds))

    def late(self, rolled_up: int, window: tuple[int, int]) -> Source:
        """Those of one window, found by their time: the newest of all."""
        source = self.by_time(window)
        return Source(f"{source.sql} AND number > ?", (*source.parameters, rolled_up))

    def ends(self, piece: Piece, rolled_up: int) -> Source:
        """The records of a piece: less than an hour, or less than a day of a caller.

        Of the latter those that are rolled up; `pending` has the others.
        """
        source = self.records((piece.begin, piece.end))
        if not self.is_daily:
            return source
        return Source(f"{source.sql} AND number <= ?", (*source.parameters, rolled_up))

    def records(self, window: tuple[int, int]) -> Source:
        """The records of a window that touches two days at most."""
        if window[1] - window[0] <= _SHORT:
            return self.by_time(window)
        days = f"{window[0] // DAY}, {(window[1] - 1) // DAY}"
        # Each cell is looked for, with whatever callers it has: not each caller of each cell.
        terms = f"{DAY_OF} IN ({days}) AND +{self._terms(BY_CELL)} AND at >= ? AND at < ?"
        return Source(f"calls INDEXED BY calls_what WHERE {terms}", (*self._parameters, *window))

    def _terms(self, facet: int, cell: str = "cell") -> str:
        if not self.cells:
            return self.callers
        chosen = f"SELECT id FROM cells WHERE facet = {facet} AND {self.cells}"  # noqa: S608 - our own terms
        return f"{self.callers} AND {cell} IN ({chosen})"

    @property
    def _parameters(self) -> tuple[str, ...]:
        return (*self.of_callers, *self.of_cells)


class Source(Struct, frozen=True):
    """Rollups or records as what follows FROM."""

    sql: str
    parameters: tuple[Any, ...]


def calls_in(engine: Engine, source: Source) -> int:
    """How many calls rollups count."""
    sql = f"SELECT CAST(coalesce(sum(calls), 0) AS bigint) FROM {source.sql}"  # noqa: S608 - our own terms
    row = engine.row(sql, source.parameters)
    return 0 if row is None else row[0]


Others = Literal["callers", "cells"]
"""Whose calls are meant instead of those of a filter, where those are most."""


def terms(
    engine: Engine, where: Filter, by: Sequence[str] = (), *, others: Others | None = None
) -> Where:
    """Which rollups have what a filter and groups ask for.

    `others` asks for the calls of all callers, or of all cells, but those of the filter.
    """
    cells, of_cells = cell_terms(engine, where)
    cells = _other_than(cells) if others == "cells" else cells
    callers, of_callers = caller_terms(engine, where, are_others=others == "callers")
    asked = {name for name in _PARTS if _asks(where, name)}
    asked |= {name for name in by if name not in {*CALLER_COLUMNS, "hour"}}
    if where.outcome is not None:
        asked.add("gate")
    unit = BY_CALLER if of_callers or not CALLER_COLUMNS.keys().isdisjoint(by) else 0
    if asked:
        fitting = (facet for facet, parts in FACETS.items() if asked <= {*parts})
        unit |= next((one for one in fitting if one | unit in _KEPT), BY_CELL)
    return Where(
        unit,
        cells,
        callers,
        tuple(of_cells),
        tuple(of_callers),
        has_many_cells=bool(cells and unit & BY_CALLER) and _are_many(engine, cells, of_cells),
    )


def _are_many(engine: Engine, cells: str, of_cells: Sequence[str]) -> bool:
    sql = f"SELECT count(*) FROM cells WHERE facet = {BY_CELL} AND {cells}"  # noqa: S608 - our own terms
    row = engine.row(sql, of_cells)
    return row is not None and row[0] > _MANY_CELLS


def narrowed(engine: Engine, where: Filter) -> Filter:
    """A filter without patterns that leave nothing out: fewer rollups have what is left to ask."""
    given = {name: getattr(where, name) for name in (*_PARTS, *CALLER_COLUMNS)}
    idle = {
        name: None
        for name, wanted in given.items()
        if "*" in (wanted or "") and not _leaves_out(engine, Filter(**{name: wanted}))
    }
    return replace(where, **idle)


def _leaves_out(engine: Engine, where: Filter) -> bool:
    table = f"cells WHERE facet = {BY_CELL} AND"
    fits, parameters = cell_terms(engine, where)
    if not fits:
        table = "callers WHERE"
        fits, parameters = fitting_callers(engine, where)
    if not fits:
        return False
    return engine.row(f"SELECT 1 FROM {table} {_other_than(fits)} LIMIT 1", parameters) is not None  # noqa: S608 - our own terms


def cell_terms(engine: Engine, where: Filter) -> tuple[str, list[str]]:
    """What a filter says of cells or places."""
    found: list[str] = []
    parameters: list[str] = []
    for name in _PARTS:
        if _asks(where, name):
            wanted = getattr(where, name)
            # Only where the empty text fits: a database knows how many fit a column, not an expression.
            fits_none = name in _OPTIONAL and not wanted.strip("*")
            column = f"coalesce({name}, '')" if fits_none else name
            sign, parameter = engine.pattern(wanted)
            found.append(f"{column} {sign} ?")
            parameters.append(parameter)
    if where.outcome is not None:
        found.append("gate IS NULL" if where.outcome == "ok" else "gate IS NOT NULL")
    return " AND ".join(found), parameters


def _asks(where: Filter, name: str) -> bool:
    """True if a part of a filter leaves something out: `*` is any text, also none."""
    return getattr(where, name) not in {None, "*"}


def _other_than(fits: str) -> str:
    """Terms for all rows but those that fit."""
    return f"({fits}) IS NOT TRUE"


def caller_terms(
    engine: Engine, where: Filter, *, are_others: bool = False
) -> tuple[str, list[str]]:
    """What a filter says of callers; `are_others` turns it round."""
    fits, parameters = fitting_callers(engine, where)
    if not parameters:
        return "1 = 1", []
    fits = _other_than(fits) if are_others else fits
    return f"caller IN (SELECT id FROM callers WHERE {fits})", parameters  # noqa: S608 - our own terms


def fitting_callers(engine: Engine, where: Filter) -> tuple[str, list[str]]:
    """What a filter says of the rows of callers."""
    found: list[str] = []
    parameters: list[str] = []
    for name, column in _CALLER_TEXTS.items():
        if _asks(where, name):
            sign, parameter = engine.pattern(getattr(where, name))
            found.append(f"{column} {sign} ?")
            parameters.append(parameter)
    return " AND ".join(found), parameters
