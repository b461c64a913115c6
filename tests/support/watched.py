"""Sources that change while they are served: real files, a real runtime and door, what is logged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path

import pytest

from callpact.config import DEFAULT_FILE, configuration_of
from callpact.reload import Endpoint, LoadOptions, Watcher
from callpact.runtime import Runtime
from callpact.serve import Door
from callpact.sources.parts import (
    load_sources,
)

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
    logger = logging.getLogger("callpact.reload")
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)

    def wanted():
        return configuration_of(refs, config).wanted(refs)

    file = None if refs else config or Path(DEFAULT_FILE)
    asked = LoadOptions(config=file, wanted=wanted, given=given, files=files, hide=hide)
    try:
        app = await load_sources(wanted(), given and given(), hide=hide)
        async with contextlib.aclosing(app):
            runtime = Runtime(app.catalog)
            door = Door(runtime, name="t", version="1")

            async def announce(**said):
                announced.append(said)
                await door.changes.announce(**said)

            endpoint = Endpoint(runtime=runtime, announce=announce, **more)
            async with Watcher(app, (endpoint,), asked):
                yield At(app, runtime, door, log, announced)
        assert log.all("ERROR") == []
        await until(
            lambda: not [t for t in threading.enumerate() if t.name.startswith("callpact watching")]
        )
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


TOOL = '''
from callpact import tool

@tool({options})
async def price({parameters}) -> {result}:
    """{words}"""
    return 1
'''
SAME = {"options": "", "parameters": "item: str", "result": "int", "words": "The price."}


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


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def configure(folder, text):
    return first(folder, "callpact.toml", text)
