"""Events of an agent's run, and the emitter that calls the handlers with them.

Event types keep the spelling of the reference implementation (`agent.output_schema_retry`,
`reliability.retried`, …). Events hold previews of a model's texts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from msgspec import Struct

PREVIEW = 200
"""Characters of a model's text in an event, unless `whole_texts` is set."""

_log = logging.getLogger("callpact.agent")


class AnswerEvent(Struct, frozen=True):
    """One thing that happened in a run. `at` is epoch milliseconds."""

    type: str
    payload: dict[str, Any]
    run_id: str = ""
    iteration: int = 0
    at: int = 0


EventHandler = Callable[[AnswerEvent], None]
"""A plain function; its exceptions are logged and do not reach the run."""


class Emitter:
    """Calls the event handlers of an agent with the events of one run."""

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
        """Cut a model's text to a preview, unless events hold whole texts."""
        return text if self.is_whole else text[:PREVIEW]
