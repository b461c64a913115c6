"""The MCP door, asked by the SDK's own client in process, in both eras."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from callpact.context import Identity
from callpact.errors import CallError, ToolError, UnknownTool
from callpact.runtime import Runtime
from callpact.serve import Door
from callpact.serve.mcp.views import PAGE_ENTRIES
from callpact.tool import Access, Contract, Disabled, Tool
from ways import place

pytestmark = pytest.mark.usefixtures("way")

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


async def add(arguments, context):
    return {"sum": arguments["a"] + arguments["b"]}


async def refuse(arguments, context):
    raise ToolError("sold_out", "None left", path="/item")


async def crash(arguments, context):
    raise RuntimeError("the password is tea")


async def hang(arguments, context):
    await asyncio.Event().wait()


async def miss(arguments, context):
    raise UnknownTool("inner.tool")


async def names(arguments, context):
    return ["a", "b"]


async def nothing(arguments, context):
    return None


def make(name: str, handler, **more) -> Tool:
    contract = Contract(
        input=more.pop("input", {"type": "object"}), output=more.pop("output", None)
    )
    more = {"uses_client": False, **more}
    return Tool(id=f"t.{name}", description=name, contract=contract, handler=handler, **more)


TOOLS = [
    make("add", add, input=ADD, output=SUM, aliases=("plus",)),
    make("refuse", refuse),
    make("crash", crash),
    make("hang", hang, timeout=0.01),
    make("miss", miss),
    make("names", names, output={"type": "array", "items": {"type": "string"}}),
    make("nothing", nothing, output={"type": ["string", "null"]}),
]


def ask(mode, question, tools=TOOLS, identity=None, **given):
    """Put a question to a server; gives its answer and what the observer heard."""
    events = []

    async def go():
        runtime = Runtime(tools, observers=[events.append])
        server = Door(runtime, name="t", version="1", identity=identity, **given).server
        async with place(server) as there, Client(there, mode=mode) as client:
            # An answer that raises must not raise inside the client's task group.
            try:
                return await question(client)
            except (MCPError, RuntimeError) as error:
                return error

    return asyncio.run(go()), events


def call(mode, name, arguments=None, tools=TOOLS, identity=None):
    return ask(mode, lambda client: client.call_tool(name, arguments or {}), tools, identity)


def error_of(result):
    assert result.is_error
    assert result.structured_content is None
    return json.loads(result.content[0].text)["error"]


@ERAS
def test_every_tool_is_listed_with_its_schemas(mode):
    listed, _ = ask(mode, lambda client: client.list_tools())
    by_name = {tool.name: tool for tool in listed.tools}
    assert list(by_name) == [tool.wire_name for tool in TOOLS]
    assert by_name["t_add"].input_schema == ADD
    assert by_name["t_add"].output_schema == SUM
    assert by_name["t_refuse"].output_schema is None


@ERAS
def test_the_same_list_comes_twice(mode):
    async def twice(client):
        first = await client.list_tools(cache_mode="refresh")
        return first.tools, (await client.list_tools(cache_mode="refresh")).tools

    (first, second), _ = ask(mode, twice)
    assert first == second


@ERAS
@pytest.mark.parametrize("name", ["t_add", "t.add", "plus"])
def test_a_good_call_gives_structured_content_and_one_event(name, mode):
    result, events = call(mode, name, {"a": 1, "b": 2})
    assert not result.is_error
    assert result.structured_content == {"sum": 3}
    assert json.loads(result.content[0].text) == {"sum": 3}
    assert [(event.tool_id, event.is_error) for event in events] == [("t.add", False)]


@ERAS
def test_a_rejected_call_tells_every_issue_and_runs_nothing(mode):
    result, events = call(mode, "t_add", {"a": "x", "c": 1})
    body = error_of(result)
    assert body["code"] == "schema_validation_failed"
    assert {issue["path"] for issue in body["issues"]} == {"/a", "/b", "/c"}
    assert [event.gate for event in events] == ["input"]


@ERAS
def test_an_unknown_tool_is_a_protocol_error(mode):
    error, events = call(mode, "t_ad")
    assert isinstance(error, MCPError)
    assert error.error.code == -32602
    # The names of this door: a client could not call 't.add'.
    assert error.error.message.startswith("There is no tool 't_ad'; did you mean 't_add'")
    assert "t.add" not in error.error.message
    assert [(event.error.code, event.gate) for event in events] == [("tool_not_found", "find")]


@ERAS
def test_a_tool_error_keeps_its_code_message_and_path(mode):
    result, events = call(mode, "t_refuse")
    assert error_of(result) == {"code": "sold_out", "message": "None left", "path": "/item"}
    assert [event.error.code for event in events] == ["sold_out"]


@ERAS
def test_a_crash_is_told_without_its_text(mode, caplog):
    with caplog.at_level(logging.CRITICAL, logger="callpact.runtime"):
        result, events = call(mode, "t_crash")
    assert error_of(result)["code"] == "handler_error"
    assert "tea" not in result.content[0].text
    assert [event.error.code for event in events] == ["handler_error"]


@ERAS
def test_the_timeout_of_a_tool_ends_its_call(mode):
    result, events = call(mode, "t_hang")
    assert error_of(result)["code"] == "timeout"
    assert [event.error.code for event in events] == ["timeout"]


@ERAS
def test_a_tool_that_misses_a_tool_of_its_own_is_a_failed_call_not_a_wrong_request(mode):
    result, events = call(mode, "t_miss")
    assert error_of(result)["code"] == "tool_not_found"
    assert len(events) == 1


@ERAS
def test_lists_and_nulls_pass_the_clients_own_check(mode):
    result, _ = call(mode, "t_names")
    names_ = ["a", "b"]
    assert result.structured_content == (names_ if mode == "auto" else {"result": names_})
    result, _ = call(mode, "t_nothing")
    assert result.structured_content == {"result": None}


@ERAS
@pytest.mark.parametrize(
    "flaw",
    [
        {"annotations": {"readOnlyHint": "perhaps"}},
        {"title": "\ud800"},
        {"annotations": {"title": {1, 2}}},
    ],
)
def test_a_tool_that_mcp_cannot_take_is_left_out_and_logged_and_the_others_are_listed(
    flaw, mode, caplog
):
    tools = [make("bad", add, **flaw), make("good", add, input=ADD)]
    listed, _ = ask(mode, lambda client: client.list_tools(), tools)
    assert [tool.name for tool in listed.tools] == ["t_good"]
    records = [record for record in caplog.records if record.name == "callpact.serve.mcp"]
    assert [record.levelname for record in records] == ["ERROR"]
    assert "t_bad" in records[0].getMessage()
    result, _ = call(mode, "t_good", {"a": 1, "b": 2}, tools)
    assert result.structured_content == {"sum": 3}


@ERAS
@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["object", "null"]},
        {"properties": {"a": True}},
        {"$ref": "#/$defs/A", "$defs": {"A": {}}},
    ],
)
def test_an_odd_input_schema_does_not_take_the_list_down(schema, mode):
    listed, _ = ask(mode, lambda client: client.list_tools(), [make("odd", add, input=schema)])
    assert [tool.name for tool in listed.tools] == ["t_odd"]


@ERAS
def test_an_answer_that_is_no_mcp_result_is_a_failed_call(mode, caplog):
    async def odd(arguments, context):
        return {"data": 1, "meta": {"source": "mcp", "content": [{"type": "smell"}]}}

    with caplog.at_level(logging.CRITICAL, logger="callpact.serve.mcp"):
        result, events = call(mode, "t_odd", tools=[make("odd", odd)])
    assert error_of(result)["code"] == "handler_error"
    assert len(events) == 1


def test_a_cancelled_request_is_an_aborted_call():
    events = []

    async def go():
        began = asyncio.Event()

        async def wait(arguments, context):
            began.set()
            await asyncio.Event().wait()

        runtime = Runtime([make("wait", wait)], observers=[events.append])
        async with place(Door(runtime).server) as there, Client(there) as client:
            request = asyncio.create_task(client.call_tool("t_wait", {}))
            await began.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request

    asyncio.run(go())
    assert [event.error.code for event in events] == ["aborted"]
    assert isinstance(events[0].error, CallError)


# --- who calls -------------------------------------------------------------------------------


async def whoami(arguments, context):
    return None if context.identity is None else context.identity.id


async def ticks(arguments, context):
    pytest.fail("a subscription was started")
    yield 1


CLOSED = [
    make("open", whoami),
    make("admin_only", whoami, input=ADD, access=["admin"]),
    make("either", whoami, access=Access(any_scopes=["admin", "clerk"])),
    make("project", whoami, access=Access(resource_type="project", resource_action="read")),
    make("ticks", ticks, kind="subscription"),
    make("admin_ticks", ticks, kind="subscription", access=["admin"]),
]
NAMES = ["t_open", "t_admin_only", "t_either", "t_project"]


@ERAS
@pytest.mark.parametrize(
    ("identity", "names"),
    [
        (None, ["t_open"]),
        (Identity("ada"), ["t_open"]),
        (Identity("ada", ("clerk",)), ["t_open", "t_either"]),
        (Identity("ada", ("admin",)), ["t_open", "t_admin_only", "t_either"]),
        (Identity("ada", ("admin",), {"project:1": ("read",)}), NAMES),
    ],
)
def test_only_what_the_caller_may_use_is_listed_and_never_a_subscription(mode, identity, names):
    listed, _ = ask(mode, lambda client: client.list_tools(), CLOSED, identity)
    assert [tool.name for tool in listed.tools] == names


@ERAS
@pytest.mark.parametrize("identity", [None, Identity("ada", ("clerk",))])
@pytest.mark.parametrize("name", ["t_admin_only", "t.admin_only"])
def test_a_tool_that_the_caller_may_not_use_is_not_run(mode, identity, name):
    # The arguments are wrong, too: whoever has no access learns nothing of the schema.
    result, events = call(mode, name, {"a": "x"}, CLOSED, identity)
    body = error_of(result)
    assert body["code"] == "access_denied"
    assert "issues" not in body
    assert [(event.gate, event.identity) for event in events] == [("access", identity)]


@ERAS
def test_a_stranger_is_not_told_which_scope_is_missing(mode):
    result, _ = call(mode, "t_admin_only", {}, CLOSED)
    assert "details" not in error_of(result)
    result, _ = call(mode, "t_admin_only", {}, CLOSED, Identity("ada"))
    assert error_of(result)["details"] == {"missing": ["admin"]}


@ERAS
def test_a_tool_that_the_caller_may_use_is_told_who_calls(mode):
    ada = Identity("ada", ("admin",))
    result, events = call(mode, "t_admin_only", {"a": 1, "b": 2}, CLOSED, ada)
    assert not result.is_error
    assert result.content[0].text == "ada"
    assert [event.identity for event in events] == [ada]


@ERAS
def test_an_unknown_name_gives_no_hint_of_tools_that_the_caller_may_not_use(mode):
    error, _ = call(mode, "t.admin_onl", {}, CLOSED)
    assert error.error.code == -32602
    assert "admin_only" not in error.error.message
    error, _ = call(mode, "t.admin_onl", {}, CLOSED, Identity("ada", ("admin",)))
    assert error.error.code == -32602
    assert "'t_admin_only'" in error.error.message


@ERAS
def test_a_call_of_a_subscription_is_a_failed_call_that_says_so(mode):
    result, events = call(mode, "t_ticks", {}, CLOSED)
    body = error_of(result)
    assert body["code"] == "handler_error"
    assert "'t.ticks' is a subscription" in body["message"]
    assert [event.tool_id for event in events] == ["t.ticks"]


@ERAS
def test_a_subscription_that_the_caller_may_not_use_is_denied_like_any_tool(mode):
    result, _ = call(mode, "t_admin_ticks", {}, CLOSED)
    body = error_of(result)
    assert body["code"] == "access_denied"
    assert "subscription" not in body["message"]


def test_the_sdk_is_not_given_the_schema_of_a_tool_that_is_not_listed():
    schema_of = Door(Runtime(CLOSED)).server.get_tool_input_schema
    assert schema_of("t_open") == {"type": "object"}
    assert [schema_of(name) for name in ("t_admin_only", "t_ticks", "t_nosuch")] == [None] * 3
    ada = Identity("ada", ("admin",))
    schema_of = Door(Runtime(CLOSED), identity=ada).server.get_tool_input_schema
    assert schema_of("t_admin_only") == ADD


# --- disabled tools --------------------------------------------------------------------------


async def never(arguments, context):
    pytest.fail("a disabled tool was run")


MISSING = Disabled("server_param_missing", "It needs WEATHER_KEY")
SOME = [
    make("open", whoami),
    make("keyless", never, input=ADD, aliases=("weather/Weather::keyless",), disabled=MISSING),
    make("closed", never, access=["admin"], disabled=MISSING),
]


@ERAS
def test_a_disabled_tool_is_not_listed(mode):
    ada = Identity("ada", ("admin",))
    listed, _ = ask(mode, lambda client: client.list_tools(), SOME, ada)
    assert [tool.name for tool in listed.tools] == ["t_open"]


@ERAS
@pytest.mark.parametrize("name", ["t_keyless", "t.keyless", "weather/Weather::keyless"])
@pytest.mark.parametrize("arguments", [{"a": 1, "b": 2}, {"a": "x"}])
def test_a_call_of_a_disabled_tool_is_a_failed_call_with_its_code(mode, name, arguments):
    result, events = call(mode, name, arguments, SOME)
    body = error_of(result)
    assert (body["code"], body["message"]) == ("server_param_missing", "It needs WEATHER_KEY")
    assert [(event.tool_id, event.error.code) for event in events] == [
        ("t.keyless", "server_param_missing")
    ]


@ERAS
def test_whoever_has_no_access_does_not_learn_that_a_tool_is_disabled(mode):
    result, _ = call(mode, "t_closed", {}, SOME)
    assert error_of(result)["code"] == "access_denied"
    assert "WEATHER_KEY" not in result.content[0].text


def test_the_sdk_is_not_given_the_schema_of_a_disabled_tool():
    schema_of = Door(Runtime(SOME)).server.get_tool_input_schema
    assert schema_of("t_keyless") is None
    assert schema_of("t_open") == {"type": "object"}


@ERAS
def test_what_is_always_listed_stands_beside_the_tools_that_search(mode):
    tools = [make(f"some{number}", whoami) for number in range(3)]
    tools += [make("first", whoami, always_listed=True)]
    listed, _ = ask(mode, lambda client: client.list_tools(), tools, list_up_to=2)
    assert [tool.name for tool in listed.tools] == [
        "search_tools",
        "describe_tool",
        "call_tool",
        "t_first",
    ]
    assert listed.tools[-1].meta["anthropic/alwaysLoad"] is True
    result, _ = ask(mode, lambda client: client.call_tool("t_first", {}), tools, list_up_to=2)
    assert not result.is_error


# --- pages ----------------------------------------------------------------------------------


@ERAS
def test_a_long_list_comes_in_pages_each_tool_once_and_in_order(mode):
    tools = [make(f"tool{number:04}", add) for number in range(PAGE_ENTRIES * 2 + 1)]

    async def every(client):
        pages = [await client.list_tools()]
        while pages[-1].next_cursor is not None:
            pages.append(await client.list_tools(cursor=pages[-1].next_cursor))
        return pages

    pages, _ = ask(mode, every, tools=tools, list_up_to=len(tools))
    assert [len(page.tools) for page in pages] == [PAGE_ENTRIES, PAGE_ENTRIES, 1]
    assert [tool.name for page in pages for tool in page.tools] == [t.wire_name for t in tools]


@ERAS
@pytest.mark.parametrize("cursor", ["", "x", "-500", "7", "500", "9" * 40, "٥٠٠"])
def test_a_cursor_that_was_not_given_is_refused(mode, cursor):
    refused, _ = ask(mode, lambda client: client.list_tools(cursor=cursor))
    assert isinstance(refused, MCPError)
    assert "cursor" in refused.message


def test_a_client_may_keep_the_list_for_two_seconds_at_most():
    listed, _ = ask("2026-07-28", lambda client: client.list_tools())
    assert (listed.ttl_ms, listed.cache_scope) == (2_000, "public")
    mine, _ = ask("2026-07-28", lambda client: client.list_tools(), identity=Identity("me", ("a",)))
    assert mine.cache_scope == "private"


# --- big catalogs ---------------------------------------------------------------------------

MANY = [*TOOLS, *(make(f"other{number}", nothing) for number in range(20))]


@ERAS
def test_many_tools_are_behind_three_that_say_how_many(mode):
    listed, _ = ask(mode, lambda client: client.list_tools(), tools=MANY, list_up_to=10)
    names = [tool.name for tool in listed.tools]
    assert sorted(names) == ["call_tool", "describe_tool", "search_tools"]
    assert str(len(MANY)) in listed.tools[names.index("search_tools")].description
    few, _ = ask(mode, lambda client: client.list_tools(), tools=MANY, list_up_to=len(MANY))
    assert len(few.tools) == len(MANY)


@ERAS
def test_a_tool_behind_others_is_found_described_and_called(mode):
    async def story(client):
        hits = await client.call_tool("search_tools", {"query": "add"})
        described = await client.call_tool("describe_tool", {"name": "t_add"})
        arguments = {"name": "t_add", "arguments": {"a": 1, "b": 2}}
        return hits, described, await client.call_tool("call_tool", arguments)

    (hits, described, called), events = ask(mode, story, tools=MANY, list_up_to=10)
    assert [hit["name"] for hit in hits.structured_content["tools"]] == ["t.add"]
    assert ADD["required"] == described.structured_content["inputSchema"]["required"]
    assert called.structured_content == {"sum": 3}
    # Each call is on record: the three, and the one behind.
    assert [event.tool_id for event in events].count("t.add") == 1
    assert len(events) == 4


@ERAS
def test_a_wrong_call_behind_others_tells_every_issue(mode):
    arguments = {"name": "t_add", "arguments": {"a": "x", "c": 1}}
    result, _ = ask(
        mode,
        lambda client: client.call_tool("call_tool", arguments),
        tools=MANY,
        list_up_to=10,
    )
    assert result.is_error
    assert error_of(result)["code"] == "schema_validation_failed"


@ERAS
def test_a_tool_that_is_not_listed_can_be_called_by_its_name(mode):
    result, _ = ask(
        mode, lambda client: client.call_tool("t_add", {"a": 1, "b": 2}), tools=MANY, list_up_to=10
    )
    assert result.structured_content == {"sum": 3}


@ERAS
@pytest.mark.parametrize(("advertise", "is_shown"), [("full", True), ("none", False)])
def test_output_schemas_are_shown_as_far_as_they_are_wanted(mode, advertise, is_shown):
    async def story(client):
        listed = await client.list_tools()
        return listed.tools[0], await client.call_tool("t_add", {"a": 1, "b": 2})

    (first, called), _ = ask(mode, story, advertise=advertise)
    assert (first.output_schema is not None) == is_shown
    assert called.structured_content == {"sum": 3}


# --- FlowMCP's form -----------------------------------------------------------------------------


@ERAS
def test_as_flowmcp_results_and_failures_are_status_messages_and_data(mode):
    async def question(client):
        await client.list_tools()  # A strict client checks answers by what was listed.
        names = {"t_add": {"a": 1, "b": 2}, "t_names": {}, "t_nothing": {}, "t_refuse": {}}
        return {name: await client.call_tool(name, given) for name, given in names.items()}

    answers, _ = ask(mode, question, rendering="flowmcp")
    added = answers["t_add"]
    assert added.structured_content == {"status": True, "messages": [], "data": {"sum": 3}}
    assert json.loads(added.content[0].text) == added.structured_content
    assert answers["t_names"].structured_content["data"] == ["a", "b"]
    assert answers["t_nothing"].structured_content["data"] is None
    refused = answers["t_refuse"]
    assert refused.is_error
    assert refused.structured_content is None
    told = json.loads(refused.content[0].text)
    assert (told["status"], told["data"]) == (False, None)
    assert told["messages"][0].startswith("E005 refuse: ")


@ERAS
def test_as_flowmcp_a_wrong_call_names_every_issue_with_its_tool(mode):
    for name, given in (("t_add", {"a": "x"}), ("plus", {"a": "x"})):
        answer, _ = ask(mode, lambda client: client.call_tool(name, given), rendering="flowmcp")
        told = json.loads(answer.content[0].text)
        assert answer.is_error
        assert len(told["messages"]) == 2
        assert all(message.startswith("E004 add: Property ") for message in told["messages"])


@ERAS
def test_as_flowmcp_the_tools_that_search_and_read_on_have_the_same_form(mode):
    many = [make(f"some{number}", names) for number in range(3)]

    async def question(client):
        await client.list_tools()
        found = await client.call_tool("search_tools", {"query": "some"})
        called = await client.call_tool("call_tool", {"name": "t.some1", "arguments": {}})
        failed = await client.call_tool("call_tool", {"name": "t.some1", "arguments": {"x": 1}})
        return found, called, failed

    (found, called, _), _ = ask(mode, question, many, list_up_to=2, rendering="flowmcp")
    assert found.structured_content["status"] is True
    assert called.structured_content == {"status": True, "messages": [], "data": ["a", "b"]}


@ERAS
def test_a_request_is_identified_once(mode):
    seen = []

    def identity(scope):
        seen.append(scope)
        return Identity("ada")

    async def story():
        door = Door(Runtime([make("add", add)]), identity=identity)
        async with place(door.server) as there, Client(there, mode=mode) as client:
            for ask in (client.list_tools, lambda: client.call_tool("t_add", {"a": 1, "b": 2})):
                seen.clear()
                await ask()
                assert len(seen) == 1

    asyncio.run(story())
