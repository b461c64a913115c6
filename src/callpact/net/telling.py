"""What aiohttp raises, told as errors of ours. Imported only where aiohttp is there."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import aiohttp
from aiohttp.http_exceptions import ContentLengthError, LineTooLong

from callpact.errors import CallError, UpstreamError
from callpact.net.address import Refused
from callpact.net.decode import TooLarge, Undecodable
from callpact.net.failure import late, too_large, upstream_error
from callpact.net.limits import Limits


class Broken(Exception):
    """A connection that could not be made or ended; `is_answered` if a byte of an answer came.

    It stands between aiohttp and its own retry, which does not ask about bytes.
    """

    def __init__(self, cause: aiohttp.ClientConnectionError, *, is_answered: bool) -> None:
        super().__init__()
        self.cause = cause
        self.is_answered = is_answered


class NotHttp(Exception):
    """An answer that is none."""


def told(error: Exception, host: str, limits: Limits, status: int | None) -> CallError:
    """The error of ours for what went wrong in one exchange."""
    match error:
        case Refused():
            return error.told()
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
    # The text of the system names the address behind the host; its number does not.
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
    """Whether the connection ended within an answer; aiohttp tells it by the cause alone."""
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
