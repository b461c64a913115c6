"""The one way to upstreams: a request in, a whole answer or an error out.

`Transport` is the seam; `HttpTransport` sends over HTTP within `Limits`, to the addresses that
`AddressRules` allow. Limits, rules and errors: docs/reference/network.md. Not a client for any API:
the meaning of a request is known to its source alone.
"""

from __future__ import annotations

from callpact.net.address import AddressRules
from callpact.net.limits import Limits
from callpact.net.message import (
    Request,
    Response,
    StreamedResponse,
    StreamingTransport,
    Transport,
    check_request,
    retry_after,
)
from callpact.net.transport import HttpTransport

__all__ = [
    "AddressRules",
    "HttpTransport",
    "Limits",
    "Request",
    "Response",
    "StreamedResponse",
    "StreamingTransport",
    "Transport",
    "check_request",
    "retry_after",
]
