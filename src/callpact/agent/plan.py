"""The declaration of an agent as one frozen value; `agent.py` makes it, `loop.py` runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from callpact.agent.answer.fallback import Fallback
from callpact.agent.answer.parse import Repairing, Verdict, parse_answer
from callpact.agent.answer.shape import Shape
from callpact.agent.answer_events import EventHandler
from callpact.agent.budget import DEFAULT_LIMITS, Limits
from callpact.agent.models.model import Finish, Model
from callpact.agent.prompt.instructions import Injection, Skill
from callpact.agent.prompt.memory import TURNS, Memory
from callpact.agent.reliability import Reliability
from callpact.agent.run.offered_tools import Offers
from callpact.context import (
    Client,
    Context,
    Identity,
)
from callpact.errors import (
    OutputSchemaError,
    UsageError,
)
from callpact.runtime import Runtime
from callpact.tool import Contract, Handler, Tool

Strategy = Literal["instruct", "tool-forced"]
ANSWER_TOOL = "respond_with_schema"
"""The tool that a model is made to call under the strategy `tool-forced`."""
READ_SKILL = "read_skill"
"""The tool by which a model reads a skill."""


@dataclass(frozen=True, slots=True)
class AnswerContract:
    """The contract of the final answer."""

    shape: Shape[Any]
    name: str
    instruction: str
    retries: int = 0
    repair: Repairing = "none"
    allow: frozenset[str] = frozenset()
    strategy: Strategy = "instruct"

    def judge(self, raw: str, finish: Finish | None = None) -> Verdict:
        """Parse an answer; an answer that breaks the contract gives the error as a value."""
        try:
            return parse_answer(
                raw, self.shape, repair=self.repair, allow=self.allow, finish=finish
            )
        except OutputSchemaError as error:
            return error


async def _never_called(_arguments: Any, _context: Any) -> None:
    """Never called: the agent sends the request to the model and reports it itself."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An agent."""

    model: Model
    name: str
    runtime: Runtime
    system: str = ""
    injections: tuple[Injection, ...] = ()
    skills: tuple[Skill, ...] = ()
    contract: AnswerContract | None = None
    fallback: Fallback[Any] | None = None
    reliability: Reliability | None = None
    memory: Memory | None = None
    turns: int = TURNS
    limits: Limits = DEFAULT_LIMITS
    handlers: tuple[EventHandler, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    emits_whole_texts: bool = False
    has_tools: bool = False
    offers: Offers = field(default_factory=Offers)
    model_tool: Tool = field(init=False)

    @property
    def models(self) -> tuple[Model, ...]:
        """The agent's own, and those that rules may turn to."""
        rules = self.reliability
        return (self.model,) if rules is None else (self.model, *rules.providers)

    def required_contract(self) -> AnswerContract:
        """The contract of the answer.

        Raises:
            UsageError: the agent has none.
        """
        if self.contract is None:
            raise UsageError(
                "the agent has no output_schema, so there is no typed answer; use run()"
            )
        return self.contract

    @property
    def is_forced(self) -> bool:
        """True if the model is made to answer by a call."""
        return self.contract is not None and self.contract.strategy == "tool-forced"

    def __post_init__(self) -> None:
        tool = Tool(
            id=f"{self.name}.model",
            description=f"A request of the agent '{self.name}' to its model.",
            contract=_ANYTHING,
            handler=_never_called,
            source="agent",
        )
        object.__setattr__(self, "model_tool", tool)


_ANYTHING = Contract()


@dataclass(frozen=True, slots=True)
class AgentHandler:
    """The handler of an agent that is a tool; a run above finds the agent by it."""

    plan: Plan
    answer: Handler

    def __call__(self, arguments: dict[str, Any], context: Context) -> Any:
        """Run the agent."""
        return self.answer(arguments, context)


class Who(Struct, frozen=True):
    """The caller of a run, and the calls that it is part of."""

    identity: Identity | None = None
    client: Client | None = None
    chain: tuple[str, ...] = ()
    deadline: float | None = None
    run_id: str = ""
    is_stranger: bool = False
    """True for a caller from outside without an identity, who may use only open tools."""

    @property
    def is_trusted(self) -> bool:
        """True for code of this process, which is not asked who it is."""
        return self.identity is None and not self.is_stranger
