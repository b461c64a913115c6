"""Limits that callers share: slots for connections, sessions and streams, and concurrent calls.

Both count by caller: the subject of a token, or else the peer address. (The rights of a caller are
its identity's, not this key's.) No caller can starve another: slots are evicted from the caller
that holds the most, and one caller gets at most half of the calls of a tool.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import Callable, Generator, Hashable, MutableMapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from callpact.tool import Disabled

CALLS_PER_TOOL = 1_000
"""Concurrent calls of one tool over a door; one of several callers gets at most half."""
CALLS_PER_CALLER = 1_000
"""Concurrent calls of one caller over a door. Without a token, a caller is an address; over stdio
there is one caller."""

KeyT = TypeVar("KeyT", bound=Hashable)
T = TypeVar("T")

_CALLER = "callpact.caller"


# --- callers --------------------------------------------------------------------------------


def caller_of(scope: MutableMapping[str, Any]) -> str:
    """Return the key of a request's caller, computed once and cached in the scope.

    The subject of an issuer's token and a static token of the same name are different callers.
    """
    known: str | None = scope.get(_CALLER)
    if known is None:
        known = scope[_CALLER] = _caller(scope)
    return known


def _caller(scope: MutableMapping[str, Any]) -> str:
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        token = user.access_token
        return f"token {(token.claims or {}).get('iss', '')} {token.subject}"
    return f"peer {peer_of(scope.get('client'))}"


def peer_of(client: tuple[str, int] | None) -> str:
    """Return the address of a peer; for IPv6 the /64 network, which one host may own whole."""
    return _network_of("" if client is None else client[0])


@lru_cache(1024)
def _network_of(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


# --- slots ----------------------------------------------------------------------------------


class CallerSlots(Generic[T]):
    """Up to `most` slots, each held by a caller; `victim` selects the slot to evict."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, dict[T, None]] = {}
        """The slots of each caller, least recently used first."""
        self._callers: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._callers)

    def __contains__(self, place: object) -> bool:
        return place in self._callers

    @property
    def are_taken(self) -> bool:
        """True if a slot has to be evicted before another can be taken."""
        return len(self._callers) >= self._most

    def take(self, place: T, caller: str) -> None:
        """Assign a slot to a caller."""
        self._callers[place] = caller
        self._held.setdefault(caller, {})[place] = None

    def use(self, place: T) -> None:
        """Mark a slot as most recently used."""
        caller = self._callers.get(place)
        if caller is not None:
            held = self._held[caller]
            held[place] = held.pop(place)

    def leave(self, place: T) -> None:
        """Release a slot."""
        caller = self._callers.pop(place, None)
        if caller is not None:
            held = self._held[caller]
            del held[place]
            if not held:
                del self._held[caller]

    def victim(self, caller: str, is_idle: Callable[[T], bool] = lambda _: True) -> T | None:
        """Return the slot to evict in favour of this caller: the oldest idle one.

        It belongs to the caller that holds the most slots, at a tie to this one. A slot that is
        not idle is evicted only from another caller; None if there is no such slot.
        """
        most = max(self._held, key=lambda one: (len(self._held[one]), one == caller))
        held = self._held[most]
        found = next(filter(is_idle, held), None)
        if found is None and most != caller:
            return next(iter(held))
        return found


# --- calls ----------------------------------------------------------------------------------


class RunningCalls:
    """The concurrent calls, counted by tool, by caller, and by caller of one tool.

    A caller may have at most as many calls of a tool as slots of the tool are free: half of them.
    """

    def __init__(self, per_tool: int, per_caller: int) -> None:
        self._per_tool = per_tool
        self._per_caller = per_caller
        self._tools: Counter[str] = Counter()
        self._callers: Counter[str | None] = Counter()
        self._shares: Counter[tuple[str, str]] = Counter()

    @contextlib.contextmanager
    def entered(self, tool_id: str, caller: str | None) -> Generator[Disabled | None]:
        """Count a call while it runs; yields the reason for a refusal if there are too many.

        Without a caller key the door has only one caller, which may use all slots.
        """
        if self._tools[tool_id] >= self._per_tool:
            yield _too_many(f"{self._per_tool:,} calls of '{tool_id}' run already")
            return
        if self._callers[caller] >= self._per_caller:
            yield _too_many(f"{self._per_caller:,} calls of yours run already")
            return
        share = None if caller is None else (tool_id, caller)
        free = self._per_tool - self._tools[tool_id]
        if share is not None and 0 < self._shares[share] >= free:
            yield _too_many(f"{self._shares[share]:,} calls of '{tool_id}' of yours run already")
            return
        self._count(tool_id, caller, 1)
        try:
            yield None
        finally:
            self._count(tool_id, caller, -1)

    def _count(self, tool_id: str, caller: str | None, by: int) -> None:
        _add(self._tools, tool_id, by)
        _add(self._callers, caller, by)
        if caller is not None:
            _add(self._shares, (tool_id, caller), by)


def _add(counts: Counter[KeyT], key: KeyT, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]


def _too_many(reason: str) -> Disabled:
    return Disabled("overloaded", f"{reason}; try again when one of them has ended")
