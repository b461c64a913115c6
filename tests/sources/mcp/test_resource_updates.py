"""A client that subscribes to a resource of an MCP server hears of its changes, across the eras."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from mcp.shared.exceptions import MCPError

import hostile_server
from callpact import CallError, Catalog, Runtime, Tool, UpstreamError
from callpact.context import Identity
from callpact.resources import Resource
from callpact.sources import from_mcp
from callpact.sources.mcp import resource_updates
from doors import LEGACY, connected
from doors import tool as made

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
ERAS = ["legacy", "modern"]
NOTE = "test://notes/1"


@asynccontextmanager
async def opened(server):
    source, tools = await from_mcp(server, namespace="h", hosts=["127.0.0.1"])
    try:
        async with asyncio.timeout(40):
            yield tools
    finally:
        async with asyncio.timeout(20):
            await source.aclose()


@asynccontextmanager
async def gateway(server, **more):
    """A client at a door in front of a server."""
    async with (
        opened(server) as tools,
        connected(*tools, resources=tools.resources, **more) as at,
    ):
        yield at


def listener():
    """Takes the addresses of changed resources."""
    heard = asyncio.Queue()

    async def handle(message):
        if getattr(message, "method", None) == "notifications/resources/updated":
            heard.put_nowait(str(message.params.uri))

    handle.heard = heard
    return handle


async def until(condition, seconds=20):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def methods(upstream):
    return [each["method"] for each in upstream.received]


@pytest.mark.parametrize("era", ERAS)
def test_a_session_hears_of_changes_until_it_unsubscribes(era):
    async def go():
        handle = listener()
        async with gateway(hostile_server.command(era=era), mode=LEGACY, told=handle) as at:
            await at.client.call_tool("h_touch", {"uri": NOTE})
            await at.client.session.subscribe_resource(NOTE)
            await at.client.call_tool("h_touch", {"uri": "test://notes/2"})
            await at.client.call_tool("h_touch", {"uri": NOTE})
            assert await handle.heard.get() == NOTE
            await at.client.session.unsubscribe_resource(NOTE)
            await asyncio.sleep(0.3)
            await at.client.call_tool("h_touch", {"uri": NOTE})
            await asyncio.sleep(0.3)
            assert handle.heard.empty()

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_a_stream_of_the_newest_era_hears_of_the_resources_that_it_named(era):
    async def go():
        async with (
            gateway(hostile_server.command(era=era)) as at,
            at.client.listen(resource_subscriptions=[NOTE, "test://none"]) as stream,
        ):
            assert stream.honored.resource_subscriptions == [NOTE]
            await at.client.call_tool("h_touch", {"uri": "test://notes/2"})
            await at.client.call_tool("h_touch", {"uri": NOTE})
            assert str((await anext(stream)).uri) == NOTE

    asyncio.run(go())


def test_a_resource_inside_of_a_followed_one_changes_that_one():
    async def go():
        handle = listener()
        async with gateway(hostile_server.command(era="legacy"), mode=LEGACY, told=handle) as at:
            await at.client.session.subscribe_resource(NOTE)
            await at.client.call_tool("h_touch", {"uri": f"{NOTE}/part"})
            assert await handle.heard.get() == NOTE

    asyncio.run(go())


def test_the_server_is_subscribed_once_and_unsubscribed_with_the_last_follower():
    async def go():
        with hostile_server.served(era="legacy") as upstream:
            async with opened(upstream.url) as tools:
                [note] = [each for each in tools.resources if each.uri == NOTE]
                ends = [await note.follow(NOTE, lambda: None) for _ in range(3)]
                assert methods(upstream).count("resources/subscribe") == 1
                ends[0]()
                ends[0]()
                ends[1]()
                await asyncio.sleep(0.1)
                assert "resources/unsubscribe" not in methods(upstream)
                ends[2]()
                await until(lambda: "resources/unsubscribe" in methods(upstream))

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_a_flood_of_changes_is_few_notifications(era):
    async def go():
        handle = listener()
        async with gateway(hostile_server.command(era=era), mode=LEGACY, told=handle) as at:
            await at.client.session.subscribe_resource(NOTE)
            for _ in range(100):
                await at.client.call_tool("h_touch", {"uri": NOTE})
            assert await handle.heard.get() == NOTE
            await asyncio.sleep(0.5)
            assert handle.heard.qsize() < 50

    asyncio.run(go())


@pytest.mark.parametrize("is_http", [False, True])
@pytest.mark.parametrize("era", ERAS)
def test_after_a_lost_connection_the_followers_are_notified_and_follow_on(era, is_http):
    async def go(server):
        heard = asyncio.Queue()
        async with opened(server) as tools, Runtime(Catalog(tools)) as runtime:
            [note] = [each for each in tools.resources if each.uri == NOTE]
            await note.follow(NOTE, lambda: heard.put_nowait(None))
            with pytest.raises(CallError):
                await runtime.execute("h.crash", {})
            if is_http:  # There a lost session shows with the next request.
                await again(runtime, "h.echo")
            await heard.get()
            await asyncio.sleep(0.5)
            while not heard.empty():
                heard.get_nowait()
            await again(runtime, "h.touch", uri=NOTE)
            await heard.get()

    async def again(runtime, name, **arguments):
        for _ in range(40):
            try:
                return await runtime.execute(name, arguments)
            except CallError:
                await asyncio.sleep(0.25)
        return pytest.fail("the server does not come back")

    if is_http:
        with hostile_server.served(era=era) as upstream:
            asyncio.run(go(upstream.url))
    else:
        asyncio.run(go(hostile_server.command(era=era)))


def test_a_server_that_reports_no_changes_is_a_clear_error():
    async def go():
        with hostile_server.served(era="legacy", on={"resources/subscribe": "error"}) as upstream:
            async with gateway(upstream.url, mode=LEGACY) as at:
                with pytest.raises(MCPError, match="answered with the error -32603"):
                    await at.client.session.subscribe_resource(NOTE)
        with hostile_server.served(era="modern", on={"subscriptions/listen": "error"}) as upstream:
            async with opened(upstream.url) as tools:
                with pytest.raises(UpstreamError, match="does not report changes"):
                    await tools.resources[0].follow(NOTE, lambda: None)

    asyncio.run(go())


def test_the_number_of_followed_resources_is_bounded(monkeypatch):
    monkeypatch.setattr(resource_updates, "MAX_FOLLOWED", 2)

    async def go():
        async with opened(hostile_server.command(era="legacy")) as tools:
            follow = tools.resources[0].follow
            for number in (1, 2, 2):
                await follow(f"test://notes/{number}", lambda: None)
            with pytest.raises(CallError, match="followed already"):
                await follow("test://notes/3", lambda: None)

    asyncio.run(go())


def test_a_resource_that_the_caller_may_not_read_is_not_followed():
    async def go():
        followed = []

        async def follow(uri, on_update):
            followed.append(uri)
            return lambda: None

        async def nothing(arguments, context):
            return None

        secret: Tool = made("secret", nothing, access=("admin",))
        resources = [Resource(uri="docs://secret", tool=secret, follow=follow)]
        async with (
            connected(resources=resources, identity=Identity("ada")) as at,
            at.client.listen(
                tools_list_changed=True, resource_subscriptions=["docs://secret"]
            ) as stream,
        ):
            assert stream.honored.resource_subscriptions is None
        assert followed == []

    asyncio.run(asyncio.wait_for(go(), 20))
