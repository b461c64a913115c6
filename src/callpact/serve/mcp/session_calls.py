"""`tools/call` of sessions of the handshake era over HTTP, answered without the SDK.

An ASGI middleware before the SDK's application, which owns the sessions: it opens and ends them, and
handles every message that is not a call of a tool with `uses_client=False`. In a session the end of
a connection does not cancel a call, `notifications/cancelled` does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import (
    AuthenticatedUser,
    AuthorizationContext,
    authorization_context,
)
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.dispatcher import coerce_request_id
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from callpact.schema import is_object
from callpact.serve.mcp.direct_calls import (
    ACCEPT,
    MESSAGE,
    VERSION,
    Exchange,
    accepts_both,
    read_handshake_call,
    single_headers,
)

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from mcp.server import ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from callpact.serve.mcp.door import DirectCall, Door

RENEW_SECONDS = 60.0
"""Seconds after which a call goes through the SDK again: it ends sessions that are idle for longer,
and responds with 404 if it has ended this one."""
SESSION_ID = b"mcp-session-id"
_CONTENT_TYPE = b"content-type"
_SESSION = "callpact.session"
_CANCELLED = {"error": {"code": REQUEST_CANCELLED, "message": "Request cancelled"}}


@dataclass(slots=True, eq=False)
class HandshakeSession:
    """A session that the SDK has opened."""

    owner: AuthorizationContext | None
    """The caller that opened it: the session does not exist for others."""
    era: str = ""
    """The agreed revision; empty until the client has confirmed the handshake."""
    client_name: str = ""
    renewed: float = 0.0
    """When the SDK last saw a request of the session."""
    running: dict[str | int, Exchange] = field(default_factory=dict[str | int, Exchange])
    """The calls that run beside the SDK; `7` and `"7"` are one id, as in the SDK."""

    def end(self) -> None:
        """Cancel the calls that still run; they get no answer."""
        for exchange in list(self.running.values()):
            exchange.cancel(None)


async def note_handshake(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Note the revision and the client of a confirmed handshake, as a middleware of the server."""
    result = await call_next(ctx)
    scope = getattr(ctx.request, "scope", None)
    if ctx.method == "notifications/initialized" and scope is not None:
        session: HandshakeSession | None = scope.get(_SESSION)
        given = ctx.session.client_params
        if session is not None and given is not None:
            info = given.client_info
            session.client_name = f"{info.name} {info.version}".strip()
            session.era = ctx.protocol_version
    return result


class SessionCalls:
    """ASGI middleware that answers the calls of sessions that it can, and forwards the others."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door
        self._sessions: dict[bytes, HandshakeSession] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = first_header(scope, SESSION_ID) if is_of_handshake_era(scope) else None
        session = None if named is None else self._sessions.get(named)
        if named is None:
            await self._open(scope, receive, send)
        elif session is None or session.owner != _owner(scope):
            await self._app(scope, receive, send)
        elif (call := self._call(session, scope)) is None:
            await self._forward(named, session, scope, receive, send)
        else:
            await self._answer(named, session, call, scope, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                opened = first_header(message, SESSION_ID)
                if opened is not None:
                    self._sessions[opened] = HandshakeSession(_owner(scope))
            await send(message)

        await self._app(scope, receive, watched)

    async def _forward(
        self, id: bytes, session: HandshakeSession, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def watched(part: Message) -> None:
            if part["type"] == "http.response.start":
                self._note(id, session, scope, part["status"])
            await send(part)

        message: dict[str, Any] = scope.get(MESSAGE) or {}
        if message.get("method") == "initialize":
            session.era = ""  # Until the new handshake is confirmed.
        scope[_SESSION] = session
        await self._app(scope, receive, watched)

    def _note(self, id: bytes, session: HandshakeSession, scope: Scope, status: int) -> None:
        """Note what a response of the SDK says about its session."""
        if status == 404 or (scope["method"] == "DELETE" and status < 300):
            self._sessions.pop(id, None)
            session.end()
            return
        session.renewed = time.monotonic()
        if status == 202 and (exchange := _cancelled(session, scope.get(MESSAGE) or {})):
            exchange.cancel(_CANCELLED)

    def _call(self, session: HandshakeSession, scope: Scope) -> DirectCall | None:
        """The call of a request; None if the SDK has to judge it."""
        message: dict[str, Any] = scope.get(MESSAGE) or {}
        if not session.era or coerce_request_id(message.get("id", "")) in session.running:
            return None
        read = read_handshake_call(message, session.era, session.client_name)
        if read is None or time.monotonic() - session.renewed > RENEW_SECONDS:
            return None
        found = single_headers(scope, (SESSION_ID, VERSION, ACCEPT, _CONTENT_TYPE))
        if found is None or found.get(VERSION) != session.era.encode():
            return None
        if not found[_CONTENT_TYPE].startswith(b"application/json"):  # The SDK compares the case.
            return None
        return self._door.direct(scope, read) if accepts_both(found.get(ACCEPT)) else None

    async def _answer(
        self, id: bytes, session: HandshakeSession, call: DirectCall, scope: Scope, send: Send
    ) -> None:
        asked = scope[MESSAGE]["id"]
        exchange = Exchange(send, asked, headers={SESSION_ID.decode(): id.decode("latin-1")})
        key = coerce_request_id(asked)
        session.running[key] = exchange
        try:
            await exchange.run(self._door.answer(call))
        finally:
            del session.running[key]


def is_of_handshake_era(scope: Scope) -> bool:
    """True for a request that the SDK handles in a session, or opens one for."""
    version = first_header(scope, VERSION)
    return version is None or version.decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS


def first_header(message: MutableMapping[str, Any], name: bytes) -> bytes | None:
    """Return the first value of a header, as the SDK does."""
    for key, value in message["headers"]:
        if key == name:
            return value
    return None


def _owner(scope: Scope) -> AuthorizationContext | None:
    """Return the caller of a request as the SDK compares it with the opener of a session."""
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


def _cancelled(session: HandshakeSession, message: dict[str, Any]) -> Exchange | None:
    """Return the running call that a notification cancels."""
    params = message.get("params")
    if message.get("method") != "notifications/cancelled" or not is_object(params):
        return None
    cancelled = params.get("requestId")
    if isinstance(cancelled, bool) or not isinstance(cancelled, str | int):
        return None
    return session.running.get(coerce_request_id(cancelled))
