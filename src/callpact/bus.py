"""The bus that carries the events of the call protocol: the seam, and the one inside a process.

A bus knows nothing of calls. One that crosses processes sends the lines of `write_event`, and hands
what `read_event` gives to the near end that every process has, a `LocalBus`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from callpact.eager import Starter
from callpact.errors import UsageError
from callpact.events import EVENT_TYPES, CallEvent

_log = logging.getLogger("callpact.bus")

Listener = Callable[[Any], Coroutine[Any, Any, None] | None]
"""Hears events of one type. What an async function does runs as a task of its own."""


class Bus(Protocol):
    """Carries events to everybody who listens, in order, the publisher's own listeners too."""

    async def publish(self, event: CallEvent, /) -> None:
        """Send an event; returns when it is on its way, not when it was heard."""
        ...

    def subscribe(self, topic: str, listener: Listener, /) -> Callable[[], None]:
        """Hear every event of a type (`call.requested`, …); what is returned ends it."""
        ...


class LocalBus:
    """A bus inside one process and one event loop; also the near end of any other bus.

    Listeners are called in the order in which they came. One that raises is logged and breaks
    nothing; only what ends a program (`SystemExit`, …) goes on, after everybody was told.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = dict.fromkeys(EVENT_TYPES, ())
        self._tasks: set[asyncio.Task[None]] = set()
        self._starter = Starter()
        self._untold: deque[CallEvent] = deque()
        self._is_telling = False
        self._raised: BaseException | None = None

    async def publish(self, event: CallEvent) -> None:
        """Tell every listener."""
        self.deliver(event)

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Hear every event of a type; what is returned ends it.

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
        """Tell every listener of this process of an event, wherever it came from.

        What a listener publishes meanwhile is told after it, so that all hear the same order.

        Raises:
            UsageError: a listener is async, and no event loop is running here.
        """
        if self._is_telling:
            self._untold.append(event)
            return
        self._is_telling = True
        try:
            self._tell(event)
            while self._untold:
                self._tell(self._untold.popleft())
        except BaseException:  # An interrupt: told later, the rest would come out of order.
            self._untold.clear()
            self._raised = None
            raise
        finally:
            self._is_telling = False
        if self._raised is not None:
            self._raise()

    def _tell(self, event: CallEvent) -> None:
        for listener in self._listeners[event.type]:
            running: Any = None
            try:
                running = listener(event)
                task = None if running is None else self._starter.start(running)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - boundary: a listener never breaks the bus
                self._fail(event, error, running)
                continue
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._done)

    def _fail(self, event: CallEvent, error: BaseException, running: Any) -> None:
        if asyncio.iscoroutine(running) and not _is_in_loop():
            running.close()
            error = UsageError(
                f"no event loop is running here, and an async function listens to {event.type}; "
                "from another thread: loop.call_soon_threadsafe(bus.deliver, event)"
            )
        elif isinstance(error, Exception | asyncio.CancelledError):
            text = "a listener failed on %s of %s"
            _log.error(text, event.type, event.request_id, exc_info=error)
            return
        if self._raised is None:
            self._raised = error

    def _raise(self) -> None:
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            del raised  # It holds this frame.

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a listener failed", exc_info=error)

    async def aclose(self) -> None:
        """Cancel what listeners still do, and wait until it has ended."""
        current = asyncio.current_task()
        while tasks := [task for task in self._tasks if task is not current]:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
