"""Two forms of a schema that let one pass of the validator say more.

`jsonschema-rs` looks only where a schema tells it to: a NaN, a Python object or a key that is not
a string passes unseen in a place that no keyword visits. The **plain** form accepts exactly what
the schema accepts, but visits every part of a value, so that acceptance also means "this is JSON".
The **closed** form accepts less: a value in which `convert`, `cast` and `strip` have nothing to do.
"""

from __future__ import annotations

from typing import Any, cast

from callpact.schema.document import MAX_VALUE_DEPTH, Document, resolve

_LEVEL = "callpact.json.{}"
_ANY_JSON: dict[str, Any] = {"$ref": "#/$defs/" + _LEVEL.format(0)}
_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})

UNFORMABLE = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "unevaluatedProperties",
        "unevaluatedItems",
    }
)
"""Keywords whose meaning hangs on other places, so that a document with one is left as it is."""


def any_json() -> dict[str, Any]:
    """A schema that accepts JSON up to `MAX_VALUE_DEPTH` levels and visits all of it."""
    levels: dict[str, Any] = {
        _LEVEL.format(level): {
            "type": ["string", "number", "boolean", "null", "object", "array"],
            "additionalProperties": {"$ref": "#/$defs/" + _LEVEL.format(level + 1)},
            "items": {"$ref": "#/$defs/" + _LEVEL.format(level + 1)},
        }
        for level in range(MAX_VALUE_DEPTH)
    }
    levels[_LEVEL.format(MAX_VALUE_DEPTH)] = {"type": ["string", "number", "boolean", "null"]}
    return {"$defs": levels, **_ANY_JSON}


def plain_form(document: Document) -> Document:
    """The form that accepts the same JSON values and nothing that is not JSON."""
    return _Former(document, closed=False).form()


def closed_form(document: Document) -> Document:
    """The form that accepts only values that need no conversion, no cast and no strip."""
    return _Former(document, closed=True).form()


class _Former:
    def __init__(self, document: Document, *, closed: bool) -> None:
        self._root = document
        self._closed = closed
        self._loose = False

    def form(self) -> Document:
        formed = self._form(self._root)
        if not self._loose:
            return formed
        if not isinstance(formed, dict) or ("$defs" not in formed and "$ref" in formed):
            formed = {"allOf": [formed]} if formed != _ANY_JSON else dict(_ANY_JSON)
        return {**formed, "$defs": {**formed.get("$defs", {}), **any_json()["$defs"]}}

    def _any(self) -> dict[str, Any]:
        self._loose = True
        return _ANY_JSON

    def _form(self, node: Any, *, closing: bool = True) -> Any:
        if node is True or node == {}:
            return self._any()
        if not isinstance(node, dict):
            return node
        schema = dict(cast("dict[str, Any]", node))
        self._descend(schema)
        if "$ref" in schema or "const" in schema or "enum" in schema:
            return schema
        if "anyOf" in schema or "oneOf" in schema:
            return schema
        if "allOf" in schema:
            if self._closed and closing:
                schema["unevaluatedProperties"] = False
            return schema
        types = schema.get("type")
        types = set(cast("list[str]", types)) if isinstance(types, list) else {types}
        if None in types:
            schema["allOf"] = [self._any()]
            return schema
        if "object" in types:
            self._form_object(schema, closing=closing)
        if "array" in types:
            self._form_array(schema)
        return schema

    def _descend(self, schema: dict[str, Any]) -> None:
        for keyword in ("properties", "patternProperties", "$defs", "definitions"):
            if isinstance(schema.get(keyword), dict):
                schema[keyword] = {k: self._form(v) for k, v in schema[keyword].items()}
        for keyword in ("anyOf", "oneOf", "prefixItems"):
            if isinstance(schema.get(keyword), list):
                schema[keyword] = [self._form(part) for part in schema[keyword]]
        if isinstance(schema.get("allOf"), list):
            schema["allOf"] = [self._form_part(part) for part in schema["allOf"]]

    def _form_part(self, part: Any) -> Any:
        """A part of `allOf` stays open: only together do the parts know every key."""
        while (
            self._closed
            and isinstance(part, dict)
            and set(cast("dict[str, Any]", part)) == {"$ref"}
        ):
            part = resolve(self._root, part["$ref"])
        return self._form(part, closing=not self._closed)

    def _form_object(self, schema: dict[str, Any], *, closing: bool) -> None:
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict) or rest is True:
            schema["additionalProperties"] = self._form(rest)
        elif rest is None and self._closed and "properties" in schema:
            if closing:
                schema["additionalProperties"] = False
        elif rest is None:
            schema["additionalProperties"] = self._any()

    def _form_array(self, schema: dict[str, Any]) -> None:
        items = schema.get("items")
        if isinstance(items, list):
            schema["items"] = [self._form(item) for item in cast("list[Any]", items)]
            if "additionalItems" not in schema:
                schema["additionalItems"] = self._any()
        elif items is not False:
            schema["items"] = self._form(True if items is None else items)
