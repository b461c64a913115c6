"""The handler of an operation: builds the request, sends it with credentials, reads the response."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from callpact.context import Context
from callpact.envelope import ResponseEnvelope
from callpact.errors import Failed
from callpact.net import Response, Transport
from callpact.secrets.keys import Secrets
from callpact.sources.openapi.operation_request import RequestOutline
from callpact.sources.openapi.operation_settings import OperationSettings
from callpact.sources.openapi.operations import Operation
from callpact.sources.openapi.parameter_styles import is_json_type
from callpact.sources.openapi.security_schemes import Authenticated, OperationSecurity
from callpact.sources.response_body import MaskedResponse, masked_error, masked_response
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
    operation: Operation, transport: Transport, settings: OperationSettings
) -> Handler:
    """The handler of the tool of an operation.

    Raises:
        InvalidTool: no request can be made of the operation.
    """
    security = operation_security(operation, transport, settings)
    outline = RequestOutline(
        operation, security.server, _accept(operation), settings.fixed_headers, security.reserved
    )
    return _OperationCall(outline, security, transport, settings).call


@dataclass(frozen=True, slots=True)
class _OperationCall:
    outline: RequestOutline
    security: OperationSecurity
    transport: Transport
    settings: OperationSettings

    async def call(self, arguments: dict[str, Any], context: Context) -> ResponseEnvelope[Any]:
        try:
            response, used = await self._send(arguments, context.deadline)
            return _read(masked_response(response, used))
        except Failed as error:
            raise masked_error(error, self.settings.secrets) from None

    async def _send(
        self, arguments: dict[str, Any], deadline: float | None
    ) -> tuple[Response, Secrets | None]:
        """Send the request; with another token if the first one is refused."""
        ready = await self._ready(arguments, deadline)
        response = await self.transport.send(ready.request, deadline=deadline)
        if response.status == _UNAUTHORIZED and ready.token is not None:
            self.settings.tokens.forget(*ready.token)
            ready = await self._ready(arguments, deadline)
            response = await self.transport.send(ready.request, deadline=deadline)
        return response, ready.used

    async def _ready(self, arguments: dict[str, Any], deadline: float | None) -> Authenticated:
        return await self.security.authenticate(self.outline.build(arguments), deadline)


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


def _read(read: MaskedResponse) -> ResponseEnvelope[Any]:
    status = read.response.status
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
