"""Days of records in PostgreSQL: each has a partition of the table of calls, and goes as a whole.

Times beyond the calendar are in its first or last day.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from callpact.audit.store.protocol import DAY, Stored

_EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_PARTITIONS = (
    "SELECT right(relname, 8), pg_total_relation_size(oid) FROM pg_inherits "
    "JOIN pg_class ON oid = inhrelid WHERE inhparent = 'calls'::regclass"
)


def in_calendar(day: int) -> int:
    """The number of a day, from the epoch on; of a day beyond the calendar its first or last."""
    return max(FIRST_DAY, min(day, LAST_DAY))


def _suffix(day: int) -> str:
    return date.fromordinal(day + _EPOCH).isoformat().replace("-", "")


def _day(suffix: str) -> int:
    return date.fromisoformat(suffix).toordinal() - _EPOCH


async def parts_of(connection: Any) -> list[Stored]:
    """The partitions, the oldest first."""
    found = await connection.fetch(_PARTITIONS)
    days = sorted((_day(suffix), suffix, size) for suffix, size in found)
    return [Stored(suffix, day * DAY, (day + 1) * DAY - 1, size) for day, suffix, size in days]


async def days_of(connection: Any) -> set[int]:
    """The days that there are partitions for."""
    return {_day(suffix) for suffix, _ in await connection.fetch(_PARTITIONS)}


async def add_day(connection: Any, day: int) -> None:
    """Make the partition of a day; readers do not wait for it."""
    part = f"calls_{_suffix(day)}"
    first = "MINVALUE" if day == FIRST_DAY else str(day * DAY)
    last = "MAXVALUE" if day == LAST_DAY else str((day + 1) * DAY)
    await connection.execute(f"CREATE TABLE {part} (LIKE calls INCLUDING ALL)")
    await connection.execute(
        f"ALTER TABLE calls ATTACH PARTITION {part} FOR VALUES FROM ({first}) TO ({last})"
    )


async def drop_part(connection: Any, part: Stored) -> int:
    """Remove a day; how many records it had."""
    count = await connection.fetchval(f"SELECT count(*) FROM calls_{part.name}")  # noqa: S608 - digits
    await connection.execute(f"DROP TABLE calls_{part.name}")
    return count
