"""A response of an upstream with its secrets masked: its text, its JSON, its envelope, its errors.

The secrets that a call sent are masked in all of it: some upstreams echo them. The meaning of a
body is known to its source alone.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import time
from typing import Any, cast

import msgspec
from msgspec import Struct

from callpact.envelope import ResponseEnvelope, http_envelope
from callpact.errors import Failed, Issue, UpstreamError, restored
from callpact.net import Response, retry_after
from callpact.schema.bounds import with_room
from callpact.secrets.keys import Secrets

MAX_SHOWN = 2_000
"""Bytes of an upstream's error response that are shown in the details of the error."""

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
# Python's own codecs are not encodings of the web, and some of them take quadratic time.
_CHARSETS = re.compile(
    r"utf_(?:8|8_sig|16|16_be|16_le|32|32_be|32_le)|ascii|iso8859_\d+|cp\d+|koi8_\w|mac_\w+"
    r"|shift_jis\w*|euc_\w+|iso2022_\w+|gb\w+|big5\w*|tis_620|hz|johab|kz1048|ptcp154"
)


class MaskedResponse(Struct, frozen=True):
    """A response, and the secrets that are masked in its body; its headers are masked already."""

    response: Response
    used: Secrets | None

    @property
    def kind(self) -> str:
        """The content type; empty if the upstream sent none."""
        return self.response.headers.get("content-type", "")

    def data(self) -> bytes:
        """The body as bytes."""
        body = self.response.body
        return body if self.used is None else self.used.mask_data(body)

    def text(self) -> str:
        """The body as text.

        Raises:
            UpstreamError: it is not text in the encoding that it names.
        """
        text = _text(self.response.body, self.kind)
        if text is None:
            raise self.unreadable("not text in the encoding that it names")
        return text if self.used is None else self.used.mask(text)

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            UpstreamError: it is not JSON.
        """
        value = _json(self.response.body, self.kind)
        if value is _NO_JSON:
            is_empty = not self.response.body
            raise self.unreadable("empty, where JSON should be" if is_empty else "not JSON")
        return value if self.used is None else self.used.mask_data(value)

    def json_or_text(self) -> Any:
        """The body as JSON if it is JSON, otherwise as text."""
        value = _json(self.response.body, self.kind)
        if value is _NO_JSON:
            return self.text()
        return value if self.used is None else self.used.mask_data(value)

    def envelope(self, data: Any, warnings: tuple[Issue, ...] = ()) -> ResponseEnvelope[Any]:
        """The envelope of data that was read from the response."""
        made = http_envelope(
            data,
            status_code=self.response.status,
            headers=self.response.headers,
            content_type=self.kind,
            set_cookie=list(self.response.set_cookie) or None,
        )
        return msgspec.structs.replace(made, warnings=warnings) if warnings else made

    def refused(self, message: str) -> UpstreamError:
        """The error for a status that is not 2xx, with the beginning of the body."""
        wait = retry_after(self.response.headers, time.time())
        details = self._details()
        if wait is not None:
            details["retryAfter"] = wait
        return UpstreamError(message, details=details)

    def unreadable(self, what: str) -> UpstreamError:
        """The error for a body of another kind than expected."""
        came = f" (it says {self.kind})" if self.kind else ""
        details = {**self._details(), "reason": "unreadable"}
        return UpstreamError(f"API returned a body that is {what}{came}", details=details)

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {
            "statusCode": self.response.status,
            "contentType": self.kind,
        }
        # Masked before it is cut: a truncated secret would not be recognised.
        begin = self.response.body[: 8 * MAX_SHOWN]
        text = _text(begin, self.kind, "replace") or begin.decode("utf-8", "replace")
        shown = text if self.used is None else self.used.mask(text)
        shown = shown.encode("utf-8", "replace")[:MAX_SHOWN].decode("utf-8", "ignore")
        return {**details, "body": shown} if shown else details


def masked_response(response: Response, used: Secrets | None) -> MaskedResponse:
    """A response with the secrets that were `used` for it masked in its headers and cookies."""
    if used is None or not _may_hold(response, used):
        return MaskedResponse(response, None)
    cookies = tuple(used.mask(cookie) for cookie in response.set_cookie)
    headers = used.mask_data(response.headers)
    masked = msgspec.structs.replace(response, headers=headers, set_cookie=cookies)
    return MaskedResponse(masked, used)


def masked_error(error: Failed, secrets: Secrets) -> Failed:
    """The error with all secrets masked, also those that the call did not use."""
    message, details = secrets.mask(error.message), secrets.mask_data(error.details)
    if message == error.message and details == error.details:
        return error
    kind = type(error)
    return cast("Failed", restored(error.code, message, details=details, kind=kind))


def _may_hold(response: Response, used: Secrets) -> bool:
    """False if a response certainly holds no secret, as most do."""
    body = response.body
    if b"\\/" in body or b"\\u" in body or b"\0" in body:
        return True  # Escapes of JSON and wide characters may hide one.
    try:
        shown = body.decode()
    except UnicodeDecodeError:
        return True
    headers = response.headers
    text = "\n".join((shown, *headers, *headers.values(), *response.set_cookie))
    return used.mask(text) is not text


_NO_JSON: Any = object()


def _json(body: bytes, kind: str) -> Any:
    try:
        return with_room(lambda: msgspec.json.decode(body))
    except (ValueError, RecursionError):
        return _json_of_text(body, kind)


def _json_of_text(body: bytes, kind: str) -> Any:
    """JSON with a byte order mark, in another encoding than UTF-8, or with lone surrogates."""
    text = _text(body, kind)
    if text is None:
        return _NO_JSON
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return _NO_JSON


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _text(body: bytes, kind: str, errors: str = "strict") -> str | None:
    match = _CHARSET.search(kind)
    try:
        name = codecs.lookup(match[1]).name.replace("-", "_") if match else "utf_8"
        if not _CHARSETS.fullmatch(name):
            return None
        return body.decode("utf_8_sig" if name == "utf_8" else name, errors)
    except (LookupError, UnicodeError):
        return None
