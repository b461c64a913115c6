"""Seed 004's form: the data itself, or `{"error": {"code", "message", "path"}}`.

What goes beyond the three members is an addition, never instead: `hint`, all `issues` where there
are several, `details` where the failure has some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from callpact.errors import CallError, Issue

_ALWAYS = ("code", "message", "path")


def encode_error(error: CallError) -> dict[str, Any]:
    """A failed call, for the model that has to mend it."""
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
    """One violation: its three members, and of the others those that say something."""
    members = msgspec.structs.asdict(issue)
    return {key: value for key, value in members.items() if key in _ALWAYS or value is not None}
