"""A model that gives scripted replies: for tests and demonstrations, without a network."""

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

`"finish": "length"` beside a text or a call is the reason that the reply ends for.
"""

_PIECE = re.compile(r"\s*\S+|\s+$")


class ScriptedModel:
    """Gives replies in order, or what a function of the request gives; keeps the requests.

    A list within the list is several calls in one reply. It streams word by word, and declares
    that it can be made to call a tool.

    Raises:
        UsageError: when it is asked more often than it has replies.
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
        """The next reply."""
        self.requests.append(request)
        return self._reply(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """The next reply, word by word."""
        reply = await self.complete(request)
        for piece in _PIECE.findall(reply.content):
            yield piece
        yield reply

    def reset(self) -> None:
        """Begin again with the first reply."""
        self._next = 0
        self.requests.clear()

    def _reply(self, request: ModelRequest) -> ModelReply:
        if self._respond is not None:
            said: Any = self._respond(request)
        elif self._next < len(self._replies):
            said = self._replies[self._next]
            self._next += 1
        else:
            raise UsageError(
                f"the script of '{self.name}' has {len(self._replies)} replies, "
                f"and this is request {len(self.requests)}"
            )
        if isinstance(said, Exception):
            raise said
        if isinstance(said, ModelReply):
            return said
        finish = "stop"
        if isinstance(said, Mapping) and "text" in said:
            given = cast("Mapping[str, Any]", said)
            said, finish = given["text"], given.get("finish", finish)
        if isinstance(said, str):
            if request.forced_tool is None:
                return ModelReply(said, usage=self._tokens, stop_reason=finish, model=self.name)
            said = [{"tool": request.forced_tool, "arguments": said, "finish": finish}]
        uses: list[Any] = [said] if isinstance(said, Mapping) else said
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
