"""Threads with large stacks for work that asyncio waits for.

Unlike the executor of the standard library: the stack size can be set, a result costs one wake-up
of the loop, queued work is done in the turns of its callers, and no event loop owns the threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from callpact.errors import UsageError
from callpact.sandbox.fair_slots import FairQueue

T = TypeVar("T")
_Job = Callable[[], Callable[[], None]]
_Inbox = SimpleQueue[_Job | None]

_STACK_BYTES = 8 << 20  # Guest code uses up to 2 MiB; with too little the process crashes.

_starting = threading.Lock()


class Workers:
    """A number of threads, started when there is work for them.

    The thread that became idle last works next: its data is still in the processor's cache.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle: list[_Inbox] = []
        self._backlog: FairQueue[_Job] = FairQueue()
        self._is_closed = False

    async def do(self, work: Callable[[], T], caller: Hashable = None) -> T:
        """Run the work and return its result; work that is cancelled in the queue never runs.

        Raises:
            UsageError: the workers are closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._assign(partial(_do, work, loop, future), caller)
        return await future

    async def close(self) -> None:
        """Finish the queued work, and end the threads."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _assign(self, job: _Job, caller: Hashable) -> None:
        with self._lock:
            if self._is_closed:
                raise UsageError("the pool of the hooks is closed")
            if self._idle:
                self._idle.pop().put(job)
            elif len(self._threads) < self._most:
                self._threads.append(_start(partial(self._run, job)))
            else:
                self._backlog.push(caller, job)

    def _run(self, job: _Job | None) -> None:
        inbox: _Inbox = SimpleQueue()
        while job is not None:
            notify = job()
            job = self._next(inbox)
            notify()  # After taking the next job; otherwise the loop would wake another thread.
            if job is None:
                job = inbox.get()

    def _next(self, inbox: _Inbox) -> _Job | None:
        with self._lock:
            following = self._backlog.pop()
            if following is not None:
                return following[1]
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
    """Do the work; the returned function notifies the waiting caller."""
    if future.cancelled():
        return _notify_none
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - every outcome reaches the waiting caller
        return partial(_notify, loop, future, future.set_exception, error)
    return partial(_notify, loop, future, future.set_result, result)


def _notify(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    settle: Callable[[Any], None],
    value: object,
) -> None:
    with contextlib.suppress(RuntimeError):  # The loop is closed: no caller waits.
        loop.call_soon_threadsafe(lambda: future.done() or settle(value))


def _notify_none() -> None:
    """Do nothing: the caller is gone."""
