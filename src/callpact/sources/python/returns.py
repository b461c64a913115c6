"""The results of a function: one or many, the schema of each, the conversion to JSON.

A function that yields has many, and its return type must agree. Types are read; the function is
never called.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
)
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from callpact.envelope import ResponseEnvelope
from callpact.errors import InvalidTool
from callpact.sources.python.annotation import REFUSALS, annotation_schemas, read_annotation
from callpact.tool import is_async_generator, without_partials

_EMPTY = inspect.Parameter.empty
_BYTES = (bytes, bytearray, memoryview)
_UNSAID = (Any, _EMPTY, object)
_NOTHING_SAID = (*_UNSAID, typing.NoReturn, typing.Never, ResponseEnvelope, *_BYTES)
_STREAMS = (AsyncIterator, AsyncGenerator, AsyncIterable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The facts about the results of a function."""

    is_stream: bool
    """True if a call gives an async generator; the other fields then describe one yield."""
    output: dict[str, Any] | None = None
    dump: Callable[[Any], Any] | None = None
    problem: str | None = None
    """The reason for a missing output schema, although a type is given."""


def read_result(function: Any, hint: Any, label: str) -> Result:
    """Read a resolved return type.

    Raises:
        InvalidTool: the type is that of a subscription and the function does not yield, or vice versa.
    """
    is_stream = gives_stream(function)
    hint = _answer_hint(hint)
    plain = _without_alias(hint)
    says_stream = (get_origin(plain) or plain) in _STREAMS
    if is_stream and says_stream:
        hint = _answer_hint((*get_args(plain), Any)[0])
    elif says_stream or (is_stream and plain not in _UNSAID):
        return _contradiction(function, hint, label, is_stream=is_stream)
    if hint in _NOTHING_SAID:
        return Result(is_stream=is_stream)
    try:
        read = read_annotation(hint, mode="serialization")
        schemas, definitions = annotation_schemas([read], "serialization")
    except (InvalidTool, *REFUSALS) as error:
        reason = str(error).partition("\n")[0]
        what = "the type of its yields," if is_stream else "its return type"
        return Result(
            is_stream=is_stream,
            problem=f"no JSON Schema can be made for {what} {type_name(hint)} ({reason}), "
            "so its answers are not checked",
        )
    schema = schemas[0]
    # Bytes are delivered as they are: no schema describes them.
    if not schema or (is_union(hint) and set(_BYTES) & set(get_args(hint))):
        return Result(is_stream=is_stream, dump=read.dump)
    if definitions:
        schema = {**schema, "$defs": definitions}
    return Result(is_stream=is_stream, output=schema, dump=read.dump)


def _answer_hint(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Awaitable, Coroutine}:
        return _answer_hint(arguments[-1])
    if origin is ResponseEnvelope:
        return _answer_hint(arguments[0])
    return Any if isinstance(hint, typing.TypeVar) else hint


def _without_alias(hint: Any) -> Any:
    """The type without `type Name[T] = ...` or `Annotated`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _without_alias(arguments[0])
    meant = getattr(origin or hint, "__value__", None)
    if meant is None:
        return hint
    return _without_alias(meant[arguments] if arguments else meant)


def _contradiction(function: Any, hint: Any, label: str, *, is_stream: bool) -> Result:
    """The outcome for a return type that contradicts the code."""
    name = type_name(hint)
    if is_async_generator(inspect.unwrap(call_code(function))) != is_stream:
        # A decorator changed the kind of function; the type is that of the wrapped one.
        return Result(
            is_stream=is_stream,
            problem=f"its return type {name} is that of the function it wraps, which "
            f"{'returns' if is_stream else 'yields'}, so its answers are not checked",
        )
    if is_stream:
        raise InvalidTool(
            f"{label}: it yields, so it is a subscription, but its return type is {name}; write "
            "AsyncIterator[...] around the type of one yield, or return the answer"
        )
    raise InvalidTool(
        f"{label}: its return type is {name}, but it has no yield; a subscription is an async "
        "generator function: make it 'async def', and hand the items on with "
        "'async for item in ...: yield item'"
    )


# --- one answer or many ---------------------------------------------------------------------


def call_code(function: Any) -> Any:
    """The function whose code decides whether a call is sync, async or a generator."""
    function = without_partials(function)
    is_object = not hasattr(function, "__qualname__") and not hasattr(function, "__wrapped__")
    return function.__call__ if is_object else function


def gives_stream(function: Any) -> bool:
    """True if a call gives an async generator; a sync wrapper counts as its wrapped function."""
    return is_async_generator(inspect.unwrap(call_code(function), stop=_is_marked_by_python))


def _is_marked_by_python(code: Any) -> bool:
    """True if the flags of the code show the kind of the result."""
    return is_async_generator(code) or any(
        inspect.iscoroutinefunction(part) or inspect.isgeneratorfunction(part)
        for part in (code, getattr(code, "__call__", None))  # noqa: B004 - the method is wanted
    )


# --- names of types -------------------------------------------------------------------------


def is_union(hint: Any) -> bool:
    """True for `A | B` and `Union[A, B]`."""
    return get_origin(hint) in {Union, types.UnionType}


def type_name(hint: Any) -> str:
    """A type as its author wrote it, as far as possible."""
    if isinstance(hint, str):
        return repr(hint)
    if hint is type(None):
        return "None"
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint)
