"""The tables of the store in PostgreSQL, in a schema of their own.

`calls` is partitioned by day. Its unique index has the hash of an id, as a B-tree takes no long
texts, and serves the log, too, as it begins with the time. `journals` has how far each machine's
journal is in the table. Texts are compared by their bytes, whichever locale the database has.
"""

from __future__ import annotations

from typing import Any

from callpact.audit.store.rows import TYPES
from callpact.errors import InvalidConfig

SCHEMA = "callpact_audit"
"""The schema of the tables in a PostgreSQL database."""
LOCK = 0x63706175
"""The advisory lock that is held while tables and partitions are made or removed."""
VERSION = 5

_SPELLED = {
    "bigint": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "text": 'text COLLATE "C"',
}
_COLUMNS = ", ".join(f'"{name}" {_SPELLED[kind]}' for name, kind in TYPES.items())
_TABLES = (
    f'CREATE TABLE calls ({_COLUMNS}) PARTITION BY RANGE ("at")',
    'CREATE UNIQUE INDEX calls_at ON calls ("at", md5(id))',
    "CREATE INDEX calls_id ON calls USING hash (id)",
    "CREATE TABLE journals (id text PRIMARY KEY, taken text NOT NULL)",
    "CREATE TABLE meta (name text PRIMARY KEY, value bigint)",
    f"INSERT INTO meta VALUES ('version', {VERSION})",  # noqa: S608 - a number
)
# Not `to_regclass`: that would say what was so before another process committed.
_NAMES = (
    "SELECT relname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = $1"
)


async def make_tables(connection: Any, name: str) -> None:
    """Make the tables if they are not there; processes wait for each other.

    Raises:
        InvalidConfig: the schema is of something else, or of another version of callpact.
    """
    if await _are_there(connection, name):
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        if await _are_there(connection, name):  # Another process was faster.
            return
        # Not IF NOT EXISTS: that asks for a right that the owner of a schema need not have.
        if not await connection.fetch("SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
            await connection.execute(f"CREATE SCHEMA {SCHEMA}")
        for statement in _TABLES:
            await connection.execute(statement)


async def _are_there(connection: Any, name: str) -> bool:
    names = {each for (each,) in await connection.fetch(_NAMES, SCHEMA)}
    if not names:
        return False
    version = None
    if "meta" in names:
        sql = f"SELECT value FROM {SCHEMA}.meta WHERE name = 'version'"  # noqa: S608 - a constant
        version = await connection.fetchval(sql)
    if version is None:
        raise InvalidConfig(
            f"the schema '{SCHEMA}' in '{name}' is not an audit log of callpact's; give the audit "
            "log a database of its own"
        )
    if version != VERSION:
        raise InvalidConfig(
            f"'{name}' has an audit log of version {version}, and this callpact reads version "
            f"{VERSION}; use the callpact that wrote it, or name another database"
        )
    return True
