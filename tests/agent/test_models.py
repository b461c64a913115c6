"""Real models, over real HTTP to a server of ours that speaks as OpenAI does."""

from __future__ import annotations

import asyncio
import json

import pytest

from callpact import Agent, ModelError, open_model
from callpact.agent import Message, ModelReply, ModelRequest, ToolUse
from openai_stub import (
    HELLO,
    KEY,
    NAME,
    PATIENCE,
    Stub,
    collected,
    echo_key,
    respond,
    say,
    shown,
    stock,
    with_stub,
)

# --- asking ---------------------------------------------------------------------------------


def test_a_plain_answer_comes_back_with_its_tokens():
    async def story(model, stub):
        answer = await Agent(model, system="Be kind.").run("Hello?")
        assert answer == "Good day."
        assert (answer.account.usage.input_tokens, answer.account.usage.output_tokens) == (100, 20)
        assert stub.asked[0].path == "/v1/chat/completions"
        assert stub.bodies[0]["model"] == "gpt-4o-mini"
        assert stub.bodies[0]["messages"] == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hello?"},
        ]

    with_stub(say("Good day."))(story)


def test_a_key_is_sent_as_bearer_and_a_reply_tells_model_and_reason():
    async def story(model, stub):
        reply = await model.complete(HELLO)
        assert reply.model == "gpt-4o-mini"
        assert reply.stop_reason == "stop"
        assert stub.asked[0].headers["authorization"] == f"Bearer {KEY}"

    with_stub(say("Hi."), api_key=KEY)(story)


def test_the_key_of_openai_is_not_sent_to_another_server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def story(model, stub):
        await model.complete(HELLO)
        assert KEY not in json.dumps(stub.asked[0].headers)

    with_stub(say("Hi."))(story)


def test_no_system_prompt_is_sent_where_there_is_none():
    async def story(model, stub):
        await model.complete(HELLO)
        assert stub.bodies[0]["messages"] == [{"role": "user", "content": "Hello?"}]

    with_stub(say("Hi."))(story)


def test_settings_of_the_agent_reach_the_server():
    async def story(model, stub):
        await Agent(model, settings={"temperature": 0.25, "max_tokens": 7}).run("Hello?")
        assert stub.bodies[0]["temperature"] == 0.25
        assert stub.bodies[0]["max_completion_tokens"] == 7

    with_stub(say("Hi."))(story)


def test_thinking_is_no_part_of_the_answer():
    async def story(model, stub):
        assert (await model.complete(HELLO)).content == "Hi."
        assert await collected(model.stream(HELLO)) == ["Hi.", ModelReplyWith("Hi.")]

    with_stub(say("Hi.", thinking="Who is it?"), say("Hi.", thinking="Who is it?"))(story)


class ModelReplyWith:
    def __init__(self, content):
        self.content = content

    def __eq__(self, other):
        return isinstance(other, ModelReply) and other.content == self.content

    __hash__ = None


def test_a_refusal_is_told_with_its_reason():
    async def story(model, stub):
        reply = await model.complete(HELLO)
        assert (reply.content, reply.stop_reason) == ("I will not.", "content_filter")

    with_stub(say("", refusal="I will not."))(story)


def test_an_answer_that_was_cut_for_length_says_so():
    async def story(model, stub):
        assert (await model.complete(HELLO)).stop_reason == "length"

    with_stub(say("Once upon", finish="length"))(story)


def test_openai_itself_is_asked_through_its_responses_interface():
    async def story(model, stub):
        request = ModelRequest("Be kind.", (Message("user", "Hello?"),))
        reply = await model.complete(request)
        assert reply.content == "Good day."
        assert reply.usage.tokens == 120
        assert stub.asked[0].path == "/v1/responses"
        assert stub.bodies[0]["instructions"] == "Be kind."

    with_stub(respond("Good day."), name="openai-responses:gpt-4o-mini", api_key=KEY)(story)


def test_a_model_of_pydantic_ai_is_taken_as_it_is():
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def main():
        async with asyncio.timeout(PATIENCE), Stub(say("Hi."), echo_key()) as stub:
            provider = OpenAIProvider(base_url=stub.url, api_key=KEY)
            model = open_model(OpenAIChatModel("gpt-4o-mini", provider=provider))
            assert model.name == "openai:gpt-4o-mini"
            assert (await model.complete(HELLO)).content == "Hi."
            with pytest.raises(ModelError) as caught:
                await model.complete(HELLO)
            assert KEY not in shown(caught.value)

    asyncio.run(main())


# --- tools ----------------------------------------------------------------------------------


def test_a_tool_is_called_and_its_result_goes_back():
    async def story(model, stub):
        answer = await Agent(model).tools([stock]).run("Is there tea?")
        assert answer == "Three."
        assert answer.account.tool_calls == 1
        offered = stub.bodies[0]["tools"][0]["function"]
        assert offered["name"] == "shop_stock"
        assert offered["description"] == "How many of an item there are."
        assert offered["parameters"]["properties"] == {"item": {"type": "string"}}
        call, result = stub.bodies[1]["messages"][-2:]
        assert call["tool_calls"][0]["function"]["name"] == "shop_stock"
        assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"item": "tea"}
        assert result == {"role": "tool", "tool_call_id": "call_shop_stock_0", "content": "3"}

    with_stub(say("", ("shop_stock", {"item": "tea"})), say("Three."))(story)


def test_several_calls_in_one_reply_are_all_answered():
    async def story(model, stub):
        answer = await Agent(model).tools([stock]).run("Tea and cups?")
        assert answer.account.tool_calls == 2
        results = stub.bodies[1]["messages"][-2:]
        assert [(each["tool_call_id"], each["content"]) for each in results] == [
            ("call_shop_stock_0", "3"),
            ("call_shop_stock_1", "40"),
        ]

    calls = [("shop_stock", {"item": "tea"}), ("shop_stock", {"item": "cups"})]
    with_stub(say("", *calls), say("3 and 40."))(story)


def test_a_rejected_call_goes_back_as_a_structured_error():
    async def story(model, stub):
        answer = await Agent(model).tools([stock]).run("Is there tea?")
        assert answer == "Sorry."
        error = json.loads(stub.bodies[1]["messages"][-1]["content"])["error"]
        assert error["code"] == "schema_validation_failed"
        assert "/item" in json.dumps(error)

    with_stub(say("", ("shop_stock", {"item": 7})), say("Sorry."))(story)


def test_a_failure_that_is_no_json_goes_back_as_an_error_too():
    use = ToolUse("call_1", "shop_stock", {"item": "tea"})
    request = ModelRequest(
        "",
        (
            Message("user", "Tea?"),
            Message("assistant", "", (use,)),
            Message("tool", "closed", tool_use_id="call_1", tool_name="shop_stock", is_error=True),
        ),
    )

    async def story(model, stub):
        await model.complete(request)
        assert json.loads(stub.bodies[0]["messages"][-1]["content"]) == {"error": "closed"}

    with_stub(say("Sorry."))(story)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"item": "tea"}', {"item": "tea"}),
        ("", {}),
        ('{"item": "te', '{"item": "te'),
        ('["tea"]', '["tea"]'),
        ('{"item": "tea", "item": "cups"}', '{"item": "tea", "item": "cups"}'),
        ('{"number": 123456789012345678901}', {"number": 123456789012345678901}),
    ],
)
def test_arguments_are_an_object_or_else_the_text_that_was_written(written, read):
    async def story(model, stub):
        reply = await model.complete(HELLO)
        assert reply.tool_uses == (ToolUse("call_shop_stock_0", "shop_stock", read),)
        assert reply.stop_reason == "tool_call"

    with_stub(say("", ("shop_stock", written)))(story)


def test_a_model_gets_its_own_thinking_back_with_the_results_of_its_calls():
    async def story(model, stub):
        await Agent(model).tools([stock]).run("Is there tea?")
        assert stub.bodies[1]["messages"][-2]["reasoning_content"] == "I must look."

    call = ("shop_stock", {"item": "tea"})
    with_stub(say("", call, thinking="I must look."), say("Three."))(story)


def test_thinking_is_not_put_to_a_message_that_says_something_else():
    async def story(model, stub):
        reply = await model.complete(HELLO)
        use = ToolUse(reply.tool_uses[0].id, "shop_stock", {"item": "cups"})
        messages = (
            Message("user", "Cups?"),
            Message("assistant", "", (use,)),
            Message("tool", "40", tool_use_id=use.id, tool_name="shop_stock"),
        )
        await model.complete(ModelRequest("", messages))
        assert "reasoning_content" not in json.dumps(stub.bodies[1])

    call = ("shop_stock", {"item": "tea"})
    with_stub(say("", call, thinking="I must look."), say("Forty."))(story)


def test_a_reply_in_which_nothing_was_said_is_not_sent_back():
    messages = (Message("user", "Hello?"), Message("assistant", ""), Message("user", "Again?"))

    async def story(model, stub):
        await model.complete(ModelRequest("", messages))
        assert [each["role"] for each in stub.bodies[0]["messages"]] == ["user", "user"]

    with_stub(say("Hi."))(story)


# --- connections ----------------------------------------------------------------------------


def test_a_model_that_is_entered_keeps_its_connection():
    async def story(model, stub):
        async with model:
            await model.complete(HELLO)
            await collected(model.stream(HELLO))
            await model.complete(HELLO)
            assert stub.connections == 1
        await stub.all_closed()

    with_stub(say("Hi."), say("Hi."), say("Hi."))(story)


def test_a_model_serves_one_event_loop_after_another():
    async def once(model, stub):
        return (await model.complete(HELLO)).content

    async def both():
        async with Stub(say("Hi.")) as stub:
            model = open_model(NAME, base_url=stub.url)
            return model, await once(model, stub)

    model, said = asyncio.run(both())
    assert said == "Hi."
    with pytest.raises(ModelError) as caught:  # The server is gone; the model is not the worse.
        asyncio.run(model.complete(HELLO))
    assert caught.value.transient


def test_many_requests_at_once_each_get_their_own_reply():
    async def story(model, stub):
        replies = await asyncio.gather(*(model.complete(HELLO) for _ in range(8)))
        assert sorted(reply.content for reply in replies) == [f"Number {n}." for n in range(8)]

    with_stub(*(say(f"Number {n}.") for n in range(8)))(story)
