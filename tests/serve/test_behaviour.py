"""One suite of behaviour, asked by the official client through every door, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import jsonschema_rs
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

import raw
from callpact.app import Options, Session
from callpact.serve import Door
from rest_client import RestClient
from ways import callpact

pytestmark = pytest.mark.usefixtures("way")

TOOLS = Path(__file__).parent / "behaviour.py"
SERVE = ["serve", "-s", str(TOOLS)]
MODERN, LEGACY = "2026-07-28", "legacy"
PATIENCE = 60


@contextlib.asynccontextmanager
async def in_memory():
    async with Session(Options(refs=(str(TOOLS),), audit="off")) as session:
        await session.load()
        yield Door(await session.start()).server


@contextlib.asynccontextmanager
async def over_stdio():
    yield StdioServerParameters(
        command=sys.executable, args=[*callpact(), *SERVE, "--stdio"], env=dict(os.environ)
    )


@pytest.fixture(scope="module")
def http_address(way):
    process = subprocess.Popen(
        [sys.executable, *callpact(), *SERVE, "--port", "0", "--log-level", "error"],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        address = process.stderr.readline().split()[-1]
        rest = threading.Thread(target=process.stderr.read)  # Else it would fill up.
        rest.start()
        try:
            yield address
        finally:
            process.kill()
            rest.join()


PIPES = ("memory", "stdio", "http")


@pytest.fixture(params=PIPES)
def target(request):
    """What a client is given to connect to."""
    return pipe(request.param, request)


def pipe(name, request):
    if name != "http":
        return in_memory if name == "memory" else over_stdio
    address = request.getfixturevalue("http_address")

    @contextlib.asynccontextmanager
    async def over_http():
        yield address

    return over_http


@pytest.fixture(
    params=[*((name, mode) for mode in (MODERN, LEGACY) for name in PIPES), ("rest", MODERN)],
    ids="-".join,
)
def door(request):
    """Puts a question to the server through one door, in one era; or over plain HTTP."""
    name, mode = request.param
    if name == "rest":
        return over_rest(request.getfixturevalue("http_address"))
    target = pipe(name, request)

    def ask(question):
        async def go():
            async with target() as place, Client(place, mode=mode) as client:
                return await question(client)

        return asyncio.run(asyncio.wait_for(go(), PATIENCE))

    ask.is_modern = mode == MODERN
    return ask


def over_rest(address):
    """Puts a question over plain HTTP, at the root of the same server."""

    def ask(question):
        async def go():
            async with RestClient(address.removesuffix("/mcp")) as client:
                return await question(client)

        return asyncio.run(asyncio.wait_for(go(), PATIENCE))

    ask.is_modern = True
    return ask


def error_of(result):
    """The error of a failed call; it has no structured content, and its text is the whole of it."""
    assert result.is_error
    assert result.structured_content is None
    (block,) = result.content
    return json.loads(block.text)["error"]


async def assert_works(client):
    result = await client.call_tool("behaviour_add", {"a": 1, "b": 2})
    assert (result.is_error, result.structured_content) == (False, {"sum": 3})


def test_every_tool_is_listed_with_what_it_takes_and_gives(door):
    listed = door(lambda client: client.list_tools())
    by_name = {tool.name: tool for tool in listed.tools}
    known = ["add", "names", "say", "refuse", "crash", "wait", "until", "meet"]
    assert list(by_name) == [f"behaviour_{name}" for name in known]
    add = by_name["behaviour_add"]
    assert add.description == "Add two numbers."
    assert add.input_schema["required"] == ["a", "b"]
    assert add.input_schema["properties"]["a"]["type"] == "integer"
    gives = jsonschema_rs.validator_for(add.output_schema)
    assert gives.is_valid({"sum": 3})
    assert not gives.is_valid({"sum": "three"})
    assert not gives.is_valid({})
    kinds = {"array"} if door.is_modern else {"object"}
    assert {by_name["behaviour_names"].output_schema["type"]} == kinds


def test_an_object_comes_as_structured_content_and_as_the_same_text(door):
    result = door(lambda client: client.call_tool("behaviour_add", {"a": 20, "b": 22}))
    assert not result.is_error
    assert result.structured_content == {"sum": 42}
    assert [json.loads(block.text) for block in result.content] == [{"sum": 42}]


def test_a_list_comes_as_its_era_has_it_and_its_text_mirrors_it(door):
    result = door(lambda client: client.call_tool("behaviour_names", {"count": 3}))
    wanted = ["é0", "é1", "é2"]
    wanted = wanted if door.is_modern else {"result": wanted}
    assert result.structured_content == wanted
    assert [json.loads(block.text) for block in result.content] == [wanted]


def test_any_text_comes_through_unchanged(door):
    async def story(client):
        for text in ("", "a\nb\r\nc", "\u2028 \x00 \x85 😀", "x" * 300_000):
            result = await client.call_tool("behaviour_say", {"text": text})
            wanted = text if door.is_modern else {"result": text}
            assert (result.is_error, result.structured_content) == (False, wanted)

    door(story)


def test_rejected_input_tells_every_issue_with_its_code_and_place(door):
    result = door(lambda client: client.call_tool("behaviour_add", {"a": "1", "c": 1}))
    body = error_of(result)
    assert body["code"] == "schema_validation_failed"
    issues = {(issue["path"], issue["code"]) for issue in body["issues"]}
    assert issues == {("/a", "type"), ("/b", "required"), ("/c", "additionalProperties")}


def test_an_unknown_tool_is_an_error_of_the_protocol_and_the_next_call_works(door):
    async def story(client):
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("behaviour_ad", {})
        assert unknown.value.error.code == -32602
        assert "behaviour_ad" in unknown.value.error.message
        await assert_works(client)

    door(story)


def test_a_tool_that_fails_keeps_its_code_message_and_path(door):
    result = door(lambda client: client.call_tool("behaviour_refuse", {"item": "tea"}))
    wanted = {"code": "sold_out", "message": "No tea left", "path": "/item"}
    assert error_of(result) == wanted


def test_a_tool_that_crashes_tells_nothing_of_itself_and_never_breaks_the_next_call(door):
    async def story(client):
        for how in ("raise", "exit", "deep"):
            result = await client.call_tool("behaviour_crash", {"how": how})
            assert error_of(result)["code"] == "handler_error"
            assert "tea" not in result.content[0].text
            await assert_works(client)

    door(story)


def test_a_slow_tool_is_cancelled_with_its_request_and_the_next_call_works(door):
    key = uuid.uuid4().hex

    async def story(client):
        waiting = asyncio.create_task(client.call_tool("behaviour_wait", {"key": key}))
        begun = await client.call_tool("behaviour_until", {"key": key, "place": "begun"})
        assert not begun.is_error
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        ended = await client.call_tool("behaviour_until", {"key": key, "place": "cancelled"})
        assert not ended.is_error
        await assert_works(client)

    door(story)


def test_calls_run_at_the_same_time_and_each_gets_its_own_answer(door):
    key, many = uuid.uuid4().hex, 20

    async def story(client):
        calls = [{"key": key, "number": number, "of": many} for number in range(many)]
        return await asyncio.gather(*[client.call_tool("behaviour_meet", call) for call in calls])

    results = door(story)
    wanted = [number if door.is_modern else {"result": number} for number in range(many)]
    assert [result.structured_content for result in results] == wanted


def test_a_client_that_asks_which_era_it_is_gets_the_newest(target):
    async def go():
        async with target() as place, Client(place, mode="auto") as client:
            await assert_works(client)
            return client.protocol_version

    assert asyncio.run(asyncio.wait_for(go(), PATIENCE)) == MODERN


def test_a_call_goes_the_way_that_this_run_is_about(http_address, way):
    with raw.Line(int(http_address.split(":")[-1].split("/")[0])) as line:
        session = line.ask(raw.initialize()).headers["mcp-session-id"]
        headers = {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}
        line.ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
        line.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)
        params = {"name": "behaviour_add", "arguments": {"a": 1, "b": 2}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        kind = line.ask(call, **headers).headers["content-type"]
    assert kind == {"direct": "application/json", "sdk": "text/event-stream"}[way]
