"""References to names in JavaScript code: uses of a global, not members, keys or local names.

The code is blanked first (`scan.blank`), so only tokens and brackets are read, each once. Scopes
are those of blocks and functions. Where the code is not clear, a name counts as a reference.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from typing import NamedTuple

_TOKEN = re.compile(r"[\w$]+|\.\.\.|\?\.|=>|[=!]==?|[<>]=|\S")
_CLASS = re.compile(r"(?<![\w$.] )(?<![\w$.])class(?: [\w$]+)?(?: extends [\w$]+)?\Z")
_CLOSES = {")": "(", "]": "[", "}": "{"}
_DECLARES = frozenset({"const", "let", "var"})
_CONDITIONS = frozenset({"if", "for", "await", "while", "switch", "with"})
_BEFORE_METHOD = frozenset({"{", ",", "get", "set", "async", "static", "*"})
_BEFORE_LITERAL = frozenset(
    {
        "=",
        "(",
        ",",
        "[",
        ":",
        "?",
        "...",
        "return",
        "yield",
        "await",
        "&",
        "|",
        "default",
        "in",
        "of",
    }
)
_ENDS = frozenset({",", ";", ")", "]", "}"})
_AFTER_ELEMENT = frozenset({",", "}", "]", ")", "="})
_MOST_STEPS = 1_000_000
"""Tokens that are read to find scopes; declarations beyond them are not recognised."""


class Reference(NamedTuple):
    """A use of a name, with the tokens around it."""

    name: str
    offset: int
    before: str
    after: str


def references(code: str, names: Collection[str]) -> list[Reference]:
    """The uses of global names in blanked code, in the order of the code."""
    return list(_Names(code, names).references())


class _Names:
    def __init__(self, code: str, names: Collection[str]) -> None:
        self._names = names
        self._tokens: list[str] = []
        self._offsets: list[int] = []
        for match in _TOKEN.finditer(code):
            self._tokens.append(match[0])
            self._offsets.append(match.start())
        self._parents: list[int] = []
        self._closing: dict[int, int] = {}
        self._opening: dict[int, int] = {}
        self._is_whole = self._pair()
        self._steps = 0

    def references(self) -> Iterator[Reference]:
        scopes: dict[str, list[tuple[int, int]]] = {}
        used: list[int] = []
        for index, token in enumerate(self._tokens):
            if token not in self._names or self._is_label(index):
                continue
            scope = self._declared(index) if self._is_whole else None
            if scope is None:
                used.append(index)
            else:
                scopes.setdefault(token, []).append(scope)
        merged = {name: _merged(found) for name, found in scopes.items()}
        for index in used:
            if not _holds(merged.get(self._tokens[index], []), index):
                before, after = self._at(index - 1), self._at(index + 1)
                yield Reference(self._tokens[index], self._offsets[index], before, after)

    # --- tokens -----------------------------------------------------------------------------

    def _at(self, index: int) -> str:
        return self._tokens[index] if 0 <= index < len(self._tokens) else ""

    def _pair(self) -> bool:
        opened: list[int] = []
        for index, token in enumerate(self._tokens):
            wanted = _CLOSES.get(token)
            if wanted is not None:
                if not opened or self._tokens[opened[-1]] != wanted:
                    return False
                self._opening[index] = opened[-1]
                self._closing[opened.pop()] = index
            self._parents.append(opened[-1] if opened else -1)
            if token in {"(", "[", "{"}:
                opened.append(index)
        return not opened

    def _parent(self, index: int) -> int:
        return self._parents[index] if self._is_whole else -1

    def _is_label(self, index: int) -> bool:
        """True for a member, a key, a label or the name of a method."""
        before, after = self._at(index - 1), self._at(index + 1)
        if before in {".", "?.", "#"}:
            return True
        if after == ":":
            return before in {"{", ",", ";", "}", ""}
        parent = self._parent(index)
        if parent < 0 or self._tokens[parent] != "{":
            return False
        if self._is_class(parent):
            return before in {"{", "}", ";", "get", "set", "async", "static", "*"}
        return before in _BEFORE_METHOD and after == "(" and self._is_method(index, parent)

    def _is_method(self, index: int, parent: int) -> bool:
        is_literal = self._at(parent - 1) in _BEFORE_LITERAL
        return is_literal and self._at(self._closing[index + 1] + 1) == "{"

    def _is_class(self, brace: int) -> bool:
        """True for the body of a class: `class {`, `class A {`, `class A extends B {`."""
        head = " ".join(self._tokens[max(0, brace - 5) : brace])
        return _CLASS.search(head) is not None

    # --- declarations -----------------------------------------------------------------------

    def _declared(self, index: int) -> tuple[int, int] | None:
        """The scope of the name if it is declared here, as a range of tokens."""
        before, after = self._at(index - 1), self._at(index + 1)
        if before == "var":
            return self._function(index)
        if before in _DECLARES or before == "import":
            return self._block(index)
        is_generator = before == "*" and self._at(index - 2) == "function"
        if is_generator or before in {"function", "class"}:
            return self._named(index, index - 1 - is_generator)
        if after == "=>":
            return self._arrow(index, index + 1)
        return self._pattern(index)

    def _named(self, index: int, keyword: int) -> tuple[int, int]:
        """The scope of the name of a function or class; that of an expression is itself."""
        before = self._at(keyword - 1)
        if before == "async":
            before = self._at(keyword - 2)
        if before not in _BEFORE_LITERAL and before not in {"=>", "!", "new"}:
            return self._block(index)
        at = index + 1
        while self._at(at) not in {"{", ""} and self._may_step():
            at = self._closing.get(at, at) + 1
        return index, self._closing.get(at, at)

    def _pattern(self, index: int) -> tuple[int, int] | None:
        """The scope of a name in a pattern: of `const { a: [ name ] }`, or of parameters."""
        first = last = index
        while self._may_step():
            before, after = self._at(first - 1), self._at(last + 1)
            if before == "...":
                before = self._at(first - 2)
            if before in _DECLARES:
                return self._function(first) if before == "var" else self._block(first)
            parent = self._parent(first)
            bracket = self._at(parent) if parent >= 0 else ""
            if after in _AFTER_ELEMENT | {";", ""} and before == ",":
                scope = self._listed(first)
                if scope is not None:
                    return scope
            if after not in _AFTER_ELEMENT or before not in {"{", "[", "(", ",", ":"}:
                return None
            if bracket == "(":
                return self._parameters(parent)
            if bracket not in {"{", "["}:
                return None
            first, last = parent, self._closing[parent]
        return None

    def _listed(self, index: int) -> tuple[int, int] | None:
        """The scope of a name that is declared behind a comma: `let a = 1, name`."""
        at = index - 1
        while at >= 0 and self._may_step():
            word = self._tokens[at]
            if word in _DECLARES:
                return self._function(at) if word == "var" else self._block(at)
            if word in _CLOSES:
                at = self._opening[at]
            elif word in {";", "{", "(", "[", "=>", "return"}:
                return None
            at -= 1
        return None

    def _parameters(self, opening: int) -> tuple[int, int] | None:
        """The scope of names in parentheses, if these are the parameters of a function."""
        closing = self._closing[opening]
        after, word = self._at(closing + 1), self._at(opening - 1)
        if after == "=>":
            return self._arrow(opening, closing + 1)
        if after != "{" or word in _CONDITIONS:
            return None
        return opening, self._closing[closing + 1]

    def _arrow(self, begin: int, arrow: int) -> tuple[int, int] | None:
        at = arrow + 1
        if self._at(at) == "{":
            return begin, self._closing[at]
        while at < len(self._tokens) and self._may_step():
            token = self._tokens[at]
            if token in _ENDS:
                break
            at = self._closing.get(at, at) + 1
        return begin, at

    def _block(self, index: int) -> tuple[int, int]:
        """The block around a declaration; of the head of a loop, the block around the loop."""
        parent = self._parent(index)
        while parent >= 0 and self._tokens[parent] != "{" and self._may_step():
            parent = self._parent(parent)
        return (parent, self._closing[parent]) if parent >= 0 else (-1, len(self._tokens))

    def _function(self, index: int) -> tuple[int, int]:
        """The body of the function around a `var`."""
        begin, end = self._block(index)
        while begin >= 0 and not self._is_body(begin) and self._may_step():
            begin, end = self._block(begin)
        return begin, end

    def _is_body(self, brace: int) -> bool:
        before = self._at(brace - 1)
        if before != ")":
            return before == "=>"
        return self._at(self._opening[brace - 1] - 1) not in _CONDITIONS | {"catch"}

    def _may_step(self) -> bool:
        self._steps += 1
        return self._steps <= _MOST_STEPS


def _merged(scopes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(scopes):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _holds(scopes: list[tuple[int, int]], index: int) -> bool:
    at = bisect_right(scopes, (index, 1 << 60)) - 1
    return at >= 0 and scopes[at][0] <= index <= scopes[at][1]
