"""Calls in OpenTelemetry: a span `execute_tool` and a duration for each.

Names are those of the GenAI and MCP semantic conventions (in development; as of November 2026).
Arguments, results and messages are never in a span: messages may quote what was sent. It sets
nothing up: without a provider that the process has set, all of this does nothing.
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
"""Seconds, as the MCP conventions want them."""
MAX_HELD = 1_000
"""Calls that wait for the end of the call that made them, to be exported as parts of it."""
MAX_HELD_SECONDS = 60
"""Seconds that they wait at most."""
MAX_NAME_LENGTH = 128
"""Characters of a name that a caller chose, such as that of a tool that is not there."""

_INSTALL = "telemetry needs the extra 'telemetry': pip install 'callpact[telemetry]'"
_OTHER = "_OTHER"  # The conventions' word for what has no name of its own.
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


class _Heard(NamedTuple):
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

    A span is made when its call has ended. It is part of the span that the call was made in, such
    as that of the MCP message; a call that a tool made is part of the call of that tool, and is told
    after it. Spans that a handler opens itself are beside the span of its call, not in it. `clock`
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
            "How long calls of tools took.",
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
        self._held: dict[str, list[_Heard]] = {}
        self._number_held = 0

    def __call__(self, event: CallFinished) -> None:
        """Tell of one call, or keep it until the call that made it ends."""
        end = end_of(event)
        self._measure(event, end)
        heard = self._heard(event, end)
        if event.parent_id is None:
            self._tell(heard)
        else:
            with self._lock:
                self._held.setdefault(event.parent_id, []).append(heard)
                self._number_held += 1
        if self._held:
            self._tell_overdue(heard.ended)

    def close(self) -> None:
        """Tell of the calls that still wait for the one that made them."""
        while self._held:
            self._tell_oldest()

    # --- spans --------------------------------------------------------------------------------

    def _heard(self, event: CallFinished, end: End) -> _Heard:
        context, now = self._current(), self._clock()
        span = self._trace.get_current_span(context)
        return _Heard(
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

    def _tell(self, first: _Heard) -> None:
        """Tell of a call, and of all that were made for it."""
        pending = [(first, first.context)]
        while pending:
            heard, context = pending.pop()
            span = self._tracer.start_span(
                heard.name, context, attributes=heard.attributes, start_time=heard.begun
            )
            if heard.is_failed:
                span.set_status(self._failed)
            span.end(heard.ended)
            for child in self._taken(heard.call_id):
                # Unless the handler had opened a span of its own, and called from within it.
                is_own = child.is_open and child.span is not heard.span
                inside = self._trace.set_span_in_context(span, child.context)
                pending.append((child, child.context if is_own else inside))

    def _taken(self, call_id: str) -> list[_Heard]:
        if not self._held:
            return []
        with self._lock:
            taken = self._held.pop(call_id, [])
            self._number_held -= len(taken)
            return taken

    def _tell_overdue(self, now: int) -> None:
        """The maker of a call may be in another process, or run for days: not all can wait for it."""
        since = now - MAX_HELD_SECONDS * 1_000_000_000
        while self._number_held > MAX_HELD or self._oldest(now) < since:
            self._tell_oldest()

    def _oldest(self, now: int) -> int:
        with self._lock:
            return next((waiting[0].ended for waiting in self._held.values()), now)

    def _tell_oldest(self) -> None:
        with self._lock:
            call_id = next(iter(self._held), None)
        for heard in [] if call_id is None else self._taken(call_id):
            self._tell(heard)

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

    A process listens once it has set a provider, as `opentelemetry-instrument` does for it.
    """
    telemetry = Telemetry() if _is_heard() else None
    try:
        yield () if telemetry is None else (telemetry,)
    finally:
        if telemetry is not None:
            telemetry.close()


def _is_heard() -> bool:
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
