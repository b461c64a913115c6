"""The plain HTTP door: `POST /tools/{id}`, and `GET` for tools that only read.

An ASGI application behind the guard of the HTTP server, which checks hosts, origins, tokens and
sizes first. The wire form is in `wire/rest.py`, subscriptions are in `rest_events.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, cast

from callpact.errors import CallError, HandlerCrashed
from callpact.serve.auth.bearer import identify
from callpact.serve.concurrency import caller_of
from callpact.serve.door_calls import CallSender
from callpact.serve.http.guard import check_is_json, header_values
from callpact.serve.jsonrpc import BadMessage, RequestRefused, read_json, respond
from callpact.serve.rest.docs_page import POLICY
from callpact.serve.rest.rest_events import send_events
from callpact.serve.rest.rest_pages import RestPages
from callpact.wire import rest
from callpact.wire.query_arguments import query_forms, read_query

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

    from starlette.types import Receive, Scope, Send

    from callpact.context import Identity
    from callpact.serve.door_calls import DoorCalls
    from callpact.serve.idempotency import CallOutcome
    from callpact.telemetry.tracing import Telemetry
    from callpact.tool import Call, Tool

TOOLS_PATH = "/tools/"
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
DOCUMENT_PATH = "/openapi.json"
DOCS_PATH = "/docs"
LANDING_PATH = "/"
MOUNT = "callpact.mount"
"""The key in a scope for the path that the application is mounted at; none at the root."""
WATCH_SECONDS = 0.05
"""Seconds after which the client of a running call over HTTP is watched, to end the call with it."""
MAX_CLIENT_NAME = 200
"""Characters of a client's `User-Agent` that are recorded with its calls."""
_PATHS = HEALTH_PATHS | {DOCUMENT_PATH, DOCS_PATH, LANDING_PATH}
_TOOL = "callpact.tool"
_READS = ("GET", "HEAD")
_PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_UNTRACED = contextlib.nullcontext()
_HEADERS = "callpact.headers"
_READ = frozenset({b"accept", b"idempotency-key", b"origin", b"sec-fetch-site", b"user-agent"})
_log = logging.getLogger("callpact.serve.rest")


class RestDoor:
    """Plain HTTP endpoints for the tools of a runtime, beside the MCP door of the same server.

    `calls` are those of the MCP door, whose limits both share. `identity` is the caller if the
    server needs no tokens (`has_tokens`). `title` and `version` are those of the description,
    `mcp_path` is the path of the MCP door. `telemetry` continues the traces of requests.
    """

    def __init__(
        self,
        calls: DoorCalls,
        *,
        identity: Identity | None = None,
        has_tokens: bool = False,
        title: str = "callpact",
        version: str = "",
        mcp_path: str = "/mcp",
        telemetry: Sequence[Telemetry] = (),
    ) -> None:
        self._calls = calls
        self._telemetry = tuple(telemetry)
        self._identity = identity
        self._has_tokens = has_tokens
        self._mcp_path = mcp_path
        self._pages = RestPages(calls.runtime, title=title, version=version, has_tokens=has_tokens)
        self._is_stopping = False

    def stop(self) -> None:
        """Report from now on that the server is not ready."""
        self._is_stopping = True

    # --- the application for the guard ----------------------------------------------------------

    def owns(self, path: str) -> bool:
        """True for the paths of this door."""
        return path.startswith((TOOLS_PATH, f"{DOCS_PATH}/")) or path in _PATHS

    def is_public(self, scope: Scope) -> bool:
        """True for health checks, and for the landing page without a token."""
        path = scope["path"]
        return path in HEALTH_PATHS or (path == LANDING_PATH and not _has_token(scope))

    def check(self, scope: Scope) -> bool:
        """Check path, method and type of a request; returns True for a subscription.

        Raises:
            RequestRefused: 403, 404, 405 or 415
        """
        path, method = scope["path"], scope["method"]
        allowed, tool = _READS, None
        if path.startswith(TOOLS_PATH):
            headers = scope[_HEADERS] = _headers(scope)
            _check_site(headers)
            tool = scope[_TOOL] = self._calls.runtime.catalog.get(path[len(TOOLS_PATH) :])
            allowed = ("POST",) if method == "POST" else methods_of(tool)
        if path == LANDING_PATH and method not in allowed:
            text = f"Only a page for people is at /; messages of MCP go to {self._mcp_path}"
            raise RequestRefused(404, text)
        if method not in allowed:
            headers = {"allow": ", ".join(allowed)}
            raise RequestRefused(405, f"Use {' or '.join(allowed)} here", headers=headers)
        if method == "POST":
            check_is_json(scope)
        return tool is not None and tool.kind == "subscription"

    async def refuse(self, refused: RequestRefused, send: Send) -> None:
        """Send a refusal as `{"error": {"code", "message"}}`."""
        body = rest.encode_refusal(refused.status, str(refused))
        await respond(send, refused.status, body, refused.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"].startswith(TOOLS_PATH):
                with self._traced(scope) if self._telemetry else _UNTRACED:
                    await self._call(scope, receive, send)
            elif scope["path"] in HEALTH_PATHS:
                await self._health(scope, send)
            elif scope["path"] == LANDING_PATH:
                await self._landing(scope, send)
            else:
                await self._page(scope, send)
        except RequestRefused as refused:
            await self.refuse(refused, send)

    async def _health(self, scope: Scope, send: Send) -> None:
        is_ready = scope["path"] == "/healthz" or not self._is_stopping
        body = b'{"status":"ok"}' if is_ready else b'{"status":"stopping"}'
        await respond(send, 200 if is_ready else 503, body, {"cache-control": "no-store"})

    async def _landing(self, scope: Scope, send: Send) -> None:
        caller = identify(scope)
        body = self._pages.landing(
            _origin(scope) + self._mcp_path,
            caller or self._identity,
            is_stranger=self._has_tokens and caller is None,
        )
        await respond(send, 200, body, _PAGE_HEADERS)

    async def _page(self, scope: Scope, send: Send) -> None:
        path, identity = scope["path"], self._sender(scope).identity
        name = path.removeprefix(DOCS_PATH).strip("/")
        if path == DOCUMENT_PATH:
            body: bytes | None = await self._pages.openapi(identity)
            headers = {"cache-control": "no-store"}
        else:
            is_index = not name
            body = (
                await self._pages.index(identity) if is_index else self._pages.tool(name, identity)
            )
            headers = _PAGE_HEADERS
        if body is None:
            raise RequestRefused(404, "There is no such tool")
        await respond(send, 200, body, headers)

    @contextlib.contextmanager
    def _traced(self, scope: Scope) -> Generator[None]:
        with contextlib.ExitStack() as stack:
            for each in self._telemetry:
                named = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
                stack.enter_context(each.continued(named))
            yield

    # --- calls ----------------------------------------------------------------------------------

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        tool: Tool | None = scope[_TOOL]
        message = await receive()
        headers: dict[bytes, str] = scope[_HEADERS]
        whole = _wants_envelope(headers)
        try:
            arguments = _arguments(scope, message.get("body", b""), tool)
            call = self._request(scope, arguments, tool)
            sender = self._sender(scope)
            if tool is not None and tool.kind == "subscription":
                values = self._calls.stream(call, tool, sender)
                await send_events(values, tool, receive, send, whole=whole)
                return
            with contextlib.suppress(_ClientGone):
                async with _Watch(receive):
                    key = headers.get(b"idempotency-key")
                    answer = await self._answer(call, tool, sender, key, whole=whole)
                    await _send(answer, send)
        except CallError as error:
            await _send(rest.encode_error(error, tool), send)

    async def _answer(
        self, call: Call, tool: Tool | None, sender: CallSender, key: str | None, *, whole: bool
    ) -> rest.HttpAnswer:
        try:
            if key is not None and tool is not None:
                outcome = await self._calls.run_once(call, tool, sender, key)
                answer = _encoded(outcome, tool, whole=whole)
                return rest.marked_as_replayed(answer) if outcome.is_replayed else answer
            envelope = await self._calls.run(call, tool, sender)
            # Without a tool the call was recorded, and refused with the nearest names.
            return rest.encode_result(envelope, cast("Tool", tool), whole=whole)
        except CallError as error:
            return rest.encode_error(error, tool)
        except Exception:  # noqa: BLE001 - boundary: an error of ours, not of the caller
            _log.exception("a call of %s failed", call.tool_id)
            return rest.encode_error(HandlerCrashed(call.tool_id), tool)

    def _request(self, scope: Scope, arguments: Any, tool: Tool | None) -> Call:
        name = tool.id if tool is not None else scope["path"][len(TOOLS_PATH) :]
        agent = scope[_HEADERS].get(b"user-agent", "")[:MAX_CLIENT_NAME]
        return self._calls.request(name, arguments, tool, via="http", client_name=agent)

    def _sender(self, scope: Scope) -> CallSender:
        return CallSender(identify(scope) or self._identity, caller_of(scope))


def _has_token(scope: Scope) -> bool:
    return any(name == b"authorization" for name, _ in scope["headers"])


def _origin(scope: Scope) -> str:
    """Return the address of the application as its client sees it, without a slash at the end."""
    (host,) = header_values(scope, b"host")  # The guard has checked it.
    # Behind a proxy that ends TLS. A client that invents the header misleads only itself.
    is_secure = "https" in {scope["scheme"], *header_values(scope, b"x-forwarded-proto")}
    return f"{'https' if is_secure else 'http'}://{host}{scope.get(MOUNT, '')}"


def methods_of(tool: Tool | None) -> tuple[str, ...]:
    """Return the methods that a tool can be called with; an unknown one is not found with any."""
    if tool is not None and query_forms(tool) is None:
        return ("POST",)
    is_stream = tool is not None and tool.kind == "subscription"
    return ("GET", "POST") if is_stream else (*_READS, "POST")


def _arguments(scope: Scope, body: bytes, tool: Tool | None) -> Any:
    if scope["method"] != "POST":
        return {} if tool is None else read_query(scope["query_string"], tool)
    try:
        arguments = read_json(body)
    except BadMessage as bad:
        raise RequestRefused(400, str(bad)) from None
    if arguments is None:
        raise RequestRefused(400, "The body of a request must be a JSON object, got null")
    return arguments


def _encoded(outcome: CallOutcome, tool: Tool, *, whole: bool) -> rest.HttpAnswer:
    if outcome.error is not None:
        return rest.encode_error(outcome.error, tool)
    return rest.encode_result(outcome.unwrap(), tool, whole=whole)


def _headers(scope: Scope) -> dict[bytes, str]:
    """Return the headers that calls need; several of one name are joined."""
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in _READ:
            text = value.decode("latin-1")
            found[name] = text if name not in found else f"{found[name]}, {text}"
    return found


def _wants_envelope(headers: dict[bytes, str]) -> bool:
    accept = headers.get(b"accept", "")
    return rest.ENVELOPE in accept.lower() and rest.prefers_envelope(accept)


def _check_site(headers: dict[bytes, str]) -> None:
    """Refuse what a page of another site makes a browser send without an `Origin`: images, links.

    Raises:
        RequestRefused: 403
    """
    if headers.get(b"sec-fetch-site", "none") in {"same-origin", "none"}:
        return
    if not headers.get(b"origin"):  # The guard has checked one that is there.
        raise RequestRefused(403, "Pages of other sites cannot call tools")


async def _send(answer: rest.HttpAnswer, send: Send) -> None:
    start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
    await send(start)
    await send({"type": "http.response.body", "body": answer.body})


class _ClientGone(Exception):
    """The client disconnected before the end of its call."""


class _Watch:
    """Cancels the task of a request if its client disconnects.

    Most calls end before the watch starts, and pay only for a timer.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watching: asyncio.Task[None] | None = None
        self._is_gone = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._start)

    def _start(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._task is not None:
            self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        is_ours = self._task is not None and self._is_gone and self._task.uncancel() == 0
        if is_ours and kind is asyncio.CancelledError:
            raise _ClientGone from None
