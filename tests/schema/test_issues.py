"""What `check` says: every violation, in the agreed words, at its place, without a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.schema import check
from callpact.schema.issues.explain import MAX_ISSUES


def obj(**properties):
    return {"type": "object", "properties": properties}


def only(schema, value):
    issues = check(schema, value)
    assert len(issues) == 1, issues
    return issues[0]


FORMS = [
    (
        obj(price={"type": "string"}),
        {"price": 5},
        ("type", "Property 'price' must be a string, got number", "/price"),
    ),
    (
        obj(limit={"type": "integer", "maximum": 50}),
        {"limit": 80},
        ("maximum", "Property 'limit' must be ≤ 50, got 80", "/limit"),
    ),
    ({**obj(q={}), "required": ["q"]}, {}, ("required", "Property 'q' is required", "/q")),
    (
        obj(unit={"enum": ["kg", "lb"]}),
        {"unit": "stone"},
        ("enum", "Property 'unit' must be one of kg, lb, got 'stone'", "/unit"),
    ),
    ({"minimum": 3}, 1, ("minimum", "Value must be ≥ 3, got 1", "")),
    ({"exclusiveMinimum": 3}, 3, ("exclusiveMinimum", "Value must be > 3, got 3", "")),
    ({"exclusiveMaximum": 3}, 3, ("exclusiveMaximum", "Value must be < 3, got 3", "")),
    ({"multipleOf": 3}, 10, ("multipleOf", "Value must be a multiple of 3, got 10", "")),
    ({"minLength": 2}, "a", ("minLength", "Value must have at least 2 characters, got 1", "")),
    ({"maxLength": 1}, "ab", ("maxLength", "Value must have at most 1 character, got 2", "")),
    ({"minItems": 1}, [], ("minItems", "Value must have at least 1 item, got 0", "")),
    ({"maxItems": 1}, [1, 2], ("maxItems", "Value must have at most 1 item, got 2", "")),
    (
        {"minProperties": 2},
        {"a": 1},
        ("minProperties", "Value must have at least 2 properties, got 1", ""),
    ),
    (
        {"maxProperties": 0},
        {"a": 1},
        ("maxProperties", "Value must have at most 0 properties, got 1", ""),
    ),
    ({"pattern": "^x"}, "a", ("pattern", "Value must match the pattern ^x, got 'a'", "")),
    ({"const": "a"}, "b", ("const", "Value must be 'a', got 'b'", "")),
    ({"const": {"a": 1}}, 5, ("const", 'Value must be {"a": 1}, got 5', "")),
    ({"uniqueItems": True}, [1, 1], ("uniqueItems", "Value must not hold the same item twice", "")),
    ({"contains": {"const": 1}}, [2], ("contains", None, "")),
    ({"contains": {"const": 1}, "minContains": 2}, [1], ("minContains", None, "")),
    ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], ("maxContains", None, "")),
    ({"not": {"type": "string"}}, "a", ("not", None, "")),
    ({"type": "integer"}, 7.5, ("type", "Value must be an integer, got 7.5", "")),
    (
        {"type": ["integer", "null"]},
        "7",
        ("type", "Value must be an integer or null, got string", ""),
    ),
    (
        {**obj(name={}), "additionalProperties": False},
        {"zzz": 1},
        ("additionalProperties", "Property 'zzz' is not known", "/zzz"),
    ),
    (
        {**obj(name={}), "unevaluatedProperties": False},
        {"zzz": 1},
        ("unevaluatedProperties", "Property 'zzz' is not known", "/zzz"),
    ),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 2], ("unevaluatedItems", None, "")),
    ({"prefixItems": [{}], "items": False}, [1, 2], ("items", "Item 1 is not allowed", "/1")),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{}],
            "additionalItems": False,
        },
        [1, 2],
        ("additionalItems", "Value must have at most 1 item, got 2", ""),
    ),
    ({"properties": {"a": False}}, {"a": 1}, ("properties", "Property 'a' is not allowed", "/a")),
    (
        {"additionalProperties": False},
        {"a": 1},
        ("additionalProperties", "Value must not have any property", ""),
    ),
    ({"propertyNames": False}, {"a": 1}, ("propertyNames", "Value must not have any property", "")),
    (False, 1, ("false", "Value is not allowed", "")),
    (
        {"dependentRequired": {"a": ["b"]}},
        {"a": 1},
        ("dependentRequired", "Property 'b' is required when 'a' is given", "/b"),
    ),
    (
        {"dependentSchemas": {"a": {"required": ["c"]}}},
        {"a": 1},
        ("required", "Property 'c' is required", "/c"),
    ),
    (
        {"if": {"required": ["a"]}, "then": {"required": ["c"]}},
        {"a": 1},
        ("required", "Property 'c' is required", "/c"),
    ),
    (
        {"propertyNames": {"maxLength": 2}},
        {"abc": 1},
        ("propertyNames", "Property name 'abc' must have at most 2 characters", "/abc"),
    ),
    (
        obj(a={"type": "array", "items": {"type": "integer"}}),
        {"a": [1, "x"]},
        ("type", "Item 1 of 'a' must be an integer, got string", "/a/1"),
    ),
    ({"properties": {"a/b~c": {"type": "null"}}}, {"a/b~c": 1}, ("type", None, "/a~1b~0c")),
]


@pytest.mark.parametrize(("schema", "value", "expected"), FORMS)
def test_each_keyword_has_its_code_its_words_and_its_place(schema, value, expected):
    code, message, path = expected
    issue = only(schema, value)
    assert (issue.code, issue.path) == (code, path)
    assert message is None or issue.message == message


def test_all_violations_come_at_once_the_deepest_first_and_by_rank():
    inner = {
        **obj(b={"minimum": 3}, c={"type": "string"}, d={"enum": ["x"]}),
        "required": ["e"],
        "additionalProperties": False,
    }
    schema = {**obj(a=inner), "required": ["z"]}
    issues = check(schema, {"a": {"b": 1, "c": 5, "d": "y", "f": 1}})
    assert [(issue.code, issue.path) for issue in issues] == [
        ("required", "/a/e"),
        ("type", "/a/c"),
        ("enum", "/a/d"),
        ("minimum", "/a/b"),
        ("additionalProperties", "/a/f"),
        ("required", "/z"),
    ]


def test_what_was_expected_and_what_came_are_data():
    issue = only(obj(limit={"maximum": 50}), {"limit": 80})
    assert (issue.expected, issue.received) == (50, 80)
    issue = only(obj(a={"type": "string"}), {"a": [1]})
    assert (issue.expected, issue.received) == ("string", "array")


def test_no_more_than_the_limit_is_reported():
    assert len(check({"items": {"type": "integer"}}, ["x"] * 1_000)) == MAX_ISSUES
    assert (
        len(
            check(
                {"properties": {}, "additionalProperties": False},
                {f"k{i}": 1 for i in range(1_000)},
            )
        )
        == MAX_ISSUES
    )


def test_a_missing_key_is_hinted_by_its_description():
    schema = {**obj(q={"description": "What to look for"}), "required": ["q"]}
    assert "What to look for" in only(schema, {}).hint


@pytest.mark.parametrize(
    ("schema", "value", "hint"),
    [
        ({**obj(name={}, other={}), "additionalProperties": False}, {"nmae": 1}, "'name'"),
        ({**obj(name={}), "additionalProperties": False}, {"zzz": 1}, "known: name"),
        ({"enum": ["celsius", "kelvin"]}, "Celcius", "'celsius'"),
        ({"type": "integer"}, "10", "10"),
        ({"type": "boolean"}, "true", "true"),
        ({"type": "array"}, "[1]", "JSON"),
    ],
)
def test_the_likely_remedy_is_hinted(schema, value, hint):
    assert hint in only(schema, value).hint


CAT = {**obj(kind={"const": "cat"}, lives={"type": "integer"}), "required": ["kind", "lives"]}
DOG = {**obj(kind={"const": "dog"}, age={"type": "integer"}), "required": ["kind", "age"]}
UNIONS = [
    (
        [{"type": "string"}, {"type": "null"}],
        5,
        ("type", "Value must be a string or null, got number", ""),
    ),
    (
        [{"type": "integer", "minimum": 1}, {"type": "null"}],
        0,
        ("minimum", "Value must be ≥ 1, got 0", ""),
    ),
    (
        [{"const": "kg"}, {"const": "lb"}],
        "st",
        ("enum", "Value must be one of kg, lb, got 'st'", ""),
    ),
    (
        [{"enum": ["a", "b"]}, {"type": "null"}],
        "c",
        ("enum", "Value must be one of a, b, got 'c'", ""),
    ),
    ([CAT, DOG], {"kind": "dog", "lives": 9}, ("required", "Property 'age' is required", "/age")),
    ([CAT, DOG], {"kind": "dog", "age": "x"}, ("type", None, "/age")),
    (
        [CAT, DOG],
        {"kind": "cow"},
        ("enum", "Property 'kind' must be one of cat, dog, got 'cow'", "/kind"),
    ),
    ([CAT, DOG], {}, ("required", "Property 'kind' is required", "/kind")),
    ([CAT, DOG], 5, ("type", "Value must be an object, got number", "")),
    ([{"type": "array"}, obj(a={"type": "integer"})], {"a": "x"}, ("type", None, "/a")),
]


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize(("variants", "value", "expected"), UNIONS)
def test_a_union_tells_the_useful_violation(keyword, variants, value, expected):
    code, message, path = expected
    issue = only({keyword: variants}, value)
    assert (issue.code, issue.path) == (code, path)
    assert message is None or issue.message == message


@pytest.mark.parametrize(("variants", "value", "expected"), UNIONS)
def test_a_union_of_references_tells_the_same(variants, value, expected):
    code, _, path = expected
    defs = {f"V{i}": variant for i, variant in enumerate(variants)}
    schema = {"$defs": defs, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in defs]}
    issue = only(schema, value)
    assert (issue.code, issue.path) == (code, path)


def test_a_value_far_from_every_variant_names_the_nearest_form():
    schema = {"anyOf": [{**obj(a={}), "required": ["a"]}, {**obj(b={}), "required": ["b", "c"]}]}
    issue = only(schema, {})
    assert issue.code == "anyOf"
    assert "'a' is required" in issue.hint


def test_a_value_that_fits_two_exclusive_forms_is_told_so():
    issue = only({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 5)
    assert issue.code == "oneOf"
    assert "more than one" in issue.message


SECRET = "hunter2-hunter2"
MARKS = [{"writeOnly": True}, {"format": "password"}]


def _hidden_in(rule, mark):
    yield {**rule, **mark}
    yield {"anyOf": [{**rule, **mark}, {"type": "null"}]}
    yield {"anyOf": [rule, {"type": "null"}], **mark}
    yield {"allOf": [mark, rule]}
    yield {"$ref": "#/$defs/Marked"}
    yield {"$ref": "#/$defs/Bare", **mark}
    yield {"oneOf": [{"$ref": "#/$defs/Marked"}, {"type": "null"}]}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(
    "rule",
    [
        {"type": "integer"},
        {"type": "string", "maxLength": 3},
        {"type": "string", "pattern": "^x"},
        {"type": "string", "enum": ["hunter2-hunter3", "b"]},
        {"type": "string", "const": "other"},
        {"type": "string", "not": {"minLength": 1}},
    ],
)
def test_a_secret_is_never_shown(rule, mark):
    for place in _hidden_in(rule, mark):
        schema = {**obj(key=place), "$defs": {"Marked": {**rule, **mark}, "Bare": rule}}
        issues = check(schema, {"key": SECRET})
        assert issues
        for issue in issues:
            shown = f"{issue.message} {issue.received}"
            assert SECRET not in shown, place
            assert "hunter2" not in str(issue.hint)


@pytest.mark.parametrize("mark", MARKS)
def test_a_number_in_a_secret_object_is_not_shown(mark):
    schema = obj(key={**obj(pin={"maximum": 5}), **mark})
    issue = only(schema, {"key": {"pin": 471147}})
    assert "471147" not in f"{issue.message}{issue.received}{issue.hint}"


def test_long_values_and_names_are_cut():
    issue = only(obj(a={"enum": ["x"]}), {"a": "y" * 100_000})
    assert len(issue.message) < 300
    assert len(issue.received) < 100
    issue = only({"properties": {}, "additionalProperties": False}, {"k" * 100_000: 1})
    assert len(issue.message) < 300
    assert len(issue.path) < 1_000


def test_a_message_is_one_line():
    assert "\n" not in only({"const": "a"}, "b\nc").message


def test_what_is_not_json_is_told_where_it_stands():
    issues = check({"type": "object"}, {"a": [float("nan")], "b": object(), "c": "\ud800"})
    assert {(issue.code, issue.path) for issue in issues} == {
        ("json", "/a/0"),
        ("json", "/b"),
        ("json", "/c"),
    }


# --- what was asked for and what came ---------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "message", "hint"),
    [
        ({"enum": ["1", "7"]}, 7, "must be one of '1', '7', got 7", "send '7', a string"),
        ({"enum": [1, 7]}, "7", "must be one of 1, 7, got '7'", "send 7 without quotes"),
        ({"enum": ["1.5"]}, 1.5, "must be one of '1.5', got 1.5", "send '1.5', a string"),
        ({"enum": ["null"]}, None, "must be one of 'null', got null", "send 'null', a string"),
        ({"enum": [None]}, "null", "must be one of null, got 'null'", "send null without quotes"),
        ({"enum": ["true", "x"]}, True, "must be one of 'true', 'x', got true", "send 'true', a string"),
        ({"enum": [True]}, "true", "must be one of true, got 'true'", "send true without quotes"),
        ({"enum": [True]}, 1, "must be one of true, got 1", None),
        ({"enum": [1]}, True, "must be one of 1, got true", None),
        ({"enum": ["kg", "lb"]}, "x", "must be one of kg, lb, got 'x'", None),
        ({"enum": ["24h", "7d"]}, "x", "must be one of 24h, 7d, got 'x'", None),
        ({"enum": ["a, b", "c"]}, "x", "must be one of 'a, b', 'c', got 'x'", None),
        ({"enum": ["", "c"]}, " ", "must be one of '', 'c', got ' '", None),
        ({"enum": [{"a": 1}]}, {"a": 2}, 'must be one of {"a": 1}, got an object', None),
        ({"enum": [[1], []]}, [3], "must be one of [1], [], got an array", None),
        ({"enum": []}, 3, "can have no value: the list of allowed ones is empty, got 3", None),
        ({"const": "7"}, 7, "must be '7', got 7", "send '7', a string"),
        ({"const": 7}, "7", "must be 7, got '7'", "send 7 without quotes"),
        ({"const": {"a": 1}}, {}, 'must be {"a": 1}, got an empty object', None),
        ({"anyOf": [{"const": "1"}, {"const": "7"}]}, 7, "must be one of '1', '7', got 7", "send '7', a string"),
        ({"minimum": 2**53 + 1}, 2**53, f"must be ≥ {2**53 + 1}, got {2**53}", None),
    ],
)  # fmt: skip
def test_what_came_never_reads_like_what_was_asked_for(schema, value, message, hint):
    (issue,) = check(schema, value)
    assert (issue.message, issue.hint) == (f"Value {message}", hint)


@pytest.mark.parametrize("keyword", ["enum", "const"])
@pytest.mark.parametrize(
    ("asked", "came"), [("x" * 90, "x" * 91), ("a\n", "a\\n"), (10**90, 10**90 + 1)]
)
def test_what_differs_only_where_it_is_cut_is_said_to_differ(keyword, asked, came):
    (issue,) = check({keyword: [asked] if keyword == "enum" else asked}, came)
    assert issue.message.endswith(", which differs where it is not shown")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["1", "-1", "true", "null", "", "a"])
)


@given(st.lists(SCALARS, min_size=1, max_size=4), SCALARS)
def test_a_choice_never_lists_what_came_as_it_came(options, value):
    for issue in check({"enum": options}, value):
        listed, _, came = issue.message.removeprefix("Value must be one of ").rpartition(", got ")
        assert came not in listed.split(", ")
