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

from jwt import PyJWK, PyJWTError

from callpact.errors import CallpactError
from callpact.net import HttpTransport, Limits
from callpact.net.oauth_metadata import (
    BadMetadata,
    checked_place,
    fetch_object,
    issuer_address,
)
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
        self._place = checked_place("issuer", issuer, self._hosts)
        self._jwks_uri = jwks_uri
        if jwks_uri is not None:
            checked_place("jwks_uri", jwks_uri, self._hosts)
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
        except (BadMetadata, CallpactError) as error:
            self._has_failed = True
            kept = "; those that are known stay in use" if self._known else ""
            _log.warning("the keys of %s cannot be read: %s%s", self._place.host, error, kept)
        finally:
            self._asked = time.monotonic()

    async def _keys(self) -> tuple[tuple[str | None, PyJWK], ...]:
        deadline = (time.time() + KEYS_TOTAL_SECONDS) * 1000
        uri = self._jwks_uri or await self._discovered(deadline)
        found = await fetch_object(self._transport, "jwks_uri", uri, self._hosts, deadline)
        listed = found.get("keys")
        if not is_array(listed):
            raise BadMetadata("the response has no list of keys")
        given = listed[:MAX_KEYS]
        keys = tuple(made for jwk in given for made in _keys_of(jwk, self._algorithms))
        if not keys:
            raise BadMetadata("none of its keys can be used")
        return keys

    async def _discovered(self, deadline: float) -> str:
        """Return the address of the keys from the issuer's metadata."""
        try:
            return await issuer_address(
                self._transport, self._issuer, "jwks_uri", self._hosts, deadline
            )
        except BadMetadata as error:
            raise BadMetadata(f"{error}; jwks_uri can say where the keys are") from None


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
