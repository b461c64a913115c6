"""Sending what is meant for one root to another address."""

from __future__ import annotations

from collections.abc import Mapping

from callpact.errors import InvalidConfig
from callpact.net.address import Place, Refused, place_of


class Upstreams:
    """A mapping of roots: `{"https://api.example.com": "http://localhost:8123"}`.

    The longest root that fits at a whole segment decides.

    Raises:
        InvalidConfig: a root that is no URL, or has a query.
    """

    def __init__(self, roots: Mapping[str, str]) -> None:
        pairs = [(_root(given), _root(instead)) for given, instead in roots.items()]
        self._pairs = sorted(pairs, key=lambda pair: len(pair[0].tail), reverse=True)

    @property
    def hosts(self) -> list[str]:
        """What must be allowed for the mapping to work."""
        return [f"{f'[{p.host}]' if ':' in p.host else p.host}:{p.port}" for _, p in self._pairs]

    def instead_of(self, place: Place) -> Place:
        """Where a request that is meant for a place really goes."""
        for root, instead in self._pairs:
            if root.origin == place.origin and _is_under(place.tail, root.tail):
                tail = instead.tail + place.tail[len(root.tail) :]
                tail = tail if tail.startswith("/") else f"/{tail}"
                return Place(instead.scheme, instead.host, instead.port, tail)
        return place


def _root(url: str) -> Place:
    try:
        place = place_of(url)
    except Refused as refused:
        where = f"the root at '{refused.host}'" if refused.host else "a root"
        raise InvalidConfig(f"upstreams: {where} cannot be used: {refused.why}") from None
    if "?" in place.tail:
        raise InvalidConfig(f"upstreams: the root at '{place.host}' must not have a query")
    return Place(place.scheme, place.host, place.port, place.tail.rstrip("/"))


def _is_under(tail: str, root: str) -> bool:
    return tail.startswith(root) and tail[len(root) : len(root) + 1] in {"", "/", "?"}
