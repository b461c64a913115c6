"""`convert`, `cast`, `strip` and all three as `fit`, which lists every change.

`cast` alone is exactly seed 001's (TypeBox's) cast. `fit` is what a contract with policy `cast`
does to an answer: convert what says exactly what is wanted, cast the rest, strip what is left over.
Policy `convert` leaves the cast out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callpact.errors import CastError
from callpact.schema.bounds import with_room
from callpact.schema.compiled import CompiledSchema, compile_schema
from callpact.schema.document import freeze, pointer
from callpact.schema.fitting.build import Reader
from callpact.schema.fitting.scalars import FitPass
from callpact.schema.values import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from callpact.schema.fitting.scalars import Node


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
    return _pass("cast", schema, value, exact=True)


def strip(schema: object, value: Any) -> Any:
    """Drop the keys that the schema does not declare, at every level."""
    return _pass("strip", schema, value)


def fit(schema: object, value: Any, *, invent: bool = True) -> Fitted:
    """Convert, cast and strip; a value that needs none of it comes back as the same object.

    Without `invent` nothing is cast: what cannot be converted stays wrong, what is missing missing.

    Raises:
        InvalidSchema: the schema itself cannot be used.
    """
    compiled = compile_schema(schema)
    if _holds(compiled.fits, value):
        return Fitted(value)
    try:
        return with_room(lambda: _fitted(compiled, value, invent=invent))
    except RecursionError:
        return Fitted(value, (), "the value is nested too deeply to be fitted")


def _fitted(compiled: CompiledSchema, value: Any, *, invent: bool) -> Fitted:
    reader = _nodes(compiled)
    node, run = reader.start(value)
    try:
        new = node.convert(value, run)
        if invent and not _holds(compiled.accepts, new):
            try:
                new = _cast(node, new, run)
            except CastError as error:
                return Fitted(new, tuple(run.changes), str(error))
        new = node.strip(new, run)
    except CastError as error:
        return Fitted(value, (), str(error))
    finally:
        reader.end()
    return Fitted(new, tuple(run.changes)) if run.changes else Fitted(value)


def _cast(node: Node, value: Any, run: FitPass) -> Any:
    """Cast, or raise and record no change: seed 001 then keeps the data and reports the reason."""
    mark = len(run.changes)
    try:
        return node.cast(value, run)
    except (CastError, RecursionError):
        del run.changes[mark:]
        run.path.clear()
        raise


def repair(schema: CompiledSchema, value: Any) -> Fitted:
    """Convert as `convert` does, and read JSON text where an array or object is wanted."""
    try:
        return with_room(lambda: _repaired(schema, value))
    except (CastError, RecursionError):
        return Fitted(value)


def _repaired(schema: CompiledSchema, value: Any) -> Fitted:
    reader = _nodes(schema)
    node, run = reader.start(value, json_text=True)
    try:
        return Fitted(node.convert(value, run), tuple(run.changes))
    finally:
        reader.end()


def _holds(judge: Callable[[Any], bool], value: Any) -> bool:
    try:
        return judge(value)
    except ValueError:
        return False


def _pass(verb: str, schema: object, value: Any, *, exact: bool = False) -> Any:
    reader = _reader(schema, exact=exact)
    path: list[str | int] = []

    def once() -> Any:
        nonlocal path
        try:
            node, run = reader.start(value)
            path = run.path
            return getattr(node, verb)(value, run)
        finally:
            reader.end()

    try:
        return with_room(once)
    except RecursionError:
        raise CastError("the value or the schema is nested too deeply", pointer(path[:8])) from None


def _reader(schema: object, *, exact: bool) -> Reader:
    if not isinstance(schema, CompiledSchema):
        return Reader(freeze(schema).document, exact=exact)
    return Reader(schema.document, exact=True) if exact else _nodes(schema)


def _nodes(schema: CompiledSchema) -> Reader:
    if schema.reader is None:
        schema.reader = Reader(schema.document, judge_of=schema.judge_of)
    return schema.reader
