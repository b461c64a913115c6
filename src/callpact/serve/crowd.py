"""How many calls may run at one time: of one tool, and for one caller.

What is too much is refused before it runs, by the line of every call: it is on record, too.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator

from callpact.tool import Disabled

CALLS_PER_TOOL = 1_000
"""Calls of one tool that run at one time over a door."""
CALLS_PER_CALLER = 1_000
"""Calls of one caller that run at one time over a door; those without an identity are one caller."""


class Crowd:
    """The calls that run."""

    def __init__(self, per_tool: int, per_caller: int) -> None:
        self._per_tool = per_tool
        self._per_caller = per_caller
        self._tools: Counter[str] = Counter()
        self._callers: Counter[str | None] = Counter()

    @contextlib.contextmanager
    def entered(self, tool_id: str, caller: str | None) -> Generator[Disabled | None]:
        """Count a call while it runs; gives why it must not, if there are too many."""
        if self._tools[tool_id] >= self._per_tool:
            yield _too_many(f"{self._per_tool:,} calls of '{tool_id}' run already")
            return
        if self._callers[caller] >= self._per_caller:
            yield _too_many(f"{self._per_caller:,} calls of yours run already")
            return
        self._tools[tool_id] += 1
        self._callers[caller] += 1
        try:
            yield None
        finally:
            _leave(self._tools, tool_id)
            _leave(self._callers, caller)


def _leave(counted: Counter[str] | Counter[str | None], name: str | None) -> None:
    counted[name] -= 1  # pyright: ignore[reportArgumentType] - of either kind
    if not counted[name]:  # pyright: ignore[reportArgumentType] - as above
        del counted[name]  # pyright: ignore[reportArgumentType] - as above


def _too_many(reason: str) -> Disabled:
    return Disabled("overloaded", f"{reason}; try again when one of them has ended")
