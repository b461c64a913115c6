"""Fakes for tests: an upstream (`StubTransport`), a model (`ScriptedModel`).

Nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, cast

from callpact.agent.models.scripted import ScriptedModel
from callpact.errors import UsageError
from callpact.net import Request, Response, check_request

__all__ = ["Answer", "ScriptedModel", "StubTransport", "as_response"]

Answer = Response | Mapping[str, Any]
"""A `Response`, or `{"status": 200, "contentType": "application/json", "body": "…"}`."""

_KEYS = frozenset({"status", "contentType", "body", "headers"})


class StubTransport:
    """A transport that returns the value of `respond(request)`, and keeps the requests.

    Headers are checked as in real requests. Exceptions of `respond` are raised.
    """

    def __init__(self, respond: Callable[[Request], Answer | Awaitable[Answer]]) -> None:
        self._respond = respond
        self.requests: list[Request] = []

    async def send(self, request: Request, *, deadline: float | None = None) -> Response:  # noqa: ARG002 - the seam has it
        """Return the answer of `respond`.

        Raises:
            InvalidInput: a header that does not stay one line.
            UsageError: an answer of another shape.
        """
        check_request(request)
        self.requests.append(request)
        answer = self._respond(request)
        if isinstance(answer, Response):
            return answer
        return as_response(await answer if isawaitable(answer) else answer)

    async def aclose(self) -> None:
        """Nothing to close."""


def as_response(answer: Any) -> Response:
    """Make a `Response` from a plain mapping.

    Raises:
        UsageError: the mapping is not a response.
    """
    if isinstance(answer, Response):
        return answer
    if not isinstance(answer, Mapping):
        raise UsageError(
            f"respond must return a Response or a mapping, got {type(answer).__name__}"
        )
    given = cast("Mapping[str, Any]", answer)
    unknown = ", ".join(sorted(str(key) for key in given.keys() - _KEYS))
    if unknown:
        raise UsageError(f"an answer has no {unknown}; it has {', '.join(sorted(_KEYS))}")
    status, body = given.get("status", 200), given.get("body", b"")
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise UsageError(f"the status of an answer must be 200 to 599, got {status!r}")
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes):
        raise UsageError(f"the body of an answer must be str or bytes, got {type(body).__name__}")
    named: Mapping[str, str] = given.get("headers") or {}
    headers = {name.lower(): value for name, value in named.items()}
    if "contentType" in given:
        headers["content-type"] = given["contentType"]
    cookie = headers.pop("set-cookie", None)
    return Response(status, headers, body, (cookie,) if cookie else ())
