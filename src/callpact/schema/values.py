"""JSON values: whether something is one, where it is not, how large and how deep it is."""

from __future__ import annotations

import functools
import math
import threading
from enum import Enum
from typing import Any, cast

import jsonschema_rs
import orjson
from msgspec import Struct

from callpact.errors import Issue
from callpact.schema.bounds import make_room, schema_limits
from callpact.schema.document import pointer

UNROLLED = 128
"""Levels that a form of a schema visits by itself; what lies deeper is looked at apart."""
UPPER = 100
"""Levels whose violations are reported one by one; those below are reported as one."""
DEEPER = "callpact.deeper"
_LEVEL = "callpact.json.{}"
_BYTES_PER_PART = 20
_MAX_PLACES = 10
_MAX_BITS = 13_000
ANY_JSON: dict[str, Any] = {"$ref": "#/$defs/" + _LEVEL.format(0)}
_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}


class Change(Struct, frozen=True, omit_defaults=True):
    """One change that fitting made to a value: its place, the action, and the value before."""

    path: str
    action: str
    """converted | filled | replaced | stripped | padded | truncated"""
    before: Any = None
    invented: bool = False
    """True if the new value was neither converted from the old one nor declared as a default."""


def any_json(levels: int = UNROLLED) -> dict[str, Any]:
    """A schema that accepts JSON and visits all of it, to a depth or as deep as the limit says."""
    unrolled: dict[str, Any] = {
        _LEVEL.format(level): {
            "anyOf": [
                _SCALAR,
                {
                    "type": ["object", "array"],
                    "additionalProperties": {"$ref": "#/$defs/" + _LEVEL.format(level + 1)},
                    "items": {"$ref": "#/$defs/" + _LEVEL.format(level + 1)},
                },
            ]
        }
        for level in range(levels)
    }
    below = {"anyOf": [_SCALAR, {DEEPER: True}]} if levels == UNROLLED else _SCALAR
    unrolled[_LEVEL.format(levels)] = below
    return {"$defs": unrolled, **ANY_JSON}


class Deeper:
    """The keyword at the end of the unrolled levels: the rest of a value, in the same way again."""

    def __init__(self, _parent: dict[str, Any], _value: Any, _path: list[str | int]) -> None:
        pass

    def validate(self, instance: Any) -> None:
        if not _is_json_below(instance):
            raise ValueError(instance)


_below = threading.local()


def _is_json_below(value: Any) -> bool:
    """True for the JSON that lies `UNROLLED` levels deeper than what is looked at now."""
    above: int = getattr(_below, "levels", 0) + UNROLLED
    left = schema_limits().value_depth - above
    if left <= 0:
        return False
    make_room()
    _below.levels = above
    try:
        return _judge(min(left, UNROLLED)).is_valid(value)
    except ValueError:
        return False
    finally:
        _below.levels = above - UNROLLED


@functools.cache
def _judge(levels: int) -> Any:
    keywords: dict[str, Any] = {DEEPER: Deeper}
    return jsonschema_rs.validator_for(any_json(levels), offline=True, keywords=keywords)


def is_shallow(value: Any, levels: int) -> bool:
    """True for JSON within a number of levels."""
    try:
        return _judge(levels).is_valid(value)
    except ValueError:
        return False


def is_json(value: Any) -> bool:
    """True if a value is plain JSON that is not nested deeper than the limit."""
    try:
        return _judge(min(UNROLLED, schema_limits().value_depth)).is_valid(value)
    except ValueError:
        return False


def not_json(value: Any) -> list[Issue]:
    """The first few places where a value is not JSON, as issues."""
    return _strange_places(value) or [Issue("json", "Value is not JSON", "", "JSON")]


def vast_numbers(value: Any) -> list[Issue]:
    """Where a value holds a number of too many digits, or something else that is not JSON."""
    return [issue for issue in _strange_places(value) if issue.code == "json"]


def _strange_places(value: Any) -> list[Issue]:
    found: list[Issue] = []
    most = schema_limits().value_depth
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while stack and len(found) < _MAX_PLACES:
        item, path = stack.pop()
        if isinstance(item, dict | list | tuple) and len(path) >= most:
            message = f"Value is nested deeper than {most:,} levels"
            found.append(Issue("depth", message, pointer(path[:4]), most))
        elif isinstance(item, dict):
            for key, child in cast("dict[Any, Any]", item).items():
                text = _strange_key(key)
                if text is None:
                    stack.append((child, (*path, key)))
                else:
                    found.append(Issue("json", f"Value holds {text}", pointer(path), "JSON"))
        elif isinstance(item, list | tuple):
            stack.extend((child, (*path, i)) for i, child in enumerate(cast("list[Any]", item)))
        elif (text := _strange_scalar(item)) is not None:
            found.append(Issue("json", f"Value holds {text}", pointer(path), "JSON"))
    return found[:_MAX_PLACES]


def _strange_key(key: Any) -> str | None:
    if type(key) is str or (isinstance(key, Enum) and isinstance(key, str)):
        return _strange_text(key)
    return f"a key that is not a string: {type(key).__name__}"


def _strange_scalar(item: Any) -> str | None:
    if isinstance(item, Enum):
        item = item.value
    kind = type(item)  # pyright: ignore[reportUnknownVariableType] - JSON
    if item is None or kind is bool:
        return None
    if kind is str:
        return _strange_text(item)
    if kind is int:
        vast = item.bit_length() > _MAX_BITS
        return "a number of too many digits" if vast else None
    if kind is float:
        return None if math.isfinite(item) else f"{item!r}, which is not a JSON number"
    return f"{kind.__name__}, which is not JSON"


def _strange_text(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "text with a lone surrogate, which is not JSON"
    return None


def size_of(value: Any) -> int:
    """The approximate length of a value as JSON text; orjson is ten times faster than a walk."""
    try:
        return len(orjson.dumps(value))
    except TypeError:  # Integers that orjson does not write, or too many levels for it.
        return measure(value)[0] * _BYTES_PER_PART


def measure(value: Any) -> tuple[int, int]:
    """How many parts a value has, and how many levels."""
    size, depth, layer = 0, 0, [value]
    while layer:
        depth += 1
        size += len(layer)
        below: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                below.extend(cast("dict[str, Any]", item).values())
            elif isinstance(item, list | tuple):
                below.extend(cast("list[Any]", item))
        layer = below
    return size, depth


def places_of(held: Any) -> list[tuple[Any, Any]]:
    """The keys or indexes of an object or a list, each with its value."""
    if isinstance(held, dict):
        return list(cast("dict[Any, Any]", held).items())
    return list(enumerate(cast("list[Any]", held)))


def cut_below(value: Any, levels: int) -> Any:
    """A copy with empty objects and lists below a number of levels."""
    root: list[Any] = [value]
    layer: list[Any] = [root]
    for level in range(levels + 1):
        below: list[Any] = []
        for held in layer:
            for place, item in places_of(held):
                if isinstance(item, dict | list | tuple):
                    kind = dict if isinstance(item, dict) else list
                    held[place] = kind(cast("Any", item)) if level < levels else kind()
                    below.append(held[place])
        layer = below
    return root[0]


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(left, Enum):
        left = left.value
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        a, b = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(left, list | tuple) and isinstance(right, list):
        c, d = cast("list[Any]", left), cast("list[Any]", right)
        return len(c) == len(d) and all(map(same, c, d))
    alike = isinstance(left, type(right)) or _are_numbers(left, right)  # pyright: ignore[reportUnknownArgumentType] - JSON
    return alike and left == right


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)
