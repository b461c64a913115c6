"""Every rule of the lint: a contract that breaks it, and a neighbour that keeps it."""

from __future__ import annotations

import time

import pytest

from callpact import Catalog, Contract, Tool, data_tool
from callpact.contracts import LINT_RULES, lint_catalog, lint_tool
from callpact.contracts.lint import MAX_LINTED, listed_values
from callpact.schema import PropertyNumber, PropertyString


async def handler(arguments, context):
    return None


def declared(input=None, output=None, **fields):
    given = {"id": "shop.price", "description": "The price of an item.", "handler": handler}
    contract = Contract(
        input=closed() if input is None else input, output=output or {"type": "null"}
    )
    return Tool(contract=contract, **{**given, **fields})


def closed(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


def one(required=False, name="item", **schema):
    """A tool with one property, which has a description that no rule minds."""
    described = {"description": "Its number on the shelf.", **schema}
    return declared(closed([name] if required else [], **{name: described}))


def codes(tool):
    return [found.code for found in lint_tool(tool)]


TEXT, NUMBER, ARRAY = {"type": "string"}, {"type": "integer"}, {"type": "array"}
DEEP = {"type": "string", "description": "A leaf of the tree."}
for _ in range(6):
    DEEP = {"description": "A node of the tree.", **closed(inner=DEEP)}

# code, path, a tool that breaks the rule, a tool that keeps it
ROWS = [
    ("LNT001", "", declared(description=" "), declared()),
    ("LNT001", "", declared(description="Price."), declared(description="Price of an item.")),
    ("LNT003", "/user_id", declared(closed(userId=TEXT, user_id=TEXT)), declared(closed(userId=TEXT, user=TEXT))),
    ("LNT010", "/item", declared(closed(item=TEXT)), one(**TEXT)),
    ("LNT010", "/item", one(**TEXT, description=""), one(**TEXT, description="Part of its name.")),
    ("LNT010", "/searchTerm", one(name="searchTerm", **TEXT, description="The search term."), one(name="searchTerm", **TEXT, description="Term to look up.")),
    ("LNT020", "/item", one(**TEXT, description="One of: open, closed, pending"), one(**TEXT, enum=["open", "closed"], description="One of: open, closed")),
    ("LNT020", "/item", one(**TEXT, description="Can be `asc` or `desc`."), one(**TEXT, description="A colour, e.g. `red` or `blue`.")),
    ("LNT020", "/item", one(**TEXT, description="Possible values: sbom, release"), one(**TEXT, description="Possible values: sbom, release, or freeform text")),
    ("LNT020", "/item", one(**TEXT, description="The order (asc|desc)"), one(**TEXT, description="Needs `name` or `id` as well.")),
    ("LNT030", "/item", one(True, **NUMBER, description="How far; defaults to 10."), one(**NUMBER, default=10, description="How far; defaults to 10.")),
    ("LNT030", "/item", one(True, **NUMBER, description="Optional distance."), one(True, **NUMBER, description="Distance, with optional sign.")),
    ("LNT031", "/item", one(**NUMBER, description="How far (default 10)."), one(**NUMBER, description="By default the newest one.")),
    ("LNT032", "/limit", one(True, name="limit", **NUMBER, maximum=9), one(name="limit", **NUMBER, maximum=9)),
    ("LNT040", "/item", one(**TEXT, pattern="^o[0-9]+$"), one(**TEXT, pattern="^o[0-9]+$", examples=["o1"])),
    ("LNT040", "/item", one(**TEXT, pattern="^o[0-9]+$", description="An order."), one(**TEXT, pattern="^o[0-9]+$", description="An order, as o17.")),
    ("LNT041", "/item", one(**NUMBER, default="ten"), one(**NUMBER, default=10)),
    ("LNT041", "/item", one(**NUMBER, maximum=9, examples=[3, 10]), one(**NUMBER, maximum=9, examples=[3])),
    ("LNT042", "/item", declared(one(**NUMBER).contract.input, examples=({"item": "x"},)), declared(one(**NUMBER).contract.input, examples=({"item": 1},))),
    ("LNT043", "/item", one(**NUMBER, minimum=3, maximum=2), one(**NUMBER, minimum=2, maximum=2)),
    ("LNT043", "/item", one(enum=[]), one(enum=[1])),
    ("LNT043", "/other", declared(closed(["other"])), declared({"type": "object", "required": ["other"]})),
    ("LNT050", "/item", one(True, **ARRAY), one(True, **ARRAY, minItems=1)),
    ("LNT051", "/item", one(True, **TEXT), one(True, **TEXT, minLength=1)),
    ("LNT051", "/item", one(True, **TEXT), one(**TEXT)),
    ("LNT060", "/limit", one(name="limit", **NUMBER), one(name="limit", **NUMBER, maximum=50)),
    ("LNT060", "/page_size", one(name="page_size", **NUMBER), one(name="cache_size_gb", **NUMBER)),
    ("LNT070", "", declared(closed(**{f"p{n}": NUMBER for n in range(26)})), declared(closed(**{f"p{n}": NUMBER for n in range(25)}))),
    ("LNT071", "", declared(DEEP), declared(DEEP["properties"]["inner"])),
    ("LNT080", "", Tool(id="shop.price", description="A price.", contract=Contract(), handler=handler), declared()),
    ("LNT090", "", declared(closed(**{f"p{n}": NUMBER for n in range(MAX_LINTED + 1)})), declared()),
]  # fmt: skip


@pytest.mark.requirement("004.design.loose-patterns")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_rule_finds_its_breach_and_not_its_neighbour(row):
    code, path, bad, good = row
    found = [each for each in lint_tool(bad) if each.code == code]
    rule = LINT_RULES[code]
    assert [each.path for each in found] == [path]
    assert (found[0].severity, found[0].remedy) == (rule.severity, rule.remedy)
    assert code not in codes(good)


def test_every_rule_has_a_row():
    assert {row[0] for row in ROWS} | {"LNT002"} == LINT_RULES.keys()


def test_equal_descriptions_in_one_namespace_are_found():
    names = ("shop.a", "shop.b", "other.c")
    tools = [declared(id=name, description="The price  of an item.") for name in names]
    found = [each for each in lint_catalog(Catalog(tools)) if each.code == "LNT002"]
    assert [each.tool for each in found] == ["shop.a", "shop.b"]
    assert "'shop.b'" in found[0].message


def test_a_property_is_read_through_references_branches_and_items():
    target = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {
        **closed(
            direct={"$ref": "#/$defs/t"},
            items={"description": "Some of them.", "type": "array", "items": {"$ref": "#/$defs/t"}},
            maybe={"anyOf": [{"type": "string", "description": "A word."}, {"type": "null"}]},
        ),
        "$defs": {"t": {**target, "description": "A thing."}},
    }
    found = lint_tool(declared(schema))
    assert [(each.code, each.path) for each in found] == [("LNT010", "/direct/n")]


def test_a_recursive_schema_is_read_once():
    node = closed(next={"$ref": "#/$defs/t"}, n={"type": "integer"})
    schema = {"$ref": "#/$defs/t", "$defs": {"t": node}}
    found = lint_tool(declared(schema))
    assert [(each.code, each.path) for each in found] == [("LNT010", "/next"), ("LNT010", "/n")]


def test_notes_of_flowmcp_examples_are_no_arguments():
    tool = declared(one(**NUMBER).contract.input, examples=({"_description": "x", "item": 1},))
    assert codes(tool) == []


def test_an_operation_without_content_and_its_body_are_not_reported():
    schema = closed(body=closed(size={"type": "integer", "description": "How tall."}))
    contract = Contract(input=schema)
    fields = {"id": "shop.add", "description": "Add an item.", "handler": handler}
    tool = Tool(contract=contract, source="shop.json#/paths/~1items/post", **fields)
    assert codes(tool) == ["LNT060"]


def test_a_contract_as_seed_004_advises_has_no_finding():
    search = data_tool(
        "search",
        namespace="shop",
        description="Search the orders.",
        properties={
            "query": PropertyString(required=True, minLength=1, description="Part of its name."),
            "status": {
                "type": "enum",
                "options": ["open", "closed"],
                "defaultValue": "open",
                "description": "Only orders in this state.",
            },
        },
        output={"total": PropertyNumber()},
        handler=handler,
    )
    assert codes(search) == []


@pytest.mark.parametrize(
    "text",
    [
        "'" * 5_000,
        "a|" * 2_000,
        "one of " + "a, " * 1_000,
        "`a`, " * 1_000,
        "default" * 1_000,
        "one of " + "a." * 2_000 + "!",
    ],
)
def test_hostile_descriptions_take_no_long_time(text):
    begun = time.process_time()
    listed_values(text[:2_000])
    lint_tool(one(**TEXT, pattern="^(a+)+$", description=text))
    assert time.process_time() - begun < 5
