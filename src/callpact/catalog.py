"""An immutable collection of tools: found by id, wire name or alias; never two under one name."""

from __future__ import annotations

import difflib
import fnmatch
from typing import TYPE_CHECKING, Any, cast

from callpact.errors import DuplicateTool, InvalidTool, UnknownTool
from callpact.tool import Policy, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Catalog:
    """The tools that can be called.

    Raises:
        DuplicateTool: two tools share an id, a wire name or an alias; both sources are named.
        InvalidTool: something in the iterable is not a Tool.
    """

    __slots__ = ("_names", "_tools")

    def __init__(self, tools: Iterable[Tool] = (), *, policy: Policy | None = None) -> None:
        by_id: dict[str, Tool] = {}
        names: dict[str, Tool] = {}
        for given in tools:
            if not isinstance(cast("Any", given), Tool):
                raise InvalidTool(
                    f"a catalog holds Tools, got {type(given).__name__}; "
                    "functions become Tools with from_functions(...)"
                )
            tool = given if policy is None else _with_policy(given, policy)
            for name in {tool.id, tool.wire_name, *tool.aliases}:
                other = names.setdefault(name, tool)
                if other is not tool:
                    raise DuplicateTool(name, _told(other), _told(tool))
            by_id[tool.id] = tool
        self._tools = by_id
        self._names = names

    def find(self, name: str) -> Tool:
        """The tool of this id, wire name or alias.

        Raises:
            UnknownTool: with the nearest names.
        """
        try:
            return self._names[name]
        except (KeyError, TypeError):
            near = difflib.get_close_matches(str(name)[:100], self._tools, n=3, cutoff=0.6)
            raise UnknownTool(str(name)[:100], near) from None

    def select(self, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Catalog:
        """The tools whose id fits one of the `allow` patterns (all, if none) and no `deny`."""
        allowed, denied = tuple(allow), tuple(deny)
        return Catalog(
            tool
            for tool in self
            if (not allowed or _fits(tool.id, allowed)) and not _fits(tool.id, denied)
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
        return name in self._names

    def __or__(self, other: Catalog) -> Catalog:
        return Catalog((*self, *other))

    def __repr__(self) -> str:
        return f"Catalog({len(self)} tools: {', '.join(list(self._tools)[:5])}{', …' if len(self) > 5 else ''})"


def _with_policy(tool: Tool, policy: Policy) -> Tool:
    from dataclasses import replace

    return replace(tool, contract=tool.contract.with_policy(policy))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _told(tool: Tool) -> str:
    return f"{tool.source} ('{tool.id}')"
