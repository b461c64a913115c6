"""The worked example: a tool that calls two others, one of them in another process.

`python examples/basket/main.py` starts the other process (`rates.py`), tells the story, checks
every step of it, and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import basket
from socket_bus import open_bus

from callpact import (
    AccessDenied,
    CallError,
    Catalog,
    Identity,
    InvalidInput,
    Runtime,
    Timeout,
    from_functions,
    unwrap,
)
from callpact.protocol import PendingRequestMap, build_call_handler

RATES = Path(__file__).parent / "rates.py"
SECONDS = 20
"""How long the other process may take to start, to answer, and to end."""

ANNA = Identity("anna", scopes=("rates:read",))
BOB = Identity("bob")
ITEMS = {"t1": 2, "c1": 1}


@asynccontextmanager
async def rates_process() -> AsyncGenerator[Path, None]:
    """The socket of another process that serves the rates; it is gone afterwards."""
    # The folder is private to this user: that is what makes the peer a trusted one.
    with TemporaryDirectory(prefix="basket-") as folder:
        path = Path(folder) / "rates.sock"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(RATES), str(path), stdin=pipe, stdout=pipe
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(SECONDS):
                said = await process.stdout.readline()
            assert said == b"listening\n", "rates.py did not start; its error stands above"
            print(f"the basket is process {os.getpid()}, the rates are process {process.pid}")
            yield path
            process.stdin.close()
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def title(text: str) -> None:
    print(f"\n{text}")


async def ask(
    calls: PendingRequestMap,
    tool_id: str,
    arguments: Any = None,
    identity: Identity | None = None,
    deadline: float | None = None,
) -> Any:
    """What a call gives: the data of its answer, or the error that it ended in."""
    who = "nobody" if identity is None else identity.id
    print(f"  {who}: {tool_id} {json.dumps(arguments or {})}")
    until = time.time() * 1000 + SECONDS * 1000 if deadline is None else deadline
    try:
        return unwrap(await calls.call(tool_id, arguments, identity=identity, deadline=until))
    except CallError as error:
        wrong = [issue.message for issue in error.issues] or [error.message]
        print(f"    {type(error).__name__}: {'; '.join(wrong)}")
        return error


async def show_a_quote(calls: PendingRequestMap) -> None:
    title("One call, three tools, two processes")
    answer = await ask(calls, "basket.quote", {"items": ITEMS, "currency": "USD"}, ANNA)
    print(f"    {answer['euros']} euros are {answer['amount']} {answer['currency']}")
    assert answer == {"euros": 102.0, "amount": 110.16, "currency": "USD"}


async def show_a_rejection(calls: PendingRequestMap) -> None:
    title("Rejected there, raised here: the same class, with everything that is wrong")
    error = await ask(calls, "rates.convert", {"amount": -5, "to": "TEA", "form": "EUR"}, ANNA)
    assert isinstance(error, InvalidInput)
    broken = {(issue.path, issue.code) for issue in error.issues}
    assert broken == {("/amount", "minimum"), ("/to", "enum"), ("/form", "additionalProperties")}


async def show_access(calls: PendingRequestMap) -> None:
    title("Everybody may ask for a quote; who may read the rates is decided in the other process")
    arguments = {"items": ITEMS, "currency": "GBP"}
    stranger = await ask(calls, "basket.quote", arguments)
    assert isinstance(stranger, AccessDenied)
    assert stranger.details == {}
    bob = await ask(calls, "basket.quote", arguments, BOB)
    assert isinstance(bob, AccessDenied)
    assert bob.details == {"missing": ["rates:read"]}
    answer = await ask(calls, "basket.quote", arguments, ANNA)
    print(f"    {answer['euros']} euros are {answer['amount']} {answer['currency']}")
    assert answer == {"euros": 102.0, "amount": 86.7, "currency": "GBP"}


async def show_a_deadline(calls: PendingRequestMap) -> None:
    title("A deadline crosses, too: nobody works on what nobody waits for")
    deadline = time.time() * 1000 + 500
    error = await ask(calls, "basket.quote", {"items": ITEMS, "currency": "XAU"}, ANNA, deadline)
    assert isinstance(error, Timeout)
    stopped = await ask(calls, "rates.stopped")
    print(f"    the other process knew the deadline and has stopped {stopped['tool_id']}")
    assert stopped == {"tool_id": "rates.convert", "deadline": deadline}


async def show_a_subscription(calls: PendingRequestMap) -> None:
    title("A subscription: three rates, then enough")
    arguments = {"currency": "USD"}
    print(f"  anna: rates.watch {json.dumps(arguments)}")
    rates: list[float] = []
    watched = calls.subscribe("rates.watch", arguments, identity=ANNA, idle_timeout=SECONDS * 1000)
    async with aclosing(watched) as envelopes:
        async for envelope in envelopes:
            rates.append(unwrap(envelope)["rate"])
            if len(rates) == 3:
                break
    print(f"    {', '.join(map(str, rates))}")
    assert rates == [1.08, 1.09, 1.1]
    stopped = await ask(calls, "rates.stopped")
    print(f"    the other process has stopped {stopped['tool_id']}")
    assert stopped == {"tool_id": "rates.watch", "deadline": None}


async def main() -> None:
    runtime = Runtime(Catalog(from_functions(basket.price, basket.quote)))
    async with rates_process() as path, open_bus(path, far=["rates"]) as bus:
        calls = PendingRequestMap(bus)
        handler = build_call_handler(runtime, calls, namespaces=["basket", "shop"])
        bus.subscribe("call.requested", handler)
        await show_a_quote(calls)
        await show_a_rejection(calls)
        await show_access(calls)
        await show_a_deadline(calls)
        await show_a_subscription(calls)
        assert calls.pending_count == 0
    print("\nboth ends are closed, and nothing was left waiting")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
