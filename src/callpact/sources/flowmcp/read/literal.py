"""The data exports of a `.mjs` file, read without running it, in linear time.

`read_exports` accepts only data: comments, `export const NAME =` followed by a literal of objects,
arrays, strings, decimal numbers, `true`, `false`, `null`. A literal is split into its texts and the
code between them; the code, which is short and repetitive, is converted to JSON piece by piece, and
a JSON parser does the rest. Anything that it rejects goes to `literal_parser.py`, which accepts it
or reports where and why it is not data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import orjson
from msgspec import Struct

from callpact.errors import InvalidManifest
from callpact.schema.hashing import canonical_string
from callpact.sources.flowmcp.read.literal_parser import (
    MAX_LITERAL_DEPTH,
    in_key_order,
    is_export_name,
    read_carefully,
    unescaped,
)

MAX_FILE_BYTES = 512 * 1024
"""Bytes that a FlowMCP file may have."""


class Exports(Struct, frozen=True):
    """The exports of a file: data by name, and the offset of its code."""

    values: dict[str, Any]
    handlers: int | None = None
    """Offset of `export const handlers`; None if the file has no hooks."""
    repeated: tuple[str, ...] = ()
    """JSON Pointers of keys that occur more than once in an object."""


def read_exports(text: str) -> Exports:
    """Every data export of a file.

    Raises:
        InvalidManifest: something is not data, with its line and column.
    """
    if len(text) > MAX_FILE_BYTES or len(text.encode("utf-8", "replace")) > MAX_FILE_BYTES:
        raise InvalidManifest(f"the file has more than {MAX_FILE_BYTES:,} bytes")
    try:
        return _read_fast(text)
    except _NotPlainError:
        found = read_carefully(text)
        return Exports(found.values, found.handlers, found.repeated)


class _NotPlainError(Exception):
    """The fast reader cannot read the file, which may still be valid."""


_BLANK = r"[ \t\r\n]"
_HEAD = re.compile(
    r"\ufeff?(?>(?:[ \t\r\n]++|//[^\n\r\u2028\u2029]*+|/\*(?>(?:[^*]++|\*(?!/))*)\*/)*)"
    r"export[ \t\r\n]++const[ \t\r\n]++([A-Za-z_$][A-Za-z0-9_$]*+)[ \t\r\n]*+=(?![=>])"
)
_HANDLERS = "\nexport const handlers"
_HANDLERS_HEAD = re.compile(rf"\nexport const handlers{_BLANK}*+=(?![=>])")


def _read_fast(text: str) -> Exports:
    head = _HEAD.match(text)
    if head is None or head[1] == "handlers" or not is_export_name(head[1]):
        raise _NotPlainError
    cut = text.find(_HANDLERS, head.end())
    if cut >= 0 and not _HANDLERS_HEAD.match(text, cut):
        raise _NotPlainError
    value = _read_literal(text[head.end() :] if cut < 0 else text[head.end() : cut + 1])
    return Exports({head[1]: value}, None if cut < 0 else cut + 1)


# A text or comment without an end matches up to the end of the file: otherwise the rest of the file
# would be searched again from every quote in it.
_TEXT = "|".join(
    rf"{quote}(?>(?:[^{quote}\\\r\n]++|\\(?:\r\n|.))*)(?:{quote}|\\?\Z|(?=[\r\n]))"
    for quote in "'\""
)
_TEXTS = re.compile(f"({_TEXT})", re.DOTALL)
_COMMENTS = re.compile(
    rf"(?:{_TEXT})|(//[^\n\r\u2028\u2029]*+|/\*(?>(?:[^*]++|\*(?!/))*)(?:\*/|\Z))", re.DOTALL
)


def _read_literal(body: str) -> Any:
    if "__proto__" in body:
        raise _NotPlainError
    try:
        return _read_pieces(*_cut(body))
    except _NotPlainError:
        if "//" not in body and "/*" not in body:
            raise
    return _read_pieces(*_cut(_COMMENTS.sub(_uncommented, body)))


def _cut(body: str) -> tuple[list[str], list[str]]:
    """The code of a literal, and the texts between, in JSON form."""
    if '"' not in body and "\\" not in body:
        pieces = body.split("'")
        return pieces[::2], pieces[1::2]
    pieces = _TEXTS.split(body)
    return pieces[::2], [_json_text(text) for text in pieces[1::2]]


def _uncommented(match: re.Match[str]) -> str:
    comment = match[1]
    if comment is None:
        return match[0]
    if comment[1] == "*" and not (comment.endswith("*/") and len(comment) > 3):
        raise _NotPlainError
    return " "


def _json_text(text: str) -> str:
    """The content of a string literal, escaped for JSON."""
    if len(text) < 2 or text[-1] != text[0]:
        raise _NotPlainError
    body = text[1:-1]
    if "\\" not in body:
        return body.replace('"', '\\"')
    plain = unescaped(body)
    if plain is None:
        raise _NotPlainError
    return canonical_string(plain)[1:-1]


_NUMBERED = re.compile(
    r"""(?>(?:
      [^0-9]++
    | (?<=[A-Za-z_$0-9])[0-9]++                                              # within a name
    | (?<![\w$.])(?<!-(?=0(?:\.0*+)?(?![0-9.])))
      (?:0|[1-9][0-9]{0,14}+|[0-9]{1,6}+\.[0-9]{1,9}+)(?![\w$.]|[ \t\r\n]*+:)
    )*)\Z""",
    re.VERBOSE,
)
"""Code whose numbers have the same meaning in JSON as in JavaScript, and are not keys."""
_DIGIT = re.compile("[0-9]")
# Both patterns begin with the text they search for, which makes them fast; lookbehinds follow.
_KEY = re.compile(r"([A-Za-z_$](?<![\w$].)[A-Za-z0-9_$]*+)(?=[ \t\r\n]*+:)")
_ZEROS = re.compile(r"(?<=[0-9])\.0++(?![0-9])")
"""JavaScript writes 1.0 as 1."""
_LAST_COMMA = re.compile(r",(?=[ \t\r\n]*+[}\]])(?:(?<=[\w}\]],)|(?<=\A,))")
"""A comma after an item; after an opening bracket a comma is a hole."""
_MOST_PIECES = 20_000
_LONGEST_PIECE = 400


class _Pieces(dict[str, str]):
    """The code between texts as JSON; cached, as files have the same style.

    Anything that is neither a key nor a number is unchanged: the JSON parser accepts or rejects it.
    """

    def __missing__(self, code: str) -> str:
        made = code
        if _DIGIT.search(code):
            if not _NUMBERED.match(code):
                raise _NotPlainError
            made = _ZEROS.sub("", made)
        if "," in code:
            made = _LAST_COMMA.sub("", made)
        made = '"'.join(_KEY.split(made))
        if len(code) <= _LONGEST_PIECE:
            if len(self) >= _MOST_PIECES:
                self.clear()
            self[code] = made
        return made


_PIECES = _Pieces()


def _read_pieces(code: list[str], texts: list[str]) -> Any:
    if len(code) == len(texts) or "__proto__" in texts:
        raise _NotPlainError
    pieces = [*code, *texts]
    pieces[::2] = map(_PIECES.__getitem__, code)
    pieces[1::2] = texts
    try:
        value = orjson.loads('"'.join(pieces).rstrip(" \t\r\n;"))
    except orjson.JSONDecodeError:
        raise _NotPlainError from None
    if not isinstance(value, dict | list) or _keys_in(value) != "".join(code).count(":"):
        raise _NotPlainError  # A key occurs twice.
    data = cast("Any", value)
    return _in_order(data) if _has_integers(code, texts) else data


def _has_integers(code: list[str], texts: list[str]) -> bool:
    """True if a key is an integer in quotes: JavaScript orders such keys first, ascending."""
    return any(map(str.isdigit, texts)) and any(
        text.isdigit() and following.lstrip()[:1] == ":"
        for text, following in zip(texts, code[1:], strict=True)
    )


def _in_order(value: Any) -> Any:
    for level in _levels(value):
        for held in level:
            members = cast("dict[str, Any]", held if type(held) is dict else {})
            if any(map(str.isdigit, members)):
                ordered = in_key_order(members.copy())
                members.clear()
                members.update(ordered)
    return value


def _keys_in(value: Any) -> int:
    return sum([len(held) for level in _levels(value) for held in level if type(held) is dict])  # pyright: ignore[reportUnknownArgumentType] - a cast would cost as much as the rest


def _levels(value: Any) -> Iterator[list[Any]]:
    """The objects and arrays of data, level by level."""
    level: list[Any] = [value]
    for _ in range(MAX_LITERAL_DEPTH):
        yield level
        level = [
            item
            for held in level
            for item in (held.values() if type(held) is dict else held)  # pyright: ignore[reportUnknownVariableType] - as above
            if type(item) is dict or type(item) is list  # pyright: ignore[reportUnknownArgumentType] - as above
        ]
        if not level:
            return
    raise _NotPlainError
