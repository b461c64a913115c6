"""Run handlers: until their deadline, in tasks, in the event loop of a background thread.

Also maps the exceptions of a handler to errors of a call. The steps of a call are in `runtime.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, TypeVar, cast

from callpact.context import Context
from callpact.envelope import ResponseEnvelope
from callpact.errors import Aborted, CallError, HandlerCrashed, Timeout, UsageError
from callpact.observers import Crash
from callpact.tool import Admitted

_log = logging.getLogger("callpact.runtime")
_contract_log = logging.getLogger("callpact.contract")
_ENDING_SECONDS = 1.0
MAX_CRASH_FRAMES = 50
"""Innermost calls of an unexpected exception that observers get."""
_LIBRARIES = (sysconfig.get_path("stdlib"), str(Path(__file__).parent), "<frozen ")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")

T = TypeVar("T")


def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Make a task of the running loop; on Python 3.12 and later its first step runs at once."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


async def run_in_time(admitted: Admitted, context: Context) -> Any:
    """Call the handler and await it, until the deadline.

    Raises:
        Timeout: the deadline passed, before the call or during it.
    """
    tool, deadline = admitted.tool, cast("float", context.deadline)
    left = deadline / 1000 - time()
    if left <= 0:
        raise Timeout(tool.id, deadline, begun=False)
    timer = asyncio.timeout(left)
    try:
        async with timer:
            value: Any = tool.handler(admitted.arguments, context)
            return await value if hasattr(value, "__await__") else value
    except (Exception, SystemExit):
        # A handler may turn its cancellation into an error of its own: still a timeout.
        if timer.expired():
            raise Timeout(tool.id, deadline) from None
        raise


END: Any = object()
"""The mark after the last value of a subscription."""


async def next_value(values: AsyncGenerator[Any, None], context: Context, *, begun: bool) -> Any:
    """The next value of a subscription; END after the last.

    Raises:
        Timeout: the deadline passed.
    """
    deadline = context.deadline
    if deadline is None:
        return await _step(values)
    left = deadline / 1000 - time()
    if left <= 0:
        raise Timeout(context.tool_id, deadline, begun=begun)
    timer = asyncio.timeout(left)
    try:
        async with timer:
            return await _step(values)
    except (Exception, SystemExit):
        if timer.expired():
            raise Timeout(context.tool_id, deadline) from None
        raise


async def _step(values: AsyncGenerator[Any, None]) -> Any:
    try:
        return await anext(values, END)
    except GeneratorExit as error:
        if _current_task() is None:  # The closed loop is closing its generators.
            raise
        raise RuntimeError("the tool raised GeneratorExit") from error


async def close_values(values: AsyncGenerator[Any, None], context: Context) -> None:
    """Close a subscription's generator; its exceptions are logged."""
    try:
        await values.aclose()
    except BaseException as error:
        if not is_ours(error):
            raise
        # Boundary: the results were delivered already.
        text = "tool %s failed while it was closed (call %s)"
        _log.error(text, context.tool_id, context.call_id, exc_info=error, extra=_fields(context))


def log_warnings(envelope: ResponseEnvelope[Any], context: Context) -> None:
    """Log violations of the output schema, for the maintainer of the tool (seeds 000 and 001)."""
    first, *others = envelope.warnings
    more = f"; and {len(others)} more" if others else ""
    where = f" (at {first.path})" if first.path else ""
    values = (context.tool_id, context.call_id, first.message, where, more)
    _contract_log.warning("tool %s (call %s): %s%s%s", *values, extra=_fields(context))


def _fields(context: Context) -> dict[str, str]:
    """Fields for structured logs."""
    return {"tool_id": context.tool_id, "call_id": context.call_id}


def failure_of(error: BaseException, context: Context) -> CallError:
    """The error of a call for the exception of its handler, which is logged if unexpected."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, Exception | SystemExit | GeneratorExit):
        text = "tool %s failed (call %s)"
        _log.error(text, context.tool_id, context.call_id, exc_info=error, extra=_fields(context))
        return HandlerCrashed(context.tool_id)
    return Aborted(context.tool_id)


def crash_of(error: BaseException) -> Crash:
    """An exception as texts, which keep no frame alive."""
    found = traceback.TracebackException.from_exception(error, limit=-MAX_CRASH_FRAMES)
    kind = type(error)
    home = "" if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}."
    trace = tuple(found.format())[-2 * MAX_CRASH_FRAMES :]
    return Crash(f"{home}{kind.__qualname__}", _place(error), str(found), trace)


def _place(error: BaseException) -> str:
    """The innermost function of the tool's own code, or of any code.

    Without the line, which every edit above it changes: equal causes keep equal places.
    """
    place = own = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        place = f"{frame.f_globals.get('__name__', '?')}:{code.co_qualname}"
        if not code.co_filename.startswith(_LIBRARIES) and not _INSTALLED.search(code.co_filename):
            own = place
    return own or place


def is_ours(error: BaseException) -> bool:
    """False for exceptions that must propagate: the caller's own cancellation, an interrupt."""
    if isinstance(error, asyncio.CancelledError):
        # Otherwise a task that the handler awaited was cancelled; the caller was not.
        return not _is_cancelled()
    if isinstance(error, GeneratorExit):
        # In a task, a tool raised it; outside of one, the call itself is being closed.
        return _current_task() is not None
    return isinstance(error, Exception | SystemExit)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class LoopThread:
    """One event loop in one background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="callpact-loop", daemon=True)
        self._thread.start()

    def run(self, call: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def abandon(self) -> None:
        """Stop the loop without waiting for it, from any thread."""
        with suppress(RuntimeError):  # The loop is already closed.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ending = self._loop.create_task(_end_tasks())
        self._ending.add_done_callback(lambda _: self._loop.stop())

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def stop(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError("a call cannot close the runtime that runs it")
        asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def give_up(self, last: Callable[[], object] | None = None) -> None:
        """Stop within two seconds, even if tasks still run; `last` is called in the loop first."""
        ended = asyncio.run_coroutine_threadsafe(_call(last), self._loop)
        with suppress(TimeoutError):
            ended.result(_ENDING_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ENDING_SECONDS)


async def _call(last: Callable[[], object] | None) -> None:
    if last is not None:
        last()
    for _ in range(3):  # Closed transports are released by the next turns of the loop.
        await asyncio.sleep(0)


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
