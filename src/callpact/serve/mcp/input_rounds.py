"""Calls that wait for input of their client between its requests (MCP 2026-07-28).

A call that asks its client is paused in this process. Its questions are the response to the request;
the client sends the request again with the answers, and the call resumes. It runs once and leaves one
record. Paused calls do not survive a restart: the client has to call again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from callpact.errors import ClientUnable
from callpact.execution import start
from callpact.serve.concurrency import CallerSlots
from callpact.serve.mcp.peer import Peer, Question

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

MAX_PAUSED_CALLS = 100
"""Calls that may be paused at one time; for one more, the oldest of the caller with the most ends."""
ANSWER_SECONDS = 300
"""Seconds that a paused call waits for its client's next request."""
MAX_QUESTIONS = 20
"""Questions that one call may ask."""

T = TypeVar("T")


class RoundsPeer(Peer):
    """A client that gets questions as the response to its request."""

    def __init__(
        self, request: ServerRequestContext[Any], answers: Mapping[str, types.InputResponse]
    ) -> None:
        super().__init__(request)
        self._answers = dict(answers)
        self._asked = 0
        self._open: dict[str, tuple[Question, asyncio.Future[types.InputResponse]]] = {}
        self.turn = asyncio.Event()
        """Set when there is a new question, or the call has ended."""

    async def ask(self, question: Question, key: str) -> types.InputResponse:
        """Wait for a request of the client with the answer."""
        self._asked += 1
        if self._asked > MAX_QUESTIONS:
            raise ClientUnable(f"A call may ask {MAX_QUESTIONS} questions, and this one asks more")
        name = key or f"question-{self._asked}"
        if name in self._answers:
            return self._answers.pop(name)
        while name in self._open:
            name = f"{name}-{self._asked}"
        waiting: asyncio.Future[types.InputResponse] = asyncio.get_running_loop().create_future()
        self._open[name] = (question, waiting)
        self.turn.set()
        try:
            return await waiting
        finally:
            self._open.pop(name, None)

    @property
    def questions(self) -> dict[str, Question]:
        """The questions without an answer."""
        return {
            key: question for key, (question, waiting) in self._open.items() if not waiting.done()
        }

    def resume(
        self, request: ServerRequestContext[Any], answers: Mapping[str, types.InputResponse]
    ) -> None:
        """Resume with a new request of the client; questions without an answer stay open."""
        self.request = request
        for key in answers.keys() & self.questions.keys():
            self._open[key][1].set_result(answers[key])


class _PausedCall:
    """A running call, and its client."""

    def __init__(self, peer: RoundsPeer, task: asyncio.Task[Any], owner: str | None) -> None:
        self.peer = peer
        self.task = task
        self.owner = owner
        self.expiry: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
        self.task.cancel()


class InputRounds:
    """Starts and resumes calls, and stores those that are paused."""

    def __init__(self) -> None:
        self._paused: dict[str, _PausedCall] = {}
        self._slots: CallerSlots[str] = CallerSlots(MAX_PAUSED_CALLS)

    def __len__(self) -> int:
        return len(self._paused)

    async def run(
        self,
        request: ServerRequestContext[Any],
        params: types.InputResponseRequestParams,
        begin: Callable[[RoundsPeer], Coroutine[Any, Any, T]],
        owner: str | None = None,
    ) -> T | types.InputRequiredResult:
        """Start a call of an owner or resume one; returns its result, or its questions.

        Raises:
            MCPError: the call to resume has ended.
            BaseException: the call's own exception.
        """
        answers = params.input_responses or {}
        if params.request_state is None:
            peer = RoundsPeer(request, answers)
            task = start(begin(peer))
            task.add_done_callback(partial(_seen, peer))
            waiting = _PausedCall(peer, task, owner)
        else:
            waiting = self._taken(params.request_state)
            waiting.peer.resume(request, answers)
        return await self._turn(waiting)

    def close(self) -> None:
        """End every paused call."""
        for waiting in self._paused.values():
            waiting.end()
        self._paused.clear()

    async def _turn(self, waiting: _PausedCall) -> Any:
        peer, task = waiting.peer, waiting.task
        try:
            while not task.done() and not peer.questions:
                peer.turn.clear()
                await peer.turn.wait()
        except asyncio.CancelledError:  # The client hung up.
            await _ended(task)
            raise
        if task.done():
            return await task
        return types.InputRequiredResult(
            input_requests=dict(peer.questions), request_state=self._kept(waiting)
        )

    def _taken(self, state: str) -> _PausedCall:
        self._slots.leave(state)
        waiting = self._paused.pop(state, None)
        if waiting is None:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message="The call that asked no longer waits for this answer; call the tool again",
            )
        if waiting.expiry is not None:
            waiting.expiry.cancel()
        return waiting

    def _kept(self, waiting: _PausedCall) -> str:
        if self._slots.are_taken:
            victim = self._slots.victim(waiting.owner or "")
            if victim is not None:
                self._expire(victim)
        state = secrets.token_urlsafe(16)
        self._paused[state] = waiting
        self._slots.take(state, waiting.owner or "")
        loop = asyncio.get_running_loop()
        waiting.expiry = loop.call_later(ANSWER_SECONDS, self._expire, state)
        return state

    def _expire(self, state: str) -> None:
        self._slots.leave(state)
        waiting = self._paused.pop(state, None)
        if waiting is not None:
            waiting.end()


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=5)


def _seen(peer: RoundsPeer, task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a call, which is recorded already, so that asyncio does not log it."""
    peer.turn.set()
    if not task.cancelled():
        task.exception()
