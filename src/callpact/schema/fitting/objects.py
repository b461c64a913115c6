"""The kinds of schema that speak of keys: objects, records, and several schemas at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from callpact.errors import CastError
from callpact.schema.fitting.scalars import (
    MISSING,
    FitPass,
    Literal,
    Meter,
    Node,
    Unknown,
    number,
    parsed,
)
from callpact.schema.values import same

if TYPE_CHECKING:
    from collections.abc import Callable

_UNKNOWN = Unknown({})


class Object(Node):
    """An object with named properties, or (without any) with whatever it holds."""

    __slots__ = (
        "_closed",
        "_is_open",
        "_items",
        "_least",
        "_most",
        "_required",
        "_typeless",
        "patterns",
        "properties",
        "rest",
    )
    is_leaf = False
    one_pass = True

    def __init__(
        self,
        schema: dict[str, Any],
        properties: dict[str, Node],
        patterns: list[tuple[Any, Node]],
        rest: Node | None,
    ) -> None:
        super().__init__(schema)
        self.properties = properties
        self.patterns = patterns
        self.rest = rest
        self._typeless = "type" not in schema
        self._closed = schema.get("additionalProperties") is False
        self._is_open = "properties" not in schema and not patterns and not self._closed
        self._required = frozenset(cast("list[str]", schema.get("required") or ()))
        # A key that is required without a schema of its own is of unknown type, or as the rest.
        undeclared = [
            key for key in dict.fromkeys(schema.get("required") or ()) if key not in properties
        ]
        self._items = [(key, node, key in self._required) for key, node in properties.items()]
        self._items += [(key, self.other(key) or _UNKNOWN, True) for key in undeclared]
        self._least = number(schema, "minProperties", 0)
        self._most = number(schema, "maxProperties", math.inf)

    @property
    def is_bare(self) -> bool:
        """True if no key is named, by name, pattern or rest."""
        return not self.properties and not self.patterns and self.rest is None

    def check(self, value: Any) -> bool:
        if not isinstance(value, dict):
            # `properties` without `type` speaks of objects only.
            return self._typeless and value is not MISSING
        return self._frame_fits(cast("Any", value)) and all(
            node.check(value[key]) if key in value else not must for key, node, must in self._items
        )

    def _frame_fits(self, value: dict[str, Any]) -> bool:
        if not self._least <= len(value) <= self._most or not self._required <= value.keys():
            return False
        if self.rest is None and not self._closed and not self.patterns:
            return True
        return all(self._other_fits(key, value[key]) for key in value if key not in self.properties)

    def _other_fits(self, key: str, value: Any) -> bool:
        node = self.other(key)
        return not self._closed if node is None else node.check(value)

    def other(self, key: str) -> Node | None:
        """The schema of a key that is not among the properties."""
        for matches, node in self.patterns:
            if matches(key):
                return node
        return self.rest

    def _invent(self, meter: Meter) -> Any:
        meter.spend()
        return {key: node.create(meter) for key, node, must in self._items if must}

    def cast(self, value: Any, run: FitPass) -> Any:
        if not isinstance(value, dict | list | tuple) or (self._typeless and self.check(value)):
            return super().cast(value, run)
        held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        failed = not isinstance(value, dict) or not self._frame_fits(held)
        path, out = run.path, cast("dict[str, Any]", {})
        for key, node, must in self._items:
            item = held.get(key, MISSING)
            if item is MISSING:
                if not must:
                    continue
            elif not node.one_pass and node.check(item):
                out[key] = item
                continue
            path.append(key)
            out[key] = new = node.cast(item, run)
            path.pop()
            failed = failed or not node.one_pass or new is not item
        if not failed:
            return cast("Any", value)
        if not isinstance(value, dict):
            run.note("replaced", value, invented=True)
        self._cast_others(held, out, run)
        return out

    def _cast_others(self, held: dict[str, Any], out: dict[str, Any], run: FitPass) -> None:
        keeps_all = self._is_open
        for key, item in held.items():
            if key in out or key in self.properties:
                continue
            node = self.other(key)
            if node is not None:
                run.path.append(key)
                out[key] = node.cast(item, run)
                run.path.pop()
            elif keeps_all or (self.also and self._is_known(key, held)):
                out[key] = item
            else:
                run.note_at(key, "stripped", item)

    def _is_known(self, key: str, held: dict[str, Any]) -> bool:
        known = self.keys(held)
        return known is None or key in known

    def convert(self, value: Any, run: FitPass) -> Any:
        if isinstance(value, dict):
            return each_key(cast("dict[str, Any]", value), self._asserted, "convert", run)
        return parsed(self, value, dict, run)

    def strip(self, value: Any, run: FitPass) -> Any:
        return stripped(self, value, run)

    def nodes_of(self, part: str | int) -> list[Node]:
        found = self._asserted(part) if isinstance(part, str) else []
        return found + super().nodes_of(part) if self.also else found

    def _asserted(self, key: str) -> list[Node]:
        """Every schema that the value under a key must keep."""
        own = self.properties.get(key)
        found = [] if own is None else [own]
        if self.patterns:
            found.extend(node for matches, node in self.patterns if matches(key))
        if not found and self.rest is not None:
            found.append(self.rest)
        return found

    def _keys(self, value: Any) -> set[str] | None:
        if self.rest is not None:
            return None
        if not self.properties and not self.patterns and not self._closed:
            return None
        known = {*self.properties, *self._required}
        if self.patterns and isinstance(value, dict):
            keys = cast("dict[str, Any]", value)
            known.update(key for key in keys if self.other(key) is not None)
        return known

    def score(self, value: Any) -> int:
        if not isinstance(value, dict | list | tuple):
            return super().score(value)
        held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        total = 0
        for key, node in self.properties.items():
            item = held.get(key, MISSING)
            if item is MISSING:
                total += 10 if isinstance(node, Unknown) else 0
            elif node.check(item):
                total += 111 if isinstance(node, Literal) else 11
            else:
                total += 1
        return total


class PatternObject(Object):
    """An object whose keys are declared by patterns alone; a cast reaches every value."""

    __slots__ = ()

    def _invent(self, meter: Meter) -> Any:
        del meter
        return {}

    def cast(self, value: Any, run: FitPass) -> Any:
        if self.check(value) or not isinstance(value, dict):
            return Node.cast(self, value, run)
        first = self.patterns[0][1]
        out: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            run.path.append(key)
            out[key] = (self._matched(key) or first).cast(item, run)
            run.path.pop()
        return out

    def _matched(self, key: str) -> Node | None:
        return next((node for matches, node in self.patterns if matches(key)), None)

    def score(self, value: Any) -> int:
        return Node.score(self, value)


class Intersect(Node):
    """Several schemas that hold at once (`allOf`, or different keywords side by side)."""

    __slots__ = ("_rest", "parts")
    is_leaf = False

    def __init__(self, schema: dict[str, Any], parts: list[Node], rest: Node | None = None) -> None:
        super().__init__(schema)
        self.parts = parts
        self._rest = rest
        """The node of `unevaluatedProperties`; None without it."""

    def check(self, value: Any) -> bool:
        if not all(part.check(value) for part in self.parts):
            return False
        if self._rest is None or not isinstance(value, dict):
            return True
        held = cast("dict[str, Any]", value)
        evaluated: set[str] = set()
        for part in self.parts:
            # For `strip` an object that names no key keeps all of them; it evaluates none.
            known = set[str]() if isinstance(part, Object) and part.is_bare else part.keys(held)
            if known is None:
                return True
            evaluated |= known
        return all(self._rest.check(held[key]) for key in held.keys() - evaluated)

    def _invent(self, meter: Meter) -> Any:
        made: Any = {}
        for part in self.parts:
            new = part.create(meter)
            both = isinstance(new, dict) and isinstance(made, dict)
            made = cast("Any", {**made, **new} if both else new)
        if not self.check(made):
            raise CastError("allOf asks for what no invented value fulfils; give it a default")
        return made

    def cast(self, value: Any, run: FitPass) -> Any:
        if self.check(value):
            return value
        made = self._made(run)
        if value is MISSING:
            self._note_made(value, run)
            return made
        laid = _overlay(made, value)
        new = laid if self.check(laid) else made
        _note_difference(value, new, run)
        return new

    def convert(self, value: Any, run: FitPass) -> Any:
        for part in self.parts:
            value = part.convert(value, run)
        return value

    def strip(self, value: Any, run: FitPass) -> Any:
        return stripped(self, value, run)

    def nodes_of(self, part: str | int) -> list[Node]:
        found = [node for inner in self.parts for node in inner.nodes_of(part)]
        return found + super().nodes_of(part)

    def _keys(self, value: Any) -> set[str] | None:
        found: set[str] = set()
        for part in self.parts:
            known = part.keys(value)
            if known is None:
                return None
            found |= known
        return found or None


class Declared(Node):
    """Keywords that declare keys and items beside any kind: they neither cast nor convert."""

    __slots__ = ("_first", "_items", "_names", "_rest")

    def __init__(
        self, names: set[str], rest: Node | None, first: list[Node], items: list[Node]
    ) -> None:
        super().__init__({})
        self._names = names
        self._rest = rest
        """The schema of all other keys; None if others are not declared."""
        self._first = first
        """The schemas of the first items, one for each."""
        self._items = items
        """The schemas of any item."""

    def _keys(self, value: Any) -> set[str] | None:
        del value
        return None if self._rest is not None else set(self._names)

    def nodes_of(self, part: str | int) -> list[Node]:
        if isinstance(part, str):
            return [] if self._rest is None else [self._rest]
        return self._first[part : part + 1] + self._items


def stripped(node: Node, value: Any, run: FitPass) -> Any:
    """A value without what no schema of its place declares, at every level."""
    if isinstance(value, dict):
        held = kept(cast("dict[str, Any]", value), node.keys(cast("Any", value)), run)
        return each_key(held, node.nodes_of, "strip", run)
    if isinstance(value, list | tuple):
        return _each_index(cast("list[Any]", value), node, run)
    return value


def _each_index(items: list[Any], node: Node, run: FitPass) -> list[Any]:
    out: list[Any] | None = None
    for index, item in enumerate(items):
        nodes = node.nodes_of(index)
        if not item or all(inner.is_leaf for inner in nodes):
            continue
        run.path.append(index)
        new = _joined(nodes).strip(item, run)
        run.path.pop()
        if new is not item:
            if out is None:
                out = list(items)
            out[index] = new
    return items if out is None else out


def _joined(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Intersect({}, nodes)


def _overlay(made: Any, value: Any) -> Any:
    """TypeBox's overlay: the keys of what was made, with what the value has to say of them."""
    made_holds, value_holds = isinstance(made, dict | list), isinstance(value, dict | list | tuple)
    if made_holds != value_holds:
        return made
    if not made_holds:
        return value
    base, over = _entries(made), _entries(value)
    return {key: _overlay(item, over[key]) if key in over else item for key, item in base.items()}


def _entries(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {str(index): item for index, item in enumerate(cast("list[Any]", value))}


def _note_difference(before: Any, after: Any, run: FitPass) -> None:
    """Record what an overlay changed, key by key."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        if not same(before, after):
            run.note("replaced", before, invented=True)
        return
    old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
    for key, item in old.items():
        if key not in new:
            run.note_at(key, "stripped", item)
    for key, item in new.items():
        run.path.append(key)
        if key in old:
            _note_difference(old[key], item, run)
        else:
            run.note("filled", invented=True)
        run.path.pop()


def kept(held: dict[str, Any], keys: set[str] | None, run: FitPass) -> dict[str, Any]:
    """An object without the keys that are not known; the same object if all are."""
    if keys is None or held.keys() <= keys:
        return held
    for key, item in held.items():
        if key not in keys:
            run.note_at(key, "stripped", item)
    return {key: item for key, item in held.items() if key in keys}


def each_key(
    held: dict[str, Any], nodes_of: Callable[[str], list[Node]], verb: str, run: FitPass
) -> dict[str, Any]:
    """Apply a pass to every value of an object; the same object if nothing changed."""
    out: dict[str, Any] | None = None
    for key, item in held.items():
        nodes = nodes_of(key)
        if not nodes or (verb == "strip" and (not item or all(node.is_leaf for node in nodes))):
            continue
        run.path.append(key)
        new = getattr(_joined(nodes), verb)(item, run)
        run.path.pop()
        if new is not item:
            if out is None:
                out = dict(held)
            out[key] = new
    return held if out is None else out
