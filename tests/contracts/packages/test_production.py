"""Tools held to a published version: what callers see is published, what runs is the code."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from callpact import (
    Catalog,
    Contract,
    InvalidInput,
    OutputRejected,
    Prompt,
    Resource,
    Runtime,
    Tool,
    tool,
)
from callpact.contracts.packages.package_form import encode_contracts, published_contracts
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST
from callpact.contracts.packages.production import Production
from callpact.errors import CodeOutdated, Failed, UsageError
from callpact.sources import from_functions
from callpact.tool import Access, Disabled


def made(function, **more):
    return from_functions([tool(function, **more)], namespace="shop")[0]


async def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    """The price of an item."""
    return {"tea": 2.5}.get(item, 1.0) if currency == "EUR" else 3.0


@pytest.fixture
def publish(tmp_path):
    """Publishes a catalog as the next version of `shop`."""
    store, published = PackageStore(tmp_path / "contracts"), []

    def publish_(*tools, **more):
        contracts = encode_contracts(published_contracts(Catalog(tools, **more), tmp_path))
        version = published[-1].bumped("minor") if published else FIRST
        newest = published[-1] if published else None
        assert store.publish("shop", version, contracts, newest=newest, created="")
        published.append(version)
        return store

    return publish_


def call(catalog, arguments, id="shop.price"):
    async def go():
        async with Runtime(catalog) as runtime:
            return (await runtime.execute(id, arguments)).data

    return asyncio.run(go())


def held(store, *tools, **more):
    return Production(store, "shop", "^1").held(Catalog(tools, **more))


def test_a_caller_sees_the_published_names_texts_and_schemas(publish):
    old = made(price, description="Old.", tags=["money"])
    (found,) = held(publish(old), made(price, description="New.", tags=["other"]))
    assert (found.description, found.tags, found.version) == ("Old.", ("money",), "shop@1.0.0")


def test_a_caller_needs_the_rights_of_the_published_version_and_of_the_sources(publish):
    store = publish(made(price, access=["buy"]))
    (found,) = held(store, made(price))
    assert found.access == Access(("buy",))
    (found,) = held(store, made(price, access=Access(["pay"], ["eu", "us"], "shop", "read")))
    assert found.access == Access(("buy", "pay"), ("eu", "us"), "shop", "read")


@pytest.mark.parametrize(
    ("published", "own", "expected"),
    [
        (("eu", "us"), ("us", "asia"), ("us",)),
        (("eu", "us"), ("asia",), None),
        (("eu",), ("eu", "us"), ("eu",)),
    ],
)
def test_one_of_the_scopes_must_be_in_both_lists_or_the_tool_is_disabled(
    publish, published, own, expected
):
    store = publish(made(price, access=Access(any_scopes=published)))
    (found,) = held(store, made(price, access=Access(any_scopes=own)))
    if expected is None:
        assert found.disabled is not None
        assert "asks for other rights than its code" in found.disabled.reason
    else:
        assert (found.disabled, found.access) == (None, Access(any_scopes=expected))


def test_rights_to_two_resources_disable_the_tool(publish):
    store = publish(made(price, access=Access((), (), "shop", "read")))
    (found,) = held(store, made(price, access=Access((), (), "shop", "write")))
    assert found.disabled is not None


def test_a_contract_that_is_the_published_one_keeps_the_order_of_its_keys(publish):
    (found,) = held(publish(made(price)), made(price))
    assert list(found.contract.input["properties"]) == ["item", "currency"]


def test_a_schema_that_is_published_as_the_code_has_it_is_not_compiled_again(publish):
    async def wider(item: str, currency: Literal["EUR", "USD", "CHF"] = "EUR") -> float:
        return 4.0

    store, live = publish(made(price)), made(wider, name="price")
    (found,) = Production(store, "shop", "^1", Catalog([live])).held(Catalog([live]))
    assert found.contract.compiled_output is live.contract.compiled_output
    assert found.contract.input["properties"]["currency"]["enum"] == ["EUR", "USD"]


def test_what_is_not_published_is_not_served(publish):
    async def refund(item: str) -> str:
        return item

    catalog = held(publish(made(price)), made(price), made(refund))
    assert [each.id for each in catalog] == ["shop.price"]


def test_input_that_only_the_code_takes_is_refused(publish):
    async def wider(item: str, currency: Literal["EUR", "USD", "CHF"] = "EUR") -> float:
        return 4.0

    catalog = held(publish(made(price)), made(wider, name="price"))
    assert call(catalog, {"item": "tea", "currency": "USD"}) == 4.0
    with pytest.raises(InvalidInput):
        call(catalog, {"item": "tea", "currency": "CHF"})


def test_input_that_the_code_no_longer_takes_is_an_error_of_the_server_and_nothing_runs(publish):
    async def narrower(item: str, currency: Literal["EUR"] = "EUR") -> float:
        ran.append(currency)
        return 4.0

    ran = []
    catalog = held(publish(made(price)), made(narrower, name="price"))
    assert call(catalog, {"item": "tea"}) == 4.0
    with pytest.raises(CodeOutdated, match=r"shop@1\.0\.0") as caught:
        call(catalog, {"item": "tea", "currency": "USD"})
    assert caught.value.code == "code_outdated"
    assert "currency" in str(caught.value)
    assert ran == ["EUR"]


def test_an_output_is_held_to_the_published_contract(publish):
    async def other(item: str, currency: Literal["EUR", "USD"] = "EUR") -> str:
        return "much"

    catalog = held(publish(made(price)), made(other, name="price"))
    with pytest.raises(OutputRejected):
        call(catalog, {"item": "tea"})


def test_whether_a_tool_is_disabled_is_decided_by_the_sources(publish):
    def plain(**more):
        return Tool(id="shop.price", description="", contract=Contract(), handler=give, **more)

    async def give(_arguments, _context):
        return 1

    missing = Disabled("server_param_missing", "KEY is not set")
    store = publish(plain(disabled=missing))
    assert call(held(store, plain()), {}) == 1
    with pytest.raises(Failed, match="KEY is not set"):
        call(held(store, plain(disabled=missing)), {})


def test_a_tool_that_became_a_subscription_is_disabled(publish):
    async def prices(item: str, currency: Literal["EUR", "USD"] = "EUR"):
        yield 1.0

    (found,) = held(publish(made(price)), made(prices, name="price"))
    assert found.disabled is not None
    assert found.disabled.code == "code_outdated"


def test_a_subscription_is_held_to_its_version_too(publish):
    async def ticks(item: Literal["tea", "milk"]):
        yield item

    async def fewer(item: Literal["tea"]):
        yield item

    async def read(item):
        async with Runtime(catalog) as runtime:
            return [each.data async for each in runtime.subscribe("shop.ticks", {"item": item})]

    catalog = held(publish(made(ticks)), made(fewer, name="ticks"))
    assert asyncio.run(read("tea")) == ["tea"]
    with pytest.raises(CodeOutdated):
        asyncio.run(read("milk"))


def test_resources_are_published_by_their_address(publish):
    async def page() -> str:
        return "text"

    def at(uri):
        return Resource(uri=uri, tool=made(page))

    catalog = held(
        publish(resources=[at("docs://one")]), resources=[at("docs://one"), at("docs://two")]
    )
    assert [each.uri for each in catalog.resources] == ["docs://one"]


def test_a_prompt_keeps_the_completions_of_the_published_arguments(publish):
    async def old(language: str) -> str:
        return language

    async def new(language: str, tone: str = "kind") -> str:
        return tone

    def greet(function, **completions):
        return Prompt(tool=made(function, name="greet"), completions=completions)

    store = publish(prompts=[greet(old)])
    changed = greet(new, language=["en", "de"], tone=["kind"])
    (prompt,) = held(store, prompts=[changed]).prompts
    assert prompt.completions == {"language": ("en", "de")}


def test_a_range_is_followed_and_a_pinned_version_is_not_left(publish):
    store = publish(made(price))
    followed, pinned = Production(store, "shop", "^1"), Production(store, "shop", "1.0.0")
    publish(made(price, description="New."))
    for each in (followed, pinned):
        each.refresh()
    assert (followed.label, pinned.label) == ("shop@1.1.0", "shop@1.0.0")
    store.roll_back("shop", FIRST, at="now")
    followed.refresh()
    assert followed.label == "shop@1.0.0"


def test_a_draft_has_the_contracts_of_the_code(publish):
    draft = Production(publish(made(price)), "shop", "^1")
    (found,) = draft.drafted(Catalog([made(price, description="New.")]))
    assert (found.description, found.version) == ("New.", "shop@draft")


def test_notes_name_what_is_missing_or_was_changed(publish, tmp_path):
    async def narrower(item: str) -> float:
        return 4.0

    async def refund(item: str) -> str:
        return item

    production = Production(publish(made(price), made(refund)), "shop", "^1")
    notes = list(production.notes(Catalog([made(narrower, name="price")]), tmp_path))
    assert "in no source: shop.refund" in notes[0]
    assert "another in the sources: shop.price" in notes[1]
    assert list(production.notes(Catalog([made(price), made(refund)]), tmp_path)) == []


def test_a_package_that_is_not_published_is_refused(publish):
    with pytest.raises(UsageError, match=r"no shop@\^2 is published; there is 1.0.0"):
        Production(publish(made(price)), "shop", "^2")
