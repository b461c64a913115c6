"""Limits of a request to an upstream: the fields of `Limits`, each with a constant as default."""

from __future__ import annotations

from dataclasses import dataclass, fields

from callpact.errors import InvalidConfig

MAX_BODY_BYTES = 20_000_000
"""Size of an upstream's answer on the wire."""
MAX_DECODED_BYTES = 50_000_000
"""Size of an upstream's answer after gzip, deflate or br are decoded."""
MAX_ENCODINGS = 2
"""Encodings that an upstream may apply to one answer, one after the other."""
MAX_HEADERS = 100
"""Header lines of an upstream's answer."""
MAX_HEADER_BYTES = 65_536
"""Size of all header lines of an upstream's answer together."""
MAX_CONNECT_SECONDS = 10.0
"""Seconds for resolving an upstream's name, connecting and the TLS handshake."""
MAX_FIRST_BYTE_SECONDS = 30.0
"""Seconds that an upstream may be silent after it has the request."""
MAX_IDLE_SECONDS = 20.0
"""Seconds that an upstream may be silent within its answer."""
MAX_STREAM_IDLE_SECONDS = 300.0
"""Seconds that an upstream may be silent within a stream of events."""
MAX_TOTAL_SECONDS = 60.0
"""Seconds for a request as a whole: waiting for its turn, redirects, one retry, the last byte."""
MAX_REDIRECTS = 5
"""Redirects that are followed for one request."""
MAX_CONNECTIONS_PER_HOST = 20
"""Requests under way at one host; more wait for their turn."""
MAX_CONNECTIONS = 100
"""Requests under way at all hosts together, and idle connections that are kept beside them."""
MAX_WAITING = 1_000
"""Requests that wait for their turn; more are refused at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one transport.

    Raises:
        InvalidConfig: a limit that is not a number above zero (`redirects` may be zero).
    """

    body_bytes: int = MAX_BODY_BYTES
    decoded_bytes: int = MAX_DECODED_BYTES
    encodings: int = MAX_ENCODINGS
    headers: int = MAX_HEADERS
    header_bytes: int = MAX_HEADER_BYTES
    connect_seconds: float = MAX_CONNECT_SECONDS
    first_byte_seconds: float = MAX_FIRST_BYTE_SECONDS
    idle_seconds: float = MAX_IDLE_SECONDS
    stream_idle_seconds: float = MAX_STREAM_IDLE_SECONDS
    total_seconds: float = MAX_TOTAL_SECONDS
    redirects: int = MAX_REDIRECTS
    connections_per_host: int = MAX_CONNECTIONS_PER_HOST
    connections: int = MAX_CONNECTIONS
    waiting: int = MAX_WAITING

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kinds = (int, float) if field.name.endswith("_seconds") else (int,)
            least = 0 if field.name in {"redirects", "waiting", "encodings"} else None
            if isinstance(value, bool) or not isinstance(value, kinds) or not _holds(value, least):
                bound = "0 or more" if least == 0 else "more than 0"
                raise InvalidConfig(f"the limit {field.name} must be {bound}, got {value!r}")


def _holds(value: float, least: int | None) -> bool:
    return 0 <= value < float("inf") if least == 0 else 0 < value < float("inf")
