"""Tools as offers to a model, and their outputs as messages to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callpact.agent.budget import MAX_OUTPUT_CHARACTERS
from callpact.agent.models.model import Cut, Message, ToolOffer, ToolUse
from callpact.catalog import Catalog
from callpact.context import Identity
from callpact.envelope import ResponseEnvelope
from callpact.errors import AccessDenied, CallError, InvalidInput, Issue
from callpact.gate import grant
from callpact.jsonreader.reader import ReadResult, Unreadable, read_json
from callpact.schema.json_text import json_text
from callpact.tool import OPEN, Tool
from callpact.wire.mcp.portable import explicit
from callpact.wire.mcp.published import input_schema
from callpact.wire.paging import preview
from callpact.wire.plain import encode_error


class Offers:
    """The tools of a catalog as offers, cached until the catalog is replaced."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._made: tuple[tuple[Tool, ToolOffer], ...] = ()

    def of(
        self, catalog: Catalog, identity: Identity | None, *, trusted: bool
    ) -> tuple[ToolOffer, ...]:
        """Return the tools that this caller may use and a model can call."""
        if self._catalog is not catalog:
            self._made = tuple((tool, offer_of(tool)) for tool in callable_tools(catalog))
            self._catalog = catalog
        return tuple(offer for tool, offer in self._made if trusted or _is_granted(tool, identity))


def callable_tools(tools: Iterable[Tool]) -> Iterable[Tool]:
    """Return the tools that have one output and are not disabled."""
    return (tool for tool in tools if tool.kind != "subscription" and tool.disabled is None)


def offer_of(tool: Tool) -> ToolOffer:
    """Convert a tool to an offer under its wire name, with a schema that strict providers accept."""
    return ToolOffer(tool.wire_name, tool.description, explicit(input_schema(tool)))


def _is_granted(tool: Tool, identity: Identity | None) -> bool:
    if tool.access is OPEN:
        return True
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return True


PURE_SYNTAX = frozenset(
    {
        *("backtick_string", "colon", "comment", "control_character", "doubled_braces", "escaped"),
        *("extra_comma", "fence", "invalid_escape", "javascript_literal", "literal_case"),
        *("missing_comma", "number_form", "python_literal", "separator", "single_quotes"),
        *("smart_quotes", "trailing_comma", "triple_quotes", "tuple", "unquoted_key"),
        "whitespace",
    }
)
"""Allowed repairs of a call's arguments: other notations of the same value. Repairs that add, close or
omit a part of the text are not allowed, because half a call must not run."""


def arguments_of(use: ToolUse) -> ReadResult:
    """Return the arguments of a tool call; text is parsed, with repairs of pure syntax.

    Raises:
        InvalidInput: the text cannot be read without guessing.
    """
    if not isinstance(use.arguments, str):
        return ReadResult(use.arguments)
    if not use.arguments.strip():
        return ReadResult({})
    try:
        read = read_json(use.arguments)
    except Unreadable as error:
        raise _unreadable(use.arguments, error.code, error.at) from None
    for repair in read.repairs:
        if repair.code not in PURE_SYNTAX:
            raise _unreadable(use.arguments, repair.code, repair.at)
    return read


def _unreadable(text: str, code: str, at: int) -> InvalidInput:
    message = (
        "The arguments are not JSON, and cannot be read without guessing "
        f"({code} at character {at} of {len(text)}); nothing was run"
    )
    hint = "send the call again, with the arguments as one complete JSON object"
    return InvalidInput(lambda: [Issue("json", message, hint=hint)])


def cut_off(finish: Cut) -> InvalidInput:
    """Return the refusal of a tool call in an incomplete reply."""
    message, hint = _CUT_OFF[finish]
    return InvalidInput(lambda: [Issue("truncated", message, hint=hint)])


_CUT_OFF = {
    "length": (
        "Your reply was cut off at the length limit, so none of its tool calls was run",
        "send the call again, shorter: one call in a reply, brief arguments, no text before it",
    ),
    "content_filter": (
        "Your reply was stopped by the content filter, so none of its tool calls was run",
        "send the call again without what the filter stops",
    ),
    "error": (
        "Your reply did not end as a complete one does, so none of its tool calls was run",
        "send the call again",
    ),
}


def output_message(use: ToolUse, envelope: ResponseEnvelope[Any]) -> Message:
    """Convert an output to a message for the model, with a note on values that a cast invented."""
    data = envelope.data
    if isinstance(data, bytes):
        data = envelope.to_wire()
    text = data if isinstance(data, str) else json_text(data)
    if len(text) > MAX_OUTPUT_CHARACTERS:
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
    """Convert a failure to a message for the model: code, message, path, and all issues."""
    text = json_text(encode_error(error))
    return Message("tool", text, tool_use_id=use.id, tool_name=use.name, is_error=True)
