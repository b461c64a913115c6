"""Widening: unions are widened where a value fits best, and names are found as they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from callpact.audit.patching import Operation, apply, same
from callpact.audit.places import Places, place_in
from callpact.audit.widening import widen
from callpact.audit.widening_rules import MAX_NEW_CHOICES, MAX_NEW_KEYS
from callpact.schema import compile_schema

TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def _form(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


def _steps(schema, *values, **options):
    """The steps of the patch, with which all values pass."""
    patch = widen(schema, values, **options)
    assert patch.unsolved == ()
    compiled = compile_schema(patch.after)
    assert all(compiled.accepts(value) for value in values)
    assert same(apply(schema, patch.operations), patch.after)
    return [(step.path, step.value if step.op != "remove" else "removed") for step in patch.operations]  # fmt: skip


DOG = _form(kind={"const": "dog"}, age=WHOLE)
CAT = _form(kind={"const": "cat"}, lives=WHOLE)


@pytest.mark.parametrize(
    ("schema", "values", "steps"),
    [
        (
            {"anyOf": [{"type": "string", "enum": ["A"]}, NULL]},
            ["B"],
            [("/anyOf/0/enum", ["A", "B"])],
        ),
        ({"anyOf": [WHOLE, NULL]}, [1.5], [("/anyOf/0/type", "number")]),
        ({"anyOf": [WHOLE, NULL]}, ["12"], [("/anyOf/-", TEXT)]),
        ({"anyOf": [{"maximum": 5, "type": "number"}, NULL]}, [7], [("/anyOf/0/maximum", 7)]),
        (
            {"anyOf": [_form(a=TEXT), NULL]},
            [{"a": 1}],
            [("/anyOf/0/properties/a/type", ["string", "integer"])],
        ),
        (
            {"anyOf": [_form(a=TEXT), _form(b=WHOLE)]},
            [{"b": "q"}],
            [("/anyOf/1/properties/b/type", ["integer", "string"])],
        ),
        (
            {"anyOf": [{"type": "array", "items": TEXT}, {"type": "array", "items": WHOLE}]},
            [[1, 1.5]],
            [("/anyOf/1/items/type", "number")],
        ),
        (
            {"anyOf": [{"anyOf": [{"enum": ["A"]}, NULL]}, _form(a=TEXT)]},
            ["B"],
            [("/anyOf/0/anyOf/0/enum", ["A", "B"])],
        ),
        (
            {"items": {"anyOf": [{"enum": ["A"]}, _form(a=TEXT)]}},
            [["B", {"a": 1}]],
            [
                ("/items/anyOf/0/enum", ["A", "B"]),
                ("/items/anyOf/1/properties/a/type", ["string", "integer"]),
            ],
        ),
        (
            {"$defs": {"E": {"enum": ["A"]}}, "items": {"anyOf": [{"$ref": "#/$defs/E"}, NULL]}},
            [["B"]],
            [("/$defs/E/enum", ["A", "B"])],
        ),
        (
            {"oneOf": [{"type": "string", "enum": ["A"]}, NULL]},
            ["B"],
            [("/oneOf/0/enum", ["A", "B"])],
        ),
    ],
    ids=lambda part: json.dumps(part)[:60],
)
def test_the_branch_that_is_like_a_value_is_widened_inside(schema, values, steps):
    assert _steps(schema, *values) == steps


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_new_tag_gets_a_branch_that_says_what_is_known_of_it(keyword):
    values = [{"kind": "cow", "milk": 1}, {"kind": "cow", "milk": "much"}]
    cow = {
        "type": "object",
        "properties": {"kind": {"const": "cow"}, "milk": {"type": ["integer", "string"]}},
        "required": ["kind"],
    }
    assert _steps({keyword: [DOG, CAT]}, *values) == [(f"/{keyword}/-", cow)]


def test_a_new_tag_beside_closed_forms_gets_a_closed_form():
    forms = [{**form, "additionalProperties": False} for form in (DOG, CAT)]
    [(_, branch)] = _steps({"anyOf": forms}, {"kind": "cow"}, {"kind": "cow", "milk": 1})
    assert branch["properties"] == {"kind": {"const": "cow"}, "milk": WHOLE}
    assert branch["additionalProperties"] is False


def test_very_many_tags_are_no_forms_of_their_own():
    values = [{"kind": f"k{i}"} for i in range(MAX_NEW_CHOICES + 5)]
    paths = [path for path, _ in _steps({"anyOf": [DOG, CAT]}, *values)]
    assert "/anyOf/-" not in paths
    assert "/anyOf/0/properties/kind/type" in paths


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_the_form_that_a_tag_tells_is_widened_where_it_is_defined(keyword):
    forms = [{"$ref": "#/$defs/Dog"}, {"$ref": "#/$defs/Cat"}]
    schema = {"$defs": {"Dog": DOG, "Cat": CAT}, "items": {keyword: forms}}
    assert _steps(schema, [{"kind": "cat", "lives": "9"}]) == [
        ("/$defs/Cat/properties/lives/type", ["integer", "string"])
    ]


def test_an_object_that_is_like_no_form_gets_one_that_asks_for_what_it_has():
    schema = {"anyOf": [_form(a=TEXT), _form(b=WHOLE)]}
    assert _steps(schema, {"c": 1}) == [("/anyOf/-", _form(c=WHOLE))]
    assert _steps(schema, {}) == [("/anyOf/-", {"type": "object", "maxProperties": 0})]


def test_a_new_constant_stands_beside_the_others():
    schema = {"oneOf": [{"const": "A", "title": "a"}, {"const": "B", "title": "b"}]}
    assert _steps(schema, "C") == [("/oneOf/-", {"const": "C"})]


def test_too_many_constants_let_go_of_those_that_were_added():
    values = [f"v{i}" for i in range(MAX_NEW_CHOICES + 1)]
    assert _steps({"anyOf": [{"const": "A"}, {"const": "B"}]}, *values) == [("/anyOf/-", TEXT)]


def test_a_hidden_tag_asks_for_nothing():
    def is_hidden(value):
        return value == "***"

    patch = widen({"anyOf": [DOG, CAT]}, [{"kind": "***"}], is_hidden=is_hidden)
    assert (patch.operations, patch.unsolved) == ((), ())


@pytest.mark.parametrize(
    ("schema", "value", "step"),
    [
        ({"oneOf": [TEXT, WHOLE]}, None, ("/oneOf/-", NULL)),
        ({"oneOf": [TEXT, WHOLE]}, 1.5, ("/oneOf/1/type", "number")),
        ({"oneOf": [{"type": "number"}, WHOLE]}, "x", ("/oneOf/-", TEXT)),
    ],
    ids=json.dumps,
)
def test_forms_that_exclude_each_other_still_do(schema, value, step):
    assert _steps(schema, value) == [step]


def test_forms_that_would_overlap_may_match_together():
    forms = [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 3}]
    patch = widen({"oneOf": forms}, ["xx"])
    assert "oneOf" not in patch.after
    accepts = compile_schema(patch.after).accepts
    assert all(map(accepts, ["x", "xx", "xxx"]))


def test_what_another_value_makes_needless_is_not_in_the_patch():
    schema = {"anyOf": [_form(a=TEXT), _form(b=WHOLE)]}
    assert _steps(schema, {"a": 5, "b": "q"}, {"b": "q"}) == [
        ("/anyOf/1/properties/b/type", ["integer", "string"])
    ]


def test_what_a_widened_form_speaks_of_is_not_declared_as_well():
    schema = {"anyOf": [_form(b=TEXT), _form(c=TEXT)], "unevaluatedProperties": False}
    assert _steps(schema, {"b": 1}) == [("/anyOf/0/properties/b/type", ["string", "integer"])]


def test_what_a_form_declares_for_other_values_stays_accepted():
    schema = {"anyOf": [_form(b=TEXT), _form(c=TEXT)], "unevaluatedProperties": False}
    accepts = compile_schema(widen(schema, [{"c": "x", "b": 1}]).after).accepts
    assert accepts({"b": "x"})
    assert accepts({"c": "x", "b": 1})


@pytest.mark.parametrize(
    ("schema", "value", "step"),
    [
        ({"contains": WHOLE, "maxContains": 2}, [1, 2, 3], ("/maxContains", 3)),
        ({"contains": WHOLE, "minContains": 2}, [1], ("/minContains", 1)),
        ({"contains": WHOLE, "minContains": 2}, ["x"], ("/minContains", 0)),
        ({"contains": WHOLE, "maxContains": 2}, ["x"], ("/minContains", 0)),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, ("/propertyNames/maxLength", 2)),
        ({"propertyNames": {"enum": ["a"]}}, {"b": 1}, ("/propertyNames/enum", ["a", "b"])),
        ({"propertyNames": False}, {"b": 1}, ("/propertyNames", {"enum": ["b"]})),
        ({"unevaluatedItems": False}, [1, "x"], ("/unevaluatedItems", {"type": ["integer", "string"]})),
        ({"enum": []}, "x", ("/enum/-", "x")),
        (False, 1, ("", WHOLE)),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_rule_moves_as_far_as_needed_and_is_not_removed(schema, value, step):
    assert _steps(schema, value) == [step]


def test_items_beyond_a_tuple_of_an_old_draft_get_their_types():
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    schema = {**draft, "items": [TEXT], "additionalItems": False}
    assert _steps(schema, ["a", 1]) == [("/additionalItems", WHOLE)]


@pytest.mark.parametrize("declared", [{}, {"properties": {}}])
def test_where_all_keys_are_allowed_none_is_declared_anew(declared):
    schema = {**declared, "additionalProperties": False}
    value = {f"k{i}": 1 for i in range(MAX_NEW_KEYS + 10)}
    assert _steps(schema, value) == [("/additionalProperties", True)]


def test_what_a_cast_would_strip_of_an_optional_object_is_declared_in_it():
    schema = {"properties": {"u": {"anyOf": [{**_form(a=TEXT)}, NULL]}}}
    patch = widen(schema, [{"u": {"a": "x", "7": 1}}], declare=True)
    assert patch.operations == (Operation("add", "/properties/u/anyOf/0/properties/7", {}),)


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["2024", "007", "+5", "", "type", "not", "properties"])
def test_a_property_is_patched_whatever_its_name(name):
    schema = {"properties": {name: WHOLE, "other": WHOLE}}
    assert _steps(schema, {name: "x"}) == [(f"/properties/{name}/type", ["integer", "string"])]


def test_properties_of_digits_are_met_one_by_one():
    schema = {"properties": {"2024": WHOLE, "2025": WHOLE}}
    value = {"2024": "x", "2025": "x"}
    [step] = widen(schema, [value], meant=frozenset({("/2025", "type")})).operations
    assert step.path == "/properties/2025/type"


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"1": WHOLE}, "items": {"$ref": "#/$defs/1"}},
        {"$defs": {"1": {"$anchor": "one", **WHOLE}}, "items": {"$ref": "#one"}},
        {"$id": "http://a/b", "$defs": {"1": {"$id": "c", **WHOLE}}, "items": {"$ref": "c"}},
        {"$defs": {"1": {"$id": "c", **WHOLE}}, "items": {"$ref": "c"}},
    ],
    ids=json.dumps,
)
def test_a_definition_is_patched_however_it_is_named(schema):
    assert _steps(schema, ["x"]) == [("/$defs/1/type", ["integer", "string"])]


def test_a_rule_that_could_be_one_of_two_is_told_as_unsolved():
    schema = {"type": "array", "$defs": {"C": {"$id": "c", **WHOLE}}, "items": {"$ref": "c"}}
    patch = widen(schema, [["x"]])
    assert patch.operations == ()
    assert [(one.path, one.rule) for one in patch.unsolved] == [("/*", "type")]


def test_an_anchor_is_kept_only_where_it_excludes():
    schema = {
        "$defs": {"N": {"$anchor": "n", **WHOLE}},
        "properties": {"a": TEXT, "b": {"not": {"$ref": "#n"}}, "c": {"$ref": "#n"}},
    }
    patch = widen(schema, [{"a": 1, "c": "x"}])
    assert [step.path for step in patch.operations] == ["/properties/a/type"]
    assert [one.path for one in patch.unsolved] == ["/c"]


def test_a_place_in_a_value_has_stars_for_indexes_alone():
    value = {"2024": [{"7": 1}], "007": 1}
    assert place_in(value, "/2024/0/7") == "/2024/*/7"
    assert place_in(value, "/7") == "/007"
    assert place_in([1], "/0") == "/*"


def test_a_place_by_a_schema_has_names_where_objects_are_declared():
    schema = {
        "properties": {
            "years": {"anyOf": [{"$ref": "#/$defs/Y"}, NULL]},
            "rows": {"type": "array"},
            "any": {},
        },
        "$defs": {"Y": {"type": "object", "additionalProperties": {"type": "array"}}},
    }
    places = Places(schema)
    assert places.place("/years/2024/3") == "/years/2024/*"
    assert places.place("/rows/3") == "/rows/*"
    assert places.place("/any/3") == "/any/*"


# --- laws -----------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "k", "7", "07", "", "type", "not"])
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, "", "x", "xyz", "a", "b"])
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])
_TYPED = st.builds(lambda kind: {"type": kind}, _TYPES)
_LISTED = st.builds(lambda options: {"type": "string", "enum": options}, st.lists(_SCALARS))
_TAGGED = st.builds(
    lambda tag, more, needed, closed: {
        "type": "object",
        "properties": {"k": {"const": tag}, **more},
        "required": needed,
        **({"additionalProperties": False} if closed else {}),
    },
    st.sampled_from(["a", "b", 1]),
    st.dictionaries(_NAMES, _TYPED, max_size=2),
    st.lists(_NAMES, unique=True, max_size=2),
    st.booleans(),
)
_BRANCHES = st.lists(_TYPED | _LISTED | _TAGGED, min_size=1, max_size=3)
_UNION = st.builds(
    lambda word, parts: {word: parts}, st.sampled_from(["anyOf", "oneOf"]), _BRANCHES
)


def _keywords(inner):
    forms = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": _TYPES | st.lists(_TYPES, min_size=1, unique=True),
            "enum": st.lists(_SCALARS, max_size=3),
            "const": _SCALARS,
            "minimum": st.integers(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "maxProperties": st.integers(0, 2),
            "required": st.lists(_NAMES, unique=True, max_size=2),
            "dependentRequired": st.dictionaries(_NAMES, st.lists(_NAMES, unique=True), max_size=1),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "^[0-9]+$"]), inner),
            "additionalProperties": st.booleans() | inner,
            "unevaluatedProperties": st.booleans() | inner,
            "propertyNames": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "unevaluatedItems": st.booleans() | inner,
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "anyOf": forms,
            "oneOf": forms,
            "allOf": forms,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/D", "#/$defs/7", "#here"]),
        },
    )


_SCHEMAS = st.builds(
    lambda root, *definitions: {
        **root,
        "$defs": {
            "D": definitions[0],
            "7": definitions[1],
            "H": {"$anchor": "here", **definitions[2]},
        },
    },
    st.recursive(st.builds(dict) | st.booleans() | _UNION, _keywords, max_leaves=6).filter(
        lambda schema: isinstance(schema, dict)
    ),
    _keywords(_UNION),
    _TYPED,
    _TYPED,
).filter(lambda schema: "$ref" not in schema["$defs"]["D"])

# What takes the place of another rule: without it, more would pass, not less.
_SWAPPED = ("enum", "type", "minimum", "maximum", "anyOf", "allOf", "const", "oneOf")


def _is_needed(step, schema, operations, values):
    rest = [one for one in operations if one is not step]
    accepts = compile_schema(apply(schema, rest)).accepts
    return not all(map(accepts, values))


@given(_SCHEMAS, st.lists(_JSON, max_size=4), st.lists(_JSON, max_size=8))
@example({"oneOf": [DOG, CAT]}, [{"kind": "cow"}, {}], [{"kind": "dog", "age": 1}])
@example({"oneOf": [{"type": "string", "enum": ["A"]}, NULL]}, ["B", 1], ["A", None])
def test_a_patch_accepts_the_values_loses_nothing_and_has_no_needless_step(schema, values, others):
    old = compile_schema(schema)
    patch = widen(schema, values)
    new = compile_schema(patch.after)
    assert all(new.accepts(value) for value in (*values, *others) if old.accepts(value))
    assert same(apply(schema, patch.operations), patch.after)
    is_solved = all(map(new.accepts, values))
    assert is_solved or patch.unsolved
    assume(is_solved)
    operations = patch.operations
    rules = [step for step in operations if step.path.rpartition("/")[2] not in _SWAPPED]
    assert all(_is_needed(step, schema, operations, values) for step in rules)


@given(_BRANCHES, st.lists(_JSON, min_size=1, max_size=4), st.sampled_from(["anyOf", "oneOf"]))
def test_no_branch_takes_all_objects_where_others_are_objects(branches, values, keyword):
    schema = {keyword: branches}
    patch = widen(schema, values)
    assert patch.unsolved == ()
    after = patch.after.get(keyword) or patch.after["anyOf"]
    added = after[len(branches) :]
    assert not any(branch in ({}, True) for branch in added)
    if any(branch["type"] == "object" for branch in branches):
        assert {"type": "object"} not in added
