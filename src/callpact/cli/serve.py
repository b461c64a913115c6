"""`callpact serve`: loads the sources, opens the door, prints the banner, and serves until the end.

It wires the parts of `serve/` together, by the options and the `[serve]` table.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson
import typer
from pydantic import BaseModel

from callpact.cli import banner
from callpact.cli.output import ended_at, print_status, run
from callpact.config import DEFAULT_FILE, configuration_of
from callpact.config_file import ServeConfig
from callpact.context import (
    Identity,
)
from callpact.errors import InvalidConfig, UsageError
from callpact.serve.event_loop import new_event_loop
from callpact.sources.base import Live

if TYPE_CHECKING:
    import socket

    from mcp.server.request_state import RequestStateCodec

    from callpact.app import Session
    from callpact.catalog import Catalog
    from callpact.cli.options import SourceOptions
    from callpact.contracts.packages.production import Production
    from callpact.reload.watcher import LoadOptions
    from callpact.runtime import Runtime
    from callpact.secrets.keys import Secrets
    from callpact.serve.auth.bearer import Authentication
    from callpact.serve.http.worker_channel import WorkerChannel
    from callpact.telemetry.logs import (
        Logs,
    )
    from callpact.tool import Tool
    from callpact.wire.mcp.published import AdvertiseMode, Rendering

_OPEN_FILES = 8_192
_log = logging.getLogger("callpact.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `serve`, with those of the `[serve]` table where none was given."""

    stdio: bool
    host: str
    port: int
    workers: int
    path: str
    package: str | None
    packages: Path
    draft: bool
    trust_network: bool
    name: str
    version: str | None
    instructions: str | None
    list_up_to: int
    advertise: AdvertiseMode
    as_: Rendering
    result_limit: int
    ask_first: bool
    watch: bool
    metrics: bool
    scopes: Sequence[str]


def serve_options(table: ServeConfig, **given: Any) -> ServeOptions:
    """The options that were given, not None, else those of the table."""
    return ServeOptions(
        **{
            each.name: getattr(table, each.name) if given[each.name] is None else given[each.name]
            for each in fields(ServeOptions)
        }
    )


@dataclass(frozen=True, slots=True)
class _Access:
    """Who may call over HTTP."""

    table: ServeConfig
    authentication: Authentication | None

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of the HTTP server."""
        return {
            "hosts": self.table.hosts,
            "origins": self.table.origins,
            "authentication": self.authentication,
        }


def serve(options: ServeOptions, session: Session, sources: SourceOptions) -> None:
    """Serve until the client disconnects, or a signal ends it.

    Raises:
        InvalidConfig: the place cannot be served, or the `[serve]` table cannot be used.
        DeclarationError: nothing could be loaded.
    """
    with _without_collecting(), _models_when_used():
        # Slow to import, and most of the start-up time: only for this command.
        import_module("callpact.serve.mcp.door")
        import_module(
            "callpact.serve.stdio.stdio_server"
            if options.stdio
            else "callpact.serve.http.http_server"
        )
    if options.stdio:
        # Those of the configuration are for HTTP.
        options = replace(options, workers=1, draft=False)
    elif options.workers > 1:
        from callpact.serve.http.worker_channel import check_workers

        check_workers(metrics=options.metrics)
    if options.draft and options.package is None:
        raise UsageError("--draft: the draft is served beside a published version; add --package")
    access = None if options.stdio else _read_access(session)
    bound = None if access is None else _reserved(options, access, session)
    logs = cast("Logs", sources.logs)
    logs.take_stderr(steady=True)
    channel = None
    if bound is not None:
        _allow_open_files()
    if bound is not None and options.workers > 1:
        channel = _supervised(options, bound, logs)

    async def go() -> int:
        async with session:
            with _without_collecting():
                is_first = channel is None or not channel.number
                await sources.load(session, reports=is_first)
            await _serve(options, session, access, bound, logs, channel=channel)
        return 0

    with contextlib.ExitStack() as stack:
        if bound is not None:
            stack.enter_context(contextlib.closing(bound))
            stack.enter_context(_stdout_to_stderr())
        # From here on, as imported modules may keep a reference to standard output.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        run(go(), loop_factory=None if options.stdio else new_event_loop)


def _allow_open_files() -> None:
    """Raise the soft limit of open files, which many systems set below our limit of connections."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # The system has a lower one of its own.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _supervised(options: ServeOptions, bound: socket.socket, logs: Logs) -> WorkerChannel:
    """Supervise the workers until the end; returns only in a worker.

    Raises:
        InvalidConfig: the address cannot be served.
    """
    from callpact.serve.http.http_server import explained
    from callpact.serve.http.supervisor import Supervisor, WorkerFailed

    def print_banner(text: bytes) -> None:
        lines, event = orjson.loads(text)
        _print_banner(lines, event, logs)

    supervisor = Supervisor(options.workers, bound, print_banner)
    try:
        with explained(options.host, options.port):
            ended = supervisor.run()
    except WorkerFailed as failed:  # The worker has printed its error.
        raise typer.Exit(failed.code) from None
    if isinstance(ended, int):
        raise typer.Exit(0 if ended == signal.SIGTERM else 130)
    return ended


def _states(channel: WorkerChannel) -> RequestStateCodec:
    from callpact.serve.http.worker_relay import WorkerStates

    return WorkerStates(channel.number, os.urandom(32))


@contextlib.contextmanager
def _stdout_to_stderr() -> Generator[None]:
    """Redirect file descriptor 1 to standard error, for libraries and child processes."""
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
    *,
    channel: WorkerChannel | None,
) -> None:
    from callpact.serve.mcp.confirm import with_confirmation
    from callpact.serve.mcp.door import Door

    production = _production(options, session)
    confirmed = with_confirmation if options.ask_first else _as_it_is
    authentication = None if access is None else access.authentication
    identity = _identity(options)
    table = ServeConfig.model_construct() if access is None else access.table

    def prepare(catalog: Catalog) -> Catalog:
        return confirmed(catalog if production is None else production.held(catalog))

    def open_door(runtime: Runtime) -> Door:
        door = Door(
            runtime,
            name=options.name,
            version=options.version or package_version("callpact"),
            instructions=options.instructions,
            identity=identity if authentication is None else _identify(),
            list_up_to=options.list_up_to,
            advertise=options.advertise,
            rendering=options.as_,
            result_limit=options.result_limit,
            calls_per_tool=table.calls_per_tool,
            calls_per_caller=table.calls_per_caller,
            states=None if channel is None else _states(channel),
            worker=None if channel is None else channel.number,
        )
        for each in session.telemetry:
            door.server.middleware.insert(0, each.time_message)
        stack.push_async_callback(door.aclose)
        return door

    def ready(place: str) -> None:
        lines, event = _banner(options, session, place, authentication, production)
        if channel is None:
            _print_banner(lines, event, logs)
        else:
            channel.ready(orjson.dumps([lines, event]))

    if production is not None and (channel is None or not channel.number):
        for note in production.notes(session.catalog, session.configuration.folder):
            _log.warning("%s", note)
    async with contextlib.AsyncExitStack() as stack:
        runtime = await session.start(
            prepare=prepare, serves=True, counts=options.metrics and not options.stdio
        )
        door, draft = open_door(runtime), None
        doors = [(prepare, runtime, door)]
        if production is not None and options.draft:

            def drafted(catalog: Catalog) -> Catalog:
                return confirmed(production.drafted(catalog))

            beside = await session.run(drafted(session.catalog))
            draft = open_door(beside)
            doors.append((drafted, beside, draft))
        is_live = any(isinstance(source, Live) for source in session.loaded.sources)
        if options.watch or is_live or production is not None:
            from callpact.reload.watcher import Endpoint, Watcher

            # With --watch, reloads are logged even at the default level.
            if options.watch and logging.getLogger().level <= logging.WARNING:
                logging.getLogger("callpact.reload").setLevel(logging.INFO)

            endpoints = tuple(
                Endpoint(
                    runtime=served,
                    announce=each.changes.announce,
                    is_served=_is_served_to(identity, anybody=authentication is not None),
                    prepare=prepares,
                    name="" if draft is None else "draft" if each is draft else "package",
                    file=None if production is None else production.index,
                    refresh=_nothing if production is None else production.refresh,
                )
                for prepares, served, each in doors
            )
            await stack.enter_async_context(
                Watcher(
                    session.loaded,
                    endpoints,
                    _load_options(session),
                    watches_files=options.watch,
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
        from callpact.serve.rest.rest_door import RestDoor

        metrics = session.metrics
        rest = RestDoor(
            door.calls,
            identity=identity,
            has_tokens=authentication is not None,
            title=options.name,
            version=options.version or package_version("callpact"),
            mcp_path=options.path,
            telemetry=session.telemetry,
        )
        with ended_at(signal.SIGTERM):
            await serve_http(
                door.server,
                host=options.host,
                port=options.port,
                path=options.path,
                trust_network=options.trust_network,
                bound=bound,
                page=None if metrics is None else metrics.render,
                rest=rest if table.rest else None,
                draft=None if draft is None else draft.server,
                on_ready=ready,
                channel=channel,
                **access.keywords(),
            )
        if channel is not None:  # A second signal must not end it before its records are written.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _as_it_is(catalog: Catalog) -> Catalog:
    return catalog


def _nothing() -> None:
    pass


def _production(options: ServeOptions, session: Session) -> Production | None:
    """The published version that is served, if one is.

    Raises:
        UsageError: no such version is published, or the sources have none of its tools.
    """
    if options.package is None:
        return None
    from callpact.contracts.packages.package_store import PackageStore
    from callpact.contracts.packages.package_version import checked_name
    from callpact.contracts.packages.production import Production

    name, _, wanted = options.package.partition("@")
    store = PackageStore(options.packages)
    production = Production(store, checked_name(name), wanted or "latest", session.catalog)
    held = production.held(session.catalog)
    if not len(held) + len(held.resources) + len(held.prompts):
        raise UsageError(
            f"--package: the sources have nothing of {production.label}; name the sources that it "
            "was published from"
        )
    return production


def _load_options(session: Session) -> LoadOptions:
    """The sources of a session, to be loaded again."""
    from callpact.reload.watcher import LoadOptions

    options = session.options
    lists = options.opening.lists
    file = options.config or Path(DEFAULT_FILE)
    return LoadOptions(
        config=None if options.refs else file,
        wanted=lambda: configuration_of(options.refs, options.config).wanted(options.refs),
        given=session.read_opening,
        files=tuple(Path(file) for file in (options.secrets, lists) if file is not None),
        hide=session.hide,
    )


def _identity(options: ServeOptions) -> Identity | None:
    name = "stdio" if options.stdio else "http"
    return Identity(name, tuple(options.scopes)) if options.scopes else None


def _identify() -> Any:
    from callpact.serve.auth.bearer import identify

    return identify


# --- access and address -----------------------------------------------------------------------


def _read_access(session: Session) -> _Access:
    """The `[serve]` table and the authentication that it declares."""
    table = session.config.serve
    clients = [source.oauth for source in session.config.sources.values()]
    keeps_tokens = any(each is not None and each.exchange == "token" for each in clients)
    return _Access(table, _authentication(table, session.tokens, keeps_tokens=keeps_tokens))


def _authentication(
    table: ServeConfig, secrets: Secrets, *, keeps_tokens: bool
) -> Authentication | None:
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
    return Authentication(tokens, oauth, keeps_tokens=keeps_tokens)


def _reserved(options: ServeOptions, access: _Access, session: Session) -> socket.socket:
    from callpact.serve.http.http_server import check_place, reserve

    session.hide(session.tokens)
    check_place(
        options.host,
        options.port,
        options.path,
        trust_network=options.trust_network,
        **access.keywords(),
    )
    if options.scopes and access.authentication is not None:
        raise InvalidConfig(
            "--scope: with authentication each caller holds the scopes of its own token"
        )
    return reserve(options.host, options.port)


# --- the banner -------------------------------------------------------------------------------


def _banner(
    options: ServeOptions,
    session: Session,
    place: str,
    authentication: Authentication | None,
    production: Production | None,
) -> tuple[list[str], dict[str, Any]]:
    """The lines of the banner, and its fields as an event."""
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

    serving = banner.serving_of(
        session.catalog,
        _is_served_to(_identity(options), anybody=authentication is not None),
        place,
        not_loaded=sum(finding.severity == "error" for finding in session.loaded.report),
        versions=KNOWN_PROTOCOL_VERSIONS,
        docs=_docs(place, options.path) if session.config.serve.rest else None,
        list_up_to=options.list_up_to,
        is_watching=options.watch,
        workers=options.workers,
        package=None if production is None else production.label,
        draft=f"{place.rstrip('/')}/draft" if options.draft else None,
        audit=str(session.place) if session.is_recorded else None,
        authentication=None if authentication is None else str(authentication),
        trusts_network=options.trust_network and authentication is None and not options.stdio,
    )
    return banner.encode_lines(serving), banner.encode_fields(serving)


def _print_banner(lines: list[str], event: dict[str, Any], logs: Logs) -> None:
    if logs.form == "json":
        logs.write_event("serving", lines[0], event)
        return
    for line in lines:
        print_status(line)


def _docs(place: str, path: str) -> str | None:
    """The address of the docs page, on the port of the MCP door; None over stdio."""
    return None if place == "stdio" else f"{place.removesuffix(path)}/docs"


def _is_served_to(identity: Identity | None, *, anybody: bool) -> Callable[[Tool], bool]:
    from callpact.serve.mcp.views import is_served

    def is_listed(tool: Tool) -> bool:
        if anybody:  # Each caller has its own scopes.
            return tool.kind != "subscription" and tool.disabled is None
        return is_served(tool, identity)

    return is_listed


@contextlib.contextmanager
def _models_when_used() -> Generator[None]:
    """Defer building pydantic models that are declared in the body to their first use.

    The SDK declares hundreds of messages, for every revision; a server needs some of them.
    """
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]


@contextlib.contextmanager
def _without_collecting() -> Generator[None]:
    """Collect no garbage at the start: nearly all objects that it makes live until the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        # A call with arguments of megabytes makes as many objects; they contain no cycles.
        gc.set_threshold(50_000, 20, 20)
        gc.enable()
