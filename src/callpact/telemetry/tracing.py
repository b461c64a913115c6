"""Calls in OpenTelemetry: a span `execute_tool` and a duration for each.

Names are those of the GenAI and MCP semantic conventions (in development; as of November 2026).
Arguments, results and messages are never in a span: messages may quote arguments. This module
configures nothing: without a provider that the process has set, it does nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any, NamedTuple

from callpact.errors import UsageError
from callpact.observers import CallFinished
from callpact.telemetry.metrics import MAX_OWN_CODES, OTHER, UNKNOWN, End, end_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

BOUNDARIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bucket boundaries in seconds, from the MCP conventions."""
MAX_HELD = 1_000
"""Calls that are held until their parent call ends, to be exported as its children."""
MAX_HELD_SECONDS = 60
"""The longest time in seconds that they are held."""
MAX_NAME_LENGTH = 128
"""Characters of a name that a caller chose, such as that of an unknown tool."""

_INSTALL = "telemetry needs the extra 'telemetry': pip install 'callpact[telemetry]'"
_OTHER = "_OTHER"  # The value of the conventions for anything without its own.
_ERROR_TYPE = "error.type"
_OPERATION = "gen_ai.operation.name"
_TOOL_NAME = "gen_ai.tool.name"
_METHODS = frozenset({
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/progress",
    "notifications/roots/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
})  # fmt: skip


class _EndedCall(NamedTuple):
    """The exported data of a call that has ended; not the call, whose arguments may be large."""

    call_id: str
    name: str
    attributes: dict[str, str | int]
    is_failed: bool
    begun: int
    """Epoch nanoseconds, as is `ended`."""
    ended: int
    context: Context
    span: Span
    """The span that the call was made in."""
    is_open: bool
    """True if that span had not ended."""


class Telemetry:
    """An observer that exports every call to OpenTelemetry, with the providers of the process.

    A span is made when its call has ended. Its parent is the span that the call was made in, such as
    that of the MCP message. A call that a tool made is a child of the tool's call, and is exported
    after it. Spans that a handler opens are siblings of its call's span, not children. `clock`
    returns epoch nanoseconds.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        try:
            from opentelemetry import context, metrics, trace
        except ImportError as error:
            raise UsageError(_INSTALL) from error
        version = package_version("callpact")
        self._clock = clock
        self._tracer = trace.get_tracer("callpact", version, tracer_provider)
        self._trace, self._current = trace, context.get_current
        self._failed = trace.Status(trace.StatusCode.ERROR)
        meter = metrics.get_meter("callpact", version, meter_provider)
        self._calls = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            "s",
            "Durations of tool calls.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._messages = meter.create_histogram(
            "mcp.server.operation.duration",
            "s",
            "MCP request or notification duration as observed on the receiver.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._codes: set[str] = set()
        self._lock = threading.Lock()
        self._held: dict[str, list[_EndedCall]] = {}
        self._number_held = 0

    def __call__(self, event: CallFinished) -> None:
        """Export one call, or hold it until its parent call ends."""
        end = end_of(event)
        self._measure(event, end)
        call = self._ended_call(event, end)
        if event.parent_id is None:
            self._export(call)
        else:
            with self._lock:
                self._held.setdefault(event.parent_id, []).append(call)
                self._number_held += 1
        if self._held:
            self._export_overdue(call.ended)

    def close(self) -> None:
        """Export the calls that are still held."""
        while self._held:
            self._export_oldest()

    # --- spans --------------------------------------------------------------------------------

    def _ended_call(self, event: CallFinished, end: End) -> _EndedCall:
        context, now = self._current(), self._clock()
        span = self._trace.get_current_span(context)
        return _EndedCall(
            event.call_id,
            "execute_tool" if event.tool is None else f"execute_tool {event.tool_id}",
            _attributes(event, end),
            end.outcome != "ok",
            now - round(event.duration * 1e9),
            now,
            context,
            span,
            span.is_recording(),
        )

    def _export(self, first: _EndedCall) -> None:
        """Export a call and all its child calls."""
        pending = [(first, first.context)]
        while pending:
            call, context = pending.pop()
            span = self._tracer.start_span(
                call.name, context, attributes=call.attributes, start_time=call.begun
            )
            if call.is_failed:
                span.set_status(self._failed)
            span.end(call.ended)
            for child in self._children_of(call.call_id):
                # Unless the handler opened its own span, and called from within it.
                is_own = child.is_open and child.span is not call.span
                inside = self._trace.set_span_in_context(span, child.context)
                pending.append((child, child.context if is_own else inside))

    def _children_of(self, call_id: str) -> list[_EndedCall]:
        if not self._held:
            return []
        with self._lock:
            children = self._held.pop(call_id, [])
            self._number_held -= len(children)
            return children

    def _export_overdue(self, now: int) -> None:
        """Export calls held too long: their parent may be in another process, or run for days."""
        since = now - MAX_HELD_SECONDS * 1_000_000_000
        while self._number_held > MAX_HELD or self._oldest(now) < since:
            self._export_oldest()

    def _oldest(self, now: int) -> int:
        with self._lock:
            return next((waiting[0].ended for waiting in self._held.values()), now)

    def _export_oldest(self) -> None:
        with self._lock:
            call_id = next(iter(self._held), None)
        for call in [] if call_id is None else self._children_of(call_id):
            self._export(call)

    # --- metrics ------------------------------------------------------------------------------

    def _measure(self, event: CallFinished, end: End) -> None:
        tool = UNKNOWN if event.tool is None else event.tool_id
        attributes: dict[str, Any] = {_OPERATION: "execute_tool", _TOOL_NAME: tool}
        if end.code:
            attributes[_ERROR_TYPE] = self._limited(end.code)
        self._calls.record(event.duration, attributes)

    def _limited(self, code: str) -> str:
        if code in self._codes:
            return code
        if code == OTHER or len(self._codes) >= MAX_OWN_CODES:
            return _OTHER
        self._codes.add(code)
        return code

    @contextlib.contextmanager
    def continued(self, headers: Mapping[str, str]) -> Generator[None]:
        """Make the trace in the headers of a request (`traceparent`) the parent of its calls."""
        from opentelemetry import context, propagate

        token = context.attach(propagate.extract(headers))
        try:
            yield
        finally:
            context.detach(token)

    async def time_message(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Record the duration of a message, as the outermost middleware of the MCP SDK's server."""
        begun = time.perf_counter()
        attributes = _message_attributes(ctx)
        try:
            result = await call_next(ctx)
        except BaseException as error:
            code = getattr(getattr(error, "error", None), "code", None)
            attributes[_ERROR_TYPE] = type(error).__name__ if code is None else str(code)
            if code is not None:
                attributes["rpc.response.status_code"] = str(code)
            raise
        else:
            attributes.update(_target(ctx, result))
            return result
        finally:
            self._messages.record(time.perf_counter() - begun, attributes)


@contextlib.contextmanager
def observing() -> Generator[tuple[Telemetry, ...]]:
    """Yield the observers that export calls to OpenTelemetry; none without a provider.

    A process sets a provider itself, or `opentelemetry-instrument` does.
    """
    telemetry = Telemetry() if has_provider() else None
    try:
        yield () if telemetry is None else (telemetry,)
    finally:
        if telemetry is not None:
            telemetry.close()


def has_provider() -> bool:
    """True if the process exports traces or metrics through OpenTelemetry."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return False
    return not (_is_idle(trace.get_tracer_provider()) and _is_idle(metrics.get_meter_provider()))


def _is_idle(provider: object) -> bool:
    """True for the providers of the API itself, which are used until a real one is set."""
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _attributes(event: CallFinished, end: End) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        _OPERATION: "execute_tool",
        _TOOL_NAME: event.tool_id[:MAX_NAME_LENGTH],
        "gen_ai.tool.call.id": event.call_id,
    }
    if end.outcome != "ok":
        attributes[_ERROR_TYPE] = _OTHER if end.code == OTHER else end.code
        attributes["callpact.gate"] = end.gate
    if event.via.startswith("mcp "):
        attributes["mcp.protocol.version"] = event.via.removeprefix("mcp ")
    if event.parent_id is not None:
        attributes["callpact.parent_id"] = event.parent_id
    if event.count is not None:
        attributes["callpact.results"] = event.count
    if event.envelope is not None and event.envelope.warnings:
        attributes["callpact.warnings"] = len(event.envelope.warnings)
    return attributes


def _message_attributes(context: Any) -> dict[str, str]:
    method = context.method if context.method in _METHODS else _OTHER
    attributes = {"mcp.method.name": method, "network.transport": "pipe"}
    if context.protocol_version:
        attributes["mcp.protocol.version"] = context.protocol_version
    if getattr(context, "request", None) is not None:
        attributes |= {"network.transport": "tcp", "network.protocol.name": "http"}
    return attributes


def _target(context: Any, result: Any) -> dict[str, str]:
    """Return the subject of a message. A refused message may name something unknown."""
    params: Mapping[str, Any] = context.params or {}
    name = params.get("name")
    if not isinstance(name, str):
        return {}
    if context.method == "prompts/get":
        return {"gen_ai.prompt.name": name}
    if context.method != "tools/call":
        return {}
    about = {_OPERATION: "execute_tool", _TOOL_NAME: name}
    is_error: Any = result.get("isError") if isinstance(result, dict) else result.is_error  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - a result of the SDK
    if is_error is True:
        about[_ERROR_TYPE] = "tool_error"
    return about
