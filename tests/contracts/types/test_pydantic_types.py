"""Pydantic models: they accept what the contract accepts, and hostile texts stay texts."""

from __future__ import annotations

import json
import sys
import types

import pytest
from pydantic import ValidationError

from callpact.contracts import NamedSchema, bundle_schemas, write_pydantic
from callpact.schema import compile_schema


def module(schema, name="PriceOutput"):
    text = write_pydantic([NamedSchema(name, "shop.price", "output", schema)])
    made = types.ModuleType("written_models")
    sys.modules["written_models"] = made
    exec(compile(text, "written", "exec"), made.__dict__)
    return made


@pytest.fixture(autouse=True)
def forgotten():
    yield
    sys.modules.pop("written_models", None)


OFFER = {
    "type": "object",
    "properties": {
        "price": {"type": "number", "minimum": 0},
        "currency": {"enum": ["EUR", "USD"]},
        "class": {"type": "string"},
        "_id": {"type": ["integer", "null"]},
        "parent": {"$ref": "#"},
        "sizes": {
            "type": "array",
            "items": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
    },
    "required": ["price"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ({"price": 1}, True),
        ({"price": 1, "class": "a", "_id": None, "parent": {"price": 2.5}}, True),
        ({"price": 1, "sizes": [{"x": 1}]}, True),
        ({"price": 1, "sizes": [{"x": "1"}]}, False),
        ({"price": -1}, False),
        ({"price": "1"}, False),
        ({"price": 1, "currency": "CHF"}, False),
        ({"price": 1, "more": 1}, False),
        ({}, False),
    ],
)
def test_a_model_judges_as_its_schema(value, is_valid):
    assert compile_schema(OFFER).accepts(value) == is_valid
    model = module(OFFER).PriceOutput
    if is_valid:
        assert model.model_validate_json(json.dumps(value)).price == value["price"]
    else:
        with pytest.raises(ValidationError):
            model.model_validate_json(json.dumps(value))


def test_what_is_not_an_object_is_a_root_model_also_of_later_models():
    schema = {
        "type": "array",
        "items": {"$ref": "#/$defs/a"},
        "$defs": {"a": OFFER["properties"]["price"]},
    }
    assert module(schema).PriceOutput.model_validate_json("[1]").root[0].root == 1


def test_hostile_texts_are_literals():
    evil = '"""\nimport os; raise SystemExit\n"""'
    schema = {
        "type": "object",
        "description": evil,
        "properties": {evil: {"enum": [evil], "description": evil}, "a b": {}, "a-b": {}, "": {}},
        "$defs": {evil: {}},
    }
    made = module(schema).PriceOutput
    value = {evil: evil, "a b": 1, "a-b": 2}
    assert made.model_validate_json(json.dumps(value)).a_b == 1


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"const": 1.5}, "const"),
        ({"enum": ["a", [1]]}, "enum"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, "prefixItems"),
        ({"properties": {"inner": {"type": "string", "pattern": "^a"}}}, "pattern"),
    ],
)
def test_rules_that_a_model_does_not_check_are_named(schema, words):
    text = write_pydantic([NamedSchema("T", "a.b", "output", schema)])
    assert f"# Not checked, or not exactly: {words}." in text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"pattern": {"type": "string"}, "not": {}}},
        {"enum": ["a", 1, None, True]},
        {"prefixItems": [{"type": "string"}, {}], "minItems": 2, "items": False, "type": "array"},
    ],
)
def test_nothing_is_named_of_a_schema_that_a_model_checks_in_full(schema):
    assert "# Not" not in write_pydantic([NamedSchema("T", "a.b", "output", schema)])


def test_a_bundle_keeps_the_references_of_each_schema():
    one = {"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}
    two = {"$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}}
    bundle = bundle_schemas(
        [NamedSchema("One", "a.one", "output", one), NamedSchema("Two", "a.two", "output", two)]
    )
    for name, value in (("One", "text"), ("Two", 1)):
        judge = compile_schema({**bundle, "$ref": f"#/$defs/{name}"})
        assert judge.accepts(value)
        assert not judge.accepts([])


def test_fields_may_have_the_names_of_types_and_attributes():
    names = ["str", "list", "json", "root", "model_config", "Any", "copy", "None", "a", "A"]
    properties = {name: {"type": ["string", "null"]} for name in names}
    properties["many"] = {"type": "array", "items": {"type": "string"}}
    made = module({"type": "object", "properties": properties}).PriceOutput
    value = {**dict.fromkeys(names, "x"), "many": ["y"]}
    assert made.model_validate_json(json.dumps(value)).model_dump(by_alias=True) == value


def test_a_field_that_allows_no_value_is_refused():
    made = module({"type": "object", "properties": {"a": False, "b": {"enum": []}, "c": {}}})
    assert made.PriceOutput.model_validate_json('{"c": 1}').c == 1
    for text in ('{"a": 1}', '{"b": "x"}'):
        with pytest.raises(ValidationError):
            made.PriceOutput.model_validate_json(text)
