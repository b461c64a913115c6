"""Durations in logarithmic buckets, and how a span of time is made of days, hours and the rest.

A histogram is one integer with 32 bits for each bucket: two are merged by adding them, thousands in
milliseconds. What is read from one is within 3.5 per cent of the true value.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

HOUR = 3_600_000
DAY = 24 * HOUR
FIRST = -(1 << 63)
LAST = (1 << 63) - 1

_SMALLEST = 0.001
_LOG_STEP = math.log(1.07)
_BUCKETS = 400
_LANE = 32
_MASK = (1 << _LANE) - 1


def bucket_of(ms: float) -> int:
    """The bucket of a duration; what is no duration is in the first."""
    if not ms > _SMALLEST:
        return 0
    if ms == math.inf:
        return _BUCKETS - 1
    return min(_BUCKETS - 1, 1 + int(math.log(ms / _SMALLEST) / _LOG_STEP))


def one_in(bucket: int, count: int = 1) -> int:
    """A histogram of so many durations in one bucket."""
    return count << (bucket * _LANE)


def histogram_of(counts: Sequence[int]) -> int:
    """The histogram of so many durations in each bucket, from the first on."""
    return int.from_bytes(struct.pack(f"<{len(counts)}I", *counts), "little")


def packed(histogram: int, base: int = 0) -> bytes:
    """A histogram as it is kept: where it begins, and its buckets from there to the last.

    `base` is the bucket that the histogram begins with.
    """
    kept = histogram.to_bytes((histogram.bit_length() + 7) // 8, "little")
    first = (len(kept) - len(kept.lstrip(b"\0"))) * 8 // _LANE
    rest = kept[first * _LANE // 8 :]
    return (first + base).to_bytes(2, "little") + rest if kept else b""


def unpacked(kept: bytes) -> int:
    """The histogram that `packed` was given."""
    return int.from_bytes(kept[2:], "little") << (int.from_bytes(kept[:2], "little") * _LANE)


def summed(kept: Iterable[bytes]) -> int:
    """The sum of packed histograms."""
    # Those that begin alike are added as they are: to move each would take longer than to add it.
    sums: dict[bytes, int] = {}
    for each in kept:
        head = each[:2]
        sums[head] = sums.get(head, 0) + int.from_bytes(each[2:], "little")
    return sum(lanes << (int.from_bytes(head, "little") * _LANE) for head, lanes in sums.items())


def merged(first: bytes, second: bytes) -> bytes:
    """Two packed histograms as one."""
    if not first or not second:
        return first or second
    begin, other = int.from_bytes(first[:2], "little"), int.from_bytes(second[:2], "little")
    lanes, more = int.from_bytes(first[2:], "little"), int.from_bytes(second[2:], "little")
    if begin <= other:
        lanes, head = lanes + (more << ((other - begin) * _LANE)), first[:2]
    else:
        lanes, head = more + (lanes << ((begin - other) * _LANE)), second[:2]
    return head + lanes.to_bytes((lanes.bit_length() + 7) // 8, "little")


def quantiles(histogram: int, *shares: float) -> list[float]:
    """The durations that these shares of all do not exceed; zeros for an empty histogram."""
    count = (histogram.bit_length() + _LANE - 1) // _LANE
    lanes = struct.unpack(f"<{count}I", histogram.to_bytes(count * _LANE // 8, "little"))
    seen = list(accumulate(lanes))
    if not seen:
        return [0.0] * len(shares)
    return [_middle(bisect_left(seen, max(1, math.ceil(share * seen[-1])))) for share in shares]


def _middle(bucket: int) -> float:
    return _SMALLEST * math.exp((bucket - 0.5) * _LOG_STEP) if bucket else 0.0


class Piece(Struct, frozen=True):
    """A part of a window, the end excluded: from which rollups, or from records, it is counted."""

    unit: Literal["day", "hour", "record"]
    begin: int
    end: int


def pieces(since: int | None, until: int | None, *, finest: bool = False) -> list[Piece]:
    """A window as whole days, the whole hours beside them, and what is left at both ends.

    `finest` asks for hours instead of days.
    """
    begin = FIRST if since is None else since
    end = LAST if until is None else until
    first_hour = FIRST if since is None else _ceiling(begin, HOUR)
    last_hour = LAST if until is None else floor(end, HOUR)
    if first_hour > last_hour:
        return _nonempty(Piece("record", begin, end))
    first_day = FIRST if since is None else _ceiling(begin, DAY)
    last_day = LAST if until is None else floor(end, DAY)
    inner = (
        [Piece("hour", first_hour, last_hour)]
        if finest or first_day >= last_day
        else [
            Piece("hour", first_hour, first_day),
            Piece("day", first_day, last_day),
            Piece("hour", last_day, last_hour),
        ]
    )
    return _nonempty(Piece("record", begin, first_hour), *inner, Piece("record", last_hour, end))


def spans(since: int, until: int, most: int, unit: int) -> range:
    """When each of at most so many equal spans of whole units begins; the last ends a window."""
    first, last = since // unit, max(since, until - 1) // unit
    step = -(-(last - first + 1) // most)
    count = -(-(last - first + 1) // step)
    return range((last + 1 - count * step) * unit, (last + 1) * unit, step * unit)


def whole_hours(since: int | None, until: int | None) -> tuple[int | None, int | None]:
    """The smallest window of whole hours that holds this one."""
    return (
        None if since is None else floor(since, HOUR),
        None if until is None else _ceiling(until, HOUR),
    )


def _nonempty(*parts: Piece) -> list[Piece]:
    return [part for part in parts if part.begin < part.end]


def floor(at: int, unit: int) -> int:
    """When the unit of a time begins; nothing is before the first time."""
    return at if at == FIRST else at // unit * unit


def _ceiling(at: int, unit: int) -> int:
    return -(-at // unit) * unit
