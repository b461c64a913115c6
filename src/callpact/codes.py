"""The one table of the codes of failed calls, with the name of each on each wire.

Data only: `errors.py` has the classes, `wire/` and `protocol/events.py` the renderings. The codes
of FlowMCP rules have a table of their own (`sources/flowmcp/check/rule_table.py`).
"""

from __future__ import annotations

from msgspec import Struct


class Code(Struct, frozen=True):
    """One row of the table of codes: the name of a failure on each wire."""

    code: str
    kind: str
    event: str
    flowmcp: str
    http: int
    exit: int
    meaning: str


_ROWS = (
    Code(
        "schema_validation_failed",
        "input",
        "VALIDATION_ERROR",
        "E004",
        400,
        3,
        "The arguments do not keep the tool's input schema; nothing was run.",
    ),
    Code(
        "component_not_on_palette",
        "components",
        "VALIDATION_ERROR",
        "E004",
        400,
        3,
        "The input names a component that the project does not have.",
    ),
    Code(
        "component_not_allowed",
        "components",
        "VALIDATION_ERROR",
        "E004",
        400,
        3,
        "The input puts a component into a slot that does not take it.",
    ),
    Code(
        "access_denied",
        "access",
        "ACCESS_DENIED",
        "E007",
        403,
        4,
        "The caller may not use this tool.",
    ),
    Code(
        "not_confirmed",
        "access",
        "ACCESS_DENIED",
        "E007",
        403,
        4,
        "The user was asked whether the tool may run, and did not agree; nothing was run.",
    ),
    Code(
        "tool_not_found",
        "unknown tool",
        "OPERATION_NOT_FOUND",
        "E008",
        404,
        5,
        "No tool has this id, wire name or alias.",
    ),
    Code(
        "tool_error",
        "tool",
        "TOOL_ERROR",
        "E005",
        502,
        6,
        "An MCP server answered with isError, and `raise_for_error` was asked to raise it.",
    ),
    Code(
        "address_not_allowed",
        "address refused",
        "EXECUTION_ERROR",
        "E002",
        502,
        7,
        "The upstream address lies in a range that the source does not allow.",
    ),
    Code(
        "upstream_error",
        "upstream",
        "EXECUTION_ERROR",
        "E001",
        502,
        7,
        "The upstream could not be reached, or answered with an error status.",
    ),
    Code(
        "server_param_missing",
        "missing key",
        "EXECUTION_ERROR",
        "E006",
        503,
        7,
        "The tool needs a key that is not configured.",
    ),
    Code(
        "output_validation_failed",
        "output",
        "OUTPUT_VALIDATION_ERROR",
        "E009",
        502,
        8,
        "The tool's answer does not keep its output schema; nothing of it is delivered.",
    ),
    Code(
        "timeout",
        "timeout",
        "TIMEOUT",
        "E002",
        504,
        9,
        "The call did not end before its deadline.",
    ),
    Code(
        "client_unable",
        "client",
        "EXECUTION_ERROR",
        "E005",
        422,
        6,
        "The tool had to ask its client, which cannot be asked or gave no usable answer.",
    ),
    Code(
        "overloaded",
        "overload",
        "EXECUTION_ERROR",
        "E002",
        503,
        9,
        "Too many calls of the tool, or of the caller, run already; nothing was run.",
    ),
    Code(
        "paused",
        "paused",
        "EXECUTION_ERROR",
        "E005",
        409,
        6,
        "The tool waits for an answer from outside; the agent that called it pauses.",
    ),
    Code(
        "code_outdated",
        "published contract",
        "EXECUTION_ERROR",
        "E005",
        503,
        9,
        "The published contract admits the call, and the running code does not; nothing was run.",
    ),
    Code(
        "not_recorded",
        "not recorded",
        "EXECUTION_ERROR",
        "E005",
        503,
        9,
        'The record of the call could not be written, and `on_loss = "refuse"` keeps its answer back.',
    ),
    Code(
        "idempotency_key_invalid",
        "idempotency",
        "VALIDATION_ERROR",
        "E004",
        400,
        3,
        "The idempotency key is not 1 to 255 visible ASCII characters; nothing was run.",
    ),
    Code(
        "idempotency_key_reused",
        "idempotency",
        "VALIDATION_ERROR",
        "E004",
        422,
        3,
        "The idempotency key was used with other arguments; nothing was run.",
    ),
    Code(
        "idempotency_key_in_use",
        "idempotency",
        "EXECUTION_ERROR",
        "E005",
        409,
        9,
        "The first call with this idempotency key still runs; nothing was run again.",
    ),
    Code(
        "idempotency_answer_unavailable",
        "idempotency",
        "EXECUTION_ERROR",
        "E005",
        409,
        6,
        "The first call with this idempotency key ran, or may have run, and its answer is not known.",
    ),
    Code(
        "idempotency_not_recorded",
        "idempotency",
        "EXECUTION_ERROR",
        "E005",
        503,
        9,
        "The idempotency key could not be recorded; nothing was run.",
    ),
    Code("aborted", "aborted", "ABORTED", "E002", 503, 9, "The call was cancelled before its end."),
    Code(
        "handler_error",
        "internal",
        "EXECUTION_ERROR",
        "E005",
        500,
        1,
        "The tool broke in a way that it did not declare; the details are in the log.",
    ),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
"""Every reserved code. A `ToolError` brings a code of its own, rendered like `OWN_CODE`."""

OWN_CODE = Code(
    "(the tool's own code)",
    "tool",
    "(the same)",
    "E005",
    422,
    6,
    "A rule that only the tool can check was broken; raised as `ToolError(code, message)`.",
)
