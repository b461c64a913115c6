"""What the runtime tells its observers: exactly one `CallFinished` per call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from callpact.envelope import ResponseEnvelope
from callpact.errors import CallError, OutputRejected, Rejected, UnknownTool


class CallFinished(Struct, frozen=True, gc=False):
    """One call, whatever became of it. `started` is epoch milliseconds, `duration` seconds."""

    call_id: str
    tool_id: str
    arguments: Any
    started: int
    duration: float
    envelope: ResponseEnvelope[Any] | None = None
    error: CallError | None = None
    identity: Any = None

    @property
    def is_error(self) -> bool:
        """True if the call gave no result."""
        return self.error is not None

    @property
    def gate(self) -> str | None:
        """Where the call was stopped: find, input, handler or output; None for a result."""
        if self.error is None:
            return None
        if isinstance(self.error, UnknownTool):
            return "find"
        if isinstance(self.error, Rejected):
            return "access" if self.error.code == "access_denied" else "input"
        return "output" if isinstance(self.error, OutputRejected) else "handler"


Observer = Callable[[CallFinished], None]
"""Sync, no I/O beyond one write. What it raises is logged and counted, never passed on."""
