"""Fair sharing among callers: a queue and a semaphore that serve callers in turn.

A caller is any hashable key. Both classes know nothing about calls, doors or hooks; nothing here
reads a clock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Crowded(Exception):
    """A waiter was refused because the queue is full and its caller has the most waiters."""


class FairQueue(Generic[T]):
    """Items in the order of their callers' turns; those of one caller are first in, first out.

    Not thread-safe: the owner holds a lock.
    """

    def __init__(self) -> None:
        self._turns: dict[Hashable, deque[T]] = {}  # in the order of the turns
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, caller: Hashable, item: T) -> None:
        """Add an item behind the others of its caller."""
        self._turns.setdefault(caller, deque()).append(item)
        self._count += 1

    def pop(
        self, may_have: Callable[[Hashable], bool] = lambda _: True
    ) -> tuple[Hashable, T] | None:
        """The first item of the next caller in turn; None if no caller may have one."""
        for caller, items in self._turns.items():
            if may_have(caller):
                item = items.popleft()
                self._count -= 1
                del self._turns[caller]
                if items:
                    self._turns[caller] = items  # behind all others
                return caller, item
        return None

    def pop_largest(self) -> T:
        """The oldest item of the caller with the most items.

        Raises:
            ValueError: the queue is empty.
        """
        caller = max(self._turns, key=lambda key: len(self._turns[key]))
        items = self._turns[caller]
        item = items.popleft()
        self._count -= 1
        if not items:
            del self._turns[caller]
        return item

    def discard(self, caller: Hashable, item: T) -> None:
        """Remove an item if it is still in the queue."""
        items = self._turns.get(caller)
        if items is None or item not in items:
            return
        items.remove(item)
        self._count -= 1
        if not items:
            del self._turns[caller]


class FairSlots:
    """A bounded number of slots; callers that wait for one get it in turn.

    A caller has at most `share` of the `count` slots at one time. At most `most_waiting` wait:
    one more, and the oldest waiter of the caller with the most of them is refused. Not bound to
    one event loop.
    """

    def __init__(self, count: int, *, share: int, most_waiting: int) -> None:
        self._free = count
        self._share = share
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._held: Counter[Hashable] = Counter()
        self._waiting: FairQueue[_Waiter] = FairQueue()

    async def take(self, caller: Hashable) -> None:
        """Wait for a slot, which `give` returns.

        Raises:
            Crowded: the queue is full, and this is the oldest waiter of the largest caller.
        """
        with self._lock:
            if self._free and self._may_have(caller):
                self._hold(caller)
                return
            loop = asyncio.get_running_loop()
            waiter = _Waiter(loop, loop.create_future())
            self._waiting.push(caller, waiter)
            refused = (
                self._waiting.pop_largest() if len(self._waiting) > self._most_waiting else None
            )
        if refused is not None:
            refused.call(_refuse, refused.future)
        try:
            await waiter.future
        except asyncio.CancelledError:
            with self._lock:
                self._waiting.discard(caller, waiter)
            if waiter.has_slot:
                self.give(caller)  # The slot was assigned just before the cancellation.
            raise

    def give(self, caller: Hashable) -> None:
        """Return a slot, from any thread."""
        with self._lock:
            self._release(caller)
            while self._free:
                following = self._waiting.pop(self._may_have)
                if following is None:
                    return
                key, waiter = following
                self._hold(key)
                if not waiter.call(self._hand_over, key, waiter):
                    self._release(key)

    def _may_have(self, caller: Hashable) -> bool:
        return self._held[caller] < self._share

    def _hold(self, caller: Hashable) -> None:
        self._free -= 1
        self._held[caller] += 1

    def _release(self, caller: Hashable) -> None:
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]

    def _hand_over(self, caller: Hashable, waiter: _Waiter) -> None:
        if waiter.future.done():
            self.give(caller)
        else:
            waiter.has_slot = True
            waiter.future.set_result(None)


class _Waiter:
    """A task of an event loop that waits for a slot."""

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self._loop = loop
        self.future = future
        self.has_slot = False

    def call(self, function: Callable[..., None], *arguments: object) -> bool:
        """Call a function on the waiter's loop; False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True


def _refuse(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(Crowded())
