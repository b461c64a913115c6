"""JSON that is written once and sent often: it travels through the SDK as a word that stands for it.

The SDK copies and writes every answer anew. A part that never changes is therefore put in at the
edge, as bytes: by orjson where the door writes lines, and here in the bodies of HTTP.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, cast

import orjson

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PARTS = "callpact.ready"
_WORD = f"callpact-{secrets.token_hex(16)}"
_QUOTED = f'"{_WORD}"'.encode()


def stand_in(context: ServerRequestContext[Any], written: bytes, *, is_line: bool) -> Any:
    """What a result holds instead of JSON that is written already; the JSON itself if none can.

    `is_line` says that orjson writes the answer.
    """
    if is_line:
        return orjson.Fragment(written)
    request = cast("Any", context.request)
    parts = None if request is None else request.scope.get(_PARTS)
    if parts is None:
        return orjson.loads(written)
    parts.append(written)
    return _WORD


class Filling:
    """Puts what is written already into the bodies of an application."""

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
                held = message  # Its length is known with the body.
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
