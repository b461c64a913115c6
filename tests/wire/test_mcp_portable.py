"""Schemas that clients take without a warning, and judge by as we do."""

from __future__ import annotations

import re

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.wire.mcp.portable import agreed, bounded, explicit
from schema_lint import OPEN, lint


def is_valid(schema, value) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


def is_taken(schema, value) -> bool:
    """What the SDK's client does: it asks the schema of schemas first, patterns included."""
    kind = jsonschema.Draft202012Validator
    kind.check_schema(schema)
    return kind(schema).is_valid(value)


# --- what says nothing ----------------------------------------------------------------------


def test_the_lint_of_these_tests_finds_what_it_should():
    assert lint(OPEN) == [
        "/properties/any: nothing here could judge a value",
        "/properties/titled: nothing here could judge a value",
        "/properties/true: a boolean where a schema should be",
        "/properties/false: a boolean where a schema should be",
        "/properties/list/items: nothing here could judge a value",
        "/properties/pair/prefixItems/0: a boolean where a schema should be",
        "/properties/pair/items: a boolean where a schema should be",
        "/properties/rest/additionalProperties: nothing here could judge a value",
        "/properties/never/not: a boolean where a schema should be",
        "/properties/case/else: a boolean where a schema should be",
        "/properties/half: nothing here could judge a value",
        "/$defs/Any: nothing here could judge a value",
    ]
    assert lint({"type": ["string", "null"]}) == ["/: several types in one word"]
    assert lint({"$ref": "https://example.org/x"}) == ["/: a reference that leads elsewhere"]
    assert lint({"$defs": {"A": {"type": "string"}}}) == ["/: nothing here could judge a value"]


def test_what_is_open_takes_all_that_it_took_when_it_is_said_in_words():
    said = explicit(OPEN)
    assert lint(said) == []
    for name in OPEN["properties"]:
        for value in (None, True, 3, 3.5, "", "x", [], [1, "a"], {}, {"a": 1}):
            assert is_valid(said, {name: value}) == is_valid(OPEN, {name: value}), name


def test_a_schema_that_leaves_nothing_open_is_published_as_it_is():
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    schema = {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": inner}}
    assert explicit(schema) == schema


def test_a_bound_is_given_only_to_what_could_not_judge():
    assert lint(bounded({"title": "Anything"})) == []
    assert bounded({"type": "string"}) == {"type": "string"}
    for value in (None, True, 3, "", [], {}):
        assert is_valid(bounded({}), value)


# --- what is judged otherwise elsewhere -----------------------------------------------------

PLAIN = [
    *(
        "",
        "^[a-z]+$",
        r"^[A-Z]{2}[0-9]{1,3}?$",
        r"^\d{4}-\d{2}$",
        r"^(?:a|b)?\.c$",
        r"[\w.-]+@x\.y",
    ),
    *(r"^[^/\\]*$", "é|ü", r"\u00e9\x41", "^(?=.*[0-9]).+$", r"^\[\]\{\}\/\|$", "a b"),
]
ODD = [
    *(r"^\p{L}+$", r"\S", r"^\s*$", r"\D", r"\W", r"\bx", r"[^\d]", r"[^\w]", "(?i)x", "(?P<a>x)"),
    *("(?<a>x)", r"\Ax", "a++", "[[:alpha:]]", "[a-z&&[^b]]", "(?!x)", "(?s:.)", r"x\z", r"(a)\1"),
]


@pytest.mark.parametrize("pattern", PLAIN)
def test_a_pattern_that_all_languages_read_alike_is_published(pattern):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert agreed(schema) is schema


@pytest.mark.parametrize("pattern", ODD)
def test_another_pattern_is_told_in_words(pattern):
    schema = {"type": "string", "pattern": pattern, "description": "A name"}
    jsonschema_rs.validator_for(schema, offline=True)
    assert agreed(schema) == {
        "type": "string",
        "description": f"A name (declared: pattern {pattern})",
    }
    schema = {"type": "object", "patternProperties": {pattern: {"type": "string"}, "^x-": {}}}
    assert agreed(schema | {"additionalProperties": False}) == {
        "type": "object",
        "patternProperties": {"^x-": {}},
    }


def test_a_step_that_floating_point_knows_only_about_is_told_in_words():
    assert agreed({"type": "number", "multipleOf": 0.01}) == {
        "type": "number",
        "description": "(declared: multipleOf 0.01)",
    }
    for step in (5, 5.0, 0.5, 0.75, 10**30):
        schema = {"type": "number", "multipleOf": step}
        assert agreed(schema) is schema


def test_what_could_turn_a_missing_assertion_round_is_left_out():
    odd = {"multipleOf": 0.01}
    schema = {
        "properties": {"a": {"not": odd}, "b": {"oneOf": [odd, {"type": "string"}]}},
        "anyOf": [{"type": "object"}, {"type": "null"}],
        "oneOf": [{"type": "object"}, odd],
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "contains": odd,
        "maxContains": 1,
        "unevaluatedProperties": False,
    }
    told = {"description": "(declared: multipleOf 0.01)"}
    assert agreed(schema) == {
        "properties": {"a": {}, "b": {"anyOf": [told, {"type": "string"}]}},
        "anyOf": [{"type": "object"}, {"type": "null"}],
        "allOf": [{"anyOf": [{"type": "object"}, told]}],
    }


def test_data_that_looks_like_a_schema_is_left_alone():
    schema = {"enum": [{"pattern": "\\s", "multipleOf": 0.01}], "default": {"not": 1}}
    assert agreed(schema) is schema
    assert explicit(schema) == schema


# --- laws -----------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.sampled_from(PLAIN + ODD).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.sampled_from([0.01, 0.1, 0.3, 5, 0.5]).map(lambda step: {"multipleOf": step}),
    st.sampled_from([{}, True, False, {"type": "integer"}, {"enum": ["a", 0.3, None]}]),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda fields, named, rest: {
                "properties": fields,
                "patternProperties": named,
                "additionalProperties": rest,
            },
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            st.dictionaries(st.sampled_from(["^a", r"\d", r"\S", r"^\w$"]), inner, max_size=2),
            inner,
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda key, one, two: {key: [one, two]},
            st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"]),
            inner,
            inner,
        ),
        st.builds(
            lambda key, one, two: {key: one, "then": two},
            st.sampled_from(["not", "if", "contains", "propertyNames"]),
            inner,
            inner,
        ),
        st.builds(lambda one: {"allOf": [one], "unevaluatedProperties": False}, inner),
    ),
    max_leaves=8,
)
TEXTS = st.sampled_from(
    ["", "a", "b", "1", "é", "\u0663", "\x1c", "\ufeff", "a\n", "2026-01", "x.c", "/", "A1"]
)
VALUES = st.recursive(
    TEXTS
    | st.sampled_from([0.01, 0.3, 19.99, 1.1, 4.35, 5, 0, -0.3, 1e21, 10**30, None, True])
    | st.decimals(0, 100, places=2).map(float),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), VALUES)
def test_what_we_let_out_is_taken_by_the_validator_of_the_sdk(schema, value):
    published = explicit(agreed(schema))
    assert lint(published) == []
    if is_valid(schema, value):
        assert is_valid(published, value)
        assert is_taken(published, value)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), VALUES)
def test_what_is_said_in_words_judges_as_what_was_declared(schema, value):
    assert is_valid(explicit(schema), value) == is_valid(schema, value)


@given(st.sampled_from(PLAIN), st.text(st.characters(codec="utf-8"), max_size=6) | TEXTS)
def test_a_plain_pattern_takes_elsewhere_at_least_what_it_takes_here(pattern, text):
    if is_valid({"pattern": pattern}, text):
        assert re.search(pattern, text)


def test_every_list_has_a_schema_of_its_items():
    # Strict model providers refuse a tool with a list that has none.
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array"},
            "maybe": {"type": ["array", "null"], "maxItems": 2},
            "any": {},
            "pair": {"type": "array", "prefixItems": [{"type": "array"}]},
        },
    }
    said = explicit(schema)
    assert is_valid(said, {"list": [1, [{}], None], "maybe": None, "any": [[]], "pair": [[0], 1]})
    pending, lists = [said], 0
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if "array" in (part.get("type") or ()):
                lists += 1
                assert part.keys() & {"items", "prefixItems"}
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    assert lists == 5
