"""The sessions at one MCP server: one for its lists, and one for each credential of callers.

A caller's request never uses the credential or the session of another, nor the one for lists; a
caller without a credential is refused before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec.structs import replace

from callpact.context import Context, Identity
from callpact.errors import AccessDenied, Failed, UpstreamError
from callpact.schema.json_text import json_text
from callpact.secrets.sealed_token import SealedToken
from callpact.sources.credentials import credential_of
from callpact.sources.mcp.server_settings import ServerSettings
from callpact.sources.mcp.token_endpoint import TokenEndpoint, TokenGrant
from callpact.sources.mcp.upstream import Upstream

MAX_CALLER_SESSIONS = 100
"""Sessions of callers at one MCP server; for one more, the longest idle one is closed."""
IDLE_SESSION_SECONDS = 300.0
"""Seconds after which an idle session of a caller is closed, with the next request of any caller."""


class CallerSession:
    """The session of one credential, and the requests on it."""

    def __init__(self, upstream: Upstream, owner: str) -> None:
        self.upstream = upstream
        self.owner = owner
        """The id of the caller that opened it."""
        self.requests = 0
        self.used_at = time.monotonic()


class UpstreamPool:
    """A server, and the sessions at it.

    Raises:
        InvalidConfig: an address of its OAuth client cannot be used.
        SourceRefused: the HTTP client for a token endpoint is not installed.
    """

    def __init__(
        self,
        settings: ServerSettings,
        on_change: Callable[[], None],
        *,
        most: int = MAX_CALLER_SESSIONS,
        idle_seconds: float = IDLE_SESSION_SECONDS,
    ) -> None:
        self.settings = settings
        self._most = most
        self._idle_seconds = idle_seconds
        oauth = settings.oauth
        self._endpoint = None if oauth is None else TokenEndpoint(settings, oauth)
        has_own = any(name.lower() == "authorization" for name in settings.headers)
        own = None if self._endpoint is None or has_own else TokenGrant(self._endpoint)
        self.shared = Upstream(settings, on_change, own)
        """The session with the source's own credential: for lists, and for calls unless every
        caller needs a credential."""
        self._sessions: dict[bytes, CallerSession] = {}
        """By the digest of the credential, the least recently used first."""
        self._closing: set[asyncio.Task[None]] = set()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        context: Context | None = None,
        identity: Identity | None = None,
        header_map: Mapping[tuple[str, ...], str] | None = None,
    ) -> dict[str, Any]:
        """Send a request of a caller, and return the result as the server sent it.

        The caller is that of the `context`; `identity` is for requests without one.

        Raises:
            AccessDenied: the caller has no credential.
            CallError: as `Upstream.request`; `overloaded` if there is no session for the caller.
        """
        if not self.settings.is_per_caller:
            upstream = self.shared
            return await upstream.request(method, params, context=context, header_map=header_map)
        caller = identity if context is None else context.identity
        with self._session(caller) as upstream:
            return await upstream.request(method, params, context=context, header_map=header_map)

    async def follow(self, uri: str, on_update: Callable[[], None]) -> Callable[[], None]:
        """Call a function at each change of a resource; the function returned ends that.

        Raises:
            CallError: as `ResourceUpdates.follow`; also if every caller needs a credential.
        """
        if self.settings.is_per_caller:
            raise UpstreamError(
                f"'{self.settings.name}' has credentials of callers; changes of its resources are "
                "not followed"
            )
        return await self.shared.updates.follow(uri, on_update)

    @contextlib.contextmanager
    def _session(self, identity: Identity | None) -> Generator[Upstream]:
        if identity is None:
            raise AccessDenied(
                f"'{self.settings.name}' needs a credential of its caller, and this call has no "
                "caller; serve it over HTTP with tokens ([serve.tokens] or [serve.oauth])"
            )
        self._close_idle()
        key, settings, subject = self._credential(identity)
        session = self._sessions.pop(key, None)
        if session is None:
            self._make_room(identity.id)
            grant = None
            if self._endpoint is not None and subject is not None:
                grant = TokenGrant(self._endpoint, subject)
            session = CallerSession(Upstream(settings, token=grant), identity.id)
        self._sessions[key] = session
        session.requests += 1
        try:
            yield session.upstream
        finally:
            session.requests -= 1
            session.used_at = time.monotonic()

    def _credential(self, identity: Identity) -> tuple[bytes, ServerSettings, SealedToken | None]:
        """The digest of a caller's credential, its settings, and the subject of its exchange.

        Raises:
            AccessDenied: there is none.
        """
        settings, oauth = self.settings, self.settings.oauth
        if oauth is not None and oauth.exchange is not None:
            subject = SealedToken(identity.id) if oauth.exchange == "id" else identity.token
            if subject is None:
                raise AccessDenied(
                    f"'{settings.name}' needs a token of an issuer to exchange, and the call came "
                    "with none; callers need tokens of the issuer in [serve.oauth]"
                )
            return subject.digest, replace(settings, headers={}), subject
        found = credential_of(settings.callers, identity)
        if found is None:
            raise AccessDenied(
                f"'{settings.name}' has no credential for you; its operator adds one: "
                f"[[sources.{settings.name}.callers]] with your id or a scope of yours"
            )
        headers = json_text(sorted(found.headers.items()))
        # The source's own headers may be its credential for lists: none of them goes along.
        made = replace(settings, headers=found.headers, secrets=(*settings.secrets, *found.secrets))
        return hashlib.sha256(headers.encode()).digest(), made, None

    # --- room -------------------------------------------------------------------------------

    def _close_idle(self) -> None:
        before = time.monotonic() - self._idle_seconds
        for key, session in list(self._sessions.items()):
            if not session.requests and session.used_at < before:
                self._close(key)

    def _make_room(self, owner: str) -> None:
        """Close an idle session if there are too many; no caller holds more than half of them.

        Raises:
            Failed: `overloaded`, if none is idle.
        """
        held = Counter(session.owner for session in self._sessions.values())
        is_greedy = held[owner] >= max(1, self._most // 2)
        if not is_greedy and len(self._sessions) < self._most:
            return
        idle = [key for key, session in self._sessions.items() if not session.requests]
        own = [key for key in idle if self._sessions[key].owner == owner]
        found = own if is_greedy else own or idle
        if not found:
            raise Failed(
                "overloaded",
                f"'{self.settings.name}': all {len(self._sessions)} sessions of callers are in use",
            )
        self._close(found[0])

    def _close(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        task = asyncio.create_task(session.upstream.aclose(), name="callpact mcp closes a session")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Close all sessions."""
        for key in tuple(self._sessions):
            self._close(key)
        await asyncio.gather(*self._closing, self.shared.aclose(), return_exceptions=True)
        if self._endpoint is not None:
            await self._endpoint.aclose()
