"""The client of a call over MCP: messages and questions to it, in both eras of the protocol.

Before 2026-07-28 a server sends a request of its own. Since then it responds to the client's request
with its questions, and the client repeats the request with the answers. The call is paused in between
(`input_rounds.py`), so that it runs once.
"""

from __future__ import annotations

import logging
import re
import secrets
import warnings
from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from callpact.context import Client, Elicited, LogLevel, Root, Sampled
from callpact.errors import ClientUnable, InvalidSchema, UsageError
from callpact.schema import CompiledSchema, compile_schema
from callpact.schema.issues.explain import explain
from callpact.schema.json_text import sendable

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

MAX_MESSAGES = 100
"""Messages in one request of a tool to its client's model."""
LEVELS: tuple[LogLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
MAX_URL_LENGTH = 2_000
"""Characters of an address that a user is asked to open."""
_WEB_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f]+", re.IGNORECASE)
_LEAVES = ("string", "number", "integer", "boolean")
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError)
_log = logging.getLogger("callpact.serve.mcp")

Question = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
_ANSWERS: dict[type[Any], type[Any]] = {
    types.ElicitRequest: types.ElicitResult,
    types.CreateMessageRequest: types.CreateMessageResult,
    types.ListRootsRequest: types.ListRootsResult,
}


class Peer(Client):
    """The client of one request; the subclasses ask it in the way of their era."""

    def __init__(self, request: ServerRequestContext[Any], level: LogLevel = "debug") -> None:
        self.request = request
        self._level = level

    @abstractmethod
    async def ask(self, question: Question, key: str) -> types.InputResponse:
        """Ask the client a question.

        Raises:
            ClientUnable: there is no usable answer.
        """

    @property
    def _capabilities(self) -> types.ClientCapabilities:
        return self.request.session.client_capabilities or types.ClientCapabilities()

    @property
    def can_elicit(self) -> bool:
        """True if its user can be asked."""
        able = self._capabilities.elicitation
        return able is not None and (able.form is not None or able.url is None)

    @property
    def can_sample(self) -> bool:
        """True if its model can be asked."""
        return self._capabilities.sampling is not None

    @property
    def can_list_roots(self) -> bool:
        """True if it can list its folders."""
        return self._capabilities.roots is not None

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Elicited:
        """Ask the user for an object."""
        asked = _asked(schema)
        if not self.can_elicit:
            raise _unable("ask its user (elicitation)", "elicitation")
        params = types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
        answer = await self.ask(types.ElicitRequest(params=params), key)
        if not isinstance(answer, types.ElicitResult):
            raise ClientUnable("The client's answer is not one to a question for its user")
        if answer.action != "accept":
            return Elicited(answer.action)
        return Elicited("accept", _kept(answer.content or {}, asked))

    async def elicit_url(
        self, message: str, url: str, *, elicitation_id: str = "", key: str = ""
    ) -> Elicited:
        """Ask the user to open an address."""
        able = self._capabilities.elicitation
        if able is None or able.url is None:
            raise _unable("ask its user to open an address (URL elicitation)", "elicitation_url")
        if len(url) > MAX_URL_LENGTH or not _WEB_ADDRESS.fullmatch(url):
            raise ClientUnable(
                "A user is sent to an address that begins with http:// or https:// and has at most "
                f"{MAX_URL_LENGTH:,} characters, got {url!r:.100}"
            )
        # The newest revision has no ids for it, the one before cannot do without.
        name = None if self._is_modern else elicitation_id or secrets.token_urlsafe(16)
        params = types.ElicitRequestURLParams(message=message, url=url, elicitation_id=name)
        answer = await self.ask(types.ElicitRequest(params=params), key)
        if not isinstance(answer, types.ElicitResult):
            raise ClientUnable("The client's answer is not one to a question for its user")
        return Elicited(answer.action)

    async def url_elicited(self, elicitation_id: str) -> None:
        """Notify a client of the handshake era that the user is done at an address."""
        if not self._is_modern:
            await _sent(self.request.session.send_elicit_complete(elicitation_id))

    @property
    def _is_modern(self) -> bool:
        return self.request.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        key: str = "",
    ) -> Sampled:
        """Ask the client's model for a completion."""
        request = _sampling(messages, max_tokens, system, temperature, stop)
        if not self.can_sample:
            raise _unable("ask its model (sampling)", "sampling")
        answer = await self.ask(request, key)
        if not isinstance(answer, types.CreateMessageResult | types.CreateMessageResultWithTools):
            raise ClientUnable("The client's answer is not one of its model")
        wire = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        held = wire["content"]
        blocks = cast("list[dict[str, Any]]", held if isinstance(held, list) else [held])
        texts = [block["text"] for block in blocks if block.get("type") == "text"]
        return Sampled("\n".join(texts), tuple(blocks), answer.model, answer.stop_reason)

    async def roots(self, *, key: str = "") -> tuple[Root, ...]:
        """Ask the client for its folders."""
        if not self.can_list_roots:
            raise _unable("list its folders (roots)", "roots")
        answer = await self.ask(types.ListRootsRequest(), key)
        if not isinstance(answer, types.ListRootsResult):
            raise ClientUnable("The client's answer names no folders")
        return tuple(Root(str(root.uri), root.name or "") for root in answer.roots)

    async def log(self, level: LogLevel, data: Any) -> None:
        """Send a log message to the client."""
        if level not in LEVELS:
            raise UsageError(f"a level is one of {', '.join(LEVELS)}, got {level!r:.100}")
        if LEVELS.index(level) < LEVELS.index(self._level):
            return
        session, request_id = self.request.session, self.request.request_id
        with warnings.catch_warnings():
            # Older clients support logging, which the newest revision deprecates.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            sending = session.send_log_message(  # pyright: ignore[reportDeprecated] - see above
                level, sendable(data), related_request_id=request_id
            )
        await _sent(sending)

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report the progress of the call to the client."""
        await _sent(self.request.session.report_progress(done, total, message))


class RequestPeer(Peer):
    """A client of the handshake era: the server sends it requests."""

    @property
    def _capabilities(self) -> types.ClientCapabilities:
        if not self.request.session.can_send_request:
            return types.ClientCapabilities()
        return super()._capabilities

    async def ask(self, question: Question, key: str) -> types.InputResponse:  # noqa: ARG002 - for other eras
        """Send the question as a request, which needs no key."""
        metadata = ServerMessageMetadata(related_request_id=self.request.request_id)
        expected = _ANSWERS[type(question)]
        try:
            return await self.request.session.send_request(question, expected, metadata=metadata)
        except MCPError as error:
            raise ClientUnable(f"The client did not answer: {error.message}") from None
        except (ValidationError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise ClientUnable("The client gave no answer that could be read") from None


def _sampling(
    messages: str | Sequence[Mapping[str, Any]],
    max_tokens: int,
    system: str | None,
    temperature: float | None,
    stop: Sequence[str],
) -> types.CreateMessageRequest:
    given: Sequence[Any] = (
        [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    )
    if not 0 < len(given) <= MAX_MESSAGES:
        raise UsageError(f"a model is sent 1 to {MAX_MESSAGES} messages, got {len(given)}")
    wire: dict[str, Any] = {"messages": [_message(item) for item in given], "maxTokens": max_tokens}
    if system is not None:
        wire["systemPrompt"] = system
    if temperature is not None:
        wire["temperature"] = temperature
    if stop:
        wire["stopSequences"] = list(stop)
    try:
        return types.CreateMessageRequest(
            params=types.CreateMessageRequestParams.model_validate(wire, by_name=False)
        )
    except ValidationError as error:
        raise UsageError(f"this cannot be sent to a model: {error}") from None


def _message(item: Any) -> Any:
    message: Mapping[str, Any] = cast("Any", item) if isinstance(item, Mapping) else {}
    content = message.get("content")
    if not isinstance(content, str):
        return cast("Any", item)
    return {**message, "content": {"type": "text", "text": content}}


def _asked(schema: Mapping[str, Any]) -> CompiledSchema:
    """Compile a schema that clients can show as a form.

    Raises:
        UsageError: the schema is not valid, has more than one level, or no properties.
    """
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping) or not properties:
        raise UsageError(
            'a user is asked for an object: {"type": "object", "properties": {…}}, got '
            f"{schema!r:.100}"
        )
    for name, part in cast("Mapping[str, Any]", properties).items():
        if not isinstance(part, Mapping) or not _is_flat(cast("Mapping[str, Any]", part)):
            raise UsageError(
                f"a user is asked for texts, numbers, booleans and choices of texts; '{name}' is "
                f"{part!r:.100}"
            )
    try:
        return compile_schema(dict(schema))
    except InvalidSchema as error:
        raise UsageError(f"a user cannot be asked by this schema: {error}") from None


def _is_flat(part: Mapping[str, Any]) -> bool:
    if part.get("type") == "array":
        items = part.get("items")
        return isinstance(items, Mapping) and ("enum" in items or "anyOf" in items)
    return part.get("type") in _LEAVES


def _kept(data: dict[str, Any], asked: CompiledSchema) -> dict[str, Any]:
    if asked.accepts(data):
        return data
    first = explain(asked, asked.errors(data), "Value")[0]
    raise ClientUnable(f"The user's answer does not keep what was asked for: {first.message}")


def _unable(what: str, missing: str) -> ClientUnable:
    return ClientUnable(f"This tool needs a client that can {what}; yours cannot", missing)


async def _sent(sending: Awaitable[None]) -> None:
    """Wait until a message is sent; a client that is gone is ignored."""
    try:
        await sending
    except _GONE:
        _log.debug("the client was gone before a message was sent")
