"""The description of the plain HTTP endpoints for one caller: an OpenAPI document, and docs pages.

Callers with the same rights share them, until the catalog is replaced.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from callpact.envelope import encode_json
from callpact.errors import AccessDenied
from callpact.gate import grant, rights_of
from callpact.schema.json_text import sendable
from callpact.serve.rest.docs_page import encode_index, encode_tool_page
from callpact.serve.rest.landing_page import ServerFacts, encode_landing
from callpact.wire.openapi_output import encode_openapi

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.context import Identity
    from callpact.runtime import Runtime
    from callpact.tool import Tool

MAX_DOCUMENTS = 64
"""Sets of rights with a cached OpenAPI document."""


class _CallerPages:
    """The documents of one set of rights, over one catalog."""

    def __init__(self, catalog: Catalog, identity: Identity | None) -> None:
        self.catalog = catalog
        self.tools = [tool for tool in catalog if is_offered(tool, identity)]
        self.made: dict[str, bytes] = {}


class RestPages:
    """Makes the documents on first use, in a thread: those of large catalogs take seconds."""

    def __init__(self, runtime: Runtime, *, title: str, version: str, has_tokens: bool) -> None:
        self._runtime = runtime
        self._title = title
        self._version = version
        self._has_tokens = has_tokens
        self._pages: OrderedDict[object, _CallerPages] = OrderedDict()
        self._lock = asyncio.Lock()

    def landing(self, address: str, identity: Identity | None, *, is_stranger: bool) -> bytes:
        """Return the landing page; it has nothing about the server for a stranger."""
        facts = None
        if not is_stranger:
            tools = len(self._of(identity).tools)
            facts = ServerFacts(self._title, self._version, tools)
        return encode_landing(address, facts, has_tokens=self._has_tokens)

    async def openapi(self, identity: Identity | None) -> bytes:
        """Return the OpenAPI document of the tools that a caller may use."""
        return await self._document("openapi", identity)

    async def index(self, identity: Identity | None) -> bytes:
        """Return the page that lists the tools that a caller may use."""
        return await self._document("index", identity)

    def tool(self, name: str, identity: Identity | None) -> bytes | None:
        """Return the page of one tool; None if there is none that the caller may use."""
        tool = self._runtime.catalog.get(name)
        if tool is None or not is_offered(tool, identity):
            return None
        return encode_tool_page(tool, title=self._title, has_tokens=self._has_tokens)

    async def _document(self, kind: str, identity: Identity | None) -> bytes:
        async with self._lock:
            pages = self._of(identity)
            if kind not in pages.made:
                pages.made[kind] = await asyncio.to_thread(self._make, kind, pages)
            return pages.made[kind]

    def _of(self, identity: Identity | None) -> _CallerPages:
        rights, catalog = rights_of(identity), self._runtime.catalog
        pages = self._pages.get(rights)
        if pages is None or pages.catalog is not catalog:
            pages = self._pages[rights] = _CallerPages(catalog, identity)
        self._pages.move_to_end(rights)
        if len(self._pages) > MAX_DOCUMENTS:
            self._pages.popitem(last=False)
        return pages

    def _make(self, kind: str, pages: _CallerPages) -> bytes:
        if kind == "index":
            return encode_index(pages.tools, title=self._title, has_tokens=self._has_tokens)
        document = encode_openapi(
            pages.tools, title=self._title, version=self._version, has_tokens=self._has_tokens
        )
        return encode_json(sendable(document))


def is_offered(tool: Tool, identity: Identity | None) -> bool:
    """True if the door describes a tool to a caller: it may use it, and the tool is not disabled."""
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return tool.disabled is None
