"""The answering side of the call protocol: what a request meets, in order, and what is published.

Tests run on a loop whose clock is its own, see `stories.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import json
import logging
import math
import re
import uuid
from contextlib import aclosing

import pytest

import stories
from callpact.context import Identity
from callpact.envelope import (
    LocalResponseMeta,
    ResponseEnvelope,
    TextBlock,
    local_envelope,
    mcp_envelope,
)
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    Failed,
    HandlerCrashed,
    InvalidInput,
    OutputRejected,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    UsageError,
)
from callpact.protocol import (
    CallAborted,
    CallFailed,
    CallRequested,
    CallResponded,
    LocalBus,
    PendingRequestMap,
    build_call_handler,
    pending,
    write_event,
)
from callpact.protocol import handler as call_handler
from callpact.protocol.events import EVENT_TYPES
from callpact.runtime import Runtime
from callpact.schema import is_json

_story, _settle, _ever, _in = stories.story, stories.settle, stories.ever, stories.from_now
_tool, _timers, _JsonBus, _LateBus = stories.tool, stories.timers, stories.JsonBus, stories.LateBus
HOUR, SECRET, OUT = stories.HOUR, stories.SECRET, stories.OUT
SOON = 20.0
"""Seconds of the loop's own clock: a bound, for what must not take any."""
IN = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "cellar_key": {"type": "string"}},
    "additionalProperties": False,
}


BUSES = pytest.mark.parametrize("bus", [LocalBus, _JsonBus, _LateBus])
"""For rules that hold on any bus."""


class _Desk:
    """A runtime that answers on a bus, a map that asks, and everything that was published."""

    def __init__(self, *tools, bus=LocalBus, **handler):
        self.bus = bus()
        self.map = PendingRequestMap(self.bus)
        self.finished = []
        self.runtime = Runtime(tools, observers=[self.finished.append])
        self.events = []
        for topic in EVENT_TYPES:
            self.bus.subscribe(topic, self.events.append)
        self.bus.subscribe("call.requested", build_call_handler(self.runtime, self.map, **handler))

    @property
    def types(self):
        return [event.type.removeprefix("call.") for event in self.events]

    def types_of(self, request_id):
        events = [event for event in self.events if event.request_id == request_id]
        return [event.type.removeprefix("call.") for event in events]

    async def failure(self, tool_id="t.tool", arguments=None, **options):
        with pytest.raises(CallError) as caught:
            await self.map.call(tool_id, arguments, **options)
        return caught.value

    async def warm(self):
        """Answer some requests first: what is answered at once takes another way then."""
        for _ in range(3):
            await self.failure("no.such")
            await _settle()
        self.events.clear()
        self.finished.clear()

    async def assert_empty(self):
        await _settle()
        assert self.map.pending_count == 0
        assert self.map.answering == {}
        assert self.bus._tasks == set()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert _timers() == []


# --- the order ------------------------------------------------------------------------------


@BUSES
@_story
async def test_access_is_asked_before_the_schema_and_tells_nothing_of_it(bus):
    ran = []

    async def handler(arguments, context):
        ran.append(arguments)

    desk = _Desk(_tool(handler, access=["shop:admin"], input=IN, output=OUT), bus=bus)
    bad = {"n": "x", "other": 1}
    for identity in (None, Identity("bob"), Identity("bob", ["shop:read"])):
        desk.events.clear()
        error = await desk.failure(arguments=bad, identity=identity)
        assert type(error) is AccessDenied
        assert error.code == "access_denied"
        (event,) = (event for event in desk.events if event.type == "call.error")
        assert event.code == "ACCESS_DENIED"
        told = write_event(event).decode()
        for word in ("cellar_key", "integer", "other", "required", "object"):
            assert word not in told
    assert ran == []
    error = await desk.failure(arguments=bad, identity=Identity("ann", ["shop:admin"]))
    assert type(error) is InvalidInput
    assert {issue.path for issue in error.issues} == {"/n", "/other"}
    assert ran == []
    await desk.assert_empty()


@BUSES
@_story
async def test_a_tool_is_looked_up_before_anything_else(bus):
    desk = _Desk(bus=bus)
    error = await desk.failure("t.none", {"n": object}, identity=None) if bus is LocalBus else (
        await desk.failure("t.none", {"n": "x"})
    )  # fmt: skip
    assert type(error) is UnknownTool
    assert error.details == {"operationId": "t.none"}
    assert desk.types == ["requested", "error"]
    assert desk.events[1].code == "OPERATION_NOT_FOUND"


@BUSES
@_story
async def test_a_stranger_is_not_told_of_tools_that_it_may_not_use(bus):
    async def handler(arguments, context):
        return None

    desk = _Desk(
        _tool(handler, "shop.price_secret", access=["root"]),
        _tool(handler, "shop.price_open"),
        bus=bus,
    )
    stranger = await desk.failure("shop.price_secre")
    assert "price_secret" not in str(stranger)
    known = await desk.failure("shop.price_secre", identity=Identity("root", ["root"]))
    assert "shop.price_secret" in known.message


@_story
async def test_the_steps_come_in_their_order():
    steps = []

    class Watched(dict):
        """Counts as read when the input gate looks at it."""

        def items(self):
            steps.append("input")
            return super().items()

    class Answer(dict):
        def items(self):
            steps.append("release")
            return super().items()

    async def handler(arguments, context):
        steps.append("run")
        return Answer(n=1)

    desk = _Desk(_tool(handler, input=IN, output=OUT))
    desk.bus.subscribe("call.responded", lambda event: steps.append("respond"))
    assert (await desk.map.call("t.tool", Watched(n=1))).data == {"n": 1}
    order = list(dict.fromkeys(steps))
    assert [step for step in ("run", "release", "respond") if step in order] == [
        step for step in order if step != "input"
    ]
    assert order[-1] == "respond"
    assert "run" in order


@BUSES
@_story
async def test_bad_input_runs_nothing(bus):
    ran = []

    async def handler(arguments, context):
        ran.append(arguments)

    desk = _Desk(_tool(handler, input=IN), bus=bus)
    error = await desk.failure(arguments={"n": "x"})
    assert type(error) is InvalidInput
    assert (error.code, error.path) == ("schema_validation_failed", "/n")
    assert desk.events[-1].code == "VALIDATION_ERROR"
    assert [issue["path"] for issue in desk.events[-1].details] == ["/n"]
    assert ran == []
    assert desk.types == ["requested", "error"]


# --- results --------------------------------------------------------------------------------


@BUSES
@pytest.mark.parametrize("value", [None, 0, "", [], {}, {"data": 1}, {"n": [1, {"a": None}]}])
@_story
async def test_a_value_is_wrapped_and_answered_once(bus, value):
    async def handler(arguments, context):
        return value

    desk = _Desk(_tool(handler), bus=bus)
    envelope = await desk.map.call("t.tool")
    assert envelope.data == value
    assert type(envelope.meta) is LocalResponseMeta
    assert envelope.meta.operation_id == "t.tool"
    assert desk.types == ["requested", "responded"]
    assert type(desk.events[1].output) is ResponseEnvelope
    assert desk.events[1].seq is None
    await desk.assert_empty()


@_story
async def test_an_envelope_of_the_handler_is_answered_as_it_is():
    own = local_envelope({"data": 1, "meta": {"source": "local"}}, "somebody.else")

    async def handler(arguments, context):
        return own

    desk = _Desk(_tool(handler))
    assert await desk.map.call("t.tool") is own
    assert desk.events[1].output is own


@BUSES
@_story
async def test_an_mcp_error_result_is_a_response(bus):
    async def handler(arguments, context):
        return mcp_envelope([], is_error=True, content=[TextBlock("no such city")])

    desk = _Desk(_tool(handler, output=OUT, policy="reject"), bus=bus)
    envelope = await desk.map.call("t.tool")
    assert envelope.meta.is_error is True
    assert envelope.meta.content == [TextBlock("no such city")]
    assert desk.types == ["requested", "responded"]


@BUSES
@_story
async def test_what_the_contract_found_and_changed_reaches_the_caller(bus):
    async def handler(arguments, context):
        return {"n": "many", "extra": 1}

    desk = _Desk(_tool(handler, output=OUT), bus=bus)
    envelope = await desk.map.call("t.tool")
    assert envelope.data == {"n": 0}
    assert {change.path for change in envelope.changes} == {"/n", "/extra"}
    assert "/n" in {issue.path for issue in envelope.warnings}


@BUSES
@_story
async def test_bytes_reach_the_caller_as_bytes(bus):
    async def handler(arguments, context):
        return b"\x00\xff"

    desk = _Desk(_tool(handler), bus=bus)
    assert (await desk.map.call("t.tool")).data == b"\x00\xff"


# --- handlers publish nothing ---------------------------------------------------------------


async def _returns(arguments, context):
    return 1


async def _waits(arguments, context):
    await asyncio.sleep(0)
    return 1


async def _refuses(arguments, context):
    raise ToolError("sold_out", "none left")


async def _breaks(arguments, context):
    await asyncio.sleep(0)
    raise KeyError(SECRET)


async def _answers_with_what_is_not_json(arguments, context):
    return {1, 2}


async def _hangs(arguments, context):
    await _ever()


@BUSES
@pytest.mark.parametrize(
    ("handler", "end"),
    [
        (_returns, "responded"),
        (_waits, "responded"),
        (_refuses, "error"),
        (_breaks, "error"),
        (_answers_with_what_is_not_json, "error"),
    ],
)
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_plain_call_is_one_request_and_one_end(bus, handler, end, is_warm):
    desk = _Desk(_tool(handler), bus=bus)
    if is_warm:
        await desk.warm()
    for number in range(1, 4):
        try:
            await desk.map.call("t.tool")
        except CallError:
            assert end == "error"
        else:
            assert end == "responded"
        await _settle()
        assert desk.types == ["requested", end] * number
        assert desk.events[-1].request_id == desk.events[-2].request_id
        assert len(desk.finished) == number
        assert desk.finished[-1].call_id == desk.events[-1].request_id
        await desk.assert_empty()


# --- errors ---------------------------------------------------------------------------------


def _raises(error):
    async def handler(arguments, context):
        raise error

    return handler


def _raises_later(error):
    async def handler(arguments, context):
        await asyncio.sleep(0)
        raise error

    return handler


def _waits_for_what_is_cancelled(error):
    async def handler(arguments, context):
        future = asyncio.get_running_loop().create_future()
        future.cancel(SECRET)
        await future

    return handler


EXCEPTIONS = [
    (ToolError("sold_out", "none left", details={"left": 0}), "sold_out", {"left": 0}),
    (UpstreamError("it said 503", details={"statusCode": 503}), "EXECUTION_ERROR", None),
    (KeyError(SECRET), "EXECUTION_ERROR", None),
    (ValueError(SECRET), "EXECUTION_ERROR", None),
    (RecursionError(SECRET), "EXECUTION_ERROR", None),
    (TimeoutError(SECRET), "EXECUTION_ERROR", None),
    (UsageError(SECRET), "EXECUTION_ERROR", None),
    (StopAsyncIteration(SECRET), "EXECUTION_ERROR", None),
    (ExceptionGroup(SECRET, [KeyError(SECRET)]), "EXECUTION_ERROR", None),
    (SystemExit(SECRET), "EXECUTION_ERROR", None),
    (GeneratorExit(SECRET), None, None),
    (asyncio.CancelledError(SECRET), "ABORTED", None),
]


@BUSES
@pytest.mark.parametrize("raised", EXCEPTIONS, ids=lambda value: type(value[0]).__name__)
@pytest.mark.parametrize("make", [_raises, _raises_later])
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_every_exception_is_an_error_without_its_text(bus, raised, make, is_warm):
    error, code, details = raised
    desk = _Desk(_tool(make(error)), bus=bus)
    if is_warm:
        await desk.warm()
    await desk.failure(identity=Identity("ann"))
    await _settle()
    assert desk.types == ["requested", "error"]
    told = desk.events[-1]
    assert code in (None, told.code)
    assert isinstance(told.message, str)
    assert told.message
    assert told.details is None or is_json(told.details)
    assert details is None or told.details == details
    assert SECRET not in write_event(told).decode()
    (finished,) = desk.finished
    assert isinstance(finished.error, CallError)
    assert SECRET not in str(finished.error)
    await desk.assert_empty()


@BUSES
@_story
async def test_a_caller_is_not_left_waiting_by_an_exception_of_no_common_kind(bus):
    class Odd(BaseException):
        """Such as other libraries make of their own cancellations and exits."""

    desk = _Desk(_tool(_raises_later(Odd(SECRET))), bus=bus)
    await desk.failure()
    await _settle()
    assert desk.types in (["requested", "error"], ["requested", "aborted"])
    assert SECRET not in write_event(desk.events[-1]).decode()
    await desk.assert_empty()


@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_cancellation_of_something_inside_is_an_error_of_the_tool(is_warm):
    desk = _Desk(_tool(_waits_for_what_is_cancelled(None)))
    if is_warm:
        await desk.warm()
    error = await desk.failure()
    assert error.code == "aborted"
    assert desk.types == ["requested", "error"]
    assert SECRET not in write_event(desk.events[-1]).decode()
    await desk.assert_empty()


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ({"n": {1, 2}}, "cast"),
        (object(), "pass"),
        (float("nan"), "pass"),
        ({"n": "x"}, "reject"),
        ({"n": 1, "extra": SECRET}, "reject"),
    ],
)
@BUSES
@_story
async def test_an_answer_that_cannot_be_delivered_is_an_error(bus, value, policy):
    async def handler(arguments, context):
        return value

    output = None if policy == "pass" else OUT
    desk = _Desk(_tool(handler, output=output, policy=policy), bus=bus)
    error = await desk.failure()
    assert isinstance(error, OutputRejected)
    assert error.issues
    assert desk.types == ["requested", "error"]
    assert desk.events[-1].code == "OUTPUT_VALIDATION_ERROR"
    assert is_json(desk.events[-1].details)
    assert SECRET not in write_event(desk.events[-1]).decode()
    await desk.assert_empty()


class _Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class _Point:
    x: int


class _Unshowable:
    def __repr__(self):
        raise RuntimeError(SECRET)


DETAILS = {
    "nan": math.nan,
    "infinity": -math.inf,
    "moment": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 2),
    "uuid": uuid.UUID(int=5),
    "set": {1},
    "bytes": b"\xff",
    "tuple": (1, (2,)),
    "enum": _Colour.RED,
    "dataclass": _Point(1),
    "exception": ValueError("x"),
    "big": 2**80,
    "huge": 10**5000,
    "half": "\ud800",
    "numbers as keys": {1: 2},
    "unshowable": _Unshowable(),
    "envelope": local_envelope(1, "a.b"),
}


@BUSES
@pytest.mark.parametrize("name", DETAILS)
@_story
async def test_details_are_json_whatever_a_handler_puts_in(bus, name):
    handler = _raises(ToolError("sold_out", "none left", details={"what": DETAILS[name], "n": 1}))
    desk = _Desk(_tool(handler), bus=bus)
    error = await desk.failure()
    assert (type(error), error.code, error.message) == (ToolError, "sold_out", "none left")
    told = desk.events[-1]
    assert is_json(told.details)
    json.loads(json.dumps(told.details, allow_nan=False))
    assert told.details["n"] == 1
    assert error.details["n"] == 1
    await desk.assert_empty()


@BUSES
@_story
async def test_details_that_hold_themselves_are_cut(bus):
    ring = []
    ring.append(ring)
    desk = _Desk(
        _tool(_raises(ToolError("sold_out", "none left", details={"ring": ring}))), bus=bus
    )
    error = await desk.failure()
    assert error.code == "sold_out"
    assert error.details == {"ring": ["…"]}
    await desk.assert_empty()


@_story
async def test_an_error_says_the_same_on_every_bus():
    heard = []
    for bus in (LocalBus, _JsonBus):
        error = ToolError(
            "e", "m", details={"when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "nan": math.nan}
        )
        desk = _Desk(_tool(_raises(error)), bus=bus)
        heard.append((await desk.failure()).details)
    assert heard[0] == heard[1]


@_story
async def test_a_bus_that_does_not_take_an_answer_gets_an_error(caplog):
    class Picky(LocalBus):
        async def publish(self, event):
            if event.type == "call.responded":
                raise ConnectionError(SECRET)
            await super().publish(event)

    desk = _Desk(_tool(_returns), bus=Picky)
    with caplog.at_level(logging.CRITICAL):
        error = await desk.failure()
    assert type(error) is HandlerCrashed
    assert SECRET not in str(error)
    assert desk.types == ["requested", "error"]
    await desk.assert_empty()


# --- time -----------------------------------------------------------------------------------


@BUSES
@_story
async def test_a_request_whose_deadline_is_over_runs_nothing(bus):
    ran = []

    async def handler(arguments, context):
        ran.append(1)

    desk = _Desk(_tool(handler), bus=bus)
    await desk.bus.publish(CallRequested("r", "t.tool", {}, deadline=5.0))
    await _settle()
    assert ran == []
    assert desk.types == ["requested", "error"]
    assert (desk.events[1].code, desk.events[1].details) == ("TIMEOUT", {"deadline": 5.0})
    await desk.assert_empty()


@BUSES
@pytest.mark.parametrize("is_stream", [False, True])
@_story
async def test_a_handler_that_is_late_is_cancelled_and_its_request_times_out(bus, is_stream):
    ended = []

    async def handler(arguments, context):
        try:
            await _ever()
        finally:
            ended.append(context.call_id)

    async def stream(arguments, context):
        try:
            await _ever()
            yield 1
        finally:
            ended.append(context.call_id)

    desk = _Desk(_tool(stream if is_stream else handler), bus=bus)
    deadline = _in(HOUR)
    await desk.bus.publish(CallRequested("r", "t.tool", {}, deadline=deadline, stream=is_stream))
    await asyncio.sleep(2 * HOUR / 1000)
    assert ended == ["r"]
    assert desk.types == ["requested", "error"]
    assert desk.events[1].code == "TIMEOUT"
    assert desk.events[1].details == {"deadline": deadline}
    await desk.assert_empty()


@BUSES
@_story
async def test_a_late_handler_is_a_timeout_for_its_caller(bus):
    desk = _Desk(_tool(_hangs), bus=bus)
    deadline = _in(HOUR)
    error = await desk.failure(deadline=deadline)
    assert type(error) is Timeout
    assert error.details == {"deadline": deadline}
    await desk.assert_empty()


# --- giving up ------------------------------------------------------------------------------


@BUSES
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_handler_that_is_cancelled_aborts_its_request(bus, is_warm):
    ended = []

    async def handler(arguments, context):
        try:
            await _ever()
        finally:
            ended.append(1)

    desk = _Desk(_tool(handler), bus=bus)
    if is_warm:
        await desk.warm()
    call = asyncio.ensure_future(desk.map.call("t.tool"))
    await _settle()
    await desk.bus.aclose()
    with pytest.raises(Aborted):
        await call
    assert ended == [1]
    assert desk.types == ["requested", "aborted"]
    (finished,) = desk.finished
    assert type(finished.error) is Aborted
    await desk.assert_empty()


@BUSES
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_caller_that_gives_up_cancels_the_handler(bus, is_warm):
    ended = []

    async def handler(arguments, context):
        try:
            await _ever()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    desk = _Desk(_tool(handler), bus=bus)
    if is_warm:
        await desk.warm()
    for number in range(1, 4):
        call = asyncio.ensure_future(desk.map.call("t.tool"))
        await _settle()
        assert len(desk.map.answering) == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _settle()
        assert ended == ["cancelled"] * number
        assert desk.types == ["requested", "aborted"] * number
        await desk.assert_empty()


@BUSES
@_story
async def test_a_caller_that_gives_up_closes_the_generator(bus):
    ended = []

    async def stream(arguments, context):
        try:
            for number in range(1000):
                yield number
                await asyncio.sleep(1)
        finally:
            ended.append(1)

    desk = _Desk(_tool(stream), bus=bus)
    async with aclosing(desk.map.subscribe("t.tool")) as envelopes:
        assert [(await anext(envelopes)).data for _ in range(3)] == [0, 1, 2]
    await _settle()
    assert ended == [1]
    assert desk.types == ["requested", *["responded"] * 3, "aborted"]
    (finished,) = desk.finished
    assert finished.count == 3
    await desk.assert_empty()


def _swallows(how):
    """A handler that does not let itself be cancelled, and says something all the same."""

    async def handler(arguments, context):
        try:
            await _ever()
        except BaseException:
            if how == "returns":
                return "late"
            if how == "raises":
                raise ToolError("cleanup", "interrupted") from None
            raise RuntimeError(SECRET) from None

    return handler


@BUSES
@pytest.mark.parametrize("how", ["returns", "raises", "breaks"])
@_story
async def test_nothing_is_said_of_a_request_after_its_caller_gave_up(bus, how):
    desk = _Desk(_tool(_swallows(how)), bus=bus)
    call = asyncio.ensure_future(desk.map.call("t.tool"))
    await _settle()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await _settle()
    assert desk.types == ["requested", "aborted"]
    await desk.assert_empty()


@BUSES
@_story
async def test_a_generator_that_does_not_let_itself_be_cancelled_is_stopped_all_the_same(bus):
    made = []

    async def stream(arguments, context):
        for number in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                made.append("cancelled")
            made.append(number)
            yield number

    desk = _Desk(_tool(stream), bus=bus)
    call = asyncio.ensure_future(desk.map.call("t.tool"))
    await _settle()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(1000)
    assert len(made) < 10
    assert desk.types == ["requested", "aborted"]
    await desk.assert_empty()


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("others", [0, 3])
@_story
async def test_an_abort_right_behind_its_request_is_heeded(is_warm, others):
    began, ended = [], []

    async def handler(arguments, context):
        began.append(context.call_id)
        try:
            await _ever()
        finally:
            ended.append(context.call_id)

    desk = _Desk(_tool(handler))
    if is_warm:
        await desk.warm()
    for number in range(others):
        desk.bus.deliver(CallRequested(f"other-{number}", "t.tool", {}))
    # As from a wire: one read, two lines.
    desk.bus.deliver(CallRequested("r", "t.tool", {}))
    desk.bus.deliver(CallAborted("r"))
    await _settle()
    assert began.count("r") == ended.count("r")
    assert "r" not in desk.map.answering
    assert len(desk.map.answering) == others
    assert desk.types_of("r") == ["requested", "aborted"]
    await desk.bus.aclose()
    await desk.assert_empty()


@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_handler_that_cancels_itself_at_once_aborts_its_request(is_warm):
    ended = []

    async def handler(arguments, context):
        asyncio.current_task().cancel()
        try:
            await _ever()
        finally:
            ended.append(1)

    desk = _Desk(_tool(handler))
    if is_warm:
        await desk.warm()
    error = await desk.failure()
    assert error.code == "aborted"
    assert ended == [1]
    await _settle()
    assert desk.types == ["requested", "aborted"]
    await desk.assert_empty()


@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_request_that_is_aborted_by_its_own_handler_ends_there(is_warm):
    ended = []

    async def handler(arguments, context):
        await desk.map.abort(context.call_id)
        try:
            await _ever()
        finally:
            ended.append(1)

    desk = _Desk(_tool(handler))
    if is_warm:
        await desk.warm()
    error = await desk.failure()
    assert type(error) is Aborted
    await _settle()
    assert ended == [1]
    assert desk.types == ["requested", "aborted"]
    await desk.assert_empty()


@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_handler_may_look_whether_something_is_there_already(is_warm):
    async def handler(arguments, context):
        try:
            async with asyncio.timeout(0):
                await _ever()
        except TimeoutError:
            return "not yet"

    desk = _Desk(_tool(handler))
    if is_warm:
        await desk.warm()
    assert (await desk.map.call("t.tool")).data == "not yet"
    assert desk.types == ["requested", "responded"]
    await desk.assert_empty()


@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_bus_that_is_closed_right_behind_a_request_ends_its_handler(is_warm):
    began, ended = [], []

    async def handler(arguments, context):
        began.append(1)
        try:
            await _ever()
        finally:
            ended.append(1)

    desk = _Desk(_tool(handler))
    if is_warm:
        await desk.warm()
    desk.bus.deliver(CallRequested("r", "t.tool", {}))
    await desk.bus.aclose()
    assert began == ended
    await desk.assert_empty()


@_story
async def test_an_abort_right_behind_its_request_ends_the_handler():
    began, ended = [], []

    async def handler(arguments, context):
        began.append(1)
        try:
            await _ever()
        finally:
            ended.append(1)

    desk = _Desk(_tool(handler))
    desk.bus.deliver(CallRequested("r", "t.tool", {}))
    desk.bus.deliver(CallAborted("r"))
    await _settle()
    assert began == ended
    assert desk.types == ["requested", "aborted"]
    await desk.assert_empty()


@BUSES
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_closing_a_map_ends_what_it_answers_and_its_callers_are_told(bus, is_stream, is_warm):
    ended = []

    async def handler(arguments, context):
        try:
            await _ever()
        finally:
            ended.append(1)

    async def stream(arguments, context):
        try:
            yield 1
            await _ever()
        finally:
            ended.append(1)

    desk = _Desk(_tool(stream if is_stream else handler), bus=bus)
    if is_warm:
        await desk.warm()
    caller = PendingRequestMap(desk.bus)
    asked = stories.outcome(caller.subscribe("t.tool")) if is_stream else caller.call("t.tool")
    waiting = asyncio.ensure_future(asked)
    await _settle()
    assert len(desk.map.answering) == 1
    await desk.map.aclose()
    assert ended == [1]
    assert desk.map.answering == {}
    if is_stream:
        assert await asyncio.wait_for(waiting, SOON) == ([1], None)
    else:
        with pytest.raises(Aborted):
            await asyncio.wait_for(waiting, SOON)
    assert desk.types == ["requested", *["responded"] * is_stream, "aborted"]
    await desk.assert_empty()


@BUSES
@_story
async def test_closing_a_map_that_answers_its_own_calls_tells_of_each_once(bus):
    desk = _Desk(_tool(_hangs), bus=bus)
    calls = [asyncio.ensure_future(desk.map.call("t.tool")) for _ in range(3)]
    await _settle()
    await desk.map.aclose()
    for call in calls:
        with pytest.raises(Aborted):
            await call
    await desk.assert_empty()
    assert [desk.types_of(event.request_id) for event in desk.events[:3]] == [
        ["requested", "aborted"]
    ] * 3


@BUSES
@_story
async def test_a_closed_map_refuses_requests_with_aborted_and_runs_nothing(bus):
    ran = []

    async def handler(arguments, context):
        ran.append(1)

    desk = _Desk(_tool(handler), bus=bus)
    await desk.map.aclose()
    caller = PendingRequestMap(desk.bus)
    with pytest.raises(CallError) as caught:
        await asyncio.wait_for(caller.call("t.tool"), SOON)
    assert caught.value.code == "aborted"
    assert ran == []
    await desk.assert_empty()


@BUSES
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_handler_may_close_the_map_that_answers_it(bus, is_warm):
    async def handler(arguments, context):
        await desk.map.aclose()
        return "closed"

    desk = _Desk(_tool(handler), _tool(_hangs, "t.hangs"), bus=bus)
    if is_warm:
        await desk.warm()
    caller = PendingRequestMap(desk.bus)
    other = asyncio.ensure_future(caller.call("t.hangs"))
    await _settle()
    assert (await asyncio.wait_for(caller.call("t.tool"), SOON)).data == "closed"
    with pytest.raises(Aborted):
        await asyncio.wait_for(other, SOON)
    await desk.assert_empty()


@_story
async def test_closing_a_map_does_not_wait_for_a_handler_that_goes_on():
    go = asyncio.Event()

    async def handler(arguments, context):
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    desk = _Desk(_tool(handler))
    caller = PendingRequestMap(desk.bus)
    call = asyncio.ensure_future(caller.call("t.tool"))
    await _settle()
    await asyncio.wait_for(desk.map.aclose(), SOON)
    assert not call.done()
    go.set()
    assert (await asyncio.wait_for(call, SOON)).data == "done"
    await desk.assert_empty()


@_story
async def test_an_abort_of_another_request_touches_nobody():
    desk = _Desk(_tool(_hangs))
    call = asyncio.ensure_future(desk.map.call("t.tool"))
    await _settle()
    await desk.bus.publish(CallAborted("another"))
    await _settle()
    assert not call.done()
    assert len(desk.map.answering) == 1
    call.cancel()
    await asyncio.wait([call])


# --- the same request again, other namespaces, too many -------------------------------------


@BUSES
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_a_request_that_comes_again_while_it_is_answered_is_run_once(bus, is_warm):
    gate, ran = asyncio.Event(), []

    async def handler(arguments, context):
        ran.append(context.call_id)
        await gate.wait()
        return 1

    desk = _Desk(_tool(handler), bus=bus)
    if is_warm:
        await desk.warm()
    request = CallRequested("r", "t.tool", {})
    for _ in range(3):
        await desk.bus.publish(request)
    await _settle()
    await desk.bus.publish(request)
    await _settle()
    assert ran == ["r"]
    gate.set()
    await _settle()
    assert desk.types == ["requested"] * 4 + ["responded"]
    await desk.bus.publish(request)
    await _settle()
    assert ran == ["r", "r"]
    assert desk.types[-2:] == ["requested", "responded"]
    await desk.assert_empty()


@pytest.mark.parametrize("how", ["returns", "raises"])
@_story
async def test_a_request_that_comes_again_is_not_answered_by_who_was_told_to_stop(how):
    gate, runs = asyncio.Event(), []

    async def handler(arguments, context):
        runs.append(1)
        if len(runs) > 1:
            await gate.wait()
            return "new"
        try:
            await _ever()
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            if how == "raises":
                raise ToolError("old", "interrupted") from None
            return "old"

    desk = _Desk(_tool(handler))
    await desk.bus.publish(CallRequested("r", "t.tool", {}))
    await _settle()
    await desk.bus.publish(CallAborted("r"))
    await _settle()
    await desk.bus.publish(CallRequested("r", "t.tool", {}))
    await asyncio.sleep(2)
    assert len(runs) == 2
    assert desk.types == ["requested", "aborted", "requested"]
    gate.set()
    await _settle()
    assert desk.types[3:] == ["responded"]
    assert desk.events[-1].output.data == "new"
    await desk.assert_empty()


@BUSES
@_story
async def test_with_namespaces_other_requests_are_left_to_others(bus):
    desk = _Desk(_tool(_returns, "shop.price"), _tool(_returns, "cellar.key"), bus=bus,
                 namespaces=iter(["shop", "other"]))  # fmt: skip
    for tool_id in ("cellar.key", "cellar.none", "none.none", "shopping.list", "price", ""):
        await desk.bus.publish(CallRequested("r", tool_id, {}))
        await _settle()
    assert set(desk.types) == {"requested"}
    assert (await desk.map.call("shop.price")).data == 1
    assert type(await desk.failure("shop.none")) is UnknownTool
    await desk.assert_empty()


@pytest.mark.parametrize("tool_id", [None, 5, ["shop.price"]], ids=repr)
@pytest.mark.parametrize("namespaces", [None, ["shop"]])
@_story
async def test_a_request_for_what_is_no_text_is_answered_with_or_without_namespaces(
    tool_id, namespaces
):
    desk = _Desk(_tool(_returns, "shop.price"), namespaces=namespaces)
    await desk.bus.publish(CallRequested("r", tool_id, {}))
    await _settle()
    assert desk.types == ["requested", "error"]
    assert desk.events[1].code == "OPERATION_NOT_FOUND"
    await desk.assert_empty()


@_story
async def test_without_namespaces_nothing_is_left_unanswered():
    desk = _Desk(_tool(_returns, "shop.price"))
    assert (await desk.map.call("shop.price")).data == 1
    for tool_id in ("cellar.none", "", "price"):
        assert type(await desk.failure(tool_id)) is UnknownTool


@BUSES
@_story
async def test_one_request_too_many_is_refused_and_the_rest_goes_on(bus, monkeypatch):
    monkeypatch.setattr(call_handler, "MAX_ANSWERING", 2)
    gate, ran = asyncio.Event(), []

    async def handler(arguments, context):
        ran.append(arguments["n"])
        await gate.wait()
        return arguments["n"]

    desk = _Desk(_tool(handler), bus=bus)
    calls = [asyncio.ensure_future(desk.map.call("t.tool", {"n": n})) for n in range(2)]
    await _settle()
    error = await desk.failure(arguments={"n": 2})
    assert isinstance(error, Failed)
    assert error.code == "aborted"
    assert ran == [0, 1]
    assert len(desk.map.answering) == 2
    gate.set()
    assert [(await call).data for call in calls] == [0, 1]
    assert (await desk.map.call("t.tool", {"n": 3})).data == 3
    await desk.assert_empty()


# --- subscriptions --------------------------------------------------------------------------


async def _counts(arguments, context):
    for number in range(arguments.get("n", 3)):
        yield number


@BUSES
@pytest.mark.parametrize("n", [0, 1, 5])
@_story
async def test_a_subscription_is_numbered_from_zero_and_counted(bus, n):
    desk = _Desk(_tool(_counts), bus=bus)
    got = [envelope async for envelope in desk.map.subscribe("t.tool", {"n": n})]
    assert [envelope.data for envelope in got] == list(range(n))
    assert all(type(envelope.meta) is LocalResponseMeta for envelope in got)
    assert not any(envelope.warnings for envelope in got)
    assert desk.types == ["requested", *["responded"] * n, "completed"]
    assert [event.seq for event in desk.events[1:-1]] == list(range(n))
    assert desk.events[-1].count == n
    (finished,) = desk.finished
    assert (finished.count, finished.envelope, finished.error) == (n, None, None)
    await desk.assert_empty()


@BUSES
@_story
async def test_a_subscription_that_fails_ends_with_the_error_and_is_not_completed(bus):
    async def stream(arguments, context):
        yield 1
        yield 2
        raise KeyError(SECRET)

    desk = _Desk(_tool(stream), bus=bus)
    got = []
    envelopes = desk.map.subscribe("t.tool")
    got = [(await anext(envelopes)).data, (await anext(envelopes)).data]
    with pytest.raises(HandlerCrashed):
        await anext(envelopes)
    assert got == [1, 2]
    assert desk.types == ["requested", "responded", "responded", "error"]
    assert SECRET not in write_event(desk.events[-1]).decode()
    (finished,) = desk.finished
    assert (finished.count, finished.error.code) == (2, "handler_error")
    await desk.assert_empty()


@pytest.mark.parametrize("error", [error for error, _, _ in EXCEPTIONS], ids=repr)
@_story
async def test_every_exception_of_a_subscription_is_an_error_without_its_text(error):
    async def stream(arguments, context):
        yield 1
        raise error

    desk = _Desk(_tool(stream))
    envelopes = desk.map.subscribe("t.tool")
    await anext(envelopes)
    with pytest.raises(CallError):
        await anext(envelopes)
    await _settle()
    assert desk.types == ["requested", "responded", "error"]
    assert SECRET not in write_event(desk.events[-1]).decode()
    await desk.assert_empty()


@BUSES
@_story
async def test_a_result_that_is_rejected_ends_a_subscription(bus):
    ended = []

    async def stream(arguments, context):
        try:
            yield {"n": 1}
            yield {"n": "x"}
            yield {"n": 3}
        finally:
            ended.append(1)

    desk = _Desk(_tool(stream, output=OUT, policy="reject"), bus=bus)
    envelopes = desk.map.subscribe("t.tool")
    assert (await anext(envelopes)).data == {"n": 1}
    with pytest.raises(OutputRejected) as caught:
        await anext(envelopes)
    assert caught.value.path == "/n"
    await _settle()
    assert ended == [1]
    assert desk.types == ["requested", "responded", "error"]
    await desk.assert_empty()


@BUSES
@_story
async def test_a_stream_of_a_tool_with_one_answer_is_refused_and_nothing_runs(bus):
    ran = []

    async def handler(arguments, context):
        ran.append(1)

    desk = _Desk(_tool(handler), bus=bus)
    with pytest.raises(CallError) as caught:
        await anext(desk.map.subscribe("t.tool"))
    assert caught.value.code == "handler_error"
    assert "t.tool" in caught.value.message
    assert desk.types == ["requested", "error"]
    assert desk.events[1].code == "EXECUTION_ERROR"
    assert ran == []
    await desk.assert_empty()


@BUSES
@_story
async def test_a_plain_call_of_a_subscription_takes_the_first_envelope_and_stops_it(bus):
    ended = []

    async def stream(arguments, context):
        try:
            for number in range(1000):
                yield number
                await asyncio.sleep(1)
        finally:
            ended.append(1)

    desk = _Desk(_tool(stream), bus=bus)
    assert (await desk.map.call("t.tool")).data == 0
    await _settle()
    assert ended == [1]
    assert desk.types == ["requested", "responded", "aborted"]
    await desk.assert_empty()


@BUSES
@_story
async def test_a_plain_call_of_a_subscription_without_results_is_aborted(bus):
    desk = _Desk(_tool(_counts), bus=bus)
    error = await desk.failure(arguments={"n": 0})
    assert type(error) is Aborted
    assert desk.types == ["requested", "completed"]
    await desk.assert_empty()


@_story
async def test_the_generator_is_closed_if_the_caller_is_cancelled_with_the_first_envelope():
    ended, gate = [], asyncio.Event()

    async def stream(arguments, context):
        try:
            await gate.wait()
            for number in range(100):
                yield number
                await asyncio.sleep(1)
        finally:
            ended.append(context.call_id)

    desk = _Desk(_tool(stream))
    call = asyncio.ensure_future(desk.map.call("t.tool"))
    await _settle()
    desk.bus.subscribe("call.responded", lambda event: call.cancel())
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    await _settle()
    assert len(ended) == 1
    assert desk.types == ["requested", "responded", "aborted"]
    await desk.assert_empty()


@_story
async def test_access_and_input_of_a_subscription_are_checked_before_it_runs():
    ran = []

    async def stream(arguments, context):
        ran.append(1)
        yield 1

    desk = _Desk(_tool(stream, access=["shop:read"], input=IN))
    for identity, kind in [(None, AccessDenied), (Identity("ann", ["shop:read"]), InvalidInput)]:
        with pytest.raises(kind):
            await anext(desk.map.subscribe("t.tool", {"n": "x"}, identity=identity))
        assert type(await desk.failure(arguments={"n": "x"}, identity=identity)) is kind
    with pytest.raises(UnknownTool):
        await anext(desk.map.subscribe("t.none"))
    assert ran == []
    assert set(desk.types) == {"requested", "error"}
    await desk.assert_empty()


@_story
async def test_a_generator_that_never_waits_leaves_turns_to_others():
    async def stream(arguments, context):
        for number in range(100_000):
            yield number

    desk = _Desk(_tool(stream))
    async with aclosing(desk.map.subscribe("t.tool")) as envelopes:
        for number in range(2_000):
            assert (await anext(envelopes)).data == number
    await _settle()
    assert desk.types.count("responded") < 4_000
    assert desk.types[-1] == "aborted"
    await desk.assert_empty()


@BUSES
@_story
async def test_a_generator_that_never_waits_ends_when_its_reader_falls_behind(bus, monkeypatch):
    monkeypatch.setattr(pending, "MAX_UNREAD", 10)
    ended = []

    async def stream(arguments, context):
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            ended.append(number)

    desk = _Desk(_tool(stream), bus=bus)
    async with aclosing(desk.map.subscribe("t.tool")) as envelopes:
        assert (await anext(envelopes)).data == 0
        for _ in range(1_000):  # Not until all is quiet: without an end it never would be.
            await asyncio.sleep(0)
        assert len(ended) == 1
        assert ended[0] < 20
        assert desk.map.answering == {}
        got, error = await stories.outcome(envelopes)
    # Nothing is skipped without a word.
    assert got == list(range(1, len(got) + 1))
    assert 10 <= len(got) < 20
    assert error.code == "aborted"
    assert desk.types.count("aborted") == 1
    await desk.assert_empty()


# --- the context ----------------------------------------------------------------------------


@BUSES
@pytest.mark.parametrize("is_stream", [False, True])
@_story
async def test_everything_that_a_request_says_arrives_in_the_context(bus, is_stream):
    contexts = []

    async def handler(arguments, context):
        contexts.append(context)

    async def stream(arguments, context):
        contexts.append(context)
        yield 1

    desk = _Desk(_tool(stream if is_stream else handler), bus=bus)
    identity = Identity("ann", ["a", "b"], {"project:42": ["read"]})
    deadline = _in(HOUR)
    await desk.bus.publish(
        CallRequested(
            "r-1",
            "t.tool",
            {},
            parent_request_id="p-1",
            deadline=deadline,
            identity=identity,
            metadata={"trace": {"id": [1]}},
            chain=("a.b", "c.d"),
            stream=is_stream,
        )
    )
    await _settle()
    (context,) = contexts
    assert (context.call_id, context.tool_id) == ("r-1", "t.tool")
    assert context.parent_id == "p-1"
    assert context.deadline == deadline
    assert context.identity == identity
    assert context.metadata == {"trace": {"id": [1]}}
    assert context.chain == ("a.b", "c.d")
    (finished,) = desk.finished
    assert (finished.call_id, finished.parent_id, finished.identity) == ("r-1", "p-1", identity)


@BUSES
@_story
async def test_what_a_request_does_not_say_is_absent_from_the_context(bus):
    contexts = []

    async def handler(arguments, context):
        contexts.append(context)

    desk = _Desk(_tool(handler), bus=bus)
    await desk.map.call("t.tool")
    (context,) = contexts
    assert context.call_id == desk.events[0].request_id
    assert (context.parent_id, context.deadline, context.identity) == (None, None, None)
    assert (context.metadata, context.chain) == (None, ())


# --- several on one bus ---------------------------------------------------------------------


@BUSES
@_story
async def test_two_runtimes_on_one_bus_call_each_others_tools(bus):
    async def price(arguments, context):
        return {"net": 100, "by": context.parent_id, "chain": list(context.chain)}

    async def order(arguments, context):
        first = await context.env.shop.price({})
        await asyncio.sleep(0)
        second = await context.env["shop.price"]({})
        return [first.data, second.data, context.call_id]

    near = bus()
    maps = []
    for tool in (_tool(price, "shop.price"), _tool(order, "desk.order")):
        call_map = PendingRequestMap(near)
        handle = build_call_handler(Runtime([tool]), call_map, namespaces=[tool.namespace])
        near.subscribe("call.requested", handle)
        maps.append(call_map)
    events = []
    for topic in EVENT_TYPES:
        near.subscribe(topic, events.append)
    caller = PendingRequestMap(near)
    first, second, own = (await caller.call("desk.order")).data
    assert own == events[0].request_id
    assert first == second == {"net": 100, "by": own, "chain": ["desk.order"]}
    assert len(events) == 6
    assert {event.type for event in events} == {"call.requested", "call.responded"}
    await _settle()
    assert [m.pending_count for m in (caller, *maps)] == [0, 0, 0]
    assert [m.answering for m in maps] == [{}, {}]


@_story
async def test_of_two_that_answer_the_first_one_counts():
    async def slow(arguments, context):
        await asyncio.sleep(1)
        return "slow"

    async def fast(arguments, context):
        return "fast"

    bus = LocalBus()
    maps = [PendingRequestMap(bus) for _ in range(3)]
    for call_map, handler in zip(maps, (slow, fast), strict=False):
        bus.subscribe("call.requested", build_call_handler(Runtime([_tool(handler)]), call_map))
    assert (await maps[2].call("t.tool")).data == "fast"
    await asyncio.sleep(2)
    assert [m.pending_count for m in maps] == [0, 0, 0]
    assert [m.answering for m in maps] == [{}, {}, {}]


@_story
async def test_a_listener_beside_the_handler_hears_envelopes_only():
    heard = []

    desk = _Desk(_tool(_returns), _tool(_counts, "t.counts"))
    desk.bus.subscribe("call.responded", heard.append)
    await desk.map.call("t.tool")
    async for _ in desk.map.subscribe("t.counts"):
        pass
    assert len(heard) == 4
    assert all(type(event) is CallResponded for event in heard)
    assert all(type(event.output) is ResponseEnvelope for event in heard)


@_story
async def test_what_the_log_says_names_the_request_and_the_caller_does_not_see_it(caplog):
    desk = _Desk(_tool(_breaks))
    error = await desk.failure()
    request_id = desk.events[0].request_id
    assert SECRET in caplog.text
    assert request_id in caplog.text
    assert not re.search("hunter2", repr(error) + str(error.details))
    assert type(desk.events[-1]) is CallFailed
