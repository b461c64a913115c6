"""The shape of an answer: every kind of declaration, converted to one `Shape`.

Pydantic models, types, dataclasses, TypedDicts, structs, JSON Schemas, objects with `parse` and
functions give a parser, a description for the model, and a JSON Schema if possible.
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


class Parser(Protocol[T_co]):
    """An object that turns JSON data into a value, and raises for data that it refuses."""

    def parse(self, value: Any, /) -> T_co:
        """Return the value of JSON data."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """The parser of an answer, its description for the model, and its JSON form."""

    parse: Callable[[Any], T]
    description: str | None = None
    json_schema: dict[str, Any] | None = None
    dump: Callable[[T], Any] | None = None
    label: str = "answer"
    dumped_schema: dict[str, Any] | None = None
    """The JSON Schema of the dumped value, which may differ from the parsed one by aliases."""


def shape_of(
    given: Any, *, description: str | None = None, json_schema: Mapping[str, Any] | None = None
) -> Shape[Any]:
    """Convert a declaration to a shape.

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
    # Pydantic would evaluate a string as the name of a type.
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
    """True for types with a parser of their library; their own `parse` is not called."""
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
        # In JSON mode: a strict model accepts a date as text only there.
        return adapter.validate_json(_encode(value))

    def dump(value: Any) -> Any:
        return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)

    try:
        schema: dict[str, Any] | None = adapter.json_schema()
    except REFUSALS:  # A type with a custom validator may have no schema.
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
        _synchronous(parse, _label(given)),
        described if isinstance(described, str) else _docstring(type(given)),
        None,
        None,
        _label(given),
    )


def _function(given: Callable[[Any], Any]) -> Shape[Any]:
    described = getattr(given, "description", None)
    words = described if isinstance(described, str) else inspect.getdoc(given)
    return Shape(_synchronous(given, _label(given)), words or None, None, None, _label(given))


def _synchronous(parse: Callable[[Any], Any], label: str) -> Callable[[Any], Any]:
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
    """Return the docstring that the author wrote, not a generated one."""
    if not isinstance(given, type) or given.__module__ in {"builtins", "typing"}:
        return None
    words = given.__dict__.get("__doc__")
    if not isinstance(words, str) or not words.strip():
        return None
    if words.startswith(f"{given.__name__}("):  # Generated for dataclasses and named tuples.
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
    """Return the issues of a validator's error; empty for other errors."""
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
