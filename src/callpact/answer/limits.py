"""What a run may cost: iterations, tokens, money, time, and refused calls of one tool."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from callpact.errors import UsageError

MAX_ITERATIONS = 20
"""Requests to the model in one run, unless `.limits(iterations=…)` says otherwise; re-asks count."""
MAX_REJECTIONS = 5
"""Calls of one tool that are refused one after another before a run gives it up."""
MAX_TOOL_USES = 64
"""Tools that a model may want called in one reply; what is more is refused."""
MAX_AT_ONCE = 8
"""Calls of one reply that run at one time."""
MAX_RESULT_CHARACTERS = 100_000
"""Characters of a tool's result that a model is given; of a longer one it gets an outline."""
TOOL_SECONDS = 60.0
"""Seconds that a call gets from an agent, unless the tool says otherwise."""


class Limits(Struct, frozen=True):
    """None for no limit."""

    iterations: int = MAX_ITERATIONS
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    rejections: int = MAX_REJECTIONS


DEFAULT_LIMITS = Limits()


def declared_limits(**given: Any) -> Limits:
    """Limits that can be kept.

    Raises:
        UsageError: one is no positive number.
    """
    for name, value in given.items():
        if value is None and name not in {"iterations", "rejections"}:
            continue
        whole = name in {"iterations", "tokens", "rejections"}
        kinds = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
            what = "a positive whole number" if whole else "a positive number"
            raise UsageError(f"the limit of {name} must be {what}, got {value!r:.100}")
    return Limits(**given)
