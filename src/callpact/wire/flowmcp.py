"""FlowMCP's wire form: `{status, messages, data}`, failures as `E<3 digits> <tool>: <text>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callpact.envelope import ResponseEnvelope
    from callpact.errors import CallError


def encode_result(envelope: ResponseEnvelope[Any]) -> dict[str, Any]:
    """Encode a result; bytes become base64 text, as in FlowMCP's images."""
    return {"status": True, "messages": [], "data": envelope.to_wire()["data"]}


def encode_error(error: CallError, tool_name: str) -> dict[str, Any]:
    """Encode a failure: one message per issue, each with its E-code."""
    code = _code(error)
    texts = [issue.message for issue in error.issues] or [error.message]
    return {
        "status": False,
        "messages": [f"{code} {tool_name}: {text}" for text in texts],
        "data": None,
    }


def _code(error: CallError) -> str:
    # Seed 000: E001 is a response with an error status, E002 a missing response.
    if error.code != "upstream_error":
        return error.row.flowmcp
    if error.details.get("reason") == "unreadable":
        return "E003"
    return "E001" if "statusCode" in error.details else "E002"
