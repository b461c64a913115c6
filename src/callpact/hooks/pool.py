"""Hooks from asyncio: calls run on a few threads with large stacks, effects on the event loop.

A call holds one of a bounded number of machines until it ends, also while it waits for effects. A
cancelled call is given up at once; if its code runs just then, its thread is free again when the
time limit of the hook ends it. Not bound to one event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from callpact.hooks.engine import Engine
from callpact.hooks.realm import Pending, Realm, Step
from callpact.hooks.steps import Done, Effect, Failed, Reply
from callpact.hooks.workers import Slots, Workers

if TYPE_CHECKING:
    from callpact.hooks.packs import Pack

Perform = Callable[[Effect], Awaitable[Any]]
"""The host's way to answer an effect: JSON data, or `EffectRefused`."""

MAX_THREADS = 8
"""Hooks that run at the same time; never more than there are processors."""
MAX_CALLS = 32
"""Hook calls under way at the same time, those that wait for effects included; more wait."""


class EffectRefused(Exception):
    """Raised by the host to refuse an effect: the hook sees a TypeError with these words."""


class Pool:
    """The threads for the hooks of one engine, which is closed by whoever made it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._workers = Workers(min(MAX_THREADS, os.cpu_count() or 1))
        self._slots = Slots(MAX_CALLS)

    async def open(
        self, source: str, *, main: str, lists: str, packs: Sequence[Pack] = ()
    ) -> Realm:
        """`Engine.open` on a thread of the pool; the same errors."""
        work = partial(self._engine.open, source, main=main, lists=lists, packs=packs)
        return await self._workers.do(work)

    async def run(
        self, realm: Realm, tool: str, kind: str, argument: str | bytes, perform: Perform
    ) -> Done | Failed:
        """Call a hook; `perform` is awaited for each effect, for several at the same time.

        Raises:
            UsageError: there is no such hook, the argument is not JSON, or the pool is closed.
        """
        await self._slots.take()
        call = _Call(self._slots.give)
        try:
            step = await self._workers.do(
                partial(call.step, partial(realm.begin, tool, kind, argument))
            )
            if isinstance(step, Pending):
                return await self._serve(call, step, perform)
            return step
        finally:
            call.leave()

    async def aclose(self) -> None:
        """Let the threads finish what was asked of them, and end them."""
        await self._workers.close()

    async def _serve(self, call: _Call, step: Pending, perform: Perform) -> Done | Failed:
        open_: set[asyncio.Task[Reply]] = set()
        try:
            while True:
                open_.update(asyncio.ensure_future(_answer(each, perform)) for each in step.effects)
                ended, _ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
                replies = sorted((task.result() for task in ended), key=lambda reply: reply.id)
                open_ -= ended
                following = await self._workers.do(
                    partial(call.step, partial(step.resume, replies))
                )
                if not isinstance(following, Pending):
                    return following
                step = following
        finally:
            # Effects that the hook did not wait for, or that nobody waits for any more.
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

    def step(self, work: Callable[[], Step]) -> Step:
        """Do a step, on a thread; if nobody waits for it any more, the call ends after it."""
        with self._lock:
            if self._is_left:
                raise asyncio.CancelledError
            self._is_busy = True
        try:
            step = work()
            self._waiting = step if isinstance(step, Pending) else None
            return step
        finally:
            with self._lock:
                self._is_busy = False
                is_left = self._is_left
            if is_left:
                self._end()

    def leave(self) -> None:
        """Want nothing more of the call."""
        with self._lock:
            self._is_left = True
            is_busy = self._is_busy
        if not is_busy:
            self._end()

    def _end(self) -> None:
        if self._waiting is not None:
            self._waiting.drop()
        self._release()
