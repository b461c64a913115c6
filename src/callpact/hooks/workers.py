"""Threads with large stacks for work that asyncio waits for, and a bound that any loop may wait at.

Like the executor and the semaphore of the standard library, but: the size of the stack is chosen,
a result costs one wake-up of the loop, and neither is bound to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from callpact.errors import UsageError

T = TypeVar("T")
_Job = Callable[[], Callable[[], None]]
_Inbox = SimpleQueue[_Job | None]

_STACK_BYTES = 8 << 20  # Guest code uses up to 2 MiB of it; with too little the process dies.

_starting = threading.Lock()


class Workers:
    """A number of threads, started when there is work for them.

    The thread that worked last works next: what it used is still in its processor's cache.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle: list[_Inbox] = []
        self._backlog: deque[_Job] = deque()
        self._is_closed = False

    async def do(self, work: Callable[[], T]) -> T:
        """What the work returns; if it has not begun when this is cancelled, it never will.

        Raises:
            UsageError: the workers are closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._assign(partial(_do, work, loop, future))
        return await future

    async def close(self) -> None:
        """Finish what was asked for, and end the threads."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _assign(self, job: _Job) -> None:
        with self._lock:
            if self._is_closed:
                raise UsageError("the pool of the hooks is closed")
            if self._idle:
                self._idle.pop().put(job)
            elif len(self._threads) < self._most:
                self._threads.append(_start(partial(self._run, job)))
            else:
                self._backlog.append(job)

    def _run(self, job: _Job | None) -> None:
        inbox: _Inbox = SimpleQueue()
        while job is not None:
            tell = job()
            job = self._next(inbox)
            tell()  # After it is known what comes next, or the loop would wake another thread.
            if job is None:
                job = inbox.get()

    def _next(self, inbox: _Inbox) -> _Job | None:
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            if self._is_closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)
            return None


def _start(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name="callpact-hooks", daemon=True)
    with _starting:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


def _do(
    work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]
) -> Callable[[], None]:
    """Do the work; what is returned tells who waits for it."""
    if future.cancelled():
        return _tell_nobody
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whatever happened, who waits is told
        return partial(_tell, loop, future, future.set_exception, error)
    return partial(_tell, loop, future, future.set_result, result)


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    settle: Callable[[Any], None],
    value: object,
) -> None:
    # A loop that was closed meanwhile: nobody waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: future.done() or settle(value))


def _tell_nobody() -> None:
    """Nobody waits any more."""


class Slots:
    """A number of places; who finds none waits for one, first come first served."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def take(self) -> None:
        """Have a place, now or later."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, future))
        try:
            await future
        except asyncio.CancelledError:
            with self._lock:
                if (loop, future) in self._waiting:
                    self._waiting.remove((loop, future))
            if not future.cancelled():
                self.give()  # The place came in the same moment.
            raise

    def give(self) -> None:
        """Give a place back, from any thread."""
        with self._lock:
            while self._waiting:
                loop, future = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(self._hand_on, future)
                except RuntimeError:
                    continue  # The loop was closed meanwhile: nobody waits.
                return
            self._free += 1

    def _hand_on(self, future: asyncio.Future[None]) -> None:
        if future.done():
            self.give()
        else:
            future.set_result(None)
