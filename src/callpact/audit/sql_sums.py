"""What is counted of calls, while rows are read and summed up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec import Struct

from callpact.audit import sql_rows as rows
from callpact.audit.histogram import FIRST, LAST, histogram_of, quantiles
from callpact.audit.store import Rate


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


class Sum:
    """What is counted of a group of calls."""

    __slots__ = ("calls", "failed", "histogram", "rejected", "warned")

    def __init__(self) -> None:
        self.calls = self.failed = self.rejected = self.warned = self.histogram = 0

    def add(self, other: Sum, times: int = 1) -> None:
        """Count another group with this one; with `times=-1` take it off."""
        self.calls += times * other.calls
        self.failed += times * other.failed
        self.rejected += times * other.rejected
        self.warned += times * other.warned
        self.histogram += times * other.histogram

    def rate_of(self, group: str) -> Rate:
        """How the calls of this group went."""
        return Rate(
            group,
            calls=self.calls,
            failed=self.failed,
            rejected=self.rejected,
            warned=self.warned,
            **dict(
                zip(("p50", "p95", "p99"), quantiles(self.histogram, 0.5, 0.95, 0.99), strict=True)
            ),
        )


class Tally(defaultdict[str, Counter[int]]):
    """Calls that are counted one by one: by group and by mark."""

    def __init__(self) -> None:
        super().__init__(Counter)

    def sums(self) -> Iterator[tuple[str, Sum]]:
        """What is counted of each group."""
        for group, marks in self.items():
            part, buckets = Sum(), [0] * (1 + rows.bucket_in(max(marks)))
            for mark, calls in marks.items():
                part.calls += calls
                if mark & rows.IS_FAILED:
                    part.failed += calls
                    part.rejected += calls if mark & rows.IS_REJECTED else 0
                elif mark & rows.IS_WARNED:
                    part.warned += calls
                buckets[rows.bucket_in(mark)] += calls
            part.histogram = histogram_of(buckets)
            yield group, part


class Times:
    """How often something was, and when for the first and the last time."""

    __slots__ = ("calls", "first", "last")

    def __init__(self) -> None:
        self.calls, self.first, self.last = 0, LAST, FIRST

    def add(self, calls: int, first: int, last: int) -> None:
        """Count more."""
        self.calls += calls
        self.first = min(self.first, first)
        self.last = max(self.last, last)
