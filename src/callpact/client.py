"""Whoever is at the other end of a call, as a handler sees it: `context.client`.

A tool may tell its client how far it is, and may ask it: for input of its user, for words of its
model. Doors make clients; nothing here speaks a protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from callpact.errors import ClientUnable

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Elicited(Struct, frozen=True):
    """What the user said to a question; `data` keeps the schema that was asked with."""

    action: Literal["accept", "decline", "cancel"]
    data: dict[str, Any] | None = None

    @property
    def is_accepted(self) -> bool:
        """True if the user gave an answer."""
        return self.action == "accept"


class Sampled(Struct, frozen=True):
    """What the client's model said."""

    text: str
    """The texts of its content, joined."""
    content: tuple[dict[str, Any], ...]
    """Its blocks as they came: text, image, audio, use of a tool."""
    model: str = ""
    stop_reason: str | None = None


class Root(Struct, frozen=True):
    """A folder or file that the client works in."""

    uri: str
    name: str = ""


class Resumed(Struct, frozen=True):
    """What a call that paused with a state goes on with."""

    state: Any
    answer: Any


class Client(ABC):
    """The client of one call. Asking raises `ClientUnable` where it cannot be asked."""

    resumed: Resumed | None = None
    """Set where the call goes on from a state that it paused with."""

    async def pause(self, question: Any, state: Any = None) -> Any:  # noqa: ARG002 - for clients that can
        """The answer to a question that may be given much later, in another process.

        Raises:
            PauseAsked: it is not answered yet; what called the tool keeps the question.
            ClientUnable: nothing here can wait so long.
        """
        raise ClientUnable(
            "the tool pauses until somebody answers, which only an agent's run can wait for; "
            "call it through an Agent, or ask with context.client.elicit"
        )

    @property
    @abstractmethod
    def can_elicit(self) -> bool:
        """True if its user can be asked."""

    @property
    @abstractmethod
    def can_sample(self) -> bool:
        """True if its model can be asked."""

    @property
    @abstractmethod
    def can_list_roots(self) -> bool:
        """True if it can say which folders it works in."""

    @abstractmethod
    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Elicited:
        """Ask the user for an object that keeps a flat JSON Schema: texts, numbers, choices.

        `key` names the question for the client; questions without one are numbered. Several can
        be asked at once, with `asyncio.gather`.

        Raises:
            ClientUnable: nobody can be asked, or the answer does not keep the schema.
            UsageError: no client could show such a question.
        """

    @abstractmethod
    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        key: str = "",
    ) -> Sampled:
        """Ask the model to go on from a text, or from messages `{"role", "content"}`.

        Raises:
            ClientUnable: it cannot be asked, or the client refused.
        """

    @abstractmethod
    async def roots(self, *, key: str = "") -> tuple[Root, ...]:
        """Ask which folders it works in.

        Raises:
            ClientUnable: it cannot be asked.
        """

    @abstractmethod
    async def log(self, level: LogLevel, data: Any) -> None:
        """Tell the client something while the call runs; no more than it wants to hear."""

    @abstractmethod
    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Tell the client how far the call is, if it wants to know."""
