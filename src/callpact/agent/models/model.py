"""The model behind an agent, as a protocol of two methods, and what goes to it and comes back.

What a model can do beyond text is declared (`abilities`), never assumed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Protocol, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from callpact.errors import UsageError

Role = Literal["user", "assistant", "tool"]
Finish = Literal["stop", "length", "content_filter", "tool_calls", "error"]
"""Why a model stopped writing."""
Cut = Literal["length", "content_filter", "error"]
"""Those that leave a reply incomplete: its tool calls never run."""

FORCED_TOOL = "forced-tool"
"""Ability of a model that can be made to call a given tool."""
NATIVE_ANSWER = "native-output"
"""Ability of a model that holds its text to a JSON Schema itself."""


class ToolUse(Struct, frozen=True):
    """A tool that the model wants called; `arguments` is text where it wrote no JSON object."""

    id: str
    name: str
    arguments: Any = None


MAX_URL = 8_192
"""Characters of the address of a file in a message."""
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]{1,100}/[A-Za-z0-9.+-]{1,100}")


class File(Struct, frozen=True, omit_defaults=True):
    """An image or another file in a message: its bytes, or the address where the vendor finds it.

    Raises:
        UsageError: there is neither or both, or the media type or the address is not valid.
    """

    media_type: str
    """`image/png`, `application/pdf`, …"""
    data: bytes = b""
    url: str = ""

    def __post_init__(self) -> None:
        kind, data, url = cast("tuple[Any, Any, Any]", (self.media_type, self.data, self.url))
        if not isinstance(kind, str) or not _MEDIA_TYPE.fullmatch(kind):
            raise UsageError(f"a file has a media type such as 'image/png', got {kind!r:.100}")
        if not isinstance(data, bytes) or not isinstance(url, str) or bool(data) is bool(url):
            raise UsageError("a file has data=, its bytes, or url=, its address; one of them")
        if url and not _is_web_address(url):
            raise UsageError(
                "the url of a file begins with http:// or https:// and names a host, without a "
                f"user's name; it has at most {MAX_URL:,} characters"
            )


def _is_web_address(url: str) -> bool:
    if len(url) > MAX_URL or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        return False


Part = str | File
"""A piece of a message: text, an image or another file."""


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. An ephemeral one is sent, and never kept."""

    role: Role
    content: str = ""
    """Its text."""
    tool_uses: tuple[ToolUse, ...] = ()
    tool_use_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    ephemeral: bool = False
    parts: tuple[Part, ...] = ()
    """Text and files in their order, of a user's message that has files; else empty."""


class ToolOffer(Struct, frozen=True):
    """A tool as it is described to a model."""

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
    """Tokens, and the cost where the model reports it."""

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
    """A reply of the model: text, or tool calls, or both."""

    content: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    stop_reason: str | None = None
    """Why it stopped, in the word of its vendor; None where it gives no reason."""
    model: str = ""

    @property
    def finish(self) -> Finish | None:
        """`stop_reason` in our words. A word that is not known is `error`: nothing of it runs."""
        if self.stop_reason is None:
            return None
        return _FINISHES.get(self.stop_reason.strip().lower().replace("-", "_"), "error")


_FINISHES: dict[str, Finish | None] = {
    "": None,
    "finish_reason_unspecified": None,
    **dict.fromkeys(
        (
            *("stop", "end_turn", "endturn", "stop_sequence", "eos", "eos_token", "end_of_text"),
            *("complete", "completed", "finished", "pause_turn"),
        ),
        "stop",
    ),
    **dict.fromkeys(
        (
            *("length", "max_tokens", "max_output_tokens", "maxtokens", "max_length", "limit"),
            *("model_length", "model_context_window_exceeded", "token_limit", "incomplete"),
        ),
        "length",
    ),
    **dict.fromkeys(
        (
            *("content_filter", "content_filtered", "safety", "recitation", "blocklist"),
            *("prohibited_content", "spii", "image_safety", "guardrail_intervened", "blocked"),
            *("refusal", "sensitive"),
        ),
        "content_filter",
    ),
    **dict.fromkeys(
        ("tool_call", "tool_calls", "tool_use", "tooluse", "function_call"), "tool_calls"
    ),
}


class Model(Protocol):
    """A language model. `complete` is all that is needed; `stream` gives text, then the reply.

    An attribute `abilities`, a set of `forced-tool` and `native-output`, declares more. Both raise
    `ModelError` for what went wrong on the way. A model that can be entered (`async with`) is entered
    for each run, so that it can keep its connections.
    """

    @property
    def name(self) -> str:
        """The model's name in events, records and errors."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Answer as a whole."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """Answer piece by piece; the last item is the whole reply."""
        ...


def cut_finish(reply: ModelReply) -> Cut | None:
    """Why a reply is incomplete; None if it is not known to be."""
    match reply.finish:
        case "length" | "content_filter" | "error" as finish:
            return finish
        case _:
            return None


def abilities_of(model: Model) -> frozenset[str]:
    """The abilities that a model declares; none by default."""
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
    """The messages of a conversation that may be kept."""
    return tuple(message for message in messages if not message.ephemeral)


def as_data(value: Struct) -> Any:
    """A message or reply as plain JSON data; of a file only what identifies it."""
    if isinstance(value, Message) and value.parts:
        parts = [part if isinstance(part, str) else _outline(part) for part in value.parts]
        return {**msgspec.to_builtins(value), "parts": parts}
    return msgspec.to_builtins(value)


def _outline(file: File) -> dict[str, Any]:
    """Its bytes are too many for a record; the query of an address may hold a signature."""
    if file.url:
        return {"media_type": file.media_type, "url": file.url.partition("?")[0].partition("#")[0]}
    digest = hashlib.sha256(file.data).hexdigest()
    return {"media_type": file.media_type, "bytes": len(file.data), "sha256": digest}
