"""The next request of a redirect, as fetch makes it; pure.

Addresses are not checked here: the transport checks each hop like a first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urljoin

from msgspec.structs import replace

from callpact.net.address import Place, Refused, place_of
from callpact.net.failures import bad_redirect
from callpact.net.message import Request
from callpact.secrets.headers import is_secret_header

_OF_THE_BODY = frozenset(
    {"content-encoding", "content-language", "content-length", "content-location", "content-type"}
)


def redirected(source: Place, status: int, locations: Sequence[str]) -> Place:
    """The target of a redirect.

    Raises:
        UpstreamError: it has several targets or none, or leads from https to http.
        Refused: the spelling of its host is not allowed.
    """
    if len(set(locations)) != 1:
        raise bad_redirect(source.host, status, "names several places")
    try:
        target = place_of(urljoin(source.url, locations[0].strip()))
    except Refused as refused:
        if refused.host:
            raise
        target = None
    except ValueError:
        target = None
    if target is None:
        raise bad_redirect(source.host, status, "leads to something that is no web address")
    if source.scheme == "https" and target.scheme == "http":
        raise bad_redirect(source.host, status, "leads from https down to http")
    return target


def next_request(request: Request, status: int, source: Place, target: Place) -> Request:
    """The request of the next hop: its method, its body, its headers.

    Raises:
        UpstreamError: credentials in the body or the address would reach another origin.
    """
    method, body = request.method, request.body
    dropped: set[str] = set()
    if (status == 303 and method not in {"GET", "HEAD"}) or (
        status in {301, 302} and method == "POST"
    ):
        method, body = "GET", None
        dropped |= _OF_THE_BODY
    if source.origin != target.origin:
        if request.credentials is not None and request.credentials.finds(target.url):
            what = "leads to another origin, with credentials of the request in its address"
            raise bad_redirect(source.host, status, what)
        if body is not None and request.has_secret_body:
            what = "leads to another origin, while the body of the request holds credentials"
            raise bad_redirect(source.host, status, what)
        dropped |= {name.lower() for name in request.secret_headers}
        dropped |= {name.lower() for name in request.headers if is_secret_header(name)}
    headers = {k: v for k, v in request.headers.items() if k.lower() not in dropped}
    return replace(
        request,
        method=method,
        url=target.url,
        headers=headers,
        body=body,
        has_secret_body=request.has_secret_body and body is not None,
    )
