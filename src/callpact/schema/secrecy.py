"""Which places of a value hold secrets: those a schema marks `writeOnly` or `format: password`.

A mark counts wherever it stands among the schemas of a place: behind a `$ref`, beside one, in a
branch of a union; and for everything inside that place.
"""

from __future__ import annotations

from typing import Any, cast

from callpact.schema.document import Document, children_at, in_place, resolve

_MAX_NODES = 2_000


class Secrets:
    """Tells which places of a value must not be shown, by its schema."""

    def __init__(self, document: Document, *, has_any: bool) -> None:
        self._document = document
        self._has_any = has_any
        self._schemas: dict[tuple[str | int, ...], list[dict[str, Any]]] = {}

    def hide(self, path: list[str | int]) -> bool:
        """True if the value at a path is a secret, or part of one."""
        if not self._has_any:
            return False
        return any(
            _is_marked(node)
            for length in range(len(path) + 1)
            for node in self._at(tuple(path[:length]))
        )

    def masked(self, value: Any, mask: str, path: tuple[str | int, ...] = ()) -> Any:
        """A JSON value with a mask wherever a secret stands."""
        if not self._has_any:
            return value
        if self.hide(list(path)):
            return mask
        if isinstance(value, dict):
            held = cast("dict[str, Any]", value)
            return {key: self.masked(item, mask, (*path, key)) for key, item in held.items()}
        if isinstance(value, list):
            items = enumerate(cast("list[Any]", value))
            return [self.masked(item, mask, (*path, index)) for index, item in items]
        return value

    def _at(self, path: tuple[str | int, ...]) -> list[dict[str, Any]]:
        known = self._schemas.get(path)
        if known is None:
            if path:
                above = self._at(path[:-1])
                starts = [child for node in above for child in children_at(node, path[-1])]
            else:
                starts = [self._document]
            known = self._schemas[path] = self._spread(starts)
        return known

    def _spread(self, starts: list[Any]) -> list[dict[str, Any]]:
        """The schemas of one place: the given ones and all that they apply in place."""
        found: dict[int, dict[str, Any]] = {}
        stack = list(starts)
        while stack and len(found) < _MAX_NODES:
            node = stack.pop()
            if not isinstance(node, dict) or id(cast("Any", node)) in found:
                continue
            schema = cast("dict[str, Any]", node)
            found[id(schema)] = schema
            stack.extend(in_place(schema))
            if isinstance(schema.get("$ref"), str):
                stack.append(resolve(self._document, schema["$ref"]))
        return list(found.values())


def _is_marked(schema: dict[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"
