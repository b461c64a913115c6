"""Real MCP servers by others: everything they offer reaches a client through the gateway unchanged."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest
from mcp import Client, StdioServerParameters

import real_servers

CHANGED = {"name", "inputSchema", "outputSchema", "description"}
"""Members of a definition that the gateway writes itself: names, and schemas made portable."""


def parameters(server):
    return StdioServerParameters(command=server.command[0], args=server.command[1:], env=server.env)


@asynccontextmanager
async def both(server, tmp_path, mode):
    """A client of the server itself, and one of the gateway in front of it."""
    entry = {"command": server.command[0], "args": server.command[1:], "env": server.env}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"up": entry}}), "utf-8")
    words = ["-m", "callpact", "serve", "--stdio", "--audit", "off", "-s", f"mcp-config:{file}"]
    gateway = StdioServerParameters(command=sys.executable, args=words)
    async with Client(parameters(server)) as direct, Client(gateway, mode=mode) as through:
        yield direct, through


def plain(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def offered(request, tmp_path):
    match request:
        case "everything":
            return real_servers.everything()
        case "filesystem":
            return real_servers.filesystem(tmp_path)
        case "memory":
            return real_servers.memory(tmp_path / "memory.jsonl")
        case "time":
            return real_servers.time()
        case _:
            return real_servers.git(real_servers.repository_in(tmp_path))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("name", ["everything", "filesystem", "memory", "time", "git"])
def test_every_tool_is_listed_with_every_field(name, mode, tmp_path):
    async def go():
        async with both(offered(name, tmp_path), tmp_path, mode) as (direct, through):
            theirs = {tool["name"]: tool for tool in map(plain, (await direct.list_tools()).tools)}
            tools = map(plain, (await through.list_tools()).tools)
            ours = {tool["name"].removeprefix("up_"): tool for tool in tools}
            # Some servers list more to a client that can be asked, which the gateway says it can.
            assert ours.keys() >= theirs.keys()
            for key, tool in theirs.items():
                assert ours[key].get("description", "") == tool.get("description", "")
                # `execution` is of 2025-11-25 alone.
                gone = {"execution"} if through.protocol_version >= "2026" else set()
                for member in tool.keys() - CHANGED - gone:
                    if member == "_meta":
                        assert tool["_meta"].items() <= ours[key]["_meta"].items()
                    else:
                        assert ours[key][member] == tool[member], (key, member)

    asyncio.run(go())


CALLS = [
    ("everything", "echo", {"message": "hi"}),
    ("everything", "get-sum", {"a": 1, "b": 2}),
    ("everything", "get-tiny-image", {}),
    ("everything", "get-annotated-message", {"messageType": "success", "includeImage": True}),
    ("everything", "get-resource-links", {"count": 2}),
    ("memory", "read_graph", {}),
    ("time", "convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"}),
]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(("name", "tool", "arguments"), CALLS, ids=[call[1] for call in CALLS])
def test_the_same_call_gives_the_same_content(name, tool, arguments, mode, tmp_path):
    async def go():
        async with both(offered(name, tmp_path), tmp_path, mode) as (direct, through):
            theirs = plain(await direct.call_tool(tool, arguments))
            ours = plain(await through.call_tool(f"up_{tool}", arguments))
            assert ours["content"] == theirs["content"]
            assert ours.get("structuredContent") == theirs.get("structuredContent")
            assert ours.get("isError", False) == theirs.get("isError", False)

    asyncio.run(go())


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_resources_and_prompts_pass_through(mode, tmp_path):
    async def go():
        async with both(real_servers.everything(), tmp_path, mode) as (direct, through):
            theirs = [plain(r) for r in (await direct.list_resources()).resources]
            ours = [plain(r) for r in (await through.list_resources()).resources]
            assert {r["uri"] for r in ours} == {r["uri"] for r in theirs}
            uri = theirs[0]["uri"]
            read = plain(await direct.read_resource(uri))["contents"]
            assert plain(await through.read_resource(uri))["contents"] == read
            prompts = {p.name for p in (await direct.list_prompts()).prompts}
            named = {p.name.removeprefix("up_") for p in (await through.list_prompts()).prompts}
            assert named == prompts
            [first] = [p for p in (await direct.list_prompts()).prompts if not p.arguments][:1]
            filled = plain(await direct.get_prompt(first.name))["messages"]
            assert plain(await through.get_prompt(f"up_{first.name}"))["messages"] == filled

    asyncio.run(go())
