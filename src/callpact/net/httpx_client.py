"""The HTTP client of the MCP SDK, held to the rules of this package. Needs the extra `mcp`.

Every connection goes to an address that `AddressRules` let through, bodies are bounded, encodings
are refused (a small body could hide a large one), a stream of events answers only its own request,
and a refusal keeps its status and `Retry-After` in the JSON-RPC error that the SDK makes of it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any, Protocol, cast

import httpcore2
import httpx2
import orjson

from callpact.net.address import AddressRules, Refused
from callpact.net.answer_filter import AnswerFilter
from callpact.net.limits import Limits
from callpact.schema import is_object

HTTP_STATUS = -32_011
"""The code of a JSON-RPC error that stands for a refusal of HTTP."""
NOT_REACHED = -32_010
"""The code of a JSON-RPC error for a request that got no answer over HTTP."""
MAX_REFUSAL_BYTES = 2_000
"""Bytes of a refusal's body that its error shows."""
MAX_RESUMABLE = 1_000
"""Streams of one server whose last event is remembered, so that they can go on after a break."""
_AMBIGUOUS = {-32_000, -32_001}
"""Codes of other SDKs for refusals of HTTP; the SDK here has them for a lost connection and time."""


def checked_client(
    rules: AddressRules,
    headers: Mapping[str, str],
    limits: Limits,
    token: RenewableToken | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """Make a client that reaches only what the rules let through, within the limits.

    A `token` is sent with every request; after a 401 the request is repeated once with another.
    Without one, `auth` authorizes the requests.
    """
    timeout = httpx2.Timeout(
        limits.idle_seconds, connect=limits.connect_seconds, read=None, pool=None
    )
    return httpx2.AsyncClient(
        transport=_CheckedTransport(rules, limits),
        headers={"accept-encoding": "identity", **headers},
        timeout=timeout,
        auth=auth if token is None else _BearerAuth(token),
        trust_env=False,
    )


class RenewableToken(Protocol):
    """A token that can be replaced when a server refuses it."""

    value: str

    def accept(self, value: str) -> None:
        """Note that the server took a token."""
        ...

    async def renew(self, refused: str) -> str | None:
        """Return another token than the refused one; None if there is none. Raises nothing."""
        ...


class _BearerAuth(httpx2.Auth):
    def __init__(self, token: RenewableToken) -> None:
        self._token = token

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        used = self._token.value
        request.headers["authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code != 401:
            self._token.accept(used)
            return
        fresh = await self._token.renew(used)
        if fresh is not None:
            request.headers["authorization"] = f"Bearer {fresh}"
            yield request


class _CheckedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, rules: AddressRules, limits: Limits) -> None:
        super().__init__(trust_env=False)
        self._limits = limits
        self._resumable: dict[str, object] = {}
        """Last event → id of the request that its stream answers."""
        # The one seam for connections is an option of the pool, which httpx2 does not pass on.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(trust_env=True),
            max_connections=limits.connections,
            network_backend=_CheckedBackend(rules),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # The SDK ends the whole connection, with every call on it, when one request raises.
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            return _failure(request, error)
        if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
            await response.aclose()
            return _failure(request, "the server encoded its answer, which was not asked for")
        if response.status_code >= 400:
            return await _refusal(response)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Bounded(response.stream, self._limits.body_bytes)
        elif (request_id := self._request_id(request)) is not None:
            answers = AnswerFilter(request_id, self._limits.body_bytes)
            response.stream = _OwnEvents(response.stream, answers, self._resumable)
        return response

    def _request_id(self, request: httpx2.Request) -> object:
        """The id of the request that a stream answers, also if it goes on after a break."""
        if request.method == "POST":
            try:
                sent = orjson.loads(request.content)
            except ValueError:  # A form, to a token endpoint.
                return None
            return sent.get("id") if is_object(sent) else None
        return self._resumable.get(request.headers.get("last-event-id", ""))


def _failure(request: httpx2.Request, reason: object) -> httpx2.Response:
    """The answer that stands for a request without one."""
    error = {"code": NOT_REACHED, "message": str(reason) or type(reason).__name__}
    body = orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    headers = {"content-type": "application/json"}
    return httpx2.Response(502, headers=headers, content=body, request=request)


async def _refusal(response: httpx2.Response) -> httpx2.Response:
    """The same refusal; its body is a JSON-RPC error that says its status."""
    start = b""
    try:
        async for chunk in cast("AsyncIterator[bytes]", response.stream):
            start += chunk
            if len(start) > 65_536:
                break
    finally:
        await response.aclose()
    headers = {
        name: value
        for name, value in response.headers.items()
        if name.lower() not in {"content-length", "content-type", "transfer-encoding"}
    }
    body = start if _is_jsonrpc_error(start) else _error_body(response, start)
    return httpx2.Response(
        response.status_code,
        headers={**headers, "content-type": "application/json"},
        content=body,
    )


def _is_jsonrpc_error(data: bytes) -> bool:
    try:
        read = orjson.loads(data)
    except ValueError:
        return False
    error = read.get("error") if is_object(read) else None
    code = error.get("code") if is_object(error) else None
    return isinstance(code, int) and code not in _AMBIGUOUS


def _error_body(response: httpx2.Response, start: bytes) -> bytes:
    details: dict[str, Any] = {
        "statusCode": response.status_code,
        "contentType": response.headers.get("content-type", ""),
        "body": start[:MAX_REFUSAL_BYTES].decode("utf-8", "replace"),
    }
    if wait := response.headers.get("retry-after"):
        details["retryAfter"] = wait[:100]
    error = {"code": HTTP_STATUS, "message": f"HTTP {response.status_code}", "data": details}
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > self._limit:
                    raise httpx2.StreamError(f"the answer has more than {self._limit:,} bytes")
                yield chunk
        except httpx2.TransportError as error:  # A StreamError costs one request, see above.
            raise httpx2.StreamError(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        await self._inner.aclose()


class _OwnEvents(httpx2.AsyncByteStream):
    """A stream of events without answers to other requests."""

    def __init__(self, inner: Any, answers: AnswerFilter, resumable: dict[str, object]) -> None:
        self._inner = inner
        self._answers = answers
        self._resumable = resumable

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answers = self._answers
        async for chunk in self._inner:
            before = answers.last_event
            passed = answers.feed(chunk)
            if answers.last_event != before:
                self._resumable.pop(before, None)
                self._resumable[answers.last_event] = answers.request_id
                if len(self._resumable) > MAX_RESUMABLE:
                    del self._resumable[next(iter(self._resumable))]
            if passed:
                yield passed
        if rest := answers.rest():
            yield rest

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that the rules let through, and to no others."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore2's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        error: Exception = httpcore2.ConnectError("the host has no address")
        for address in await self._addresses(host, port):
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                error = failed
        raise error

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            self._rules.check_place(host, port)
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Refused as refused:
            raise httpcore2.ConnectError(str(refused.error())) from None
        except OSError as failed:
            raise httpcore2.ConnectError(str(failed)) from None
        allowed: list[str] = []
        reason = ""
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            try:
                self._rules.check_address(host, port, address)
            except Refused as refused:
                reason = str(refused.error())
            else:
                allowed.append(address)
        if not allowed and reason:
            raise httpcore2.ConnectError(reason)
        return allowed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
