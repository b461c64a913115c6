"""Guards: a call over the in-process bus costs at most three times a direct one, and waits cheaply.

On Python 3.11, which has no eager tasks, five times. The floor of what any bus costs is asyncio's own: a task that sets a future somebody waits for.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import tracemalloc

from callpact import Contract, Runtime, Tool
from callpact.protocol import PendingRequestMap, build_call_handler
from calls import runtime
from cases import ARGUMENTS
from measure import cpu_async, table

PENDING = 10_000
HELD_TO = "≤ 3" if sys.version_info >= (3, 12) else "≤ 5"


async def _waits(arguments, _context):
    await asyncio.sleep(0)
    return arguments


async def _task_and_future():
    future = asyncio.get_running_loop().create_future()

    async def answer():
        future.set_result(None)

    task = asyncio.create_task(answer())
    await future
    return task


def _bus(calls: Runtime) -> PendingRequestMap:
    call_map = PendingRequestMap()
    call_map.bus.subscribe("call.requested", build_call_handler(calls, call_map))
    return call_map


async def over_the_bus() -> None:
    events: list = []
    calls = runtime(events)
    waiting = Runtime([Tool(id="b.waits", description="", contract=Contract(), handler=_waits)])
    call_map, waiting_map = _bus(calls), _bus(waiting)
    taken = await cpu_async(
        {
            "execute": lambda: calls.execute("b.echo", ARGUMENTS),
            "bus": lambda: call_map.call("b.echo", ARGUMENTS),
            "deadline": lambda: call_map.call(
                "b.echo", ARGUMENTS, deadline=time.time() * 1000 + 60_000
            ),
            "waits": lambda: waiting.execute("b.waits", ARGUMENTS),
            "waits over the bus": lambda: waiting_map.call("b.waits", ARGUMENTS),
            "asyncio": _task_and_future,
        },
        calls=2000,
    )
    base = taken["execute"]
    table(
        "One call over the in-process bus, against Runtime.execute",
        [
            ("Runtime.execute", base, 1.0, ""),
            ("PendingRequestMap.call", taken["bus"], taken["bus"] / base, HELD_TO),
            ("… with a deadline (two timers)", taken["deadline"], taken["deadline"] / base, ""),
            ("Runtime.execute, a handler that waits", taken["waits"], taken["waits"] / base, ""),
            ("… over the bus", taken["waits over the bus"], taken["waits over the bus"] / base, ""),
            ("asyncio alone: a task, a future", taken["asyncio"], taken["asyncio"] / base, ""),
        ],
    )


async def hold(deadline: float | None) -> float:
    """Bytes that each pending call holds: its task, its frames, its entry, its timer."""
    call_map = PendingRequestMap()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    calls = [
        asyncio.ensure_future(call_map.call("b.echo", ARGUMENTS, deadline=deadline))
        for _ in range(PENDING)
    ]
    await asyncio.sleep(0)  # One turn of the loop: every call has published its request.
    if call_map.pending_count != PENDING:
        raise RuntimeError(f"{call_map.pending_count} calls are pending")
    held = (tracemalloc.get_traced_memory()[0] - before) / PENDING
    tracemalloc.stop()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    return held


def memory() -> None:
    print(f"\n### Memory of {PENDING:,} pending calls\n\n| what | bytes each | target |")
    print("| --- | ---: | --- |")
    for name, deadline in (("no deadline", "None"), ("a deadline", "time.time() * 1000 + 1e6")):
        # A process of its own each: sets and heaps that have grown once do not show it again.
        line = f"import asyncio, time, protocol; print(asyncio.run(protocol.hold({deadline})))"
        out = subprocess.run(
            [sys.executable, "-c", line],
            capture_output=True,
            text=True,
            check=True,
            cwd=sys.path[0],
        )
        print(f"| {name} | {float(out.stdout):.0f} | < 1,500 |")


def main() -> None:
    asyncio.run(over_the_bus())
    memory()
