"""A schema in a box means what it meant outside, in every draft."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from callpact.tool import Contract, Tool
from callpact.wire.mcp.published import boxed, output_schema

D4, D6, D7 = (f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 6, 7))
D19, D20 = (f"https://json-schema.org/draft/{n}/schema" for n in ("2019-09", "2020-12"))
LEAF = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LIST = {"type": "array", "items": {"$ref": "#/definitions/A"}, "definitions": {"A": LEAF}}
GOOD, BAD = [{"n": 1}], [{"n": "x"}]
NODE = {"type": ["array", "integer"], "items": {"$ref": "#"}}
DEEP, FLAT = [[1, [2]]], [["x"]]

CASES = {
    **{f"definitions {d}": ({"$schema": d, **LIST}, GOOD, BAD) for d in (D4, D6, D7, D19, D20)},
    "draft 4 id": ({"$schema": D4, "id": "http://x.example/a", **LIST}, GOOD, BAD),
    "draft 4 relative id": ({"$schema": D4, "id": "a.json", **LIST}, GOOD, BAD),
    "draft 4 id named": (
        {"$schema": D4, "id": "http://x.example/a", **LIST,
         "items": {"$ref": "http://x.example/a#/definitions/A"}}, GOOD, BAD),
    "draft 4 id and ref at the root": (
        {"$schema": D4, "id": "http://x.example/a", "$ref": "#/definitions/L",
         "definitions": {"L": LIST, "A": LEAF}}, GOOD, BAD),
    "draft 4 recursive": ({"$schema": D4, "id": "http://x.example/a", **NODE}, DEEP, FLAT),
    "draft 4 recursive without id": ({"$schema": D4, **NODE}, DEEP, FLAT),
    "draft 4 document inside": (
        {"$schema": D4, "type": "array", "items": {"id": "http://x.example/i", "type": "object",
         "properties": {"n": {"type": "integer"}, "m": {"$ref": "#/properties/n"}}}},
        [{"m": 1}], [{"m": "x"}]),
    "draft 4 anchor": (
        {"$schema": D4, "type": "array", "items": {"$ref": "#leaf"},
         "definitions": {"A": {"id": "#leaf", **LEAF}}}, GOOD, BAD),
    "draft 7 id": ({"$schema": D7, "$id": "http://x.example/b", **LIST}, GOOD, BAD),
    "draft 7 id and ref at the root": (
        {"$schema": D7, "$id": "http://x.example/b", "$ref": "#/definitions/L",
         "definitions": {"L": LIST, "A": LEAF}}, GOOD, BAD),
    "a property named id": (
        {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"type": "object",
         "properties": {"id": {"$ref": "#/$defs/N"}, "$id": {"$ref": "#/$defs/N"}}}, "N": {"type": "integer"}}},
        [{"id": 1, "$id": 2}], [{"id": "x"}]),
    "2019-09 recursiveRef": (
        {"$schema": D19, "$recursiveAnchor": True, "type": ["array", "integer"],
         "items": {"$recursiveRef": "#"}}, DEEP, FLAT),
    "2019-09 recursiveRef without an anchor": (
        {"$schema": D19, "type": ["array", "integer"], "items": {"$recursiveRef": "#"}}, DEEP, FLAT),
    "2019-09 recursiveRef with id": (
        {"$schema": D19, "$id": "http://x.example/c", "$recursiveAnchor": True,
         "type": ["array", "integer"], "items": {"$recursiveRef": "#"}}, DEEP, FLAT),
    "2019-09 recursiveRef in definitions": (
        {"$schema": D19, "type": ["array", "integer"], "items": {"$ref": "#/$defs/I"},
         "$defs": {"I": {"anyOf": [{"type": "boolean"}, {"$recursiveRef": "#"}]}}}, [[True, 1]], FLAT),
    "2020-12 dynamicRef": (
        {"$dynamicAnchor": "node", "type": ["array", "integer"], "items": {"$dynamicRef": "#node"}},
        DEEP, FLAT),
    "2020-12 dynamicRef with id": (
        {"$schema": D20, "$id": "http://x.example/d", "$dynamicAnchor": "node",
         "type": ["array", "integer"], "items": {"$dynamicRef": "#node"}}, DEEP, FLAT),
    "2020-12 dynamicRef of a pointer": (
        {"type": ["array", "integer"], "items": {"$dynamicRef": "#"}}, DEEP, FLAT),
    "anchor": (
        {"type": "array", "items": {"$ref": "#leaf"}, "$defs": {"A": {"$anchor": "leaf", **LEAF}}},
        GOOD, BAD),
    "anchor at the root": ({"$anchor": "top", **NODE, "items": {"$ref": "#top"}}, DEEP, FLAT),
    "relative id inside": (
        {"$id": "http://x.example/e", "type": "array", "items": {"$ref": "leaf"},
         "$defs": {"A": {"$id": "leaf", **LEAF}}}, GOOD, BAD),
    "document inside": (
        {"type": "array", "items": {"$id": "http://x.example/f", "type": "object",
         "properties": {"n": {"type": "integer"}, "m": {"$ref": "#/properties/n"}}}},
        [{"m": 1}], [{"m": "x"}]),
    "escaped pointer": (
        {"type": "array", "items": {"$ref": "#/%24defs/A"}, "$defs": {"A": LEAF}}, GOOD, BAD),
    "pointer to a property": (
        {"type": "array", "items": {"properties": {"n": {"type": "integer"}, "m": {"$ref": "#/items/properties/n"}}}},
        [{"m": 1}], [{"m": "x"}]),
}  # fmt: skip


def is_valid(schema, value):
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


@pytest.mark.parametrize(("schema", "good", "bad"), CASES.values(), ids=CASES)
def test_a_boxed_schema_judges_as_the_schema_does(schema, good, bad):
    before = json.dumps(schema)
    box = boxed(schema)
    assert is_valid(schema, good)
    assert not is_valid(schema, bad)
    assert is_valid(box, {"result": good})
    assert not is_valid(box, {"result": bad})
    assert not is_valid(box, {})
    assert box.get("$schema") == schema.get("$schema")
    assert json.dumps(schema) == before


@pytest.mark.parametrize(("schema", "good", "bad"), CASES.values(), ids=CASES)
def test_what_a_tool_publishes_for_older_peers_judges_so_too(schema, good, bad):
    contract = Contract(output=schema, policy="reject")
    tool = Tool(id="a.b", description="d", contract=contract, handler=print)
    box = output_schema(tool, modern=False)
    assert is_valid(box, {"result": good})
    assert not is_valid(box, {"result": bad})


def test_two_tools_with_the_same_recursive_schema_share_an_id_and_others_do_not():
    schema = {"$schema": D19, "type": "array", "items": {"$recursiveRef": "#"}}
    first, again = boxed(schema), boxed(schema)
    other = boxed({**schema, "minItems": 1})
    ids = [box["properties"]["result"]["$id"] for box in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
