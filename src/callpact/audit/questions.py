"""The questions that the audit log answers, for programs: all that `callpact audit` tells.

`open_store` gives a store, whose `log`, `find`, `rates`, `trend` and `causes` answer what was called
and how it went. Here is what puts it before contracts, and before itself. Nothing is called, and
every answer is bounded. A store is used from one thread at a time, and closed at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.advice import Advice, advise
from callpact.audit.auditing import open_store
from callpact.audit.chains import Repairs, repairs_of, retry_chain
from callpact.audit.health import Health, health
from callpact.audit.namesakes import Namesakes
from callpact.audit.reading import pages_of, records_of, waiting
from callpact.audit.record import Record
from callpact.audit.replay import Replay, by_name, replay
from callpact.audit.store import Cause, Filter, GroupBy, Rate, Store
from callpact.audit.surveys import drift_of
from callpact.tool import Tool

__all__ = [
    "Comparison",
    "Filter",
    "Health",
    "Record",
    "Repairs",
    "Store",
    "advice_of",
    "compare",
    "drift_of",
    "health",
    "open_store",
    "pages_of",
    "repairs_of",
    "replay_of",
    "retry_chain",
    "waiting",
]


class Comparison(Struct, frozen=True):
    """How calls went before something, and after it; the commonest groups and causes first."""

    before: list[Rate]
    after: list[Rate]
    causes_before: list[Cause]
    causes_after: list[Cause]


def compare(
    store: Store, before: Filter, after: Filter, *, by: GroupBy = "tool", limit: int = 100
) -> Comparison:
    """Two sets of calls side by side: of two versions, contracts, windows or callers.

    Raises:
        UsageError: the log cannot be read.
    """
    return Comparison(
        store.rates(before, by)[:limit],
        store.rates(after, by)[:limit],
        store.causes(before, limit=limit),
        store.causes(after, limit=limit),
    )


def advice_of(store: Store, tool: Tool, where: Filter | None = None) -> Advice:
    """Where the input contract of a tool is too strict for what callers send.

    Calls under an id that is an alias now are among them.

    Raises:
        UsageError: the log cannot be read.
    """
    meant = replace(where or Filter(), tool=None)
    return advise(Namesakes(store, tool).records(meant), tool)


def replay_of(store: Store, tools: Iterable[Tool], where: Filter | None = None) -> Replay:
    """Which recorded calls the contracts as they are now would refuse or let in. Nothing is run.

    An alias or a wire name leads to its tool, in records and in `where`.

    Raises:
        UsageError: the log cannot be read.
    """
    meant, named = where or Filter(), by_name(tools)
    tool = named.get(meant.tool or "")
    if tool is None:
        return replay(records_of(store, meant), named)
    return replay(Namesakes(store, tool).records(replace(meant, tool=None)), named)
