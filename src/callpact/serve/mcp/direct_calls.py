"""`tools/call` answered without the SDK, for tools that never reach their client.

An ASGI middleware between the guard and the SDK's application. It takes a request of 2026-07-28 with
exactly the members and headers that it knows, for a tool with `uses_client=False`. Every other
request goes to the SDK, which judges it. Finding, running and encoding are the door's, for both ways.
Sessions of the handshake era are in `session_calls.py`.
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
from callpact.schema.values import is_shallow
from callpact.serve.jsonrpc import respond
from callpact.serve.mcp.prebuilt import MAX_SDK_DEPTH
from callpact.wire.mcp.content import EncodedJson, encode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

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
_PROGRESS = "progressToken"
_OWN_META = ("callpact/", "io.modelcontextprotocol/")
"""Prefixes of the members of `_meta` that have a meaning here."""
ACCEPT = b"accept"
VERSION = b"mcp-protocol-version"
_ROUTING = (VERSION, b"mcp-method", b"mcp-name")
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
    """ASGI middleware that answers the calls that it can, and forwards the others."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message: dict[str, Any] = scope.get(MESSAGE) or {}
        call = self._call(scope, message)
        if call is None:
            await self._app(scope, receive, send)
        else:
            await Exchange(send, message["id"], receive).run(self._door.answer(call))

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
    if _CAPABILITIES not in meta or not all(
        key in _META or _is_inert(key, meta[key]) for key in meta
    ):
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


def read_handshake_call(message: dict[str, Any], era: str, client_name: str) -> ReadCall | None:
    """The call of a message in a session; None for anything that is not exactly known."""
    params = call_params(message)
    if params is None:
        return None
    meta = params.get("_meta")
    if meta is not None and not (
        is_object(meta) and all(_is_inert(key, value) for key, value in meta.items())
    ):
        return None
    return ReadCall(params["name"], params.get("arguments"), era, client_name)


def _is_inert(key: str, value: Any) -> bool:
    """True for a member of `_meta` without an effect on a tool that never reaches its client."""
    if key == _PROGRESS:
        return isinstance(value, str | int) and not isinstance(value, bool)
    is_vendors = "/" in key and not key.startswith(_OWN_META)
    return is_vendors and is_shallow(value, MAX_SDK_DEPTH)


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
    found = single_headers(scope, (*_ROUTING, ACCEPT))
    if found is None or not name.isascii() or name.startswith("=?"):
        return False
    expected = (version.encode(), b"tools/call", name.encode())
    return tuple(map(found.get, _ROUTING)) == expected and accepts_both(found.get(ACCEPT))


def single_headers(scope: Scope, names: tuple[bytes, ...]) -> dict[bytes, bytes] | None:
    """The values of headers; None if one is there twice, or if a header repeats an argument."""
    found: dict[bytes, bytes] = {}
    for key, value in scope["headers"]:
        if key in names:
            if key in found:
                return None
            found[key] = value
        elif key.startswith(_PARAM_HEADER):
            return None
    return found


@lru_cache(64)
def accepts_both(accept: bytes | None) -> bool:
    """True if a client accepts JSON and a stream of events as a response."""
    kinds = {kind.partition(b";")[0].strip() for kind in (accept or b"").split(b",")}
    return {b"application/json", b"text/event-stream"} <= kinds


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


class Exchange:
    """One request and its response: JSON, or a stream with pings if the call takes long.

    With `receive`, the call is cancelled if its client closes the connection. `headers` are added to
    the response.
    """

    def __init__(
        self,
        send: Send,
        id: str | int,
        receive: Receive | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._receive = receive
        self._send = send
        self._id = id
        self._headers = headers or {}
        self._is_stream = self._is_gone = self._is_cancelled = False
        self._instead: dict[str, Any] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self, answer: Awaitable[dict[str, Any]]) -> None:
        """Send the answer, or that of the cancellation."""
        task = self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        # A timer costs less than a watching task, which most calls do not need.
        timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._watch, task)
        try:
            answered = await answer
        except asyncio.CancelledError:
            if self._is_cancelled:
                task.uncancel()
                answered = self._instead
            elif self._is_gone:
                return
            else:
                raise
        finally:
            self._task = None
            timer.cancel()
            for watcher in self._watchers:
                watcher.cancel()
        if answered is None:
            await self._end_unanswered()
        else:
            await self._respond(encode_json({"jsonrpc": "2.0", "id": self._id, **answered}))

    def cancel(self, instead: dict[str, Any] | None) -> None:
        """Cancel the call on behalf of its client, and send another answer; None for none."""
        if self._task is not None:
            self._is_cancelled = True
            self._instead = instead
            self._task.cancel()

    def _watch(self, task: asyncio.Task[Any]) -> None:
        loop = asyncio.get_running_loop()
        self._watchers.append(loop.create_task(self._ping()))
        if self._receive is not None:
            self._watchers.append(loop.create_task(self._until_gone(self._receive, task)))

    async def _until_gone(self, receive: Receive, task: asyncio.Task[Any]) -> None:
        while (await receive())["type"] != "http.disconnect":
            """Wait on: the body was read before."""
        self._is_gone = True
        task.cancel()

    async def _ping(self) -> None:
        await asyncio.sleep(PING_SECONDS - WATCH_SECONDS)
        await self._start_stream()
        while True:
            ping: Message = {"type": "http.response.body", "body": b": ping\r\n\r\n"}
            await self._send({**ping, "more_body": True})
            await asyncio.sleep(PING_SECONDS)

    async def _start_stream(self) -> None:
        self._is_stream = True
        more = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        headers = [*_STREAM_HEADERS, *more]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end_unanswered(self) -> None:
        if not self._is_stream:
            await self._start_stream()
        await self._send({"type": "http.response.body", "body": b""})

    async def _respond(self, message: EncodedJson) -> None:
        body = message.text.encode()
        if self._is_stream:
            event = b"event: message\r\ndata: " + body + b"\r\n\r\n"
            await self._send({"type": "http.response.body", "body": event})
        else:
            await respond(self._send, 200, body, self._headers)
