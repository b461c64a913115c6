"""Objects and lists as models write them, read step by step without recursion.

Each step reads one thing and names the next step. A container is put into its parent when it
opens, so whatever the text said before it ended is in the value. Reading stops behind the value:
what stands around it is the business of `reader.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from callpact.answer.reading_clean import NOTHING, read_span, too_deep
from callpact.answer.reading_cursor import (
    CUT_KEY_AHEAD,
    KEY_AHEAD,
    QUOTED_KEY_AHEAD,
    QUOTES,
    SEPARATORS,
    after_space,
)
from callpact.answer.reading_result import MAX_DEPTH
from callpact.answer.reading_scalars import Scalars

Step: TypeAlias = Callable[[], "Step | None"]

CLOSERS = {"{": "}", "[": "]", "(": ")"}
_CLOSING = frozenset("}])")
_MEMBER = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\r\n]*+:[ \t\r\n]*+')
_MEMBER_STRING = re.compile(
    r"""("[^"\\\x00-\x1f]*+")[ \t\r\n]*+
        (?:(?:,[ \t\r\n]*+(?="[^"\\\n]*+"[ \t\r\n]*+:))|(?=\}[ \t\r\n]*+(?:[,}\]]|\Z)))""",
    re.VERBOSE,
)
_ITEM_STRING = re.compile(
    r"""("[^"\\\x00-\x1f]*+")[ \t\r\n]*+
        (?:(?:,[ \t\r\n]*+(?=["{\[\d]))|(?=\][ \t\r\n]*+(?:[,}\]]|\Z)))""",
    re.VERBOSE,
)
_CLOSER_RUN = re.compile(r"[}\])\s]*+")
_NAME = re.compile(r"(?:[^\W\d]|\$)[\w$.\-]*+|-?\d++(?:\.\d++)?+")
_VALUE_AHEAD = re.compile(
    r"""["'`“”„‘’{\[(]|[+\-]?\.?\d|(?:true|false|null|True|False|None|TRUE|FALSE|NULL|NaN|undefined|[+\-]?Infinity)\b"""
)
_ENTRY_LINE = re.compile(r"\n[ \t]*+([^\s}\])/#])")
_INDENT = re.compile(r"[ \t]*+")
_MAX_LINE = 200
"""Characters of a line, at most, in which its beginning is looked for."""
_PATIENCE = 64
"""Containers read step by step, at most, before compiled code is tried again."""


class Structure(Scalars):
    """Reads one value at a place."""

    def __init__(self, text: str, at: int, allow: frozenset[str]) -> None:
        super().__init__(text, at, allow)
        self.value: Any = NOTHING
        self.has_evidence = False
        """True once what was read can only be JSON, so that a failure is not prose."""
        self._kinds: list[str] = []
        self._holders: list[Any] = []
        self._places: list[int] = []
        self._key = ""
        self._key_at = 0
        self._comma = -1
        self._wrong = ""
        """How brackets were found to be wrong."""
        self._has_jumped = False
        """True once a container ended with no comma behind it."""
        self._is_crooked = False
        self._is_complete = False
        """True if a value, and not an opening bracket or a comma, stands before a closing one."""
        self._reopened = False
        self._budget = 4 * self.length
        self._impatience = 0
        self._wait = 0

    def read(self) -> Any:
        """The value at the place of the cursor.

        Raises:
            Unreadable: it is no value, or cannot be read without guessing.
        """
        return self._run(self._value)

    def read_body(self) -> Any:
        """The object whose members begin at the place of the cursor, as its brace is missing."""
        self.note("missing_opener", self.at)
        self._push("{", self.at)
        value = self._run(self._member)
        if any(repair.code == "missing_closer" for repair in self.repairs):
            raise self.unexpected("a brace that closes the members", self.at)
        return value

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
        if mark == '"' and self._kinds:
            is_member = self._kinds[-1][0] == "{"
            quick = (_MEMBER_STRING if is_member else _ITEM_STRING).match(text, at)
            if quick:
                self._put(text[at + 1 : quick.end(1) - 1])
                self.has_evidence = self.has_evidence or is_member
                self.at = quick.end()
                if text[self.at] in _CLOSING:
                    return self._after
                return self._member if is_member else self._value
        if mark in QUOTES and mark:
            found = self.string(at, is_key=False)
            self._put(self.joined(found or ""))
        elif self._is_missing(at):
            self.note("missing_value", at)
            self._put(None)
        else:
            self._put(self.scalar(at, is_root=not self._kinds))
        return self._after if self._kinds else None

    def _is_missing(self, at: int) -> bool:
        return bool(self._kinds) and (self.text[at] in SEPARATORS or self.text[at] in _CLOSING)

    def _opened(self, at: int, mark: str) -> Step | None:
        if mark != "(" and self._wait <= 0 and self._budget > 0:
            value, end = read_span(self.text, at)
            if value is not NOTHING:
                self._impatience = 0
                self.has_evidence = self.has_evidence or bool(value)
                self._put(value)
                self._check_bracket(at, end - 1)
                self.at = end
                return self._after if self._kinds else self._continued
            self._budget -= end - at + end // 8
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
        """What stands behind an opening bracket or a comma."""
        at = self.at
        if self.ends(at):
            return self._finished()
        mark = self.text[at]
        if mark in _CLOSING:
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
        """A key and its colon."""
        quick = _MEMBER.match(self.text, self.at)
        if quick:
            self._key, self._key_at = quick.group(1), self.at
            self.has_evidence = True
            self.at = quick.end()
            return self._member_value
        at = self._key_at = self.at
        if self.text[at] in QUOTES:
            key = self.string(at, is_key=True)
            if key is None:
                self.at = self.length
                return self._cut_member(at)
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
            return self._cut_member(at)
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
        if not other and (is_bare or not _VALUE_AHEAD.match(text, at)):
            raise self.unexpected("a colon after the key", at)
        self.note("colon", at)
        self.at = at + len(other)

    def _member_value(self) -> Step | None:
        self.at = self.skip(self.at)
        if self.ends(self.at):
            return self._cut_member(self._key_at)
        return self._value

    def _cut_member(self, at: int) -> Step | None:
        self.note("cut_member", at)
        return self._finished()

    # What follows a value

    def _after(self) -> Step | None:
        at = self.at = self.skip(self.at)
        self._is_complete = True
        if self.ends(at):
            return self._finished()
        mark = self.text[at]
        kind = self._kinds[-1][0]
        if kind == "{" or self._is_list_of_texts():
            self.has_evidence = True
        if mark in SEPARATORS:
            return self._separated
        if mark in _CLOSING:
            return self._closed
        if kind == "{" and KEY_AHEAD.match(self.text, at):
            self._uncommaed(at)
            return self._member
        if kind != "{" and self._is_next_item(at):
            self._uncommaed(at)
            return self._value
        raise self.unexpected(f"a comma or {CLOSERS[kind]!r}", at)

    def _uncommaed(self, at: int) -> None:
        self.note("missing_comma", at)
        last = self._holders[-1]
        before = last[self._key] if isinstance(last, dict) else last[-1]
        self._has_jumped = self._has_jumped or isinstance(before, dict | list)

    def _is_list_of_texts(self) -> bool:
        """True if this can hardly be a citation or an interval: several items, one is no number."""
        items = self._holders[-1]
        return len(items) > 1 and isinstance(items[-1], str | dict | list)

    def _is_next_item(self, at: int) -> bool:
        if not _VALUE_AHEAD.match(self.text, at):
            return False
        before = self._holders[-1][-1]
        if self.text[at] in CLOSERS:
            return isinstance(before, dict | list)
        is_number = isinstance(before, int | float) and not isinstance(before, bool)
        # 12 345 on one line is one number for some and two for others.
        return not (is_number and self.text[at].isdigit() and _LINE_OF_NUMBERS.match(self.text, at))

    def _separated(self) -> Step | None:
        comma = self._comma = self.at
        if self.text[comma] != ",":
            self.note("separator", comma)
        at = self.at = self.skip(comma + 1)
        if self.ends(at):
            self.note("trailing_comma", comma)
            return self._finished()
        if self.text[at] in _CLOSING:
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
        return self._after if self._kinds else self._continued

    def _pop(self, depth: int) -> None:
        del self._kinds[depth:], self._holders[depth:], self._places[depth:]

    def _continued(self) -> Step | None:
        """Behind the whole value; members that follow show that its brace closed too early."""
        if not isinstance(self.value, dict) or not self.value or self.text[self.at - 1] != "}":
            return None
        comma = after_space(self.text, self.at)
        if self.text[comma : comma + 1] != ",":
            return None
        if not QUOTED_KEY_AHEAD.match(self.text, after_space(self.text, comma + 1)):
            return None
        self._bracket("extra_closer", self.at - 1)
        self._reopened = True
        self._kinds, self._holders, self._places = ["{"], [self.value], [self.at]
        self.at = self.skip(comma + 1)
        return self._member

    def _finished(self) -> None:
        """The text ends here, with brackets open."""
        if self._reopened:
            raise self.unexpected("'}'", self.at)
        self._check_layout(0, self.at)
        for _ in self._kinds:
            self._bracket("missing_closer", self.at)
        self._kinds.clear()

    def _bracket(self, code: str, at: int) -> None:
        """Note what is wrong with a bracket; two kinds of wrong brackets tell nothing together."""
        if self._has_jumped or self._wrong not in {"", code}:
            raise self.unexpected("brackets that match", at)
        self._wrong = code
        self.note(code, at)

    def _check_layout(self, depth: int, at: int) -> None:
        """Refuse to close containers here if the layout says that one was meant to close before.

        An entry that stands no deeper than the line on which its container opened belongs to
        another, and a bracket closes the container that opened on a line with as many spaces.
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
        """The spaces that begin the line of a place; None on the first line, or on a long one."""
        line = self.text.rfind("\n", max(at - _MAX_LINE, 0), at) + 1
        return _end(_INDENT.match(self.text, line)) - line if line else None

    def _check_bracket(self, opened: int, at: int) -> None:
        """Note whether a bracket that begins its line stands below the line that opened it."""
        line = self.text.rfind("\n", max(at - _MAX_LINE, opened), at) + 1
        if line and not self._is_crooked and _end(_INDENT.match(self.text, line)) == at:
            indent = self._indent(opened)
            self._is_crooked = indent is not None and at - line != indent

    def _mismatched(self, at: int) -> Step | None:
        """A closing bracket of another kind: one was forgotten, mistaken or doubled.

        All brackets of the run are taken together, and what follows them decides. Where two
        readings are possible and would differ, there is none.
        """
        end = _end(_CLOSER_RUN.match(self.text, at))
        depths = self._readings(at, end)
        if not depths or (len(set(depths.values())) > 1 and not self.ends(end)):
            raise self.unexpected(repr(CLOSERS[self._kinds[-1][0]]), at)
        code, depth = next(iter(depths.items()))
        self._check_layout(depth if code == "wrong_closer" else depth + 1, at)
        self._bracket(code, at)
        self._pop(depth)
        self.at = at + len(self.text[at:end].rstrip())
        return self._after if self._kinds else self._continued

    def _readings(self, at: int, end: int) -> dict[str, int]:
        """How many containers stay open behind a run of closing brackets, for each reading."""
        closers = [mark for mark in self.text[at:end] if mark in _CLOSING]
        if any(kind == "{{" for kind in self._kinds) or len(closers) > 2 * MAX_DEPTH:
            return {}
        kinds = [CLOSERS[kind] for kind in self._kinds]
        found = {"missing_closer": _nearest(kinds, closers)}
        if self._holders[-1]:
            found["wrong_closer"] = len(kinds) - len(closers)
        if self._is_complete and closers[0] == "}":
            # A list may lack its opening bracket instead; a member cannot lack key and brace.
            found["extra_closer"] = _exact(kinds, closers[1:])
        return {
            code: depth for code, depth in found.items() if depth >= 0 and self._fits(depth, end)
        }

    def _fits(self, depth: int, at: int) -> bool:
        """True if what stands at a place may follow an entry of the container at a depth."""
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
        return not is_key and _VALUE_AHEAD.match(self.text, ahead) is not None

    # What strings ask

    def names(self, at: int) -> bool:
        ahead = after_space(self.text, at)
        if self.ends(ahead) or self.text[ahead] in ":：=":
            return True
        if self.text[ahead] in "/#":
            return True
        return ahead > at and _VALUE_AHEAD.match(self.text, ahead) is not None

    def closes(self, at: int) -> bool:
        ahead = after_space(self.text, at)
        if self.ends(ahead):
            return True
        if not self._kinds:
            return False
        mark = self.text[ahead]
        if mark in _CLOSING:
            return self._settles(ahead)
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
        if self.ends(at) or self.text[at] in _CLOSING or self.text[at] in "/#" or self.ellipsis(at):
            return True
        if in_object:
            text = self.text
            return bool(KEY_AHEAD.match(text, at) or CUT_KEY_AHEAD.match(text, at))
        return _VALUE_AHEAD.match(self.text, at) is not None

    def _settles(self, at: int) -> bool:
        """True if a run of closing brackets after a string leads to something that may follow."""
        end = _end(_CLOSER_RUN.match(self.text, at))
        closers = [mark for mark in self.text[at:end] if mark in _CLOSING][: 2 * MAX_DEPTH]
        kinds = [CLOSERS[kind[0]] for kind in self._kinds]
        depth = max(_exact(kinds, closers), 0)
        if self.ends(end):
            return True
        if depth == 0:
            return self.text[end] not in "\"'“”"
        return (
            self.text[end] in SEPARATORS
            or self.text[end] not in "\"'“”"
            or self._goes_on(end, in_object=kinds[depth - 1] == "}")
        )


_LINE_OF_NUMBERS = re.compile(r"\d{3}\b(?!\.)")


def _end(match: re.Match[str] | None) -> int:
    return match.end() if match else 0


def _exact(kinds: list[str], closers: list[str]) -> int:
    """Containers that stay open when each bracket closes one of its kind; -1 if one does not."""
    left = len(kinds)
    for mark in closers:
        left -= 1
        if left < 0 or kinds[left] != mark:
            return -1
    return left


def _nearest(kinds: list[str], closers: list[str]) -> int:
    """Containers that stay open when each bracket closes all up to the nearest of its kind."""
    left = len(kinds)
    for mark in closers:
        while left > 0 and kinds[left - 1] != mark:
            left -= 1
        left -= 1
        if left < 0:
            return -1
    return left
