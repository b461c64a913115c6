"""Output: FlowMCP's dialect as a schema, and answers that are checked without being held back."""

from __future__ import annotations

import json
import logging

import pytest

import calls
from callpact.schema import compile_schema
from callpact.sources.flowmcp.http.response import mime_type, output_schema

Shop, answered, main, tool = calls.Shop, calls.answered, calls.main, calls.tool


def declared(schema, mime="application/json"):
    return {"mimeType": mime, "schema": schema}


@pytest.fixture
def shop(tmp_path):
    """A tool with this output, whose upstream answers with this."""

    def make(schema, answer, **given):
        output = {} if schema is None else {"output": declared(schema)}
        data = main({"getIt": tool(**output)})
        return Shop(tmp_path, data, answer=answered(json.dumps(answer)), **given)

    return make


TOKEN = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Token identifier"},
        "price": {"type": "number", "description": "Current price in USD"},
        "marketCap": {"type": "number", "description": "Market capitalization", "nullable": True},
        "status": {"type": "string", "enum": ["verified", "unverified"]},
        "isNew": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "string", "format": "date-time"},
    },
}


# --- the schema -----------------------------------------------------------------------------


def test_the_seven_keywords_become_a_json_schema():
    assert output_schema(declared(TOKEN)) == {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Token identifier"},
            "price": {"type": "number", "description": "Current price in USD"},
            "marketCap": {"type": ["number", "null"], "description": "Market capitalization"},
            "status": {"type": "string", "enum": ["verified", "unverified"]},
            "isNew": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {"type": "string", "format": "date-time"},
        },
    }


@pytest.mark.parametrize(
    ("node", "schema"),
    [
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": "object", "nullable": True}, {"type": ["object", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "string", "enum": ["a", None], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "array"}, {"type": "array"}),
        ({"type": "object", "required": ["a"], "additionalProperties": False, "minProperties": 9}, {"type": "object"}),
        ({"type": "string", "pattern": "^a", "minLength": 3, "$ref": "#/x", "oneOf": [], "not": {}}, {"type": "string"}),
        ({"type": "number", "minimum": 5, "maximum": 1, "multipleOf": 7}, {"type": "number"}),
        ({"type": "array", "items": {"type": "integer", "nullable": True}}, {"type": "array", "items": {"type": ["number", "null"]}}),
    ],
)  # fmt: skip
def test_a_node_keeps_what_the_dialect_has_and_nothing_else(node, schema):
    assert output_schema(declared(node)) == schema


def test_nothing_declared_is_no_schema():
    assert output_schema(None) is None


@pytest.mark.parametrize("levels", [1, 4, 5, 20])
def test_a_schema_of_any_depth_can_be_compiled(levels):
    node = {"type": "string"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"x": node}}
    value = "text"
    for _ in range(levels):
        value = {"x": value}
    compiled = compile_schema(output_schema(declared(node)))
    assert compiled.accepts(value)


@pytest.mark.parametrize(
    ("output", "mime"),
    [
        (None, "application/json"),
        (declared({}, "image/png"), "image/png"),
        (declared({}, "text/plain"), "text/plain"),
        (declared({}, "application/json"), "application/json"),
    ],
)
def test_json_is_what_is_expected_where_nothing_is_declared(output, mime):
    assert mime_type(output) == mime


# --- answers under `warn` -------------------------------------------------------------------


def test_the_policy_of_a_declared_output_is_to_warn_and_of_none_to_pass(shop):
    assert shop(TOKEN, {}).tool.contract.policy == "warn"
    assert shop(None, {}).tool.contract.policy == "pass"


GOOD = {
    "id": "btc",
    "price": 1.5,
    "marketCap": None,
    "status": "verified",
    "isNew": True,
    "tags": [],
    "at": "no date at all",
}


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        {},
        {"id": "btc"},
        {**GOOD, "price": 7},
        {**GOOD, "extra": {"deep": [1, None]}, "": None},
    ],
)
def test_an_answer_that_fits_has_no_warning_and_missing_and_extra_fields_are_none(shop, answer):
    envelope = shop(TOKEN, answer).call()
    assert (envelope.data, envelope.warnings, envelope.changes) == (answer, (), ())


@pytest.mark.parametrize(
    ("answer", "warnings"),
    [
        ({**GOOD, "price": "1.5"}, {("type", "/price")}),
        ({**GOOD, "price": True}, {("type", "/price")}),
        ({**GOOD, "price": None}, {("type", "/price")}),
        ({**GOOD, "status": "lost"}, {("enum", "/status")}),
        ({**GOOD, "status": None}, {("type", "/status"), ("enum", "/status")}),
        ({**GOOD, "isNew": 1}, {("type", "/isNew")}),
        ({**GOOD, "tags": ["a", 7, None]}, {("type", "/tags/1"), ("type", "/tags/2")}),
        ({**GOOD, "tags": {}}, {("type", "/tags")}),
        ([], {("type", "")}),
        ("text", {("type", "")}),
        (None, {("type", "")}),
    ],
)
def test_a_mismatch_is_a_warning_and_the_data_is_delivered_unchanged(shop, answer, warnings):
    envelope = shop(TOKEN, answer).call()
    assert (envelope.data, envelope.changes) == (answer, ())
    told = {(issue.code, issue.path) for issue in envelope.warnings}
    assert told
    assert told <= warnings


def test_every_place_of_a_mismatch_is_told(shop):
    answer = {"id": 1, "price": "x", "status": 5, "tags": [1]}
    told = {issue.path for issue in shop(TOKEN, answer).call().warnings}
    assert told == {"/id", "/price", "/status", "/tags/0"}


def test_warnings_are_not_part_of_the_envelope_on_the_wire_unless_asked_for(shop):
    envelope = shop(TOKEN, {"id": 1}).call()
    assert envelope.to_wire().keys() == {"data", "meta"}
    assert [issue["path"] for issue in envelope.to_wire(details=True)["warnings"]] == ["/id"]


def test_warnings_are_not_part_of_flowmcps_answer(shop):
    made = shop(TOKEN, {"id": 1})
    assert made.rendered() == {"status": True, "messages": [], "data": {"id": 1}}


def test_a_call_can_be_held_to_more(shop):
    made = shop(TOKEN, {"id": 1})
    assert made.failure(policy="reject").code == "output_validation_failed"
    assert made.call(policy="cast").data["id"] != 1


def test_an_array_at_the_root_is_checked_item_by_item(shop):
    schema = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}}
    made = shop(schema, [{"n": 1}, {"n": "2"}, {}, None])
    envelope = made.call()
    assert envelope.data == [{"n": 1}, {"n": "2"}, {}, None]
    assert {issue.path for issue in envelope.warnings} == {"/1/n", "/3"}


def test_without_an_output_anything_is_delivered_without_a_word(shop):
    for answer in ({"a": [1]}, [], "text", 7, None, True):
        envelope = shop(None, answer).call()
        assert (envelope.data, envelope.warnings) == (answer, ())


def test_integers_of_any_size_are_delivered(shop):
    answer = {"wei": 123456789012345678901234567890}
    made = shop({"type": "object", "properties": {"wei": {"type": "number"}}}, answer)
    envelope = made.call()
    assert (envelope.data, envelope.warnings) == (answer, ())
    assert json.loads(envelope.to_json())["data"] == answer


def test_five_levels_are_taken_with_a_warning_in_the_report_and_checked(tmp_path):
    node = {"type": "string"}
    for name in "edcb":
        node = {"type": "object", "properties": {name: node}}
    made = Shop(
        tmp_path,
        main({"getIt": tool(output=declared(node))}),
        answer=answered({"b": {"c": {"d": {"e": 7}}}}),
    )
    assert "VAL063" in {found.code for found in made.report if found.severity == "warning"}
    assert [issue.path for issue in made.call().warnings] == ["/b/c/d/e"]


def test_a_fifth_level_is_refused_under_strict(tmp_path):
    node = {"type": "string"}
    for name in "edcb":
        node = {"type": "object", "properties": {name: node}}
    made = Shop(tmp_path, main({"getIt": tool(output=declared(node))}), profile="strict")
    assert "VAL063" in {found.code for found in made.errors}
    assert list(made.tools) == []


def test_an_answer_that_is_nested_without_end_is_no_crash(tmp_path):
    for depth in (100, 1_000, 2_000, 200_000):
        body = "[" * depth + "]" * depth
        made = Shop(
            tmp_path,
            main({"getIt": tool(output=declared({"type": "array"}))}),
            answer=answered(body),
        )
        if depth <= 1_000:
            assert json.dumps(made.call().data) == body
        else:
            assert made.failure().code in {"upstream_error", "output_validation_failed"}


def test_warnings_are_logged_for_the_maintainers(shop, caplog):
    caplog.set_level(logging.INFO, "callpact")
    shop(TOKEN, {"id": 1}).call()
    assert "shop.getIt" in caplog.text
    assert "/id" in caplog.text
