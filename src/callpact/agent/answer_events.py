"""Events of an agent's run, and the emitter that passes them to the handlers.

Types keep the spelling of the reference implementation (`agent.output_schema_retry`,
`reliability.retried`, …). They hold previews of a model's texts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from msgspec import Struct

PREVIEW = 200
"""Characters of a model's text that an event holds, unless whole texts are asked for."""

_log = logging.getLogger("callpact.agent")


class AnswerEvent(Struct, frozen=True):
    """One thing that happened in a run. `at` is epoch milliseconds."""

    type: str
    payload: dict[str, Any]
    run_id: str = ""
    iteration: int = 0
    at: int = 0


EventHandler = Callable[[AnswerEvent], None]
"""A plain function. What it raises is logged, and disturbs nothing."""


class Emitter:
    """Passes the events of one run to the handlers of its agent."""

    __slots__ = ("_handlers", "is_whole", "iteration", "run_id")

    def __init__(
        self, handlers: Iterable[EventHandler], run_id: str = "", *, is_whole: bool = False
    ) -> None:
        self._handlers = tuple(handlers)
        self.run_id = run_id
        self.iteration = 0
        self.is_whole = is_whole

    def emit(self, type: str, /, **payload: Any) -> None:
        """Call every handler with an event; payload fields that are None are left out."""
        if not self._handlers:
            return
        fields = {key: value for key, value in payload.items() if value is not None}
        event = AnswerEvent(type, fields, self.run_id, self.iteration, time_ns() // 1_000_000)
        for handler in self._handlers:
            try:
                handler(event)
            except Exception:  # noqa: BLE001 - boundary: a handler never disturbs a run
                _log.exception("a handler of events failed on %s", type)

    def shown(self, text: str) -> str:
        """A model's text as events hold it: a preview, or the whole."""
        return text if self.is_whole else text[:PREVIEW]
