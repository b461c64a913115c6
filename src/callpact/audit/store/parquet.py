"""The store in the folder of a log: immutable Parquet files, queried with DuckDB.

New records are written as one file for each day, small files of a day are merged, and retention
removes files. The manifest lists the valid files (`manifest.py`). Readers take no lock: they read
the manifest, then the journal lines that are not in its files, and start again if the manifest was
replaced in between. DuckDB may access only the folder of the store.
"""

from __future__ import annotations

import json
import logging
import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.journal.lines import decode_line
from callpact.audit.journal.segments import segments
from callpact.audit.record import Record
from callpact.audit.store.interface import DAY, Filter, Moved, Overtaken, Stored
from callpact.audit.store.manifest import (
    StoreFile,
    StoreManifest,
    locked,
    read_manifest,
    write_manifest,
)
from callpact.audit.store.queries import LATEST_IN_DUCKDB, Queries, Query
from callpact.audit.store.rows import COLUMNS, TYPES, Row, row_of
from callpact.errors import UsageError

try:
    import duckdb
except ImportError:
    raise UsageError(
        "questions to the audit log need the extra 'audit': pip install 'callpact[audit]'; calls are "
        "put on record without it"
    ) from None

MAX_SMALL_FILES = 16
"""Small files of one day from which on they are merged."""
SMALL_ROWS = 100_000
"""Records up to which a file of the store is small."""
ROW_GROUP = 16_384
"""Records in a row group of a Parquet file."""
MAX_MEMORY_MEGABYTES = 512
"""The most memory that DuckDB uses for a query of the audit log."""
THREADS = 2
"""Threads that DuckDB uses."""
MAX_TRIES = 50
"""How often a query starts again because files were replaced while it ran."""
MAX_WAITING_BYTES = 64 << 20
"""The most bytes of the journal that one query of the audit log reads."""
MAX_WAITING_LINES = 200_000
"""The most lines of the journal that one query of the audit log reads."""

_AT_ONCE = 5_000
_SPELLED = {"bigint": "BIGINT", "double": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR"}
_STRUCTURE = json.dumps({name: _SPELLED[kind] for name, kind in TYPES.items()})
_TABLE = ", ".join(f'"{name}" {_SPELLED[kind]}' for name, kind in TYPES.items())
# One line of JSON for each row: encoded JSON contains no newline.
_LOADED = f"""SELECT {COLUMNS} FROM (SELECT unnest(from_json_strict(line, '{_STRUCTURE}'))
FROM (SELECT unnest(string_split($1, chr(10))) AS line))"""  # noqa: S608 - constants
_EVERYTHING = Query(f"SELECT {COLUMNS} FROM {{calls}}")  # noqa: S608 - constants
_EPOCH = date(1970, 1, 1).toordinal()
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("callpact.audit")


class ParquetStore(Queries):
    """Keeps records in the folder of a log, which is created when the first are added.

    Raises:
        InvalidConfig: the store is of another version of callpact.
        UsageError: by all methods, if the store cannot be used; nothing is written then.
    """

    is_eager = False

    def __init__(self, folder: str | Path) -> None:
        base = Path(folder).absolute()
        self.folder = base / "store"
        self._journal = base / "journal"
        self.unread = 0
        self.damaged: dict[str, str] = {}
        self._manifest: StoreManifest = StoreManifest()
        self._read: Mapping[str, int] = {}
        self._waiting = 0
        self._db = _connect(self.folder)
        self._db.execute(f"CREATE TABLE waiting ({_TABLE})")
        read_manifest(self.folder)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    # --- queries ----------------------------------------------------------------------------

    def _rows(self, query: Query) -> Sequence[Sequence[Any]]:
        return self._query(query, newest=None)

    def _newest(self, query: Query, limit: int) -> Sequence[Sequence[Any]]:
        return self._query(query, newest=limit) if limit else ()

    def _query(self, query: Query, newest: int | None) -> Sequence[Sequence[Any]]:
        """The rows of a query, from one consistent state of the store."""
        for _ in range(MAX_TRIES):
            try:
                self._refresh()
            except duckdb.Error as error:
                raise _explained(error, self.folder) from error
            files = self._files(query.where)
            try:
                if newest is None:
                    return self._run(query, files, with_waiting=True)
                return self._run_newest(query, files, newest)
            except duckdb.Error as error:
                if read_manifest(self.folder) == self._manifest and not self._blame(query, files):
                    raise _explained(error, self.folder) from error
        raise UsageError(
            f"the audit log in '{self.folder}' was rewritten {MAX_TRIES} times while it was read; "
            "ask again"
        )

    def _refresh(self) -> None:
        """Read the manifest, and the journal lines that are not in its files."""
        for _ in range(MAX_TRIES):
            manifest = read_manifest(self.folder) or StoreManifest()
            if manifest != self._manifest or self._was_removed():
                self._manifest, self._read = manifest, manifest.taken
                self._run_text("DELETE FROM waiting")
                self._waiting = 0
            loaded = sum(at - manifest.taken.get(name, 0) for name, at in self._read.items())
            try:
                waiting = _read_waiting(
                    self._journal,
                    self._read,
                    most_bytes=MAX_WAITING_BYTES - loaded,
                    most_lines=MAX_WAITING_LINES - self._waiting,
                )
            except OSError as error:
                raise UsageError(
                    f"the journal in '{self._journal}' cannot be read: {error.strerror}"
                ) from None
            if (read_manifest(self.folder) or StoreManifest()) == manifest:
                if waiting.records:
                    with self._whole():
                        self._load("waiting", list(_fitting(waiting.records)))
                self._read, self.unread = waiting.read, waiting.unread
                self._waiting += len(waiting.records)
                return
        raise UsageError(f"the audit log in '{self.folder}' changes too quickly; ask again")

    def _was_removed(self) -> bool:
        """True if a segment with lines that are in no file was removed: they may be written again."""
        there = {path.name for path in segments(self._journal)}
        taken = self._manifest.taken
        return any(at > taken.get(name, 0) for name, at in self._read.items() if name not in there)

    @contextmanager
    def _whole(self) -> Generator[None]:
        """Load all rows in one transaction: rows that are loaded twice would be counted twice."""
        self._run_text("BEGIN")
        try:
            yield
        except BaseException:
            self._run_text("ROLLBACK")
            raise
        self._run_text("COMMIT")

    def _files(self, where: Filter) -> list[StoreFile]:
        return [
            file
            for file in self._manifest.files
            if file.name not in self.damaged
            and (where.since is None or file.last >= where.since)
            and (where.until is None or file.first < where.until)
        ]

    def _run(
        self,
        query: Query,
        files: Iterable[StoreFile],
        *,
        with_waiting: bool,
        columns: str = COLUMNS,
        more: str = "",
    ) -> list[Any]:
        paths = self._paths(files)
        parts = [f"SELECT {COLUMNS} FROM waiting"] if with_waiting or not paths else []  # noqa: S608 - constants
        given = list(query.parameters)
        if paths:
            given.append(paths)
            parts.append(f"SELECT {COLUMNS} FROM read_parquet(${len(given)})")  # noqa: S608 - constants
        text = query.text.replace("{calls}", f"({' UNION ALL '.join(parts)})")
        text = text.replace("{latest}", LATEST_IN_DUCKDB)
        text = text.replace("{columns}", columns).replace("{more}", more)
        return self._db.execute(text, given).fetchall()

    def _run_newest(
        self, query: Query, files: Sequence[StoreFile], limit: int
    ) -> Sequence[Sequence[Any]]:
        """Find the newest rows in the files with the newest records, and then read only these.

        Payloads are most of a file, and a filter may leave few rows of each.
        """
        keys = '"at", id'
        found: list[tuple[int, str]] = []
        if self._waiting:
            found += self._run(query, (), with_waiting=True, columns=keys)
        left = sorted(files, key=lambda file: file.last)
        count = 1
        while left and (len(found) < limit or found[-1][0] <= left[-1].last):
            some, left = left[-count:], left[:-count]
            found += self._run(query, some, with_waiting=False, columns=keys)
            found = sorted(found, reverse=True)[:limit]
            count *= 3
        if not found:
            return found
        times = sorted({at for at, _ in found})
        holding = [file for file in files if _holds(file, times)]
        more = f' AND "at" IN ({", ".join(map(str, times))})'
        return self._run(query, holding, with_waiting=bool(self._waiting), more=more)

    def _blame(self, query: Query, files: Iterable[StoreFile]) -> bool:
        """Find unreadable files and exclude them from now on; True if there are any."""
        found = False
        for file in files:
            try:
                self._run(query, [file], with_waiting=False)
            except duckdb.Error as error:
                reason = str(error).partition("\n")[0]
                self.damaged[file.name] = reason
                _log.error(
                    "the file '%s' of the audit log is left out, with %s records: %s",
                    self.folder / file.name,
                    file.rows,
                    reason,
                )
                found = True
        return found

    def _paths(self, files: Iterable[StoreFile]) -> list[str]:
        return [str(self.folder / file.name) for file in files]

    def _run_text(self, text: str, given: Sequence[Any] = ()) -> list[Any]:
        return self._db.execute(text, list(given)).fetchall()

    def _load(self, table: str, rows: Sequence[Row]) -> None:
        for begin in range(0, len(rows), _AT_ONCE):
            lines = b"\n".join(_encode(row) for row in rows[begin : begin + _AT_ONCE])
            self._run_text(f"INSERT INTO {table} {_LOADED}", [lines.decode()])

    # --- writing ----------------------------------------------------------------------------

    def taken(self) -> dict[str, int]:
        """How many bytes of each segment of the journal are in the store."""
        return dict((read_manifest(self.folder) or StoreManifest()).taken)

    def add(self, records: Sequence[Record], moved: Moved | None = None) -> int:
        """Add records and the new positions in one transaction; returns how many are new.

        A record that exists with the same id and time is skipped.

        Raises:
            Overtaken: `moved.before` differs from the stored positions.
        """
        if not records and moved is None:
            return 0
        with self._writing() as before:
            if moved is not None and dict(moved.before) != dict(before.taken):
                raise Overtaken("another process has read this part of the journal")
            files = self._write_new(records, before)
            taken = before.taken if moved is None else moved.after
            after = replace(before, files=(*before.files, *files), taken=taken)
            if after != before:
                write_manifest(self.folder, after)
            self._merge(after, lambda _, small: len(small) >= MAX_SMALL_FILES)
            return sum(file.rows for file in files)

    @contextmanager
    def _writing(self) -> Generator[StoreManifest]:
        """Hold the lock of the store; removes unlisted files of a killed process."""
        try:
            with locked(self.folder):
                manifest = read_manifest(self.folder) or StoreManifest()
                known = {file.name for file in manifest.files}
                for path in self.folder.glob("*.parquet"):
                    if path.name not in known:
                        path.unlink()
                yield manifest
        except (duckdb.Error, OSError) as error:
            raise _explained(error, self.folder) from error

    def _write_new(self, records: Sequence[Record], manifest: StoreManifest) -> list[StoreFile]:
        """Write one file for each day of the new records."""
        if not records:
            return []
        rows = [row_of(record) for record in records]  # Before anything is changed.
        self._run_text(f"CREATE OR REPLACE TEMP TABLE fresh ({_TABLE})")
        try:
            self._load("fresh", rows)
            self._forget_known(manifest, rows)
            days = self._run_text(
                f'SELECT ("at" - (("at" % {DAY}) + {DAY}) % {DAY}) AS day FROM fresh GROUP BY 1'  # noqa: S608 - constants
            )
            return [
                self._write(
                    f'SELECT {COLUMNS} FROM fresh WHERE "at" >= $1 AND "at" <= $2 '  # noqa: S608 - constants
                    'ORDER BY "at", id',
                    [day, day + DAY - 1],
                    day // DAY,
                )
                for (day,) in sorted(days)
            ]
        finally:
            self._run_text("DROP TABLE IF EXISTS fresh")

    def _forget_known(self, manifest: StoreManifest, rows: Sequence[Row]) -> None:
        """Drop rows that occur twice, or that are in a file already."""
        first, last = min(row.at for row in rows), max(row.at for row in rows)
        near = [
            file
            for file in manifest.files
            if file.first <= last and file.last >= first and file.name not in self.damaged
        ]
        if not near and len({(row.id, row.at) for row in rows}) == len(rows):
            return  # The common case.
        window = f'"at" >= {first} AND "at" <= {last}'
        try:
            self._run_text(
                "DELETE FROM fresh WHERE rowid NOT IN (SELECT min(rowid) FROM fresh ANTI JOIN "  # noqa: S608 - numbers
                f'(SELECT id, "at" FROM read_parquet($1) WHERE {window}) USING (id, "at") '
                'GROUP BY id, "at")'
                if near
                else "DELETE FROM fresh WHERE rowid NOT IN "
                '(SELECT min(rowid) FROM fresh GROUP BY id, "at")',
                [self._paths(near)] if near else [],
            )
        except duckdb.Error:
            if not self._blame(Query(f'SELECT id, "at" FROM {{calls}} WHERE {window}'), near):  # noqa: S608 - numbers
                raise
            self._forget_known(manifest, rows)

    def _write(self, text: str, given: Sequence[Any], day: int) -> StoreFile:
        path = self.folder / f"{_day_name(day)}-{time.time_ns()}-{os.getpid()}.parquet"
        self._db.sql(text, params=list(given)).write_parquet(
            str(path), compression="zstd", row_group_size=ROW_GROUP
        )
        path.chmod(0o600)
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        [(first, last, rows)] = self._run_text(
            'SELECT min("at"), max("at"), count(*) FROM read_parquet($1)', [[str(path)]]
        )
        return StoreFile(path.name, first, last, rows, size)

    # --- merging and retention --------------------------------------------------------------

    def tidy(self) -> None:
        """Merge the files of each past day."""
        today = time.time_ns() // 1_000_000 // DAY
        with self._writing() as manifest:
            self._merge(manifest, lambda day, _: day < today, whole=True)

    def _merge(
        self,
        manifest: StoreManifest,
        is_due: Callable[[int, list[StoreFile]], bool],
        *,
        whole: bool = False,
    ) -> None:
        """Merge the small files of a day, or all of them; one day at a time."""
        days: defaultdict[int, list[StoreFile]] = defaultdict(list)
        for file in manifest.files:
            if file.name not in self.damaged and (whole or file.rows < SMALL_ROWS):
                days[file.first // DAY].append(file)
        for day, files in sorted(days.items()):
            if len(files) < 2 or not is_due(day, files):
                continue
            # Files of a day are nearly in the order of time: sorting their rows is not needed.
            files.sort(key=lambda file: (file.first, file.name))
            try:
                one = self._write(
                    f"SELECT {COLUMNS} FROM read_parquet($1)",  # noqa: S608 - constants
                    [self._paths(files)],
                    day,
                )
            except duckdb.Error:
                if not self._blame(_EVERYTHING, files):
                    raise
                continue  # The readable files are merged the next time.
            gone = {file.name for file in files}
            kept = (file for file in manifest.files if file.name not in gone)
            manifest = replace(manifest, files=(*kept, one))
            write_manifest(self.folder, manifest)
            self._remove(files)

    def stored(self) -> list[Stored]:
        """The files, the oldest first."""
        files = (read_manifest(self.folder) or StoreManifest()).files
        parts = [Stored(file.name, file.first, file.last, file.size) for file in files]
        return sorted(parts, key=lambda part: part.last)

    def retention(self, *, older_than: int | None = None, larger_than: int | None = None) -> int:
        """Remove files whose newest record is before a time, and the oldest beyond a size."""
        if older_than is None and larger_than is None:
            return 0
        with self._writing() as manifest:
            kept = sorted(manifest.files, key=lambda file: file.last)
            gone: list[StoreFile] = []
            size = sum(file.size for file in kept)
            while kept:
                is_old = older_than is not None and kept[0].last < older_than
                if not is_old and (larger_than is None or size <= larger_than):
                    break
                gone.append(kept.pop(0))
                size -= gone[-1].size
            if gone:
                write_manifest(self.folder, replace(manifest, files=tuple(kept)))
                self._remove(gone)
        return sum(file.rows for file in gone)

    def _remove(self, files: Iterable[StoreFile]) -> None:
        for file in files:
            with suppress(OSError):  # The next writer removes unlisted files.
                (self.folder / file.name).unlink()

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in (read_manifest(self.folder) or StoreManifest()).files)


def _connect(folder: Path) -> Any:
    """An in-memory database that cannot access files outside a folder."""
    config: dict[str, Any] = {
        "threads": THREADS,
        "memory_limit": f"{MAX_MEMORY_MEGABYTES}MB",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    connection: Any = duckdb.connect(":memory:", config=config)
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET temp_directory = $1", [str(folder / "tmp")])
    connection.execute("SET allowed_directories = [$1]", [str(folder)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _fitting(records: Iterable[Record]) -> Iterator[Row]:
    """Rows of the records that fit into a table; the compactor sets the others aside."""
    for record in records:
        with suppress(OverflowError):
            yield row_of(record)


def _holds(file: StoreFile, times: Sequence[int]) -> bool:
    """True if one of these sorted times is within a file."""
    number = bisect_left(times, file.first)
    return number < len(times) and times[number] <= file.last


def _day_name(day: int) -> str:
    try:
        return date.fromordinal(day + _EPOCH).isoformat()
    except (ValueError, OverflowError):  # Outside the calendar.
        return str(day)


def _explained(error: Exception, folder: Path) -> UsageError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    reason = reason.partition("\n")[0]
    if "No space left" in reason:
        reason = "the disk is full"
    return UsageError(f"the audit log in '{folder}' cannot be used: {reason}")


# --- lines of the journal that are not in a file yet ----------------------------------------


class _Waiting(Struct, frozen=True):
    """Records of the journal that are not in the store, and the positions that were read to."""

    records: list[Record]
    read: dict[str, int]
    unread: int
    """Bytes that were skipped."""


def _read_waiting(
    journal: Path,
    taken: Mapping[str, int],
    *,
    most_bytes: int = MAX_WAITING_BYTES,
    most_lines: int = MAX_WAITING_LINES,
) -> _Waiting:
    """The lines after these positions of the segments, read without a lock, the newest segments first.

    Only whole lines are read: a line without a newline may still be being written.

    Raises:
        OSError: a segment cannot be read.
    """
    records: list[Record] = []
    read, unread, left = dict(taken), 0, most_bytes
    for path in reversed(segments(journal)):
        at = taken.get(path.name, 0)
        try:
            with path.open("rb") as file:
                size = max(0, file.seek(0, os.SEEK_END) - at)
                file.seek(at)
                data = file.read(max(0, min(size, left)) if len(records) < most_lines else 0)
        except FileNotFoundError:
            continue  # It was moved into the store, as a new manifest shows.
        is_cut = len(data) < size
        data = data[: data.rfind(b"\n") + 1]
        found = (decode_line(line) for line in data.split(b"\n") if line)
        records.extend(record for record in found if record is not None)
        left -= len(data)
        read[path.name] = at + len(data)
        if is_cut:
            unread += size - len(data)
    return _Waiting(records, read, unread)
