"""The places of a value that hold secrets: those a schema marks `writeOnly` or `format: password`.

A mark counts in any of the schemas of a place (behind a `$ref`, beside one, in a branch of a
union), and for everything inside that place. A reference whose target is unknown counts as a
secret if the schema marks secrets at all.
"""

from __future__ import annotations

from typing import Any, cast

from callpact.schema.bounds import with_room
from callpact.schema.document import Document, children_at, in_place
from callpact.schema.drafts import draft_of
from callpact.schema.json_types import is_array, is_object
from callpact.schema.targets import resolve

_MAX_NODES = 2_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_ID = "id"
_UNKNOWN: dict[str, Any] = {"writeOnly": True}


class SecretPlaces:
    """Finds the places of a value that its schema marks as secret."""

    def __init__(self, document: Document, *, has_any: bool) -> None:
        self._document = document
        self._has_any = has_any
        self._schemas: dict[tuple[str | int, ...], list[dict[str, Any]]] = {}
        self._anchored: dict[str, list[Any]] | None = None

    def hide(self, path: list[str | int]) -> bool:
        """True if the value at a path is a secret, or part of one."""
        if not self._has_any:
            return False
        return any(
            _is_marked(node) or self._has_secret_names(node)
            for length in range(len(path) + 1)
            for node in self._at(tuple(path[:length]))
        )

    def _has_secret_names(self, schema: dict[str, Any]) -> bool:
        names = schema.get("propertyNames")
        return names is not None and any(map(_is_marked, self._spread([names])))

    def masked(self, value: Any, mask: str) -> Any:
        """A JSON value with a mask in place of each secret."""
        if not self._has_any:
            return value
        return with_room(lambda: self._masked(value, mask, self._at(())))

    def _masked(self, value: Any, mask: str, nodes: list[dict[str, Any]]) -> Any:
        """`nodes` are the schemas of the place."""
        if any(_is_marked(node) or self._has_secret_names(node) for node in nodes):
            return mask
        if is_object(value):
            held = value.items()
            return {key: self._masked(item, mask, self._below(nodes, key)) for key, item in held}
        if is_array(value):
            items = enumerate(value)
            return [self._masked(item, mask, self._below(nodes, index)) for index, item in items]
        return value

    def _below(self, nodes: list[dict[str, Any]], part: str | int) -> list[dict[str, Any]]:
        return self._spread([child for node in nodes for child in children_at(node, part)])

    def _at(self, path: tuple[str | int, ...]) -> list[dict[str, Any]]:
        known = self._schemas.get(path)
        if known is None:
            known = (
                self._below(self._at(path[:-1]), path[-1])
                if path
                else self._spread([self._document])
            )
            self._schemas[path] = known
        return known

    def _spread(self, starts: list[Any]) -> list[dict[str, Any]]:
        """The schemas of one place: the given ones and all that they apply in place."""
        found: dict[int, dict[str, Any]] = {}
        stack = list(starts)
        while stack and len(found) < _MAX_NODES:
            node = stack.pop()
            if not is_object(node) or id(cast("Any", node)) in found:
                continue
            schema = node
            found[id(schema)] = schema
            stack.extend(in_place(schema))
            stack.append(schema.get("contentSchema"))
            for keyword in _REFERENCES:
                if isinstance(schema.get(keyword), str):
                    stack.extend(self._meant(schema[keyword]))
        return list(found.values())

    def _meant(self, reference: str) -> list[Any]:
        """The targets of a reference; a secret where they cannot be determined."""
        if self._anchored is None:
            self._anchored = _anchored(self._document)
        found = resolve(self._document, reference)
        # Below another `$id` a pointer begins elsewhere.
        if found is not None and _ID not in self._anchored:
            return [found]
        return self._anchored.get(reference) or [_UNKNOWN]


def _anchored(document: Document) -> dict[str, list[Any]]:
    """The schemas that have an anchor, by what refers to them; those with an id under `_ID`."""
    found: dict[str, list[Any]] = {}
    id_keyword = draft_of(document).id_keyword
    stack: list[Any] = [document]
    while stack:
        node = stack.pop()
        if is_object(node):
            held = node
            for keyword in _ANCHORS:
                if isinstance(held.get(keyword), str):
                    found.setdefault(f"#{held[keyword]}", []).append(held)
            if node is not document and isinstance(held.get(id_keyword), str):
                found.setdefault(_ID, []).append(held)
            stack.extend(held.values())
        elif is_array(node):
            stack.extend(node)
    return found


def _is_marked(schema: dict[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"
