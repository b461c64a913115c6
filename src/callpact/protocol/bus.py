"""The bus of the call protocol: the `Bus` protocol, and `LocalBus`, which works inside one process.

A bus knows nothing of calls. One that crosses processes sends the lines of `write_event` and passes
the events of `read_event` to a `LocalBus`, the near end in each process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from callpact.errors import UsageError
from callpact.execution import start
from callpact.protocol.events import EVENT_TYPES, CallEvent

_log = logging.getLogger("callpact.protocol")

Listener = Callable[[Any], Coroutine[Any, Any, None] | None]
"""Receives the events of one type; an async function runs as a task."""


class Bus(Protocol):
    """Delivers events to all listeners, in order, the publisher's own listeners included."""

    async def publish(self, event: CallEvent, /) -> None:
        """Send an event, without waiting for its listeners."""
        ...

    def subscribe(self, topic: str, listener: Listener, /) -> Callable[[], None]:
        """Receive every event of a type (`call.requested`, …); the returned function unsubscribes."""
        ...


class LocalBus:
    """A bus inside one process and one event loop; also the near end of any other bus.

    Listeners are called in the order of their subscriptions. The exception of a listener is logged
    and stops nothing; `SystemExit` alone is raised, after all listeners were called.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = dict.fromkeys(EVENT_TYPES, ())
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[CallEvent] = deque()
        self._is_delivering = False
        self._raised: BaseException | None = None

    async def publish(self, event: CallEvent) -> None:
        """Call every listener."""
        self.deliver(event)

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Receive every event of a type; the returned function unsubscribes.

        Raises:
            UsageError: there is no such type of event.
        """
        if not isinstance(topic, str) or topic not in self._listeners:  # pyright: ignore[reportUnnecessaryIsInstance] - any topic
            raise UsageError(f"events are {', '.join(EVENT_TYPES)}; got {topic!r:.100}")
        self._listeners[topic] += (listener,)

        subscribed = [listener]

        def unsubscribe() -> None:
            kept = list(self._listeners[topic])
            if subscribed and listener in kept:
                kept.remove(subscribed.pop())
            self._listeners[topic] = tuple(kept)

        return unsubscribe

    def deliver(self, event: CallEvent) -> None:
        """Call every listener of this process with an event from any publisher.

        Events that a listener publishes are queued, so that all listeners see the same order.

        Raises:
            UsageError: a listener is async, and no event loop is running here.
        """
        if self._is_delivering:
            self._queue.append(event)
            return
        self._is_delivering = True
        try:
            self._call_listeners(event)
            while self._queue:
                self._call_listeners(self._queue.popleft())
        except BaseException:  # An interrupt: events delivered after it would be out of order.
            self._queue.clear()
            self._raised = None
            raise
        finally:
            self._is_delivering = False
        if self._raised is not None:
            self._raise()

    def _call_listeners(self, event: CallEvent) -> None:
        for listener in self._listeners[event.type]:
            running: Any = None
            try:
                running = listener(event)
                task = None if running is None else start(running)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - boundary: a listener never breaks the bus
                self._fail(event, error, running)
                continue
            if task is not None and task.done():
                self._done(event, task)
            elif task is not None:
                self._tasks.add(task)
                task.add_done_callback(partial(self._done, event))

    def _fail(self, event: CallEvent, error: BaseException, running: Any) -> None:
        if asyncio.iscoroutine(running) and not _is_in_loop():
            running.close()
            error = UsageError(
                f"no event loop is running here, and an async function listens to {event.type}; "
                "from another thread: loop.call_soon_threadsafe(bus.deliver, event)"
            )
        elif isinstance(error, Exception | asyncio.CancelledError):
            _log_failure(event, error)
            return
        if self._raised is None:
            self._raised = error

    def _raise(self) -> None:
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            del raised  # It refers to this frame: a cycle.

    def _done(self, event: CallEvent, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log_failure(event, error)

    async def aclose(self) -> None:
        """Cancel the tasks of async listeners, and wait for their end."""
        current = asyncio.current_task()
        while tasks := [task for task in self._tasks if task is not current]:
            await asyncio.sleep(0)  # A task that is cancelled before its first step runs no code.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(event: CallEvent, error: BaseException) -> None:
    _log.error("a listener failed on %s of %s", event.type, event.request_id, exc_info=error)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
