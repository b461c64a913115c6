"""Clients are told and asked: over memory, stdio and HTTP, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from callpact.app import Options, Session
from callpact.errors import ClientUnable
from callpact.runtime import Runtime
from callpact.serve import Door
from callpact.serve.mcp.peer import RequestPeer
from doors import LEGACY, MODERN, NAME, accept, connected, error_of, model, says, tool, value_of
from serving import Serving

# Older clients set their level by a message of their own, which the SDK calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
TOOLS = Path(__file__).parent / "questions.py"
PATIENCE = 60
ERAS = pytest.mark.parametrize("mode", [MODERN, LEGACY])
UNABLE = -32021
"""MISSING_REQUIRED_CLIENT_CAPABILITY of 2026-07-28."""


@contextlib.asynccontextmanager
async def in_memory():
    async with Session(Options(refs=(str(TOOLS),), audit="off")) as session:
        await session.load()
        yield Door(await session.start()).server


@contextlib.asynccontextmanager
async def over_stdio():
    args = ["-m", "callpact", "serve", "-s", str(TOOLS), "--stdio"]
    yield StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))


@contextlib.asynccontextmanager
async def over_http():
    async with Session(Options(refs=(str(TOOLS),), audit="off")) as session:
        await session.load()
        with Serving(door=Door(await session.start())) as serving:
            yield serving.address


@pytest.fixture(params=[in_memory, over_stdio, over_http], ids=["memory", "stdio", "http"])
def place(request):
    return request.param


@pytest.fixture(params=[MODERN, LEGACY])
def at(place, request):
    """Puts a question to the server at one place, in one era, by a client that can answer."""

    def ask(question, *, user=None, said=None, roots=None, **given):
        async def go():
            callbacks = {
                "elicitation_callback": user,
                "sampling_callback": said,
                "list_roots_callback": roots,
            }
            async with (
                place() as server,
                Client(server, mode=request.param, **callbacks, **given) as client,
            ):
                return await question(client)

        return asyncio.run(asyncio.wait_for(go(), PATIENCE))

    ask.is_modern = request.param == MODERN
    return ask


async def folders(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///a", name="A")])


def run(told):
    return asyncio.run(asyncio.wait_for(told, PATIENCE))


def call(handler, mode, **given):
    """The result of a tool with this handler, called once, and what the observer heard."""

    async def go():
        async with connected(tool("it", handler), mode=mode, **given) as here:
            try:
                return await here.client.call_tool("t_it", {}), here.events
            except MCPError as error:
                return error.error, here.events

    return run(go())


# --- everywhere -----------------------------------------------------------------------------


def test_the_user_is_asked_and_the_call_goes_on_with_what_was_said(at):
    said = [
        (accept(name="Ada"), {"action": "accept", "data": {"name": "Ada"}}),
        (types.ElicitResult(action="decline"), {"action": "decline", "data": None}),
        (types.ElicitResult(action="cancel"), {"action": "cancel", "data": None}),
    ]
    user = says(*(answer for answer, _ in said), accept(name="a"), accept(name="b"))

    async def question(client):
        for _, wanted in said:
            result = await client.call_tool("questions_greet", {"key": uuid.uuid4().hex})
            assert (result.is_error, result.structured_content) == (False, {**wanted, "begun": 1})
        return await client.call_tool("questions_twice", {})

    assert value_of(at(question, user=user)) == ["a", "b"]
    assert (user.asked[0].message, user.asked[0].requested_schema) == ("Who are you?", NAME)


def test_user_model_and_folders_are_asked_at_once_and_by_prompts_and_resources_too(at):
    async def question(client):
        result = await client.call_tool("questions_everything", {})
        prompt = await client.get_prompt("questions_welcome")
        return result, prompt.messages[0], (await client.read_resource("me://name")).contents[0]

    user = says(*(accept(name=name) for name in ("Ada", "Bob", "Cay")))
    result, message, content = at(question, user=user, said=says(model("hi")), roots=folders)
    assert value_of(result) == ["Ada", "hi", ["file:///a"]]
    assert (message.content.text, content.text) == ("Welcome Bob", "Cay")


def test_a_client_that_cannot_be_asked_is_told_so_in_the_way_of_its_era(at):
    async def question(client):
        assert value_of(await client.call_tool("questions_able", {})) == [False, True, False]
        try:
            return await client.call_tool("questions_greet", {"key": "x"})
        except MCPError as error:
            return error.error

    answer = at(question, said=says())
    if at.is_modern:
        assert (answer.code, answer.data) == (UNABLE, {"requiredCapabilities": {"elicitation": {}}})
    else:
        assert error_of(answer)["code"] == "client_unable"


def test_a_client_hears_how_far_a_call_is_and_of_the_levels_that_it_asked_for(at):
    heard, way = [], []

    async def listen(params):
        heard.append((params.level, params.data))

    async def progress(done, total, message):
        way.append((done, total, message))

    async def question(client):
        if not at.is_modern:
            await client.set_logging_level("error")
        result = await client.call_tool("questions_tell", {}, progress_callback=progress)
        return value_of(result), list(way)

    given = {"logging_callback": listen, "log_level": "error" if at.is_modern else None}
    done, way_by_then = at(question, **given)
    assert (done, way_by_then) == ("done", [(1, 2, "step 1"), (2, 2, "step 2")])
    assert heard == [("error", {"level": "error"}), ("alert", {"level": "alert"})]


# --- asking the user ------------------------------------------------------------------------


def asking(schema, **given):
    async def handler(arguments, context):
        answer = await context.client.elicit("?", schema, **given)
        return [answer.action, answer.data]

    return handler


def form(**properties):
    return {"type": "object", "properties": properties}


@ERAS
@pytest.mark.parametrize(
    "data",
    [{}, {"name": 5}, {"name": None}, {"name": ["Ada"]}],
    ids=["missing", "number", "null", "list"],
)
def test_an_answer_that_breaks_what_was_asked_for_is_no_answer(mode, data):
    result, events = call(asking(NAME), mode, user=says(accept(**data)))
    error = error_of(result)
    assert error["code"] == "client_unable"
    assert "name" in error["message"]
    assert [type(event.error) for event in events] == [ClientUnable]


@ERAS
def test_every_kind_of_field_is_asked_as_it_is_written_and_taken_as_it_comes(mode):
    schema = form(
        name={"type": "string", "default": "Ada", "minLength": 1},
        age={"type": "integer", "minimum": 0, "default": 30},
        score={"type": "number", "default": 9.5},
        is_open={"type": "boolean", "default": True},
        state={"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        kind={"type": "string", "oneOf": [{"const": "x", "title": "X"}]},
        tags={"type": "array", "items": {"type": "string", "enum": ["p", "q"]}},
        more={"type": "array", "items": {"anyOf": [{"const": "p", "title": "P"}]}},
    )
    data = {
        "name": "Bob",
        "age": 3,
        "score": 1.5,
        "is_open": False,
        "state": "b",
        "kind": "x",
        "tags": ["q", "p"],
        "more": ["p"],
    }
    user = says(accept(**data))
    result, _ = call(asking(schema), mode, user=user)
    assert value_of(result) == ["accept", data]
    assert user.asked[0].requested_schema == schema


@ERAS
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "string"},
        {"properties": {"a": {"type": "string"}}},
        form(a={"type": "object", "properties": {}}),
        form(a={"type": "array", "items": {"type": "string"}}),
        form(a={"type": ["string", "null"]}),
        form(a={}),
        form(a=True),
        form(a={"type": "string", "pattern": "("}),
        form(a={"type": "integer", "minimum": "zero"}),
    ],
)
def test_a_question_that_no_client_could_show_is_an_error_of_the_tool_and_never_asked(mode, schema):
    user = says()
    result, _ = call(asking(schema), mode, user=user)
    assert error_of(result)["code"] == "handler_error"
    assert user.asked == []


_FORM, _URL = types.FormElicitationCapability(), types.UrlElicitationCapability()


@pytest.mark.parametrize(
    ("able", "wanted"),
    [
        (None, False),
        (types.ElicitationCapability(), True),
        (types.ElicitationCapability(form=_FORM), True),
        (types.ElicitationCapability(form=_FORM, url=_URL), True),
        (types.ElicitationCapability(url=_URL), False),
    ],
)
def test_a_user_can_be_asked_where_the_client_shows_forms(able, wanted):
    declared = types.ClientCapabilities(elicitation=able)
    session = SimpleNamespace(client_capabilities=declared, can_send_request=True)
    assert RequestPeer(SimpleNamespace(session=session)).can_elicit is wanted


def test_a_session_that_takes_no_requests_cannot_be_asked_whatever_it_declares():
    declared = types.ClientCapabilities(
        elicitation=types.ElicitationCapability(),
        sampling=types.SamplingCapability(),
        roots=types.RootsCapability(),
    )
    session = SimpleNamespace(client_capabilities=declared, can_send_request=False)
    peer = RequestPeer(SimpleNamespace(session=session))
    assert [peer.can_elicit, peer.can_sample, peer.can_list_roots] == [False] * 3


@ERAS
def test_a_tool_may_go_on_without_an_answer(mode):
    async def handler(arguments, context):
        try:
            await context.client.elicit("?", NAME)
        except ClientUnable as error:
            return error.missing
        return None

    result, events = call(handler, mode)
    assert value_of(result) == "elicitation"
    assert [event.error for event in events] == [None]


# --- asking the model -----------------------------------------------------------------------


def sampling(*args, **given):
    async def handler(arguments, context):
        said = await context.client.sample(*args, **given)
        return [said.text, list(said.content), said.model, said.stop_reason]

    return handler


@ERAS
def test_the_model_is_asked_with_everything_that_was_given(mode):
    said = says(model("hi", stop_reason="endTurn"))
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    handler = sampling(messages, max_tokens=7, system="Be kind", temperature=0.5, stop=["."])
    result, _ = call(handler, mode, model=said)
    wanted = ["hi", [{"type": "text", "text": "hi"}], "m", "endTurn"]
    assert value_of(result) == wanted
    (asked,) = said.asked
    assert [(one.role, one.content.text) for one in asked.messages] == [
        ("user", "a"),
        ("assistant", "b"),
    ]
    assert (asked.max_tokens, asked.system_prompt, asked.temperature, asked.stop_sequences) == (
        7,
        "Be kind",
        0.5,
        ["."],
    )


@ERAS
@pytest.mark.parametrize(
    "messages",
    [[], ["text"], [{"role": "system", "content": "a"}], [{"role": "user"}], [{}] * 101],
    ids=["none", "text", "system", "empty", "many"],
)
def test_what_no_model_takes_is_an_error_of_the_tool(mode, messages):
    said = says()
    result, _ = call(sampling(messages, max_tokens=5), mode, model=said)
    assert error_of(result)["code"] == "handler_error"
    assert said.asked == []


@ERAS
@pytest.mark.parametrize(
    ("what", "handler"),
    [
        ("sampling", sampling("hi", max_tokens=5)),
        ("roots", lambda arguments, context: context.client.roots()),
    ],
)
def test_a_client_without_a_model_or_folders_is_told_so(mode, what, handler):
    answer, events = call(handler, mode, user=says())
    if mode == MODERN:
        assert (answer.code, answer.data) == (UNABLE, {"requiredCapabilities": {what: {}}})
    else:
        assert error_of(answer)["code"] == "client_unable"
    assert [(event.error.code, event.error.missing) for event in events] == [
        ("client_unable", what)
    ]


def test_a_client_that_refuses_is_one_without_an_answer():
    async def refusing(context, params):
        return types.ErrorData(code=-1, message="The user said no")

    result, _ = call(sampling("hi", max_tokens=5), LEGACY, model=refusing)
    error = error_of(result)
    assert error["code"] == "client_unable"
    assert "The user said no" in error["message"]


# --- clients that go ------------------------------------------------------------------------


def test_a_client_that_hangs_up_while_its_user_is_asked_cancels_the_handler():
    async def go():
        asked, ended = asyncio.Event(), asyncio.Event()

        async def handler(arguments, context):
            try:
                await context.client.elicit("?", NAME)
            finally:
                ended.set()

        async def thinking():
            asked.set()
            await asyncio.Event().wait()

        async with connected(tool("it", handler), mode=LEGACY, user=says(thinking())) as here:
            waiting = asyncio.ensure_future(here.client.call_tool("t_it", {}))
            await asyncio.wait_for(asked.wait(), 10)
            waiting.cancel()
            await asyncio.wait_for(ended.wait(), 10)
            return here.events

    (event,) = run(go())
    assert event.error.code == "aborted"


def test_a_deadline_passes_while_the_user_thinks():
    async def handler(arguments, context):
        await context.client.elicit("?", NAME)

    async def go():
        user = says(asyncio.Event().wait())
        slow = tool("it", handler, timeout=0.05)
        async with connected(slow, mode=LEGACY, user=user) as here:
            return await here.client.call_tool("t_it", {})

    assert error_of(run(go()))["code"] == "timeout"


@ERAS
def test_what_is_told_after_the_answer_or_the_client_has_gone_breaks_nothing(mode):
    async def go():
        later = []

        async def tell(context, when):
            await when.wait()
            await context.progress(1, 2, "too late")
            await context.client.log("error", "too late")

        async def handler(arguments, context):
            later.append(asyncio.ensure_future(tell(context, answered)))
            later.append(asyncio.ensure_future(tell(context, gone)))
            return "done"

        answered, gone = asyncio.Event(), asyncio.Event()
        heard = says()
        async with connected(tool("it", handler), mode=mode, heard=heard, level="debug") as here:
            progress = says()
            result = await here.client.call_tool("t_it", {}, progress_callback=progress)
            assert value_of(result) == "done"
            answered.set()
            await later[0]
        gone.set()
        await later[1]

    run(go())


@ERAS
@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        (None, []),
        ("debug", ["debug", "notice", "error", "alert"]),
        ("notice", ["notice", "error", "alert"]),
        ("emergency", []),
    ],
)
def test_a_client_hears_at_the_level_that_it_asked_for_and_up(mode, level, wanted):
    async def handler(arguments, context):
        for name in ("debug", "notice", "error", "alert"):
            await context.client.log(name, name)

    async def go():
        heard = []

        async def listen(params):
            heard.append(params.level)

        modern = mode == MODERN
        given = {"heard": listen, "level": level if modern else None}
        async with connected(tool("it", handler), mode=mode, **given) as here:
            if not modern and level:
                await here.client.set_logging_level(level)
            await here.client.call_tool("t_it", {})
        return heard

    # Older clients hear everything until they say otherwise; today's only what they ask for.
    everything = ["debug", "notice", "error", "alert"]
    assert run(go()) == (everything if mode == LEGACY and level is None else wanted)


@ERAS
def test_a_level_that_there_is_not_is_an_error_of_the_tool(mode):
    async def handler(arguments, context):
        await context.client.log("loud", "hey")

    result, _ = call(handler, mode)
    assert error_of(result)["code"] == "handler_error"


# --- nobody there ---------------------------------------------------------------------------


def test_code_of_this_process_has_no_client_and_progress_goes_nowhere():
    async def handler(arguments, context):
        await context.progress(1, 2)
        return context.client is None

    async def go():
        return (await Runtime([tool("it", handler)]).execute("t.it")).data

    assert run(go()) is True


@ERAS
def test_tools_that_a_tool_calls_ask_the_same_client(mode):
    async def outer(arguments, context):
        return (await context.env.t.inner()).data

    async def go():
        tools = tool("inner", asking(NAME)), tool("outer", outer)
        async with connected(*tools, mode=mode, user=says(accept(name="Ada"))) as here:
            return await here.client.call_tool("t_outer", {})

    assert value_of(run(go())) == ["accept", {"name": "Ada"}]


@ERAS
def test_a_tool_behind_call_tool_asks_the_same_client(mode):
    async def go():
        user = says(accept(name="Ada"))
        async with connected(tool("it", asking(NAME)), mode=mode, user=user, list_up_to=0) as here:
            result = await here.client.call_tool("call_tool", {"name": "t.it"})
            return result, [event.tool_id for event in here.events]

    result, called = run(go())
    assert value_of(result) == ["accept", {"name": "Ada"}]
    assert called == ["t.it", "callpact.call_tool"]
