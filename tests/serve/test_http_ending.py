"""How the HTTP door ends: at a signal, in order, with the calls that are under way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import raw
from callpact.audit import open_store
from callpact.audit.store import Filter

HERE = Path(__file__).parent
TOOLS = '''
import asyncio
import sys
import threading
from pathlib import Path

from callpact import Context, tool

def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

@tool
async def held(pipe: str) -> str:
    """Give what comes through a pipe."""
    say(f"held {pipe}")
    return await asyncio.to_thread(Path(pipe).read_text)

@tool
async def forever(name: str) -> None:
    """Wait for good."""
    say(f"begun {name}")
    try:
        await asyncio.Event().wait()
    finally:
        say(f"ended {name}")

@tool
async def report(name: str, context: Context) -> None:
    """Report progress, and wait for good."""
    await context.progress(1, 2, "half")
    say(f"begun {name}")
    await asyncio.Event().wait()

@tool
def block(name: str) -> None:
    """Wait for good, in a thread."""
    say(f"begun {name}")
    threading.Event().wait()
'''


SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["SIGINT", "SIGTERM"]
)


@pytest.fixture
def served(tmp_path):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    with raw.Served("t.py", cwd=tmp_path) as process:
        yield process


def begin_session(line):
    """What every later request of an older client carries."""
    session = line.ask(raw.initialize()).headers["mcp-session-id"]
    return {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}


def called_in(session, name, /, *, number=1, **arguments):
    """A call of an older client in bytes."""
    asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
    return raw.request({**asked, "params": {"name": name, "arguments": arguments}}, **session)


def assert_told_of_the_stop(answer, number):
    """The one answer in a stream of events is an error that names the call."""
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    told = [json.loads(line[6:]) for line in answer.body.splitlines() if line[:7] == b"data: {"]
    (error,) = [one for one in told if "id" in one and "method" not in one]
    assert (error["jsonrpc"], error["id"], error["error"]["code"]) == ("2.0", number, -32603)
    assert "stopped" in error["error"]["message"]


def assert_quiet(served):
    """Nothing went wrong on the way out."""
    told = "\n".join(served.lines)
    assert "Traceback" not in told
    assert "Exception" not in told


@SIGNALS
def test_an_idle_server_ends_at_once(served, number, code):
    with served.connect() as line:
        assert line.ask(raw.message(), **raw.routed()).result["tools"]
        assert served.end(number) == code
        assert line.is_ended()
    assert served.warnings == []


@SIGNALS
def test_calls_under_way_get_their_time_and_nobody_else_is_let_in(served, tmp_path, number, code):
    pipes = [str(tmp_path / name) for name in ("new", "old")]
    for pipe in pipes:
        os.mkfifo(pipe)
    with served.connect() as new, served.connect() as old:
        session = begin_session(old)
        new.send(raw.called("t_held", pipe=pipes[0]))
        old.send(called_in(session, "t_held", pipe=pipes[1]))
        for pipe in pipes:
            served.until(f"held {pipe}")
        served.process.send_signal(number)
        served.until_closed()
        for pipe in pipes:
            Path(pipe).write_text("tea", "utf-8")
        assert new.read().result["structuredContent"] == "tea"
        told = old.read().body.decode().split("data: ")[1]
        assert json.loads(told)["result"]["structuredContent"] == {"result": "tea"}
    assert served.wait() == code
    assert_quiet(served)


@SIGNALS
def test_streams_of_notices_do_not_keep_it_from_ending(served, number, code):
    with served.connect() as old, served.connect() as new:
        session = begin_session(old)
        old.send(raw.request(method="GET", **session))
        assert b"200" in old.file.readline()
        wanted = {"toolsListChanged": True}
        asked = raw.message("subscriptions/listen", notifications=wanted)
        new.send(raw.request(asked, **raw.routed("subscriptions/listen")))
        status = new.file.readline()
        assert served.end(number) == code
        assert old.is_ended()
        assert new.is_ended()
    assert b"200" in status or b"404" in status  # Whether there is such a stream is not ours.
    assert served.warnings == []


@pytest.mark.parametrize("tool", ["forever", "block"])
def test_calls_that_do_not_end_are_told_so_and_ended(served, tool):
    with served.connect() as new, served.connect() as old:
        session = begin_session(old)
        new.send(raw.called(f"t_{tool}", name="new"))
        old.send(called_in(session, f"t_{tool}", number=7, name="old"))
        served.until("begun new")
        served.until("begun old")
        served.process.send_signal(signal.SIGTERM)
        answer = new.read()
        assert (answer.status, answer.json["id"]) == (503, 1)
        assert "stopped" in answer.error["message"]
        assert_told_of_the_stop(old.read(), 7)
        assert old.is_ended()
    assert served.wait() == 0
    assert_quiet(served)
    if tool == "forever":
        assert {"ended new", "ended old"} <= set(served.lines)


def test_a_call_that_has_begun_to_stream_is_told_too(served):
    asked = raw.message("tools/call", name="t_report", arguments={"name": "new"})
    asked["params"]["_meta"]["progressToken"] = "p"
    with served.connect() as new, served.connect() as old:
        session = begin_session(old)
        called = {**asked, "params": {**asked["params"], "_meta": {"progressToken": "p"}}}
        new.send(raw.request(asked, **raw.routed("tools/call", "t_report")))
        served.until("begun new")
        called["params"]["arguments"] = {"name": "old"}
        old.send(raw.request({**called, "id": "the second"}, **session))
        served.until("begun old")
        served.process.send_signal(signal.SIGTERM)
        for line, number in ((new, 1), (old, "the second")):
            answer = line.read()
            assert b"half" in answer.body
            assert_told_of_the_stop(answer, number)
    assert served.wait() == 0
    assert_quiet(served)


def test_calls_that_were_broken_off_are_on_record(tmp_path):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    args = ("--audit", str(tmp_path / "log"))
    with raw.Served("t.py", args=args, cwd=tmp_path) as served:
        with served.connect() as new, served.connect() as old:
            session = begin_session(old)
            new.send(raw.called("t_forever", name="new"))
            old.send(called_in(session, "t_forever", name="old"))
            served.until("begun new")
            served.until("begun old")
            served.process.send_signal(signal.SIGTERM)
            assert new.read().status == 503
            assert old.read().status == 200
        assert served.wait() == 0
    store = open_store(tmp_path / "log")
    try:
        assert [record.code for record in store.log(Filter())] == ["aborted", "aborted"]
    finally:
        store.close()


def test_whoever_asks_twice_does_not_wait(served):
    with served.connect() as line:
        line.send(raw.called("t_forever", name="a"))
        served.until("begun a")
        served.process.send_signal(signal.SIGINT)
        served.until_closed()
        assert served.end(signal.SIGINT) == 130
    assert_quiet(served)
