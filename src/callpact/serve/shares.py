"""Places that callers share: when all are taken, the caller that holds the most gives one up.

So one caller cannot lock out others by taking all places, and a caller at its share loses its own
oldest place, never another's. It knows nothing of what a place is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shares(Generic[T]):
    """Up to `most` places, each held by a caller."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, dict[T, None]] = {}
        """Of each caller, the place that was used longest ago first."""
        self._callers: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._callers)

    def __contains__(self, place: object) -> bool:
        return place in self._callers

    @property
    def are_taken(self) -> bool:
        """True if somebody has to give up a place before another can be taken."""
        return len(self._callers) >= self._most

    def take(self, place: T, caller: str) -> None:
        """Hold a place for a caller."""
        self._callers[place] = caller
        self._held.setdefault(caller, {})[place] = None

    def use(self, place: T) -> None:
        """Count a place as used just now."""
        caller = self._callers.get(place)
        if caller is not None:
            held = self._held[caller]
            held[place] = held.pop(place)

    def leave(self, place: T) -> None:
        """Give up a place."""
        caller = self._callers.pop(place, None)
        if caller is not None:
            held = self._held[caller]
            del held[place]
            if not held:
                del self._held[caller]

    def victim(self, caller: str, is_idle: Callable[[T], bool] = lambda _: True) -> T | None:
        """The place to be given up for one more of this caller's: the oldest that is idle.

        It is of the caller that holds the most, and of this one where it holds as many. A place
        that is not idle is taken from another alone; None if there is no such place.
        """
        most = max(self._held, key=lambda one: (len(self._held[one]), one == caller))
        held = self._held[most]
        found = next(filter(is_idle, held), None)
        if found is None and most != caller:
            return next(iter(held))
        return found
