"""A subscription over HTTP as a stream of server-sent events (`text/event-stream`).

The results of the tool are read in a task of their own, so that a silent tool does not delay
keep-alives, nor the end when the client disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from callpact.errors import CallError, HandlerCrashed
from callpact.wire import rest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Send

    from callpact.envelope import ResponseEnvelope
    from callpact.tool import Tool

KEEP_ALIVE_SECONDS = 15.0
"""Seconds after which a comment is sent on a silent stream of events."""
BEGIN_SECONDS = 1.0
"""Seconds that a stream of events waits for its first result; an error until then has its status."""
_COMMENT = b": keep-alive\n\n"
_END = object()
_log = logging.getLogger("callpact.serve.rest")


async def send_events(
    values: AsyncGenerator[ResponseEnvelope[Any], None],
    tool: Tool,
    receive: Receive,
    send: Send,
    *,
    whole: bool = False,
) -> None:
    """Send each result as an event, until the tool ends or the client disconnects.

    Raises:
        CallError: the subscription failed before the response began.
    """
    stream = _EventStream(tool, send, whole=whole)
    queue: asyncio.Queue[Any] = asyncio.Queue(1)
    reading = asyncio.ensure_future(_read(values, queue, tool))
    leaving = asyncio.ensure_future(_until_gone(receive))
    seconds = BEGIN_SECONDS
    try:
        while True:
            item = await _next(queue, leaving, seconds)
            if leaving.done():
                await stream.close()
                return
            if item is _END:
                await stream.end()
                return
            if isinstance(item, CallError):
                raise item
            await stream.write(item)
            seconds = KEEP_ALIVE_SECONDS
    except CallError as error:
        if not stream.is_begun:
            raise
        await stream.end(error)
    finally:
        for task in (reading, leaving):
            task.cancel()
        await asyncio.wait((reading, leaving))


class _EventStream:
    """The response to one subscription."""

    def __init__(self, tool: Tool, send: Send, *, whole: bool) -> None:
        self._tool = tool
        self._send = send
        self._whole = whole
        self._count = 0
        self.is_begun = False

    async def write(self, envelope: ResponseEnvelope[Any] | None) -> None:
        """Send a result; None is a comment that keeps the connection open.

        Raises:
            CallError: the first result cannot be sent.
        """
        event = _COMMENT
        if envelope is not None:
            event = rest.encode_event(envelope, self._tool, self._count, whole=self._whole)
            self._count += 1
        if not self.is_begun:
            self.is_begun = True
            headers = rest.stream_headers(self._tool)
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self, error: CallError | None = None) -> None:
        """Send the last event, with the reason if there is one."""
        last = (
            rest.encode_end_event(self._count) if error is None else rest.encode_error_event(error)
        )
        if not self.is_begun:
            await self.write(None)
        await self._send({"type": "http.response.body", "body": last})

    async def close(self) -> None:
        """End the response without an event: the client is gone, or the server stops."""
        if self.is_begun:
            await self._send({"type": "http.response.body", "body": b""})


async def _read(
    values: AsyncGenerator[ResponseEnvelope[Any], None], queue: asyncio.Queue[Any], tool: Tool
) -> None:
    """Put all results of a subscription into a queue, then its end or its error."""
    try:
        async with contextlib.aclosing(values):
            async for envelope in values:
                await queue.put(envelope)
    except CallError as error:
        await queue.put(error)
    except Exception:  # noqa: BLE001 - boundary: an error of ours, not of the caller
        _log.exception("a subscription to %s failed", tool.id)
        await queue.put(HandlerCrashed(tool.id))
    else:
        await queue.put(_END)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(queue: asyncio.Queue[Any], leaving: asyncio.Task[None], seconds: float) -> Any:
    """Return the next item of the queue; None after some time, or if the client left."""
    coming = asyncio.ensure_future(queue.get())
    try:
        await asyncio.wait((coming, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()
