"""What a FlowMCP file is by nature: most of a catalogue are schema files, but not all of it.

A file is told by the names that it exports; none of it is read as data.
"""

from __future__ import annotations

import re
from pathlib import Path

from callpact.sources.flowmcp.scan import blank
from callpact.sources.loaded import Finding

KINDS = {
    "list": "a shared list",
    "skill": "a skill",
    "prompt": "a prompt",
    "content": "the text of a prompt",
    "selection": "a selection",
    "agent": "an agent",
}
"""Exports of files that are no schema files, and what such a file is."""
_EXPORT = re.compile(
    r"(?<![\w$.])export\s++(?:const|let|var|class|(?:async\s++)?function)\s++([\w$]++)"
)


def export_names(text: str) -> list[str]:
    """The names that a file exports, whatever stands behind them."""
    return _EXPORT.findall(blank(text))


def kind_of(text: str) -> str | None:
    """What a file is that is not meant to be a schema file; None if it may be meant as one."""
    names = export_names(text)
    if "main" in names or "schema" in names:
        return None
    return next((told for name, told in KINDS.items() if name in names), None)


def other_kind(path: Path, text: str) -> Finding | None:
    """What is to be said of a file of a catalogue that is no schema file by nature."""
    kind = kind_of(text)
    if kind is None:
        return None
    words = f"the file is {kind}, not a schema file; it is not loaded"
    return Finding(str(path), "info", words, "VAL159", "", 1, 1)
