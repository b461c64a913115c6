"""Retry chains: calls that a caller was refused, and the one that it repaired them by."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.record import Record
from callpact.audit.store import Filter, Store

WITHIN_MS = 600_000
"""How far apart the calls of one chain may be from the one that is asked about."""
MAX_CHAIN = 1_000
"""Calls of one caller and tool that are looked at around it."""
MAX_REFUSED = 50
"""Refused calls of which it is told whether they were repaired: the latest."""


class Repairs(Struct, frozen=True):
    """What became of the latest calls that were refused for their input."""

    chains: int
    """How often somebody was refused, however many tries that took."""
    repaired: int
    """How often a call of the same caller and tool got through at last."""
    tries: int
    """Calls that were refused before those."""

    @property
    def share(self) -> float:
        """Of all chains; 0 for none."""
        return self.repaired / self.chains if self.chains else 0.0


def repairs_of(store: Store, where: Filter) -> Repairs:
    """Whether callers repair what is refused, by the latest calls that were."""
    seen: set[tuple[str, int]] = set()
    chains = repaired = tries = 0
    for record in store.log(replace(where, gate="input"), limit=MAX_REFUSED):
        if (record.id, record.at) in seen:
            continue
        *before, last = retry_chain(store, record)
        seen.update((each.id, each.at) for each in before)
        chains += 1
        if not last.is_rejected:
            repaired += 1
            tries += len(before)
    return Repairs(chains, repaired, tries)


def retry_chain(store: Store, record: Record) -> tuple[Record, ...]:
    """The calls of the same caller and tool around one: refused ones, up to what followed them.

    The earliest first, the call itself among them; it alone if nothing was refused before it and,
    if it was refused, nothing came after it. Of callers without a name the client tells them apart.
    """
    whose = Filter(tool=record.tool, caller=record.caller or "")
    until = record.at + 1
    before = store.log(
        replace(whose, since=record.at - WITHIN_MS, until=until), limit=MAX_CHAIN // 2
    )
    near = [*reversed(before), *_next(store, replace(whose, since=until))]
    # Patterns and the empty text match more than what is meant.
    calls = [r for r in near if _who(r) == _who(record)]
    here = next((number for number, r in enumerate(calls) if r.id == record.id), None)
    if here is None:
        return (record,)
    first = last = here
    while first > 0 and calls[first - 1].is_rejected:
        first -= 1
    while last + 1 < len(calls) and calls[last].is_rejected:
        last += 1
    return tuple(calls[first : last + 1])


def _next(store: Store, where: Filter) -> list[Record]:
    """The first calls after a time, the earliest first: a log begins with the last."""
    most, begin = MAX_CHAIN // 2, where.since or 0
    until = end = begin + WITHIN_MS
    while True:
        found = store.log(replace(where, until=until), limit=most)
        is_whole = len(found) < most
        if (is_whole and (found or until == end)) or end - begin <= 1:
            return found[::-1]
        # Too many, or too early for any.
        begin, end = (until, end) if is_whole else (begin, until)
        until = (begin + end + 1) // 2


def _who(record: Record) -> tuple[str | None, ...]:
    return record.tool, record.caller, record.client
