"""The MCP door over standard input and output: one JSON-RPC message per line.

Lines that are no valid message get an error response here; the SDK handles the messages. There is
one client, which owns the process: if it does not read its responses, the server waits, and reads
no more requests than the limits allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio
import orjson
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError

from callpact.errors import InvalidConfig
from callpact.serve.jsonrpc import (
    INTERNAL_ERROR,
    MAX_MESSAGE_DEPTH,
    STOPPED,
    BadMessage,
    read_message,
)
from callpact.serve.mcp.door import DoorServer
from callpact.serve.stdio.direct_lines import DirectLines
from callpact.serve.stdio.line_pipes import LineReader, LineTooLong, LineWriter
from callpact.wire.mcp.content import encode_json

if TYPE_CHECKING:
    from types import TracebackType

    from mcp.server import Server

MAX_LINE_BYTES = 4 << 20
"""Size of a line over stdio, which is one message."""
MAX_REQUESTS = 1_000
"""Open requests over stdio; at the limit, reading stops until one of them has its response."""
MAX_REQUESTS_BYTES = 32 << 20
"""Total size of the open requests over stdio; at the limit, reading stops as well."""
MAX_LEAVING_SECONDS = 1.5
"""Seconds that open requests over stdio have when the client hangs up. Clients kill the server after
2 seconds."""

_STREAM = "subscriptions/listen"
_log = logging.getLogger("callpact.serve.stdio")


@dataclass(frozen=True)
class LineLimits:
    """Limits of a client over stdio."""

    line_bytes: int = MAX_LINE_BYTES
    depth: int = MAX_MESSAGE_DEPTH
    requests: int = MAX_REQUESTS
    requests_bytes: int = MAX_REQUESTS_BYTES
    leaving_seconds: float = MAX_LEAVING_SECONDS


async def serve_stdio(server: Server[Any], limits: LineLimits | None = None) -> None:
    """Serve over standard input and output until the client hangs up.

    The protocol uses both streams exclusively: output of tools and their child processes goes to
    standard error, and their standard input is empty.

    Raises:
        InvalidConfig: there is no standard input or output.
    """
    # Otherwise printed text would be buffered, and written to the wire at the exit.
    with _claimed() as (incoming, outgoing), contextlib.redirect_stdout(sys.stderr):
        await serve_lines(server, incoming, outgoing, limits)


async def serve_lines(
    server: Server[Any], incoming: int, outgoing: int, limits: LineLimits | None = None
) -> None:
    """Serve over two file descriptors until the first one ends; both stay open.

    Open requests then have `limits.leaving_seconds`, also when the task is cancelled; those without
    a response get an error.
    """
    limits = limits or LineLimits()
    open_requests = _OpenRequests(limits)
    writer = LineWriter(outgoing)
    direct: DirectLines | None = None
    if isinstance(server, DoorServer) and server.door.has_direct_calls:
        direct = DirectLines(server.door, writer, open_requests.end)
    messages = _Incoming(incoming, writer, open_requests, limits, direct)
    writer.on_broken = messages.stop
    responses = _Outgoing(writer, open_requests, direct)
    running = asyncio.ensure_future(
        server.run(messages, responses, server.create_initialization_options())
    )
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        messages.end()
        await running
        raise
    finally:
        running.cancel()
        writer.close()


class _OpenRequests:
    """The requests of the client without a response, and those that the server has sent to it."""

    def __init__(self, limits: LineLimits) -> None:
        self._limits = limits
        self._open: dict[RequestId, list[_Request]] = {}  # A client may use an id twice.
        self._number = self._bytes = self._streams = 0
        self._asked: set[str] = set()
        self._is_ending = self._is_given_up = False
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        limits = self._limits
        return self._number >= limits.requests or self._bytes >= limits.requests_bytes

    def begin(self, id: RequestId, size: int, *, is_stream: bool) -> None:
        self._open.setdefault(id, []).append(_Request(size, is_stream))
        self._count(1, size, is_stream)

    def end(self, id: RequestId | None) -> None:
        if id is None or id not in self._open:
            return
        ended = self._open[id].pop(0)
        if not self._open[id]:
            del self._open[id]
        self._count(-1, -ended.size, -ended.is_stream)
        self._changed.set()

    def _count(self, number: int, size: int, streams: int) -> None:
        self._number += number
        self._bytes += size
        self._streams += streams

    def sent_request(self, id: RequestId) -> None:
        """Register a request to the client: its response must be read even at the limits."""
        self._asked.add(str(id))
        self._changed.set()

    def got_response(self, id: RequestId | None) -> None:
        self._asked.discard(str(id))

    async def until_room(self) -> None:
        """Wait until more may be read."""
        while self.is_full and not (self._asked or self._is_ending or self._is_given_up):
            await self._change()

    async def until_done(self, seconds: float) -> None:
        """Wait for the responses to all requests but streams, with a timeout in seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._number > self._streams and not self._is_given_up:
                    await self._change()

    def end_reading(self) -> None:
        """Wake the tasks that wait for room: reading ends."""
        self._is_ending = True
        self._changed.set()

    def give_up(self) -> None:
        """Wake all waiting tasks."""
        self._is_given_up = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@dataclass(frozen=True, slots=True)
class _Request:
    size: int
    is_stream: bool


class _Stream:
    """The methods of both streams that the SDK needs, beside `receive` and `send`."""

    async def aclose(self) -> None:
        """Do nothing: the descriptors belong to the caller."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Incoming(_Stream):
    """The messages of a client; a line that is no message gets an error response."""

    def __init__(
        self,
        descriptor: int,
        writer: LineWriter,
        open_requests: _OpenRequests,
        limits: LineLimits,
        direct: DirectLines | None,
    ) -> None:
        self._reader = LineReader(descriptor, limits.line_bytes)
        self._writer = writer
        self._open_requests = open_requests
        self._limits = limits
        self._direct = direct

    def end(self) -> None:
        """Stop reading; open requests may still finish."""
        self._reader.stop()
        self._open_requests.end_reading()

    def stop(self) -> None:
        """Stop reading and waiting: the client is gone."""
        self._reader.stop()
        self._open_requests.give_up()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage:
        """Return the next message.

        Raises:
            anyio.EndOfStream: the client has hung up.
        """
        while True:
            await self._open_requests.until_room()
            try:
                message = self._message(await self._reader.read())
            except LineTooLong:
                await self._refuse(
                    BadMessage(f"A message may have {self._limits.line_bytes:,} bytes")
                )
            except BadMessage as bad:
                await self._refuse(bad)
            except EOFError:
                await self._leave()
                raise anyio.EndOfStream from None
            else:
                if message is not None:
                    return message

    async def _refuse(self, bad: BadMessage) -> None:
        with contextlib.suppress(BrokenPipeError):
            await self._writer.write(bad.body + b"\n")
        await asyncio.sleep(0)  # A client that sends only invalid lines must not block other tasks.

    async def _leave(self) -> None:
        """Wait for the open requests, as long as the client still reads."""
        before = None
        while before != self._writer.written:
            before = self._writer.written
            await self._open_requests.until_done(self._limits.leaving_seconds)
        if self._direct is not None:
            await self._direct.end()

    def _message(self, line: bytes) -> SessionMessage | None:
        """Convert a line to a message of the SDK; None if there is nothing for it to do."""
        found = read_message(line, self._limits.depth)
        if "method" in found and "id" in found:
            return self._request(found, len(line))
        if "method" in found:
            if self._direct is not None and self._direct.notified(found):
                return None
            return SessionMessage(JSONRPCNotification.model_validate(found))
        given = found.get("id")
        self._open_requests.got_response(given)
        if given is None:
            _log.warning("the client could not read a message: %.500r", found["error"])
            return None
        kind = JSONRPCResponse if "result" in found else JSONRPCError
        try:
            return SessionMessage(kind.model_validate(found))
        except ValidationError:
            raise BadMessage("An answer needs an object as its 'result' or 'error'") from None

    def _request(self, found: dict[str, Any], size: int) -> SessionMessage | None:
        if self._open_requests.is_full:
            text = "Too many requests are under way; wait for some of their answers"
            raise BadMessage(text, INTERNAL_ERROR, found["id"])
        if self._direct is not None and (call := self._direct.find(found)) is not None:
            self._open_requests.begin(found["id"], size, is_stream=False)
            self._direct.start(found["id"], call)
            return None
        request = JSONRPCRequest.model_validate(found)
        self._open_requests.begin(request.id, size, is_stream=request.method == _STREAM)

        async def settle() -> None:
            self._open_requests.end(request.id)

        return SessionMessage(request, ServerMessageMetadata(on_request_unanswered=settle))


class _Outgoing(_Stream):
    """The messages for a client."""

    def __init__(
        self, writer: LineWriter, open_requests: _OpenRequests, direct: DirectLines | None
    ) -> None:
        self._writer = writer
        self._open_requests = open_requests
        self._direct = direct

    async def send(self, item: SessionMessage) -> None:
        """Send a message; returns once it is written.

        Raises:
            anyio.BrokenResourceError: the client has hung up.
        """
        message = item.message
        if self._direct is not None:
            self._direct.responded(message)
        if isinstance(message, JSONRPCError) and message.error.code == CONNECTION_CLOSED:
            # The SDK's error for an aborted call; here the client is still connected.
            stopped = ErrorData(code=INTERNAL_ERROR, message=STOPPED)
            message = JSONRPCError(jsonrpc="2.0", id=message.id, error=stopped)
        on_end = _nothing
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            on_end = partial(self._open_requests.end, message.id)
        elif isinstance(message, JSONRPCRequest):
            self._open_requests.sent_request(message.id)
        elif message.method == "notifications/cancelled":
            self._open_requests.got_response((message.params or {}).get("requestId"))
        try:
            await self._writer.write(_encoded(message), on_end)
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None


def _nothing() -> None:
    """Do nothing: the message ends no request."""


def _encoded(message: JSONRPCMessage) -> bytes:
    """Encode a message as one line of JSON."""
    try:
        if isinstance(message, JSONRPCResponse):
            with contextlib.suppress(TypeError):  # Integers beyond 64 bits, types of others.
                known = orjson.Fragment(encode_json(message.id).text)
                whole = {"jsonrpc": "2.0", "id": known, "result": message.result}
                return orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE)
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except (ValueError, RecursionError) as error:
        if not isinstance(message, JSONRPCResponse):
            raise
        _log.error("a response cannot be sent, as it is not JSON: %s", error)
        data = ErrorData(code=INTERNAL_ERROR, message="The answer is not JSON")
        return _encoded(JSONRPCError(jsonrpc="2.0", id=message.id, error=data))


@contextlib.contextmanager
def _claimed() -> Generator[tuple[int, int]]:
    """Yield duplicates of 0 and 1 for the protocol, with 0 empty and 1 as standard error inside."""
    if sys.__stdin__ is None or sys.__stdout__ is None:
        raise InvalidConfig("serving over stdio needs a standard input and a standard output")
    incoming, outgoing = _duplicate(0), _duplicate(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        _redirect(0, nothing)
        try:
            _redirect(1, 2)
        except OSError:  # There is no standard error.
            _redirect(1, nothing)
        sys.__stdout__.flush()  # Text printed before must not reach the wire.
    finally:
        os.close(nothing)
    try:
        yield incoming, outgoing
    finally:  # They stay open: on Windows a thread may still read.
        _redirect(1, outgoing)
        _redirect(0, incoming)


def _duplicate(descriptor: int) -> int:
    """Duplicate a descriptor, not inherited by children, with a number above the standard streams."""
    if sys.platform == "win32":
        return os.dup(descriptor)
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def _redirect(descriptor: int, to: int) -> None:
    os.dup2(to, descriptor)
    if sys.platform == "win32":
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        with contextlib.suppress(OSError):
            rebind_std_handle_to_fd(descriptor)
