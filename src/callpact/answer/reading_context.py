"""Around a bracket: whether it belongs to prose or code, to a larger value, or is alone.

Judges by a few characters before and behind it; reads no value.
"""

from __future__ import annotations

import re
from typing import Any, cast

from callpact.answer.reading_brackets import CLOSERS
from callpact.answer.reading_cursor import after_space

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
    """True behind a key, and between items that have no brackets around them."""
    before = text[max(start - 100, 0) : start].rstrip()
    return (
        before.endswith((",", ":", "：")) and _PART_BEFORE.search(before) is not None
    ) or _PART_BEHIND.match(text, end) is not None


def is_apart(text: str, start: int, end: int) -> bool:
    """True in inline code, and if nothing of a sentence is around it on its lines."""
    if text[start - 1 : start] == "`":
        return True
    before = _APART_BEFORE.search(text[max(start - 80, 0) : start])
    return before is not None and _APART_BEHIND.match(text, end) is not None


def is_bare(value: Any) -> bool:
    """True for what prose also has: [1], [0, 1], [], {}."""
    if isinstance(value, dict):
        return not value
    return not any(isinstance(item, str | dict | list) for item in cast("list[Any]", value))
