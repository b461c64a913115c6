"""A function's signature: parameters, their schema, the result, the text of its docstring.

It reads and refuses; it never calls the function. `functions.py` makes a Tool of a `Signature`.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from callpact.context import Context
from callpact.errors import InvalidTool
from callpact.schema import is_array, is_json, is_object
from callpact.sources.python.annotation import (
    REFUSALS,
    Annotation,
    annotation_schemas,
    holds_secret,
    read_annotation,
)
from callpact.sources.python.returns import Result, gives_stream, is_union, read_result, type_name
from callpact.tool import without_partials

_EMPTY = inspect.Parameter.empty


class Words(NamedTuple):
    """The descriptions of the function and of each parameter, from the docstring."""

    description: str
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionParameter:
    """One parameter that a caller can set."""

    name: str
    key: str
    """Its name in JSON: the alias, if it has one."""
    annotation: Annotation
    info: FieldInfo
    description: str | None
    default: Any = _EMPTY
    is_filled: bool = False
    """True if the default is in a `Field` and has to be filled in at call time."""
    is_positional: bool = False

    @property
    def is_required(self) -> bool:
        """True if it has no default."""
        return self.default is _EMPTY and not self.is_filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The facts about a function that its Tool needs."""

    parameters: tuple[FunctionParameter, ...]
    rest: Annotation | None
    """The type of `**kwargs`; None if there are none."""
    contexts: tuple[str, ...]
    reserved: tuple[str, ...]
    """Names that a caller must not set through `**kwargs`."""
    input: dict[str, Any]
    hidden: frozenset[str]
    """Keys whose values must not be shown."""
    hides_rest: bool
    """True if the values of `**kwargs` must not be shown."""
    result: Result


def function_label(function: Any) -> str:
    """`module:qualname` of the underlying function."""
    function = without_partials(function)
    named = cast("Any", function if hasattr(function, "__qualname__") else type(function))
    return f"{getattr(named, '__module__', None) or '__main__'}:{named.__qualname__}"


def read_signature(function: Any, words: Words) -> Signature:
    """Read parameters and result of a function.

    Raises:
        InvalidTool: naming the function, the parameter, and what to do.
    """
    label = function_label(function)
    try:
        given = inspect.signature(function)
    except (ValueError, TypeError, NameError) as error:
        raise InvalidTool(f"{label}: its signature cannot be read ({error})") from None
    _refuse_unbound(function, given, label)
    fixed = set(function.keywords) if isinstance(function, functools.partial) else set[str]()
    hints = _Hints(function, label)
    parameters: list[FunctionParameter] = []
    contexts: list[str] = []
    rest: Annotation | None = None
    for name, parameter in given.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise InvalidTool(
                f"{label}: parameter '*{name}' has no place in a JSON object; "
                f"take a list instead ({name}: list[...])"
            )
        if name in fixed:
            continue
        hint = hints.of(name, parameter.annotation)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            rest = _annotation(label, f"**{name}", hint, ())
        elif _is_context(hint):
            _refuse_positional_context(label, parameter)
            contexts.append(name)
        else:
            parameters.append(_parameter(label, parameter, hint, words))
    _refuse_twins(label, parameters)
    renamed = [p.name for p in parameters if p.key != p.name and not p.is_positional]
    reserved = (*contexts, *renamed, *fixed, *_self_names(function))
    shape = _input_schema(parameters, rest, reserved)
    return Signature(
        parameters=tuple(parameters),
        rest=rest,
        contexts=tuple(contexts),
        reserved=reserved,
        input=shape.schema,
        hidden=shape.hidden,
        hides_rest=shape.hides_rest,
        result=_result(function, hints, given.return_annotation, label),
    )


# --- hints ----------------------------------------------------------------------------------


class _Hints:
    """Resolves annotations, also those that are text (PEP 563)."""

    def __init__(self, function: Any, label: str) -> None:
        self._label = label
        code = _underlying(function)
        self._globals: dict[str, Any] = getattr(code, "__globals__", {})
        self._locals: dict[str, Any] = {}
        closure = getattr(code, "__closure__", None)
        for name, cell in zip(code.__code__.co_freevars if closure else (), closure or ()):  # noqa: B905 - equal by definition
            try:
                self._locals[name] = cell.cell_contents
            except ValueError:  # An empty cell.
                continue

    def resolve(self, name: str, annotation: Any) -> Any:
        if isinstance(annotation, type) and not get_args(annotation):
            return annotation
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        return typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)[name]

    def of(self, name: str, annotation: Any) -> Any:
        if annotation is _EMPTY:
            return Any
        try:
            return self.resolve(name, annotation)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise InvalidTool(
                f"{self._label}: the type of parameter '{name}', {type_name(annotation)}, cannot be "
                f"resolved ({error}); import it at run time, not only under TYPE_CHECKING, "
                "and define it at module level"
            ) from None


def _underlying(function: Any) -> Any:
    """The plain function that holds globals and closure."""
    while True:
        function = without_partials(function)
        if inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__globals__") or not inspect.isfunction(_call_of(function)):
            return function
        else:
            function = _call_of(function)


def _call_of(function: Any) -> Any:
    """The `__call__` that the class of an object defines."""
    return inspect.getattr_static(cast("Any", type(function)), "__call__", None)


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if is_union(hint):
        return set(get_args(hint)) == {Context, type(None)}
    return hint is Context


# --- refusals -------------------------------------------------------------------------------


def _refuse_unbound(function: Any, given: inspect.Signature, label: str) -> None:
    first = next(iter(given.parameters.values()), None)
    if first is None or first.name != "self" or first.annotation is not _EMPTY:
        return
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if inspect.isfunction(function) and owner and not owner.endswith("<locals>"):
        raise InvalidTool(
            f"{label}: a method without its object; pass the bound method, as in "
            f"{owner.rpartition('.')[2]}(...).{function.__name__}"
        )


def _refuse_positional_context(label: str, parameter: inspect.Parameter) -> None:
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise InvalidTool(
            f"{label}: parameter '{parameter.name}' is a Context and positional-only; "
            "it is given by name, so move it behind the '/'"
        )


def _refuse_twins(label: str, parameters: list[FunctionParameter]) -> None:
    keys: dict[str, str] = {}
    for parameter in parameters:
        other = keys.setdefault(parameter.key, parameter.name)
        if other != parameter.name:
            raise InvalidTool(
                f"{label}: parameters '{other}' and '{parameter.name}' are both called "
                f"'{parameter.key}' in JSON; change an alias"
            )


def _self_names(function: Any) -> tuple[str, ...]:
    """The name of the first parameter of a bound method, which a caller cannot set."""
    function = without_partials(function)
    target = getattr(function, "__func__", None) or _call_of(function)
    code = getattr(target, "__code__", None)
    if code is None or not code.co_argcount or code.co_posonlyargcount:
        return ()
    return (code.co_varnames[0],)


# --- parameters -----------------------------------------------------------------------------


def _parameter(label: str, given: inspect.Parameter, hint: Any, words: Words) -> FunctionParameter:
    default = given.default
    try:
        if isinstance(default, FieldInfo):
            info = FieldInfo.from_annotated_attribute(hint, cast("Any", default))
        else:
            info = FieldInfo.from_annotation(hint)
    except REFUSALS as error:
        raise _no_schema(label, given.name, hint, str(error)) from None
    metadata = [item for item in info.metadata if _documentation(item) is None]
    if info.discriminator is not None:
        metadata.append(Field(discriminator=info.discriminator))
    in_field = default is _EMPTY or isinstance(default, FieldInfo)
    said = (_documentation(item) for item in info.metadata)
    return FunctionParameter(
        name=given.name,
        key=_key(label, given.name, info),
        annotation=_annotation(label, given.name, info.annotation, metadata),
        info=info,
        description=info.description
        or next((text for text in said if text), None)
        or words.parameters.get(given.name),
        default=_EMPTY if in_field else default,
        is_filled=in_field and not info.is_required(),
        is_positional=given.kind is inspect.Parameter.POSITIONAL_ONLY,
    )


def _annotation(label: str, name: str, hint: Any, metadata: typing.Iterable[Any]) -> Annotation:
    try:
        return read_annotation(hint, metadata)
    except InvalidTool as error:
        raise _no_schema(label, name, hint, str(error)) from None


def _no_schema(label: str, name: str, hint: Any, reason: str) -> InvalidTool:
    return InvalidTool(
        f"{label}: no JSON Schema can be made for parameter '{name}' of type {type_name(hint)} "
        f"({reason.partition(chr(10))[0]}); use a type that JSON can carry: a scalar, list, dict, "
        "enum, dataclass, TypedDict, Pydantic model or msgspec Struct"
    )


def _key(label: str, name: str, info: FieldInfo) -> str:
    alias = info.validation_alias if info.validation_alias is not None else info.alias
    if alias is None:
        return name
    if not isinstance(alias, str):
        raise InvalidTool(
            f"{label}: the alias of parameter '{name}' must be text, got {type(alias).__name__}"
        )
    return alias


def _documentation(item: Any) -> str | None:
    """The text of a plain string or a `Doc(...)` inside `Annotated`."""
    text = item if isinstance(item, str) else getattr(item, "documentation", None)
    return text if isinstance(text, str) else None


# --- schemas --------------------------------------------------------------------------------


class _Shape(NamedTuple):
    schema: dict[str, Any]
    hidden: frozenset[str]
    hides_rest: bool


def _input_schema(
    parameters: list[FunctionParameter], rest: Annotation | None, reserved: tuple[str, ...]
) -> _Shape:
    asked = [parameter.annotation for parameter in parameters]
    schemas, definitions = annotation_schemas([*asked, rest] if rest is not None else asked)
    properties: dict[str, Any] = {}
    hidden: set[str] = set()
    for parameter, schema in zip(parameters, schemas, strict=False):
        made = properties[parameter.key] = _property(parameter, schema)
        if holds_secret(made, definitions):
            hidden.add(parameter.key)
            made.pop("default", None)
    root: dict[str, Any] = {"type": "object", "properties": properties}
    required = [parameter.key for parameter in parameters if parameter.is_required]
    if required:
        root["required"] = required
    root["additionalProperties"] = False if rest is None else schemas[-1] or True
    if rest is not None and reserved:
        root["propertyNames"] = {"not": {"enum": list(reserved)}}
    if definitions:
        root["$defs"] = definitions
    _close(root)
    hides_rest = rest is not None and holds_secret(schemas[-1], definitions)
    return _Shape(root, frozenset(hidden), hides_rest)


def _close(node: Any) -> None:
    """Close nested objects, too: an unknown key is a mistake at every level.

    Models that allow extra keys have `additionalProperties: true`, which stays.
    """
    if is_object(node):
        schema = node
        if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
        for key, value in schema.items():
            if key not in {"default", "const", "enum", "examples"}:
                _close(value)
    elif is_array(node):
        for item in node:
            _close(item)


def _property(parameter: FunctionParameter, schema: dict[str, Any]) -> dict[str, Any]:
    info = parameter.info
    made = dict(schema)
    made.pop("default", None)
    if info.title:
        made["title"] = info.title
    if parameter.description:
        made["description"] = parameter.description
    made.update(_default(parameter, made))
    if info.examples and is_json(info.examples):
        made["examples"] = info.examples
    if info.deprecated:
        made["deprecated"] = True
    if callable(info.json_schema_extra):
        info.json_schema_extra(made)
    elif info.json_schema_extra:
        made.update(info.json_schema_extra)
    return made


def _default(parameter: FunctionParameter, schema: dict[str, Any]) -> dict[str, Any]:
    """The `default` if it is JSON; a None that means "not given" is left out."""
    value = parameter.default
    if parameter.is_filled:
        if parameter.info.default_factory is not None:
            return {}
        value = parameter.info.default
    if value is _EMPTY or (value is None and not _allows_null(schema)):
        return {}
    try:
        value = value if parameter.annotation.dump is None else parameter.annotation.dump(value)
    except REFUSALS:
        return {}
    return {"default": value} if is_json(value) else {}


def _allows_null(schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_allows_null(part) for part in schema["anyOf"])
    kinds = schema.get("type")
    if kinds is None:
        options = schema.get("enum")
        return "$ref" not in schema and (options is None or None in options)
    return "null" in ([kinds] if isinstance(kinds, str) else kinds)


def _result(function: Any, hints: _Hints, annotation: Any, label: str) -> Result:
    try:
        return read_result(function, hints.resolve("return", annotation), label)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        return Result(
            is_stream=gives_stream(function),
            problem=f"its return type {type_name(annotation)} cannot be resolved ({error}), so its "
            "answers are not checked; import the type at run time, not only under TYPE_CHECKING",
        )


# --- docstrings -----------------------------------------------------------------------------


def read_docstring(function: Any) -> Words:
    """Summary, long text and parameters of a Google, NumPy or reST docstring."""
    text = inspect.cleandoc(_docstring(function) or "")
    if "\n" not in text:
        return Words(text, {})
    import docstring_parser  # Only for docstrings of several lines.

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Words(text, {})
    described: dict[str, str] = {}
    for parameter in parsed.params:
        if parameter.args and parameter.args[0] == "attribute":
            continue
        about = " ".join((parameter.description or "").split())
        for name in parameter.arg_name.split(","):
            if about:
                described[name.strip().lstrip("\\*")] = about
    return Words((parsed.description or "").strip(), described)


def _docstring(function: Any) -> str | None:
    if isinstance(function, functools.partial):
        own = vars(function).get("__doc__")
        return own or _docstring(cast("functools.partial[Any]", function).func)
    if hasattr(function, "__qualname__"):
        return function.__doc__
    return getattr(_call_of(function), "__doc__", None) or type(function).__doc__
