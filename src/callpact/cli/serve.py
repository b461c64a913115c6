"""What `callpact serve` does: load, open the door, say what is served, and serve until the end.

It wires the parts of `serve/` together by the options and the `[serve]` table; how each of them
works is theirs.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from callpact.cli import banner
from callpact.cli.output import ended_at, run, tell
from callpact.config import (
    DEFAULT_FILE,
    ServeConfig,
    configuration_of,
)
from callpact.context import (
    Identity,
)
from callpact.errors import InvalidConfig

if TYPE_CHECKING:
    import socket

    from callpact.app import Session
    from callpact.catalog import Catalog
    from callpact.cli.options import Chosen
    from callpact.reload.watcher import Asked
    from callpact.secrets.keys import Secrets
    from callpact.serve.auth.bearer import Authentication
    from callpact.telemetry.logs import (
        Logs,
    )
    from callpact.tool import Tool
    from callpact.wire.mcp.published import Advertise, Rendering


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to serve, as the command line was told."""

    stdio: bool = False
    host: str = "127.0.0.1"
    port: int = 8420
    path: str = "/mcp"
    name: str = "callpact"
    list_up_to: int = 200
    advertise: Advertise = "full"
    rendering: Rendering | None = None
    """As `[serve]` has it if it is None."""
    result_limit: int = 100_000
    ask_first: bool = False
    watch: bool = False
    metrics: bool = False
    audit: str | None = None
    scopes: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """How a server over stdio is told the same on its command line."""
        told: list[str] = []
        for name in _REPEATED:
            value = getattr(self, name)
            if value != getattr(_DEFAULTS, name):
                option = "--as" if name == "rendering" else f"--{name.replace('_', '-')}"
                told += [option] if value is True else [option, str(value)]
        return told + [part for scope in self.scopes for part in ("--scope", scope)]


_DEFAULTS = ServeOptions()
_REPEATED = ("list_up_to", "advertise", "rendering", "result_limit", "ask_first", "watch", "audit")


@dataclass(frozen=True, slots=True)
class _Access:
    """Who may come over HTTP."""

    table: ServeConfig
    authentication: Authentication | None

    def keywords(self) -> dict[str, Any]:
        """As the door over HTTP takes it."""
        return {
            "hosts": self.table.hosts,
            "origins": self.table.origins,
            "authentication": self.authentication,
        }


def serve(options: ServeOptions, session: Session, chosen: Chosen) -> None:
    """Serve until the client hangs up, or somebody ends it.

    Raises:
        InvalidConfig: the place cannot be served, or the `[serve]` table cannot be used.
        DeclarationError: nothing could be loaded.
    """
    if options.stdio and options.metrics:
        raise InvalidConfig("--metrics: the numbers are read over HTTP; leave out --stdio")
    with _without_collecting(), _models_when_used():
        # Heavy, and not for other commands: most of what the start takes.
        import_module("callpact.serve.mcp.door")
        import_module(
            "callpact.serve.stdio.stdio_server"
            if options.stdio
            else "callpact.serve.http.http_server"
        )
    access = None if options.stdio else _read_access(session)
    bound = None if access is None else _reserved(options, access, session)
    logs = cast("Logs", chosen.logs)
    logs.take_stderr(steady=True)

    async def go() -> int:
        async with session:
            with _without_collecting():
                await chosen.load(session)
            await _serve(options, session, access, bound, logs)
        return 0

    with contextlib.ExitStack() as stack:
        if bound is not None:
            stack.enter_context(contextlib.closing(bound))
            stack.enter_context(_output_led_to_errors())
        # From here on: a module that is imported may keep standard output for later.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        run(go())


@contextlib.contextmanager
def _output_led_to_errors() -> Generator[None]:
    """Lead file descriptor 1 to standard error, for libraries and children that write there."""
    sys.stdout.flush()
    before = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


async def _serve(
    options: ServeOptions,
    session: Session,
    access: _Access | None,
    bound: socket.socket | None,
    logs: Logs,
) -> None:
    from callpact.serve.mcp.confirm import asking_first
    from callpact.serve.mcp.door import Door

    prepare = asking_first if options.ask_first else _as_it_is
    authentication = None if access is None else access.authentication
    identity = _identity(options)
    table = ServeConfig.model_construct() if access is None else access.table
    runtime = await session.start(prepare=prepare, serves=True, counts=options.metrics)
    async with contextlib.AsyncExitStack() as stack:
        door = Door(
            runtime,
            name=options.name,
            version=package_version("callpact"),
            identity=identity if authentication is None else _identify(),
            list_up_to=options.list_up_to,
            advertise=options.advertise,
            rendering=options.rendering or session.config.serve.as_,
            result_limit=options.result_limit,
            calls_per_tool=table.calls_per_tool,
            calls_per_caller=table.calls_per_caller,
        )

        for each in session.telemetry:
            door.server.middleware.insert(0, each.time_message)

        def ready(place: str) -> None:
            _tell(options, session, place, authentication, logs)

        stack.push_async_callback(door.aclose)
        if options.watch:
            from callpact.reload.watcher import Watcher

            # Whoever watches wants to know what was read again, also where little is logged.
            if logging.getLogger().level <= logging.WARNING:
                logging.getLogger("callpact.reload").setLevel(logging.INFO)

            await stack.enter_async_context(
                Watcher(
                    session.loaded,
                    runtime,
                    _asked(session),
                    door.changes.announce,
                    is_served=_is_served_to(identity, anybody=authentication is not None),
                    prepare=prepare,
                )
            )
        if access is None:
            from callpact.serve.stdio.stdio_server import serve_stdio

            ready("stdio")
            door.writes_lines = True
            with ended_at(signal.SIGTERM):
                await serve_stdio(door.server)
            return
        from callpact.serve.http.http_server import serve_http

        metrics = session.metrics
        with ended_at(signal.SIGTERM):
            await serve_http(
                door.server,
                host=options.host,
                port=options.port,
                path=options.path,
                bound=bound,
                page=None if metrics is None else metrics.render,
                on_ready=ready,
                **access.keywords(),
            )


def _as_it_is(catalog: Catalog) -> Catalog:
    return catalog


def _asked(session: Session) -> Asked:
    """What was loaded, so that it can be loaded again."""
    from callpact.reload.watcher import Asked

    options = session.options
    lists = options.opening.lists
    file = options.config or Path(DEFAULT_FILE)
    return Asked(
        config=None if options.refs else file,
        wanted=lambda: configuration_of(options.refs, options.config).wanted(options.refs),
        given=session.read_opening,
        files=tuple(Path(file) for file in (options.secrets, lists) if file is not None),
        hide=session.hide,
    )


def _identity(options: ServeOptions) -> Identity | None:
    name = "stdio" if options.stdio else "http"
    return Identity(name, options.scopes) if options.scopes else None


def _identify() -> Any:
    from callpact.serve.auth.bearer import identify

    return identify


# --- who may call, and where ------------------------------------------------------------------


def _read_access(session: Session) -> _Access:
    """The `[serve]` table, and who may call by it."""
    table = session.config.serve
    return _Access(table, _authentication(table, session.tokens))


def _authentication(table: ServeConfig, secrets: Secrets) -> Authentication | None:
    if not table.tokens and table.oauth is None:
        return None
    from callpact.serve.auth.bearer import Authentication, read_tokens

    tokens, oauth = read_tokens(table.tokens, secrets), None
    if table.oauth is not None:
        from callpact.serve.auth.oauth import OAuth

        try:
            oauth = OAuth(**table.oauth.model_dump(exclude_none=True))
        except InvalidConfig as error:
            raise InvalidConfig(f"[serve.oauth] {error}") from None
    return Authentication(tokens, oauth)


def _reserved(options: ServeOptions, access: _Access, session: Session) -> socket.socket:
    from callpact.serve.http.http_server import check_place, reserve

    session.hide(session.tokens)
    check_place(options.host, options.port, options.path, **access.keywords())
    if options.scopes and access.authentication is not None:
        raise InvalidConfig(
            "--scope: with authentication each caller holds the scopes of its own token"
        )
    return reserve(options.host, options.port)


# --- what is said at the start ----------------------------------------------------------------


def _tell(
    options: ServeOptions,
    session: Session,
    place: str,
    authentication: Authentication | None,
    logs: Logs,
) -> None:
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

    serving = banner.serving_of(
        session.catalog,
        _is_served_to(_identity(options), anybody=authentication is not None),
        place,
        not_loaded=sum(finding.severity == "error" for finding in session.loaded.report),
        versions=KNOWN_PROTOCOL_VERSIONS,
        list_up_to=options.list_up_to,
        is_watching=options.watch,
        audit=str(session.place) if session.is_recorded else None,
        authentication=None if authentication is None else str(authentication),
    )
    lines = banner.encode_lines(serving)
    if logs.form == "json":
        logs.tell("serving", lines[0], banner.encode_fields(serving))
        return
    for line in lines:
        tell(line)


def _is_served_to(identity: Identity | None, *, anybody: bool) -> Callable[[Tool], bool]:
    from callpact.serve.mcp.views import is_served

    def is_told(tool: Tool) -> bool:
        if anybody:  # Each caller has scopes of its own.
            return tool.kind != "subscription" and tool.disabled is None
        return is_served(tool, identity)

    return is_told


@contextlib.contextmanager
def _models_when_used() -> Generator[None]:
    """Models of pydantic that are declared in here are built when they are first used.

    The SDK declares the messages of every revision, hundreds of them; a server needs some.
    """
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]


@contextlib.contextmanager
def _without_collecting() -> Generator[None]:
    """Nearly all that is made at the start stays: not looked at now, and never again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
