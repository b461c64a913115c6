"""Seed 001's envelope: types, detection, factories, and the JSON form both ways."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import ChainMap
from decimal import Decimal
from types import MappingProxyType

import msgspec
import pytest
from msgspec import UNSET

from callpact.envelope import (
    HTTP_RESPONSE_META_SCHEMA,
    LOCAL_RESPONSE_META_SCHEMA,
    MCP_CONTENT_BLOCK_SCHEMA,
    MCP_RESPONSE_META_SCHEMA,
    RESPONSE_ENVELOPE_SCHEMA,
    RESPONSE_META_SCHEMA,
    RESPONSE_SOURCES,
    AudioBlock,
    HTTPResponseMeta,
    ImageBlock,
    LocalResponseMeta,
    MCPAnnotations,
    MCPResourceContent,
    MCPResponseMeta,
    ResourceBlock,
    ResourceLinkBlock,
    ResponseEnvelope,
    TextBlock,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
    raise_for_error,
    unwrap,
    wrap,
)
from callpact.errors import CallError, Issue, NotJson, UsageError
from callpact.schema import Change, check

NOTED = MCPAnnotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
BLOCKS = [
    TextBlock("hello"),
    TextBlock("hello", NOTED),
    ImageBlock("aGk=", "image/png"),
    ImageBlock("aGk=", "image/png", NOTED),
    AudioBlock("aGk=", "audio/wav"),
    AudioBlock("aGk=", "audio/wav", NOTED),
    ResourceBlock(MCPResourceContent("file:///a", "text/plain", text="a")),
    ResourceBlock(MCPResourceContent("file:///b", blob="aGk="), NOTED),
    ResourceLinkBlock("file:///c", "c", "the third", "text/plain"),
    ResourceLinkBlock("file:///d", "d"),
]
# Seed 001's TypeScript types, block by block.
BLOCKS_ON_THE_WIRE = [
    {"type": "text", "text": "hello"},
    {
        "type": "text",
        "text": "hello",
        "annotations": {
            "audience": ["user"],
            "priority": 0.5,
            "lastModified": "2026-01-01T00:00:00Z",
        },
    },
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {
        "type": "image",
        "data": "aGk=",
        "mimeType": "image/png",
        "annotations": {
            "audience": ["user"],
            "priority": 0.5,
            "lastModified": "2026-01-01T00:00:00Z",
        },
    },
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {
        "type": "audio",
        "data": "aGk=",
        "mimeType": "audio/wav",
        "annotations": {
            "audience": ["user"],
            "priority": 0.5,
            "lastModified": "2026-01-01T00:00:00Z",
        },
    },
    {
        "type": "resource",
        "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "a"},
    },
    {
        "type": "resource",
        "resource": {"uri": "file:///b", "blob": "aGk="},
        "annotations": {
            "audience": ["user"],
            "priority": 0.5,
            "lastModified": "2026-01-01T00:00:00Z",
        },
    },
    {
        "type": "resource_link",
        "uri": "file:///c",
        "name": "c",
        "description": "the third",
        "mimeType": "text/plain",
    },
    {"type": "resource_link", "uri": "file:///d", "name": "d"},
]
ENVELOPES = {
    "local": local_envelope({"a": [1, None]}, "shop.search"),
    "void": local_envelope(None, "shop.search"),
    "http": http_envelope(
        [1.5], status_code=200, headers={"etag": "x"}, content_type="application/json"
    ),
    "http with cookies": http_envelope(
        "text", status_code=201, headers={}, content_type="", set_cookie=["a=1", "b=2"]
    ),
    "mcp": mcp_envelope({"n": 1}, is_error=False, content=BLOCKS, structured_content={"n": 1}),
    "mcp error": mcp_envelope([], is_error=True, content=[TextBlock("boom")]),
    "mcp null": mcp_envelope(
        None, is_error=False, content=[], structured_content=None, meta_ext={"x": 1}
    ),
    "bytes": http_envelope(
        b"\x00\xff", status_code=200, headers={}, content_type="application/octet-stream"
    ),
}


# --- the wire form --------------------------------------------------------------------------


@pytest.mark.requirement("001.types.envelope")
@pytest.mark.requirement("001.types.local-meta")
def test_a_local_envelope_on_the_wire_is_data_and_meta_in_camel_case():
    before = time.time_ns() // 1_000_000
    wire = local_envelope({"a": 1}, "shop.search").to_wire()
    after = time.time_ns() // 1_000_000
    stamp = wire["meta"].pop("timestamp")
    assert wire == {"data": {"a": 1}, "meta": {"source": "local", "operationId": "shop.search"}}
    assert isinstance(stamp, int)
    assert before <= stamp <= after


@pytest.mark.requirement("001.types.http-meta")
def test_an_http_envelope_keeps_status_headers_and_content_type():
    envelope = http_envelope(
        [1], status_code=200, headers={"x-a": "1, 2"}, content_type="application/json"
    )
    assert envelope.to_wire() == {
        "data": [1],
        "meta": {
            "source": "http",
            "statusCode": 200,
            "headers": {"x-a": "1, 2"},
            "contentType": "application/json",
        },
    }


@pytest.mark.requirement("001.types.http-set-cookie")
def test_cookies_of_an_http_answer_stand_in_a_list_of_their_own():
    meta = ENVELOPES["http with cookies"].to_wire()["meta"]
    assert meta["setCookie"] == ["a=1", "b=2"]
    assert "setCookie" not in ENVELOPES["http"].to_wire()["meta"]


@pytest.mark.requirement("001.types.mcp-meta")
def test_an_mcp_envelope_mirrors_the_call_tool_result_and_leaves_absent_parts_out():
    full = mcp_envelope(
        {"n": 1},
        is_error=False,
        content=[TextBlock("n=1")],
        structured_content={"n": 1},
        meta_ext={"trace": "t"},
    )
    assert full.to_wire()["meta"] == {
        "source": "mcp",
        "isError": False,
        "content": [{"type": "text", "text": "n=1"}],
        "structuredContent": {"n": 1},
        "_meta": {"trace": "t"},
    }
    thin = mcp_envelope([], is_error=True, content=[])
    assert thin.to_wire()["meta"] == {"source": "mcp", "isError": True, "content": []}


def test_structured_content_null_is_a_value_and_not_the_same_as_absent():
    assert ENVELOPES["mcp null"].to_wire()["meta"]["structuredContent"] is None
    assert ResponseEnvelope.from_json(ENVELOPES["mcp null"].to_json()).meta == (
        ENVELOPES["mcp null"].meta
    )
    assert ENVELOPES["mcp error"].meta.structured_content is UNSET


@pytest.mark.requirement("001.types.content-blocks")
def test_every_content_block_has_the_wire_form_of_the_seed_both_ways():
    meta = ENVELOPES["mcp"].to_wire()["meta"]
    assert meta["content"] == BLOCKS_ON_THE_WIRE
    read = ResponseEnvelope.from_wire({"data": None, "meta": meta})
    assert read.meta.content == BLOCKS


@pytest.mark.requirement("001.types.source-discriminates")
@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_survives_the_way_through_json(name):
    envelope = ENVELOPES[name]
    read = ResponseEnvelope.from_json(envelope.to_json())
    assert read == envelope
    assert type(read.meta) is type(envelope.meta)
    assert read.meta.source == json.loads(envelope.to_json())["meta"]["source"]


def test_null_data_is_always_written():
    wire = json.loads(ENVELOPES["void"].to_json())
    assert "data" in wire
    assert wire["data"] is None


def test_bytes_become_base64_told_by_an_encoding_beside_them():
    wire = ENVELOPES["bytes"].to_wire()
    assert (wire["data"], wire["encoding"]) == ("AP8=", "base64")
    assert ResponseEnvelope.from_wire(wire).data == b"\x00\xff"
    for other in (bytearray(b"\x00\xff"), memoryview(b"\x00\xff")):
        assert local_envelope(other, "a.b").to_wire()["data"] == "AP8="


def test_text_that_looks_like_base64_stays_text():
    assert ResponseEnvelope.from_json(local_envelope("AP8=", "a.b").to_json()).data == "AP8="


def test_data_that_is_not_base64_as_it_says_is_an_error():
    wire = {"data": "not base64!", "encoding": "base64", "meta": {"source": "local"}}
    with pytest.raises(UsageError, match="base64"):
        ResponseEnvelope.from_wire(wire)


def test_integers_beyond_64_bits_and_decimals_are_written_as_the_numbers_they_are():
    data = {"n": 2**70, "m": -(2**80), "d": Decimal("12.50")}
    text = local_envelope(data, "a.b").to_json()
    assert json.loads(text)["data"] == {"n": 2**70, "m": -(2**80), "d": 12.5}
    assert ResponseEnvelope.from_json(text).data["n"] == 2**70


def test_warnings_and_changes_are_left_out_of_the_wire_form_unless_asked_for():
    envelope = ResponseEnvelope(
        {"price": 0},
        LocalResponseMeta("a.b", 1),
        (Issue("type", "wrong", "/price", "number", "string"),),
        (Change("/price", "replaced", "n/a", invented=True), Change("/x", "stripped", object())),
    )
    assert set(envelope.to_wire()) == {"data", "meta"}
    told = envelope.to_wire(details=True)
    assert told["warnings"] == [
        {
            "code": "type",
            "message": "wrong",
            "path": "/price",
            "expected": "number",
            "received": "string",
        }
    ]
    assert told["changes"][0] == {
        "path": "/price",
        "action": "replaced",
        "before": "n/a",
        "invented": True,
    }
    assert set(told["changes"][1]) == {"path", "action", "before"}
    assert envelope.to_json(details=True)


@pytest.mark.parametrize("text", ["", "nope", "[]", "1", "null", '{"data":1}', b"\xff", "[" * 5000])
def test_text_that_is_not_an_envelope_is_refused(text):
    with pytest.raises(UsageError, match="not an envelope"):
        ResponseEnvelope.from_json(text)


def test_what_is_not_an_envelope_is_refused_with_what_one_looks_like():
    with pytest.raises(UsageError, match=r"'data' and 'meta'.*local, http, mcp"):
        ResponseEnvelope.from_wire({"data": 1})


# --- detection ------------------------------------------------------------------------------


@pytest.mark.requirement("001.detect.closed-sources")
def test_the_list_of_sources_is_closed():
    assert RESPONSE_SOURCES == ("local", "http", "mcp")


@pytest.mark.requirement("001.detect.is-response-envelope")
@pytest.mark.requirement("001.constraint.sole-detection")
@pytest.mark.parametrize(
    "value",
    [
        local_envelope(1, "a.b"),
        {"data": 1, "meta": {"source": "local"}},
        {"data": None, "meta": {"source": "http"}},
        {"data": 1, "meta": {"source": "mcp", "extra": 1}, "more": 2},
        {"data": 1, "meta": LocalResponseMeta("a.b", 1)},
        MappingProxyType({"data": 1, "meta": MappingProxyType({"source": "mcp"})}),
        ChainMap({"data": 1}, {"meta": {"source": "local"}}),
    ],
)
def test_data_and_a_meta_of_a_known_source_make_an_envelope(value):
    assert is_response_envelope(value)


@pytest.mark.requirement("001.detect.is-response-envelope")
@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "data",
        b"data",
        [],
        ["data", "meta"],
        {},
        {"meta": {"source": "local"}},
        {"data": 1},
        {"data": 1, "meta": None},
        {"data": 1, "meta": 3},
        {"data": 1, "meta": ["source"]},
        {"data": 1, "meta": "local"},
        {"data": 1, "meta": {}},
        {"data": 1, "meta": {"source": "grpc"}},
        {"data": 1, "meta": {"source": None}},
        {"data": 1, "meta": {"source": ["local"]}},
        LocalResponseMeta("a.b", 1),
        object(),
    ],
)
def test_nothing_else_is_an_envelope(value):
    assert not is_response_envelope(value)


@pytest.mark.requirement("001.detect.json-serializable")
@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_is_still_one_after_json(name):
    assert is_response_envelope(json.loads(ENVELOPES[name].to_json()))


@pytest.mark.parametrize(
    "meta",
    [
        {"source": "local"},
        {"source": "http", "statusCode": 200},
        {"source": "mcp"},
        {"source": "mcp", "isError": True, "content": [{"type": "hologram", "x": 1}]},
        {"source": "local", "operationId": 5, "timestamp": "yesterday"},
    ],
)
def test_a_thin_or_odd_meta_survives_reading_and_writing(meta):
    envelope = ResponseEnvelope.from_wire({"data": 1, "meta": meta})
    assert envelope.meta.source == meta["source"]
    assert envelope.to_wire() == {"data": 1, "meta": meta}
    assert is_response_envelope(envelope.to_wire())


def test_extra_keys_of_a_meta_do_not_fail():
    wire = {
        "data": 1,
        "meta": {"source": "local", "operationId": "a.b", "timestamp": 1, "region": "eu"},
    }
    assert ResponseEnvelope.from_wire(wire).meta == LocalResponseMeta("a.b", 1)


# --- wrapping -------------------------------------------------------------------------------


@pytest.mark.requirement("001.execute.envelopes-pass-through")
def test_an_envelope_is_wrapped_as_the_same_object():
    envelope = ENVELOPES["mcp"]
    assert wrap(envelope, "other.tool") is envelope
    assert wrap(wrap(1, "a.b"), "c.d").data == 1


def test_a_mapping_that_is_an_envelope_is_read_and_not_wrapped_again():
    envelope = wrap({"data": 5, "meta": {"source": "mcp"}}, "a.b")
    assert envelope.data == 5
    assert isinstance(envelope.meta, MCPResponseMeta)


@pytest.mark.requirement("001.execute.wraps-raw-values")
@pytest.mark.parametrize(
    "value", [1, None, [], {"meta": 1}, {"data": 1}, {"data": 1, "meta": {"source": "x"}}]
)
def test_everything_else_is_wrapped_as_local_with_the_tools_id(value):
    envelope = wrap(value, "shop.search")
    assert envelope.data == value
    assert isinstance(envelope.meta, LocalResponseMeta)
    assert envelope.meta.operation_id == "shop.search"


def test_an_envelope_inside_data_is_not_unwrapped():
    inner = local_envelope(1, "a.b").to_wire()
    assert wrap({"data": inner, "meta": {"source": "local"}}, "c.d").data == inner


# --- factories and readers ------------------------------------------------------------------


@pytest.mark.requirement("001.factories.local")
@pytest.mark.requirement("001.factories.void-data")
def test_a_local_envelope_may_hold_nothing():
    envelope = local_envelope(None, "a.b")
    assert envelope.data is None
    assert envelope.meta.source == "local"


@pytest.mark.requirement("001.factories.http")
@pytest.mark.requirement("001.factories.mcp")
@pytest.mark.requirement("001.constraint.factories")
def test_the_factories_make_the_three_metas():
    assert type(ENVELOPES["local"].meta) is LocalResponseMeta
    assert type(ENVELOPES["http"].meta) is HTTPResponseMeta
    assert type(ENVELOPES["mcp"].meta) is MCPResponseMeta


def test_an_http_envelope_keeps_its_own_copy_of_the_headers():
    headers = {"a": "1"}
    envelope = http_envelope(1, status_code=200, headers=headers, content_type="")
    headers["a"] = "2"
    assert envelope.meta.headers == {"a": "1"}


def test_an_envelope_cannot_be_changed():
    with pytest.raises(AttributeError):
        ENVELOPES["local"].data = 1
    with pytest.raises(AttributeError):
        ENVELOPES["local"].meta.timestamp = 1


@pytest.mark.requirement("001.unwrap.returns-data")
@pytest.mark.requirement("001.constraint.unwrap")
def test_unwrap_gives_the_data_and_nothing_more():
    data = {"a": 1}
    assert unwrap(local_envelope(data, "a.b")) is data
    assert unwrap(ENVELOPES["mcp error"]) == []


@pytest.mark.requirement("001.mcp.is-error-is-data")
@pytest.mark.requirement("001.open.client-abstraction")
def test_an_mcp_error_is_data_until_somebody_asks_to_raise_it():
    failed = mcp_envelope(
        [], is_error=True, content=[ImageBlock("aGk=", "image/png"), TextBlock("no such city")]
    )
    with pytest.raises(CallError) as caught:
        raise_for_error(failed)
    assert (caught.value.code, caught.value.message) == ("tool_error", "no such city")


@pytest.mark.parametrize("name", [n for n in ENVELOPES if n != "mcp error"])
def test_raise_for_error_hands_back_what_is_no_error(name):
    assert raise_for_error(ENVELOPES[name]) is ENVELOPES[name]


@pytest.mark.parametrize(
    "meta",
    [{"source": "mcp", "isError": True}, {"source": "mcp", "isError": True, "content": [1]}],
)
def test_an_mcp_error_without_text_still_says_that_it_is_one(meta):
    envelope = ResponseEnvelope.from_wire({"data": None, "meta": meta})
    with pytest.raises(CallError) as caught:
        raise_for_error(envelope)
    assert caught.value.code == "tool_error"
    assert caught.value.message


# --- schema constants -----------------------------------------------------------------------


@pytest.mark.requirement("001.schemas.envelope")
@pytest.mark.requirement("001.schemas.metas")
@pytest.mark.parametrize("name", ENVELOPES)
def test_the_schema_constants_accept_what_the_factories_make(name):
    wire = json.loads(ENVELOPES[name].to_json())
    assert check(RESPONSE_ENVELOPE_SCHEMA, wire) == []
    assert check(RESPONSE_META_SCHEMA, wire["meta"]) == []
    own = {
        "local": LOCAL_RESPONSE_META_SCHEMA,
        "http": HTTP_RESPONSE_META_SCHEMA,
        "mcp": MCP_RESPONSE_META_SCHEMA,
    }
    for source, schema in own.items():
        assert (check(schema, wire["meta"]) == []) == (source == wire["meta"]["source"])


@pytest.mark.parametrize("name", ENVELOPES)
def test_extra_keys_do_not_fail_the_schema_constants(name):
    wire = json.loads(ENVELOPES[name].to_json())
    wire["trace"] = 1
    wire["meta"]["region"] = "eu"
    assert check(RESPONSE_ENVELOPE_SCHEMA, wire) == []


@pytest.mark.parametrize("block", BLOCKS_ON_THE_WIRE)
def test_the_schema_of_content_blocks_accepts_every_kind_and_needs_every_part(block):
    assert check(MCP_CONTENT_BLOCK_SCHEMA, block) == []
    optional = {"annotations", "description"}
    if block["type"] == "resource_link":
        optional.add("mimeType")
    for key in set(block) - optional:
        assert check(MCP_CONTENT_BLOCK_SCHEMA, {k: v for k, v in block.items() if k != key})


@pytest.mark.parametrize(
    "wire",
    [
        {"meta": {"source": "local", "operationId": "a.b", "timestamp": 1}},
        {"data": 1},
        {"data": 1, "meta": {"source": "local", "operationId": "a.b"}},
        {"data": 1, "meta": {"source": "grpc", "operationId": "a.b", "timestamp": 1}},
        {"data": 1, "meta": {"source": "http", "statusCode": "200", "headers": {}}},
        {
            "data": 1,
            "meta": {"source": "http", "statusCode": 1, "headers": {"a": 1}, "contentType": ""},
        },
        {"data": 1, "meta": {"source": "mcp", "isError": "no", "content": []}},
        {"data": 1, "meta": {"source": "mcp", "isError": True, "content": [{"type": "text"}]}},
    ],
)
def test_the_schema_constants_refuse_what_no_factory_makes(wire):
    assert check(RESPONSE_ENVELOPE_SCHEMA, wire)


@pytest.mark.requirement("001.constraint.own-content-blocks")
def test_envelopes_need_no_mcp_sdk():
    code = "import callpact.envelope, callpact.runtime, sys; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_blocks_of_an_envelope_are_our_own_types():
    assert all(isinstance(block, msgspec.Struct) for block in BLOCKS)
    assert {type(block).__module__ for block in BLOCKS} == {"callpact.envelope"}


def test_what_no_json_text_can_say_is_named_when_the_envelope_is_written():
    with pytest.raises(NotJson) as caught:
        local_envelope({"a": ["ok", "\ud800"]}, "t.t").to_json()
    assert caught.value.path == "/data/a/1"
