"""A real server on a free port of this machine, which misbehaves in every way an upstream can.

Each path is one fault (`FAULTS`). It speaks over raw sockets, keeps every request it read, and
counts its open connections, so that a test can see what was left behind.

    async with Faults() as faults:
        await transport.send(Request("GET", faults.url("/drip")))
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import brotli

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PAUSE = 0.03
"""Seconds between the bytes of a drip."""


@dataclass
class Asked:
    """A request as the server read it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {k: v[-1] for k, v in parse_qs(urlsplit(self.target).query).items()}

    def header(self, name: str) -> str | None:
        """The values of a header, joined; None if it was not sent."""
        found = [v for k, v in self.headers if k.lower() == name.lower()]
        return ", ".join(found) if found else None


@dataclass(eq=False)
class Line:
    """One connection as a fault sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    released: asyncio.Event
    number: int = 0
    answered: int = 0

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        await self.say("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def chunk(self, data: bytes) -> None:
        await self.say(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """End it with a reset instead of a goodbye."""
        end = self.writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def silence(self) -> None:
        """Say nothing until the other side has gone."""
        while await self.reader.read(65_536):
            pass


Fault = Callable[[Line, Asked], Awaitable[object]]
FAULTS: dict[str, Fault] = {}
"""Faults by path. One that returns False ends the connection."""


def fault(path: str) -> Callable[[Fault], Fault]:
    def keep(made: Fault) -> Fault:
        FAULTS[path] = made
        return made

    return keep


@dataclass
class Faults:
    """The server: where it is, what it was asked, how many connections are open."""

    tls: object = None
    requests: list[Asked] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    port: int = 0

    async def __aenter__(self):
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Task] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def here(self) -> str:
        """The server as `allow` names it."""
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"{'https' if self.tls else 'http'}://{self.here}{path}"

    def release(self) -> None:
        """Let go of the requests that are held."""
        self._released.set()

    async def until_open(self, count: int) -> None:
        """Wait until at most so many connections are open."""
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(lambda: self.open <= count)

    async def until_asked(self, count: int) -> None:
        """Wait until so many requests were read."""
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        await self._count(1)
        try:
            await self._speak(Line(reader, writer, self._released, self.connections))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)
            await self._count(-1)

    async def _count(self, by: int) -> None:
        async with self._changed:
            self.open += by
            self._changed.notify_all()

    async def _speak(self, line: Line) -> None:
        while True:
            asked = await self._read(line)
            self.requests.append(asked)
            await self._count(0)
            if await FAULTS.get(asked.path, missing)(line, asked) is False:
                return
            line.answered += 1

    async def _read(self, line: Line) -> Asked:
        head = (await line.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head[:-4].split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(k, v.strip()) for k, _, v in (text.partition(":") for text in rest)]
        asked = Asked(method, target, headers)
        length = int(asked.header("content-length") or 0)
        if length and asked.path not in {"/never-reads", "/answers-early"}:
            asked.body = await line.reader.readexactly(length)
        return asked


class Deaf:
    """A port whose queue is full: who connects to it waits for ever."""

    async def __aenter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = self._listener.getsockname()[1]
        self._callers = [socket.socket() for _ in range(4)]
        for caller in self._callers:
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(("127.0.0.1", self.port))
        return self

    async def __aexit__(self, *_: object) -> None:
        for end in (*self._callers, self._listener):
            end.close()


# --- plain answers --------------------------------------------------------------------------


@fault("/ok")
async def ok(line: Line, asked: Asked) -> None:
    await line.say(OK if asked.method != "HEAD" else OK[:-2])


async def missing(line: Line, asked: Asked) -> None:
    """A path that is no fault."""
    await line.answer(b"", status="404 Not Found")


@fault("/status")
async def status(line: Line, asked: Asked) -> None:
    code = int(asked.query["code"])
    if code in {204, 304}:
        await line.say(f"HTTP/1.1 {code} X\r\n\r\n".encode())
    else:
        await line.answer(b"{}", *asked.query.get("with", "X: 1").split("|"), status=f"{code} X")


@fault("/line")
async def which_line(line: Line, asked: Asked) -> None:
    """Says which connection this is."""
    await line.answer(str(line.number).encode())


@fault("/cookie")
async def cookie(line: Line, asked: Asked) -> None:
    await line.answer(b"ok", "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2", "Vary: x", "vary: y")


@fault("/latin")
async def latin(line: Line, asked: Asked) -> None:
    await line.answer(b"ok", "X-Name: M\xfcller")


@fault("/large")
async def large(line: Line, asked: Asked) -> None:
    await line.answer(b"x" * int(asked.query["size"]))


@fault("/large-chunked")
async def large_chunked(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await line.chunk(b"x" * 65_536)


@fault("/http10")
async def http10(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.0 200 OK\r\n\r\nto the end")
    return False


@fault("/no-length")
async def no_length(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end")
    return False


@fault("/informed")
async def informed(line: Line, asked: Asked) -> None:
    await line.say(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK)


@fault("/204-with-body")
async def no_content(line: Line, asked: Asked) -> None:
    await line.say(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")


# --- connections that end or do not ---------------------------------------------------------


@fault("/reset")
async def reset(line: Line, asked: Asked) -> bool:
    line.reset()
    return False


@fault("/close")
async def close(line: Line, asked: Asked) -> bool:
    return False


@fault("/reset-in-head")
async def reset_in_head(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nContent-")
    await asyncio.sleep(PAUSE)
    line.reset()
    return False


@fault("/close-in-head")
async def close_in_head(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 2")
    return False


@fault("/reset-in-body")
async def reset_in_body(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await asyncio.sleep(PAUSE)
    line.reset()
    return False


@fault("/dies-once")
async def dies_once(line: Line, asked: Asked) -> bool | None:
    """The first connection to ask dies without a byte; others are answered."""
    if line.number == 1:
        return False
    return await ok(line, asked)


@fault("/dies-when-reused")
async def dies_when_reused(line: Line, asked: Asked) -> bool | None:
    """A connection is good for one request; the next on it is met with silence and an end."""
    if line.answered:
        return False
    await line.answer(str(line.number).encode())
    return None


@fault("/closes-idle")
async def closes_idle(line: Line, asked: Asked) -> bool:
    await line.say(OK)
    return False


@fault("/talks-on")
async def talks_on(line: Line, asked: Asked) -> None:
    """After its answer it sends another that nobody asked for."""
    await line.say(OK)
    await asyncio.sleep(PAUSE)
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")


@fault("/answers-twice")
async def answers_twice(line: Line, asked: Asked) -> None:
    await line.say(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")


@fault("/silent")
async def silent(line: Line, asked: Asked) -> bool:
    await line.silence()
    return False


@fault("/stalls")
async def stalls(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await line.silence()
    return False


@fault("/never-reads")
async def never_reads(line: Line, asked: Asked) -> bool:
    line.writer.transport.pause_reading()
    await line.released.wait()
    return False


@fault("/answers-early")
async def answers_early(line: Line, asked: Asked) -> bool:
    """Answers without having read the body, and reads nothing more."""
    line.writer.transport.pause_reading()
    await line.answer(b"no", *asked.query.get("with", "X: 1").split("|"), status="413 X")
    await line.released.wait()
    return False


@fault("/announces")
async def announces(line: Line, asked: Asked) -> bool:
    """Says how much will come, and sends nothing of it."""
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n")
    await line.silence()
    return False


@fault("/held")
async def held(line: Line, asked: Asked) -> None:
    """Answers when the test says so."""
    await line.released.wait()
    await line.say(OK)


@fault("/drip")
async def drip(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    return await _drip(line, b"x")


@fault("/drip-head")
async def drip_head(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    return await _drip(line, b"x")


@fault("/drip-chunks")
async def drip_chunks(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    return await _drip(line, b"1\r\nx\r\n")


@fault("/drip-informed")
async def drip_informed(line: Line, asked: Asked) -> bool:
    return await _drip(line, b"HTTP/1.1 100 Continue\r\n\r\n")


async def _drip(line: Line, data: bytes) -> bool:
    while True:
        await line.say(data)
        await asyncio.sleep(PAUSE)


# --- messages that are not what they say ----------------------------------------------------


@fault("/too-long")
async def too_long(line: Line, asked: Asked) -> bool:
    """Content-Length says more than comes."""
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")
    return False


@fault("/too-short")
async def too_short(line: Line, asked: Asked) -> None:
    """Content-Length says less than comes."""
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more")


@fault("/two-lengths")
async def two_lengths(line: Line, asked: Asked) -> None:
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!")


@fault("/bad-length")
async def bad_length(line: Line, asked: Asked) -> None:
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok")


@fault("/bad-chunks")
async def bad_chunks(line: Line, asked: Asked) -> None:
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nnonsense\r\n")


@fault("/cut-chunks")
async def cut_chunks(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
    return False


@fault("/not-http")
async def not_http(line: Line, asked: Asked) -> None:
    await line.say(b"SSH-2.0-OpenSSH_9.2p1\r\n")


@fault("/script")
async def script(line: Line, asked: Asked) -> bool:
    """Says the bytes that `hex` holds, and ends."""
    await line.say(bytes.fromhex(asked.query.get("hex", "")))
    return False


@fault("/upgrade")
async def upgrade(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxx")
    await line.silence()
    return False


@fault("/long-header")
async def long_header(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n")
    return False


@fault("/wide-head")
async def wide_head(line: Line, asked: Asked) -> bool:
    """No header is too long, all together are."""
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"x" * 1_000) for n in range(20))
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + lines + b"\r\nok")
    return False


@fault("/endless-headers")
async def endless_headers(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\n")
    while True:
        await line.say(b"X-More: x\r\n" * 100)


@fault("/endless-header")
async def endless_header(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 200 OK\r\nX-Endless: ")
    while True:
        await line.say(b"x" * 10_000)


# --- encodings ------------------------------------------------------------------------------


def raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


TEXT = b'{"text": "' + b"0123456789" * 1_000 + b'"}'
ENCODED: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("X-GZIP", gzip.compress(TEXT)),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "bare-deflate": ("deflate", raw_deflate(TEXT)),
    "br": ("br", brotli.compress(TEXT)),
    "identity": ("identity", TEXT),
    "members": ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
    "two": ("gzip, br", brotli.compress(gzip.compress(TEXT))),
    "three": ("gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(TEXT)))),
    "unknown": ("zstd", b"anything"),
    "mislabelled-gzip": ("gzip", TEXT),
    "mislabelled-br": ("br", TEXT),
    "mislabelled-deflate": ("deflate", TEXT),
    "cut-gzip": ("gzip", gzip.compress(TEXT)[:-9]),
    "cut-gzip-checksum": ("gzip", gzip.compress(TEXT)[:-4]),
    "cut-deflate": ("deflate", zlib.compress(TEXT)[:-5]),
    "cut-br": ("br", brotli.compress(TEXT)[:-5]),
    "cut-member": ("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:20]),
    "bad-checksum": ("gzip", gzip.compress(TEXT)[:-8] + b"\0" * 8),
    "after-gzip": ("gzip", gzip.compress(TEXT) + b"more"),
    "after-deflate": ("deflate", zlib.compress(TEXT) + b"more"),
    "after-br": ("br", brotli.compress(TEXT) + b"more"),
    "empty-gzip": ("gzip", b""),
    "members-bomb": ("gzip", gzip.compress(b"") * 2_000),
}


@fault("/encoded")
async def encoded(line: Line, asked: Asked) -> None:
    """An encoding of `TEXT`, in pieces that cut it anywhere."""
    name, data = ENCODED[asked.query["as"]]
    await line.say(
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\nContent-Encoding: {name}\r\n\r\n".encode()
    )
    for start in (0, 1, 3, 10) if asked.method != "HEAD" else ():
        await line.say(data[start : {0: 1, 1: 3, 3: 10, 10: None}[start]])
        await asyncio.sleep(0)


@fault("/cut-and-gone")
async def cut_and_gone(line: Line, asked: Asked) -> bool:
    """Nothing of a gzip body comes, and no length says that this is all."""
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
    return False


@fault("/bomb")
async def bomb(line: Line, asked: Asked) -> bool:
    """Zeros without end, squeezed while they are sent."""
    kind = asked.query["as"]
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: {kind}\r\n\r\n"
    await line.say(head.encode())
    squeeze = brotli.Compressor(quality=1) if kind == "br" else zlib.compressobj(1, wbits=31)
    put = squeeze.process if kind == "br" else squeeze.compress
    flush = squeeze.flush if kind == "br" else lambda: squeeze.flush(zlib.Z_SYNC_FLUSH)
    zeros = bytes(1_000_000)
    while True:
        await line.chunk(put(zeros) + flush())
        await asyncio.sleep(0)


# --- redirects ------------------------------------------------------------------------------


@fault("/redirect")
async def redirect(line: Line, asked: Asked) -> None:
    """`to` where, with `code`; `body` for one that never ends."""
    lines = [f"Location: {where}" for where in asked.query["to"].split("|")]
    await line.answer(b"elsewhere", *lines, status=f"{asked.query.get('code', '302')} X")


@fault("/count")
async def count(line: Line, asked: Asked) -> None:
    """Redirects `left` times, then answers."""
    left = int(asked.query["left"])
    if left:
        await line.answer(b"", f"Location: /count?left={left - 1}", status="302 X")
    else:
        await line.say(OK)


@fault("/loop")
async def loop(line: Line, asked: Asked) -> None:
    await line.answer(b"", "Location: /loop", status="302 X")


@fault("/redirect-with-drip")
async def redirect_with_drip(line: Line, asked: Asked) -> bool:
    await line.say(b"HTTP/1.1 302 X\r\nContent-Length: 1000000\r\nLocation: /ok\r\n\r\n")
    return await _drip(line, b"x")


@fault("/nowhere")
async def nowhere(line: Line, asked: Asked) -> None:
    """A redirect without a place."""
    await line.answer(b"stay", status="302 X")
