"""Every row of the table of changes, both ways, for input and for output."""

from __future__ import annotations

import pytest

from callpact import Access, Catalog, Contract, Prompt, Resource, Tool
from callpact.contracts import Prover, diff_catalogs
from callpact.contracts.counterexample import made_values
from callpact.tool import Disabled


@pytest.fixture(scope="module")
def prover():
    with Prover() as made:
        yield made


async def handler(arguments, context):
    return None


async def another(arguments, context):
    return 1


async def stream(arguments, context):
    yield None


def declared(**fields):
    """A tool with these fields; those of its contract among them."""
    names = ("input", "output", "policy", "input_policy", "formats")
    contract = Contract(**{name: fields.pop(name) for name in names if name in fields})
    given = {"id": "shop.price", "description": "A price.", "handler": handler, **fields}
    return Tool(contract=contract, **given)


def closed(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
WIDE = {"maxProperties": 99}  # An empty schema is no output schema at all.


def recursive(**rules):
    """A schema that refers to itself, with rules for the number in each of its levels."""
    node = closed(next={"$ref": "#/$defs/t"}, n={"type": "integer", **rules})
    return {"$ref": "#/$defs/t", "$defs": {"t": node}}


def referring(reference, **rules):
    return {"items": {"$ref": reference}, "$defs": {"t": {"type": "integer", **rules}}}


def dynamic(**rules):
    target = {"$dynamicAnchor": "t", "type": "integer", **rules}
    return {"items": {"$dynamicRef": "#t"}, "$defs": {"t": target}}


def embedded(**rules):
    own = {"$defs": {"t": {"type": "integer", **rules}}}
    inner = {"$id": "https://a.test/inner", "items": {"$ref": "#/$defs/t"}, **own}
    return {"items": inner, "$defs": {"t": {"type": "integer"}}}


def draft_7(**rules):
    target = {"minProperties": 1, **rules}
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"t": target}}
    return {**draft, "dependencies": {"a": {"$ref": "#/definitions/t"}, "b": ["c"]}}


def unevaluated(**notes):
    return {"allOf": [closed(a={**TEXT, **notes})], "unevaluatedProperties": False}


# name, schema, changed schema; bump of an input forth and back, bump of an output forth and back
ROWS = [
    ("property", closed(a=TEXT), closed(a=TEXT, b=TEXT), "minor major", "major major"),
    ("required property", closed(a=TEXT), closed(["b"], a=TEXT, b=TEXT), "major major", "major major"),
    ("renamed", closed(a=TEXT), closed(b=TEXT), "major major", "major major"),
    ("type", closed(a=TEXT), closed(a={"type": "integer"}), "major major", "major major"),
    ("required", closed(a=TEXT), closed(["a"], a=TEXT), "major minor", "minor major"),
    ("integer", closed(a={"type": "integer"}), closed(a={"type": "number"}), "minor major", "major minor"),
    ("null", closed(a=TEXT), closed(a={"type": ["string", "null"]}), "minor major", "major minor"),
    ("enum value", {"enum": ["a"]}, {"enum": ["a", "b"]}, "minor major", "major minor"),
    ("enum", TEXT, {"type": "string", "enum": ["a"]}, "major minor", "minor major"),
    ("const", TEXT, {"const": "a"}, "major minor", "minor major"),
    ("minimum", {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}, "major minor", "minor major"),
    ("maximum", {"type": "integer", "maximum": 9}, {"type": "integer", "maximum": 5}, "major minor", "minor major"),
    ("new maximum", {"type": "number"}, {"type": "number", "maximum": 5}, "major minor", "minor major"),
    ("minLength", TEXT, {"type": "string", "minLength": 1}, "major minor", "minor major"),
    ("maxLength", TEXT, {"type": "string", "maxLength": 50}, "major minor", "minor major"),
    ("pattern", TEXT, {"type": "string", "pattern": "^a+$"}, "major minor", "minor major"),
    ("minItems", {"type": "array"}, {"type": "array", "minItems": 1}, "major minor", "minor major"),
    ("maxItems", {"type": "array", "maxItems": 9}, {"type": "array", "maxItems": 3}, "major minor", "minor major"),
    ("uniqueItems", {"type": "array"}, {"type": "array", "uniqueItems": True}, "major minor", "minor major"),
    ("multipleOf", {"type": "integer"}, {"type": "integer", "multipleOf": 5}, "major minor", "minor major"),
    ("closed", {"type": "object"}, {"type": "object", "additionalProperties": False}, "major minor", "minor major"),
    ("branch", {"anyOf": [TEXT]}, {"anyOf": [TEXT, {"type": "null"}]}, "minor major", "major minor"),
    ("items", {"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}, "major minor", "minor major"),
    ("nested", closed(a=closed(b=TEXT)), closed(a=closed(["b"], b=TEXT)), "major minor", "minor major"),
    ("recursive", recursive(), recursive(minimum=0), "major minor", "minor major"),
    ("default added", closed(a=TEXT), closed(a={**TEXT, "default": "x"}), "minor major", "patch patch"),
    ("default", closed(a={**TEXT, "default": "y"}), closed(a={**TEXT, "default": "x"}), "major major", "patch patch"),
    ("description", closed(a=TEXT), closed(a={**TEXT, "description": "A."}), "patch patch", "patch patch"),
    ("title", {"title": "A"}, {"title": "B"}, "patch patch", "patch patch"),
    ("examples", TEXT, {**TEXT, "examples": ["a"]}, "patch patch", "patch patch"),
    ("format as a note", TEXT, {**TEXT, "format": "email"}, "minor minor", "minor minor"),
    ("reordered", {"enum": ["a", "b"]}, {"enum": ["b", "a"]}, "- -", "- -"),
    ("new minimum", {"type": "number"}, {"type": "number", "minimum": 5}, "major minor", "minor major"),
    ("exclusiveMinimum", {"exclusiveMinimum": 1}, {"exclusiveMinimum": 2}, "major minor", "minor major"),
    ("exclusiveMaximum", {"exclusiveMaximum": 9}, {"exclusiveMaximum": 5}, "major minor", "minor major"),
    ("exclusive bound", {"type": "number", "minimum": 1}, {"type": "number", "exclusiveMinimum": 1}, "major minor", "minor major"),
    ("shorter text", {"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 5}, "major minor", "minor major"),
    ("longer text", {"type": "string", "minLength": 1}, {"type": "string", "minLength": 3}, "major minor", "minor major"),
    ("minProperties", {"type": "object"}, {"type": "object", "minProperties": 1}, "major minor", "minor major"),
    ("maxProperties", {"type": "object", "maxProperties": 9}, {"type": "object", "maxProperties": 3}, "major minor", "minor major"),
    ("new maxItems", {"type": "array"}, {"type": "array", "maxItems": 3}, "major minor", "minor major"),
    ("other pattern", {"type": "string", "pattern": "^a$"}, {"type": "string", "pattern": "^b$"}, "major major", "major major"),
    ("multiple of a multiple", {"multipleOf": 2}, {"multipleOf": 4}, "major minor", "minor major"),
    ("items of a kind", {"type": "array"}, {"type": "array", "items": TEXT}, "major minor", "minor major"),
    ("first items", {"prefixItems": [{"type": "number"}]}, {"prefixItems": [{"type": "integer"}]}, "major minor", "minor major"),
    ("contains", {"type": "array"}, {"type": "array", "contains": TEXT}, "major minor", "minor major"),
    ("undeclared members of a kind", {"type": "object"}, {"type": "object", "additionalProperties": TEXT}, "major minor", "minor major"),
    ("names of members", {"type": "object"}, {"type": "object", "propertyNames": {"maxLength": 3}}, "major minor", "minor major"),
    ("const to enum", {"const": "a"}, {"enum": ["a", "b"]}, "minor major", "major minor"),
    ("enum value of another type", {"enum": [1]}, {"enum": ["1"]}, "major major", "major major"),
    ("any type", WIDE, {**WIDE, **TEXT}, "major minor", "minor major"),
    ("one type of several", {"type": ["string", "integer"]}, TEXT, "major minor", "minor major"),
    ("rule of all", {"allOf": [TEXT]}, {"allOf": [TEXT, {"minLength": 2}]}, "major minor", "minor major"),
    ("one of two", {"oneOf": [TEXT]}, {"oneOf": [TEXT, {"type": "null"}]}, "minor major", "major minor"),
    ("not", WIDE, {**WIDE, "not": TEXT}, "major minor", "minor major"),
    ("condition", WIDE, {**WIDE, "if": TEXT, "then": {"minLength": 2}}, "major minor", "minor major"),
    ("dependent", {"type": "object"}, {"type": "object", "dependentRequired": {"a": ["b"]}}, "major minor", "minor major"),
    ("no value", TEXT, False, "major minor", "minor major"),
    ("behind a reference", {"$ref": "#/$defs/t", "$defs": {"t": {"maximum": 9}}}, {"$ref": "#/$defs/t", "$defs": {"t": {"maximum": 5}}}, "major minor", "minor major"),
    ("reference instead of its target", {"$ref": "#/$defs/t", "$defs": {"t": TEXT}}, TEXT, "- -", "- -"),
    ("nested property", closed(a=closed(b=TEXT)), closed(a=closed(b=TEXT, c=TEXT)), "minor major", "major major"),
    ("property of items", {"type": "array", "items": closed(b=TEXT)}, {"type": "array", "items": closed(b=TEXT, c=TEXT)}, "minor major", "major major"),
    ("default of a nested property", closed(a=closed(b=TEXT)), closed(a=closed(b={**TEXT, "default": "x"})), "minor major", "patch patch"),
    ("comment", TEXT, {**TEXT, "$comment": "x"}, "patch patch", "patch patch"),
    ("deprecated", TEXT, {**TEXT, "deprecated": True}, "patch patch", "patch patch"),
    ("number and boolean", {"const": 1}, {"const": True}, "major major", "major major"),
    ("number and float", {"enum": [1, {"a": [2]}]}, {"enum": [1.0, {"a": [2.0]}]}, "- -", "- -"),
    ("at most some", {"contains": TEXT, "maxContains": 2}, {"contains": TEXT}, "minor major", "major minor"),
    ("some of a kind", {**WIDE, "contains": TEXT, "maxContains": 2}, WIDE, "minor major", "major minor"),
    ("name of the schema", {**TEXT, "$id": "https://a.test/1"}, {**TEXT, "$id": "https://a.test/2"}, "patch patch", "patch patch"),
    ("behind an anchor", referring("#t", **{"$anchor": "t"}), referring("#t", **{"$anchor": "t", "maximum": 5}), "major minor", "minor major"),
    ("behind a dynamic reference", dynamic(), dynamic(maximum=5), "major minor", "minor major"),
    ("behind an encoded reference", referring("#/$defs/%74"), referring("#/$defs/%74", maximum=5), "major minor", "minor major"),
    ("behind a reference below an id", embedded(), embedded(maximum=5), "major minor", "minor major"),
    ("dependency of draft 7", draft_7(), draft_7(maxProperties=5), "major minor", "minor major"),
    ("note beside what is unevaluated", unevaluated(), unevaluated(description="A."), "patch patch", "patch patch"),
    ("property of an open object", {"type": "object"}, {"type": "object", "properties": {"a": TEXT}}, "major major", "major major"),
]  # fmt: skip


# Each change that the specification classifies, with rows that prove it in both directions.
SPECIFIED = {
    "property removed or renamed": ("property", "renamed", "nested property"),
    "type changed": ("type", "enum value of another type", "one type of several"),
    "optional to required, new required": ("required", "required property", "nested"),
    "enum value dropped or added": ("enum value", "enum", "const to enum"),
    "min up": ("minimum", "new minimum", "exclusiveMinimum", "minLength", "minItems"),
    "max down": ("maximum", "new maximum", "exclusiveMaximum", "maxLength", "maxItems"),
    "new pattern or format": ("pattern", "format as a note"),
    "default removed or changed": ("default added", "default"),
    "descriptions, titles, examples": ("description", "title", "examples"),
    "integer to number": ("integer",),
}


def test_every_change_of_the_specification_has_rows():
    names = [row[0] for row in ROWS]
    assert len(names) == len({*names})
    assert {name for rows in SPECIFIED.values() for name in rows} <= {*names}


def diff(old, new, prover, **options):
    return diff_catalogs(Catalog([old]), Catalog([new]), prover=prover, **options)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
@pytest.mark.parametrize("side", ["input", "output"])
def test_a_change_of_a_schema_has_the_class_of_the_table(row, side, prover):
    _, old, new, *bumps = row
    found = [
        diff(declared(**{side: first}), declared(**{side: second}), prover)
        for first, second in ((old, new), (new, old))
    ]
    assert " ".join(each.bump or "-" for each in found) == bumps[side == "output"]
    assert {change.side for each in found for change in each.changes} <= {side}


@pytest.mark.parametrize(
    ("side", "old", "new"),
    [("input", old, new) for _, old, new, bumps, _ in ROWS if bumps.startswith("major")]
    + [("output", new, old) for _, old, new, bumps, _ in ROWS if bumps.startswith("major")],
)
def test_a_breaking_example_is_accepted_on_one_side_only(side, old, new, prover):
    before, after = declared(**{side: old}), declared(**{side: new})
    examples = [each.example for each in diff(before, after, prover).changes if each.example]
    contracts = before.contract, after.contract
    for (example,) in examples:
        if side == "input":
            accepted = [each.compiled_input.accepts(example) for each in contracts]
            assert accepted == [True, False]
        else:
            accepted = [each.compiled_output.accepts(example) for each in contracts]
            assert accepted == [False, True]


# name, fields, changed fields, bumps forth and back
FACTS = [
    ("output schema", {}, {"output": TEXT}, "minor major"),
    ("asserted format of an output", {"output": TEXT, "formats": True}, {"output": {**TEXT, "format": "email"}, "formats": True}, "minor major"),
    ("asserted format of an input", {"input": TEXT, "formats": True}, {"input": {**TEXT, "format": "email"}, "formats": True}, "major minor"),
    ("input schema", {}, {"input": closed(["a"], a=TEXT)}, "major major"),
    ("code", {}, {"handler": another}, "None None"),
    ("description", {}, {"description": "Another."}, "patch patch"),
    ("title", {}, {"title": "Price"}, "patch patch"),
    ("scope", {}, {"access": Access(scopes=("a",))}, "major minor"),
    ("one scope of several", {"access": Access(any_scopes=("a",))}, {"access": Access(any_scopes=("a", "b"))}, "minor major"),
    ("first scope of several", {}, {"access": Access(any_scopes=("a",))}, "major minor"),
    ("resource", {}, {"access": Access(resource_type="p", resource_action="r")}, "major minor"),
    ("disabled", {}, {"disabled": Disabled("MISSING_KEY", "no key")}, "major minor"),
    ("alias", {}, {"aliases": ("shop.cost",)}, "minor major"),
    ("argument alias", {"input": closed(a=TEXT)}, {"input": closed(a=TEXT), "argument_aliases": {"b": "a"}}, "minor major"),
    ("name over MCP", {}, {"wire_name": "cost"}, "major major"),
    ("kind", {}, {"kind": "subscription", "handler": stream}, "major major"),
    ("policy", {"output": TEXT, "policy": "warn"}, {"output": TEXT, "policy": "reject"}, "minor major"),
    ("input policy", {}, {"input_policy": "tolerant"}, "minor major"),
    ("formats", {"input": {**TEXT, "format": "email"}}, {"input": {**TEXT, "format": "email"}, "formats": True}, "major minor"),
]  # fmt: skip


@pytest.mark.parametrize("row", FACTS, ids=lambda row: row[0])
def test_a_change_of_a_tool_has_its_class(row, prover):
    _, old, new, bumps = row
    first, second = declared(**old), declared(**new)
    found = [diff(first, second, prover).bump, diff(second, first, prover).bump]
    assert " ".join(map(str, found)) == bumps


def test_tools_come_and_go(prover):
    one, two = declared(), declared(id="shop.stock", description="A stock.")
    both = diff_catalogs(Catalog([one]), Catalog([one, two]), prover=prover)
    assert (both.bump, [each.tool for each in both.changes]) == ("minor", ["shop.stock"])
    assert diff_catalogs(Catalog([one, two]), Catalog([one]), prover=prover).is_breaking


def test_resources_and_prompts_come_and_go(prover):
    item = Resource(uri="shop://items", tool=declared(id="shop.items"))
    advice = Prompt(tool=declared(id="shop.advice", input=closed(a=TEXT)))
    empty, full = Catalog([]), Catalog([], resources=[item], prompts=[advice])
    came = diff_catalogs(empty, full, prover=prover)
    assert (came.bump, len(came.changes)) == ("minor", 2)
    assert diff_catalogs(full, empty, prover=prover).bump == "major"
    stricter = Prompt(tool=declared(id="shop.advice", input=closed(["a"], a=TEXT)))
    changed = diff_catalogs(full, Catalog([], resources=[item], prompts=[stricter]), prover=prover)
    assert [(each.bump, each.path) for each in changed.changes] == [("major", "/a")]


def test_a_rename_breaks_unless_the_old_name_stays_known(prover):
    found = diff(declared(), declared(id="shop.cost"), prover)
    assert found.is_breaking
    assert "renamed to" in found.changes[0].words
    kept = diff(declared(), declared(id="shop.cost", aliases=("shop.price",)), prover)
    assert not kept.is_breaking


def test_catalogs_of_one_namespace_each_are_compared_by_name(prover):
    assert diff(declared(id="v1.price"), declared(id="v2.price"), prover).bump is None


def test_no_change_has_no_bump(prover):
    found = diff(declared(input=closed(a=TEXT)), declared(input=closed(a=TEXT)), prover)
    assert (found.changes, found.bump, found.is_breaking) == ((), None, False)


def test_tolerant_readers_take_new_fields_and_nothing_else(prover):
    old = declared(output=closed(["a"], a=TEXT))
    more = declared(output=closed(["a"], a=TEXT, b=TEXT))
    other = declared(output=closed(["a"], a={"type": ["string", "null"]}, b=TEXT))
    assert diff(old, more, prover).bump == "major"
    assert diff(old, more, prover, tolerant=True).bump == "minor"
    assert diff(old, other, prover, tolerant=True).bump == "major"
    assert diff(more, old, prover, tolerant=True).bump == "major"


def test_where_nothing_is_proved_the_table_decides_and_the_report_says_so(prover):
    old = declared(input=closed(a={"type": "string", "pattern": "^x{40,}y+$"}))
    new = declared(input=closed(a={"type": "string", "pattern": "^x{40,}y*$"}))
    found = diff(old, new, prover)
    assert [(each.bump, each.decided) for each in found.changes] == [("major", "table")]
    assert [(tool, side) for tool, side, _ in found.unproved] == [("shop.price", "input")]


def test_a_change_behind_an_unchanged_reference_is_found_in_every_place(prover):
    def schema(target):
        rule = {"if": {"$ref": "#/$defs/t"}, "then": False}
        return {"allOf": [{"not": {"additionalProperties": rule}}], "$defs": {"t": target}}

    found = diff(declared(input=schema({})), declared(input=schema(False)), prover)
    assert found.is_breaking


def test_the_place_of_a_requirement_is_a_pointer(prover):
    found = diff(declared(input={}), declared(input={"required": ["a/b"]}), prover)
    assert [change.path for change in found.changes] == ["/a~1b"]


def test_names_of_properties_that_are_no_texts_are_passed_over():
    old = {"type": "object", "propertyNames": {"enum": [["a"], {"b": 1}, "c"]}}
    assert [value for value in made_values(old, 50) if value == {"c": "text"}]
