"""Guards: that a second worker nearly doubles what a server can do (`callpact serve --workers 2`).

The load comes from processes on the same machine. Calls that cost the server little cost a sender
about as much, so with few processors the wall time shows how they share them; the CPU time that the
server needs for a call, supervisor and workers together, bounds the gain on free processors. Beside
a tool that computes for some milliseconds the senders cost nothing, and the wall time shows the gain.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROUNDS = 5
SENDERS = 2
CONNECTIONS = 8
BUSY_MS = 5
CALLS = {"add": 2_000, "busy": 200}
"""Calls of each sender in a round, by tool."""
_TICKS = os.sysconf("SC_CLK_TCK")

_TOOLS = f"""
import time

from callpact import tool

@tool(annotations={{"readOnlyHint": True}})
async def add(a: int, b: int) -> int:
    return a + b

@tool(annotations={{"readOnlyHint": True}})
async def busy(a: int, b: int) -> int:
    until = time.thread_time() + {BUSY_MS / 1_000}
    while time.thread_time() < until:
        a = a + b - b
    return a
"""
_SENDER = """
import json, selectors, socket, sys

name = sys.argv[1]
port, connections, calls = map(int, sys.argv[2:])
meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
params = {"name": name, "arguments": {"a": 1, "b": 2}, "_meta": meta}
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
head = (
    "POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json",
    "Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2026-07-28",
    "Mcp-Method: tools/call", f"Mcp-Name: {name}", f"Content-Length: {len(body)}",
)
request = ("\\r\\n".join(head) + "\\r\\n\\r\\n" + body).encode()
selector = selectors.DefaultSelector()
for _ in range(connections):
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(request)
    selector.register(line, selectors.EVENT_READ)
done, held = 0, {}
while done < calls:
    for key, _ in selector.select():
        read = key.fileobj.recv(65536)
        answer = held.pop(key.fd, b"") + read
        assert read and answer.startswith(b"HTTP/1.1 200"), answer
        if not answer.endswith(b"}}"):
            held[key.fd] = answer
            continue
        done += 1
        key.fileobj.sendall(request)
"""


@contextlib.contextmanager
def serving(workers: int) -> Iterator[tuple[int, int]]:
    """Serve one tool; yields the process and the port."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t.py").write_text(_TOOLS, "utf-8")
        command = [sys.executable, "-m", "callpact", "serve", "-s", "t.py", "--port", "0"]
        command += ["--workers", str(workers), "--audit", "log"]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
            found = re.search(r":(\d+)/", process.stderr.readline() if process.stderr else "")
            try:
                yield process.pid, int(found[1] if found else 0)
            finally:
                process.terminate()


def cpu(pid: int) -> float:
    """CPU seconds of a process and its children, those that live."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    return (int(fields[11]) + int(fields[12])) / _TICKS + sum(cpu(int(each)) for each in children)


def measure(pid: int, port: int, tool: str) -> tuple[float, float]:
    """Calls per second, and CPU milliseconds of the server for a call."""
    begun, before = time.perf_counter(), cpu(pid)
    numbers = map(str, (port, CONNECTIONS, CALLS[tool]))
    command = [sys.executable, "-c", _SENDER, f"t_{tool}", *numbers]
    senders = [subprocess.Popen(command) for _ in range(SENDERS)]
    for sender in senders:
        if sender.wait():
            raise RuntimeError("a sender failed")
    calls = CALLS[tool] * SENDERS
    return calls / (time.perf_counter() - begun), (cpu(pid) - before) * 1_000 / calls


def main() -> None:
    """Print the figures of one and two workers, in turns."""
    print("\n## Two workers\n")
    print(
        f"{os.cpu_count()} processors, {SENDERS} senders on them, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| what | calls a second | ratio | server's CPU a call | bound by CPU |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with serving(1) as one, serving(2) as two:
        for tool in CALLS:
            rounds = [(measure(*one, tool), measure(*two, tool)) for _ in range(ROUNDS + 1)][1:]
            (rate, spent), (more, spent_by_two) = (
                [statistics.median(each[i][j] for each in rounds) for j in (0, 1)] for i in (0, 1)
            )
            print(f"| {tool}, one worker | {rate:,.0f} | 1.00 | {spent:.3f} ms | |")
            print(
                f"| … two workers | {more:,.0f} | {more / rate:.2f} | {spent_by_two:.3f} ms "
                f"| {2 * spent / spent_by_two:.2f} |"
            )


if __name__ == "__main__":
    main()
