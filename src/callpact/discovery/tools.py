"""Three tools that replace the list of a large catalog: `search_tools`, `describe_tool`, `call_tool`.

They are Tools like any others, and show a caller only the tools that it may use. A call through
them is a normal call, under the contract of its tool. They belong to no source; a door makes them
with `discovery_tools`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from callpact.discovery.index import (
    MAX_LIMIT,
    MAX_QUERY_LENGTH,
    Page,
    SearchHit,
    ToolIndex,
    query_words,
)
from callpact.envelope import ResponseEnvelope, now_ms
from callpact.errors import AccessDenied, Failed, ToolError, UnknownTool
from callpact.gate import grant
from callpact.schema.json_text import sendable
from callpact.tool import Call, Contract, Tool
from callpact.wire.mcp.published import input_schema

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.context import Context, Identity
    from callpact.runtime import Runtime

SEARCH_TOOLS = "callpact.search_tools"
DESCRIBE_TOOL = "callpact.describe_tool"
CALL_TOOL = "callpact.call_tool"
STAND_INS = frozenset({SEARCH_TOOLS, DESCRIBE_TOOL, CALL_TOOL})
"""The ids of the three; over MCP their names are the last part."""
_STAND_IN_NAMES = STAND_INS | {"search_tools", "describe_tool", "call_tool"}

DEFAULT_LIMIT = 10
"""Hits that `search_tools` returns by default."""
MAX_NAMESPACES = 10
"""Namespaces that the description of `search_tools` names, the largest first."""
MAX_EXAMPLES = 5
"""Examples of one tool that `describe_tool` shows."""
MAX_NEAREST = 3
"""Names that are suggested for an unknown one."""
MAX_DISABLED = 3
"""Disabled tools that a search names, of those that rank among its hits."""
_MAX_NAME_LENGTH = 200

_NAME: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": _MAX_NAME_LENGTH,
    "description": "The name of the tool, as search_tools gives it.",
}
_SEARCH_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "maxLength": MAX_QUERY_LENGTH,
            "description": "What the tool should do, in a few words. Empty to list all tools.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LIMIT,
            "default": DEFAULT_LIMIT,
            "description": "How many tools to give at most.",
        },
        "cursor": {
            "type": "string",
            "pattern": "^[0-9]{0,9}$",
            "description": "The nextCursor of an earlier result, for the tools after those.",
        },
        "namespace": {
            "type": "string",
            "maxLength": _MAX_NAME_LENGTH,
            "description": "Only tools of this namespace (the part of a name before the dot).",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}
_SEARCH_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "title": {"type": "string"},
                    "description": {"type": "string"},
                    "required": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Arguments that a call must give.",
                    },
                },
                "required": ["name", "description", "required"],
            },
        },
        "disabled": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    "reason": {"type": "string"},
                },
                "required": ["name", "description", "reason"],
            },
            "description": "Tools that fit too and cannot be called at the moment.",
        },
        "total": {"type": "integer", "description": "How many tools were found in all."},
        "nextCursor": {"type": "string", "description": "Where the next page begins."},
        "note": {"type": "string"},
    },
    "required": ["tools", "total"],
}
_ANY_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
_DESCRIBE_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "wireName": {"type": "string"},
        "title": {"type": "string"},
        "description": {"type": "string"},
        "version": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "inputSchema": {**_ANY_OBJECT, "description": "What the arguments must keep."},
        "outputSchema": {
            "anyOf": [_ANY_OBJECT, {"type": "boolean"}],
            "description": "What the output is declared to be.",
        },
        "annotations": _ANY_OBJECT,
        "examples": {"type": "array"},
    },
    "required": ["name", "wireName", "description", "inputSchema"],
}
_DESCRIBE_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"name": _NAME},
    "required": ["name"],
    "additionalProperties": False,
}
_CALL_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _NAME,
        "arguments": {
            "type": "object",
            "description": "The tool's arguments, by the inputSchema that describe_tool gives.",
            # Recorded with the call of the target, under the marks of its own schema.
            "writeOnly": True,
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}
_READS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


def discovery_tools(runtime: Runtime, *, identity: Identity | None = None) -> tuple[Tool, ...]:
    """The three tools for the catalog of a runtime.

    The identity is used for the counts in the description; each call is checked for its own caller.
    Raises:
        UsageError: this Python has no SQLite with FTS5.
    """
    index_of(runtime)
    here = _Discovery(runtime)
    search = Tool(
        id=SEARCH_TOOLS,
        wire_name="search_tools",
        title="Find tools",
        description=_search_description(runtime.catalog, identity),
        contract=Contract(input=_SEARCH_INPUT, output=_SEARCH_OUTPUT, input_policy="tolerant"),
        handler=here.search,
        kind="query",
        annotations=_READS,
    )
    describe = Tool(
        id=DESCRIBE_TOOL,
        wire_name="describe_tool",
        title="Describe a tool",
        description=(
            "Everything about one tool that search_tools found: its description, the schema of its "
            "arguments, the schema of its output, examples. Read it before call_tool."
        ),
        contract=Contract(input=_DESCRIBE_INPUT, output=_DESCRIBE_OUTPUT, input_policy="tolerant"),
        handler=here.describe,
        kind="query",
        annotations=_READS,
    )
    call = Tool(
        id=CALL_TOOL,
        wire_name="call_tool",
        title="Call a tool",
        description=(
            "Call a tool that search_tools found, with the arguments that describe_tool asks for. "
            "The output, or the error with every wrong argument, is that of the tool itself."
        ),
        contract=Contract(input=_CALL_INPUT, input_policy="tolerant"),
        handler=here.call,
        annotations={"readOnlyHint": False, "openWorldHint": True},
    )
    return search, describe, call


def is_usable(tool: Tool, identity: Identity | None) -> bool:
    """True if this caller may call a tool now, and get a single result."""
    return tool.disabled is None and is_found(tool, identity)


def is_found(tool: Tool, identity: Identity | None) -> bool:
    """True if a search shows a tool to this caller: it may call it, or could if it were enabled."""
    if tool.kind == "subscription" or tool.id in STAND_INS:
        return False
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return True


def target_of(catalog: Catalog, tool_id: str, arguments: Any) -> Tool | None:
    """The tool that a call of `call_tool` names; None for any other call.

    A door needs its timeout and annotations.
    """
    if tool_id != CALL_TOOL or not isinstance(arguments, Mapping):
        return None
    return catalog.get(cast("Mapping[str, Any]", arguments).get("name", ""))


_indexes: WeakKeyDictionary[Runtime, ToolIndex] = WeakKeyDictionary()
_lock = threading.Lock()


def index_of(runtime: Runtime) -> ToolIndex:
    """The index of a runtime's current catalog, shared by its callers until the catalog changes.

    Raises:
        UsageError: this Python has no SQLite with FTS5.
    """
    with _lock:
        index = _indexes.get(runtime)
        if index is None or index.catalog is not runtime.catalog:
            index = _indexes[runtime] = ToolIndex(runtime.catalog)
        return index


class _Discovery:
    """The handlers of the three tools."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def search(self, arguments: dict[str, Any], context: Context) -> dict[str, Any]:
        # In a thread: the first search of a large catalog fills the index.
        return await asyncio.to_thread(self._search, arguments, context.identity)

    def _search(self, arguments: dict[str, Any], identity: Identity | None) -> dict[str, Any]:
        query, limit = arguments["query"], arguments.get("limit", DEFAULT_LIMIT)
        namespace, index = arguments.get("namespace") or None, index_of(self._runtime)
        page = index.search(
            query,
            limit,
            int(arguments.get("cursor") or 0),
            namespace=namespace,
            visible=partial(_is_usable_by, identity),
        )
        output = _encode_page(page)
        if query_words(query) and not arguments.get("cursor"):
            found = index.search(
                query, limit, namespace=namespace, visible=partial(_is_found_by, identity)
            )
            output |= _encode_disabled(found)
        if not page.hits:
            output["note"] = self._nothing(page, namespace, identity)
        return sendable(output)

    def _nothing(self, page: Page, namespace: str | None, identity: Identity | None) -> str:
        if page.total:
            return f"There are no more: {page.total} were found in all."
        namespaces = _namespaces(self._runtime.catalog, identity)
        if namespace is not None and namespace not in namespaces:
            near = get_close_matches(namespace, namespaces, n=MAX_NEAREST) or _largest(namespaces)
            return f"There is no namespace '{namespace}' here. There are: {', '.join(near)}."
        return (
            "No tool holds these words. Try others for the same, or fewer; or list a namespace "
            f"with an empty query. The largest: {', '.join(_largest(namespaces))}."
        )

    async def describe(self, arguments: dict[str, Any], context: Context) -> dict[str, Any]:
        tool = await self._find(arguments["name"], context.identity)
        grant(tool, context.identity)
        if tool.disabled is not None:
            raise Failed(tool.disabled.code, tool.disabled.reason)
        return sendable(_encode_tool(tool))

    async def call(self, arguments: dict[str, Any], context: Context) -> ResponseEnvelope[Any]:
        tool = await self._find(arguments["name"], context.identity)
        deadline = context.deadline
        if tool.timeout is not None:
            own = now_ms() + tool.timeout * 1000
            deadline = own if deadline is None else min(own, deadline)
        call = Call(
            tool.id,
            arguments.get("arguments"),
            parent_id=context.call_id,
            deadline=deadline,
            chain=(*context.chain, context.tool_id),
            metadata=context.metadata,
        )
        call_map = context._call_map  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - handed on, as by the runtime
        return await self._runtime.call(
            call, context.identity, call_map=call_map, client=context.client
        )

    async def _find(self, name: str, identity: Identity | None) -> Tool:
        """Find a tool with a single result by its name.

        Raises:
            ToolError: it is one of the three, which cannot call themselves.
            UnknownTool: with the nearest names of the tools that the caller may use.
        """
        tool = self._runtime.catalog.get(name)
        if (name if tool is None else tool.id) in _STAND_IN_NAMES:
            raise _not_itself(name)
        if tool is None or tool.kind == "subscription":
            raise await asyncio.to_thread(self._unknown, name, identity)
        return tool

    def _unknown(self, name: str, identity: Identity | None) -> UnknownTool:
        """The error for an unknown name, with similarly spelled names, else names with its words."""
        usable = partial(_is_usable_by, identity)
        name = name[:100]
        catalog = self._runtime.catalog
        try:
            catalog.find(name, suggested=usable)
        except UnknownTool as unknown:
            if unknown != UnknownTool(name):
                return unknown
        page = index_of(self._runtime).search(name, MAX_NEAREST, visible=usable)
        return UnknownTool(name, [hit.id for hit in page.hits])


def _not_itself(name: str) -> ToolError:
    return ToolError(
        "not_a_target",
        f"'{name[:100]}' is called directly, not through another tool; the name must be one that "
        "search_tools gives",
        path="/name",
    )


def _is_usable_by(identity: Identity | None, tool: Tool) -> bool:
    return is_usable(tool, identity)


def _is_found_by(identity: Identity | None, tool: Tool) -> bool:
    return is_found(tool, identity)


# --- results --------------------------------------------------------------------------------


def _search_description(catalog: Catalog, identity: Identity | None) -> str:
    namespaces = _namespaces(catalog, identity)
    count = namespaces.total()
    if not count:
        return "Find tools by what they do. There are none that you may use at the moment."
    lead = (
        f"Find tools by what they do. {_counted(count, 'tool')} in "
        f"{_counted(len(namespaces), 'namespace')} can be used and are not in this list: search "
        "here first, whatever the task. "
    )
    named = ", ".join(_largest(namespaces))
    more = ", and others" if len(namespaces) > MAX_NAMESPACES else ""
    return (
        f"{lead}Namespaces with their number of tools: {named}{more}. "
        "Then read one with describe_tool and run it with call_tool."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _namespaces(catalog: Catalog, identity: Identity | None) -> Counter[str]:
    return Counter(tool.namespace for tool in catalog if is_usable(tool, identity))


def _largest(namespaces: Counter[str]) -> list[str]:
    ordered = sorted(namespaces.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{name} ({count})" for name, count in ordered[:MAX_NAMESPACES]]


def _encode_page(page: Page) -> dict[str, Any]:
    form: dict[str, Any] = {"tools": [_encode_hit(hit) for hit in page.hits], "total": page.total}
    if page.next is not None:
        form["nextCursor"] = str(page.next)
    return form


def _encode_hit(hit: SearchHit) -> dict[str, Any]:
    form: dict[str, Any] = {"name": hit.id}
    if hit.title:
        form["title"] = hit.title
    return form | {"description": hit.description, "required": list(hit.required)}


def _encode_disabled(page: Page) -> dict[str, Any]:
    forms = [
        {"name": hit.id, "description": hit.description, "reason": hit.disabled}
        for hit in page.hits
        if hit.disabled is not None
    ]
    return {"disabled": forms[:MAX_DISABLED]} if forms else {}


def _encode_tool(tool: Tool) -> dict[str, Any]:
    form: dict[str, Any] = {
        "name": tool.id,
        "wireName": tool.wire_name,
        "title": tool.title,
        "description": tool.description,
        "version": tool.version,
        "tags": list(tool.tags),
        "inputSchema": input_schema(tool),
        "outputSchema": tool.contract.output,
        "annotations": dict(tool.annotations),
        "examples": list(tool.examples[:MAX_EXAMPLES]),
    }
    return {key: value for key, value in form.items() if value not in (None, [], {})}
