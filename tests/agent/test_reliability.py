"""Rules as data: recipes, fingerprints, the circuit breaker, and what cannot be declared."""

from __future__ import annotations

import contextlib

import pytest

from answers import GOOD, PROSE, WRONG, Refund, go, refunds
from callpact import Agent, Issue, ModelError, OutputSchemaError, UsageError, strict_output_rules
from callpact.agent import (
    CircuitBreaker,
    ModelRequest,
    Rule,
    Scope,
    default_stuck_loop_rule,
    last_n_validation_errors_match,
)
from callpact.agent.reliability import (
    MAX_FEEDBACK,
    framed,
    issue_lines,
    validation_error,
)
from callpact.errors import CircuitOpen, ReliabilityFailFastError
from callpact.testing import ScriptedModel

ALWAYS = lambda scope: True
DOWN = ModelError("down", status=503)


def refusal(raw, stage="schema-validate", *issues, cause=None):
    return OutputSchemaError(stage, raw, cause or ValueError("wrong"), issues)


def scope(*errors):
    known = tuple(validation_error(error) for error in errors)
    last = known[-1] if known else None
    return Scope(ModelRequest("", ()), validation_error=last, validation_errors=known)


# --- recipes --------------------------------------------------------------------------------


def test_strict_output_rules_are_the_recipe():
    stuck, retry, exhausted = strict_output_rules(3)
    assert stuck is default_stuck_loop_rule
    assert (retry.then, retry.kind) == ("retry", "schema-retry")
    assert (exhausted.then, exhausted.kind) == ("fail-fast", "schema-retry-exhausted")
    assert (stuck.then, stuck.kind) == ("fail-fast", "schema-stuck-loop")


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, "3", None])
def test_strict_output_rules_take_a_number_of_attempts(attempts):
    with pytest.raises(UsageError):
        strict_output_rules(attempts)


def test_rules_of_strict_output_leave_other_failures_alone():
    agent, model = refunds(DOWN, GOOD)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(3)).run("refund?"))
    assert caught.value.kind == "5xx-transient"
    assert len(model.requests) == 1


PLACE = Issue("type", "must be a number", "/amount")
ELSEWHERE = Issue("type", "must be a number", "/tax")
OTHERWISE = Issue("missing", "is required", "/amount")


@pytest.mark.parametrize(
    ("errors", "n", "matches"),
    [
        ([refusal("a", "schema-validate", PLACE)] * 2, 2, True),
        ([refusal("a", "schema-validate", PLACE), refusal("b", "schema-validate", PLACE)], 2, True),
        (
            [refusal("a", "schema-validate", PLACE), refusal("b", "schema-validate", ELSEWHERE)],
            2,
            False,
        ),
        (
            [refusal("a", "schema-validate", PLACE), refusal("b", "schema-validate", OTHERWISE)],
            2,
            False,
        ),
        (
            [
                refusal("a", "schema-validate", PLACE, ELSEWHERE),
                refusal("b", "schema-validate", ELSEWHERE, PLACE),
            ],
            2,
            True,
        ),
        ([refusal("a", "json-parse"), refusal("b", "schema-validate")], 2, False),
        (
            [refusal("same text", "json-parse"), refusal(" Same\n TEXT ", "schema-validate")],
            2,
            True,
        ),
        ([refusal("a", cause=ValueError("x")), refusal("b", cause=ValueError("y"))], 2, False),
        ([refusal("a", cause=ValueError("x")), refusal("b", cause=ValueError("x"))], 2, True),
        ([refusal("a")] * 2, 3, False),
        ([refusal("b", "json-parse"), refusal("a"), refusal("a")], 3, False),
        ([refusal("a")], 1, True),
        ([refusal("a")], 0, False),
        ([], 1, False),
        ([], 2, False),
    ],
)
def test_the_last_n_failures_match_by_their_text_or_their_issues(errors, n, matches):
    assert last_n_validation_errors_match(scope(*errors), n) is matches


def test_the_stuck_loop_stop_is_on_by_default_and_can_be_switched_off():
    retry = Rule(lambda s: s.validation_error is not None, "retry", "mine")
    agent, model = refunds(PROSE, PROSE, PROSE, GOOD)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(retry).run("refund?"))
    assert caught.value.kind == "schema-stuck-loop"
    model.reset()
    assert go(agent.reliability(retry, stops_when_stuck=False).run("refund?")) == GOOD
    assert len(model.requests) == 4


# --- feedback -------------------------------------------------------------------------------


def test_the_frame_names_the_attempt_and_ends_with_the_quoted_message():
    text = framed("no\n\nmore", 2, 3)
    assert text.startswith("[schema check, attempt 2 of 3]")
    assert text.partition("\n\n")[2] == "no\n\nmore"


def test_the_size_of_feedback_is_bounded():
    assert len(framed("x" * 1_000_000, 2, 3)) < MAX_FEEDBACK + 400


def test_feedback_of_the_recipe_stays_as_small_as_its_last_failure():
    agent, model = refunds(PROSE, WRONG, '{"amount": 1}', GOOD)
    go(agent.reliability(strict_output_rules(4)).run("refund?"))
    assert [len(request.messages) for request in model.requests] == [1, 3, 3, 3]
    heads = [request.messages[-1].content.split("]")[0] for request in model.requests[1:]]
    assert heads == [f"[schema check, attempt {at} of 4" for at in (2, 3, 4)]


def test_the_model_is_told_every_issue_with_its_place():
    error = refusal("x", "schema-validate", PLACE, Issue("type", "must be an object", ""))
    assert issue_lines(error) == "/amount: must be a number\nthe answer: must be an object"
    assert issue_lines(refusal("x", cause=KeyError("id"))) == "'id'"
    assert len(issue_lines(refusal("x", "schema-validate", *[PLACE] * 99)).splitlines()) == 20


# --- what cannot be declared ----------------------------------------------------------------


@pytest.mark.parametrize(
    "declare",
    [
        lambda agent: agent.reliability("retry"),
        lambda agent: agent.reliability([ALWAYS]),
        lambda agent: agent.reliability(Rule(ALWAYS, "continue", "x")),
        lambda agent: agent.reliability(pre_check=[Rule(ALWAYS, "retry", "x")]),
        lambda agent: agent.reliability(pre_check=[Rule(ALWAYS, "ok", "x")]),
        lambda agent: agent.reliability().reliability(),
        lambda agent: Rule("always", "ok", "x"),
        lambda agent: Rule(ALWAYS, "", "x"),
        lambda agent: CircuitBreaker(failures=0),
        lambda agent: CircuitBreaker(successes=0),
        lambda agent: CircuitBreaker(cooldown=-1),
    ],
)
def test_what_is_no_rule_is_refused_where_it_is_declared(declare):
    with pytest.raises(UsageError):
        declare(refunds()[0])


def test_rules_may_be_given_singly_or_as_lists():
    agent, _ = refunds(PROSE)
    agent = agent.reliability(
        [Rule(lambda s: False, "ok", "a")], Rule(ALWAYS, "fail-fast", "b"), strict_output_rules(2)
    )
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.run("refund?"))
    assert caught.value.kind == "b"


# --- the circuit breaker --------------------------------------------------------------------


def test_a_circuit_opens_after_failures_in_a_row_and_is_half_open_after_the_cooldown():
    breaker = CircuitBreaker(failures=2, cooldown=3600)
    breaker.failed("a")
    breaker.succeeded("a")
    breaker.failed("a")
    assert breaker.state("a") == "closed"
    breaker.failed("a")
    assert breaker.state("a") == "open"
    with pytest.raises(CircuitOpen):
        breaker.check("a")
    assert breaker.state("b") == "closed"

    breaker = CircuitBreaker(failures=1, cooldown=0)
    breaker.failed("a")
    assert breaker.state("a") == "half-open"
    breaker.check("a")


def test_a_half_open_circuit_closes_after_successes_and_opens_at_one_failure():
    breaker = CircuitBreaker(failures=2, cooldown=0, successes=2)
    breaker.failed("a")
    breaker.failed("a")
    breaker.succeeded("a")
    assert breaker.state("a") == "half-open"
    breaker.failed("a")
    breaker.succeeded("a")
    assert breaker.state("a") == "half-open"
    breaker.succeeded("a")
    assert breaker.state("a") == "closed"
    breaker.failed("a")
    assert breaker.state("a") == "closed"


def test_the_defaults_are_five_failures_thirty_seconds_two_successes():
    breaker = CircuitBreaker()
    assert (breaker._failures, breaker._cooldown, breaker._successes) == (5, 30.0, 2)


def test_a_breaker_is_shared_by_runs_and_agents_and_lets_the_other_model_answer():
    breaker = CircuitBreaker(failures=1, cooldown=3600)
    first = ScriptedModel([DOWN, GOOD], name="first")
    rules = [Rule(lambda s: s.error is not None, "retry-other", "switch")]

    def agent():
        second = ScriptedModel([GOOD], name="second")
        made = Agent(first, output_schema=Refund)
        return made.reliability(rules, providers=[second], circuit_breaker=breaker)

    for _ in range(3):
        assert go(agent().run("refund?")) == GOOD
    assert len(first.requests) == 1
    assert breaker.state("first") == "open"
    assert breaker.state("second") == "closed"


def test_a_circuit_closes_over_runs_when_the_model_is_well_again():
    breaker = CircuitBreaker(failures=1, cooldown=0, successes=2)
    agent, model = refunds(DOWN, GOOD, GOOD)
    agent = agent.reliability(circuit_breaker=breaker)
    states = []
    for _ in range(3):
        with contextlib.suppress(ReliabilityFailFastError):
            go(agent.run("refund?"))
        states.append(breaker.state("scripted"))
    assert states == ["half-open", "half-open", "closed"]
    assert len(model.requests) == 3


def test_answers_that_break_the_contract_open_no_circuit():
    breaker = CircuitBreaker(failures=1, cooldown=3600)
    agent, _ = refunds(PROSE, GOOD)
    go(agent.reliability(strict_output_rules(2), circuit_breaker=breaker).run("refund?"))
    assert breaker.state("scripted") == "closed"


def test_an_open_circuit_is_no_attempt():
    breaker = CircuitBreaker(failures=1, cooldown=3600)
    breaker.failed("scripted")
    agent, model = refunds()
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(circuit_breaker=breaker).run("refund?"))
    assert caught.value.kind == "circuit-open"
    assert caught.value.account.requests == len(model.requests) == 0
