"""Arguments of curated tools under other names and texts; fixed ones are in test_curation.py."""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callpact import from_functions
from callpact.catalog import Catalog
from callpact.errors import InvalidConfig, InvalidInput
from callpact.runtime import Runtime
from callpact.schema import check
from callpact.sources.curation import Curation, ToolCuration, curate
from callpact.tool import Contract, Tool
from schema_file import Caller

SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "Query."},
        "per_page": {"type": "integer", "minimum": 1},
        "sort": {"$ref": "#/$defs/order"},
    },
    "required": ["q", "per_page"],
    "additionalProperties": False,
    "$defs": {"order": {"enum": ["asc", "desc"]}},
}


def make(schema=SCHEMA, handler=None, **fields):
    given_to = []

    async def remember(arguments, context):
        given_to.append(arguments)

    tool = Tool(
        id="shop.find",
        description="Finds.",
        contract=Contract(input=schema),
        handler=handler or remember,
        **fields,
    )
    return tool, given_to


def curated(tool, **changes):
    whole = Catalog([tool])
    curation = Curation(place="sources.shop", tools={tool.id: ToolCuration(**changes)})
    return Catalog(curate(whole, whole, curation, is_complete=True))


def refused(tool, **changes) -> str:
    with pytest.raises(InvalidConfig) as caught:
        curated(tool, **changes)
    return str(caught.value)


def call(catalog, arguments, name="shop.find"):
    async def go():
        async with Runtime(catalog) as runtime:
            return await runtime.execute(name, arguments)

    return asyncio.run(go())


def issues_of(catalog, arguments, name="shop.find"):
    with pytest.raises(InvalidInput) as caught:
        call(catalog, arguments, name)
    return [(issue.path, issue.message) for issue in caught.value.issues]


# --- names -----------------------------------------------------------------------------------


def test_a_caller_gives_the_new_name_and_the_handler_gets_the_own_one():
    schema = {
        **SCHEMA,
        "dependentRequired": {"per_page": ["q"], "sort": ["per_page"]},
        "examples": [{"q": "a", "per_page": 1}],
        "default": {"per_page": 1},
    }
    tool, seen = make(schema, examples=({"q": "tea", "per_page": 5},))
    catalog = curated(tool, rename={"per_page": "limit"})
    made = catalog.find("shop.find")
    assert made.contract.input == {
        **SCHEMA,
        "properties": {
            "q": SCHEMA["properties"]["q"],
            "limit": SCHEMA["properties"]["per_page"],
            "sort": SCHEMA["properties"]["sort"],
        },
        "required": ["q", "limit"],
        "dependentRequired": {"limit": ["q"], "sort": ["limit"]},
        "examples": [{"q": "a", "limit": 1}],
        "default": {"limit": 1},
    }
    assert made.examples == ({"q": "tea", "limit": 5},)
    call(catalog, {"q": "tea", "limit": 3})
    assert seen == [{"q": "tea", "per_page": 3}]
    assert tool.contract.input == schema


def test_issues_name_the_argument_as_the_caller_does():
    tool, _ = make()
    catalog = curated(tool, rename={"per_page": "limit"})
    assert issues_of(catalog, {"q": "a"}) == [("/limit", "Property 'limit' is required")]
    assert issues_of(catalog, {"q": "a", "limit": 0}) == [
        ("/limit", "Property 'limit' must be ≥ 1, got 0")
    ]


def test_issues_from_behind_the_gate_name_the_argument_as_the_caller_does():
    def find(since: list[dt.date], q: str = "") -> str:
        """Find."""
        return f"{since} {q}"

    (tool,) = from_functions(find, namespace="shop")
    catalog = curated(tool, rename={"since": "from/day"})
    (path, message), *others = issues_of(catalog, {"from/day": ["2020-20-20"]})
    assert not others
    assert path == "/from~1day/0"
    assert "since" not in message
    assert "2020" in call(catalog, {"from/day": ["2020-01-20"]}).data


def test_issues_of_the_own_schema_name_the_argument_as_the_caller_does():
    # What is fixed can make the own schema refuse what the curated one admits.
    schema = {
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}},
        "anyOf": [{"required": ["c"]}],
    }
    tool, seen = make(schema)
    catalog = curated(tool, rename={"a": "x"})
    assert issues_of(catalog, {"x": 1})
    call(catalog, {"x": 1, "c": 2})
    assert seen == [{"a": 1, "c": 2}]


def test_the_own_name_stays_as_an_alias_with_a_warning():
    tool, seen = make(argument_aliases={"n": "per_page", "query": "q"})
    catalog = curated(tool, rename={"per_page": "limit"})
    made = catalog.find("shop.find")
    assert made.argument_aliases == {"n": "limit", "query": "q", "per_page": "limit"}
    for name in ("per_page", "n"):
        envelope = call(catalog, {"q": "a", name: 3})
        assert [issue.code for issue in envelope.warnings] == ["renamed"]
    assert seen == [{"q": "a", "per_page": 3}] * 2


def test_an_open_schema_takes_the_own_name_but_not_both():
    tool, seen = make({key: SCHEMA[key] for key in ("type", "properties", "$defs")})
    catalog = curated(tool, rename={"per_page": "limit"})
    call(catalog, {"per_page": 3})
    call(catalog, {"limit": 4, "other": 1})
    assert seen == [{"per_page": 3}, {"per_page": 4, "other": 1}]
    assert issues_of(catalog, {"limit": 4, "per_page": 3}) == [
        ("/per_page", "Property 'per_page' is not known")
    ]


def test_two_arguments_can_swap_their_names():
    tool, seen = make({"type": "object", "properties": {"a": {}, "b": {}}})
    catalog = curated(tool, rename={"a": "b", "b": "a"})
    assert catalog.find("shop.find").argument_aliases == {}
    call(catalog, {"a": 1, "b": 2})
    assert seen == [{"b": 1, "a": 2}]


def test_fixed_arguments_and_defaults_go_by_the_own_names():
    tool, seen = make()
    changes = {"rename": {"per_page": "limit"}, "defaults": {"per_page": 7}}
    catalog = curated(tool, **changes, hidden={"sort": "asc"})
    made = catalog.find("shop.find").contract.input
    assert made["properties"]["limit"]["default"] == 7
    assert made["required"] == ["q"]
    call(catalog, {"q": "a"})
    call(catalog, {"q": "a", "limit": 2})
    assert seen == [
        {"q": "a", "per_page": 7, "sort": "asc"},
        {"q": "a", "per_page": 2, "sort": "asc"},
    ]


def test_a_subscription_gets_its_own_names():
    async def ticks(arguments, context):
        yield arguments
        raise InvalidInput(lambda: ())

    tool, _ = make(handler=ticks, kind="subscription")
    catalog = curated(tool, rename={"per_page": "limit"})

    async def go():
        async with (
            Runtime(catalog) as runtime,
            aclosing(runtime.subscribe("shop.find", {"q": "a", "limit": 1})) as values,
        ):
            return (await anext(values)).data

    assert asyncio.run(go()) == {"q": "a", "per_page": 1}


def test_a_flowmcp_tool_sends_a_renamed_argument(tmp_path):
    caller = Caller(tmp_path, answer={"id": "btc", "price": 1})
    catalog = curated(caller.tool, rename={"id": "token"})
    call(catalog, {"token": "btc"}, caller.tool.id)
    assert caller.requests[0].url.endswith("/price/btc")
    assert catalog.find(caller.tool.id).examples[0]["token"] == "btc"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rename": {"perpage": "limit"}}, ("rename", "no argument 'perpage'", "'per_page'")),
        ({"rename": {"per_page": "q"}}, ("'q' and 'per_page' both get the name 'q'",)),
        ({"rename": {"q": "x", "sort": "x"}}, ("'q' and 'sort' both get the name 'x'",)),
        ({"rename": {"sort": "x"}, "hidden": {"sort": "asc"}}, ("'sort' is hidden",)),
        ({"rename": {"q": "sort"}, "hidden": {"sort": "asc"}}, ("both get the name 'sort'",)),
        ({"describe": {"sort": "x"}, "hidden": {"sort": "asc"}}, ("'sort' is hidden",)),
        ({"describe": {"srot": "x"}}, ("describe", "did you mean 'sort'?")),
        (
            {"describe": {"limit": "x"}, "rename": {"per_page": "limit"}},
            ("by the source's name it is 'per_page'",),
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_load(changes, words):
    told = refused(make()[0], **changes)
    assert told.startswith("sources.shop.tools.shop.find")
    assert all(word in told for word in words)


@pytest.mark.parametrize(
    ("more", "keyword"),
    [
        ({"$ref": "#/$defs/all", "$defs": {"all": {}}}, "$ref"),
        ({"allOf": [{"properties": {"b": {"type": "string"}}}]}, "allOf"),
        ({"anyOf": [{"required": ["b"]}, {"required": ["a"]}]}, "anyOf"),
        ({"if": {"properties": {"b": {"const": "x"}}}}, "if"),
        ({"dependentSchemas": {"b": {"required": ["a"]}}}, "dependentSchemas"),
        ({"patternProperties": {"^b": {"type": "string"}}}, "patternProperties"),
        ({"propertyNames": {"maxLength": 1}}, "propertyNames"),
        ({"enum": [{"b": "x"}]}, "enum"),
    ],
)
def test_an_argument_that_more_than_its_property_speaks_of_is_not_renamed(more, keyword):
    tool, _ = make({"type": "object", "properties": {"a": {}, "b": {}}, **more})
    told = refused(tool, rename={"b": "x"})
    assert f"'b' of 'shop.find' cannot be renamed: '{keyword}'" in told


@pytest.mark.parametrize(
    "reference", ["#/properties/b", "#/properties/b/items", "#/properties/%62"]
)
def test_an_argument_whose_schema_is_referred_to_is_not_renamed(reference):
    properties = {"a": {"$ref": reference}, "b": {"items": {}}}
    tool, _ = make({"type": "object", "properties": properties})
    assert "its schema is referred to" in refused(tool, rename={"b": "a2", "a": "b"})


VALUES = st.one_of(st.integers(0, 2), st.sampled_from(["x", "y"]))
NAMES = st.sampled_from("abcd")


@settings(deadline=None, max_examples=100)
@given(
    required=st.lists(NAMES, unique=True),
    needs=st.dictionaries(NAMES, st.lists(NAMES, unique=True)),
    is_closed=st.booleans(),
    rename=st.dictionaries(NAMES, st.sampled_from("abxyz"), max_size=3),
    hidden=st.dictionaries(NAMES, VALUES, max_size=1),
    arguments=st.dictionaries(NAMES, VALUES),
)
def test_the_curated_schema_accepts_the_renamed_arguments_that_the_own_one_accepts(
    *, required, needs, is_closed, rename, hidden, arguments
):
    schema = {
        "properties": {name: {"type": "integer"} for name in "abcd"},
        "required": required,
        "dependentRequired": needs,
    }
    if is_closed:
        schema["additionalProperties"] = False
    tool, seen = make(schema)
    try:
        catalog = curated(tool, rename=rename, hidden=hidden)
    except InvalidConfig:
        return
    visible = {key: value for key, value in arguments.items() if key not in hidden}
    sent = {rename.get(key, key): value for key, value in visible.items()}
    whole = {**visible, **hidden}
    curated_schema = catalog.find("shop.find").contract.compiled_input
    assert bool(check(curated_schema, sent)) == bool(check(tool.contract.compiled_input, whole))
    if not check(curated_schema, sent):
        call(catalog, sent)
        assert seen == [whole]


# --- texts -----------------------------------------------------------------------------------


def test_arguments_get_other_descriptions():
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "any": True, "none": False}}
    tool, _ = make(schema)
    texts = {"q": "Words.", "sort": "Order.", "any": "Any.", "none": "None."}
    made = curated(tool, describe=texts).find("shop.find")
    assert made.contract.input["properties"] == {
        **schema["properties"],
        "q": {"type": "string", "description": "Words."},
        "sort": {"$ref": "#/$defs/order", "description": "Order."},
        "any": {"description": "Any."},
    }
    assert made.handler is tool.handler


def test_a_renamed_argument_is_described_by_its_own_name():
    tool, _ = make()
    made = curated(tool, rename={"q": "query"}, describe={"q": "Words."}).find("shop.find")
    assert made.contract.input["properties"]["query"]["description"] == "Words."


def test_an_argument_behind_a_reference_at_the_root_is_not_described():
    tool, _ = make({"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"q": {}}}}})
    assert "no argument 'q'" in refused(tool, describe={"q": "Words."})
