"""`callpact lint`: advice about contracts, as text, JSON lines or annotations of GitHub."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callpact import contracts
from callpact.cli.options import SourceOptions, file_of, takes_sources
from callpact.cli.output import (
    TableRow,
    counted,
    err,
    fail,
    flat,
    out,
    print_json,
    print_lines,
    print_table,
)
from callpact.cli.tool_commands import session_of
from callpact.sources.base import Finding

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.contracts import LintFinding

_RANKS = {"error": 0, "warning": 1, "info": 2}
_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}


class LintFormat(StrEnum):
    """Forms of the findings of `callpact lint`."""

    text = "text"
    json = "json"
    github = "github"


class FailOn(StrEnum):
    """The least severity that makes the exit code 1."""

    error = "error"
    warning = "warning"
    info = "info"
    never = "never"


@takes_sources
def lint(
    *,
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REF]...",
            help="Files, folders, other references, or a server's address; else the sources.",
        ),
    ] = None,
    form: Annotated[
        LintFormat, typer.Option("--format", help="The form of the findings.")
    ] = LintFormat.text,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object for each tool: `--format json`.")
    ] = False,
    info: Annotated[
        bool, typer.Option("--info", help="Show findings of severity info too.")
    ] = False,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit code 1 from this severity on.")
    ] = FailOn.warning,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            help="Only codes that begin so, separated by commas: `LNT01,LNT020`. Repeatable.",
            metavar="CODES",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", help="Not the codes that begin so.", metavar="CODES"),
    ] = None,
    sources: SourceOptions,
) -> None:
    """Check how well a model can satisfy the contracts of tools, and advise. Calls no tool.

    The rules are the same for every source. Exit code 1 if there is a warning or an error;
    `--fail-on` sets another severity.
    """
    if as_json and form is LintFormat.github:
        fail("--json and --format github are two formats; name one")
    if refs and sources.source:
        fail("name sources either as arguments or with --source, not both")
    wanted, unwanted = _codes("--select", select), _codes("--ignore", ignore)
    catalog = _catalog(sources, refs or [])
    found = [
        each
        for each in contracts.lint_catalog(catalog)
        if (not wanted or each.code.startswith(wanted)) and not each.code.startswith(unwanted)
    ]
    if as_json or form is LintFormat.json:
        _print_json(catalog, found)
    elif form is LintFormat.github:
        from callpact.cli.check_report import annotation  # With every rule of FlowMCP.

        print_lines(annotation(_plain_finding(each)) for each in found)
        err.print(_summary(catalog, found), style="dim")
    else:
        _print_text(catalog, found, shows_info=info)
    worst = min((_RANKS[each.severity] for each in found), default=len(_RANKS))
    if fail_on is not FailOn.never and worst <= _RANKS[fail_on.value]:
        raise typer.Exit(1)


def _catalog(sources: SourceOptions, refs: Sequence[str]) -> Catalog:
    if len(refs) == 1:
        return session_of(sources, refs[0]).catalog
    return sources.look(sources.session(), refs)


def _codes(option: str, given: Iterable[str] | None) -> tuple[str, ...]:
    codes = tuple(part.strip().upper() for each in given or () for part in each.split(","))
    for code in codes:
        if not code or not any(known.startswith(code) for known in contracts.LINT_RULES):
            fail(f"{option}: no code begins with '{code}'; codes are like LNT010, LNT02")
    return codes


# --- forms ----------------------------------------------------------------------------------


def _summary(catalog: Catalog, found: Sequence[LintFinding]) -> str:
    number = Counter(each.severity for each in found)
    concerned = len({each.tool for each in found})
    parts = [counted(number[severity], severity) for severity in _RANKS]
    return f"{counted(len(catalog))}, {concerned:,} with findings: {', '.join(parts)}"


def _print_text(catalog: Catalog, found: Sequence[LintFinding], *, shows_info: bool) -> None:
    visible = [each for each in found if shows_info or each.severity != "info"]
    for name, group in groupby(visible, key=lambda each: each.tool):
        out.print(flat(name), style="bold", markup=False, highlight=False)
        rows = [
            TableRow(
                (each.severity, each.code, flat(each.path or "-"), flat(each.message)),
                first=_STYLES[each.severity],
            )
            for each in sorted(group, key=lambda each: _RANKS[each.severity])
        ]
        print_table(rows, indent=2)
        out.print()
    counts = Counter(each.code for each in visible)
    if counts:
        rules = contracts.LINT_RULES
        ordered = sorted(counts, key=lambda code: (_RANKS[rules[code].severity], code))
        rows = [TableRow((code, f"{counts[code]:,}", rules[code].remedy)) for code in ordered]
        print_table(rows, ["CODE", "FINDINGS", "WHAT TO DO"], right=("FINDINGS",))
        out.print()
    out.print(_summary(catalog, found), style="bold", highlight=False)
    hidden = len(found) - len(visible)
    if hidden:
        err.print(f"{counted(hidden, 'info')} not shown; --info shows them", style="dim")


def _print_json(catalog: Catalog, found: Sequence[LintFinding]) -> None:
    by_tool: dict[str, list[LintFinding]] = {tool.id: [] for tool in catalog}
    for each in found:
        by_tool[each.tool].append(each)
    for tool in catalog:
        own = by_tool[tool.id]
        worst = min((each.severity for each in own), key=_RANKS.__getitem__, default="ok")
        form = {"tool": tool.id, "source": tool.source, "verdict": worst}
        print_json({**form, "issues": list(map(_encoded, own))}, sys.stdout, is_line=True)
    err.print(_summary(catalog, found), style="dim")


def _encoded(found: LintFinding) -> dict[str, Any]:
    return {
        "code": found.code,
        "severity": found.severity,
        "path": found.path,
        "message": found.message,
        "remedy": found.remedy,
    }


def _plain_finding(found: LintFinding) -> Finding:
    """The finding for an annotation: at the file of its tool, if there is one."""
    place = file_of(found.place).partition("#")[0]
    where = f"{found.tool} {found.path}".rstrip()
    words = f"{where}: {found.message}; {found.remedy}"
    return Finding(place if Path(place).is_file() else "", found.severity, words, found.code)
