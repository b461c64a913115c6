"""Violations as the validator tells them: the keys that each is about, its rule, and its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from callpact.audit.places import NAMED, place_of
from callpact.audit.widening_rules import DEPENDENT
from callpact.errors import Issue
from callpact.schema.document import pointer

ABOUT_KEYS = ("additionalProperties", "unevaluatedProperties")
"""Rules about keys that no other rule speaks of."""
_ALIKE = 5
_UNLIKE = ("anyOf", "oneOf", "propertyNames")


def code_of(error: Any) -> str:
    """The keyword that a violation is told by."""
    return error.code if isinstance(error, Issue) else str(error.kind.name)


def names_of(error: Any, code: str) -> list[str | None]:
    """The keys that a violation is about; None for the value itself."""
    if code == "required":
        return [str(error.kind.property)]
    if code in ABOUT_KEYS:
        return list(error.kind.as_dict()["unexpected"])
    return [None]


def step(name: str | None) -> str:
    """A key as the end of a place."""
    return "" if name is None else pointer([name])


def rule_of(error: Any, code: str) -> str:
    """The code that an issue of this violation has."""
    keyword = str(error.schema_path[-1]) if error.schema_path else code
    if code == "falseSchema":
        parts = [part for part in error.schema_path if isinstance(part, str)]
        is_named = len(error.schema_path) > 1 and error.schema_path[-2] in NAMED[:-1]
        return str(error.schema_path[-2]) if is_named else parts[-1] if parts else "false"
    is_keyword = code == "contains" or (code == "required" and keyword in DEPENDENT)
    return keyword if is_keyword else code


def signature(errors: Iterable[Any], value: Any) -> tuple[tuple[str, str], ...]:
    """The places and rules of violations, each once; empty where they do not tell the issues."""
    found: dict[tuple[str, str], None] = {}
    for error in errors:
        if isinstance(error, Issue) or error.kind.name in _UNLIKE:
            return ()
        found.update(dict.fromkeys(_keys_of(error, value)))
    return tuple(found)


def thinned(errors: Sequence[Any], value: Any) -> list[Any]:
    """Violations without most of those that others tell, too: of the same rule at the same place."""
    kept: list[Any] = []
    counts: dict[tuple[tuple[str, str], ...], int] = {}
    for error in errors:
        key = () if isinstance(error, Issue) else _keys_of(error, value)
        counts[key] = counts.get(key, 0) + 1
        if not key or counts[key] <= _ALIKE:
            kept.append(error)
    return kept


def _keys_of(error: Any, value: Any) -> tuple[tuple[str, str], ...]:
    code = str(error.kind.name)
    path, rule = place_of(value, error), rule_of(error, code)
    return tuple((path + step(name), rule) for name in names_of(error, code))
