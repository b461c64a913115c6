"""Questions that put the audit log before contracts: `audit drift`, `audit advice`, `replay`.

They load the sources to see the contracts as they are now, and call nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from callpact.audit.store import Filter
from callpact.audits import print_plain
from callpact.options import AsJson, Chosen, takes_sources
from callpact.questions import (
    AsLines,
    AuditOption,
    Pattern,
    Since,
    Until,
    filter_of,
    opened,
    print_fitted,
    takes_filter,
    tell_nothing,
)
from callpact.terminal import (
    Row,
    counted,
    err,
    out,
    plain,
    print_json,
)
from callpact.wire.cli import encode_json

if TYPE_CHECKING:
    from callpact.audit.advice import Advice
    from callpact.audit.drift import Drift
    from callpact.audit.store import Store
    from callpact.catalog import Catalog
    from callpact.tool import Tool


def judge_by(app: typer.Typer, audits: typer.Typer) -> None:
    """Give the command line these commands."""
    audits.command("drift")(drift)
    audits.command("advice")(advice)
    app.command()(replay)


@takes_sources
def drift(
    *,
    tool: Pattern = None,
    since: Since = None,
    until: Until = None,
    as_json: AsLines = False,
    audit: AuditOption = None,
    chosen: Chosen,
) -> None:
    """Tell how answers have moved away from output schemas, and the change that would accept them."""
    from callpact.audit import reports
    from callpact.audit.questions import drift_of

    where = filter_of(since=since, until=until)
    others: list[Drift] = []
    for store, found in _on_record(where, tool, audit, chosen):
        report = drift_of(store, found, where)
        if as_json:
            print_plain([encode_json(reports.encode_drift(found.id, report), is_line=True)])
        elif report.findings:
            rows = [reports.finding_cells(each, report) for each in report.findings]
            out.print(f"[bold]{plain(reports.drift_head(found.id, report))}[/]")
            spare = reports.SPARE_FINDING_HEADERS
            _print_report(rows, reports.FINDING_HEADERS, reports.drift_tail(report), spare)
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
    as_json: AsLines = False,
    audit: AuditOption = None,
    chosen: Chosen,
) -> None:
    """Tell which input contracts are too strict for what is sent, and what would let it in."""
    from callpact.audit import reports
    from callpact.audit.questions import advice_of

    where = filter_of(since=since, until=until)
    others: list[Advice] = []
    for store, found in _on_record(where, tool, audit, chosen):
        report = advice_of(store, found, where)
        if as_json:
            print_plain([encode_json(reports.encode_advice(found.id, report), is_line=True)])
        elif report.relaxations:
            rows = map(reports.relaxation_cells, report.relaxations)
            out.print(f"[bold]{plain(reports.advice_head(found.id, report))}[/]")
            _print_report(rows, reports.RELAXATION_HEADERS, reports.advice_tail(report))
        if not report.relaxations:
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
            "--against", help="Where the changed tools are, instead of --source.", metavar="SOURCE"
        ),
    ] = None,
    as_json: AsJson = False,
    audit: AuditOption = None,
    chosen: Chosen,
) -> None:
    """Put recorded inputs before the contracts as they are now: what would change. Nothing is run."""
    from callpact.audit import reports
    from callpact.audit.questions import replay_of

    sources = dataclasses.replace(chosen, source=against) if against else chosen
    catalog = asyncio.run(_loaded(sources))
    with opened(chosen, audit) as store:
        report = replay_of(store, catalog, where)
        if not report.calls:
            tell_nothing(store, where)
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
    print_fitted([Row(cells, first="cyan") for cells in rows], headers, spare, indent=2)
    print_plain(f"  {line}" for line in tail)
    out.print()


def _on_record(
    where: Filter, tool: str | None, audit: str | None, chosen: Chosen
) -> Iterator[tuple[Store, Tool]]:
    """The tools that are meant, and the store that has their records."""
    catalog = asyncio.run(_loaded(chosen))
    with opened(chosen, audit) as store:
        for found in _called(store, where, catalog, tool):
            yield store, found


async def _loaded(chosen: Chosen) -> Catalog:
    async with await chosen.load() as loaded:
        return loaded.catalog


def _called(store: Store, where: Filter, catalog: Catalog, tool: str | None) -> list[Tool]:
    """The tools that are meant, of those on record."""
    if tool is not None and "*" not in tool:
        return [catalog.find(tool)]
    names = {rate.group for rate in store.rates(where, "tool")}
    if not names:
        tell_nothing(store)
    meant = {name for name in names if tool is None or fnmatchcase(name, tool)}
    found = [each for each in catalog if each.id in meant]
    if len(found) < len(meant):
        gone = counted(len(meant) - len(found))
        err.print(f"{gone} on record cannot be judged: not in the sources", style="dim")
    return found
