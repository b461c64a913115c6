"""The words of issues: how a value, a type, a limit or a choice is written in a message.

Pure text: nothing here knows the validator, a path or a secret.
"""

from __future__ import annotations

import difflib
import json
import re
from enum import Enum
from typing import Any

from msgspec import Struct

ASIS: Any = object()
"""`received` is the value itself."""
HIDDEN = "a hidden value"
_SHOWN = 80
_LISTED = 20
_SEARCHED = 500
_MAX_BITS = 10_000

BOUNDS = {
    "minimum": "≥",
    "maximum": "≤",
    "exclusiveMinimum": ">",
    "exclusiveMaximum": "<",
    "formatMinimum": "≥",
    "formatMaximum": "≤",
}
_ARTICLES = {"integer": "an integer", "array": "an array", "object": "an object", "null": "null"}
_UNITS = {"Length": "character", "Items": "item", "Properties": "property"}
_SAID = {
    "uniqueItems": "must not hold the same item twice",
    "contains": "does not hold an item that it must hold",
    "minContains": "holds too few of the items that it must hold",
    "maxContains": "holds too many items of one kind",
    "unevaluatedItems": "holds items that are not known",
    "not": "is of a kind that is excluded",
}


class Rule(Struct, frozen=True):
    """What a rule asks for, in words, and what came instead."""

    must: str
    expected: Any = None
    got: str | None = None
    received: Any = None
    hint: str | None = None


def json_type(value: Any) -> str:
    """The JSON name of a value's type."""
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def cut(text: str) -> str:
    """Text as it may stand in a message: short, in one line."""
    short = text[:_SHOWN]
    if not short.isprintable():
        short = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in short
        )
    return short if len(text) <= _SHOWN else short + "…"


def shown(value: Any) -> str:
    """A value as it may stand in a message."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return f"'{cut(value)}'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return "a number of very many digits"
    if isinstance(value, int | float):
        return cut(repr(value))
    return f"an {json_type(value)}"


def brief(value: Any) -> Any:
    """What came, as data: short scalars only."""
    if isinstance(value, dict | list | tuple):
        return json_type(value)
    return cut(value) if isinstance(value, str) else value


def _plural(count: int, unit: str) -> str:
    if count == 1:
        return unit
    return unit[:-1] + "ies" if unit.endswith("y") else unit + "s"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def rule_of(code: str, details: dict[str, Any], value: Any) -> Rule:
    """What a keyword asks of a value, from the validator's details."""
    if code == "type":
        return type_rule(details["types"], value)
    if code == "const":
        expected = details["expected_value"]
        words = cut(json.dumps(expected)) if isinstance(expected, dict | list) else shown(expected)
        return Rule(f"must be {words}", expected, shown(value), ASIS)
    if code in BOUNDS:
        limit = details["message" if code.startswith("format") else "limit"]
        return Rule(f"must be {BOUNDS[code]} {limit}", limit, shown(value), ASIS)
    if code[:3] in {"min", "max"} and code[3:] in _UNITS:
        limit = int(details["limit"])
        size = "at least" if code.startswith("min") else "at most"
        words = f"must have {size} {limit} {_plural(limit, _UNITS[code[3:]])}"
        return Rule(words, limit, str(len(value)), len(value))
    if code == "additionalItems":
        limit = int(details["limit"])
        words = f"must have at most {limit} {_plural(limit, 'item')}"
        return Rule(words, limit, str(len(value)), len(value))
    if code == "multipleOf":
        step = details["multiple_of"]
        return Rule(f"must be a multiple of {step}", step, shown(value), ASIS)
    if code == "pattern":
        pattern = details.get("pattern", "")
        return Rule(f"must match the pattern {cut(pattern)}", pattern, shown(value), ASIS)
    if code == "format":
        return Rule(f"must be a valid {details['format']}", details["format"], shown(value), ASIS)
    if code in _SAID:
        return Rule(_SAID[code])
    if code in {"contentEncoding", "contentMediaType"}:
        form = details.get("content_encoding") or details.get("content_media_type")
        return Rule(f"must hold {form}", form, shown(value), ASIS)
    return Rule(f"breaks the rule '{code}'", None, shown(value), ASIS)


def type_rule(types: list[str], value: Any) -> Rule:
    """The rule that a value must be of one of some types."""
    words = _either([_ARTICLES.get(name, f"a {name}") for name in types])
    expected = types[0] if len(types) == 1 else types
    name = json_type(value)
    got = shown(value) if name == "number" and "integer" in types else name
    hint = _type_hint(value, types) if isinstance(value, str) else None
    return Rule(f"must be {words}", expected, got, name, hint)


def choice_rule(options: list[Any], value: Any) -> Rule:
    """The rule that a value must be one of some literals."""
    words = [
        cut(option) if isinstance(option, str) else shown(option) for option in options[:_LISTED]
    ]
    listed = ", ".join(words) + (", …" if len(options) > _LISTED else "")
    hint = nearest(value, options) if isinstance(value, str) else None
    return Rule(f"must be one of {listed}", options[:_LISTED], shown(value), ASIS, hint)


def nearest(word: str, options: list[Any]) -> str | None:
    """A question after the option that was probably meant, or None."""
    texts = [option for option in options[:_SEARCHED] if isinstance(option, str)]
    folded = {option[:_SHOWN].casefold(): option for option in texts}
    near = difflib.get_close_matches(word[:_SHOWN].casefold(), folded, n=1)
    return f"did you mean '{cut(folded[near[0]])}'?" if near else None


def known_keys(declared: list[str]) -> str:
    """The keys that may stand in an object, in words."""
    if not declared:
        return "no property is known here"
    more = ", …" if len(declared) > _LISTED else ""
    return f"known: {', '.join(map(cut, declared[:_LISTED]))}{more}"


_NUMBER = re.compile(r"-?(0|[1-9]\d{0,30})(\.\d{1,30})?([eE][+-]?\d{1,3})?")


def _type_hint(value: str, types: list[str]) -> str | None:
    text = value[:_SHOWN].strip()
    if _NUMBER.fullmatch(text) and {"number", "integer"} & set(types):
        return f"send {text} without quotes"
    if text in {"true", "false"} and "boolean" in types:
        return f"send {text} without quotes"
    if text[:1] in {"[", "{"} and {"array", "object"} & set(types):
        return "send the JSON value itself, not a string that holds it"
    return None
