"""A schema is copied within limits, and its references are measured before they cost."""

from __future__ import annotations

import pytest

from callpact.errors import InvalidSchema
from callpact.schema.bounds import MAX_SCHEMA_VALUES
from callpact.schema.document import (
    MAX_SCHEMA_DEPTH,
    freeze,
    pointer,
    references,
)
from callpact.schema.targets import resolve


def test_a_frozen_schema_does_not_follow_its_original():
    original = {"properties": {"a": {"enum": [1]}}}
    frozen = freeze(original).document
    original["properties"]["a"]["enum"].append(2)
    assert frozen == {"properties": {"a": {"enum": [1]}}}


def test_tuples_become_lists_and_subclasses_what_they_stand_for():
    class Word(str):
        __slots__ = ()

    frozen = freeze({"enum": (Word("a"), 1)}).document
    assert frozen == {"enum": ["a", 1]}
    assert type(frozen["enum"][0]) is str


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"a": {1: 2}}, "/a"),
        ({"a": [object()]}, "/a/0"),
        ({"a": float("nan")}, "/a"),
        ({"maximum": 10**5000}, "/maximum"),
        ([], ""),
        ("x", ""),
        (None, ""),
    ],
)
def test_what_is_no_json_schema_is_refused_where_it_is_wrong(schema, path):
    with pytest.raises(InvalidSchema) as caught:
        freeze(schema)
    assert caught.value.path == path


def test_a_schema_nested_too_deeply_is_refused():
    schema = {}
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        schema = {"not": schema}
    with pytest.raises(InvalidSchema):
        freeze(schema)


@pytest.mark.parametrize("depth", [MAX_SCHEMA_DEPTH + 2, 253, 300, 50_000])
def test_depth_is_refused_whatever_the_keyword(depth):
    schema = {}
    for _ in range(depth):
        schema = {"items": schema}
    with pytest.raises(InvalidSchema):
        freeze(schema)


def test_a_schema_that_holds_itself_is_refused():
    schema = {}
    schema["not"] = schema
    with pytest.raises(InvalidSchema):
        freeze(schema)


def test_a_schema_that_is_too_large_is_refused():
    with pytest.raises(InvalidSchema):
        freeze({"enum": [1] * (MAX_SCHEMA_VALUES + 1)})


def test_a_schema_that_doubles_by_sharing_is_refused():
    schema = {"type": "integer"}
    for _ in range(60):
        schema = {"allOf": [schema, schema]}
    with pytest.raises(InvalidSchema):
        freeze(schema)


@pytest.mark.parametrize(
    ("path", "text"),
    [([], ""), (["a", 0], "/a/0"), (["a/b", "c~d"], "/a~1b/c~0d"), ([""], "/")],
)
def test_a_pointer_escapes_its_parts(path, text):
    assert pointer(path) == text


def test_a_local_reference_is_resolved():
    root = {"$defs": {"a/b": {"prefixItems": [{"type": "null"}]}}}
    assert resolve(root, "#") is root
    assert resolve(root, "#/$defs/a~1b/prefixItems/0") == {"type": "null"}
    assert resolve(root, "#/$defs/none") is None
    assert resolve(root, "other.json") is None


def chain(count, link):
    defs = {"T0": {"type": "integer"}}
    for i in range(1, count + 1):
        defs[f"T{i}"] = link({"$ref": f"#/$defs/T{i - 1}"})
    return {"$defs": defs, "$ref": f"#/$defs/T{count}"}


def test_references_that_double_in_place_are_refused():
    with pytest.raises(InvalidSchema):
        references(chain(40, lambda ref: {"allOf": [ref, ref]}))


def test_references_that_double_in_place_behind_properties_are_refused():
    with pytest.raises(InvalidSchema):
        references(chain(40, lambda ref: {"properties": {"a": {"anyOf": [ref, ref]}}}))


def test_references_that_fan_out_to_other_places_are_harmless():
    links = references(chain(40, lambda ref: {"properties": {"a": ref, "b": ref}}))
    assert not links.has_cycle
    assert links.is_formable


def test_a_cycle_is_seen():
    links = references({"properties": {"a": {"$ref": "#"}}})
    assert links.has_cycle
    assert not links.is_formable
