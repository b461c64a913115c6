"""What a tool logs while it is called: `context.logger`, whose lines are also told to observers.

Lines go to the logger `callpact.tool.<id>` like any others; the first of those from INFO on are
kept with their call, whatever the process does with logs. Nothing here knows where they are kept.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from msgspec import Struct

MAX_KEPT_LINES = 50
"""Lines of one call that are kept with it: the first."""
MAX_KEPT_TEXT = 1_000
"""Characters of such a line."""


class LogLine(Struct, frozen=True, gc=False):
    """One line that a tool logged."""

    level: str
    """info, warning, error or critical."""
    message: str


class CallLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of a tool for one call: what it logs has the ids of both."""

    def __init__(self, tool_id: str, call_id: str, kept: list[LogLine]) -> None:
        logger = logging.getLogger(f"callpact.tool.{tool_id}")
        super().__init__(logger, {"tool_id": tool_id, "call_id": call_id})
        self._kept = kept

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line, and keep it with the call."""
        if level >= logging.INFO and len(self._kept) < MAX_KEPT_LINES:
            name = logging.getLevelName(level).lower()
            self._kept.append(LogLine(name, _text(level, msg, args)[:MAX_KEPT_TEXT]))
        # One more: this method is not where it was logged.
        super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Both ids beside what the tool says itself."""
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


def _text(level: int, msg: object, args: tuple[object, ...]) -> str:
    try:
        return logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
    except Exception:  # noqa: BLE001 - boundary: whatever a tool logs, its call goes on
        return "a line that cannot be written out"
