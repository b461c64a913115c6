"""Where things stand: places of values as findings tell them, places of schemas as errors mean them.

The validator tells a key of digits as an index, leaves out an empty key, and begins anew at each
`$id`. With the document at hand, the keys are found as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote, urljoin

from callpact.audit.patching import same
from callpact.schema.document import children_at, in_place, pointer

Path = list[str | int]

NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords that hold schemas by names."""
DATA = ("enum", "const", "default", "examples")
"""Keywords that hold no schema."""
_INDEX = re.compile(r"/\d+(?=/|$)")
_DIGITS = re.compile(r"\+?[0-9]+")
_ANY_INDEX = 0
_ANCHORS = ("$anchor", "$dynamicAnchor")
_MAX_WAYS = 64
_MAX_SPOTS = 200
_MAX_TOLD = 5_000
_ARRAYS = ("items", "prefixItems", "contains")
_OBJECTS = ("properties", "patternProperties", "additionalProperties", "required")


# --- places of values -----------------------------------------------------------------------


def place_in(value: Any, path: str) -> str:
    """A JSON Pointer into a value, with `*` for the indexes of arrays; keys of digits stay."""
    if _INDEX.search(path) is None:
        return path
    told = ""
    for part in parts_of(path):
        if isinstance(value, list):
            items = cast("list[Any]", value)
            is_index = part.isdecimal()
            told += "/*" if is_index else pointer([part])
            value = items[int(part)] if is_index and int(part) < len(items) else None
        else:
            held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            if part not in held and part.isdecimal():
                part = next(iter(_like(held, int(part))), part)  # noqa: PLW2901 - as it is written
            told += pointer([part])
            value = held.get(part)
    return told


def _is_key(part: str, spots: list[dict[str, Any]]) -> bool:
    if any(part in (spot.get("properties") or ()) for spot in spots):
        return True
    types = {kind for spot in spots for kind in _listed(spot.get("type"))}
    is_array = "array" in types or any(word in spot for spot in spots for word in _ARRAYS)
    is_object = "object" in types or any(word in spot for spot in spots for word in _OBJECTS)
    return is_object and not is_array


def _listed(types: Any) -> list[str]:
    return cast("list[str]", types) if isinstance(types, list) else [types] if types else []


def place_of(value: Any, error: Any) -> str:
    """The place of a violation of a value."""
    return "".join(_segments(value, error))


def _segments(value: Any, error: Any) -> Iterator[str]:
    for part in path_in(value, error):
        is_index = isinstance(part, int) and isinstance(value, list)
        yield "/*" if is_index else _segment(part)
        value = at(value, [part])


@lru_cache(4096)
def _segment(part: str | int) -> str:
    return pointer((part,))


def path_in(value: Any, error: Any) -> Path:
    """The path of a violation in a value."""
    told: Path = error.instance_path
    ways = _ways(value, told)
    if len(ways) > 1:
        ways = [way for way in ways if same(at(value, way), error.instance)] or ways
    return ways[0] if ways else told


def parts_of(path: str) -> list[str]:
    """The parts of a JSON Pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


# --- both -----------------------------------------------------------------------------------


def at(document: Any, path: Sequence[str | int]) -> Any:
    """What stands at a path; None if nothing does."""
    node = document
    for part in path:
        try:
            node = node[part]
        except (LookupError, TypeError):
            return None
    return node


def _ways(root: Any, told: Path) -> list[Path]:
    """The paths that are there and that the validator may mean, the likeliest first."""
    plain = _plain_way(root, told)
    if plain is not None:
        return [plain]
    found: list[Path] = []
    stack: list[tuple[Any, int, Path]] = [(root, 0, [])]
    for _ in range(_MAX_WAYS * (len(told) + 1)):
        if not stack or len(found) >= _MAX_WAYS:
            break
        node, taken, way = stack.pop()
        if taken == len(told):
            found.append(way)
        more: list[tuple[Any, int, Path]] = []
        if taken < len(told):
            more += [(item, taken + 1, [*way, key]) for key, item in _steps(node, told[taken])]
        if isinstance(node, dict) and "" in node:
            more.append((cast("Any", node)[""], taken, [*way, ""]))
        stack.extend(reversed(more))
    return found


def _plain_way(root: Any, told: Path) -> Path | None:
    """The path as it is told, if no key on it could be meant otherwise."""
    node = root
    for part in told:
        if isinstance(node, dict):
            if isinstance(part, int) or "" in node or part not in node:
                return None
            node = cast("dict[str, Any]", node)[part]
        elif isinstance(node, list) and isinstance(part, int):
            items = cast("list[Any]", node)
            if part >= len(items):
                return None
            node = items[part]
        else:
            return None
    return None if isinstance(node, dict) and "" in node else [*told]


def _steps(node: Any, part: str | int) -> list[tuple[str | int, Any]]:
    if isinstance(node, list):
        items = cast("list[Any]", node)
        return [(part, items[part])] if isinstance(part, int) and part < len(items) else []
    if not isinstance(node, dict):
        return []
    held = cast("dict[str, Any]", node)
    keys = _like(held, part) if isinstance(part, int) else [part] if part in held else []
    return [(key, held[key]) for key in keys]


def _like(held: dict[str, Any], number: int) -> list[str]:
    """The keys that read as a number, the one that is written shortest first."""
    digits = str(number)
    found = [key for key in held if key.endswith(digits) and _DIGITS.fullmatch(key)]
    return sorted((key for key in found if int(key) == number), key=len)


# --- places of schemas ----------------------------------------------------------------------


def keywords_of(path: Path) -> Iterator[tuple[int, str]]:
    """The keywords of a path into a schema, each with its index: neither names nor numbers."""
    index = 0
    while index < len(path):
        keyword = str(path[index])
        yield index, keyword
        index += 1
        is_held = index < len(path) and isinstance(path[index], int)
        index += is_held or keyword in NAMED


def schemas_in(document: Any) -> Iterator[tuple[Path, dict[str, Any], str | None]]:
    """The objects of a schema document with their paths and the keyword that each stands under.

    What is data, not a schema, is left out.
    """
    stack: list[tuple[Path, Any, str | None]] = [([], document, None)]
    while stack:
        path, node, keyword = stack.pop()
        if isinstance(node, list):
            items = cast("list[Any]", node)
            stack += [([*path, i], item, keyword) for i, item in enumerate(items)]
        elif isinstance(node, dict):
            rules = cast("dict[str, Any]", node)
            yield path, rules, keyword
            for key, item in rules.items():
                if key in NAMED and isinstance(item, dict):
                    named = cast("dict[str, Any]", item).items()
                    stack += [([*path, key, name], part, key) for name, part in named]
                elif key not in DATA:
                    stack.append(([*path, key], item, key))


class Places:
    """The places of one schema document, by the names that references and errors use."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._anchors: dict[str, Path] = {}
        self._resources: dict[str, Path] = {}
        self._told: dict[str, str] = {}
        if _has_names(document):
            self._read()

    def _read(self) -> None:
        bases: dict[tuple[str | int, ...], str] = {}
        for path, rules, _ in sorted(schemas_in(self._document), key=lambda one: len(one[0])):
            for keyword in _ANCHORS:
                if isinstance(name := rules.get(keyword), str):
                    self._anchors.setdefault(name, path)
            if isinstance(own := rules.get("$id"), str):
                above = [bases.get(tuple(path[:i])) for i in range(len(path), -1, -1)]
                base = next((one for one in above if one is not None), "")
                bases[tuple(path)] = address = urljoin(base, own).removesuffix("#")
                if path:
                    self._resources[address] = path

    def place(self, path: str) -> str:
        """A JSON Pointer into a value that is not known, with `*` for the indexes of arrays.

        Digits are a key where the schema declares an object.
        """
        if _INDEX.search(path) is None:
            return path
        told = self._told.get(path)
        if told is None:
            if len(self._told) >= _MAX_TOLD:
                self._told.clear()
            told = self._told[path] = self._placed(path)
        return told

    def _placed(self, path: str) -> str:
        told, spots = "", self._spots([self._document])
        for part in parts_of(path):
            is_index = part.isdecimal() and not _is_key(part, spots)
            told += "/*" if is_index else pointer([part])
            step = _ANY_INDEX if is_index else part
            spots = self._spots([child for spot in spots for child in children_at(spot, step)])
        return told

    def _spots(self, nodes: list[Any]) -> list[dict[str, Any]]:
        """All schemas that may apply to one place, through references and unions."""
        found: list[dict[str, Any]] = []
        while nodes and len(found) < _MAX_SPOTS:
            node = nodes.pop()
            if not isinstance(node, dict) or any(node is one for one in found):
                continue
            rules = cast("dict[str, Any]", node)
            found.append(rules)
            nodes += in_place(rules)
            if isinstance(reference := rules.get("$ref"), str):
                nodes.append(self.target(reference))
        return found

    def target_path(self, reference: str) -> Path | None:
        """The path that a local reference names; None if it may be anywhere."""
        if self._resources or not reference.startswith("#"):
            return None
        name = unquote(reference[1:])
        if name and not name.startswith("/"):
            return self._anchors.get(name)
        node, path = self._document, cast("Path", [])
        for part in parts_of(name):
            step = int(part) if isinstance(node, list) and part.isdecimal() else part
            node = at(node, [step])
            path.append(step)
        return path

    def target(self, reference: str) -> Any:
        """What a local reference names; None if there is no such thing."""
        path = self.target_path(reference)
        return None if path is None else at(self._document, path)

    def path_of(self, error: Any, value: Any) -> Path | None:
        """The path of the rule that a value violates; None if it cannot be told which."""
        told: Path = error.schema_path
        roots = [cast("Path", []), *self._resources.values()]
        if self._resources and error.absolute_keyword_location is not None:
            address = str(error.absolute_keyword_location).partition("#")[0]
            roots = [self._resources.get(address, [])]
        found: list[Path] = []
        for root in roots:
            ways = [[*root, *way] for way in _ways(at(self._document, root), told)]
            if len(ways) > 1:
                ways = [way for way in ways if self._is_rule(way, error)]
            if len(ways) > 1:
                # The keys of a value are mostly those that a schema names.
                names = {part for part in path_in(value, error) if isinstance(part, str)}
                ways = [max(ways, key=lambda way: len(names.intersection(way)))]
            found += ways
        return found[0] if len(found) == 1 else None

    def _is_rule(self, path: Path, error: Any) -> bool:
        """True if what stands at a path may be the rule, and not a schema named like it."""
        code, rule = str(error.kind.name), at(self._document, path)
        if code == "falseSchema":
            return rule is False
        if path[-1] != error.schema_path[-1]:
            return False
        if code == "type":
            return isinstance(rule, str | list)
        return isinstance(rule, list) or code not in {"enum", "anyOf", "oneOf"}


def _has_names(document: Any) -> bool:
    """True if a schema names places otherwise than by their paths."""
    return any(
        word in rules and (path or word != "$id")
        for path, rules, _ in schemas_in(document)
        for word in ("$id", *_ANCHORS)
    )
