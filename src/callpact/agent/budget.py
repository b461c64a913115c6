"""Limits of a run (iterations, tokens, cost, time, refused calls of a tool), and its spending."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from callpact.agent.models.model import Usage
from callpact.errors import LimitReached, UsageError

MAX_ITERATIONS = 20
"""Requests to the model in one run, re-asks included; `.limits(iterations=…)` sets another number."""
MAX_REJECTIONS = 5
"""Calls of one tool that are refused one after another before a run gives it up."""
MAX_TOOL_USES = 64
"""Tool calls in one reply of a model; further ones are refused."""
MAX_AT_ONCE = 8
"""Calls of one reply that run at one time."""
MAX_OUTPUT_CHARACTERS = 100_000
"""Characters of a tool's output that a model is given; a longer one is replaced by an outline."""
MAX_FILES = 32
"""Images and other files in one conversation, history included."""
MAX_FILE_BYTES = 16 << 20
"""Bytes of all files of one conversation, which a checkpoint has to hold."""
MAX_HISTORY = 2_000
"""Messages that a run takes as its history."""
TOOL_SECONDS = 60.0
"""Seconds for a call by an agent, unless the tool has a timeout of its own."""


class RunLimits(Struct, frozen=True):
    """The limits of a run; None for no limit."""

    iterations: int = MAX_ITERATIONS
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    rejections: int = MAX_REJECTIONS


DEFAULT_LIMITS = RunLimits()


class Spending:
    """Tokens, requests and tool calls of a run, including those of the runs that its tools start.

    A run that starts inside another one has that one's spending as `above`: both are counted, and
    the limits of both apply.
    """

    __slots__ = ("above", "limits", "requests", "tool_calls", "usage")

    def __init__(
        self, limits: RunLimits, usage: Usage, requests: int = 0, tool_calls: int = 0
    ) -> None:
        self.limits = limits
        self.above = _running.get()
        self.usage = usage
        self.requests = requests
        self.tool_calls = tool_calls

    def add(self, usage: Usage = Usage(), *, requests: int = 0, tool_calls: int = 0) -> None:  # noqa: B008 - frozen
        """Add to the spending of this run and of the runs around it."""
        for run in self._line():
            run.usage += usage
            run.requests += requests
            run.tool_calls += tool_calls

    def check(self) -> None:
        """Check the limits of tokens and cost.

        Raises:
            LimitReached: this run, or one around it, has reached a limit.
        """
        for run in self._line():
            limits, usage = run.limits, run.usage
            if limits.tokens is not None and usage.tokens >= limits.tokens:
                raise LimitReached("tokens", limits.tokens)
            if limits.cost is not None and (usage.cost or 0.0) >= limits.cost:
                raise LimitReached("cost", limits.cost)

    @contextmanager
    def running(self) -> Generator[None]:
        """Make this run the outer run of those that start in this context, its tasks and threads."""
        token = _running.set(self)
        try:
            yield
        finally:
            with suppress(ValueError):  # The garbage collector may close a run in another context.
                _running.reset(token)

    def _line(self) -> Iterator[Spending]:
        run: Spending | None = self
        while run is not None:
            yield run
            run = run.above


_running: ContextVar[Spending | None] = ContextVar("_running", default=None)


def declared_limits(**given: Any) -> RunLimits:
    """Check limits and return them.

    Raises:
        UsageError: one is not a positive number.
    """
    for name, value in given.items():
        if value is None and name not in {"iterations", "rejections"}:
            continue
        whole = name in {"iterations", "tokens", "rejections"}
        kinds = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
            what = "a positive whole number" if whole else "a positive number"
            raise UsageError(f"the limit of {name} must be {what}, got {value!r:.100}")
    return RunLimits(**given)
