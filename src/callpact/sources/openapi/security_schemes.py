"""The security of an operation: which alternative is used, and its credentials in the request.

The first alternative whose schemes all have a credential is used. A key is sent to the server of
the operation, or to the hosts that `keys` binds it to; a client secret to the token endpoint alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin

from msgspec import Struct

from callpact.errors import Failed, InvalidInput, UpstreamError
from callpact.net import Request, Transport, check_request
from callpact.net.address import Place, Refused, place_of
from callpact.net.message import shown_host
from callpact.net.oauth_metadata import BadMetadata, read_object
from callpact.net.oauth_token import AccessToken, fetch_token, token_request
from callpact.secrets.keys import Secrets
from callpact.secrets.masker import Masker
from callpact.sources.key_grants import FileKeys, UpstreamRoot, read_root
from callpact.sources.openapi.operation_request import BuiltRequest, put_header
from callpact.sources.openapi.operation_settings import OperationSettings
from callpact.sources.openapi.operations import Operation, SecurityNeed, SecurityScheme
from callpact.sources.openapi.scheme_credentials import Credential, key_names, with_key_values
from callpact.tool import Disabled

_MIN_CREDENTIAL = 4  # Characters of a credential that a redirect is searched for.
_TOKENS = frozenset({"oauth2", "openIdConnect"})
_CHALLENGES = frozenset({"digest", "hoba", "mutual", "negotiate", "ntlm", "scram-sha-256"})


class Authenticated(NamedTuple):
    """A request with its credentials, the secrets in it, and the token that may be too old."""

    request: Request
    used: Secrets | None
    token: tuple[Any, AccessToken] | None


class _Filled(Struct):
    """The credentials that were put into one request."""

    secret_headers: list[str]
    values: list[str]
    token: tuple[Any, AccessToken] | None = None


@dataclass(frozen=True)
class OperationSecurity:
    """The security of one operation under the settings of its source."""

    operation: Operation
    server: str
    source: OperationSettings
    transport: Transport

    @cached_property
    def chosen(self) -> tuple[SecurityNeed, ...] | None:
        """The alternative that is used; None if no alternative has all of its credentials."""
        alternatives = self.operation.security
        for needs in alternatives:
            if needs and all(self._is_given(need.scheme) for need in needs):
                return needs
        return () if not alternatives or () in alternatives else None

    @cached_property
    def reserved(self) -> Mapping[str, frozenset[str]]:
        """Names that the security uses, by place; no argument may have them."""
        schemes = [need.scheme for needs in self.operation.security for need in needs]
        return {
            place: frozenset(each.key_name for each in schemes if each.place == place)
            for place in ("query", "cookie")
        }

    @cached_property
    def keys(self) -> FileKeys:
        """The keys that go to the server."""
        names = set(key_names(self.source.headers.values()))
        for need in self.chosen or ():
            credential = self.source.credentials[need.scheme.name]
            if credential.client_id is None:
                names |= set(credential.names)
        return self.source.server_keys(tuple(sorted(names)), self._root)

    @cached_property
    def _root(self) -> UpstreamRoot:
        return read_root(self.server)

    def disabled(self) -> Disabled | None:
        """The reason why the operation cannot be called for lack of a credential, or None."""
        if self.chosen is None:
            return Disabled("server_param_missing", self._missing())
        for keys in self._all_keys():
            found = keys.disabled()
            if found is not None:
                return found
        return None

    def destinations(self) -> Mapping[str, str]:
        """The hosts that each key is sent to, as text."""
        return {
            name: host for keys in self._all_keys() for name, host in keys.destinations().items()
        }

    def _all_keys(self) -> Iterator[FileKeys]:
        yield self.keys
        for need in self.chosen or ():
            credential = self.source.credentials[need.scheme.name]
            if credential.client_id is not None:
                yield self._client_keys(need.scheme, credential)

    # --- the choice --------------------------------------------------------------------------

    def _is_given(self, scheme: SecurityScheme) -> bool:
        credential = self.source.credentials.get(scheme.name)
        return credential is not None and _fits(scheme, credential)

    def _missing(self) -> str:
        wanted: list[str] = []
        for needs in self.operation.security:
            lines = [self._line(need.scheme) for need in needs if not self._is_given(need.scheme)]
            wanted.append(" and ".join(lines))
        shown = ", or ".join(dict.fromkeys(each for each in wanted if each))
        return f"'{self.operation.name}' needs a credential: {shown}"

    def _line(self, scheme: SecurityScheme) -> str:
        table = f"[sources.{self.source.table}.security]"
        name = _toml_key(scheme.name)
        match _form(scheme):
            case "value":
                return f'the scheme {scheme.name}: `{name} = "${{KEY}}"` in {table}'
            case "basic":
                line = f'{name} = {{username = "USER", password = "${{KEY}}"}}'
                return f"the scheme {scheme.name}: `{line}` in {table}"
            case "client":
                line = f'{name} = {{client_id = "ID", client_secret = "${{KEY}}"}}'
                return f"the scheme {scheme.name}: `{line}` in {table}"
            case _:
                kind = scheme.http_scheme or scheme.kind
                return f"the scheme {scheme.name}, which is {kind} and not supported"

    # --- the request -------------------------------------------------------------------------

    async def authenticate(self, built: BuiltRequest, deadline: float | None) -> Authenticated:
        """Put the credentials into a request.

        Raises:
            Failed: `server_param_missing`, or `address_not_allowed`.
            CallError: there is no token.
        """
        if self.chosen is None:
            raise Failed("server_param_missing", self._missing(), details=self._schemes())
        if not self.chosen and not self.source.keyed_headers:
            return Authenticated(_request(built, (), None), None, None)
        filled = _Filled([], [])
        keys = self.keys
        if keys.names:
            keys.check(keys.names, _place(built.url))
        for name, text in self.source.keyed_headers.items():
            put_header(built.headers, name, with_key_values(text, keys.value))
            filled.secret_headers.append(name)
            filled.values += [keys.value(each) for each in key_names([text])]
        for need in self.chosen:
            await self._apply(need, built, filled, deadline)
        sealed = _sealed(tuple(filled.values))
        request = _request(built, tuple(filled.secret_headers), sealed.credentials)
        try:
            check_request(request)
        except InvalidInput as error:
            if not any(f"/headers/{name}" == error.path for name in filled.secret_headers):
                raise
            words = f"A credential of '{self.operation.name}' cannot be sent: {error.message}"
            raise Failed("server_param_missing", words) from None
        return Authenticated(request, sealed.used, filled.token)

    def _schemes(self) -> dict[str, Any]:
        names = (need.scheme.name for needs in self.operation.security for need in needs)
        return {"schemes": list(dict.fromkeys(names))}

    async def _apply(
        self, need: SecurityNeed, built: BuiltRequest, filled: _Filled, deadline: float | None
    ) -> None:
        scheme, credential = need.scheme, self.source.credentials[need.scheme.name]
        if credential.client_id is not None:
            key, token = await self._token(need, credential, deadline)
            filled.token = (key, token)
            secrets = self.source.secrets
            filled.values += [value for name in credential.names if (value := secrets.get(name))]
            filled.values.append(token.value)
            _authorize(built, filled, f"Bearer {token.value}")
            return
        if scheme.kind == "http" and scheme.http_scheme == "basic":
            pair = self._pair(credential)
            filled.values += [pair, pair.partition(":")[2]]
            encoded = base64.b64encode(pair.encode("utf-8", "surrogatepass")).decode()
            _authorize(built, filled, f"Basic {encoded}")
            return
        value = with_key_values(credential.value or "", self.keys.value)
        filled.values.append(value)
        if scheme.kind == "apiKey":
            _put_key(scheme, value, built, filled)
        else:
            kind = "Bearer" if scheme.kind != "http" else scheme.http_scheme.capitalize()
            prefix = f"{kind} "
            given = value if value.lower().startswith(prefix.lower()) else prefix + value
            _authorize(built, filled, given)

    def _pair(self, credential: Credential) -> str:
        if credential.username is None:
            return with_key_values(credential.value or "", self.keys.value)
        user = with_key_values(credential.username, self.keys.value)
        return f"{user}:{with_key_values(credential.password or '', self.keys.value)}"

    # --- tokens ------------------------------------------------------------------------------

    async def _token(
        self, need: SecurityNeed, credential: Credential, deadline: float | None
    ) -> tuple[Any, AccessToken]:
        scopes = need.scopes if credential.scopes is None else credential.scopes
        key = (need.scheme.name, scopes)

        async def fetch() -> AccessToken:
            keys = self._client_keys(need.scheme, credential)
            url = await self._token_url(need.scheme, credential, keys, deadline)
            if keys.names:
                keys.check(keys.names, _place(url))
            form = {"grant_type": "client_credentials"}
            if scopes:
                form["scope"] = " ".join(scopes)
            if credential.audience is not None:
                form["audience"] = with_key_values(credential.audience, keys.value)
            secret = credential.client_secret
            request = token_request(
                url,
                form,
                client_id=with_key_values(credential.client_id or "", keys.value),
                client_secret=None if secret is None else with_key_values(secret, keys.value),
                client_auth=credential.client_auth,
            )
            return await fetch_token(self.transport, request, deadline=deadline)

        return key, await self.source.tokens.token(key, fetch)

    def _client_keys(self, scheme: SecurityScheme, credential: Credential) -> FileKeys:
        """The keys of a client, which go to the token endpoint.

        Without an entry `NAME@host` they may go to the endpoint of the settings, or to one on the
        server itself: a document could name any other.
        """
        url = credential.token_url or self._absolute(scheme.token_url)
        is_settled = credential.token_url is not None or _is_at(url, self._root)
        root = read_root(url) if url is not None and is_settled else self._root
        return self.source.client_keys(credential.names, root)

    async def _token_url(
        self,
        scheme: SecurityScheme,
        credential: Credential,
        keys: FileKeys,
        deadline: float | None,
    ) -> str:
        if credential.token_url is not None:
            return with_key_values(credential.token_url, keys.value)
        declared = self._absolute(scheme.token_url)
        if declared is not None:
            return declared
        discovery = self._absolute(scheme.discovery_url)
        if discovery is None:
            words = (
                f"The scheme {scheme.name} names no token endpoint: write token_url in "
                f"[sources.{self.source.table}.security.{_toml_key(scheme.name)}]"
            )
            raise Failed("server_param_missing", words, details=self._schemes())
        return await _discovered(self.transport, discovery, deadline)

    def _absolute(self, url: str | None) -> str | None:
        """An address of the document, which may be relative to the server."""
        return None if url is None else urljoin(f"{self.server}/", url)


async def _discovered(transport: Transport, url: str, deadline: float | None) -> str:
    """The token endpoint of an OpenID Connect discovery document."""
    request = Request("GET", url, {"Accept": "application/json"})
    response = await transport.send(request, deadline=deadline)
    try:
        endpoint = read_object(response.body).get("token_endpoint")
    except BadMetadata:
        endpoint = None
    if response.status != 200 or not isinstance(endpoint, str):
        raise UpstreamError(
            f"The discovery document at '{shown_host(url)}' names no token endpoint",
            details={"reason": "token", "statusCode": response.status},
        )
    return endpoint


def _is_at(url: str | None, root: UpstreamRoot) -> bool:
    return url is not None and root.origin is not None and read_root(url).origin == root.origin


def _form(scheme: SecurityScheme) -> str:
    """The form of the credential that a scheme needs; empty if it is not supported."""
    if scheme.kind in _TOKENS:
        return "client"
    if scheme.kind == "mutualTLS" or scheme.http_scheme in _CHALLENGES:
        return ""
    return "basic" if scheme.kind == "http" and scheme.http_scheme == "basic" else "value"


def _fits(scheme: SecurityScheme, credential: Credential) -> bool:
    match _form(scheme):
        case "client":
            return credential.client_id is not None or credential.value is not None
        case "basic":
            return credential.username is not None or credential.value is not None
        case "value":
            return credential.value is not None
        case _:
            return False


def _toml_key(name: str) -> str:
    is_bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    return name if is_bare else f'"{name}"'


def _put_key(scheme: SecurityScheme, value: str, built: BuiltRequest, filled: _Filled) -> None:
    name = scheme.key_name
    if scheme.place == "header":
        put_header(built.headers, name, value)
        filled.secret_headers.append(name)
        return
    pairs = built.query if scheme.place == "query" else built.cookies
    written = quote(name, safe="") if scheme.place == "query" else name
    # The settings decide over an argument of the same name.
    pairs[:] = [pair for pair in pairs if pair.partition("=")[0] != written]
    pairs.append(f"{written}={quote(value, safe='') if scheme.place == 'query' else value}")
    if scheme.place == "cookie":
        filled.secret_headers.append("Cookie")


def _authorize(built: BuiltRequest, filled: _Filled, value: str) -> None:
    put_header(built.headers, "Authorization", value)
    filled.secret_headers.append("Authorization")


class _Sealed(NamedTuple):
    """The secrets of a request, to be masked in its response and found in a redirect."""

    used: Secrets | None
    credentials: Masker | None


@lru_cache(maxsize=256)
def _sealed(values: tuple[str, ...]) -> _Sealed:
    if not values:
        return _Sealed(None, None)
    used = Secrets({str(number): value for number, value in enumerate(values)})
    return _Sealed(used, Masker(values, shortest=_MIN_CREDENTIAL))


def _request(
    built: BuiltRequest, secret_headers: tuple[str, ...], credentials: Masker | None
) -> Request:
    headers = built.headers
    if built.cookies:
        headers = {**headers, "Cookie": "; ".join(built.cookies)}
    return Request(
        built.method,
        built.url,
        headers,
        built.body,
        secret_headers,
        credentials=credentials,
    )


def _place(url: str) -> Place:
    try:
        return place_of(url)
    except Refused as refused:
        raise refused.error() from None
