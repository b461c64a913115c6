"""The kinds of schema that speak of places in a list: arrays and tuples."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, cast

import jsonschema_rs

from callpact.errors import CastError
from callpact.schema.document import pointer
from callpact.schema.fitting.objects import stripped
from callpact.schema.fitting.scalars import (
    MISSING,
    FitPass,
    Meter,
    Node,
    affordable,
    number,
    parsed,
)

Judge = Callable[[Any], bool]
_MANY = 50


class Array(Node):
    __slots__ = (
        "_contains",
        "_contains_least",
        "_contains_most",
        "_item",
        "_item_schema",
        "_judge",
        "_judge_of",
        "_least",
        "_most",
        "_unique",
    )
    is_leaf = False
    one_pass = True

    def __init__(
        self,
        schema: dict[str, Any],
        item: Node,
        contains: Node | None,
        judge_of: Callable[[dict[str, Any]], Judge] | None,
    ) -> None:
        super().__init__(schema)
        self._item_schema: dict[str, Any] = schema.get("items", {})
        self._judge_of = judge_of
        self._judge: Judge | None = None
        self._item = item
        self._contains = contains
        self._contains_least = number(schema, "minContains", 1)
        self._contains_most = number(schema, "maxContains", math.inf)
        self._least = number(schema, "minItems", 0)
        self._most = number(schema, "maxItems", math.inf)
        self._unique = schema.get("uniqueItems") is True

    def check(self, value: Any) -> bool:
        return self._frame_fits(value) and all(map(self._item.check, value))

    def _frame_fits(self, value: Any) -> bool:
        if not isinstance(value, list | tuple):
            return False
        items = cast("list[Any]", value)
        if not self._least <= len(items) <= self._most:
            return False
        if self._unique and not _all_differ(items):
            return False
        if self._contains is None:
            return True
        count = sum(map(self._contains.check, items))
        return self._contains_least <= count <= self._contains_most

    def _invent(self, meter: Meter) -> Any:
        if self._unique or self._contains is not None:
            raise CastError("an array with uniqueItems or contains cannot be invented")
        count = affordable(self._least, "minItems", meter)
        return [self._item.create(meter) for _ in range(count)]

    def cast(self, value: Any, run: FitPass) -> Any:
        if not isinstance(value, list | tuple):
            self._note_made(value, run)
            value = self._made(run)
            if self.check(value) or not isinstance(value, list):
                return value
        items = cast("list[Any]", value)
        failed = not self._frame_fits(items)
        padding: list[Any] = []
        if failed:
            items, padding = self._sized(items, run)
        item_node, path = self._item, run.path
        judge = self._quick(items)
        check = judge or (None if item_node.one_pass else item_node.check)
        out: list[Any] = []
        for index, item in enumerate(items):
            if check is not None and check(item):
                out.append(item)
                continue
            path.append(index)
            new = item_node.cast(item, run)
            path.pop()
            failed = failed or not item_node.one_pass or new is not item
            out.append(new)
        if not failed:
            return cast("Any", value)
        out.extend(padding)
        return self._made_unique(out, run) if self._unique else out

    def _sized(self, items: list[Any], run: FitPass) -> tuple[list[Any], list[Any]]:
        """The items that may stay, and what is to be added to them."""
        size = int(min(max(len(items), self._least), self._most))
        if size < len(items):
            run.note("truncated", items)
            return items[:size], []
        if size == len(items):
            return items, []
        run.note("padded", items, invented=True)
        more = affordable(size, "minItems", run.meter) - len(items)
        # What a null becomes, without a note for each: the padding as a whole is noted.
        silent = FitPass(run.meter)
        return items, [self._item.cast(None, silent) for _ in range(more)]

    def _made_unique(self, items: list[Any], run: FitPass) -> list[Any]:
        seen: set[Any] = set()
        out: list[Any] = []
        for item in items:
            if not isinstance(item, Hashable) or isinstance(item, tuple):
                out.append(item)
            elif (type(item) is bool, item) not in seen:
                seen.add((type(item) is bool, item))
                out.append(item)
        if len(out) < len(items):
            run.note("truncated", items)
        if not self.check(out):
            raise CastError("the items cannot be made unique", pointer(run.path))
        return out

    def convert(self, value: Any, run: FitPass) -> Any:
        if isinstance(value, list | tuple):
            return self._each(cast("list[Any]", value), "convert", run)
        return parsed(self, value, list, run)

    def strip(self, value: Any, run: FitPass) -> Any:
        if self.also or self._contains is not None:
            return stripped(self, value, run)
        if isinstance(value, list | tuple) and not self._item.is_leaf:
            return self._each(cast("list[Any]", value), "strip", run)
        return cast("Any", value)

    def nodes_of(self, part: str | int) -> list[Node]:
        if isinstance(part, str):
            return super().nodes_of(part)
        found = [self._item]
        if self._contains is not None and not self._item.is_leaf:
            found.append(self._contains)  # Alone it says nothing of what else an item holds.
        return found + super().nodes_of(part)

    def _each(self, items: list[Any], verb: str, run: FitPass) -> list[Any]:
        judge = self._quick(items)
        return _each_item(items, [self._item] * len(items), None, verb, run, judge=judge)

    def _quick(self, items: list[Any]) -> Judge | None:
        """A test of whether an item needs nothing done; worth its making for many items only."""
        if self._judge is None and self._judge_of is not None and len(items) > _MANY:
            self._judge = self._judge_of(self._item_schema)
        return self._judge


class Tuple(Node):
    """A list with a schema for each place; `rest` is for the places after them."""

    __slots__ = ("_least", "_most", "_nodes", "_rest")
    is_leaf = False
    one_pass = True

    def __init__(
        self,
        schema: dict[str, Any],
        nodes: list[Node],
        rest: Node | None,
        limits: tuple[float, float],
    ) -> None:
        super().__init__(schema)
        self._nodes = nodes
        self._rest = rest
        self._least, self._most = limits

    def check(self, value: Any) -> bool:
        if not isinstance(value, list | tuple):
            return False
        items = cast("list[Any]", value)
        return self._least <= len(items) <= self._most and all(
            node is None or node.check(item) for node, item in self._placed(items)
        )

    def _placed(self, items: list[Any]) -> list[tuple[Node | None, Any]]:
        count = len(self._nodes)
        return [(self._nodes[i] if i < count else self._rest, item) for i, item in enumerate(items)]

    def _invent(self, meter: Meter) -> Any:
        return [node.create(meter) for node in self._nodes]

    def cast(self, value: Any, run: FitPass) -> Any:
        if not isinstance(value, list | tuple) or self.check(value):
            return super().cast(value, run)
        items = cast("list[Any]", value)
        if len(items) > self._most:
            run.note("truncated", items)
            items = items[: int(self._most)]
        wanted = min(self._least, len(self._nodes))
        items = [*items, *[MISSING] * int(wanted - len(items))]
        out: list[Any] = []
        for index, (node, item) in enumerate(self._placed(items)):
            run.path.append(index)
            out.append(item if node is None else node.cast(item, run))
            run.path.pop()
        return out

    def convert(self, value: Any, run: FitPass) -> Any:
        if isinstance(value, list | tuple):
            return _each_item(cast("list[Any]", value), self._nodes, self._rest, "convert", run)
        return parsed(self, value, list, run)

    def strip(self, value: Any, run: FitPass) -> Any:
        if self.also:
            return stripped(self, value, run)
        if isinstance(value, list | tuple):
            return _each_item(cast("list[Any]", value), self._nodes, self._rest, "strip", run)
        return value

    def nodes_of(self, part: str | int) -> list[Node]:
        if isinstance(part, str):
            return super().nodes_of(part)
        own = self._nodes[part] if part < len(self._nodes) else self._rest
        return ([] if own is None else [own]) + super().nodes_of(part)


_differ = jsonschema_rs.validator_for({"uniqueItems": True}, offline=True).is_valid


def _all_differ(items: list[Any]) -> bool:
    try:
        return _differ(items)
    except ValueError:
        return False


def _each_item(
    items: list[Any],
    nodes: list[Node],
    rest: Node | None,
    verb: str,
    run: FitPass,
    *,
    judge: Judge | None = None,
) -> list[Any]:
    """Apply a pass to every item of a list; the same list if nothing changed."""
    out: list[Any] | None = None
    for index, item in enumerate(items):
        if judge is not None and judge(item):
            continue
        node = nodes[index] if index < len(nodes) else rest
        if node is None:
            break
        run.path.append(index)
        new = getattr(node, verb)(item, run)
        run.path.pop()
        if new is not item:
            if out is None:
                out = list(items)
            out[index] = new
    return items if out is None else out
