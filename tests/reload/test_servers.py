"""`callpact serve --watch` over stdio and HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.subscriptions import ToolsListChanged

import raw
from watched import ANOTHER, LEGACY, MODERN, PATIENCE, SAME, TOOL, Heard, first

# --- servers --------------------------------------------------------------------------------

SERVER = """
import asyncio, logging, signal, sys
from callpact.app import Options, Session
from callpact.serve.http.http_server import serve_http
from callpact.serve.mcp.door import Door
from callpact.serve.stdio.stdio_server import serve_stdio
from callpact.cli.output import ended_at, run
from callpact.reload.watcher import Endpoint, LoadOptions, Watcher

logging.basicConfig(level="WARNING", stream=sys.stderr)
logging.getLogger("callpact.reload").setLevel("INFO")


async def go():
    refs = tuple(sys.argv[2:])
    async with Session(Options(refs=refs, audit="off")) as session:
        await session.load()
        runtime = await session.start()
        door = Door(runtime, name="t", version="1")
        endpoint = Endpoint(runtime=runtime, announce=door.changes.announce)
        async with Watcher(session.loaded, (endpoint,), LoadOptions()):
            if sys.argv[1] == "stdio":
                await serve_stdio(door.server)
            else:
                tell = lambda place: print(place, file=sys.stderr, flush=True)
                with ended_at(signal.SIGTERM):
                    await serve_http(door.server, port=0, on_ready=tell)
    return 0


try:
    run(go())
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextlib.contextmanager
def process(folder, *args):
    (folder / "server.py").write_text(SERVER, "utf-8")
    running = subprocess.Popen(
        [sys.executable, "server.py", *args], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait(PATIENCE)
        running.stderr.close()


def test_over_stdio_clients_of_both_eras_hear_of_a_change(folder):
    path = first(folder, "w_pipe.py", TOOL.format(**SAME))
    (folder / "server.py").write_text(SERVER, "utf-8")
    parameters = StdioServerParameters(
        command=sys.executable, args=["server.py", "stdio", "w_pipe.py"], cwd=folder
    )

    async def go(mode, number):
        heard = Heard()
        async with (
            asyncio.timeout(60),
            Client(parameters, mode=mode, message_handler=heard) as client,
        ):
            before = len((await client.list_tools()).tools)
            async with contextlib.AsyncExitStack() as stack:
                if mode == MODERN:
                    listening = client.listen(tools_list_changed=True)
                    stream = await stack.enter_async_context(listening)
                more = ANOTHER.replace("stock", f"stock{number}")
                path.write_text(path.read_text("utf-8") + more, "utf-8")
                await (
                    anext(stream)
                    if mode == MODERN
                    else heard.until(types.ToolListChangedNotification)
                )
                assert len((await client.list_tools()).tools) == before + 1

    asyncio.run(go(LEGACY, 1))
    asyncio.run(go(MODERN, 2))


def test_over_http_clients_of_both_eras_hear_of_a_change(folder):
    path = first(folder, "w_web.py", TOOL.format(**SAME))

    async def go(address):
        heard = Heard()
        async with (
            asyncio.timeout(60),
            Client(address, mode=LEGACY, message_handler=heard) as old,
            Client(address, mode=MODERN) as new,
            new.listen(tools_list_changed=True) as stream,
        ):
            await old.list_tools()
            path.write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
            assert await anext(stream) == ToolsListChanged()
            await heard.until(types.ToolListChangedNotification)
            for client in (old, new):
                assert len((await client.list_tools()).tools) == 2

    with process(folder, "http", "w_web.py") as running:
        asyncio.run(go(running.stderr.readline().strip()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_that_watches(folder, number):
    path = first(folder, "w_end.py", TOOL.format(**SAME))
    with process(folder, "http", "w_end.py") as running:
        address = running.stderr.readline().strip()
        path.write_text("1 / 0", "utf-8")
        assert "ZeroDivisionError" in running.stderr.readline()
        port = int(address.split(":")[-1].split("/")[0])
        with raw.Line(port) as line:
            asked = raw.message("tools/list")
            assert len(line.ask(asked, **raw.routed("tools/list")).result["tools"]) == 1
        running.send_signal(number)
        assert running.wait(PATIENCE) == (0 if number == signal.SIGTERM else 130)
        assert running.stderr.read() == ""
