"""The search for values in a text with fences, tags, thinking and prose.

Everything that looks like JSON is tried. If a part is clearly meant as JSON and fails, the whole
text fails: a value inside it would be a fragment. `candidates.py` chooses among the found values.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

from callpact.jsonreader.brackets import CLOSERS
from callpact.jsonreader.candidates import Candidate, FitCheck, choose, is_readable, scalars
from callpact.jsonreader.cursor import QUOTED_KEY_AHEAD, after_space
from callpact.jsonreader.literals import WORDS
from callpact.jsonreader.reading import (
    MAX_DEPTH,
    MAX_MARKS,
    ReadBudget,
    ReadResult,
    Repair,
    Unreadable,
    refusal,
    repair,
    truncation,
)
from callpact.jsonreader.strict import NOTHING, check_depth, is_cut, read_clean
from callpact.jsonreader.strings import written_in_string
from callpact.jsonreader.structure import Structure

_TAG = r"(?:think(?:ing)?|thoughts?|reasoning|scratchpad)"
_THOUGHT = (
    rf"<{_TAG}\b[^<>\n]{{0,200}}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|channel\|>analysis\b"
)
_THOUGHT_ENDED = (
    rf"</{_TAG}\s*>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>"
    r"|<\|channel\|>final\b[^<>\n]{0,40}(?:<\|constrain\|>[^<>\n]{0,20})?<\|message\|>"
)
_MARK = re.compile(rf"{_THOUGHT}|{_THOUGHT_ENDED}|[{{}}\[\]]|`{{3,}}+|~{{3,}}+", re.IGNORECASE)
_THOUGHT_END = re.compile(_THOUGHT_ENDED, re.IGNORECASE)
_LANGUAGE = re.compile(r"[ \t]*+([A-Za-z0-9_+#.\-]*+)")
_LOOKS_LIKE_JSON = re.compile(
    rf"""\{{\s*+(?:["'“”„‘’`}}…]|\.\.\.|//|/\*|\#|\Z
            |(?:[^\W\d]|\$)[\w$.\-]*+\s*+(?:[:：](?!//)|=>?)|\d++\s*+:)
        |\{{\{{\s*+["']
        |\[\s*+(?:["'“”„‘’`{{\[(\]\d+\-.…]|//|/\*|\#|[A-Za-z]{{0,9}}\Z|{WORDS})""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"""[{\[](?>(?:\\[nrt]|[\s{\[]){0,100})\\++\"""")
_ROOT_SCALAR = re.compile(rf"[\"'`“”„‘’]|[+\-]?[\d.]|{WORDS}")
_DECORATION = re.compile(
    r"""[\s\ufeff\u200b-\u200d\u2060]++
        |(?:```|~~~)[`~]*+[ \t]*+[A-Za-z0-9_+\#.\-]*+
        |</?[A-Za-z][\w:.\-]*+(?:\s[^<>\n]{0,200}+)?>""",
    re.VERBOSE,
)
_PLAIN_BEFORE = re.compile(r"[^{}\[\]<◁`~\"']*+(?:```[ \t]*+(?:json)?\s*+)?(?=[{\[])")
_PLAIN_BEHIND = re.compile(r"\s*+(?:```)?[^{}\[\]<◁`~]*+\Z")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?>(?:\\.[^"\\\x00-\x1f]*+)*)"')
_DECORATIONS = (("fence", "```"), ("fence", "~~~"), ("tag", "<"))
_ODD_SPACE = re.compile(r"[\ufeff\u200b-\u200d\u2060]|[^\S \t\r\n]")
_JSON_MARK = re.compile(r'["{}\[\]]')
_GOES_ON = re.compile(r"\s*+[,，]\s*+\Z")
"""A comma at the end of the text: the text is incomplete."""
_TOKEN = re.compile(r'"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"|[{}\[\]]')
_BRACKETS = frozenset({"extra_closer", "missing_closer", "missing_opener", "wrong_closer"})
_FATAL = frozenset({"too_deep", "too_many_repairs"})
_LEVELS = 3
"""The highest number of times that JSON may be escaped."""


class _Suspect(NamedTuple):
    mark: str
    error: Unreadable | None
    at: int
    is_harmless: bool = False
    """True for brackets that belong to prose or code."""


class Search:
    """One text, searched from its beginning to its end."""

    def __init__(
        self, text: str, allow: frozenset[str], fits: FitCheck | None = None, *, level: int = 0
    ) -> None:
        self._text = text
        self._allow = allow
        self._fits = fits
        self._level = level
        self._begin = 0
        """Where the text after the thinking begins."""
        self._first = _decorated(text, 0)
        """The first position there that is no space, fence or tag."""
        self._thought = -1
        self._found: list[Candidate] = []
        self._suspects: list[_Suspect] = []
        self._first_error: Unreadable | None = None
        self._is_fenced = self._is_program = False
        self._fenced = -1
        """Where the content of the last fence begins."""
        self._tried: set[str] = set()
        self._budget = ReadBudget(text)
        self._stray = -1
        """The position of a closing bracket without an opening one."""
        self._index = -1
        """The end of the last index: `items[0]`."""

    def read(self) -> ReadResult:
        """Return the value and its repairs.

        Raises:
            Unreadable: there is no value, or reading it would be a guess.
        """
        text = self._text
        plain = self._plain() or self._string()
        if plain:
            return plain
        first = self._first
        if text.startswith('"', first) and is_cut(text, first, self._budget):
            return self._scalar()
        place = self._start()
        for _ in range(MAX_MARKS):
            match = _MARK.search(text, place)
            if not match:
                return self._chosen()
            place = self._mark(match.group(), match.start(), match.end())
        message = f"Expected JSON, got more than {MAX_MARKS:,} brackets and fences around it"
        raise Unreadable("too_many_marks", message, text, place)

    def _plain(self) -> ReadResult | None:
        """Read JSON with only words and a fence around it, the most frequent case, on a fast path."""
        text = self._text
        before = _PLAIN_BEFORE.match(text)
        if not before:
            return None
        start = before.end()
        end = text.rfind(CLOSERS[text[start]]) + 1
        if not _PLAIN_BEHIND.match(text, end) or self._is_part(start, end):
            return None
        if text[start] == "[" and text[start - 1 : start] not in "\n`":
            return None  # It may be an index, a link or a check box.
        value = self._whole(text[start], start)
        if value is NOTHING or (is_bare(value) and not is_apart(text, start, end)):
            return None
        if any(scalars(text, 0, start)) or any(scalars(text, end, len(text))):
            return None
        if _GOES_ON.match(text, end):
            return None
        return ReadResult(value, tuple(self._around(start, end)))

    def _string(self) -> ReadResult | None:
        """Read a JSON string with a fence around it."""
        start = self._first
        string = _STRING.match(self._text, start)
        if not string or _decorated(self._text, string.end()) < len(self._text):
            return None
        value = read_clean(string.group())
        if value is NOTHING:
            return None
        around = self._around(start, string.end())
        inner = self.within(value)
        if inner:
            return ReadResult(
                inner.value, (*around, *(Repair(n.code, start, n.message) for n in inner.repairs))
            )
        return ReadResult(value, tuple(around))

    def within(self, value: str) -> ReadResult | None:
        """Read the JSON inside a string, if the schema accepts that and not the string."""
        if self._fits is None or self._level >= _LEVELS or self._fits(value):
            return None
        try:
            read = Search(value, self._allow, self._fits, level=self._level + 1).read()
        except Unreadable:
            return None
        if not self._fits(read.value):
            return None
        return ReadResult(read.value, (repair("escaped", 0), *read.repairs))

    def _mark(self, mark: str, at: int, end: int) -> int:
        if mark in CLOSERS:
            return self._opener(mark, at)
        if mark in "}]":
            if self._suspects and CLOSERS[self._suspects[-1].mark] == mark:
                self._suspects.pop()
            elif self._stray < 0 and not self._is_program and not is_interval(self._text, at):
                self._stray = at
            return end
        if mark[0] in "`~":
            return self._fence(at, end)
        if _THOUGHT_END.match(mark):
            return self._thought_ended(end)
        closing = _THOUGHT_END.search(self._text, end)
        # Thinking that is not closed contains no answer.
        return self._thought_ended(closing.end(), at) if closing else len(self._text)

    def _start(self) -> int:
        """Return where the search starts: 0, or behind an object whose first brace is missing."""
        text = self._text
        at = self._first
        if not QUOTED_KEY_AHEAD.match(text, at):
            return 0
        reading = Structure(text, at, self._allow, self._budget)
        value = reading.read_body()
        check_depth(value, text)
        return self._take(at, reading.at, value, reading.repairs)

    def _fence(self, at: int, end: int) -> int:
        if self._is_fenced:
            self._is_fenced = self._is_program = False
            return end
        match = _LANGUAGE.match(self._text, end)
        self._fenced = match.end() if match else end
        self._is_fenced = True
        self._is_program = is_program(self._text, at, end, self._fenced)
        self._suspects.clear()
        return self._fenced

    def _thought_ended(self, end: int, at: int = -1) -> int:
        """Discard the text before a position as thinking; its values are not the answer."""
        if self._thought < 0:
            self._thought = self._begin if at < 0 else at
        self._begin = end
        self._first = max(self._first, end)
        if self._first == end:
            self._first = _decorated(self._text, end)
        self._stray = -1
        self._found.clear()
        self._suspects.clear()
        self._is_fenced = self._is_program = False
        return end

    def _opener(self, mark: str, at: int) -> int:
        text = self._text
        if len(self._suspects) >= MAX_DEPTH:
            message = (
                f"Expected JSON, got more than {MAX_DEPTH} brackets in each other that hold none"
            )
            raise Unreadable("too_deep", message, text, at)
        if _ESCAPED.match(text, at) and self._level < _LEVELS:
            return self._escaped(at)
        if self._is_harmless(mark, at):
            self._suspects.append(_Suspect(mark, None, at, is_harmless=True))
            return at + 1
        if not _LOOKS_LIKE_JSON.match(text, at) and at > self._first:
            self._suspects.append(_Suspect(mark, None, at))
            return at + 1
        value = self._whole(mark, at)
        if value is NOTHING and "truncated" not in self._allow and is_cut(text, at, self._budget):
            return self._failed(mark, at, truncation(text, len(text)), is_json=True)
        if value is not NOTHING:
            return self._take(at, text.rfind(CLOSERS[mark]) + 1, value, [])
        reading = Structure(text, at, self._allow, self._budget)
        try:
            value = reading.read()
        except Unreadable as error:
            self._spend(max(reading.at, reading.reached, error.at) - at, at)
            return self._failed(mark, at, error, is_json=reading.has_evidence)
        check_depth(value, text)
        return self._take(at, reading.at, value, reading.repairs)

    def _is_harmless(self, mark: str, at: int) -> bool:
        """True for a bracket of prose or code: an index, a link, a check box, a LaTeX command."""
        text = self._text
        if mark == "{":
            return is_command(text, at)
        if (is_index(text, at) and at != self._fenced) or self._index == at:
            self._index = text.find("]", at) + 1
            return True
        return is_no_list(text, at)

    def _spend(self, characters: int, at: int) -> None:
        self._budget.steps -= characters
        if self._budget.steps < 0:
            message = "Expected JSON, got too many beginnings of JSON that lead nowhere"
            raise Unreadable("too_many_marks", message, self._text, at)

    def _whole(self, mark: str, at: int) -> Any:
        """Read from a bracket to the last closing bracket of its kind, if that is JSON; tried once."""
        if mark in self._tried:
            return NOTHING
        self._tried.add(mark)
        return read_clean(self._text[at : self._text.rfind(CLOSERS[mark]) + 1])

    def _failed(self, mark: str, at: int, error: Unreadable, *, is_json: bool) -> int:
        if error.code in _FATAL:
            raise error
        is_code = self._is_program and at != after_space(self._text, self._fenced)
        if is_code or (not self._found and is_placeholder(self._text, error.at)):
            end = self._balanced(at)
            if end and (is_code or is_template(self._text, at, end)):
                self._first_error = self._first_error or error
                return end
        if is_json and not is_code:
            closing = _THOUGHT_END.search(self._text, at)
            if closing and self._thought < 0:
                return self._thought_ended(closing.end())
            raise error
        self._first_error = self._first_error or error
        self._suspects.append(_Suspect(mark, error, at))
        return at + 1

    def _balanced(self, at: int) -> int:
        """Return the end of balanced brackets, ignoring strings; 0 if they are not closed."""
        depth = 0
        for match in _TOKEN.finditer(self._text, at):
            mark = match.group()
            depth += (mark in CLOSERS) - (mark in "}]")
            if depth == 0:
                self._spend(match.end() - at, at)
                return match.end()
        self._spend(len(self._text) - at, at)
        return 0

    def _escaped(self, at: int) -> int:
        """Read JSON whose quotes are escaped as in a string."""
        inner, end = written_in_string(self._text, at)
        try:
            read, behind = self._unescaped(inner)
        except Unreadable as error:
            raise Unreadable(error.code, error.message, self._text, at) from None
        if _MARK.search(inner, behind):
            raise Unreadable("unexpected", "Expected one value that is escaped", self._text, at)
        notes = [repair("escaped", at), *(Repair(n.code, at, n.message) for n in read.repairs)]
        return self._take(at, end, read.value, notes)

    def _unescaped(self, inner: str) -> tuple[ReadResult, int]:
        """Return the value at the start of a text, and where it ends."""
        if _ESCAPED.match(inner):
            search = Search(inner, self._allow, self._fits, level=self._level + 1)
            return search.read(), len(inner)
        reading = Structure(inner, 0, self._allow, ReadBudget(inner))
        value = reading.read()
        check_depth(value, inner)
        return ReadResult(value, tuple(reading.repairs)), reading.at

    def _take(self, start: int, end: int, value: Any, repairs: list[Repair]) -> int:
        """Add a candidate; returns the position behind it."""
        text = self._text
        for suspect in self._suspects:
            if not suspect.is_harmless and not (self._is_program and suspect.error is None):
                message = "Expected JSON, got brackets that hold JSON and something else"
                raise suspect.error or Unreadable("unexpected", message, text, suspect.at)
        notes = list(repairs)
        behind = after_space(text, end)
        while behind < len(text) and text[behind] in "}]" and not self._suspects:
            # A list may lack its opening bracket; an object cannot lack both key and brace.
            if text[behind] != "}" or text[end - 1] != "}" or not value:
                raise self._stray_bracket(behind)
            if "extra_closer" not in self._allow:
                raise refusal("extra_closer", text, behind)
            notes.append(repair("extra_closer", behind))
            end = behind + 1
            behind = after_space(text, end)
        wrong = {note.code for note in notes} & _BRACKETS if notes else frozenset[str]()
        if len(wrong) > 1 or (
            wrong == {"extra_closer"} and _JSON_MARK.search(text, self._begin, start)
        ):
            raise self._stray_bracket(end - 1)
        if self._is_part(start, end):
            message = "Expected one value, got entries without the brackets around them"
            raise Unreadable("unexpected", message, text, start)
        is_doubtful = is_bare(value) and not is_apart(text, start, end)
        self._found.append(Candidate(start, end, value, tuple(notes), is_doubtful))
        return end

    def _is_part(self, start: int, end: int) -> bool:
        """True if a value is one of several entries without brackets around them."""
        if self._found and self._text[self._found[-1].end : start].strip() == ",":
            return False
        return is_part(self._text, start, end)

    def _stray_bracket(self, at: int) -> Unreadable:
        message = f"Expected brackets that match, got {self._text[at]!r}, which closes nothing"
        return Unreadable("unexpected", message, self._text, at)

    def _chosen(self) -> ReadResult:
        if not self._found:
            return self._scalar()
        if self._stray >= 0:
            raise self._stray_bracket(self._stray)
        for suspect in self._suspects:
            if suspect.error:
                raise suspect.error
        text = self._text
        is_cut = _GOES_ON.match(text, self._found[-1].end) is not None
        if is_cut and "truncated" not in self._allow:
            raise truncation(text, len(text))
        answer = choose(text, self._all(), self._allow, self._fits)
        if not is_readable(answer, self._fits):
            raise self._first_error or self._nothing(answer.start)
        notes = [*self._around(answer.start, answer.end), *answer.repairs]
        notes += [repair("truncated", len(text))] if is_cut else []
        return ReadResult(answer.value, tuple(sorted(notes, key=_place)))

    def _all(self) -> list[Candidate]:
        """Return the found values, with strings, numbers and literals that are alone on a line."""
        text, place = self._text, self._begin
        found: list[Candidate] = []
        for each in self._found:
            found += [*scalars(text, place, each.start), each]
            place = each.end
        found += scalars(text, place, len(text))
        if len(found) > MAX_MARKS:
            message = f"Expected one value, got more than {MAX_MARKS:,}"
            raise Unreadable("too_many_marks", message, text, 0)
        return found

    def _scalar(self) -> ReadResult:
        """Read a text that is one string, number or literal, with only a fence around it."""
        text = self._text
        start = self._first
        if not _ROOT_SCALAR.match(text, start):
            raise self._first_error or self._nothing(start)
        reading = Structure(text, start, self._allow, self._budget)
        try:
            value = reading.read()
        except Unreadable as error:
            raise self._first_error or error from None
        if _decorated(text, reading.at) < len(text):
            raise self._first_error or self._nothing(start)
        notes = [*self._around(start, reading.at), *reading.repairs]
        return ReadResult(value, tuple(sorted(notes, key=_place)))

    def _nothing(self, at: int) -> Unreadable:
        found = repr(self._text[at : at + 40]) if at < len(self._text) else "an empty text"
        return Unreadable("no_json", f"Expected JSON, got {found}", self._text, at)

    def _around(self, start: int, end: int) -> list[Repair]:
        """Return the omitted text before and after the value, as repairs."""
        text, notes = self._text, list[Repair]()
        if self._thought >= 0:
            notes.append(repair("thinking", self._thought))
        seen: set[str] = set()
        for begin, stop in ((self._begin, start), (end, len(text))):
            side = text[begin:stop]
            if not side.strip(" \t\r\n"):
                continue
            for code, mark in _DECORATIONS:
                if code not in seen and (at := side.find(mark)) >= 0:
                    seen.add(code)
                    notes.append(repair(code, begin + at))
            prose = _decorated(text, begin, stop)
            if prose < stop:
                notes.append(repair("prose", prose))
            elif not side.isascii() and (space := _ODD_SPACE.search(side)):
                notes.append(repair("whitespace", begin + space.start()))
        return notes


def _decorated(text: str, begin: int, end: int | None = None) -> int:
    """Return the first position that is neither space nor fence nor tag."""
    end = len(text) if end is None else end
    while match := _DECORATION.match(text, begin, end):
        begin = match.end()
    return begin


def _place(note: Repair) -> int:
    return note.at


# --- around a bracket -------------------------------------------------------------------------

_SCALAR = r"""(?:"[^"\\\n]*+"|-?\d[\d.eE+\-]*+|(?:true|false|null)\b)"""
_PART_BEFORE = re.compile(
    rf"""(?:["'”’]\s*+[:：]|(?:(?:\A|[,:\[{{\n])\s*+{_SCALAR}|[}}\]])\s*+,)\Z"""
)
"""A key before a value, or an item of a list."""
_PART_BEHIND = re.compile(rf"""\s*+(?:,\s*+{_SCALAR}\s*+(?:[,\]}}]|\Z)|,?\s*+"[^"\\\n]*+"\s*+:)""")
_APART_BEFORE = re.compile(r"(?:\A|\n|>|```[a-z]*|[\w*] ?[:=])[ \t]*\Z")
_APART_BEHIND = re.compile(r"[ \t]*+[.;]?+[ \t]*+(?:[\r\n<]|```|\Z)")
_GLUED = re.compile(r"[A-Za-z0-9_]\Z")
_NO_LIST = re.compile(
    r"""\[[^\[\]\n]{0,100}+\]\(
        |\[[^\[\](){}"',;\n]{1,40}+[,;][^\[\](){}"',;\n]{1,40}+\)""",
    re.VERBOSE,
)
"""A link, or an interval that is open at its end."""
_INTERVAL = re.compile(r"""\([^()\[\]{}"',;\n]{1,40}+[,;][^()\[\]{}"',;\n]{1,40}+\Z""")
_BULLET = re.compile(r"(?:\A|\n)[ \t]*+(?:[\-*+]|\d{1,4}+[.)])[ \t]++\Z")
_COMMAND = re.compile(r"\\[A-Za-z]{1,30}\s?\Z")
_BEFORE_FENCE = re.compile(r"(?:\A|\n)[ \t>\-*]*+(?:\d{1,4}+[.)])?[ \t]*+\Z")
_LANGUAGES = frozenset(
    [
        *("bash", "c", "c#", "c++", "cpp", "csharp", "css", "dart", "diff", "elixir", "go"),
        *("graphql", "haskell", "html", "java", "javascript", "js", "jsx", "julia", "kotlin"),
        *("latex", "lua", "makefile", "matlab", "mermaid", "perl", "php", "powershell", "py"),
        *("python", "python3", "r", "rb", "rs", "ruby", "rust", "scala", "sh", "shell", "sql"),
        *("swift", "toml", "ts", "tsx", "typescript", "xml", "yaml", "yml", "zsh"),
    ]
)


def is_program(text: str, at: int, begin: int, end: int) -> bool:
    """True if a fence at the beginning of a line names a language whose brackets are not JSON."""
    language = text[begin:end].strip().lower()
    return language in _LANGUAGES and _BEFORE_FENCE.search(text[max(at - 80, 0) : at]) is not None


def is_command(text: str, at: int) -> bool:
    """True for the brace of a LaTeX command around a value."""
    inner = after_space(text, at + 1)
    before = text[max(at - 40, 0) : at]
    return text[inner : inner + 1] in CLOSERS and _COMMAND.search(before) is not None


def is_index(text: str, at: int) -> bool:
    """True for the bracket of `items[0]`."""
    return _GLUED.match(text[at - 1 : at]) is not None if at else False


def is_no_list(text: str, at: int) -> bool:
    """True for a link, an open interval, and an empty check box."""
    if _NO_LIST.match(text, at):
        return True
    return text.startswith("[ ]", at) and _BULLET.search(text[max(at - 40, 0) : at]) is not None


def is_interval(text: str, at: int) -> bool:
    """True for the bracket at the end of `(0, 1]`."""
    return text[at] == "]" and _INTERVAL.search(text[max(at - 90, 0) : at]) is not None


def is_part(text: str, start: int, end: int) -> bool:
    """True for a value after a key, or between items without brackets around them."""
    before = text[max(start - 100, 0) : start].rstrip()
    return (
        before.endswith((",", ":", "：")) and _PART_BEFORE.search(before) is not None
    ) or _PART_BEHIND.match(text, end) is not None


def is_apart(text: str, start: int, end: int) -> bool:
    """True for a value in inline code, or without other text on its lines."""
    if text[start - 1 : start] == "`":
        return True
    before = _APART_BEFORE.search(text[max(start - 80, 0) : start])
    return before is not None and _APART_BEHIND.match(text, end) is not None


def is_bare(value: Any) -> bool:
    """True for values that also occur in prose: [1], [0, 1], [], {}."""
    if isinstance(value, dict):
        return not value
    return not any(isinstance(item, str | dict | list) for item in cast("list[Any]", value))


# --- templates --------------------------------------------------------------------------------

_TYPES = (
    r"(?:str(?:ings?)?|text|numbers?|int(?:egers?)?|floats?|double|bool(?:ean)?|array|list|dict"
    r"|objects?|any|date(?:time)?|value)"
)
_TEMPLATE_TOKEN = re.compile(
    r"""(?P<text>"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"|'[^'\\\n]*+')(?P<colon>\s*+:)?
        |<(?P<hole>[^<>\n]{1,100}+)>
        |(?P<word>[^\s,:\[\]{}"'<]++)""",
    re.VERBOSE,
)
_HOLE = re.compile(rf"<|\.\.\.|…|{_TYPES}\b", re.IGNORECASE)
_TYPE = re.compile(rf"{_TYPES}\b", re.IGNORECASE)
_VALUE = re.compile(r"[+-]?\.?\d|(?:true|false|null|none|nan)\Z", re.IGNORECASE)
_ELLIPSES = frozenset({"...", "…"})
_WORD = re.compile(r"[^\W_]{2,}")


def is_placeholder(text: str, at: int) -> bool:
    """True if the text at a position may be a placeholder."""
    return _HOLE.match(text, at) is not None


def is_template(text: str, begin: int, end: int) -> bool:
    """True if all values between two positions are placeholders, and at least one is no string."""
    key, has_hole = "", False
    for token in _TEMPLATE_TOKEN.finditer(text, begin, end):
        string, hole, word = token["text"], token["hole"], token["word"]
        if string and token["colon"]:
            key = string[1:-1]
        elif string:
            if not _is_placeholder_text(string[1:-1].strip(), key):
                return False
        elif hole:
            if not _is_named(hole, key):
                return False
            has_hole = True
        elif _VALUE.match(word):
            return False
        else:
            has_hole = has_hole or word in _ELLIPSES or _TYPE.match(word) is not None
    return has_hole


def _is_placeholder_text(string: str, key: str) -> bool:
    if not string or string in _ELLIPSES or "|" in string or _TYPE.fullmatch(string):
        return True
    return (string[0] in "<{[" and string[-1] in ">}]") or _is_named(string, key)


def _is_named(words: str, key: str) -> bool:
    """True if the words contain the name of a type, or of their key."""
    named = {word.lower() for word in _WORD.findall(key)}
    return any(word.lower() in named or _TYPE.fullmatch(word) for word in _WORD.findall(words))
