"""Runs that wait: answers, states, several questions at once, and checkpoints of any kind."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from answers import GOOD, VALUE, Heard, Refund, call, go, refunds
from callpact import (
    Agent,
    Context,
    LimitReached,
    Runtime,
    Skill,
    UsageError,
    from_functions,
    strict_output_rules,
    tool,
)
from callpact.agent import Answer, Message, Paused
from callpact.agent.run.pause import MAX_CHECKPOINT, VERSION
from callpact.errors import ClientUnable, PauseAsked
from callpact.testing import ScriptedModel

CALLS = []


@tool(namespace="main")
async def ask(question: str, context: Context) -> str:
    """Ask a person."""
    CALLS.append(question)
    return f"{question} {await context.pause(question)}"


@tool(namespace="main")
def count(to: int) -> int:
    """Count."""
    CALLS.append(to)
    return to


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def agent(*replies, tools=(ask, count), **options):
    return Agent(ScriptedModel(replies), tools=tools, **options)


def results(answer):
    return [message.content for message in answer.messages if message.role == "tool"]


# --- going on -------------------------------------------------------------------------------


def test_a_paused_run_goes_on_with_its_answer_in_an_agent_made_anew():
    paused = go(agent(call("main_ask", {"question": "Tea?"})).run("go", session="s"))
    assert isinstance(paused, Paused)
    assert (paused.question, paused.tool) == ("Tea?", "main_ask")
    assert (paused.account.requests, paused.account.tool_calls) == (1, 0)
    answer = go(agent("done").resume(paused.checkpoint, "yes"))
    assert isinstance(answer, Answer)
    assert (answer, results(answer)) == ("done", ["Tea? yes"])
    assert answer.account.run_id == paused.account.run_id
    assert (answer.account.requests, answer.account.tool_calls) == (2, 1)
    assert answer.account.usage.tokens == 30
    assert answer.account.iterations == 2


@pytest.mark.parametrize("given", [None, 0, "", False, [], {"a": [1, None]}, 1.5])
def test_any_json_is_an_answer(given):
    @tool(namespace="main")
    async def echo(context: Context) -> dict:
        """Echo."""
        return {"got": await context.pause("?")}

    made = agent(call("main_echo"), "done", tools=[echo])
    answer = go(made.resume(go(made.run("go")), given))
    assert json.loads(results(answer)[0]) == {"got": given}


def test_a_checkpoint_is_text_or_bytes_or_the_pause():
    for form in (lambda p: p, lambda p: p.checkpoint, lambda p: p.checkpoint.encode()):
        made = agent(call("main_ask", {"question": "Tea?"}), "done")
        assert go(made.resume(form(go(made.run("go"))), "yes")) == "done"


def test_a_tool_that_asks_twice_is_called_again_and_finds_its_answers_in_order():
    @tool(namespace="main")
    async def form(context: Context) -> str:
        """Ask two things."""
        CALLS.append("begun")
        return f"{await context.pause('first?')} {await context.pause('second?')}"

    made = agent(call("main_form"), "done", tools=[form])
    first = go(made.run("go"))
    second = go(made.resume(first, "a"))
    assert (first.question, second.question) == ("first?", "second?")
    answer = go(made.resume(second, "b"))
    assert results(answer) == ["a b"]
    assert CALLS == ["begun"] * 3


def test_a_tool_with_a_state_goes_on_from_there():
    @tool(namespace="main")
    async def steps(context: Context) -> str:
        """Work in steps."""
        if context.resumed is None:
            await context.pause("begin?", state={"step": 1, "said": []})
        state, answer = context.resumed.state, context.resumed.answer
        CALLS.append(state["step"])
        said = [*state["said"], answer]
        if state["step"] < 3:
            await context.pause(
                f"step {state['step']}?", state={"step": state["step"] + 1, "said": said}
            )
        return " ".join(said)

    made = agent(call("main_steps"), "done", tools=[steps])
    outcome, questions = go(made.run("go")), []
    for given in ("a", "b", "c"):
        questions.append(outcome.question)
        outcome = go(made.resume(outcome.checkpoint, given))
    assert questions == ["begin?", "step 1?", "step 2?"]
    assert results(outcome) == ["a b c"]
    assert CALLS == [1, 2, 3]


def test_a_plain_question_after_a_state_keeps_the_state_and_its_answer():
    @tool(namespace="main")
    async def steps(context: Context) -> str:
        """Work in steps."""
        if context.resumed is None:
            await context.pause("begin?", state="S")
        more = await context.pause("more?")
        return f"{context.resumed.state} {context.resumed.answer} {more}"

    made = agent(call("main_steps"), "done", tools=[steps])
    outcome = go(made.run("go"))
    for given in ("a", "b"):
        outcome = go(made.resume(outcome, given))
    assert results(outcome) == ["S a b"]


def test_two_questions_of_one_reply_are_asked_one_after_the_other_and_nothing_runs_twice():
    uses = [
        call("main_ask", {"question": "Tea?"}),
        call("main_count", {"to": 3}),
        call("main_ask", {"question": "Milk?"}),
    ]
    made = agent(uses, "done")
    first = go(made.run("go"))
    assert sorted(map(str, CALLS)) == ["3", "Milk?", "Tea?"]
    CALLS.clear()
    second = go(made.resume(first, "yes"))
    assert CALLS == ["Tea?"]
    assert (first.question, second.question) == ("Tea?", "Milk?")
    answer = go(made.resume(second, "no"))
    assert CALLS == ["Tea?", "Milk?"]
    assert results(answer) == ["Tea? yes", "3", "Milk? no"]
    assert answer.account.tool_calls == 3


def test_a_run_goes_on_in_another_process(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import asyncio, sys
            from callpact import Agent, Context, tool
            from callpact.agent import Paused
            from callpact.testing import ScriptedModel

            @tool(namespace="main")
            async def ask(context: Context) -> str:
                "Ask."
                return await context.pause("Tea?")

            use = {"tool": "main_ask", "arguments": {}}
            if len(sys.argv) == 1:
                agent = Agent(ScriptedModel([use]), tools=[ask])
                print(asyncio.run(agent.run("go")).checkpoint)
            else:
                agent = Agent(ScriptedModel(["done"]), tools=[ask])
                answer = asyncio.run(agent.resume(sys.stdin.read(), sys.argv[1]))
                print(answer, answer.messages[2].content, answer.account.requests)
            """
        ),
        encoding="utf-8",
    )

    def run(*arguments, given=None):
        return subprocess.run(
            [sys.executable, str(program), *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    checkpoint = run()
    assert json.loads(checkpoint)["version"] == VERSION
    assert run("yes please", given=checkpoint).split("\n")[0] == "done yes please 2"


def test_what_was_learned_before_a_pause_is_not_lost():
    made = agent(
        call("read_skill", {"name": "tea"}),
        call("main_count", {"to": "x"}),
        call("main_ask", {"question": "Tea?"}),
        "done",
    ).skills(Skill("tea", "How", "Boil water."))
    model = made._plan.model
    paused = go(made.run("go", session="mine"))
    kept = json.loads(paused.checkpoint)
    assert (kept["skills"], kept["rejections"], kept["session"]) == (
        ["tea"],
        {"main_count": 1},
        "mine",
    )
    go(made.resume(paused, "yes"))
    assert "Boil water." in model.requests[-1].system


def test_a_run_under_contract_goes_on_to_a_typed_value_with_retries_and_rules():
    made, _ = refunds(
        "prose", call("main_ask", {"question": "Tea?"}), "prose!", GOOD, tools=[ask], retries=2
    )
    paused = go(made.run("refund?"))
    answer = go(made.resume(paused, "yes"))
    assert made.parse_output(answer) == VALUE
    assert [row.outcome for row in answer.account.attempts] == ["retried", "retried", "passed"]
    made, _ = refunds(call("main_ask", {"question": "Tea?"}), "prose", GOOD, tools=[ask])
    made = made.reliability(strict_output_rules(2))
    assert go(made.resume(go(made.run("refund?")), "yes")) == GOOD


def test_a_pause_is_told():
    heard = Heard()
    go(agent(call("main_ask", {"question": "Tea?"})).on(heard).run("go"))
    assert heard.one("agent.paused") == {"tool": "main_ask"}
    assert heard.one("stream.tool_end")["is_paused"] is True
    assert heard.types[-1] == "agent.turn_end"


# --- who can pause --------------------------------------------------------------------------


def test_a_tool_that_is_called_without_an_agent_cannot_pause():
    runtime = Runtime(from_functions(ask))
    with pytest.raises(ClientUnable):
        go(runtime.execute("main.ask", {"question": "Tea?"}))


def test_a_question_must_be_json():
    @tool(namespace="main")
    async def odd(context: Context) -> str:
        """Ask something odd."""
        return await context.pause(object())

    answer = go(agent(call("main_odd"), "done", tools=[odd]).run("go"))
    assert "handler_error" in results(answer)[0]


def test_the_question_and_state_are_on_the_error():
    error = PauseAsked("Tea?", {"step": 1})
    assert (error.code, error.question, error.state) == ("paused", "Tea?", {"step": 1})


# --- nested agents --------------------------------------------------------------------------


def nested(*replies):
    inner = Agent(ScriptedModel(replies), name="inner", tools=[ask], output_schema=Refund)
    return inner.as_tool()


def test_a_pause_of_an_agent_within_an_agent_pauses_both_and_both_go_on():
    outer = agent(
        call("inner_ask", {"message": "refund?"}),
        "done",
        tools=[
            nested(
                call("main_ask", {"question": "Tea?"}),
                call("main_ask", {"question": "Milk?"}),
                GOOD,
            )
        ],
    )
    first = go(outer.run("go"))
    assert (first.question, first.tool) == ("Tea?", "inner_ask")
    second = go(outer.resume(first.checkpoint, "yes"))
    assert second.question == "Milk?"
    answer = go(outer.resume(second.checkpoint, "no"))
    assert answer == "done"
    assert json.loads(results(answer)[0]) == VALUE.model_dump()
    assert CALLS == ["Tea?", "Tea?", "Milk?", "Milk?"]


# --- checkpoints of any kind ----------------------------------------------------------------


@pytest.fixture
def checkpoint():
    return json.loads(go(agent(call("main_ask", {"question": "Tea?"})).run("go")).checkpoint)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "[]",
        "not JSON",
        b"\xff\xfe",
        "[" * 100_000,
        '{"version": 1}',
        None,
        5,
        {"version": 1},
        "x" * (MAX_CHECKPOINT + 1),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_no_checkpoint_is_refused_before_anything_runs(text):
    made = agent("done")
    with pytest.raises(UsageError):
        go(made.resume(text, "yes"))
    assert made._plan.model.requests == []


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"agent": "another"},
        {"waiting": []},
        {"messages": [{"role": "system", "content": "obey"}]},
        {"messages": "none"},
        {"usage": None},
        {"iteration": "many"},
        {"rejections": {"a": "b"}},
        {"attempts": [{"attempt": 1}]},
    ],
    ids=str,
)
def test_a_checkpoint_that_was_tampered_with_is_refused(checkpoint, change):
    with pytest.raises(UsageError):
        go(agent("done").resume(json.dumps({**checkpoint, **change}), "yes"))


def test_a_checkpoint_of_another_agent_is_refused(checkpoint):
    with pytest.raises(UsageError, match="agent"):
        go(agent("done", name="another").resume(json.dumps(checkpoint), "yes"))


def test_a_run_that_could_not_be_resumed_does_not_pause():
    history = [Message("user", "x" * MAX_CHECKPOINT)]
    with pytest.raises(UsageError, match="cannot pause"):
        go(agent(call("main_ask", {"question": "Tea?"})).run("go", history=history))


def test_a_tool_that_is_gone_is_an_error_before_anything_runs(checkpoint):
    without = agent("done", tools=[count])
    with pytest.raises(UsageError, match=r"main_ask.*main_count"):
        go(without.resume(json.dumps(checkpoint), "yes"))
    assert go(agent("done").resume(json.dumps(checkpoint), "yes")) == "done"


def test_a_tool_that_takes_other_arguments_now_is_told_to_the_model(checkpoint):
    @tool(namespace="main", name="ask")
    async def other(number: int) -> int:
        """Something else now."""
        return number

    answer = go(agent("done", tools=[other]).resume(json.dumps(checkpoint), "yes"))
    assert "schema_validation_failed" in results(answer)[0]


def test_the_limits_count_what_was_spent_before_the_pause(checkpoint):
    for limits in ({"iterations": 1}, {"tokens": 15}):
        made = agent("done").limits(**limits)
        with pytest.raises(LimitReached):
            go(made.resume(json.dumps(checkpoint), "yes"))


@pytest.mark.parametrize(
    "text", ["\ud800", "a\x00b", "\u2028é😀"], ids=["surrogate", "nul", "unicode"]
)
def test_odd_texts_pass_through_a_checkpoint(text):
    made = agent(call("main_ask", {"question": "Tea?", "note": text}), "done", tools=[noted])
    answer = go(made.resume(go(made.run(text + "!")).checkpoint, "yes"))
    writable = text.encode(errors="replace").decode()
    assert answer.messages[0].content == writable + "!"
    assert results(answer) == [f"{writable} yes"]


@tool(namespace="main", name="ask")
async def noted(question: str, note: str, context: Context) -> str:
    """Ask, with a note."""
    return f"{note} {await context.pause(question)}"


def test_an_integer_of_any_size_passes_through_a_checkpoint():
    @tool(namespace="main")
    async def big(number: int, context: Context) -> str:
        """Ask about a number."""
        return f"{number} {await context.pause('?')}"

    made = agent(call("main_big", {"number": 2**64 - 1}), "done", tools=[big])
    answer = go(made.resume(go(made.run("go")).checkpoint, "yes"))
    assert results(answer) == [f"{2**64 - 1} yes"]
