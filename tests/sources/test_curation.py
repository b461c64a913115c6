"""Curation: the tools of any source, under the names, texts and arguments of a configuration."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.stdio import StdioServerParameters

import command_line
from callpact import data_tool, from_functions
from callpact.app import Options, Session
from callpact.catalog import Catalog, joined
from callpact.context import Identity
from callpact.errors import (
    AccessDenied,
    CallError,
    DuplicateTool,
    InvalidConfig,
    InvalidInput,
    OutputRejected,
)
from callpact.resources import Prompt, Resource
from callpact.runtime import Runtime
from callpact.schema import PropertyInteger, PropertyString, check
from callpact.sources.curation import Curation, ToolCuration, curate
from callpact.tool import Call, Contract, Tool
from callpact.wire import flowmcp
from schema_file import Caller
from watched import configure, first
from watched import run as watch

run = command_line.run
SHOP = '''
from typing import Annotated

from pydantic import Field

from callpact import prompt, tool

@prompt
def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"

@tool
async def price(item: str, currency: Annotated[str, Field(min_length=3)], limit: int = 3) -> str:
    """The price of an item."""
    return f"{item} {currency} {limit}"

@tool(access=["shop:all"])
async def remove(item: str) -> str:
    """Remove an item."""
    return item
'''
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 1},
        "b": {"type": "string"},
        "c": {"$ref": "#/$defs/kind"},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["x", "y"]}},
}


class Handler:
    """Remembers the arguments of every call."""

    def __init__(self):
        self.given = []

    async def __call__(self, arguments, context):
        self.given.append(arguments)
        return {"ok": True}


def make(name="one", schema=SCHEMA, **fields):
    handler = Handler()
    contract = Contract(input=schema)
    given = {"id": f"shop.{name}", "description": "Does.", "contract": contract, "handler": handler}
    return Tool(**given | fields)


def curated(*tools, namespace=None, complete=True, tables=None, **changes):
    """The catalog of tools with changes to the first one, or with `tables`."""
    whole = Catalog(tools)
    given = tables or ({tools[0].id: ToolCuration(**changes)} if changes else {})
    curation = Curation(place="sources.shop", namespace=namespace, tools=given)
    return Catalog(curate(whole, whole, curation, is_complete=complete))


def refused(*tools, **changes) -> str:
    with pytest.raises(InvalidConfig) as caught:
        curated(*tools, **changes)
    assert str(caught.value).startswith("sources.shop")
    return str(caught.value)


def call(catalog, name, arguments=None, **given):
    async def go():
        async with Runtime(catalog) as runtime:
            return (await runtime.execute(name, arguments or {}, **given)).data

    return asyncio.run(go())


def load(folder, text, *refs):
    """The sources of a configuration, with the report of loading."""
    (folder / "shop.py").write_text(SHOP, "utf-8")
    (folder / "callpact.toml").write_text(text, "utf-8")
    return asyncio.run(_load(Options(refs=refs, config=folder / "callpact.toml")))


async def _load(options):
    async with Session(options) as session:
        await session.load()
        return session.loaded


# --- names -----------------------------------------------------------------------------------


def test_a_renamed_tool_is_found_by_its_new_names_and_by_those_from_before():
    catalog = curated(make(aliases=("uno",)), make("two"), name="first", aliases=["eins"])
    tool = catalog.find("shop.first")
    assert (tool.id, tool.wire_name) == ("shop.first", "shop_first")
    for name in ("shop_first", "shop.one", "shop_one", "uno", "eins"):
        assert catalog.find(name) is tool
    assert "shop.first" not in catalog.find("shop.two").aliases


def test_a_namespace_holds_for_all_that_a_source_offers_and_old_ids_stay_as_aliases():
    greet = make("greet", {"type": "object"})
    hours = make("hours", {"type": "object"})
    whole = Catalog(
        [make()], resources=[Resource(uri="shop://h", tool=hours)], prompts=[Prompt(tool=greet)]
    )
    made = curate(whole, whole, Curation(namespace="store"), is_complete=True)
    assert [tool.id for tool in made] == ["store.one"]
    assert made[0].aliases == ("shop.one", "shop_one")
    assert [offer.tool.id for offer in (*made.resources, *made.prompts)] == [
        "store.hours",
        "store.greet",
    ]
    assert made.resources[0].uri == "shop://h"


def test_the_wire_name_of_a_flowmcp_tool_keeps_its_order():
    tool = make(wire_name="one_shop")
    assert curated(tool, namespace="store", name="uno").find("one_shop").wire_name == "uno_store"


@pytest.mark.parametrize("key", ["shop.one", "shop_one", "uno", "one"])
def test_a_table_names_its_tool_by_any_of_its_names(key):
    tables = {key: ToolCuration(title="First")}
    assert curated(make(aliases=("uno",)), tables=tables).find("shop.one").title == "First"


def test_a_table_for_no_tool_is_an_error_with_the_nearest_name():
    assert "sources.shop.tools.prize" in refused(
        make("price"), tables={"prize": ToolCuration(title="x")}
    )
    assert "did you mean 'price'?" in refused(
        make("price"), make("stock"), tables={"prize": ToolCuration(title="x")}
    )


def test_a_table_whose_file_could_not_be_loaded_is_a_finding_and_leaves_the_others_alone():
    whole = Catalog([make()])
    curation = Curation(place="sources.shop", tools={"gone": ToolCuration(title="x")})
    made = curate(whole, whole, curation, is_complete=False)
    assert [tool.id for tool in made] == ["shop.one"]
    assert [(f.severity, f.place) for f in made.report] == [("warning", "sources.shop.tools.gone")]


def test_a_name_of_several_tools_must_be_an_id():
    told = refused(make(), make(id="bar.one"), tables={"one": ToolCuration(title="x")})
    assert "shop.one, bar.one" in told


def test_two_tables_of_one_tool_are_refused():
    table = ToolCuration(title="x")
    told = refused(make(), tables={"one": table, "shop.one": table})
    assert "sources.shop.tools.one" in told


@pytest.mark.parametrize(
    "changes", [{"name": "two"}, {"aliases": ["shop.two"]}, {"aliases": ["shop_two"]}]
)
def test_two_tools_with_one_name_are_refused_by_their_own_names(changes):
    told = refused(make(), make("two"), **changes)
    assert "'shop.one'" in told
    assert "'shop.two'" in told


def test_two_namespaces_in_one_are_refused_where_names_collide():
    assert "'bar.one'" in refused(make(), make(id="bar.one"), namespace="store")


def test_a_former_name_gives_way_to_a_tool_that_has_it_now():
    tables = {"one": ToolCuration(name="old"), "two": ToolCuration(name="one")}
    catalog = curated(make(), make("two"), tables=tables)
    assert catalog.find("shop.one").aliases == ("shop.two", "shop_two")
    assert catalog.find("shop.old").aliases == ()


def test_a_namespace_parts_two_sources_whose_tools_have_the_same_names():
    other = Catalog([make(description="Another.")])
    with pytest.raises(DuplicateTool):
        joined((Catalog([make()]), other))
    both = joined((curated(make(), make("two"), namespace="store"), other))
    assert both.find("shop.one").description == "Another."
    assert both.find("store.one").aliases == ()
    assert both.find("shop.two").id == "store.two"
    neither = joined((curated(make(), namespace="a"), curated(make(), namespace="b")))
    assert neither.get("shop.one") is None


def test_a_former_name_that_is_lost_is_reported(tmp_path):
    text = '[sources.shop]\nref = "python:shop.py"\nnamespace = "store"\n[sources.{}]\nref = "{}"\n'
    (tmp_path / "other.py").write_text(
        SHOP.replace("@tool\n", '@tool(namespace="shop")\n'), "utf-8"
    )
    loaded = load(tmp_path, text.format("other", "python:other.py"))
    assert loaded.catalog.find("shop.price").id == "shop.price"
    assert loaded.catalog.find("store.price").aliases == ()
    told = [f.message for f in loaded.report if f.severity == "warning"]
    assert any("'shop.price' is no longer a name of 'store.price'" in text for text in told)


def test_allow_and_deny_go_by_the_ids_from_before(tmp_path):
    text = '[sources.shop]\nref = "python:shop.py"\nnamespace = "store"\ndeny = ["shop.remove"]\n'
    # A table may name a tool that is denied.
    loaded = load(tmp_path, text + '[sources.shop.tools.remove]\ntitle = "x"')
    assert [tool.id for tool in loaded.catalog] == ["store.price"]


# --- texts, rights, policies -----------------------------------------------------------------


def test_texts_are_replaced_or_added_to():
    tool = make(title="One", tags=("a",), annotations={"destructiveHint": True, "x-own": 1})
    changes = {"title": "Uno", "description": "New.", "append_description": "Use it.", "tags": []}
    made = curated(tool, **changes, timeout=5, read_only=True).find("shop.one")
    assert (made.title, made.description, made.tags) == ("Uno", "New.\n\nUse it.", ())
    assert made.timeout == 5
    assert made.annotations == {"destructiveHint": True, "x-own": 1, "readOnlyHint": True}
    appended = curated(tool, append_description="Use it.").find("shop.one")
    assert appended.description == "Does.\n\nUse it."


def test_what_a_table_does_not_say_stays():
    tool = make(title="One", version="2", keywords=("k",), timeout=3.0, search_hint="h")
    assert curated(tool).find("shop.one") is tool
    made = curated(tool, title="Uno").find("shop.one")
    for name in ("id", "wire_name", "description", "contract", "handler", "version", "keywords"):
        assert getattr(made, name) is getattr(tool, name)
    assert (made.timeout, made.search_hint, made.annotations) == (3.0, "h", {})


def test_scopes_are_asked_for_beside_the_declared_ones():
    catalog = curated(make(schema={"type": "object"}, access=["shop:all"]), scopes=["shop:read"])

    async def go(*scopes):
        async with Runtime(catalog) as runtime:
            return await runtime.call(Call("shop.one"), Identity("ann", scopes=scopes))

    assert asyncio.run(go("shop:all", "shop:read")).data == {"ok": True}
    for scopes in (["shop:all"], ["shop:read"], []):
        with pytest.raises(AccessDenied):
            asyncio.run(go(*scopes))


def test_policies_of_one_tool():
    output = {"type": "object", "properties": {"ok": {"type": "string"}}, "required": ["ok"]}
    contract = Contract(input=SCHEMA, output=output, policy="cast")
    tool = make(contract=contract)
    arguments = {"a": 1, "b": "x"}
    assert call(Catalog([tool]), "shop.one", arguments) == {"ok": ""}
    strict = curated(tool, policy="reject")
    with pytest.raises(OutputRejected):
        call(strict, "shop.one", arguments)
    made = strict.find("shop.one").contract
    assert (made.input, made.output, made.input_policy) == (SCHEMA, output, "exact")
    with pytest.raises(InvalidInput):
        call(Catalog([tool]), "shop.one", {"a": "1", "b": "x"})
    tolerant = curated(tool, input_policy="tolerant")
    assert tolerant.find("shop.one").contract.policy == "cast"
    call(tolerant, "shop.one", {"a": "1", "b": "x"})
    assert tool.handler.given[-1]["a"] == 1


def test_a_disabled_tool_is_shown_and_cannot_be_called(tmp_path, run):
    text = '[sources.shop]\nref = "python:shop.py"\n[sources.shop.tools.price]\nenabled = false\n'
    catalog = load(tmp_path, text).catalog
    with pytest.raises(CallError, match=r"disabled in callpact\.toml"):
        call(catalog, "shop.price", {"item": "tea", "currency": "EUR"})
    listed = run("list", "--config", tmp_path / "callpact.toml")
    assert "disabled in callpact.toml" in listed.out + listed.err


# --- arguments -------------------------------------------------------------------------------


def test_a_hidden_argument_is_not_in_the_schema_and_in_every_call():
    tool = make(examples=({"a": 2, "b": "x"},))
    catalog = curated(tool, hidden={"b": "fixed"})
    made = catalog.find("shop.one")
    assert made.contract.input == {
        **SCHEMA,
        "properties": {key: SCHEMA["properties"][key] for key in "ac"},
        "required": ["a"],
    }
    assert made.examples == ({"a": 2},)
    call(catalog, "shop.one", {"a": 1})
    assert tool.handler.given == [{"a": 1, "b": "fixed"}]
    assert tool.contract.input == SCHEMA


@pytest.mark.parametrize(
    "more", [{"additionalProperties": False}, {}, {"patternProperties": {"b": {}}}]
)
def test_a_caller_who_passes_a_hidden_argument_is_refused_like_for_any_undeclared_key(more):
    schema = {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, **more}
    tool = make(schema=schema)
    catalog = curated(tool, hidden={"b": "fixed"})
    with pytest.raises(InvalidInput) as caught:
        call(catalog, "shop.one", {"a": 1, "b": "mine"})
    issue = caught.value.issues[0]
    expected = ("additionalProperties", "Property 'b' is not known", "/b")
    assert (issue.code, issue.message, issue.path) == expected
    assert tool.handler.given == []


def test_a_default_is_shown_and_put_in_when_the_caller_leaves_it_out():
    tool = make()
    catalog = curated(tool, defaults={"a": 7, "c": "x"})
    schema = catalog.find("shop.one").contract.input
    assert schema["properties"]["a"] == {"type": "integer", "minimum": 1, "default": 7}
    assert schema["properties"]["c"] == {"$ref": "#/$defs/kind", "default": "x"}
    assert schema["required"] == ["b"]
    call(catalog, "shop.one", {"b": "t"})
    call(catalog, "shop.one", {"b": "t", "a": 2})
    assert tool.handler.given == [{"a": 7, "c": "x", "b": "t"}, {"a": 2, "c": "x", "b": "t"}]
    with pytest.raises(InvalidInput):
        call(catalog, "shop.one", {"b": "t", "a": 0})


def test_a_handler_cannot_change_the_fixed_value_of_the_next_call():
    seen = []

    async def handler(arguments, context):
        seen.append(list(arguments["tags"]))
        arguments["tags"].append("mine")

    schema = {"type": "object", "properties": {"tags": {"type": "array"}}}
    catalog = curated(make(schema=schema, handler=handler), hidden={"tags": ["a"]})
    call(catalog, "shop.one")
    call(catalog, "shop.one")
    assert seen == [["a"], ["a"]]


@pytest.mark.parametrize("key", ["hidden", "defaults"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"a": "one"}, ("hidden.a", "breaks the schema", "integer")),
        ({"a": 0}, ("hidden.a", "breaks the schema")),
        ({"c": "z"}, ("hidden.c", "breaks the schema")),
        ({"a": float("nan")}, ("hidden.a", "breaks the schema")),
        ({"kind": 1}, ("no argument 'kind'",)),
        ({"bb": 1}, ("no argument 'bb'", "did you mean 'b'?")),
    ],
)
def test_a_value_or_name_that_does_not_fit_is_refused_at_load(key, values, words):
    told = refused(make(), **{key: values})
    assert all(word.replace("hidden", key) in told for word in words)


def test_an_argument_is_hidden_or_has_a_default_not_both():
    assert "'a' is hidden and has a default" in refused(make(), hidden={"a": 1}, defaults={"a": 1})


def test_arguments_that_need_one_another_are_still_needed():
    properties = {name: {"type": "integer"} for name in "abc"}
    needs = {"a": ["b"], "c": ["a", "b"]}
    for keyword, draft in (
        ("dependentRequired", "https://json-schema.org/draft/2020-12/schema"),
        ("dependencies", "http://json-schema.org/draft-07/schema#"),
    ):
        schema = {"$schema": draft, "type": "object", "properties": properties, keyword: needs}
        made = curated(make(schema=schema), hidden={"a": 1}).find("shop.one").contract.input
        assert made["required"] == ["b"]
        assert made[keyword] == {"c": ["b"]}
        made = curated(make(schema=schema), defaults={"b": 1}).find("shop.one").contract.input
        assert made[keyword] == {"c": ["a"]}
        assert "required" not in made


@pytest.mark.parametrize(
    ("more", "keyword"),
    [
        ({"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"b": {}}}}}, "$ref"),
        ({"allOf": [{"properties": {"b": {"type": "string"}}}]}, "allOf"),
        ({"allOf": [{"$ref": "#/$defs/more"}], "$defs": {"more": {}}}, "allOf"),
        ({"anyOf": [{"required": ["b"]}, {"required": ["a"]}]}, "anyOf"),
        ({"if": {"properties": {"b": {"const": "x"}}}, "then": {"required": ["a"]}}, "if"),
        ({"dependentSchemas": {"b": {"required": ["a"]}}}, "dependentSchemas"),
        ({"not": {"required": ["b"]}}, "not"),
        ({"maxProperties": 2}, "maxProperties"),
    ],
)
def test_an_argument_that_more_than_its_property_speaks_of_is_refused(more, keyword):
    schema = {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, **more}
    for key in ("hidden", "defaults"):
        told = refused(make(schema=schema), **{key: {"b": "x"}})
        assert f"'{keyword}'" in told
        assert "cannot be fixed" in told
    without = {**schema, "properties": {"a": {}}}
    if keyword in {"$ref", "allOf"}:  # Reached through the reference alone.
        assert "cannot be fixed" in refused(make(schema=without), hidden={"b": "x"})


def test_a_branch_that_says_nothing_of_an_argument_is_no_obstacle():
    schema = {**SCHEMA, "anyOf": [{"required": ["a"]}, {"required": ["c"]}]}
    tool = make(schema=schema)
    call(curated(tool, hidden={"b": "x"}), "shop.one", {"a": 1})
    assert tool.handler.given == [{"a": 1, "b": "x"}]


def test_a_schema_that_refers_to_a_hidden_argument_is_refused():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}
    assert "input schema cannot be used" in refused(make(schema=schema), hidden={"b": 1})


def test_other_names_of_arguments_keep_working_but_for_hidden_ones():
    tool = make(argument_aliases={"alpha": "a", "beta": "b"})
    catalog = curated(tool, hidden={"b": "x"})
    assert catalog.find("shop.one").argument_aliases == {"alpha": "a"}
    call(catalog, "shop.one", {"alpha": 1})
    assert tool.handler.given == [{"a": 1, "b": "x"}]
    with pytest.raises(InvalidInput):
        call(catalog, "shop.one", {"a": 1, "beta": "y"})


def test_other_names_of_arguments_keep_working_where_a_schema_is_open():
    schema = {key: SCHEMA[key] for key in ("type", "properties", "required", "$defs")}
    tool = make(schema=schema, argument_aliases={"alpha": "a", "beta": "b"})
    catalog = curated(tool, hidden={"b": "x"}, defaults={"a": 7})
    call(catalog, "shop.one", {"alpha": 1})
    call(catalog, "shop.one", {"alpha": 1, "a": 2})
    assert tool.handler.given == [{"a": 1, "b": "x"}, {"a": 2, "alpha": 1, "b": "x"}]
    with pytest.raises(InvalidInput):
        call(catalog, "shop.one", {"beta": "y"})


def test_a_subscription_gets_its_fixed_arguments():
    async def ticks(arguments, context):
        yield arguments
        yield 2

    catalog = curated(make(handler=ticks, kind="subscription"), hidden={"b": "x"})

    async def go():
        async with (
            Runtime(catalog) as runtime,
            aclosing(runtime.subscribe("shop.one", {"a": 1})) as values,
        ):
            return [envelope.data async for envelope in values]

    assert asyncio.run(go()) == [{"a": 1, "b": "x"}, 2]


KINDS = st.sampled_from(
    [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}, {"enum": [1, "x"]}, {}]
)
VALUES = st.one_of(st.integers(0, 2), st.sampled_from(["x", "y"]), st.booleans(), st.none())


@settings(deadline=None, max_examples=150)
@given(
    properties=st.dictionaries(st.sampled_from("abcd"), KINDS, min_size=1),
    required=st.lists(st.sampled_from("abcd"), unique=True),
    needs=st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from("abcd"), unique=True)),
    branch=st.sampled_from([None, "anyOf", "allOf", "not"]),
    closed=st.booleans(),
    hidden=st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=2),
    defaults=st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=2),
    arguments=st.dictionaries(st.sampled_from("abcd"), VALUES),
)
def test_a_handler_gets_only_what_the_own_schema_of_its_tool_accepts(
    *, properties, required, needs, branch, closed, hidden, defaults, arguments
):
    schema = {"properties": properties, "required": required, "dependentRequired": needs}
    if branch == "not":
        schema["not"] = {"required": ["a", "d"]}
    elif branch is not None:
        schema[branch] = [{"required": ["a"]}, {"required": ["b"]}]
    if closed:
        schema["additionalProperties"] = False
    tool = make(schema=schema)
    try:
        catalog = curated(tool, hidden=hidden, defaults=defaults)
    except InvalidConfig:
        return
    try:
        call(catalog, "shop.one", arguments)
    except InvalidInput:
        # Refused by the gate, not behind it, if nobody passed a hidden argument.
        made = catalog.find("shop.one").contract.compiled_input
        assert hidden.keys() & arguments.keys() or check(made, arguments)
    for received in tool.handler.given:
        assert not check(tool.contract.compiled_input, received)
        assert received == {**defaults, **arguments, **hidden}


# --- every source ----------------------------------------------------------------------------


def test_functions_get_typed_fixed_arguments():
    def price(item: str, currency: str, limit: int = 3) -> str:
        """Price."""
        return f"{item} {currency} {limit}"

    (tool,) = from_functions(price, namespace="shop")
    catalog = curated(tool, hidden={"currency": "EUR"}, defaults={"limit": 10})
    assert call(catalog, "shop.price", {"item": "tea"}) == "tea EUR 10"
    assert call(catalog, "shop.price", {"item": "tea", "limit": 1}) == "tea EUR 1"


def test_a_data_tool_is_curated_like_any_other():
    tool = data_tool(
        name="shop.price",
        description="Price.",
        properties={
            "item": PropertyString(required=True),
            "limit": PropertyInteger(required=True, max=9),
        },
        output={"text": PropertyString()},
        handler=lambda given, context: {"text": f"{given['item']} {given['limit']}"},
    )
    catalog = curated(tool, name="ask", hidden={"limit": 5})
    assert call(catalog, "shop.ask", {"item": "tea"}) == {"text": "tea 5"}
    assert "breaks the schema" in refused(tool, hidden={"limit": 10})


def test_a_flowmcp_tool_sends_the_fixed_argument_and_keeps_its_rendering(tmp_path):
    caller = Caller(tmp_path, answer={"id": 1, "price": "much"})
    tool = caller.tool
    catalog = curated(tool, name="price", hidden={"id": "btc"})
    made = catalog.find("price_token-prices")
    assert made.contract.policy == tool.contract.policy == "warn"
    assert made.contract.input["properties"] == {}
    assert made.examples[0] == {"_description": "The price of btc"}
    assert catalog.find("getTokenPrice_token-prices") is made

    async def go():
        async with Runtime(catalog) as runtime:
            return await runtime.execute(tool.id, {})

    envelope = asyncio.run(go())
    assert flowmcp.encode_result(envelope) == {
        "status": True,
        "messages": [],
        "data": {"id": 1, "price": "much"},
    }
    assert len(envelope.warnings) == 2
    assert caller.requests[0].url.endswith("/price/btc")


def test_the_tool_of_another_server_is_curated_like_any_other(tmp_path):
    (tmp_path / "up.py").write_text(SHOP, "utf-8")
    up = f"{sys.executable} -m callpact serve --stdio --audit off -s python:{tmp_path / 'up.py'}"
    text = CONFIG.replace("python:shop.py", f"mcp:{up}").replace("tools.price", "tools.up_price")

    async def go():
        (tmp_path / "callpact.toml").write_text(text, "utf-8")
        async with Session(Options(config=tmp_path / "callpact.toml")) as session:
            await session.load()
            async with Runtime(session.catalog) as runtime:
                return (await runtime.execute("store.get_price", {"item": "tea"})).data

    assert asyncio.run(asyncio.wait_for(go(), 60)) == "tea EUR 10"


def test_a_table_for_a_server_that_is_down_refuses_nothing(tmp_path):
    down = f"mcp:{sys.executable} -c pass"
    text = f'[sources.b]\nref = "python:shop.py"\n[sources.a]\nref = "{down}"\n[sources.a.tools.x]'
    loaded = load(tmp_path, text)
    assert loaded.catalog.get("b.price")
    assert [part.trouble for part in loaded.parts] == [None, None]
    assert any(f.place == "sources.a.tools.x" for f in loaded.report)


# --- the configuration -----------------------------------------------------------------------

CONFIG = """
[sources.shop]
ref = "python:shop.py"
namespace = "store"

[sources.shop.tools.price]
name = "get_price"
append_description = "In euros."
hidden = { currency = "EUR" }
defaults = { limit = 10 }
timeout = 5
"""


def test_the_commands_use_the_curated_tool(tmp_path, run):
    load(tmp_path, CONFIG)
    at = ("--config", tmp_path / "callpact.toml")
    shown = json.loads(run("show", "store.get_price", "--json", *at).out)
    assert "currency" not in json.dumps(shown)
    assert shown["description"] == "The price of an item.\n\nIn euros."
    for name in ("store.get_price", "shop.price"):
        assert run("call", name, "item=tea", *at).out == '"tea EUR 10"\n'
    refusal = run("call", "store.get_price", "item=tea", "currency=USD", *at)
    assert refusal.code
    assert "'currency' is not known" in refusal.err


def test_a_wrong_table_refuses_the_source_with_its_place(tmp_path):
    with pytest.raises(InvalidConfig, match=r"sources\.shop\.tools\.prise: .*'price'"):
        load(tmp_path, '[sources.shop]\nref = "python:shop.py"\n[sources.shop.tools.prise]')
    text = '[sources.shop]\nref = "python:shop.py"\n[sources.shop.tools.price]\n'
    with pytest.raises(InvalidConfig, match=r"hidden\.currency: .*breaks the schema"):
        load(tmp_path, text + 'hidden = { currency = "E" }')
    with pytest.raises(InvalidConfig, match=r"defaults: .*'curency'; did you mean 'currency'"):
        load(tmp_path, text + 'defaults = { curency = "EUR" }')


def test_a_source_timeout_and_policy_give_way_to_those_of_a_tool(tmp_path):
    text = CONFIG.replace('"store"', '"store"\ntimeout = 9\npolicy = "pass"') + 'policy = "reject"'
    catalog = load(tmp_path, text).catalog
    price, remove = catalog.find("shop.price"), catalog.find("shop.remove")
    assert (price.timeout, price.contract.policy) == (5, "reject")
    assert (remove.timeout, remove.contract.policy) == (9, "pass")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_over_stdio_sees_and_calls_the_curated_tool(tmp_path, mode):
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    args = ["-m", "callpact", "serve", "--stdio", "--config", str(tmp_path / "callpact.toml")]
    parameters = StdioServerParameters(
        command=sys.executable, args=args, env={**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    )

    async def go():
        async with Client(parameters, mode=mode) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            price = listed["store_get_price"]
            assert price.description == "The price of an item.\n\nIn euros."
            assert set(price.input_schema["properties"]) == {"item", "limit"}
            assert price.input_schema["properties"]["limit"]["default"] == 10
            for name in ("store_get_price", "shop_price"):
                result = await client.call_tool(name, {"item": "tea"})
                assert "tea EUR 10" in result.content[0].text
            assert [p.name for p in (await client.list_prompts()).prompts] == ["store_greet"]
            for name in ("store_greet", "shop_greet"):
                filled = await client.get_prompt(name, {"name": "Ann"})
                assert filled.messages[0].content.text == "Hello Ann"
            refusal = await client.call_tool("store_get_price", {"item": "tea", "currency": "USD"})
            assert refusal.is_error
            assert "'currency' is not known" in refusal.content[0].text

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_changed_source_is_curated_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = first(tmp_path, "shop.py", SHOP)
    configure(tmp_path, CONFIG)

    async def story(at):
        assert await at.call("store.get_price", {"item": "tea"}) == "tea EUR 10"
        path.write_text(SHOP.replace('{limit}"', '{limit}!"'), "utf-8")
        await at.log.until("shop.py changed")
        assert await at.call("store.get_price", {"item": "tea"}) == "tea EUR 10!"
        path.write_text(SHOP.replace("currency", "money"), "utf-8")
        await at.log.until("no argument 'currency'")
        assert await at.call("store.get_price", {"item": "tea"}) == "tea EUR 10!"

    watch(story)
