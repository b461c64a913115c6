"""A reply of the model is parsed and judged once, whatever asks for its value."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, field_validator

from answers import FENCED, GOOD, PROSE, WRONG, call, go, streamed
from callpact import (
    Agent,
    Context,
    OutputSchemaError,
    Runtime,
    from_functions,
    strict_output_rules,
)
from callpact.testing import ScriptedModel

DATA = json.loads(GOOD)
PARSED = []


class Counting:
    """A user's own parser, which notes what it is given."""

    def __init__(self):
        self.given = []

    def parse(self, value):
        self.given.append(value)
        if not isinstance(value, dict) or not isinstance(value.get("amount"), float):
            raise TypeError("amount must be a number")
        return dict(value)


class Validated(BaseModel):
    """What is paid back, and why."""

    amount: float
    reason: str

    @field_validator("reason")
    @classmethod
    def _noted(cls, reason):
        PARSED.append(reason)
        return reason


async def run_typed(agent):
    return await agent.run_typed("refund?")


async def run_result(agent):
    return (await agent.run_result("refund?")).value


async def stream(agent):
    return (await streamed(agent))[-1].result.value


async def as_tool(agent):
    async with Runtime([agent.as_tool("desk.ask")]) as runtime:
        return (await runtime.execute("desk.ask", {"message": "refund?"})).data


ENTRIES = [run_typed, run_result, stream, as_tool]


def plain(agent):
    return agent


def ruled(agent):
    return agent.reliability(strict_output_rules(3))


class Turns(list):
    """A memory in memory."""

    async def recall(self, session, turns):
        return self[-turns:]

    async def keep(self, session, turn):
        self.append(turn)


def remembering(agent):
    return agent.memory(Turns())


@pytest.mark.parametrize("how", [plain, ruled, remembering])
@pytest.mark.parametrize("repair", ["none", "safe"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_parser_sees_an_accepted_reply_once(entry, repair, how):
    parser = Counting()
    agent = Agent(ScriptedModel([GOOD])).output_schema(parser, repair=repair)
    assert go(entry(how(agent))) == DATA
    assert parser.given == [DATA]


@pytest.mark.parametrize("repair", ["none", "safe"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_parser_sees_each_reply_once_over_retries(entry, repair):
    parser = Counting()
    agent = Agent(ScriptedModel([WRONG, PROSE, GOOD])).output_schema(
        parser, repair=repair, retries=2
    )
    assert go(entry(agent)) == DATA
    assert parser.given == [
        json.loads(WRONG),
        DATA,
    ]  # Prose is not JSON: there is nothing to parse.


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_parser_sees_each_reply_once_over_attempts_by_rules(entry):
    parser = Counting()
    agent = Agent(ScriptedModel([WRONG, PROSE, GOOD])).output_schema(parser)
    assert go(entry(ruled(agent))) == DATA
    assert parser.given == [json.loads(WRONG), DATA]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_validator_of_a_model_runs_once_for_each_reply(entry):
    PARSED.clear()
    agent = Agent(ScriptedModel(['{"amount": 5.0}', GOOD]), output_schema=Validated, retries=1)
    value = go(entry(agent))
    assert (value if entry is as_tool else value.model_dump()) == DATA
    assert PARSED == ["late"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_repaired_reply_is_parsed_once(entry):
    parser = Counting()
    agent = Agent(ScriptedModel([FENCED])).output_schema(parser, repair="safe")
    assert go(entry(agent)) == DATA
    assert parser.given == [DATA]


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_of_several_values_in_a_reply_is_parsed_once(entry):
    parser = Counting()
    text = f'For {{"order": "o7"}} I decide:\n{GOOD}'
    agent = Agent(ScriptedModel([text])).output_schema(parser, repair="safe")
    assert go(entry(agent)) == DATA
    assert sorted(parser.given, key=str) == sorted([{"order": "o7"}, DATA], key=str)


@pytest.mark.parametrize("how", [plain, ruled])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_refused_reply_is_parsed_once_before_the_fallback(entry, how):
    parser = Counting()
    agent = Agent(ScriptedModel([WRONG] * 3)).output_schema(parser)
    agent = how(agent.output_fallback(fallback=lambda error, raw: DATA))
    assert go(entry(agent)) == DATA
    # The rules give up after two replies that fail alike; the last is what the fallback gave.
    replies = 2 if how is ruled else 1
    assert parser.given == [*[json.loads(WRONG)] * replies, DATA]


def test_a_refused_reply_is_parsed_once_without_a_fallback():
    parser = Counting()
    agent = Agent(ScriptedModel([WRONG])).output_schema(parser)
    with pytest.raises(OutputSchemaError):
        go(agent.run_typed("refund?"))
    assert len(parser.given) == 1


def test_the_end_of_a_stream_says_why_an_answer_was_refused():
    parser = Counting()
    end = go(streamed(Agent(ScriptedModel([WRONG])).output_schema(parser)))[-1]
    assert end.result is None
    assert end.refusal.stage == "schema-validate"
    assert end.refusal.account == end.answer.account
    assert len(parser.given) == 1


@pytest.mark.parametrize("resume", ["resume_typed", "resume_result"])
def test_the_answer_of_a_resumed_run_is_parsed_once(resume):
    async def ask(context: Context) -> str:
        return await context.pause("How much?")

    async def run():
        paused = await agent.run("refund?")
        return await getattr(agent, resume)(paused, "five")

    parser = Counting()
    model = ScriptedModel([call("desk_ask"), GOOD])
    agent = Agent(model, tools=from_functions([ask], namespace="desk")).output_schema(parser)
    result = go(run())
    assert (result.value if resume == "resume_result" else result) == DATA
    assert parser.given == [DATA]
