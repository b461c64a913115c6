"""Reads a log in pages, so that any number of records is read in bounded memory.

Also what is not in the store yet: how many records wait in a journal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from callpact.audit.journal import segments
from callpact.audit.record import Record
from callpact.audit.store import MAX_ROWS, Filter, Store

_PAGE = 500
_POSITION = ".at"
_BLOCK = 1 << 20


def pages_of(
    store: Store, where: Filter, limit: int | None = None, *, with_payloads: bool = False
) -> Iterator[list[Record]]:
    """Pages of records, the newest first; all of them unless there is a limit."""
    before: tuple[int, str] | None = None
    left = sys.maxsize if limit is None else limit
    while left > 0:
        page = store.log(where, limit=min(left, _PAGE), before=before, with_payloads=with_payloads)
        if not page:
            return
        yield page
        left -= len(page)
        before = (page[-1].at, page[-1].id)


def records_of(store: Store, where: Filter) -> Iterator[Record]:
    """As many as a report takes, and one more, which tells it that there are more."""
    return chain.from_iterable(pages_of(store, where, MAX_ROWS + 1, with_payloads=True))


def waiting(journal: Path) -> int | None:
    """How many records of a journal are not in the store yet; None if it may not be read."""
    try:
        return sum(_lines_left(segment) for segment in segments(journal))
    except OSError:
        return None


def _lines_left(segment: Path) -> int:
    try:
        at = segment.with_suffix(_POSITION).read_bytes()
    except FileNotFoundError:
        at = b""
    found = 0
    try:
        with segment.open("rb") as file:
            file.seek(int(at) if at.isdigit() else 0)
            while block := file.read(_BLOCK):
                found += block.count(b"\n")
    except FileNotFoundError:  # Indexed, and removed meanwhile.
        return 0
    return found
