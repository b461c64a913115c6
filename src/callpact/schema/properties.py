"""Property blocks (seed 004) as JSON Schema: the helpers that write them, and the translation.

A block is plain data, `{name: {"type": "string", …}}`; a helper such as `PropertyString` only sets
the `type`. Every mistake in a block is an `InvalidTool` that names the property. Nothing here
checks the values of a call.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, NoReturn, cast

from msgspec import Struct

from callpact.errors import InvalidSchema, InvalidTool
from callpact.schema.compiled import compile_schema
from callpact.schema.document import pointer
from callpact.schema.issues.explain import check, shown
from callpact.schema.values import is_json

MAX_NESTING = 32
"""Levels of groups and arrays that a block may nest; the block itself is the first."""
MAX_PROPERTIES = 10_000
"""Properties that a block may hold, at all levels together."""

PropertyBlock = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""A record of properties by name, or a function without arguments that returns one."""

_CAMEL = re.compile(r"_([a-z0-9])")
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class PropertyHelper:
    """Writes properties of one kind: `{"type": kind, **options}`.

    Options come as a mapping in the seed's spelling, as keywords (`min_length=3` is `minLength`),
    or both.

    Raises:
        InvalidTool: the options are no mapping, one is given twice, or they name another type.
    """

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"Property{self.kind.capitalize()}"

    def __call__(self, options: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Any]:
        given: Any = {} if options is None else options
        if not isinstance(given, Mapping):
            raise InvalidTool(f"{self!r} takes a mapping of options, got {_named(given)}")
        written: dict[str, Any] = {"type": self.kind, **cast("Mapping[str, Any]", given)}
        if written["type"] != self.kind:
            raise InvalidTool(
                f"{self!r} sets the type '{self.kind}' itself, got {shown(written['type'])}"
            )
        for name, value in named.items():
            option = _CAMEL.sub(lambda found: found[1].upper(), name)
            if option in written:
                raise InvalidTool(f"{self!r} got its option '{option}' twice")
            written[option] = value
        return written


PropertyString = PropertyHelper("string")
PropertyNumber = PropertyHelper("number")
PropertyInteger = PropertyHelper("integer")
PropertyBoolean = PropertyHelper("boolean")
PropertyEnum = PropertyHelper("enum")
PropertyDate = PropertyHelper("date")
PropertyArray = PropertyHelper("array")
PropertyGroup = PropertyHelper("group")
PropertyAsset = PropertyHelper("asset")
PropertyContent = PropertyHelper("content")
PropertyComponent = PropertyHelper("component")


def properties_schema(
    properties: PropertyBlock, *, output: bool = False, strict: bool = False
) -> dict[str, Any]:
    """The JSON Schema of a property block.

    As input it is open, and a property is required only with `required: true` and no default;
    `strict` closes it. As `output` it is closed at every level, and every property is required
    unless it says `required: false`.

    Raises:
        InvalidTool: the block is not one; the message names the property, as a JSON Pointer.
    """
    return _Translator(output=output, closed=output or strict).block(properties, ())


# --- options --------------------------------------------------------------------------------


class _Option(Struct, frozen=True):
    """One option of a kind: the keyword it becomes, and what its value must be."""

    keyword: str
    expected: str
    fits: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_date(value: Any) -> bool:
    if not isinstance(value, str) or not _ISO_DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_pattern(value: Any) -> bool:
    try:
        return _is_text(value) and bool(compile_schema({"type": "string", "pattern": value}))
    except InvalidSchema:
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_examples(value: Any) -> bool:
    return _is_list(value) and is_json(list(value))


def _is_texts(value: Any) -> bool:
    return _is_list(value) and len(value) > 0 and all(isinstance(item, str) for item in value)


def _is_any(_value: Any) -> bool:
    return True


_FORMATS = {"text": None, "email": "email", "url": "uri"}
_ASSETS = ("image", "video", "audio", "model", "model/usdz", "model/glb")


def _is_format(value: Any) -> bool:
    return isinstance(value, str) and value in _FORMATS


def _is_assets(value: Any) -> bool:
    return _is_texts(value) and all(item in _ASSETS for item in value)


def _size(keyword: str) -> _Option:
    return _Option(keyword, "a whole number ≥ 0", _is_count)


_NUMBERS = {
    "min": _Option("minimum", "a number", _is_number),
    "max": _Option("maximum", "a number", _is_number),
}
_CONSTRAINTS: dict[str, dict[str, _Option]] = {
    "string": {
        "minLength": _size("minLength"),
        "maxLength": _size("maxLength"),
        "pattern": _Option("pattern", "a regular expression", _is_pattern),
        "format": _Option("format", f"one of {', '.join(_FORMATS)}", _is_format),
        "enum": _Option("enum", "a list of one or more strings", _is_texts),
    },
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "boolean": {},
    "enum": {},
    "date": {
        "minDate": _Option("formatMinimum", "a date as YYYY-MM-DD", _is_date),
        "maxDate": _Option("formatMaximum", "a date as YYYY-MM-DD", _is_date),
    },
    "array": {
        "minItems": _size("minItems"),
        "maxItems": _size("maxItems"),
        "uniqueItems": _Option("uniqueItems", "true or false", _is_truth),
    },
    "group": {},
    "asset": {},
    "content": {},
}
"""The keywords of a property, flat or under `validation`, by kind."""

_ASSET_TYPES = _Option("", f"a list out of {', '.join(_ASSETS)}", _is_assets)
_OWN = {
    "enum": ("options",),
    "array": ("valueType",),
    "group": ("properties",),
    "asset": ("assetTypes",),
}
_BASE = {
    "title": _Option("title", "text", _is_text),
    "description": _Option("description", "text", _is_text),
    "examples": _Option("examples", "a list of JSON values", _is_examples),
    "required": _Option("required", "true or false", _is_truth),
    "defaultValue": _Option("default", "a value of the property's type", _is_any),
    "inspector": _Option("", "anything: it is for editors only", _is_any),
}
_COPIED = ("title", "description", "examples")
_PAIRS = (
    ("min", "max"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minDate", "maxDate"),
)
_TYPES: dict[str, dict[str, Any]] = {
    "date": {"type": "string", "format": "date"},
    "asset": {"type": "string"},
    "content": {"type": "string"},
}
_CHOICE = ("value", "label", "icon")


# --- translation ----------------------------------------------------------------------------

_Path = tuple[str, ...]


class _Translator:
    def __init__(self, *, output: bool, closed: bool) -> None:
        self._output = output
        self._closed = closed
        self._left = MAX_PROPERTIES

    def block(self, given: Any, path: _Path) -> dict[str, Any]:
        """The object schema of a record of properties."""
        record = self._record(given, path)
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        required: list[str] = []
        for name, prop in record.items():
            if not isinstance(cast("Any", name), str) or not name:
                self._refuse(path, f"a property's name must be text, got {name!r:.40}")
            schema["properties"][name] = self._property(prop, (*path, name))
            if self._is_required(prop):
                required.append(name)
        if required:
            schema["required"] = required
        if self._closed:
            schema["additionalProperties"] = False
        return schema

    def _is_required(self, prop: Mapping[str, Any]) -> bool:
        if self._output:
            return prop.get("required", True)
        return prop.get("required", False) and "defaultValue" not in prop

    def _record(self, given: Any, path: _Path) -> Mapping[str, Any]:
        if callable(given) and not isinstance(given, Mapping):
            given = given() if _takes_nothing(given) else given
        if not isinstance(given, Mapping):
            expected = "expected a mapping of properties, or a function without arguments for one"
            self._refuse(path, f"{expected}, got {_named(given)}")
        return cast("Mapping[str, Any]", given)

    def _property(self, given: Any, path: _Path) -> dict[str, Any]:
        if isinstance(given, PropertyHelper):
            self._refuse(path, f"expected a property, got {given!r} itself; write {given!r}()")
        if not isinstance(given, Mapping):
            self._refuse(path, f"expected a property with a 'type', got {_named(given)}")
        if len(path) > MAX_NESTING:
            self._refuse(path[:4], f"properties may nest {MAX_NESTING} levels, here are more")
        self._left -= 1
        if self._left < 0:
            self._refuse((), f"a block may hold {MAX_PROPERTIES:,} properties, here are more")
        prop = cast("Mapping[str, Any]", given)
        kind = self._kind(prop, path)
        self._know(
            prop, (*_BASE, "type", "validation", *_CONSTRAINTS[kind], *_OWN.get(kind, ())), path
        )
        self._fit(prop, _BASE, path)
        schema = self._own(kind, prop, path)
        for option in _COPIED:
            if option in prop:
                schema[option] = prop[option]
        schema.update(self._constraints(kind, prop, path))
        if "defaultValue" in prop:
            schema["default"] = self._default(schema, prop["defaultValue"], path)
        return schema

    def _kind(self, prop: Mapping[str, Any], path: _Path) -> str:
        kind = prop.get("type")
        if kind == "component" or (kind == "array" and "allowedComponents" in prop):
            self._refuse(
                path, "component slots belong to Interactive Tools, which are not there yet"
            )
        if not isinstance(kind, str) or kind not in _CONSTRAINTS:
            got = "none" if "type" not in prop else shown(kind) if is_json(kind) else _named(kind)
            near = _nearest(kind, _CONSTRAINTS)
            self._refuse(path, f"'type' must be one of {', '.join(_CONSTRAINTS)}, got {got}{near}")
        return kind

    def _own(self, kind: str, prop: Mapping[str, Any], path: _Path) -> dict[str, Any]:
        """The part of the schema that the kind alone decides."""
        if kind == "group":
            self._need(prop, "properties", "a mapping of properties", path)
            return self.block(prop["properties"], path)
        if kind == "array":
            self._need(prop, "valueType", "the property that each item is", path)
            return {"type": "array", "items": self._property(prop["valueType"], (*path, "*"))}
        if kind == "enum":
            self._need(prop, "options", "a list of values", path)
            return self._choices(prop["options"], path)
        if kind == "asset":
            self._fit(prop, {"assetTypes": _ASSET_TYPES}, path)
        return dict(_TYPES.get(kind) or {"type": kind})

    def _choices(self, options: Any, path: _Path) -> dict[str, Any]:
        if not _is_list(options) or not options:
            self._refuse(
                path, f"'options' must be a list of one or more values, got {_named(options)}"
            )
        values = [self._choice(option, path) for option in options]
        numeric = all(_is_number(value) for value in values)
        if not numeric and not _is_texts(values):
            listed = ", ".join(f"{value!r:.40}" for value in values[:20])
            self._refuse(path, f"'options' must be all strings or all numbers, got {listed}")
        double = next((v for i, v in enumerate(values) if v in values[:i]), None)
        if double is not None:
            self._refuse(path, f"'options' must differ, got {shown(double)} twice")
        return {"type": "number" if numeric else "string", "enum": values}

    def _choice(self, option: Any, path: _Path) -> Any:
        if not isinstance(option, Mapping):
            return option
        choice = cast("Mapping[str, Any]", option)
        self._know(choice, _CHOICE, path, " of an entry of 'options'")
        self._need(choice, "value", "the value itself, in every entry of 'options'", path)
        return choice["value"]

    def _constraints(self, kind: str, prop: Mapping[str, Any], path: _Path) -> dict[str, Any]:
        nested: Any = prop.get("validation", {})
        if not isinstance(nested, Mapping):
            self._refuse(path, f"'validation' must be a mapping, got {_named(nested)}")
        rules = _CONSTRAINTS[kind]
        self._know(cast("Mapping[str, Any]", nested), rules, path, " of 'validation'")
        # Both spellings are taken, and the nested one wins (schema-gate 2).
        given: dict[str, Any] = {**{o: prop[o] for o in rules if o in prop}, **nested}
        self._fit(given, rules, path)
        for least, most in _PAIRS:
            if least in given and most in given and given[least] > given[most]:
                bounds = f"got {shown(given[least])} and {shown(given[most])}"
                self._refuse(path, f"'{least}' must not be above '{most}', {bounds}")
        if "format" in given:
            given["format"] = _FORMATS[given["format"]]
        if "enum" in given:
            given["enum"] = list(given["enum"])
        return {rules[o].keyword: value for o, value in given.items() if value is not None}

    def _default(self, schema: dict[str, Any], value: Any, path: _Path) -> Any:
        try:
            issues = check(compile_schema(schema, formats=True), value)
        except InvalidSchema as error:
            self._refuse(path, str(error))
        if issues:
            self._refuse(
                path, f"'defaultValue' breaks the property's own rules: {issues[0].message}"
            )
        return value

    def _know(
        self, given: Mapping[str, Any], known: Iterable[str], path: _Path, of: str = ""
    ) -> None:
        names = list(known)
        for option in given:
            if option not in names:
                listed = ", ".join(name for name in names if name != "type") or "none"
                near = _nearest(option, names) or self._place(option, given, listed)
                self._refuse(path, f"{option!r:.60} is not an option{of or ' of this type'}{near}")

    @staticmethod
    def _place(option: str, given: Mapping[str, Any], listed: str) -> str:
        if given.get("type") == "group" and isinstance(given[option], Mapping):
            return "; a group's properties stand under 'properties'"
        return f"; known: {listed}"

    def _need(self, given: Mapping[str, Any], option: str, what: str, path: _Path) -> None:
        if option not in given:
            self._refuse(path, f"'{option}' is missing: {what}")

    def _fit(self, given: Mapping[str, Any], options: Mapping[str, _Option], path: _Path) -> None:
        for name, option in options.items():
            if name in given and not option.fits(given[name]):
                value = given[name]
                got = shown(value) if isinstance(value, str | int | float) else _named(value)
                near = _nearest(value, _FORMATS) if name == "format" else ""
                self._refuse(path, f"'{name}' must be {option.expected}, got {got}{near}")

    def _refuse(self, path: _Path, message: str) -> NoReturn:
        side = "output" if self._output else "properties"
        where = f" at {pointer(path)}" if path else ""
        raise InvalidTool(f"{side}{where}: {message}")


def _takes_nothing(function: Callable[..., Any]) -> bool:
    if isinstance(function, type) or inspect.iscoroutinefunction(function):
        return False
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _nearest(word: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:60], known, n=1) if isinstance(word, str) else []
    return f"; did you mean '{near[0]}'?" if near else ""


def _named(value: Any) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"an empty {kind}" if isinstance(value, list | tuple | dict) and not value else kind
