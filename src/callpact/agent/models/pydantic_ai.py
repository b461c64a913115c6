"""The adapter to pydantic-ai: `OpenedModel` implements the protocol `Model` with its models.

It converts requests to pydantic-ai's form, and responses and exceptions to replies and errors
without keys in their texts. Only `open.py`, which imports this module on first use, imports
pydantic-ai as well.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, cast

from pydantic_ai import exceptions
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from callpact.agent.models.model import (
    FORCED_TOOL,
    NATIVE_ANSWER,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    ToolUse,
    Usage,
)
from callpact.errors import CallpactError, ModelError, UsageError
from callpact.jsonreader.reader import Unreadable, read_json
from callpact.secrets.keys import Secrets

MAX_REPLY_CHARACTERS = 5_000_000
"""Characters of one streamed reply, thinking and arguments included; a longer one is an error."""

_log = logging.getLogger("callpact.agent")


class OpenedModel:
    """A real model. Inside `async with` its connections are reused.

    Without, each request opens a connection and closes it.

    Raises:
        UsageError: `abilities` names an unknown ability.
    """

    def __init__(
        self,
        model: TheirModel,
        name: str,
        secrets: Secrets,
        abilities: Iterable[str] | None = None,
    ) -> None:
        self.name = name
        self.abilities = declared_abilities(model) if abilities is None else _known(abilities)
        self._model = model
        self._secrets = secrets
        self._replies = ReplyCache()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the whole reply.

        Raises:
            ModelError: the request failed, or the response is unusable.
            UsageError: the request is not valid for this model, for example its settings.
        """
        failure: CallpactError
        try:
            async with self._model:
                return self._kept(await self._response(request))
        except Exception as error:  # noqa: BLE001 - boundary: clients of models raise what they like
            failure = failure_of(error, self.name, self._secrets)
        # Outside of `except`: the original may contain a key and must not become `__context__`.
        raise failure

    async def _response(self, request: ModelRequest) -> theirs.ModelResponse:
        messages = their_messages(request, self._replies)
        settings = their_settings(request, self._model)
        for native in self._ways(request):
            parameters = their_parameters(request, native=native)
            try:
                return await model_request(
                    self._model,
                    messages,
                    model_settings=settings,
                    model_request_parameters=parameters,
                )
            except UserError as error:
                self._check_native(native, error)
        raise AssertionError("the last way returns or raises")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        """Yield the reply piece by piece; the last item is the whole reply.

        Raises:
            ModelError: as `complete`, also after some pieces.
            UsageError: as `complete`.
        """
        failure: CallpactError | None = None
        try:
            async with self._model, aclosing(self._streamed(request)) as items:
                async for item in items:
                    yield item
        except Exception as error:  # noqa: BLE001 - boundary: as in `complete`
            failure = failure_of(error, self.name, self._secrets)
        if failure is not None:
            raise failure

    async def _streamed(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        messages = their_messages(request, self._replies)
        settings = their_settings(request, self._model)
        for native in self._ways(request):
            parameters = their_parameters(request, native=native)
            opened = False
            try:
                async with model_request_stream(
                    self._model,
                    messages,
                    model_settings=settings,
                    model_request_parameters=parameters,
                ) as response:
                    opened = True
                    async with aclosing(self._texts(response)) as texts:
                        async for text in texts:
                            yield text
                    yield self._kept(response.get())
            except UserError as error:
                self._check_native(native and not opened, error)
            else:
                return

    async def _texts(self, response: StreamedResponse) -> AsyncGenerator[str, None]:
        size = 0
        async for event in response:
            text, length = _piece(event)
            size += length
            if size > MAX_REPLY_CHARACTERS:
                raise ModelError(
                    f"the reply of '{self.name}' has more than {MAX_REPLY_CHARACTERS:,} characters"
                )
            if text:
                yield text

    def _kept(self, response: theirs.ModelResponse) -> ModelReply:
        if response.state != "complete":
            raise ModelError(f"the reply of '{self.name}' broke off in the middle", transient=True)
        reply = reply_of(response)
        self._replies.keep(reply, response)
        return reply

    def _ways(self, request: ModelRequest) -> tuple[bool, ...]:
        """Return whether to send the schema natively, for each try: if possible first with, then without."""
        if NATIVE_ANSWER in self.abilities and is_object_schema(request.answer_schema):
            return (True, False)
        return (False,)

    def _check_native(self, native: bool, error: UserError) -> None:  # noqa: FBT001 - the loop variable of its callers
        """Raise the error again, unless it may be pydantic-ai's refusal of the native schema."""
        if not native:
            raise error
        # Not every schema is possible natively, nor beside tools; the instruction has it as well.
        _log.debug("the schema is not sent natively to '%s': %s", self.name, error.message)

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._model.__aexit__(kind, error, traceback)

    def __repr__(self) -> str:
        return f"OpenedModel({self.name!r})"


def _known(abilities: Iterable[str]) -> frozenset[str]:
    named = frozenset([abilities] if isinstance(abilities, str) else abilities)
    if unknown := sorted(map(str, named - {FORCED_TOOL, NATIVE_ANSWER})):
        raise UsageError(
            f"a model has no ability '{unknown[0]}'; there are '{FORCED_TOOL}' and '{NATIVE_ANSWER}'"
        )
    return named


def _piece(event: theirs.ModelResponseStreamEvent) -> tuple[str, int]:
    """Return the text in an event, and the size of its whole content."""
    held: object = None
    if isinstance(event, theirs.PartStartEvent):
        held = event.part
    elif isinstance(event, theirs.PartDeltaEvent):
        held = event.delta
    if isinstance(held, theirs.TextPart):
        return held.content, len(held.content)
    if isinstance(held, theirs.TextPartDelta):
        return held.content_delta, len(held.content_delta)
    if isinstance(held, theirs.ThinkingPart):
        return "", len(held.content)
    if isinstance(held, theirs.ThinkingPartDelta):
        return "", len(held.content_delta or "")
    if isinstance(held, theirs.ToolCallPart):
        return "", len(str(held.args or ""))
    if isinstance(held, theirs.ToolCallPartDelta):
        return "", len(str(held.args_delta or ""))
    return "", 0


# --- requests and replies ---------------------------------------------------------------------

MAX_REMEMBERED = 200
"""Replies with tool calls that a model stores in order to send their thinking back, over all runs."""

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
_FORCIBLE = frozenset(
    {"anthropic", "azure", "bedrock", "cohere", "google", "google-cloud", "groq", "mistral", "xai"}
)


class ReplyCache:
    """Original responses by the ids of their tool calls: some models require their thinking back."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, ...], tuple[ModelReply, theirs.ModelResponse]]
        self._held = OrderedDict()

    def keep(self, reply: ModelReply, response: theirs.ModelResponse) -> None:
        """Store a response that calls tools."""
        if not reply.tool_uses:
            return
        self._held[_ids(reply.tool_uses)] = (reply, response)
        while len(self._held) > MAX_REMEMBERED:
            self._held.popitem(last=False)

    def find(self, message: Message) -> theirs.ModelResponse | None:
        """Return the response that a message was made from."""
        held = self._held.get(_ids(message.tool_uses)) if message.tool_uses else None
        if held is None:
            return None
        reply, response = held
        is_same = reply.content == message.content and reply.tool_uses == message.tool_uses
        return response if is_same else None


def _ids(uses: Sequence[ToolUse]) -> tuple[str, ...]:
    return tuple(use.id for use in uses)


def their_messages(request: ModelRequest, replies: ReplyCache) -> list[theirs.ModelMessage]:
    """Convert a conversation; all messages between two replies become one request."""
    sent: list[theirs.ModelMessage] = []
    parts: list[theirs.ModelRequestPart] = []
    for message in request.messages:
        if message.role == "assistant":
            response = replies.find(message) or _response(message)
            if response is None:
                continue  # Several vendors refuse an empty message.
            if parts:
                sent.append(theirs.ModelRequest(parts=parts))
                parts = []
            sent.append(response)
        else:
            parts.append(_request_part(message))
    # Instructions are read from the last request; it may have no parts of its own.
    sent.append(theirs.ModelRequest(parts=parts, instructions=request.system or None))
    return sent


def _response(message: Message) -> theirs.ModelResponse | None:
    parts: list[theirs.ModelResponsePart] = []
    if message.content:
        parts.append(theirs.TextPart(message.content))
    for use in message.tool_uses:
        arguments: Any = use.arguments
        parts.append(theirs.ToolCallPart(use.name, arguments, use.id))
    return theirs.ModelResponse(parts=parts) if parts else None


def _request_part(message: Message) -> theirs.ModelRequestPart:
    if message.role != "tool":
        return theirs.UserPromptPart([_content(part) for part in message.parts] or message.content)
    name, id_ = message.tool_name or "", message.tool_use_id or ""
    if not message.is_error:
        return theirs.ToolReturnPart(name, message.content, id_)
    error = _error_object(message.content)
    if error is None:
        return theirs.ToolReturnPart(name, message.content, id_, outcome="failed")
    # Of the two outcomes that are errors, only this one is sent as an object and not as nested text.
    return theirs.ToolReturnPart(name, error, id_, outcome="retried")


def _content(part: Part) -> theirs.UserContent:
    if isinstance(part, str):
        return part
    kind = part.media_type
    if part.data:
        return theirs.BinaryContent(part.data, media_type=kind)
    made = _ADDRESSES.get(kind.partition("/")[0].lower(), theirs.DocumentUrl)
    return made(part.url, media_type=kind)


_ADDRESSES: dict[str, type[theirs.ImageUrl | theirs.AudioUrl | theirs.VideoUrl]] = {
    "image": theirs.ImageUrl,
    "audio": theirs.AudioUrl,
    "video": theirs.VideoUrl,
}


def _error_object(text: str) -> Any:
    """Return the value under `error` if it is the only key; vendors have a field for it."""
    value = _arguments(text)
    return value["error"] if _is_object(value) and value.keys() == {"error"} else None


def their_parameters(request: ModelRequest, *, native: bool) -> ModelRequestParameters:
    """Convert the tools and, if `native` is set, the schema of the answer."""
    tools = [
        ToolDefinition(
            name=offer.name,
            description=offer.description,
            parameters_json_schema=dict(offer.input_schema or _NO_ARGUMENTS),
        )
        for offer in request.tools
    ]
    if not native or request.answer_schema is None:
        return ModelRequestParameters(function_tools=tools)
    schema = dict(request.answer_schema)
    answer = OutputObjectDefinition(
        json_schema=schema, name="answer", description=schema.get("description")
    )
    return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=answer)


def is_object_schema(schema: Mapping[str, Any] | None) -> bool:
    """True for the schema of an object: vendors accept no other natively."""
    if schema is None:
        return False
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/$defs/"):
        definitions: Mapping[str, Any] = schema.get("$defs", {})
        target = definitions.get(ref.removeprefix("#/$defs/"))
        return (
            isinstance(target, Mapping)
            and "$ref" not in target
            and is_object_schema(cast("Mapping[str, Any]", target))
        )
    return schema.get("type") == "object"


def their_settings(request: ModelRequest, model: TheirModel) -> ModelSettings:
    """Convert the settings of a request; the client must not retry, which is up to the agent's rules."""
    settings: dict[str, Any] = {}
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    settings.update(request.settings)
    if request.timeout is not None:
        settings["request_timeout"] = min(
            request.timeout, settings.get("request_timeout", request.timeout)
        )
    if request.forced_tool is not None:
        settings["tool_choice"] = [request.forced_tool]
    return cast("ModelSettings", settings)


def reply_of(response: theirs.ModelResponse) -> ModelReply:
    """Convert the text and the tool calls of a response, without its thinking."""
    text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
    uses = tuple(
        ToolUse(part.tool_call_id, part.tool_name, _arguments(part.args))
        for part in response.parts
        if isinstance(part, theirs.ToolCallPart)
    )
    details = response.provider_details or {}
    # A reason that pydantic-ai does not know is only in the details.
    reason = response.finish_reason or details.get("finish_reason")
    usage = response.usage
    return ModelReply(
        # Some vendors put a refusal beside the text; for the reader it is the answer.
        text or ("" if uses else str(details.get("refusal") or "")),
        uses,
        Usage(usage.input_tokens, usage.output_tokens, cost_of(response)),
        None if reason is None else str(reason),
        response.model_name or "",
    )


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given or {}
    if not given.strip():
        return {}
    try:
        read = read_json(given)
    except Unreadable:
        return given
    # Text that needs repair is kept as written: the caller of the tool decides on repairs.
    return given if read.repairs or not _is_object(read.value) else read.value


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def cost_of(response: theirs.ModelResponse) -> float | None:
    """Return the cost of a response by list price, in US dollars; None if unknown."""
    usage = response.usage
    if usage.cost is not None:
        return float(usage.cost)
    if not response.model_name or not usage.input_tokens + usage.output_tokens:
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):
        return None


def declared_abilities(model: TheirModel) -> frozenset[str]:
    """Return the abilities that a model's profile and vendor declare; none for an unknown server."""
    if model.system == "openai" and "//api.openai.com" not in (model.base_url or ""):
        return frozenset()  # A compatible server has the vendor's name, not its abilities.
    profile = model.profile
    abilities: set[str] = set()
    if profile.get("supports_json_schema_output", False):
        abilities.add(NATIVE_ANSWER)
    # Every profile has "can be forced" as its default, which is no declaration.
    declared = _vendor_profile(model) if model.system not in {"openai", *_FORCIBLE} else profile
    forcing = declared.get("supports_forced_tool_choice", False)
    if model.system == "bedrock":
        forcing = forcing and bool(cast("Any", profile).get("bedrock_supports_tool_choice", False))
    if (
        forcing
        and profile.get("supports_tools", True)
        and profile.get("supports_forced_tool_choice_with_thinking", True)
    ):
        abilities.add(FORCED_TOOL)
    return frozenset(abilities)


def _vendor_profile(model: TheirModel) -> Mapping[str, Any]:
    """The vendor's own profile of a model, without defaults."""
    vendor = model.provider
    return {} if vendor is None else vendor.model_profile(model.model_name) or {}


# --- errors -----------------------------------------------------------------------------------

MAX_DETAIL = 500
"""Characters of a server's error text that an error holds."""

_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
_PLACEHOLDER = "api-key-not-set"
_TRANSIENT_STATUSES = frozenset({408, 409, 425})


def keys_of(*sources: Mapping[str, Any]) -> Secrets:
    """Collect every value whose name is that of a key."""
    found: dict[str, str] = {}
    for source in sources:
        for name, value in source.items():
            if isinstance(value, str) and value != _PLACEHOLDER and _SECRET_NAME.search(name):
                found[f"{len(found)} {name}"] = value
    return Secrets(found)


def shown(text: str, secrets: Secrets) -> str:
    """Mask keys in a text of others, put it on one line, and cut it to `MAX_DETAIL` characters."""
    # Mask before cutting: half a key is not recognised.
    line = " ".join(secrets.mask(text).split())
    return line if len(line) <= MAX_DETAIL else f"{line[:MAX_DETAIL]}…"


def failure_of(error: Exception, name: str, secrets: Secrets) -> CallpactError:
    """Convert an exception of pydantic-ai or of the vendor's client."""
    if isinstance(error, CallpactError):
        return error
    if isinstance(error, exceptions.UserError):
        return UsageError(f"'{name}' cannot be asked so: {shown(error.message, secrets)}")
    if isinstance(error, exceptions.ModelHTTPError):
        return _http_failure(error, name, secrets)
    if isinstance(error, exceptions.ModelRequestTimeout):
        return ModelError(f"'{name}' gave no reply within {error.timeout:g} s", transient=True)
    if isinstance(error, exceptions.ModelTimeoutError | TimeoutError):
        return ModelError(f"'{name}' gave no reply in time", transient=True)
    if isinstance(error, exceptions.ModelConnectionError | OSError):
        detail = shown(_deepest(error), secrets)
        return ModelError(
            f"'{name}' could not be reached, or the connection broke: {detail}", transient=True
        )
    if isinstance(error, exceptions.ModelAPIError):
        status = 429 if isinstance(error, exceptions.ModelRateLimitError) else None
        transient = isinstance(
            error, exceptions.ModelUnavailableError | exceptions.ModelServerError
        )
        detail = shown(error.message, secrets)
        return ModelError(
            f"'{name}' failed: {detail}",
            status=status,
            transient=transient,
            retry_after=error.retry_after,
        )
    detail = shown(str(error) or type(error).__name__, secrets)
    return ModelError(f"'{name}' gave nothing that can be used: {type(error).__name__}: {detail}")


def _http_failure(error: exceptions.ModelHTTPError, name: str, secrets: Secrets) -> ModelError:
    status = error.status_code
    text = f"'{name}' answered {status}: {shown(_message_of(error.body), secrets)}"
    if isinstance(error, exceptions.ModelAuthenticationError):
        text += "; check the key, and what it may use"
    if error.suggested_model_id is not None:
        text += f"; did you mean '{error.suggested_model_id}'?"
    if error.retry_after is not None:
        text += f"; it asks to wait {error.retry_after:g} s"
    return ModelError(
        text,
        status=status,
        transient=status in _TRANSIENT_STATUSES,
        retry_after=error.retry_after,
    )


def _message_of(body: object) -> str:
    """Return the message in the body of an HTTP error, in one of the vendors' forms."""
    if isinstance(body, Mapping):
        held = cast("Mapping[str, object]", body)
        inner = held.get("error", held)
        if isinstance(inner, Mapping):
            message = cast("Mapping[str, object]", inner).get("message")
            if isinstance(message, str):
                return message
        elif isinstance(inner, str):
            return inner
    return "no reason given" if body in {None, ""} else str(cast("object", body))


def _deepest(error: BaseException) -> str:
    """Return the text of the innermost cause; the outer "Connection error." is not specific."""
    seen: set[int] = set()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    return str(error) or type(error).__name__
