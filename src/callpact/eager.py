"""Start a coroutine now, as a task of its own: what ends without waiting costs no turn of the loop.

From Python 3.12 on the standard library does this (`eager_start`). Before, the first step is run
under a spare task that waits for work: a coroutine that ends in it leaves the spare as it was, one
that waits takes the spare over and goes on as any task does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, cast

# Documented under "Extending" for those who make tasks.
_enter = asyncio._enter_task  # noqa: SLF001
_leave = asyncio._leave_task  # noqa: SLF001
_register = asyncio._register_task  # noqa: SLF001
_unregister = asyncio._unregister_task  # noqa: SLF001
if sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:  # asyncio.current_task is the same line behind two Python calls.
    current_task: Any = cast("Any", asyncio.tasks)._current_tasks.get  # noqa: SLF001
_ENDED: Any = object()


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
        spare = self._spares.pop() if self._spares else _Spare(loop)
        if not spare.waits:
            self._spares.append(spare)
            return loop.create_task(work)
        context = copy_context()
        first = _ENDED
        try:
            first = spare.step(work, context)
        finally:
            if first is _ENDED and not spare.task.cancelling():
                self._spares.append(spare)
        return None if first is _ENDED else spare.take_over(work, context, first)


class _Spare:
    """A task without work. Nobody sees it until it has some."""

    __slots__ = ("_context", "_first", "_loop", "_wake", "_work", "task", "waits")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waits = False
        self._wake = loop.create_future()
        self._context: Context
        self._first: Any
        self._work: Coroutine[Any, Any, None]
        self.task: asyncio.Task[None] = loop.create_task(cast("Any", self._run()))
        _unregister(self.task)
        cast("Any", self.task)._log_destroy_pending = False  # noqa: SLF001 - as the loop does

    def step(self, work: Coroutine[Any, Any, None], context: Context) -> Any:
        """Take the first step of the work, with this task as the current one."""
        loop, task = self._loop, self.task
        current: Any = current_task(loop)
        if current is not None:
            _leave(loop, current)
        _enter(loop, task)
        try:
            return context.run(work.send, None)
        except StopIteration:
            return _ENDED
        finally:
            _leave(loop, task)
            if current is not None:
                _enter(loop, current)

    def take_over(
        self, work: Coroutine[Any, Any, None], context: Context, first: Any
    ) -> asyncio.Task[None]:
        """Go on with the work where its first step left it."""
        self._work, self._context, self._first = work, context, first
        _register(self.task)
        cast("Any", self.task)._log_destroy_pending = True  # noqa: SLF001 - as above
        self._wake.set_result(None)
        return self.task

    @coroutine
    def _run(self) -> Generator[Any, Any, None]:
        self.waits = True
        yield from self._wake
        work, context, waits_for = self._work, self._context, self._first
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - handed on as it is
                    waits_for = context.run(work.throw, error)
                else:
                    waits_for = context.run(work.send, sent)
        except StopIteration:
            return
