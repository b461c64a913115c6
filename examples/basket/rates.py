"""The process that knows exchange rates: `python rates.py SOCKET` serves them until stdin ends.

What makes the tools remote is `welcome` and `main`; the tools themselves know nothing of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from socket_bus import SocketBus, serve_buses
from typing_extensions import TypedDict

from callpact import Catalog, Context, Runtime, from_functions, tool
from callpact.protocol import PendingRequestMap, build_call_handler

RATES = {"GBP": 0.85, "USD": 1.08}
READERS = ["rates:read"]

_stopped: asyncio.Queue[Stopped] = asyncio.Queue()


class Converted(TypedDict):
    """An amount of money in another currency."""

    amount: float
    currency: str


class Rate(TypedDict):
    """What one euro is worth."""

    currency: str
    rate: float


class Stopped(TypedDict):
    """A call that was stopped before its end, and the deadline that it had been given."""

    tool_id: str
    deadline: float | None


@tool(namespace="rates", kind="query", access=READERS)
async def convert(
    amount: Annotated[float, Field(ge=0)], to: Literal["GBP", "USD", "XAU"], context: Context
) -> Converted:
    """Convert euros.

    Args:
        amount: How many euros.
        to: Into what. Gold (XAU) is priced by a dealer who never picks up the telephone.
    """
    if to == "XAU":
        await _wait_for_the_dealer(context)
    return {"amount": round(amount * RATES[to], 2), "currency": to}


@tool(namespace="rates", access=READERS)
async def watch(currency: Literal["GBP", "USD"], context: Context) -> AsyncIterator[Rate]:
    """Tell a rate again and again, until nobody listens any more.

    Args:
        currency: Of what.
    """
    rate = RATES[currency]
    try:
        while True:
            yield {"currency": currency, "rate": round(rate, 2)}
            await asyncio.sleep(0.02)
            rate += 0.01
    finally:
        _stopped.put_nowait({"tool_id": context.tool_id, "deadline": context.deadline})


@tool(namespace="rates", kind="query")
async def stopped() -> Stopped:
    """Wait until a call was stopped before its end, and tell which one."""
    return await _stopped.get()


async def _wait_for_the_dealer(context: Context) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        _stopped.put_nowait({"tool_id": context.tool_id, "deadline": context.deadline})


RUNTIME = Runtime(Catalog(from_functions(convert, watch, stopped)))


def welcome(bus: SocketBus) -> None:
    """Answer a peer."""
    call_map = PendingRequestMap(bus)
    bus.subscribe("call.requested", build_call_handler(RUNTIME, call_map, namespaces=["rates"]))


async def main(path: Path) -> None:
    """Serve until standard input ends, as it does when the process that started this one ends."""
    async with serve_buses(path, welcome):
        print("listening", flush=True)
        stdin = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
        await stdin.read()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # It comes to the whole group; who started this ends it.
        asyncio.run(main(Path(sys.argv[1])))
