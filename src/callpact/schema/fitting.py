"""`convert`, `cast`, `strip`, and the three in a row: fit a value to its schema, tell every change.

`cast` alone is exactly seed 001's (TypeBox's) cast. `fit` is what a contract with policy `cast`
does to an answer: convert what says exactly what is wanted, cast the rest, strip what is left over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callpact.errors import CastError
from callpact.schema.compiled import CompiledSchema
from callpact.schema.document import freeze, pointer
from callpact.schema.kinds import Change, Reader, Run

if TYPE_CHECKING:
    from callpact.schema.kinds import Node


class Fitted(Struct, frozen=True):
    """A value fitted to its schema, and everything that was done to it."""

    value: Any
    changes: tuple[Change, ...] = ()
    problem: str | None = None
    """Why the cast gave up and left the value as it was; None if it did not."""


def convert(schema: object, value: Any) -> Any:
    """Convert what says exactly the wanted type: "12.5" to 12.5, "true" to true, 7.0 to 7."""
    return _pass("convert", schema, value)


def cast(schema: object, value: Any) -> Any:
    """Fit a value to a schema as TypeBox's `Value.Cast` does; a value that checks is returned as is.

    Raises:
        CastError: the schema asks for what cannot be invented.
    """
    return _pass("cast", schema, value)


def strip(schema: object, value: Any) -> Any:
    """Drop the keys that the schema does not declare, at every level."""
    return _pass("strip", schema, value)


def fit(schema: object, value: Any) -> Fitted:
    """Convert, cast and strip; a value that needs none of it comes back as the same object."""
    if isinstance(schema, CompiledSchema) and _fits(schema, value):
        return Fitted(value)
    node = _reader(schema).restart()
    run = Run()
    try:
        new = node.convert(value, run)
        mark = len(run.changes)
        try:
            new = node.cast(new, run)
        except CastError as error:
            # Seed 001's cast throws here; the data is left as it was, and the reason is told.
            del run.changes[mark:]
            run.path.clear()
            return Fitted(new, tuple(run.changes), str(error))
        new = node.strip(new, run)
    except RecursionError:
        return Fitted(value, (), "the value is nested too deeply to be fitted")
    return Fitted(new, tuple(run.changes))


def repair(schema: CompiledSchema, value: Any) -> Fitted:
    """Convert as `convert` does, and read JSON text where an array or object is wanted."""
    run = Run(json_text=True)
    try:
        return Fitted(_reader(schema).restart().convert(value, run), tuple(run.changes))
    except (CastError, RecursionError):
        return Fitted(value)


def _fits(schema: CompiledSchema, value: Any) -> bool:
    try:
        return schema.fits(value)
    except ValueError:
        return False


def _pass(verb: str, schema: object, value: Any) -> Any:
    run = Run()
    try:
        node: Node = _reader(schema, keep_open=False).restart()
        return getattr(node, verb)(value, run)
    except RecursionError:
        raise CastError("the value is nested too deeply", pointer(run.path[:8])) from None


def _reader(schema: object, *, keep_open: bool = True) -> Reader:
    if not isinstance(schema, CompiledSchema):
        return Reader(freeze(schema).document, keep_open=keep_open)
    if not keep_open:
        return Reader(schema.document)
    if schema.caster is None:
        schema.caster = Reader(schema.document, keep_open=True)
    return schema.caster
