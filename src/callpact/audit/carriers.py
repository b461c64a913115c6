"""Headers that carry secrets, `Authorization` and cookies, wherever they stand: in data, in texts.

In data they are known by their name: a key, the item before, `name` beside `value`. In texts also by
what follows them: of a quoted header the rest of the quotes is hidden, of any other the rest of its
line. Knows no secret by its value; `masking.py` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

from callpact.json_text import json_text
from callpact.secrets import MASK

_SEPARATORS = re.compile(r"[-_\s]+")
_CARRIERS = frozenset(
    f"{prefix}{name}"
    for name in ("authorization", "cookie")
    for prefix in ("", "proxy", "set", "http", "x")
)
_NAME = r"(?:proxy[-_]?)?authorization|(?:set[-_]?)?cookie"
_QUOTE = r"\\{0,8}[\"']"  # Also as it stands in JSON within JSON.
_IN_TEXT = re.compile(
    # 'Authorization': 'Bearer …', also as a pair, in a list, in bytes, as a name beside its value.
    rf"(?P<a>(?P<b>{_QUOTE})(?:{_NAME})(?P=b)\s*[:=,]\s*(?:(?P=b)value(?P=b)\s*:\s*)?[\[(]{{0,2}}b?"
    rf"(?P<c>{_QUOTE}))(?:(?!(?P=c)).)*"
    # 'Authorization': {…
    rf"|(?P<d>(?P<e>{_QUOTE})(?:{_NAME})(?P=e)\s*[:=,]\s*)[\[({{].*"
    # 'Authorization: Bearer …'
    rf"|(?P<f>(?P<g>{_QUOTE})(?:{_NAME})[ \t]*[:=][ \t]*)(?:(?!(?P=g)).)+"
    # Authorization: Bearer …
    rf"|(?P<h>(?:{_NAME})[ \t]*[:=][ \t]*)\S.*",
    re.IGNORECASE,
)


def without_carried(value: Any) -> Any:
    """JSON data without what such headers carry, also in its texts, also in JSON within these."""
    if isinstance(value, str):
        return _without_carried(within_text(value, without_carried))
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if "value" in held and (_carries(held.get("name")) or _carries(held.get("key"))):
            held = {**held, "value": MASK}
        return {k: MASK if _carries(k) else without_carried(v) for k, v in held.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        before = [None, *items]
        return [
            MASK if _carries(name) else without_carried(item)
            for name, item in zip(before, items, strict=False)
        ]
    return value


def _without_carried(text: str) -> str:
    return _IN_TEXT.sub(
        lambda found: f"{found['a'] or found['d'] or found['f'] or found['h']}{MASK}", text
    )


def within_text(text: str, change: Callable[[Any], Any]) -> str:
    """JSON in a text, as some models send objects, changed as if it were none."""
    if text.lstrip()[:1] not in {"{", "["}:
        return text
    try:
        held = json.loads(text)
        changed = change(held)
    except (ValueError, RecursionError):
        return text
    return text if changed == held else json_text(changed)


def _carries(name: Any) -> bool:
    return isinstance(name, str) and _SEPARATORS.sub("", name).lower() in _CARRIERS
