"""Whatever happens to many calls in whatever order: each ends once, with what came first.

The machines drive an event loop by hand, one turn at a time, so that things also happen between
the event that ends a call and the turn of whoever waits for it. The clock is theirs, too.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
)

import stories
from callpact.envelope import (
    LocalResponseMeta,
    ResponseEnvelope,
    TextBlock,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.errors import Aborted, CallError, Timeout, ToolError
from callpact.protocol import (
    CallAborted,
    CallCompleted,
    CallFailed,
    CallRequested,
    CallResponded,
    LocalBus,
    PendingRequestMap,
    build_call_handler,
)
from callpact.protocol.events import EVENT_TYPES
from callpact.runtime import Runtime
from callpact.schema import is_json
from callpact.tool import Contract, Tool

_tool, _JsonBus = stories.tool, stories.JsonBus
FAR = 1e9
"""Seconds after which every deadline of these stories is over."""


class _HandLoop(asyncio.SelectorEventLoop):
    """A loop that goes one turn when it is told to, and whose clock stands still."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def time(self):
        return self.now

    def turn(self):
        self.call_soon(self.stop)
        self.run_forever()

    def settle(self):
        while self._ready:
            self.turn()

    def timers(self):
        return [handle for handle in self._scheduled if not handle.cancelled()]

    def end(self):
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.settle()
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()


def _at_once(coroutine):
    """What a coroutine gives that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _envelope(data):
    return local_envelope(data, "t.tool")


class _Asked:
    """One call or subscription: its task, and what must come of it."""

    def __init__(self, task, read, *, has_deadline):
        self.task = task
        self.read = read
        """What the reader of a subscription has; None for a call."""
        self.has_deadline = has_deadline
        self.request_id = None
        self.end = None
        """The first thing that ended it; None while it is open."""
        self.got = []
        self.aborts = 0
        """How often the other side was told by somebody else."""
        self.gave_up = False
        """True if the caller had enough before the other side said anything of an end."""
        self.has_heard = False
        """True if the other side said so after all, before the caller had its turn."""

    @property
    def is_open(self):
        return self.request_id is not None and self.end is None

    @property
    def tells(self):
        """True if the caller itself has to tell the other side."""
        knows = self.has_heard and (self.end == "cancelled" or self.read is not None)
        return self.gave_up and not knows

    def outcome(self):
        if self.task.cancelled():
            return "cancelled"
        error = self.task.exception()
        if error is None:
            return ("result", self.task.result())
        return (type(error), error.code)


class Calls(RuleBasedStateMachine):
    """Calls and subscriptions without a tool: the rules are the other side."""

    asked = Bundle("asked")

    def __init__(self):
        super().__init__()
        self.loop = _HandLoop()
        self.all = []
        self.events = []
        self._open()

    def _open(self):
        self.map = PendingRequestMap()
        self.map.bus.subscribe("call.requested", self._sent)
        for topic in EVENT_TYPES:
            self.map.bus.subscribe(topic, self.events.append)

    def _sent(self, event):
        self.all[event.input["n"]].request_id = event.request_id

    def _deadline(self, has_deadline):
        return time.time() * 1000 + 3_600_000 if has_deadline else None

    # --- asking

    @rule(target=asked, has_deadline=st.booleans(), is_cancelled=st.integers(0, 9))
    def call(self, has_deadline, is_cancelled):
        work = self.map.call("t.tool", {"n": len(self.all)}, deadline=self._deadline(has_deadline))
        return self._ask(work, None, has_deadline, is_cancelled=not is_cancelled)

    @rule(target=asked, has_deadline=st.booleans(), is_cancelled=st.integers(0, 9))
    def subscribe(self, has_deadline, is_cancelled):
        stream = self.map.subscribe(
            "t.tool", {"n": len(self.all)}, deadline=self._deadline(has_deadline)
        )
        got = []

        async def read():
            async with aclosing(stream):
                async for envelope in stream:
                    got.append(envelope.data)

        return self._ask(read(), got, has_deadline, is_cancelled=not is_cancelled)

    def _ask(self, work, got, has_deadline, *, is_cancelled):
        asked = _Asked(self.loop.create_task(work), got, has_deadline=has_deadline)
        self.all.append(asked)
        if is_cancelled:  # Before it could be sent.
            self.cancel(asked)
        return asked

    # --- what the other side does

    @rule(asked=asked, data=st.integers())
    def respond(self, asked, data):
        if asked.request_id is None:
            return
        _at_once(self.map.respond(asked.request_id, _envelope(data)))
        if asked.is_open:
            asked.got.append(data)
            if asked.read is None:
                asked.end = "result"
        elif asked.read is None:
            self._heard(asked)

    @rule(asked=asked, code=st.sampled_from(["sold_out", "timeout", "aborted", "handler_error"]))
    def fail(self, asked, code):
        if asked.request_id is None:
            return
        _at_once(self.map.emit_error(asked.request_id, CallError(code, "m")))
        self._ends(asked, ("error", code))

    @rule(asked=asked, count=st.none() | st.just(0))
    def complete(self, asked, count):
        if asked.request_id is None:
            return
        _at_once(self.map.complete(asked.request_id, count=count))
        self._ends(asked, "completed")

    @rule(asked=asked)
    def abort_from_there(self, asked):
        if asked.request_id is None:
            return
        _at_once(self.map.bus.publish(CallAborted(asked.request_id)))
        asked.aborts += 1
        self._ends(asked, "aborted")

    @rule(stray=st.sampled_from(["", "unknown"]))
    def speak_of_strangers(self, stray):
        for event in (
            CallResponded(stray, _envelope(1)),
            CallFailed(stray, "SOLD_OUT", "m"),
            CallAborted(stray),
            CallCompleted(stray),
        ):
            self.map.bus.deliver(event)

    def _ends(self, asked, end):
        if asked.is_open:
            asked.end = end
        else:
            self._heard(asked)

    def _heard(self, asked):
        # Who learns of the end before its turn to give up has nobody left to tell.
        asked.has_heard = asked.has_heard or not asked.task.done()

    # --- what the caller does

    @rule(asked=asked)
    def abort_from_here(self, asked):
        if asked.request_id is None:
            return
        waits = asked.is_open
        before = len(self.events)
        _at_once(self.map.abort(asked.request_id))
        published = len(self.events) - before
        assert published == 1 or not waits
        asked.aborts += published
        if published:
            self._ends(asked, "aborted")

    @rule(asked=asked)
    def cancel(self, asked):
        if not asked.task.cancel():
            return
        asked.gave_up = asked.gave_up or asked.is_open
        asked.end = "cancelled"

    # --- time

    @rule(asked=asked)
    def run_the_timer(self, asked):
        """The deadline passes now; the caller has its turn later."""
        waiting = self.map._pending.get(asked.request_id)
        for handle in self.loop.timers():
            if waiting is not None and handle._args == (waiting,):
                handle._run()
                if asked.is_open:
                    asked.end, asked.gave_up = "timeout", True

    @rule()
    def let_deadlines_pass(self):
        self.loop.settle()
        late = [asked for asked in self.all if asked.has_deadline and asked.is_open]
        self.loop.now += FAR
        self.loop.turn()
        for asked in late:
            asked.end, asked.gave_up = "timeout", True

    @rule(turns=st.integers(1, 3))
    def turn(self, turns):
        for _ in range(turns):
            self.loop.turn()

    # --- what always holds

    @invariant()
    def open_calls_are_pending(self):
        is_open = sum(asked.is_open for asked in self.all)
        leaving = sum(
            asked.request_id is not None and not asked.is_open and not asked.task.done()
            for asked in self.all
        )
        assert is_open <= self.map.pending_count <= is_open + leaving

    @invariant()
    def open_calls_have_not_ended(self):
        for asked in self.all:
            assert asked.end is not None or not asked.task.done()

    @rule()
    def settle(self):
        self.loop.settle()
        assert self.map.pending_count == sum(asked.is_open for asked in self.all)
        for asked in self.all:
            if asked.end is not None:
                self._check(asked)

    def _check(self, asked):
        assert asked.task.done()
        expected = {
            "cancelled": "cancelled",
            "timeout": (Timeout, "timeout"),
            "result": ("result", None),
            "completed": (Aborted, "aborted"),
            "aborted": (Aborted, "aborted"),
        }
        outcome = asked.outcome()
        if isinstance(asked.end, tuple):
            assert outcome[1] == asked.end[1]
        elif asked.read is not None and asked.end in ("completed", "aborted"):
            assert outcome == ("result", None)
        elif asked.end == "result":
            assert outcome[1].data == asked.got[0]
        else:
            assert outcome == expected[asked.end]
        if asked.read is not None:
            is_cut = asked.end == "cancelled"
            assert asked.read == asked.got[: len(asked.read)] if is_cut else asked.read == asked.got
        told = self.events.count(CallAborted(asked.request_id)) - asked.aborts
        assert told == asked.tells

    @precondition(lambda self: len(self.all) > 3)
    @rule()
    def close(self):
        self.loop.settle()
        is_open = [asked for asked in self.all if asked.is_open]
        self.loop.run_until_complete(self.map.aclose())
        for asked in is_open:
            asked.end = "aborted"
            asked.aborts += 1
        self.settle()
        self._open()

    def teardown(self):
        try:
            self.settle()
            for asked in self.all:
                if asked.end is None:
                    self.abort_from_there(asked)
            self.settle()
            assert self.map.pending_count == 0
            assert self.loop.timers() == []
            assert asyncio.all_tasks(self.loop) == set()
        finally:
            self.loop.end()


class Answers(RuleBasedStateMachine):
    """Calls that a call handler answers: the rules are the tool."""

    asked = Bundle("asked")

    def __init__(self):
        super().__init__()
        self.loop = _HandLoop()
        self.map = PendingRequestMap()
        self.gates = {}
        self.ended = {}
        self.calls = []
        self.events = []
        for topic in EVENT_TYPES:
            self.map.bus.subscribe(topic, self.events.append)
        runtime = Runtime([self._tool("t.one", self._one), self._tool("t.many", self._many)])
        self.map.bus.subscribe("call.requested", build_call_handler(runtime, self.map))

    def _tool(self, id, handler):
        kind = "subscription" if id == "t.many" else "mutation"
        return Tool(id=id, description="", contract=Contract(), handler=handler, kind=kind)

    async def _wait(self, context):
        gate = self.gates[context.call_id] = self.loop.create_future()
        return await gate

    async def _one(self, arguments, context):
        try:
            return await self._wait(context)
        finally:
            self.ended[context.call_id] = self.ended.get(context.call_id, 0) + 1

    async def _many(self, arguments, context):
        try:
            while (value := await self._wait(context)) is not None:
                yield value
        finally:
            self.ended[context.call_id] = self.ended.get(context.call_id, 0) + 1

    @rule(target=asked, tool_id=st.sampled_from(["t.one", "t.many"]), is_stream=st.booleans())
    def ask(self, tool_id, is_stream):
        before = len(self.events)

        async def read():
            async with aclosing(self.map.subscribe(tool_id)) as stream:
                return [envelope.data async for envelope in stream]

        task = self.loop.create_task(read() if is_stream else self.map.call(tool_id))
        self.loop.settle()
        self.calls.append(task)
        (request,) = (e for e in self.events[before:] if e.type == "call.requested")
        return multiple((task, request.request_id))

    @rule(asked=asked, value=st.sampled_from([None, 1, "x"]))
    def give(self, asked, value):
        gate = self.gates.get(asked[1])
        if gate is not None and not gate.done():
            gate.set_result(value)

    @rule(asked=asked, error=st.sampled_from([ToolError("sold_out", "m"), KeyError("secret")]))
    def break_down(self, asked, error):
        gate = self.gates.get(asked[1])
        if gate is not None and not gate.done():
            gate.set_exception(error)

    @rule(asked=asked)
    def cancel(self, asked):
        asked[0].cancel()

    @rule(asked=asked)
    def abort(self, asked):
        _at_once(self.map.abort(asked[1]))

    @rule(asked=asked)
    def ask_again(self, asked):
        """A bus may repeat a request while it is answered."""
        self.loop.settle()
        if asked[1] in self.map.answering:
            request = CallRequested(asked[1], "t.one", {})
            self.loop.call_soon(self.map.bus.deliver, request)
            self.loop.turn()

    @rule(turns=st.integers(1, 4))
    def turn(self, turns):
        for _ in range(turns):
            self.loop.turn()

    @invariant()
    def nobody_waits_for_what_nobody_works_on(self):
        if not self.loop._ready:
            assert self.map.pending_count == len(self.map.answering)
            assert self.map.pending_count == sum(not task.done() for task in self.calls)

    def teardown(self):
        try:
            self.loop.settle()
            for task in self.calls:
                task.cancel()
            self.loop.settle()
            self._check()
        finally:
            self.loop.end()

    def _check(self):
        assert self.map.pending_count == 0
        assert self.map.answering == {}
        assert self.map.bus._tasks == set()
        assert asyncio.all_tasks(self.loop) == set()
        assert self.loop.timers() == []
        assert set(self.ended.values()) <= {1}
        assert self.ended.keys() == self.gates.keys()
        said = {}
        for event in self.events:
            said.setdefault(event.request_id, []).append(event.type)
        for request_id, types in said.items():
            told = [kind for kind in types if kind != "call.requested"]
            ends = [kind for kind in told if kind != "call.responded"]
            if ends:
                assert len(ends) == 1, (request_id, types)
                assert told[-1] == ends[0], (request_id, types)
            else:
                assert told == ["call.responded"], (request_id, types)
        for task in self.calls:
            assert task.done()
            if not task.cancelled() and task.exception() is not None:
                assert isinstance(task.exception(), CallError)


TestCalls = Calls.TestCase
TestAnswers = Answers.TestCase
TestCalls.settings = settings(stateful_step_count=40)
TestAnswers.settings = settings(stateful_step_count=30)


# --- what is answered is always an envelope, wrapped once -----------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = st.sampled_from(["id", "data", "meta", "source", "encoding", "warnings"]) | TEXT
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
SOURCES = st.sampled_from(["local", "http", "mcp"])
LIKE_ENVELOPES = st.fixed_dictionaries(
    {"data": JSON, "meta": st.fixed_dictionaries({"source": SOURCES | TEXT}) | JSON},
    optional={"warnings": JSON, "changes": JSON, "other": JSON},
)
ENVELOPES = st.one_of(
    st.builds(local_envelope, JSON | LIKE_ENVELOPES | st.binary(max_size=9), st.just("x.y")),
    st.builds(
        http_envelope,
        JSON | LIKE_ENVELOPES,
        status_code=st.just(200),
        headers=st.just({}),
        content_type=st.just(""),
    ),
    st.builds(
        mcp_envelope,
        JSON | LIKE_ENVELOPES,
        is_error=st.booleans(),
        content=st.just([TextBlock("x")]),
    ),
)
NOT_JSON = st.sampled_from(
    [float("nan"), object(), {1, 2}, {1: 2}, [b"x"], (x for x in "ab"), Tool, NotImplemented]
)
VALUES = (
    JSON | LIKE_ENVELOPES | ENVELOPES | NOT_JSON | st.binary(max_size=9) | st.just(bytearray(b"x"))
)


def _answered(values, *, is_stream, bus):
    """What the events say when a tool gives these values, and what the caller gets."""
    given = iter(values)

    async def one(arguments, context):
        return next(given)

    async def many(arguments, context):
        for value in given:
            yield value

    async def story():
        call_map = PendingRequestMap(bus())
        events, got = [], []
        for topic in EVENT_TYPES:
            call_map.bus.subscribe(topic, events.append)
        tool = _tool(many if is_stream else one)
        call_map.bus.subscribe("call.requested", build_call_handler(Runtime([tool]), call_map))
        try:
            async with asyncio.timeout(20):
                if not is_stream:
                    got.append(await call_map.call("t.tool"))
                else:
                    async for envelope in call_map.subscribe("t.tool"):
                        got.append(envelope)
        except CallError:
            pass
        assert call_map.pending_count == 0
        return events, got

    return asyncio.run(story())


@given(
    st.lists(VALUES, min_size=1, max_size=3), st.booleans(), st.sampled_from([LocalBus, _JsonBus])
)
def test_no_raw_value_is_ever_answered(values, is_stream, bus):
    events, got = _answered(values, is_stream=is_stream, bus=bus)
    answers = [event for event in events if event.type == "call.responded"]
    for event in answers:
        assert type(event.output) is ResponseEnvelope
        assert isinstance(event.output.data, bytes) or is_json(event.output.data)
    assert [event.output for event in answers] == got
    assert [event.type for event in events].count("call.requested") == 1
    ends = len(events) - 1 - len(answers)
    assert ends == 1 if is_stream else ends + len(answers) == 1


@given(ENVELOPES, st.booleans())
def test_an_envelope_is_answered_as_it_is_and_its_data_is_not_looked_into(envelope, is_stream):
    _, (got,) = _answered([envelope], is_stream=is_stream, bus=LocalBus)
    assert got is envelope


@given(JSON | LIKE_ENVELOPES, st.booleans())
def test_wrapping_happens_once(value, is_stream):
    _, (got,) = _answered([value], is_stream=is_stream, bus=LocalBus)
    if is_response_envelope(value):
        assert got.data == value["data"]
        assert got.meta.source == value["meta"]["source"]
    else:
        assert got.data == value
        assert type(got.meta) is LocalResponseMeta
        assert got.meta.operation_id == "t.tool"


@given(LIKE_ENVELOPES, st.booleans(), st.booleans())
def test_an_envelope_in_the_data_stays_data_on_the_way(inner, is_stream, is_wire):
    outer = local_envelope(inner, "x.y")
    value = outer.to_wire() if is_wire else outer
    _, (got,) = _answered([value], is_stream=is_stream, bus=_JsonBus)
    assert got == outer
