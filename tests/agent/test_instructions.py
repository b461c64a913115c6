"""What is put before a model: composed anew for every request, each under its own id."""

from __future__ import annotations

import pytest

from answers import GOOD, Heard, Refund, call, go, refunds
from callpact import Agent, Skill, UsageError, tool
from callpact.testing import ScriptedModel

RETURNS = Skill("returns", "How returns work", "Ask for the box.")
TAXES = Skill("taxes", "How taxes work", "Add them up.")


@tool(namespace="main")
def look() -> str:
    """Look."""
    return "seen"


def systems(agent, model, message="go"):
    go(agent.run(message))
    return [request.system for request in model.requests]


def test_the_prompt_is_the_base_and_the_injections_in_order_with_a_blank_line_between():
    model = ScriptedModel(["done"])
    agent = Agent(model, system="Base.").instruction("One.").instruction("Two.", name="second")
    assert systems(agent, model) == ["Base.\n\nOne.\n\nTwo."]


def test_without_anything_the_prompt_is_empty():
    model = ScriptedModel(["done"])
    assert systems(Agent(model), model) == [""]


def test_a_function_is_asked_for_its_words_at_every_iteration():
    turns = []

    def words(turn):
        turns.append(turn)
        return f"Iteration {turn.iteration}." if turn.iteration != 2 else None

    model = ScriptedModel([call("main_look"), call("main_look"), "done"])
    heard = Heard()
    agent = Agent(model, tools=[look]).instruction(words, name="counting").on(heard)
    assert systems(agent, model) == ["Iteration 1.", "", "Iteration 3."]
    assert len({turn.run_id for turn in turns}) == 1
    assert [len(turn.messages) for turn in turns] == [1, 3, 5]
    injected = [e.iteration for e in heard.events if e.type == "context.injected"]
    assert injected == [1, 3]


@pytest.mark.parametrize("given", [5, b"x", ["a"], object()])
def test_a_function_that_gives_no_text_is_named(given):
    agent = Agent(ScriptedModel(["done"])).instruction(lambda turn: given, name="mine")
    with pytest.raises(UsageError, match="mine"):
        go(agent.run("go"))


def test_a_function_that_raises_ends_the_run_with_its_own_error():
    with pytest.raises(ZeroDivisionError):
        go(Agent(ScriptedModel(["done"])).instruction(lambda turn: 1 / 0).run("go"))


@pytest.mark.parametrize(
    "declare",
    [
        lambda agent: agent.instruction("a", name="x").instruction("b", name="x"),
        lambda agent: agent.output_schema(Refund).instruction("a", name="output-schema"),
        lambda agent: agent.instruction("a", name="output-schema").output_schema(Refund),
        lambda agent: agent.instruction("a", name="x").output_schema(Refund, name="x"),
        lambda agent: agent.instruction(5),
        lambda agent: agent.instruction(None),
        lambda agent: agent.skills(RETURNS, RETURNS),
        lambda agent: agent.skills(RETURNS).skills(TAXES, RETURNS),
    ],
)
def test_two_of_one_name_and_what_is_no_text_are_refused(declare):
    with pytest.raises(UsageError):
        declare(Agent(ScriptedModel([])))


def test_instructions_without_a_name_never_collide():
    agent = Agent(ScriptedModel([])).output_schema(Refund)
    for _ in range(5):
        agent = agent.instruction("More.")
    assert len(agent._plan.injections) == 6


# --- skills ---------------------------------------------------------------------------------


def test_a_skill_is_listed_and_its_text_comes_when_it_was_read():
    model = ScriptedModel([call("read_skill", {"name": "returns"}), "done"])
    agent = Agent(model).skills(RETURNS, TAXES)
    before, after = systems(agent, model)
    assert "- returns: How returns work" in before
    assert "- taxes: How taxes work" in before
    assert RETURNS.text not in before
    assert RETURNS.text in after
    assert TAXES.text not in after
    assert [offer.name for offer in model.requests[0].tools] == ["read_skill"]
    schema = model.requests[0].tools[0].input_schema
    assert schema["properties"]["name"]["enum"] == ["returns", "taxes"]


def test_a_skill_that_was_read_twice_stands_once():
    model = ScriptedModel([[call("read_skill", {"name": "returns"})] * 2, "done"])
    assert systems(Agent(model).skills(RETURNS), model)[1].count(RETURNS.text) == 1


@pytest.mark.parametrize("arguments", [{"name": "magic"}, {}, {"name": 5}, [], "returns", None])
def test_a_skill_that_is_not_there_is_told_with_those_that_are(arguments):
    model = ScriptedModel([call("read_skill", arguments, x=1), "done"])
    agent = Agent(model).skills(RETURNS, TAXES)
    answer = go(agent.run("go"))
    result = answer.messages[2]
    assert result.is_error
    assert "skill_not_found" in result.content
    assert "returns, taxes" in result.content


def test_skills_stand_beside_tools_and_the_contract():
    agent, model = refunds(call("read_skill", {"name": "returns"}), GOOD, tools=[look])
    agent = agent.skills(RETURNS)
    answer = go(agent.run("refund?"))
    assert agent.parse_output(answer)
    assert [offer.name for offer in model.requests[0].tools] == ["main_look", "read_skill"]
    assert RETURNS.text in model.requests[1].system


def test_without_skills_read_skill_is_a_tool_like_any_other():
    answer = go(Agent(ScriptedModel([call("read_skill", {"name": "x"}), "done"])).run("go"))
    assert "tool_not_found" in answer.messages[2].content
