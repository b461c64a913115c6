"""The questions that a store answers, and the types of its answers, whichever engine is behind it.

Times are epoch milliseconds; every list is bounded. In filters and groups, a field that a record
does not have (no caller, no version) is the empty text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from callpact.audit.record import Record
from callpact.errors import CallpactError

MAX_ROWS = 10_000
"""Rows that one question to the audit log gives at most."""
HOUR = 3_600_000
DAY = 24 * HOUR

GroupBy = Literal[
    "tool", "namespace", "caller", "client", "gate", "code", "key", "version", "via", "hour"
]


class Filter(Struct, frozen=True):
    """Which calls: all that fit every part that is given. Texts with `*` are patterns."""

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
        """True if a call is meant."""
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
    """How a group of calls went."""

    group: str
    calls: int
    failed: int
    rejected: int
    """Stopped before anything was run: at `find`, `access` or `input`."""
    warned: int
    """Results with warnings."""
    p50: float = 0
    p95: float = 0
    p99: float = 0
    """Milliseconds that this share of the calls did not exceed, exactly."""

    @property
    def rate(self) -> float:
        """The share that failed; 0 for no calls."""
        return self.failed / self.calls if self.calls else 0.0


class Cause(Struct, frozen=True):
    """One error key of a tool, and how often it was the cause, of all calls of the tool."""

    tool: str
    key: str
    message: str
    """That of the latest such call."""
    calls: int
    of: int
    """All calls of the tool in the window, also those that gave a result."""
    first: int
    last: int

    @property
    def rate(self) -> float:
        """The share of all calls; 0 for no calls."""
        return self.calls / self.of if self.of else 0.0


class Trend(Struct, frozen=True):
    """How many calls each group had over time, in equal spans that follow each other."""

    begin: int
    span: int
    """Milliseconds: whole hours, or whole days."""
    counts: dict[str, list[int]]


class Span(Struct, frozen=True):
    """How many calls there are, and when the first and the last began."""

    calls: int
    first: int
    last: int


class Noted(Struct, frozen=True):
    """A rule at a place in a tool's inputs or outputs, and how many calls it was noted of."""

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
    """A call near a refused one: enough to follow a chain of tries."""

    at: int
    id: str
    tool: str
    caller: str | None
    client: str
    gate: str | None


class Stored(Struct, frozen=True):
    """A part of a store that retention removes as a whole: a file, or the partition of a day."""

    name: str
    first: int
    last: int
    size: int


class Moved(Struct, frozen=True):
    """How far each segment of a journal is in the store: before records are added, and after."""

    before: Mapping[str, int]
    after: Mapping[str, int]


class Overtaken(CallpactError):
    """Another process has added these lines of the journal; nothing was added."""


class Store(Protocol):
    """Keeps records and answers for them. Used from one thread at a time.

    Raises:
        UsageError: by all methods, if it cannot be used; what was to be written then is not.
    """

    @property
    def is_eager(self) -> bool:
        """True if records are added as they come; False if many are added at once."""
        ...

    @property
    def damaged(self) -> Mapping[str, str]:
        """Parts that could not be read and were left out of answers, each with the reason."""
        ...

    @property
    def unread(self) -> int:
        """Bytes of the journal that were left out of the last answer: more than one reads."""
        ...

    def taken(self) -> dict[str, int]:
        """How many bytes of each segment of the journal are in the store."""
        ...

    def add(self, records: Sequence[Record], moved: Moved | None = None) -> int:
        """Keep records and how far their journal is read, both or nothing; how many are new.

        A record that is there with the same id and time is passed over.

        Raises:
            Overtaken: `moved.before` is not what the store has.
        """
        ...

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of those with the same id the latest."""
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

        Of inputs and outputs they have the hashes alone, unless `with_payloads` asks for more.
        """
        ...

    def around(self, record: Record, *, within: int, limit: int) -> list[Record]:
        """Calls of the same caller, client and tool near a call, the earliest first, without payloads.

        `limit` is for those up to the call, and again for those after it.
        """
        ...

    def near_refused(self, where: Filter, *, within: int, limit: int) -> list[Step]:
        """The latest calls refused for their input, and the calls of the same callers near them."""
        ...

    def span(self, where: Filter) -> Span | None:
        """How many calls fit, and when; None if there are none."""
        ...

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first; an hour is named by its first millisecond."""
        ...

    def trend(self, where: Filter, by: GroupBy, *, spans: int = 24) -> Trend:
        """How many calls each group had over time, in at most this number of spans.

        A filter without `since` is answered for as many hours up to the latest call.
        """
        ...

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window.

        All calls are those of the same caller, version, contract and door, if the filter names them.
        """
        ...

    def notes(self, where: Filter, *, limit: int = 1_000, of_answers: bool = False) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first.

        `of_answers` leaves out calls without an answer.
        """
        ...

    def stored(self) -> list[Stored]:
        """The parts that retention removes, the oldest first."""
        ...

    def retention(self, *, older_than: int | None = None, larger_than: int | None = None) -> int:
        """Remove parts whose newest record is before a time, and the oldest beyond a size.

        Gives how many records went.
        """
        ...

    def tidy(self) -> None:
        """Merge what is small, as far as that is due."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the records."""
        ...

    def close(self) -> None:
        """Let go of the files or connections; waits for nothing that may not end."""
        ...
