"""Start a coroutine now, as a task of its own: what ends without waiting costs no turn of the loop.

From Python 3.12 on the standard library does this (`eager_start`). Before, the first step is run
under a spare task that waits for work: a coroutine that ends in it leaves the spare as it was, one
that waits takes the spare over and goes on as any task does. A spare of which anything was kept
(a reference, a callback) ends with the work, as any task would; only an untouched one is used again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import Context, copy_context
from operator import attrgetter
from sys import getrefcount
from typing import Any, cast
from weakref import getweakrefcount

# Documented under "Extending" for those who make tasks.
_register = asyncio._register_task  # noqa: SLF001
_unregister = asyncio._unregister_task  # noqa: SLF001
# What `asyncio.current_task` looks into, without two calls of Python around it.
_current_tasks: Any = {}
current_task: Any = asyncio.current_task
if sys.version_info < (3, 12):
    _current_tasks = cast("Any", asyncio.tasks)._current_tasks  # noqa: SLF001
    current_task = _current_tasks.get
_marks: Any = attrgetter("_callbacks", "_must_cancel")
_UNTOUCHED = (None, False)
_BLOCKING = "_asyncio_future_blocking"
_NOTHING: Any = object()


class Starter:
    """Starts coroutines in the running event loop."""

    __slots__ = ("_loop", "_spares")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spares: list[_Spare] = []

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run the first step at once; the task of what is left, or None if that was all.

        What the first step raises is raised here.
        """
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            task = asyncio.Task(work, loop=loop, eager_start=True)
            return None if task.done() and task.result() is None else task
        if loop is not self._loop:
            self._loop, self._spares = loop, []
        # Out of the list while it is used: the work may start work in turn.
        spare, context = self._spares.pop() if self._spares else _Spare(loop), copy_context()
        task, tasks = spare.task, _current_tasks
        current = tasks.get(loop)
        tasks[loop] = task
        kept, watched = getrefcount(task), getweakrefcount(task)
        try:
            first = context.run(work.send, None)
        except BaseException as error:
            first = None
            if getrefcount(task) == kept and getweakrefcount(task) == watched and spare.is_idle():
                self._spares.append(spare)
            else:
                spare.end()
            if isinstance(error, StopIteration):
                return None
            raise
        finally:
            if current is None:
                del tasks[loop]
            else:
                tasks[loop] = current
        return spare.take_over(work, context, first)


class _Spare(Coroutine[Any, Any, None]):
    """What a task without work runs: it waits for some. Nobody sees the task until it has it."""

    __slots__ = ("_context", "_first", "_is_over", "_loop", "_name", "_wake", "_work", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_over = False
        self._wake: asyncio.Future[None] | None = None
        self._work: Coroutine[Any, Any, None] | None = None
        self._context: Context
        self._first: Any = _NOTHING
        self.task: asyncio.Task[None] = loop.create_task(self)
        self._name = self.task.get_name()
        _unregister(self.task)
        cast("Any", self.task)._log_destroy_pending = False  # noqa: SLF001 - as the loop does

    def is_idle(self) -> bool:
        """True if nobody hung anything on the task or cancelled it."""
        wake = self._wake
        return (
            _marks(self.task) == _UNTOUCHED
            and self.task.get_name() == self._name
            and not self.task.cancelling()
            and (wake is None or not wake.done())
        )

    def end(self) -> None:
        """Let the task end, as its work has."""
        self._is_over = True
        del self.task
        self._awake()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def take_over(
        self, work: Coroutine[Any, Any, None], context: Context, first: Any
    ) -> asyncio.Task[None]:
        """Go on with the work where its first step left it."""
        self._work, self._context, self._first = work, context, first
        if hasattr(first, _BLOCKING):  # Until the task takes it, it is a future like any other.
            first._asyncio_future_blocking = False  # noqa: SLF001 - as a task does
        task = self.task
        del self.task  # Else the two would hold each other for ever.
        _register(task)
        cast("Any", task)._log_destroy_pending = True  # noqa: SLF001 - as above
        self._awake()
        return task

    # --- what the task calls

    def send(self, value: Any, /) -> Any:
        """Go on; without work, wait for some."""
        if self._is_over:
            raise StopIteration
        if self._work is None:
            self._wake = self._loop.create_future()
            return _awaited(self._wake)
        if self._first is not _NOTHING:
            first, self._first = self._first, _NOTHING
            return _awaited(first)
        return self._context.run(self._work.send, value)

    def throw(self, error: Any, /, *_: Any) -> Any:
        """Cancellation, or what the awaited raised."""
        if self._work is None:
            raise error
        if self._first is not _NOTHING:
            first, self._first = self._first, _NOTHING
            # As a task does: what it waits for is cancelled, and then tells the work so.
            if first is not None and hasattr(first, "cancel") and first.cancel():
                return _awaited(first)
        return self._context.run(self._work.throw, error)

    def close(self) -> None:
        """Let go of the work."""
        if self._work is not None:
            self._work.close()

    def __await__(self) -> Any:
        raise TypeError("only its task runs it")


def _awaited(future: Any) -> Any:
    """A future as it shows itself to a task when it is awaited; None stands for one turn."""
    if hasattr(future, _BLOCKING):
        future._asyncio_future_blocking = True  # noqa: SLF001 - as a future does itself
    return future
