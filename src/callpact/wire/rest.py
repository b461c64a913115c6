"""Plain HTTP's wire form: the data as the body, or seed 004's error with a status; pure functions.

Arguments in a query are read in `query_arguments.py`; the description of the endpoints is made in
`openapi_output.py`. Routes, authentication and streams are in `serve/rest/`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from callpact.envelope import (
    HTTPResponseMeta,
    LocalResponseMeta,
    MCPResponseMeta,
    ResponseEnvelope,
    encode_json,
    now_ms,
    raise_for_error,
)
from callpact.errors import CallError, Issue, OutputRejected
from callpact.schema.json_text import sendable
from callpact.wire.mcp.content import media_kind
from callpact.wire.mcp.published import result_form
from callpact.wire.plain import encode_error as encode_plain_error

if TYPE_CHECKING:
    from callpact.tool import Tool

JSON = "application/json"
ENVELOPE = "application/vnd.callpact.envelope+json"
"""The media type that asks for the whole envelope instead of its data."""
EVENTS = "text/event-stream"
RETRY_SECONDS = 10
"""Seconds in the `Retry-After` header of a call that was refused for lack of room."""

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
_WEIGHT = re.compile(r"[01](?:\.[0-9]{0,3})?", re.ASCII)
_OCTETS = "application/octet-stream"
_BYTES = (bytes, bytearray, memoryview)
REFUSALS = {
    400: "bad_request",
    401: "access_denied",
    403: "access_denied",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
    429: "overloaded",
    500: "handler_error",
    503: "unavailable",
}
"""The codes of requests that are refused before a tool is called, by their status."""

EXPOSED_HEADERS = (
    "callpact-changes",
    "idempotency-replayed",
    "retry-after",
    "x-operation-id",
    "x-operation-timestamp",
)
"""Headers of responses that pages of other origins may read, where those are allowed."""

Headers = list[tuple[bytes, bytes]]
_GUARDED: Headers = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    # A result may be a web page: without this, its scripts could call tools of this server.
    (b"content-security-policy", b"default-src 'none'; sandbox"),
]


class HttpAnswer(Struct, frozen=True):
    """A whole HTTP response."""

    status: int
    headers: Headers
    body: bytes


def prefers_envelope(accept: str) -> bool:
    """True if an `Accept` header names the envelope, and not the bare data at least as much."""
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        weights[kind] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights.get(ENVELOPE, 0.0) > weights.get(JSON, 0.0)


# --- results --------------------------------------------------------------------------------


def encode_result(
    envelope: ResponseEnvelope[Any], tool: Tool, *, whole: bool = False
) -> HttpAnswer:
    """Encode a released output; `whole` for the envelope instead of its data."""
    try:
        if envelope.warnings and _breaks(envelope, tool):
            return _broken(envelope, tool)
        meta = envelope.meta
        is_error = isinstance(meta, MCPResponseMeta) and meta.is_error
        if whole:
            return _answer(502 if is_error else 200, ENVELOPE, _enveloped(envelope), tool, envelope)
        if is_error:
            raise_for_error(envelope)
        data = envelope.data
        if isinstance(data, _BYTES):
            raw = bytes(cast("bytes", data))
            return _answer(200, content_type(raw, envelope, tool), raw, tool, envelope)
        return _answer(200, JSON, encode_json(data), tool, envelope)
    except CallError as error:
        return encode_error(_with_content(error, envelope), tool)


def encode_error(error: CallError, tool: Tool | None = None) -> HttpAnswer:
    """Encode a failed call, with the status of its code."""
    status = error.row.http
    body = encode_json(sendable(encode_plain_error(error)))
    answer = _answer(status, JSON, body, tool)
    if status in {429, 503} or error.code == "idempotency_key_in_use":
        answer.headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    return answer


def marked_as_replayed(answer: HttpAnswer) -> HttpAnswer:
    """Mark an answer as the recorded one of an earlier call with the same idempotency key."""
    headers = [*answer.headers, (b"idempotency-replayed", b"true")]
    return HttpAnswer(answer.status, headers, answer.body)


def encode_refusal(status: int, message: str) -> bytes:
    """Encode the body for a request that is refused before a tool is called."""
    code = REFUSALS.get(status, "bad_request" if status < 500 else "unavailable")
    return encode_json({"error": {"code": code, "message": message}})


def content_type(data: bytes, envelope: ResponseEnvelope[Any], tool: Tool) -> str:
    """Return the media type of bytes: declared, else from the upstream, else from their beginning."""
    kind = media_kind(data, result_form(tool, modern=True).media, envelope)
    return kind if _MEDIA_TYPE.fullmatch(kind) else _OCTETS


def encode_event(
    envelope: ResponseEnvelope[Any], tool: Tool, number: int, *, whole: bool = False
) -> bytes:
    """Encode one result of a subscription as a server-sent event, numbered from 0.

    Raises:
        CallError: the result cannot be sent; the stream ends with `encode_error_event`.
    """
    if envelope.warnings and _breaks(envelope, tool):
        issues = _issues(envelope)
        raise OutputRejected(lambda: issues)
    wire = envelope.to_wire()
    is_bytes = "encoding" in wire
    data = (
        _enveloped(envelope)
        if whole
        else encode_json({k: wire[k] for k in ("data", "encoding")} if is_bytes else wire["data"])
    )
    return b"id: %d\ndata: %b\n\n" % (number, data)


def encode_error_event(error: CallError) -> bytes:
    """Encode the failure of a subscription as its last event."""
    return b"event: error\ndata: %b\n\n" % encode_json(sendable(encode_plain_error(error)))


def encode_end_event(count: int) -> bytes:
    """Encode the end of a subscription that sent `count` results."""
    return b'event: completed\ndata: {"count":%d}\n\n' % count


def stream_headers(tool: Tool) -> Headers:
    """Return the headers of a stream of events."""
    return [
        (b"content-type", EVENTS.encode()),
        (b"x-operation-id", tool.id.encode()),
        (b"x-operation-timestamp", str(now_ms()).encode()),
        *_GUARDED,
    ]


def _answer(
    status: int,
    kind: str,
    body: bytes,
    tool: Tool | None,
    envelope: ResponseEnvelope[Any] | None = None,
) -> HttpAnswer:
    headers: Headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if tool is not None:
        meta = None if envelope is None else envelope.meta
        stamp = meta.timestamp if isinstance(meta, LocalResponseMeta) else now_ms()
        headers += [
            (b"x-operation-id", tool.id.encode()),
            (b"x-operation-timestamp", str(stamp).encode()),
        ]
    if envelope is not None and envelope.changes:
        headers.append((b"callpact-changes", str(len(envelope.changes)).encode()))
    return HttpAnswer(status, headers + _GUARDED, body)


def _enveloped(envelope: ResponseEnvelope[Any]) -> bytes:
    meta = envelope.meta
    if isinstance(meta, HTTPResponseMeta) and meta.set_cookie is not None:
        # The cookies of an upstream are not for the caller.
        bare = msgspec.structs.replace(meta, set_cookie=None)
        envelope = msgspec.structs.replace(envelope, meta=bare)
    return envelope.to_json(details=True)


def _with_content(error: CallError, envelope: ResponseEnvelope[Any]) -> CallError:
    """Add the content blocks of an MCP server's error to its details."""
    meta = envelope.meta
    if error.code != "tool_error" or not isinstance(meta, MCPResponseMeta):
        return error
    content = sendable(msgspec.to_builtins(meta.content or []))
    return CallError(error.code, error.message, details={"content": content})


def _breaks(envelope: ResponseEnvelope[Any], tool: Tool) -> bool:
    """True if the output breaks the published schema, as `cast` may leave it."""
    meta = envelope.meta
    if isinstance(meta, MCPResponseMeta) and meta.is_error:
        return False
    compiled = tool.contract.compiled_output
    if compiled is None or not result_form(tool, modern=True).is_strict:
        return False
    try:
        return not compiled.accepts(envelope.data)
    except ValueError:
        return True


def _broken(envelope: ResponseEnvelope[Any], tool: Tool) -> HttpAnswer:
    """Encode an output that breaks the published schema: the error, and the data beside it."""
    issues = _issues(envelope)
    error = encode_plain_error(OutputRejected(lambda: issues))
    wire = envelope.to_wire()
    held = {key: wire[key] for key in ("data", "encoding") if key in wire}
    return _answer(502, JSON, encode_json(error | held), tool, envelope)


def _issues(envelope: ResponseEnvelope[Any]) -> list[Issue]:
    found = list(envelope.warnings)
    return [issue for issue in found if issue.code == "residual"] or found
