"""An agent as a tool: the input is a message, the output is the answer under its contract."""

from __future__ import annotations

import dataclasses
from typing import Any

from callpact.agent.account import Paused
from callpact.agent.declaration import MAX_MESSAGE, message_of
from callpact.agent.plan import AgentHandler, Plan, RunCaller
from callpact.agent.run.loop import Run
from callpact.agent.run.pause import RunClient, read_checkpoint
from callpact.context import (
    Context,
)
from callpact.errors import (
    ModelError,
    OutputSchemaError,
    RunPaused,
    RunStopped,
    ToolError,
)
from callpact.tool import (
    Contract,
    Tool,
)

_MESSAGE_SCHEMA = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "What the agent is asked.",
            "minLength": 1,
            "maxLength": MAX_MESSAGE,
        }
    },
    "required": ["message"],
    "additionalProperties": False,
}


def agent_tool(plan: Plan, id: str | None, description: str | None, timeout: float | None) -> Tool:
    """Make a tool that runs the agent and returns its answer.

    Raises:
        InvalidTool: the id is not valid.
    """
    schema: Any = {"type": "string"}
    if plan.contract is not None:
        shape = plan.contract.shape
        schema = shape.dumped_schema or shape.json_schema

    async def answer(arguments: dict[str, Any], context: Context) -> Any:
        try:
            return await _answer(plan, arguments, context)
        except RunPaused as error:
            paused: Paused = error.paused
            return await context.pause(paused.question, state=paused.checkpoint)
        except OutputSchemaError as error:
            # Without the raw answer: the caller may be anonymous.
            raise ToolError(error.code, error.message, path=error.path) from error
        except (RunStopped, ModelError) as error:
            raise ToolError(error.code, str(error)) from error

    return Tool(
        id=id or f"{plan.name}.ask",
        description=description or f"Ask the agent '{plan.name}'.",
        contract=Contract(
            input=_MESSAGE_SCHEMA, output=schema, policy=None if schema is None else "reject"
        ),
        handler=AgentHandler(plan, answer),
        source="agent",
        timeout=timeout,
    )


async def _answer(plan: Plan, arguments: dict[str, Any], context: Context) -> Any:
    chain = (*context.chain, context.tool_id)
    client, identity, session = context.client, context.identity, "default"
    # Any door may serve this tool, so only calls by a trusted agent of this process are trusted.
    is_stranger = not (isinstance(client, RunClient) and client.is_trusted)
    caller = RunCaller(identity, client, chain, context.deadline, context.call_id, is_stranger)
    if identity is not None:
        session = f"caller:{identity.id}"
    elif is_stranger:  # Anonymous callers share no memory.
        plan = dataclasses.replace(plan, memory=None)
    if (resumed := context.resumed) is not None:
        checkpoint = read_checkpoint(resumed.state, plan.name)
        run = Run.resumed(plan, checkpoint, resumed.answer, caller)
    else:
        message = arguments["message"]
        if not message.strip():
            raise ToolError("empty_message", "The message is empty", path="/message")
        run = Run(plan, message_of(message), session, caller)
    if plan.contract is not None:
        dump, result = plan.contract.shape.dump, await run.result()
        return result.value if dump is None else dump(result.value)
    answer = await run.go()
    if isinstance(answer, Paused):
        raise RunPaused(answer)
    if answer.finish in _CUT_OFF:  # A caller would take an incomplete answer for a complete one.
        raise ToolError("answer_cut_off", _CUT_OFF[answer.finish])
    return str(answer)


_CUT_OFF: dict[str | None, str] = {
    "length": "The agent's answer was cut off at the length limit; ask for less",
    "content_filter": "The agent's answer was stopped by the content filter of its model",
}
