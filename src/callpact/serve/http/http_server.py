"""The MCP door over Streamable HTTP: the SDK's application on uvicorn, behind a guard.

Without authentication (`auth/bearer.py`) it is bound to this machine only, unless the operator
trusts the network. Foreign web pages cannot use it: requests with a foreign `Host` or `Origin` are
refused (`guard.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse, Response

from callpact.errors import InvalidConfig
from callpact.net.address import Refused as BadHost
from callpact.net.address import normal_host
from callpact.serve.auth.bearer import Caller
from callpact.serve.concurrency import CallerSlots
from callpact.serve.http.guard import Guard, HostPolicy, HttpLimits, SlowClients, is_loopback
from callpact.serve.http.sessions import Sessions
from callpact.serve.http.uvicorn_protocol import HttpConnection
from callpact.serve.http.worker_relay import RelayedPeers, WorkerRelay
from callpact.serve.mcp.direct_calls import DirectCalls
from callpact.serve.mcp.door import DoorServer
from callpact.serve.mcp.prebuilt import PrebuiltBodies
from callpact.serve.mcp.session_calls import SessionCalls
from callpact.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

    from callpact.serve.auth.bearer import Authentication
    from callpact.serve.http.worker_channel import WorkerChannel
    from callpact.serve.rest.rest_door import RestDoor

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8420
DEFAULT_PATH = "/mcp"
METRICS_PATH = "/metrics"
METRICS_SCOPE = "metrics"
"""The scope that callers need for the page, if the server authenticates them."""
MAX_IDLE_SECONDS = 65
"""Seconds that a connection over HTTP may idle between requests."""
MAX_ENDING_SECONDS = 5
"""Seconds that running calls over HTTP have when the server stops."""

_log = logging.getLogger("callpact.serve.http")
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PATH = re.compile(r"/|(/[A-Za-z0-9._~-]+)+/?")
_WORDS = {
    errno.EADDRINUSE: "another program is there already; use another --port",
    errno.EACCES: "this user may not; use a --port above 1023",
}


def check_place(
    host: str,
    port: int,
    path: str,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    authentication: Authentication | None = None,
    trust_network: bool = False,
) -> HostPolicy:
    """Refuse an address that cannot or must not be served; returns the accepted hosts and origins.

    With `trust_network` an address for others needs no authentication.

    Raises:
        InvalidConfig: the address is refused; the text names the remedy.
    """
    named = {_host(name) for name in hosts}
    bare = _bare(host)
    if authentication is None and not trust_network:
        if not is_loopback(bare):
            raise InvalidConfig(
                f"--host {host}: without authentication the tools are served on this machine "
                f"alone, or everybody who reaches it could call them; use {DEFAULT_HOST}, or name "
                "who may call them in callpact.toml: [serve.tokens.NAME] or [serve.oauth]; if "
                "everybody may, as in a container's own network: --trust-network"
            )
        if named:
            raise InvalidConfig(
                "[serve] hosts: without authentication the tools are served under the names of "
                "this machine alone; name who may call them: [serve.tokens.NAME] or [serve.oauth]; "
                "if everybody may who reaches the server: trust_network = true"
            )
    elif authentication is not None and authentication.host is not None:
        named.add(authentication.host)
    if not is_loopback(bare):
        if not _is_everywhere(bare):
            named.add(bare.lower())
        if not named:
            raise InvalidConfig(
                f"--host {host}: say under which names the server is asked for, or web pages could "
                'use one of theirs: hosts = ["tools.example.com"] under [serve]'
            )
    if not 0 <= port <= 65_535:
        raise InvalidConfig(f"--port {port}: a port is a number from 0 to 65535")
    if not _PATH.fullmatch(path):
        raise InvalidConfig(
            f"--path {path}: a path is '/' and letters, digits or '.', '_', '~', '-', as in "
            f"{DEFAULT_PATH}"
        )
    if path.rstrip("/") == METRICS_PATH:
        raise InvalidConfig(f"--path {path}: that is where numbers for Prometheus stand")
    return HostPolicy(frozenset(named), frozenset(map(_origin, origins)))


def _host(name: str) -> str:
    try:
        return normal_host(f"[{name}]" if name.count(":") > 1 and "[" not in name else name)
    except BadHost:
        raise InvalidConfig(
            f"[serve] hosts: expected a name without scheme and port, as in tools.example.com, "
            f"got {name!r:.100}"
        ) from None


def _origin(origin: str) -> str:
    if not _ORIGIN.fullmatch(origin):
        raise InvalidConfig(
            "[serve] origins: expected scheme, host and port as browsers send them, as in "
            f"https://app.example.com, got {origin!r:.100}"
        )
    return origin.lower()


def _is_everywhere(host: str) -> bool:
    """True for the wildcard address of this machine."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


async def serve_http(
    server: Server[Any],
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    path: str = DEFAULT_PATH,
    limits: HttpLimits | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    authentication: Authentication | None = None,
    trust_network: bool = False,
    bound: socket.socket | None = None,
    page: Callable[[], bytes] | None = None,
    rest: RestDoor | None = None,
    draft: Server[Any] | None = None,
    on_ready: Callable[[str], None] | None = None,
    channel: WorkerChannel | None = None,
) -> None:
    """Serve until the task is cancelled; `on_ready` is called with the address.

    Running calls then have `MAX_ENDING_SECONDS`. With `authentication` every caller needs a token,
    and only then, or with `trust_network`, may the address be public: under the names in `hosts`,
    and for the web pages in `origins`. `bound` is the socket from `reserve`, `page` renders /metrics, `rest` serves plain
    HTTP beside MCP, whose path comes first, `draft` is served at `PATH/draft`. A worker gets its connections from `channel`.

    Raises:
        InvalidConfig: the address cannot be served.
    """
    host_policy = check_place(
        host,
        port,
        path,
        hosts=hosts,
        origins=origins,
        authentication=authentication,
        trust_network=trust_network,
    )
    limits = limits or HttpLimits()
    async with contextlib.AsyncExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(bound or reserve(host, port)))
        bound_port = listening.getsockname()[1]
        if channel is None:
            with explained(host, port):  # Two processes may bind an address; only one can listen.
                listening.listen()
        else:
            listening.close()
        guard = await stack.enter_async_context(
            guarded_app(
                server,
                path=path,
                limits=limits,
                host_policy=host_policy,
                authentication=authentication,
                page=page,
                rest=rest,
                draft=draft,
                channel=channel,
            )
        )
        running = _Uvicorn(
            _config(guard, limits, channel), SlowClients(limits.client_seconds), channel
        )
        if on_ready is not None:
            shown = f"[{_bare(host)}]" if ":" in host else host
            address = f"http://{shown}:{bound_port}{path}"
            running.on_ready = lambda: on_ready(address)
        serving = asyncio.ensure_future(
            running.serve(sockets=[listening] if channel is None else [])
        )
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            guard.stop()
            if rest is not None:
                rest.stop()
            running.should_exit = True
            await serving
            raise


@contextlib.asynccontextmanager
async def guarded_app(
    server: Server[Any],
    *,
    path: str,
    host_policy: HostPolicy,
    limits: HttpLimits | None = None,
    authentication: Authentication | None = None,
    page: Callable[[], bytes] | None = None,
    rest: RestDoor | None = None,
    draft: Server[Any] | None = None,
    channel: WorkerChannel | None = None,
) -> AsyncGenerator[Guard]:
    """Yield the ASGI application of a server, behind its guard; it needs no lifespan of its own."""
    limits = limits or HttpLimits()
    async with contextlib.AsyncExitStack() as stack:
        if authentication is not None:
            stack.push_async_callback(authentication.aclose)
            authentication.start()
        is_open = authentication is None
        inner = _mcp_app(server, path, limits, is_open=is_open)
        if draft is not None:
            below = f"{path.rstrip('/')}/draft"
            inner = DraftEndpoint(inner, below, _mcp_app(draft, below, limits, is_open=is_open))
            await stack.enter_async_context(draft.session_manager.run())
        if page is not None:
            inner = MetricsEndpoint(inner, page, is_open=is_open)
        if channel is not None:
            inner = WorkerRelay(inner, channel)
        guard = Guard(
            inner,
            limits,
            path=path,
            host_policy=host_policy,
            authenticator=authentication,
            plain=rest,
        )
        await stack.enter_async_context(server.session_manager.run())
        yield guard


def _mcp_app(server: Server[Any], path: str, limits: HttpLimits, *, is_open: bool) -> ASGIApp:
    """The ASGI application of one MCP endpoint; without tokens if it `is_open`."""
    app = server.streamable_http_app(
        streamable_http_path=path,
        max_request_body_size=limits.body_bytes,
        max_sessions=None,  # `sessions.py` counts them by caller.
        # The guard has checked every path already, and knows the configured host names.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    # The SDK binds request state to the caller in this context.
    bound_app = app if is_open else AuthContextMiddleware(app)
    door = server.door if isinstance(server, DoorServer) else None
    if door is None or not door.has_direct_calls:
        counted = PrebuiltBodies(Sessions(bound_app, limits.sessions))
    else:
        sessions = Sessions(SessionCalls(bound_app, door), limits.sessions)
        counted = DirectCalls(PrebuiltBodies(sessions), door)

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        # A 404 of another path says nothing about a session.
        await (counted if scope["path"] == path else bound_app)(scope, receive, send)

    return routed


class DraftEndpoint:
    """ASGI middleware that serves the draft at its path, and passes on every other request."""

    def __init__(self, app: ASGIApp, path: str, draft: ASGIApp) -> None:
        self._app = app
        self._path = path
        self._draft = draft

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_draft = scope["type"] == "http" and scope["path"].rstrip("/") == self._path
        await (self._draft if is_draft else self._app)(scope, receive, send)


class MetricsEndpoint:
    """ASGI middleware that serves `GET /metrics` and passes on every other request.

    The page lists all tools. With authentication it therefore needs the scope `metrics`; without,
    everybody who reaches the server may call them too.
    """

    def __init__(self, app: ASGIApp, page: Callable[[], bytes], *, is_open: bool) -> None:
        self._app = app
        self._page = page
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != METRICS_PATH:
            await self._app(scope, receive, send)
            return
        await self._response(scope)(scope, receive, send)

    def _response(self, scope: Scope) -> Response:
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("GET it", 405, {"allow": "GET, HEAD"})
        caller = scope.get("user")
        held = caller.verified.identity.scopes if isinstance(caller, Caller) else ()
        if not self._is_open and METRICS_SCOPE not in held:
            return PlainTextResponse(f"The token lacks the scope '{METRICS_SCOPE}'", 403)
        return Response(self._page(), headers={"content-type": CONTENT_TYPE})


def _config(
    guard: Guard, limits: HttpLimits, channel: WorkerChannel | None = None
) -> uvicorn.Config:
    slots: CallerSlots[HttpConnection] = CallerSlots(limits.connections)
    # Its warnings are about requests that are refused here with an answer.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return uvicorn.Config(
        guard if channel is None else RelayedPeers(guard),
        http=cast("Any", partial(HttpConnection, slots, limits.header_bytes)),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=MAX_IDLE_SECONDS,
        timeout_graceful_shutdown=MAX_ENDING_SECONDS,
        lifespan="off",
    )


class _Uvicorn(uvicorn.Server):
    """Reports when it is ready, resets slow clients, and installs no signal handlers."""

    on_ready: Callable[[], None] | None = None

    def __init__(
        self, config: uvicorn.Config, slow: SlowClients, channel: WorkerChannel | None = None
    ) -> None:
        super().__init__(config)
        self._slow = slow
        self._channel = channel
        self._accepting: set[asyncio.Future[Any]] = set()
        self._relayed: CallerSlots[HttpConnection] = CallerSlots(1 << 30)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._channel is not None and self.started:
            self._channel.begin(self._accept)
        if self.on_ready is not None and self.started:
            self.on_ready()

    def _accept(self, connected: socket.socket, is_relayed: bool) -> None:  # noqa: FBT001 - a callback
        """Serve a connection that the supervisor accepted, or one of another worker."""
        connected.setblocking(False)
        made: Any = self.config.http_protocol_class
        if is_relayed:
            made = partial(HttpConnection, self._relayed, *made.args[1:])
        make = partial(
            made, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(loop.connect_accepted_socket(make, connected))
        self._accepting.add(task)
        task.add_done_callback(self._accepted)

    def _accepted(self, task: asyncio.Future[Any]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.warning("a connection cannot be served: %s", task.exception())

    async def on_tick(self, counter: int) -> bool:
        self._slow.cut(tuple(self.server_state.connections), asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._channel is not None:
            self._channel.close()
        await super().shutdown(sockets)
        if self.server_state.tasks:  # uvicorn has cancelled them; wait for their end.
            await asyncio.wait(self.server_state.tasks, timeout=1)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _bare(host: str) -> str:
    """Return an IPv6 address without its brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def reserve(host: str, port: int) -> socket.socket:
    """Bind a socket, so that an address in use is reported before anything is loaded.

    The socket does not listen yet: a client is refused at once instead of waiting for the start.

    Raises:
        InvalidConfig: the address cannot be bound.
    """
    with explained(host, port), contextlib.ExitStack() as stack:
        found = socket.getaddrinfo(_bare(host), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        bound = stack.enter_context(socket.socket(family, kind, protocol))
        if os.name == "posix":  # On Windows it would let two programs share a port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        stack.pop_all()
        return bound


@contextlib.contextmanager
def explained(host: str, port: int) -> Generator[None]:
    """Raise `InvalidConfig` for an address that cannot be bound, or listen."""
    try:
        yield
    except OSError as error:
        words = _WORDS.get(error.errno or 0, error.strerror or error)
        raise InvalidConfig(f"cannot serve on {_bare(host)}, port {port}: {words}") from None
