"""Conversions happen only where the text or number says exactly what is wanted."""

from __future__ import annotations

import pytest

from callpact.schema import convert
from callpact.schema.fitting.lossless import converted

EXACT = [
    ("12.5", "number", 12.5),
    ("10", "number", 10),
    ("-3", "number", -3),
    ("1e3", "number", 1000.0),
    ("0.1", "number", 0.1),
    ("10", "integer", 10),
    ("10.0", "integer", 10),
    (7.0, "integer", 7),
    ("18446744073709551615", "integer", 2**64 - 1),
    ("9007199254740993.0", "integer", 2**53 + 1),
    ("9.007199254740993e15", "integer", 2**53 + 1),
    ("-9223372036854775808", "integer", -(2**63)),
    (float(2**53 - 1), "integer", 2**53 - 1),
    (-0.0, "integer", 0),
    ("true", "boolean", True),
    ("false", "boolean", False),
]


@pytest.mark.parametrize(("value", "kind", "expected"), EXACT)
def test_what_says_exactly_the_type_is_converted(value, kind, expected):
    new = converted(value, kind)
    assert new == expected
    assert type(new) is type(expected)


LEFT = [
    *[(text, "number") for text in ("", " 12", "12 ", "0x10", "1_000", "12,5", "NaN", "inf", "+1")],
    *[(text, "number") for text in ("1.", ".5", "01", "1e400", "1e-400", "１２", "--1", "1e")],
    ("1.00000000000000000001", "number"),
    ("9007199254740993.0", "number"),
    ("1e99999999999999999999", "number"),
    ("9" * 5_000, "number"),
    ("99999999999999999999999", "integer"),
    ("12.5", "integer"),
    (7.5, "integer"),
    (1e300, "integer"),
    (float(2**53), "integer"),
    (-float(2**53), "integer"),
    ("18446744073709551616", "integer"),
    ("1e400", "integer"),
    ("1e-400", "integer"),
    ("1e99999999999999999999", "integer"),
    ("9007199254740993.5", "integer"),
    (float("inf"), "integer"),
    (float("nan"), "integer"),
    *[(text, "boolean") for text in ("1", "0", "yes", "True", "TRUE", " true", "")],
    (1, "boolean"),
    (0, "boolean"),
    (True, "number"),
    (True, "integer"),
    (5, "string"),
    (True, "string"),
    ("null", "null"),
    ("", "null"),
    (None, "number"),
]


@pytest.mark.parametrize(("value", "kind"), LEFT)
def test_everything_else_is_the_same_object(value, kind):
    assert converted(value, kind) is value


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": ["integer", "null"]}, "10", 10),
        ({"type": ["integer", "null"]}, 7.0, 7),
        ({"type": ["string", "integer"]}, "10", "10"),
        ({"anyOf": [{"type": "number"}, {"type": "integer"}]}, 7.0, 7.0),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", 1]}, "1", "1"),
        ({"const": True}, "true", True),
        ({"type": "array", "items": {"type": "number"}}, ["1.5", "x"], [1.5, "x"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, ["1", "2"], [1, "2"]),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": "1"}, {"a": 1}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}}, "1", 1),
        ({"type": "array"}, "[1]", "[1]"),
    ],
)
def test_conversion_follows_the_schema(schema, value, expected):
    new = convert(schema, value)
    assert new == expected
    assert type(new) is type(expected)


def test_a_property_that_only_a_condition_names_is_not_converted():
    schema = {"if": {"properties": {"a": {"const": 1}}}, "type": "object", "properties": {"a": {}}}
    assert convert(schema, {"a": "1"}) == {"a": "1"}
