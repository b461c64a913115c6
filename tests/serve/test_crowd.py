"""Calls at one time are bounded, by tool and by caller; what is too much is refused, on record."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client

from callpact import Identity, Runtime, Tool
from callpact.serve.crowd import Crowd
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


def taken(crowd, stack, caller, number):
    """How many of so many calls of a caller are let in."""
    return sum(stack.enter_context(crowd.entered("t.one", caller)) is None for _ in range(number))


def test_one_caller_leaves_room_for_as_many_calls_of_others():
    crowd = Crowd(per_tool=12, per_caller=100)
    with contextlib.ExitStack() as stack:
        assert taken(crowd, stack, "hog", 100) == 6
        assert taken(crowd, stack, "ada", 100) == 3
        assert taken(crowd, stack, "bob", 1) == 1
    with contextlib.ExitStack() as stack:
        assert taken(crowd, stack, "ada", 6) == 6  # All have left.


def test_the_only_caller_of_a_door_has_all_calls():
    with contextlib.ExitStack() as stack:
        assert taken(Crowd(per_tool=12, per_caller=100), stack, None, 100) == 12


BURSTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), max_size=12)


@given(BURSTS, st.integers(2, 20))
@example([("a", 30)], 4)
def test_a_caller_that_has_no_call_is_let_in_however_others_came(bursts, most):
    crowd = Crowd(per_tool=most, per_caller=100)
    with contextlib.ExitStack() as stack:
        for caller, number in bursts:
            taken(crowd, stack, caller, number)
        if len({caller for caller, _ in bursts}) < most.bit_length() - 1:
            assert taken(crowd, stack, "new", 1) == 1
