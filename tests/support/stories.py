"""What tests of the call protocol are told with: a clock of their own, buses, small tools.

A timer fires only when nothing else is left to do, and then at once. So a deadline in an hour
takes no time, no test sleeps, and where everybody waits for ever the loop says so instead of
hanging. Not a test: it is loaded by those that need it.
"""

from __future__ import annotations

import asyncio
import functools
import time
from inspect import isasyncgenfunction

from callpact.errors import CallError
from callpact.protocol import LocalBus, read_event, write_event
from callpact.tool import OPEN, Contract, Tool

HOUR = 3_600_000.0
"""Milliseconds."""
SECRET = "postgres://admin:hunter2@db"
OUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# --- time -----------------------------------------------------------------------------------


class OwnClock(asyncio.SelectorEventLoop):
    """A loop whose time goes on only when there is nothing to do: straight to the next timer."""

    def __init__(self):
        super().__init__()
        self._now = 0.0
        look = self._selector.select

        def select(timeout=None):
            ready = look(0)
            assert ready or timeout is not None, "everybody waits, and nobody would wake them"
            if not ready:
                self._now += timeout
            return ready

        self._selector.select = select

    def time(self):
        return self._now


def story(told):
    """A test that is told on such a loop."""

    @functools.wraps(told)
    def test(*args, **kwargs):
        with asyncio.Runner(loop_factory=OwnClock) as runner:
            runner.run(told(*args, **kwargs))

    return test


async def settle():
    """Return when nobody else has anything to do."""
    await asyncio.sleep(0.001)


async def ever():
    await asyncio.get_running_loop().create_future()


def timers():
    """What the loop will still be woken for."""
    loop = asyncio.get_running_loop()
    return [handle for handle in loop._scheduled if not handle.cancelled()]


def from_now(milliseconds):
    """A deadline."""
    return time.time() * 1000 + milliseconds


# --- buses ----------------------------------------------------------------------------------


class JsonBus(LocalBus):
    """What goes over it is written and read, as between two processes."""

    async def publish(self, event):
        self.deliver(read_event(write_event(event)))


class LateBus(LocalBus):
    """Delivers in the next turn of the loop, as a bus to other processes would."""

    async def publish(self, event):
        await asyncio.sleep(0)
        self.deliver(event)


# --- tools ----------------------------------------------------------------------------------


def tool(handler, id="t.tool", access=OPEN, aliases=(), **contract):
    return Tool(
        id=id,
        description="",
        contract=Contract(**contract),
        handler=handler,
        kind="subscription" if isasyncgenfunction(handler) else "mutation",
        access=access,
        aliases=aliases,
    )


async def outcome(stream):
    """What a stream gave, and the error it ended with."""
    got = []
    try:
        async for envelope in stream:
            got.append(envelope.data)
    except CallError as error:
        return got, error
    return got, None
