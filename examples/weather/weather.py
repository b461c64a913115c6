"""A folder of FlowMCP files as tools: checked, loaded, called through a local API.

Reading the files runs nothing of them; the tools of Trips.mjs have hooks, which run in the sandbox
when they are called. `python examples/weather/weather.py` tells the story alone; the demo tells it
as two of its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from api import KEY, weather_api

from callpact import CallError, Runtime, from_flowmcp
from callpact.net import HttpTransport
from callpact.sources import FlowMCPTools, check_text
from callpact.wire import flowmcp

FOLDER = Path(__file__).parent
ROOT = "https://api.weather.example/v1"


def show_findings(file: Path, right: str, wrong: str) -> None:
    """What checking says about a file with a mistake in it."""
    text = file.read_text("utf-8").replace(right, wrong)
    print(f"{file.name}, were {right} spelt {wrong}:")
    found = check_text(text, file=file.name, profile="strict", lists={}).findings
    for finding in found:
        if finding.code != "VAL084":  # That the hash is another one, too, goes without saying.
            print(f"  line {finding.line}: {finding.code} {finding.message}")


async def show_call(runtime: Runtime, tool_id: str, arguments: dict[str, Any]) -> None:
    """A call, and its outcome as FlowMCP's clients read it."""
    print(f"{tool_id} {json.dumps(arguments)}")
    try:
        rendered = flowmcp.encode_result(await runtime.execute(tool_id, arguments))
    except CallError as error:
        rendered = flowmcp.encode_error(error, runtime.catalog.find(tool_id).name)
    print(f"  {json.dumps(rendered, ensure_ascii=False)}")


@contextlib.asynccontextmanager
async def loaded() -> AsyncIterator[FlowMCPTools]:
    """The tools of the folder; what is meant for the vendor goes to the server of this example."""
    async with weather_api() as here:
        transport = HttpTransport(upstreams={ROOT: here})
        secrets = {"WEATHER_API_KEY": KEY}
        tools = from_flowmcp(FOLDER, profile="strict", secrets=secrets, transport=transport)
        try:
            yield tools
        finally:
            await tools.aclose()


async def main() -> None:
    """Files as tools."""
    show_findings(FOLDER / "Stations.mjs", "'POST'", "'SEND'")
    async with loaded() as tools:
        names = ", ".join(tool.id for tool in tools)
        print(f"loaded with {len(tools.report)} findings: {names}")
        runtime = Runtime(tools)
        await show_call(runtime, "weather.getForecast", {"city": "berlin", "days": 2})
        await show_call(runtime, "weather.getForecast", {"city": "atlantis", "days": 9})
        report = {"stationId": "be-1", "temperature": 18.5}
        await show_call(runtime, "weather.reportReading", report)
        await show_call(runtime, "weather/Stations::getStation", {"stationId": "xx-9"})


async def main_of_hooks() -> None:
    """Tools whose files have hooks: before, after and instead of the request."""
    async with loaded() as tools:
        runtime = Runtime(tools)
        await show_call(runtime, "weather.getWarmestDay", {"city": " Berlin", "days": 2})
        await show_call(runtime, "weather.compareCities", {"first": "oslo", "second": "lisbon"})
        await show_call(runtime, "weather.getWarmestDay", {"city": "Atlantis"})


async def both() -> None:
    await main()
    await main_of_hooks()


if __name__ == "__main__":
    asyncio.run(both())
