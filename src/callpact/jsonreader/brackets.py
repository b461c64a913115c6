"""Decisions about brackets that do not match: missing, wrong or extra ones.

`structure.py` reads the text. If two readings are possible and differ, or the indentation
contradicts the brackets, the text is refused.
"""

from __future__ import annotations

import re
from typing import Any

from callpact.jsonreader.cursor import (
    CUT_KEY_AHEAD,
    KEY_AHEAD,
    QUOTES,
    SEPARATORS,
    after_space,
)
from callpact.jsonreader.literals import WORDS, Scalars
from callpact.jsonreader.reading import MAX_DEPTH, ReadBudget

CLOSERS = {"{": "}", "[": "]", "(": ")"}
"""Opening brackets, and their closing brackets."""
CLOSING = frozenset("}])")
VALUE_AHEAD = re.compile(rf"""["'`“”„‘’{{\[(]|[+\-]?\.?\d|{WORDS}""")
"""The beginning of a value."""
_CLOSER_RUN = re.compile(r"(?>(?:[}\])\s]|\\[nrt])*)")
_ENTRY_LINE = re.compile(r"\n[ \t]*+([^\s}\])/#])")
_INDENT = re.compile(r"[ \t]*+")
_MAX_LINE = 200
"""Characters before a position in which the start of its line is searched."""


class Brackets(Scalars):
    """The open containers, and the checks of the text that may follow them."""

    def __init__(self, text: str, at: int, allow: frozenset[str], budget: ReadBudget) -> None:
        super().__init__(text, at, allow, budget)
        self._kinds: list[str] = []
        self._holders: list[Any] = []
        self._places: list[int] = []
        self._wrong = ""
        """The code of the first wrong bracket."""
        self._has_jumped = False
        """True once a container ended with no comma behind it."""
        self._is_crooked = False
        """True once a bracket contradicted the indentation."""
        self._is_complete = False
        """True if the text before a closing bracket is a value, not an opening bracket or a comma."""

    def _bracket(self, code: str, at: int) -> None:
        """Note a wrong bracket; two kinds of wrong brackets in one text are ambiguous."""
        if self._has_jumped or self._wrong not in {"", code}:
            raise self.unexpected("brackets that match", at)
        self._wrong = code
        self.note(code, at)

    def _check_layout(self, depth: int, at: int) -> None:
        """Refuse to close containers here if the indentation shows that one closed before.

        An entry that is indented no deeper than the line on which its container opened belongs to
        another container, and a bracket closes the container of a line with the same indentation.
        """
        if self._is_crooked:
            raise self.unexpected("brackets that close where the layout says", at)
        if depth >= len(self._places):
            return
        text, keys = self.text, list[tuple[int, int]]()
        for match in _ENTRY_LINE.finditer(text, self._places[depth], at):
            keys.append((match.start(1), match.start(1) - match.start() - 1))
        shallowest = self.length
        for place in reversed(self._places[depth:]):
            while keys and keys[-1][0] > place:
                shallowest = min(shallowest, keys.pop()[1])
            indent = self._indent(place)
            if indent is not None and shallowest <= indent:
                raise self.unexpected("a closing bracket before the line with fewer spaces", at)

    def _indent(self, at: int) -> int | None:
        """Return the indentation of the line of a position; None on the first or on a long line."""
        line = self.text.rfind("\n", max(at - _MAX_LINE, 0), at) + 1
        return _end(_INDENT.match(self.text, line)) - line if line else None

    def _check_bracket(self, opened: int, at: int) -> None:
        """Note whether a bracket that begins its line is aligned with the line that opened it."""
        line = self.text.rfind("\n", max(at - _MAX_LINE, opened), at) + 1
        if line and not self._is_crooked and _end(_INDENT.match(self.text, line)) == at:
            indent = self._indent(opened)
            self._is_crooked = indent is not None and at - line != indent

    def _resolved(self, at: int) -> tuple[str, int, int]:
        """Return the repair for a wrong bracket, the number of open containers after it, and its end.

        All brackets of the run are judged together, by the text that follows them.
        """
        end = _end(_CLOSER_RUN.match(self.text, at))
        depths = self._readings(at, end)
        if not depths or (len(set(depths.values())) > 1 and not self.ends(end)):
            raise self.unexpected(repr(CLOSERS[self._kinds[-1][0]]), at)
        code, depth = next(iter(depths.items()))
        self._check_layout(depth if code == "wrong_closer" else depth + 1, at)
        return code, depth, at + len(self.text[at:end].rstrip())

    def _readings(self, at: int, end: int) -> dict[str, int]:
        """Return the number of open containers after a run of closing brackets, for each repair."""
        closers = [mark for mark in self.text[at:end] if mark in CLOSING]
        if any(kind == "{{" for kind in self._kinds) or len(closers) > 2 * MAX_DEPTH:
            return {}
        kinds = [CLOSERS[kind] for kind in self._kinds]
        found = {"missing_closer": _nearest(kinds, closers)}
        if self._holders[-1]:
            found["wrong_closer"] = len(kinds) - len(closers)
        if self._is_complete and closers[0] == "}":
            # A list may lack its opening bracket instead; a member cannot lack both key and brace.
            found["extra_closer"] = _exact(kinds, closers[1:])
        return {
            code: depth for code, depth in found.items() if depth >= 0 and self._fits(depth, end)
        }

    def _fits(self, depth: int, at: int) -> bool:
        """True if the text at a position may follow an entry of the container at a depth."""
        if self.ends(at):
            return True
        is_comma = self.text[at] in SEPARATORS
        if depth == 0:
            return not is_comma and self.text[at] not in "\"':"
        if not is_comma:
            return False
        ahead = after_space(self.text, at + 1)
        if self.ends(ahead):
            return True
        is_key = KEY_AHEAD.match(self.text, ahead) is not None
        if self._kinds[depth - 1] == "{":
            return is_key
        return not is_key and VALUE_AHEAD.match(self.text, ahead) is not None

    # The abstract methods of Strings

    def is_root(self) -> bool:
        return not self._kinds

    def names(self, at: int) -> bool:
        ahead = after_space(self.text, at)
        if self.ends(ahead) or self.text[ahead] in ":：=":
            return True
        if self.text[ahead] in "/#":
            return True
        return ahead > at and VALUE_AHEAD.match(self.text, ahead) is not None

    def closes(self, at: int) -> bool:
        ahead = after_space(self.text, at)
        if self.ends(ahead):
            return True
        if not self._kinds:
            return False
        mark = self.text[ahead]
        if mark in CLOSING:
            return (mark != ")" or "(" in self._kinds) and self._settles(ahead)
        in_object = self._kinds[-1][0] == "{"
        if mark in SEPARATORS:
            return self._goes_on(after_space(self.text, ahead + 1), in_object=in_object)
        if mark in "/#":
            return ahead > at or self.text.startswith("/*", ahead)
        if mark == "+":
            quote = after_space(self.text, ahead + 1)
            return self.text[quote : quote + 1] in {'"', "'"}
        if in_object:
            is_quoted = mark in QUOTES
            has_break = is_quoted or "\n" in self.text[at:ahead]
            return has_break and KEY_AHEAD.match(self.text, ahead) is not None
        return ahead > at and mark in QUOTES

    def _goes_on(self, at: int, *, in_object: bool) -> bool:
        if self.ends(at) or self.text[at] in CLOSING or self.text[at] in "/#" or self.ellipsis(at):
            return True
        if self.text[at] in SEPARATORS:
            return True
        if in_object:
            text = self.text
            return bool(KEY_AHEAD.match(text, at) or CUT_KEY_AHEAD.match(text, at))
        return VALUE_AHEAD.match(self.text, at) is not None

    def _settles(self, at: int) -> bool:
        """True if the text after a string's run of closing brackets is possible there."""
        end = _end(_CLOSER_RUN.match(self.text, at))
        if self.ends(end):
            return True
        closers = [mark for mark in self.text[at:end] if mark in CLOSING][: 2 * MAX_DEPTH]
        kinds = [CLOSERS[kind[0]] for kind in self._kinds]
        depth = _exact(kinds, closers)
        if depth < 0:
            return any(self._readings(at, end))
        if depth == 0 or self.text[end] in SEPARATORS:
            return self.text[end] not in "\"'“”"
        return self._goes_on(end, in_object=kinds[depth - 1] == "}")


def _end(match: re.Match[str] | None) -> int:
    return match.end() if match else 0


def _exact(kinds: list[str], closers: list[str]) -> int:
    """Return the open containers if each bracket closes one of its kind; -1 if one does not."""
    left = len(kinds)
    for mark in closers:
        left -= 1
        if left < 0 or kinds[left] != mark:
            return -1
    return left


def _nearest(kinds: list[str], closers: list[str]) -> int:
    """Return the open containers if each bracket closes all up to the nearest of its kind."""
    left = len(kinds)
    for mark in closers:
        while left > 0 and kinds[left - 1] != mark:
            left -= 1
        left -= 1
        if left < 0:
            return -1
    return left
