"""Running a handler: in time, to its end, and what its exceptions mean.

Apart from `runtime.py`, so that the line of a call stays on one screen. Nothing here knows of
catalogs, gates or observers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from time import time
from typing import Any, cast

from callpact.envelope import ResponseEnvelope
from callpact.errors import Aborted, CallError, HandlerCrashed, Timeout
from callpact.tool import Admitted, Context

_log = logging.getLogger("callpact.runtime")
_contract_log = logging.getLogger("callpact.contract")


async def run_in_time(admitted: Admitted, context: Context) -> Any:
    """Call the handler and await it, until the deadline.

    Raises:
        Timeout: the deadline passed, before or meanwhile.
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
        # A handler may turn its cancellation into an error of its own: it was out of time.
        if timer.expired():
            raise Timeout(tool.id, deadline) from None
        raise


END: Any = object()
"""What a subscription gives after its last value."""


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
        if _current_task() is None:  # The loop is gone, and what it left is being closed.
            raise
        raise RuntimeError("the tool raised GeneratorExit") from error


async def close_values(values: AsyncGenerator[Any, None], context: Context) -> None:
    """Close a subscription's generator, whatever it says to that."""
    try:
        await values.aclose()
    except BaseException as error:
        if not is_ours(error):
            raise
        # Boundary: the results were delivered already.
        text = "tool %s failed while it was closed (call %s)"
        _log.error(text, context.tool_id, context.call_id, exc_info=error, extra=_fields(context))


def log_warnings(envelope: ResponseEnvelope[Any], context: Context) -> None:
    """Seeds 000 and 001: what breaks the output schema is logged, for whoever maintains the tool."""
    first, *others = envelope.warnings
    more = f"; and {len(others)} more" if others else ""
    where = f" (at {first.path})" if first.path else ""
    told = (context.tool_id, context.call_id, first.message, where, more)
    _contract_log.warning("tool %s (call %s): %s%s%s", *told, extra=_fields(context))


def _fields(context: Context) -> dict[str, str]:
    """For logs that programs read."""
    return {"tool_id": context.tool_id, "call_id": context.call_id}


def failure_of(error: BaseException, context: Context) -> CallError:
    """What the caller and the observers are told of an exception."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, Exception | SystemExit | GeneratorExit):
        text = "tool %s failed (call %s)"
        _log.error(text, context.tool_id, context.call_id, exc_info=error, extra=_fields(context))
        return HandlerCrashed(context.tool_id)
    return Aborted(context.tool_id)


def is_ours(error: BaseException) -> bool:
    """False for what must go on as it is: the caller's own cancellation, an interrupt."""
    if isinstance(error, asyncio.CancelledError):
        # Else something that the handler waited for was cancelled; the caller was not.
        return not _is_cancelled()
    if isinstance(error, GeneratorExit):
        # Inside of a task a tool raised it; else the call itself is being closed.
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
