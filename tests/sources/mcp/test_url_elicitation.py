"""A server's wish that the user opens an address reaches the user's client, or is refused clearly."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import mcp_types as types
import pytest

import hostile_server
from callpact.sources import from_mcp
from doors import LEGACY, MODERN, connected

ERAS = ["legacy", "modern"]
ADDRESS = "https://pay.example/1"


@asynccontextmanager
async def gateway(era, **more):
    source, tools = await from_mcp(hostile_server.command(era=era), namespace="h")
    try:
        async with asyncio.timeout(30), connected(*tools, **more) as at:
            yield at
    finally:
        await source.aclose()


def user(seen, action="accept"):
    async def asked(context, params):
        seen.append(params)
        return types.ElicitResult(action=action)

    return asked


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["accept", "decline"])
def test_the_user_is_asked_to_open_the_address(action, era, mode):
    async def go():
        seen = []
        async with gateway(era, mode=mode, user=user(seen, action)) as at:
            result = await at.client.call_tool("h_ask_url", {})
        [params] = seen
        assert (params.mode, params.message, params.url) == ("url", "Please pay", ADDRESS)
        assert result.structured_content["result"] == {"action": action}

    asyncio.run(go())


def test_a_client_with_a_handshake_hears_once_that_the_user_is_done():
    async def go():
        seen, heard = [], asyncio.Queue()

        async def told(message):
            if getattr(message, "method", None) == "notifications/elicitation/complete":
                heard.put_nowait(message.params.elicitation_id)

        async with gateway("legacy", mode=LEGACY, user=user(seen), told=told) as at:
            await at.client.call_tool("h_ask_url", {})
            assert await heard.get() == seen[0].elicitation_id == "h:e-1"
            await at.client.call_tool("h_echo", {})
            assert heard.empty()

    asyncio.run(go())


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize("era", ERAS)
def test_without_such_a_client_it_is_refused_clearly(era, mode):
    async def go():
        async with gateway(era, mode=mode) as at:
            return await at.client.call_tool("h_ask_url", {})

    assert "open an address" in str(asyncio.run(go()).content)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://a\nb", ""])
def test_only_an_address_of_the_web_reaches_the_user(url):
    async def go():
        seen = []
        async with gateway("legacy", mode=LEGACY, user=user(seen)) as at:
            result = await at.client.call_tool("h_ask_url", {"url": url})
        assert seen == []
        assert "begins with http:// or https://" in str(result.content)

    asyncio.run(go())


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize(
    ("action", "words"), [("accept", "call again once that is done"), ("decline", "did not")]
)
def test_an_address_in_place_of_an_answer_is_shown_to_the_user(action, words, mode):
    async def go():
        seen = []
        async with gateway("legacy", mode=mode, user=user(seen, action)) as at:
            result = await at.client.call_tool("h_must_open", {})
        assert [params.url for params in seen] == [ADDRESS]
        assert result.is_error
        assert words in result.content[0].text

    asyncio.run(go())
