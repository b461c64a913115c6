"""Hot reload: real files, a real runtime and door, and clients of both eras who hear of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.subscriptions import ResourceUpdated, ToolsListChanged

import calls
import raw
from callpact.app import load_app
from callpact.catalog import Catalog
from callpact.runtime import Runtime
from callpact.secrets import Secrets
from callpact.serve.mcp import Door
from callpact.sources.loaded import Opening, Watched
from callpact.watching.looking import Looker
from callpact.watching.watcher import Asked, watching

MODERN, LEGACY = "2026-07-28", "legacy"
PATIENCE = 30
LONG_AGO = 1_600_000_000
SHOP = '''
from callpact import prompt, resource, tool

@tool
async def price(item: str) -> int:
    """The price of an item."""
    return {price}

@resource("shop://hours")
def hours() -> str:
    return "{hours}"

@resource("shop://{{page}}")
def page(page: str) -> str:
    return page

@prompt
def greet(name: str) -> str:
    return f"Greet {{name}}"
'''


def shop(price=1, hours="9-17", more=""):
    return SHOP.format(price=price, hours=hours) + more


ANOTHER = "\n@tool\nasync def stock(item: str) -> int:\n    return 3\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the sources are; the modules that came from there are gone again after the test."""
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path


def first(folder, name, text):
    """A file as it was long before anything is loaded."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


class Log(logging.Handler):
    """What the watcher says, to be waited for."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._told.set)

    async def until(self, *words, level=None, count=1):
        """The line with these words, once there are so many of them."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    found = [
                        line
                        for name, line in self.lines
                        if all(word in line for word in words) and level in (None, name)
                    ]
                    if len(found) >= count:
                        return found[-1]
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            pytest.fail(f"never said: {words}; but {self.lines}")

    def all(self, level):
        return [line for name, line in self.lines if name == level]


class At:
    """A server whose sources are watched."""

    def __init__(self, app, runtime, door, log, announced):
        self.app, self.runtime, self.door, self.log = app, runtime, door, log
        self.announced = announced

    async def call(self, tool_id, arguments=None):
        return (await self.runtime.execute(tool_id, arguments or {})).data

    def ids(self):
        return [tool.id for tool in self.runtime.catalog]


@contextlib.asynccontextmanager
async def served(*refs, config=None, given=None, files=(), hide=None, **more):
    log, announced = Log(), []
    logger = logging.getLogger("callpact.watching")
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    asked = Asked(refs=refs, config_file=config, given=given, files=files, hide=hide)
    try:
        async with await load_app(refs, config, given and given(), hide=hide) as app:
            runtime = Runtime(app.catalog)
            door = Door(runtime, name="t", version="1")

            async def announce(**said):
                announced.append(said)
                await door.changes.announce(**said)

            async with watching(app, runtime, asked, announce, **more):
                yield At(app, runtime, door, log, announced)
        assert log.all("ERROR") == []
        assert not [t for t in threading.enumerate() if t.name == "callpact watching"]
        assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("callpact")]
    finally:
        logger.setLevel(level)
        logger.removeHandler(log)


def run(story, *refs, **given):
    async def go():
        async with asyncio.timeout(60), served(*refs, **given) as at:
            return await story(at)

    return asyncio.run(go())


def told(**kinds):
    """What clients are told."""
    return {"tools": False, "resources": False, "prompts": False, "updated": [], **kinds}


# --- what clients hear ----------------------------------------------------------------------


class Heard:
    """The notifications that a client of the handshake era gets."""

    def __init__(self):
        self.queue = asyncio.Queue()

    async def __call__(self, message):
        self.queue.put_nowait(message)

    async def until(self, kind):
        async with asyncio.timeout(PATIENCE):
            while not isinstance(heard := await self.queue.get(), kind):
                pass
        return heard


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


TOOL = '''
from callpact import tool

@tool({options})
async def price({parameters}) -> {result}:
    """{words}"""
    return 1
'''
SAME = {"options": "", "parameters": "item: str", "result": "int", "words": "The price."}
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


# --- modules --------------------------------------------------------------------------------


def test_a_change_of_a_local_module_reads_every_source_that_imports_it(folder):
    helper = first(folder, "w_rates.py", "RATE = 1\nSTORE = []\n")
    text = TOOL.format(**SAME).replace("return 1", "return w_rates.RATE")
    for name in ("w_a.py", "w_b.py"):
        first(folder, name, "import w_rates\n" + text)
    first(folder, "w_c.py", TOOL.format(**SAME))

    async def story(at):
        kept = at.runtime.catalog.get("w_c.price").handler
        helper.write_text("RATE = 2\nSTORE = []\n", "utf-8")
        await at.log.until("w_rates.py changed", "w_a.py, w_b.py")
        assert [await at.call(f"w_{n}.price", {"item": "x"}) for n in "abc"] == [2, 2, 1]
        assert sys.modules["w_a"].w_rates is sys.modules["w_b"].w_rates
        assert at.runtime.catalog.get("w_c.price").handler is kept

    run(story, "w_a.py", "w_b.py", "w_c.py")


def test_a_module_that_is_imported_for_the_first_time_is_watched_from_then_on(folder):
    path = first(folder, "w_main.py", TOOL.format(**SAME))
    text = "import w_side\n" + TOOL.format(**SAME).replace("return 1", "return w_side.VALUE")

    async def story(at):
        side = first(folder, "w_side.py", "VALUE = 2\n")
        path.write_text(text, "utf-8")
        await at.log.until("w_main.py changed")
        assert await at.call("w_main.price", {"item": "x"}) == 2
        side.write_text("VALUE = 3\n", "utf-8")
        await at.log.until("w_side.py changed")
        return await at.call("w_main.price", {"item": "x"})

    assert run(story, "w_main.py") == 3


def test_what_a_broken_version_was_made_of_is_still_watched(folder):
    for part in ("w_pack", "w_pack/a", "w_pack/a/b"):
        first(folder, f"{part}/__init__.py", "")
    deep = first(folder, "w_pack/a/b/deep.py", "VALUE = 1\n")
    text = "from w_pack.a.b.deep import VALUE\n" + TOOL.format(**SAME)
    path = first(folder, "w_made.py", text)

    async def story(at):
        path.write_text(text + "\n1 / (VALUE - 1)\n", "utf-8")
        await at.log.until("ZeroDivisionError")
        deep.write_text("VALUE = 2\n", "utf-8")
        await at.log.until("w_made.py is whole again")

    run(story, "w_made.py")


def test_a_thousand_rapid_writes_end_in_the_last_version(folder):
    path = first(folder, "w_rapid.py", TOOL.format(**SAME))
    body = TOOL.format(**SAME)

    async def story(at):
        def write():
            for number in range(1000):
                with path.open("w", encoding="utf-8") as file:
                    file.write(body[:60])
                    file.flush()
                    file.write(
                        body[60:].replace("return 1", f"return {number:04}".replace(" 0", " 1"))
                    )
            new = folder / "w_rapid.new"
            new.write_text(body.replace("return 1", "return 7"), "utf-8")
            new.replace(path)

        await asyncio.to_thread(write)
        while await at.call("w_rapid.price", {"item": "x"}) != 7:
            await at.log.until("w_rapid.py changed", count=len(at.log.lines) + 1)
        return at.announced

    assert run(story, "w_rapid.py") == []


def test_an_editor_that_writes_in_several_steps_is_read_once(folder):
    path = first(folder, "w_steps.py", TOOL.format(**SAME))

    async def story(at):
        text = TOOL.format(**SAME) + ANOTHER
        for step in ("", text[:40], text[:120], text):
            path.write_text(step, "utf-8")
        await at.log.until("added w_steps.stock")
        return at.log.lines

    assert len(run(story, "w_steps.py")) == 1


# --- calls under way, and old sources -------------------------------------------------------

GATED = '''
import asyncio
from callpact import tool

begun, opened = asyncio.Event(), asyncio.Event()

@tool
async def wait() -> int:
    """Wait."""
    begun.set()
    await opened.wait()
    return {version}
'''


def test_calls_under_way_end_on_the_version_that_they_began_with(folder):
    path = first(folder, "w_gated.py", GATED.format(version=1))

    async def story(at):
        async with Client(at.door.server, mode=MODERN) as client:
            old = sys.modules["w_gated"]
            call = asyncio.create_task(client.call_tool("w_gated_wait", {}))
            await asyncio.wait_for(old.begun.wait(), PATIENCE)
            path.write_text(GATED.format(version=2), "utf-8")
            await at.log.until("read again")
            new = sys.modules["w_gated"]
            assert new is not old
            new.opened.set()
            assert (await client.call_tool("w_gated_wait", {})).structured_content == 2
            old.opened.set()
            assert (await asyncio.wait_for(call, PATIENCE)).structured_content == 1

    run(story, "w_gated.py")


SOURCE = """
from pathlib import Path
from callpact import Contract, Tool
from callpact.sources.loaded import Tools, Watched
import asyncio

log, opened, begun = [], None, None


class ValveSource:
    def __init__(self, opening):
        self.path = Path(opening.ref)

    async def load(self):
        version = self.path.read_text()
        if version == "bad":
            raise RuntimeError("no luck")
        if version == "slow":
            log.append("slow")
            await asyncio.Event().wait()
        self.version = version

        async def hold(arguments, context):
            begun.set()
            await opened.wait()
            if version in log:
                return "closed"
            return version

        async def ticks(arguments, context):
            for number in (1, 2):
                yield f"{version} {number} {'closed' if version in log else 'open'}"

        def tool(name, handler, **more):
            return Tool(
                id=f"valve.{name}", description=name, contract=Contract(), handler=handler, **more
            )

        return Tools([tool("hold", hold), tool("ticks", ticks, kind="subscription")])

    async def aclose(self):
        log.append(getattr(self, "version", "unread"))


open_valve = ValveSource
"""


@pytest.fixture
def valve(folder, monkeypatch):
    """A kind of source of somebody else's, which tells when it is closed."""
    (folder / "w_valve.py").write_text(SOURCE, "utf-8")
    info = folder / "w_valve-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: w-valve\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[callpact.sources]\nvalve = w_valve:open_valve\n")
    monkeypatch.syspath_prepend(str(folder))
    import w_valve

    return w_valve


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def test_an_old_source_is_closed_when_its_last_call_has_ended(folder, valve):
    path = first(folder, "valve.txt", "one")

    async def story(at):
        valve.begun, valve.opened = asyncio.Event(), asyncio.Event()
        call = asyncio.create_task(at.call("valve.hold"))
        await asyncio.wait_for(valve.begun.wait(), PATIENCE)
        stream = at.runtime.subscribe("valve.ticks")
        assert (await anext(stream)).data == "one 1 open"
        for version in ("two", "three"):
            path.write_text(version, "utf-8")
            await until(lambda version=version: at.app.parts[0].source.version == version)
        await until(lambda: valve.log == ["two"])
        assert (await anext(stream)).data == "one 2 open"
        assert [e async for e in stream] == []
        assert valve.log == ["two"]
        valve.opened.set()
        assert await asyncio.wait_for(call, PATIENCE) == "one"
        await until(lambda: valve.log == ["two", "one"])
        return await at.call("valve.hold")

    assert run(story, "valve:valve.txt") == "three"
    assert valve.log == ["two", "one", "three"]


def test_at_the_end_every_version_is_closed_once(folder, valve):
    path = first(folder, "valve.txt", "one")

    async def story(at):
        valve.begun, valve.opened = asyncio.Event(), asyncio.Event()
        call = asyncio.create_task(at.call("valve.hold"))
        await asyncio.wait_for(valve.begun.wait(), PATIENCE)
        path.write_text("two", "utf-8")
        await at.log.until("read again")
        call.cancel()

    run(story, "valve:valve.txt")
    assert sorted(valve.log) == ["one", "two"]


def test_a_source_of_others_that_fails_in_its_own_way_leaves_the_old_version(folder, valve):
    path = first(folder, "valve.txt", "one")

    async def story(at):
        valve.begun, valve.opened = asyncio.Event(), asyncio.Event()
        valve.opened.set()
        path.write_text("bad", "utf-8")
        await at.log.until("RuntimeError: no luck", "the version from before stays")
        assert await at.call("valve.hold") == "one"
        path.write_text("two", "utf-8")
        await at.log.until("whole again")
        return await at.call("valve.hold")

    assert run(story, "valve:valve.txt") == "two"
    assert sorted(valve.log) == ["one", "two", "unread"]


def test_a_server_that_ends_while_a_source_is_read_leaves_nothing_open(folder, valve):
    path = first(folder, "valve.txt", "one")

    async def story(at):
        path.write_text("slow", "utf-8")
        await until(lambda: valve.log == ["slow"])

    run(story, "valve:valve.txt")
    assert valve.log == ["slow", "unread", "one"]


def test_a_source_whose_new_tools_are_all_left_out_is_closed(folder, valve):
    first(folder, "valve.txt", "one")
    good = '[sources.x]\nref = "valve:valve.txt"\n'
    config = configure(folder, good)

    async def story(at):
        config.write_text(good + 'allow = ["nothing"]\n', "utf-8")
        await at.log.until("leave no tool", "the version from before stays")
        return list(valve.log)

    assert run(story, config=config) == ["one"]
    assert valve.log == ["one", "one"]


def test_catalogs_are_prepared_as_the_first_one_was(folder):
    path = first(folder, "w_ready.py", TOOL.format(**SAME))

    def prepare(catalog):
        return Catalog(replace(tool, title="prepared") for tool in catalog)

    async def story(at):
        path.write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
        await at.log.until("added w_ready.stock")
        assert at.announced == [told(tools=True)]
        return {tool.title for tool in at.runtime.catalog}

    assert run(story, "w_ready.py", prepare=prepare) == {"prepared"}


# --- configuration and secrets --------------------------------------------------------------


def configure(folder, text):
    return first(folder, "callpact.toml", text)


def test_the_configuration_is_read_again_and_only_what_it_changes(folder):
    first(folder, "w_x.py", TOOL.format(**SAME))
    first(folder, "w_y.py", TOOL.format(**SAME) + ANOTHER)
    first(folder, "w_z.py", TOOL.format(**SAME))
    x, y, z = (f'[sources.{n}]\nref = "python:w_{n}.py"\n' for n in "xyz")
    config = configure(folder, x + y)

    async def story(at):
        kept = at.runtime.catalog.get("x.price").handler
        config.write_text(x + y + 'deny = ["y.stock"]\n' + z, "utf-8")
        await at.log.until("callpact.toml changed", "added z.price", "removed y.stock")
        assert at.ids() == ["x.price", "y.price", "z.price"]
        assert at.runtime.catalog.get("x.price").handler is kept
        config.write_text(x, "utf-8")
        await at.log.until("removed y.price, z.price")
        assert at.ids() == ["x.price"]
        assert at.announced == [told(tools=True)] * 2
        # What is no longer wanted is no longer watched.
        (folder / "w_z.py").write_text("1 / 0", "utf-8")
        (folder / "w_x.py").write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
        await at.log.until("added x.stock")
        assert at.log.all("WARNING") == []

    run(story, config=config)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[sources", "not TOML"),
        ("", "names no source"),
        ("[sources.x]\nref = 3", "sources.x.ref"),
        (None, "no such file"),
    ],
)
def test_a_broken_configuration_changes_nothing(folder, text, reason):
    first(folder, "w_cfg.py", TOOL.format(**SAME))
    good = '[sources.x]\nref = "python:w_cfg.py"\n'
    config = configure(folder, good)

    async def story(at):
        config.unlink() if text is None else config.write_text(text, "utf-8")
        await at.log.until("callpact.toml", reason, "stays", level="WARNING")
        assert at.ids() == ["x.price"]
        config.write_text(good + "timeout = 3\n", "utf-8")
        await at.log.until("callpact.toml is whole again", level="WARNING")
        await until(lambda: at.runtime.catalog.get("x.price").timeout == 3)

    run(story, config=config)


def test_a_source_that_the_configuration_makes_unusable_stays_as_it_was(folder):
    first(folder, "w_use.py", TOOL.format(**SAME))
    good = '[sources.x]\nref = "python:w_use.py"\n'
    config = configure(folder, good)

    async def story(at):
        config.write_text(good + 'allow = ["nothing"]\n', "utf-8")
        await at.log.until("leave no tool", "the version from before stays")
        assert at.ids() == ["x.price"]
        config.write_text(good + 'allow = ["x.*"]\n', "utf-8")
        await at.log.until("whole again")

    run(story, config=config)


def flow(*names, **fields):
    data = calls.main({name: calls.tool(calls.parameter("q")) for name in names}, **fields)
    return calls.exported(data)


def test_a_key_that_is_added_makes_its_tools_callable_and_is_hidden(folder):
    keyed = flow("getIt", requiredServerParams=["SHOP_KEY"])
    first(folder, "shop/Shop.mjs", keyed)
    keys = first(folder, "keys.env", "OTHER=x\n")
    keys.chmod(0o600)
    config = configure(folder, 'secrets = "keys.env"\n[sources.x]\nref = "flowmcp:shop"\n')
    hidden = []

    async def story(at):
        assert at.runtime.catalog.get("shop.getIt").disabled is not None
        keys.write_text("SHOP_KEY=0123456789\n", "utf-8")
        await at.log.until("keys.env changed")
        assert at.runtime.catalog.get("shop.getIt").disabled is None
        assert at.announced == [told(tools=True)]
        (folder / "shop/Shop.mjs").write_text(keyed.replace("Does it", "Does that"), "utf-8")
        await at.log.until("Shop.mjs changed")

    run(story, config=config, hide=hidden.append)
    assert all("0123456789" not in repr(secrets) for secrets in hidden)
    # Unchanged keys are not known anew with every version of a source.
    assert len({id(secrets) for secrets in hidden}) == 2
    assert hidden[1].mask("0123456789") == "***"


def test_keys_given_for_all_sources_are_watched_too(folder):
    first(folder, "shop/Shop.mjs", flow("getIt", requiredServerParams=["SHOP_KEY"]))
    keys = first(folder, "given.env", "OTHER=x\n")
    keys.chmod(0o600)

    def given():
        return Opening("", secrets=Secrets(None, keys, os.environ))

    async def story(at):
        keys.write_text("not a line\n", "utf-8")
        await at.log.until("given.env", "line 1", "the version from before stays")
        keys.write_text("SHOP_KEY=0123456789\n", "utf-8")
        await at.log.until("whole again")
        assert at.runtime.catalog.get("shop.getIt").disabled is None
        keys.write_text("OTHER=x\n", "utf-8")
        await at.log.until("removed shop.getIt")
        assert at.runtime.catalog.get("shop.getIt").disabled is not None

    run(story, "flowmcp:shop", given=given, files=(keys,))


# --- folders of files -----------------------------------------------------------------------


def test_files_of_a_folder_are_noticed_when_they_come_change_and_go(folder):
    first(folder, "shop/a/One.mjs", flow("getOne"))

    async def story(at):
        (folder / "shop/b").mkdir()
        two = folder / "shop/b/Two.mjs"
        two.write_text(flow("getTwo", namespace="two"), "utf-8")
        await at.log.until("added two.getTwo")
        two.write_text(flow("getTwo", namespace="two").replace("Does it", "Does that"), "utf-8")
        await at.log.until("changed two.getTwo")
        two.unlink()
        await at.log.until("removed two.getTwo")
        assert at.announced == [told(tools=True)] * 3
        return at.ids()

    assert run(story, "flowmcp:shop") == ["shop.getOne"]


def test_a_shared_list_that_changes_changes_the_tools_that_use_it(folder):
    colours = calls.a_list(entries=[{"alias": "red"}])
    data = calls.main(
        {"getIt": calls.tool(calls.parameter("c", "enum({{colours:alias}})"))},
        sharedLists=[{"ref": "colours", "version": "1.0.0"}],
    )
    first(folder, "shop/Shop.mjs", calls.exported(data))
    path = first(folder, "shop/_lists/colours.mjs", calls.exported(colours, "list"))

    async def story(at):
        new = calls.a_list(entries=[{"alias": "red"}, {"alias": "blue"}])
        path.write_text(calls.exported(new, "list"), "utf-8")
        await at.log.until("colours.mjs changed", "changed shop.getIt")
        return at.runtime.catalog.get("shop.getIt").contract.input["properties"]["c"]["enum"]

    assert run(story, "flowmcp:shop") == ["red", "blue"]


def test_shared_lists_above_a_folder_and_those_that_are_given_are_watched(folder):
    red, blue = (calls.a_list(entries=[{"alias": name}]) for name in ("red", "blue"))
    data = calls.main(
        {"getIt": calls.tool(calls.parameter("c", "enum({{colours:alias}})"))},
        sharedLists=[{"ref": "colours", "version": "1.0.0"}],
    )
    first(folder, "all/shop/Shop.mjs", calls.exported(data))
    first(folder, "all/_lists/colours.mjs", calls.exported(red, "list"))
    (folder / "given").mkdir()
    config = configure(folder, '[sources.x]\nref = "flowmcp:all/shop"\nlists = "given"\n')

    def values(at):
        return at.runtime.catalog.get("shop.getIt").contract.input["properties"]["c"]["enum"]

    async def story(at):
        assert values(at) == ["red"]
        (folder / "given/colours.mjs").write_text(calls.exported(blue, "list"), "utf-8")
        await at.log.until("given/colours.mjs changed", "changed shop.getIt")
        assert values(at) == ["blue"]
        (folder / "given/colours.mjs").unlink()
        await at.log.until("changed shop.getIt", count=2)
        (folder / "all/_lists/colours.mjs").write_text(calls.exported(blue, "list"), "utf-8")
        await at.log.until("all/_lists/colours.mjs changed", "changed shop.getIt")
        assert values(at) == ["blue"]
        (folder / "all/shop/notes.txt").write_text("no file of it", "utf-8")
        (folder / "all/shop/More.mjs").write_text(flow("getMore"), "utf-8")
        await at.log.until("added shop.getMore")
        assert not any("notes" in line for _, line in at.log.lines)

    run(story, config=config)


def test_one_broken_file_of_a_folder_keeps_the_old_version_of_the_source(folder):
    one = first(folder, "shop/One.mjs", flow("getOne"))
    two = first(folder, "shop/Two.mjs", flow("getTwo"))

    async def story(at):
        one.write_text("export const main = {", "utf-8")
        line = await at.log.until("One.mjs", "the version from before stays", level="WARNING")
        assert line.startswith("shop/One.mjs changed: ")
        assert at.ids() == ["shop.getOne", "shop.getTwo"]
        two.write_text(flow("getTwo", "getMore"), "utf-8")
        await at.log.until("Two.mjs changed", "the version from before stays")
        one.write_text(flow("getOne", "getNew"), "utf-8")
        await at.log.until("whole again")
        assert sorted(at.ids()) == ["shop.getMore", "shop.getNew", "shop.getOne", "shop.getTwo"]

    run(story, "flowmcp:shop")


def test_a_new_file_that_is_broken_is_told_and_stops_nothing(folder):
    one = first(folder, "shop/One.mjs", flow("getOne"))

    async def story(at):
        (folder / "shop/Bad.mjs").write_text("export const main = {", "utf-8")
        await at.log.until("Bad.mjs", level="WARNING")
        one.write_text(flow("getOne", "getMore"), "utf-8")
        await at.log.until("added shop.getMore")
        return at.log.all("WARNING")

    (line,) = run(story, "flowmcp:shop")
    assert "stays" not in line


def test_a_folder_that_vanishes_and_comes_back_works(folder):
    first(folder, "shop/One.mjs", flow("getOne"))

    async def story(at):
        shutil.move(folder / "shop", folder / "elsewhere")
        await at.log.until("the version from before stays", level="WARNING")
        assert at.ids() == ["shop.getOne"]
        (folder / "elsewhere/One.mjs").write_text(flow("getOne", "getMore"), "utf-8")
        shutil.move(folder / "elsewhere", folder / "shop")
        await at.log.until("whole again")
        return at.ids()

    assert run(story, "flowmcp:shop") == ["shop.getOne", "shop.getMore"]


def test_folders_are_looked_at_as_deep_and_wide_as_they_say(folder):
    for name in ("a.mjs", "b.txt", "in/c.mjs", "in/deep/d.mjs", "skipped/e.mjs"):
        first(folder, f"tree/{name}", "")
    (folder / "tree/loop").symlink_to(folder / "tree")
    (folder / "tree/gone.mjs").symlink_to(folder / "nowhere")

    def seen(**given):
        marks = Looker().look([Watched(folder / "tree", **given)])
        return sorted(Path(path).name for path in marks)

    assert seen() == ["a.mjs", "b.txt", "c.mjs", "d.mjs", "e.mjs"]
    assert seen(suffix=".mjs", skips=("skipped",)) == ["a.mjs", "c.mjs", "d.mjs"]
    assert seen(suffix=".mjs", levels=1) == ["a.mjs"]
    assert seen(suffix=".mjs", skips=("skipped",), levels=2) == ["a.mjs", "c.mjs"]


def test_a_file_written_twice_within_one_tick_of_the_clock_is_read_twice(folder):
    path = folder / "tick.txt"
    looker, marks = Looker(), []
    for text in ("one", "two"):
        path.write_text(text, "utf-8")
        now = time.time_ns()
        os.utime(path, ns=(now - now % 1_000_000_000, now - now % 1_000_000_000 + 999_999_999))
        marks.append(looker.look([Watched(path)])[str(path)])
    assert marks[0] != marks[1]


# --- servers --------------------------------------------------------------------------------

SERVER = """
import asyncio, logging, signal, sys
from callpact.app import load_app
from callpact.runtime import Runtime
from callpact.serve.http import serve_http
from callpact.serve.mcp import Door
from callpact.serve.stdio import serve_stdio
from callpact.terminal import ended_at, run
from callpact.watching.watcher import Asked, watching

logging.basicConfig(level="WARNING", stream=sys.stderr)
logging.getLogger("callpact.watching").setLevel("INFO")


async def go():
    refs = tuple(sys.argv[2:])
    async with await load_app(refs) as app, Runtime(app.catalog) as runtime:
        door = Door(runtime, name="t", version="1")
        async with watching(app, runtime, Asked(refs=refs), door.changes.announce):
            if sys.argv[1] == "stdio":
                await serve_stdio(door.server)
            else:
                tell = lambda place: print(place, file=sys.stderr, flush=True)
                with ended_at(signal.SIGTERM):
                    await serve_http(door.server, port=0, on_ready=tell)
    return 0


try:
    run(go())
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextlib.contextmanager
def process(folder, *args):
    (folder / "server.py").write_text(SERVER, "utf-8")
    running = subprocess.Popen(
        [sys.executable, "server.py", *args], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait(PATIENCE)
        running.stderr.close()


def test_over_stdio_clients_of_both_eras_hear_of_a_change(folder):
    path = first(folder, "w_pipe.py", TOOL.format(**SAME))
    (folder / "server.py").write_text(SERVER, "utf-8")
    parameters = StdioServerParameters(
        command=sys.executable, args=["server.py", "stdio", "w_pipe.py"], cwd=folder
    )

    async def go(mode, number):
        heard = Heard()
        async with (
            asyncio.timeout(60),
            Client(parameters, mode=mode, message_handler=heard) as client,
        ):
            before = len((await client.list_tools()).tools)
            async with contextlib.AsyncExitStack() as stack:
                if mode == MODERN:
                    listening = client.listen(tools_list_changed=True)
                    stream = await stack.enter_async_context(listening)
                more = ANOTHER.replace("stock", f"stock{number}")
                path.write_text(path.read_text("utf-8") + more, "utf-8")
                await (
                    anext(stream)
                    if mode == MODERN
                    else heard.until(types.ToolListChangedNotification)
                )
                assert len((await client.list_tools()).tools) == before + 1

    asyncio.run(go(LEGACY, 1))
    asyncio.run(go(MODERN, 2))


def test_over_http_clients_of_both_eras_hear_of_a_change(folder):
    path = first(folder, "w_web.py", TOOL.format(**SAME))

    async def go(address):
        heard = Heard()
        async with (
            asyncio.timeout(60),
            Client(address, mode=LEGACY, message_handler=heard) as old,
            Client(address, mode=MODERN) as new,
            new.listen(tools_list_changed=True) as stream,
        ):
            await old.list_tools()
            path.write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
            assert await anext(stream) == ToolsListChanged()
            await heard.until(types.ToolListChangedNotification)
            for client in (old, new):
                assert len((await client.list_tools()).tools) == 2

    with process(folder, "http", "w_web.py") as running:
        asyncio.run(go(running.stderr.readline().strip()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_that_watches(folder, number):
    path = first(folder, "w_end.py", TOOL.format(**SAME))
    with process(folder, "http", "w_end.py") as running:
        address = running.stderr.readline().strip()
        path.write_text("1 / 0", "utf-8")
        assert "ZeroDivisionError" in running.stderr.readline()
        port = int(address.split(":")[-1].split("/")[0])
        with raw.Line(port) as line:
            asked = raw.message("tools/list")
            assert len(line.ask(asked, **raw.routed("tools/list")).result["tools"]) == 1
        running.send_signal(number)
        assert running.wait(PATIENCE) == (0 if number == signal.SIGTERM else 130)
        assert running.stderr.read() == ""
