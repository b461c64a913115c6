"""The public keys of a token issuer (JWKS): discovered, fetched, cached and refreshed.

Everything is fetched through `net`, within its limits and address rules. While an issuer cannot be
reached, its known keys stay in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson
from jwt import PyJWK, PyJWTError

from callpact.errors import CallpactError, InvalidConfig
from callpact.net import HttpTransport, Limits, Request
from callpact.net.address import Place, Refused, place_of
from callpact.schema import is_array, is_object
from callpact.serve.auth.bearer import IssuerUnavailable

if TYPE_CHECKING:
    from callpact.net import Transport

KEYS_FRESH_SECONDS = 600.0
"""Seconds after which the keys of an issuer are fetched again."""
KEYS_PAUSE_SECONDS = 10.0
"""Minimum seconds between two fetches of an issuer's keys."""
KEYS_TOTAL_SECONDS = 10.0
"""Seconds for fetching the metadata and the keys of an issuer."""
MAX_KEYS_BYTES = 512 << 10
"""Size of a response of an issuer."""
MAX_KEYS = 100
"""Keys of an issuer; further ones are ignored."""

ALGORITHMS: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Signature algorithms that can be accepted, with their key type and curve. There is no algorithm
with a shared secret: everybody who can check such a signature can also make it."""

_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
_LIMITS = Limits(
    body_bytes=MAX_KEYS_BYTES, decoded_bytes=MAX_KEYS_BYTES, total_seconds=KEYS_TOTAL_SECONDS
)
_log = logging.getLogger("callpact.serve.auth")


class _BadResponse(Exception):
    """A response of the issuer that cannot be used."""


class IssuerKeys:
    """The public keys of one issuer.

    They are fetched from `jwks_uri`, or from the address in the issuer's metadata (RFC 8414, OpenID
    Connect). `hosts` are the private addresses that are allowed, and the only ones over plain http.

    Raises:
        InvalidConfig: an address is not valid.
        SourceRefused: the HTTP client is not installed.
    """

    def __init__(
        self,
        issuer: str,
        jwks_uri: str | None = None,
        hosts: Iterable[str] = (),
        *,
        algorithms: Iterable[str] = ALGORITHMS,
        transport: Transport | None = None,
        fresh: float = KEYS_FRESH_SECONDS,
        pause: float = KEYS_PAUSE_SECONDS,
    ) -> None:
        self._hosts = frozenset(hosts)
        self._issuer = issuer
        self._place = self._checked("issuer", issuer)
        self._jwks_uri = jwks_uri
        if jwks_uri is not None:
            self._checked("jwks_uri", jwks_uri)
        self._algorithms = tuple(algorithms)
        self._transport = transport or HttpTransport(_LIMITS, self._hosts)
        self._fresh = fresh
        self._pause = pause
        self._known: tuple[tuple[str | None, PyJWK], ...] = ()
        self._asked: float | None = None
        self._has_failed = False
        self._reading: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> list[PyJWK]:
        """Return the keys that match a token's header; empty if its issuer has no such key.

        Raises:
            IssuerUnavailable: the keys could not be fetched.
        """
        found = self._suitable(kid, algorithm)
        if found:
            if self._is_due(self._fresh):
                self.read()
            return found
        if self._reading is not None:
            await asyncio.shield(self._reading)
            found = self._suitable(kid, algorithm)
        if not found and self._is_due(self._pause):
            await asyncio.shield(self.read())
            found = self._suitable(kid, algorithm)
        if not found and self._has_failed:
            raise IssuerUnavailable
        return found

    def read(self) -> asyncio.Task[None]:
        """Start to fetch the keys, unless a fetch is running; failures are logged."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._forget)
        return self._reading

    async def aclose(self) -> None:
        """Stop fetching and close the transport."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self._transport.aclose()

    def _forget(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    def _is_due(self, seconds: float) -> bool:
        if self._has_failed:
            seconds = self._pause
        return self._asked is None or time.monotonic() - self._asked >= seconds

    def _suitable(self, kid: str | None, algorithm: str) -> list[PyJWK]:
        return [
            key
            for name, key in self._known
            if key.algorithm_name == algorithm and (kid is None or name == kid)
        ]

    async def _read(self) -> None:
        try:
            self._known = await self._keys()
            self._has_failed = False
        except (_BadResponse, CallpactError) as error:
            self._has_failed = True
            kept = "; those that are known stay in use" if self._known else ""
            _log.warning("the keys of %s cannot be read: %s%s", self._place.host, error, kept)
        finally:
            self._asked = time.monotonic()

    async def _keys(self) -> tuple[tuple[str | None, PyJWK], ...]:
        deadline = (time.time() + KEYS_TOTAL_SECONDS) * 1000
        uri = self._jwks_uri or await self._discovered(deadline)
        listed = (await self._fetched(uri, deadline)).get("keys")
        if not is_array(listed):
            raise _BadResponse("the response has no list of keys")
        given = listed[:MAX_KEYS]
        keys = tuple(made for jwk in given for made in _keys_of(jwk, self._algorithms))
        if not keys:
            raise _BadResponse("none of its keys can be used")
        return keys

    async def _discovered(self, deadline: float) -> str:
        """Return the address of the keys from the issuer's metadata."""
        why = "there is no metadata of an issuer"
        for url in _metadata_urls(self._place):
            try:
                metadata = await self._fetched(url, deadline)
            except _BadResponse as error:
                why = str(error)
                continue
            uri = metadata.get("jwks_uri")
            if metadata.get("issuer") != self._issuer:  # RFC 8414, section 3.3
                why = "its metadata is that of another issuer"
            elif not isinstance(uri, str):
                why = "its metadata has no jwks_uri"
            else:
                return uri
        raise _BadResponse(f"{why}; jwks_uri can say where the keys are")

    async def _fetched(self, url: str, deadline: float) -> dict[str, Any]:
        try:
            self._checked("jwks_uri", url)
        except InvalidConfig as error:
            raise _BadResponse(str(error)) from None
        asked = Request("GET", url, {"accept": "application/json"})
        response = await self._transport.send(asked, deadline=deadline)
        if response.status != 200:
            raise _BadResponse(f"the response has the status {response.status}")
        try:
            found = orjson.loads(response.body)
        except orjson.JSONDecodeError:
            found = None
        if not is_object(found):
            raise _BadResponse("the response is no JSON object")
        return found

    def _checked(self, key: str, url: str) -> Place:
        try:
            place = place_of(url)
        except Refused as refused:
            raise InvalidConfig(f"{key}: {refused.why}") from None
        if "?" in place.tail and key == "issuer":
            raise InvalidConfig("issuer: the address of an issuer has no query")
        named = {place.host, f"{place.host}:{place.port}"}
        if place.scheme != "https" and not named & self._hosts:
            raise InvalidConfig(
                f"{key}: '{place.host}' must be reached over https, or be named in hosts"
            )
        return place


def _metadata_urls(issuer: Place) -> Iterator[str]:
    """Yield the possible addresses of an issuer's metadata, in the order of the MCP specification."""
    path = issuer.tail.rstrip("/")
    root = issuer.url.removesuffix(issuer.tail)
    yield f"{root}/.well-known/oauth-authorization-server{path}"
    yield f"{root}/.well-known/openid-configuration{path}"
    if path:
        yield f"{root}{path}/.well-known/openid-configuration"


def _keys_of(jwk: Any, algorithms: Iterable[str]) -> Iterator[tuple[str | None, PyJWK]]:
    """Yield a key for each algorithm that it can be used with; an invalid key is logged."""
    if not is_object(jwk):
        return
    kid, uses = jwk.get("kid"), jwk.get("key_ops")
    if jwk.get("use", "sig") != "sig" or (is_array(uses) and "verify" not in uses):
        return
    public = {name: jwk[name] for name in _PUBLIC if name in jwk}
    for algorithm in algorithms:
        kind, curve = ALGORITHMS[algorithm]
        if jwk.get("alg", algorithm) != algorithm or jwk.get("kty") != kind:
            continue
        if curve not in {None, jwk.get("crv")}:
            continue
        try:
            key = PyJWK(public, algorithm)
            weak = key.Algorithm.check_key_length(key.key)
        except (PyJWTError, ValueError, TypeError) as error:
            _log.warning("a key of the issuer cannot be used: %s", type(error).__name__)
            return
        if weak:
            _log.warning("a key of the issuer is too short to be used")
            return
        yield (kid if isinstance(kid, str) else None), key
