"""The response of an upstream, read as the declared output of its tool, or an `UpstreamError`.

The secrets that a call sent are masked in the whole response: some upstreams echo them. The output
dialect of FlowMCP becomes JSON Schema here: seven keywords, nothing required, nothing closed.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from callpact.envelope import ResponseEnvelope, http_envelope
from callpact.errors import UpstreamError
from callpact.net import Response, retry_after
from callpact.schema import is_object
from callpact.schema.bounds import with_room
from callpact.secrets.keys import Secrets

_TYPES = frozenset({"string", "number", "boolean", "object", "array"})
JSON = "application/json"
PNG = "image/png"
MAX_SHOWN = 2_000
"""Bytes of an upstream's error response that are shown in the details of the error."""

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
# Python's own codecs are not encodings of the web, and some of them take quadratic time.
_CHARSETS = re.compile(
    r"utf_(?:8|8_sig|16|16_be|16_le|32|32_be|32_le)|ascii|iso8859_\d+|cp\d+|koi8_\w|mac_\w+"
    r"|shift_jis\w*|euc_\w+|iso2022_\w+|gb\w+|big5\w*|tis_620|hz|johab|kz1048|ptcp154"
)


def read_response(
    response: Response, mime_type: str, used: Secrets | None = None
) -> ResponseEnvelope[Any]:
    """The envelope of a response, with the secrets that were `used` for it masked.

    Raises:
        UpstreamError: the status is not 2xx, or the body is not of the declared type.
    """
    if used is not None:
        if _may_hold(response, used):
            response = _masked(response, used)
        else:
            used = None
    kind = response.headers.get("content-type", "")
    if not 200 <= response.status < 300:
        raise _refused(response, kind, used)
    return http_envelope(
        _data(response, mime_type, kind, used),
        status_code=response.status,
        headers=response.headers,
        content_type=kind,
        set_cookie=list(response.set_cookie) or None,
    )


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


def _masked(response: Response, used: Secrets) -> Response:
    """The response with masked headers and cookies; its body is masked later."""
    cookies = tuple(used.mask(cookie) for cookie in response.set_cookie)
    headers = used.mask_data(response.headers)
    return msgspec.structs.replace(response, headers=headers, set_cookie=cookies)


def _data(response: Response, mime_type: str, kind: str, used: Secrets | None) -> Any:
    body = response.body
    if mime_type == PNG:
        body = body if used is None else used.mask_data(body)
        return base64.b64encode(body).decode()
    if mime_type != JSON:
        text = _text(body, kind)
        if text is None:
            what = "not text in the encoding that it names"
            raise _unreadable(response, kind, what, used)
        return text if used is None else used.mask(text)
    if not body and response.status != 200:
        return None  # 204 has no content; 201, 202 and 205 often have none.
    try:
        value = with_room(lambda: msgspec.json.decode(body))
    except (ValueError, RecursionError):
        value = _json_of_text(body, kind)
        if value is _NO_JSON:
            what = "not JSON" if body else "empty, where JSON should be"
            raise _unreadable(response, kind, what, used) from None
    return value if used is None else used.mask_data(value)


_NO_JSON: Any = object()


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


def _refused(response: Response, kind: str, used: Secrets | None) -> UpstreamError:
    wait = retry_after(response.headers, time.time())
    details = _details(response, kind, used)
    if wait is not None:
        details["retryAfter"] = wait
    return UpstreamError(f"API returned {response.status}", details=details)


def _unreadable(response: Response, kind: str, what: str, used: Secrets | None) -> UpstreamError:
    came = f" (it says {kind})" if kind else ""
    details = {**_details(response, kind, used), "reason": "unreadable"}
    return UpstreamError(f"API returned a body that is {what}{came}", details=details)


def _details(response: Response, kind: str, used: Secrets | None) -> dict[str, Any]:
    details: dict[str, Any] = {"statusCode": response.status, "contentType": kind}
    # Masked before it is cut: a truncated secret would not be recognised.
    begin = response.body[: 8 * MAX_SHOWN]
    text = _text(begin, kind, "replace") or begin.decode("utf-8", "replace")
    shown = text if used is None else used.mask(text)
    shown = shown.encode("utf-8", "replace")[:MAX_SHOWN].decode("utf-8", "ignore")
    return {**details, "body": shown} if shown else details


# --- the declared output ---------------------------------------------------------------------


def output_schema(output: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The JSON Schema of a declared `output`; None if nothing is declared.

    Keywords that the dialect excludes are left out (seed 000): APIs may return more.
    """
    schema = None if output is None else output.get("schema")
    if output is None or not is_object(schema):
        return None
    node = _node(schema)
    if output.get("mimeType") == PNG:  # Seed 000: the text is the picture, in base64.
        node |= {"contentEncoding": "base64", "contentMediaType": PNG}
    return node


def _node(declared: Mapping[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {}
    nullable = declared.get("nullable") is True
    kind = declared.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        node["type"] = [kind, "null"] if nullable else kind
    elif kind == "integer":  # Not in the dialect; real files use it for numbers.
        node["type"] = ["number", "null"] if nullable else "number"
    for keyword in ("description", "format"):
        if isinstance(declared.get(keyword), str):
            node[keyword] = declared[keyword]
    values = declared.get("enum")
    if isinstance(values, list):
        node["enum"] = [*values, None] if nullable and None not in values else values
    properties = declared.get("properties")
    if is_object(properties) and kind == "object":
        children = properties.items()
        node["properties"] = {name: _node(child) for name, child in children if is_object(child)}
    items: Any = declared.get("items")
    if is_object(items) and kind == "array":
        node["items"] = _node(items)
    return node


def mime_type(output: Mapping[str, Any] | None) -> str:
    """The declared MIME type of the response; JSON if none is declared."""
    declared = None if output is None else output.get("mimeType")
    return declared if isinstance(declared, str) else JSON
