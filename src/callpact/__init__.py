"""callpact: every tool an AI agent can call, under one contract.

Importing this package runs nothing, reads no environment and configures no logging. What a program
may never use (`from_functions` with its pydantic, `from_flowmcp`, Data Tools) is imported on first
use.
"""

from typing import TYPE_CHECKING, Any

from callpact.bus import Bus, Listener, LocalBus
from callpact.call_handler import build_call_handler
from callpact.catalog import Catalog
from callpact.client import Client, Elicited, Root, Sampled
from callpact.codes import CODES
from callpact.env import Env
from callpact.envelope import (
    HTTP_RESPONSE_META_SCHEMA,
    LOCAL_RESPONSE_META_SCHEMA,
    MCP_CONTENT_BLOCK_SCHEMA,
    MCP_RESPONSE_META_SCHEMA,
    RESPONSE_ENVELOPE_SCHEMA,
    RESPONSE_META_SCHEMA,
    RESPONSE_SOURCES,
    AudioBlock,
    HTTPResponseMeta,
    ImageBlock,
    LocalResponseMeta,
    MCPAnnotations,
    MCPContentBlock,
    MCPResourceContent,
    MCPResponseMeta,
    ResourceBlock,
    ResourceLinkBlock,
    ResponseEnvelope,
    ResponseMeta,
    TextBlock,
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
    CastError,
    ClientUnable,
    DeclarationError,
    DuplicateTool,
    Failed,
    HandlerCrashed,
    InvalidConfig,
    InvalidEvent,
    InvalidInput,
    InvalidSchema,
    InvalidTool,
    Issue,
    NotAllowed,
    NotAnEnvelope,
    NotConfirmed,
    NotJson,
    OutputRejected,
    Rejected,
    Silent,
    SourceRefused,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    UsageError,
)
from callpact.events import (
    CALL_EVENT_SCHEMAS,
    CallAborted,
    CallCompleted,
    CallEvent,
    CallFailed,
    CallRequested,
    CallResponded,
    decode_event,
    encode_event,
    read_event,
    write_event,
)
from callpact.finished import CallFinished, Observer
from callpact.offers import Prompt, Resource
from callpact.pending import PendingRequestMap
from callpact.runtime import Runtime, build_env
from callpact.schema import Change
from callpact.sources.marker import prompt, resource, tool
from callpact.tool import Access, Call, Context, Contract, Handler, Identity, Policy, Tool

if TYPE_CHECKING:
    from callpact.schema.properties import (
        PropertyArray,
        PropertyAsset,
        PropertyBoolean,
        PropertyComponent,
        PropertyContent,
        PropertyDate,
        PropertyEnum,
        PropertyGroup,
        PropertyInteger,
        PropertyNumber,
        PropertyString,
    )
    from callpact.sources.data import data_tool, exhausted_message
    from callpact.sources.flowmcp.loading import from_flowmcp
    from callpact.sources.function import from_functions

_LAZY = {
    "PropertyArray": "callpact.schema.properties",
    "PropertyAsset": "callpact.schema.properties",
    "PropertyBoolean": "callpact.schema.properties",
    "PropertyComponent": "callpact.schema.properties",
    "PropertyContent": "callpact.schema.properties",
    "PropertyDate": "callpact.schema.properties",
    "PropertyEnum": "callpact.schema.properties",
    "PropertyGroup": "callpact.schema.properties",
    "PropertyInteger": "callpact.schema.properties",
    "PropertyNumber": "callpact.schema.properties",
    "PropertyString": "callpact.schema.properties",
    "data_tool": "callpact.sources.data",
    "exhausted_message": "callpact.sources.data",
    "from_flowmcp": "callpact.sources.flowmcp.loading",
    "from_functions": "callpact.sources.function",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'callpact' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "CALL_EVENT_SCHEMAS",
    "CODES",
    "HTTP_RESPONSE_META_SCHEMA",
    "LOCAL_RESPONSE_META_SCHEMA",
    "MCP_CONTENT_BLOCK_SCHEMA",
    "MCP_RESPONSE_META_SCHEMA",
    "RESPONSE_ENVELOPE_SCHEMA",
    "RESPONSE_META_SCHEMA",
    "RESPONSE_SOURCES",
    "Aborted",
    "Access",
    "AccessDenied",
    "AudioBlock",
    "Bus",
    "Call",
    "CallAborted",
    "CallCompleted",
    "CallError",
    "CallEvent",
    "CallFailed",
    "CallFinished",
    "CallRequested",
    "CallResponded",
    "CallpactError",
    "CastError",
    "Catalog",
    "Change",
    "Client",
    "ClientUnable",
    "Context",
    "Contract",
    "DeclarationError",
    "DuplicateTool",
    "Elicited",
    "Env",
    "Failed",
    "HTTPResponseMeta",
    "Handler",
    "HandlerCrashed",
    "Identity",
    "ImageBlock",
    "InvalidConfig",
    "InvalidEvent",
    "InvalidInput",
    "InvalidSchema",
    "InvalidTool",
    "Issue",
    "Listener",
    "LocalBus",
    "LocalResponseMeta",
    "MCPAnnotations",
    "MCPContentBlock",
    "MCPResourceContent",
    "MCPResponseMeta",
    "NotAllowed",
    "NotAnEnvelope",
    "NotConfirmed",
    "NotJson",
    "Observer",
    "OutputRejected",
    "PendingRequestMap",
    "Policy",
    "Prompt",
    "PropertyArray",
    "PropertyAsset",
    "PropertyBoolean",
    "PropertyComponent",
    "PropertyContent",
    "PropertyDate",
    "PropertyEnum",
    "PropertyGroup",
    "PropertyInteger",
    "PropertyNumber",
    "PropertyString",
    "Rejected",
    "Resource",
    "ResourceBlock",
    "ResourceLinkBlock",
    "ResponseEnvelope",
    "ResponseMeta",
    "Root",
    "Runtime",
    "Sampled",
    "Silent",
    "SourceRefused",
    "TextBlock",
    "Timeout",
    "Tool",
    "ToolError",
    "UnknownTool",
    "UpstreamError",
    "UsageError",
    "build_call_handler",
    "build_env",
    "data_tool",
    "decode_event",
    "encode_event",
    "exhausted_message",
    "from_flowmcp",
    "from_functions",
    "http_envelope",
    "is_response_envelope",
    "local_envelope",
    "mcp_envelope",
    "prompt",
    "raise_for_error",
    "read_event",
    "resource",
    "tool",
    "unwrap",
    "write_event",
]
