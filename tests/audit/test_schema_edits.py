"""Edits of schemas: the smallest change that accepts values, and refuses nothing that was accepted."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from patched import apply

from callpact.audit.analysis.schema_edits import (
    MAX_NEW_CHOICES,
    MAX_NEW_KEYS,
    PatchOperation,
    place_in,
    propose_edits,
)
from callpact.audit.record import place
from callpact.schema import check, compile_schema

TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def _edited(schema, *values, **options):
    patch = propose_edits(schema, values, **options)
    assert patch.unsolved == ()
    assert [check(patch.after, value) for value in values] == [[]] * len(values)
    assert apply(schema, patch.operations) == patch.after
    return patch.after


@pytest.mark.parametrize(
    ("schema", "values", "wider"),
    [
        ({"type": "number"}, ["12.5"], {"type": ["number", "string"]}),
        ({"type": "number"}, [None], {"type": ["number", "null"]}),
        ({"type": "integer"}, [1.5], {"type": "number"}),
        ({"type": ["integer", "null"]}, [1.5], {"type": ["number", "null"]}),
        ({"type": "string"}, [3], {"type": ["string", "integer"]}),
        ({"type": "string"}, [3, 3.5], {"type": ["string", "number"]}),
        ({"enum": ["kg", "lb"]}, ["oz", "g", "oz"], {"enum": ["kg", "lb", "oz", "g"]}),
        ({"type": "string", "enum": ["kg"]}, [None], {"type": ["string", "null"], "enum": ["kg", None]}),
        ({"enum": [1]}, [True], {"enum": [1, True]}),
        ({"enum": []}, ["x"], {"enum": ["x"]}),
        ({"const": "a"}, ["b"], {"enum": ["a", "b"]}),
        ({"maximum": 50}, [100, 75], {"maximum": 100}),
        ({"minimum": 0}, [-2.5], {"minimum": -2.5}),
        ({"exclusiveMaximum": 50}, [50, 60], {"maximum": 60}),
        ({"exclusiveMinimum": 0, "minimum": -9}, [0], {"minimum": 0}),
        ({"maxLength": 2}, ["abc"], {"maxLength": 3}),
        ({"minItems": 2}, [[1]], {"minItems": 1}),
        ({"minItems": 1}, [[]], {}),
        ({"maxProperties": 1}, [{"a": 1, "b": 2}], {"maxProperties": 2}),
        ({"pattern": "^a", "type": "string"}, ["b"], {"type": "string"}),
        ({"multipleOf": 2}, [3], {}),
        ({"uniqueItems": True}, [[1, 1]], {}),
        ({"required": ["a", "b"]}, [{"b": 1}], {"required": ["b"]}),
        ({"required": ["a"]}, [{}], {}),
        ({"prefixItems": [TEXT], "items": WHOLE}, [[1, "x"]], {"prefixItems": [{"type": ["string", "integer"]}], "items": {"type": ["integer", "string"]}}),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            [{"b": 1}, {"b": "x"}],
            {"properties": {"a": {}, "b": {"type": ["integer", "string"]}}, "additionalProperties": False},
        ),
        ({"unevaluatedProperties": False}, [{"b": 1}], {"properties": {"b": WHOLE}, "unevaluatedProperties": False}),
        ({"additionalProperties": WHOLE}, [{"b": "x"}], {"additionalProperties": {"type": ["integer", "string"]}}),
        ({"patternProperties": {"^b": WHOLE}}, [{"b": "x"}], {"patternProperties": {"^b": {"type": ["integer", "string"]}}}),
        (
            {"$defs": {"P": {"type": "number"}}, "items": {"$ref": "#/$defs/P"}},
            [["1"]],
            {"$defs": {"P": {"type": ["number", "string"]}}, "items": {"$ref": "#/$defs/P"}},
        ),
        (
            {"anyOf": [{"type": "string", "enum": ["A"]}, NULL]},
            ["B"],
            {"anyOf": [{"type": "string", "enum": ["A", "B"]}, NULL]},
        ),
        ({"anyOf": [NULL, WHOLE]}, [1.5], {"anyOf": [NULL, {"type": "number"}]}),
    ],
    ids=lambda part: json.dumps(part)[:60],
)  # fmt: skip
def test_a_rule_is_widened_by_no_more_than_the_values_ask_for(schema, values, wider):
    assert _edited(schema, *values) == wider


@pytest.mark.parametrize("name", ["2024", "007", "type", "not", "properties", "a/b", "anyOf"])
def test_a_property_is_edited_whatever_its_name(name):
    after = _edited({"properties": {name: WHOLE, "other": WHOLE}}, {name: "x"})
    assert after["properties"] == {name: {"type": ["integer", "string"]}, "other": WHOLE}


UNION = {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "array"}]}


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        (UNION, {}, ("/a", "required")),
        (UNION, 1, ("", "type")),
        ({"oneOf": [{"type": "number"}, {"minimum": 1}]}, 3, ("", "oneOf")),
        ({"allOf": [{"maximum": 1}]}, 3, ("", "maximum")),
        ({"not": {"type": "null"}}, None, ("", "not")),
        ({"if": {"type": "number"}, "then": {"maximum": 1}}, 3, ("", "maximum")),
        ({"contains": TEXT}, [1], ("", "contains")),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, ("/ab", "propertyNames")),
    ],
    ids=json.dumps,
)
def test_a_union_is_reported_without_a_proposal(schema, value, found):
    whole = {"properties": {"u": schema, "n": WHOLE}}
    patch = propose_edits(whole, [{"u": value, "n": "x"}])
    # What stands beside a union is edited all the same.
    assert [step.path for step in patch.operations] == ["/properties/n/type"]
    [left] = patch.unsolved
    assert (left.path, left.rule) == (f"/u{found[0]}", found[1])
    assert "union" in left.reason


@pytest.mark.parametrize("keyword", ["not", "oneOf", "allOf"])
def test_a_definition_that_a_union_shares_is_left_as_it_is(keyword):
    number = {"$ref": "#/$defs/P"}
    union = {keyword: number if keyword == "not" else [number]}
    schema = {"$defs": {"P": {"type": "number"}}, "properties": {"a": number, "b": union}}
    patch = propose_edits(schema, [{"a": "x"}])
    assert patch.operations == ()
    assert [(one.path, one.rule) for one in patch.unsolved] == [("/a", "type")]
    assert "union" in patch.unsolved[0].reason


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"P": {"$anchor": "p", **WHOLE}}, "items": {"$ref": "#p"}},
        {"$defs": {"P": {"$id": "http://a/p", **WHOLE}}, "items": {"$ref": "http://a/p"}},
    ],
    ids=json.dumps,
)
def test_a_schema_that_names_its_parts_otherwise_is_left_as_it_is(schema):
    patch = propose_edits(schema, [["x"]])
    assert patch.operations == ()
    assert [(one.path, one.rule) for one in patch.unsolved] == [("/*", "type")]


def test_an_example_that_looks_like_a_schema_is_none():
    schema = {"properties": {"a": {**WHOLE, "example": {"id": "x", "$ref": "#here"}}}}
    assert _edited(schema, {"a": "x"})["properties"]["a"]["type"] == ["integer", "string"]


def test_too_many_new_choices_let_go_of_the_list_and_keep_the_type():
    values = [f"v{i}" for i in range(MAX_NEW_CHOICES + 1)]
    assert _edited({"enum": ["a"]}, *values) == TEXT


@pytest.mark.parametrize("at_once", [True, False])
def test_too_many_new_keys_allow_all_others(at_once):
    names = [f"k{i}" for i in range(MAX_NEW_KEYS + 1)]
    values = [dict.fromkeys(names, 1)] if at_once else [{name: 1} for name in names]
    schema = {"properties": {"a": TEXT}, "additionalProperties": False}
    assert _edited(schema, *values) == {**schema, "additionalProperties": True}


def test_only_the_rules_that_are_meant_are_edited():
    schema = {"properties": {"a": {"maximum": 5}, "b": {"maximum": 5}}}
    patch = propose_edits(schema, [{"a": 9, "b": 9}], only=frozenset({("/a", "maximum")}))
    assert patch.operations == (PatchOperation("replace", "/properties/a/maximum", 9),)
    assert patch.unsolved == ()


def test_what_is_hidden_asks_for_nothing():
    patch = propose_edits({"type": "number"}, ["***"], is_hidden=lambda value: value == "***")
    assert (patch.operations, patch.unsolved) == ((), ())


def test_what_a_cast_would_strip_is_declared_without_a_rule():
    row = {"type": "object", "properties": {"a": {}}}
    nullable = {"anyOf": [row, NULL]}
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": nullable}}}
    value = {"l": [{"a": 1, "b": 2}], "c": 3}
    after = propose_edits(schema, [value], declare=True).after
    assert after["properties"]["c"] == {}
    assert after["properties"]["l"]["items"]["anyOf"][0]["properties"] == {"a": {}, "b": {}}


def test_formats_count_only_where_they_are_asserted():
    schema = {"format": "email"}
    assert propose_edits(schema, ["no mail"]).operations == ()
    assert propose_edits(schema, ["no mail"], formats=True).after == {}
    bound = {"format": "date", "formatMinimum": "2024-01-01"}
    assert propose_edits(bound, ["2023-01-01"], formats=True).after["formatMinimum"] == "2023-01-01"


def test_nothing_beside_a_reference_counts_in_an_old_draft():
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    schema = {
        **draft,
        "definitions": {"P": WHOLE},
        "items": {"$ref": "#/definitions/P", "maximum": 1},
    }
    after = _edited(schema, ["x", 5])
    assert after["items"]["maximum"] == 1


def test_a_patch_is_shown_in_words_and_as_a_diff():
    patch = propose_edits({"properties": {"limit": {"maximum": 50}}}, [{"limit": 100}])
    assert patch.words == "/properties/limit/maximum: 50 → 100"
    lines = patch.diff.splitlines()
    assert [line for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"}] == [
        '-      "maximum": 50',
        '+      "maximum": 100',
    ]
    assert propose_edits({"type": "number"}, [1]).diff == ""


def test_a_place_has_stars_for_indexes_and_keeps_names():
    assert place("/items/12/v2/0") == "/items/*/v2/*"
    assert place_in({"2024": [{"7": 1}]}, "/2024/0/7") == "/2024/*/7"
    assert place_in([1], "/0") == "/*"


# --- laws -----------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "a/b", "~", "7", "items", "not"])
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, -1.5, "", "x", "xyz"])
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])


def _scalar_rules(inner):
    return {
        "type": _TYPES | st.lists(_TYPES, min_size=1, unique=True),
        "enum": st.lists(_SCALARS, max_size=3),
        "const": _SCALARS,
        "minimum": st.integers(-3, 3),
        "maximum": st.integers(-3, 3),
        "exclusiveMinimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.integers(1, 3),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "pattern": st.sampled_from(["^x", "z$"]),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "maxProperties": st.integers(0, 2),
        "required": st.lists(_NAMES, unique=True, max_size=2),
        "properties": st.dictionaries(_NAMES, inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "^[0-9]+$"]), inner),
        "additionalProperties": st.booleans() | inner,
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "$ref": st.just("#/$defs/D"),
    }


def _any_rules(inner):
    forms = st.lists(inner, min_size=1, max_size=2)
    unions = dict.fromkeys(["anyOf", "oneOf", "allOf"], forms)
    single = ["not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties"]
    return {
        **_scalar_rules(inner),
        **unions,
        **dict.fromkeys(single, inner),
        "maxContains": st.integers(0, 2),
        "$ref": st.sampled_from(["#/$defs/D", "#/$defs/H", "#here"]),
    }


def _schemas(keywords, leaf):
    made = st.recursive(leaf, lambda inner: st.fixed_dictionaries({}, optional=keywords(inner)), max_leaves=6)  # fmt: skip
    shared = {"type": _TYPES, "maximum": st.just(1)}
    return st.builds(
        lambda root, one, two: {**root, "$defs": {"D": one, "H": {"$anchor": "here", **two}}},
        made.filter(lambda schema: isinstance(schema, dict)),
        st.fixed_dictionaries({}, optional=shared),
        st.fixed_dictionaries({}, optional=shared),
    )


@given(
    _schemas(_scalar_rules, st.builds(dict)),
    st.lists(_JSON, max_size=4),
    st.lists(_JSON, max_size=8),
)
@example({"const": 1, "enum": [1, 2]}, [2, 3], [1])
def test_a_proposal_for_scalar_rules_accepts_what_broke_them_and_refuses_nothing(
    schema, values, others
):
    old, patch = compile_schema(schema), propose_edits(schema, values)
    new = compile_schema(patch.after)
    assert patch.unsolved == ()
    assert all(map(new.accepts, values))
    assert all(new.accepts(value) for value in others if old.accepts(value))
    assert apply(schema, patch.operations) == patch.after


@given(
    _schemas(_any_rules, st.builds(dict) | st.booleans()),
    st.lists(_JSON, max_size=4),
    st.lists(_JSON, max_size=8),
)
def test_a_proposal_for_any_schema_refuses_nothing_that_was_accepted(schema, values, others):
    old, patch = compile_schema(schema), propose_edits(schema, values)
    new = compile_schema(patch.after)
    assert all(new.accepts(value) for value in (*values, *others) if old.accepts(value))
    assert all(map(new.accepts, values)) or patch.unsolved
    assert apply(schema, patch.operations) == patch.after


@given(_schemas(_any_rules, st.builds(dict)), st.lists(_JSON, max_size=4))
def test_values_that_pass_change_nothing(schema, values):
    compiled = compile_schema(schema)
    assert propose_edits(schema, filter(compiled.accepts, values)).operations == ()
