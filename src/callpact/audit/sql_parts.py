"""What is to be counted of a window: rollups, rollups that know their hours, or records.

A window is made of whole days, whole hours and the records at both its ends (`histogram.pieces`);
records that are not rolled up yet are counted beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from callpact.audit.engine import Engine
from callpact.audit.histogram import DAY, FIRST, HOUR, LAST, Piece, floor, pieces
from callpact.audit.sql_rollups import HOURS_FROM, waiting_from
from callpact.audit.sql_terms import Source, Where
from callpact.audit.store import Filter


class Part(Struct, frozen=True):
    """What is to be counted of a window: rollups, those that know hours, or records."""

    of: Literal["rollups", "hours", "records"]
    source: Source
    window: tuple[int, int] = (FIRST, LAST)
    """Which hours are meant, of all that the source has."""

    def holds(self, hour: int) -> bool:
        """True if an hour is meant."""
        return self.window[0] <= hour < self.window[1]


def parts_of(
    engine: Engine, where: Filter, terms: Where, *, finest: bool = False
) -> Iterator[Part]:
    """All that is to be counted of a window."""
    rolled: list[tuple[int, int]] = []
    rolled_up = engine.kept_number(terms.rolled_up)
    has_hours = finest or not terms.is_daily or knows_hours(engine, where)
    for piece in _pieces(engine, where, finest=finest, has_hours=has_hours):
        window = piece.begin, piece.end
        if piece.unit == "record":
            yield Part("records", terms.ends(piece, rolled_up))
        elif piece.unit == "hour" and terms.is_daily:
            yield Part("hours", terms.hours(window), window)
        else:
            yield Part("rollups", terms.rollups(window, daily=piece.unit == "day"))
        if piece.unit != "record" or terms.is_daily:
            rolled.append(window)
    since = waiting_from(engine)
    waiting = [(max(begin, since), end) for begin, end in rolled if end > since]
    if waiting:
        yield Part("records", terms.pending(rolled_up, waiting))


def _pieces(engine: Engine, where: Filter, *, finest: bool, has_hours: bool) -> Iterator[Piece]:
    """The window in pieces; where records are gone, the smallest rollups that hold a piece."""
    gone = engine.kept_number("gone_before", FIRST)
    span, unit = (HOUR, "hour") if has_hours else (DAY, "day")
    taken: set[int] = set()
    for piece in pieces(where.since, where.until, finest=finest):
        if piece.unit == "day" or (piece.unit == "hour" and has_hours):
            yield piece
        elif floor(piece.begin, span) >= gone:
            yield Piece("record", piece.begin, piece.end)
        else:
            for start in range(floor(piece.begin, span), piece.end, span):
                if start >= gone:
                    yield Piece("record", max(start, piece.begin), piece.end)
                    break
                if start not in taken:
                    taken.add(start)
                    yield Piece(unit, start, start + span)


def knows_hours(engine: Engine, where: Filter) -> bool:
    """True if the rollups by cell of all days of a window know the hours of their calls."""
    first = FIRST if where.since is None else where.since
    return first >= engine.kept_number(HOURS_FROM, FIRST)
