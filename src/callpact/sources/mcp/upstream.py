"""One MCP server over time: connected when it is needed, and again after it was lost.

Requests of a server that cannot be reached fail at once until its pause is over; nothing here
touches another server. A server's questions go to the client of the call that they belong to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NoReturn, cast

import mcp_types as types
import orjson
from mcp.shared.exceptions import MCPError

from callpact.context import Client, Context
from callpact.errors import CallError, ClientUnable, Failed, UpstreamError
from callpact.net.httpx_client import HTTP_STATUS, NOT_REACHED
from callpact.schema import is_array, is_object
from callpact.secrets.masker import Masker
from callpact.sources.mcp.connection import Connection, connect, is_own
from callpact.sources.mcp.resource_updates import ResourceUpdates
from callpact.sources.mcp.server_settings import ServerSettings
from callpact.sources.mcp.token_endpoint import TokenGrant

PAUSE_SECONDS = 0.5
"""Seconds before a server that could not be reached is tried again; doubled with each failure."""
MAX_PAUSE_SECONDS = 30.0
"""Seconds that a server which failed is left alone at most."""
MAX_FAILURES = 3
"""Failures in a row, such as requests without an answer, after which a server is left alone."""
MAX_ROUNDS = 10
"""Times that a server may ask for more input during one call."""
MAX_SENT_TO = 100
"""URL elicitations of a server whose end is passed on to the client."""
MAX_LOGGED = 1_000
"""Characters of a server's log message that are logged."""

_log = logging.getLogger("callpact.sources.mcp")
_CHANGES = {
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
}


class Upstream:
    """A server, its connection, and the calls that are under way at it."""

    def __init__(
        self,
        settings: ServerSettings,
        on_change: Callable[[], None] | None = None,
        token: TokenGrant | None = None,
    ) -> None:
        """Without `on_change`, changes of the lists are not followed."""
        self.settings = settings
        self._on_change = on_change
        self._token = token
        self._masker: tuple[tuple[str, ...], Masker] = ((), Masker())
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._ready: asyncio.Future[Connection] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._calls: dict[int, Context] = {}
        self._numbers = 0
        self._sent_to: dict[str, Client] = {}
        """Id of a URL elicitation → the client whose user was sent to the address."""
        self._failures = 0
        self._resumes_at = 0.0
        self.updates = ResourceUpdates(self)
        """The resources that somebody follows."""

    # --- requests ---------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        context: Context | None = None,
        header_map: Mapping[tuple[str, ...], str] | None = None,
    ) -> dict[str, Any]:
        """Send a request, and return the result as the server sent it.

        Questions of the server in between are answered by the client of the call.

        Raises:
            CallError: the server cannot be reached, refuses, or does not answer in time.
        """
        seconds = self._seconds(context)
        async with self._slots:
            with self._asking(context):
                result = await self._once(method, params, context, header_map, seconds)
                rounds = 0
                while result.get("resultType") == "input_required":
                    rounds += 1
                    if rounds > MAX_ROUNDS:
                        raise self._error(f"asked for more input than {MAX_ROUNDS} times")
                    more = await self._more_input(result, context)
                    sent = {**(params or {}), **more}
                    result = await self._once(method, sent, context, header_map, seconds)
                return result

    async def _once(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        context: Context | None,
        header_map: Mapping[tuple[str, ...], str] | None,
        seconds: float,
    ) -> dict[str, Any]:
        for is_last in (False, True):
            connection = await self.connection()
            try:
                result = await connection.request(
                    method,
                    params,
                    seconds=seconds,
                    on_progress=None if context is None else self._progress(context),
                    header_map=header_map,
                )
            except MCPError as error:
                if error.code == types.URL_ELICITATION_REQUIRED:
                    await self._ask_to_open(error, context)
                if _is_session_gone(error) and not is_last:
                    # The server forgot the session before it read the request: safe to repeat.
                    self._drop()
                    continue
                self._raise(error, seconds)
            self._failures = 0
            return self._masked(result)
        raise self._error("lost its session twice")

    def _masked(self, data: Any) -> Any:
        """The data of a server without the credentials that it was sent."""
        values = (*self.settings.secrets, *(() if self._token is None else self._token.seen))
        if not values:
            return data
        if values != self._masker[0]:
            self._masker = (values, Masker(values))
        masker = self._masker[1]
        try:
            # Many times faster than looking at each part.
            if not masker.finds(orjson.dumps(data).decode()):
                return data
        except TypeError:  # A number or a text that orjson does not write.
            pass
        return masker.mask_data(data)

    def _progress(self, context: Context) -> Any:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            await context.progress(done, total, self._masked(message))

        return progress

    def _seconds(self, context: Context | None) -> float:
        limit = self.settings.call_seconds
        if context is None or context.deadline is None:
            return limit
        return max(0.001, min(limit, context.deadline / 1_000 - time.time()))

    def _raise(self, error: MCPError, seconds: float) -> NoReturn:
        data, message = error.error.data, self._masked(error.error.message)
        details: dict[str, Any] = dict(data) if is_object(data) else {}
        if is_own(error, types.REQUEST_TIMEOUT):
            self._failed()
            raise self._error(f"did not answer within {seconds:g} s", reason="timeout")
        if is_own(error, types.CONNECTION_CLOSED):
            self._failed()
            self._drop()
            raise self._error("closed the connection before it answered", reason="reset")
        if error.code == NOT_REACHED:
            self._failed()
            if "may not be reached" in message:
                raise Failed("address_not_allowed", message)
            raise self._error(f"cannot be reached: {message[:500]}", reason="connect")
        if error.code == HTTP_STATUS:
            raise self._error(f"answered with HTTP {details.get('statusCode')}", **details)
        self._failures = 0
        raise self._error(
            f"answered with the error {error.code}: {message[:2_000]}", code=error.code
        )

    def _error(self, text: str, **details: Any) -> UpstreamError:
        return UpstreamError(
            f"'{self.settings.name}' {self._masked(text)}",
            details={"server": self.settings.name, **self._masked(details)},
        )

    # --- the connection ---------------------------------------------------------------------

    async def connection(self) -> Connection:
        """The open connection, or a new one.

        Raises:
            CallError: the server cannot be reached, is left alone after too many failures, or there
                is no token for it.
        """
        if self._token is not None:
            await self._token.ready()
        if self._ready is None:
            wait = self._resumes_at - time.monotonic()
            if wait > 0:
                raise self._error(
                    f"failed {self._failures} times in a row; it is tried again in {wait:.1f} s",
                    reason="connect",
                    retryAfter=round(wait, 1),
                )
            self._ready = asyncio.get_running_loop().create_future()
            self._gone = asyncio.Event()
            self._runner = asyncio.create_task(
                self._run(self._ready, self._gone), name=f"callpact mcp {self.settings.name}"
            )
        return await asyncio.shield(self._ready)

    async def _run(self, ready: asyncio.Future[Connection], gone: asyncio.Event) -> None:
        """Hold one connection open in one task, as its parts must be closed where they were opened."""
        failure: CallError | None = None
        try:
            async with connect(self.settings, _Inbound(self, gone), self._token) as connection:
                ready.set_result(connection)
                self.updates.connected(connection)
                listening = asyncio.create_task(self._listen(connection))
                try:
                    await gone.wait()
                finally:
                    self.updates.lost(connection)
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        except CallError as error:
            failure = error
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - boundary: whatever the SDK raises
            _log.debug("%s: its connection ended", self.settings.name, exc_info=True)
            first = _first(error)
            text = str(first)[:200] or type(first).__name__
            broken = self._error(f"broke the connection ({text})", reason="reset")
            failure = first if isinstance(first, CallError) else broken
        finally:
            if self._ready is ready:
                self._ready = None
            if not ready.done():
                self._failed(at_once=True)
                if isinstance(failure, UpstreamError):
                    failure = UpstreamError(self._masked(failure.message), details=failure.details)
                ready.set_exception(failure or self._error("ended before it answered"))
                ready.exception()  # It is read here: perhaps nobody else waits for it any more.

    async def _listen(self, connection: Connection) -> None:
        """Follow the changes of a modern server's lists; others send notifications."""
        while connection.is_modern and self._on_change is not None:
            try:
                async with connection.changes() as events:
                    async for _ in events:
                        self._on_change()
            except MCPError as error:
                text = self._masked(str(error))
                _log.debug("%s: does not report changes: %s", self.settings.name, text)
                return
            except RuntimeError as error:  # The SDK's SubscriptionLost.
                _log.debug("%s: %s", self.settings.name, error)
            await asyncio.sleep(PAUSE_SECONDS * (1 + random.random()))  # noqa: S311 - jitter

    def _drop(self) -> None:
        """Close the connection, so that the next request opens another."""
        self._gone.set()
        self._ready = None

    def _failed(self, *, at_once: bool = False) -> None:
        """Count a failure; pause after several, or at once if the server could not be reached."""
        self._failures += 1
        if at_once or self._failures >= MAX_FAILURES:
            pause = min(MAX_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(self._failures - 1, 10))
            self._resumes_at = time.monotonic() + pause * (0.5 + random.random() / 2)  # noqa: S311 - jitter
            if self._ready is not None and not at_once:
                self._drop()

    @property
    def pause(self) -> float:
        """Seconds until the server is tried again; 0 if it may be tried now."""
        return max(0.0, self._resumes_at - time.monotonic())

    async def aclose(self) -> None:
        """Close the connection, and end the server's process."""
        await self.updates.aclose()
        self._drop()
        if self._token is not None:
            await self._token.aclose()
        if self._runner is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._runner

    # --- requests and notifications of the server -------------------------------------------

    @contextlib.contextmanager
    def _asking(self, context: Context | None) -> Generator[None]:
        if context is None:
            yield
            return
        self._numbers += 1
        number = self._numbers
        self._calls[number] = context
        try:
            yield
        finally:
            del self._calls[number]

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client of the only call under way."""
        contexts = list(self._calls.values())
        if len(contexts) != 1:
            count = "no call is" if not contexts else "several calls are"
            raise MCPError(types.INVALID_REQUEST, f"{method}: {count} under way; nobody is asked")
        asked = self._masked(dict(params))
        if method == "elicitation/create" and params.get("mode") == "url":
            return await self._open_address(contexts[0], asked)
        return await _asked(contexts[0], method, asked)

    async def _open_address(self, context: Context, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the user to an address, and remember whose, for the notice that this is done."""
        name = f"{self.settings.name}:{params.get('elicitationId')}"
        answer = await _asked(context, "elicitation/create", {**params, "elicitationId": name})
        if context.client is not None and "elicitationId" in params:
            self._sent_to[name] = context.client
            while len(self._sent_to) > MAX_SENT_TO:
                del self._sent_to[next(iter(self._sent_to))]
        return answer

    async def _ask_to_open(self, error: MCPError, context: Context | None) -> NoReturn:
        """Ask the user to open the addresses that a server names in place of an answer."""
        data = self._masked(error.error.data)
        wanted = data.get("elicitations") if is_object(data) else None
        if context is None or not is_array(wanted):
            self._raise(error, 0)
        for each in wanted[:MAX_ROUNDS]:
            params: Mapping[str, Any] = {**each, "mode": "url"} if is_object(each) else {}
            try:
                answer = await self._open_address(context, params)
            except MCPError as refused:
                reason = refused.error.message
                raise self._error(f"wants its user to open an address: {reason}") from None
            if answer["action"] != "accept":
                raise self._error("wanted its user to open an address, and the user did not")
        raise self._error("asked its user to open an address; call again once that is done")

    async def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Follow changes, and pass on log messages of the only call under way."""
        if method in _CHANGES:
            if self._on_change is not None:
                self._on_change()
        elif method == "notifications/resources/updated":
            self.updates.updated(params.get("uri"))
        elif method == "notifications/elicitation/complete":
            name = f"{self.settings.name}:{params.get('elicitationId')}"
            if (client := self._sent_to.pop(name, None)) is not None:
                await client.url_elicited(name)
        elif method == "notifications/message":
            contexts = list(self._calls.values())
            data = self._masked(params.get("data"))
            if len(contexts) == 1 and contexts[0].client is not None:
                level: Any = params.get("level", "info")
                await contexts[0].client.log(level, data)
            else:
                _log.debug("%s: %s", self.settings.name, str(data)[:MAX_LOGGED])

    def lost(self, gone: asyncio.Event) -> None:
        """The server closed a connection: if it is the open one, the next request opens another."""
        gone.set()
        if self._gone is gone:
            self._ready = None

    async def _more_input(
        self, result: Mapping[str, Any], context: Context | None
    ) -> dict[str, Any]:
        """Answer the questions of a modern server, for the request to be repeated with them."""
        requests = result.get("inputRequests")
        if context is None or not is_object(requests):
            raise self._error("asks for more input, and nobody is there to give it")
        answers: dict[str, Any] = {}
        for key, asked in requests.items():
            method = asked.get("method", "") if is_object(asked) else ""
            try:
                answers[key] = await _asked(context, str(method), asked.get("params") or {})
            except MCPError as error:
                raise self._error(f"asks for more input: {error.error.message}") from None
        more: dict[str, Any] = {"inputResponses": answers}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        return more


class _Inbound:
    """The requests and notifications on one connection of a server."""

    def __init__(self, upstream: Upstream, gone: asyncio.Event) -> None:
        self.answer = upstream.answer
        self.notice = upstream.notice
        self._upstream = upstream
        self._gone = gone

    def closed(self) -> None:
        """The connection is gone; perhaps another has taken its place already."""
        self._upstream.lost(self._gone)


async def _asked(context: Context, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the client of a call.

    Raises:
        MCPError: it cannot be asked, or the question is of a kind that cannot be passed on.
    """
    client = context.client
    if client is None:
        raise MCPError(types.INVALID_REQUEST, f"{method}: the call has no client to ask")
    try:
        match method:
            case "elicitation/create" if params.get("mode", "form") == "form":
                schema = params.get("requestedSchema")
                found = await client.elicit(
                    str(params.get("message", "")), schema if is_object(schema) else {}
                )
                content = {} if found.data is None else {"content": found.data}
                return {"action": found.action, **content}
            case "elicitation/create" if params.get("mode") == "url":
                opened = await client.elicit_url(
                    str(params.get("message", "")),
                    str(params.get("url", "")),
                    elicitation_id=str(params.get("elicitationId") or ""),
                )
                return {"action": opened.action}
            case "sampling/createMessage":
                reply = await client.sample(
                    params.get("messages") or [],
                    max_tokens=int(params.get("maxTokens", 1_000)),
                    system=params.get("systemPrompt"),
                    temperature=params.get("temperature"),
                    stop=params.get("stopSequences") or (),
                )
                blocks = list(reply.content)
                content = blocks[0] if len(blocks) == 1 else {"type": "text", "text": reply.text}
                stop = {} if reply.stop_reason is None else {"stopReason": reply.stop_reason}
                return {"role": "assistant", "content": content, "model": reply.model, **stop}
            case "roots/list":
                roots = await client.roots()
                return {
                    "roots": [{"uri": r.uri, **({"name": r.name} if r.name else {})} for r in roots]
                }
            case _:
                raise MCPError(types.METHOD_NOT_FOUND, f"{method}: cannot be passed on")
    except (ClientUnable, ValueError, TypeError) as error:
        raise MCPError(types.INVALID_REQUEST, f"{method}: {error}") from None


def _is_session_gone(error: MCPError) -> bool:
    data = error.error.data
    if error.code != HTTP_STATUS or not is_object(data):
        return error.code == types.INVALID_REQUEST and "session" in error.error.message.lower()
    status, body = data.get("statusCode"), str(data.get("body")).lower()
    return status == 404 or (status == 400 and "session" in body)


def _first(error: BaseException) -> BaseException:
    """The innermost reason of a group of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
