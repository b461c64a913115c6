"""Safe retries: a call that is repeated with its idempotency key gets the recorded answer.

A key is claimed before the tool runs, and its answer recorded after it, before the caller is
answered. If the process dies in between, the outcome is unknown: a repeated call is refused, not run
again. A call that was rejected before its handler ran releases the key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from callpact.envelope import HTTPResponseMeta, ResponseEnvelope, encode_json
from callpact.errors import CallError, CallpactError, Failed, Issue, NotJson, Rejected, restored
from callpact.schema.bounds import with_room
from callpact.schema.json_text import sendable
from callpact.serve.answer_store import AnswerKey, AnswerStore, Claim, ClaimState

MAX_KEY_LENGTH = 255
"""Characters of an idempotency key."""
GRACE_MS = 5_000
"""Milliseconds after its deadline for which a call with an idempotency key counts as running."""
ENDING_SECONDS = 5.0
"""Seconds that calls with an idempotency key have when the server stops."""
_KEY = re.compile(r"[!-~]+")
_log = logging.getLogger("callpact.serve")


class CallOutcome(Struct, frozen=True):
    """The envelope or the error of a call, and whether it was recorded by an earlier one."""

    envelope: ResponseEnvelope[Any] | None = None
    error: CallError | None = None
    is_replayed: bool = False

    def unwrap(self) -> ResponseEnvelope[Any]:
        """Return the envelope.

        Raises:
            CallError: the call failed.
        """
        if self.envelope is None:
            raise self.error or AssertionError("an outcome has an envelope or an error")
        return self.envelope


def check_key(given: Any) -> str:
    """Return a key as text; the quotes of a structured header are removed.

    Raises:
        Rejected: it is not 1 to 255 visible ASCII characters.
    """
    key = given
    if isinstance(key, str) and len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise Rejected(
            "idempotency_key_invalid",
            f"An idempotency key has 1 to {MAX_KEY_LENGTH} visible ASCII characters, such as a UUID",
        )
    return key


def key_of(caller: str, tool_id: str, key: str, arguments: Any) -> AnswerKey:
    """Return the digests of a call: equal arguments are equal in any order of their keys."""
    try:
        text = with_room(lambda: json.dumps(arguments, sort_keys=True, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError):
        raise Rejected("idempotency_key_invalid", "The arguments are not JSON") from None
    return AnswerKey.of(caller, tool_id, key, text.encode())


class IdempotentCalls:
    """Runs calls with a key once; they go on if their client disconnects, for its retry."""

    def __init__(self, store: AnswerStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[CallOutcome]] = set()

    async def run(
        self,
        key: AnswerKey,
        deadline: float,
        work: Callable[[], Awaitable[ResponseEnvelope[Any]]],
        has_begun: Callable[[], bool],
    ) -> CallOutcome:
        """Run a call, or return its recorded outcome; `has_begun` is true once its handler ran.

        Raises:
            CallError: the key is in use, was used with other arguments, or cannot be recorded.
        """
        try:
            claim = await asyncio.to_thread(self._store.claim, key, deadline + GRACE_MS)
        except CallpactError as error:
            _log.error("the store of idempotency keys cannot be used: %s", error)
            raise Failed(
                "idempotency_not_recorded",
                "The idempotency key cannot be recorded; nothing was run",
            ) from None
        if claim.state is not ClaimState.NEW:
            return _recorded(claim)
        task = asyncio.ensure_future(self._claimed(key, work, has_begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait some seconds for running calls, then cancel them; close the store."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING_SECONDS)
            for task in self._tasks:
                task.cancel()
        self._store.close()

    async def _claimed(
        self,
        key: AnswerKey,
        work: Callable[[], Awaitable[ResponseEnvelope[Any]]],
        has_begun: Callable[[], bool],
    ) -> CallOutcome:
        try:
            outcome = CallOutcome(await work())
        except CallError as error:
            outcome = CallOutcome(error=error)
        try:
            if has_begun():
                await asyncio.to_thread(self._store.finish, key, _encode(outcome))
            else:
                await asyncio.to_thread(self._store.release, key)
        except CallpactError as error:
            # The caller gets its answer; a repeated call is refused.
            _log.error("the answer for an idempotency key cannot be recorded: %s", error)
        return outcome


def _recorded(claim: Claim) -> CallOutcome:
    """Return the recorded outcome of a key.

    Raises:
        CallError: there is none, with the reason.
    """
    if claim.state is ClaimState.ANSWERED:
        try:
            return _decode(claim.answer)
        except (CallpactError, msgspec.DecodeError, KeyError, TypeError):
            raise _unavailable("the first call with this key ran; its record is damaged") from None
    if claim.state is ClaimState.REUSED:
        raise Rejected(
            "idempotency_key_reused",
            "This idempotency key was used with other arguments; a new call needs a new key",
        )
    if claim.state is ClaimState.RUNNING:
        raise Rejected(
            "idempotency_key_in_use", "The first call with this key still runs; try again later"
        )
    if claim.state is ClaimState.TOO_LARGE:
        raise _unavailable("the first call with this key ran; its answer was too large to be kept")
    raise _unavailable("the first call with this key was interrupted, and may have run")


def _unavailable(reason: str) -> CallError:
    text = f"Nothing was run: {reason}; check its effect, and use a new key for a new call"
    return Rejected("idempotency_answer_unavailable", text)


def _encode(outcome: CallOutcome) -> bytes:
    envelope, error = outcome.envelope, outcome.error
    if envelope is not None:
        meta = envelope.meta
        if isinstance(meta, HTTPResponseMeta):
            envelope = msgspec.structs.replace(
                envelope, meta=msgspec.structs.replace(meta, set_cookie=None)
            )
        try:
            return b'{"envelope":%b}' % envelope.to_json(details=True)
        except NotJson as not_json:
            error = not_json
    if error is None:
        raise AssertionError("an outcome has an envelope or an error")
    wire = {
        "code": error.code,
        "message": error.message,
        "path": error.path,
        "issues": msgspec.to_builtins(list(error.issues)),
        "details": error.details,
    }
    return encode_json({"error": sendable(wire)})


def _decode(answer: bytes) -> CallOutcome:
    wire: dict[str, Any] = with_room(lambda: msgspec.json.decode(answer))
    if "envelope" in wire:
        return CallOutcome(ResponseEnvelope.from_wire(wire["envelope"]), is_replayed=True)
    held: Mapping[str, Any] = wire["error"]
    error = restored(
        held["code"],
        held["message"],
        path=held["path"],
        issues=msgspec.convert(held["issues"], list[Issue]),
        details=held["details"],
    )
    return CallOutcome(error=error, is_replayed=True)
