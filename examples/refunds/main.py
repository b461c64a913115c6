"""An agent that decides about refunds: whatever its model writes, a typed decision comes out.

`python examples/refunds/main.py` tells the story alone and checks it; the demo tells it in one
step. The model is scripted, so that it fails when the story needs it.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from typing import Any

import refunds

from callpact import Agent, OutputSchemaError
from callpact.agent import AnswerEvent
from callpact.audit import Filter, open_store, record_calls
from callpact.testing import ScriptedModel

FIND = {"tool": "refunds_find_order", "arguments": {"id": "o7"}}
SHARE = {"tool": "refunds_share_for", "arguments": {"days_late": 9}}
TOO_MUCH = '{"status": "refund", "amount": 4000, "reason": "It came nine days late."}'
GOOD = '{"status": "refund", "amount": 40, "reason": "It came nine days late."}'
BROKEN = "Sure! Here is my decision:\n```json\n{status: 'refuse', amount: 0, // nothing\n 'reason': 'On time',}\n```"


def agent_of(*replies: Any, observers: Any = ()) -> Agent[refunds.Decision]:
    """The agent, with a model that gives these replies."""
    return Agent(
        ScriptedModel(replies),
        system="You decide about refunds. Look the order up first.",
        name="refunds",
        tools=[refunds.find_order, refunds.share_for],
        output_schema=refunds.Decision,
        retries=2,
        observers=observers,
    )


def tell(event: AnswerEvent) -> None:
    if event.type == "stream.tool_end":
        print(f"  called {event.payload['tool']}")
    elif event.type == "agent.output_schema_retry":
        error = event.payload
        print(f"  not accepted at {error['path'] or error['stage']}, asked again")


async def correct() -> None:
    """Two tools, a wrong answer, its correction: a value with a type."""
    with tempfile.TemporaryDirectory() as folder:
        with record_calls(folder) as recorder:
            agent = agent_of(FIND, SHARE, TOO_MUCH, GOOD, observers=[recorder])
            decision = await agent.on(tell).run_typed("What about o7?")
        print(f"{decision!r}")
        assert decision == refunds.Decision.model_validate_json(GOOD)
        store = open_store(folder)
        records = list(reversed(store.log(Filter())))
        store.close()
    print("on record: " + ", ".join(f"{r.tool} {r.code or 'ok'}" for r in records))
    assert [r.code for r in records].count("ERR_OUTPUT_SCHEMA") == 1


def repair() -> None:
    """An answer that is not JSON: refused as it is, read when repairs are asked for."""
    agent = agent_of()
    try:
        agent.parse_output(BROKEN)
    except OutputSchemaError as error:
        print(f"as it is: {error.stage}")
    read = agent.read_output(BROKEN, repair="safe")
    print(f"with repair='safe': {read.value!r}")
    print("  repaired: " + ", ".join(dict.fromkeys(repair.code for repair in read.repairs)))
    assert read.value.status == "refuse"
    assert {"prose", "fence", "comment", "trailing_comma"} <= {r.code for r in read.repairs}


async def fall_back() -> None:
    """A model that does not learn: the caller still gets a decision."""
    canned = {"status": "ask-a-human", "amount": 0, "reason": "The answer made no sense."}
    agent = agent_of("Yes.", "Yes!", "Yes, of course.").output_fallback(canned=canned)
    decision = await agent.run_typed("What about o8?")
    print(f"three answers that are not JSON: {decision!r}")
    assert decision.status == "ask-a-human"


async def main() -> None:
    logging.getLogger("callpact.agent").setLevel(logging.ERROR)  # The story tells it itself.
    await correct()
    repair()
    await fall_back()


if __name__ == "__main__":
    asyncio.run(main())
