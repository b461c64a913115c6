"""`callpact audit` and `callpact replay`: queries of the audit log, printed on the terminal.

The queries are those of the store and of `audit/`; this module has their options and their output.
No tool is called, and nothing but the rest of the journal is written.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs
from msgspec.structs import replace

from callpact.app import Options, Session
from callpact.audit import text
from callpact.audit.analysis.retry_chains import Repairs, repairs_of, retry_chain
from callpact.audit.pages import pages_of
from callpact.audit.record import TRACE_LEVEL, Record
from callpact.audit.store import MAX_ROWS, Filter, Rate
from callpact.cli.audit.filters import (
    AsCsv,
    AsLines,
    AuditOption,
    By,
    find_record,
    followed,
    hash_pattern,
    log_health,
    opened,
    print_fitted,
    print_no_calls,
    print_no_match,
    takes_filter,
)
from callpact.cli.options import AsJson, ConfigFile
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
    run,
    shown,
    while_read,
)
from callpact.envelope import now_ms
from callpact.errors import UsageError
from callpact.wire.terminal import encode_json

if TYPE_CHECKING:
    from callpact.audit.store import Cause, Store

_HOUR = 3_600_000
_OUTCOMES = (By.gate, By.code, By.key)
_WITH_CAUSES = (By.tool, By.namespace)
_TRIES = 10  # Before and after the shown call.
_IN_ORDER = (By.hour, By.version)

audits = typer.Typer(
    help="Recorded calls, refusals and their causes: the audit log.", no_args_is_help=True
)


# --- calls ----------------------------------------------------------------------------------


@audits.command("log")
@takes_filter
def list_calls(
    *,
    where: Filter,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="The most calls to list.")
    ] = 50,
    as_json: AsLines = False,
    as_csv: AsCsv = False,
    audit: AuditOption = None,
    config: ConfigFile = None,
) -> None:
    """List calls, the newest first."""
    _one_form(as_json, as_csv)
    with opened(Session(Options(config=config, audit=audit))) as store:
        pages = pages_of(store, where, limit)
        if as_json or as_csv:
            _print_records(store, where, pages, as_csv=as_csv)
            return
        records = list(chain.from_iterable(pages))
        if not records:
            print_no_calls(store, where)
            return
        rows = [_row(record) for record in records]
        print_fitted(rows, text.RECORD_HEADERS, text.SPARE_RECORD_HEADERS)
        if len(records) == limit:
            err.print(f"the newest {counted(limit, 'call')}; --limit shows more", style="dim")


@audits.command("export")
@takes_filter
def export_calls(
    *,
    where: Filter,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The most calls. [default: all]")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of JSON lines.")] = False,
    audit: AuditOption = None,
    config: ConfigFile = None,
) -> None:
    """Write all matching calls, the newest first, with their inputs and outputs, as JSON lines."""
    with opened(Session(Options(config=config, audit=audit))) as store:
        pages = pages_of(store, where, limit, with_payloads=True)
        _print_records(store, where, pages, as_csv=as_csv)


@audits.command("tail")
@takes_filter
def follow_calls(
    *,
    where: Filter,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Recorded calls to begin with.")
    ] = 10,
    every: Annotated[
        float, typer.Option("--every", min=0.05, max=3600, help="Seconds between two polls.")
    ] = 1.0,
    as_json: AsLines = False,
    audit: AuditOption = None,
    config: ConfigFile = None,
) -> None:
    """Show calls as they are recorded, one line each, until Ctrl-C or the time of `--until`."""

    async def go() -> int:
        session = Session(Options(config=config, audit=audit))
        with opened(session) as store, followed(store, session, where) as look:
            async with while_read(sys.stdout):
                # In this order: a call that is recorded in between is in one of them.
                first = store.log(where, limit=limit)
                if limit and not first:
                    print_no_match(store, where, "no call on record fits so far")
                show = _print_lines if as_json else _feed(first)
                show(reversed(first))
                seen = {record.id for record in first}
                while where.until is None or now_ms() < where.until:
                    await asyncio.sleep(every)
                    show(r for r in look() if r.id not in seen)
                    seen.clear()
        return 0

    run(go())


@audits.command("show")
def show_call(
    *,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="An id of `log`, or its beginning or end.")
    ],
    as_json: AsJson = False,
    audit: AuditOption = None,
    config: ConfigFile = None,
) -> None:
    """Show one call: its input, its output or error, and the tries before it."""
    with opened(Session(Options(config=config, audit=audit))) as store:
        record = find_record(store, id)
        tries = retry_chain(store, record)
    if as_json:
        others = [other.id for other in tries] if len(tries) > 1 else []
        print_json({**text.encode_record(record), "chain": others}, sys.stdout)
        return
    out.print(f"[bold]{plain(flat(record.tool))}[/]  {plain(flat(record.id))}")
    for name, value in text.facts(record).items():
        out.print(f"[dim]{name:>12}[/]  {plain(flat(value))}")
    for title in ("issues", "warnings", "changes"):
        if notes := getattr(record, title):
            out.print(f"\n[bold]{title.capitalize()}[/]")
            print_plain(f"  {text.note_line(note)}" for note in notes)
    if logs := [line for line in record.logs if line.level != TRACE_LEVEL]:
        out.print("\n[bold]Logs[/]")
        print_plain(f"  {line.level}  {line.message}" for line in logs)
    if record.trace is not None:
        out.print("\n[bold]Traceback[/]")
        print_plain(f"  {line}" for line in record.trace.split("\n"))
    for title, payload in (("Input", record.input), ("Output", record.output)):
        if lines := text.payload_lines(title, payload):
            out.print()
            print_plain(lines)
    if len(tries) > 1:
        out.print(f"\n[bold]Tries[/] {plain('of the same caller, the earliest first')}")
        here = [try_.id for try_ in tries].index(record.id)
        near = tries[max(0, here - _TRIES) : here + _TRIES + 1]
        rows = [
            TableRow((("→" if r.id == record.id else " "), *_cells(r)), _style(r)) for r in near
        ]
        print_table(rows, ("", *text.RECORD_HEADERS), right=text.NUMBER_HEADERS)
        if len(near) < len(tries):
            err.print(f"{len(near)} of {len(tries):,} tries; --json has all", style="dim")


# --- numbers --------------------------------------------------------------------------------


@audits.command("stats")
@takes_filter
def count_calls(
    *,
    where: Filter,
    by: Annotated[By, typer.Option("--by", help="The field that calls are grouped by.")] = By.tool,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MAX_ROWS, help="Groups and causes, each.")
    ] = 20,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            help="A former --version or --contract, to compare with the current one.",
            metavar="TEXT",
        ),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    audit: AuditOption = None,
    config: ConfigFile = None,
) -> None:
    """Count calls: how many failed, their durations, and the commonest causes."""
    _one_form(as_json, as_csv)
    former = None if compare is None else _former(where, compare)
    session = Session(Options(config=config, audit=audit))
    with opened(session) as store:
        every = store.rates(where, by.value)
        if not every:
            print_no_calls(store, where)
        rates = _ordered(every, by)[-limit:] if by in _IN_ORDER else every[:limit]
        before = [] if former is None else store.rates(former, by.value)[:limit]
        causes = store.causes(where, limit=limit)
        repairs = repairs_of(store, where)
        causes_before = [] if former is None else store.causes(former, limit=limit)
        of = _all_calls(store, where) if by in _OUTCOMES else None
        of_before = None if former is None or of is None else _all_calls(store, former)
        groups = [text.encode_rate(rate, by.value, of) for rate in rates]
        groups_before = [text.encode_rate(rate, by.value, of_before) for rate in before]
        if as_csv:
            _print_rates_csv(groups, None if former is None else groups_before)
        elif as_json:
            report: dict[str, Any] = {
                "by": by.value,
                "groups": groups,
                "causes": [text.encode_cause(cause) for cause in causes],
                "repairs": {**structs.asdict(repairs), "share": repairs.share},
                "health": log_health(store, session),
            }
            if former is not None:
                report["groups_before"] = groups_before
                report["causes_before"] = [text.encode_cause(cause) for cause in causes_before]
            print_json(report, sys.stdout)
        elif every or before:
            if former is not None and not before:
                print_no_match(store, former, f"no call on record fits --compare {compare}")
            if former is None:
                _print_rates(store, where, by, rates, of)
            else:
                _print_compared(before, rates, by, (of_before, of))
            if by in _WITH_CAUSES:
                if former is None:
                    _print_causes(causes)
                else:
                    _print_compared_causes(causes_before, causes)
                _print_repairs(repairs)
            if len(rates) < len(every):
                which = "last" if by in _IN_ORDER else "largest"
                shown_groups = f"the {which} {len(rates):,} of {len(every):,} groups"
                err.print(f"{shown_groups}; --limit shows more", style="dim")
            _print_total(every)
        if not as_json:
            _print_health(log_health(store, session), is_wanted=by in _WITH_CAUSES)


def _all_calls(store: Store, where: Filter) -> int:
    """The number of all calls, with any outcome: the base of the shares of causes."""
    whole = replace(where, gate=None, code=None, key=None, outcome=None)
    return sum(rate.calls for rate in store.rates(whole, "gate"))


def _print_rates_csv(after: list[dict[str, Any]], before: list[dict[str, Any]] | None) -> None:
    rows = after
    if before is not None:
        rows = [{"when": "before", **row} for row in before]
        rows += [{"when": "after", **row} for row in after]
    headers = tuple(rows[0]) if rows else text.RATE_FIELDS
    _print_csv(headers, [list(map(str, row.values())) for row in rows])


def _ordered(rates: list[Rate], by: By) -> list[Rate]:
    """Rates of hours and versions in their order."""
    if by is By.hour:
        return sorted(rates, key=lambda rate: int(rate.group))
    return sorted(rates, key=lambda rate: text.version_order(rate.group))


def _former(where: Filter, compare: str) -> Filter:
    if where.contract is not None:
        return replace(where, contract=hash_pattern(compare))
    if where.version is not None:
        return replace(where, version=compare)
    raise UsageError(
        f"--compare {compare} is the former one; give --version or --contract for the other"
    )


def _print_rates(store: Store, where: Filter, by: By, rates: list[Rate], of: int | None) -> None:
    trends, hours = _trends(store, where, by, rates)
    # Versions of several tools are not comparable.
    is_one = by is By.version and where.tool is not None and "*" not in where.tool
    changes = text.changes_of(rates) if is_one else []
    extra = ("CHANGE",) * bool(changes), ("TREND",) * bool(trends)
    own = text.RATE_HEADERS if of is None else text.SHARE_HEADERS
    headers = (by.value.upper(), *own, *chain(*extra))
    rows: list[TableRow] = []
    for number, rate in enumerate(rates):
        cells = text.rate_cells(rate) if of is None else text.share_cells(rate, of)
        more = (*changes[number : number + 1], *trends[number : number + 1])
        rows.append(TableRow((_group(rate.group, by), *cells, *more), first="bold"))
    shown_headers = print_fitted(rows, headers, text.SPARE_RATE_HEADERS)
    if by is By.version and not is_one:
        err.print("--tool ID shows the change from version to version", style="dim")
    if hours and "TREND" in shown_headers:
        err.print(f"a bar of the trend is {counted(hours, 'hour')} of calls", style="dim")


def _trends(store: Store, where: Filter, by: By, rates: list[Rate]) -> tuple[list[str], int]:
    """A sparkline of calls for each group, and the hours of one bar."""
    if by is By.hour:
        most = max(rate.calls for rate in rates)
        return ["█" * -(-rate.calls * 20 // most) for rate in rates], 0
    # Up to now: records of a clock that was ahead must not stretch the window.
    until = now_ms() + 1 if where.until is None else where.until
    trend = store.trend(replace(where, until=int(until)), by.value, spans=text.BARS)
    rows = [text.sparkline(trend.counts.get(rate.group, ())) for rate in rates]
    return rows if any(rows) else [], trend.span // _HOUR


def _group(group: str, by: By) -> str:
    if by is By.hour:
        return text.local(int(group))[:-3]
    return group or ("(a result)" if by in _OUTCOMES else "(none)")


def _print_causes(causes: list[Cause]) -> None:
    if causes:
        out.print()
        rows = [TableRow(text.cause_cells(cause), first="bold") for cause in causes]
        headers = print_fitted(rows, text.CAUSE_HEADERS, text.SPARE_CAUSE_HEADERS)
        if "KEY" not in headers:
            err.print("--by key lists the keys of these causes, for --cause", style="dim")


def _print_compared(
    before: list[Rate], after: list[Rate], by: By, of: tuple[int | None, int | None]
) -> None:
    headers, groups = text.COMPARED_HEADERS, text.compared_rates(before, after)
    if of[0] is not None and of[1] is not None:
        headers = text.COMPARED_SHARE_HEADERS
        groups = text.compared_shares(before, after, (of[0], of[1]))
    rows = [TableRow((_group(group, by), *cells), first="bold") for group, *cells in groups]
    print_fitted(rows, (by.value.upper(), *headers), text.SPARE_RATE_HEADERS)


def _print_compared_causes(before: list[Cause], after: list[Cause]) -> None:
    rows = [TableRow(cells, first="bold") for cells in text.compared(before, after)]
    if rows:
        out.print()
        print_fitted(rows, text.COMPARED_CAUSE_HEADERS, text.SPARE_CAUSE_HEADERS)


def _print_repairs(repairs: Repairs) -> None:
    if repairs.chains:
        line = f"the latest refused inputs: {repairs.repaired:,} of {repairs.chains:,} repaired by "
        line += f"their caller ({text.percent(repairs.share)})"
        if repairs.repaired:
            line += f", after {repairs.tries / repairs.repaired:.1f} tries"
        err.print(line, style="dim")


def _print_health(health: dict[str, Any], *, is_wanted: bool) -> None:
    """Print whether the log is complete: if it is not, or if the view is about the whole log."""
    counts = {name: count for name, count in health.items() if name != "held"}
    words = ", ".join(f"{'?' if n is None else f'{n:,}'} {name}" for name, n in counts.items())
    is_well = not any(count for name, count in counts.items() if name != "waiting")
    if is_wanted or not is_well:
        err.print(f"health of the log: {words}", style="dim" if is_well else "bold red")
    if run := health["held"]:
        at = text.local(run["at"])
        err.print(
            f"retention is held since {at}: it would remove {run['parts']:,} files, more than usual; "
            "is the clock of this machine right?",
            style="bold red",
        )


def _print_total(rates: list[Rate]) -> None:
    calls, failed, rejected, warned = (
        sum(getattr(rate, name) for rate in rates)
        for name in ("calls", "failed", "rejected", "warned")
    )
    share = text.percent(failed / calls if calls else 0)
    line = f"{counted(calls, 'call')}: {failed:,} failed ({share}), {rejected:,} of them rejected"
    line += f"; {warned:,} with warnings" if warned else ""
    err.print(line, style="dim")


# --- printing -------------------------------------------------------------------------------


def _one_form(as_json: bool, as_csv: bool) -> None:  # noqa: FBT001 - two flags of the command line
    if as_json and as_csv:
        raise UsageError("--json and --csv are two forms; choose one")


def _row(record: Record) -> TableRow:
    return TableRow(_cells(record), _style(record))


def _cells(record: Record) -> tuple[str, ...]:
    return text.record_cells(record, is_short=out.is_terminal)


def _style(record: Record) -> str:
    return "red" if record.is_error else "yellow" if record.warnings else ""


def _print_records(
    store: Store, where: Filter, pages: Iterator[list[Record]], *, as_csv: bool
) -> None:
    first = next(pages, None)
    if first is None:
        print_no_calls(store, where)
        return
    if as_csv:
        _print_csv(text.CSV_HEADERS, [])
    for page in chain([first], pages):
        if as_csv:
            _print_csv(None, map(text.record_row, page))
        else:
            _print_lines(page)


def _print_csv(headers: tuple[str, ...] | None, rows: Iterable[list[str]]) -> None:
    written = text.csv_text(chain([headers] if headers else [], rows))
    if written:
        print_plain(written.removesuffix("\n").split("\n"))


def _print_lines(records: Iterable[Record]) -> None:
    """Print records as lines of JSON."""
    print_plain(encode_json(text.encode_record(record), is_line=True) for record in records)


def _feed(first: Iterable[Record]) -> Callable[[Iterable[Record]], None]:
    """Print the header of a feed that begins with these records; returns what prints its lines."""
    width = out.width if out.is_terminal else None
    widths = text.feed_widths([_feed_cells(record) for record in first], width)

    def show(row: Sequence[str], style: str) -> None:
        line = text.feed_line(row, widths, width)
        if width is None:
            print_plain([line])
        else:
            out.print(plain(line), style=style or None)

    def show_all(records: Iterable[Record]) -> None:
        for record in records:
            show(_feed_cells(record), _style(record))

    show(text.RECORD_HEADERS, "bold")
    return show_all


def _feed_cells(record: Record) -> list[str]:
    time, *others = map(flat, _cells(record))
    return [text.recent(record.at, int(now_ms())) if out.is_terminal else time, *others]


def print_plain(lines: Iterable[str]) -> None:
    """Print lines with untrusted text; `shown` escapes it without changing JSON."""
    print_lines(map(shown, lines))
