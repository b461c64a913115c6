"""Metadata of OAuth issuers (RFC 8414, OpenID Connect) and of protected resources (RFC 9728).

Read for the keys of an issuer, and for its token endpoint. Every address must be https, unless its
host is named in `hosts`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import orjson

from callpact.errors import InvalidConfig
from callpact.net.address import Place, Refused, place_of
from callpact.net.message import Request, Transport
from callpact.schema import is_object


class BadMetadata(Exception):
    """A response that cannot be used; the text shows nothing of it."""


def checked_place(key: str, url: str, hosts: Collection[str]) -> Place:
    """Parse the address of an issuer, or one from its metadata.

    Raises:
        InvalidConfig: it cannot be used; the text begins with `key`.
    """
    try:
        place = place_of(url)
    except Refused as refused:
        raise InvalidConfig(f"{key}: {refused.why}") from None
    if "?" in place.tail and key == "issuer":
        raise InvalidConfig("issuer: the address of an issuer has no query")
    if place.scheme != "https" and not {place.host, f"{place.host}:{place.port}"} & set(hosts):
        raise InvalidConfig(
            f"{key}: '{place.host}' must be reached over https, or be named in hosts"
        )
    return place


async def fetch_object(
    transport: Transport, key: str, url: str, hosts: Collection[str], deadline: float
) -> dict[str, Any]:
    """Fetch a JSON object; `key` names the address in errors, `deadline` is in epoch milliseconds.

    Raises:
        BadMetadata: the address cannot be used, or the response is no JSON object.
        CallError: there is no response.
    """
    try:
        checked_place(key, url, hosts)
    except InvalidConfig as error:
        raise BadMetadata(str(error)) from None
    asked = Request("GET", url, {"accept": "application/json"})
    response = await transport.send(asked, deadline=deadline)
    if response.status != 200:
        raise BadMetadata(f"the response has the status {response.status}")
    return read_object(response.body)


def read_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object.

    Raises:
        BadMetadata: the body is something else.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not is_object(found):
        raise BadMetadata("the response is no JSON object")
    return found


async def issuer_address(
    transport: Transport, issuer: str, member: str, hosts: Collection[str], deadline: float
) -> str:
    """Return an address from the metadata of an issuer, such as its `jwks_uri`.

    Raises:
        BadMetadata: there is no metadata of this issuer, or it lacks the address.
        InvalidConfig: the issuer is no address that can be used.
        CallError: there is no response.
    """
    wrong, missing = "", "there is no metadata of an issuer"
    for url in _metadata_urls(checked_place("issuer", issuer, hosts)):
        try:
            metadata = await fetch_object(transport, "issuer", url, hosts, deadline)
        except BadMetadata as error:
            missing = str(error)
            continue
        address = metadata.get(member)
        if metadata.get("issuer") != issuer:  # RFC 8414, section 3.3
            wrong = "its metadata is that of another issuer"
        elif not isinstance(address, str):
            wrong = f"its metadata has no {member}"
        else:
            return address
    raise BadMetadata(wrong or missing)


def _metadata_urls(issuer: Place) -> Iterator[str]:
    """Yield the possible addresses of an issuer's metadata, in the order of the MCP specification."""
    path = issuer.tail.rstrip("/")
    root = issuer.url.removesuffix(issuer.tail)
    yield f"{root}/.well-known/oauth-authorization-server{path}"
    yield f"{root}/.well-known/openid-configuration{path}"
    if path:
        yield f"{root}{path}/.well-known/openid-configuration"


def resource_urls(resource: Place) -> Iterator[str]:
    """Yield the possible addresses of the metadata of a protected resource (RFC 9728)."""
    path = resource.tail.partition("?")[0].rstrip("/")
    root = resource.url.removesuffix(resource.tail)
    if path:
        yield f"{root}/.well-known/oauth-protected-resource{path}"
    yield f"{root}/.well-known/oauth-protected-resource"
