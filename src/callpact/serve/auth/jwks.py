"""The keys of an issuer of tokens: read from where it says they are, kept, and read again.

Everything is fetched through `net`, within its limits and to the addresses that it lets through.
An issuer that cannot be reached costs nothing but new keys: those that are known stay in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import orjson
from jwt import PyJWK, PyJWTError

from callpact.errors import CallpactError, InvalidConfig
from callpact.net import HttpTransport, Limits, Request
from callpact.net.address import Place, Refused, place_of
from callpact.serve.auth.bearer import CannotTell

if TYPE_CHECKING:
    from callpact.net import Transport

KEYS_FRESH_SECONDS = 600.0
"""Seconds after which the keys of an issuer are asked for again."""
KEYS_PAUSE_SECONDS = 10.0
"""Seconds between two times that an issuer is asked for its keys, whatever tokens come."""
KEYS_TOTAL_SECONDS = 10.0
"""Seconds for reading the keys of an issuer, and what says where they are."""
MAX_KEYS_BYTES = 512 << 10
"""Size of an answer of an issuer."""
MAX_KEYS = 100
"""Keys of an issuer; more are not looked at."""

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
"""Ways to sign that can be accepted, and the keys that they need. None has a secret that is shared:
whoever can check such a signature could have made it."""

_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
_LIMITS = Limits(
    body_bytes=MAX_KEYS_BYTES, decoded_bytes=MAX_KEYS_BYTES, total_seconds=KEYS_TOTAL_SECONDS
)
_log = logging.getLogger("callpact.serve.auth")


class _Unread(Exception):
    """An answer of the issuer that is not what it should be."""


class IssuerKeys:
    """The public keys of one issuer.

    `jwks_uri` says where they are; else the issuer's metadata does (RFC 8414, OpenID Connect).
    `hosts` are the private addresses that may be reached for it, and the only ones over plain http.

    Raises:
        InvalidConfig: an address that is not valid.
        SourceRefused: what sends requests is not installed.
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
        """The keys that a token may be signed with: none, if its issuer has no such key.

        Raises:
            CannotTell: the issuer could not be asked.
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
            raise CannotTell
        return found

    def read(self) -> asyncio.Task[None]:
        """Ask the issuer, unless that is under way; never fails."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._forget)
        return self._reading

    async def aclose(self) -> None:
        """Ask no more."""
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
        except (_Unread, CallpactError) as error:
            self._has_failed = True
            kept = "; those that are known stay in use" if self._known else ""
            _log.warning("the keys of %s cannot be read: %s%s", self._place.host, error, kept)
        finally:
            self._asked = time.monotonic()

    async def _keys(self) -> tuple[tuple[str | None, PyJWK], ...]:
        deadline = (time.time() + KEYS_TOTAL_SECONDS) * 1000
        uri = self._jwks_uri or await self._discovered(deadline)
        listed = (await self._fetched(uri, deadline)).get("keys")
        if not isinstance(listed, list):
            raise _Unread("the answer has no list of keys")
        given = cast("list[Any]", listed)[:MAX_KEYS]
        keys = tuple(made for jwk in given for made in _made(jwk, self._algorithms))
        if not keys:
            raise _Unread("none of its keys can be used")
        return keys

    async def _discovered(self, deadline: float) -> str:
        """Where the issuer's metadata says that its keys are."""
        why = "there is no metadata of an issuer"
        for url in _metadata_urls(self._place):
            try:
                metadata = await self._fetched(url, deadline)
            except _Unread as error:
                why = str(error)
                continue
            uri = metadata.get("jwks_uri")
            if metadata.get("issuer") != self._issuer:  # RFC 8414, section 3.3
                why = "its metadata is that of another issuer"
            elif not isinstance(uri, str):
                why = "its metadata has no jwks_uri"
            else:
                return uri
        raise _Unread(f"{why}; jwks_uri can say where the keys are")

    async def _fetched(self, url: str, deadline: float) -> dict[str, Any]:
        try:
            self._checked("jwks_uri", url)
        except InvalidConfig as error:
            raise _Unread(str(error)) from None
        asked = Request("GET", url, {"accept": "application/json"})
        answer = await self._transport.send(asked, deadline=deadline)
        if answer.status != 200:
            raise _Unread(f"the answer has the status {answer.status}")
        try:
            found = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise _Unread("the answer is no JSON object")
        return cast("dict[str, Any]", found)

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
    """Where the metadata of an issuer may be, in the order in which MCP has it."""
    path = issuer.tail.rstrip("/")
    root = issuer.url.removesuffix(issuer.tail)
    yield f"{root}/.well-known/oauth-authorization-server{path}"
    yield f"{root}/.well-known/openid-configuration{path}"
    if path:
        yield f"{root}{path}/.well-known/openid-configuration"


def _made(jwk: Any, algorithms: Iterable[str]) -> Iterator[tuple[str | None, PyJWK]]:
    """A key for each algorithm that it can be used with; one that is bad leaves the others alone."""
    if not isinstance(jwk, dict):
        return
    given = cast("dict[str, Any]", jwk)
    kid, uses = given.get("kid"), given.get("key_ops")
    if given.get("use", "sig") != "sig" or (isinstance(uses, list) and "verify" not in uses):
        return
    public = {name: given[name] for name in _PUBLIC if name in given}
    for algorithm in algorithms:
        kind, curve = ALGORITHMS[algorithm]
        if given.get("alg", algorithm) != algorithm or given.get("kty") != kind:
            continue
        if curve not in {None, given.get("crv")}:
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
