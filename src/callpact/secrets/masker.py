"""`Masker` finds secrets in texts and JSON data, in many encodings, and replaces them by a mask.

A text is searched as it is, and again after each of a few rounds that decode percent-encoding, HTML
entities and the escapes of JSON and Python. Hex, base64 and UTF-8 read as Latin-1 are searched for
as they are written. Knows no names, no files and no environment; `keys.py` does.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html.entities import html5
from typing import Any, Self, cast

MAX_MASKED_DEPTH = 2_100
"""Levels of JSON data that are searched for secrets; deeper values are masked as a whole."""
MIN_MASKED = 8
"""Characters of the shortest value that is masked: shorter ones occur in too many other words."""
MAX_DECODED = 4
"""Nested encodings that are decoded to find a secret, such as JSON within JSON."""
MASK = "***"

_MAX_ENCODED = 10_000
_UNITS = (
    r"%[0-9A-Fa-f]{2}|%[uU][0-9A-Fa-f]{4}"
    r"|&(?:#[0-9]{1,10}|#[xX][0-9A-Fa-f]{1,8}|[A-Za-z][A-Za-z0-9]{1,30});?"
    r"|\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}"
    r"|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}"
)
_SIMPLE = "\"'/abfnrtv0"
_ENCODED = re.compile(rf"{_UNITS}|\\[\\{_SIMPLE}]")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WIDEST = 12  # Characters that one character of a secret takes in one encoding, at most.
_FEW = 8  # Up to this number, searching for each form is as fast.
_MANY = 100  # Above this number, removing forms that contain others takes too long.
_INNER, _OUTER = b"x "


class Masker:
    """Masks these values, except those of fewer characters than `shortest`."""

    __slots__ = (
        *("_encoded", "_exact", "_fewest", "_fewest_folded", "_folded", "_run", "_shortest"),
        *("_table", "longest"),
    )

    def __init__(self, values: Iterable[str] = (), *, shortest: int = MIN_MASKED) -> None:
        folded: set[str] = set()
        exact: set[str] = set()
        for value in values:
            if len(value) >= max(shortest, MIN_MASKED):
                folded.update(map(_lowered, _written(value)))
                exact.update(_in_base64(value))
            elif len(value) >= shortest:  # Too short to be searched for in any case.
                exact.add(value)
                exact.add(_pointer(value))
        self._prepare(folded, exact)

    @classmethod
    def joined(cls, maskers: Iterable[Masker]) -> Self:
        """Return one masker for the values of several, as one secret may contain another."""
        folded: set[str] = set()
        exact: set[str] = set()
        for each in maskers:
            folded |= each._folded  # noqa: SLF001 - of its own class
            exact |= each._exact  # noqa: SLF001 - as above
        made = cls()
        made._prepare(folded, exact)
        return made

    def _prepare(self, folded: set[str], exact: set[str]) -> None:
        self._folded = folded
        self._exact = exact
        self._fewest_folded = _fewest(folded)
        self._fewest = _fewest(exact)
        every = sorted((*folded, *exact), key=len)
        self._shortest = len(every[0]) if every else 0
        self.longest = len(every[-1]) * _WIDEST if every else 0
        """Characters that a secret may have as it is written in a text."""
        self._encoded = _encoded("".join(every))
        plain = [form for form in every if form.isascii()]
        # A text without a run of their letters of this length holds none of them.
        self._run = "" if len(plain) <= _FEW else "x" * len(plain[0])
        letters = frozenset(map(ord, "".join(plain)))
        letters |= {ord(chr(code).upper()) for code in letters if code < 128}
        self._table = bytes(_INNER if code in letters else _OUTER for code in range(256))

    def __bool__(self) -> bool:
        return bool(self._folded or self._exact)

    def finds(self, text: str) -> bool:
        """True if a secret is in a text."""
        if len(text) < self._shortest or not self:
            return False
        if self._is_in(text):
            return True
        for _ in range(MAX_DECODED):
            if "\\" not in text and "%" not in text and "&" not in text:
                return False
            decoded = self._encoded.sub(_decode, text)
            if decoded == text:
                return False
            text = decoded
            if self._is_in(text):
                return True
        return False

    def _is_in(self, text: str) -> bool:
        run = self._run
        if run and text.isascii() and run not in text.encode().translate(self._table).decode():
            return False
        for form in self._fewest:
            if form in text:
                return True
        lowered = text.lower()
        for form in self._fewest_folded:  # noqa: SIM110 - a generator costs as much as the search
            if form in lowered:
                return True
        return False

    def mask(self, text: str) -> str:
        """Return the text without any secret; the same object if it has none."""
        if not self.finds(text):
            return text
        spans = sorted(self._spans(text))
        if not spans:  # A letter changes its length in lower case.
            return MASK
        parts: list[str] = []
        end = 0
        for begin, until in _merged(spans):
            parts += (text[end:begin], MASK)
            end = until
        return "".join((*parts, text[end:]))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of a text that hold a secret, plain or encoded."""
        decodings: list[_Decoding] = []
        for _ in range(MAX_DECODED + 1):
            for begin, end in self._found(text):
                for decoding in reversed(decodings):
                    begin, end = decoding.begin(begin), decoding.end(end)  # noqa: PLW2901 - one step back each
                yield begin, end
            decoding = _Decoding(text, self._encoded)
            if decoding.text == text:
                return
            decodings.append(decoding)
            text = decoding.text

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        for forms, searched in ((self._exact, text), (self._folded, _lowered(text))):
            for form in forms:
                at = searched.find(form)
                while at >= 0:
                    yield at, at + len(form)
                    at = searched.find(form, at + len(form))

    def mask_data(self, value: Any) -> Any:
        """Return JSON data without any secret: in strings, in keys, in bytes."""
        if not self:
            return value
        root: list[Any] = [None]
        pending: list[tuple[Any, Any, Any, int]] = [(root, 0, value, 0)]
        while pending:  # No recursion: deep values would exceed its limit.
            holder, place, item, level = pending.pop()
            if not isinstance(item, Mapping | list | tuple):
                holder[place] = self._masked_part(item)
                continue
            if level >= MAX_MASKED_DEPTH:
                holder[place] = MASK
                continue
            made: Any
            if isinstance(item, Mapping):
                pairs = cast("Mapping[Any, Any]", item).items()
                parts = [(self._masked_key(key), part) for key, part in pairs]
                made = dict.fromkeys(key for key, _ in parts)
            else:
                parts = list(enumerate(cast("list[Any]", item)))
                made = [None] * len(parts)
            holder[place] = made
            pending.extend((made, key, part, level + 1) for key, part in reversed(parts))
        return root[0]

    def _masked_part(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, bytes):
            text = value.decode("latin-1")  # UTF-8 read as Latin-1 is searched for, too.
            masked = self.mask(text)
            return value if masked is text else masked.encode("latin-1")
        return value

    def _masked_key(self, key: Any) -> Any:
        return self.mask(key) if isinstance(key, str) else key


def _encoded(letters: str) -> re.Pattern[str]:
    """A pattern of the escapes that can encode these letters, to skip frequent others."""
    simple = "".join(sort for sort in _SIMPLE if _ESCAPES.get(sort, sort) in letters)
    return re.compile(rf"{_UNITS}|\\[\\{simple}]")


class _Decoding:
    """A decoded text, with a map of its offsets to those of the encoded text."""

    def __init__(self, text: str, encoded: re.Pattern[str]) -> None:
        parts: list[str] = []
        self._begins: list[int] = []
        self._units: list[tuple[int, int, int]] = []
        length = last = 0
        for match in encoded.finditer(text):
            decoded = _decode(match)
            if decoded == match[0]:
                continue
            parts += (text[last : match.start()], decoded)
            length += match.start() - last
            last = match.end()
            self._begins.append(length)
            length += len(decoded)
            self._units.append((length, match.start(), last))
        self.text = "".join((*parts, text[last:])) if parts else text

    def begin(self, place: int) -> int:
        """The encoded offset at which the character at a decoded offset begins."""
        return self._mapped(place, 1, 0)

    def end(self, place: int) -> int:
        """The encoded offset at which the span up to a decoded offset ends."""
        return self._mapped(place - 1, 2, 1)

    def _mapped(self, place: int, edge: int, more: int) -> int:
        number = bisect_right(self._begins, place) - 1
        if number < 0:
            return place + more
        unit = self._units[number]
        return unit[edge] if place < unit[0] else unit[2] + place - unit[0] + more


def _decode(match: re.Match[str]) -> str:
    return _decoded(match[0])


@lru_cache(maxsize=4_096)
def _decoded(text: str) -> str:
    kind = text[0]
    if kind == "%":
        return chr(int(text[1:].lstrip("uU"), 16))  # UTF-8 read as Latin-1, which is searched for.
    if kind == "\\":
        sort = text[1]
        if sort == "u" and len(text) > 6:
            return bytes.fromhex(text[2:6] + text[8:]).decode("utf-16-be")
        if sort in "ux":
            return chr(int(text[2:], 16))  # noqa: FURB166 - the prefix is another
        return _ESCAPES.get(sort, sort)
    name = text[1:].removesuffix(";")
    if name[0] != "#":
        return html5.get(f"{name};", text)
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])  # noqa: FURB166 - as above
    return chr(code) if code < 0x110000 else text


def _written(value: str) -> Iterator[str]:
    """Yield the written forms of a value that decoding does not undo."""
    if len(value) <= _MAX_ENCODED:
        for each in (value, value.upper(), value.lower()):
            data = each.encode("utf-8", "surrogatepass")
            yield data.hex()
            yield data.hex(" ")
            yield data.hex(":")
    for form in _read(value):
        yield form
        yield form.replace(" ", "+")
        yield _pointer(form)


def _read(value: str) -> Iterator[str]:
    """Yield the forms of a value after reading: as it is, as Latin-1, decoded."""
    for _ in range(MAX_DECODED + 1):
        yield value
        for each in () if value.isascii() else (value, value.upper(), value.lower()):
            data = each.encode("utf-8", "surrogatepass")
            misread = data.decode("latin-1")
            yield misread
            yield misread.encode().decode("latin-1")
            yield "".join(map(_WINDOWS.__getitem__, data))
        decoded = _ENCODED.sub(_decode, value)
        if decoded == value or len(decoded) < MIN_MASKED:
            return
        value = decoded


# Browsers decode Latin-1 as Windows-1252, in which five bytes are undefined.
_WINDOWS = [bytes([code]).decode("cp1252", "ignore") or chr(code) for code in range(256)]


def _pointer(value: str) -> str:
    return value.replace("~", "~0").replace("/", "~1")


def _in_base64(value: str) -> Iterator[str]:
    if len(value) > _MAX_ENCODED:
        return
    data = value.encode("utf-8", "surrogatepass")
    for whole in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        yield whole.decode()
    # In base64 a value begins at one of three offsets within a group (`user:value` of Basic); the
    # characters that depend on its neighbours are cut off.
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + data).rstrip(b"=").decode()
        end = len(encoded) if (shift + len(data)) % 3 == 0 else len(encoded) - 1
        part = encoded[(0, 2, 3)[shift] : end]
        yield part
        yield part.replace("+", "-").replace("/", "_")


def _lowered(text: str) -> str:
    """The text in lower case, with the offset of each character unchanged."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := each.lower()) == 1 else each for each in text)


def _fewest(forms: Iterable[str]) -> tuple[str, ...]:
    """Return the forms without those that contain a shorter one, shortest first."""
    found = sorted(forms, key=len)
    if len(found) > _MANY:
        return tuple(found)
    return tuple(
        form
        for number, form in enumerate(found)
        if not any(shorter in form for shorter in found[:number])
    )


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted spans, with overlapping ones merged."""
    last: tuple[int, int] | None = None
    for begin, end in spans:
        if last is not None and begin < last[1]:
            last = (last[0], max(end, last[1]))
            continue
        if last is not None:
            yield last
        last = (begin, end)
    if last is not None:
        yield last
