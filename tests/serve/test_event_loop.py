"""The loop that a server runs on: uvloop's over HTTP where it is installed, asyncio's over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys

import pytest
import uvloop

import raw
from callpact.serve.event_loop import new_event_loop

TOOLS = """
import asyncio
from callpact import tool

@tool
async def loop() -> str:
    "Name the loop that it runs on."
    return type(asyncio.get_running_loop()).__module__
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    return tmp_path


def test_uvloop_is_used_where_it_is_installed(monkeypatch):
    with contextlib.closing(new_event_loop()) as loop:
        assert isinstance(loop, uvloop.Loop)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with contextlib.closing(new_event_loop()) as loop:
        assert isinstance(loop, asyncio.BaseEventLoop)


def test_a_server_over_http_runs_on_uvloop(folder):
    with raw.Served("t.py", cwd=folder) as served, served.connect() as line:
        line.send(raw.called("t_loop"))
        assert line.read().result["structuredContent"] == "uvloop"


def test_a_server_over_stdio_leaves_its_descriptors_blocking(folder):
    command = [sys.executable, "-m", "callpact", "serve", "--stdio", "-s", "t.py"]
    read, write = os.pipe()
    pipes = {"stdin": read, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, **pipes) as process, os.fdopen(write, "wb") as given:
        asked = raw.message("tools/call", name="t_loop", arguments={})
        given.write(json.dumps(asked).encode() + b"\n")
        given.flush()
        answer = json.loads(process.stdout.readline())
        assert os.get_blocking(read)  # The file is shared with the process.
        given.close()
        assert process.wait(raw.PATIENCE) == 0
    os.close(read)
    assert answer["result"]["structuredContent"].startswith("asyncio.")
