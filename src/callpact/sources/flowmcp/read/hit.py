"""`Hit`, the type that every rule yields, and helpers for its path and message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeGuard

from msgspec import UNSET

from callpact.schema.issues.wording import cut, shown


class Hit(NamedTuple):
    """One breach of a rule; `file_check.py` turns it into a `Finding`, once."""

    key: str
    """The key of the rule in the table of codes."""
    path: str
    """JSON Pointer of the value that breaks the rule."""
    message: str
    """The expected and the actual value, as text."""
    meant: tuple[str, Collection[str]] | None = None
    """An unknown name and the known ones, for a suggestion, computed only if it is reported."""
    line: int | None = None
    """Line and column of a breach in code; None if `path` says where it is."""
    column: int | None = None


Hits = Iterator[Hit]

CAMEL = re.compile(r"[a-z][a-zA-Z0-9]*\Z")
PASCAL = re.compile(r"[A-Z][a-zA-Z0-9]*\Z")
KEBAB = re.compile(r"[a-z][a-z0-9-]*\Z")
SEMVER = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}\Z")


def at(path: str, part: str | int) -> str:
    """The JSON Pointer of a member."""
    if isinstance(part, str) and ("~" in part or "/" in part):
        part = part.replace("~", "~0").replace("/", "~1")
    return f"{path}/{part}"


def got(value: Any) -> str:
    """Describe the actual value."""
    if value is UNSET:
        return "it is missing"
    is_blank = isinstance(value, str) and not value.strip()
    return f"got {shown(value)}, which is empty" if is_blank else f"got {shown(value)}"


def is_text(value: Any) -> TypeGuard[str]:
    """True for a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def members(value: Any) -> dict[str, Any]:
    """The members of an object; empty for any other value."""
    # A `cast` would take as long as the rest.
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def items(value: Any) -> list[Any]:
    """The items of a list; empty for any other value."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]: as above


def texts(value: Any) -> list[str]:
    """The texts in a list; empty for any other value."""
    return [item for item in items(value) if isinstance(item, str)]


def unknown_hits(key: str, path: str, found: dict[str, Any], known: frozenset[str]) -> Hits:
    """A hit for each unknown key, with the most similar known one."""
    if found.keys() <= known:
        return
    for name in found:
        if name not in known:
            words = f"'{cut(name)}' is not a field that is known here"
            yield Hit(key, at(path, name), words, (name, known))


def is_same(left: Any, right: Any) -> bool:
    """Strict equality, as in JavaScript: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def is_scalar(value: Any) -> bool:
    """True for a text, a number, a boolean or null."""
    return value is None or isinstance(value, str | int | float)
