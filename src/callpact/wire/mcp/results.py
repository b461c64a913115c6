"""MCP's wire form of tool definitions and of results (`CallToolResult`), as plain JSON.

From 2026-07-28 on any JSON value may be structured content; before, only an object, so that other
values are wrapped in `{"result": …}`, in schema and value alike. Text mirrors the structured content
completely, and errors have no structured content. A result never breaks the published schema.
Published schemas are made in `published.py`, blocks and `_meta` in `content.py`, pages of large
results in `paging.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Struct

from callpact.envelope import MCPResponseMeta, ResponseEnvelope
from callpact.errors import OutputRejected
from callpact.schema.issues.explain import explain
from callpact.schema.json_text import json_text, sendable
from callpact.wire import flowmcp
from callpact.wire.mcp.content import (
    Block,
    EncodedJson,
    change_blocks,
    encode_json,
    encoded_media,
    link_block,
    media_block,
    media_kind,
    notes,
    page_note,
    page_text,
    text_block,
)
from callpact.wire.mcp.portable import explicit
from callpact.wire.mcp.published import (
    AdvertiseMode,
    Rendering,
    ResultForm,
    input_schema,
    output_schema,
    result_form,
)
from callpact.wire.paging import Items, KeptResult, Paging, cut, is_over, preview, take_apart
from callpact.wire.plain import encode_error as encode_gate_error
from callpact.wire.plain import encode_issue

if TYPE_CHECKING:
    from callpact.errors import CallError, Issue
    from callpact.tool import Tool

__all__ = [
    "MODERN",
    "encode_error",
    "encode_kept",
    "encode_page",
    "encode_result",
    "encode_tool",
    "input_schema",
]

MODERN = "2026-07-28"
"""The first revision that allows any JSON value as structured content."""
_HINT_LENGTH = 120
_JSON = "application/json"
_TEXT = "text/plain"


# --- definitions ----------------------------------------------------------------------------


def encode_tool(
    tool: Tool, *, modern: bool, advertise: AdvertiseMode = "full", rendering: Rendering = "mcp"
) -> dict[str, Any]:
    """Encode a tool for `tools/list`."""
    wire: dict[str, Any] = {
        **tool.definition,
        "name": tool.wire_name,
        "description": tool.description,
        "inputSchema": explicit(input_schema(tool)),
    }
    if tool.title:
        wire["title"] = tool.title
    annotations = _annotations(tool)
    if annotations:
        wire["annotations"] = annotations
    output = output_schema(tool, modern=modern, advertise=advertise, rendering=rendering)
    if output is not None:
        wire["outputSchema"] = output
    meta = _definition_notes(tool)
    if meta:
        wire["_meta"] = {**wire.get("_meta", {}), **meta}
    return wire


def _annotations(tool: Tool) -> dict[str, Any]:
    annotations = dict(tool.annotations)
    if tool.kind == "query":
        annotations.setdefault("readOnlyHint", True)
    return annotations


def _definition_notes(tool: Tool) -> dict[str, Any]:
    """Return short hints for clients that search among many tools."""
    hints: dict[str, Any] = {}
    if tool.search_hint:
        hints["anthropic/searchHint"] = tool.search_hint
    elif tool.tags:
        first = tool.description.strip().split("\n", 1)[0].split(". ", 1)[0]
        hints["anthropic/searchHint"] = f"{first[:_HINT_LENGTH]} ({', '.join(tool.tags)})"
    if tool.always_listed:
        hints["anthropic/alwaysLoad"] = True
    if tool.tags:
        hints["callpact/tags"] = list(tool.tags)
    if tool.version:
        hints["callpact/version"] = tool.version
    return hints


# --- results --------------------------------------------------------------------------------


class _Delivery(Struct, frozen=True):
    """An envelope with the form and the limits for one peer."""

    envelope: ResponseEnvelope[Any]
    tool: Tool
    form: ResultForm
    modern: bool
    paging: Paging | None
    duration: float | None

    def notes(self) -> dict[str, Any]:
        return notes(self.envelope, self.duration)

    def keep(self, content: Items | bytes, mime_type: str = _JSON) -> KeptResult | None:
        if self.paging is None:
            return None
        return self.paging.kept.keep(
            content, owner=self.paging.owner, tool_id=self.tool.id, mime_type=mime_type
        )


def encode_result(
    envelope: ResponseEnvelope[Any],
    tool: Tool,
    *,
    modern: bool,
    advertise: AdvertiseMode = "full",
    rendering: Rendering = "mcp",
    paging: Paging | None = None,
    duration: float | None = None,
) -> dict[str, Any]:
    """Encode a released output as `CallToolResult`.

    With `paging`, a part of a large output is sent, and the whole is kept. `duration` is in seconds.
    """
    form = result_form(tool, modern=modern, advertise=advertise, rendering=rendering)
    delivery = _Delivery(envelope, tool, form, modern, paging, duration)
    if isinstance(envelope.meta, MCPResponseMeta):
        return _relayed(delivery, envelope.meta)
    data = envelope.data
    if isinstance(data, bytes | bytearray | memoryview):
        return _binary(delivery, bytes(cast("bytes", data)))
    if _breaks(delivery):
        return _broken(delivery)
    if isinstance(data, str) and not delivery.form.is_published:
        return _texted(delivery, data)
    block = _drawn(delivery, data)
    return _structured(delivery, data, [block] if block is not None else None)


def encode_error(
    error: CallError, *, rendering: Rendering = "mcp", tool_name: str = ""
) -> dict[str, Any]:
    """Encode a failure for the model as a result with `isError`."""
    is_flowmcp = rendering == "flowmcp"
    body = flowmcp.encode_error(error, tool_name) if is_flowmcp else encode_gate_error(error)
    return {"content": [text_block(json_text(body))], "isError": True}


def _texted(delivery: _Delivery, data: str) -> dict[str, Any]:
    """Encode text without a declared structure: as a medium, or as text."""
    block = _drawn(delivery, data)
    blocks = _text_blocks(delivery, data) if block is None else [block]
    return {"content": [*blocks, *change_blocks(delivery.envelope)], "_meta": delivery.notes()}


def _drawn(delivery: _Delivery, data: Any) -> Block | None:
    """Make the image or sound block of a text that is declared as base64."""
    kind = delivery.form.media
    return encoded_media(data, kind) if kind is not None and isinstance(data, str) else None


def _text_blocks(delivery: _Delivery, text: str) -> list[Block]:
    """Make the block of a text; for a large one, a preview and a link."""
    whole = text.encode("utf-8", "replace")
    if not is_over(delivery.paging, len(whole)):
        return [text_block(text)]
    kept = delivery.keep(whole, _TEXT)
    return _preview_blocks(text, len(whole), kept)


def _structured(
    delivery: _Delivery, data: Any, others: list[Block] | None = None
) -> dict[str, Any]:
    """Encode a value as structured content, and as text.

    `others` are blocks with other content.
    """
    encoded = encode_json(data)
    if encoded.value is not data and not _keeps(delivery, encoded.value):
        return _broken(delivery)
    is_interactive = delivery.tool.kind == "interactive"
    if is_over(delivery.paging, encoded.size) and not is_interactive:
        return _sized(delivery, encoded, others or [])
    encoded = _fitted(delivery, encoded)
    text = _one_line(delivery.tool) if is_interactive else encoded.text
    content = [text_block(text), *(others or ()), *change_blocks(delivery.envelope)]
    return _with_structure(encoded.value, {"content": content, "_meta": delivery.notes()})


def _fitted(delivery: _Delivery, encoded: EncodedJson) -> EncodedJson:
    """Wrap a value as the published schema and the era require.

    Under `warn` an output may have any type, and is wrapped if the era allows only objects.
    """
    if delivery.form.is_enveloped:
        return encoded.enveloped()
    if delivery.form.is_wrapped:
        return encoded.boxed()
    if encoded.value is None:  # The SDK drops a null in every era.
        return encoded.boxed() if delivery.form.is_published else encoded
    return encoded if delivery.modern or isinstance(encoded.value, dict) else encoded.boxed()


def _with_structure(structured: Any, result: dict[str, Any]) -> dict[str, Any]:
    return result if structured is None else {**result, "structuredContent": structured}


def _one_line(tool: Tool) -> str:
    """Return the text of an interactive result; the host shows the rest (design section 4)."""
    return f"Shown to the user: {tool.title or tool.id}"


def _binary(delivery: _Delivery, data: bytes) -> dict[str, Any]:
    envelope, tool = delivery.envelope, delivery.tool
    kind = media_kind(data, delivery.form.media, envelope)
    if delivery.form.is_strict:
        return _broken(delivery, [media_block(data, kind, tool)])
    if delivery.form.is_published:
        # The JSON form of bytes (design section 3); no output can break a relaxed schema. FlowMCP
        # has the base64 text itself (seed 000).
        written = envelope.to_wire()
        is_bare = delivery.form.is_enveloped
        plain = written["data"] if is_bare else {k: written[k] for k in ("data", "encoding")}
        content = [media_block(data, kind, tool)]
        structured = _fitted(delivery, encode_json(plain)).value
        return _with_structure(structured, {"content": content, "_meta": delivery.notes()})
    is_drawn = kind.startswith(("image/", "audio/"))
    if not is_drawn and is_over(delivery.paging, len(data)):
        kept = delivery.keep(data, kind)
        if kept is not None:
            return {"content": [link_block(kept)], "_meta": delivery.notes()}
    return {"content": [media_block(data, kind, tool)], "_meta": delivery.notes()}


# --- large results --------------------------------------------------------------------------


def _sized(delivery: _Delivery, encoded: EncodedJson, others: list[Block]) -> dict[str, Any]:
    """Encode a large value as a page of whole items if some fit, else as a preview."""
    paging = cast("Paging", delivery.paging)
    items = take_apart(encoded.value)
    page = None if items is None else cut(items, paging.limit)
    if (
        items is None
        or page is None
        or page.size > paging.limit
        or not _keeps(delivery, page.value)
    ):
        return _previewed(delivery, encoded, others)
    kept = delivery.keep(items)
    note = page_note(page, kept, paging)
    fitted = _fitted(delivery, encode_json(page.value))
    content = [text_block(fitted.text), text_block(page_text(page, note, paging))]
    if kept is not None:
        content.append(link_block(kept))
    content += [*others, *change_blocks(delivery.envelope)]
    meta = {**delivery.notes(), "callpact/page": note}
    return _with_structure(fitted.value, {"content": content, "_meta": meta})


def _keeps(delivery: _Delivery, value: Any) -> bool:
    """True if a part of the value is valid, too: it may break `minItems`, for example."""
    compiled = delivery.tool.contract.compiled_output
    return not delivery.form.is_strict or compiled is None or compiled.accepts(value)


def _previewed(delivery: _Delivery, encoded: EncodedJson, others: list[Block]) -> dict[str, Any]:
    """Encode a preview as text, with a link to the whole.

    Under a strict schema the structured content is whole, because a preview would break it; under
    a relaxed schema it is the preview.
    """
    kept = delivery.keep(encoded.text.encode())
    blocks = _preview_blocks(encoded.value, encoded.size, kept)
    content = [*blocks, *others, *change_blocks(delivery.envelope)]
    note: dict[str, Any] = {"bytes": encoded.size} | ({} if kept is None else {"uri": kept.uri})
    result = {"content": content, "_meta": {**delivery.notes(), "callpact/preview": note}}
    if not delivery.form.is_published:
        return result
    shown = (
        encoded if delivery.form.is_strict else encode_json({"preview": blocks[0]["text"], **note})
    )
    return _with_structure(_fitted(delivery, shown).value, result)


def _preview_blocks(value: Any, size: int, kept: KeptResult | None) -> list[Block]:
    words = f"This answer of {size:,} bytes is too large to be shown whole"
    if kept is None:
        text = text_block(f"{words}, and to be kept: ask for less. It begins:\n{preview(value)}")
        return [text]
    text = text_block(f"{words}; all of it is at {kept.uri}. In short:\n{preview(value)}")
    return [text, link_block(kept)]


def encode_page(cursor: str, paging: Paging) -> dict[str, Any] | None:
    """Encode the page of a cursor as `CallToolResult`; None if there is no such page.

    Structured content is `{page, start, shown, total}`, with `nextCursor` except on the last page.
    """
    place = paging.kept.at(cursor, paging.owner)
    if place is None:
        return None
    kept, start = place
    if not isinstance(kept.content, Items):
        return None
    page = cut(kept.content, paging.limit, start)
    note = page_note(page, kept, paging)
    meta = {"callpact/page": note}
    about = [text_block(page_text(page, note, paging)), link_block(kept)]
    if page.size > paging.limit:
        return {"content": [text_block(_item_preview(kept.content, start)), *about], "_meta": meta}
    body = encode_json({"page": page.value, **_counts(note)})
    content = [text_block(body.text), *about]
    return {"content": content, "structuredContent": body.value, "_meta": meta}


def _item_preview(items: Items, start: int) -> str:
    words = f"Item {start + 1:,} alone is too large to be shown whole. In short:"
    return f"{words}\n{preview(msgspec.json.decode(items.texts[start]))}"


def _counts(note: dict[str, Any]) -> dict[str, Any]:
    return {key: note[key] for key in ("start", "shown", "total", "nextCursor") if key in note}


def encode_kept(uri: str, paging: Paging) -> dict[str, Any] | None:
    """Encode a whole kept result for `resources/read`; None for an unknown URI."""
    kept = paging.kept.find(uri, paging.owner)
    if kept is None:
        return None
    raw = kept.read()
    is_text = kept.mime_type in {_JSON, _TEXT}
    body = {"text": raw.decode()} if is_text else {"blob": msgspec.to_builtins(raw)}
    return {"contents": [{"uri": kept.uri, "mimeType": kept.mime_type, **body}]}


# --- results of other MCP servers -----------------------------------------------------------


def _relayed(delivery: _Delivery, meta: MCPResponseMeta) -> dict[str, Any]:
    """Encode the result of another server: its own content blocks, and the released structure."""
    wire: dict[str, Any] = msgspec.to_builtins(meta)
    blocks: list[Block] = sendable(wire.get("content") or [])
    if wire.get("isError"):
        return {"content": blocks, "isError": True, "_meta": delivery.notes()}
    is_bare = meta.structured_content is UNSET and _is_content(delivery, meta, blocks)
    if _breaks(delivery):
        return _broken(delivery, blocks if is_bare else [])
    if is_bare:
        return _content_alone(delivery, blocks)
    others = [block for block in blocks if block.get("type") != "text"]
    result = _structured(delivery, delivery.envelope.data, others)
    is_whole = not {"callpact/page", "callpact/preview"} & result["_meta"].keys()
    if is_whole and not delivery.envelope.changes and len(others) < len(blocks):
        result["content"] = blocks  # The upstream's own text is kept.
    return result


def _is_content(delivery: _Delivery, meta: MCPResponseMeta, blocks: list[Block]) -> bool:
    """True if the content blocks are the whole result.

    Other data was made by the contract, and is used if an output schema is published.
    """
    data = delivery.envelope.data
    if data is meta.content or data == blocks:
        return True
    return bool(blocks) and not delivery.form.is_published


def _content_alone(delivery: _Delivery, blocks: list[Block]) -> dict[str, Any]:
    if delivery.form.is_published:
        structured = _fitted(delivery, encode_json(blocks)).value
        result = {"content": blocks, "_meta": delivery.notes()}
        return _with_structure(structured, result)
    content: list[Block] = []
    for block in blocks:
        text = block.get("text")
        is_text = block.get("type") == "text" and isinstance(text, str)
        shown = _text_blocks(delivery, cast("str", text)) if is_text else [block]
        content += [block] if len(shown) == 1 and shown[0].get("text") == text else shown
    return {"content": content, "_meta": delivery.notes()}


# --- results that break the published schema ------------------------------------------------


def _breaks(delivery: _Delivery) -> bool:
    """True if a strict schema is published and the output breaks it."""
    compiled, envelope = delivery.tool.contract.compiled_output, delivery.envelope
    if compiled is None or not delivery.form.is_strict:
        return False
    if not envelope.warnings and delivery.tool.contract.policy != "warn":
        return False
    try:
        return not compiled.accepts(envelope.data)
    except ValueError:
        return True


def _broken(delivery: _Delivery, blocks: list[Block] | None = None) -> dict[str, Any]:
    """Encode an output that breaks the published schema as an error: the issues, and the data."""
    found = _issues(delivery)
    issues = [issue for issue in found if issue.code == "residual"] or found
    body: dict[str, Any] = {
        "error": {
            "code": "output_validation_failed",
            "message": issues[0].message,
            "path": issues[0].path,
            "issues": [encode_issue(issue) for issue in issues],
        }
    }
    others = blocks or []
    if delivery.form.is_enveloped:  # Seed 000 has no data in a failure, so it is a separate block.
        body = flowmcp.encode_error(OutputRejected(lambda: issues), delivery.tool.name)
        others = others or _text_blocks(delivery, encode_json(delivery.envelope.data).text)
    if not others:
        encoded = encode_json(delivery.envelope.data)
        if is_over(delivery.paging, encoded.size):
            kept = delivery.keep(encoded.text.encode())
            others = _preview_blocks(encoded.value, encoded.size, kept)
        else:
            body["data"] = encoded.value
    content = [text_block(encode_json(body).text), *others, *change_blocks(delivery.envelope)]
    return {"content": content, "isError": True, "_meta": delivery.notes()}


def _issues(delivery: _Delivery) -> list[Issue]:
    """Return the violations of the published schema; `warn` itself does not report missing keys."""
    compiled, envelope = delivery.tool.contract.compiled_output, delivery.envelope
    is_complete = delivery.tool.contract.policy != "warn" or isinstance(envelope.data, bytes)
    if compiled is None or (is_complete and envelope.warnings):
        return list(envelope.warnings)
    return explain(compiled, compiled.errors(encode_json(envelope.data).value), "Output")
