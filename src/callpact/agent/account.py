"""Results of a run: the answer or the pause, the typed value, and the account of work and cost."""

from __future__ import annotations

from typing import Any, Generic, Literal, Self, TypeVar

from msgspec import Struct

from callpact.agent.models.model import Finish, Message, Usage
from callpact.jsonreader.reading import Repair

T = TypeVar("T")

Outcome = Literal["passed", "retried", "exhausted"]
Stage = Literal["json-parse", "schema-validate"]
Tier = Literal["primary", "fallback", "canned"]
"""The origin of a value: the model's own answer, the fallback function, the canned value."""


class AnswerAttempt(Struct, frozen=True, omit_defaults=True):
    """The verdict on one reply that could have been the final answer."""

    attempt: int
    iteration: int
    outcome: Outcome
    stage: Stage | None = None
    error: str | None = None
    path: str | None = None
    corrective_message_hash: str | None = None
    repairs: tuple[str, ...] = ()


class Unmet(Struct, frozen=True, omit_defaults=True):
    """The failure of a run whose answer breaks its contract."""

    stage: Stage
    error: str
    attempts: int
    retries_spent: int
    fallback_configured: bool
    path: str | None = None


class Account(Struct, frozen=True):
    """The work and the cost of a run; requests with a refused reply count as well.

    Requests, tool calls and usage include those of the agents that its tools run.
    """

    run_id: str
    iterations: int = 0
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    attempts: tuple[AnswerAttempt, ...] = ()
    unmet: Unmet | None = None


class Answer(str):
    """The final answer as the model wrote it, a string; `account` has the work and the cost."""

    __slots__ = ("account", "finish", "messages")

    account: Account
    messages: tuple[Message, ...]
    """The conversation, history included, without ephemeral corrections."""
    finish: Finish | None
    """Why the model stopped; after `length` or `content_filter` the answer is incomplete."""

    def __new__(
        cls,
        text: str,
        account: Account,
        messages: tuple[Message, ...] = (),
        finish: Finish | None = None,
    ) -> Self:
        """Make an answer from its text."""
        made = super().__new__(cls, text)
        made.account = account
        made.messages = messages
        made.finish = finish
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), self.account, self.messages, self.finish)


class TypedResult(Struct, Generic[T], frozen=True):
    """The value of a run under contract, where it comes from, and the answer with its account."""

    value: T
    tier: Tier
    repairs: tuple[Repair, ...]
    """Repairs of the model's answer; empty under another tier than `primary`."""
    answer: Answer
    """The answer as the model wrote it; under another tier than `primary`, the refused one."""

    @property
    def account(self) -> Account:
        """The work and the cost of the run."""
        return self.answer.account

    @property
    def attempts(self) -> tuple[AnswerAttempt, ...]:
        """The verdict on each reply that could have been the final answer."""
        return self.account.attempts

    @property
    def cost(self) -> float | None:
        """US dollars, where the model's price is known."""
        return self.account.usage.cost

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation; `history=` of the next run takes it."""
        return self.answer.messages


class Paused(Struct, frozen=True):
    """A paused run: the question of a tool, and the checkpoint (JSON text) to resume from."""

    question: Any
    checkpoint: str
    tool: str
    account: Account
