"""The shape of an answer: whatever the user declares it with, as one `Shape`.

Pydantic models, types, dataclasses, TypedDicts, structs, JSON Schemas, objects with `parse`,
functions: each gives a parser, words for the model, and a JSON Schema where there can be one.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast, get_origin

import msgspec
import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from callpact.errors import CallError, DeclarationError, Issue, OutputRejected, UsageError
from callpact.schema import check, compile_schema
from callpact.schema.json_text import json_text
from callpact.sources.python.annotation import REFUSALS, annotation_schemas, read_annotation

_MISSING = re.compile(r"Object missing required field `(.+)`")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Parses(Protocol[T_co]):
    """Anything that turns JSON data into a value, and raises for data that it does not take."""

    def parse(self, value: Any, /) -> T_co:
        """The value."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """How an answer is parsed, described to the model, and dumped as JSON."""

    parse: Callable[[Any], T]
    description: str | None = None
    json_schema: dict[str, Any] | None = None
    dump: Callable[[T], Any] | None = None
    label: str = "answer"
    dumped_schema: dict[str, Any] | None = None
    """The JSON Schema of what `dump` gives, where it differs from what is parsed: aliases, …"""


def shape_of(
    given: Any, *, description: str | None = None, json_schema: Mapping[str, Any] | None = None
) -> Shape[Any]:
    """The shape of a declaration.

    Raises:
        UsageError: the declaration is not valid.
        InvalidSchema: a JSON Schema that cannot be compiled.
    """
    shape = _shape(given)
    if description is not None:
        shape = dataclasses.replace(shape, description=description)
    if json_schema is not None:
        _ = compile_schema(dict(json_schema))
        shape = dataclasses.replace(shape, json_schema=dict(json_schema))
    if shape.description is None and shape.json_schema is not None:
        shape = dataclasses.replace(shape, description=json_text(shape.json_schema))
    return shape


def _shape(given: Any) -> Shape[Any]:
    if isinstance(given, Shape):
        return cast("Shape[Any]", given)
    if isinstance(given, TypeAdapter):
        return _typed(cast("TypeAdapter[Any]", given), None)
    if isinstance(given, Mapping):
        return _json_schema(cast("Mapping[str, Any]", given))
    parse = getattr(given, "parse", None)
    if callable(parse) and not _is_typed(given):
        return _parser(given, parse)
    # A text would be evaluated as the name of a type.
    is_type = isinstance(given, type) or get_origin(given) is not None or _is_typed(given)
    if is_type and not isinstance(given, str):
        return _type(given)
    if callable(given):
        return _function(given)
    raise UsageError(
        "an answer's shape is a Pydantic model, a type, a TypeAdapter, a JSON Schema, an object "
        f"with parse(value), or a function; got {given!r:.100}"
    )


def _is_typed(given: Any) -> bool:
    """True for classes whose own `parse`, if they have one, is not ours to call."""
    if not isinstance(given, type):
        return not callable(given) and not hasattr(given, "parse")
    kind = cast("type[Any]", given)
    return (
        issubclass(kind, BaseModel | msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__total__")
    )


def _type(given: Any) -> Shape[Any]:
    try:
        annotation = read_annotation(given)
    except DeclarationError as error:
        raise UsageError(f"{_label(given)} cannot be an answer's shape: {error}") from None
    if annotation.adapter is not None:
        return _typed(annotation.adapter, given)
    (schema,), definitions = annotation_schemas([annotation])
    return Shape(
        lambda value: msgspec.convert(value, given),
        _docstring(given),
        _whole(schema, definitions),
        msgspec.to_builtins,
        _label(given),
    )


def _typed(adapter: TypeAdapter[Any], given: Any) -> Shape[Any]:
    def parse(value: Any) -> Any:
        # As JSON, not as Python: a strict model takes a date as text only there.
        return adapter.validate_json(_encode(value))

    def dump(value: Any) -> Any:
        return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)

    try:
        schema: dict[str, Any] | None = adapter.json_schema()
    except REFUSALS:  # A type that is parsed, and has no schema: a custom validator.
        schema = None
    try:
        dumped = adapter.json_schema(mode="serialization")
    except REFUSALS:
        dumped = schema
    described = None if schema is None else schema.get("description")
    words, label = _docstring(given) or described, _label(given or adapter)
    return Shape(parse, words, schema, dump, label, dumped)


def _json_schema(given: Mapping[str, Any]) -> Shape[Any]:
    document = dict(given)
    compiled = compile_schema(document)

    def parse(value: Any) -> Any:
        if not compiled.accepts(value):
            raise OutputRejected(lambda: check(compiled, value))
        return value

    described = document.get("description")
    words = described if isinstance(described, str) else None
    return Shape(parse, words, document, None, str(document.get("title") or "answer"))


def _parser(given: Any, parse: Callable[[Any], Any]) -> Shape[Any]:
    described = getattr(given, "description", None)
    return Shape(
        _awaits_nothing(parse, _label(given)),
        described if isinstance(described, str) else _docstring(type(given)),
        None,
        None,
        _label(given),
    )


def _function(given: Callable[[Any], Any]) -> Shape[Any]:
    described = getattr(given, "description", None)
    words = described if isinstance(described, str) else inspect.getdoc(given)
    return Shape(_awaits_nothing(given, _label(given)), words or None, None, None, _label(given))


def _awaits_nothing(parse: Callable[[Any], Any], label: str) -> Callable[[Any], Any]:
    refusal = f"the parser {label} is asynchronous; a parser of answers is a plain function"
    if inspect.iscoroutinefunction(parse):
        raise UsageError(refusal)

    def parse_now(value: Any) -> Any:
        parsed = parse(value)
        if inspect.isawaitable(parsed):
            if inspect.iscoroutine(parsed):
                parsed.close()
            raise UsageError(refusal)
        return parsed

    return parse_now


def _docstring(given: Any) -> str | None:
    """The author's own words; not those that Python or a library put there."""
    if not isinstance(given, type) or given.__module__ in {"builtins", "typing"}:
        return None
    words = given.__dict__.get("__doc__")
    if not isinstance(words, str) or not words.strip():
        return None
    if words.startswith(f"{given.__name__}("):  # As dataclasses and named tuples write it.
        return None
    return inspect.cleandoc(words)


def _label(given: Any) -> str:
    return getattr(given, "__name__", None) or type(given).__name__


def _whole(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "$defs": definitions} if definitions else dict(schema)


def _encode(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # An integer of more than 64 bits, or a lone surrogate.
        return json.dumps(value).encode()


def issues_of(error: BaseException) -> tuple[Issue, ...]:
    """The issues that a validator's error names; empty if it names none."""
    if isinstance(error, CallError):
        return error.issues
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return tuple(
            Issue(each["type"], each["msg"], "".join(f"/{_escaped(part)}" for part in each["loc"]))
            for each in found[:100]
        )
    if isinstance(error, msgspec.ValidationError):
        text, _, place = str(error).partition(" - at `$")
        path = place.rstrip("`").replace("[", ".").replace("]", "").replace(".", "/")
        if missing := _MISSING.match(text):
            return (Issue("required", text, f"{path}/{_escaped(missing[1])}"),)
        return (Issue("type", text, path),)
    return ()


def _escaped(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
