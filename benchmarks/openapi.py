"""Guards: an OpenAPI document is loaded and listed in a fraction of FastMCP's CPU and memory.

The documents of GitHub and Stripe come from npm packages (tests/support/api_downloads.py). Every
system runs in a process of its own: it reads the document, makes its tools, and writes every
definition as JSON. "Compiled" compiles both schemas of every tool instead of writing them, which
callpact does on the first call; FastMCP has no such step.
"""

from __future__ import annotations

import sys
from pathlib import Path

from processes import fresh, median

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import api_downloads

ROUNDS = 3
_END = """
print(json.dumps({
    "cpu": done - begun,
    "tools": len(definitions),
    "size": sum(map(len, definitions)),
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
}))
"""
_OURS = """
import asyncio, json, resource, sys, time
from callpact.schema.json_text import json_text
from callpact.sources.openapi.openapi_source import from_openapi
from callpact.wire.mcp.results import encode_tool
from callpact.testing import StubTransport
path, compiles = sys.argv[1:]
async def main():
    _, tools = await from_openapi(path, transport=StubTransport(None))
    if compiles:
        return [tool.contract.compiled_input and b"" for tool in tools]
    return [json_text(encode_tool(tool, modern=True)).encode() for tool in tools]
begun = time.process_time()
definitions = asyncio.run(main())
done = time.process_time()
"""
_THEIRS = """
import asyncio, json, resource, sys, time
import httpx2
from fastmcp import FastMCP
path, _ = sys.argv[1:]
async def main():
    with open(path, "rb") as file:
        document = json.load(file)
    client = httpx2.AsyncClient(base_url="https://api.example.com")
    server = FastMCP.from_openapi(openapi_spec=document, client=client)
    tools = await server.list_tools()
    return [
        tool.to_mcp_tool().model_dump_json(by_alias=True, exclude_none=True).encode()
        for tool in tools
    ]
begun = time.process_time()
definitions = asyncio.run(main())
done = time.process_time()
"""
SYSTEMS = {
    "callpact": (_OURS, ""),
    "callpact, loaded and compiled": (_OURS, "yes"),
    "FastMCP": (_THEIRS, ""),
}
TARGETS = {"github": (0.2, 0.5), "stripe": (0.1, 0.5)}


def main() -> None:
    for name, (cpu, memory) in TARGETS.items():
        try:
            path = api_downloads.document(name)
        except api_downloads.NoDocument as error:
            print(f"\n{name}: {error}")
            continue
        samples: dict[str, list[dict]] = {system: [] for system in SYSTEMS}
        for _ in range(ROUNDS):
            for system, (script, option) in SYSTEMS.items():
                samples[system].append(fresh(script + _END, str(path), option))
        _print(name, samples, cpu, memory)


def _print(name: str, samples: dict[str, list[dict]], cpu: float, memory: float) -> None:
    print(f"\n### The OpenAPI document of {name.title()}, loaded and listed\n")
    print("| what | tools | CPU | ratio | target | memory | ratio | target | definitions |")
    print("| --- | ---: | ---: | ---: | --- | ---: | ---: | --- | ---: |")
    peer = {each: median(samples["FastMCP"], each) for each in ("cpu", "memory")}
    for system, found in samples.items():
        taken, held = median(found, "cpu"), median(found, "memory")
        bounds = (f"≤ {cpu:g}", f"≤ {memory:g}") if system == "callpact" else ("", "")
        if system == "callpact, loaded and compiled":
            bounds = (f"≤ {cpu:g}", "")
        print(
            f"| {system} | {found[0]['tools']:,} | {taken:.2f} s | {taken / peer['cpu']:.2f} "
            f"| {bounds[0]} | {held / 1e6:.0f} MB | {held / peer['memory']:.2f} | {bounds[1]} "
            f"| {f'{size / 1e6:.1f} MB' if (size := found[0]['size']) else ''} |"
        )


if __name__ == "__main__":
    main()
