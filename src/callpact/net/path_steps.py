"""Segments of a path that servers read as a step up or to the same place."""

from __future__ import annotations

import re
from urllib.parse import unquote

_SLASHES = re.compile(r"[/\\]")
_SEGMENT_END = re.compile(r"[;?#\0]")
_MOST_DECODINGS = 8


def holds_step(segment: str) -> bool:
    """True for `.` and `..`, however often they are encoded.

    Some servers decode them before they resolve the path; Java servers treat `..;x` as `..`,
    Windows servers a backslash as a slash.
    """
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(segment)
        if decoded == segment:
            break
        segment = decoded
    parts = _SLASHES.split(segment)
    return any(_SEGMENT_END.split(part, maxsplit=1)[0] in {".", ".."} for part in parts)
