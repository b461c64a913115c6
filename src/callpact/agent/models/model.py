"""The protocol of a model, two methods, with its messages, requests and replies.

Abilities beyond text are declared by the model (`abilities`), never assumed.
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
"""Reasons that leave a reply incomplete; its tool calls are not run."""

FORCED_TOOL = "forced-tool"
"""Ability: the model can be forced to call a given tool."""
NATIVE_ANSWER = "native-output"
"""Ability: the model restricts its text to a JSON Schema itself."""


class ToolUse(Struct, frozen=True):
    """A tool call that the model requests; `arguments` is text if it is no JSON object."""

    id: str
    name: str
    arguments: Any = None


MAX_URL = 8_192
"""Characters of the URL of a file in a message."""
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]{1,100}/[A-Za-z0-9.+-]{1,100}")


class File(Struct, frozen=True, omit_defaults=True):
    """An image or another file in a message: its bytes, or the URL where the vendor fetches it.

    Raises:
        UsageError: there is neither or both, or the media type or the URL is not valid.
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
    """One message of a conversation; an ephemeral one is sent once and not stored."""

    role: Role
    content: str = ""
    """The text of the message."""
    tool_uses: tuple[ToolUse, ...] = ()
    tool_use_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    ephemeral: bool = False
    parts: tuple[Part, ...] = ()
    """Text and files in order, for a user's message with files; else empty."""


class ToolOffer(Struct, frozen=True):
    """A tool as it is described to a model."""

    name: str
    description: str
    input_schema: Any


class ModelRequest(Struct, frozen=True):
    """A request to a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    answer_schema: Mapping[str, Any] | None = None
    """The JSON Schema of the final answer, only for models with `native-output`."""
    forced_tool: str | None = None
    """The tool that must be called, only for models with `forced-tool`."""
    settings: Mapping[str, Any] = {}
    """Settings of the model: `temperature`, `max_tokens`, …"""
    timeout: float | None = None
    """Seconds left for the request."""


class Usage(Struct, frozen=True):
    """Tokens, and the cost where the model reports it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
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
    """Why the model stopped, as the vendor spells it; None if no reason was given."""
    model: str = ""

    @property
    def finish(self) -> Finish | None:
        """`stop_reason` as a `Finish`; an unknown reason is `error`, so its tool calls are not run."""
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
    """A language model. Only `complete` is required; `stream` yields text, then the reply.

    The attribute `abilities`, a set of `forced-tool` and `native-output`, declares more. Both
    methods raise `ModelError` if the request fails. A model that is an async context manager is
    entered for each run, so that it can keep its connections.
    """

    @property
    def name(self) -> str:
        """The model's name in events, records and errors."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the whole reply."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """Yield the reply piece by piece; the last item is the whole reply."""
        ...


def cut_finish(reply: ModelReply) -> Cut | None:
    """Return the reason why a reply is incomplete; None if it is complete or the reason unknown."""
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
    """Enter the models that are async context managers, for one run."""
    async with AsyncExitStack() as stack:
        for model in models:
            if isinstance(model, AbstractAsyncContextManager):
                await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", model))
        yield


def without_ephemeral(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages of a conversation that may be stored."""
    return tuple(message for message in messages if not message.ephemeral)


def as_data(value: Struct) -> Any:
    """Convert a message or reply to plain JSON data; a file is reduced to its identification."""
    if isinstance(value, Message) and value.parts:
        parts = [part if isinstance(part, str) else _outline(part) for part in value.parts]
        return {**msgspec.to_builtins(value), "parts": parts}
    return msgspec.to_builtins(value)


def _outline(file: File) -> dict[str, Any]:
    """Identify a file without its bytes, and without the query of its URL, which may be a signature."""
    if file.url:
        return {"media_type": file.media_type, "url": file.url.partition("?")[0].partition("#")[0]}
    digest = hashlib.sha256(file.data).hexdigest()
    return {"media_type": file.media_type, "bytes": len(file.data), "sha256": digest}
