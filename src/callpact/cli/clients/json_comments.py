"""Edits of JSON text that keep everything else as it is: comments, order, spaces, line ends.

Comments and trailing commas are allowed, as in the files of VS Code.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from callpact.errors import CallpactError

MAX_NESTING = 100
"""Levels of JSON in a client's file."""
# An atomic group, as `re` mismatches a possessive quantifier behind a group before 3.11.5.
_TRIVIA = re.compile(r"(?>(?:[ \t\r\n\ufeff]++|//[^\n]*+|/\*(?>(?:[^*]++|\*(?!/))*)\*/)*)")
_STRING = re.compile(r'"(?>(?:[^"\\\x00-\x1f]++|\\.)*)"')
_SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*+|true|false|null")
_LINE_REST = re.compile(r"[ \t]*+(?>(?:/\*[^\n]*?\*/[ \t]*+)*)(?://[^\n\r]*+)?(?=\r?\n|\Z)")


class NotEditable(CallpactError):
    """The text of a client's file cannot be edited."""


class _Node(NamedTuple):
    """A value in the text: its place, its data, and the members of an object."""

    start: int
    end: int
    data: Any
    members: tuple[_Member, ...] | None = None


class _Member(NamedTuple):
    key: str
    start: int
    value: _Node


def read_json(text: str) -> Any:
    """The data of JSON with comments; an empty text is an empty object.

    Raises:
        NotEditable: it is not JSON, with the line.
    """
    return _read(text).data


def with_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with one member set, replaced or added together with the objects above it.

    Raises:
        NotEditable: the text is not JSON, or a part of the path is not an object.
    """
    if not text.strip("\ufeff \t\r\n"):
        return text + json.dumps(_nested(path, value), indent=2, ensure_ascii=False) + "\n"
    root = node = _read(text)
    for depth, key in enumerate(path):
        if node.members is None:
            where = ".".join(path[:depth]) or "the file"
            raise NotEditable(f"{where} is not an object, got {json.dumps(node.data)[:60]}")
        found = [member for member in node.members if member.key == key]
        if len(found) > 1:
            raise NotEditable(f"'{key}' occurs twice")
        if not found:
            edited = _added(text, node, key, _nested(path[depth + 1 :], value), _unit(text, root))
            break
        node = found[0].value
    else:
        edited = (
            text[: node.start]
            + _dumped(value, text, node.start, _unit(text, root))
            + text[node.end :]
        )
    if read_json(edited) != _changed(root.data, path, value):
        raise NotEditable("it cannot be edited without changing other members")
    return edited


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _changed(data: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value
    below: Any = data.get(path[0], {})
    return {**data, path[0]: _changed(below, path[1:], value)}


# --- edits ----------------------------------------------------------------------------------


def _added(text: str, node: _Node, key: str, value: Any, unit: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, node.start)
    members = node.members or ()
    inner = _indent(text, members[0].start) if members else outer
    inner = inner if len(inner) > len(outer) else outer + unit
    written = f"{json.dumps(key, ensure_ascii=False)}: {_lines(value, inner, unit, newline)}"
    if not members:
        body = text[node.start + 1 : node.end - 1].rstrip()
        added = f"{{{body}{newline}{inner}{written}{newline}{outer}}}"
        return text[: node.start] + added + text[node.end :]
    end = members[-1].value.end
    comma = _skip(text, end)
    if text[comma] == ",":
        head, rest = text[: comma + 1], text[comma + 1 :]
    else:
        head, rest = f"{text[:end]},", text[end:]
    line = _LINE_REST.match(rest)  # A comment behind the last member stays with it.
    stop = 0 if line is None else line.end()
    before = rest[stop : stop + _skip(rest[stop:], 0)]
    closing = "" if "\n" in before else f"{newline}{outer}"
    return f"{head}{rest[:stop]}{newline}{inner}{written}{closing}{rest[stop:]}"


def _dumped(value: Any, text: str, start: int, unit: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    return _lines(value, _indent(text, start), unit, newline)


def _lines(value: Any, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _indent(text: str, place: int) -> str:
    """The white space at the beginning of the line of a place."""
    begin = text.rfind("\n", 0, place) + 1
    line = text[begin:place].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: _Node) -> str:
    return _indent(text, root.members[0].start) or "  " if root.members else "  "


# --- reading --------------------------------------------------------------------------------


def _read(text: str) -> _Node:
    if not text.strip("\ufeff \t\r\n"):
        return _Node(0, 0, {}, ())
    node = _value(text, _skip(text, 0), 0)
    end = _skip(text, node.end)
    if end < len(text):
        raise _wrong(text, end, "the end of the file")
    return node


def _value(text: str, at: int, depth: int) -> _Node:
    if depth > MAX_NESTING:
        raise NotEditable(f"it is nested more than {MAX_NESTING} levels deep")
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    found = _STRING.match(text, at) or _SCALAR.match(text, at)
    if found is None:
        raise _wrong(text, at, "a value")
    return _Node(at, found.end(), _loaded(text, at, found[0]))


def _object(text: str, at: int, depth: int) -> _Node:
    members: list[_Member] = []
    place = _skip(text, at + 1)
    while text[place : place + 1] != "}":
        name = _STRING.match(text, place)
        if name is None:
            raise _wrong(text, place, "a name in quotes")
        colon = _skip(text, name.end())
        if text[colon : colon + 1] != ":":
            raise _wrong(text, colon, "':'")
        value = _value(text, _skip(text, colon + 1), depth + 1)
        members.append(_Member(_loaded(text, place, name[0]), place, value))
        place = _separated(text, value.end, "}")
    data = {member.key: member.value.data for member in members}
    return _Node(at, place + 1, data, tuple(members))


def _array(text: str, at: int, depth: int) -> _Node:
    items: list[Any] = []
    place = _skip(text, at + 1)
    while text[place : place + 1] != "]":
        item = _value(text, place, depth + 1)
        items.append(item.data)
        place = _separated(text, item.end, "]")
    return _Node(at, place + 1, items)


def _separated(text: str, at: int, closing: str) -> int:
    """The place of the next member, behind its comma, or of the closing bracket."""
    place = _skip(text, at)
    if text[place : place + 1] == ",":
        return _skip(text, place + 1)
    if text[place : place + 1] != closing:
        raise _wrong(text, place, f"',' or '{closing}'")
    return place


def _skip(text: str, at: int) -> int:
    found = _TRIVIA.match(text, at)
    return at if found is None else found.end()


def _loaded(text: str, at: int, part: str) -> Any:
    try:
        return json.loads(part)
    except ValueError:
        raise _wrong(text, at, "a value") from None


def _wrong(text: str, at: int, expected: str) -> NotEditable:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    came = repr(text[at : at + 10]) if at < len(text) else "the end"
    return NotEditable(f"line {line}, column {column}: expected {expected}, got {came}")
