"""Guards: a run of an agent costs at most a third of pydantic-ai's, the model's time left out.

One run: the model calls a tool, reads its result, and gives an answer that is held to a type. Both
models say the same without waiting, so what is measured is the loop.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile

from callpact import Agent, strict_output_rules
from callpact.agent import ModelReply, ModelRequest, ToolUse, Usage
from measure import cpu_async, table

RUNS = 60


class Refund(BaseModel):
    """What is refunded, and why."""

    amount: float
    reason: str


ANSWER = {"amount": 12.5, "reason": "it came late"}
TEXT = json.dumps(ANSWER)
BAD = json.dumps({"amount": "much", "reason": "it came late"})


def find_order(number: str) -> dict[str, Any]:
    """The order with a number."""
    return {"number": number, "price": 12.5, "state": "late"}


class Said:
    """A model of callpact's that answers at once."""

    name = "said"

    def __init__(self, *, tool: bool, bad: int = 0) -> None:
        self._tool, self._bad = tool, bad

    async def complete(self, request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if self._tool and last.role == "user" and len(request.messages) == 1:
            use = ToolUse("1", "bench_find_order", {"number": "A7"})
            return ModelReply("", (use,), Usage(50, 10))
        failed = sum(1 for message in request.messages if message.content.startswith("[schema"))
        return ModelReply(BAD if failed < self._bad else TEXT, usage=Usage(50, 10))


def peer_model(*, tool: bool, bad: int = 0, form: str = "text") -> FunctionModel:
    def answer(text: str) -> ModelResponse:
        if form == "tool":
            return ModelResponse([ToolCallPart("final_result", json.loads(text))])
        return ModelResponse([TextPart(text)])

    def respond(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        if tool and asked == 0:
            return ModelResponse([ToolCallPart("find_order", {"number": "A7"})])
        return answer(BAD if asked - tool < bad else TEXT)

    profile = ModelProfile(supports_json_schema_output=True)
    return FunctionModel(respond, profile=profile)


def peer(output: Any, *, tool: bool, bad: int = 0, form: str = "text") -> Any:
    agent: Any = PydanticAgent(
        peer_model(tool=tool, bad=bad, form=form),
        output_type=output,
        instructions="You decide refunds.",
        retries=3,
    )
    if tool:
        agent.tool_plain(find_order)
    return agent


async def runs() -> None:
    from callpact import from_functions

    tools = from_functions(find_order, namespace="bench")
    plain = Agent(Said(tool=False), system="You decide refunds.").output_schema(Refund)
    using = Agent(Said(tool=True), system="You decide refunds.").tools(tools).output_schema(Refund)
    again = Agent(Said(tool=False, bad=1), system="You decide refunds.")
    corrected = again.output_schema(Refund, retries=2)
    strict = again.output_schema(Refund).reliability(strict_output_rules(3))
    peers = {
        "answer alone": {
            "prompted": peer(PromptedOutput(Refund), tool=False),
            "by a tool": peer(ToolOutput(Refund), tool=False, form="tool"),
            "native": peer(NativeOutput(Refund), tool=False),
        },
        "a tool, then the answer": {
            "prompted": peer(PromptedOutput(Refund), tool=True),
            "by a tool": peer(ToolOutput(Refund), tool=True, form="tool"),
        },
        "a correction, then the answer": {
            "prompted": peer(PromptedOutput(Refund), tool=False, bad=1),
            "by a tool": peer(ToolOutput(Refund), tool=False, bad=1, form="tool"),
        },
    }
    ours = {
        "answer alone": {"callpact": plain},
        "a tool, then the answer": {"callpact": using},
        "a correction, then the answer": {
            "callpact, by retries": corrected,
            "callpact, by rules": strict,
        },
    }
    expected = Refund(**ANSWER)
    for story, agents in ours.items():
        functions: dict[str, Any] = {}
        for name, agent in agents.items():
            assert await agent.run_typed("refund A7") == expected
            functions[name] = lambda agent=agent: agent.run_typed("refund A7")
        for name, agent in peers[story].items():
            assert (await agent.run("refund A7")).output == expected
            functions[f"pydantic-ai, {name}"] = lambda agent=agent: agent.run("refund A7")
        taken = await cpu_async(functions, calls=RUNS)
        best = min(seconds for name, seconds in taken.items() if name.startswith("pydantic"))
        rows = [
            (name, seconds, seconds / best, "≤ 0.33" if name.startswith("callpact") else "peer")
            for name, seconds in taken.items()
        ]
        table(f"A run: {story} (ratio to the peer's quickest way)", rows)


def main() -> None:
    asyncio.run(runs())


if __name__ == "__main__":
    main()
