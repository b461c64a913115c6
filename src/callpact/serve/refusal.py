"""A request over HTTP that is refused: its status, and the error of JSON-RPC in its body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from callpact.serve.messages import INVALID_REQUEST

if TYPE_CHECKING:
    from starlette.types import Send

RETRY_SECONDS = 10
"""Seconds after which a client that found no room may try again, as `Retry-After` has it."""


class Refused(Exception):
    """A request that goes no further."""

    def __init__(
        self,
        status: int,
        message: str,
        code: int = INVALID_REQUEST,
        id: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        if status in {429, 503}:
            self.headers.setdefault("retry-after", str(RETRY_SECONDS))
        if status in {408, 503}:
            self.headers["connection"] = "close"
        self.error = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}

    @property
    def body(self) -> bytes:
        """The error, as JSON."""
        return json.dumps(self.error).encode()

    async def send(self, send: Send) -> None:
        """Answer a request with it."""
        await respond(send, self.status, self.body, self.headers)

    @property
    def closing_response(self) -> bytes:
        """The whole response, for a connection that ends with it."""
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
    """Answer a request with JSON."""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **more}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
