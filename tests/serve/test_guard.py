"""The limits of the HTTP door with small values: slow clients, full houses; on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from pathlib import Path

import pytest
import uvloop

import raw
from callpact.runtime import Runtime
from callpact.serve import Door, serve_http
from callpact.serve.http.guard import HttpLimits
from callpact.tool import Contract, Tool

HERE = Path(__file__).parent
BIG = 24 << 20
PATIENCE = 20
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CURRENT = {"loop": asyncio.new_event_loop}
HELD = threading.Semaphore(0)
"""One count for each call of `t.hold` that runs, since the server was started."""


async def big(arguments, context):
    return "x" * BIG


async def hold(arguments, context):
    HELD.release()
    await asyncio.Event().wait()


@pytest.fixture(autouse=True, params=LOOPS)
def new_loop(request, monkeypatch):
    """Every test runs on the loop of asyncio, and on uvloop's."""
    monkeypatch.setitem(CURRENT, "loop", LOOPS[request.param])


def run(work):
    with asyncio.Runner(loop_factory=CURRENT["loop"]) as runner:
        return runner.run(asyncio.wait_for(work, 2 * PATIENCE))


def serving(question, **limits):
    """Ask a server in this process: `question` gets its port, and runs in a thread."""
    tools = [
        Tool(id=f"t.{name}", description=name, contract=Contract(), handler=handler)
        for name, handler in (("big", big), ("hold", hold))
    ]

    return run(asked(question, tools, **limits))


async def asked(question, tools, **limits):
    ready = asyncio.get_running_loop().create_future()
    while HELD.acquire(blocking=False):
        """Forget the calls of an earlier test."""
    server = Door(Runtime(tools), result_limit=1 << 30).server
    running = asyncio.create_task(
        serve_http(server, port=0, limits=HttpLimits(**limits), on_ready=ready.set_result)
    )
    try:
        port = int((await ready).split(":")[-1].split("/")[0])
        return await asyncio.to_thread(question, port)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def works(port):
    with raw.Line(port) as line:
        return bool(line.ask(raw.message(), **raw.routed()).result["tools"])


def drip(line, data):
    """Send byte after byte until the other side has had enough."""
    with contextlib.suppress(ConnectionError):
        for number in range(len(data)):
            line.send(data[number : number + 1])
            readable, _, _ = select.select([line.socket], [], [], 0.05)
            if readable:
                return
    pytest.fail("it read to the end")


@pytest.mark.parametrize("start", [b"", b"P", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nA: b"])
def test_a_client_that_never_ends_its_headers_is_cut_off(start):
    def question(port):
        with raw.Line(port) as line:
            line.send(start)
            assert line.is_ended()
        return works(port)

    assert serving(question, client_seconds=0.3)


def test_a_client_that_drips_its_headers_is_cut_off():
    def question(port):
        with raw.Line(port) as line:
            line.send(b"POST /mcp HTTP/1.1\r\n")
            drip(line, b"A: b\r\n" * 1_000)
            assert line.is_ended()
        return works(port)

    assert serving(question, client_seconds=0.3)


def test_a_client_that_drips_its_headers_on_a_connection_that_worked_is_cut_off():
    def question(port):
        with raw.Line(port) as line:
            assert line.ask(raw.message(), **raw.routed()).status == 200
            drip(line, b"POST /mcp HTTP/1.1\r\n" + b"A: b\r\n" * 1_000)
            assert line.is_ended()
        return works(port)

    assert serving(question, client_seconds=0.3)


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("era", [raw.routed(), {}], ids=["2026-07-28", "older"])
def test_a_client_that_drips_its_body_is_told_so_and_cut_off(method, era):
    def question(port):
        with raw.Line(port) as line:
            line.send(raw.request(method=method, Content_Length="100000", **era))
            drip(line, b" " * 100_000)
            answer = line.read()
            assert (answer.status, answer.headers["connection"]) == (408, "close")
            assert "0.3 seconds" in answer.error["message"]
            assert line.is_ended()
        return works(port)

    assert serving(question, client_seconds=0.3)


def test_a_client_that_was_refused_and_goes_on_sending_is_cut_off():
    def question(port):
        with raw.Line(port) as line:
            line.send(raw.request(Content_Length=str(1 << 40), **raw.routed()))
            assert line.read().status == 413
            drip(line, b" " * 100_000)
            assert line.is_ended()
        return works(port)

    assert serving(question, client_seconds=0.3)


def test_a_client_that_does_not_read_its_answer_is_cut_off():
    def question(port):
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            unread.settimeout(PATIENCE)
            unread.connect(("127.0.0.1", port))
            unread.sendall(raw.called("t_big"))
            waiting = select.poll()
            waiting.register(unread, 0)  # Told of the end alone, not of what could be read.
            assert waiting.poll(PATIENCE * 1_000)
        return works(port)

    assert serving(question, client_seconds=0.3)


def test_a_client_that_reads_a_large_answer_gets_all_of_it():
    def question(port):
        with raw.Line(port) as line:
            line.send(raw.called("t_big"))
            return len(line.read().result["content"][0]["text"])

    assert serving(question) == BIG


def test_a_connection_that_idles_between_requests_is_not_slow():
    def question(port):
        with raw.Line(port) as line, raw.Line(port) as slow:
            assert line.ask(raw.message(), **raw.routed()).status == 200
            assert slow.is_ended()  # As long as it takes to be cut off.
            return line.ask(raw.message(), **raw.routed()).status

    assert serving(question, client_seconds=0.3) == 200


def test_a_caller_with_all_connections_loses_its_own_that_idled_longest():
    def question(port):
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(raw.Line(port)) for _ in range(4)]
            for line in (*lines[1:], lines[0]):
                assert line.ask(raw.message(), **raw.routed()).status == 200
            lines.append(stack.enter_context(raw.Line(port)))
            assert lines[4].ask(raw.message(), **raw.routed()).status == 200
            assert lines[1].is_ended()
            return [
                line.ask(raw.message(), **raw.routed()).status for line in (lines[0], *lines[2:])
            ]

    assert serving(question, connections=4) == [200] * 4


def test_a_caller_with_all_connections_cannot_lock_out_another():
    def question(port):
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(raw.Line(port, source="127.0.0.9")) for _ in range(6)]
            for line in lines[2:]:  # The first two were lost to the last two.
                line.send(raw.called("t_hold"))
                assert HELD.acquire(timeout=PATIENCE)
            others = [stack.enter_context(raw.Line(port)) for _ in range(2)]
            for other in others:
                assert other.ask(raw.message(), **raw.routed()).status == 200
            again = stack.enter_context(raw.Line(port, source="127.0.0.9"))
            refused = again.read()
            assert (refused.status, refused.headers["retry-after"]) == (503, "10")
            assert refused.error["code"] == -32603
            assert again.is_ended()
            for cut in (line.read() for line in lines[2:4]):
                assert (cut.status, cut.headers["retry-after"]) == (503, "10")
                assert cut.error["code"] == -32603
            return [other.ask(raw.message(), **raw.routed()).status for other in others]

    assert serving(question, connections=4) == [200] * 2


def test_a_rush_beyond_the_limit_ends_no_call_and_refuses_each_surplus_one_with_an_error():
    most, busy, surplus = 60, 40, 100
    begun_calls = threading.Semaphore(0)

    async def go():
        loop, gate = asyncio.get_running_loop(), asyncio.Event()

        async def wait(arguments, context):
            begun_calls.release()
            await gate.wait()
            return 7

        def question(port):
            with contextlib.ExitStack() as stack:
                lines = [stack.enter_context(raw.Line(port)) for _ in range(most)]
                for line in lines[busy:]:
                    assert line.ask(raw.message(), **raw.routed()).status == 200
                for line in lines[:busy]:
                    line.send(raw.called("t_wait"))
                    assert begun_calls.acquire(timeout=PATIENCE)
                rush = [stack.enter_context(raw.Line(port)) for _ in range(surplus)]
                for line in rush:
                    with contextlib.suppress(ConnectionError):  # Refused and closed already.
                        line.send(raw.called("t_wait"))
                assert all(line.is_ended() for line in lines[busy:])  # The idle ones go first.
                for _ in range(most - busy):
                    assert begun_calls.acquire(timeout=PATIENCE)
                refusals = surplus - (most - busy)
                deadline = time.monotonic() + PATIENCE
                while (
                    len(select.select([line.socket for line in rush], (), (), PATIENCE)[0])
                    < refusals
                ):
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                loop.call_soon_threadsafe(gate.set)
                answers = [line.read() for line in rush]
                refused = [answer for answer in answers if answer.status != 200]
                for answer in refused:
                    assert (answer.status, answer.headers["retry-after"]) == (503, "10")
                    assert answer.error["code"] == -32603
                assert len(refused) == refusals
                return [line.read().status for line in lines[:busy]]

        tool = Tool(id="t.wait", description="Wait.", contract=Contract(), handler=wait)
        return await asked(question, [tool], connections=most)

    assert run(go()) == [200] * busy


def begun(line):
    """Begin a session; gives what its requests carry."""
    answer = line.ask(raw.initialize())
    assert answer.status == 200
    return {"Mcp_Session_Id": answer.headers["mcp-session-id"]}


def status_in(line, session, method="tools/list", number=1):
    return line.ask({"jsonrpc": "2.0", "id": number, "method": method}, **session).status


def test_a_caller_with_all_sessions_loses_its_own_that_idled_longest():
    def question(port):
        with raw.Line(port) as line:
            first, second = begun(line), begun(line)
            assert status_in(line, first, "ping") == 200
            third = begun(line)
            assert status_in(line, second) == 404  # The client has to begin anew.
            assert line.ask(raw.message(), **raw.routed()).status == 200
            ended = line.ask(method="DELETE", Content_Type=None, **first)
            assert ended.status == 200
            begun(line)
            return [status_in(line, one, "ping") for one in (first, second, third)]

    assert serving(question, sessions=2) == [404, 404, 200]


def test_a_request_that_is_not_found_elsewhere_does_not_free_the_place_of_its_session():
    def question(port):
        with raw.Line(port) as line:
            first = begun(line)
            assert line.ask(raw.message(), path="/elsewhere", **first).status == 404
            begun(line)
            return status_in(line, first, "ping")

    assert serving(question, sessions=1) == 404  # Ended in favour of the second one.


def test_a_caller_with_all_sessions_cannot_lock_out_another_nor_end_its_sessions():
    def question(port):
        with raw.Line(port, source="127.0.0.9") as hog, raw.Line(port) as other:
            held = [begun(hog) for _ in range(10)]
            mine = [begun(other), begun(other)]
            assert [status_in(hog, one, "ping") for one in held] == [404] * 8 + [200] * 2
            for _ in range(10):
                begun(hog)
            return [status_in(other, one, "ping") for one in mine]

    assert serving(question, sessions=4) == [200, 200]


def test_a_session_in_which_a_call_runs_is_not_idle():
    def question(port):
        with (
            raw.Line(port) as line,
            raw.Line(port) as calling,
            raw.Line(port, source="127.0.0.9") as other,
        ):
            busy = begun(line)
            params = {"name": "t_hold", "arguments": {}}
            asked = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
            calling.send(raw.request(asked, **busy))
            assert calling.file.readline().split()[1] == b"200"
            refused = line.ask(raw.initialize())
            assert (refused.status, refused.error["code"]) == (503, -32603)
            assert refused.headers["retry-after"] == "10"
            return begun(other).keys()  # For another caller it is ended nevertheless.

    assert serving(question, sessions=1)


def test_a_caller_with_all_streams_loses_its_own_oldest_and_never_anothers():
    wanted = raw.message("subscriptions/listen", notifications={"toolsListChanged": True})
    asked = raw.request(wanted, **raw.routed("subscriptions/listen"))

    def question(port):
        with contextlib.ExitStack() as stack:

            def stream(source):
                line = stack.enter_context(raw.Line(port, source=source))
                line.send(asked)
                assert line.file.readline().split()[1] == b"200"
                return line

            hog = [stream("127.0.0.9") for _ in range(3)]
            other = stream("127.0.0.1")
            more = [stream("127.0.0.9") for _ in range(2)]
            for line in (*hog, more[0]):
                until_ended(line)
            return is_open(other) and is_open(more[1])

    assert serving(question, streams=2)


def until_ended(line):
    """Wait for the end of a stream, in order."""
    while line.file.readline() != b"0\r\n":
        pass


def is_open(line):
    """True if a stream has not ended by now."""
    line.socket.setblocking(False)
    told = b"".join(iter(lambda: line.file.read1() or b"", b""))
    return b"\r\n0\r\n" not in told


def test_a_message_deeper_than_the_limit_is_refused_and_one_as_deep_is_not():
    def question(port):
        with raw.Line(port) as line:
            return [
                line.ask(raw.message(x=value), **raw.routed()).status
                for value in (0, [[]], [[[]]], ["[[[[[[[["])
            ]

    # The message, its parameters and two levels of their own are in every request.
    assert serving(question, depth=4) == [200, 200, 400, 200]
    assert serving(question, depth=5) == [200, 200, 200, 200]
