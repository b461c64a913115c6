"""`callpact doctor`, and the table of keys of `callpact list`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

from callpact.app import Session
from callpact.cli.output import TableRow, counted, out, plain, print_table
from callpact.sources.base import Finding, Live
from callpact.tool import Tool

_MISSING = "server_param_missing"


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


def examine(session: Session) -> bool:
    """Print why tools cannot be called, with the remedy; True if all can."""
    tools = tuple(session.catalog)
    reasons = Counter(tool.disabled.reason for tool in tools if tool.disabled is not None)
    errors = sum(found.severity == "error" for found in session.loaded.report)
    out.print(f"{counted(len(tools))}, {reasons.total():,} of them disabled")
    for reason, number in reasons.most_common():
        out.print(f"  {counted(number)}: {plain(reason)}")
    if errors:
        out.print(f"  {counted(errors, 'declaration')} not loaded, as reported above")
    print_keys(tools)
    return not reasons and not errors


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
    out.print()
    print_table(rows, ["SERVER", "PROTOCOL", "TOOLS", "OUTPUT SCHEMAS", "BAD ARGUMENTS"])
    for each in findings:
        style = {"error": "red", "warning": "yellow"}.get(each.severity, "dim")
        out.print(
            f"[{style}]{each.severity}:[/] {plain(each.place)}: {each.code} {plain(each.message)}"
        )
    is_reached = all(state.definitions is not None for state in states)
    return is_reached and not any(each.severity == "error" for each in findings)
