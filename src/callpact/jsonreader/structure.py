"""Objects and lists as models write them, read step by step without recursion.

Each step reads one token and returns the next step. A container is added to its parent when it
opens, so a truncated text still gives all entries before its end. Reading stops behind the value:
`search.py` handles the text around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from callpact.jsonreader.brackets import CLOSERS, CLOSING, VALUE_AHEAD, Brackets
from callpact.jsonreader.cursor import (
    KEY_AHEAD,
    QUOTED_KEY_AHEAD,
    QUOTES,
    SEPARATORS,
    after_space,
)
from callpact.jsonreader.literals import LITERALS
from callpact.jsonreader.reading import MAX_DEPTH, ReadBudget
from callpact.jsonreader.strict import NOTHING, read_span, too_deep

Step: TypeAlias = Callable[[], "Step | None"]

_SPACE = r"[ \t\r\n]*+"
_TEXT = r"""(?:"([^"\\\x00-\x1f]*+)"|'([^'"\\\x00-\x1f]*+)')"""
_KEY = r"""(?:"[^"\\\n]*+"|'[^'"\\\n]*+')"""
_MEMBER = re.compile(rf"{_TEXT}{_SPACE}:{_SPACE}")
_MEMBER_TEXT = re.compile(
    rf"{_TEXT}{_SPACE}(?:,{_SPACE}(?={_KEY}{_SPACE}:)|(?=\}}{_SPACE}(?:[,}}\]]|\Z)))"
)
_ITEM_TEXT = re.compile(
    rf"""{_TEXT}{_SPACE}(?:,{_SPACE}(?=["'{{\[\d])|(?=\]{_SPACE}(?:[,}}\]]|\Z)))"""
)
_ATOM = re.compile(
    rf"""(?:(true|false|null|True|False|None)|(-?(?:0|[1-9]\d{{0,300}}+))((?:\.\d++)?(?:[eE][+\-]?\d++)?))
        {_SPACE}(?:,{_SPACE}(?=["'])|(?=[}}\]]))""",
    re.VERBOSE | re.ASCII,
)
_NEXT = re.compile(rf"""{_SPACE},{_SPACE}(?=["'{{\[])""")
_NAME = re.compile(r"(?:[^\W\d]|\$)[\w$.\-]*+|-?\d++(?:\.\d++)?")
_THREE_DIGITS = re.compile(r"\d{3}\b(?!\.)")
_PATIENCE = 64
"""The highest number of containers read step by step before compiled code is tried again."""


class Structure(Brackets):
    """Reads one value at a position."""

    def __init__(self, text: str, at: int, allow: frozenset[str], budget: ReadBudget) -> None:
        super().__init__(text, at, allow, budget)
        self.value: Any = NOTHING
        self.has_evidence = False
        """True once the text can only be JSON, so that a failure is not prose."""
        self._key = ""
        self._key_at = 0
        self._comma = -1
        self._has_closed = False
        """True if the value just read is a container."""
        self._reopened = False
        self._is_body = False
        self._impatience = 0
        self._wait = 0

    def read(self) -> Any:
        """Read the value at the cursor.

        Raises:
            Unreadable: there is no value, or reading it would be a guess.
        """
        return self._run(self._value)

    def read_body(self) -> Any:
        """Read the members of an object at the cursor; its opening brace is missing."""
        self.note("missing_opener", self.at)
        self._is_body = True
        self._push("{", self.at)
        return self._run(self._member)

    def _run(self, step: Step) -> Any:
        following: Step | None = step
        while following:
            following = following()
        return self.value

    # Values

    def _value(self) -> Step | None:
        at, text = self.at, self.text
        mark = text[at : at + 1]
        if mark in CLOSERS and mark:
            return self._opened(at, mark)
        if self._kinds and (self._quick_text(at, mark) if mark in "\"'" else self._quick_atom(at)):
            if text[self.at] in CLOSING:
                self._is_complete = True
                return self._closed
            return self._member if self._kinds[-1][0] == "{" else self._value
        if mark in QUOTES and mark:
            found = self.string(at, is_key=False)
            self._put(self.joined(found or ""))
        elif self._is_missing(at):
            self.note("missing_value", at)
            self._put(None)
        elif dots := self.ellipsis(at):
            self.note("elided", at)
            self.note("missing_value", at)
            self._put(None)
            self.at = at + dots
        else:
            self._put(self.scalar(at, is_root=self.is_root()))
        return self._after if self._kinds else None

    def _quick_text(self, at: int, mark: str) -> bool:
        """Read a plain string and the comma behind it on a fast path; False if it is not plain."""
        is_member = self._kinds[-1][0] == "{"
        match = (_MEMBER_TEXT if is_member else _ITEM_TEXT).match(self.text, at)
        if not match:
            return False
        if mark == "'":
            self.note("single_quotes", at)
        self._put(match[1] if mark == '"' else match[2])
        self.has_evidence = self.has_evidence or is_member
        self.at = match.end()
        return True

    def _quick_atom(self, at: int) -> bool:
        """Read a plain number or literal and the comma behind it on a fast path; False if not plain."""
        match = _ATOM.match(self.text, at)
        if not match:
            return False
        word, digits, rest = match.groups()
        if word:
            value, code = LITERALS[word]
            if code:
                self.note(code, at)
        elif rest:
            value = self.finite(digits + rest, at, is_integer=False)
        else:
            value = int(digits)
        self._put(value)
        self.has_evidence = self.has_evidence or self._kinds[-1][0] == "{"
        self.at = match.end()
        return True

    def _is_missing(self, at: int) -> bool:
        return bool(self._kinds) and (self.text[at] in SEPARATORS or self.text[at] in CLOSING)

    def _opened(self, at: int, mark: str) -> Step | None:
        if mark != "(" and self._wait <= 0 and self.budget.scans > 0:
            value, end = read_span(self.text, at)
            if value is not NOTHING:
                self._impatience = 0
                self.has_evidence = self.has_evidence or bool(value)
                self._put(value)
                self._check_bracket(at, end - 1)
                self.at = end
                return self._quick_next() if self._kinds else self._continued
            self.budget.scans -= end - at + end // 8
            self._impatience = min(self._impatience * 2 + 1, _PATIENCE)
            self._wait = self._impatience
        self._wait -= 1
        self._push(mark, at)
        if mark == "(":
            self.note("tuple", at)
        is_doubled = mark == "{" and self.text.startswith("{{", at)
        if is_doubled:
            self._kinds[-1] = "{{"
            self.note("doubled_braces", at)
        self.at = self.skip(at + (2 if is_doubled else 1))
        return self._entry

    def _push(self, kind: str, at: int) -> None:
        if len(self._kinds) >= MAX_DEPTH:
            raise too_deep(self.text, at)
        holder: Any = {} if kind == "{" else []
        self._put(holder)
        self._kinds.append(kind)
        self._holders.append(holder)
        self._places.append(at)

    def _put(self, value: Any) -> None:
        self._has_closed = False
        if not self._kinds:
            self.value = value
            return
        holder = self._holders[-1]
        if self._kinds[-1][0] == "{":
            if self._key in holder:
                self.note("duplicate_key", self._key_at)
            holder[self._key] = value
        else:
            holder.append(value)

    # Entries

    def _entry(self) -> Step | None:
        """Read what comes after an opening bracket or a comma."""
        at = self.at
        if self.ends(at):
            return self._finished()
        mark = self.text[at]
        if mark in CLOSING:
            self._is_complete = False
            return self._closed
        dots = self.ellipsis(at)
        if dots:
            self.note("elided", at)
            self.at = self.skip(at + dots)
            if not self.ends(self.at) and self.text[self.at] in SEPARATORS:
                return self._separated
            return self._entry
        if self._kinds[-1][0] != "{":
            return self._value
        if mark in SEPARATORS and (self._holders[-1] or len(self._kinds) == 1):
            self.note("extra_comma", at)
            self.at = self.skip(at + 1)
            return self._entry
        return self._member

    def _member(self) -> Step | None:
        """Read a key and its colon."""
        quick = _MEMBER.match(self.text, self.at)
        if quick:
            double, single = quick.groups()
            if double is None:
                self.note("single_quotes", self.at)
            self._key, self._key_at = single if double is None else double, self.at
            self.has_evidence = True
            self.at = quick.end()
            return self._member_value
        at = self._key_at = self.at
        if self.text[at] in QUOTES:
            key = self.string(at, is_key=True)
            if key is None:
                self.at = self.length
                return self._finished()
            if "\n" in key and "\n" in self.text[at : self.at]:
                raise self.unexpected("a key on one line", at)
        else:
            name = _NAME.match(self.text, at)
            if not name:
                raise self.unexpected("a key", at)
            key = name.group()
            self.at = name.end()
        is_bare = self.text[at] not in QUOTES
        self._key = key
        self.at = self.skip(self.at)
        if self.ends(self.at):
            return self._finished()
        self._colon(is_bare=is_bare)
        if is_bare:
            self.note("unquoted_key", at)
        else:
            self.has_evidence = True
        self.at = self.skip(self.at)
        return self._member_value

    def _colon(self, *, is_bare: bool) -> None:
        at, text = self.at, self.text
        if text[at] == ":":
            self.at = at + 1
            return
        other = next((mark for mark in ("：", "=>", "=") if text.startswith(mark, at)), "")
        if not other and (is_bare or not VALUE_AHEAD.match(text, at)):
            raise self.unexpected("a colon after the key", at)
        self.note("colon", at)
        self.at = at + len(other)

    def _member_value(self) -> Step | None:
        self.at = self.skip(self.at)
        if self.ends(self.at):
            return self._finished()
        return self._value

    # After a value

    def _after(self) -> Step | None:
        behind = self.at
        at = self.at = self.skip(behind)
        self._is_complete = True
        if self.ends(at):
            return self._finished()
        mark = self.text[at]
        kind = self._kinds[-1][0]
        if kind == "{" or self._is_list_of_texts():
            self.has_evidence = True
        if mark in SEPARATORS:
            return self._separated
        if mark in CLOSING:
            return self._closed
        is_key = mark in QUOTES or "\n" in self.text[behind:at]
        if kind == "{" and is_key and KEY_AHEAD.match(self.text, at):
            self._uncommaed(at)
            return self._member
        if kind != "{" and self._is_next_item(at):
            is_joined = mark in QUOTES and isinstance(self._holders[-1][-1], str)
            if is_joined and "\n" not in self.text[behind:at]:
                self.note("adjacent_strings", at)  # Python joins them.
            self._uncommaed(at)
            return self._value
        raise self.unexpected(f"a comma or {CLOSERS[kind]!r}", at)

    def _uncommaed(self, at: int) -> None:
        self.note("missing_comma", at)
        self._has_jumped = self._has_jumped or self._has_closed

    def _is_list_of_texts(self) -> bool:
        """True if the list is no citation or interval: several items, and the last is no number."""
        items = self._holders[-1]
        return len(items) > 1 and isinstance(items[-1], str | dict | list)

    def _is_next_item(self, at: int) -> bool:
        if not VALUE_AHEAD.match(self.text, at) or self._kinds[-1] == "(":
            return False
        before = self._holders[-1][-1]
        if self.text[at] in CLOSERS:
            return isinstance(before, dict | list)
        is_number = isinstance(before, int | float) and not isinstance(before, bool)
        # 12 345 on one line is one number for some and two for others.
        return not (is_number and self.text[at].isdigit() and _THREE_DIGITS.match(self.text, at))

    def _separated(self) -> Step | None:
        comma = self._comma = self.at
        if self.text[comma] != ",":
            self.note("separator", comma)
        at = self.at = self.skip(comma + 1)
        if self.ends(at):
            return self._finished()
        if self.text[at] in CLOSING:
            self._is_complete = False
            self.note("trailing_comma", comma)
            return self._closed
        return self._entry

    # Ends

    def _closed(self) -> Step | None:
        at = self.at
        kind = self._kinds[-1]
        if self.text[at] != CLOSERS[kind[0]] or (kind == "{{" and self.text[at : at + 2] != "}}"):
            return self._mismatched(at)
        if kind == "(" and len(self._holders[-1]) == 1 and self._comma < self._places[-1]:
            raise self.unexpected("a tuple", self._places[-1])
        self._check_bracket(self._places[-1], at)
        self.at = at + len(kind)
        self._pop(len(self._kinds) - 1)
        if not self._kinds:
            return self._continued
        return self._quick_next()

    def _quick_next(self) -> Step:
        """Return the step after a container; a plain comma behind it is skipped."""
        self._has_closed = True
        match = _NEXT.match(self.text, self.at)
        if not match:
            return self._after
        is_object = self._kinds[-1][0] == "{"
        if is_object and self.text[match.end()] in CLOSERS:
            return self._after
        self.has_evidence = True
        self.at = match.end()
        return self._member if is_object else self._value

    def _pop(self, depth: int) -> None:
        del self._kinds[depth:], self._holders[depth:], self._places[depth:]

    def _continued(self) -> Step | None:
        """Check behind the whole value for more members: its brace may have closed too early."""
        value: Any = self.value
        if not isinstance(value, dict) or not value or self.text[self.at - 1] != "}":
            return None
        comma = after_space(self.text, self.at)
        if self.text[comma : comma + 1] != ",":
            return None
        if not QUOTED_KEY_AHEAD.match(self.text, after_space(self.text, comma + 1)):
            return None
        self._bracket("extra_closer", self.at - 1)
        self._reopened = True
        self._kinds, self._holders, self._places = ["{"], [value], [self.at]
        self.at = self.skip(comma + 1)
        return self._member

    def _finished(self) -> None:
        """Handle the end of the text with open brackets."""
        if self._is_body:
            raise self.unexpected("a brace that closes the members", self.at)
        self.truncated(self.at)
        if self._reopened:
            raise self.unexpected("'}'", self.at)
        self._check_layout(0, self.at)
        self._kinds.clear()

    def _mismatched(self, at: int) -> Step | None:
        """Handle a closing bracket of the wrong kind."""
        code, depth, end = self._resolved(at)
        forgotten = len(self._kinds) - depth - sum(mark in CLOSING for mark in self.text[at:end])
        for _ in range(forgotten if code == "missing_closer" else 1):
            self._bracket(code, at)
        self._pop(depth)
        self.at = end
        self._has_closed = True
        return self._after if self._kinds else self._continued
