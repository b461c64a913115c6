"""Guards: a hook costs little more than the sandbox itself, and the first one is soon ready.

A hook call is held against its parts, each measured alone: the guest's own work, the restoring of
its image, the way to a thread and back. A large answer is held against the same handler in Node,
without a sandbox. What the first hook of a process costs is measured in fresh processes. With
`CALLPACT_CATALOGUE` (and `CALLPACT_LISTS`) the files of a real catalogue are opened as well.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import importlib.util
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import orjson

from callpact import Runtime, from_flowmcp
from callpact.net import Response
from callpact.testing import StubTransport
from measure import ROUNDS, cpu_async, table
from processes import fresh, median, node

HANDLER = """async ( { response } ) => {
    const rows = response.rows
        .filter( ( { active, price } ) => active && price > 10 )
        .map( ( { id, name, price, tags } ) => ( { key: id, title: `${name} (${price})`, price, tags } ) )
    const total = rows.reduce( ( sum, { price } ) => sum + price, 0 )
    return { response: { rows, total } }
}"""
MAIN = {
    "namespace": "bench",
    "name": "Bench",
    "description": "Tools to be called.",
    "version": "4.0.0",
    "root": "https://api.example.com",
    "tools": {
        name: {
            "method": "GET",
            "path": "/rows",
            "description": "Rows.",
            "parameters": [],
            "tests": [{"_description": "Once"}],
        }
        for name in ("plain", "hooked")
    },
}
SOURCE = f"""export const main = {json.dumps(MAIN)}
export const handlers = ( {{ sharedLists, libraries }} ) => ( {{
    hooked: {{ postRequest: {HANDLER} }},
    trivial: {{ preRequest: async ( {{ n }} ) => ( {{ n }} ) }},
    busy: {{ preRequest: async ( {{ n }} ) => {{ let sum = 0; for( let i = 0; i < n; i++ ) {{ sum += i % 7 }} return {{ sum }} }} }}
}} )
"""
_NODE = f"""
const handler = {HANDLER}
const text = process.argv[ 1 ]
const calls = 400
let length = 0
const some = async () => {{
    for( let i = 0; i < calls; i++ ) {{ length += JSON.stringify( await handler( JSON.parse( text ) ) ).length }}
}}
await some()
const begun = process.cpuUsage()
await some()
const {{ user, system }} = process.cpuUsage( begun )
console.log( JSON.stringify( {{ call: ( user + system ) / 1e6 / calls, length }} ) )
"""
_FIRST = """
import asyncio, json, sys, time
from callpact import Runtime, from_flowmcp
from callpact.testing import StubTransport

async def first():
    answer = {"status": 200, "contentType": "application/json", "body": '{"rows": []}'}
    tools = from_flowmcp(sys.argv[1], secrets={}, transport=StubTransport(lambda _: answer))
    runtime = Runtime(tools)
    await runtime.execute("bench.plain", {})
    moments = [time.process_time()]
    import callpact.sandbox.pool
    moments.append(time.process_time())
    for _ in range(2):
        await runtime.execute("bench.hooked", {})
        moments.append(time.process_time())
    await tools.aclose()
    imports, first, second = (after - before for before, after in zip(moments, moments[1:]))
    print(json.dumps({"imports": imports, "first": first, "second": second, "ready": imports + first}))

asyncio.run(first())
"""


def main() -> None:
    """All of them."""
    if any(importlib.util.find_spec(name) is None for name in ("wasmtime", "quickjs_rs")):
        print("\nHooks are skipped: callpact[hooks] is not installed.")
        return
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # so that the user's own files do not matter
        try:
            starting(Path(folder))
            asyncio.run(measured(Path(folder)))
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


async def measured(folder: Path) -> None:
    cache = folder / "callpact" / "hooks"
    await calling(cache)
    await answering(cache)
    await sharing(cache)
    await executing(folder)
    await opening(cache)


class Opened:
    """An engine, its pool and the realm of `SOURCE`."""

    def __init__(self, cache: Path) -> None:
        from callpact.sandbox.engine import Engine
        from callpact.sandbox.pool import ThreadPool

        self.engine = Engine(cache)
        self.pool = ThreadPool(self.engine)

    async def __aenter__(self):
        self.realm = await self.pool.open(SOURCE, main=compact(MAIN), lists="{}")
        return self

    async def __aexit__(self, *_):
        await self.pool.aclose()
        self.engine.close()

    async def run(self, tool: str, kind: str, argument: bytes):
        step = await self.pool.run(self.realm, tool, kind, argument, _perform)
        return step.data  # A hook that failed has none.


async def calling(cache: Path) -> None:
    """A hook that does nothing, against the parts that no call can do without.

    They are also done in a row, on a thread: waking one costs more when it has work to do than
    when it goes back to sleep at once, and memory has to come to its processor.
    """
    from callpact.sandbox.workers import Workers

    argument = b'{"n":7}'
    given = b'["trivial","preRequest",%b]' % argument
    async with Opened(cache) as opened:
        image, machines, workers = opened.realm.image, opened.engine.machines, Workers(1)
        machine = machines.lend(image)

        def bare():
            machine.restore(image)
            machine.invoke(image.handles.start, machine.json(given))
            machine.run_jobs()
            machine.text(machine.invoke(image.handles.take), 1000)

        async def restore():
            machine.restore(image)

        async def guest():
            bare()

        async def hop():
            await workers.do(int)

        async def row():
            await workers.do(bare)

        async def step():
            opened.realm.begin("trivial", "preRequest", argument)

        async def run():
            await opened.run("trivial", "preRequest", argument)

        parts = {"restore": restore, "guest": guest, "hop": hop, "row": row}
        taken = await cpu_async({**parts, "step": step, "run": run}, calls=500)
        machines.take_back(machine)
        await workers.close()
    base = taken["row"]
    rows = [
        ("bare guest call: JSON in, driver, jobs, JSON out", taken["guest"] - taken["restore"], ""),
        ("restoring the image", taken["restore"], ""),
        ("to a thread and back, with nothing to do there", taken["hop"], ""),
        ("these three, each alone", taken["guest"] + taken["hop"], ""),
        ("these three in a row", base, ""),
        ("Realm.begin, on this thread", taken["step"], ""),
        ("Pool.run", taken["run"], "≤ 1.5"),
    ]
    table("One call of a trivial hook", [(name, cpu, cpu / base, bar) for name, cpu, bar in rows])


async def answering(cache: Path) -> None:
    """An answer of 50 KB through filter, map, rename and reduce; Node does it without a sandbox."""
    data = {
        "response": {"rows": rows_of(50_000)},
        "struct": {"url": "https://api.example.com/rows"},
    }
    text = orjson.dumps(data)
    async with Opened(cache) as opened:

        async def texts():
            await opened.run("hooked", "postRequest", text)

        async def values():
            orjson.loads(await opened.run("hooked", "postRequest", orjson.dumps(data)))

        theirs: list[dict] = []
        ours: list[dict] = []
        for _ in range(5):  # In turn, so that a noisy moment hits both.
            theirs += [found] if (found := node(_NODE, text.decode())) else []
            ours.append(await cpu_async({"texts": texts, "values": values}, calls=10))
    if not theirs:
        print("\nThe comparison with Node is skipped: there is none.")
        return
    base = median(theirs, "call")
    rows = [
        ("Node, no sandbox: JSON.parse, handler, JSON.stringify", base, ""),
        ("Pool.run, text to text", median(ours, "texts"), "≤ 20"),
        ("… from Python's data to Python's data", median(ours, "values"), "≤ 20"),
    ]
    title = f"A postRequest with an answer of {len(text) / 1000:.0f} KB"
    table(title, [(name, cpu, cpu / base, bar) for name, cpu, bar in rows])


async def sharing(cache: Path) -> None:
    """Two hooks at the same time, by the clock, which others on the machine disturb.

    So only those rounds count in which two threads that hash showed that there were two cores.
    """
    argument = b'{"n":300000}'
    data = bytes(60_000_000)
    async with Opened(cache) as opened:

        def busy():
            return opened.run("busy", "preRequest", argument)

        def hashing():
            return asyncio.to_thread(hashlib.sha256, data)

        rounds = [(await _gain(busy), await _gain(hashing)) for _ in range(3 * ROUNDS)]
    gains = [hooks for hooks, hashes in rounds if hashes > 1.8]
    if not gains:
        print("\nTwo hooks on two threads: nothing can be said, there were no two cores to be had.")
        return
    print(
        f"\nTwo hooks on two threads: {statistics.median(gains):.2f} x one thread by the clock "
        f"(target: ≥ 1.6; {len(gains)} of {len(rounds)} rounds, in which hashing gained 1.8 x or more)"
    )


async def _gain(work) -> float:
    begun = time.perf_counter()
    await work()
    await work()
    between = time.perf_counter()
    await asyncio.gather(work(), work())
    return (between - begun) / (time.perf_counter() - between)


async def executing(folder: Path) -> None:
    """A whole call of a tool through a stub transport, with and without a hook."""
    catalogue = write_catalogue(folder)
    body = orjson.dumps({"rows": rows_of(1000)})
    answer = Response(200, {"content-type": "application/json"}, body)
    transport = StubTransport(lambda _: answer)
    tools = from_flowmcp(catalogue, secrets={}, transport=transport)
    runtime = Runtime(tools)

    def execute(name):
        async def once():
            await runtime.execute(name, {})
            transport.requests.clear()

        return once

    taken = await cpu_async({"plain": execute("bench.plain"), "hooked": execute("bench.hooked")})
    await tools.aclose()
    base = taken["plain"]
    table(
        f"One call of a FlowMCP tool, an answer of {len(body) / 1000:.0f} KB",
        [
            ("Runtime.execute without a hook", base, 1.0, ""),
            ("… with a postRequest", taken["hooked"], taken["hooked"] / base, ""),
        ],
    )


def starting(folder: Path) -> None:
    """The first hook of a process: from `from_flowmcp` done to the tool's answer."""
    catalogue = str(write_catalogue(folder))

    cold = fresh(_FIRST, catalogue)
    warm = [fresh(_FIRST, catalogue) for _ in range(2 * ROUNDS)]
    ready = median(warm, "ready")
    rows = [
        ("first call of a tool with a hook", ready, "≤ 50 ms"),
        ("… of it: imports of callpact.sandbox and wasmtime", median(warm, "imports"), ""),
        ("… of it: engine, file, call", median(warm, "first"), ""),
        ("second call", median(warm, "second"), ""),
        ("first call without the kept files", cold["ready"], ""),
    ]
    table(
        "The first hook of a process, CPU after `from_flowmcp` was done and a tool without hooks called",
        [(name, cpu, cpu / ready, bar) for name, cpu, bar in rows],
    )


async def opening(cache: Path) -> None:
    """What a realm costs: to open, and to keep."""
    async with Opened(cache) as opened:

        async def once():
            await opened.pool.open(SOURCE, main=compact(MAIN), lists="{}")

        taken = await cpu_async({"open": once}, calls=20)
        kept, shared = opened.realm.image.own_bytes, opened.realm.image.base.own_bytes
    print(
        f"\nOpening a file of {len(SOURCE) / 1000:.1f} KB: {taken['open'] * 1e3:.2f} ms of CPU; "
        f"its image {kept / 1000:.0f} KB, beside {shared / 1000:.0f} KB for all files"
    )
    await opening_catalogue()


async def opening_catalogue() -> None:
    path, lists = os.environ.get("CALLPACT_CATALOGUE"), os.environ.get("CALLPACT_LISTS")
    if not path:
        print("Opening the files of a catalogue is skipped: CALLPACT_CATALOGUE names none.")
        return
    tools = from_flowmcp(
        path, lists=lists, libraries=["*"], transport=StubTransport(None),
        secrets=collections.defaultdict(str),
    )  # fmt: skip
    callers = (tool.handler.__self__ for tool in tools if tool.disabled is None)
    files = {caller.hooks.file: caller.hooks for caller in callers if caller.hooks is not None}
    taken: list[float] = []
    kept: list[int] = []
    for hooks in files.values():
        begun = time.process_time()
        realm = await hooks.open()
        taken.append(time.process_time() - begun)
        kept.append(realm.image.own_bytes)
    await tools.aclose()
    print(
        f"Opening the {len(files)} files with hooks of the catalogue: "
        f"{statistics.median(taken) * 1e3:.2f} ms of CPU each, {sum(taken):.2f} s all; "
        f"images {statistics.median(kept) / 1000:.0f} KB each, {sum(kept) / 1e6:.1f} MB all"
    )


def rows_of(length: int) -> list[dict]:
    """Rows that are about so many bytes of JSON."""
    rows: list[dict] = []
    size = 0
    while size < length:
        at = len(rows)
        rows.append(
            {
                "id": at,
                "name": f"product {at}",
                "price": at * 7 % 100 + 0.5,
                "active": at % 3 > 0,
                "tags": ["new", f"group-{at % 5}"],
                "about": "A few words about it, as answers of services have them.",
            }
        )
        size += len(compact(rows[-1])) + 1
    return rows


def write_catalogue(folder: Path) -> Path:
    catalogue = folder / "catalogue"
    catalogue.mkdir(exist_ok=True)
    (catalogue / "Bench.mjs").write_text(SOURCE, "utf-8")
    return catalogue


def compact(data) -> str:
    """As `JSON.stringify` writes it."""
    return orjson.dumps(data).decode()


async def _perform(effect):
    raise NotImplementedError(effect)


if __name__ == "__main__":
    main()
