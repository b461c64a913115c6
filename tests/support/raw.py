"""A server as a process of its own, and HTTP as bytes: what no good client would send.

with Served("behaviour.py") as served, served.connect() as line:
    assert line.ask(call("behaviour_add", {"a": 1, "b": 2})).result["structuredContent"]
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import ways

PATIENCE = 30
"""Seconds after which anything here gives up, and the test fails."""
MODERN = "2026-07-28"
_META = "io.modelcontextprotocol"
ACCEPT = {"Accept": "application/json, text/event-stream"}


class Served:
    """`callpact serve` over HTTP on a free port; its lines on stderr are read as they come."""

    def __init__(self, *sources, args=(), cwd=None, stdout=None):
        refs = [part for source in sources for part in ("-s", str(source))]
        command = [sys.executable, *ways.callpact(), "serve", "--port", "0", *refs, *args]
        pipes = {"stdout": stdout, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=cwd, text=True, **pipes)
        self.lines = [self.process.stderr.readline().rstrip("\n")]
        while "serving" not in self.lines[-1] and self.lines[-1]:  # At the log level debug.
            self.lines.append(self.process.stderr.readline().rstrip("\n"))
        self.address = re.search(r"http://[^\s\"]+", self.lines[-1])[0]
        self.port = int(self.address.split(":")[-1].split("/")[0])
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._told:
                self.lines.append(line.rstrip("\n"))
                self._told.notify_all()

    @property
    def warnings(self):
        """What it said beside the banner, in which every line begins with what it is about."""
        banner = (
            "serving ",
            "audit: ",
            "tools: ",
            "listed: ",
            "MCP: ",
            "HTTP API: ",
            "authentication: ",
            "left out: ",
            "contracts: ",
            "draft: ",
        )
        return [line for line in self.lines if not line.startswith(banner)]

    def until(self, line):
        """Wait for a line on stderr."""
        with self._told:
            assert self._told.wait_for(lambda: line in self.lines, PATIENCE), self.lines

    def wait_for(self, words):
        """Wait for a line on stderr that has these words."""
        with self._told:
            known = self._told.wait_for(lambda: any(words in line for line in self.lines), PATIENCE)
            assert known, self.lines

    def until_closed(self):
        """Wait until nobody is let in any more."""
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                self.connect().close()
            pytest.fail("it still lets others in")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def end(self, number):
        """Send a signal; gives the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stderr.close()
        return code

    def connect(self):
        return Line(self.port)

    def memory(self):
        """Bytes of memory that the process has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def result(self):
        assert self.status == 200, self
        return self.json["result"]

    @property
    def error(self):
        """The error of the protocol, which comes as JSON and names no request but a known one."""
        assert self.headers["content-type"] == "application/json"
        assert self.json["jsonrpc"] == "2.0"
        return self.json["error"]


@dataclass
class Line:
    """One connection; requests go out as they are written."""

    port: int
    host: str = "127.0.0.1"
    source: str = "127.0.0.1"
    """The address that it comes from: without tokens, callers are told apart by it."""
    socket: socket.socket = field(init=False)

    def __post_init__(self):
        place = (self.host, self.port)
        self.socket = socket.create_connection(place, PATIENCE, (self.source, 0))
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        """The next answer on this connection."""
        status = int(self.file.readline().split()[1])
        lines = iter(lambda: self.file.readline().decode("latin-1").strip(), "")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join(iter(self._chunk, b"")))
        length = headers.get("content-length", "-1")
        return Answer(status, headers, self.file.read(int(length)))

    def _chunk(self):
        return self.file.read(int(self.file.readline(), 16) + 2)[:-2]

    def ask(self, body=b"", *, method="POST", path="/mcp", **headers):
        self.send(request(body, method=method, path=path, **headers))
        return self.read()

    def is_ended(self):
        """True once the other side has closed the connection, whatever it said before."""
        with contextlib.suppress(ConnectionError):
            self.file.read()
        return True


def request(body=b"", *, method="POST", path="/mcp", **headers):
    """A request in bytes; a header is left out with None, and several have a list."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {
        "Host": "127.0.0.1:1",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **ACCEPT,
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1"]
    for name, values in given.items():
        for value in values if isinstance(values, list) else [values] * (values is not None):
            lines.append(f"{name}: {value}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def message(method="tools/list", *, number=1, **params):
    """A request of 2026-07-28."""
    meta = {
        f"{_META}/protocolVersion": MODERN,
        f"{_META}/clientCapabilities": {},
        f"{_META}/clientInfo": {"name": "t", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}


def routed(method="tools/list", name=None):
    """The headers that 2026-07-28 asks for."""
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method}
    return headers if name is None else {**headers, "Mcp_Name": name}


def called(name, /, **arguments):
    """A call of a tool in bytes."""
    asked = message("tools/call", name=name, arguments=arguments)
    return request(asked, **routed("tools/call", name))


def initialize(number=0):
    """The first request of the older eras."""
    info = {"name": "t", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params}


def works(line):
    """True if a good call is answered on this connection."""
    line.send(called("behaviour_add", a=1, b=2))
    return line.read().result["structuredContent"] == {"sum": 3}
