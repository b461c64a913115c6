"""Two stages from text to a value, the same at every entry point."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from answers import CUT, FENCED, GOOD, PROSE, VALUE, WRONG, Refund, go, refunds
from callpact import Agent, OutputSchemaError, Parsed, UsageError, parse_answer, shape_of
from callpact.testing import ScriptedModel

ANYTHING = shape_of(lambda value: value)


@pytest.mark.parametrize("raw", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_strict_reading_refuses_what_python_would_take(raw):
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer(raw, ANYTHING)
    assert caught.value.stage == "json-parse"


@pytest.mark.parametrize("raw", ["1", " 1\n", "null", '"a"', '{"a": [1, 2.5, true, null]}', "1e3"])
def test_strict_reading_gives_what_the_text_says(raw):
    assert parse_answer(raw, ANYTHING) == Parsed(json.loads(raw))


def test_strict_is_the_default_and_repair_is_one_argument():
    agent, _ = refunds()
    with pytest.raises(OutputSchemaError):
        agent.parse_output(FENCED)
    assert agent.parse_output(FENCED, repair="safe") == VALUE
    read = agent.read_output(FENCED, repair="safe")
    assert read.value == VALUE
    assert [repair.code for repair in read.repairs] == ["fence"]
    assert agent.read_output(GOOD, repair="safe").repairs == ()
    assert go(agent.parse_output_async(FENCED, repair="safe")) == VALUE


def test_a_lossy_repair_is_taken_only_by_name():
    raw = '{"amount": 5.0, "reason": "la'
    agent, _ = refunds()
    with pytest.raises(OutputSchemaError) as caught:
        agent.parse_output(raw, repair="safe")
    assert caught.value.cause.code == "cut_string"
    value = agent.parse_output(raw, repair="safe", allow={"cut_string"})
    assert value == Refund(amount=5.0, reason="la")


def test_the_repairs_of_the_contract_hold_for_the_loop_and_the_boundary():
    model = ScriptedModel([FENCED, FENCED])
    agent = Agent(model).output_schema(Refund, repair="safe")
    assert go(agent.run_typed("refund?")) == VALUE
    answer = go(agent.run("refund?"))
    assert answer == FENCED
    assert answer.account.attempts[0].repairs == ("fence",)
    assert agent.parse_output(answer) == VALUE
    with pytest.raises(OutputSchemaError):
        agent.parse_output(answer, repair="none")


@pytest.mark.parametrize(
    "ask",
    [
        lambda agent: agent.parse_output(None),
        lambda agent: agent.parse_output(b"{}"),
        lambda agent: agent.parse_output({"amount": 1}),
        lambda agent: agent.parse_output(GOOD, repair="wild"),
        lambda agent: agent.parse_output(GOOD, allow={"cut_string"}),
        lambda agent: agent.parse_output(GOOD, repair="safe", allow={"guess"}),
        lambda agent: agent.output_schema(Refund, repair="wild"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(ask):
    with pytest.raises(UsageError):
        ask(refunds()[0])


@pytest.mark.parametrize(
    "ask", [lambda a: a.parse_output("1"), lambda a: go(a.parse_output_async("1"))]
)
def test_typed_calls_need_a_schema(ask):
    with pytest.raises(UsageError):
        ask(Agent(ScriptedModel([])))


def test_run_typed_needs_a_schema_before_anything_runs():
    model = ScriptedModel(["1"])
    with pytest.raises(UsageError):
        go(Agent(model).run_typed("go"))
    assert model.requests == []


@pytest.mark.parametrize(
    "raw",
    [
        "[" * 100_000 + "]" * 100_000,
        "[" * 1_000_000,
        "\\" * 1_000_000,
        '{"a":' * 200_000,
        "x" * 1_000_000,
        '"' + "\\u0000" * 100_000,
        "\x00",
        "\ud800",
        '{"amount": "\ud800"',
    ],
    ids=range(9),
)
@pytest.mark.parametrize("repair", ["none", "safe"])
def test_hostile_text_is_refused_and_kept_whole(raw, repair):
    with pytest.raises(OutputSchemaError) as caught:
        refunds()[0].parse_output(raw, repair=repair)
    assert caught.value.raw_output == raw
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("raw", ['"a\\u0000b"', '"\\ud83d\\ude00"', '"' + "x" * 1_000_000 + '"'])
def test_odd_text_that_is_json_is_kept_as_it_says(raw):
    agent = Agent(ScriptedModel([])).output_schema(str)
    assert agent.parse_output(raw) == json.loads(raw)


def test_a_parser_that_recurses_for_ever_refuses():
    def parse(value):
        return parse(value)

    with pytest.raises(OutputSchemaError) as caught:
        Agent(ScriptedModel([])).output_schema(parse).parse_output("1")
    assert isinstance(caught.value.cause, RecursionError)


class Rude(Exception):
    def __str__(self):
        return ""


def test_an_error_without_words_is_named_by_its_class():
    def parse(value):
        raise Rude

    with pytest.raises(OutputSchemaError) as caught:
        Agent(ScriptedModel([])).output_schema(parse).parse_output("1")
    assert caught.value.error == "Rude"


def test_a_parser_cannot_change_what_is_judged_later():
    def parse(value):
        value.append("more")
        return value

    agent = Agent(ScriptedModel(["[]"])).output_schema(parse)
    assert go(agent.run_typed("go")) == ["more"]


@pytest.mark.parametrize("raw", [PROSE, WRONG, CUT])
def test_the_error_survives_pickling_and_copying(raw):
    with pytest.raises(OutputSchemaError) as caught:
        refunds()[0].parse_output(raw)
    error = caught.value
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (twin.stage, twin.raw_output, twin.issues) == (
            error.stage,
            error.raw_output,
            error.issues,
        )
        assert str(twin) == str(error)
