"""Violations in words: what was expected, what came, where, and the likely remedy.

It turns the validator's errors into `Issue`s. Nothing here decides whether a value is valid.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from callpact.errors import Issue
from callpact.schema.compiled import CompiledSchema, compile_schema
from callpact.schema.document import pointer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsonschema_rs import ValidationError

Side = Literal["Value", "Input", "Output"]
MAX_ISSUES = 100
"""Issues reported for one value; the best first."""
_SHOWN = 80
_LISTED = 20
_ASIS: Any = object()

_RANKS = {"required": 0, "type": 1, "enum": 2, "const": 2, "additionalProperties": 4}
_ARTICLES = {"integer": "an integer", "array": "an array", "object": "an object", "null": "null"}
_BOUNDS = {
    "minimum": "≥",
    "maximum": "≤",
    "exclusiveMinimum": ">",
    "exclusiveMaximum": "<",
    "formatMinimum": "≥",
    "formatMaximum": "≤",
}
_SIZES = {
    "minLength": "at least {} {}",
    "maxLength": "at most {} {}",
    "minItems": "at least {} {}",
    "maxItems": "at most {} {}",
    "minProperties": "at least {} {}",
    "maxProperties": "at most {} {}",
}
_NAMED = {
    "multipleOf": ("must be a multiple of {}", "multiple_of"),
    "pattern": ("must match the pattern {}", "pattern"),
    "format": ("must be a valid {}", "format"),
}
_SAID = {
    "uniqueItems": "must not hold the same item twice",
    "contains": "does not hold the items it must",
    "falseSchema": "is not allowed",
    "not": "is of a kind that is excluded",
}
_UNITS = {"Length": "character", "Items": "item", "Properties": "property"}


def check(schema: object, value: Any) -> list[Issue]:
    """Every violation of a JSON Schema by a value, the best first; empty if there is none.

    Raises:
        InvalidSchema: the schema itself cannot be used.
    """
    compiled = compile_schema(schema)
    try:
        if compiled.accepts(value):
            return []
    except ValueError:
        pass
    return explain(compiled, compiled.errors(value))


def explain(
    compiled: CompiledSchema,
    errors: Iterable[ValidationError | Issue],
    side: Side = "Value",
) -> list[Issue]:
    """Put the validator's errors into words."""
    writer = _Writer(compiled, side)
    issues: dict[tuple[str, str, str], Issue] = {}
    for error in errors:
        for issue in writer.write(error):
            issues.setdefault((issue.path, issue.code, issue.message), issue)
    ordered = sorted(issues.values(), key=_rank)
    return ordered[:MAX_ISSUES]


def _rank(issue: Issue) -> tuple[int, int]:
    return (-issue.path.count("/"), _RANKS.get(issue.code, 3))


def json_type(value: Any) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def shown(value: Any) -> str:
    """A value as it may stand in a message: short, in one line."""
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= _SHOWN else f"'{value[:_SHOWN]}…'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return f"{value!r:.{_SHOWN}}"
    return f"an {json_type(value)}"


def _plural(count: int, unit: str) -> str:
    if count == 1:
        return unit
    return unit[:-1] + "ies" if unit.endswith("y") else unit + "s"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


class _Rule(Struct, frozen=True):
    """What a rule asks for, in words, and what came instead."""

    must: str
    expected: Any = None
    got: str | None = None
    received: Any = None
    hint: str | None = None


class _Writer:
    def __init__(self, compiled: CompiledSchema, side: Side) -> None:
        self._document = compiled.document
        self._side = side

    def write(self, error: ValidationError | Issue) -> list[Issue]:
        if isinstance(error, Issue):
            message = error.message
            if message.startswith("Value "):
                message = self._side + message[5:]
            return [Issue(error.code, message, error.path, error.expected)]
        kind = error.kind
        code: str = kind.name
        if code == "required":
            return [self._missing(error)]
        if code in {"additionalProperties", "unevaluatedProperties"}:
            return [self._extra(error, key) for key in kind.as_dict()["unexpected"]]
        if code in {"anyOf", "oneOf"}:
            return self._union(error, code)
        if code == "falseSchema":
            code = next((str(p) for p in reversed(error.schema_path) if isinstance(p, str)), "not")
        return [self._issue(error, code, self._rule(error, error.kind.name))]

    def _issue(self, error: Any, code: str, rule: _Rule) -> Issue:
        got = f", got {rule.got}" if rule.got is not None else ""
        received = error.instance if rule.received is _ASIS else rule.received
        if isinstance(received, dict | list) or (
            isinstance(received, str) and len(received) > _SHOWN
        ):
            received = rule.got
        return Issue(
            code,
            f"{self._subject(error.instance_path)} {rule.must}{got}",
            pointer(error.instance_path),
            rule.expected,
            received,
            rule.hint,
        )

    # -- single rules ------------------------------------------------------------------------

    def _rule(self, error: Any, code: str) -> _Rule:
        details: dict[str, Any] = error.kind.as_dict()
        value = error.instance
        secret = self._is_secret(error.schema_path)
        got = "a hidden value" if secret else shown(value)
        received = None if secret else _ASIS
        if code == "type":
            return _type_rule(details["types"], value, secret=secret)
        if code == "enum":
            return _choice_rule(details["options"], value, secret=secret)
        if code == "const":
            expected = details["expected_value"]
            return _Rule(f"must be {shown(expected)}", expected, got, received)
        if code in _BOUNDS:
            limit = details["message" if code.startswith("format") else "limit"]
            return _Rule(f"must be {_BOUNDS[code]} {limit}", limit, got, received)
        if code in _SIZES:
            limit = int(details["limit"])
            words = _SIZES[code].format(limit, _plural(limit, _UNITS[code[3:]]))
            return _Rule(f"must have {words}", limit, str(len(value)), len(value))
        if code in _NAMED:
            words, member = _NAMED[code]
            return _Rule(words.format(details[member]), details[member], got, received)
        if code == "propertyNames":
            return _Rule(f"has a key that is not allowed: {details['error'].message}")
        if code in _SAID:
            return _Rule(_SAID[code])
        return _Rule(f"breaks the rule '{code}'", None, got, received)

    # -- keys --------------------------------------------------------------------------------

    def _missing(self, error: Any) -> Issue:
        name: str = error.kind.property
        path = [*error.instance_path, name]
        about = self._property(error.schema_path, name).get("description")
        hint = f"{name}: {about}" if isinstance(about, str) and about else None
        return Issue("required", f"{self._subject(path)} is required", pointer(path), hint=hint)

    def _extra(self, error: Any, name: str) -> Issue:
        path = [*error.instance_path, name]
        declared = list(self._node(error.schema_path[:-1]).get("properties") or {})
        near = difflib.get_close_matches(name, declared, n=1)
        if near:
            hint = f"did you mean '{near[0]}'?"
        else:
            hint = (
                f"known: {', '.join(declared[:_LISTED])}"
                if declared
                else "no property is known here"
            )
        code = error.kind.name
        return Issue(code, f"{self._subject(path)} is not known", pointer(path), hint=hint)

    # -- unions ------------------------------------------------------------------------------

    def _union(self, error: Any, code: str) -> list[Issue]:
        path = error.instance_path
        branches: list[list[Any]] = error.kind.as_dict()["context"]
        if not all(branches):
            text = (
                f"{self._subject(path)} matches more than one of the forms that exclude each other"
            )
            return [Issue(code, text, pointer(path))]
        depth = len(path)
        wrong_type = [b for b in branches if b and all(_is_type_at(e, depth) for e in b)]
        if len(wrong_type) == len(branches):
            types = list(dict.fromkeys(t for b in branches for e in b for t in e.kind.types))
            secret = self._is_secret(branches[0][0].schema_path)
            return [self._issue(error, "type", _type_rule(types, error.instance, secret=secret))]
        likely = [b for b in branches if b and b not in wrong_type]
        for at in (depth, depth + 1):
            # Constants tell the branches apart: either the value itself, or one of its properties.
            tags = [next((e for e in b if _is_constant(e, at)), None) for b in likely]
            if all(tags) and len({tuple(e.instance_path) for e in tags if e}) == 1:
                return [self._choice([e for e in tags if e])]
        told = [b for b in likely if not any(_is_constant(e, depth + 1) for e in b)]
        if len(told or likely) == 1:
            return [issue for e in (told or likely)[0] for issue in self.write(e)]
        nearest = min(told or likely, key=len)
        first = sorted((i for e in nearest for i in self.write(e)), key=_rank)[0]
        text = f"{self._subject(path)} matches none of its {len(branches)} allowed forms"
        return [Issue(code, text, pointer(path), hint=f"nearest form: {first.message}")]

    def _choice(self, errors: list[Any]) -> Issue:
        options: list[Any] = []
        for error in errors:
            details = error.kind.as_dict()
            options.extend(details.get("options", [details.get("expected_value")]))
        secret = self._is_secret(errors[0].schema_path)
        return self._issue(
            errors[0], "enum", _choice_rule(options, errors[0].instance, secret=secret)
        )

    # -- places ------------------------------------------------------------------------------

    def _subject(self, path: list[str | int]) -> str:
        if not path:
            return self._side
        last = path[-1]
        if isinstance(last, int):
            owner = next((p for p in reversed(path) if isinstance(p, str)), None)
            name = f"item {last} of '{owner}'" if owner else f"item {last}"
        else:
            name = f"property '{last}'"
        return f"Output {name}" if self._side == "Output" else name[0].upper() + name[1:]

    def _node(self, path: Iterable[str | int]) -> dict[str, Any]:
        node: Any = self._document
        for part in path:
            if isinstance(node, dict):
                node = cast("dict[str, Any]", node).get(str(part))
            elif isinstance(node, list) and isinstance(part, int) and part < len(node):  # pyright: ignore[reportUnknownArgumentType] - JSON
                node = node[part]  # pyright: ignore[reportUnknownVariableType] - JSON
            else:
                return {}
        return cast("dict[str, Any]", node) if isinstance(node, dict) else {}

    def _property(self, schema_path: list[str | int], name: str) -> dict[str, Any]:
        found = self._node([*schema_path[:-1], "properties", name])
        return found or self._node(["properties", name])

    def _is_secret(self, schema_path: list[str | int]) -> bool:
        node = self._node(schema_path[:-1])
        return node.get("writeOnly") is True or node.get("format") == "password"


def _at(error: Any, depth: int) -> bool:
    return len(error.instance_path) == depth


def _is_type_at(error: Any, depth: int) -> bool:
    return error.kind.name == "type" and _at(error, depth)


def _is_constant(error: Any, depth: int) -> bool:
    return error.kind.name in {"const", "enum"} and _at(error, depth)


def _type_rule(types: list[str], value: Any, *, secret: bool) -> _Rule:
    words = _either([_ARTICLES.get(name, f"a {name}") for name in types])
    expected = types[0] if len(types) == 1 else types
    name = json_type(value)
    got = shown(value) if name == "number" and "integer" in types and not secret else name
    hint = _type_hint(value, types) if isinstance(value, str) and not secret else None
    return _Rule(f"must be {words}", expected, got, name, hint)


def _choice_rule(options: list[Any], value: Any, *, secret: bool) -> _Rule:
    words = [option if isinstance(option, str) else shown(option) for option in options[:_LISTED]]
    listed = ", ".join(words) + (", …" if len(options) > _LISTED else "")
    if secret:
        return _Rule(f"must be one of {listed}", options[:_LISTED], "a hidden value")
    hint = _nearest(value, options)
    return _Rule(f"must be one of {listed}", options[:_LISTED], shown(value), _ASIS, hint)


def _nearest(value: Any, options: list[Any]) -> str | None:
    if not isinstance(value, str):
        return None
    texts = [option for option in options if isinstance(option, str)]
    folded = {option.casefold(): option for option in texts}
    near = difflib.get_close_matches(value.casefold()[:_SHOWN], list(folded), n=1)
    return f"did you mean '{folded[near[0]]}'?" if near else None


_NUMBER = re.compile(r"-?(0|[1-9]\d{0,30})(\.\d{1,30})?([eE][+-]?\d{1,3})?")


def _type_hint(value: str, types: list[str]) -> str | None:
    text = value.strip()
    if _NUMBER.fullmatch(text) and {"number", "integer"} & set(types):
        return f"send {text} without quotes"
    if text in {"true", "false"} and "boolean" in types:
        return f"send {text} without quotes"
    if text[:1] in {"[", "{"} and {"array", "object"} & set(types):
        return "send the JSON value itself, not a string that holds it"
    return None
