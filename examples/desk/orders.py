"""A small back office: tools, a resource and a prompt, served by `callpact serve`."""

from typing import Any

from callpact import Context, prompt, resource, tool

ORDERS = {f"o{number}": {"id": f"o{number}", "pounds": number % 90 + 1} for number in range(5_000)}
SIZE = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]}},
    "required": ["size"],
}


@tool
def list_orders() -> list[dict[str, Any]]:
    """All orders: far more than one answer should hold."""
    return list(ORDERS.values())


@tool(annotations={"destructiveHint": True})
def cancel_order(id: str) -> str:
    """Cancel an order for good."""
    del ORDERS[id]
    return f"{id} is cancelled"


@tool(timeout=300)
async def order_parcel(context: Context) -> str:
    """Order a parcel; the user says how large."""
    assert context.client is not None
    await context.progress(1, 2, "asking")
    answer = await context.client.elicit("How large is the parcel?", SIZE)
    await context.progress(2, 2)
    return f"a {answer.data['size']} parcel" if answer.data else "no parcel"


@resource("orders://{id}", complete={"id": ORDERS})
def order(id: str) -> dict[str, Any]:
    """One order."""
    return ORDERS[id]


@prompt
def complaint(id: str) -> str:
    """Answer a complaint."""
    return f"A customer complains about order {id}. Read orders://{id}, then answer kindly."
