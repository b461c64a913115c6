"""The kinds of schema that `convert`, `cast` and `strip` know, as a tree of small nodes.

Seed 001 casts with TypeBox's `Value.Cast`; this is that algorithm over JSON Schema, kind by kind
(which value is left alone, which is created anew, which variant of a union is meant). It judges
values by TypeBox's rules, not by JSON Schema's: the validator proper stands in `compiled.py`.
"""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import jsonschema_rs
from msgspec import Struct

from callpact.errors import CastError, InvalidSchema
from callpact.schema.document import Document, pointer, resolve
from callpact.schema.lossless import converted

MAX_INVENTED = 10_000
"""Items or characters that a cast may have to invent for one `minItems` or `minLength`."""
_MAX_STEPS = 200_000
MISSING: Any = object()


class Change(Struct, frozen=True, omit_defaults=True):
    """One thing that was done to a value: where, what, and what stood there before."""

    path: str
    action: str
    """converted | filled | replaced | stripped | padded | truncated"""
    before: Any = None
    invented: bool = False
    """True if the value that stands there now comes from nowhere: not converted, no default."""


class Run:
    """One pass over a value: where it is, and what it has changed."""

    __slots__ = ("changes", "json_text", "path")

    def __init__(self, *, json_text: bool = False) -> None:
        self.path: list[str | int] = []
        self.changes: list[Change] = []
        self.json_text = json_text

    def note(self, action: str, before: Any = None, *, invented: bool = False) -> None:
        """Record a change of the value at the current place."""
        self.changes.append(Change(pointer(self.path), action, before, invented))


class Node:
    """A schema that says nothing: every value is as it should be."""

    __slots__ = ("default",)
    is_leaf = True
    one_pass = False
    """True if `cast` tells by itself, in one pass, whether the value checks: it returns it as is."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.default = schema.get("default", MISSING)

    def check(self, value: Any) -> bool:
        return value is not MISSING

    def create(self) -> Any:
        """A value of this kind, from nothing. Raises CastError if there is none."""
        if self.default is not MISSING:
            return copy.deepcopy(self.default)
        return self._invent()

    def _invent(self) -> Any:
        return {}

    def cast(self, value: Any, run: Run) -> Any:
        if self.check(value):
            return value
        if value is MISSING:
            run.note("filled", invented=self.default is MISSING)
        else:
            run.note("replaced", value, invented=True)
        return self._made(run)

    def _made(self, run: Run) -> Any:
        try:
            return self.create()
        except CastError as error:
            raise CastError(error.message, pointer(run.path)) from None

    def convert(self, value: Any, run: Run) -> Any:
        del run
        return value

    def strip(self, value: Any, run: Run) -> Any:
        del run
        return value

    def score(self, value: Any) -> int:
        return 1 if self.check(value) else 0

    def keys(self, value: Any) -> set[str] | None:
        """The keys an object may have; None for any."""
        del value
        return set()


class Unknown(Node):
    """No keyword that the cast knows. A missing one is written as null (TypeBox: undefined)."""

    __slots__ = ()

    def cast(self, value: Any, run: Run) -> Any:
        if value is not MISSING:
            return value
        run.note("filled", invented=True)
        return None


class _Scalar(Node):
    __slots__ = ("type",)

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self.type: str = schema["type"]

    def convert(self, value: Any, run: Run) -> Any:
        new = converted(value, self.type)
        if new is value:
            return value
        run.note("converted", value)
        return new


class String(_Scalar):
    __slots__ = ("_longest", "_matches", "_shortest")

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self._shortest: int = schema.get("minLength", 0)
        self._longest: float = schema.get("maxLength", math.inf)
        pattern = schema.get("pattern")
        self._matches: Any = None
        if pattern is not None:
            rule = {"type": "string", "pattern": pattern}
            try:
                self._matches = jsonschema_rs.validator_for(rule, offline=True).is_valid
            except (ValueError, jsonschema_rs.ValidationError):
                raise InvalidSchema(f"{pattern!r} is not a pattern") from None

    def check(self, value: Any) -> bool:
        return (
            type(value) is str
            and self._shortest <= len(value) <= self._longest
            and (self._matches is None or self._matches(value))
        )

    def _invent(self) -> Any:
        if self._matches is not None:
            raise CastError("a string with a pattern cannot be invented; give it a default")
        return " " * _bounded(self._shortest, "minLength")


class Number(_Scalar):
    __slots__ = ("_above", "_below", "_least", "_most", "_step", "_whole")

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self._whole = schema["type"] == "integer"
        self._least = schema.get("minimum")
        self._most = schema.get("maximum")
        self._above = schema.get("exclusiveMinimum")
        self._below = schema.get("exclusiveMaximum")
        self._step = schema.get("multipleOf")

    def check(self, value: Any) -> bool:
        kind = type(value)
        if kind is float:
            if not math.isfinite(value) or (self._whole and not value.is_integer()):
                return False
        elif kind is not int:
            return False
        return (
            (self._least is None or value >= self._least)
            and (self._most is None or value <= self._most)
            and (self._above is None or value > self._above)
            and (self._below is None or value < self._below)
            and (self._step is None or _is_multiple(value, self._step))
        )

    def _invent(self) -> Any:
        return 0 if self._least is None else self._least


class Boolean(_Scalar):
    __slots__ = ()

    def check(self, value: Any) -> bool:
        return value is True or value is False

    def _invent(self) -> Any:
        return False


class Null(_Scalar):
    __slots__ = ()

    def check(self, value: Any) -> bool:
        return value is None

    def _invent(self) -> Any:
        return None


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self.value = schema["const"]

    def check(self, value: Any) -> bool:
        return value is not MISSING and same(value, self.value)

    def _invent(self) -> Any:
        return copy.deepcopy(self.value)

    def convert(self, value: Any, run: Run) -> Any:
        if isinstance(value, str) and not isinstance(self.value, str):
            kind = "boolean" if isinstance(self.value, bool) else "number"
            if same(converted(value, kind), self.value):
                run.note("converted", value)
                return self.value
        return value


class Never(Node):
    __slots__ = ()

    def check(self, value: Any) -> bool:
        del value
        return False

    def cast(self, value: Any, run: Run) -> Any:
        del value
        raise CastError("no value is allowed here", pointer(run.path))

    def _invent(self) -> Any:
        raise CastError("no value is allowed here")


class Not(Node):
    __slots__ = ("_excluded",)

    def __init__(self, schema: dict[str, Any], excluded: Node) -> None:
        super().__init__(schema)
        self._excluded = excluded

    def check(self, value: Any) -> bool:
        return value is not MISSING and not self._excluded.check(value)

    def _invent(self) -> Any:
        raise CastError("a value that is defined by 'not' cannot be invented; give it a default")


class Object(Node):
    """An object with named properties, or (without any) with whatever it holds."""

    __slots__ = (
        "_closed",
        "_items",
        "_least",
        "_most",
        "_required",
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
        patterns: dict[str, tuple[Any, Node]],
        rest: Node | None,
    ) -> None:
        super().__init__(schema)
        self.properties = properties
        self.patterns = patterns
        self.rest = rest
        self._closed = schema.get("additionalProperties") is False
        required = schema.get("required") or ()
        self._required = frozenset(required)
        self._items = [(key, node, key in self._required) for key, node in properties.items()]
        self._least: int = schema.get("minProperties", 0)
        self._most: float = schema.get("maxProperties", math.inf)

    def check(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        return self._size_fits(value) and all(  # pyright: ignore[reportUnknownArgumentType] - JSON
            node.check(value[key]) if key in value else not must for key, node, must in self._items
        )

    def _size_fits(self, value: dict[str, Any]) -> bool:
        if not self._least <= len(value) <= self._most:
            return False
        if self.rest is None and not self._closed and not self.patterns:
            return self._required <= value.keys()
        return self._required <= value.keys() and all(
            self._other_fits(key, value[key]) for key in value if key not in self.properties
        )

    def _other_fits(self, key: str, value: Any) -> bool:
        node = self.other(key)
        return not self._closed if node is None else node.check(value)

    def other(self, key: str) -> Node | None:
        """The schema of a key that is not among the properties."""
        for matches, node in self.patterns.values():
            if matches(key):
                return node
        return self.rest

    def _invent(self) -> Any:
        return {key: node.create() for key, node, must in self._items if must}

    def cast(self, value: Any, run: Run) -> Any:
        if not isinstance(value, dict | list):
            return super().cast(value, run)
        held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        failed = isinstance(value, list) or not self._size_fits(held)
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
            return value
        if isinstance(value, list):
            run.note("replaced", value, invented=True)
        self._cast_others(held, out, run)
        return out

    def _cast_others(self, held: dict[str, Any], out: dict[str, Any], run: Run) -> None:
        for key, item in held.items():
            if key in self.properties:
                continue
            run.path.append(key)
            if self.rest is None:
                run.note("stripped", item)
            else:
                out[key] = self.rest.cast(item, run)
            run.path.pop()

    def convert(self, value: Any, run: Run) -> Any:
        if isinstance(value, dict):
            return _each_key(cast("dict[str, Any]", value), self._node_of, "convert", run)
        return _parsed(self, value, dict, run)

    def _node_of(self, key: str) -> Node | None:
        node = self.properties.get(key)
        return self.other(key) if node is None else node

    def strip(self, value: Any, run: Run) -> Any:
        if not isinstance(value, dict):
            return value
        held = cast("dict[str, Any]", value)
        kept = self.keys(held)
        if kept is not None and not held.keys() <= kept:
            for key in held.keys() - kept:
                run.path.append(key)
                run.note("stripped", held[key])
                run.path.pop()
            held = {key: item for key, item in held.items() if key in kept}
        return _each_key(held, self._node_of, "strip", run)

    def keys(self, value: Any) -> set[str] | None:
        if self.rest is not None or (not self.properties and not self._closed):
            return None
        matched = {key for key in value if self.other(key) is not None} if self.patterns else set()
        return set(self.properties) | cast("set[str]", matched)

    def score(self, value: Any) -> int:
        if not isinstance(value, dict | list):
            return super().score(value)
        held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        total = 0
        for key, node in self.properties.items():
            item = held.get(key, MISSING)
            if item is MISSING:
                total += 10 if isinstance(node, Unknown) else 0
                continue
            total += 1 + (10 if node.check(item) else 0)
            total += 100 if isinstance(node, Literal) and node.check(item) else 0
        return total


class Record(Object):
    """An object whose keys are told by patterns alone; a cast reaches every value."""

    __slots__ = ()

    def _invent(self) -> Any:
        return {}

    def cast(self, value: Any, run: Run) -> Any:
        if self.check(value) or not isinstance(value, dict):
            return Node.cast(self, value, run)
        node = next(iter(self.patterns.values()))[1]
        out: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            run.path.append(key)
            out[key] = node.cast(item, run)
            run.path.pop()
        return out

    def score(self, value: Any) -> int:
        return Node.score(self, value)


class Array(Node):
    __slots__ = (
        "_contains",
        "_contains_least",
        "_contains_most",
        "_item",
        "_least",
        "_most",
        "_unique",
    )
    is_leaf = False
    one_pass = True

    def __init__(self, schema: dict[str, Any], item: Node, contains: Node | None) -> None:
        super().__init__(schema)
        self._item = item
        self._contains = contains
        self._contains_least: int = schema.get("minContains", 1)
        self._contains_most: float = schema.get("maxContains", math.inf)
        self._least: int = schema.get("minItems", 0)
        self._most: float = schema.get("maxItems", math.inf)
        self._unique = schema.get("uniqueItems") is True

    def check(self, value: Any) -> bool:
        return self._frame_fits(value) and all(map(self._item.check, value))

    def _frame_fits(self, value: Any) -> bool:
        if not isinstance(value, list):
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

    def _invent(self) -> Any:
        if self._unique or self._contains is not None:
            raise CastError("an array with uniqueItems or contains cannot be invented")
        return [self._item.create() for _ in range(_bounded(self._least, "minItems"))]

    def cast(self, value: Any, run: Run) -> Any:
        if not isinstance(value, list):
            return super().cast(value, run)
        items = cast("list[Any]", value)
        failed = not self._frame_fits(items)
        if failed:
            items = self._sized(items, run)
        item_node, path = self._item, run.path
        check = None if item_node.one_pass else item_node.check
        out: list[Any] = []
        for index, item in enumerate(items):
            if check is not None and check(item):
                out.append(item)
                continue
            path.append(index)
            new = item_node.cast(item, run)
            path.pop()
            failed = failed or check is not None or new is not item
            out.append(new)
        if not failed:
            return cast("Any", value)
        return self._made_unique(out, run) if self._unique else out

    def _sized(self, items: list[Any], run: Run) -> list[Any]:
        if len(items) < self._least:
            run.note("padded", len(items), invented=True)
            return items + [None] * (_bounded(self._least, "minItems") - len(items))
        if len(items) > self._most:
            run.note("truncated", len(items))
            return items[: int(self._most)]
        return items

    def _made_unique(self, items: list[Any], run: Run) -> list[Any]:
        seen: set[Any] = set()
        out: list[Any] = []
        for item in items:
            if isinstance(item, dict | list):
                out.append(item)
            elif (type(item) is bool, item) not in seen:
                seen.add((type(item) is bool, item))
                out.append(item)
        if len(out) < len(items):
            run.note("truncated", len(items))
        if not self.check(out):
            raise CastError("the items cannot be made unique", pointer(run.path))
        return out

    def convert(self, value: Any, run: Run) -> Any:
        if isinstance(value, list):
            return _each_item(cast("list[Any]", value), [], self._item, "convert", run)
        return _parsed(self, value, list, run)

    def strip(self, value: Any, run: Run) -> Any:
        if isinstance(value, list):
            return _each_item(cast("list[Any]", value), [], self._item, "strip", run)
        return value


class Tuple(Node):
    __slots__ = ("_nodes",)
    is_leaf = False
    one_pass = True

    def __init__(self, schema: dict[str, Any], nodes: list[Node]) -> None:
        super().__init__(schema)
        self._nodes = nodes

    def check(self, value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(cast("list[Any]", value)) == len(self._nodes)
            and all(node.check(item) for node, item in zip(self._nodes, value, strict=True))  # pyright: ignore[reportUnknownArgumentType] - JSON
        )

    def _invent(self) -> Any:
        return [node.create() for node in self._nodes]

    def cast(self, value: Any, run: Run) -> Any:
        if self.check(value) or not isinstance(value, list):
            return super().cast(value, run)
        items = cast("list[Any]", value)
        if len(items) > len(self._nodes):
            run.note("truncated", len(items))
        out: list[Any] = []
        for index, node in enumerate(self._nodes):
            run.path.append(index)
            out.append(node.cast(items[index] if index < len(items) else MISSING, run))
            run.path.pop()
        return out

    def convert(self, value: Any, run: Run) -> Any:
        if isinstance(value, list):
            return _each_item(cast("list[Any]", value), self._nodes, None, "convert", run)
        return _parsed(self, value, list, run)

    def strip(self, value: Any, run: Run) -> Any:
        if isinstance(value, list):
            return _each_item(cast("list[Any]", value), self._nodes, None, "strip", run)
        return value


class Union(Node):
    __slots__ = ("variants",)
    is_leaf = False

    def __init__(self, schema: dict[str, Any], variants: list[Node]) -> None:
        super().__init__(schema)
        self.variants = variants

    def check(self, value: Any) -> bool:
        return any(variant.check(value) for variant in self.variants)

    def _invent(self) -> Any:
        return self.variants[0].create()

    def cast(self, value: Any, run: Run) -> Any:
        if self.check(value):
            return value
        if self.default is not MISSING:
            run.note("filled" if value is MISSING else "replaced", _known(value), invented=True)
            return copy.deepcopy(self.default)
        return self.best(value).cast(value, run)

    def best(self, value: Any, among: list[Node] | None = None) -> Node:
        """The variant that the value most likely means."""
        variants = among or self.variants
        scores = [variant.score(value) for variant in variants]
        return variants[scores.index(max(scores))]

    def score(self, value: Any) -> int:
        return max(variant.score(value) for variant in self.variants)

    def convert(self, value: Any, run: Run) -> Any:
        if self.check(value):
            return value
        for variant in self.variants:
            trial = Run(json_text=run.json_text)
            trial.path = run.path
            new = variant.convert(value, trial)
            if variant.check(new):
                run.changes.extend(trial.changes)
                return new
        return self.best(value).convert(value, run)

    def strip(self, value: Any, run: Run) -> Any:
        accepting = [variant for variant in self.variants if variant.check(value)]
        return self.best(value, accepting).strip(value, run)

    def keys(self, value: Any) -> set[str] | None:
        return self.best(value).keys(value)


class Intersect(Node):
    __slots__ = ("_rest", "parts")
    is_leaf = False

    def __init__(self, schema: dict[str, Any], parts: list[Node], rest: Node | None) -> None:
        super().__init__(schema)
        self.parts = parts
        self._rest = rest
        """What `unevaluatedProperties` says: None for nothing."""

    def check(self, value: Any) -> bool:
        if not all(part.check(value) for part in self.parts):
            return False
        if self._rest is None or not isinstance(value, dict):
            return True
        known = self.keys(cast("Any", value))
        others = cast("set[str]", set() if known is None else value.keys() - known)
        return all(self._rest.check(value[key]) for key in others)

    def _invent(self) -> Any:
        made: Any = {}
        for part in self.parts:
            new = part.create()
            both = isinstance(new, dict) and isinstance(made, dict)
            made = {**made, **new} if both else new
        if not self.check(made):
            raise CastError("allOf asks for what no invented value fulfils; give it a default")
        return made

    def cast(self, value: Any, run: Run) -> Any:
        if self.check(value):
            return value
        made = self._made(run)
        laid = _overlay(made, value) if value is not MISSING else made
        fits = self.check(laid)
        missing = value is MISSING
        run.note("filled" if missing else "replaced", _known(value), invented=True)
        return laid if fits else made

    def convert(self, value: Any, run: Run) -> Any:
        for part in self.parts:
            value = part.convert(value, run)
        return value

    def strip(self, value: Any, run: Run) -> Any:
        if not isinstance(value, dict):
            return value
        held = cast("dict[str, Any]", value)
        kept = self.keys(held)
        if kept is not None and not held.keys() <= kept:
            for key in held.keys() - kept:
                run.path.append(key)
                run.note("stripped", held[key])
                run.path.pop()
            held = {key: item for key, item in held.items() if key in kept}
        return _each_key(held, self._node_of, "strip", run)

    def _node_of(self, key: str) -> Node | None:
        for part in self.parts:
            node = part.target if isinstance(part, Ref) else part
            if isinstance(node, Object) and key in node.properties:
                return node.properties[key]
            if isinstance(node, Intersect) and (found := node._node_of(key)) is not None:  # noqa: SLF001 - same class
                return found
        return None

    def keys(self, value: Any) -> set[str] | None:
        found: set[str] = set()
        for part in self.parts:
            known = part.keys(value)
            if known is None:
                return None
            found |= known
        return found or None


class Ref(Node):
    """A reference, resolved when it is first followed; its steps are counted."""

    __slots__ = ("_reader", "_schema", "_target")
    is_leaf = False

    def __init__(self, schema: dict[str, Any], reader: Reader) -> None:
        super().__init__(schema)
        self._schema = schema
        self._reader = reader
        self._target: Node | None = None

    @property
    def target(self) -> Node:
        self._reader.step()
        if self._target is None:
            self._target = self._reader.read_reference(self._schema["$ref"])
        return self._target

    def check(self, value: Any) -> bool:
        return self.target.check(value)

    def _invent(self) -> Any:
        return self.target.create()

    def cast(self, value: Any, run: Run) -> Any:
        return self.target.cast(value, run)

    def convert(self, value: Any, run: Run) -> Any:
        return self.target.convert(value, run)

    def strip(self, value: Any, run: Run) -> Any:
        return self.target.strip(value, run)

    def score(self, value: Any) -> int:
        return self.target.score(value)

    def keys(self, value: Any) -> set[str] | None:
        return self.target.keys(value)


class Reader:
    """Reads a schema document into nodes."""

    def __init__(self, document: Document, *, keep_open: bool = False) -> None:
        self._document = document
        self._keep_open = keep_open
        self._known: dict[str, Node] = {}
        self._ids: dict[str, Any] | None = None
        self._steps = 0
        self.root = self.read(document)

    def restart(self) -> Node:
        """The root node, with the count of steps set back."""
        self._steps = 0
        return self.root

    def step(self) -> None:
        """Count one reference followed; recursive schemas may not cost without end."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise CastError("the schema's references multiply beyond what a cast may follow")

    def read_reference(self, reference: str) -> Node:
        node = self._known.get(reference)
        if node is None:
            target = resolve(self._document, reference)
            if target is None:
                target = self._by_id(reference)
            if target is None:
                raise CastError(f"the reference {reference!r} names nothing in this schema")
            node = self._known[reference] = self.read(target)
        return node

    def _by_id(self, reference: str) -> Any:
        if self._ids is None:
            self._ids = {}
            stack: list[Any] = [self._document]
            while stack:
                item = stack.pop()
                if isinstance(item, dict):
                    schema = cast("dict[str, Any]", item)
                    if isinstance(schema.get("$id"), str):
                        self._ids[schema["$id"]] = schema
                    stack.extend(schema.values())
                elif isinstance(item, list):
                    stack.extend(cast("list[Any]", item))
        return self._ids.get(reference)

    def read(self, document: Any) -> Node:
        if document is False:
            return Never({})
        if not isinstance(document, dict):
            return Unknown({})
        schema = cast("dict[str, Any]", document)
        if "$ref" in schema:
            return Ref(schema, self)
        variants = self._variants(schema)
        if variants is not None:
            union = Union(schema, [self.read(variant) for variant in variants] or [Never({})])
            return self._beside(schema, union)
        if "allOf" in schema:
            parts = [self.read(part) for part in schema["allOf"]]
            if "properties" in schema:
                parts.append(self._object(schema))
            others = schema.get("unevaluatedProperties")
            return Intersect(schema, parts, Never({}) if others is False else self._rest(others))
        if "not" in schema:
            excluded = schema["not"]
            always = excluded is True or excluded == {}
            return Never(schema) if always else Not(schema, self.read(excluded))
        if "const" in schema:
            return Literal(schema)
        return self._typed(schema)

    def _variants(self, schema: dict[str, Any]) -> list[Any] | None:
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return schema[keyword]
        if "enum" in schema:
            return [{"const": value} for value in schema["enum"]]
        types = schema.get("type")
        if isinstance(types, list):
            names = cast("list[str]", types)
            return [{**_without_default(schema), "type": name} for name in names]
        return None

    def _beside(self, schema: dict[str, Any], union: Union) -> Node:
        """A union with properties of its own beside it asks for both."""
        if "properties" not in schema or isinstance(schema.get("type"), list):
            return union
        return Intersect(schema, [union, self._object(schema)], None)

    def _typed(self, schema: dict[str, Any]) -> Node:
        kind = schema.get("type")
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return String(schema)
        if kind in ("number", "integer"):
            return Number(schema)
        if kind == "boolean":
            return Boolean(schema)
        if kind == "null":
            return Null(schema)
        return Unknown(schema)

    def _object(self, schema: dict[str, Any]) -> Object:
        properties = {key: self.read(sub) for key, sub in schema.get("properties", {}).items()}
        patterns: dict[str, tuple[Any, Node]] = {}
        for pattern, sub in schema.get("patternProperties", {}).items():
            patterns[pattern] = (
                String({"type": "string", "pattern": pattern}).check,
                self.read(sub),
            )
        rest = self._rest(schema.get("additionalProperties"))
        kind = Record if patterns and "properties" not in schema else Object
        return kind(schema, properties, patterns, rest)

    def _rest(self, schema: Any) -> Node | None:
        if isinstance(schema, dict) or (schema is True and self._keep_open):
            return self.read(schema)
        return None

    def _array(self, schema: dict[str, Any]) -> Node:
        items = schema.get("prefixItems", schema.get("items"))
        if isinstance(items, list):
            return Tuple(schema, [self.read(item) for item in cast("list[Any]", items)])
        contains = self.read(schema["contains"]) if "contains" in schema else None
        return Array(schema, self.read(items), contains)


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        a, b = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(left, list) and isinstance(right, list):
        c, d = cast("list[Any]", left), cast("list[Any]", right)
        return len(c) == len(d) and all(map(same, c, d))
    return (type(left) is type(right) and left == right) or (
        _is_number(left, right) and left == right
    )


def _is_number(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _is_multiple(value: float, step: float) -> bool:
    try:
        return (value / step).is_integer() if isinstance(step, float) else value % step == 0
    except (OverflowError, ZeroDivisionError):
        return False


def _bounded(count: int, keyword: str) -> int:
    if count > MAX_INVENTED:
        raise CastError(f"{keyword} asks for {count:,}; at most {MAX_INVENTED:,} are invented")
    return count


def _all_differ(items: list[Any]) -> bool:
    rule = {"uniqueItems": True}
    try:
        return jsonschema_rs.is_valid(rule, items, offline=True)
    except ValueError:
        return False


def _known(value: Any) -> Any:
    return None if value is MISSING else value


def _without_default(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "default"}


def _overlay(made: Any, value: Any) -> Any:
    """TypeBox's overlay: the keys of what was made, with what the value has to say of them."""
    made_holds, value_holds = isinstance(made, dict | list), isinstance(value, dict | list)
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


def _each_key(held: dict[str, Any], node_of: Any, verb: str, run: Run) -> dict[str, Any]:
    """Apply a pass to every value of an object; the same object if nothing changed."""
    out: dict[str, Any] | None = None
    for key, item in held.items():
        node = node_of(key)
        if node is None or (verb == "strip" and node.is_leaf):
            continue
        run.path.append(key)
        new = getattr(node, verb)(item, run)
        run.path.pop()
        if new is not item:
            if out is None:
                out = dict(held)
            out[key] = new
    return held if out is None else out


def _each_item(
    items: list[Any], nodes: list[Node], rest: Node | None, verb: str, run: Run
) -> list[Any]:
    """Apply a pass to every item of a list; the same list if nothing changed."""
    if rest is not None and verb == "strip" and rest.is_leaf:
        return items
    out: list[Any] | None = None
    for index, item in enumerate(items):
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


def _parsed(node: Node, value: Any, kind: type, run: Run) -> Any:
    """A string that holds the JSON of the array or object that is wanted (tolerant input)."""
    if not run.json_text or not isinstance(value, str):
        return value
    new = converted(value, "object" if kind is dict else "array")
    if new is value:
        return value
    run.note("converted", value)
    return node.convert(new, run)
