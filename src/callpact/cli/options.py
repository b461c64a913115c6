"""The options of all commands with sources, and the report of loading the sources.

Declared once: `takes_sources` gives a command all of them, and passes it one `SourceOptions`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from callpact.app import Options, Session
from callpact.cli.output import LogFormat, LogLevel, counted, err, fail, plain
from callpact.config import DEFAULT_FILE
from callpact.errors import UsageError
from callpact.sandbox.hook_limits import MAX_HOOK_TIMEOUT
from callpact.sources.base import Finding, Opening
from callpact.telemetry.logs import Logs, configure

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.config import Configuration
    from callpact.tool import Tool

_ROOT = re.compile(r"https?://[^\s/?#]+[^\s?#]*\Z", re.IGNORECASE)
_MOST_PRINTED = 10  # Warnings without a code; those with one are counted.


class ProfileName(StrEnum):
    """Profiles for FlowMCP files."""

    strict = "strict"
    compat = "compat"


class CheckFormat(StrEnum):
    """Forms of the findings of `callpact check`."""

    text = "text"
    json = "json"
    github = "github"
    html = "html"


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help=f"Configuration file, if no source is named. [default: {DEFAULT_FILE}]",
        rich_help_panel="Sources",
    ),
]
ProfileOption = Annotated[
    ProfileName | None,
    typer.Option(
        "--profile",
        help=(
            "FlowMCP: strict as the specification, or compatible with real files. "
            "[default: as configured, else compat]"
        ),
        rich_help_panel="FlowMCP",
    ),
]
ListsOption = Annotated[
    Path | None,
    typer.Option(
        "--lists", help="FlowMCP: folder of shared lists.", metavar="DIR", rich_help_panel="FlowMCP"
    ),
]
LibrariesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-library",
        help="FlowMCP: a library that hooks may use besides the six; `*` for all. Repeatable.",
        metavar="NAME",
        rich_help_panel="FlowMCP",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
RecordOption = Annotated[
    str | None,
    typer.Option(
        "--audit",
        help="Where the audit log is: a folder, or postgresql://…; `off` for no record. "
        "[default: as configured]",
        metavar="WHERE",
    ),
]
PackagesOption = Annotated[
    Path | None,
    typer.Option(
        "--packages",
        help="The folder of published packages. [default: as configured, else contracts]",
        metavar="DIR",
    ),
]

_SHARED: dict[str, tuple[Any, Any]] = {
    "source": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--source",
                "-s",
                help="Where tools are, e.g. `python:shop.py`, `flowmcp:catalogue/` or "
                "`mcp:https://host/mcp`. Repeatable.",
                metavar="REF",
                rich_help_panel="Sources",
            ),
        ],
        None,
    ),
    "config": (ConfigFile, None),
    "profile": (ProfileOption, None),
    "lists": (ListsOption, None),
    "allow_library": (LibrariesOption, None),
    "secrets": (
        Annotated[
            Path | None,
            typer.Option(
                "--secrets",
                help="File of keys (dotenv) for upstreams.",
                metavar="FILE",
                rich_help_panel="Sources",
            ),
        ],
        None,
    ),
    "key": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--key",
                help=(
                    "A key of the environment that sources are granted: `NAME`, or `NAME@host` to "
                    "bind it to a host; `*` for all. Repeatable."
                ),
                metavar="NAME",
                rich_help_panel="Sources",
            ),
        ],
        None,
    ),
    "upstream": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--upstream",
                help=(
                    "Send requests for one root to another, e.g. "
                    "`https://api.x.com=http://localhost:9`. Repeatable."
                ),
                metavar="FROM=TO",
                rich_help_panel="Network",
            ),
        ],
        None,
    ),
    "allow_host": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--allow-host",
                help="A private address that tools may reach. Repeatable.",
                metavar="HOST",
                rich_help_panel="Network",
            ),
        ],
        None,
    ),
    "hook_host": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--hook-host",
                help=(
                    "FlowMCP: a host that hooks may reach besides their file's own, or a pattern "
                    "(`*.site.com`); `*` for all. Repeatable."
                ),
                metavar="HOST",
                rich_help_panel="FlowMCP",
            ),
        ],
        None,
    ),
    "hook_timeout": (
        Annotated[
            float | None,
            typer.Option(
                "--hook-timeout",
                help=(
                    "FlowMCP: seconds that the code of one hook call may run, at most 60; "
                    "1 by default."
                ),
                metavar="SECONDS",
                rich_help_panel="FlowMCP",
            ),
        ],
        None,
    ),
    "log_level": (
        Annotated[
            LogLevel,
            typer.Option(
                "--log-level", help="The log level, on standard error.", rich_help_panel="Logging"
            ),
        ],
        LogLevel.warning,
    ),
    "log_format": (
        Annotated[
            LogFormat,
            typer.Option(
                "--log-format",
                help="The log format: for people, or one JSON object for each line.",
                rich_help_panel="Logging",
            ),
        ],
        LogFormat.text,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options for sources: which ones, and how they are opened."""

    source: list[str] | None = None
    config: Path | None = None
    profile: ProfileName | None = None
    lists: Path | None = None
    allow_library: list[str] | None = None
    secrets: Path | None = None
    key: list[str] | None = None
    upstream: list[str] | None = None
    allow_host: list[str] | None = None
    hook_host: list[str] | None = None
    hook_timeout: float | None = None
    log_level: LogLevel = LogLevel.warning
    log_format: LogFormat = LogFormat.text
    logs: Logs | None = None
    """The log output of this command; None for completion."""

    def session(self, audit: str | None = None) -> Session:
        """The session of a command; `audit` is the location of the audit log.

        Raises:
            UsageError: an option is malformed.
        """
        opening = Opening(
            "",
            profile=None if self.profile is None else self.profile.value,
            lists=None if self.lists is None else str(self.lists),
            libraries=_names("--allow-library", self.allow_library),
            hosts=_names("--allow-host", self.allow_host),
            upstreams=_upstreams(self.upstream),
            hook_hosts=_names("--hook-host", self.hook_host),
            keys=_names("--key", self.key),
            hook_timeout=_seconds("--hook-timeout", self.hook_timeout),
        )
        options = Options(
            refs=tuple(self.source or ()),
            config=self.config,
            opening=opening,
            secrets=self.secrets,
            audit=audit,
        )
        return Session(options, on_secrets=None if self.logs is None else self.logs.hide)

    def arguments(self) -> list[str]:
        """The options as arguments for another process, with absolute paths."""
        parts = [] if self.profile is None else ["--profile", self.profile.value]
        parts += [] if self.lists is None else ["--lists", str(self.lists.resolve())]
        parts += [] if self.secrets is None else ["--secrets", str(self.secrets.resolve())]
        for option in ("allow_library", "key", "upstream", "allow_host", "hook_host"):
            values: list[str] = getattr(self, option) or []
            for value in values:
                parts += [f"--{option.replace('_', '-')}", value]
        if self.hook_timeout is not None:
            parts += ["--hook-timeout", f"{self.hook_timeout:g}"]
        return parts

    async def load(
        self,
        session: Session,
        refs: Iterable[str] = (),
        *,
        uncurated: str | None = None,
        reports: bool = True,
    ) -> None:
        """Load the sources of a session, and print the errors of those that could not be loaded.

        With the name of a source as `uncurated`, only that one, without changes to its tools.
        Without `reports` errors are printed only if nothing could be loaded.

        Raises:
            CallpactError: nothing could be loaded.
        """
        await self.open(session, refs, uncurated=uncurated)
        catalog = session.catalog
        is_empty = not (len(catalog) or catalog.resources or catalog.prompts)
        if reports or is_empty:
            self.report(session)
        if is_empty:
            fail("no tool could be loaded")

    async def open(
        self, session: Session, refs: Iterable[str] = (), *, uncurated: str | None = None
    ) -> None:
        """Load the sources of a session, and print only the warnings about the file of secrets.

        Raises:
            CallpactError: no source could be loaded.
        """
        secrets = session.opening.secrets
        for warning in secrets.warnings if secrets else ():
            err.print(f"[yellow]warning:[/] {plain(warning)}")
        # Text that a module prints on import must not mix with the results.
        with contextlib.redirect_stdout(sys.stderr):
            if uncurated is None:
                await session.load(refs)
            else:
                await session.load_uncurated(uncurated)

    def report(self, session: Session, tool: Tool | None = None) -> None:
        """Print the findings of loading; with a tool, those of other files as one line."""
        report, is_verbose = session.loaded.report, self.log_level.is_verbose
        if tool is None or is_verbose:
            _print_report(report, is_verbose=is_verbose)
            return
        own = file_of(tool.source)
        _print_report([each for each in report if file_of(each.place) == own], is_verbose=False)
        _print_others([each for each in report if file_of(each.place) != own])

    def look(self, session: Session, refs: Iterable[str] = (), *, reports: bool = True) -> Catalog:
        """Load the tools of a session and close its sources again; for commands that call none."""

        async def go() -> Catalog:
            async with session:
                await self.load(session, refs, reports=reports)
                return session.catalog

        return asyncio.run(go())


def takes_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the `sources` of a command by all shared options."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        shared = {name: given.pop(name) for name in _SHARED}
        logs = configure(shared["log_level"].value, shared["log_format"].value)
        command(sources=SourceOptions(**shared, logs=logs), **given)

    own = inspect.signature(command, eval_str=True).parameters
    kept = [parameter for name, parameter in own.items() if name != "sources"]
    return with_parameters(wrapped, [*kept, *starmap(option_parameter, _SHARED.items())])


def option_parameter(name: str, option: tuple[Any, Any]) -> inspect.Parameter:
    """The parameter of an option, given by its annotation and its default."""
    kind, default = option
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def with_parameters(
    command: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Give a command the signature that typer reads its options from."""
    every = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    cast("Any", command).__signature__ = inspect.Signature(every)
    # Typer reads these as well; functools.wraps has copied those of the wrapped command.
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return command


def completed_options(params: Mapping[str, Any]) -> SourceOptions:
    """The options on an unfinished command line, for completion."""
    return SourceOptions(**{name: params[name] for name in _SHARED if params.get(name)})


def packages_folder(given: Path | None, configuration: Configuration) -> Path:
    """The folder of published packages: as given, else as `[serve]` of the configuration names it."""
    if given is not None:
        return given
    return configuration.folder / configuration.tables.serve.packages


def _names(option: str, given: Iterable[str] | None) -> tuple[str, ...]:
    names = tuple(given or ())
    if any(not name.strip() for name in names):
        raise UsageError(f"{option} needs a name, got ''")
    return names


def _seconds(option: str, value: float | None) -> float | None:
    if value is not None and not 0 < value <= MAX_HOOK_TIMEOUT:
        raise UsageError(
            f"{option} must be above zero and at most {MAX_HOOK_TIMEOUT:g}, got {value:g}"
        )
    return value


def _upstreams(given: Iterable[str] | None) -> dict[str, str]:
    roots: dict[str, str] = {}
    for pair in given or ():
        root, _, instead = pair.partition("=")
        if not (_ROOT.match(root) and _ROOT.match(instead)):
            raise UsageError(
                "--upstream is written FROM=TO with two addresses, as in "
                f"https://api.x.com=http://localhost:9, got '{pair}'"
            )
        if root in roots:
            raise UsageError(f"--upstream: '{root}' is given twice")
        roots[root] = instead
    return roots


def _print_report(report: Iterable[Finding], *, is_verbose: bool) -> None:
    """Print errors and left out declarations in full, other warnings as counts by code.

    With `is_verbose`, everything is printed in full.
    """
    counts: Counter[str] = Counter()
    files: set[str] = set()
    bare = 0
    for finding in report:
        is_error = finding.severity == "error"
        if not is_error and not is_verbose:
            if finding.severity == "info":
                continue
            if finding.code and not finding.is_left_out:
                counts[finding.code] += 1
                files.add(finding.place)
                continue
            bare += 1
            if bare > _MOST_PRINTED:
                continue
        style = {"error": "red", "warning": "yellow"}.get(finding.severity, "dim")
        err.print(f"[{style}]{finding.severity}:[/] {plain(_line(finding))}")
    if bare > _MOST_PRINTED:
        more = f"{bare - _MOST_PRINTED:,} more warnings"
        err.print(f"[yellow]warning:[/] {more}; --log-level info shows them")
    if counts:
        codes = ", ".join(f"{code} × {number:,}" for code, number in counts.most_common())
        total = f"{counted(counts.total(), 'warning')} in {counted(len(files), 'file')}"
        err.print(f"[yellow]warning:[/] {total} ({codes}); `callpact check` shows them")


def file_of(place: str) -> str:
    """The file of a tool or finding: `shop.py` of `python:shop.py:price`."""
    kind, _, rest = place.partition(":")
    if kind == "python":
        return rest.rpartition(":")[0] or rest
    return rest if kind == "flowmcp" else place


def _print_others(report: Iterable[Finding]) -> None:
    """Print one line about findings that are not about the tool at hand."""
    told = [each for each in report if each.severity != "info"]
    if not told:
        return
    errors = sum(each.severity == "error" for each in told)
    parts = [counted(errors, "error")] if errors else []
    parts += [counted(len(told) - errors, "warning")] if errors < len(told) else []
    places = counted(len({each.place for each in told}), "other place")
    err.print(f"{' and '.join(parts)} in {places}; `callpact list` shows them", style="dim")


def _line(finding: Finding) -> str:
    known = finding.message.startswith((finding.place, f"'{finding.place}'"))
    place = "" if known else finding.place
    if finding.line is not None:
        place += f":{finding.line}:{finding.column or 1}"
    code = f"{finding.code} " if finding.code else ""
    return f"{place}: {code}{finding.message}" if place else f"{code}{finding.message}"
