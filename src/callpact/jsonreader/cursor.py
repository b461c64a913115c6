"""A position in a text: notes repairs, skips space and comments, finds the end, makes errors.

The base class of the readers in `strings.py`, `literals.py`, `brackets.py` and `structure.py`.
"""

from __future__ import annotations

import re

from callpact.jsonreader.reading import (
    LOSSY,
    MAX_REPAIRS,
    ReadBudget,
    Repair,
    Unreadable,
    refusal,
    repair,
    truncation,
)

SPACE = re.compile(r"[ \t\r\n]*+")
# A line break may be written as an escape outside of strings.
_ANY_SPACE = re.compile(
    r"[\s\ufeff\u200b-\u200d\u2060]*+(?:\\[nrt][\s\ufeff\u200b-\u200d\u2060]*+)*"
)
_ODD_SPACE = re.compile(r"(?>(?:[\s\ufeff\u200b-\u200d\u2060]|\\[nrt])+)")
_LINE = re.compile(r"[^\r\n]*+")
KEY_AHEAD = re.compile(
    r"""(?:"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"
        |'[^'\\\n]*+(?>(?:\\.[^'\\\n]*+)*)'
        |[“”„][^“”\n]*+[“”]
        |`[^`\\\n]++`
        |(?:[^\W\d]|\$)[\w$.\-]*+
        |\d++
        )\s*+(?:[:：](?!//)|=>)""",
    re.VERBOSE,
)
"""A key and its colon."""
CUT_KEY_AHEAD = re.compile(
    r"""(?:"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)(?:"\s*+)?|'[^'\\\n]*+(?>(?:\\.[^'\\\n]*+)*)(?:'\s*+)?)\\?\Z"""
)
"""A key at the end of the text."""
QUOTED_KEY_AHEAD = re.compile(r"""(?:"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"|'[^'\\\n]*+')\s*+:""")
SEPARATORS = frozenset(",;，、；")
QUOTES = {'"': '"', "'": "'", "`": "`", "“": "“”", "”": "“”", "„": "“”", "‘": "‘’", "’": "‘’"}
"""The characters that open a string, and those that close it."""
_HASH = re.compile(r"#++(?:[ \t!]|$)", re.MULTILINE)
_BRACKET = re.compile(r"[}\]]")
_ELLIPSES = ("...", "…")
_UNCLEAR = (
    frozenset("/#\\")
    | frozenset(
        "\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff\u200b\u200c\u200d\u2060"
    )
    | frozenset(map(chr, range(0x2000, 0x200B)))
)


class Cursor:
    """A text, a position in it, and the repairs so far."""

    def __init__(self, text: str, at: int, allow: frozenset[str], budget: ReadBudget) -> None:
        self.text = text
        self.length = len(text)
        self.at = at
        self.allow = allow
        self.repairs: list[Repair] = []
        self._is_truncated = False
        self.budget = budget
        self.reached = at
        """The last position that was scanned for the end of a string or of a comment."""

    def note(self, code: str, at: int) -> None:
        """Add a repair to the list; a lossy one that is not allowed is raised as an error."""
        if code in LOSSY and code not in self.allow:
            is_cut = code == "truncated"
            raise truncation(self.text, at) if is_cut else refusal(code, self.text, at)
        if len(self.repairs) >= MAX_REPAIRS:
            message = f"Expected at most {MAX_REPAIRS:,} repairs; the text needs more"
            raise Unreadable("too_many_repairs", message, self.text, at)
        self.repairs.append(repair(code, at))

    def truncated(self, at: int) -> None:
        """Note once that the text, its fence or its tag ends within the value."""
        if not self._is_truncated:
            self.note("truncated", at)
            self._is_truncated = True

    def unexpected(self, expected: str, at: int) -> Unreadable:
        """Return the error for unexpected text at a position."""
        return Unreadable("unexpected", f"Expected {expected}, got {self.shown(at)}", self.text, at)

    def shown(self, at: int) -> str:
        """Return the text at a position for error messages."""
        found = self.text[at : at + 20]
        return repr(found) if found else "the end of the text"

    def ends(self, at: int) -> bool:
        """True at the end of the text, at a fence, or at a closing tag."""
        if at >= self.length:
            return True
        return self.text[at] in "`~<" and self.text.startswith(("```", "~~~", "</"), at)

    def skip(self, at: int) -> int:
        """Return the next position that is neither space nor comment; note odd spaces and comments."""
        text = self.text
        while True:
            match = SPACE.match(text, at)
            at = match.end() if match else at
            if at >= self.length or text[at] not in _UNCLEAR:
                return at
            after = self._odd(at)
            if after == at:
                return at
            at = after

    def _odd(self, at: int) -> int:
        text = self.text
        space = _ODD_SPACE.match(text, at)
        if space:
            self.note("whitespace", at)
            return space.end()
        if text.startswith("/*", at):
            end = text.find("*/", at + 2) if at < self.budget.unclosed else -1
            if end < 0:
                self.budget.unclosed = min(self.budget.unclosed, at)
                self.truncated(self.length)
                raise self.unexpected("a comment that is closed", at)
            self.reached = end
            return self._comment(at, at + 2, end, end + 2)
        if text.startswith("//", at) or _HASH.match(text, at):
            begin = at + (1 if text[at] == "#" else 2)
            match = _LINE.match(text, begin)
            end = self.reached = match.end() if match else self.length
            if text.count('"', begin, end) % 2 or (
                end == self.length and _BRACKET.search(text, begin)
            ):
                raise self.unexpected("a comment that holds nothing of the JSON", at)
            return self._comment(at, begin, end, end)
        return at

    def _comment(self, at: int, begin: int, end: int, after: int) -> int:
        words = self.text[begin : min(end, begin + 80)].lstrip("/*# \t\r\n")
        self.note("elided" if words.startswith(_ELLIPSES) else "comment", at)
        return after

    def ellipsis(self, at: int) -> int:
        """Return the length of an ellipsis at a position, or 0."""
        if self.text[at] == "…":
            return 1
        return 3 if self.text.startswith("...", at) else 0


def after_space(text: str, at: int) -> int:
    """Return the next position that is no space of any kind."""
    match = _ANY_SPACE.match(text, at)
    return match.end() if match else at


def combined(text: str) -> str:
    """Join surrogate pairs that were escaped one by one to characters."""
    return _PAIR.sub(_joined, text)


def _joined(match: re.Match[str]) -> str:
    high, low = match.group()
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
