"""The schema of the SQLite store, as numbered steps: step n makes version n out of version n - 1.

A step that was released is never changed, so it says for itself what others keep elsewhere. `user_version` tells how far a file is; a file from a
later callpact is refused rather than guessed at.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Sequence
from sqlite3 import Connection
from typing import Any
from uuid import UUID

from callpact.audit.histogram import merged
from callpact.errors import InvalidConfig

APPLICATION_ID = 0x63706175
"""Tells our files from other SQLite databases."""

TOLD = "the audit log '%s' is brought from version %s to %s; with millions of records that takes minutes"
"""What is logged before a log of an earlier version is changed."""
_log = logging.getLogger("callpact.audit")

Step = Callable[[Connection], None]


def _step_1(connection: Connection) -> None:
    """Records, payloads and rollups.

    What calls have in common (a *cell*: tool, contract, door and cause) and callers are kept once.
    In `rollups`, cell 0 and caller 0 stand for all; `unit` is one of eight.
    """
    for statement in (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        "CREATE TABLE callers (id INTEGER PRIMARY KEY, name TEXT)",
        "CREATE UNIQUE INDEX callers_name ON callers (ifnull(name, ''), name IS NULL)",
        """CREATE TABLE cells (
            id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE,
            tool TEXT NOT NULL, namespace TEXT NOT NULL, kind TEXT NOT NULL, version TEXT,
            contract TEXT NOT NULL, policy TEXT NOT NULL, source TEXT NOT NULL, via TEXT NOT NULL,
            gate TEXT, code TEXT, key TEXT, message TEXT, message_at INTEGER)""",
        """CREATE TABLE payloads (
            id INTEGER PRIMARY KEY, prefix INTEGER NOT NULL, sha256 BLOB NOT NULL,
            size INTEGER NOT NULL, uses INTEGER NOT NULL, form INTEGER NOT NULL, json BLOB)""",
        "CREATE INDEX payloads_prefix ON payloads (prefix)",
        """CREATE TABLE calls (
            id NOT NULL UNIQUE, at INTEGER NOT NULL, ms REAL, bucket INTEGER NOT NULL,
            cell INTEGER NOT NULL REFERENCES cells (id),
            caller INTEGER NOT NULL REFERENCES callers (id),
            flags INTEGER NOT NULL, path TEXT, message TEXT, status INTEGER, count INTEGER, parent,
            notes TEXT, input INTEGER, output INTEGER)""",
        "CREATE INDEX calls_at ON calls (at)",
        "CREATE INDEX calls_cell ON calls (cell, at)",
        "CREATE INDEX calls_caller ON calls (caller, cell, at)",
        """CREATE TABLE rollups (
            unit INTEGER, caller INTEGER, start INTEGER, cell INTEGER, calls INTEGER NOT NULL,
            failed INTEGER NOT NULL, rejected INTEGER NOT NULL, warned INTEGER NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL, histogram BLOB NOT NULL,
            PRIMARY KEY (unit, caller, start, cell)) WITHOUT ROWID""",
        """CREATE TABLE places (
            id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, tool TEXT NOT NULL,
            namespace TEXT NOT NULL, version TEXT, contract TEXT NOT NULL, kind TEXT NOT NULL,
            code TEXT NOT NULL, path TEXT NOT NULL)""",
        """CREATE TABLE place_rollups (
            unit INTEGER, start INTEGER, place INTEGER, calls INTEGER NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL,
            PRIMARY KEY (unit, start, place)) WITHOUT ROWID""",
    ):
        connection.execute(statement)


def _step_2(connection: Connection) -> None:
    """Calls may have the same id; facets of cells; one index of what calls are, by day.

    `given` holds what a record was called, where its cell or caller has another name; `number`
    tells which records are rolled up.
    """
    day = "((at - ((at % 86400000) + 86400000) % 86400000) / 86400000)"
    columns = (
        "id, at, ms, bucket, cell, caller, flags, path, message, status, count, parent, notes, "
        "input, output"
    )
    for statement in (
        "ALTER TABLE cells ADD COLUMN facet INTEGER NOT NULL DEFAULT 1",
        "CREATE INDEX cells_tool ON cells (tool, key)",
        "CREATE INDEX cells_unknown ON cells (tool) WHERE gate = 'find' AND facet = 1",
        "CREATE INDEX places_tool ON places (tool, path)",
        "DROP INDEX callers_name",
        "CREATE UNIQUE INDEX callers_name ON callers (coalesce(name, ''), (name IS NULL))",
        "ALTER TABLE calls RENAME TO calls_1",
        """CREATE TABLE calls (
            number INTEGER PRIMARY KEY, id NOT NULL, at INTEGER NOT NULL, ms REAL,
            bucket INTEGER NOT NULL, cell INTEGER NOT NULL, caller INTEGER NOT NULL,
            flags INTEGER NOT NULL, path TEXT, message TEXT, status INTEGER, count INTEGER, parent,
            notes TEXT, given TEXT, input INTEGER, output INTEGER)""",
        f"INSERT INTO calls (number, {columns}) SELECT rowid, {columns} FROM calls_1",  # noqa: S608 - constants
        "DROP TABLE calls_1",
        "CREATE UNIQUE INDEX calls_id ON calls (id, at)",
        "CREATE INDEX calls_at ON calls (at)",
        f"CREATE INDEX calls_what ON calls ({day}, cell, caller, at, bucket, flags)",
        "INSERT INTO meta SELECT 'rolled_up', coalesce(max(number), 0) FROM calls",
    ):
        connection.execute(statement)
    _make_facets(
        connection, ((8, "tool, namespace, gate"), (16, "gate, code, key"), (32, "version, via"))
    )


def _make_facets(connection: Connection, facets: Sequence[tuple[int, str]]) -> None:
    """Facets of all cells, and their rollups from those of the cells."""
    connection.create_function("merged", 2, merged, deterministic=True)
    listed = "tool, kind, version, contract, policy, source, via, gate, code, key"
    every = listed.split(", ")
    empty = {"version": None, "gate": None, "code": None, "key": None}
    # With types, and the rollups first: else each of millions would be compared with all of these.
    connection.execute(
        "CREATE TEMP TABLE facet_of (facet INTEGER, cell INTEGER, id, PRIMARY KEY (cell, facet))"
    )
    sql = f"SELECT id, namespace, {listed} FROM cells WHERE facet = 1"  # noqa: S608 - constants
    cells = connection.execute(sql).fetchall()
    made: dict[str, int | None] = {}
    for facet, parts in facets:
        for id_, namespace, *names in cells:
            named = zip(every, names, strict=True)
            cell = [part if name in parts else empty.get(name, "") for name, part in named]
            identity = repr((facet, *cell))
            if identity not in made:
                made[identity] = connection.execute(
                    f"INSERT INTO cells (facet, identity, namespace, {listed}) "  # noqa: S608 - constants
                    f"VALUES ({', '.join('?' * 13)})",
                    (facet, identity, namespace if cell[0] else "", *cell),
                ).lastrowid
            values = (facet, id_, made[identity])
            connection.execute("INSERT INTO facet_of VALUES (?, ?, ?)", values)
    connection.execute(
        """INSERT INTO rollups
        SELECT rollups.unit - 1 + facet_of.facet, rollups.caller, start, facet_of.id, calls, failed, rejected,
        warned, first, last, histogram FROM rollups CROSS JOIN facet_of
        ON facet_of.cell = rollups.cell
        WHERE rollups.unit IN (1, 5) OR (rollups.unit = 7 AND facet_of.facet IN (16, 32))
        ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, failed = failed + excluded.failed,
        rejected = rejected + excluded.rejected, warned = warned + excluded.warned,
        first = min(first, excluded.first), last = max(last, excluded.last),
        histogram = merged(histogram, excluded.histogram)"""
    )
    connection.execute("DROP TABLE facet_of")


def _step_3(connection: Connection) -> None:
    """Fewer columns of calls, as each costs whoever adds one; fewer rollups, for the same reason.

    `mark` is the bucket and the flags, `more` has what most calls do not. Of cells there are no
    rollups by hour any more: there were nearly as many as records; facets tell more instead, and
    rollups of days alone wait longer.
    """
    connection.create_function("more", 6, _more, deterministic=True)
    day = "((at - ((at % 86400000) + 86400000) % 86400000) / 86400000)"
    for statement in (
        "ALTER TABLE calls RENAME TO calls_2",
        """CREATE TABLE calls (
            number INTEGER PRIMARY KEY, id NOT NULL, at INTEGER NOT NULL, ms REAL,
            mark INTEGER NOT NULL, cell INTEGER NOT NULL, caller INTEGER NOT NULL, status INTEGER,
            more TEXT, input INTEGER, output INTEGER)""",
        """INSERT INTO calls SELECT number, calls_2.id, at, ms, bucket << 6 | flags |
            (CASE WHEN gate IS NULL THEN 0 WHEN gate IN ('access', 'input') THEN 48 ELSE 16 END),
            cell, caller, status, more(calls_2.path, calls_2.message, count, parent, notes, given),
            input, output FROM calls_2 CROSS JOIN cells ON cells.id = cell""",
        "DROP TABLE calls_2",
        "CREATE UNIQUE INDEX calls_id ON calls (id, at)",
        "CREATE INDEX calls_at ON calls (at)",
        f"CREATE INDEX calls_what ON calls ({day}, cell, caller, at, mark)",
        "DELETE FROM rollups WHERE unit IN (8, 12, 32, 36, 38)",
        "DELETE FROM cells WHERE facet IN (8, 32)",
        "INSERT INTO meta SELECT 'rolled_up_days', value FROM meta WHERE name = 'rolled_up'",
    ):
        connection.execute(statement)
    _make_facets(
        connection, ((8, "tool, namespace, version, contract, gate"), (32, "version, via, gate"))
    )
    connection.execute("DELETE FROM rollups WHERE unit = 1")


def _more(*values: Any) -> str | None:
    names = ("path", "message", "count", "parent", "notes", "given")
    told = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    for name in ("notes", "given"):
        if name in told:
            told[name] = json.loads(told[name])
    if isinstance(told.get("parent"), bytes):
        told["parent"] = str(UUID(bytes=told["parent"]))
    return json.dumps(told) if told else None


def _step_4(connection: Connection) -> None:
    """Callers are told apart by the client that they use, too; the time of the first that waits."""
    for statement in (
        "ALTER TABLE callers ADD COLUMN client TEXT NOT NULL DEFAULT ''",
        "DROP INDEX callers_name",
        """CREATE UNIQUE INDEX callers_name ON callers
            (coalesce(name, ''), (name IS NULL), client)""",
        "CREATE INDEX callers_client ON callers (client)",
        """INSERT INTO meta SELECT 'waiting_from', coalesce(min(at), 9223372036854775807) FROM calls
            WHERE number > coalesce((SELECT value FROM meta WHERE name = 'rolled_up_days'), 0)""",
    ):
        connection.execute(statement)


def _step_5(connection: Connection) -> None:
    """Rollups of days by cell know the hours of their calls, two bytes for each.

    What is gone is told by the day, as it was: `hours_from` is the first day that is all known.
    """
    day = "((at - ((at % 86400000) + 86400000) % 86400000) / 86400000)"
    code = f"""(at - {day} * 86400000) / 3600000 * 2048 + (mark >> 6) + (CASE
        WHEN mark & 32 THEN 1536 WHEN mark & 16 THEN 1024 WHEN mark & 4 THEN 512 ELSE 0 END)"""
    connection.execute("ALTER TABLE rollups ADD COLUMN hours BLOB")
    connection.execute(
        """INSERT INTO meta SELECT 'hours_from', (value + 86399999) / 86400000 * 86400000 FROM meta
        WHERE name = 'gone_before'"""
    )
    for unit, caller, groups in ((5, "0", "cell"), (7, "caller", "cell, caller")):
        found = connection.execute(
            f"""SELECT group_concat({code}), {caller}, {day} * 86400000, cell
            FROM calls INDEXED BY calls_what
            WHERE number <= (SELECT value FROM meta WHERE name = 'rolled_up_days')
            GROUP BY {day}, {groups}"""  # noqa: S608 - constants
        )
        connection.executemany(
            f"UPDATE rollups SET hours = ? WHERE unit = {unit} AND caller = ? AND start = ? "  # noqa: S608 - constants
            "AND cell = ?",
            ((_hours(codes), *key) for codes, *key in found),
        )


def _hours(codes: str) -> bytes:
    numbers = list(map(int, codes.split(",")))
    return struct.pack(f"<{len(numbers)}H", *numbers)


STEPS: tuple[Step, ...] = (_step_1, _step_2, _step_3, _step_4, _step_5)


def version_of(connection: Connection) -> int:
    """How many steps a file has behind it."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def migrate(connection: Connection, name: str, steps: Sequence[Step] = STEPS) -> None:
    """Bring a file to the latest version, one transaction for each step.

    Raises:
        InvalidConfig: for a file of something else, or of a later callpact.
    """
    if 0 < (version := _checked(connection, name, steps)) < len(steps):
        _log.warning(TOLD, name, version, len(steps))
    while (version := _checked(connection, name, steps)) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster.
            if version_of(connection) == version:
                steps[version](connection)
                connection.execute(f"PRAGMA user_version = {version + 1}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _checked(connection: Connection, name: str, steps: Sequence[Step]) -> int:
    # In this order: another process makes both in one transaction.
    is_used = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if is_used and owner != APPLICATION_ID:
        raise InvalidConfig(
            f"'{name}' is a SQLite database, but not an audit log of callpact's; "
            "give the audit log a file of its own"
        )
    version = version_of(connection)
    if version > len(steps):
        raise InvalidConfig(
            f"'{name}' is an audit log of version {version}, and this callpact reads versions up to "
            f"{len(steps)}: it was written by a later one; upgrade callpact, or name another file"
        )
    return version
