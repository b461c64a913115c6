"""The file behind the SQLite store: how it is opened, its transactions, and its errors in words.

It knows nothing of records; `migrations.py` says what tables there are.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from callpact.audit.engine import Numbers, Row
from callpact.audit.histogram import merged, packed, summed, unpacked
from callpact.audit.migrations import migrate
from callpact.audit.sql_rows import ROLLUP, kept_id, shown_id
from callpact.errors import CallpactError, InvalidConfig, UsageError

BUSY_SECONDS = 10.0
"""How long a store waits for another process that writes."""
_AT_ONCE = 500
_PARAMETERS = 900  # Older versions of SQLite take 999 at most.
_INCREMENTAL = 2
_UPSERT = f"""
INSERT INTO rollups ({ROLLUP}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (unit, caller, start, cell) DO UPDATE SET calls = calls + excluded.calls,
failed = failed + excluded.failed, rejected = rejected + excluded.rejected,
warned = warned + excluded.warned, first = min(first, excluded.first),
last = max(last, excluded.last), histogram = merged(histogram, excluded.histogram),
hours = CAST(coalesce(hours, x'') || excluded.hours AS BLOB)"""  # noqa: S608 - constants


class SqliteFile(Numbers):
    """An open file of the latest version.

    Raises:
        InvalidConfig: if the file is not an audit log, or of a later callpact.
        UsageError: if it cannot be read or written: locked, read-only, a full disk, damaged.
    """

    opened = 1
    """A file is opened once."""
    shrinks_at_once = True
    """A page is free as soon as nothing is on it."""
    _wait = BUSY_SECONDS

    def __init__(self, path: str | Path, *, wait: float = BUSY_SECONDS) -> None:
        self.path = Path(path)
        self._wait = wait
        with self.told():
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot make the folder of '{path}': {error.strerror}") from None
            self.connection = sqlite3.connect(
                self.path, timeout=wait, isolation_level=None, check_same_thread=False
            )
            try:
                self._open()
            except BaseException:
                self.connection.close()
                raise

    def _open(self) -> None:
        connection = self.connection
        # Only where it is new: asking for it takes the lock of whoever writes.
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._switch_to_wal()
        # The journal lets go of what is committed here, so a commit must be on the disk.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -32768")
        # Pages that every batch writes again are moved into the file once for many batches.
        connection.execute("PRAGMA wal_autocheckpoint = 8000")
        connection.create_function("merged", 2, merged, deterministic=True)
        add_aggregate(connection)
        migrate(connection, str(self.path))

    def _switch_to_wal(self) -> None:
        """Two processes that open a new file at once: SQLite does not wait for this one itself."""
        end = time.monotonic() + self._wait
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return

    def close(self) -> None:
        """Let go of the file."""
        with self.told():
            self.connection.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self.connection.execute(sql, parameters)

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run one statement; how many rows it changed."""
        return self.connection.execute(sql, parameters).rowcount

    def execute_all(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        self.connection.executemany(sql, parameters)

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a SELECT."""
        return self.connection.execute(sql, parameters).fetchone()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        """All rows of a SELECT."""
        return self.connection.execute(sql, parameters).fetchall()

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        """The rows of a SELECT one after the other."""
        return self.connection.execute(sql, parameters)

    def insert_all(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table, many with each statement."""
        count = columns.count(",") + 1
        row = f"({', '.join('?' * count)})"
        one = f"INSERT INTO {table} ({columns}) VALUES {row}"  # noqa: S608 - our own names
        at_once = _PARAMETERS // count
        many = one + f", {row}" * (at_once - 1)
        left = iter(rows)
        while len(part := list(islice(left, at_once))) == at_once:
            self.connection.execute(many, list(chain.from_iterable(part)))
        self.connection.executemany(one, part)

    def add_rollups(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to rollups: those that are there already are summed up with them."""
        self.connection.executemany(_UPSERT, rows)

    def joined(self, column: str) -> str:
        """An aggregate: the numbers of a group with commas between them."""
        return f"group_concat({column})"

    def strung(self, column: str) -> str:
        """An aggregate: the bytes of a group one after the other."""
        return f"CAST(group_concat({column}, '') AS BLOB)"

    def summed(self, column: str) -> str:
        """An aggregate: the histograms of a group, as `sum_in` takes them."""
        return f"summed({column})"

    def sum_in(self, kept: bytes) -> int:
        """The sum of histograms that `summed` gave."""
        return unpacked(kept)

    def pattern(self, text: str) -> tuple[str, str]:
        """The sign and the parameter that compare with a text in which `*` is any text."""
        if "*" not in text:
            return "=", text
        return "GLOB", text.replace("[", "[[]").replace("?", "[?]")

    def kept_id(self, id: str) -> str | bytes:
        """The id of a record as it is kept."""
        return kept_id(id)

    def shown_id(self, kept: str | bytes) -> str:
        """The id that `kept_id` was given."""
        return shown_id(kept)

    def prepare(self, days: Collection[int]) -> None:
        """There is room for every day."""

    def payloads_of(self, day: int) -> str:  # noqa: ARG002 - as the engine has it
        """Days are not apart; the prefix tells them."""
        return "1 = 1"

    def payloads_from(self, day: int) -> int:  # noqa: ARG002 - as the engine has it
        """Ids begin at 1."""
        return 0

    def drop_day(self, before: int) -> tuple[int, int] | None:  # noqa: ARG002 - as the engine has it
        """Days are not apart."""
        return None

    def compact(self) -> None:
        """What holds nothing is not counted."""

    def among(self, select: str, values: Sequence[Any]) -> Iterator[Any]:
        """The rows of a SELECT that ends in `IN`, for so many values as there are."""
        for begin in range(0, len(values), _AT_ONCE):
            part = values[begin : begin + _AT_ONCE]
            sql = f"{select} ({', '.join('?' * len(part))})"
            yield from self.connection.execute(sql, part).fetchall()

    def number(self, pragma: str) -> int:
        """What a PRAGMA tells."""
        return self.connection.execute(f"PRAGMA {pragma}").fetchone()[0]

    @property
    def size(self) -> int:
        """Bytes that hold something."""
        with self.told():
            pages = self.number("page_count") - self.number("freelist_count")
            return pages * self.number("page_size")

    def vacuum(self) -> None:
        """Give pages that hold nothing back to the disk, some at a time."""
        with self.told():
            while free := self.number("freelist_count"):
                self.rows("PRAGMA incremental_vacuum(1000)")
                if self.number("freelist_count") >= free:
                    break
            self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def writing(self) -> Generator[None]:
        """All of it or nothing."""
        with self.told():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Generator[None]:
        """One state of the file for all parts of a question, whatever others write."""
        with self.told():
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def told(self) -> Generator[None]:
        """Errors of SQLite as ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise _explained(error, str(self.path), self._wait) from error


def add_aggregate(connection: sqlite3.Connection) -> None:
    """Let SQL sum up histograms."""
    connection.create_aggregate("summed", 1, _Summed)  # pyright: ignore[reportArgumentType] - gives bytes


class _Summed:
    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self.step = self._kept.append  # No function of ours: it is called for each row.

    def finalize(self) -> bytes:
        return packed(summed(self._kept))


def _explained(error: sqlite3.Error, path: str, wait: float) -> CallpactError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_NOTADB:
            return InvalidConfig(
                f"'{path}' is not an audit log: it is no SQLite database; name another file"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return UsageError(
                f"the audit log '{path}' has been locked by another process for "
                f"{wait:g} s; nothing was written"
            )
        case sqlite3.SQLITE_READONLY:
            return UsageError(
                f"the audit log '{path}' cannot be written: the file or its folder is read-only"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return UsageError(
                f"the audit log '{path}' cannot be opened: is it a file, and may it be read?"
            )
        case sqlite3.SQLITE_FULL:
            return UsageError(
                f"the audit log '{path}' cannot grow: the disk is full; nothing was written"
            )
        case sqlite3.SQLITE_CORRUPT:
            return UsageError(
                f"the audit log '{path}' is damaged ({error}); move it away, or restore a copy"
            )
        case _:
            return UsageError(f"the audit log '{path}' cannot be used: {error}")
