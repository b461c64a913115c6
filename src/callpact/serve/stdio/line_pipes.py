"""Reading and writing of lines on blocking file descriptors with asyncio.

Works with pipes, sockets, terminals and files; a thread is used only where the loop can watch none
of them (Windows). The descriptors may be shared with other processes, so they are never made
non-blocking: that would also affect standard error on the same terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

_CHUNK_BYTES = 64 << 10
_BOM = b"\xef\xbb\xbf"
# Bytes that a pipe accepts without blocking once poll reports it ready (POSIX).
_PIECE_BYTES = getattr(select, "PIPE_BUF", 512)
_log = logging.getLogger("callpact.serve.stdio")


class LineTooLong(Exception):
    """A line was longer than allowed; its rest is discarded, and the next one can be read."""


class LineReader:
    """Reads the non-empty lines of a descriptor; a byte order mark at the start is dropped."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor = descriptor
        self._lines = _Lines(most)
        self._is_ended = self._is_stopped = False
        self._coming: asyncio.Future[bytes] | None = None

    async def read(self) -> bytes:
        """Return the next line without its line break, which the last line may lack.

        Raises:
            LineTooLong: the line exceeds the limit; raised as soon as that is known.
            EOFError: there are no more lines.
        """
        while not self._is_stopped:
            if self._lines.whole:
                line = self._lines.whole.popleft()
                if line is None:
                    raise LineTooLong
                return line
            if self._is_ended:
                break
            chunk = await self._chunk()
            if chunk:
                self._lines.feed(chunk)
            else:
                self._is_ended = True
                self._lines.end()
        raise EOFError

    def stop(self) -> None:
        """Stop reading and wake the reader."""
        self._is_stopped = True
        if self._coming is not None and not self._coming.done():
            self._coming.set_result(b"")

    async def _chunk(self) -> bytes:
        """Read the next bytes; empty at the end."""
        loop = asyncio.get_running_loop()
        self._coming = coming = loop.create_future()
        is_watched = False
        try:
            loop.add_reader(self._descriptor, self._read_into, coming)
            is_watched = True
        except PermissionError:  # A file: it cannot be watched, and never blocks.
            loop.call_soon(self._read_into, coming)
        except NotImplementedError:  # Windows
            _start(partial(os.read, self._descriptor, _CHUNK_BYTES), coming)
        try:
            return await coming
        except OSError as error:
            _log.info("the input has ended: %s", error)
            return b""
        finally:
            if is_watched:
                loop.remove_reader(self._descriptor)

    def _read_into(self, coming: asyncio.Future[bytes]) -> None:
        if coming.done():
            return
        try:
            coming.set_result(os.read(self._descriptor, _CHUNK_BYTES))
        except BlockingIOError:  # Another process made it non-blocking, and there is no data.
            return
        except OSError as error:
            coming.set_exception(error)


class _Lines:
    """Splits chunks into lines; None replaces a line that is too long."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self._is_first = True
        self._is_skipping = False
        self.whole: deque[bytes | None] = deque()

    def feed(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._hold(part)
            self.end()
        self._hold(rest)

    def end(self) -> None:
        """End the current line."""
        line = bytes(self._held)
        if self._is_first:
            line = line.removeprefix(_BOM)
        if line and not line.isspace():
            self.whole.append(line)
        self._held = bytearray()
        self._is_first = self._is_skipping = False

    def _hold(self, part: bytes) -> None:
        if self._is_skipping:
            return
        self._held += part
        if len(self._held) > self._most:
            self.whole.append(None)
            self._held = bytearray()
            self._is_skipping = True


class LineWriter:
    """Writes whole lines to a descriptor in order, without blocking the loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_ready = _polled(descriptor)
        self._unsent: deque[_Unsent] = deque()
        self._is_broken = False
        self.on_broken: Callable[[], None] = lambda: None
        self.written = 0

    async def write(self, line: bytes, on_end: Callable[[], None] = lambda: None) -> None:
        """Write a line; `on_end` is called when it is written or lost.

        A partly written line is completed even if the task is cancelled.

        Raises:
            BrokenPipeError: the other end is closed.
        """
        rest = memoryview(line)
        if not self._unsent and not self._is_broken:
            rest = self._written(rest)
        if self._is_broken:
            on_end()
            raise BrokenPipeError
        if not rest:
            on_end()
            return
        unsent = _Unsent(rest, on_end, asyncio.get_running_loop().create_future())
        self._unsent.append(unsent)
        if len(self._unsent) == 1:
            self._watch()
        await unsent.sent

    def close(self) -> None:
        """Discard the unwritten lines."""
        if self._unsent:
            self._break()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            loop.add_writer(self._descriptor, self._flush)
        except NotImplementedError:  # Windows
            sent: asyncio.Future[int] = loop.create_future()
            sent.add_done_callback(self._flushed)
            _start(partial(os.write, self._descriptor, self._unsent[0].rest), sent)

    def _unwatch(self) -> None:
        with contextlib.suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().remove_writer(self._descriptor)

    def _flush(self) -> None:
        """Write as many of the pending lines as possible without blocking."""
        while self._unsent:
            rest = self._written(self._unsent[0].rest)
            if self._is_broken:
                return
            self._unsent[0].rest = rest
            if rest:
                return
            self._unsent.popleft().end()
        self._unwatch()

    def _flushed(self, sent: asyncio.Future[int]) -> None:
        """Continue after a write in a thread."""
        if sent.exception() is not None:
            self._break()
        if not self._unsent:
            return
        self.written += sent.result()
        self._unsent[0].rest = self._unsent[0].rest[sent.result() :]
        if not self._unsent[0].rest:
            self._unsent.popleft().end()
        if self._unsent:
            self._watch()

    def _written(self, rest: memoryview) -> memoryview:
        """Write as much as possible without blocking; returns the rest."""
        try:
            while rest and self._is_ready():
                number = os.write(self._descriptor, rest[:_PIECE_BYTES])
                self.written += number
                rest = rest[number:]
        except BlockingIOError:  # Another process made it non-blocking, and the pipe is full.
            pass
        except OSError as error:
            _log.info("the client hung up before it had read every response: %s", error)
            self._break()
        return rest

    def _break(self) -> None:
        self._is_broken = True
        if self._unsent:
            self._unwatch()
        while self._unsent:
            self._unsent.popleft().end(BrokenPipeError())
        self.on_broken()


@dataclass(slots=True)
class _Unsent:
    """The unwritten rest of a line."""

    rest: memoryview
    on_end: Callable[[], None]
    sent: asyncio.Future[None]

    def end(self, error: Exception | None = None) -> None:
        self.on_end()
        _settle(self.sent, None, error)


def _polled(descriptor: int) -> Callable[[], object]:
    """Return a function that is true if `_PIECE_BYTES` can be written without blocking."""
    if sys.platform == "win32":
        return lambda: False
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return partial(poll.poll, 0)


def _start(work: Callable[[], Any], done: asyncio.Future[Any]) -> None:
    """Run blocking work in a daemon thread, and set the future to its result."""
    loop = asyncio.get_running_loop()

    def go() -> None:
        value, failed = None, None
        try:
            value = work()
        except OSError as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(_settle, done, value, failed)

    threading.Thread(target=go, daemon=True).start()


def _settle(waiting: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if waiting.done():  # The waiting task was cancelled.
        return
    if error is None:
        waiting.set_result(value)
    else:
        waiting.set_exception(error)
