"""`callpact doctor`, and the table of keys of `callpact list`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, cast

from callpact.app import Session
from callpact.cli.clients.client_table import CLIENTS
from callpact.cli.clients.install import find_entries
from callpact.cli.output import TableRow, counted, out, plain, print_table
from callpact.errors import CallpactError
from callpact.sources.base import Finding, Live
from callpact.tool import Tool

MAX_REASONS = 10
"""Reasons and findings that each part of `callpact doctor` shows."""
_MISSING = "server_param_missing"
_QUOTED = re.compile(r"'([^']+)'")


def print_keys(tools: Iterable[Tool]) -> None:
    """Print which file asks for which key, the host it is sent to, and whether it is granted."""
    files: dict[tuple[str, str, str], str] = {}
    for tool in tools:
        is_missing = tool.disabled is not None and tool.disabled.code == _MISSING
        for name, hosts in tool.keys.items():
            file = tool.source.partition(":")[2] or tool.source
            files[name, hosts, file] = "not granted" if is_missing else "granted"
    rows = [TableRow((*row, files[row])) for row in sorted(files)]
    if rows:
        if out.is_terminal:  # Elsewhere each line is a row.
            out.print()
        print_table(rows, ["KEY", "SENT TO", "BY", "STATE"])


async def examine(session: Session, load: Callable[[], Awaitable[None]]) -> bool:
    """Print one page about a session, with the remedy of what is wrong; True if nothing is.

    `load` loads its sources.
    """
    trouble: CallpactError | None = None
    try:
        await load()
    except CallpactError as error:
        trouble = error
    verdicts = [
        _examine_sources(session, trouble),
        _examine_tools(session),
        _examine_findings(session),
        await examine_servers(session),
        _examine_clients(session),
    ]
    _examine_log(session)
    return all(verdicts)


def _print_title(title: str) -> None:
    out.print(f"\n[bold]{title}[/]" if title != "Sources" else f"[bold]{title}[/]")


def _print_line(line: str) -> None:
    """Print a line of markup below a title, on a terminal wrapped between words."""
    if not out.is_terminal:
        out.print(f"  {line}")
        return
    from rich.padding import Padding

    out.print(Padding(line, (0, 0, 0, 2)), soft_wrap=False)


def _examine_sources(session: Session, trouble: CallpactError | None) -> bool:
    _print_title("Sources")
    if trouble is not None:
        _print_line(f"[red]error:[/] {plain(str(trouble))}")
        return False
    for part in session.loaded.parts:
        name = part.wanted.name.strip()
        label = part.wanted.ref if name.isdigit() else f"{name} ({part.wanted.ref})"
        catalog = part.catalog
        if part.trouble is not None:
            _print_line(f"{plain(label)}: [red]{plain(str(part.trouble))}[/]")
            continue
        offers = [counted(len(catalog))]
        offers += [counted(len(catalog.resources), "resource")] if catalog.resources else []
        offers += [counted(len(catalog.prompts), "prompt")] if catalog.prompts else []
        _print_line(f"{plain(label)}: {', '.join(offers)}")
    return all(part.trouble is None for part in session.loaded.parts)


def _examine_tools(session: Session) -> bool:
    tools = tuple(session.catalog)
    reasons = Counter(tool.disabled.reason for tool in tools if tool.disabled is not None)
    _print_title("Tools")
    _print_line(f"{counted(len(tools))}, {reasons.total():,} of them disabled")
    pairs = reasons.most_common()
    for reason, number in pairs[:MAX_REASONS]:
        _print_line(f"{counted(number)}: {plain(reason)}")
    if pairs[MAX_REASONS:]:
        more = counted(len(pairs) - MAX_REASONS, "more reason")
        _print_line(f"{more}; `callpact list --disabled` shows them")
    missing = sorted(
        {
            name
            for tool in tools
            if tool.disabled is not None and tool.disabled.code == _MISSING
            for name in tool.keys
        }
    )
    if missing:
        _print_line(f"keys that are not set or not granted: {plain(', '.join(missing))}")
    print_keys(tools)
    return not reasons


def _examine_findings(session: Session) -> bool:
    """Print the declarations that were left out, and the lists and libraries that are missing."""
    report = session.loaded.report
    left_out = [each for each in report if each.severity == "error" or each.is_left_out]
    errors = [each for each in left_out if each.severity == "error"]
    if left_out:
        _print_title("Left out")
        for each in left_out[:MAX_REASONS]:
            code = f"{each.code} " if each.code else ""
            style = "red" if each.severity == "error" else "yellow"
            _print_line(f"[{style}]{plain(each.place)}:[/] {code}{plain(each.message)}")
        if left_out[MAX_REASONS:]:
            more = counted(len(left_out) - MAX_REASONS, "more finding")
            _print_line(f"{more}; `callpact list` and `callpact check` show them")
    lines = [*_missing(report, "VAL072", "list", 'lists = "DIR"', "--lists DIR")]
    lines += _missing(report, "SEC020", "library", 'libraries = ["{}"]', "--allow-library {}")
    if lines:
        _print_title("Lists and libraries")
        for line in lines:
            _print_line(f"{plain(line)}")
    return not errors


def _missing(
    report: Iterable[Finding], code: str, noun: str, line: str, option: str
) -> Iterator[str]:
    """The lists or libraries that files lack, each with the line that gives it to them."""
    named = (
        (found[1], each.place)
        for each in report
        if each.code == code and (found := _QUOTED.search(each.message)) is not None
    )
    files: dict[str, set[str]] = {}
    for name, place in named:
        files.setdefault(name, set()).add(place)
    for name, places in sorted(files.items()):
        yield (
            f"{noun} '{name}', for {counted(len(places), 'file')}: write {line.format(name)} in the "
            f"table of the source, or {option.format(name)}"
        )


def _examine_clients(session: Session) -> bool:
    _print_title("Clients")
    entries = list(find_entries(session.configuration.folder))
    if not entries:
        _print_line("none is set up; `callpact install CLIENT` does it")
    for entry in entries:
        title = f"{CLIENTS[entry.client].title}: {entry.name or 'cannot be read'}"
        state = f"[red]{plain(entry.trouble)}[/]" if entry.trouble else "set up"
        where = "" if not entry.name else f" ({plain(str(entry.file))})"
        _print_line(f"{plain(title)}{where}, {state}")
    return not any(entry.trouble for entry in entries)


def _examine_log(session: Session) -> None:
    from callpact.audit.journal.health import health_of

    _print_title("Audit log")
    if not session.is_recorded:
        _print_line("calls are not recorded: `enabled = false` in the table \\[audit]")
        return
    place, health = session.place, health_of(session.place.journal)
    _print_line(f"calls are recorded in {plain(str(place))}")
    if not place.can_compact:
        _print_line("the extra 'audit' is missing, so queries read the journal only")
    if not health.is_well:  # Of all time, so it is no verdict on today.
        counts = (
            f"{health.lost:,} lost, {health.unreadable:,} unreadable, {health.refused:,} refused"
        )
        _print_line(f"[yellow]records that were lost since the log began:[/] {counts}")


async def examine_servers(session: Session) -> bool:
    """Print the state of each MCP server, and the findings about its texts; True without errors."""
    servers = [source for source in session.loaded.sources if isinstance(source, Live)]
    if not servers:
        return True
    from callpact.sources.mcp.mcp_source import LOCK_FILE, McpSource
    from callpact.sources.mcp.pins import compare, read_lock
    from callpact.sources.mcp.text_scan import scan

    lock = read_lock(session.configuration.folder / LOCK_FILE)
    states = [
        state
        for source in servers
        if isinstance(source, McpSource)
        for state in await source.examine()
    ]
    names = {
        state.name: [str(tool.get("name")) for tool in state.definitions.tools]
        for state in states
        if state.definitions is not None
    }
    rows: list[TableRow] = []
    findings: list[Finding] = []
    for state in states:
        found = state.definitions
        if found is None:
            rows.append(TableRow((state.name, "not reached", "", "", state.error)))
            continue
        schemas = sum("outputSchema" in tool for tool in found.tools)
        answer = state.bad_arguments
        rows.append(
            TableRow((state.name, found.version, f"{len(found.tools):,}", f"{schemas:,}", answer))
        )
        definitions = cast("Any", found.plain())
        pinned = lock.sources.get(state.name)
        changes = () if pinned is None else compare(pinned, definitions)
        findings += await asyncio.to_thread(scan, state.name, definitions, names, changes)
    _print_title("MCP servers")
    print_table(rows, ["SERVER", "PROTOCOL", "TOOLS", "OUTPUT SCHEMAS", "BAD ARGUMENTS"])
    for each in findings:
        style = {"error": "red", "warning": "yellow"}.get(each.severity, "dim")
        out.print(
            f"[{style}]{each.severity}:[/] {plain(each.place)}: {each.code} {plain(each.message)}"
        )
    is_reached = all(state.definitions is not None for state in states)
    return is_reached and not any(each.severity == "error" for each in findings)
