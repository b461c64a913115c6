"""Schema documents: a private copy within limits, and forms derived from it.

Pure functions over JSON Schema as plain data. Nothing here validates a value; `compiled.py`
does, with the forms made here.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn, cast

import orjson
from msgspec import Struct

from callpact.errors import InvalidSchema
from callpact.schema.bounds import schema_limits
from callpact.schema.drafts import Draft, draft_of, with_known_draft
from callpact.schema.json_types import is_array, is_object
from callpact.schema.targets import Targets

Document = dict[str, Any] | bool

MAX_SCHEMA_DEPTH = 200
"""Levels of JSON that a schema document may nest."""
MAX_BRANCHES = 10_000_000
"""Subschemas that one place of a value may have to be tried against (doubling bombs)."""
MAX_BACKTRACKS = 5_000
"""Steps back that the search for a pattern with look-around or back-references may take."""
MAX_DETAIL = 5_000
"""Branches up to which a rejected value is explained in full."""
_MAX_CHAIN = 200
_MAX_BITS = 13_000
_NEWEST = Draft.DRAFT_2020_12.uri


class Facts(Struct, frozen=True, gc=False):
    """The facts about a document that the compiler needs."""

    given: Document
    """The document to compile now. With a text beside it, it is still the caller's own."""
    text: str | None
    """The document as JSON text, where that is the copy; read again when it is asked for."""
    keywords: frozenset[str]
    """Those keys of the document that change how it may be rewritten or evaluated."""
    breadth: int
    """How much longer than usual one error may be: by the longest union or enum."""

    @property
    def document(self) -> Document:
        """A fresh copy."""
        return self.given if self.text is None else orjson.loads(self.text)


_MARKED = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "unevaluatedProperties",
        "unevaluatedItems",
        "oneOf",
        "not",
        "if",
        "contains",
        "dependentSchemas",
        "writeOnly",
        "format",
    }
)


_WIDE = {"anyOf": 10, "enum": 300}


def pointer(path: list[str | int] | tuple[str | int, ...]) -> str:
    """JSON Pointer of a path of keys and indexes."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def freeze(document: object) -> Facts:
    """Copy a schema against later changes, and check that it is JSON within limits.

    A `$schema` that names no known draft is left out: such a document is judged as 2020-12.

    Raises:
        InvalidSchema: not an object or boolean, not JSON, too deep or too large.
    """
    if isinstance(document, bool):
        return Facts(document, None, frozenset(), 1)
    if not is_object(document):
        kind = type(document).__name__
        raise InvalidSchema(f"a schema must be an object or a boolean, got {kind}")
    if document.get("$schema", _NEWEST) != _NEWEST:
        document = with_known_draft(document)
        if draft_of(document) is Draft.DRAFT_4:
            return _frozen(document, id_keyword="id")
    return _frozen_quickly(document) or _frozen(document)


def _frozen(document: Any, *, id_keyword: str = "$id") -> Facts:
    copier = _Copier(id_keyword)
    copy = copier.copy(document)
    return Facts(copy, None, frozenset(copier.marked), copier.breadth)


_PLAIN = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_QUICK_PARTS = 200
_QUICK_TEXT = 4_000


def _frozen_quickly(document: dict[str, Any]) -> Facts | None:
    """A small, simple document, copied as JSON text: most tools have such."""
    breadth = _breadth(document)
    if breadth is None:
        return None
    try:
        text = orjson.dumps(document, option=_PLAIN)
    except TypeError:  # Not JSON, or beyond orjson: left to the careful way.
        return None
    if len(text) > _QUICK_TEXT or b"null" in text:  # A null may have been a NaN.
        return None
    return Facts(document, text.decode(), frozenset(), breadth)


def _breadth(document: dict[str, Any]) -> int | None:
    """The breadth of a document of few parts without marked keywords; None for any other.

    What is shared counts each time it is met, so that a document cannot unfold without end.
    """
    breadth, nodes = 1, cast("list[Any]", [document])
    for node in nodes:
        parts = cast("list[Any]", node)
        if type(node) is dict:
            schema = cast("dict[str, Any]", node)
            if not _MARKED.isdisjoint(schema):
                return None
            if "enum" in schema or "anyOf" in schema:
                breadth = max(breadth, _width(schema))
            parts = schema.values()
        nodes += [part for part in parts if type(part) is dict or type(part) is list]
        if len(nodes) > _QUICK_PARTS:
            return None
    return breadth


def _width(node: dict[str, Any]) -> int:
    width = 1
    for key, share in _WIDE.items():
        if isinstance(node.get(key), list):
            width = max(width, len(node[key]) // share)
    return width


class _Copier:
    """Copies a document; where it cannot, it names the place that it has come to."""

    def __init__(self, id_keyword: str) -> None:
        self._id_keyword = id_keyword
        self._left = schema_limits().schema_values
        self._path: list[str | int] = []
        self.marked: set[str] = set()
        self.breadth = 1

    def copy(self, value: Any) -> Any:
        if is_object(value):
            return self._copy_object(value)
        if isinstance(value, list | tuple):
            return self._copy_list(cast("list[Any]", value))
        return self._copy_scalar(value)

    def _copy_object(self, value: dict[Any, Any]) -> dict[str, Any]:
        path = self._path
        out: dict[str, Any] = {}
        self._left -= len(value) + 1
        if self._left < 0 or len(path) > MAX_SCHEMA_DEPTH:
            self._refuse()
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidSchema(f"keys must be strings, got {key!r:.40}", pointer(path))
            if key in _MARKED and (key != "$id" or path):
                self.marked.add(key)
            kind = type(item)  # pyright: ignore[reportUnknownVariableType] - JSON
            if kind is str or kind is bool:
                if key == self._id_keyword and path:
                    self.marked.add("$id")
                out[key] = item
                continue
            path.append(key)
            if kind is dict:
                out[key] = self._copy_object(item)
            elif kind is list:
                if key in _WIDE:
                    self.breadth = max(self.breadth, len(item) // _WIDE[key])
                out[key] = self._copy_list(item)
            else:
                out[key] = self.copy(item)
            path.pop()
        return out

    def _copy_list(self, value: list[Any]) -> list[Any]:
        path = self._path
        out: list[Any] = []
        self._left -= len(value) + 1
        if self._left < 0 or len(path) > MAX_SCHEMA_DEPTH:
            self._refuse()
        for index, item in enumerate(value):
            if type(item) is str:
                out.append(item)
                continue
            path.append(index)
            out.append(self.copy(item))
            path.pop()
        return out

    def _refuse(self) -> NoReturn:
        if self._left < 0:
            most = schema_limits().schema_values
            raise InvalidSchema(
                f"more than {most:,} values; split the schema, or raise the limit schema_values"
            )
        place = pointer(self._path[:8])
        raise InvalidSchema(f"nested deeper than {MAX_SCHEMA_DEPTH} levels", place)

    def _copy_scalar(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            if value.bit_length() > _MAX_BITS:
                raise InvalidSchema("a number of too many digits", pointer(self._path))
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidSchema(f"{value!r} is not a JSON number", pointer(self._path))
            return float(value)
        if isinstance(value, str):
            return str.__str__(value)
        raise InvalidSchema(f"{type(value).__name__} is not JSON", pointer(self._path))


# --- references -----------------------------------------------------------------------------

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_CHILD_MAPS = ("properties", "patternProperties")
_CHILD_LISTS = ("prefixItems", "items")
_CHILDREN = (
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)


_REFERRING = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_APPLYING = _REFERRING.union(
    _IN_PLACE_LISTS,
    _IN_PLACE,
    _CHILD_MAPS,
    _CHILD_LISTS,
    _CHILDREN,
    ("dependentSchemas", "dependencies"),
)
"""Keywords with subschemas."""
_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/%]+")


class References(Struct, frozen=True):
    """How the `$ref`s of one document multiply the work of a check."""

    has_cycle: bool
    weight: int
    """The largest number of subschemas that one place of a value is tried against."""
    returns: int
    """How many references lead back into a cycle."""
    is_formable: bool
    """True if they lead, without a cycle, to definitions only."""

    def explains(self, depth: int) -> bool:
        """True if every violation of a value of this depth can be listed in time."""
        ways = self.returns**depth if self.has_cycle else 1
        return ways * self.weight <= MAX_DETAIL


def references(root: dict[str, Any], *, has_names: bool = True) -> References:
    """Measure the references of a document; without `has_names`, no part has an id or anchor.

    Raises:
        InvalidSchema: the references multiply to more than `MAX_BRANCHES` checks.
    """
    tracer = _Tracer(Targets(root, has_names=has_names), root)
    targets = tracer.targets()
    weight = max(map(tracer.weight, (root, *targets)))
    if weight > MAX_BRANCHES:
        raise InvalidSchema(
            f"its references multiply to more than {MAX_BRANCHES:,} checks of one value"
        )
    is_formable = not tracer.returns and not tracer.strays
    return References(bool(tracer.returns), weight, tracer.returns, is_formable)


class _Tracer:
    def __init__(self, targets: Targets, root: dict[str, Any]) -> None:
        self._root = root
        self._targets = targets
        self._weights: dict[int, int] = {}
        self._above: set[int] = set()
        self.returns = 0
        self.strays = 0
        """References to a place that is not a definition."""

    def targets(self) -> list[Any]:
        found: list[Any] = []
        stack: list[Any] = [self._root]
        while stack:
            item = stack.pop()
            if type(item) is dict:
                held = cast("dict[str, Any]", item)
                if not _REFERRING.isdisjoint(held):
                    for candidates in self._led(held):
                        found += candidates
                item = held.values()
            stack += [part for part in item if type(part) is dict or type(part) is list]
        return found

    def weight(self, schema: Any) -> int:
        if not is_object(schema) or _APPLYING.isdisjoint(schema):
            return 1
        key, above = id(schema), self._above
        if key in above:
            self.returns += 1
            return 1
        known = self._weights.get(key)
        if known is not None:
            return known
        if len(above) > _MAX_CHAIN:
            raise InvalidSchema(f"its references form a chain of more than {_MAX_CHAIN} schemas")
        above.add(key)
        # What applies in place adds up; of the children only the heaviest counts, for each child
        # of a value is another place.
        total = 1 + sum(map(self.weight, in_place(schema)))
        for candidates in self._led(schema):
            total += max(map(self.weight, candidates), default=0)
        total += max(map(self.weight, children(schema)), default=0)
        above.discard(key)
        self._weights[key] = total = min(total, MAX_BRANCHES + 1)
        return total

    def _led(self, schema: dict[str, Any]) -> list[list[Any]]:
        """The candidates of each reference of a subschema."""
        if _REFERRING.isdisjoint(schema):
            return []
        reference = schema.get("$ref")
        if isinstance(reference, str) and not _DEFINITION.fullmatch(reference):
            self.strays += 1
        return self._targets.of(schema)


def in_place(schema: dict[str, Any]) -> list[Any]:
    """The subschemas that apply to the same place of a value."""
    found: list[Any] = []
    for keyword in _IN_PLACE_LISTS:
        parts = schema.get(keyword)
        if is_array(parts):
            found.extend(parts)
    found.extend(schema[keyword] for keyword in _IN_PLACE if keyword in schema)
    for keyword in ("dependentSchemas", "dependencies"):
        dependent = schema.get(keyword)
        if is_object(dependent):
            found.extend(part for part in dependent.values() if not is_array(part))
    return found


def children(schema: dict[str, Any]) -> list[Any]:
    """The subschemas that apply to the children of a value."""
    found: list[Any] = []
    for keyword in _CHILD_MAPS:
        parts = schema.get(keyword)
        if is_object(parts):
            found.extend(parts.values())
    for keyword in _CHILD_LISTS:
        parts = schema.get(keyword)
        if is_array(parts):
            found.extend(parts)
    found.extend(schema[keyword] for keyword in _CHILDREN if keyword in schema)
    return found


def children_at(schema: dict[str, Any], part: str | int) -> list[Any]:
    """The subschemas that may apply to one child of a value: under a key, or at an index."""
    if isinstance(part, str):
        properties = schema.get("properties")
        patterns = schema.get("patternProperties")
        found: list[Any] = []
        if is_object(properties) and part in properties:
            found.append(properties[part])
        else:
            found.extend(schema.get(keyword) for keyword in _OTHER_KEYS)
        if is_object(patterns):
            found.extend(patterns.values())
        return found
    places = [schema.get(keyword) for keyword in _PLACES]
    return [
        item
        for place in places
        for item in (place[part : part + 1] if is_array(place) else [place])
    ]


_OTHER_KEYS = ("additionalProperties", "unevaluatedProperties")
_PLACES = ("prefixItems", "items", "additionalItems", "contains", "unevaluatedItems")
