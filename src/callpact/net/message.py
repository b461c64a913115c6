"""Requests to upstreams, their responses, and `Transport`, the one method between them.

`Request`, `Response`, the `Transport` protocol, and the rules of headers. Nothing here opens a
connection.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from msgspec import Struct

from callpact.errors import InvalidInput, Issue, UsageError
from callpact.net.address import Place
from callpact.secrets.masker import Masker

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_IN_VALUES = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_USUAL = frozenset({"GET", "POST", "PUT", "DELETE"})
_METHODS_OF_PROXIES = frozenset({"CONNECT", "TRACE"})


class Request(Struct, frozen=True):
    """A request to an upstream.

    `secret_headers` names headers that hold credentials: like `Authorization` and `Cookie` they
    never follow a redirect to another origin. A redirect to another origin is an error if the body
    holds credentials (`has_secret_body`), or if its address repeats one of the `credentials`.
    `check_redirect` raises for a place on another origin that is not allowed. The repr shows no
    query, no header and no body.
    """

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes | None = None
    secret_headers: tuple[str, ...] = ()
    has_secret_body: bool = False
    credentials: Masker | None = None
    check_redirect: Callable[[Place], None] | None = None

    def __repr__(self) -> str:
        return f"Request({self.method!r}, {shown_host(self.url)!r})"


class Response(Struct, frozen=True):
    """An upstream's whole answer, decoded, whatever its status.

    Header names are lower case, repeated headers are joined with ", "; Set-Cookie is kept apart.
    `content-encoding` and `content-length` describe the body before it was decoded.
    """

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""
    set_cookie: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body):,} bytes)"


class StreamedResponse(Struct, frozen=True):
    """An answer that is read while it arrives: its head, and the pieces of its body."""

    head: Response
    """Without its body."""
    pieces: AsyncIterator[bytes]


class Transport(Protocol):
    """Sends a request to an upstream and returns the response."""

    async def send(self, request: Request, *, deadline: float | None = None) -> Response:
        """Return the answer, whatever its status; `deadline` is in epoch milliseconds.

        Raises:
            InvalidInput: a header that does not stay one line.
            UpstreamError: there is no whole answer; `details["reason"]` says why.
            Timeout: the deadline passed.
            Failed: `address_not_allowed`.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


@runtime_checkable
class StreamingTransport(Protocol):
    """A transport that also returns responses while they arrive."""

    def stream(
        self, request: Request, *, deadline: float | None = None
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Open the answer, whatever its status; leaving the context ends the connection.

        Raises:
            CallError: as `Transport.send`, also while the pieces are read.
        """
        ...


def check_request(request: Request) -> None:
    """Refuse a method, header name or header value that is not exactly one line.

    Raises:
        InvalidInput: with one issue for each header, which names it and never shows its value.
        UsageError: the body is not bytes.
    """
    body: Any = request.body
    if not isinstance(body, bytes | None):
        kind = type(body).__name__
        raise UsageError(f"the body of a request must be bytes or None, got {kind}")
    if request.method in _USUAL and all(map(_is_sound, request.headers.items())):
        return
    issues = tuple(_issues(request))
    if issues:
        raise InvalidInput(lambda: issues)


def _is_sound(header: tuple[str, Any]) -> bool:
    name, value = header
    return bool(_TOKEN.fullmatch(name)) and type(value) is str and not _NOT_IN_VALUES.search(value)


def _issues(request: Request) -> Iterator[Issue]:
    method = request.method
    if not _TOKEN.fullmatch(method) or method.upper() in _METHODS_OF_PROXIES:
        yield Issue("pattern", f"{_named(method)} is not a method that can be sent", "/method")
    for name, given in request.headers.items():
        value: Any = given
        if not _TOKEN.fullmatch(name):
            yield _issue(name, "is not a name that a header can have")
        elif not isinstance(value, str):
            yield _issue(name, f"must be text, got {type(value).__name__}")
        elif _NOT_IN_VALUES.search(value):
            yield _issue(
                name,
                "must be one line of Latin-1 text: it holds a line break, another control "
                "character, or a character that no header can carry",
            )


def _issue(name: str, what: str) -> Issue:
    pointer = _named(name).strip("'").replace("~", "~0").replace("/", "~1")
    return Issue("pattern", f"Header {_named(name)} {what}", f"/headers/{pointer}")


def _named(name: str) -> str:
    return f"'{name.encode('ascii', 'backslashreplace').decode().translate(_VISIBLE)[:60]}'"


_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F)}


def shown_host(url: str) -> str:
    """The host of a URL, for messages, which may show no other part of it."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait before the next request, from `Retry-After` in seconds or as a date.

    `now` is in epoch seconds. None if the header is absent or cannot be read.
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,10}", value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # A date without a zone is GMT (RFC 9110, section 5.6.7).
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)
