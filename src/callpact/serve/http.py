"""The MCP door over Streamable HTTP: the SDK's application on uvicorn, behind a guard.

Without authentication it is bound to this machine alone, and no web page can drive it: requests
with a foreign `Host` or `Origin` are refused (`guard.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from callpact.errors import InvalidConfig
from callpact.serve.guard import Guard, Limits, SlowClients, is_loopback

if TYPE_CHECKING:
    from mcp.server import Server

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8420
DEFAULT_PATH = "/mcp"
MAX_IDLE_SECONDS = 65
"""Seconds that a connection over HTTP may idle between requests."""
MAX_ENDING_SECONDS = 5
"""Seconds that calls under way over HTTP have when the server is told to stop."""

_PATH = re.compile(r"/|(/[A-Za-z0-9._~-]+)+/?")
_WORDS = {
    errno.EADDRINUSE: "another program is there already; use another --port",
    errno.EACCES: "this user may not; use a --port above 1023",
}


def check_place(host: str, port: int, path: str) -> None:
    """Refuse a place that cannot or must not be served.

    Raises:
        InvalidConfig: with what to do instead.
    """
    if not is_loopback(_bare(host)):
        raise InvalidConfig(
            f"--host {host}: without authentication the tools are served on this machine alone, or "
            f"whoever reaches it could call them; use {DEFAULT_HOST}"
        )
    if not 0 <= port <= 65_535:
        raise InvalidConfig(f"--port {port}: a port is a number from 0 to 65535")
    if not _PATH.fullmatch(path):
        raise InvalidConfig(
            f"--path {path}: a path is '/' and letters, digits or '.', '_', '~', '-', as in "
            f"{DEFAULT_PATH}"
        )


async def serve_http(
    server: Server[Any],
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    path: str = DEFAULT_PATH,
    limits: Limits | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until the task is cancelled; `on_ready` gets the address.

    Calls under way are given `MAX_ENDING_SECONDS` then.

    Raises:
        InvalidConfig: the place cannot be served.
    """
    check_place(host, port, path)
    limits = limits or Limits()
    with contextlib.closing(_bound(_bare(host), port)) as listening:
        app = server.streamable_http_app(
            streamable_http_path=path,
            max_request_body_size=limits.body_bytes,
            max_sessions=limits.sessions,
            # The guard has looked already, at every path, and names the machine's other addresses.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        guard = Guard(app, limits)
        running = _Uvicorn(_config(guard, limits), SlowClients(limits.client_seconds))
        if on_ready is not None:
            shown = f"[{_bare(host)}]" if ":" in host else host
            address = f"http://{shown}:{listening.getsockname()[1]}{path}"
            running.on_ready = lambda: on_ready(address)
        async with server.session_manager.run():
            serving = asyncio.ensure_future(running.serve(sockets=[listening]))
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                guard.stop()
                running.should_exit = True
                await serving
                raise


def _config(guard: Guard, limits: Limits) -> uvicorn.Config:
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return uvicorn.Config(
        guard,
        http="h11",  # The only one of uvicorn's readers that bounds headers.
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_keep_alive=MAX_IDLE_SECONDS,
        timeout_graceful_shutdown=MAX_ENDING_SECONDS,
        lifespan="off",
    )


class _Uvicorn(uvicorn.Server):
    """Says when it can be reached, cuts off slow clients, and leaves signals to whoever runs it."""

    on_ready: Callable[[], None] | None = None

    def __init__(self, config: uvicorn.Config, slow: SlowClients) -> None:
        super().__init__(config)
        self._slow = slow

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_ready is not None and self.started:
            self.on_ready()

    async def on_tick(self, counter: int) -> bool:
        self._slow.cut(tuple(self.server_state.connections), asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:  # They had their time and were cancelled; that takes a moment.
            await asyncio.wait(self.server_state.tasks, timeout=1)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _bare(host: str) -> str:
    """An address of IPv6 without its brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a port that is taken shows before anything is served."""
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listening = socket.socket(family, kind, protocol)
        if os.name == "posix":  # Elsewhere it would let two programs share a port.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        if listening is not None:
            listening.close()
        words = _WORDS.get(error.errno or 0, error.strerror or error)
        raise InvalidConfig(f"cannot serve on {host}, port {port}: {words}") from None
    return listening
