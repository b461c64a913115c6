"""What stands in front of the HTTP door: who may knock, how much may come, how long it may take.

An ASGI middleware reads each request whole, within limits, and hands on only what is one message
of JSON-RPC in strict JSON. It knows nothing of MCP but which requests are answered by a stream.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import orjson

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4 << 20
"""Size of a request over HTTP."""
MAX_HEADER_BYTES = 64 << 10
"""Size of the headers of a request over HTTP."""
MAX_MESSAGE_DEPTH = 150
"""Levels of JSON in a request over HTTP; the arguments of a tool may have a few fewer."""
MAX_CLIENT_SECONDS = 30.0
"""Seconds that a client may take to send the headers of a request, to send its body, and to read
an answer."""
MAX_CONNECTIONS = 1_000
"""Connections over HTTP at the same time; more are answered with 503."""
MAX_SESSIONS = 5_000
"""Sessions over HTTP at the same time; clients of 2026-07-28 need none."""

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_STOPPING = -32603


@dataclass(frozen=True)
class Limits:
    """What a client may ask of the HTTP door."""

    body_bytes: int = MAX_BODY_BYTES
    header_bytes: int = MAX_HEADER_BYTES
    depth: int = MAX_MESSAGE_DEPTH
    client_seconds: float = MAX_CLIENT_SECONDS
    connections: int = MAX_CONNECTIONS
    sessions: int = MAX_SESSIONS


class _Refused(Exception):
    """A request that goes no further: the status, and the error of JSON-RPC."""

    def __init__(
        self, status: int, message: str, code: int = _INVALID_REQUEST, id: str | int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


class Guard:
    """Hands on to the application what is within the limits, and refuses the rest."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the streams that would stay open for good; calls under way go on."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            _check_headers(scope, self._limits)
            body = await _read(receive, self._limits)
            if body is None:  # The client has gone.
                return
            is_stream = scope["method"] == "GET"
            if scope["method"] == "POST":
                is_stream = _checked(body, self._limits).get("method") == "subscriptions/listen"
        except _Refused as refused:
            await _answer(send, refused)
            return
        await self._hand_on(scope, self._replayed(body, receive, is_stream=is_stream), send)

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = is_ended = False

        async def watched(message: Message) -> None:
            nonlocal is_begun, is_ended
            is_begun = True
            is_ended = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
        if is_ended or not self._stopping.is_set():
            return
        if is_begun:
            await send({"type": "http.response.body", "body": b""})
        else:
            await _answer(send, _Refused(503, "The server was stopped", _STOPPING))

    def _replayed(self, body: bytes, receive: Receive, *, is_stream: bool) -> Receive:
        """What was read once more; then whatever comes, or for a stream the end of the server."""
        read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            if read:
                return read.pop()
            if not is_stream:
                return await receive()
            coming = asyncio.ensure_future(receive())
            stopping = asyncio.ensure_future(self._stopping.wait())
            try:
                await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
                return coming.result() if coming.done() else {"type": "http.disconnect"}
            finally:
                coming.cancel()
                stopping.cancel()

        return replay


def is_loopback(host: str) -> bool:
    """True for an address of this machine that no other can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_headers(scope: Scope, limits: Limits) -> None:
    """Refuse what a web page of others could send, and what no client of MCP sends."""
    hosts = list(_values(scope, b"host"))
    if len(hosts) != 1 or not is_loopback(_name_of(hosts[0])):
        raise _Refused(403, "The Host of a request must be this machine, as in 127.0.0.1:8420")
    if not all(map(_is_local_origin, _values(scope, b"origin"))):
        raise _Refused(403, "The Origin of a request must be this machine, or absent")
    for length in _values(scope, b"content-length"):
        if length.isdecimal() and int(length[:20]) > limits.body_bytes:
            raise _too_large(limits)
    if scope["method"] == "POST":
        kinds = [kind.split(";")[0].strip().lower() for kind in _values(scope, b"content-type")]
        if kinds != ["application/json"]:
            raise _Refused(415, "The Content-Type of a request must be application/json")


def _values(scope: Scope, name: bytes) -> Iterable[str]:
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)


def _name_of(host: str) -> str:
    """A host without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_local_origin(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and is_loopback(parts.hostname or "")


def _too_large(limits: Limits) -> _Refused:
    return _Refused(413, f"A request may have {limits.body_bytes:,} bytes")


async def _read(receive: Receive, limits: Limits) -> bytes | None:
    """The whole body; None if the client has gone."""
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
        raise _Refused(408, text) from None


def _checked(body: bytes, limits: Limits) -> dict[str, Any]:
    """The one message of JSON-RPC that a body holds.

    The SDK takes `NaN` for a number and a request with `id: null` for a notification.
    """
    try:
        message = orjson.loads(body)  # Refuses NaN, lone surrogates, numbers out of range.
    except orjson.JSONDecodeError as error:
        raise _Refused(400, f"The body is not JSON: {error}", _PARSE_ERROR) from None
    if _is_deeper(message, body, limits.depth):
        raise _Refused(400, f"JSON is nested deeper than {limits.depth} levels", _PARSE_ERROR)
    if not isinstance(message, dict):
        raise _Refused(400, "The body must be one JSON-RPC message, an object")
    found = cast("dict[str, Any]", message)
    given = found.get("id")
    is_id = isinstance(given, str | int) and not isinstance(given, bool)
    known = given if is_id else None
    if found.get("jsonrpc") != "2.0":
        raise _Refused(400, "'jsonrpc' must be '2.0'", id=known)
    if "method" not in found:
        if not is_id or ("result" in found) == ("error" in found):
            raise _Refused(400, "A message needs a 'method', or an 'id' and its answer", id=known)
        return found
    if not isinstance(found["method"], str):
        raise _Refused(400, "'method' must be a string", id=known)
    if "id" in found and not is_id:
        raise _Refused(400, "'id' must be a string or an integer; a notification has none")
    if not isinstance(found.get("params", {}), dict | None):
        raise _Refused(400, "'params' must be an object", id=known)
    return found


def _is_deeper(message: Any, body: bytes, most: int) -> bool:
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    level = _nodes([message])
    for _ in range(most):
        level = _nodes(part for node in level for part in _parts(node))
    return bool(level)


def _nodes(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _parts(node: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", node).values() if isinstance(node, dict) else node


async def _answer(send: Send, refused: _Refused) -> None:
    body = orjson.dumps(refused.body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refused.status in {408, 503}:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class SlowClients:
    """Cuts off connections that take too long to send headers or to read what was written."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[Any, tuple[str, float]] = {}

    def cut(self, connections: Iterable[Any], now: float) -> None:
        """Look at the connections of uvicorn; called again and again."""
        slow: dict[Any, tuple[str, float]] = {}
        for connection in connections:
            doing = _what_delays(connection)
            if doing is None:
                continue
            before, since = self._since.get(connection, (doing, now))
            slow[connection] = (doing, since if before == doing else now)
            if now - slow[connection][1] >= self._seconds:
                _reset(connection.transport)
        self._since = slow


def _what_delays(connection: Any) -> str | None:
    """What a connection waits for the client to do; None if it waits for us, or idles."""
    if connection.transport.get_write_buffer_size():
        return "reading"
    is_open = connection.cycle is not None and not connection.cycle.response_complete
    # The timer runs while a connection idles between requests, and bounds that.
    return None if is_open or connection.timeout_keep_alive_task is not None else "sending"


def _reset(transport: asyncio.Transport) -> None:
    """End a connection, and what the system still holds for it."""
    if os.name == "posix":
        at_once = struct.pack("ii", 1, 0)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    transport.abort()
