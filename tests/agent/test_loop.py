"""One run: re-asks, limits, forced answers, what it costs, and where it ends."""

from __future__ import annotations

import asyncio

import pytest

from answers import CANNED, CUT, GOOD, PROSE, VALUE, WRONG, Heard, Refund, call, go, refunds
from callpact import (
    Agent,
    LimitReached,
    ModelError,
    OutputSchemaError,
    UsageError,
    strict_output_rules,
    tool,
)
from callpact.agent import ModelReply, Rule, Usage
from callpact.agent.budget import MAX_ITERATIONS
from callpact.agent.run.loop import _fnv1a
from callpact.errors import RunStopped
from callpact.testing import ScriptedModel


@tool(namespace="main")
def look() -> str:
    """Look."""
    return "seen"


# --- re-asks, section 8 ---------------------------------------------------------------------


def test_a_re_ask_joins_the_failed_answer_and_the_correction_to_the_conversation_for_good():
    agent, model = refunds(WRONG, GOOD, retries=1)
    answer = go(agent.run("refund?"))
    said = model.requests[1].messages
    assert [message.role for message in said] == ["user", "assistant", "user"]
    assert said[1].content == WRONG
    assert said[2].content.startswith("[schema check, attempt 2 of 2]")
    assert not any(message.ephemeral for message in said)
    assert answer.messages[:3] == said
    assert answer.messages[3].content == GOOD


def test_the_ledger_has_a_row_for_every_judged_answer():
    heard = Heard()
    agent, _ = refunds(WRONG, PROSE, GOOD, retries=3)
    answer = go(agent.on(heard).run("refund?"))
    rows = answer.account.attempts
    assert [(row.attempt, row.iteration, row.outcome) for row in rows] == [
        (1, 1, "retried"),
        (2, 2, "retried"),
        (3, 3, "passed"),
    ]
    assert [row.stage for row in rows] == ["schema-validate", "json-parse", None]
    assert rows[0].path == "/amount"
    assert rows[2].corrective_message_hash is None
    assert answer.account.unmet is None
    told = heard.of("agent.output_schema_retry")
    assert [(each["attempt"], each["retries_remaining"]) for each in told] == [(1, 2), (2, 1)]
    sent = [message.content for message in answer.messages if message.content.startswith("[schema")]
    hashes = [each["corrective_message_hash"] for each in told]
    assert hashes == [row.corrective_message_hash for row in rows[:2]] == list(map(_fnv1a, sent))


@pytest.mark.parametrize(
    ("text", "digest"), [("", "811c9dc5"), ("a", "e40c292c"), ("foobar", "bf9cf968")]
)
def test_the_hash_is_fnv_1a_of_32_bits(text, digest):
    assert _fnv1a(text) == digest


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_contract_that_stays_broken_is_told_once_and_the_answer_stands(retries, caplog):
    heard = Heard()
    agent, model = refunds(*[WRONG] * (retries + 1), retries=retries)
    answer = go(agent.on(heard).run("refund?"))
    assert answer == WRONG
    assert len(model.requests) == retries + 1
    unmet = answer.account.unmet
    assert (unmet.attempts, unmet.retries_spent, unmet.path) == (retries + 1, retries, "/amount")
    assert answer.account.attempts[-1].outcome == "exhausted"
    told = heard.one("agent.output_contract_unmet")
    assert (told["attempts"], told["retries_spent"], told["stage"]) == (
        retries + 1,
        retries,
        "schema-validate",
    )
    assert told["fallback_configured"] is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "much" not in caplog.text


def test_run_typed_tells_of_the_unmet_contract_before_the_tiers_are_tried():
    heard = Heard()
    agent, _ = refunds(PROSE, canned=CANNED)
    go(agent.on(heard).run_typed("refund?"))
    names = heard.types
    assert names.index("agent.output_contract_unmet") < names.index("resilience.output_canned_used")


@pytest.mark.parametrize("retries", [-1, 11, True, 1.5, "2", None])
def test_retries_are_a_number_from_0_to_10(retries):
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).output_schema(Refund, retries=retries)
    assert Agent(ScriptedModel([])).output_schema(Refund, retries=10)


def test_rules_come_first_and_retries_judge_what_they_committed():
    agent, model = refunds(ModelError("down", status=503), GOOD, retries=1)
    rule = Rule(lambda scope: scope.error is not None, "fallback", "x")
    agent = agent.reliability(rule, fallback=lambda *_: PROSE)
    answer = go(agent.run("refund?"))
    assert (answer, answer.account.iterations) == (GOOD, 2)
    assert len(model.requests) == 2


def test_a_parser_that_raises_something_without_words_is_a_failure_all_the_same():
    class Odd(Exception):
        pass

    def parse(value):
        if value == 1:
            raise Odd
        return value

    agent = Agent(ScriptedModel(["1", "2"])).output_schema(parse, retries=1)
    assert go(agent.run_typed("go")) == 2


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "name", "requests"),
    [
        ({"iterations": 2}, "iterations", 2),
        ({"tokens": 16}, "tokens", 2),
        ({"tokens": 15}, "tokens", 1),
        ({"cost": 0.5}, "cost", 2),
    ],
)
def test_a_run_is_stopped_at_its_limit_with_its_account(limits, name, requests):
    model = ScriptedModel([call("main_look")] * 9, tokens=Usage(10, 5, 0.25))
    agent = Agent(model, tools=[look]).limits(**limits)
    with pytest.raises(LimitReached) as caught:
        go(agent.run("go"))
    error = caught.value
    assert (error.limit, error.allowed) == (name, limits[name])
    assert isinstance(error, RunStopped)
    assert error.account.requests == len(model.requests) == requests
    assert error.account.usage == Usage(10 * requests, 5 * requests, 0.25 * requests)


def test_an_answer_that_is_there_stands_whatever_it_cost():
    agent = Agent(ScriptedModel(["done"], tokens=Usage(10**6, 10**6, 9.0)))
    assert go(agent.limits(tokens=1, cost=0.1, iterations=1).run("go")) == "done"


def test_iterations_are_limited_by_default():
    model = ScriptedModel(lambda request: call("main_look"))
    with pytest.raises(LimitReached):
        go(Agent(model, tools=[look]).run("go"))
    assert len(model.requests) == MAX_ITERATIONS


class Silent:
    name = "silent"

    async def complete(self, request):
        await asyncio.Event().wait()


def test_a_model_that_never_answers_is_left_when_the_time_is_up():
    with pytest.raises(LimitReached) as caught:
        go(Agent(Silent()).limits(seconds=0.05).run("go"))
    assert (caught.value.limit, caught.value.allowed) == ("seconds", 0.05)
    assert caught.value.account.requests == 1


def test_the_model_is_told_how_much_time_is_left():
    model = ScriptedModel(["done", "done"])
    go(Agent(model).limits(seconds=50).run("go"))
    go(Agent(model).run("go"))
    assert 0 < model.requests[0].timeout <= 50
    assert model.requests[1].timeout is None


@pytest.mark.parametrize("name", ["iterations", "tokens", "cost", "seconds", "rejections"])
@pytest.mark.parametrize("value", [0, -1, True, "5", float("nan")])
def test_a_limit_is_a_positive_number(name, value):
    with pytest.raises(UsageError, match=name):
        Agent(ScriptedModel([])).limits(**{name: value})


@pytest.mark.parametrize("name", ["iterations", "tokens", "rejections"])
def test_what_is_counted_is_limited_by_a_whole_number(name):
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).limits(**{name: 1.5})


def test_cancelling_a_run_is_not_swallowed_and_leaves_no_task():
    async def story():
        heard = Heard()
        task = asyncio.create_task(Agent(Silent()).on(heard).run("go"))
        while "stream.llm_start" not in heard.types:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return heard.types[-1], asyncio.all_tasks() - {asyncio.current_task()}

    assert go(story()) == ("agent.turn_end", set())


# --- what a model can do --------------------------------------------------------------------


def test_a_forced_answer_is_the_arguments_of_one_call():
    model = ScriptedModel(
        [GOOD, {"tool": "respond_with_schema", "arguments": {"amount": 1, "reason": ""}}]
    )
    agent = Agent(model).output_schema(Refund, strategy="tool-forced")
    heard = Heard()
    assert go(agent.on(heard).run_typed("refund?")) == VALUE
    assert go(agent.run_typed("refund?")) == Refund(amount=1, reason="")
    request = model.requests[0]
    assert request.forced_tool == "respond_with_schema"
    (offer,) = request.tools
    assert offer.name == "respond_with_schema"
    assert set(offer.input_schema["properties"]) == {"amount", "reason"}
    assert request.answer_schema is None
    assert heard.of("stream.tool_start") == []


def test_a_forced_answer_is_judged_and_asked_for_again_like_any_other():
    model = ScriptedModel([WRONG, GOOD])
    agent = Agent(model).output_schema(Refund, strategy="tool-forced", retries=1)
    assert go(agent.run_typed("refund?")) == VALUE
    assert model.requests[1].messages[1].content == WRONG


def test_text_instead_of_a_forced_call_is_an_answer_too():
    model = ScriptedModel([ModelReply(GOOD)])
    agent = Agent(model).output_schema(Refund, strategy="tool-forced")
    assert go(agent.run_typed("refund?")) == VALUE


def test_a_model_that_cannot_be_forced_is_refused_before_it_is_asked():
    for models in ([()], [("forced-tool",), ()]):
        first, *rest = [ScriptedModel([GOOD], abilities=each) for each in models]
        agent = Agent(first).output_schema(Refund, strategy="tool-forced")
        if rest:
            agent = agent.reliability(providers=rest)
        with pytest.raises(UsageError):
            go(agent.run("refund?"))
        assert first.requests == []


def test_a_forced_answer_needs_a_json_schema():
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).output_schema(lambda value: value, strategy="tool-forced")
    assert Agent(ScriptedModel([])).output_schema(
        lambda value: value, strategy="tool-forced", json_schema={"type": "object"}
    )


def test_the_schema_is_sent_only_to_a_model_that_declares_it_can_keep_it():
    able = ScriptedModel([GOOD], abilities=["native-output"])
    unable = ScriptedModel([GOOD], abilities=[])
    for model in (able, unable):
        go(Agent(model, output_schema=Refund).run("refund?"))
    assert set(able.requests[0].answer_schema["properties"]) == {"amount", "reason"}
    assert unable.requests[0].answer_schema is None
    assert "valid JSON" in able.requests[0].system


def test_settings_go_to_the_model_as_they_are():
    model = ScriptedModel(["done"])
    settings = {"temperature": 0.1}
    agent = Agent(model, settings=settings)
    settings["temperature"] = 2
    go(agent.run("go"))
    assert model.requests[0].settings == {"temperature": 0.1}


# --- the account ----------------------------------------------------------------------------


def test_an_error_of_the_answer_has_the_account_of_its_run():
    agent, _ = refunds(PROSE, CUT, retries=1)
    with pytest.raises(OutputSchemaError) as caught:
        go(agent.run_typed("refund?"))
    assert caught.value.account.requests == 2
    assert caught.value.account.unmet.retries_spent == 1


def test_a_run_that_fails_tells_its_end_with_what_it_cost():
    heard = Heard()
    agent, _ = refunds(PROSE, PROSE)
    with pytest.raises(RunStopped):
        go(agent.on(heard).reliability(strict_output_rules(3)).run("refund?"))
    end = heard.one("agent.turn_end")
    assert (end["requests"], end["input_tokens"], end["output_tokens"]) == (2, 20, 10)
    assert "cost" not in end


def test_every_run_has_an_id_of_its_own():
    agent = Agent(ScriptedModel(["a", "b"]))
    assert go(agent.run("x")).account.run_id != go(agent.run("x")).account.run_id


def test_one_agent_runs_many_times_at_once():
    async def story():
        agent = Agent(ScriptedModel(lambda request: request.messages[0].content), tools=[look])
        return await asyncio.gather(*[agent.run(str(at)) for at in range(50)])

    assert go(story()) == [str(at) for at in range(50)]
