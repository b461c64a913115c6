"""The MCP door, in its plainest form: `tools/list` and `tools/call` over stdio, on the official SDK.

Everything the protocol asks for is the SDK's; everything a call means is the runtime's. This module
only joins the two.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from callpact.discovery import discovery_tools, target_of
from callpact.envelope import now_ms
from callpact.errors import AccessDenied, CallError, HandlerCrashed, UnknownTool
from callpact.gate import grant
from callpact.serve import DEFAULT_TIMEOUT
from callpact.tool import Call
from callpact.wire import mcp as wire

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

    from callpact.runtime import Runtime
    from callpact.tool import Identity, Tool
    from callpact.wire.mcp_schema import Advertise

PAGE_TOOLS = 500
"""Tools in one page of `tools/list`."""
LIST_UP_TO = 200
"""Tools that are still listed one by one; more are behind `search_tools`."""
LIST_TTL_MS = 2_000
"""Milliseconds for which a client may take the list of tools for current."""
_CURSOR = re.compile(r"[0-9]{1,9}", re.ASCII)
_log = logging.getLogger("callpact.serve.mcp")


def build_server(
    runtime: Runtime,
    *,
    name: str = "callpact",
    version: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    identity: Identity | None = None,
    list_up_to: int = LIST_UP_TO,
    advertise: Advertise = "full",
) -> Server[Any]:
    """An MCP server over the tools of a runtime, for both eras of the protocol.

    `identity` is whoever is at the other end: what it may not use is neither listed nor run. Of
    more than `list_up_to` tools none is listed: three tools that search, describe and call them
    stand in for them. `advertise` is how much of an output schema the list shows.
    """
    tools = runtime.catalog
    number = sum(is_served(tool, identity) for tool in tools)
    front = runtime if number <= list_up_to else _front(runtime, identity)
    catalog = front.catalog
    listed: dict[str, list[types.Tool]] = {}

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        era = context.protocol_version
        if era not in listed:
            served = [tool for tool in catalog if is_served(tool, identity)]
            defined = (_definition(tool, era, advertise) for tool in served)
            listed[era] = [made for made in defined if made is not None]
        return _page(listed[era], None if params is None else params.cursor)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        found = catalog.get(params.name)
        called = front if found is not None else runtime  # A tool may be called unlisted.
        tool = found or tools.get(params.name)
        meant = tool and (target_of(tools, tool.id, params.arguments) or tool)
        limit = timeout if meant is None or meant.timeout is None else meant.timeout
        deadline = now_ms() + limit * 1000
        try:
            envelope = await called.call(
                Call(params.name, params.arguments, deadline=deadline), identity
            )
        except CallError as error:
            # A handler that misses a tool of its own is a failed call, not a wrong request.
            if tool is None and isinstance(error, UnknownTool):
                raise MCPError(code=types.INVALID_PARAMS, message=error.message) from None
            return types.CallToolResult.model_validate(wire.encode_error(error))
        tool = called.catalog.find(params.name)
        modern = _is_modern(context.protocol_version)
        result = wire.encode_result(envelope, tool, modern=modern, advertise=advertise)
        try:
            return types.CallToolResult.model_validate(result)
        except ValidationError as error:
            _log.error("tool %s: its answer is no MCP result: %s", tool.id, error)
            return types.CallToolResult.model_validate(wire.encode_error(HandlerCrashed(tool.id)))

    def input_schema(tool_name: str) -> dict[str, Any] | None:
        tool = catalog.get(tool_name) or tools.get(tool_name)
        return wire.input_schema(tool) if tool is not None and is_served(tool, identity) else None

    return Server(
        name,
        version=version,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=input_schema,
        cache_hints={
            "tools/list": CacheHint(LIST_TTL_MS, "public" if identity is None else "private")
        },
    )


def _page(tools: list[types.Tool], cursor: str | None) -> types.ListToolsResult:
    """A page of the list: as many tools as one page has, from where the last one ended.

    Raises:
        MCPError: the cursor is none that was given.
    """
    begin = 0 if cursor is None else int(cursor) if _CURSOR.fullmatch(cursor) else -1
    if begin % PAGE_TOOLS or not 0 <= begin <= len(tools):
        raise MCPError(code=types.INVALID_PARAMS, message="This cursor is not one of this list")
    end = begin + PAGE_TOOLS
    following = str(end) if end < len(tools) else None
    return types.ListToolsResult(tools=tools[begin:end], next_cursor=following)


def is_served(tool: Tool, identity: Identity | None) -> bool:
    """True if this door lists a tool for this caller.

    MCP has no call that answers many times, and a tool that is disabled is not exposed (seed 002).
    """
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return tool.kind != "subscription" and tool.disabled is None


async def serve_stdio(server: Server[Any]) -> None:
    """Serve over standard input and output until the client hangs up.

    What a tool prints goes to standard error; the protocol has standard output to itself.
    """
    try:
        async with stdio_server() as (incoming, outgoing):
            # What is printed would otherwise wait in a buffer and end up on the wire at the exit.
            with contextlib.redirect_stdout(sys.stderr):
                await server.run(incoming, outgoing, server.create_initialization_options())
    except* BrokenPipeError:
        _log.info("the client hung up before it had read every answer")


def _front(runtime: Runtime, identity: Identity | None) -> Runtime:
    """A runtime of the tools that stand in for those of another; observed as it is."""
    return runtime.over(discovery_tools(runtime, identity=identity))


def _definition(tool: Tool, era: str, advertise: Advertise) -> types.Tool | None:
    """One entry of the list, or None where the SDK would refuse the whole list because of it."""
    try:
        wired = wire.encode_tool(tool, modern=_is_modern(era), advertise=advertise)
        made = types.Tool.model_validate(wired)
        entry = types.ListToolsResult(tools=[made]).model_dump(by_alias=True, exclude_none=True)
        to_json(methods.serialize_server_result("tools/list", era, entry))
    except (ValidationError, PydanticSerializationError) as error:
        _log.error("tool %s is not listed: MCP does not take its definition: %s", tool.id, error)
        return None
    return made


def _is_modern(era: str) -> bool:
    return era >= wire.MODERN
