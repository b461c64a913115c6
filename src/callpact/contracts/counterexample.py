"""Counterexamples: values that one schema accepts and another refuses, found by bounded trials.

The values are made from a schema document: its constants, its bounds and their neighbours, its
objects with each member in turn. They are guesses, and the real validators decide.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

from callpact.schema import is_array, is_object
from callpact.schema.targets import resolve

if TYPE_CHECKING:
    from callpact.schema import CompiledSchema

MAX_TRIALS = 3_000
"""Values that are tried for one counterexample."""
TRIAL_SECONDS = 1.0
"""Time for these trials."""
_MAX_VALUES = 40  # Values made of one part of a schema.
_MAX_LEVELS = 6
_MAX_PARTS = 50_000  # Parts of schemas that values are made from; behind references they multiply.
_MAX_LENGTH = 2_000  # Of a text or an array that is made.
_ENOUGH = 5  # Counterexamples of which the shortest is returned.
_TEXTS = ("text", "", "a", "A b", "0", "2026-01-31", "2026-01-31T12:00:00Z", "a@example.com")
_TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")


def counterexample(wide: CompiledSchema, narrow: CompiledSchema, document: Any) -> tuple[Any, ...]:
    """A value that `narrow` accepts and `wide` refuses, made from a schema; empty if none is found."""
    found: list[Any] = []
    maker = _Maker(document, _numbers((wide.document, narrow.document)))
    end = time.monotonic() + TRIAL_SECONDS
    for value in islice(maker.values(document, _MAX_LEVELS), MAX_TRIALS):
        if _accepts(narrow, value) and not _accepts(wide, value):
            found.append(value)
        if len(found) == _ENOUGH or time.monotonic() > end:
            break
    return (min(found, key=lambda value: len(json.dumps(value))),) if found else ()


def made_values(document: Any, limit: int = MAX_TRIALS) -> Iterator[Any]:
    """Values made from a schema, the plainest first; not all of them keep it."""
    return islice(_Maker(document, _numbers((document,))).values(document, _MAX_LEVELS), limit)


def valid_example(schema: CompiledSchema) -> tuple[Any, ...]:
    """A value that a schema accepts, with as many members as possible; empty if none is found."""
    found: list[Any] = []
    end = time.monotonic() + TRIAL_SECONDS / 10
    for value in made_values(schema.document, MAX_TRIALS // 10):
        if _accepts(schema, value):
            found.append(value)
        if len(found) == _ENOUGH or time.monotonic() > end:
            break
    return (max(found, key=lambda value: len(json.dumps(value))),) if found else ()


def _accepts(schema: CompiledSchema, value: Any) -> bool:
    try:
        return schema.accepts(value)
    except ValueError:
        return False


def _numbers(documents: Iterable[Any]) -> tuple[float, ...]:
    """Some of the numbers in schema documents, each with its neighbours."""
    found: dict[float, None] = {}
    stack = list(documents)
    while stack and len(found) < _MAX_VALUES:
        part = stack.pop()
        if isinstance(part, int | float) and not isinstance(part, bool) and abs(part) < 1e15:
            found.update(dict.fromkeys((part, part + 1, part - 1)))
        elif is_object(part):
            stack.extend(part.values())
        elif is_array(part):
            stack.extend(part)
    return tuple(found)


class _Maker:
    def __init__(self, root: Any, numbers: tuple[float, ...]) -> None:
        self._root = root
        self._numbers = numbers
        self._left = _MAX_PARTS
        lengths = {int(number) for number in numbers if 0 <= number <= _MAX_LENGTH}
        self._lengths = sorted({0, 1, 2} | lengths)

    def values(self, schema: Any, levels: int) -> Iterator[Any]:
        """Values for one part of the schema, the plainest first; repetitions are possible."""
        if not is_object(schema):
            schema = cast("dict[str, Any]", {})
        self._left -= 1
        if levels == 0 or self._left < 0:
            return
        if "const" in schema:
            yield schema["const"]
            return
        if is_array(schema.get("enum")):
            yield from schema["enum"]
            return
        for key in ("default", "example"):
            if key in schema:
                yield schema[key]
        if is_array(schema.get("examples")):
            yield from schema["examples"]
        yield from self._combined(schema, levels)
        kinds = schema.get("type")
        for kind in _TYPES if "type" not in schema else kinds if is_array(kinds) else [kinds]:
            yield from self._of_type(kind, schema, levels)

    def _few(self, schema: Any, levels: int) -> list[Any]:
        return list(islice(self.values(schema, levels - 1), _MAX_VALUES))

    def _combined(self, schema: dict[str, Any], levels: int) -> Iterator[Any]:
        target = self._target(schema.get("$ref"))
        if target is not None:
            yield from self.values(target, levels - 1)
        for key in ("anyOf", "oneOf"):
            if is_array(schema.get(key)):
                rest = {name: part for name, part in schema.items() if name != key}
                for branch in schema[key]:
                    yield from islice(
                        self.values(_merged(rest, branch), levels - 1), 4 * _MAX_VALUES
                    )
        if is_array(schema.get("allOf")):
            whole = {name: part for name, part in schema.items() if name != "allOf"}
            for branch in schema["allOf"]:
                whole = _merged(whole, self._target(_reference(branch)) or branch)
            yield from self.values(whole, levels - 1)

    def _target(self, reference: Any) -> Any:
        return resolve(self._root, reference) if isinstance(reference, str) else None

    def _of_type(self, kind: Any, schema: dict[str, Any], levels: int) -> Iterable[Any]:
        match kind:
            case "string":
                pattern = schema.get("pattern")
                literal = (pattern.strip("^$"),) if isinstance(pattern, str) else ()
                return chain(literal, _TEXTS, ("a" * length for length in self._lengths))
            case "number":
                return chain((1, 0, -1, 0.5, 1.5, -0.5, 1e6, -1e6), self._numbers)
            case "integer":
                return chain((1, 0, -1, 10**6, -(10**6)), map(int, self._numbers))
            case "boolean":
                return (True, False)
            case "null":
                return (None,)
            case "array":
                return self._arrays(schema, levels)
            case "object":
                return self._objects(schema, levels)
            case _:
                return ()

    def _arrays(self, schema: dict[str, Any], levels: int) -> Iterator[Any]:
        first = schema.get("prefixItems")
        fixed = [self._few(part, levels) for part in first] if is_array(first) else []
        items = schema.get("items", schema.get("contains", True))
        rest = [] if items is False else self._few(items, levels)
        for length in self._lengths[:8]:
            places = [*fixed, *([rest] * (length - len(fixed)))][:length]
            if all(places):
                plain = [values[0] for values in places]
                yield plain
                yield [values[index % len(values)] for index, values in enumerate(places)]
                for value in places[-1] if places else ():
                    yield [*plain[:-1], value]

    def _objects(self, schema: dict[str, Any], levels: int) -> Iterator[Any]:
        declared = schema.get("properties")
        parts: dict[str, Any] = dict(declared) if is_object(declared) else {}
        required = schema.get("required")
        needed = [name for name in required if isinstance(name, str)] if is_array(required) else []
        names = schema.get("propertyNames")
        if is_object(names) and is_array(names.get("enum")):
            words = [name for name in names["enum"] if isinstance(name, str)]
            parts.update((name, True) for name in words if name not in parts)
        extra = schema.get("additionalProperties", True)
        made = {
            name: self._few(parts.get(name, extra), levels)
            for name in islice(dict.fromkeys((*needed, *parts)), 10 * _MAX_VALUES)
            if parts.get(name, extra) is not False
        }
        for least in self._bases(made, needed):
            yield least
            yield {**{name: values[0] for name, values in made.items() if values}, **least}
            for name, values in made.items():
                for value in values:
                    yield {**least, name: value}
            if extra is not False:
                for value in self._few(extra, levels)[:8]:
                    yield {**least, "another": value}

    @staticmethod
    def _bases(made: dict[str, list[Any]], needed: list[str]) -> Iterator[dict[str, Any]]:
        """Objects with the required members alone, with their first values and with others."""
        for turn in range(3):
            if all(made.get(name) for name in needed):
                yield {name: made[name][turn % len(made[name])] for name in needed}
            if not needed:
                return


def _reference(schema: Any) -> Any:
    return schema.get("$ref") if is_object(schema) else None


def _merged(first: dict[str, Any], second: Any) -> dict[str, Any]:
    """One schema of two that hold together, as far as values are to be made from it."""
    if not is_object(second):
        return first
    merged = {**first, **second}
    for key in ("properties", "patternProperties"):
        if is_object(first.get(key)) and is_object(second.get(key)):
            merged[key] = {**first[key], **second[key]}
    if is_array(first.get("required")) and is_array(second.get("required")):
        merged["required"] = [*first["required"], *second["required"]]
    return merged
