"""The catalog: one name, one tool; nothing silent, nothing half-registered."""

from __future__ import annotations

import pytest

from callpact.catalog import Catalog
from callpact.errors import DuplicateTool, InvalidTool, UnknownTool
from callpact.tool import Contract, Tool

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def _handler(arguments, context):
    return None


def _tool(id, **fields):
    return Tool(id=id, description="", contract=Contract(output=OBJECT), handler=_handler, **fields)


SEARCH = _tool("shop.search", aliases=["find"])
ORDER = _tool("shop.order")
WEATHER = _tool("sky.weather")
CATALOG = Catalog([SEARCH, ORDER, WEATHER])


def test_a_catalog_takes_any_iterable_and_iterates_over_its_tools_in_order():
    assert list(Catalog(iter([SEARCH, ORDER]))) == [SEARCH, ORDER]
    assert list(Catalog(CATALOG)) == [SEARCH, ORDER, WEATHER]
    assert list(Catalog()) == []
    assert len(CATALOG) == 3


@pytest.mark.parametrize("name", ["shop.search", "shop_search", "find"])
def test_a_tool_is_found_by_id_wire_name_and_alias(name):
    assert CATALOG.find(name) is SEARCH
    assert name in CATALOG


@pytest.mark.parametrize("name", ["", "shop", "SHOP.search", 5, None, ["shop.search"]])
def test_anything_else_is_an_unknown_tool(name):
    with pytest.raises(UnknownTool) as caught:
        CATALOG.find(name)
    assert caught.value.code == "tool_not_found"
    assert name not in CATALOG


@pytest.mark.requirement("001.execute.looks-up")
def test_an_unknown_tool_comes_with_the_nearest_names():
    with pytest.raises(UnknownTool, match=r"did you mean 'shop.search'"):
        CATALOG.find("shop.serch")
    with pytest.raises(UnknownTool, match=r"did you mean 'shop_search'"):
        CATALOG.find("shop.serch", uses_wire_names=True)
    with pytest.raises(UnknownTool) as caught:
        CATALOG.find("zzz")
    assert "did you mean" not in caught.value.message


def test_the_nearest_name_is_also_found_among_thousands():
    many = Catalog([*(_tool(f"bulk.item_{n}") for n in range(1000)), SEARCH])
    with pytest.raises(UnknownTool, match=r"did you mean 'shop.search'"):
        many.find("shop.serach")


def test_a_hostile_name_is_cut_in_the_error():
    with pytest.raises(UnknownTool) as caught:
        CATALOG.find("x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        (_tool("a.b", source="one.py"), _tool("a.b", source="two.py"), "a.b"),
        (_tool("a.b_c", source="one.py"), _tool("a_b.c", source="two.py"), "a_b_c"),
        (_tool("a.b", source="one.py"), _tool("c.d", source="two.py", wire_name="a_b"), "a_b"),
        (_tool("a.b", source="one.py"), _tool("c.d", source="two.py", aliases=["a.b"]), "a.b"),
        (
            _tool("a.b", source="one.py", aliases=["old"]),
            _tool("c.d", source="two.py", aliases=["old"]),
            "old",
        ),
    ],
)
@pytest.mark.parametrize("policy", [None, "warn"])
def test_two_tools_under_one_name_are_an_error_that_names_both_sources(first, second, name, policy):
    for pair in ([first, second], [second, first]):
        with pytest.raises(DuplicateTool) as caught:
            Catalog(pair, policy=policy)
        assert caught.value.name == name
        for tool in pair:
            assert f"{tool.source} ('{tool.id}')" in str(caught.value)


@pytest.mark.parametrize("policy", [None, "warn"])
def test_the_very_same_tool_twice_is_no_collision(policy):
    assert len(Catalog([SEARCH, SEARCH], policy=policy)) == 1
    assert len(CATALOG | CATALOG.select("shop.*")) == 3


def test_two_catalogs_join_into_a_third_and_collide_like_any_tools():
    left, right = Catalog([SEARCH]), Catalog([WEATHER])
    assert list(left | right) == [SEARCH, WEATHER]
    assert len(left) == len(right) == 1
    with pytest.raises(DuplicateTool):
        _ = left | Catalog([_tool("shop.search")])


@pytest.mark.parametrize("bad", [5, None, SEARCH])
def test_what_is_not_a_list_of_tools_is_refused(bad):
    with pytest.raises(InvalidTool, match="a catalog takes a list of Tools, got"):
        Catalog(bad)


@pytest.mark.parametrize("bad", [[5], ["shop.search"], [None], "abc", [_handler], {"a": SEARCH}])
def test_what_is_not_a_tool_is_refused_with_the_way_to_make_one(bad):
    with pytest.raises(InvalidTool, match=r"a catalog holds Tools, got .*from_functions"):
        Catalog(bad)


def test_a_catalog_cannot_be_changed():
    with pytest.raises(AttributeError):
        CATALOG.tools = []
    with pytest.raises(TypeError):
        CATALOG["shop.search"] = ORDER
    tools = [SEARCH]
    catalog = Catalog(tools)
    tools.append(ORDER)
    assert len(catalog) == 1


@pytest.mark.parametrize(
    ("allow", "deny", "ids"),
    [
        ((), (), ["shop.search", "shop.order", "sky.weather"]),
        (["shop.*"], (), ["shop.search", "shop.order"]),
        (["shop.*"], ["*.order"], ["shop.search"]),
        ((), ["shop.*"], ["sky.weather"]),
        (["none.*"], (), []),
        ("sky.*", (), ["sky.weather"]),
        ((), "shop.*", ["sky.weather"]),
    ],
)
def test_a_selection_is_a_new_catalog_of_what_is_allowed_and_not_denied(allow, deny, ids):
    chosen = CATALOG.select(allow, deny)
    assert [tool.id for tool in chosen] == ids
    assert len(CATALOG) == 3


def test_namespaces_stand_in_the_order_of_their_first_tool():
    assert CATALOG.namespaces == ("shop", "sky")


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("shop.search", "shop"),
        ("shop_search", "shop"),
        ("find", "shop"),
        ("cellar.key", "cellar"),
        ("key", "key"),
        ("", ""),
    ],
)
def test_a_name_is_in_the_namespace_of_its_tool_or_in_the_one_that_it_says(name, namespace):
    assert CATALOG.namespace_of(name) == namespace


@pytest.mark.parametrize("name", [None, 5, ["shop.search"], {"shop": 1}, b"shop.search"])
def test_what_cannot_be_a_name_is_in_no_namespace_that_there_is(name):
    assert CATALOG.namespace_of(name) not in CATALOG.namespaces


def test_a_policy_for_all_replaces_every_tools_own():
    strict = Catalog(CATALOG, policy="reject")
    assert {tool.contract.policy for tool in strict} == {"reject"}
    assert strict.find("find").contract.policy == "reject"
    assert {tool.contract.policy for tool in CATALOG} == {"cast"}
    with pytest.raises(InvalidTool, match="policy must be one of"):
        Catalog(CATALOG, policy="loose")


def test_a_catalog_shows_what_it_holds():
    assert repr(CATALOG) == "Catalog(3 tools: shop.search, shop.order, sky.weather)"
