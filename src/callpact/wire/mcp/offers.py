"""MCP's wire form of resources, prompts and completions, as plain JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from callpact.schema import is_array
from callpact.schema.json_text import json_text, sendable
from callpact.wire.mcp.content import notes, sniffed, text_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callpact.envelope import ResponseEnvelope
    from callpact.resources import Prompt, Resource

MAX_COMPLETIONS = 100
"""Values in one completion, the maximum of the protocol."""


def encode_resource(resource: Resource) -> dict[str, Any]:
    """Encode a resource for `resources/list` or `resources/templates/list`."""
    tool = resource.tool
    wire: dict[str, Any] = {
        "uriTemplate" if resource.is_template else "uri": resource.uri,
        "name": tool.wire_name,
        "title": tool.title,
        "description": tool.description,
        "mimeType": resource.mime_type,
        "size": None if resource.is_template else resource.size,
        "annotations": dict(tool.annotations) or None,
    }
    return {key: value for key, value in wire.items() if value is not None}


def encode_contents(
    envelope: ResponseEnvelope[Any], resource: Resource, uri: str
) -> dict[str, Any]:
    """Encode the content of a resource as `ReadResourceResult`."""
    data = envelope.data
    parts = data if is_array(data) else []
    if parts and all(_is_content(part) for part in parts):
        contents = sendable(parts)
    else:
        contents = [_content(data, resource.mime_type, uri)]
    return {"contents": contents, "_meta": notes(envelope)}


def _is_content(part: Any) -> bool:
    return isinstance(part, Mapping) and "uri" in part and ("text" in part or "blob" in part)


def _content(data: Any, mime_type: str | None, uri: str) -> dict[str, Any]:
    if isinstance(data, bytes | bytearray | memoryview):
        raw = bytes(cast("bytes", data))
        kind = mime_type or sniffed(raw) or "application/octet-stream"
        return {"uri": uri, "mimeType": kind, "blob": base64.b64encode(raw).decode()}
    if isinstance(data, str):
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": sendable(data)}
    kind = mime_type or "application/json"
    return {"uri": uri, "mimeType": kind, "text": json_text(data)}


def encode_prompt(prompt: Prompt) -> dict[str, Any]:
    """Encode a prompt for `prompts/list`."""
    tool = prompt.tool
    wire: dict[str, Any] = {"name": tool.wire_name, "description": tool.description}
    if tool.title:
        wire["title"] = tool.title
    arguments = [
        {"name": argument.name, "required": argument.is_required}
        | ({"description": argument.description} if argument.description else {})
        for argument in prompt.arguments
    ]
    return {**wire, "arguments": arguments} if arguments else wire


def encode_messages(envelope: ResponseEnvelope[Any], prompt: Prompt) -> dict[str, Any]:
    """Encode the messages of a prompt as `GetPromptResult`; other values stay unchanged."""
    data = envelope.data
    given = cast("list[Any]", data) if isinstance(data, list | tuple) else [data]
    messages = [_message(item) for item in given]
    return {
        "description": prompt.tool.description,
        "messages": messages,
        "_meta": notes(envelope),
    }


def _message(item: Any) -> Any:
    if isinstance(item, str):
        return {"role": "user", "content": text_block(item)}
    if not isinstance(item, Mapping):
        return item
    message = cast("Mapping[str, Any]", item)
    content = message.get("content")
    return {**message, "content": text_block(content) if isinstance(content, str) else content}


def encode_completion(values: Sequence[str]) -> dict[str, Any]:
    """Encode suggested values as `CompleteResult`."""
    shown = list(values[:MAX_COMPLETIONS])
    total = len(values)
    return {"completion": {"values": shown, "total": total, "hasMore": total > len(shown)}}
