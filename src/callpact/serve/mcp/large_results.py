"""Results that are too large for one response: the rest is stored, and a tool reads it.

The tool is listed after the first such result; a catalog with small outputs does not need it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from callpact.envelope import MCPResponseMeta, ResponseEnvelope
from callpact.errors import ToolError
from callpact.tool import Contract, Tool
from callpact.wire.mcp import results as wire
from callpact.wire.paging import KeptResults, Paging

if TYPE_CHECKING:
    from callpact.context import Context

READ_RESULT = "read_result"
MAX_CURSOR_LENGTH = 200
"""Characters of a cursor into a result."""

_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "cursor": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_CURSOR_LENGTH,
            "description": "The nextCursor of an answer that was too large.",
        }
    },
    "required": ["cursor"],
    "additionalProperties": False,
}


class ResultReader:
    """Stores large results, and makes the tool that reads them by cursor.

    One of several workers marks its results with its number, and lists the tool from the start.
    """

    def __init__(self, limit: int, worker: int | None = None) -> None:
        self._limit = limit
        self._results = KeptResults(mark=b"" if worker is None else bytes([worker]))
        self._is_shown = worker is not None
        self.tool = Tool(
            id=f"callpact.{READ_RESULT}",
            wire_name=READ_RESULT,
            title="Read on in a large answer",
            description=(
                "The next items of an answer that was too large to be sent whole. Takes the "
                "cursor that the answer named."
            ),
            contract=Contract(input=_INPUT),
            handler=partial(self._read, None),
            kind="query",
            annotations={"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        )

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tool, if it is listed already."""
        return (self.tool,) if self._is_shown else ()

    def reading(self, owner: str | None) -> Tool:
        """Return the tool for one caller."""
        return replace(self.tool, handler=partial(self._read, owner))

    def show(self) -> bool:
        """List the tool from now on; True if it was not listed before."""
        is_new, self._is_shown = not self._is_shown, True
        return is_new

    def paging(self, owner: str | None) -> Paging:
        """Return the paging of large results for one caller."""
        return Paging(self._results, owner, self._limit, READ_RESULT)

    async def _read(
        self, owner: str | None, arguments: dict[str, Any], _: Context
    ) -> ResponseEnvelope[Any]:
        page = wire.encode_page(arguments["cursor"], self.paging(owner))
        if page is None:
            minutes = round(self._results.age / 60)
            raise ToolError(
                "result_gone",
                f"There is no such page, or no longer: large answers are kept for {minutes} "
                "minutes at most. Call the tool again, and ask it for less if it can be asked so",
                path="/cursor",
            )
        structured = page.get("structuredContent", UNSET)
        meta = MCPResponseMeta(False, page["content"], structured, page["_meta"])
        return ResponseEnvelope(page["content"] if structured is UNSET else structured, meta)
