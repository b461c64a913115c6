"""The full parser of data in a `.mjs` file: slower than `literal.py`, with the offset of every value.

One pass, token by token. It accepts a little more (templates without substitution, any white space,
`JSON.stringify` of a literal, several exports). Anything that is not data is an error with line and
column. Also has the tokens and the line numbers for the other readers.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from typing import Any

from msgspec import Struct

from callpact.errors import InvalidManifest
from callpact.schema import is_array, is_object
from callpact.schema.hashing import canonical_number, canonical_string

LINE_END = re.compile(r"\r\n|[\n\r\u2028\u2029]")
_WHITE = "[ \\t\\v\\f\\r\\n\u00a0\ufeff\u2028\u2029\u1680\u2000-\u200a\u202f\u205f\u3000]"
TRIVIA = re.compile(
    rf"(?>(?:{_WHITE}++|//[^\n\r\u2028\u2029]*+|/\*(?>(?:[^*]++|\*(?!/))*)\*/)*)", re.DOTALL
)
"""White space and comments."""
NAME = re.compile(r"[^\W\d][\w$]*+|\$[\w$]*+")
STRINGS = {
    "'": re.compile(r"'((?>(?:[^'\\\r\n]|\\(?:\r\n|.))*))'", re.DOTALL),
    '"': re.compile(r'"((?>(?:[^"\\\r\n]|\\(?:\r\n|.))*))"', re.DOTALL),
    "`": re.compile(r"`((?>(?:[^`\\$]|\\(?:\r\n|.)|\$(?!\{))*))`", re.DOTALL),
}
"""Texts by their quote; a template only if it has no `${…}`."""


def line_starts(text: str) -> list[int]:
    """The offsets at which the lines of a text begin; a byte order mark is before the first."""
    first = 1 if text.startswith("\ufeff") else 0
    return [first, *(match.end() for match in LINE_END.finditer(text))]


def place_of(starts: list[int], offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1, as editors count."""
    line = bisect_right(starts, max(offset, starts[0]))
    return line, max(offset - starts[line - 1], 0) + 1


# --- the parser ------------------------------------------------------------------------------

MAX_LITERAL_DEPTH = 64
"""Levels of objects and arrays that a literal in a FlowMCP file may nest."""


class Found(Struct, frozen=True):
    """The exports of a file with their places: offsets by name and JSON Pointer."""

    values: dict[str, Any]
    places: dict[tuple[str, str], int]
    handlers: int | None = None
    repeated: tuple[str, ...] = ()
    """JSON Pointers of keys that occur more than once in an object."""


def read_carefully(text: str) -> Found:
    """Every data export of a file, with the place of every value.

    Raises:
        InvalidManifest: something is not data, with its line and column.
    """
    return _Reader(text).read()


_NUMBER = re.compile(
    r"(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?|\.[0-9]++(?:[eE][+-]?[0-9]++)?"
)
_INTEGER = re.compile(r"0|[1-9][0-9]*+")
_AFTER_INTEGER = re.compile(r"[\w$.]")
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL
)
_SHORT = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "0": "\0",
    **dict.fromkeys(("\n", "\r", "\r\n", "\u2028", "\u2029"), ""),
}
_DIGITS = frozenset("0123456789")
_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_RESERVED = re.compile(
    "arguments|await|break|case|catch|class|const|continue|debugger|default|delete|do|else|enum"
    "|eval|export|extends|false|finally|for|function|if|implements|import|in|instanceof|interface"
    "|let|new|null|package|private|protected|public|return|static|super|switch|this|throw|true|try"
    "|typeof|var|void|while|with|yield"
)
_NOT_DATA = {
    "undefined": "`undefined` is not data; leave the key out, or write null",
    "NaN": "`NaN` is not data",
    "Infinity": "`Infinity` is not data",
    "function": "a function is not data; code belongs into `handlers`",
    "async": "a function is not data; code belongs into `handlers`",
    "class": "a class is not data",
    "new": "an object made by `new` (a Date, for example) is not data; write it as text",
    "await": "`await` is not data",
    "import": "schema files import nothing",
}


def unescaped(body: str, *, is_template: bool = False) -> str | None:
    """The value of a JavaScript string literal; None if an escape in it is not allowed."""
    if is_template:
        body = body.replace("\r\n", "\n").replace("\r", "\n")
    if "\\" not in body:
        return body
    parts: list[str] = []
    place = 0
    while (at := body.find("\\", place)) >= 0:
        parts.append(body[place:at])
        match = _ESCAPE.match(body, at)
        if match is None:
            return None
        meant = _meant(match, body[match.end() : match.end() + 1])
        if meant is None:
            return None
        parts.append(meant)
        place = match.end()
    parts.append(body[place:])
    return _PAIR.sub(_joined, "".join(parts))


def _meant(match: re.Match[str], following: str) -> str | None:
    code = match[1] or match[2] or match[3]
    if code is not None:
        point = int(code, 16)
        return chr(point) if point <= 0x10FFFF else None
    letter = match[4]
    if letter in "ux123456789" or (letter == "0" and following in _DIGITS):
        return None  # Octal escapes and broken ones.
    return _SHORT.get(letter, letter)


def _joined(pair: re.Match[str]) -> str:
    high, low = ord(pair[1]) - 0xD800, ord(pair[2]) - 0xDC00
    return chr(0x10000 + (high << 10) + low)


def is_name(text: str) -> bool:
    """True if a word can be a name in JavaScript; the patterns match more than that."""
    return text.isascii() or text.replace("$", "_").isidentifier()


def is_export_name(text: str) -> bool:
    """True for a name that `export const` accepts."""
    return is_name(text) and not _RESERVED.fullmatch(text)


def integer_key(digits: str) -> str:
    """The key of an integer; beyond 15 digits, that of the nearest double."""
    if len(digits) < 16:
        return digits
    value = float(digits)
    return "Infinity" if math.isinf(value) else canonical_number(value)


def in_key_order(members: dict[str, Any]) -> dict[str, Any]:
    """The members in the order of ECMAScript: array indexes first, ascending."""
    indexes = [key for key in members if _INDEX.match(key) and int(key) < 2**32 - 1]
    if not indexes:
        return members
    ordered = {key: members[key] for key in sorted(indexes, key=int)}
    return ordered | {key: value for key, value in members.items() if key not in ordered}


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at: int = 1 if text.startswith("\ufeff") else 0
        self._places: dict[tuple[str, str], int] = {}
        self._placed: list[tuple[str, str]] = []
        """The keys of `_places` in the order of reading, so that those of a part can be removed."""
        self._export = ""
        self._is_stringified = False
        self._repeated: list[str] = []

    def read(self) -> Found:
        values: dict[str, Any] = {}
        handlers: int | None = None
        while self._skip() < len(self._text):
            begin = self._at
            name = self._head(begin, is_first=not values)
            if name in values:
                raise self._wrong(f"`{name}` is exported twice", begin)
            if name == "handlers":
                if not values:
                    raise self._wrong("`main` must come before `handlers`", begin)
                handlers = begin
                break
            self._export = name
            value_at = self._skip()
            alias = NAME.match(self._text, value_at)
            if alias is not None and alias[0] in values:  # `export const schema = main`
                self._at = alias.end()
                values[name] = values[alias[0]]
            else:
                values[name] = self._value("", 0)
            self._end_statement()
        if not values:
            raise self._wrong(
                "no data is exported; a schema file begins with `export const main = {`", 0
            )
        return Found(values, self._places, handlers, tuple(self._repeated))

    def _head(self, begin: int, *, is_first: bool) -> str:
        for word in ("export", "const"):
            match = NAME.match(self._text, self._skip())
            if match is None or match[0] != word:
                if not is_first:
                    raise self._wrong(
                        "only `export const …` may follow; code belongs into `handlers`"
                    )
                reason = _NOT_DATA.get(match[0], "") if match is not None else ""
                raise self._wrong(reason or "expected `export const main = {`", begin)
            self._at = match.end()
        match = NAME.match(self._text, self._skip())
        if match is None or not is_export_name(match[0]):
            raise self._wrong("expected the name of an export")
        self._at = match.end()
        if not re.compile(r"=(?![=>])").match(self._text, self._skip()):
            raise self._wrong("expected `=`")
        self._at += 1
        return match[0]

    def _end_statement(self) -> None:
        """Read a `;`, or a line's end before a token that cannot continue the expression."""
        end = self._at
        self._skip()
        if self._text[self._at : self._at + 1] == ";":
            self._at += 1
            return
        if self._at == len(self._text):
            return
        if self._text[self._at] in "([.`/+-*?%&|^<>=," or not LINE_END.search(
            self._text, end, self._at
        ):
            raise self._wrong("the value goes on after its end; only data is allowed here")

    def _skip(self) -> int:
        match = TRIVIA.match(self._text, self._at)
        self._at = match.end() if match else self._at
        if self._text.startswith("/*", self._at):
            raise self._wrong("a comment without its end")
        return self._at

    def _value(self, path: str, depth: int) -> Any:
        at = self._skip()
        if (self._export, path) not in self._places:
            self._place(path, at)
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(path, depth)
        if first == "[":
            return self._array(path, depth)
        if first in STRINGS:
            return self._string(first)
        if first == "-":
            self._at += 1
            self._skip()
            return self._number(sign=-1)
        if first.isdigit() or first == ".":
            return self._number()
        return self._word(path, depth)

    def _word(self, path: str, depth: int) -> Any:
        at = self._at
        match = NAME.match(self._text, at)
        if match is None:
            reasons = {"": "the file ends in the middle of a value", "(": "a function is not data"}
            what = self._text[at : at + 1]
            raise self._wrong(reasons.get(what, f"unexpected `{what}`"))
        word = match[0]
        if word in _CONSTANTS:
            self._at = match.end()
            return _CONSTANTS[word]
        if self._text.startswith("JSON.stringify", at):
            return self._stringified(path, depth)
        self._at = match.end()
        following = self._text[self._skip() : self._at + 2]
        self._at = at
        if word in _NOT_DATA:
            raise self._wrong(_NOT_DATA[word])
        if following == "=>":
            raise self._wrong("a function is not data; code belongs into `handlers`")
        if following[:1] == "(" or following[:1] == ".":
            raise self._wrong(f"a call or a member of `{word}` is not data; write the value itself")
        raise self._wrong(f"the name `{word}` is not data; write the value itself")

    def _stringified(self, path: str, depth: int) -> str:
        """Read `JSON.stringify(<literal>)`, which is data, too."""
        at = self._at
        if self._is_stringified:  # Each one doubles the backslashes of the one inside.
            raise self._wrong("`JSON.stringify` inside of another is not data")
        self._at += len("JSON.stringify")
        if self._text[self._skip() : self._at + 1] != "(":
            raise self._wrong("a member of `JSON` is not data", at)
        self._at += 1
        before = len(self._placed)
        self._is_stringified = True
        value = self._value(path, depth + 1)
        self._is_stringified = False
        self._forget(before, len(self._placed))
        if self._text[self._skip() : self._at + 1] != ")":
            raise self._wrong("`JSON.stringify` of one literal is data; anything else is not")
        self._at += 1
        return stringify(value)

    def _object(self, path: str, depth: int) -> dict[str, Any]:
        self._check_depth(depth)
        self._at += 1
        members: dict[str, Any] = {}
        spans: dict[str, tuple[int, int]] = {}
        while self._text[self._skip() : self._at + 1] != "}":
            key_at = self._at
            key = self._key()
            if self._text[self._skip() : self._at + 1] != ":":
                raise self._wrong_member(key, key_at)
            self._at += 1
            if key == "__proto__":
                raise self._wrong("`__proto__` is not a property", key_at)
            inner = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in spans:  # The last of two equal keys is used.
                self._forget(*spans[key])
                if not self._is_stringified:
                    self._repeated.append(inner)
            before = len(self._placed)
            self._place(inner, key_at)
            members[key] = self._value(inner, depth + 1)
            spans[key] = (before, len(self._placed))
            if not self._comma("}"):
                break
        self._at += 1
        return in_key_order(members)

    def _place(self, path: str, at: int) -> None:
        self._places[self._export, path] = at
        self._placed.append((self._export, path))

    def _forget(self, begin: int, end: int) -> None:
        for place in self._placed[begin:end]:
            self._places.pop(place, None)

    def _wrong_member(self, key: str, at: int) -> InvalidManifest:
        following = self._text[self._at : self._at + 1]
        if following == "(" or key in {"get", "set", "async"}:
            return self._wrong(f"the method `{key}` is not data; code belongs into `handlers`", at)
        if following in {",", "}"}:
            return self._wrong(f"`{key}` alone names a variable, which is not data", at)
        return self._wrong(f"expected `:` after the key `{key}`")

    def _key(self) -> str:
        first = self._text[self._at : self._at + 1]
        if first in {"'", '"'}:
            return self._string(first)
        match = NAME.match(self._text, self._at)
        if match is not None and is_name(match[0]):
            self._at = match.end()
            return match[0]
        match = _INTEGER.match(self._text, self._at)
        if match is not None:
            if _AFTER_INTEGER.match(self._text, match.end()):
                raise self._wrong("a key is a name, a text or a decimal integer")
            self._at = match.end()
            return integer_key(match[0])
        reasons = {
            "[": "a computed key is not data",
            ".": "`...` (spread) is not data; write the members themselves",
            ",": "a comma where a key is expected",
            "": "the file ends in the middle of an object",
        }
        raise self._wrong(reasons.get(first, f"expected a key, found `{first}`"))

    def _array(self, path: str, depth: int) -> list[Any]:
        self._check_depth(depth)
        self._at += 1
        items: list[Any] = []
        while self._text[self._skip() : self._at + 1] != "]":
            if self._text[self._at : self._at + 1] == ",":
                raise self._wrong("a hole in an array is not data; write null")
            if self._text.startswith("...", self._at):
                raise self._wrong("`...` (spread) is not data; write the items themselves")
            items.append(self._value(f"{path}/{len(items)}", depth + 1))
            if not self._comma("]"):
                break
        self._at += 1
        return items

    def _comma(self, closing: str) -> bool:
        """True if another member follows."""
        following = self._text[self._skip() : self._at + 1]
        if following == ",":
            self._at += 1
            return True
        if following == closing:
            return False
        if following == "":
            raise self._wrong(f"the file ends before the `{closing}` that is expected here")
        raise self._wrong(
            f"expected `,` or `{closing}`, found `{following}`; only literals are data"
        )

    def _string(self, quote: str) -> str:
        at = self._at
        match = STRINGS[quote].match(self._text, at)
        if match is None:
            if quote == "`" and "${" in self._text[at:]:
                raise self._wrong("a template with `${…}` is not data; write the text itself")
            raise self._wrong("a text without its closing quote on the same line")
        plain = unescaped(match[1], is_template=quote == "`")
        if plain is None:
            raise self._wrong("a text with an escape that is not allowed (octal, or cut off)")
        self._at = match.end()
        return plain

    def _number(self, sign: int = 1) -> float:
        at = self._at
        match = _NUMBER.match(self._text, at)
        end = match.end() if match else at
        if match is None or re.compile(r"[\w$.]").match(self._text, end):
            reason = "not a decimal number"
            if self._text[end : end + 1] == "n":
                reason = "a BigInt is not data; write it as text"
            elif self._text[at : at + 1] == "0" and self._text[at + 1 : at + 2].isdigit():
                reason = "an octal number; write it in decimal"
            raise self._wrong(reason)
        self._at = end
        value = float(match[0])
        if value - value != 0:
            raise self._wrong("a number beyond what JavaScript can hold", at)
        whole = value.is_integer() and abs(value) <= 2**53
        return sign * int(value) if whole else sign * value

    def _check_depth(self, depth: int) -> None:
        if depth >= MAX_LITERAL_DEPTH:
            raise self._wrong(f"nested deeper than {MAX_LITERAL_DEPTH} levels")

    def _wrong(self, message: str, at: int | None = None) -> InvalidManifest:
        place = place_of(line_starts(self._text), self._at if at is None else at)
        return InvalidManifest(message, *place)


def stringify(value: Any) -> str:
    """`JSON.stringify`: like JSON, with numbers as JavaScript writes them.

    Raises:
        InvalidSchema: a number is too large for a double.
    """
    if is_object(value):
        members = (f"{canonical_string(key)}:{stringify(item)}" for key, item in value.items())
        return "{" + ",".join(members) + "}"
    if is_array(value):
        return "[" + ",".join(map(stringify, value)) + "]"
    if isinstance(value, str):
        return canonical_string(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return canonical_number(value)
