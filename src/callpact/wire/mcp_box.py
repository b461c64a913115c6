"""The schema of `{"result": …}`: a schema one level deeper, in which every reference still leads home.

A reference counts from the root of its document, or from the nearest schema with an id. Where all
of them are plain, definitions stay at the root and the others follow the schema; where they are
not, the schema becomes a document of its own inside.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast
from urllib.parse import unquote

from callpact.json_text import json_text
from callpact.schema.document import is_old_draft
from callpact.wire.mcp_portable import DEFINITIONS, NAMED_SCHEMAS, VALUES

_RECURSIVE = frozenset({"$recursiveRef", "$recursiveAnchor"})
_REFERENCES = ("$ref", "$dynamicRef")


def boxed(schema: dict[str, Any], field: str = "result") -> dict[str, Any]:
    """Return the schema of an object that holds a value of `schema` in one field."""
    box: dict[str, Any] = {}
    if "$schema" in schema:
        box["$schema"] = schema["$schema"]
    box |= {"type": "object", "properties": {field: {}}, "required": [field]}
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    id_key = _id_key(schema)
    is_old = is_old_draft(schema)
    if is_old and "$ref" in inner:  # Nothing beside it counts, an id neither.
        inner.pop(id_key, None)
    elif not _is_id(inner.get(id_key)) and not is_old and _needs_id(inner):
        name = hashlib.sha256(json_text(schema).encode()).hexdigest()[:16]
        inner = {"$id": f"urn:callpact:result:{name}", **inner}
    if _is_id(inner.get(id_key)):  # It is a document of its own: its references look into itself.
        box["properties"][field] = inner
        return box
    moved = _Moved(id_key, f"/properties/{field}")
    for key in DEFINITIONS:
        if isinstance(inner.get(key), dict):
            box[key] = moved.part(inner.pop(key), is_names=True)
    box["properties"][field] = moved.part(inner)
    return box


def _id_key(schema: dict[str, Any]) -> str:
    return "id" if "draft-04" in str(schema.get("$schema", "")) else "$id"


def _is_id(given: Any) -> bool:
    """True for what begins a document; in old drafts `#name` is an anchor only."""
    return isinstance(given, str) and not given.startswith("#")


def _needs_id(schema: dict[str, Any]) -> bool:
    """True if a reference counts from a root that it does not name."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += cast("list[Any]", node)
        elif isinstance(node, dict):
            part = cast("dict[str, Any]", node)
            if _RECURSIVE & part.keys():
                return True
            pending += [value for key, value in part.items() if key not in VALUES]
    return False


class _Moved:
    """A copy one box deeper: references to anything but definitions follow it.

    Documents inside stay as they are.
    """

    def __init__(self, id_key: str, box: str) -> None:
        self._id_key = id_key
        self._box = box

    def part(self, node: Any, *, is_names: bool = False) -> Any:
        if isinstance(node, list):
            return [self.part(item) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        schema = cast("dict[str, Any]", node)
        if not is_names and _is_id(schema.get(self._id_key)):
            return schema
        moved: dict[str, Any] = {}
        for key, value in schema.items():
            if is_names:
                moved[key] = self.part(value)
            elif key in _REFERENCES and isinstance(value, str):
                moved[key] = _moved_reference(value, self._box)
            elif key in VALUES:
                moved[key] = value
            else:
                moved[key] = self.part(value, is_names=key in NAMED_SCHEMAS)
        return moved


def _moved_reference(reference: str, box: str) -> str:
    is_pointer = reference == "#" or reference.startswith("#/")
    if not is_pointer or unquote(reference).startswith(("#/$defs/", "#/definitions/")):
        return reference
    return f"#{box}{reference[1:]}"
