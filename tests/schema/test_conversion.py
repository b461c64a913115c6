"""`fit` tells every change; `strip` drops what is undeclared; nothing is changed in place."""

from __future__ import annotations

import copy
from enum import Enum

import pytest

from callpact.errors import CastError, InvalidSchema
from callpact.schema import Change, cast, compile_schema, convert, fit, strip

INT = {"type": "integer"}


def obj(**properties):
    return {"type": "object", "properties": properties}


def changes(schema, value):
    return [(c.path, c.action, c.before) for c in fit(schema, value).changes]


def test_a_value_that_needs_nothing_is_the_same_object_without_changes():
    value = {"a": [1, 2]}
    schema = obj(a={"type": "array", "items": INT})
    for form in (schema, compile_schema(schema)):
        fitted = fit(form, value)
        assert fitted.value is value
        assert fitted.changes == ()
        assert fitted.problem is None


def test_every_action_is_reported_at_its_place_with_what_stood_there():
    schema = {
        **obj(
            price={"type": "number"},
            name={"type": "string"},
            count={**INT, "default": 3},
            pair={"type": "array", "items": {"type": "boolean"}, "minItems": 2},
            few={"type": "array", "items": INT, "maxItems": 1},
        ),
        "required": ["price", "name", "count", "pair", "few"],
    }
    value = {"price": "12.5", "name": 5, "pair": [True], "few": [1, 2], "extra": {"x": 1}}
    assert fit(schema, value).value == {
        "price": 12.5,
        "name": "",
        "count": 3,
        "pair": [True, False],
        "few": [1],
    }
    assert sorted(changes(schema, value), key=lambda change: change[0]) == [
        ("/count", "filled", None),
        ("/extra", "stripped", {"x": 1}),
        ("/few", "truncated", [1, 2]),
        ("/name", "replaced", 5),
        ("/pair", "padded", [True]),
        ("/price", "converted", "12.5"),
    ]


@pytest.mark.parametrize(
    ("schema", "value", "invented"),
    [
        (INT, "x", True),
        ({**INT, "default": 3}, "x", True),
        ({**obj(a=INT), "required": ["a"]}, {}, True),
        ({**obj(a={**INT, "default": 3}), "required": ["a"]}, {}, False),
        (INT, "7", False),
        (obj(a=INT), {"b": 1}, False),
    ],
)
def test_what_comes_from_nowhere_is_marked_as_invented(schema, value, invented):
    (change,) = fit(schema, value).changes
    assert change.invented is invented


def test_conversion_comes_before_the_cast():
    assert fit({"type": "number"}, "12.5").value == 12.5
    assert fit(INT, 7.0) == fit(INT, "7").__class__(7, (Change("", "converted", 7.0),))


def test_a_valid_value_is_never_cast():
    schema = {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}]}
    for value in ([52.5], [1, 2, 3]):
        assert fit(schema, value).value is value


def test_a_cast_that_gives_up_leaves_the_data_and_says_why():
    schema = obj(when={"type": "string", "pattern": "^[0-9]+$"}, n=INT)
    fitted = fit(schema, {"when": "x", "n": "5", "z": 1})
    assert fitted.value == {"when": "x", "n": 5, "z": 1}
    assert [change.action for change in fitted.changes] == ["converted"]
    assert "/when" in fitted.problem


def test_an_overlay_tells_what_it_kept_and_what_it_did_not():
    schema = {
        "allOf": [
            {**obj(a=INT), "required": ["a"]},
            {**obj(b={"type": "string"}), "required": ["b"]},
        ]
    }
    assert changes(schema, {"a": 5, "z": 1}) == [("/z", "stripped", 1), ("/b", "filled", None)]


def test_an_unusable_schema_is_refused():
    with pytest.raises(InvalidSchema):
        fit({"type": "nothing"}, 1)


STRIPPED = {
    "undeclared keys go, at every level": (
        obj(a=obj(b=INT), l={"type": "array", "items": obj(c=INT)}),
        {"a": {"b": 1, "x": 1}, "l": [{"c": 1, "y": 2}], "z": 3},
        {"a": {"b": 1}, "l": [{"c": 1}]},
    ),
    "additionalProperties true keeps them": (
        {**obj(a=INT), "additionalProperties": True},
        {"a": 1, "z": 1},
        {"a": 1, "z": 1},
    ),
    "a schema keeps them, and is stripped itself": (
        {**obj(a=INT), "additionalProperties": obj(k=INT)},
        {"z": {"k": 1, "x": 1}},
        {"z": {"k": 1}},
    ),
    "an object without properties keeps everything": ({"type": "object"}, {"z": 1}, {"z": 1}),
    "a key told by a pattern stays": (
        {**obj(a=INT), "patternProperties": {"^x-": obj(k=INT)}},
        {"x-a": {"k": 1, "l": 1}, "y": 1},
        {"x-a": {"k": 1}},
    ),
    "a record loses keys that no pattern tells": (
        {"type": "object", "patternProperties": {"^x": INT}},
        {"x": 1, "y": 1},
        {"x": 1},
    ),
    "a required key is a known one": (
        {**obj(a=INT), "required": ["b"]},
        {"b": 1, "c": 1},
        {"b": 1},
    ),
    "a union uses the best variant, not the first that checks": (
        {"anyOf": [obj(a=INT), obj(a=INT, b=INT)]},
        {"a": 1, "b": 2, "c": 3},
        {"a": 1, "b": 2},
    ),
    "a union of which none checks uses the best": (
        {
            "anyOf": [
                {**obj(kind={"const": "cat"}, lives=INT), "required": ["kind", "lives"]},
                {**obj(kind={"const": "dog"}, age=INT), "required": ["kind", "age"]},
            ]
        },
        {"kind": "dog", "lives": 9},
        {"kind": "dog"},
    ),
    "an intersect knows the keys of all its parts": (
        {"allOf": [obj(a=INT), obj(b=INT)]},
        {"a": 1, "b": 2, "c": 3},
        {"a": 1, "b": 2},
    ),
    "parts that speak of one key add up": (
        {"allOf": [obj(p=obj(x=INT)), obj(p=obj(y=INT))]},
        {"p": {"x": 1, "y": 2, "z": 3}},
        {"p": {"x": 1, "y": 2}},
    ),
    "keys beside a reference are known": (
        {"$defs": {"A": obj(a=INT)}, "$ref": "#/$defs/A", "properties": {"b": INT}},
        {"a": 1, "b": 2, "c": 3},
        {"a": 1, "b": 2},
    ),
    "keys beside a union are known": (
        {**obj(a=INT), "anyOf": [obj(b=INT), obj(c=INT)], "allOf": [obj(d=INT)]},
        {"a": 1, "b": 1, "d": 1, "e": 1},
        {"a": 1, "b": 1, "d": 1},
    ),
    "keys of a condition are known": (
        {**obj(a=INT), "if": {"required": ["a"]}, "then": obj(b=INT), "else": obj(c=INT)},
        {"a": 1, "b": 1, "c": 1, "d": 1},
        {"a": 1, "b": 1, "c": 1},
    ),
    "requirements in a union declare nothing": (
        {**obj(a=INT, b=INT), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": 1, "z": 1},
        {"a": 1},
    ),
    "a nullable object is stripped": (
        {"anyOf": [obj(a=INT), {"type": "null"}]},
        {"a": 1, "b": 1},
        {"a": 1},
    ),
    "a tuple is stripped place by place": (
        {"type": "array", "prefixItems": [obj(a=INT)], "items": obj(b=INT)},
        [{"a": 1, "b": 1}, {"a": 1, "b": 1}],
        [{"a": 1}, {"b": 1}],
    ),
}


@pytest.mark.parametrize(("schema", "value", "expected"), STRIPPED.values(), ids=STRIPPED)
def test_strip_drops_what_the_schema_does_not_declare(schema, value, expected):
    assert strip(schema, value) == expected


def test_nothing_to_strip_is_the_same_object():
    value = {"a": {"b": 1}}
    assert strip(obj(a=obj(b=INT)), value) is value


@pytest.mark.parametrize("verb", [cast, convert, strip, fit])
def test_the_argument_is_never_changed(verb):
    schema = {
        **obj(a=INT, l={"type": "array", "items": obj(b=INT), "maxItems": 2, "minItems": 1}),
        "required": ["a", "n"],
    }
    value = {"l": [{"b": "1", "x": 1}] * 3, "a": "5", "z": {"y": 1}}
    before = copy.deepcopy(value)
    verb(schema, value)
    assert value == before


class Colour(Enum):
    RED = "red"


def test_tuples_and_enums_are_what_they_stand_for():
    schema = {**obj(l={"type": "array", "items": INT}, c={"type": "string"}), "required": ["n"]}
    fitted = fit(schema, {"l": (1, 2), "c": Colour.RED})
    assert fitted.value == {"l": (1, 2), "c": Colour.RED, "n": None}
    assert [change.path for change in fitted.changes] == ["/n"]


def test_one_bad_item_of_many_is_found_among_references():
    schema = {
        "$defs": {"Item": {**obj(n=INT), "required": ["n"]}},
        "type": "array",
        "items": {"$ref": "#/$defs/Item"},
    }
    items = [{"n": i} for i in range(1_000)]
    items[700] = {"n": "x", "y": 1}
    fitted = fit(schema, items)
    assert fitted.value[700] == {"n": 0}
    assert fitted.value[699] is items[699]
    assert {change.path for change in fitted.changes} == {"/700/n", "/700/y"}


def test_a_cast_error_in_convert_reaches_the_caller_as_such():
    loop = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"}
    with pytest.raises(CastError):
        convert(loop, 1)
    assert fit(loop, 1).problem is not None
