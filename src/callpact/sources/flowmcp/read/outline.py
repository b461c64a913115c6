"""The outline of hook code: functions, object literals, and the objects that a function returns.

It recognises brackets and a few keywords, and reads each part once. It is not a parser: it leaves
out everything that is uncertain, so that no finding is false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from callpact.sources.flowmcp.read.literal_parser import STRINGS, TRIVIA
from callpact.sources.flowmcp.read.scan import blank

_BRACKET = re.compile(r"[()\[\]{}]")
_OPENED_BY = {")": "(", "]": "[", "}": "{"}
_STEP = re.compile(r"[,(\[{)\]}]")
_CODE = re.compile(r"\S")
_KEY = re.compile(r"[\w$]++")
_BARE = re.compile(r"\s*+([\w$]++)\s*+,")
_ASYNC = re.compile(r"async(?![\w$])\s*+")
_ASYNC_METHOD = re.compile(r"async(?=\s)\s*+(?=[\w$])")
_FUNCTION = re.compile(r"function(?![\w$])\s*+(?>(?:[\w$]++\s*+)?)(?=\()")
_ARROW = re.compile(r"\s*+=>\s*+")
_NAMED_ARROW = re.compile(r"[\w$]++\s*+=>\s*+")
_IN_BODY = re.compile(r"[(\[{]|(?<![\w$.])return(?![\w$])")
_LINE_END = re.compile(r"[\r\n\u2028\u2029]")
_CONTINUES = re.compile(r"(?:in|instanceof)(?![\w$])")
_LAST_WORD = re.compile(r"[\w$]++\Z")
_NEAR = 80
"""Characters that are searched backwards for a word."""
_BEFORE_BLOCK = frozenset({"else", "do", "try", "catch"})
_BEFORE_CONDITION = frozenset({"if", "for", "while", "switch", "await", "catch"})


class Member(NamedTuple):
    """A member of an object literal; offsets are those of the outline's code."""

    key: str | None
    """None for a computed key, a spread or an accessor."""
    offset: int
    value: int
    """Offset of its value, of the parameters of a method, or of a bare name itself."""
    end: int
    is_method: bool


class Function(NamedTuple):
    """A function expression, arrow function or method."""

    body: int
    """Offset of its block, or of the object that it returns; -1 for any other expression."""
    is_block: bool


class Outline:
    """The code of a file from an offset on; `is_whole` if its brackets match."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text[start:]
        self.code = blank(self.text)
        self._closing: dict[int, int] = {}
        self.is_whole = self._pair()

    def function_at(self, at: int) -> Function | None:
        """The function that is the whole of an expression."""
        match = _ASYNC.match(self.code, at)
        begin = match.end() if match else at
        if self.code[begin : begin + 1] == "(":
            arrow = _ARROW.match(self.code, self._closing[begin] + 1)
            return arrow and self._given(arrow.end())
        word = _FUNCTION.match(self.code, begin)
        if word is not None:
            return self.method_at(word.end())
        arrow = _NAMED_ARROW.match(self.code, begin)
        return arrow and self._given(arrow.end())

    def method_at(self, at: int) -> Function | None:
        """The function whose parameters begin here and whose block comes after them."""
        body = self._next(self._closing[at] + 1)
        return self._block(body) if self.code[body : body + 1] == "{" else None

    def object_at(self, at: int) -> bool:
        """True for an object literal that is the whole of an expression."""
        return self.code[at : at + 1] == "{" and self._is_end(self._closing[at] + 1)

    def end_of(self, at: int) -> int:
        """The offset after the bracket that closes the one at this offset."""
        return self._closing[at] + 1

    def members(self, at: int) -> Iterator[Member]:
        """The members of the object literal that begins here."""
        last = self._closing[at]
        begin = at + 1
        while begin < last:
            bare = _BARE.match(self.code, begin)
            if bare is not None:
                offset, begin = bare.start(1), bare.end()
                yield Member(bare[1], offset, offset, begin - 1, is_method=False)
                continue
            offset = self._after_trivia(begin)
            if offset >= last:
                return
            member = self._member(offset)
            yield member
            begin = member.end + 1

    def returned(self, function: Function) -> Iterator[int]:
        """The object literals that a function returns, by where they begin."""
        if not function.is_block:
            if function.body >= 0:
                yield function.body
            return
        last = self._closing[function.body]
        if "finally" in self.code[function.body : last]:  # A `return` in it would override others.
            return
        at, condition = function.body + 1, -1
        while (match := _IN_BODY.search(self.code, at, last)) is not None:
            begin, at = match.span()
            if match[0] == "return":
                found = self._literal_after(at)
                if found is not None:
                    yield found
                    at = self._closing[found] + 1
            elif match[0] != "{" or not self._is_block(begin, condition):
                # A `return` in an expression or in another function is not one of this function.
                condition = begin
                at = self._closing[begin] + 1

    def before(self, at: int) -> str:
        """The code before an offset, without trailing white space."""
        return self.code[max(0, at - _NEAR) : at].rstrip()

    def word_before(self, at: int) -> str:
        """The word that ends here, if one does."""
        match = _LAST_WORD.search(self.before(at))
        return match[0] if match else ""

    def _pair(self) -> bool:
        opened: list[int] = []
        code = self.code
        for match in _BRACKET.finditer(code):
            bracket = match[0]
            wanted = _OPENED_BY.get(bracket)
            if wanted is None:
                opened.append(match.start())
            elif not opened or code[opened[-1]] != wanted:
                return False
            else:
                self._closing[opened.pop()] = match.start()
        return not opened

    def _next(self, at: int) -> int:
        match = _CODE.search(self.code, at)
        return match.start() if match else len(self.code)

    def _after_trivia(self, at: int) -> int:
        match = TRIVIA.match(self.text, at)
        return match.end() if match else at

    def _member(self, at: int) -> Member:
        prefix = _ASYNC_METHOD.match(self.code, at)
        at = prefix.end() if prefix else at
        pattern = STRINGS.get(self.text[at : at + 1], _KEY)
        match = pattern.match(self.text, at)
        if match is None or "\\" in match[0]:
            return self._made(None, at, at)
        key = match[0] if pattern is _KEY else match[1]
        after = self._after_trivia(match.end())
        sign = self.text[after : after + 1]
        if sign == "(":
            return self._made(key, at, after, is_method=True)
        if prefix is None and sign == ":":
            return self._made(key, at, self._after_trivia(after + 1))
        is_bare = prefix is None and pattern is _KEY and sign in {",", "}"}
        return self._made(key if is_bare else None, at, at)

    def _made(self, key: str | None, at: int, value: int, *, is_method: bool = False) -> Member:
        return Member(key, at, value, self._member_end(value), is_method)

    def _member_end(self, at: int) -> int:
        while True:
            match = _STEP.search(self.code, at)
            if match is None:
                return len(self.code)
            if match[0] not in "([{":
                return match.start()
            at = self._closing[match.start()] + 1

    def _given(self, body: int) -> Function | None:
        """The function whose arrow ends here."""
        sign = self.code[body : body + 1]
        if sign == "{":
            return self._block(body)
        if sign == "(":
            literal = self._literal_in(body)
            if literal is not None:
                return Function(literal, is_block=False)
        return Function(-1, is_block=False)

    def _block(self, body: int) -> Function | None:
        is_all = self._is_end(self._closing[body] + 1)
        return Function(body, is_block=True) if is_all else None

    def _literal_after(self, at: int) -> int | None:
        """The object literal that is the whole expression of a `return`."""
        begin = self._next(at)
        if _LINE_END.search(self.text, at, begin):  # There, `return` alone is the statement.
            return None
        sign = self.code[begin : begin + 1]
        if sign == "(":
            return self._literal_in(begin)
        return begin if sign == "{" and self.object_at(begin) else None

    def _literal_in(self, at: int) -> int | None:
        """The object literal that fills parentheses, if these are a whole expression."""
        begin, last = self._next(at + 1), self._closing[at]
        if self.code[begin : begin + 1] != "{" or self._next(self._closing[begin] + 1) != last:
            return None
        return begin if self._is_end(last + 1) else None

    def _is_end(self, at: int) -> bool:
        """True if an expression that may end here ends here."""
        after = self._next(at)
        sign = self.code[after : after + 1]
        if sign in {"", ",", ";", ")", "]", "}"}:
            return True
        return _KEY.match(sign) is not None and not _CONTINUES.match(self.code, after)

    def _is_block(self, at: int, condition: int) -> bool:
        """True for a block of statements, by the code before it; `condition` is the last bracket."""
        last = self.before(at)[-1:]
        if last == ")":
            return self.word_before(condition) in _BEFORE_CONDITION
        return last in {";", "{", "}"} or self.word_before(at) in _BEFORE_BLOCK
