"""Templates: brackets that show the form of an answer with placeholders, and answer nothing.

`{"amount": <number>, "reason": "..."}` is one. An object in which a single value is missing is
none: it may be the answer.
"""

from __future__ import annotations

import re

_TYPES = (
    r"(?:str(?:ings?)?|text|numbers?|int(?:egers?)?|floats?|double|bool(?:ean)?|array|list|dict"
    r"|objects?|any|date(?:time)?|value)"
)
_TOKEN = re.compile(
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
    """True if what a place has may be a placeholder."""
    return _HOLE.match(text, at) is not None


def is_template(text: str, begin: int, end: int) -> bool:
    """True if all values between two places are placeholders, and at least one is no string."""
    key, has_hole = "", False
    for token in _TOKEN.finditer(text, begin, end):
        string, hole, word = token["text"], token["hole"], token["word"]
        if string and token["colon"]:
            key = string[1:-1]
        elif string:
            if not _is_placeholder(string[1:-1].strip(), key):
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


def _is_placeholder(string: str, key: str) -> bool:
    if not string or string in _ELLIPSES or "|" in string or _TYPE.fullmatch(string):
        return True
    return (string[0] in "<{[" and string[-1] in ">}]") or _is_named(string, key)


def _is_named(words: str, key: str) -> bool:
    """True if words name a type, or the key that they are the value of."""
    named = {word.lower() for word in _WORD.findall(key)}
    return any(word.lower() in named or _TYPE.fullmatch(word) for word in _WORD.findall(words))
