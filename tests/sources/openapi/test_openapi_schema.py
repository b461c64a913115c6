"""Schema Objects become JSON Schema 2020-12, by direction, with shared definitions."""

from __future__ import annotations

import json

import pytest

from api_documents import answer, api, body, check, load, one
from callpact.schema import compile_schema
from callpact.sources.openapi.openapi_schema import MAX_OUTPUT_DEFINITIONS


def both(schema, version="3.0.3", schemas=None):
    """A schema as the body of a request and as a response, converted."""
    operation = {"requestBody": body(schema), "responses": {"200": answer(schema)}}
    tool = one(operation, "post", version=version, components={"schemas": schemas or {}})
    return tool.contract.input, tool.contract.output


def given(schema, version="3.0.3", schemas=None):
    """A schema as the body of a request, converted."""
    return both(schema, version, schemas)[0]["properties"]["body"]


REF = "#/components/schemas/"


@pytest.mark.parametrize(
    ("schema", "converted"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"allOf": [{"type": "string"}], "nullable": True, "description": "d"},
            {"description": "d", "anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            {"type": "integer", "exclusiveMinimum": 1},
        ),
        (
            {"type": "integer", "maximum": 1, "exclusiveMaximum": False},
            {"type": "integer", "maximum": 1},
        ),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "file"}, {"type": "string", "format": "binary"}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        (
            {"type": "string", "default": "x", "deprecated": True},
            {"type": "string", "default": "x", "deprecated": True},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "additionalProperties": False},
        ),
        ({"type": "string", "x-more": 1, "xml": {}, "externalDocs": {}}, {"type": "string"}),
        ({"not": {"type": "null"}}, {"not": {"type": "null"}}),
        ({"type": "string", "$id": "x", "$schema": "y", "$anchor": "z"}, {"type": "string"}),
    ],
)
def test_keywords_of_version_3_0_become_those_of_json_schema(schema, converted):
    assert given(schema) == converted


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"]},
        {"exclusiveMinimum": 3},
        {"const": 1},
        {"prefixItems": [{"type": "string"}], "items": False},
        {"if": {"type": "string"}, "then": {"minLength": 1}},
        {"patternProperties": {"^a": {"type": "string"}}},
        {"dependentRequired": {"a": ["b"]}},
        {"unevaluatedProperties": False, "type": "object"},
        True,
    ],
)
def test_keywords_of_version_3_1_stay(schema):
    assert given(schema, "3.1.0") == schema


def test_words_beside_a_reference_count_and_other_keywords_only_since_version_3_1():
    schema = {"$ref": f"{REF}A", "description": "d", "minLength": 3}
    assert given(schema, "3.0.3", {"A": {}}) == {"$ref": "#/$defs/A", "description": "d"}
    assert given(schema, "3.1.0", {"A": {}})["minLength"] == 3


def test_read_only_properties_are_not_in_the_input_and_write_only_ones_not_in_the_output():
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "secret": {"type": "string", "writeOnly": True},
            "made": {"$ref": f"{REF}Time"},
            "name": {"type": "string"},
        },
        "required": ["id", "secret", "made", "name"],
    }
    into, out = both(schema, schemas={"Time": {"type": "string", "readOnly": True}})
    assert list(into["properties"]["body"]["properties"]) == ["secret", "name"]
    assert into["properties"]["body"]["required"] == ["secret", "name"]
    assert list(out["properties"]) == ["id", "made", "name"]
    assert out["required"] == ["id", "made", "name"]


def test_what_another_branch_declares_read_only_is_not_required_either():
    base = {"type": "object", "properties": {"id": {"type": "integer", "readOnly": True}}}
    schema = {"allOf": [{"$ref": f"{REF}Base"}, {"required": ["id", "name"]}], "required": ["id"]}
    made = given(schema, schemas={"Base": base})
    assert made["allOf"][1]["required"] == ["name"]
    assert made["required"] == []


def test_a_cycle_stays_a_definition():
    node = {"type": "object", "properties": {"next": {"$ref": f"{REF}Node"}}}
    into, out = both({"$ref": f"{REF}Node"}, schemas={"Node": node})
    expected = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    assert into["$defs"] == out["$defs"] == {"Node": expected}
    assert compile_schema(into).accepts({"body": {"next": {"next": {}}}})
    assert not compile_schema(into).accepts({"body": {"next": {"next": 1}}})


def test_a_tool_has_only_the_definitions_that_it_reaches():
    schemas = {
        "A": {"properties": {"b": {"$ref": f"{REF}B"}}},
        "B": {"type": "string"},
        "C": {"type": "integer"},
    }
    into, _ = both({"$ref": f"{REF}A"}, schemas=schemas)
    assert set(into["$defs"]) == {"A", "B"}


def test_a_reference_into_the_middle_of_a_document_works():
    schemas = {"A": {"properties": {"x y/z": {"type": "string"}}}}
    into, _ = both({"$ref": f"{REF}A/properties/x%20y~1z"}, schemas=schemas)
    (name,) = into["$defs"]
    assert into["properties"]["body"] == {"$ref": f"#/$defs/{name}"}
    assert compile_schema(into).accepts({"body": "text"})
    assert not compile_schema(into).accepts({"body": 1})


def test_an_anchor_is_found():
    schemas = {"A": {"$anchor": "here", "type": "string"}}
    into, _ = both({"$ref": "#here"}, "3.1.0", schemas)
    assert not compile_schema(into).accepts({"body": 1})


def test_names_of_components_that_differ_in_odd_characters_stay_apart():
    schemas = {"a b": {"type": "string"}, "a_b": {"type": "integer"}, "a%b": {"type": "null"}}
    union = {"anyOf": [{"$ref": f"{REF}a b"}, {"$ref": f"{REF}a_b"}, {"$ref": f"{REF}a%25b"}]}
    into, _ = both(union, schemas=schemas)
    assert len(into["$defs"]) == 3
    judge = compile_schema(into)
    assert all(judge.accepts({"body": value}) for value in ("x", 1, None))
    assert not judge.accepts({"body": []})


def test_a_discriminator_selects_the_branch_of_an_input():
    schemas = {
        "Cat": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "lives": {"type": "integer"}},
        },
        "Dog": {"type": "object", "properties": {"kind": {"type": "string"}}},
    }
    union = {
        "oneOf": [{"$ref": f"{REF}Cat"}, {"$ref": f"{REF}Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"tabby": f"{REF}Cat"}},
    }
    into, out = both(union, schemas=schemas)
    judge = compile_schema(into)
    assert judge.accepts({"body": {"kind": "tabby", "lives": 9}})
    assert judge.accepts({"body": {"kind": "Dog"}})
    assert not judge.accepts({"body": {"kind": "tabby", "lives": "nine"}})
    assert not judge.accepts({"body": {"kind": "fish"}})
    assert compile_schema(out).accepts({"kind": "a new one"})


def test_an_output_that_fits_several_branches_is_right():
    branch = {"type": "object", "properties": {"a": {"type": "string"}}}
    into, out = both({"oneOf": [branch, branch]})
    assert "oneOf" in into["properties"]["body"]
    assert compile_schema(out).accepts({"a": "x"})


def test_a_schema_that_others_extend_does_not_strip_their_properties():
    pet = {"type": "object", "properties": {"kind": {}}, "discriminator": {"propertyName": "kind"}}
    _, out = both({"$ref": f"{REF}Pet"}, schemas={"Pet": pet})
    assert out["$defs"]["Pet"]["additionalProperties"] is True


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("type", "datetime"),
        ("type", []),
        ("enum", []),
        ("required", True),
        ("minLength", "3"),
        ("multipleOf", 0),
        ("pattern", "("),
        ("pattern", 3),
        ("allOf", {}),
        ("anyOf", []),
        ("properties", []),
        ("exclusiveMinimum", "1"),
        ("description", 3),
        ("uniqueItems", "yes"),
    ],
)
def test_a_keyword_that_means_nothing_is_left_out_with_a_finding(keyword, value):
    document = api({"/pets": {"post": {"requestBody": body({keyword: value, "title": "t"})}}})
    (tool,) = load(document)
    assert tool.contract.input["properties"]["body"] == {"title": "t"}
    (finding,) = check(document)
    assert finding.severity == "warning"
    assert finding.path.endswith(f"/schema/{keyword}")


def test_a_reference_of_an_output_that_leads_nowhere_accepts_anything_with_a_finding():
    document = api({"/pets": {"get": {"responses": {"200": answer({"$ref": "#/nowhere"})}}}})
    (tool,) = load(document)
    assert tool.contract.output in (None, {})
    assert any("leads nowhere" in each.message for each in check(document))


def test_an_input_is_never_reduced_and_an_output_is_reduced_far_from_its_root():
    words = "w" * 2_000
    schemas = {
        f"S{n}": {
            "type": "object",
            "description": words,
            "properties": {"n": {"$ref": f"{REF}S{n + 1}"}},
        }
        for n in range(60)
    }
    schemas["S60"] = {"type": "string"}
    operation = {
        "requestBody": body({"$ref": f"{REF}S0"}),
        "responses": {"200": answer({"$ref": f"{REF}S0"})},
    }
    document = api({"/pets": {"post": operation}}, components={"schemas": schemas})
    (tool,) = load(document)
    assert len(tool.contract.input["$defs"]) == 61
    output = tool.contract.output
    assert 5 < len(output["$defs"]) < 50
    assert len(json.dumps(output)) < MAX_OUTPUT_DEFINITIONS * 1.2
    assert compile_schema(output).accepts({"n": {"n": {}}})
    assert any("is reduced" in each.message for each in check(document))


def test_a_schema_that_is_too_deep_is_an_error_of_its_tool_alone():
    deep = {"type": "string"}
    for _ in range(150):
        deep = {"type": "array", "items": deep}
    document = api({"/deep": {"post": {"requestBody": body(deep)}}, "/good": {"get": {}}})
    tools = load(document)
    assert [tool.contract.policy for tool in tools] == ["pass", "pass"]
    assert [each.severity for each in check(document)] == ["error"]
