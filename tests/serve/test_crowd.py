"""Calls at one time are bounded, by tool and by caller; what is too much is refused, on record."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp import Client

from callpact import Identity, Runtime, Tool
from callpact.serve.mcp import Door
from callpact.tool import Contract

ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


def crowded(mode, story, **limits):
    """A door with two tools that wait; the story gets the client, and what lets them end."""
    events = []

    async def go():
        begun, end = asyncio.Queue(), asyncio.Event()

        async def wait(arguments, context):
            begun.put_nowait(context.tool_id)
            await end.wait()
            return "done"

        tools = [
            Tool(id=f"t.{name}", description=name, contract=Contract(), handler=wait)
            for name in ("one", "two")
        ]
        runtime = Runtime(tools, observers=[events.append])
        door = Door(runtime, identity=Identity("ada"), **limits)
        async with asyncio.timeout(20), Client(door.server, mode=mode) as client:
            await story(client, begun, end)

    asyncio.run(go())
    return [event.error and event.error.code for event in events]


def code_of(result):
    return json.loads(result.content[0].text)["error"]["code"] if result.is_error else "ok"


@ERAS
@pytest.mark.parametrize(
    ("limits", "other"), [({"calls_per_tool": 1}, "ok"), ({"calls_per_caller": 1}, "overloaded")]
)
def test_what_is_too_much_is_refused_and_the_next_call_works(mode, limits, other):
    async def story(client, begun, end):
        first = asyncio.ensure_future(client.call_tool("t_one", {}))
        assert await begun.get() == "t.one"
        refused = await client.call_tool("t_one", {})
        assert code_of(refused) == "overloaded"
        assert "try again" in refused.content[0].text
        second = asyncio.ensure_future(client.call_tool("t_two", {}))
        if other == "ok":
            assert await begun.get() == "t.two"
        else:
            await asyncio.wait([second])
        end.set()
        assert [code_of(await call) for call in (first, second)] == ["ok", other]
        assert code_of(await client.call_tool("t_one", {})) == "ok"

    told = crowded(mode, story, **limits)
    assert sorted(told, key=str) == sorted(
        [None, "overloaded", None if other == "ok" else other, None], key=str
    )
