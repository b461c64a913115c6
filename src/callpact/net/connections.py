"""aiohttp's connections under our rules, and its exceptions as our errors.

Imported with the first request, as aiohttp is an extra. Names are resolved here; each address is
checked before the connection is made and again on the connection itself. Unsolicited bytes close a
connection.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import ContentLengthError, LineTooLong

from callpact.errors import CallError, UpstreamError
from callpact.net.address import AddressRules, Place, Refused
from callpact.net.decode import TooLarge, Undecodable
from callpact.net.failures import late, too_large, upstream_error
from callpact.net.limits import Limits

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""An async function that returns the addresses of a name, for a port."""


async def system_lookup(host: str, port: int) -> list[str]:
    """The addresses of a name as this machine resolves it."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    # An address with a scope (fe80::1%eth0) is one of this machine's own links.
    return [str(end[0]) for *_, end in infos if len(end) < 4 or not end[3]]


class Resolver(AbstractResolver):
    """A resolver that gives aiohttp only the addresses that may be reached."""

    def __init__(self, rules: AddressRules, lookup: Lookup) -> None:
        self._rules = rules
        self._lookup = lookup

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the signature is aiohttp's
    ) -> list[ResolveResult]:
        """The addresses of a name.

        Raises:
            Refused: none of them may be reached.
            OSError: there are none.
        """
        found: list[ResolveResult] = []
        refused: Refused | None = None
        for address in await self._lookup(host, port):
            try:
                self._rules.check_address(host, port, address)
            except Refused as error:
                refused = error
            else:
                found.append(_resolved(host, port, address))
        if refused and not found:
            raise refused
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return found

    async def close(self) -> None:
        """Nothing to close."""


def _resolved(host: str, port: int, address: str) -> ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    }


class Wire(asyncio.Protocol):
    """A protocol between a connection and aiohttp's reader that watches the bytes.

    It records whether a byte of the answer was received, and closes a connection that receives
    bytes outside of a request: they would be read as the answer to the next request.
    """

    def __init__(self, transport: asyncio.Transport, inner: Any, wires: set[Wire]) -> None:
        self.transport = transport
        self.has_bytes = False
        self.is_resting = False
        self._inner = inner
        self._feed = inner.data_received
        self._wires = wires
        wires.add(self)
        transport.set_protocol(self)

    def wake(self) -> None:
        """Start to accept bytes: a request begins."""
        self.has_bytes = False
        self.is_resting = False

    def rest(self) -> None:
        """Accept no more bytes: the connection is idle or being closed."""
        self.is_resting = True

    def data_received(self, data: bytes) -> None:
        if self.is_resting:
            self.transport.abort()
            return
        self.has_bytes = True
        self._feed(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wires.discard(self)
        self._inner.connection_lost(exc)


class ConnectAttempt:
    """One attempt to send a request; aiohttp runs it as a middleware."""

    __slots__ = ("_most", "_place", "_rules", "_wire", "_wires")

    def __init__(self, place: Place, rules: AddressRules, wires: set[Wire], most: int) -> None:
        self._place = place
        self._rules = rules
        self._wires = wires
        self._most = most
        self._wire: Wire | None = None

    async def __call__(self, request: Any, handler: Any) -> aiohttp.ClientResponse:
        request.attempt = self
        try:
            return await handler(request)
        except (aiohttp.ServerTimeoutError, aiohttp.ClientSSLError):
            raise
        except aiohttp.ClientConnectionError as error:
            is_answered = self._wire is not None and self._wire.has_bytes
            raise Broken(error, is_answered=is_answered) from None

    def take(self, connection: Any) -> None:
        """Use a new or pooled connection.

        Raises:
            Refused: the address at its other end may not be reached.
        """
        transport: asyncio.Transport | None = connection.transport
        peer = transport.get_extra_info("peername") if transport else None
        if transport is None or not peer:
            raise aiohttp.ServerDisconnectedError
        wire = transport.get_protocol()
        if not isinstance(wire, Wire):
            self._rules.check_address(self._place.host, self._place.port, peer[0])
            wire = Wire(transport, cast("Any", wire), self._wires)
            if len(self._wires) > self._most:
                connection.protocol.force_close()
        wire.wake()
        connection.add_callback(wire.rest)
        self._wire = wire

    def end(self, *, is_whole: bool) -> None:
        """Abort a connection that did not return to the pool.

        A graceful close could wait forever for the upstream to read.
        """
        wire = self._wire
        if wire is None or (is_whole and wire.is_resting and not wire.transport.is_closing()):
            return
        wire.transport.abort()


class ObservedRequest(aiohttp.ClientRequest):
    """aiohttp's request, which passes the connection to its `ConnectAttempt` before it is written to."""

    attempt: ConnectAttempt

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        self.attempt.take(conn)
        return await super().send(conn)


class Broken(Exception):
    """A connection that failed or closed; `is_answered` if a byte of an answer was received.

    Raised in place of aiohttp's own error, so that aiohttp does not retry the request itself.
    """

    def __init__(self, cause: aiohttp.ClientConnectionError, *, is_answered: bool) -> None:
        super().__init__()
        self.cause = cause
        self.is_answered = is_answered


class NotHttp(Exception):
    """A reply that is not HTTP."""


def call_error(error: Exception, host: str, limits: Limits, status: int | None) -> CallError:
    """The error of a call for an exception of one exchange."""
    match error:
        case Refused():
            return error.error()
        case TooLarge():
            return too_large(host, error.limit, error.value, status)
        case Undecodable():
            message = f"The answer of '{host}' cannot be decoded: it {error}"
            return upstream_error("encoding", message, status)
        case Broken():
            return _broken(error, host)
        case aiohttp.ConnectionTimeoutError():
            return late(host, "connect", limits)
        case aiohttp.ServerTimeoutError():
            return late(host, "first_byte" if status is None else "idle", limits, status)
        case aiohttp.ClientSSLError():
            return _tls(error, host)
        case _ if _is_cut(error):
            message = f"'{host}' closed the connection before its answer was whole"
            return upstream_error("reset", message, status)
        case aiohttp.ClientResponseError() if _has_large_head(error):
            return _large_head(error, host, limits)
        case _:
            return upstream_error("protocol", f"'{host}' sent an answer that is not HTTP", status)


def _broken(error: Broken, host: str) -> UpstreamError:
    cause = error.cause
    if not isinstance(cause, aiohttp.ClientConnectorError):
        when = "before its answer was whole" if error.is_answered else "before it answered"
        return upstream_error("reset", f"'{host}' closed the connection {when}")
    if isinstance(cause.os_error, socket.gaierror):
        return upstream_error("connect", f"'{host}' cannot be reached: its name is not known")
    # The system's error text contains the resolved address; its error number does not.
    name = errno.errorcode.get(cause.os_error.errno or 0, "")
    why = "it refuses connections" if name == "ECONNREFUSED" else "no connection could be made"
    details: dict[str, Any] = {"errno": name} if name else {}
    return upstream_error("connect", f"'{host}' cannot be reached: {why}", **details)


def _tls(error: aiohttp.ClientSSLError, host: str) -> UpstreamError:
    why = "it does not speak TLS as we do"
    if isinstance(error.os_error, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted ({error.os_error.verify_message})"
    return upstream_error("tls", f"There is no secure connection to '{host}': {why}")


def _is_cut(error: Exception) -> bool:
    """True if the connection ended within an answer; only the cause of aiohttp's error shows it."""
    if isinstance(error, aiohttp.ClientConnectionError):
        return True
    cause = error.__cause__
    return isinstance(error, aiohttp.ClientPayloadError) and (
        isinstance(cause, ContentLengthError | OSError) or "Not enough data" in str(cause)
    )


def _has_large_head(error: aiohttp.ClientResponseError) -> bool:
    return _has_long_line(error) or error.message.startswith("Too many headers")


def _has_long_line(error: aiohttp.ClientResponseError) -> bool:
    cause = error.__cause__
    return isinstance(cause, LineTooLong) or isinstance(cause and cause.__cause__, LineTooLong)


def _large_head(error: aiohttp.ClientResponseError, host: str, limits: Limits) -> UpstreamError:
    if _has_long_line(error):
        return too_large(host, "header_bytes", limits.header_bytes)
    return too_large(host, "headers", limits.headers)
