"""The calls of a day, two bytes each: in which hour one was, how it went, and how long it took.

Rollups by tool and caller would be nearly as many for each hour as there are records. So there are
rollups of days, which know the hours of their calls: those of a month are counted in less than half
a second, and the hours of a day are told from its rollups also when its records are gone.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from callpact.audit.histogram import histogram_of
from callpact.audit.sql_rows import IS_FAILED, IS_REJECTED, IS_WARNED, bucket_in, mark_with
from callpact.audit.sql_sums import Sum

_WENT = (0, IS_WARNED, IS_FAILED, IS_FAILED | IS_REJECTED)
_TOLD = IS_WARNED | IS_FAILED | IS_REJECTED
_BUCKET_BITS, _WENT_BITS = 9, 2
_BUCKETS = 1 << _BUCKET_BITS
_CODES = _BUCKETS << _WENT_BITS  # So many for each hour.
_MARKS = [mark_with(bucket, flags) for flags in _WENT for bucket in range(_BUCKETS)]
HOURS = 24
"""So many has a day."""


def packed_call(hour: int, mark: int) -> bytes:
    """A call with this mark in an hour of its day, from 0 to 23."""
    flags = mark & _TOLD
    # What failed has no warnings.
    went = _WENT.index(flags & ~IS_WARNED if flags & IS_FAILED else flags)
    return struct.pack("<H", hour * _CODES + went * _BUCKETS + bucket_in(mark))


def calls_by_hour(kept: bytes) -> Iterator[tuple[int, int]]:
    """How many calls there are in the hours of a day, of what `packed_call` gave."""
    # The second byte tells the hour.
    for high, calls in Counter(kept[1::2]).items():
        yield high * 256 // _CODES, calls


def calls_within(kept: bytes, hours: range) -> tuple[int, int, int] | None:
    """How many calls there are in some hours of a day, and the first and the last hour that has any."""
    if not (found := kept[1::2].translate(None, _outside(hours))):
        return None
    return len(found), min(found) * 256 // _CODES, max(found) * 256 // _CODES


@lru_cache
def _outside(hours: range) -> bytes:
    return bytes(high for high in range(256) if high * 256 // _CODES not in hours)


def marks_by_hour(kept: bytes) -> Iterator[tuple[int, int, int]]:
    """The hours and marks of calls, and how many there are of each, of what `packed_call` gave.

    The marks tell what is counted of calls, and no more.
    """
    for code, calls in Counter(_codes(kept)).items():
        yield code // _CODES, _MARKS[code % _CODES], calls


def sums_by_hour(kept: bytes) -> Iterator[tuple[int, Sum]]:
    """What is counted of the calls in each hour: quicker than by marks, if there are very many."""
    counts = [0] * (HOURS * _CODES)
    for code, calls in Counter(_codes(kept)).items():
        counts[code] = calls
    for hour in range(HOURS):
        first = hour * _CODES
        if any(told := counts[first : first + _CODES]):
            yield hour, _sum([told[at : at + _BUCKETS] for at in range(0, _CODES, _BUCKETS)])


def _codes(kept: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(kept) // 2}H", kept)


def _sum(lanes: list[list[int]]) -> Sum:
    ok, warned, failed, rejected = map(sum, lanes)
    found = Sum()
    found.calls = ok + warned + failed + rejected
    found.failed, found.rejected, found.warned = failed + rejected, rejected, warned
    found.histogram = sum(map(histogram_of, lanes))
    return found
