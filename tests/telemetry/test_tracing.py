"""Calls as OpenTelemetry tells them, heard by the exporters of the real SDK."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from mcp.shared.exceptions import MCPError
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from callpact import ToolError
from callpact.context import Identity
from callpact.envelope import MCPResponseMeta, ResponseEnvelope
from callpact.errors import AccessDenied, CallError, Issue, UnknownTool, UpstreamError
from callpact.observers import CallFinished
from callpact.runtime import Runtime
from callpact.telemetry import Telemetry
from callpact.telemetry.metrics import MAX_OWN_CODES
from callpact.telemetry.tracing import BOUNDARIES, MAX_HELD, MAX_HELD_SECONDS
from doors import connected, tool

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND


class Heard:
    """What a Telemetry tells, and the clock that it reads."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.now = NOW
        self.telemetry = Telemetry(self.provider, self.meters, clock=lambda: self.now)

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def named(self, name):
        [span] = [span for span in self.spans if span.name == name]
        return span

    def parent(self, name):
        """The name of the span that a span is part of; None if of none."""
        parent = self.named(name).parent
        if parent is None:
            return None
        names = {span.context.span_id: span.name for span in self.spans}
        return names[parent.span_id]

    def points(self, name):
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def heard():
    made = Heard()
    yield made
    made.provider.shutdown()
    made.meters.shutdown()


async def _nothing(arguments, context):
    return None


TOOL = tool("price", _nothing)


def finished(call_id="1", tool_id="t.price", seconds=0.25, **more):
    return CallFinished(call_id, tool_id, {}, 0, seconds, **{"tool": TOOL, **more})


# --- spans ----------------------------------------------------------------------------------


def test_a_call_is_a_span_of_the_time_that_it_took(heard):
    heard.telemetry(finished("call-1", seconds=0.25))
    [span] = heard.spans
    assert span.name == "execute_tool t.price"
    assert span.kind is SpanKind.INTERNAL
    assert (span.start_time, span.end_time) == (NOW - SECOND // 4, NOW)
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "t.price",
        "gen_ai.tool.call.id": "call-1",
    }
    assert span.instrumentation_scope.name == "callpact"


@pytest.mark.parametrize(
    ("error", "kind", "gate"),
    [
        (AccessDenied(), "access_denied", "access"),
        (UpstreamError("down"), "upstream_error", "handler"),
        (ToolError("sold_out", "gone"), "sold_out", "handler"),
        (ToolError("no word at all", "gone"), "_OTHER", "handler"),
    ],
)
def test_a_call_without_a_result_is_an_error_by_its_code(heard, error, kind, gate):
    heard.telemetry(finished(error=error))
    [span] = heard.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert span.attributes["error.type"] == kind
    assert span.attributes["callpact.gate"] == gate
    assert not span.events


def test_what_an_mcp_server_calls_an_error_is_a_tool_error(heard):
    envelope = ResponseEnvelope(None, MCPResponseMeta(is_error=True, content=[]))
    heard.telemetry(finished(envelope=envelope))
    [span] = heard.spans
    assert span.attributes["error.type"] == "tool_error"
    assert span.status.status_code is StatusCode.ERROR


def test_the_name_of_a_tool_that_is_not_there_is_cut_and_names_no_span(heard):
    heard.telemetry(finished(tool_id="x" * 1000, error=UnknownTool("x"), tool=None))
    [span] = heard.spans
    assert span.name == "execute_tool"
    assert span.attributes["gen_ai.tool.name"] == "x" * 128


def test_the_door_the_results_and_the_warnings_are_told(heard):
    meta = MCPResponseMeta(is_error=False, content=[])
    envelope = ResponseEnvelope(1, meta, (Issue("type", "expected number"),))
    heard.telemetry(finished(envelope=envelope, via="mcp 2026-07-28"))
    heard.telemetry(finished(count=3))
    first, second = heard.spans
    assert first.attributes["mcp.protocol.version"] == "2026-07-28"
    assert first.attributes["callpact.warnings"] == 1
    assert second.attributes["callpact.results"] == 3


def test_nothing_of_what_was_sent_or_answered_is_told(heard):
    secret = "planted-4711"

    async def handle(arguments, context):
        if arguments["sku"] == f"{secret}-bad":
            raise ToolError("sold_out", f"no {secret}", details={"of": secret})
        return {"answer": secret}

    schema = {"type": "object", "properties": {"sku": {"type": "string", "maxLength": 30}}}
    runtime = Runtime([tool("price", handle, input=schema)], [heard.telemetry])

    async def go():
        caller = Identity(f"{secret}-caller")
        await runtime.execute("t.price", {"sku": secret}, identity=caller)
        for sku in (f"{secret}-bad", secret * 9):
            with pytest.raises(CallError):
                await runtime.execute("t.price", {"sku": sku}, identity=caller)

    asyncio.run(go())
    told = "".join(span.to_json() for span in heard.spans)
    assert len(heard.spans) == 3
    assert secret not in told + heard.reader.get_metrics_data().to_json()


# --- what is part of what -------------------------------------------------------------------


def chain(*names, around=None):
    """Tools that each call the next one; `around` opens a span for the call in the first."""

    def made(name, following):
        async def handle(arguments, context):
            if following is None:
                return 1
            if around is None or name != names[0]:
                return (await getattr(context.env.t, following)({})).data
            with around.start_as_current_span("own"):
                return (await getattr(context.env.t, following)({})).data

        return tool(name, handle)

    return [made(*pair) for pair in zip(names, (*names[1:], None), strict=True)]


def run(heard, tools, name):
    runtime = Runtime(tools, [heard.telemetry])
    with heard.tracer.start_as_current_span("request"):
        asyncio.run(runtime.execute(name, {}))
    assert runtime.observer_failures == 0


def test_a_call_is_part_of_the_span_that_it_was_made_in(heard):
    run(heard, chain("a"), "t.a")
    assert heard.parent("execute_tool t.a") == "request"
    assert (
        heard.named("execute_tool t.a").context.trace_id == heard.named("request").context.trace_id
    )


def test_calls_that_tools_make_are_parts_of_one_another(heard):
    run(heard, chain("a", "b", "c"), "t.a")
    assert len(heard.spans) == 4
    assert heard.parent("execute_tool t.a") == "request"
    assert heard.parent("execute_tool t.b") == "execute_tool t.a"
    assert heard.parent("execute_tool t.c") == "execute_tool t.b"


def test_a_call_from_within_a_span_of_the_handler_is_part_of_that_span(heard):
    run(heard, chain("a", "b", "c", around=heard.tracer), "t.a")
    assert heard.parent("execute_tool t.b") == "own"
    assert heard.parent("own") == "request"
    assert heard.parent("execute_tool t.c") == "execute_tool t.b"


def test_a_call_over_a_bus_without_a_trace_is_part_of_the_call_that_made_it(heard):
    heard.telemetry(finished("2", "t.b", parent_id="1"))
    with heard.tracer.start_as_current_span("request"):
        heard.telemetry(finished("1", "t.a"))
    assert heard.parent("execute_tool t.b") == "execute_tool t.a"


def test_a_call_whose_maker_does_not_end_here_is_told_in_time(heard):
    heard.telemetry(finished("2", "t.b", parent_id="elsewhere"))
    heard.now += MAX_HELD_SECONDS * SECOND
    heard.telemetry(finished("3", "t.a"))
    assert [span.name for span in heard.spans] == ["execute_tool t.a"]
    heard.now += 1
    heard.telemetry(finished("4", "t.c"))
    told = heard.named("execute_tool t.b")
    assert told.end_time == NOW
    assert told.attributes["callpact.parent_id"] == "elsewhere"


def test_only_so_many_calls_wait(heard):
    for number in range(MAX_HELD + 3):
        heard.telemetry(finished(f"c{number}", parent_id=f"p{number}"))
    told = [span.attributes["gen_ai.tool.call.id"] for span in heard.spans]
    assert told == ["c0", "c1", "c2"]


def test_calls_may_be_made_for_one_another_however_deep(heard):
    for depth in range(MAX_HELD, 1, -1):
        heard.telemetry(finished(f"{depth}", f"t.d{depth}", parent_id=f"{depth - 1}"))
    heard.telemetry(finished("1", "t.d1"))
    assert len(heard.spans) == MAX_HELD
    assert heard.parent(f"execute_tool t.d{MAX_HELD}") == f"execute_tool t.d{MAX_HELD - 1}"


def test_what_still_waits_is_told_at_the_end(heard):
    heard.telemetry(finished("3", "t.c", parent_id="2"))
    heard.telemetry(finished("2", "t.b", parent_id="1"))
    assert not heard.spans
    heard.telemetry.close()
    assert {span.name for span in heard.spans} == {"execute_tool t.b", "execute_tool t.c"}
    heard.telemetry.close()
    assert len(heard.spans) == 2


# --- metrics --------------------------------------------------------------------------------


def test_durations_are_told_by_tool_and_error(heard):
    for seconds in (0.01, 0.25, 400):
        heard.telemetry(finished(seconds=seconds))
    heard.telemetry(finished(seconds=0.5, error=UpstreamError("down")))
    heard.telemetry(finished(tool_id="made.up", error=UnknownTool("x"), tool=None))
    points = {
        (point.attributes["gen_ai.tool.name"], point.attributes.get("error.type")): point
        for point in heard.points("gen_ai.execute_tool.duration")
    }
    assert set(points) == {
        ("t.price", None),
        ("t.price", "upstream_error"),
        ("unknown", "tool_not_found"),
    }
    ok = points["t.price", None]
    assert ok.explicit_bounds == BOUNDARIES
    # A bound is within its bucket: 0.01 in the first, 0.25 in the one up to 0.5, 400 in the last.
    assert ok.bucket_counts == (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    assert (ok.count, ok.sum) == (3, 400.26)


def test_only_so_many_codes_of_tools_are_told_apart(heard):
    for number in range(MAX_OWN_CODES + 5):
        heard.telemetry(finished(error=ToolError(f"own_{number}", "no")))
    points = heard.points("gen_ai.execute_tool.duration")
    counts = {point.attributes["error.type"]: point.count for point in points}
    assert len(counts) == MAX_OWN_CODES + 1
    assert counts["_OTHER"] == 5


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_messages_are_timed_by_method_tool_and_error(heard, mode):
    async def fail(arguments, context):
        raise ToolError("sold_out", "gone")

    async def go():
        async with connected(tool("price", _nothing), tool("fail", fail), mode=mode) as at:
            at.door.server.middleware.insert(0, heard.telemetry.time_message)
            await at.client.list_tools()
            await at.client.call_tool("t_price", {})
            assert (await at.client.call_tool("t_fail", {})).is_error
            with pytest.raises(MCPError):
                await at.client.call_tool("made-up-by-the-caller", {})

    asyncio.run(asyncio.wait_for(go(), 20))
    told = {}
    for point in heard.points("mcp.server.operation.duration"):
        about = dict(point.attributes)
        assert about.pop("network.transport") == "pipe"
        assert about.pop("mcp.protocol.version") in {"2026-07-28", "2025-11-25"}
        told[tuple(sorted(about.items()))] = point.count
    call = ("mcp.method.name", "tools/call")
    executed = ("gen_ai.operation.name", "execute_tool")
    assert told[("mcp.method.name", "tools/list"),] == 1
    assert told[executed, ("gen_ai.tool.name", "t_price"), call] == 1
    failed = ("error.type", "tool_error")
    assert told[failed, executed, ("gen_ai.tool.name", "t_fail"), call] == 1
    refused = (("error.type", "-32602"), call, ("rpc.response.status_code", "-32602"))
    assert told[refused] == 1


def test_methods_that_callers_make_up_are_one_method(heard):
    async def refuse(context):
        raise MCPError(code=-32601, message="no such method")

    async def go():
        for number in range(3):
            message = SimpleNamespace(method=f"made/up{number}", params=None, protocol_version="")
            with pytest.raises(MCPError):
                await heard.telemetry.time_message(message, refuse)

    asyncio.run(go())
    [point] = heard.points("mcp.server.operation.duration")
    assert point.count == 3
    assert point.attributes["mcp.method.name"] == "_OTHER"
    assert point.attributes["error.type"] == "-32601"


# --- processes ------------------------------------------------------------------------------


def outcome(code):
    """What a process of its own prints: only one provider can be set in each."""
    line = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_opentelemetry_the_error_says_what_to_install():
    assert outcome("""
        import json, sys
        sys.modules["opentelemetry"] = None
        from callpact.errors import UsageError
        from callpact.telemetry.tracing import Telemetry, observing
        try:
            Telemetry()
        except UsageError as error:
            with observing() as observers:
                print(json.dumps([str(error), len(observers)]))
    """) == ["telemetry needs the extra 'telemetry': pip install 'callpact[telemetry]'", 0]


def test_opentelemetry_is_imported_only_when_it_is_used():
    assert (
        outcome("""
        import json, sys
        import callpact.telemetry.tracing
        print(json.dumps("opentelemetry" in sys.modules))
    """)
        is False
    )


def test_where_no_provider_is_set_nothing_observes():
    assert (
        outcome("""
        from callpact.telemetry.tracing import observing
        with observing() as observers:
            print(len(observers))
    """)
        == 0
    )


def test_a_provider_of_metrics_alone_is_told_too():
    assert (
        outcome("""
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from callpact.telemetry.tracing import observing
        metrics.set_meter_provider(MeterProvider())
        with observing() as observers:
            print(len(observers))
    """)
        == 1
    )


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_a_call_over_mcp_is_part_of_the_span_of_its_message(mode):
    spans = outcome(f"""
        import asyncio, json
        from mcp.client import Client
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from callpact import from_functions
        from callpact.runtime import Runtime
        from callpact.serve.mcp.door import Door
        from callpact.telemetry.tracing import observing

        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)

        async def price(sku: str) -> float:
            "Price of an article."
            return 1.0

        async def go():
            with observing() as observers:
                runtime = Runtime(from_functions(price, namespace="t"), observers)
                async with Client(Door(runtime).server, mode={mode!r}) as client:
                    await client.call_tool("t_price", {{"sku": "a"}})

        asyncio.run(asyncio.wait_for(go(), 20))
        print(json.dumps([
            [s.name, s.kind.name, s.context.span_id, s.parent and s.parent.span_id,
             s.start_time, s.end_time]
            for s in exporter.get_finished_spans()
        ]))
    """)
    [call] = [span for span in spans if span[0] == "execute_tool t.price"]
    [message] = [span for span in spans if span[:2] == ["tools/call t_price", "SERVER"]]
    assert call[3] == message[2]
    assert message[4] <= call[4] <= call[5] <= message[5]
