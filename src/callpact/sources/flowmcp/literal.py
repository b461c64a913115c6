"""The data exports of a `.mjs` file, read without running it, in linear time.

`read_exports` takes what is data and nothing else: comments, `export const NAME =` followed by a
literal of objects, arrays, strings, decimal numbers, `true`, `false`, `null`. It first rewrites the
literal to JSON in one pass of a regular expression and lets the C parser do the rest; what that
pass does not take is read again with care (`careful.py`), which accepts it or says where and why
it is not data.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecoder
from typing import Any

from msgspec import Struct

from callpact.errors import InvalidManifest
from callpact.schema.hashing import canonical_string
from callpact.sources.flowmcp.careful import (
    MAX_LITERAL_DEPTH,
    in_key_order,
    is_export_name,
    read_carefully,
    unescaped,
)

MAX_FILE_BYTES = 512 * 1024
"""Bytes that a FlowMCP file may have."""


class Exports(Struct, frozen=True):
    """What a file exports: data by name, and where its code begins, if it has some."""

    values: dict[str, Any]
    handlers: int | None = None
    """Offset of `export const handlers`; None if the file has no hooks."""


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
        return Exports(found.values, found.handlers)


class _NotPlainError(Exception):
    """Not for the fast reader; says nothing about the file."""


_BLANK = r"[ \t\r\n]"
_HEAD = re.compile(
    r"\ufeff?(?:[ \t\r\n]++|//[^\n\r\u2028\u2029]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+"
    r"export[ \t\r\n]++const[ \t\r\n]++([A-Za-z_$][A-Za-z0-9_$]*+)[ \t\r\n]*+=(?![=>])"
)
_HANDLERS = "\nexport const handlers"
_HANDLERS_HEAD = re.compile(rf"\nexport const handlers{_BLANK}*+=(?![=>])")
# A key and the plain text behind it are one match: what costs is the number of matches.
_TOKENS = re.compile(
    r"""(?=['"A-Za-z_$,/`0-9])(?:
      '([^'"\\\x00-\x1f\x7f]*+)'                                        # 1 plain text
    | (?<![\w$])([A-Za-z_$][A-Za-z0-9_$]*+)[ \t\r\n]*+:                 # 2 name as a key
      (?:[ \t\r\n]*+'([^'"\\\x00-\x1f\x7f]*+)')?                        # 3 and its plain text
    | ("[^"\\\x00-\x1f]*+")                                             # 4 plain text, already JSON
    | (?<=[\w"'}\].])(,)(?=[ \t\r\n]*+[}\]/])                           # 5 may be a trailing comma
    | (//[^\n\r\u2028\u2029]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))       # 6 comment
    | ('(?:[^'\\\r\n]|\\(?:\r\n|.))*+(?:'|\\?\Z|(?=[\r\n]))
      |"(?:[^"\\\r\n]|\\(?:\r\n|.))*+(?:"|\\?\Z|(?=[\r\n])))            # 7 any other text
    | (`)                                                               # 8 template: with care
    | (?<![\w$."'])([0-9]++)[ \t\r\n]*+:                                # 9 integer as a key
    )""",
    re.VERBOSE | re.DOTALL,
)
# Whatever begins as a text or a comment is taken whole, even if it has no end: else the rest of the
# file would be searched again from every quote in it.
_COMMA = "\x01"
_TRAILING = re.compile(r"\x01(?=[ \t\r\n]*+[}\]])")
_INTEGER_KEY = re.compile(r'"[0-9]+"[ \t\r\n]*+:')
_END = re.compile(r"[ \t\r\n]*+;?[ \t\r\n]*+$")


def _read_fast(text: str) -> Exports:
    head = _HEAD.match(text)
    if head is None or head[1] == "handlers" or not is_export_name(head[1]):
        raise _NotPlainError
    cut = text.find(_HANDLERS, head.end())
    if cut >= 0 and not _HANDLERS_HEAD.match(text, cut):
        raise _NotPlainError
    body = text[head.end() :] if cut < 0 else text[head.end() : cut + 1]
    if _COMMA in body:
        raise _NotPlainError
    rewritten = _TOKENS.sub(_rewritten, body).lstrip(" \t\r\n")
    if rewritten[:1] not in {"{", "["} or '"__proto__"' in rewritten:
        raise _NotPlainError
    if _COMMA in rewritten:
        rewritten = _TRAILING.sub("", rewritten).replace(_COMMA, ",")
    decoder = _ORDERED if _INTEGER_KEY.search(rewritten) else _PLAIN
    try:
        value, end = decoder.raw_decode(rewritten)
    except (ValueError, RecursionError):
        raise _NotPlainError from None
    if not _END.match(rewritten, end) or _is_deep(value):
        raise _NotPlainError
    return Exports({head[1]: value}, None if cut < 0 else cut + 1)


def _rewritten(match: re.Match[str]) -> str:
    kind = match.lastindex
    if kind == 3:
        return f'"{match[2]}":"{match[3]}"'
    if kind == 2:
        return f'"{match[2]}":'
    if kind == 1:
        return f'"{match[1]}"'
    text = match[0]
    if kind == 4:
        return text
    if kind == 5:
        return _COMMA
    if kind == 6:
        if text[1] == "*" and not (text.endswith("*/") and len(text) > 3):
            raise _NotPlainError
        return " "
    if kind == 7:
        plain = unescaped(text[1:-1]) if len(text) > 1 and text[-1] == text[0] else None
        if plain is None:
            raise _NotPlainError
        return canonical_string(plain)
    if kind == 9 and (len(match[9]) == 1 or (match[9][0] != "0" and len(match[9]) < 16)):
        return f'"{match[9]}":'
    raise _NotPlainError


def _integer(text: str) -> float:
    if len(text) < 16:
        return 0 if text == "-0" else int(text)
    raise _NotPlainError


def _decimal(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise _NotPlainError
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def _refused(_text: str) -> Any:
    raise _NotPlainError


def _in_order(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return in_key_order(dict(pairs))


_PLAIN = JSONDecoder(parse_int=_integer, parse_float=_decimal, parse_constant=_refused)
_ORDERED = JSONDecoder(
    parse_int=_integer, parse_float=_decimal, parse_constant=_refused, object_pairs_hook=_in_order
)


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_LITERAL_DEPTH):
        level = [
            item
            for held in level
            for item in (held.values() if type(held) is dict else held)  # pyright: ignore[reportUnknownVariableType] - a cast would cost as much as the rest
            if type(item) is dict or type(item) is list  # pyright: ignore[reportUnknownArgumentType] - as above
        ]
        if not level:
            return False
    return True
