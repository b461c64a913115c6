"""An agent as a tool: under contract, for agents, for code, and for clients over MCP."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

import pytest
from mcp import Client
from pydantic import BaseModel, Field, computed_field

from answers import CANNED, GOOD, PROSE, VALUE, Refund, call, go, refunds
from callpact import (
    Access,
    Agent,
    CallError,
    Catalog,
    Context,
    Identity,
    InvalidInput,
    InvalidTool,
    ModelError,
    Runtime,
    Tool,
    ToolError,
    UnknownTool,
    strict_output_rules,
    tool,
)
from callpact.agent import SqliteMemory
from callpact.runtime import MAX_NESTED
from callpact.serve import Door
from callpact.testing import ScriptedModel
from callpact.tool import Contract


@tool(namespace="main")
async def ask(context: Context) -> str:
    """Ask."""
    return await context.pause("Tea?")


def executed(agent, message="refund?", **options):
    made = agent.as_tool()
    runtime = Runtime([made])
    return go(runtime.execute(made.id, {"message": message}, **options))


def failed(agent, kind=ToolError, **options):
    with pytest.raises(kind) as caught:
        executed(agent, **options)
    return caught.value


# --- by code --------------------------------------------------------------------------------


def test_a_message_goes_in_and_the_typed_answer_comes_out_as_json():
    agent, model = refunds(GOOD)
    assert executed(agent).data == {"amount": 5.0, "reason": "late"}
    assert model.requests[0].messages[0].content == "refund?"


def test_without_a_contract_the_answer_is_text():
    assert executed(Agent(ScriptedModel(["done"]))).data == "done"


def test_the_contract_of_the_tool_is_the_contract_of_the_answer():
    made = refunds()[0].as_tool()
    assert (made.id, made.contract.policy) == ("agent.ask", "reject")
    assert set(made.contract.output["properties"]) == {"amount", "reason"}
    assert made.contract.input["required"] == ["message"]


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("schema", "raw", "data"),
    [
        (Point, '{"x": 1}', {"x": 1}),
        (list[int], "[1]", [1]),
        ({"type": "integer"}, "3", 3),
        (sorted, "[2, 1]", [1, 2]),
        (int | None, "null", None),
    ],
)
def test_every_shape_goes_out_as_json(schema, raw, data):
    assert executed(Agent(ScriptedModel([raw])).output_schema(schema)).data == data


class Renamed(BaseModel):
    amount: int = Field(validation_alias="in", serialization_alias="out")
    tax: int = 1

    @computed_field
    def total(self) -> int:
        return self.amount + self.tax


def test_what_goes_out_is_held_to_what_the_type_writes_not_to_what_it_reads():
    agent = Agent(ScriptedModel(['{"in": 1}'])).output_schema(Renamed)
    assert executed(agent).data == {"out": 1, "tax": 1, "total": 2}


@pytest.mark.parametrize(
    "arguments", [{}, {"message": ""}, {"message": 5}, {"message": "x", "y": 1}]
)
def test_the_gate_holds_for_an_agent(arguments):
    agent, model = refunds(GOOD)
    with pytest.raises(InvalidInput):
        go(Runtime([agent.as_tool()]).execute("agent.ask", arguments))
    assert model.requests == []


def test_a_blank_message_is_refused_like_an_empty_one():
    agent, model = refunds(GOOD)
    with pytest.raises(CallError) as caught:
        executed(agent, " \n")
    assert (caught.value.code, caught.value.path) == ("empty_message", "/message")
    assert model.requests == []


def test_a_broken_answer_is_an_error_that_shows_nothing_of_it():
    error = failed(refunds("the password is tea")[0])
    assert error.code == "ERR_OUTPUT_SCHEMA"
    assert "password" not in str(error)
    assert "password" not in json.dumps(error.details or {})


def test_the_fallback_answers_here_as_well():
    agent, _ = refunds(PROSE, PROSE, canned=CANNED)
    assert executed(agent.reliability(strict_output_rules(3))).data == {**CANNED, "amount": 0.0}


@pytest.mark.parametrize(
    ("agent", "code"),
    [
        (Agent(ScriptedModel([ModelError("down")])), "ERR_MODEL"),
        (refunds(PROSE, PROSE)[0].reliability(strict_output_rules(3)), "ERR_RELIABILITY_FAIL_FAST"),
        (Agent(ScriptedModel([call("x")] * 3)).limits(iterations=2), "ERR_LIMIT_REACHED"),
    ],
)
def test_a_run_that_was_stopped_is_an_error_with_its_code(agent, code):
    assert failed(agent).code == code


def test_rules_that_gave_up_show_nothing_of_the_answer():
    secret = "the password is tea"
    agent = Agent(ScriptedModel([secret] * 2)).output_schema(Refund)
    assert "password" not in str(failed(agent.reliability(strict_output_rules(3))))


def test_id_and_description_are_the_callers():
    made = refunds()[0].as_tool("shop.refund", description="Decides refunds.", timeout=3)
    assert (made.id, made.description, made.timeout) == ("shop.refund", "Decides refunds.", 3)
    with pytest.raises(InvalidTool):
        refunds()[0].as_tool("no id")


def test_a_deadline_ends_the_run_of_an_agent():
    class Silent:
        name = "silent"

        async def complete(self, request):
            await asyncio.Event().wait()

    soon = (time.time() + 0.05) * 1000
    error = failed(Agent(Silent()), CallError, deadline=soon)
    assert error.code in {"timeout", "ERR_LIMIT_REACHED"}


def test_a_pause_needs_an_agent_that_can_wait():
    agent = Agent(ScriptedModel([call("main_ask")]), tools=[ask])
    assert failed(agent, CallError).code == "client_unable"


# --- by agents ------------------------------------------------------------------------------


def test_an_agent_calls_an_agent_and_reads_its_answer():
    inner, _ = refunds(GOOD, name="inner")
    outer = Agent(ScriptedModel([call("inner_ask", {"message": "refund?"}), "done"]))
    answer = go(outer.tools([inner.as_tool()]).run("go"))
    assert Refund(**json.loads(answer.messages[2].content)) == VALUE


def test_agents_that_call_one_another_for_ever_are_stopped():
    def again(request):
        results = [message for message in request.messages if message.role == "tool"]
        return results[0].content if results else call("loop_ask", {"message": "again"})

    model, runtime = ScriptedModel(again), Runtime([])
    agent = Agent(model, name="loop").tools(runtime)
    runtime.catalog = Catalog([agent.as_tool()])
    assert "too_deep" in go(agent.run("go"))
    assert len(model.requests) <= 2 * (MAX_NESTED + 1)


# --- who may what ---------------------------------------------------------------------------


def _secured(model):
    async def work(props, context):
        return {"caller": None if context.identity is None else context.identity.id}

    secret = Tool(
        id="a.secret",
        description="Secret.",
        contract=Contract(),
        handler=work,
        access=Access(scopes=("admin",)),
    )
    return Agent(model, name="inner", tools=[secret])


def _script():
    return ScriptedModel(
        lambda request: next(
            (m.content for m in request.messages if m.role == "tool"), call("a_secret")
        )
    )


@pytest.mark.parametrize(
    ("identity", "code", "offered"),
    [
        (None, "access_denied", []),
        (Identity("ada"), "access_denied", []),
        (Identity("root", ("admin",)), None, ["a_secret"]),
    ],
    ids=["nobody", "user", "admin"],
)
def test_a_stranger_gets_no_more_through_an_agent_than_without_it(identity, code, offered):
    model = _script()
    said = json.loads(executed(_secured(model), identity=identity).data)
    assert said.get("error", {}).get("code") == code
    assert [offer.name for offer in model.requests[0].tools] == offered


def test_an_agent_of_this_process_hands_its_trust_on():
    inner = _secured(_script()).as_tool()
    outer = ScriptedModel([call("inner_ask", {"message": "go"}), "done"])
    answer = go(Agent(outer, tools=[inner]).run("go"))
    assert json.loads(answer.messages[2].content) == {"caller": None}


def test_callers_do_not_read_what_others_said(tmp_path):
    store = SqliteMemory(tmp_path / "memory.db")
    model = ScriptedModel(lambda request: "noted")
    agent = Agent(model).memory(store)
    ada, bob = Identity("ada"), Identity("bob")
    for who, message in ((ada, "I am ada"), (bob, "I am bob"), (None, "secret"), (None, "hello")):
        executed(agent, message, identity=who)
    executed(agent, "who am I?", identity=ada)
    store.close()
    said = [[m.content for m in request.messages if m.role == "user"] for request in model.requests]
    assert said == [["I am ada"], ["I am bob"], ["secret"], ["hello"], ["I am ada", "who am I?"]]


# --- over MCP -------------------------------------------------------------------------------


def over_mcp(agent, *messages):
    async def story():
        async with Runtime([agent.as_tool()]) as runtime, Client(Door(runtime).server) as client:
            listed = await client.list_tools()
            given = [await client.call_tool("agent_ask", {"message": each}) for each in messages]
            return listed.tools, given

    return go(story())


def test_a_client_over_mcp_gets_the_typed_answer_and_its_schema():
    agent, _ = refunds(GOOD)
    (listed,), (result,) = over_mcp(agent, "refund?")
    assert listed.name == "agent_ask"
    assert set(listed.output_schema["properties"]) == {"amount", "reason"}
    assert not result.is_error
    assert result.structured_content == {"amount": 5.0, "reason": "late"}


def test_a_client_over_mcp_reads_an_error_and_nothing_of_the_broken_answer():
    agent, _ = refunds("the password is tea", GOOD)
    _, (broken, good) = over_mcp(agent, "refund?", "again")
    assert broken.is_error
    assert "password" not in str(broken)
    assert "ERR_OUTPUT_SCHEMA" in str(broken)
    assert not good.is_error


def test_an_unknown_tool_within_a_served_agent_stays_within():
    model = ScriptedModel([call("nothing"), "done"])
    _, (result,) = over_mcp(Agent(model), "go")
    assert not result.is_error
    assert UnknownTool("nothing").code in model.requests[1].messages[-1].content
