"""Replacements for an answer that breaks its contract: three tiers, each checked.

The primary tier is the model's own answer; then a function, then a value checked in advance.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Generic, TypeVar, cast

from msgspec import UNSET

from callpact.agent.account import Tier
from callpact.agent.answer.parse import judged
from callpact.agent.answer.shape import Shape
from callpact.agent.answer_events import PREVIEW, Emitter
from callpact.errors import OutputSchemaError, UsageError
from callpact.schema import is_json

T = TypeVar("T")

FallbackFunction = Callable[[OutputSchemaError, str], Any | Awaitable[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Fallback(Generic[T]):
    """The fallback function and the canned value; `canned` is JSON data that the shape accepts."""

    function: FallbackFunction | None
    canned: Any = UNSET
    parsed: Any = UNSET
    """The canned value as it was parsed when it was declared."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered(Generic[T]):
    """A value, and the tier it came from."""

    value: T
    tier: Tier


def declared_fallback(shape: Shape[T], function: Any, canned: Any) -> Fallback[T]:
    """Check a fallback function and a canned value, and return them.

    Raises:
        UsageError: no tier is given, or the canned value breaks the contract itself.
    """
    if function is None and canned is UNSET:
        raise UsageError("output_fallback needs fallback=, a function, or canned=, a value")
    if function is not None and not callable(function):
        raise UsageError(
            f"fallback must be a function of (error, raw), got {type(function).__name__}"
        )
    if canned is UNSET:
        return Fallback(function)
    try:
        data = copy.deepcopy(_data(shape, canned))
        parsed = judged(copy.deepcopy(data), shape, repr(canned))
    except OutputSchemaError as error:
        raise UsageError(f"the canned answer breaks its own contract: {error.error}") from error
    except (TypeError, ValueError) as error:  # It cannot be dumped, or copied.
        raise UsageError(f"the canned answer is no data of this shape: {error}") from error
    return Fallback(function, data, parsed)


async def recovered(
    error: OutputSchemaError,
    fallback: Fallback[T] | None,
    shape: Shape[T],
    emitter: Emitter,
    retries_spent: int | None,
) -> Recovered[T]:
    """Return the value of the first tier that has a valid one.

    Raises:
        OutputSchemaError: there is no fallback, or its value breaks the contract too and there is
            no canned value.
        Exception: the fallback's own exception, if there is no canned value.
    """
    if fallback is None:
        raise error
    preview = error.raw_output[:PREVIEW]
    failure: Exception = error
    if fallback.function is not None:
        emitter.emit(
            "resilience.output_fallback_triggered",
            stage=error.stage,
            raw_output_preview=preview,
            primary_error_message=error.error,
            retries_spent=retries_spent,
        )
        try:
            given = fallback.function(error, error.raw_output)
            given = await given if isawaitable(given) else given
            return Recovered(judged(_data(shape, given), shape, error.raw_output), "fallback")
        except Exception as raised:
            if fallback.canned is UNSET:
                raise
            failure = raised
    emitter.emit(
        "resilience.output_canned_used",
        raw_output_preview=preview,
        fallback_error_message=str(failure) or type(failure).__name__,
        retries_spent=retries_spent,
    )
    try:
        value = judged(copy.deepcopy(fallback.canned), shape, error.raw_output)
    except OutputSchemaError:  # The parser accepted it when it was declared: use that value.
        value = cast("T", copy.deepcopy(fallback.parsed))
    return Recovered(value, "canned")


def _data(shape: Shape[Any], value: Any) -> Any:
    """Return JSON data as it is, and dump a typed value."""
    if shape.dump is None or is_json(value):
        return value
    return shape.dump(value)
