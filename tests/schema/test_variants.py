"""The plain form sees every part of a value; the closed form rejects what fitting would change."""

from __future__ import annotations

import jsonschema_rs
import pytest

from callpact.schema import compile_schema
from callpact.schema.integers import resources
from callpact.schema.variants import plain_form

INT = {"type": "integer"}
OPEN = [
    {},
    True,
    {"type": "object"},
    {"type": "object", "properties": {"a": INT}},
    {"properties": {"a": INT}},
    {"minProperties": 0},
    {"type": "object", "additionalProperties": True},
    {"type": "object", "additionalProperties": {}},
    {"type": "object", "patternProperties": {"^q": {}}},
    {"allOf": [{"required": []}]},
    {"allOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}]},
    {"anyOf": [{"properties": {"a": INT}}, {"type": "null"}]},
    {"oneOf": [{"type": "object"}, {"type": "null"}]},
    {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}},
    {"$ref": "#/$defs/A", "$defs": {"A": {}}},
    {"$ref": "#/definitions/A", "definitions": {"A": {}}},
    {"$ref": "#/else/where", "else": {"where": {}}},
    {"type": ["object", "null"]},
    {"not": {"type": "null"}},
    {"if": {"type": "null"}, "then": False},
    {"unevaluatedProperties": {}},
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/A",
        "definitions": {"A": {}},
    },
]
STRANGE = [float("nan"), float("inf"), object(), b"x", {1}, {1: 2}, [[float("nan")]], {"\ud800": 1}]


@pytest.mark.parametrize("schema", OPEN)
@pytest.mark.parametrize("strange", STRANGE, ids=range(len(STRANGE)))
def test_what_is_not_json_is_seen_wherever_it_hides(schema, strange):
    compiled = compile_schema(schema)
    value = {"zz": [{"deep": strange}]}
    try:
        accepted = compiled.accepts(value)
    except ValueError:
        accepted = False
    assert not accepted
    assert {issue.code for issue in compiled.errors(value)} == {"json"}


@pytest.mark.parametrize("schema", OPEN)
def test_plain_json_is_still_accepted(schema):
    assert compile_schema(schema).accepts({"zz": [{"deep": [1, "x", None, True, 1.5]}]})


def test_a_form_can_always_be_compiled():
    for schema in OPEN:
        formed, _ = plain_form(schema)
        jsonschema_rs.validator_for(formed, offline=True, registry=resources())


NEEDS_SOMETHING = [
    ({"type": "object", "properties": {"a": INT}}, {"a": 1, "b": 1}),
    ({"properties": {"a": INT}}, {"b": 1}),
    ({"type": "object", "properties": {"a": INT}}, {"a": 7.0}),
    ({"type": ["integer", "null"]}, 7.0),
    ({"anyOf": [INT, {"type": "null"}]}, 7.0),
    ({"allOf": [{"properties": {"a": INT}}, {"required": ["a"]}]}, {"a": 1, "b": 1}),
    ({"allOf": [{"$ref": "#/$defs/A"}, {}], "$defs": {"A": {"properties": {"a": INT}}}}, {"b": 1}),
    ({"allOf": [{"properties": {"a": INT}}, {"anyOf": [True, INT]}]}, {"b": 1}),
    ({"properties": {"a": INT}, "anyOf": [{"required": []}]}, {"b": 1}),
    ({"oneOf": [{"properties": {"a": {"type": "object", "properties": {}}}}]}, {"b": 1}),
    ({"type": "object", "patternProperties": {"^x": INT}}, {"y": 1}),
    ({"type": "array", "items": {"properties": {"a": INT}}}, [{"b": 1}]),
    ({"type": "array", "prefixItems": [INT]}, [7.0]),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": INT}}}}, {"b": 1}),
    ({"not": {"type": "string"}, "type": "integer"}, 7.0),
]


@pytest.mark.parametrize(("schema", "value"), NEEDS_SOMETHING)
def test_a_value_that_fitting_would_change_does_not_fit(schema, value):
    compiled = compile_schema(schema)
    assert compiled.accepts(value)
    assert not compiled.fits(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": INT}}, {"a": 7}),
        ({"type": "object", "properties": {"a": INT}, "required": ["b"]}, {"a": 7, "b": [1]}),
        ({"type": "object"}, {"any": {"thing": 1}}),
        ({"allOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}]}, {"a": 1, "b": 1}),
        (
            {
                "allOf": [{"$ref": "#/$defs/A"}],
                "properties": {"b": INT},
                "$defs": {"A": {"properties": {"a": INT}}},
            },
            {"a": 1, "b": 2},
        ),
        ({"anyOf": [{"properties": {"a": INT}, "type": "object"}, {"type": "null"}]}, {"a": 1}),
        ({"oneOf": [{"properties": {"a": INT}, "type": "object"}, {"type": "null"}]}, None),
        ({"type": "number"}, 7.0),
        ({"type": "object", "additionalProperties": INT}, {"a": 1}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": INT}}}}, {"a": 1}),
    ],
)
def test_a_value_that_needs_nothing_fits(schema, value):
    assert compile_schema(schema).fits(value)


def test_what_only_the_closed_variants_exclude_does_not_fit():
    # Both variants take the value; each closed one would take one half.
    schema = {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    assert not compile_schema(schema).fits({"a": 1})
