"""The caller's side of the call protocol: requests that were sent, and their answers.

`PendingRequestMap` publishes requests on a bus and matches the answers by request id. It knows no
tools: requests are answered by `handler.py`, in any process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from math import isfinite
from time import time
from typing import TYPE_CHECKING, Any, cast

import msgspec

from callpact.context import Identity
from callpact.envelope import ResponseEnvelope, is_response_envelope
from callpact.errors import (
    Aborted,
    CallError,
    Failed,
    Issue,
    NotAnEnvelope,
    Silent,
    Timeout,
    UpstreamError,
    UsageError,
)
from callpact.protocol.bus import Bus, LocalBus
from callpact.protocol.events import (
    CallAborted,
    CallCompleted,
    CallEvent,
    CallFailed,
    CallRequested,
    CallResponded,
    new_id,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping

MAX_PENDING = 100_000
"""Requests that one `PendingRequestMap` may wait for at a time."""
MAX_UNREAD = 1_000
"""Unread envelopes of a subscription; one more ends the subscription."""
_SECONDS_TO_ABORT = 1.0

_log = logging.getLogger("callpact.protocol")


class PendingRequestMap:
    """Calls over a bus. It belongs to one event loop.

    Events for requests that are not pending are dropped.
    """

    def __init__(self, bus: Bus | None = None) -> None:
        self.bus: Bus = LocalBus() if bus is None else bus
        self.answering: dict[str, asyncio.Task[Any] | None] = {}
        """Requests that are being answered here, each with its task; None until the task starts."""
        self.is_closed = False
        """True after `aclose`: no request is sent or answered any more."""
        self._pending: dict[str, asyncio.Future[CallEvent | None] | _Stream] = {}
        self._context = copy_context()  # Shared by all timers, to save memory.
        self._unsubscribe = [
            self.bus.subscribe("call.responded", self._respond),
            self.bus.subscribe("call.error", self._end),
            self.bus.subscribe("call.completed", self._end),
            self.bus.subscribe("call.aborted", self._abort),
        ]

    @property
    def pending_count(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    async def call(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        parent_request_id: str | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        metadata: Mapping[str, Any] | None = None,
        chain: tuple[str, ...] = (),
    ) -> ResponseEnvelope[Any]:
        """Call a tool in any process; the first answer is returned.

        `deadline` is epoch milliseconds. A caller that is cancelled publishes `call.aborted`.

        Raises:
            CallError: the error of the other side; `timeout`, `aborted`, or `upstream_error` if the
                bus refuses the request.
            UsageError: the tool id, the deadline or the identity is invalid, or the map is closed.
        """
        if type(tool_id) is not str:
            _check_tool_id(tool_id)
        if deadline is not None:
            _check_time_left(tool_id, deadline)
        if identity is not None:
            check_identity(identity)
        request_id = new_id()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallEvent | None] = asyncio.Future(loop=loop)
        self._store(request_id, future)
        timer: asyncio.TimerHandle | None = None
        try:
            await self._sent(
                CallRequested(
                    request_id,
                    tool_id,
                    {} if arguments is None else arguments,
                    parent_request_id or None,
                    deadline,
                    None,
                    identity,
                    metadata,
                    chain,
                )
            )
            if deadline is not None and not future.done():
                timer = loop.call_later(_left(deadline), _expire, future, context=self._context)
            event = await future
        except asyncio.CancelledError:
            if request_id in self._pending or _goes_on(future):
                await self._give_up(request_id)
            raise
        except (CallError, UsageError):
            raise
        except Exception as error:
            raise _unsent(error, tool_id) from error
        finally:
            self._pending.pop(request_id, None)
            if timer is not None:
                timer.cancel()
        if isinstance(event, CallResponded):
            if event.seq is not None:  # A subscription: only its first envelope is used.
                await self._give_up(request_id)
            return event.output
        if event is None:
            await self._give_up(request_id)
            raise Timeout(tool_id, cast("float", deadline))
        raise event.error if isinstance(event, CallFailed) else Aborted(tool_id)

    async def subscribe(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        parent_request_id: str | None = None,
        deadline: float | None = None,
        idle_timeout: float | None = None,
        identity: Identity | None = None,
        metadata: Mapping[str, Any] | None = None,
        chain: tuple[str, ...] = (),
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Subscribe to a tool in any process: yields every envelope until the end.

        `idle_timeout` is in milliseconds and restarts with each envelope. A reader that stops before
        the end publishes `call.aborted`. After lost envelopes the next one has a warning (`gap`).

        Raises:
            CallError: as `call`; `timeout` also after the idle timeout, `aborted` if the reader
                fell too far behind or the last envelopes were lost.
            UsageError: as `call`; or the idle timeout is invalid.
        """
        _check_tool_id(tool_id)
        request_id = new_id()
        request = CallRequested(
            request_id,
            tool_id,
            {} if arguments is None else arguments,
            parent_request_id or None,
            deadline,
            idle_timeout,
            identity,
            metadata,
            chain,
            stream=True,
        )
        if idle_timeout is not None and not (_is_number(idle_timeout) and idle_timeout > 0):
            raise UsageError(f"idle_timeout must be positive milliseconds, got {idle_timeout!r}")
        if deadline is not None:
            _check_time_left(tool_id, deadline)
        if identity is not None:
            check_identity(identity)
        stream = _Stream(tool_id)
        self._store(request_id, stream)
        try:
            try:
                await self._sent(request)
            except (CallError, UsageError):
                raise
            except Exception as error:
                raise _unsent(error, tool_id) from error
            while True:
                envelope = await _next(stream, deadline, idle_timeout)
                if envelope is None:
                    return
                yield envelope
        finally:
            if self._pending.pop(request_id, None) is not None:
                await self._give_up(request_id)

    async def respond(self, request_id: str, output: Any, *, seq: int | None = None) -> None:
        """Answer a request; for code that replaces the call handler.

        Raises:
            NotAnEnvelope: the output is a raw value.
        """
        if type(output) is not ResponseEnvelope:
            if not is_response_envelope(output):
                raise NotAnEnvelope(
                    f"call.responded carries envelopes only, got {type(output).__name__}; wrap it "
                    "with local_envelope(data, operation_id)"
                )
            output = _as_envelope(output)
        await self.bus.publish(CallResponded(request_id, cast("Any", output), seq))

    async def emit_error(self, request_id: str, error: CallError) -> None:
        """End a request with an error."""
        await self.bus.publish(CallFailed.of(request_id, error))

    async def abort(self, request_id: str) -> None:
        """Give up a pending request; its caller gets `aborted`."""
        if request_id in self._pending:
            await self.bus.publish(CallAborted(request_id))

    async def complete(self, request_id: str, *, count: int | None = None) -> None:
        """End a subscription after its last envelope."""
        await self.bus.publish(CallCompleted(request_id, count))

    async def aclose(self) -> None:
        """Stop listening; callers that wait get `aborted`, and `call.aborted` is published for each.

        Requests that are answered here are cancelled, and their callers get `aborted`. A stuck bus
        or a handler that ignores its cancellation delays the end by at most a second.
        """
        self.is_closed = True
        while self._unsubscribe:
            self._unsubscribe.pop()()
        current = asyncio.current_task()
        tasks = [task for task in self.answering.values() if task not in (None, current)]
        events = [CallAborted(request_id) for request_id in self._pending]
        for event in events:
            self.answering.pop(event.request_id, None)  # Its caller gets the event below.
            self._end(event)
        for task in tasks:
            task.cancel()
        ends: list[Awaitable[Any]] = [self.bus.publish(event) for event in events]
        if tasks:
            ends.append(asyncio.wait(tasks))
        with suppress(Exception):
            async with asyncio.timeout(_SECONDS_TO_ABORT):
                await asyncio.gather(*ends, return_exceptions=True)

    # --- incoming events

    def _respond(self, event: CallResponded) -> Coroutine[Any, Any, None] | None:
        waiting = self._pending.get(event.request_id)
        if isinstance(waiting, _Stream):
            waiting.take(event)
            if waiting.is_full:  # Abort now: an endless producer would not wait for the reader.
                del self._pending[event.request_id]
                return self._give_up(event.request_id)
        elif waiting is not None:
            if event.seq is None or not waiting.done():
                del self._pending[event.request_id]  # Otherwise its cancelled caller removes it.
            if not waiting.done():
                waiting.set_result(event)
        return None

    def _end(self, event: CallEvent) -> None:
        waiting = self._pending.pop(event.request_id, None)
        if isinstance(waiting, _Stream):
            waiting.take(event)
        elif waiting is not None and not waiting.done():
            waiting.set_result(event)

    def _abort(self, event: CallAborted) -> None:
        task = self.answering.pop(event.request_id, None)
        if task is not None:
            task.cancel()
        self._end(event)

    # --- outgoing events

    def _store(self, request_id: str, waiting: asyncio.Future[CallEvent | None] | _Stream) -> None:
        if self.is_closed:
            raise UsageError("this PendingRequestMap is closed; make another one")
        if len(self._pending) >= MAX_PENDING:
            raise Failed("aborted", f"{MAX_PENDING:,} calls wait for their answers already")
        self._pending[request_id] = waiting

    def _sent(self, request: CallRequested) -> Awaitable[None]:
        if request.deadline is None or type(self.bus) is LocalBus:  # A LocalBus never waits.
            return self.bus.publish(request)
        return self._sent_in_time(request, _left(request.deadline))

    async def _sent_in_time(self, request: CallRequested, seconds: float) -> None:
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                await self.bus.publish(request)
        except TimeoutError:
            if timer.expired():
                raise Timeout(request.operation_id, cast("float", request.deadline)) from None
            raise

    async def _give_up(self, request_id: str) -> None:
        """Publish `call.aborted`, waiting for a stuck bus at most a second."""
        with suppress(Exception):
            async with asyncio.timeout(_SECONDS_TO_ABORT):
                await self.bus.publish(CallAborted(request_id))


class _Stream:
    """The received, unread envelopes of a subscription."""

    __slots__ = ("_expected", "_unread", "_waiter", "is_full", "tool_id")

    def __init__(self, tool_id: str) -> None:
        self.tool_id = tool_id
        self._unread: deque[CallEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._expected = 0
        self.is_full = False

    def take(self, event: CallEvent) -> None:
        if isinstance(event, CallResponded) and len(self._unread) >= MAX_UNREAD:
            self.is_full = True
        if not self.is_full:
            self._unread.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> ResponseEnvelope[Any] | None:
        """The next envelope; None at the end."""
        while True:
            while not self._unread:
                if self.is_full:
                    text = f"The reader of '{self.tool_id}' fell {MAX_UNREAD:,} results behind"
                    raise Failed("aborted", text)
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            event = self._unread.popleft()
            if isinstance(event, CallResponded):
                envelope = self._in_order(event)
                if envelope is not None:
                    return envelope
            elif isinstance(event, CallFailed):
                raise event.error
            else:
                return self._ended(event)

    def _in_order(self, event: CallResponded) -> ResponseEnvelope[Any] | None:
        """The envelope, with a warning if others are missing before it; None for a duplicate."""
        if event.seq is None:
            self._expected += 1
            return event.output
        lost = event.seq - self._expected
        if lost < 0:
            return None
        self._expected = event.seq + 1
        if not lost:
            return event.output
        text = f"{lost} result{'s' * (lost > 1)} before this one did not arrive"
        warnings = (*event.output.warnings, Issue("gap", text))
        return msgspec.structs.replace(event.output, warnings=warnings)

    def _ended(self, event: CallEvent) -> None:
        count = event.count if isinstance(event, CallCompleted) else None
        if count is not None and count > self._expected:
            lost = count - self._expected
            text = f"'{self.tool_id}' ended, but the last {lost} of {count} results did not arrive"
            raise Failed("aborted", text)


async def _next(
    stream: _Stream, deadline: float | None, idle_timeout: float | None
) -> ResponseEnvelope[Any] | None:
    if deadline is None and idle_timeout is None:
        return await stream.next()
    left = float("inf") if deadline is None else _left(deadline)
    idle = float("inf") if idle_timeout is None else idle_timeout / 1000
    timer = asyncio.timeout(max(0, min(left, idle)))
    try:
        async with timer:
            return await stream.next()
    except TimeoutError:
        if not timer.expired():
            raise
        if left <= idle:
            raise Timeout(stream.tool_id, cast("float", deadline)) from None
        raise Silent(stream.tool_id, cast("float", idle_timeout)) from None


def _goes_on(future: asyncio.Future[CallEvent | None]) -> bool:
    """True if the answer was the first of a subscription, which continues until it is stopped."""
    if not future.done() or future.cancelled():
        return False
    event = future.result()
    return isinstance(event, CallResponded) and event.seq is not None


def _expire(future: asyncio.Future[CallEvent | None]) -> None:
    if not future.done():
        future.set_result(None)


def _unsent(error: Exception, tool_id: str) -> CallError:
    """The error of a request that the bus refuses."""
    _log.warning("the bus refused a call of %s: %r", tool_id, error)
    return UpstreamError(f"'{tool_id}' was not called: the bus does not take the request")


def _check_time_left(tool_id: str, deadline: float) -> None:
    check_deadline(deadline)
    if _left(deadline) <= 0:
        raise Timeout(tool_id, deadline, begun=False)


def _check_tool_id(tool_id: Any) -> None:
    if not isinstance(tool_id, str):
        raise UsageError(f"a tool is called by its id, as 'shop.price'; got {tool_id!r:.100}")


def check_deadline(deadline: Any) -> None:
    """Check a deadline: JSON has no infinity.

    Raises:
        UsageError: it is not a finite number.
    """
    if not _is_number(deadline):
        raise UsageError(f"deadline must be epoch milliseconds, got {deadline!r:.100}")


def check_identity(identity: Any) -> None:
    """Check the type of an identity.

    Raises:
        UsageError: it is not an `Identity`.
    """
    if not isinstance(identity, Identity):
        raise UsageError(f"identity must be an Identity or None, got {identity!r:.100}")


def _left(deadline: float) -> float:
    """Seconds until a deadline."""
    return deadline / 1000 - time()


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _as_envelope(output: Any) -> ResponseEnvelope[Any]:
    if isinstance(output, ResponseEnvelope):
        return cast("ResponseEnvelope[Any]", output)
    return ResponseEnvelope.from_wire(output)
