"""Arguments and answers that nest deeper than the SDK reads and writes: they go past it.

The SDK stops at about 200 levels. Deeper arguments wait in the scope of their request, and deeper
answers are put in as bytes (`ready.py`), while the SDK sees an empty object in their place.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import orjson

from callpact.schema.values import is_shallow
from callpact.serve.ready import stand_in
from callpact.wire.mcp_content import tell

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from starlette.types import Scope

MAX_SDK_DEPTH = 150
"""Levels of JSON that are left to the SDK."""
_ARGUMENTS = "callpact.arguments"
_answer: ContextVar[list[bytes]] = ContextVar("callpact.answer")


def set_aside(scope: Scope, message: dict[str, Any], body: bytes) -> bytes:
    """The body of a call without its arguments, if they are deep; else the same."""
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return body
    if body.count(b"[") + body.count(b"{") <= MAX_SDK_DEPTH:
        return body
    arguments = cast("dict[str, Any]", params).get("arguments")
    if not isinstance(arguments, dict) or is_shallow(arguments, MAX_SDK_DEPTH):
        return body
    scope[_ARGUMENTS] = arguments
    return orjson.dumps({**message, "params": {**params, "arguments": {}}})


def arguments_of(context: ServerRequestContext[Any], given: Any) -> Any:
    """The arguments of a call: those that were set aside, else what the SDK read."""
    request = cast("Any", context.request)
    scope = getattr(request, "scope", None)
    return given if scope is None else scope.get(_ARGUMENTS, given)


class DeepAnswer:
    """The structured content of one answer on its way past the SDK."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        _answer.set(self._written)

    def put_in(
        self, context: ServerRequestContext[Any], result: Any, *, is_line: bool
    ) -> dict[str, Any]:
        """The result as it is sent."""
        if not self._written:
            return result
        structured = stand_in(context, self._written[0], is_line=is_line)
        return {**cast("dict[str, Any]", result), "structuredContent": structured}


def take_out(result: dict[str, Any]) -> dict[str, Any]:
    """A result with an empty object for structured content that is deep, which is kept."""
    structured = result.get("structuredContent")
    held = _answer.get(None)
    if held is None or is_shallow(structured, MAX_SDK_DEPTH):
        return result
    held.append(tell(structured).text.encode())
    return {**result, "structuredContent": {}}
