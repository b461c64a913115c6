"""The reader for broken JSON: finds the one value in a text, repairs it, and lists every repair.

Bounded and linear in time. It never guesses: what could change the meaning (`LOSSY`) is refused
unless it is allowed by name. The schema helps to choose among several values, and judges the one
that was read afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from callpact.errors import UsageError
from callpact.jsonreader.candidates import MAX_CHECKS, Fits
from callpact.jsonreader.reading import (
    CUT_FINISHES,
    LOSSY,
    MAX_DEPTH,
    MAX_MARKS,
    MAX_REPAIRS,
    MAX_TEXT,
    Read,
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
    "Fits",
    "Read",
    "Repair",
    "Unreadable",
    "read_json",
    "read_strict",
]


def read_json(
    text: str,
    *,
    allow: Collection[str] = (),
    fits: Fits | None = None,
    finish: str | None = None,
) -> Read:
    """Read the value that a text holds, repaired where no meaning can be lost.

    JSON is read as it is, with no repairs. Of several values the only one that `fits` takes is
    read, or all of them where it takes their list. `finish` is why the model stopped: after
    `length` or `content_filter` only a text that holds nothing but one complete value is read.
    `allow` names repairs of `LOSSY` that are taken all the same: of double keys and of several
    values the last counts, NaN and missing values are null.

    Raises:
        Unreadable: there is no JSON, or none that can be read without guessing.
        UsageError: `allow` names something that is no lossy repair.
    """
    allowed = _known(allow) if allow else _NONE
    bounded(text)
    value = read_clean(text)
    if finish in CUT_FINISHES and "truncated" not in allowed:
        return _cut(text, value, Search(text, allowed, fits), finish)
    if isinstance(value, str) and fits is not None:
        return Search(text, allowed, fits).within(value) or Read(value)
    return Search(text, allowed, fits).read() if value is NOTHING else Read(value)


def _cut(text: str, value: Any, search: Search, finish: str | None) -> Read:
    """A value that is complete, though the text was cut."""
    try:
        read = search.read() if value is NOTHING else Read(value)
    except Unreadable:
        raise truncation(text, len(text), finish) from None
    if not is_closed(read.value) or any(note.code in _MORE for note in read.repairs):
        raise truncation(text, len(text), finish)
    return read


_MORE = frozenset({"listed", "prose", "two_candidates", "unfit_candidate"})
"""Repairs of texts in which more than one value was to be expected."""
_NONE: frozenset[str] = frozenset()


def _known(allow: Collection[str]) -> frozenset[str]:
    names = frozenset((allow,) if isinstance(allow, str) else allow)
    unknown = names - LOSSY
    if unknown:
        known = ", ".join(sorted(LOSSY))
        raise UsageError(f"allow names lossy repairs ({known}), got {min(unknown, key=str)!r:.100}")
    return names
