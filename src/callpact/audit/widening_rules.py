"""Single rules of a schema, each widened by no more than one value asks for."""

from __future__ import annotations

from typing import Any, cast

from callpact.audit.places import schemas_in
from callpact.errors import InvalidSchema
from callpact.schema import compile_schema
from callpact.schema.issues import json_type

MAX_NEW_CHOICES = 10
"""Values that are added to an `enum`, or branches to a union; what would need more gets none."""
MAX_NEW_KEYS = 20
"""Properties that are declared anew in one object; beyond, others are allowed altogether."""

LEAST = {"minLength", "minItems", "minProperties"}
MOST = {"maxLength", "maxItems", "maxProperties"}
EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
DEPENDENT = ("dependentRequired", "dependencies")


def type_of(value: Any) -> str:
    """The type of a value; of a whole number the narrower one."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    return "integer" if is_whole else json_type(value)


def described(value: Any) -> dict[str, Any]:
    """The least that a schema can say of a value."""
    return {"type": type_of(value)}


def take_type(rules: dict[str, Any], value: Any) -> None:
    """Allow the type of a value beside those that are allowed."""
    declared: Any = rules.get("type")
    if declared is None:
        return
    is_list = isinstance(declared, list)
    types: list[str] = list(cast("list[str]", declared)) if is_list else [declared]
    new = type_of(value)
    if new in types or (new == "integer" and "number" in types):
        return
    if new == "number" and "integer" in types:
        types[types.index("integer")] = "number"
    else:
        types.append(new)
    rules["type"] = types if is_list or len(types) > 1 else types[0]


def let_miss(rules: dict[str, Any], keyword: str, name: str, instance: dict[str, Any]) -> None:
    """Let a member miss that a rule asks for."""
    if keyword not in DEPENDENT:
        left = [key for key in rules.get("required", ()) if key != name]
        rules["required"] = left
        if not left:
            del rules["required"]
        return
    for key, needed in rules.get(keyword, {}).items():
        if key in instance and isinstance(needed, list) and name in needed:
            rules[keyword][key] = [other for other in cast("list[Any]", needed) if other != name]


def take_bound(rules: dict[str, Any], code: str, value: Any) -> None:
    """Move a bound as far as a value asks for."""
    if code in LEAST or code in MOST:
        size, held = len(value), rules.get(code)
        if held is None:
            return
        if code in LEAST and size == 0:
            del rules[code]
        else:
            rules[code] = min(held, size) if code in LEAST else max(held, size)
        return
    wider = min if code.endswith("inimum") else max
    name = EXCLUSIVE.get(code, code)
    if code in EXCLUSIVE and rules.pop(code, None) is not None:
        # All that was within the exclusive bound is within this one.
        rules[name] = value
    elif name in rules:
        rules[name] = wider(rules[name], value)


def take_count(document: Any, rules: dict[str, Any], value: list[Any], *, formats: bool) -> None:
    """Let an array hold as many items of a kind as it does."""
    count = _matching(document, rules.get("contains"), value, formats=formats)
    least = rules.get("minContains", 1)
    if count is None or (count < least and rules.keys().isdisjoint(_COUNTED)):
        rules.pop("contains", None)
    elif count < least:
        rules["minContains"] = count
    elif count > rules.get("maxContains", count):
        rules["maxContains"] = count


_COUNTED = ("minContains", "maxContains", "unevaluatedItems")
_SHARED = ("$schema", "$defs", "definitions")


def _matching(document: Any, schema: Any, items: list[Any], *, formats: bool) -> int | None:
    """How many items match a part of a schema; None if that hangs on other parts of it."""
    if not isinstance(schema, dict):
        return len(items) if schema is True else 0 if schema is False else None
    root, rules = cast("dict[str, Any]", document), cast("dict[str, Any]", schema)
    references = [str(part.get("$ref", "#/$defs/")) for _, part, _ in schemas_in(rules)]
    if not all(one.startswith(("#/$defs/", "#/definitions/")) for one in references):
        return None
    shared = {keyword: root[keyword] for keyword in _SHARED if keyword in root}
    try:
        accepts = compile_schema({**shared, **rules}, formats=formats).accepts
    except InvalidSchema:
        return None
    return sum(map(accepts, items))


def as_any_of(rules: dict[str, Any]) -> None:
    """Let more than one form match: what fits one only also fits any."""
    branches = rules.pop("oneOf", None)
    if branches is None:
        return
    if "anyOf" in rules:
        rules.setdefault("allOf", []).append({"anyOf": branches})
    else:
        rules["anyOf"] = branches


def described_all(values: list[Any]) -> dict[str, Any]:
    """The least that a schema can say of several values."""
    rules = described(values[0])
    for value in values[1:]:
        take_type(rules, value)
    return rules
