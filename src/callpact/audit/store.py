"""What keeps records: the questions that a store answers, whatever engine is behind it.

`sqlite.py` and `postgres.py` are the two there are; the same tests run against both. Times are epoch
milliseconds; every list is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from callpact.audit.record import Record

MAX_ROWS = 10_000
"""Rows that one question to the audit log gives at most."""

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
    """Milliseconds, from histograms: within a few per cent."""

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


class Store(Protocol):
    """Keeps records and answers for them. Used from one thread at a time."""

    def add(self, records: Sequence[Record]) -> int:
        """Keep records; one that is there with the same id and time is passed over.

        Gives how many are new.
        """
        ...

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of those with the same id the latest."""
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

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """How calls went, by group, the largest first; from hourly rollups where that is exact."""
        ...

    def trend(self, where: Filter, by: GroupBy, *, spans: int = 24) -> Trend:
        """How many calls each group had over time, in so many spans at most.

        A filter that does not say since when is answered for as many hours up to the latest call.
        """
        ...

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window."""
        ...

    def retention(self, *, older_than: int | None = None, larger_than: int | None = None) -> int:
        """Let go of records before a time, or of the oldest until it is small enough; how many."""
        ...

    def close(self) -> None:
        """Let go of the files or connections."""
        ...
