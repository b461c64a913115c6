"""The handler of an operation: builds the request, sends it, and reads the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from callpact.context import Context
from callpact.envelope import ResponseEnvelope
from callpact.net import Request, Response, Transport
from callpact.sources.openapi.operation_request import BuiltRequest, RequestOutline
from callpact.sources.openapi.operations import Operation
from callpact.sources.openapi.parameter_styles import is_json_type
from callpact.sources.response_body import MaskedResponse, masked_response
from callpact.tool import Handler

EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings:
    """The settings of a source for all of its operations."""

    server: str | None = None
    """The root that requests go to instead of the document's servers."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of every request; no argument replaces them."""


_NO_SETTINGS = OperationSettings()


def operation_handler(
    operation: Operation, transport: Transport, settings: OperationSettings = _NO_SETTINGS
) -> Handler:
    """The handler of the tool of an operation.

    Raises:
        InvalidTool: no request can be made of the operation.
    """
    server = (settings.server or operation.server).rstrip("/")
    outline = RequestOutline(operation, server, _accept(operation), settings.headers, {})
    return _OperationCall(outline, transport).call


@dataclass(frozen=True, slots=True)
class _OperationCall:
    outline: RequestOutline
    transport: Transport

    async def call(self, arguments: dict[str, Any], context: Context) -> ResponseEnvelope[Any]:
        built = self.outline.build(arguments)
        response = await self.transport.send(_request(built), deadline=context.deadline)
        return _read(response)


def _request(built: BuiltRequest) -> Request:
    headers = built.headers
    if built.cookies:
        headers = {**headers, "Cookie": "; ".join(built.cookies)}
    return Request(built.method, built.url, headers, built.body)


def _accept(operation: Operation) -> str:
    """The media types of the declared successes, JSON first; anything else is taken, too."""
    kinds = [
        kind
        for response in operation.responses
        if response.status[:1] == "2"
        for kind in response.content
    ]
    wanted = [kind for kind in kinds if is_json_type(kind)] or kinds
    return ", ".join((*dict.fromkeys(wanted), "*/*;q=0.1")) if wanted else "*/*"


def _read(response: Response) -> ResponseEnvelope[Any]:
    read = masked_response(response, None)
    status = response.status
    if not 200 <= status < 300:
        raise read.refused(f"HTTP {status}{_reason(status)}")
    return read.envelope(_data(read))


def _reason(status: int) -> str:
    try:
        return f": {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _data(read: MaskedResponse) -> Any:
    kind = read.kind.lower()
    if not read.response.body and (read.response.status != 200 or not kind):
        return None
    if is_json_type(kind):
        return read.json()
    return read.text() if kind.startswith("text/") else read.data()
