"""A server stops in its time though the PostgreSQL server of its log does not answer any more."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import pytest

import raw
from callpact.audit import open_store, place_of
from callpact.audit.journal.segments import segments
from callpact.audit.store import Filter
from postgres import Server, Unavailable

TOOLS = """
from callpact import tool

@tool(namespace="t")
def echo(text: str) -> str:
    return text
"""


@pytest.fixture
def server():
    try:
        server = Server()
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL here: {reason}")
    yield server
    server.close()


def echoed(line, text):
    asked = raw.message("tools/call", name="t_echo", arguments={"text": text})
    return line.ask(asked, **raw.routed("tools/call", "t_echo")).result["content"][0]["text"]


@contextlib.contextmanager
def frozen(server):
    """Stop every process of a database server, as a machine that hangs does."""
    parent = server._process.pid
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    pids = [parent, *map(int, found.stdout.split())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_frozen_database_keeps_no_server_from_ending_and_loses_no_record(
    server, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "no file"))
    url = server.new_database()
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    args = ("-s", "t.py", "--audit", url)
    with raw.Served(args=args, cwd=tmp_path) as served, served.connect() as line:
        assert "tea" in echoed(line, "tea")
        # Wait until it is connected: the record is there.
        asker = place_of(url).open_store()
        while not asker.log(Filter()):
            assert served.process.poll() is None
        asker.close()
        with frozen(server):
            assert "rice" in echoed(line, "rice")
            assert served.end(signal.SIGTERM) in {0, -15}
    assert segments(place_of(url).journal) != []
    store = open_store(url)
    assert sorted(record.tool for record in store.log(Filter())) == ["t.echo"] * 2
    store.close()
