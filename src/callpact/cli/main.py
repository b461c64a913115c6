"""The command line, thin above `app.py`. Results on standard output, everything else on stderr."""

from __future__ import annotations

import asyncio
import re
import sys
from enum import StrEnum
from functools import cache
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callpact.cli.clients.client_table import (
    CLIENTS,
    ClientName,
    file_of,
    http_entry,
    server_name,
    stdio_entry,
)
from callpact.cli.examples import add_examples
from callpact.cli.options import (
    CheckFormat,
    ConfigFile,
    LibrariesOption,
    ListsOption,
    PackagesOption,
    ProfileOption,
    RecordOption,
    SourceOptions,
    packages_folder,
    takes_sources,
)
from callpact.cli.output import (
    err,
    fail,
    plain,
    print_lines,
    run,
    standard_streams,
)
from callpact.cli.plain_commands import PlainGroup
from callpact.config import DEFAULT_FILE, FIRST_CONFIG, FIRST_TOOLS
from callpact.errors import CallpactError

if TYPE_CHECKING:
    from callpact.app import Session

app = typer.Typer(
    name="callpact",
    cls=PlainGroup,
    help="Every tool an AI agent can call, under one contract.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class AdvertiseName(StrEnum):
    """How much of an output schema clients see."""

    full = "full"
    declared = "declared"
    relaxed = "relaxed"
    top = "top"
    none = "none"


class RenderingName(StrEnum):
    """Forms of results over MCP."""

    mcp = "mcp"
    flowmcp = "flowmcp"


def _print_version(value: bool) -> None:  # noqa: FBT001 - called by typer
    if value:
        print_lines([f"callpact {package_version('callpact')}"])
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    pass


@takes_sources
def doctor(*, sources: SourceOptions) -> None:
    """Report on one page what works and what does not, with the line that mends it.

    Sources, tools that cannot be called and why, keys and the hosts they are sent to, files that
    were left out, missing lists and libraries, MCP servers, clients that are set up, the audit log.

    Exit code 1 if a tool is disabled, or something could not be loaded, reached or started.
    """
    from callpact.cli.doctor import examine

    async def go() -> bool:
        async with sources.session() as session:
            return await examine(session, lambda: sources.open(session))

    if not asyncio.run(go()):
        raise typer.Exit(1)


@takes_sources
def lock(
    *,
    sources: SourceOptions,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            help="A changed tool, `prompt:NAME` or `server:instructions` to accept; `*` for all. "
            "Repeatable.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Pin the definitions of MCP servers in `callpact.lock`, and show what changed since.

    Changes of contracts are classified as by `callpact diff`. Exit code 1 if definitions changed that were not accepted.
    """
    from callpact.cli.lock import update_lock

    async def go() -> int:
        async with sources.session() as session:
            await sources.load(session)
            return 0 if await update_lock(session, accept or ()) else 1

    run(go())


@takes_sources
def curate(
    *,
    name: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The name of a `[sources.NAME]` table.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write. [default: `NAME.curate.toml` beside the configuration]",
            metavar="FILE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    sources: SourceOptions,
) -> None:
    """Write a file to curate the tools of a source with: every tool, all settings commented out.

    The file is read with `callpact.toml`. As it is written, it changes nothing.
    """
    from callpact.cli.curate import write_first_file

    session = sources.session()

    async def go() -> int:
        async with session:
            await sources.load(session, uncurated=name)
            tables = session.config.sources[name].tools
            tools = tuple(session.catalog)
            named = {tool.id for key in tables if (tool := session.catalog.get(key)) is not None}
            named |= {tool.id for tool in tools if tool.name in tables}
            path = output or session.configuration.curate_file(name)
            write_first_file(path, name, tools, elsewhere=named, force=force)
            return 0

    run(go())


def check(
    *,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="FlowMCP files, folders of them, and OpenAPI documents."
        ),
    ],
    profile: ProfileOption = None,
    lists: ListsOption = None,
    allow_library: LibrariesOption = None,
    form: Annotated[
        CheckFormat,
        typer.Option(
            "--format", help="The form of the findings; `html` is one page, for a browser."
        ),
    ] = CheckFormat.text,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object for each file: `--format json`.")
    ] = False,
    warnings: Annotated[
        bool,
        typer.Option("--warnings", help="Show warnings too; those of a single file always are."),
    ] = False,
    errors_only: Annotated[
        bool, typer.Option("--errors-only", help="Leave warnings out, in every format.")
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            help="Only codes that begin so, separated by commas: `VAL,SEC020`. Repeatable.",
            metavar="CODES",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore", help="Not the codes that begin so, not even errors.", metavar="CODES"
        ),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Write `schemaHash`, a missing `schemaVersion`, and `tools` for `routes` first.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="With `--fix`: print the changes as a diff, and write and check nothing.",
        ),
    ] = False,
    hooks: Annotated[
        bool,
        typer.Option("--hooks", help="Open the hooks of each file in the sandbox, too."),
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Check FlowMCP files against every rule, without running them. Exit code 1 if one has errors.

    Files with errors come first, then the number of findings by code. With `--fix --dry-run` the
    exit code is 1 if there is something to fix.

    Of an OpenAPI document (`.json`, `.yaml`, `.yml`) every operation and schema is read.

    Profile, lists and libraries of a source come from `callpact.toml`. With `--hooks` the code of a
    file runs in the sandbox up to the definition of its hooks; none of them is called.
    """
    from callpact.cli.check import FileRules, check_paths, print_fixes, selection_of

    if dry_run and not fix:
        fail("--dry-run shows what --fix would write; name both")
    if as_json and form not in {CheckFormat.text, CheckFormat.json}:
        fail(f"--json and --format {form.value} are two formats; name one")
    if warnings and errors_only:
        fail("--warnings and --errors-only contradict each other; name one")
    if dry_run:
        raise typer.Exit(int(print_fixes(paths)))
    sources = SourceOptions(
        config=config, profile=profile, lists=lists, allow_library=allow_library
    )
    has_errors = check_paths(
        paths,
        FileRules(sources.session()),
        form=CheckFormat.json if as_json else form,
        selection=selection_of(select, ignore, errors_only=errors_only),
        shows_warnings=warnings,
        fixes=fix,
        opens_hooks=hooks,
    )
    if has_errors:
        raise typer.Exit(1)


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it is missing.")] = Path(),
) -> None:
    """Write a small callpact.toml and a first tool to start from."""
    files = {folder / DEFAULT_FILE: FIRST_CONFIG, folder / "tools.py": FIRST_TOOLS}
    present = [str(path) for path in files if path.exists()]
    if present:
        verb = "exists" if len(present) == 1 else "exist"
        fail(f"{' and '.join(present)} {verb} already; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_text(content, "utf-8")
            err.print(f"wrote {path}")
    except OSError as error:
        fail(f"cannot write to {folder}: {error.strerror or error}")
    where = "" if folder == Path() else f"cd {folder} && "
    err.print(f"try: [bold]{where}callpact call tools.greet name=Ada[/]")


@takes_sources
def install(
    *,
    client: Annotated[
        ClientName, typer.Argument(metavar="CLIENT", help="The program that uses the tools.")
    ],
    serve_words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- OPTION", help="Options of `callpact serve` for the server, behind `--`."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            help="The address of a server that runs, instead of one over stdio.",
            metavar="URL",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help="With `--http`: the variable of the environment that holds the client's token.",
            metavar="NAME",
        ),
    ] = None,
    project: Annotated[
        bool | None,
        typer.Option(
            "--project/--user",
            help="Write the client's file of this project, or of the user. "
            "[default: user; project for claude-code]",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="The name of the server. [default: as configured, else the folder's]"
        ),
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Only print the entry, and name the file.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Write without asking; the change is shown still.")
    ] = False,
    sources: SourceOptions,
) -> None:
    """Set up a client: write the server into the client's configuration file.

    The change is shown as a diff, and written once it is confirmed; everything else in the file
    stays as it is, and the old file is kept beside it.
    """
    from callpact.cli.clients.install import install_entry, print_entry

    session = sources.session()
    folder = session.configuration.folder
    label = server_name(name, session.config.serve.name, folder)
    if http is None:
        entry = _stdio_entry(client, serve_words or [], sources, session, label=label, token=token)
    else:
        entry = _http_entry(client, http, token, serve_words)
    is_project = CLIENTS[client].prefers_project if project is None else project
    file = file_of(client, folder if is_project else None)
    if print_only:
        print_entry(client, label, entry, file)
        return

    def confirmed() -> bool:
        if yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty():
            err.print("standard input is not a terminal, so nobody can confirm; --yes writes it")
            return False
        return typer.confirm("write this?", err=True)

    if not install_entry(client, label, entry, file, confirmed=confirmed):
        raise typer.Exit(1)


def _stdio_entry(
    client: ClientName,
    words: list[str],
    sources: SourceOptions,
    session: Session,
    *,
    label: str,
    token: str | None,
) -> dict[str, Any]:
    _check_extra()
    if token is not None:
        fail("--token is sent over HTTP; name the address with --http, or leave it out")
    command: Any = typer.main.get_command(app)
    command.commands["serve"].make_context("serve", list(words))  # Ends with what is wrong.
    sources.look(session)
    named = [] if label == session.config.serve.name or "--name" in words else ["--name", label]
    file = sources.config or Path(DEFAULT_FILE)
    return stdio_entry(client, sources.source or (), file, [*named, *sources.arguments(), *words])


def _http_entry(
    client: ClientName, address: str, token: str | None, words: list[str] | None
) -> dict[str, Any]:
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s]*", address):
        fail(f"--http takes an address like http://localhost:8420/mcp, got '{address}'")
    if words:
        fail("options of `callpact serve` are for servers over stdio; leave out --http, or them")
    return http_entry(client, address, token)


def _check_extra() -> None:
    if find_spec("mcp") is None:
        fail("serving over MCP needs the extra 'mcp': pip install 'callpact[mcp]'")


def _configured(value: object) -> str:
    return f"[default: as configured, else {value}]"


@app.command()
@takes_sources
def serve(
    *,
    stdio: Annotated[
        bool | None,
        typer.Option("--stdio/--no-stdio", help="Speak MCP on standard input and output."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help=f"Address for HTTP; by default only this machine. {_configured('127.0.0.1')}",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help=f"The port for HTTP; 0 for any free one. {_configured(8420)}"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=64,
            help=f"Processes that serve HTTP behind the one port. {_configured(1)}",
            metavar="N",
        ),
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", help=f"The path for HTTP. {_configured('/mcp')}")
    ] = None,
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            help="Serve the tools under a published version of their contracts; the newest one of "
            "a range is followed.",
            metavar="NAME@RANGE",
        ),
    ] = None,
    packages: PackagesOption = None,
    draft: Annotated[
        bool | None,
        typer.Option(
            "--draft/--no-draft",
            help="Serve the contracts of the sources too, at PATH/draft, beside --package.",
        ),
    ] = None,
    trust_network: Annotated[
        bool | None,
        typer.Option(
            "--trust-network/--no-trust-network",
            help="Everybody who reaches the server may call its tools: no authentication beyond "
            "this machine. Only for a network without strangers, as of containers.",
        ),
    ] = None,
    list_up_to: Annotated[
        int | None,
        typer.Option(
            "--list-up-to",
            min=0,
            help="With more tools than this, list three tools that search, describe and call them. "
            f"{_configured(200)}",
            metavar="N",
        ),
    ] = None,
    advertise: Annotated[
        AdvertiseName | None,
        typer.Option(
            "--advertise",
            help=f"How much of output schemas the list of tools shows. {_configured('full')}",
        ),
    ] = None,
    as_: Annotated[
        RenderingName | None,
        typer.Option(
            "--as",
            help="The form of results: MCP's own, or FlowMCP's {status, messages, data}. "
            f"{_configured('mcp')}",
        ),
    ] = None,
    result_limit: Annotated[
        int | None,
        typer.Option(
            "--result-limit",
            min=1_000,
            help=f"Larger results come in pages of whole items. {_configured(100_000)}",
            metavar="BYTES",
        ),
    ] = None,
    ask_first: Annotated[
        bool | None,
        typer.Option(
            "--ask-first/--no-ask-first", help="Ask the user before a destructive tool runs."
        ),
    ] = None,
    audit: RecordOption = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--no-watch", help="Read changed sources again while serving."),
    ] = None,
    metrics: Annotated[
        bool | None,
        typer.Option(
            "--metrics/--no-metrics", help="Metrics for Prometheus at /metrics, over HTTP."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help=f"The server's name for its clients. {_configured('callpact')}"
        ),
    ] = None,
    server_version: Annotated[
        str | None,
        typer.Option(
            "--server-version",
            help=f"The server's version for its clients. {_configured('that of callpact')}",
            metavar="TEXT",
        ),
    ] = None,
    instructions: Annotated[
        str | None,
        typer.Option(
            "--instructions",
            help="What clients tell their model about the server as a whole.",
            metavar="TEXT",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="A scope that the client holds. Repeatable.", metavar="NAME"),
    ] = None,
    sources: SourceOptions,
) -> None:
    """Serve the tools over MCP that the client may use.

    Subscriptions and disabled tools are left out. Each option can also be in the table `[serve]` of
    `callpact.toml`; the command line takes precedence.
    """
    _check_extra()
    if stdio and metrics:
        fail("--metrics: the numbers are read over HTTP; leave out --stdio")
    from callpact.cli.serve import serve as serve_by
    from callpact.cli.serve import serve_options

    session = sources.session(audit)
    options = serve_options(
        session.config.serve,
        stdio=stdio,
        host=host,
        port=port,
        workers=workers,
        path=path,
        package=package,
        packages=packages_folder(packages, session.configuration),
        draft=draft,
        trust_network=trust_network,
        name=name,
        version=server_version,
        instructions=instructions,
        list_up_to=list_up_to,
        advertise=None if advertise is None else advertise.value,
        as_=None if as_ is None else as_.value,
        result_limit=result_limit,
        ask_first=ask_first,
        watch=watch,
        metrics=metrics,
        scopes=scope or None,
    )
    if options.stdio and workers is not None and workers > 1:
        fail("--workers: over stdio there is one client, and one process; leave out --stdio")
    if options.stdio and draft:
        fail("--draft: the draft has an address of its own over HTTP; leave out --stdio")
    serve_by(options, session, sources)


@cache
def whole() -> typer.Typer:
    """The command line with all its commands."""
    from callpact.cli.ask.ask_commands import add_ask_commands
    from callpact.cli.audit.audit_commands import audits
    from callpact.cli.audit.judgement import add_audit_commands
    from callpact.cli.contracts.diff_command import diff
    from callpact.cli.contracts.docs_command import docs
    from callpact.cli.contracts.lint_command import lint
    from callpact.cli.contracts.package_commands import packages
    from callpact.cli.contracts.publish_command import publish
    from callpact.cli.contracts.types_command import types
    from callpact.cli.libs import libs
    from callpact.cli.tool_commands import add_tool_commands

    add_tool_commands(app)
    for command in (check, curate, diff, docs, doctor, init, install, lint, lock, publish, types):
        app.command()(command)
    app.add_typer(libs, name="libs", cls=PlainGroup)
    app.add_typer(packages, name="packages", cls=PlainGroup)
    app.add_typer(audits, name="audit", cls=PlainGroup)
    add_audit_commands(app, audits)
    add_ask_commands(app)
    add_examples(app)
    return app


def _named(words: list[str]) -> typer.Typer:
    """The command line with the command that is named; the commonest start faster alone."""
    match words:
        case ["serve", *_]:
            pass
        case ["call" | "list" | "show", *_]:
            from callpact.cli.tool_commands import add_tool_commands

            add_tool_commands(app)
        case _:
            return whole()
    add_examples(app)
    return app


def main() -> None:
    """Run the command line; each error of ours is printed as one line, without a traceback."""
    commands = _named(sys.argv[1:])
    with standard_streams():
        try:
            try:
                # Also under `python -m`: completion needs this name.
                commands(prog_name="callpact")
            finally:
                sys.stdout.flush()
        except CallpactError as error:
            err.print(f"[red]error:[/] {plain(str(error))}")
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None
