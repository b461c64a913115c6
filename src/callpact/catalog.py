"""An immutable collection of tools, found by id, wire name or alias; every name is unique.

It also holds resources by address, and prompts by name.
"""

from __future__ import annotations

import difflib
import fnmatch
import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

from callpact.errors import DuplicateTool, InvalidTool, UnknownTool
from callpact.resources import Prompt, Resource
from callpact.tool import Policy, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OfferT = TypeVar("OfferT", Resource, Prompt)
_COMPARED = 200
"""Names that an unknown name is compared with in full."""


class Catalog:
    """The tools that can be called, the resources that can be read, the prompts to begin with.

    Raises:
        DuplicateTool: two tools share an id, a wire name or an alias, two resources an address, or
            two prompts a name; both sources are named.
        InvalidTool: something in an iterable is not a Tool, a Resource, a Prompt.
    """

    __slots__ = ("_names", "_tools", "prompts", "resources")

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        resources: Iterable[Resource] = (),
        prompts: Iterable[Prompt] = (),
        policy: Policy | None = None,
    ) -> None:
        if not isinstance(cast("Any", tools), Iterable):
            raise InvalidTool(f"a catalog takes a list of Tools, got {type(tools).__name__}")
        by_id: dict[str, Tool] = {}
        names: dict[str, Tool] = {}
        for tool in tools:
            if not isinstance(cast("Any", tool), Tool):
                raise InvalidTool(
                    f"a catalog holds Tools, got {type(tool).__name__}; "
                    "functions become Tools with from_functions(...)"
                )
            for name in (tool.id, tool.wire_name, *tool.aliases):
                if name in tool.former:
                    continue
                other = names.setdefault(name, tool)
                if other is not tool:
                    raise DuplicateTool(name, _label(other), _label(tool))
            by_id[tool.id] = tool
        _name_formerly(by_id, names)
        if policy is not None:
            by_id = {tool.id: _with_policy(tool, policy) for tool in by_id.values()}
            names = {name: by_id[tool.id] for name, tool in names.items()}
        self._tools = by_id
        self._names = names
        self.resources = _distinct(resources, Resource, "resource", lambda offer: offer.uri)
        self.prompts = _distinct(prompts, Prompt, "prompt", lambda offer: offer.tool.wire_name)

    def find(
        self,
        name: str,
        *,
        suggested: Callable[[Tool], bool] | None = None,
        uses_wire_names: bool = False,
    ) -> Tool:
        """The tool of this id, wire name or alias.

        Raises:
            UnknownTool: with the nearest ids, or wire names, of tools that may be `suggested`.
        """
        try:
            return self._names[name]
        except (KeyError, TypeError):
            text = str(name)[:100]
            tools = self if suggested is None else filter(suggested, self)
            names = [tool.wire_name if uses_wire_names else tool.id for tool in tools]
            raise UnknownTool(text, _nearest(text, names)) from None

    def get(self, name: str) -> Tool | None:
        """The tool of this id, wire name or alias, or None."""
        try:
            return self._names.get(name)
        except TypeError:  # Not hashable.
            return None

    def namespace_of(self, name: str) -> str:
        """The namespace of the tool of this name; without such a tool, the first part of the name."""
        tool = self.get(name)  # An alias may name another namespace than its tool is in.
        return str(name).partition(".")[0] if tool is None else tool.namespace

    def select(self, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Catalog:
        """The tools whose id fits one of the `allow` patterns (all, if none) and no `deny`."""
        allowed, denied = _patterns(allow), _patterns(deny)

        def is_selected(tool: Tool) -> bool:
            return (not allowed or _fits(tool.id, allowed)) and not _fits(tool.id, denied)

        return Catalog(
            filter(is_selected, self),
            resources=(offer for offer in self.resources if is_selected(offer.tool)),
            prompts=(offer for offer in self.prompts if is_selected(offer.tool)),
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every namespace, in order."""
        return tuple(dict.fromkeys(tool.namespace for tool in self))

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names

    def __or__(self, other: Catalog) -> Catalog:
        return joined((self, other))

    def __repr__(self) -> str:
        return f"Catalog({len(self)} tools: {', '.join(list(self._tools)[:5])}{', …' if len(self) > 5 else ''})"


def joined(catalogs: Iterable[Catalog]) -> Catalog:
    """One catalog with the tools, resources and prompts of several.

    Raises:
        DuplicateTool: two of them share a name.
    """
    parts = tuple(catalogs)
    return Catalog(
        chain.from_iterable(parts),
        resources=chain.from_iterable(part.resources for part in parts),
        prompts=chain.from_iterable(part.prompts for part in parts),
    )


def _distinct(
    offers: Iterable[OfferT], kind: type[OfferT], what: str, name_of: Callable[[OfferT], str]
) -> tuple[OfferT, ...]:
    named: dict[str, OfferT] = {}
    for offer in offers:
        if not isinstance(cast("Any", offer), kind):
            raise InvalidTool(
                f"a catalog's {what}s are {kind.__name__}s, got {type(offer).__name__}"
            )
        other = named.setdefault(name_of(offer), offer)
        if other is not offer:
            raise DuplicateTool(name_of(offer), _label(other.tool), _label(offer.tool))
    return tuple(named.values())


def _name_formerly(by_id: dict[str, Tool], names: dict[str, Tool]) -> None:
    """Add the former names of tools; what another tool is called, or was called too, is dropped."""
    renamed = [tool for tool in by_id.values() if tool.former]
    claims = Counter(name for tool in renamed for name in tool.former)
    for tool in renamed:
        taken = {name for name in tool.former if name in names or claims[name] > 1}
        if taken:
            own = {name for name, held in names.items() if held is tool}
            aliases, former = (
                tuple(name for name in given if name not in taken)
                for given in (tool.aliases, tool.former)
            )
            tool = by_id[tool.id] = replace(tool, aliases=aliases, former=former)  # noqa: PLW2901 - the same without names
            names |= dict.fromkeys(own, tool)
        names |= dict.fromkeys(tool.former, tool)


def _with_policy(tool: Tool, policy: Policy) -> Tool:
    return replace(tool, contract=tool.contract.with_policy(policy))


def _nearest(name: str, names: list[str]) -> list[str]:
    if len(names) > _COMPARED:
        # difflib takes 40 µs per name: compare only those that share the most trigrams.
        parts = {name[i : i + 3] for i in range(min(len(name), 40) - 2)}
        names = heapq.nlargest(
            _COMPARED, names, key=lambda known: sum(part in known for part in parts)
        )
    return difflib.get_close_matches(name, names, n=3, cutoff=0.6)


def _patterns(given: Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _label(tool: Tool) -> str:
    return f"{tool.source} ('{tool.id}')"
