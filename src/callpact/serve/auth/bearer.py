"""Authentication of callers over HTTP: bearer tokens, the challenge without one, and `identify`.

Static tokens are checked here, those of an OAuth issuer by `oauth.py`. A token is checked once,
before the body of its request is read, and then removed from the request, so that nothing behind
the guard can leak it; a token that a source exchanges is passed on sealed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from msgspec import Struct
from msgspec.structs import replace

from callpact.context import Identity
from callpact.errors import InvalidConfig
from callpact.secrets.sealed_token import SealedToken
from callpact.serve.http.guard import header_values
from callpact.serve.jsonrpc import (
    RequestRefused,
)

if TYPE_CHECKING:
    from starlette.types import Scope

    from callpact.secrets.keys import Secrets

MIN_TOKEN_LENGTH = 16
"""Minimum number of characters of a static token."""
MAX_TOKEN_BYTES = 16 << 10
"""Size of a token that a caller sends."""

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
# In upper case, and no word of it is long enough for a token.
_VARIABLE = re.compile(
    rf"[A-Z](?:[A-Z0-9]{{0,{MIN_TOKEN_LENGTH - 2}}}_)*[A-Z0-9]{{0,{MIN_TOKEN_LENGTH - 2}}}"
)
_CHALLENGED = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")


class BadToken(Exception):
    """A token is not accepted; the reason contains no part of it."""


class IssuerUnavailable(Exception):
    """A token cannot be checked now: the keys of its issuer cannot be fetched."""


class Verified(Struct, frozen=True):
    """The owner of a token, and its expiry."""

    identity: Identity
    client_id: str
    issuer: str | None = None
    until: float | None = None
    """Epoch seconds; None if the token does not expire."""


class Issuer(Protocol):
    """Verifies the tokens of an issuer (`oauth.OAuth`)."""

    issuer: str
    resource: str
    required_scopes: tuple[str, ...]
    scopes: tuple[str, ...]

    def start(self) -> None: ...
    async def verify(self, token: str) -> Verified: ...
    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A static token and the identity of its caller; only a digest of its value is stored."""

    identity: Identity
    digest: bytes = field(repr=False)

    @staticmethod
    def of(value: str, identity: Identity) -> BearerToken:
        """Make a token from its value.

        Raises:
            InvalidConfig: the value is too short, or has invalid characters; the text omits it.
        """
        if len(value) < MIN_TOKEN_LENGTH:
            raise InvalidConfig(
                f"a token has {MIN_TOKEN_LENGTH} characters at the least, or it could be guessed; "
                "`openssl rand -hex 32` makes a good one"
            )
        if len(value) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(value):
            raise InvalidConfig(
                f"a token has {MAX_TOKEN_BYTES:,} characters at the most: letters, digits and "
                "'-', '.', '_', '~', '+', '/', with '=' at its end"
            )
        return BearerToken(identity, _digest(value))


class TokenTable(Protocol):
    """A `[serve.tokens.NAME]` table: the name of the secret, and the rights of the caller."""

    @property
    def secret(self) -> str: ...
    @property
    def id(self) -> str | None: ...
    @property
    def scopes(self) -> Sequence[str]: ...
    @property
    def resources(self) -> Mapping[str, Sequence[str]]: ...


def read_tokens(tables: Mapping[str, TokenTable], secrets: Secrets) -> list[BearerToken]:
    """Read the tokens of a configuration; their values come only from the secrets.

    Raises:
        InvalidConfig: a secret is not set, too short, or the same as another.
    """
    tokens: dict[bytes, BearerToken] = {}
    for name, table in tables.items():
        place = f"[serve.tokens.{name}]"
        value = secrets.get(table.secret)
        if value is None:
            # Anything but a name may be the token itself, written there by mistake.
            named = f"'{table.secret}'" if _VARIABLE.fullmatch(table.secret) else "of this name"
            raise InvalidConfig(
                f"{place} secret: no secret {named} is set; write the name of a variable of "
                "the environment or of the secrets file, and put the token there"
            )
        resources = {key: tuple(actions) for key, actions in table.resources.items()}
        identity = Identity(table.id or name, tuple(table.scopes), resources)
        try:
            token = BearerToken.of(value, identity)
        except InvalidConfig as error:
            raise InvalidConfig(f"{place}: {error}") from None
        if token.digest in tokens:
            raise InvalidConfig(f"{place}: another token has the same value")
        tokens[token.digest] = token
    return list(tokens.values())


class Caller(AuthenticatedUser):
    """The authenticated caller of a request; the SDK binds sessions and request state to it."""

    def __init__(self, verified: Verified) -> None:
        identity = verified.identity
        claims = None if verified.issuer is None else {"iss": verified.issuer}
        held = list(identity.scopes)
        # The SDK does not need the token itself, and could leak it.
        super().__init__(
            AccessToken(
                token="",
                client_id=verified.client_id,
                scopes=held,
                subject=identity.id,
                claims=claims,
            )
        )
        self.verified = verified


def identify(scope: Mapping[str, Any]) -> Identity | None:
    """Return the identity of the caller of a request, from its ASGI scope; None without a token."""
    caller = scope.get("user")
    return caller.verified.identity if isinstance(caller, Caller) else None


class Authentication:
    """Admits requests with a valid bearer token, and challenges the others.

    The server that uses it closes it. With `keeps_tokens`, the identity of a caller holds its token
    of the issuer, for a source that exchanges it; never a static token.

    Raises:
        InvalidConfig: there are neither tokens nor an issuer.
    """

    def __init__(
        self,
        tokens: Iterable[BearerToken] = (),
        oauth: Issuer | None = None,
        *,
        keeps_tokens: bool = False,
    ) -> None:
        self._keeps_tokens = keeps_tokens
        self._tokens = tuple(tokens)
        self._oauth = oauth
        if not self._tokens and oauth is None:
            raise InvalidConfig("authentication needs tokens or an issuer")
        self._metadata = None if oauth is None else _metadata(oauth)
        self._metadata_url = None if oauth is None else _metadata_url(oauth.resource)

    @property
    def host(self) -> str | None:
        """The public host name of the server; None if it is not configured."""
        return None if self._oauth is None else urlsplit(self._oauth.resource).hostname

    def __str__(self) -> str:
        """A summary of the accepted credentials."""
        number = len(self._tokens)
        shown = [f"{number} token{'' if number == 1 else 's'}"] if number else []
        return ", ".join(
            [*shown, *([] if self._oauth is None else [f"OAuth ({self._oauth.issuer})"])]
        )

    def start(self) -> None:
        """Prepare for the first request."""
        if self._oauth is not None:
            self._oauth.start()

    async def aclose(self) -> None:
        """Close the connection to the issuer."""
        if self._oauth is not None:
            await self._oauth.aclose()

    def public(self, path: str, served: str) -> bytes | None:
        """Return the public metadata at a path (RFC 9728); None if the path has none.

        It is served for the path of the door, for the path of the public address (which differs
        behind a proxy), and for the root.
        """
        if self._oauth is None or not path.startswith(WELL_KNOWN):
            return None
        known = {"", served.rstrip("/"), urlsplit(self._oauth.resource).path.rstrip("/")}
        return self._metadata if path.removeprefix(WELL_KNOWN).rstrip("/") in known else None

    async def admit(self, scope: Scope) -> float | None:
        """Add the caller to a request and remove the token; returns the expiry of the token.

        Raises:
            RequestRefused: 401 without a valid token, 403 without a required scope, 503 if the
                token cannot be checked.
        """
        given = list(header_values(scope, b"authorization"))
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
        if len(given) > 1:
            raise self._refused(400, "invalid_request", "A request has one Authorization")
        scheme, _, token = "".join(given).strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            # RFC 6750, section 3.1: a request without a token gets no error code.
            raise self._refused(401, None, "This server needs a token: Authorization: Bearer …")
        try:
            verified = await self._verified(token)
        except BadToken as bad:
            raise self._refused(401, "invalid_token", str(bad)) from None
        except IssuerUnavailable:
            text = "The token cannot be checked now: its issuer does not answer"
            raise RequestRefused(503, text) from None
        if verified.issuer is not None and self._oauth is not None:
            held = verified.identity.scopes
            if any(needed not in held for needed in self._oauth.required_scopes):
                text = "The token lacks a scope that every caller needs here"
                raise self._refused(403, "insufficient_scope", text)
        scope["user"] = Caller(verified)
        return verified.until

    async def _verified(self, token: str) -> Verified:
        if len(token) > MAX_TOKEN_BYTES:
            raise BadToken(f"A token may have {MAX_TOKEN_BYTES:,} bytes")
        found = None
        digest = _digest(token)
        for known in self._tokens:  # All of them, so that the time reveals nothing.
            if hmac.compare_digest(known.digest, digest):
                found = known
        if found is not None:
            return Verified(found.identity, found.identity.id)
        if self._oauth is None:
            raise BadToken("The token is not one that is known here")
        verified = await self._oauth.verify(token)
        if not self._keeps_tokens:
            return verified
        return replace(verified, identity=replace(verified.identity, token=SealedToken(token)))

    def _refused(self, status: int, error: str | None, text: str) -> RequestRefused:
        """Return the challenge of RFC 6750 and RFC 9728."""
        parts = {} if error is None else {"error": error, "error_description": text}
        if self._oauth is not None:
            if self._oauth.required_scopes and error in {None, "insufficient_scope"}:
                parts["scope"] = " ".join(self._oauth.required_scopes)
            parts["resource_metadata"] = self._metadata_url or ""
        challenge = ", ".join(
            f'{key}="{_CHALLENGED.sub("", value)}"' for key, value in parts.items()
        )
        return RequestRefused(
            status, text, headers={"www-authenticate": f"Bearer {challenge}".strip()}
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _metadata(oauth: Issuer) -> bytes:
    """Encode the metadata of RFC 9728, section 2; addresses are unchanged, as clients compare them."""
    metadata: dict[str, Any] = {
        "resource": oauth.resource,
        "authorization_servers": [oauth.issuer],
        "bearer_methods_supported": ["header"],
    }
    if oauth.scopes:
        metadata["scopes_supported"] = list(oauth.scopes)
    return orjson.dumps(metadata)


def _metadata_url(resource: str) -> str:
    """Return the address of the metadata (RFC 9728, section 3.1)."""
    parts = urlsplit(resource)
    path = "" if parts.path == "/" else parts.path
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{path}"
