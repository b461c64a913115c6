"""TypeScript types: what they look like, and that hostile declarations compile."""

from __future__ import annotations

import random

import pytest

import node_packages
from callpact.contracts import NamedSchema, write_typescript

workshop = node_packages.workshop


def written(schema):
    return write_typescript([NamedSchema("PriceOutput", "shop.price", "output", schema)])


@pytest.mark.requirement("000.purpose.types")
def test_an_object_is_an_interface_with_comments():
    schema = {
        "type": "object",
        "description": "A price.",
        "properties": {
            "id": {"type": "string"},
            "price": {"type": ["number", "null"], "minimum": 0},
            "not-a-name": {"enum": ["a", 1, None]},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    text = written(schema)
    assert (
        "/**\n * Output of `shop.price`.\n * A price.\n */\nexport interface PriceOutput {" in text
    )
    assert "  id: string;\n  /** @minimum 0 */\n  price?: number | null;\n" in text
    assert '  "not-a-name"?: "a" | 1 | null;\n}' in text


def test_references_tuples_and_further_keys_have_types():
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    "at": {
                        "type": "array",
                        "prefixItems": [{"type": "string"}, {"type": "number"}],
                        "items": {"type": "boolean"},
                        "minItems": 1,
                    },
                },
                "additionalProperties": {"type": "integer"},
            }
        },
    }
    text = written(schema)
    assert "export type PriceOutput = PriceOutputNode;" in text
    assert "  next?: PriceOutputNode | null;" in text
    assert "  at?: [string, number?, ...boolean[]];" in text
    assert "  [key: string]: number | PriceOutputNode | null | undefined" in text


HOSTILE = [
    {"type": "object", "description": "*/ process.exit(1) /*\n\u2028alert", "properties": {}},
    {"properties": {'"; alert(1); "': {"enum": ["*/", "\u2028", '"']}, "": {}, "__proto__": {}}},
    {"type": "object", "required": ["constructor"], "properties": {"a b": {"const": {"x": []}}}},
    {"$ref": "#/$defs/a*~1/b", "$defs": {"a*/": {"b": {"type": "string"}}}},
    {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
    {"$defs": {"1": {"type": "string"}, "-1": {"type": "null"}}, "items": {"$ref": "#/$defs/1"}},
    {"enum": []},
    {"type": "array", "items": False},
    {"type": "object", "patternProperties": {"^a": {"type": "string"}}, "properties": {"b": {}}},
]


def test_hostile_declarations_compile(workshop):
    named = [
        NamedSchema(f"T{number}Output", "a.b */", "output", schema)
        for number, schema in enumerate(HOSTILE)
    ]
    (workshop / "types.ts").write_text(write_typescript(named), "utf-8")
    node_packages.compiled(workshop, "types.ts")


def test_types_of_mixed_schemas_compile(workshop):
    from callpact.schema import compile_schema

    chance = random.Random(5)
    leaves = [{"type": "string"}, {"type": "integer"}, {"enum": [1, "a"]}, {"$ref": "#"}, True]

    def schema(levels):
        if not levels:
            return chance.choice(leaves)
        sub = [schema(levels - 1) for _ in range(2)]
        return chance.choice(
            [
                {"type": "object", "properties": {"a": sub[0], "b-c": sub[1]}, "required": ["a"]},
                {"type": "object", "properties": {"a": sub[0]}, "additionalProperties": sub[1]},
                {"type": "array", "items": sub[0]},
                {"type": "array", "prefixItems": sub},
                {"type": "array", "items": {"anyOf": sub}},
                {"type": "object", "properties": {"a": {"allOf": sub}}},
            ]
        )

    named = []
    for number in range(60):
        made = schema(3)
        compile_schema(made)
        named.append(NamedSchema(f"T{number}Output", "t.t", "output", made))
    (workshop / "types.ts").write_text(write_typescript(named), "utf-8")
    node_packages.compiled(workshop, "types.ts")
