"""The MCP door over Streamable HTTP: the SDK's application on uvicorn, within limits.

Without authentication it is bound to this machine alone, and no web page can drive it: requests
with a foreign `Host` or `Origin` are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import uvicorn

from callpact.errors import InvalidConfig

if TYPE_CHECKING:
    from mcp.server import Server

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8420
DEFAULT_PATH = "/mcp"
MAX_BODY_BYTES = 4 << 20
"""Size of a request over HTTP."""
MAX_CONNECTIONS = 1_000
"""Connections at the same time; more are answered with 503."""
MAX_HEADER_BYTES = 64 << 10
"""Size of the line and the headers of a request, if h11 reads it."""
KEEP_ALIVE_SECONDS = 65
"""Seconds that a connection may idle between requests."""
SHUTDOWN_SECONDS = 5
"""Seconds that calls under way have when the server is told to stop."""


def is_loopback(host: str) -> bool:
    """True for an address of this machine that no other can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_place(host: str, port: int, path: str) -> None:
    """Refuse a place that cannot or must not be served.

    Raises:
        InvalidConfig: with what to do instead.
    """
    if not is_loopback(host):
        raise InvalidConfig(
            f"--host {host}: without authentication the tools are served on this machine alone, or "
            f"whoever reaches it could call them; use {DEFAULT_HOST}"
        )
    if not 0 <= port <= 65_535:
        raise InvalidConfig(f"--port {port}: a port is a number from 0 to 65535")
    if not path.startswith("/") or any(sign in path for sign in "?#{} "):
        raise InvalidConfig(f"--path {path}: a path begins with '/', as in {DEFAULT_PATH}")


async def serve_http(
    server: Server[Any],
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    path: str = DEFAULT_PATH,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until the process is told to stop; `on_ready` gets the address.

    Raises:
        InvalidConfig: the place cannot be served.
    """
    check_place(host, port, path)
    listening = _bound(host, port)
    app = server.streamable_http_app(
        streamable_http_path=path, json_response=True, host=DEFAULT_HOST,
        max_request_body_size=MAX_BODY_BYTES,
    )  # fmt: skip
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    running = _Uvicorn(config)
    if on_ready is not None:
        real_port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        running.on_ready = lambda: on_ready(f"http://{shown}:{real_port}{path}")
    with contextlib.closing(listening):
        serving = asyncio.ensure_future(running.serve(sockets=[listening]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            running.should_exit = True  # Calls under way are given their time.
            await serving
            raise


class _Uvicorn(uvicorn.Server):
    """Says when it can be reached, and leaves signals to whoever runs it."""

    on_ready: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_ready is not None and self.started:
            self.on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        words = error.strerror or error
        raise InvalidConfig(f"cannot serve on {host}:{port}: {words}; try another --port") from None
    return listening
