"""The rules of output: MIME types, seven keywords, five types, four levels."""

from __future__ import annotations

import pytest

import kit

told, with_tool = kit.told, kit.with_tool
OUTPUT = f"{kit.TOOL}/output"
SCHEMA = f"{OUTPUT}/schema"


def output(schema, mime="application/json"):
    return told(with_tool(output={"mimeType": mime, "schema": schema}))


def node(**keywords):
    """What is told about one property with these keywords, places without what stands before."""
    found = output({"type": "object", "properties": {"a": keywords}})
    before = f"{SCHEMA}/properties/a"
    return {(code, path.removeprefix(before)) for code, path in found}


@pytest.mark.parametrize("value", [None, {}, [], "application/json"])
def test_output_is_there_with_both_fields_or_not_at_all(value):
    assert told(with_tool(output=value)) == {("VAL061", OUTPUT)}


def test_both_fields_of_output_are_required():
    assert told(with_tool(output={"schema": {"type": "object"}})) == {
        ("VAL060", f"{OUTPUT}/mimeType")
    }
    assert told(with_tool(output={"mimeType": "text/plain"})) == {("VAL061", SCHEMA)}
    more = {"mimeType": "text/plain", "schema": {"type": "string"}, "description": "Text"}
    assert told(with_tool(output=more)) == {("VAL137", f"{OUTPUT}/description")}


@pytest.mark.parametrize(
    ("mime", "schema", "found"),
    [
        ("application/json", {"type": "object"}, set()),
        ("application/json", {"type": "array", "items": {"type": "string"}}, set()),
        ("application/json", {"type": "string"}, {("VAL062", f"{SCHEMA}/type")}),
        ("text/plain", {"type": "string"}, set()),
        ("text/plain", {"type": "object"}, {("VAL062", f"{SCHEMA}/type")}),
        ("image/png", {"type": "string", "format": "base64"}, set()),
        ("image/png", {"type": "string"}, {("VAL062", f"{SCHEMA}/format")}),
        ("image/png", {"type": "string", "format": "uri"}, {("VAL062", f"{SCHEMA}/format")}),
        ("image/png", {"type": "object"}, {("VAL062", f"{SCHEMA}/type")}),
        ("application/xml", {"type": "string"}, {("VAL060", f"{OUTPUT}/mimeType")}),
        (5, {"type": "string"}, {("VAL060", f"{OUTPUT}/mimeType")}),
        (["text/plain"], {"type": "string"}, {("VAL060", f"{OUTPUT}/mimeType")}),
        ("text/plain", "string", {("VAL061", SCHEMA)}),
    ],
)
def test_the_type_goes_with_the_mime_type(mime, schema, found):
    assert output(schema, mime) == found


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": "string", "description": "A"},
        {"type": "number", "nullable": True},
        {"type": "boolean", "nullable": False},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uri"},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    ],
)
def test_the_dialect_has_seven_keywords_and_five_types(keywords):
    assert node(**keywords) == set()


@pytest.mark.parametrize(
    ("keywords", "found"),
    [
        ({}, {("VAL061", "/type")}),
        ({"description": "A"}, {("VAL061", "/type")}),
        ({"type": "text"}, {("VAL061", "/type")}),
        ({"type": ["string", "null"]}, {("VAL061", "/type")}),
        ({"type": None}, {("VAL061", "/type")}),
        ({"type": "integer"}, {("VAL122", "/type")}),
        ({"type": "integer", "nullable": True}, {("VAL122", "/type")}),
        ({"type": "array"}, {("VAL120", "")}),
        ({"type": "array", "description": "A"}, {("VAL120", "")}),
        ({"type": "array", "nullable": True}, {("VAL120", "")}),
        ({"type": "string", "properties": {}}, {("VAL064", "/properties")}),
        ({"type": "object", "properties": []}, {("VAL061", "/properties")}),
        ({"type": "object", "items": {"type": "string"}}, {("VAL065", "/items")}),
        ({"type": "array", "items": [{"type": "string"}]}, {("VAL061", "/items")}),
        ({"type": "array", "items": None}, {("VAL061", "/items")}),
        ({"type": "string", "nullable": "yes"}, {("VAL061", "/nullable")}),
        ({"type": "string", "enum": "a"}, {("VAL061", "/enum")}),
        ({"type": "string", "enum": []}, {("VAL061", "/enum")}),
        ({"type": "string", "description": 5}, {("VAL061", "/description")}),
        ({"type": "string", "format": 5}, {("VAL061", "/format")}),
        ({"type": "string", "format": "email"}, {("VAL136", "/format")}),
        ({"oneOf": [{"type": "string"}]}, {("VAL121", "/oneOf")}),
        ({"type": "string", "a/b": 1}, {("VAL121", "/a~1b")}),
    ],
)
def test_what_is_not_of_the_dialect_is_told_at_its_place(keywords, found):
    assert node(**keywords) == found


@pytest.mark.parametrize(
    "keyword",
    [
        "$ref",
        "oneOf",
        "anyOf",
        "allOf",
        "required",
        "additionalProperties",
        "pattern",
        "minimum",
        "maximum",
    ],
)
def test_excluded_keywords_are_errors_only_for_the_strict(keyword):
    main = with_tool(
        output={"mimeType": "application/json", "schema": {"type": "object", keyword: 1}}
    )
    assert kit.told(main) == {("VAL121", f"{SCHEMA}/{keyword}")}
    assert kit.worst(main, "VAL121") == "error"
    assert kit.worst(main, "VAL121", "compat") == "warning"


@pytest.mark.parametrize("value", [None, 5, "string", ["string"]])
def test_a_property_is_a_schema(value):
    found = output({"type": "object", "properties": {"a": value}})
    assert found == {("VAL061", f"{SCHEMA}/properties/a")}


def nested(levels, leaf):
    schema = leaf
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "leaf", [{"type": "string"}, {"type": "object"}, {"type": "number", "nullable": True}]
)
def test_a_fifth_level_is_rejected_and_leaves_count(leaf):
    assert output(nested(4, leaf)) == set()
    fifth = f"{SCHEMA}{'/properties/a' * 4}"
    assert output(nested(5, leaf)) == {("VAL063", fifth)}
    assert output(nested(9, leaf)) == {("VAL063", fifth)}


def test_items_add_no_level():
    row = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    assert output(nested(4, row)) == set()
    inner = {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}}
    assert {code for code, _ in output(nested(4, inner))} == {"VAL063"}


def test_rules_take_schemas_of_any_depth():
    from callpact.sources.flowmcp.check.rules.output_rules import output_hits

    found = list(output_hits({"mimeType": "application/json", "schema": nested(2_000, {})}, ""))
    assert {hit.key for hit in found} == {"VAL061", "VAL063"}
