"""Hooks for asyncio: calls run on a few threads with large stacks, effects on the event loop.

A call holds one of a bounded number of machines until it ends, also while it waits for effects.
Callers share machines and threads in turn, so that one caller's hooks delay another's by one turn
at most; time in a queue does not count as running time. A cancelled call is given up at once; code
that is running then keeps its thread until the hook's time limit. Not bound to one event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from callpact.errors import Failed
from callpact.sandbox.engine import Engine
from callpact.sandbox.fair_slots import Crowded, FairSlots
from callpact.sandbox.realm import Pending, Realm
from callpact.sandbox.steps import Done, Effect, Reply, StepFailed
from callpact.sandbox.workers import Workers

if TYPE_CHECKING:
    from callpact.sandbox.packs.library import Pack

T = TypeVar("T")

Perform = Callable[[Effect], Awaitable[Any]]
"""An async function of the host that answers an effect with JSON data, or raises `EffectRefused`."""

MAX_THREADS = 8
"""Hooks that run at the same time; never more than there are processors."""
MAX_CALLS = 32
"""Hook calls under way at the same time, those that wait for effects included; more wait."""
MAX_CALLS_OF_ONE = 24
"""Hook calls of one caller under way at the same time; callers without an identity are one caller."""
MAX_WAITING = 4_096
"""Hook calls that wait; one more refuses the oldest of the caller with the most (`overloaded`)."""


class EffectRefused(Exception):
    """Raised by the host to refuse an effect: the hook gets a TypeError with this message."""


class ThreadPool:
    """The threads for the hooks of one engine; the owner of the engine closes it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._workers = Workers(min(MAX_THREADS, os.cpu_count() or 1))
        self._slots = FairSlots(MAX_CALLS, share=MAX_CALLS_OF_ONE, most_waiting=MAX_WAITING)

    async def open(
        self,
        source: str,
        *,
        main: str,
        lists: str,
        packs: Sequence[Pack] = (),
        modules: Sequence[str] = (),
        caller: Hashable = None,
    ) -> Realm:
        """`Engine.open` on a thread of the pool, in the turn of a caller; the same errors.

        Raises:
            CallError: `overloaded`, as for `run`.
        """
        work = partial(
            self._engine.open, source, main=main, lists=lists, packs=packs, modules=modules
        )
        await self._take_slot(caller)
        call = _Call(partial(self._slots.give, caller))
        try:
            return await self._workers.do(partial(call.step, work), caller)
        finally:
            call.leave()

    async def run(
        self,
        realm: Realm,
        tool: str,
        kind: str,
        argument: str | bytes,
        perform: Perform,
        *,
        caller: Hashable = None,
    ) -> Done | StepFailed:
        """Call a hook; `perform` is awaited for each effect, for several at the same time.

        Raises:
            CallError: `overloaded`: too many calls wait, and this caller has the most of them.
            UsageError: there is no such hook, the argument is not JSON, or the pool is closed.
        """
        await self._take_slot(caller)
        call = _Call(partial(self._slots.give, caller))
        try:
            step = await self._workers.do(
                partial(call.step, partial(realm.begin, tool, kind, argument)), caller
            )
            if isinstance(step, Pending):
                return await self._serve(call, step, perform, caller)
            return step
        finally:
            call.leave()

    async def _take_slot(self, caller: Hashable) -> None:
        try:
            await self._slots.take(caller)
        except Crowded:
            raise Failed(
                "overloaded",
                f"{MAX_WAITING:,} hook calls wait already, most of them yours; "
                "try again when some of them have ended",
            ) from None

    async def aclose(self) -> None:
        """Let the threads finish their queued work, and end them."""
        await self._workers.close()

    async def _serve(
        self, call: _Call, step: Pending, perform: Perform, caller: Hashable
    ) -> Done | StepFailed:
        open_: set[asyncio.Task[Reply]] = set()
        try:
            while True:
                open_.update(asyncio.ensure_future(_answer(each, perform)) for each in step.effects)
                ended, _ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
                replies = sorted((task.result() for task in ended), key=lambda reply: reply.id)
                open_ -= ended
                following = await self._workers.do(
                    partial(call.step, partial(step.resume, replies)), caller
                )
                if not isinstance(following, Pending):
                    return following
                step = following
        finally:
            # Effects that the hook did not await, or whose call has ended.
            for task in open_:
                task.cancel()
            await asyncio.gather(*open_, return_exceptions=True)


async def _answer(effect: Effect, perform: Perform) -> Reply:
    try:
        return Reply(effect.id, await perform(effect))
    except EffectRefused as refused:
        return Reply(effect.id, refusal=str(refused))


class _Call:
    """One call from both sides: the loop may leave it while a thread works on it."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.Lock()
        self._is_busy = False
        self._is_left = False
        self._waiting: Pending | None = None

    def step(self, work: Callable[[], T]) -> T:
        """Run a step on a thread; if its caller is gone, the call ends after it."""
        with self._lock:
            if self._is_left:
                raise asyncio.CancelledError
            self._is_busy = True
        try:
            result = work()
            self._waiting = result if isinstance(result, Pending) else None
            return result
        finally:
            with self._lock:
                self._is_busy = False
                is_left = self._is_left
            if is_left:
                self._end()

    def leave(self) -> None:
        """Abandon the call."""
        with self._lock:
            self._is_left = True
            is_busy = self._is_busy
        if not is_busy:
            self._end()

    def _end(self) -> None:
        if self._waiting is not None:
            self._waiting.drop()
        self._release()
