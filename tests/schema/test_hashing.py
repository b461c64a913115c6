"""Canonical JSON and the schema hash, as JavaScript writes them."""

from __future__ import annotations

import pytest

from callpact.errors import InvalidSchema
from callpact.schema import canonical_json, schema_hash

DEMO = {
    "namespace": "demo",
    "name": "Demo",
    "version": "4.0.0",
    "schemaVersion": "1.0.0",
    "root": "https://api.example.com",
    "tools": {},
}
NUMBERS = {
    "n": [1.0, 0.1, 1e21, 1e-7, -0.0, 1e20],
    "s": 'ü/"\\\n\u2028\x7f\x01',
    "t": True,
    "z": None,
}
KEYS = {"10": 1, "9": 2, "a": 3, "B": 4, "é": 5, "😀": 6, "～": 7}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, "44136fa3"),
        ({"b": 1, "a": 2}, "d3626ac3"),
        ({"b": 1, "a": 2, "schemaHash": "deadbeef"}, "d3626ac3"),
        (DEMO, "cd2731b9"),
        (NUMBERS, "196dfb0e"),
        (KEYS, "7d35abb0"),
        ({"nested": {"schemaHash": "kept"}}, "2587b21b"),
    ],
)
def test_the_hash_agrees_with_the_public_vectors(schema, expected):
    assert schema_hash(schema) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (1.5e-9, "1.5e-9"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
        (123456789012345680000.0, "123456789012345680000"),
        (2**53, "9007199254740992"),
        (2**60 + 1, "1152921504606847000"),
        ("\b\t\n\f\r\x1f", '"\\b\\t\\n\\f\\r\\u001f"'),
        ("/\x7f\u2028é", '"/\x7f\u2028é"'),
        ("\ud800", '"\\ud800"'),
        ([1, [], {}], "[1,[],{}]"),
        ({"10": 1, "9": 2}, '{"10":1,"9":2}'),
        ({"～": 1, "😀": 2}, '{"😀":2,"～":1}'),
        ((1, 2), "[1,2]"),
    ],
)
def test_values_are_written_as_javascript_writes_them(value, text):
    assert canonical_json(value) == text


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [float("nan")]}, "/a/0"),
        ({"a": float("inf")}, "/a"),
        ({"a": 10**400}, "/a"),
        ({"a": {1: 2}}, "/a"),
        ({"a": object()}, "/a"),
        ({"a": {1, 2}}, "/a"),
    ],
)
def test_what_is_not_json_has_no_hash(value, path):
    with pytest.raises(InvalidSchema) as caught:
        schema_hash(value)
    assert caught.value.path == path


@pytest.mark.parametrize("value", [[], None, "x", 5])
def test_only_an_object_has_a_hash(value):
    with pytest.raises(InvalidSchema):
        schema_hash(value)
