"""Seed 004's wire form: the data itself, or `{"error": {"code", "message", "path"}}`.

Further members are optional: `hint`, `issues` if there are several, `details` if there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from callpact.errors import CallError, Issue

_ALWAYS = ("code", "message", "path")


def encode_error(error: CallError) -> dict[str, Any]:
    """Encode a failed call for the model."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.path is not None:
        body["path"] = error.path
    issues = error.issues
    if issues and issues[0].hint:
        body["hint"] = issues[0].hint
    if len(issues) > 1:
        body["issues"] = [encode_issue(issue) for issue in issues]
    if error.details:
        body["details"] = error.details
    return {"error": body}


def encode_issue(issue: Issue) -> dict[str, Any]:
    """Encode one violation: its three members, and the others that are set."""
    members = msgspec.structs.asdict(issue)
    return {key: value for key, value in members.items() if key in _ALWAYS or value is not None}
