"""Parsing of an answer in two stages: read JSON, then check it against the contract.

The run and every entry point use `parse_answer`, so that all of them accept the same answers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, Generic, Literal, TypeVar, cast

from msgspec import Struct

from callpact.agent.answer.shape import Shape, issues_of
from callpact.errors import OutputSchemaError, UsageError
from callpact.jsonreader.reader import Repair, Unreadable, read_json, read_strict
from callpact.schema.bounds import with_room

T = TypeVar("T")

RepairMode = Literal["none", "safe"]
"""`none` reads strict JSON; `safe` repairs broken JSON where no meaning can be lost."""


class Parsed(Struct, Generic[T], frozen=True):
    """A value, and the repairs of the text it was read from."""

    value: T
    repairs: tuple[Repair, ...] = ()


Verdict = Parsed[Any] | OutputSchemaError
"""The parsed answer, or the reason why it breaks its contract."""


def parse_answer(
    raw: str,
    shape: Shape[T],
    *,
    repair: RepairMode = "none",
    allow: Collection[str] = (),
    finish: str | None = None,
) -> Parsed[T]:
    """Read an answer and check it against its shape. `allow` names lossy repairs to accept.

    `finish` is the reason why the model stopped: after `length` or `content_filter` an answer is
    accepted only if it is complete, and the error names the reason.

    Raises:
        OutputSchemaError: the answer is not JSON, or breaks its schema.
        UsageError: the answer is no text, or the parser is asynchronous.
    """
    if not isinstance(cast("Any", raw), str):
        raise UsageError(f"an answer is text as the model wrote it, got {type(raw).__name__}")
    if repair not in {"none", "safe"}:
        raise UsageError(f"repair must be 'none' or 'safe', got {repair!r:.100}")
    if allow and repair == "none":
        raise UsageError("allow names repairs, and repair is 'none'; say repair='safe'")
    text = str(raw)
    candidates = _Candidates(shape, text)
    try:
        if repair == "none":
            return Parsed(judged(read_strict(text, finish=finish), shape, text))
        read = read_json(text, allow=allow, fits=candidates.fits, finish=finish)
    except Unreadable as error:
        raise OutputSchemaError("json-parse", text, error) from error
    return Parsed(candidates.judged(read.value), read.repairs)


class _Candidates(Generic[T]):
    """The values found in one text, each parsed at most once."""

    def __init__(self, shape: Shape[T], raw: str) -> None:
        self._shape = shape
        self._raw = raw
        # By identity; the value is stored as well, so that its id is not reused.
        self._verdicts: dict[int, tuple[Any, Parsed[T] | OutputSchemaError]] = {}

    def fits(self, value: Any) -> bool:
        """True if the shape accepts a value; the parser gets a copy, because it may change it."""
        if id(value) not in self._verdicts:
            copied = with_room(lambda: copy.deepcopy(value))
            try:
                verdict = Parsed(judged(copied, self._shape, self._raw))
            except OutputSchemaError as error:
                verdict = error
            self._verdicts[id(value)] = (value, verdict)
        return isinstance(self._verdicts[id(value)][1], Parsed)

    def judged(self, value: Any) -> T:
        """Return the parsed value.

        Raises:
            OutputSchemaError: the parser refused it.
        """
        if id(value) not in self._verdicts:
            return judged(value, self._shape, self._raw)
        verdict = self._verdicts[id(value)][1]
        if isinstance(verdict, OutputSchemaError):
            raise verdict
        return verdict.value


def judged(value: Any, shape: Shape[T], raw: str) -> T:
    """Parse a value with the parser of its shape.

    Raises:
        OutputSchemaError: the parser refused it.
        UsageError: the parser is asynchronous.
    """
    try:
        return shape.parse(value)
    except UsageError:
        raise
    except Exception as error:  # boundary: every exception of a parser is a refusal
        raise OutputSchemaError("schema-validate", raw, error, issues_of(error)) from error
