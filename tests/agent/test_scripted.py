"""The model that says what it is told to."""

from __future__ import annotations

import pytest

from answers import go
from callpact import Agent, ModelError, UsageError
from callpact.agent import Message, ModelReply, ModelRequest, ToolUse, Usage
from callpact.testing import ScriptedModel

REQUEST = ModelRequest("", (Message("user", "hi"),))


def test_replies_come_in_order_and_requests_are_kept():
    model = ScriptedModel(["a", "b"])
    assert [go(model.complete(REQUEST)).content for _ in range(2)] == ["a", "b"]
    assert model.requests == [REQUEST, REQUEST]


def test_a_script_that_is_used_up_says_so_loudly():
    model = ScriptedModel([], name="mine")
    with pytest.raises(UsageError, match="mine"):
        go(model.complete(REQUEST))


def test_a_script_can_begin_again():
    model = ScriptedModel(["a"])
    go(model.complete(REQUEST))
    model.reset()
    assert model.requests == []
    assert go(model.complete(REQUEST)).content == "a"


def test_a_function_answers_for_ever():
    model = ScriptedModel(lambda request: request.messages[-1].content.upper())
    assert [go(Agent(model).run(text)) for text in ("a", "b")] == ["A", "B"]


def test_calls_are_numbered_and_several_stand_in_a_list():
    model = ScriptedModel([[{"tool": "a"}, {"tool": "b", "arguments": {"x": 1}, "id": "mine"}]])
    reply = go(model.complete(REQUEST))
    assert reply.tool_uses == (ToolUse("use-1-1", "a", {}), ToolUse("mine", "b", {"x": 1}))


def test_errors_are_raised_and_replies_given_as_they_are():
    reply = ModelReply("x", usage=Usage(1, 2, 3.0))
    model = ScriptedModel([ModelError("down"), reply])
    with pytest.raises(ModelError):
        go(model.complete(REQUEST))
    assert go(model.complete(REQUEST)) is reply


@pytest.mark.parametrize("given", [{"arguments": {}}, [5], [{"tool": "a"}, "text"]])
def test_what_is_no_call_is_named(given):
    with pytest.raises(UsageError, match="tool"):
        go(ScriptedModel([given]).complete(REQUEST))


@pytest.mark.parametrize("text", ["", " ", "a", "a b\n c ", "\n\n", "  x"])
def test_the_pieces_of_a_stream_are_the_text(text):
    async def pieces():
        return [item async for item in ScriptedModel([text]).stream(REQUEST)]

    *said, reply = go(pieces())
    assert "".join(said) == text == reply.content
