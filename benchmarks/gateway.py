"""Guards: a call of another MCP server costs at most half of what FastMCP's proxy adds to it.

CPU of this process for one call over an open stdio session, without a door: the SDK's client alone,
the same tool through a `Runtime`, and through FastMCP's proxy. And twenty servers that each take
half a second to start are ready in the time of the slowest.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from callpact import Catalog, Runtime
from callpact.sources import from_mcp
from measure import cpu_async, table

SERVER = """
import asyncio, sys, time
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
time.sleep(float(sys.argv[1]))
NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
SUM = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
async def tools(_, __):
    return ListToolsResult(tools=[Tool(name="add", description="", input_schema=NUMBERS, output_schema=SUM)])
async def call(_, params):
    value = {"sum": params.arguments["a"] + params.arguments["b"]}
    return CallToolResult(content=[TextContent(type="text", text=str(value))], structured_content=value)
async def main():
    server = Server("s", version="1", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
asyncio.run(main())
"""
ARGUMENTS = {"a": 1, "b": 2}


async def calls(script: Path) -> None:
    from fastmcp import Client as FastClient
    from fastmcp.client.transports import StdioTransport
    from fastmcp.server import create_proxy
    from mcp import Client, StdioServerParameters

    words = [str(script), "0"]
    source, tools = await from_mcp([sys.executable, *words], namespace="up")
    runtime = Runtime(Catalog(tools))
    theirs = FastClient(StdioTransport(sys.executable, words))
    parameters = StdioServerParameters(command=sys.executable, args=words)
    async with Client(parameters) as direct, theirs:
        proxy = create_proxy(theirs)
        taken = await cpu_async(
            {
                "direct": lambda: direct.call_tool("add", ARGUMENTS),
                "callpact": lambda: runtime.execute("up.add", ARGUMENTS),
                "fastmcp client": lambda: theirs.call_tool("add", ARGUMENTS),
                "fastmcp proxy": lambda: proxy.call_tool("add", ARGUMENTS),
            },
            calls=150,
        )
    await source.aclose()
    floor = taken["direct"]
    added = taken["fastmcp proxy"] - taken["fastmcp client"]
    ours = taken["callpact"] - floor
    table(
        "A call of another MCP server over stdio",
        [
            ("SDK's client alone, checks of its own included", floor, 1.0, ""),
            ("callpact, under contract", taken["callpact"], taken["callpact"] / floor, ""),
            (
                "FastMCP's client alone",
                taken["fastmcp client"],
                taken["fastmcp client"] / floor,
                "",
            ),
            ("FastMCP's proxy", taken["fastmcp proxy"], taken["fastmcp proxy"] / floor, ""),
            ("added by callpact / added by the proxy", ours, ours / added, "≤ 0.5"),
        ],
    )


async def start(script: Path) -> None:
    entry = {"command": sys.executable, "args": [str(script), "0.5"]}
    taken = {}
    for number in (1, 20):
        begun = time.perf_counter()
        servers = {f"s{i}": entry for i in range(number)}
        source, tools = await from_mcp({"mcpServers": servers})
        taken[number] = time.perf_counter() - begun
        assert len(tools) == number
        await source.aclose()
    print("\n### Twenty servers that start side by side\n")
    print("| servers | by the clock |\n| ---: | ---: |")
    for number, seconds in taken.items():
        print(f"| {number} | {seconds:.2f} s |")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "server.py"
        script.write_text(SERVER, "utf-8")
        asyncio.run(calls(script))
        asyncio.run(start(script))


if __name__ == "__main__":
    main()
