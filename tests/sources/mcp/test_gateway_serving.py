"""`callpact serve` in front of another MCP server, seen by a real client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters

import hostile_server
from callpact import Catalog, Runtime
from callpact.audit import Recorder
from callpact.audit.journal.segments import Journal, segments
from callpact.secrets import Secrets
from callpact.serve import Door
from callpact.sources import from_mcp


def served(config, tmp_path):
    """A gateway over stdio in front of the servers of a client's file."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": config}), "utf-8")
    words = ["-m", "callpact", "serve", "--stdio", "--audit", "off", "-s", f"mcp-config:{file}"]
    return StdioServerParameters(command=sys.executable, args=words)


def entry(*words, **options):
    command = hostile_server.command(*words, **options)
    return {"command": command[0], "args": command[1:]}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_client_of_either_era_calls_a_server_of_either_era(mode, era, tmp_path):
    async def go():
        async with Client(served({"h": entry(era=era)}, tmp_path), mode=mode) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"h_echo", "h_add"} <= names
            result = await client.call_tool("h_add", {"a": 1, "b": 2})
            assert result.structured_content == {"sum": 3}
            refused = await client.call_tool("h_add", {"a": "one"})
            assert refused.is_error
            assert json.loads(refused.content[0].text)["error"]["path"] == "/a"

    asyncio.run(go())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_changed_definition_reaches_the_client(era, tmp_path):
    arguments = {"name": "echo", "fields": {"description": "Another one."}}

    async def description(client):
        tools = (await client.list_tools(cache_mode="bypass")).tools
        return next(tool.description for tool in tools if tool.name == "h_echo")

    async def go():
        async with Client(served({"h": entry(era=era)}, tmp_path), mode="legacy") as client:
            assert await description(client) != "Another one."
            async with asyncio.timeout(30):
                while await description(client) != "Another one.":
                    await client.call_tool("h_mutate", arguments)
                    await asyncio.sleep(0.2)

    asyncio.run(go())


SECRET = "sesame-open-token"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_meta_of_a_result_reaches_the_client_and_no_record(mode, era, tmp_path):
    async def go():
        command = hostile_server.command(era=era, name=f"hostile {SECRET}")
        source, tools = await from_mcp(command, namespace="h")
        journal = Journal(tmp_path)
        observers = [Recorder(journal, secrets=Secrets({"KEY": SECRET}))]
        catalog = Catalog(tools, resources=tools.resources, prompts=tools.prompts)
        try:
            async with Runtime(catalog, observers=observers) as runtime:
                door = Door(runtime, name="t", version="1")
                async with asyncio.timeout(30), Client(door.server, mode=mode) as client:
                    results = [
                        await client.call_tool("h_with_meta", {}),
                        await client.read_resource("test://notes/1"),
                        await client.get_prompt("h_greet", {"who": "Ada"}),
                    ]
                    assert results[0].content[0].meta == {"of": "block"}
                    assert [each.meta["example.com/of"] for each in results] == [1, 1, 1]
        finally:
            await source.aclose()
            journal.close()
        lines = b"".join(path.read_bytes() for path in segments(tmp_path))
        assert lines.count(b"\n") == 3
        assert b"example.com/of" not in lines
        assert SECRET.encode() not in lines

    asyncio.run(go())


def test_the_tools_of_a_server_that_comes_up_later_appear(tmp_path):
    config = {
        "up": entry(era="legacy", only=["echo"]),
        "late": entry("crash", era="legacy", only=["echo"], once=str(tmp_path / "once")),
    }

    async def go():
        async with Client(served(config, tmp_path), mode="legacy") as client:
            async with asyncio.timeout(40):
                while True:
                    tools = (await client.list_tools(cache_mode="bypass")).tools
                    names = {tool.name for tool in tools}
                    assert "up_echo" in names
                    if "late_echo" in names:
                        break
                    await asyncio.sleep(0.2)

    asyncio.run(go())


def test_a_header_with_a_granted_key_reaches_the_server_and_nothing_else_shows_it(tmp_path):
    secret = "sesame-open-token"
    (tmp_path / "keys.env").write_text(f"TEAM_TOKEN={secret}\n", "utf-8")
    (tmp_path / "keys.env").chmod(0o600)

    def call(url, key):
        (tmp_path / "callpact.toml").write_text(
            f'[sources.h]\nref = "mcp:{url}"\nhosts = ["127.0.0.1"]\nsecrets = "keys.env"\n'
            f'headers = {{ Authorization = "Bearer ${{{key}}}" }}\n',
            "utf-8",
        )
        words = [sys.executable, "-m", "callpact", "call", "h.echo", "message=hi", "--audit", "off"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    with hostile_server.served(era="modern", token=secret) as upstream:
        done = call(upstream.url, "TEAM_TOKEN")
        missing = call(upstream.url, "OTHER_TOKEN")
    assert done.returncode == 0, done.stderr
    assert secret not in done.stdout + done.stderr
    assert missing.returncode == 2
    assert "wants the key OTHER_TOKEN, which is not set; put it into" in missing.stderr
