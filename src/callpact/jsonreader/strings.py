"""Strings as models write them: other quotes, raw line breaks, invalid escapes, bare quotes.

A bare quote is part of a string only if nothing else is possible; a string that could end at two
positions is refused. `closes` and `names` of the subclass check the text after a string.
"""

from __future__ import annotations

import json
import re

from callpact.jsonreader.cursor import QUOTES, SPACE, Cursor, after_space, combined
from callpact.jsonreader.reading import Unreadable

_CLEAN = re.compile(r'"[^"\\\x00-\x1f]*+"')
_RUNS = {
    '"': re.compile(r'[^"\\]*+'),
    "'": re.compile(r"[^'\\]*+"),
    "`": re.compile(r"[^`\\]*+"),
    "“”": re.compile(r"[^“”\\]*+"),
    "‘’": re.compile(r"[^‘’\\]*+"),
}
_CODES = {
    "'": "single_quotes",
    "`": "backtick_string",
    "“”": "smart_quotes",
    "‘’": "smart_quotes",
}
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(
    r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|u\{[0-9a-fA-F]{1,6}\}|U[0-9a-fA-F]{8}|[\s\S]|\Z)"
)
_CUT_ESCAPE = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""A truncated escape, or the first half of a surrogate pair."""
_CUT_CODE = re.compile(r"\\u[0-9a-fA-F]")
_NAMED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_MEASURE = re.compile(r"[\s(~]\d++(?:[.,/]\d++)?\Z", re.ASCII)
"""Inches and seconds within a string: a 24" screen."""
_DROPPED = frozenset("'`_")  # A backslash before these is JavaScript's, Python's or Markdown's.
_BEFORE_OPENING = frozenset("([{<=>:,;/-–—*_~|+&\"'`“‘")
_AFTER_CLOSING = frozenset(",.;!?)]}>/-–—*_~|+&\"'`”’%\\")


class Strings(Cursor):
    """Reads one string, with its quotes, at a position."""

    def closes(self, at: int) -> bool:
        """True if the text at a position may follow a string that is a value."""
        raise NotImplementedError

    def names(self, at: int) -> bool:
        """True if the text at a position may follow a string that is a key."""
        raise NotImplementedError

    def is_root(self) -> bool:
        """True if nothing encloses the string."""
        raise NotImplementedError

    def string(self, at: int, *, is_key: bool) -> str | None:
        """Read the string at a position and move the cursor behind it; None for a truncated key."""
        follows = self.names if is_key else self.closes
        clean = _CLEAN.match(self.text, at)
        if clean and follows(clean.end()):
            self.at = clean.end()
            return self.text[at + 1 : self.at - 1]
        mark = self.text[at]
        if mark in "\"'" and self.text.startswith(mark * 3, at):
            end = self.text.find(mark * 3, at + 3)
            if end > 0 and follows(end + 3) and self._is_block(at + 3, end, mark):
                self.note("triple_quotes", at)
                self.at = end + 3
                return self._decoded(at + 3, end)
        return self._quoted(at, QUOTES[mark], is_key=is_key)

    def _is_block(self, begin: int, end: int, mark: str) -> bool:
        """True if triple quotes enclose text, and are not strings of one quote."""
        match = SPACE.match(self.text, begin)
        first = self.text[match.end() if match else begin]
        if first in ",:]}" or first == mark:
            return False
        return self.text.find(mark, begin, end) < 0 or self.text.find("\n", begin, end) >= 0

    def _quoted(self, at: int, marks: str, *, is_key: bool) -> str | None:
        text, run = self.text, _RUNS[marks]
        follows = self.names if is_key else self.closes
        place, inner, opened = at + 1, -1, False
        while True:
            match = run.match(text, place)
            place = self.reached = match.end() if match else place
            if place >= self.length:
                return self._cut(at, marks, is_key=is_key)
            if text[place] == "\\":
                place += 2
                continue
            if follows(place + 1):
                if opened:
                    raise self._unsure(at, place)
                break
            if self.is_root():  # "Yes" and "no" is a sentence.
                raise self._unsure(at, place)
            if not self._is_apostrophe(place, marks):
                if is_key:
                    raise self.unexpected("a colon after the key", after_space(text, place + 1))
                opened = self._is_inner(at, place, opened=opened)
            inner = place if inner < 0 else inner
            place += 1
        if marks in _CODES:
            self.note(_CODES[marks], at)
        if inner >= 0:
            self.note("inner_quote", inner)
        if marks == "`" and "${" in text[at:place]:
            raise self.unexpected("a string without ${…}", at)
        self.at = place + 1
        return self._decoded(at + 1, place)

    def _is_apostrophe(self, at: int, marks: str) -> bool:
        around = self.text[at - 1 : at + 2]
        return marks in {"'", "‘’"} and around[0].isalnum() and around[-1].isalpha()

    def _is_inner(self, start: int, at: int, *, opened: bool) -> bool:
        """Return whether a quoted part is open after a bare quote inside a string."""
        before, after = self.text[at - 1], self.text[at + 1 : at + 2]
        if not opened:
            behind = after_space(self.text, at + 1)
            if self.text[behind] in ":+":
                raise self.unexpected("a comma or a bracket behind a string", behind)
            is_break = self.text[at - 2 : at] in {"\\n", "\\r", "\\t"}
            opens = at == start + 1 or before.isspace() or before in _BEFORE_OPENING or is_break
            is_empty = after == self.text[at]
            if opens and not is_empty and not after.isspace() and after not in ",.;:!?":
                return True
            if not is_empty and _MEASURE.search(self.text, max(start + 1, at - 20), at):
                return False
        elif not before.isspace() and (after.isspace() or after in _AFTER_CLOSING):
            return False
        raise self._unsure(start, at)

    def _unsure(self, start: int, at: int) -> Unreadable:
        message = f"Expected a string that ends once, got {self.shown(start)} with a bare quote that may or may not end it"
        return Unreadable("unescaped_quote", message, self.text, at)

    def _cut(self, at: int, marks: str, *, is_key: bool) -> str | None:
        self.truncated(self.length)
        if is_key:
            return None
        if marks in _CODES:
            self.note(_CODES[marks], at)
        self.at = self.length
        return self._decoded(at + 1, _before_cut_escape(self.text, at + 1))

    def _decoded(self, begin: int, end: int) -> str:
        """Decode the text between the quotes."""
        raw = self.text[begin:end]
        control = _CONTROL.search(raw)
        if control:
            self.note("control_character", begin + control.start())
        if "\\" not in raw:
            return raw
        return self._unescaped(raw, begin)

    def _unescaped(self, raw: str, begin: int) -> str:
        bare = letters = False
        parts: list[str] = []
        done = 0
        for match in _ESCAPE.finditer(raw):
            parts.append(raw[done : match.start()])
            done = match.end()
            escape = match.group()[1:]
            if escape in _NAMED:
                parts.append(_NAMED[escape])
                letters = letters or (escape in "bfnrt" and raw[done : done + 1].isalpha())
            elif len(escape) > 1:
                code = int(escape.strip("uxU{}"), 16)
                if code > 0x10FFFF:
                    raise self.unexpected("an escape of a character", begin + match.start())
                if len(escape) != 5:
                    self.note("invalid_escape", begin + match.start())
                parts.append(chr(code))
            elif escape in _DROPPED and escape:
                self.note("invalid_escape", begin + match.start())
                parts.append(escape)
            elif escape in {"\n", "\r", ""} or _CUT_CODE.match(raw, match.start()):
                self.note("ambiguous_escape", begin + match.start())
                parts.append(match.group() if escape == "u" else escape)
            else:
                self.note("invalid_escape", begin + match.start())
                parts.append("\\" + escape)
                bare = bare or escape.isalnum()
        parts.append(raw[done:])
        if bare and letters:
            # C:\Users\new: one of the two backslashes is not meant as an escape.
            self.note("ambiguous_escape", begin)
        return combined("".join(parts))

    def joined(self, first: str) -> str:
        """Join a string with those that follow after a +."""
        parts = [first]
        while True:
            plus = self.text.find("+", self.at, self.at + 80)
            if plus < 0 or self.text[self.at : plus].strip():
                break
            match = SPACE.match(self.text, plus + 1)
            begin = match.end() if match else plus
            if self.text[begin : begin + 1] not in {'"', "'"}:
                break
            self.note("concatenation", plus)
            more = self.string(begin, is_key=False)
            parts.append(more or "")
        return "".join(parts)


def _before_cut_escape(text: str, begin: int) -> int:
    """Return the end of a text, or the position of an escape that is cut off there."""
    match = _CUT_ESCAPE.search(text, max(begin, len(text) - 11))
    if not match:
        return len(text)
    slashes = slash = match.start()
    while slashes > begin and text[slashes - 1] == "\\":
        slashes -= 1
    return len(text) if (slash - slashes) % 2 else slash


def written_in_string(text: str, at: int) -> tuple[str, int]:
    """Decode text that is escaped as in a string; returns it with its end."""
    match = _BODY.match(text, at)
    end = match.end() if match else at
    raw = text[at:end]
    try:
        return json.loads(f'"{raw}"', strict=False), end
    except ValueError:
        return _ESCAPE.sub(lambda found: _NAMED.get(found.group()[1:], found.group()), raw), end


_BODY = re.compile(r'[^"\\]*+(?>(?:\\.[^"\\]*+)*)', re.DOTALL)
