"""One type annotation: its JSON Schema, and the conversion from JSON and to JSON.

Pydantic does the work, msgspec where Pydantic refuses. Types that need no conversion are recognised
when they are read, so that calls with plain values use neither. Knows nothing of functions or tools.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import msgspec
import orjson
from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError
from pydantic_core.core_schema import ErrorType

from callpact.errors import InvalidTool, Issue
from callpact.schema import is_array, is_object
from callpact.schema.document import pointer
from callpact.schema.issues.explain import shown
from callpact.schema.targets import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic.json_schema import JsonSchemaWarningKind

Mode = Literal["validation", "serialization"]
Change = Callable[[Any], Any]
Core = dict[str, Any]

REFUSALS = (
    PydanticUserError,
    PydanticUndefinedAnnotation,
    SchemaError,
    re.error,
    NameError,
    TypeError,
    ValueError,
    NotImplementedError,
    RecursionError,
)
"""The exceptions of Pydantic and msgspec for a type that they cannot describe."""
LOAD_ERRORS = (ValidationError, msgspec.ValidationError, OverflowError)
"""The exceptions of `Annotation.load` for JSON that its type does not accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """The JSON form of one annotation: its schema, and the functions that load and dump values."""

    load: Change | None
    """Converts a valid JSON value to the typed value; None if they are the same."""
    dump: Change | None
    """Converts the typed value to JSON data; None if they are the same."""
    adapter: TypeAdapter[Any] | None = None
    hint: Any = None
    """The type for msgspec, if there is no adapter."""


class _Schemas(GenerateJsonSchema):
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012 - as Pydantic has it
        "skipped-choice",
        "non-serializable-default",
    }

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - Pydantic's signature
        """Generate no titles from names: they cost tokens without adding information."""
        return False


def read_annotation(
    hint: Any, metadata: Iterable[Any] = (), mode: Mode = "validation"
) -> Annotation:
    """Read an annotation: its schema, and its conversion from and to JSON.

    Raises:
        InvalidTool: no JSON Schema can be made for it; the text says why.
    """
    metadata = tuple(metadata)
    readers = [_by_pydantic, _by_msgspec]
    if _names_msgspec(hint) or any(isinstance(item, msgspec.Meta) for item in metadata):
        readers.reverse()
    reasons: list[str] = []
    for reader in readers:
        try:
            return reader(hint, metadata, mode)
        except REFUSALS as error:
            reasons.append(str(error).partition("\n")[0].partition(". Set `arbitrary")[0])
    raise InvalidTool(reasons[0])


def annotation_schemas(
    annotations: Sequence[Annotation], mode: Mode = "validation"
) -> tuple[list[Any], dict[str, Any]]:
    """The schema of each annotation, and the definitions that they share."""
    asked: list[tuple[int, Mode, TypeAdapter[Any]]] = [
        (index, mode, annotation.adapter)
        for index, annotation in enumerate(annotations)
        if annotation.adapter is not None
    ]
    schemas: dict[int, Any] = {}
    definitions: dict[str, Any] = {}
    if asked:
        made, shared = TypeAdapter.json_schemas(asked, schema_generator=_Schemas)
        schemas = {index: made[index, mode] for index, _, _ in asked}
        definitions.update(shared.get("$defs", {}))
    others = [i for i, annotation in enumerate(annotations) if annotation.adapter is None]
    if others:
        hints = [annotations[index].hint for index in others]
        prefix = _free_prefix(hints, definitions)
        template = f"#/$defs/{prefix}{{name}}"
        structs, named = msgspec.json.schema_components(hints, ref_template=template)
        schemas.update(zip(others, structs, strict=True))
        definitions.update({prefix + name: schema for name, schema in named.items()})
    return [schemas[index] for index in range(len(annotations))], definitions


def _free_prefix(hints: list[Any], taken: dict[str, Any]) -> str:
    """A prefix that keeps the definitions of structs apart from those of models."""
    names = msgspec.json.schema_components(hints)[1]
    prefix = ""
    while any(prefix + name in taken for name in names):
        prefix += "Struct_"
    return prefix


def holds_secret(schema: Any, definitions: dict[str, Any]) -> bool:
    """True if a value under this schema may hold a secret, which must not be shown."""
    root: dict[str, Any] = {"$defs": definitions}
    seen: set[str] = set()
    stack = [schema]
    while stack:
        node: Any = stack.pop()
        if is_array(node):
            stack.extend(node)
        if not is_object(node):
            continue
        found = node
        if found.get("writeOnly") is True or found.get("format") == "password":
            return True
        stack.extend(found.values())
        reference = found.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            stack.append(resolve(root, reference))
    return False


def _names_msgspec(hint: Any) -> bool:
    """True if a hint contains msgspec's own types or constraints."""
    if isinstance(hint, msgspec.Meta):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return True
    parts = (*get_args(hint), *getattr(cast("Any", hint), "__metadata__", ()))
    return any(_names_msgspec(part) for part in parts)


# --- Pydantic -------------------------------------------------------------------------------


def _by_pydantic(hint: Any, metadata: tuple[Any, ...], mode: Mode) -> Annotation:
    whole: Any = Annotated[(hint, *metadata)] if metadata else hint
    adapter: TypeAdapter[Any] = TypeAdapter(whole)
    core = cast("Core", adapter.core_schema)
    if core["type"] not in _SAME and core["type"] not in _WRONG:
        adapter.json_schema(mode=mode, schema_generator=_Schemas)
    if mode == "serialization":
        dump = None if _is_plain(core) else functools.partial(_dump, adapter)
        return Annotation(load=None, dump=dump, adapter=adapter)
    need = _need(core)
    load = functools.partial(_load, adapter) if need is _EVERYTHING else _MENDERS[need]
    return Annotation(load=load, dump=functools.partial(_dump, adapter), adapter=adapter)


def _load(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Load in JSON mode: only there a strict model accepts a date as text."""
    encoded = _encode(value)
    try:
        return adapter.validate_json(encoded)
    except ValidationError:
        whole = _encode(_whole(value))
        if whole == encoded:
            raise
        return adapter.validate_json(whole)


def _encode(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # An integer of more than 64 bits.
        return json.dumps(value).encode()


def _whole(value: Any) -> Any:
    """The same JSON with 7 for 7.0: in JSON Schema both are integers."""
    if type(value) is float:
        return int(value) if value.is_integer() else value
    if is_object(value):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in cast("list[Any]", value)]
    return value


def _dump(adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
    except PydanticSerializationError as error:
        if str(error).startswith("Error calling function"):  # The author's own serializer failed.
            raise
        return value


# --- types that need no conversion ----------------------------------------------------------

_SAME = frozenset({"any", "str", "bool", "none"})
_WRONG = {"int": float, "float": int}
_CONSTANTS = (str, bool, type(None))
_HARMLESS = frozenset(
    {
        "type",
        "schema",
        "items_schema",
        "keys_schema",
        "values_schema",
        "choices",
        "expected",
        "default",
        "metadata",
        "min_length",
        "max_length",
        "pattern",
        "ge",
        "gt",
        "le",
        "lt",
        "multiple_of",
        "strict",
        "mode",
    }
)
"""Keys of a core schema that JSON Schema expresses as well, so that the gate has checked them."""
_SPOKEN = frozenset({"title", "description", "examples", "deprecated"})
_EVERYTHING = ("everything",)


def _real(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _int(value: Any) -> Any:
    return int(value) if type(value) is float else value


def _in_list(mend: Change, wrong: type, value: Any) -> Any:
    if is_array(value) and wrong in set(map(type, value)):
        return [mend(item) for item in value]
    return cast("Any", value)


def _in_dict(mend: Change, wrong: type, value: Any) -> Any:
    if is_object(value):
        items = value
        if wrong in set(map(type, items.values())):
            return {key: mend(item) for key, item in items.items()}
    return cast("Any", value)


_MENDERS: dict[tuple[Any, ...], Change | None] = {
    (): None,
    (float,): _int,
    (int,): _real,
    ("list", float): functools.partial(_in_list, _int, float),
    ("list", int): functools.partial(_in_list, _real, int),
    ("dict", float): functools.partial(_in_dict, _int, float),
    ("dict", int): functools.partial(_in_dict, _real, int),
}


def _need(core: Core) -> tuple[Any, ...]:
    """A key of `_MENDERS` if Pydantic is not needed, otherwise `_EVERYTHING`."""
    kind = core["type"]
    if not _is_harmless(core):
        return _EVERYTHING
    if kind in _SAME:
        return ()
    if kind in _WRONG:
        return (_WRONG[kind],)
    if kind in {"nullable", "default"}:
        return _need(core["schema"])
    if kind == "literal":
        return _literal_need(core["expected"])
    if kind == "union":
        return _union_need([_need(choice) for choice in _choices(core)])
    if kind == "list":
        return _inside("list", _need(core.get("items_schema", {"type": "any"})))
    if kind == "dict" and _has_text_keys(core):
        return _inside("dict", _need(core.get("values_schema", {"type": "any"})))
    return _EVERYTHING


def _is_harmless(core: Core) -> bool:
    if not _HARMLESS.issuperset(core) or not isinstance(core.get("pattern", ""), str):
        return False
    metadata: dict[str, Any] = core.get("metadata") or {}
    return set(metadata) <= {"pydantic_js_updates"} and _SPOKEN.issuperset(
        metadata.get("pydantic_js_updates") or ()
    )


def _literal_need(expected: list[Any]) -> tuple[Any, ...]:
    kinds = set(map(type, expected))
    if kinds.issubset(_CONSTANTS):
        return ()
    return (float,) if kinds.issubset((*_CONSTANTS, int)) else _EVERYTHING


def _union_need(needs: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    kinds = set(needs)
    if kinds == {()}:
        return ()
    if kinds <= {(), (float,)}:
        return (float,)
    if kinds <= {(), (int,)}:
        return (int,)
    return () if kinds <= {(), (float,), (int,)} else _EVERYTHING


def _inside(container: str, need: tuple[Any, ...]) -> tuple[Any, ...]:
    if not need:
        return ()
    return (container, *need) if len(need) == 1 and need is not _EVERYTHING else _EVERYTHING


def _choices(core: Core) -> list[Core]:
    return [choice[0] if isinstance(choice, tuple) else choice for choice in core["choices"]]


def _has_text_keys(core: Core) -> bool:
    keys = core.get("keys_schema", {"type": "any"})
    return keys["type"] in {"any", "str"} and set(keys) == {"type"}


def _is_plain(core: Core) -> bool:
    """True if a value of this type is JSON data as it is."""
    kind = core["type"]
    if "serialization" in core:
        return False
    if kind in _SAME or kind in _WRONG:
        return True
    if kind in {"nullable", "default"}:
        return _is_plain(core["schema"])
    if kind == "literal":
        return set(map(type, core["expected"])).issubset((*_CONSTANTS, int))
    if kind == "union":
        return all(map(_is_plain, _choices(core)))
    if kind == "list":
        return _is_plain(core.get("items_schema", {"type": "any"}))
    if kind == "dict":
        return _has_text_keys(core) and _is_plain(core.get("values_schema", {"type": "any"}))
    if kind == "typed-dict" and not core.get("computed_fields"):
        return all(map(_is_plain_field, core["fields"].values()))
    return False


def _is_plain_field(field: Core) -> bool:
    changed = {"serialization_alias", "serialization_exclude", "serialization_exclude_if"}
    return not changed & set(field) and _is_plain(field["schema"])


# --- msgspec --------------------------------------------------------------------------------

_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")


def _by_msgspec(hint: Any, metadata: tuple[Any, ...], _mode: Mode) -> Annotation:
    extra = tuple(_as_meta(item) for item in metadata)
    whole: Any = Annotated[(hint, *extra)] if extra else hint
    msgspec.json.schema_components([whole])
    return Annotation(
        load=functools.partial(_convert, whole),
        dump=_to_builtins,
        hint=whole,
    )


def _as_meta(item: Any) -> msgspec.Meta:
    """A constraint of Pydantic's as one of msgspec's."""
    if isinstance(item, msgspec.Meta):
        return item
    rules = {name: getattr(item, name, None) for name in _CONSTRAINTS}
    rules = {name: rule for name, rule in rules.items() if rule is not None}
    if not rules:
        raise TypeError(f"{item!r} cannot be applied to a type of msgspec's")
    return msgspec.Meta(**rules)


def _convert(hint: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, hint, str_keys=True)
    except msgspec.ValidationError:
        whole = _whole(value)
        if _encode(whole) == _encode(value):
            raise
        return msgspec.convert(whole, hint, str_keys=True)


def _to_builtins(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except TypeError:
        return value


# --- messages of refusals -------------------------------------------------------------------

_SHOULD = re.compile(r"[A-Z]\w*(?: \w+)? should ")
_PLACE = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
_AUTHORS = frozenset({"value_error", "assertion_error"})
_STANDARD = frozenset(cast("tuple[str, ...]", get_args(ErrorType))) - _AUTHORS
"""Codes whose messages are Pydantic's own."""


def explain_refusal(error: Exception, name: str, value: Any, *, hidden: bool) -> list[Issue]:
    """The issues of one argument that is valid for its schema, but not for its type."""
    writer = _Writer(name, value, hidden=hidden)
    if isinstance(error, ValidationError):
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        return list(dict.fromkeys(writer.write(e["type"], e["msg"], e["loc"]) for e in errors))
    if isinstance(error, OverflowError):
        return [writer.write("convert", "Input should be a number that a float can hold", ())]
    text, _, place = str(error).partition(" - at `$")
    parts = (int(index) if index else key for key, index in _PLACE.findall(place))
    return [writer.write("convert", text, tuple(parts))]


class _Writer:
    def __init__(self, name: str, value: Any, *, hidden: bool) -> None:
        self._name = name
        self._value = value
        self._hidden = hidden

    def write(self, code: str, text: str, place: tuple[str | int, ...]) -> Issue:
        path, value = self._follow(place)
        if code == "missing":
            path.append(place[-1])
            return Issue(code, f"{_subject(path)} is required", pointer(path))
        if self._hidden and (code not in _STANDARD or not _SHOULD.match(text)):
            # A message of the author may quote the refused value.
            return Issue(code, f"{_subject(path)} must be valid, got a hidden value", pointer(path))
        message = f"{_subject(path)} {_must(code, text)}"
        if self._hidden or isinstance(value, dict | list | tuple):
            return Issue(code, message, pointer(path))
        short = shown(value)
        received = value if len(short) < 80 else short
        return Issue(code, f"{message}, got {short}", pointer(path), received=received)

    def _follow(self, place: tuple[str | int, ...]) -> tuple[list[str | int], Any]:
        """The steps of a location that lead into the value, without names of union members."""
        path: list[str | int] = [self._name]
        value = self._value
        for part in place:
            if is_object(value):
                found = part in value
            else:
                found = is_array(value) and isinstance(part, int) and part < len(value)
            if found:
                value = cast("Any", value)[part]
                path.append(part)
        return path, cast("Any", value)


def _subject(path: list[str | int]) -> str:
    last = path[-1]
    if isinstance(last, str):
        return f"Property '{last}'"
    owner = next(part for part in reversed(path) if isinstance(part, str))
    return f"Item {last} of '{owner}'"


def _must(code: str, text: str) -> str:
    if code in _AUTHORS:
        text = text.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    prefix = _SHOULD.match(text)
    if prefix:
        return f"must {text[prefix.end() :]}"
    return text if text.startswith("must ") else f"must be valid: {text}"
