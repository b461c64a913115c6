"""Retry chains: calls that a caller was refused, and the one that it repaired them by."""

from __future__ import annotations

from callpact.audit.record import Record
from callpact.audit.store import Filter, Store

WITHIN_MS = 600_000
"""How far apart the calls of one chain may be from the one that is asked about."""
MAX_CHAIN = 1_000
"""Calls of one caller and tool that are looked at around it."""


def retry_chain(store: Store, record: Record) -> tuple[Record, ...]:
    """The calls of the same caller and tool around one: refused ones, up to what followed them.

    The earliest first, the call itself among them; it alone if nothing was refused before it and,
    if it was refused, nothing came after it.
    """
    around = Filter(
        since=record.at - WITHIN_MS,
        until=record.at + WITHIN_MS,
        tool=record.tool,
        caller=record.caller or "",
    )
    near = store.log(around, limit=MAX_CHAIN)
    # Patterns and the empty text match more than what is meant.
    calls = [r for r in reversed(near) if (r.tool, r.caller) == (record.tool, record.caller)]
    here = next((number for number, r in enumerate(calls) if r.id == record.id), None)
    if here is None:
        return (record,)
    first = last = here
    while first > 0 and calls[first - 1].is_rejected:
        first -= 1
    while last + 1 < len(calls) and calls[last].is_rejected:
        last += 1
    return tuple(calls[first : last + 1])
