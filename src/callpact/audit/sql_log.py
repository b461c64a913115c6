"""The log of a store, whatever engine is behind it: the newest records that fit a filter.

It is bounded by rollups first, which tell how far back one has to go for enough records, and then
read by the index that has them. Records that are not rolled up yet are looked for beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine, rows_by_id
from callpact.audit.histogram import DAY, FIRST, HOUR, LAST, floor
from callpact.audit.record import Record
from callpact.audit.sql_rollups import waiting_from
from callpact.audit.sql_terms import Source, Where, calls_in, narrowed, terms
from callpact.audit.store import Filter

_DENSE = 20_000
_MANY = 10
_CALL = ", ".join(f"calls.{name}" for name in rows.CALL.split(", "))


class Log:
    """Reads the records of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of those with the same id the latest."""
        with self._engine.reading():
            sql = f"SELECT {_CALL} FROM calls WHERE id = ? ORDER BY at DESC LIMIT 1"  # noqa: S608 - constants
            found = self._engine.rows(sql, (self._engine.kept_id(id),))
            return next(iter(self._records(found, with_payloads=True)), None)

    def log(
        self, where: Filter, limit: int, before: tuple[int, str] | None, *, with_payloads: bool
    ) -> list[Record]:
        """Records, the newest first."""
        with self._engine.reading():
            found = self._newest_that_fit(narrowed(self._engine, where), limit, before)
            return list(self._records(found, with_payloads=with_payloads))

    def _newest_that_fit(
        self, where: Filter, limit: int, before: tuple[int, str] | None = None
    ) -> list[Any]:
        begin = FIRST if where.since is None else where.since
        end = LAST if where.until is None else where.until
        if before is not None:
            end = min(end, before[0] + 1)
        last = None if before is None else (before[0], self._engine.kept_id(before[1]))
        fitting = terms(self._engine, where)
        if end - begin <= HOUR and self._are_few(begin, end):
            return self._newest(fitting.by_time((begin, end)), limit, last)
        late = self._late(fitting, (begin, end), limit, last)
        if late and len(late) == limit:  # What is older than all of these is not asked for.
            begin = max(begin, late[-1][2])
        found: list[Any] = []
        while limit > len(found) and begin < end:
            stretch = self._stretch(fitting, begin, end, limit - len(found))
            if not stretch.calls:
                break
            # Few are gone to by what they are, many are met by time.
            is_dense = not fitting.unit or stretch.calls > _DENSE
            reach = fitting.by_time if is_dense else fitting.by_what_they_are
            window = stretch.begin, stretch.end
            found += self._newest(reach(window), limit - len(found), last)
            end = stretch.begin
        if late:
            both = {row[0]: row for row in (*found, *late)}
            found = sorted(both.values(), key=rows.order_of, reverse=True)[:limit]
        return found

    def _are_few(self, begin: int, end: int) -> bool:
        """True if the records of a window are read as quickly as its rollups."""
        hours = floor(begin, HOUR), end
        everything = terms(self._engine, Filter()).rollups(hours, daily=False)
        return calls_in(self._engine, everything) <= _DENSE

    def _late(
        self, where: Where, window: tuple[int, int], limit: int, before: tuple[int, Any] | None
    ) -> list[Any]:
        """The newest of those that are not rolled up. Days are last, and tell what records are."""
        begin, end = max(window[0], waiting_from(self._engine)), window[1]
        if begin >= end:
            return []
        rolled_up = self._engine.kept_number("rolled_up_days")
        if not where.unit:  # Where all fit and many wait, the newest are met by their time.
            row = self._engine.row("SELECT max(number) FROM calls")
            if row is not None and (row[0] or 0) - rolled_up > _MANY * limit:
                return self._newest(where.late(rolled_up, (begin, end)), limit, before)
        return self._newest(where.pending(rolled_up, [(begin, end)]), limit, before)

    def _stretch(self, where: Where, begin: int, end: int, limit: int) -> _Stretch:
        """The shortest time that has the latest calls, if there are so many."""
        calls, first, last = 0, end, begin
        span = DAY if where.is_daily else HOUR
        source = where.rollups((floor(begin, span), end), daily=where.is_daily)
        sql = f"SELECT start, calls FROM {source.sql} ORDER BY start DESC"  # noqa: S608 - our own terms
        for start, count in self._engine.stream(sql, source.parameters):
            if calls >= limit and start != first:
                break
            calls, first, last = calls + count, start, max(last, start + span)
        return _Stretch(max(first, begin), min(last, end), calls)

    def _newest(self, source: Source, limit: int, before: tuple[int, Any] | None) -> list[Any]:
        after = "" if before is None else " AND (at, calls.id) < (?, ?)"
        sql = (
            f"SELECT {_CALL} FROM {source.sql}{after} "  # noqa: S608 - our own terms
            "ORDER BY at DESC, calls.id DESC LIMIT ?"
        )
        return [*self._engine.rows(sql, (*source.parameters, *(before or ()), limit))]

    def _records(self, found: Sequence[Any], *, with_payloads: bool) -> Iterator[Record]:
        json = "json" if with_payloads else "NULL"
        cells = rows_by_id(self._engine, f"{rows.CELL} FROM cells", (row[5] for row in found))
        callers = rows_by_id(self._engine, f"{rows.CALLER} FROM callers", (row[6] for row in found))
        payloads = rows_by_id(
            self._engine,
            f"sha256, size, form, {json} FROM payloads",
            (id_ for row in found for id_ in row[-2:]),
        )
        for row in found:
            yield rows.record_of(
                row,
                self._engine.shown_id,
                cells[row[5]],
                callers[row[6]],
                payloads,
                with_payloads=with_payloads,
            )

    def last_call(self, where: Filter) -> int | None:
        """When the latest call was; of one whose record is gone, when its rollup begins."""
        latest = self._newest_that_fit(where, 1)
        if latest:
            return latest[0][2]
        begin = FIRST if where.since is None else where.since
        end = LAST if where.until is None else where.until
        stretch = self._stretch(terms(self._engine, where), begin, end, 1)
        return stretch.begin if stretch.calls else None


class _Stretch(Struct, frozen=True):
    """A time in which there are calls, and how many its rollups count."""

    begin: int
    end: int
    calls: int
