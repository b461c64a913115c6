"""The MCP door: tools, resources, prompts and completions of a runtime, on the official SDK.

The SDK implements the protocol, the runtime runs the calls, and this module joins the two. Lists are
made in `views.py`, questions to clients in `peer.py` and `input_rounds.py`, notifications of changes
in `notify.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import mcp_types as types
from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from callpact.context import Identity
from callpact.discovery.tools import target_of
from callpact.envelope import MCPResponseMeta, ResponseEnvelope
from callpact.errors import (
    AccessDenied,
    CallError,
    ClientUnable,
    HandlerCrashed,
    UnknownTool,
)
from callpact.resources import (
    NO_RESOURCE,
    Prompt,
    Resource,
)
from callpact.serve import DEFAULT_TIMEOUT
from callpact.serve.answer_store import AnswerStore
from callpact.serve.concurrency import CALLS_PER_CALLER, CALLS_PER_TOOL, caller_of
from callpact.serve.door_calls import CallSender, DoorCalls
from callpact.serve.mcp.completion import complete
from callpact.serve.mcp.input_rounds import InputRounds
from callpact.serve.mcp.large_results import ResultReader
from callpact.serve.mcp.notify import MAX_SUBSCRIBED, ChangeNotifier
from callpact.serve.mcp.peer import Peer, RequestPeer
from callpact.serve.mcp.prebuilt import Prebuilt, arguments_of, put_aside, take_out
from callpact.serve.mcp.session_calls import note_handshake
from callpact.serve.mcp.views import (
    LIST_UP_TO,
    LISTS,
    CatalogView,
    ViewCache,
    is_modern,
    is_served,
    key_of,
)
from callpact.telemetry.tracing import has_provider
from callpact.tool import (
    Call,
    Tool,
)
from callpact.wire.mcp import results as wire
from callpact.wire.mcp.offers import encode_completion, encode_contents, encode_messages
from callpact.wire.paging import LIMIT
from callpact.wire.plain import encode_error as encode_gate_error

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.caching import CacheableMethod
    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.models import InitializationOptions
    from mcp.server.request_state import RequestStateCodec

    from callpact.context import Client
    from callpact.runtime import Runtime
    from callpact.serve.mcp.direct_calls import ReadCall
    from callpact.wire.mcp.published import AdvertiseMode, Rendering

LIST_TTL_MS = 2_000
"""Milliseconds for which a client may cache a list."""
_MISSING = -32002
"""The error code of an unknown resource before 2026-07-28."""
_ABLE: dict[str, types.ClientCapabilities] = {
    "elicitation": types.ClientCapabilities(elicitation=types.ElicitationCapability()),
    "elicitation_url": types.ClientCapabilities(
        elicitation=types.ElicitationCapability(url=types.UrlElicitationCapability())
    ),
    "sampling": types.ClientCapabilities(sampling=types.SamplingCapability()),
    "roots": types.ClientCapabilities(roots=types.RootsCapability()),
}
_LISTED: dict[str, type[BaseModel]] = {
    "tools/list": types.ListToolsResult,
    "resources/list": types.ListResourcesResult,
    "resources/templates/list": types.ListResourceTemplatesResult,
    "prompts/list": types.ListPromptsResult,
}
IDEMPOTENCY_KEY = "callpact/idempotencyKey"
"""The member of a call's `_meta` with its idempotency key."""
_REPLAYED = {"callpact/idempotencyReplayed": True}
_log = logging.getLogger("callpact.serve.mcp")

IdentityLookup = Callable[[Mapping[str, Any]], Identity | None]
ResultT = TypeVar("ResultT", bound=BaseModel)
SubjectT = TypeVar("SubjectT", Tool, Resource, Prompt)
OfferT = TypeVar("OfferT", Resource, Prompt)


class DoorServer(Server[Any]):
    """The SDK's server of a door; it declares notifications of changes to clients of both eras."""

    door: Door

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changing = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(
            changing, experimental_capabilities, extensions
        )


class DirectCall(Struct, frozen=True):
    """A call that is answered without the SDK, because its tool never reaches the client."""

    tool: Tool
    call: Call
    sender: CallSender
    era: str


class _CallOutcome(Struct, Generic[SubjectT], frozen=True):
    """A call's envelope, and the tool, resource or prompt it came from."""

    envelope: ResponseEnvelope[Any]
    subject: SubjectT


class Door:
    """An MCP server for the tools, resources and prompts of a runtime, in both eras of the protocol.

    `identity` is the caller, or a function that returns the caller of a request, given its ASGI scope
    (empty over stdio); only what the caller may use is listed and run. More than `list_up_to` tools are not listed, but replaced by three tools
    that search, describe and call them. `advertise` is the part of an output schema that the list
    shows, `rendering` the form of results. Results over `result_limit` bytes are delivered in pages
    of whole items. More concurrent calls than `calls_per_tool` and `calls_per_caller` are refused.
    `answers` keeps those of calls with an idempotency key. One of several workers has its number, and
    its own `states`, which seal the state of paused calls.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str = "callpact",
        version: str = "",
        instructions: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        identity: Identity | IdentityLookup | None = None,
        list_up_to: int = LIST_UP_TO,
        advertise: AdvertiseMode = "full",
        rendering: Rendering = "mcp",
        result_limit: int = LIMIT,
        calls_per_tool: int = CALLS_PER_TOOL,
        calls_per_caller: int = CALLS_PER_CALLER,
        answers: AnswerStore | None = None,
        states: RequestStateCodec | None = None,
        worker: int | None = None,
    ) -> None:
        self._runtime = runtime
        self._identity = identity
        self._advertise: AdvertiseMode = advertise
        self._rendering: Rendering = rendering
        self._views = ViewCache(
            runtime, list_up_to=list_up_to, advertise=advertise, rendering=rendering
        )
        self._rounds = InputRounds()
        self.calls = DoorCalls(
            runtime,
            timeout=timeout,
            calls_per_tool=calls_per_tool,
            calls_per_caller=calls_per_caller,
            answers=answers,
        )
        """Runs the calls of tools; another door of the same server shares its limits."""
        self._kept = ResultReader(result_limit, worker)
        self.writes_lines = False
        """True if orjson encodes the responses, so that prebuilt JSON is inserted as it is."""
        bus = InMemorySubscriptionBus()
        self.changes = ChangeNotifier(bus)
        self._listening = ListenHandler(bus)
        listed = CacheHint(LIST_TTL_MS, "public" if identity is None else "private")
        hints: dict[CacheableMethod, CacheHint] = dict.fromkeys(LISTS, listed)
        hints["resources/read"] = CacheHint(0, "private")
        self.server = DoorServer(
            name,
            version=version,
            instructions=instructions,
            on_list_tools=self._list,
            on_call_tool=self._call_tool,
            on_list_resources=self._list,
            on_list_resource_templates=self._list,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self.changes.unsubscribe,
            on_list_prompts=self._list,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=self._input_schema,
            cache_hints=hints,
        )
        # The constructor would warn of deprecation: clients of the handshake era still use it.
        self.server.add_request_handler(
            "logging/setLevel", types.SetLevelRequestParams, self.changes.set_level
        )
        security = (
            RequestStateSecurity.ephemeral()
            if states is None
            else RequestStateSecurity(codec=states)
        )
        state = RequestStateBoundary(security, default_audience=name)
        self.server.middleware.insert(0, _masked)
        self.server.middleware.extend((self.changes.notice, note_handshake, state, self._filled))
        self._middleware = tuple(self.server.middleware)
        self._stamp = {types.SERVER_INFO_META_KEY: self.server.server_info_stamp}
        self.server.door = self

    async def aclose(self) -> None:
        """End the calls that wait for their clients, and the notification streams."""
        self._rounds.close()
        self._listening.close()
        self.changes.close()
        await self.calls.aclose()

    # --- lists --------------------------------------------------------------------------------

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> Any:
        """Return a list without its entries, which are encoded already; `_filled` inserts them."""
        method, cursor = context.method, None if params is None else params.cursor
        more = self._kept.tools if method == "tools/list" else ()
        view = self._views.of(self._sender(context).identity)
        page = view.page(method, context.protocol_version, cursor, more)
        put_aside(key_of(method), page.entries)
        empty: dict[str, Any] = {key_of(method): [], "nextCursor": page.cursor}
        return _LISTED[method].model_validate(empty)

    async def _filled(self, ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
        prebuilt = Prebuilt()
        return prebuilt.put_in(ctx, await call_next(ctx), is_line=self.writes_lines)

    def _sender(self, context: ServerRequestContext[Any]) -> CallSender:
        return self._sender_of(getattr(context.request, "scope", None))

    def _sender_of(self, scope: MutableMapping[str, Any] | None) -> CallSender:
        given = self._identity
        identity = given if given is None or isinstance(given, Identity) else given(scope or {})
        if scope is not None:
            return CallSender(identity, caller_of(scope))
        return CallSender(identity, None if identity is None else identity.id)

    def _input_schema(self, tool_name: str) -> dict[str, Any] | None:
        # The SDK calls this before the caller is known, only for arguments repeated in headers.
        tool = self._runtime.catalog.get(tool_name)
        given = self._identity
        if tool is None or not (callable(given) or is_served(tool, given)):
            return None
        return wire.input_schema(tool)

    # --- calls --------------------------------------------------------------------------------

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        sender = self._sender(context)
        name = params.name
        arguments = arguments_of(context, params.arguments)
        key = (params.meta or {}).get(IDEMPOTENCY_KEY)
        notes: dict[str, Any] = {}

        async def begin(client: Client) -> _CallOutcome[Tool]:
            nonlocal name, notes
            view = self._views.of(sender.identity)
            tool = self._tool(view, params.name, sender.owner)
            if tool is None:
                raise await self._unknown(context, view, params.name, arguments, sender)
            meant = target_of(view.catalog, tool.id, arguments) or tool
            name = meant.name
            call = self._request(context, params.name, arguments, meant)
            if key is None:
                envelope = await self.calls.run(call, tool, sender, client=client, counted=meant)
                return _CallOutcome(envelope, tool)
            outcome = await self.calls.run_once(
                call, tool, sender, key, client=client, counted=meant
            )
            notes = _REPLAYED if outcome.is_replayed else {}
            return _CallOutcome(outcome.unwrap(), tool)

        try:
            ran = await self._run(context, params, begin, sender.owner)
        except CallError as error:
            failed = self._wired_error(error, name)
            return _result(failed | {"_meta": notes} if notes else failed)
        if isinstance(ran, types.InputRequiredResult):
            return ran
        tool = ran.subject
        result = await self._encoded(ran.envelope, tool, context.protocol_version, sender)
        result["_meta"] |= notes
        try:
            return _result(take_out(result))
        except ValidationError as error:
            _log.error("tool %s: its output is no valid MCP result: %s", tool.id, error)
            return self._failed(HandlerCrashed(tool.id), tool.name)

    async def _encoded(
        self, envelope: ResponseEnvelope[Any], tool: Tool, era: str, sender: CallSender
    ) -> dict[str, Any]:
        result = wire.encode_result(
            envelope,
            tool,
            modern=is_modern(era),
            advertise=self._advertise,
            rendering=self._rendering,
            paging=None if tool.id == self._kept.tool.id else self._kept.paging(sender.owner),
        )
        if "callpact/page" in result["_meta"] and self._kept.show():
            await self.changes.announce(tools=True)
        return result

    def _failed(self, error: CallError, tool_name: str) -> types.CallToolResult:
        return _result(self._wired_error(error, tool_name))

    def _wired_error(self, error: CallError, tool_name: str) -> dict[str, Any]:
        return wire.encode_error(error, rendering=self._rendering, tool_name=tool_name)

    # --- calls without the SDK ------------------------------------------------------------------

    @property
    def has_direct_calls(self) -> bool:
        """False if every message has to pass a middleware of others, or is traced by the SDK."""
        return tuple(self.server.middleware) == self._middleware and not has_provider()

    def direct(self, scope: MutableMapping[str, Any] | None, read: ReadCall) -> DirectCall | None:
        """The call of a request; None if it has to go through the SDK."""
        sender = self._sender_of(scope)
        view = self._views.of(sender.identity)
        tool = self._tool(view, read.name, sender.owner)
        if tool is None or tool.uses_client or view.repeats_in_headers(tool):
            return None
        via = f"mcp {read.era}"
        call = self.calls.request(
            read.name, read.arguments, tool, via=via, client_name=read.client_name
        )
        return DirectCall(tool, call, sender, read.era)

    async def answer(self, direct: DirectCall) -> dict[str, Any]:
        """Run a call; returns the member `result` or `error` of its JSON-RPC response."""
        tool = direct.tool
        try:
            envelope = await self.calls.run(direct.call, tool, direct.sender)
            result = await self._encoded(envelope, tool, direct.era, direct.sender)
            if isinstance(envelope.meta, MCPResponseMeta):  # Blocks of another server.
                _result(result)
        except CallError as error:
            result = self._wired_error(error, tool.name)
        except ValidationError as error:
            _log.error("tool %s: its output is no valid MCP result: %s", tool.id, error)
            result = self._wired_error(HandlerCrashed(tool.id), tool.name)
        except Exception:  # noqa: BLE001 - boundary: an error of ours, not of the caller
            _log.exception("tools/call failed")
            return {"error": {"code": types.INTERNAL_ERROR, "message": "Internal error"}}
        if is_modern(direct.era):
            result["_meta"] = {**self._stamp, **result.get("_meta", {})}
            result["resultType"] = "complete"
        result.setdefault("isError", False)
        return {"result": result}

    def _tool(self, view: CatalogView, name: str, owner: str | None) -> Tool | None:
        """Find a tool by its name; tools that are not listed can be called as well."""
        tool = view.front.catalog.get(name) or view.catalog.get(name)
        if tool is None and name in {self._kept.tool.id, self._kept.tool.wire_name}:
            return self._kept.reading(owner)
        return tool

    async def _unknown(
        self,
        context: ServerRequestContext[Any],
        view: CatalogView,
        name: str,
        arguments: Any,
        sender: CallSender,
    ) -> MCPError:
        """Record a call of an unknown tool; returns the error response."""
        try:
            await view.front.call(self._request(context, name, arguments, None), sender.identity)
        except UnknownTool as error:
            return MCPError(code=types.INVALID_PARAMS, message=error.message)
        raise AssertionError("the tool was not there a moment ago")

    def _request(
        self, context: ServerRequestContext[Any], name: str, arguments: Any, tool: Tool | None
    ) -> Call:
        via, client_name = f"mcp {context.protocol_version}", _client_name(context)
        return self.calls.request(
            name, arguments, tool, via=via, client_name=client_name, uses_wire_names=True
        )

    async def _run(
        self,
        context: ServerRequestContext[Any],
        params: types.InputResponseRequestParams,
        begin: Callable[[Peer], Coroutine[Any, Any, _CallOutcome[SubjectT]]],
        owner: str | None,
    ) -> _CallOutcome[SubjectT] | types.InputRequiredResult:
        """Start a call that may ask its client, in the way of its era, or resume it.

        `begin` looks up the tool only when the call starts: a resumed call uses the same version.

        Raises:
            CallError: the call failed.
            MCPError: the client lacks a capability that the call needs.
        """
        if not is_modern(context.protocol_version):
            return await begin(RequestPeer(context, self.changes.level_of(context)))
        try:
            return await self._rounds.run(context, params, begin, owner)
        except ClientUnable as error:
            if error.missing is None:
                raise
            needed = types.MissingRequiredClientCapabilityErrorData(
                required_capabilities=_ABLE[error.missing]
            )
            raise MCPError(
                code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=error.message,
                data=needed.model_dump(by_alias=True, exclude_none=True),
            ) from None

    # --- resources, prompts, completions --------------------------------------------------------

    async def _read_resource(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        sender = self._sender(context)
        kept = wire.encode_kept(params.uri, self._kept.paging(sender.owner))
        if kept is not None:
            return types.ReadResourceResult.model_validate(kept)

        def find() -> tuple[Resource, dict[str, str]]:
            return self._resource(context, sender, params.uri)

        ran = await self._offered(context, params, sender, find)
        if isinstance(ran, types.InputRequiredResult):
            return ran
        wired = encode_contents(ran.envelope, ran.subject, params.uri)
        return _valid(types.ReadResourceResult, wired, ran.subject.tool)

    def _resource(
        self, context: ServerRequestContext[Any], sender: CallSender, uri: str
    ) -> tuple[Resource, dict[str, str]]:
        found = self._views.of(sender.identity).resource(uri)
        if found is None:
            raise _no_resource(context, uri)
        return found

    async def _subscribe(
        self, context: ServerRequestContext[Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        sender = self._sender(context)
        resource, _ = self._resource(context, sender, str(params.uri))
        return await self.changes.subscribe(context, params, sender.owner, resource.follow)

    async def _listen(
        self, context: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of notifications; resources that cannot be followed are left out of it."""
        view = self._views.of(self._sender(context).identity)
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        found = {uri: view.resource(uri) for uri in uris[:MAX_SUBSCRIBED]}
        wanted = {uri: held[0].follow for uri, held in found.items() if held is not None}
        async with self.changes.following(wanted) as kept:
            wish = params.notifications.model_copy(update={"resource_subscriptions": kept})
            return await self._listening(context, params.model_copy(update={"notifications": wish}))

    async def _get_prompt(
        self, context: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        sender = self._sender(context)

        def find() -> tuple[Prompt, dict[str, str]]:
            view = self._views.of(sender.identity)
            prompt = view.prompt(params.name)
            if prompt is None:
                known = ", ".join(held.tool.wire_name for held in view.prompts[:10]) or "none"
                message = f"There is no prompt '{params.name[:100]}'; there are: {known}"
                raise MCPError(code=types.INVALID_PARAMS, message=message)
            return prompt, params.arguments or {}

        ran = await self._offered(context, params, sender, find)
        if isinstance(ran, types.InputRequiredResult):
            return ran
        wired = encode_messages(ran.envelope, ran.subject)
        return _valid(types.GetPromptResult, wired, ran.subject.tool)

    async def _offered(
        self,
        context: ServerRequestContext[Any],
        params: types.InputResponseRequestParams,
        sender: CallSender,
        find: Callable[[], tuple[OfferT, dict[str, str]]],
    ) -> _CallOutcome[OfferT] | types.InputRequiredResult:
        """Run a resource or a prompt as a call.

        Raises:
            MCPError: the call failed; its data is the error in seed 004's form.
        """

        async def begin(client: Client) -> _CallOutcome[OfferT]:
            offer, arguments = find()
            call = self._request(context, offer.tool.id, arguments, offer.tool)
            envelope = await self._runtime.call(
                call, sender.identity, client=client, found=offer.tool
            )
            return _CallOutcome(envelope, offer)

        try:
            return await self._run(context, params, begin, sender.owner)
        except CallError as error:
            if error.code == NO_RESOURCE and isinstance(params, types.ReadResourceRequestParams):
                raise _no_resource(context, params.uri) from None
            raise _failure(error) from None

    async def _complete(
        self, context: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        identity, ref = self._sender(context).identity, params.ref
        view = self._views.of(identity)
        if isinstance(ref, types.PromptReference):
            offer = view.prompt(ref.name)
        else:
            offer = next((r for r in view.resources if r.uri == ref.uri), None)
        if offer is None:
            raise MCPError(code=types.INVALID_PARAMS, message="There is nothing so named here")
        others = (params.context.arguments if params.context else None) or {}
        name, text = params.argument.name, params.argument.value
        try:
            values = await complete(offer, name, text, others, identity)
        except AccessDenied as error:
            raise _failure(error) from None
        return types.CompleteResult.model_validate(encode_completion(values))


def _no_resource(context: ServerRequestContext[Any], uri: str) -> MCPError:
    return MCPError(
        code=types.INVALID_PARAMS if is_modern(context.protocol_version) else _MISSING,
        message=f"There is no resource at {uri[:200]}",
        data={"uri": uri[:200]},
    )


def _failure(error: CallError) -> MCPError:
    """The error of a resource, a prompt or a completion; its data is seed 004's form."""
    is_theirs = error.code == "schema_validation_failed"
    code = types.INVALID_PARAMS if is_theirs else types.INTERNAL_ERROR
    return MCPError(code=code, message=error.message, data=encode_gate_error(error))


async def _masked(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Log an unexpected error, which the SDK would send to clients of the handshake era verbatim."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):  # The SDK's own errors for an invalid request.
        raise
    except Exception:  # noqa: BLE001 - boundary: an error of ours, not of the caller
        _log.exception("%s failed", ctx.method)
        raise MCPError(code=types.INTERNAL_ERROR, message="Internal error") from None


def _client_name(context: ServerRequestContext[Any]) -> str:
    """Return the client's own name and version, as in `claude-code 2.1.0`."""
    given = context.session.client_params
    return "" if given is None else f"{given.client_info.name} {given.client_info.version}".strip()


def _result(wired: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult.model_validate(wired)


def _valid(kind: type[ResultT], wired: dict[str, Any], tool: Tool) -> ResultT:
    try:
        return kind.model_validate(wired)
    except ValidationError as error:
        _log.error("%s: its output is no valid %s: %s", tool.id, kind.__name__, error)
        crashed = HandlerCrashed(tool.id)
        raise MCPError(
            code=types.INTERNAL_ERROR, message=crashed.message, data=encode_gate_error(crashed)
        ) from None
