"""The guard of the HTTP door: accepted hosts and origins, and the limits of a request.

An ASGI middleware that authenticates a request, reads its whole body within limits, and forwards
only one JSON-RPC message in strict JSON, or a request of the plain application beside MCP's. Of MCP
it knows only which requests have a stream as their response; tokens are checked by an
`Authenticator` (`auth/bearer.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson
from starlette.middleware.cors import CORSMiddleware

from callpact.serve.concurrency import CallerSlots, caller_of
from callpact.serve.http.framing import MAX_HEADER_BYTES
from callpact.serve.jsonrpc import (
    INTERNAL_ERROR,
    MAX_MESSAGE_DEPTH,
    STOPPED,
    BadMessage,
    RequestRefused,
    read_message,
    respond,
)
from callpact.serve.mcp.direct_calls import MESSAGE
from callpact.serve.mcp.prebuilt import set_aside
from callpact.wire.rest import EXPOSED_HEADERS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4 << 20
"""Size of a request over HTTP."""
MAX_CLIENT_SECONDS = 30.0
"""Seconds that a client may take to send the headers of a request, to send its body, and to read
a response."""
MAX_CONNECTIONS = 1_000
"""Concurrent connections over HTTP; for one more, the longest idle one of the peer with the most is
closed. If it has none, the new one is refused."""
MAX_SESSIONS = 5_000
"""Concurrent sessions over HTTP, which clients of 2026-07-28 do not need; for one more, the longest
idle one of the caller with the most is ended."""
MAX_STREAMS = 500
"""Concurrent notification streams over HTTP; for one more, the oldest of the caller with the most
is ended."""


@dataclass(frozen=True)
class HttpLimits:
    """Limits of a client over HTTP."""

    body_bytes: int = MAX_BODY_BYTES
    header_bytes: int = MAX_HEADER_BYTES
    depth: int = MAX_MESSAGE_DEPTH
    client_seconds: float = MAX_CLIENT_SECONDS
    connections: int = MAX_CONNECTIONS
    sessions: int = MAX_SESSIONS
    streams: int = MAX_STREAMS


@dataclass(frozen=True)
class HostPolicy:
    """The `Host` names and the `Origin`s that a server accepts.

    Those of this machine are always accepted; `hosts` are names without a port, `origins` are
    spelled as browsers send them (`https://app.example.com`).
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check(self, scope: Scope) -> None:
        """Refuse a request that a foreign web page could send.

        Raises:
            RequestRefused: 403
        """
        hosts = list(header_values(scope, b"host"))
        if len(hosts) != 1 or not self._is_host(_name_of(hosts[0])):
            others = " or a configured host" if self.hosts else ""
            raise RequestRefused(
                403,
                f"The Host of a request must be this machine{others}, as in 127.0.0.1:8420",
            )
        if not all(map(self._is_origin, header_values(scope, b"origin"))):
            others = ", a configured origin," if self.origins else ","
            raise RequestRefused(
                403, f"The Origin of a request must be this machine{others} or absent"
            )

    def _is_host(self, name: str) -> bool:
        return is_loopback(name) or name.lower() in self.hosts

    def _is_origin(self, origin: str) -> bool:
        return origin.lower() in self.origins or _is_local_origin(origin)


class Authenticator(Protocol):
    """Authenticates requests."""

    def public(self, path: str, served: str) -> bytes | None:
        """Return the public JSON at a path; None if there is nothing public."""
        ...

    async def admit(self, scope: Scope) -> float | None:
        """Add the caller to a request; returns the expiry of its token in epoch seconds.

        Raises:
            RequestRefused: the caller is not admitted.
        """
        ...


class PlainApp(Protocol):
    """An application on paths of its own whose requests are plain HTTP, not messages of MCP."""

    def owns(self, path: str) -> bool:
        """True if requests for this path belong to the application."""
        ...

    def is_public(self, scope: Scope) -> bool:
        """True if a request needs no token; one that it has is then not checked."""
        ...

    def check(self, scope: Scope) -> bool:
        """Check the head of a request; returns True if its response is a stream.

        Raises:
            RequestRefused: the application does not accept the request.
        """
        ...

    async def refuse(self, refused: RequestRefused, send: Send) -> None:
        """Send a refusal in the application's own form."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


@dataclass(slots=True, eq=False)
class _Exchange:
    """An admitted request."""

    is_stream: bool
    until: float | None
    id: str | int | None = None
    """The id of the JSON-RPC request, if it is one."""
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end a stream in favour of a later one."""
    is_cut: bool = False
    """True once the server ended the stream."""
    is_events: bool = False
    """True if the response is a stream of events."""
    last: bytes = b""
    """The last event sent."""

    @property
    def has_response(self) -> bool:
        """True if the last event was the response to the request."""
        for line in self.last.splitlines():
            if line.startswith(b"data: {"):
                with contextlib.suppress(orjson.JSONDecodeError):
                    event = orjson.loads(line[6:])
                    return event.get("id") == self.id and "method" not in event
        return False


class Guard:
    """ASGI middleware that forwards requests within the limits and refuses the others."""

    def __init__(
        self,
        app: ASGIApp,
        limits: HttpLimits,
        *,
        path: str = "/mcp",
        host_policy: HostPolicy | None = None,
        authenticator: Authenticator | None = None,
        plain: PlainApp | None = None,
    ) -> None:
        self._app = app
        self._plain = plain
        self._limits = limits
        self._path = path
        self._host_policy = host_policy or HostPolicy()
        self._authenticator = authenticator
        self._stopping = asyncio.Event()
        self._streams: CallerSlots[_Exchange] = CallerSlots(limits.streams)
        self._inner: ASGIApp = self._admit
        if self._host_policy.origins:
            self._inner = CORSMiddleware(
                self._admit,
                allow_origins=sorted(self._host_policy.origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["mcp-session-id", "www-authenticate", *EXPOSED_HEADERS],
            )

    def stop(self) -> None:
        """End the notification streams; running calls continue."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._host_policy.check(scope)
        except RequestRefused as refused:
            await _refuse(refused, self._plain_app(scope), send)
            return
        await self._inner(scope, receive, send)

    def _plain_app(self, scope: Scope) -> PlainApp | None:
        """Return the plain application of a request; None if the request is one of MCP."""
        plain, path = self._plain, scope["path"]
        if plain is None or path.rstrip("/") == self._path.rstrip("/") or not plain.owns(path):
            return None
        return plain

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = self._plain_app(scope)
        try:
            until = None
            is_public = plain is not None and plain.is_public(scope)
            if self._authenticator is not None and not is_public:
                public = self._authenticator.public(scope["path"], self._path)
                if public is not None and scope["method"] in {"GET", "HEAD"}:
                    await respond(send, 200, public, {"cache-control": "public, max-age=3600"})
                    return
                # Before the body is read, so that unauthenticated requests cost little.
                until = await self._authenticator.admit(scope)
            _check_length(scope, self._limits)
            is_stream, asked = scope["method"] == "GET", None
            if plain is not None:
                is_stream = plain.check(scope)
            elif scope["method"] == "POST":
                check_is_json(scope)
            body = await _read(receive, self._limits)
            if body is None:  # The client has gone.
                return
            if plain is None and scope["method"] == "POST":
                message = scope[MESSAGE] = _checked(body, self._limits)
                body = set_aside(scope, message, body)
                is_stream = message.get("method") == "subscriptions/listen"
                asked = message.get("id") if "method" in message else None
        except RequestRefused as refused:
            await _refuse(refused, plain, send)
            return
        exchange = _Exchange(is_stream, until, asked)
        if is_stream:
            self._make_room(exchange, caller_of(scope))
        replayed = self._replayed(exchange, body, receive)
        try:
            await self._forward(exchange, plain, scope, replayed, send)
        finally:
            self._streams.leave(exchange)

    def _make_room(self, exchange: _Exchange, caller: str) -> None:
        """Open a stream; at the limit, end the oldest stream of the caller with the most."""
        if self._streams.are_taken:
            victim = self._streams.victim(caller)
            if victim is not None:
                self._streams.leave(victim)
                victim.cut.set()
        self._streams.take(exchange, caller)

    async def _forward(
        self,
        exchange: _Exchange,
        plain: PlainApp | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        is_begun = is_ended = False

        async def watched(message: Message) -> None:
            nonlocal is_begun, is_ended
            if message["type"] == "http.response.start":
                kinds = [value for key, value in message["headers"] if key == b"content-type"]
                exchange.is_events = any(kind.startswith(b"text/event-stream") for kind in kinds)
            else:
                exchange.last = message.get("body") or exchange.last
                is_ended = not message.get("more_body")
                if is_ended and self._is_broken_off(exchange):
                    body = message.get("body", b"") + _event(exchange)
                    message = {**message, "body": body}
            is_begun = True
            await send(message)

        try:
            await (plain or self._app)(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
        if is_ended or not (exchange.is_cut or self._stopping.is_set()):
            return
        if is_begun:
            event = _event(exchange) if self._is_broken_off(exchange) else b""
            await send({"type": "http.response.body", "body": event})
        else:
            stopped = RequestRefused(503, STOPPED, INTERNAL_ERROR, exchange.id)
            await _refuse(stopped, plain, send)

    def _is_broken_off(self, exchange: _Exchange) -> bool:
        """True if the events of a call end before its response because the server stops."""
        is_call = exchange.is_events and exchange.id is not None and not exchange.is_stream
        return is_call and self._stopping.is_set() and not exchange.has_response

    def _replayed(self, exchange: _Exchange, body: bytes, receive: Receive) -> Receive:
        """Return a `receive` that replays the body, then continues with the connection.

        A stream ends with the server, and with the token of its request.
        """
        read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            if read:
                return read.pop()
            if not exchange.is_stream:
                return await receive()
            coming = asyncio.ensure_future(receive())
            ending = [
                asyncio.ensure_future(event.wait()) for event in (self._stopping, exchange.cut)
            ]
            seconds = None if exchange.until is None else max(0.0, exchange.until - time.time())
            try:
                await asyncio.wait(
                    (coming, *ending), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if coming.done():
                    return coming.result()
                exchange.is_cut = True
                return {"type": "http.disconnect"}
            finally:
                for task in (coming, *ending):
                    task.cancel()

        return replay


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """True for an address of this machine that no other can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _refuse(refused: RequestRefused, plain: PlainApp | None, send: Send) -> None:
    await (refused.send(send) if plain is None else plain.refuse(refused, send))


def _check_length(scope: Scope, limits: HttpLimits) -> None:
    for length in header_values(scope, b"content-length"):
        if length.isdecimal() and int(length[:20]) > limits.body_bytes:
            raise _too_large(limits)


def check_is_json(scope: Scope) -> None:
    """Refuse a body of another type: web pages may send those to other sites without asking.

    Raises:
        RequestRefused: 415
    """
    kinds = [kind.split(";")[0].strip().lower() for kind in header_values(scope, b"content-type")]
    if kinds != ["application/json"]:
        raise RequestRefused(415, "The Content-Type of a request must be application/json")


def header_values(scope: Scope, name: bytes) -> Iterable[str]:
    """Return all values of a header."""
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)


def _name_of(host: str) -> str:
    """Return a host without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_local_origin(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_web = parts.scheme in {"http", "https"} and "@" not in parts.netloc
    return is_web and is_loopback(parts.hostname or "")


def _too_large(limits: HttpLimits) -> RequestRefused:
    return RequestRefused(413, f"A request may have {limits.body_bytes:,} bytes")


async def _read(receive: Receive, limits: HttpLimits) -> bytes | None:
    """Read the whole body; None if the client is gone."""
    body = bytearray()
    try:
        async with asyncio.timeout(limits.client_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > limits.body_bytes:
                    raise _too_large(limits)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        text = f"A request must be sent within {limits.client_seconds:g} seconds"
        raise RequestRefused(408, text) from None


def _checked(body: bytes, limits: HttpLimits) -> dict[str, Any]:
    try:
        return read_message(body, limits.depth)
    except BadMessage as bad:
        raise RequestRefused(400, str(bad), bad.code, bad.id) from None


def _event(exchange: _Exchange) -> bytes:
    """Return the error event for a call that the server aborts."""
    refused = RequestRefused(503, STOPPED, INTERNAL_ERROR, exchange.id)
    return b"event: message\r\ndata: " + refused.body + b"\r\n\r\n"


class SlowClients:
    """Resets connections that take too long to send headers or to read the response."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Any, tuple[str, float]] = {}

    def cut(self, connections: Iterable[Any], now: float) -> None:
        """Check the connections of uvicorn; called periodically."""
        slow: dict[Any, tuple[str, float]] = {}
        for connection in connections:
            doing = _awaited(connection)
            if doing is None:
                continue
            before, since = self._since.get(connection, (doing, now))
            slow[connection] = (doing, since if before == doing else now)
            if now - slow[connection][1] >= self._seconds:
                _reset(connection.transport)
        self._since = slow


def _awaited(connection: Any) -> str | None:
    """Return what the server awaits from the client; None if the client waits or idles."""
    if connection.transport.get_write_buffer_size():
        return "reading"
    is_open = connection.cycle is not None and not connection.cycle.response_complete
    # The keep-alive timer bounds the idle time between requests.
    return None if is_open or connection.timeout_keep_alive_task is not None else "sending"


def _reset(transport: asyncio.Transport) -> None:
    """Reset a connection and discard the data that the system still buffers."""
    if os.name == "posix":
        at_once = struct.pack("ii", 1, 0)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    transport.abort()
