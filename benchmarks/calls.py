"""Guards: one contracted call costs at most twice the floor, and far less than the peers.

The floor is one hand-written function: parse, check, await, wrap in a dict, check, dump.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated

import jsonschema_rs
import orjson
from pydantic import Field
from typing_extensions import TypedDict

from callpact import CallError, Catalog, Contract, Runtime, Tool, from_functions, tool
from cases import ARGUMENTS, IN, OUT, THREE_WRONG
from measure import cpu, cpu_async, drive, table


class Echo(TypedDict):
    """What echo gives."""

    text: str
    n: int


Text = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[int, Field(ge=0, le=1000)]


async def _echo(arguments, _context):
    return {"text": arguments["text"], "n": arguments["n"]}


@tool(namespace="b")
async def typed(text: Text, n: Number) -> Echo:
    """Echo."""
    return {"text": text, "n": n}


def floor():
    """The floor, as a coroutine function of no arguments."""
    accepts = jsonschema_rs.validator_for(IN, offline=True).is_valid
    gives = jsonschema_rs.validator_for(OUT, offline=True).is_valid
    raw = orjson.dumps(ARGUMENTS)

    async def work(arguments):
        return {"text": arguments["text"], "n": arguments["n"]}

    async def call():
        arguments = orjson.loads(raw)
        if not accepts(arguments):
            raise ValueError
        data = await work(arguments)
        meta = {"source": "local", "operationId": "b.echo", "timestamp": time.time_ns() // 10**6}
        envelope = {"data": data, "meta": meta}
        if not gives(data):
            raise ValueError
        return orjson.dumps(envelope)

    return call


def runtime(events: list) -> Runtime:
    echo = Tool(
        id="b.echo",
        description="Echo.",
        contract=Contract(input=IN, output=OUT, policy="cast"),
        handler=_echo,
    )
    return Runtime(Catalog([echo, *from_functions(typed)]), observers=[events.append])


def in_process() -> None:
    events: list = []
    calls, bare = runtime(events), floor()

    def execute(name):
        def once():
            drive(calls.execute(name, ARGUMENTS))
            if len(events) > 1000:
                events.clear()

        return once

    taken = cpu(
        {"floor": lambda: drive(bare()), "echo": execute("b.echo"), "typed": execute("b.typed")}
    )
    base = taken["floor"]
    table(
        "One call in process, against the floor",
        [
            ("floor", base, 1.0, ""),
            ("Runtime.execute, handler", taken["echo"], taken["echo"] / base, "≤ 2"),
            ("Runtime.execute, typed function", taken["typed"], taken["typed"] / base, ""),
        ],
    )


def rejection() -> None:
    events: list = []
    calls = runtime(events)
    validator = jsonschema_rs.validator_for(IN, offline=True)

    def rejected():
        try:
            drive(calls.execute("b.echo", THREE_WRONG))
        except CallError:
            events.clear()

    def told():
        try:
            drive(calls.execute("b.echo", THREE_WRONG))
        except CallError as error:
            events.clear()
            return error.issues

    taken = cpu(
        {
            "bare": lambda: list(validator.iter_errors(THREE_WRONG)),
            "rejected": rejected,
            "told": told,
        }
    )
    base = taken["bare"]
    table(
        "A rejection with three issues, against a bare iter_errors",
        [
            ("iter_errors", base, 1.0, ""),
            ("rejected", taken["rejected"], taken["rejected"] / base, "≤ 3"),
            ("rejected, issues and hints written", taken["told"], taken["told"] / base, ""),
        ],
    )


async def against_peers() -> None:
    logging.disable(logging.CRITICAL)
    from fastmcp import Client as FastClient
    from fastmcp import FastMCP
    from mcp import Client
    from mcp import types as t
    from mcp.server import Server

    listed = t.ListToolsResult(
        tools=[t.Tool(name="echo", description="Echo.", input_schema=IN, output_schema=OUT)]
    )
    accepts = jsonschema_rs.validator_for(IN, offline=True).is_valid

    async def list_tools(_context, _params):
        return listed

    async def call_tool(_context, params):
        if not accepts(params.arguments):
            raise ValueError
        data = {"text": params.arguments["text"], "n": params.arguments["n"]}
        text = t.TextContent(type="text", text=orjson.dumps(data).decode())
        return t.CallToolResult(content=[text], structured_content=data)

    server = Server(
        "bench",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda _: IN,
    )
    fast = FastMCP("bench")

    @fast.tool
    async def echo(text: Text, n: Number) -> Echo:
        return {"text": text, "n": n}

    events: list = []
    calls = runtime(events)
    async with Client(server) as client, FastClient(fast) as fast_client:
        taken = await cpu_async(
            {
                "callpact": lambda: calls.execute("b.echo", ARGUMENTS),
                "mcp": lambda: client.call_tool("echo", ARGUMENTS),
                "fastmcp": lambda: fast_client.call_tool("echo", ARGUMENTS),
            }
        )
    base = taken["callpact"]
    table(
        "One call in process, against the peers",
        [
            ("callpact Runtime.execute", base, 1.0, ""),
            ("mcp low-level Server, Client", taken["mcp"], taken["mcp"] / base, "≥ 20"),
            ("FastMCP Client", taken["fastmcp"], taken["fastmcp"] / base, "≥ 100"),
        ],
    )


def main() -> None:
    in_process()
    rejection()
    asyncio.run(against_peers())
