"""Two stages from text to a value, the same at every entry point."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from pydantic import BaseModel

from answers import CUT, FENCED, GOOD, PROSE, VALUE, WRONG, Refund, go, refunds
from callpact import Agent, OutputSchemaError, UsageError, parse_answer, strict_output_rules
from callpact.agent import Parsed, shape_of
from callpact.agent.reliability import MAX_ECHO, echo
from callpact.jsonreader.reader import MAX_CHECKS
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
    assert caught.value.cause.code == "truncated"
    value = agent.parse_output(raw, repair="safe", allow={"truncated"})
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
        lambda agent: agent.parse_output(GOOD, allow={"truncated"}),
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


# --- truncation -----------------------------------------------------------------------------


@pytest.mark.parametrize("repair", ["none", "safe"])
@pytest.mark.parametrize(
    "raw",
    [
        '{"amount": 5.0, "reason": "late"',
        '{"amount": 5.0, "reason": "late",',
        '{"amount": 5.0, "reason": "la',
        '{"amount": 5.0, "reason":',
        '{"amount": 5.0, "reason',
        '{"amount": 5.',
        '{"amount": nul',
        '{"amount": 5.0, "reason": "late", "lines": [1, 2',
        "{",
    ],
)
def test_an_answer_that_is_not_complete_is_truncated_and_says_what_helps(raw, repair):
    with pytest.raises(OutputSchemaError) as caught:
        refunds()[0].parse_output(raw, repair=repair)
    error = caught.value
    assert (error.stage, error.is_truncated, error.cause.code) == ("json-parse", True, "truncated")
    assert error.message == "The answer is truncated"
    assert "max_tokens" in str(error)
    assert "repair='safe'" not in str(error)


@pytest.mark.parametrize("raw", [GOOD, FENCED, FENCED.removesuffix("```")])
@pytest.mark.parametrize("finish", [None, "stop", "length", "content_filter", "tool_call"])
def test_an_answer_that_is_complete_is_taken_however_the_model_stopped(raw, finish):
    read = parse_answer(raw, shape_of(Refund), repair="safe", finish=finish)
    assert read.value == VALUE


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize(
    "raw",
    [
        "12",  # Of 123, perhaps.
        '{"amount": 5.0, "rea',
        f"An example: {GOOD}. The ans",
        f"{GOOD}\n{GOOD}",
        "I would pay",
        '{"amount": 5.0, "reason": "la"te',
        "",
    ],
)
@pytest.mark.parametrize("repair", ["none", "safe"])
def test_of_an_answer_that_was_cut_nothing_is_taken_for_the_whole(raw, finish, repair):
    if repair == "safe" and raw == f"{GOOD}\n{GOOD}":
        raw = f"{GOOD}\n{WRONG}"
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer(raw, shape_of(float | Refund), repair=repair, finish=finish)
    assert caught.value.is_truncated
    assert ("content filter" in str(caught.value)) == (finish == "content_filter")


# --- several values -------------------------------------------------------------------------


class Amount(BaseModel):
    amount: int


@pytest.mark.parametrize(
    ("raw", "given", "value"),
    [
        ('Input {"amount": 1}. Answer: []', list[Amount], []),
        ('Input {"amount": 1}. Answer: []', Amount, Amount(amount=1)),
        ('The form is `{"amount": "…"}`: {"amount": 5}', Amount, Amount(amount=5)),
        ('Example: {"sum": 1}\n```python\n{"amount": 50}\n```', Amount, Amount(amount=50)),
        ('As shown in [1] and [2, 3]: {"amount": 5}', Amount, Amount(amount=5)),
        ('{"amount": 5}\n\nSo `{"amount": 5}` it is.', Amount, Amount(amount=5)),
        ('Of {} and {"a": [1]} it is [4, 5, 6, 7].', list[int], [4, 5, 6, 7]),
        ('"{\\"amount\\": 5}"', Amount, Amount(amount=5)),
        ('```json\n"{\\"amount\\": 5}"\n```', Amount, Amount(amount=5)),
        ('{"amount": 5}\n"done"', Amount, Amount(amount=5)),
    ],
)
def test_of_several_values_the_only_one_that_fits_is_the_answer(raw, given, value):
    read = parse_answer(raw, shape_of(given), repair="safe")
    assert read.value == value
    assert read.repairs


@pytest.mark.parametrize(
    ("raw", "given"),
    [
        ('The answer is `{"amount": 50}`, not {"amount": 1}.', Amount),
        ('```json\n{"amount": 1}\n```\n```yaml\n{"amount": 2}\n```', Amount),
        ('Draft: {"amount": 1}\nFinal: {"amount": 2}', Amount),
        ('"{"amount": 1}" or "{"amount": 2}"', Amount),
        ('Input {"amount": 1}. Answer: []', dict | list),
        ('{"sum": 1} or {"total": 2}', Amount),
        ('{"amount": 1}, {"amount": 1}', Amount),
        ("It is [1] or [2].", list[int]),
        ('{"amount": 1}\n7', Amount | int),
    ],
)
def test_where_two_values_may_be_the_answer_none_is(raw, given):
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer(raw, shape_of(given), repair="safe")
    assert caught.value.cause.code == "two_candidates"


@pytest.mark.parametrize(
    "raw", ['As in [1]: {"amount": "much"}', '{"amount": "much"}\n"done"', 'Of {} it is {"sum": 1}']
)
def test_the_violations_of_the_only_object_are_named(raw):
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer(raw, shape_of(Amount), repair="safe")
    assert caught.value.stage == "schema-validate"
    assert caught.value.path == "/amount"


def test_of_two_that_are_allowed_the_last_that_fits_counts():
    raw = '{"amount": 1} {"amount": 2} {"sum": 3}'
    read = parse_answer(raw, shape_of(Amount), repair="safe", allow={"two_candidates"})
    assert read.value == Amount(amount=2)
    assert "two_candidates" in {repair.code for repair in read.repairs}


@pytest.mark.parametrize(
    "between",
    ["\n", "\n\n", ", ", "", " ", ";\n", "\n- ", "\n2. ", " and ", "\n```\n```json\n", "</a>\n<a>"],
)
def test_values_one_after_the_other_are_the_list_that_was_asked_for(between):
    raw = '{"amount": 1}' + between + '{"amount": 2}'
    read = parse_answer(raw, shape_of(list[Amount]), repair="safe")
    assert read.value == [Amount(amount=1), Amount(amount=2)]
    assert "listed" in {repair.code for repair in read.repairs}


def test_lines_that_are_alike_are_items_of_the_list_like_the_others():
    raw = '{"amount": 1}\n{"amount": 2}\n{"amount": 1}\n'
    read = parse_answer(raw, shape_of(list[Amount]), repair="safe")
    assert [item.amount for item in read.value] == [1, 2, 1]


@pytest.mark.parametrize(
    "raw",
    [
        'Example: {"amount": 1}. Answer: {"amount": 2}',
        '{"amount": 1} or {"amount": 2}',
        'Draft:\n{"amount": 1}\nFinal:\n{"amount": 2}',
        '{"amount": 1} -> {"amount": 2}',
        '{"amount": 1}, ..., {"amount": 9}',
        '{"amount": 1}\n{"amount": 2}\n...',
        '{"amount": 1}\n{"sum": 2}',
        '{"amount": 1}\n{"amount": 2',
        '{"amount": 1}\n"none"\n{"amount": 2}',
    ],
)
def test_values_with_other_words_between_them_are_no_list(raw):
    with pytest.raises(OutputSchemaError):
        parse_answer(raw, shape_of(list[Amount]), repair="safe")


def test_the_only_list_wins_over_its_items():
    raw = 'First {"amount": 1}, so:\n[{"amount": 1}, {"amount": 2}]'
    assert len(parse_answer(raw, shape_of(list[Amount]), repair="safe").value) == 2


def test_a_string_that_holds_json_stays_a_string_where_one_was_asked_for():
    assert parse_answer('"{\\"a\\": 5}"', shape_of(str), repair="safe") == Parsed('{"a": 5}')


def test_a_citation_is_no_list_of_numbers():
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer("See the paper [1] for more.", shape_of(list[int]), repair="safe")
    assert caught.value.cause.code == "no_json"


def test_a_parser_that_changes_what_it_is_given_changes_no_other_try():
    def parse(value):
        return [value.pop("amount")]

    raw = '{"sum": 1}\n{"amount": 2}'
    assert parse_answer(raw, shape_of(parse), repair="safe").value == [2]


def test_a_schema_is_asked_a_bounded_number_of_times():
    asked = []

    def parse(value):
        asked.append(value)
        raise ValueError

    raw = "\n".join(f'{{"amount": {n}}}' for n in range(3 * MAX_CHECKS))
    with pytest.raises(OutputSchemaError):
        parse_answer(raw, shape_of(parse), repair="safe")
    assert len(asked) <= MAX_CHECKS + 1


# --- corrections ----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 30_000, 500_000, 999_000])
@pytest.mark.parametrize("repair", ["none", "safe"])
def test_a_correction_shows_a_bounded_part_of_a_long_answer(at, repair):
    raw = '{"a": [' + "1, " * (at // 3) + "oops oops, " + "2, " * ((1_000_000 - at) // 3) + "END"
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer(raw, ANYTHING, repair=repair)
    error = caught.value
    assert len(echo(error)) < MAX_ECHO + 200
    assert echo(error).startswith('{"a": [')
    assert echo(error).endswith(error.raw_output[-100:])
    assert "characters left out" in echo(error)


def test_a_correction_shows_the_place_of_the_error():
    raw = "[" + "1, " * 100_000 + "oops, " + "2, " * 100_000 + "3]"
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer(raw, ANYTHING)
    assert "1, oops, 2" in echo(caught.value)


def test_a_short_answer_is_shown_whole():
    with pytest.raises(OutputSchemaError) as caught:
        parse_answer("x" * MAX_ECHO, ANYTHING)
    assert echo(caught.value) == "x" * MAX_ECHO


@pytest.mark.parametrize("rules", [False, True])
def test_a_model_is_shown_a_bounded_part_of_its_long_answer(rules):
    agent, model = refunds("x" * 1_000_000, GOOD, retries=0 if rules else 1)
    if rules:
        agent = agent.reliability(strict_output_rules(2))
    assert go(agent.run_typed("refund?")) == VALUE
    assert sum(len(message.content) for message in model.requests[1].messages) < 2 * MAX_ECHO
