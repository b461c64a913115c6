"""Calls that wait for their client between its requests (MCP 2026-07-28)."""

from __future__ import annotations

import asyncio
import contextlib

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

from callpact.resources import Prompt, Resource
from callpact.runtime import Runtime
from callpact.serve import Authentication, Door, identify
from callpact.serve.mcp import input_rounds as rounds
from doors import MODERN, NAME, At, accept, connected, error_of, model, says, tool, value_of
from serving import CI, ROOT, TOKENS, Serving
from stories import settle, story, timers

LONG = 3_600.0
"""Seconds: longer than a call waits for its client."""


async def greet(arguments, context):
    """Ask once, and count how often the question was reached."""
    greet.begun += 1
    answer = await context.client.elicit("Who are you?", NAME, key="who")
    return f"Hello {answer.data['name']}" if answer.is_accepted else answer.action


@pytest.fixture(autouse=True)
def begun():
    greet.begun = 0
    return lambda: greet.begun


GREET = tool("greet", greet, timeout=LONG)


async def ask_three(arguments, context):
    client = context.client
    user, said, roots = await asyncio.gather(
        client.elicit("Who?", NAME, key="who"),
        client.sample("Say hi", max_tokens=5, key="hi"),
        client.roots(key="where"),
    )
    return [user.data["name"], said.text, [root.uri for root in roots]]


async def refused(coming):
    """The error of the protocol that a request is answered with."""
    with pytest.raises(MCPError) as caught:
        await coming
    return caught.value.error


def outcomes(at):
    """How each call ended, as the observer heard it."""
    return [event.error.code if event.error else "ok" for event in at.events]


# --- asked and answered ---------------------------------------------------------------------


@story
async def test_a_question_is_the_answer_to_the_request_and_the_call_goes_on_where_it_was():
    async with connected(GREET, user=says()) as at:
        asked = await at.begin("t_greet")
        (question,) = asked.input_requests.values()
        assert list(asked.input_requests) == ["who"]
        assert (question.params.message, question.params.requested_schema) == ("Who are you?", NAME)
        assert at.events == []
        result = await at.go_on("t_greet", asked, {"who": accept(name="Ada")})
        assert value_of(result) == "Hello Ada"
        assert (greet.begun, outcomes(at)) == (1, ["ok"])


@story
async def test_a_client_that_knows_how_to_answer_sees_one_call():
    user = says(accept(name="Ada"))
    async with connected(GREET, user=user) as at:
        assert value_of(await at.client.call_tool("t_greet", {})) == "Hello Ada"
        assert (len(user.asked), greet.begun, outcomes(at)) == (1, 1, ["ok"])


@story
async def test_each_question_after_another_is_a_round_with_a_state_of_its_own():
    async def two(arguments, context):
        first = await context.client.elicit("First?", NAME)
        second = await context.client.elicit("Second?", NAME)
        return [first.data["name"], second.action]

    async with connected(tool("two", two), user=says()) as at:
        first = await at.begin("t_two")
        (key,) = first.input_requests
        second = await at.go_on("t_two", first, {key: accept(name="a")})
        (other,) = second.input_requests
        assert key != other
        assert first.request_state != second.request_state
        no = types.ElicitResult(action="decline")
        assert value_of(await at.go_on("t_two", second, {other: no})) == ["a", "decline"]
        assert outcomes(at) == ["ok"]


@story
async def test_what_is_asked_at_once_is_one_round():
    async def roots(context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///a")])

    given = {"user": says(), "model": says(), "roots": roots}
    async with connected(tool("three", ask_three), **given) as at:
        asked = await at.begin("t_three")
        methods = {key: question.method for key, question in asked.input_requests.items()}
        assert methods == {
            "who": "elicitation/create",
            "hi": "sampling/createMessage",
            "where": "roots/list",
        }
        answers = {"who": accept(name="Ada"), "hi": model("hi"), "where": await roots(None)}
        result = await at.go_on("t_three", asked, answers)
        assert value_of(result) == ["Ada", "hi", ["file:///a"]]


@story
async def test_what_was_not_answered_is_asked_again_and_what_was_is_kept():
    async def three(arguments, context):
        asked = [context.client.elicit(key, NAME, key=key) for key in "abc"]
        return [answer.data["name"] for answer in await asyncio.gather(*asked)]

    async with connected(tool("three", three), user=says()) as at:
        asked = await at.begin("t_three")
        again = await at.go_on("t_three", asked, {"b": accept(name="2"), "x": accept(name="?")})
        assert set(again.input_requests) == {"a", "c"}
        late = await at.go_on("t_three", again, {"a": accept(name="1"), "b": accept(name="?")})
        assert set(late.input_requests) == {"c"}
        result = await at.go_on("t_three", late, {"c": accept(name="3")})
        assert value_of(result) == ["1", "2", "3"]
        assert outcomes(at) == ["ok"]


@pytest.mark.parametrize("answers", [None, {}, {"other": accept(name="Ada")}])
def test_a_client_that_answers_nothing_is_asked_the_same_again(answers):
    @story
    async def told():
        async with connected(GREET, user=says()) as at:
            asked = await at.begin("t_greet")
            again = await at.go_on("t_greet", asked, answers)
            assert again.input_requests == asked.input_requests
            assert again.request_state != asked.request_state
            result = await at.go_on("t_greet", again, {"who": accept(name="Ada")})
            assert value_of(result) == "Hello Ada"
            assert (greet.begun, outcomes(at)) == (1, ["ok"])

    told()


@story
async def test_a_question_that_comes_up_while_the_client_is_away_is_in_the_next_round():
    away = asyncio.Event()

    async def late(arguments, context):
        async def second():
            await away.wait()
            return await context.client.elicit("Second?", NAME, key="second")

        first = context.client.elicit("First?", NAME, key="first")
        return [answer.data["name"] for answer in await asyncio.gather(first, second())]

    async with connected(tool("late", late), user=says()) as at:
        asked = await at.begin("t_late")
        assert list(asked.input_requests) == ["first"]
        away.set()
        await settle()
        again = await at.go_on("t_late", asked, {"first": accept(name="1")})
        assert list(again.input_requests) == ["second"]
        assert value_of(await at.go_on("t_late", again, {"second": accept(name="2")})) == ["1", "2"]


@story
async def test_questions_under_one_key_are_all_asked():
    async def same(arguments, context):
        asked = [context.client.elicit(text, NAME, key="k") for text in ("a", "b")]
        return [answer.data["name"] for answer in await asyncio.gather(*asked)]

    async with connected(tool("same", same), user=says()) as at:
        asked = await at.begin("t_same")
        texts = {key: question.params.message for key, question in asked.input_requests.items()}
        assert sorted(texts.values()) == ["a", "b"]
        answers = {key: accept(name=text.upper()) for key, text in texts.items()}
        assert value_of(await at.go_on("t_same", asked, answers)) == ["A", "B"]


@story
async def test_a_question_that_is_withdrawn_is_not_asked():
    async def hasty(arguments, context):
        question = asyncio.ensure_future(context.client.elicit("Too late", NAME, key="old"))
        await asyncio.sleep(0)
        question.cancel()
        await asyncio.wait([question])
        await asyncio.sleep(1)
        return (await context.client.elicit("Now", NAME, key="new")).action

    async with connected(tool("hasty", hasty), user=says()) as at:
        asked = await at.begin("t_hasty")
        if "old" in asked.input_requests:  # It went out before it was withdrawn.
            asked = await at.go_on("t_hasty", asked, {"old": accept(name="?")})
        assert list(asked.input_requests) == ["new"]
        result = await at.go_on("t_hasty", asked, {"new": types.ElicitResult(action="cancel")})
        assert value_of(result) == "cancel"


@story
async def test_an_answer_may_come_with_the_first_request_and_others_are_ignored():
    async with connected(GREET, user=says()) as at:
        result = await at.client.session.call_tool(
            "t_greet", {}, input_responses={"who": accept(name="Ada"), "x": accept(name="?")}
        )
        assert value_of(result) == "Hello Ada"


@story
async def test_an_answer_of_another_kind_ends_the_call_as_one_without_an_answer():
    async with connected(GREET, user=says()) as at:
        asked = await at.begin("t_greet")
        result = await at.go_on("t_greet", asked, {"who": model("Ada")})
        assert error_of(result)["code"] == "client_unable"
        assert outcomes(at) == ["client_unable"]


@story
async def test_a_call_may_ask_only_so_often(monkeypatch):
    monkeypatch.setattr(rounds, "MAX_QUESTIONS", 2)

    async def endless(arguments, context):
        while True:
            await context.client.elicit("More?", NAME)

    async with connected(tool("endless", endless), user=says()) as at:
        result = await at.begin("t_endless")
        for _ in range(2):
            (key,) = result.input_requests
            result = await at.go_on("t_endless", result, {key: accept(name="yes")})
        assert error_of(result)["code"] == "client_unable"


@story
async def test_prompts_and_resources_may_ask_as_tools_do():
    prompt = Prompt(tool=tool("hello", greet))
    resource = Resource(uri="hello://me", tool=tool("me", greet))
    user = says(accept(name="Ada"), accept(name="Bob"))
    async with connected(user=user, prompts=[prompt], resources=[resource]) as at:
        said = await at.client.get_prompt("t_hello")
        assert said.messages[0].content.text == "Hello Ada"
        read = await at.client.read_resource("hello://me")
        assert read.contents[0].text == "Hello Bob"
        assert (greet.begun, outcomes(at)) == (2, ["ok", "ok"])


@story
async def test_a_tool_behind_call_tool_asks_as_if_it_were_called_itself():
    async with connected(GREET, user=says(), list_up_to=0) as at:
        arguments = {"name": "t.greet"}
        asked = await at.begin("call_tool", arguments)
        assert list(asked.input_requests) == ["who"]
        result = await at.go_on("call_tool", asked, {"who": accept(name="Ada")}, arguments)
        assert value_of(result) == "Hello Ada"
        assert greet.begun == 1
        inner, outer = at.events
        assert (inner.tool_id, inner.parent_id) == ("t.greet", outer.call_id)


@story
async def test_a_tool_that_is_called_by_another_may_ask():
    async def outer(arguments, context):
        return (await context.env.t.greet()).data

    async with connected(GREET, tool("outer", outer, timeout=LONG), user=says()) as at:
        asked = await at.begin("t_outer")
        result = await at.go_on("t_outer", asked, {"who": accept(name="Ada")})
        assert value_of(result) == "Hello Ada"


# --- states that are none -------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil", [lambda state: state + "x", lambda state: "", lambda state: "v1."]
)
def test_a_state_that_was_not_given_out_is_refused_and_the_call_waits_on(spoil):
    @story
    async def told():
        async with connected(GREET, user=says()) as at:
            asked = await at.begin("t_greet")
            answers = {"who": accept(name="Eve")}
            error = await refused(at.go_on("t_greet", spoil(asked.request_state), answers))
            assert error.code == types.INVALID_PARAMS
            result = await at.go_on("t_greet", asked, {"who": accept(name="Ada")})
            assert value_of(result) == "Hello Ada"
            assert (greet.begun, outcomes(at)) == (1, ["ok"])

    told()


@story
async def test_a_state_is_for_the_call_that_it_was_given_for():
    other = tool("other", greet)
    async with connected(GREET, other, user=says()) as at:
        asked = await at.begin("t_greet")
        answers = {"who": accept(name="Eve")}
        error = await refused(at.go_on("t_other", asked, answers))
        assert error.code == types.INVALID_PARAMS
        error = await refused(at.go_on("t_greet", asked, answers, {"more": 1}))
        assert error.code == types.INVALID_PARAMS
        assert greet.begun == 1


@story
async def test_a_state_of_another_server_is_refused():
    async with connected(GREET, user=says()) as at, connected(GREET, user=says()) as there:
        asked = await there.begin("t_greet")
        error = await refused(at.go_on("t_greet", asked, {"who": accept(name="Eve")}))
        assert error.code == types.INVALID_PARAMS
        assert at.events == []


@story
async def test_an_answer_counts_once():
    async with connected(GREET, user=says()) as at:
        asked = await at.begin("t_greet")
        answers = {"who": accept(name="Ada")}
        twice = await asyncio.gather(
            at.go_on("t_greet", asked, answers),
            at.go_on("t_greet", asked, answers),
            return_exceptions=True,
        )
        (result,) = [one for one in twice if not isinstance(one, Exception)]
        (error,) = [one for one in twice if isinstance(one, Exception)]
        assert value_of(result) == "Hello Ada"
        assert error.error.code == types.INVALID_PARAMS
        assert (greet.begun, outcomes(at)) == (1, ["ok"])


def test_a_state_is_for_the_caller_that_it_was_given_to():
    async def go(address):
        async def at(token):
            headers = {"Authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
            transport = streamable_http_client(address, http_client=http)
            client = Client(transport, mode=MODERN, elicitation_callback=says())
            return At(await stack.enter_async_context(client), door, runtime)

        async with contextlib.AsyncExitStack() as stack:
            own, other = await at(CI), await at(ROOT)
            asked = await own.begin("t_greet")
            error = await refused(other.go_on("t_greet", asked, {"who": accept(name="Eve")}))
            assert error.code == types.INVALID_PARAMS
            result = await own.go_on("t_greet", asked, {"who": accept(name="Ada")})
            assert value_of(result) == "Hello Ada"

    events = []
    runtime = Runtime([GREET], observers=[events.append])
    door = Door(runtime, identity=identify)
    with Serving(Authentication(TOKENS), door) as serving:
        asyncio.run(asyncio.wait_for(go(serving.address), 30))
    assert [(event.identity.id, event.error) for event in events] == [("ci", None)]


# --- calls that end while they wait ---------------------------------------------------------


@story
async def test_a_client_that_never_comes_back_ends_its_call():
    async with connected(GREET, user=says()) as at:
        before = asyncio.all_tasks()
        asked = await at.begin("t_greet")
        assert len(at.door._rounds) == 1
        assert at.events == []
        await asyncio.sleep(rounds.ANSWER_SECONDS + 1)
        assert (outcomes(at), len(at.door._rounds)) == (["aborted"], 0)
        assert asyncio.all_tasks() == before
        error = await refused(at.go_on("t_greet", asked, {"who": accept(name="Ada")}))
        assert error.code == types.INVALID_PARAMS
        assert (greet.begun, outcomes(at)) == (1, ["aborted"])


@story
async def test_nothing_is_left_of_a_call_that_was_answered():
    async with connected(GREET, user=says(accept(name="Ada"))) as at:
        tasks, woken = asyncio.all_tasks(), timers()
        assert value_of(await at.client.call_tool("t_greet", {})) == "Hello Ada"
        await settle()
        assert (asyncio.all_tasks(), timers(), len(at.door._rounds)) == (tasks, woken, 0)


@story
async def test_the_deadline_of_a_call_passes_also_while_it_waits_and_the_client_hears_of_it():
    async with connected(tool("greet", greet, timeout=5), user=says()) as at:
        asked = await at.begin("t_greet")
        await asyncio.sleep(6)
        assert outcomes(at) == ["timeout"]
        result = await at.go_on("t_greet", asked, {"who": accept(name="Ada")})
        assert error_of(result)["code"] == "timeout"
        assert (greet.begun, outcomes(at)) == (1, ["timeout"])


@story
async def test_a_client_that_hangs_up_after_its_answer_cancels_the_handler():
    went_on, ended = asyncio.Event(), asyncio.Event()

    async def slow(arguments, context):
        await context.client.elicit("Go on?", NAME, key="go")
        went_on.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with connected(tool("slow", slow, timeout=LONG), user=says()) as at:
        asked = await at.begin("t_slow")
        waiting = asyncio.ensure_future(at.go_on("t_slow", asked, {"go": accept(name="yes")}))
        await asyncio.wait_for(went_on.wait(), 10)
        waiting.cancel()
        await asyncio.wait_for(ended.wait(), 10)
        await settle()
        assert outcomes(at) == ["aborted"]


@story
async def test_when_too_many_calls_wait_the_oldest_is_ended(monkeypatch):
    monkeypatch.setattr(rounds, "MAX_PAUSED_CALLS", 2)
    async with connected(GREET, user=says()) as at:
        asked = [await at.begin("t_greet") for _ in range(3)]
        await settle()
        assert (outcomes(at), len(at.door._rounds)) == (["aborted"], 2)
        answers = {"who": accept(name="Ada")}
        assert (await refused(at.go_on("t_greet", asked[0], answers))).code == types.INVALID_PARAMS
        for waiting in asked[1:]:
            assert value_of(await at.go_on("t_greet", waiting, answers)) == "Hello Ada"


@story
async def test_whoever_lets_most_calls_wait_loses_the_oldest(monkeypatch):
    monkeypatch.setattr(rounds, "MAX_PAUSED_CALLS", 3)
    held = rounds.InputRounds()

    async def begin(peer):
        await asyncio.Event().wait()

    tasks = {}
    for number, owner in enumerate(["ada", "bob", "bob", "bob", "ada"]):
        tasks[number] = asyncio.ensure_future(begin(None))
        held._kept(rounds._PausedCall(None, tasks[number], owner))
    await settle()
    assert [number for number, task in tasks.items() if task.cancelled()] == [1, 2]
    held.close()
    await settle()
    assert all(task.cancelled() for task in tasks.values())


@story
async def test_a_door_that_closes_ends_the_calls_that_wait():
    async with connected(GREET, user=says()) as at:
        before = asyncio.all_tasks()
        asked = [await at.begin("t_greet") for _ in range(2)]
        await at.door.aclose()
        await settle()
        assert outcomes(at) == ["aborted", "aborted"]
        assert asyncio.all_tasks() == before
        error = await refused(at.go_on("t_greet", asked[0], {"who": accept(name="Ada")}))
        assert error.code == types.INVALID_PARAMS


@story
async def test_what_is_told_while_the_client_is_away_breaks_nothing():
    told = asyncio.Event()

    async def talk(arguments, context):
        question = asyncio.ensure_future(context.client.elicit("Who?", NAME, key="who"))
        await told.wait()
        await context.progress(1, 2, "still here")
        await context.client.log("error", "still here")
        return (await question).data["name"]

    async with connected(tool("talk", talk), user=says()) as at:
        asked = await at.begin("t_talk")
        told.set()
        await settle()
        assert value_of(await at.go_on("t_talk", asked, {"who": accept(name="Ada")})) == "Ada"


@story
async def test_a_call_goes_on_with_the_tool_that_it_began_with_when_the_catalog_changes():
    resource = Resource(uri="hello://me", tool=tool("me", greet))
    async with connected(GREET, resources=[resource], user=says()) as at:
        asked = await at.begin("t_greet")
        reading = await at.client.session.read_resource("hello://me", allow_input_required=True)
        at.runtime.catalog = type(at.runtime.catalog)()
        answers = {"who": accept(name="Ada")}
        assert value_of(await at.go_on("t_greet", asked, answers)) == "Hello Ada"
        read = await at.client.session.read_resource(
            "hello://me", input_responses=answers, request_state=reading.request_state
        )
        assert read.contents[0].text == "Hello Ada"
