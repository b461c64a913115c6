"""Who may ask an upstream now: so many at one origin, so many in all, so many that wait."""

from __future__ import annotations

import asyncio

from callpact.net.address import Place
from callpact.net.failure import queue_full
from callpact.net.limits import Limits


class _Lane:
    """The turns at one origin."""

    __slots__ = ("turns", "users")

    def __init__(self, turns: int) -> None:
        self.turns = asyncio.Semaphore(turns)
        self.users = 0


class Turns:
    """The turns of one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = asyncio.Semaphore(limits.connections)
        self._lanes: dict[tuple[str, str, int], _Lane] = {}
        self._waiting = 0

    async def take(self, place: Place) -> None:
        """Wait for a turn.

        Raises:
            UpstreamError: too many wait already.
        """
        origin = place.origin
        lane = self._lanes.get(origin)
        if lane is None:
            lane = self._lanes[origin] = _Lane(self._limits.connections_per_host)
        lane.users += 1
        try:
            await self._wait(lane, place.host)
        except BaseException:
            self._leave(lane, place)
            raise

    async def _wait(self, lane: _Lane, host: str) -> None:
        must_wait = lane.turns.locked() or self._all.locked()
        if must_wait and self._waiting >= self._limits.waiting:
            raise queue_full(host, self._limits.waiting)
        self._waiting += must_wait
        try:
            # First the turn at the host: who waits for a slow one must not hold back the others.
            await lane.turns.acquire()
            try:
                await self._all.acquire()
            except BaseException:
                lane.turns.release()
                raise
        finally:
            self._waiting -= must_wait

    def give_back(self, place: Place) -> None:
        """End a turn."""
        lane = self._lanes[place.origin]
        lane.turns.release()
        self._all.release()
        self._leave(lane, place)

    def _leave(self, lane: _Lane, place: Place) -> None:
        lane.users -= 1
        if not lane.users:
            del self._lanes[place.origin]
