"""The names that records are kept under: what calls have in common (cells), callers, and places.

Each is kept once. What a caller can invent is bounded: names of tools that are not there, paths into
what was sent, callers. Beyond the bounds records share the name `OTHERS`, so that a store cannot be
filled with names; a record itself tells what it was called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine
from callpact.audit.record import Record
from callpact.audit.sql_rows import BY_CELL, FACETS, Names

OTHERS = "(others)"
"""The tool, caller or path of what is counted together, as there are too many."""
MAX_UNKNOWN_NAMES = 1_000
"""Names of tools that are not there which the audit log counts one by one."""
MAX_CAUSES = 1_000
"""Error keys, and also places of issues, of one tool that the audit log counts one by one."""
MAX_CALLERS = 100_000
"""Callers that the audit log counts one by one."""

_CACHED = 50_000
_PARTS: tuple[str, ...] = tuple(rows.CELL.split(", "))
_DAILY_UNITS = ", ".join(str(unit) for unit in rows.UNITS if unit & rows.DAILY)
_INSERT_CELL = (
    f"INSERT INTO cells (facet, identity, namespace, {rows.CELL}) "  # noqa: S608 - constants
    f"VALUES ({', '.join('?' * 13)})"
)
_INSERT_PLACE = f"INSERT INTO places ({rows.PLACE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_COUNTS = {
    "unknown": "SELECT count(DISTINCT tool) FROM cells WHERE gate = 'find' AND facet = 1",
    "causes": "SELECT count(DISTINCT key) FROM cells WHERE tool = ? AND facet = 1",
    "places": "SELECT count(DISTINCT path) FROM places WHERE tool = ?",
    "callers": "SELECT count(*) FROM callers",
}


class Naming:
    """Gives names their ids; used within transactions that write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cells: dict[tuple[str | None, ...], int] = {}
        self._callers: dict[str | None, int] = {}
        self._places: dict[tuple[str | None, ...], int] = {}
        self._facets: dict[int, list[tuple[int, int]]] = {}
        self._counts: dict[tuple[str, ...], int] = {}
        self._seen = (engine.opened, 0)

    def begin(self) -> None:
        """A transaction begins: others may have given or removed names since the last one."""
        seen = (self._engine.opened, self._engine.kept_number("names_removed"))
        if seen != self._seen:
            self.forget()
            self._seen = seen
        self._counts.clear()

    def forget(self) -> None:
        """Names may have no id any more: a transaction failed, or they were removed."""
        for known in (self._cells, self._callers, self._places, self._facets, self._counts):
            known.clear()

    def of(self, record: Record) -> Names:
        """Under which names a record is kept."""
        cell = rows.cell_of(record)
        cell_id, caller_id = self._cells.get(cell), self._callers.get(record.caller)
        if cell_id is not None and caller_id is not None:
            return Names(cell_id, caller_id)
        told: dict[str, str | None] = {}
        if cell_id is None:
            cell_id, kept = self._cell(cell)
            told = {"tool": kept[0], "key": kept[-1]}
        if caller_id is None:
            caller_id, told["caller"] = self._caller(record.caller)
        return Names(cell_id, caller_id, rows.given_names(record, told))

    def place(self, record: Record, place: tuple[str, str, str]) -> int:
        """Where a note is, and what it is."""
        kind, code, path = place
        identity = (record.tool, record.version, record.contract, kind, code, path)
        found = self._places.get(identity)
        if found is not None:
            return found
        select, names = "SELECT id FROM places WHERE identity = ?", [*identity]
        found = self._found(select, (repr(identity),))
        if found is None:
            if record.gate == "find" and self._is_full("unknown", MAX_UNKNOWN_NAMES):
                names[0] = OTHERS
            if self._is_full("places", MAX_CAUSES, cast("str", names[0])):
                names[-1] = OTHERS
            kept = tuple(names)
            found = self._found(select, (repr(kept),))
            if found is None:
                namespace = (kept[0] or "").partition(".")[0]
                found = self._insert(_INSERT_PLACE, (repr(kept), namespace, *kept))
                self._recount("places", cast("str", kept[0]))
            if kept != identity:
                return found
        return _remembered(self._places, identity, found)

    def remove_unused(self) -> None:
        """Remove names that no rollup and no record has any more, in every process."""
        self._engine.change(
            "DELETE FROM places WHERE id NOT IN (SELECT DISTINCT place FROM place_rollups)"
        )
        for table, column in (("cells", "cell"), ("callers", "caller")):
            # All records that were rolled up have daily rollups for at least as long.
            sql = (
                f"SELECT id FROM {table} WHERE id NOT IN "  # noqa: S608 - one of two
                f"(SELECT DISTINCT {column} FROM rollups WHERE unit IN ({_DAILY_UNITS}))"
            )
            ids = [id_ for (id_,) in self._engine.rows(sql)]
            select = f"SELECT DISTINCT {column} FROM calls WHERE {column} IN"  # noqa: S608 - one of two
            used = {id_ for (id_,) in self._engine.among(select, ids)}
            self._engine.execute_all(
                f"DELETE FROM {table} WHERE id = ?",  # noqa: S608 - one of two
                [(id_,) for id_ in ids if id_ not in used],
            )
        self._engine.keep_number("names_removed", self._engine.kept_number("names_removed") + 1)
        self.forget()

    def facets(self, cells: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """For each cell the facets that it is counted by: which, and the id of that one."""
        select = f"SELECT id, {rows.CELL} FROM cells WHERE id IN"  # noqa: S608 - constants
        missing = [cell for cell in cells if cell not in self._facets]
        if len(self._facets) + len(missing) > _CACHED:
            self._facets.clear()
            missing = [*cells]
        for id_, *parts in list(self._engine.among(select, missing)):
            names: dict[str, str | None] = dict(zip(_PARTS, parts, strict=True))
            self._facets[id_] = [(facet, self._facet(facet, names)) for facet in FACETS]
        return self._facets

    def _facet(self, facet: int, names: dict[str, str | None]) -> int:
        cell = rows.facet_of(facet, names)
        known = (str(facet), *cell)
        found = self._cells.get(known)
        return found or _remembered(self._cells, known, self._named_cell(facet, cell)[0])

    def _cell(self, cell: tuple[str | None, ...]) -> tuple[int, tuple[str | None, ...]]:
        """A cell that is not known yet, and under which names it is kept."""
        found = self._found("SELECT id FROM cells WHERE identity = ?", (repr(cell),))
        if found is not None:
            return _remembered(self._cells, cell, found), cell
        parts = dict(zip(_PARTS, cell, strict=True))
        if parts["gate"] == "find" and self._is_full("unknown", MAX_UNKNOWN_NAMES):
            parts["tool"] = OTHERS
        if parts["key"] is not None and self._is_full("causes", MAX_CAUSES, parts["tool"] or ""):
            parts["key"] = f"{parts['code']}:{OTHERS}:"
        kept = tuple(parts.values())
        found, is_new = self._named_cell(BY_CELL, kept)
        if is_new:
            self._recount("causes", parts["tool"] or "")
            if parts["gate"] == "find":
                self._recount("unknown")
        # Names that were invented would drive those that are used out of what is remembered.
        return (_remembered(self._cells, cell, found) if kept == cell else found), kept

    def _named_cell(self, facet: int, cell: tuple[str | None, ...]) -> tuple[int, bool]:
        """The id of a cell, and whether it is new."""
        identity = repr(cell) if facet == BY_CELL else repr((facet, *cell))
        found = self._found("SELECT id FROM cells WHERE identity = ?", (identity,))
        if found is not None:
            return found, False
        namespace = (cell[0] or "").partition(".")[0]
        return self._insert(_INSERT_CELL, (facet, identity, namespace, *cell)), True

    def _caller(self, name: str | None) -> tuple[int, str | None]:
        found = self._found_caller(name)
        if found is None:
            kept = OTHERS if self._is_full("callers", MAX_CALLERS) else name
            found = None if kept == name else self._found_caller(kept)
            if found is None:
                found = self._insert("INSERT INTO callers (name) VALUES (?)", (kept,))
                self._counts["callers",] += 1
            if kept != name:
                return found, kept
        return _remembered(self._callers, name, found), name

    def _found_caller(self, name: str | None) -> int | None:
        return self._found(
            "SELECT id FROM callers WHERE coalesce(name, '') = ? AND (name IS NULL) = ?",
            (name or "", name is None),
        )

    def _found(self, select: str, parameters: Sequence[Any]) -> int | None:
        row = self._engine.row(select, parameters)
        return None if row is None else row[0]

    def _insert(self, insert: str, names: Sequence[Any]) -> int:
        return cast("Any", self._engine.row(f"{insert} RETURNING id", names))[0]

    def _is_full(self, what: str, most: int, *of: str) -> bool:
        held = self._counts.get((what, *of))
        if held is None:
            held = cast("int", cast("Any", self._engine.row(_COUNTS[what], of))[0])
            self._counts[what, *of] = held
        return held >= most

    def _recount(self, what: str, *of: str) -> None:
        self._counts.pop((what, *of), None)


def _remembered(known: dict[Any, int], name: object, id: int) -> int:
    if len(known) >= _CACHED:
        known.clear()
    known[name] = id
    return id
