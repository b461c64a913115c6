"""The HTTP door as others meet it: a process, a port, and whatever they send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from mcp import Client

import raw
from callpact.errors import InvalidConfig
from callpact.serve.http.http_server import check_place

HERE = Path(__file__).parent
TOOLS = HERE / "behaviour.py"


Served, called, initialize, works = raw.Served, raw.called, raw.initialize, raw.works
message, request, routed = raw.message, raw.request, raw.routed
LIMIT = 4 << 20
ERAS = pytest.mark.parametrize("era", [routed(), {}], ids=["2026-07-28", "older"])


@pytest.fixture(scope="session")
def served():
    with Served(TOOLS) as process:
        yield process


@pytest.fixture
def line(served):
    with served.connect() as connection:
        yield connection


def nested(levels):
    return b"[" * levels + b"]" * levels


# --- messages ---------------------------------------------------------------------------------

PARSE, INVALID = -32700, -32600
MESSAGES = {
    "nothing": (b"", PARSE),
    "half": (b'{"jsonrpc": "2.0", "id": 1, "meth', PARSE),
    "twice": (json.dumps(message()).encode() * 2, PARSE),
    "not a number": (json.dumps(message(x=float("nan"))).encode(), PARSE),
    "infinite": (json.dumps(message()).replace("1", "1e999", 1).encode(), PARSE),
    "half a character": (json.dumps(message(x="\ud800")).encode(), PARSE),
    "no utf-8": (json.dumps(message(x="?")).encode().replace(b"?", b"\xff"), PARSE),
    "too deep": (
        json.dumps(message(x=0)).encode().replace(b'"x": 0', b'"x": ' + nested(1_023)),
        PARSE,
    ),
    "far too deep": (nested(100_000), PARSE),
    "deep without end": (b'{"a":' * 100_000, PARSE),
    "a text": (b'"hello"', INVALID),
    "a batch": (json.dumps([message()]).encode(), INVALID),
    "an empty object": (b"{}", INVALID),
    "no version": ({"id": 1, "method": "ping"}, INVALID),
    "another version": ({**message(), "jsonrpc": "1.0"}, INVALID),
    "no method": ({"jsonrpc": "2.0", "id": 1}, INVALID),
    "method is a number": ({**message(), "method": 5}, INVALID),
    "id is null": ({**message(), "id": None}, INVALID),
    "id is an object": ({**message(), "id": {}}, INVALID),
    "id is true": ({**message(), "id": True}, INVALID),
    "id is a fraction": ({**message(), "id": 1.5}, INVALID),
    "params is a list": ({**message(), "params": []}, INVALID),
    "result and error": ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, INVALID),
}


@ERAS
@pytest.mark.parametrize("name", MESSAGES)
def test_a_bad_message_is_an_error_of_the_protocol_and_the_next_on_its_connection_works(
    line, era, name
):
    body, code = MESSAGES[name]
    answer = line.ask(body, **era)
    assert answer.status == 400
    assert answer.error["code"] == code
    assert works(line)


@ERAS
def test_an_error_names_the_request_if_that_can_be_read(line, era):
    answer = line.ask({**message(number=7), "params": []}, **era)
    assert answer.json["id"] == 7
    assert line.ask({**message(), "id": {}}, **era).json["id"] is None


def test_arguments_at_the_deepest_that_is_read_are_judged_by_the_contract(line):
    arguments = {"text": json.loads(nested(145))}
    line.send(called("behaviour_say", **arguments))
    result = line.read().result
    assert result["isError"]
    error = json.loads(result["content"][0]["text"])["error"]
    assert error["code"] == "schema_validation_failed"


def test_a_notification_is_taken_without_an_answer(line):
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert line.ask(note, **routed()).status == 202
    assert works(line)


# --- who may knock ----------------------------------------------------------------------------

METHODS = pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8420",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8420",
    "0.0.0.0:8420",
    "192.168.1.2",
    "[::2]:8420",
    "[fe80::1]",
    "",
]
FOREIGN_ORIGINS = [
    "https://evil.example",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example:8420",
    "http://localhost@evil.example",
    "http://evil.example/localhost",
    "http://[::1",
    "file://localhost",
    "localhost",
    "null",
    "",
    ["http://localhost", "https://evil.example"],
]


@METHODS
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/elsewhere"])
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_request_to_another_host_is_refused_at_every_path(line, host, path, method):
    answer = line.ask(message(), method=method, path=path, Host=host, **routed())
    assert answer.status == 403
    assert "Host" in answer.error["message"]


@METHODS
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS, ids=str)
def test_a_web_page_of_others_cannot_drive_the_server(line, origin, method):
    answer = line.ask(message(), method=method, Origin=origin, **routed())
    assert answer.status == 403
    assert "Origin" in answer.error["message"]
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_request_without_a_host_is_refused(line):
    line.send(request(message(), **routed(), Host=None).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert line.read().status == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:1", "[::1]:1", "127.9.9.9"]
)
@pytest.mark.parametrize("origin", [None, "http://localhost:3000", "https://127.0.0.1"])
def test_every_name_of_this_machine_is_served(line, host, origin):
    assert line.ask(message(), Host=host, Origin=origin, **routed()).result["tools"]


# --- what is no request of MCP ----------------------------------------------------------------


@ERAS
@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/jsonp", "application/x-www-form-urlencoded",
     ["application/json", "text/plain"]],
    ids=str,
)  # fmt: skip
def test_a_body_that_does_not_say_that_it_is_json_is_refused(line, era, kind):
    answer = line.ask(message(), Content_Type=kind, **era)
    assert answer.status == 415
    assert answer.error["code"] == INVALID
    assert works(line)


def test_the_charset_of_json_may_be_told(line):
    kind = "Application/JSON; charset=utf-8"
    assert line.ask(message(), Content_Type=kind, **routed()).result["tools"]


@ERAS
def test_a_client_that_takes_no_json_is_refused(line, era):
    assert line.ask(message(), Accept="text/html", **era).status == 406
    assert works(line)


def test_another_path_is_not_found(line):
    for path in ("/", "/elsewhere", "/mcp/more", "/../mcp", "/%6dcp%00"):
        assert line.ask(message(), path=path, **routed()).status == 404
    assert works(line)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
def test_only_post_is_for_new_clients(line, method):
    answer = line.ask(method=method, **routed())
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert works(line)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_without_a_session_old_clients_can_only_begin_one(line, method):
    assert line.ask(method=method).status in {400, 405}
    assert line.ask(message()).status == 400
    assert line.ask(message(), method=method, Mcp_Session_Id="nosuch").status == 404
    assert works(line)


@pytest.mark.parametrize(
    "start",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %b\r\n\r\n" % (b"9" * 4_000),
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 100_000,
    ],
    ids=range(8),
)
def test_what_is_no_http_is_refused_and_its_connection_ended(served, line, start):
    line.send(start)
    assert line.read().status in {400, 431, 501}
    assert line.is_ended()
    with served.connect() as other:
        assert works(other)


def test_an_upgrade_to_websockets_is_not_made(line):
    answer = line.ask(method="GET", Connection="Upgrade", Upgrade="websocket", **routed())
    assert answer.status == 405
    assert works(line)


@pytest.mark.skipif(os.name != "posix", reason="there is no such limit")
def test_connections_are_served_above_the_open_files_that_the_system_allows_at_first():
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
    try:
        serving = Served(TOOLS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with serving as process, contextlib.ExitStack() as stack:
        lines = [stack.enter_context(process.connect()) for _ in range(150)]
        assert all(works(each) for each in lines)


# --- size -------------------------------------------------------------------------------------


@ERAS
def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_comes(served, line, era):
    for size in (LIMIT + 1, 10**15):
        with served.connect() as one:
            one.send(request(Content_Length=str(size), **era))
            answer = one.read()
            assert (answer.status, answer.error["code"]) == (413, INVALID)
    assert works(line)


def test_a_client_that_asks_first_whether_it_may_send_too_much_is_told_no(line):
    line.send(request(Content_Length=str(LIMIT + 1), Expect="100-continue", **routed()))
    assert line.read().status == 413


@ERAS
def test_a_body_of_unknown_size_is_refused_as_soon_as_it_is_too_large(served, line, era):
    start = request(Content_Length=None, Transfer_Encoding="chunked", **era)
    line.send(start + b"%x\r\n%b\r\n" % (LIMIT + 1, b" " * (LIMIT + 1)))
    assert line.read().status == 413  # Its last chunk never came.
    with served.connect() as other:
        assert works(other)


def test_a_body_of_the_largest_size_is_read(line):
    body = json.dumps(message()).encode()
    assert line.ask(body + b" " * (LIMIT - len(body)), **routed()).result["tools"]


def test_memory_does_not_grow_with_what_was_refused_or_answered():
    # Without the audit log, whose compactor takes memory once, in the middle of any round.
    with Served(TOOLS, args=("--audit", "off")) as served:
        _assert_steady(served)


def _assert_steady(served):
    def round_():
        with served.connect() as line:
            line.send(called("behaviour_say", text="x" * 300_000))
            assert line.read().status == 200
            assert line.ask(b'{"a":' * 200_000, **routed()).status == 400
            assert line.ask(initialize()).status == 200
            line.send(request(Content_Length=None, Transfer_Encoding="chunked"))
            line.send(b"%x\r\n%b\r\n" % (LIMIT + 1, b" " * (LIMIT + 1)))
            assert line.read().status == 413

    for _ in range(15):
        round_()
    before = served.memory()
    for _ in range(45):
        round_()
    assert served.memory() - before < 32 << 20  # What was sent meanwhile is 200 MB and more.


# --- those who leave --------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@ERAS
def test_a_client_that_leaves_before_its_request_is_whole_costs_nothing(served, line, era, share):
    whole = request(message(), **era)
    with served.connect() as leaving:
        leaving.send(whole[: int(len(whole) * share)])
    assert works(line)


def test_a_new_client_that_leaves_ends_its_call(served, line):
    key = uuid.uuid4().hex
    with served.connect() as leaving:
        leaving.send(called("behaviour_wait", key=key))
        line.send(called("behaviour_until", key=key, place="begun"))
        assert not line.read().result["isError"]
    line.send(called("behaviour_until", key=key, place="cancelled"))
    assert not line.read().result["isError"]


def test_requests_sent_in_one_go_are_answered_in_order(line):
    line.send(b"".join(called("behaviour_say", text=f"{number}") for number in range(20)))
    told = [line.read().result["structuredContent"] for _ in range(20)]
    assert told == [f"{number}" for number in range(20)]


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_a_hundred_calls_run_at_the_same_time(served, mode):
    key = uuid.uuid4().hex

    async def half(numbers):  # The client has a hundred connections, and one is for notices.
        async with Client(served.address, mode=mode) as client:
            calls = [{"key": key, "number": number, "of": 100} for number in numbers]
            return await asyncio.gather(*[client.call_tool("behaviour_meet", one) for one in calls])

    async def go():
        first, second = await asyncio.gather(half(range(50)), half(range(50, 100)))
        return first + second

    results = asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))
    told = [json.loads(result.content[0].text) for result in results]
    wanted = list(range(100))
    assert told == (wanted if mode != "legacy" else [{"result": number} for number in wanted])


# --- callers without tokens ------------------------------------------------------------------


def test_the_rest_of_a_large_answer_is_for_the_address_that_asked(served, line):
    line.send(called("behaviour_names", count=30_000))
    cursor = line.read().result["_meta"]["callpact/page"]["nextCursor"]
    with raw.Line(served.port, source="127.0.0.9") as other:
        other.send(called("read_result", cursor=cursor))
        denied = other.read().result
        assert denied["isError"]
        assert "result_gone" in denied["content"][0]["text"]
    with served.connect() as again:
        again.send(called("read_result", cursor=cursor))
        assert not again.read().result["isError"]


# --- where, and for whom ----------------------------------------------------------------------

MARKED = """
from pathlib import Path
from callpact import tool

Path(__file__).with_name("loaded").touch()

@tool
def nothing() -> None:
    "Do nothing."
"""


def refused(folder, *args):
    """The line that is said to a command that does not serve."""
    (folder / "marked.py").write_text(MARKED, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "-s", "marked.py", *args],
        cwd=folder, capture_output=True, text=True, timeout=raw.PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--host", "0.0.0.0", "without authentication the tools are served on this machine alone"),
        ("--port", "70000", "from 0 to 65535"),
        ("--path", "mcp", "as in /mcp"),
    ],
)
def test_a_place_that_must_not_be_served_is_one_line_before_anything_is_loaded(
    tmp_path, option, value, words
):
    told = refused(tmp_path, option, value)
    assert told.startswith(f"error: {option} {value}: ")
    assert words in told
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("host", ["", "::", "[::]", "192.168.1.5", "fe80::1", "example.com"])
def test_a_host_that_others_can_reach_is_refused(host):
    with pytest.raises(InvalidConfig, match="without authentication"):
        check_place(host, 1, "/mcp")


@pytest.mark.parametrize("path", ["", "mcp", "//a", "/a b", "/a?b", "/a#b", "/{a}", "/ä", "/a\n"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(InvalidConfig, match="as in /mcp"):
        check_place("localhost", 1, path)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
@pytest.mark.parametrize("path", ["/", "/mcp", "/mcp/", "/a/b-c_d.e~f"])
def test_any_path_of_this_machine_is_a_place(host, path):
    for port in (0, 65_535):
        check_place(host, port, path)
    for port in (-1, 65_536):
        with pytest.raises(InvalidConfig, match="--port"):
            check_place(host, port, path)


def test_a_port_that_is_taken_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(tmp_path, "--port", str(port))
    assert told.startswith(f"error: cannot serve on 127.0.0.1, port {port}: ")
    assert told.endswith("use another --port")


CLOSED = """
from callpact import Contract, Tool

async def whoami(arguments, context):
    return {"id": context.identity and context.identity.id}

async def tick(arguments, context):
    yield 1

def made(name, handler=whoami, **more):
    return Tool(id=f"t.{name}", description=name, contract=Contract(), handler=handler, **more)

open_ = made("open")
admin = made("admin", access=["admin"])
ticks = made("ticks", tick, kind="subscription")
"""


@pytest.mark.parametrize(
    ("scopes", "told", "left_out"),
    [
        ((), "serving 1 tool", ["1 (needs scope admin)", "1 (subscription)"]),
        (("--scope", "admin"), "serving 2 tools", ["1 (subscription)"]),
    ],
)
def test_the_banner_says_where_how_many_and_what_is_left_out(tmp_path, scopes, told, left_out):
    (tmp_path / "t.py").write_text(CLOSED, "utf-8")
    place = ["--host", "localhost", "--path", "/tools/mcp"]
    with Served("t.py", args=[*scopes, *place], cwd=tmp_path) as served:

        async def go():
            async with Client(served.address) as client:
                return (await client.call_tool("t_open", {})).structured_content

        told_id = asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))
        assert served.end(signal.SIGINT) == 130
    assert told_id == {"id": "http" if scopes else None}
    assert served.lines[0] == f"{told} over http://localhost:{served.port}/tools/mcp"
    told_out = [line for line in served.lines if line.startswith("left out: ")]
    assert sorted(told_out) == [f"left out: {line}" for line in left_out]


def test_any_address_of_this_machine_can_be_served():
    with Served(TOOLS, args=["--host", "127.0.0.2"]) as served:
        assert served.address == f"http://127.0.0.2:{served.port}/mcp"
        with raw.Line(served.port, "127.0.0.2") as line:
            assert line.ask(message(), Host=f"127.0.0.2:{served.port}", **routed()).result["tools"]
