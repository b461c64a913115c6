"""`callpact lock`: pin the definitions of MCP servers, and accept their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, cast

from callpact.cli.contracts.diff_command import print_changes
from callpact.cli.output import counted, fail, out, plain
from callpact.contracts import CatalogDiff, diff_catalogs

if TYPE_CHECKING:
    from callpact.app import Session
    from callpact.sources.mcp.definitions import Definitions
    from callpact.sources.mcp.mcp_source import McpSource
    from callpact.sources.mcp.pins import PinChange, PinnedSource


async def update_lock(session: Session, accept: Collection[str]) -> bool:
    """Pin new servers, print the changes of pinned ones, and accept those that are named.

    Every change is printed as text, and those of contracts classified too.

    Returns False if changes are left that were not accepted.

    Raises:
        CallpactError: a server cannot be reached, or the lock file cannot be used.
    """
    from callpact.sources.mcp.mcp_source import LOCK_FILE, McpSource
    from callpact.sources.mcp.pins import compare, describe, read_lock, updated, write_lock

    sources = [source for source in session.loaded.sources if isinstance(source, McpSource)]
    if not sources:
        fail("no MCP server is among the sources; there is nothing to pin")
    path = session.configuration.folder / LOCK_FILE
    lock, is_whole = read_lock(path), True
    for source in sources:
        for name, found in (await source.definitions()).items():
            definitions = cast("Any", found.plain())
            pinned = lock.sources.get(name)
            if pinned is None:
                lock = updated(lock, name, definitions)
                out.print(f"{plain(name)}: {counted(len(found.tools))} pinned")
                continue
            changes = compare(pinned, definitions)
            wanted = {
                change.label
                for change in changes
                if "*" in accept or {change.label, change.name, change.previous or ""} & {*accept}
            }
            for change in changes:
                mark = "accepted" if change.label in wanted else "not accepted"
                out.print(f"{plain(name)}: {plain(change.label)} ({change.kind}, {mark})")
                for line in describe(change):
                    out.print(f"  {plain(line)}", highlight=False)
            # In a thread: proofs take seconds, and the connections stay answered.
            compared = await asyncio.to_thread(_compared, source, name, pinned, found, changes)
            print_changes(compared)
            lock = updated(lock, name, definitions, accept=sorted(wanted))
            if not changes:
                out.print(f"{plain(name)}: as pinned")
            is_whole = is_whole and len(wanted) == len(changes)
    write_lock(path, lock)
    return is_whole


def _compared(
    source: McpSource,
    name: str,
    pinned: PinnedSource,
    found: Definitions,
    changes: Collection[PinChange],
) -> CatalogDiff:
    """The changes of the contracts of changed definitions."""
    from callpact.sources.mcp.definitions import Definitions
    from callpact.sources.mcp.pins import concerned, pinned_definitions

    before, after = (
        source.catalog_of(name, Definitions(**concerned(each, changes)))
        for each in (pinned_definitions(pinned), found.plain())
    )
    return diff_catalogs(before, after)
