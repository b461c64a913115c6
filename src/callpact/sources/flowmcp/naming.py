"""Telling tools of one name apart: where files share a name, theirs gets into the tools'."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from callpact.sources.loaded import Finding
from callpact.tool import Tool, wire_name

_NOT_ID = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tool, with its name and that of its file as they are written."""

    name: str
    file: str
    tool: Tool


def id_part(name: str, otherwise: str) -> str:
    """A name as part of an id."""
    return _NOT_ID.sub("_", name).strip("_") or otherwise


def tell_apart(loaded: list[Loaded], report: list[Finding]) -> list[Tool]:
    """Tools of one name in several files get the file's name into theirs, each with a warning."""
    count = Counter(item.tool.id for item in loaded)
    tools: list[Tool] = []
    names: dict[str, Tool] = {}
    for item in loaded:
        tool = item.tool
        if count[tool.id] > 1:
            tool = _renamed(item, count[tool.id], report)
        own = (tool.id, tool.wire_name, *tool.aliases)
        taken = next((name for name in own if name in names), None)
        if taken is not None:
            other = _file_of(names[taken])
            text = f"'{taken}' is already a tool of {other}: rename the tool or its file"
            report.append(Finding(_file_of(tool), "error", text))
            continue
        names |= dict.fromkeys(own, tool)
        tools.append(tool)
    return tools


def _renamed(item: Loaded, count: int, report: list[Finding]) -> Tool:
    tool = item.tool
    file = id_part(item.file, "file")
    new = f"{tool.namespace}.{file}.{tool.name}"
    text = f"'{tool.id}' is declared {count} times; here it is '{new}'"
    report.append(Finding(_file_of(tool), "warning", text))
    return replace(tool, id=new, wire_name=wire_name(f"{item.name}_{file}_{tool.namespace}"))


def _file_of(tool: Tool) -> str:
    return tool.source.removeprefix("flowmcp:")
