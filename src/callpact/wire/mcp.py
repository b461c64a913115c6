"""MCP's form: tool definitions and `CallToolResult`, as plain JSON with the protocol's spelling.

Two eras differ: from 2026-07-28 on any JSON value may be structured content; before, only an
object, so that other values travel as `{"result": …}`, in schema and value alike. Text always
mirrors the structured content completely, and errors carry none of it. What a tool publishes can
never be broken by what it delivers. Schemas that are published are made in `mcp_schema.py`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET

from callpact.envelope import HTTPResponseMeta, MCPResponseMeta, ResponseEnvelope
from callpact.json_text import json_text, sendable
from callpact.wire.gate import encode_error as encode_gate_error
from callpact.wire.gate import encode_issue
from callpact.wire.mcp_schema import input_schema, is_published, is_wrapped, output_schema

if TYPE_CHECKING:
    from callpact.errors import CallError
    from callpact.tool import Tool

MODERN = "2026-07-28"
"""The first revision that takes any JSON value as structured content."""
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
}


def encode_tool(tool: Tool, *, modern: bool) -> dict[str, Any]:
    """A tool's definition for `tools/list`."""
    wire: dict[str, Any] = {
        "name": tool.wire_name,
        "description": tool.description,
        "inputSchema": input_schema(tool),
    }
    if tool.title:
        wire["title"] = tool.title
    if tool.annotations:
        wire["annotations"] = dict(tool.annotations)
    output = output_schema(tool, modern=modern)
    if output is not None:
        wire["outputSchema"] = output
    return wire


def encode_result(envelope: ResponseEnvelope[Any], tool: Tool, *, modern: bool) -> dict[str, Any]:
    """A released result as `CallToolResult`."""
    return sendable(_encoded(envelope, tool, modern=modern))


def _encoded(envelope: ResponseEnvelope[Any], tool: Tool, *, modern: bool) -> dict[str, Any]:
    meta = envelope.meta
    if isinstance(meta, MCPResponseMeta):
        return _relayed(envelope, meta, tool, modern=modern)
    data = envelope.data
    if isinstance(data, bytes | bytearray | memoryview):
        blocks = [_blob(bytes(cast("bytes", data)), envelope, tool)]
        if not is_published(tool):
            return {"content": blocks, "_meta": _notes(envelope)}
        if tool.contract.policy != "warn":
            return _broken(envelope, blocks)
        # What bytes are in JSON (design section 3); no answer can break a relaxed schema.
        plain = {key: envelope.to_wire()[key] for key in ("data", "encoding")}
        structured = _structured(plain, tool, modern=modern)
        return {"content": blocks, "structuredContent": structured, "_meta": _notes(envelope)}
    if _breaks(envelope, tool):
        return _broken(envelope)
    if is_published(tool):
        structured = _structured(data, tool, modern=modern)
    elif isinstance(data, str) or not _is_sendable(data, modern=modern):
        text = data if isinstance(data, str) else json_text(data)
        return {"content": [_text(text)], "_meta": _notes(envelope)}
    else:
        structured = data
    content = [_text(json_text(structured)), *_inventions(envelope)]
    return {"content": content, "structuredContent": structured, "_meta": _notes(envelope)}


def encode_error(error: CallError) -> dict[str, Any]:
    """A failure that the model should read, as a result with `isError`."""
    return {"content": [_text(json_text(encode_gate_error(error)))], "isError": True}


# --- answers of other MCP servers -----------------------------------------------------------


def _relayed(
    envelope: ResponseEnvelope[Any], meta: MCPResponseMeta, tool: Tool, *, modern: bool
) -> dict[str, Any]:
    """Content blocks as they came; structured content as the contract let it out."""
    wire = cast("dict[str, Any]", msgspec.to_builtins(meta))
    blocks = cast("list[dict[str, Any]]", wire.get("content") or [])
    notes = cast("dict[str, Any]", wire.get("_meta") or {}) | _notes(envelope)
    if wire.get("isError"):
        return {"content": blocks, "isError": True, "_meta": notes}
    has_structure = meta.structured_content is not UNSET
    if _breaks(envelope, tool):
        broken = _broken(envelope, [] if has_structure else blocks)
        return {**broken, "_meta": notes}
    data = envelope.data if has_structure else cast("Any", blocks)
    if not is_published(tool):
        if not has_structure:
            return {"content": blocks, "_meta": notes}
        result = {"content": _mirrored(blocks, data, envelope), "_meta": notes}
        return (
            {**result, "structuredContent": data} if _is_sendable(data, modern=modern) else result
        )
    structured = _structured(data, tool, modern=modern)
    if has_structure:
        blocks = _mirrored(blocks, structured, envelope)
    content = [*blocks, *_inventions(envelope)]
    return {"content": content, "structuredContent": structured, "_meta": notes}


def _mirrored(
    blocks: list[dict[str, Any]], structured: Any, envelope: ResponseEnvelope[Any]
) -> list[dict[str, Any]]:
    """The blocks with a text that says what the structured content says.

    The upstream's own text stands, unless the contract changed the data behind it.
    """
    others = [block for block in blocks if block.get("type") != "text"]
    if not envelope.changes and len(others) < len(blocks):
        return blocks
    return [_text(json_text(structured)), *others]


# --- parts of a result ----------------------------------------------------------------------


def _structured(data: Any, tool: Tool, *, modern: bool) -> object:
    """The value in the form that the published schema speaks of.

    Under `warn` an answer may be of any kind: what the era cannot send is put into an object too.
    """
    if is_wrapped(tool, modern=modern) or not _is_sendable(data, modern=modern):
        return {"result": data}
    return data


def _is_sendable(data: Any, *, modern: bool) -> bool:
    """True for what may be structured content by itself; the SDK drops a null in every era."""
    return data is not None and (modern or isinstance(data, dict))


def _breaks(envelope: ResponseEnvelope[Any], tool: Tool) -> bool:
    """True if a strict schema is published and the answer still does not keep it."""
    contract = tool.contract
    if not envelope.warnings or contract.compiled_output is None:
        return False
    if contract.policy not in {"cast", "reject"}:
        return False
    try:
        return not contract.compiled_output.accepts(envelope.data)
    except ValueError:
        return True


def _broken(
    envelope: ResponseEnvelope[Any], blocks: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """An answer that would break the published schema: the issues, and the data all the same."""
    residual = [issue for issue in envelope.warnings if issue.code == "residual"]
    issues = residual or list(envelope.warnings)
    body: dict[str, Any] = {
        "error": {
            "code": "output_validation_failed",
            "message": issues[0].message,
            "path": issues[0].path,
            "issues": [encode_issue(issue) for issue in issues],
        }
    }
    if not blocks:
        body["data"] = envelope.data
    content = [_text(json_text(body)), *(blocks or ())]
    return {"content": content, "isError": True, "_meta": _notes(envelope)}


def _inventions(envelope: ResponseEnvelope[Any]) -> list[dict[str, Any]]:
    invented = [change.path or "the whole answer" for change in envelope.changes if change.invented]
    if not invented:
        return []
    where = ", ".join(invented)
    return [_text(f"Not from the tool, but filled in to keep its contract: {where}")]


def _notes(envelope: ResponseEnvelope[Any]) -> dict[str, Any]:
    notes: dict[str, Any] = {"callpact/source": envelope.meta.source}
    if envelope.warnings or envelope.changes:
        wire = envelope.to_wire(details=True)
        if envelope.warnings:
            notes["callpact/warnings"] = wire["warnings"]
        if envelope.changes:
            notes["callpact/changes"] = wire["changes"]
    return notes


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _blob(data: bytes, envelope: ResponseEnvelope[Any], tool: Tool) -> dict[str, Any]:
    kind = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")
    if isinstance(envelope.meta, HTTPResponseMeta):
        kind = envelope.meta.content_type.partition(";")[0].strip() or kind
    text = base64.b64encode(data).decode()
    if kind.startswith(("image/", "audio/")):
        return {"type": kind.partition("/")[0], "data": text, "mimeType": kind}
    resource = {
        "uri": f"callpact://result/{tool.id}",
        "mimeType": kind or "application/octet-stream",
        "blob": text,
    }
    return {"type": "resource", "resource": resource}
