"""The response of an upstream, read as the declared output of its tool, or an `UpstreamError`.

The output dialect of FlowMCP becomes JSON Schema here: seven keywords, nothing required, nothing
closed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from callpact.envelope import ResponseEnvelope
from callpact.net import Response
from callpact.schema import is_object
from callpact.secrets.keys import Secrets
from callpact.sources.response_body import MaskedResponse, masked_response

_TYPES = frozenset({"string", "number", "boolean", "object", "array"})
JSON = "application/json"
PNG = "image/png"


def read_response(
    response: Response, mime_type: str, used: Secrets | None = None
) -> ResponseEnvelope[Any]:
    """The envelope of a response, with the secrets that were `used` for it masked.

    Raises:
        UpstreamError: the status is not 2xx, or the body is not of the declared type.
    """
    read = masked_response(response, used)
    if not 200 <= response.status < 300:
        raise read.refused(f"API returned {response.status}")
    return read.envelope(_data(read, mime_type))


def _data(read: MaskedResponse, mime_type: str) -> Any:
    if mime_type == PNG:
        return base64.b64encode(read.data()).decode()
    if mime_type != JSON:
        return read.text()
    if not read.response.body and read.response.status != 200:
        return None  # 204 has no content; 201, 202 and 205 often have none.
    return read.json()


# --- the declared output ---------------------------------------------------------------------


def output_schema(output: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The JSON Schema of a declared `output`; None if nothing is declared.

    Keywords that the dialect excludes are left out (seed 000): APIs may return more.
    """
    schema = None if output is None else output.get("schema")
    if output is None or not is_object(schema):
        return None
    node = _node(schema)
    if output.get("mimeType") == PNG:  # Seed 000: the text is the picture, in base64.
        node |= {"contentEncoding": "base64", "contentMediaType": PNG}
    return node


def _node(declared: Mapping[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {}
    nullable = declared.get("nullable") is True
    kind = declared.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        node["type"] = [kind, "null"] if nullable else kind
    elif kind == "integer":  # Not in the dialect; real files use it for numbers.
        node["type"] = ["number", "null"] if nullable else "number"
    for keyword in ("description", "format"):
        if isinstance(declared.get(keyword), str):
            node[keyword] = declared[keyword]
    values = declared.get("enum")
    if isinstance(values, list):
        node["enum"] = [*values, None] if nullable and None not in values else values
    properties = declared.get("properties")
    if is_object(properties) and kind == "object":
        children = properties.items()
        node["properties"] = {name: _node(child) for name, child in children if is_object(child)}
    items: Any = declared.get("items")
    if is_object(items) and kind == "array":
        node["items"] = _node(items)
    return node


def mime_type(output: Mapping[str, Any] | None) -> str:
    """The declared MIME type of the response; JSON if none is declared."""
    declared = None if output is None else output.get("mimeType")
    return declared if isinstance(declared, str) else JSON
