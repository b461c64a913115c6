"""Zod schemas accept what the contract accepts: tried in Node on valid and invalid values."""

from __future__ import annotations

import json
import random

import pytest

import node_packages
from callpact.contracts import NamedSchema, write_zod
from callpact.contracts.counterexample import made_values
from callpact.errors import InvalidSchema, Unexpressible
from callpact.schema import compile_schema

workshop = node_packages.workshop

JUDGE = """
import { readFileSync } from "node:fs";
import * as types from "./types.js";
const cases = JSON.parse(readFileSync(0, "utf-8"));
const found = cases.map(([name, values]) =>
  values.map((text) => types[name].safeParse(JSON.parse(text)).success));
console.log(JSON.stringify(found));
"""
VALUES = [
    *(None, True, False, 0, 1, -1, 1.0, 0.5, 0.3, 19.99, 2**53 + 2, 1e300, 3, 7),
    *(
        "",
        "a",
        "ab",
        "0-c",
        "_,",
        "😀",
        "😀😀",
        "é",
        "a\nb",
        "2024-02-29",
        "2023-02-29",
        "127.0.0.1",
    ),
    *([], [1], [1, 1], [1, True], ["a", 1], ["a", 1, None], [{"a": 1}, {"a": 1.0}], [[], []]),
    *({}, {"a": 1}, {"b": "x"}, {"a": 1, "b": 2}, {"a": None}, {"x-1": 1}, {"x-1": "a", "c": 1}),
    *({"__proto__": 1}, {"__proto__": "a"}, {"constructor": "a"}, {"toString": 1, "a": 2}),
    *({"a": {"__proto__": 1}}, [{"__proto__": 1}, {}], {"k": "a", "v": 1}, {"k": "b", "v": "x"}),
    *({"next": {"next": None}}, {"next": {"next": 1}}, {"next": 3}),
]
NODE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS = [
    True,
    False,
    {},
    {"type": "string", "minLength": 2},
    {"type": "string", "maxLength": 1},
    {"minLength": 2},
    {"type": "string", "pattern": "a.b"},
    {"type": "string", "pattern": "^[\\w\\-é]+$"},
    {"type": "string", "pattern": "^\\S{1,2}$"},
    {"type": "string", "pattern": "^[0-9-_,]+$"},
    {"type": "string", "pattern": "^[0-9-a-c]+$"},
    {"type": "string", "pattern": "(?:a|b)(?!b)"},
    {"type": "integer"},
    {"type": "integer", "minimum": 1, "exclusiveMaximum": 7},
    {"type": "number", "multipleOf": 0.1},
    {"type": "number", "multipleOf": 0.01},
    {"multipleOf": 3},
    {"type": ["integer", "null", "string"]},
    {"enum": [1, "a", None, {"a": 1}, [1, True]]},
    {"type": "string", "enum": ["a", "ab", 1], "minLength": 2},
    {"const": {"a": None}},
    {"const": {"__proto__": 1}},
    {"enum": [[{"a": 1}, {"a": 1.0}], False]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    {"type": "array", "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "minItems": 1},
    {"type": "array", "prefixItems": [{}, {}], "items": {"type": "null"}, "minItems": 2},
    {"type": "array", "contains": {"const": 1}, "minContains": 2},
    {"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 1},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
    {"type": "object", "required": ["a"], "additionalProperties": False},
    {"type": "object", "required": ["toString", "a"]},
    {"type": "object", "properties": {"constructor": {"type": "string"}}},
    {"type": "object", "properties": {"constructor": {}}, "additionalProperties": False},
    {"type": "object", "properties": {"__proto__": {"type": "string"}}},
    {
        "type": "object",
        "properties": {"__proto__": {"type": "integer"}},
        "additionalProperties": False,
    },
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "patternProperties": {"^x-": {"type": "integer"}}},
    {
        "type": "object",
        "properties": {"a": {}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": False,
    },
    {"type": "object", "minProperties": 1, "maxProperties": 1},
    {"type": "object", "propertyNames": {"maxLength": 1}},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
    {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}},
    {"anyOf": [{"type": "integer"}, {"type": "string"}], "not": {"const": 1}},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
        ]
    },
    {"allOf": [{"required": ["a"]}, {"type": "object", "maxProperties": 1}]},
    {
        "allOf": [
            {"properties": {"a": {}}, "additionalProperties": False},
            {"properties": {"b": {}}, "additionalProperties": False},
        ]
    },
    {"if": {"type": "object"}, "then": {"required": ["a"]}, "else": {"type": "string"}},
    {"if": {"type": "integer"}, "then": False},
    {"not": {}},
    {"not": {"type": "object", "additionalProperties": {"type": "integer"}}},
    NODE,
    {"$ref": "#/$defs/list", "$defs": {"list": {"type": "array", "items": {"$ref": "#"}}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "dependencies": {"a": ["b"]},
        "type": "object",
    },
    {
        "type": "object",
        "properties": {"a": {"$anchor": "A", "type": "integer"}, "b": {"$ref": "#A"}},
    },
]
SCHEMAS += [
    {"properties": {"a": {"$ref": "#/$defs/no"}}, "$defs": {"no": False}},
    {"items": {"$ref": "#/$defs/all"}, "$defs": {"all": True}},
    {"required": ["constructor"], "additionalProperties": False},
]
FORMATS = [{"type": "string", "format": name} for name in ("date", "ipv4", "uuid")]


def judged(folder, schemas):
    """Judge values by generated Zod schemas and by the contract; the cases that differ."""
    named, asked, wanted = [], [], []
    for number, schema in enumerate(schemas):
        formats = schema in FORMATS
        judge = compile_schema(schema, formats=formats)
        named.append(NamedSchema(f"T{number}Output", f"t.t{number}", "output", schema, formats))
        values = [*VALUES, *made_values(schema, 60)]
        values = list({json.dumps(value): value for value in values}.values())
        asked.append([f"T{number}Output", list(map(json.dumps, values))])
        wanted.append([judge.accepts(_exact(value)) for value in values])
    (folder / "types.ts").write_text(write_zod(named), "utf-8")
    (folder / "judge.mjs").write_text(JUDGE, "utf-8")
    node_packages.compiled(folder, "types.ts", emit=True)
    done = node_packages.run_node("judge.mjs", cwd=folder, text=json.dumps(asked))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [
        (schema, text, accepted)
        for schema, (_, texts), got, want in zip(schemas, asked, found, wanted, strict=True)
        for text, accepted, is_valid in zip(texts, got, want, strict=True)
        if accepted != is_valid
    ]


def _exact(value):
    """The value as JavaScript has it: a float without a fraction is an integer."""
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.requirement("000.purpose.types")
def test_zod_accepts_what_the_contract_accepts_for_every_keyword(workshop):
    assert judged(workshop, [*SCHEMAS, *FORMATS]) == []


def random_schema(chance, levels=3):
    """A schema of several keywords, over few names and values so that they meet."""
    if chance.random() < 0.08:
        return chance.choice([True, {}, {"$ref": "#/$defs/d"}, {"$ref": "#/$defs/d"}])
    schema = {}
    if chance.random() < 0.7:
        kinds = ["string", "number", "integer", "boolean", "null", "array", "object"]
        schema["type"] = chance.choice([*kinds, "object", "array", chance.sample(kinds, 2)])
    leaves = {
        "minLength": lambda: chance.randrange(3),
        "maxLength": lambda: chance.randrange(3),
        "pattern": lambda: chance.choice(["a", "^.$", "^\\w+$", "[^a]$", "\\s"]),
        "minimum": lambda: chance.choice([0, 0.5, 3]),
        "maximum": lambda: chance.choice([1, 0.5]),
        "exclusiveMinimum": lambda: chance.choice([0, -1]),
        "multipleOf": lambda: chance.choice([0.1, 0.5, 3, 1]),
        "minItems": lambda: chance.randrange(3),
        "maxItems": lambda: chance.randrange(3),
        "uniqueItems": lambda: True,
        "minProperties": lambda: chance.randrange(3),
        "maxProperties": lambda: chance.randrange(3),
        "required": lambda: chance.sample(["a", "b", "constructor", "__proto__"], 1),
        "dependentRequired": lambda: {"a": ["b"]},
        "enum": lambda: chance.sample([1, "a", None, {"a": 1}, [1], True, 0.5], 3),
        "const": lambda: chance.choice([1, "a", {}, []]),
        "additionalProperties": lambda: False,
        "items": lambda: False,
    }
    inner = {
        "items": lambda sub: sub(),
        "prefixItems": lambda sub: [sub(), sub()],
        "contains": lambda sub: sub(),
        "properties": lambda sub: {
            name: sub() for name in chance.sample(["a", "b", "__proto__", "toString", "k"], 2)
        },
        "additionalProperties": lambda sub: sub(),
        "patternProperties": lambda sub: {chance.choice(["^x-", "a", "^_"]): sub()},
        "propertyNames": lambda sub: sub(),
        "dependentSchemas": lambda sub: {"a": sub()},
        "anyOf": lambda sub: [sub(), sub()],
        "oneOf": lambda sub: [sub(), sub()],
        "allOf": lambda sub: [sub(), sub()],
        "not": lambda sub: sub(),
        "if": lambda sub: sub(),
        "then": lambda sub: sub(),
        "else": lambda sub: sub(),
    }
    for keyword in chance.sample(sorted(leaves), 2):
        if chance.random() < 0.6:
            schema[keyword] = leaves[keyword]()
    if levels:
        for keyword in chance.sample(sorted(inner), 2):
            schema[keyword] = inner[keyword](lambda: random_schema(chance, levels - 1))
    return schema


@pytest.mark.parametrize("seed", range(2))
def test_zod_accepts_what_the_contract_accepts_for_mixed_keywords(workshop, seed):
    chance = random.Random(seed)
    schemas = []
    while len(schemas) < 80:
        schema = {**_object(random_schema(chance)), "$defs": {"d": random_schema(chance)}}
        try:
            compile_schema(schema)
            write_zod([NamedSchema("T", "t.t", "output", schema)])
        except (InvalidSchema, Unexpressible):  # A reference that leads to itself.
            continue
        schemas.append(schema)
    assert judged(workshop, schemas) == []


def _object(schema):
    return schema if isinstance(schema, dict) else {}


@pytest.mark.parametrize(
    ("keyword", "schema", "formats"),
    [
        ("unevaluatedProperties", {"type": "object", "unevaluatedProperties": False}, False),
        ("unevaluatedItems", {"type": "array", "unevaluatedItems": False}, False),
        ("$dynamicRef", {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}, False),
        ("pattern", {"type": "string", "pattern": "(?i)a"}, False),
        ("pattern", {"type": "string", "pattern": "\\ba"}, False),
        ("pattern", {"type": "string", "pattern": "(a)\\1"}, False),
        ("pattern", {"type": "string", "pattern": "a*+"}, False),
        ("pattern", {"type": "string", "pattern": "[a-z--x]"}, False),
        ("patternProperties", {"patternProperties": {"\\Aa": {}}}, False),
        ("format", {"type": "string", "format": "email"}, True),
    ],
)
def test_a_keyword_without_a_form_in_zod_is_an_error_with_tool_and_keyword(
    keyword, schema, formats
):
    compile_schema(schema, formats=formats)
    with pytest.raises(Unexpressible) as raised:
        write_zod([NamedSchema("T", "shop.price", "output", schema, formats)])
    assert (raised.value.tool, raised.value.keyword) == ("shop.price", keyword)
    assert "shop.price" in str(raised.value)


def test_a_pattern_in_reach_of_a_definition_is_found(workshop):
    schema = {"$defs": {"a": {"pattern": "\\ba"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    with pytest.raises(Unexpressible):
        write_zod([NamedSchema("T", "shop.price", "output", schema)])
