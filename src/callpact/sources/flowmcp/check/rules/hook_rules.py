"""Rules for the code of hooks: keys that nothing calls, values that hooks return, and `fetch`.

Only certain breaches are reported; the rest shows when a hook runs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

from callpact.schema.issues.wording import cut
from callpact.sources.flowmcp.read.hit import Hit, Hits, at, members
from callpact.sources.flowmcp.read.literal_parser import line_starts, place_of
from callpact.sources.flowmcp.read.outline import Function, Member, Outline
from callpact.sources.flowmcp.read.references import references

HOOKS = ("preRequest", "executeRequest", "postRequest")
"""The hooks that a tool can have, in the order in which they run."""

_MOST_CODE = 256 * 1024
"""Characters of hook code that are checked, eight times the maximum of real files."""
_EXPORT = re.compile(r"export\s++const\s++handlers\s*+=\s*+")
_THIS = re.compile(r"(?<![\w$.])this(?![\w$])")
_MUST = {
    "preRequest": frozenset({"struct", "payload"}),
    "executeRequest": frozenset({"response"}),
    "postRequest": frozenset({"response"}),
}
_MUST_RETURN = {
    "preRequest": "{ struct, payload }",
    "executeRequest": "{ response }",
    "postRequest": "{ response }",
}
_ENOUGH = {
    "preRequest": frozenset({"struct", "payload"}),
    "executeRequest": frozenset({"response", "struct"}),
    "postRequest": frozenset({"response"}),
}
"""Any one of these is accepted under `compat`."""


def hook_hits(text: str, handlers: int, main: Mapping[str, Any]) -> Hits:
    """Breaches that can be seen in the code of hooks, which begins at an offset of the text."""
    if len(text) - handlers > _MOST_CODE:
        words = f"more than {_MOST_CODE:,} characters of hook code are not looked at"
        place = place_of(line_starts(text), handlers)
        yield Hit("VAL163", "", words, None, *place)
        return
    outline = Outline(text, handlers)
    begin = _EXPORT.match(outline.code)
    if not outline.is_whole or begin is None:
        return
    factory = outline.function_at(begin.end())
    if factory is None:
        return
    starts: list[int] = []
    for hit, offset in _Hooks(outline, main).hits(factory):
        starts = starts or line_starts(text)
        line, column = place_of(starts, handlers + offset)
        yield hit._replace(line=line, column=column)


def owners(main: Mapping[str, Any]) -> Collection[str]:
    """The names that can have hooks."""
    return {**_tools(main), **members(main.get("resources"))}


def key_hit(name: str, known: Collection[str]) -> Hit | None:
    """A hit if a key that `handlers` returns is not a known tool or resource."""
    if name in known:
        return None
    words = f"`handlers` returns '{cut(name)}', which is no tool or resource of the file"
    return Hit("VAL005", "", words, (name, known))


def hook_key_hit(name: str, tool: str, main: Mapping[str, Any]) -> Hit | None:
    """A hit if a key of a tool's hooks is not a kind of hook."""
    if name in HOOKS:
        return None
    words = f"'{cut(name)}' of '{cut(tool)}' is no hook"
    return Hit("VAL161", _path(tool, main), words, (name, HOOKS))


_Placed = tuple[Hit, int]
"""A hit and its offset in the code of the hooks."""


class _Hooks:
    def __init__(self, outline: Outline, main: Mapping[str, Any]) -> None:
        self._outline = outline
        self._code = outline.code
        self._main = main
        self._owners = owners(main)
        self._tools = _tools(main)

    @cached_property
    def _fetched(self) -> list[int]:
        """Offsets of uses of the host's `fetch`."""
        if "fetch" not in self._code:
            return []
        found = references(self._code, {"fetch"})
        return [used.offset for used in found if used.before != "typeof"]

    def hits(self, factory: Function) -> Iterator[_Placed]:
        for literal in self._outline.returned(factory):
            for member in self._outline.members(literal):
                if member.key is None:
                    continue
                hit = key_hit(member.key, self._owners)
                if hit is not None:
                    yield hit, member.offset
                elif member.key in self._tools:
                    yield from self._of_tool(member.key, member)

    def _of_tool(self, tool: str, owner: Member) -> Iterator[_Placed]:
        outline = self._outline
        if owner.is_method or outline.function_at(owner.value) is not None:
            words = f"the hooks of '{cut(tool)}' must be an object, got a function"
            yield Hit("VAL161", _path(tool, self._main), words), owner.offset
            return
        if not outline.object_at(owner.value):
            return
        uses_this = _THIS.search(self._code, owner.value, owner.end) is not None
        for member in outline.members(owner.value):
            if member.key is None:
                continue
            if member.key in _MUST:
                yield from self._of_hook(tool, member.key, member)
            elif not uses_this:
                hit = hook_key_hit(member.key, tool, self._main)
                if hit is not None:
                    yield hit, member.offset

    def _of_hook(self, tool: str, kind: str, hook: Member) -> Iterator[_Placed]:
        find = self._outline.method_at if hook.is_method else self._outline.function_at
        function = find(hook.value)
        if function is None:
            return
        if kind != "executeRequest":
            path = _path(tool, self._main)
            first, last = (bisect_left(self._fetched, edge) for edge in (hook.value, hook.end))
            for offset in self._fetched[first:last]:
                words = f"{kind} of '{cut(tool)}' uses `fetch`"
                yield Hit("SEC100", path, words), offset
        yield from self._of_returns(tool, kind, function)

    def _of_returns(self, tool: str, kind: str, function: Function) -> Iterator[_Placed]:
        path = _path(tool, self._main)
        is_reported = False
        for literal in self._outline.returned(function):
            keys = self._keys(literal)
            if keys is None or _MUST[kind] <= keys:
                continue
            rule = "SEC101" if keys.isdisjoint(_ENOUGH[kind]) else "SEC101:usual"
            if rule == "SEC101:usual":
                if is_reported:  # Such hooks do so at every `return`.
                    continue
                is_reported = True
            came = _shape([*sorted(keys)][:5])
            words = f"{kind} of '{cut(tool)}' must return {_MUST_RETURN[kind]}, it returns {came}"
            yield Hit(rule, path, words), literal

    def _keys(self, literal: int) -> frozenset[str] | None:
        """The keys of an object; None if it may have others."""
        keys: set[str] = set()
        for member in self._outline.members(literal):
            if member.key is None or member.key == "toJSON":
                return None
            keys.add(member.key)
        return frozenset(keys)


def _shape(keys: Collection[str]) -> str:
    return f"{{ {', '.join(map(cut, keys))} }}" if keys else "{}"


def _tools(main: Mapping[str, Any]) -> dict[str, Any]:
    return members(main.get("tools", main.get("routes")))


def _path(tool: str, main: Mapping[str, Any]) -> str:
    return at("/tools" if "tools" in main else "/routes", tool)
