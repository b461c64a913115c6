"""The connection behind the PostgreSQL store: opened again when it was lost, with an own event loop.

It has the face of `engine.py`, and knows nothing of records; `postgres_migrations.py` says what
tables there are, `postgres_days.py` which partitions. Whoever writes holds an advisory lock: one
process at a time, as with a file, so that sums that are read and written again are right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from callpact.audit.engine import Numbers, Row
from callpact.audit.histogram import DAY, merged, summed
from callpact.audit.postgres_address import Address
from callpact.audit.postgres_days import add_day, days_of, drop_day, ids_of, in_calendar
from callpact.audit.postgres_migrations import LOCK, SCHEMA, migrate
from callpact.audit.sql_rows import DAY_OF, ROLLUP, kept_id, shown_id
from callpact.errors import UsageError
from callpact.loop_thread import LoopThread

try:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]

    from callpact.audit.postgres_errors import ANSWER_SECONDS, BUSY_SECONDS, ERRORS, explained
except ImportError:
    raise UsageError(
        "an audit log in PostgreSQL needs the extra 'postgres': pip install 'callpact[postgres]'"
    ) from None

CONNECT_SECONDS = 5.0
"""How long a connection to a PostgreSQL server may take."""
_SETTINGS = {
    "application_name": "callpact",
    "search_path": SCHEMA,
    "lock_timeout": f"{BUSY_SECONDS:g}s",
    # A process that is stopped while it writes must not stop all others.
    "idle_in_transaction_session_timeout": f"{ANSWER_SECONDS:g}s",
    # It takes longer to compile a question than to answer it.
    "jit": "off",
}
_WRITING = f"BEGIN; SELECT pg_advisory_xact_lock({LOCK})"
_READING = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
    # Which index is right depends on the window and the unit: one plan for all is wrong for most.
    "SET LOCAL plan_cache_mode = force_custom_plan; "
    # Rollups are read from memory by their index, not from a disk that turns, and summed up there.
    "SET LOCAL random_page_cost = 1.1; SET LOCAL work_mem = '32MB'; "
    # A question takes no more than one processor from whoever answers calls, and is no slower.
    "SET LOCAL max_parallel_workers_per_gather = 0"
)
_AT_ONCE = 500
_MARK = re.compile(r"\?(\d*)")
_HINT = re.compile(
    # Days are partitions: a term about them tells nothing, and hides how many rows there are.
    rf" NOT INDEXED| INDEXED BY \w+|{re.escape(DAY_OF)} IN \(-?\d+, -?\d+\) AND "
)
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'"""
_KEYS = "unnest($1::smallint[], $2::integer[], $3::bigint[], $4::integer[]"
_KEPT = f"""
SELECT unit, caller, start, cell, histogram FROM rollups
JOIN {_KEYS}) AS key (unit, caller, start, cell) USING (unit, caller, start, cell)"""  # noqa: S608 - constants
_UPSERT = f"""
INSERT INTO rollups ({ROLLUP}) SELECT * FROM {_KEYS}, $5::integer[], $6::integer[], $7::integer[],
$8::integer[], $9::bytea[], $10::bigint[], $11::bigint[], $12::bytea[])
ON CONFLICT (unit, caller, start, cell) DO UPDATE SET calls = rollups.calls + excluded.calls,
failed = rollups.failed + excluded.failed, rejected = rollups.rejected + excluded.rejected,
warned = rollups.warned + excluded.warned, first = least(rollups.first, excluded.first),
last = greatest(rollups.last, excluded.last), histogram = excluded.histogram,
hours = coalesce(rollups.hours, ''::bytea) || excluded.hours"""  # noqa: S608 - constants


class PostgresFile(Numbers):
    """A connection to a database of the latest version.

    Raises:
        InvalidConfig: if the address cannot be used, or the log is of a later callpact.
        UsageError: if it cannot be reached, read or written, with what to do.
    """

    shrinks_at_once = False
    """Tables keep the room of what is deleted."""

    def __init__(self, address: str) -> None:
        self.address = Address(address)
        self.opened = 0
        self._connection: Any = None
        self._days: set[int] = set()
        self._loop: LoopThread | None = LoopThread()
        try:
            with self.told():
                self._connect()
        except BaseException:
            self.close()
            raise

    # --- the connection ---------------------------------------------------------------------

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            call.close()
            raise UsageError(f"the audit log '{self.address}' is closed")
        return self._loop.run(call)

    def _connect(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = self._run(self._opened())
            self.opened += 1

    async def _opened(self) -> Any:
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
            await migrate(connection, str(self.address))
            self._days = await days_of(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def close(self) -> None:
        """Let go of the connection."""
        if self._loop is None:
            return
        if self._connection is not None:
            # The server notices by itself, too.
            with suppress(*ERRORS):
                self._loop.run(self._connection.close(timeout=CONNECT_SECONDS))
        self._loop.stop()
        self._loop = None

    @contextmanager
    def writing(self) -> Generator[None]:
        """All of it or nothing, and nobody else meanwhile."""
        with self.told():
            self._connect()
            try:
                self._run(self._connection.execute(_WRITING))
                yield
                self._run(self._connection.execute("COMMIT"))
            except BaseException:
                self._days = set()
                raise
            finally:
                self._leave()

    @contextmanager
    def reading(self) -> Generator[None]:
        """One state for all parts of a question, whatever others write."""
        with self.told():
            self._connect()
            try:
                self._run(self._connection.execute(_READING))
                yield
            finally:
                self._leave()

    def _leave(self) -> None:
        """End a transaction that is not ended; a connection that cannot is given up."""
        if self._connection.is_closed() or not self._connection.is_in_transaction():
            return
        try:
            self._run(self._connection.execute("ROLLBACK"))
        except ERRORS:
            self._run(self._give_up())

    async def _give_up(self) -> None:
        self._connection.terminate()

    @contextmanager
    def told(self) -> Generator[None]:
        """Errors of the driver and the server as ours."""
        try:
            yield
        except ERRORS as error:
            raise explained(error, self.address) from error

    # --- statements -------------------------------------------------------------------------

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run one statement; how many rows it changed."""
        told: str = self._run(self._connection.execute(_translated(sql), *parameters))
        count = told.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    def execute_all(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        if parameters:
            self._run(self._connection.executemany(_translated(sql), parameters))

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a SELECT."""
        return self._run(self._connection.fetchrow(_translated(sql), *parameters))

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        """All rows of a SELECT."""
        return self._run(self._connection.fetch(_translated(sql), *parameters))

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        """The rows of a SELECT one after the other."""
        cursor = self._run(self._cursor(_translated(sql), parameters))
        while part := self._run(cursor.fetch(_AT_ONCE)):
            yield from part
            if len(part) < _AT_ONCE:
                return

    async def _cursor(self, sql: str, parameters: Sequence[Any]) -> Any:
        return await self._connection.cursor(sql, *parameters)

    def among(self, select: str, values: Sequence[Any]) -> Iterator[Row]:
        """The rows of a SELECT that ends in `IN`, for so many values as there are."""
        if values:
            yield from self.rows(f"{select.removesuffix('IN')}= ANY(?)", (values,))

    def insert_all(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table."""
        names = columns.split(", ")
        self._run(self._connection.copy_records_to_table(table, columns=names, records=rows))

    def add_rollups(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to rollups; nobody else writes between reading and writing them."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        if not columns:
            return
        kept = {tuple(row[:4]): row[4] for row in self.rows(_KEPT, columns[:4])}
        if kept:
            columns[8] = [
                merged(kept[row[:4]], row[8]) if row[:4] in kept else row[8]
                for row in map(tuple, rows)
            ]
        self.change(_UPSERT, columns)

    def joined(self, column: str) -> str:
        """An aggregate: the numbers of a group with commas between them."""
        return f"string_agg(({column})::text, ',')"

    def strung(self, column: str) -> str:
        """An aggregate: the bytes of a group one after the other."""
        return f"string_agg({column}, ''::bytea)"

    def summed(self, column: str) -> str:
        """An aggregate: the histograms of a group, as `sum_in` takes them."""
        return f"array_agg({column})"

    def sum_in(self, kept: Sequence[bytes]) -> int:
        """The sum of histograms that `summed` gave."""
        return summed(kept)

    def pattern(self, text: str) -> tuple[str, str]:
        """The sign and the parameter that compare with a text in which `*` is any text."""
        if "*" not in text:
            return "=", text
        for mark in "\\%_":
            text = text.replace(mark, f"\\{mark}")
        return "LIKE", text.replace("*", "%")

    def kept_id(self, id: str) -> bytes:
        """An id as bytes: `u` and 16 of them for a UUID in its usual spelling, else `t` and it."""
        kept = kept_id(id)
        return b"t" + kept.encode() if isinstance(kept, str) else b"u" + kept

    def shown_id(self, kept: bytes) -> str:
        """The id that `kept_id` was given."""
        return shown_id(kept[1:]) if kept[:1] == b"u" else kept[1:].decode()

    # --- days -------------------------------------------------------------------------------

    def prepare(self, days: Collection[int]) -> None:
        """Make partitions for records of these days, within the transaction."""
        wanted = {in_calendar(day) for day in days}
        if wanted <= self._days:
            return
        there: set[int] = self._run(days_of(self._connection))
        for day in sorted(wanted - there):
            self._run(add_day(self._connection, day))
        self._days = there | wanted

    def payloads_of(self, day: int) -> str:
        """The condition for payloads of a day: it spares all other partitions."""
        first, last = ids_of(in_calendar(day))
        return f"id >= {first} AND id < {last}"

    def payloads_from(self, day: int) -> int:
        """The id after which those of a day begin."""
        return ids_of(in_calendar(day))[0]

    def drop_day(self, before: int) -> tuple[int, int] | None:
        """Let go of the oldest day, if all of it is before a time, within the transaction."""
        there: set[int] = self._run(days_of(self._connection))
        day = min(there, default=None)
        if day is None or in_calendar(before // DAY) <= day:
            return None
        self._days = there - {day}
        return self._run(drop_day(self._connection, day))

    @property
    def size(self) -> int:
        """Bytes of all tables and indexes."""
        with self.told():
            self._connect()
            return self._run(self._connection.fetchval(_SIZE, SCHEMA))

    def vacuum(self) -> None:
        """Days are given back as they go; for the rest, the server sees to it itself."""

    def compact(self) -> None:
        """Write the tables anew: they do not shrink otherwise."""
        with self.told():
            self._connect()
            self._run(self._compact())

    async def _compact(self) -> None:
        for table in ("calls", "payloads", "rollups", "place_rollups"):
            await self._connection.execute(f"VACUUM FULL {table}")


@lru_cache(maxsize=500)
def _translated(sql: str) -> str:
    """SQL of `engine.py` for PostgreSQL: numbered parameters, and the planner chooses by itself."""
    count = 0

    def numbered(mark: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${mark[1] or count}"

    return _MARK.sub(numbered, _HINT.sub("", sql).replace("CROSS JOIN", "JOIN"))


# PostgreSQL keeps no NUL in texts, and records have what callers send.


def _encoded(text: str) -> bytes:
    if "\x00" in text or "\x01" in text:
        text = text.replace("\x01", "\x01b").replace("\x00", "\x01a")
    return text.encode()


def _decoded(kept: bytes) -> str:
    text = kept.decode()
    return text.replace("\x01a", "\x00").replace("\x01b", "\x01") if "\x01" in text else text
