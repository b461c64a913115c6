"""What loading gives: tools, and what happened to each declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from callpact.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable


Severity = Literal["info", "warning", "error"]


class Finding(Struct, frozen=True):
    """One remark of the load report: about what, how bad, and what to do.

    `place` is the file or function; `code`, `path` (a JSON Pointer), `line` and `column` say more
    where there is more to say.
    """

    place: str
    severity: Severity
    message: str
    code: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None


class Tools(list[Tool]):
    """A plain list of tools, with the report of how they were loaded."""

    def __init__(self, tools: Iterable[Tool] = (), report: Iterable[Finding] = ()) -> None:
        super().__init__(tools)
        self.report: tuple[Finding, ...] = tuple(report)


class Source(Protocol):
    """Turns declarations into Tools, and holds what they need while they can be called."""

    async def load(self) -> Tools:
        """Read the declarations. One bad declaration never takes the others down."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and files."""
        ...
