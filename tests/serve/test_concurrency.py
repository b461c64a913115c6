"""Places and calls that callers share: who gives up a place, and which calls are refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client

import ways
from callpact import Identity, Runtime, Tool
from callpact.serve import Door
from callpact.serve.auth.bearer import Caller, Verified
from callpact.serve.concurrency import CallerSlots, RunningCalls, caller_of, peer_of
from callpact.tool import Contract

ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


def held(slots, places):
    return [place for place in places if place in slots]


def filled(most, *callers):
    """Places that are numbered in the order in which these callers take them."""
    slots = CallerSlots(most)
    for place, caller in enumerate(callers):
        slots.take(place, caller)
    return slots


def test_the_caller_that_holds_the_most_gives_up_its_oldest():
    assert filled(4, "a", "b", "b", "b").victim("c") == 1


def test_a_caller_at_its_share_gives_up_its_own_oldest():
    for caller, place in (("a", 0), ("b", 1)):
        assert filled(4, "a", "b", "b", "a").victim(caller) == place


def test_a_place_that_was_used_is_not_the_oldest_any_more():
    slots = filled(3, "a", "a", "a")
    slots.use(0)
    assert slots.victim("a") == 1


def test_places_that_are_not_idle_are_kept_from_their_own_caller_alone():
    slots = filled(2, "a", "a")
    assert slots.victim("a", lambda place: place == 1) == 1
    assert slots.victim("a", lambda _: False) is None
    assert slots.victim("b", lambda _: False) == 0


def test_a_place_that_was_left_is_free():
    slots = filled(2, "a", "b")
    assert slots.are_taken
    slots.leave(0)
    slots.leave(0)
    assert (len(slots), slots.are_taken, 0 in slots) == (1, False, False)


@given(st.lists(st.sampled_from("abcd"), max_size=100), st.integers(1, 12))
def test_no_caller_below_its_share_ever_loses_a_place(callers, most):
    slots, owners = CallerSlots(most), {}
    for place, caller in enumerate(callers):
        if slots.are_taken:
            victim = slots.victim(caller)
            counts = Counter(owners[one] for one in owners)
            assert counts[owners[victim]] == max(counts.values())
            if counts[caller] == max(counts.values()):
                assert owners[victim] == caller
            slots.leave(victim)
            del owners[victim]
        slots.take(place, caller)
        owners[place] = caller
        assert len(slots) == len(owners) <= most


@pytest.mark.parametrize(
    ("client", "peer"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("::ffff:10.0.0.5", 5), "10.0.0.5"),
        (("2001:db8::1", 5), "2001:db8::/64"),
        (("2001:db8::ffff:1", 5), "2001:db8::/64"),
        (("/run/socket", 0), ""),
        (None, ""),
    ],
)
def test_a_peer_is_its_address_or_its_network(client, peer):
    assert peer_of(client) == peer


def test_a_caller_is_the_subject_of_its_token_or_its_peer():
    ada = Identity("ada")
    static, issued, other = (
        {"user": Caller(verified), "client": ("127.0.0.1", 1)}
        for verified in (
            Verified(ada, "ada"),
            Verified(ada, "app", "https://issuer.example"),
            Verified(ada, "another app", "https://issuer.example"),
        )
    )
    assert caller_of(issued) == caller_of(other) != caller_of(static)
    assert caller_of({"client": ("127.0.0.1", 1)}) == caller_of({"client": ("127.0.0.1", 2)})
    assert caller_of({"client": ("127.0.0.2", 1)}) != caller_of({"client": ("127.0.0.1", 1)})


# --- calls ----------------------------------------------------------------------------------


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
            Tool(
                id=f"t.{name}",
                description=name,
                contract=Contract(),
                handler=wait,
                uses_client=False,
            )
            for name in ("one", "two")
        ]
        runtime = Runtime(tools, observers=[events.append])
        door = Door(runtime, identity=Identity("ada"), **limits)
        async with (
            asyncio.timeout(20),
            ways.place(door.server) as there,
            Client(there, mode=mode) as client,
        ):
            await story(client, begun, end)

    asyncio.run(go())
    return [event.error and event.error.code for event in events]


def code_of(result):
    return json.loads(result.content[0].text)["error"]["code"] if result.is_error else "ok"


@pytest.mark.usefixtures("way")
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
    crowd = RunningCalls(per_tool=12, per_caller=100)
    with contextlib.ExitStack() as stack:
        assert taken(crowd, stack, "hog", 100) == 6
        assert taken(crowd, stack, "ada", 100) == 3
        assert taken(crowd, stack, "bob", 1) == 1
    with contextlib.ExitStack() as stack:
        assert taken(crowd, stack, "ada", 6) == 6  # All have left.


def test_the_only_caller_of_a_door_has_all_calls():
    with contextlib.ExitStack() as stack:
        assert taken(RunningCalls(per_tool=12, per_caller=100), stack, None, 100) == 12


BURSTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), max_size=12)


@given(BURSTS, st.integers(2, 20))
@example([("a", 30)], 4)
def test_a_caller_that_has_no_call_is_let_in_however_others_came(bursts, most):
    crowd = RunningCalls(per_tool=most, per_caller=100)
    with contextlib.ExitStack() as stack:
        for caller, number in bursts:
            taken(crowd, stack, caller, number)
        if len({caller for caller, _ in bursts}) < most.bit_length() - 1:
            assert taken(crowd, stack, "new", 1) == 1
