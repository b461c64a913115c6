"""JSON-RPC for every door: parse and check one message, or raise the error to respond with.

`RequestRefused` is such an error with an HTTP status and headers. MCP is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from callpact.schema import is_object
from callpact.schema.bounds import with_room

if TYPE_CHECKING:
    from starlette.types import Send

MAX_MESSAGE_DEPTH = 1_024
"""Levels of JSON in a message, the limit of its parser: a few more than the arguments of a tool may
have."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
STOPPED = "The server was stopped before the call had ended"
"""The error message of a call that is still running when the server ends."""
RETRY_SECONDS = 10
"""Seconds in the `Retry-After` header of a request that was refused at a limit."""

_DIGITS_AS_ZEROS = bytes(ord("0") if chr(byte).isdecimal() else 0 for byte in range(256))
_LONG_NUMBER = b"0" * 19
_exact = msgspec.json.Decoder()


class BadMessage(Exception):
    """The error response to a text that is not a message."""

    def __init__(
        self, message: str, code: int = INVALID_REQUEST, id: str | int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.id = id

    @property
    def body(self) -> bytes:
        """The error as JSON."""
        error = {"code": self.code, "message": str(self)}
        body = {"jsonrpc": "2.0", "id": self.id, "error": error}
        return json.dumps(body).encode()  # orjson has no integers beyond 64 bits.


class RequestRefused(BadMessage):
    """The error response to a refused HTTP request."""

    def __init__(
        self,
        status: int,
        message: str,
        code: int = INVALID_REQUEST,
        id: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, code, id)
        self.status = status
        self.headers = dict(headers or {})
        if status in {429, 503}:
            self.headers.setdefault("retry-after", str(RETRY_SECONDS))
        if status in {408, 503}:
            self.headers["connection"] = "close"

    async def send(self, send: Send) -> None:
        """Send the error as the response to a request."""
        await respond(send, self.status, self.body, self.headers)

    @property
    def closing_response(self) -> bytes:
        """The whole HTTP response, with which the connection is closed."""
        headers = {
            "content-type": "application/json",
            "content-length": str(len(self.body)),
            **self.headers,
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


async def respond(send: Send, status: int, body: bytes, more: Mapping[str, str]) -> None:
    """Respond to a request with JSON."""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **more}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def read_message(text: bytes, depth: int = MAX_MESSAGE_DEPTH) -> dict[str, Any]:
    """Parse the one message of a text: a request, a notification or a response.

    Stricter than the SDK, which reads `NaN` as a number and `id: null` as a notification.

    Raises:
        BadMessage: the text is not JSON, or not JSON-RPC.
    """
    message = read_json(text, depth)
    if not is_object(message):
        raise BadMessage("A message must be one JSON object; there are no batches")
    given = message.get("id")
    is_id = isinstance(given, str | int) and not isinstance(given, bool)
    known = given if is_id else None
    if message.get("jsonrpc") != "2.0":
        raise BadMessage("'jsonrpc' must be '2.0'", id=known)
    if "method" not in message:
        # A peer that cannot read a message responds with an error without an id.
        is_addressed = is_id or (given is None and "error" in message)
        if not is_addressed or ("result" in message) == ("error" in message):
            raise BadMessage("A message needs a 'method', or an 'id' and its answer", id=known)
        return message
    if not isinstance(message["method"], str):
        raise BadMessage("'method' must be a string", id=known)
    if "id" in message and not is_id:
        raise BadMessage("'id' must be a string or an integer; a notification has none")
    if not isinstance(message.get("params", {}), dict | None):
        raise BadMessage("'params' must be an object", id=known)
    return message


def read_json(text: bytes, depth: int = MAX_MESSAGE_DEPTH) -> Any:
    """Parse strict JSON; integers stay exact.

    Raises:
        BadMessage: the text is not JSON, or nested too deeply.
    """
    try:
        value = orjson.loads(text)  # Refuses NaN, lone surrogates, numbers out of range.
    except orjson.JSONDecodeError as error:
        if "depth limit" in error.msg:
            raise _too_deep(depth) from None
        raise BadMessage(f"The message is not JSON: {error}", PARSE_ERROR) from None
    if depth < MAX_MESSAGE_DEPTH and _is_deeper(value, text, depth):
        raise _too_deep(depth)
    # orjson reads integers of more than 64 bits as floats. A translation and a search for one text
    # take a tenth of the time of a regular expression.
    if _LONG_NUMBER in text.translate(_DIGITS_AS_ZEROS):
        return with_room(lambda: _exact.decode(text))
    return value


def _too_deep(depth: int) -> BadMessage:
    return BadMessage(f"JSON is nested deeper than {depth} levels", PARSE_ERROR)


def _is_deeper(value: Any, text: bytes, most: int) -> bool:
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    level = _nodes([value])
    for _ in range(most):
        level = _nodes(part for node in level for part in _parts(node))
    return bool(level)


def _nodes(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _parts(node: Any) -> Iterable[Any]:
    return node.values() if is_object(node) else node
