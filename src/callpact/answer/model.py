"""The model behind an agent, as a protocol of two methods, and what goes to it and comes back.

What a model can do beyond text is declared (`abilities`), never assumed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Protocol, cast

import msgspec
from msgspec import Struct

Role = Literal["user", "assistant", "tool"]

FORCED_TOOL = "forced-tool"
"""Ability of a model that can be made to call a given tool."""
NATIVE_OUTPUT = "native-output"
"""Ability of a model that holds its text to a JSON Schema itself."""


class ToolUse(Struct, frozen=True):
    """A tool that the model wants called; `arguments` is text where it wrote no JSON object."""

    id: str
    name: str
    arguments: Any = None


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. An ephemeral one is sent, and never kept."""

    role: Role
    content: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    tool_use_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    ephemeral: bool = False


class ToolOffer(Struct, frozen=True):
    """A tool as a model is told of it."""

    name: str
    description: str
    input_schema: Any


class ModelRequest(Struct, frozen=True):
    """All that a model is asked with."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    answer_schema: Mapping[str, Any] | None = None
    """The JSON Schema of the final answer, only for models with `native-output`."""
    forced_tool: str | None = None
    """The tool that must be called, only for models with `forced-tool`."""
    settings: Mapping[str, Any] = {}
    """As the model takes them: `temperature`, `max_tokens`, …"""
    timeout: float | None = None
    """Seconds that are left."""


class Usage(Struct, frozen=True):
    """Tokens, and money where the model tells it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if self.cost is None or other.cost is None:
            cost = self.cost if other.cost is None else other.cost
        else:
            cost = self.cost + other.cost
        return Usage(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens, cost
        )


class ModelReply(Struct, frozen=True):
    """What the model said: text, or tools that it wants called, or both."""

    content: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    stop_reason: str | None = None
    model: str = ""


class Model(Protocol):
    """A language model. `complete` is all that is needed; `stream` gives text, then the reply.

    An attribute `abilities`, a set of `forced-tool` and `native-output`, declares more. Both raise
    `ModelError` for what went wrong on the way. A model that can be entered (`async with`) is entered
    for each run, so that it can keep its connections.
    """

    @property
    def name(self) -> str:
        """What events, records and errors call it."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Answer as a whole."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """Answer piece by piece; the last item is the whole reply."""
        ...


def abilities_of(model: Model) -> frozenset[str]:
    """What a model declares; nothing unless it does."""
    return frozenset(getattr(model, "abilities", ()))


@asynccontextmanager
async def entered(models: Iterable[Model]) -> AsyncGenerator[None]:
    """The models for the length of a run."""
    async with AsyncExitStack() as stack:
        for model in models:
            if isinstance(model, AbstractAsyncContextManager):
                await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", model))
        yield


def without_ephemeral(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """What of a conversation may be kept."""
    return tuple(message for message in messages if not message.ephemeral)


def as_data(value: Struct) -> Any:
    """A message or reply as plain JSON data."""
    return msgspec.to_builtins(value)
