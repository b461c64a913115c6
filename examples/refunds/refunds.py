"""What an agent for refunds may call, and the shape of its decision."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import BaseModel, Field

from callpact import ToolError, tool


class Order(TypedDict):
    """One order."""

    total: float
    days_late: int


ORDERS: dict[str, Order] = {
    "o7": {"total": 40.0, "days_late": 9},
    "o8": {"total": 900.0, "days_late": 1},
}


class Decision(BaseModel):
    """`status` refund, refuse or ask-a-human; `amount` in euros; `reason` in one sentence."""

    status: Literal["refund", "refuse", "ask-a-human"]
    amount: float = Field(ge=0, le=500)
    reason: str = Field(min_length=1)


@tool
def find_order(id: Annotated[str, Field(pattern="^o[0-9]+$")]) -> Order:
    """Find an order by its id, such as o7."""
    if id not in ORDERS:
        raise ToolError("no_order", f"There is no order {id}")
    return ORDERS[id]


@tool
def share_for(days_late: Annotated[int, Field(ge=0)]) -> float:
    """The share of its price that is given back for an order that came late."""
    return 1.0 if days_late > 7 else 0.1
