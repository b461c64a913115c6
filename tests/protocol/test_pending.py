"""The caller's side of the call protocol: each request ends once, and leaves nothing behind.

Tests run on a loop whose clock is its own, see `stories.py`.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import uuid
from contextlib import aclosing
from types import MappingProxyType

import pytest

import stories
from callpact.context import Identity
from callpact.envelope import (
    LocalResponseMeta,
    ResponseEnvelope,
    TextBlock,
    http_envelope,
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
    Issue,
    NotAllowed,
    NotAnEnvelope,
    OutputRejected,
    Silent,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    UsageError,
    restored,
)
from callpact.protocol import (
    CallAborted,
    CallCompleted,
    CallFailed,
    CallResponded,
    LocalBus,
    PendingRequestMap,
    build_call_handler,
    pending,
)
from callpact.protocol.events import EVENT_TYPES
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool

_story, _settle, _ever, _in = stories.story, stories.settle, stories.ever, stories.from_now
_timers, _outcome, _LateBus, HOUR = stories.timers, stories.outcome, stories.LateBus, stories.HOUR
SOON = 20.0
"""Seconds of the loop's own clock: a bound, for what must not take any."""


def _envelope(data=None):
    return local_envelope(data, "shop.price")


class _Line:
    """A map on a bus, and everything that went over it."""

    def __init__(self, bus=None, answer=None):
        self.bus = LocalBus() if bus is None else bus
        self.map = PendingRequestMap(self.bus)
        self.events = []
        for topic in EVENT_TYPES:
            self.bus.subscribe(topic, self.events.append)
        if answer is not None:
            self.bus.subscribe("call.requested", answer)

    @property
    def types(self):
        return [event.type.removeprefix("call.") for event in self.events]

    @property
    def request(self):
        (event,) = (event for event in self.events if event.type == "call.requested")
        return event

    async def open_call(self, **options):
        """A call that was sent and waits."""
        before = self.map.pending_count
        task = asyncio.ensure_future(self.map.call("shop.price", {}, **options))
        await _settle()
        assert self.map.pending_count == before + 1
        return task, self.events[-1].request_id

    async def ask(self, way, **options):
        """What a call gives, or the first envelope of a subscription."""
        if way == "call":
            return await self.map.call("shop.price", {}, **options)
        async with aclosing(self.open_stream(**options)) as stream:
            return await anext(stream)

    def open_stream(self, **options):
        return self.map.subscribe("shop.price", {}, **options)

    def assert_empty(self):
        assert self.map.pending_count == 0
        assert self.map.answering == {}
        assert _timers() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


class _StuckBus(LocalBus):
    """Takes some kinds of events and never comes back."""

    def __init__(self, *topics):
        super().__init__()
        self._topics = topics

    async def publish(self, event):
        if event.type in self._topics:
            await _ever()
        await super().publish(event)


class _BrokenBus(LocalBus):
    """Raises on some kinds of events."""

    def __init__(self, error, *topics):
        super().__init__()
        self._error = error
        self._topics = topics

    async def publish(self, event):
        if event.type in self._topics:
            raise self._error
        await super().publish(event)


# --- calls: requests ------------------------------------------------------------------------


@_story
async def test_a_listener_that_answers_inside_publish_finds_the_request_pending():
    seen = []

    async def answer(event):
        seen.append(line.map.pending_count)
        await line.map.respond(event.request_id, _envelope(7))
        seen.append(line.map.pending_count)

    line = _Line(answer=answer)
    envelope = await line.map.call("shop.price", {"n": 1})
    assert envelope.data == 7
    assert seen[0] == 1
    line.assert_empty()


@_story
async def test_the_request_carries_everything_that_the_caller_said():
    line = _Line()
    identity = Identity("ann", ["shop:read"])
    deadline = _in(HOUR)
    task, request_id = await line.open_call(
        parent_request_id="p-1",
        deadline=deadline,
        identity=identity,
        metadata={"trace": "t"},
        chain=("a.b",),
    )
    event = line.request
    assert (event.request_id, event.operation_id, event.input) == (request_id, "shop.price", {})
    assert event.parent_request_id == "p-1"
    assert event.deadline == deadline
    assert event.identity == identity
    assert event.metadata == {"trace": "t"}
    assert event.chain == ("a.b",)
    assert event.stream is False
    await line.map.respond(request_id, _envelope())
    await task


@_story
async def test_arguments_that_were_not_given_are_an_empty_object():
    async def answer(event):
        await line.map.respond(event.request_id, _envelope(event.input))

    line = _Line(answer=answer)
    assert (await line.map.call("shop.price")).data == {}
    assert (await line.map.call("shop.price", [])).data == []
    assert [e.data async for e in _first(line.map.subscribe("shop.price"))] == [{}]


async def _first(stream):
    async with aclosing(stream):
        async for envelope in stream:
            yield envelope
            return


@pytest.mark.parametrize("wrong", [None, 5, ["shop.price"], b"shop.price", {}], ids=repr)
@pytest.mark.parametrize("way", ["call", "subscribe"])
@_story
async def test_a_tool_id_that_is_no_text_is_wrong_use_and_nothing_is_published(wrong, way):
    line = _Line()
    asked = line.map.call(wrong) if way == "call" else anext(line.map.subscribe(wrong))
    with pytest.raises(UsageError) as caught:
        await asyncio.wait_for(asked, SOON)
    assert repr(wrong) in str(caught.value)
    assert line.events == []
    line.assert_empty()


@_story
async def test_request_ids_are_uuids_and_differ():
    async def answer(event):
        await line.map.respond(event.request_id, _envelope())

    line = _Line(answer=answer)
    other = PendingRequestMap(line.bus)
    for _ in range(200):
        await line.map.call("shop.price")
        await other.call("shop.price")
        async with aclosing(line.map.subscribe("shop.price")) as stream:
            await anext(stream)
    ids = [event.request_id for event in line.events if event.type == "call.requested"]
    assert len(set(ids)) == 600
    for request_id in ids:
        parsed = uuid.UUID(request_id)
        assert str(parsed) == request_id
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


def test_request_ids_differ_after_a_fork():
    script = """if True:
        import os, sys
        from callpact.protocol.events import new_id
        new_id()
        read, write = os.pipe()
        children = []
        for _ in range(2):
            child = os.fork()
            if not child:
                os.write(write, "".join(new_id() + "\\n" for _ in range(50)).encode())
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        os.close(write)
        own = [new_id() for _ in range(50)]
        ids = own + os.fdopen(read).read().split()
        print(len(ids), len(set(ids)))
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["150", "150"]


# --- calls: answers -------------------------------------------------------------------------


@_story
async def test_the_first_answer_wins_and_later_ones_are_dropped():
    line = _Line()
    task, request_id = await line.open_call()
    await line.map.respond(request_id, _envelope("first"))
    await line.map.respond(request_id, _envelope("second"))
    await line.map.emit_error(request_id, ToolError("late", "too late"))
    await line.bus.publish(CallAborted(request_id))
    await line.map.complete(request_id)
    assert (await task).data == "first"
    await line.map.respond(request_id, _envelope("third"))
    assert line.types == [
        "requested", "responded", "responded", "error", "aborted", "completed", "responded",
    ]  # fmt: skip
    line.assert_empty()


@_story
async def test_the_envelope_of_the_answer_is_the_callers_result():
    own = mcp_envelope([], is_error=True, content=[TextBlock("no such shop")])
    line = _Line()
    task, request_id = await line.open_call()
    await line.map.respond(request_id, own)
    assert await task is own


@pytest.mark.parametrize("first", ["error", "aborted", "completed"])
@_story
async def test_an_answer_after_the_end_changes_nothing(first):
    line = _Line()
    task, request_id = await line.open_call()
    end = {
        "error": CallFailed(request_id, "SOLD_OUT", "none left"),
        "aborted": CallAborted(request_id),
        "completed": CallCompleted(request_id),
    }[first]
    await line.bus.publish(end)
    assert line.map.pending_count == 0
    await line.map.respond(request_id, _envelope())
    with pytest.raises(CallError) as caught:
        await task
    assert caught.value.code == ("SOLD_OUT" if first == "error" else "aborted")
    line.assert_empty()


@_story
async def test_events_of_unknown_requests_are_dropped():
    line = _Line()
    task, request_id = await line.open_call()
    for stray in ("", "no-such-request", request_id + "0", request_id[:-1]):
        await line.map.respond(stray, _envelope())
        await line.map.emit_error(stray, ToolError("x", "y"))
        await line.bus.publish(CallAborted(stray))
        await line.map.complete(stray)
    assert line.map.pending_count == 1
    assert not task.done()
    await line.map.respond(request_id, _envelope(1))
    assert (await task).data == 1


ERRORS = [
    (restored("schema_validation_failed", "m", issues=[Issue("type", "m", "/n")]), InvalidInput),
    (NotAllowed("component_not_on_palette", "no such component"), NotAllowed),
    (NotAllowed("component_not_allowed", "not here"), NotAllowed),
    (AccessDenied(details={"missing": ["shop:read"]}), AccessDenied),
    (UnknownTool("shop.prise", ["shop.price"]), UnknownTool),
    (CallError("tool_error", "said so"), CallError),
    (Failed("address_not_allowed", "a private address"), Failed),
    (UpstreamError("it said 503", details={"statusCode": 503}), UpstreamError),
    (Failed("server_param_missing", "no key"), Failed),
    (restored("output_validation_failed", "m", issues=[Issue("type", "m", "")]), OutputRejected),
    (Timeout("shop.price", 5.0), Timeout),
    (Aborted("shop.price"), Aborted),
    (HandlerCrashed("shop.price"), HandlerCrashed),
    (ToolError("sold_out", "none left", details={"left": 0}), ToolError),
    (ToolError("NO_SUCH_SHOP", "none"), ToolError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=lambda value: getattr(value, "code", ""))
@pytest.mark.parametrize("way", ["call", "subscribe"])
@_story
async def test_an_error_crosses_the_bus_with_class_code_message_and_details(error, kind, way):
    async def answer(event):
        await line.map.emit_error(event.request_id, error)

    line = _Line(answer=answer)
    with pytest.raises(CallError) as caught:
        await line.ask(way)
    came = caught.value
    assert type(came) is kind
    assert (came.code, came.message, came.details) == (error.code, error.message, error.details)
    assert [issue.path for issue in came.issues] == [issue.path for issue in error.issues]
    assert line.types == ["requested", "error"]
    line.assert_empty()


@pytest.mark.parametrize(
    "details", [{"path": "/etc/passwd"}, {"code": "E42"}, {"issues": ["a", "b"]}, {"path": 3}]
)
@pytest.mark.parametrize("make", [ToolError, UpstreamError])
@_story
async def test_details_cross_the_bus_whatever_their_keys_are_called(make, details):
    error = make("e", "m", details=details) if make is ToolError else make("m", details=details)

    async def answer(event):
        await line.map.emit_error(event.request_id, error)

    line = _Line(answer=answer)
    with pytest.raises(make) as caught:
        await line.map.call("shop.price")
    assert caught.value.code == error.code
    assert caught.value.details == details
    assert caught.value.path is None


@_story
async def test_an_error_of_another_implementation_is_raised_with_its_code():
    async def answer(event):
        await line.bus.publish(CallFailed(event.request_id, *told))

    line = _Line(answer=answer)
    for told, kind, code in [
        (("EXECUTION_ERROR", "broke"), HandlerCrashed, "handler_error"),
        (("UNKNOWN_ERROR", "broke"), HandlerCrashed, "handler_error"),
        (("VALIDATION_ERROR", "bad", [{"path": "/n", "message": "m"}]), InvalidInput,
         "schema_validation_failed"),
        (("OPERATION_NOT_FOUND", "none", "text"), UnknownTool, "tool_not_found"),
        (("SOLD_OUT", "none", 5), ToolError, "SOLD_OUT"),
    ]:  # fmt: skip
        with pytest.raises(kind) as caught:
            await line.map.call("shop.price")
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.message) == (code, told[1])


@pytest.mark.parametrize("event", [CallAborted, CallCompleted])
@_story
async def test_a_call_that_is_aborted_or_completed_without_an_answer_is_aborted(event):
    line = _Line()
    task, request_id = await line.open_call()
    await line.bus.publish(event(request_id))
    with pytest.raises(Aborted) as caught:
        await task
    assert caught.value.code == "aborted"
    assert line.types.count("aborted") == (event is CallAborted)
    line.assert_empty()


@_story
async def test_many_calls_get_each_their_own_answer_in_any_order():
    line = _Line()
    tasks = [asyncio.ensure_future(line.map.call("shop.price", {"n": n})) for n in range(100)]
    await _settle()
    assert line.map.pending_count == 100
    for event in reversed(line.events[:]):
        await line.map.respond(event.request_id, _envelope(event.input["n"]))
    assert line.map.pending_count == 0
    assert [(await task).data for task in tasks] == list(range(100))


@_story
async def test_two_maps_on_one_bus_each_hear_their_own_answers():
    line = _Line()
    other = PendingRequestMap(line.bus)
    mine, my_id = await line.open_call()
    theirs = asyncio.ensure_future(other.call("shop.price"))
    await _settle()
    their_id = line.events[-1].request_id
    await line.map.respond(their_id, _envelope("theirs"))
    await other.respond(my_id, _envelope("mine"))
    assert [(await mine).data, (await theirs).data] == ["mine", "theirs"]
    assert (line.map.pending_count, other.pending_count) == (0, 0)


# --- calls: deadlines -----------------------------------------------------------------------


@pytest.mark.parametrize("bus", [LocalBus, _LateBus])
@_story
async def test_a_deadline_that_passes_is_a_timeout_and_the_other_side_is_told(bus):
    line = _Line(bus())
    deadline = _in(HOUR)
    with pytest.raises(Timeout) as caught:
        await line.map.call("shop.price", deadline=deadline)
    assert type(caught.value) is Timeout
    assert caught.value.code == "timeout"
    assert caught.value.details == {"deadline": deadline}
    assert line.types == ["requested", "aborted"]
    assert len({event.request_id for event in line.events}) == 1
    await line.map.respond(line.request.request_id, _envelope("late"))
    line.assert_empty()


@pytest.mark.parametrize("bus", [LocalBus, _LateBus])
@_story
async def test_an_answer_before_the_deadline_leaves_no_timer(bus):
    async def answer(event):
        await asyncio.sleep(0)
        await line.map.respond(event.request_id, _envelope(1))

    line = _Line(bus(), answer)
    assert (await line.map.call("shop.price", deadline=_in(HOUR))).data == 1
    line.assert_empty()


@pytest.mark.parametrize("deadline", [0, -5.0, 1, -(10**30)])
@pytest.mark.parametrize("way", ["call", "subscribe"])
@_story
async def test_a_deadline_in_the_past_fails_at_once_and_nothing_is_published(deadline, way):
    line = _Line()
    with pytest.raises(Timeout) as caught:
        await line.ask(way, deadline=deadline)
    assert caught.value.code == "timeout"
    assert caught.value.details == {"deadline": deadline}
    assert line.events == []
    line.assert_empty()


@pytest.mark.parametrize(
    "wrong",
    [float("nan"), float("inf"), float("-inf"), True, False, "1", b"1", [1], 10**400],
    ids=lambda value: f"{value!r:.9}",
)
@pytest.mark.parametrize(
    ("way", "name"),
    [("call", "deadline"), ("subscribe", "deadline"), ("subscribe", "idle_timeout")],
)
@_story
async def test_a_deadline_that_is_no_number_is_wrong_use(wrong, way, name):
    line = _Line()
    with pytest.raises(UsageError):
        await line.ask(way, **{name: wrong})
    assert line.events == []
    line.assert_empty()


@pytest.mark.parametrize("wrong", [0, -1, 0.0])
@_story
async def test_an_idle_timeout_is_positive(wrong):
    line = _Line()
    with pytest.raises(UsageError):
        await anext(line.open_stream(idle_timeout=wrong))
    assert line.events == []


@_story
async def test_a_bus_that_hangs_does_not_hold_a_call_beyond_its_deadline():
    line = _Line(_StuckBus("call.requested"))
    deadline = _in(1000)
    with pytest.raises(Timeout) as caught:
        async with asyncio.timeout(SOON):
            await line.map.call("shop.price", deadline=deadline)
    assert caught.value.details == {"deadline": deadline}
    with pytest.raises(Timeout):
        async with asyncio.timeout(SOON):
            await anext(line.open_stream(deadline=deadline))
    line.assert_empty()


@_story
async def test_a_bus_that_hangs_does_not_keep_a_caller_from_giving_up():
    line = _Line(_StuckBus("call.aborted"))
    with pytest.raises(Timeout):
        async with asyncio.timeout(SOON):
            await line.map.call("shop.price", deadline=_in(HOUR / 3600))
    task, _ = await line.open_call()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(SOON):
            await task
    line.assert_empty()


@_story
async def test_what_happens_between_the_deadline_and_the_turn_of_the_caller_is_too_late():
    line = _Line()
    task, request_id = await line.open_call(deadline=_in(HOUR))
    (timer,) = _timers()
    timer._run()
    line.bus.deliver(CallResponded(request_id, _envelope("late")))
    line.bus.deliver(CallFailed(request_id, "LATE", ""))
    with pytest.raises(Timeout):
        await task
    line.assert_empty()


@_story
async def test_an_answer_before_the_turn_of_the_timer_counts():
    line = _Line()
    task, request_id = await line.open_call(deadline=_in(HOUR))
    (timer,) = _timers()
    line.bus.deliver(CallResponded(request_id, _envelope("in time")))
    timer._run()
    assert (await task).data == "in time"
    assert line.types == ["requested", "responded"]
    line.assert_empty()


# --- calls: a bus that fails ----------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [ConnectionError("10.0.0.7 refused"), ValueError(), RuntimeError("x"), TimeoutError()]
)
@pytest.mark.parametrize("deadline", [None, HOUR])
@pytest.mark.parametrize("way", ["call", "subscribe"])
@_story
async def test_a_bus_that_raises_is_an_upstream_error_and_nothing_waits(error, deadline, way):
    line = _Line(_BrokenBus(error, "call.requested"))
    options = {} if deadline is None else {"deadline": _in(deadline)}
    with pytest.raises(CallError) as caught:
        await line.ask(way, **options)
    assert type(caught.value) is UpstreamError
    assert caught.value.code == "upstream_error"
    assert "10.0.0.7" not in str(caught.value)
    line.assert_empty()


@pytest.mark.parametrize(
    "error", [ToolError("full", "try later"), AccessDenied(), UsageError("closed")]
)
@pytest.mark.parametrize("way", ["call", "subscribe"])
@_story
async def test_errors_of_ours_that_a_bus_raises_pass_as_they_are(error, way):
    line = _Line(_BrokenBus(error, "call.requested"))
    with pytest.raises(type(error)) as caught:
        await line.ask(way, deadline=_in(HOUR))
    assert caught.value is error
    line.assert_empty()


@_story
async def test_a_bus_that_fails_to_tell_of_an_end_changes_nothing_for_the_caller():
    line = _Line(_BrokenBus(ConnectionError(), "call.aborted"))
    with pytest.raises(Timeout):
        await line.map.call("shop.price", deadline=_in(HOUR))
    task, _ = await line.open_call()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    line.assert_empty()


# --- calls: cancellation --------------------------------------------------------------------


@_story
async def test_a_caller_that_is_cancelled_tells_so():
    line = _Line()
    task, request_id = await line.open_call()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.events[1:] == [CallAborted(request_id)]
    line.assert_empty()


@_story
async def test_a_caller_that_is_cancelled_while_the_bus_takes_the_request_tells_so():
    line = _Line(_StuckBus("call.requested"))
    task = asyncio.ensure_future(line.map.call("shop.price"))
    await _settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.types == ["aborted"]
    line.assert_empty()


@_story
async def test_a_caller_that_runs_out_of_its_own_time_is_cancelled_not_timed_out():
    line = _Line()
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(1):
            await line.map.call("shop.price")
    assert not isinstance(caught.value, CallError)
    assert line.types == ["requested", "aborted"]
    line.assert_empty()


@_story
async def test_a_caller_that_is_cancelled_after_the_answer_tells_nothing():
    line = _Line()
    task, request_id = await line.open_call()
    await line.map.respond(request_id, _envelope())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.types == ["requested", "responded"]
    line.assert_empty()


@_story
async def test_a_caller_that_is_cancelled_with_the_first_envelope_of_a_subscription_stops_it():
    line = _Line()
    task, request_id = await line.open_call()
    await line.map.respond(request_id, _envelope(), seq=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.types == ["requested", "responded", "aborted"]
    line.assert_empty()


@_story
async def test_the_first_envelope_of_a_subscription_that_comes_after_a_cancellation_stops_it_too():
    line = _Line()
    task, request_id = await line.open_call()
    task.cancel()
    await line.map.respond(request_id, _envelope(), seq=0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.types == ["requested", "responded", "aborted"]
    line.assert_empty()


@_story
async def test_a_call_answered_by_a_subscription_takes_the_first_envelope_and_stops_the_rest():
    line = _Line()
    task, request_id = await line.open_call()
    await line.map.respond(request_id, _envelope("first"), seq=0)
    assert (await task).data == "first"
    assert line.events[2:] == [CallAborted(request_id)]
    line.assert_empty()


# --- respond, abort, complete, aclose -------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        None,
        5,
        "text",
        b"bytes",
        [],
        {},
        {"data": 1},
        {"meta": {"source": "local"}},
        {"data": 1, "meta": None},
        {"data": 1, "meta": {}},
        {"data": 1, "meta": []},
        {"data": 1, "meta": {"source": "ftp"}},
        {"data": 1, "meta": {"source": ["local"]}},
        {"data": 1, "meta": "local"},
        [{"data": 1, "meta": {"source": "local"}}],
        LocalResponseMeta("a.b", 1),
        ResponseEnvelope,
    ],
    ids=repr,
)
@_story
async def test_a_raw_value_is_never_a_response(raw):
    line = _Line()
    task, request_id = await line.open_call()
    for target in (request_id, "unknown"):
        with pytest.raises(NotAnEnvelope) as caught:
            await line.map.respond(target, raw)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, UsageError)
    assert line.types == ["requested"]
    assert not task.done()
    await line.map.respond(request_id, _envelope())
    await task


@pytest.mark.parametrize(
    "wire",
    [
        {"data": 1, "meta": {"source": "local"}},
        {"data": None, "meta": {"source": "mcp"}},
        {"data": 1, "meta": {"source": "http", "statusCode": 200, "headers": {}}},
        MappingProxyType({"data": 1, "meta": MappingProxyType({"source": "local"})}),
        {"data": 1, "meta": LocalResponseMeta("a.b", 5)},
        {"data": 1, "meta": {"source": "local"}, "extra": 1},
        {"data": {"data": 1, "meta": {"source": "mcp"}}, "meta": {"source": "local"}},
    ],
    ids=repr,
)
@_story
async def test_a_mapping_that_is_an_envelope_becomes_one(wire):
    line = _Line()
    task, request_id = await line.open_call()
    await line.map.respond(request_id, wire)
    envelope = await task
    assert type(envelope) is ResponseEnvelope
    assert envelope.data == wire["data"]
    meta = wire["meta"]
    source = meta.source if isinstance(meta, LocalResponseMeta) else meta["source"]
    assert envelope.meta.source == source
    assert line.events[-1].output is envelope


@_story
async def test_a_response_to_an_unknown_request_is_published_all_the_same():
    line = _Line()
    envelope = http_envelope(1, status_code=200, headers={}, content_type="")
    await line.map.respond("unknown", envelope, seq=4)
    assert line.events == [CallResponded("unknown", envelope, 4)]
    assert line.events[0].output is envelope


@_story
async def test_abort_ends_what_waits_here_and_says_nothing_of_what_does_not():
    line = _Line()
    other = PendingRequestMap(line.bus)
    task, request_id = await line.open_call()
    await line.map.abort("unknown")
    await other.abort(request_id)
    assert line.types == ["requested"]
    await line.map.abort(request_id)
    await line.map.abort(request_id)
    with pytest.raises(Aborted):
        await task
    await line.map.abort(request_id)
    assert line.types == ["requested", "aborted"]
    line.assert_empty()


@_story
async def test_a_map_waits_for_so_many_requests_and_refuses_one_more(monkeypatch):
    monkeypatch.setattr(pending, "MAX_PENDING", 2)

    line = _Line()
    open_calls = [await line.open_call(), await line.open_call()]
    for refused in (line.map.call("shop.price"), anext(line.open_stream())):
        with pytest.raises(Failed) as caught:
            await refused
        assert caught.value.code == "aborted"
    assert line.types == ["requested"] * 2
    for task, request_id in open_calls:
        await line.map.respond(request_id, _envelope())
        await task
    await (await _answered(line))[0]


async def _answered(line):
    task, request_id = await line.open_call()
    await line.map.respond(request_id, _envelope())
    return task, request_id


@_story
async def test_closing_a_map_ends_who_waits_and_tells_the_other_side():
    line = _Line()
    calls = [await line.open_call(deadline=None) for _ in range(3)]
    stream = line.open_stream()
    read = asyncio.ensure_future(anext(stream, "ended"))
    await _settle()
    ids = [event.request_id for event in line.events]
    await line.map.aclose()
    for task, _ in calls:
        with pytest.raises(Aborted):
            await task
    assert await read == "ended"
    assert [event.request_id for event in line.events[4:]] == ids
    assert set(line.types[4:]) == {"aborted"}
    await line.map.aclose()
    line.assert_empty()


@_story
async def test_a_closed_map_hears_nothing_and_others_on_the_bus_do():
    line = _Line()
    other = PendingRequestMap(line.bus)
    await line.map.aclose()
    task = asyncio.ensure_future(other.call("shop.price"))
    await _settle()
    await other.respond(line.events[-1].request_id, _envelope(1))
    assert (await task).data == 1


@pytest.mark.parametrize(
    "bus", [_StuckBus("call.aborted"), _BrokenBus(ConnectionError(), "call.aborted")]
)
@_story
async def test_closing_a_map_ends_who_waits_even_if_the_bus_is_stuck_or_broken(bus):
    line = _Line(bus)
    calls = [await line.open_call() for _ in range(5)]
    async with asyncio.timeout(SOON):
        await line.map.aclose()
        for task, _ in calls:
            with pytest.raises(Aborted):
                await task
    line.assert_empty()


# --- subscriptions --------------------------------------------------------------------------


def _producer(*data, end="complete", seq=True, count=True):
    """Answers a request with envelopes, all at once."""

    def build(line):
        async def answer(event):
            for number, item in enumerate(data):
                await line.map.respond(
                    event.request_id, _envelope(item), seq=number if seq else None
                )
            if end == "complete":
                await line.map.complete(event.request_id, count=len(data) if count else None)
            elif end is not None:
                await line.bus.publish(end(event.request_id))

        return answer

    return build


def _produced(*data, bus=None, **how):
    line = _Line(bus)
    line.bus.subscribe("call.requested", _producer(*data, **how)(line))
    return line


async def _read(stream):
    async with aclosing(stream):
        return [envelope.data async for envelope in stream]


@pytest.mark.parametrize("seq", [True, False])
@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("bus", [LocalBus, _LateBus])
@_story
async def test_a_subscription_gives_every_envelope_in_order_and_ends(seq, count, bus):
    line = _produced(*range(50), seq=seq, count=count, bus=bus())
    got = []
    async for envelope in line.open_stream():
        assert envelope.warnings == ()
        got.append(envelope.data)
    assert got == list(range(50))
    assert line.types == ["requested", *["responded"] * 50, "completed"]
    line.assert_empty()


@_story
async def test_a_subscription_asks_for_a_stream_with_all_that_the_caller_said():
    line = _produced()
    identity = Identity("ann")
    deadline = _in(HOUR)
    stream = line.map.subscribe(
        "shop.price",
        {"n": 1},
        parent_request_id="p",
        deadline=deadline,
        idle_timeout=250.0,
        identity=identity,
        metadata={"a": 1},
        chain=("x.y",),
    )
    assert await _read(stream) == []
    event = line.request
    assert event.stream is True
    assert (event.operation_id, event.input) == ("shop.price", {"n": 1})
    assert (event.parent_request_id, event.deadline, event.idle_timeout) == ("p", deadline, 250)
    assert (event.identity, event.metadata, event.chain) == (identity, {"a": 1}, ("x.y",))


@_story
async def test_a_subscription_that_nobody_reads_asks_for_nothing():
    line = _Line()
    stream = line.open_stream()
    await stream.aclose()
    assert line.events == []
    line.assert_empty()


@_story
async def test_an_empty_subscription_ends_at_once():
    line = _produced()
    assert await _read(line.open_stream()) == []
    assert line.types == ["requested", "completed"]


@_story
async def test_a_subscription_waits_for_what_comes_later():
    line = _Line()
    stream = line.open_stream()
    for number in range(3):
        read = asyncio.ensure_future(anext(stream))
        await _settle()
        assert not read.done()
        await line.map.respond(line.request.request_id, _envelope(number), seq=number)
        assert (await read).data == number
    read = asyncio.ensure_future(anext(stream, "ended"))
    await _settle()
    await line.map.complete(line.request.request_id, count=3)
    assert await read == "ended"
    line.assert_empty()


@pytest.mark.parametrize("end", [CallAborted, CallCompleted])
@_story
async def test_aborted_and_completed_end_a_subscription_after_what_came_before(end):
    line = _produced(1, 2, end=end)
    assert await _read(line.open_stream()) == [1, 2]
    assert line.types == ["requested", "responded", "responded", end.type[5:]]
    line.assert_empty()


@_story
async def test_an_error_is_raised_after_what_came_before_was_delivered():
    line = _produced(
        1, 2, end=lambda request_id: CallFailed(request_id, "SOLD_OUT", "none left", {"n": 2})
    )
    got, error = await _outcome(line.open_stream())
    assert type(error) is ToolError
    assert got == [1, 2]
    assert (error.code, error.details) == ("SOLD_OUT", {"n": 2})
    assert line.types == ["requested", "responded", "responded", "error"]
    line.assert_empty()


@_story
async def test_what_comes_after_the_end_of_a_subscription_is_dropped():
    line = _produced(1)
    stream = line.open_stream()
    assert (await anext(stream)).data == 1
    await line.map.respond(line.request.request_id, _envelope(2), seq=1)
    await line.map.emit_error(line.request.request_id, ToolError("late", "late"))
    assert await _read(stream) == []
    line.assert_empty()


# --- subscriptions: stopping early ----------------------------------------------------------


@_story
async def test_stopping_early_is_told_once():
    line = _produced(*range(9), end=None)
    async with aclosing(line.open_stream()) as stream:
        async for envelope in stream:
            if envelope.data == 3:
                break
    assert line.types == ["requested", *["responded"] * 9, "aborted"]
    assert line.events[-1] == CallAborted(line.request.request_id)
    line.assert_empty()


@_story
async def test_an_exception_of_the_reader_stops_the_subscription():
    line = _produced(1, end=None)

    async def read():
        async with aclosing(line.open_stream()) as stream:
            async for envelope in stream:
                envelope.data / 0

    with pytest.raises(ZeroDivisionError):
        await read()
    assert line.types == ["requested", "responded", "aborted"]
    line.assert_empty()


@pytest.mark.parametrize("sent", [0, 1])
@_story
async def test_a_reader_that_is_cancelled_stops_the_subscription(sent):
    line = _produced(*range(sent), end=None)
    read = asyncio.ensure_future(_read(line.open_stream()))
    await _settle()
    read.cancel()
    with pytest.raises(asyncio.CancelledError):
        await read
    assert line.types == ["requested", *["responded"] * sent, "aborted"]
    line.assert_empty()


@_story
async def test_a_reader_that_is_cancelled_while_the_bus_takes_the_request_tells_so():
    line = _Line(_StuckBus("call.requested"))
    read = asyncio.ensure_future(_read(line.open_stream()))
    await _settle()
    read.cancel()
    with pytest.raises(asyncio.CancelledError):
        await read
    assert line.types == ["aborted"]
    line.assert_empty()


@_story
async def test_a_subscription_that_is_dropped_is_stopped_when_it_is_collected():
    line = _produced(1, 2, end=None)
    stream = line.open_stream()
    await anext(stream)
    del stream
    gc.collect()
    await _settle()
    assert line.types == ["requested", "responded", "responded", "aborted"]
    line.assert_empty()


@_story
async def test_stopping_after_the_producer_ended_tells_nothing():
    line = _produced(1, 2, 3)
    async with aclosing(line.open_stream()) as stream:
        assert (await anext(stream)).data == 1
    assert line.types == ["requested", *["responded"] * 3, "completed"]
    line.assert_empty()


# --- subscriptions: time --------------------------------------------------------------------


@_story
async def test_a_silence_that_is_too_long_ends_a_subscription():
    line = _produced(1, end=None)
    got, error = await _outcome(line.open_stream(idle_timeout=500))
    assert type(error) is Silent
    assert got == [1]
    assert isinstance(error, Timeout)
    assert error.code == "timeout"
    assert error.details == {"idleTimeout": 500}
    assert line.types == ["requested", "responded", "aborted"]
    assert asyncio.get_running_loop().time() == pytest.approx(0.5, abs=0.01)
    line.assert_empty()


@_story
async def test_the_silence_is_counted_anew_with_each_envelope():
    async def answer(event):
        for number in range(20):
            await asyncio.sleep(0.4)
            await line.map.respond(event.request_id, _envelope(number), seq=number)

    line = _Line(answer=answer)
    got, error = await _outcome(line.open_stream(idle_timeout=500))
    assert type(error) is Silent
    assert got == list(range(20))
    assert asyncio.get_running_loop().time() == pytest.approx(20 * 0.4 + 0.5, abs=0.01)
    line.assert_empty()


@_story
async def test_what_the_reader_takes_its_time_for_is_no_silence():
    line = _produced(1, 2, 3)
    got = []
    async for envelope in line.open_stream(idle_timeout=500):
        await asyncio.sleep(10)
        got.append(envelope.data)
    assert got == [1, 2, 3]
    line.assert_empty()


@_story
async def test_envelopes_that_came_before_do_not_break_a_silence():
    async def answer(event):
        for _ in range(20):
            await line.map.respond(event.request_id, _envelope(), seq=0)
            await asyncio.sleep(0.4)

    line = _Line(answer=answer)
    got, error = await _outcome(line.open_stream(idle_timeout=500))
    assert type(error) is Silent
    assert got == [None]
    await line.bus.aclose()


@pytest.mark.parametrize("idle", [None, 10 * HOUR])
@_story
async def test_a_subscription_ends_at_its_deadline(idle):
    line = _produced(1, end=None)
    deadline = _in(HOUR)
    got, error = await _outcome(line.open_stream(deadline=deadline, idle_timeout=idle))
    assert got == [1]
    assert type(error) is Timeout
    assert error.details == {"deadline": deadline}
    assert line.types == ["requested", "responded", "aborted"]
    line.assert_empty()


@_story
async def test_of_silence_and_deadline_the_nearer_one_ends_a_subscription():
    line = _Line()
    with pytest.raises(Silent):
        await anext(line.open_stream(deadline=_in(2 * HOUR), idle_timeout=HOUR))
    with pytest.raises(Timeout) as caught:
        await anext(line.open_stream(deadline=_in(HOUR), idle_timeout=2 * HOUR))
    assert type(caught.value) is Timeout
    line.assert_empty()


# --- subscriptions: what gets lost ----------------------------------------------------------


def _numbered(*pairs, count=None):
    """A line whose producer sends these sequence numbers."""
    line = _Line()

    async def answer(event):
        for seq in pairs:
            await line.map.respond(event.request_id, _envelope(seq), seq=seq)
        await line.map.complete(event.request_id, count=count)

    line.bus.subscribe("call.requested", answer)
    return line


@pytest.mark.parametrize(
    ("sent", "got", "gaps"),
    [
        ([0, 1, 2], [0, 1, 2], {}),
        ([0, 2], [0, 2], {2: 1}),
        ([3], [3], {3: 3}),
        ([0, 4, 5, 7], [0, 4, 5, 7], {4: 3, 7: 1}),
        ([0, 0, 1], [0, 1], {}),
        ([0, 1, 0, 1, 2], [0, 1, 2], {}),
        ([1, 0, 2], [1, 2], {1: 1}),
    ],
)
@_story
async def test_gaps_are_warnings_of_the_next_envelope_and_repeats_are_dropped(sent, got, gaps):
    line = _numbered(*sent)
    envelopes = [envelope async for envelope in line.open_stream()]
    assert [envelope.data for envelope in envelopes] == got
    warned = {e.data: e.warnings for e in envelopes if e.warnings}
    assert warned.keys() == gaps.keys()
    for data, (issue,) in warned.items():
        assert issue.code == "gap"
        assert issue.message.startswith(str(gaps[data]))
    line.assert_empty()


@_story
async def test_a_gap_stands_beside_the_warnings_that_the_envelope_has():
    line = _Line()
    own = ResponseEnvelope(5, LocalResponseMeta("a.b", 1), (Issue("type", "m"),))

    async def answer(event):
        await line.map.respond(event.request_id, own, seq=1)

    line.bus.subscribe("call.requested", answer)
    async with aclosing(line.open_stream()) as stream:
        envelope = await anext(stream)
    assert [issue.code for issue in envelope.warnings] == ["type", "gap"]
    assert (envelope.data, envelope.meta) == (own.data, own.meta)
    assert [issue.code for issue in own.warnings] == ["type"]


@pytest.mark.parametrize(
    ("sent", "count", "is_lost"),
    [
        ([0, 1], 2, False),
        ([0, 1], 3, True),
        ([], 0, False),
        ([], 1, True),
        ([0, 1], None, False),
        ([0, 2], 3, False),
        ([0, 1], 1, False),
    ],
)
@_story
async def test_results_that_were_lost_at_the_end_show_by_the_count(sent, count, is_lost):
    line = _numbered(*sent, count=count)
    got, error = await _outcome(line.open_stream())
    assert got == sent
    assert (error is not None) == is_lost
    assert error is None or error.code == "aborted"
    assert "aborted" not in line.types
    line.assert_empty()


@_story
async def test_a_producer_without_numbers_that_loses_its_last_results_shows_by_the_count():
    line = _Line()

    async def answer(event):
        await line.map.respond(event.request_id, _envelope(1))
        await line.map.complete(event.request_id, count=2)

    line.bus.subscribe("call.requested", answer)
    stream = line.open_stream()
    assert (await anext(stream)).data == 1
    with pytest.raises(Failed) as caught:
        await anext(stream)
    assert caught.value.code == "aborted"
    line.assert_empty()


# --- subscriptions: slow readers ------------------------------------------------------------


@pytest.mark.parametrize("unread", [3, 4, 100])
@_story
async def test_a_reader_that_falls_too_far_behind_is_ended_and_the_producer_told(
    unread, monkeypatch
):
    monkeypatch.setattr(pending, "MAX_UNREAD", 3)

    line = _produced(*range(unread), end=None)
    is_full = unread > 3
    got, error = await _outcome(line.open_stream(idle_timeout=HOUR))
    # What was kept is delivered, in order; nothing is skipped without a word.
    assert got == list(range(min(unread, 3)))
    assert type(error) is (Failed if is_full else Silent)
    assert error.code == ("aborted" if is_full else "timeout")
    await _settle()
    assert line.types.count("aborted") == 1
    assert line.events[-1] == CallAborted(line.request.request_id)
    line.assert_empty()


@pytest.mark.parametrize("bus", [LocalBus, _LateBus])
@_story
async def test_a_producer_is_told_of_a_reader_that_fell_behind_before_it_reads_on(bus, monkeypatch):
    monkeypatch.setattr(pending, "MAX_UNREAD", 3)

    line = _Line(bus())
    stream = line.open_stream()
    first = asyncio.ensure_future(anext(stream))
    await _settle()
    request_id = line.request.request_id

    async def respond(number):
        await line.map.respond(request_id, _envelope(number), seq=number)
        await _settle()

    await respond(0)
    assert (await first).data == 0
    for number in (1, 2, 3):
        await respond(number)
    assert "aborted" not in line.types
    await respond(4)
    assert line.types.count("aborted") == 1
    assert line.map.pending_count == 0
    await respond(5)
    got, error = await _outcome(stream)
    assert got == [1, 2, 3]
    assert type(error) is Failed
    assert error.code == "aborted"
    assert line.types.count("aborted") == 1
    line.assert_empty()


@pytest.mark.parametrize(
    "bus", [_StuckBus("call.aborted"), _BrokenBus(ConnectionError(), "call.aborted")]
)
@_story
async def test_a_bus_that_cannot_tell_the_producer_changes_nothing_for_who_fell_behind(
    bus, monkeypatch
):
    monkeypatch.setattr(pending, "MAX_UNREAD", 3)

    line = _produced(*range(5), end=None, bus=bus)
    got, error = await asyncio.wait_for(_outcome(line.open_stream()), SOON)
    assert got == [0, 1, 2]
    assert error.code == "aborted"
    await asyncio.sleep(SOON)
    line.assert_empty()


@_story
async def test_as_many_unread_envelopes_as_allowed_and_then_the_end_are_all_read(monkeypatch):
    monkeypatch.setattr(pending, "MAX_UNREAD", 3)

    line = _produced(1, 2, 3)
    assert await _read(line.open_stream()) == [1, 2, 3]
    assert line.types == ["requested", *["responded"] * 3, "completed"]
    line.assert_empty()


@_story
async def test_as_many_unread_envelopes_as_allowed_do_not_hide_the_error_behind_them(monkeypatch):
    monkeypatch.setattr(pending, "MAX_UNREAD", 3)

    line = _produced(
        1, 2, 3, end=lambda request_id: CallFailed(request_id, "SOLD_OUT", "none left")
    )
    got, error = await _outcome(line.open_stream())
    assert type(error) is ToolError
    assert got == [1, 2, 3]
    assert error.code == "SOLD_OUT"


@_story
async def test_a_reader_that_keeps_up_is_never_ended(monkeypatch):
    monkeypatch.setattr(pending, "MAX_UNREAD", 2)

    async def answer(event):
        for number in range(100):
            await line.map.respond(event.request_id, _envelope(number), seq=number)
            await asyncio.sleep(0.01)
        await line.map.complete(event.request_id, count=100)

    line = _Line(answer=answer)
    assert await _read(line.open_stream()) == list(range(100))


# --- nothing is left ------------------------------------------------------------------------


def _leaky_tools():
    async def ok(arguments, context):
        return arguments["n"]

    async def later(arguments, context):
        await asyncio.sleep(0)
        return arguments["n"]

    async def fail(arguments, context):
        raise ToolError("sold_out", "none left")

    async def crash(arguments, context):
        await asyncio.sleep(0)
        raise KeyError("secret")

    async def hang(arguments, context):
        await _ever()

    async def ticks(arguments, context):
        for number in range(5):
            yield number
            await asyncio.sleep(0)

    async def forever(arguments, context):
        number = 0
        while True:
            yield number
            number += 1
            await asyncio.sleep(0.5)

    plain = {"ok": ok, "later": later, "fail": fail, "crash": crash, "hang": hang}
    streams = {"ticks": ticks, "forever": forever}
    for name, handler in (plain | streams).items():
        kind = "subscription" if name in streams else "mutation"
        yield Tool(id=f"t.{name}", description="", contract=Contract(), handler=handler, kind=kind)


@_story
async def test_ten_thousand_calls_of_every_kind_leave_nothing_behind():
    async def ended(awaitable, *kinds):
        if not kinds:
            return await awaitable
        with pytest.raises(kinds):
            await awaitable
        return None

    async def cancelled(line, tool_id, **options):
        task = asyncio.ensure_future(line.map.call(tool_id, {"n": 0}, **options))
        await asyncio.sleep(0)
        task.cancel()
        await ended(task, asyncio.CancelledError)

    async def aborted(line):
        task = asyncio.ensure_future(line.map.call("t.hang"))
        await asyncio.sleep(0)
        await line.map.abort(line.events[-1].request_id)
        await ended(task, Aborted)

    async def stopped(line, tool_id, **options):
        async with aclosing(line.map.subscribe(tool_id, **options)) as stream:
            await anext(stream)

    def one(line, n):
        call, far = line.map.call, _in(100 * HOUR)
        stories = [
            lambda: call("t.ok", {"n": n}),
            lambda: call("t.ok", {"n": n}, deadline=far),
            lambda: call("t.later", {"n": n}),
            lambda: call("t.later", {"n": n}, deadline=far),
            lambda: ended(call("t.fail"), ToolError),
            lambda: ended(call("t.crash", deadline=far), HandlerCrashed),
            lambda: ended(call("t.none"), UnknownTool),
            lambda: ended(call("t.hang", deadline=_in(HOUR)), Timeout),
            lambda: ended(call("t.hang", deadline=1), Timeout),
            lambda: ended(call("t.hang", deadline="1"), UsageError),
            lambda: cancelled(line, "t.hang"),
            lambda: cancelled(line, "t.hang", deadline=far),
            lambda: cancelled(line, "t.later"),
            lambda: aborted(line),
            lambda: _read(line.map.subscribe("t.ticks")),
            lambda: _read(line.map.subscribe("t.ticks", deadline=far, idle_timeout=HOUR)),
            lambda: stopped(line, "t.forever"),
            lambda: stopped(line, "t.ticks", deadline=far, idle_timeout=HOUR),
            lambda: ended(_read(line.map.subscribe("t.forever", idle_timeout=100)), Silent),
            lambda: ended(_read(line.map.subscribe("t.ok")), Failed),
            lambda: call("t.forever"),
        ]
        return stories[n % len(stories)]()

    line = _Line()
    line.bus.subscribe("call.requested", build_call_handler(Runtime(_leaky_tools()), line.map))
    before = asyncio.all_tasks()
    assert _timers() == []
    for start in range(0, 10_000, 50):
        line.events.clear()
        if start % 100:
            for n in range(start, start + 50):
                await one(line, n)
        else:  # `aborted` looks at the last event: only alone is it its own.
            crowd = [n for n in range(start, start + 50) if n % 21 != 13]
            await asyncio.gather(*(one(line, n) for n in crowd))
    await _settle()
    assert line.map.pending_count == 0
    assert line.map.answering == {}
    assert line.bus._tasks == set()
    assert _timers() == []
    assert asyncio.all_tasks() == before
