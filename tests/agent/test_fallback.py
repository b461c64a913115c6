"""What is given instead of an answer that breaks its contract."""

from __future__ import annotations

import asyncio
import threading

import pytest

from answers import CANNED, GOOD, PROSE, VALUE, WRONG, Heard, Refund, call, go, refunds
from callpact import Agent, ModelError, OutputSchemaError, UsageError
from callpact.errors import RunStopped
from callpact.testing import ScriptedModel


def test_a_fallback_gets_the_error_and_the_raw_answer():
    given = []

    def fallback(error, raw):
        given.append((error.stage, error.raw_output, raw))
        return CANNED

    agent, _ = refunds(WRONG, fallback=fallback)
    go(agent.run_typed("refund?"))
    assert given == [("schema-validate", WRONG, WRONG)]


def test_a_fallback_may_be_asynchronous():
    async def fallback(error, raw):
        await asyncio.sleep(0)
        return CANNED

    agent, _ = refunds(WRONG, fallback=fallback)
    assert go(agent.run_typed("refund?")) == Refund(**CANNED)


@pytest.mark.parametrize("given", [VALUE, {"amount": 5.0, "reason": "late"}])
def test_a_fallback_may_give_data_or_a_typed_value(given):
    agent, _ = refunds(WRONG, fallback=lambda *_: given)
    assert go(agent.run_typed("refund?")) == VALUE


def test_a_string_from_a_fallback_is_judged_as_a_string():
    agent, _ = refunds(WRONG, fallback=lambda *_: GOOD, canned=CANNED)
    assert go(agent.run_typed("refund?")) == Refund(**CANNED)


def test_a_fallback_that_gives_a_bad_value_without_a_canned_one_breaks_the_contract():
    agent, _ = refunds(WRONG, fallback=lambda *_: {})
    with pytest.raises(OutputSchemaError) as caught:
        go(agent.run_typed("refund?"))
    assert caught.value.raw_output == WRONG
    assert caught.value.path == "/amount"


def test_other_failures_do_not_open_the_fallback():
    called = []
    agent, _ = refunds(ModelError("down"), fallback=called.append, canned=CANNED)
    with pytest.raises(ModelError):
        go(agent.run_typed("refund?"))
    agent, _ = refunds(canned=CANNED)
    with pytest.raises(UsageError):
        go(agent.run_typed("  "))
    assert called == []


def test_a_limit_does_not_open_the_fallback():
    agent, _ = refunds(call("nothing"), call("nothing"), GOOD, canned=CANNED)
    with pytest.raises(RunStopped):
        go(agent.limits(iterations=2).run_typed("refund?"))


@pytest.mark.parametrize(
    "declare",
    [
        lambda agent: agent.output_fallback(),
        lambda agent: agent.output_fallback(fallback=CANNED),
        lambda agent: agent.output_fallback(fallback=None),
        lambda agent: agent.output_fallback(canned=CANNED).output_fallback(canned=CANNED),
        lambda agent: agent.output_fallback(canned=None),
        lambda agent: agent.output_fallback(canned=object()),
        lambda agent: agent.output_fallback(canned=GOOD),
    ],
)
def test_what_cannot_be_a_fallback_is_refused_where_it_is_declared(declare):
    with pytest.raises(UsageError):
        declare(refunds()[0])


def test_a_canned_value_that_cannot_be_copied_is_refused():
    agent = Agent(ScriptedModel([])).output_schema(lambda value: value)
    with pytest.raises(UsageError):
        agent.output_fallback(canned={"lock": threading.Lock()})


def test_a_canned_value_may_be_a_typed_one():
    agent, _ = refunds(PROSE, canned=VALUE)
    assert go(agent.run_typed("refund?")) == VALUE


def test_every_caller_gets_a_canned_value_of_its_own():
    agent = Agent(ScriptedModel([PROSE, PROSE]), output_schema=list[int], canned=[1])
    go(agent.run_typed("go")).append(2)
    assert go(agent.run_typed("go")) == [1]


def test_a_canned_value_of_a_json_schema_is_a_copy_for_its_author_and_for_every_caller():
    canned = {"rows": [1]}
    agent = Agent(ScriptedModel([PROSE] * 2), output_schema={"type": "object"}, canned=canned)
    canned["rows"].append("of the author")
    go(agent.run_typed("go"))["rows"].append("of a caller")
    assert go(agent.run_typed("go")) == {"rows": [1]}


def test_a_canned_value_answers_also_when_the_parser_changes_its_mind():
    is_open = [True]

    def parse(value):
        if not is_open[0] or value != {"x": 1}:
            raise ValueError("closed")
        return value["x"]

    agent = Agent(ScriptedModel([PROSE])).output_schema(parse).output_fallback(canned={"x": 1})
    is_open[0] = False
    assert go(agent.run_typed("go")) == 1


def test_retries_are_spent_before_the_tiers_and_told_with_them():
    heard = Heard()
    agent, model = refunds(PROSE, WRONG, PROSE, retries=2, canned=CANNED)
    assert go(agent.on(heard).run_typed("refund?")) == Refund(**CANNED)
    assert len(model.requests) == 3
    assert heard.one("resilience.output_canned_used")["retries_spent"] == 2
    unmet = heard.one("agent.output_contract_unmet")
    assert (unmet["attempts"], unmet["retries_spent"], unmet["fallback_configured"]) == (3, 2, True)


def test_retries_that_are_not_known_are_not_told():
    heard = Heard()
    agent, _ = refunds(canned=CANNED)
    go(agent.on(heard).parse_output_async(PROSE))
    assert "retries_spent" not in heard.one("resilience.output_canned_used")


def test_cancelling_a_fallback_is_no_failure_of_it():
    async def story():
        begun = asyncio.Event()

        async def fallback(error, raw):
            begun.set()
            await asyncio.Event().wait()

        agent, _ = refunds(PROSE, fallback=fallback, canned=CANNED)
        task = asyncio.create_task(agent.run_typed("refund?"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    go(story())
