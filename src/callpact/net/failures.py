"""The errors of a request: a host and a reason, never a URL, never the value of a header."""

from __future__ import annotations

from typing import Any, Literal

from callpact.errors import UpstreamError
from callpact.net.limits import Limits

Reason = Literal[
    "connect", "timeout", "reset", "tls", "encoding", "too_large", "protocol", "redirect", "queue"
]
Phase = Literal["connect", "first_byte", "idle", "stream_idle", "total"]

_LATE: dict[Phase, str] = {
    "connect": "did not take a connection",
    "first_byte": "did not answer",
    "idle": "did not go on with its answer",
    "stream_idle": "sent nothing more",
    "total": "did not finish its answer",
}


def upstream_error(
    reason: Reason, message: str, status: int | None = None, **details: Any
) -> UpstreamError:
    """An error with its reason, and the status only if there was an answer."""
    if status is not None:
        details["statusCode"] = status
    return UpstreamError(message, details={"reason": reason, **details})


def late(host: str, phase: Phase, limits: Limits, status: int | None = None) -> UpstreamError:
    """The error for a time limit that was exceeded."""
    seconds: float = getattr(limits, f"{phase}_seconds")
    message = f"'{host}' {_LATE[phase]} within {seconds:g} s"
    return upstream_error("timeout", message, status, phase=phase, seconds=seconds)


def too_large(host: str, limit: str, value: int, status: int | None = None) -> UpstreamError:
    """The error for a size limit that was exceeded."""
    unit = "bytes" if limit.endswith("_bytes") else limit
    message = f"The answer of '{host}' has more than {value:,} {unit}, the limit {limit}"
    return upstream_error("too_large", message, status, limit=limit, value=value)


def queue_full(host: str, waiting: int) -> UpstreamError:
    """The error for a full queue."""
    message = f"'{host}' was not asked: {waiting:,} requests wait for their turn already"
    return upstream_error("queue", message, limit="waiting", value=waiting)


def bad_redirect(host: str, status: int, what: str) -> UpstreamError:
    """The error for a redirect that is not followed."""
    return upstream_error("redirect", f"'{host}' sent a redirect that {what}", status)
