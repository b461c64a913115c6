"""Agents inside agents: what they spend counts above, and the limits above hold for them."""

from __future__ import annotations

import asyncio
import json

import pytest

from answers import GOOD, Heard, Refund, call, go
from callpact import Agent, Context, LimitReached, Runtime, UsageError, from_functions, tool
from callpact.agent import Paused, Usage
from callpact.testing import ScriptedModel


def scripted(*replies, tokens=(10, 5), cost=None):
    return ScriptedModel(replies, tokens=Usage(*tokens, cost))


def asks(name, message="go"):
    return call(f"{name}_ask", {"message": message})


def nested(*replies, name="sub", **options):
    return Agent(scripted(*replies, **options), name=name).as_tool()


def by_function(agent):
    @tool(namespace="sub", name="ask")
    async def ask(message: str) -> str:
        """Ask the other agent."""
        return str(await agent.run(message))

    return ask


def by_sync_function(agent):
    @tool(namespace="sub", name="ask")
    def ask(message: str) -> str:
        """Ask the other agent."""
        return str(agent.run_sync(message))

    return ask


def by_env(agent):
    @tool(namespace="sub", name="ask")
    async def ask(message: str, context: Context) -> str:
        """Ask the other agent."""
        return (await context.env.inner.ask({"message": message})).data

    return [ask, agent.as_tool("inner.ask")]


WAYS = {
    "as_tool": lambda agent: agent.as_tool("sub.ask"),
    "function": by_function,
    "sync function": by_sync_function,
    "env": by_env,
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request):
    def made(agent):
        tools = request.param(agent)
        return Runtime(from_functions(tools if isinstance(tools, list) else [tools]))

    return made


def test_requests_tokens_and_cost_below_are_in_the_account_above(way):
    @tool(namespace="low")
    def look() -> str:
        return "seen"

    below = Agent(scripted(call("low_look"), "sub done", cost=0.5), name="sub", tools=[look])
    heard = Heard()
    agent = Agent(scripted(asks("sub"), "done", cost=0.25), tools=way(below)).on(heard)
    account = go(agent.run("go")).account
    assert account.requests == 4
    assert account.iterations == 2
    assert account.usage == Usage(40, 20, 1.5)
    assert account.tool_calls == 2
    ended = heard.of("agent.turn_end")[-1]
    assert (ended["requests"], ended["input_tokens"], ended["cost"]) == (4, 40, 1.5)


@pytest.mark.parametrize("limit", [{"tokens": 40}, {"cost": 1.0}])
def test_a_limit_above_stops_the_agent_below_and_then_the_run(way, limit):
    @tool(namespace="low")
    def look() -> str:
        return "seen"

    model = scripted(*[call("low_look")] * 19, "sub done", cost=0.5)
    below = Agent(model, name="sub", tools=[look])
    agent = Agent(scripted(asks("sub"), "done", cost=0.25), tools=way(below)).limits(**limit)
    with pytest.raises(LimitReached) as caught:
        go(agent.run("go"))
    assert caught.value.limit == next(iter(limit))
    assert len(model.requests) == 2
    assert caught.value.account.requests == 3


def test_the_limit_below_is_its_own_and_the_run_above_goes_on():
    below = Agent(scripted(call("low_look"), "never"), name="sub", tools=[_look])
    agent = Agent(scripted(asks("sub"), "done"), tools=[below.limits(tokens=10).as_tool()])
    answer = go(agent.run("go"))
    assert answer == "done"
    assert "ERR_LIMIT_REACHED" in answer.messages[2].content
    assert answer.account.requests == 3


@tool(namespace="low", name="look")
def _look() -> str:
    return "seen"


def test_three_levels_count_at_the_top():
    low = Agent(scripted("low done"), name="low").as_tool()
    middle = Agent(scripted(asks("low"), "middle done"), name="middle", tools=[low]).as_tool()
    top = Agent(scripted(asks("middle"), "done"), tools=[middle])
    account = go(top.run("go")).account
    assert (account.requests, account.tool_calls, account.usage.tokens) == (5, 2, 75)


def test_agents_below_that_run_at_one_time_all_count():
    tools = [nested("a done", name="a"), nested("b done", name="b")]
    agent = Agent(scripted([asks("a"), asks("b")], "done"), tools=tools)
    account = go(agent.run("go")).account
    assert (account.requests, account.tool_calls) == (4, 2)


def test_a_failed_agent_below_counts_too():
    below = Agent(scripted("No."), name="sub", output_schema=Refund).as_tool()
    agent = Agent(scripted(asks("sub"), "done"), tools=[below])
    assert go(agent.run("go")).account.requests == 3


def test_runs_side_by_side_do_not_count_in_one_another():
    async def both():
        first, second = (Agent(scripted("done")) for _ in range(2))
        return await asyncio.gather(first.run("go"), second.run("go"))

    assert [answer.account.requests for answer in go(both())] == [1, 1]


def test_a_run_after_another_in_one_task_counts_alone():
    async def after():
        await Agent(scripted("done")).run("go")
        return await Agent(scripted("done")).run("go")

    assert go(after()).account.requests == 1


def test_a_stream_counts_what_is_below():
    async def story():
        agent = Agent(scripted(asks("sub"), "done"), tools=[nested("sub done")])
        return [item async for item in agent.stream("go")][-1].answer.account.requests

    assert go(story()) == 3


# --- pauses below ---------------------------------------------------------------------------


@tool(namespace="desk")
async def approve(context: Context) -> str:
    """Ask a person."""
    return await context.pause("May I?")


def desk(*replies, tools=(approve,), **options):
    return Agent(scripted(*replies), name="desk", tools=list(tools), **options)


def test_what_was_spent_before_a_pause_below_counts_once():
    paused = go(
        Agent(scripted(asks("desk")), tools=[desk(call("desk_approve")).as_tool()]).run("go")
    )
    assert isinstance(paused, Paused)
    assert paused.account.requests == 2
    again = Agent(scripted("done"), tools=[desk("yes it is").as_tool()])
    answer = go(again.resume(paused, "yes"))
    assert answer == "done"
    assert answer.account.requests == 4
    assert answer.account.usage.tokens == 60


def test_a_tool_that_is_gone_below_is_an_error_before_anything_runs():
    paused = go(
        Agent(scripted(asks("desk")), tools=[desk(call("desk_approve")).as_tool()]).run("go")
    )
    below = desk("never", tools=[_look])
    above = Agent(scripted("never"), tools=[below.as_tool()])
    with pytest.raises(UsageError, match=r"desk_approve.*'desk'.*low_look"):
        go(above.resume(paused, "yes"))
    assert below._plan.model.requests == above._plan.model.requests == []
    whole = Agent(scripted("done"), tools=[desk("yes it is").as_tool()])
    assert go(whole.resume(paused, "yes")) == "done"


def test_a_reply_in_the_middle_of_agents_keeps_the_contract_of_each():
    below = Agent(scripted(GOOD), name="sub", output_schema=Refund).as_tool()
    agent = Agent(scripted(asks("sub"), "done"), tools=[below])
    answer = go(agent.run("go"))
    assert json.loads(answer.messages[2].content) == {"amount": 5.0, "reason": "late"}
