"""Modules that change, calls under way, and the sources of versions from before."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest
from mcp import Client

from callpact.catalog import Catalog
from watched import ANOTHER, MODERN, PATIENCE, SAME, TOOL, configure, first, run, told, until

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
from callpact.sources.base import Tools, Watched
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
