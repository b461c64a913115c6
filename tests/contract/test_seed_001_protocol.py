"""Seed 001's call protocol, through the public API alone: in process, and with JSON in between."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from callpact import (
    AccessDenied,
    Call,
    CallError,
    Contract,
    HandlerCrashed,
    Identity,
    InvalidInput,
    Issue,
    OutputRejected,
    ResponseEnvelope,
    Runtime,
    Tool,
    ToolError,
    UnknownTool,
    build_env,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.codes import CODES
from callpact.envelope import RESPONSE_ENVELOPE_SCHEMA, LocalResponseMeta, TextBlock
from callpact.errors import InvalidEvent, NotAnEnvelope
from callpact.protocol import (
    CALL_EVENT_SCHEMAS,
    CallCompleted,
    CallFailed,
    CallRequested,
    CallResponded,
    LocalBus,
    PendingRequestMap,
    build_call_handler,
    decode_event,
    encode_event,
    read_event,
    write_event,
)

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PROTOCOL = (REFERENCE / "call-protocol.md").read_text("utf-8")
API = (REFERENCE / "api.md").read_text("utf-8")

N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
HTTP = http_envelope({"n": 1}, status_code=200, headers={"a": "b"}, content_type="text/plain")
IS_ERROR = mcp_envelope([], is_error=True, content=[TextBlock("no stock")])
THIN = {"data": 1, "meta": {"source": "http"}}
RAW = [None, 0, "text", [1], {"n": 1}, {"data": 1}, {"meta": {"source": "local"}}]
NEARLY = [{"data": 1, "meta": None}, {"data": 1, "meta": {"source": "ftp"}}, {"data": 1, "meta": 1}]


class LineBus:
    """A bus whose events are written as JSON and read again on their way."""

    def __init__(self):
        self.near = LocalBus()

    async def publish(self, event):
        self.near.deliver(read_event(write_event(event)))

    def subscribe(self, topic, listener):
        return self.near.subscribe(topic, listener)


on_both_buses = pytest.mark.parametrize("bus", [LocalBus, LineBus])


class Stage:
    """A caller and a call handler on one bus, and everything that is published on it."""

    def __init__(self, bus, tools):
        self.bus = bus
        self.heard = []
        for topic in CALL_EVENT_SCHEMAS:
            bus.subscribe(topic, self.heard.append)
        self.calls = PendingRequestMap(bus)
        self.runtime = Runtime(tools)
        if tools:
            answers = PendingRequestMap(bus)
            bus.subscribe("call.requested", build_call_handler(self.runtime, answers))

    @property
    def types(self):
        return [event.type for event in self.heard]

    def events(self, kind):
        return [event for event in self.heard if isinstance(event, kind)]

    async def outcome(self, tool_id, arguments=None, **options):
        """What the caller got, and the event that told it."""
        try:
            result = await self.calls.call(tool_id, arguments, **options)
        except CallError as error:
            result = error
        return result, self.heard[-1]


def _play(story, *tools, bus=LocalBus):
    async def act():
        async with asyncio.timeout(10):
            return await story(Stage(bus(), tools))

    return asyncio.run(act())


def _tool(handler, name="tool", **fields):
    contract = fields.pop("contract", None) or Contract()
    return Tool(id=f"t.{name}", description="", contract=contract, handler=handler, **fields)


def _giving(answer, name="tool", **fields):
    async def handler(arguments, context):
        return answer

    return _tool(handler, name, **fields)


def _raising(error, name="tool"):
    async def handler(arguments, context):
        raise error

    return _tool(handler, name)


def _yielding(*answers, name="stream", **fields):
    async def handler(arguments, context):
        for answer in answers:
            yield answer

    return _tool(handler, name, kind="subscription", **fields)


def _called(tool, arguments=None, *, bus=LocalBus, **options):
    return _play(lambda stage: stage.outcome(tool.id, arguments, **options), tool, bus=bus)


async def _read(envelopes):
    async with aclosing(envelopes):
        return [envelope async for envelope in envelopes]


def _section(page, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]


def _gives(call):
    """What the API page says that a call gives."""
    row = re.search(rf"^\| `{re.escape(call)}` \| (.*?) \|", API, re.MULTILINE)
    return row and row[1]


# --- CallHandler


@pytest.mark.requirement("001.callhandler.owns-responded")
@pytest.mark.requirement("001.callhandler.handlers-publish-nothing")
@on_both_buses
def test_only_the_call_handler_publishes_an_answer(bus):
    async def story(stage):
        await stage.runtime.execute("t.tool")
        await stage.runtime.call(Call("t.tool"))
        alone = stage.types
        await stage.calls.call("t.tool")
        return alone, stage.types

    assert _play(story, _giving(1), bus=bus) == ([], ["call.requested", "call.responded"])


@pytest.mark.requirement("001.callhandler.looks-up")
@on_both_buses
def test_an_unknown_tool_is_an_error_that_names_it(bus):
    assert isinstance(_called(_giving(1), bus=bus)[1], CallResponded)
    error, event = _play(lambda stage: stage.outcome("t.other"), _giving(1), bus=bus)
    assert isinstance(error, UnknownTool)
    assert (event.code, event.details) == ("OPERATION_NOT_FOUND", {"operationId": "t.other"})


@pytest.mark.requirement("001.callhandler.access")
@on_both_buses
def test_a_caller_without_the_scope_is_refused_and_one_with_it_is_not(bus):
    runs = []

    async def handler(arguments, context):
        runs.append(context.identity)

    guarded = _tool(handler, access=["shop:write"])
    for identity in (None, Identity("eve"), Identity("eve", ["shop:read"])):
        error, event = _called(guarded, bus=bus, identity=identity)
        assert isinstance(error, AccessDenied)
        assert event.code == "ACCESS_DENIED"
    assert runs == []
    ada = Identity("ada", ["shop:write"])
    assert isinstance(_called(guarded, bus=bus, identity=ada)[1], CallResponded)
    assert runs == [ada]


@pytest.mark.requirement("001.callhandler.validates")
@on_both_buses
def test_bad_input_is_an_error_with_its_issues_and_never_reaches_the_handler(bus):
    runs = []

    async def handler(arguments, context):
        runs.append(arguments)

    tool = _tool(handler, contract=Contract(input=N))
    error, event = _called(tool, {"n": "x"}, bus=bus)
    assert isinstance(error, InvalidInput)
    assert event.code == "VALIDATION_ERROR"
    assert [issue["path"] for issue in event.details] == ["/n"]
    assert runs == []
    _called(tool, {"n": 1}, bus=bus)
    assert runs == [{"n": 1}]


@pytest.mark.requirement("001.callhandler.order")
def test_the_tool_is_found_before_access_is_asked_and_access_before_the_input_is_judged():
    steps = []

    async def handler(arguments, context):
        steps.append("run")
        return {"n": "x"}

    strict = Contract(input=N, output=N, policy="reject")
    tool = _tool(handler, access=["a"], contract=strict)
    ada = Identity("ada", ["a"])

    async def story(stage):
        bad = {"n": "x"}
        codes = [
            (await stage.outcome("t.none", bad))[1].code,
            (await stage.outcome("t.tool", bad))[1].code,
            (await stage.outcome("t.tool", bad, identity=ada))[1].code,
        ]
        assert steps == []
        return [*codes, (await stage.outcome("t.tool", {"n": 1}, identity=ada))[1].code]

    assert _play(story, tool) == [
        "OPERATION_NOT_FOUND",
        "ACCESS_DENIED",
        "VALIDATION_ERROR",
        "OUTPUT_VALIDATION_ERROR",
    ]
    assert steps == ["run"]


@pytest.mark.requirement("001.callhandler.captures-result")
@on_both_buses
def test_what_the_handler_returns_or_is_awaited_for_is_the_answer(bus):
    async def waits(arguments, context):
        await asyncio.sleep(0)
        return arguments

    def plain(arguments, context):
        return arguments

    for handler in (waits, plain):
        envelope, event = _called(_tool(handler), {"n": [1, None]}, bus=bus)
        assert event.output.data == envelope.data == {"n": [1, None]}


@pytest.mark.requirement("001.callhandler.detects")
@pytest.mark.parametrize("answer", [HTTP, IS_ERROR, local_envelope(None, "other.tool")])
def test_an_envelope_of_the_handler_is_the_answer_itself(answer):
    envelope, event = _called(_giving(answer))
    assert envelope is event.output is answer
    over_a_wire, _ = _called(_giving(answer), bus=LineBus)
    assert over_a_wire == answer


@pytest.mark.requirement("001.callhandler.detects")
@on_both_buses
def test_a_mapping_in_the_form_of_an_envelope_is_used_as_one(bus):
    answer = {"data": 1, "meta": {"source": "local", "operationId": "o.tool", "timestamp": 7}}
    envelope, _ = _called(_giving(answer), bus=bus)
    assert envelope == ResponseEnvelope(1, LocalResponseMeta("o.tool", 7))


@pytest.mark.requirement("001.callhandler.wraps")
@pytest.mark.parametrize("answer", [*RAW, *NEARLY])
@on_both_buses
def test_anything_else_is_wrapped_as_local_with_the_id_and_the_time(bus, answer):
    before = time.time_ns() // 1_000_000
    envelope, _ = _called(_giving(answer), bus=bus)
    after = time.time_ns() // 1_000_000
    assert envelope.data == answer
    assert envelope.meta.operation_id == "t.tool"
    assert before <= envelope.meta.timestamp <= after


@pytest.mark.requirement("001.callhandler.warns")
@on_both_buses
@pytest.mark.parametrize(
    ("policy", "data", "warnings"),
    [("pass", {"n": "7"}, []), ("warn", {"n": "7"}, ["/n"]), ("cast", {"n": 7}, ["/n"])],
)
def test_an_answer_that_breaks_its_schema_is_delivered_with_warnings(bus, policy, data, warnings):
    tool = _giving({"n": "7"}, contract=Contract(output=N, policy=policy))
    envelope, _ = _called(tool, bus=bus)
    assert envelope.data == data
    assert [warning.path for warning in envelope.warnings] == warnings


@pytest.mark.requirement("001.callhandler.warns")
@on_both_buses
def test_under_reject_it_is_an_error_and_nothing_of_it_is_published(bus):
    tool = _giving({"n": "secret"}, contract=Contract(output=N, policy="reject"))
    error, event = _called(tool, bus=bus)
    assert isinstance(error, OutputRejected)
    assert (event.code, error.path) == ("OUTPUT_VALIDATION_ERROR", "/n")
    assert "secret" not in write_event(event).decode()


@pytest.mark.requirement("001.callhandler.responds")
def test_the_answer_goes_out_through_the_map_under_the_id_of_its_request():
    said = []

    class Noted(PendingRequestMap):
        async def respond(self, request_id, output, *, seq=None):
            said.append((request_id, output))
            await super().respond(request_id, output, seq=seq)

    async def story(stage):
        handler = build_call_handler(Runtime([_giving(1)]), Noted(stage.bus))
        stage.bus.subscribe("call.requested", handler)
        envelope = await stage.calls.call("t.tool")
        [request] = stage.events(CallRequested)
        return envelope, request.request_id, [(e.request_id, e.output) for e in stage.heard[1:]]

    envelope, request_id, heard = _play(story)
    assert said == heard == [(request_id, envelope)]


@pytest.mark.requirement("001.callhandler.errors")
@on_both_buses
def test_what_a_handler_raises_is_an_error_and_what_it_did_not_declare_has_no_text(bus):
    declared = ToolError("out_of_stock", "No tea", path="/item")
    error, event = _called(_raising(declared), bus=bus)
    assert (event.type, event.code, event.message) == ("call.error", "out_of_stock", "No tea")
    assert error == declared
    error, event = _called(_raising(ValueError("password 123")), bus=bus)
    assert (event.type, event.code) == ("call.error", "EXECUTION_ERROR")
    assert isinstance(error, HandlerCrashed)
    assert "password" not in write_event(event).decode()


@pytest.mark.requirement("001.callhandler.is-error-responds")
@on_both_buses
def test_is_error_is_an_answer_and_not_an_error(bus):
    async def story(stage):
        return await stage.calls.call("t.tool"), stage.types

    envelope, types = _play(story, _giving(IS_ERROR), bus=bus)
    assert types == ["call.requested", "call.responded"]
    assert envelope.meta.is_error


# --- PendingRequestMap


@pytest.mark.requirement("001.respond.guards")
@pytest.mark.requirement("001.migration.respond-breaking")
@pytest.mark.parametrize("value", [*RAW, *NEARLY])
def test_respond_raises_on_a_raw_value_and_publishes_nothing(value):
    async def story(stage):
        with pytest.raises(NotAnEnvelope) as caught:
            await stage.calls.respond("r", value)
        assert isinstance(caught.value, TypeError)
        return stage.heard

    assert _play(story) == []
    assert "raises `NotAnEnvelope` (a `TypeError`)" in _section(PROTOCOL, "Who publishes what")


@pytest.mark.requirement("001.respond.guards")
@pytest.mark.requirement("001.migration.direct-listeners")
@on_both_buses
@pytest.mark.parametrize("answer", [HTTP, IS_ERROR, HTTP.to_wire()])
def test_respond_publishes_an_envelope_to_everybody_who_listens(bus, answer):
    async def story(stage):
        await stage.calls.respond("r", answer)
        return stage.heard

    [event] = _play(story, bus=bus)
    assert isinstance(event.output, ResponseEnvelope)
    assert event.output.to_wire() == (answer if isinstance(answer, dict) else answer.to_wire())


@pytest.mark.requirement("001.respond.guard-is-the-detector")
def test_respond_takes_a_thin_envelope_that_the_schema_of_the_wire_would_refuse():
    async def story(stage):
        await stage.calls.respond("r", THIN)
        return stage.heard

    [event] = _play(story)
    assert event.output.data == 1
    with pytest.raises(InvalidEvent):
        decode_event({"type": "call.responded", "requestId": "r", "output": THIN})


@pytest.mark.requirement("001.call.resolves-with-envelope")
@pytest.mark.requirement("001.migration.call-type")
@on_both_buses
def test_call_gives_the_envelope_of_the_first_answer(bus):
    async def story(stage):
        async def answer(event):
            for n in (1, 2):
                await stage.calls.respond(event.request_id, local_envelope({"n": n}, "t.peer"))

        stage.bus.subscribe("call.requested", answer)
        return await stage.calls.call("t.peer"), stage.calls.pending_count

    envelope, pending = _play(story, bus=bus)
    assert isinstance(envelope, ResponseEnvelope)
    assert (envelope.data, envelope.meta.operation_id, pending) == ({"n": 1}, "t.peer", 0)
    assert _gives("await PendingRequestMap.call(…)") == "a `ResponseEnvelope`"


# --- subscribe


def _both_streams(stage):
    return stage.runtime.subscribe("t.stream"), stage.calls.subscribe("t.stream")


@pytest.mark.requirement("001.subscribe.wraps-each")
@on_both_buses
def test_each_result_of_a_stream_is_wrapped_with_a_timestamp_of_its_own(bus):
    async def handler(arguments, context):
        for n in range(3):
            yield n
            last = time.time_ns() // 1_000_000
            while time.time_ns() // 1_000_000 == last:
                pass

    async def story(stage):
        return [await _read(stream) for stream in _both_streams(stage)]

    for envelopes in _play(story, _tool(handler, "stream", kind="subscription"), bus=bus):
        assert [envelope.data for envelope in envelopes] == [0, 1, 2]
        assert {envelope.meta.operation_id for envelope in envelopes} == {"t.stream"}
        first, second, third = (envelope.meta.timestamp for envelope in envelopes)
        assert first < second < third


@pytest.mark.requirement("001.subscribe.envelopes-pass")
@on_both_buses
def test_an_envelope_in_a_stream_passes_and_its_neighbours_are_wrapped(bus):
    async def story(stage):
        return [await _read(stream) for stream in _both_streams(stage)]

    for envelopes in _play(story, _yielding(1, HTTP, IS_ERROR), bus=bus):
        assert envelopes[0].meta.operation_id == "t.stream"
        assert envelopes[1:] == [HTTP, IS_ERROR]


@pytest.mark.requirement("001.migration.subscribe-type")
def test_subscribe_is_an_async_generator_of_envelopes():
    async def story(stage):
        for stream in _both_streams(stage):
            assert inspect.isasyncgen(stream)
            assert [type(envelope) for envelope in await _read(stream)] == [ResponseEnvelope] * 2

    _play(story, _yielding(None, HTTP))
    for owner in ("Runtime", "PendingRequestMap"):
        assert _gives(f"{owner}.subscribe(…)") == "an async generator of `ResponseEnvelope`"


@pytest.mark.requirement("001.open.subscription-metadata")
@on_both_buses
def test_the_events_of_a_stream_are_numbered_and_its_envelopes_are_not(bus):
    async def story(stage):
        await _read(stage.calls.subscribe("t.stream"))
        await stage.calls.call("t.tool")
        return stage.events(CallResponded), stage.events(CallCompleted)

    answers, [end] = _play(story, _yielding("a", HTTP, "c"), _giving(1), bus=bus)
    assert [event.seq for event in answers] == [0, 1, 2, None]
    assert end.count == 3
    assert "seq" not in encode_event(answers[-1])
    assert set(encode_event(answers[0])["output"]["meta"]) == {"source", "operationId", "timestamp"}
    assert answers[1].output == HTTP


# --- buildEnv


@pytest.mark.requirement("001.env.returns-envelopes")
@pytest.mark.requirement("001.migration.env-type")
@pytest.mark.parametrize("way", ["execute", "bus", "wire"])
def test_each_function_of_the_env_gives_an_envelope(way):
    got = []

    async def outer(arguments, context):
        got.append(await context.env.t.inner({"n": 1}))
        got.append(await context.env["t.inner"]({"n": 2}))
        with pytest.raises(InvalidInput):
            await context.env.t.inner({})

    async def inner(arguments, context):
        return arguments["n"]

    async def story(stage):
        call = stage.runtime.execute if way == "execute" else stage.calls.call
        await call("t.outer")
        got.append(await build_env(stage.runtime).t.inner({"n": 3}))
        over_bus = build_env(stage.runtime, call_map=stage.calls)
        got.append(await over_bus.t.inner({"n": 4}))

    tools = _tool(outer, "outer"), _tool(inner, "inner", contract=Contract(input=N))
    _play(story, *tools, bus=LineBus if way == "wire" else LocalBus)
    assert [type(envelope) for envelope in got] == [ResponseEnvelope] * 4
    assert [(e.data, e.meta.operation_id) for e in got] == [(n, "t.inner") for n in (1, 2, 3, 4)]
    assert _gives("await env.namespace.name(…)") == "a `ResponseEnvelope`"


# --- CallEventSchema


@pytest.mark.requirement("001.events.responded-schema")
@pytest.mark.requirement("001.migration.responded-output")
@pytest.mark.parametrize("value", [*RAW, *NEARLY])
def test_the_output_of_an_answer_has_the_schema_of_the_envelope(value):
    schema = CALL_EVENT_SCHEMAS["call.responded"]
    assert schema["properties"]["output"] is RESPONSE_ENVELOPE_SCHEMA
    event = {"type": "call.responded", "requestId": "r"}
    with pytest.raises(InvalidEvent) as caught:
        decode_event({**event, "output": value})
    assert all(issue.path.startswith("/output") for issue in caught.value.issues)
    with pytest.raises(InvalidEvent):
        decode_event(event)
    assert decode_event({**event, "output": HTTP.to_wire()}).output == HTTP
    assert "| `call.responded` | `output` | envelope | required |" in _section(PROTOCOL, "Events")


@pytest.mark.requirement("001.events.request-id")
@pytest.mark.parametrize("request_id", [None, 7, "", ["r"], ...])
def test_every_event_names_its_request_by_a_text(request_id):
    fields = {
        "call.requested": {"operationId": "t.tool", "input": {}},
        "call.responded": {"output": HTTP.to_wire()},
        "call.error": {"code": "X", "message": ""},
        "call.aborted": {},
        "call.completed": {},
    }
    assert fields.keys() == CALL_EVENT_SCHEMAS.keys()
    for kind, rest in fields.items():
        assert decode_event({"type": kind, "requestId": "r", **rest}).request_id == "r"
        event = {"type": kind, **rest} | ({} if request_id is ... else {"requestId": request_id})
        with pytest.raises(InvalidEvent) as caught:
            decode_event(event)
        assert [issue.path for issue in caught.value.issues] == ["/requestId"]


@pytest.mark.requirement("001.events.envelope-is-validated")
@pytest.mark.parametrize(
    ("meta", "is_valid"),
    [
        ({"source": "local", "operationId": "t.tool", "timestamp": 1}, True),
        ({"source": "local", "operationId": "t.tool"}, False),
        ({"source": "http", "statusCode": "200", "headers": {}, "contentType": ""}, False),
        ({"source": "mcp", "isError": False, "content": []}, True),
        ({"source": "mcp", "isError": False, "content": [{"type": "text"}]}, False),
    ],
)
def test_an_envelope_from_a_wire_is_judged_by_its_own_schema_whatever_its_data(meta, is_valid):
    for data in (None, {"n": "not an integer"}, []):
        wire = {"type": "call.responded", "requestId": "r", "output": {"data": data, "meta": meta}}
        if is_valid:
            assert read_event(json.dumps(wire)).output.data == data
        else:
            with pytest.raises(InvalidEvent) as caught:
                read_event(json.dumps(wire))
            assert caught.value.request_id == "r"


# --- Constraints and open questions


@pytest.mark.requirement("001.constraint.envelope-at-boundary")
@on_both_buses
@pytest.mark.parametrize("answer", [*RAW, *NEARLY, b"bytes", HTTP, IS_ERROR])
def test_no_answer_ever_carries_a_raw_value(bus, answer):
    async def story(stage):
        await stage.calls.call("t.tool")
        await _read(stage.calls.subscribe("t.stream"))
        return stage.events(CallResponded)

    events = _play(story, _giving(answer), _yielding(answer, answer), bus=bus)
    assert len(events) == 3
    for event in events:
        assert isinstance(event.output, ResponseEnvelope)
        assert is_response_envelope(encode_event(event)["output"])


@pytest.mark.requirement("001.open.respond-visibility")
@pytest.mark.requirement("001.migration.respond-validates")
@on_both_buses
def test_a_peer_without_a_call_handler_answers_through_respond_and_only_with_envelopes(bus):
    async def story(stage):
        peer = PendingRequestMap(stage.bus)

        async def answer(event):
            with pytest.raises(NotAnEnvelope):
                await peer.respond(event.request_id, {"n": 1})
            await peer.respond(event.request_id, HTTP)

        stage.bus.subscribe("call.requested", answer)
        return await stage.calls.call("t.peer")

    assert _play(story, bus=bus) == HTTP
    assert "**`respond()` takes envelopes only.**" in _section(PROTOCOL, "Who publishes what")


# --- Migration


@pytest.mark.requirement("001.migration.handler-returns")
@pytest.mark.requirement("001.migration.callhandler-api")
@on_both_buses
def test_a_handler_returns_and_the_call_handler_wraps_and_publishes(bus):
    async def story(stage):
        await stage.calls.call("t.tool")
        return stage.heard

    request, answer = _play(story, _giving({"n": 1}), bus=bus)
    assert (request.type, answer.type) == ("call.requested", "call.responded")
    assert answer.output.to_wire()["data"] == {"n": 1}
    said = _section(PROTOCOL, "Who publishes what")
    assert "| `call.responded` | the call handler, through `PendingRequestMap.respond()` |" in said
    assert "**Handlers publish nothing.** A handler returns a value" in said
    calls = API
    assert "- `build_call_handler(" in calls
    assert "handlers return values and publish nothing" in calls


@pytest.mark.requirement("001.migration.respond-api")
def test_the_api_says_that_respond_requires_an_envelope():
    async def story(stage):
        with pytest.raises(TypeError):
            await stage.calls.respond("r", {"n": 1})
        await stage.calls.respond("r", HTTP)
        return stage.types

    assert _play(story) == ["call.responded"]
    calls = API
    assert "  - `await respond(request_id: str, output: " in calls
    assert "`PendingRequestMap.respond(request_id, output)` requires an envelope" in calls


@pytest.mark.requirement("001.migration.direct-listeners")
@on_both_buses
def test_whoever_listens_on_the_bus_gets_envelopes_of_calls_and_of_streams(bus):
    async def story(stage):
        got = []
        stop = stage.bus.subscribe("call.responded", got.append)
        await stage.calls.call("t.tool")
        await _read(stage.calls.subscribe("t.stream"))
        stop()
        await stage.calls.call("t.tool")
        return [event.output for event in got]

    outputs = _play(story, _giving({"n": 1}), _yielding(1, HTTP), bus=bus)
    assert [type(output) for output in outputs] == [ResponseEnvelope] * 3
    assert [output.data for output in outputs] == [{"n": 1}, 1, HTTP.data]
    assert "**Everybody who listens gets envelopes.**" in PROTOCOL


@pytest.mark.requirement("001.migration.execute-type")
def test_the_api_says_that_execute_gives_an_envelope():
    assert _gives("await Runtime.execute(…)") == "a `ResponseEnvelope`"
    assert _gives("Runtime.execute_sync(…)") == "a `ResponseEnvelope`"
    runtime = Runtime([_giving(1)])
    assert type(asyncio.run(runtime.execute("t.tool"))) is ResponseEnvelope


# --- Invariants


async def _every_way(stage):
    """The same answer, however it is asked for: one envelope each."""
    return [
        await stage.runtime.execute("t.tool"),
        await stage.runtime.call(Call("t.tool")),
        await build_env(stage.runtime).t.tool(),
        await stage.calls.call("t.tool"),
        await build_env(stage.runtime, call_map=stage.calls).t.tool(),
        *[(await _read(stream))[0] for stream in _both_streams(stage)],
    ]


@pytest.mark.requirement("001.invariant.wrapped-once")
@on_both_buses
def test_an_envelope_inside_the_data_stays_where_it_is(bus):
    inner = {"data": 1, "meta": {"source": "local", "operationId": "o.tool", "timestamp": 7}}
    outer = local_envelope(inner, "t.first")
    envelopes = _play(_every_way, _giving(outer), _yielding(outer), bus=bus)
    assert [e.data for e in envelopes] == [inner] * 7
    assert {e.meta.operation_id for e in envelopes} == {"t.first"}


@pytest.mark.requirement("001.invariant.wrapped-once")
@on_both_buses
def test_the_envelope_of_another_tool_that_a_handler_returns_is_not_wrapped_again(bus):
    async def relay(arguments, context):
        return await context.env.t.first()

    first = _giving({"n": 1}, "first")
    for envelope in _play(_every_way, _tool(relay), first, _yielding(HTTP), bus=bus)[:5]:
        assert (envelope.data, envelope.meta.operation_id) == ({"n": 1}, "t.first")


@pytest.mark.requirement("001.invariant.is-error-never-raises")
@on_both_buses
def test_is_error_raises_nowhere(bus):
    envelopes = _play(_every_way, _giving(IS_ERROR), _yielding(IS_ERROR), bus=bus)
    assert envelopes == [IS_ERROR] * 7


@pytest.mark.requirement("001.invariant.round-trip")
@pytest.mark.parametrize(
    "envelope",
    [
        local_envelope(None, "t.void"),
        local_envelope({"data": None, "meta": None}, "t.tool"),
        local_envelope(b"\x00\xff", "t.bytes"),
        HTTP,
        IS_ERROR,
        ResponseEnvelope({"n": 0}, HTTP.meta, (Issue("replaced", "was invented", "/n"),)),
    ],
)
def test_an_envelope_is_still_one_after_json(envelope):
    line = write_event(CallResponded("r", envelope))
    output = json.loads(line)["output"]
    assert is_response_envelope(output)
    assert "data" in output
    assert read_event(line).output == envelope


@pytest.mark.requirement("001.invariant.round-trip")
def test_a_void_result_crosses_a_wire():
    envelope, _ = _called(_giving(None), bus=LineBus)
    assert is_response_envelope(envelope)
    assert envelope.data is None


ODD = {"status": 503, "cause": ValueError("no"), "tags": {"a"}, "n": float("nan")}


@pytest.mark.requirement("001.invariant.errors-cross-the-bus")
@on_both_buses
@pytest.mark.parametrize("code", [*CODES, "out_of_stock"])
def test_every_error_crosses_with_its_code_its_message_and_json_details(bus, code):
    issues = (Issue("minimum", "Too small", "/n", 1, 0, "send 1"), Issue("type", "Wrong", "/m"))
    for given in (
        CallError(code, "It failed"),
        CallError(code, "It failed", details=ODD),
        CallError(code, "It failed", path="/n", issues=issues),
        CallError(code, "It failed", path="/n", issues=issues, details={"status": 503}),
    ):
        error, event = _called(_raising(given), bus=bus)
        assert isinstance(event, CallFailed)
        assert event.code == (CODES[code].event if code in CODES else code)
        json.dumps(event.details, allow_nan=False)
        assert (error.code, error.message) == (code, "It failed")
        assert error.issues == given.issues
        assert error.details.keys() == given.details.keys()
        assert error.details.get("status") == given.details.get("status")


@pytest.mark.requirement("001.invariant.never-trusted")
def test_a_request_that_says_it_is_trusted_is_asked_like_any_other():
    wire = {"type": "call.requested", "requestId": "r", "operationId": "t.tool", "input": {}}

    async def story(stage):
        await stage.bus.publish(decode_event({**wire, "trusted": True}))
        while "call.error" not in stage.types and "call.responded" not in stage.types:
            await asyncio.sleep(0)
        return stage.heard

    request, end = _play(story, _giving(1, access=["a"]))
    assert "trusted" not in encode_event(request)
    assert "trusted" not in CALL_EVENT_SCHEMAS["call.requested"]["properties"]
    assert (end.type, end.code) == ("call.error", "ACCESS_DENIED")


@pytest.mark.requirement("001.invariant.never-trusted")
@on_both_buses
def test_a_handler_is_trusted_in_its_process_and_asked_for_its_callers_identity_on_a_bus(bus):
    async def relay(arguments, context):
        return await context.env.t.guarded()

    async def story(stage):
        ada = Identity("ada", ["a"])
        return (
            await stage.runtime.execute("t.tool"),
            await stage.calls.call("t.tool", identity=ada),
            (await stage.outcome("t.tool"))[0],
        )

    guarded = _giving(1, "guarded", access=["a"])
    in_process, as_ada, as_nobody = _play(story, _tool(relay), guarded, bus=bus)
    assert in_process.data == as_ada.data == 1
    assert isinstance(as_nobody, AccessDenied)
