"""Fixes of FlowMCP files: `schemaVersion`, `schemaHash`, and `tools` for `routes`.

The text is edited in place: comments, quotes, indentation and line endings stay as they are. The
edited text is read back before it is written, and a file is replaced in one step. A file that
cannot be read as data is not changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from callpact.errors import CallpactError, InvalidManifest, InvalidSchema
from callpact.folders import replace_file
from callpact.schema import schema_hash
from callpact.sources.flowmcp.read.catalogue_files import read_text
from callpact.sources.flowmcp.read.exports import FileReading, read_schema_file
from callpact.sources.flowmcp.read.literal_parser import (
    LINE_END,
    NAME,
    STRINGS,
    TRIVIA,
    Found,
    read_carefully,
)
from callpact.sources.flowmcp.read.scan import blank

FIRST_VERSION = "1.0.0"
"""The `schemaVersion` of a file that had none (seed 002: migrated schemas start with it)."""

_OLDER = re.compile(r"[12]\.")
_ANCHORS = ("version", "description", "name", "namespace")
_LINE_REST = re.compile(
    r"[ \t]*+,[ \t]*+"
    r"(?>(?:/\*(?>(?:[^*\n\r\u2028\u2029]++|\*(?!/))*)\*/[ \t]*+)*)(?://[^\n\r\u2028\u2029]*+)?"
    r"(\r\n|[\n\r\u2028\u2029])"
)
_INTEGER = re.compile(r"[0-9]++")
_COLON = re.compile(r"[ \t]?:[ \t]?\Z")
# A hook that reads `main.routes` would break.
_READ_BY_HOOKS = re.compile(r"(?<![\w$.])main\s*+(?:\?\.|\.)\s*+routes(?![\w$])")


class Fix(Struct, frozen=True):
    """A fixed text, the changes, and the reason if it could not be fixed."""

    text: str
    changes: tuple[str, ...] = ()
    refused: str = ""


class NotWritten(CallpactError):
    """A fixed file could not be written."""


class _Member(NamedTuple):
    """A member of an object in the text: offsets of its key and of its value."""

    key: int
    key_end: int
    value: int
    value_end: int


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str


def fix_text(text: str) -> Fix:
    """Fix the text of a schema file; a text that needs no fix is returned unchanged."""
    reading = read_schema_file(text)
    main = reading.data
    if main is None:
        return Fix(text)
    version = main.get("version")
    if isinstance(version, str) and _OLDER.match(version):
        return Fix(text, refused=f"nothing converts FlowMCP {version[0]} by itself")
    wanted = dict(main)
    refused = ""
    if "routes" in main and "tools" not in main:
        if _is_read_by_hooks(text, reading):
            refused = "a hook reads `main.routes`: rename `routes` to `tools` in both places"
        else:
            wanted = {"tools" if key == "routes" else key: main[key] for key in main}
    wanted.setdefault("schemaVersion", FIRST_VERSION)
    try:
        wanted["schemaHash"] = schema_hash(wanted)
    except InvalidSchema as error:
        return Fix(text, refused=f"there is no hash of it: {error}")
    if wanted == main:
        return Fix(text, refused=refused)
    fixed = _edited(text, reading, main, wanted)
    if fixed is None or not _says(fixed.text, wanted, text, reading):
        return Fix(text, refused="its data cannot be edited; a key may occur in it twice")
    return Fix(fixed.text, fixed.changes, refused)


def fix_file(path: Path) -> Fix:
    """Fix a file in place; it is written only if something changes.

    Raises:
        NotWritten: the file could not be replaced; it is unchanged.
    """
    try:
        text = read_text(path)
    except InvalidManifest:
        return Fix("")
    fix = fix_text(text)
    if fix.changes:
        try:
            replace_file(path.resolve(), fix.text.encode())
        except OSError as error:
            raise NotWritten(f"{path} cannot be written: {error.strerror or error}") from None
    return fix


def _is_read_by_hooks(text: str, reading: FileReading) -> bool:
    if reading.handlers is None:
        return False
    return _READ_BY_HOOKS.search(blank(text[reading.handlers :])) is not None


def _says(fixed: str, wanted: dict[str, Any], before: str, reading: FileReading) -> bool:
    """True if a fixed text has the wanted data and the same code as before."""
    again = read_schema_file(fixed)
    if again.data != wanted or (again.handlers is None) != (reading.handlers is None):
        return False
    return reading.handlers is None or fixed[again.handlers :] == before[reading.handlers :]


def _edited(
    text: str, reading: FileReading, main: dict[str, Any], wanted: dict[str, Any]
) -> Fix | None:
    try:
        places = _Places(text, read_carefully(text), reading)
    except InvalidManifest:
        return None
    edits: list[_Edit] = []
    changes: list[str] = []
    missing: dict[str, str] = {}
    if "routes" in main and "routes" not in wanted:
        routes = places.member("routes") or places.member("routes", is_beside=True)
        if routes is None:
            return None
        quote = places.quote(routes.key)
        edits.append(_Edit(routes.key, routes.key_end, f"{quote}tools{quote}"))
        changes.append("`routes` is called `tools`")
    if "schemaVersion" not in main:
        missing["schemaVersion"] = FIRST_VERSION
        changes.append(f"`schemaVersion` is '{FIRST_VERSION}'")
    new = wanted["schemaHash"]
    if "schemaHash" not in main:
        missing["schemaHash"] = new
        changes.append(f"`schemaHash` is '{new}'")
    elif main["schemaHash"] != new:
        declared = places.member("schemaHash")
        if declared is None:
            return None
        quote = places.quote(declared.value) or "'"
        edits.append(_Edit(declared.value, declared.value_end, f"{quote}{new}{quote}"))
        changes.append(f"`schemaHash` is '{new}'")
    if missing:
        edits.append(places.insertion(missing))
    for edit in sorted(edits, reverse=True):
        text = text[: edit.begin] + edit.text + text[edit.end :]
    return Fix(text, tuple(changes))


class _Places:
    """The positions of the members of `main` in the text, and how they are written."""

    def __init__(self, text: str, found: Found, reading: FileReading) -> None:
        self._text = text
        self._offsets = found.places
        self._prefix = reading.prefix
        main = found.values[reading.export]
        # With `export const main = schema` the offsets are those of `schema`, which comes first.
        self._export = next(name for name in found.values if found.values[name] is main)

    def member(self, key: str, *, is_beside: bool = False) -> _Member | None:
        """A member of `main`, or a member of `schema` beside `main` that was lifted into it."""
        prefix = "" if is_beside else self._prefix
        offset = self._offsets.get((self._export, f"{prefix}/{key}"))
        return None if offset is None else self._measured(offset)

    def quote(self, offset: int) -> str:
        first = self._text[offset]
        return first if first in STRINGS else ""

    def insertion(self, members: dict[str, str]) -> _Edit:
        """An edit that adds members in the style of their neighbours, in the order of seed 002."""
        anchors = ("schemaVersion", *_ANCHORS, *self._keys())
        found = (self.member(key) for key in anchors)
        anchor = next((member for member in found if member is not None), None)
        if anchor is None:
            brace = self._offsets[self._export, self._prefix]
            begin = self._text.index("{", brace) + 1
            return _Edit(begin, begin, f" {', '.join(_written(members, '', ': ', _QUOTE))} ")
        written = _written(
            members,
            self.quote(anchor.key),
            self._colon(anchor),
            self.quote(anchor.value) or _QUOTE,
        )
        start, line_end = self._line_of(anchor.key)
        indent = self._text[start : anchor.key]
        is_first = not indent.strip(" \t")
        rest = _LINE_REST.match(self._text, anchor.value_end)
        if is_first and rest is not None:
            lines = "".join(f"{indent}{member},{rest[1]}" for member in written)
            return _Edit(rest.end(), rest.end(), lines)
        follows = self._text[_skipped(self._text, anchor.value_end) :]
        if is_first and not follows.startswith(","):
            between = f"{line_end}{indent}"
        else:
            between = "" if follows.startswith(",") and not follows[1:2].isspace() else " "
        added = "".join(f",{between}{member}" for member in written)
        return _Edit(anchor.value_end, anchor.value_end, added)

    def _keys(self) -> list[str]:
        """The members of `main` in the order of the text."""
        before = f"{self._prefix}/"
        return [
            path[len(before) :]
            for export, path in sorted(self._offsets, key=self._offsets.__getitem__)
            if export == self._export and path.startswith(before) and "/" not in path[len(before) :]
        ]

    def _colon(self, member: _Member) -> str:
        between = self._text[member.key_end : member.value]
        return between if _COLON.match(between) else ": "

    def _line_of(self, offset: int) -> tuple[int, str]:
        """The start of a line, and the end-of-line mark before it."""
        start, line_end = 0, "\n"
        for match in LINE_END.finditer(self._text, 0, offset):
            start, line_end = match.end(), match[0]
        return start, line_end

    def _measured(self, key: int) -> _Member:
        quote = self.quote(key)
        pattern = STRINGS[quote] if quote else NAME
        match = pattern.match(self._text, key) or _INTEGER.match(self._text, key)
        key_end = key if match is None else match.end()
        value = _skipped(self._text, _skipped(self._text, key_end) + 1)  # Behind the colon.
        return _Member(key, key_end, value, _value_end(self._text, value))


_QUOTE = "'"


def _written(members: dict[str, str], key_quote: str, colon: str, quote: str) -> list[str]:
    return [
        f"{key_quote}{key}{key_quote}{colon}{quote}{value}{quote}" for key, value in members.items()
    ]


def _skipped(text: str, at: int) -> int:
    match = TRIVIA.match(text, at)
    return at if match is None else match.end()


def _value_end(text: str, at: int) -> int:
    """The end of a value that is known to be data."""
    depth, end = 0, at
    while at < len(text):
        first = text[at]
        match = STRINGS[first].match(text, at) if first in STRINGS else None
        if depth == 0 and first in ",}]":
            return end
        depth += (first in "{[(") - (first in "}])")
        end = at + 1 if match is None else match.end()
        at = _skipped(text, end)
    return end
