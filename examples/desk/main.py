"""One server, one client: pages, questions, a confirmation, and a change while it is served.

`python examples/desk/main.py` tells the story alone and checks it; the demo tells it in one step.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp_types import ElicitResult, ToolListChangedNotification

ORDERS = Path(__file__).parent / "orders.py"
MORE = """

@tool
def count_orders() -> int:
    \"\"\"How many orders there are.\"\"\"
    return len(ORDERS)
"""


@asynccontextmanager
async def served(file: Path) -> AsyncGenerator[str]:
    """`callpact serve` on a free port of this machine; gives its address."""
    args = ["serve", "-s", f"python:{file}", "--port", "0", "--watch", "--ask-first"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "callpact", *args, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        yield (await process.stderr.readline()).decode().split()[-1]
    finally:
        process.terminate()
        await process.communicate()


def extend(file: Path) -> None:
    """One more tool, while the others are served."""
    file.write_text(ORDERS.read_text("utf-8") + MORE, "utf-8")


class User:
    """Who sits at the client: chooses, and agrees the second time."""

    def __init__(self) -> None:
        self.asked = 0

    async def answer(self, context: Any, question: Any) -> ElicitResult:
        del context
        print(f"  asked: {question.message}")
        if "size" in question.requested_schema["properties"]:
            return ElicitResult(action="accept", content={"size": "large"})
        self.asked += 1
        return ElicitResult(action="accept", content={"confirm": self.asked > 1})


async def main() -> None:
    changed = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    with tempfile.TemporaryDirectory() as folder:
        file = Path(shutil.copy(ORDERS, folder))
        async with (
            served(file) as address,
            Client(
                address, mode="legacy", elicitation_callback=User().answer, message_handler=hear
            ) as client,
        ):
            await tell(client)
            changed.clear()
            extend(file)
            async with asyncio.timeout(20):
                await changed.wait()
            counted = await client.call_tool("orders_count_orders", {})
            print(f"the file changed, and the client was told: {counted.structured_content}")
            assert counted.structured_content == {"result": 5_000}  # A new version begins anew.


async def tell(client: Client) -> None:
    """Pages, questions, confirmations, a resource and a prompt."""
    listed = await client.call_tool("orders_list_orders", {})
    page = (listed.meta or {})["callpact/page"]
    print(f"5,000 orders: items 1 to {page['shown']:,} of {page['total']:,}, and a cursor")
    following = await client.call_tool("read_result", {"cursor": page["nextCursor"]})
    assert following.structured_content["start"] == page["shown"]
    parcel = await client.call_tool("orders_order_parcel", {})
    print(f"  {parcel.content[0].text}")
    for wanted in ("not_confirmed", "o7 is cancelled"):
        cancelled = await client.call_tool("orders_cancel_order", {"id": "o7"})
        print(f"  {cancelled.content[0].text}")
        assert wanted in cancelled.content[0].text
    read = await client.read_resource("orders://o8")
    filled = await client.get_prompt("orders_complaint", {"id": "o8"})
    print(f"orders://o8 is {read.contents[0].text}; the prompt: {filled.messages[0].content.text}")


if __name__ == "__main__":
    asyncio.run(main())
