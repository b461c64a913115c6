"""The handler of an operation: builds the request, sends it with credentials, reads the response.

A success becomes an `http` envelope; any other status is an `UpstreamError`. Operations that answer
with `text/event-stream` become subscriptions; lists are merged page by page only under a rule.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from callpact.context import Context
from callpact.envelope import ResponseEnvelope
from callpact.errors import Failed, Issue
from callpact.net import (
    Response,
    StreamedResponse,
    StreamingTransport,
    Transport,
)
from callpact.secrets.keys import Secrets
from callpact.sources.openapi.operation_request import RequestOutline, linked_request
from callpact.sources.openapi.operation_settings import OperationSettings
from callpact.sources.openapi.operations import Operation
from callpact.sources.openapi.pagination import FetchedPage, Pagination, merged_pages, rule_for
from callpact.sources.openapi.parameter_styles import is_json_type, preference
from callpact.sources.openapi.security_schemes import Authenticated, OperationSecurity
from callpact.sources.openapi.server_events import EventReader, ServerEvent
from callpact.sources.response_body import (
    MAX_SHOWN,
    MaskedResponse,
    masked_error,
    masked_response,
)
from callpact.tool import Handler

EVENT_STREAM = "text/event-stream"
_UNAUTHORIZED = 401


def operation_security(
    operation: Operation, transport: Transport, settings: OperationSettings
) -> OperationSecurity:
    """The security of an operation: `disabled()` and `destinations()` are for its tool."""
    server = (settings.server or operation.server).rstrip("/")
    return OperationSecurity(operation, server, settings, transport)


def operation_handler(
    operation: Operation,
    transport: Transport,
    settings: OperationSettings,
    *,
    is_stream: bool = False,
) -> Handler:
    """The handler of the tool of an operation; with `is_stream` that of a subscription.

    Raises:
        InvalidTool: no request can be made of the operation.
    """
    security = operation_security(operation, transport, settings)
    accept = EVENT_STREAM if is_stream else _accept(operation)
    outline = RequestOutline(
        operation, security.server, accept, settings.fixed_headers, security.reserved
    )
    rule = None if is_stream else rule_for(operation, settings.pagination)
    call = _OperationCall(outline, security, transport, settings, rule)
    return call.events if is_stream else call.call


@dataclass(frozen=True, slots=True)
class _OperationCall:
    outline: RequestOutline
    security: OperationSecurity
    transport: Transport
    settings: OperationSettings
    rule: Pagination | None

    async def call(self, arguments: dict[str, Any], context: Context) -> ResponseEnvelope[Any]:
        """Call the operation once, or once for each page."""

        async def fetch(asked: Mapping[str, Any], link: str | None) -> FetchedPage:
            return await self._fetch(asked, link, context.deadline)

        try:
            if self.rule is not None:
                return await merged_pages(self.rule, self.outline.operation, arguments, fetch)
            page = await fetch(arguments, None)
            return page.read.envelope(page.data, self._undeclared(page.read.response.status))
        except Failed as error:
            raise masked_error(error, self.settings.secrets) from None

    async def _fetch(
        self, arguments: Mapping[str, Any], link: str | None, deadline: float | None
    ) -> FetchedPage:
        """Send the request; with another token if the first one is refused."""
        ready = await self._ready(arguments, link, deadline)
        response = await self.transport.send(ready.request, deadline=deadline)
        if response.status == _UNAUTHORIZED and ready.token is not None:
            self.settings.tokens.forget(*ready.token)
            ready = await self._ready(arguments, link, deadline)
            response = await self.transport.send(ready.request, deadline=deadline)
        read = masked_response(response, ready.used)
        return FetchedPage(read, _success(read), ready.request.url)

    async def _ready(
        self, arguments: Mapping[str, Any], link: str | None, deadline: float | None
    ) -> Authenticated:
        built = self.outline.build(arguments)
        if link is not None:
            built = linked_request(built, link)
        return await self.security.authenticate(built, deadline)

    def _undeclared(self, status: int) -> tuple[Issue, ...]:
        """A warning for a status that the document does not declare."""
        declared = {each.status.upper() for each in self.outline.operation.responses}
        if not declared or declared & {str(status), f"{status // 100}XX", "DEFAULT"}:
            return ()
        return (Issue("status", f"The status {status} is not declared", "", sorted(declared)),)

    # --- subscriptions -----------------------------------------------------------------------

    async def events(
        self, arguments: dict[str, Any], context: Context
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Yield an envelope for each event; a response of another type is one envelope."""
        try:
            async for envelope in self._events(arguments, context.deadline):
                yield envelope
        except Failed as error:
            raise masked_error(error, self.settings.secrets) from None

    async def _events(
        self, arguments: dict[str, Any], deadline: float | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        for is_last in (False, True):
            ready = await self._ready(arguments, None, deadline)
            async with self._opened(ready, deadline) as opened:
                if opened.head.status == _UNAUTHORIZED and ready.token and not is_last:
                    self.settings.tokens.forget(*ready.token)
                    continue
                kind = opened.head.headers.get("content-type", "").lower()
                if opened.head.status == 200 and kind.startswith(EVENT_STREAM):
                    async for envelope in _stream(opened, ready.used):
                        yield envelope
                    return
                read = masked_response(await _collected(opened), ready.used)
                yield read.envelope(_success(read))
                return

    @asynccontextmanager
    async def _opened(
        self, ready: Authenticated, deadline: float | None
    ) -> AsyncGenerator[StreamedResponse, None]:
        if isinstance(self.transport, StreamingTransport):
            async with self.transport.stream(ready.request, deadline=deadline) as opened:
                yield opened
            return
        response = await self.transport.send(ready.request, deadline=deadline)
        yield StreamedResponse(response, _whole(response))


async def _whole(response: Response) -> AsyncIterator[bytes]:
    yield response.body


async def _stream(
    opened: StreamedResponse, used: Secrets | None
) -> AsyncIterator[ResponseEnvelope[Any]]:
    reader = EventReader()
    async for piece in opened.pieces:
        for event in reader.feed(piece):
            yield _event_envelope(opened.head, event, used)


def _event_envelope(
    head: Response, event: ServerEvent, used: Secrets | None
) -> ResponseEnvelope[Any]:
    """The envelope of an event; its name and its id are headers of the envelope."""
    headers = dict(head.headers)
    if event.name:
        headers["sse-event"] = event.name
    if event.id:
        headers["last-event-id"] = event.id
    body = event.data.encode("utf-8", "replace")
    read = masked_response(Response(head.status, headers, body, head.set_cookie), used)
    return read.envelope(read.json_or_text())


async def _collected(opened: StreamedResponse) -> Response:
    """The whole of a response that is no stream; of an error, the part that is shown."""
    is_error = not 200 <= opened.head.status < 300
    most = 8 * MAX_SHOWN if is_error else _MAX_COLLECTED
    pieces: list[bytes] = []
    size = 0
    async for piece in opened.pieces:
        pieces.append(piece)
        size += len(piece)
        if size > most and is_error:
            break
        if size > most:
            raise masked_response(opened.head, None).unreadable(
                f"larger than {_MAX_COLLECTED:,} bytes, where a stream of events should be"
            )
    return msgspec.structs.replace(opened.head, body=b"".join(pieces))


_MAX_COLLECTED = 2_000_000


def _accept(operation: Operation) -> str:
    """The media type of the first declared success, JSON if there is one; else anything.

    Only one is named: a server may prefer another one, with another schema than the tool has.
    """
    kinds = [
        kind
        for response in operation.responses
        if response.status[:1] == "2"
        for kind in response.content
    ]
    wanted = next(iter(sorted(kinds, key=preference)), "*/*")
    return wanted if wanted == "*/*" else f"{wanted}, */*;q=0.1"


def _success(read: MaskedResponse) -> Any:
    """The data of a success.

    Raises:
        UpstreamError: the status is not 2xx, or the body is not of the type that it names.
    """
    status = read.response.status
    if not 200 <= status < 300:
        raise read.refused(f"HTTP {status}{_reason(status)}")
    kind = read.kind.lower()
    if not read.response.body and (status != 200 or not kind):
        return None
    if is_json_type(kind):
        return read.json()
    return read.text() if kind.startswith("text/") else read.data()


def _reason(status: int) -> str:
    try:
        return f": {HTTPStatus(status).phrase}"
    except ValueError:
        return ""
