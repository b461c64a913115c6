"""The limit of sessions of older clients over HTTP, fair between callers.

An ASGI middleware before the SDK's application, which owns the sessions. At the limit, the longest
idle session of the caller with the most is ended by a DELETE request, as its client would do. Its id
then gets 404, and the client initializes a new session.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from callpact.serve.concurrency import CallerSlots, caller_of
from callpact.serve.jsonrpc import INTERNAL_ERROR, RequestRefused
from callpact.serve.mcp.session_calls import SESSION_ID, first_header, is_of_handshake_era

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Sessions:
    """Counts the sessions that an application opens, and ends some of them."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._slots: CallerSlots[bytes] = CallerSlots(most)
        self._scopes: dict[bytes, Scope] = {}
        """The request that opened each session: only its caller may end it."""
        self._calls: Counter[bytes] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = first_header(scope, SESSION_ID)
        if not is_of_handshake_era(scope):
            await self._app(scope, receive, send)
        elif session is not None:
            await self._go_on(session, scope, receive, send)
        elif scope["method"] == "POST":
            await self._open(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_of(scope)
        while self._slots.are_taken:
            victim = self._slots.victim(caller, lambda session: not self._calls[session])
            if victim is None:
                text = "Calls run in all sessions; try again when one of yours has ended"
                await RequestRefused(503, text, INTERNAL_ERROR).send(send)
                return
            await self._end(victim)

        def begun(message: Message) -> None:
            session = first_header(message, SESSION_ID)
            if message["status"] < 400 and session is not None:
                self._slots.take(session, caller)
                self._scopes[session] = scope

        await self._app(scope, receive, _watching(send, begun))

    async def _go_on(self, session: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        self._slots.use(session)
        is_call = scope["method"] == "POST"

        def begun(message: Message) -> None:
            is_ended = scope["method"] == "DELETE" and message["status"] < 300
            if is_ended or (message["status"] == 404 and self._is_opener(session, scope)):
                self._forget(session)

        self._calls[session] += is_call
        try:
            await self._app(scope, receive, _watching(send, begun))
        finally:
            self._calls[session] -= is_call
            if not self._calls[session]:
                del self._calls[session]

    def _is_opener(self, session: bytes, scope: Scope) -> bool:
        """True if a request's caller opened the session; other callers get 404 as well."""
        opened = self._scopes.get(session)
        return opened is not None and caller_of(opened) == caller_of(scope)

    async def _end(self, session: bytes) -> None:
        """End a session as its client would."""
        scope = {
            **self._forget(session),
            "method": "DELETE",
            "headers": [(SESSION_ID, session), (b"host", b"localhost")],
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            """Drop the response."""

        await self._app(scope, receive, send)

    def _forget(self, session: bytes) -> dict[str, Any]:
        self._slots.leave(session)
        return dict(self._scopes.pop(session, {}))


def _watching(send: Send, begun: Callable[[Message], None]) -> Send:
    async def watched(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun(message)
        await send(message)

    return watched
