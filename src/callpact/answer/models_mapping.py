"""Our requests as pydantic-ai has them, and its responses as our replies.

Only this module and its siblings `models_*` know pydantic-ai; `models.py` imports them on first use.
Nothing is sent here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai import messages as theirs
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from callpact.answer.model import (
    FORCED_TOOL,
    NATIVE_OUTPUT,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    ToolUse,
    Usage,
)
from callpact.answer.reader import Unreadable, read_json

MAX_REMEMBERED = 200
"""Replies with tool calls whose thinking a model gets back as it was, however many runs share it."""

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
_FORCIBLE = frozenset(
    {"anthropic", "azure", "bedrock", "cohere", "google", "google-cloud", "groq", "mistral", "xai"}
)


class Remembered:
    """Replies as they came, by the calls in them: some models want their thinking back with these."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, ...], tuple[ModelReply, theirs.ModelResponse]]
        self._held = OrderedDict()

    def keep(self, reply: ModelReply, response: theirs.ModelResponse) -> None:
        """Keep a reply that calls tools."""
        if not reply.tool_uses:
            return
        self._held[_ids(reply.tool_uses)] = (reply, response)
        while len(self._held) > MAX_REMEMBERED:
            self._held.popitem(last=False)

    def find(self, message: Message) -> theirs.ModelResponse | None:
        """The reply that a message was made of."""
        held = self._held.get(_ids(message.tool_uses)) if message.tool_uses else None
        if held is None:
            return None
        reply, response = held
        is_same = reply.content == message.content and reply.tool_uses == message.tool_uses
        return response if is_same else None


def _ids(uses: Sequence[ToolUse]) -> tuple[str, ...]:
    return tuple(use.id for use in uses)


def their_messages(request: ModelRequest, remembered: Remembered) -> list[theirs.ModelMessage]:
    """The conversation: what stands between two replies goes as one request."""
    said: list[theirs.ModelMessage] = []
    parts: list[theirs.ModelRequestPart] = []
    for message in request.messages:
        if message.role == "assistant":
            response = remembered.find(message) or _response(message)
            if response is None:
                continue  # Nothing was said; several vendors refuse an empty message.
            if parts:
                said.append(theirs.ModelRequest(parts=parts))
                parts = []
            said.append(response)
        else:
            parts.append(_request_part(message))
    # Instructions are read from the last request; it may have no parts of its own.
    said.append(theirs.ModelRequest(parts=parts, instructions=request.system or None))
    return said


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
    # Of the two outcomes that are errors only this one goes out as the object that it is, and not
    # as text in text.
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
    """What stands under `error` where that is all; vendors have a place of their own for it."""
    value = _arguments(text)
    return value["error"] if _is_object(value) and value.keys() == {"error"} else None


def their_parameters(request: ModelRequest, *, native: bool) -> ModelRequestParameters:
    """Tools and, where it is wanted and can be said, the schema of the answer."""
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
    """True if a schema is of an object: vendors that hold text to a schema take no other."""
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
    """The settings of a request. Its client makes one attempt: the rules of the agent decide on more."""
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
    """What was said and what is to be called; thinking stays out."""
    text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
    uses = tuple(
        ToolUse(part.tool_call_id, part.tool_name, _arguments(part.args))
        for part in response.parts
        if isinstance(part, theirs.ToolCallPart)
    )
    details = response.provider_details or {}
    # A reason that pydantic-ai has no word for is only among the details.
    reason = response.finish_reason or details.get("finish_reason")
    usage = response.usage
    return ModelReply(
        # A refusal is no text of the model to some vendors; to who reads the answer it is.
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
    # What needs repair stays as it was written: whoever calls the tool decides on that.
    return given if read.repairs or not _is_object(read.value) else read.value


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def cost_of(response: theirs.ModelResponse) -> float | None:
    """What a reply cost by list price, in US dollars; None where nobody knows."""
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
    """What the profile of a model and its vendor declare; nothing of a server that nobody knows."""
    if model.system == "openai" and "//api.openai.com" not in (model.base_url or ""):
        return frozenset()  # Whoever answers there took over a name and not what it stands for.
    profile = model.profile
    abilities: set[str] = set()
    if profile.get("supports_json_schema_output", False):
        abilities.add(NATIVE_OUTPUT)
    # The default of every profile is that a call can be forced; that is no declaration.
    told = _vendor_profile(model) if model.system not in {"openai", *_FORCIBLE} else profile
    forcing = told.get("supports_forced_tool_choice", False)
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
    """What the vendor says of a model, without defaults."""
    vendor = model.provider
    return {} if vendor is None else vendor.model_profile(model.model_name) or {}
