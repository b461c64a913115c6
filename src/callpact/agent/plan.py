"""The declaration of an agent as one frozen value; `agent.py` makes it, `loop.py` runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from callpact.agent.answer.fallback import Fallback
from callpact.agent.answer.parse import RepairMode, Verdict, parse_answer
from callpact.agent.answer.shape import Shape
from callpact.agent.answer_events import EventHandler
from callpact.agent.budget import DEFAULT_LIMITS, RunLimits
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
"""The tool that a model calls to read a skill."""


@dataclass(frozen=True, slots=True)
class AnswerContract:
    """The contract of the final answer."""

    shape: Shape[Any]
    name: str
    instruction: str
    retries: int = 0
    repair: RepairMode = "none"
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
    """Handle nothing: the agent sends the request to the model and records it itself."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The declaration of an agent."""

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
    limits: RunLimits = DEFAULT_LIMITS
    handlers: tuple[EventHandler, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    emits_whole_texts: bool = False
    has_tools: bool = False
    offers: Offers = field(default_factory=Offers)
    model_tool: Tool = field(init=False)

    @property
    def models(self) -> tuple[Model, ...]:
        """The agent's own model, then the other providers of the reliability rules."""
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
        """True if the model is forced to answer by a tool call."""
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
    """The handler of an agent's tool; a run that calls the tool finds the agent through it."""

    plan: Plan
    answer: Handler

    def __call__(self, arguments: dict[str, Any], context: Context) -> Any:
        """Run the agent."""
        return self.answer(arguments, context)


class RunCaller(Struct, frozen=True):
    """The caller of a run, and the chain of calls that the run belongs to."""

    identity: Identity | None = None
    client: Client | None = None
    chain: tuple[str, ...] = ()
    deadline: float | None = None
    run_id: str = ""
    is_stranger: bool = False
    """True for a caller from outside without an identity, who may use only open tools."""

    @property
    def is_trusted(self) -> bool:
        """True for code of this process, which needs no identity."""
        return self.identity is None and not self.is_stranger
