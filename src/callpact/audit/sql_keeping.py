"""How records get into a store, and out of it when they are old, whatever engine is behind it.

Records, their payloads and what is counted of their notes are kept in one transaction for each
batch; `sql_rollups.py` counts the rest. A record that is let go leaves its rollups behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine
from callpact.audit.histogram import DAY, FIRST, LAST
from callpact.audit.record import Payload, Record
from callpact.audit.sql_names import Naming
from callpact.audit.sql_rollups import PENDING, Rollups
from callpact.audit.sql_rows import DAILY

ROLLUPS_KEPT = 400 * DAY
"""How much longer than records their rollups are kept, in milliseconds."""
RETENTION_STEP = 2_000
"""Records that one transaction of retention lets go."""


class Keeper:
    """Writes to the database of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._naming = Naming(engine)
        self._rollups = Rollups(engine, self._naming)

    def add(self, records: Sequence[Record]) -> int:
        """Keep records that are new; how many those are."""
        with self._writing():
            return self._add(records)

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            with self._engine.writing():
                self._naming.begin()
                yield
        except BaseException:
            # What was named in this transaction has no id any more.
            self._naming.forget()
            raise

    def _add(self, records: Sequence[Record]) -> int:
        fresh = self._fresh(records)
        days: defaultdict[int, list[Record]] = defaultdict(list)
        for record in fresh.values():
            days[record.at // DAY].append(record)
        self._engine.prepare(days)
        payloads = {day: self._payload_ids(day, those) for day, those in days.items()}
        rolled_up, number = self._numbers()
        kept: list[tuple[Any, ...]] = []
        latest: dict[int, tuple[int, str]] = {}
        names_of, row_of, kept_id = self._naming.of, rows.call_row, self._engine.kept_id
        for (id_, at), record in fresh.items():
            names = names_of(record)
            number += 1
            ids = id_, None if record.parent is None else kept_id(record.parent)
            kept.append(row_of(record, number, ids, names, payloads[at // DAY]))
            if record.message is not None and at >= latest.get(names.cell, (FIRST,))[0]:
                latest[names.cell] = at, record.message
        self._engine.insert_all("calls", rows.CALL, kept)
        self._engine.execute_all(
            "UPDATE cells SET message = ?, message_at = ? WHERE id = ? "
            "AND coalesce(message_at, ?) <= ?",
            [(message, at, cell, at, at) for cell, (at, message) in latest.items()],
        )
        self._rollups.add_places(fresh.values())
        if number - rolled_up >= PENDING:
            self._rollups.add(number)
        return len(fresh)

    def _numbers(self) -> tuple[int, int]:
        """The last record that is rolled up, and the last one; numbers are never given again."""
        rolled_up = self._engine.kept_number("rolled_up")
        row = self._engine.row("SELECT max(number) FROM calls")
        return rolled_up, max(rolled_up, (row[0] if row else None) or 0)

    def _fresh(self, records: Sequence[Record]) -> dict[tuple[Any, int], Record]:
        """Those that are not kept yet: a record that was read twice has the same id and time."""
        fresh: dict[tuple[Any, int], Record] = {}
        for record in records:
            fresh.setdefault((self._engine.kept_id(record.id), record.at), record)
        if not fresh:
            return fresh
        ids, times = list({id_ for id_, _ in fresh}), [at for _, at in fresh]
        # The bounds spare the partitions of other days.
        select = (
            "SELECT id, at FROM calls INDEXED BY calls_id "  # noqa: S608 - numbers
            f"WHERE at >= {min(times)} AND at <= {max(times)} AND id IN"
        )
        for known in self._engine.among(select, ids):
            fresh.pop(tuple(known), None)
        return fresh

    def _payload_ids(self, day: int, records: Collection[Record]) -> dict[str, int]:
        """Where each payload of a day is kept, by its hash; each use is counted."""
        uses: dict[str, int] = {}
        given: dict[str, tuple[int, Payload]] = {}
        for record in records:
            for payload in (record.input, record.output):
                if payload is not None:
                    sha256 = payload.sha256
                    uses[sha256] = uses.get(sha256, 0) + 1
                    held = given.get(sha256)
                    if held is None:
                        given[sha256] = _prefix(record.at, sha256), payload
                    elif held[1].json is None and payload.json is not None:
                        given[sha256] = held[0], payload
        ids: dict[str, int] = {}
        bare: list[str] = []
        within = self._engine.payloads_of(day)
        select = f"SELECT id, sha256, form FROM payloads WHERE {within} AND prefix IN"  # noqa: S608 - our own terms
        prefixes = [prefix for prefix, _ in given.values()]
        for id_, kept, form in self._engine.among(select, prefixes):
            if (sha256 := kept.hex()) in given:
                ids[sha256] = id_
                if form == rows.IS_HASH and given[sha256][1].json is not None:
                    bare.append(sha256)
        self._engine.execute_all(
            "UPDATE payloads SET uses = uses + ? WHERE id = ?",
            [(uses[sha256], id_) for sha256, id_ in ids.items()],
        )
        self._engine.execute_all(
            "UPDATE payloads SET form = ?, json = ? WHERE id = ?",
            [(*rows.packed_payload(given[sha256][1]), ids[sha256]) for sha256 in bare],
        )
        self._add_payloads(day, given, uses, ids)
        return ids

    def _add_payloads(
        self,
        day: int,
        given: dict[str, tuple[int, Payload]],
        uses: dict[str, int],
        ids: dict[str, int],
    ) -> None:
        row = self._engine.row(
            f"SELECT max(id) FROM payloads WHERE {self._engine.payloads_of(day)}"  # noqa: S608 - our own terms
        )
        last = cast(
            "int", row[0] if row and row[0] is not None else self._engine.payloads_from(day)
        )
        added: list[tuple[Any, ...]] = []
        for sha256, (prefix, payload) in given.items():
            if sha256 not in ids:
                last += 1
                ids[sha256] = last
                kept = (last, prefix, bytes.fromhex(sha256), payload.size, uses[sha256])
                added.append((*kept, *rows.packed_payload(payload)))
        self._engine.insert_all("payloads", rows.PAYLOAD, added)

    def retention(self, *, older_than: int | None, larger_than: int | None) -> int:
        """Roll up what waits; let go of records, then of rollups; how many records."""
        with self._writing():
            self._roll_up()
        gone = 0
        if older_than is not None:
            gone += self._let_go_of_days(older_than)
            while step := self._let_go(older_than):
                gone += step
            self._let_go_of_rollups(older_than - ROLLUPS_KEPT)
        if larger_than is not None:
            while (size := self._engine.size) > larger_than:
                step = self._let_go_of_oldest(1 - larger_than / size)
                gone += step
                if not step and not self._let_go_of_oldest_rollups(1 - larger_than / size):
                    break
        self._engine.vacuum()
        return gone

    def _roll_up(self) -> None:
        rolled_up, last = self._numbers()
        if last > rolled_up:
            self._rollups.add(last)

    def _let_go_of_days(self, before: int, at_most: int | None = None) -> int:
        """Whole days, where the engine has them apart."""
        gone = 0
        while at_most is None or gone < at_most:
            with self._writing():
                # Others may have added since `retention` began.
                self._roll_up()
                day = self._engine.drop_day(before)
                if day is None:
                    break
                count, last = day
                if count:
                    self._note_gone(last)
            gone += count
        return gone

    def _let_go_of_oldest(self, share: float) -> int:
        """A day, else as many records as are thought to be too much."""
        with self._engine.reading():
            row = self._engine.row("SELECT count(*), max(at) FROM calls")
        if row is None or not row[0]:
            return 0
        count, newest = row
        if gone := self._let_go_of_days(newest, at_most=1):
            return gone
        wanted = RETENTION_STEP if self._engine.shrinks_at_once else max(1, int(count * share))
        while gone < wanted and (step := self._let_go(LAST, wanted - gone)):
            gone += step
        self._engine.compact()
        return gone

    def _let_go(self, before: int, limit: int = RETENTION_STEP) -> int:
        with self._writing():
            found = self._engine.rows(
                "SELECT number, at, input, output FROM calls WHERE at < ? ORDER BY at LIMIT ?",
                (before, min(limit, RETENTION_STEP)),
            )
            if not found:
                return 0
            # Others may have added since `retention` began.
            self._roll_up()
            self._engine.execute_all(
                "DELETE FROM calls WHERE number = ? AND at = ?", [tuple(row[:2]) for row in found]
            )
            uses = Counter(id_ for row in found for id_ in row[2:] if id_ is not None)
            self._engine.execute_all(
                "UPDATE payloads SET uses = uses - ? WHERE id = ?",
                [(count, id_) for id_, count in uses.items()],
            )
            self._engine.execute_all(
                "DELETE FROM payloads WHERE id = ? AND uses <= 0", [(id_,) for id_ in uses]
            )
            self._note_gone(found[-1][1])
        return len(found)

    def _note_gone(self, last: int) -> None:
        before = max(last + 1, self._engine.kept_number("gone_before", FIRST))
        self._engine.keep_number("gone_before", before)

    def _let_go_of_rollups(self, before: int) -> None:
        """Let go of what was counted before a day, and of names that nothing has any more."""
        day, gone = before // DAY * DAY, 0
        for table, units in (("rollups", rows.UNITS), ("place_rollups", (0, DAILY))):
            for unit in units:
                with self._engine.writing():
                    sql = f"DELETE FROM {table} WHERE unit = ? AND start < ?"  # noqa: S608 - one of two
                    gone += self._engine.change(sql, (unit, day))
        if gone:
            with self._writing():
                self._naming.remove_unused()

    def _let_go_of_oldest_rollups(self, share: float) -> bool:
        """False if there are none left."""
        with self._engine.reading():
            sql = "SELECT start FROM rollups WHERE unit = ? AND caller = 0 ORDER BY start"
            days = self._engine.rows(sql, (DAILY,))
        if days:
            wanted = 1 if self._engine.shrinks_at_once else max(1, int(len(days) * share))
            self._let_go_of_rollups(days[wanted - 1][0] + DAY)
            self._engine.compact()
        return bool(days)


def _prefix(at: int, sha256: str) -> int:
    """The day and some bits of a hash, which an index finds it by.

    An index of hashes alone would be written all over; so what is equal is kept once a day.
    """
    return (at // DAY & 0x7FFF) << 32 | int(sha256[:8], 16)
