"""The smallest change of a schema that lets given values pass.

Each rule that a value breaks is widened where it stands in the schema, by no more than the value
asks for; what was accepted before stays accepted. Nothing here knows records, tools or policies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from callpact import schema as schemas
from callpact.audit.patching import Operation, Patch, apply, difference
from callpact.audit.widening_steps import Widener
from callpact.errors import InvalidSchema
from callpact.schema import CompiledSchema, compile_schema

MAX_ROUNDS = 24
"""How often a schema is widened and tried again: what is behind a first violation shows later."""
MAX_WIDENED = 2_000
"""Values that one change of a schema is made for."""
_FIRST_TAKEN = 10
_MAX_TOLD = 10
_MAX_TRIALS = 100_000
_SWAPS = {
    "const": ("enum", "type"),
    "enum": ("type",),
    "exclusiveMinimum": ("minimum",),
    "exclusiveMaximum": ("maximum",),
    "oneOf": ("anyOf", "allOf"),
}


def widen(
    schema: object,
    values: Iterable[Any],
    *,
    formats: bool = False,
    declare: bool = False,
    meant: frozenset[tuple[str, str]] | None = None,
    is_hidden: Callable[[Any], bool] | None = None,
) -> Patch:
    """The smallest change of a schema with which it accepts values, `MAX_WIDENED` of them at most.

    `declare=True` also declares the properties that fitting a value would strip. `meant` names the
    places and rules to meet, if not all; `is_hidden(value)` tells values that are not what came.

    Raises:
        InvalidSchema: the schema itself cannot be used.
    """
    compiled = compile_schema(schema, formats=formats)
    before = copy.deepcopy(compiled.document)
    widener = Widener(before, formats=formats, meant=meant, is_hidden=is_hidden)
    taken = [value for value, _ in zip(values, range(MAX_WIDENED), strict=False)]
    hopeful = taken
    # What some values ask for lets most others pass, so these need not be explained one by one.
    size = _FIRST_TAKEN
    for _ in range(MAX_ROUNDS):
        # What was added for some values may have been let go of for others.
        left = [value for value in hopeful if not _settled(compiled, value, declare=declare)]
        if not left:
            break
        if widener.meet_all(compiled, left[:size], declare=declare):
            compiled = compile_schema(widener.document, formats=formats)
        else:
            hopeful = left[size:]
        size *= 2
    failed = [value for value in taken if not _settled(compiled, value, declare=declare)]
    widener.give_up(compiled, failed[:_MAX_TOLD], declare=declare)
    steps = difference(before, widener.document)
    passing = [value for value in taken if _settled(compiled, value, declare=declare)]

    def is_enough(fewer: list[Operation]) -> bool:
        tried = compile_schema(apply(before, fewer), formats=formats)
        return all(_settled(tried, value, declare=declare) for value in passing)

    steps = _needed(steps, is_enough, at_most=_MAX_TRIALS // (len(taken) + 1))
    return Patch(before, apply(before, steps), steps, tuple(sorted(widener.unsolved)))


def _needed(
    steps: tuple[Operation, ...], is_enough: Callable[[list[Operation]], bool], *, at_most: int
) -> tuple[Operation, ...]:
    """The steps of a change without those that other steps, made for other values, outdid."""
    units = _units(steps)
    if not 1 < len(units) <= at_most:
        return steps
    kept = list(steps)
    for unit in units:
        fewer = [one for one in kept if not any(one is other for other in unit)]
        # Forms that no longer exclude each other may be why a union was let go of.
        is_union = any(one.path.endswith("/oneOf") for one in unit)
        try:
            if not is_union and is_enough(fewer):
                kept = fewer
        except InvalidSchema:
            continue
    return tuple(kept)


def _units(steps: tuple[Operation, ...]) -> list[list[Operation]]:
    """Steps that stand or fall together: what takes the place of another rule goes with it."""
    units: dict[str, list[Operation]] = {}
    places: dict[str, str] = {}
    for one in steps:
        holder, _, rule = one.path.rpartition("/")
        if one.op == "remove" and rule in _SWAPS:
            units[one.path] = [one]
            places |= {f"{holder}/{other}": one.path for other in _SWAPS[rule]}
    for number, one in enumerate(steps):
        if one.path not in units:
            units.setdefault(places.get(one.path, f"{number}"), []).append(one)
    return list(units.values())


def _settled(compiled: CompiledSchema, value: Any, *, declare: bool) -> bool:
    try:
        if not compiled.accepts(value):
            return False
    except ValueError:
        return False
    return not declare or not stripped(compiled, value)


def stripped(compiled: CompiledSchema, value: Any) -> list[str]:
    """The places of what fitting would strip from a value: what the schema does not declare."""
    fitted = schemas.fit(compiled, value)
    return [change.path for change in fitted.changes if change.action == "stripped"]
