"""Serve tools from Python: `run` until the end, or `asgi_app` under a server of your own.

Both take functions, Tools, modules, catalogs and references to sources, and wire them as `callpact
serve` does: one session, one MCP door, plain HTTP beside it, and an audit log.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from callpact.app import Options, Session
from callpact.catalog import Catalog
from callpact.context import Identity
from callpact.errors import InvalidConfig, UsageError
from callpact.resources import Prompt, Resource
from callpact.serve.event_loop import new_event_loop
from callpact.sources.python.functions import from_functions
from callpact.sources.python.modules import marked_in
from callpact.tool import Tool

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from callpact.serve.auth.bearer import Authentication
    from callpact.serve.http.guard import HostPolicy
    from callpact.serve.mcp.door import Door
    from callpact.serve.rest.rest_door import RestDoor
    from callpact.wire.mcp.published import AdvertiseMode, Rendering

_FROM_CODE = ("code",)
_DOOR_OPTIONS = {
    "instructions",
    "list_up_to",
    "advertise",
    "rendering",
    "result_limit",
    "timeout",
}


class ServerOptions(TypedDict, total=False):
    """The options of `run` and `asgi_app`; the defaults are those of `callpact serve`."""

    name: str
    version: str
    instructions: str
    audit: str
    """The audit log: a folder, `postgresql://…`, or `off`."""
    scopes: Sequence[str]
    """The scopes of callers without a token."""
    list_up_to: int
    advertise: AdvertiseMode
    rendering: Rendering
    result_limit: int
    ask_first: bool
    """Ask the client's user before a tool with `destructiveHint` runs."""
    timeout: float
    """Seconds that a call may take."""


class _Doors(NamedTuple):
    mcp: Door
    rest: RestDoor
    tools: int


def run(
    *tools: Any,
    stdio: bool = False,
    host: str = "127.0.0.1",
    port: int = 8420,
    path: str = "/mcp",
    authentication: Authentication | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    trust_network: bool = False,
    **options: Unpack[ServerOptions],
) -> None:
    """Serve tools over HTTP, or over stdio, until Ctrl-C, SIGTERM or the end of the client.

    `tools` are functions, Tools, modules, catalogs or references such as `flowmcp:catalogue/`;
    without any, the marked functions of the calling module. Over HTTP the tools are at `path` for
    MCP clients and at `/tools/{id}` for all others. With `trust_network` everybody who reaches the
    server may call them, beyond this machine too.

    Raises:
        CallpactError: the tools or the address cannot be served, with the remedy.
    """
    given = tools or (_calling_module(),)

    async def serve() -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows, other threads
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with _doors(given, options, authentication, path) as doors:
            if stdio:
                from callpact.serve.stdio.stdio_server import serve_stdio

                doors.mcp.writes_lines = True
                await serve_stdio(doors.mcp.server)
                return
            from callpact.serve.http.http_server import serve_http

            def ready(address: str) -> None:
                many = "1 tool" if doors.tools == 1 else f"{doors.tools:,} tools"
                sys.stderr.write(f"serving {many} at {address}\n")
                if trust_network and authentication is None:
                    sys.stderr.write("warning: everybody who reaches this port can call them\n")

            await serve_http(
                doors.mcp.server,
                host=host,
                port=port,
                path=path,
                authentication=authentication,
                hosts=hosts,
                origins=origins,
                trust_network=trust_network,
                rest=doors.rest,
                on_ready=ready,
            )

    with (
        contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError),
        asyncio.Runner(loop_factory=None if stdio else new_event_loop) as runner,
    ):
        runner.run(serve())


def asgi_app(
    *tools: Any,
    path: str = "/mcp",
    authentication: Authentication | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    trust_network: bool = False,
    **options: Unpack[ServerOptions],
) -> ASGIApp:
    """Return an ASGI application that serves tools; for any server, or mounted in another app.

    It starts with the server's lifespan, and if it is mounted with its first request. Requests to
    other names than those of this machine need to be in `hosts`; use `authentication` with them,
    or `trust_network` if everybody who reaches the application may call its tools.

    Raises:
        InvalidConfig: the path, a host or an origin cannot be served.
    """
    from callpact.serve.http.http_server import check_place

    # The address is the server's own; the names that it may have are checked as for ours.
    policy = check_place(
        "127.0.0.1",
        0,
        path,
        hosts=hosts,
        origins=origins,
        authentication=authentication,
        trust_network=trust_network,
    )
    given = tools or (_calling_module(),)
    return _Application(given, path, authentication, policy, options)


class _Application:
    """The ASGI application of `asgi_app`."""

    def __init__(
        self,
        tools: tuple[Any, ...],
        path: str,
        authentication: Authentication | None,
        host_policy: HostPolicy,
        options: ServerOptions,
    ) -> None:
        self._tools = tools
        self._path = path
        self._authentication = authentication
        self._host_policy = host_policy
        self._options = options
        self._app: asyncio.Future[ASGIApp] | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            app = await asyncio.shield(self._started())
            await app(_unmounted(scope), receive, send)
        else:
            raise UsageError(f"callpact serves HTTP, and this request is of type {scope['type']!r}")

    def _started(self) -> asyncio.Future[ASGIApp]:
        if self._app is None or (self._app.done() and self._app.exception() is not None):
            self._app = asyncio.get_running_loop().create_future()
            # A task of its own: the SDK's task group must end in the task that began it.
            self._task = asyncio.create_task(self._live(self._app), name="callpact asgi_app")
        return self._app

    async def _live(self, app: asyncio.Future[ASGIApp]) -> None:
        from callpact.serve.http.http_server import guarded_app

        try:
            async with (
                _doors(self._tools, self._options, self._authentication, self._path) as doors,
                guarded_app(
                    doors.mcp.server,
                    path=self._path,
                    authentication=self._authentication,
                    host_policy=self._host_policy,
                    rest=doors.rest,
                ) as guard,
            ):
                app.set_result(guard)
                await self._stopping.wait()
                guard.stop()
                doors.rest.stop()
        except BaseException as error:
            if app.done():
                raise
            app.set_exception(error)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        try:
            await self._started()
        except Exception as error:  # noqa: BLE001 - boundary: the server reports it
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        while message["type"] != "lifespan.shutdown":
            message = await receive()
        self._stopping.set()
        if self._task is not None:
            await self._task
        await send({"type": "lifespan.shutdown.complete"})


def _unmounted(scope: Scope) -> Scope:
    """The scope of a request without the prefix that the application is mounted at."""
    root = scope.get("root_path", "")
    if not root or not scope["path"].startswith(root):
        return scope
    from callpact.serve.rest.rest_door import MOUNT

    path = scope["path"].removeprefix(root) or "/"
    return {**scope, "path": path, "root_path": "", MOUNT: root}


@contextlib.asynccontextmanager
async def _doors(
    given: tuple[Any, ...],
    options: ServerOptions,
    authentication: Authentication | None,
    path: str,
) -> AsyncGenerator[_Doors]:
    """Load the tools, open the audit log and a runtime, and yield the doors to it."""
    from callpact.serve.auth.bearer import identify
    from callpact.serve.mcp.confirm import with_confirmation
    from callpact.serve.mcp.door import Door
    from callpact.serve.rest.rest_door import RestDoor

    refs = tuple(item for item in given if isinstance(item, str))
    own = _catalog(item for item in given if not isinstance(item, str))
    scopes = tuple(options.get("scopes", ()))
    if scopes and authentication is not None:
        raise InvalidConfig("scopes are those of callers without a token, and tokens are required")
    identity = Identity("local", scopes) if scopes else None
    name = options.get("name", "callpact")
    version = options.get("version") or package_version("callpact")
    async with Session(Options(refs=refs or _FROM_CODE, audit=options.get("audit"))) as session:
        if refs:
            await session.load(refs)

        def prepared(loaded: Catalog) -> Catalog:
            whole = _merged(loaded, own)
            return with_confirmation(whole) if options.get("ask_first") else whole

        runtime = await session.start(prepare=prepared, serves=True)
        passed: dict[str, Any] = {
            key: value for key, value in options.items() if key in _DOOR_OPTIONS
        }
        door = Door(
            runtime,
            name=name,
            version=version,
            identity=identity if authentication is None else identify,
            **passed,
        )
        for each in session.telemetry:
            door.server.middleware.insert(0, each.time_message)
        rest = RestDoor(
            door.calls,
            identity=identity,
            has_tokens=authentication is not None,
            title=name,
            version=version,
            mcp_path=path,
        )
        async with contextlib.aclosing(door):
            yield _Doors(door, rest, len(runtime.catalog))


def _catalog(given: Iterable[Any]) -> Catalog:
    """The tools, resources and prompts of modules, functions, Tools, and collections of them."""
    whole = Catalog(())
    for item in given:
        if isinstance(item, Catalog):
            found = item
        elif isinstance(item, ModuleType):
            found = _of_module(item)
        else:
            made = from_functions(item)
            found = Catalog(made, resources=made.resources, prompts=made.prompts)
        whole = _merged(whole, found)
    return whole


def _merged(one: Catalog, other: Catalog) -> Catalog:
    resources: tuple[Resource, ...] = (*one.resources, *other.resources)
    prompts: tuple[Prompt, ...] = (*one.prompts, *other.prompts)
    tools: tuple[Tool, ...] = (*one, *other)
    return Catalog(tools, resources=resources, prompts=prompts)


def _of_module(module: ModuleType) -> Catalog:
    found = marked_in(module)
    if not found:
        raise UsageError(
            f"the module {module.__name__} holds no tool; mark its functions with @callpact.tool"
        )
    file = getattr(module, "__file__", None)
    namespace = Path(file).stem if module.__name__ == "__main__" and file else None
    made = from_functions(*found.values(), namespace=namespace)
    return Catalog(made, resources=made.resources, prompts=made.prompts)


def _calling_module() -> ModuleType:
    """The module that calls `run` or `asgi_app`."""
    here = cast("FrameType", inspect.currentframe())
    calling = cast("FrameType", cast("FrameType", here.f_back).f_back)
    return sys.modules[calling.f_globals["__name__"]]
