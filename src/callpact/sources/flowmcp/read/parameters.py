"""The parameters of a FlowMCP tool: arguments of the caller, fixed values and secrets.

`read_parameters` reads the blocks of `position` and `z`, from which a request is built, and
`input_schema` makes the one JSON Schema that the caller sees. Both expect data that passed the
rules, and check nothing again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from callpact.schema import is_array, is_object
from callpact.schema.hashing import canonical_number

Lists = Mapping[str, Iterable[Mapping[str, Any]]]
"""Entries of shared lists by the list's name, filtered."""

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_CALL = re.compile(r"([A-Za-z]+)\((.*)\)\Z", re.DOTALL)
_QUOTED = re.compile(r"(['\"])(.*)\1\Z", re.DOTALL)
_REGEX = re.compile(r"/(.*)/([a-z]*)\Z", re.DOTALL)
_TYPES = {
    "string": "string",
    "number": "number",
    "boolean": "boolean",
    "array": "array",
    "object": "object",
    "enum": "string",
}
_SEVERAL = re.compile(
    r"\s*+(?:min|max|length|optional|default)\([^()]*+\)"
    r"(?>(?:\s*+,\s*+(?:min|max|length|optional|default)\([^()]*+\))+)\s*+\Z"
)
_BETWEEN = re.compile(r"(?<=\))\s*+,\s*+")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SERVER = "SERVER_PARAM:"
_USER = "USER_PARAM"


@dataclass(frozen=True, slots=True)
class ValuePart:
    """A piece of a value: text of the file, a value of the caller, or a secret by its name."""

    kind: Literal["text", "user", "server"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An argument of the caller: its name and its schema."""

    name: str
    schema: dict[str, Any]
    is_required: bool
    default: Any | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: its location, its parts, and the arguments that fill them."""

    key: str
    location: str
    parts: tuple[ValuePart, ...]
    inputs: tuple[Input, ...] = ()
    """Empty for a fixed value or a secret, which no caller sees."""

    @property
    def argument(self) -> str | None:
        """The name of the argument that is the whole value; None if the value is made of parts."""
        is_bare = len(self.parts) == 1 and self.parts[0].kind == "user"
        return self.parts[0].text if is_bare else None


def read_parameters(
    declared: Iterable[Mapping[str, Any]], secrets: Iterable[str], lists: Lists
) -> tuple[Parameter, ...]:
    """Every parameter of a tool; `secrets` are the names in `requiredServerParams`."""
    names = frozenset(secrets)
    return tuple(_read(block, names, lists) for block in declared)


def _read(block: Mapping[str, Any], secrets: frozenset[str], lists: Lists) -> Parameter:
    position, z = block["position"], block["z"]
    key, value = position["key"], position["value"]
    parts = read_parts(value, secrets, key)
    location = position.get("location", "")
    names = list(dict.fromkeys(part.text for part in parts if part.kind == "user"))
    if not names:
        return Parameter(key=key, location=location, parts=parts)
    schema, default, is_required = read_meaning(z["primitive"], z.get("options", ()), lists)
    said = block.get("description")
    schema = {"description": said if isinstance(said, str) else _described(key), **schema}
    if names == [key]:
        if default is not UNSET:
            schema["default"] = default
        one = Input(name=key, schema=schema, is_required=is_required, default=default)
        return Parameter(key=key, location=location, parts=parts, inputs=(one,))
    inputs = (_piece(name, schema["type"], is_required=is_required) for name in names)
    return Parameter(key=key, location=location, parts=parts, inputs=tuple(inputs))


def _piece(name: str, kind: str, *, is_required: bool) -> Input:
    """One of several arguments in a value: the limits of `z` apply to the whole value."""
    schema = {"description": _described(name), "type": kind}
    return Input(name=name, schema=schema, is_required=is_required)


def _described(key: str) -> str:
    """A description made of the words of the name, if the file has none."""
    words = _WORDS.sub(" ", key.replace("_", " ").replace("-", " ")).split()
    text = " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words)
    return text[:1].upper() + text[1:]


def read_parts(value: str, secrets: frozenset[str], key: str) -> tuple[ValuePart, ...]:
    """The parts of a value; `key` is the name of the caller's argument.

    A placeholder that is neither `USER_PARAM` nor a declared secret is an argument, too: named
    `key`, or by its own name where a value holds several of them.
    """
    several = len(_undeclared(value, secrets)) > 1
    parts: list[ValuePart] = []
    end = 0
    for match in _PLACEHOLDER.finditer(value):
        if match.start() > end:
            parts.append(ValuePart("text", value[end : match.start()]))
        parts.append(_part(match[1].strip(), secrets, key, several=several))
        end = match.end()
    if end < len(value) or not parts:
        parts.append(ValuePart("text", value[end:]))
    return tuple(parts)


def _undeclared(value: str, secrets: frozenset[str]) -> list[str]:
    """Placeholders in a value, other than `USER_PARAM`, that the caller fills."""
    names = dict.fromkeys(match.strip() for match in _PLACEHOLDER.findall(value))
    known = secrets | {_USER}
    return [name for name in names if name not in known and not name.startswith(_SERVER)]


def _part(name: str, secrets: frozenset[str], key: str, *, several: bool) -> ValuePart:
    if name.startswith(_SERVER):
        return ValuePart("server", name.removeprefix(_SERVER).strip())
    if name in secrets:  # Decision 1: the bare name of a declared secret is its placeholder.
        return ValuePart("server", name)
    return ValuePart("user", name if several and name != _USER else key)


def input_schema(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The closed schema of the caller's arguments, without fixed values and secrets."""
    seen = [given for parameter in parameters for given in parameter.inputs]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {given.name: given.schema for given in seen},
    }
    required = list(dict.fromkeys(given.name for given in seen if given.is_required))
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def argument_aliases(
    declared: Iterable[Mapping[str, Any]], secrets: Iterable[str]
) -> dict[str, str]:
    """Other names of arguments that the file itself uses, in its placeholders and its tests."""
    known = frozenset(secrets)
    names: set[str] = set()
    aliases: dict[str, str] = {}
    for position in (block["position"] for block in declared):
        key, value = position["key"], position["value"]
        if "{{" not in value:
            continue
        found = {part.text for part in read_parts(value, known, key) if part.kind == "user"}
        names |= found
        own = _undeclared(value, known)
        if own and found == {key}:
            aliases[own[0]] = key
    return {alias: name for alias, name in aliases.items() if alias not in names}


# --- z --------------------------------------------------------------------------------------


class Meaning(NamedTuple):
    """The schema of a `z`, its default, and whether a value is required."""

    schema: dict[str, Any]
    default: Any | UnsetType
    is_required: bool


def read_meaning(primitive: str, options: Iterable[str], lists: Lists) -> Meaning:
    """The meaning of a `z`, from its two fields."""
    calls = [_call(one) for text in options for one in split_options(text)]
    named = dict(calls)
    schema = _schema(primitive, calls, lists)
    default = _default(named["default"], schema) if "default" in named else UNSET
    return Meaning(schema, default, "optional" not in named and default is UNSET)


def split_options(text: str) -> list[str]:
    """The options in one text: `optional(), default(5)` are two; patterns are left alone."""
    return _BETWEEN.split(text) if "," in text and _SEVERAL.match(text) else [text]


def _call(text: str) -> tuple[str, str]:
    match = _CALL.match(text.strip())
    return (match[1], match[2]) if match else (text.strip(), "")


def _schema(primitive: str, options: list[tuple[str, str]], lists: Lists) -> dict[str, Any]:
    name, argument = _call(primitive)
    schema: dict[str, Any] = {"type": _TYPES[name]}
    if name == "enum":
        values = enum_values(argument, lists)
        listed = next((text for option, text in options if option == "values"), "")
        schema["enum"] = values or enum_values(listed, lists)
    for option, text in options:
        for keyword, value in _constraint(name, option, text).items():
            _tighten(schema, keyword, value)
    return schema


def _tighten(schema: dict[str, Any], keyword: str, value: Any) -> None:
    """Add a limit; of two limits of one kind the stricter is used."""
    if keyword not in schema:
        schema[keyword] = value
    elif keyword == "pattern":
        schema.setdefault("allOf", []).append({"pattern": value})
    else:
        stricter = max if keyword.startswith("min") else min
        schema[keyword] = stricter(schema[keyword], value)


def enum_values(argument: str, lists: Lists) -> list[str]:
    """The values of `enum(a,b,{{list:field}})`, each once, in order; nulls of a list are left out."""
    values: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(argument):
        values += argument[end : match.start()].split(",")
        name, _, field = match[1].partition(":")
        entries = lists.get(name.strip(), ())
        values += [_text(entry.get(field.strip())) for entry in entries]
        end = match.end()
    values += argument[end:].split(",")
    return list(dict.fromkeys(text for value in values if (text := _unquoted(value.strip()))))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return canonical_number(value) if isinstance(value, int | float) else str(value)


def _constraint(name: str, option: str, text: str) -> dict[str, Any]:
    if option == "regex" and name == "string":
        return {"pattern": regex_pattern(text)}
    number = _number(text)
    if number is None or option not in {"min", "max", "length"}:
        return {}
    least, most = _BOUNDS.get(name, (None, None))
    if name == "number" and option == "length":
        return {}
    bounds = {"min": (least,), "max": (most,), "length": (least, most)}[option]
    value = number if name == "number" else int(number)
    return {keyword: value for keyword in bounds if keyword is not None}


_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}


def regex_pattern(text: str) -> str:
    """The pattern of `regex(…)`; slashes around it are optional, flags are written out."""
    match = _REGEX.match(text.strip())
    pattern, flags = (match[1], match[2]) if match else (text.strip(), "")
    meant = "".join(flag for flag in "ims" if flag in flags)
    return f"(?{meant}:{pattern})" if meant else pattern


def _number(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    if value - value != 0:
        return None
    return int(value) if value.is_integer() else value


def _default(text: str, schema: Mapping[str, Any]) -> Any:
    """The default in the type of the primitive: a number, a boolean, a list; otherwise text."""
    kind = schema["type"]
    plain = _unquoted(text.strip())
    if kind == "number":
        number = _number(plain)
        return plain if number is None else number
    if kind == "boolean":
        return {"true": True, "false": False}.get(plain.lower(), plain)
    if kind in {"array", "object"}:
        return _structure(text.strip(), kind)
    return plain


def _structure(text: str, kind: str) -> Any:
    from json import JSONDecodeError, loads

    try:
        value = loads(text)
    except (JSONDecodeError, RecursionError):
        value = None
    if is_array(value) if kind == "array" else is_object(value):
        return value
    if kind == "object":
        return text
    return [item for part in text.strip("[]").split(",") if (item := _unquoted(part.strip()))]


def _unquoted(text: str) -> str:
    match = _QUOTED.match(text)
    return match[2] if match else text
