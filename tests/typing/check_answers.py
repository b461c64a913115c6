"""What a user's type checker sees of agents. Read by pyright (strict), never run."""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

from pydantic import BaseModel, TypeAdapter

from callpact import Agent, Context, Skill, Tool, strict_output_rules, tool
from callpact.agent import (
    Answer,
    Backoff,
    File,
    Finished,
    Model,
    Parsed,
    Paused,
    Reset,
    Rule,
    Scope,
    SqliteMemory,
    Token,
    TypedResult,
)
from callpact.testing import ScriptedModel


class Refund(BaseModel):
    """A refund."""

    amount: float


@dataclass
class Point:
    """A point."""

    x: int


class Row(TypedDict):
    """A row."""

    x: int


class Parser:
    """A parser of its own."""

    def parse(self, value: Any, /) -> Point:
        """The point."""
        return Point(value)


def parse_row(value: Any) -> Row:
    """The row."""
    return value


@tool
async def ask(context: Context) -> str:
    """Ask."""
    return await context.pause("?")


def give_up(scope: Scope) -> bool:
    """Whether it is enough."""
    return scope.attempt > 3


async def check_methods(m: Model) -> None:
    """By method."""
    assert_type(Agent(m), Agent[Any])
    refunds = Agent(m, system="Be kind.").tools([ask]).output_schema(Refund, retries=2)
    assert_type(refunds, Agent[Refund])
    assert_type(await refunds.run_typed("?"), Refund)
    assert_type(refunds.parse_output("{}"), Refund)
    assert_type(refunds.read_output("{}", repair="safe"), Parsed[Refund])
    assert_type(await refunds.parse_output_async("{}"), Refund)
    assert_type(await refunds.run("?"), Answer | Paused)
    assert_type(await refunds.resume("{}", "yes"), Answer | Paused)
    assert_type(await refunds.resume_typed("{}", "yes"), Refund)
    assert_type(refunds.parse_output(await refunds.run("?")), Refund)
    assert_type(refunds.parse_output(await refunds.resume("{}", "yes")), Refund)
    assert_type(refunds.parse_output(asyncio.run(refunds.resume("{}", "yes"))), Refund)
    assert_type(refunds.read_output(await refunds.run("?")), Parsed[Refund])
    assert_type(await refunds.parse_output_async(await refunds.run("?")), Refund)
    assert_type(refunds.as_tool(), Tool)
    assert_type(await Agent(m).output_schema(TypeAdapter(list[int])).run_typed("?"), list[int])
    assert_type(await Agent(m).output_schema(list[int]).run_typed("?"), list[int])
    assert_type(await Agent(m).output_schema(int).run_typed("?"), int)
    assert_type(await Agent(m).output_schema(Point).run_typed("?"), Point)
    assert_type(await Agent(m).output_schema(Row).run_typed("?"), Row)
    assert_type(await Agent(m).output_schema(Parser()).run_typed("?"), Point)
    assert_type(await Agent(m).output_schema(parse_row).run_typed("?"), Row)
    assert_type(await Agent(m).output_schema({"type": "object"}).run_typed("?"), Any)


async def check_keywords(m: Model) -> None:
    """By keyword."""
    assert_type(Agent(m, output_schema=Refund, retries=1), Agent[Refund])
    assert_type(await Agent(m, output_schema=Refund, canned=None).run_typed("?"), Refund)
    assert_type(await Agent(m, output_schema=TypeAdapter(list[int])).run_typed("?"), list[int])
    assert_type(await Agent(m, output_schema=list[int]).run_typed("?"), list[int])
    assert_type(await Agent(m, output_schema=Point).run_typed("?"), Point)
    assert_type(await Agent(m, output_schema=Row).run_typed("?"), Row)
    assert_type(await Agent(m, output_schema=Parser()).run_typed("?"), Point)
    assert_type(await Agent(m, output_schema=parse_row).run_typed("?"), Row)
    assert_type(await Agent(m, output_schema={"type": "object"}).run_typed("?"), Any)


async def check_runs(m: Model) -> None:
    """Siblings of run, and what they take."""
    agent = Agent("openai:gpt-5", output_schema=Refund)
    assert_type(agent, Agent[Refund])
    result = await agent.run_result("?", model=m, session="ada")
    assert_type(result, TypedResult[Refund])
    assert_type(result.value, Refund)
    assert_type(result.tier, Literal["primary", "fallback", "canned"])
    assert_type(result.cost, float | None)
    assert_type(await agent.run_typed("?", history=result.messages), Refund)
    assert_type(
        await agent.run(["?", File("image/png", b"")], model="openai:gpt-5"), Answer | Paused
    )
    assert_type(agent.run_sync("?"), Answer | Paused)
    assert_type(agent.run_typed_sync("?", history=[]), Refund)
    Rule(give_up, "retry", wait=Backoff(1, 30))


async def check_that_the_type_is_kept() -> None:
    """Whatever is declared after the shape."""
    agent = (
        Agent(ScriptedModel(["{}"]), output_schema=Refund)
        .output_fallback(canned={"amount": 0})
        .reliability(strict_output_rules(3), Rule(give_up, "fail-fast", "enough"))
        .instruction("Be kind.")
        .skills(Skill("a", "b", "c"))
        .memory(SqliteMemory("memory.db"))
        .limits(seconds=5)
        .on(print)
    )
    assert_type(agent, Agent[Refund])
    assert_type(await agent.run_typed({"message": "?"}), Refund)
    async for item in agent.stream("?"):
        assert_type(item, Token | Reset | Finished[Refund])
        if isinstance(item, Finished):
            assert_type(agent.parse_output(item.answer), Refund)
            assert_type(item.result, TypedResult[Refund] | None)
