"""Tools in a run: called through the runtime like any other, and what the model reads of them."""

from __future__ import annotations

import asyncio
import json

import pytest

from answers import GOOD, PROSE, Heard, Refund, call, go, refunds
from callpact import (
    Access,
    Agent,
    Catalog,
    Contract,
    Identity,
    InvalidInput,
    LimitReached,
    OutputSchemaError,
    Runtime,
    Tool,
    ToolError,
    UsageError,
    from_functions,
    tool,
)
from callpact.agent import ModelReply, ToolUse
from callpact.agent.budget import MAX_AT_ONCE, MAX_OUTPUT_CHARACTERS, MAX_TOOL_USES
from callpact.sources import exhausted_message
from callpact.testing import ScriptedModel
from callpact.tool import Disabled
from callpact.wire.plain import encode_error


@tool(namespace="main")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def made(id, handler, *, contract=None, **more):
    return Tool(
        id=id, description="A tool.", contract=contract or Contract(), handler=handler, **more
    )


def results(answer):
    return [message for message in answer.messages if message.role == "tool"]


def ran(*replies, tools=(add,), **options):
    agent = Agent(ScriptedModel([*replies, "done"]), tools=tools)
    return results(go(agent.run("go", **options)))


def calls_of(*arguments, name="main_add"):
    return [call(name, each) for each in arguments]


# --- results --------------------------------------------------------------------------------


def test_a_result_goes_back_under_the_id_and_name_of_the_use():
    (result,) = ran(call("main_add", {"a": 1, "b": 2}, id="use-x"))
    assert (result.content, result.is_error) == ("3", False)
    assert (result.tool_use_id, result.tool_name) == ("use-x", "main_add")


def test_tools_can_be_called_by_their_id_as_well():
    (result,) = ran(call("main.add", {"a": 1, "b": 2}))
    assert result.content == "3"


def test_a_rejected_call_reads_as_the_structured_error_of_the_gate():
    (result,) = ran(call("main_add", {"a": "x"}))
    runtime = Runtime(from_functions(add))
    with pytest.raises(InvalidInput) as caught:
        go(runtime.execute("main.add", {"a": "x"}))
    assert json.loads(result.content) == encode_error(caught.value)
    assert json.loads(result.content)["error"]["code"] == "schema_validation_failed"
    assert result.is_error


def test_an_unknown_tool_is_told_with_what_was_meant():
    (result,) = ran(call("main_ad", {"a": 1, "b": 2}))
    error = json.loads(result.content)["error"]
    assert error["code"] == "tool_not_found"
    assert "main" in error["message"]


def test_an_error_of_a_tool_is_read_with_its_own_code():
    def sold_out(props, context):
        raise ToolError("sold_out", "no tea left", path="/q")

    (result,) = ran(call("a_b"), tools=[made("a.b", sold_out)])
    assert json.loads(result.content) == {
        "error": {"code": "sold_out", "message": "no tea left", "path": "/q"}
    }


def test_a_tool_that_crashes_tells_nothing_of_its_inside():
    def crash(props, context):
        raise RuntimeError("password is tea")

    (result,) = ran(call("a_b"), tools=[made("a.b", crash)])
    assert json.loads(result.content)["error"]["code"] == "handler_error"
    assert "password" not in result.content


def test_a_result_that_breaks_its_contract_is_not_delivered():
    contract = Contract(output={"type": "integer"}, policy="reject")
    (result,) = ran(call("a_b"), tools=[made("a.b", lambda p, c: "tea", contract=contract)])
    assert json.loads(result.content)["error"]["code"] == "output_validation_failed"


def test_what_had_to_be_invented_is_said():
    schema = {
        "type": "object",
        "properties": {"price": {"type": "number"}},
        "required": ["price"],
    }
    contract = Contract(output=schema, policy="cast")
    (result,) = ran(call("a_b"), tools=[made("a.b", lambda p, c: {}, contract=contract)])
    data, _, note = result.content.partition("\n\n")
    assert "price" in json.loads(data)
    assert "invented" in note
    assert "/price" in note


@pytest.mark.parametrize(
    "data", ["x" * 200_000, {"rows": [{"a": 1}] * 50_000}, list(range(60_000))]
)
def test_a_result_that_is_too_long_is_told_by_its_outline(data):
    (result,) = ran(call("a_b"), tools=[made("a.b", lambda p, c: data)])
    assert len(result.content) < MAX_OUTPUT_CHARACTERS
    assert "too many to show" in result.content


def test_a_long_result_within_the_limit_is_whole():
    text = "x" * MAX_OUTPUT_CHARACTERS
    (result,) = ran(call("a_b"), tools=[made("a.b", lambda p, c: text)])
    assert result.content == text


# --- several at once ------------------------------------------------------------------------


def test_the_calls_of_one_reply_run_at_the_same_time_and_answer_in_order():
    async def story():
        here, everybody = [], asyncio.Event()

        async def meet(props, context):
            here.append(props["n"])
            if len(here) == MAX_AT_ONCE:
                everybody.set()
            await everybody.wait()  # Would never end if they ran one after another.
            return props["n"]

        uses = calls_of(*({"n": n} for n in range(MAX_AT_ONCE)), name="a_meet")
        agent = Agent(ScriptedModel([uses, "done"]), tools=[made("a.meet", meet)])
        return await agent.run("go")

    answer = go(story())
    assert [message.content for message in results(answer)] == [str(n) for n in range(MAX_AT_ONCE)]


def test_no_more_calls_run_at_once_than_the_limit():
    async def story():
        running, most = [0], [0]

        async def work(props, context):
            running[0] += 1
            most[0] = max(most[0], running[0])
            for _ in range(5):
                await asyncio.sleep(0)
            running[0] -= 1
            return "x"

        uses = calls_of(*[{}] * 30, name="a_work")
        await Agent(ScriptedModel([uses, "done"]), tools=[made("a.work", work)]).run("go")
        return most[0]

    assert go(story()) == MAX_AT_ONCE


def test_one_failure_leaves_the_others_alone():
    first, second, third = ran(calls_of({"a": 1, "b": 1}, {"a": 1}, {"a": 2, "b": 2}))
    assert (first.content, third.content) == ("2", "4")
    assert second.is_error


def test_ten_thousand_calls_in_one_reply_are_refused_beyond_the_limit():
    called = []

    def work(props, context):
        called.append(1)
        return "x"

    uses = tuple(ToolUse(str(n), "a_work", {}) for n in range(10_000))
    read = ran(ModelReply("", uses), tools=[made("a.work", work)])
    assert len(read) == 10_000
    assert len(called) == MAX_TOOL_USES
    refused = [message for message in read if message.is_error]
    assert len(refused) == 10_000 - MAX_TOOL_USES
    assert json.loads(refused[0].content)["error"]["code"] == "too_many_calls"


def test_uses_with_one_id_are_all_called():
    read = ran(
        [
            call("main_add", {"a": 1, "b": 1}, id="same"),
            call("main_add", {"a": 2, "b": 2}, id="same"),
        ]
    )
    assert [message.content for message in read] == ["2", "4"]


# --- hostile arguments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    ["{'a': 1, 'b': 2,}", '```json\n{"a": 1, "b": 2}\n```', '{"a": 1, "b": 2}', {"a": 1, "b": 2}],
)
def test_arguments_as_text_are_read_where_no_meaning_is_lost(arguments):
    (result,) = ran(call("main_add", arguments))
    assert result.content == "3"


@pytest.mark.parametrize(
    "arguments",
    ["hello", '{"a": 1, "b": 2', [1], 5, True, None, "", "[" * 100_000, '{"a": "\ud800"}'],
)
def test_other_arguments_are_refused_by_the_gate(arguments):
    use = ModelReply("", (ToolUse("1", "main_add", arguments),))
    (result,) = ran(use)
    assert json.loads(result.content)["error"]["code"] == "schema_validation_failed"


@pytest.mark.parametrize(
    "name", ["", " ", "main_add\x00", "../etc", "é" * 10_000, "__proto__", "\ud800"]
)
def test_odd_names_are_tools_that_are_not_there(name):
    (result,) = ran(call(name, {}))
    assert json.loads(result.content)["error"]["code"] == "tool_not_found"


# --- giving up on the gate ------------------------------------------------------------------


def test_a_model_that_never_satisfies_the_gate_ends_with_the_message_of_the_seed():
    model = ScriptedModel([call("main_add", {"a": "x"})] * 9)
    answer = go(Agent(model, tools=[add]).limits(rejections=3).run("go"))
    assert answer == exhausted_message("main_add")
    assert len(model.requests) == 3


def test_many_wrong_calls_in_one_reply_are_one_failure_of_the_model():
    model = ScriptedModel([calls_of(*[{"a": "x"}] * 9), call("main_add", {"a": 1, "b": 1}), "done"])
    assert go(Agent(model, tools=[add]).limits(rejections=2).run("go")) == "done"


def test_a_call_that_is_admitted_forgives_the_earlier_ones():
    wrong, right = call("main_add", {"a": "x"}), call("main_add", {"a": 1, "b": 1})
    model = ScriptedModel([wrong, right, wrong, right, "done"])
    assert go(Agent(model, tools=[add]).limits(rejections=2).run("go")) == "done"


def test_a_failure_behind_the_gate_is_no_rejection():
    def sold_out(props, context):
        raise ToolError("sold_out", "no tea left")

    model = ScriptedModel([call("a_b")] * 4 + ["done"])
    agent = Agent(model, tools=[made("a.b", sold_out)]).limits(rejections=2)
    assert go(agent.run("go")) == "done"


def test_giving_up_under_contract_is_an_unmet_contract():
    wrong = call("main_add", {"a": "x"})
    agent, _ = refunds(wrong, wrong, tools=[add])
    agent = agent.limits(rejections=2)
    with pytest.raises(OutputSchemaError) as caught:
        go(agent.run_typed("refund?"))
    assert caught.value.raw_output == exhausted_message("main_add")


# --- time -----------------------------------------------------------------------------------


def test_a_tool_that_takes_too_long_is_a_result_that_the_model_reads():
    slow = made("a.slow", _for_ever, timeout=0.05)
    (result,) = ran(call("a_slow"), tools=[slow])
    assert json.loads(result.content)["error"]["code"] == "timeout"


async def _for_ever(props, context):
    await asyncio.Event().wait()


def test_the_time_of_a_run_ends_its_tools():
    agent = Agent(ScriptedModel([call("a_slow"), "done"]), tools=[made("a.slow", _for_ever)])
    with pytest.raises(LimitReached) as caught:
        go(agent.limits(seconds=0.05).run("go"))
    assert (caught.value.limit, caught.value.account.requests) == ("seconds", 1)


def test_cancelling_a_run_cancels_its_tools_and_leaves_no_task():
    async def story():
        begun, ended = [], []
        everybody = asyncio.Event()

        async def hang(props, context):
            begun.append(1)
            if len(begun) == 3:
                everybody.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(1)

        agent = Agent(ScriptedModel([[call("a_hang")] * 3]), tools=[made("a.hang", hang)])
        task = asyncio.create_task(agent.run("go"))
        await everybody.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(ended), asyncio.all_tasks() - {asyncio.current_task()}

    assert go(story()) == (3, set())


# --- access ---------------------------------------------------------------------------------


def _secured():
    async def work(props, context):
        return {"caller": None if context.identity is None else context.identity.id}

    secret = made("a.secret", work, access=Access(scopes=("admin",)))
    return [secret, made("a.open", work)]


@pytest.mark.parametrize(
    ("identity", "offered", "codes"),
    [
        (None, ["a_secret", "a_open"], [None, None]),
        (Identity("ada"), ["a_open"], ["access_denied", None]),
        (Identity("root", ("admin",)), ["a_secret", "a_open"], [None, None]),
    ],
    ids=["code", "user", "admin"],
)
def test_an_agent_may_do_what_its_caller_may(identity, offered, codes):
    model = ScriptedModel([[call("a_secret"), call("a_open")], "done"])
    answer = go(Agent(model, tools=_secured()).run("go", identity=identity))
    assert [offer.name for offer in model.requests[0].tools] == offered
    read = [json.loads(message.content) for message in results(answer)]
    assert [each.get("error", {}).get("code") for each in read] == codes
    assert read[1] == {"caller": None if identity is None else identity.id}


def test_a_tool_that_cannot_be_called_at_present_is_not_offered():
    async def feed(props, context):
        yield 1

    tools = [
        made("a.feed", feed, kind="subscription"),
        made("a.off", _for_ever, disabled=Disabled("no_key", "no key")),
        made("a.on", _for_ever),
    ]
    model = ScriptedModel(["done"])
    go(Agent(model, tools=tools).run("go"))
    assert [offer.name for offer in model.requests[0].tools] == ["a_on"]


# --- declaring ------------------------------------------------------------------------------


def test_tools_are_a_catalog_or_tools_or_functions_or_a_runtime():
    (made_tool,) = from_functions(add)
    for given in (Catalog([made_tool]), [made_tool], [add], (add,), Runtime([made_tool])):
        (result,) = ran(call("main_add", {"a": 1, "b": 2}), tools=given)
        assert result.content == "3"


def test_agents_of_one_base_have_tools_of_their_own():
    model = ScriptedModel(["1", "2", "3"])
    base = Agent(model)
    first, second = base.tools([add]), base.tools([made("a.b", _for_ever)])
    for agent in (first, second, first):
        go(agent.run("go"))
    offered = [[offer.name for offer in request.tools] for request in model.requests]
    assert offered == [["main_add"], ["a_b"], ["main_add"]]


@pytest.mark.parametrize(
    "declare",
    [
        lambda agent: agent.tools([add]).tools([add]),
        lambda agent: agent.tools([add]).output_schema(Refund, strategy="tool-forced"),
        lambda agent: agent.output_schema(Refund, strategy="tool-forced").tools([add]),
        lambda agent: Agent(ScriptedModel([]), observers=[print]).tools(
            Runtime([], observers=[print])
        ),
    ],
)
def test_tools_that_cannot_be_are_refused(declare):
    with pytest.raises(UsageError):
        declare(Agent(ScriptedModel([])))


def test_calls_are_told_by_their_ids():
    heard = Heard()
    agent = Agent(ScriptedModel([call("main_add", {"a": 1}, id="u1"), "done"]), tools=[add])
    go(agent.on(heard).run("go"))
    assert heard.one("stream.tool_start") == {"tool": "main_add", "tool_use_id": "u1"}
    assert heard.one("stream.tool_end") == {
        "tool": "main_add",
        "tool_use_id": "u1",
        "is_error": True,
    }


def test_prose_beside_a_call_is_kept_in_the_conversation():
    reply = ModelReply(PROSE, (ToolUse("1", "main_add", {"a": 1, "b": 2}),))
    answer = go(Agent(ScriptedModel([reply, GOOD]), tools=[add]).run("go"))
    assert (answer.messages[1].content, answer.messages[1].tool_uses) == (PROSE, reply.tool_uses)


def test_a_tool_is_offered_with_a_schema_that_strict_providers_accept():
    model = ScriptedModel(["done"])
    contract = Contract(input={"properties": {"names": {"type": "array"}}})
    go(Agent(model, tools=[made("a.b", lambda p, c: 1, contract=contract)]).run("go"))
    schema = model.requests[0].tools[0].input_schema
    assert schema["type"] == "object"
    assert "items" in schema["properties"]["names"]
