"""JSON Patch as far as proposals use it: members of objects, and items that are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callpact.audit.analysis.schema_edits import PatchOperation


def apply(document: Any, operations: Iterable[PatchOperation]) -> Any:
    """A copy of a document after the steps of a patch."""
    root = {"": json.loads(json.dumps(document))}
    for step in operations:
        holder: Any = root
        *parts, last = step.path.split("/")
        for part in parts:
            holder = holder[_key(holder, part)]
        if step.op == "remove":
            del holder[_key(holder, last)]
        else:
            holder[_key(holder, last)] = step.value
    return root[""]


def _key(holder: Any, part: str) -> Any:
    return int(part) if isinstance(holder, list) else part.replace("~1", "/").replace("~0", "~")
