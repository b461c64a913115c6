"""What observers hear of a call, and the events of the call protocol on a wire."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import json
import sys
import time
import uuid
from collections import UserDict
from types import MappingProxyType

import jsonschema_rs
import msgspec
import pytest

from callpact.context import Identity
from callpact.envelope import (
    ResponseEnvelope,
    TextBlock,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.errors import (
    Aborted,
    AccessDenied,
    HandlerCrashed,
    InvalidEvent,
    InvalidInput,
    Issue,
    NotAllowed,
    NotJson,
    OutputRejected,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    UsageError,
)
from callpact.observers import CallFinished
from callpact.protocol import (
    CALL_EVENT_SCHEMAS,
    MAX_EVENT_BYTES,
    MAX_ID_LENGTH,
    CallAborted,
    CallCompleted,
    CallFailed,
    CallRequested,
    CallResponded,
    decode_event,
    encode_event,
    read_event,
    write_event,
)
from callpact.protocol.events import EVENT_TYPES, MAX_CHAIN, new_id
from callpact.runtime import Runtime
from callpact.schema import Change
from callpact.schema.bounds import MAX_VALUE_DEPTH
from callpact.tool import Contract, Tool


def _event(error=None, envelope=None):
    return CallFinished("1", "a.b", {}, 0, 0.0, envelope, error)


@pytest.mark.parametrize(
    ("error", "gate"),
    [
        (UnknownTool("a.b"), "find"),
        (AccessDenied(), "access"),
        (InvalidInput(list), "input"),
        (NotAllowed("component_not_allowed", "no"), "input"),
        (ToolError("sold_out", "no"), "handler"),
        (UpstreamError("no"), "handler"),
        (Timeout("a.b", 1), "handler"),
        (Aborted("a.b"), "handler"),
        (HandlerCrashed("a.b"), "handler"),
        (OutputRejected(list), "output"),
        (NotJson(list), "output"),
    ],
)
def test_an_event_says_where_the_call_was_stopped(error, gate):
    assert _event(error).gate == gate
    assert _event(error).is_error


def test_a_result_was_stopped_nowhere():
    event = _event(envelope=local_envelope(1, "a.b"))
    assert event.gate is None
    assert not event.is_error


def test_an_event_cannot_be_changed():
    with pytest.raises(AttributeError):
        _event().error = None


def test_an_event_tells_when_the_call_began_and_how_long_it_took():
    async def handler(arguments, context):
        return None

    events = []
    tool = Tool(id="a.b", description="", contract=Contract(), handler=handler)
    before = time.time_ns() // 1_000_000
    asyncio.run(Runtime([tool], observers=[events.append]).execute("a.b"))
    after = time.time_ns() // 1_000_000
    (event,) = events
    assert before <= event.started <= after
    assert event.duration >= 0


# --- events as JSON -------------------------------------------------------------------------

LOCAL = {"data": 1, "meta": {"source": "local", "operationId": "a.b", "timestamp": 5}}
HTTP = {
    "data": "x",
    "meta": {"source": "http", "statusCode": 200, "headers": {"a": "b"}, "contentType": ""},
}
MCP = {
    "data": [{"type": "text", "text": "hi"}],
    "meta": {"source": "mcp", "isError": True, "content": [{"type": "text", "text": "hi"}]},
}


def _envelope(wire):
    return ResponseEnvelope.from_wire(wire)


# Envelopes digest, section 3: each event with the names of its fields, bare and complete.
WIRE_FORMS = {
    "requested": (
        CallRequested("1", "a.b", {"q": 1}),
        {"type": "call.requested", "requestId": "1", "operationId": "a.b", "input": {"q": 1}},
    ),
    "requested without input": (
        CallRequested("1", "a.b", None),
        {"type": "call.requested", "requestId": "1", "operationId": "a.b", "input": None},
    ),
    "requested with everything": (
        CallRequested(
            "1",
            "a.b",
            [],
            "0",
            1_700_000_000_000,
            250.5,
            Identity("me", ["s"], {"project:1": ["read"]}),
            {"trace": [1]},
            ("x.y", "a.c"),
            stream=True,
        ),
        {
            "type": "call.requested",
            "requestId": "1",
            "operationId": "a.b",
            "input": [],
            "parentRequestId": "0",
            "deadline": 1_700_000_000_000,
            "idleTimeout": 250.5,
            "identity": {"id": "me", "scopes": ["s"], "resources": {"project:1": ["read"]}},
            "metadata": {"trace": [1]},
            "chain": ["x.y", "a.c"],
            "stream": True,
        },
    ),
    "requested with empty and zero values": (
        CallRequested("1", "", {}, deadline=0, metadata={}),
        {
            "type": "call.requested",
            "requestId": "1",
            "operationId": "",
            "input": {},
            "deadline": 0,
            "metadata": {},
        },
    ),
    "responded": (
        CallResponded("1", _envelope(LOCAL)),
        {"type": "call.responded", "requestId": "1", "output": LOCAL},
    ),
    "responded with nothing": (
        CallResponded("1", _envelope({**LOCAL, "data": None})),
        {"type": "call.responded", "requestId": "1", "output": {**LOCAL, "data": None}},
    ),
    "responded in a stream": (
        CallResponded("1", _envelope(HTTP), 0),
        {"type": "call.responded", "requestId": "1", "output": HTTP, "seq": 0},
    ),
    "responded by mcp with isError": (
        CallResponded("1", _envelope(MCP), 7),
        {"type": "call.responded", "requestId": "1", "output": MCP, "seq": 7},
    ),
    "error": (
        CallFailed("1", "TIMEOUT", "late"),
        {"type": "call.error", "requestId": "1", "code": "TIMEOUT", "message": "late"},
    ),
    "error with details": (
        CallFailed("1", "sold_out", "", {"left": 0}),
        {
            "type": "call.error",
            "requestId": "1",
            "code": "sold_out",
            "message": "",
            "details": {"left": 0},
        },
    ),
    "aborted": (CallAborted("1"), {"type": "call.aborted", "requestId": "1"}),
    "completed": (CallCompleted("1"), {"type": "call.completed", "requestId": "1"}),
    "completed after none": (
        CallCompleted("1", 0),
        {"type": "call.completed", "requestId": "1", "count": 0},
    ),
}
WIRES = {name: wire for name, (_, wire) in WIRE_FORMS.items()}


@pytest.mark.parametrize("name", WIRE_FORMS)
def test_an_event_is_plain_json_with_the_seeds_names_and_nothing_that_is_not_set(name):
    event, wire = WIRE_FORMS[name]
    assert json.loads(json.dumps(encode_event(event))) == wire
    assert json.loads(write_event(event)) == wire
    assert b"\n" not in write_event(event)


@pytest.mark.parametrize("name", WIRE_FORMS)
def test_an_event_is_read_as_the_equal_of_what_was_written(name):
    event, wire = WIRE_FORMS[name]
    for twin in (
        decode_event(wire),
        decode_event(encode_event(event)),
        decode_event(MappingProxyType(wire)),
        read_event(write_event(event)),
        read_event(json.dumps(wire, indent=2)),
        read_event(json.dumps(wire).encode()),
    ):
        assert type(twin) is type(event)
        assert twin == event


@pytest.mark.parametrize("name", WIRE_FORMS)
def test_the_published_schema_takes_what_is_written_also_with_keys_it_does_not_know(name):
    event, wire = WIRE_FORMS[name]
    validator = jsonschema_rs.validator_for(CALL_EVENT_SCHEMAS[wire["type"]], offline=True)
    richer = {**wire, "trusted": True, "x-trace": {"a": [None]}, "": 0}
    assert validator.is_valid(wire)
    assert validator.is_valid(richer)
    assert decode_event(richer) == event


def test_there_is_one_schema_for_each_type_of_event():
    assert tuple(CALL_EVENT_SCHEMAS) == EVENT_TYPES
    assert {wire["type"] for wire in WIRES.values()} == set(EVENT_TYPES)


def test_an_event_cannot_claim_to_be_trusted():
    event = decode_event({**WIRES["requested"], "trusted": True})
    assert "trusted" not in encode_event(event)
    assert not hasattr(event, "trusted")


# --- what is refused ------------------------------------------------------------------------

GONE = object()


def _meta(**changes):
    meta = {**LOCAL["meta"], **changes}
    return {"data": 1, "meta": {k: v for k, v in meta.items() if v is not GONE}}


WRONG = [
    ("requested", "requestId", GONE, "/requestId"),
    ("requested", "requestId", "", "/requestId"),
    ("requested", "requestId", 1, "/requestId"),
    ("requested", "requestId", None, "/requestId"),
    ("requested", "requestId", "x" * (MAX_ID_LENGTH + 1), "/requestId"),
    ("requested", "operationId", GONE, "/operationId"),
    ("requested", "operationId", None, "/operationId"),
    ("requested", "operationId", ["a.b"], "/operationId"),
    ("requested", "input", GONE, "/input"),
    ("requested", "parentRequestId", "", "/parentRequestId"),
    ("requested", "parentRequestId", None, "/parentRequestId"),
    ("requested", "parentRequestId", "x" * (MAX_ID_LENGTH + 1), "/parentRequestId"),
    ("requested", "deadline", "soon", "/deadline"),
    ("requested", "deadline", True, "/deadline"),
    ("requested", "deadline", None, "/deadline"),
    ("requested", "idleTimeout", 0, "/idleTimeout"),
    ("requested", "idleTimeout", -5, "/idleTimeout"),
    ("requested", "idleTimeout", "5", "/idleTimeout"),
    ("requested", "identity", {}, "/identity/id"),
    ("requested", "identity", {"scopes": ["admin"]}, "/identity/id"),
    ("requested", "identity", {"id": 5}, "/identity/id"),
    ("requested", "identity", "me", "/identity"),
    ("requested", "identity", [], "/identity"),
    ("requested", "identity", {"id": "me", "scopes": "admin"}, "/identity/scopes"),
    ("requested", "identity", {"id": "me", "scopes": {"admin": 1}}, "/identity/scopes"),
    ("requested", "identity", {"id": "me", "scopes": None}, "/identity/scopes"),
    ("requested", "identity", {"id": "me", "scopes": ["a", 5]}, "/identity/scopes/1"),
    ("requested", "identity", {"id": "me", "resources": ["p:1"]}, "/identity/resources"),
    ("requested", "identity", {"id": "me", "resources": {"p:1": "r"}}, "/identity/resources/p:1"),
    ("requested", "identity", {"id": "m", "resources": {"p": [0]}}, "/identity/resources/p/0"),
    ("requested", "metadata", "x", "/metadata"),
    ("requested", "metadata", [], "/metadata"),
    ("requested", "chain", "a.b", "/chain"),
    ("requested", "chain", [5], "/chain/0"),
    ("requested", "chain", ["a.b"] * (MAX_CHAIN + 1), "/chain"),
    ("requested", "stream", "yes", "/stream"),
    ("requested", "stream", 1, "/stream"),
    ("responded", "requestId", GONE, "/requestId"),
    ("responded", "output", GONE, "/output"),
    ("responded", "output", None, "/output"),
    ("responded", "output", 5, "/output"),
    ("responded", "output", "raw", "/output"),
    ("responded", "output", [LOCAL], "/output"),
    ("responded", "output", {"price": 5}, "/output/data"),
    ("responded", "output", {"data": 1}, "/output/meta"),
    ("responded", "output", {"meta": LOCAL["meta"]}, "/output/data"),
    ("responded", "output", {"data": 1, "meta": None}, "/output/meta"),
    ("responded", "output", {"data": 1, "meta": "local"}, "/output/meta"),
    ("responded", "output", {"data": 1, "meta": [LOCAL["meta"]]}, "/output/meta"),
    ("responded", "output", {"data": 1, "meta": {}}, "/output/meta"),
    ("responded", "output", _meta(source="ftp"), "/output/meta"),
    ("responded", "output", _meta(source=None), "/output/meta"),
    ("responded", "output", _meta(source=["local"]), "/output/meta"),
    ("responded", "output", _meta(source="Local"), "/output/meta"),
    ("responded", "output", _meta(source=GONE), "/output/meta"),
    ("responded", "output", _meta(operationId=5), "/output/meta"),
    ("responded", "output", _meta(timestamp="now"), "/output/meta"),
    ("responded", "output", {**LOCAL, "encoding": "base64", "data": "%%%"}, "/output"),
    ("responded", "output", {**LOCAL, "encoding": "base64", "data": "abc"}, "/output"),
    ("responded", "seq", -1, "/seq"),
    ("responded", "seq", 0.5, "/seq"),
    ("responded", "seq", "0", "/seq"),
    ("responded", "seq", True, "/seq"),
    ("responded", "seq", None, "/seq"),
    ("error", "requestId", GONE, "/requestId"),
    ("error", "code", GONE, "/code"),
    ("error", "code", "", "/code"),
    ("error", "code", 500, "/code"),
    ("error", "message", GONE, "/message"),
    ("error", "message", None, "/message"),
    ("error", "message", {"text": "x"}, "/message"),
    ("aborted", "requestId", GONE, "/requestId"),
    ("aborted", "requestId", ["1"], "/requestId"),
    ("completed", "requestId", GONE, "/requestId"),
    ("completed", "count", -1, "/count"),
    ("completed", "count", 1.5, "/count"),
    ("completed", "count", "many", "/count"),
]


@pytest.mark.parametrize(("name", "key", "value", "path"), WRONG)
def test_a_wrong_field_is_refused_with_its_place_and_the_request_that_it_spoils(
    name, key, value, path
):
    wire = {**WIRES[name], key: value}
    if value is GONE:
        del wire[key]
    for read in (lambda: decode_event(wire), lambda: read_event(json.dumps(wire))):
        with pytest.raises(InvalidEvent) as caught:
            read()
        paths = [issue.path for issue in caught.value.issues]
        assert any(found == path or found.startswith(f"{path}/") for found in paths), paths
        if key != "requestId":
            assert caught.value.request_id == "1"
        else:
            assert caught.value.request_id is None
        assert caught.value.type == wire["type"]


def test_what_is_just_within_the_limits_is_taken():
    wire = {
        **WIRES["requested"],
        "requestId": "x" * MAX_ID_LENGTH,
        "chain": ["a.b"] * MAX_CHAIN,
        "idleTimeout": 0.001,
        "deadline": -1e300,
        "identity": {"id": ""},
    }
    event = read_event(json.dumps(wire))
    assert event.request_id == "x" * MAX_ID_LENGTH
    assert event.chain == ("a.b",) * MAX_CHAIN
    assert event.identity == Identity("")


def test_all_reasons_are_told_at_once():
    wire = {"type": "call.requested", "deadline": "soon", "identity": {"scopes": "admin"}}
    with pytest.raises(InvalidEvent) as caught:
        decode_event(wire)
    paths = {issue.path for issue in caught.value.issues}
    expected = {"/requestId", "/operationId", "/input", "/deadline"}
    assert paths == expected | {"/identity/id", "/identity/scopes"}
    assert caught.value.request_id is None


@pytest.mark.parametrize(
    "wire",
    [
        None,
        True,
        5,
        1.5,
        "call.aborted",
        [],
        [{"type": "call.aborted", "requestId": "1"}],
        {},
        {"requestId": "1"},
        {"type": None, "requestId": "1"},
        {"type": 5, "requestId": "1"},
        {"type": ["call.aborted"], "requestId": "1"},
        {"type": {"call.aborted": 1}, "requestId": "1"},
        {"type": "", "requestId": "1"},
        {"type": "call.Aborted", "requestId": "1"},
        {"type": "call.aborted ", "requestId": "1"},
        {"type": "call.started", "requestId": "1"},
        {"type": "x" * 100_000, "requestId": "1"},
    ],
)
def test_what_has_no_known_type_is_no_event(wire):
    for read in (lambda: decode_event(wire), lambda: read_event(json.dumps(wire))):
        with pytest.raises(InvalidEvent) as caught:
            read()
        (issue,) = caught.value.issues
        assert issue.path == "/type"
        assert all(known in issue.message for known in EVENT_TYPES)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"x", float("nan"), float("inf"), {1: 2}, {"\udfff": 1}]
)
def test_data_that_is_not_json_is_no_event_wherever_it_stands(value):
    for wire in (
        {**WIRES["requested"], "input": value},
        {**WIRES["requested"], "input": [{"deep": value}]},
        {**WIRES["requested"], "metadata": {"k": value}},
        {**WIRES["responded"], "output": {**LOCAL, "data": value}},
        {**WIRES["error"], "details": value},
        {**WIRES["aborted"], "unknown": value},
        {**WIRES["aborted"], "requestId": value},
    ):
        with pytest.raises(InvalidEvent):
            decode_event(wire)


@pytest.mark.parametrize("kind", [10**5000, -(10**5000)], ids=["vast", "vast and negative"])
def test_a_vast_number_in_place_of_the_type_is_no_event(kind):
    with pytest.raises(InvalidEvent):
        decode_event({"type": kind, "requestId": "1"})


def _nested(depth, core=1):
    for _ in range(depth):
        core = [core]
    return core


@pytest.mark.parametrize("key", ["type", "requestId", "input", "metadata", "unknown"])
def test_a_value_of_any_depth_is_an_event_or_none(key):
    base = WIRES["requested"]
    for depth in (0, 10, 127, 128, 129, 255, 256, MAX_VALUE_DEPTH - 1, MAX_VALUE_DEPTH + 1, 5000):
        try:
            event = decode_event({**base, key: _nested(depth)})
        except InvalidEvent:
            continue
        assert isinstance(event, CallRequested)
        assert depth <= MAX_VALUE_DEPTH


@pytest.mark.parametrize("key", ["type", "requestId", "input", "unknown"])
def test_text_of_any_depth_is_an_event_or_none(key):
    limit = sys.getrecursionlimit()
    base = {**WIRES["requested"], "requestId": "1"}
    for depth in (*range(limit - 150, limit + 10, 2), 100_000):
        nested = "[" * depth + "]" * depth
        text = json.dumps({**base, key: "HERE"}).replace('"HERE"', nested)
        with pytest.raises(InvalidEvent):
            read_event(text)


HOSTILE = {
    "nothing": b"",
    "blank": b"   ",
    "null": b"null",
    "cut": b'{"type":"call.aborted","requestId":"1"',
    "more": b'{"type":"call.aborted","requestId":"1"}}',
    "two events": b'{"type":"call.aborted","requestId":"1"}\n{"type":"call.aborted"}',
    "trailing comma": b'{"type":"call.aborted","requestId":"1",}',
    "single quotes": b"{'type':'call.aborted','requestId':'1'}",
    "comment": b'{"type":"call.aborted"/* */,"requestId":"1"}',
    "bare key": b'{type:"call.aborted"}',
    "byte order mark": b'\xef\xbb\xbf{"type":"call.aborted","requestId":"1"}',
    "utf-16": '{"type":"call.aborted","requestId":"1"}'.encode("utf-16"),
    "not utf-8": b'{"type":"call.aborted","requestId":"\xff"}',
    "cut utf-8": b'{"type":"call.aborted","requestId":"\xc3"}',
    "overlong utf-8": b'{"type":"call.aborted","requestId":"\xc0\xaf"}',
    "surrogate in utf-8": b'{"type":"call.aborted","requestId":"\xed\xa0\x80"}',
    "lone surrogate": b'{"type":"call.aborted","requestId":"\\ud800"}',
    "lone low surrogate": b'{"type":"call.aborted","requestId":"a\\udc00b"}',
    "surrogate in a key": b'{"type":"call.aborted","requestId":"1","\\ud83d":1}',
    "surrogate as text": '{"type":"call.aborted","requestId":"\ud800"}',
    "bad escape": b'{"type":"call.aborted","requestId":"\\x41"}',
    "control character": b'{"type":"call.aborted","requestId":"\x00"}',
    "line in a text": b'{"type":"call.aborted","requestId":"\n"}',
    "NaN": b'{"type":"call.requested","requestId":"1","operationId":"a","input":NaN}',
    "Infinity": b'{"type":"call.requested","requestId":"1","operationId":"a","input":Infinity}',
    "minus Infinity": b'{"type":"call.completed","requestId":"1","count":-Infinity}',
    "too great": b'{"type":"call.requested","requestId":"1","operationId":"a","input":1e999}',
    "hex": b'{"type":"call.completed","requestId":"1","count":0x1}',
    "leading zero": b'{"type":"call.completed","requestId":"1","count":01}',
    "plus": b'{"type":"call.completed","requestId":"1","count":+1}',
    "digits without end": b'{"type":"call.aborted","requestId":"1","x":' + b"9" * 100_000 + b"}",
    "digits for a type": b'{"type":' + b"9" * 5_000 + b"}",
    "open brackets": b"[" * 1_000_000,
    "open objects": b'{"type":' * 200_000,
    "nul": b"\x00" * 100,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_as_no_event(name):
    with pytest.raises(InvalidEvent) as caught:
        read_event(HOSTILE[name])
    assert caught.value.issues
    assert len(str(caught.value)) < 1000


def test_of_a_key_that_stands_twice_the_last_counts_for_everybody():
    # RFC 8259 leaves it open. One reading for schema check and event alike is what matters.
    event = read_event(b'{"type":"call.error","type":"call.aborted","requestId":0,"requestId":"1"}')
    assert event == CallAborted("1")
    with pytest.raises(InvalidEvent):
        read_event(b'{"type":"call.aborted","requestId":"1","requestId":0}')


def test_an_event_of_the_greatest_size_is_read_and_one_byte_more_is_not():
    bare = json.dumps({**WIRES["aborted"], "pad": ""}).encode()
    text = bare[:-2] + b"x" * (MAX_EVENT_BYTES - len(bare)) + bare[-2:]
    assert len(text) == MAX_EVENT_BYTES
    assert read_event(text) == CallAborted("1")
    with pytest.raises(InvalidEvent) as caught:
        read_event(text + b" ")
    assert [issue.code for issue in caught.value.issues] == ["maxLength"]


def test_the_size_of_an_event_is_counted_in_bytes_also_when_it_is_text():
    text = json.dumps({**WIRES["aborted"], "pad": "HERE"}).replace("HERE", "ü" * 9_000_000)
    assert len(text) < MAX_EVENT_BYTES < len(text.encode())
    with pytest.raises(InvalidEvent) as caught:
        read_event(text)
    assert [issue.code for issue in caught.value.issues] == ["maxLength"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, bytes.decode])
def test_an_event_is_read_from_every_sort_of_bytes_and_from_text(kind):
    assert read_event(kind(b'{"type":"call.aborted","requestId":"1"}')) == CallAborted("1")
    with pytest.raises(InvalidEvent):
        read_event(kind(b"{}"))


def test_a_part_of_a_buffer_is_read_as_what_it_is():
    text = b'{"type":"call.aborted","requestId":"1"}'
    doubled = bytes(byte for byte in text for _ in range(2))
    assert read_event(memoryview(b"--" + text + b"--")[2:-2]) == CallAborted("1")
    assert read_event(memoryview(doubled)[::2]) == CallAborted("1")


def test_the_size_of_a_buffer_is_counted_in_bytes():
    wide = memoryview(bytearray(MAX_EVENT_BYTES + 4)).cast("I")
    assert len(wide) < MAX_EVENT_BYTES
    with pytest.raises(InvalidEvent) as caught:
        read_event(wide)
    assert [issue.code for issue in caught.value.issues] == ["maxLength"]


@pytest.mark.parametrize("wrong", [None, 5, {"type": "call.aborted", "requestId": "1"}, [1]])
def test_what_is_neither_bytes_nor_text_is_wrong_use(wrong):
    with pytest.raises(UsageError) as caught:
        read_event(wrong)
    assert type(wrong).__name__ in str(caught.value)


# --- what answers may hold ------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        None,
        False,
        0,
        "",
        [],
        {},
        -0.0,
        1e-320,
        1.7976931348623157e308,
        2**53 + 1,
        2**64,
        -(10**300),
        10**3500,
        '\u0000\u2028\U0001f600\\"',
        {"": {"a/b~c": [None, {"data": 1, "meta": {"source": "local"}}]}},
        {"type": "call.aborted", "requestId": "2"},
        _nested(128),
        b"",
        b"\x00\xff" * 500,
    ],
    ids=lambda data: repr(data)[:30] if not isinstance(data, int) else f"{data.bit_length()} bits",
)
def test_data_crosses_a_wire_unchanged_as_input_and_as_output(data):
    event = read_event(write_event(CallResponded("1", _envelope({**LOCAL, "data": data}))))
    assert event.output.data == data
    assert type(event.output.data) is type(data)
    assert is_response_envelope(event.output)
    if not isinstance(data, bytes):
        event = read_event(write_event(CallRequested("1", "a.b", data)))
        assert event.input == data
        assert type(event.input) is type(data)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        float("nan"),
        [float("inf")],
        {1: 2},
        {"\ud800": 1},
        _nested(MAX_VALUE_DEPTH + 1),
        {1, 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_never_written_and_the_place_is_told(value):
    with pytest.raises(InvalidInput) as refused:
        write_event(CallRequested("1", "a.b", {"k": value}))
    assert refused.value.code == "schema_validation_failed"
    assert refused.value.path.startswith("/k")
    with pytest.raises(NotJson) as rejected:
        write_event(CallResponded("1", local_envelope({"k": value}, "a.b")))
    assert rejected.value.code == "output_validation_failed"
    assert rejected.value.path.startswith("/k")


def test_bytes_are_an_answer_but_no_argument():
    with pytest.raises(InvalidInput):
        write_event(CallRequested("1", "a.b", b"x"))
    wire = json.loads(write_event(CallResponded("1", _envelope({**LOCAL, "data": b"\xff"}))))
    assert wire["output"] == {**LOCAL, "data": "/w==", "encoding": "base64"}


@pytest.mark.parametrize("data", [bytearray(b"\x00\xff"), memoryview(b"\x00\xff")], ids=["a", "v"])
def test_every_sort_of_bytes_is_sent_as_bytes(data):
    event = read_event(write_event(CallResponded("1", local_envelope(data, "a.b"))))
    assert event.output.data == b"\x00\xff"


def test_half_characters_arrive_as_the_replacement_character_and_hold_nothing_up():
    failed = read_event(write_event(CallFailed("1", "sold_out", "no \ud83d tea", {"k": "\udc00"})))
    assert failed == CallFailed("1", "sold_out", "no \ufffd tea", {"k": "\ufffd"})
    asked = CallRequested(
        "1", "a.b", {"q": ["\ud800"]}, identity=Identity("\ud800"), metadata={"\ud800": 1}
    )
    asked = read_event(write_event(asked))
    assert (asked.identity, asked.metadata) == (Identity("\ufffd"), {"\ufffd": 1})
    assert asked.input == {"q": ["\ufffd"]}
    answered = CallResponded("1", local_envelope({"q": "tea \udfff", "n": 2**70}, "a.b"))
    assert read_event(write_event(answered)).output.data == {"q": "tea \ufffd", "n": 2**70}


WARNINGS = (
    Issue("type", "Output property 'n' must be a number, got string", "/n", "number", "string"),
    Issue("gap", "1 result before this one did not arrive"),
    Issue("required", "m", "/x", hint="x: what it is"),
)
CHANGES = (
    Change("/n", "replaced", "12,5", True),
    Change("/m", "converted", "7"),
    Change("/gone", "stripped", {"k": [None]}),
    Change("/new", "filled", None, True),
)


def test_warnings_and_changes_survive_also_what_was_invented():
    envelope = msgspec.structs.replace(_envelope(LOCAL), warnings=WARNINGS, changes=CHANGES)
    event = read_event(write_event(CallResponded("1", envelope)))
    assert event.output.warnings == WARNINGS
    assert event.output.changes == CHANGES
    assert [change.invented for change in event.output.changes] == [True, False, False, True]
    for part in ({"warnings": WARNINGS}, {"changes": CHANGES}):
        envelope = msgspec.structs.replace(_envelope(LOCAL), **part)
        assert read_event(write_event(CallResponded("1", envelope))).output == envelope


@pytest.mark.parametrize("beside", ["x", 5, [5], [{}], {"a": 1}, [{"path": 5, "message": "m"}]])
def test_foreign_warnings_and_changes_are_no_reason_to_lose_the_answer(beside):
    wire = {**WIRES["responded"], "output": {**LOCAL, "warnings": beside, "changes": beside}}
    event = decode_event(wire)
    assert event.output.data == 1
    assert (event.output.warnings, event.output.changes) == ((), ())


@pytest.mark.parametrize(
    "envelope",
    [
        http_envelope({"a": 1}, status_code=204, headers={}, content_type=""),
        http_envelope(b"%PDF", status_code=200, headers={"x": "y"}, content_type="a/b"),
        http_envelope(1, status_code=200, headers={}, content_type="", set_cookie=["a=b", "c"]),
        mcp_envelope([], is_error=False, content=[]),
        mcp_envelope(None, is_error=False, content=[TextBlock("x")], structured_content=None),
        mcp_envelope({}, is_error=True, content=[], structured_content={}, meta_ext={"a": [1]}),
    ],
)
def test_every_meta_survives_with_absent_parts_absent(envelope):
    assert read_event(write_event(CallResponded("1", envelope))).output == envelope


@pytest.mark.parametrize("source", ["local", "http", "mcp"])
def test_an_answer_with_a_thin_meta_is_refused_where_it_is_written_and_where_it_is_read(source):
    # Digest, section 1: in a process only `source` is asked for; what arrives from a wire must
    # keep the schema. So that no caller waits for what nobody can read, the sender is told.
    output = {"data": 1, "meta": {"source": source}}
    envelope = _envelope(output)
    assert is_response_envelope(envelope)
    with pytest.raises(OutputRejected) as rejected:
        write_event(CallResponded("1", envelope))
    assert all(issue.path.startswith("/meta/") for issue in rejected.value.issues)
    with pytest.raises(InvalidEvent) as refused:
        decode_event({**WIRES["responded"], "output": output})
    assert all(issue.path.startswith("/output/meta/") for issue in refused.value.issues)


@pytest.mark.parametrize(
    "odd",
    [object(), float("nan"), {1: 2}, _nested(MAX_VALUE_DEPTH + 1)],
    ids=["object", "nan", "keys", "deep"],
)
def test_a_meta_that_json_cannot_say_is_refused_and_never_written_as_something_else(odd):
    for part in ({"structured_content": {"k": odd}}, {"meta_ext": {"k": odd}}):
        envelope = mcp_envelope(1, is_error=False, content=[], **part)
        with pytest.raises(OutputRejected) as caught:
            write_event(CallResponded("1", envelope))
        assert caught.value.path.startswith("/meta")


def test_what_is_too_large_to_be_read_is_not_written():
    vast = "x" * MAX_EVENT_BYTES
    with pytest.raises(InvalidInput) as refused:
        write_event(CallRequested("1", "a.b", {"q": vast}))
    assert [issue.code for issue in refused.value.issues] == ["maxLength"]
    with pytest.raises(OutputRejected) as rejected:
        write_event(CallResponded("1", local_envelope(vast, "a.b")))
    assert [issue.code for issue in rejected.value.issues] == ["maxLength"]


@pytest.mark.parametrize("part", ["message", "details", "code"])
def test_a_failure_arrives_however_much_it_has_to_say(part):
    vast = "x" * MAX_EVENT_BYTES
    said = {"code": "sold_out", "message": "no tea left", part: vast}
    event = read_event(write_event(CallFailed("1", **said)))
    assert event.request_id == "1"
    if part != "code":
        assert event.code == "sold_out"
    if part != "message":
        assert event.message == "no tea left"


@pytest.mark.parametrize("depth", [127, 128, 129, 200, 253, 300])
def test_metadata_of_any_depth_does_not_hold_a_request_up(depth):
    event = CallRequested("1", "a.b", {}, metadata={"k": _nested(depth)})
    assert read_event(write_event(event)).input == {}


@pytest.mark.parametrize(
    "odd",
    [dt.datetime(2026, 1, 1), uuid.UUID(int=1), decimal.Decimal(1), {1, 2}, object(), float("nan")],
    ids=lambda odd: type(odd).__name__,
)
def test_metadata_and_details_that_are_not_json_are_made_json(odd):
    for event in (
        CallRequested("1", "a.b", {}, metadata={"k": [odd]}),
        CallRequested("1", "a.b", {}, metadata=UserDict(k=odd)),
        CallFailed("1", "sold_out", "no", {"k": [odd]}),
        CallFailed.of("1", ToolError("sold_out", "no", details={"k": [odd]})),
    ):
        assert json.loads(json.dumps(encode_event(event), allow_nan=False))["requestId"] == "1"
        assert read_event(write_event(event)).request_id == "1"


# --- ids ------------------------------------------------------------------------------------


def test_ids_are_uuids_of_their_own():
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    for one in ids:
        assert str(uuid.UUID(one)) == one
        assert uuid.UUID(one).version == 4
        assert uuid.UUID(one).variant == uuid.RFC_4122
