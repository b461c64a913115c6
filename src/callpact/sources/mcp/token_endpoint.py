"""Access tokens for MCP servers: client credentials (RFC 6749) and token exchange (RFC 8693).

`TokenEndpoint` finds the endpoint and asks it; a `TokenGrant` keeps one token fresh. Requests go
through `net`, within its address rules, and follow no redirect. No text shows a token, a secret or
a body of the endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

from msgspec import Struct

from callpact.errors import AccessDenied, CallError, InvalidConfig, UpstreamError
from callpact.net import HttpTransport, Limits, Request, Response
from callpact.net.address import Refused, place_of
from callpact.net.oauth_metadata import (
    BadMetadata,
    checked_place,
    fetch_object,
    issuer_address,
    read_object,
    resource_urls,
)
from callpact.net.oauth_token import token_request
from callpact.schema import is_array
from callpact.secrets.sealed_token import SealedToken
from callpact.sources.credentials import ACCESS_TOKEN_TYPE, OAuthClient
from callpact.sources.mcp.server_settings import ServerSettings, is_bound_to

TOKEN_SECONDS = 10.0
"""Seconds for getting one token from a token endpoint, with discovery."""
MAX_TOKEN_RESPONSE = 65_536
"""Size of a response of a token endpoint or of its metadata."""
DEFAULT_TOKEN_LIFE = 300.0
"""Seconds that a token is used if its response does not say how long it is valid."""
REFRESH_SECONDS = 30.0
"""Seconds before its end at which a token is renewed; a tenth of its life, if that is less."""
RETRY_SECONDS = 1.0
"""Seconds between two requests for the same token, after one that failed."""

_LIMITS = Limits(
    body_bytes=MAX_TOKEN_RESPONSE,
    decoded_bytes=MAX_TOKEN_RESPONSE,
    total_seconds=TOKEN_SECONDS,
    redirects=0,
)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_CHALLENGE = re.compile(r'resource_metadata="([^"]{1,2000})"')
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_OF_CALLER = {
    "access_denied",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
}
_ERRORS = {*_OF_CALLER, "invalid_client", "unauthorized_client", "unsupported_grant_type"}
_PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
_log = logging.getLogger("callpact.sources.mcp")


class IssuedToken(Struct, frozen=True):
    """A token, and the seconds that it is valid for."""

    value: str
    seconds: float

    def __repr__(self) -> str:
        return f"IssuedToken(***, {self.seconds:g} s)"


class TokenEndpoint:
    """The token endpoint of one OAuth client.

    Raises:
        InvalidConfig: an address cannot be used.
        SourceRefused: the HTTP client is not installed.
    """

    def __init__(self, settings: ServerSettings, client: OAuthClient) -> None:
        self._name = settings.name
        self._resource = settings.url
        self._hosts = settings.hosts
        self._client = client
        for key, url in (("token_url", client.token_url), ("issuer", client.issuer)):
            if url is not None:
                checked_place(key, url, settings.hosts)
        self._url = client.token_url
        self._transport = HttpTransport(_LIMITS, settings.hosts)

    async def obtain(self, subject: SealedToken | None) -> IssuedToken:
        """Ask for a token of the client itself, or in exchange for a subject.

        Raises:
            AccessDenied: the endpoint gives the subject no token.
            CallError: the endpoint cannot be found or used.
        """
        deadline = (time.time() + TOKEN_SECONDS) * 1_000
        try:
            url = self._url or await self._discovered(deadline)
            checked_place("token_endpoint", url, self._hosts)
        except (BadMetadata, InvalidConfig) as error:
            raise self._error(f"has no token endpoint that can be used: {error}") from None
        if not is_bound_to(self._client.secret_hosts, url):
            raise self._error("has a token endpoint that its client_secret is not bound to (keys)")
        response = await self._transport.send(self._request(url, subject), deadline=deadline)
        if response.status != 200:
            raise self._refusal(response, is_of_caller=subject is not None)
        self._url = url
        return self._token(response)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def _request(self, url: str, subject: SealedToken | None) -> Request:
        client = self._client
        form = {"resource": self._resource}  # RFC 8707
        if subject is None:
            form["grant_type"] = "client_credentials"
        else:
            form["grant_type"] = _EXCHANGE
            form["subject_token"] = subject.reveal()
            form["subject_token_type"] = client.subject_token_type or ACCESS_TOKEN_TYPE
            form["requested_token_type"] = ACCESS_TOKEN_TYPE
        if client.scopes:
            form["scope"] = " ".join(client.scopes)
        if client.audience is not None:
            form["audience"] = client.audience
        return token_request(
            url,
            form,
            client_id=client.client_id,
            client_secret=client.client_secret,
            client_auth=client.client_auth,
        )

    def _refusal(self, response: Response, *, is_of_caller: bool) -> CallError:
        try:
            given = read_object(response.body).get("error")
        except BadMetadata:
            given = None
        # Only known codes are shown: the endpoint could repeat a secret.
        code = f" ({given})" if isinstance(given, str) and given in _ERRORS else ""
        if is_of_caller and given in _OF_CALLER and response.status < 500:
            return AccessDenied(f"'{self._name}': its token endpoint gives you no token{code}")
        return self._error(f"gets no token: its token endpoint answers {response.status}{code}")

    def _token(self, response: Response) -> IssuedToken:
        try:
            found = read_object(response.body)
        except BadMetadata as error:
            raise self._error(f"gets no token: {error}") from None
        value, kind = found.get("access_token"), found.get("token_type")
        seconds = found.get("expires_in")
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            raise self._error("gets no token: the response has no access_token that can be sent")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._error("gets no token: the token_type of the response is not Bearer")
        if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            seconds = DEFAULT_TOKEN_LIFE
        return IssuedToken(value, seconds)

    def _error(self, text: str) -> UpstreamError:
        return UpstreamError(f"'{self._name}' {text}", details={"server": self._name})

    # --- discovery --------------------------------------------------------------------------

    async def _discovered(self, deadline: float) -> str:
        """Return the token endpoint of the issuer, which is configured or named by the server."""
        issuer = self._client.issuer or await self._issuer(deadline)
        return await issuer_address(
            self._transport, issuer, "token_endpoint", self._hosts, deadline
        )

    async def _issuer(self, deadline: float) -> str:
        """Return the first issuer in the server's metadata (RFC 9728)."""
        wrong, missing = "", "the server has no metadata"
        for url in await self._metadata_urls(deadline):
            try:
                found = await fetch_object(
                    self._transport, "resource_metadata", url, self._hosts, deadline
                )
            except BadMetadata as error:
                missing = str(error)
                continue
            issuers = found.get("authorization_servers")
            first: Any = issuers[0] if is_array(issuers) and issuers else None
            if not _is_about(found.get("resource"), self._resource):
                wrong = "the server's metadata is that of another resource"
            elif not isinstance(first, str):
                wrong = "the server's metadata names no authorization server"
            else:
                return first
        raise BadMetadata(f"{wrong or missing}; name its issuer or token_url")

    async def _metadata_urls(self, deadline: float) -> list[str]:
        """Return the addresses of the server's metadata; first the one in its challenge."""
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        asked = Request("POST", self._resource, headers, _PING)
        response = await self._transport.send(asked, deadline=deadline)
        named = _CHALLENGE.search(response.headers.get("www-authenticate", ""))
        usual = resource_urls(checked_place("url", self._resource, self._hosts))
        return [*([named[1]] if named is not None else []), *usual]


def _is_about(resource: object, url: str) -> bool:
    """True if a protected resource is the server at a URL, or a path above it."""
    try:
        named, server = place_of(resource if isinstance(resource, str) else ""), place_of(url)
    except Refused:
        return False
    above = named.tail.rstrip("/") + "/"
    return named.origin == server.origin and f"{server.tail.rstrip('/')}/".startswith(above)


class TokenGrant:
    """One token, of the client itself or of one caller: obtained on demand, and renewed."""

    def __init__(self, endpoint: TokenEndpoint, subject: SealedToken | None = None) -> None:
        self._endpoint = endpoint
        self._subject = subject
        self.value = ""
        self.seen: tuple[str, ...] = ()
        """The latest two tokens; they are masked in answers."""
        self._accepted = ""
        self._stale_at = self._ends_at = self._asked_at = 0.0
        self._failure: CallError | None = None
        self._obtaining: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Obtain a token, unless there is one that stays valid for a while.

        Raises:
            CallError: there is none; `AccessDenied` if the caller gets none.
        """
        if self.value and time.monotonic() < self._stale_at:
            return
        try:
            await self._obtain()
        except CallError as error:
            if not self.value or time.monotonic() >= self._ends_at:
                raise
            _log.warning("a token is used to its end, as it cannot be renewed: %s", error)

    def accept(self, value: str) -> None:
        """Note that the server took a token."""
        self._accepted = value

    async def renew(self, refused: str) -> str | None:
        """Return another token than the one that the server refused; None if there is none.

        A new token that the server has never taken is not replaced at once by the next.
        """
        if self.value == refused:
            is_new = time.monotonic() - self._asked_at < RETRY_SECONDS
            if is_new and self._accepted != refused:
                return None
            try:
                await self._obtain()
            except CallError as error:
                _log.warning("a refused token cannot be renewed: %s", error)
        return None if self.value == refused else self.value

    async def _obtain(self) -> None:
        """Ask the endpoint once for all that wait; a failure is repeated for a moment."""
        if self._obtaining is None:
            if self._failure is not None and time.monotonic() - self._asked_at < RETRY_SECONDS:
                raise self._failure
            self._obtaining = asyncio.create_task(self._ask(), name="callpact mcp token")
        await asyncio.shield(self._obtaining)
        if self._failure is not None:
            raise self._failure

    async def _ask(self) -> None:
        self._failure = None
        try:
            found = await self._endpoint.obtain(self._subject)
        except CallError as error:
            self._failure = error
        else:
            now = time.monotonic()
            self.value, self.seen = found.value, (found.value, *self.seen[:1])
            self._ends_at = now + found.seconds
            self._stale_at = self._ends_at - min(REFRESH_SECONDS, found.seconds / 10)
        finally:
            self._asked_at = time.monotonic()
            self._obtaining = None

    async def aclose(self) -> None:
        """Stop asking."""
        if self._obtaining is not None:
            self._obtaining.cancel()
            await asyncio.gather(self._obtaining, return_exceptions=True)
