"""One table of codes: what a failed call is called on each wire."""

from __future__ import annotations

from callpact.codes import CODES, OWN_CODE

# Design, section 5: code on the wire, seed 001, FlowMCP, HTTP.
DESIGN = {
    "schema_validation_failed": ("VALIDATION_ERROR", "E004", 400),
    "component_not_on_palette": ("VALIDATION_ERROR", "E004", 400),
    "component_not_allowed": ("VALIDATION_ERROR", "E004", 400),
    "access_denied": ("ACCESS_DENIED", "E007", 403),
    "not_confirmed": ("ACCESS_DENIED", "E007", 403),
    "tool_not_found": ("OPERATION_NOT_FOUND", "E008", 404),
    "tool_error": ("TOOL_ERROR", "E005", 502),
    "address_not_allowed": ("EXECUTION_ERROR", "E002", 502),
    "upstream_error": ("EXECUTION_ERROR", "E001", 502),
    "server_param_missing": ("EXECUTION_ERROR", "E006", 503),
    "output_validation_failed": ("OUTPUT_VALIDATION_ERROR", "E009", 502),
    "timeout": ("TIMEOUT", "E002", 504),
    "idempotency_key_invalid": ("VALIDATION_ERROR", "E004", 400),
    "idempotency_key_reused": ("VALIDATION_ERROR", "E004", 422),
    "idempotency_key_in_use": ("EXECUTION_ERROR", "E005", 409),
    "idempotency_answer_unavailable": ("EXECUTION_ERROR", "E005", 409),
    "idempotency_not_recorded": ("EXECUTION_ERROR", "E005", 503),
    "aborted": ("ABORTED", "E002", 503),
    "client_unable": ("EXECUTION_ERROR", "E005", 422),
    "overloaded": ("EXECUTION_ERROR", "E002", 503),
    "code_outdated": ("EXECUTION_ERROR", "E005", 503),
    "not_recorded": ("EXECUTION_ERROR", "E005", 503),
    "paused": ("EXECUTION_ERROR", "E005", 409),
    "handler_error": ("EXECUTION_ERROR", "E005", 500),
}


def test_the_table_of_codes_is_the_one_of_the_design():
    table = {code: (row.event, row.flowmcp, row.http) for code, row in CODES.items()}
    assert table == DESIGN
    assert all(row.code == code and row.meaning for code, row in CODES.items())


def test_every_exit_code_tells_a_failure_from_success():
    assert all(row.exit > 0 for row in (*CODES.values(), OWN_CODE))
