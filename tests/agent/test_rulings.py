"""Where the sources of typed output disagree: the 13 rulings, by their numbers."""

from __future__ import annotations

import pytest

from answers import (
    CANNED,
    CUT,
    GOOD,
    MISSING,
    PROSE,
    VALUE,
    WRONG,
    WRONG_ELSEWHERE,
    Heard,
    Refund,
    go,
    refunds,
    streamed,
)
from callpact import (
    Agent,
    LimitReached,
    ModelError,
    OutputSchemaError,
    UsageError,
    strict_output_rules,
)
from callpact.agent import CircuitBreaker, Finished, Reset, Rule, Usage
from callpact.errors import ReliabilityFailFastError
from callpact.testing import ScriptedModel

FAILED = lambda scope: scope.error is not None


def test_ruling_01_an_orphan_fallback_raises_at_the_call():
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).output_fallback(canned=1)
    with pytest.raises(UsageError):
        Agent(ScriptedModel([]), canned=1)


def test_ruling_02_the_tiers_answer_for_a_gate_that_gave_up_on_the_schema():
    agent, _ = refunds(PROSE, WRONG, canned=CANNED)
    assert go(agent.reliability(strict_output_rules(2)).run_typed("refund?")) == Refund(**CANNED)


@pytest.mark.parametrize("fallback", [None, lambda error, raw: {}, lambda error, raw: 1 / 0])
def test_ruling_02_if_no_tier_answers_the_gates_error_is_raised(fallback):
    agent, _ = refunds(PROSE, WRONG, fallback=fallback)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(2)).run_typed("refund?"))
    assert caught.value.kind == "schema-retry-exhausted"
    assert isinstance(caught.value.cause, OutputSchemaError)
    assert caught.value.cause.raw_output == WRONG


def test_ruling_02_a_failure_on_the_way_to_the_model_stays_outside_the_tiers():
    agent, _ = refunds(ModelError("down", status=503), canned=CANNED)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(2)).run_typed("refund?"))
    assert caught.value.kind == "5xx-transient"


def test_ruling_03_a_stream_loses_no_retry_and_takes_back_what_it_said():
    agent, _ = refunds(PROSE, WRONG, GOOD)
    items = go(streamed(agent.reliability(strict_output_rules(3))))
    assert [item for item in items if isinstance(item, Reset)] == [Reset("schema-fail", 1)] * 2
    assert isinstance(items[-1], Finished)
    assert (items[-1].answer, items[-1].result.value) == (GOOD, VALUE)


def test_ruling_04_retry_other_really_asks_the_other_model():
    first = ScriptedModel([ModelError("down", status=503)], name="first")
    second = ScriptedModel([GOOD], name="second")
    agent = Agent(first, output_schema=Refund).reliability(
        Rule(FAILED, "retry-other", "switch"), providers=[second]
    )
    assert go(agent.run_typed("refund?")) == VALUE
    assert (len(first.requests), len(second.requests)) == (1, 1)
    assert first.requests == second.requests


def test_ruling_05_every_attempt_is_counted():
    agent, model = refunds(PROSE, WRONG, GOOD)
    answer = go(agent.reliability(strict_output_rules(3)).run("refund?"))
    assert answer.account.requests == len(model.requests) == 3
    assert answer.account.usage == Usage(30, 15)


def test_ruling_05_attempts_of_a_run_that_gave_up_are_counted_too():
    agent, _ = refunds(PROSE, WRONG)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(2)).run("refund?"))
    assert caught.value.account.usage == Usage(20, 10)
    assert caught.value.account.unmet.attempts == 2


@pytest.mark.parametrize("is_shown", [True, False])
def test_ruling_06_the_failed_answer_is_shown_before_the_feedback_unless_switched_off(is_shown):
    agent, model = refunds(PROSE, GOOD)
    agent = agent.reliability(strict_output_rules(2), shows_failed_answer=is_shown)
    go(agent.run("refund?"))
    *before, feedback = model.requests[1].messages[1:]
    assert feedback.ephemeral
    assert [(m.role, m.content, m.ephemeral) for m in before] == (
        [("assistant", PROSE, True)] if is_shown else []
    )


def test_ruling_07_only_the_last_failed_answer_and_feedback_are_sent():
    agent, model = refunds(PROSE, WRONG, GOOD)
    go(agent.reliability(strict_output_rules(3)).run("refund?"))
    texts = [[message.content for message in request.messages] for request in model.requests]
    assert [len(each) for each in texts] == [1, 3, 3]
    assert texts[2][1] == WRONG
    assert PROSE not in texts[2]
    assert "/amount" in texts[2][2]


@pytest.mark.parametrize(
    ("answers", "is_stuck"),
    [
        ((WRONG, WRONG), True),
        ((WRONG, '{"amount": "more", "reason": "other"}'), True),
        ((PROSE, PROSE.upper()), True),
        ((PROSE, "Something else altogether."), False),
        ((PROSE, CUT), False),
        ((CUT, '{"amount": 7.5, "reason": "because'), False),
        (tuple(f'{{"n": {n}, "x": "{"x" * 50}", "amount": oops}}' for n in (1, 2)), True),
        ((WRONG, WRONG_ELSEWHERE), False),
        ((WRONG, MISSING), False),
        ((PROSE, WRONG), False),
        ((WRONG, PROSE, WRONG), False),
    ],
)
def test_ruling_08_stuck_is_the_same_text_or_the_same_issues_twice_in_a_row(answers, is_stuck):
    agent, model = refunds(*answers, GOOD)
    agent = agent.reliability(strict_output_rules(9))
    if is_stuck:
        with pytest.raises(ReliabilityFailFastError) as caught:
            go(agent.run("refund?"))
        assert caught.value.kind == "schema-stuck-loop"
        assert len(model.requests) == 2
    else:
        assert go(agent.run_typed("refund?")) == VALUE


def test_ruling_09_a_canned_value_is_frozen_where_it_is_declared():
    canned = {"amount": 0, "reason": "first"}
    agent, _ = refunds(PROSE, PROSE, canned=canned)
    canned["reason"] = 7
    first = go(agent.run_typed("refund?"))
    first.reason = "changed by the caller"
    assert go(agent.run_typed("refund?")) == Refund(amount=0, reason="first")


def test_ruling_10_the_error_has_a_real_code_and_is_classified_by_it():
    kinds = []
    agent, _ = refunds(PROSE)

    def when(scope):
        kinds.append((scope.error.code, scope.error_kind))
        return False

    with pytest.raises(ReliabilityFailFastError):
        go(agent.reliability(Rule(when, "retry")).run("refund?"))
    assert kinds == [("ERR_OUTPUT_SCHEMA", "schema-fail")]


def test_ruling_11_re_asks_of_the_loop_count_as_iterations():
    agent, model = refunds(PROSE, GOOD, retries=3)
    answer = go(agent.limits(iterations=1).run("refund?"))
    assert answer == PROSE
    assert len(model.requests) == answer.account.iterations == 1
    agent, model = refunds(PROSE, GOOD, retries=3)
    answer = go(agent.limits(iterations=2).run("refund?"))
    assert (answer, answer.account.iterations) == (GOOD, 2)


def test_ruling_12_the_breaker_remembers_across_runs_and_opens_again():
    down = ModelError("down", status=503)
    breaker = CircuitBreaker(failures=2, cooldown=3600)
    model = ScriptedModel([down, down, GOOD])
    agent = Agent(model, output_schema=Refund).reliability(circuit_breaker=breaker)
    kinds = []
    for _ in range(3):
        with pytest.raises(ReliabilityFailFastError) as caught:
            go(agent.run("refund?"))
        kinds.append(caught.value.kind)
    assert kinds == ["5xx-transient", "5xx-transient", "circuit-open"]
    assert len(model.requests) == 2


def test_ruling_13_events_hold_previews_and_whole_texts_on_demand():
    raw = "no JSON " * 100
    for whole, length in ((False, 200), (True, len(raw))):
        heard = Heard()
        agent, _ = refunds(raw)
        agent = agent.on(heard, whole_texts=whole).reliability(strict_output_rules(1))
        with pytest.raises(ReliabilityFailFastError):
            go(agent.run("refund?"))
        told = heard.one("agent.output_schema_validation_failed")
        assert told["raw_output"] == raw[:length]


def test_the_table_of_this_file_has_all_13():
    numbers = {name.split("_")[2] for name in globals() if name.startswith("test_ruling_")}
    assert numbers == {f"{number:02}" for number in range(1, 14)}


def test_a_limit_ends_the_attempts_at_one_reply():
    agent, model = refunds(PROSE, WRONG, GOOD)
    agent = agent.limits(tokens=16).reliability(strict_output_rules(9))
    with pytest.raises(LimitReached) as caught:
        go(agent.run("refund?"))
    assert caught.value.limit == "tokens"
    assert len(model.requests) == 2
