"""The queries of a store and the types of their results, for both engines.

Times are epoch milliseconds; every list is bounded. In filters and groups, a missing field (no
caller, no version) is the empty text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from callpact.audit.record import Record
from callpact.errors import CallpactError

MAX_ROWS = 10_000
"""The most rows that one query of the audit log returns."""
HOUR = 3_600_000
DAY = 24 * HOUR

GroupBy = Literal[
    "tool", "namespace", "caller", "client", "gate", "code", "key", "version", "via", "hour"
]


class Filter(Struct, frozen=True):
    """Selects the calls that match every given field. Texts with `*` are patterns."""

    since: int | None = None
    until: int | None = None
    tool: str | None = None
    namespace: str | None = None
    caller: str | None = None
    client: str | None = None
    gate: str | None = None
    code: str | None = None
    key: str | None = None
    version: str | None = None
    contract: str | None = None
    via: str | None = None
    outcome: Literal["ok", "failed"] | None = None

    def fits(self, record: Record) -> bool:
        """True if a record matches."""
        if self.since is not None and record.at < self.since:
            return False
        if self.until is not None and record.at >= self.until:
            return False
        if self.outcome is not None and record.is_error != (self.outcome == "failed"):
            return False
        return all(_matches(getattr(record, name), getattr(self, name)) for name in TEXTS)


TEXTS = (
    *("tool", "namespace", "caller", "client", "gate", "code", "key", "version", "contract", "via"),
)
"""The parts of a filter that compare texts."""


def _matches(value: str | None, wanted: str | None) -> bool:
    if wanted is None or "*" not in wanted:
        return wanted is None or (value or "") == wanted
    pattern = ".*".join(map(re.escape, wanted.split("*")))
    return re.fullmatch(pattern, value or "", re.DOTALL) is not None


class Rate(Struct, frozen=True):
    """Outcomes and durations of a group of calls."""

    group: str
    calls: int
    failed: int
    rejected: int
    """Stopped before the handler: at `find`, `access` or `input`."""
    warned: int
    """Results with warnings."""
    p50: float = 0
    p95: float = 0
    p99: float = 0
    """Percentiles of the duration in milliseconds, exact."""

    @property
    def rate(self) -> float:
        """The share that failed; 0 without calls."""
        return self.failed / self.calls if self.calls else 0.0


class Cause(Struct, frozen=True):
    """One error key of a tool, and how many of the tool's calls failed with it."""

    tool: str
    key: str
    message: str
    """The message of the latest such call."""
    calls: int
    of: int
    """All calls of the tool in the window, including those with a result."""
    first: int
    last: int
    lowest: str = ""
    """The first and the last message in the order of their texts: they are equal if all are."""
    highest: str = ""

    @property
    def rate(self) -> float:
        """The share of all calls; 0 without calls."""
        return self.calls / self.of if self.of else 0.0


class Trend(Struct, frozen=True):
    """The number of calls of each group over time, in consecutive equal spans."""

    begin: int
    span: int
    """Milliseconds: whole hours, or whole days."""
    counts: dict[str, list[int]]


class Span(Struct, frozen=True):
    """The number of calls, and when the first and the last began."""

    calls: int
    first: int
    last: int


class Noted(Struct, frozen=True):
    """A rule at a place in a tool's inputs or outputs, and the number of calls that broke it."""

    tool: str
    version: str | None
    kind: str
    """issue, warning or change."""
    code: str
    path: str
    """With `*` for indexes."""
    calls: int
    first: int
    last: int


class Step(Struct, frozen=True):
    """A call near a refused one, with the fields that a retry chain needs."""

    at: int
    id: str
    tool: str
    caller: str | None
    client: str
    gate: str | None


class Stored(Struct, frozen=True):
    """A unit of retention: a file, or the partition of a day."""

    name: str
    first: int
    last: int
    size: int


class Moved(Struct, frozen=True):
    """The stored position in each segment of a journal: before records are added, and after."""

    before: Mapping[str, int]
    after: Mapping[str, int]


class Overtaken(CallpactError):
    """Another process has added these lines of the journal; nothing was added."""


class Store(Protocol):
    """Keeps records and answers queries over them. Used from one thread at a time.

    Raises:
        UsageError: by all methods, if the store cannot be used; nothing is written then.
    """

    @property
    def is_eager(self) -> bool:
        """True if records are added as they come; False if they are added in batches."""
        ...

    @property
    def damaged(self) -> Mapping[str, str]:
        """Parts that could not be read and are missing from results, each with the reason."""
        ...

    @property
    def unread(self) -> int:
        """Bytes of the journal that the last query skipped because they exceed its limit."""
        ...

    def taken(self) -> dict[str, int]:
        """How many bytes of each segment of the journal are in the store."""
        ...

    def add(self, records: Sequence[Record], moved: Moved | None = None) -> int:
        """Add records and the new positions in one transaction; returns how many are new.

        A record that exists with the same id and time is skipped.

        Raises:
            Overtaken: `moved.before` differs from the stored positions.
        """
        ...

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of several with the same id the latest."""
        ...

    def ids_like(self, begin: str, end: str, *, limit: int = 4) -> list[str]:
        """Ids that begin and end with these texts, those of the latest calls first."""
        ...

    def log(
        self,
        where: Filter,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        with_payloads: bool = False,
    ) -> list[Record]:
        """Records, the newest first; `before` is the time and id of the last one of a page.

        Payloads have only their hashes, unless `with_payloads` is set.
        """
        ...

    def around(self, record: Record, *, within: int, limit: int) -> list[Record]:
        """Calls of the same caller, client and tool near a call, the earliest first, without payloads.

        `limit` applies to those up to the call, and again to those after it.
        """
        ...

    def near_refused(self, where: Filter, *, within: int, limit: int) -> list[Step]:
        """The latest calls refused for their input, and the calls of the same callers near them."""
        ...

    def span(self, where: Filter) -> Span | None:
        """The number of matching calls and their times; None without any."""
        ...

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """Rates by group, the largest first; an hour is named by its first millisecond."""
        ...

    def trend(self, where: Filter, by: GroupBy, *, spans: int = 24) -> Trend:
        """The number of calls of each group over time, in at most this number of spans.

        Without `since`, the spans are hours up to the latest call.
        """
        ...

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, with the number of all calls of their tools in the window.

        If the filter names a caller, version, contract or door, all calls are those that match it.
        """
        ...

    def notes(self, where: Filter, *, limit: int = 1_000, of_outputs: bool = False) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first.

        `of_outputs` leaves out calls without an output.
        """
        ...

    def stored(self) -> list[Stored]:
        """The parts that retention removes, the oldest first."""
        ...

    def retention(self, *, older_than: int | None = None, larger_than: int | None = None) -> int:
        """Remove parts whose newest record is before a time, and the oldest beyond a size.

        Returns the number of removed records.
        """
        ...

    def tidy(self) -> None:
        """Merge small parts, if that is due."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the records."""
        ...

    def close(self) -> None:
        """Close files and connections, without waiting for a running query."""
        ...
