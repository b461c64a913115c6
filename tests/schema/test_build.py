"""The cast of seed 001: measured cases, the worked examples, and a case for each of its rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callpact.errors import CastError, InvalidSchema
from callpact.schema import cast

CASES = json.loads(
    (Path(__file__).parent.parent / "data" / "cast-cases.json").read_text(encoding="utf-8")
)["cases"]
# `format` is an annotation here; the library fails every value of a format it does not know.
RULED = {"string-format-01": "2026-02-16T12:00:00Z", "string-format-03": "https://example.org/"}


def plain(value):
    """The recorded form of a value, with None for JavaScript's undefined."""
    if value == {"$undefined": True}:
        return None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def exactly(value):
    """JSON text tells 1 from true and keeps the order of keys."""
    return json.dumps(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_cast_agrees_with_the_measured_library(case):
    given = plain(case["input"])
    if case["id"] in RULED:
        assert cast(case["schema"], given) == RULED[case["id"]]
    elif case["cast_error"]:
        with pytest.raises(CastError):
            cast(case["schema"], given)
    else:
        assert exactly(cast(case["schema"], given)) == exactly(plain(case["cast"]))


def test_every_measured_case_is_there_and_only_two_deviate():
    assert len(CASES) == 179
    assert {case["id"] for case in CASES} >= set(RULED)


STR, NUM, INT, BOOL, NULL = (
    {"type": t} for t in ("string", "number", "integer", "boolean", "null")
)


def obj(required=(), **properties):
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def all_of(**properties):
    return obj(required=properties, **properties)


def list_of(item, **limits):
    return {"type": "array", "items": item, **limits}


def tuple_of(*items):
    size = len(items)
    limits = {"minItems": size, "maxItems": size, "additionalItems": False}
    return {"type": "array", "items": list(items), **limits}


def one_of(*variants, **more):
    return {"anyOf": list(variants), **more}


def const(value):
    return {"const": value}


P = obj(required=["id", "price"], id=STR, price=NUM, stock={"type": "integer", "default": 1})
CAT = all_of(kind=const("cat"), lives=INT)
DOG = all_of(kind=const("dog"), age=INT)
PATTERN = {"type": "string", "pattern": r"^\d{4}$"}

WORKED = [
    (
        P,
        {"id": "k1", "price": 12.5, "vendor": "acme"},
        {"id": "k1", "price": 12.5, "vendor": "acme"},
    ),
    (P, {"id": "k1", "price": "12.5", "vendor": "acme"}, {"id": "k1", "price": 0}),
    (P, {"id": "k1"}, {"id": "k1", "price": 0}),
    (P, {"id": "k1", "price": 1, "stock": "many"}, {"id": "k1", "price": 1, "stock": 1}),
    (P, [], {"id": "", "price": 0}),
    (
        all_of(city={**STR, "default": "Berlin"}, zip={**STR, "minLength": 5}),
        {"zip": 10115},
        {"city": "Berlin", "zip": "     "},
    ),
    (
        all_of(geo=all_of(lat=NUM, lon=NUM)),
        {"geo": {"lat": 52.5, "alt": 34}},
        {"geo": {"lat": 52.5, "lon": 0}},
    ),
    (all_of(level={**NUM, "minimum": 1, "maximum": 9}), {"level": 12}, {"level": 1}),
    (all_of(level={**NUM, "exclusiveMinimum": 2}), {"level": 2}, {"level": 0}),
    (all_of(open=BOOL), {"open": "yes"}, {"open": False}),
    (all_of(cap=one_of(NUM, NULL)), {"cap": "n/a"}, {"cap": 0}),
    (all_of(cap=one_of(NULL, NUM)), {"cap": "n/a"}, {"cap": None}),
    (
        list_of(P),
        [{"id": "a", "price": 1, "z": 1}, {"id": "b", "z": 2}],
        [{"id": "a", "price": 1, "z": 1}, {"id": "b", "price": 0}],
    ),
    (list_of(BOOL, minItems=2), [True], [True, False]),
    (list_of(STR, maxItems=1), ["p", "q"], ["p"]),
    (tuple_of(NUM, NUM), [52.5], [52.5, 0]),
    (
        {"type": "object", "patternProperties": {"^(.*)$": BOOL}},
        {"a": True, "b": "no"},
        {"a": True, "b": False},
    ),
    (all_of(unit=one_of(const("kg"), const("lb"))), {"unit": "stone"}, {"unit": "kg"}),
    (one_of(CAT, DOG), {"kind": "dog", "lives": 9}, {"kind": "dog", "age": 0}),
    (one_of(CAT, DOG), {"kind": "cow", "age": 4}, {"kind": "dog", "age": 4}),
    (
        one_of(all_of(kind=const("cat")), all_of(kind=const("dog")), default={"kind": "dog"}),
        {"kind": "cow"},
        {"kind": "dog"},
    ),
    ({**all_of(q=NUM), "additionalProperties": False}, {"q": 3, "hint": "x"}, {"q": 3}),
    ({**all_of(q=NUM), "additionalProperties": NUM}, {"q": 3, "w": "4"}, {"q": 3, "w": 0}),
    (
        {"allOf": [all_of(lo=NUM), all_of(hi=NUM)]},
        {"lo": 1, "hi": "z", "mid": 2},
        {"lo": 0, "hi": 0},
    ),
    (all_of(when=PATTERN), {"when": "24"}, CastError),
]

# Each rule of the algorithm, kind by kind, reasoned from its sentence.
RULES = {
    # check
    "booleans are not numbers": (NUM, True, 0),
    "a whole float is an integer": (INT, 7.0, 7.0),
    "lists are not objects": (all_of(a=INT), [1], {"a": 0}),
    "a number is not the literal true": (const(1), True, 1),
    "true is not the literal 1": (const(True), 1, True),
    "one is one point zero": (const(1), 1.0, 1.0),
    "NaN is not a number": (NUM, float("nan"), 0),
    "infinity is not a number": (NUM, float("inf"), 0),
    "a longer tuple does not check": (tuple_of(NUM), [1, 2], [1]),
    "a required unknown must be present": (all_of(a={}), {}, {"a": None}),
    "a required unknown may be null": (all_of(a={}), {"a": None}, {"a": None}),
    "an optional key is checked only if present": (obj(a=INT), {}, {}),
    "length is counted in code points": ({**STR, "maxLength": 1}, "😀", "😀"),
    "a pattern is searched, not matched whole": ({**STR, "pattern": "b"}, "abc", "abc"),
    "format is an annotation": ({**STR, "format": "email"}, "nobody", "nobody"),
    "a format does not stop the creation": ({**STR, "format": "email"}, 5, ""),
    # create
    "a default wins": ({**INT, "default": 5}, "x", 5),
    "a default wins though it breaks the schema": ({**INT, "default": "five"}, [], "five"),
    "a pattern with a default does not throw": ({**PATTERN, "default": "2024"}, "24", "2024"),
    "a pattern without one throws": (PATTERN, 24, CastError),
    "minimum is the number made": ({**NUM, "minimum": 2.5}, "x", 2.5),
    "maximum alone gives zero": ({**INT, "maximum": -5}, "x", 0),
    "spaces make the least length": ({**STR, "minLength": 2}, None, "  "),
    "an array makes its least items": (list_of(BOOL, minItems=2), "x", [False, False]),
    "an array without a least is empty": (list_of(INT), {"a": 1}, []),
    "a unique array cannot be made": (list_of(INT, uniqueItems=True), "x", CastError),
    "nor one that must contain": (list_of(INT, contains=INT), "x", CastError),
    "an array's default is sized and cast too": (
        list_of(INT, minItems=2, default=["a"]),
        "x",
        [0, 0],
    ),
    "a tuple makes each item": (tuple_of(STR, NUM), None, ["", 0]),
    "an object makes its required properties only": (
        obj(required=["a"], a=INT, b={**INT, "default": 3}),
        None,
        {"a": 0},
    ),
    "an unknown property is made as an object": (all_of(a={}), None, {"a": {}}),
    "a record is made empty": ({"type": "object", "patternProperties": {"^a": INT}}, 5, {}),
    "a union makes its first variant": (one_of(obj(a=INT), INT), True, {}),
    "an intersect is made of all its parts": (
        {"allOf": [all_of(a=INT), all_of(b=STR)]},
        5,
        {"a": 0, "b": ""},
    ),
    "an impossible intersect throws": ({"allOf": [NUM, STR]}, True, CastError),
    # never, not
    "never always throws": ({"not": {}}, 1, CastError),
    "false always throws": (all_of(a=False), {"a": 1}, CastError),
    "not leaves what it does not exclude": ({"not": STR}, 5, 5),
    "not throws for what it excludes": ({"not": STR}, "x", CastError),
    "not excludes all that a bare note says": ({"not": {"title": "t"}, "default": 5}, "x", 5),
    "not leaves what only the validator can judge": ({"not": {"minimum": 3}}, 1, 1),
    "not has a default to give": ({"not": STR, "default": 5}, "x", 5),
    # object
    "an object-level default is for what is no object": (
        {**all_of(a=INT), "default": {"a": 9}},
        1,
        {"a": 9},
    ),
    "and not for an object": ({**all_of(a=INT), "default": {"a": 9}}, {}, {"a": 0}),
    "nor for a list": ({**all_of(a=INT), "default": {"a": 9}}, [], {"a": 0}),
    "keys come in the order of the schema": (
        all_of(a=INT, b=INT, c=INT),
        {"c": 1, "a": 2},
        {"a": 2, "b": 0, "c": 1},
    ),
    "excess keys go from objects that fail": (all_of(a=INT), {"a": "x", "b": 1}, {"a": 0}),
    "also where true lets them in": (
        {**all_of(a=INT), "additionalProperties": True},
        {"a": "x", "b": 1},
        {"a": 0},
    ),
    "and stay in objects that check": (all_of(a=INT), {"b": 1, "a": 2}, {"b": 1, "a": 2}),
    "excess keys with a schema are cast": (
        {**all_of(a=INT), "additionalProperties": all_of(x=INT)},
        {"a": 1, "b": {}},
        {"a": 1, "b": {"x": 0}},
    ),
    "only the failing object inside loses its excess": (
        all_of(a=obj(x=INT), b=all_of(y=INT)),
        {"a": {"x": 1, "k": 1}, "b": {"k": 1}},
        {"a": {"x": 1, "k": 1}, "b": {"y": 0}},
    ),
    "too few keys fail the object": (
        {**obj(a=INT), "minProperties": 2},
        {
            "a": 1,
        },
        {"a": 1},
    ),
    # array
    "every item is cast": (list_of(INT), [1, "x", None, 2], [1, 0, 0, 2]),
    "nulls pad, then are cast": (list_of(one_of(INT, NULL), minItems=2), [1], [1, None]),
    "padding takes the item's default": (list_of({**INT, "default": 4}, minItems=2), [], [4, 4]),
    "an array is cut before it is cast": (list_of(PATTERN, maxItems=1), ["2024", "x"], ["2024"]),
    "repeated scalars are dropped": (list_of(INT, uniqueItems=True), [1, 2, 1], [1, 2]),
    "true and 1 are no repetition": (
        {"type": "array", "uniqueItems": True},
        [1, True, 1],
        [1, True],
    ),
    "repeated objects throw": (
        {"type": "array", "uniqueItems": True},
        [{"a": 1}, {"a": 1}],
        CastError,
    ),
    "unique but then too few throws": (
        list_of(INT, uniqueItems=True, minItems=2),
        [1, 1],
        CastError,
    ),
    # tuple
    "a tuple is cast place by place": (tuple_of(NUM, STR), ["x", "y"], [0, "y"]),
    "missing places take their default": (tuple_of(NUM, {**STR, "default": "d"}), [1], [1, "d"]),
    "a tuple in a record": (
        {"type": "object", "patternProperties": {"^(.*)$": tuple_of(NUM, NUM)}},
        {"a": [1], "b": [1, 2]},
        {"a": [1, 0], "b": [1, 2]},
    ),
    "prefixItems are a tuple as well": (
        {"type": "array", "prefixItems": [NUM, NUM]},
        [52.5],
        [52.5, 0],
    ),
    # record
    "a record is cast under keys that do not match": (
        {"type": "object", "patternProperties": {"^a": INT}, "additionalProperties": False},
        {"a": 1, "zz": "x"},
        {"a": 1, "zz": 0},
    ),
    "a record with a default": (
        {"type": "object", "patternProperties": {"^a": INT}, "default": {"a": 1}},
        5,
        {"a": 1},
    ),
    "a map by additionalProperties": (
        {"type": "object", "additionalProperties": BOOL},
        {"a": 1},
        {"a": False},
    ),
    # union
    "a union's default stands for every value": (one_of(INT, BOOL, default="d"), "x", "d"),
    "but not for one that checks": (one_of(INT, BOOL, default="d"), 3, 3),
    "oneOf is a union": ({"oneOf": [INT, BOOL]}, "x", 0),
    "an enum is a union of literals": ({"enum": ["a", "b"]}, "c", "a"),
    "an enum with a default": ({"enum": ["a", "b"], "default": "b"}, "c", "b"),
    "a list of types is a union": ({"type": ["integer", "null"]}, "x", 0),
    "of the first type named": ({"type": ["null", "integer"]}, "x", None),
    "a literal outweighs ten matching properties": (
        one_of(
            all_of(k=const("b"), x=INT),
            all_of(k=const("a"), **{f"p{i}": INT for i in range(5)}),
        ),
        {"k": "b", **{f"p{i}": 1 for i in range(5)}},
        {"k": "b", "x": 0},
    ),
    "a matching property outweighs ten present ones": (
        one_of(all_of(a=INT, b=INT, c=INT, m=BOOL), all_of(n=BOOL, o=BOOL)),
        {"a": "", "b": "", "c": "", "n": True},
        {"n": True, "o": False},
    ),
    "present counts one": (one_of(all_of(a=INT), all_of(b=INT)), {"b": "x"}, {"b": 0}),
    "an absent unknown property counts ten": (
        one_of(all_of(a=INT, b=INT), all_of(c=INT, d={})),
        {"a": "x", "b": "x"},
        {"c": 0, "d": None},
    ),
    "first on ties": (
        one_of(all_of(a=INT, x=INT), all_of(a=INT, y=INT)),
        {"a": 1},
        {"a": 1, "x": 0},
    ),
    "a list is an object without keys to the score": (one_of(INT, all_of(a=INT)), [], 0),
    "a nested union has its best score": (
        one_of(all_of(a=INT, z=INT), one_of(INT, all_of(a=INT, b=INT))),
        {"a": 1, "b": "x"},
        {"a": 1, "b": 0},
    ),
    "a union of unions takes the first of the first": (one_of(one_of(NULL, INT), STR), True, None),
    "a reference in a union is resolved": (
        {"$defs": {"Dog": DOG}, "anyOf": [CAT, {"$ref": "#/$defs/Dog"}]},
        {"kind": "dog"},
        {"kind": "dog", "age": 0},
    ),
    # intersect
    "an overlay keeps what checks": (
        {"allOf": [all_of(a=INT), all_of(b=STR)]},
        {"a": 5, "z": 1},
        {"a": 5, "b": ""},
    ),
    "one bad field resets all": (
        {"allOf": [all_of(a=INT), all_of(b=STR)]},
        {"a": 5, "b": 6},
        {"a": 0, "b": ""},
    ),
    "a list inside spoils the overlay": (
        {"allOf": [all_of(t=list_of(STR)), all_of(n=INT)]},
        {"t": ["x"]},
        {"t": [], "n": 0},
    ),
    "an object where a scalar is made: what is made wins": (
        {"allOf": [all_of(a=INT), all_of(b=STR)]},
        {"a": {"x": 1}},
        {"a": 0, "b": ""},
    ),
    "the overlay goes into objects": (
        {"allOf": [all_of(p=all_of(x=INT, y=INT)), all_of(n=INT)]},
        {"p": {"x": 3, "k": 1}},
        {"p": {"x": 3, "y": 0}, "n": 0},
    ),
    "optional keys are lost in an overlay": (
        {"allOf": [obj(required=["a"], a=INT, o=INT), all_of(b=INT)]},
        {"a": 1, "o": 2},
        {"a": 1, "b": 0},
    ),
    "an intersect's default is the base": (
        {"allOf": [all_of(a=INT), all_of(b=STR)], "default": {"a": 7, "b": "d"}},
        {"b": "mine"},
        {"a": 7, "b": "mine"},
    ),
    # references
    "a reference is followed": ({"$ref": "#/$defs/A", "$defs": {"A": INT}}, "x", 0),
    "a recursive schema ends with its value": (
        {
            "$defs": {"N": obj(required=["id"], id=STR, kids=list_of({"$ref": "#/$defs/N"}))},
            "$ref": "#/$defs/N",
        },
        {"id": "a", "kids": [{"id": "b"}, {"kids": []}]},
        {"id": "a", "kids": [{"id": "b"}, {"id": "", "kids": []}]},
    ),
    "a schema that requires itself throws": (
        {"$defs": {"N": all_of(n={"$ref": "#/$defs/N"})}, "$ref": "#/$defs/N"},
        {},
        CastError,
    ),
    "a reference to nothing throws": ({"$ref": "#/$defs/none"}, 1, CastError),
    # unknown
    "true takes everything": (True, [1], [1]),
    "an unknown keyword is left to the validator": ({"minimum": 5}, 1, 1),
}


@pytest.mark.parametrize(("schema", "value", "expected"), WORKED, ids=range(1, 26))
def test_the_worked_examples_hold(schema, value, expected):
    _assert_cast(schema, value, expected)


@pytest.mark.parametrize(("schema", "value", "expected"), RULES.values(), ids=RULES)
def test_the_rules_of_the_cast_hold(schema, value, expected):
    _assert_cast(schema, value, expected)


def _assert_cast(schema, value, expected):
    if expected is CastError:
        with pytest.raises(CastError):
            cast(schema, value)
    else:
        assert exactly(cast(schema, value)) == exactly(expected)


def test_a_value_that_checks_is_the_same_object():
    value = {"id": "k1", "price": 1, "extra": [1]}
    assert cast(P, value) is value


def test_a_default_is_copied():
    schema = {**list_of(INT), "default": [1]}
    first = cast(schema, None)
    first.append(2)
    assert cast(schema, None) == [1]


def test_a_cast_error_names_the_place():
    with pytest.raises(CastError) as caught:
        cast(all_of(a=list_of(all_of(when=PATTERN))), {"a": [{"when": "2024"}, {"when": "x"}]})
    assert caught.value.path == "/a/1/when"


def test_a_key_told_by_a_pattern_is_kept_beside_named_properties():
    schema = {**all_of(id=INT), "patternProperties": {"^x-": INT}}
    assert cast(schema, {"id": "a", "x-a": 1, "x-b": "b", "y": 1}) == {"id": 0, "x-a": 1, "x-b": 0}


def test_an_object_without_properties_keeps_what_it_holds():
    assert cast({"type": "object", "required": ["a"]}, {"b": 1}) == {"a": None, "b": 1}


def test_properties_without_a_type_speak_of_objects_only():
    assert cast({"properties": {"a": INT}}, 5) == 5


def test_a_union_beside_a_scalar_type_is_a_union():
    assert cast({"type": "string", "anyOf": [const("a"), const("b")]}, "c") == "a"


def test_requirements_beside_properties_do_not_reset_the_object():
    schema = {**all_of(a=INT, b=STR), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert cast(schema, {"a": 5, "b": 6}) == {"a": 5, "b": ""}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": "x"},
        {"type": "number", "minimum": []},
        {"type": "string", "pattern": "("},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": 5}},
        {"type": "object", "required": "a", "properties": {}},
        {"anyOf": {}},
        {"allOf": [5]},
        {"enum": 5},
        {"$ref": 5},
        5,
        None,
    ],
)
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(InvalidSchema):
        cast(schema, {"a": 1})


def test_an_absent_key_under_a_union_with_an_unknown_variant_is_written_as_null():
    # Cast from "undefined": the unknown variant takes it, so that nothing is created.
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {
            "a": {"type": "number"},
            "b": {"default": 1, "anyOf": [{"type": "string"}, {"anyOf": [{"type": "null"}, {}]}]},
        },
    }
    assert cast(schema, {"a": 1}) == {"a": 1, "b": None}


def test_an_empty_tuple_is_created_as_its_default():
    schema = {"type": "array", "minItems": 0, "maxItems": 0, "default": [1, "d"]}
    assert cast(schema, "cat") == [1, "d"]
    assert cast({"type": "array", "minItems": 0, "maxItems": 0}, [1, 2]) == []


def test_a_part_that_names_no_key_evaluates_none():
    closed = {
        "type": "object",
        "unevaluatedProperties": False,
        "allOf": [
            {"type": "object", "properties": {}},
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "number"}}},
        ],
    }
    assert cast(closed, {"a": 1, "z": 2}) == {"a": 1}
    assert cast(closed, {"a": 1}) == {"a": 1}
