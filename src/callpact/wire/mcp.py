"""MCP's form: tool definitions and `CallToolResult`, as plain JSON with the protocol's spelling.

Two eras differ: from 2026-07-28 on any JSON value may be structured content; before, only an
object, so that other values travel as `{"result": …}`, in schema and value alike. Text always
mirrors the structured content completely, and errors carry none of it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, cast

import msgspec
import orjson

from callpact.envelope import HTTPResponseMeta, MCPResponseMeta, ResponseEnvelope
from callpact.schema.document import resolve
from callpact.wire.gate import encode_error as encode_gate_error

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
_RELAXED_DEPTH = 12


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


def input_schema(tool: Tool) -> dict[str, Any]:
    """The published input schema: the declared one, with the object root that MCP asks for."""
    declared = tool.contract.input
    if not isinstance(declared, dict):
        return {"type": "object"}
    schema = cast("dict[str, Any]", declared)
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def output_schema(tool: Tool, *, modern: bool) -> dict[str, Any] | None:
    """The published output schema: one that no answer of the tool can break."""
    compiled = tool.contract.compiled_output
    policy = tool.contract.policy
    if compiled is None or policy == "pass" or not isinstance(compiled.document, dict):
        return None
    declared = compiled.document
    if policy == "warn":
        declared = _relaxed(declared, declared, _RELAXED_DEPTH)
        return (
            {"type": "object", **declared}
            if not is_wrapped(tool, modern=modern)
            else _boxed(declared)
        )
    return _boxed(declared) if is_wrapped(tool, modern=modern) else declared


def is_wrapped(tool: Tool, *, modern: bool) -> bool:
    """True if this tool's answers travel as `{"result": …}`.

    For older peers whenever the root is not an object; for all where it may be null, because the
    SDK cannot send a null.
    """
    compiled = tool.contract.compiled_output
    if compiled is None or tool.contract.policy == "pass":
        return False
    if compiled.accepts(None):
        return True
    document = compiled.document
    return not modern and not (isinstance(document, dict) and document.get("type") == "object")


def encode_result(envelope: ResponseEnvelope[Any], tool: Tool, *, modern: bool) -> dict[str, Any]:
    """A result as `CallToolResult`."""
    meta = envelope.meta
    if isinstance(meta, MCPResponseMeta):
        return _relayed(meta)
    data = envelope.data
    notes = _notes(envelope)
    if isinstance(data, bytes | bytearray | memoryview):
        return {"content": [_blob(bytes(data), envelope, tool)], "_meta": notes}
    residual = [issue for issue in envelope.warnings if issue.code == "residual"]
    if residual and tool.contract.policy == "cast":
        # The published schema would be broken: the model gets the issues and the data as text.
        body = {"error": {"code": "output_validation_failed", "message": residual[0].message}}
        body["error"]["issues"] = msgspec.to_builtins(residual)
        return {"content": [_text(_dumps({**body, "data": data}))], "isError": True, "_meta": notes}
    has_schema = tool.contract.compiled_output is not None and tool.contract.policy != "pass"
    if (
        not has_schema
        and not isinstance(data, dict)
        and (isinstance(data, str) or not modern or data is None)
    ):
        text = data if isinstance(data, str) else _dumps(data)
        return {"content": [_text(text)], "_meta": notes}
    structured: Any = data
    if has_schema and (
        is_wrapped(tool, modern=modern) or (not modern and not isinstance(data, dict))
    ):
        structured = {"result": data}
    content = [_text(_dumps(structured))]
    invented = [change.path or "the whole answer" for change in envelope.changes if change.invented]
    if invented:
        content.append(
            _text(f"Not from the tool, but filled in to keep its contract: {', '.join(invented)}")
        )
    return {"content": content, "structuredContent": structured, "_meta": notes}


def encode_error(error: CallError) -> dict[str, Any]:
    """A failure that the model should read, as a result with `isError`."""
    return {"content": [_text(_dumps(encode_gate_error(error)))], "isError": True}


def _dumps(value: Any) -> str:
    return orjson.dumps(value, default=repr).decode()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _notes(envelope: ResponseEnvelope[Any]) -> dict[str, Any]:
    wire = envelope.to_wire(details=True)
    notes: dict[str, Any] = {"callpact/source": wire["meta"]["source"]}
    if envelope.warnings:
        notes["callpact/warnings"] = wire["warnings"]
    if envelope.changes:
        notes["callpact/changes"] = wire["changes"]
    return notes


def _relayed(meta: MCPResponseMeta) -> dict[str, Any]:
    wire = cast("dict[str, Any]", msgspec.to_builtins(meta))
    kept = ("content", "isError", "structuredContent", "_meta")
    return {key: wire[key] for key in kept if key in wire}


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


def _boxed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `{"result": …}`; definitions stay at the root, where references look."""
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    if "#" in _references(inner):
        inner = {"description": "See the tool's documentation"}
    boxed: dict[str, Any] = {
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
    }
    if "$defs" in schema:
        boxed["$defs"] = schema["$defs"]
    return boxed


def _references(node: Any) -> set[str]:
    found: set[str] = set()
    stack: list[Any] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            reference = members.get("$ref")
            if isinstance(reference, str):
                found.add("#" if not reference.startswith("#/$defs/") else reference)
            stack.extend(members.values())
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))
    return found


def _relaxed(node: Any, root: dict[str, Any], depth: int) -> dict[str, Any]:
    """The same tree of fields, with the declared type in words and no keyword that asserts."""
    if not isinstance(node, dict) or depth == 0:
        return {}
    schema = cast("dict[str, Any]", node)
    if isinstance(schema.get("$ref"), str):
        return _relaxed(resolve(root, schema["$ref"]), root, depth - 1)
    out: dict[str, Any] = {}
    if isinstance(schema.get("title"), str):
        out["title"] = schema["title"]
    words = [str(schema["description"])] if schema.get("description") else []
    if "type" in schema:
        kinds = schema["type"]
        declared = " or ".join(cast("list[str]", kinds)) if isinstance(kinds, list) else str(kinds)
        words.append(f"(declared: {declared})")
    if words:
        out["description"] = " ".join(words)
    if isinstance(schema.get("properties"), dict):
        properties = cast("dict[str, Any]", schema["properties"])
        out["properties"] = {k: _relaxed(v, root, depth - 1) for k, v in properties.items()}
    if isinstance(schema.get("items"), dict):
        out["items"] = _relaxed(schema["items"], root, depth - 1)
    return out
