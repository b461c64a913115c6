"""A model with scripted replies, for tests and demonstrations without a network."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, cast

from callpact.agent.models.model import (
    FORCED_TOOL,
    ModelReply,
    ModelRequest,
    ToolUse,
    Usage,
)
from callpact.errors import UsageError
from callpact.schema.json_text import json_text

Scripted = str | ModelReply | Mapping[str, Any] | Exception
"""Text, `{"text": …}`, a reply, `{"tool": name, "arguments": {…}}` for a call, or an error to raise.

`"finish": "length"` beside a text or a call sets the finish reason of the reply.
"""

_PIECE = re.compile(r"\s*\S+|\s+$")


class ScriptedModel:
    """Returns replies in order, or those that a function of the request returns; stores the requests.

    A list within the list is several calls in one reply. The model streams word by word, and
    declares the ability `forced-tool`.

    Raises:
        UsageError: on a request after the last reply.
    """

    def __init__(
        self,
        replies: Iterable[Scripted | list[Scripted]] | Callable[[ModelRequest], Scripted],
        *,
        name: str = "scripted",
        abilities: Iterable[str] = (FORCED_TOOL,),
        tokens: Usage = Usage(10, 5),  # noqa: B008 - frozen
    ) -> None:
        self.name = name
        self.abilities = frozenset(abilities)
        self.requests: list[ModelRequest] = []
        self._respond = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self._tokens = tokens
        self._next = 0

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the next reply."""
        self.requests.append(request)
        return self._reply(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """Yield the next reply word by word."""
        reply = await self.complete(request)
        for piece in _PIECE.findall(reply.content):
            yield piece
        yield reply

    def reset(self) -> None:
        """Start again with the first reply."""
        self._next = 0
        self.requests.clear()

    def _reply(self, request: ModelRequest) -> ModelReply:
        if self._respond is not None:
            scripted: Any = self._respond(request)
        elif self._next < len(self._replies):
            scripted = self._replies[self._next]
            self._next += 1
        else:
            raise UsageError(
                f"the script of '{self.name}' has {len(self._replies)} replies, "
                f"and this is request {len(self.requests)}"
            )
        if isinstance(scripted, Exception):
            raise scripted
        if isinstance(scripted, ModelReply):
            return scripted
        finish = "stop"
        if isinstance(scripted, Mapping) and "text" in scripted:
            given = cast("Mapping[str, Any]", scripted)
            scripted, finish = given["text"], given.get("finish", finish)
        if isinstance(scripted, str):
            if request.forced_tool is None:
                return ModelReply(scripted, usage=self._tokens, stop_reason=finish, model=self.name)
            scripted = [{"tool": request.forced_tool, "arguments": scripted, "finish": finish}]
        uses: list[Any] = [scripted] if isinstance(scripted, Mapping) else scripted
        return ModelReply(
            "",
            tuple(self._use(index, use) for index, use in enumerate(uses)),
            self._tokens,
            next((use["finish"] for use in uses if "finish" in use), "tool_calls"),
            self.name,
        )

    def _use(self, index: int, given: Any) -> ToolUse:
        if not isinstance(given, Mapping) or "tool" not in given:
            raise UsageError(
                "a scripted call is written {'tool': name, 'arguments': {…}}, got "
                f"{json_text(given) if isinstance(given, Mapping) else repr(given):.100}"
            )
        use = cast("Mapping[str, Any]", given)
        return ToolUse(
            use.get("id", f"use-{len(self.requests)}-{index + 1}"),
            use["tool"],
            use.get("arguments", {}),
        )
