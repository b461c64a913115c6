"""A result or a failure as a person reads it in a terminal. Text only; colours are the CLI's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callpact.wire.json_text import json_text

if TYPE_CHECKING:
    from callpact.envelope import ResponseEnvelope
    from callpact.errors import CallError


def encode_json(value: Any) -> str:
    """JSON, indented."""
    return json_text(value, indent=True)


def encode_notes(envelope: ResponseEnvelope[Any]) -> list[str]:
    """What the contract had to say about an answer: warnings, then changes."""
    notes = [f"warning: {issue.message} [{issue.code}]" for issue in envelope.warnings]
    notes += [
        f"changed: {change.path or '(the whole answer)'} was {change.action}"
        for change in envelope.changes
    ]
    return notes


def encode_error(error: CallError) -> list[str]:
    """A failure, line by line: the code, then every issue with its place and remedy."""
    if not error.issues:
        where = f" (at {error.path})" if error.path else ""
        details = f"  details: {json_text(error.details)}" if _tells_more(error) else None
        return [f"{error.code}: {error.message}{where}", *([details] if details else [])]
    lines = [f"{error.code}:"]
    for issue in error.issues:
        lines.append(f"  {issue.path or '(the whole value)'}: {issue.message}")
        if issue.hint:
            lines.append(f"    hint: {issue.hint}")
    return lines


def _tells_more(error: CallError) -> bool:
    """True if the details hold what the message does not say already."""
    return bool(error.details) and error.code not in {"tool_not_found", "timeout"}
