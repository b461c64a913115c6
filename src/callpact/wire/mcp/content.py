"""The parts of an MCP result: content blocks, and `_meta` with the origin of the output.

Pure functions that return plain JSON. `results.py` combines the parts.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
import orjson
from msgspec import Struct

from callpact.envelope import HTTPResponseMeta, MCPResponseMeta, ResponseEnvelope
from callpact.schema import is_object
from callpact.schema.json_text import json_text, sendable

if TYPE_CHECKING:
    from callpact.tool import Tool
    from callpact.wire.paging import ItemPage, KeptResult, Paging

Block = dict[str, Any]

MAX_NOTES = 100
"""Warnings, and changes, in one result."""
MAX_BEFORE = 1_000
"""Bytes of JSON of the value before a change; a larger one is replaced by its size."""

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
}
_KINDS_WITH_MAGIC = frozenset(_MAGIC.values())
_OCTETS = "application/octet-stream"
_SURROGATE = re.compile("[\ud800-\udfff]")
_DIGITS = 4_300  # The longest integer that Python and others parse.
_RESERVED = "io.modelcontextprotocol/"
_SERVER = "io.modelcontextprotocol/serverInfo"
_NAMED = 20
_NAME_LENGTH = 100
_PLAIN_PATH = re.compile(r"[\w/~.…-]+")


class EncodedJson(Struct, frozen=True):
    """A JSON value that every peer can read, with its text."""

    value: Any
    text: str
    size: int
    """Bytes of the text."""

    def boxed(self) -> EncodedJson:
        """Wrap the value in `{"result": …}`."""
        return EncodedJson({"result": self.value}, f'{{"result":{self.text}}}', self.size + 11)

    def enveloped(self) -> EncodedJson:
        """Wrap the value in FlowMCP's envelope of a success (seed 000)."""
        begin = '{"status":true,"messages":[],"data":'
        value: dict[str, Any] = {"status": True, "messages": [], "data": self.value}
        return EncodedJson(value, f"{begin}{self.text}}}", self.size + len(begin) + 1)


def encode_json(value: Any) -> EncodedJson:
    """Encode a JSON value; parts that not all peers can read are converted."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # Integers beyond 64 bits, and lone surrogates.
        pass
    else:
        return EncodedJson(value, text.decode(), len(text))
    try:
        text = msgspec.json.encode(value)
    except (ValueError, TypeError):  # Integers that no parser accepts.
        value = _readable(value)
        text = json_text(value).encode()
    return EncodedJson(value, text.decode(), len(text))


def _readable(value: Any) -> Any:
    if is_object(value):
        return {_whole(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in cast("list[Any]", value)]
    if isinstance(value, int) and value.bit_length() > _DIGITS * 10 // 3:
        return f"an integer of {value.bit_length()} bits"
    return _whole(value) if isinstance(value, str) else value


def _whole(text: str) -> str:
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


# --- blocks ---------------------------------------------------------------------------------


def text_block(text: str) -> Block:
    """Make a text block."""
    return {"type": "text", "text": text if text.isascii() else _whole(text)}


def media_block(data: bytes, kind: str, tool: Tool) -> Block:
    """Make a block of bytes: an image, a sound, or an embedded resource."""
    text = base64.b64encode(data).decode()
    if kind.startswith(("image/", "audio/")):
        return {"type": kind.partition("/")[0], "data": text, "mimeType": kind}
    resource = {"uri": f"callpact://result/{tool.id}", "mimeType": kind or _OCTETS, "blob": text}
    return {"type": "resource", "resource": resource}


def media_kind(data: bytes, declared: str | None, envelope: ResponseEnvelope[Any]) -> str:
    """Return the media type of bytes: declared, else from the upstream, else from their magic number."""
    begins = sniffed(data)
    said = declared or ""
    if not said and isinstance(envelope.meta, HTTPResponseMeta):
        said = str(envelope.meta.content_type or "").partition(";")[0].strip().lower()
    if said in {"", _OCTETS}:
        return begins or _OCTETS
    # Clients refuse an image whose declared type is wrong.
    return begins if begins and said.startswith("image/") else said


def sniffed(data: bytes) -> str:
    """Return the media type of the magic number; empty if unknown."""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")


def encoded_media(text: str, declared: str) -> Block | None:
    """Make a block of base64 text that is declared as an image or sound; None if it is neither."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    begins = sniffed(data)
    if not data or (declared in _KINDS_WITH_MAGIC and not begins):
        return None
    kind = begins if begins and declared.startswith("image/") else declared
    if not kind.startswith(("image/", "audio/")):
        return None
    return {"type": kind.partition("/")[0], "data": text, "mimeType": kind}


def link_block(kept: KeptResult) -> Block:
    """Make a link to the whole of a kept result."""
    return {
        "type": "resource_link",
        "uri": kept.uri,
        "name": kept.tool_id,
        "title": f"The whole answer of {kept.tool_id}",
        "mimeType": kept.mime_type,
        "size": kept.size,
    }


def change_blocks(envelope: ResponseEnvelope[Any]) -> list[Block]:
    """Make text blocks that list the values which the contract invented, and those it removed."""
    changes = envelope.changes
    invented = [change.path for change in changes if change.invented]
    removed = [change.path for change in changes if change.action in _REMOVING]
    lines = {
        "Not from the tool, but filled in to keep its contract": invented,
        "From the tool, but removed because its contract does not declare it": removed,
    }
    return [text_block(f"{line}: {_places(paths)}") for line, paths in lines.items() if paths]


_REMOVING = frozenset({"stripped", "truncated"})


def _places(paths: list[str]) -> str:
    """List some paths on one line; names with unusual characters are quoted."""
    named = [_place(path) for path in paths[:_NAMED]]
    more = len(paths) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _place(path: str) -> str:
    if not path:
        return "the whole answer"
    shown = path if len(path) <= _NAME_LENGTH else path[:_NAME_LENGTH] + "…"
    return shown if _PLAIN_PATH.fullmatch(shown) else json_text(shown)


# --- _meta ----------------------------------------------------------------------------------


def notes(envelope: ResponseEnvelope[Any], duration: float | None = None) -> dict[str, Any]:
    """Return the notes on a result: its origin, its warnings and its changes.

    `duration` is in seconds.
    """
    meta = envelope.meta
    notes: dict[str, Any] = {}
    if isinstance(meta, MCPResponseMeta):
        notes |= _relayed_notes(meta)
    notes["callpact/source"] = meta.source
    if isinstance(meta, HTTPResponseMeta) and type(meta.status_code) is int:
        notes["callpact/status"] = meta.status_code
    if duration is not None:
        notes["callpact/durationMs"] = round(duration * 1000, 1)
    if envelope.warnings:
        found = msgspec.to_builtins(list(envelope.warnings[:MAX_NOTES]))
        notes["callpact/warnings"] = sendable(found)
    if envelope.changes:
        # Invented values come first, so that they are always listed.
        ordered = sorted(envelope.changes, key=lambda change: not change.invented)
        notes["callpact/changes"] = [_change(change) for change in ordered[:MAX_NOTES]]
    for name in ("warnings", "changes"):
        left = len(getattr(envelope, name)) - MAX_NOTES
        if left > 0:
            notes[f"callpact/more{name.capitalize()}"] = left
    return notes


def _relayed_notes(meta: MCPResponseMeta) -> dict[str, Any]:
    """Return the notes of another server, without those about itself and its connection."""
    if not is_object(meta.meta_ext):
        return {}
    notes = {key: value for key, value in meta.meta_ext.items() if not key.startswith(_RESERVED)}
    server = meta.meta_ext.get(_SERVER)
    if is_object(server):
        notes["callpact/server"] = {
            key: server[key] for key in ("name", "version") if key in server
        }
    return sendable(notes)


def _change(change: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": change.path, "action": change.action}
    before = encode_json(sendable(change.before))
    if before.size <= MAX_BEFORE:
        shown["before"] = before.value
    else:
        shown["beforeBytes"] = before.size
    return sendable(shown | {"invented": True} if change.invented else shown)


def page_note(page: ItemPage, kept: KeptResult | None, paging: Paging) -> dict[str, Any]:
    """Describe a page: its items, the total, and the cursor of the next page."""
    note: dict[str, Any] = {
        "path": page.path,
        "start": page.start,
        "shown": page.shown,
        "total": page.total,
    }
    if kept is not None:
        note["uri"] = kept.uri
        if page.next is not None:
            note["nextCursor"] = paging.kept.cursor(kept, page.next)
    return note


def page_text(page: ItemPage, note: dict[str, Any], paging: Paging) -> str:
    """Describe a page in words."""
    first, last = page.start + 1, page.start + page.shown
    held = f"{page.path} holds" if page.path else "This is"
    words = f"{held} items {first:,} to {last:,} of {page.total:,}."
    if "nextCursor" in note:
        call = f"call {paging.reader} with the cursor" if paging.reader else "cursor"
        kept = f"kept for {paging.kept.age:g} seconds"
        return f"{words} Next page: {call} {note['nextCursor']} ({kept})."
    if page.next is None:
        return f"{words} This is the last page."
    return f"{words} The rest is too large to be kept: ask for less."
