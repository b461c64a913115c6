"""Options and helpers of the audit commands: filters, the store, tables.

`takes_filter` gives a command all filter options, and passes it one `Filter`.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from callpact.app import Session
from callpact.audit.pages import Arrivals, waiting
from callpact.audit.record import Record
from callpact.audit.store import Filter
from callpact.audit.text import NUMBER_HEADERS, fitted, moment
from callpact.cli.options import option_parameter, with_parameters
from callpact.cli.output import TableRow, err, fail, flat, out, plain, print_table
from callpact.envelope import now_ms
from callpact.errors import UsageError

if TYPE_CHECKING:
    from callpact.audit.store import GroupBy, Store

_SUGGESTED: tuple[GroupBy, ...] = (
    *("tool", "namespace", "caller", "client", "code", "key", "version", "via"),
)


class GateName(StrEnum):
    """The gates that stop calls."""

    find_ = "find"
    access = "access"
    input_ = "input"
    handler = "handler"
    output = "output"


class By(StrEnum):
    """The fields that calls can be grouped by."""

    tool = "tool"
    namespace = "namespace"
    caller = "caller"
    client = "client"
    gate = "gate"
    code = "code"
    key = "key"
    version = "version"
    via = "via"
    hour = "hour"


def _option(name: str, help: str, metavar: str = "TEXT") -> Any:
    return Annotated[str | None, typer.Option(name, help=help, metavar=metavar)]


Since = Annotated[
    str | None,
    typer.Option(
        "--since", help="From then on: `2h` ago, `yesterday`, or a date and time.", metavar="TIME"
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Before then.", metavar="TIME")]
_FILTER: dict[str, Any] = {
    "tool": _option("--tool", "Of this tool; `*` matches any text, here and below."),
    "namespace": _option("--namespace", "Of the tools of this namespace."),
    "caller": _option("--caller", "Of this caller; '' for none."),
    "client": _option("--client", "Of this client program, as `claude-code 2.1.0`; '' for none."),
    "gate": Annotated[GateName | None, typer.Option("--gate", help="Stopped there.")],
    "code": _option("--code", "With this error code."),
    "cause": _option("--cause", "With this cause, as `stats --by key` shows it."),
    "via": _option(
        "--via", "Through this door: `http`, `cli`, `mcp*`; '' for code of the process."
    ),
    "version": _option("--version", "Of this version of a tool."),
    "contract": _option("--contract", "Of the contract with this hash, or its beginning.", "HASH"),
    "failed": Annotated[
        bool | None, typer.Option("--failed/--ok", help="Without a result, or with one.")
    ],
    "since": Since,
    "until": Until,
}
AuditOption = Annotated[
    str | None,
    typer.Option(
        "--audit",
        help="Where the audit log is: a folder, or postgresql://… [default: as configured]",
        metavar="WHERE",
    ),
]
AsLines = Annotated[bool, typer.Option("--json", help="One JSON object for each call.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="CSV instead of a table.")]
Pattern = Annotated[
    str | None, typer.Argument(metavar="TOOL", help="One tool, or a pattern with `*`; else all.")
]


def takes_filter(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the `where` of a command by all filter options."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        command(where=filter_of(**{name: given.pop(name) for name in _FILTER}), **given)

    own = inspect.signature(command, eval_str=True).parameters
    options = [option_parameter(name, (kind, None)) for name, kind in _FILTER.items()]
    kept = [parameter for name, parameter in own.items() if name != "where"]
    return with_parameters(wrapped, [*options, *kept])


def filter_of(
    *,
    failed: bool | None = None,
    since: str | None = None,
    until: str | None = None,
    contract: str | None = None,
    cause: str | None = None,
    **parts: str | None,
) -> Filter:
    """The filter for the values of the options.

    Raises:
        UsageError: a time cannot be parsed, or the window ends before it begins.
    """
    now = int(now_ms())
    begin = None if since is None else moment(since, now)
    end = None if until is None else moment(until, now)
    if begin is not None and end is not None and begin >= end:
        raise UsageError(f"--since {since} is not before --until {until}; swap them")
    if contract is not None:
        contract = hash_pattern(contract)
    outcome = None if failed is None else "failed" if failed else "ok"
    named = {name: None if part is None else str(part) for name, part in parts.items()}
    return Filter(since=begin, until=end, contract=contract, outcome=outcome, key=cause, **named)


def hash_pattern(text: str) -> str:
    """A pattern for a hash that may be shortened to its beginning."""
    return text if not text or "*" in text else f"{text}*"


# --- the store ------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(session: Session) -> Generator[Store]:
    """Open the store of an existing log, and print the parts that the queries had to leave out."""
    from callpact.audit.log import open_store

    place = session.place
    if place.server is None:
        _check_folder(place.folder, is_named=session.options.audit is not None)
    store = open_store(place)
    try:
        yield store
    finally:
        _print_left_out(store)
        store.close()


def _print_left_out(store: Store) -> None:
    for name, reason in store.damaged.items():
        err.print(plain(f"left out: '{name}' cannot be read: {flat(reason)}"), style="bold red")
    if store.unread:
        err.print(
            f"left out: {store.unread:,} bytes of the journal, more than one query reads",
            style="bold red",
        )


def _check_folder(folder: Path, *, is_named: bool) -> None:
    try:
        is_there = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        fail(f"the audit log in '{folder}' cannot be read: {error.strerror}")
    if not is_there:
        if not is_named:
            fail(f"nothing is on record yet in '{folder}'; `callpact call` and `serve` write it")
        fail(f"there is no audit log in '{folder}'; name the folder that calls were recorded to")


@contextlib.contextmanager
def followed(
    store: Store, session: Session, where: Filter
) -> Generator[Callable[[], list[Record]]]:
    """Gives a function that returns the calls recorded since it was last called, in order."""
    seen = Arrivals(store, session.place.journal, where, lambda: int(now_ms()))
    with contextlib.closing(seen) as arrivals:
        yield arrivals.new


def find_record(store: Store, id: str) -> Record:
    """Find one record by its id, or by the beginning or the end of it."""
    if (record := store.find(id)) is not None:
        return record
    begin, dots, end = id.partition("..")
    found = store.ids_like(begin, end)
    if not dots:
        found = list(dict.fromkeys([*found, *store.ids_like("", id)]))
    if len(found) > 1:
        few = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        fail(f"'{id}' begins or ends several ids: {few}; write more of it")
    record = store.find(found[0]) if found else None
    if record is None:
        fail(f"there is no call '{id}' on record; `callpact audit log` lists the ids")
    return record


def print_fitted(
    rows: Sequence[TableRow], headers: Sequence[str], spare: Iterable[str], *, indent: int = 0
) -> Sequence[str]:
    """Print a table with its numbers to the right; a narrow terminal drops spare columns.

    Returns the headers of the printed columns.
    """
    if out.is_terminal and rows:
        cells = [[flat(cell) for cell in row.cells] for row in rows]
        headers, kept = fitted(headers, cells, out.width - indent, spare)
        rows = [row._replace(cells=cells) for row, cells in zip(rows, kept, strict=True)]
    print_table(rows, headers, indent=indent, right=NUMBER_HEADERS)
    return headers


def log_health(store: Store, session: Session) -> dict[str, Any]:
    """Counts of lost, damaged and waiting records, and a removal that retention holds."""
    from callpact.audit.journal.health import health_of
    from callpact.audit.store.retention import held_retention

    journal = session.place.journal
    run = held_retention(journal)
    return {
        **msgspec.structs.asdict(health_of(journal)),
        "damaged": len(store.damaged),
        "waiting": waiting(journal, store.taken()),
        "held": None if run is None else msgspec.structs.asdict(run),
    }


def print_no_calls(store: Store, where: Filter | None = None) -> None:
    """Print that no call matches; an empty log is an error, as it may be the wrong one."""
    if not store.log(Filter(), limit=1):
        fail("nothing is on record yet; `callpact call` and `callpact serve` write it")
    print_no_match(store, where or Filter(), "no call on record fits")


def print_no_match(store: Store, where: Filter, message: str) -> None:
    """Print that no call matches, and the names of the filter that no record has."""
    why = "; ".join(_unknown(store, where))
    err.print(plain(f"{message}: {why}" if why else message), style="dim")


def _unknown(store: Store, where: Filter) -> Iterator[str]:
    """The fields of a filter that match no record, with the most similar known value."""
    for name in _SUGGESTED:
        wanted: str | None = getattr(where, name, None)
        if not wanted or "*" in wanted:
            continue
        known = [rate.group for rate in store.rates(Filter(), name) if rate.group]
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            yield f"there is no {name} '{wanted}' on record{hint}"
