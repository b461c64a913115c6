"""Notifications of changes to clients, in both eras of the protocol.

Clients of the handshake era are notified on their session, later ones on their notification stream.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import anyio
import mcp_types as types
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from callpact.errors import CallError
from callpact.resources import MAX_URI_LENGTH
from callpact.serve.mcp.views import is_modern

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

    from mcp.server import ServerRequestContext
    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.subscriptions import SubscriptionBus

    from callpact.context import LogLevel
    from callpact.resources import Follow

MAX_SUBSCRIBED = 1_000
"""Resources that one session may subscribe to."""
MAX_SUBSCRIBED_BY_CALLER = 10_000
"""Resources that all sessions of one caller may subscribe to."""
UPDATE_SECONDS = 0.2
"""Seconds between two notifications of the same changed resource, at least."""
_SEND_SECONDS = 2
_log = logging.getLogger("callpact.serve.mcp")


class _Followed:
    """A resource of elsewhere that sessions follow, and the function that ends it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.sessions: WeakSet[Connection] = WeakSet()


class ChangeNotifier:
    """The sessions to notify, with the subscriptions and the log level of each."""

    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus
        self._sessions: WeakSet[Connection] = WeakSet()
        self._levels: WeakKeyDictionary[Connection, LogLevel] = WeakKeyDictionary()
        self._subscribed: WeakKeyDictionary[Connection, set[str]] = WeakKeyDictionary()
        self._by_caller: dict[str | None, WeakSet[Connection]] = {}
        self._followed: dict[str, _Followed] = {}
        self._updated: set[str] = set()
        self._announcing: asyncio.Task[None] | None = None

    async def notice(self, ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
        """Register the session of a request, as a middleware of the server."""
        if not is_modern(ctx.protocol_version):
            self._sessions.add(_connection(ctx))
        return await call_next(ctx)

    async def announce(
        self,
        *,
        tools: bool = False,
        resources: bool = False,
        prompts: bool = False,
        updated: Iterable[str] = (),
    ) -> None:
        """Notify every client of changed lists and of changed resources."""
        uris = tuple(updated)
        if tools:
            await self._bus.publish(ToolsListChanged())
        if resources:
            await self._bus.publish(ResourcesListChanged())
        if prompts:
            await self._bus.publish(PromptsListChanged())
        for uri in uris:
            await self._bus.publish(ResourceUpdated(uri=uri))

        async def notify(session: Connection) -> None:
            if tools:
                await session.send_tool_list_changed()
            if resources:
                await session.send_resource_list_changed()
            if prompts:
                await session.send_prompt_list_changed()
            for uri in self._subscribed.get(session, set()).intersection(uris):
                await session.send_resource_updated(uri)

        # Concurrently, so that a client that does not read delays no others.
        await asyncio.gather(
            *(self._notified(session, notify) for session in tuple(self._sessions))
        )

    async def _notified(
        self, session: Connection, notify: Callable[[Connection], Awaitable[None]]
    ) -> None:
        try:
            with anyio.fail_after(_SEND_SECONDS):
                await notify(session)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError, TimeoutError):
            _log.debug("a client was gone before it was notified of a change")
            self._sessions.discard(session)

    async def subscribe(
        self,
        context: ServerRequestContext[Any],
        params: types.SubscribeRequestParams,
        caller: str | None = None,
        follow: Follow | None = None,
    ) -> types.EmptyResult:
        """Subscribe a session of a caller to one resource; `follow` reports changes of elsewhere.

        Raises:
            MCPError: there are too many subscriptions, or the resource cannot be followed.
        """
        session = _connection(context)
        held, uri = self._subscribed.setdefault(session, set()), str(params.uri)
        others = self._by_caller.setdefault(caller, WeakSet())
        others.add(session)
        number = sum(len(self._subscribed.get(one, ())) for one in others)
        message = ""
        if len(uri) > MAX_URI_LENGTH:
            message = f"An address has at most {MAX_URI_LENGTH:,} characters"
        elif len(held) >= MAX_SUBSCRIBED and uri not in held:
            message = f"A session may subscribe to {MAX_SUBSCRIBED:,} resources"
        elif number >= MAX_SUBSCRIBED_BY_CALLER and uri not in held:
            message = f"A caller may subscribe to {MAX_SUBSCRIBED_BY_CALLER:,} resources"
        if message:
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        self._by_caller = {one: held for one, held in self._by_caller.items() if held}
        held.add(uri)
        if follow is not None:
            try:
                await self._follow(session, uri, follow)
            except BaseException:
                held.discard(uri)
                raise
        return types.EmptyResult()

    async def _follow(self, session: Connection, uri: str, follow: Follow) -> None:
        self._release()
        if uri not in self._followed:
            try:
                end = await follow(uri, partial(self.update, uri))
            except CallError as error:
                raise MCPError(code=types.INTERNAL_ERROR, message=error.message) from None
            if uri in self._followed:  # Another session was faster.
                end()
            else:
                self._followed[uri] = _Followed(end)
        self._followed[uri].sessions.add(session)

    @asynccontextmanager
    async def following(self, wanted: Mapping[str, Follow | None]) -> AsyncGenerator[list[str]]:
        """Follow resources of elsewhere for one stream; gives those whose changes are reported."""
        ends: list[Callable[[], None]] = []

        async def begin(uri: str, follow: Follow | None) -> bool:
            if follow is None:
                return True
            try:
                ends.append(await follow(uri, partial(self.update, uri)))
            except CallError as error:
                _log.warning("changes of %.200s are not reported: %s", uri, error)
                return False
            return True

        try:
            begun = await asyncio.gather(*(begin(*each) for each in wanted.items()))
            yield [uri for uri, is_followed in zip(wanted, begun, strict=True) if is_followed]
        finally:
            for end in ends:
                end()

    def _release(self) -> None:
        """End what no session follows any more."""
        for uri in [uri for uri, held in self._followed.items() if not held.sessions]:
            self._followed.pop(uri).end()

    def update(self, uri: str) -> None:
        """Notify every client of a changed resource, soon; several changes are one."""
        self._updated.add(uri)
        if self._announcing is None:
            self._announcing = asyncio.create_task(self._announce_updates())

    async def _announce_updates(self) -> None:
        try:
            while self._updated:
                uris, self._updated = self._updated, set()
                await self.announce(updated=uris)
                await asyncio.sleep(UPDATE_SECONDS)
                self._release()
        finally:
            self._announcing = None

    def close(self) -> None:
        """End all subscriptions elsewhere."""
        if self._announcing is not None:
            self._announcing.cancel()
        for held in self._followed.values():
            held.end()
        self._followed.clear()

    async def unsubscribe(
        self, context: ServerRequestContext[Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """End the subscription of a session to one resource."""
        session, uri = _connection(context), str(params.uri)
        self._subscribed.get(session, set()).discard(uri)
        if uri in self._followed:
            self._followed[uri].sessions.discard(session)
            self._release()
        return types.EmptyResult()

    async def set_level(
        self, context: ServerRequestContext[Any], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Set the log level of a session."""
        self._levels[_connection(context)] = params.level
        return types.EmptyResult()

    def level_of(self, context: ServerRequestContext[Any]) -> LogLevel:
        """Return the log level of the session of a request."""
        return self._levels.get(_connection(context), "debug")


def _connection(context: ServerRequestContext[Any]) -> Connection:
    # The session object is made anew for each request; its connection is not public yet.
    return context.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
