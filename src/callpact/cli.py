"""The command line: thin above `app.py`. Results on standard output, everything else on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from callpact.app import App, load_app
from callpact.config import DEFAULT_FILE, FIRST_CONFIG, FIRST_TOOLS
from callpact.envelope import now_ms
from callpact.errors import CallError, CallpactError, UnknownTool
from callpact.runtime import Runtime
from callpact.serve import DEFAULT_TIMEOUT
from callpact.serve.clients import client_config
from callpact.tool import Identity
from callpact.wire import cli as text

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.envelope import ResponseEnvelope
    from callpact.tool import Tool

app = typer.Typer(
    name="callpact",
    help="Every tool an AI agent can call, under one contract.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_UNREAD = 141  # What shells show for a process that SIGPIPE ended.
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class As(StrEnum):
    """Renderings of a result."""

    data = "data"
    envelope = "envelope"
    gate = "gate"
    flowmcp = "flowmcp"


class Client(StrEnum):
    """Programs that start MCP servers."""

    claude = "claude"
    vscode = "vscode"
    cursor = "cursor"


class LogLevel(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class PolicyName(StrEnum):
    """Output policies, from the loosest to the strictest."""

    pass_ = "pass"  # noqa: S105 - a policy
    warn = "warn"
    cast = "cast"
    reject = "reject"


def _complete_tool(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names for the shell: the tools of the sources named so far, else of ./callpact.toml."""
    refs = context.params.get("source") or ()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            catalog = asyncio.run(load_app(refs, context.params.get("config"))).catalog
    except CallpactError:
        return []
    return [(t.id, text.first_line(t.description)) for t in catalog if t.id.startswith(incomplete)]


Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", "-s", help="Where tools are, e.g. `python:shop.py`. Repeatable.", metavar="REF"
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help=f"Configuration file, if no source is named. [default: {DEFAULT_FILE}]",
    ),
]
Level = Annotated[LogLevel, typer.Option("--log-level", help="What is logged, on standard error.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
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
def list_tools(
    *,
    source: Sources = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    log_level: Level = LogLevel.warning,
) -> None:
    """List the tools, and what was wrong with those that are missing."""
    _log_to_stderr(log_level)
    catalog = asyncio.run(_load(source, config)).catalog
    if as_json:
        for tool in catalog:
            _print_json(text.encode_summary(tool), sys.stdout, is_line=True)
        return
    traits = {tool.id: text.encode_traits(tool) for tool in catalog}
    last = ["NOTE"] if any(traits.values()) else []
    table = Table("TOOL", "DOES", "ARGUMENTS", "POLICY", *last, box=None, pad_edge=False)
    for tool in catalog:
        arguments = ", ".join(text.argument_names(tool))
        about = text.first_line(tool.description)
        cells = (about, arguments, tool.contract.policy, traits[tool.id])
        table.add_row(f"[bold]{tool.id}[/]", *map(escape, cells[: 3 + len(last)]))
    out.print(table)
    err.print(_counted(len(catalog)), style="dim")


@app.command()
def show(
    tool: ToolName,
    *,
    source: Sources = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    log_level: Level = LogLevel.warning,
) -> None:
    """Show one tool: what it does, what it takes, what it gives."""
    _log_to_stderr(log_level)
    catalog = asyncio.run(_load(source, config)).catalog
    try:
        found = _find(catalog, tool)
    except CallError as error:
        _print_failure(error, As.data, tool)
        raise typer.Exit(error.row.exit) from None
    if as_json:
        _print_json(text.encode_description(found), sys.stdout)
        return
    out.print(f"[bold]{found.id}[/]  {escape(found.title or '')}".rstrip())
    out.print(escape(found.description))
    out.print()
    _print_properties("Takes", found.contract.input)
    _print_properties("Gives", found.contract.output)
    facts = {
        "policy": found.contract.policy,
        "kind": found.kind,
        "over MCP": "not served" if found.kind == "subscription" else found.wire_name,
        "from": found.source,
    }
    if needs := text.encode_needs(found.access):
        facts["needs"] = needs
    if found.aliases:
        facts["also called"] = ", ".join(found.aliases)
    for name, value in facts.items():
        out.print(f"[dim]{name:>12}[/]  {escape(str(value))}")


@app.command()
def call(
    tool: ToolName,
    *,
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
    source: Sources = None,
    config: ConfigFile = None,
    log_level: Level = LogLevel.warning,
) -> None:
    """Call a tool. Exit code 0 for a result; else by the kind of error (see the reference).

    A subscription is written as it comes, one line of JSON for each result, until it ends or
    Ctrl-C ends it.
    """
    _log_to_stderr(log_level)
    raw = sys.stdin.read() if input_json == "-" else input_json
    tightened = cast("Any", policy.value if policy else None)

    async def go() -> int:
        async with await _load(source, config) as loaded, Runtime(loaded.catalog) as runtime:
            found: Tool | None = None
            try:
                found = _find(runtime.catalog, tool)
                given = text.decode_arguments(found.contract.input, arguments or (), raw)
                if found.kind == "subscription":
                    deadline = now_ms() + timeout * 1000 if timeout else None
                    envelopes = runtime.subscribe(
                        found.id, given, deadline=deadline, policy=tightened
                    )
                    await _print_stream(envelopes, as_)
                    return 0
                seconds = timeout or found.timeout or DEFAULT_TIMEOUT
                with contextlib.redirect_stdout(sys.stderr):
                    envelope = await runtime.execute(
                        found.id, given, deadline=now_ms() + seconds * 1000, policy=tightened
                    )
            except CallError as error:
                is_stream = found is not None and found.kind == "subscription"
                _print_failure(error, as_, found.name if found else tool, is_line=is_stream)
                return error.row.exit
            _print_result(envelope, as_, sys.stdout)
            return 0

    _run(go())


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it is missing.")] = Path(),
) -> None:
    """Write a small callpact.toml and a first tool to start from."""
    files = {folder / DEFAULT_FILE: FIRST_CONFIG, folder / "tools.py": FIRST_TOOLS}
    present = [str(path) for path in files if path.exists()]
    if present:
        verb = "exists" if len(present) == 1 else "exist"
        _fail(f"{' and '.join(present)} {verb} already; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_text(content, "utf-8")
            err.print(f"wrote {path}")
    except OSError as error:
        _fail(f"cannot write to {folder}: {error.strerror or error}")
    where = "" if folder == Path() else f"cd {folder} && "
    err.print(f"try: [bold]{where}callpact call tools.greet name=Ada[/]")


@app.command()
def serve(
    *,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Speak MCP on standard input and output.")
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
    source: Sources = None,
    config: ConfigFile = None,
    log_level: Level = LogLevel.warning,
) -> None:
    """Serve the tools over MCP: those that the client may use, except subscriptions."""
    _log_to_stderr(log_level)
    if find_spec("mcp") is None:
        _fail("serving over MCP needs the extra 'mcp': pip install 'callpact[mcp]'")
    if print_config is not None:
        asyncio.run(_load(source, config))
        file = config or Path(DEFAULT_FILE)
        snippet = client_config(print_config.value, name, tuple(source or ()), file)
        (servers,) = snippet.values()
        servers[name]["args"] += [part for held in scope or () for part in ("--scope", held)]
        _print_json(snippet, sys.stdout)
        return
    if not stdio:
        _fail("say how to serve: --stdio speaks MCP on standard input and output")
    from callpact.serve.mcp import is_served, serve_stdio

    identity = Identity("stdio", tuple(scope)) if scope else None
    version = package_version("callpact")

    async def go() -> int:
        async with await _load(source, config) as loaded, Runtime(loaded.catalog) as runtime:
            left_out = [tool for tool in loaded.catalog if not is_served(tool, identity)]
            number = len(loaded.catalog) - len(left_out)
            err.print(f"serving {_counted(number)} over stdio", style="dim")
            for line in text.encode_left_out(left_out):
                err.print(escape(line), style="dim")
            await serve_stdio(runtime, name=name, version=version, identity=identity)
            return 0

    _run(go())


def main() -> None:
    """Run the command line; every error of ours is one clear line, never a trace."""
    try:
        app(prog_name="callpact")  # Also under `python -m`: completion goes by this name.
    except CallpactError as error:
        err.print(f"[red]error:[/] {escape(str(error))}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(_UNREAD) from None


# --- loading --------------------------------------------------------------------------------


async def _load(refs: list[str] | None, config: Path | None) -> App:
    # What a module prints while it is imported must not get between the results.
    with contextlib.redirect_stdout(sys.stderr):
        loaded = await load_app(refs or (), config)
    for finding in loaded.report:
        style = "red" if finding.severity == "error" else "yellow"
        known = finding.message.startswith((finding.place, f"'{finding.place}'"))
        place = "" if known else f"{finding.place}: "
        err.print(f"[{style}]{finding.severity}:[/] {escape(place + finding.message)}")
    if not len(loaded.catalog):
        await loaded.aclose()
        _fail("no tool could be loaded")
    return loaded


def _find(catalog: Catalog, name: str) -> Tool:
    """As the catalog finds it; a bare name is answered with the ids that end in it."""
    namesakes = [tool.id for tool in catalog if tool.name == name]
    if name not in catalog and namesakes:
        raise UnknownTool(name, namesakes)
    return catalog.find(name)


class _Threads(ThreadPoolExecutor):
    """The threads of sync tools, and which of them still run."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    @property
    def are_busy(self) -> bool:
        return any(future.running() for future in self._open)


def _run(work: Coroutine[Any, Any, int]) -> None:
    """`asyncio.run`, but a thread that nobody waits for any more cannot keep the process alive."""
    threads = _Threads()

    async def guarded() -> int:
        asyncio.get_running_loop().set_default_executor(threads)
        _wake_at_signals()
        code = 130
        try:
            code = await work
        except asyncio.CancelledError:  # Ctrl-C
            _leave_if(threads.are_busy, code)
            raise
        except typer.Exit as left:
            _leave_if(threads.are_busy, left.exit_code)
            raise
        _leave_if(threads.are_busy, code)
        return code

    code = asyncio.run(guarded())
    if code:
        raise typer.Exit(code)


def _wake_at_signals() -> None:
    """Else a Ctrl-C that comes just before the loop goes to sleep is heard when it wakes again."""
    if os.name == "posix":
        with contextlib.suppress(RuntimeError):  # Not the main thread, where no signal comes.
            # With a handler for any signal the loop is woken by all of them.
            asyncio.get_running_loop().add_signal_handler(signal.SIGURG, lambda: None)


def _leave_if(is_busy: bool, code: int) -> None:  # noqa: FBT001 - it reads as a sentence
    if is_busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _log_to_stderr(level: LogLevel) -> None:
    logging.basicConfig(
        level=level.value.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )


def _fail(message: str) -> Any:
    err.print(f"[red]error:[/] {escape(message)}")
    raise typer.Exit(2)


# --- printing -------------------------------------------------------------------------------


def _write(data: bytes, output: TextIO) -> None:
    try:
        output.buffer.write(data)
        output.buffer.flush()
    except BrokenPipeError:
        raise typer.Exit(_UNREAD) from None


async def _print_stream(envelopes: AsyncGenerator[ResponseEnvelope[Any], None], as_: As) -> None:
    """Write every result as soon as it comes; what the tool prints meanwhile goes to stderr."""
    output, task = sys.stdout, cast("asyncio.Task[Any]", asyncio.current_task())
    with contextlib.redirect_stdout(sys.stderr):
        async with _while_read(output), contextlib.aclosing(envelopes):
            while not task.cancelling() and (envelope := await anext(envelopes, None)) is not None:
                _print_result(envelope, as_, output, is_line=True)
            if task.cancelling():  # Ctrl-C, and the tool did not wait or took no notice.
                await asyncio.sleep(0)  # Raises it if nothing did; else the closing would.
                raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def _while_read(output: TextIO) -> AsyncGenerator[None, None]:
    """End what is inside when the reader of a pipe leaves, also while there is nothing to write."""
    loop, descriptor = asyncio.get_running_loop(), _pipe(output)
    if descriptor is None:
        yield
        return
    patience = asyncio.timeout(None)

    def leave() -> None:
        loop.remove_reader(descriptor)
        patience.reschedule(loop.time())

    try:
        async with patience:
            loop.add_reader(descriptor, leave)  # There is nothing to read here but that error.
            yield
    except (TimeoutError, CallError):
        if patience.expired():
            raise typer.Exit(_UNREAD) from None
        raise
    finally:
        loop.remove_reader(descriptor)


def _pipe(output: TextIO) -> int | None:
    """The file descriptor of a pipe that can be watched; None for anything else."""
    try:
        descriptor = output.fileno()
    except OSError:
        return None
    is_pipe = os.name == "posix" and stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    return descriptor if is_pipe else None


def _print_result(
    envelope: ResponseEnvelope[Any], as_: As, output: TextIO, *, is_line: bool = False
) -> None:
    for note in text.encode_notes(envelope):
        err.print(escape(note), style="yellow")
    data = envelope.data
    if as_ is As.data and isinstance(data, bytes):
        if output.isatty():
            _fail(f"the answer is {len(data)} bytes; send them to a file, or use --as envelope")
        _write(data, output)
        return
    _print_json(text.encode_result(envelope, as_.value), output, is_line=is_line)


def _print_failure(error: CallError, as_: As, tool_name: str, *, is_line: bool = False) -> None:
    form = text.encode_failure(error, as_.value, tool_name)
    if form is not None:
        _print_json(form, sys.stdout, is_line=is_line)
    for line in text.encode_error(error):
        err.print(escape(line), style="red" if not line.startswith(" ") else "")


def _print_json(value: Any, output: TextIO, *, is_line: bool = False) -> None:
    written = text.encode_json(value, is_line=is_line)
    if output.isatty() and not is_line:
        out.print_json(written)
    else:
        _write(written.encode() + b"\n", output)


def _print_properties(title: str, schema: Any) -> None:
    if schema is None:
        out.print(f"[bold]{title}[/] anything\n")
        return
    properties = text.properties_of(schema)
    if not properties:
        out.print(f"[bold]{title}[/] {escape(json.dumps(schema)[:300])}\n")
        return
    out.print(f"[bold]{title}[/]")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    for key, sub in properties.items():
        node = cast("dict[str, Any]", sub) if isinstance(sub, dict) else {}
        kinds = " or ".join(text.types_of(schema, key)) or "any"
        table.add_row(
            f"[cyan]{escape(key)}[/]",
            escape(kinds),
            escape(str(node.get("description", ""))),
            f"[dim]{escape(', '.join(text.rules_of(schema, key)))}[/]",
        )
    out.print(table)
    out.print()


def _counted(number: int) -> str:
    return f"{number} {'tool' if number == 1 else 'tools'}"
