"""The lists of tools, resources and prompts for one caller, in pages that are encoded once.

Callers with the same scopes share a view, until the catalog is replaced.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import mcp_types as types
import orjson
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import X_MCP_HEADER_KEY
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from callpact.discovery.tools import discovery_tools
from callpact.errors import AccessDenied
from callpact.gate import grant, rights_of
from callpact.wire.mcp import results as wire
from callpact.wire.mcp.offers import encode_prompt, encode_resource

if TYPE_CHECKING:
    from mcp.server.caching import CacheableMethod

    from callpact.context import Identity
    from callpact.resources import Prompt, Resource
    from callpact.runtime import Runtime
    from callpact.tool import Tool
    from callpact.wire.mcp.published import AdvertiseMode, Rendering

PAGE_ENTRIES = 500
"""Entries in one page of a list of tools, resources or prompts."""
LIST_UP_TO = 200
"""Tools that are listed one by one; larger catalogs are reached through `search_tools`."""
MAX_VIEWS = 64
"""Sets of rights with a cached view."""
_CURSOR = re.compile(r"[0-9]{1,9}", re.ASCII)
_KEYS: dict[CacheableMethod, str] = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
LISTS: tuple[CacheableMethod, ...] = tuple(_KEYS)
"""The list methods."""
_REFUSALS = (ValidationError, PydanticSerializationError, orjson.JSONEncodeError)
_log = logging.getLogger("callpact.serve.mcp")


class ListPage(NamedTuple):
    """Entries of a list as JSON, and the cursor of the next page."""

    entries: bytes
    cursor: str | None = None


def is_modern(era: str) -> bool:
    """True for revisions without a handshake."""
    return era in MODERN_PROTOCOL_VERSIONS


def is_served(tool: Tool, identity: Identity | None) -> bool:
    """True if this door lists a tool for this caller.

    MCP has no subscriptions to tools, and a disabled tool is not exposed (seed 002).
    """
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return tool.kind != "subscription" and tool.disabled is None


class CatalogView:
    """The part of a catalog that callers with one set of rights may use."""

    def __init__(
        self,
        runtime: Runtime,
        identity: Identity | None,
        *,
        list_up_to: int,
        advertise: AdvertiseMode,
        rendering: Rendering,
    ) -> None:
        self.catalog = runtime.catalog
        self._runtime = runtime
        self._identity = identity
        self._advertise: AdvertiseMode = advertise
        self._rendering: Rendering = rendering
        self._pages: dict[tuple[str, str], list[bytes]] = {}
        self._repeating: dict[str, bool] = {}
        tools = tuple(tool for tool in self.catalog if self._is_served(tool))
        self.has_search_tools = len(tools) > list_up_to
        self.front = runtime
        """The runtime of the listed tools: all tools, or those that search and call them."""
        if self.has_search_tools:
            self.front = runtime.over(discovery_tools(runtime, identity=identity))
            always = (tool for tool in tools if tool.always_listed)
            tools = (*self.front.catalog, *always)
        self.tools = tools
        self.resources = tuple(r for r in self.catalog.resources if self._is_served(r.tool))
        self.prompts = tuple(p for p in self.catalog.prompts if self._is_served(p.tool))

    def _is_served(self, tool: Tool) -> bool:
        return is_served(tool, self._identity)

    def repeats_in_headers(self, tool: Tool) -> bool:
        """True if clients repeat some of the tool's arguments in headers (`x-mcp-header`)."""
        known = self._repeating.get(tool.id)
        if known is None:
            schema = orjson.dumps(wire.input_schema(tool))
            known = self._repeating[tool.id] = X_MCP_HEADER_KEY.encode() in schema
        return known

    def resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the resource at an address and the values of its variables; fixed addresses first."""
        for resource in sorted(self.resources, key=lambda held: held.is_template):
            values = resource.match(uri)
            if values is not None:
                return resource, values
        return None

    def prompt(self, name: str) -> Prompt | None:
        """Return the prompt of a name, an id or an alias."""
        for prompt in self.prompts:
            if name in {prompt.tool.wire_name, prompt.tool.id, *prompt.tool.aliases}:
                return prompt
        return None

    def page(
        self, method: str, era: str, cursor: str | None, more: Iterable[Tool] = ()
    ) -> ListPage:
        """Return a page of a list, in the wire form of the era; `more` tools are on the last one.

        Raises:
            MCPError: the cursor is not one of this list.
        """
        pages = self._pages.get((method, era))
        if pages is None:
            pages = self._pages[method, era] = _encoded_pages(
                method, era, self._entries(method, era)
            )
        number = 0 if cursor is None else int(cursor) if _CURSOR.fullmatch(cursor) else -1
        if not 0 <= number < len(pages):
            raise MCPError(code=types.INVALID_PARAMS, message="This cursor is not one of this list")
        if number + 1 < len(pages):
            return ListPage(pages[number], str(number + 1))
        added = [self._tool(era, tool) for tool in more]
        return ListPage(_joined((pages[number], _encoded_entries(method, era, added))))

    def _entries(self, method: str, era: str) -> list[dict[str, Any]]:
        if method == "tools/list":
            return [self._tool(era, tool) for tool in self.tools]
        if method == "prompts/list":
            return [encode_prompt(prompt) for prompt in self.prompts]
        is_template = method == "resources/templates/list"
        return [encode_resource(r) for r in self.resources if r.is_template == is_template]

    def _tool(self, era: str, tool: Tool) -> dict[str, Any]:
        return wire.encode_tool(
            tool, modern=is_modern(era), advertise=self._advertise, rendering=self._rendering
        )


def key_of(method: str) -> str:
    """Return the key of a list in its result."""
    return _KEYS[cast("CacheableMethod", method)]


def _encoded_pages(method: str, era: str, entries: list[dict[str, Any]]) -> list[bytes]:
    starts = range(0, max(len(entries), 1), PAGE_ENTRIES)
    return [
        _encoded_entries(method, era, entries[start : start + PAGE_ENTRIES]) for start in starts
    ]


def _encoded_entries(method: str, era: str, entries: list[dict[str, Any]]) -> bytes:
    """Encode entries as JSON, without those that the SDK refuses."""
    try:
        return _encoded(method, era, entries)
    except _REFUSALS:
        return _joined(_one(method, era, entry) for entry in entries)


def _one(method: str, era: str, entry: dict[str, Any]) -> bytes:
    try:
        return _encoded(method, era, [entry])
    except _REFUSALS as error:
        text = "%s is not listed: MCP does not allow its definition: %s"
        _log.error(text, entry.get("name"), error)
        return b"[]"


def _encoded(method: str, era: str, entries: list[dict[str, Any]]) -> bytes:
    """Encode entries as the SDK serializes them."""
    whole: dict[str, Any] = {key_of(method): entries}
    if is_modern(era):
        whole |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return orjson.dumps(methods.serialize_server_result(method, era, whole)[key_of(method)])


def _joined(lists: Iterable[bytes]) -> bytes:
    """Join several lists, all as JSON."""
    return b"[" + b",".join(inner for part in lists if (inner := part[1:-1])) + b"]"


class ViewCache:
    """A cache of views by set of rights; the least recently used is evicted."""

    def __init__(
        self, runtime: Runtime, *, list_up_to: int, advertise: AdvertiseMode, rendering: Rendering
    ) -> None:
        self._runtime = runtime
        self._list_up_to = list_up_to
        self._advertise: AdvertiseMode = advertise
        self._rendering: Rendering = rendering
        self._views: OrderedDict[Any, CatalogView] = OrderedDict()

    def of(self, identity: Identity | None) -> CatalogView:
        """Return the view of a caller's rights over the current catalog."""
        rights = rights_of(identity)
        view = self._views.get(rights)
        if view is None or view.catalog is not self._runtime.catalog:
            view = CatalogView(
                self._runtime,
                identity,
                list_up_to=self._list_up_to,
                advertise=self._advertise,
                rendering=self._rendering,
            )
            self._views[rights] = view
            while len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(rights)
        return view
