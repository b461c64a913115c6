"""Guards: `import callpact` costs little more than what it stands on, and commands start quickly."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from measure import table
from serving import Http, Pipe, environment, ours

ROUNDS = 9
_TIMER = "import time; a = time.process_time(); {}; print(time.process_time() - a)"
_STATIONS = Path(__file__).parent.parent / "examples" / "weather" / "Stations.mjs"


def _import(line: str) -> float:
    out = subprocess.run(
        [sys.executable, "-c", _TIMER.format(line)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    return float(out.stdout)


def _process(*words: str) -> float:
    """CPU seconds of a whole process."""
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _first_response() -> float:
    peer = Pipe(ours("stdio"), modern=True)
    peer.call()
    taken = peer.cpu()
    peer.close()
    return taken


def _banner() -> float:
    peer = Http(ours("http"), modern=True)  # It waits for the address.
    taken = peer.cpu()
    peer.close()
    return taken


class _Station(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"id": "be-1", "height": 34, "temperature": 18.5}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def _upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Station) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _medians(works: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each work in fresh processes, interleaved; the first round writes bytecode."""
    samples: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 1):
        for name, work in works.items():
            taken = work()
            if number:
                samples[name].append(taken)
    return {name: statistics.median(values) for name, values in samples.items()}


def imports() -> None:
    lines = {
        "asyncio, orjson, jsonschema_rs, msgspec": "import asyncio, orjson, jsonschema_rs, msgspec",
        "callpact": "import callpact",
        "callpact and its functions source": "from callpact import from_functions",
        "mcp.server": "import mcp.server",
        "fastmcp": "import fastmcp",
        "fastmcp and its server": "from fastmcp import FastMCP",
    }
    taken = _medians({name: partial(_import, line) for name, line in lines.items()})
    base = taken["asyncio, orjson, jsonschema_rs, msgspec"]
    table(
        "Cold start",
        [
            (f"import {name}", value, value / base, "≤ 1.4" if name == "callpact" else "")
            for name, value in taken.items()
        ],
    )


def commands() -> None:
    """Whole processes: from their start to their end, or until a server is ready."""
    command = ("-m", "callpact")
    base = "from fastmcp import FastMCP"
    with _upstream() as root:
        call = ("call", "weather.getStation", "stationId=be-1", "-s", str(_STATIONS))
        call += ("--upstream", f"https://api.weather.example={root}", "--audit", "off")
        taken = _medians(
            {
                base: partial(_process, "-c", base),
                "import fastmcp": partial(_process, "-c", "import fastmcp"),
                "callpact --help": partial(_process, *command, "--help"),
                "callpact call, a FlowMCP file": partial(_process, *command, *call),
                "callpact serve --stdio, first response": _first_response,
                "callpact serve, HTTP banner": _banner,
            }
        )
    table(
        "Process start",
        [
            (name, value, value / taken[base], "< 1" if "serve" in name else "")
            for name, value in taken.items()
        ],
    )


def main() -> None:
    imports()
    commands()
