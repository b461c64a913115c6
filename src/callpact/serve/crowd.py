"""How many calls may run at one time: of one tool, for one caller, and for one caller of one tool.

What is too much is refused before it runs, by the line of every call: it is on record, too. A
caller may have as many calls of a tool as there is room for others: at most half, so that no caller
can lock out another.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Hashable
from typing import TypeVar

from callpact.tool import Disabled

CALLS_PER_TOOL = 1_000
"""Calls of one tool that run at one time over a door; of several callers none gets more than half."""
CALLS_PER_CALLER = 1_000
"""Calls of one caller that run at one time over a door. Without a token, callers are told apart by
their address; over stdio there is one."""

KeyT = TypeVar("KeyT", bound=Hashable)


class Crowd:
    """The calls that run."""

    def __init__(self, per_tool: int, per_caller: int) -> None:
        self._per_tool = per_tool
        self._per_caller = per_caller
        self._tools: Counter[str] = Counter()
        self._callers: Counter[str | None] = Counter()
        self._shares: Counter[tuple[str, str]] = Counter()

    @contextlib.contextmanager
    def entered(self, tool_id: str, caller: str | None) -> Generator[Disabled | None]:
        """Count a call while it runs; gives why it must not, if there are too many.

        Without a caller the door has one alone, which needs to leave no room.
        """
        if self._tools[tool_id] >= self._per_tool:
            yield _too_many(f"{self._per_tool:,} calls of '{tool_id}' run already")
            return
        if self._callers[caller] >= self._per_caller:
            yield _too_many(f"{self._per_caller:,} calls of yours run already")
            return
        share = None if caller is None else (tool_id, caller)
        free = self._per_tool - self._tools[tool_id]
        if share is not None and 0 < self._shares[share] >= free:
            yield _too_many(f"{self._shares[share]:,} calls of '{tool_id}' of yours run already")
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(_counted(self._tools, tool_id))
            stack.enter_context(_counted(self._callers, caller))
            if share is not None:
                stack.enter_context(_counted(self._shares, share))
            yield None


@contextlib.contextmanager
def _counted(counts: Counter[KeyT], key: KeyT) -> Generator[None]:
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


def _too_many(reason: str) -> Disabled:
    return Disabled("overloaded", f"{reason}; try again when one of them has ended")
