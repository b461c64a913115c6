"""What an agent tells while it runs: order, payload, previews; and that nobody disturbs a run."""

from __future__ import annotations

import time

import pytest

from answers import GOOD, PROSE, WRONG, Heard, call, go, refunds
from callpact import Agent, UsageError, strict_output_rules, tool
from callpact.agent import AnswerEvent
from callpact.testing import ScriptedModel


@tool(namespace="main")
def look() -> str:
    """Look."""
    return "seen"


def test_a_run_with_a_tool_is_told_in_order():
    heard = Heard()
    agent, _ = refunds(call("main_look"), GOOD, tools=[look])
    answer = go(agent.on(heard).run("refund?"))
    told = [(event.type, event.iteration) for event in heard.events]
    assert told == [
        ("agent.turn_start", 0),
        ("agent.iteration_start", 1),
        ("context.injected", 1),
        ("stream.llm_start", 1),
        ("stream.llm_end", 1),
        ("stream.tool_start", 1),
        ("stream.tool_end", 1),
        ("agent.iteration_end", 1),
        ("agent.iteration_start", 2),
        ("context.injected", 2),
        ("stream.llm_start", 2),
        ("stream.llm_end", 2),
        ("agent.iteration_end", 2),
        ("agent.turn_end", 2),
    ]
    assert {event.run_id for event in heard.events} == {answer.account.run_id}


def test_every_event_has_its_time():
    heard = Heard()
    before = int(time.time() * 1000)
    go(Agent(ScriptedModel(["x"])).on(heard).run("go"))
    after = time.time() * 1000
    times = [event.at for event in heard.events]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= after


def test_events_of_the_tiers_belong_to_the_run():
    heard = Heard()
    agent, _ = refunds(PROSE, canned={"amount": 0, "reason": ""})
    go(agent.on(heard).run_typed("refund?"))
    assert len({event.run_id for event in heard.events}) == 1


def test_what_is_not_there_is_left_out():
    heard = Heard()
    agent, _ = refunds(PROSE, GOOD)
    go(agent.on(heard).reliability(strict_output_rules(2)).run("refund?"))
    assert all(None not in event.payload.values() for event in heard.events)
    assert "path" not in heard.one("agent.output_schema_validation_failed")


def test_a_path_is_told_where_there_is_one():
    heard = Heard()
    agent, _ = refunds(WRONG, GOOD)
    go(agent.on(heard).reliability(strict_output_rules(2)).run("refund?"))
    assert heard.one("agent.output_schema_validation_failed")["path"] == "/amount"


@pytest.mark.parametrize("error", [ValueError, KeyError, StopIteration, RecursionError])
def test_a_handler_that_raises_disturbs_neither_the_run_nor_the_others(error, caplog):
    heard = Heard()

    def broken(event):
        raise error("broken")

    agent, _ = refunds(PROSE, GOOD, retries=1)
    assert go(agent.on(broken).on(heard).run("refund?")) == GOOD
    quiet = Heard()
    agent, _ = refunds(PROSE, GOOD, retries=1)
    go(agent.on(quiet).run("refund?"))
    assert heard.types == quiet.types
    assert "handler of events failed" in caplog.text


def test_texts_are_previews_unless_whole_ones_are_asked_for():
    message = "m" * 1_000
    for whole, length in ((False, 200), (True, 1_000)):
        heard = Heard()
        agent = Agent(ScriptedModel(["a" * 1_000])).on(heard, whole_texts=whole)
        go(agent.run(message))
        assert len(heard.one("agent.turn_start")["message"]) == length
        assert len(heard.one("stream.llm_end")["content"]) == length


def test_repairs_are_told():
    heard = Heard()
    agent = Agent(ScriptedModel(["```json\n[1,]\n```"])).output_schema(list[int], repair="safe")
    go(agent.on(heard).run("go"))
    assert set(heard.one("agent.output_repaired")["repairs"]) == {"fence", "trailing_comma"}


def test_handlers_are_functions():
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).on("print")


def test_an_event_is_data():
    event = AnswerEvent("agent.turn_end", {"requests": 1})
    assert event == AnswerEvent("agent.turn_end", {"requests": 1})
    with pytest.raises(AttributeError):
        event.type = "other"
