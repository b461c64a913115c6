"""The names that records are kept under: what calls have in common (cells), callers, and places.

Each is kept once. What a caller can invent is bounded: names of tools that are not there, paths into
what was sent, callers. Beyond the bounds records share the name `OTHERS`, so that a store cannot be
filled with names; a record itself tells what it was called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
"""Callers that the audit log counts one by one, each with the clients that it uses."""
MAX_CLIENTS = 1_000
"""Names of clients that the audit log counts one by one: each client says its own."""

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
    "clients": "SELECT count(DISTINCT client) FROM callers",
}


_Key = tuple[Any, ...]
"""A name in its parts; as text it is its identity in the database."""


class Naming:
    """Gives names their ids; used within transactions that write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cells: dict[_Key, int] = {}
        self._callers: dict[tuple[str | None, str], int] = {}
        self._places: dict[_Key, int] = {}
        self._facets: dict[int, list[tuple[int, int]]] = {}
        self._counts: dict[_Key, int] = {}
        self._full: set[_Key] = set()
        self._seen = (engine.opened, 0)

    def begin(self) -> None:
        """A transaction begins: others may have given or removed names since the last one."""
        seen = (self._engine.opened, self._engine.kept_number("names_removed"))
        if seen != self._seen:
            self.forget()
            self._seen = seen
        for known in (self._cells, self._callers, self._places, self._facets):
            if len(known) > _CACHED:
                known.clear()
        self._counts.clear()
        self._full.clear()

    def forget(self) -> None:
        """Names may have no id any more: a transaction failed, or they were removed."""
        for known in (self._cells, self._callers, self._places, self._facets, self._counts):
            known.clear()

    def of_all(self, records: Sequence[Record]) -> list[Names]:
        """Under which names each of these records is kept."""
        cells = list(map(rows.cell_of, records))
        self._meet("cells", self._cells, cells)
        return list(map(self._names, records, cells))

    def _names(self, record: Record, cell: _Key) -> Names:
        cell_id, caller_id = (
            self._cells.get(cell),
            self._callers.get((record.caller, record.client)),
        )
        if cell_id is not None and caller_id is not None:
            return Names(cell_id, caller_id)
        told: dict[str, str | None] = {}
        if cell_id is None:
            cell_id, kept = self._cell(cell)
            told = {"tool": kept[0], "key": kept[-1]}
        if caller_id is None:
            caller_id, told["caller"], told["client"] = self._caller(record.caller, record.client)
        return Names(cell_id, caller_id, rows.given_names(record, told))

    def places(self, noted: Sequence[tuple[Record, tuple[str, str, str]]]) -> list[int]:
        """Where each of these notes is, and what it is."""
        keys = [(r.tool, r.version, r.contract, *place) for r, place in noted]
        self._meet("places", self._places, keys)
        return [self._place(record, key) for (record, _), key in zip(noted, keys, strict=True)]

    def _place(self, record: Record, key: _Key) -> int:
        found = self._places.get(key)
        if found is not None:
            return found
        names = [*key]
        if record.gate == "find" and self._is_full("unknown", MAX_UNKNOWN_NAMES):
            names[0] = OTHERS
        if self._is_full("places", MAX_CAUSES, names[0]):
            names[-1] = OTHERS
        kept = tuple(names)
        # Remembered under these alone: what is invented would drive out what is used.
        self._meet("places", self._places, [kept] if kept != key else [])
        found = self._places.get(kept)
        if found is None:
            namespace = kept[0].partition(".")[0]
            found = self._insert(_INSERT_PLACE, (repr(kept), namespace, *kept))
            self._places[kept] = found
            self._count("places", kept[0])
        return found

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
        keys: dict[int, list[_Key]] = {}
        for id_, *parts in list(self._engine.among(select, missing)):
            names: dict[str, str | None] = dict(zip(_PARTS, parts, strict=True))
            keys[id_] = [(facet, *rows.facet_of(facet, names)) for facet in FACETS]
        self._meet("cells", self._cells, [key for those in keys.values() for key in those])
        for id_, those in keys.items():
            self._facets[id_] = [(key[0], self._facet(key)) for key in those]
        return self._facets

    def _facet(self, key: _Key) -> int:
        found = self._cells.get(key)
        return self._add_cell(key, *key) if found is None else found

    def _cell(self, cell: _Key) -> tuple[int, _Key]:
        """A cell that is not there yet, and under which names it is kept."""
        parts = dict(zip(_PARTS, cell, strict=True))
        if parts["gate"] == "find" and self._is_full("unknown", MAX_UNKNOWN_NAMES):
            parts["tool"] = OTHERS
        if parts["key"] is not None and self._is_full("causes", MAX_CAUSES, parts["tool"]):
            parts["key"] = f"{parts['code']}:{OTHERS}:"
        kept = tuple(parts.values())
        # Remembered under these alone: what is invented would drive out what is used.
        self._meet("cells", self._cells, [kept] if kept != cell else [])
        found = self._cells.get(kept)
        if found is None:
            found = self._add_cell(kept, BY_CELL, *kept)
            self._count("causes", parts["tool"])
            if parts["gate"] == "find":
                self._count("unknown")
        return found, kept

    def _add_cell(self, key: _Key, facet: int, *cell: str | None) -> int:
        namespace = (cell[0] or "").partition(".")[0]
        found = self._insert(_INSERT_CELL, (facet, repr(key), namespace, *cell))
        self._cells[key] = found
        return found

    def _caller(self, name: str | None, client: str) -> tuple[int, str | None, str]:
        """A caller that is not known yet, and under which names it is kept."""
        found = self._found_caller(name, client)
        if found is not None:
            self._callers[name, client] = found
            return found, name, client
        kept = client
        if self._is_full("clients", MAX_CLIENTS) and not self._is_client(client):
            kept = OTHERS
        whose = OTHERS if self._is_full("callers", MAX_CALLERS) else name
        found = None if (whose, kept) == (name, client) else self._found_caller(whose, kept)
        if found is None:
            insert = "INSERT INTO callers (name, client) VALUES (?, ?)"
            found = self._insert(insert, (whose, kept))
            self._count("callers")
            self._count("clients")
        # Remembered under these alone: what is invented would drive out what is used.
        self._callers[whose, kept] = found
        return found, whose, kept

    def _found_caller(self, name: str | None, client: str) -> int | None:
        row = self._engine.row(
            "SELECT id FROM callers WHERE coalesce(name, '') = ? AND (name IS NULL) = ? "
            "AND client = ?",
            (name or "", name is None, client),
        )
        return None if row is None else row[0]

    def _is_client(self, client: str) -> bool:
        """True if the name of a client is counted already."""
        sql = "SELECT 1 FROM callers WHERE client = ? LIMIT 1"
        return self._engine.row(sql, (client,)) is not None

    def _meet(self, table: str, known: dict[_Key, int], keys: Iterable[_Key]) -> None:
        """Learn the ids of those of these that are there, all at once."""
        identities = {repr(key): key for key in set(keys).difference(known)}
        select = f"SELECT identity, id FROM {table} WHERE identity IN"  # noqa: S608 - one of two
        for identity, id_ in self._engine.among(select, list(identities)):
            known[identities[identity]] = id_

    def _insert(self, insert: str, names: Sequence[Any]) -> int:
        return cast("Any", self._engine.row(f"{insert} RETURNING id", names))[0]

    def _is_full(self, what: str, most: int, *of: str | None) -> bool:
        key = (what, *of)
        held = self._counts.get(key)
        if key not in self._full and (held is None or held >= most):
            # What is added is counted here, too, but may have been there with another version.
            held = cast("int", cast("Any", self._engine.row(_COUNTS[what], of))[0])
            self._counts[key] = held
            if held >= most:
                self._full.add(key)
        return key in self._full

    def _count(self, what: str, *of: str | None) -> None:
        if (what, *of) in self._counts:
            self._counts[what, *of] += 1
