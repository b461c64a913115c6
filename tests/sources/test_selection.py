"""Selection by rule: tags, paths, methods, operations, deprecated, for the tools of any source."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import deprecated

from callpact import from_functions
from callpact.app import Options, Session
from callpact.catalog import Catalog
from callpact.errors import InvalidConfig
from callpact.resources import Prompt
from callpact.sources.curation import Curation, curate
from callpact.sources.selection import SelectionRules
from callpact.tool import Contract, Origin, Tool
from schema_file import Caller


async def _nothing(arguments, context):
    return None


def make(name, *tags, **origin):
    return Tool(
        id=f"shop.{name}",
        description="Does.",
        contract=Contract(),
        handler=_nothing,
        tags=tags,
        origin=Origin(**origin),
    )


PETS = (
    make("list", "pets", method="GET", path="/pets", operation="pets/list"),
    make("get", "pets", "read", method="GET", path="/pets/{id}", operation="pets/get"),
    make("add", "pets", method="POST", path="/pets", operation="pets/add"),
    make("old", "admin", method="GET", path="/old", operation="old", deprecated=True),
    make("bare"),
)


def chosen(select=None, exclude=None, tools=PETS, complete=True):
    """The names of the tools that rules select, and the messages of the report."""
    whole = Catalog(tools, prompts=[Prompt(tool=make("greet"))])
    curation = Curation(
        place="sources.shop",
        select=SelectionRules(**select or {}),
        exclude=SelectionRules(**exclude or {}),
    )
    made = curate(whole, whole, curation, is_complete=complete)
    assert [prompt.tool.id for prompt in made.prompts] == ["shop.greet"]
    return [tool.name for tool in made], [found.message for found in made.report]


def refused(**rules) -> str:
    with pytest.raises(InvalidConfig) as caught:
        chosen(**rules)
    return str(caught.value)


# --- where the values come from --------------------------------------------------------------


def test_a_flowmcp_tool_has_the_method_and_the_path_of_its_request(tmp_path):
    assert Caller(tmp_path).tool.origin == Origin("GET", "/price/{{id}}")


def test_a_function_that_is_marked_as_deprecated_is_a_deprecated_tool():
    @deprecated("Use new.")
    def old() -> int:
        return 1

    def new() -> int:
        return 1

    made = from_functions(old, new, namespace="shop")
    assert [tool.origin for tool in made] == [Origin(deprecated=True), Origin()]


# --- the rules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ({"tags": ["pets"]}, ["list", "get", "add"]),
        ({"tags": ["re*", "admin"]}, ["get", "old"]),
        ({"paths": ["/pets"]}, ["list", "add"]),
        ({"paths": ["/pets/*"]}, ["get"]),
        ({"paths": ["/pets*"], "methods": ["GET"]}, ["list", "get"]),
        ({"methods": ["POST", "DELETE"]}, ["add"]),
        ({"operations": ["pets/[lg]*"]}, ["list", "get"]),
        ({"operations": ["bare"]}, ["bare"]),
        ({"deprecated": True}, ["old"]),
        ({"deprecated": False}, ["list", "get", "add", "bare"]),
        ({"tags": ["pets"], "operations": ["*/add", "*/get"], "methods": ["GET"]}, ["get"]),
    ],
)
def test_a_tool_is_selected_if_every_rule_fits_it(select, names):
    assert chosen(select) == (names, [])


@pytest.mark.parametrize(
    ("exclude", "names"),
    [
        ({"tags": ["pets"]}, ["old", "bare"]),
        ({"methods": ["POST"], "deprecated": True}, ["list", "get", "bare"]),
        ({"methods": ["DELETE"]}, ["list", "get", "add", "old", "bare"]),
        ({"deprecated": False}, ["old"]),
    ],
)
def test_a_tool_is_left_out_if_one_rule_of_exclude_fits_it(exclude, names):
    assert chosen(exclude=exclude) == (names, [])


def test_exclude_takes_away_from_what_select_has_chosen():
    assert chosen({"tags": ["pets"]}, {"methods": ["POST"]}) == (["list", "get"], [])


def test_what_the_source_gives_rather_than_a_table_decides():
    whole = Catalog(PETS)
    curation = Curation(place="p", namespace="zoo", select=SelectionRules(operations=["pets/get"]))
    made = curate(whole, whole, curation, is_complete=True)
    assert [tool.id for tool in made] == ["zoo.get"]


# --- rules that fit nothing ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"tags": ["pet"]}, ("tags: 'pet' fits no tool", "did you mean 'pets'?")),
        ({"paths": ["/pats"]}, ("paths: '/pats'", "did you mean '/pets'?")),
        ({"operations": ["pets/lst"]}, ("operations: 'pets/lst'", "did you mean 'pets/list'?")),
        ({"methods": ["GTE"]}, ("methods: 'GTE'", "did you mean 'GET'?")),
        ({"tags": ["pets", "zebra"]}, ("'zebra'", "there are pets, read, admin")),
    ],
)
@pytest.mark.parametrize("key", ["select", "exclude"])
def test_a_rule_that_fits_nothing_is_an_error_with_the_nearest_name(key, rules, words):
    told = refused(**{key: rules})
    assert told.startswith(f"sources.shop.{key}.")
    assert all(word in told for word in words)


def test_a_rule_about_something_that_no_tool_has_is_an_error():
    told = refused(select={"paths": ["/pets"]}, tools=[make("bare")])
    assert "no tool of the source has paths" in told


def test_all_rules_that_fit_nothing_are_in_one_error():
    told = refused(select={"tags": ["pet"], "paths": ["/pats"]}, exclude={"tags": ["amin"]})
    assert all(word in told for word in ("'pets'", "'/pets'", "'admin'"))


def test_a_rule_of_a_source_that_is_not_complete_is_a_warning():
    names, told = chosen(exclude={"tags": ["pet"]}, complete=False)
    assert len(names) == len(PETS)
    assert told == [
        "sources.shop.exclude.tags: 'pet' fits no tool of the source; did you mean 'pets'?"
    ]


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        ({"select": {"tags": ["pets"], "deprecated": True}}, "select"),
        ({"exclude": {"operations": ["*"]}}, "exclude"),
    ],
)
def test_rules_that_leave_no_tool_are_an_error(rules, place):
    assert refused(**rules) == f"sources.shop.{place}: it leaves none of the 5 tools"


# --- the configuration -----------------------------------------------------------------------

SHOP = '''
from callpact import prompt, tool

@prompt
def greet() -> str:
    """Greet."""
    return "Hello"

@tool(tags=["read"])
def price() -> int:
    """Price."""
    return 1

@tool(tags=["write"])
def order() -> int:
    """Order."""
    return 1
'''


def load(folder, text):
    (folder / "shop.py").write_text(SHOP, "utf-8")
    (folder / "callpact.toml").write_text(
        f'[sources.shop]\nref = "python:shop.py"\n{text}', "utf-8"
    )

    async def go():
        async with Session(Options(config=folder / "callpact.toml")) as session:
            await session.load()
            return session.catalog

    return asyncio.run(go())


@pytest.mark.parametrize(
    "text",
    [
        '[sources.shop.select]\ntags = ["read"]',
        'exclude = { tags = ["write"] }',
        'select = { operations = ["pr*"], deprecated = false }',
    ],
)
def test_a_table_of_rules_selects_the_tools_of_a_source(tmp_path, text):
    catalog = load(tmp_path, text)
    assert [tool.id for tool in catalog] == ["shop.price"]
    assert [prompt.tool.id for prompt in catalog.prompts] == ["shop.greet"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('select = { tag = ["a"] }', "sources.shop.select.tag is not known; known here: tags, "),
        ('exclude = { methods = ["get"] }', "sources.shop.exclude.methods.0"),
        ('select = { tags = "read" }', "sources.shop.select.tags"),
        ('select = { tags = [""] }', "sources.shop.select.tags.0"),
    ],
)
def test_a_wrong_rule_is_reported_with_its_place(tmp_path, text, words):
    with pytest.raises(InvalidConfig) as caught:
        load(tmp_path, text)
    assert words in str(caught.value)
