"""Selection of the tools of a source by rule: tags, paths, methods, operations, deprecated.

Pure functions over Tools. Selection by id, with `allow` and `deny`, is the catalog's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from callpact.sources.base import nearest_name
from callpact.tool import Tool

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRules:
    """Rules about tools, each of which fits a tool or not; those that are empty are not asked."""

    tags: Sequence[str] = ()
    paths: Sequence[str] = ()
    methods: Sequence[str] = ()
    operations: Sequence[str] = ()
    """Patterns of operation ids; of a tool without one, of its name without the namespace."""
    deprecated: bool | None = None


_VALUES: dict[str, Callable[[Tool], tuple[str, ...]]] = {
    "tags": lambda tool: tool.tags,
    "paths": lambda tool: (tool.origin.path,) if tool.origin.path else (),
    "methods": lambda tool: (tool.origin.method,) if tool.origin.method else (),
    "operations": lambda tool: (tool.origin.operation or tool.name,),
}
"""The values of a tool that the patterns of a rule are compared with."""


def is_selected(tool: Tool, select: SelectionRules, exclude: SelectionRules) -> bool:
    """True if every rule of `select` fits a tool, and none of `exclude`."""
    return all(_verdicts(tool, select)) and not any(_verdicts(tool, exclude))


def _verdicts(tool: Tool, rules: SelectionRules) -> Iterator[bool]:
    for key, values_of in _VALUES.items():
        patterns: Sequence[str] = getattr(rules, key)
        if patterns:
            values = values_of(tool)
            yield any(fnmatchcase(value, pattern) for value in values for pattern in patterns)
    if rules.deprecated is not None:
        yield tool.origin.deprecated is rules.deprecated


def unmatched_rules(tools: Iterable[Tool], rules: SelectionRules) -> Iterator[tuple[str, str]]:
    """The rules with a pattern that fits none of the tools: the key, and the reason.

    A method that exists may be missing in a source: `exclude` often names it as a precaution.
    """
    every = tuple(tools)
    for key, values_of in _VALUES.items():
        patterns: Sequence[str] = getattr(rules, key)
        known = dict.fromkeys(chain.from_iterable(map(values_of, every))) if patterns else {}
        for pattern in patterns:
            if any(fnmatchcase(value, pattern) for value in known):
                continue
            if not known:
                yield key, f"no tool of the source has {key}, so '{pattern}' fits none"
            elif key != "methods" or pattern not in _METHODS:
                yield key, f"'{pattern}' fits no tool of the source{nearest_name(pattern, known)}"
