"""Requests that belong to another worker: of a session, of a paused call, or of a kept result.

The ids of these carry the number of their worker. A worker that gets a request for another one sends
it on over a private connection, where the other worker checks it again, and passes on the response.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import re
from typing import TYPE_CHECKING, Any

import h11
import orjson
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from callpact.schema import is_object
from callpact.serve.jsonrpc import INTERNAL_ERROR, RequestRefused
from callpact.serve.mcp.direct_calls import MESSAGE
from callpact.serve.mcp.prebuilt import WHOLE_BODY
from callpact.wire.paging import SCHEME

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from callpact.serve.http.worker_channel import WorkerChannel

RELAY_IDLE_SECONDS = 20.0
"""Seconds that a connection between two workers is kept for the next request."""
_SESSION = b"mcp-session-id"
_PEER = b"x-callpact-peer"
_NUMBER = re.compile(r"([0-9]{1,2})[.-]")
_OWN_HEADERS = {b"connection", b"content-length", b"transfer-encoding", b"expect", _PEER}
_OWN_ANSWERS = {b"connection", b"transfer-encoding", b"date", b"keep-alive"}
_GONE = "The process that held this session or call has ended; a call may have had an effect"


class WorkerRelay:
    """ASGI middleware behind the guard that sends requests of other workers on to them."""

    def __init__(self, app: ASGIApp, channel: WorkerChannel) -> None:
        self._app = app
        self._channel = channel
        self._idle: dict[int, list[tuple[float, _RelayLine]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = self._channel.number
        worker = worker_of(scope)
        is_relayed = _PEER in {name for name, _ in scope["headers"]}
        is_ours = worker is None or worker == own or worker >= self._channel.workers
        if worker is None or is_ours or is_relayed:
            await self._app(_unmarked(scope, own), receive, _marking(send, own))
            return
        try:
            await self._relay(worker, scope, receive, send)
        except _RelayFailed:
            message = scope.get(MESSAGE)
            asked = message.get("id") if is_object(message) else None
            await RequestRefused(503, _GONE, INTERNAL_ERROR, asked).send(send)

    async def _relay(self, worker: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        line = await self._line(worker)
        passing = asyncio.ensure_future(line.exchange(scope, scope.get(WHOLE_BODY, body), send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if passing.done() and passing.result():
                now = asyncio.get_running_loop().time()
                self._idle.setdefault(worker, []).append((now, line))
                line = None
        finally:
            for task in (passing, leaving):
                task.cancel()
            if line is not None:
                line.close()

    async def _line(self, worker: int) -> _RelayLine:
        idle, now = self._idle.get(worker, []), asyncio.get_running_loop().time()
        while idle:
            since, line = idle.pop()
            if now - since < RELAY_IDLE_SECONDS and line.is_open:
                return line
            line.close()
        try:
            connected = self._channel.connect(worker)
            return _RelayLine(*await asyncio.open_connection(sock=connected))
        except OSError:
            raise _RelayFailed from None


class RelayedPeers:
    """ASGI middleware before the guard: requests of other workers keep their client's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == _PEER), None)
        if scope.get("client") is None and given is not None:  # Not over TCP: from a worker.
            host, port = orjson.loads(given)
            scope = {**scope, "client": (host, port)}
        elif given is not None:
            headers = [pair for pair in scope["headers"] if pair[0] != _PEER]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


class WorkerStates:
    """Seals the state of paused calls with a key of this process, marked with its number."""

    def __init__(self, number: int, key: bytes) -> None:
        self._mark = f"{number}."
        self._codec = AESGCMRequestStateCodec([key])

    def seal(self, payload: bytes) -> str:
        """Return a sealed state."""
        return self._mark + self._codec.seal(payload)

    def unseal(self, token: str) -> bytes:
        """Return the state in a token.

        Raises:
            InvalidRequestState: it was sealed elsewhere.
        """
        if not token.startswith(self._mark):
            raise InvalidRequestState("sealed by another process")
        return self._codec.unseal(token.removeprefix(self._mark))


def worker_of(scope: MutableMapping[str, Any]) -> int | None:
    """Return the number of the worker that a request belongs to; None if any can serve it."""
    for name, value in scope["headers"]:
        if name == _SESSION:
            return _number(value.decode("latin-1"))
    message = scope.get(MESSAGE)
    params = message.get("params") if is_object(message) else None
    if not is_object(params):
        return None
    state, uri = params.get("requestState"), params.get("uri")
    if isinstance(state, str):
        return _number(state)
    if isinstance(uri, str) and uri.startswith(SCHEME):
        return _first_byte(uri.removeprefix(SCHEME)[:2], bytes.fromhex)
    arguments = params.get("arguments")
    cursor = arguments.get("cursor") if is_object(arguments) else None
    if isinstance(cursor, str) and str(params.get("name")).endswith("read_result"):
        return _first_byte(cursor[:4], base64.urlsafe_b64decode)
    return None


def _number(text: str) -> int | None:
    found = _NUMBER.match(text)
    return None if found is None else int(found[1])


def _first_byte(text: str, decode: Any) -> int | None:
    try:
        return decode(text)[0]
    except (ValueError, IndexError, binascii.Error):
        return None


def _unmarked(scope: Scope, own: int) -> Scope:
    """The scope with the session's id as the SDK knows it."""
    mark = b"%d-" % own
    if not any(name == _SESSION for name, _ in scope["headers"]):
        return scope
    headers = [
        (name, value.removeprefix(mark) if name == _SESSION else value)
        for name, value in scope["headers"]
    ]
    return {**scope, "headers": headers}


def _marking(send: Send, own: int) -> Send:
    mark = b"%d-" % own

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, mark + value if name.lower() == _SESSION else value)
                for name, value in message["headers"]
            ]
            message = {**message, "headers": headers}
        await send(message)

    return marked


async def _left(receive: Receive) -> None:
    """Return when the client has gone, or the guard ends the stream."""
    while (await receive())["type"] != "http.disconnect":
        pass


class _RelayFailed(Exception):
    """The other worker cannot be reached, or ended before its response."""


class _RelayLine:
    """A connection to another worker, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            self._writer.close()

    async def exchange(self, scope: Scope, body: bytes, send: Send) -> bool:
        """Send a request and pass on its response; True if the connection can be used again.

        Raises:
            _RelayFailed: the worker ended before the response.
        """
        is_begun = False
        try:
            await self._request(scope, body)
            while True:
                event: Any = await self._event()
                if isinstance(event, h11.Response):
                    is_begun = True
                    headers = [pair for pair in event.headers if pair[0] not in _OWN_ANSWERS]
                    start = {"status": event.status_code, "headers": headers}
                    await send({"type": "http.response.start", **start})
                elif isinstance(event, h11.Data):
                    part = {"body": bytes(event.data), "more_body": True}
                    await send({"type": "http.response.body", **part})
                else:
                    break
        except (OSError, h11.ProtocolError, _RelayFailed):
            if not is_begun:
                raise _RelayFailed from None
            # An incomplete response: uvicorn closes the connection, so that its client sees it.
            return False
        is_reusable = self._http.our_state is self._http.their_state is h11.DONE
        if is_reusable:
            self._http.start_next_cycle()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return is_reusable

    async def _request(self, scope: Scope, body: bytes) -> None:
        query = scope.get("query_string", b"")
        path = scope.get("raw_path") or scope["path"].encode()
        headers = [pair for pair in scope["headers"] if pair[0] not in _OWN_HEADERS]
        client = scope.get("client") or ("", 0)
        headers.append((_PEER, orjson.dumps([client[0], client[1]])))
        headers.append((b"content-length", b"%d" % len(body)))
        request = h11.Request(
            method=scope["method"], target=path + (b"?" + query if query else b""), headers=headers
        )
        http = self._http
        parts = [http.send(request)]
        if body:
            parts.append(http.send(h11.Data(data=body)))
        parts.append(http.send(h11.EndOfMessage()))
        self._writer.write(b"".join(part or b"" for part in parts))
        await self._writer.drain()

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(1 << 16)
            self._http.receive_data(data)
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise _RelayFailed
        if isinstance(event, h11.Response | h11.Data | h11.EndOfMessage):
            return event
        raise _RelayFailed
