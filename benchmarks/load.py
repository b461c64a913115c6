"""Guards: throughput and slowest calls of the HTTP door with many clients, and calls of megabytes.

Beside the same low-level server of the SDK in its quickest mode (JSON, httptools). The clients are
one asyncio process that writes prebuilt bytes, so that it needs little of the two processors; each
client sends its next call when the last one is answered.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator

import orjson

import serving
from cases import ARGUMENTS

CLIENTS = (50, 500)
CALLS = 6_000
ROUNDS = 3
ROWS = [
    {"id": n, "name": f"row {n}", "price": n * 1.5, "tags": ["a", "b"], "ok": True}
    for n in range(12_500)
]
TIMES = 5

_ROW = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ok": {"type": "boolean"},
    },
    "required": ["id", "name"],
}
_TABLE = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": _ROW}},
    "required": ["rows"],
}
_LARGE = f"""
from callpact import Contract, Tool

ROWS = [
    {{"id": n, "name": f"row {{n}}", "price": n * 1.5, "tags": ["a", "b"], "ok": True}}
    for n in range(12_500)
]
TABLE = {_TABLE!r}

async def rows(arguments, context):
    return {{"rows": ROWS}}

async def count(arguments, context):
    return len(arguments["rows"])

tools = [
    Tool(id="b.rows", description="Rows.", contract=Contract(output=TABLE), handler=rows,
         uses_client=False),
    Tool(id="b.count", description="Count.", contract=Contract(input=TABLE), handler=count,
         uses_client=False),
]
"""
_LARGE_BARE = f"""
import json, socket, sys
import anyio, mcp_types as types, uvicorn
from mcp.server import Server

ROWS = [
    {{"id": n, "name": f"row {{n}}", "price": n * 1.5, "tags": ["a", "b"], "ok": True}}
    for n in range(12_500)
]
async def call_tool(context, params):
    data = {{"rows": ROWS}} if params.name == "b_rows" else {{"result": len(params.arguments["rows"])}}
    content = [types.TextContent(type="text", text=json.dumps(data, separators=(",", ":")))]
    return types.CallToolResult(content=content, structured_content=data)

schemas = {{"b_rows": {{"type": "object"}}, "b_count": {_TABLE!r}}}
server = Server("bare", on_call_tool=call_tool, get_tool_input_schema=schemas.get)

async def serve():
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    app = server.streamable_http_app(json_response=True)
    async with app.router.lifespan_context(app):
        print(f"http://127.0.0.1:{{listening.getsockname()[1]}}/mcp", file=sys.stderr, flush=True)
        config = uvicorn.Config(app, http="httptools", ws="none", log_config=None,
                                access_log=False, lifespan="off", timeout_keep_alive=65)
        await uvicorn.Server(config).serve(sockets=[listening])

anyio.run(serve, backend_options={{"use_uvloop": True}})
"""


def _request(port: int, name: str, arguments: dict) -> bytes:
    """The bytes of one `tools/call` of 2026-07-28."""
    params = {"name": name, "arguments": arguments, "_meta": serving._META}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: {serving.MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _exchange(pipe: tuple[asyncio.StreamReader, asyncio.StreamWriter], sent: bytes) -> bytes:
    reader, writer = pipe
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"a call was answered with {head[:200]!r}")
    length = next(
        int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length")
    )
    return await reader.readexactly(length)


async def _load(port: int, clients: int, calls: int) -> tuple[float, list[float]]:
    """Seconds for all calls, and for each one."""
    sent = _request(port, "b_echo0", ARGUMENTS)
    left, took = iter(range(calls)), []
    pipes = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]

    async def client(pipe: tuple, numbers: Iterator[int]) -> None:
        for _ in numbers:
            begun = time.perf_counter()
            await _exchange(pipe, sent)
            took.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(client(pipe, left) for pipe in pipes))
    total = time.perf_counter() - begun
    for _, writer in pipes:
        writer.close()
    return total, took


def throughput() -> None:
    commands = {
        "SDK, JSON mode, httptools": serving.bare("json-httptools"),
        "callpact serve": serving.ours("http"),
    }
    with serving.serving(commands, serving.Http, modern=True) as peers:
        for clients in CLIENTS:
            print(f"\n### {clients} clients at once, {CALLS:,} calls, era 2026\n")
            print("| what | calls a second | p50 | p99 | server's CPU a call |")
            print("| --- | ---: | ---: | ---: | ---: |")
            rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in peers}
            for _ in range(ROUNDS + 1):
                for name, peer in peers.items():
                    before = peer.cpu()
                    total, took = asyncio.run(_load(peer.port, clients, CALLS))
                    took.sort()
                    cpu = (peer.cpu() - before) / CALLS
                    rows[name].append(
                        (CALLS / total, took[CALLS // 2], took[CALLS * 99 // 100], cpu)
                    )
            for name, found in rows.items():
                rate, half, slow, cpu = map(statistics.median, zip(*found[1:], strict=True))
                print(
                    f"| {name} | {rate:,.0f} | {half * 1e3:.1f} ms | {slow * 1e3:.1f} ms "
                    f"| {cpu * 1e3:.3f} ms |"
                )


def large() -> None:
    source = serving._file("large.py", _LARGE)
    ours = [serving.sys.executable, "-m", "callpact", "serve", "-s", f"python:{source}:tools"]
    commands = {
        "SDK, JSON mode, httptools": [
            serving.sys.executable,
            serving._file("large_bare.py", _LARGE_BARE),
        ],
        "callpact serve": [*ours, "--port", "0", "--result-limit", "100000000"],
    }
    calls = {
        "A result of 0.9 MB": ("b_rows", {}, orjson.dumps(ROWS)),
        "Arguments of 3.6 MB": ("b_count", {"rows": ROWS * 4}, orjson.dumps(ROWS * 4)),
    }
    with serving.serving(commands, serving.Http, modern=True) as peers:
        for title, (name, arguments, data) in calls.items():
            floor = _cpu(lambda data=data: orjson.dumps(orjson.loads(data)))
            print(f"\n### {title}, era 2026\n")
            print("| what | server's CPU | against orjson |")
            print("| --- | ---: | ---: |")
            print(f"| orjson, loads and dumps once | {floor * 1e3:.1f} ms | 1.00 |")
            for who, peer in peers.items():
                taken = [asyncio.run(_once(peer, name, arguments)) for _ in range(TIMES + 1)][1:]
                cost = statistics.median(taken)
                print(f"| {who} | {cost * 1e3:.1f} ms | {cost / floor:.2f} |")


def _cpu(work) -> float:
    taken = []
    for _ in range(TIMES):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return statistics.median(taken)


async def _once(peer, name: str, arguments: dict) -> float:
    pipe = await asyncio.open_connection("127.0.0.1", peer.port, limit=1 << 24)
    sent, before = _request(peer.port, name, arguments), peer.cpu()
    answer = json.loads(await _exchange(pipe, sent))
    if answer["result"].get("isError"):
        raise SystemExit(f"the call failed: {str(answer)[:300]}")
    pipe[1].close()
    return peer.cpu() - before


def main() -> None:
    throughput()
    large()


if __name__ == "__main__":
    main()
