"""The reader for broken JSON: finds the one value in a text, repairs it, and lists every repair.

Its time is bounded and linear. It never guesses: repairs that could change the meaning (`LOSSY`)
are refused unless they are allowed by name. A check by the schema chooses among several values.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from callpact.errors import UsageError
from callpact.jsonreader.candidates import MAX_CHECKS, FitCheck
from callpact.jsonreader.reading import (
    CUT_FINISHES,
    LOSSY,
    MAX_DEPTH,
    MAX_MARKS,
    MAX_REPAIRS,
    MAX_TEXT,
    ReadResult,
    Repair,
    Unreadable,
    truncation,
)
from callpact.jsonreader.search import Search
from callpact.jsonreader.strict import NOTHING, bounded, is_closed, read_clean, read_strict

__all__ = [
    "LOSSY",
    "MAX_CHECKS",
    "MAX_DEPTH",
    "MAX_MARKS",
    "MAX_REPAIRS",
    "MAX_TEXT",
    "FitCheck",
    "ReadResult",
    "Repair",
    "Unreadable",
    "read_json",
    "read_strict",
]


def read_json(
    text: str,
    *,
    allow: Collection[str] = (),
    fits: FitCheck | None = None,
    finish: str | None = None,
) -> ReadResult:
    """Read the value in a text, repaired where no meaning can be lost.

    Valid JSON is read without repairs. Of several values, the only one that `fits` accepts is
    read, or all of them if it accepts their list. `finish` is the reason why the model stopped:
    after `length` or `content_filter` the text must consist of one complete value. `allow` names
    repairs of `LOSSY` to accept: of duplicate keys and of several values the last is read, NaN and
    missing values are read as null.

    Raises:
        Unreadable: there is no JSON, or reading it would be a guess.
        UsageError: `allow` contains a name that is no lossy repair.
    """
    allowed = _known(allow) if allow else _NONE
    bounded(text)
    value = read_clean(text)
    if finish in CUT_FINISHES and "truncated" not in allowed:
        return _cut(text, value, Search(text, allowed, fits), finish)
    if isinstance(value, str) and fits is not None:
        return Search(text, allowed, fits).within(value) or ReadResult(value)
    return Search(text, allowed, fits).read() if value is NOTHING else ReadResult(value)


def _cut(text: str, value: Any, search: Search, finish: str | None) -> ReadResult:
    """Read a complete value in a text that was cut off."""
    try:
        read = search.read() if value is NOTHING else ReadResult(value)
    except Unreadable:
        raise truncation(text, len(text), finish) from None
    if not is_closed(read.value) or any(note.code in _MORE for note in read.repairs):
        raise truncation(text, len(text), finish)
    return read


_MORE = frozenset({"listed", "prose", "two_candidates", "unfit_candidate"})
"""Repairs of texts that may contain more than one value."""
_NONE: frozenset[str] = frozenset()


def _known(allow: Collection[str]) -> frozenset[str]:
    names = frozenset((allow,) if isinstance(allow, str) else allow)
    unknown = names - LOSSY
    if unknown:
        known = ", ".join(sorted(LOSSY))
        raise UsageError(f"allow names lossy repairs ({known}), got {min(unknown, key=str)!r:.100}")
    return names
