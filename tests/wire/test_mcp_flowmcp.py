"""FlowMCP's `{status, messages, data}` over MCP: what is published fits what is delivered."""

from __future__ import annotations

import asyncio
import base64
import json

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.catalog import Catalog
from callpact.errors import CallError, ToolError, UpstreamError
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool
from callpact.wire.mcp.results import encode_error, encode_result, encode_tool
from callpact.wire.paging import KeptResults, Paging
from schema_lint import lint

ERAS = pytest.mark.parametrize("modern", [True, False], ids=["2026-07-28", "2025-11-25"])
PRICE = {"type": "object", "properties": {"price": {"type": "number"}}}
PNG = b"\x89PNG\r\n\x1a\n"
TREE = {
    "type": "object",
    "properties": {
        "result": {"type": "object", "properties": {"up": {"$ref": "#/properties/result"}}}
    },
    "required": ["result"],
}
SHARED = {"$defs": {"N": {"type": "array", "items": {"$ref": "#/$defs/N"}}}, "$ref": "#/$defs/N"}
MEDIA = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["price", "result", "up", "a"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def make_tool(answer=None, output=None, policy=None) -> Tool:
    async def handler(arguments, context):
        return answer

    contract = Contract(output=output, policy=policy if output is not None else None)
    return Tool(id="shop.getPrice", description="Does.", contract=contract, handler=handler)


def listed(tool, *, modern=True, **more):
    return encode_tool(tool, modern=modern, rendering="flowmcp", **more).get("outputSchema")


def delivered(tool, *, modern=True, **more):
    envelope = asyncio.run(Runtime(Catalog([tool])).execute(tool.id, {}))
    return encode_result(envelope, tool, modern=modern, rendering="flowmcp", **more)


@ERAS
@pytest.mark.parametrize("data", [{"price": 7}, [1, 2], "text", 7, None, [], {}], ids=json.dumps)
def test_a_success_is_status_messages_and_data_in_structure_and_text(data, modern):
    result = delivered(make_tool(data), modern=modern)
    assert result["structuredContent"] == {"status": True, "messages": [], "data": data}
    assert [json.loads(block["text"]) for block in result["content"]] == [
        result["structuredContent"]
    ]
    assert "isError" not in result


def test_a_failure_is_flagged_and_says_so_in_the_form_of_seed_000():
    error = UpstreamError("API returned 404", details={"statusCode": 404})
    result = encode_error(error, rendering="flowmcp", tool_name="getTokenPrice")
    (block,) = result["content"]
    assert json.loads(block["text"]) == {
        "status": False,
        "messages": ["E001 getTokenPrice: API returned 404"],
        "data": None,
    }
    assert result["isError"] is True
    assert "structuredContent" not in result


@ERAS
@pytest.mark.parametrize("policy", ["cast", "reject"])
def test_types_are_published_as_types_where_the_policy_keeps_them(policy, modern):
    schema = listed(make_tool(output=PRICE, policy=policy), modern=modern)
    assert schema["properties"]["data"] == PRICE
    assert schema["properties"]["status"]["type"] == "boolean"
    assert schema["properties"]["messages"]["items"] == {"type": "string"}
    assert schema["required"] == ["status", "messages", "data"]


def test_the_envelope_keeps_its_types_under_warn_and_without_a_declared_output():
    for tool in (make_tool(output=PRICE, policy="warn"), make_tool()):
        schema = listed(tool)
        assert schema["type"] == "object"
        assert schema["properties"]["status"]["type"] == "boolean"
        assert jsonschema_rs.is_valid(schema, {"status": True, "messages": [], "data": "x"})
        assert not jsonschema_rs.is_valid(schema, {"status": "yes", "messages": [], "data": {}})


def test_nothing_is_published_where_nothing_is_advertised_and_results_are_the_same():
    tool = make_tool({"price": 7}, PRICE, "cast")
    assert listed(tool, advertise="none") is None
    assert delivered(tool, advertise="none")["structuredContent"]["data"] == {"price": 7}


@pytest.mark.parametrize("answer", [PNG, base64.b64encode(PNG).decode()])
def test_a_picture_is_base64_in_data_and_drawn_beside(answer):
    tool = make_tool(answer, MEDIA, "warn")
    result = delivered(tool)
    text = base64.b64encode(PNG).decode()
    assert result["structuredContent"] == {"status": True, "messages": [], "data": text}
    (image,) = (block for block in result["content"] if block["type"] == "image")
    assert (image["data"], image["mimeType"]) == (text, "image/png")
    assert jsonschema_rs.is_valid(listed(tool), result["structuredContent"])


def test_what_still_breaks_a_published_schema_is_a_failure_with_the_data_beside():
    schema = {"type": "object", "properties": {"a": {"not": {"type": "integer"}}}}
    result = delivered(make_tool({"a": 1}, schema, "cast"))
    first, second = (json.loads(block["text"]) for block in result["content"])
    assert (first["status"], first["data"], result["isError"]) == (False, None, True)
    assert first["messages"][0].startswith("E009 getPrice: ")
    assert second == {"a": 1}


@ERAS
@pytest.mark.parametrize("schema", [TREE, SHARED])
def test_references_lead_to_where_the_data_is(schema, modern):
    good = {"result": {"up": {"up": {}}}} if schema is TREE else [[], [[]]]
    bad = {"result": {"up": {"up": 7}}} if schema is TREE else [[], [7]]
    published = listed(make_tool(output=schema, policy="reject"), modern=modern)
    assert jsonschema_rs.is_valid(published, {"status": True, "messages": [], "data": good})
    assert not jsonschema_rs.is_valid(published, {"status": True, "messages": [], "data": bad})


@given(
    value=JSON,
    output=st.sampled_from([None, PRICE, TREE, SHARED, MEDIA, {"type": ["array", "null"]}]),
    policy=st.sampled_from(["pass", "warn", "cast", "reject"]),
    advertise=st.sampled_from(["full", "relaxed", "top"]),
    modern=st.booleans(),
    limit=st.none() | st.integers(1, 60),
)
def test_what_is_delivered_fits_what_is_published(
    *, value, output, policy, advertise, modern, limit
):
    tool = make_tool(value, output, policy)
    paging = None if limit is None else Paging(KeptResults(), "ann", limit)
    try:
        result = delivered(tool, modern=modern, advertise=advertise, paging=paging)
    except CallError:
        return
    published = listed(tool, modern=modern, advertise=advertise)
    assert lint(published, unions=False) == []
    if not result.get("isError"):
        assert jsonschema_rs.is_valid(published, result["structuredContent"])
        assert result["structuredContent"]["status"] is True
    elif "structuredContent" in result:
        raise AssertionError(result)


def test_the_tool_is_named_in_every_message():
    result = encode_error(ToolError("sold_out", "No more"), rendering="flowmcp", tool_name="buy")
    assert json.loads(result["content"][0]["text"])["messages"] == ["E005 buy: No more"]
