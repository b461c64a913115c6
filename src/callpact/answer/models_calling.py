"""`OpenedModel`: a model of pydantic-ai behind our two methods. `models.open_model` makes it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Self

from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import StreamedResponse

from callpact.answer.model import FORCED_TOOL, NATIVE_OUTPUT, ModelReply, ModelRequest
from callpact.answer.models_failing import failure_of
from callpact.answer.models_mapping import (
    Remembered,
    declared_abilities,
    is_object_schema,
    reply_of,
    their_messages,
    their_parameters,
    their_settings,
)
from callpact.errors import CallpactError, ModelError, UsageError
from callpact.secrets import Secrets

MAX_REPLY_CHARACTERS = 5_000_000
"""Characters of one streamed reply, thinking and arguments included; a longer one is broken off."""

_log = logging.getLogger("callpact.answer")


class OpenedModel:
    """A real model. `async with` keeps its connections from one request to the next.

    Without, each request opens a connection and closes it, so nothing is left behind.

    Raises:
        UsageError: `abilities` names what is none.
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
        self._remembered = Remembered()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Answer as a whole.

        Raises:
            ModelError: the model could not be asked, or gave nothing that can be used.
            UsageError: it cannot be asked so, by its settings for instance.
        """
        failure: CallpactError
        try:
            async with self._model:
                return self._kept(await self._response(request))
        except Exception as error:  # noqa: BLE001 - boundary: clients of models raise what they like
            failure = failure_of(error, self.name, self._secrets)
        # Outside of `except`: the original may show a key, and is not to hang on ours.
        raise failure

    async def _response(self, request: ModelRequest) -> theirs.ModelResponse:
        messages = their_messages(request, self._remembered)
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
        """Answer piece by piece; the last item is the whole reply.

        Raises:
            ModelError: as `complete`, also in the middle.
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
        messages = their_messages(request, self._remembered)
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
        self._remembered.keep(reply, response)
        return reply

    def _ways(self, request: ModelRequest) -> tuple[bool, ...]:
        """Whether to hand the schema over: first so, if it can be, and then without."""
        if NATIVE_OUTPUT in self.abilities and is_object_schema(request.answer_schema):
            return (True, False)
        return (False,)

    def _check_native(self, native: bool, error: UserError) -> None:  # noqa: FBT001 - as told
        """Raise again unless it was the schema that may have been refused, before it was sent."""
        if not native:
            raise error
        # Not every schema can be said natively, nor beside tools; the instruction has it as well.
        _log.debug("'%s' is not given the schema natively: %s", self.name, error.message)

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
    if unknown := sorted(map(str, named - {FORCED_TOOL, NATIVE_OUTPUT})):
        raise UsageError(
            f"a model has no ability '{unknown[0]}'; there are '{FORCED_TOOL}' and '{NATIVE_OUTPUT}'"
        )
    return named


def _piece(event: theirs.ModelResponseStreamEvent) -> tuple[str, int]:
    """The text in an event, and the size of all that it brings."""
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
