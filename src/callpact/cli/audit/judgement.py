"""Commands that check recorded calls against contracts: `audit drift`, `audit advice`, `replay`.

They load the sources for the current contracts, and call no tool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from callpact.audit.pages import under_recorded_names
from callpact.audit.store import Filter
from callpact.catalog import Catalog
from callpact.cli.audit.audit_commands import print_plain
from callpact.cli.audit.filters import (
    AuditOption,
    Pattern,
    Since,
    Until,
    filter_of,
    opened,
    print_fitted,
    print_no_calls,
    takes_filter,
)
from callpact.cli.contracts.package_refs import contracts_of, published_of
from callpact.cli.options import (
    AsJson,
    PackagesOption,
    SourceOptions,
    packages_folder,
    takes_sources,
)
from callpact.cli.output import (
    TableRow,
    counted,
    err,
    fail,
    out,
    plain,
    print_json,
)
from callpact.wire.terminal import encode_json

if TYPE_CHECKING:
    from callpact.audit.analysis.advice import Advice
    from callpact.audit.analysis.drift import Drift
    from callpact.audit.store import Store
    from callpact.tool import Tool


AsObjects = Annotated[bool, typer.Option("--json", help="One JSON object for each tool.")]


def add_audit_commands(app: typer.Typer, audits: typer.Typer) -> None:
    """Add these commands to the command line."""
    audits.command("drift")(drift)
    audits.command("advice")(advice)
    app.command()(replay)


@takes_sources
def drift(
    *,
    tool: Pattern = None,
    since: Since = None,
    until: Until = None,
    as_json: AsObjects = False,
    audit: AuditOption = None,
    sources: SourceOptions,
) -> None:
    """Report outputs that differ from their output schemas, and the change that would accept them."""
    from callpact.audit import reports
    from callpact.audit.analysis.drift import drift_of
    from callpact.audit.analysis.wordings import language_of

    where = filter_of(since=since, until=until)
    others: list[Drift] = []
    for store, found in _on_record(where, tool, audit, sources):
        report = drift_of(store, found, where)
        if as_json:
            print_plain([encode_json(reports.encode_drift(found.id, report), is_line=True)])
        elif report.findings:
            rows = [reports.finding_cells(each, report) for each in report.findings]
            out.print(f"[bold]{plain(reports.drift_head(found.id, report))}[/]")
            spare = reports.SPARE_FINDING_HEADERS
            tail = reports.drift_tail(report, language_of(found))
            _print_report(rows, reports.FINDING_HEADERS, tail, spare)
        if not report.findings:
            others.append(report)
    for line in reports.quiet_lines(others):
        err.print(line, style="dim")


@takes_sources
def advice(
    *,
    tool: Pattern = None,
    since: Since = None,
    until: Until = None,
    as_json: AsObjects = False,
    audit: AuditOption = None,
    sources: SourceOptions,
) -> None:
    """Report input contracts that are too strict for what callers send, and how to relax them."""
    from callpact.audit import reports
    from callpact.audit.analysis.advice import advice_of
    from callpact.audit.analysis.wordings import language_of

    where = filter_of(since=since, until=until)
    others: list[Advice] = []
    for store, found in _on_record(where, tool, audit, sources):
        report = advice_of(store, found, where)
        if as_json:
            print_plain([encode_json(reports.encode_advice(found.id, report), is_line=True)])
        elif report.relaxations or report.unsolved:
            rows = map(reports.relaxation_cells, (*report.relaxations, *report.unsolved))
            out.print(f"[bold]{plain(reports.advice_head(found.id, report))}[/]")
            tail = reports.advice_tail(report, language_of(found))
            _print_report(rows, reports.RELAXATION_HEADERS, tail)
        if not report.relaxations and not report.unsolved:
            others.append(report)
    for line in reports.quiet_lines(others):
        err.print(line, style="dim")


@takes_sources
@takes_filter
def replay(
    *,
    where: Filter,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            help="Where the changed tools are, instead of --source; or a published NAME@VERSION.",
            metavar="SOURCE",
        ),
    ] = None,
    former: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Compare with the contracts of this source or published NAME@VERSION, not with the "
            "recorded outcomes.",
            metavar="SOURCE",
        ),
    ] = None,
    packages: PackagesOption = None,
    as_json: AsJson = False,
    audit: AuditOption = None,
    sources: SourceOptions,
) -> None:
    """Check recorded inputs against the current contracts, and report changes. No tool is run.

    With --from, two contracts are compared on the recorded calls: their inputs, and their outputs.
    """
    from callpact.audit import reports
    from callpact.audit.analysis.replay import replay_of

    session = sources.session(audit)
    folder = packages_folder(packages, session.configuration)
    published = published_of(against[0], folder) if against and len(against) == 1 else None
    catalog = sources.look(session, against or ()) if published is None else published
    before = None if former is None else contracts_of(sources, former, folder).catalog
    with opened(session) as store:
        window = Filter(since=where.since, until=where.until)
        tools, renamed = under_recorded_names(store, catalog, window)
        old = None if before is None else under_recorded_names(store, before, window)[0]
        report = replay_of(store, tools, where, old)
        _print_former(renamed)
        if not report.calls:
            print_no_calls(store, where)
        elif as_json:
            print_json(reports.encode_replay(report), sys.stdout)
        else:
            print_plain(reports.replay_lines(report))


def _print_report(
    rows: Iterable[tuple[str, ...]],
    headers: tuple[str, ...],
    tail: Iterable[str],
    spare: Iterable[str] = (),
) -> None:
    print_fitted([TableRow(cells, first="cyan") for cells in rows], headers, spare, indent=2)
    print_plain(f"  {line}" for line in tail)
    out.print()


def _on_record(
    where: Filter, tool: str | None, audit: str | None, sources: SourceOptions
) -> Iterator[tuple[Store, Tool]]:
    """The selected tools, each with the store of their records."""
    session = sources.session(audit)
    catalog = sources.look(session)
    with opened(session) as store:
        for found in _called(store, where, catalog, tool):
            yield store, found


def _called(store: Store, where: Filter, catalog: Catalog, tool: str | None) -> list[Tool]:
    """The selected tools among those with records."""
    if tool is not None and tool in catalog:
        return [catalog.find(tool)]
    tools, former = under_recorded_names(store, catalog, where)
    _print_former(former)
    catalog = Catalog(tools) if former else catalog
    if tool is not None and "*" not in tool:
        return [catalog.find(tool)]
    calls = {rate.group: rate.calls for rate in store.rates(where, "tool")}
    if not calls:
        print_no_calls(store)
    on_record = {found.id: found for name in calls if (found := catalog.get(name)) is not None}
    meant = [each for each in on_record.values() if _fits(tool, *_names(each))]
    missed = {rate.group: rate.calls for rate in store.rates(replace(where, gate="find"), "tool")}
    # A tool that was never found is a name that a caller made up.
    gone = [
        name
        for name, count in calls.items()
        if name not in catalog and missed.get(name) != count and _fits(tool, name)
    ]
    if gone:
        many = counted(len(gone))
        err.print(f"{many} on record cannot be judged: not in the sources", style="dim")
    elif tool is not None and calls and not meant:
        _print_no_tool(catalog, tool)
    return meant


def _print_former(former: dict[str, str]) -> None:
    """Print which namespaces on record are taken for others."""
    for old, new in former.items():
        line = f"'{old}' on record is taken for '{new}': its tools have the same names, and their "
        err.print(plain(f"{line}namespace is the name of their file"), style="dim")


def _names(tool: Tool) -> tuple[str, ...]:
    return (tool.id, tool.wire_name, *tool.aliases)


def _fits(pattern: str | None, *names: str) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)


def _print_no_tool(catalog: Catalog, pattern: str) -> None:
    """Print that no call matches; a pattern that matches no tool is an error."""
    if not any(_fits(pattern, *_names(tool)) for tool in catalog):
        fail(f"there is no tool that fits '{pattern}', in the sources or on record")
    err.print(plain(f"no call on record is of a tool that fits '{pattern}'"), style="dim")
