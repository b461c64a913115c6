"""The rules of `z`: primitives, options, their combination, and the values that they allow."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from callpact.errors import InvalidSchema
from callpact.schema import compile_schema
from callpact.schema.issues.wording import cut, shown
from callpact.sources.flowmcp.read.hit import Hit, Hits, got, items, texts
from callpact.sources.flowmcp.read.parameters import (
    read_meaning,
    regex_pattern,
    split_options,
)

PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_CALL = re.compile(r"([A-Za-z]+)\((.*)\)\Z", re.DOTALL)
_REFERENCE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*:\s*([A-Za-z_][A-Za-z0-9_]*)\s*\Z")
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?\Z")
_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_PRIMITIVES = frozenset({"string", "number", "boolean", "enum", "array", "object"})
_KNOWN = "string(), number(), boolean(), enum(A,B), array() or object()"
_APPLIES = {
    "min": frozenset({"string", "number", "array"}),
    "max": frozenset({"string", "number", "array"}),
    "length": frozenset({"string", "array"}),
    "regex": frozenset({"string"}),
    "values": frozenset({"enum"}),
}
_OPTIONS = frozenset({*_APPLIES, "optional", "default"})
MAX_PATTERN = 1_000
"""Characters that the pattern of `regex(…)` in a FlowMCP file may have."""
_REMEMBERED = 300
"""Characters of a `z` up to which it is cached; most files share a few dozen."""


class Z(Struct, frozen=True):
    """The meaning of a `z`, and the breaches in it (paths are relative to `z`)."""

    hits: tuple[Hit, ...] = ()
    schema: dict[str, Any] | None = None
    """None if it is unknown, or depends on shared lists."""
    default: Any | UnsetType = UNSET
    is_required: bool = True
    references: tuple[tuple[str, str], ...] = ()
    """Lists and fields that its enum takes values from."""
    values: frozenset[str] | None = None
    """The values of an enum that are written in the file."""

    def violation(self, value: Any) -> str | None:
        """The reason why a value is not allowed; None if it is, or if that is unknown."""
        return None if self.schema is None else violation(self.schema, value, self.values)


def read_z(primitive: Any, options: Any) -> Z:
    """Read a `z` from its two fields, of any type; cached, as most files share a few hundred."""
    if type(options) is list:
        try:
            return _remembered[primitive, *options]
        except (KeyError, TypeError):
            pass
    if not isinstance(primitive, str):
        words = f"`primitive` must be {_KNOWN}, {got(primitive)}"
        return Z(hits=(Hit("VAL044", "/primitive", words), *_list_hits(options)))
    wrong = tuple(_list_hits(options))
    if wrong:
        return Z(hits=(*_primitive_hits(primitive), *wrong))
    given = tuple(texts(options))
    z = _read(primitive, given)
    if len(primitive) + sum(map(len, given)) + len(given) <= _REMEMBERED:
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        _remembered[primitive, *given] = z
    return z


def with_lists(z: Z, primitive: str, options: list[str], lists: Mapping[str, Any]) -> Z:
    """The same `z` with the values of the lists that it refers to."""
    schema, default, _ = read_meaning(primitive, options, lists)
    values: frozenset[str] = frozenset(schema.get("enum", ()))
    return Z(
        schema=schema,
        default=default,
        is_required=z.is_required,
        references=z.references,
        values=values,
    )


def _list_hits(options: Any) -> Hits:
    if not isinstance(options, list):
        yield Hit("VAL045", "/options", f"`options` must be a list, {got(options)}")
        return
    for index, option in enumerate(items(options)):
        if not isinstance(option, str):
            yield Hit("VAL045", f"/options/{index}", f"an option must be a text, {got(option)}")


def _read(primitive: str, options: tuple[str, ...]) -> Z:
    hits = [*_primitive_hits(primitive), *_option_hits(primitive, options)]
    references = tuple(dict.fromkeys(_references(primitive)))
    names = (option.strip() for _, option in _each(options))
    is_required = not any(name.startswith(("optional", "default")) for name in names)
    known = Z(hits=tuple(hits), is_required=is_required, references=references)
    if references or any(hit.key in _UNREADABLE for hit in hits):
        return known
    schema, default, _ = read_meaning(primitive, options, {})
    values: frozenset[str] | None = frozenset(schema["enum"]) if "enum" in schema else None
    read = Z(
        hits=known.hits, schema=schema, default=default, is_required=is_required, values=values
    )
    hits += default_hits(read)
    return Z(tuple(hits), schema, default, is_required, (), values)


_UNREADABLE = frozenset({"VAL044", "VAL045", "VAL046", "VAL047"})
_MOST_REMEMBERED = 2_048
_remembered: dict[tuple[str, ...], Z] = {}


def default_hits(z: Z) -> Iterator[Hit]:
    """A hit if the default breaks the rest of the `z`."""
    wrong = None if z.default is UNSET else z.violation(z.default)
    if wrong is not None:
        yield Hit("VAL133", "/options", f"the default {shown(z.default)} {wrong}")


# --- the primitive --------------------------------------------------------------------------


def _primitive_hits(primitive: str) -> Hits:
    match = _CALL.match(primitive)
    name, argument = (match[1], match[2]) if match else ("", "")
    if name not in _PRIMITIVES:
        yield Hit("VAL044", "/primitive", f"`primitive` must be {_KNOWN}, {got(primitive)}")
    elif name != "enum" and "{{" in argument:
        yield Hit("VAL047", "/primitive", f"only enum() may refer to a list, {got(primitive)}")
    elif name != "enum" and argument:
        words = f"{name}() must have nothing between its parentheses, {got(primitive)}"
        yield Hit("VAL044", "/primitive", words)
    elif name == "enum":
        yield from _enum_hits(argument)


def _enum_hits(argument: str) -> Hits:
    references = PLACEHOLDER.findall(argument)
    if len(set(references)) < len(references):
        yield Hit("VAL047", "/primitive", "enum() must refer to a field of a list once")
    for inner in references:
        if not _REFERENCE.match(inner):
            words = "a reference to a list must be {{list:field}}, "
            yield Hit("VAL047", "/primitive", words + got("{{" + inner + "}}"))
    values = _written(argument)
    if not argument.strip():
        return  # The options decide, too, whether there are values at all.
    untidy = [value for value in values if value != value.strip() or value[:1] in {"'", '"'}]
    if untidy or "" in values or len(set(values)) < len(values):
        came = shown(untidy[0]) if untidy else "an empty or a repeated value"
        words = f"the values of enum() must be separated by commas alone, got {came}"
        yield Hit("VAL134", "/primitive", words)


def _written(argument: str) -> list[str]:
    """The values between the commas, without references."""
    return [value for value in argument.split(",") if not PLACEHOLDER.fullmatch(value.strip())]


def _references(primitive: str) -> Iterator[tuple[str, str]]:
    for inner in PLACEHOLDER.findall(primitive):
        match = _REFERENCE.match(inner)
        if match is not None:
            yield match[1], match[2]


# --- the options ----------------------------------------------------------------------------


def _option_hits(primitive: str, options: tuple[str, ...]) -> Hits:
    kind = primitive.partition("(")[0]
    bounds: dict[str, float] = {}
    has_values = kind != "enum" or bool(primitive[5:-1].strip(" ,"))
    for index, option in _each(options):
        path = f"/options/{index}"
        match = _CALL.match(option.strip())
        name, argument = (match[1], match[2]) if match else ("", "")
        if name not in _OPTIONS:
            words = "an option must be min(n), max(n), length(n), optional() or default(v)"
            yield Hit("VAL045", path, f"{words}, {got(option)}")
        elif "{{" in argument and name != "regex":
            yield Hit("VAL047", path, f"only enum() may refer to a list, {got(option)}")
        elif kind not in _APPLIES.get(name, _PRIMITIVES) and kind in _PRIMITIVES:
            yield Hit("VAL132", path, f"'{cut(option)}' says nothing about {kind}()")
        elif name == "values":
            yield from _values_hits(argument, path, has_own=has_values)
            has_values = has_values or bool(argument.strip(" ,"))
        else:
            yield from _argument_hits(kind, name, argument, path, bounds)
    if not has_values:
        yield Hit("VAL046", "/primitive", "enum() must have at least one value")
    yield from _order_hits(bounds)
    for index, text in enumerate(options):
        if len(split_options(text)) > 1:
            words = f"an option must be a text of its own, {got(text)}"
            yield Hit("VAL160", f"/options/{index}", words)


def _each(options: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Every option with the index of its text, which may hold several."""
    for index, text in enumerate(options):
        for option in split_options(text):
            yield index, option


def _values_hits(argument: str, path: str, *, has_own: bool) -> Hits:
    if has_own:
        yield Hit("VAL132", path, "values() says nothing beside an enum that has values")
    elif argument.strip(" ,"):
        yield Hit("VAL095", path, "values() is not an option; the values belong into enum(…)")


def _argument_hits(
    kind: str, name: str, argument: str, path: str, bounds: dict[str, float]
) -> Hits:
    if name == "optional" and argument:
        yield Hit("VAL045", path, f"optional() must be empty, {got(argument)}")
    elif name == "regex":
        yield Hit("VAL095", path, "regex() is not an option")
        wrong = _pattern(regex_pattern(argument))
        if isinstance(wrong, str):
            yield Hit("VAL045", path, f"the pattern of regex() cannot be used: {wrong}")
    elif name in {"min", "max", "length"}:
        is_number = kind == "number" or kind not in _PRIMITIVES
        pattern = _NUMBER if is_number else _WHOLE
        if not pattern.match(argument.strip()):
            needed = "a number" if is_number else "a whole number of 0 or more"
            yield Hit("VAL045", path, f"{name}() must have {needed}, {got(argument)}")
            return
        number = float(argument)
        bounds[name] = number if name not in bounds else _tighter(name, bounds[name], number)


def _tighter(name: str, first: float, second: float) -> float:
    return min(first, second) if name == "max" else max(first, second)


def _order_hits(bounds: dict[str, float]) -> Hits:
    least = max((bounds[name] for name in ("min", "length") if name in bounds), default=-math.inf)
    most = min((bounds[name] for name in ("max", "length") if name in bounds), default=math.inf)
    if least > most:
        words = f"no value can be at least {least:g} and at most {most:g}"
        yield Hit("VAL045", "/options", words)


# --- values ---------------------------------------------------------------------------------

_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "number": (
        "a number",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    ),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}


def as_number(text: str) -> float | None:
    """The number of a text, or None."""
    return float(text) if _NUMBER.match(text) else None


def violation(
    schema: Mapping[str, Any], value: Any, choices: frozenset[str] | None = None
) -> str | None:
    """The reason why a value breaks the schema of a `z`; None if it is valid."""
    words, accepts = _TYPES[schema["type"]]
    if not accepts(value):
        return f"must be {words}"
    if "enum" in schema and value not in (schema["enum"] if choices is None else choices):
        return f"must be one of {_listed(schema['enum'])}"
    if schema["type"] == "number":
        return _beyond(schema, value, "minimum", "maximum", "")
    if schema["type"] == "string":
        wrong = _beyond(schema, len(value), "minLength", "maxLength", " characters")
        return wrong or _unmatched(schema.get("pattern"), value)
    if schema["type"] == "array":
        return _beyond(schema, len(value), "minItems", "maxItems", " items")
    return None


def _listed(values: Iterable[str]) -> str:
    first = list(islice(values, 11))
    return ", ".join(map(cut, first[:10])) + (", …" if len(first) > 10 else "")


def _beyond(schema: Mapping[str, Any], size: float, least: str, most: str, unit: str) -> str | None:
    if least in schema and size < schema[least]:
        return f"must be at least {schema[least]}{unit}"
    if most in schema and size > schema[most]:
        return f"must be at most {schema[most]}{unit}"
    return None


def _unmatched(pattern: str | None, value: str) -> str | None:
    if pattern is None:
        return None
    accepts = _pattern(pattern)
    if isinstance(accepts, str) or accepts(value):
        return None
    return f"must match {cut(pattern)}"


def _pattern(pattern: str) -> Callable[[str], bool] | str:
    return _compiled(pattern[: MAX_PATTERN + 1])


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Callable[[str], bool] | str:
    """A function that matches a text, or the reason why the pattern cannot be used."""
    if len(pattern) > MAX_PATTERN:
        return f"it has more than {MAX_PATTERN:,} characters"
    try:
        accepts = compile_schema({"type": "string", "pattern": pattern}).accepts
    except InvalidSchema as error:
        return cut(str(error))

    def matches(value: str) -> bool:
        try:
            return accepts(value)
        except ValueError:  # A lone surrogate is not JSON.
            return False

    return matches
