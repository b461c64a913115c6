"""The demo: six short chapters of calls under contract, then the shop is served until Ctrl-C.

Run by `make demo`; with `--once` it ends after the chapters.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

import shop

from callpact import CallError, Catalog, ResponseEnvelope, Runtime, from_functions
from callpact.audit import Filter, open_store, record_calls

SHOP = Path(__file__).parent / "shop.py"
TOOLS = from_functions(shop.product_search, shop.supplier_offer, shop.stock_count)
WHAT_AGENTS_TRY: list[tuple[str, dict[str, Any]]] = [
    ("shop.product_search", {"query": "tea"}),
    ("shop.product_search", {"query": "tea", "limit": 80}),
    ("shop.product_search", {"search": "tea"}),
    ("shop.supplier_offer", {"product_id": "t1"}),
    ("shop.supplier_offer", {"product_id": "t9"}),
    ("shop.stock_count", {"ids": ["t1", "c1"]}),
]
STORIES = {
    "weather/weather.py": "FlowMCP files as tools, with hooks in a sandbox",
    "hostile/hostile.py": "hooks that attack, and what becomes of them",
    "basket/main.py": "a tool made of two others, one in another process",
    "desk/main.py": "served over HTTP: pages, questions to the user, hot reload",
    "refunds/main.py": "an agent's final answer under contract",
    "gateway/main.py": "another MCP server behind callpact",
}
console = Console(highlight=False, emoji=False)


def chapter(number: int, title: str, meaning: str) -> None:
    """Print the heading of a chapter."""
    console.print(f"\n[bold]{number}. {title}[/]")
    console.print(Padding(meaning, (0, 0, 1, 3)), style="dim")


def line(text: str, style: str = "") -> None:
    console.print(Padding(text, (0, 0, 0, 3)), style=style, markup=False)


def table(*headings: str) -> Table:
    return Table(*headings, box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))


def show(made: Table) -> None:
    console.print(Padding(made, (0, 0, 0, 3)))


def python() -> str:
    """The interpreter of the demo, as one would type it."""
    with contextlib.suppress(ValueError):
        return str(Path(sys.executable).relative_to(Path.cwd()))
    return sys.executable


async def called(
    runtime: Runtime, tool_id: str, arguments: dict[str, Any]
) -> ResponseEnvelope[Any]:
    """Print a call and run it."""
    line(f"{tool_id} {json.dumps(arguments)}", "cyan")
    return await runtime.execute(tool_id, arguments)


async def good_call(runtime: Runtime) -> None:
    chapter(1, "A good call", "The arguments and the result keep the contract of the function.")
    envelope = await called(runtime, "shop.product_search", {"query": "tea"})
    found = table("product", "price", "unit")
    for product in envelope.data["products"]:
        found.add_row(product["name"], f"{product['price']:.2f}", product["unit"])
    show(found)
    line(f"delivered in an envelope, whose source is: {envelope.meta.source}")


async def refused_call(runtime: Runtime) -> None:
    chapter(2, "A refused call", "Nothing runs, and the model reads all mistakes at once.")
    wrong = {"limit": 80, "unit": "stone", "quary": "tea"}
    try:
        await called(runtime, "shop.product_search", wrong)
    except CallError as error:
        issues = table("where", "what to do")
        for issue in error.issues:
            hint = f" ({issue.hint})" if issue.hint else ""
            issues.add_row(issue.path, f"[red]{issue.message}{hint}[/]")
        show(issues)


async def mended_result(runtime: Runtime) -> None:
    chapter(3, "A mended answer", "The supplier changed its answers; every repair is reported.")
    envelope = await called(runtime, "shop.supplier_offer", {"product_id": "t1"})
    line(f"delivered: {json.dumps(envelope.data)}", "green")
    changes = table("where", "what was done", "what came")
    for change in envelope.changes:
        invented = ", and the value invented" if change.invented else ""
        came = "nothing" if change.action == "filled" else json.dumps(change.before)
        changes.add_row(change.path, f"[yellow]{change.action}{invented}[/]", came)
    show(changes)


async def over_mcp(folder: str, log: TextIO) -> None:
    chapter(4, "A real MCP client", "The same tools, served by `callpact serve` over a pipe.")
    command = ["-m", "callpact", "serve", "--stdio", "-s", f"python:{SHOP}", "--audit", folder]
    server = StdioServerParameters(command=sys.executable, args=command)
    async with Client(stdio_client(server, errlog=log)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        line(f"protocol {client.protocol_version}, tools: {', '.join(names)}")
        result = await client.call_tool("shop_product_search", {"query": "coffee"})
        found: Any = result.structured_content
        line(f"shop_product_search found {found['products'][0]['name']}", "green")
        result = await client.call_tool("shop_product_search", {"limit": "many"})
        line(f"and with a bad argument, isError={result.is_error}", "red")


async def audit_log(folder: str) -> None:
    chapter(
        5, "The audit log", "Each call leaves one record: 60 calls of an agent, and those above."
    )
    with record_calls(folder) as recorder:
        async with Runtime(Catalog(TOOLS), observers=[recorder]) as runtime:
            for tool_id, arguments in WHAT_AGENTS_TRY * 10:
                with contextlib.suppress(CallError):
                    await runtime.execute(tool_id, arguments)
    store = open_store(folder)
    causes = {cause.tool: cause for cause in reversed(list(store.causes(Filter())))}
    rates = table("tool", "calls", "failed", "commonest cause")
    for rate in store.rates(Filter(), "tool"):
        cause = causes.get(rate.group)
        why = "" if cause is None else f"[red]{cause.message}[/]"
        rates.add_row(rate.group, str(rate.calls), f"{rate.rate:.0%}", why)
    store.close()
    show(rates)
    line("On your own log: callpact audit stats", "dim")


def published(folder: str) -> None:
    chapter(
        6,
        "A published contract",
        "A version never changes; a break is shown by a call that worked before.",
    )
    place = Path(folder, "contracts")
    place.mkdir()
    changed = place / "shop.py"
    changed.write_text(SHOP.read_text("utf-8"), "utf-8")
    callpact(place, "publish", "-s", "shop.py", "--name", "shop")
    changed.write_text(SHOP.read_text("utf-8").replace("le=50", "le=20"), "utf-8")
    callpact(place, "diff", "shop@^1", "shop.py")
    callpact(place, "publish", "-s", "shop.py", "--name", "shop", "--bump", "minor")


def callpact(folder: Path, *words: str) -> None:
    """Print a command, and the last lines of its output."""
    line(f"callpact {' '.join(words)}", "cyan")
    done = subprocess.run(  # noqa: S603 - a fixed command
        [sys.executable, "-m", "callpact", *words],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    for text in (done.stderr if "error" in done.stderr else done.stdout).splitlines():
        line(text, "red" if done.returncode else "green")


async def main(folder: str, log: TextIO) -> None:
    async with Runtime(Catalog(TOOLS)) as runtime:
        await good_call(runtime)
        await refused_call(runtime)
        await mended_result(runtime)
    await over_mcp(folder, log)
    await audit_log(folder)
    published(folder)
    console.print(
        "\n[bold]Next:[/] write a tool of your own with docs/tutorials/first-tool.md.\n"
        f"Other stories, each one command, as in [cyan]{python()} examples/desk/main.py[/]:"
    )
    stories = Table.grid(padding=(0, 3, 0, 0))
    for name, story in STORIES.items():
        stories.add_row(f"[cyan]examples/{name}[/]", story)
    show(stories)


if __name__ == "__main__":
    # What the contract finds is shown here; the log would repeat it.
    logging.getLogger("callpact.contract").setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory() as audit,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        contextlib.suppress(KeyboardInterrupt),
    ):
        asyncio.run(main(audit, nowhere))
        if "--once" not in sys.argv[1:]:
            console.print("\n[bold]The shop is served for your own client[/]; Ctrl-C ends it.\n")
            serve = [sys.executable, "-m", "callpact", "serve", "-s", f"python:{SHOP}"]
            subprocess.run([*serve, "--audit", audit], check=False)  # noqa: S603 - a fixed command
