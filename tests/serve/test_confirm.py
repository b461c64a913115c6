"""Tools that can destroy something run only if the user says yes."""

from __future__ import annotations

import asyncio

import mcp_types as types
import pytest

from callpact.catalog import Catalog
from callpact.errors import CallError
from callpact.resources import Prompt, Resource
from callpact.runtime import Runtime
from callpact.serve import DEFAULT_TIMEOUT
from callpact.serve.mcp.confirm import MAX_SHOWN_ARGUMENTS, is_destructive, with_confirmation
from callpact.serve.mcp.input_rounds import ANSWER_SECONDS
from doors import LEGACY, MODERN, accept, connected, error_of, says, tool, value_of

PATIENCE = 20
ERAS = pytest.mark.parametrize("mode", [MODERN, LEGACY])
DESTROYS = {"destructiveHint": True}
FILE = {
    "type": "object",
    "properties": {
        "file": {"type": "string"},
        "key": {"type": "string", "writeOnly": True},
        "login": {
            "type": "object",
            "properties": {"password": {"type": "string", "format": "password"}},
        },
    },
    "required": ["file"],
    "additionalProperties": False,
}
YES = accept(confirm=True)


def deleting(done, name="delete", **more):
    async def handler(arguments, context):
        done.append(arguments)
        return "deleted"

    more = {"annotations": DESTROYS, "input": FILE} | more
    return tool(name, handler, **more)


def call(mode, arguments, user, **more):
    """The answer to a call, what ran, and what the observer heard."""

    async def go():
        done = []
        given = {"mode": mode, "user": user, "arranged": with_confirmation}
        async with connected(deleting(done, **more), **given) as at:
            return await at.client.call_tool("t_delete", arguments), done, at.events

    return asyncio.run(asyncio.wait_for(go(), PATIENCE))


@ERAS
def test_a_tool_that_can_destroy_something_runs_once_the_user_says_yes(mode):
    user = says(YES)
    result, done, events = call(mode, {"file": "a.txt"}, user)
    assert value_of(result) == "deleted"
    assert done == [{"file": "a.txt"}]
    assert [event.error for event in events] == [None]
    (asked,) = user.asked
    assert "t.delete" in asked.message
    assert "a.txt" in asked.message
    assert asked.requested_schema["properties"]["confirm"]["type"] == "boolean"


@ERAS
@pytest.mark.parametrize(
    "answer",
    [
        accept(confirm=False),
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
    ],
    ids=["no", "decline", "cancel"],
)
def test_without_a_yes_nothing_runs_and_the_caller_is_told_why(mode, answer):
    result, done, events = call(mode, {"file": "a.txt"}, says(answer))
    assert error_of(result)["code"] == "not_confirmed"
    assert done == []
    assert [event.error.code for event in events] == ["not_confirmed"]


@ERAS
@pytest.mark.parametrize("data", [{}, {"confirm": "yes"}, {"confirm": 1}])
def test_what_is_no_yes_is_none(mode, data):
    result, done, _ = call(mode, {"file": "a.txt"}, says(accept(**data)))
    assert error_of(result)["code"] == "client_unable"
    assert done == []


@ERAS
def test_a_client_that_cannot_ask_its_user_cannot_run_it(mode):
    result, done, _ = call(mode, {"file": "a.txt"}, None)
    error = error_of(result)
    assert error["code"] == "not_confirmed"
    assert "elicitation" in error["message"]
    assert done == []


@ERAS
def test_secrets_are_not_shown_to_the_user_and_reach_the_tool(mode):
    user = says(YES)
    arguments = {"file": "a.txt", "key": "s3cr3t", "login": {"password": "hunter2"}}
    _, done, _ = call(mode, arguments, user)
    assert done == [arguments]
    message = user.asked[0].message
    assert "a.txt" in message
    assert "s3cr3t" not in message
    assert "hunter2" not in message


@ERAS
def test_only_so_much_of_the_arguments_is_shown(mode):
    user = says(YES)
    call(mode, {"file": "x" * 100_000}, user)
    assert MAX_SHOWN_ARGUMENTS < len(user.asked[0].message) < MAX_SHOWN_ARGUMENTS + 200


@ERAS
@pytest.mark.parametrize(
    ("arguments", "more", "code"),
    [
        ({}, {}, "schema_validation_failed"),
        ({"file": 5}, {}, "schema_validation_failed"),
        ({"file": "a.txt"}, {"access": ["admin"]}, "access_denied"),
    ],
)
def test_the_user_is_not_asked_for_a_call_that_could_not_run(mode, arguments, more, code):
    user = says()
    result, done, _ = call(mode, arguments, user, **more)
    assert error_of(result)["code"] == code
    assert (user.asked, done) == ([], [])


@ERAS
@pytest.mark.parametrize("hints", [{}, {"destructiveHint": False}, {"readOnlyHint": True}])
def test_other_tools_are_not_asked_about(mode, hints):
    user = says()
    result, done, _ = call(mode, {"file": "a.txt"}, user, annotations=hints)
    assert value_of(result) == "deleted"
    assert (user.asked, len(done)) == ([], 1)


@ERAS
def test_a_tool_behind_call_tool_asks_as_well(mode):
    user = says(accept(confirm=False), YES)

    async def go():
        done = []
        given = {"mode": mode, "user": user, "arranged": with_confirmation, "list_up_to": 0}
        async with connected(deleting(done), **given) as at:
            arguments = {"name": "t.delete", "arguments": {"file": "a.txt", "key": "s3cr3t"}}
            refused = await at.client.call_tool("call_tool", arguments)
            assert done == []
            return refused, await at.client.call_tool("call_tool", arguments), done

    refused, result, done = asyncio.run(asyncio.wait_for(go(), PATIENCE))
    assert error_of(refused)["code"] == "not_confirmed"
    assert value_of(result) == "deleted"
    assert len(done) == 1
    assert "s3cr3t" not in user.asked[0].message


@ERAS
def test_a_tool_cannot_get_around_the_question_by_another_and_each_call_has_its_own(mode):
    user = says(YES, accept(confirm=False))

    async def both(arguments, context):
        files = [context.env.t.delete({"file": name}) for name in ("a", "b")]
        given = await asyncio.gather(*files, return_exceptions=True)
        return [item.code if isinstance(item, CallError) else item.data for item in given]

    async def go():
        done = []
        tools = deleting(done), tool("both", both)
        async with connected(*tools, mode=mode, user=user, arranged=with_confirmation) as at:
            return await at.client.call_tool("t_both", {}), done

    result, done = asyncio.run(asyncio.wait_for(go(), PATIENCE))
    assert sorted(value_of(result)) == ["deleted", "not_confirmed"]
    assert len(done) == 1
    assert len(user.asked) == 2


def test_nobody_is_there_to_say_yes_in_code_of_this_process():
    done = []
    runtime = Runtime(with_confirmation(Catalog([deleting(done)])))
    with pytest.raises(CallError) as refused:
        asyncio.run(runtime.execute("t.delete", {"file": "a.txt"}))
    assert (refused.value.code, done) == ("not_confirmed", [])


def test_the_time_of_the_user_is_not_taken_from_the_tool():
    quick, usual = deleting([], timeout=5), deleting([], "other")
    held = with_confirmation(Catalog([quick, usual]))
    assert held.find("t.delete").timeout == 5 + ANSWER_SECONDS
    assert held.find("t.other").timeout == DEFAULT_TIMEOUT + ANSWER_SECONDS


def test_everything_else_of_a_catalog_stays_as_it_is():
    other = deleting([], "other", annotations={})
    resource = Resource(uri="d:x", tool=tool("x", other.handler, annotations=DESTROYS))
    prompt = Prompt(tool=tool("ask", other.handler))
    held = with_confirmation(Catalog([other], resources=[resource], prompts=[prompt]))
    assert (list(held), held.resources, held.prompts) == ([other], (resource,), (prompt,))


def test_a_subscription_gives_no_answer_to_wait_for_and_is_left_alone():
    async def ticks(arguments, context):
        yield 1

    assert not is_destructive(tool("ticks", ticks, kind="subscription", annotations=DESTROYS))
