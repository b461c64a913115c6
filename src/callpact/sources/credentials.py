"""Credentials towards upstreams as data: those of single callers, and an OAuth client.

Nothing here sends anything; `mcp/session_pool.py` and `mcp/token_endpoint.py` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from callpact.context import Identity
from callpact.errors import InvalidConfig

Exchange = Literal["id", "token"]
"""The subject of a token exchange: the caller's id, or the caller's own token."""
ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name


class CallerCredential(Struct, frozen=True):
    """The headers for callers with this id, this scope, or both."""

    headers: Mapping[str, str]
    id: str | None = None
    scope: str | None = None
    secrets: tuple[str, ...] = ()
    """The keys in its headers; they are masked in answers."""

    def fits(self, identity: Identity) -> bool:
        """True if the credential is for this caller."""
        is_id = self.id is None or self.id == identity.id
        return is_id and (self.scope is None or self.scope in identity.scopes)

    def __repr__(self) -> str:
        return f"CallerCredential(id={self.id!r}, scope={self.scope!r})"


class OAuthClient(Struct, frozen=True, kw_only=True):
    """A client of an OAuth issuer, which gets tokens for itself or for its callers."""

    client_id: str
    client_secret: str | None = None
    secret_hosts: Sequence[str] = ()
    """The hosts that the secret is bound to; none binds it to no host."""
    client_auth: Literal["basic", "post"] = "basic"
    token_url: str | None = None
    issuer: str | None = None
    scopes: Sequence[str] = ()
    audience: str | None = None
    exchange: Exchange | None = None
    """None: one token for all callers, by the client credentials grant."""
    subject_token_type: str | None = None

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"


def credential_of(
    callers: Iterable[CallerCredential], identity: Identity | None
) -> CallerCredential | None:
    """The first credential that is for this caller; None without one."""
    if identity is None:
        return None
    return next((each for each in callers if each.fits(identity)), None)


def check_credentials(callers: Iterable[CallerCredential], oauth: OAuthClient | None) -> None:
    """Refuse credentials that could go to the wrong place, or to the wrong caller.

    Raises:
        InvalidConfig: with the key and the remedy.
    """
    given = tuple(callers)
    if any(each.id is None and each.scope is None for each in given):
        raise InvalidConfig(
            "callers: each entry needs an id or a scope; headers for everybody are the source's own"
        )
    if oauth is None:
        return
    if oauth.exchange is None:
        if oauth.client_secret is None:
            raise InvalidConfig("oauth: the client credentials grant needs a client_secret")
        return
    if given:
        raise InvalidConfig(
            "callers and oauth.exchange both give each caller a credential: use one"
        )
    if oauth.token_url is None and oauth.issuer is None:
        # A server could otherwise name its own token endpoint, and collect the callers' tokens.
        raise InvalidConfig("oauth.exchange needs token_url or issuer")
    if oauth.exchange == "id" and (oauth.client_secret is None or oauth.subject_token_type is None):
        raise InvalidConfig(
            'oauth.exchange = "id" needs a client_secret, as an id proves nothing, and the '
            "subject_token_type that the issuer expects of it"
        )
