"""Tools as a model sees them, and what they gave as a message that it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callpact.answer.limits import MAX_RESULT_CHARACTERS
from callpact.answer.model import Message, ToolOffer, ToolUse
from callpact.answer.reader import Unreadable, read_json
from callpact.catalog import Catalog
from callpact.envelope import ResponseEnvelope
from callpact.errors import AccessDenied, CallError
from callpact.gate import grant
from callpact.json_text import json_text
from callpact.tool import OPEN, Identity, Tool
from callpact.wire.gate import encode_error
from callpact.wire.paging import preview


class Offers:
    """The tools of a catalog as offers; made once for as long as the catalog is the same."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._made: tuple[tuple[Tool, ToolOffer], ...] = ()

    def of(
        self, catalog: Catalog, identity: Identity | None, *, trusted: bool
    ) -> tuple[ToolOffer, ...]:
        """What this caller may use and a model can call."""
        if self._catalog is not catalog:
            self._made = tuple((tool, offer_of(tool)) for tool in callable_tools(catalog))
            self._catalog = catalog
        return tuple(offer for tool, offer in self._made if trusted or _is_granted(tool, identity))


def callable_tools(tools: Iterable[Tool]) -> Iterable[Tool]:
    """Those that give one answer, and can be called at present."""
    return (tool for tool in tools if tool.kind != "subscription" and tool.disabled is None)


def offer_of(tool: Tool) -> ToolOffer:
    """One tool under its wire name."""
    return ToolOffer(tool.wire_name, tool.description, tool.contract.input)


def _is_granted(tool: Tool, identity: Identity | None) -> bool:
    if tool.access is OPEN:
        return True
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return True


def arguments_of(use: ToolUse) -> Any:
    """The arguments that a model wrote; text is read, with repairs where no meaning can be lost."""
    if not isinstance(use.arguments, str):
        return use.arguments
    if not use.arguments.strip():
        return {}
    try:
        return read_json(use.arguments).value
    except Unreadable:
        return use.arguments  # The gate says what was expected.


def result_message(use: ToolUse, envelope: ResponseEnvelope[Any]) -> Message:
    """A result as the model reads it; what had to be invented is said."""
    data = envelope.data
    if isinstance(data, bytes):
        data = envelope.to_wire()
    text = data if isinstance(data, str) else json_text(data)
    if len(text) > MAX_RESULT_CHARACTERS:
        text = (
            f"The result has {len(text):,} characters, too many to show. Ask for less, for a part "
            f"or a page. Its outline:\n{preview(data)}"
        )
    invented = [change.path or "the whole answer" for change in envelope.changes if change.invented]
    if invented:
        text += (
            f"\n\nNot from the tool, but invented to fit its contract: {', '.join(invented[:10])}"
        )
    return Message("tool", text, tool_use_id=use.id, tool_name=use.name)


def error_message(use: ToolUse, error: CallError) -> Message:
    """A failure as the model reads it: code, message, path, and all issues."""
    text = json_text(encode_error(error))
    return Message("tool", text, tool_use_id=use.id, tool_name=use.name, is_error=True)
