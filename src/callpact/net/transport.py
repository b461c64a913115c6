"""The transport over HTTP: address checks, deadlines, redirects, one retry.

aiohttp is imported with the first request (`exchange.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from callpact.errors import InvalidConfig, SourceRefused, Timeout, UsageError
from callpact.net.address import AddressRules, Place, Refused, place_of
from callpact.net.failures import bad_redirect, late
from callpact.net.limits import Limits
from callpact.net.message import Request, Response, StreamedResponse, check_request
from callpact.net.redirect import next_request, redirected

if TYPE_CHECKING:
    from callpact.net.exchange import Redirect, SessionPool, Unanswered

    Exchanging = Callable[[Request, Place], Awaitable[Response | Redirect | Unanswered]]

_RETRIED = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class HttpTransport:
    """Sends requests over HTTP/1.1, within limits, to public addresses and those in `allow`.

    Connections are kept for the next request, cookies are not. `upstreams` sends requests for one
    root to another, which is then allowed. `lookup` replaces the resolver of the system. Proxies
    and passwords of the environment are not used.

    Raises:
        InvalidConfig: an entry of `allow` or `upstreams` that cannot be used.
        SourceRefused: the extra is not installed.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        allow: AddressRules | Iterable[str] = (),
        *,
        upstreams: Mapping[str, str] | None = None,
        lookup: Callable[[str, int], Awaitable[list[str]]] | None = None,
    ) -> None:
        if not (find_spec("aiohttp") and find_spec("brotli")):
            raise SourceRefused(
                "sending requests needs the extra 'flowmcp': pip install 'callpact[flowmcp]'"
            )
        self._limits = limits or Limits()
        self._upstreams = Upstreams(upstreams or {})
        rules = allow if isinstance(allow, AddressRules) else AddressRules(allow)
        self._rules = rules.with_hosts(self._upstreams.hosts)
        self._lookup = lookup
        self._pools: dict[asyncio.AbstractEventLoop, SessionPool] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def send(self, request: Request, *, deadline: float | None = None) -> Response:
        """Return the answer, whatever its status; `deadline` is in epoch milliseconds.

        Raises:
            InvalidInput: a header that does not stay one line.
            UpstreamError: there is no whole answer; `details["reason"]` says why.
            Timeout: the deadline passed.
            Failed: `address_not_allowed`.
            UsageError: the transport is closed.
        """
        check_request(request)
        place = self._place(request.url)
        return await self._timed(
            lambda pool: self._follow(pool.exchange, request, place), place, deadline
        )

    @asynccontextmanager
    async def stream(
        self, request: Request, *, deadline: float | None = None
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Open the answer, whatever its status, and read its body while it arrives.

        `total_seconds` bounds the time until the head of the answer, `stream_idle_seconds` each
        silence after it, and the deadline all of it. The size is not bounded, as no piece is kept.
        Leaving the context closes the connection.

        Raises:
            CallError: as `send`, also while the pieces are read.
        """
        check_request(request)
        place = self._place(request.url)
        opened: list[AsyncGenerator[Any, None]] = []

        async def follow(pool: SessionPool) -> Response:
            async def exchange(request: Request, place: Place) -> Response | Redirect | Unanswered:
                for each in opened:
                    await each.aclose()
                opened.append(pool.stream(request, place))
                return await anext(opened[-1])

            return await self._follow(exchange, request, place)

        try:
            head = await self._timed(follow, place, deadline)
            yield StreamedResponse(head, self._pieces(opened[-1], place, deadline))
        finally:
            for each in opened:
                await each.aclose()

    async def _pieces(
        self, pieces: AsyncIterator[bytes], place: Place, deadline: float | None
    ) -> AsyncIterator[bytes]:
        seconds = None
        while True:
            if deadline is not None:
                seconds = max(0.0, deadline / 1_000 - time.time())
            timer = asyncio.timeout(seconds)
            try:
                async with timer:
                    piece = await anext(pieces, None)
            except TimeoutError:
                if not timer.expired() or deadline is None:
                    raise
                raise Timeout(place.host, deadline) from None
            if piece is None:
                return
            yield piece

    async def _timed(
        self,
        work: Callable[[SessionPool], Awaitable[Response]],
        place: Place,
        deadline: float | None,
    ) -> Response:
        """Do the work of a request within its limit of time and its deadline."""
        seconds = self._limits.total_seconds
        if deadline is not None:
            seconds = min(seconds, deadline / 1_000 - time.time())
            if seconds <= 0:
                raise Timeout(place.host, deadline, begun=False)
        pool = self._pool()
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                return await work(pool)
        except TimeoutError:
            if not timer.expired():
                raise
        if deadline is not None and seconds < self._limits.total_seconds:
            raise Timeout(place.host, deadline)
        raise late(place.host, "total", self._limits)

    async def aclose(self) -> None:
        """Close every connection; requests under way fail."""
        self._is_closed = True
        here = asyncio.get_running_loop()
        pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            if loop is here:
                await pool.close()
            elif loop.is_running():
                ending = asyncio.run_coroutine_threadsafe(pool.close(), loop)
                await asyncio.wrap_future(ending)

    def _pool(self) -> SessionPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            from callpact.net.exchange import SessionPool

            if self._is_closed:
                raise UsageError("the transport is closed")
            for ended in [loop for loop in tuple(self._pools) if loop.is_closed()]:
                self._pools.pop(ended, None)
            pool = self._pools[loop] = SessionPool(self._limits, self._rules, self._lookup)
        return pool

    async def _follow(self, exchange: Exchanging, request: Request, place: Place) -> Response:
        from callpact.net.exchange import Unanswered

        if not request.method.isupper():
            request = replace(request, method=request.method.upper())
        may_retry = True
        hops = 0
        while True:
            answer = await exchange(request, place)
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, Unanswered):
                if not may_retry or request.method not in _RETRIED:
                    raise answer.error
                may_retry = False
                continue
            if hops == self._limits.redirects:
                raise bad_redirect(place.host, answer.status, f"is one too many, after {hops}")
            hops += 1
            named = self._target(place, answer)
            target = self._checked(named)
            if target.origin != place.origin and request.check_redirect is not None:
                request.check_redirect(named)
            request = next_request(request, answer.status, place, target)
            place = target

    def _target(self, place: Place, redirect: Redirect) -> Place:
        try:
            return redirected(place, redirect.status, redirect.locations)
        except Refused as refused:
            raise refused.error() from None

    def _place(self, url: str) -> Place:
        try:
            place = place_of(url)
        except Refused as refused:
            raise refused.error() from None
        return self._checked(place)

    def _checked(self, place: Place) -> Place:
        place = self._upstreams.instead_of(place)
        try:
            self._rules.check_place(place.host, place.port)
        except Refused as refused:
            raise refused.error() from None
        return place


class Upstreams:
    """A mapping of roots: `{"https://api.example.com": "http://localhost:8123"}`.

    The longest root that matches whole segments of the path is used.

    Raises:
        InvalidConfig: a root that is no URL, or has a query.
    """

    def __init__(self, roots: Mapping[str, str]) -> None:
        pairs = [(_root(given), _root(instead)) for given, instead in roots.items()]
        self._pairs = sorted(pairs, key=lambda pair: len(pair[0].tail), reverse=True)

    @property
    def hosts(self) -> list[str]:
        """The hosts that must be allowed for the mapping."""
        return [f"{f'[{p.host}]' if ':' in p.host else p.host}:{p.port}" for _, p in self._pairs]

    def instead_of(self, place: Place) -> Place:
        """The place that a request for a place is sent to."""
        for root, instead in self._pairs:
            if root.origin == place.origin and _is_under(place.tail, root.tail):
                tail = instead.tail + place.tail[len(root.tail) :]
                tail = tail if tail.startswith("/") else f"/{tail}"
                return Place(instead.scheme, instead.host, instead.port, tail)
        return place


def _root(url: str) -> Place:
    try:
        place = place_of(url)
    except Refused as refused:
        where = f"the root at '{refused.host}'" if refused.host else "a root"
        raise InvalidConfig(f"upstreams: {where} cannot be used: {refused.why}") from None
    if "?" in place.tail:
        raise InvalidConfig(f"upstreams: the root at '{place.host}' must not have a query")
    return Place(place.scheme, place.host, place.port, place.tail.rstrip("/"))


def _is_under(tail: str, root: str) -> bool:
    return tail.startswith(root) and tail[len(root) : len(root) + 1] in {"", "/", "?"}
