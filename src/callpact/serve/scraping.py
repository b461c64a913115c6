"""The page of numbers at the HTTP door: `GET /metrics`, behind the guard like everything else.

It tells the names of all tools. With authentication it is therefore for callers that hold the scope
`metrics`; without, the door is open to this machine alone, and so is the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

from callpact.metrics import CONTENT_TYPE
from callpact.serve.auth import Caller

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

METRICS_PATH = "/metrics"
METRICS_SCOPE = "metrics"
"""What a caller must hold to read the page, where callers are known."""


class Scraping:
    """Answers at `/metrics`, and hands on every other request."""

    def __init__(self, app: ASGIApp, page: Callable[[], bytes], *, is_open: bool) -> None:
        self._app = app
        self._page = page
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != METRICS_PATH:
            await self._app(scope, receive, send)
            return
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("GET it", 405, {"allow": "GET, HEAD"})
        caller = scope.get("user")
        held = caller.verified.identity.scopes if isinstance(caller, Caller) else ()
        if not self._is_open and METRICS_SCOPE not in held:
            return PlainTextResponse(f"The token lacks the scope '{METRICS_SCOPE}'", 403)
        return Response(self._page(), headers={"content-type": CONTENT_TYPE})
