"""Tools of other MCP servers: listed, called, cast, and kept apart from one another."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from callpact import CallError, Catalog, InvalidInput, Runtime, UpstreamError, raise_for_error
from callpact.envelope import TextBlock
from callpact.errors import InvalidConfig, SourceRefused, UnknownTool
from callpact.secrets import Secrets
from callpact.sources import from_mcp
from callpact.sources.mcp.mcp_source import content_blocks, envelope_of
from callpact.sources.mcp.server_settings import (
    ServerSettings,
    environment,
    settings_from,
    settings_of,
    with_keys,
)

SERVER = '''
import os
from typing import Annotated, Any, Literal
from pydantic import Field
from callpact import Context, ToolError, prompt, resource, tool

@tool(namespace="shop", policy="pass")
def price(item: str, unit: Literal["kg", "lb"] = "kg") -> dict[str, float]:
    """Return the price of an item."""
    return {"price": 12.5}

@tool(namespace="shop")
def fail() -> str:
    """Always fails."""
    raise ToolError("sold_out", "nothing is left")

@tool(namespace="shop")
def anything() -> Any:
    """No contract for the answer."""
    return {"price": "12.5"}

@tool(namespace="shop")
def crash() -> str:
    """Ends the process in the middle of a call."""
    os._exit(1)

@tool(namespace="shop")
async def ask(context: Context) -> str:
    """Ask the user for a name."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    found = await context.client.elicit("Your name?", schema)
    return str(found.data)

@tool(namespace="shop")
async def slow(context: Context, seconds: float = 30) -> str:
    """Take long, and report progress."""
    import asyncio
    await context.progress(1, 2, "half")
    await asyncio.sleep(seconds)
    return "done"

@resource("shop://menu", mime_type="text/plain")
def menu() -> str:
    """The menu."""
    return "tea"

@resource("shop://item/{name}")
def item(name: str) -> str:
    """One item."""
    return f"about {name}"

@prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Say hello to {name}."
'''


@pytest.fixture
def command(tmp_path):
    """The command of a real MCP server with these tools."""
    (tmp_path / "shop.py").write_text(SERVER, "utf-8")
    words = ["-m", "callpact", "serve", "--stdio", "--audit", "off"]
    return [sys.executable, *words, "-s", f"python:{tmp_path / 'shop.py'}"]


@asynccontextmanager
async def opened(server, **more):
    source, tools = await from_mcp(server, **more)
    try:
        async with Runtime(
            Catalog(tools, resources=tools.resources, prompts=tools.prompts)
        ) as runtime:
            yield runtime, tools
    finally:
        await source.aclose()


def test_the_tools_of_a_server_are_called_under_their_contract(command):
    async def go():
        async with opened(command, namespace="up") as (runtime, tools):
            assert {tool.id for tool in tools} >= {"up.shop_price", "up.shop_fail"}
            envelope = await runtime.execute("up.shop_price", {"item": "tea"})
            assert envelope.data == {"price": 12.5}
            assert envelope.meta.source == "mcp"
            with pytest.raises(InvalidInput) as refused:
                await runtime.execute("up.shop_price", {"item": "tea", "unit": "stone"})
            assert refused.value.issues[0].path == "/unit"

    asyncio.run(go())


@pytest.mark.requirement("001.mcp.output-schema-extracted")
@pytest.mark.requirement("001.mcp.unknown-schema-is-untouched")
@pytest.mark.requirement("001.migration.from-mcp-schema")
@pytest.mark.requirement("001.mcp.transport-errors-raise")
def test_the_declared_output_schema_is_the_contract_and_none_is_unknown(command):
    async def go():
        async with opened(command, namespace="up") as (runtime, tools):
            found = {tool.id: tool.contract.output for tool in tools}
            assert found["up.shop_fail"] == {"type": "string"}
            assert found["up.shop_anything"] is None
            envelope = await runtime.execute("up.shop_anything", {})
            assert envelope.data == {"price": "12.5"}
            assert not envelope.warnings
            assert not envelope.changes
            with pytest.raises(UnknownTool):
                await runtime.execute("up.shop_nothing", {})

    asyncio.run(go())


@pytest.mark.requirement("001.migration.from-mcp-envelope")
def test_an_error_result_is_data_and_raises_only_on_request(command):
    async def go():
        async with opened(command, namespace="up") as (runtime, _):
            envelope = await runtime.execute("up.shop_fail", {})
            assert envelope.meta.is_error
            with pytest.raises(CallError) as raised:
                raise_for_error(envelope)
            assert raised.value.code == "tool_error"

    asyncio.run(go())


@pytest.mark.requirement("001.mcp.transport-errors-raise")
def test_a_server_that_dies_in_a_call_gives_an_error_and_the_next_call_works(command):
    async def go():
        async with opened(command, namespace="up") as (runtime, _):
            with pytest.raises(UpstreamError) as raised:
                await runtime.execute("up.shop_crash", {})
            assert raised.value.details["reason"] == "reset"
            assert (await runtime.execute("up.shop_price", {"item": "tea"})).data == {"price": 12.5}

    asyncio.run(go())


def test_a_dead_server_leaves_the_others_alone_and_is_reported(command):
    async def go():
        config = {
            "mcpServers": {
                "dead": {"command": "no-such-program-anywhere"},
                "up": {"command": command[0], "args": command[1:]},
            }
        }
        async with opened(config) as (runtime, tools):
            [found] = tools.report
            assert (found.severity, found.place) == ("warning", "mcp:no-such-program-anywhere")
            assert (await runtime.execute("up.shop_price", {"item": "tea"})).data == {"price": 12.5}

    asyncio.run(go())


def test_resources_and_prompts_come_with_the_tools(command):
    async def go():
        async with opened(command, namespace="up") as (runtime, tools):
            uris = {resource.uri for resource in tools.resources}
            assert uris == {"shop://menu", "shop://item/{name}"}
            [item] = [r for r in tools.resources if r.is_template]
            read = await item.tool.handler({"name": "tea"}, None)
            assert read.data[0]["text"] == "about tea"
            [prompt] = tools.prompts
            filled = await prompt.tool.handler({"name": "Ada"}, None)
            assert "Ada" in json.dumps(filled.data)
            del runtime

    asyncio.run(go())


def test_a_slow_call_is_ended_by_its_deadline(command):
    async def go():
        async with opened(command, namespace="up") as (runtime, _):
            with pytest.raises(CallError):
                async with asyncio.timeout(20):
                    await runtime.execute("up.shop_slow", {}, deadline=(time.time() + 0.5) * 1_000)
            assert (await runtime.execute("up.shop_price", {"item": "tea"})).data == {"price": 12.5}

    asyncio.run(go())


# --- results --------------------------------------------------------------------------------

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.requirement("001.mcp.blocks-map-one-to-one")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "a:b", "text": "c", "_meta": {"d": 1}}},
        {
            "type": "resource_link",
            "uri": "a:b",
            "name": "n",
            "title": "t",
            "description": "d",
            "mimeType": "text/plain",
            "size": 5,
            "icons": [{"src": "data:,"}],
        },
    ],
)
def test_every_field_of_a_content_block_is_kept(block):
    whole = {**block, "annotations": {"priority": 0.5}, "_meta": {"example.com/a": [1]}}
    assert msgspec.to_builtins(content_blocks([block, whole])) == [block, whole]


@pytest.mark.requirement("001.mcp.structured-preferred")
@pytest.mark.requirement("001.mcp.content-always-in-meta")
def test_structured_content_is_the_data_and_the_blocks_stay_in_the_meta():
    envelope = envelope_of(
        {
            "content": [{"type": "text", "text": "x"}],
            "structuredContent": {"a": 1},
            "_meta": {"k": 1},
        }
    )
    assert envelope.data == {"a": 1}
    assert envelope.meta.content == [TextBlock("x")]
    assert envelope.meta.meta_ext == {"k": 1}
    assert not envelope.meta.is_error


@pytest.mark.parametrize("empty", [{}, [], 0, False, ""])
def test_structured_content_that_is_empty_counts(empty):
    assert envelope_of({"content": [], "structuredContent": empty}).data == empty


def test_without_structured_content_the_blocks_are_the_data():
    envelope = envelope_of({"content": [{"type": "text", "text": "x"}]})
    assert envelope.data == [TextBlock("x")]


@pytest.mark.requirement("001.mcp.unknown-blocks-become-text")
def test_a_block_of_an_unknown_kind_becomes_text_with_its_json():
    envelope = envelope_of({"content": [{"type": "hologram", "rays": 3}, 7]})
    assert [json.loads(block.text) for block in envelope.data] == [
        {"type": "hologram", "rays": 3},
        7,
    ]


@pytest.mark.requirement("001.open.json-in-text")
@pytest.mark.parametrize(
    ("text", "output", "data"),
    [
        ('{"a": 1}', OBJECT, {"a": 1}),
        ('{"a": "1"}', OBJECT, {"a": "1"}),
        ("[1]", {"type": "array"}, [1]),
    ],
)
def test_json_in_the_only_text_is_data_where_the_schema_wants_it(text, output, data):
    envelope = envelope_of({"content": [{"type": "text", "text": text}]}, output)
    assert envelope.data == data
    assert envelope.meta.meta_ext == {"operations/dataFrom": "text-json"}


@pytest.mark.requirement("001.open.json-in-text")
@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"content": [{"type": "text", "text": '{"a": 1}'}]}, None),
        ({"content": [{"type": "text", "text": "[1]"}]}, OBJECT),
        ({"content": [{"type": "text", "text": "{"}]}, OBJECT),
        ({"content": [{"type": "text", "text": "{}"}, {"type": "text", "text": "{}"}]}, OBJECT),
        ({"content": [{"type": "text", "text": "{}"}], "isError": True}, OBJECT),
    ],
)
def test_other_text_stays_text(result, output):
    envelope = envelope_of(result, output)
    assert all(isinstance(block, TextBlock) for block in envelope.data)


# --- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "name", "place"),
    [
        ("uvx mcp-server-time --local", "mcp-server-time", "mcp:uvx"),
        ("npx -y @modelcontextprotocol/server-memory@1.2.3", "server-memory", "mcp:npx"),
        ("python server.py", "server", "mcp:python"),
        (
            "https://user:pass@api.example.com/mcp?key=secret",
            "api_example_com",
            "mcp:https://api.example.com/mcp",
        ),
    ],
)
def test_a_reference_is_a_command_or_an_address_and_shows_no_credential(where, name, place):
    settings = settings_of(where)
    assert (settings.name, settings.place) == (name, place)


def test_a_reference_that_is_neither_is_refused():
    with pytest.raises(SourceRefused):
        settings_of('npx "unclosed')


def test_the_servers_of_a_client_are_read_and_disabled_ones_left_out():
    servers = settings_from(
        {
            "mcpServers": {
                "a b": {"command": "x", "args": ["1"], "env": {"K": "v"}},
                "web": {"type": "http", "url": "https://x.example/mcp", "headers": {"A": "b"}},
                "off": {"command": "y", "disabled": True},
            }
        },
        "file",
    )
    assert [server.name for server in servers] == ["a_b", "web"]
    assert servers[0].command == ("x", "1")
    assert servers[1].headers == {"A": "b"}


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ([], "mcpServers"),
        ({"mcpServers": {}}, "mcpServers"),
        ({"mcpServers": {"a": 1}}, "file: a: expected an object"),
        ({"mcpServers": {"a": {}}}, "either 'command' or 'url'"),
        ({"mcpServers": {"a": {"command": "x", "url": "https://y"}}}, "either"),
        ({"mcpServers": {"a": {"url": "ftp://y"}}}, "http address"),
        ({"mcpServers": {"a": {"command": "x", "args": "1"}}}, "list of texts"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 1}}}}, "object of texts"),
        ({"mcpServers": {"a b": {"command": "x"}, "a/b": {"command": "x"}}}, "namespace"),
    ],
)
def test_a_file_that_cannot_be_used_names_the_place(read, words):
    with pytest.raises(InvalidConfig, match=words):
        settings_from(read, "file")


def test_a_key_is_put_in_only_if_it_was_granted():
    settings = ServerSettings(
        name="s", url="https://x.example", headers={"Authorization": "Bearer ${SHOP_KEY}"}
    )
    environ = {"SHOP_KEY": "sesame-open"}
    granted = Secrets(None, None, environ, keys=["SHOP_KEY"])
    assert with_keys(settings, granted).headers == {"Authorization": "Bearer sesame-open"}
    with pytest.raises(SourceRefused, match=r'keys = \["SHOP_KEY"\]'):
        with_keys(settings, Secrets(None, None, environ))
    with pytest.raises(SourceRefused, match="not set"):
        with_keys(settings, Secrets())


def test_a_server_gets_few_variables_of_ours(monkeypatch):
    monkeypatch.setenv("SHOP_KEY", "sesame-open")
    found = environment(ServerSettings(name="s", command=("x",), env={"OWN": "1"}))
    assert "SHOP_KEY" not in found
    assert found["OWN"] == "1"
    assert "PATH" in found
