"""Seed 003, row by row: the contract of an agent's final answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable

import pytest
from pydantic import BaseModel, ValidationError

from answers import CANNED, FENCED, GOOD, PROSE, VALUE, Heard, Refund, Tickets, call, go, refunds
from callpact import (
    Agent,
    Context,
    OutputSchemaError,
    RunPaused,
    Skill,
    UsageError,
    strict_output_rules,
    tool,
)
from callpact.agent import Answer, Paused, SqliteMemory
from callpact.testing import ScriptedModel

# The seed's words; only the description in the end is the schema's.
TEXT = (
    "Respond ONLY with valid JSON matching the output schema. Do NOT include prose, markdown "
    "fences, or explanatory text. The output shape: {}"
)
TICKETS = '{"status": "ok", "items": ["T-1", "T-2"]}'


def tickets(*replies):
    model = ScriptedModel(replies)
    agent = Agent(model, system="You are a support agent.").output_schema(Tickets)
    return agent, model


# --- what outputSchema does -----------------------------------------------------------------


@pytest.mark.requirement("003.declare.builder")
@pytest.mark.requirement("003.declare.one-declaration")
@pytest.mark.requirement("003.declare.sample")
@pytest.mark.requirement("003.access.run-typed")
@pytest.mark.requirement("003.type.narrowed")
def test_one_declaration_instructs_the_model_and_types_the_answer():
    agent, model = tickets(TICKETS)
    typed = go(agent.run_typed("list pending tickets"))
    assert type(typed) is Tickets
    assert (typed.status, typed.items) == ("ok", ["T-1", "T-2"])
    assert "valid JSON" in model.requests[0].system


@pytest.mark.requirement("003.declare.answer-is-json")
@pytest.mark.parametrize("answer", ["", "ok", "{'status': 'ok', 'items': []}", FENCED, '{"a":NaN}'])
def test_what_is_not_json_is_no_answer(answer):
    agent, _ = tickets(answer)
    with pytest.raises(OutputSchemaError) as caught:
        go(agent.run_typed("list pending tickets"))
    assert caught.value.stage == "json-parse"


@pytest.mark.requirement("003.instruct.auto")
@pytest.mark.requirement("003.instruct.text")
@pytest.mark.requirement("003.instruct.description")
def test_the_instruction_is_the_seeds_with_the_schemas_own_description():
    agent, model = tickets(TICKETS)
    go(agent.run("list pending tickets"))
    text = TEXT.format("A status flag and an array of item ids.")
    words, _, schema = model.requests[0].system.partition("\nThe output schema: ")
    assert words == f"You are a support agent.\n\n{text}"
    # An addition: the words alone need not name the fields.
    assert json.loads(schema)["required"] == ["status", "items"]


@pytest.mark.requirement("003.parse.json-then-parser")
@pytest.mark.requirement("003.parser.gets-json")
@pytest.mark.requirement("003.parser.structural")
def test_the_parser_is_given_the_value_that_the_json_stands_for():
    class Spy:
        given = []

        def parse(self, value):
            self.given.append(value)
            return "parsed"

    agent = Agent(ScriptedModel(['{"a": [1, null]}'])).output_schema(Spy())
    assert go(agent.run_typed("go")) == "parsed"
    assert {json.dumps(value) for value in Spy.given} == {'{"a": [1, null]}'}


@pytest.mark.requirement("003.parse.raises")
@pytest.mark.requirement("003.error.raw-output")
@pytest.mark.parametrize(
    ("answer", "stage"),
    [(PROSE, "json-parse"), ('{"status": "maybe", "items": []} ', "schema-validate")],
)
def test_either_step_fails_with_an_error_that_keeps_the_raw_answer(answer, stage):
    agent, _ = tickets(answer)
    with pytest.raises(OutputSchemaError) as caught:
        go(agent.run_typed("list pending tickets"))
    assert (caught.value.stage, caught.value.raw_output) == (stage, answer)


# --- access points --------------------------------------------------------------------------


@pytest.mark.requirement("003.access.parse-output")
def test_parse_output_gives_the_value_at_once_and_asks_nobody():
    agent, model = tickets()
    typed = agent.parse_output(TICKETS)
    assert not isinstance(typed, Awaitable)
    assert typed == Tickets(status="ok", items=["T-1", "T-2"])
    assert model.requests == []


@pytest.mark.requirement("003.access.parse-output-raises")
@pytest.mark.requirement("003.access.parse-output-async")
@pytest.mark.requirement("003.fallback.async-only")
def test_the_fallback_answers_where_one_can_wait_and_never_for_parse_output():
    agent, _ = refunds(PROSE, PROSE, canned=CANNED)
    canned = Refund(**CANNED)
    with pytest.raises(OutputSchemaError):
        agent.parse_output(PROSE)
    assert go(agent.parse_output_async(PROSE)) == canned
    assert go(agent.run_typed("refund?")) == canned
    assert go(agent.run("refund?")) == PROSE


@tool(namespace="main")
async def approve(context: Context) -> str:
    """Ask a person."""
    return await context.pause("May I?")


@pytest.mark.requirement("003.access.pause")
@pytest.mark.requirement("003.access.resume")
def test_a_pause_breaks_run_typed_and_is_gone_through_with_run_and_parse_output():
    def agent(*replies):
        return Agent(ScriptedModel(replies), tools=[approve], output_schema=Refund)

    with pytest.raises(RunPaused) as caught:
        go(agent(call("main_approve")).run_typed("refund?"))
    assert caught.value.paused.question == "May I?"

    paused = go(agent(call("main_approve")).run("refund?"))
    assert isinstance(paused, Paused)
    later = agent(GOOD)
    answer = go(later.resume(paused.checkpoint, "yes"))
    assert isinstance(answer, Answer)
    assert later.parse_output(answer) == VALUE


# --- custom instruction ---------------------------------------------------------------------


@pytest.mark.requirement("003.instruct.override")
@pytest.mark.requirement("003.instruct.name")
@pytest.mark.requirement("003.instruct.name-in-events")
def test_name_and_instruction_are_the_callers_and_events_tell_agents_apart():
    heard, words = Heard(), "Return only a JSON object: { status, items }."
    own = Agent(ScriptedModel([TICKETS])).output_schema(
        Tickets, name="support-output-contract", instruction=words
    )
    model = own._plan.model
    go(own.on(heard).run("list"))
    assert model.requests[0].system == words
    assert heard.of("context.injected") == [
        {"id": "support-output-contract", "slot": "system-prompt"}
    ]
    unnamed, _ = tickets(TICKETS)
    heard = Heard()
    go(unnamed.on(heard).run("list"))
    assert heard.one("context.injected")["id"] == "output-schema"


# --- two stages -----------------------------------------------------------------------------


@pytest.mark.requirement("003.error.stage")
@pytest.mark.requirement("003.error.json-parse")
@pytest.mark.parametrize("raw", [PROSE, FENCED, "", "{", "[1,]", "undefined"])
def test_prose_fences_and_other_non_json_are_json_parse(raw):
    with pytest.raises(OutputSchemaError) as caught:
        refunds()[0].parse_output(raw)
    assert caught.value.stage == "json-parse"


@pytest.mark.requirement("003.error.schema-validate")
@pytest.mark.requirement("003.error.cause")
@pytest.mark.parametrize(
    ("raw", "path"),
    [('{"status": "ok"}', "/items"), ('{"status": "no", "items": []}', "/status"), ("[]", "")],
)
def test_json_of_another_shape_is_schema_validate_with_the_validators_error(raw, path):
    with pytest.raises(OutputSchemaError) as caught:
        tickets()[0].parse_output(raw)
    error = caught.value
    assert (error.stage, error.path) == ("schema-validate", path)
    assert type(error.cause) is ValidationError
    assert error.cause.error_count() == len(error.issues) == 1


@pytest.mark.requirement("003.error.advice")
def test_the_error_says_what_the_seed_advises():
    with pytest.raises(OutputSchemaError) as caught:
        refunds()[0].parse_output(PROSE)
    assert "tighten the instruction" in str(caught.value)
    assert "fallback" in str(caught.value)


# --- graceful recovery ----------------------------------------------------------------------


async def manual_review(error, raw):
    return {"amount": 0, "reason": "manual review"}


def _recovering(answer, fallback=manual_review):
    model = ScriptedModel([answer])
    agent = Agent(model, system="You decide refund amounts.").output_schema(Refund)
    return agent.output_fallback(fallback=fallback, canned=CANNED)


@pytest.mark.requirement("003.fallback.value-either-way")
@pytest.mark.requirement("003.fallback.primary")
@pytest.mark.requirement("003.fallback.function")
@pytest.mark.requirement("003.fallback.revalidated")
@pytest.mark.requirement("003.fallback.canned")
def test_three_tiers_give_a_typed_value_whatever_happens():
    def raising(error, raw):
        raise ValueError("no idea")

    assert go(_recovering(GOOD).run_typed("refund?")) == VALUE
    assert go(_recovering(PROSE).run_typed("refund?")).reason == "manual review"
    assert go(_recovering(PROSE, lambda error, raw: {}).run_typed("x")) == Refund(**CANNED)
    assert go(_recovering(PROSE, raising).run_typed("refund?")) == Refund(**CANNED)


@pytest.mark.requirement("003.fallback.canned-at-build")
def test_a_canned_value_that_breaks_the_contract_is_refused_where_it_is_declared():
    agent, model = refunds()
    with pytest.raises(UsageError):
        agent.output_fallback(canned={"amount": "none"})
    assert model.requests == []


@pytest.mark.requirement("003.fallback.needs-schema")
def test_a_fallback_has_nothing_to_keep_without_a_schema():
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).output_fallback(canned=CANNED)


# --- duck-typed parser ----------------------------------------------------------------------


class Wrapped:
    """What wraps the validator of another library."""

    description = "{ x: number }"

    @staticmethod
    def parse(value):
        return json.loads(json.dumps(value))["x"]


class HandWritten:
    description = "{ x: number }"

    def parse(self, value):
        if not isinstance(value, dict):
            raise TypeError("expected object")
        if not isinstance(value.get("x"), int | float):
            raise ValueError("x must be number")
        return {"x": value["x"]}


@pytest.mark.requirement("003.parser.zod")
@pytest.mark.requirement("003.parser.wrapped")
@pytest.mark.requirement("003.parser.hand-written")
@pytest.mark.requirement("003.instruct.parser-description")
def test_anything_that_parses_is_a_parser_and_its_description_is_told():
    class Modelled(BaseModel):
        x: float

    for parser, value in ((Modelled, Modelled(x=1)), (Wrapped, 1), (HandWritten(), {"x": 1})):
        model = ScriptedModel(['{"x": 1}'])
        assert go(Agent(model).output_schema(parser).run_typed("x?")) == value
        if parser is not Modelled:
            assert model.requests[0].system == TEXT.format("{ x: number }.")


@pytest.mark.requirement("003.parser.whatever-it-raises")
@pytest.mark.parametrize(("raw", "kind"), [("[]", TypeError), ('{"x": "1"}', ValueError)])
def test_whatever_a_parser_raises_is_the_cause(raw, kind):
    agent = Agent(ScriptedModel([])).output_schema(HandWritten())
    with pytest.raises(OutputSchemaError) as caught:
        agent.parse_output(raw)
    assert type(caught.value.cause) is kind
    assert caught.value.__cause__ is caught.value.cause


# --- composing ------------------------------------------------------------------------------


@tool(namespace="main")
def look(order: str) -> str:
    """Look up an order."""
    return f"{order} is late"


@pytest.mark.requirement("003.compose.one-injection")
@pytest.mark.requirement("003.compose.per-iteration")
@pytest.mark.requirement("003.compose.always-on")
@pytest.mark.requirement("003.compose.sample")
def test_skills_instructions_memory_and_the_contract_are_composed_for_each_iteration(tmp_path):
    model = ScriptedModel([call("main_look", {"order": "A1"}), GOOD, GOOD])
    store = SqliteMemory(tmp_path / "memory.db")
    agent = (
        Agent(model, system="You are a refund triage agent.", tools=[look])
        .instruction(lambda turn: f"Be friendly, iteration {turn.iteration}.", name="friendly")
        .skills(Skill("returns", "How returns work", "Ask for the box."))
        .memory(store)
        .output_schema(Refund)
    )
    go(agent.run("refund?"))
    go(agent.run("and now?"))
    store.close()
    contract = TEXT.format("What is paid back, and why.")
    for request, iteration in zip(model.requests, (1, 2, 1), strict=True):
        assert f"iteration {iteration}." in request.system
        assert request.system.count(contract) == 1
        assert "- returns: How returns work" in request.system
    assert [message.content for message in model.requests[2].messages] == [
        "refund?",
        GOOD,
        "and now?",
    ]


@pytest.mark.requirement("003.compose.order")
def test_the_order_of_declaring_changes_the_order_of_words_and_nothing_else():
    texts = []
    for is_first in (True, False):
        model = ScriptedModel([GOOD])
        agent = Agent(model)
        if is_first:
            agent = agent.output_schema(Refund).instruction("Be friendly.")
        else:
            agent = agent.instruction("Be friendly.").output_schema(Refund)
        assert go(agent.run_typed("refund?")) == VALUE
        texts.append(model.requests[0].system.split("\n\n"))
    assert texts[0] == texts[1][::-1]
    assert len(texts[0]) == 2


# --- anti-patterns --------------------------------------------------------------------------


@pytest.mark.requirement("003.anti.tool-results")
def test_tool_results_are_not_held_to_the_contract_of_the_answer():
    heard = Heard()
    agent, _ = refunds(call("main_look", {"order": "A1"}), GOOD, tools=[look])
    assert go(agent.on(heard).run_typed("refund?")) == VALUE
    assert not [name for name in heard.types if "schema" in name or "contract" in name]


@pytest.mark.requirement("003.anti.twice")
@pytest.mark.requirement("003.anti.two-agents")
def test_a_second_contract_is_refused_and_two_agents_are_the_way():
    base = Agent(ScriptedModel([GOOD, TICKETS]))
    first, second = base.output_schema(Refund), base.output_schema(Tickets)
    with pytest.raises(UsageError, match="already set"):
        first.output_schema(Tickets)
    assert type(go(first.run_typed("refund?"))) is Refund
    assert type(go(second.run_typed("tickets?"))) is Tickets


@pytest.mark.requirement("003.anti.shape-in-lockstep")
def test_the_told_shape_follows_the_type():
    class Narrow(BaseModel):
        x: int

    class Wide(BaseModel):
        x: int
        y: str

    def told(kind):
        model = ScriptedModel(['{"x": 1, "y": ""}'])
        go(Agent(model, output_schema=kind).run("x?"))
        return model.requests[0].system

    assert '"y"' not in told(Narrow)
    assert '"y"' in told(Wide)


# --- strict output, and a procedure as one tool ---------------------------------------------


@pytest.mark.requirement("003.strict.same-turn")
@pytest.mark.requirement("003.strict.no-iteration")
@pytest.mark.requirement("003.strict.ephemeral")
def test_strict_output_asks_again_within_the_iteration_and_leaves_no_trace():
    agent, model = refunds(PROSE, GOOD)
    answer = go(agent.reliability(strict_output_rules(3)).run("refund?"))
    assert agent.parse_output(answer) == VALUE
    assert (answer.account.iterations, answer.account.requests) == (1, 2)
    assert [message.ephemeral for message in model.requests[1].messages] == [False, True, True]
    assert [message.content for message in answer.messages] == ["refund?", GOOD]


@pytest.mark.requirement("003.strict.stuck-loop")
def test_a_model_that_fails_alike_is_stopped_early():
    agent, model = refunds(PROSE, PROSE, GOOD, canned=CANNED)
    typed = go(agent.reliability(strict_output_rules(5)).run_typed("refund?"))
    assert (typed, len(model.requests)) == (Refund(**CANNED), 2)


@tool(namespace="main")
async def onboard(name: str, context: Context) -> dict:
    """A procedure of several steps, with a branch."""
    plan = await context.pause("Which plan?")
    if plan == "free":
        return {"name": name, "plan": plan}
    card = await context.pause("Which card?")
    return {"name": name, "plan": plan, "card": card}


@pytest.mark.requirement("003.flow.one-tool")
@pytest.mark.parametrize("answers", [["free"], ["paid", "visa"]])
def test_a_procedure_with_branches_and_pauses_is_one_tool(answers):
    agent = Agent(ScriptedModel([call("main_onboard", {"name": "Ada"}), "done"]), tools=[onboard])
    outcome = go(agent.run("onboard Ada"))
    for answer in answers:
        assert isinstance(outcome, Paused)
        outcome = go(agent.resume(outcome.checkpoint, answer))
    assert outcome == "done"
    result = next(message for message in outcome.messages if message.role == "tool")
    keys = ("name", "plan", "card")
    assert json.loads(result.content) == dict(zip(keys, ("Ada", *answers), strict=False))
