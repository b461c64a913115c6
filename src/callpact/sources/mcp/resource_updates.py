"""The resources of one MCP server that are followed, and whom to notify of their changes.

A server of the handshake era is sent `resources/subscribe`; a later one has one stream for all
addresses, which is opened anew when they change. Both are restored with a new connection; as changes
in between were missed, every follower is notified then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from mcp.shared.exceptions import MCPError

from callpact.errors import CallError, UpstreamError
from callpact.schema import is_object
from callpact.sources.mcp.connection import Connection
from callpact.sources.mcp.server_settings import ServerSettings

MAX_FOLLOWED = 1_000
"""Resources of one server that are followed at a time."""

# Seconds before a stream or connection that ended is opened again, at least.
_PAUSE_SECONDS = 0.5
_log = logging.getLogger("callpact.sources.mcp")


class UpdatesServer(Protocol):
    """The server as this module needs it."""

    settings: ServerSettings

    @property
    def pause(self) -> float:
        """Seconds until the server is tried again."""
        ...

    async def connection(self) -> Connection:
        """The open connection, or a new one."""
        ...

    def request(self, method: str, params: Any = None) -> Awaitable[dict[str, Any]]:
        """Send a request."""
        ...


class ResourceUpdates:
    """The followed addresses of one server."""

    def __init__(self, server: UpdatesServer) -> None:
        self._server = server
        self._followers: dict[str, dict[object, Callable[[], None]]] = {}
        self._connection: Connection | None = None
        self._stream: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def follow(self, uri: str, on_update: Callable[[], None]) -> Callable[[], None]:
        """Call a function at each change of a resource; the function returned ends that.

        Raises:
            CallError: the server cannot be reached, does not offer it, or refuses.
        """
        key = object()
        async with self._lock:
            held = self._followers.get(uri)
            if held is None:
                if len(self._followers) >= MAX_FOLLOWED:
                    raise self._error(f"{MAX_FOLLOWED:,} of its resources are followed already")
                held = self._followers[uri] = {}
                try:
                    await self._begin(await self._server.connection(), uri)
                except BaseException:
                    del self._followers[uri]
                    raise
            held[key] = on_update

        def release() -> None:
            if held.pop(key, None) is not None and not held:
                del self._followers[uri]
                self._start(self._end(uri))

        return release

    def updated(self, uri: object) -> None:
        """Notify the followers of an address, or of one that contains it."""
        if not isinstance(uri, str):
            return
        found = [uri] if uri in self._followers else self._containing(uri)
        for each in found:
            for on_update in tuple(self._followers[each].values()):
                on_update()

    def connected(self, connection: Connection) -> None:
        """Restore all subscriptions on a new connection."""
        self._connection = connection
        if self._followers:
            self._start(self._restore(connection))

    def lost(self, connection: Connection) -> None:
        """The connection is gone: open another if somebody follows."""
        if self._connection is connection:
            self._connection = None
            self._close_stream()
            if self._followers:
                self._start(self._reconnect())

    async def aclose(self) -> None:
        """End everything."""
        self._followers.clear()
        self._close_stream()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _containing(self, uri: str) -> list[str]:
        return [each for each in self._followers if uri.startswith(f"{each.rstrip('/')}/")]

    def _error(self, text: str) -> UpstreamError:
        return UpstreamError(f"'{self._server.settings.name}': {text}")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"callpact mcp follows {self._server.settings.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _begin(self, connection: Connection, uri: str) -> None:
        if connection.is_modern:
            if uri not in await self._open_stream(connection):
                raise self._error(f"does not report changes of {uri[:200]}")
            return
        offered = connection.capabilities.get("resources")
        if not is_object(offered) or offered.get("subscribe") is not True:
            raise self._error("does not report changes of single resources")
        await self._server.request("resources/subscribe", {"uri": uri})

    async def _end(self, uri: str) -> None:
        connection = self._connection
        if connection is None:
            return
        with suppress(CallError, MCPError):
            if not connection.is_modern:
                seconds = self._server.settings.call_seconds
                await connection.request("resources/unsubscribe", {"uri": uri}, seconds=seconds)
            elif self._followers:
                async with self._lock:
                    await self._open_stream(connection)
            else:
                self._close_stream()

    async def _restore(self, connection: Connection) -> None:
        try:
            if connection.is_modern:
                async with self._lock:
                    await self._open_stream(connection)
            else:
                for uri in tuple(self._followers):
                    await self._begin(connection, uri)
        except CallError as error:
            _log.warning("%s: changes of its resources are not reported: %s", self._name, error)
            return
        self._missed()

    async def _reconnect(self) -> None:
        while self._followers and self._connection is None:
            await asyncio.sleep(max(self._server.pause, _PAUSE_SECONDS) * (1 + random.random()))  # noqa: S311 - jitter
            with suppress(CallError):
                await self._server.connection()

    async def _open_stream(self, connection: Connection) -> frozenset[str]:
        """Open a stream for all addresses, then close the one before; returns those it reports."""
        ready: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        stream = self._start(self._read(connection, tuple(self._followers), ready))
        try:
            async with asyncio.timeout(self._server.settings.call_seconds):
                reported = await ready
        except BaseException as error:
            stream.cancel()
            if isinstance(error, TimeoutError):
                raise self._error("did not open a stream of changes in time") from None
            raise
        self._close_stream()
        self._stream = stream
        return reported

    async def _read(
        self, connection: Connection, uris: tuple[str, ...], ready: asyncio.Future[frozenset[str]]
    ) -> None:
        while True:
            try:
                async with connection.changes(uris) as events:
                    if ready.done():
                        self._missed()
                    else:
                        ready.set_result(frozenset(events.honored.resource_subscriptions or ()))
                    async for event in events:
                        self.updated(event.uri)
            except (MCPError, RuntimeError) as error:  # RuntimeError: the SDK's SubscriptionLost.
                # The server's own words may repeat a credential that it was sent.
                reason = f"error {error.code}" if isinstance(error, MCPError) else "no stream"
                if not ready.done():
                    ready.set_exception(self._error(f"does not report changes ({reason})"))
                    return
                _log.debug("%s: its stream of changes ended (%s)", self._name, reason)
            await asyncio.sleep(_PAUSE_SECONDS * (1 + random.random()))  # noqa: S311 - jitter

    def _missed(self) -> None:
        """Notify of all addresses: there may have been changes that nobody reported."""
        for uri in tuple(self._followers):
            self.updated(uri)

    @property
    def _name(self) -> str:
        return self._server.settings.name
