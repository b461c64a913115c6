"""An MCP server as a child process: one JSON-RPC message a line, both ways, within limits.

A transport for the SDK's client. Its own one reads lines of any length; this one ends a server
whose line is longer than `MAX_LINE_BYTES`, and logs what the server writes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from callpact.errors import UpstreamError
from callpact.sources.mcp.server_settings import ServerSettings, environment

MAX_LINE_BYTES = 20_000_000
"""Bytes of one line that a server may write: one message."""
MAX_ERROR_LINE = 2_000
"""Characters of a line of a server's standard error that are logged."""
STOP_SECONDS = 2.0
"""Seconds that a server has to end when its input closes, and again when it is asked to."""

_log = logging.getLogger("callpact.sources.mcp")
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
Streams = tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]


@asynccontextmanager
async def stdio_process(settings: ServerSettings) -> AsyncGenerator[Streams]:
    """Run a server, and give the streams of its messages.

    Raises:
        UpstreamError: it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *settings.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(settings),
            cwd=settings.folder,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UpstreamError(f"'{settings.name}' cannot be started: {reason}") from None
    read_in, read_out = anyio.create_memory_object_stream[Any](0)
    write_in, write_out = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.create_task(_read(process, settings, read_in)),
        asyncio.create_task(_write(process, write_out, read_in)),
        asyncio.create_task(_log_errors(process, settings)),
    ]
    try:
        yield read_out, write_in
    finally:
        ending = asyncio.create_task(_stop(process))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, ending, return_exceptions=True)
        for stream in (read_in, read_out, write_in, write_out):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process,
    settings: ServerSettings,
    send: MemoryObjectSendStream[Any],
) -> None:
    """Pass on every message; a line that is not a message is logged, and one too long ends the server."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    async with send:
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                _log.error("%s: a line of more than %s bytes", settings.name, f"{MAX_LINE_BYTES:,}")
                return
            if not line.strip():
                continue
            try:
                # Strict and deep: the SDK's own reader takes NaN, and refuses 200 levels.
                read = msgspec.json.decode(line)
                message = types.jsonrpc_message_adapter.validate_python(read, by_name=False)
            except (ValueError, RecursionError):
                _log.warning("%s: a line that is no message: %.200r", settings.name, line[:200])
                message = _unreadable(line)
                if message is None:
                    continue
            try:
                await send.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def _unreadable(line: bytes) -> types.JSONRPCError | None:
    """The error of the request that a line seems to answer, so that nobody waits for it in vain."""
    found = _ID.search(line[:200]) or _ID.search(line[-200:])
    if found is None or b'"jsonrpc"' not in line[:200] + line[-200:]:
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="its answer is not readable as JSON")
    return types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)


async def _write(
    process: asyncio.subprocess.Process,
    receive: MemoryObjectReceiveStream[Any],
    read_in: MemoryObjectSendStream[Any],
) -> None:
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    try:
        async for message in receive:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except (OSError, anyio.ClosedResourceError):
        read_in.close()  # The session ends, so that nobody waits for an answer.


async def _log_errors(process: asyncio.subprocess.Process, settings: ServerSettings) -> None:
    """Log the lines of standard error, however long each is."""
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    rest = b""
    while chunk := await process.stderr.read(65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if text := line[:MAX_ERROR_LINE].decode("utf-8", "replace").strip():
                _log.info("%s: %s", settings.name, text)
        rest = rest[:MAX_ERROR_LINE]


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Close its input, then terminate, then kill it with its children."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
            return
