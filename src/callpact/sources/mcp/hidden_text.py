"""Characters that a reader cannot see or mistakes for others, found and made visible.

The ranges are fixed, not taken from the Unicode tables of the running Python, so that
`callpact.lock` is written the same everywhere. Every function takes linear time.
"""

from __future__ import annotations

import re
import unicodedata

HIDDEN = re.compile(
    "["
    r"\x00-\x1f\x7f-\xa0\xad"  # Controls, the no-break space, the soft hyphen.
    r"\u034f\u061c\u070f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f"  # Spaces, zero width, bidirectional controls.
    r"\u2800\u3000\u3164"  # Blanks: Braille, ideographic, Hangul.
    r"\ud800-\udfff\ue000-\uf8ff"  # Halves of characters; private use.
    r"\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"  # Tags and the other variation selectors.
    r"\U000f0000-\U0010ffff"  # Private use.
    "]"
)
"""One character without a visible shape of its own; spaces other than U+0020 are among them."""
STYLED = re.compile(
    r"[\u24b6-\u24e9\U0001d400-\U0001d7cb\U0001f130-\U0001f149\U0001f170-\U0001f189]"
)
"""One letter of an alphabet for mathematics or in a circle or square: a Latin letter in disguise."""

_ALIKE = {
    **dict(
        zip("аеорсухіјѕһԁԛԝӏѵАВЕКМНОРСТУХІЈЅҮ", "aeopcyxijshdqwlvABEKMHOPCTYXIJSY", strict=True)
    ),
    **dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "oABEZHIKMNOPTYX", strict=True)),
    **dict(zip("օսոհցɡ", "ounhgg", strict=True)),
}
_MAX_PARTS = 4  # U+FDFA becomes 18 letters.
_FOREIGN = "".join(_ALIKE)
_WORD = re.compile(r"[^\W\d_]+")
_LATIN_OR_ALIKE = re.compile(rf"[A-Za-z\u00c0-\u024f{_FOREIGN}]+")
_ALIKE_LETTER = re.compile(f"[{_FOREIGN}]")
_SPACES = re.compile(r"\s+")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_FOREIGN_ALONE = re.compile(rf"[{_FOREIGN}]+")


def visible(text: str) -> str:
    """A text on one line in which every hidden or confusable character is shown: `<U+200B>`.

    A letter that looks like a Latin one is shown so in a word that could be read as Latin; words
    of other scripts stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _WORD.sub(_shown_word, text)
    return HIDDEN.sub(_code_point, STYLED.sub(_code_point, text))


def _shown_word(match: re.Match[str]) -> str:
    word = match[0]
    return _ALIKE_LETTER.sub(_code_point, word) if _reads_as_latin(word) else word


def _reads_as_latin(word: str) -> bool:
    """True for a word that has letters of another script, and none that does not look Latin."""
    if len(word) == 1 or word.isascii() or not _LATIN_OR_ALIKE.fullmatch(word):
        return False
    return _ALIKE_LETTER.search(word) is not None


def _code_point(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def disguised_words(text: str) -> list[str]:
    """Words that read as Latin but hold letters of another script.

    In a text that also has words proper of other scripts, a word must have Latin letters to count:
    Russian has words of nothing but letters that look Latin.
    """
    if text.isascii():
        return []
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    alike = [word for word in words if _reads_as_latin(word)]
    if any(ord(char) >= 0x370 and char not in _ALIKE for word in words for char in word):
        return [word for word in alike if not _FOREIGN_ALONE.fullmatch(word)]
    return alike


def folded(text: str) -> str:
    """A text as a reader takes it: in lower case, nothing hidden, no disguise, single spaces.

    A run of white space with a line break in it becomes one line break.
    """
    if not text.isascii():
        text = _NOT_ASCII.sub(_plain, text)
    return _SPACES.sub(_space, _CONTROLS.sub("", text)).lower()


def _plain(match: re.Match[str]) -> str:
    char = match[0]
    if char in _ALIKE:
        return _ALIKE[char]
    if char.isspace():
        return " " if char not in "\x85\u2028\u2029" else "\n"
    if HIDDEN.match(char):
        return ""
    # One character at a time: sorting a long run of combining marks takes quadratic time.
    parts = unicodedata.normalize("NFKD", char)
    if len(parts) > _MAX_PARTS:
        return char
    return "".join(part for part in parts if not unicodedata.combining(part))


def _space(match: re.Match[str]) -> str:
    return "\n" if "\n" in match[0] else " "
