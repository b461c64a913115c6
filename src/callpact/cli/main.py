"""The command line, thin above `app.py`. Results on standard output, everything else on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from enum import StrEnum
from functools import cache
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callpact.cli.client_config import client_config
from callpact.cli.doctor import examine, examine_servers, print_keys
from callpact.cli.options import (
    AsJson,
    ConfigFile,
    LibrariesOption,
    ListsOption,
    ProfileOption,
    RecordOption,
    SourceOptions,
    completed_options,
    takes_sources,
)
from callpact.cli.output import (
    As,
    TableRow,
    counted,
    err,
    fail,
    out,
    plain,
    print_failure,
    print_json,
    print_properties,
    print_result,
    print_stream,
    print_table,
    run,
    standard_streams,
    warned_once,
)
from callpact.config import DEFAULT_FILE, FIRST_CONFIG, FIRST_TOOLS
from callpact.envelope import now_ms
from callpact.errors import CallError, CallpactError, UnknownTool
from callpact.serve import DEFAULT_TIMEOUT
from callpact.tool import Call
from callpact.wire import terminal as text

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.tool import Tool

app = typer.Typer(
    name="callpact",
    help="Every tool an AI agent can call, under one contract.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
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


class ClientProgram(StrEnum):
    """Programs that start MCP servers."""

    claude = "claude"
    vscode = "vscode"
    cursor = "cursor"


class PolicyName(StrEnum):
    """Output policies, from the loosest to the strictest."""

    pass_ = "pass"  # noqa: S105 - a policy
    warn = "warn"
    cast = "cast"
    convert = "convert"
    reject = "reject"


def _complete_tool(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Completions for the shell: tools of the sources named so far, else of ./callpact.toml."""
    sources = completed_options(context.params)
    try:
        session = sources.session()
        with contextlib.redirect_stdout(sys.stderr):
            asyncio.run(session.load())
    except CallpactError:
        return []
    return [
        (tool.id, text.first_line(tool.description))
        for tool in session.catalog
        if tool.id.startswith(incomplete)
    ]


ToolName = Annotated[
    str,
    typer.Argument(metavar="TOOL", help="Id, wire name or alias.", autocompletion=_complete_tool),
]


def _print_version(value: bool) -> None:  # noqa: FBT001 - called by typer
    if value:
        out.print(f"callpact {package_version('callpact')}")
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


@app.command("list")
@takes_sources
def list_tools(*, sources: SourceOptions, as_json: AsJson = False) -> None:
    """List the tools, and the errors of those that could not be loaded."""
    catalog = sources.look(sources.session())
    if as_json:
        for tool in catalog:
            print_json(text.encode_summary(tool), sys.stdout, is_line=True)
        return
    traits = {tool.id: text.encode_traits(tool) for tool in catalog}
    last = ["NOTE"] if any(traits.values()) else []
    rows: list[TableRow] = []
    for tool in catalog:
        arguments = ", ".join(text.argument_names(tool))
        about = text.first_line(tool.description)
        cells = (tool.id, about, arguments, tool.contract.policy, traits[tool.id])
        style = "" if tool.disabled is None else "dim"
        rows.append(TableRow(cells[: 4 + len(last)], style, "bold"))
    print_table(rows, ["TOOL", "DOES", "ARGUMENTS", "POLICY", *last])
    print_keys(catalog)
    disabled = sum(tool.disabled is not None for tool in catalog)
    more = f", {disabled:,} of them disabled" if disabled else ""
    err.print(f"{counted(len(catalog))}{more}", style="dim")


@app.command()
@takes_sources
def doctor(*, sources: SourceOptions) -> None:
    """Report why tools cannot be called, and which file sends which key where.

    Exit code 1 if a tool is disabled or a declaration could not be loaded.
    """

    async def go() -> bool:
        async with sources.session() as session:
            await sources.load(session)
            is_sound = examine(session)
            return await examine_servers(session) and is_sound

    if not asyncio.run(go()):
        raise typer.Exit(1)


@app.command()
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

    Exit code 1 if definitions changed that were not accepted.
    """
    from callpact.cli.lock import update_lock

    async def go() -> int:
        async with sources.session() as session:
            await sources.load(session)
            return 0 if await update_lock(session, accept or ()) else 1

    run(go())


@app.command()
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


@app.command()
@takes_sources
def show(*, tool: ToolName, sources: SourceOptions, as_json: AsJson = False) -> None:
    """Show one tool: its description, its input and its output."""
    catalog = sources.look(sources.session())
    try:
        found = _find(catalog, tool)
    except CallError as error:
        print_failure(error, As.data, tool)
        raise typer.Exit(error.row.exit) from None
    if as_json:
        print_json(text.encode_description(found), sys.stdout)
        return
    out.print(f"[bold]{found.id}[/]  {plain(found.title or '')}".rstrip())
    out.print(plain(found.description))
    out.print()
    print_properties("Takes", found.contract.input)
    print_properties("Gives", found.contract.output)
    for name, value in text.encode_facts(found).items():
        out.print(f"[dim]{name:>12}[/]  {plain(str(value))}")


@app.command()
@takes_sources
def call(
    *,
    tool: ToolName,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Arguments, read by the tool's own schema; lists and objects as JSON.",
        ),
    ] = None,
    input_json: Annotated[
        str | None,
        typer.Option("--input", "-i", help="All arguments as JSON; `-` reads standard input."),
    ] = None,
    as_: Annotated[As, typer.Option("--as", help="How the result is written.")] = As.data,
    policy: Annotated[
        PolicyName | None, typer.Option("--policy", help="Tighten the output policy for this call.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            help=(
                "Seconds the call may take, or the whole subscription. "
                f"[default: as configured, else {DEFAULT_TIMEOUT:g}; none for a subscription]"
            ),
            min=0.001,
            max=86400,
        ),
    ] = None,
    audit: RecordOption = None,
    sources: SourceOptions,
) -> None:
    """Call a tool. Exit code 0 for a result; else by the kind of error (see the reference).

    A subscription is written as one line of JSON for each result, until it ends or Ctrl-C ends it.
    """
    raw = sys.stdin.read() if input_json == "-" else input_json
    tightened = policy.value if policy else None

    async def go() -> int:
        async with sources.session(audit) as session:
            await sources.load(session)
            runtime = await session.start()
            found: Tool | None = None
            try:
                if tool not in runtime.catalog:  # An unknown tool is called for its record.
                    with contextlib.suppress(UnknownTool):
                        await runtime.call(Call(tool, via="cli"), trusted=True)
                found = _find(runtime.catalog, tool)
                given = text.decode_arguments(found.contract.input, arguments or (), raw)
                with warned_once(found.id, sources.log_level):
                    is_stream = found.kind == "subscription"
                    seconds = timeout if is_stream else timeout or found.timeout or DEFAULT_TIMEOUT
                    deadline = now_ms() + seconds * 1000 if seconds else None
                    one = Call(found.id, given, deadline=deadline, policy=tightened, via="cli")
                    if is_stream:
                        await print_stream(runtime.stream(one, trusted=True), as_)
                        return 0
                    with contextlib.redirect_stdout(sys.stderr):
                        envelope = await runtime.call(one, trusted=True)
            except CallError as error:
                is_stream = found is not None and found.kind == "subscription"
                print_failure(error, as_, found.name if found else tool, is_line=is_stream)
                return error.row.exit
            print_result(envelope, as_, sys.stdout)
            return 0

    run(go())


@app.command()
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
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object for each file instead of tables.")
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Write `schemaHash`, a missing `schemaVersion`, and `tools` for `routes` first.",
        ),
    ] = False,
    hooks: Annotated[
        bool,
        typer.Option("--hooks", help="Open the hooks of each file in the sandbox, too."),
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Check FlowMCP files against every rule, without running them. Exit code 1 if one has errors.

    Of an OpenAPI document (`.json`, `.yaml`, `.yml`) every operation and schema is read. Profile, lists and libraries of a source come from `callpact.toml`. With `--hooks` the code of a
    file runs in the sandbox up to the definition of its hooks; none of them is called.
    """
    from callpact.cli.check import FileRules, check_paths

    sources = SourceOptions(
        config=config, profile=profile, lists=lists, allow_library=allow_library
    )
    rules = FileRules(sources.session())
    has_errors = check_paths(paths, rules, as_json=as_json, fixes=fix, opens_hooks=hooks)
    if has_errors:
        raise typer.Exit(1)


@app.command()
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


@app.command()
@takes_sources
def serve(
    *,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Speak MCP on standard input and output.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", help="Address for HTTP; by default only this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="The port for HTTP; 0 for any free one.")
    ] = 8420,
    path: Annotated[str, typer.Option("--path", help="The path for HTTP.")] = "/mcp",
    list_up_to: Annotated[
        int,
        typer.Option(
            "--list-up-to",
            min=0,
            help="With more tools than this, list three tools that search, describe and call them.",
            metavar="N",
        ),
    ] = 200,
    advertise: Annotated[
        AdvertiseName,
        typer.Option("--advertise", help="How much of output schemas the list of tools shows."),
    ] = AdvertiseName.full,
    as_: Annotated[
        RenderingName | None,
        typer.Option(
            "--as",
            help="The form of results: MCP's own, or FlowMCP's {status, messages, data}. "
            "[default: as configured, else mcp]",
        ),
    ] = None,
    result_limit: Annotated[
        int,
        typer.Option(
            "--result-limit",
            min=1_000,
            help="Larger results come in pages of whole items.",
            metavar="BYTES",
        ),
    ] = 100_000,
    ask_first: Annotated[
        bool,
        typer.Option("--ask-first", help="Ask the user before a destructive tool runs."),
    ] = False,
    audit: RecordOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Read changed sources again while serving.")
    ] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Metrics for Prometheus at /metrics, over HTTP.")
    ] = False,
    print_config: Annotated[
        ClientProgram | None,
        typer.Option("--print-config", help="Print the configuration for a client, and exit."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="The server's name for its clients.")
    ] = "callpact",
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="A scope that the client holds. Repeatable.", metavar="NAME"),
    ] = None,
    sources: SourceOptions,
) -> None:
    """Serve the tools over MCP that the client may use.

    Subscriptions and disabled tools are left out.
    """
    if find_spec("mcp") is None:
        fail("serving over MCP needs the extra 'mcp': pip install 'callpact[mcp]'")
    from callpact.cli.serve import ServeOptions
    from callpact.cli.serve import serve as serve_by

    options = ServeOptions(
        stdio=stdio,
        host=host,
        port=port,
        path=path,
        name=name,
        list_up_to=list_up_to,
        advertise=advertise.value,
        rendering=None if as_ is None else as_.value,
        result_limit=result_limit,
        ask_first=ask_first,
        watch=watch,
        metrics=metrics,
        audit=audit,
        scopes=tuple(scope or ()),
    )
    session = sources.session(audit)
    if print_config is None:
        serve_by(options, session, sources)
        return
    sources.look(session)
    file, refs = sources.config or Path(DEFAULT_FILE), tuple(sources.source or ())
    arguments = (*sources.arguments(), *options.arguments())
    print_json(client_config(print_config.value, name, refs, file, arguments), sys.stdout)


@cache
def whole() -> typer.Typer:
    """The command line with all its commands; `serve` starts faster without them."""
    from callpact.cli.ask.ask_commands import add_ask_commands
    from callpact.cli.audit.audit_commands import audits
    from callpact.cli.audit.judgement import add_audit_commands
    from callpact.cli.libs import libs

    app.add_typer(libs, name="libs")
    app.add_typer(audits, name="audit")
    add_audit_commands(app, audits)
    add_ask_commands(app)
    return app


def main() -> None:
    """Run the command line; each error of ours is printed as one line, without a traceback."""
    commands = app if sys.argv[1:2] == ["serve"] else whole()
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


def _find(catalog: Catalog, name: str) -> Tool:
    """Find a tool in the catalog; for a bare name the error suggests the ids that end with it."""
    namesakes = [tool.id for tool in catalog if tool.name == name]
    if name not in catalog and namesakes:
        raise UnknownTool(name, namesakes)
    return catalog.find(name)
