"""The command line: thin above `app.py`. Results on standard output, everything else on stderr."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Callable
from enum import Enum
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from callpact.app import App, load_app
from callpact.config import DEFAULT_FILE
from callpact.envelope import now_ms
from callpact.errors import CallError, CallpactError, UsageError
from callpact.runtime import Runtime
from callpact.schema.document import resolve
from callpact.wire import cli as text
from callpact.wire import flowmcp, gate

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
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class As(str, Enum):
    """Renderings of a result."""

    data = "data"
    envelope = "envelope"
    gate = "gate"
    flowmcp = "flowmcp"


class Client(str, Enum):
    """Programs that start MCP servers."""

    claude = "claude"
    vscode = "vscode"
    cursor = "cursor"


class LogLevel(str, Enum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class PolicyName(str, Enum):
    """Output policies, from the loosest to the strictest."""

    pass_ = "pass"
    warn = "warn"
    cast = "cast"
    reject = "reject"


def _complete_tool(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names for the shell: the tools of the sources named so far, else of ./callpact.toml."""
    refs = context.params.get("source") or ()
    try:
        catalog = asyncio.run(load_app(refs, context.params.get("config"))).catalog
    except CallpactError:
        return []
    return [(t.id, _first_line(t.description)) for t in catalog if t.id.startswith(incomplete)]


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


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True)
    ] = False,
) -> None:
    if version:
        out.print(f"callpact {package_version('callpact')}")
        raise typer.Exit


@app.command("list")
def list_tools(
    source: Sources = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    log_level: Level = LogLevel.warning,
) -> None:
    """List the tools, and what was wrong with those that are missing."""
    _log_to_stderr(log_level)
    catalog = _load(source, config).catalog
    if as_json:
        for tool in catalog:
            _write(orjson.dumps(_summary(tool)) + b"\n")
        return
    table = Table("TOOL", "DOES", "ARGUMENTS", "POLICY", box=None, pad_edge=False)
    for tool in catalog:
        arguments = ", ".join(_argument_names(tool))
        about = _first_line(tool.description)
        table.add_row(
            f"[bold]{tool.id}[/]", escape(about), escape(arguments), str(tool.contract.policy)
        )
    out.print(table)
    err.print(f"{len(catalog)} {'tool' if len(catalog) == 1 else 'tools'}", style="dim")


@app.command()
def show(
    tool: ToolName,
    source: Sources = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    log_level: Level = LogLevel.warning,
) -> None:
    """Show one tool: what it does, what it takes, what it gives."""
    _log_to_stderr(log_level)
    found = _find(_load(source, config).catalog, tool)
    if as_json:
        _write(orjson.dumps(_described(found), option=orjson.OPT_INDENT_2) + b"\n")
        return
    out.print(f"[bold]{found.id}[/]  {escape(found.title or '')}".rstrip())
    out.print(escape(found.description))
    out.print()
    _print_properties("Takes", found.contract.input)
    _print_properties("Gives", found.contract.output)
    facts = {
        "policy": found.contract.policy,
        "kind": found.kind,
        "over MCP": found.wire_name,
        "from": found.source,
    }
    if found.aliases:
        facts["also called"] = ", ".join(found.aliases)
    for name, value in facts.items():
        out.print(f"[dim]{name:>12}[/]  {escape(str(value))}")


@app.command()
def call(
    tool: ToolName,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE…", help="Arguments, read by the tool's own schema."),
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
        float, typer.Option("--timeout", help="Seconds the call may take.", min=0.001)
    ] = 60.0,
    source: Sources = None,
    config: ConfigFile = None,
    log_level: Level = LogLevel.warning,
) -> None:
    """Call a tool. Exit code 0 for a result; else by the kind of error (see the reference)."""
    _log_to_stderr(log_level)
    loaded = _load(source, config)

    async def go() -> ResponseEnvelope[Any]:
        async with Runtime(loaded.catalog) as runtime:
            found = runtime.catalog.find(tool)
            return await runtime.execute(
                found.id,
                _arguments(found, arguments or [], input_json),
                deadline=now_ms() + timeout * 1000,
                policy=cast("Any", policy.value if policy else None),
            )

    try:
        envelope = asyncio.run(go())
    except CallError as error:
        name = loaded.catalog.find(tool).name if tool in loaded.catalog else tool
        _print_failure(error, as_, name)
        raise typer.Exit(error.row.exit) from None
    _print_result(envelope, as_)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it is missing.")] = Path(),
) -> None:
    """Write a small callpact.toml and a first tool to start from."""
    files = {folder / DEFAULT_FILE: _INIT_CONFIG, folder / "tools.py": _INIT_TOOLS}
    present = [str(path) for path in files if path.exists()]
    if present:
        _fail(f"{' and '.join(present)} exist already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        path.write_text(content, "utf-8")
        err.print(f"wrote {path}")
    where = "" if folder == Path() else f"cd {folder} && "
    err.print(f"try: [bold]{where}callpact call tools.greet name=Ada[/]")


@app.command()
def serve(
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
    source: Sources = None,
    config: ConfigFile = None,
    log_level: Level = LogLevel.warning,
) -> None:
    """Serve the tools over MCP."""
    _log_to_stderr(log_level)
    if print_config is not None:
        _load(source, config)
        _write(
            (text.encode_json(_client_config(print_config, name, source, config)) + "\n").encode()
        )
        return
    if not stdio:
        _fail("say how to serve: --stdio speaks MCP on standard input and output")
    try:
        from callpact.serve.mcp import serve_stdio
    except ImportError as error:
        _fail(f"serving over MCP needs the extra 'mcp': pip install 'callpact[mcp]' ({error})")
    loaded = _load(source, config)

    async def go() -> None:
        async with Runtime(loaded.catalog) as runtime:
            err.print(f"serving {len(loaded.catalog)} tools over stdio", style="dim")
            await serve_stdio(runtime, name=name, version=package_version("callpact"))

    asyncio.run(go())


def main() -> None:
    """Run the command line; every error of ours is one clear line, never a trace."""
    try:
        app()
    except CallpactError as error:
        err.print(f"[red]error:[/] {escape(str(error))}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None


# --- loading --------------------------------------------------------------------------------


def _load(refs: list[str] | None, config: Path | None) -> App:
    loaded = asyncio.run(load_app(refs or (), config))
    for finding in loaded.report:
        style = "red" if finding.severity == "error" else "yellow"
        err.print(
            f"[{style}]{finding.severity}:[/] {escape(finding.place)}: {escape(finding.message)}"
        )
    return loaded


def _find(catalog: Catalog, name: str) -> Tool:
    try:
        return catalog.find(name)
    except CallError as error:
        _print_failure(error, As.data, name)
        raise typer.Exit(error.row.exit) from None


def _log_to_stderr(level: LogLevel) -> None:
    logging.basicConfig(
        level=level.value.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )


def _fail(message: str) -> Any:
    err.print(f"[red]error:[/] {escape(message)}")
    raise typer.Exit(2)


# --- arguments ------------------------------------------------------------------------------


def _arguments(tool: Tool, pairs: list[str], input_json: str | None) -> Any:
    given: Any = {}
    if input_json is not None:
        raw = sys.stdin.read() if input_json == "-" else input_json
        try:
            given = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise UsageError(f"--input is not JSON: {error}") from None
        if pairs and not isinstance(given, dict):
            raise UsageError("KEY=VALUE can only be added to an --input that is an object")
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"arguments are written KEY=VALUE, got '{pair}'")
        given[key] = _read_value(tool, key, value)
    return given


def _read_value(tool: Tool, key: str, value: str) -> Any:
    """Text where the schema takes text; else JSON where it parses, so that the gate can judge it."""
    if "string" in _types(tool.contract.input, key):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _types(schema: Any, key: str) -> set[str]:
    node = _properties(schema).get(key)
    found: set[str] = set()
    pending: list[Any] = [node]
    for _ in range(50):
        if not pending:
            break
        item = pending.pop()
        if not isinstance(item, dict):
            continue
        part = cast("dict[str, Any]", item)
        kinds = part.get("type", ())
        found.update([kinds] if isinstance(kinds, str) else kinds)
        pending.extend(part.get("anyOf") or part.get("oneOf") or ())
        found.update("string" for value in part.get("enum", ()) if isinstance(value, str))
        if isinstance(part.get("$ref"), str):
            pending.append(resolve(schema, part["$ref"]))
    return found


def _properties(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    found = cast("dict[str, Any]", schema).get("properties")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


# --- printing -------------------------------------------------------------------------------


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _print_result(envelope: ResponseEnvelope[Any], as_: As) -> None:
    for note in text.encode_notes(envelope):
        err.print(escape(note), style="yellow")
    data = envelope.data
    if as_ is As.data and isinstance(data, bytes | bytearray | memoryview):
        if sys.stdout.isatty():
            _fail(f"the answer is {len(data)} bytes; send them to a file, or use --as envelope")
        _write(bytes(data))
        return
    forms: dict[As, Callable[[], Any]] = {
        As.data: lambda: data,
        As.gate: lambda: envelope.to_wire()["data"],
        As.envelope: lambda: envelope.to_wire(details=bool(envelope.warnings or envelope.changes)),
        As.flowmcp: lambda: flowmcp.encode_result(envelope),
    }
    _print_json(forms[as_]())


def _print_failure(error: CallError, as_: As, tool_name: str) -> None:
    if as_ is As.gate:
        _print_json(gate.encode_error(error))
    elif as_ is As.flowmcp:
        _print_json(flowmcp.encode_error(error, tool_name))
    for line in text.encode_error(error):
        err.print(escape(line), style="red" if not line.startswith(" ") else "")


def _print_json(value: Any) -> None:
    written = text.encode_json(value)
    if sys.stdout.isatty():
        out.print_json(written)
    else:
        _write(written.encode() + b"\n")


def _print_properties(title: str, schema: Any) -> None:
    if schema is None:
        out.print(f"[bold]{title}[/] anything\n")
        return
    properties = _properties(schema)
    if not properties:
        out.print(f"[bold]{title}[/] {escape(json.dumps(schema)[:300])}\n")
        return
    out.print(f"[bold]{title}[/]")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    required = set(cast("dict[str, Any]", schema).get("required") or ())
    for key, sub in properties.items():
        node = cast("dict[str, Any]", sub) if isinstance(sub, dict) else {}
        kinds = " or ".join(sorted(_types(schema, key))) or "any"
        limits = {k: v for k, v in node.items() if k in _SHOWN_RULES}
        notes = [f"{k} {v}" for k, v in limits.items()] + ([] if key in required else ["optional"])
        table.add_row(
            f"[cyan]{escape(key)}[/]",
            escape(kinds),
            escape(str(node.get("description", ""))),
            f"[dim]{escape(', '.join(notes))}[/]",
        )
    out.print(table)
    out.print()


_SHOWN_RULES = (
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "default",
    "minItems",
    "maxItems",
)


def _argument_names(tool: Tool) -> list[str]:
    schema = tool.contract.input
    required = (
        set(cast("dict[str, Any]", schema).get("required") or ())
        if isinstance(schema, dict)
        else set[str]()
    )
    return [key if key in required else f"[{key}]" for key in _properties(schema)]


def _first_line(description: str) -> str:
    return description.strip().partition("\n")[0]


def _summary(tool: Tool) -> dict[str, Any]:
    return {
        "id": tool.id,
        "wireName": tool.wire_name,
        "description": tool.description,
        "kind": tool.kind,
        "policy": tool.contract.policy,
        "tags": list(tool.tags),
        "source": tool.source,
    }


def _described(tool: Tool) -> dict[str, Any]:
    return {**_summary(tool), "input": tool.contract.input, "output": tool.contract.output}


# --- client configuration -------------------------------------------------------------------


def _client_config(
    client: Client, name: str, refs: list[str] | None, config: Path | None
) -> dict[str, Any]:
    """The snippet for a client's own configuration file, with absolute paths: it has another cwd."""
    command = shutil.which("callpact")
    args = ["serve", "--stdio"] if command else ["-m", "callpact", "serve", "--stdio"]
    for ref in refs or ():
        args += ["-s", _absolute(ref)]
    if not refs:
        args += ["--config", str((config or Path(DEFAULT_FILE)).resolve())]
    entry: dict[str, Any] = {"command": command or sys.executable, "args": args}
    if client is Client.vscode:
        return {"servers": {name: {"type": "stdio", **entry}}}
    return {"mcpServers": {name: entry}}


def _absolute(ref: str) -> str:
    kind, colon, rest = ref.partition(":")
    path = rest if colon else kind
    file, name_colon, attribute = path.partition(".py:")
    if not path.endswith(".py") and not name_colon:
        return ref
    file = str(Path(file + ".py" if name_colon else path).resolve())
    return f"{kind}:{file}{':' + attribute if name_colon else ''}" if colon else file


_INIT_CONFIG = """\
# Where the tools are. Every [sources.NAME] table takes: ref, policy, allow, deny, timeout.
[sources.tools]
ref = "python:tools.py"
"""

_INIT_TOOLS = '''\
"""Tools of this project. Type hints become the contract, the docstring is what the model reads."""

from typing import Annotated

from pydantic import Field

from callpact import tool


@tool
async def greet(name: str, times: Annotated[int, Field(ge=1, le=5)] = 1) -> list[str]:
    """Greet somebody.

    Args:
        name: Who is greeted.
        times: How often.
    """
    return [f"Hello, {name}!"] * times
'''
