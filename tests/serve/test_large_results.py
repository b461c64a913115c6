"""Results that are too large for one answer, at the door: pages, whose they are, where the rest is."""

from __future__ import annotations

import asyncio
import json

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from callpact.context import Identity
from callpact.serve.mcp.large_results import MAX_CURSOR_LENGTH, READ_RESULT
from doors import LEGACY, MODERN, connected, error_of, value_of
from doors import tool as make

PATIENCE = 20
BOTH_WAYS = pytest.mark.usefixtures("way")
ERAS = pytest.mark.parametrize("mode", [MODERN, LEGACY])
LIMIT = 400
ITEMS = [{"number": number, "text": "é" * 10} for number in range(40)]


async def everything(arguments, context):
    return ITEMS


async def few(arguments, context):
    return ITEMS[:2]


async def text(arguments, context):
    return "word " * 1_000


def tool(name, handler):
    return make(name, handler, uses_client=False)


TOOLS = [tool("everything", everything), tool("few", few), tool("text", text)]


def run(told):
    return asyncio.run(asyncio.wait_for(told, PATIENCE))


def ask(question, mode=MODERN, **given):
    async def go():
        async with connected(*TOOLS, mode=mode, result_limit=LIMIT, **given) as at:
            return await question(at)

    return run(go())


def note(result):
    return result.meta["callpact/page"]


async def names(client):
    listed = await client.list_tools(cache_mode="refresh")
    return [tool.name for tool in listed.tools]


async def every_page(client, result):
    """The items of a result, page by page."""
    held = result.structured_content
    items = list(held["result"] if isinstance(held, dict) else held)
    cursor = note(result).get("nextCursor")
    while cursor:
        page = await client.call_tool(READ_RESULT, {"cursor": cursor})
        assert not page.is_error
        items += page.structured_content["page"]
        cursor = page.structured_content.get("nextCursor")
    return items


@BOTH_WAYS
@ERAS
def test_a_large_result_comes_in_pages_of_whole_items_and_none_is_lost(mode):
    async def question(at):
        first = await at.client.call_tool("t_everything", {})
        shown = note(first)
        assert (shown["start"], shown["total"]) == (0, len(ITEMS))
        assert 0 < shown["shown"] < len(ITEMS)
        assert any(isinstance(block, types.ResourceLink) for block in first.content)
        return await every_page(at.client, first), at.events

    items, events = ask(question, mode)
    assert items == ITEMS
    assert [event.tool_id for event in events].count("t.everything") == 1


@BOTH_WAYS
@ERAS
def test_a_result_that_fits_comes_whole_and_there_is_nothing_to_explain(mode):
    async def question(at):
        result = await at.client.call_tool("t_few", {})
        return result, await names(at.client)

    result, listed = ask(question, mode)
    assert value_of(result) == ITEMS[:2]
    assert "callpact/page" not in (result.meta or {})
    assert READ_RESULT not in listed


@BOTH_WAYS
@ERAS
def test_the_tool_that_reads_on_is_listed_and_announced_once_it_is_needed(mode):
    heard = []

    async def told(message):
        if isinstance(message, types.ToolListChangedNotification):
            heard.append(message.method)

    async def question(at):
        before = await names(at.client)
        for _ in range(2):
            await at.client.call_tool("t_everything", {})
        return before, await names(at.client)

    before, after = ask(question, mode, told=told)
    assert after == [*before, READ_RESULT]
    if mode == LEGACY:  # Today's clients hear of it on the stream that they listen to.
        assert heard == ["notifications/tools/list_changed"]


def test_todays_clients_hear_on_their_stream_that_there_is_a_tool_more():
    async def question(at):
        async with at.client.listen(tools_list_changed=True) as changes:
            await at.client.call_tool("t_everything", {})
            return await asyncio.wait_for(anext(changes), 5)

    assert type(ask(question)).__name__ == "ToolsListChanged"


@BOTH_WAYS
@ERAS
def test_the_tool_that_reads_on_is_also_there_behind_search_tools(mode):
    async def question(at):
        first = await at.client.call_tool("call_tool", {"name": "t.everything"})
        return await every_page(at.client, first), await names(at.client)

    items, listed = ask(question, mode, list_up_to=0)
    assert items == ITEMS
    assert READ_RESULT in listed


@BOTH_WAYS
@ERAS
def test_the_whole_result_is_a_resource_for_a_while(mode):
    async def question(at):
        result = await at.client.call_tool("t_everything", {})
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        return (await at.client.read_resource(link.uri)).contents, link

    (content,), link = ask(question, mode)
    assert json.loads(content.text) == ITEMS
    assert (str(content.uri), content.mime_type) == (str(link.uri), "application/json")


@BOTH_WAYS
@ERAS
def test_a_long_text_is_shown_in_short_and_read_whole(mode):
    async def question(at):
        result = await at.client.call_tool("t_text", {})
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert not any("word " * 1_000 in getattr(block, "text", "") for block in result.content)
        return (await at.client.read_resource(link.uri)).contents

    (content,) = ask(question, mode)
    assert content.text == "word " * 1_000


@BOTH_WAYS
@ERAS
@pytest.mark.parametrize("cursor", ["x", "A" * MAX_CURSOR_LENGTH, "../..", "é", "AAAA"])
def test_a_cursor_that_was_not_given_is_a_failed_call_with_its_place(mode, cursor):
    async def question(at):
        return await at.client.call_tool(READ_RESULT, {"cursor": cursor})

    error = error_of(ask(question, mode))
    assert (error["code"], error["path"]) == ("result_gone", "/cursor")


@BOTH_WAYS
@ERAS
@pytest.mark.parametrize(
    "arguments", [{}, {"cursor": ""}, {"cursor": 5}, {"cursor": "x" * 201}, {"cursor": "x", "y": 1}]
)
def test_what_is_no_cursor_is_rejected_as_by_any_tool(mode, arguments):
    result = ask(lambda at: at.client.call_tool(READ_RESULT, arguments), mode)
    assert error_of(result)["code"] == "schema_validation_failed"


@pytest.mark.parametrize("other", [Identity("eve"), Identity("ada2"), None])
def test_only_the_caller_who_got_the_first_page_reads_on(other):
    ada = Identity("ada")
    caller = [ada]

    async def question(at):
        result = await at.client.call_tool("t_everything", {})
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        cursor = {"cursor": note(result)["nextCursor"]}
        caller[0] = other
        denied = await at.client.call_tool(READ_RESULT, cursor)
        with pytest.raises(MCPError) as missing:
            await at.client.read_resource(link.uri)
        caller[0] = ada
        return denied, missing.value.error, await at.client.call_tool(READ_RESULT, cursor)

    denied, missing, own = ask(question, identity=lambda context: caller[0])
    assert error_of(denied)["code"] == "result_gone"
    assert missing.code == types.INVALID_PARAMS
    assert not own.is_error


@BOTH_WAYS
def test_a_page_is_not_kept_anew_however_often_it_is_read():
    async def question(at):
        result = await at.client.call_tool("t_everything", {})
        cursor = {"cursor": note(result)["nextCursor"]}
        pages = [await at.client.call_tool(READ_RESULT, cursor) for _ in range(3)]
        return pages, len(at.door._kept._results)

    pages, kept = ask(question)
    assert pages[0].structured_content == pages[1].structured_content == pages[2].structured_content
    assert kept == 1


@BOTH_WAYS
@settings(max_examples=25)
@given(sizes=st.lists(st.integers(0, 300), max_size=30), limit=st.integers(400, 2_000))
def test_pages_give_every_item_once_and_in_order(sizes, limit):
    items = [[number, "x" * size] for number, size in enumerate(sizes)]

    async def give(arguments, context):
        return items

    async def go():
        async with connected(tool("give", give), result_limit=limit) as at:
            result = await at.client.call_tool("t_give", {})
            is_paged = "callpact/page" in result.meta
            return is_paged, await every_page(at.client, result) if is_paged else value_of(result)

    is_paged, given_items = run(go())
    assert given_items == items
    assert is_paged == (len(json.dumps(items, separators=(",", ":"))) > limit)
