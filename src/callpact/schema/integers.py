"""Integers given as floats: beyond 2^53 one float represents several integers.

JSON Schema takes every number without a fraction for an integer, and `9007199254740993.0` is read
as the float 9007199254740992.0. Where an integer is declared, a float of that size is refused.
"""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import jsonschema_rs

from callpact.errors import Issue
from callpact.schema.document import pointer
from callpact.schema.json_types import is_array, is_object
from callpact.schema.values import UPPER, is_shallow, places_of

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_EXACT = 2**53 - 1
"""The largest integer up to which each is a float of its own."""

# To draft 4, and to it alone, 7.0 is no integer.
WHOLE: dict[str, Any] = {"$ref": "urn:callpact:integer"}
EXACT: dict[str, Any] = {"anyOf": [{"minimum": -MOST_EXACT, "maximum": MOST_EXACT}, WHOLE]}
"""The schema of an integer: small enough to be exact as a float, or not a float."""
RESOURCES = [
    (
        "urn:callpact:integer",
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "urn:callpact:integer",
            "type": "integer",
        },
    )
]
"""The definitions that `WHOLE` and `EXACT` refer to."""


@functools.cache
def resources() -> jsonschema_rs.Registry:
    """The registry of what forms of a schema may refer to."""
    return jsonschema_rs.Registry(RESOURCES)


def says_integer(schema: dict[str, Any]) -> bool:
    """True if a schema takes integers and no other numbers, by their type."""
    kinds = schema.get("type")
    names = kinds if is_array(kinds) else [kinds]
    return (
        "integer" in names and "number" not in names and not {"const", "enum"}.intersection(schema)
    )


def count_integers(document: Any) -> int:
    """How many places of a schema document say so; properties of such names count, too."""
    count, stack = 0, [document]
    while stack:
        node = stack.pop()
        if is_object(node):
            schema = node
            count += says_integer(schema)
            stack.extend(schema.values())
        elif is_array(node):
            stack.extend(node)
    return count


def inexact_integers(validator: Any, value: Any) -> list[Issue]:
    """The places where a schema wants an integer and a valid value has a float that may be another."""
    if _has_no_vast_float(value):
        return []
    # The value with a fraction added to each vast float: a violation shows that an integer is wanted.
    probe = _with_fractions(value)
    if validator.is_valid(probe):
        return []
    if not is_shallow(value, UPPER):  # To say the place would take long.
        return [_issue(())]
    errors = list(validator.iter_errors(probe))
    found = {tuple(error.instance_path): None for error in _flat(errors) if _minds(error)}
    return [_issue(path) for path in found]


def _issue(path: tuple[str | int, ...]) -> Issue:
    text = "Value holds a float beyond 2^53 where an integer is wanted: it may stand for another"
    hint = "write the integer without a fraction and without an exponent"
    return Issue("type", text, pointer(path), "integer", "number", hint)


def _minds(error: Any) -> bool:
    return error.kind.name == "type" and isinstance(error.instance, Decimal)


def _flat(errors: Iterable[Any]) -> list[Any]:
    """Errors, and those of the branches of unions, which know the place from the root."""
    found: list[Any] = []
    stack = list(errors)
    while stack:
        error = stack.pop()
        found.append(error)
        if error.kind.name in {"anyOf", "oneOf"}:
            stack.extend(inner for branch in error.kind.as_dict()["context"] for inner in branch)
    return found[::-1]


def _with_fractions(value: Any) -> Any:
    """A copy in which every float beyond the exact integers has a fraction."""
    root: list[Any] = [value]
    stack: list[Any] = [root]
    while stack:
        held = stack.pop()
        for place, item in places_of(held):
            if is_object(item):
                held[place] = dict(item)
                stack.append(held[place])
            elif isinstance(item, list | tuple):
                held[place] = list(cast("list[Any]", item))
                stack.append(held[place])
            elif type(item) is float and abs(item) > MOST_EXACT:
                held[place] = Decimal(f"{int(item)}.5")
    return root[0]


def _has_no_vast_float(value: Any) -> bool:
    return _small().is_valid(value)


@functools.cache
def _small() -> Any:
    below = {"$ref": "#"}
    schema = {"allOf": [EXACT], "items": below, "additionalProperties": below}
    return jsonschema_rs.validator_for(schema, offline=True, registry=resources())
