"""The schema of the SQLite store, as numbered steps: step n makes version n out of version n - 1.

A step that was released is never changed. `user_version` tells how far a file is; a file from a
later callpact is refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sqlite3 import Connection

from callpact.errors import InvalidConfig

APPLICATION_ID = 0x63706175
"""Tells our files from other SQLite databases."""

Step = Callable[[Connection], None]


def _step_1(connection: Connection) -> None:
    """Records, payloads and rollups.

    What calls have in common (a *cell*: tool, contract, door and cause) and callers are kept once.
    In `rollups`, cell 0 and caller 0 stand for all; `unit` is one of `sqlite.py`'s eight.
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


STEPS: tuple[Step, ...] = (_step_1,)


def version_of(connection: Connection) -> int:
    """How many steps a file has behind it."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def migrate(connection: Connection, name: str, steps: Sequence[Step] = STEPS) -> None:
    """Bring a file to the latest version, one transaction for each step.

    Raises:
        InvalidConfig: for a file of something else, or of a later callpact.
    """
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
