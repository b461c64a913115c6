"""How records get into a store, and out of it when they are old, whatever engine is behind it.

Records, their payloads and what is counted of their notes are kept in one transaction for each
batch; `sql_rollups.py` counts the rest. A record that is let go leaves its rollups behind.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine
from callpact.audit.histogram import DAY, FIRST, HOUR, LAST
from callpact.audit.record import Payload, Record
from callpact.audit.sql_names import Naming
from callpact.audit.sql_rollups import Rollups
from callpact.audit.sql_rows import DAILY

ROLLUPS_KEPT = 400 * DAY
"""How much longer than records their rollups are kept, in milliseconds."""
RETENTION_STEP = 2_000
"""Records that one transaction of retention lets go."""
_LARGE = 4_096


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
        ids, fresh = self._fresh(records)
        days: defaultdict[int, list[Record]] = defaultdict(list)
        for record in fresh:
            days[record.at // DAY].append(record)
        self._engine.prepare(days)
        payloads = {day: self._payload_ids(day, those) for day, those in days.items()}
        names = self._naming.of_all(fresh)
        first = self._last_number() + 1
        # One after the other: so many at once would keep the collector busy.
        self._engine.insert_all(
            "calls",
            rows.CALL,
            (
                rows.call_row(number, id_, record, named, payloads[record.at // DAY])
                for number, id_, record, named in zip(
                    itertools.count(first), ids, fresh, names, strict=False
                )
            ),
        )
        self._keep_messages(fresh, names)
        self._rollups.wait_for(fresh)
        self._rollups.add_places(fresh)
        self._rollups.roll_up(first + len(fresh) - 1)
        return len(fresh)

    def _keep_messages(self, records: Sequence[Record], names: Sequence[rows.Names]) -> None:
        """The latest message of each cell, for when its record is gone."""
        latest: dict[int, tuple[int, str]] = {}
        for record, named in zip(records, names, strict=True):
            message, at = record.message, record.at
            if message is not None and at >= latest.get(named.cell, (FIRST,))[0]:
                latest[named.cell] = at, message
        self._engine.execute_all(
            "UPDATE cells SET message = ?, message_at = ? WHERE id = ? "
            "AND coalesce(message_at, ?) <= ?",
            [(message, at, cell, at, at) for cell, (at, message) in latest.items()],
        )

    def _last_number(self) -> int:
        """The number of the last record; none is ever given again."""
        row = self._engine.row("SELECT max(number) FROM calls")
        return max(self._engine.kept_number("rolled_up"), (row[0] if row else None) or 0)

    def _fresh(self, records: Sequence[Record]) -> tuple[list[Any], Sequence[Record]]:
        """Those that are not kept yet, and their ids: one that was read twice has both id and time."""
        kept_id = self._engine.kept_id
        ids = [kept_id(record.id) for record in records]
        row = self._engine.row("SELECT max(at) FROM calls")
        latest = FIRST if row is None or row[0] is None else row[0]
        times = [record.at for record in records]
        if len(set(ids)) == len(ids) and min(times, default=LAST) > latest:
            return ids, records  # As most are.
        fresh: dict[tuple[Any, int], Record] = {}
        for key, record in zip(zip(ids, times, strict=True), records, strict=True):
            fresh.setdefault(key, record)
        doubtful = [at for at in times if at <= latest]
        if doubtful:
            # The bounds spare the partitions of other days.
            select = (
                "SELECT id, at FROM calls INDEXED BY calls_id "  # noqa: S608 - numbers
                f"WHERE at >= {min(doubtful)} AND at <= {max(doubtful)} AND id IN"
            )
            those = {id_ for id_, at in fresh if at <= latest}
            for known in self._engine.among(select, list(those)):
                fresh.pop(tuple(known), None)
        return [id_ for id_, _ in fresh], list(fresh.values())

    def _payload_ids(self, day: int, records: Collection[Record]) -> dict[str, int]:
        """Where each payload of a day is kept, by its hash; each use is counted."""
        uses: dict[str, int] = {}
        given: dict[str, tuple[int, Payload]] = {}
        for record in records:
            for payload in (record.input, record.output):
                if payload is not None and not rows.is_small(payload):
                    sha256 = payload.sha256
                    held = given.get(sha256)
                    if held is None:
                        uses[sha256] = 1
                        given[sha256] = _prefix(record.at, payload), payload
                        continue
                    uses[sha256] += 1
                    if held[1].json is None and payload.json is not None:
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
        fresh = [sha256 for sha256 in given if sha256 not in ids]
        ids.update(zip(fresh, range(last + 1, last + 1 + len(fresh)), strict=True))
        self._engine.insert_all(
            "payloads",
            rows.PAYLOAD,
            (rows.payload_row(ids[sha256], *given[sha256], uses[sha256]) for sha256 in fresh),
        )

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
        self._rollups.roll_up(self._last_number(), waiting=1)

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


def _prefix(at: int, payload: Payload) -> int:
    """The time and some bits of a hash, which an index finds it by.

    An index of hashes alone would be written all over; so what is equal is kept once an hour, and
    what is large once a day.
    """
    span = DAY if payload.size >= _LARGE else HOUR
    return (at // span & 0xFFFFF) << 32 | int(payload.sha256[:8], 16)
