"""The tokens of a `.mjs` file that every reader of it shares, and its lines and columns."""

from __future__ import annotations

import re
from bisect import bisect_right

LINE_END = re.compile(r"\r\n|[\n\r\u2028\u2029]")
_WHITE = "[ \\t\\v\\f\\r\\n\u00a0\ufeff\u2028\u2029\u1680\u2000-\u200a\u202f\u205f\u3000]"
TRIVIA = re.compile(
    rf"(?>(?:{_WHITE}++|//[^\n\r\u2028\u2029]*+|/\*(?>(?:[^*]++|\*(?!/))*)\*/)*)", re.DOTALL
)
"""White space and comments."""
NAME = re.compile(r"[^\W\d][\w$]*+|\$[\w$]*+")
STRINGS = {
    "'": re.compile(r"'((?>(?:[^'\\\r\n]|\\(?:\r\n|.))*))'", re.DOTALL),
    '"': re.compile(r'"((?>(?:[^"\\\r\n]|\\(?:\r\n|.))*))"', re.DOTALL),
    "`": re.compile(r"`((?>(?:[^`\\$]|\\(?:\r\n|.)|\$(?!\{))*))`", re.DOTALL),
}
"""Texts by their quote; a template only if it has no `${…}`."""


def line_starts(text: str) -> list[int]:
    """The offsets at which the lines of a text begin; a byte order mark is before the first."""
    first = 1 if text.startswith("\ufeff") else 0
    return [first, *(match.end() for match in LINE_END.finditer(text))]


def place_of(starts: list[int], offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1, as editors count."""
    line = bisect_right(starts, max(offset, starts[0]))
    return line, max(offset - starts[line - 1], 0) + 1
