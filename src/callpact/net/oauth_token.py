"""Access tokens of OAuth 2.0 for clients that act for themselves: fetched, kept, fetched again.

`token_request` and `fetch_token` are one token request (RFC 6749); `TokenCache` keeps tokens until shortly before they
expire, and fetches each of them once, however many calls wait for it. A client secret is never in an
error, and never follows a redirect to another origin.
"""

from __future__ import annotations

import asyncio
import base64
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from msgspec import Struct

from callpact.errors import UpstreamError
from callpact.net.message import Request, Response, Transport, shown_host
from callpact.net.oauth_metadata import BadMetadata, read_object
from callpact.secrets.masker import Masker

MAX_TOKENS = 1_000
"""Access tokens that are kept; the oldest is dropped for one more."""
MIN_TOKEN_SECONDS = 30.0
"""Seconds before its end at which an access token is fetched again, at most a tenth of its time."""
MAX_TOKEN_CHARACTERS = 16_384
"""Characters that an access token may have."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
# Only known codes are shown: the endpoint could repeat a secret.
_ERRORS = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)

ClientAuth = Literal["basic", "post"]
"""How a client authenticates: HTTP Basic, or its id and secret in the body."""


class AccessToken(Struct, frozen=True):
    """A token, and the time after which it is not used: epoch seconds, infinite if unknown."""

    value: str
    renew_at: float = math.inf

    def __repr__(self) -> str:
        return "AccessToken(***)"


def token_request(
    url: str,
    form: Mapping[str, str],
    *,
    client_id: str,
    client_secret: str | None = None,
    client_auth: ClientAuth = "basic",
) -> Request:
    """A request to a token endpoint, with `grant_type` and the other fields in `form`."""
    fields = dict(form)
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    if client_secret is not None and client_auth == "basic":
        # RFC 6749, section 2.3.1: both are encoded as in a form before they are joined.
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        fields["client_id"] = client_id
        if client_secret is not None:
            fields["client_secret"] = client_secret
    hidden = [each for each in (client_secret, *form.values()) if each]
    return Request(
        "POST",
        url,
        headers,
        urlencode(fields).encode(),
        has_secret_body=True,
        credentials=Masker(hidden),
    )


async def fetch_token(
    transport: Transport, request: Request, *, deadline: float | None = None
) -> AccessToken:
    """Send a token request.

    Raises:
        UpstreamError: there is no token; of the response it shows a known `error` code alone.
        CallError: there is no answer.
    """
    response = await transport.send(request, deadline=deadline)
    return _read_token(response, shown_host(request.url), time.time())


def _read_token(response: Response, host: str, now: float) -> AccessToken:
    try:
        found = read_object(response.body)
    except BadMetadata:
        found = dict[str, Any]()
    if not 200 <= response.status < 300:
        why = found.get("error")
        shown = f": {why}" if isinstance(why, str) and why in _ERRORS else ""
        raise _no_token(host, f"answered with status {response.status}{shown}", response.status)
    value, kind = found.get("access_token"), found.get("token_type", "bearer")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise _no_token(host, "sent no access_token", response.status)
    if len(value) > MAX_TOKEN_CHARACTERS:
        what = f"sent an access_token of more than {MAX_TOKEN_CHARACTERS:,} characters"
        raise _no_token(host, what, response.status)
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise _no_token(host, "sent a token that is no bearer token", response.status)
    return AccessToken(value, now + _seconds(found.get("expires_in")))


def _seconds(given: Any) -> float:
    """The seconds that a token is used; an unreadable lifetime counts as unlimited."""
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        return math.inf
    if isinstance(given, bool) or not math.isfinite(seconds):
        return math.inf
    return max(0.0, seconds - min(MIN_TOKEN_SECONDS, seconds / 10))


def _no_token(host: str, what: str, status: int) -> UpstreamError:
    details = {"reason": "token", "statusCode": status}
    return UpstreamError(f"The token endpoint at '{host}' {what}", details=details)


class TokenCache:
    """Tokens by a key of the caller's choice, for every event loop of the process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: dict[Any, AccessToken] = {}
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, asyncio.Lock]] = (
            WeakKeyDictionary()
        )

    def kept(self, key: Any) -> AccessToken | None:
        """The token under a key, unless it has to be renewed."""
        token = self._tokens.get(key)
        return token if token is not None and self._clock() < token.renew_at else None

    async def token(self, key: Any, fetch: Callable[[], Awaitable[AccessToken]]) -> AccessToken:
        """The token under a key; fetched if there is none, or if it has to be renewed."""
        found = self.kept(key)
        if found is not None:
            return found
        locks = self._locks.setdefault(asyncio.get_running_loop(), {})
        lock = locks.setdefault(key, asyncio.Lock())
        async with lock:
            found = self.kept(key)
            if found is None:
                found = await fetch()
                self._tokens.pop(key, None)
                self._tokens[key] = found
                if len(self._tokens) > MAX_TOKENS:
                    oldest = next(iter(self._tokens))
                    del self._tokens[oldest]
        if not lock.locked():
            locks.pop(key, None)
        return found

    def forget(self, key: Any, token: AccessToken) -> None:
        """Drop a token that was refused, unless a newer one has taken its place."""
        if self._tokens.get(key) is token:
            del self._tokens[key]
