"""Whether hooks leave anything behind: very many calls of all sorts, and what the process holds.

`python scripts/soak.py [--calls N]`. The files are written to a temporary folder and nothing is
sent to anybody. Good calls, failing ones, hooks that break a limit and calls that are given up come
mixed, several at a time. It ends by itself; the exit status is 1 if something grew between a tenth
of the calls and the last.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from callpact import CallError, Runtime, from_flowmcp
from callpact.net import Request
from callpact.sandbox.hook_limits import HookLimits
from callpact.sources.flowmcp.build.source import FlowMCPTools
from callpact.testing import StubTransport

CALLS = 100_000
SETS = 3
AT_A_TIME = 8
MARKS = (0.1, 0.25, 0.5, 0.75, 1.0)
MOST_MIB = 16
"""What memory may differ by between two marks: the allocator keeps more or less at hand."""
LIMITS = HookLimits(seconds=0.25, memory_bytes=32 << 20, output_bytes=1 << 18)

_TOOL = "{ method: 'GET', path: '/it', description: 'It', parameters: [ %s ], tests: [ { _description: 'One' } ] }"
_N = "{ position: { key: 'n', value: '{{USER_PARAM}}', location: 'query' }, z: { primitive: 'number()', options: [ 'optional()' ] } }"
_USUAL = {
    "edits": """{
  preRequest: async ( { struct, payload } ) => { struct.url += '&more=' + payload.n; return { struct, payload } },
  postRequest: async ( { response, payload } ) => {
    console.log( 'rows', response.rows.length )
    return { response: response.rows.filter( ( { id } ) => id % 2 === payload.n % 2 ) }
  }
}""",
    "fetches": """{ executeRequest: async ( { struct, payload } ) => {
  const answers = await Promise.all( [ 1, 2, 3 ].map( ( at ) => fetch( `${payload.url}&at=${at}&key=${payload.serverParams.KEY}` ) ) )
  struct.data = await Promise.all( answers.map( async ( answer ) => ( await answer.json() ).rows.length ) )
  return { struct }
} }""",
    "follows": """{ executeRequest: async ( { payload } ) => {
  let sum = 0
  for( let at = 0; at < 4; at++ ) { sum += ( await ( await fetch( payload.url ) ).json() ).rows.length }
  return { response: sum }
} }""",
    "escapes": "{ executeRequest: async () => ( { response: await ( await fetch( 'https://other.example.net/' ) ).text() } ) }",
    "forgets": "{ executeRequest: async ( { payload } ) => { fetch( payload.url ); return { response: 1 } } }",
    "throws": "{ postRequest: async () => { throw new Error( 'no' ) } }",
    "misshapes": "{ postRequest: async () => ( { answer: 1 } ) }",
    "pollutes": "{ postRequest: async ( { response } ) => { Array.prototype.map = null; JSON.stringify = () => '1'; return { response } } }",
}
_HOSTILE = {
    "grows": """{ postRequest: async ( { response } ) => {
  const kept = []
  for( let at = 0; at < 6; at++ ) { kept.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) }
  return { response: kept.length }
} }""",
    "loops": "{ postRequest: async () => { for( ;; ) {} } }",
    "eats": "{ postRequest: async () => { const all = []; for( ;; ) { all.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) } } }",
    "recurses": "{ postRequest: async () => { const f = () => f() + 1; return { response: f() } } }",
    "floods": "{ postRequest: async () => ( { response: 'x'.repeat( 1 << 19 ) } ) }",
    "asks": "{ executeRequest: async ( { payload } ) => { for( let at = 0; at < 40; at++ ) { fetch( payload.url ) } await fetch( payload.url ) } }",
    "waits": "{ executeRequest: async ( { payload } ) => ( { response: ( await fetch( payload.url + '&wait' ) ).status } ) }",
}
OFTEN = ("edits", "fetches", "edits", "follows", "edits", "throws", "edits", "misshapes")
SELDOM = {
    "escapes": 20,
    "forgets": 25,
    "refused": 30,
    "gone": 35,
    "pollutes": 40,
    "grows": 100,
    "recurses": 200,
    "floods": 300,
    "asks": 400,
    "waits": 500,
    "eats": 1_000,
    "loops": 2_500,
}
"""How many calls there are for each one of these: `refused` at the gate, `gone` upstream."""


def main(arguments: list[str]) -> int:
    """Print what the process holds as calls are made; 0 if nothing grew."""
    given = _parsed(arguments)
    logging.disable(logging.CRITICAL)  # What fails here is meant to.
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))
        marks = asyncio.run(_soak(Path(folder), given.calls))
    grown = _grown(marks)
    print(f"\n{'; '.join(grown)}" if grown else "\nNothing grew.")
    return 1 if grown else 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak.py", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of tools with hooks")
    return parser.parse_args(arguments)


def _write(folder: Path) -> None:
    for number in range(SETS):
        for name, hooks in (("Usual", _USUAL), ("Hostile", _HOSTILE)):
            (folder / f"{name}{number}.mjs").write_text(_file(f"soak{number}", name, hooks))


def _file(namespace: str, name: str, hooks: Mapping[str, str]) -> str:
    tools = ", ".join(f"{tool}: {_TOOL % _N}" for tool in hooks)
    declared = (
        f"{{ namespace: '{namespace}', name: '{name}', description: 'Soak', version: '4.0.0', "
        f"root: 'https://api.example.com', requiredServerParams: [ 'KEY' ], "
        f"headers: {{ 'X-Key': '{{{{SERVER_PARAM:KEY}}}}' }}, tools: {{ {tools} }} }}"
    )
    code = ",\n".join(f"{tool}: {text}" for tool, text in hooks.items())
    return f"export const main = {declared}\nexport const handlers = () => ( {{\n{code}\n}} )\n"


async def _soak(folder: Path, calls: int) -> list[Held]:
    transport = StubTransport(_answer)
    secrets = {"KEY": "a-key-that-nobody-has"}
    tools = from_flowmcp(folder, secrets=secrets, transport=transport, hook_limits=LIMITS)
    marks: list[Held] = []
    outcomes: Counter[str] = Counter()
    begun, done = time.perf_counter(), 0
    async with _closing(tools):
        runtime = Runtime(tools)
        print(f"{'calls':>9} {'MiB':>7} {'threads':>8} {'files':>6} {'lent':>5} {'idle':>5}"
              f" {'tasks':>6} {'objects':>9} {'GiB reserved':>13} {'seconds':>8}")  # fmt: skip
        for mark in MARKS:
            until = round(calls * mark)
            while done < until:
                batch = range(done, min(done + 500, until))
                outcomes.update(await _batch(runtime, batch))
                transport.requests.clear()
                done = batch.stop
            marks.append(await _held(tools, done))
            print(f"{_row(marks[-1])} {time.perf_counter() - begun:8.0f}", flush=True)
    print("\n" + ", ".join(f"{count:,} {what}" for what, count in outcomes.most_common()))
    return marks


@contextlib.asynccontextmanager
async def _closing(tools: FlowMCPTools) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await tools.aclose()


async def _answer(request: Request) -> dict[str, Any]:
    if "&wait" in request.url:
        await asyncio.Event().wait()
    if "n=404" in request.url:
        return {"status": 404, "contentType": "application/json", "body": '{"error": "gone"}'}
    rows = [{"id": at, "name": f"row {at}"} for at in range(10 if len(request.url) % 7 else 1_000)]
    body = msgspec.json.encode({"rows": rows})
    return {"status": 200, "contentType": "application/json", "body": body}


# --- calls ----------------------------------------------------------------------------------


async def _batch(runtime: Runtime, numbers: range) -> Counter[str]:
    """Make these calls, some at a time."""
    outcomes: Counter[str] = Counter()
    rest = iter(numbers)

    async def work() -> None:
        for number in rest:
            outcomes[await _call(runtime, number)] += 1

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))
    return outcomes


async def _call(runtime: Runtime, number: int) -> str:
    name = next((name for name, n in reversed(SELDOM.items()) if number % n == n - 1), "")
    arguments: dict[str, Any] = {"n": number}
    if name == "refused":
        arguments = {"n": "seven"}
    elif name == "gone":
        arguments = {"n": 404}
    tool = name if name in _USUAL or name in _HOSTILE else OFTEN[number % len(OFTEN)]
    call = runtime.execute(f"soak{number % SETS}.{tool}", arguments)
    try:
        if tool == "waits":  # It is given up while it waits for an answer that never comes.
            await asyncio.wait_for(call, 0.01)
        else:
            await call
    except CallError as error:
        return str(error.details.get("reason", error.code))
    except TimeoutError:
        return "given up"
    return "answered"


# --- what is held ---------------------------------------------------------------------------


class Held(Struct, frozen=True):
    """What the process holds when no call is under way."""

    calls: int
    mib: float
    threads: int
    files: int
    lent: int
    idle: int
    tasks: int
    objects: int
    reserved: float


async def _held(tools: FlowMCPTools, calls: int) -> Held:
    await asyncio.sleep(0.5)  # The clock of the hooks ends soon after the last of them.
    gc.collect()
    machines = tools._hooks.pool._engine.machines  # noqa: SLF001 - no caller needs to know
    return Held(
        calls=calls,
        mib=_pages(1) / 2**20,
        threads=threading.active_count(),
        files=_files(),
        lent=machines.lent,
        idle=len(machines._idle),  # noqa: SLF001 - as above
        tasks=len(asyncio.all_tasks()),
        objects=len(gc.get_objects()),
        reserved=_pages(0) / 2**30,
    )


def _files() -> int:
    with contextlib.suppress(OSError):
        return len(list(Path("/proc/self/fd").iterdir()))
    return 0


def _pages(field: int) -> int:
    """Bytes in a field of Linux's `statm`: 0 all that is reserved, 1 what is resident."""
    try:
        text = Path("/proc/self/statm").read_text("ascii")
    except OSError:
        return 0
    return int(text.split()[field]) * os.sysconf("SC_PAGE_SIZE")


def _row(held: Held) -> str:
    return (
        f"{held.calls:9,} {held.mib:7.1f} {held.threads:8} {held.files:6} {held.lent:5} "
        f"{held.idle:5} {held.tasks:6} {held.objects:9,} {held.reserved:13.1f}"
    )


def _grown(marks: list[Held]) -> list[str]:
    first, last = marks[0], marks[-1]
    grown = [
        f"{name} grew from {before} to {after}"
        for name in ("threads", "files", "lent", "tasks")
        if (after := getattr(last, name)) > (before := getattr(first, name))
    ]
    if last.mib > first.mib + MOST_MIB:
        grown.append(f"memory grew from {first.mib:.0f} to {last.mib:.0f} MiB")
    if last.lent:
        grown.append(f"{last.lent} instances were never given back")
    return grown


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
