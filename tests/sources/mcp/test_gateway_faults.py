"""A hostile or broken MCP server gives clean results or clear errors, and costs nobody else."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import httpx2
import orjson
import pytest

import hostile_server
import hostile_tools
from callpact import CallError, Catalog, Runtime, UpstreamError
from callpact.context import Client, Elicited, Identity, Root, Sampled
from callpact.sources import McpSource, from_mcp
from callpact.sources.mcp.pins import Lock, updated, write_lock
from callpact.sources.mcp.server_settings import ServerSettings
from callpact.tool import Call

CODES = {"upstream_error", "timeout", "output_validation_failed"}
ERAS = ["legacy", "modern"]
LOCAL = ["127.0.0.1", "localhost"]


@asynccontextmanager
async def opened(server, **more):
    source, tools = await from_mcp(server, namespace="h", hosts=LOCAL, **more)
    try:
        async with Runtime(Catalog(tools)) as runtime:
            runtime.source, runtime.tools = source, tools
            yield runtime
    finally:
        async with asyncio.timeout(30):
            await source.aclose()


def later(seconds):
    return (time.time() + seconds) * 1_000


async def works_again(runtime):
    """True once the server answers, within the pause after failures."""
    for _ in range(40):
        try:
            envelope = await runtime.execute("h.echo", {"message": "a"}, deadline=later(8))
        except CallError:
            await asyncio.sleep(0.25)
        else:
            return envelope.data[0]["text"] == "a"
    return False


ARGUMENTS = {
    "mutate": {"name": "echo", "fields": {}},
    "touch": {"uri": "test://notes/1"},
}


@pytest.mark.parametrize("era", ERAS)
def test_every_behaviour_over_stdio_ends_in_time_and_the_next_call_works(era):
    async def tried(runtime, name):
        arguments = ARGUMENTS.get(name, {})
        try:
            async with asyncio.timeout(30):
                return await runtime.execute(f"h.{name}", arguments, deadline=later(1)), None
        except CallError as error:
            return None, error

    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            for name in hostile_tools.TOOLS:
                envelope, error = await tried(runtime, name)
                if error is None:
                    assert orjson.dumps(envelope.data) or envelope.data is not None, name
                else:
                    assert error.code in CODES, (name, error)
                async with asyncio.timeout(30):
                    assert await works_again(runtime), name

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("word", sorted(hostile_tools.LISTS))
def test_lying_pages_end(word, era):
    async def go():
        async with asyncio.timeout(60), opened(hostile_server.command(word, era=era)) as runtime:
            assert runtime.tools or runtime.tools.report

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("word", "number", "reason"),
    [
        ("pages_endless", 1_000, "more than 1,000 pages"),
        ("pages_endless_empty", len(hostile_tools.TOOLS), "more than 1,000 pages"),
        ("pages_refused", 3, "refuses a page that it named"),
    ],
)
def test_the_tools_before_the_missing_end_of_a_list_are_kept(word, number, reason, era):
    async def go():
        async with asyncio.timeout(60), opened(hostile_server.command(word, era=era)) as runtime:
            assert len(runtime.tools) == number
            [found] = [each for each in runtime.tools.report if "are kept" in each.message]
            assert reason in found.message
            assert found.severity == "warning"

    asyncio.run(go())


def test_bad_schemas_leave_out_their_tool_alone():
    async def go():
        async with opened(hostile_server.command("schemas", era="legacy")) as runtime:
            ids = {tool.id for tool in runtime.tools}
            assert "h.echo" in ids
            assert {found.severity for found in runtime.tools.report} <= {"error", "warning"}
            assert len(runtime.tools.report) >= 1

    asyncio.run(go())


def test_a_server_that_ends_at_once_is_reported():
    async def go():
        async with opened(hostile_server.command("crash")) as runtime:
            [found] = runtime.tools.report
            assert found.severity == "warning"
            assert "come back when it answers" in found.message

    asyncio.run(go())


def test_text_before_the_first_message_costs_nothing():
    async def go():
        async with opened(hostile_server.command("garbage", era="legacy")) as runtime:
            assert await works_again(runtime)

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_over_http_the_same_server_works(era):
    async def go():
        with hostile_server.served(era=era) as upstream:
            async with opened(upstream.url) as runtime:
                assert (await runtime.execute("h.add", {"a": 1, "b": 2})).data == {"sum": 3}
                assert await works_again(runtime)

    asyncio.run(go())


def test_a_server_of_another_sdk_that_refuses_the_newest_revision_is_of_the_older_era():
    async def go():
        refusal = {"server/discover": "unsupported_version"}
        with hostile_server.served(era="legacy", on=refusal) as upstream:
            async with opened(upstream.url) as runtime:
                assert (await runtime.execute("h.add", {"a": 1, "b": 2})).data == {"sum": 3}

    asyncio.run(go())


def test_a_server_that_refuses_a_revision_and_names_it_is_asked_again():
    async def go():
        with hostile_server.served(era="modern", on={"server/discover": "names_it"}) as upstream:
            async with opened(upstream.url) as runtime:
                assert (await runtime.execute("h.add", {"a": 1, "b": 2})).data == {"sum": 3}
            methods = [each["method"] for each in upstream.received]
            assert methods.count("server/discover") == 2
            assert "initialize" not in methods

    asyncio.run(go())


@pytest.mark.parametrize("refusal", ["session_not_found", "no_session"])
def test_a_session_that_a_server_of_another_sdk_forgot_is_opened_again(refusal):
    async def go():
        with hostile_server.served(era="legacy") as upstream:
            async with opened(upstream.url) as runtime:
                upstream.on["tools/call"] = refusal
                assert (await runtime.execute("h.add", {"a": 1, "b": 2})).data == {"sum": 3}
            methods = [each["method"] for each in upstream.received]
            assert methods.count("initialize") == 2

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("code", [-32_000, -32_001])
def test_an_error_with_a_code_of_the_sdk_is_the_servers_own(code, era):
    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            first = (await runtime.execute("h.whoami", {})).data["pid"]
            for _ in range(5):
                with pytest.raises(UpstreamError, match=f"answered with the error {code}"):
                    await runtime.execute("h.error", {"code": code})
            assert (await runtime.execute("h.whoami", {})).data["pid"] == first

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_an_answer_to_another_request_is_not_taken_for_the_answer(era):
    async def go():
        with hostile_server.served(era=era) as upstream:
            async with opened(upstream.url) as runtime:
                envelope = await runtime.execute("h.others_first", {}, deadline=later(10))
                assert envelope.data[0]["text"] == "yours"
                with pytest.raises(CallError):
                    await runtime.execute("h.only_wrong_id", {}, deadline=later(1))

    asyncio.run(go())


@pytest.mark.parametrize("pins", ["block", "warn", "off"])
def test_changed_resources_and_prompts_are_blocked_as_tools_are(pins, tmp_path):
    changes = [
        {"kind": "resources", "name": "note", "fields": {"description": "Read me first."}},
        {"kind": "prompts", "name": "greet", "fields": {"description": "Another one."}},
        {"kind": "tools", "name": "greet", "fields": {"description": "A namesake."}},
    ]

    def source(**options):
        command = tuple(hostile_server.command(era="legacy", **options))
        servers = [ServerSettings(name="h", command=command)]
        return McpSource(servers, pins=pins, lock=tmp_path / "lock")

    async def go():
        before = source(changes=changes[2:])
        lock = Lock()
        for name, found in (await before.definitions()).items():
            lock = updated(lock, name, found.plain())
        write_lock(tmp_path / "lock", lock)
        await before.aclose()
        after = source(changes=[changes[2], *changes[:2]])
        tools = await after.load()
        await after.aclose()
        blocked = [tool.id for tool in tools if tool.disabled is not None]
        offers = (*tools.resources, *tools.prompts)
        blocked += [each.tool.id for each in offers if each.tool.disabled is not None]
        assert blocked == (["h.note", "h.greet"] if pins == "block" else [])
        found = [each for each in tools.report if "pinned" in each.message]
        assert len(found) == (0 if pins == "off" else 2)

    asyncio.run(go())


class Bearer(httpx2.Auth):
    def auth_flow(self, request):
        request.headers["Authorization"] = "Bearer sesame"
        yield request


@pytest.mark.parametrize("era", ERAS)
def test_a_given_auth_authorizes_every_request(era):
    async def go():
        with hostile_server.served(era=era, token="sesame") as upstream:
            async with opened(upstream.url, auth=Bearer()) as runtime:
                assert (await runtime.execute("h.add", {"a": 1, "b": 2})).data == {"sum": 3}
            async with opened(upstream.url) as runtime:
                assert not runtime.tools

    asyncio.run(go())


def test_a_private_address_is_refused_unless_it_is_named():
    async def go():
        with hostile_server.served(era="modern") as upstream:
            source, tools = await from_mcp(upstream.url, namespace="h")
            await source.aclose()
            [found] = tools.report
            assert not tools
            assert "may not be reached" in found.message
            assert [each for each in upstream.received if each["method"] != "start"] == []

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_a_wrong_output_is_cast_and_reported_and_never_lost(era):
    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            wrong = [n for n in hostile_tools.TOOLS if n.startswith("wrong")]
            assert wrong
            for name in wrong:
                try:
                    envelope = await runtime.execute(f"h.{name}", {})
                except UpstreamError:
                    continue
                assert envelope.meta.content or envelope.warnings

    asyncio.run(go())


class Person(Client):
    """A client that answers everything."""

    can_elicit = can_sample = can_list_roots = True

    def __init__(self):
        self.reports = []

    async def elicit(self, message, schema, *, key=""):
        return Elicited("accept", {"name": "Ada", "answer": "Ada", "ok": True})

    async def sample(self, messages, *, max_tokens, system=None, temperature=None, stop=(), key=""):
        return Sampled("hello", ({"type": "text", "text": "hello"},), "m")

    async def roots(self, *, key=""):
        return (Root("file:///a"),)

    async def log(self, level, data):
        self.reports.append(("log", data))

    async def progress(self, done, total, message):
        self.reports.append(("progress", done))


@pytest.mark.parametrize("era", ERAS)
def test_progress_reaches_the_client_of_the_call(era):
    async def go():
        client = Person()
        async with opened(hostile_server.command(era=era)) as runtime:
            await runtime.call(Call("h.progress", {"steps": 3}), trusted=True, client=client)
        assert [each for each in client.reports if each[0] == "progress"]

    asyncio.run(go())


def test_a_server_that_comes_up_later_is_loaded_by_itself(tmp_path):
    async def go():
        once = tmp_path / "once"
        command = hostile_server.command("crash", era="legacy", once=once)
        source, tools = await from_mcp(command, namespace="h")
        try:
            assert not tools
            async with asyncio.timeout(30):
                await source.changed.wait()
            assert "h.echo" in {tool.id for tool in await source.load()}
        finally:
            await source.aclose()

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_a_changed_list_is_noticed(era):
    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            await asyncio.sleep(0)
            arguments = {"name": "echo", "fields": {"description": "Another one."}}
            async with asyncio.timeout(30):
                while not runtime.source.changed.is_set():
                    await runtime.execute("h.mutate", arguments)
                    await asyncio.sleep(0.1)
            [echo] = [tool for tool in await runtime.source.load() if tool.id == "h.echo"]
            assert echo.description == "Another one."

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_nothing_of_the_caller_reaches_the_server(era):
    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            call = Call("h.whoami", {}, metadata={"secret": "sesame-open"})
            seen = (await runtime.call(call, Identity("ada-the-caller"))).data
            assert "sesame-open" not in str(seen)
            assert "ada-the-caller" not in str(seen)

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["elicitation", "sampling", "roots"])
def test_a_question_of_the_server_is_answered_by_the_client_of_the_call(name, era):
    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            call = Call(f"h.ask_{name}", {}, deadline=later(15))
            envelope = await runtime.call(call, trusted=True, client=Person())
            assert not envelope.meta.is_error
            expected = {"elicitation": "accept", "sampling": "hello", "roots": "file:///a"}
            assert expected[name] in str(envelope.data)

    asyncio.run(go())


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_call_is_cancelled_at_the_server(era):
    async def go():
        async with opened(hostile_server.command(era=era)) as runtime:
            call = asyncio.create_task(runtime.execute("h.never", {}))
            await asyncio.sleep(0.3)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async with asyncio.timeout(20):
                while True:
                    seen = (await runtime.execute("h.received", {})).data["received"]
                    if any(each["method"] == "notifications/cancelled" for each in seen):
                        return
                    await asyncio.sleep(0.1)

    asyncio.run(go())
