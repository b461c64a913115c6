"""`callpact doctor`, and the table of keys of `callpact list`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from callpact.app import Session
from callpact.cli.output import Row, counted, out, plain, print_table
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
    rows = [Row((*row, files[row])) for row in sorted(files)]
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
