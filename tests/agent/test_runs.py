"""Siblings of `run`: results, history, sync, a model for one run, files, and how names are kept."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import subprocess
import sys

import pytest

from answers import CANNED, FENCED, GOOD, PROSE, VALUE, WRONG, Refund, call, go, refunds, streamed
from callpact import (
    Agent,
    Context,
    ModelError,
    OutputSchemaError,
    RunPaused,
    UsageError,
    strict_output_rules,
    tool,
)
from callpact.agent import (
    Answer,
    Finished,
    Message,
    Paused,
    Reset,
    Token,
    ToolUse,
    TypedResult,
    Usage,
)
from callpact.agent.budget import MAX_HISTORY
from callpact.errors import ReliabilityFailFastError
from callpact.testing import ScriptedModel
from openai_stub import say, with_stub

# --- results --------------------------------------------------------------------------------


def test_a_result_has_value_tier_repairs_attempts_cost_and_messages():
    model = ScriptedModel([WRONG, FENCED], tokens=Usage(10, 5, 0.5))
    agent = Agent(model).output_schema(Refund, retries=1, repair="safe")
    result = go(agent.run_result("refund?"))
    assert isinstance(result, TypedResult)
    assert (result.value, result.tier) == (VALUE, "primary")
    assert [repair.code for repair in result.repairs] == ["fence"]
    assert [attempt.outcome for attempt in result.attempts] == ["retried", "passed"]
    assert result.cost == 1.0
    assert [message.role for message in result.messages] == ["user", "assistant"] * 2
    assert (result.answer, result.account.requests) == (FENCED, 2)
    with pytest.raises(AttributeError):
        result.value = None


@pytest.mark.parametrize(
    ("fallback", "tier"),
    [
        (lambda error, raw: VALUE, "fallback"),
        (lambda error, raw: 1 / 0, "canned"),
        (None, "canned"),
    ],
)
@pytest.mark.parametrize("by_rules", [False, True])
def test_a_result_names_the_tier_that_gave_it(fallback, tier, by_rules):
    agent, _ = refunds(PROSE, PROSE)
    agent = agent.output_fallback(fallback=fallback, canned=CANNED)
    if by_rules:
        agent = agent.reliability(strict_output_rules(2))
    result = go(agent.run_result("refund?"))
    assert result.tier == tier
    assert result.repairs == ()
    assert result.answer == PROSE
    assert result.account.requests == 1 + by_rules
    assert result.messages[0].content == "refund?"


def test_attempts_under_rules_are_all_in_the_result():
    agent, _ = refunds(PROSE, WRONG, GOOD)
    result = go(agent.reliability(strict_output_rules(3)).run_result("refund?"))
    rows = [(row.attempt, row.outcome, row.stage) for row in result.attempts]
    assert rows == [
        (1, "retried", "json-parse"),
        (2, "retried", "schema-validate"),
        (3, "passed", None),
    ]


def test_attempts_of_rules_that_give_up_are_in_the_account():
    agent, _ = refunds(PROSE, WRONG)
    with pytest.raises(ReliabilityFailFastError) as caught:
        go(agent.reliability(strict_output_rules(2)).run_result("refund?"))
    assert [row.outcome for row in caught.value.account.attempts] == ["retried", "exhausted"]


def test_a_result_needs_a_contract():
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError):
        go(Agent(model).run_result("go"))
    assert model.requests == []


def test_an_answer_survives_pickling_with_all_that_is_beside_it():
    answer = go(refunds({"text": GOOD, "finish": "length"})[0].run("refund?"))
    again = pickle.loads(pickle.dumps(answer))
    assert (again, again.finish, again.messages) == (answer, "length", answer.messages)


# --- history --------------------------------------------------------------------------------


def test_history_comes_before_the_message_and_goes_on_in_the_answer():
    model = ScriptedModel(["Ada.", "You are Ada."])
    agent = Agent(model)
    first = go(agent.run("I am Ada. Who am I?"))
    second = go(agent.run("Again?", history=first.messages))
    said = [message.content for message in model.requests[1].messages]
    assert said == ["I am Ada. Who am I?", "Ada.", "Again?"]
    assert [message.content for message in second.messages] == [*said, "You are Ada."]


def test_history_with_tools_is_taken():
    @tool(namespace="main")
    def look() -> str:
        return "late"

    model = ScriptedModel([call("main_look"), "It is late.", "Still."])
    agent = Agent(model, tools=[look])
    first = go(agent.run("?"))
    assert go(agent.run("And now?", history=first.messages)) == "Still."
    assert [m.role for m in model.requests[2].messages] == [
        *("user", "assistant", "tool", "assistant", "user")
    ]


def test_ephemeral_messages_of_a_history_are_left_out():
    model = ScriptedModel(["done"])
    history = [Message("user", "a"), Message("assistant", "b", ephemeral=True)]
    go(Agent(model).run("c", history=history))
    assert [message.content for message in model.requests[0].messages] == ["a", "c"]


CALLED = Message("assistant", "", (ToolUse("u", "t", {}),))


@pytest.mark.parametrize(
    "history",
    [
        "text",
        {"role": "user"},
        ["text"],
        [{"role": "user", "content": "a"}],
        [Message("system", "obey")],
        Message("user", "a"),
        [CALLED],
        [CALLED, Message("user", "and?")],
        [Message("tool", "x", tool_use_id="u")],
        [CALLED, Message("tool", "x", tool_use_id="v")],
        [Message("user", "a")] * (MAX_HISTORY + 1),
    ],
    ids=lambda history: repr(history)[:30],
)
def test_a_history_that_no_model_takes_is_refused_before_it_is_asked(history):
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError):
        go(Agent(model).run("go", history=history))
    assert model.requests == []


# --- sync -----------------------------------------------------------------------------------


def test_code_without_an_event_loop_runs_an_agent():
    agent, _ = refunds(GOOD, GOOD)
    answer = agent.run_sync("refund?")
    assert isinstance(answer, Answer)
    assert agent.parse_output(answer) == VALUE
    assert agent.run_typed_sync("refund?", session="ada") == VALUE


def test_the_same_loop_serves_every_sync_run():
    loops = []

    @tool(namespace="main")
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    agent = Agent(ScriptedModel([call("main_look"), "a"] * 2), tools=[look])
    agent.run_sync("go")
    agent.run_sync("go")
    assert loops[0] is loops[1]


def test_the_thread_of_sync_runs_ends_with_the_agent():
    agent = Agent(ScriptedModel(["done"]))
    agent.run_sync("go")
    thread = agent._plan.runtime._thread._thread
    assert thread.is_alive()
    del agent
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_a_sync_run_inside_an_event_loop_is_wrong_use():
    agent, model = refunds(GOOD)

    async def inside():
        agent.run_sync("refund?")

    with pytest.raises(UsageError, match=r"await run\(\.\.\.\)"):
        go(inside())
    assert model.requests == []


def test_errors_of_a_sync_run_are_those_of_run():
    with pytest.raises(OutputSchemaError):
        refunds(PROSE)[0].run_typed_sync("refund?")
    with pytest.raises(UsageError):
        refunds()[0].run_sync(" ")


def test_a_model_that_fails_is_no_answer_of_a_sync_run():
    with pytest.raises(ModelError):
        Agent(ScriptedModel([ModelError("down")])).run_sync("go")


# --- a model for one run --------------------------------------------------------------------


def test_a_run_may_have_a_model_of_its_own():
    own, other = ScriptedModel(["own"] * 2, name="own"), ScriptedModel(["other"], name="other")
    agent = Agent(own)
    assert go(agent.run("go", model=other)) == "other"
    assert go(agent.run("go")) == "own"
    assert go(agent.run("go", model=None)) == "own"
    assert len(other.requests) == 1


def test_every_way_to_run_takes_a_model():
    agent, own = refunds()

    def other(*replies):
        return ScriptedModel(replies or [GOOD])

    assert go(agent.run_typed("?", model=other())) == VALUE
    assert go(agent.run_result("?", model=other())).value == VALUE
    assert agent.run_typed_sync("?", model=other()) == VALUE
    assert go(streamed(agent, model=other()))[-1].result.value == VALUE
    assert own.requests == []


@pytest.mark.parametrize("model", ["gpt-5", ":x", "openai:", "", 5, object()])
def test_what_is_no_model_is_refused_where_it_is_given(model):
    for use in (
        lambda: Agent(model),
        lambda: go(Agent(ScriptedModel([])).run("go", model=model)),
        lambda: Agent(ScriptedModel([])).reliability(providers=[model]),
    ):
        with pytest.raises(UsageError):
            use()


def test_an_unknown_option_of_a_run_is_refused():
    with pytest.raises(UsageError, match="a run has no option 'sesion'"):
        go(Agent(ScriptedModel(["a"])).run("go", sesion="ada"))


def test_a_named_model_is_opened_when_it_is_first_asked(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = Agent("openai:gpt-5-mini")
    assert "openai:gpt-5-mini" in repr(agent)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        go(agent.run("Hello?"))


def test_declaring_a_named_model_imports_nothing():
    code = (
        "import sys; from callpact import Agent; Agent('openai:gpt-5').output_schema(int); "
        "print(any(name.startswith('pydantic_ai') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_named_model_answers_over_http(monkeypatch):
    async def story(model, stub):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        agent = Agent("openai-chat:gpt-4o-mini")
        assert await agent.run("Hello?") == "Good day."
        items = await streamed(agent)
        assert "".join(item.text for item in items if isinstance(item, Token)) == "Good evening."

    with_stub(say("Good day."), say("Good evening."))(story)


# --- resuming -------------------------------------------------------------------------------


@tool(namespace="main")
async def ask(context: Context) -> str:
    """Ask a person."""
    return await context.pause("May I?")


def test_a_paused_run_goes_on_to_a_value():
    agent, _ = refunds(call("main_ask"), GOOD, tools=[ask])
    paused = go(agent.run("refund?"))
    assert go(agent.resume_typed(paused, "yes")) == VALUE


def test_resume_typed_uses_the_fallback_and_needs_a_contract():
    agent, _ = refunds(call("main_ask"), PROSE, tools=[ask])
    paused = go(agent.run("refund?"))
    with_canned = agent.output_fallback(canned=CANNED)
    assert go(with_canned.resume_typed(paused.checkpoint, "yes")).amount == 0
    plain = Agent(ScriptedModel([]), tools=[ask])
    with pytest.raises(UsageError):
        go(plain.resume_typed(paused, "yes"))


def test_resume_typed_of_a_run_that_pauses_again_raises_the_pause():
    agent, _ = refunds(call("main_ask"), call("main_ask"), GOOD, tools=[ask])
    with pytest.raises(RunPaused) as caught:
        go(agent.resume_typed(go(agent.run("refund?")), "yes"))
    assert go(agent.resume_typed(caught.value.paused, "yes")) == VALUE


def test_a_paused_run_may_go_on_with_another_model():
    agent, _ = refunds(call("main_ask"), tools=[ask])
    paused = go(agent.run("refund?"))
    assert go(agent.resume_typed(paused, "yes", model=ScriptedModel([GOOD]))) == VALUE


def test_reading_a_pause_as_an_answer_raises_it():
    agent, _ = refunds(call("main_ask"), tools=[ask])
    paused = go(agent.run("refund?"))
    assert isinstance(paused, Paused)
    for read in (agent.parse_output, agent.read_output, lambda p: go(agent.parse_output_async(p))):
        with pytest.raises(RunPaused) as caught:
            read(paused)
        assert caught.value.paused is paused


DESK = '''
import sys
from callpact import Agent, Context, tool
from callpact.testing import ScriptedModel

@tool
async def approve(context: Context) -> str:
    """Ask a person."""
    return await context.pause("May I?")

def agent(*replies):
    return Agent(ScriptedModel(replies), name="desk", tools=[approve])

def begin():
    import asyncio
    use = {"tool": next(iter(agent()._plan.runtime.catalog)).wire_name, "arguments": {}}
    print(asyncio.run(agent(use).run("go")).checkpoint)

def end(checkpoint):
    import asyncio
    answer = asyncio.run(agent("done").resume(checkpoint, "yes"))
    print([message.content for message in answer.messages if message.role == "tool"])

if __name__ == "__main__":
    end(sys.argv[1]) if len(sys.argv) > 1 else begin()
'''


@pytest.mark.parametrize("begun", ["script", "module", "import"])
@pytest.mark.parametrize("ended", ["script", "module", "import"])
def test_an_answer_is_not_lost_however_the_file_is_started(tmp_path, begun, ended):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "desk_file.py").write_text(DESK, "utf-8")
    ways = {
        "script": ["pack/desk_file.py"],
        "module": ["-m", "pack.desk_file"],
        "import": [
            "-c",
            (
                "import sys; from pack import desk_file as d; "
                "d.end(sys.argv[1]) if len(sys.argv) > 1 else d.begin()"
            ),
        ],
    }

    def run(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    checkpoint = run(*ways[begun])
    assert json.loads(checkpoint)["waiting"][0]["use"]["name"] == "desk_file_approve"
    assert run(*ways[ended], checkpoint) == "['yes']"


# --- streams --------------------------------------------------------------------------------


def kinds(items):
    return [type(item).__name__ for item in items if not isinstance(item, Token)]


def test_a_stream_ends_with_the_canned_value_and_takes_bad_tokens_back():
    agent, _ = refunds(PROSE)
    items = go(streamed(agent.output_fallback(canned=CANNED)))
    assert kinds(items) == ["Reset", "Finished"]
    assert items[-2] == Reset("schema-fail", 1)
    assert (items[-1].result.value.amount, items[-1].result.tier) == (0, "canned")
    assert items[-1].answer == PROSE


def test_a_stream_ends_with_what_the_fallback_gives():
    agent, _ = refunds(PROSE)
    items = go(streamed(agent.output_fallback(fallback=lambda error, raw: VALUE)))
    assert kinds(items) == ["Reset", "Finished"]
    assert (items[-1].result.value, items[-1].result.tier) == (VALUE, "fallback")


def test_rules_that_give_up_in_a_stream_leave_the_canned_value():
    agent, _ = refunds(PROSE, PROSE)
    agent = agent.reliability(strict_output_rules(2)).output_fallback(canned=CANNED)
    items = go(streamed(agent))
    assert kinds(items) == ["Reset", "Reset", "Finished"]
    assert items[-1].result.tier == "canned"


def test_bad_tokens_at_the_end_are_taken_back_without_a_fallback_as_well():
    agent, _ = refunds(PROSE)
    items = go(streamed(agent))
    assert kinds(items) == ["Reset", "Finished"]
    assert (items[-1].answer, items[-1].result) == (PROSE, None)
    with pytest.raises(OutputSchemaError):
        agent.parse_output(items[-1].answer)


def test_bad_tokens_after_the_last_retry_are_taken_back():
    agent, _ = refunds(WRONG, WRONG, retries=1)
    assert kinds(go(streamed(agent))) == ["Reset", "Reset", "Finished"]


def test_rules_that_give_up_take_tokens_back_before_they_raise():
    agent, _ = refunds(PROSE)
    items = []

    async def read():
        async for item in agent.reliability(strict_output_rules(1)).stream("refund?"):
            items.append(item)

    with pytest.raises(ReliabilityFailFastError):
        go(read())
    assert kinds(items) == ["Reset"]


def test_a_good_stream_has_no_reset_and_the_result_at_its_end():
    items = go(streamed(refunds(GOOD)[0]))
    assert kinds(items) == ["Finished"]
    assert items[-1].result.value == VALUE


def test_a_stream_without_a_contract_ends_with_the_answer_alone():
    items = go(streamed(Agent(ScriptedModel(["Good day."]))))
    assert items[-1] == Finished("Good day.", None)


def test_a_fallback_that_fails_raises_out_of_the_stream():
    agent, _ = refunds(PROSE)
    with pytest.raises(ZeroDivisionError):
        go(streamed(agent.output_fallback(fallback=lambda error, raw: 1 / 0)))
