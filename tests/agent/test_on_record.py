"""Every attempt and every call of a run in a real audit log."""

from __future__ import annotations

import asyncio
import json

import pytest

from answers import GOOD, PROSE, WRONG, Refund, call, go
from callpact import (
    Agent,
    Context,
    Identity,
    ModelError,
    Runtime,
    from_functions,
    strict_output_rules,
    tool,
)
from callpact.agent import Rule
from callpact.audit import open_store, record_calls
from callpact.audit.store import Filter
from callpact.errors import ReliabilityFailFastError
from callpact.secrets import Secrets
from callpact.testing import ScriptedModel


@tool(namespace="main")
def look(order: str) -> str:
    """Look up an order."""
    return f"{order} is late"


@tool(namespace="main")
async def ask(context: Context) -> str:
    """Ask."""
    return await context.pause("Tea?")


def recorded(folder, story, **options):
    """What is on record after a story, the oldest first."""

    async def told():
        with record_calls(folder, **options) as recorder:
            return await story(recorder)

    outcome = go(told())
    store = open_store(folder)
    try:
        records = [store.find(each.id) for each in store.log(Filter(), limit=1000)]
    finally:
        store.close()
    return outcome, sorted(records, key=lambda record: (record.at, record.id))


def of(records, tool):
    return [record for record in records if record.tool == tool]


def test_requests_and_calls_of_a_run_are_on_record_under_its_id(tmp_path):
    async def story(recorder):
        model = ScriptedModel([call("main_look", {"order": "A1"}), GOOD])
        agent = Agent(model, name="triage", tools=[look], observers=[recorder])
        return await agent.output_schema(Refund).run("refund?", identity=Identity("ada"))

    answer, records = recorded(tmp_path, story)
    assert sorted(record.tool for record in records) == [
        "main.look",
        "triage.model",
        "triage.model",
    ]
    assert {record.parent for record in records} == {answer.account.run_id}
    assert {record.via for record in records} == {"agent"}
    assert {record.caller for record in records} == {"ada"}
    assert not any(record.is_error for record in records)
    (looked,) = of(records, "main.look")
    assert json.loads(looked.input.json) == {"order": "A1"}
    first, second = of(records, "triage.model")
    assert json.loads(first.input.json)["messages"] == [{"role": "user", "content": "refund?"}]
    assert json.loads(first.output.json)["tool_uses"][0]["name"] == "main_look"
    assert [m["role"] for m in json.loads(second.input.json)["messages"]] == ["assistant", "tool"]
    assert json.loads(second.output.json)["content"] == GOOD
    assert json.loads(second.output.json)["usage"]["input_tokens"] == 10


def test_every_attempt_of_the_gate_is_on_record_with_its_failure(tmp_path):
    async def story(recorder):
        down = ModelError("down", status=503)
        model = ScriptedModel([down, PROSE, WRONG, GOOD])
        agent = Agent(model, output_schema=Refund, observers=[recorder])
        again = Rule(lambda scope: scope.error_kind == "5xx-transient", "retry", "again")
        return await agent.reliability(again, strict_output_rules(4)).run("refund?")

    answer, records = recorded(tmp_path, story)
    assert len(records) == answer.account.requests == 4
    assert [record.code for record in records] == [
        "ERR_MODEL",
        "ERR_OUTPUT_SCHEMA",
        "ERR_OUTPUT_SCHEMA",
        None,
    ]
    assert [json.loads(record.input.json)["attempt"] for record in records] == [1, 2, 3, 4]
    assert records[2].path == "/amount"
    assert [len(json.loads(record.input.json)["messages"]) for record in records] == [1, 1, 2, 2]


def test_attempts_of_a_run_that_gave_up_are_on_record_too(tmp_path):
    async def story(recorder):
        agent = Agent(ScriptedModel([PROSE, PROSE]), output_schema=Refund, observers=[recorder])
        with pytest.raises(ReliabilityFailFastError):
            await agent.reliability(strict_output_rules(3)).run("refund?")

    _, records = recorded(tmp_path, story)
    assert [record.code for record in records] == ["ERR_OUTPUT_SCHEMA"] * 2


def test_what_was_told_before_a_correction_is_not_left_out_after_it(tmp_path):
    async def story(recorder):
        model = ScriptedModel(
            [PROSE, [call("main_look", {"order": str(n)}) for n in range(3)], GOOD]
        )
        agent = Agent(model, tools=[look], output_schema=Refund, observers=[recorder])
        await agent.reliability(strict_output_rules(3)).run("refund?")

    _, records = recorded(tmp_path, story)
    last = of(records, "agent.model")[-1]
    assert [m["role"] for m in json.loads(last.input.json)["messages"]] == [
        "assistant",
        "tool",
        "tool",
        "tool",
    ]


def test_a_rejected_call_and_a_pause_are_on_record(tmp_path):
    async def story(recorder):
        model = ScriptedModel([call("main_look", {"order": 5}), call("main_ask"), "done"])
        agent = Agent(model, tools=[look, ask], observers=[recorder])
        return await agent.resume(await agent.run("go"), "yes")

    answer, records = recorded(tmp_path, story)
    (rejected,) = of(records, "main.look")
    assert (rejected.code, rejected.gate) == ("schema_validation_failed", "input")
    paused, done = of(records, "main.ask")
    assert (paused.code, done.code) == ("paused", None)
    assert {record.parent for record in records} == {answer.account.run_id}


def test_an_agent_within_an_agent_is_on_record_by_its_parent(tmp_path):
    async def story(recorder):
        inner = Agent(ScriptedModel([call("main_look", {"order": "A1"}), GOOD]), name="inner")
        inner = inner.tools(Runtime(from_functions(look), observers=[recorder])).output_schema(
            Refund
        )
        outer = Agent(
            ScriptedModel([call("inner_ask", {"message": "refund?"}), "done"]), name="outer"
        )
        runtime = Runtime([inner.as_tool()], observers=[recorder])
        return await outer.tools(runtime).run("go")

    answer, records = recorded(tmp_path, story)
    (asked,) = of(records, "inner.ask")
    assert asked.parent == answer.account.run_id
    assert {record.parent for record in of(records, "outer.model")} == {answer.account.run_id}
    assert {record.parent for record in of(records, "inner.model")} == {asked.id}
    assert of(records, "main.look")[0].parent == asked.id


def test_secrets_are_masked_in_what_goes_to_the_model_and_comes_back(tmp_path):
    async def story(recorder):
        model = ScriptedModel([call("main_look", {"order": "s3cr3t-token-42"}), "s3cr3t-token-42!"])
        agent = Agent(model, tools=[look], observers=[recorder])
        await agent.run("my key is s3cr3t-token-42")

    secrets = Secrets({"KEY": "s3cr3t-token-42"})
    _, records = recorded(tmp_path, story, secrets=[secrets])
    assert len(records) == 3
    for record in records:
        assert "s3cr3t-token-42" not in str(record)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"s3cr3t-token-42" not in path.read_bytes()


def test_odd_texts_are_on_record(tmp_path):
    texts = ["\ud800", "a\x00b", "x" * 1_000_000, "é😀\u2028"]

    async def story(recorder):
        agent = Agent(ScriptedModel(texts), observers=[recorder])
        for text in texts:
            await agent.run(text)

    _, records = recorded(tmp_path, story)
    assert len(records) == len(texts)


def test_a_run_that_is_cancelled_leaves_its_request_on_record(tmp_path):
    class Silent:
        name = "silent"

        async def complete(self, request):
            begun.set()
            await asyncio.Event().wait()

    begun = asyncio.Event()

    async def story(recorder):
        task = asyncio.create_task(Agent(Silent(), observers=[recorder]).run("go"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    _, records = recorded(tmp_path, story)
    assert [record.code for record in records] == ["aborted"]


def test_repaired_and_refused_arguments_are_on_record(tmp_path):
    def use(arguments):
        return {"tool": "main_look", "arguments": arguments}

    async def story(recorder):
        replies = [use("{'order': 'A1',}"), use('{"order": "A1"'), "done"]
        return await Agent(ScriptedModel(replies), tools=[look], observers=[recorder]).run("go")

    _, records = recorded(tmp_path / "log", story)
    repaired, refused = of(records, "main.look")
    lines = [line.message for line in repaired.logs]
    assert len(lines) == 3
    assert "single_quotes" in lines[0]
    assert "trailing_comma" in lines[-1]
    assert (refused.gate, refused.code) == ("input", "schema_validation_failed")
    assert "cannot be read without guessing" in refused.message
