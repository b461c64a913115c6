"""One connection to an MCP server, of either era, on the SDK's client.

Requests go below the SDK's own validation: results are plain JSON as the server sent them, so that
an answer that breaks its schema is judged by the contract of its tool and never lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version as package_version
from typing import Any, Protocol, cast

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from callpact.errors import UpstreamError
from callpact.net.address import AddressRules
from callpact.net.httpx_client import RenewableToken, checked_client
from callpact.net.limits import Limits
from callpact.schema import is_array, is_object
from callpact.sources.mcp.server_settings import ServerSettings
from callpact.sources.mcp.stdio_process import MAX_LINE_BYTES, stdio_process

_META = "io.modelcontextprotocol/"
_OWN_TEXT = re.compile(
    r"Connection closed\Z|SSE stream (ended|failed)|Request '[\w/]+' timed out\Z"
)
_CLIENT = {"name": "callpact", "version": package_version("callpact")}


CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
    "sampling": {},
}
"""Questions of a server to its client during a call; the client behind the call decides."""


class Inbound(Protocol):
    """Takes the requests and notifications of a server."""

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request of the server.

        Raises:
            MCPError: it is refused.
        """
        ...

    async def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Take one notification of the server."""
        ...

    def closed(self) -> None:
        """The connection is gone."""
        ...


class Connection:
    """An open session: requests out, results in, as plain JSON."""

    def __init__(self, session: ClientSession, dispatcher: JSONRPCDispatcher[Any]) -> None:
        self._session = session
        self._dispatcher = dispatcher

    @property
    def version(self) -> str:
        """The negotiated revision of the protocol."""
        return self._session.protocol_version or ""

    @property
    def is_modern(self) -> bool:
        """True for a server of 2026-07-28 or later: no handshake, no session."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    @property
    def instructions(self) -> str | None:
        """The server's words about itself, for a model."""
        return self._session.instructions

    @property
    def server(self) -> dict[str, Any]:
        """Name and version of the server, as it says."""
        info = self._session.server_info
        return (
            {} if info is None else info.model_dump(by_alias=True, mode="json", exclude_none=True)
        )

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declares."""
        found = self._session.server_capabilities
        return (
            {} if found is None else found.model_dump(by_alias=True, mode="json", exclude_none=True)
        )

    @asynccontextmanager
    async def changes(self, uris: Sequence[str] = ()) -> AsyncGenerator[Any]:
        """Listen for changes of a modern server's lists, or of the resources at some addresses.

        An async iterator of events; `honored` is the part of the wish that the server fulfils.

        Raises:
            MCPError: the server does not offer it.
        """
        async with listen(
            self._session,
            tools_list_changed=not uris,
            prompts_list_changed=not uris,
            resources_list_changed=not uris,
            resource_subscriptions=uris,
        ) as events:
            yield events

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        on_progress: ProgressFnT | None = None,
        header_map: Mapping[tuple[str, ...], str] | None = None,
    ) -> dict[str, Any]:
        """Send a request, and return the result as the server sent it.

        Raises:
            MCPError: the server answered with an error, or the connection is gone.
        """
        sent = dict(params or {})
        options: CallOptions = {"headers": self._headers(method, sent, header_map)}
        if self.is_modern:
            sent["_meta"] = {
                **cast("Mapping[str, Any]", sent.get("_meta") or {}),
                f"{_META}protocolVersion": self.version,
                f"{_META}clientInfo": _CLIENT,
                f"{_META}clientCapabilities": CAPABILITIES,
            }
        if seconds is not None:
            options["timeout"] = seconds
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._dispatcher.send_raw_request(method, sent, options)

    def _headers(
        self,
        method: str,
        params: Mapping[str, Any],
        header_map: Mapping[tuple[str, ...], str] | None,
    ) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if not self.is_modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        key = NAME_BEARING_METHODS.get(method)
        if key is not None and isinstance(name := params.get(key), str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        if header_map:
            headers.update(mcp_param_headers(header_map, params.get("arguments") or {}))
        return headers


@asynccontextmanager
async def connect(
    settings: ServerSettings, inbound: Inbound, token: RenewableToken | None = None
) -> AsyncGenerator[Connection]:
    """Connect to a server, and agree on the revision of the protocol.

    Raises:
        UpstreamError: it cannot be started or reached, or speaks no revision of ours.
    """
    async with _transport(settings, token) as (read, write):
        dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
        # The session negotiates; requests of the server go past it, to `inbound`. The callbacks
        # are never called: they make the session say that a server may ask.
        session = ClientSession(
            dispatcher=cast("Any", _Dispatcher(dispatcher, inbound)),
            client_info=types.Implementation(name=_CLIENT["name"], version=_CLIENT["version"]),
            sampling_callback=cast("Any", _unused),
            elicitation_callback=cast("Any", _unused),
            list_roots_callback=cast("Any", _unused),
        )
        async with session:
            try:
                async with asyncio.timeout(settings.connect_seconds):
                    await _negotiate(session)
            except TimeoutError:
                raise UpstreamError(
                    f"'{settings.name}' did not answer within {settings.connect_seconds:g} s"
                ) from None
            except (MCPError, RuntimeError, ValidationError) as error:
                reason = _reason(error, is_program=bool(settings.command))
                raise UpstreamError(f"'{settings.name}' cannot be used: {reason}") from None
            yield Connection(session, dispatcher)


def is_own(error: MCPError, code: int) -> bool:
    """True for an error of the SDK's client; servers use the same codes for errors of theirs."""
    return error.code == code and _OWN_TEXT.match(error.error.message) is not None


def _reason(error: Exception, *, is_program: bool) -> str:
    if isinstance(error, ValidationError):
        return "its answer to the first request is no answer of MCP"
    if is_program and isinstance(error, MCPError) and is_own(error, types.CONNECTION_CLOSED):
        return "its program ended before it answered; --log-level info shows what it wrote"
    return str(error)[:500] or type(error).__name__


@asynccontextmanager
async def _transport(
    settings: ServerSettings, token: RenewableToken | None
) -> AsyncGenerator[tuple[Any, Any]]:
    if settings.command:
        async with stdio_process(settings) as streams:
            yield streams
        return
    limits = Limits()
    rules = AddressRules(settings.hosts)
    client = checked_client(rules, settings.headers, limits, token, settings.auth)
    async with (
        client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=MAX_LINE_BYTES
        ) as streams,
    ):
        yield streams


async def _negotiate(session: ClientSession) -> None:
    """Ask for the newest revision; a server that does not know the question is of the older era."""
    version = LATEST_MODERN_VERSION
    for is_last in (False, True):
        try:
            found = types.DiscoverResult.model_validate(await session.send_discover(version))
        except ValidationError:
            break
        except MCPError as error:
            supported = _supported(error.error.data)
            shared = [each for each in MODERN_PROTOCOL_VERSIONS if each in supported]
            if shared and not is_last:
                version = shared[-1]
                continue
            if supported and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS):
                raise
            break
        if set(found.supported_versions) & set(MODERN_PROTOCOL_VERSIONS):
            session.adopt(found)
            return
        break
    await session.initialize()


def _supported(data: object) -> list[str]:
    """The revisions that a server names when it knows none of ours."""
    named = data.get("supported") if is_object(data) else None
    return [each for each in named if isinstance(each, str)] if is_array(named) else []


async def _unused(*_: Any) -> Any:
    return types.ErrorData(code=types.INVALID_REQUEST, message="not answered here")


class _Dispatcher:
    """A dispatcher that gives the server's requests and notifications to `Inbound`."""

    def __init__(self, inner: JSONRPCDispatcher[Any], inbound: Inbound) -> None:
        self._inner = inner
        self._inbound = inbound
        self.send_raw_request = inner.send_raw_request
        self.notify = inner.notify

    async def run(
        self,
        on_request: Callable[..., Awaitable[dict[str, Any]]],
        on_notify: Callable[..., Awaitable[None]],  # noqa: ARG002 - the signature is the SDK's
        on_notify_intercept: Any = None,
        **more: Any,
    ) -> None:
        """Run the receive loop; pings and matters of the protocol stay with the session."""

        async def request(context: Any, method: str, params: Any) -> dict[str, Any]:
            if method == "ping":
                return await on_request(context, method, params)
            return await self._inbound.answer(method, params or {})

        async def notice(_: Any, method: str, params: Any) -> None:
            await self._inbound.notice(method, params or {})

        try:
            await self._inner.run(request, notice, on_notify_intercept, **more)
        finally:
            self._inbound.closed()
