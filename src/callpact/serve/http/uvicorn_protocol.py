"""The connections of the HTTP door: uvicorn's protocol behind strict framing, and shared fairly.

A connection whose bytes are not clearly HTTP/1.1 is answered once and closed (`framing.py`). When
all connections are taken, the peer address with the most of them loses the one that is idle longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from callpact.serve.concurrency import Shares, peer_of
from callpact.serve.http.framing import Framing
from callpact.serve.jsonrpc import INTERNAL_ERROR, Refused

if TYPE_CHECKING:
    import asyncio

LINGER_SECONDS = 1.0
"""Seconds that a connection over HTTP stays open after it was refused, so that the client can read
why."""


class Connection(H11Protocol):
    """One connection of a client."""

    def __init__(self, shares: Shares[Connection], header_bytes: int, **given: Any) -> None:
        super().__init__(**given)
        self._shares = shares
        self._framing = Framing(header_bytes)
        self._refused: Refused | None = None
        self._is_answered = False

    @property
    def is_idle(self) -> bool:
        """True if no request is under way."""
        cycle: Any = self.cycle  # None before the first request.
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn
        super().connection_made(transport)
        peer = peer_of(self.client)
        if self._shares.are_taken:
            victim = self._shares.victim(peer, lambda one: one.is_idle)
            if victim is None:
                text = "All connections are in use; try again when a call of yours has ended"
                self._refused = Refused(503, text, INTERNAL_ERROR)
                self._refuse(self._refused)
                return
            self._shares.leave(victim)
            victim.transport.close() if victim.is_idle else victim.transport.abort()
        self._shares.take(self, peer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shares.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:  # The connection is closing: ignore the rest.
            return
        self._unset_keepalive_if_required()
        self._shares.use(self)
        try:
            good = self._framing.feed(data)
        except Refused as refused:
            self._refused = refused
            good = bytes(self._framing.passed)
        if good:
            super().data_received(good)
        if self._refused is not None:
            self._end(self._refused)

    def send_400_response(self, msg: str) -> None:
        self._refused = Refused(400, msg)
        self._refuse(self._refused)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refused is not None:
            self._end(self._refused)

    def _end(self, refused: Refused) -> None:
        """Refuse what came last, once the requests before it are answered."""
        if not self.is_idle:
            if not self.cycle.more_body:
                return
            # The rest of its body will never come.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refuse(refused)

    def _refuse(self, refused: Refused) -> None:
        if self._is_answered or self.transport.is_closing():
            return
        self._is_answered = True
        self._unset_keepalive_if_required()
        self.transport.write(refused.closing_response)
        # At once it would be a reset, which clients see before they have read the answer.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)
