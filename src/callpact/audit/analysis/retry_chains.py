"""Retry chains: refused calls of one caller and tool, and the call that succeeded after them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from callpact.audit.record import REJECTING, Record
from callpact.audit.store import Filter, Step, Store

WITHIN_MS = 600_000
"""How far apart the calls of one chain may be."""
MAX_CHAIN = 1_000
"""Calls of one caller and tool that are read around a call."""
MAX_REFUSED = 50
"""Refused calls that are followed to see whether they were repaired: the latest."""


class Repairs(Struct, frozen=True):
    """How callers continued after the latest calls that were refused for their input."""

    chains: int
    """Chains of refused calls, of any length."""
    repaired: int
    """Chains that end with an admitted call of the same caller and tool."""
    tries: int
    """Refused calls in the repaired chains."""

    @property
    def share(self) -> float:
        """The repaired share of all chains; 0 without chains."""
        return self.repaired / self.chains if self.chains else 0.0


def repairs_of(store: Store, where: Filter) -> Repairs:
    """How often callers repair refused calls, by the latest refused calls."""
    callers: dict[tuple[str | None, ...], list[Step]] = {}
    for step in store.near_refused(where, within=WITHIN_MS, limit=MAX_REFUSED):
        callers.setdefault((step.tool, step.caller, step.client), []).append(step)
    chains = repaired = tries = 0
    for steps in callers.values():
        for chain in _chains(steps):
            chains += 1
            if chain[-1].gate not in REJECTING:
                repaired += 1
                tries += len(chain) - 1
    return Repairs(chains, repaired, tries)


def _chains(steps: Sequence[Step]) -> list[list[Step]]:
    """Runs of refused calls, each with the call that follows it within `WITHIN_MS`."""
    chains: list[list[Step]] = []
    chain: list[Step] = []
    for step in steps:
        if chain and step.at - chain[-1].at > WITHIN_MS:
            chains.append(chain)
            chain = []
        if step.gate in REJECTING:
            chain.append(step)
        elif chain:
            chains.append([*chain, step])
            chain = []
    if chain:
        chains.append(chain)
    return [each for each in chains if any(step.gate == "input" for step in each)]


def retry_chain(store: Store, record: Record) -> tuple[Record, ...]:
    """The retry chain around a call: refused calls of the same caller and tool, up to the next one.

    The earliest first, the call itself included; only the call if no refused call precedes it and,
    if it was refused, none follows it. Callers without a name are distinguished by their client.
    """
    calls = store.around(record, within=WITHIN_MS, limit=MAX_CHAIN // 2)
    here = next((n for n, r in enumerate(calls) if (r.id, r.at) == (record.id, record.at)), None)
    if here is None:
        return (record,)
    first = last = here
    while first > 0 and calls[first - 1].is_rejected:
        first -= 1
    while last + 1 < len(calls) and calls[last].is_rejected:
        last += 1
    return tuple(calls[first : last + 1])
