"""The report to the observers of a runtime: exactly one `CallFinished` per call.

It never leaves the process, unlike the events of the call protocol (`events.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from callpact.context import Identity, LogLine
from callpact.envelope import ResponseEnvelope
from callpact.errors import CallError, OutputRejected, Rejected, UnknownTool
from callpact.tool import Policy, Tool

_ACCESS = ("access_denied", "not_confirmed")


class Crash(Struct, frozen=True, gc=False):
    """An unexpected exception of a handler, for observers only: its texts may hold secrets."""

    type: str
    """The name of its class, with the module: `KeyError`, `httpx.ConnectError`."""
    place: str
    """The innermost function outside of libraries: `module:function`."""
    message: str
    trace: tuple[str, ...] = ()
    """The traceback in the parts that `traceback` makes, the last ones."""


class CallFinished(Struct, frozen=True, gc=False):
    """One call and its result or error. `started` is epoch milliseconds, `duration` seconds.

    A subscription has no envelope of its own; `count` says how many it delivered.
    """

    call_id: str
    tool_id: str
    arguments: Any
    started: int
    duration: float
    envelope: ResponseEnvelope[Any] | None = None
    error: CallError | None = None
    identity: Identity | None = None
    parent_id: str | None = None
    count: int | None = None
    tool: Tool | None = None
    """The tool at the start of the call; None if no tool has this name."""
    via: str = ""
    """The door that received the call; empty for code of the same process."""
    policy: Policy | None = None
    """The caller's output policy; None for the contract's own."""
    client_name: str = ""
    """The name that the client program gives itself."""
    logs: Sequence[LogLine] = ()
    """The first lines that the tool logged."""
    refused: ResponseEnvelope[Any] | None = None
    """The output that the contract refused; only observers see it."""
    crash: Crash | None = None
    """The exception behind a `HandlerCrashed`; only observers see it."""

    @property
    def answer(self) -> ResponseEnvelope[Any] | None:
        """The output of the tool, delivered or refused."""
        return self.envelope if self.refused is None else self.refused

    @property
    def is_error(self) -> bool:
        """True if the call gave no result."""
        return self.error is not None

    @property
    def gate(self) -> str | None:
        """Where the call was stopped: find, access, input, handler or output; None for a result."""
        if self.error is None:
            return None
        if isinstance(self.error, UnknownTool):
            return "find"
        if isinstance(self.error, Rejected):
            return "access" if self.error.code in _ACCESS else "input"
        return "output" if isinstance(self.error, OutputRejected) else "handler"


Observer = Callable[[CallFinished], None]
"""A sync function, without I/O beyond one write. Its exceptions are logged and counted; only
`NotRecorded` is raised, and the caller gets it instead of the output. A method `check`, if it has
one, is called before each handler, and may raise `NotRecorded`, too."""
