"""The three tools that stand in for a catalog: they show, and run, what their caller may use."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from callpact.catalog import Catalog
from callpact.context import Identity
from callpact.discovery import discovery_tools
from callpact.discovery.index import MAX_LIMIT
from callpact.discovery.tools import (
    CALL_TOOL,
    DESCRIBE_TOOL,
    MAX_DISABLED,
    MAX_EXAMPLES,
    MAX_NAMESPACES,
    SEARCH_TOOLS,
    STAND_INS,
    index_of,
    is_usable,
    target_of,
)
from callpact.envelope import http_envelope, now_ms
from callpact.errors import (
    AccessDenied,
    Failed,
    HandlerCrashed,
    InvalidInput,
    Timeout,
    ToolError,
    UnknownTool,
)
from callpact.runtime import Runtime
from callpact.schema import check, compile_schema
from callpact.tool import Access, Call, Contract, Disabled, Tool
from callpact.wire.mcp import results as wire
from callpact.wire.mcp.published import ADVERTISE
from schema_lint import lint_tool

TEA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "maximum": 50}},
    "required": ["q"],
    "additionalProperties": False,
}
CLERK = Identity("clerk", ("stock",))


def _tool(id, description="", handler=None, **fields):
    async def echo(arguments, context):
        return arguments

    fields.setdefault("contract", Contract())
    return Tool(id=id, description=description, handler=handler or echo, **fields)


async def _ticks(arguments, context):
    yield 1


SEARCH = _tool("shop.search", "Find teas. By name.", contract=Contract(input=TEA))
STOCK = _tool("shop.stockLevel", "How much tea is in stock.", access=["stock"])
KEYLESS = _tool(
    "shop.keyless", "Tea with a key.", disabled=Disabled("server_param_missing", "KEY is not set")
)
TICKS = _tool("shop.ticks", "Tea prices as they change.", _ticks, kind="subscription")
WEATHER = _tool("sky.weather", "The weather at a place.")
SHOP = Catalog([SEARCH, STOCK, KEYLESS, TICKS, WEATHER])


class _Door:
    """What a door is to the three: a runtime of their own before the runtime of the catalog."""

    def __init__(self, tools, observers=()):
        self.runtime = Runtime(tools if isinstance(tools, Catalog) else Catalog(tools), observers)
        self.front = Runtime(Catalog(discovery_tools(self.runtime)), observers)

    def __call__(self, tool_id, arguments, identity=None, **call):
        return asyncio.run(self._call(Call(tool_id, arguments, **call), identity))

    async def _call(self, call, identity):
        async with asyncio.timeout(10):
            return await self.front.call(call, identity)

    def names(self, query, identity=None, **arguments):
        found = self("search_tools", {"query": query, **arguments}, identity).data
        return [tool["name"] for tool in found["tools"]]


DOOR = _Door(SHOP)


# --- what the three are ---------------------------------------------------------------------


def test_they_are_three_tools_with_short_names_and_real_contracts():
    tools = discovery_tools(DOOR.runtime)
    assert {tool.id for tool in tools} == STAND_INS
    assert [tool.wire_name for tool in tools] == ["search_tools", "describe_tool", "call_tool"]
    for tool in tools:
        assert tool.contract.input["additionalProperties"] is False
        assert tool.description
    assert [tool.annotations["readOnlyHint"] for tool in tools] == [True, True, False]


def test_the_description_says_how_many_tools_lie_behind_it_and_where_most_are():
    tools = [_tool(f"ns{n:02}.tool{m}") for n in range(12) for m in range(n + 1)]
    search, *_ = discovery_tools(Runtime(Catalog([*tools, KEYLESS, TICKS])))
    assert "78 tools in 12 namespaces" in search.description
    assert "ns11 (12), ns10 (11)" in search.description
    assert search.description.count("(") == MAX_NAMESPACES
    assert "and others" in search.description
    assert "ns00" not in search.description


def test_the_description_counts_what_its_reader_may_use():
    stranger, *_ = discovery_tools(DOOR.runtime)
    clerk, *_ = discovery_tools(DOOR.runtime, identity=CLERK)
    assert "2 tools in 2 namespaces" in stranger.description
    assert "3 tools in 2 namespaces" in clerk.description
    one, *_ = discovery_tools(Runtime(Catalog([WEATHER])))
    assert "1 tool in 1 namespace " in one.description
    none, *_ = discovery_tools(Runtime(Catalog([KEYLESS])))
    assert "There are none" in none.description


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search_tools", {"query": "tea"}),
        ("search_tools", {"query": "nothing at all"}),
        ("describe_tool", {"name": "shop.search"}),
        ("call_tool", {"name": "shop.search", "arguments": {"q": "x"}}),
    ],
)
def test_what_they_answer_keeps_what_they_publish_in_both_eras(modern, name, arguments):
    tool = DOOR.front.catalog.find(name)
    published = wire.encode_tool(tool, modern=modern).get("outputSchema", True)
    envelope = DOOR(name, arguments)
    result = wire.encode_result(envelope, tool, modern=modern)
    assert check(compile_schema(published), result["structuredContent"]) == []
    assert envelope.warnings == ()
    assert envelope.changes == ()


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("advertise", ADVERTISE)
def test_no_client_warns_of_their_schemas(advertise, modern):
    for tool in DOOR.front.catalog:
        assert lint_tool(wire.encode_tool(tool, modern=modern, advertise=advertise)) == []


# --- search_tools ---------------------------------------------------------------------------


def test_a_search_gives_names_first_sentences_and_required_arguments():
    assert DOOR("search_tools", {"query": "find a tea"}).data == {
        "tools": [{"name": "shop.search", "description": "Find teas.", "required": ["q"]}],
        "total": 1,
        "disabled": [
            {"name": "shop.keyless", "description": "Tea with a key.", "reason": "KEY is not set"}
        ],
    }


def test_a_disabled_tool_is_named_with_its_reason_by_the_first_page_for_its_words_only():
    door = _Door([_tool(f"ns.item{n:02}") for n in range(25)] + [KEYLESS])
    assert (
        door("search_tools", {"query": "tea with a key"}).data["disabled"][0]["name"] == KEYLESS.id
    )
    for other in ({"query": ""}, {"query": "item"}, {"query": "tea", "cursor": "1"}):
        assert "disabled" not in door("search_tools", other).data


def test_a_search_names_few_disabled_tools_and_never_one_that_the_caller_may_not_use():
    off = Disabled("server_param_missing", "KEY is not set")
    many = [_tool(f"ns.tea{n}", disabled=off) for n in range(9)]
    shut = _tool("ns.secret_tea", disabled=off, access=Access(scopes=("stock",)))
    found = _Door([*many, shut])("search_tools", {"query": "tea secret", "limit": 50}).data
    assert found["tools"] == []
    assert len(found["disabled"]) == MAX_DISABLED
    assert shut.id not in {each["name"] for each in found["disabled"]}


def test_only_what_the_caller_may_use_and_call_is_found_and_counted():
    assert DOOR.names("tea") == ["shop.search"]
    assert set(DOOR.names("tea", CLERK)) == {"shop.search", "shop.stockLevel"}
    assert DOOR.names("tea", Identity("guest", ("other",))) == ["shop.search"]
    assert set(DOOR.names("", CLERK)) == {"shop.search", "shop.stockLevel", "sky.weather"}
    for hidden in ("shop.keyless", "shop.ticks", "shop.stockLevel", "shop_keyless"):
        assert hidden not in DOOR.names(hidden)


def test_pages_follow_one_another_by_cursor_until_there_is_none():
    door = _Door([_tool(f"ns.item{n:02}") for n in range(25)])
    read, cursor, pages = [], "", 0
    while cursor is not None:
        page = door("search_tools", {"query": "item", "limit": 10, "cursor": cursor}).data
        assert page["total"] == 25
        read += [tool["name"] for tool in page["tools"]]
        cursor, pages = page.get("nextCursor"), pages + 1
    assert (read, pages) == ([f"ns.item{n:02}" for n in range(25)], 3)
    beyond = door("search_tools", {"query": "item", "cursor": "500"}).data
    assert beyond["tools"] == []
    assert "25 were found" in beyond["note"]


def test_a_namespace_narrows_the_search_and_a_wrong_one_is_told_with_the_nearest():
    assert DOOR.names("", namespace="sky") == ["sky.weather"]
    assert DOOR.names("tea weather", namespace="sky") == ["sky.weather"]
    assert "shop" in DOOR("search_tools", {"query": "tea", "namespace": "shopp"}).data["note"]


def test_a_search_that_finds_nothing_says_what_to_try():
    answer = DOOR("search_tools", {"query": "submarine"}).data
    assert (answer["tools"], answer["total"]) == ([], 0)
    assert "shop (1), sky (1)" in answer["note"]


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({}, ["/query"]),
        ({"query": 5, "limit": 0}, ["/query", "/limit"]),
        ({"query": "x", "limit": MAX_LIMIT + 1}, ["/limit"]),
        ({"query": "x", "cursor": "x"}, ["/cursor"]),
        ({"query": "x", "cursor": "-1"}, ["/cursor"]),
        ({"query": "x" * 1_001}, ["/query"]),
        ({"query": "x", "tag": "y"}, ["/tag"]),
    ],
)
def test_a_wrong_search_is_rejected_with_every_issue(arguments, paths):
    with pytest.raises(InvalidInput) as caught:
        DOOR("search_tools", arguments)
    assert {issue.path for issue in caught.value.issues} == set(paths)


def test_one_tool_with_text_that_no_json_can_say_does_not_cost_the_others():
    bad = _tool("bad.tea", "Tea \ud800 here.", title="\udfff")
    door = _Door([bad, SEARCH])
    assert set(door.names("tea")) == {"bad.tea", "shop.search"}
    assert "\N{REPLACEMENT CHARACTER}" in door("describe_tool", {"name": "bad.tea"}).data["title"]


# --- describe_tool --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shop.price", "shop_price", "oldPrice"])
@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
def test_a_description_holds_everything_as_it_was_declared(name, policy):
    output = {"type": "object", "properties": {"price": {"type": "number"}}}
    tool = _tool(
        "shop.price",
        "One. Two.",
        contract=Contract(input=TEA, output=output, policy=policy),
        title="Price",
        tags=["tea"],
        aliases=["oldPrice"],
        version="2.1.0",
        annotations={"readOnlyHint": True},
        examples=[{"q": str(n)} for n in range(9)],
    )
    assert _Door([tool, WEATHER])("describe_tool", {"name": name}).data == {
        "name": "shop.price",
        "wireName": "shop_price",
        "title": "Price",
        "description": "One. Two.",
        "version": "2.1.0",
        "tags": ["tea"],
        "inputSchema": TEA,
        "outputSchema": output,
        "annotations": {"readOnlyHint": True},
        "examples": [{"q": str(n)} for n in range(MAX_EXAMPLES)],
    }


@pytest.mark.parametrize("output", [True, False, {"title": "Anything", "x-more": [{"a": 1}]}])
def test_a_declared_output_of_any_form_is_described_as_it_is(output):
    tool = _tool("shop.any", "Gives.", contract=Contract(output=output))
    envelope = _Door([tool, WEATHER])("describe_tool", {"name": "shop.any"})
    assert envelope.data["outputSchema"] == output
    assert envelope.warnings == ()
    assert envelope.changes == ()


def test_what_a_tool_does_not_declare_is_left_out():
    assert DOOR("describe_tool", {"name": "sky.weather"}).data == {
        "name": "sky.weather",
        "wireName": "sky_weather",
        "description": "The weather at a place.",
        "inputSchema": {"type": "object"},
    }


# --- call_tool ------------------------------------------------------------------------------


def test_a_call_gives_the_tools_own_envelope():
    async def price(arguments, context):
        return http_envelope({"p": 1}, status_code=200, headers={}, content_type="text/x")

    envelope = _Door([_tool("shop.price", handler=price)])("call_tool", {"name": "shop.price"})
    assert envelope.data == {"p": 1}
    assert envelope.meta.status_code == 200
    local = DOOR("call_tool", {"name": "shop.search", "arguments": {"q": "oolong"}})
    assert (local.data, local.meta.operation_id) == ({"q": "oolong"}, "shop.search")


@pytest.mark.parametrize("value", [None, 5, "text", [1, 2], b"bytes", {"data": 1}])
def test_any_answer_passes_unchanged(value):
    async def answer(arguments, context):
        return value

    assert _Door([_tool("a.b", handler=answer)])("call_tool", {"name": "a.b"}).data == value


def test_the_called_tool_gets_the_callers_identity_deadline_metadata_and_parent():
    seen, events = [], []

    async def note(arguments, context):
        seen.append(context)

    door = _Door([_tool("a.b", handler=note, access=["stock"])], [events.append])
    deadline = now_ms() + 9_000
    call = {"deadline": deadline, "id": "outer", "metadata": {"trace": "t"}, "chain": ("x.y",)}
    door("call_tool", {"name": "a.b"}, CLERK, **call)
    [context] = seen
    assert (context.identity, context.deadline, context.parent_id) == (CLERK, deadline, "outer")
    assert (context.metadata, context.chain) == ({"trace": "t"}, ("x.y", CALL_TOOL))
    assert [(event.tool_id, event.parent_id) for event in events] == [
        ("a.b", "outer"),
        (CALL_TOOL, None),
    ]


def test_a_tool_with_a_shorter_timeout_of_its_own_is_held_to_it():
    async def hang(arguments, context):
        await asyncio.Event().wait()

    door = _Door([_tool("a.slow", handler=hang, timeout=0.05)])
    for deadline in (None, now_ms() + 60_000):
        with pytest.raises(Timeout) as caught:
            door("call_tool", {"name": "a.slow"}, deadline=deadline)
        assert "'a.slow'" in caught.value.message


def test_wrong_arguments_come_back_as_the_tools_own_error_with_every_issue():
    arguments = {"limit": 80, "sort": "up"}
    with pytest.raises(InvalidInput) as through:
        DOOR("call_tool", {"name": "shop.search", "arguments": arguments})
    with pytest.raises(InvalidInput) as direct:
        asyncio.run(DOOR.runtime.execute("shop.search", arguments))
    assert through.value == direct.value
    assert {issue.path for issue in through.value.issues} == {"/q", "/limit", "/sort"}


def test_a_tools_own_errors_pass_and_a_crash_stays_a_code():
    async def refuse(arguments, context):
        raise ToolError("sold_out", "No tea left", path="/q")

    async def crash(arguments, context):
        raise ValueError("password=hunter2")

    door = _Door([_tool("a.refuse", handler=refuse), _tool("a.crash", handler=crash)])
    with pytest.raises(ToolError) as caught:
        door("call_tool", {"name": "a.refuse"})
    assert (caught.value.code, caught.value.path) == ("sold_out", "/q")
    with pytest.raises(HandlerCrashed) as crashed:
        door("call_tool", {"name": "a.crash"})
    assert "hunter2" not in str(crashed.value)
    assert "a.crash" in crashed.value.message


def test_arguments_as_the_text_of_an_object_are_taken_for_the_object():
    envelope = DOOR("call_tool", {"name": "shop.search", "arguments": '{"q": "green"}'})
    assert envelope.data == {"q": "green"}
    assert [issue.path for issue in envelope.warnings] == ["/arguments"]
    with pytest.raises(InvalidInput) as caught:
        DOOR("call_tool", {"name": "shop.search", "arguments": "green"})
    assert caught.value.path == "/arguments"


def test_arguments_beside_the_name_are_rejected_instead_of_being_lost():
    with pytest.raises(InvalidInput) as caught:
        DOOR("call_tool", {"name": "shop.search", "q": "green"})
    assert caught.value.path == "/q"


def test_a_rejected_call_does_not_show_the_arguments_that_are_another_tools():
    with pytest.raises(InvalidInput) as caught:
        DOOR("call_tool", {"name": "shop.search", "arguments": "hunter2"})
    assert "hunter2" not in repr(caught.value.issues)


def test_a_cancelled_call_reaches_the_tool_behind_it():
    async def run():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait(arguments, context):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        door = _Door([_tool("a.wait", handler=wait)])
        task = asyncio.create_task(door.front.call(Call("call_tool", {"name": "a.wait"})))
        async with asyncio.timeout(10):
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()

    asyncio.run(run())


# --- what may not be used -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["describe_tool", "call_tool"])
def test_a_tool_without_access_is_neither_described_nor_called(name):
    ran = []

    async def note(arguments, context):
        ran.append(1)

    door = _Door([_tool("a.b", "Secret text.", note, access=["stock"]), WEATHER])
    for identity in (None, Identity("guest")):
        with pytest.raises(AccessDenied) as caught:
            door(name, {"name": "a.b"}, identity)
        assert "Secret text" not in str(caught.value)
    assert ran == []
    door(name, {"name": "a.b"}, CLERK)


@pytest.mark.parametrize("name", ["describe_tool", "call_tool"])
def test_a_disabled_tool_answers_with_the_reason_only(name):
    with pytest.raises(Failed) as caught:
        DOOR(name, {"name": "shop.keyless"})
    assert (caught.value.code, caught.value.message) == ("server_param_missing", "KEY is not set")


@pytest.mark.parametrize("name", ["describe_tool", "call_tool"])
def test_a_disabled_tool_without_access_tells_no_reason(name):
    door = _Door([_tool("a.b", disabled=KEYLESS.disabled, access=["stock"])])
    with pytest.raises(AccessDenied):
        door(name, {"name": "a.b"})


@pytest.mark.parametrize("name", ["describe_tool", "call_tool"])
@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("shop.serch", "shop.search"),
        ("weather", "sky.weather"),
        ("getWeather", "sky.weather"),
        ("shop.ticks", "shop.search"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_ones(name, wrong, meant):
    with pytest.raises(UnknownTool) as caught:
        DOOR(name, {"name": wrong})
    assert f"'{meant}'" in caught.value.message.partition("did you mean")[2]


@pytest.mark.parametrize("wrong", ["shop.stockLevl", "stockLevel", "shop.keyles", "shop.tick"])
def test_what_the_caller_may_not_use_is_not_suggested(wrong):
    with pytest.raises(UnknownTool) as caught:
        DOOR("call_tool", {"name": wrong})
    suggested = caught.value.message.partition("did you mean")[2]
    assert "stockLevel" not in suggested
    assert "keyless" not in suggested
    assert "ticks" not in suggested


def test_a_long_wrong_name_is_refused_before_it_is_looked_for():
    with pytest.raises(InvalidInput) as caught:
        DOOR("call_tool", {"name": "x" * 10_000})
    assert caught.value.path == "/name"


@pytest.mark.parametrize("name", ["describe_tool", "call_tool"])
@pytest.mark.parametrize("target", [*sorted(STAND_INS), "search_tools", "call_tool"])
@pytest.mark.parametrize("is_joined", [True, False], ids=["one catalog", "two catalogs"])
def test_the_three_are_no_targets_of_one_another(name, target, is_joined):
    door = _Door(SHOP)
    if is_joined:
        door.runtime.catalog |= Catalog(discovery_tools(door.runtime))
    with pytest.raises(ToolError) as caught:
        door(name, {"name": target})
    assert (caught.value.code, caught.value.path) == ("not_a_target", "/name")


def test_in_one_catalog_with_the_others_they_are_not_found_and_a_cycle_ends():
    async def again(arguments, context):
        return (await context.env[CALL_TOOL]({"name": "a.again"})).data

    runtime = Runtime(Catalog([_tool("a.again", handler=again)]))
    runtime.catalog |= Catalog(discovery_tools(runtime))

    async def run():
        async with asyncio.timeout(10):
            with pytest.raises(Failed, match="nest more than"):
                await runtime.call(Call(CALL_TOOL, {"name": "a.again"}))
            found = await runtime.call(Call(SEARCH_TOOLS, {"query": ""}))
            return [tool["name"] for tool in found.data["tools"]]

    assert asyncio.run(run()) == ["a.again"]


@pytest.mark.parametrize(
    ("tool", "identity", "usable"),
    [
        (SEARCH, None, True),
        (STOCK, None, False),
        (STOCK, CLERK, True),
        (KEYLESS, CLERK, False),
        (TICKS, CLERK, False),
        (DOOR.front.catalog.find(CALL_TOOL), CLERK, False),
    ],
)
def test_usable_is_what_gives_this_caller_one_answer_now(tool, identity, usable):
    assert is_usable(tool, identity) is usable


@pytest.mark.parametrize(
    ("tool_id", "arguments", "target"),
    [
        (CALL_TOOL, {"name": "shop_search"}, SEARCH),
        (CALL_TOOL, {"name": "no.such"}, None),
        (CALL_TOOL, {"name": ["shop.search"]}, None),
        (CALL_TOOL, {}, None),
        (CALL_TOOL, None, None),
        (CALL_TOOL, "shop.search", None),
        (DESCRIBE_TOOL, {"name": "shop.search"}, None),
        ("shop.search", {"name": "shop.search"}, None),
    ],
)
def test_a_door_can_ask_which_tool_a_call_is_meant_for(tool_id, arguments, target):
    assert target_of(SHOP, tool_id, arguments) is target


# --- the index behind them ------------------------------------------------------------------


def test_all_callers_share_one_index_until_the_catalog_changes():
    door = _Door(SHOP)
    index = index_of(door.runtime)
    discovery_tools(door.runtime, identity=CLERK)
    door.names("tea")
    assert index_of(door.runtime) is index
    door.runtime.catalog = Catalog([_tool("new.teapot", "A teapot.")])
    assert door.names("teapot") == ["new.teapot"]
    assert door.names("weather") == []
    assert index_of(door.runtime) is not index


def test_a_runtime_that_is_gone_leaves_no_index_behind():
    runtime = Runtime(SHOP)
    index = weakref.ref(index_of(runtime))
    assert index() is not None
    del runtime
    gc.collect()
    assert index() is None


def test_searches_at_once_get_the_same_answer():
    door = _Door([_tool(f"ns.item{n}") for n in range(500)])

    async def run():
        async with asyncio.timeout(20):
            calls = [door.front.execute("search_tools", {"query": "item"}) for _ in range(20)]
            return [answer.data for answer in await asyncio.gather(*calls)]

    first, *others = asyncio.run(run())
    assert first["total"] == 500
    assert all(other == first for other in others)
