"""The answers of calls with an idempotency key, for a day, in a SQLite file of their own.

The only database of the doors (decision 0037). Rows are found by a digest of caller, tool and key, so
that no caller can read the answer of another, and the file names neither. Every method blocks; the
event loop runs them in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Generator
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from callpact.envelope import now_ms
from callpact.errors import InvalidConfig, UsageError
from callpact.folders import data_folder

KEPT_HOURS = 24
"""Hours that the answer of a call with an idempotency key is kept."""
MAX_ANSWERS = 10_000
"""Idempotency keys that are kept; for one more, the oldest of the caller with the most is removed."""
MAX_ANSWER_BYTES = 1 << 20
"""Size of an answer that is kept for an idempotency key; of a larger one only the key is kept."""
MAX_STORE_BYTES = 64 << 20
"""Size of all answers that are kept for idempotency keys; the oldest of the caller with the most are
removed."""
BUSY_SECONDS = 5.0
"""Seconds that a call with an idempotency key waits for another process that writes the file."""
_APPLICATION_ID = 0x6370616E
_VERSION = 1
_ROW_BYTES = 200
_PRUNE_EVERY = 64
_TABLE = (
    "CREATE TABLE IF NOT EXISTS answers (id BLOB PRIMARY KEY, caller BLOB NOT NULL, "
    "digest BLOB NOT NULL, begun INTEGER NOT NULL, until INTEGER NOT NULL, "
    "is_done INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0, answer BLOB)"
)
_INDEX = "CREATE INDEX IF NOT EXISTS answers_caller ON answers (caller, begun, size)"


class AnswerKey(Struct, frozen=True):
    """Digests of one call: of its caller, tool and key; of its caller; of its arguments."""

    id: bytes
    caller: bytes
    arguments: bytes

    @staticmethod
    def of(caller: str, tool_id: str, key: str, arguments: bytes) -> AnswerKey:
        """Make the digests; `arguments` is their canonical JSON."""
        whole = json.dumps([caller, tool_id, key]).encode()
        return AnswerKey(
            _digest(whole), _digest(caller.encode(errors="replace")), _digest(arguments)
        )


class ClaimState(Enum):
    """The state of a key when a call with it comes in."""

    NEW = "new"
    """It is claimed for this call, which runs now."""
    RUNNING = "running"
    ANSWERED = "answered"
    REUSED = "reused"
    """It was used with other arguments."""
    INTERRUPTED = "interrupted"
    """The first call was interrupted; it may have run."""
    TOO_LARGE = "too large"
    """The first call ran; its answer is too large to be kept."""


class Claim(Struct, frozen=True):
    """The state of a key, and the recorded answer."""

    state: ClaimState
    answer: bytes = b""


class AnswerStore:
    """Recorded answers by caller, tool and key, shared by all processes that use the file.

    Raises:
        InvalidConfig: on first use, the file is another database or of a later version.
        UsageError: the file cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = data_folder("idempotency") / "answers.db" if path is None else path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._claims = 0
        self._written = 0

    def claim(self, key: AnswerKey, until: float) -> Claim:
        """Claim a key for a call that ends by `until` (epoch milliseconds), or return its state."""
        now = now_ms()
        with self._transaction() as file:
            row = file.execute(
                "SELECT digest, until, is_done, answer FROM answers WHERE id = ? AND begun > ?",
                (key.id, now - KEPT_HOURS * 3_600_000),
            ).fetchone()
            if row is not None:
                return _claim(row, key, now)
            file.execute(
                "INSERT OR REPLACE INTO answers (id, caller, digest, begun, until) "
                "VALUES (?, ?, ?, ?, ?)",
                (key.id, key.caller, key.arguments, now, int(until)),
            )
            self._claims += 1
            if self._claims % _PRUNE_EVERY == 1 or self._written > MAX_ANSWER_BYTES:
                self._written = 0
                _prune(file, now)
        return Claim(ClaimState.NEW)

    def finish(self, key: AnswerKey, answer: bytes) -> None:
        """Record the answer of a claimed call."""
        kept = answer if len(answer) <= MAX_ANSWER_BYTES else None
        self._written += 0 if kept is None else len(kept)
        with self._transaction() as file:
            file.execute(
                "UPDATE answers SET is_done = 1, answer = ?, size = ? WHERE id = ?",
                (kept, len(kept or b""), key.id),
            )

    def release(self, key: AnswerKey) -> None:
        """Give up a claim: nothing was run, and the key can be used again."""
        with self._transaction() as file:
            file.execute("DELETE FROM answers WHERE id = ? AND is_done = 0", (key.id,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = _opened(self.path)
                file = self._connection
                file.execute("BEGIN IMMEDIATE")
                try:
                    yield file
                except BaseException:
                    file.execute("ROLLBACK")
                    raise
                file.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"the answers in '{self.path}' cannot be used: {error}") from error


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _claim(row: tuple[Any, ...], key: AnswerKey, now: int) -> Claim:
    digest, until, is_done, answer = row
    if digest != key.arguments:
        return Claim(ClaimState.REUSED)
    if not is_done:
        return Claim(ClaimState.RUNNING if now < until else ClaimState.INTERRUPTED)
    if answer is None:
        return Claim(ClaimState.TOO_LARGE)
    return Claim(ClaimState.ANSWERED, answer)


def _prune(file: sqlite3.Connection, now: int) -> None:
    """Remove what is older than a day, then the oldest of the caller with the most at a limit."""
    file.execute("DELETE FROM answers WHERE begun <= ?", (now - KEPT_HOURS * 3_600_000,))
    while True:
        number, size = file.execute(
            "SELECT count(*), coalesce(sum(size + ?), 0) FROM answers", (_ROW_BYTES,)
        ).fetchone()
        if number <= MAX_ANSWERS and size <= MAX_STORE_BYTES:
            return
        weight = 0 if number > MAX_ANSWERS else 1
        (most,) = file.execute(
            "SELECT caller FROM answers GROUP BY caller ORDER BY sum(? * size + ?) DESC LIMIT 1",
            (weight, _ROW_BYTES),
        ).fetchone()
        file.execute(
            "DELETE FROM answers WHERE id IN "
            "(SELECT id FROM answers WHERE caller = ? ORDER BY begun LIMIT ?)",
            (most, _PRUNE_EVERY),
        )


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Before SQLite creates it: its other files get the mode of this one.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    file = sqlite3.connect(
        path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
    )
    try:
        path.chmod(0o600)
        _check(file, path)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("PRAGMA secure_delete = ON")
        for statement in ("BEGIN IMMEDIATE", _TABLE, _INDEX):
            file.execute(statement)
        file.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {_VERSION}")
        file.execute("COMMIT")
    except BaseException:
        file.close()
        raise
    return file


def _check(file: sqlite3.Connection, path: Path) -> None:
    def number(pragma: str) -> Any:
        return file.execute(f"PRAGMA {pragma}").fetchone()[0]

    is_used = file.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    if is_used and number("application_id") != _APPLICATION_ID:
        raise InvalidConfig(f"'{path}' is a database of something else; move it away")
    if number("user_version") > _VERSION:
        raise InvalidConfig(f"'{path}' was written by a later callpact; upgrade, or move it away")
