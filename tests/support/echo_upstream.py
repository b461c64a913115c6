"""An HTTP server that keeps every request exactly as it arrived, and answers as it was asked to.

async with Echo() as echo:
    envelope = await echo.call(operation, {"color": "blue"})
    assert echo.last.target == "/?color=blue"
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace

from callpact.context import Context
from callpact.net import HttpTransport, Limits
from callpact.sources.openapi.operation_handler import operation_handler
from callpact.sources.openapi.operation_settings import OperationSettings
from callpact.sources.openapi.operations import Operation, RequestBody, WireParameter

PATIENCE = 20


@dataclass
class Arrived:
    """One request: the first line and the headers as they were written, and the body."""

    method: str
    target: str
    lines: list[tuple[str, str]]
    body: bytes

    @property
    def path(self):
        return self.target.partition("?")[0]

    @property
    def query(self):
        return self.target.partition("?")[2]

    @property
    def headers(self):
        return {name.lower(): value for name, value in self.lines}

    def values(self, name):
        return [value for key, value in self.lines if key.lower() == name.lower()]

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Sent:
    """An answer: `body` in bytes, text, or as data, which is sent as JSON."""

    body: object = b""
    status: int = 200
    kind: str | None = None
    headers: dict | None = None

    def data(self):
        body, kind = self.body, self.kind
        if isinstance(body, str):
            body = body.encode()
        if not isinstance(body, bytes):
            body, kind = json.dumps(body).encode(), kind or "application/json"
        lines = [f"HTTP/1.1 {self.status} Whatever", f"Content-Length: {len(body)}"]
        lines += [f"Content-Type: {kind}"] if kind else []
        lines += [f"{name}: {value}" for name, value in (self.headers or {}).items()]
        return (
            "\r\n".join(lines).encode("latin-1")
            + b"\r\n\r\n"
            + (body if self.status != 204 else b"")
        )


class Echo:
    """The server, and a transport that may reach it."""

    def __init__(self, answer=None, **limits):
        self.answer = answer or (lambda arrived: Sent({"ok": True}))
        self.arrived = []
        self._limits = Limits(**{"total_seconds": PATIENCE, **limits})

    async def __aenter__(self):
        self._stack = contextlib.AsyncExitStack()
        await self._stack.enter_async_context(asyncio.timeout(3 * PATIENCE))
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._tasks = set()
        self.port = self._server.sockets[0].getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.transport = HttpTransport(self._limits, ["127.0.0.1", "localhost"])
        return self

    async def __aexit__(self, *error):
        await self.transport.aclose()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.__aexit__(*error)

    @property
    def last(self):
        return self.arrived[-1]

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            while line := (await reader.readline()).decode("latin-1").strip():
                method, target, _ = line.split(" ", 2)
                lines = []
                while text := (await reader.readline()).decode("utf-8", "replace").rstrip("\r\n"):
                    name, _, value = text.partition(":")
                    lines.append((name, value.removeprefix(" ")))
                arrived = Arrived(method, target, lines, b"")
                headers = arrived.headers
                if headers.get("transfer-encoding") == "chunked":
                    arrived.body = await _chunks(reader)
                else:
                    arrived.body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.arrived.append(arrived)
                answer = self.answer(arrived)
                if isinstance(answer, Sent):
                    writer.write(answer.data())
                    await writer.drain()
                else:  # An async function that writes the answer itself, and ends the connection.
                    await answer(writer)
                    break
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def call(self, operation, arguments, settings=None, **context):
        """Call the handler of an operation, whose server is this one if it has none."""
        handler = self.handler(operation, settings)
        return await handler(arguments, Context("c1", "test.tool", **context))

    def handler(self, operation, settings=None):
        if not operation.server:
            operation = operation_at(operation, self.root)
        return operation_handler(operation, self.transport, settings or OperationSettings())


async def _chunks(reader):
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def operation_at(operation, server):
    return replace(operation, server=server)


def an_operation(*parameters, path="/", method="GET", body=None, **more):
    """An operation on the echo server."""
    return Operation(
        name="test",
        operation_id="test",
        method=method,
        path=path,
        server=more.pop("server", ""),
        pointer="/paths/~1/get",
        parameters=parameters,
        body=body,
        **more,
    )


_DEFAULTS = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}


def a_parameter(place, name="color", *, style=None, explode=None, **more):
    """A parameter with the defaults of the specification."""
    style = style or _DEFAULTS.get(place, "form")
    return WireParameter(
        name=name,
        argument=more.pop("argument", name),
        place=place,
        style=style,
        explode=style in {"form", "cookie", "deepObject"} if explode is None else explode,
        required=more.pop("required", place == "path"),
        **more,
    )


def a_body(content_type="application/json", **more):
    return RequestBody(content_type=content_type, **more)
