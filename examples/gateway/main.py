"""Another MCP server behind callpact: its broken answer is caught, its changed definition blocked.

`python examples/gateway/main.py` tells the story alone; the demo tells it in one of its steps.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

SERVER = Path(__file__).parent / "prices_server.py"


def configure(folder: Path, word: str = "") -> None:
    """Name the server in `callpact.toml`; a tool whose definition changed is blocked."""
    command = json.dumps(f'mcp:"{sys.executable}" "{SERVER}" {word}'.strip())
    text = f'[sources.prices]\nref = {command}\npins = "block"\n'
    (folder / "callpact.toml").write_text(text, "utf-8")


def callpact(folder: Path, *words: str) -> str:
    """Run a command, and return what it prints."""
    line = [sys.executable, "-m", "callpact", *words]
    done = subprocess.run(  # noqa: S603 - our own command
        line, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


async def through_the_gateway(folder: Path) -> tuple[list[str], Any]:
    """The tools that a client sees, and the price of tea if it can be asked for."""
    words = ["-m", "callpact", "serve", "--stdio", "--audit", "off"]
    server = StdioServerParameters(command=sys.executable, args=words, cwd=folder)
    async with Client(server) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        if not names:
            return names, None
        refused = await client.call_tool("prices_price", {"thing": "tea"})
        assert refused.is_error
        print("bad arguments: ", json.loads(refused.content[0].text)["error"]["message"])
        result = await client.call_tool("prices_price", {"item": "tea"})
        return names, result.structured_content


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        configure(folder)
        print("callpact lock: ", callpact(folder, "lock"))
        names, price = await through_the_gateway(folder)
        print("tools:         ", ", ".join(names))
        print('its "12.50":   ', price)
        assert price == {"price": 12.5}
        configure(folder, "changed")
        names, _ = await through_the_gateway(folder)
        print("after a change:", ", ".join(names) or "no tool is served")
        assert names == []
        print(callpact(folder, "lock"))


if __name__ == "__main__":
    asyncio.run(main())
