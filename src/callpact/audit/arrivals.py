"""Which calls came into a SQLite store since the last look, whenever they began.

A record is there when its call ends, and the log is ordered by when calls began: a call that took
an hour appears an hour back. Rows are numbered as they come, and that is what is followed here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace

from callpact.audit.reading import pages_of
from callpact.audit.record import Record
from callpact.audit.sql_rows import shown_id
from callpact.audit.store import MAX_ROWS, Filter, Store

_CLOSE_MS = 2_000


class Arrivals:
    """Follows the store in a file, from now on."""

    def __init__(self, path: Path) -> None:
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        self._connection = sqlite3.connect(address, uri=True, isolation_level=None)
        self._last: int = (
            self._connection.execute("SELECT max(rowid) FROM calls").fetchone()[0] or 0
        )

    def new(self, store: Store, where: Filter) -> list[Record]:
        """The records that came since the last look and fit, in the order in which they came."""
        sql = "SELECT rowid, id, at FROM calls WHERE rowid > ? ORDER BY rowid LIMIT ?"
        rows = self._connection.execute(sql, (self._last, MAX_ROWS)).fetchall()
        if not rows:
            return []
        self._last = rows[-1][0]
        # Two calls may have one id, and are told apart by when they began.
        order = {(shown_id(kept), at): number for number, kept, at in rows}
        found = {
            (record.id, record.at): record
            for begin, end in _stretches(sorted(at for _, _, at in rows))
            for page in pages_of(store, _within(where, begin, end + 1))
            for record in page
            if (record.id, record.at) in order
        }
        return sorted(found.values(), key=lambda record: order[record.id, record.at])

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _within(where: Filter, begin: int, end: int) -> Filter:
    return replace(
        where,
        since=begin if where.since is None else max(begin, where.since),
        until=end if where.until is None else min(end, where.until),
    )


def _stretches(times: list[int]) -> Iterator[tuple[int, int]]:
    """Times that are close to each other, as the first and the last of them."""
    begin = end = times[0]
    for at in times:
        if at - end > _CLOSE_MS:
            yield begin, end
            begin = at
        end = at
    yield begin, end
