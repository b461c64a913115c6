"""From what a model wrote to a value under contract, in two stages: read JSON, then judge it.

The loop and every entry point use this one function, so that the loop cannot accept what the
caller's boundary refuses.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, Generic, Literal, TypeVar, cast

from msgspec import Struct

from callpact.answer.reader import Fits, Repair, Unreadable, read_json, read_strict
from callpact.answer.shape import Shape, issues_of
from callpact.errors import OutputSchemaError, UsageError
from callpact.schema.limits import with_room

T = TypeVar("T")

Repairing = Literal["none", "safe"]
"""Whether an answer is read as it is, or repaired where no meaning can be lost."""


class Parsed(Struct, Generic[T], frozen=True):
    """A value, and what had to be repaired to read it."""

    value: T
    repairs: tuple[Repair, ...] = ()


def parse_answer(
    raw: str,
    shape: Shape[T],
    *,
    repair: Repairing = "none",
    allow: Collection[str] = (),
    finish: str | None = None,
) -> Parsed[T]:
    """Read an answer and judge it. `allow` names lossy repairs that are taken all the same.

    `finish` is why the model stopped: an answer that ended by `length` or by `content_filter` is
    taken only if it is complete, and the error names the reason.

    Raises:
        OutputSchemaError: it is not JSON, or breaks its schema.
        UsageError: the answer is no text, or the parser an asynchronous one.
    """
    if not isinstance(cast("Any", raw), str):
        raise UsageError(f"an answer is text as the model wrote it, got {type(raw).__name__}")
    if repair not in {"none", "safe"}:
        raise UsageError(f"repair must be 'none' or 'safe', got {repair!r:.100}")
    if allow and repair == "none":
        raise UsageError("allow names repairs, and repair is 'none'; say repair='safe'")
    text = str(raw)
    repairs: tuple[Repair, ...] = ()
    try:
        if repair == "none":
            value: Any = read_strict(text, finish=finish)
        else:
            read = read_json(text, allow=allow, fits=_fits(shape), finish=finish)
            value, repairs = read.value, read.repairs
    except Unreadable as error:
        raise OutputSchemaError("json-parse", text, error) from error
    return Parsed(judged(value, shape, text), repairs)


def _fits(shape: Shape[Any]) -> Fits:
    """Whether a shape takes a value; a parser gets a copy, as it may change what it is given."""

    def fits(value: Any) -> bool:
        try:
            _ = shape.parse(with_room(lambda: copy.deepcopy(value)))
        except UsageError:
            raise
        except Exception:  # noqa: BLE001 - boundary: whatever a parser raises is its refusal
            return False
        return True

    return fits


def judged(value: Any, shape: Shape[T], raw: str) -> T:
    """The value as the shape's parser gives it.

    Raises:
        OutputSchemaError: the parser refused it.
        UsageError: the parser is asynchronous.
    """
    try:
        return shape.parse(value)
    except UsageError:
        raise
    except Exception as error:  # boundary: whatever a parser raises is its refusal
        raise OutputSchemaError("schema-validate", raw, error, issues_of(error)) from error
