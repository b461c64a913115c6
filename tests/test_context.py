"""The env turns names into tool ids; the first lines that a tool logs are kept with its call."""

from __future__ import annotations

import asyncio
import copy
import logging

import pytest

from callpact import Contract, Runtime, Tool
from callpact.context import MAX_KEPT_LINES, MAX_KEPT_TEXT, Context, Env, LogLine
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


# --- the logger


def logged(say):
    """What is kept of a call whose tool logs."""
    context = Context("call-1", "shop.search")
    say(context.logger)
    return context.logged


def test_lines_from_info_on_are_kept_whatever_the_process_logs():
    logging.getLogger("callpact.tool.shop.search").setLevel(logging.CRITICAL)
    try:
        kept = logged(
            lambda log: (
                log.debug("no"),
                log.info("asked %s times", 3),
                log.warning("100 %"),
                log.error("%(a)s", {"a": "of a mapping"}),
                log.log(logging.CRITICAL, "bad"),
            )
        )
    finally:
        logging.getLogger("callpact.tool.shop.search").setLevel(logging.NOTSET)
    assert kept == [
        LogLine("info", "asked 3 times"),
        LogLine("warning", "100 %"),
        LogLine("error", "of a mapping"),
        LogLine("critical", "bad"),
    ]


def test_an_exception_is_kept_in_the_words_of_the_tool(caplog):
    def say(log):
        try:
            raise ValueError("the password is tea")
        except ValueError:
            log.exception("it failed")

    assert logged(say) == [LogLine("error", "it failed")]
    assert "the password is tea" in caplog.text


def test_what_is_kept_is_bounded():
    kept = logged(lambda log: [log.info("%d%s", n, "x" * 5_000) for n in range(80)])
    assert len(kept) == MAX_KEPT_LINES
    assert {len(line.message) for line in kept} == {MAX_KEPT_TEXT}
    assert kept[-1].message.startswith("49x")


class Unspeakable:
    def __str__(self):
        raise RuntimeError("never")


@pytest.mark.parametrize("said", [("%d", "three"), ("%s and %s", 1), (Unspeakable(),)])
def test_a_line_that_cannot_be_written_out_does_not_break_the_call(said, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    (line,) = logged(lambda log: log.info(*said))
    assert line.level == "info"
    assert "cannot be written out" in line.message


def test_a_line_tells_where_it_was_logged_and_of_which_call(caplog):
    caplog.set_level(logging.INFO)
    log = Context("call-1", "shop.search").logger
    log.info("directly", extra={"order": 7})
    log.log(logging.INFO, "by its level")
    assert {record.filename for record in caplog.records} == {"test_context.py"}
    first = caplog.records[0]
    assert (first.name, first.tool_id, first.call_id, first.order) == (
        *("callpact.tool.shop.search", "shop.search", "call-1", 7),
    )


def test_observers_are_told_what_a_tool_logged_whatever_became_of_the_call():
    async def handler(arguments, context):
        context.logger.info("for %s", arguments["who"])
        if arguments["who"] == "bob":
            raise ToolError("no", "Not for bob")

    events = []
    tool = Tool(id="a.b", description="", contract=Contract(), handler=handler)
    runtime = Runtime([tool], observers=[events.append])

    async def main():
        await asyncio.gather(
            *(runtime.execute("a.b", {"who": who}) for who in ("ann", "bob")),
            return_exceptions=True,
        )

    asyncio.run(main())
    told = {event.arguments["who"]: list(event.logs) for event in events}
    assert told == {who: [LogLine("info", f"for {who}")] for who in ("ann", "bob")}
