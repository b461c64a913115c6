"""The stdio door as bytes: whatever a client writes or leaves unread, the next line is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server import Server

import raw
from callpact.serve.stdio import LineLimits, serve_lines

TOOLS = Path(__file__).parent / "behaviour.py"
SERVE = [sys.executable, "-m", "callpact", "serve", "--stdio", "-s"]
PATIENCE = raw.PATIENCE
MODERN, LEGACY = "2026-07-28", "legacy"
ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])
PARSE, INVALID, INTERNAL = -32700, -32600, -32603
LIMIT = 4 << 20
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Wire:
    """The client's ends of two pipes; everything is given up after PATIENCE."""

    def __init__(self, sending, reading):
        self.sending, self.reading = sending, reading
        self._read = b""
        self._number = 0

    def send(self, *lines):
        for line in lines:
            rest = memoryview(encoded(line))
            while rest:
                rest = rest[os.write(self.sending, rest) :]

    def is_told(self):
        """True if there is something more to read."""
        return bool(select.select([self.reading], [], [], PATIENCE)[0])

    def line(self):
        """The next line with its end; what there is at the end of all."""
        while b"\n" not in self._read:
            assert self.is_told(), self._read
            chunk = os.read(self.reading, 1 << 20)
            if not chunk:
                break
            self._read += chunk
        line, end, self._read = self._read.partition(b"\n")
        return line + end

    def read(self):
        return json.loads(self.line())

    def call(self, name, /, *, era=MODERN, **arguments):
        """A call in bytes, with an id of its own."""
        self._number += 1
        params = {"name": name, "arguments": arguments}
        if era == MODERN:
            return raw.message("tools/call", number=self._number, **params)
        return {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}

    def open(self, era):
        """What a client of an era says first."""
        if era == LEGACY:
            self.send(raw.initialize(0), READY)
            assert self.read()["id"] == 0

    def assert_works(self, era=MODERN, name="behaviour_add"):
        asked = self.call(name, era=era, a=1, b=2)
        self.send(asked)
        answer = self.read()
        assert (answer["id"], answer["result"]["isError"]) == (asked["id"], False)


def encoded(line):
    return line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"


class Served(Wire):
    """`callpact serve --stdio` as a process."""

    def __init__(self, *sources, stdin=subprocess.PIPE, stdout=subprocess.PIPE):
        command = [*SERVE, *map(str, sources or [TOOLS])]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=pipe, bufsize=0)
        ends = [self.process.stdin, self.process.stdout]
        super().__init__(*[-1 if end is None else end.fileno() for end in ends])
        self.errors = b""
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def _drain(self):
        for line in self.process.stderr:
            self.errors += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def wait(self):
        """The exit code, once it has ended."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            if end is not None:
                end.close()
        return code

    def hang_up(self):
        """Give what is answered before the end, in lines."""
        self.process.stdin.close()
        told = list(iter(self.line, b""))
        assert self.wait() == 0, self.errors
        assert b"Traceback" not in self.errors
        return told

    def most_memory(self):
        """Bytes of memory that the process has had at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.fixture(scope="module")
def both():
    """A server that was opened in each era."""
    with Served() as modern, Served() as legacy:
        legacy.open(LEGACY)
        yield {MODERN: modern, LEGACY: legacy}


# --- messages ---------------------------------------------------------------------------------


def nested(levels):
    return b"[" * levels + b"]" * levels


ASKED = raw.message()
MESSAGES = {
    "half": (b'{"jsonrpc": "2.0", "id": 1, "meth', PARSE),
    "no json": (b"hello", PARSE),
    "twice": (json.dumps(ASKED).encode() * 2, PARSE),
    "not a number": (json.dumps(raw.message(x=float("nan"))).encode(), PARSE),
    "infinite": (json.dumps(raw.message(x=float("inf"))).encode(), PARSE),
    "out of range": (json.dumps(ASKED).replace("1", "1e999", 1).encode(), PARSE),
    "half a character": (json.dumps(raw.message(x="\ud800")).encode(), PARSE),
    "no utf-8": (json.dumps(raw.message(x="?")).encode().replace(b"?", b"\xff"), PARSE),
    "utf-16": (json.dumps(ASKED).encode("utf-16"), PARSE),
    "a byte order mark inside": (b"\xef\xbb\xbf" + json.dumps(ASKED).encode(), PARSE),
    "a zero": (b"\0", PARSE),
    "a single quote": (b"{'jsonrpc': '2.0'}", PARSE),
    "too deep": (json.dumps(raw.message(x=json.loads(nested(149)))).encode(), PARSE),
    "far too deep": (nested(100_000), PARSE),
    "deep without end": (b'{"a":' * 100_000, PARSE),
    "too long": (b'"' + b"x" * LIMIT + b'"', INVALID),
    "a text": (b'"hello"', INVALID),
    "nothing": (b"null", INVALID),
    "a batch": (json.dumps([ASKED, ASKED]).encode(), INVALID),
    "an empty batch": (b"[]", INVALID),
    "an empty object": (b"{}", INVALID),
    "no version": (b'{"method": "ping", "id": null}', INVALID),
    "no method": (b'{"jsonrpc": "2.0"}', INVALID),
    "id is null": (json.dumps({**ASKED, "id": None}).encode(), INVALID),
    "id is an object": (json.dumps({**ASKED, "id": {}}).encode(), INVALID),
    "id is a list": (json.dumps({**ASKED, "id": [1]}).encode(), INVALID),
    "id is true": (json.dumps({**ASKED, "id": True}).encode(), INVALID),
    "id is a fraction": (json.dumps({**ASKED, "id": 1.5}).encode(), INVALID),
    "a result that is a text": (b'{"jsonrpc": "2.0", "id": 1, "result": "x"}', INVALID),
    "an error that is a text": (b'{"jsonrpc": "2.0", "id": 1, "error": "x"}', INVALID),
}


def assert_refused(answer, code):
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", None)
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]


@ERAS
@pytest.mark.parametrize("name", MESSAGES)
def test_a_bad_line_is_an_error_of_the_protocol_and_the_next_one_works(both, era, name):
    line, code = MESSAGES[name]
    both[era].send(line + b"\n")
    assert_refused(both[era].read(), code)
    both[era].assert_works(era)


@ERAS
def test_bad_lines_before_all_others_are_answered_in_order_and_decide_nothing(era):
    with Served() as served:
        sender = threading.Thread(
            target=served.send, args=[line + b"\n" for line, _ in MESSAGES.values()]
        )
        sender.start()
        for _, code in MESSAGES.values():
            assert_refused(served.read(), code)
        sender.join(PATIENCE)
        served.open(era)
        served.assert_works(era)


@ERAS
@pytest.mark.parametrize(
    "bad",
    [
        {"jsonrpc": "1.0"},
        {"method": 5},
        {"params": []},
        {"params": "x"},
    ],
)
@pytest.mark.parametrize("id", [7, "seven", 10**30])
def test_an_error_names_the_request_if_that_can_be_read(both, era, bad, id):
    both[era].send({**ASKED, "id": id, **bad})
    answer = both[era].read()
    assert (answer["id"], answer["error"]["code"]) == (id, INVALID)
    both[era].assert_works(era)


@ERAS
def test_what_has_no_answer_gets_none(both, era):
    nobody = [
        {"jsonrpc": "2.0", "method": "notifications/nosuch"},
        {"jsonrpc": "2.0", "id": 12_345, "result": {}},
        {"jsonrpc": "2.0", "id": 12_345, "error": {"code": 1, "message": "x"}},
        # Who cannot read a line says so; to complain about that would go on for good.
        {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE, "message": "x"}},
        {"jsonrpc": "2.0", "error": {"code": PARSE, "message": "x"}},
        {"jsonrpc": "2.0", "id": None, "error": "x"},
    ]
    both[era].send(*nobody)
    both[era].assert_works(era)


@ERAS
def test_lines_may_be_empty_and_end_as_on_windows_and_begin_with_a_mark(era):
    with Served() as served:
        served.send(b"\xef\xbb\xbf\r\n\n \t\n\r\n")
        if era == LEGACY:
            served.send(json.dumps(raw.initialize()).encode() + b"\r\n", b"\n")
            assert "result" in served.read()
        asked = served.call("behaviour_add", era=era, a=1, b=2)
        served.send(b"  " + json.dumps(asked).encode() + b" \r\n")
        assert served.read()["id"] == asked["id"]
        assert served.hang_up() == []


def test_a_mark_may_stand_before_the_first_message():
    with Served() as served:
        served.send(b"\xef\xbb\xbf" + encoded(raw.message("tools/list")))
        assert served.read()["result"]["tools"]


def test_integers_of_any_size_stay_what_they_are(both):
    wire = both[MODERN]
    for number in (2**53 + 1, 2**63, 2**64, -(10**40)):
        wire.send(wire.call("behaviour_add", a=number, b=0))
        assert wire.read()["result"]["structuredContent"] == {"sum": number}


def test_requests_with_the_same_id_are_each_answered(both):
    wire = both[MODERN]
    asked = [{**wire.call("behaviour_say", text=text), "id": 5} for text in ("a", "b")]
    wire.send(*asked)
    told = [wire.read() for _ in asked]
    assert [answer["id"] for answer in told] == [5, 5]
    assert {answer["result"]["structuredContent"] for answer in told} == {"a", "b"}


# --- length -----------------------------------------------------------------------------------


def padded(message, size):
    data = json.dumps(message).encode()
    return data + b" " * (size - len(data)) + b"\n"


@ERAS
def test_a_line_of_the_longest_is_read_and_one_byte_more_is_not(both, era):
    wire = both[era]
    asked = wire.call("behaviour_add", era=era, a=1, b=2)
    wire.send(padded(asked, LIMIT))
    assert wire.read()["id"] == asked["id"]
    wire.send(padded(asked, LIMIT + 1))
    answer = wire.read()
    assert_refused(answer, INVALID)
    assert f"{LIMIT:,}" in answer["error"]["message"]
    wire.assert_works(era)


@ERAS
@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
def test_a_line_without_end_is_refused_while_it_comes_and_never_held_whole(era):
    with Served() as served:
        served.open(era)
        served.assert_works(era)
        before = served.most_memory()
        served.send(b'{"a": "' + b"x" * (LIMIT + 1))
        assert_refused(served.read(), INVALID)
        for _ in range(60):
            served.send(b"x" * (1 << 20))
        served.send(b'"}\n')
        served.assert_works(era)
        assert served.most_memory() - before < 4 * LIMIT


# --- where lines come from, and how they end ----------------------------------------------------


def test_a_last_line_needs_no_end_and_half_a_line_is_told():
    asked = raw.message("tools/list", number=3)
    for line, wanted in ((json.dumps(asked).encode(), 3), (b'{"jsonrpc": "2', None)):
        with Served() as served:
            served.send(line)
            (told,) = map(json.loads, served.hang_up())
            assert told["id"] == wanted
            assert ("error" in told) == (wanted is None)


@ERAS
def test_what_is_asked_just_before_the_end_is_answered(era):
    with Served() as served:
        served.open(era)
        asked = [served.call("behaviour_add", era=era, a=n, b=0) for n in range(50)]
        served.send(*asked)
        told = [json.loads(line) for line in served.hang_up()]
    assert sorted(answer["id"] for answer in told) == [one["id"] for one in asked]
    assert all(answer["result"]["isError"] is False for answer in told)


@ERAS
def test_a_file_is_read_to_its_end_and_a_file_is_written(tmp_path, era):
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    wire = Wire(-1, -1)
    first = [raw.initialize(0), READY] if era == LEGACY else []
    lines = [*first, wire.call("behaviour_add", era=era, a=1, b=2), b"bad\n"]
    asked.write_bytes(b"".join(map(encoded, lines)))
    with (
        asked.open("rb") as given,
        answered.open("wb") as taken,
        Served(stdin=given, stdout=taken) as served,
    ):
        assert served.wait() == 0, served.errors
    told = [json.loads(line) for line in answered.read_text("utf-8").splitlines()]
    assert {answer["id"] for answer in told} == {None, 1} | ({0} if era == LEGACY else set())


def test_nothing_to_read_ends_it_at_once():
    with Served(stdin=subprocess.DEVNULL) as served:
        assert served.line() == b""
        assert served.wait() == 0


def test_a_terminal_is_read_until_its_user_ends_it():
    ours, theirs = pty.openpty()
    try:
        with Served(stdin=theirs) as served:
            served.sending = ours
            served.assert_works()
            assert os.get_blocking(theirs)  # Others use this terminal too.
            served.send(b"bad\n")
            assert_refused(served.read(), PARSE)
            served.send(b"\x04")
            assert served.line() == b""
            assert served.wait() == 0
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_also_while_nothing_is_read_and_a_call_is_under_way(number):
    with Served() as served:
        served.assert_works()
        served.send(served.call("behaviour_wait", key="signal"))
        served.send(served.call("behaviour_until", key="signal", place="begun"))
        assert not served.read()["result"]["isError"]
        served.process.send_signal(number)
        assert served.wait() != 0
        assert b"Traceback" not in served.errors


def test_a_client_that_closed_its_ear_ends_it_though_it_could_go_on_asking():
    with Served() as served:
        served.assert_works()
        served.process.stdout.close()
        served.send(served.call("behaviour_add", a=1, b=2))
        assert served.process.wait(PATIENCE) == 0
        served.wait()
        assert b"Traceback" not in served.errors


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_one_of_both_streams_it_says_so(closed):
    command = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *SERVE, str(TOOLS)],
        stdin=subprocess.PIPE,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert b"standard input" in done.stderr
    assert b"Traceback" not in done.stderr


# --- what others print --------------------------------------------------------------------------

LOUD = '''
import os, subprocess, sys
from callpact import tool

@tool
def loud() -> str:
    """Print in every way there is, and try to read what is not for it."""
    print("printed")
    sys.__stdout__.write("printed below")
    sys.__stdout__.flush()
    os.write(1, b"printed by a library\\n")
    subprocess.run(["sh", "-c", "echo printed by a child; cat"], check=True, timeout=20)
    return sys.stdin.read() + os.read(0, 10).decode()
'''


@ERAS
def test_the_protocol_has_both_streams_to_itself(tmp_path, era):
    (tmp_path / "loud.py").write_text(LOUD, "utf-8")
    with Served(tmp_path / "loud.py") as served:
        served.open(era)
        for _ in range(3):
            asked = served.call("loud_loud", era=era)
            served.send(asked)
            answer = served.read()
            assert (answer["id"], answer["result"]["isError"]) == (asked["id"], False)
            # What it read was empty; the next line was still there for us.
            assert answer["result"]["structuredContent"] == (
                "" if era == MODERN else {"result": ""}
            )
        assert served.hang_up() == []
        printed = ["printed\n", "printed below", "printed by a library", "printed by a child"]
        assert all(served.errors.count(text.encode()) >= 3 for text in printed)


# --- many, large, unread --------------------------------------------------------------------------


def serving(question, tools, **limits):
    """Serve tools of the SDK over pipes in this process; the client runs in a thread."""

    async def call_tool(context, params):
        text = await tools[params.name](context, params.arguments)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=False)

    async def go():
        given, sending = os.pipe()
        reading, taken = os.pipe()
        limits.setdefault("leaving_seconds", 0.1)
        server = Server("t", on_call_tool=call_tool)
        running = asyncio.create_task(serve_lines(server, given, taken, LineLimits(**limits)))
        wire = Wire(sending, reading)
        wire.loop = asyncio.get_running_loop()
        try:
            return await asyncio.to_thread(question, wire)
        finally:
            os.close(sending)
            await asyncio.wait_for(running, PATIENCE)
            for descriptor in (given, reading, taken):
                os.close(descriptor)

    return asyncio.run(asyncio.wait_for(go(), 2 * PATIENCE))


async def say(context, arguments):
    return arguments["text"]


async def large(context, arguments):
    return "x" * arguments["size"]


def is_idle(wire):
    """True if nothing more is taken from us, for a while."""
    return not select.select([], [wire.sending], [], 0.5)[1]


def flood(wire, lines):
    """Send until nothing is taken any more; gives what is left."""
    rest = b"".join(map(encoded, lines))
    os.set_blocking(wire.sending, False)
    try:
        while rest and not is_idle(wire):
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(wire.sending, rest[:4096]) :]
    finally:
        os.set_blocking(wire.sending, True)
    return rest


@ERAS
@pytest.mark.parametrize("what", ["requests", "bad lines"])
def test_of_a_client_that_does_not_read_only_so_much_is_read_and_then_all_is_answered(era, what):
    many = 1_500

    def question(wire):
        wire.open(era)
        asked = [wire.call("say", era=era, text="x" * 1_000) for _ in range(many)]
        lines = asked if what == "requests" else [b"bad" * 400 + b"\n"] * 3_000
        size = sum(len(encoded(line)) for line in lines)
        rest = flood(wire, lines)
        # Two pipes, what is under way, and a chunk; not more.
        assert 0 < size - len(rest) < 600_000
        sender = threading.Thread(target=wire.send, args=[rest])
        sender.start()
        told = [wire.read() for _ in lines]
        sender.join(PATIENCE)
        if what == "requests":
            assert sorted(answer["id"] for answer in told) == [one["id"] for one in asked]
            assert all("result" in answer for answer in told)
        else:
            assert {answer["error"]["code"] for answer in told} == {PARSE}
        wire.send(wire.call("say", era=era, text="last"))
        return "last" in str(wire.read()["result"])

    assert serving(question, {"say": say}, requests=20)


@ERAS
def test_requests_beyond_the_most_wait_and_none_is_lost(era):
    running = most = 0

    async def count(context, arguments):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return ""

    def question(wire):
        wire.open(era)
        asked = [wire.call("count", era=era) for _ in range(100)]
        wire.send(*asked)
        told = [wire.read() for _ in asked]
        assert {answer["id"] for answer in told} == {one["id"] for one in asked}
        return all("result" in answer for answer in told)

    assert serving(question, {"count": count}, requests=3)
    assert most == 3


@ERAS
def test_large_requests_beyond_the_most_bytes_wait(era):
    running = most = 0

    async def count(context, arguments):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return ""

    def question(wire):
        wire.open(era)
        asked = [wire.call("count", era=era, text="x" * 10_000) for _ in range(20)]
        sender = threading.Thread(target=wire.send, args=asked)
        sender.start()
        told = [wire.read() for _ in asked]
        sender.join(PATIENCE)
        return all("result" in answer for answer in told)

    assert serving(question, {"count": count}, requests_bytes=15_000)
    assert most == 2


@ERAS
def test_a_cancelled_request_makes_room_for_another(era):
    async def hang(context, arguments):
        await asyncio.Event().wait()

    def question(wire):
        wire.open(era)
        for _ in range(20):
            asked = wire.call("hang", era=era)
            params = {"requestId": asked["id"]}
            wire.send(asked)
            wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        wire.send(wire.call("say", era=era, text="last"))
        return "last" in str(wire.read()["result"])

    assert serving(question, {"hang": hang, "say": say}, requests=2)


def test_what_the_client_is_asked_is_heard_however_much_is_under_way():
    schema = {"type": "object", "properties": {}}

    async def ask(context, arguments):
        return (await context.session.elicit_form("May I?", schema)).action

    def question(wire):
        hello = raw.initialize(0)
        hello["params"]["capabilities"] = {"elicitation": {"form": {}}}
        wire.send(hello, READY)
        assert wire.read()["id"] == 0
        asked, other = wire.call("ask", era=LEGACY), wire.call("ask", era=LEGACY)
        wire.send(asked)
        asking = wire.read()
        assert asking["method"] == "elicitation/create"
        wire.send(other)
        refused = wire.read()
        assert (refused["id"], refused["error"]["code"]) == (other["id"], INTERNAL)
        wire.send({"jsonrpc": "2.0", "id": asking["id"], "result": {"action": "decline"}})
        answer = wire.read()
        assert answer["id"] == asked["id"]
        return answer["result"]["content"][0]["text"]

    assert serving(question, {"ask": ask}, requests=1) == "decline"


@ERAS
def test_an_answer_that_nobody_reads_stops_nothing_but_the_wire(era):
    size = 5 << 20

    def question(wire):
        wire.open(era)
        asked = [wire.call("large", era=era, size=size), wire.call("say", era=era, text="b")]
        wire.send(*asked)
        assert wire.is_told()
        # The loop is alive though the answer does not fit.
        alive = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, True), wire.loop)
        assert alive.result(PATIENCE)
        told = {answer["id"]: answer for answer in (wire.read(), wire.read())}
        first, second = [told[one["id"]]["result"]["content"][0]["text"] for one in asked]
        return (len(first), second)

    assert serving(question, {"large": large, "say": say}) == (size, "b")


@ERAS
def test_a_client_that_hangs_up_with_answers_unread_lets_it_end(era):
    def question(wire):
        wire.open(era)
        wire.send(*[wire.call("large", era=era, size=300_000) for _ in range(3)])
        return wire.is_told()

    assert serving(question, {"large": large})


@ERAS
def test_a_client_that_hangs_up_and_reads_on_gets_all_that_is_answered(era):
    size = 3 << 20
    with Served() as served:
        served.open(era)
        asked = [served.call("behaviour_say", era=era, text="x" * size) for _ in range(3)]
        served.send(*asked)
        told = [json.loads(line) for line in served.hang_up()]
    assert {answer["id"] for answer in told} == {one["id"] for one in asked}
    assert {len(answer["result"]["content"][0]["text"]) for answer in told} > {size}


@ERAS
def test_an_answer_that_is_no_json_is_an_error_and_the_next_one_comes(era):
    async def half(context, arguments):
        return "\ud800"

    def question(wire):
        wire.open(era)
        asked = wire.call("half", era=era)
        wire.send(asked)
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (asked["id"], INTERNAL)
        wire.send(wire.call("say", era=era, text="last"))
        return "last" in str(wire.read()["result"])

    assert serving(question, {"half": half, "say": say})


# --- the official client ------------------------------------------------------------------------


@ERAS
def test_the_official_client_gets_each_of_many_answers_whole(era):
    texts = [chr(97 + n % 26) * (n * 997 % 70_000) for n in range(200)]

    async def go():
        parameters = StdioServerParameters(command=SERVE[0], args=[*SERVE[1:], str(TOOLS)])
        async with Client(parameters, mode=era) as client:
            calls = [client.call_tool("behaviour_say", {"text": text}) for text in texts]
            return [result.structured_content for result in await asyncio.gather(*calls)]

    told = asyncio.run(asyncio.wait_for(go(), 2 * PATIENCE))
    assert told == (texts if era == MODERN else [{"result": text} for text in texts])
