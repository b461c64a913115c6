"""A small tea shop: four tools, one of each kind of trouble that contracts are for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from callpact import ToolError, data_tool, tool
from callpact.schema import (
    PropertyArray,
    PropertyGroup,
    PropertyInteger,
    PropertyNumber,
    PropertyString,
)


class Product(TypedDict):
    """One product on the shelf."""

    id: str
    name: str
    price: float
    unit: Literal["kg", "lb"]


class SearchResult(TypedDict):
    """What a search gives."""

    products: list[Product]
    total: int


class Offer(TypedDict):
    """What a supplier asks for one product."""

    id: str
    price: float
    stock: int


SHELF: list[Product] = [
    {"id": "t1", "name": "Darjeeling tea", "price": 42.0, "unit": "kg"},
    {"id": "t2", "name": "Assam tea", "price": 31.5, "unit": "kg"},
    {"id": "c1", "name": "Ethiopian coffee", "price": 18.0, "unit": "lb"},
]


@tool(namespace="shop", kind="query", annotations={"readOnlyHint": True})
async def product_search(
    query: Annotated[str, Field(min_length=1)],
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
    unit: Literal["kg", "lb"] | None = None,
) -> SearchResult:
    """Search the shelf by name.

    Args:
        query: Part of the product's name.
        limit: How many products at the most.
        unit: Only products sold in this unit.
    """
    wanted = query.casefold()
    found = [p for p in SHELF if wanted in p["name"].casefold() and unit in {None, p["unit"]}]
    return {"products": found[:limit], "total": len(found)}


@tool(namespace="shop", kind="query", policy="cast")
async def supplier_offer(product_id: str) -> Offer:
    """Ask the supplier for an offer; this supplier changed its answers without telling anybody.

    Args:
        product_id: Id of the product, as a search gives it.
    """
    if not any(p["id"] == product_id for p in SHELF):
        raise ToolError(
            "unknown_product", f"There is no product '{product_id}'", path="/product_id"
        )
    # Not what was promised: the point of the example. Under `cast` it is fitted, and the missing
    # stock invented; under `convert`, the policy of functions that name none, it is refused.
    return {"id": product_id, "price": "12.50", "vendor": "acme"}  # type: ignore[return-value]


async def _count(props: dict[str, list[str]], _context: object) -> dict[str, object]:
    rows = [{"id": id_, "count": len(id_) * 7} for id_ in props["ids"]]
    return {"rows": rows, "total": sum(row["count"] for row in rows)}


stock_count = data_tool(
    "stock_count",
    namespace="shop",
    description="Count what is in stock.",
    properties={
        "ids": PropertyArray(
            valueType=PropertyString(minLength=1),
            minItems=1,
            required=True,
            description="Product ids",
        ),
    },
    output={
        "rows": PropertyArray(
            valueType=PropertyGroup(properties={"id": PropertyString(), "count": PropertyInteger()})
        ),
        "total": PropertyNumber(),
    },
    handler=_count,
)
