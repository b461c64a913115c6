"""The server as clients start it: a process that speaks MCP on its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

TOOLS = '''
import subprocess
import sys
import threading

from callpact import ToolError, tool

print("printed while imported")

@tool
def add(a: int, b: int) -> int:
    """Add."""
    print("printed by a tool")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    return a + b

@tool
async def refuse() -> None:
    """Refuse."""
    raise ToolError("sold_out", "None left")

@tool
async def crash() -> None:
    """Crash."""
    raise RuntimeError("the password is tea")

@tool
def hang() -> None:
    """Hang."""
    threading.Event().wait()

@tool
async def half() -> dict[str, str]:
    """Give half a character."""
    return {"text": "a\\ud800"}
'''
CLOSED = """
from callpact import Contract, Tool

ANY = Contract()

async def _whoami(arguments, context):
    return {"id": context.identity.id, "scopes": list(context.identity.scopes)}

async def _ticks(arguments, context):
    yield 1

def make(name, handler, **more):
    return Tool(id=f"closed.{name}", description=name, contract=ANY, handler=handler, **more)

async def _ping(arguments, context):
    return {"identity": context.identity and context.identity.id}

ping = make("ping", _ping)
admin = make("admin", _whoami, access=["admin"])
both = make("both", _whoami, access=["admin", "clerk"])
ticks = make("ticks", _ticks, kind="subscription")
"""
CONFIG = '[sources.desk]\nref = "python:desk.py"\ntimeout = 0.2\n'
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "desk.py").write_text(TOOLS, "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    return tmp_path


def ask(parameters, mode, question):
    async def go():
        async with Client(parameters, mode=mode) as client:
            return await question(client)

    return asyncio.run(asyncio.wait_for(go(), 60))


def error_of(result):
    assert result.is_error
    return json.loads(result.content[0].text)["error"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_lists_and_calls_over_stdio(desk, mode):
    async def story(client):
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [
            "desk_add",
            "desk_refuse",
            "desk_crash",
            "desk_hang",
            "desk_half",
        ]
        # It prints while it is imported, while it runs, and from a child: none of it on the wire.
        good = await client.call_tool("desk_add", {"a": 1, "b": 2})
        assert good.structured_content == (3 if mode == "auto" else {"result": 3})
        body = error_of(await client.call_tool("desk_add", {"a": "1"}))
        assert body["code"] == "schema_validation_failed"
        assert {issue["path"] for issue in body["issues"]} == {"/a", "/b"}
        assert error_of(await client.call_tool("desk_refuse", {}))["code"] == "sold_out"
        crash = await client.call_tool("desk_crash", {})
        assert error_of(crash)["code"] == "handler_error"
        assert "tea" not in crash.content[0].text
        # Half a character cannot be sent; the answer, and the calls after it, still can.
        half = await client.call_tool("desk_half", {})
        assert half.structured_content == {"text": "a\ufffd"}
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("desk_nosuch", {})
        assert unknown.value.error.code == -32602
        return True

    args = ["-m", "callpact", "serve", "--stdio", "-s", f"python:{desk / 'desk.py'}"]
    assert ask(
        StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ)), mode, story
    )


def test_the_timeout_of_the_configuration_ends_a_call(desk):
    args = ["-m", "callpact", "serve", "--stdio"]
    parameters = StdioServerParameters(
        command=sys.executable, args=args, cwd=desk, env=dict(os.environ)
    )
    result = ask(parameters, "auto", lambda client: client.call_tool("desk_hang", {}))
    assert error_of(result)["code"] == "timeout"


# --- who is at the other end ------------------------------------------------------------------


@pytest.fixture
def closed(tmp_path):
    (tmp_path / "closed.py").write_text(CLOSED, "utf-8")
    return tmp_path


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("scopes", "names", "left_out"),
    [
        (
            (),
            ["closed_ping"],
            {"1 (needs scope admin)", "1 (needs scopes admin, clerk)", "1 (subscription)"},
        ),
        (
            ("admin",),
            ["closed_ping", "closed_admin"],
            {"1 (needs scopes admin, clerk)", "1 (subscription)"},
        ),
        (
            ("admin", "clerk"),
            ["closed_ping", "closed_admin", "closed_both"],
            {"1 (subscription)"},
        ),
    ],
)
def test_a_client_gets_what_its_scopes_allow(closed, mode, scopes, names, left_out):
    options = [part for scope in scopes for part in ("--scope", scope)]

    async def story(client):
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == names
        ping = await client.call_tool("closed_ping", {})
        assert ping.structured_content == {"identity": "stdio" if scopes else None}
        admin = await client.call_tool("closed_admin", {})
        if scopes:
            assert admin.structured_content == {"id": "stdio", "scopes": list(scopes)}
        else:
            assert error_of(admin)["code"] == "access_denied"
        both = await client.call_tool("closed_both", {})
        assert both.is_error == (len(scopes) < 2)
        assert "subscription" in error_of(await client.call_tool("closed_ticks", {}))["message"]
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("closed_bot", {})
        assert unknown.value.error.code == -32602
        assert ("closed_both" in unknown.value.error.message) == (len(scopes) == 2)
        return True

    args = ["-m", "callpact", "serve", "--stdio", "-s", "closed.py", *options]
    with (closed / "banner").open("w+") as banner:
        transport = stdio_client(
            StdioServerParameters(
                command=sys.executable, args=args, cwd=closed, env=dict(os.environ)
            ),
            errlog=banner,
        )
        assert ask(transport, mode, story)
        banner.seek(0)
        lines = banner.read().splitlines()
    assert lines[0] == f"serving {len(names)} tool{'s' * (len(names) > 1)} over stdio"
    told_out = [line for line in lines if line.startswith("left out: ")]
    assert {line.removeprefix("left out: ") for line in told_out} == left_out


def printed_config(folder, client, *args):
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "install", client, "--print", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("client", ["claude-desktop", "vscode", "cursor"])
@pytest.mark.parametrize(
    "refs", [(), ("-s", "desk.py"), ("-s", "python:desk.py:add"), ("-s", "python:desk")]
)
def test_the_printed_command_starts_a_server_from_any_folder(desk, tmp_path_factory, client, refs):
    config = printed_config(desk, client, "--name", "desk", *refs)
    (servers,) = config.values()
    assert set(config) == ({"servers"} if client == "vscode" else {"mcpServers"})
    entry = servers["desk"]
    assert entry.get("type") == ("stdio" if client == "vscode" else None)
    if client != "claude-desktop":  # The entries are the same; to start one of them is enough.
        return
    parameters = StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        env=entry.get("env"),
        cwd=tmp_path_factory.mktemp("elsewhere"),
    )

    async def story(client):
        assert client.server_info.name == "desk"
        return await client.call_tool("desk_add", {"a": 1, "b": 2})

    assert not ask(parameters, "auto", story).is_error


def serve(desk, *, stdin=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-m", "callpact", "serve", "--stdio"],
        cwd=desk,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def send(process, *messages):
    for message in messages:
        process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def call(name, arguments=None, number=2):
    params = {"name": name, "arguments": arguments or {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def assert_left_quietly(process, errors):
    assert process.returncode == 0
    assert b"Traceback" not in errors
    assert b"Error" not in errors
    assert b"Exception" not in errors


def test_a_client_that_hangs_up_ends_the_server_with_exit_0_and_no_trace(desk):
    process = serve(desk)
    send(process, INITIALIZE, READY, call("desk_add", {"a": 1, "b": 2}))
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert lines[0]["result"]["protocolVersion"] == "2025-11-25"
    assert lines[1]["result"]["structuredContent"] == {"result": 3}
    rest, errors = process.communicate(timeout=30)
    assert rest == b""
    assert_left_quietly(process, errors)
    assert b"printed by a tool" in errors
    assert b"printed while imported" in errors


def test_a_client_that_hangs_up_while_a_tool_hangs_ends_the_server_too(desk):
    (desk / "callpact.toml").write_text('[sources.desk]\nref = "python:desk.py"\n', "utf-8")
    process = serve(desk)
    send(process, INITIALIZE, READY, call("desk_hang"))
    process.stdout.readline()
    _, errors = process.communicate(timeout=30)
    assert_left_quietly(process, errors)


def test_a_client_that_does_not_read_its_answers_is_no_trace_either(desk):
    process = serve(desk)
    send(process, INITIALIZE, READY)
    process.stdout.readline()
    process.stdout.close()
    send(process, *[call("desk_refuse", number=n) for n in range(2, 6)])
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=30)
    assert_left_quietly(process, errors)


def test_a_server_without_tools_does_not_start(tmp_path):
    (tmp_path / "callpact.toml").write_text('[sources.a]\nref = "python:nosuch.py"\n', "utf-8")
    process = serve(tmp_path, stdin=subprocess.DEVNULL)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert output == b""
    assert b"nosuch.py" in errors
