"""FlowMCP's `{status, messages, data}`, for results and for failures."""

from __future__ import annotations

import base64

import pytest

from callpact.codes import CODES
from callpact.envelope import http_envelope, local_envelope
from callpact.errors import CallError, InvalidInput, Issue, ToolError, UpstreamError
from callpact.wire.flowmcp import encode_error, encode_result

# The column "FlowMCP" of the design's table of codes.
TABLE = {
    "schema_validation_failed": "E004",
    "component_not_on_palette": "E004",
    "component_not_allowed": "E004",
    "access_denied": "E007",
    "tool_not_found": "E008",
    "tool_error": "E005",
    "address_not_allowed": "E002",
    "server_param_missing": "E006",
    "output_validation_failed": "E009",
    "timeout": "E002",
    "aborted": "E002",
    "client_unable": "E005",
    "overloaded": "E002",
    "not_confirmed": "E007",
    "paused": "E005",
    "code_outdated": "E005",
    "not_recorded": "E005",
    "idempotency_key_invalid": "E004",
    "idempotency_key_reused": "E004",
    "idempotency_key_in_use": "E005",
    "idempotency_answer_unavailable": "E005",
    "idempotency_not_recorded": "E005",
    "handler_error": "E005",
}


def test_a_result_is_its_data_with_status_true_and_no_messages():
    assert encode_result(local_envelope({"a": [1, None]}, "x.y")) == {
        "status": True,
        "messages": [],
        "data": {"a": [1, None]},
    }


def test_the_meta_of_an_upstream_stays_out():
    envelope = http_envelope([1], status_code=200, headers={"a": "b"}, content_type="text/plain")
    assert encode_result(envelope) == {"status": True, "messages": [], "data": [1]}


def test_bytes_are_base64_text():
    assert encode_result(local_envelope(b"\x00\xff", "x.y"))["data"] == base64.b64encode(
        b"\x00\xff"
    ).decode("ascii")


def test_a_failure_has_status_false_no_data_and_one_message_per_issue():
    issues = [
        Issue("required", "Property 'q' is required", "/q", hint="what to search for"),
        Issue("maximum", "Property 'limit' must be ≤ 50, got 80", "/limit"),
    ]
    assert encode_error(InvalidInput(lambda: issues), "productSearch") == {
        "status": False,
        "messages": [
            "E004 productSearch: Property 'q' is required",
            "E004 productSearch: Property 'limit' must be ≤ 50, got 80",
        ],
        "data": None,
    }


def test_the_table_of_this_test_covers_every_code():
    assert set(TABLE) | {"upstream_error"} == set(CODES)


@pytest.mark.parametrize(("code", "expected"), TABLE.items())
def test_every_code_has_the_flowmcp_code_of_the_table(code, expected):
    assert encode_error(CallError(code, "text"), "t")["messages"] == [f"{expected} t: text"]


def test_an_upstream_that_answered_with_an_error_status_is_told_apart_from_one_that_did_not():
    answered = UpstreamError("503", details={"statusCode": 503})
    silent = UpstreamError("no connection")
    assert encode_error(answered, "t")["messages"] == ["E001 t: 503"]
    assert encode_error(silent, "t")["messages"] == ["E002 t: no connection"]


def test_a_tool_error_with_its_own_code_is_e005():
    assert encode_error(ToolError("sold_out", "None left"), "buy")["messages"] == [
        "E005 buy: None left"
    ]
