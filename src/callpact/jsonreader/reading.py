"""The results of the reader: a value with its repairs, or the error; and the tables of repairs.

`reader.py` is the entry point.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from callpact.errors import Unreadable
from callpact.schema.bounds import MAX_VALUE_DEPTH

MAX_TEXT = 8_000_000
"""Characters of a text."""
MAX_DEPTH = MAX_VALUE_DEPTH
"""Nesting levels of objects and lists: as many as a schema check accepts."""
MAX_REPAIRS = 250_000
"""Repairs of one text; a text that needs more is refused."""
MAX_MARKS = 20_000
"""Brackets, fences and tags in the prose around the JSON."""

SAFE = {
    "backtick_string": "a string in backticks",
    "colon": "a colon is missing or written another way",
    "comment": "a comment was left out",
    "control_character": "a raw control character in a string was kept",
    "doubled_braces": "doubled braces were read as single ones",
    "escaped": "the JSON was written with its quotes escaped",
    "extra_comma": "a comma with nothing before it was left out",
    "fence": "the code fence around the JSON was left out",
    "inner_quote": "quotes inside a string were not escaped",
    "invalid_escape": "an escape that JSON does not have was read as it was meant",
    "javascript_literal": "undefined was read as null",
    "listed": "values one after the other were read as the list that was asked for",
    "literal_case": "true, false or null in other letters",
    "missing_comma": "a comma is missing between two entries",
    "missing_opener": "the first brace is missing",
    "number_form": "a number in a form that JSON does not have",
    "prose": "the text around the JSON was left out",
    "python_literal": "True, False or None was read as true, false or null",
    "separator": "another character stands for a comma",
    "single_quotes": "a string in single quotes",
    "smart_quotes": "a string in typographic quotes",
    "tag": "the tag around the JSON was left out",
    "thinking": "the thinking before the answer was left out",
    "trailing_comma": "a comma after the last entry was left out",
    "triple_quotes": "a string in triple quotes",
    "tuple": "a tuple was read as a list",
    "unfit_candidate": "another value in the text does not fit the schema and was left out",
    "unquoted_key": "a key without quotes",
    "whitespace": "a space that JSON does not have was left out",
}
"""Repairs that neither lose nor invent anything: code and message."""
_LOSSY = {
    "adjacent_strings": ("two strings have nothing between them", "read as two entries"),
    "ambiguous_escape": ("a string mixes escapes and bare backslashes", "read as JSON reads it"),
    "concatenation": ("two strings have a + between them", "joined"),
    "duplicate_key": ("an object has a key twice", "read with the last one"),
    "elided": ("an ellipsis replaces entries that were not written", "left out"),
    "extra_closer": ("a bracket closes nothing", "left out"),
    "leading_zeros": ("a number begins with zeros", "read as a decimal number"),
    "missing_closer": ("a bracket is not closed before the next one", "closed there"),
    "missing_value": ("a value is missing", "read as null"),
    "nan": ("JSON has no NaN and no Infinity", "read as null"),
    "number_separators": ("a number has separators between its digits", "left out"),
    "truncated": ("the text ends before its JSON is complete", "closed there"),
    "two_candidates": ("two values differ and either may be meant", "read with the last one"),
    "unquoted_value": (
        "a value that is no number and no literal has no quotes",
        "read as a string",
    ),
    "wrong_closer": ("a bracket is closed with one of another kind", "closed all the same"),
}
LOSSY = frozenset(_LOSSY)
"""Repairs that could change the meaning of the text; each is refused unless allowed by name."""
_MESSAGES = SAFE | {code: "; ".join(said) for code, said in _LOSSY.items()}


class Repair(Struct, frozen=True):
    """One repair of the text; `at` is the offset of the character."""

    code: str
    at: int
    message: str


class ReadResult(Struct, frozen=True):
    """A value and its repairs, in the order of the text."""

    value: Any
    repairs: tuple[Repair, ...] = ()


class ReadBudget:
    """The budget for reading one text, shared by all attempts at different positions.

    A failed attempt may scan much of the text. The budget bounds all of them by a multiple of its
    length, which makes reading linear.
    """

    def __init__(self, text: str) -> None:
        self.scans = 4 * len(text)
        """Characters that failed attempts of compiled code may scan."""
        self.steps = 8 * len(text) + 10_000
        """Characters that failed attempts may scan."""
        self.unclosed = len(text)
        """From this position on, no comment is closed."""


def refusal(code: str, text: str, at: int, found: str = "") -> Unreadable:
    """Return the error for a lossy repair that was not allowed; `found` replaces its general text."""
    known, taken = _LOSSY[code]
    found = found or known
    message = (
        f"{found[0].upper()}{found[1:]}; to have it {taken}, allow it by name: allow={{{code!r}}}"
    )
    return Unreadable(code, message, text, at)


def truncation(text: str, at: int, finish: str | None = None) -> Unreadable:
    """Return the error for incomplete JSON; `finish` is the reason why the model stopped, if known."""
    return refusal("truncated", text, at, _FINISHES.get(finish or "", _FINISHES[""]))


_FINISHES = {
    "": "the text ends before its JSON is complete, as it does at a limit of output tokens: a "
    "shorter answer or a higher limit (max_tokens) avoids it",
    "length": "the answer was cut at the limit of output tokens before its JSON was complete: a "
    "shorter answer or a higher limit (max_tokens) avoids it",
    "content_filter": "a content filter ended the answer before its JSON was complete: other words "
    "in the request avoid it, a higher limit does not",
}
CUT_FINISHES = frozenset(_FINISHES) - {""}
"""Finish reasons of an incomplete answer."""


def repair(code: str, at: int) -> Repair:
    """Return a repair with the message of its code."""
    return Repair(code, at, _MESSAGES[code])
