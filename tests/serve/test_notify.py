"""Clients hear of what changed, of nothing else, and no client keeps it from the others."""

from __future__ import annotations

import asyncio
import contextlib

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError

from callpact.context import Identity
from callpact.resources import MAX_URI_LENGTH, Resource
from callpact.serve.mcp import notify as changes
from callpact.serve.mcp.notify import ChangeNotifier
from doors import LEGACY, connected, tool

# Older clients subscribe and set levels by messages of their own, which the SDK calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
PATIENCE = 20
KINDS = {
    "tools": ("notifications/tools/list_changed", "ToolsListChanged"),
    "resources": ("notifications/resources/list_changed", "ResourcesListChanged"),
    "prompts": ("notifications/prompts/list_changed", "PromptsListChanged"),
}
METHODS = {method for method, _ in KINDS.values()} | {"notifications/resources/updated"}


async def nothing(arguments, context):
    return None


DOCS = [
    Resource(uri=f"docs://{name}", tool=tool(name, nothing, access=scopes))
    for name, scopes in [("a", ()), ("b", ()), ("secret", ("admin",))]
]


def run(told):
    return asyncio.run(asyncio.wait_for(told, PATIENCE))


def listener():
    """Takes what a client is told, and waits until it was told so much."""
    heard = asyncio.Queue()

    async def told(message):
        if getattr(message, "method", None) in METHODS:
            uri = getattr(getattr(message, "params", None), "uri", None)
            heard.put_nowait(message.method if uri is None else (message.method, str(uri)))

    told.next = lambda: asyncio.wait_for(heard.get(), 5)
    told.is_silent = heard.empty
    return told


@pytest.mark.parametrize("what", KINDS)
def test_a_session_hears_which_list_changed_and_of_no_other(what):
    async def go():
        told = listener()
        async with connected(tool("it", nothing), mode=LEGACY, told=told) as at:
            await at.door.changes.announce(**{what: True})
            assert await told.next() == KINDS[what][0]
            await at.client.list_tools()  # Whatever else was on its way has come by then.
            assert told.is_silent()

    run(go())


@pytest.mark.parametrize("what", KINDS)
def test_a_listener_of_today_hears_of_what_it_asked_for_only(what):
    async def go():
        async with (
            connected(tool("it", nothing)) as at,
            at.client.listen(**{f"{what}_list_changed": True}) as stream,
        ):
            others = dict.fromkeys(KINDS.keys() - {what}, True)
            await at.door.changes.announce(**others)
            await at.door.changes.announce(**{what: True})
            event = await asyncio.wait_for(anext(stream), 5)
            assert type(event).__name__ == KINDS[what][1]

    run(go())


def test_both_eras_are_told_that_changes_are_announced():
    async def go(mode):
        async with connected(tool("it", nothing), mode=mode) as at:
            able = at.client.server_capabilities
            return [able.tools.list_changed, able.resources.list_changed, able.prompts.list_changed]

    assert run(go(LEGACY)) == run(go("auto")) == [True, True, True]


def test_only_who_subscribed_hears_that_a_resource_changed():
    async def go():
        told = listener()
        async with connected(resources=DOCS, mode=LEGACY, told=told) as at:
            session = at.client.session
            await session.subscribe_resource("docs://a")
            await at.door.changes.announce(updated=["docs://a", "docs://b"])
            assert await told.next() == ("notifications/resources/updated", "docs://a")
            await session.unsubscribe_resource("docs://a")
            await session.unsubscribe_resource("docs://a")
            await at.door.changes.announce(updated=["docs://a", "docs://b"], tools=True)
            assert await told.next() == KINDS["tools"][0]
            await at.client.list_resources()
            assert told.is_silent()

    run(go())


def test_a_listener_of_today_hears_of_the_resources_that_it_named():
    async def go():
        async with (
            connected(resources=DOCS) as at,
            at.client.listen(resource_subscriptions=["docs://a"]) as stream,
        ):
            await at.door.changes.announce(updated=["docs://b", "docs://a"])
            event = await asyncio.wait_for(anext(stream), 5)
            assert str(event.uri) == "docs://a"

    run(go())


@pytest.mark.parametrize(
    "uri", ["docs://none", "docs://secret", "docs://" + "x" * MAX_URI_LENGTH, ""]
)
def test_what_a_caller_cannot_read_it_cannot_subscribe_to(uri):
    async def go():
        async with connected(resources=DOCS, mode=LEGACY) as at:
            with pytest.raises(MCPError) as refused:
                await at.client.session.subscribe_resource(uri)
            await at.client.session.subscribe_resource("docs://a")
            return refused.value.error

    assert run(go()).code == -32002


def test_a_session_may_subscribe_only_to_so_many(monkeypatch):
    monkeypatch.setattr(changes, "MAX_SUBSCRIBED", 1)

    async def go():
        async with connected(resources=DOCS, mode=LEGACY) as at:
            for _ in range(2):  # The same again is none more.
                await at.client.session.subscribe_resource("docs://a")
            with pytest.raises(MCPError) as refused:
                await at.client.session.subscribe_resource("docs://b")
            await at.client.session.unsubscribe_resource("docs://a")
            await at.client.session.subscribe_resource("docs://b")
            return refused.value.error

    assert run(go()).code == types.INVALID_PARAMS


def test_the_sessions_of_a_caller_may_subscribe_only_to_so_many(monkeypatch):
    monkeypatch.setattr(changes, "MAX_SUBSCRIBED_BY_CALLER", 2)
    callers = [Identity("ada")]

    async def go():
        async with (
            connected(resources=DOCS, mode=LEGACY, identity=lambda _: callers[0]) as at,
            Client(at.door.server, mode=LEGACY) as second,
        ):
            await at.client.session.subscribe_resource("docs://a")
            await second.session.subscribe_resource("docs://a")
            with pytest.raises(MCPError) as refused:
                await second.session.subscribe_resource("docs://b")
            callers[0] = Identity("bob")
            async with Client(at.door.server, mode=LEGACY) as other:
                await other.session.subscribe_resource("docs://b")
            return refused.value.error

    assert run(go()).code == types.INVALID_PARAMS


def test_a_client_that_has_gone_keeps_nothing_from_the_others():
    async def go():
        told = listener()
        async with connected(tool("it", nothing), mode=LEGACY, told=told) as at:
            async with Client(at.door.server, mode=LEGACY) as other:
                await other.list_tools()
            await at.door.changes.announce(tools=True)
            assert await told.next() == KINDS["tools"][0]

    run(go())


class Stuck:
    """A session whose client does not read."""

    def __init__(self):
        self.asked = 0

    async def send_tool_list_changed(self):
        self.asked += 1
        await asyncio.Event().wait()


def test_clients_that_do_not_read_are_given_up_all_at_once(monkeypatch):
    monkeypatch.setattr(changes, "_SEND_SECONDS", 0.05)
    sessions = [Stuck() for _ in range(200)]

    async def go():
        told = ChangeNotifier(InMemorySubscriptionBus())
        told._sessions.update(sessions)
        # One after the other they would take 10 seconds.
        await asyncio.wait_for(told.announce(tools=True), 5)
        await told.announce(tools=True)

    run(go())
    assert {session.asked for session in sessions} == {1}


def test_each_session_has_a_level_of_its_own():
    async def shout(arguments, context):
        for level in ("info", "error"):
            await context.client.log(level, level)

    async def go():
        heard = {"quiet": [], "loud": []}

        def listening(name):
            async def listen(params):
                heard[name].append(params.level)

            return listen

        async with contextlib.AsyncExitStack() as stack:
            at = await stack.enter_async_context(
                connected(tool("shout", shout), mode=LEGACY, heard=listening("quiet"))
            )
            loud = await stack.enter_async_context(
                Client(at.door.server, mode=LEGACY, logging_callback=listening("loud"))
            )
            await at.client.set_logging_level("error")
            await loud.set_logging_level("debug")
            for client in (at.client, loud):
                await client.call_tool("t_shout", {})
        return heard

    assert run(go()) == {"quiet": ["error"], "loud": ["info", "error"]}
