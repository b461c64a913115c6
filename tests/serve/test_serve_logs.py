"""What a server writes to standard error: whole processes, read as a person or a program reads."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import raw

SECRET = "s3cret-of-an-upstream"
PATIENCE = 60
FORMS = pytest.mark.parametrize("form", ["text", "json"])

TOOLS = f"""
import logging, sys
from callpact import tool

log = logging.getLogger("third.party")

@tool
def leak(city: str) -> str:
    "Log a secret, print it, and fail with it."
    log.error("the key is {SECRET}")
    print("printed {SECRET}")
    sys.stdout.buffer.write(b"raw {SECRET}\\n")
    raise RuntimeError("no {SECRET}")

@tool
def chatter(times: int) -> int:
    "Log and print a lot."
    for _ in range(times):
        log.warning("x" * 3000)
        print("y" * 3000)
    return times
"""
CONFIG = '[sources.shop]\nref = "python:shop.py"\nsecrets = "keys.env"\n'


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(TOOLS, "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    (tmp_path / "keys.env").write_text(f"KEY={SECRET}\n", "utf-8")
    (tmp_path / "keys.env").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def talk(story, errlog, *args):
    """Let the official client tell a story to `callpact serve --stdio`."""
    command = ["-m", "callpact", "serve", "--stdio", *args]
    given = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))

    async def go():
        async with Client(stdio_client(given, errlog=errlog)) as client:
            return await story(client)

    return asyncio.run(asyncio.wait_for(go(), PATIENCE))


async def chatting(client):
    for times in (1, 100, 100, 1):
        answer = await client.call_tool("shop_chatter", {"times": times})
        assert not answer.is_error
    return True


@FORMS
def test_no_secret_of_a_source_shows_in_what_is_logged_or_printed(shop, form):
    async def story(client):
        assert (await client.call_tool("shop_leak", {"city": "Ulm"})).is_error
        return True

    path = shop / "stderr"
    with path.open("w") as errlog:
        assert talk(story, errlog, "--log-format", form, "--log-level", "debug")
    written = path.read_text("utf-8")
    assert SECRET not in written
    assert "Ulm" not in written
    for part in ("the key is ***", "printed ***", "raw ***", "RuntimeError: no ***"):
        assert part in written
    if form == "json":
        records = [json.loads(line) for line in written.splitlines()]
        [call] = [record for record in records if record.get("event") == "call"]
        assert (call["tool_id"], call["ok"], call["code"]) == ("shop.leak", False, "handler_error")
        [banner] = [record for record in records if record.get("event") == "serving"]
        assert (banner["place"], banner["tools"]) == ("stdio", 2)


@FORMS
def test_a_server_answers_though_nobody_reads_its_standard_error(shop, form):
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as errlog:
        assert talk(chatting, errlog, "--log-format", form)


@FORMS
def test_a_server_answers_though_its_standard_error_is_closed(shop, form):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as errlog:
        assert talk(chatting, errlog, "--log-format", form)


@FORMS
def test_a_server_shows_its_calls_at_info_and_not_above(shop, form):
    async def story(client):
        return (await client.call_tool("shop_chatter", {"times": 0})).structured_content

    for level, number in (("info", 1), ("warning", 0)):
        path = shop / level
        with path.open("w") as errlog:
            talk(story, errlog, "--log-format", form, "--log-level", level)
        told = path.read_text("utf-8")
        assert told.count("call finished: shop.chatter ok in ") == number


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(tmp_path):
    (tmp_path / "slow.py").write_text("open('loaded', 'w').close()\n", "utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "callpact", "serve", "--port", port, "-s", "slow.py"],
            capture_output=True,
            cwd=tmp_path,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 2
    assert b"another program is there already; use another --port" in done.stderr
    assert not Path(tmp_path / "loaded").exists()


def test_an_error_at_the_start_is_json_where_logs_are(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--log-format", "json", "-s", "none.py"],
        capture_output=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert json.loads(line)["level"] == "error"
    assert "none.py" in json.loads(line)["message"]


PRINTING = f"""
import os, subprocess, sys
from callpact import tool

kept = sys.stdout

@tool
def speak() -> None:
    "Write to standard output in every way."
    print("printed {SECRET}")
    sys.stdout.write("written {SECRET}\\n")
    kept.write("kept {SECRET}\\n")
    sys.stdout.buffer.write(b"raw {SECRET}\\n")
    sys.stdout.flush()
    os.write(1, b"by a library\\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
    print("end", flush=True)
"""


@FORMS
def test_over_http_what_a_tool_prints_goes_to_standard_error_masked(shop, form):
    (shop / "shop.py").write_text(PRINTING, "utf-8")
    args = ["--log-format", form]
    with raw.Served(args=args, cwd=shop, stdout=subprocess.PIPE) as served:
        with served.connect() as line:
            line.send(raw.called("shop_speak"))
            assert not line.read().result["isError"]
        assert served.end(signal.SIGTERM) == 0
        assert served.process.stdout.read() == ""
        served.process.stdout.close()
    told = "\n".join(served.lines)
    for word in ("printed", "written", "kept", "raw"):
        assert f"{word} ***" in told
    assert "by a library" in told
    assert "by a child" in told
    assert SECRET not in told
