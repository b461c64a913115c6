"""The connections of the HTTP door: uvicorn's protocol with strict framing and a fair limit.

A connection with invalid framing gets an error response and is closed (`framing.py`). At the limit of
connections, the longest idle connection of the peer address with the most is closed; if none is
idle, the new one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from callpact.serve.concurrency import CallerSlots, peer_of
from callpact.serve.http.framing import Framing
from callpact.serve.jsonrpc import INTERNAL_ERROR, RequestRefused

if TYPE_CHECKING:
    import asyncio

LINGER_SECONDS = 1.0
"""Seconds that a refused connection over HTTP stays open, so that the client can read the error."""
_ALL_IN_USE = "All connections are in use; try again when a call of yours has ended"
_CUT = (
    "All connections were in use, most of them by you: this one was closed for another caller. The "
    "request may have had an effect"
)


class HttpConnection(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, slots: CallerSlots[HttpConnection], header_bytes: int, **given: Any) -> None:
        super().__init__(**given)
        self._slots = slots
        self._framing = Framing(header_bytes)
        self._refused: RequestRefused | None = None
        self._has_responded = False

    @property
    def is_idle(self) -> bool:
        """True if no request is being served."""
        cycle: Any = self.cycle  # None before the first request.
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn
        super().connection_made(transport)
        peer = peer_of(self.client)
        if self._slots.are_taken:
            victim = self._slots.victim(peer, lambda one: one.is_idle)
            if victim is None:
                self._refuse_with(_ALL_IN_USE)
                return
            self._slots.leave(victim)
            victim.make_room()
        self._slots.take(self, peer)

    def make_room(self) -> None:
        """Close the connection in favour of another."""
        cycle: Any = self.cycle
        if cycle is None:  # A first request may be on its way, and gets this response.
            self._refuse_with(_ALL_IN_USE)
        elif self.is_idle:
            self.transport.close()
        elif cycle.response_started:
            self.transport.abort()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._refuse_with(_CUT)

    def _refuse_with(self, text: str) -> None:
        self._refused = RequestRefused(503, text, INTERNAL_ERROR)
        self._refuse(self._refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._slots.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:  # The connection is closing: ignore the rest.
            return
        self._unset_keepalive_if_required()
        self._slots.use(self)
        try:
            good = self._framing.feed(data)
        except RequestRefused as refused:
            self._refused = refused
            good = bytes(self._framing.passed)
        if good:
            super().data_received(good)
        if self._refused is not None:
            self._end(self._refused)

    def send_400_response(self, msg: str) -> None:
        self._refused = RequestRefused(400, msg)
        self._refuse(self._refused)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refused is not None:
            self._end(self._refused)

    def _end(self, refused: RequestRefused) -> None:
        """Refuse the last request, once the requests before it have their responses."""
        if not self.is_idle:
            if not self.cycle.more_body:
                return
            # The rest of its body will never come.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refuse(refused)

    def _refuse(self, refused: RequestRefused) -> None:
        if self._has_responded or self.transport.is_closing():
            return
        self._has_responded = True
        self._unset_keepalive_if_required()
        self.transport.write(refused.closing_response)
        # Closing at once would reset the connection before the client has read the response.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)
