"""The reader for broken JSON: finds the one value in a text, repairs it, and lists every repair.

Bounded and linear in time. It never guesses: what could change the meaning (`LOSSY`) is refused
unless it is allowed by name. It does not know what was asked for; the schema judges afterwards.
"""

from __future__ import annotations

from collections.abc import Collection

from callpact.answer.reading_clean import NOTHING, bounded, read_clean, read_strict
from callpact.answer.reading_prose import Search
from callpact.answer.reading_result import (
    LOSSY,
    MAX_DEPTH,
    MAX_MARKS,
    MAX_REPAIRS,
    MAX_TEXT,
    Read,
    Repair,
    Unreadable,
)
from callpact.errors import UsageError

__all__ = [
    "LOSSY",
    "MAX_DEPTH",
    "MAX_MARKS",
    "MAX_REPAIRS",
    "MAX_TEXT",
    "Read",
    "Repair",
    "Unreadable",
    "read_json",
    "read_strict",
]


def read_json(text: str, *, allow: Collection[str] = ()) -> Read:
    """Read the value that a text holds, repaired where no meaning can be lost.

    JSON is read as it is, with no repairs. `allow` names repairs of `LOSSY` that are taken all the
    same: of double keys and of several values the last counts, NaN and missing values are null.

    Raises:
        Unreadable: there is no JSON, or none that can be read without guessing.
        UsageError: `allow` names something that is no lossy repair.
    """
    allowed = _known(allow) if allow else _NONE
    bounded(text)
    value = read_clean(text)
    if value is not NOTHING:
        return Read(value)
    return Search(text, allowed).read()


_NONE: frozenset[str] = frozenset()


def _known(allow: Collection[str]) -> frozenset[str]:
    names = frozenset((allow,) if isinstance(allow, str) else allow)
    unknown = names - LOSSY
    if unknown:
        known = ", ".join(sorted(LOSSY))
        raise UsageError(f"allow names lossy repairs ({known}), got {min(unknown, key=str)!r:.100}")
    return names
