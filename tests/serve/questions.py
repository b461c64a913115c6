"""Tools that tell and ask their client: the same file is served in memory, over stdio and HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from callpact import Context, prompt, resource, tool

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_begun: list[str] = []


@tool(timeout=20)
async def greet(key: str, context: Context) -> dict[str, Any]:
    """Ask who is there, and say how often that was begun."""
    _begun.append(key)
    answer = await context.client.elicit("Who are you?", NAME, key="who")
    return {"action": answer.action, "data": answer.data, "begun": _begun.count(key)}


@tool(timeout=20)
async def twice(context: Context) -> list[str]:
    """Ask one question after the other."""
    first = await context.client.elicit("First?", NAME)
    second = await context.client.elicit("Second?", NAME)
    return [first.data["name"], second.data["name"]]


@tool(timeout=20)
async def everything(context: Context) -> list[Any]:
    """Ask three things at once."""
    client = context.client
    user, said, roots = await asyncio.gather(
        client.elicit("Who?", NAME), client.sample("Say hi", max_tokens=5), client.roots()
    )
    return [user.data["name"], said.text, [root.uri for root in roots]]


@tool(timeout=20)
async def able(context: Context) -> list[bool]:
    """Say what the client can be asked for."""
    client = context.client
    return [client.can_elicit, client.can_sample, client.can_list_roots]


@tool(timeout=20)
async def tell(context: Context) -> str:
    """Tell how far it is, and something at every second level."""
    for done in (1, 2):
        await context.progress(done, 2, f"step {done}")
    for level in ("debug", "notice", "error", "alert"):
        await context.client.log(level, {"level": level})
    return "done"


@prompt
async def welcome(context: Context) -> str:
    """Greet whoever it is."""
    answer = await context.client.elicit("Who are you?", NAME)
    return f"Welcome {answer.data['name']}"


@resource("me://name")
async def me(context: Context) -> str:
    """Who it is."""
    answer = await context.client.elicit("Who are you?", NAME)
    return answer.data["name"]
