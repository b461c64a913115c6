"""Paused runs: a tool's question to the outside, and the checkpoint to resume from.

A checkpoint is JSON text that any process with the same agent can resume. It contains the
conversation of the run, and needs the same protection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Struct

from callpact.agent.account import AnswerAttempt
from callpact.agent.models.model import Message, ToolUse, Usage
from callpact.context import Client, Elicited, LogLevel, Resumed, Root, Sampled
from callpact.errors import ClientUnable, PauseAsked, UsageError
from callpact.schema import is_json

VERSION = 1
MAX_CHECKPOINT = 32 << 20
"""Bytes of a checkpoint."""


class PendingCall(Struct, omit_defaults=True):
    """The state of one tool call of a reply: its result, or the question it paused with."""

    use: ToolUse
    result: Message | None = None
    question: Any = None
    is_paused: bool = False
    answers: list[Any] = []
    state: Any = None
    """The state that the tool resumes from, with its first answer; None if it starts anew."""
    is_rejected: bool = False


class Checkpoint(Struct, omit_defaults=True):
    """The state that a run needs to resume."""

    version: int
    agent: str
    run_id: str
    message: str
    session: str
    iteration: int
    messages: list[Message]
    waiting: list[PendingCall]
    usage: Usage
    requests: int
    tool_calls: int
    attempts: list[AnswerAttempt]
    skills: list[str]
    rejections: dict[str, int]
    seconds: float
    made: int = 0
    """Requests to the agent's own models; `requests` includes those of nested agents."""


def write_checkpoint(checkpoint: Checkpoint) -> str:
    """Encode a checkpoint as JSON text; lone surrogates become '?'.

    Raises:
        UsageError: the checkpoint is too large to be read again.
    """
    try:
        text = msgspec.json.encode(checkpoint).decode()
    except UnicodeEncodeError:
        whole = json.dumps(msgspec.to_builtins(checkpoint), ensure_ascii=False)
        text = whole.encode(errors="replace").decode()
    if len(text) > MAX_CHECKPOINT:
        raise UsageError(
            f"the run cannot pause: its conversation has {len(text):,} characters as JSON, and at "
            f"most {MAX_CHECKPOINT:,} are read again"
        )
    return text


def read_checkpoint(text: str | bytes, agent: str) -> Checkpoint:
    """Decode a checkpoint.

    Raises:
        UsageError: the text is no checkpoint, or one of another agent.
    """
    if not isinstance(cast("Any", text), str | bytes) or len(text) > MAX_CHECKPOINT:
        raise UsageError("a checkpoint is the JSON text that a paused run gave")
    try:
        checkpoint = msgspec.json.decode(text, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"this is no checkpoint of a paused run: {error}") from None
    if checkpoint.version != VERSION:
        raise UsageError(
            f"the checkpoint is of version {checkpoint.version}, and this callpact reads {VERSION}"
        )
    if checkpoint.agent != agent:
        raise UsageError(f"the checkpoint is of the agent '{checkpoint.agent}', not of '{agent}'")
    if not any(pending.is_paused for pending in checkpoint.waiting):
        raise UsageError("the checkpoint waits for no answer")
    return checkpoint


class RunClient(Client):
    """The client of a tool that an agent calls: it can pause, and forwards to the agent's caller."""

    def __init__(
        self, above: Client | None, pending: PendingCall, *, is_trusted: bool = False
    ) -> None:
        self._above = above
        self.is_trusted = is_trusted
        self._answers = list(pending.answers)
        self._given = 0
        if pending.state is not None and self._answers:
            self.resumed = Resumed(pending.state, self._answers.pop(0))

    async def pause(self, question: Any, state: Any = None) -> Any:
        """Return the answer to the question, if it is known already.

        Raises:
            PauseAsked: there is no answer yet.
            UsageError: the question or the state is not JSON.
        """
        if not is_json(question) or not is_json(state):
            raise UsageError("a tool pauses with JSON data: the run may go on in another process")
        if self._given < len(self._answers):
            self._given += 1
            return self._answers[self._given - 1]
        raise PauseAsked(question, state)

    @property
    def can_elicit(self) -> bool:
        """True if the agent's own caller can."""
        return self._above is not None and self._above.can_elicit

    @property
    def can_sample(self) -> bool:
        """True if the agent's own caller can."""
        return self._above is not None and self._above.can_sample

    @property
    def can_list_roots(self) -> bool:
        """True if the agent's own caller can."""
        return self._above is not None and self._above.can_list_roots

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Elicited:
        """Ask the user of the agent's caller."""
        if self._above is None:
            _raise_no_client()
        return await self._above.elicit(message, schema, key=key)

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
        """Ask the model of the agent's caller."""
        if self._above is None:
            _raise_no_client()
        return await self._above.sample(
            messages,
            max_tokens=max_tokens,
            system=system,
            temperature=temperature,
            stop=stop,
            key=key,
        )

    async def roots(self, *, key: str = "") -> tuple[Root, ...]:
        """Return the folders of the agent's caller."""
        if self._above is None:
            _raise_no_client()
        return await self._above.roots(key=key)

    async def log(self, level: LogLevel, data: Any) -> None:
        """Log to the agent's caller, if there is one."""
        if self._above is not None:
            await self._above.log(level, data)

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Do nothing: the progress of a tool is not the progress of the run."""


def _raise_no_client() -> NoReturn:
    raise ClientUnable("the agent was called by code: there is no client to ask; use context.pause")
