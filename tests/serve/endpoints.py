"""Tools of every shape that an HTTP endpoint can have: for schemathesis, and for the round trip.

Their schemas use references, unions, limits, nested lists and objects; their results break nothing.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from callpact import Contract, Tool, tool


class Item(BaseModel):
    sku: Annotated[str, Field(min_length=1, max_length=20, pattern="^[a-z0-9-]+$")]
    quantity: Annotated[int, Field(ge=1, le=100)] = 1
    gift: bool = False


class Receipt(TypedDict):
    number: int
    total: float
    note: str | None


@tool(kind="query")
async def price(
    sku: Annotated[str, Field(description="The article", min_length=1)],
    *,
    quantity: Annotated[int, Field(ge=1, le=1000)] = 1,
    currency: Literal["EUR", "USD"] = "EUR",
    rebate: float | None = None,
    tags: list[str] | None = None,
    net: bool = False,
) -> dict[str, float]:
    """Give the price of an article.

    It only reads.
    """
    return {"total": quantity * 2.5 * (1 - (0.1 if rebate else 0))}


@tool(kind="query")
async def nothing() -> None:
    """Give nothing."""


@tool
async def order(items: list[Item], address: dict[str, str], express: bool | None = None) -> Receipt:
    """Order articles."""
    return {"number": len(items), "total": 2.5 * len(address), "note": None}


@tool(kind="query")
async def find(where: Item, limit: Annotated[int, Field(ge=0)] = 10) -> list[Item]:
    """Find articles that are like another."""
    return [where][:limit]


@tool(kind="query")
async def logo(size: Annotated[int, Field(ge=1, le=64)] = 8) -> bytes:
    """Draw the logo."""
    return b"\x89PNG\r\n\x1a\n" + bytes(size)


@tool(kind="subscription")
async def ticks(count: Annotated[int, Field(ge=0, le=5)] = 2):
    """Count."""
    for number in range(count):
        await asyncio.sleep(0)
        yield {"n": number}


async def _depth(arguments, context):
    depth, node = 0, arguments["tree"]
    while node.get("children"):
        depth, node = depth + 1, node["children"][0]
    return {"depth": depth, "tree": arguments["tree"]}


NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3},
    },
    "required": ["name"],
    "additionalProperties": False,
}
tree = Tool(
    id="endpoints.tree",
    title="Depth of a tree",
    description="Measure a tree.",
    contract=Contract(
        input={
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "required": ["tree"],
            "additionalProperties": False,
            "$defs": {"node": NODE},
        },
        output={
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "tree": {"$ref": "#/$defs/node"}},
            "required": ["depth", "tree"],
            "additionalProperties": False,
            "$defs": {"node": NODE},
        },
        policy="cast",
    ),
    handler=_depth,
    examples=({"tree": {"name": "oak"}},),
)


async def _either(arguments, context):
    return arguments


either = Tool(
    id="endpoints.either",
    description="Take one of two arguments.",
    contract=Contract(
        input={
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
            "oneOf": [{"required": ["id"]}, {"required": ["name"]}],
            "additionalProperties": False,
        }
    ),
    handler=_either,
    kind="query",
)
