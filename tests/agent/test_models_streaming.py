"""Streams of real models, schemas that go along with requests, and what they cost."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from answers import Refund
from callpact import Agent, LimitReached, ModelError, UsageError, open_model, strict_output_rules
from callpact.agent import Finished, Message, ModelRequest, Reset, Rule, Token, ToolOffer
from callpact.agent.models import pydantic_ai as models_pydantic_ai
from openai_stub import (
    HELLO,
    KEY,
    PATIENCE,
    Stub,
    collected,
    cut,
    endless,
    say,
    stock,
    with_stub,
)

GOOD = '{"amount": 5.0, "reason": "late"}'
BAD = '{"amount": "much", "reason": "late"}'


def retrying(times, kind):
    return (
        Rule(lambda scope: scope.error_kind == kind and scope.attempt < times, "retry", "again"),
    )


# --- streaming ------------------------------------------------------------------------------


def test_tokens_come_as_they_are_written_and_then_the_whole():
    async def story(model, stub):
        *tokens, end = await collected(Agent(model).stream("Hello?"))
        assert [token.text for token in tokens] == ["Good", " day", " to", " you."]
        assert end.answer == "Good day to you."
        assert end.answer.account.usage.tokens == 120
        assert stub.bodies[0]["stream"] is True

    with_stub(say("Good day to you."))(story)


def test_a_stream_with_calls_runs_the_tools():
    async def story(model, stub):
        items = await collected(Agent(model).tools([stock]).stream("Tea and cups?"))
        assert [item.text for item in items if isinstance(item, Token)] == ["3", " and", " 40."]
        assert items[-1].answer.account.tool_calls == 2
        assert [each["content"] for each in stub.bodies[1]["messages"][-2:]] == ["3", "40"]

    calls = [("shop_stock", {"item": "tea"}), ("shop_stock", {"item": "cups"})]
    with_stub(say("", *calls), say("3 and 40."))(story)


def test_a_strict_retry_while_streaming_takes_back_what_was_shown():
    async def story(model, stub):
        agent = Agent(model, output_schema=Refund).reliability(strict_output_rules(3))
        items = await collected(agent.stream("How much?"))
        at = next(i for i, item in enumerate(items) if isinstance(item, Reset))
        assert "".join(item.text for item in items[:at]) == BAD
        assert "".join(item.text for item in items[at + 1 : -1]) == GOOD
        assert isinstance(items[-1], Finished)
        assert items[-1].answer == GOOD
        assert items[-1].answer.account.usage.tokens == 240
        assert [each["role"] for each in stub.bodies[1]["messages"][-2:]] == ["assistant", "user"]

    with_stub(say(BAD), say(GOOD))(story)


@pytest.mark.parametrize("politely", [False, True])
def test_a_stream_that_is_cut_is_no_answer(politely):
    async def story(model, stub):
        heard = []

        async def listen():
            async for item in Agent(model).stream("Hello?"):
                heard.append(item.text)

        with pytest.raises(ModelError) as caught:
            await listen()
        assert heard == ["Good", " d"]
        assert caught.value.transient is not politely

    with_stub(cut("Good", " d", politely=politely))(story)


def test_a_stream_that_was_cut_is_asked_for_again_by_rules():
    async def story(model, stub):
        agent = Agent(model).reliability(retrying(3, "5xx-transient"))
        items = await collected(agent.stream("Hello?"))
        assert any(isinstance(item, Reset) for item in items)
        assert items[-1].answer == "Good day."

    with_stub(cut("Good", " d"), say("Good day."))(story)


def test_a_stream_without_an_end_is_broken_off(monkeypatch):
    monkeypatch.setattr(models_pydantic_ai, "MAX_REPLY_CHARACTERS", 1_000)

    async def story(model, stub):
        with pytest.raises(ModelError, match="1,000 characters"):
            await collected(model.stream(HELLO))

    with_stub(endless("x" * 100))(story)


def test_whoever_stops_listening_leaves_no_connection_behind():
    async def story(model, stub):
        stream = Agent(model).stream("Hello?")
        assert (await anext(stream)).text == "on"
        await stream.aclose()
        await stub.all_closed()

    with_stub(endless("on"))(story)


# --- schemas --------------------------------------------------------------------------------


def test_native_output_sends_the_schema_as_response_format():
    async def story(model, stub):
        assert await Agent(model, output_schema=Refund).run_typed("How much?") == Refund(
            amount=5.0, reason="late"
        )
        sent = stub.bodies[0]["response_format"]
        assert sent["type"] == "json_schema"
        assert set(sent["json_schema"]["schema"]["properties"]) == {"amount", "reason"}

    with_stub(say(GOOD), abilities={"native-output"})(story)


def test_native_output_is_sent_while_streaming_too():
    async def story(model, stub):
        await collected(Agent(model, output_schema=Refund).stream("How much?"))
        assert stub.bodies[0]["response_format"]["type"] == "json_schema"

    with_stub(say(GOOD), abilities={"native-output"})(story)


def test_of_a_server_that_nobody_knows_nothing_is_assumed():
    async def story(model, stub):
        assert model.abilities == frozenset()
        await Agent(model, output_schema=Refund).run_typed("How much?")
        assert "response_format" not in stub.bodies[0]
        with pytest.raises(UsageError, match="does not declare"):
            await Agent(model).output_schema(Refund, strategy="tool-forced").run("How much?")

    with_stub(say(GOOD))(story)


def test_a_list_is_asked_for_by_instruction_even_of_a_model_with_native_output():
    async def story(model, stub):
        assert await Agent(model, output_schema=list[int]).run_typed("Which?") == [1, 2]
        assert "response_format" not in stub.bodies[0]

    with_stub(say("[1, 2]"), abilities={"native-output"})(story)


class Tree(BaseModel):
    """A tree."""

    name: str
    children: list[Tree] = []


def test_a_schema_that_refers_to_itself_is_sent_natively():
    async def story(model, stub):
        assert await Agent(model, output_schema=Tree).run_typed("Grow.") == Tree(name="oak")
        assert stub.bodies[0]["response_format"]["type"] == "json_schema"

    with_stub(say('{"name": "oak"}'), abilities={"native-output"})(story)


def test_a_forced_tool_is_the_only_choice_of_the_model():
    async def story(model, stub):
        agent = Agent(model).output_schema(Refund, strategy="tool-forced")
        assert await agent.run_typed("How much?") == Refund(amount=5.0, reason="late")
        body = stub.bodies[0]
        assert [each["function"]["name"] for each in body["tools"]] == ["respond_with_schema"]
        assert body["tool_choice"] == "required"

    call = ("respond_with_schema", {"amount": 5.0, "reason": "late"})
    with_stub(say("", call), abilities={"forced-tool"})(story)


def test_one_of_several_tools_is_forced_by_its_name():
    offers = tuple(ToolOffer(name, "", {"type": "object"}) for name in ("one", "two"))
    request = ModelRequest("", (Message("user", "Go."),), offers, forced_tool="two")

    async def story(model, stub):
        await model.complete(request)
        assert stub.bodies[0]["tool_choice"] == {"type": "function", "function": {"name": "two"}}

    with_stub(say("", ("two", {})), abilities={"forced-tool"})(story)


def test_a_schema_that_a_model_cannot_take_natively_is_left_to_the_instruction():
    """Its profile says that it cannot, and it is asked to all the same."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def main():
        async with asyncio.timeout(PATIENCE), Stub(say(GOOD), say(GOOD)) as stub:
            theirs = OpenAIChatModel(
                "gpt-4o-mini",
                provider=OpenAIProvider(base_url=stub.url, api_key=KEY),
                profile={"supports_json_schema_output": False},
            )
            agent = Agent(open_model(theirs, abilities=["native-output"]), output_schema=Refund)
            assert (await agent.run_typed("How much?")).amount == 5.0
            assert (await collected(agent.stream("How much?")))[-1].answer == GOOD
            assert all("response_format" not in body for body in stub.bodies)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "abilities"),
    [
        ("openai:gpt-5", {"native-output", "forced-tool"}),
        ("openai-chat:gpt-4o-mini", {"native-output", "forced-tool"}),
        ("deepseek:deepseek-chat", {"forced-tool"}),
        ("moonshotai:kimi-k2-0711-preview", set()),
    ],
)
def test_abilities_are_those_that_profile_and_vendor_declare(name, abilities):
    assert open_model(name, api_key=KEY).abilities == abilities


def test_ollama_declares_schemas_and_no_forced_call():
    model = open_model("ollama:llama3", base_url="http://127.0.0.1:11434/v1")
    assert model.abilities == {"native-output"}


def test_an_address_in_the_environment_counts_as_a_server_that_nobody_knows(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert open_model("openai:gpt-5", api_key=KEY).abilities == frozenset()


# --- accounting -----------------------------------------------------------------------------


def test_usage_is_the_sum_over_all_attempts():
    async def story(model, stub):
        agent = Agent(model, output_schema=Refund).reliability(strict_output_rules(3))
        answer = await agent.run("How much?")
        assert (answer.account.usage.input_tokens, answer.account.usage.output_tokens) == (31, 7)

    with_stub(say(BAD, tokens=(10, 5)), say(GOOD, tokens=(21, 2)))(story)


def test_the_cost_of_a_known_model_is_told_and_grows_with_its_tokens():
    async def story(model, stub):
        one, two = await model.complete(HELLO), await model.complete(HELLO)
        assert one.usage.cost > 0
        assert two.usage.cost == pytest.approx(2 * one.usage.cost)

    with_stub(say("Hi.", tokens=(1_000, 100)), say("Hi.", tokens=(2_000, 200)))(story)


def test_the_cost_of_a_model_without_a_price_is_unknown_and_not_nothing():
    async def story(model, stub):
        assert (await model.complete(HELLO)).usage.cost is None

    with_stub(say("Hi."), name="openai:llama3-of-mine")(story)


def test_a_limit_of_cost_stops_a_run():
    async def story(model, stub):
        with pytest.raises(LimitReached) as caught:
            await Agent(model).tools([stock]).limits(cost=1e-9).run("Is there tea?")
        assert caught.value.limit == "cost"
        assert len(stub.asked) == 1

    with_stub(say("", ("shop_stock", {"item": "tea"})))(story)
