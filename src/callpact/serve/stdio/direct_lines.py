"""`tools/call` over stdio, answered without the SDK, for tools that never reach their client.

The first exchange goes through the SDK and decides the era; afterwards, calls with exactly the
members that are known here are answered, and every other message goes to the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import (
    JSONRPCMessage,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from callpact.execution import start
from callpact.schema import is_object
from callpact.serve.jsonrpc import INTERNAL_ERROR, STOPPED
from callpact.serve.mcp.direct_calls import ReadCall, read_call, read_handshake_call
from callpact.wire.mcp.content import encode_json

if TYPE_CHECKING:
    from callpact.serve.mcp.door import DirectCall, Door
    from callpact.serve.stdio.line_pipes import LineWriter

_STOPPED = {"error": {"code": INTERNAL_ERROR, "message": STOPPED}}


class DirectLines:
    """The calls of one client that are answered without the SDK."""

    def __init__(self, door: Door, writer: LineWriter, on_end: Callable[[RequestId], None]) -> None:
        self._door = door
        self._writer = writer
        self._on_end = on_end
        """Called with the id of a call that needs no response any more."""
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        """The calls by their ids; `7` and `"7"` are one id, as in the SDK."""
        self._cancelled: set[RequestId] = set()
        self._opening: dict[str, Any] = {}
        """The request `initialize`."""
        self._handshake: tuple[str, str] | None = None
        """The revision and the client of a handshake."""
        self._is_initialized = self._is_modern = False

    def find(self, message: dict[str, Any]) -> DirectCall | None:
        """The call of a request; None if it goes to the SDK."""
        read = None if coerce_request_id(message["id"]) in self._running else self._read(message)
        return None if read is None else self._door.direct(None, read)

    def _read(self, message: dict[str, Any]) -> ReadCall | None:
        if self._is_modern:
            return read_call(message)
        if message["method"] == "initialize":
            self._opening = message
            self._is_initialized = False  # Until the new handshake is confirmed.
        if self._handshake is None or not self._is_initialized:
            return None
        return read_handshake_call(message, *self._handshake)

    def start(self, id: RequestId, call: DirectCall) -> None:
        """Run a call; its response is written when it has ended."""
        task = start(self._run(id, call))
        if not task.done():  # On Python 3.12 and later it may have ended in its first step.
            self._running[coerce_request_id(id)] = task

    async def _run(self, id: RequestId, call: DirectCall) -> None:
        key = coerce_request_id(id)
        try:
            answered = await self._door.answer(call)
        except asyncio.CancelledError:
            if key in self._cancelled:  # A cancelled request has no response.
                self._cancelled.discard(key)
                self._on_end(id)
                return
            answered = _STOPPED
        finally:
            self._running.pop(key, None)
        line = encode_json({"jsonrpc": "2.0", "id": id, **answered}).text.encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            await self._writer.write(line, partial(self._on_end, id))

    def notified(self, message: dict[str, Any]) -> bool:
        """Note a notification of the client; true if it is about a call here."""
        self._is_initialized |= message["method"] == "notifications/initialized"
        params = message.get("params")
        if message["method"] != "notifications/cancelled" or not is_object(params):
            return False
        cancelled = params.get("requestId")
        if isinstance(cancelled, bool) or not isinstance(cancelled, str | int):
            return False
        key = coerce_request_id(cancelled)
        task = self._running.get(key)
        if task is not None:
            self._cancelled.add(key)
            task.cancel()
        return task is not None

    def responded(self, message: JSONRPCMessage) -> None:
        """Note a response of the SDK, which decides the era."""
        if self._is_modern or not isinstance(message, JSONRPCResponse):
            return
        if self._handshake is None:
            self._is_modern = "resultType" in message.result
        if message.id == self._opening.get("id"):
            self._handshake = _handshake(self._opening, message.result) or self._handshake

    async def end(self) -> None:
        """End the calls that still run; each gets an error."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _handshake(opening: dict[str, Any], result: dict[str, Any]) -> tuple[str, str] | None:
    era, client = result.get("protocolVersion"), opening["params"]["clientInfo"]
    if era not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None
    return str(era), f"{client['name']} {client['version']}".strip()
