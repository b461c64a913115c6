"""The line of one call: find, admit, run, wrap, release, publish.

`Runtime.call` and `Runtime.stream` show the steps in this order. They know no source and no
door: tools come from a `Catalog`, and doors call `Runtime.call`, which checks access first.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from time import perf_counter, time_ns
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar, cast

from callpact.catalog import Catalog
from callpact.context import Context, Env, Identity
from callpact.envelope import ResponseEnvelope, wrap
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    Failed,
    HandlerCrashed,
    NotRecorded,
    OutputRejected,
    UsageError,
)
from callpact.execution import (
    END,
    LoopThread,
    close_values,
    crash_of,
    failure_of,
    is_ours,
    log_warnings,
    next_value,
    run_in_time,
)
from callpact.gate import admit, grant, release, tightened
from callpact.observers import CallFinished, Crash, Observer
from callpact.protocol.events import new_id
from callpact.protocol.pending import PendingRequestMap, check_deadline, check_identity
from callpact.tool import OPEN, Admitted, Call, Disabled, Policy, Tool

if TYPE_CHECKING:
    from types import TracebackType

    from callpact.context import Client

P = ParamSpec("P")
T = TypeVar("T")

MAX_NESTED = 16
"""Calls that may be nested in one another through `env`."""

_log = logging.getLogger("callpact.runtime")


class Runtime:
    """Runs the tools of a catalog under their contracts, and notifies observers of every call."""

    def __init__(
        self, catalog: Catalog | Iterable[Any], observers: Iterable[Observer] = ()
    ) -> None:
        self.catalog = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
        self._observers = _checked_observers(observers)
        checks = (getattr(observer, "check", None) for observer in self._observers)
        self._checks: tuple[Any, ...] = tuple(check for check in checks if callable(check))
        self._open_env = partial(build_env, self)
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()
        self.observer_failures = 0

    def over(self, tools: Iterable[Tool]) -> Runtime:
        """A runtime of other tools with the same observers; its `env` has these tools."""
        other = Runtime(tools, self._observers)
        other._open_env = self._open_env
        return other

    @property
    def has_observers(self) -> bool:
        """True if there are observers."""
        return bool(self._observers)

    def execute(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        deadline: float | None = None,
        policy: Policy | None = None,
        identity: Identity | None = None,
    ) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        """Call a tool: its arguments are checked before it runs, its answer before it is returned.

        The caller's access is not checked: this is for code of the same process. `deadline` is in
        epoch milliseconds, as on the wire. `policy` can only tighten the contract's.

        Raises:
            CallError: with the code, the message and every issue.
            UsageError: the deadline or the policy is invalid; no observer is notified.
        """
        call = Call(tool_id, arguments, "", None, deadline, policy)
        # Not async itself: one coroutine less saves a tenth of the cost of a call.
        return self.call(call, identity, trusted=True)

    async def call(
        self,
        call: Call,
        identity: Identity | None = None,
        *,
        trusted: bool = False,
        call_map: PendingRequestMap | None = None,
        client: Client | None = None,
        found: Tool | None = None,
    ) -> ResponseEnvelope[Any]:
        """Run one call, the access check first, before any schema work.

        For `trusted` callers, code of this process, access is not checked. With `call_map`, the
        handler calls other tools over its bus. `client` answers the handler's questions. `found` is
        the tool to run if the caller has looked it up; it need not be in the catalog.

        Raises:
            CallError: `AccessDenied`, and what `execute` raises.
            UsageError: as `execute`; or the identity is not an `Identity`.
        """
        found, context = self._begin(call, identity, call_map, client, found)
        arguments: Any = {} if call.arguments is None else call.arguments
        started, begun = time_ns() // 1_000_000, perf_counter()
        envelope: ResponseEnvelope[Any] | None = None
        answer: ResponseEnvelope[Any] | None = None
        refused: ResponseEnvelope[Any] | None = None
        failure: CallError | None = None
        crash: Crash | None = None
        may_refuse = True
        try:
            tool = found or self._not_found(call, identity, trusted=trusted)
            if not trusted and tool.access is not OPEN:
                grant(tool, identity)
            if tool.kind == "subscription":
                _refuse(f"'{tool.id}' is a subscription: subscribe to it")
            if tool.disabled is not None:
                _refuse_disabled(tool.disabled)
            admitted = admit(tool, arguments)
            self._check_observers()
            value: Any = (
                tool.handler(admitted.arguments, context)
                if context.deadline is None
                else run_in_time(admitted, context)
            )
            if type(value) is CoroutineType or hasattr(value, "__await__"):  # pyright: ignore[reportUnknownArgumentType] - any answer
                value = await cast("Any", value)  # Seed 001: awaited if awaitable.
            answer = wrap(value, tool.id)
            if admitted.warnings:
                answer = _warned(answer, admitted)
            envelope = release(tool.contract, answer, call.policy)
            if envelope.warnings:
                log_warnings(envelope, context)
        except BaseException as error:
            failure = failure_of(error, context)
            if type(failure) is OutputRejected:
                refused = answer
            elif type(failure) is HandlerCrashed and failure is not error and self._observers:
                crash = crash_of(error)
            may_refuse = failure is error or is_ours(error)
            if failure is error or not may_refuse:
                raise
            raise failure from None
        else:
            return envelope
        finally:
            unrecorded: NotRecorded | None = None
            if self._observers:
                unrecorded = self._finish(
                    call,
                    found,
                    context,
                    arguments,
                    started,
                    begun,
                    envelope,
                    failure,
                    refused=refused,
                    crash=crash,
                )
            # The error refers to this frame; a reference back would be a cycle for the collector.
            del failure
            if unrecorded is not None and may_refuse:
                raise unrecorded from None

    def subscribe(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        deadline: float | None = None,
        policy: Policy | None = None,
        identity: Identity | None = None,
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Subscribe to a tool: one envelope per result, each checked like the answer of a call.

        The caller's access is not checked. The tool's generator is always closed; to close it at a
        known time, use `contextlib.aclosing`.

        Raises:
            CallError: while it is read, as `execute`.
        """
        call = Call(tool_id, arguments, "", None, deadline, policy)
        return self.stream(call, identity, trusted=True)

    async def stream(  # noqa: PLR0915 - the steps of a subscription, in their order
        self,
        call: Call,
        identity: Identity | None = None,
        *,
        trusted: bool = False,
        call_map: PendingRequestMap | None = None,
        found: Tool | None = None,
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Run one subscription, the access check first; each result is wrapped and released.

        Raises:
            CallError: while it is read, as `call`.
        """
        found, context = self._begin(call, identity, call_map, found=found)
        arguments: Any = {} if call.arguments is None else call.arguments
        started, begun = time_ns() // 1_000_000, perf_counter()
        failure: CallError | None = None
        crash: Crash | None = None
        values: AsyncGenerator[Any, None] | None = None
        count, may_refuse = 0, True
        try:
            tool = found or self._not_found(call, identity, trusted=trusted)
            if not trusted and tool.access is not OPEN:
                grant(tool, identity)
            if tool.kind != "subscription":
                _refuse(f"'{tool.id}' gives one answer: call it")
            if tool.disabled is not None:
                _refuse_disabled(tool.disabled)
            admitted = admit(tool, arguments)
            self._check_observers()
            values = cast("AsyncGenerator[Any, None]", tool.handler(admitted.arguments, context))
            while (value := await next_value(values, context, begun=count > 0)) is not END:
                answer = wrap(value, tool.id)
                if admitted.warnings and not count:
                    answer = _warned(answer, admitted)
                envelope = release(tool.contract, answer, call.policy)
                if envelope.warnings:
                    log_warnings(envelope, context)
                count += 1
                yield envelope
        except GeneratorExit:  # The reader stopped: not a failure.
            may_refuse = False
            raise
        except BaseException as error:
            failure = failure_of(error, context)
            if type(failure) is HandlerCrashed and failure is not error and self._observers:
                crash = crash_of(error)
            may_refuse = failure is error or is_ours(error)
            if failure is error or not may_refuse:
                raise
            raise failure from None
        finally:
            unrecorded: NotRecorded | None = None
            try:
                if values is not None:
                    await close_values(values, context)
            finally:
                if self._observers:
                    unrecorded = self._finish(
                        *(call, found, context, arguments, started, begun, None, failure, count),
                        crash=crash,
                    )
                del failure
            if unrecorded is not None and may_refuse:
                raise unrecorded from None

    def _begin(
        self,
        call: Call,
        identity: Identity | None,
        call_map: PendingRequestMap | None,
        client: Client | None = None,
        found: Tool | None = None,
    ) -> tuple[Tool | None, Context]:
        """Return the tool of a call, or None, and its context.

        Raises:
            UsageError: the call, its deadline, its policy or the identity is invalid.
        """
        if type(call) is not Call:
            raise _not_a_call(call)
        tool = found or self.catalog.get(call.tool_id)
        if call.deadline is not None or call.policy is not None or identity is not None:
            _check_use(call, tool, identity)
        return tool, Context(
            call.id or new_id(),
            call.tool_id if tool is None else tool.id,
            identity,
            call.deadline,
            call.parent_id,
            call.chain,
            call.metadata,
            client,
            self._open_env,
            call_map,
            [*call.logs],
        )

    def _not_found(self, call: Call, identity: Identity | None, *, trusted: bool) -> NoReturn:
        """Raise `UnknownTool`; only names that the caller may use are suggested."""
        suggested = None if trusted else partial(_is_granted, identity)
        self.catalog.find(call.tool_id, suggested=suggested, uses_wire_names=call.uses_wire_names)
        raise AssertionError("it was not there a moment ago")

    def execute_sync(
        self,
        tool_id: str,
        arguments: Any = None,
        *,
        deadline: float | None = None,
        policy: Policy | None = None,
        identity: Identity | None = None,
    ) -> ResponseEnvelope[Any]:
        """`execute` for code without an event loop, on one background loop per runtime.

        Raises:
            UsageError: called from inside an event loop, which it would block.
        """
        execute = partial(self.execute, deadline=deadline, policy=policy, identity=identity)
        try:
            return self.run_sync(execute, tool_id, arguments)
        except CancelledError:  # The runtime was closed during the call.
            raise Aborted(tool_id) from None

    def run_sync(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call an async function from code without an event loop, on the background loop.

        Raises:
            UsageError: called from inside an event loop, which it would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop_thread().run(function(*args, **kwargs))
        name = getattr(getattr(function, "func", function), "__name__", "the function")
        raise UsageError(
            f"this would block the event loop of this thread; await {name}(...) instead"
        )

    def _loop_thread(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
                # An agent's runtime is seldom closed: its thread must not outlive it.
                weakref.finalize(self, self._thread.abandon).atexit = False
            return self._thread

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

    def _check_observers(self) -> None:
        """Let observers refuse the call before its handler runs."""
        for check in self._checks:
            check()

    def _finish(  # noqa: PLR0917 - by position: every call pays for it
        self,
        call: Call,
        tool: Tool | None,
        context: Context,
        arguments: Any,
        started: int,
        begun: float,
        envelope: ResponseEnvelope[Any] | None,
        failure: CallError | None,
        count: int | None = None,
        refused: ResponseEnvelope[Any] | None = None,
        crash: Crash | None = None,
    ) -> NotRecorded | None:
        event = CallFinished(
            context.call_id,
            context.tool_id,
            arguments,
            started,
            perf_counter() - begun,
            envelope,
            failure,
            context.identity,
            context.parent_id,
            count,
            tool,
            call.via,
            call.policy,
            call.client_name,
            context.logged,
            refused,
            crash,
        )
        return self.publish(event)

    def publish(self, event: CallFinished) -> NotRecorded | None:
        """Notify the observers of an event; raises nothing.

        Returns the error of an observer that must record every call, and could not.
        """
        unrecorded: NotRecorded | None = None
        for observer in self._observers:
            try:
                observer(event)
            except NotRecorded as error:
                unrecorded = error
            except Exception:  # noqa: BLE001 - boundary: an observer never breaks a call
                self.observer_failures += 1
                _log.exception("an observer failed on call %s", event.call_id)
        return unrecorded


def _check_use(call: Call, tool: Tool | None, identity: Any) -> None:
    if identity is not None:
        check_identity(identity)
    if call.deadline is not None:
        check_deadline(call.deadline)
    if call.policy is not None and tool is not None:
        tightened(tool.contract, call.policy)


def _is_granted(identity: Identity | None, tool: Tool) -> bool:
    with suppress(AccessDenied):
        grant(tool, identity)
        return True
    return False


def _not_a_call(given: Any) -> UsageError:
    kind = type(given).__name__
    return UsageError(f"expected a Call, as in Call('shop.price', {{...}}), got {kind}")


def _refuse(text: str) -> NoReturn:
    raise Failed("handler_error", text)


def _refuse_disabled(disabled: Disabled) -> NoReturn:
    raise Failed(disabled.code, disabled.reason)


def _checked_observers(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    if not isinstance(cast("Any", observers), Iterable):
        raise UsageError(f"observers must be a list of functions, got {type(observers).__name__}")
    checked = tuple(observers)
    for observer in checked:
        called: Any = (observer, getattr(type(observer), "__call__", None))  # noqa: B004 - the method is wanted, not whether there is one
        if not callable(observer) or any(map(iscoroutinefunction, called)):
            raise UsageError(f"an observer is a plain function of (event), got {observer!r:.100}")
    return checked


def _warned(envelope: ResponseEnvelope[Any], admitted: Admitted) -> ResponseEnvelope[Any]:
    return ResponseEnvelope(
        envelope.data, envelope.meta, admitted.warnings + envelope.warnings, envelope.changes
    )


def build_env(
    runtime: Runtime,
    context: Context | None = None,
    allowed_namespaces: Iterable[str] | None = None,
    call_map: PendingRequestMap | None = None,
) -> Env:
    """The tools that a handler can call: `await env.namespace.name(arguments)` gives an envelope.

    Calls go through the runtime, trusted like any code of this process; with `call_map` over its
    bus, where the caller's identity is checked again. Each carries the id of its parent, and gets the
    identity, the deadline and the metadata of the call that makes it.
    """
    names = [allowed_namespaces] if isinstance(allowed_namespaces, str) else allowed_namespaces
    allowed = None if names is None else frozenset(names)
    above = Context("", "") if context is None else context
    chain = above.chain if context is None else (*above.chain, above.tool_id)
    parent_id = above.call_id or None

    async def send(tool_id: str, arguments: Any) -> ResponseEnvelope[Any]:
        if allowed is not None and runtime.catalog.namespace_of(tool_id) not in allowed:
            may = ", ".join(sorted(allowed)) or "none"
            raise AccessDenied(f"'{tool_id}' is out of bounds here; allowed namespaces: {may}")
        if len(chain) > MAX_NESTED:
            way = " → ".join((*chain[:3], "…", *chain[-2:], tool_id))
            _refuse(f"Calls nest more than {MAX_NESTED} deep: {way}")
        if call_map is not None:
            return await call_map.call(
                tool_id,
                arguments,
                parent_request_id=parent_id,
                deadline=above.deadline,
                identity=above.identity,
                metadata=above.metadata,
                chain=chain,
            )
        call = Call(tool_id, arguments, "", parent_id, above.deadline, None, chain, above.metadata)
        return await runtime.call(call, above.identity, trusted=True, client=above.client)

    return Env(send)
