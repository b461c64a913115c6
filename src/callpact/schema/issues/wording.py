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

_PLAIN = re.compile(r"[^,'\"\s](?:[^,'\"\n]*[^,'\"\s])?")
"""Text that needs no quotes in a list, if it reads like no other literal."""
_NAMES = frozenset({"true", "false", "null"})

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


class RuleWords(Struct, frozen=True):
    """The expectation of a rule in words, and the value that came."""

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
    """Text shortened to one line for a message."""
    short = text[:_SHOWN]
    if not short.isprintable():
        short = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in short
        )
    return short if len(text) <= _SHOWN else short + "…"


def shown(value: Any) -> str:
    """A value shortened for a message."""
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
    return f"an {json_type(value)}" if value else f"an empty {json_type(value)}"


def brief(value: Any) -> Any:
    """The received value as data: short scalars only."""
    if isinstance(value, dict | list | tuple):
        return json_type(value)
    return cut(value) if isinstance(value, str) else value


def _plural(count: int, unit: str) -> str:
    if count == 1:
        return unit
    return unit[:-1] + "ies" if unit.endswith("y") else unit + "s"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def rule_of(code: str, details: dict[str, Any], value: Any) -> RuleWords:
    """The expectation of a keyword, from the validator's details."""
    if code == "type":
        return type_rule(details["types"], value)
    if code == "const":
        expected = details["expected_value"]
        words = _literal(expected)
        hint = _quoting_hint([expected], value)
        return RuleWords(f"must be {words}", expected, _distinct([words], value), ASIS, hint)
    if code in BOUNDS:
        limit = details["message" if code.startswith("format") else "limit"]
        return RuleWords(f"must be {BOUNDS[code]} {limit}", limit, shown(value), ASIS)
    if code[:3] in {"min", "max"} and code[3:] in _UNITS:
        limit = int(details["limit"])
        size = "at least" if code.startswith("min") else "at most"
        words = f"must have {size} {limit} {_plural(limit, _UNITS[code[3:]])}"
        return RuleWords(words, limit, str(len(value)), len(value))
    if code == "additionalItems":
        limit = int(details["limit"])
        words = f"must have at most {limit} {_plural(limit, 'item')}"
        return RuleWords(words, limit, str(len(value)), len(value))
    if code == "multipleOf":
        step = details["multiple_of"]
        return RuleWords(f"must be a multiple of {step}", step, shown(value), ASIS)
    if code == "pattern":
        pattern = details.get("pattern", "")
        return RuleWords(f"must match the pattern {cut(pattern)}", pattern, shown(value), ASIS)
    if code == "format":
        return RuleWords(
            f"must be a valid {details['format']}", details["format"], shown(value), ASIS
        )
    if code in _SAID:
        return RuleWords(_SAID[code])
    if code in {"contentEncoding", "contentMediaType"}:
        form = details.get("content_encoding") or details.get("content_media_type")
        return RuleWords(f"must hold {form}", form, shown(value), ASIS)
    return RuleWords(f"breaks the rule '{code}'", None, shown(value), ASIS)


def type_rule(types: list[str], value: Any) -> RuleWords:
    """The rule that a value must be of one of some types."""
    words = _either([_ARTICLES.get(name, f"a {name}") for name in types])
    expected = types[0] if len(types) == 1 else types
    name = json_type(value)
    got = shown(value) if name == "number" and "integer" in types else name
    hint = _type_hint(value, types) if isinstance(value, str) else None
    return RuleWords(f"must be {words}", expected, got, name, hint)


def choice_rule(options: list[Any], value: Any) -> RuleWords:
    """The rule that a value must be one of some literals."""
    if not options:
        return RuleWords(
            "can have no value: the list of allowed ones is empty", [], shown(value), ASIS
        )
    listed = options[:_LISTED]
    is_plain = all(_is_plain(option) for option in listed if isinstance(option, str))
    quoted = [_literal(option) for option in listed]
    words = [
        cut(o) if isinstance(o, str) and is_plain else q
        for o, q in zip(listed, quoted, strict=True)
    ]
    more = ", …" if len(options) > _LISTED else ""
    hint = _quoting_hint(options, value)
    if hint is None and isinstance(value, str):
        hint = nearest(value, options)
    must = f"must be one of {', '.join(words)}{more}"
    return RuleWords(must, listed, _distinct(quoted, value), ASIS, hint)


def _is_plain(text: str) -> bool:
    """True if a text without quotes can be taken for nothing else."""
    reads_as_another = text in _NAMES or _NUMBER.fullmatch(text[:_SHOWN]) is not None
    return not reads_as_another and _PLAIN.fullmatch(text) is not None


def _literal(value: Any) -> str:
    """A value of a schema, in JSON if it is an object or an array."""
    return cut(json.dumps(value)) if isinstance(value, dict | list) else shown(value)


def _distinct(options: list[str], value: Any) -> str:
    """The received value; if it reads like an allowed one, with a note that it is not the same."""
    got = shown(value)
    return f"{got}, which differs where it is not shown" if got in options else got


def _quoting_hint(options: list[Any], value: Any) -> str | None:
    """A remedy where only the type is wrong: 7 for '7', or '7' for 7."""
    if value is None or isinstance(value, bool | int | float):
        is_meant = shown(value) in options[:_SEARCHED]
        return f"send '{shown(value)}', a string" if is_meant else None
    if isinstance(value, str):
        others = (shown(o) for o in options[:_SEARCHED] if not isinstance(o, str | dict | list))
        return f"send {cut(value)} without quotes" if value in others else None
    return None


def nearest(word: str, options: list[Any]) -> str | None:
    """A question after the option that was probably meant, or None."""
    texts = [option for option in options[:_SEARCHED] if isinstance(option, str)]
    folded = {option[:_SHOWN].casefold(): option for option in texts}
    near = difflib.get_close_matches(word[:_SHOWN].casefold(), folded, n=1)
    return f"did you mean '{cut(folded[near[0]])}'?" if near else None


def known_keys(declared: list[str]) -> str:
    """The allowed keys of an object, in words."""
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
