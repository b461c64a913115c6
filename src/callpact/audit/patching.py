"""Changes of JSON documents: as the steps of a JSON Patch, in words, and as a diff.

`widening.py` makes the changes; nothing here knows what a schema means.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterable
from typing import Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType

from callpact.errors import UsageError
from callpact.schema.document import Document, pointer, resolve

Op = Literal["add", "remove", "replace"]


class Operation(Struct, frozen=True, omit_defaults=True):
    """One step of a JSON Patch (RFC 6902)."""

    op: Op
    path: str
    value: Any | UnsetType = UNSET


class Unsolved(Struct, frozen=True, order=True):
    """A rule that values break and that was left as it is, and why."""

    path: str
    rule: str
    reason: str


class Patch(Struct, frozen=True):
    """A change of a schema: the whole new document, and the steps that lead to it."""

    before: Document
    after: Document
    operations: tuple[Operation, ...] = ()
    unsolved: tuple[Unsolved, ...] = ()

    @property
    def words(self) -> str:
        """The change in one line: each place with what it was and what it would be."""
        return "; ".join(_worded(self.before, step) for step in self.operations)

    @property
    def diff(self) -> str:
        """The change as a unified diff of the indented documents; empty if there is none."""
        old, new = (
            json.dumps(document, indent=2, ensure_ascii=False).splitlines(keepends=True)
            for document in (self.before, self.after)
        )
        lines = difflib.unified_diff(_ended(old), _ended(new), "schema", "schema (patched)", n=2)
        return "".join(lines)


def _worded(before: Document, step: Operation) -> str:
    old, new = (
        json.dumps(value, ensure_ascii=False)
        for value in (
            resolve(before, f"#{step.path}"),
            None if step.value is UNSET else step.value,
        )
    )
    if step.op == "add":
        return f"{step.path}: {new}"
    return f"{step.path}: {old} → {'none' if step.op == 'remove' else new}"


def _ended(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1] + "\n"]


def difference(before: Any, after: Any, path: str = "") -> tuple[Operation, ...]:
    """The steps that make one JSON value of another, in the order of the documents."""
    if same(before, after):
        return ()
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_objects(cast("dict[str, Any]", before), cast("dict[str, Any]", after), path)
    if isinstance(before, list) and isinstance(after, list):
        return _of_lists(cast("list[Any]", before), cast("list[Any]", after), path)
    return (Operation("replace", path, after),)


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: str) -> tuple[Operation, ...]:
    steps: list[Operation] = []
    for key, old in before.items():
        inner = path + pointer([key])
        if key in after:
            steps += difference(old, after[key], inner)
        else:
            steps.append(Operation("remove", inner))
    new = (key for key in after if key not in before)
    steps += [Operation("add", path + pointer([key]), after[key]) for key in new]
    return tuple(steps)


def _of_lists(before: list[Any], after: list[Any], path: str) -> tuple[Operation, ...]:
    if all(isinstance(item, dict) for item in before) and len(after) >= len(before):
        pairs = zip(before, after, strict=False)
        inner = [difference(old, new, f"{path}/{i}") for i, (old, new) in enumerate(pairs)]
        more = [Operation("add", f"{path}/-", item) for item in after[len(before) :]]
        return (*(step for steps in inner for step in steps), *more)
    return (Operation("replace", path, after),)


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """A copy of a document with a patch applied.

    Raises:
        UsageError: a step names a place that is not there.
    """
    # A part that stands in several places of a document in memory is to change in one.
    root: list[Any] = [json.loads(json.dumps(document))]
    for step in operations:
        parts: list[str] = [
            part.replace("~1", "/").replace("~0", "~") for part in step.path.split("/")[1:]
        ]
        holder, key = _holder(root, parts, step)
        if step.op == "remove":
            del holder[key]
        elif step.op == "add" and isinstance(holder, list) and holder is not root:
            cast("list[Any]", holder).insert(key, copy.deepcopy(step.value))
        else:
            holder[key] = copy.deepcopy(step.value)
    return root[0]


def _holder(root: list[Any], parts: list[str], step: Operation) -> tuple[Any, Any]:
    holder: Any = root
    key: Any = 0
    try:
        for part in parts:
            holder = holder[key]
            key = _key(holder, part)
        is_end = isinstance(holder, list) and key == len(cast("Any", holder))
        if step.op != "add" or (isinstance(holder, list) and not is_end):
            holder[key]
    except (LookupError, TypeError, ValueError):
        raise UsageError(
            f"the patch says {step.op} '{step.path}', and there is no such place"
        ) from None
    return cast("Any", holder), key


def _key(holder: Any, part: str) -> Any:
    if not isinstance(holder, list):
        return part
    return len(cast("list[Any]", holder)) if part == "-" else int(part)


def same(a: Any, b: Any) -> bool:
    """Equality of JSON: 1 is not true, and 1.0 is 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        one, other = cast("dict[str, Any]", a), cast("dict[str, Any]", b)
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(a, list) and isinstance(b, list):
        ones, others = cast("list[Any]", a), cast("list[Any]", b)
        return len(ones) == len(others) and all(map(same, ones, others))
    return a == b
