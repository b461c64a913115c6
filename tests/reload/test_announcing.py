"""What clients hear of a reload, and what becomes of a version that is broken."""

from __future__ import annotations

import asyncio

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.subscriptions import ResourceUpdated, ToolsListChanged

from watched import (
    ANOTHER,
    LEGACY,
    MODERN,
    PATIENCE,
    SAME,
    TOOL,
    Heard,
    first,
    run,
    shop,
    told,
)

# --- what clients hear ----------------------------------------------------------------------


def test_clients_of_both_eras_hear_of_a_new_tool_and_can_call_it(folder):
    path = first(folder, "w_both.py", shop())

    async def story(at):
        heard = Heard()
        async with (
            Client(at.door.server, mode=LEGACY, message_handler=heard) as old,
            Client(at.door.server, mode=MODERN) as new,
            new.listen(tools_list_changed=True, resources_list_changed=True) as stream,
        ):
            assert [tool.name for tool in (await old.list_tools()).tools] == ["w_both_price"]
            path.write_text(shop(more=ANOTHER), "utf-8")
            await heard.until(types.ToolListChangedNotification)
            async with asyncio.timeout(PATIENCE):
                assert await anext(stream) == ToolsListChanged()
            for client, stock in ((old, {"result": 3}), (new, 3)):
                names = [tool.name for tool in (await client.list_tools()).tools]
                assert names == ["w_both_price", "w_both_stock"]
                answer = await client.call_tool("w_both_stock", {"item": "tea"})
                assert answer.structured_content == stock
        assert at.announced == [told(tools=True, updated=["shop://hours"])]

    run(story, "w_both.py")


def test_clients_of_both_eras_hear_that_a_resource_may_be_another(folder):
    path = first(folder, "w_hours.py", shop())

    async def story(at):
        heard = Heard()
        async with (
            Client(at.door.server, mode=LEGACY, message_handler=heard) as old,
            Client(at.door.server, mode=MODERN) as new,
            new.listen(resource_subscriptions=["shop://hours"]) as stream,
        ):
            with pytest.warns(Warning, match="subscribe"):
                await old.subscribe_resource("shop://hours")
            path.write_text(shop(hours="10-16"), "utf-8")
            await heard.until(types.ResourceUpdatedNotification)
            async with asyncio.timeout(PATIENCE):
                assert await anext(stream) == ResourceUpdated(uri="shop://hours")
            content = (await new.read_resource("shop://hours")).contents[0]
            assert content.text == "10-16"

    run(story, "w_hours.py")


KINDS = {
    "a tool": (ANOTHER, told(tools=True, updated=["shop://hours"])),
    "a resource": (
        '\n@resource("shop://more")\ndef more() -> str:\n    return ""\n',
        told(resources=True, updated=["shop://hours"]),
    ),
    "a prompt": (
        '\n@prompt\ndef bye(name: str) -> str:\n    return ""\n',
        told(prompts=True, updated=["shop://hours"]),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_list_that_changed_is_announced(folder, kind):
    path = first(folder, "w_kinds.py", shop())
    more, announced = KINDS[kind]

    async def story(at):
        path.write_text(shop(more=more), "utf-8")
        await at.log.until("added")
        path.write_text(shop(), "utf-8")
        await at.log.until("removed")
        return at.announced

    assert run(story, "w_kinds.py") == [announced, announced]


SEEN = {
    "description": {"words": "What it costs."},
    "title": {"options": "title='Price'"},
    "input": {"parameters": "item: str, unit: str = 'kg'"},
    "output": {"result": "float"},
    "policy": {"options": "policy='reject'"},
    "annotations": {"options": "annotations={'destructiveHint': True}"},
    "access": {"options": "access=['shop']"},
    "tags": {"options": "tags=['money']"},
    "kind": {"options": "kind='query'"},
    "name": {"options": "name='cost'"},
}


@pytest.mark.parametrize("what", SEEN)
def test_whatever_a_client_sees_of_a_tool_is_announced_when_it_changes(folder, what):
    path = first(folder, "w_seen.py", TOOL.format(**SAME))

    async def story(at):
        path.write_text(TOOL.format(**{**SAME, **SEEN[what]}), "utf-8")
        await at.log.until("read again")
        return at.announced

    assert run(story, "w_seen.py") == [told(tools=True)]


@pytest.mark.parametrize("what", ["code", "timeout", "aliases", "a comment"])
def test_what_no_client_sees_is_swapped_in_silence_and_logged(folder, what):
    path = first(folder, "w_code.py", TOOL.format(**SAME))
    options = {"timeout": "timeout=3", "aliases": "aliases=['costs']"}.get(what, "")
    new = TOOL.format(**{**SAME, "options": options})
    new = new.replace("return 1", "return 2") if what == "code" else new + "\n# more\n"

    async def story(at):
        path.write_text(new, "utf-8")
        line = await at.log.until("w_code.py", "read again", level="INFO")
        assert "nothing has changed" in line
        return await at.call("w_code.price", {"item": "tea"}), at.announced

    assert run(story, "w_code.py") == (2 if what == "code" else 1, [])


def test_a_file_that_is_touched_or_saved_again_as_it_was_is_not_read(folder):
    path = first(folder, "w_touch.py", TOOL.format(**SAME))
    other = first(folder, "w_after.py", TOOL.format(**SAME))

    async def story(at):
        before = at.runtime.catalog.get("w_touch.price").handler
        path.write_text(TOOL.format(**SAME), "utf-8")
        path.touch()
        other.write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
        await at.log.until("w_after.stock")
        assert at.runtime.catalog.get("w_touch.price").handler is before
        assert not any("w_touch" in line for _, line in at.log.lines)

    run(story, "w_touch.py", "w_after.py")


def test_tools_that_are_not_served_change_in_silence(folder):
    path = first(folder, "w_hidden.py", TOOL.format(**SAME))
    stream = "\n@tool\nasync def ticks() -> int:\n    yield 1\n"
    stream = "from collections.abc import AsyncGenerator\n" + stream.replace(
        "-> int", "-> AsyncGenerator[int, None]"
    )

    async def story(at):
        path.write_text(TOOL.format(**SAME) + stream, "utf-8")
        await at.log.until("read again")
        got = [e.data async for e in at.runtime.subscribe("w_hidden.ticks")]
        return at.ids(), got, at.announced

    assert run(story, "w_hidden.py") == (["w_hidden.price", "w_hidden.ticks"], [1], [])


def test_what_this_client_may_not_use_changes_in_silence(folder):
    path = first(folder, "w_mine.py", TOOL.format(**SAME))
    secret = ANOTHER.replace("@tool", "@tool(access=['admin'])")

    async def story(at):
        path.write_text(TOOL.format(**SAME) + secret, "utf-8")
        await at.log.until("read again")
        return at.ids(), at.announced

    ids, announced = run(story, "w_mine.py", is_served=lambda tool: not tool.access.scopes)
    assert ids == ["w_mine.price", "w_mine.stock"]
    assert announced == []


# --- broken versions ------------------------------------------------------------------------

BROKEN = {
    "syntax": "def broken(:\n",
    "crash": "1 / 0\n",
    "exit": "raise SystemExit('bye')\n",
    "import": "import w_nowhere\n",
    "empty": "",
    "declaration": TOOL.format(**{**SAME, "parameters": "item: object()"}),
    "twice": TOOL.format(**SAME)
    + "\n@tool(name='price')\nasync def other() -> int:\n    return 2\n",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_version_leaves_the_old_one_and_is_told_until_it_is_whole_again(folder, how):
    path = first(folder, "w_sick.py", TOOL.format(**SAME))

    async def story(at):
        path.write_text(BROKEN[how], "utf-8")
        line = await at.log.until("the version from before stays", level="WARNING")
        assert line.startswith("w_sick.py changed: ")
        assert await at.call("w_sick.price", {"item": "tea"}) == 1
        path.write_text(TOOL.format(**SAME).replace("return 1", "return 2"), "utf-8")
        await at.log.until("python:w_sick.py is whole again", level="WARNING")
        assert await at.call("w_sick.price", {"item": "tea"}) == 2
        return at.announced

    assert run(story, "python:w_sick.py") == []


def test_going_back_to_the_version_from_before_is_whole_again(folder):
    text = "STATE = []\n" + TOOL.format(**SAME)
    text += "\n@tool\nasync def count() -> int:\n    STATE.append(1)\n    return len(STATE)\n"
    path = first(folder, "w_back.py", text)

    async def story(at):
        assert await at.call("w_back.count") == 1
        path.write_text("1 / 0", "utf-8")
        await at.log.until("ZeroDivisionError")
        assert await at.call("w_back.count") == 2
        path.write_text(text, "utf-8")
        await at.log.until("whole again")
        return await at.call("w_back.count")

    assert run(story, "w_back.py") == 3


def test_every_broken_version_is_told(folder):
    path = first(folder, "w_each.py", TOOL.format(**SAME))

    async def story(at):
        path.write_text("1 / 0", "utf-8")
        await at.log.until("ZeroDivisionError")
        path.write_text("nowhere", "utf-8")
        await at.log.until("NameError")
        path.write_text("1 / 0", "utf-8")
        await at.log.until("ZeroDivisionError", count=2)

    run(story, "w_each.py")


def test_one_broken_source_leaves_the_others_alone(folder):
    sick = first(folder, "w_ill.py", TOOL.format(**SAME))
    well = first(folder, "w_well.py", TOOL.format(**SAME))

    async def story(at):
        sick.write_text("1 / 0", "utf-8")
        well.write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
        await at.log.until("ZeroDivisionError")
        await at.log.until("added w_well.stock")
        return at.ids()

    assert run(story, "w_ill.py", "w_well.py") == ["w_ill.price", "w_well.price", "w_well.stock"]


def test_a_source_that_was_broken_at_the_start_is_read_when_it_is_whole(folder):
    good = first(folder, "w_good.py", TOOL.format(**SAME))
    first(folder, "w_late.py", "import w_late_helper\n" + TOOL.format(**SAME))

    async def story(at):
        assert at.ids() == ["w_good.price"]
        first(folder, "w_late_helper.py", "")
        await at.log.until("w_late.py is whole again")
        await at.log.until("added w_late.price")
        assert at.announced == [told(tools=True)]
        good.write_text(TOOL.format(**SAME) + "# more\n", "utf-8")
        await at.log.until("w_good.py changed")
        assert len(at.log.lines) == 3
        return at.ids()

    assert run(story, "w_good.py", "w_late.py") == ["w_good.price", "w_late.price"]


def test_a_tool_that_another_source_has_already_is_told_and_fits_once_that_one_is_gone(folder):
    one = first(folder, "w_one.py", TOOL.format(**{**SAME, "options": "namespace='shop'"}))
    two = first(folder, "w_two.py", TOOL.format(**SAME))

    async def story(at):
        two.write_text(TOOL.format(**{**SAME, "options": "namespace='shop'"}), "utf-8")
        await at.log.until("shop.price", "the version from before stays")
        assert at.ids() == ["shop.price", "w_two.price"]
        one.write_text(TOOL.format(**{**SAME, "options": "namespace='store'"}), "utf-8")
        await at.log.until("w_two.py is whole again")
        return at.ids()

    assert run(story, "w_one.py", "w_two.py") == ["store.price", "shop.price"]


def test_a_tool_can_move_from_one_source_to_another(folder):
    both = TOOL.format(**SAME) + ANOTHER.replace("@tool", "@tool(namespace='shop')")
    one = first(folder, "w_to.py", TOOL.format(**SAME))
    two = first(folder, "w_from.py", both)

    async def story(at):
        for path, text in ((one, both), (two, TOOL.format(**SAME))):
            path.write_text(text, "utf-8")
        await at.log.until("read again")
        return at.ids(), at.announced, at.log.all("WARNING")

    ids, announced, warnings = run(story, "w_to.py", "w_from.py")
    assert ids == ["w_to.price", "shop.stock", "w_from.price"]
    assert announced == []
    assert warnings == []
