"""A door in this process, a client at it, and what the observer heard.

async with connected(tool, mode=LEGACY, user=accepting(name="Ada")) as at:
    result = await at.client.call_tool("t_greet", {})
"""

from __future__ import annotations

import contextlib
import inspect
import json
from dataclasses import dataclass, field

import mcp_types as types
from mcp import Client

from callpact.catalog import Catalog
from callpact.runtime import Runtime
from callpact.serve import Door
from callpact.tool import Contract, Tool
from ways import place

MODERN, LEGACY = "2026-07-28", "legacy"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass
class At:
    """Whoever is at the door, and what happens there."""

    client: Client
    door: Door
    runtime: Runtime
    events: list = field(default_factory=list)

    async def begin(self, name, arguments=None):
        """The first round of a call: an answer, or questions."""
        return await self.client.session.call_tool(name, arguments or {}, allow_input_required=True)

    async def go_on(self, name, asked, answers, arguments=None):
        """The next round of a call, by hand; `asked` is the last one, or its state."""
        return await self.client.session.call_tool(
            name,
            arguments or {},
            input_responses=answers,
            request_state=asked if isinstance(asked, str) else asked.request_state,
            allow_input_required=True,
        )


@contextlib.asynccontextmanager
async def connected(
    *tools,
    mode=MODERN,
    resources=(),
    prompts=(),
    identity=None,
    user=None,
    model=None,
    roots=None,
    heard=None,
    level=None,
    told=None,
    client_info=None,
    arranged=lambda catalog: catalog,
    **given,
):
    """A client at a door; `user`, `model` and `roots` answer, `heard` and `told` listen."""
    events = []
    catalog = arranged(Catalog(tools, resources=resources, prompts=prompts))
    runtime = Runtime(catalog, observers=[events.append])
    door = Door(runtime, name="t", version="1", identity=identity, **given)
    async with (
        place(door.server) as there,
        Client(
            there,
            mode=mode,
            elicitation_callback=user,
            sampling_callback=model,
            list_roots_callback=roots,
            logging_callback=heard,
            log_level=level,
            message_handler=told,
            client_info=client_info,
        ) as client,
    ):
        yield At(client, door, runtime, events)


def tool(name, handler, *, input=None, output=None, **more):
    """A tool of the namespace `t`."""
    contract = Contract(input=input or {"type": "object"}, output=output)
    return Tool(id=f"t.{name}", description=name, contract=contract, handler=handler, **more)


def accept(**data):
    return types.ElicitResult(action="accept", content=data)


def says(*answers):
    """A user who gives these answers, one after the other, and what they were asked."""
    left, asked = list(answers), []

    async def user(context, params):
        asked.append(params)
        answer = left.pop(0)
        return await answer if inspect.isawaitable(answer) else answer

    user.asked = asked
    return user


def model(text, **more):
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text=text), model="m", **more
    )


def error_of(result):
    """The error of a failed call, whose text is the whole of it."""
    assert result.is_error
    assert result.structured_content is None
    return json.loads(result.content[0].text)["error"]


def value_of(result):
    """What a call gave, without the box that older clients get; a bare text is only text."""
    assert not result.is_error, result
    held = result.structured_content
    if held is None:
        return result.content[0].text
    return held["result"] if isinstance(held, dict) and list(held) == ["result"] else held
