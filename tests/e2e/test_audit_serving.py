"""A server's log holds no secret that it knows of, and tells what it could not keep."""

from __future__ import annotations

import asyncio

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import Implementation

import raw
from callpact.audit import open_store
from callpact.audit.journal.health import add_health
from callpact.audit.store import Filter
from callpact.context import LogLine

BEFORE, AFTER, CALLER = "before-0123456789", "after-0123456789", "caller-0123456789"
TOOLS = """
from callpact import Context, tool

@tool(namespace="t")
def echo(text: str, context: Context) -> str:
    context.logger.warning("asked for %s", text)
    return text
"""
CONFIG = """
secrets = "keys.env"
[sources.t]
ref = "python:t.py"
[serve.tokens.ann]
secret = "ANN"
scopes = ["metrics"]
"""
TOKEN = {"Authorization": f"Bearer {CALLER}"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ANN", CALLER)
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    keys(tmp_path, BEFORE)
    return tmp_path


def keys(folder, value):
    path = folder / "keys.env"
    path.touch(0o600)
    path.write_text(f"KEY={value}\n", "utf-8")


def echoed(line, text):
    asked = raw.message("tools/call", name="t_echo", arguments={"text": text})
    answer = line.ask(asked, **raw.routed("tools/call", "t_echo"), **TOKEN)
    return answer.result["content"][0]["text"]


def until(served, words):
    """Wait for a line on stderr with these words."""
    with served._told:
        assert served._told.wait_for(lambda: any(words in x for x in served.lines), raw.PATIENCE)


def kept(folder):
    store = open_store(folder / "log")
    try:
        return [record.input.json for record in reversed(store.log(Filter(), with_payloads=True))]
    finally:
        store.close()


def test_a_key_that_is_read_again_is_masked_from_then_on(folder):
    with raw.Served(args=("--watch", "--audit", "log"), cwd=folder) as served:
        with served.connect() as line:
            echoed(line, f"1 {BEFORE}")
            keys(folder, AFTER)
            until(served, "keys.env changed")
            echoed(line, f"2 {BEFORE} {AFTER}")
        assert served.end(15) in {0, -15}
    assert kept(folder) == ['{"text":"1 ***"}', '{"text":"2 *** ***"}']


def test_the_token_of_a_caller_is_masked_too(folder):
    with raw.Served(args=("--audit", "log"), cwd=folder) as served, served.connect() as line:
        echoed(line, f"my token is {CALLER}")
    assert kept(folder) == ['{"text":"my token is ***"}']


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_record_tells_the_client_and_what_the_tool_logged(folder, mode):
    async def go(served):
        headers = {"Authorization": f"Bearer {CALLER}"}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(
                streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http),
                mode=mode,
                client_info=Implementation(name="cursor", version="1.4"),
            ) as client,
        ):
            await client.call_tool("t_echo", {"text": f"tea {BEFORE}"})

    with raw.Served(args=("--audit", "log"), cwd=folder) as served:
        asyncio.run(go(served))
    store = open_store(folder / "log")
    (record,) = store.log(Filter(client="cursor*"))
    store.close()
    assert (record.caller, record.client) == ("ann", "cursor 1.4")
    assert record.via.startswith("mcp 20")
    assert record.logs == (LogLine("warning", "asked for tea ***"),)


def test_what_the_log_could_not_keep_is_among_the_numbers(folder):
    journal = folder / "log" / "journal"
    journal.mkdir(parents=True)
    add_health(journal, lost=2, unreadable=3, refused=4)
    args = ("--audit", "log", "--metrics")
    with raw.Served(args=args, cwd=folder) as served, served.connect() as line:
        page = line.ask(method="GET", path="/metrics", **TOKEN).body.decode().splitlines()
    told = [line for line in page if line.startswith("callpact_audit")]
    assert told == [
        "callpact_audit_lost_total 2",
        "callpact_audit_unreadable_total 3",
        "callpact_audit_refused_total 4",
    ]
