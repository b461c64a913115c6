"""What a question to the audit log is asked with: which calls are meant, and the log itself.

`takes_filter` gives a command all options that say which calls, and the command one `Filter`.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from enum import StrEnum
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec.structs import replace

from callpact.audit.record import Record
from callpact.audit.store import MAX_ROWS, Filter
from callpact.audit.text import has_id, moment
from callpact.envelope import now_ms
from callpact.errors import UsageError
from callpact.options import Chosen
from callpact.recording import audit_table
from callpact.terminal import err, fail

if TYPE_CHECKING:
    from callpact.audit.store import Store

LATE_MS = 120_000
"""How long a call may have taken that `tail` still shows; the log has it by when it began."""
MAX_SEARCHED = 50_000
"""Calls that are searched for a part of an id, the newest first."""
_PAGE = 500


class GateName(StrEnum):
    """Where a call was stopped."""

    find_ = "find"
    access = "access"
    input_ = "input"
    handler = "handler"
    output = "output"


class By(StrEnum):
    """What calls are counted by."""

    tool = "tool"
    namespace = "namespace"
    caller = "caller"
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
        "--since", help="From then on: `2h` or `7d` ago, or a date and time.", metavar="TIME"
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Before then.", metavar="TIME")]
_FILTER: dict[str, Any] = {
    "tool": _option("--tool", "Of this tool; `*` stands for any text, here and below."),
    "namespace": _option("--namespace", "Of the tools of this namespace."),
    "caller": _option("--caller", "Of this caller; '' for none."),
    "gate": Annotated[GateName | None, typer.Option("--gate", help="Stopped there.")],
    "code": _option("--code", "With this error code."),
    "key": _option("--key", "With this cause, as `stats` tells it."),
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
        "--audit", help="Folder of the audit log. [default: as configured]", metavar="FOLDER"
    ),
]
AsLines = Annotated[bool, typer.Option("--json", help="One JSON object for each call.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="CSV instead of a table.")]
Pattern = Annotated[
    str | None, typer.Argument(metavar="TOOL", help="One tool, or a pattern with `*`; else all.")
]


def takes_filter(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command of a `where` every option that says which calls are meant."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        command(where=filter_of(**{name: given.pop(name) for name in _FILTER}), **given)

    own = inspect.signature(command, eval_str=True).parameters
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _FILTER.items()
    ]
    kept = [parameter for name, parameter in own.items() if name != "where"]
    every = [*options, *(part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in kept)]
    cast("Any", wrapped).__signature__ = inspect.Signature(every)
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return wrapped


def filter_of(
    *,
    failed: bool | None = None,
    since: str | None = None,
    until: str | None = None,
    contract: str | None = None,
    **parts: str | None,
) -> Filter:
    """Which calls are meant by what was written.

    Raises:
        UsageError: a time cannot be read, or the window ends before it begins.
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
    return Filter(since=begin, until=end, contract=contract, outcome=outcome, **named)


def hash_pattern(text: str) -> str:
    """A hash, of which the beginning is enough."""
    return text if not text or "*" in text else f"{text}*"


# --- the store ------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(chosen: Chosen, audit: str | None) -> Generator[Store]:
    """The store of a log that is there; reading makes none."""
    from callpact.audit.auditing import folder_of, open_store

    table, base = audit_table(chosen)
    where = audit or (None if table.folder is None else str(base / table.folder))
    folder = folder_of(where)
    try:
        is_there = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        fail(f"the audit log in '{folder}' cannot be read: {error.strerror}")
    if not is_there:
        if audit is None:
            fail(f"nothing is on record yet in '{folder}'; `callpact call` and `serve` write it")
        fail(f"there is no audit log in '{folder}'; name the folder that calls were recorded to")
    store = open_store(where)
    try:
        yield store
    finally:
        store.close()


def pages_of(
    store: Store, where: Filter, limit: int | None, *, with_payloads: bool = False
) -> Iterator[list[Record]]:
    """Pages of records, the newest first."""
    before: tuple[int, str] | None = None
    left = sys.maxsize if limit is None else limit
    while left > 0:
        page = store.log(where, limit=min(left, _PAGE), before=before, with_payloads=with_payloads)
        if not page:
            return
        yield page
        left -= len(page)
        before = (page[-1].at, page[-1].id)


def records_of(store: Store, where: Filter) -> Iterator[Record]:
    """As many as a report takes, and one more, which tells it that there are more."""
    return chain.from_iterable(pages_of(store, where, MAX_ROWS + 1, with_payloads=True))


def recent_of(store: Store, where: Filter) -> list[Record]:
    """What began so late that it may have been recorded just now."""
    since = int(now_ms()) - LATE_MS
    if where.since is not None:
        since = max(since, where.since)
    return store.log(replace(where, since=since), limit=MAX_ROWS)


def find_record(store: Store, id: str) -> Record:
    """One record, by its id or a part of it: ids of one process begin alike, and end apart."""
    if (record := store.find(id)) is not None:
        return record
    found: list[str] = []
    for page in pages_of(store, Filter(), MAX_SEARCHED):
        found += [record.id for record in page if has_id(record, id)]
        if len(found) > 3:
            break
    if len(found) > 1:
        few = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        fail(f"'{id}' begins or ends several ids: {few}; write more of it")
    record = store.find(found[0]) if found else None
    if record is None:
        fail(f"there is no call '{id}' on record; `callpact audit log` tells the ids")
    return record


def tell_nothing(store: Store) -> None:
    """Say that no call fits; a log without any is an error, as the wrong one may be asked."""
    if not store.log(Filter(), limit=1):
        fail("nothing is on record yet; `callpact call` and `callpact serve` write it")
    err.print("no call on record fits", style="dim")
