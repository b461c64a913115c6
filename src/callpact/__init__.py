"""callpact: every tool an AI agent can call, under one contract.

Importing this package runs nothing, reads no environment and configures no logging. Agents,
`from_functions` with its pydantic, `from_flowmcp` and Data Tools are imported on first use. More
names are in `callpact.agent`, `callpact.audit`, `callpact.envelope`, `callpact.errors`,
`callpact.protocol`, `callpact.schema` and `callpact.testing`.
"""

from typing import TYPE_CHECKING

from callpact.catalog import Catalog
from callpact.context import Context, Env, Identity
from callpact.envelope import (
    ResponseEnvelope,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
    raise_for_error,
    unwrap,
)
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    CallpactError,
    DeclarationError,
    DuplicateTool,
    Failed,
    HandlerCrashed,
    InvalidConfig,
    InvalidInput,
    InvalidSchema,
    InvalidTool,
    Issue,
    LimitReached,
    ModelError,
    NotAllowed,
    OutputRejected,
    OutputSchemaError,
    Rejected,
    RunPaused,
    SourceRefused,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    UsageError,
)
from callpact.lazy import lazy_names
from callpact.observers import CallFinished, Observer
from callpact.resources import Prompt, Resource
from callpact.runtime import Runtime, build_env
from callpact.sources.python.marker import prompt, resource, tool
from callpact.tool import Access, Call, Contract, Handler, Policy, Tool

if TYPE_CHECKING:
    from callpact.agent.agent import Agent
    from callpact.agent.answer.parse import parse_answer
    from callpact.agent.models.open import open_model
    from callpact.agent.prompt.instructions import Skill
    from callpact.agent.reliability import strict_output_rules
    from callpact.server import asgi_app, run
    from callpact.sources.data_tools import data_tool
    from callpact.sources.flowmcp.build.source import from_flowmcp
    from callpact.sources.python.functions import from_functions

__getattr__ = lazy_names(
    __name__,
    {
        "agent.agent": ("Agent",),
        "agent.answer.parse": ("parse_answer",),
        "agent.models.open": ("open_model",),
        "agent.prompt.instructions": ("Skill",),
        "agent.reliability": ("strict_output_rules",),
        "server": ("asgi_app", "run"),
        "sources.data_tools": ("data_tool",),
        "sources.flowmcp.build.source": ("from_flowmcp",),
        "sources.python.functions": ("from_functions",),
    },
)

__all__ = [
    "Aborted",
    "Access",
    "AccessDenied",
    "Agent",
    "Call",
    "CallError",
    "CallFinished",
    "CallpactError",
    "Catalog",
    "Context",
    "Contract",
    "DeclarationError",
    "DuplicateTool",
    "Env",
    "Failed",
    "Handler",
    "HandlerCrashed",
    "Identity",
    "InvalidConfig",
    "InvalidInput",
    "InvalidSchema",
    "InvalidTool",
    "Issue",
    "LimitReached",
    "ModelError",
    "NotAllowed",
    "Observer",
    "OutputRejected",
    "OutputSchemaError",
    "Policy",
    "Prompt",
    "Rejected",
    "Resource",
    "ResponseEnvelope",
    "RunPaused",
    "Runtime",
    "Skill",
    "SourceRefused",
    "Timeout",
    "Tool",
    "ToolError",
    "UnknownTool",
    "UpstreamError",
    "UsageError",
    "asgi_app",
    "build_env",
    "data_tool",
    "from_flowmcp",
    "from_functions",
    "http_envelope",
    "is_response_envelope",
    "local_envelope",
    "mcp_envelope",
    "open_model",
    "parse_answer",
    "prompt",
    "raise_for_error",
    "resource",
    "run",
    "strict_output_rules",
    "tool",
    "unwrap",
]
