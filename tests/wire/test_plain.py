"""Seed 004's error form, and what may stand beside its three members (decision 3)."""

from __future__ import annotations

import pytest

from callpact.errors import InvalidInput, Issue, ToolError, UnknownTool
from callpact.wire.plain import encode_error


def rejected(*issues: Issue) -> InvalidInput:
    return InvalidInput(lambda: issues)


LIMIT = Issue("maximum", "Property 'limit' must be ≤ 50, got 80", "/limit", 50, 80)
QUERY = Issue("required", "Property 'q' is required", "/q", hint="q: What to search for")


def test_one_issue_without_a_hint_is_exactly_the_three_members_of_the_seed():
    assert encode_error(rejected(LIMIT)) == {
        "error": {
            "code": "schema_validation_failed",
            "message": "Property 'limit' must be ≤ 50, got 80",
            "path": "/limit",
        }
    }


def test_a_hint_is_added_beside_the_three_members():
    body = encode_error(rejected(QUERY))["error"]
    assert set(body) == {"code", "message", "path", "hint"}
    assert body["hint"] == "q: What to search for"


def test_of_several_issues_the_first_fills_the_form_and_all_are_listed():
    body = encode_error(rejected(QUERY, LIMIT))["error"]
    assert body["message"] == QUERY.message
    assert body["path"] == "/q"
    assert [issue["path"] for issue in body["issues"]] == ["/q", "/limit"]
    assert body["issues"][1] == {
        "code": "maximum",
        "message": LIMIT.message,
        "path": "/limit",
        "expected": 50,
        "received": 80,
    }


def test_an_issue_of_the_whole_value_keeps_its_empty_path():
    whole = Issue("minProperties", "Input must have at least 1 property, got 0")
    body = encode_error(rejected(whole, LIMIT))["error"]
    assert body["path"] == ""
    assert body["issues"][0]["path"] == ""


def test_a_tool_error_has_its_own_code_and_no_path_unless_it_names_one():
    assert encode_error(ToolError("sold_out", "None left")) == {
        "error": {"code": "sold_out", "message": "None left"}
    }
    body = encode_error(ToolError("sold_out", "None left", path="/item"))["error"]
    assert body == {"code": "sold_out", "message": "None left", "path": "/item"}


@pytest.mark.parametrize("details", [{"left": 0}, {"next": "tomorrow"}])
def test_details_are_added_where_a_failure_has_some(details):
    body = encode_error(ToolError("sold_out", "None left", details=details))["error"]
    assert body["details"] == details


def test_an_unknown_tool_is_told_with_the_name_that_was_asked_for():
    body = encode_error(UnknownTool("shop.serch", ["shop.search"]))["error"]
    assert body["code"] == "tool_not_found"
    assert "shop.search" in body["message"]
    assert body["details"] == {"operationId": "shop.serch"}
