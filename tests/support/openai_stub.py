"""A server on a free port of this machine that speaks as OpenAI does, and says what it is told to.

It answers over raw sockets, whole or as a stream of events as the request wants it, keeps every
request, and counts its open connections, so that a test can see what was left behind.

    async with Stub(say("Hello."), fail(500)) as stub:
        model = open_model("openai:gpt-4o-mini", base_url=stub.url)
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import struct
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from callpact import open_model, tool
from callpact.agent import Message, ModelRequest

KEY = "sk-very-secret-0123456789"
NAME = "openai:gpt-4o-mini"
HELLO = ModelRequest("", (Message("user", "Hello?"),))
PATIENCE = 20
TOKENS = (100, 20)
"""Tokens that a reply says it took, in and out."""
_PIECE = re.compile(r"\s*\S+")


@dataclass
class Asked:
    """A request as the server read it."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Line:
    """One connection, and the request on it that waits for a reply."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    released: asyncio.Event
    asked: Asked = field(default_factory=lambda: Asked("", {}, None))

    @property
    def model(self) -> str:
        return self.asked.body["model"]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def whole(self, status: int, data: bytes, kind: str, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.whole(status, json.dumps(value).encode(), "application/json", **headers)

    async def begin_events(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    async def event(self, value: Any, name: str = "") -> None:
        data = value if isinstance(value, str) else json.dumps(value)
        text = (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
        await self.send(b"%x\r\n%b\r\n" % (len(text.encode()), text.encode()))

    async def end_events(self) -> None:
        await self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """End it with a reset instead of a goodbye."""
        end = self.writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Reply = Callable[[Line], Awaitable[None]]


def say(
    text: str = "",
    *calls: tuple[str, Any],
    finish: str | None = None,
    tokens: tuple[int, int] = TOKENS,
    thinking: str | None = None,
    refusal: str | None = None,
) -> Reply:
    """Text, or calls of tools as (name, arguments); arguments that are text go out as they are."""
    uses = [
        {
            "id": f"call_{name}_{number}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for number, (name, given) in enumerate(calls)
    ]
    why = finish or ("tool_calls" if uses else "stop")
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }

    async def reply(line: Line) -> None:
        frame = {"id": "chat-1", "created": 1_760_000_000, "model": line.model}
        if not line.asked.body.get("stream"):
            message = {"role": "assistant", "content": text or None, "refusal": refusal}
            if thinking is not None:
                message["reasoning_content"] = thinking
            if uses:
                message["tool_calls"] = uses
            choice = {"index": 0, "message": message, "finish_reason": why}
            await line.json(
                {**frame, "object": "chat.completion", "choices": [choice], "usage": usage}
            )
            return
        await line.begin_events()
        for delta in _deltas(text, uses, thinking, refusal):
            await line.event(_chunk(frame, delta))
        await line.event(_chunk(frame, {}, why))
        if line.asked.body.get("stream_options", {}).get("include_usage"):
            await line.event({**_chunk(frame, {}), "choices": [], "usage": usage})
        await line.event("[DONE]")
        await line.end_events()

    return reply


def _deltas(
    text: str, uses: list[dict[str, Any]], thinking: str | None, refusal: str | None
) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if thinking is not None:
        deltas.append({"reasoning_content": thinking})
    if refusal is not None:
        deltas.append({"refusal": refusal})
    deltas += [{"content": piece} for piece in _PIECE.findall(text)]
    for index, use in enumerate(uses):
        arguments = use["function"]["arguments"]
        half = len(arguments) // 2
        begun = {**use, "index": index, "function": {**use["function"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in (arguments[:half], arguments[half:])
        ]
    return deltas


def _chunk(frame: Any, delta: Any, why: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": why}
    return {**frame, "object": "chat.completion.chunk", "choices": [choice]}


def fail(
    status: int, message: str = "it went wrong", code: str | None = None, **headers: str
) -> Reply:
    """An error, as OpenAI words it."""

    async def reply(line: Line) -> None:
        error = {"message": message, "type": "server_error", "code": code, "param": None}
        await line.json({"error": error}, status, **headers)

    return reply


def echo_key(status: int = 401) -> Reply:
    """An error that shows the key that it was sent."""

    async def reply(line: Line) -> None:
        await fail(status, f"Incorrect key: {line.asked.headers['authorization']}")(line)

    return reply


def raw(data: bytes, kind: str = "application/json") -> Reply:
    """Bytes as the whole body of a 200."""

    async def reply(line: Line) -> None:
        await line.whole(200, data, kind)

    return reply


def redirect(address: str) -> Reply:
    """Go elsewhere."""

    async def reply(line: Line) -> None:
        await line.whole(307, b"", "text/plain", Location=address)

    return reply


async def silence(line: Line) -> None:
    """No reply, for as long as the other side waits."""
    await line.reader.read()


def cut(*pieces: str, politely: bool = False) -> Reply:
    """A stream that ends after some pieces: by a reset, or as if that were all there is."""

    async def reply(line: Line) -> None:
        await line.begin_events()
        frame = {"id": "chat-1", "created": 1_760_000_000, "model": line.model}
        for piece in pieces:
            await line.event(_chunk(frame, {"content": piece}))
        if politely:
            await line.end_events()
        else:
            line.reset()

    return reply


def endless(piece: str) -> Reply:
    """A stream that never ends of itself."""

    async def reply(line: Line) -> None:
        await line.begin_events()
        frame = {"id": "chat-1", "created": 1_760_000_000, "model": line.model}
        while not line.released.is_set():
            await line.event(_chunk(frame, {"content": piece}))

    return reply


def respond(text: str, tokens: tuple[int, int] = TOKENS) -> Reply:
    """Text, as OpenAI's responses interface has it."""
    spent = {
        "input_tokens": tokens[0],
        "output_tokens": tokens[1],
        "total_tokens": sum(tokens),
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }

    async def reply(line: Line) -> None:
        await line.json(
            {
                "id": "resp_1",
                "object": "response",
                "created_at": 1_760_000_000,
                "status": "completed",
                "model": line.model,
                "output": [item],
                "usage": spent,
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
            }
        )

    return reply


class Stub:
    """The server; replies are given in order, one for each request."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.open = 0
        self._replies = list(replies)
        self._released = asyncio.Event()
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    @property
    def bodies(self) -> list[Any]:
        return [asked.body for asked in self.asked]

    async def all_closed(self) -> None:
        """Wait until the other side has let go of every connection."""
        async with asyncio.timeout(5):
            while self.open:
                self._closed.clear()
                await self._closed.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        line = Line(reader, writer, self._released)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    line.asked = await _read(reader)
                    self.asked.append(line.asked)
                    await self._replies.pop(0)(line)
        except asyncio.CancelledError:  # The end of the server; a task of `asyncio.Server` logs it.
            pass
        finally:
            self.open -= 1
            self._closed.set()
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(head[0].split()[1], headers, json.loads(body) if body else None)


# --- what tests of models share ---------------------------------------------------------------


@tool(namespace="shop")
def stock(item: str) -> int:
    """How many of an item there are."""
    return {"tea": 3, "cups": 40}[item]


def with_stub(*replies, name=NAME, **options):
    """Run a coroutine function of (model, stub) against a server that gives these replies."""

    def run(story):
        async def main():
            async with asyncio.timeout(PATIENCE), Stub(*replies) as stub:
                result = await story(open_model(name, base_url=stub.url, **options), stub)
                await stub.all_closed()
                return result

        result = asyncio.run(main())
        gc.collect()  # What is left open warns now, and a warning fails the test.
        return result

    return run


async def collected(stream):
    """All that a stream gives."""
    return [item async for item in stream]


def shown(error):
    """All that is shown of an error and of whatever hangs on it."""
    texts, seen = ["".join(traceback.format_exception(error))], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts += [str(error), repr(error), repr(vars(error))]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)
