"""Patches of schemas: the smallest change that lets values pass, and refuses nothing new."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callpact.audit.patching import Operation, Patch, apply, difference, same
from callpact.audit.record import place
from callpact.audit.widening import widen
from callpact.audit.widening_rules import MAX_NEW_CHOICES, MAX_NEW_KEYS
from callpact.errors import UsageError
from callpact.schema import check, compile_schema


def _widened(schema, *values, **options):
    patch = widen(schema, values, **options)
    assert patch.unsolved == ()
    assert [check(patch.after, value) for value in values] == [[]] * len(values)
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
        ({"not": {"type": "null"}}, [None], {}),
        ({"propertyNames": {"maxLength": 1}}, [{"ab": 1}], {"propertyNames": {"maxLength": 2}}),
        ({"contains": {"type": "string"}}, [[1]], {}),
        ({"required": ["a", "b"]}, [{"b": 1}], {"required": ["b"]}),
        ({"required": ["a"]}, [{}], {}),
        ({"dependentRequired": {"a": ["b", "c"]}}, [{"a": 1, "c": 1}], {"dependentRequired": {"a": ["c"]}}),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            [{"b": 1}, {"b": "x"}],
            {"properties": {"a": {}, "b": {"type": ["integer", "string"]}}, "additionalProperties": False},
        ),
        ({"properties": {"a": False}}, [{"a": 1}], {"properties": {"a": {"type": "integer"}}}),
        ({"prefixItems": [True], "items": False}, [[1, "x"]], {"prefixItems": [True], "items": {"type": "string"}}),
        (
            {"anyOf": [{"type": "number"}, {"type": "null"}]},
            ["x", "y"],
            {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "string"}]},
        ),
        (
            {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "null"}]},
            [{}],
            {"anyOf": [{"type": "object"}, {"type": "null"}]},
        ),
        ({"oneOf": [{"type": "number"}, {"minimum": 1}]}, [3], {"anyOf": [{"type": "number"}, {"minimum": 1}]}),
        (
            {"$defs": {"P": {"type": "number"}}, "items": {"$ref": "#/$defs/P"}},
            [["1"]],
            {"$defs": {"P": {"type": ["number", "string"]}}, "items": {"$ref": "#/$defs/P"}},
        ),
    ],
    ids=lambda part: json.dumps(part)[:60],
)  # fmt: skip
def test_a_rule_is_widened_by_no_more_than_the_values_ask_for(schema, values, wider):
    after = _widened(schema, *values)
    assert same(after, wider)


def test_the_form_that_a_constant_tells_is_the_one_that_is_widened():
    dog = {"properties": {"kind": {"const": "dog"}, "age": {"type": "integer"}}}
    cat = {"properties": {"kind": {"const": "cat"}, "age": {"type": "integer"}}}
    forms = [{"type": "object", **form} for form in (dog, cat)]
    after = _widened({"anyOf": forms}, {"kind": "cat", "age": "3"})
    assert after["anyOf"][0] == forms[0]
    assert after["anyOf"][1]["properties"]["age"] == {"type": ["integer", "string"]}


def test_too_many_new_choices_let_go_of_the_list_and_keep_the_type():
    values = [f"v{i}" for i in range(MAX_NEW_CHOICES + 1)]
    assert _widened({"enum": ["a"]}, *values) == {"type": "string"}


def test_too_many_new_keys_allow_all_others():
    values = [{f"k{i}": 1} for i in range(MAX_NEW_KEYS + 1)]
    after = _widened({"type": "object", "additionalProperties": False}, *values)
    assert after["additionalProperties"] is True


def test_only_the_violations_that_are_meant_are_met():
    schema = {"properties": {"a": {"maximum": 5}, "b": {"maximum": 5}}}
    patch = widen(schema, [{"a": 9, "b": 9}], meant=frozenset({("/a", "maximum")}))
    assert patch.operations == (Operation("replace", "/properties/a/maximum", 9),)


def test_what_is_hidden_asks_for_nothing():
    patch = widen({"type": "number"}, ["***"], is_hidden=lambda value: value == "***")
    assert patch.operations == ()


def test_a_definition_that_also_excludes_is_left_as_it_is_and_told():
    schema = {
        "$defs": {"P": {"type": "number"}},
        "properties": {"a": {"$ref": "#/$defs/P"}, "b": {"not": {"$ref": "#/$defs/P"}}},
    }
    patch = widen(schema, [{"a": "x"}])
    assert patch.operations == ()
    assert [(one.path, one.rule) for one in patch.unsolved] == [("/a", "type")]


def test_a_property_named_like_a_keyword_is_widened_like_any_other():
    after = _widened({"properties": {"not": {"type": "number"}}}, {"not": "x"})
    assert after["properties"]["not"]["type"] == ["number", "string"]


def test_what_a_cast_would_strip_is_declared_without_a_rule():
    row = {"type": "object", "properties": {"a": {}}}
    rows = {"type": "array", "items": row}
    schema = {"type": "object", "properties": {"l": rows}}
    patch = widen(schema, [{"l": [{"a": 1, "b": 2}], "c": 3}], declare=True)
    assert patch.after["properties"]["c"] == {}
    assert patch.after["properties"]["l"]["items"]["properties"] == {"a": {}, "b": {}}


def test_formats_count_only_where_they_are_asserted():
    schema = {"format": "email"}
    assert widen(schema, ["no mail"]).operations == ()
    assert widen(schema, ["no mail"], formats=True).after == {}


def test_a_place_has_stars_for_indexes_and_keeps_names():
    assert place("/items/12/v2/0") == "/items/*/v2/*"


def test_a_patch_is_told_in_words_and_as_a_diff():
    patch = widen({"properties": {"limit": {"maximum": 50}}}, [{"limit": 100}])
    assert patch.words == "/properties/limit/maximum: 50 → 100"
    lines = patch.diff.splitlines()
    assert [line for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"}] == [
        '-      "maximum": 50',
        '+      "maximum": 100',
    ]


def test_no_change_has_no_diff():
    assert widen({"type": "number"}, [1]).diff == ""


@pytest.mark.parametrize(
    "step",
    [
        Operation("remove", "/b"),
        Operation("replace", "/b/c", 1),
        Operation("add", "/a/7", 1),
        Operation("replace", "/a/x", 1),
        Operation("add", "/n/x/y", 1),
    ],
)
def test_a_patch_for_another_document_is_refused(step):
    with pytest.raises(UsageError):
        apply({"a": [1], "n": 1}, [step])


def test_a_part_that_stands_in_two_places_changes_in_one():
    part = {"type": "number"}
    document = {"a": part, "b": part}
    changed = apply(document, [Operation("replace", "/a/type", "string")])
    assert changed == {"a": {"type": "string"}, "b": {"type": "number"}}


# --- laws -----------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "a/b", "~", "items", "not"])
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, -1.5]), st.sampled_from(["", "x", "xyz", "***"])
)  # fmt: skip
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_TYPES = ["string", "number", "integer", "boolean", "null", "array", "object"]


def _keywords(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(_TYPES) | st.lists(st.sampled_from(_TYPES), min_size=1, unique=True),
            "enum": st.lists(_SCALARS, min_size=1, max_size=3),
            "const": _SCALARS,
            "minimum": st.integers(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "required": st.lists(_NAMES, unique=True, max_size=2),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "$ref": st.just("#/$defs/D"),
        },
    )  # fmt: skip


_SCHEMAS = st.builds(
    lambda root, definition: {**root, "$defs": {"D": definition}},
    st.recursive(st.just({}) | st.booleans(), _keywords, max_leaves=5).filter(
        lambda schema: isinstance(schema, dict)
    ),
    st.fixed_dictionaries({}, optional={"type": st.sampled_from(_TYPES), "maximum": st.just(1)}),
)


@given(_SCHEMAS, st.lists(_JSON, max_size=4), st.lists(_JSON, max_size=8))
def test_a_patched_schema_accepts_the_values_and_all_that_it_accepted(schema, values, others):
    patch = widen(schema, values)
    old, new = compile_schema(schema), compile_schema(patch.after)
    for value in (*values, *others):
        if old.accepts(value):
            assert new.accepts(value)
    if not patch.unsolved:
        assert all(new.accepts(value) for value in values)


@given(_SCHEMAS, st.lists(_JSON, max_size=4))
def test_the_steps_of_a_patch_lead_from_the_document_to_the_patched_one(schema, values):
    patch = widen(schema, values)
    assert same(patch.before, schema)
    assert same(apply(schema, patch.operations), patch.after)


@given(_SCHEMAS, st.lists(_JSON, max_size=4))
def test_values_that_pass_change_nothing(schema, values):
    compiled = compile_schema(schema)
    assert widen(schema, filter(compiled.accepts, values)).operations == ()


@given(_JSON, _JSON)
@example([{"a": 1}, {"b": 1}], [{"a": 2}])
@example({"a": True}, {"a": 1})
def test_a_difference_applied_gives_the_other_value(before, after):
    steps = difference(before, after)
    assert same(apply(before, steps), after)
    assert Patch({}, {}, steps).operations == steps
