"""The command line: thin above `app.py`. Results on standard output, everything else on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from enum import StrEnum
from functools import cache
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from callpact.cli.client_config import client_config
from callpact.cli.doctor import examine, print_keys
from callpact.cli.options import (
    AsJson,
    Chosen,
    ConfigFile,
    LibrariesOption,
    ListsOption,
    ProfileOption,
    chosen_so_far,
    takes_sources,
)
from callpact.cli.output import (
    As,
    Row,
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
    """How much of an output schema clients are shown."""

    full = "full"
    declared = "declared"
    relaxed = "relaxed"
    top = "top"
    none = "none"


class RenderingName(StrEnum):
    """Forms of results over MCP."""

    mcp = "mcp"
    flowmcp = "flowmcp"


class Client(StrEnum):
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
    """Names for the shell: the tools of the sources named so far, else of ./callpact.toml."""
    chosen = chosen_so_far(context.params)
    try:
        session = chosen.session()
        with contextlib.redirect_stdout(sys.stderr):
            asyncio.run(session.load())
    except CallpactError:
        return []
    return [
        (tool.id, text.first_line(tool.description))
        for tool in session.catalog
        if tool.id.startswith(incomplete)
    ]


AuditFolder = Annotated[
    str | None,
    typer.Option(
        "--audit",
        help="Where the audit log is: a folder, or postgresql://…; `off` for no record. "
        "[default: as configured]",
        metavar="WHERE",
    ),
]
ToolName = Annotated[
    str,
    typer.Argument(metavar="TOOL", help="Id, wire name or alias.", autocompletion=_complete_tool),
]


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
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
def list_tools(*, chosen: Chosen, as_json: AsJson = False) -> None:
    """List the tools, and what was wrong with those that are missing."""
    catalog = chosen.look(chosen.session())
    if as_json:
        for tool in catalog:
            print_json(text.encode_summary(tool), sys.stdout, is_line=True)
        return
    traits = {tool.id: text.encode_traits(tool) for tool in catalog}
    last = ["NOTE"] if any(traits.values()) else []
    rows: list[Row] = []
    for tool in catalog:
        arguments = ", ".join(text.argument_names(tool))
        about = text.first_line(tool.description)
        cells = (tool.id, about, arguments, tool.contract.policy, traits[tool.id])
        style = "" if tool.disabled is None else "dim"
        rows.append(Row(cells[: 4 + len(last)], style, "bold"))
    print_table(rows, ["TOOL", "DOES", "ARGUMENTS", "POLICY", *last])
    print_keys(catalog)
    disabled = sum(tool.disabled is not None for tool in catalog)
    more = f", {disabled:,} of them disabled" if disabled else ""
    err.print(f"{counted(len(catalog))}{more}", style="dim")


@app.command()
@takes_sources
def doctor(*, chosen: Chosen) -> None:
    """Report why tools cannot be called, and which file sends which key where.

    Exit code 1 if a tool is disabled or a declaration could not be loaded.
    """

    async def go() -> bool:
        async with chosen.session() as session:
            await chosen.load(session)
            return examine(session)

    if not asyncio.run(go()):
        raise typer.Exit(1)


@app.command()
@takes_sources
def show(*, tool: ToolName, chosen: Chosen, as_json: AsJson = False) -> None:
    """Show one tool: what it does, what it takes, what it gives."""
    catalog = chosen.look(chosen.session())
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
    audit: AuditFolder = None,
    chosen: Chosen,
) -> None:
    """Call a tool. Exit code 0 for a result; else by the kind of error (see the reference).

    A subscription is written as it comes, one line of JSON for each result, until it ends or
    Ctrl-C ends it.
    """
    raw = sys.stdin.read() if input_json == "-" else input_json
    tightened = cast("Any", policy.value if policy else None)

    async def go() -> int:
        async with chosen.session(audit) as session:
            await chosen.load(session)
            runtime = await session.start()
            found: Tool | None = None
            try:
                if tool not in runtime.catalog:  # A call all the same, and on record.
                    with contextlib.suppress(UnknownTool):
                        await runtime.call(Call(tool, via="cli"), trusted=True)
                found = _find(runtime.catalog, tool)
                given = text.decode_arguments(found.contract.input, arguments or (), raw)
                with warned_once(found.id, chosen.log_level):
                    if found.kind == "subscription":
                        deadline = now_ms() + timeout * 1000 if timeout else None
                        asked = Call(
                            found.id, given, deadline=deadline, policy=tightened, via="cli"
                        )
                        await print_stream(runtime.stream(asked, trusted=True), as_)
                        return 0
                    seconds = timeout or found.timeout or DEFAULT_TIMEOUT
                    with contextlib.redirect_stdout(sys.stderr):
                        deadline = now_ms() + seconds * 1000
                        asked = Call(
                            found.id, given, deadline=deadline, policy=tightened, via="cli"
                        )
                        envelope = await runtime.call(asked, trusted=True)
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
        list[Path], typer.Argument(metavar="PATH", help="FlowMCP files, and folders of them.")
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

    A `callpact.toml` says which profile, lists and libraries its sources have. With `--hooks` the
    code of a file runs in the sandbox until its hooks are there; none of them is called.
    """
    from callpact.cli.check import Demands, check_paths

    chosen = Chosen(config=config, profile=profile, lists=lists, allow_library=allow_library)
    demands = Demands(chosen.session())
    has_errors = check_paths(paths, demands, as_json=as_json, fixes=fix, opens_hooks=hooks)
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
        str, typer.Option("--host", help="Where to serve over HTTP; this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="The port for HTTP; 0 for any that is free.")
    ] = 8420,
    path: Annotated[str, typer.Option("--path", help="The path for HTTP.")] = "/mcp",
    list_up_to: Annotated[
        int,
        typer.Option(
            "--list-up-to",
            min=0,
            help="Of more tools than this, list three that search, describe and call them.",
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
        typer.Option(
            "--ask-first", help="Ask the user before a tool runs that can destroy something."
        ),
    ] = False,
    audit: AuditFolder = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Read changed sources again while serving.")
    ] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Numbers for Prometheus at /metrics, over HTTP.")
    ] = False,
    print_config: Annotated[
        Client | None,
        typer.Option("--print-config", help="Print the configuration for a client, and exit."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="The server's name for its clients.")
    ] = "callpact",
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="A scope that the client holds. Repeatable.", metavar="NAME"),
    ] = None,
    chosen: Chosen,
) -> None:
    """Serve the tools over MCP: those that the client may use, and that can be called.

    Subscriptions are left out, and so are tools that are disabled.
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
    session = chosen.session(audit)
    if print_config is None:
        serve_by(options, session, chosen)
        return
    chosen.look(session)
    file, refs = chosen.config or Path(DEFAULT_FILE), tuple(chosen.source or ())
    arguments = (*chosen.arguments(), *options.arguments())
    print_json(client_config(print_config.value, name, refs, file, arguments), sys.stdout)


@cache
def whole() -> typer.Typer:
    """The command line with all its commands; a server starts without those that it never runs."""
    from callpact.cli.ask.ask_commands import ask_by
    from callpact.cli.audit.audit_commands import audits
    from callpact.cli.audit.judgement import judge_by
    from callpact.cli.libs import libs

    app.add_typer(libs, name="libs")
    app.add_typer(audits, name="audit")
    judge_by(app, audits)
    ask_by(app)
    return app


def main() -> None:
    """Run the command line; every error of ours is one clear line, never a trace."""
    commands = app if sys.argv[1:2] == ["serve"] else whole()
    with standard_streams():
        try:
            try:
                # Also under `python -m`: completion goes by this name.
                commands(prog_name="callpact")
            finally:
                sys.stdout.flush()
        except CallpactError as error:
            err.print(f"[red]error:[/] {plain(str(error))}")
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None


def _find(catalog: Catalog, name: str) -> Tool:
    """As the catalog finds it; a bare name is answered with the ids that end in it."""
    namesakes = [tool.id for tool in catalog if tool.name == name]
    if name not in catalog and namesakes:
        raise UnknownTool(name, namesakes)
    return catalog.find(name)
