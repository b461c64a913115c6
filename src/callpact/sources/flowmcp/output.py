"""FlowMCP's output dialect as JSON Schema: seven keywords, nothing required, nothing closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_TYPES = frozenset({"string", "number", "boolean", "object", "array"})
JSON = "application/json"
PNG = "image/png"


def output_schema(output: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The JSON Schema of a declared `output`; None if nothing is declared.

    Keywords that the dialect excludes are left out, as seed 000 has it: APIs may return more.
    """
    if output is None or not isinstance(output.get("schema"), Mapping):
        return None
    node = _node(cast("Mapping[str, Any]", output["schema"]))
    if output.get("mimeType") == PNG:  # Seed 000: the text is the picture, in base64.
        node |= {"contentEncoding": "base64", "contentMediaType": PNG}
    return node


def _node(declared: Mapping[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {}
    nullable = declared.get("nullable") is True
    kind = declared.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        node["type"] = [kind, "null"] if nullable else kind
    elif kind == "integer":  # Not of the dialect; real files have it, and mean a number.
        node["type"] = ["number", "null"] if nullable else "number"
    for keyword in ("description", "format"):
        if isinstance(declared.get(keyword), str):
            node[keyword] = declared[keyword]
    values = declared.get("enum")
    if isinstance(values, list):
        node["enum"] = [*values, None] if nullable and None not in values else values
    properties = declared.get("properties")
    if isinstance(properties, Mapping) and kind == "object":
        held = cast("Mapping[str, Any]", properties).items()
        node["properties"] = {name: _node(child) for name, child in held if _is_node(child)}
    items: Any = declared.get("items")
    if _is_node(items) and kind == "array":
        node["items"] = _node(items)
    return node


def _is_node(value: Any) -> bool:
    return isinstance(value, Mapping)


def mime_type(output: Mapping[str, Any] | None) -> str:
    """What the answer is read as; JSON if nothing is declared."""
    declared = None if output is None else output.get("mimeType")
    return declared if isinstance(declared, str) else JSON
