"""What one caller sees of a catalog: its tools, resources and prompts, in pages, made once.

A view is made for what a caller may use, not for the caller: all who hold the same scopes share it,
until the catalog is another.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from callpact.discovery import discovery_tools
from callpact.errors import AccessDenied
from callpact.gate import grant
from callpact.wire import mcp as wire
from callpact.wire.mcp_offers import encode_prompt, encode_resource

if TYPE_CHECKING:
    from mcp.server.caching import CacheableMethod

    from callpact.offers import Prompt, Resource
    from callpact.runtime import Runtime
    from callpact.tool import Identity, Tool
    from callpact.wire.mcp_schema import Advertise

PAGE_ENTRIES = 500
"""Entries in one page of a list of tools, resources or prompts."""
LIST_UP_TO = 200
"""Tools that are still listed one by one; more are behind `search_tools`."""
MAX_VIEWS = 64
"""Sets of scopes for which a list is kept ready."""
_CURSOR = re.compile(r"[0-9]{1,9}", re.ASCII)
_KEYS: dict[CacheableMethod, str] = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
LISTS: tuple[CacheableMethod, ...] = tuple(_KEYS)
"""The methods that list something."""
_log = logging.getLogger("callpact.serve.mcp")


def is_modern(era: str) -> bool:
    """True for revisions without a handshake."""
    return era in MODERN_PROTOCOL_VERSIONS


def is_served(tool: Tool, identity: Identity | None) -> bool:
    """True if this door lists a tool for this caller.

    MCP has no call that answers many times, and a tool that is disabled is not exposed (seed 002).
    """
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return tool.kind != "subscription" and tool.disabled is None


class View:
    """The catalog as callers of one set of rights see it."""

    def __init__(
        self, runtime: Runtime, identity: Identity | None, list_up_to: int, advertise: Advertise
    ) -> None:
        self.catalog = runtime.catalog
        self._runtime = runtime
        self._identity = identity
        self._advertise: Advertise = advertise
        self._pages: dict[tuple[str, str], list[dict[str, Any]]] = {}
        tools = tuple(tool for tool in self.catalog if self._sees(tool))
        self.has_stand_ins = len(tools) > list_up_to
        self.front = runtime
        """Runs what is listed: the tools themselves, or those that stand in for them."""
        if self.has_stand_ins:
            self.front = runtime.over(discovery_tools(runtime, identity=identity))
            tools = tuple(self.front.catalog)
        self.tools = tools
        self.resources = tuple(r for r in self.catalog.resources if self._sees(r.tool))
        self.prompts = tuple(p for p in self.catalog.prompts if self._sees(p.tool))

    def _sees(self, tool: Tool) -> bool:
        return is_served(tool, self._identity)

    def resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """The resource at an address, and the values of its variables; fixed addresses first."""
        for resource in sorted(self.resources, key=lambda held: held.is_template):
            values = resource.match(uri)
            if values is not None:
                return resource, values
        return None

    def prompt(self, name: str) -> Prompt | None:
        """The prompt of a name or an id."""
        for prompt in self.prompts:
            if name in {prompt.tool.wire_name, prompt.tool.id}:
                return prompt
        return None

    def page(
        self, method: str, era: str, cursor: str | None, more: Iterable[Tool] = ()
    ) -> dict[str, Any]:
        """A page of a list, in the wire form of the era; `more` tools are on the last one.

        Raises:
            MCPError: the cursor is none that was given.
        """
        pages = self._pages.get((method, era))
        if pages is None:
            pages = self._pages[method, era] = self._made(method, era)
        number = 0 if cursor is None else int(cursor) if _CURSOR.fullmatch(cursor) else -1
        if not 0 <= number < len(pages):
            raise MCPError(code=types.INVALID_PARAMS, message="This cursor is not one of this list")
        page = pages[number]
        added = [made for tool in more if (made := self._tool(era, tool)) is not None]
        if added and number == len(pages) - 1:
            page = {**page, "tools": [*page["tools"], *added]}
        return page

    def _made(self, method: str, era: str) -> list[dict[str, Any]]:
        entries = list(self._entries(method, era))
        starts = range(0, max(len(entries), 1), PAGE_ENTRIES)
        pages: list[dict[str, Any]] = [
            {_KEYS[cast("CacheableMethod", method)]: entries[start : start + PAGE_ENTRIES]}
            for start in starts
        ]
        for number, page in enumerate(pages[:-1], 1):
            page["nextCursor"] = str(number)
        return pages

    def _entries(self, method: str, era: str) -> Iterable[dict[str, Any]]:
        made: Iterable[dict[str, Any] | None]
        if method == "tools/list":
            made = map(partial(self._tool, era), self.tools)
        elif method == "prompts/list":
            encode = partial(_entry, method, era, encode_prompt)
            made = (encode(prompt.tool, prompt) for prompt in self.prompts)
        else:
            is_template = method == "resources/templates/list"
            encode = partial(_entry, method, era, encode_resource)
            made = (encode(r.tool, r) for r in self.resources if r.is_template == is_template)
        return (entry for entry in made if entry is not None)

    def _tool(self, era: str, tool: Tool) -> dict[str, Any] | None:
        encode = partial(wire.encode_tool, modern=is_modern(era), advertise=self._advertise)
        return _entry("tools/list", era, encode, tool, tool)


def _entry(
    method: str, era: str, encode: Callable[[Any], dict[str, Any]], tool: Tool, offer: Any
) -> dict[str, Any] | None:
    """One entry of a list, or None where the SDK would refuse the whole list because of it."""
    key = _KEYS[cast("CacheableMethod", method)]
    try:
        whole: dict[str, Any] = {key: [encode(offer)]}
        if is_modern(era):
            whole |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        entry = methods.serialize_server_result(method, era, whole)[key][0]
        to_json(entry)
    except (ValidationError, PydanticSerializationError) as error:
        _log.error("%s is not listed: MCP does not take its definition: %s", tool.id, error)
        return None
    return entry


class Views:
    """The views of a runtime's catalog, one for each set of rights that was seen lately."""

    def __init__(self, runtime: Runtime, *, list_up_to: int, advertise: Advertise) -> None:
        self._runtime = runtime
        self._list_up_to = list_up_to
        self._advertise: Advertise = advertise
        self._views: OrderedDict[Any, View] = OrderedDict()

    def of(self, identity: Identity | None) -> View:
        """What a caller sees now."""
        rights = (
            None
            if identity is None
            else (
                frozenset(identity.scopes),
                frozenset((name, frozenset(held)) for name, held in identity.resources.items()),
            )
        )
        view = self._views.get(rights)
        if view is None or view.catalog is not self._runtime.catalog:
            view = View(self._runtime, identity, self._list_up_to, self._advertise)
            self._views[rights] = view
            while len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(rights)
        return view
