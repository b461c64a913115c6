"""Portable JSON Schema: schemas that clients accept, and that no validator applies more strictly.

Pure functions over JSON Schema as plain data. Clients warn of schemas without assertions, and the
validators of other languages differ in a few keywords: an output that is valid here could be
invalid there. Published schemas avoid these keywords.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from callpact.schema import is_array, is_object
from callpact.schema.drafts import draft_of, with_known_draft
from callpact.schema.targets import DEFINITIONS, NAMED_SCHEMAS

_LISTED_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_REST = frozenset(
    {"additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems"}
)
"""Keywords for which clients accept `true` and `false` as well as schemas."""
_ONE_SCHEMA = _REST.union(
    ("items", "contains", "not", "if", "then", "else", "propertyNames", "contentSchema")
)
_JUDGING = frozenset(
    {
        *(_ONE_SCHEMA | _LISTED_SCHEMAS | NAMED_SCHEMAS) - {*DEFINITIONS, "if", "then", "else"},
        *("type", "enum", "const", "$ref", "$dynamicRef", "$recursiveRef"),
        *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format", "contentMediaType", "contentEncoding"),
        *("minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "required", "dependentRequired"),
    }
)
"""Keywords that assert something; clients warn of a schema without any of them."""
VACUOUS: dict[str, Any] = {"minLength": 0}
"""The shortest keyword that every value satisfies, for a schema that asserts nothing."""
_ITEM: dict[str, Any] = {"minProperties": 0}
"""Any item of a list; to name the types of JSON would need a list once more."""
_ANY: dict[str, Any] = {
    "anyOf": [
        *({"type": kind} for kind in ("string", "number", "boolean", "object")),
        {"type": "array", "items": _ITEM},
        {"type": "null"},
    ]
}
"""A schema of any JSON value in a form that models understand."""


def inside(schema: dict[str, Any], each: Callable[[Any, str], Any]) -> dict[str, Any]:
    """Apply a function to each direct subschema and its keyword; returns the new schema."""
    done = dict(schema)
    for key, value in schema.items():
        if key in NAMED_SCHEMAS and is_object(value):
            done[key] = {name: each(part, key) for name, part in value.items()}
        elif is_array(value) and (key in _LISTED_SCHEMAS or key == "items"):
            done[key] = [each(part, key) for part in value]
        elif key in _ONE_SCHEMA:
            done[key] = each(value, key)
    return done


def with_plain_draft(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its draft named so that clients know it; it is left out if nobody knows it."""
    known = with_known_draft(schema)
    return known | {"$schema": draft_of(known).uri} if "$schema" in known else known


# --- what says nothing ----------------------------------------------------------------------


def explicit(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace empty and boolean subschemas by explicit ones: clients warn of `{}`, and refuse `true`.

    Lists without a schema of their items get one that accepts everything: strict model providers
    refuse a tool without it.
    """
    return _explicit(schema, "")


def _explicit(node: Any, keyword: str) -> Any:
    if keyword in _REST and (isinstance(node, bool) or node == {}):
        return node is not False
    if isinstance(node, bool):
        node = {} if node else {"not": {}}
    if not is_object(node):
        return node
    schema = inside(node, _explicit)
    if _lacks_items(schema):
        schema["items"] = _ITEM
    is_pair = "if" in schema and not schema.keys().isdisjoint(("then", "else"))
    is_judging = is_pair or not _JUDGING.isdisjoint(schema)
    return schema if is_judging or keyword == "not" else schema | _ANY


def _lacks_items(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    is_list = kinds == "array" or (is_array(kinds) and "array" in kinds)
    return is_list and schema.keys().isdisjoint(("items", "prefixItems", "unevaluatedItems"))


def bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """Add an assertion that every value satisfies to a schema without any."""
    return schema | VACUOUS if _JUDGING.isdisjoint(schema) else schema


# --- differences between validators ---------------------------------------------------------

_PLAIN = re.compile(
    r"""(?:
        (?: [^\\\[\](){}*+?]                             # a character, a dot, an end, a bar
          | \\ (?: [dwtnrfv^$\\.*+?()\[\]{}|/] | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} )
          | \( (?: \?[:=] | (?!\?) ) | \)
          | \[ (?!\^) (?: (?!&&|--|~~|\|\|) (?: [^\\\[\]] | \\[dwtnrfv^$\\.*+?()\[\]{}|/-] ) )+ \]
          | \[   \^   (?: (?!&&|--|~~|\|\|) (?: [^\\\[\]] | \\[tnrfv^$\\.*+?()\[\]{}|/-] ) )+ \]
        )
        (?: (?: [*+?] | \{[0-9]+(?:,[0-9]*)?\} ) \?? )?
    )*""",
    re.VERBOSE,
)
"""Patterns that match elsewhere at least what they match here. `\\d` and `\\w` match more in Python,
and their opposites less; `\\s` differs everywhere; other syntax is not portable."""
_WIDER = re.compile(r"\\[dw]")
_INVERTING = frozenset({"not", "if", "contains"})
"""Keywords under which a weaker assertion may make the whole schema stricter."""
_LEFT_OUT = _INVERTING.union(
    ("then", "else", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems")
)


def agreed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that accepts, in every validator, all that the given one accepts.

    It is the given one, unless that has a pattern that is not portable, or a `multipleOf` such as
    0.01 that has no exact float. These are then described in words, and inverting keywords such as
    `not` are removed.
    """
    return loosened(schema) if _is_odd(schema) else schema


def loosened(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove assertions that differ between validators, and inverting keywords.

    Without inverting keywords, each removed assertion can only make the schema accept more.
    """
    return _agreed(schema, "")


def _is_odd(root: dict[str, Any]) -> bool:
    pending: list[Any] = [root]

    def look(part: Any, _: str) -> None:
        pending.append(part)

    while pending:
        schema = pending.pop()
        if is_object(schema):
            if _odd(schema) or _odd_names(schema):
                return True
            inside(schema, look)
    return False


def _odd(schema: dict[str, Any]) -> list[str]:
    """Return the assertions of a schema that differ between validators."""
    step, pattern = schema.get("multipleOf"), schema.get("pattern")
    is_about = isinstance(step, float) and Fraction(str(step)) != Fraction(step)
    is_foreign = isinstance(pattern, str) and not _PLAIN.fullmatch(pattern)
    return ["multipleOf"] * is_about + ["pattern"] * is_foreign


def _odd_names(schema: dict[str, Any]) -> list[str]:
    names = schema.get("patternProperties")
    if not is_object(names):
        return []
    # A pattern that matches more names applies its schema to more of them.
    return [name for name in names if not _PLAIN.fullmatch(name) or _WIDER.search(name)]


def _agreed(schema: Any, _: str) -> Any:
    if not is_object(schema):
        return schema
    odd, odd_names = _odd(schema), _odd_names(schema)
    kept = {key: schema[key] for key in schema if key not in _LEFT_OUT and key not in odd}
    if "oneOf" in kept:
        # Looser branches may overlap.
        branches = {"anyOf": kept.pop("oneOf")}
        kept |= {"allOf": [*kept.get("allOf", ()), branches]} if "anyOf" in kept else branches
    if odd_names:
        named = kept.pop("patternProperties")
        kept["patternProperties"] = {name: named[name] for name in named if name not in odd_names}
        kept.pop("additionalProperties", None)
    if odd:
        declared = ", ".join(f"{key} {schema[key]}" for key in odd)
        kept["description"] = f"{schema.get('description', '')} (declared: {declared})".strip()
    return inside(kept, _agreed)
