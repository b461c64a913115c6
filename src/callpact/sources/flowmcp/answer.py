"""The answer of an upstream: read as its tool declares, or an error that says what came."""

from __future__ import annotations

import base64
import re
import time
from typing import Any

import msgspec

from callpact.envelope import ResponseEnvelope, http_envelope
from callpact.errors import UpstreamError
from callpact.net import Response, retry_after
from callpact.sources.flowmcp.output import JSON

MAX_SHOWN = 2_000
"""Bytes of an upstream's error answer that are shown in the details of the error."""

_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_PNG = "image/png"


def read_answer(response: Response, mime_type: str) -> ResponseEnvelope[Any]:
    """The envelope of an answer.

    Raises:
        UpstreamError: the status is not 2xx, or the body cannot be read as what was declared.
    """
    kind = response.headers.get("content-type", "")
    if not 200 <= response.status < 300:
        raise _refused(response, kind)
    return http_envelope(
        _data(response, mime_type, kind),
        status_code=response.status,
        headers=response.headers,
        content_type=kind,
        set_cookie=list(response.set_cookie) or None,
    )


def _data(response: Response, mime_type: str, kind: str) -> Any:
    if mime_type == _PNG:
        return base64.b64encode(response.body).decode()
    if response.status == 204:
        return None
    text = _text(response.body, kind)
    if text is None:
        raise _unreadable(response, kind, "not text in the encoding that it names")
    if mime_type != JSON:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(response, kind, "not JSON") from None


def _text(body: bytes, kind: str) -> str | None:
    match = _CHARSET.search(kind)
    try:
        return body.decode(match[1] if match else "utf-8-sig")
    except (LookupError, UnicodeError):
        return None


def _refused(response: Response, kind: str) -> UpstreamError:
    wait = retry_after(response.headers, time.time())
    details = _details(response, kind)
    if wait is not None:
        details["retryAfter"] = wait
    return UpstreamError(f"API returned {response.status}", details=details)


def _unreadable(response: Response, kind: str, what: str) -> UpstreamError:
    came = f" (it says {kind})" if kind else ""
    details = {**_details(response, kind), "reason": "unreadable"}
    return UpstreamError(f"API returned a body that is {what}{came}", details=details)


def _details(response: Response, kind: str) -> dict[str, Any]:
    details: dict[str, Any] = {"statusCode": response.status, "contentType": kind}
    shown = response.body[:MAX_SHOWN].decode("utf-8", "replace")
    return {**details, "body": shown} if shown else details
