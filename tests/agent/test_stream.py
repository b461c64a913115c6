"""A run as it goes: tokens, resets, the end; and that nothing outlives its reader."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from answers import FENCED, GOOD, PROSE, WRONG, Refund, call, go, refunds, streamed
from callpact import Agent, Context, ModelError, UsageError, strict_output_rules, tool
from callpact.agent import Finished, ModelReply, Paused, Reset, Rule, Token, ToolUse
from callpact.errors import ReliabilityFailFastError
from callpact.testing import ScriptedModel


@tool(namespace="main")
def look() -> str:
    """Look."""
    return "seen"


@tool(namespace="main")
async def ask(context: Context) -> str:
    """Ask."""
    return await context.pause("Tea?")


def text(items):
    return "".join(item.text for item in items if isinstance(item, Token))


def test_the_tokens_are_the_answer_and_the_end_has_it_whole():
    items = go(streamed(Agent(ScriptedModel(["one two  three\n"]))))
    assert text(items) == "one two  three\n"
    assert len(items) > 3
    assert isinstance(items[-1], Finished)
    assert items[-1].answer == "one two  three\n"
    assert items[-1].answer.account.requests == 1


@pytest.mark.parametrize(("schema", "is_provisional"), [(None, False), (Refund, True)])
def test_tokens_are_provisional_where_the_answer_is_judged(schema, is_provisional):
    items = go(streamed(Agent(ScriptedModel([GOOD]), output_schema=schema)))
    assert {item.is_provisional for item in items if isinstance(item, Token)} == {is_provisional}


def test_a_valid_answer_is_never_reset():
    agent, _ = refunds(GOOD, retries=3)
    items = go(streamed(agent.reliability(strict_output_rules(3))))
    assert not [item for item in items if isinstance(item, Reset)]


def test_a_re_ask_of_the_loop_resets_and_goes_on_in_the_next_iteration():
    agent, _ = refunds(PROSE, GOOD, retries=1)
    items = go(streamed(agent))
    at = items.index(Reset("schema-fail", 1))
    assert (text(items[:at]), text(items[at:])) == (PROSE, GOOD)
    assert {item.iteration for item in items[at + 1 : -1]} == {2}


def test_a_failure_in_the_middle_of_a_stream_can_be_retried():
    class Breaking(ScriptedModel):
        async def stream(self, request):
            if len(self.requests) == 0:
                self.requests.append(request)
                yield "half an "
                raise ModelError("cut", status=502)
            async for item in super().stream(request):
                yield item

    agent = Agent(Breaking(["whole answer"])).reliability(
        Rule(lambda scope: scope.error is not None, "retry", "again")
    )
    items = go(streamed(agent))
    assert items[0].text == "half an "
    assert items[1] == Reset("5xx-transient", 1)
    assert text(items[2:]) == "whole answer"


def test_a_fallback_of_the_rules_takes_back_what_was_streamed():
    agent, _ = refunds(PROSE)
    agent = agent.reliability(
        Rule(lambda scope: scope.error is not None, "fallback", "x"), fallback=lambda *_: GOOD
    )
    items = go(streamed(agent))
    assert [type(item) for item in items[-2:]] == [Reset, Finished]
    assert items[-1].answer == GOOD


def test_what_is_said_before_a_tool_call_stands():
    reply = ModelReply("let me look", (ToolUse("1", "main_look", {}),))
    items = go(streamed(Agent(ScriptedModel([reply, "seen it"]), tools=[look])))
    assert [type(item) for item in items if not isinstance(item, Token)] == [Finished]
    assert {(item.iteration) for item in items[:-1]} == {1, 2}
    assert items[-1].answer == "seen it"


def test_a_stream_may_end_with_a_pause():
    items = go(streamed(Agent(ScriptedModel([call("main_ask")]), tools=[ask])))
    assert isinstance(items[-1].answer, Paused)


def test_giving_up_comes_after_what_was_streamed():
    async def story():
        agent, _ = refunds(PROSE, PROSE)
        heard = []
        with pytest.raises(ReliabilityFailFastError):  # noqa: PT012 - it is raised while it is read
            async for item in agent.reliability(strict_output_rules(3)).stream("refund?"):
                heard.append(item)
        return heard

    heard = go(story())
    assert text(heard) == PROSE * 2


def test_an_empty_message_is_refused_before_the_first_item():
    with pytest.raises(UsageError):
        Agent(ScriptedModel(["x"])).stream(" ")


def test_a_reader_that_leaves_ends_the_run_and_leaves_no_task():
    async def story():
        ended = []

        class Endless(ScriptedModel):
            async def stream(self, request):
                try:
                    while True:
                        yield "more "
                        await asyncio.sleep(0)
                finally:
                    ended.append(True)

        async with contextlib.aclosing(Agent(Endless([])).stream("go")) as stream:
            async for _ in stream:
                break
        for _ in range(5):
            await asyncio.sleep(0)
        return ended, asyncio.all_tasks() - {asyncio.current_task()}

    assert go(story()) == ([True], set())


def test_a_stream_without_a_whole_reply_is_an_error_of_the_model():
    class Partial(ScriptedModel):
        async def stream(self, request):
            yield "only text"

    with pytest.raises(ModelError):
        go(streamed(Agent(Partial([]))))


def test_a_repaired_answer_is_streamed_as_it_was_written():
    agent = Agent(ScriptedModel([FENCED])).output_schema(Refund, repair="safe")
    items = go(streamed(agent))
    assert text(items) == FENCED
    assert agent.parse_output(items[-1].answer)


def test_attempts_while_streaming_cost_as_much_as_others():
    agent, _ = refunds(PROSE, WRONG, GOOD)
    items = go(streamed(agent.reliability(strict_output_rules(3))))
    assert items[-1].answer.account.usage.tokens == 45
