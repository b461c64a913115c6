"""The servers that other tests put behind the gateway work, seen by the SDK's own client."""

import asyncio
import contextlib
import json
import subprocess

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

import hostile_server
import hostile_tools
import raw
import real_servers
from piped import Wire
from raw import PATIENCE

ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}


def parameters(command, env=None):
    return StdioServerParameters(command=command[0], args=command[1:], env=env)


def bounded(awaitable):
    return asyncio.run(asyncio.wait_for(awaitable, PATIENCE))


@pytest.fixture(params=["stdio", "http"])
def hostile(request):
    """Gives a function: the target of a client for a server with words and options."""
    with contextlib.ExitStack() as stack:

        def start(*words, **options):
            if request.param == "stdio":
                return parameters(hostile_server.command(*words, **options), {"KIT": "here"})
            return stack.enter_context(hostile_server.served(*words, **options)).url

        yield start


@pytest.fixture(params=ERAS)
def mode(request):
    return request.param


def test_well_behaved_tools_work_in_both_eras(hostile, mode):
    async def go():
        async with Client(hostile(), mode=mode) as client:
            assert client.session.protocol_version == ERAS[mode]
            listed = await client.list_tools()
            assert {tool.name for tool in listed.tools} == set(hostile_tools.TOOLS)
            assert (await client.call_tool("echo", {"message": "hi"})).content[0].text == "hi"
            added = await client.call_tool("add", {"a": 1, "b": 2})
            assert added.structured_content == {"sum": 3}
            seen = (await client.call_tool("whoami", {})).structured_content
            assert seen["env"]["PATH"]
            assert "mcp-protocol-version" in seen["headers"] or seen["env"]["KIT"] == "here"

    bounded(go())


def test_resources_prompts_and_completions_work_in_both_eras(hostile, mode):
    async def go():
        async with Client(hostile(), mode=mode) as client:
            (resource,) = (await client.list_resources()).resources
            assert (await client.read_resource(resource.uri)).contents[0].text == "note 1"
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "test://notes/{number}"
            (prompt,) = (await client.list_prompts()).prompts
            got = await client.get_prompt(prompt.name, {"who": "Ada"})
            assert got.messages[0].content.text == "Greet Ada"
            about = types.PromptReference(type="ref/prompt", name="greet")
            found = await client.complete(about, {"name": "who", "value": "al"})
            assert found.completion.values == ["alan"]

    bounded(go())


def test_questions_and_progress_and_log_lines_arrive_in_both_eras(hostile, mode):
    async def sample(context, params):
        content = types.TextContent(type="text", text="hello")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def elicit(context, params):
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def roots(context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])

    async def go():
        steps, lines = [], []

        async def step(progress, total, message):
            steps.append((progress, total))

        async def log(params):
            lines.append(params.data)

        given = {"sampling_callback": sample, "elicitation_callback": elicit}
        given |= {"list_roots_callback": roots, "logging_callback": log}
        async with Client(hostile(), mode=mode, **given) as client:
            for name, expected in {
                "ask_sampling": ("model", "m"),
                "ask_elicitation": ("content", {"name": "Ada"}),
                "ask_roots": ("roots", [{"uri": "file:///tmp"}]),
            }.items():
                answer = (await client.call_tool(name, {})).structured_content
                assert answer["result"][expected[0]] == expected[1]
                assert answer["state"] == ("s-1" if mode != "legacy" else None)
            await client.call_tool("progress", {"steps": 2}, progress_callback=step)
            assert steps == [(1, 2), (2, 2)]
            await client.call_tool("log", {})
            assert lines == ["a line"]

    bounded(go())


def test_a_changed_definition_is_announced_in_both_eras(hostile, mode):
    change = {"name": "echo", "fields": {"description": "Now different"}}

    async def go():
        changed = asyncio.Event()

        async def handle(message):
            if isinstance(message, types.ToolListChangedNotification):
                changed.set()

        async with contextlib.AsyncExitStack() as stack:
            target = hostile(only=["echo", "mutate"])
            client = await stack.enter_async_context(
                Client(target, mode=mode, message_handler=handle)
            )
            if mode == "legacy":
                await client.call_tool("mutate", change)
                await changed.wait()
            else:
                events = await stack.enter_async_context(client.listen(tools_list_changed=True))
                await client.call_tool("mutate", change)
                await anext(events)
            tools = (await client.list_tools()).tools
            assert tools[0].description == "Now different"

    bounded(go())


def test_a_cancelled_call_is_recorded(hostile, mode):
    async def go():
        target = hostile(only=["never", "received"])
        async with Client(target, mode=mode) as client:
            with pytest.raises(Exception, match=r"(?i)timed out"):
                await client.call_tool("never", {}, read_timeout_seconds=0.2)
            seen = (await client.call_tool("received", {})).structured_content["received"]
            methods = [entry["method"] for entry in seen]
            is_lost = isinstance(target, str) and mode != "legacy"
            assert ("closed" if is_lost else "notifications/cancelled") in methods

    bounded(go())


@pytest.mark.parametrize("word", ["pages", "pages_empty_cursor", "pages_tail"])
def test_pages_hold_all_tools(hostile, mode, word):
    async def go():
        names, cursor = [], None
        async with Client(hostile(word), mode=mode) as client:
            while True:
                page = await client.session.list_tools(
                    params=types.PaginatedRequestParams(cursor=cursor)
                )
                names += [tool.name for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    break
        assert names == list(hostile_tools.TOOLS)

    bounded(go())


def test_era_auto_finds_what_the_server_speaks(hostile):
    async def go():
        for era, version in (("legacy", "2025-11-25"), ("modern", "2026-07-28")):
            async with Client(hostile(era=era, only=["echo"]), mode="auto") as client:
                assert client.session.protocol_version == version
                assert (await client.call_tool("echo", {})).content[0].text == "hello"

    bounded(go())


# --- what no good client would accept, seen as bytes --------------------------------------------


class Piped(Wire):
    """A hostile server over pipes; gives what it writes."""

    def __init__(self, *words, **options):
        pipe = subprocess.PIPE
        command = hostile_server.command(*words, **options)
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0
        )
        super().__init__(self.process.stdin.fileno(), self.process.stdout.fileno())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def ask(self, name, **arguments):
        self.send(self.call(name, **arguments))
        return self.line()


def test_bad_definitions_are_listed_as_they_are():
    for word in hostile_tools.EXTRAS:
        with Piped(word) as piped:
            piped.send(raw.message("tools/list"))
            tools = piped.read()["result"]["tools"]
            extras = tools[len(hostile_tools.TOOLS) :]
            assert len(extras) == len(hostile_tools.EXTRAS[word])


def test_bad_answers_are_written_as_announced():
    with Piped() as piped:
        assert len(piped.ask("huge", megabytes=2)) > 2_000_000
        assert piped.ask("deep", levels=5_000).count(b"{") > 5_000
        assert b"NaN" in piped.ask("not_a_number")
        assert json.loads(piped.ask("wrong_id"))["id"] == "another"
        for _ in range(5):
            piped.line()
        with pytest.raises(ValueError):
            json.loads(piped.ask("bad_json"))
        first, second = piped.ask("duplicate"), piped.line()
        assert (b"first" in first, b"second" in second) == (True, True)
        assert json.loads(piped.ask("status"))["result"]["isError"]
        assert piped.ask("crash") == b""
        assert piped.process.wait(PATIENCE) == -9


def test_ways_to_start():
    with Piped("crash") as piped:
        assert piped.process.wait(PATIENCE) == 3
    with Piped("garbage") as piped:
        assert piped.ask("echo").startswith(b"Welcome")


def test_once_is_for_the_first_process_and_all_are_recorded(tmp_path):
    options = {"once": tmp_path / "once", "record": tmp_path / "record"}
    with Piped("crash", **options) as piped:
        assert piped.process.wait(PATIENCE) == 3
    with Piped("crash", **options) as piped:
        assert b"hello" in piped.ask("echo")
    lines = [json.loads(line)["method"] for line in options["record"].read_text().splitlines()]
    assert lines == ["start", "start", "tools/call"]


def test_http_faults_are_as_announced():
    with hostile_server.served(token="t0ken") as upstream:
        port = int(upstream.url.split(":")[2].split("/")[0])

        def ask(name, token="t0ken", **arguments):
            with raw.Line(port) as line:
                body = raw.message("tools/call", name=name, arguments=arguments)
                routed = raw.routed("tools/call", name)
                return line.ask(body, **routed, Authorization=f"Bearer {token}")

        assert ask("echo").result["content"][0]["text"] == "hello"
        assert ask("echo", token="other").status == 401
        assert ask("status").status == 500
        assert ask("status", code=429, headers={"Retry-After": "7"}).headers["retry-after"] == "7"
        assert ask("redirect").headers["location"] == "http://other.invalid/mcp"
        assert ask("content_type").headers["content-type"] == "text/html"
        assert ask("sse_garbage").headers["content-type"] == "text/event-stream"
        assert len(ask("gzip_bomb").body) < 1_000_000
        upstream.on["tools/call"] = "too_many"
        assert ask("echo").status == 429
        upstream.on.clear()
        assert ask("echo").status == 200


def test_an_expired_session_gets_404():
    async def go(url):
        async with Client(url, mode="legacy") as client:
            await client.list_tools()  # The SDK would list after the call, to check its result.
            await client.call_tool("expire", {})
            with pytest.raises(Exception, match="Session terminated"):
                await client.call_tool("echo", {})

    with hostile_server.served() as upstream:
        bounded(go(upstream.url))


SILENT = {"never", "hold", "slow", "drip"}
FATAL = {"endless", "drip", "crash", "close"}
"""Over stdio these leave no line for anything else."""
SMALL = {
    "megabytes": 1,
    "count": 100,
    "name": "echo",
    "fields": {"title": "t"},
    "uri": "test://notes/1",
}


def small(name):
    """The arguments that a tool has a use for."""
    wanted = hostile_tools.TOOLS[name]["inputSchema"]["properties"]
    return {key: SMALL[key] for key in wanted if key in SMALL}


def test_every_tool_leaves_the_stdio_server_working():
    with Piped() as piped:
        for name in [name for name in hostile_tools.TOOLS if name not in FATAL]:
            params = {"name": "echo", "arguments": {"message": f"after {name}"}}
            piped.send(piped.call(name, **small(name)))
            piped.send(raw.message("tools/call", number=f"after {name}", **params))
            answer = b'{"jsonrpc": "2.0", "id": "after %b"' % name.encode()
            while (line := piped.line()) and not line.startswith(answer):
                assert b"test kit failed" not in line
            assert json.loads(line)["result"]["content"][0]["text"] == f"after {name}"


@pytest.mark.parametrize("name", [*hostile_tools.TOOLS, *hostile_tools.LISTS])
def test_every_behaviour_leaves_the_http_server_working(upstream, name):
    port = int(upstream.url.split(":")[2].split("/")[0])
    method = "tools/call" if name in hostile_tools.TOOLS else "tools/list"
    upstream.on = {} if method == "tools/call" else {method: name}
    asked = {"name": name, "arguments": small(name)} if method == "tools/call" else {}
    body = raw.request(raw.message(method, **asked), **raw.routed(method, asked.get("name")))
    with raw.Line(port) as line, contextlib.suppress(ConnectionError):
        line.send(body)
        assert b"test kit failed" not in (b"" if name in SILENT else line.file.read(1 << 16))
    with raw.Line(port) as line:
        line.send(raw.called("echo"))
        assert line.read().result["content"][0]["text"] == "hello"


@pytest.fixture(scope="module")
def upstream():
    with hostile_server.served() as upstream:
        yield upstream


# --- real servers -------------------------------------------------------------------------------


REAL = {
    "everything": ("legacy", "echo"),
    "filesystem": ("legacy", "read_text_file"),
    "memory": ("legacy", "create_entities"),
    "time": ("2026-07-28", "convert_time"),
    "git": ("2026-07-28", "git_log"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_servers_list_their_tools(name, tmp_path):
    given = {
        "filesystem": [tmp_path],
        "memory": [tmp_path / "memory.jsonl"],
        "git": [tmp_path],
    }
    if name == "git":
        real_servers.repository_in(tmp_path)
    server = getattr(real_servers, name)(*given.get(name, []))
    mode, tool = REAL[name]

    async def go():
        async with Client(parameters(server.command, server.env), mode="auto") as client:
            assert client.session.protocol_version == ERAS[mode]
            assert tool in {one.name for one in (await client.list_tools()).tools}

    bounded(go())


def test_server_everything_answers_over_http():
    async def go(url):
        async with Client(url, mode="legacy") as client:
            said = await client.call_tool("echo", {"message": "hi"})
            assert said.content[0].text == "Echo: hi"

    with real_servers.everything_over_http() as url:
        bounded(go(url))
