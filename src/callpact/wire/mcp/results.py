"""MCP's form: tool definitions and `CallToolResult`, as plain JSON with the protocol's spelling.

Two eras differ: from 2026-07-28 on any JSON value may be structured content; before, only an
object, so that other values travel as `{"result": …}`, in schema and value alike. Text always
mirrors the structured content completely, and errors carry none of it. What a tool publishes can
never be broken by what it delivers. Schemas that are published are made in `mcp_schema.py`, blocks
and `_meta` in `mcp_content.py`, pages of what is too large in `paging.py`.
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
    Advertise,
    Rendering,
    View,
    input_schema,
    output_schema,
    view_of,
)
from callpact.wire.paging import Items, Kept, Paging, cut, is_over, preview, take_apart
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
"""The first revision that takes any JSON value as structured content."""
_HINT_LENGTH = 120
_JSON = "application/json"
_TEXT = "text/plain"


# --- definitions ----------------------------------------------------------------------------


def encode_tool(
    tool: Tool, *, modern: bool, advertise: Advertise = "full", rendering: Rendering = "mcp"
) -> dict[str, Any]:
    """A tool's definition for `tools/list`."""
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
    """Return hints for clients that search among many tools; short, as each entry of a list has them."""
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


class _Answer(Struct, frozen=True):
    """An envelope on its way to one peer."""

    envelope: ResponseEnvelope[Any]
    tool: Tool
    view: View
    modern: bool
    paging: Paging | None
    duration: float | None

    def notes(self) -> dict[str, Any]:
        return notes(self.envelope, self.duration)

    def keep(self, content: Items | bytes, mime_type: str = _JSON) -> Kept | None:
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
    advertise: Advertise = "full",
    rendering: Rendering = "mcp",
    paging: Paging | None = None,
    duration: float | None = None,
) -> dict[str, Any]:
    """A released result as `CallToolResult`.

    With `paging`, what is too large is delivered in part, and kept. `duration` is in seconds.
    """
    view = view_of(tool, modern=modern, advertise=advertise, rendering=rendering)
    answer = _Answer(envelope, tool, view, modern, paging, duration)
    if isinstance(envelope.meta, MCPResponseMeta):
        return _relayed(answer, envelope.meta)
    data = envelope.data
    if isinstance(data, bytes | bytearray | memoryview):
        return _binary(answer, bytes(cast("bytes", data)))
    if _breaks(answer):
        return _broken(answer)
    if isinstance(data, str) and not answer.view.is_published:
        return _texted(answer, data)
    block = _drawn(answer, data)
    return _structured(answer, data, [block] if block is not None else None)


def encode_error(
    error: CallError, *, rendering: Rendering = "mcp", tool_name: str = ""
) -> dict[str, Any]:
    """A failure that the model should read, as a result with `isError`."""
    is_flowmcp = rendering == "flowmcp"
    body = flowmcp.encode_error(error, tool_name) if is_flowmcp else encode_gate_error(error)
    return {"content": [text_block(json_text(body))], "isError": True}


def _texted(answer: _Answer, data: str) -> dict[str, Any]:
    """Render text without a declared structure: as a medium, or as it is."""
    block = _drawn(answer, data)
    blocks = _text_blocks(answer, data) if block is None else [block]
    return {"content": [*blocks, *change_blocks(answer.envelope)], "_meta": answer.notes()}


def _drawn(answer: _Answer, data: Any) -> Block | None:
    """The picture or sound that a text is declared to be, in base64."""
    kind = answer.view.media
    return encoded_media(data, kind) if kind is not None and isinstance(data, str) else None


def _text_blocks(answer: _Answer, text: str) -> list[Block]:
    """A text, or its beginning and where all of it is."""
    whole = text.encode("utf-8", "replace")
    if not is_over(answer.paging, len(whole)):
        return [text_block(text)]
    kept = answer.keep(whole, _TEXT)
    return _preview_blocks(text, len(whole), kept)


def _structured(answer: _Answer, data: Any, others: list[Block] | None = None) -> dict[str, Any]:
    """A value as structured content, and the text that mirrors it.

    `others` are blocks that say something else.
    """
    encoded = encode_json(data)
    if encoded.value is not data and not _keeps(answer, encoded.value):
        return _broken(answer)
    is_interactive = answer.tool.kind == "interactive"
    if is_over(answer.paging, encoded.size) and not is_interactive:
        return _sized(answer, encoded, others or [])
    encoded = _fitted(answer, encoded)
    text = _one_line(answer.tool) if is_interactive else encoded.text
    content = [text_block(text), *(others or ()), *change_blocks(answer.envelope)]
    return _with_structure(encoded.value, {"content": content, "_meta": answer.notes()})


def _fitted(answer: _Answer, encoded: EncodedJson) -> EncodedJson:
    """The value in the form that the published schema and the era speak of.

    Under `warn` an answer may be of any kind: what the era cannot send is put into an object too.
    """
    if answer.view.is_enveloped:
        return encoded.enveloped()
    if answer.view.is_wrapped:
        return encoded.boxed()
    if encoded.value is None:  # The SDK drops a null in every era.
        return encoded.boxed() if answer.view.is_published else encoded
    return encoded if answer.modern or isinstance(encoded.value, dict) else encoded.boxed()


def _with_structure(structured: Any, result: dict[str, Any]) -> dict[str, Any]:
    return result if structured is None else {**result, "structuredContent": structured}


def _one_line(tool: Tool) -> str:
    """For the transcript; the host draws the rest (design section 4)."""
    return f"Shown to the user: {tool.title or tool.id}"


def _binary(answer: _Answer, data: bytes) -> dict[str, Any]:
    envelope, tool = answer.envelope, answer.tool
    kind = media_kind(data, answer.view.media, envelope)
    if answer.view.is_strict:
        return _broken(answer, [media_block(data, kind, tool)])
    if answer.view.is_published:
        # What bytes are in JSON (design section 3); no answer can break a relaxed schema. FlowMCP
        # has the base64 text itself (seed 000).
        written = envelope.to_wire()
        is_bare = answer.view.is_enveloped
        plain = written["data"] if is_bare else {k: written[k] for k in ("data", "encoding")}
        content = [media_block(data, kind, tool)]
        structured = _fitted(answer, encode_json(plain)).value
        return _with_structure(structured, {"content": content, "_meta": answer.notes()})
    is_drawn = kind.startswith(("image/", "audio/"))
    if not is_drawn and is_over(answer.paging, len(data)):
        kept = answer.keep(data, kind)
        if kept is not None:
            return {"content": [link_block(kept)], "_meta": answer.notes()}
    return {"content": [media_block(data, kind, tool)], "_meta": answer.notes()}


# --- what is too large ----------------------------------------------------------------------


def _sized(answer: _Answer, encoded: EncodedJson, others: list[Block]) -> dict[str, Any]:
    """A page of whole items if there are some that fit, else a preview."""
    paging = cast("Paging", answer.paging)
    items = take_apart(encoded.value)
    page = None if items is None else cut(items, paging.limit)
    if items is None or page is None or page.size > paging.limit or not _keeps(answer, page.value):
        return _previewed(answer, encoded, others)
    kept = answer.keep(items)
    note = page_note(page, kept, paging)
    fitted = _fitted(answer, encode_json(page.value))
    content = [text_block(fitted.text), text_block(page_text(page, note, paging))]
    if kept is not None:
        content.append(link_block(kept))
    content += [*others, *change_blocks(answer.envelope)]
    meta = {**answer.notes(), "callpact/page": note}
    return _with_structure(fitted.value, {"content": content, "_meta": meta})


def _keeps(answer: _Answer, value: Any) -> bool:
    """True if a part keeps the schema that the whole keeps: a least number of items may not."""
    compiled = answer.tool.contract.compiled_output
    return not answer.view.is_strict or compiled is None or compiled.accepts(value)


def _previewed(answer: _Answer, encoded: EncodedJson, others: list[Block]) -> dict[str, Any]:
    """A preview as text, and where all of it is.

    Structured content is whole under a strict schema, which no preview keeps; under a relaxed one
    it is the preview.
    """
    kept = answer.keep(encoded.text.encode())
    blocks = _preview_blocks(encoded.value, encoded.size, kept)
    content = [*blocks, *others, *change_blocks(answer.envelope)]
    note: dict[str, Any] = {"bytes": encoded.size} | ({} if kept is None else {"uri": kept.uri})
    result = {"content": content, "_meta": {**answer.notes(), "callpact/preview": note}}
    if not answer.view.is_published:
        return result
    shown = (
        encoded if answer.view.is_strict else encode_json({"preview": blocks[0]["text"], **note})
    )
    return _with_structure(_fitted(answer, shown).value, result)


def _preview_blocks(value: Any, size: int, kept: Kept | None) -> list[Block]:
    words = f"This answer of {size:,} bytes is too large to be shown whole"
    if kept is None:
        text = text_block(f"{words}, and to be kept: ask for less. It begins:\n{preview(value)}")
        return [text]
    text = text_block(f"{words}; all of it is at {kept.uri}. In short:\n{preview(value)}")
    return [text, link_block(kept)]


def encode_page(cursor: str, paging: Paging) -> dict[str, Any] | None:
    """The page that a cursor asks for, as `CallToolResult`; None if there is no such page.

    Structured content is `{page, start, shown, total}`, with `nextCursor` unless it is the last.
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
    """All of a kept result, as the result of `resources/read`; None if nothing is kept there."""
    kept = paging.kept.find(uri, paging.owner)
    if kept is None:
        return None
    raw = kept.read()
    is_text = kept.mime_type in {_JSON, _TEXT}
    body = {"text": raw.decode()} if is_text else {"blob": msgspec.to_builtins(raw)}
    return {"contents": [{"uri": kept.uri, "mimeType": kept.mime_type, **body}]}


# --- answers of other MCP servers -----------------------------------------------------------


def _relayed(answer: _Answer, meta: MCPResponseMeta) -> dict[str, Any]:
    """Content blocks as they came; structured content as the contract let it out."""
    wire = cast("dict[str, Any]", msgspec.to_builtins(meta))
    blocks = cast("list[Block]", sendable(wire.get("content") or []))
    if wire.get("isError"):
        return {"content": blocks, "isError": True, "_meta": answer.notes()}
    is_bare = meta.structured_content is UNSET and _is_content(answer, meta, blocks)
    if _breaks(answer):
        return _broken(answer, blocks if is_bare else [])
    if is_bare:
        return _content_alone(answer, blocks)
    others = [block for block in blocks if block.get("type") != "text"]
    result = _structured(answer, answer.envelope.data, others)
    is_whole = not {"callpact/page", "callpact/preview"} & result["_meta"].keys()
    if is_whole and not answer.envelope.changes and len(others) < len(blocks):
        result["content"] = blocks  # The upstream's own text is kept.
    return result


def _is_content(answer: _Answer, meta: MCPResponseMeta, blocks: list[Block]) -> bool:
    """True if the blocks are all there is.

    Data beside them is what a contract made of the answer, and counts where one is published.
    """
    data = answer.envelope.data
    if data is meta.content or data == blocks:
        return True
    return bool(blocks) and not answer.view.is_published


def _content_alone(answer: _Answer, blocks: list[Block]) -> dict[str, Any]:
    if answer.view.is_published:
        structured = _fitted(answer, encode_json(blocks)).value
        result = {"content": blocks, "_meta": answer.notes()}
        return _with_structure(structured, result)
    content: list[Block] = []
    for block in blocks:
        text = block.get("text")
        is_text = block.get("type") == "text" and isinstance(text, str)
        shown = _text_blocks(answer, cast("str", text)) if is_text else [block]
        content += [block] if len(shown) == 1 and shown[0].get("text") == text else shown
    return {"content": content, "_meta": answer.notes()}


# --- answers that break what was published --------------------------------------------------


def _breaks(answer: _Answer) -> bool:
    """True if a strict schema is published and the answer still does not keep it."""
    compiled, envelope = answer.tool.contract.compiled_output, answer.envelope
    if compiled is None or not answer.view.is_strict:
        return False
    if not envelope.warnings and answer.tool.contract.policy != "warn":
        return False
    try:
        return not compiled.accepts(envelope.data)
    except ValueError:
        return True


def _broken(answer: _Answer, blocks: list[Block] | None = None) -> dict[str, Any]:
    """An answer that would break the published schema: the issues, and the data all the same."""
    found = _issues(answer)
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
    if answer.view.is_enveloped:  # Seed 000 has no data in a failure: it goes beside it.
        body = flowmcp.encode_error(OutputRejected(lambda: issues), answer.tool.name)
        others = others or _text_blocks(answer, encode_json(answer.envelope.data).text)
    if not others:
        encoded = encode_json(answer.envelope.data)
        if is_over(answer.paging, encoded.size):
            kept = answer.keep(encoded.text.encode())
            others = _preview_blocks(encoded.value, encoded.size, kept)
        else:
            body["data"] = encoded.value
    content = [text_block(encode_json(body).text), *others, *change_blocks(answer.envelope)]
    return {"content": content, "isError": True, "_meta": answer.notes()}


def _issues(answer: _Answer) -> list[Issue]:
    """Return the violations: `warn` reports nothing missing, a published schema does."""
    compiled, envelope = answer.tool.contract.compiled_output, answer.envelope
    is_complete = answer.tool.contract.policy != "warn" or isinstance(envelope.data, bytes)
    if compiled is None or (is_complete and envelope.warnings):
        return list(envelope.warnings)
    return explain(compiled, compiled.errors(encode_json(envelope.data).value), "Output")
