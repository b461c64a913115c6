"""`callpact serve --workers`: processes behind one port, with real processes and connections."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import raw
from callpact.audit import open_store
from callpact.audit.store import Filter

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers need fork")

TOOLS = '''
import os
import sys
from pathlib import Path

from callpact import Context, tool

@tool(annotations={"readOnlyHint": True})
def pid() -> int:
    """The process that answers."""
    return os.getpid()

@tool
def once(file: str) -> int:
    """Write a line."""
    with Path(file).open("a", encoding="utf-8") as lines:
        lines.write("ran\\n")
    return os.getpid()

@tool(annotations={"readOnlyHint": True})
def many() -> list[str]:
    """More than one page."""
    return [f"{os.getpid()} " + "x" * 100 for _ in range(100)]

@tool
async def ask(context: Context) -> str:
    """Ask the client."""
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    answer = await context.client.elicit("Who?", schema, key="who")
    return f"{os.getpid()} {answer.data}"
'''
WORKERS = 3


@pytest.fixture
def served(tmp_path):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    args = ("--workers", str(WORKERS), "--audit", "log", "--result-limit", "1000")
    with raw.Served("t.py", args=args, cwd=tmp_path) as process:
        yield process
        assert process.process.poll() is not None or process.end(signal.SIGTERM) == 0


def value(answer):
    """The text of a result, whether it came as JSON or as an event."""
    text = answer.body.decode()
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
    return json.loads(text)["result"]


def asked(served, name, /, **arguments):
    """The result of a call of 2026-07-28, on a connection of its own."""
    with served.connect() as line:
        line.send(raw.called(f"t_{name}", **arguments))
        return value(line.read())


def pids(served, number=WORKERS * 2):
    return {int(asked(served, "pid")["content"][0]["text"]) for _ in range(number)}


def until(is_so):
    deadline = time.monotonic() + raw.PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_calls_land_on_every_worker_and_each_leaves_one_record(served, tmp_path):
    served.until(f"workers: {WORKERS}")
    assert len(pids(served, 30)) == WORKERS

    assert served.end(signal.SIGTERM) == 0
    with contextlib.closing(open_store(tmp_path / "log")) as store:
        assert len(list(store.log(Filter()))) == 30


def test_a_session_goes_on_whatever_worker_gets_its_connection(served):
    with served.connect() as line:
        session = line.ask(raw.initialize()).headers["mcp-session-id"]
    headers = {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call["params"] = {"name": "t_pid", "arguments": {}}
    found = set()
    for _ in range(WORKERS * 2):
        with served.connect() as line:
            found.add(value(line.ask(call, **headers))["content"][0]["text"])
    assert len(found) == 1

    statuses = []
    for method in ("DELETE", *["POST"] * WORKERS):
        with served.connect() as line:
            body = b"" if method == "DELETE" else call
            statuses.append(line.ask(body, method=method, **headers).status)
    assert statuses == [200, *[404] * WORKERS]


def test_the_stream_of_a_session_comes_through_another_worker(served):
    with served.connect() as line:
        session = line.ask(raw.initialize()).headers["mcp-session-id"]
    headers = {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}

    def is_free():
        with served.connect() as line:
            line.send(raw.request(method="GET", Content_Length=None, **headers))
            return line.file.readline().split()[1] == b"200"

    for _ in range(WORKERS):  # A session has one stream, which ends with its connection.
        until(is_free)


def test_an_idempotency_key_runs_once_whatever_worker_gets_it(served, tmp_path):
    file = tmp_path / "ran"
    answers = set()
    for _ in range(WORKERS * 2):
        with served.connect() as line:
            path, key = "/tools/t.once", f"{tmp_path.name}-{os.getpid()}"
            answer = line.ask({"file": str(file)}, path=path, Idempotency_Key=key)
            answers.add(answer.body)
    assert len(answers) == 1
    assert file.read_text("utf-8") == "ran\n"


def test_pages_of_a_large_result_are_read_through_every_worker(served):
    first = asked(served, "many")
    cursor = first["_meta"]["callpact/page"]["nextCursor"]
    for _ in range(WORKERS):
        with served.connect() as line:
            line.send(raw.called("read_result", cursor=cursor))
            page = value(line.read())
        assert not page.get("isError"), page


def test_a_paused_call_is_resumed_through_every_worker(served):
    for _ in range(WORKERS):
        message = raw.message("tools/call", name="t_ask", arguments={})
        able = {"elicitation": {"form": {}}}
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = able
        headers = raw.routed("tools/call", "t_ask")
        with served.connect() as line:
            paused = value(line.ask(message, **headers))
        with served.connect() as line:
            line.ask(raw.message(), **raw.routed())  # The next connection has another worker.
        answers = {"who": {"action": "accept", "content": {"n": "x"}}}
        message["params"] |= {"requestState": paused["requestState"], "inputResponses": answers}
        with served.connect() as line:
            ended = value(line.ask(message, **headers))
        assert not ended.get("isError"), ended


def test_a_killed_worker_is_replaced_and_the_others_answer(served):
    before = pids(served)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: any(f"worker {victim} was ended by signal 9" in line for line in served.lines))

    assert victim not in pids(served)
    until(lambda: len(pids(served)) == WORKERS)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_all_workers(served, number, code):
    workers = pids(served)
    assert served.end(number) == code
    assert not any(map(is_running, workers))


def test_workers_do_not_outlive_a_killed_supervisor(served):
    workers = pids(served)
    served.process.kill()
    served.wait()
    until(lambda: not any(map(is_running, workers)))


def test_a_change_of_the_sources_reaches_every_worker(tmp_path):
    file = tmp_path / "t.py"
    file.write_text(TOOLS, "utf-8")
    with raw.Served("t.py", args=("--workers", "2", "--watch"), cwd=tmp_path) as served:

        def listed():
            found = []
            for _ in range(4):  # Two connections for each worker.
                with served.connect() as line:
                    tools = value(line.ask(raw.message(), **raw.routed()))["tools"]
                    found.append({tool["name"] for tool in tools})
            return found

        file.write_text(
            TOOLS + '\n@tool\ndef more() -> int:\n    """New."""\n    return 1\n', "utf-8"
        )
        until(lambda: all("t_more" in names for names in listed()))

        file.write_text("def broken(:", "utf-8")
        until(lambda: sum("the version from before stays" in line for line in served.lines) == 2)
        assert all("t_more" in names for names in listed())


def test_workers_of_the_configuration_are_for_http_alone(tmp_path):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    config = '[serve]\nworkers = 2\n[sources.t]\nref = "python:t.py"\n'
    (tmp_path / "callpact.toml").write_text(config, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--stdio"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=raw.PATIENCE,
        check=False,
    )
    assert (ran.returncode, "over stdio" in ran.stderr) == (0, True), ran.stderr
    assert "workers" not in ran.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--stdio",), "over stdio there is one client"),
        (("--metrics",), "leave out --metrics"),
        (("--port", "{taken}"), "another program is there already"),
        (("-s", "broken.py"), "cannot be imported"),
    ],
)
def test_what_cannot_be_served_is_one_error(tmp_path, args, words):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n", "utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        args = [arg.format(taken=taken.getsockname()[1]) for arg in args]
        sources = [] if "-s" in args else ["-s", "t.py"]
        command = [sys.executable, "-m", "callpact", "serve", "--port", "0", "--workers", "2"]
        ran = subprocess.run(
            [*command, *sources, *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=raw.PATIENCE,
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr.count(words) == 1, ran.stderr
