"""A bus between two processes over a Unix socket: one event is one line of JSON.

It shows how little a transport has to do: the near end is a `LocalBus`, the lines are those of
`write_event` and `read_event`. It is no broker: one peer, no second attempt. Whoever can open the
socket is trusted and may claim any identity; keep it in a folder that only you can enter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from callpact import UpstreamError
from callpact.errors import InvalidEvent
from callpact.protocol import (
    MAX_EVENT_BYTES,
    MAX_ID_LENGTH,
    CallAborted,
    CallEvent,
    CallFailed,
    CallRequested,
    CallResponded,
    Listener,
    LocalBus,
    read_event,
    write_event,
)

MAX_OPEN = 10_000
"""Requests that may be open with a peer; one that asks for more is hung up on."""

_log = logging.getLogger("socket_bus")


class SocketBus:
    """A bus to one peer. Requests for the namespaces in `far` cross, and all that follows from one.

    What stays on this side costs no JSON, and goes on when the peer has hung up.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far: Iterable[str] = ()
    ) -> None:
        self._reader, self._writer = reader, writer
        self._far = frozenset(far)
        self._near = LocalBus()
        self._open: set[str] = set()  # Requests that crossed and have not ended.
        self._has_peer = True

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Hear every event of a type, from either side."""
        return self._near.subscribe(topic, listener)

    async def publish(self, event: CallEvent) -> None:
        """Tell this process, and the peer where the event is its business.

        Raises:
            UpstreamError: the peer has hung up.
            InvalidInput, OutputRejected: the event cannot be written, or is too long for a line.
        """
        if isinstance(event, CallRequested):
            crosses = event.operation_id.partition(".")[0] in self._far
        else:
            crosses = event.request_id in self._open
        if not crosses:
            self._near.deliver(event)
            return
        self._writer.write(self._line(event))
        self._note(event)
        self._near.deliver(event)
        with suppress(ConnectionError):  # `listen` hears of it, and ends what is open.
            await self._writer.drain()

    async def listen(self) -> None:
        """Hear the peer until one side hangs up; what is open between them ends then."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                await self._hear(line)
        except (ConnectionError, ValueError) as error:
            # ValueError: a line too long. Whose answer it was is not known, so all must end.
            _log.warning("hung up: %s", error)
        finally:
            self._hang_up()

    async def aclose(self) -> None:
        """Hang up, and wait until what listeners still do has stopped."""
        self._hang_up()
        await self._near.aclose()

    async def _hear(self, line: bytes) -> None:
        try:
            event = read_event(line[:-1])
        except InvalidEvent as error:
            _log.warning("%s", error)
            await self._refuse(error)
            return
        if isinstance(event, CallRequested) and len(self._open) >= MAX_OPEN:
            raise ConnectionError(f"the peer has {MAX_OPEN:,} requests open and asks for more")
        if isinstance(event, CallRequested) or event.request_id in self._open:
            self._note(event)
            self._near.deliver(event)

    async def _refuse(self, error: InvalidEvent) -> None:
        """End the call that a bad line speaks of, on whichever side it is waited for."""
        request_id = error.request_id or ""
        failed = CallFailed.of(request_id, UpstreamError(f"What came over the wire is {error}"))
        if request_id in self._open:
            self._near.deliver(failed)
            await self.publish(CallAborted(request_id))
        elif 0 < len(request_id) <= MAX_ID_LENGTH:  # Else the refusal would be refused in turn.
            self._writer.write(self._line(failed))
            await self._writer.drain()

    def _line(self, event: CallEvent) -> bytes:
        if not self._has_peer:
            raise UpstreamError("The other process has hung up")
        return write_event(event) + b"\n"

    def _note(self, event: CallEvent) -> None:
        if isinstance(event, CallRequested):
            self._open.add(event.request_id)
        elif not isinstance(event, CallResponded) or event.seq is None:
            self._open.discard(event.request_id)

    def _hang_up(self) -> None:
        self._has_peer = False
        self._writer.transport.abort()  # A peer that reads nothing must not hold up the end.
        ended, self._open = self._open, set()
        for request_id in ended:
            # The first ends what this side waits for, the second what it works on.
            error = UpstreamError("The other process hung up")
            self._near.deliver(CallFailed.of(request_id, error))
            self._near.deliver(CallAborted(request_id))


@asynccontextmanager
async def open_bus(path: Path, far: Iterable[str]) -> AsyncGenerator[SocketBus, None]:
    """A bus to the process that listens on a socket and serves the namespaces in `far`."""
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_EVENT_BYTES)
    bus = SocketBus(reader, writer, far)
    listening = asyncio.create_task(bus.listen())
    try:
        yield bus
    finally:
        await bus.aclose()
        await listening


@asynccontextmanager
async def serve_buses(
    path: Path, welcome: Callable[[SocketBus], None]
) -> AsyncGenerator[None, None]:
    """Listen on a socket; every peer is welcomed on a bus of its own and hears no other peer."""
    tasks: set[asyncio.Task[None]] = set()

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(talk(SocketBus(reader, writer)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def talk(bus: SocketBus) -> None:
        welcome(bus)
        try:
            await bus.listen()
        finally:
            await bus.aclose()

    server = await asyncio.start_unix_server(meet, path, limit=MAX_EVENT_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
