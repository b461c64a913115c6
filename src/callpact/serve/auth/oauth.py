"""Verification of the tokens of an OAuth issuer (JWT).

This server is a resource server in the sense of OAuth 2.1: it checks tokens and issues none. PyJWT
decodes and verifies; key locations in a token's own header (`jku`, `x5u`, `jwk`) are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import jwt
import orjson
from jwt.utils import base64url_decode

from callpact.context import Identity
from callpact.errors import InvalidConfig
from callpact.schema import is_array, is_object
from callpact.serve.auth.bearer import BadToken, Verified
from callpact.serve.auth.jwks import ALGORITHMS, IssuerKeys

LEEWAY_SECONDS = 30.0
"""Seconds by which the clocks of an issuer and of this server may differ."""
MAX_TOKEN_TIME = 253_402_300_799
"""The latest time that a token may name, in epoch seconds: the end of the year 9999."""

_TIMES = ("exp", "nbf", "iat")
_REQUIRED = ["exp", "iss", "aud", "sub"]
_OPTIONS: Any = {"require": _REQUIRED, "enforce_minimum_key_length": True}
_WORDS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "The token has expired"),
    (jwt.ImmatureSignatureError, "The token is not valid yet"),
    (jwt.InvalidAudienceError, "The token is meant for another server"),
    (jwt.InvalidIssuerError, "The token is from another issuer"),
    (jwt.InvalidSignatureError, "The signature of the token is not that of its issuer"),
    (jwt.InvalidAlgorithmError, "The token is signed in a way that is not accepted here"),
    (jwt.MissingRequiredClaimError, "The token lacks one of 'exp', 'iss', 'aud', 'sub'"),
)


class OAuth:
    """Verifies the tokens of one issuer.

    `audience` is the required audience of the tokens (RFC 8707): the public address of this server,
    unless `resource` is that address. Every caller needs the `required_scopes`; `scopes` are
    others that clients may request from the issuer.

    Raises:
        InvalidConfig: an address or an algorithm is not valid.
        SourceRefused: the HTTP client is not installed.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        resource: str | None = None,
        jwks_uri: str | None = None,
        algorithms: Iterable[str] = tuple(ALGORITHMS),
        required_scopes: Iterable[str] = (),
        scopes: Iterable[str] = (),
        hosts: Iterable[str] = (),
        keys: IssuerKeys | None = None,
    ) -> None:
        self.issuer = issuer
        self.audience = audience
        self.resource = _address(
            resource or audience, "audience" if resource is None else "resource"
        )
        self.required_scopes = tuple(required_scopes)
        self.scopes = tuple(dict.fromkeys((*self.required_scopes, *scopes)))
        self._algorithms = _accepted(algorithms)
        self._keys = keys or IssuerKeys(issuer, jwks_uri, hosts, algorithms=self._algorithms)

    def start(self) -> None:
        """Start to fetch the keys before the first token; failures are logged."""
        self._keys.read()

    async def aclose(self) -> None:
        """Stop fetching keys."""
        await self._keys.aclose()

    async def verify(self, token: str) -> Verified:
        """Verify a token and return its owner.

        Raises:
            BadToken: the token is not accepted.
            IssuerUnavailable: the token cannot be checked now.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError):
            raise BadToken("The token is not one that is known here, and no JWT") from None
        algorithm = header.get("alg")
        if algorithm not in self._algorithms:
            raise BadToken("The token is signed in a way that is not accepted here")
        keys = await self._keys.find(header.get("kid"), algorithm)
        if not keys:
            raise BadToken("The issuer has no key that the token could be signed with")
        _check_claims(token)
        return self._read(self._claims(token, keys))

    def _claims(self, token: str, keys: list[jwt.PyJWK]) -> dict[str, Any]:
        refused: Exception = jwt.InvalidSignatureError()
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=[key.algorithm_name],
                    audience=self.audience,
                    issuer=self.issuer,
                    leeway=LEEWAY_SECONDS,
                    options=_OPTIONS,
                )
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ValueError) as error:
                refused = error
                break
        words = (text for kind, text in _WORDS if isinstance(refused, kind))
        raise BadToken(next(words, "The token cannot be read")) from None

    def _read(self, claims: dict[str, Any]) -> Verified:
        subject: str = claims["sub"]
        if not subject:
            raise BadToken("The token names nobody: its 'sub' is empty")
        client = claims.get("client_id") or claims.get("azp")
        return Verified(
            Identity(subject, _scopes(claims)),
            client if isinstance(client, str) else subject,
            self.issuer,
            int(claims["exp"]) + LEEWAY_SECONDS,
        )


def _check_claims(token: str) -> None:
    """Refuse claims that are not strict JSON or have an invalid time, before PyJWT reads them.

    PyJWT accepts `Infinity`, lone surrogates, booleans and strings of digits.

    Raises:
        BadToken: a claim is not valid; the text names it.
    """
    try:
        claims = orjson.loads(base64url_decode(token.split(".")[1]))
    except (IndexError, ValueError):
        raise BadToken("The claims of the token are not JSON") from None
    if not is_object(claims):
        raise BadToken("The claims of the token are no JSON object")
    for name in _TIMES:
        given = claims.get(name, 0)
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 <= given <= MAX_TOKEN_TIME):
            raise BadToken(f"The '{name}' of the token is not a time in epoch seconds")


def _scopes(claims: dict[str, Any]) -> tuple[str, ...]:
    """Return the scopes of a token: one string, or a list (RFC 9068; `scp` with some issuers)."""
    given = claims.get("scope", claims.get("scp", ""))
    held = given.split() if isinstance(given, str) else given
    if not is_array(held) or not all(isinstance(item, str) for item in held):
        raise BadToken("The 'scope' of the token is neither a text nor a list of texts")
    return tuple(held)


def _accepted(algorithms: Iterable[str]) -> tuple[str, ...]:
    chosen = tuple(algorithms)
    unknown = [name for name in chosen if name not in ALGORITHMS]
    if unknown or not chosen:
        got = ", ".join(map(repr, unknown)) or "none"
        raise InvalidConfig(
            f"algorithms: expected some of {', '.join(ALGORITHMS)}, got {got}; a signature with a "
            "shared secret, or none at all, proves nothing here"
        )
    return chosen


def _address(url: str, key: str) -> str:
    """Check the public address of this server, and return it unchanged."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_address = False
        parts = urlsplit("")
    if not is_address or parts.fragment or parts.query or not _is_quotable(url):
        more = ""
        if key == "audience":
            more = '; where the audience is no address, resource = "https://…" says it'
        raise InvalidConfig(
            f"{key}: expected the address of this server as its clients have it, as in "
            f"https://tools.example.com/mcp, got {url!r:.200}{more}"
        )
    return url


def _is_quotable(url: str) -> bool:
    """True if a URL can be quoted in a header."""
    return url.isascii() and url.isprintable() and not set(url) & set(' "\\')
