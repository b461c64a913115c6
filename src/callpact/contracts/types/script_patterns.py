"""Patterns of JSON Schema as regular expressions of JavaScript with the flag `u`.

Only syntax is taken whose meaning is the same in the validator and in JavaScript, or can be said
there in other words; everything else is refused, so that no pattern changes its meaning.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<escape> \\ (?: [dDwWsSnrtfv] | x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} | u\{[0-9A-Fa-f]{1,6}\}
                     | [pP]\{[A-Z][a-z]?\} | c[A-Za-z] | [^A-Za-z0-9\s] | \  ))
  | (?P<class> \[ )
  | (?P<group> \( (?: \?: | \?= | \?! | \?<= | \?<! | \?<[A-Za-z_][A-Za-z0-9_]*> )? )
  | (?P<close> \) )
  | (?P<times> (?: [*+?] | \{\d{1,4}(?:,\d{0,4})?\} ) )
  | (?P<anchor> [\^$] )
  | (?P<bar> \| )
  | (?P<any> \. )
  | (?P<letter> [^\\\[({*+?] )
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = re.compile(
    r"(?P<escape>\\(?:[dDwWsSnrtfv]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}"
    r"|[pP]\{[A-Z][a-z]?\}|[^A-Za-z0-9\s]|\ ))|(?P<letter>[^\\\]\[])",
    re.DOTALL,
)
_SETS = frozenset("dDwWsSpP")
_SURROGATE = re.compile(r"\\u(?:\{0*)?[dD][89abAB]|\\u(?:\{0*)?[dD][c-fC-F]")


def script_pattern(pattern: str) -> str:
    """The pattern for JavaScript.

    Raises:
        ValueError: the pattern uses syntax that may mean something else in JavaScript.
    """
    if _SURROGATE.search(pattern):
        raise ValueError("it names half of a character")
    parts: list[str] = []
    place, before = 0, ""
    while place < len(pattern):
        found = _TOKEN.match(pattern, place)
        kind = "" if found is None else str(found.lastgroup)
        if found is None or (kind == "times" and before in {"", "times", "group", "anchor", "bar"}):
            raise ValueError(
                f"'{pattern[place : place + 10]}' may mean something else in JavaScript"
            )
        text = found[0]
        place = found.end()
        if kind == "class":
            text, place = _class(pattern, place)
        elif kind == "times":
            if pattern[place : place + 1] == "?":
                text, place = text + "?", place + 1
        else:
            text = _written(kind, text)
        parts.append(text)
        before = kind
    return "".join(parts)


def _class(pattern: str, place: int) -> tuple[str, int]:
    parts = ["["]
    if pattern[place : place + 1] == "^":
        parts.append("^")
        place += 1
    start = place
    is_range = False
    last = ""
    while pattern[place : place + 1] != "]" or place == start:
        found = _IN_CLASS.match(pattern, place)
        if found is None:
            raise ValueError(f"'{pattern[start - 1 : place + 5]}' may mean something else")
        text = found[0]
        place = found.end()
        following = pattern[place : place + 1]
        if text in "&-~" and following == text:
            raise ValueError(f"'{text}{text}' may mean an operation on sets")
        is_set = text[0] == "\\" and text[1] in _SETS
        # After a range, too, a `-` is the sign itself.
        if text == "-" and last and following != "]":
            if is_range or last == "set":
                raise ValueError("a range without two ends")
            is_range = True
            parts.append("-")
            continue
        if is_range and is_set:
            raise ValueError("a range without two ends")
        parts.append(_written("escape" if text[0] == "\\" else "plain", text))
        last = "set" if is_set else ("" if is_range else "one")
        is_range = False
    return "".join((*parts, "]")), place + 1


def _written(kind: str, text: str) -> str:
    """One token; signs of punctuation by their code, since `u` allows few escapes."""
    if kind == "any":
        return r"[^\n]"  # JavaScript leaves out other line ends, too.
    if kind == "escape":
        return text if text[1].isalnum() else _coded(text[1])
    if kind in {"letter", "plain"}:
        return text if text.isalnum() and text.isascii() else _coded(text)
    return text


def _coded(sign: str) -> str:
    return f"\\u{{{ord(sign):x}}}"
