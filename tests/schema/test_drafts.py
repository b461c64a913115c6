"""Each schema is judged and fitted by the rules of its own draft, within the same limits."""

from __future__ import annotations

import pytest

from callpact.errors import InvalidSchema
from callpact.schema import cast, check, compile_schema, convert, fit, repair, strip
from callpact.schema.drafts import Draft, draft_of, named_draft, upgraded
from callpact.schema.targets import Targets

D4, D6, D7, D19, D20 = (draft.uri for draft in Draft)
OLD = (D4, D6, D7)
INT = {"type": "integer"}
NAN = float("nan")


def judged(schema, value):
    return check(schema, value) == []


# --- which draft ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", Draft.DRAFT_4),
        ("http://json-schema.org/draft-06/schema", Draft.DRAFT_6),
        ("https://json-schema.org/draft-07/schema#", Draft.DRAFT_7),
        ("https://json-schema.org/draft/2019-09/schema", Draft.DRAFT_2019_09),
        ("https://json-schema.org/draft/2020-12/schema#", Draft.DRAFT_2020_12),
        ("http://json-schema.org/draft-03/schema#", None),
        ("https://example.com/draft-07/schema#", None),
        ("", None),
        (5, None),
    ],
)
def test_the_draft_is_the_one_that_the_schema_names(uri, draft):
    assert named_draft({"$schema": uri}) is draft
    assert draft_of({"$schema": uri}) is (draft or Draft.DRAFT_2020_12)


def test_without_a_name_it_is_the_newest():
    assert draft_of({}) is draft_of(True) is Draft.DRAFT_2020_12
    assert judged({"prefixItems": [INT]}, ["x"]) is False
    with pytest.raises(InvalidSchema):
        compile_schema({"items": [INT]})


@pytest.mark.parametrize("uri", ["https://example.com/meta", "JSON Schema", "", "x:y"])
def test_a_draft_that_nobody_knows_is_judged_as_the_newest(uri):
    schema = {"$schema": uri, "type": "array", "prefixItems": [INT]}
    assert not judged(schema, ["x"])
    assert judged(schema, [1, "x"])
    assert convert(schema, ["1"]) == [1]
    assert compile_schema(schema) == compile_schema({"type": "array", "prefixItems": [INT]})


# --- what a keyword means -------------------------------------------------------------------

PAIR = {"type": "array", "items": [INT, {"type": "string"}]}
MEANT = [
    # schema, values that keep it, values that break it
    ({**PAIR, "additionalItems": False}, (*OLD, D19), [[1, "x"], [1]], [["x"], [1, "x", 2]]),
    ({**PAIR, "additionalItems": INT}, (*OLD, D19), [[1, "x", 2]], [[1, "x", "y"]]),
    ({"items": INT, "additionalItems": False}, (*OLD, D19), [[1, 2]], [["x"]]),
    ({"dependencies": {"a": ["b"]}}, (*OLD, D19), [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    (
        {"dependencies": {"a": {"properties": {"b": INT}}}},
        (*OLD, D19),
        [{"b": "x"}, {"a": 1, "b": 1}],
        [{"a": 1, "b": "x"}],
    ),
    ({"$ref": "#/definitions/A", "minimum": 5, "definitions": {"A": INT}}, OLD, [1], ["x"]),
    ({"$ref": "#/definitions/A", "minimum": 5, "definitions": {"A": INT}}, (D19,), [5], [1]),
    ({"minimum": 5, "exclusiveMinimum": True}, (D4,), [6], [5]),
    ({"minimum": 5, "exclusiveMinimum": False}, (D4,), [5], [4]),
    ({"exclusiveMinimum": 5}, (D6, D7, D19, D20), [6], [5]),
    ({"type": "integer"}, (D4,), [7], [7.0]),
    ({"type": "integer"}, (D6, D7, D19, D20), [7.0], [7.5]),
    ({"const": 1, "contains": INT, "propertyNames": {"maxLength": 1}}, (D4,), [2, {"xx": 1}], []),
    ({"const": 1}, (D6, D7, D19, D20), [1], [2]),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}}, (D4, D6), [1], []),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}}, (D7, D19, D20), [5], [1]),
    ({"prefixItems": [INT], "$dynamicRef": "#x"}, (*OLD, D19), [["x"]], []),
    ({"dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False}, OLD, [{"a": 1}], []),
    ({"contains": INT, "minContains": 0}, (D6, D7), [[1]], [["x"]]),
    ({"contains": INT, "minContains": 0}, (D19, D20), [["x"]], []),
    (
        {"properties": {"n": INT, "sub": {"$recursiveRef": "#"}}},
        (D19,),
        [{"sub": {"n": 1}}],
        [{"sub": {"sub": {"n": "x"}}}],
    ),
    (
        {"id": "http://a.b/c", "items": {"$ref": "d"}, "definitions": {"D": {"id": "d", **INT}}},
        (D4,),
        [[1]],
        [["x"]],
    ),
    (
        {"items": {"$ref": "#d"}, "definitions": {"D": {"$id": "#d", **INT}}},
        (D6, D7),
        [[1]],
        [["x"]],
    ),
    (
        {"items": {"$ref": "#d"}, "$defs": {"D": {"$anchor": "d", **INT}}},
        (D19, D20),
        [[1]],
        [["x"]],
    ),
]


@pytest.mark.parametrize(
    ("schema", "uri", "good", "bad"),
    [(schema, uri, good, bad) for schema, uris, good, bad in MEANT for uri in uris],
)
def test_a_keyword_means_what_its_draft_says(schema, uri, good, bad):
    named = {"$schema": uri, **schema}
    assert [judged(named, value) for value in good] == [True] * len(good)
    assert [judged(named, value) for value in bad] == [False] * len(bad)
    for value in good:
        assert fit(named, value).problem is None
        assert judged(named, fit(named, value).value)


# --- fitting --------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", [*OLD, D19])
def test_a_tuple_of_an_old_draft_is_fitted_place_by_place(uri):
    schema = {"$schema": uri, **PAIR, "minItems": 2, "additionalItems": False}
    assert convert(schema, ["1", "2"]) == [1, "2"]
    assert cast(schema, [1]) == [1, ""]
    assert fit(schema, ["1", "x", True]).value == [1, "x"]
    assert repair(compile_schema(schema), '["1", "x"]').value == [1, "x"]
    rest = {"$schema": uri, **PAIR, "additionalItems": {"properties": {"a": INT}}}
    assert strip(rest, [1, "x", {"a": 1, "b": 2}]) == [1, "x", {"a": 1}]


@pytest.mark.parametrize("uri", OLD)
def test_nothing_beside_a_reference_is_fitted_in_an_old_draft(uri):
    schema = {
        "$schema": uri,
        "properties": {"a": {"$ref": "#/definitions/A", "type": "integer", "default": 7}},
        "definitions": {"A": {"type": "string"}},
        "required": ["a"],
    }
    assert convert(schema, {"a": "1"}) == {"a": "1"}
    assert fit(schema, {}).value == {"a": ""}


def test_bounds_of_draft_4_are_fitted():
    schema = {"$schema": D4, "type": "number", "minimum": 5, "exclusiveMinimum": True, "default": 6}
    assert fit(schema, "5.5").value == 5.5
    assert fit(schema, 5).value == 6


def test_what_depends_in_an_old_draft_is_declared():
    rules = {"a": {"properties": {"b": INT}}, "c": ["d"]}
    schema = {"$schema": D7, "type": "object", "properties": {"a": INT}, "dependencies": rules}
    assert strip(schema, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}) == {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": 4,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": D19, "properties": {"n": INT, "sub": {"$recursiveRef": "#"}}},
        {
            "$schema": D20,
            "$dynamicAnchor": "node",
            "properties": {"n": INT, "sub": {"$dynamicRef": "#node"}},
        },
        {"$schema": D7, "$id": "#node", "properties": {"n": INT, "sub": {"$ref": "#node"}}},
        {"$schema": D4, "id": "http://a.b/c", "properties": {"n": INT, "sub": {"$ref": "c"}}},
    ],
)
def test_what_refers_to_itself_is_fitted_at_every_level(schema):
    given = {"sub": {"sub": {"n": "1", "x": 1}}}
    assert fit(schema, given).value == {"sub": {"sub": {"n": 1}}}


def test_which_of_several_dynamic_targets_is_meant_is_left_to_the_validator():
    schema = {
        "$id": "http://a.b/root",
        "$ref": "list",
        "$defs": {
            "item": {"$dynamicAnchor": "item", **INT},
            "list": {
                "$id": "list",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"any": {"$dynamicAnchor": "item", "type": "string"}},
            },
        },
    }
    assert judged(schema, [1])
    assert not judged(schema, ["1"])
    assert fit(schema, [1]).changes == ()


def test_an_upgraded_schema_holds_the_same_parts():
    schema = {"items": [INT], "additionalItems": INT, "dependencies": {"a": ["b"], "b": INT}}
    new = upgraded(schema, Draft.DRAFT_7)
    assert new == {
        "prefixItems": [INT],
        "items": INT,
        "dependentRequired": {"a": ["b"]},
        "dependentSchemas": {"b": INT},
    }
    assert new["items"] is schema["additionalItems"]
    newest = {"type": "object", "properties": {"a": INT}}
    assert upgraded(newest, Draft.DRAFT_2020_12) is newest


# --- limits and odd documents ---------------------------------------------------------------


@pytest.mark.parametrize("uri", [*OLD, D19, D20])
@pytest.mark.parametrize("schema", [{"const": 5}, {"properties": {"a": {"type": "object"}}}, {}])
def test_what_is_not_json_is_refused_in_every_draft(uri, schema):
    for strange in (NAN, {"a": {"b": NAN}}, {"zz": [NAN]}):
        assert not judged({"$schema": uri, **schema}, strange)


@pytest.mark.parametrize("uri", [*OLD, D19, D20])
def test_a_schema_with_an_id_inside_is_judged(uri):
    key = "id" if uri == D4 else "$id"
    schema = {"$schema": uri, "properties": {"a": {key: "http://a.b/c", "type": "object"}}}
    assert judged(schema, {"a": {"b": 1}})
    assert not judged(schema, {"a": {"b": NAN}})
    assert not judged(schema, {"a": 1})


@pytest.mark.parametrize("uri", [*OLD, D19, D20])
def test_no_draft_fetches_a_reference(uri):
    for reference in ("http://127.0.0.1:9/a.json", "file:///etc/hosts"):
        with pytest.raises(InvalidSchema):
            compile_schema({"$schema": uri, "items": {"$ref": reference}})


def doubling(uri, name, link, combine):
    """Definitions that each refer to the next one twice."""
    steps = 40
    made = {f"x{n}": {**name(n), **combine([link(n + 1), link(n + 1)])} for n in range(steps)}
    made[f"x{steps}"] = {**name(steps), "type": "object"}
    return {"$schema": uri, "definitions": made, "allOf": [link(0)]}


def by_pointer(number):
    return {"$ref": f"#/definitions/x{number}"}


def by_anchor(number):
    return {"$ref": f"#a{number}"}


BOMBS = [
    *((uri, lambda _: {}, by_pointer, lambda two: {"allOf": two}) for uri in (*OLD, D19, D20)),
    (D4, lambda n: {"id": f"#a{n}"}, by_anchor, lambda two: {"allOf": two}),
    (D7, lambda n: {"$id": f"#a{n}"}, by_anchor, lambda two: {"allOf": two}),
    (D20, lambda n: {"$anchor": f"a{n}"}, by_anchor, lambda two: {"allOf": two}),
    (
        D20,
        lambda n: {"$dynamicAnchor": f"a{n}"},
        lambda n: {"$dynamicRef": f"#a{n}"},
        lambda two: {"allOf": two},
    ),
    (D7, lambda _: {}, by_pointer, lambda two: {"dependencies": {"a": {"allOf": two}}}),
]


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_references_that_double_are_refused_however_they_are_written(bomb):
    with pytest.raises(InvalidSchema, match="multiply"):
        compile_schema(doubling(*bomb))


@pytest.mark.parametrize(
    ("root", "reference", "found"),
    [
        ({"$defs": {"a b": INT}}, "#/$defs/a%20b", INT),
        ({"$defs": {"a/b": INT}}, "#/$defs/a~1b", INT),
        ({"$id": "urn:x:y", "$defs": {"a": INT}}, "urn:x:y#/$defs/a", INT),
        ({"$id": "http://a.b/c/", "$defs": {"a": {"$id": "d", **INT}}}, "d", {"$id": "d", **INT}),
        ({"properties": {"$id": INT}}, "#/properties/$id", INT),
        ({"const": {"$anchor": "a"}}, "#a", None),
        ({"$schema": D7, "$defs": {"a": {"$anchor": "a"}}}, "#a", None),
        ({}, "http://[", None),
    ],
)
def test_a_reference_finds_its_target(root, reference, found):
    link = {"$ref": reference}
    document = {**root, "items": link}
    assert Targets(document).of(link) == [[] if found is None else [found]]
