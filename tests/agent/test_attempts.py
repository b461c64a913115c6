"""Attempts at one reply: each verb, each way to give up, and what is told of them."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from answers import GOOD, PROSE, VALUE, WRONG, Heard, Refund, call, go, refunds, streamed
from callpact import (
    Agent,
    Context,
    ModelError,
    OutputSchemaError,
    UsageError,
    strict_output_rules,
    tool,
)
from callpact.agent import CircuitBreaker, ModelReply, Rule, ToolUse, Usage
from callpact.agent.reliability import MAX_ROUNDS
from callpact.errors import ReliabilityFailFastError
from callpact.testing import ScriptedModel

ALWAYS = lambda scope: True
FAILED = lambda scope: scope.error is not None
DOWN = ModelError("down", status=503)


def gave_up(agent, message="refund?"):
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.run(message))
    return caught.value


# --- verbs ----------------------------------------------------------------------------------


def test_continue_goes_on_to_the_call():
    agent, model = refunds(GOOD)
    agent = agent.reliability(
        pre_check=[Rule(ALWAYS, "continue", "fine"), Rule(ALWAYS, "fail-fast", "never")]
    )
    assert go(agent.run_typed("refund?")) == VALUE
    assert len(model.requests) == 1


def test_ok_takes_the_reply():
    agent, model = refunds(GOOD)
    agent = agent.reliability(Rule(ALWAYS, "ok", "fine"), Rule(ALWAYS, "fail-fast", "never"))
    assert go(agent.run_typed("refund?")) == VALUE
    assert len(model.requests) == 1


def test_retry_without_feedback_sends_the_same_request_again():
    agent, model = refunds(DOWN, GOOD)
    assert go(agent.reliability(Rule(FAILED, "retry", "again")).run_typed("refund?")) == VALUE
    assert model.requests[0] == model.requests[1]


@pytest.mark.parametrize("feedback", ["Be strict.", lambda scope: f"Attempt {scope.attempt}."])
def test_retry_with_feedback_adds_one_ephemeral_message(feedback):
    agent, model = refunds(DOWN, GOOD)
    rule = Rule(FAILED, "retry", "again", feedback_for_llm=feedback)
    assert go(agent.reliability(rule).run_typed("refund?")) == VALUE
    said = model.requests[1].messages[-1]
    assert (said.role, said.ephemeral) == ("user", True)
    assert said.content == ("Be strict." if isinstance(feedback, str) else "Attempt 1.")


def test_feedback_may_be_asynchronous():
    async def feedback(scope):
        await asyncio.sleep(0)
        return "Later."

    agent, model = refunds(DOWN, GOOD)
    go(agent.reliability(Rule(FAILED, "retry", "x", feedback_for_llm=feedback)).run("refund?"))
    assert model.requests[1].messages[-1].content == "Later."


def test_retry_other_goes_through_the_models_in_order_and_corrects_the_next_one():
    models = [ScriptedModel([reply], name=f"m{at}") for at, reply in enumerate((PROSE, WRONG))]
    last = ScriptedModel([GOOD], name="last")
    agent = Agent(models[0], output_schema=Refund).reliability(
        Rule(FAILED, "retry-other", "switch", feedback_for_llm="Do better."),
        providers=[models[1], last],
    )
    assert go(agent.run_typed("refund?")) == VALUE
    assert [m.content for m in last.requests[0].messages] == ["refund?", WRONG, "Do better."]


@pytest.mark.parametrize("given", [GOOD, ModelReply(GOOD, usage=Usage(1, 1))])
def test_fallback_supplies_the_reply_and_hears_of_the_request_and_the_error(given):
    heard = []

    async def fallback(request, error):
        heard.append((request.messages[-1].content, error))
        return given

    agent, _ = refunds(DOWN)
    agent = agent.reliability(Rule(FAILED, "fallback", "other"), fallback=fallback)
    assert go(agent.run_typed("refund?")) == VALUE
    assert heard == [("refund?", DOWN)]


def test_what_the_fallback_of_the_rules_gives_is_judged_by_the_boundary():
    agent, _ = refunds(DOWN)
    agent = agent.reliability(Rule(FAILED, "fallback", "x"), fallback=lambda *_: PROSE)
    answer = go(agent.run("refund?"))
    assert (answer, answer.account.unmet.stage) == (PROSE, "json-parse")
    agent, _ = refunds(DOWN)
    agent = agent.reliability(Rule(FAILED, "fallback", "x"), fallback=lambda *_: PROSE)
    with pytest.raises(OutputSchemaError):
        go(agent.run_typed("refund?"))


def test_a_fallback_of_the_rules_that_gives_something_else_is_a_mistake_of_its_author():
    agent, _ = refunds(DOWN)
    agent = agent.reliability(Rule(FAILED, "fallback", "x"), fallback=lambda *_: {"amount": 1})
    with pytest.raises(UsageError):
        go(agent.run("refund?"))


def test_fail_fast_before_the_call_asks_no_model():
    agent, model = refunds(GOOD)
    error = gave_up(agent.reliability(pre_check=[Rule(ALWAYS, "fail-fast", "budget", "no money")]))
    assert (error.kind, error.phase) == ("budget", "pre-check")
    assert error.reason == "reliability-pre-check: no money"
    assert model.requests == []
    assert error.account.requests == 0


def test_fail_fast_after_the_call_stops_at_once():
    agent, model = refunds(PROSE, GOOD)
    error = gave_up(agent.reliability(Rule(FAILED, "fail-fast", "mine", "my label")))
    assert (error.kind, error.label, error.phase) == ("mine", "my label", "post-decide")
    assert error.reason == "reliability-post-decide: my label"
    assert len(model.requests) == 1


def test_the_first_rule_that_holds_wins():
    agent, _ = refunds(PROSE)
    rules = [Rule(lambda scope: False, "ok", "a"), Rule(ALWAYS, "fail-fast", "b")]
    assert gave_up(agent.reliability(*rules, Rule(ALWAYS, "retry", "c"))).kind == "b"


def test_a_rule_that_raises_does_not_hold(caplog):
    agent, _ = refunds(PROSE)
    rules = [Rule(lambda scope: 1 / 0, "ok", "broken"), Rule(FAILED, "fail-fast", "whole")]
    assert gave_up(agent.reliability(rules)).kind == "whole"
    assert "broken" in caplog.text


def test_pre_check_runs_once_for_all_attempts():
    asked = []
    agent, _ = refunds(PROSE, WRONG, GOOD)
    check = Rule(lambda scope: asked.append(scope.attempt), "fail-fast", "x")
    go(agent.reliability(strict_output_rules(3), pre_check=[check]).run("refund?"))
    assert asked == [0]


# --- the ways to give up --------------------------------------------------------------------


def _kind(*replies, rules=(), **options):
    agent, _ = refunds(*replies)
    return gave_up(agent.reliability(*rules, **options)).kind


@pytest.mark.parametrize(
    ("expected", "replies", "rules", "options"),
    [
        ("mine", [PROSE], [Rule(FAILED, "fail-fast", "mine")], {}),
        ("schema-fail", [PROSE], [], {}),
        ("schema-fail", [PROSE], [Rule(lambda scope: False, "retry", "never")], {}),
        ("5xx-transient", [DOWN], [], {}),
        ("5xx-transient", [TimeoutError()], [], {}),
        ("5xx-transient", [ConnectionResetError()], [], {}),
        ("5xx-transient", [ModelError("busy", transient=True)], [], {}),
        ("rate-limit", [ModelError("slow down", status=429)], [], {}),
        ("unknown", [ModelError("bad key", status=401)], [], {}),
        ("unknown", [KeyError("odd")], [], {}),
        ("schema-stuck-loop", [PROSE, PROSE], strict_output_rules(5), {}),
        ("schema-retry-exhausted", [PROSE, WRONG], strict_output_rules(2), {}),
        ("no-more-providers", [PROSE], [Rule(FAILED, "retry-other", "switch")], {}),
        ("fallback-not-configured", [PROSE], [Rule(FAILED, "fallback", "other")], {}),
        ("no-response", [PROSE], [Rule(ALWAYS, "ok", "fine")], {}),
        ("pre-check-failed", [], [], {"pre_check": [Rule(ALWAYS, "fail-fast")]}),
    ],
)
def test_every_kind_of_giving_up(expected, replies, rules, options):
    assert _kind(*replies, rules=rules, **options) == expected


def test_the_rounds_are_bounded_whatever_the_rules_say():
    model = ScriptedModel(lambda request: DOWN)
    agent = Agent(model).reliability(
        Rule(FAILED, "retry", "for ever"), circuit_breaker=CircuitBreaker(failures=99)
    )
    assert gave_up(agent).kind == "max-loop-exceeded"
    assert len(model.requests) == MAX_ROUNDS == 50


def test_an_unknown_verb_cannot_be_declared():
    with pytest.raises(UsageError):
        Rule(ALWAYS, "try-harder", "x")


def test_the_error_says_all_of_the_table():
    agent, _ = refunds(PROSE, WRONG)
    error = gave_up(agent.reliability(strict_output_rules(2)))
    message = error.payload.pop("error_message")
    assert error.payload == {
        "phase": "post-decide",
        "attempt": 2,
        "provider_used": "scripted",
        "error_kind": "schema-fail",
    }
    assert message == str(error.cause)
    assert error.code == "ERR_RELIABILITY_FAIL_FAST"
    assert error.cause.stage == "schema-validate"


def test_a_mistake_of_the_programmer_is_no_failure_for_the_rules():
    agent, model = refunds(GOOD)
    go(agent.run("refund?"))
    agent = agent.reliability(Rule(FAILED, "retry", "again"))
    with pytest.raises(UsageError):
        go(agent.run("one more"))
    assert len(model.requests) == 2


# --- what rules see -------------------------------------------------------------------------


def test_the_scope_tells_a_rule_all_about_the_attempt():
    seen = []

    def when(scope):
        seen.append(scope)
        return scope.error is not None

    second = ScriptedModel([GOOD], name="second")
    first = ScriptedModel([PROSE, WRONG], name="first")
    agent = Agent(first, output_schema=Refund).reliability(
        Rule(lambda scope: when(scope) and scope.attempt < 2, "retry", "a"),
        Rule(FAILED, "retry-other", "b"),
        providers=[second],
        fallback=lambda *_: GOOD,
    )
    go(agent.run("refund?"))
    assert [scope.attempt for scope in seen] == [1, 2, 3]
    assert [scope.error_kind for scope in seen] == ["schema-fail", "schema-fail", "ok"]
    assert [scope.provider_idx for scope in seen] == [0, 0, 1]
    assert [scope.current_provider for scope in seen] == ["first", "first", "second"]
    assert [scope.can_switch_provider for scope in seen] == [True, True, False]
    assert {scope.providers_count for scope in seen} == {2}
    assert all(scope.has_fallback for scope in seen)
    assert [scope.usage.tokens for scope in seen] == [15, 30, 45]
    assert [scope.response is None for scope in seen] == [True, True, False]
    assert seen[1].validation_error.path == "/amount"
    assert seen[1].validation_error.raw_output == WRONG
    assert len(seen[2].validation_error_history) == 2
    assert seen[2].validation_error is None
    assert seen[2].attempts_per_provider == {"first": 2, "second": 1}
    assert seen[2].breaker_states == {"first": "closed", "second": "closed"}
    assert all(scope.latency_ms >= 0 for scope in seen)


# --- what is told ---------------------------------------------------------------------------


def test_one_strict_retry_is_told_in_the_measured_order():
    heard = Heard()
    agent, _ = refunds(PROSE, GOOD)
    go(agent.on(heard).reliability(strict_output_rules(3)).run("refund?"))
    assert [name for name in heard.types if name != "context.injected"] == [
        "agent.turn_start",
        "agent.iteration_start",
        "stream.llm_start",
        "agent.output_schema_validation_failed",
        "reliability.retried",
        "reliability.recovered",
        "stream.llm_end",
        "agent.iteration_end",
        "agent.turn_end",
    ]
    failed = heard.one("agent.output_schema_validation_failed")
    assert failed.pop("message")
    assert failed == {
        "stage": "json-parse",
        "raw_output": PROSE,
        "attempt": 1,
        "cumulative_retries": 0,
    }
    retried = heard.one("reliability.retried")
    assert retried.pop("error_message")
    assert retried == {
        "attempt": 1,
        "action": "retry",
        "error_kind": "schema-fail",
        "from_provider": "scripted",
        "to_provider": "scripted",
    }
    assert heard.one("reliability.recovered") == {
        "attempt": 2,
        "recovered_via": "retry",
        "prior_failures": 1,
        "error_kind": "schema-fail",
    }


def test_giving_up_is_told_with_its_kind():
    heard = Heard()
    agent, _ = refunds(PROSE)
    gave_up(agent.on(heard).reliability(Rule(FAILED, "fail-fast", "mine", "my label")))
    told = heard.one("reliability.fail_fast")
    assert (told["kind"], told["label"], told["phase"]) == ("mine", "my label", "post-decide")
    assert (told["attempt"], told["error_kind"]) == (1, "schema-fail")
    assert heard.of("agent.output_contract_unmet")[0]["retries_spent"] == 0


def test_a_fallback_of_the_rules_is_told_as_a_recovery():
    heard = Heard()
    agent, _ = refunds(DOWN)
    agent = agent.reliability(Rule(FAILED, "fallback", "x"), fallback=lambda *_: GOOD)
    go(agent.on(heard).run("refund?"))
    recovered = heard.one("reliability.recovered")
    assert (recovered["recovered_via"], recovered["error_kind"]) == ("fallback", "5xx-transient")


def test_a_reply_at_the_first_attempt_is_told_as_neither():
    heard = Heard()
    agent, _ = refunds(GOOD)
    go(agent.on(heard).reliability(strict_output_rules(3)).run("refund?"))
    assert not [name for name in heard.types if name.startswith("reliability.")]


# --- models that misbehave ------------------------------------------------------------------


class Odd:
    """A model with only what is needed."""

    name = "odd"

    def __init__(self, given):
        self.given = given

    async def complete(self, request):
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


def _deep(levels):
    value = []
    for _ in itertools.repeat(None, levels):
        value = [value]
    return value


USE = ToolUse("1", "main_look", {})


@pytest.mark.parametrize(
    "given",
    [
        None,
        "text",
        {"content": "text"},
        ModelReply(None),
        ModelReply(b"bytes"),
        ModelReply("x", None),
        ModelReply("x", [USE]),
        ModelReply("x", ({"name": "look"},)),
        ModelReply("x", (ToolUse(None, "look"),)),
        ModelReply("x", (ToolUse("1", None),)),
        ModelReply("x", (ToolUse("1", "look", object()),)),
        ModelReply("x", (ToolUse("1", "look", _deep(50_000)),)),
        ModelReply("x", usage=None),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_model_that_gives_garbage_is_told_so(given):
    with pytest.raises(ModelError):
        go(Agent(Odd(given), tools=[look]).run("go"))


@pytest.mark.parametrize("kind", [KeyError, TimeoutError, StopAsyncIteration, OSError, ValueError])
def test_what_a_model_raises_comes_out_as_it_is(kind):
    with pytest.raises(kind):
        go(Agent(Odd(kind("odd"))).run("go"))


def test_a_model_without_stream_is_completed():
    items = go(streamed(Agent(Odd(ModelReply("whole")))))
    assert [item.answer for item in items] == ["whole"]


@tool(namespace="main")
def look(context: Context) -> str:
    """Look."""
    return "seen"


def test_a_reply_with_tool_calls_is_taken_without_judging():
    agent, model = refunds(call("main_look"), PROSE, GOOD, tools=[look])
    assert go(agent.reliability(strict_output_rules(2)).run_typed("refund?")) == VALUE
    roles = [message.role for message in model.requests[2].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
