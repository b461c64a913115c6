"""The calls of a day, two bytes each: in which hour one was, how it went, and how long it took.

Rollups by tool and caller would be nearly as many for each hour as there are records. So there are
rollups of days, which know the hours of their calls: those of a month are counted in less than half
a second, and some hours of a day are told from its rollup, also when its records are gone.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator

from callpact.audit.sql_rows import IS_FAILED, IS_REJECTED, IS_WARNED, bucket_in, mark_with

_WENT = (0, IS_WARNED, IS_FAILED, IS_FAILED | IS_REJECTED)
_TOLD = IS_WARNED | IS_FAILED | IS_REJECTED
_BUCKET_BITS, _HOUR_AT = 9, 11
_MARKS = [mark_with(bucket, flags) for flags in _WENT for bucket in range(1 << _BUCKET_BITS)]
_CODE = struct.Struct("<H")


def packed_call(hour: int, mark: int) -> bytes:
    """A call with this mark in an hour of its day, from 0 to 23."""
    flags = mark & _TOLD
    # What failed has no warnings.
    went = _WENT.index(flags & ~IS_WARNED if flags & IS_FAILED else flags)
    return _CODE.pack(hour << _HOUR_AT | went << _BUCKET_BITS | bucket_in(mark))


def calls_in(kept: Iterable[bytes]) -> Iterator[tuple[int, int, int]]:
    """The hours, the marks and how many calls of each there are, of what `packed_call` gave.

    The marks tell what is counted of calls, and no more.
    """
    data = b"".join(kept)
    for code, calls in Counter(struct.unpack(f"<{len(data) // 2}H", data)).items():
        yield code >> _HOUR_AT, _MARKS[code & (1 << _HOUR_AT) - 1], calls
