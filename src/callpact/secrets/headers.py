"""Headers that carry secrets, `Authorization` and cookies, and how to hide them in data and texts.

In data they are recognised by name: a key, the item before, a name beside a value. In texts a quoted
value is hidden to the end of its quotes, any other to the end of its line. Knows no secret by its
value; `masker.py` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from callpact.schema import is_array, is_object
from callpact.schema.json_text import json_text
from callpact.secrets.masker import MASK

_SEPARATORS = re.compile(r"[-_\s]+")
_CARRIERS = frozenset(
    f"{prefix}{name}"
    for name in ("authorization", "cookie", "cookies", "cookie2")
    for prefix in ("", "proxy", "set", "http", "x")
)
_NAMING = frozenset({"name", "key", "header"})
# Bounded, because any word may precede or follow.
_END = r"(?:authorization|cookie)[\w-]{0,20}(?:[ \t]header)?"
_NAME = rf"[\w-]{{0,20}}?{_END}"
_QUOTE = r"\\{0,8}[\"'`]"  # Also escaped, as in JSON within JSON.
_IS = r"\s{0,8}(?:=>|[:=,])\s{0,8}"
_IN_TEXT = re.compile(
    # 'Authorization': 'Bearer …', also as a pair, in bytes, as a name beside its value.
    rf"(?P<a>(?P<b>{_QUOTE}){_NAME}(?P=b){_IS}(?:(?P=b)value(?P=b){_IS})?b?(?P<c>[\"'`]))"
    r"(?:\\+.|(?!(?P=c)).)*"
    # The same with quotes within quotes, or without any: {"Authorization": [ …
    rf"|(?P<d>(?P<e>{_QUOTE}){_NAME}(?P=e){_IS})\S.*"
    # 'Authorization: Bearer …'
    rf"|(?P<f>(?P<g>{_QUOTE}){_NAME}[ \t]*(?:=>|[:=])[ \t]*)(?:(?!(?P=g)).)+"
    # Authorization: Bearer …
    rf"|(?P<h>{_END}[ \t]*(?:=>|[:=])[ \t]*)\S.*"
    # A credential without its header: Bearer …
    r"|(?P<i>\b(?:bearer|basic|digest|token)[ \t]+)[\w.~+/=-]{4,}",
    re.IGNORECASE,
)


def is_secret_header(name: Any) -> bool:
    """True for the name of a header that carries a secret, in any spelling."""
    return isinstance(name, str) and _SEPARATORS.sub("", name).lower() in _CARRIERS


def mentions_secret_header(text: str) -> bool:
    """True if a text may name such a header; a fast test with false positives."""
    lowered = text.lower()
    # Searching for one rare letter is many times faster than searching for a word.
    return ("z" in lowered and "authorization" in lowered) or (
        "k" in lowered and "cookie" in lowered
    )


def without_carried(value: Any) -> Any:
    """Return JSON data without the values of such headers, also in texts and in JSON within them."""
    if isinstance(value, str):
        inner = within_text(value, without_carried)
        return _without_carried(value) if inner is None else inner
    if is_object(value):
        is_named = any(is_secret_header(v) for k, v in value.items() if k.lower() in _NAMING)
        return {
            k: MASK
            if is_secret_header(k) or (is_named and k.lower() == "value")
            else without_carried(v)
            for k, v in value.items()
        }
    if is_array(value):
        before = [None, *value]
        return [
            MASK if is_secret_header(name) else without_carried(item)
            for name, item in zip(before, value, strict=False)
        ]
    return value


def _without_carried(text: str) -> str:
    return _IN_TEXT.sub(lambda found: f"{next(filter(None, found.group(*'adfhi')))}{MASK}", text)


def within_text(text: str, change: Callable[[Any], Any]) -> str | None:
    """Return a text of JSON, as some models send objects, with its value changed; None if not JSON."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        held = json.loads(text)
        changed = change(held)
    except (ValueError, RecursionError):
        return None
    return text if changed == held else json_text(changed)
