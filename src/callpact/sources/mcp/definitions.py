"""The definitions of an MCP server: its tools, resources, templates and prompts, as the wire has them.

Every page is read, within limits: a server may repeat a cursor, or never come to an end.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from callpact.errors import UpstreamError
from callpact.schema import is_array, is_object
from callpact.sources.mcp.upstream import Upstream

MAX_PAGES = 1_000
"""Pages of one list that are read."""
MAX_DEFINITIONS = 20_000
"""Entries of one list that are taken; a server with more is refused."""


class Definitions(Struct, frozen=True):
    """The offers of a server, each entry as plain JSON."""

    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    instructions: str | None = None
    server: dict[str, Any] = {}
    version: str = ""

    def plain(self) -> dict[str, Any]:
        """The same as plain JSON, for pins and scans."""
        return {
            "tools": list(self.tools),
            "prompts": list(self.prompts),
            "instructions": self.instructions,
            "server": self.server,
        }


async def read_definitions(upstream: Upstream) -> Definitions:
    """Read every list that the server says it has.

    Raises:
        CallError: the server cannot be reached, or a list cannot be read.
    """
    connection = await upstream.connection()
    offered = connection.capabilities

    async def entries(capability: str, method: str, key: str) -> tuple[dict[str, Any], ...]:
        if capability not in offered:
            return ()
        return await read_list(upstream, method, key)

    tools, resources, templates, prompts = await asyncio.gather(
        entries("tools", "tools/list", "tools"),
        entries("resources", "resources/list", "resources"),
        _optional(entries("resources", "resources/templates/list", "resourceTemplates")),
        entries("prompts", "prompts/list", "prompts"),
    )
    return Definitions(
        tools,
        resources,
        templates,
        prompts,
        connection.instructions,
        connection.server,
        connection.version,
    )


async def _optional(reading: Any) -> tuple[dict[str, Any], ...]:
    """Many servers with resources do not know templates."""
    try:
        return await reading
    except UpstreamError:
        return ()


async def read_list(upstream: Upstream, method: str, key: str) -> tuple[dict[str, Any], ...]:
    """Read all pages of one list.

    An empty text is a cursor like any other; a cursor that came before ends the list.

    Raises:
        CallError: a page cannot be read, or the list has no end.
    """
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    params: dict[str, Any] = {}
    for _ in range(MAX_PAGES):
        page = await upstream.request(method, params)
        items = page.get(key)
        if not is_array(items):
            raise UpstreamError(f"'{upstream.settings.name}': {method} gave no list of {key}")
        found.extend(item for item in items if is_object(item))
        if len(found) > MAX_DEFINITIONS:
            raise UpstreamError(
                f"'{upstream.settings.name}' lists more than {MAX_DEFINITIONS:,} {key}"
            )
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            return tuple(found)
        seen.add(cursor)
        params = {"cursor": cursor}
    raise UpstreamError(f"'{upstream.settings.name}': {method} has no last page")
