"""Pydantic models: they accept what the contract accepts, and hostile texts stay texts."""

from __future__ import annotations

import json
import random
import sys
import types

import pytest
from pydantic import ValidationError

from callpact.contracts import NamedSchema, bundle_schemas, write_pydantic
from callpact.contracts.counterexample import made_values
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


TEXT = {"type": "string"}
OBJECT = {"type": "object", "properties": {"a": TEXT}}
VALUES = [None, True, 0, 1, 2.0, 2.5, "", "abc", [], [1], ["a", "a"], {}, {"a": "x"}, {"b": 1}]
LEAVES = [
    {},
    {"type": "integer", "minimum": 1},
    {"type": "number", "maximum": 2},
    {"type": ["string", "null"], "maxLength": 2},
    {"type": "string", "pattern": "^a"},
    {"enum": ["a", "b", None]},
    {"const": 2},
    {"type": "boolean"},
    {"minLength": 1},
    {"type": "array", "uniqueItems": True},
]


def drawn(chance, levels=2):
    """A schema of objects, arrays, unions and leaves; required, so that null is no default."""
    if not levels or chance.random() < 0.2:
        return chance.choice(LEAVES)
    one, other = (drawn(chance, levels - 1) for _ in range(2))
    closed = {"additionalProperties": False} if chance.random() < 0.5 else {}
    return chance.choice(
        [
            {"type": "object", "properties": {"a": one}, "required": ["a"], **closed},
            {"type": "object", "additionalProperties": one},
            {"type": "array", "items": one, "minItems": 1},
            {"anyOf": [one, other]},
            {"oneOf": [one, other]},
            {"allOf": [one, other]},
            {"type": ["object", "array", "string"], "items": one, "minLength": 1},
            {"$ref": "#/$defs/a", **closed},
        ]
    )


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
        ({"minLength": 2}, "minLength"),
        ({"type": "string", "maximum": 2, "pattern": "a"}, "pattern"),
        ({"type": "object", "required": ["a"]}, "required"),
        ({"type": "number", "$ref": "#/$defs/a", "$defs": {"a": {"minimum": 1}}}, "type"),
        ({"type": "string", "minLength": 2, "oneOf": [{}, TEXT]}, "minLength, oneOf"),
        ({**OBJECT, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "anyOf"),
        ({**OBJECT, "const": {}}, "const"),
        ({"enum": ["a", "ab"], "maxLength": 1}, "maxLength"),
        ({"type": "array", "prefixItems": [TEXT]}, "prefixItems"),
        ({"multipleOf": 0.1, "type": "number"}, "multipleOf"),
        ({"const": 1.5}, "const"),
        ({"enum": ["a", [1]]}, "enum"),
        ({"properties": {"inner": {**TEXT, "pattern": "^a"}}}, "pattern"),
    ],
)
def test_rules_that_a_model_does_not_check_are_named(schema, words):
    text = write_pydantic([NamedSchema("T", "a.b", "output", schema)])
    assert f"# Not checked, or not exactly: {words}.\n" in text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"format": TEXT, "pattern": TEXT, "not": TEXT}},
        {"type": "string", "format": "email"},
        {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]},
        {"enum": ["a", None, 2]},
        {"type": "object", "properties": {}, "required": []},
        {"prefixItems": [TEXT, {}], "minItems": 2, "items": False, "type": "array"},
    ],
)
def test_rules_that_are_checked_or_are_none_of_the_contract_are_not_named(schema):
    text = write_pydantic([NamedSchema("T", "a.b", "output", schema)])
    assert "Not checked" not in text


def test_an_asserted_format_is_named():
    schema = {"type": "string", "format": "email"}
    text = write_pydantic([NamedSchema("T", "a.b", "output", schema, formats=True)])
    assert "# Not checked, or not exactly: format.\n" in text


@pytest.mark.parametrize(("text", "is_valid"), [("2.0", True), ("2.5", False), ("true", False)])
def test_a_float_without_a_fraction_is_an_integer(text, is_valid):
    schema = {"type": "integer", "minimum": 2}
    assert compile_schema(schema).accepts(json.loads(text)) == is_valid
    model = module(schema).PriceOutput
    if is_valid:
        assert model.model_validate_json(text).root == 2
    else:
        with pytest.raises(ValidationError):
            model.model_validate_json(text)


def test_a_model_without_a_comment_judges_as_its_contract():
    chance = random.Random(7)
    exact = 0
    for _ in range(400):
        schema = {"allOf": [drawn(chance)], "$defs": {"a": chance.choice(LEAVES)}}
        text = write_pydantic([NamedSchema("PriceOutput", "shop.price", "output", schema)])
        model, judge = module(schema).PriceOutput, compile_schema(schema)
        exact += "Not checked" not in text
        for value in [*VALUES, *made_values(schema, 40)]:
            given = json.dumps(value)
            accepted = judge.accepts(json.loads(given))
            try:
                model.model_validate_json(given)
            except ValidationError:
                assert not accepted, (schema, given)
            else:
                assert accepted or "Not checked" in text, (schema, given)
    assert exact > 50


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
    names = [
        "str",
        "list",
        "json",
        "register",
        "mro",
        "root",
        "model_config",
        "Any",
        "copy",
        "None",
        "a",
        "A",
    ]
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
