"""The tools of the behaviour suite: the same file is served in memory, over stdio and over HTTP.

`wait` and `meet` say where they are, and `until` waits for that, so that no test needs to sleep.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict

from typing_extensions import TypedDict

from callpact import ToolError, tool

PATIENCE = 20
"""Seconds after which a tool that waits for another gives up, and the test fails."""

_places: defaultdict[str, set[str]] = defaultdict(set)
_moved: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


class Sum(TypedDict):
    sum: int


@tool
async def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return {"sum": a + b}


@tool
def names(count: int = 2) -> list[str]:
    """Give a list, which is no object."""
    return [f"é{number}" for number in range(count)]


@tool
async def say(text: str) -> str:
    """Give a text back."""
    return text


@tool
async def refuse(item: str) -> None:
    """Refuse in its own words."""
    raise ToolError("sold_out", f"No {item} left", path="/item")


@tool
async def crash(how: str) -> None:
    """Crash."""
    if how == "exit":
        sys.exit("the password is tea")
    if how == "deep":
        await crash(how)
    raise RuntimeError("the password is tea")


@tool
async def wait(key: str) -> str:
    """Wait for good, and tell `until` when it begins and that it was cancelled."""
    _tell(key, "begun")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _tell(key, "cancelled")
        raise
    return "never"


@tool
async def until(key: str, place: str) -> bool:
    """Wait until somebody is at a place."""
    async with asyncio.timeout(PATIENCE):
        while place not in _places[key]:
            await _moved[key].wait()
    return True


@tool
async def meet(key: str, number: int, of: int) -> int:
    """Wait until all are here: only calls at the same time can come back."""
    _tell(key, f"{number}")
    async with asyncio.timeout(PATIENCE):
        while len(_places[key]) < of:
            await _moved[key].wait()
    return number


def _tell(key: str, place: str) -> None:
    _places[key].add(place)
    moved = _moved.pop(key, None)
    if moved is not None:
        moved.set()
