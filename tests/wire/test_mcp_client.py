"""Every rendering through the official SDK's client, which validates: in process, in both eras.

The server here is as small as it can be: it hands on what `wire.mcp` makes.
"""

from __future__ import annotations

import asyncio
import json
import logging

import mcp_types as types
import pytest
from mcp import Client
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from callpact.envelope import (
    AudioBlock,
    ImageBlock,
    ResourceLinkBlock,
    TextBlock,
    http_envelope,
    mcp_envelope,
)
from callpact.errors import CallError, ToolError
from callpact.runtime import Runtime
from callpact.tool import Call, Contract, Tool
from callpact.wire.mcp import results as wire
from callpact.wire.mcp.published import ADVERTISE
from callpact.wire.paging import KeptResults, Paging

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8


def nested(levels: int):
    return {"a": nested(levels - 1)} if levels else {}


OFFER = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "stock": {"type": "integer"}},
    "required": ["price", "stock"],
}
TREE = {
    "$ref": "#/$defs/T",
    "$defs": {"T": {"type": "object", "properties": {"a": {"$ref": "#/$defs/T"}}}},
}
OUTPUTS = [
    None,
    {**OFFER, "additionalProperties": False},
    TREE,
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": OFFER, "minItems": 2, "uniqueItems": True},
    {"type": ["integer", "null"]},
    {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
    {"enum": ["kg", None, 7]},
    {"anyOf": [OFFER, {"type": "array"}, {"type": "null"}]},
    {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]},
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": {"$ref": "#/definitions/O"},
        "definitions": {"O": OFFER},
    },
    False,
]
VALUES = [
    None,
    True,
    0,
    -1.5,
    10**30,
    "",
    "text",
    "ünï 🍵 \u2028 \u0000",
    [],
    [None],
    [[[]]],
    [1, "two", None, {"x": 3}],
    {},
    {"": None},
    {"result": None},
    {"result": {"result": 1}},
    {"price": 1, "stock": 2},
    {"price": "1.5", "stock": None, "more": [1]},
    {"a": 10**25, "$ref": "#", "isError": True, "content": [], "_meta": {}},
    nested(100),
    [{"price": n, "stock": n} for n in range(300)],
    {"rows": list(range(3000)), "n": 1},
    {"text": "long " * 2_000},
    "long " * 2_000,
    PNG,
    b"",
    b"\x00" * 9_000,
    http_envelope([1], status_code=200, headers={}, content_type="application/json"),
    mcp_envelope([], is_error=False, content=[]),
    mcp_envelope(None, is_error=False, content=[TextBlock("t")], structured_content=None),
    mcp_envelope([1], is_error=False, content=[], structured_content=[1]),
    mcp_envelope(None, is_error=True, content=[TextBlock("no")], structured_content={"a": 1}),
    mcp_envelope(
        [],
        is_error=False,
        content=[
            ImageBlock("aGk=", "image/png"),
            AudioBlock("aGk=", "audio/wav"),
            ResourceLinkBlock("file:///a", "a"),
        ],
        meta_ext={"io.modelcontextprotocol/serverInfo": {"name": "up", "version": "1"}},
    ),
]


def make_tool(name: str, answer, output=None, policy=None, **more) -> Tool:
    async def handler(arguments, context):
        return answer

    contract = Contract(output=output, policy=policy)
    return Tool(id=f"t.{name}", description=name, contract=contract, handler=handler, **more)


def make_server(tools, *, advertise="full", paging=None) -> Server:
    runtime = Runtime(tools)

    async def list_tools(context, params):
        modern = context.protocol_version >= wire.MODERN
        made = [
            wire.encode_tool(tool, modern=modern, advertise=advertise) for tool in runtime.catalog
        ]
        return types.ListToolsResult.model_validate({"tools": made})

    async def call_tool(context, params):
        if params.name == "next_page":
            result = wire.encode_page(params.arguments["cursor"], paging)
            return types.CallToolResult.model_validate(result)
        try:
            envelope = await runtime.call(Call(params.name, params.arguments))
        except CallError as error:
            return types.CallToolResult.model_validate(wire.encode_error(error))
        result = wire.encode_result(
            envelope,
            runtime.catalog.find(params.name),
            modern=context.protocol_version >= wire.MODERN,
            advertise=advertise,
            paging=paging,
            duration=0.001,
        )
        return types.CallToolResult.model_validate(result)

    async def read_resource(context, params):
        read = wire.encode_kept(str(params.uri), paging)
        if read is None:
            raise MCPError(code=types.INVALID_PARAMS, message="No such resource")
        return types.ReadResourceResult.model_validate(read)

    return Server(
        "t",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_read_resource=read_resource,
        get_tool_input_schema=lambda name: {"type": "object"},
    )


def ask(mode, server, question):
    async def go():
        async with Client(server, mode=mode) as client, asyncio.timeout(60):
            # What raises here must not raise inside the client's task group.
            try:
                return await question(client)
            except (MCPError, RuntimeError) as error:
                return error

    answer = asyncio.run(go())
    if isinstance(answer, Exception):
        raise answer
    return answer


def refusals(mode, tools, **more) -> list[str]:
    """The tools whose answers the client refuses, with its reason."""

    async def question(client):
        refused = []
        for tool in tools:
            try:
                result = await client.call_tool(tool.wire_name, {})
                result.model_dump_json(by_alias=True).encode()
            except (MCPError, RuntimeError, ValueError) as error:
                refused.append(f"{tool.description}: {error!r:.300}")
                continue
            if result.is_error and result.structured_content is not None:
                refused.append(f"{tool.description}: an error with structured content")
        return refused

    return ask(mode, make_server(tools, **more), question)


def make_tools(policies, values) -> list[Tool]:
    return [
        make_tool(f"{policy}{place}_{number}", value, output, policy)
        for policy in policies
        for place, output in enumerate(OUTPUTS)
        for number, value in enumerate(values)
    ]


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Thousands of answers break their contracts here on purpose."""
    caplog.set_level(logging.ERROR, "callpact")


@ERAS
@pytest.mark.parametrize("policy", ["pass", "warn", "cast", "convert", "reject"])
def test_a_strict_client_takes_every_answer_of_every_policy(policy, mode):
    assert refusals(mode, make_tools([policy], VALUES)) == []


@ERAS
@pytest.mark.parametrize("advertise", [size for size in ADVERTISE if size != "full"])
def test_a_strict_client_takes_every_answer_whatever_is_advertised(advertise, mode):
    tools = make_tools(["warn", "cast"], VALUES[::4])
    assert refusals(mode, tools, advertise=advertise) == []


@ERAS
@pytest.mark.parametrize(
    ("limit", "advertise"), [(1, "full"), (40, "full"), (2_000, "full"), (40, "declared")]
)
def test_a_strict_client_takes_every_answer_in_pages(limit, advertise, mode):
    paging = Paging(KeptResults(), None, limit)
    large = [value for value in VALUES if len(str(value)) > limit]
    tools = make_tools(["pass", "warn", "cast"], large[:: 4 if limit < 2_000 else 1])
    assert refusals(mode, tools, advertise=advertise, paging=paging) == []


@ERAS
def test_a_client_gets_every_value_back(mode):
    values = [
        value for value in VALUES if not isinstance(value, bytes) and not hasattr(value, "meta")
    ]
    tools = [make_tool(f"v{number}", value) for number, value in enumerate(values)]

    async def question(client):
        return [await client.call_tool(tool.wire_name, {}) for tool in tools]

    for value, result in zip(values, ask(mode, make_server(tools), question), strict=True):
        text = result.content[0].text
        if isinstance(value, str):
            assert (text, result.structured_content) == (value, None)
            continue
        told = json.loads(text)
        if value is None:
            assert (told, result.structured_content) == (None, None)
        elif mode == "legacy" and not isinstance(value, dict):
            assert told == result.structured_content == {"result": value}
        else:
            assert told == result.structured_content == value


@ERAS
def test_a_client_reads_all_pages_and_the_whole(mode):
    paging = Paging(KeptResults(), None, 2_000)
    rows = [{"n": n} for n in range(1_000)]
    server = make_server([make_tool("rows", {"rows": rows})], paging=paging)

    async def question(client):
        result = await client.call_tool("t_rows", {})
        seen = list(result.structured_content["rows"])
        link = next(block for block in result.content if block.type == "resource_link")
        note = result.meta["callpact/page"]
        while "nextCursor" in note:
            page = await client.call_tool("next_page", {"cursor": note["nextCursor"]})
            seen += page.structured_content["page"]["rows"]
            note = page.meta["callpact/page"]
        read = await client.read_resource(link.uri)
        return seen, json.loads(read.contents[0].text)

    assert ask(mode, server, question) == (rows, {"rows": rows})


@ERAS
def test_an_error_reaches_the_client_with_its_whole_json(mode):
    async def refuse(arguments, context):
        raise ToolError("sold_out", "None left", path="/item", details={"left": 0})

    strict = Contract(
        input={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]},
        output=OFFER,
    )
    tools = [
        Tool(id="t.refuse", description="x", contract=Contract(output=OFFER), handler=refuse),
        Tool(id="t.strict", description="x", contract=strict, handler=refuse),
    ]

    async def question(client):
        return (
            await client.call_tool("t_refuse", {}),
            await client.call_tool("t_strict", {"n": "x"}),
        )

    refused, rejected = ask(mode, make_server(tools), question)
    assert refused.is_error
    assert rejected.is_error
    assert refused.structured_content is rejected.structured_content is None
    assert json.loads(refused.content[0].text) == {
        "error": {
            "code": "sold_out",
            "message": "None left",
            "path": "/item",
            "details": {"left": 0},
        }
    }
    body = json.loads(rejected.content[0].text)["error"]
    assert body["code"] == "schema_validation_failed"
    assert {issue["path"] for issue in body["issues"]} == {"/n", "/m"}


@ERAS
def test_hints_titles_and_annotations_reach_the_client(mode):
    tool = make_tool(
        "x", 1, title="X", tags=("a",), kind="query", annotations={"openWorldHint": False}
    )
    listed = ask(mode, make_server([tool]), lambda client: client.list_tools()).tools[0]
    assert listed.title == "X"
    assert listed.annotations.read_only_hint is True
    assert listed.annotations.open_world_hint is False
    assert listed.meta["callpact/tags"] == ["a"]
    assert isinstance(listed.meta["anthropic/searchHint"], str)


@ERAS
def test_the_client_is_told_our_name_and_not_that_of_the_server_behind(mode):
    meta_ext = {"io.modelcontextprotocol/serverInfo": {"name": "up", "version": "9"}}
    answer = mcp_envelope([], is_error=False, content=[], meta_ext=meta_ext)
    result = ask(
        mode,
        make_server([make_tool("x", answer)]),
        lambda client: client.call_tool("t_x", {}),
    )
    assert result.meta["callpact/server"] == {"name": "up", "version": "9"}
    said = result.meta.get("io.modelcontextprotocol/serverInfo", {"name": "t"})
    assert said["name"] == "t"
