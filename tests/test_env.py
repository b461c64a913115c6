"""Names into tool ids: every way to write one, and what cannot be one."""

from __future__ import annotations

import asyncio
import copy

import pytest

from callpact.env import Env
from callpact.envelope import local_envelope
from callpact.errors import ToolError, UsageError


def _env():
    """An env that notes what is sent."""
    sent = []

    async def send(tool_id, arguments):
        sent.append((tool_id, arguments))
        return local_envelope(arguments, tool_id)

    return Env(send), sent


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pick", "tool_id"),
    [
        (lambda env: env.shop.price, "shop.price"),
        (lambda env: env["shop"]["price"], "shop.price"),
        (lambda env: env["shop.price"], "shop.price"),
        (lambda env: env.shop["price"], "shop.price"),
        (lambda env: env["shop"].price, "shop.price"),
        (lambda env: env.shop.File.search, "shop.File.search"),
        (lambda env: env.shop["File.search"], "shop.File.search"),
        (lambda env: env["shop.File"].search, "shop.File.search"),
        (lambda env: env["my-shop"]["list-all"], "my-shop.list-all"),
        (lambda env: env["my-shop.list-all"], "my-shop.list-all"),
        (lambda env: env["_private"]["__init__"], "_private.__init__"),
        (lambda env: env.shop["_hidden"], "shop._hidden"),
        (lambda env: env["2024"].v1, "2024.v1"),
        (lambda env: env["class"]["import"], "class.import"),
        # Words that other objects give a meaning to are names here.
        (lambda env: env.send.path, "send.path"),
        (lambda env: env.keys.items, "keys.items"),
        (lambda env: env.get.call, "get.call"),
        (lambda env: env.shop.shop_, "shop.shop_"),
    ],
)
def test_every_way_to_write_a_name_means_the_same_tool(pick, tool_id):
    env, sent = _env()
    envelope = asyncio.run(pick(env)({"q": "tea"}))
    assert sent == [(tool_id, {"q": "tea"})]
    assert envelope.data == {"q": "tea"}
    assert envelope.meta.operation_id == tool_id


def test_a_tool_can_be_kept_and_called_again_and_names_do_not_pile_up():
    env, sent = _env()
    shop = env.shop
    price = shop.price

    async def story():
        await price(1)
        await shop.stock(2)
        await price(3)
        await env.other.tool(4)

    asyncio.run(story())
    assert sent == [
        ("shop.price", 1),
        ("shop.stock", 2),
        ("shop.price", 3),
        ("other.tool", 4),
    ]


def test_arguments_are_passed_on_as_they_are_and_may_be_left_out():
    env, sent = _env()
    arguments = {"q": "tea"}
    asyncio.run(env.shop.price(arguments))
    asyncio.run(env.shop.price())
    assert sent[0][1] is arguments
    assert sent[1] == ("shop.price", None)


def test_what_the_call_raises_is_raised():
    async def send(tool_id, arguments):
        raise ToolError("sold_out", "no tea left")

    with pytest.raises(ToolError) as caught:
        asyncio.run(Env(send).shop.price({}))
    assert caught.value.code == "sold_out"


def test_nothing_is_sent_before_the_call():
    env, sent = _env()
    _ = env.shop.price, env["shop.price"], repr(env.shop.price)
    assert sent == []


# --- wrong uses -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_send_", "__len__", "__await__", "_repr_html_", "__wrapped__"])
def test_names_with_a_leading_underscore_are_no_attributes_and_the_error_shows_the_way(name):
    env, _ = _env()
    with pytest.raises(AttributeError, match="by item") as caught:
        getattr(env, name)
    assert f"env[{name!r}]" in str(caught.value)
    assert not hasattr(env.shop, name)


@pytest.mark.parametrize("name", ["", None, 5, ("a", "b"), b"shop", slice(1)])
def test_what_is_no_name_is_refused(name):
    env, _ = _env()
    with pytest.raises(UsageError, match="tools have names"):
        env[name]
    with pytest.raises(UsageError, match="tools have names"):
        env.shop[name]


def test_calling_no_tool_is_refused_with_the_right_way_and_nothing_is_sent():
    env, sent = _env()
    with pytest.raises(UsageError, match=r"env\.namespace\.name\(arguments\)"):
        env({"q": "tea"})
    with pytest.raises(UsageError, match="'shop' names no tool"):
        env.shop({"q": "tea"})
    assert sent == []


def test_an_env_cannot_be_listed_searched_or_unpacked():
    env, _ = _env()
    for use in (iter, list, lambda env: "shop" in env, lambda env: [*env], len):
        with pytest.raises(TypeError):
            use(env)
    with pytest.raises(UsageError):
        dict(env)


def test_an_env_cannot_be_awaited_and_takes_one_argument():
    env, sent = _env()
    with pytest.raises(TypeError):
        asyncio.run(_wait_for(env.shop.price))
    with pytest.raises(TypeError):
        env.shop.price(1, 2)
    with pytest.raises(TypeError):
        env.shop.price(q="tea")
    assert sent == []


async def _wait_for(what):
    await what


def test_nothing_can_be_put_into_an_env():
    env, _ = _env()
    with pytest.raises(AttributeError):
        env.shop = 5
    with pytest.raises(TypeError):
        env["shop"] = 5


def test_an_env_shows_its_name_and_is_copied_whole():
    env, sent = _env()
    assert repr(env) == "<env of tools>"
    assert repr(env.shop) == "<env shop>"
    assert repr(env["shop.price"]) == repr(env.shop.price) == "<env shop.price>"
    asyncio.run(copy.copy(env.shop).price(1))
    assert sent == [("shop.price", 1)]
