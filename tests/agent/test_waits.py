"""Retries that wait: backoff, the wait that a model asks for, the deadline, and the breaker."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import GOOD, Heard, go, refunds
from callpact import Agent, LimitReached, ModelError, UsageError, strict_output_rules
from callpact.agent import Backoff, CircuitBreaker, Rule
from callpact.agent.reliability import MAX_WAIT
from callpact.errors import ReliabilityFailFastError
from callpact.testing import ScriptedModel
from openai_stub import fail, say, with_stub


class Sleeper:
    """Sleeps in no time, and remembers how long it should have."""

    def __init__(self):
        self.waits = []

    async def __call__(self, seconds):
        self.waits.append(seconds)


def limited(after=None):
    return ModelError("slow down", status=429, retry_after=after)


def retry(kind="rate-limit", **options):
    return Rule(lambda scope: scope.error_kind == kind, "retry", kind, **options)


def waiting(*replies, rules=(), **options):
    sleeper, heard = Sleeper(), Heard()
    agent = Agent(ScriptedModel(replies)).reliability(*rules, sleep=sleeper, **options).on(heard)
    return agent, sleeper, heard


# --- how long -------------------------------------------------------------------------------


@given(first=st.floats(0.001, 10), more=st.floats(0, 100), retries=st.integers(min_value=0))
def test_a_backoff_doubles_up_to_its_end_and_half_of_it_is_random(first, more, retries):
    backoff = Backoff(first, first + more)
    longest = min(first * 2 ** min(retries, 64), first + more)
    assert longest / 2 <= backoff.seconds(retries) <= longest


def test_two_waits_differ():
    assert len({Backoff().seconds(3) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("first", "most"),
    [(0, 1), (-1, 1), (2, 1), (1, MAX_WAIT + 1), (math.nan, 1), (1, math.inf), ("1", 2), (True, 2)],
)
def test_a_backoff_that_cannot_be_is_refused(first, most):
    with pytest.raises(UsageError):
        Backoff(first, most)


@pytest.mark.parametrize("then", ["ok", "fallback", "fail-fast"])
def test_only_a_retry_waits(then):
    with pytest.raises(UsageError):
        Rule(lambda scope: True, then, wait=Backoff())
    with pytest.raises(UsageError):
        Rule(lambda scope: True, "retry", wait=5)


# --- waiting --------------------------------------------------------------------------------


def test_a_rule_waits_longer_each_time():
    rules = [retry(wait=Backoff(1, 8))]
    agent, sleeper, heard = waiting(*[limited()] * 5, "done", rules=rules)
    assert go(agent.run("go")) == "done"
    bounds = [(0.5, 1), (1, 2), (2, 4), (4, 8), (4, 8)]
    assert len(sleeper.waits) == 5
    assert all(low <= wait <= high for wait, (low, high) in zip(sleeper.waits, bounds, strict=True))
    told = [each["wait_seconds"] for each in heard.of("reliability.retried")]
    assert told == sleeper.waits


def test_a_retry_waits_as_long_as_the_model_asks_with_and_without_a_backoff():
    agent, sleeper, _ = waiting(limited(7), limited(0), "done", rules=[retry()])
    assert go(agent.run("go")) == "done"
    assert sleeper.waits == [7]
    agent, sleeper, _ = waiting(limited(7), "done", rules=[retry(wait=Backoff(1, 2))])
    go(agent.run("go"))
    assert sleeper.waits == [7]


def test_another_model_is_asked_at_once_unless_the_rule_waits():
    other = ScriptedModel(["done"] * 2, name="other")
    rule = Rule(lambda scope: scope.error is not None, "retry-other")
    agent, sleeper, _ = waiting(limited(7), rules=[rule], providers=[other])
    go(agent.run("go"))
    assert sleeper.waits == []
    rule = Rule(lambda scope: scope.error is not None, "retry-other", wait=Backoff(2, 2))
    agent, sleeper, _ = waiting(limited(7), rules=[rule], providers=[other])
    go(agent.run("go"))
    assert len(sleeper.waits) == 1
    assert sleeper.waits[0] <= 2


@pytest.mark.parametrize("after", [11.0, MAX_WAIT + 1, 1e308])
def test_a_wait_beyond_the_deadline_ends_the_run_at_once(after):
    agent, sleeper, heard = waiting(limited(after), "done", rules=[retry()])
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.limits(seconds=10).run("go"))
    assert caught.value.kind == "no-time-to-wait"
    assert caught.value.cause.status == 429
    assert sleeper.waits == []
    assert heard.of("reliability.retried") == []


def test_without_a_deadline_a_model_cannot_ask_for_hours():
    agent, sleeper, _ = waiting(limited(86_400), "done", rules=[retry()])
    with pytest.raises(ReliabilityFailFastError, match="no-time-to-wait"):
        go(agent.run("go"))
    assert sleeper.waits == []


def test_a_sleep_that_outlasts_the_deadline_is_cut():
    async def oversleep(seconds):
        import asyncio

        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([limited(0.01), "done"]))
    agent = agent.reliability(retry(), sleep=oversleep).limits(seconds=0.05)
    with pytest.raises(LimitReached):
        go(agent.run("go"))


@pytest.mark.parametrize("after", [-1, math.nan, math.inf, -math.inf])
def test_a_wait_that_is_no_time_is_none(after):
    assert limited(after).retry_after is None


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("streams", [False, True])
def test_the_header_of_a_server_is_obeyed(status, streams):
    sleeper = Sleeper()
    rule = Rule(lambda scope: scope.error is not None, "retry")

    async def story(model, stub):
        agent = Agent(model).reliability(rule, sleep=sleeper)
        if streams:
            items = [item async for item in agent.stream("Hello?")]
            assert items[-1].answer == "Good day."
        else:
            assert await agent.run("Hello?") == "Good day."

    with_stub(fail(status, retry_after="3"), say("Good day."))(story)
    assert sleeper.waits == [3.0]


# --- the breaker ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [limited(), limited(2)] + [ModelError("no", status=status) for status in (400, 401, 413, 422)],
)
def test_what_speaks_of_one_request_does_not_open_the_breaker(error):
    breaker = CircuitBreaker(failures=5)
    rules = [Rule(lambda scope: scope.attempt <= 7 and scope.error is not None, "retry")]
    agent, _, _ = waiting(*[error] * 7, "done", rules=rules, circuit_breaker=breaker)
    assert go(agent.run("go")) == "done"
    assert breaker.state("scripted") == "closed"


@pytest.mark.parametrize(
    "error",
    [
        ModelError("down", status=503, retry_after=0),
        ModelError("slow", status=408),
        ModelError("gone", transient=True),
        ConnectionError("gone"),
    ],
)
def test_outages_open_the_breaker(error):
    breaker = CircuitBreaker(failures=3)
    rules = [Rule(lambda scope: scope.error_kind != "circuit-open" and scope.error, "retry")]
    agent, _, _ = waiting(*[error] * 3, rules=rules, circuit_breaker=breaker)
    with pytest.raises(ReliabilityFailFastError, match="circuit-open"):
        go(agent.run("go"))
    assert breaker.state("scripted") == "open"


def test_a_rate_limit_among_outages_neither_counts_nor_forgives():
    breaker = CircuitBreaker(failures=2)
    down = ModelError("down", status=500)
    rules = [Rule(lambda scope: scope.error_kind != "circuit-open" and scope.error, "retry")]
    agent, _, _ = waiting(down, limited(), down, rules=rules, circuit_breaker=breaker)
    with pytest.raises(ReliabilityFailFastError, match="circuit-open"):
        go(agent.run("go"))


# --- stuck ----------------------------------------------------------------------------------


def test_strict_rules_go_on_when_they_may_be_stuck():
    agent, model = refunds("No.", "No.", "No.", GOOD)
    agent = agent.reliability(strict_output_rules(4), stops_when_stuck=False)
    assert go(agent.run_typed("refund?")).amount == 5.0
    assert len(model.requests) == 4


def test_strict_rules_stop_when_stuck_unless_told_otherwise():
    agent, model = refunds("No.", "No.", "No.", GOOD)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(4)).run_typed("refund?"))
    assert (caught.value.kind, len(model.requests)) == ("schema-stuck-loop", 2)


def test_an_exhausted_strict_retry_ends_as_such_when_it_may_be_stuck():
    agent, model = refunds(*["No."] * 3)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(3), stops_when_stuck=False).run_typed("refund?"))
    assert (caught.value.kind, len(model.requests)) == ("schema-retry-exhausted", 3)
