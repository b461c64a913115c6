"""Guards: what our MCP doors cost above a bare low-level server of the SDK, on both pipes and eras.

Each server is a process of its own, and its CPU time is what counts: the client, raw sockets and
pipes here, is in none of the figures but those of wall time. Servers take turns, round by round.
The bare server has the same tools, and checks nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cases import ARGUMENTS, IN, OUT

ROUNDS = 30
CALLS = 40
LISTS = 7
MANY = 10_000
STARTS = 9
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
ERAS = {"2025": False, "2026": True}

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HELLO = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
_CALL = {"name": "b_echo0", "arguments": ARGUMENTS}

_OURS = f"""
from callpact import Contract, Tool

async def echo(arguments, context):
    return {{"text": arguments["text"], "n": arguments["n"]}}

contract = Contract(input={IN!r}, output={OUT!r}, policy="cast")
tools = [
    Tool(id=f"b.echo{{i}}", description=f"Echo number {{i}}.", contract=contract, handler=echo, uses_client=False)
    for i in range(COUNT)
]
"""

_BARE = f"""
import json, sys
import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

door, count = sys.argv[1], int(sys.argv[2])
IN, OUT = {IN!r}, {OUT!r}
tools = [
    types.Tool(
        name=f"b_echo{{i}}", description=f"Echo number {{i}}.", input_schema=IN, output_schema=OUT
    )
    for i in range(count)
]
listed = types.ListToolsResult(tools=tools)
schemas = {{tool.name: IN for tool in tools}}

async def list_tools(context, params):
    return listed

async def call_tool(context, params):
    data = {{"text": params.arguments["text"], "n": params.arguments["n"]}}
    text = json.dumps(data, separators=(",", ":"))
    content = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=data)

server = Server(
    "bare", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=schemas.get
)

async def over_stdio():
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

def over_http(reader, is_json):
    import socket
    import uvicorn

    # Named as TCP, or asyncio leaves the delay on small packets on: 40 ms for each answer.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    app = server.streamable_http_app(json_response=is_json)
    lifespan = app.router.lifespan_context

    async def serve():
        async with lifespan(app):
            print(f"http://127.0.0.1:{{listening.getsockname()[1]}}/mcp", file=sys.stderr, flush=True)
            config = uvicorn.Config(
                app, http=reader, ws="none", log_config=None, access_log=False, lifespan="off",
                timeout_keep_alive=65,
            )
            await uvicorn.Server(config).serve(sockets=[listening])

    anyio.run(serve, backend_options={{"use_uvloop": True}})

if door == "stdio":
    anyio.run(over_stdio)
else:
    over_http(door.removeprefix("json-"), door.startswith("json-"))
"""

_FLOOR = """
import asyncio, json, socket, sys
door = sys.argv[1]

def answer(body):
    message = json.loads(body)
    params = message["params"]
    data = params.get("arguments")
    text = json.dumps(data, separators=(",", ":"))
    result = {"content": [{"type": "text", "text": text}], "structuredContent": data}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()

async def app(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    written = answer(body) if b'"params"' in body else b""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(written))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": written})

async def over_http():
    import uvicorn
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(
        app, http="httptools", ws="none", log_config=None, access_log=False, lifespan="off",
        timeout_keep_alive=65,
    )
    await uvicorn.Server(config).serve(sockets=[listening])

async def over_stdio():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 25)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if b'"params"' in line:
            sys.stdout.buffer.write(answer(line) + b"\\n")
            sys.stdout.buffer.flush()

if door == "stdio":
    asyncio.run(over_stdio())
else:
    import uvloop
    uvloop.run(over_http())
"""

_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")
_folder = tempfile.TemporaryDirectory()


def environment() -> dict[str, str]:
    """Variables for a process that has its bytecode, as an installed package has."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(_folder.name) / "bytecode")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


def _file(name: str, content: str) -> str:
    path = Path(_folder.name) / name
    path.write_text(content)
    return str(path)


def bare(door: str, count: int = 1) -> list[str]:
    """The command of a server of the SDK alone."""
    return [sys.executable, _file("bare.py", _BARE), door, str(count)]


def floor(door: str) -> list[str]:
    """The command of a server that only parses, copies the arguments and writes."""
    return [sys.executable, _file("floor.py", _FLOOR), door]


def ours(door: str, count: int = 1) -> list[str]:
    """The command of ours."""
    source = _file(f"tools{count}.py", _OURS.replace("COUNT", str(count)))
    command = [sys.executable, "-m", "callpact", "serve", "-s", f"python:{source}:tools"]
    command += ["--list-up-to", str(MANY)]
    return [*command, "--stdio"] if door == "stdio" else [*command, "--port", "0"]


class Taken(NamedTuple):
    """Seconds: of the server's CPU, and by the clock."""

    cpu: float
    wall: float


class Peer:
    """A server process, and the client that speaks to it."""

    def __init__(self, command: list[str], *, modern: bool) -> None:
        self.modern = modern
        self._ids = 0
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors(),
            env=environment(),
        )

    def _errors(self) -> int:
        return subprocess.DEVNULL

    def cpu(self) -> float:
        """CPU seconds of the process up to now, all threads, in nanosecond steps (Linux)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def open(self) -> None:
        """Say what a client of the era has to say first."""
        if not self.modern:
            self.request("initialize", _HELLO)
            self.tell("notifications/initialized")

    def request(self, method: str, params: dict) -> dict:
        self._ids += 1
        if self.modern:
            params = {**params, "_meta": _META}
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        answer = json.loads(self.exchange(message))
        if "result" not in answer:
            raise SystemExit(f"{method} was answered with {answer}")
        return answer["result"]

    def call(self) -> dict:
        result = self.request("tools/call", _CALL)
        if result["structuredContent"] != ARGUMENTS or result.get("isError"):
            raise SystemExit(f"the call was answered with {result}")
        return result

    def list(self) -> int:
        """Every page of the list; how many tools there are."""
        result = self.request("tools/list", {})
        count = len(result["tools"])
        while "nextCursor" in result:
            result = self.request("tools/list", {"cursor": result["nextCursor"]})
            count += len(result["tools"])
        return count

    def exchange(self, message: dict) -> bytes:
        raise NotImplementedError

    def tell(self, method: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()


class Pipe(Peer):
    """Over standard input and output."""

    def exchange(self, message: dict) -> bytes:
        self._write(message)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a server ended before it had answered")
        return line

    def tell(self, method: str) -> None:
        self._write({"jsonrpc": "2.0", "method": method})

    def _write(self, message: dict) -> None:
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


class Http(Peer):
    """Over Streamable HTTP, on one connection that stays open."""

    def __init__(self, command: list[str], *, modern: bool) -> None:
        super().__init__(command, modern=modern)
        said = ""
        while not (found := _ADDRESS.search(said)):
            line = self.process.stderr.readline().decode()
            if not line:
                raise SystemExit(f"a server did not start: {said}")
            said += line
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self.port = int(found[1])
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def _errors(self) -> int:
        return subprocess.PIPE

    def exchange(self, message: dict) -> bytes:
        headers = self._headers
        if self.modern:
            method, name = message["method"], message["params"].get("name")
            headers = {**headers, "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            headers |= {} if name is None else {"Mcp-Name": name}
        body = self._post(message, headers)
        if not body.startswith(b"{"):
            events = [line for line in body.splitlines() if line.startswith(b"data: {")]
            body = events[-1].removeprefix(b"data: ")
        return body

    def tell(self, method: str) -> None:
        self._headers["MCP-Protocol-Version"] = HANDSHAKE
        self._post({"jsonrpc": "2.0", "method": method}, self._headers)

    def _post(self, message: dict, headers: dict[str, str]) -> bytes:
        self._connection.request("POST", "/mcp", json.dumps(message), headers)
        response = self._connection.getresponse()
        if session := response.getheader("Mcp-Session-Id"):
            self._headers["Mcp-Session-Id"] = session
        return response.read()

    def post(self) -> None:
        """The same call as a plain HTTP request."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._connection.request("POST", "/tools/b.echo0", json.dumps(ARGUMENTS), headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200 or json.loads(body) != ARGUMENTS:
            raise SystemExit(f"the request was answered with {response.status} {body}")

    def close(self) -> None:
        self._connection.close()
        super().close()
        self.process.stderr.close()


@contextlib.contextmanager
def serving(commands: dict[str, list[str]], kind: type[Peer], *, modern: bool) -> Iterator[dict]:
    """Servers that run side by side, each with a client that has opened its connection."""
    peers: dict[str, Peer] = {}
    try:
        for name, command in commands.items():
            peers[name] = kind(command, modern=modern)
            peers[name].open()
        yield peers
    finally:
        for peer in peers.values():
            peer.close()


def timed(
    peers: dict[str, Peer], work: Callable[[Peer], object], *, times: int, rounds: int = ROUNDS
) -> dict[str, list[Taken]]:
    """What one piece of work took in each round; many short rounds, or noise hits one peer alone."""
    samples: dict[str, list[Taken]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, peer in peers.items():
            cpu, wall = peer.cpu(), time.perf_counter()
            for _ in range(times):
                work(peer)
            taken = Taken((peer.cpu() - cpu) / times, (time.perf_counter() - wall) / times)
            samples[name].append(taken)
    return samples


def _table(title: str, samples: dict[str, list[Taken]], bound: str) -> None:
    """Print medians, and the medians of what each round's ratio to the first row was."""
    print(f"\n### {title}\n")
    print("| what | server's CPU | ratio | wall | ratio | target |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    base = next(iter(samples.values()))
    for name, taken in samples.items():
        cells = [name]
        for field in ("cpu", "wall"):
            values = [getattr(one, field) for one in taken]
            bases = [getattr(one, field) for one in base]
            ratio = statistics.median(a / b for a, b in zip(values, bases, strict=True))
            cells += [f"{statistics.median(values) * 1e3:.3f} ms", f"{ratio:.2f}"]
        cells.append(bound if name.startswith("callpact") and taken is not base else "")
        print(f"| {' | '.join(cells)} |")


def calls() -> None:
    for era, modern in ERAS.items():
        commands = {
            "bare ASGI answer, httptools": floor("http"),
            "SDK, JSON mode, httptools": bare("json-httptools"),
            "SDK, stream mode, h11": bare("h11"),
            "callpact serve": ours("http"),
        }
        with serving(commands, Http, modern=modern) as peers:
            timed(peers, Peer.call, times=CALLS, rounds=3)
            taken = timed(peers, Peer.call, times=CALLS)
        _table(f"tools/call over HTTP, era {era}", taken, "≤ 2.5")
        commands = {
            "bare pipe": floor("stdio"),
            "bare SDK": bare("stdio"),
            "callpact serve": ours("stdio"),
        }
        with serving(commands, Pipe, modern=modern) as peers:
            timed(peers, Peer.call, times=CALLS, rounds=3)
            taken = timed(peers, Peer.call, times=CALLS)
        _table(f"tools/call over stdio, era {era}", taken, "≤ 2.5")


def endpoints() -> None:
    """The same tool of the same kind of server, called over MCP and as a plain HTTP endpoint."""
    commands = {
        "callpact, tools/call, era 2026": ours("http"),
        "callpact, POST /tools/ID": ours("http"),
    }
    with serving(commands, Http, modern=True) as peers:
        work = dict(zip(peers.values(), (Peer.call, Http.post), strict=True))

        def once(peer: Peer) -> None:
            work[peer](peer)

        timed(peers, once, times=CALLS, rounds=3)
        taken = timed(peers, once, times=CALLS)
    _table("A tool over HTTP: MCP and a plain endpoint", taken, "< 1.00")


def one_of_many() -> None:
    for name, kind in {"stdio": Pipe, "HTTP": Http}.items():
        door = name.lower()
        commands = {"callpact, 1 tool": ours(door), f"callpact, {MANY:,} tools": ours(door, MANY)}
        with serving(commands, kind, modern=True) as peers:
            timed(peers, Peer.call, times=CALLS, rounds=3)
            taken = timed(peers, Peer.call, times=CALLS)
        _table(f"tools/call among many, {name}, era 2026", taken, "≤ 1.20")


def lists() -> None:
    for era, modern in ERAS.items():
        for name, kind in {"HTTP": Http, "stdio": Pipe}.items():
            door = "h11" if kind is Http else "stdio"
            commands = {"bare SDK": bare(door, MANY), "callpact serve": ours(name.lower(), MANY)}
            with serving(commands, kind, modern=modern) as peers:
                cold = timed(peers, _listed, times=1, rounds=1)
                taken = timed(peers, _listed, times=1, rounds=LISTS)
            _table(f"{MANY:,} tools listed, {name}, era {era}, warm", taken, "≤ 0.10")
            _table(f"{MANY:,} tools listed, {name}, era {era}, first time", cold, "")


def _listed(peer: Peer) -> None:
    if (count := peer.list()) != MANY:
        raise SystemExit(f"{count:,} tools were listed")


def starts() -> None:
    commands = {"bare SDK": bare("stdio"), "callpact serve": ours("stdio")}
    for era, modern in ERAS.items():
        samples: dict[str, list[Taken]] = {name: [] for name in commands}
        for number in range(STARTS + 1):
            for name, command in commands.items():
                begun = time.perf_counter()
                peer = Pipe(command, modern=modern)
                peer.open()
                peer.call()
                taken = Taken(peer.cpu(), time.perf_counter() - begun)
                peer.close()
                if number:  # The first one writes the bytecode.
                    samples[name].append(taken)
        _table(f"Process start to the first answer, stdio, era {era}", samples, "≤ 1.00")


def main() -> None:
    calls()
    endpoints()
    one_of_many()
    lists()
    starts()
