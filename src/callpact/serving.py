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
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from callpact import banner
from callpact.config import DEFAULT_FILE, Config, ServeConfig, config_of, read_config
from callpact.context import Identity
from callpact.errors import InvalidConfig
from callpact.logs import Logs, call_observers
from callpact.recording import place_of_log, recorded
from callpact.runtime import Runtime
from callpact.secrets import Secrets
from callpact.telemetry import observing
from callpact.terminal import ended_at, run, tell

if TYPE_CHECKING:
    import socket

    from callpact.app import App
    from callpact.audit.auditing import Place
    from callpact.audit.recorder import Recorder
    from callpact.catalog import Catalog
    from callpact.metrics import Metrics
    from callpact.observers import Observer
    from callpact.options import Chosen
    from callpact.serve.auth import Authentication
    from callpact.tool import Tool
    from callpact.watching.watcher import Asked
    from callpact.wire.mcp_schema import Advertise, Rendering


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
    """Who may come over HTTP, and what must not show of it."""

    table: ServeConfig
    authentication: Authentication | None
    secrets: Secrets

    def keywords(self) -> dict[str, Any]:
        """As the door over HTTP takes it."""
        return {
            "hosts": self.table.hosts,
            "origins": self.table.origins,
            "authentication": self.authentication,
        }


def serve(options: ServeOptions, chosen: Chosen, logs: Logs) -> None:
    """Serve until the client hangs up, or somebody ends it.

    Raises:
        InvalidConfig: the place cannot be served, or the `[serve]` table cannot be used.
        DeclarationError: nothing could be loaded.
    """
    if options.stdio and options.metrics:
        raise InvalidConfig("--metrics: the numbers are read over HTTP; leave out --stdio")
    with _without_collecting(), _models_when_used():
        # Heavy, and not for other commands: most of what the start takes.
        import_module("callpact.serve.mcp")
        import_module("callpact.serve.stdio" if options.stdio else "callpact.serve.http")
    access = None if options.stdio else _read_access(chosen)
    bound = None if access is None else _reserved(options, access, logs)
    logs.take_stderr(steady=True)

    async def go() -> int:
        with _without_collecting():
            loaded = await chosen.load()
        async with loaded:
            await _serve(options, chosen, loaded, access, bound, logs)
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


async def _serve(  # noqa: PLR0917 - one of each
    options: ServeOptions,
    chosen: Chosen,
    loaded: App,
    access: _Access | None,
    bound: socket.socket | None,
    logs: Logs,
) -> None:
    from callpact.serve.confirming import asking_first
    from callpact.serve.mcp import Door

    prepare = asking_first if options.ask_first else _as_it_is
    authentication = None if access is None else access.authentication
    identity = _identity(options)
    table = config_of({}).serve if access is None else access.table
    secrets = [part.secrets for part in loaded.parts if part.secrets is not None]
    if access is not None:  # The tokens of callers.
        secrets.append(access.secrets)
    async with contextlib.AsyncExitStack() as stack:
        recorders = stack.enter_context(recorded(chosen, options.audit, secrets))
        telemetry = stack.enter_context(observing())
        metrics = _metrics(recorders) if options.metrics else None
        counting = () if metrics is None else (metrics,)
        runtime = await stack.enter_async_context(
            Runtime(prepare(loaded.catalog), (*recorders, *call_observers(), *telemetry, *counting))
        )
        door = Door(
            runtime,
            name=options.name,
            version=package_version("callpact"),
            identity=identity if authentication is None else _identify(),
            list_up_to=options.list_up_to,
            advertise=options.advertise,
            rendering=options.rendering or _config(chosen).serve.as_,
            result_limit=options.result_limit,
            calls_per_tool=table.calls_per_tool,
            calls_per_caller=table.calls_per_caller,
        )

        for each in telemetry:
            door.server.middleware.insert(0, each.time_message)

        def ready(place: str) -> None:
            audit = place_of_log(chosen, options.audit)
            _tell(options, loaded, place, authentication, logs, audit)

        stack.push_async_callback(door.aclose)
        if options.watch:
            from callpact.watching.watcher import watching

            # Whoever watches wants to know what was read again, also where little is logged.
            if logging.getLogger().level <= logging.WARNING:
                logging.getLogger("callpact.watching").setLevel(logging.INFO)

            await stack.enter_async_context(
                watching(
                    loaded,
                    runtime,
                    _asked(chosen, logs, recorders),
                    door.changes.announce,
                    is_served=_is_served_to(identity, anybody=authentication is not None),
                    prepare=prepare,
                )
            )
        if access is None:
            from callpact.serve.stdio import serve_stdio

            ready("stdio")
            door.writes_lines = True
            with ended_at(signal.SIGTERM):
                await serve_stdio(door.server)
            return
        from callpact.serve.http import serve_http

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


def _metrics(recorders: tuple[Observer, ...]) -> Metrics:
    from callpact.metrics import Metrics, Reading

    told = {
        "lost": "Calls whose record could not be written.",
        "unreadable": "Lines of the audit journal that were no record.",
        "refused": "Records that the audit store took no way.",
    }

    def reading(name: str) -> Reading:
        def read() -> float:
            return sum(getattr(each.health(), name) for each in _recorders(recorders))

        return Reading(f"callpact_audit_{name}_total", told[name], read, "counter")

    return Metrics(map(reading, told))


def _recorders(observers: tuple[Observer, ...]) -> list[Recorder]:
    from callpact.audit.recorder import Recorder

    return [each for each in observers if isinstance(each, Recorder)]


def _as_it_is(catalog: Catalog) -> Catalog:
    return catalog


def _asked(chosen: Chosen, logs: Logs, recorders: tuple[Observer, ...]) -> Asked:
    """What was loaded, so that it can be loaded again."""
    from callpact.watching.watcher import Asked

    def hide(secrets: Secrets) -> None:
        logs.hide(secrets)
        for each in _recorders(recorders):
            each.hide(secrets)

    return Asked(
        refs=tuple(chosen.source or ()),
        config_file=chosen.config,
        given=chosen.opening,
        files=tuple(path for path in (chosen.secrets, chosen.lists) if path is not None),
        hide=hide,
    )


def _identity(options: ServeOptions) -> Identity | None:
    name = "stdio" if options.stdio else "http"
    return Identity(name, options.scopes) if options.scopes else None


def _identify() -> Any:
    from callpact.serve.auth import identify

    return identify


# --- who may call, and where ------------------------------------------------------------------


def _config_path(chosen: Chosen) -> Path:
    return chosen.config or Path(DEFAULT_FILE)


def _config(chosen: Chosen) -> Config:
    """The configuration that is in use."""
    path = _config_path(chosen)
    is_used = chosen.config is not None or (not chosen.source and path.exists())
    return read_config(path) if is_used else config_of({})


def _read_access(chosen: Chosen) -> _Access:
    """The `[serve]` table of the configuration that is in use, and who may call by it."""
    path, config = _config_path(chosen), _config(chosen)
    file = path.parent / config.secrets if config.secrets else None
    names = [token.secret for token in config.serve.tokens.values()]
    known = chosen.opening().secrets or Secrets(None, file)
    secrets = known.restricted(os.environ, keys=names, withheld=(), only_keys=False)
    return _Access(config.serve, _authentication(config.serve, secrets), secrets)


def _authentication(table: ServeConfig, secrets: Secrets) -> Authentication | None:
    if not table.tokens and table.oauth is None:
        return None
    from callpact.serve.auth import Authentication, read_tokens

    tokens, oauth = read_tokens(table.tokens, secrets), None
    if table.oauth is not None:
        from callpact.serve.oauth import OAuth

        try:
            oauth = OAuth(**table.oauth.model_dump(exclude_none=True))
        except InvalidConfig as error:
            raise InvalidConfig(f"[serve.oauth] {error}") from None
    return Authentication(tokens, oauth)


def _reserved(options: ServeOptions, access: _Access, logs: Logs) -> socket.socket:
    from callpact.serve.http import check_place, reserve

    logs.hide(access.secrets)
    check_place(options.host, options.port, options.path, **access.keywords())
    if options.scopes and access.authentication is not None:
        raise InvalidConfig(
            "--scope: with authentication each caller holds the scopes of its own token"
        )
    return reserve(options.host, options.port)


# --- what is said at the start ----------------------------------------------------------------


def _tell(  # noqa: PLR0917 - one of each
    options: ServeOptions,
    loaded: App,
    place: str,
    authentication: Authentication | None,
    logs: Logs,
    audit: Place | None,
) -> None:
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

    serving = banner.serving_of(
        loaded.catalog,
        _is_served_to(_identity(options), anybody=authentication is not None),
        place,
        not_loaded=sum(finding.severity == "error" for finding in loaded.report),
        versions=KNOWN_PROTOCOL_VERSIONS,
        list_up_to=options.list_up_to,
        is_watching=options.watch,
        audit=None if audit is None else str(audit),
        authentication=None if authentication is None else str(authentication),
    )
    lines = banner.encode_lines(serving)
    if logs.form == "json":
        logs.tell("serving", lines[0], banner.encode_fields(serving))
        return
    for line in lines:
        tell(line)


def _is_served_to(identity: Identity | None, *, anybody: bool) -> Callable[[Tool], bool]:
    from callpact.serve.views import is_served

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
