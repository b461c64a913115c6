"""One exchange with an upstream: a request out, a whole answer in. Needs aiohttp.

Enforces the limits of size, connections and silence. Redirects, retries and deadlines are the
transport's.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Mapping
from importlib.metadata import version

import aiohttp
from msgspec import Struct
from yarl import URL

from callpact.errors import CallError
from callpact.net.address import AddressRules, Place, Refused
from callpact.net.connections import (
    Broken,
    ConnectAttempt,
    Lookup,
    NotHttp,
    ObservedRequest,
    Resolver,
    Wire,
    call_error,
    system_lookup,
)
from callpact.net.decode import ACCEPTED, Body, TooLarge, Undecodable
from callpact.net.failures import late, queue_full, upstream_error
from callpact.net.limits import Limits
from callpact.net.message import Request, Response

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_WITHOUT_BODY = frozenset({204, 304})
_KEPT_SECONDS = 15.0
_NOT_INVENTED = ("Content-Type",)
_LARGE_BODY = 2**20  # aiohttp warns about larger bodies that are sent in one piece.
# Headers of routing, framing and connections, which the transport sets itself. Set by a caller,
# each of them can split one request into two.
_OURS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


_FAILURES = (aiohttp.ClientError, Broken, NotHttp, Refused, TooLarge, Undecodable)


class Redirect(Struct, frozen=True):
    """An answer that is a redirect."""

    status: int
    locations: tuple[str, ...]


class Unanswered(Struct, frozen=True):
    """No byte of an answer was received; `error` says why."""

    error: CallError


class _Lane:
    """The semaphore of one origin."""

    __slots__ = ("turns", "users")

    def __init__(self, turns: int) -> None:
        self.turns = asyncio.Semaphore(turns)
        self.users = 0


class Turns:
    """Bounds the requests of one event loop: per origin, in total, and waiting."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = asyncio.Semaphore(limits.connections)
        self._lanes: dict[tuple[str, str, int], _Lane] = {}
        self._waiting = 0

    async def take(self, place: Place) -> None:
        """Wait for a turn.

        Raises:
            UpstreamError: too many requests wait already.
        """
        origin = place.origin
        lane = self._lanes.get(origin)
        if lane is None:
            lane = self._lanes[origin] = _Lane(self._limits.connections_per_host)
        lane.users += 1
        try:
            await self._wait(lane, place.host)
        except BaseException:
            self._leave(lane, place)
            raise

    async def _wait(self, lane: _Lane, host: str) -> None:
        must_wait = lane.turns.locked() or self._all.locked()
        if must_wait and self._waiting >= self._limits.waiting:
            raise queue_full(host, self._limits.waiting)
        self._waiting += must_wait
        try:
            # The turn at the host first: a request that waits for a slow host must not hold a slot.
            await lane.turns.acquire()
            try:
                await self._all.acquire()
            except BaseException:
                lane.turns.release()
                raise
        finally:
            self._waiting -= must_wait

    def give_back(self, place: Place) -> None:
        """End a turn."""
        lane = self._lanes[place.origin]
        lane.turns.release()
        self._all.release()
        self._leave(lane, place)

    def _leave(self, lane: _Lane, place: Place) -> None:
        lane.users -= 1
        if not lane.users:
            del self._lanes[place.origin]


class SessionPool:
    """The session and the connections of one event loop."""

    def __init__(self, limits: Limits, rules: AddressRules, lookup: Lookup | None) -> None:
        self._limits = limits
        self._rules = rules
        self._wires: set[Wire] = set()
        self._turns = Turns(limits)
        self._session = aiohttp.ClientSession(
            # `Turns` bounds the requests under way, with a bounded queue.
            connector=aiohttp.TCPConnector(
                resolver=Resolver(rules, lookup or system_lookup),
                limit=0,
                keepalive_timeout=_KEPT_SECONDS,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=ObservedRequest,
            trust_env=False,
            auto_decompress=False,
            headers={"User-Agent": f"callpact/{version('callpact')}", "Accept-Encoding": ACCEPTED},
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
            timeout=aiohttp.ClientTimeout(
                total=None,
                connect=limits.connect_seconds,
                sock_connect=limits.connect_seconds,
                sock_read=limits.first_byte_seconds,
            ),
        )

    async def exchange(self, request: Request, place: Place) -> Response | Redirect | Unanswered:
        """Send one request to one place, in its turn.

        Raises:
            CallError: the answer is incomplete, or the place may not be reached.
        """
        await self._turns.take(place)
        try:
            if self._session.closed:
                return Unanswered(_closed(place.host))
            return await self._exchange(request, place)
        finally:
            self._turns.give_back(place)

    async def _exchange(self, request: Request, place: Place) -> Response | Redirect | Unanswered:
        attempt = ConnectAttempt(place, self._rules, self._wires, self._limits.connections)
        response: aiohttp.ClientResponse | None = None
        is_whole = False
        try:
            response = await self._asked(request, place, attempt)
            answer = await self._answer(request, response)
            is_whole = True
        except _FAILURES as error:
            failure = self._failure(error, place, response)
            if isinstance(error, Broken) and not error.is_answered:
                return Unanswered(failure)
        except asyncio.CancelledError:
            if not self._is_closed_only():
                raise
            failure = _closed(place.host)
        else:
            return answer
        finally:
            if response is not None and is_whole:
                response.release()
            elif response is not None:
                response.close()
            attempt.end(is_whole=is_whole)
        # Raised here, without a context: the errors of aiohttp hold URLs and headers.
        raise failure

    async def stream(
        self, request: Request, place: Place
    ) -> AsyncGenerator[Response | Redirect | Unanswered | bytes, None]:
        """Send one request; yield the head of its answer, then the pieces of its body.

        Raises:
            CallError: the answer is incomplete or encoded, or the place may not be reached.
        """
        await self._turns.take(place)
        attempt = ConnectAttempt(place, self._rules, self._wires, self._limits.connections)
        response: aiohttp.ClientResponse | None = None
        failure: CallError | None = None
        try:
            if self._session.closed:
                yield Unanswered(_closed(place.host))
                return
            try:
                response = await self._asked(request, place, attempt)
                head = self._head(response)
            except _FAILURES as error:
                head = Unanswered(self._failure(error, place, response))
                if not isinstance(error, Broken) or error.is_answered:
                    failure = head.error
            except asyncio.CancelledError:
                if not self._is_closed_only():
                    raise
                head = Unanswered(_closed(place.host))
            if failure is None:
                yield head
            while failure is None and response is not None and isinstance(head, Response):
                try:
                    data = await response.content.readany()
                except _FAILURES as error:
                    failure = self._failure(error, place, response, is_stream=True)
                    break
                if not data:
                    break
                yield data
        finally:
            if response is not None:
                response.close()
            attempt.end(is_whole=False)
            self._turns.give_back(place)
        if failure is not None:
            raise failure

    async def _asked(
        self, request: Request, place: Place, attempt: ConnectAttempt
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            URL(place.url, encoded=True),
            headers=_sent_headers(request.headers),
            data=_sent_body(request.body),
            skip_auto_headers=None if request.method == "GET" else _NOT_INVENTED,
            allow_redirects=False,
            middlewares=(attempt,),
        )

    def _failure(
        self,
        error: Exception,
        place: Place,
        response: aiohttp.ClientResponse | None,
        *,
        is_stream: bool = False,
    ) -> CallError:
        status = response.status if response is not None else None
        if is_stream and isinstance(error, aiohttp.ServerTimeoutError):
            return late(place.host, "stream_idle", self._limits, status)
        return call_error(error, place.host, self._limits, status)

    def _is_closed_only(self) -> bool:
        """True if a cancellation comes from aiohttp, which cancels lookups when it is closed."""
        task = asyncio.current_task()
        return self._session.closed and (task is None or not task.cancelling())

    def _head(self, response: aiohttp.ClientResponse) -> Response | Redirect:
        headers, cookies = self._headers(response)
        if response.status in _REDIRECTS and "location" in headers:
            return Redirect(response.status, tuple(_values(response, b"location")))
        encodings = ",".join(_values(response, b"content-encoding")).lower()
        if encodings.strip(" ,") not in {"", "identity"}:
            raise Undecodable("is encoded, which no stream may be")
        _allow_silence(response, self._limits.stream_idle_seconds)
        return Response(response.status, headers, b"", cookies)

    async def _answer(
        self, request: Request, response: aiohttp.ClientResponse
    ) -> Response | Redirect:
        headers, cookies = self._headers(response)
        if response.status in _REDIRECTS and "location" in headers:
            return Redirect(response.status, tuple(_values(response, b"location")))
        if response.status < 200:
            raise NotHttp
        has_no_body = request.method == "HEAD" or response.status in _WITHOUT_BODY
        encodings = () if has_no_body else _values(response, b"content-encoding")
        body = Body(encodings, self._limits)
        length = headers.get("content-length", "")
        if not has_no_body and length.isdigit() and int(length) > self._limits.body_bytes:
            raise TooLarge("body_bytes", self._limits.body_bytes)
        _allow_silence(response, self._limits.idle_seconds)
        read = response.content.readany
        while data := await read():
            body.feed(data)
        has_an_end = has_no_body or bool(length) or "transfer-encoding" in headers
        return Response(response.status, headers, body.end(may_be_empty=has_an_end), cookies)

    def _headers(self, response: aiohttp.ClientResponse) -> tuple[dict[str, str], tuple[str, ...]]:
        headers: dict[str, str] = {}
        cookies: list[str] = []
        size = 0
        for raw_name, raw_value in response.raw_headers:
            size += len(raw_name) + len(raw_value) + 4
            name, value = _text(raw_name).lower(), _text(raw_value)
            if name == "set-cookie":
                cookies.append(value)
            else:
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if size > self._limits.header_bytes:
            raise TooLarge("header_bytes", self._limits.header_bytes)
        return headers, tuple(cookies)

    async def close(self) -> None:
        """Close every connection; exchanges under way fail."""
        await self._session.close()


def _allow_silence(response: aiohttp.ClientResponse, seconds: float) -> None:
    connection = response.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.read_timeout = seconds
        connection.protocol.start_timeout()


def _closed(host: str) -> CallError:
    return upstream_error("reset", f"The transport was closed before '{host}' answered")


def _sent_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v.strip(" \t") for k, v in headers.items() if k.lower() not in _OURS}


def _sent_body(body: bytes | None) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if body and len(body) > _LARGE_BODY else body


def _values(response: aiohttp.ClientResponse, name: bytes) -> list[str]:
    return [_text(value) for key, value in response.raw_headers if key.lower() == name]


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
