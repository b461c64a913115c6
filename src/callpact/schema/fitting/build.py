"""Reads a schema document into the kinds that `convert`, `cast` and `strip` know.

The kind is the first that matches: reference, union, intersect, not, literal, object or record,
array or tuple, scalar, unknown. The nodes are in `scalars.py`, `objects.py`, `arrays.py` and
`unions.py`. Keywords of older drafts are read as those of 2020-12 (`drafts.py`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from callpact.errors import CastError, InvalidSchema
from callpact.schema.document import Document
from callpact.schema.drafts import draft_of, upgraded
from callpact.schema.fitting.arrays import Array, Tuple
from callpact.schema.fitting.objects import Declared, Intersect, Object, PatternObject
from callpact.schema.fitting.scalars import (
    MISSING,
    Boolean,
    Choice,
    FitPass,
    Literal,
    Meter,
    Never,
    Node,
    Not,
    Null,
    Number,
    String,
    Unknown,
    matcher,
    number,
)
from callpact.schema.fitting.unions import Ref, Union
from callpact.schema.json_types import is_array, is_object
from callpact.schema.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable


class Reader:
    """Reads a schema document into nodes.

    `judge_of` makes a quick test of whether a value needs nothing done, by its schema.
    `exact` is for the bare cast of seed 001: tuples have their exact length, and
    `additionalProperties: true` keeps nothing. Otherwise JSON Schema's own meaning is kept.
    """

    def __init__(
        self,
        document: Document,
        *,
        exact: bool = False,
        judge_of: Callable[[dict[str, Any]], Callable[[Any], bool]] | None = None,
    ) -> None:
        self._document = document
        self._exact = exact
        self._judge_of = judge_of
        self._draft = draft_of(document)
        self._targets = Targets(document)
        self._known: dict[int, Node] = {}
        self._meter = Meter()
        self._root: Node | None = None

    def start(self, value: Any, *, json_text: bool = False) -> tuple[Node, FitPass]:
        """The root node and a fresh run for one value."""
        self._meter.start(value)
        if self._root is None:
            self._root = self._read(self._document)
        return self._root, FitPass(self._meter, json_text=json_text)

    def end(self) -> None:
        """Let go of the value."""
        self._meter.end()

    def _read(self, document: Any) -> Node:
        if document is False:
            return Never({})
        if document is True or document is None:
            return Unknown({})
        if not is_object(document):
            raise InvalidSchema(
                f"a schema must be an object or a boolean, got {type(document).__name__}"
            )
        schema = upgraded(document, self._draft)
        parts = [*self._referred(document), *self._combined(schema)]
        if self._exact:
            return self._one_of_kinds(schema, parts)
        loud = [part for part in parts if not _only_declares(part)]
        node = self._one_of_kinds(schema, loud)
        silent = [part for part in parts if _only_declares(part) and not _says_nothing(part)]
        if loud:
            silent += self._lists(schema)
        node.also = (*node.also, *silent, *self._declared(schema, alone=not loud))
        return node

    def _one_of_kinds(self, schema: dict[str, Any], parts: list[Node]) -> Node:
        own = self._own(schema, alone=not parts)
        if "not" in schema and not parts:
            excluded = schema["not"]
            if excluded is True or excluded == {}:
                return Never(schema)
            node = self._read(excluded)
            if _says_nothing(node) and not _NOTES.issuperset(excluded):
                # The nodes cannot exclude what they do not understand.
                node = Never({})
            return Not(schema, node, own or Unknown({}))
        if own is not None:
            own.default = MISSING
            if all(map(_says_nothing, parts)):
                parts = [own]
            elif isinstance(own, Object):
                # A union or intersect already says which scalar or list is meant; keys add up.
                parts.append(own)
        if len(parts) == 1:
            node = parts[0]
            node.default = schema.get("default", node.default)
            return node
        if not parts:
            return Unknown(schema)
        others = schema.get("unevaluatedProperties") if self._exact else None
        return Intersect(schema, parts, Never({}) if others is False else self._rest(others))

    def _lists(self, schema: dict[str, Any]) -> list[Node]:
        """The nodes for items and for several types, where a part decides the kind."""
        own = self._own(schema, alone=False)
        return [] if own is None or own.is_leaf or isinstance(own, Object) else [own]

    def _declared(self, schema: dict[str, Any], *, alone: bool) -> list[Node]:
        """The nodes for declarations beside those of the kind: under conditions, or without a type."""
        found = [self._read(part) for part in _conditional(schema)]
        names, rest = _names(schema), self._rest(schema.get("unevaluatedProperties"))
        if not _SPEAKS_OF_KEYS & schema.keys() and not (alone and schema.get("type") == "object"):
            names.update(_list(schema, "required"))
            rest = rest or self._rest(schema.get("additionalProperties"))
        first, items = ([], []) if schema.get("type") == "array" else self._places(schema)
        if isinstance(schema.get("unevaluatedItems"), dict):
            items.append(self._read(schema["unevaluatedItems"]))
        if names or rest is not None or first or items:
            found.append(Declared(names, rest, first, items))
        return found

    def _places(self, schema: dict[str, Any]) -> tuple[list[Node], list[Node]]:
        """The schemas of the first items, and those of any item."""
        others = ("items", "contains") if isinstance(schema.get("items"), dict) else ()
        return (
            [self._read(part) for part in _list(schema, "prefixItems")],
            [self._read(schema[key]) for key in others if key in schema],
        )

    def _referred(self, schema: dict[str, Any]) -> list[Node]:
        """The schemas that hold at this place by reference; `schema` is as the document has it."""
        reference = schema.get("$ref", schema.get(self._draft.dynamic_keyword or ""))
        if reference is None:
            return []
        if not isinstance(reference, str):
            raise InvalidSchema("$ref must be a string")
        return [
            Ref(reference, partial(self._read_target, reference, candidates), self._meter)
            for candidates in self._targets.of(schema)
            if len(candidates) < _SEVERAL  # Which of several is meant, only the validator knows.
        ]

    def _combined(self, schema: dict[str, Any]) -> list[Node]:
        """The schemas that hold at this place by `anyOf`, `oneOf` and `allOf`."""
        parts: list[Node] = [
            self._union(_list(schema, keyword))
            for keyword in ("anyOf", "oneOf")
            if keyword in schema
        ]
        if "allOf" in schema:
            parts.extend(self._read(part) for part in _list(schema, "allOf"))
        return parts

    def _union(self, variants: list[Any]) -> Node:
        if len(variants) > 1 and all(_is_literal(variant) for variant in variants):
            return Choice({}, [variant["const"] for variant in variants])
        return Union({}, [self._read(variant) for variant in variants] or [Never({})])

    def _own(self, schema: dict[str, Any], *, alone: bool) -> Node | None:
        """The node of the keywords of this place alone; None without such keywords."""
        if "enum" in schema:
            values = _list(schema, "enum")
            if not values:
                return Never(schema)
            return Literal(schema, values[0]) if len(values) == 1 else Choice(schema, values)
        kind = schema.get("type")
        if is_array(kind):
            names = cast("list[str]", kind)
            bare = {k: v for k, v in schema.items() if k not in _IN_PLACE}
            return Union(
                schema, [self._read({**bare, "type": name}) for name in names] or [Never({})]
            )
        if "const" in schema:
            return Literal(schema, schema["const"])
        if kind == "object" or (kind is None and _SPEAKS_OF_KEYS & schema.keys()):
            return self._object(schema) if alone or _SPEAKS_OF_KEYS & schema.keys() else None
        if kind == "array":
            return self._array(schema)
        scalar = _SCALARS.get(kind) if isinstance(kind, str) else None
        return None if scalar is None else scalar(schema)

    def _object(self, schema: dict[str, Any]) -> Object:
        properties = {key: self._read(sub) for key, sub in _map(schema, "properties").items()}
        patterns = [
            (matcher(pattern), self._read(sub))
            for pattern, sub in _map(schema, "patternProperties").items()
        ]
        if not all(isinstance(key, str) for key in _list(schema, "required")):
            raise InvalidSchema("required must be a list of strings")
        rest = self._rest(schema.get("additionalProperties"))
        kind = PatternObject if patterns and "properties" not in schema else Object
        return kind(schema, properties, patterns, rest)

    def _rest(self, schema: Any) -> Node | None:
        if is_object(schema) or (schema is True and not self._exact):
            return self._read(schema)
        return None

    def _array(self, schema: dict[str, Any]) -> Node:
        first: Any = schema.get("prefixItems")
        rest = schema.get("items")
        if self._exact and first is None and rest is None and schema.get("maxItems") == 0:
            first = []  # How TypeBox writes the empty tuple.
        if not is_array(first):
            contains = self._read(schema["contains"]) if "contains" in schema else None
            judge_of = self._judge_of if isinstance(rest, dict) else None
            return Array(schema, self._read(rest), contains, judge_of)
        nodes = [self._read(item) for item in first]
        if self._exact:
            return Tuple(schema, nodes, None, (len(nodes), len(nodes)))
        most = number(schema, "maxItems", math.inf)
        limits = (
            number(schema, "minItems", 0),
            min(most, len(nodes)) if rest is False else most,
        )
        return Tuple(schema, nodes, self._rest(rest), limits)

    def _read_target(self, reference: str, candidates: list[Any]) -> Node:
        if not candidates:
            raise CastError(f"the reference {reference!r:.80} names nothing in this schema")
        target = candidates[0]
        node = self._known.get(id(target))
        if node is None:
            node = self._known[id(target)] = self._read(target)
        return node


_SCALARS: dict[str, Any] = {
    "string": String,
    "number": Number,
    "integer": Number,
    "boolean": Boolean,
    "null": Null,
}
_NOTES = frozenset({"$comment", "default", "deprecated", "description", "examples", "title"})
_SPEAKS_OF_KEYS = frozenset({"properties", "patternProperties"})
_SEVERAL = 2
_IN_PLACE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf", "allOf", "not", "default"}
)


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword, [])
    if not is_array(value):
        raise InvalidSchema(f"{keyword} must be a list, got {type(value).__name__}")
    return value


def _map(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword, {})
    if not is_object(value):
        raise InvalidSchema(f"{keyword} must be an object, got {type(value).__name__}")
    return value


def _is_literal(schema: Any) -> bool:
    """A constant and nothing that changes what a cast makes of it."""
    return is_object(schema) and schema.keys() & _DECIDES == {"const"}  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - JSON


_DECIDES = frozenset({"const", "enum", "default", "if", "dependentSchemas", *_IN_PLACE})


def _says_nothing(node: Node) -> bool:
    """True for a part that neither casts nor declares: only the validator knows it."""
    if isinstance(node, Union):
        return all(map(_says_nothing, node.variants))
    return isinstance(node, Unknown) and not node.also


def _only_declares(node: Node) -> bool:
    """True for a part that has no kind: of use to know what is declared, and for nothing else."""
    if isinstance(node, Union):
        return all(map(_only_declares, node.variants))
    return isinstance(node, Unknown)


def _conditional(schema: dict[str, Any]) -> list[Any]:
    found = [schema[keyword] for keyword in ("if", "then", "else") if keyword in schema]
    dependent = schema.get("dependentSchemas")
    if is_object(dependent):
        found.extend(dependent.values())
    return found


def _names(schema: dict[str, Any]) -> set[str]:
    """The keys that a schema asks for where others are there."""
    names: set[str] = set()
    dependent = schema.get("dependentRequired")
    if is_object(dependent):
        for key, others in dependent.items():
            names |= {key, *(cast("list[str]", others) if is_array(others) else ())}
    return names
