"""The tools of the shop: a price list, and a basket that is quoted in any currency.

`basket.quote` is made of two others. It does not know where they are: `shop.price` stands below,
`rates.convert` runs in another process.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from callpact import Context, ToolError, tool, unwrap

PRICES = {"t1": 42.0, "t2": 31.5, "c1": 18.0}


class Price(TypedDict):
    """What one piece costs, in euros."""

    product_id: str
    price: float


class Quote(TypedDict):
    """What a basket costs."""

    euros: float
    amount: float
    currency: str


@tool(namespace="shop", kind="query")
async def price(product_id: str) -> Price:
    """Tell the price of a product.

    Args:
        product_id: Id of the product.
    """
    if product_id not in PRICES:
        raise ToolError(
            "unknown_product", f"There is no product '{product_id}'", path="/product_id"
        )
    return {"product_id": product_id, "price": PRICES[product_id]}


@tool(namespace="basket", kind="query")
async def quote(
    items: Annotated[dict[str, Annotated[int, Field(ge=1)]], Field(min_length=1)],
    currency: str,
    context: Context,
) -> Quote:
    """Quote a basket.

    Args:
        items: How many of which product.
        currency: What to quote it in.
    """
    env = context.env
    euros = 0.0
    for product_id, count in items.items():
        priced = unwrap(await env.shop.price({"product_id": product_id}))
        euros += priced["price"] * count
    converted = unwrap(await env.rates.convert({"amount": euros, "to": currency}))
    return {"euros": euros, "amount": converted["amount"], "currency": currency}
