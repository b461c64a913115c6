"""How records get into the SQLite store, and out of it when they are old.

With each batch of records its rollups are kept, in the same transaction: by hour and by day, in all,
by cell (what calls have in common) and by caller; by cell and caller together by day alone, as
there are nearly as many of these in an hour as there are records. A record that is let go leaves
its rollups behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, cast

from callpact.audit import sqlite_rows as rows
from callpact.audit.histogram import DAY, FIRST, HOUR, LAST, bucket_of, one_in, packed
from callpact.audit.record import Payload, Record
from callpact.audit.sqlite_file import SqliteFile
from callpact.audit.sqlite_rows import BY_CALLER, BY_CELL, DAILY

ROLLUPS_KEPT = 400 * DAY
"""How much longer than records their rollups are kept, in milliseconds."""
RETENTION_STEP = 2_000
"""Records that one transaction of retention lets go."""

_CACHED = 50_000
_INSERT = f"INSERT INTO calls ({rows.CALL}) VALUES ({', '.join('?' * 15)})"  # noqa: S608 - constants
_INSERT_CELL = (
    f"INSERT INTO cells (identity, namespace, {rows.CELL}) VALUES ({', '.join('?' * 12)})"  # noqa: S608 - constants
)
_INSERT_PLACE = f"INSERT INTO places ({rows.PLACE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_INSERT_PAYLOAD = f"INSERT INTO payloads ({rows.PAYLOAD}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_UPSERT = """
INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, failed = failed + excluded.failed,
rejected = rejected + excluded.rejected, warned = warned + excluded.warned,
first = min(first, excluded.first), last = max(last, excluded.last),
histogram = merged(histogram, excluded.histogram)"""
_UPSERT_PLACE = """
INSERT INTO place_rollups VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,
first = min(first, excluded.first), last = max(last, excluded.last)"""

_Sum = list[int]
"""Calls, failed, rejected, warned, first, last, histogram: plain lists, as there are thousands."""


class Keeper:
    """Writes to the file of a store."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._cells: dict[tuple[str | None, ...], int] = {}
        self._callers: dict[str | None, int] = {}
        self._places: dict[tuple[str | None, ...], int] = {}

    def add(self, records: Sequence[Record]) -> int:
        """Keep records that are new, with their rollups; how many those are."""
        try:
            with self._file.writing():
                return self._add(records)
        except BaseException:
            # What was named in this transaction has no id any more.
            for names in (self._cells, self._callers, self._places):
                names.clear()
            raise

    def _add(self, records: Sequence[Record]) -> int:
        fresh = self._fresh(records)
        payloads = self._payload_ids(fresh.values())
        kept: list[tuple[Any, ...]] = []
        sums: dict[tuple[int, int, int], _Sum] = {}
        latest: dict[int, tuple[int, str]] = {}
        for id_, record in fresh.items():
            cell, caller = self._cell(record), self._caller(record.caller)
            bucket = bucket_of(record.ms)
            kept.append(rows.call_row(record, id_, bucket, cell, caller, payloads))
            at, gate = record.at, record.gate
            failed, rejected = gate is not None, gate in {"access", "input"}
            warned = not failed and bool(record.warnings)
            counts = [1, failed, rejected, warned, at, at, one_in(bucket)]
            _merge(sums, (at // HOUR * HOUR, caller, cell), counts)
            if record.message is not None and at >= latest.get(cell, (FIRST,))[0]:
                latest[cell] = at, record.message
        self._file.execute_all(_INSERT, kept)
        self._file.execute_all(
            "UPDATE cells SET message = ?3, message_at = ?2 WHERE id = ?1 "
            "AND ifnull(message_at, ?2) <= ?2",
            [(cell, at, message) for cell, (at, message) in latest.items()],
        )
        self._roll_up(sums)
        self._roll_up_places(fresh.values())
        return len(fresh)

    def _fresh(self, records: Sequence[Record]) -> dict[str | bytes, Record]:
        fresh: dict[str | bytes, Record] = {}
        for record in records:
            fresh.setdefault(rows.kept_id(record.id), record)
        for (known,) in self._file.among("SELECT id FROM calls WHERE id IN", list(fresh)):
            del fresh[known]
        return fresh

    def _cell(self, record: Record) -> int:
        cell = rows.cell_of(record)
        found = self._cells.get(cell)
        if found is None:
            select = "SELECT id FROM cells WHERE identity = ?"
            names = (repr(cell), record.namespace, *cell)
            found = _remembered(self._cells, cell, self._named(select, _INSERT_CELL, names))
        return found

    def _caller(self, name: str | None) -> int:
        found = self._callers.get(name)
        if found is None:
            select = (
                "SELECT id FROM callers WHERE ifnull(name, '') = ifnull(?1, '') "
                "AND (name IS NULL) = (?1 IS NULL)"
            )
            id_ = self._named(select, "INSERT INTO callers (name) VALUES (?)", (name,))
            found = _remembered(self._callers, name, id_)
        return found

    def _place(self, record: Record, place: tuple[str, str, str]) -> int:
        identity = (record.tool, record.version, record.contract, *place)
        found = self._places.get(identity)
        if found is None:
            select = "SELECT id FROM places WHERE identity = ?"
            names = (repr(identity), record.namespace, *identity)
            found = _remembered(self._places, identity, self._named(select, _INSERT_PLACE, names))
        return found

    def _named(self, select: str, insert: str, names: Sequence[str | None]) -> int:
        row = self._file.execute(select, names[:1]).fetchone()
        return row[0] if row else cast("int", self._file.execute(insert, names).lastrowid)

    def _payload_ids(self, records: Collection[Record]) -> dict[str, int]:
        """Where each payload is kept, by its hash; each use is counted."""
        uses: Counter[str] = Counter()
        given: dict[str, Payload] = {}
        for record in records:
            for payload in (record.input, record.output):
                if payload is not None:
                    uses[payload.sha256] += 1
                    if payload.json is not None or payload.sha256 not in given:
                        given[payload.sha256] = payload
        ids: dict[str, int] = {}
        bare: list[str] = []
        select = "SELECT id, sha256, form FROM payloads WHERE prefix IN"
        for id_, kept, form in self._file.among(select, [_prefix(sha256) for sha256 in given]):
            if (sha256 := kept.hex()) in given:
                ids[sha256] = id_
                if form == rows.IS_HASH and given[sha256].json is not None:
                    bare.append(sha256)
        self._file.execute_all(
            "UPDATE payloads SET uses = uses + ? WHERE id = ?",
            [(uses[sha256], id_) for sha256, id_ in ids.items()],
        )
        self._file.execute_all(
            "UPDATE payloads SET form = ?, json = ? WHERE id = ?",
            [(*rows.packed_payload(given[sha256]), ids[sha256]) for sha256 in bare],
        )
        self._add_payloads(given, uses, ids)
        return ids

    def _add_payloads(
        self, given: dict[str, Payload], uses: dict[str, int], ids: dict[str, int]
    ) -> None:
        last: int = self._file.execute("SELECT ifnull(max(id), 0) FROM payloads").fetchone()[0]
        added: list[tuple[Any, ...]] = []
        for sha256, payload in given.items():
            if sha256 not in ids:
                last += 1
                ids[sha256] = last
                kept = (last, _prefix(sha256), bytes.fromhex(sha256), payload.size, uses[sha256])
                added.append((*kept, *rows.packed_payload(payload)))
        self._file.execute_all(_INSERT_PAYLOAD, added)

    def _roll_up(self, sums: dict[tuple[int, int, int], _Sum]) -> None:
        """From the finest to the whole, each unit from the smallest that holds it."""
        rollups: dict[tuple[int, int, int, int], _Sum] = {}
        cells: dict[tuple[int, int], _Sum] = {}
        callers: dict[tuple[int, int], _Sum] = {}
        for (hour, caller, cell), part in sums.items():
            day = hour // DAY * DAY
            _merge(rollups, (DAILY | BY_CELL | BY_CALLER, caller, day, cell), part)
            _merge(cells, (hour, cell), part)
            _merge(callers, (hour, caller), part)
        for (hour, cell), part in cells.items():
            _merge(rollups, (BY_CELL, 0, hour, cell), part)
            _merge(rollups, (DAILY | BY_CELL, 0, hour // DAY * DAY, cell), part)
        for (hour, caller), part in callers.items():
            _merge(rollups, (BY_CALLER, caller, hour, 0), part)
            _merge(rollups, (DAILY | BY_CALLER, caller, hour // DAY * DAY, 0), part)
            _merge(rollups, (0, 0, hour, 0), part)
            _merge(rollups, (DAILY, 0, hour // DAY * DAY, 0), part)
        self._file.execute_all(
            _UPSERT, [(*key, *part[:6], packed(part[6])) for key, part in sorted(rollups.items())]
        )

    def _roll_up_places(self, records: Collection[Record]) -> None:
        times: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for record in records:
            if record.issues or record.warnings or record.changes:
                for place in rows.places_of(record):
                    id_ = self._place(record, place)
                    times[0, record.at // HOUR * HOUR, id_].append(record.at)
                    times[DAILY, record.at // DAY * DAY, id_].append(record.at)
        self._file.execute_all(
            _UPSERT_PLACE, [(*key, len(ats), min(ats), max(ats)) for key, ats in times.items()]
        )

    def retention(self, *, older_than: int | None, larger_than: int | None) -> int:
        """Let go of records, then of rollups; how many records."""
        gone = 0
        if older_than is not None:
            while step := self._let_go(older_than):
                gone += step
            self._let_go_of_rollups(older_than - ROLLUPS_KEPT)
        if larger_than is not None:
            while self._file.size > larger_than:
                step = self._let_go(LAST)
                gone += step
                if not step and not self._let_go_of_oldest_rollups():
                    break
        self._file.vacuum()
        return gone

    def _let_go(self, before: int) -> int:
        with self._file.writing():
            found = self._file.execute(
                "SELECT rowid, at, input, output FROM calls WHERE at < ? ORDER BY at LIMIT ?",
                (before, RETENTION_STEP),
            ).fetchall()
            if not found:
                return 0
            self._file.execute_all(
                "DELETE FROM calls WHERE rowid = ?", [(row[0],) for row in found]
            )
            uses = Counter(id_ for row in found for id_ in row[2:] if id_ is not None)
            self._file.execute_all(
                "UPDATE payloads SET uses = uses - ? WHERE id = ?",
                [(count, id_) for id_, count in uses.items()],
            )
            self._file.execute_all(
                "DELETE FROM payloads WHERE id = ? AND uses <= 0", [(id_,) for id_ in uses]
            )
            self._file.execute(
                "INSERT INTO meta VALUES ('gone_before', ?) "
                "ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
                (found[-1][1] + 1,),
            )
        return len(found)

    def _let_go_of_rollups(self, before: int) -> None:
        day = before // DAY * DAY
        for table, units in (("rollups", range(8)), ("place_rollups", (0, DAILY))):
            for unit in units:
                with self._file.writing():
                    sql = f"DELETE FROM {table} WHERE unit = ? AND start < ?"  # noqa: S608 - one of two
                    self._file.execute(sql, (unit, day))

    def _let_go_of_oldest_rollups(self) -> bool:
        """False if there are none left."""
        with self._file.reading():
            sql = "SELECT min(start) FROM rollups WHERE unit = ?"
            oldest = self._file.execute(sql, (DAILY,)).fetchone()[0]
        if oldest is not None:
            self._let_go_of_rollups(oldest + DAY)
        return oldest is not None


def _merge(sums: dict[Any, _Sum], key: object, part: _Sum) -> None:
    held = sums.get(key)
    if held is None:
        sums[key] = part.copy()
        return
    held[0] += part[0]
    held[1] += part[1]
    held[2] += part[2]
    held[3] += part[3]
    held[4] = min(held[4], part[4])
    held[5] = max(held[5], part[5])
    held[6] += part[6]


def _remembered(names: dict[Any, int], name: object, id: int) -> int:
    if len(names) >= _CACHED:
        names.clear()
    names[name] = id
    return id


def _prefix(sha256: str) -> int:
    """Some bits of a hash, which an index finds it by."""
    return int(sha256[:12], 16)
