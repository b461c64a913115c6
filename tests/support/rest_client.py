"""Plain HTTP behind the face of the MCP client, so that one suite asks both doors.

async with RestClient("http://127.0.0.1:8420") as client:
    result = await client.call_tool("behaviour_add", {"a": 1, "b": 2})
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import aiohttp
import mcp_types as types
from mcp.shared.exceptions import MCPError


class RestClient:
    """Calls tools with POST, and lists them from the OpenAPI document."""

    def __init__(self, root):
        self._root = root

    async def __aenter__(self):
        self._session = aiohttp.ClientSession(self._root)
        return self

    async def __aexit__(self, *_):
        await self._session.close()

    async def call_tool(self, name, arguments=None):
        async with self._session.post(f"/tools/{name}", json=arguments or {}) as response:
            text = await response.text()
        body = json.loads(text)
        if response.status == 404:
            raise MCPError(code=types.INVALID_PARAMS, message=body["error"]["message"])
        is_error = response.status >= 400
        return SimpleNamespace(
            is_error=is_error,
            structured_content=None if is_error else body,
            content=[SimpleNamespace(text=text)],
        )

    async def list_tools(self):
        async with self._session.get("/openapi.json") as response:
            document = await response.json()
        schemas = document["components"]["schemas"]
        return SimpleNamespace(
            tools=[
                SimpleNamespace(
                    name=path["post"]["operationId"],
                    description=path["post"]["description"],
                    input_schema=schemas[f"{path['post']['operationId']}.input"],
                    output_schema={
                        **schemas.get(f"{path['post']['operationId']}.output", {}),
                        "components": document["components"],
                    },
                )
                for place, path in document["paths"].items()
                if place.startswith("/tools/")
            ]
        )
