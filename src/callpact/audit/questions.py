"""Questions that put the audit log before contracts, and before itself, for programs.

Nothing is called, and every answer is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.advice import Advice, advise
from callpact.audit.namesakes import Namesakes
from callpact.audit.reading import records_of
from callpact.audit.replay import Replay, by_name, replay
from callpact.audit.store import Cause, Filter, GroupBy, Rate, Store
from callpact.tool import Tool


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
