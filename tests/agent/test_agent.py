"""Declaring an agent: never changed, the same by keyword, and what cannot be is refused."""

from __future__ import annotations

import copy
import pickle

import pytest

from answers import CANNED, GOOD, PROSE, VALUE, Refund, Tickets, call, go, refunds
from callpact import Agent, Skill, UsageError, strict_output_rules, tool
from callpact.agent import Answer, Token
from callpact.agent.declaration import MAX_MESSAGE
from callpact.testing import ScriptedModel


@tool(namespace="main")
def look() -> str:
    """Look."""
    return "seen"


def test_keywords_and_methods_make_the_same_agent():
    chained = (
        Agent(ScriptedModel([PROSE, PROSE]), system="Base.")
        .tools([look])
        .output_schema(Refund, retries=1)
        .output_fallback(canned=CANNED)
    )
    keyed = Agent(
        ScriptedModel([PROSE, PROSE]),
        system="Base.",
        tools=[look],
        output_schema=Refund,
        retries=1,
        canned=CANNED,
    )
    for agent in (chained, keyed):
        assert go(agent.run_typed("refund?")) == Refund(**CANNED)
    first, second = (agent._plan.model.requests for agent in (chained, keyed))
    assert first == second


def test_declaring_changes_no_agent():
    base = Agent(ScriptedModel(["plain"]))
    declared = [
        base.tools([look]),
        base.output_schema(Refund),
        base.instruction("More."),
        base.skills(Skill("a", "b", "c")),
        base.limits(iterations=1),
        base.on(print),
        base.reliability(strict_output_rules(2)),
    ]
    assert all(agent is not base for agent in declared)
    go(base.run("go"))
    (request,) = base._plan.model.requests
    assert (request.system, request.tools) == ("", ())


@pytest.mark.parametrize(
    "message", ["", "  \n", None, 5, b"x", {}, {"text": "x"}, {"message": 5}, {"message": " "}]
)
def test_an_empty_or_odd_message_is_refused_before_the_model_is_asked(message):
    agent, model = refunds(GOOD)
    with pytest.raises(UsageError):
        go(agent.run(message))
    with pytest.raises(UsageError):
        go(agent.run_typed(message))
    assert model.requests == []


def test_a_message_is_text_or_a_mapping_with_it():
    agent, model = refunds(GOOD, GOOD)
    go(agent.run("refund?"))
    go(agent.run_typed({"message": "refund?"}))
    assert model.requests[0] == model.requests[1]


def test_a_message_has_a_size_that_is_taken():
    agent = Agent(ScriptedModel(["a"]))
    assert go(agent.run("x" * MAX_MESSAGE)) == "a"
    with pytest.raises(UsageError):
        go(agent.run("x" * (MAX_MESSAGE + 1)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agent("gpt-5"),
        lambda: Agent(None),
        lambda: Agent(object()),
        lambda: Agent(ScriptedModel([]), system=5),
        lambda: Agent(ScriptedModel([]), name="a b"),
        lambda: Agent(ScriptedModel([]), name=""),
        lambda: Agent(ScriptedModel([]), retries=1),
        lambda: Agent(ScriptedModel([]), canned=1),
        lambda: Agent(ScriptedModel([]), fallback=print),
        lambda: Agent(ScriptedModel([]), sytem="a typo"),
        lambda: Agent(ScriptedModel([]), output_schema=Refund, strategy="tool-forced"),
        lambda: Agent(ScriptedModel([])).output_schema(Refund, strategy="guess"),
        lambda: Agent(ScriptedModel([])).output_schema(Refund, allow={"guess"}),
        lambda: (
            Agent(ScriptedModel([]))
            .skills(Skill("a", "b", "c"))
            .output_schema(Refund, strategy="tool-forced")
        ),
        lambda: (
            Agent(ScriptedModel([]))
            .output_schema(Refund, strategy="tool-forced")
            .skills(Skill("a", "b", "c"))
        ),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(make):
    with pytest.raises(UsageError):
        make()


def test_an_agent_is_shown_by_its_parts():
    agent = Agent(ScriptedModel([], name="mine"), name="triage", output_schema=Tickets)
    assert repr(agent) == "Agent('mine', name='triage', output_schema=Tickets)"
    assert agent.name == "triage"


# --- answers --------------------------------------------------------------------------------


def test_an_answer_is_its_text_with_the_account_beside_it():
    agent, _ = refunds(call("main_look"), GOOD, tools=[look])
    answer = go(agent.run("refund?"))
    assert isinstance(answer, str)
    assert isinstance(answer, Answer)
    assert (answer, hash(answer)) == (GOOD, hash(GOOD))
    account = answer.account
    assert (account.iterations, account.requests, account.tool_calls) == (2, 2, 1)
    assert account.seconds > 0
    assert [message.role for message in answer.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))]
)
def test_an_answer_survives_copying_and_pickling(twin):
    answer = go(Agent(ScriptedModel(["done"])).run("go"))
    other = twin(answer)
    assert (other, other.account, other.messages) == (answer, answer.account, answer.messages)


def test_run_gives_the_raw_answer_also_when_it_breaks_the_contract():
    agent, _ = refunds(PROSE)
    assert go(agent.run("refund?")) == PROSE


def test_the_package_gives_its_names_on_first_use():
    import callpact

    assert callpact.Agent is Agent
    assert callpact.agent.Token is Token
    assert go(callpact.Agent(ScriptedModel([GOOD]), output_schema=Refund).run_typed("x")) == VALUE
