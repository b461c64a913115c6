"""Property blocks: every row of the table of kinds, and every way to write one wrongly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.errors import InvalidTool
from callpact.schema import (
    PropertyArray,
    PropertyAsset,
    PropertyBoolean,
    PropertyComponent,
    PropertyContent,
    PropertyDate,
    PropertyEnum,
    PropertyGroup,
    PropertyInteger,
    PropertyNumber,
    PropertyString,
    check,
    compile_schema,
)
from callpact.schema.properties import MAX_NESTING, properties_schema


def schema_of(prop):
    return properties_schema({"p": prop})["properties"]["p"]


def codes(prop, value):
    compiled = compile_schema(properties_schema({"p": prop}), formats=True)
    issues = check(compiled, {"p": value})
    assert all(issue.path.startswith("/p") for issue in issues)
    return {issue.code for issue in issues}


def refusal(block, **how):
    with pytest.raises(InvalidTool) as caught:
        properties_schema(block, **how)
    return str(caught.value)


# --- helpers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("helper", "kind"),
    [
        (PropertyString, "string"),
        (PropertyNumber, "number"),
        (PropertyInteger, "integer"),
        (PropertyBoolean, "boolean"),
        (PropertyEnum, "enum"),
        (PropertyDate, "date"),
        (PropertyArray, "array"),
        (PropertyGroup, "group"),
        (PropertyAsset, "asset"),
        (PropertyContent, "content"),
        (PropertyComponent, "component"),
    ],
)
def test_a_helper_only_sets_the_type(helper, kind):
    assert helper() == {"type": kind}
    assert helper({"title": "T"}, description="D") == {
        "type": kind,
        "title": "T",
        "description": "D",
    }


def test_keywords_in_snake_case_become_the_seeds_spelling():
    assert PropertyString(min_length=1, max_length=2, default_value="a") == {
        "type": "string",
        "minLength": 1,
        "maxLength": 2,
        "defaultValue": "a",
    }
    assert PropertyArray(value_type=PropertyString(), uniqueItems=True) == {
        "type": "array",
        "valueType": {"type": "string"},
        "uniqueItems": True,
    }


def test_mapping_keys_are_taken_as_they_are():
    assert PropertyString({"min_length": 1}) == {"type": "string", "min_length": 1}
    text = refusal({"p": PropertyString({"min_length": 1})})
    assert "/p" in text
    assert "did you mean 'minLength'?" in text


def test_a_helper_does_not_change_the_mapping_it_is_given():
    options = {"title": "T"}
    PropertyString(options, description="D")
    assert options == {"title": "T"}


@pytest.mark.parametrize(
    "write",
    [
        lambda: PropertyEnum(["a", "b"]),
        lambda: PropertyString({"type": "number"}),
        lambda: PropertyString({"minLength": 1}, min_length=2),
        lambda: PropertyString(min_length=1, minLength=1),
        lambda: PropertyNumber(type="string"),
    ],
)
def test_options_that_contradict_the_helper_are_refused(write):
    with pytest.raises(InvalidTool):
        write()


# --- the table: JSON Schema of each kind ----------------------------------------------------


@pytest.mark.parametrize(
    ("prop", "schema"),
    [
        (PropertyString(), {"type": "string"}),
        (
            PropertyString(min_length=1, max_length=3, pattern="^a"),
            {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
        ),
        (PropertyString(format="text"), {"type": "string"}),
        (PropertyString(format="email"), {"type": "string", "format": "email"}),
        (PropertyString(format="url"), {"type": "string", "format": "uri"}),
        (PropertyString(enum=["a", "b"]), {"type": "string", "enum": ["a", "b"]}),
        (PropertyNumber(min=0, max=1.5), {"type": "number", "minimum": 0, "maximum": 1.5}),
        (PropertyInteger(min=0, max=9), {"type": "integer", "minimum": 0, "maximum": 9}),
        (PropertyBoolean(), {"type": "boolean"}),
        (PropertyEnum(options=["a", "b"]), {"type": "string", "enum": ["a", "b"]}),
        (PropertyEnum(options=[1, 2.5]), {"type": "number", "enum": [1, 2.5]}),
        (
            PropertyEnum(options=[{"value": "l", "label": "Left"}, {"value": "r", "icon": "r"}]),
            {"type": "string", "enum": ["l", "r"]},
        ),
        (
            PropertyDate(min_date="2024-01-01", max_date="2024-12-31"),
            {
                "type": "string",
                "format": "date",
                "formatMinimum": "2024-01-01",
                "formatMaximum": "2024-12-31",
            },
        ),
        (
            PropertyArray(value_type=PropertyNumber(), min_items=1, max_items=2, unique_items=True),
            {
                "type": "array",
                "items": {"type": "number"},
                "minItems": 1,
                "maxItems": 2,
                "uniqueItems": True,
            },
        ),
        (
            PropertyGroup(properties={"a": PropertyString(required=True), "b": PropertyNumber()}),
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "number"}},
                "required": ["a"],
            },
        ),
        (PropertyAsset(asset_types=["image", "model/usdz"]), {"type": "string"}),
        (PropertyContent(), {"type": "string"}),
    ],
)
def test_each_kind_becomes_its_json_schema(prop, schema):
    assert schema_of(prop) == schema


# --- the table: values that pass, and values that do not -------------------------------------

_AB = PropertyGroup(properties={"a": PropertyString(required=True), "b": PropertyNumber()})


@pytest.mark.parametrize(
    ("prop", "good", "bad"),
    [
        (PropertyString(), ["", "x", "1"], [(1, "type"), (None, "type"), (["x"], "type")]),
        (
            PropertyString(min_length=2, max_length=3),
            ["ab", "abc", "äöü"],
            [("a", "minLength"), ("abcd", "maxLength"), ("", "minLength")],
        ),
        (PropertyString(pattern="^[^@]+@[^@]+$"), ["a@b"], [("a", "pattern"), ("@", "pattern")]),
        (PropertyString(format="text"), ["anything"], [(1, "type")]),
        (PropertyString(format="email"), ["a@b.de"], [("a", "format"), ("a b@c.de", "format")]),
        (
            PropertyString(format="url"),
            ["https://a.de/x?y=1"],
            [("a", "format"), ("/x", "format")],
        ),
        (PropertyString(enum=["open", "closed"]), ["open"], [("Open", "enum"), ("", "enum")]),
        (PropertyNumber(), [0, -1.5, 10**20], [("1", "type"), (True, "type"), (None, "type")]),
        (
            PropertyNumber(min=0, max=1.5),
            [0, 1.5],
            [(-0.001, "minimum"), (1.501, "maximum")],
        ),
        (PropertyInteger(), [0, -3], [(1.5, "type"), ("1", "type"), (False, "type")]),
        (PropertyInteger(min=1, max=50), [1, 50], [(0, "minimum"), (51, "maximum")]),
        (PropertyBoolean(), [True, False], [(0, "type"), ("true", "type"), (None, "type")]),
        (PropertyEnum(options=["kg", "lb"]), ["kg", "lb"], [("stone", "enum"), (1, "type")]),
        (PropertyEnum(options=[1, 2.5]), [1, 2.5], [(2, "enum"), ("1", "type")]),
        (PropertyEnum(options=[{"value": "l", "label": "L"}]), ["l"], [("L", "enum")]),
        (
            PropertyDate(),
            ["2024-02-29"],
            [("2023-02-29", "format"), ("29.2.2024", "format"), (20240229, "type")],
        ),
        (
            PropertyDate(min_date="2024-01-01", max_date="2024-12-31"),
            ["2024-01-01", "2024-12-31"],
            [("2023-12-31", "formatMinimum"), ("2025-01-01", "formatMaximum")],
        ),
        (
            PropertyArray(value_type=PropertyString(max_length=2)),
            [[], ["a", "ab"]],
            [("a", "type"), ([1], "type"), (["a", "abc"], "maxLength"), ({}, "type")],
        ),
        (
            PropertyArray(value_type=PropertyNumber(), min_items=1, max_items=2),
            [[1], [1, 2]],
            [([], "minItems"), ([1, 2, 3], "maxItems")],
        ),
        (
            PropertyArray(value_type=PropertyNumber(), unique_items=True),
            [[1, 2]],
            [([1, 1], "uniqueItems")],
        ),
        (
            _AB,
            [{"a": "x"}, {"a": "x", "b": 1}],
            [({}, "required"), ({"a": 1}, "type"), ({"a": "x", "b": "1"}, "type"), ([], "type")],
        ),
        (PropertyAsset(asset_types=["image"]), ["id"], [(1, "type"), ({"id": "x"}, "type")]),
        (PropertyContent(), ["id"], [(1, "type"), (None, "type")]),
    ],
)
def test_each_kind_takes_its_values_and_no_others(prop, good, bad):
    for value in good:
        assert codes(prop, value) == set(), value
    for value, code in bad:
        assert code in codes(prop, value), value


# --- base options ---------------------------------------------------------------------------


def test_title_description_examples_and_default_are_copied_and_inspector_never():
    prop = PropertyString(
        title="T",
        description="D",
        examples=["a"],
        default_value="b",
        inspector={"visible": lambda props: True},
    )
    assert schema_of(prop) == {
        "type": "string",
        "title": "T",
        "description": "D",
        "examples": ["a"],
        "default": "b",
    }


def test_nested_validation_adds_to_the_flat_constraints_and_wins_over_them():
    prop = PropertyString(min_length=1, max_length=9, validation={"maxLength": 3, "format": "url"})
    assert schema_of(prop) == {"type": "string", "minLength": 1, "maxLength": 3, "format": "uri"}


def test_only_required_true_without_a_default_is_required_in_input():
    schema = properties_schema(
        {
            "must": PropertyString(required=True),
            "may": PropertyString(),
            "not": PropertyString(required=False),
            "filled": PropertyString(required=True, default_value="x"),
        }
    )
    assert schema["required"] == ["must"]
    assert "additionalProperties" not in schema


def test_every_output_property_is_required_unless_it_says_otherwise():
    schema = properties_schema(
        {
            "a": PropertyString(),
            "b": PropertyString(required=True),
            "c": PropertyString(required=False),
            "d": PropertyString(default_value="x"),
        },
        output=True,
    )
    assert schema["required"] == ["a", "b", "d"]


def objects_in(schema):
    if schema["type"] == "object":
        yield schema
        for sub in schema["properties"].values():
            yield from objects_in(sub)
    elif schema["type"] == "array":
        yield from objects_in(schema["items"])


_DEEP = {
    "a": PropertyGroup(
        properties={
            "b": PropertyArray(
                value_type=PropertyArray(
                    value_type=PropertyGroup(
                        properties={"c": PropertyGroup(properties={"d": PropertyNumber()})}
                    )
                )
            )
        }
    )
}


@pytest.mark.parametrize(
    ("how", "closed"),
    [({}, False), ({"strict": True}, True), ({"output": True}, True)],
)
def test_objects_are_open_in_input_and_closed_at_every_level_when_strict_or_output(how, closed):
    found = list(objects_in(properties_schema(_DEEP, **how)))
    assert len(found) == 4
    assert all(("additionalProperties" in each) is closed for each in found)
    assert all(each.get("additionalProperties", False) is False for each in found)


def test_a_block_may_be_a_function_that_returns_one_at_any_level():
    block = {"g": PropertyGroup(properties=lambda: {"a": PropertyString()})}
    assert properties_schema(lambda: block) == properties_schema(
        {"g": PropertyGroup(properties={"a": PropertyString()})}
    )


def test_an_empty_block_is_an_object_without_properties():
    assert properties_schema({}) == {"type": "object", "properties": {}}


def test_translating_does_not_change_the_block():
    block = {"a": PropertyString(validation={"minLength": 1}), "e": PropertyEnum(options=["x"])}
    before = json.dumps(block)
    properties_schema(block, output=True)
    assert json.dumps(block) == before


# --- nesting --------------------------------------------------------------------------------


def nested(levels, inner):
    """`levels` of groups and arrays in turn; the block and `inner` are not counted."""
    prop = inner
    for level in range(levels):
        prop = (
            PropertyGroup(properties={"g": prop}) if level % 2 else PropertyArray(value_type=prop)
        )
    return prop


def value_at(levels, inner):
    value = inner
    for level in range(levels):
        value = {"g": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_groups_and_arrays_are_checked_at_every_depth(levels):
    prop = nested(levels, PropertyInteger(max=5))
    assert codes(prop, value_at(levels, 5)) == set()
    assert codes(prop, value_at(levels, 6)) == {"maximum"}
    assert codes(prop, value_at(levels, "5")) == {"type"}
    assert codes(prop, value_at(levels - 1, 5)) == {"type"}


def test_nesting_ends_at_its_limit():
    assert properties_schema({"p": nested(MAX_NESTING - 1, PropertyString())})
    assert f"{MAX_NESTING} levels" in refusal({"p": nested(MAX_NESTING, PropertyString())})


def test_a_block_that_holds_itself_is_refused():
    block = {}
    block["a"] = PropertyGroup(properties=block)
    block["b"] = PropertyGroup(properties=block)
    assert "levels" in refusal(block)


def test_a_block_that_multiplies_without_end_is_refused():
    prop = PropertyString()
    for _ in range(MAX_NESTING - 2):
        prop = PropertyGroup(properties={"l": prop, "r": prop})
    assert "properties" in refusal({"p": prop})


# --- malformed blocks -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prop", "told"),
    [
        # what is no property at all
        ("string", ["expected a property", "str"]),
        (None, ["None"]),
        (PropertyString, ["PropertyString()"]),
        ({}, ["'type'", "none"]),
        ({"type": "strnig"}, ["'strnig'", "did you mean 'string'?"]),
        ({"type": 3}, ["'type'", "3"]),
        ({"type": ["string"]}, ["'type'"]),
        # options
        ({"type": "string", "minLenght": 1}, ["'minLenght'", "did you mean 'minLength'?"]),
        (PropertyString(min=1), ["'min'"]),
        (PropertyNumber(minLength=1), ["'minLength'"]),
        (PropertyBoolean(options=[True]), ["'options'"]),
        (PropertyString(validation={"minLenght": 1}), ["validation", "did you mean 'minLength'?"]),
        (PropertyBoolean(validation={"min": 1}), ["'min'"]),
        (PropertyString(validation=[]), ["'validation'", "list"]),
        (PropertyString({1: 2}), ["1"]),
        # base options
        (PropertyString(title=1), ["'title'", "text", "1"]),
        (PropertyString(description=None), ["'description'", "None"]),
        (PropertyString(required="yes"), ["'required'", "true or false", "'yes'"]),
        (PropertyString(examples="a"), ["'examples'", "list"]),
        (PropertyString(examples=[object()]), ["'examples'"]),
        # constraints
        (PropertyString(min_length=-1), ["'minLength'", "-1"]),
        (PropertyString(min_length=1.5), ["'minLength'", "1.5"]),
        (PropertyString(min_length=True), ["'minLength'", "true"]),
        (PropertyString(max_length="3"), ["'maxLength'", "'3'"]),
        (PropertyString(min_length=4, max_length=3), ["'minLength'", "'maxLength'", "4", "3"]),
        (PropertyString(min_length=4, validation={"maxLength": 3}), ["'minLength'"]),
        (PropertyString(pattern="("), ["'pattern'", "regular expression", "'('"]),
        (PropertyString(pattern=1), ["'pattern'"]),
        (PropertyString(format="emial"), ["'format'", "text, email, url", "did you mean 'email'?"]),
        (PropertyString(enum=[]), ["'enum'", "an empty list"]),
        (PropertyString(enum=["a", 1]), ["'enum'"]),
        (PropertyNumber(min="0"), ["'min'", "a number", "'0'"]),
        (PropertyNumber(max=float("nan")), ["'max'"]),
        (PropertyNumber(max=False), ["'max'", "false"]),
        (PropertyInteger(min=2, max=1), ["'min'", "'max'"]),
        (PropertyDate(min_date="2024-02-30"), ["'minDate'", "YYYY-MM-DD", "'2024-02-30'"]),
        (PropertyDate(max_date="20240101"), ["'maxDate'"]),
        (PropertyDate(max_date=2024), ["'maxDate'", "2024"]),
        (PropertyDate(min_date="2025-01-01", max_date="2024-01-01"), ["'minDate'", "'maxDate'"]),
        (PropertyArray(value_type=PropertyString(), min_items=2, max_items=1), ["'minItems'"]),
        (PropertyArray(value_type=PropertyString(), unique_items=1), ["'uniqueItems'"]),
        # parts that a kind needs
        (PropertyArray(), ["'valueType'", "missing"]),
        (PropertyEnum(), ["'options'", "missing"]),
        (PropertyEnum(options=[]), ["'options'", "an empty list"]),
        (PropertyEnum(options="ab"), ["'options'", "str"]),
        (PropertyEnum(options=["a", 1]), ["all strings or all numbers"]),
        (PropertyEnum(options=[True]), ["all strings or all numbers"]),
        (PropertyEnum(options=["a", "a"]), ["'a' twice"]),
        (PropertyEnum(options=[{"label": "A"}]), ["'value'", "missing"]),
        (PropertyEnum(options=[{"value": "a", "lable": "A"}]), ["did you mean 'label'?"]),
        (PropertyGroup(), ["'properties'", "missing"]),
        (PropertyGroup(properties=[]), ["mapping"]),
        (PropertyGroup({"name": PropertyString()}), ["'name'", "under 'properties'"]),
        (PropertyAsset(asset_types=["picture"]), ["'assetTypes'", "image"]),
        (PropertyAsset(asset_types="image"), ["'assetTypes'"]),
        # defaults
        (PropertyString(default_value=1), ["'defaultValue'", "string"]),
        (PropertyString(default_value=None), ["'defaultValue'"]),
        (PropertyInteger(max=3, default_value=4), ["'defaultValue'", "≤ 3"]),
        (PropertyDate(default_value="soon"), ["'defaultValue'", "date"]),
        (PropertyEnum(options=["a"], default_value="b"), ["'defaultValue'"]),
        (PropertyString(default_value=object()), ["'defaultValue'"]),
        # components
        (PropertyComponent(allowed_components=["A"]), ["Interactive Tools"]),
        (PropertyArray(value_type=PropertyComponent()), ["Interactive Tools"]),
        (PropertyArray(allowed_components=["A"]), ["Interactive Tools"]),
    ],
)
def test_a_malformed_property_is_refused_with_its_place_and_what_was_expected(prop, told):
    text = refusal({"outer": PropertyGroup(properties={"p": prop})})
    assert text.startswith("properties at /outer/p")
    assert [part for part in told if part not in text] == []


@pytest.mark.parametrize(
    "block",
    [None, [], "a", 1, dict, lambda: None, lambda needed: {}, print, {1: PropertyString()}],
)
def test_what_is_no_block_is_refused(block):
    assert refusal(block).startswith("properties: ")


def test_an_async_function_is_no_block():
    async def block():
        return {}

    assert "function" in refusal(block)


def test_the_place_inside_an_array_is_a_star_and_the_side_is_told():
    block = {"rows": PropertyArray(value_type=PropertyGroup(properties={"a/b": {"type": "?"}}))}
    assert refusal(block).startswith("properties at /rows/*/a~1b: ")
    assert refusal(block, output=True).startswith("output at /rows/*/a~1b: ")


def test_bounds_may_meet_and_large_numbers_are_numbers():
    assert schema_of(PropertyString(min_length=3, max_length=3))["minLength"] == 3
    assert schema_of(PropertyNumber(min=10**400))["minimum"] == 10**400
    assert schema_of(PropertyDate(min_date="2024-01-01", max_date="2024-01-01"))


# --- laws -----------------------------------------------------------------------------------

_KINDS = ["string", "number", "integer", "boolean", "enum", "date", "array", "group", "asset", "?"]
_NAMES = ["min", "max", "minLength", "pattern", "format", "options", "maxItems", "minDate", "enum"]
_VALUES = st.sampled_from(
    [None, True, 0, 3, -1, 1.5, "a", "(", "url", "2024-01-01", ["a"], [1], {}]
)
_LEAF = st.builds(
    lambda kind, options: {"type": kind, **options},
    st.sampled_from(_KINDS),
    st.dictionaries(
        st.sampled_from([*_NAMES, "required", "defaultValue", "title"]), _VALUES, max_size=2
    ),
)
_PROPERTY = st.recursive(
    _LEAF,
    lambda inner: (
        st.builds(lambda item: PropertyArray(value_type=item), inner)
        | st.builds(lambda one, two: PropertyGroup(properties={"a": one, "": two}), inner, inner)
        | st.builds(lambda one: PropertyGroup(properties={"a": one}), inner)
    ),
    max_leaves=4,
)
_ANYTHING = _VALUES | st.dictionaries(st.sampled_from("abc"), _PROPERTY | _VALUES, max_size=2)


@given(_ANYTHING, st.booleans())
def test_anything_is_either_a_schema_that_compiles_or_an_invalid_tool(block, output):
    try:
        schema = properties_schema(block, output=output)
    except InvalidTool:
        return
    assert compile_schema(schema, formats=True).document == schema
