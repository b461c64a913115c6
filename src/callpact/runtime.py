"""The line of one call: find, admit, run, wrap, release, publish.

`Runtime.execute` shows the steps in this order. It knows no source and no door: tools come from a
`Catalog`, and whoever serves strangers checks them first.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
from collections.abc import Iterable
from concurrent.futures import CancelledError
from inspect import iscoroutinefunction
from math import isnan
from time import perf_counter, time, time_ns
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self, cast

from callpact.catalog import Catalog
from callpact.envelope import ResponseEnvelope, wrap
from callpact.errors import Aborted, CallError, HandlerCrashed, Timeout, UsageError
from callpact.events import CallFinished, Observer
from callpact.gate import admit, release, tightened
from callpact.tool import Admitted, Context, Policy

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger("callpact.runtime")


class Runtime:
    """Runs the tools of a catalog under their contracts, and tells observers of every call."""

    def __init__(
        self, catalog: Catalog | Iterable[Any], observers: Iterable[Observer] = ()
    ) -> None:
        self.catalog = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
        self._observers = _checked_observers(observers)
        self._ids = itertools.count(1)
        self._prefix = os.urandom(6).hex() + "-"
        self._thread: _LoopThread | None = None
        self._lock = threading.Lock()
        self.observer_failures = 0

    async def execute(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        deadline: float | None = None,
        policy: Policy | None = None,
        identity: Any = None,
    ) -> ResponseEnvelope[Any]:
        """Call a tool: its arguments are checked before it runs, its answer before it is returned.

        `deadline` is a point in time, in epoch milliseconds as on the wire. `policy` can only
        tighten the contract's.

        Raises:
            CallError: with the code, the message and every issue.
            UsageError: the deadline or the policy cannot work; this is no call, and no observer
                hears of it.
        """
        if deadline is not None or policy is not None:
            self._check_use(tool_id, deadline, policy)
        call_id = self._prefix + str(next(self._ids))
        arguments = {} if arguments is None else arguments
        started, begun = time_ns() // 1_000_000, perf_counter()
        envelope: ResponseEnvelope[Any] | None = None
        failure: CallError | None = None
        try:
            tool = self.catalog.find(tool_id)
            tool_id = tool.id
            admitted = admit(tool, arguments)
            context = Context(call_id, tool_id, identity, deadline)
            value: Any = (_run if deadline is None else _run_in_time)(admitted, context)
            if type(value) is CoroutineType or hasattr(value, "__await__"):  # pyright: ignore[reportUnknownArgumentType] - any answer
                value = await cast("Any", value)  # Seed 001: awaited if awaitable.
            answer = wrap(value, tool_id)
            if admitted.warnings:
                answer = _warned(answer, admitted)
            envelope = release(tool.contract, answer, policy)
        except CallError as error:
            failure = error
            raise
        except (Exception, SystemExit):  # noqa: BLE001 - boundary: logged in full, shown as a code
            _log.exception("tool %s failed (call %s)", tool_id, call_id)
            failure = HandlerCrashed(tool_id)
            raise failure from None
        except BaseException as error:
            failure = Aborted(tool_id)
            if isinstance(error, asyncio.CancelledError) and not _is_cancelled():
                # Something that the handler waited for was cancelled; the caller was not.
                raise failure from None
            raise
        else:
            return envelope
        finally:
            if self._observers:
                self._publish(
                    CallFinished(
                        call_id,
                        tool_id,
                        arguments,
                        started,
                        perf_counter() - begun,
                        envelope,
                        failure,
                        identity,
                    )
                )
            # The error holds this frame; holding it in turn would make every failure garbage.
            del failure

    def execute_sync(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        deadline: float | None = None,
        policy: Policy | None = None,
        identity: Any = None,
    ) -> ResponseEnvelope[Any]:
        """`execute` for code without an event loop, on one background loop per runtime.

        Raises:
            UsageError: called from inside an event loop, which it would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("execute_sync would block this event loop; await execute(...) instead")
        with self._lock:
            thread = self._thread = self._thread or _LoopThread()
        call = self.execute(tool_id, arguments, deadline=deadline, policy=policy, identity=identity)
        try:
            return thread.run(call)
        except CancelledError:  # The runtime was closed meanwhile.
            raise Aborted(tool_id) from None

    async def aclose(self) -> None:
        """End the background loop, if there is one; calls that still run there are aborted."""
        if self._thread is not None:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """`aclose` for code without an event loop."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _check_use(self, tool_id: str, deadline: Any, policy: Policy | None) -> None:
        if deadline is not None and (
            isinstance(deadline, bool) or not isinstance(deadline, int | float) or isnan(deadline)
        ):
            raise UsageError(f"deadline must be epoch milliseconds, got {deadline!r}")
        if policy is not None and tool_id in self.catalog:
            tightened(self.catalog.find(tool_id).contract, policy)

    def _publish(self, event: CallFinished) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001 - boundary: an observer never breaks a call
                self.observer_failures += 1
                _log.exception("an observer failed on call %s", event.call_id)


def _run(admitted: Admitted, context: Context) -> Any:
    return admitted.tool.handler(admitted.arguments, context)


async def _run_in_time(admitted: Admitted, context: Context) -> Any:
    tool, deadline = admitted.tool, cast("float", context.deadline)
    left = deadline / 1000 - time()
    if left <= 0:
        raise Timeout(tool.id, deadline, begun=False)
    timer = asyncio.timeout(left)
    try:
        async with timer:
            value = tool.handler(admitted.arguments, context)
            return await value if hasattr(value, "__await__") else value
    except (Exception, SystemExit):
        # A handler may turn its cancellation into an error of its own: it was out of time.
        if timer.expired():
            raise Timeout(tool.id, deadline) from None
        raise


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _checked_observers(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    if not isinstance(cast("Any", observers), Iterable):
        raise UsageError(f"observers must be a list of functions, got {type(observers).__name__}")
    checked = tuple(observers)
    for observer in checked:
        if not callable(observer) or iscoroutinefunction(observer):
            raise UsageError(f"an observer is a plain function of (event), got {observer!r:.100}")
    return checked


def _warned(envelope: ResponseEnvelope[Any], admitted: Admitted) -> ResponseEnvelope[Any]:
    return ResponseEnvelope(
        envelope.data, envelope.meta, admitted.warnings + envelope.warnings, envelope.changes
    )


class _LoopThread:
    """One event loop in one background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="callpact-loop", daemon=True
        )
        self._thread.start()

    def run(self, call: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError("a call cannot close the runtime that runs it")
        asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
