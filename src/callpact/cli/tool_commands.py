"""The commands about single tools, resources and prompts: `list`, `show`, `call`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from callpact.cli.doctor import print_keys
from callpact.cli.options import (
    AsJson,
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
    warned_once,
)
from callpact.cli.progress_bar import progress_bar
from callpact.envelope import now_ms
from callpact.errors import CallError, CallpactError, UnknownTool
from callpact.resources import Prompt, Resource
from callpact.serve import DEFAULT_TIMEOUT
from callpact.tool import Call
from callpact.wire import terminal as text

if TYPE_CHECKING:
    from callpact.app import Session
    from callpact.catalog import Catalog
    from callpact.tool import Tool

MAX_FOUND = 50
"""Tools that `list --search` shows."""


class PolicyName(StrEnum):
    """Output policies, from the loosest to the strictest."""

    pass_ = "pass"  # noqa: S105 - a policy
    warn = "warn"
    cast = "cast"
    convert = "convert"
    reject = "reject"


def complete_tool(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
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


def add_tool_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("list")(list_tools)
    app.command()(show)
    app.command()(call)


# --- list -----------------------------------------------------------------------------------


@takes_sources
def list_tools(
    *,
    server: Annotated[
        str | None,
        typer.Argument(
            metavar="URL", help="A running MCP server, `http(s)://…`, instead of sources."
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search", help="Only what has these words, the best first.", metavar="WORDS"
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Only of this namespace.", metavar="NAME")
    ] = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Only tools that are disabled, each with the reason.")
    ] = False,
    as_json: AsJson = False,
    sources: SourceOptions,
) -> None:
    """List the tools, resources and prompts, and the errors of what could not be loaded."""
    if server is not None:
        if not is_address(server):
            fail(f"list takes the http(s) address of an MCP server, got '{server}'; see --search")
        sources = at_server(sources, server)
    catalog = sources.look(sources.session())
    if namespace is not None:
        _check_namespace(catalog, namespace)

    def is_wanted(tool: Tool) -> bool:
        return (namespace is None or tool.namespace == namespace) and (
            not disabled or tool.disabled is not None
        )

    tools = list(filter(is_wanted, catalog))
    more = 0
    if search is not None:
        tools, more = _found(catalog, search, is_wanted)
    resources = [each for each in catalog.resources if _is_offered(each, search, is_wanted)]
    prompts = [each for each in catalog.prompts if _is_offered(each, search, is_wanted)]
    if as_json:
        for form in (
            *map(text.encode_summary, tools),
            *map(text.encode_resource, resources),
            *map(text.encode_prompt, prompts),
        ):
            print_json(form, sys.stdout, is_line=True)
        return
    if disabled:
        _print_disabled([*tools, *(each.tool for each in (*resources, *prompts))])
    else:
        _print_listed(tools, resources, prompts)
    _print_counts(tools, resources, prompts, more)


def _check_namespace(catalog: Catalog, namespace: str) -> None:
    offered = (each.tool.namespace for each in (*catalog.resources, *catalog.prompts))
    known = dict.fromkeys((*catalog.namespaces, *offered))
    if namespace not in known:
        near = get_close_matches(namespace, known, n=3) or list(known)[:10]
        fail(f"there is no namespace '{namespace}'; there are: {', '.join(near)}")


def _found(
    catalog: Catalog, words: str, is_wanted: Callable[[Tool], bool]
) -> tuple[list[Tool], int]:
    """The best tools for some words, and the number of those left off."""
    from callpact.discovery import ToolIndex

    page = ToolIndex(catalog).search(words, MAX_FOUND, visible=is_wanted)
    return [catalog.find(hit.id) for hit in page.hits], page.total - len(page.hits)


def _is_offered(
    offer: Resource | Prompt, words: str | None, is_wanted: Callable[[Tool], bool]
) -> bool:
    """True for a resource or prompt that is wanted and has all of the words."""
    tool = offer.tool
    if not is_wanted(tool):
        return False
    if words is None:
        return True
    from callpact.discovery.index import query_words

    address = offer.uri if isinstance(offer, Resource) else tool.wire_name
    searched = " ".join((tool.id, address, tool.title or "", tool.description)).lower()
    return all(word in searched for word in query_words(words))


def _print_listed(
    tools: Iterable[Tool], resources: Iterable[Resource], prompts: Iterable[Prompt]
) -> None:
    listed = {
        "TOOL": [
            (tool, tool.id, ", ".join(text.argument_names(tool)), str(tool.contract.policy))
            for tool in tools
        ],
        "RESOURCE": [(each.tool, each.uri, each.mime_type or "", "") for each in resources],
        "PROMPT": [
            (each.tool, each.tool.wire_name, ", ".join(text.argument_names(each.tool)), "")
            for each in prompts
        ],
    }
    columns = {
        "TOOL": ["DOES", "ARGUMENTS", "POLICY"],
        "RESOURCE": ["DOES", "TYPE"],
        "PROMPT": ["DOES", "ARGUMENTS"],
    }
    is_first = True
    for title, entries in listed.items():
        if not entries:
            continue
        headers = [title, *columns[title]]
        notes = {tool.id: text.encode_traits(tool) for tool, *_ in entries}
        headers += ["NOTE"] if any(notes.values()) else []
        rows: list[TableRow] = []
        for tool, name, *rest in entries:
            about = text.first_line(tool.description)
            cells = (name, about, *rest[: len(columns[title]) - 1], notes[tool.id])
            style = "" if tool.disabled is None else "dim"
            rows.append(TableRow(cells[: len(headers)], style, "bold"))
        if out.is_terminal and not is_first:  # Elsewhere each line is a row.
            out.print()
        print_table(rows, headers, spare=("POLICY", "ARGUMENTS"))
        is_first = False
    print_keys([tool for tool, *_ in listed["TOOL"]])


def _print_disabled(tools: Iterable[Tool]) -> None:
    rows = [
        TableRow((tool.id, tool.disabled.reason, tool.disabled.code), first="bold")
        for tool in tools
        if tool.disabled is not None
    ]
    if rows and out.is_terminal:  # The reason is the answer here, so it is never cut.
        for row in rows:
            out.print(f"[bold]{plain(row.cells[0])}[/]  [dim]{plain(row.cells[2])}[/]")
            out.print(f"  {plain(row.cells[1])}")
    elif rows:
        print_table(rows, ["TOOL", "REASON", "CODE"])


def _print_counts(
    tools: list[Tool], resources: list[Resource], prompts: list[Prompt], more: int
) -> None:
    disabled = sum(tool.disabled is not None for tool in tools)
    parts = [counted(len(tools))]
    if disabled:
        parts.append(f"{disabled:,} of them disabled")
    parts += [counted(len(resources), "resource")] if resources else []
    parts += [counted(len(prompts), "prompt")] if prompts else []
    if more:
        parts.append(f"{more:,} more with fewer of the words")
    err.print(", ".join(parts), style="dim")


# --- show -----------------------------------------------------------------------------------


@takes_sources
def show(
    *,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="A tool by id, wire name or alias; a prompt by name; a resource by address. "
            "After the http(s) address of a running MCP server, one of its own.",
            autocompletion=complete_tool,
        ),
    ],
    sources: SourceOptions,
    as_json: AsJson = False,
) -> None:
    """Show one tool, resource or prompt: its description, its input and its output."""
    *servers, tool = words
    if len(servers) > 1 or not all(map(is_address, servers)):
        fail(f"show takes one name, behind the http(s) address of a server if any, got {words}")
    for server in servers:
        sources = at_server(sources, server)
    session = sources.session()
    catalog = sources.look(session, reports=False)
    try:
        found = _find_any(catalog, _full_name(catalog, tool) if servers else tool)
    except CallError as error:
        sources.report(session)
        print_failure(error, As.data, tool)
        raise typer.Exit(error.row.exit) from None
    shown = found.tool if isinstance(found, Resource | Prompt) else found
    sources.report(session, shown)
    if as_json:
        print_json(_encode(found), sys.stdout)
        return
    name = found.uri if isinstance(found, Resource) else shown.id
    out.print(f"[bold]{plain(name)}[/]  {plain(shown.title or '')}".rstrip())
    if shown.description:
        out.print(plain(shown.description))
    out.print()
    print_properties("Takes", shown.contract.input)
    if shown is found:
        print_properties("Gives", shown.contract.output)
    for label, value in _facts(found).items():
        out.print(f"[dim]{label:>12}[/]  {plain(str(value))}")


def _facts(found: Tool | Resource | Prompt) -> dict[str, str]:
    if isinstance(found, Resource):
        kind = {"type": found.mime_type} if found.mime_type else {}
        size = {} if found.size is None else {"size": f"{found.size:,} bytes"}
        own = {"resource": found.tool.id, **kind, **size}
    elif isinstance(found, Prompt):
        own = {"prompt": found.tool.wire_name}
    else:
        return text.encode_facts(found)
    facts = text.encode_facts(found.tool)
    return own | {name: facts[name] for name in facts if name not in {"policy", "kind", "over MCP"}}


def _encode(found: Tool | Resource | Prompt) -> dict[str, object]:
    if isinstance(found, Resource):
        return {**text.encode_resource(found), "input": found.tool.contract.input}
    return (
        text.encode_prompt(found) if isinstance(found, Prompt) else text.encode_description(found)
    )


def _find(catalog: Catalog, name: str) -> Tool:
    """Find a tool in the catalog; for a bare name the error suggests the ids that end with it."""
    namesakes = [tool.id for tool in catalog if tool.name == name]
    if name not in catalog and namesakes:
        raise UnknownTool(name, namesakes)
    return catalog.find(name)


def _find_any(catalog: Catalog, name: str) -> Tool | Resource | Prompt:
    if name in catalog:
        return catalog.find(name)
    for prompt in catalog.prompts:
        if name in {prompt.tool.id, prompt.tool.wire_name}:
            return prompt
    for resource in catalog.resources:
        if name in {resource.tool.id, resource.uri}:
            return resource
    for resource in catalog.resources:
        if resource.is_template and resource.match(name) is not None:
            return resource
    offered = [each.tool.wire_name for each in catalog.prompts]
    offered += [each.uri for each in catalog.resources]
    if near := get_close_matches(name, offered, n=3, cutoff=0.7):
        raise UnknownTool(name, near)
    return _find(catalog, name)


# --- a running server -----------------------------------------------------------------------


def is_address(word: str) -> bool:
    """True for the http(s) address of a server, instead of a reference to a source."""
    return word.startswith(("http://", "https://"))


def at_server(sources: SourceOptions, address: str) -> SourceOptions:
    """The options with a running MCP server as the only source; it may be on this machine."""
    if sources.source:
        fail(f"name either {address} or sources with -s, not both")
    host = urlsplit(address).netloc.rpartition("@")[2]
    allowed = [*(sources.allow_host or ()), host]
    return replace(sources, source=[f"mcp:{address}"], allow_host=allowed)


def session_of(sources: SourceOptions, ref: str) -> Session:
    """The loaded tools of one reference: a source, or the address of a running MCP server."""
    is_server = is_address(ref) and not ref.endswith((".json", ".yaml", ".yml"))
    sources = at_server(sources, ref) if is_server else sources
    session = sources.session()
    sources.look(session, () if is_server else (ref,))
    return session


def _full_name(catalog: Catalog, name: str) -> str:
    """The id of the only tool with a bare name; the name as it is where there are more."""
    namesakes = [tool.id for tool in catalog if tool.name == name]
    return namesakes[0] if name not in catalog and len(namesakes) == 1 else name


# --- call -----------------------------------------------------------------------------------


@takes_sources
def call(
    *,
    tool: Annotated[
        str,
        typer.Argument(
            metavar="TOOL",
            help="Id, wire name or alias. After the http(s) address of a running MCP server, the "
            "name of one of its tools.",
            autocompletion=complete_tool,
        ),
    ],
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
    is_remote = is_address(tool)
    if is_remote:
        if not arguments or "=" in arguments[0]:
            fail(f"name a tool behind the address of the server: callpact call {tool} TOOL …")
        sources, tool, arguments = at_server(sources, tool), arguments[0], arguments[1:]
    named = tool
    raw = sys.stdin.read() if input_json == "-" else input_json
    tightened = policy.value if policy else None

    async def go() -> int:
        async with sources.session(audit) as session:
            await sources.load(session, reports=False)
            runtime = await session.start()
            found: Tool | None = None
            tool = _full_name(runtime.catalog, named) if is_remote else named
            try:
                sources.report(session, runtime.catalog.get(tool))
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
                    with contextlib.redirect_stdout(sys.stderr), progress_bar() as client:
                        envelope = await runtime.call(one, trusted=True, client=client)
            except CallError as error:
                is_stream = found is not None and found.kind == "subscription"
                print_failure(error, as_, found.name if found else tool, is_line=is_stream)
                return error.row.exit
            print_result(envelope, as_, sys.stdout)
            return 0

    run(go())
