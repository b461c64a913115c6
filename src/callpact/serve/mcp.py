"""The MCP door, in its plainest form: `tools/list` and `tools/call` over stdio, on the official SDK.

Everything the protocol asks for is the SDK's; everything a call means is the runtime's. This module
only joins the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from callpact.envelope import now_ms
from callpact.errors import CallError, UnknownTool
from callpact.wire import mcp as wire

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

    from callpact.runtime import Runtime

DEFAULT_TIMEOUT = 60.0
"""Seconds after which a call that came through a door is given up."""


def build_server(
    runtime: Runtime, *, name: str = "callpact", version: str = "", timeout: float = DEFAULT_TIMEOUT
) -> Server[Any]:
    """An MCP server over the tools of a runtime, for both eras of the protocol."""
    catalog = runtime.catalog

    async def list_tools(
        context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        modern = _is_modern(context)
        tools = [
            types.Tool.model_validate(wire.encode_tool(tool, modern=modern)) for tool in catalog
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = catalog.find(params.name) if params.name in catalog else None
        limit = timeout if tool is None or tool.timeout is None else tool.timeout
        try:
            envelope = await runtime.execute(
                params.name, params.arguments, deadline=now_ms() + limit * 1000
            )
        except UnknownTool as error:
            raise MCPError(code=types.INVALID_PARAMS, message=error.message) from None
        except CallError as error:
            return types.CallToolResult.model_validate(wire.encode_error(error))
        result = wire.encode_result(envelope, catalog.find(params.name), modern=_is_modern(context))
        return types.CallToolResult.model_validate(result)

    def input_schema(tool_name: str) -> dict[str, Any] | None:
        return wire.input_schema(catalog.find(tool_name)) if tool_name in catalog else None

    return Server(
        name,
        version=version,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=input_schema,
    )


async def serve_stdio(runtime: Runtime, *, name: str = "callpact", version: str = "") -> None:
    """Serve a runtime over standard input and output until the client hangs up.

    What a tool prints goes to standard error; the protocol has standard output to itself.
    """
    server = build_server(runtime, name=name, version=version)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _is_modern(context: ServerRequestContext[Any]) -> bool:
    return (context.protocol_version or "") >= wire.MODERN
