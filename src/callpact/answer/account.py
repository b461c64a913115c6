"""What a run comes to: its answer, or the question it waits with, and what it cost."""

from __future__ import annotations

from typing import Any, Literal, Self

from msgspec import Struct

from callpact.answer.model import Message, Usage

Outcome = Literal["passed", "retried", "exhausted"]
Stage = Literal["json-parse", "schema-validate"]


class Attempt(Struct, frozen=True, omit_defaults=True):
    """How one would-be final answer was judged."""

    attempt: int
    iteration: int
    outcome: Outcome
    stage: Stage | None = None
    error: str | None = None
    path: str | None = None
    corrective_message_hash: str | None = None
    repairs: tuple[str, ...] = ()


class Unmet(Struct, frozen=True, omit_defaults=True):
    """How a run ended whose answer breaks its contract."""

    stage: Stage
    error: str
    attempts: int
    retries_spent: int
    fallback_configured: bool
    path: str | None = None


class Account(Struct, frozen=True):
    """What a run did and cost; every request to a model is counted, also those thrown away."""

    run_id: str
    iterations: int = 0
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    unmet: Unmet | None = None


class Answer(str):
    """The final answer as the model wrote it; what it cost stands beside it."""

    __slots__ = ("account", "messages")

    account: Account
    messages: tuple[Message, ...]
    """The conversation of this run, without what is only sent to correct the model."""

    def __new__(cls, text: str, account: Account, messages: tuple[Message, ...] = ()) -> Self:
        """An answer is its text."""
        made = super().__new__(cls, text)
        made.account = account
        made.messages = messages
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), self.account, self.messages)


class Paused(Struct, frozen=True):
    """A run that waits: what a tool asks, and the checkpoint, JSON text, to go on from."""

    question: Any
    checkpoint: str
    tool: str
    account: Account
