"""Hook slots over HTTP are shared by token: a flood of one caller does not starve another one."""

from __future__ import annotations

import contextlib
import json
import os

import pytest

import calls
import kit
import raw
from callpact.sandbox.pool import MAX_THREADS
from serving import CI, ROOT, bearer

FLOOD = 45 * min(MAX_THREADS, os.cpu_count() or 1)
"""Looping calls: a queue without turns would run them for 45 seconds before another call."""
HOOKS = """
export const handlers = () => ({
    loop: { executeRequest: async () => { for( ;; ) {} } },
    add: { executeRequest: async () => ( { response: { degrees: 1 + 2 } } ) }
})
"""
CONFIG = """
[sources.shop]
ref = "flowmcp:Shop.mjs"
[serve.tokens.greedy]
secret = "GREEDY_TOKEN"
[serve.tokens.modest]
secret = "MODEST_TOKEN"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    tools = {name: kit.tool() for name in ("loop", "add")}
    main = kit.hashed(calls.main(tools, meta=kit.META))
    (tmp_path / "Shop.mjs").write_text(calls.exported(main, code=HOOKS), "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    monkeypatch.setenv("GREEDY_TOKEN", CI)
    monkeypatch.setenv("MODEST_TOKEN", ROOT)
    return tmp_path


def send(line, token, tool):
    message = raw.message("tools/call", name=tool, arguments={})
    line.send(raw.request(message, **raw.routed("tools/call", tool), **bearer(token)))


def result_of(line):
    """The result of the next call; an answer that takes long is the last event of a stream."""
    text = line.read().body.decode().strip()
    return json.loads(text.splitlines()[-1].removeprefix("data: "))["result"]


def added(line):
    """The value of the hook that adds, called with the token of the modest caller."""
    send(line, ROOT, "add_shop")
    return result_of(line)["structuredContent"]


def ended(served, tool_id, caller):
    """The number of calls that ended so far, by the log of the server."""
    return sum(f" {tool_id} " in line and f"for {caller})" in line for line in served.lines)


def test_looping_hooks_of_one_token_do_not_starve_the_hook_of_another_token(folder):
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(raw.Served(args=["--log-level", "info"], cwd=folder))
        modest, first, *flood = (stack.enter_context(served.connect()) for _ in range(FLOOD + 2))
        assert added(modest) == {"degrees": 3}
        for line in (first, *flood[:-1]):
            send(line, CI, "loop_shop")
        send(flood[-1], CI, "add_shop")
        failed = result_of(first)
        assert failed["isError"]
        assert "Timeout" in failed["content"][0]["text"]
        for _ in range(3):
            assert added(modest) == {"degrees": 3}
        # The queue is still long, and the caller that filled it waits behind its own calls.
        assert 0 < ended(served, "shop.loop", "greedy") < FLOOD / 2
        assert ended(served, "shop.add", "modest") > 0
        assert ended(served, "shop.add", "greedy") == 0
