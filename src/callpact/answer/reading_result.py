"""What a reading gives: a value with its repairs, or why there is none.

No reading happens here; `reader.py` is the way in.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from callpact.answer.errors import Unreadable
from callpact.schema.document import MAX_VALUE_DEPTH

MAX_TEXT = 8_000_000
"""Characters that a text may have."""
MAX_DEPTH = MAX_VALUE_DEPTH
"""Levels of objects and lists that a value may nest: as many as a schema check takes."""
MAX_REPAIRS = 250_000
"""Repairs that one reading may list; a text that needs more is refused."""
MAX_MARKS = 20_000
"""Brackets, fences and tags that may stand in the prose around the JSON."""

SAFE = {
    "backtick_string": "a string in backticks",
    "colon": "a colon is missing or written another way",
    "comment": "a comment was left out",
    "concatenation": "strings joined with + are one string",
    "control_character": "a raw control character in a string was kept",
    "cut_literal": "a word cut at the end of the text was completed",
    "doubled_braces": "doubled braces were read as single ones",
    "escaped": "the JSON was written with its quotes escaped",
    "extra_closer": "a bracket that closes nothing was left out",
    "extra_comma": "a comma with nothing before it was left out",
    "fence": "the code fence around the JSON was left out",
    "inner_quote": "quotes inside a string were not escaped",
    "invalid_escape": "an escape that JSON does not have was read as it was meant",
    "javascript_literal": "undefined was read as null",
    "literal_case": "true, false or null in other letters",
    "missing_closer": "a bracket that was not closed was closed",
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
    "unquoted_key": "a key without quotes",
    "whitespace": "a space that JSON does not have was left out",
    "wrong_closer": "a bracket was closed with one of another kind",
}
"""Repairs that lose nothing and make nothing up: code and message."""
_LOSSY = {
    "ambiguous_escape": ("a string mixes escapes and bare backslashes", "read as JSON reads it"),
    "cut_member": ("the text ends within a member", "left out"),
    "cut_number": ("the text ends with a number that may have had more digits", "read as is"),
    "cut_string": ("the text ends within a string", "closed there"),
    "duplicate_key": ("a key stands twice in one object", "read with the last one"),
    "elided": ("an ellipsis stands for entries that were not written", "left out"),
    "leading_zeros": ("a number begins with zeros", "read as a decimal number"),
    "missing_value": ("a value is missing", "read as null"),
    "nan": ("JSON has no NaN and no Infinity", "read as null"),
    "number_separators": ("a number has separators between its digits", "left out"),
    "two_candidates": ("two values differ and either may be meant", "read with the last one"),
    "unquoted_value": (
        "a value that is no number and no literal has no quotes",
        "read as a string",
    ),
}
LOSSY = frozenset(_LOSSY)
"""Repairs that could change what the text means; each is refused unless allowed by name."""
_MESSAGES = SAFE | {code: "; ".join(said) for code, said in _LOSSY.items()}


class Repair(Struct, frozen=True):
    """One way in which the text was not JSON: `at` is the offset of the character."""

    code: str
    at: int
    message: str


class Read(Struct, frozen=True):
    """A value and every repair that it took, in the order of the text."""

    value: Any
    repairs: tuple[Repair, ...] = ()


def refusal(code: str, text: str, at: int) -> Unreadable:
    """The error for a lossy repair that was not allowed."""
    found, taken = _LOSSY[code]
    message = (
        f"{found[0].upper()}{found[1:]}; to have it {taken}, allow it by name: allow={{{code!r}}}"
    )
    return Unreadable(code, message, text, at)


def repair(code: str, at: int) -> Repair:
    """A repair with the message of its code."""
    return Repair(code, at, _MESSAGES[code])
