"""Numbers, literals and bare words as models write them.

Notations of Python and JavaScript with one meaning are read. Other words, and numbers with two
possible meanings, are refused unless they are allowed by name.
"""

from __future__ import annotations

import re
from typing import Any

from callpact.jsonreader.reading import Unreadable
from callpact.jsonreader.strict import number_of
from callpact.jsonreader.strings import Strings

_TOKEN = re.compile(r"[^\s\\<,\[\]{}()\"'`:;，、；：“”‘’]++")
_COMMENT = re.compile(r"//|/\*")
_BARE = re.compile(r"[^,\[\]{}\"\n]++")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(\.\d++)?([eE][+-]?\d++)?", re.ASCII)
_NUMBER_FORM = re.compile(
    r"([+-]?)(?:(0|[1-9]\d*+)(?:\.(\d*+))?|\.(\d++))(?:[eE]([+-]?\d++))?", re.ASCII
)
_HEX = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]++)")
_ZEROS = re.compile(r"[+-]?0\d++(?:\.\d++)?", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d++(?:_\d++)+(?:\.\d++)?", re.ASCII)
_CUT = re.compile(r"(-?(?:0|[1-9]\d*+)(?:\.\d++)?)(?:\.|[eE][+-]?)", re.ASCII)
LITERALS: dict[str, tuple[Any, str]] = {
    "true": (True, ""),
    "false": (False, ""),
    "null": (None, ""),
    "True": (True, "python_literal"),
    "False": (False, "python_literal"),
    "None": (None, "python_literal"),
    "undefined": (None, "javascript_literal"),
    "TRUE": (True, "literal_case"),
    "FALSE": (False, "literal_case"),
    "NULL": (None, "literal_case"),
    "Null": (None, "literal_case"),
}
"""Words that are values, with the code of the repair."""
WORDS = rf"(?:[+\-]?(?:NaN|Infinity)|{'|'.join(LITERALS)})\b"
"""The pattern of all words that are read as values, or refused as not part of JSON."""
_NAN = frozenset(
    sign + name for sign in ("", "+", "-") for name in ("NaN", "nan", "Infinity", "inf")
)
_SIGNS = frozenset("+-.")
_MAX_DIGITS = 4_000  # Python refuses to read integers of more than 4,300 digits.


class Scalars(Strings):
    """Reads one value without quotes and brackets."""

    def scalar(self, at: int, *, is_root: bool) -> Any:
        """Read the value at a position and move the cursor behind it."""
        match = _TOKEN.match(self.text, at)
        if not match:
            raise self.unexpected("a value", at)
        token = _COMMENT.split(match.group(), maxsplit=1)[0]
        if not token:
            raise self.unexpected("a value", at)
        self.at = at + len(token)
        is_cut = self.at == self.length and not is_root
        if token in LITERALS:
            value, code = LITERALS[token]
            if code:
                self.note(code, at)
            return value
        if token in _NAN:
            self.note("nan", at)
            return None
        if is_cut and len(token) == 1 and token in _SIGNS:
            self.truncated(self.length)
        if token[0].isdecimal() or token[0] in "+-.":
            found = self._number(token, at, is_cut=is_cut)
            if is_root and self.repairs:
                raise self.unexpected("a number of JSON", at)  # 42. may end a sentence.
            if found is not None:
                return found
        elif is_cut:
            whole = [name for name in LITERALS if name.startswith(token)]
            if whole:
                self.truncated(self.length)
            if len(whole) == 1:
                return LITERALS[whole[0]][0]
        return self._bare(at)

    def _number(self, token: str, at: int, *, is_cut: bool) -> float | None:
        if is_cut and (cut := _CUT.fullmatch(token) or _NUMBER.fullmatch(token)):
            self.truncated(self.length)
            token = cut.group(1) if cut.re is _CUT else token
        if whole := _NUMBER.fullmatch(token):
            return self.finite(token, at, is_integer=not (whole.group(1) or whole.group(2)))
        if form := _NUMBER_FORM.fullmatch(token):
            sign, units, decimals, only, power = form.groups()
            self.note("number_form", at)
            digits = f"{sign}{units or 0}.{decimals or only or 0}e{power or 0}"
            is_integer = "." not in token and power is None
            return self.finite(
                f"{sign}{units}" if is_integer else digits, at, is_integer=is_integer
            )
        if form := _HEX.fullmatch(token):
            self.note("number_form", at)
            return self.finite("".join(form.groups()), at, is_integer=True, base=16)
        if _ZEROS.fullmatch(token):
            self.note("leading_zeros", at)
            return self.finite(token, at, is_integer="." not in token)
        if _GROUPED.fullmatch(token):
            self.note("number_separators", at)
            return self.finite(token.replace("_", ""), at, is_integer="." not in token)
        return None

    def finite(self, digits: str, at: int, *, is_integer: bool, base: int = 10) -> float:
        """Convert digits to a finite number."""
        try:
            if not is_integer:
                return number_of(digits)
            if len(digits) <= _MAX_DIGITS:
                return int(digits, base)
        except ValueError:
            pass
        message = "Expected a number that a double, or an integer of 4,000 digits, can hold"
        raise Unreadable("too_large", message, self.text, at)

    def _bare(self, at: int) -> str:
        match = _BARE.match(self.text, at)
        if not match or self.text.startswith("<", at):
            raise self.unexpected("a value", at)
        self.note("unquoted_value", at)
        self.at = match.end()
        return match.group().rstrip()
