"""Versions of a source: their running calls, and the differences that clients see between them.

Contracts are compared by hashes of all fields that a client can see. Reads nothing from disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import orjson

from callpact.catalog import Catalog
from callpact.context import (
    Context,
)
from callpact.sources.parts import (
    SourcePart,
)
from callpact.tool import (
    Handler,
    Tool,
)

MOST_NAMED = 5
"""Names in one line of the log; the others are counted."""
Key = tuple[str, str]
"""A kind of offer (`tool`, `resource`, `prompt`), and a name of it."""
_GRACE_SECONDS = 1.0  # A request may have found its tool, and not yet started it.
_IDLE_SECONDS = 0.1  # Between two checks whether the last call has ended.
_log = logging.getLogger("callpact.reload")


def _counted(tool: Tool, calls: set[object]) -> Tool:
    """The same tool; each of its calls is a member of `calls` while it runs."""
    handler: Any = tool.handler

    @contextmanager
    def under_way() -> Generator[None]:
        calls.add(call := object())  # Atomic, as calls may run on another event loop.
        try:
            yield
        finally:
            calls.remove(call)

    async def call(arguments: dict[str, Any], context: Context) -> Any:
        with under_way():
            value = handler(arguments, context)
            return await value if inspect.isawaitable(value) else value

    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        with under_way():
            async with aclosing(handler(arguments, context)) as values:
                async for value in values:
                    yield value

    held: Handler = stream if tool.kind == "subscription" else call
    return replace(tool, handler=held)


class ServedCatalog:
    """The catalog of one version of a source at one endpoint."""

    def __init__(self, prepared: Catalog, calls: set[object]) -> None:
        self.tools = Catalog(
            (_counted(tool, calls) for tool in prepared),
            resources=(replace(r, tool=_counted(r.tool, calls)) for r in prepared.resources),
            prompts=(replace(p, tool=_counted(p.tool, calls)) for p in prepared.prompts),
        )

    @cached_property
    def _hashes(self) -> dict[Key, str]:
        return {key: _hash(tool, *more) for key, tool, more in self._offers()}

    def _offers(self) -> Iterator[tuple[Key, Tool, tuple[object, ...]]]:
        for tool in self.tools:
            yield ("tool", tool.id), tool, ()
        for r in self.tools.resources:
            yield ("resource", r.uri), r.tool, (r.mime_type, r.size)
        for p in self.tools.prompts:
            yield ("prompt", p.tool.id), p.tool, ()

    def served(self, is_served: Callable[[Tool], bool]) -> dict[Key, str]:
        """The hashes of the offers that clients see; thousands of contracts take seconds."""
        return {key: self._hashes[key] for key, tool, _ in self._offers() if is_served(tool)}


class Version:
    """One served version of a source, with a catalog for each endpoint."""

    def __init__(
        self,
        part: SourcePart,
        prepares: Iterable[Callable[[Catalog], Catalog]],
        former: Version | None = None,
    ) -> None:
        """`former` is the version of the same part that it replaces, with its running calls."""
        self.part = part
        self.calls: set[object] = set() if former is None else former.calls
        """The calls that run now."""
        self.catalogs = tuple(
            ServedCatalog(prepare(part.catalog), self.calls) for prepare in prepares
        )
        self._open = part.source if part.trouble is None else None

    async def retire(self) -> None:
        """Close its source when its last call has ended, or when this is cancelled."""
        try:
            await asyncio.sleep(_GRACE_SECONDS)
            while self.calls:  # noqa: ASYNC110 - calls may end on another event loop
                await asyncio.sleep(_IDLE_SECONDS)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close its source, once; an exception is logged."""
        source, self._open = self._open, None
        try:
            if source is not None:
                await source.aclose()
        except Exception:  # noqa: BLE001 - boundary: a third-party source must not end the watcher
            _log.exception("%s: its version from before could not be closed", self.part.wanted.ref)


def _hash(tool: Tool, *more: Any) -> str:
    """A hash of all that a client can see of a tool, and of its access rules."""
    contract, access, disabled = tool.contract, tool.access, tool.disabled
    shown = [
        *(tool.id, tool.wire_name, tool.title, tool.description, tool.version, tool.kind),
        *(contract.input, contract.output, contract.policy, contract.input_policy),
        *(dict(tool.annotations), dict(tool.definition), tool.tags, repr(access), repr(disabled)),
        *more,
    ]
    try:
        text = orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # Annotations may hold anything.
        text = repr(shown).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def lost(old: SourcePart, new: SourcePart) -> str:
    """The first error at a place that had tools and no error before; empty without one."""
    hurt = {found.place for found in old.report if found.severity == "error"}
    offers = (*old.catalog.resources, *old.catalog.prompts)
    sources = {tool.source for tool in (*old.catalog, *(offer.tool for offer in offers))}
    whole = (sources | {source.partition(":")[2] for source in sources}) - hurt
    for found in new.report:
        if found.severity == "error" and found.place in whole:
            line = "" if found.line is None else f":{found.line}"
            return f"{found.place}{line}: {found.message}"
    return ""


@dataclass(slots=True)
class VersionChange:
    """The difference between two sets of served versions."""

    added: list[Key]
    removed: list[Key]
    changed: list[Key]
    updated: list[str]

    def of(self, kind: str) -> bool:
        """True if the list of this kind of offer differs."""
        return any(key[0] == kind for key in (*self.added, *self.removed, *self.changed))

    def __str__(self) -> str:
        named = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        parts = [f"{word} {few(name for _, name in keys)}" for word, keys in named if keys]
        return "; ".join(parts) or "for clients nothing has changed"


def compared(
    old: Iterable[ServedCatalog],
    new: Iterable[ServedCatalog],
    read: Iterable[ServedCatalog],
    is_served: Callable[[Tool], bool],
) -> VersionChange:
    """The difference that clients see; `read` are of the new versions whose own files changed."""
    before = {key: known for catalog in old for key, known in catalog.served(is_served).items()}
    after = {key: known for catalog in new for key, known in catalog.served(is_served).items()}
    kept = [key for key in after if key in before]
    resources = [resource for catalog in read for resource in catalog.tools.resources]
    fixed = {("resource", resource.uri) for resource in resources if not resource.is_template}
    return VersionChange(
        [key for key in after if key not in before],
        [key for key in before if key not in after],
        [key for key in kept if after[key] != before[key]],
        [key[1] for key in kept if key in fixed],
    )


def few(names: Iterable[str]) -> str:
    """A few names on one line of the log, and the number of the others."""
    every = list(names)
    more = f" and {len(every) - MOST_NAMED:,} more" if len(every) > MOST_NAMED else ""
    return ", ".join(every[:MOST_NAMED]) + more
