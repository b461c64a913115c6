"""Who a request over HTTP counts for: the subject of its token, or else the address of its peer.

What callers share (sessions, streams, calls, kept results) is counted by this key. It is not who a
caller is for a tool: that is its identity.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser


def caller_of(scope: Mapping[str, Any]) -> str:
    """The key of a request's caller; an issuer's subject is not a static token of the same name."""
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        token = user.access_token
        return f"token {(token.claims or {}).get('iss', '')} {token.subject}"
    return f"peer {peer_of(scope.get('client'))}"


def peer_of(client: tuple[str, int] | None) -> str:
    """The address of a peer; of IPv6 the network, as one host has all addresses of it."""
    try:
        address = ipaddress.ip_address("" if client is None else client[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
