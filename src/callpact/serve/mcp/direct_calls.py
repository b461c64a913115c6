"""`tools/call` answered without the SDK, for tools that never reach their client.

An ASGI middleware between the guard and the SDK's application. It takes a request of 2026-07-28 with
exactly the members and headers that it knows, for a tool with `uses_client=False`. Every other
request goes to the SDK, which judges it. Finding, running and encoding are the door's, for both ways.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import mcp_types as types
import orjson
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from callpact.schema import is_object
from callpact.serve.jsonrpc import respond
from callpact.wire.mcp.content import EncodedJson, encode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from callpact.serve.mcp.door import DirectCall, Door

MESSAGE = "callpact.message"
"""The member of a scope with the parsed body of its request."""
WATCH_SECONDS = 0.1
"""Seconds that a call runs before the connection is watched for its end."""
PING_SECONDS = 15.0
"""Seconds between the pings of a response that takes longer."""
_MEMBERS = {"jsonrpc", "id", "method", "params"}
_PARAMS = {"name", "arguments", "_meta"}
_VERSION = types.PROTOCOL_VERSION_META_KEY
_INFO = types.CLIENT_INFO_META_KEY
_CAPABILITIES = types.CLIENT_CAPABILITIES_META_KEY
_META = {_VERSION, _INFO, _CAPABILITIES}
_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_PARAM_HEADER = MCP_PARAM_HEADER_PREFIX.lower().encode()
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class ReadCall(NamedTuple):
    """A call as its client wrote it."""

    name: str
    arguments: Any
    era: str
    client_name: str


class DirectCalls:
    """ASGI middleware that answers the calls it can, and forwards every other request."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: dict[str, Any] = scope.get(MESSAGE) or {}
        call = self._call(scope, message)
        if call is None:
            await self._app(scope, receive, send)
        else:
            await _Exchange(receive, send, message["id"]).run(self._door.answer(call))

    def _call(self, scope: Scope, message: dict[str, Any]) -> DirectCall | None:
        """The call of a request; None if the SDK has to judge it."""
        read = read_call(message)
        if read is None or not _are_plain(scope, read.era, read.name):
            return None
        return self._door.direct(scope, read)


def read_call(message: dict[str, Any]) -> ReadCall | None:
    """The call of a message of 2026-07-28; None for anything that is not exactly known."""
    params = call_params(message)
    if params is None or not is_object(meta := params.get("_meta")):
        return None
    if not meta.keys() <= _META or _CAPABILITIES not in meta:
        return None
    era = meta.get(_VERSION)
    if era not in MODERN_PROTOCOL_VERSIONS:
        return None
    try:
        client = _client_name(orjson.dumps((meta.get(_INFO), meta[_CAPABILITIES])))
    except TypeError:  # Integers beyond 64 bits.
        return None
    return (
        None if client is None else ReadCall(params["name"], params.get("arguments"), era, client)
    )


def call_params(message: dict[str, Any]) -> dict[str, Any] | None:
    """The parameters of a `tools/call` of any era; None for anything that is not exactly known."""
    if message.get("method") != "tools/call" or message.keys() != _MEMBERS:
        return None
    params = message["params"]
    if not is_object(params) or not params.keys() <= _PARAMS or isinstance(message["id"], bool):
        return None
    arguments = params.get("arguments")
    is_known = isinstance(params.get("name"), str) and (arguments is None or is_object(arguments))
    return params if is_known else None


def _are_plain(scope: Scope, version: str, name: str) -> bool:
    """True if the headers repeat the message exactly, and accept both forms of a response."""
    found: dict[bytes, bytes] = {}
    accept: list[bytes] = []
    for key, value in scope["headers"]:
        if key in _ROUTING:
            if key in found:
                return False
            found[key] = value
        elif key == b"accept":
            accept.append(value)
        elif key.startswith(_PARAM_HEADER):
            return False
    if not name.isascii() or name.startswith("=?"):
        return False
    expected = (version.encode(), b"tools/call", name.encode())
    return tuple(map(found.get, _ROUTING)) == expected and _accepts_both(tuple(accept))


@lru_cache(64)
def _accepts_both(accept: tuple[bytes, ...]) -> bool:
    kinds = {kind.partition(b";")[0].strip() for value in accept for kind in value.split(b",")}
    return len(accept) == 1 and {b"application/json", b"text/event-stream"} <= kinds


@lru_cache(256)
def _client_name(written: bytes) -> str | None:
    """The name and version of a client, as in `claude-code 2.1.0`; None if the SDK refuses them."""
    info, capabilities = orjson.loads(written)
    try:
        types.ClientCapabilities.model_validate(capabilities, by_name=False)
        if info is None:
            return ""
        client = types.Implementation.model_validate(info, by_name=False)
    except ValidationError:
        return None
    return f"{client.name} {client.version}".strip()


class _Exchange:
    """One request and its response: JSON, or a stream with pings if the call takes long."""

    def __init__(self, receive: Receive, send: Send, id: str | int) -> None:
        self._receive = receive
        self._send = send
        self._id = id
        self._is_stream = self._is_gone = False
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self, answer: Awaitable[dict[str, Any]]) -> None:
        """Send the answer; the call is cancelled if the client goes."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        # A timer costs less than a watching task, which most calls do not need.
        timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._watch, task)
        try:
            try:
                answered = await answer
            finally:
                timer.cancel()
                for watcher in self._watchers:
                    watcher.cancel()
            await self._respond(encode_json({"jsonrpc": "2.0", "id": self._id, **answered}))
        except asyncio.CancelledError:
            if not self._is_gone:
                raise

    def _watch(self, task: asyncio.Task[Any]) -> None:
        loop = asyncio.get_running_loop()
        self._watchers += loop.create_task(self._until_gone(task)), loop.create_task(self._ping())

    async def _until_gone(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            """Wait on: the body was read before."""
        self._is_gone = True
        task.cancel()

    async def _ping(self) -> None:
        await asyncio.sleep(PING_SECONDS - WATCH_SECONDS)
        self._is_stream = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        while True:
            ping: Message = {"type": "http.response.body", "body": b": ping\r\n\r\n"}
            await self._send({**ping, "more_body": True})
            await asyncio.sleep(PING_SECONDS)

    async def _respond(self, message: EncodedJson) -> None:
        body = message.text.encode()
        if self._is_stream:
            event = b"event: message\r\ndata: " + body + b"\r\n\r\n"
            await self._send({"type": "http.response.body", "body": event})
        else:
            await respond(self._send, 200, body, {})
