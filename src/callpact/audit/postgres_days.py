"""Days of records in PostgreSQL: each has a partition of the calls, and one of the payloads.

Payloads are kept with the day of their record: so a day goes as a whole, and its space is given
back at once. Times beyond the calendar are in its first or last day.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from callpact.audit.histogram import DAY

_EPOCH = date(1970, 1, 1).toordinal()
_ID_BITS = 40
FIRST_DAY, LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH


def in_calendar(day: int) -> int:
    """The number of a day, from the epoch on; of what is beyond the calendar its first or last."""
    return max(FIRST_DAY, min(day, LAST_DAY))


def ids_of(day: int) -> tuple[int, int]:
    """Where the ids of payloads of a day begin, and where they end."""
    return day << _ID_BITS, (day + 1) << _ID_BITS


def _suffix(day: int) -> str:
    return date.fromordinal(day + _EPOCH).isoformat().replace("-", "")


def _bounds(begin: int, end: int, day: int) -> str:
    first = "MINVALUE" if day == FIRST_DAY else str(begin)
    last = "MAXVALUE" if day == LAST_DAY else str(end)
    return f"FOR VALUES FROM ({first}) TO ({last})"


async def days_of(connection: Any) -> set[int]:
    """The days that there are partitions for."""
    found = await connection.fetch(
        "SELECT right(relname, 8) FROM pg_inherits JOIN pg_class ON oid = inhrelid "
        "WHERE inhparent = 'calls'::regclass"
    )
    return {date.fromisoformat(text).toordinal() - _EPOCH for (text,) in found}


async def add_day(connection: Any, day: int) -> None:
    """Make the partitions of a day; who reads meanwhile is not in the way."""
    for table, begin, end in (
        ("calls", day * DAY, (day + 1) * DAY),
        ("payloads", *ids_of(day)),
    ):
        part = f"{table}_{_suffix(day)}"
        await connection.execute(f"CREATE TABLE {part} (LIKE {table} INCLUDING ALL)")
        await connection.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {part} {_bounds(begin, end, day)}"
        )


async def drop_day(connection: Any, day: int) -> tuple[int, int]:
    """Let go of a day: how many records it had, and the time of the last."""
    suffix = _suffix(day)
    count, last = await connection.fetchrow(f"SELECT count(*), max(at) FROM calls_{suffix}")  # noqa: S608 - digits
    await connection.execute(f"DROP TABLE calls_{suffix}, payloads_{suffix}")
    return count, 0 if last is None else last
