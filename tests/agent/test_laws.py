"""Laws of typed answers, over whatever hypothesis thinks of."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import GOOD, MISSING, PROSE, VALUE, WRONG, WRONG_ELSEWHERE, Refund, go, streamed
from callpact import Agent, OutputSchemaError, strict_output_rules
from callpact.agent import Message, ModelReply, Token, ToolUse, Usage
from callpact.agent.run.pause import (
    VERSION,
    Checkpoint,
    PendingCall,
    read_checkpoint,
    write_checkpoint,
)
from callpact.errors import ReliabilityFailFastError, UsageError
from callpact.testing import ScriptedModel

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FAILURES = [PROSE, WRONG, WRONG_ELSEWHERE, MISSING]


def _outcome(work):
    """The value, or the error of an answer."""
    try:
        return work()
    except (OutputSchemaError, ReliabilityFailFastError) as error:
        return error


@given(JSON, st.booleans())
def test_any_json_value_comes_through_run_typed_as_the_text_says(value, is_indented):
    text = json.dumps(value, ensure_ascii=is_indented, indent=1 if is_indented else None)
    agent = Agent(ScriptedModel([text])).output_schema(lambda read: read)
    typed = go(agent.run_typed("go"))
    assert json.dumps(typed) == json.dumps(value)
    assert json.dumps(agent.parse_output(text, repair="safe")) == json.dumps(value)


@given(JSON)
def test_any_value_that_a_schema_takes_comes_through_it_unchanged(value):
    agent = Agent(ScriptedModel([json.dumps(value)])).output_schema({"type": ["object", "array"]})
    if isinstance(value, dict | list):
        assert json.dumps(go(agent.run_typed("go"))) == json.dumps(value)
    else:
        with pytest.raises(OutputSchemaError):
            go(agent.run_typed("go"))


@given(st.text(max_size=200))
def test_an_answer_is_a_value_or_an_error_that_keeps_it_whole(raw):
    agent = Agent(ScriptedModel([])).output_schema(dict)
    outcome = _outcome(lambda: agent.parse_output(raw))
    if isinstance(outcome, OutputSchemaError):
        assert outcome.raw_output == raw
        assert outcome.stage in {"json-parse", "schema-validate"}
    else:
        assert outcome == json.loads(raw)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_strict_output_succeeds_if_and_only_if_it_fails_less_often_than_n(
    failures, attempts, first, is_streamed
):
    replies = [FAILURES[(first + at) % len(FAILURES)] for at in range(failures)]
    model = ScriptedModel([*replies, GOOD])
    agent = Agent(model, output_schema=Refund).reliability(strict_output_rules(attempts))
    outcome = _outcome(lambda: go(streamed(agent) if is_streamed else agent.run("refund?")))
    if isinstance(outcome, ReliabilityFailFastError):
        assert failures >= attempts
        assert outcome.kind == "schema-retry-exhausted"
        assert len(model.requests) == attempts == outcome.account.requests
    else:
        assert failures < attempts
        assert len(model.requests) == failures + 1
        assert agent.parse_output(outcome[-1].answer if is_streamed else outcome) == VALUE


@given(st.integers(0, 6), st.integers(0, 6))
def test_re_asks_succeed_if_and_only_if_there_are_enough(failures, retries):
    model = ScriptedModel([*[PROSE] * failures, *[GOOD] * 9])
    agent = Agent(model).output_schema(Refund, retries=retries)
    answer = go(agent.run("refund?"))
    assert (answer.account.unmet is None) == (failures <= retries)
    assert len(answer.account.attempts) == len(model.requests) == min(failures, retries) + 1


USAGES = st.builds(
    Usage,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 1000).map(lambda cents: cents / 4),
)


@given(st.lists(USAGES, min_size=1, max_size=5), st.sampled_from(["retries", "rules", "stream"]))
def test_token_totals_are_sums(usages, how):
    texts = [*FAILURES, GOOD][5 - len(usages) :]
    replies = [ModelReply(text, usage=usage) for text, usage in zip(texts, usages, strict=True)]
    agent = Agent(ScriptedModel(replies)).output_schema(
        Refund, retries=5 if how == "retries" else 0
    )
    if how != "retries":
        agent = agent.reliability(strict_output_rules(5))
    answer = go(streamed(agent))[-1].answer if how == "stream" else go(agent.run("refund?"))
    total = answer.account.usage
    assert total.input_tokens == sum(usage.input_tokens for usage in usages)
    assert total.output_tokens == sum(usage.output_tokens for usage in usages)
    costs = [usage.cost for usage in usages if usage.cost is not None]
    assert total.cost == (sum(costs) if costs else None)


@given(st.text(max_size=60))
def test_the_tokens_of_a_stream_are_its_answer(text):
    items = go(streamed(Agent(ScriptedModel([text]))))
    assert "".join(item.text for item in items if isinstance(item, Token)) == text
    assert items[-1].answer == text


CHECKPOINTS = st.builds(
    lambda message, arguments, answers, state: Checkpoint(
        VERSION,
        "agent",
        "run",
        message,
        "default",
        1,
        [Message("user", message)],
        [PendingCall(ToolUse("1", "t", arguments), is_paused=True, answers=answers, state=state)],
        Usage(1, 2),
        1,
        0,
        [],
        [],
        {},
        0.5,
    ),
    TEXT,
    JSON.filter(lambda value: "e+" not in json.dumps(value)),
    st.lists(st.none() | TEXT | st.integers(-(2**63), 2**63), max_size=3),
    st.none() | TEXT,
)


@given(CHECKPOINTS)
def test_a_checkpoint_reads_as_it_was_written(checkpoint):
    read = read_checkpoint(write_checkpoint(checkpoint), "agent")
    assert read == checkpoint


@given(st.binary(max_size=100) | st.text(max_size=100) | JSON.map(json.dumps))
def test_anything_is_a_checkpoint_or_refused(text):
    with pytest.raises(UsageError):
        read_checkpoint(text, "agent")
