"""Versions of a source: which calls they have under way, and what clients see of them.

Contracts are compared by hashes of all that a client can see. Nothing is read from disk here.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import orjson

from callpact.catalog import Catalog
from callpact.context import Context
from callpact.sources.loaded import Finding
from callpact.sources.parts import (
    Part,
)
from callpact.tool import (
    Handler,
    Tool,
)

MOST_NAMED = 5
"""Names in one line of the log; the rest is counted."""
Key = tuple[str, str]
"""A kind of offer (`tool`, `resource`, `prompt`), and a name of it."""
_log = logging.getLogger("callpact.watching")


class Lease:
    """How many calls of a version are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._idle: Callable[[], object] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls and self._idle is not None:
                self._idle()

    async def until_idle(self) -> None:
        """Wait until no call is under way."""
        loop, idle = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if not self._calls:
                return
            self._idle = lambda: loop.call_soon_threadsafe(idle.set)
        await idle.wait()


def _leased(tool: Tool, lease: Lease) -> Tool:
    """The same tool; its calls are counted."""
    handler = cast("Any", tool.handler)

    async def call(arguments: dict[str, Any], context: Context) -> Any:
        with lease:
            value = handler(arguments, context)
            return await value if inspect.isawaitable(value) else value

    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        with lease:
            values = handler(arguments, context)
            try:
                async for value in values:
                    yield value
            finally:
                await values.aclose()

    held: Handler = stream if tool.kind == "subscription" else call
    return replace(tool, handler=held)


class Version:
    """One version of a source, as it is served."""

    def __init__(self, part: Part, prepare: Callable[[Catalog], Catalog]) -> None:
        self.part = part
        self._is_closed = part.source is None or part.trouble is not None
        self.lease = lease = Lease()
        held = prepare(part.catalog)
        self.catalog = Catalog(
            (_leased(tool, lease) for tool in held),
            resources=(replace(r, tool=_leased(r.tool, lease)) for r in held.resources),
            prompts=(replace(p, tool=_leased(p.tool, lease)) for p in held.prompts),
        )

    @cached_property
    def hashes(self) -> dict[Key, str]:
        """Of each contract that it offers, by kind and name. Thousands take seconds."""
        found = {("tool", tool.id): _hash(tool) for tool in self.catalog}
        for r in self.catalog.resources:
            found["resource", r.uri] = _hash(r.tool, r.mime_type, r.size)
        for p in self.catalog.prompts:
            found["prompt", p.tool.id] = _hash(p.tool)
        return found

    def served(self, is_served: Callable[[Tool], bool]) -> dict[Key, str]:
        """The hashes of what clients see."""
        seen = {("tool", tool.id) for tool in self.catalog if is_served(tool)}
        seen |= {("resource", r.uri) for r in self.catalog.resources if is_served(r.tool)}
        seen |= {("prompt", p.tool.id) for p in self.catalog.prompts if is_served(p.tool)}
        return {key: known for key, known in self.hashes.items() if key in seen}

    def fixed(self) -> set[str]:
        """The addresses of its resources that have no variables."""
        return {r.uri for r in self.catalog.resources if not r.is_template}

    async def aclose(self) -> None:
        """Close its source; whatever happens is logged."""
        source, is_closed = self.part.source, self._is_closed
        self._is_closed = True
        if source is None or is_closed:
            return
        try:
            await source.aclose()
        except Exception:  # noqa: BLE001 - boundary: a source of others must not end the watching
            _log.exception("%s: its version from before could not be closed", self.part.wanted.ref)


def _hash(tool: Tool, *more: Any) -> str:
    """Of all that a client can see of a tool, or that decides whether it sees it."""
    contract, access, disabled = tool.contract, tool.access, tool.disabled
    shown = [
        *(tool.id, tool.wire_name, tool.title, tool.description, tool.version, tool.kind),
        *(contract.input, contract.output, contract.policy, contract.input_policy),
        *(dict(tool.annotations), tool.tags, repr(access), repr(disabled), *more),
    ]
    try:
        text = orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # Annotations may hold anything.
        text = repr(shown).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def lost(old: Part, new: Part) -> Finding | None:
    """What is wrong where tools of the version from before are, and nothing was wrong."""
    hurt = {found.place for found in old.report if found.severity == "error"}
    offers = (*old.catalog.resources, *old.catalog.prompts)
    sources = {tool.source for tool in (*old.catalog, *(offer.tool for offer in offers))}
    whole = (sources | {source.partition(":")[2] for source in sources}) - hurt
    for found in new.report:
        if found.severity == "error" and found.place in whole:
            return found
    return None


@dataclass(slots=True)
class Change:
    """The difference between what was and what is served."""

    added: list[Key]
    removed: list[Key]
    changed: list[Key]
    updated: list[str]

    def of(self, kind: str) -> bool:
        """True if the list of tools, resources or prompts is another."""
        return any(key[0] == kind for key in (*self.added, *self.removed, *self.changed))

    def __str__(self) -> str:
        told = [
            f"{word} {few(name for _, name in keys)}"
            for word, keys in (
                ("added", self.added),
                ("removed", self.removed),
                ("changed", self.changed),
            )
            if keys
        ]
        return "; ".join(told) or "for clients nothing has changed"


def compared(
    old: Iterable[Version],
    new: Iterable[Version],
    read: Iterable[Version],
    is_served: Callable[[Tool], bool],
) -> Change:
    """What clients see differently; `read` are those of the new whose files changed."""
    before: dict[Key, str] = {}
    after: dict[Key, str] = {}
    for version in old:
        before |= version.served(is_served)
    for version in new:
        after |= version.served(is_served)
    kept = [key for key in after if key in before]
    fixed = {("resource", uri) for version in read for uri in version.fixed()}
    return Change(
        [key for key in after if key not in before],
        [key for key in before if key not in after],
        [key for key in kept if after[key] != before[key]],
        [key[1] for key in kept if key in fixed],
    )


def few(names: Iterable[str]) -> str:
    """Names on one line of the log."""
    every = list(names)
    more = f" and {len(every) - MOST_NAMED:,} more" if len(every) > MOST_NAMED else ""
    return ", ".join(every[:MOST_NAMED]) + more
