"""Numbers for Prometheus: what is counted as what, and the page that is read."""

from __future__ import annotations

import asyncio
import threading

import pytest

from callpact import ToolError, from_functions
from callpact.context import Identity
from callpact.envelope import LocalResponseMeta, MCPResponseMeta, ResponseEnvelope
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    HandlerCrashed,
    InvalidInput,
    Issue,
    NotConfirmed,
    OutputRejected,
    Timeout,
    UnknownTool,
    UpstreamError,
)
from callpact.observers import CallFinished
from callpact.runtime import Runtime
from callpact.telemetry import Metrics
from callpact.telemetry.metrics import BUCKETS, MAX_OWN_CODES, MAX_TOOLS, MetricReading
from callpact.tool import Contract, Tool

LOCAL = LocalResponseMeta("shop.price", 0)


async def _nothing(arguments, context):
    return None


TOOL = Tool(id="shop.price", description="A price", contract=Contract(), handler=_nothing)


def finished(tool_id="shop.price", seconds=0.0, **more):
    given = {"tool": TOOL, **more}
    return CallFinished("1", tool_id, {}, 0, seconds, **given)


def lines(metrics, begin):
    return [line for line in metrics.render().decode().splitlines() if line.startswith(begin)]


def calls(metrics):
    """The numbers of `callpact_calls_total` by tool, outcome, gate and code."""
    found = {}
    for line in lines(metrics, "callpact_calls_total{"):
        labels, _, number = line.partition("{")[2].rpartition("} ")
        found[tuple(pair.partition("=")[2].strip('"') for pair in labels.split(","))] = int(number)
    return found


def test_the_page_is_the_text_format_of_prometheus():
    metrics = Metrics(
        [MetricReading("callpact_lost_total", "Lost\nrecords.", lambda: 3, "counter")]
    )
    for seconds in (0.25, 0.5, 64.0):
        metrics(finished(seconds=seconds))
    metrics(finished("shop.none", 0.0, error=UnknownTool("shop.none"), tool=None))
    # 0.25 is within le="0.25", 0.5 within le="0.5", 64 in none but +Inf; the sum is 64.75.
    assert (
        metrics.render().decode()
        == """\
# HELP callpact_calls_total Calls that have ended, by outcome.
# TYPE callpact_calls_total counter
callpact_calls_total{tool="shop.price",outcome="ok",gate="",code=""} 3
callpact_calls_total{tool="unknown",outcome="rejected",gate="find",code="tool_not_found"} 1
# HELP callpact_call_duration_seconds Durations of calls.
# TYPE callpact_call_duration_seconds histogram
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.001"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.0025"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.005"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.01"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.025"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.05"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.1"} 0
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.25"} 1
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="0.5"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="1"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="2.5"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="5"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="10"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="30"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="60"} 2
callpact_call_duration_seconds_bucket{tool="shop.price",outcome="ok",le="+Inf"} 3
callpact_call_duration_seconds_sum{tool="shop.price",outcome="ok"} 64.75
callpact_call_duration_seconds_count{tool="shop.price",outcome="ok"} 3
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.001"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.0025"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.005"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.01"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.025"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.05"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.1"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.25"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="0.5"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="1"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="2.5"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="5"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="10"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="30"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="60"} 1
callpact_call_duration_seconds_bucket{tool="unknown",outcome="rejected",le="+Inf"} 1
callpact_call_duration_seconds_sum{tool="unknown",outcome="rejected"} 0
callpact_call_duration_seconds_count{tool="unknown",outcome="rejected"} 1
# HELP callpact_calls_warned_total Calls whose result came with warnings of the contract.
# TYPE callpact_calls_warned_total counter
callpact_calls_warned_total{tool="shop.price"} 0
callpact_calls_warned_total{tool="unknown"} 0
# HELP callpact_lost_total Lost\\nrecords.
# TYPE callpact_lost_total counter
callpact_lost_total 3
"""
    )


@pytest.mark.parametrize("bound", BUCKETS)
def test_a_call_of_exactly_a_bound_is_within_it(bound):
    metrics = Metrics()
    metrics(finished(seconds=bound))
    counted = {
        float(line.partition('le="')[2].partition('"')[0]): int(line.rpartition(" ")[2])
        for line in lines(metrics, "callpact_call_duration_seconds_bucket")
    }
    assert counted == {le: int(le >= bound) for le in (*BUCKETS, float("inf"))}


ENDS = [
    (InvalidInput(lambda: [Issue("type", "no")]), "rejected", "input", "schema_validation_failed"),
    (AccessDenied(), "rejected", "access", "access_denied"),
    (NotConfirmed("shop.price", "no"), "rejected", "access", "not_confirmed"),
    (ToolError("sold_out", "gone"), "failed", "handler", "sold_out"),
    (UpstreamError("down"), "failed", "handler", "upstream_error"),
    (Timeout("shop.price", 0), "failed", "handler", "timeout"),
    (Aborted("shop.price"), "failed", "handler", "aborted"),
    (HandlerCrashed("shop.price"), "failed", "handler", "handler_error"),
    (OutputRejected(list), "failed", "output", "output_validation_failed"),
]


@pytest.mark.parametrize(("error", "outcome", "gate", "code"), ENDS)
def test_every_end_is_told_by_outcome_gate_and_code(error, outcome, gate, code):
    metrics = Metrics()
    for _ in range(3):
        metrics(finished(error=error, seconds=1.0))
    assert calls(metrics) == {("shop.price", outcome, gate, code): 3}
    labels = f'{{tool="shop.price",outcome="{outcome}"}}'
    assert lines(metrics, "callpact_call_duration_seconds_count") == [
        f"callpact_call_duration_seconds_count{labels} 3"
    ]
    assert lines(metrics, "callpact_call_duration_seconds_sum") == [
        f"callpact_call_duration_seconds_sum{labels} 3"
    ]


def test_what_an_mcp_server_calls_an_error_is_a_failure():
    metrics = Metrics()
    for is_error in (True, False, True):
        envelope = ResponseEnvelope(None, MCPResponseMeta(is_error=is_error, content=[]))
        metrics(finished(envelope=envelope))
    assert calls(metrics) == {
        ("shop.price", "failed", "handler", "tool_error"): 2,
        ("shop.price", "ok", "", ""): 1,
    }


def test_calls_with_warnings_are_counted_once_however_many_there_are():
    metrics = Metrics()
    issue = Issue("type", "expected number")
    for warnings in ((), (issue,), (issue, issue)):
        metrics(finished(envelope=ResponseEnvelope(1, LOCAL, warnings)))
    assert lines(metrics, "callpact_calls_warned_total") == [
        'callpact_calls_warned_total{tool="shop.price"} 2'
    ]


def test_names_that_callers_make_up_are_one_tool():
    metrics = Metrics()
    for name in ('a"}\n', "b.c", "unknown", "é" * 1000):
        metrics(finished(name, error=UnknownTool(name), tool=None))
    assert calls(metrics) == {("unknown", "rejected", "find", "tool_not_found"): 4}


def test_a_handler_that_misses_a_tool_is_told_under_its_own_name():
    metrics = Metrics()
    metrics(finished(error=UnknownTool("x.y")))
    assert calls(metrics) == {("shop.price", "rejected", "find", "tool_not_found"): 1}


def test_codes_that_are_no_words_are_other():
    metrics = Metrics()
    for code in ('a"}\n', "", "two words", "x" * 65, "\ud800"):
        metrics(finished(error=ToolError(code, "no")))
    assert calls(metrics) == {("shop.price", "failed", "handler", "other"): 5}


def test_only_so_many_codes_of_tools_are_told_apart():
    metrics = Metrics()
    for number in range(MAX_OWN_CODES + 7):
        metrics(finished(error=ToolError(f"own_{number}", "no")))
    metrics(finished(error=ToolError("own_0", "no")))
    metrics(finished(error=UpstreamError("down")))
    counted = calls(metrics)
    assert counted["shop.price", "failed", "handler", "own_0"] == 2
    assert counted["shop.price", "failed", "handler", "other"] == 7
    assert counted["shop.price", "failed", "handler", "upstream_error"] == 1
    assert len(counted) == MAX_OWN_CODES + 2


def test_only_so_many_tools_are_told_apart():
    metrics = Metrics()
    for number in range(MAX_TOOLS + 7):
        metrics(finished(f"many.tool{number}"))
    metrics(finished("many.tool0", error=UpstreamError("down")))
    metrics(finished(f"many.tool{MAX_TOOLS}", error=UpstreamError("down")))
    counted = calls(metrics)
    assert counted["many.tool0", "ok", "", ""] == 1
    assert counted["other", "ok", "", ""] == 7
    assert counted["many.tool0", "failed", "handler", "upstream_error"] == 1
    assert counted["other", "failed", "handler", "upstream_error"] == 1
    assert len(counted) == MAX_TOOLS + 3


def test_a_reading_is_asked_for_each_page():
    values = iter([0, 1.5, float("inf")])
    metrics = Metrics([MetricReading("callpact_depth", "How deep.", lambda: next(values))])
    read = [lines(metrics, "callpact_depth") for _ in range(3)]
    assert read == [["callpact_depth 0"], ["callpact_depth 1.5"], ["callpact_depth inf"]]


def test_no_call_is_lost_between_threads():
    metrics = Metrics()
    events = [finished(seconds=0.5), finished(seconds=0.5, error=UpstreamError("down"))]

    def work():
        for _ in range(5_000):
            for event in events:
                metrics(event)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(calls(metrics).values()) == [20_000, 20_000]
    sums = lines(metrics, "callpact_call_duration_seconds_sum")
    assert [line.rpartition(" ")[2] for line in sums] == ["10000", "10000"]


def test_a_runtime_counts_its_calls_and_never_who_called():
    async def price(sku: str) -> float:
        """Price of an article."""
        if sku == "gone":
            raise ToolError("sold_out", "gone")
        return 1.0

    metrics = Metrics()
    runtime = Runtime(from_functions(price, namespace="shop"), [metrics])

    async def go():
        caller = Identity("caller-of-the-test")
        await runtime.execute("shop.price", {"sku": "argument-of-the-test"}, identity=caller)
        for name, sku in (("shop.price", "gone"), ("shop.price", 1), ("shop.prise", "a")):
            with pytest.raises(CallError):
                await runtime.execute(name, {"sku": sku}, identity=caller)

    asyncio.run(go())
    assert calls(metrics) == {
        ("shop.price", "ok", "", ""): 1,
        ("shop.price", "failed", "handler", "sold_out"): 1,
        ("shop.price", "rejected", "input", "schema_validation_failed"): 1,
        ("unknown", "rejected", "find", "tool_not_found"): 1,
    }
    assert b"of-the-test" not in metrics.render()
    assert runtime.observer_failures == 0
