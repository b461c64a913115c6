"""Hooks that attack: each is contained within its limit, and the process goes on.

`python examples/hostile/hostile.py` tells the story alone; the demo tells it in one of its steps.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from callpact import CallError, Runtime, from_flowmcp
from callpact.wire import flowmcp

FILE = Path(__file__).parent / "Hostile.mjs"


async def show_attack(runtime: Runtime, name: str) -> None:
    """A hostile hook, what its caller reads, and how long that took."""
    begin = time.perf_counter()
    try:
        told = f"its result: {(await runtime.execute(f'hostile.{name}', {})).data}"
    except CallError as error:
        [told] = flowmcp.encode_error(error, name)["messages"]
    told = told.replace(str(FILE), FILE.name)
    print(f"hostile.{name}\n  after {time.perf_counter() - begin:.1f} s, {told}")


async def main() -> None:
    tools = from_flowmcp(FILE)
    runtime = Runtime(tools)
    for tool in tools:
        await show_attack(runtime, tool.name)
    await tools.aclose()
    print(f"{len(tools)} attacks, and this process is alive")


if __name__ == "__main__":
    asyncio.run(main())
