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
_SESSION = "callpact.session"


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

    def end(self) -> None:
        """Cancel the calls that still run."""
        for exchange in list(self.running.values()):
            exchange.cancel()


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

    def __init__(self, app: ASGIApp, door: Door, path: str) -> None:
        self._app = app
        self._door = door
        self._path = path
        self._sessions: dict[bytes, HandshakeSession] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = _session_id(scope)
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
                opened = _session_id(message)
                if opened is not None:
                    self._sessions[opened] = HandshakeSession(_owner(scope))
            await send(message)

        await self._app(scope, receive, watched)

    async def _forward(
        self, id: bytes, session: HandshakeSession, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(id, session, scope, message["status"])
            await send(message)

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
            exchange.cancel()

    def _call(self, session: HandshakeSession, scope: Scope) -> DirectCall | None:
        """The call of a request; None if the SDK has to judge it."""
        message: dict[str, Any] = scope.get(MESSAGE) or {}
        if scope["path"] != self._path or not session.era or message.get("id") in session.running:
            return None
        read = read_handshake_call(message, session.era, session.client_name)
        if read is None or time.monotonic() - session.renewed > RENEW_SECONDS:
            return None
        found = single_headers(scope, (SESSION_ID, VERSION, ACCEPT))
        if found is None or found.get(VERSION) != session.era.encode():
            return None
        return self._door.direct(scope, read) if accepts_both(found.get(ACCEPT)) else None

    async def _answer(
        self, id: bytes, session: HandshakeSession, call: DirectCall, scope: Scope, send: Send
    ) -> None:
        asked = scope[MESSAGE]["id"]
        exchange = Exchange(send, asked, headers={SESSION_ID.decode(): id.decode("latin-1")})
        session.running[asked] = exchange
        try:
            await exchange.run(self._door.answer(call))
        finally:
            del session.running[asked]


def _session_id(message: MutableMapping[str, Any]) -> bytes | None:
    """Return the first value of the header, as the SDK does."""
    for key, value in message["headers"]:
        if key == SESSION_ID:
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
    return session.running.get(cancelled)
