"""The findings of `callpact check` as text, JSON lines, annotations of GitHub, or a page of HTML."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from rich.markup import escape as escape_markup

from callpact.cli.options import CheckFormat
from callpact.cli.output import (
    TableRow,
    counted,
    err,
    flat,
    out,
    plain,
    print_json,
    print_lines,
    print_table,
)
from callpact.sources.base import Finding
from callpact.sources.flowmcp.catalogue import FileReport
from callpact.sources.flowmcp.check.rule_table import RULES

MAX_KEY_ROWS = 20
"""Keys that are shown on a terminal; a pipe gets all."""
_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}
_RANKS = {"error": 0, "warning": 1, "info": 2}
_NOTICES = {"error": "error", "warning": "warning", "info": "notice"}


class CodeCount(NamedTuple):
    """How often a code was found."""

    code: str
    severity: str
    findings: int
    files: int
    rule: str
    """The rule behind the code."""


def summary_of(reports: Sequence[FileReport]) -> str:
    """The line that ends a check."""
    verdicts = Counter(report.verdict for report in reports)
    ok, warned, failed = (verdicts[verdict] for verdict in ("ok", "warning", "error"))
    files = counted(verdicts.total(), "file")
    return f"{files}: {ok:,} ok, {warned:,} with warnings, {failed:,} with errors"


def counts_of(reports: Iterable[FileReport]) -> list[CodeCount]:
    """The number of findings by code: errors first, then the commonest."""
    findings: Counter[tuple[str, str]] = Counter()
    files: Counter[tuple[str, str]] = Counter()
    for report in reports:
        own = Counter((found.code, found.severity) for found in report.findings)
        findings += own
        files += Counter(own.keys())
    ordered = sorted(findings, key=lambda each: (_RANKS[each[1]], -findings[each], each))
    return [
        CodeCount(code, severity, findings[code, severity], files[code, severity], _rule(code))
        for code, severity in ordered
    ]


def _rule(code: str) -> str:
    rule = RULES.get(code)
    if rule is not None:
        return rule.meaning
    return "" if code else "An OpenAPI document can be read; its findings have no code"


# --- text -----------------------------------------------------------------------------------


def print_text(reports: Sequence[FileReport], *, shows_warnings: bool) -> None:
    """Print the findings, files with errors first, then their number by code, keys and a summary."""
    for report in sorted(reports, key=lambda each: each.verdict != "error"):
        found = sorted(report.findings, key=lambda each: _RANKS[each.severity])
        shown = [each for each in found if shows_warnings or each.severity == "error"]
        if shown:
            _print_file(report.file, shown)
    counts = counts_of(reports)
    if counts and len(reports) > 1:
        rows = [
            TableRow(
                (code or "-", severity, f"{findings:,}", f"{files:,}", rule),
                first=_STYLES[severity],
            )
            for code, severity, findings, files, rule in counts
        ]
        print_table(rows, ["CODE", "SEVERITY", "FINDINGS", "FILES", "RULE"], spare=())
        out.print()
    _print_keys(reports)
    out.print(summary_of(reports), style="bold")
    hidden = sum(each.findings for each in counts if each.severity != "error")
    if hidden and not shows_warnings:
        err.print(f"{counted(hidden, 'warning')} not shown; --warnings shows them", style="dim")


def _print_file(file: str, findings: Sequence[Finding]) -> None:
    """Print the findings of one file in columns; rich is too slow for thousands of rows."""
    rows = [_row(found) for found in findings]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines: list[tuple[str, str, str]] = []
    for *cells, message in rows:
        first, *others = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append((first, "  ".join(others), message))
    if not out.is_terminal:
        print_lines([flat(file), *("  " + "  ".join(line) for line in lines), ""])
        return
    out.print(f"[bold]{plain(file)}[/]")
    for first, others, message in lines:
        head = f"  [{_STYLES[first.strip()]}]{first}[/]  {escape_markup(others)}"
        if len(first) + len(others) + len(message) + 6 <= out.width:
            out.print(f"{head}  {escape_markup(message)}")
            continue
        out.print(head.rstrip())
        for part in textwrap.wrap(message, max(out.width - 6, 20), break_on_hyphens=False):
            out.print(f"      {escape_markup(part)}")
    out.print()


def _row(found: Finding) -> list[str]:
    place = f"{found.line or 1}:{found.column or 1}"
    if not found.code:  # The line of an OpenAPI document is known, its column never.
        place = "-" if found.line is None else str(found.line)
    return [found.severity, found.code, place, *map(flat, (found.path or "-", found.message))]


def _print_keys(reports: Iterable[FileReport]) -> None:
    """Print which file asks for which key, and the host it would be sent to."""
    rows = [
        TableRow((name, report.host or "no host of its own", report.file))
        for report in reports
        for name in report.keys
    ]
    if not rows:
        return
    most = MAX_KEY_ROWS if out.is_terminal else len(rows)
    print_table(rows[:most], ["KEY", "SENT TO", "BY"])
    if rows[most:]:
        out.print(
            f"and {counted(len(rows) - most, 'more key')}; --format json has all", style="dim"
        )
    out.print()


# --- JSON and annotations -------------------------------------------------------------------


def print_report_line(report: FileReport, form: CheckFormat) -> None:
    """Print the report of one file, for the formats that can be written file by file."""
    if form is CheckFormat.json:
        print_json(_encode(report), sys.stdout, is_line=True)
    elif form is CheckFormat.github:
        print_lines(map(annotation, report.findings))


def _encode(report: FileReport) -> dict[str, Any]:
    keys = {"keys": dict.fromkeys(report.keys, report.host)} if report.keys else {}
    return {
        "file": report.file,
        "verdict": report.verdict,
        "issues": [_encode_finding(found) for found in report.findings],
        "namespace": report.namespace,
        "name": report.name,
        "tools": list(report.tools),
        "schemaHash": report.hash,
        **keys,
    }


def _encode_finding(found: Finding) -> dict[str, Any]:
    return {
        "code": found.code,
        "severity": found.severity,
        "path": found.path,
        "line": found.line,
        "column": found.column,
        "message": found.message,
    }


def annotation(found: Finding) -> str:
    """A finding as a workflow command of GitHub Actions; without a place it has no file."""
    fields = {"title": found.code or "callpact check"}
    if found.place:
        line, column = str(found.line or 1), str(found.column or 1)
        fields = {"file": found.place, "line": line, "col": column, **fields}
    written = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    return f"::{_NOTICES[found.severity]} {written}::{_data(found.message)}"


def _data(value: str) -> str:
    return flat(value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


# --- HTML -----------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; }
th { border-bottom: 1px solid; } td { border-bottom: 1px solid #8884; }
td.number { text-align: right; } code { font-family: ui-monospace, monospace; }
.error { color: light-dark(#b3261e, #ff8a80); } .warning { color: light-dark(#8a5a00, #ffca66); }
.info { opacity: .7; }
"""


def print_page(reports: Sequence[FileReport]) -> None:
    """Print all findings as one page of HTML that needs no other file."""
    print_lines(_page(reports))


def _page(reports: Sequence[FileReport]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>callpact check</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>callpact check</h1><p>{escape(summary_of(reports))}</p>"
    if counts := counts_of(reports):
        yield "<h2>By code</h2><table>"
        yield "<tr><th>Code<th>Severity<th>Findings<th>Files<th>Rule</tr>"
        for code, severity, findings, files, rule in counts:
            yield (
                f'<tr><td><code>{escape(code)}</code><td class="{severity}">{severity}'
                f'<td class="number">{findings:,}<td class="number">{files:,}'
                f"<td>{escape(flat(rule))}</tr>"
            )
        yield "</table>"
    for report in sorted(reports, key=lambda each: each.verdict != "error"):
        if report.findings:
            yield f"<h2><code>{escape(flat(report.file))}</code></h2><table>"
            yield "<tr><th>Severity<th>Code<th>Place<th>Path<th>Finding</tr>"
            yield from map(_finding_row, report.findings)
            yield "</table>"
    yield "</body></html>"


def _finding_row(found: Finding) -> str:
    severity, code, place, path, message = map(escape, _row(found))
    return (
        f'<tr><td class="{severity}">{severity}<td><code>{code}</code><td>{place}'
        f"<td><code>{path}</code><td>{message}</tr>"
    )
