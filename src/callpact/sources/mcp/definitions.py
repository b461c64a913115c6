"""The definitions of an MCP server: its tools, resources, templates and prompts, as the wire has them.

Every page is read, within limits: a server may repeat a cursor, or never come to an end. Entries
that were read before a limit are kept, with a note.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from msgspec import Struct

from callpact.errors import UpstreamError
from callpact.schema import is_array, is_object
from callpact.sources.mcp.upstream import Upstream

MAX_PAGES = 1_000
"""Pages of one list that are read."""
MAX_DEFINITIONS = 20_000
"""Entries of one list that are taken."""
LIST_SECONDS = 60.0
"""Seconds after which no further page of a list is asked for."""


class Definitions(Struct, frozen=True):
    """The offers of a server, each entry as plain JSON."""

    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    instructions: str | None = None
    server: dict[str, Any] = {}
    version: str = ""
    notes: tuple[str, ...] = ()
    """Why the end of a list is missing."""

    def plain(self) -> dict[str, Any]:
        """The same as plain JSON, for pins and scans."""
        return {
            "tools": list(self.tools),
            "prompts": list(self.prompts),
            "resources": list(self.resources),
            "templates": list(self.templates),
            "instructions": self.instructions,
            "server": self.server,
        }


class Entries(Struct, frozen=True):
    """The entries of one list; the note says why it was not read to its end."""

    found: tuple[dict[str, Any], ...] = ()
    note: str = ""


async def read_definitions(upstream: Upstream) -> Definitions:
    """Read every list that the server says it has.

    Raises:
        CallError: the server cannot be reached, or a list cannot be read.
    """
    connection = await upstream.connection()
    offered = connection.capabilities

    async def entries(capability: str, method: str, key: str) -> Entries:
        if capability not in offered:
            return Entries()
        return await read_list(upstream, method, key)

    lists = await asyncio.gather(
        entries("tools", "tools/list", "tools"),
        entries("resources", "resources/list", "resources"),
        _optional(entries("resources", "resources/templates/list", "resourceTemplates")),
        entries("prompts", "prompts/list", "prompts"),
    )
    tools, resources, templates, prompts = (each.found for each in lists)
    return Definitions(
        tools,
        resources,
        templates,
        prompts,
        connection.instructions,
        connection.server,
        connection.version,
        tuple(each.note for each in lists if each.note),
    )


async def _optional(reading: Awaitable[Entries]) -> Entries:
    """Many servers with resources do not know templates."""
    try:
        return await reading
    except UpstreamError:
        return Entries()


async def read_list(upstream: Upstream, method: str, key: str) -> Entries:
    """Read the pages of one list, up to its end or a limit.

    An empty text is a cursor like any other; a cursor that came before ends the list.

    Raises:
        CallError: the first page cannot be read, or the server is gone.
    """
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    params: dict[str, Any] = {}
    end = time.monotonic() + LIST_SECONDS

    def cut(reason: str) -> Entries:
        kept = tuple(found[:MAX_DEFINITIONS])
        return Entries(kept, f"{method} {reason}; the {len(kept):,} {key} before are kept")

    for _ in range(MAX_PAGES):
        try:
            page = await upstream.request(method, params)
        except UpstreamError as error:
            if not seen or not is_object(error.details) or "code" not in error.details:
                raise
            return cut(f"refuses a page that it named: {error.message}")
        items = page.get(key)
        if not is_array(items):
            if not seen:
                raise UpstreamError(f"'{upstream.settings.name}': {method} gave no list of {key}")
            return cut(f"has a page without a list of {key}")
        found.extend(item for item in items if is_object(item))
        cursor = page.get("nextCursor")
        if len(found) > MAX_DEFINITIONS:
            return cut(f"has more than {MAX_DEFINITIONS:,} {key}")
        if not isinstance(cursor, str) or cursor in seen:
            return Entries(tuple(found))
        if time.monotonic() > end:
            return cut(f"was not read to its end within {LIST_SECONDS:g} s")
        seen.add(cursor)
        params = {"cursor": cursor}
    return cut(f"has more than {MAX_PAGES:,} pages")
