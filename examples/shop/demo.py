"""The embedded demo: real calls under contract, then an agent that goes on until Ctrl-C.

Run by `make demo`; with `--once` it ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "hostile"))
sys.path.insert(0, str(Path(__file__).parent.parent / "weather"))

import hostile
import shop
import weather

from callpact import CallError, CallFinished, Catalog, Runtime, Tool, from_functions
from callpact.audit import Filter, open_store, record_calls
from callpact.wire import plain as gate
from callpact.wire import terminal as cli

SHOP = Path(__file__).parent / "shop.py"
BASKET = Path(__file__).parent.parent / "basket" / "main.py"
DESK = Path(__file__).parent.parent / "desk" / "main.py"
GATEWAY = Path(__file__).parent.parent / "gateway" / "main.py"
REFUNDS = Path(__file__).parent.parent / "refunds" / "main.py"
console = Console(highlight=False, soft_wrap=True, emoji=False)

WHAT_AN_AGENT_TRIES: list[tuple[str, dict[str, Any]]] = [
    ("shop.product_search", {"query": "tea"}),
    ("shop.product_search", {"query": "coffee", "unit": "lb"}),
    ("shop.product_search", {"query": "tea", "limit": 80}),
    ("shop.product_search", {"search": "tea"}),
    ("shop.supplier_offer", {"product_id": "t1"}),
    ("shop.supplier_offer", {"product_id": "t9"}),
    ("shop.stock_count", {"ids": ["t1", "c1"]}),
    ("shop.stock_count", {"ids": []}),
]


def title(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


async def show(runtime: Runtime, tool_id: str, arguments: dict[str, Any]) -> None:
    console.print(f"[cyan]{tool_id}[/] {cli.encode_json(arguments)}")
    try:
        envelope = await runtime.execute(tool_id, arguments)
    except CallError as error:
        console.print(cli.encode_json(gate.encode_error(error)), style="red", markup=False)
        return
    console.print(cli.encode_json(envelope.to_wire()), style="green", markup=False)
    for note in cli.encode_notes(envelope):
        console.print(f"  {note}", style="yellow", markup=False)


async def show_over_mcp() -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "callpact", "serve", "--stdio", "-s", f"python:{SHOP}"],
    )
    async with Client(server) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        console.print(f"protocol {client.protocol_version}, tools: {', '.join(names)}")
        result = await client.call_tool("shop_product_search", {"query": "tea", "limit": 1})
        console.print(f"structured content: {result.structured_content}", style="green")
        result = await client.call_tool("shop_product_search", {"limit": "many"})
        console.print(f"isError={result.is_error}: {result.content[0].text}", style="red")


async def show_story(script: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-X", "utf8", str(script), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    console.print(said.decode().strip(), markup=False)
    if process.returncode:
        raise SystemExit(f"{script.parent.name}/{script.name} failed; its error is above")


async def show_log(tools: list[Tool]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with record_calls(folder) as recorder:
            runtime = Runtime(Catalog(tools), observers=[recorder])
            for tool_id, arguments in WHAT_AN_AGENT_TRIES * 5:
                with contextlib.suppress(CallError):
                    await runtime.execute(tool_id, arguments)
        store = open_store(folder)
        for rate in store.rates(Filter(), "tool"):
            console.print(f"{rate.group}: {rate.calls} calls, {rate.rate:.0%} failed")
        for cause in store.causes(Filter()):
            line = f"{cause.rate:.0%} of {cause.tool} calls fail with: {cause.message}"
            console.print(line, style="red", markup=False)
        store.close()


def report(event: CallFinished) -> None:
    outcome = f"[green]ok[/] from {event.envelope.meta.source}" if event.envelope else ""
    if event.error is not None:
        outcome = f"[red]{event.error.code}[/] at the {event.gate} gate: {event.error.message}"
    elif event.envelope is not None and event.envelope.changes:
        outcome += f", [yellow]{len(event.envelope.changes)} changes to keep the contract[/]"
    console.print(f"{event.duration * 1e6:6.0f} µs  {event.tool_id:<22} {outcome}")


async def act(runtime: Runtime, *, rounds: int | None) -> None:
    count = 0
    while rounds is None or count < rounds:
        tool_id, arguments = random.choice(WHAT_AN_AGENT_TRIES)
        with contextlib.suppress(CallError):  # The observer reports it.
            await runtime.execute(tool_id, arguments)
        count += 1
        if rounds is None:
            await asyncio.sleep(1)


async def main(*, once: bool) -> None:
    tools = from_functions(shop.product_search, shop.supplier_offer, shop.stock_count)
    runtime = Runtime(Catalog(tools))
    title("1. A good call: checked on the way in and on the way out, in one envelope")
    await show(runtime, "shop.product_search", {"query": "tea", "limit": 1})
    title("2. A bad call: nothing runs, and the model reads everything that is wrong at once")
    await show(runtime, "shop.product_search", {"limit": 80, "unit": "stone", "quary": "tea"})
    title("3. An upstream that changed: fitted to the contract, and never quietly")
    await show(runtime, "shop.supplier_offer", {"product_id": "t1"})
    title("4. The same tools over MCP, asked by a real client")
    await show_over_mcp()
    title("5. A tool made of two others, one of them in another process")
    await show_story(BASKET)
    title("6. A folder of FlowMCP files as tools: checked, and called by callpact itself")
    await weather.main()
    title("7. Hooks: JavaScript of those files, run in a sandbox; hostile ones end at its walls")
    await weather.main_of_hooks()
    await hostile.main()
    title("8. Served over HTTP: pages, questions to the user, and a change while it is served")
    await show_story(DESK)
    title("9. Every call on record, and what the log answers")
    await show_log(tools)
    title("10. An agent's final answer under contract: corrected, repaired, or replaced")
    await show_story(REFUNDS)
    title("11. Another MCP server behind callpact: caught when it lies, blocked when it changes")
    await show_story(GATEWAY)
    title("12. An agent at work" + ("" if once else " (Ctrl-C ends it)"))
    await act(Runtime(Catalog(tools), observers=[report]), rounds=6 if once else None)


if __name__ == "__main__":
    try:
        asyncio.run(main(once="--once" in sys.argv[1:]))
    except KeyboardInterrupt:
        console.print("\nbye")
