"""The static scan of a file's code for words that hooks and lists may not use.

It scans code only: comments, texts, the text of templates (not their `${…}`) and regular
expressions are blanked first, in linear time. It warns authors early; the sandbox that runs hooks
contains whatever it misses.

The format forbids imports, and the sandbox has no modules to import. Public files import `crypto`
nevertheless; `compat` gives them the module as if `requiredLibraries` named it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from callpact.sandbox.js.builtin_modules import IMPORTER, NODE, node_module
from callpact.sources.flowmcp.read.hit import Hit
from callpact.sources.flowmcp.read.literal_parser import line_starts, place_of
from callpact.sources.flowmcp.read.references import references

FileKind = Literal["schema", "list"]


class _Use(NamedTuple):
    """A forbidden word in the code, by its offset."""

    offset: int
    key: str
    word: str


def scan(text: str, kind: FileKind = "schema", start: int = 0) -> tuple[Hit, ...]:
    """Every word of the code that a file of this kind may not use, in the order of the text.

    Everything before `start` is known to be data and is not scanned.
    """
    tail = text[start:]
    names = _NAMES if kind == "schema" else {**_NAMES, **_LIST_NAMES}
    patterns = _PATTERNS if kind == "schema" else (*_PATTERNS, *_LIST_PATTERNS)
    named = [name for name in names if name in tail and _WORDS[name].search(tail)]
    suspects = [pattern for pattern in patterns if pattern.word in tail]
    if (
        not named and not suspects
    ):  # Most files have none of the words, comments and texts included.
        return ()
    code = blank(tail)
    uses = [use for pattern in suspects for use in _found(pattern, code, tail)]
    seen = {at for use in uses for at in range(use.offset, use.offset + len(use.word))}
    for used in references(code, named):
        if used.offset not in seen:
            is_made = (used.before, used.name) == ("new", "Function")
            uses.append(_Use(used.offset, "SEC005" if is_made else names[used.name], used.name))
    if not uses:
        return ()
    built_in = {found.offset - start for found in module_imports(text)}
    starts = line_starts(text)
    return tuple(
        Hit(
            _key(use, kind, built_in),
            "",
            f"'{use.word}' must not occur in the code",
            None,
            *place_of(starts, start + use.offset),
        )
        for use in sorted(uses, key=lambda use: use.offset)
    )


def _key(use: _Use, kind: FileKind, built_in: Collection[int]) -> str:
    if kind == "list" and use.key[3] != "2":
        return "SEC204"
    return "SEC001:builtin" if use.key == "SEC001" and use.offset in built_in else use.key


def hooked_tools(text: str, handlers_offset: int, names: Collection[str]) -> frozenset[str]:
    """The tools that `handlers` may have hooks for, by their names in its code.

    A name counts wherever it could be a key, so a tool without a hook may be listed; computed keys
    may be any name.
    """
    tail = text[handlers_offset:]
    code = blank(tail)
    if _computes_keys(code):
        return frozenset(names)
    keys = _keys(code, names) if len(names) <= _MANY else set(_KEY.findall(code))
    keys.update(_QUOTED.findall(tail))
    return frozenset(name for name in names if name in keys)


def uses_hook(text: str, handlers_offset: int, hook: str) -> bool:
    """True if a kind of hook is named in the code of `handlers`."""
    return hook in text[handlers_offset:] and hook in blank(text[handlers_offset:])


# --- forbidden words ------------------------------------------------------------------------

_NAMES = {
    "import": "SEC001",
    "require": "SEC002",
    "eval": "SEC003",
    "Function": "SEC004",
    "process": "SEC006",
    "child_process": "SEC007",
    "fs": "SEC008",
    "globalThis": "SEC011",
    "global": "SEC012",
    "__dirname": "SEC013",
    "__filename": "SEC014",
    "setTimeout": "SEC015",
    "setInterval": "SEC016",
    "XMLHttpRequest": "VAL141",
    "WebSocket": "VAL141",
    "console": "VAL164",
}
"""Names that hooks may not refer to in any way."""
_LIST_NAMES = {"function": "SEC200", "async": "SEC202", "await": "SEC202"}
_WORDS = {name: re.compile(rf"(?<![\w$]){name}(?![\w$])") for name in (*_NAMES, *_LIST_NAMES)}


class _Pattern(NamedTuple):
    """Forbidden code, whatever it refers to."""

    code: str
    word: str
    """A text that every file with such code contains, for a fast test."""
    pattern: re.Pattern[str]


_PATTERNS = (
    _Pattern("SEC005", "constructor", re.compile(r"\.\s*constructor(?![\w$])")),
    _Pattern("SEC005", "constructor", re.compile(r"\[\s*(['\"`])constructor\1\s*\]")),
    _Pattern(
        "SEC005",
        "constructor",
        re.compile(r"(?:const|let|var)\s*\{[^{}=]*(?<![\w$])constructor(?![\w$])[^{}=]*\}\s*="),
    ),
    _Pattern("SEC009", "node:fs", re.compile(r"(?<![\w$])node:fs(?![\w$])")),
    _Pattern("SEC010", "fs/promises", re.compile(r"(?<![\w$])fs/promises(?![\w$])")),
    _Pattern("VAL142", "\\u", re.compile(r"\\u")),
)
_LIST_PATTERNS = (
    _Pattern("SEC201", "=>", re.compile("=>")),
    _Pattern("SEC203", "${", re.compile(r"\$\{")),
)
_READS_A_NAME = re.compile(r"\s*(?:\??\.\s*name(?![\w$])|[!=]==?)")
_COMPARES = re.compile(r"(?:[!=]==?|instanceof\s)\s*[\w$.?]*\Z")
_BEFORE_MEMBER = re.compile(r"(?:[\w$)\]}]|\?\.)\s*\Z")


def _found(searched: _Pattern, code: str, text: str) -> Iterator[_Use]:
    for match in searched.pattern.finditer(text if "'" in searched.pattern.pattern else code):
        begin, end = match.span()
        if searched.code == "SEC005" and not _makes_functions(code, begin, end):
            continue
        yield _Use(begin, searched.code, " ".join(match[0].split()))


def _makes_functions(code: str, begin: int, end: int) -> bool:
    """True if the `constructor` of a value is used, other than to read its name or compare it."""
    if code[begin] not in ".[":
        return True
    before = code[max(0, begin - 100) : begin]
    if code[begin] == "[" and (code[end - 1] != "]" or not _BEFORE_MEMBER.search(before)):
        return False
    return not _READS_A_NAME.match(code, end) and not _COMPARES.search(before)


# --- imports of built-in modules ------------------------------------------------------------

_IMPORT = re.compile(rf"(?<![\w$.])import\s*\(\s*(['\"])((?:node:)?(?:{'|'.join(NODE)}))\1\s*\)")


class ModuleImport(NamedTuple):
    """An import of a module that hooks have."""

    offset: int
    module: str


def module_imports(text: str) -> tuple[ModuleImport, ...]:
    """Every import of a built-in module in a file, in the order of the text."""
    found = [*_IMPORT.finditer(text)]
    if not found:
        return ()
    code = blank(text)
    return tuple(
        ModuleImport(match.start(), node_module(match[2]) or "")
        for match in found
        if code.startswith("import", match.start())
    )


def without_imports(text: str) -> str:
    """The text with imports of built-in modules replaced by calls; all offsets stay the same."""
    parts: list[str] = []
    at = 0
    for offset, _ in module_imports(text):
        parts += (text[at:offset], IMPORTER)
        at = offset + len(IMPORTER)
    return "".join([*parts, text[at:]])


# --- keys -----------------------------------------------------------------------------------

_MANY = 8
_KEY = re.compile(r"(?<![\w$])[\w$]++(?=\s*+[:=(,}])")
_AFTER_KEY = re.compile(r"\s*+[:=(,}]")
_QUOTED = re.compile(r"""(?<=['"`])[^'"`\\\r\n]{1,200}+(?=['"`])""")
_ASSIGNED = re.compile(r"\[\s*+[^\[\]\s][^\[\]]*+\]\s*+=(?![=>])")
_BRACKETS = re.compile(r"\[[^\[\]]*+\]\s*+[:(]")


def _keys(code: str, names: Collection[str]) -> set[str]:
    """The names at positions of keys; for a few names faster than matching every word."""
    return {
        name
        for name in names
        if name and any(_is_key(code, at, name) for at in _places(code, name))
    }


def _places(code: str, name: str) -> Iterator[int]:
    at = code.find(name)
    while at >= 0:
        yield at
        at = code.find(name, at + len(name))


def _is_key(code: str, at: int, name: str) -> bool:
    before = code[at - 1 : at]
    if before.isalnum() or before in {"_", "$"}:
        return False
    return _AFTER_KEY.match(code, at + len(name)) is not None


def _computes_keys(code: str) -> bool:
    """True for `{ [name]: … }`, `{ a, [name]( … ) { … } }`, `a[name] = …`, `Object.fromEntries`."""
    if "fromEntries" in code or _ASSIGNED.search(code):
        return True
    return any(
        code[max(0, match.start() - 80) : match.start()].rstrip()[-1:] in {"{", ","}
        for match in _BRACKETS.finditer(code)
    )


# --- code without texts and comments --------------------------------------------------------

_PIECE = (
    r"(//[^\n\r\u2028\u2029]*+|/\*(?>(?:[^*]++|\*(?!/))*)(?:\*/)?)"  # 1 comment
    r"|('(?>(?:[^'\\\r\n]++|\\(?:\r\n|[\s\S]))*)'?|\"(?>(?:[^\"\\\r\n]++|\\(?:\r\n|[\s\S]))*)\"?)"  # 2 text
    r"|(`)|(/)"  # 3 template, 4 division or regular expression
)
_OUTSIDE = re.compile(_PIECE)
_INSIDE = re.compile(_PIECE + r"|(\{)|(\})")
"""The same inside of `${…}`, where braces are counted."""
_TEMPLATE = re.compile(r"(?>(?:[^`\\$]++|\\[\s\S]|\$(?!\{))*)(`|\$\{)?")
_EXPRESSION = re.compile(
    r"/(?>(?:[^/\\\[\r\n\u2028\u2029]++|\\[^\r\n\u2028\u2029]"
    r"|\[(?>(?:[^\]\\\r\n\u2028\u2029]++|\\[^\r\n\u2028\u2029])*)\])+)/[\w$]*+"
)
_LINE_END = re.compile(r"[\r\n\u2028\u2029]|\Z")
_BEFORE_EXPRESSION = frozenset(
    {"return", "typeof", "instanceof", "in", "of", "new", "delete", "void", "throw", "case"}
    | {"do", "else", "yield", "await"}
)
_LAST_WORD = re.compile(r"[\w$]*\Z")
_LONGEST = 12
"""More letters than any word of `_BEFORE_EXPRESSION` has."""


def blank(text: str) -> str:
    """The text with everything that is not code replaced by spaces; offsets stay the same."""
    return _Blanker(text).run()


class _Blanker:
    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[str] = []
        self._at: int = 0
        self._depths: list[int] = []
        """Open braces of every `${…}` that is open."""
        self._before: str = ""
        """The end of the code so far, without white space."""
        self._divisions_until: int = -1

    def run(self) -> str:
        text = self._text
        while True:
            match = (_INSIDE if self._depths else _OUTSIDE).search(text, self._at)
            if match is None:
                self._keep(len(text))
                return "".join(self._parts)
            start = match.start()
            self._keep(start)
            self._token(match.lastindex or 0, start, match.end())

    def _token(self, kind: int, start: int, end: int) -> None:
        if kind == 1:
            self._blank(end)
        elif kind == 2:
            self._blank(end)
            self._before = "x"
        elif kind == 3:
            self._blank(end)
            self._template()
        elif kind == 4:
            self._slash(start)
        elif kind == 5:
            self._depths[-1] += 1
            self._keep(end)
        else:
            self._close(end)

    def _keep(self, end: int) -> None:
        code = self._text[self._at : end]
        self._parts.append(code)
        self._at = end
        kept = code.rstrip()
        if kept:
            self._before = kept[-_LONGEST:]

    def _blank(self, end: int) -> None:
        self._parts.append(" " * (end - self._at))
        self._at = end

    def _template(self) -> None:
        """The text of a template up to its end or its next `${`, which stays."""
        match = _TEMPLATE.match(self._text, self._at)
        end = match.end() if match else self._at
        if match and match[1] == "${":
            self._blank(end - 2)
            self._keep(end)
            self._depths.append(0)
            return
        self._blank(end)
        self._before = "x"

    def _close(self, end: int) -> None:
        if self._depths[-1]:
            self._depths[-1] -= 1
            self._keep(end)
            return
        self._depths.pop()
        self._keep(end)
        self._template()

    def _slash(self, start: int) -> None:
        if start >= self._divisions_until and self._is_expression():
            match = _EXPRESSION.match(self._text, start)
            if match is not None:
                self._blank(match.end())
                self._before = "x"
                return
            # No end on this line: it is not a regular expression.
            end = _LINE_END.search(self._text, start)
            self._divisions_until = end.start() if end else len(self._text)
        self._keep(start + 1)

    def _is_expression(self) -> bool:
        last = self._before[-1:]
        if last.isalnum() or last in {"_", "$"}:
            word = _LAST_WORD.search(self._before)
            return word is not None and word[0] in _BEFORE_EXPRESSION
        return last not in {")", "]"} and not self._before.endswith(("++", "--"))
