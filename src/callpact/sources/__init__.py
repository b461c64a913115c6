"""Sources turn declarations into Tools: functions, Data Tools, FlowMCP, MCP servers, OpenAPI.

The kinds do not import one another; they share only `base.py`.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names
from callpact.sources.base import Finding, Opening, Source, Tools

if TYPE_CHECKING:
    from callpact.sources.data_tools import data_tool, exhausted_message
    from callpact.sources.flowmcp.build.source import FlowMCPTools, from_flowmcp
    from callpact.sources.flowmcp.check.file_check import check_text
    from callpact.sources.mcp.mcp_source import McpSource, from_mcp
    from callpact.sources.openapi.openapi_source import OpenApiSource, from_openapi
    from callpact.sources.python.functions import from_functions

__getattr__ = lazy_names(
    __name__,
    {
        "data_tools": ("data_tool", "exhausted_message"),
        "flowmcp.build.source": ("FlowMCPTools", "from_flowmcp"),
        "flowmcp.check.file_check": ("check_text",),
        "mcp.mcp_source": ("McpSource", "from_mcp"),
        "openapi.openapi_source": ("OpenApiSource", "from_openapi"),
        "python.functions": ("from_functions",),
    },
)

__all__ = [
    "Finding",
    "FlowMCPTools",
    "McpSource",
    "OpenApiSource",
    "Opening",
    "Source",
    "Tools",
    "check_text",
    "data_tool",
    "exhausted_message",
    "from_flowmcp",
    "from_functions",
    "from_mcp",
    "from_openapi",
]
