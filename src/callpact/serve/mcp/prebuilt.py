"""JSON that bypasses the SDK: list pages that are encoded once, and values nested too deeply for it.

The SDK copies and encodes every result, and fails at about 200 levels. It gets an empty part
instead, and the response gets the prebuilt JSON: through `orjson.Fragment` if the door writes lines,
and through `PrebuiltBodies` over HTTP, where the SDK carries a placeholder. Deep arguments are
stored in the scope of their request.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import orjson

from callpact.schema import is_object
from callpact.schema.values import is_shallow
from callpact.wire.mcp.content import encode_json

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.context import HandlerResult
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_SDK_DEPTH = 150
"""Levels of JSON that the SDK handles."""
WHOLE_BODY = "callpact.body"
"""Key in the scope for the body of a request whose arguments were set aside."""
_ARGUMENTS = "callpact.arguments"
_PARTS = "callpact.parts"
_PLACEHOLDER = f"callpact-{secrets.token_hex(16)}"
_QUOTED = f'"{_PLACEHOLDER}"'.encode()
_current: ContextVar[dict[str, bytes]] = ContextVar("callpact.prebuilt")


# --- arguments ------------------------------------------------------------------------------


def set_aside(scope: Scope, message: dict[str, Any], body: bytes) -> bytes:
    """Return the body of a call without its arguments if they are deep, else the same body."""
    params = message.get("params")
    if message.get("method") != "tools/call" or not is_object(params):
        return body
    if body.count(b"[") + body.count(b"{") <= MAX_SDK_DEPTH:
        return body
    arguments = params.get("arguments")
    if not is_object(arguments) or is_shallow(arguments, MAX_SDK_DEPTH):
        return body
    scope[_ARGUMENTS] = arguments
    scope[WHOLE_BODY] = body
    return orjson.dumps({**message, "params": {**params, "arguments": {}}})


def arguments_of(context: ServerRequestContext[Any], given: Any) -> Any:
    """Return the arguments that were set aside for a call, else those that the SDK read."""
    scope = getattr(context.request, "scope", None)
    return given if scope is None else scope.get(_ARGUMENTS, given)


# --- results --------------------------------------------------------------------------------


class Prebuilt:
    """The prebuilt parts of one result, by their key in it; collected while its handler runs."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}
        _current.set(self._parts)

    def put_in(
        self, context: ServerRequestContext[Any], result: HandlerResult, *, is_line: bool
    ) -> HandlerResult:
        """Return the result with its prebuilt parts; `is_line` is true if orjson encodes it."""
        if not self._parts:
            return result
        parts = {
            key: _carried(context, written, is_line=is_line) for key, written in self._parts.items()
        }
        return {**cast("dict[str, Any]", result), **parts}


def put_aside(key: str, written: bytes) -> None:
    """Store the JSON of one part of the current result, which is empty under that key."""
    _current.get()[key] = written


def take_out(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with its deep structured content replaced by an empty object and put aside."""
    structured = result.get("structuredContent")
    if is_shallow(structured, MAX_SDK_DEPTH):
        return result
    put_aside("structuredContent", encode_json(structured).text.encode())
    return {**result, "structuredContent": {}}


def _carried(context: ServerRequestContext[Any], written: bytes, *, is_line: bool) -> Any:
    """Return the placeholder or fragment for prebuilt JSON; the value itself if neither is possible."""
    if is_line:
        return orjson.Fragment(written)
    scope = getattr(context.request, "scope", None)
    parts: list[bytes] | None = None if scope is None else scope.get(_PARTS)
    if parts is None:
        return orjson.loads(written)
    parts.append(written)
    return _PLACEHOLDER


class PrebuiltBodies:
    """ASGI middleware that replaces the placeholder in a response body by the prebuilt JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []
        held: Message | None = None

        async def fill(message: Message) -> None:
            nonlocal held
            if not parts:
                await send(message)
            elif message["type"] == "http.response.start":
                held = message  # Its content-length depends on the body.
            else:
                body = message.get("body", b"").replace(_QUOTED, parts[0], 1)
                if held is not None:
                    await send({**held, "headers": _lengthened(held["headers"], body)})
                    held = None
                await send({**message, "body": body})

        scope[_PARTS] = parts
        await self._app(scope, receive, fill)


def _lengthened(headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
    length = str(len(body)).encode()
    return [(name, length if name == b"content-length" else value) for name, value in headers]
