"""Memory of an agent: the message and the accepted answer of each earlier turn.

Corrections, failed answers and tool calls are not stored. `SqliteMemory` persists it in a file.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from callpact.errors import InvalidConfig, UsageError
from callpact.folders import data_folder

T = TypeVar("T")

TURNS = 20
"""Earlier turns of a session that are sent to the model."""
MAX_TURNS = 1_000
"""Turns that are stored of a session; older ones are deleted."""
_APPLICATION_ID = 0x63706D65
_VERSION = 1


class Remembered(Struct, frozen=True):
    """One turn: the message and the accepted answer."""

    message: str
    answer: str


class Memory(Protocol):
    """A store of turns by session."""

    async def recall(self, session: str, turns: int) -> list[Remembered]:
        """The last turns of a session, the oldest first."""
        ...

    async def keep(self, session: str, turn: Remembered) -> None:
        """Add a turn to a session."""
        ...


class SqliteMemory:
    """Turns in a SQLite file, created if missing; by default one in the user's data folder.

    Raises:
        InvalidConfig: the file is another database, or written by a later version of callpact.
        UsageError: the file cannot be read or written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = data_folder("memory") / "memory.db" if path is None else Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def recall(self, session: str, turns: int) -> list[Remembered]:
        """The last turns of a session, the oldest first."""
        sql = "SELECT message, answer FROM turns WHERE session = ? ORDER BY id DESC LIMIT ?"
        rows = await asyncio.to_thread(
            self._run, lambda file: file.execute(sql, (session, turns)).fetchall()
        )
        return [Remembered(message, answer) for message, answer in reversed(rows)]

    async def keep(self, session: str, turn: Remembered) -> None:
        """Add a turn to a session."""
        await asyncio.to_thread(self._run, lambda file: _add(file, session, turn))

    async def forget(self, session: str) -> None:
        """Delete a session."""
        sql = "DELETE FROM turns WHERE session = ?"
        await asyncio.to_thread(self._run, lambda file: file.execute(sql, (session,)).rowcount)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _opened(self.path)
                with self._connection:
                    return work(self._connection)
            except (sqlite3.Error, OSError, UnicodeError) as error:
                raise UsageError(f"the memory '{self.path}' cannot be used: {error}") from error


def _add(file: sqlite3.Connection, session: str, turn: Remembered) -> None:
    file.execute(
        "INSERT INTO turns (session, at, message, answer) VALUES (?, ?, ?, ?)",
        (session, time_ns() // 1_000_000, _text(turn.message), _text(turn.answer)),
    )
    file.execute(
        "DELETE FROM turns WHERE session = ?1 AND id <= "
        "(SELECT id FROM turns WHERE session = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (session, MAX_TURNS),
    )


def _text(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, by '?'."""
    return text.encode(errors="replace").decode()


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    file = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
    try:
        _check(file, path)
        file.execute("PRAGMA journal_mode = WAL")
        with file:
            file.execute("BEGIN IMMEDIATE")
            file.execute(
                "CREATE TABLE IF NOT EXISTS turns (id INTEGER PRIMARY KEY, session TEXT NOT NULL, "
                "at INTEGER NOT NULL, message TEXT NOT NULL, answer TEXT NOT NULL)"
            )
            file.execute("CREATE INDEX IF NOT EXISTS turns_session ON turns (session, id)")
            file.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            file.execute(f"PRAGMA user_version = {_VERSION}")
    except BaseException:
        file.close()
        raise
    return file


def _check(file: sqlite3.Connection, path: Path) -> None:
    def number(pragma: str) -> Any:
        return file.execute(f"PRAGMA {pragma}").fetchone()[0]

    is_used = file.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    if is_used and number("application_id") != _APPLICATION_ID:
        raise InvalidConfig(
            f"'{path}' is a database of something else; give the memory a file of its own"
        )
    if number("user_version") > _VERSION:
        raise InvalidConfig(
            f"'{path}' was written by a later callpact; upgrade, or name another file"
        )
