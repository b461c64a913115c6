"""Agents under test: shapes, replies that keep or break them, and an ear for events.

Not a test: the tests of answers load it.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import BaseModel

from callpact import Agent
from callpact.testing import ScriptedModel

PATIENCE = 60


class Refund(BaseModel):
    """What is paid back, and why."""

    amount: float
    reason: str


class Tickets(BaseModel):
    """A status flag and an array of item ids."""

    status: Literal["ok", "err"]
    items: list[str]


GOOD = '{"amount": 5.0, "reason": "late"}'
PROSE = "I would pay back five."
FENCED = f"```json\n{GOOD}\n```"
CUT = '{"amount": 5.0, "rea'
WRONG = '{"amount": "much", "reason": "late"}'
WRONG_ELSEWHERE = '{"amount": 5.0, "reason": 7}'
MISSING = '{"amount": 5.0}'
VALUE = Refund(amount=5.0, reason="late")
CANNED = {"amount": 0, "reason": "unable to process"}


def go(coroutine):
    """Run to the end, but not for ever."""

    async def bounded():
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(bounded())


def refunds(*replies, **options):
    """An agent of refunds with a script; the model comes beside it."""
    model = ScriptedModel(replies)
    return Agent(model, output_schema=Refund, **options), model


def call(tool, arguments=None, **more):
    """A tool that the model wants called."""
    return {"tool": tool, "arguments": {} if arguments is None else arguments, **more}


class Heard:
    """Hears what an agent tells."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    @property
    def types(self):
        return [event.type for event in self.events]

    def of(self, type):
        return [event.payload for event in self.events if event.type == type]

    def one(self, type):
        (payload,) = self.of(type)
        return payload


async def streamed(agent, message="Hello", **options):
    """All that a stream gives."""
    return [item async for item in agent.stream(message, **options)]
