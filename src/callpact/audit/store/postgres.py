"""The store in PostgreSQL: one table that several machines share and query.

It has its own event loop, and reconnects after a lost connection. Records and journal positions
are written in one transaction. A statement may take `ANSWER_SECONDS`; closing does not wait for
the server.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import msgspec
from msgspec.structs import astuple

from callpact.audit.record import Record
from callpact.audit.store.interface import DAY, Moved, Overtaken, Stored
from callpact.audit.store.postgres_address import Address
from callpact.audit.store.queries import LATEST_IN_POSTGRES, Queries, Query
from callpact.audit.store.rows import COLUMNS, NAMES, TYPES, Row, row_of
from callpact.errors import CallpactError, InvalidConfig, UsageError
from callpact.execution import LoopThread

try:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]
    from asyncpg import exceptions as pg  # pyright: ignore[reportMissingTypeStubs]
except ImportError:
    raise UsageError(
        "an audit log in PostgreSQL needs the extra 'postgres': pip install 'callpact[postgres]'"
    ) from None

CONNECT_SECONDS = 5.0
"""Timeout for connecting to a PostgreSQL server."""
ANSWER_SECONDS = 60.0
"""Timeout for one statement of a PostgreSQL server."""
BUSY_SECONDS = 10.0
"""How long a PostgreSQL store waits for the lock of another process that writes."""

ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError)
"""The exceptions of the driver; a timeout is an `OSError`."""
SCHEMA = "callpact_audit"
"""The schema of the tables in a PostgreSQL database."""
LOCK = 0x63706175
"""The advisory lock that is held while tables and partitions are created or removed."""
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
# Not `to_regclass`: it may miss tables that another process has just committed.
_NAMES = (
    "SELECT relname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = $1"
)
_EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_PARTITIONS = (
    "SELECT right(relname, 8), pg_total_relation_size(oid) FROM pg_inherits "
    "JOIN pg_class ON oid = inhrelid WHERE inhparent = 'calls'::regclass"
)
_SETTINGS = {
    "application_name": "callpact",
    "search_path": SCHEMA,
    "lock_timeout": f"{BUSY_SECONDS:g}s",
    "statement_timeout": f"{ANSWER_SECONDS:g}s",
    # A process that hangs while it writes must not block all others.
    "idle_in_transaction_session_timeout": f"{ANSWER_SECONDS:g}s",
    # Compiling a query takes longer than running it.
    "jit": "off",
    # A query uses one processor at most, so that calls are not slowed down.
    "max_parallel_workers_per_gather": "0",
    "work_mem": "64MB",
}
_LOAD = f"CREATE TEMP TABLE fresh ON COMMIT DROP AS SELECT {COLUMNS} FROM calls WHERE false"  # noqa: S608 - constants
_KEEP = f"INSERT INTO calls ({COLUMNS}) SELECT {COLUMNS} FROM fresh ON CONFLICT DO NOTHING"  # noqa: S608 - constants
_TAKEN = "SELECT taken FROM journals WHERE id = $1"
_MOVE = "INSERT INTO journals VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET taken = excluded.taken"
_encode = msgspec.json.Encoder(order="sorted").encode
_decode_taken = msgspec.json.Decoder(dict[str, int]).decode


class PostgresStore(Queries):
    """Keeps records in a PostgreSQL database, in a schema that is created if it is missing.

    `journal` is the id of the local journal, as several journals share the database.

    Raises:
        InvalidConfig: the address cannot be used, or the log is of another version of callpact.
        UsageError: by all methods, if the store cannot be used: unreachable, no rights, locked;
            nothing is written then. A lost connection is opened again.
    """

    is_eager = True
    damaged: Mapping[str, str] = {}
    unread = 0

    def __init__(self, address: str, journal: str = "") -> None:
        self.address = Address(address)
        self._journal = journal
        self._connection: Any = None
        self._days: set[int] = set()
        self._loop: LoopThread | None = LoopThread()
        try:
            self._run(self._opened())
        except BaseException:
            self.close()
            raise

    # --- the connection ---------------------------------------------------------------------

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            call.close()
            raise UsageError(f"the audit log '{self.address}' is closed")
        with self._explained():
            return self._loop.run(call)

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Convert errors of the driver and the server to ours."""
        try:
            yield
        except ERRORS as error:
            raise _explain(error, self.address) from error

    async def _opened(self) -> Any:
        """The connection, opened if necessary."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        driver: Any = asyncpg
        connection: Any = await driver.connect(
            self.address.url,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            server_settings=_SETTINGS,
        )
        try:
            await connection.set_type_codec(
                "text", schema="pg_catalog", encoder=_encoded, decoder=_decoded, format="binary"
            )
            await _make_tables(connection, str(self.address))
            self._days = await _days_of(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        return connection

    def close(self) -> None:
        """Terminate the connection, without waiting for the server."""
        loop, self._loop = self._loop, None
        if loop is not None:
            connection = self._connection
            loop.give_up(None if connection is None else connection.terminate)

    # --- queries ----------------------------------------------------------------------------

    def _rows(self, query: Query) -> Sequence[Sequence[Any]]:
        return self._run(self._fetch(query))

    async def _fetch(self, query: Query) -> Sequence[Sequence[Any]]:
        connection = await self._opened()
        text = query.text.replace("{calls}", "calls").replace("{latest}", LATEST_IN_POSTGRES)
        text = text.replace("{columns}", COLUMNS).replace("{more}", "")
        return await connection.fetch(text, *query.parameters)

    # --- writing ----------------------------------------------------------------------------

    def taken(self) -> dict[str, int]:
        """How many bytes of each segment of the journal are in the store."""
        return self._run(self._read_taken())

    async def _read_taken(self) -> dict[str, int]:
        connection = await self._opened()
        found = await connection.fetchval(_TAKEN, self._journal)
        return {} if found is None else _decode_taken(found)

    def add(self, records: Sequence[Record], moved: Moved | None = None) -> int:
        """Add records and the new positions in one transaction; returns how many are new.

        A record that exists with the same id and time is skipped.

        Raises:
            Overtaken: `moved.before` differs from the stored positions.
        """
        if not records and moved is None:
            return 0
        rows = [row_of(record) for record in records]
        return self._run(self._add(rows, moved))

    async def _add(self, rows: Sequence[Row], moved: Moved | None) -> int:
        connection = await self._opened()
        try:
            await self._add_days(connection, {_in_calendar(row.at // DAY) for row in rows})
            async with connection.transaction():
                if moved is not None:
                    await self._move(connection, moved)
                if not rows:
                    return 0
                await connection.execute(_LOAD)
                await connection.copy_records_to_table(
                    "fresh", columns=NAMES, records=map(astuple, rows), schema_name="pg_temp"
                )
                status = await connection.execute(_KEEP)
                return int(status.rpartition(" ")[2])
        except BaseException:
            self._days = set()  # A partition may have been removed.
            raise

    async def _move(self, connection: Any, moved: Moved) -> None:
        found = await connection.fetchval(f"{_TAKEN} FOR UPDATE", self._journal)
        if ({} if found is None else _decode_taken(found)) != dict(moved.before):
            raise Overtaken("another process has read this part of the journal")
        await connection.execute(_MOVE, self._journal, _encode(dict(moved.after)).decode())

    async def _add_days(self, connection: Any, wanted: set[int]) -> None:
        if wanted <= self._days:
            return
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            there = await _days_of(connection)
            for day in sorted(wanted - there):
                await _add_day(connection, day)
        self._days = there | wanted

    # --- retention --------------------------------------------------------------------------

    def stored(self) -> list[Stored]:
        """The partitions, the oldest first."""
        return self._run(self._parts())

    async def _parts(self) -> list[Stored]:
        return await _parts_of(await self._opened())

    def retention(self, *, older_than: int | None = None, larger_than: int | None = None) -> int:
        """Remove days that ended before a time, and the oldest beyond a size."""
        if older_than is None and larger_than is None:
            return 0
        return self._run(self._drop(older_than, larger_than))

    async def _drop(self, older_than: int | None, larger_than: int | None) -> int:
        connection = await self._opened()
        gone = 0
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            parts = await _parts_of(connection)
            size = sum(part.size for part in parts)
            for part in parts:
                is_old = older_than is not None and part.last < older_than
                if not is_old and (larger_than is None or size <= larger_than):
                    break
                gone += await _drop_part(connection, part)
                size -= part.size
                self._days = set()
        return gone

    def tidy(self) -> None:
        """Do nothing: the server maintains its tables itself."""

    @property
    def size(self) -> int:
        """Bytes of the table of calls and its indexes."""
        return sum(part.size for part in self.stored())


# PostgreSQL texts cannot hold NUL, and callers may send it: it is escaped.


def _encoded(text: str) -> bytes:
    if "\x00" in text or "\x01" in text:
        text = text.replace("\x01", "\x01b").replace("\x00", "\x01a")
    return text.encode()


def _decoded(kept: bytes) -> str:
    text = kept.decode()
    return text.replace("\x01a", "\x00").replace("\x01b", "\x01") if "\x01" in text else text


# --- tables ---------------------------------------------------------------------------------


async def _make_tables(connection: Any, name: str) -> None:
    """Create the tables if they are missing, under an advisory lock.

    `calls` is partitioned by day. Its unique index has the hash of an id, as a B-tree cannot index
    long texts; it starts with the time, so it also serves the log. `journals` has the stored
    positions of each machine's journal. Texts are compared by their bytes, in any locale.

    Raises:
        InvalidConfig: the schema belongs to another program, or to another version of callpact.
    """
    if await _are_there(connection, name):
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        if await _are_there(connection, name):  # Another process was faster.
            return
        # Not IF NOT EXISTS: that needs a right that the owner of a schema may lack.
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


# --- days: each has a partition, and is removed as a whole ----------------------------------


def _in_calendar(day: int) -> int:
    """The number of a day since the epoch, clamped to the calendar."""
    return max(FIRST_DAY, min(day, LAST_DAY))


def _suffix(day: int) -> str:
    return date.fromordinal(day + _EPOCH).isoformat().replace("-", "")


def _day(suffix: str) -> int:
    return date.fromisoformat(suffix).toordinal() - _EPOCH


async def _parts_of(connection: Any) -> list[Stored]:
    """The partitions, the oldest first."""
    found = await connection.fetch(_PARTITIONS)
    days = sorted((_day(suffix), suffix, size) for suffix, size in found)
    return [Stored(suffix, day * DAY, (day + 1) * DAY - 1, size) for day, suffix, size in days]


async def _days_of(connection: Any) -> set[int]:
    """The days that have partitions."""
    return {_day(suffix) for suffix, _ in await connection.fetch(_PARTITIONS)}


async def _add_day(connection: Any, day: int) -> None:
    """Create the partition of a day, without blocking readers."""
    part = f"calls_{_suffix(day)}"
    first = "MINVALUE" if day == FIRST_DAY else str(day * DAY)
    last = "MAXVALUE" if day == LAST_DAY else str((day + 1) * DAY)
    await connection.execute(f"CREATE TABLE {part} (LIKE calls INCLUDING ALL)")
    await connection.execute(
        f"ALTER TABLE calls ATTACH PARTITION {part} FOR VALUES FROM ({first}) TO ({last})"
    )


async def _drop_part(connection: Any, part: Stored) -> int:
    """Remove the partition of a day; returns the number of its records."""
    count = await connection.fetchval(f"SELECT count(*) FROM calls_{part.name}")  # noqa: S608 - digits
    await connection.execute(f"DROP TABLE calls_{part.name}")
    return count


# --- errors ---------------------------------------------------------------------------------


def _explain(error: Exception, address: Address) -> CallpactError:
    """Convert an error of the driver to ours, without the password."""
    reason = address.hide(str(error)).strip() or type(error).__name__
    match error:
        case pg.ClientConfigurationError():
            return InvalidConfig(
                f"the address of the audit log '{address}' cannot be used: {reason}"
            )
        case pg.InvalidPasswordError():
            return UsageError(
                f"the audit log '{address}' refuses the password ({reason}); it is taken from the "
                "address, else from the variable PGPASSWORD, else from the file ~/.pgpass"
            )
        case pg.InvalidAuthorizationSpecificationError():
            return UsageError(
                f"the audit log '{address}' lets this user not in ({reason}); name another one in the "
                "address, or let it in (`pg_hba.conf`, CREATE ROLE)"
            )
        case pg.InvalidCatalogNameError():
            return UsageError(
                f"there is no database '{address.database}' at '{address}'; make it "
                f"(`createdb {address.database}`), or name another one"
            )
        case pg.InsufficientPrivilegeError():
            return UsageError(
                f"the user of the audit log '{address}' may not do this ({reason}); a writer "
                f"must own the schema '{SCHEMA}' or may make it: GRANT CREATE ON DATABASE"
            )
        case pg.CannotConnectNowError() | pg.TooManyConnectionsError():
            return UsageError(f"the audit log '{address}' takes no connection now: {reason}")
        case pg.LockNotAvailableError():
            return UsageError(
                f"the audit log '{address}' has been locked by another process for "
                f"{BUSY_SECONDS:g} s; nothing was written"
            )
        case pg.DiskFullError():
            return UsageError(
                f"the audit log '{address}' cannot grow: the disk of the server is full; nothing "
                "was written"
            )
        case pg.ReadOnlySQLTransactionError():
            return UsageError(
                f"the audit log '{address}' cannot be written: the server is read-only (a standby?)"
            )
        case pg.DataError() | ValueError():
            return UsageError(
                f"the audit log '{address}' cannot be used: {reason}; nothing was written"
            )
        case (
            pg.PostgresConnectionError()
            | pg.AdminShutdownError()
            | pg.CrashShutdownError()
            | pg.InterfaceError()
            | ConnectionResetError()
            | BrokenPipeError()
        ):
            return UsageError(
                f"the connection to the audit log '{address}' was lost ({reason}); it is tried again"
            )
        case TimeoutError():
            return UsageError(f"the audit log '{address}' does not answer in time")
        case OSError():
            return UsageError(
                f"the audit log '{address}' cannot be reached ({reason}); does the server run, and is "
                "the address right?"
            )
        case _:
            return UsageError(f"the audit log '{address}' cannot be used: {reason}")
