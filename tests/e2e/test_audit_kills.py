"""Servers that are killed again and again, under load, lose no call that was answered."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import random
import signal
import threading

import raw
from callpact.audit import health_of, open_store
from callpact.audit.store import Filter

KILLS = int(os.environ.get("CALLPACT_KILLS", "100"))
"""More where somebody has the time: `CALLPACT_KILLS=300`."""
CLIENTS = 3
MAX_ANSWERS = 150
TOOLS = """
from typing import Annotated
from pydantic import Field
from callpact import ToolError, tool

@tool(namespace="load")
async def echo(token: str, size: Annotated[int, Field(le=5_000)]) -> dict[str, str]:
    if size == 13:
        raise ToolError("unlucky", "Not this one")
    return {"token": token, "more": "x" * size}
"""
SIZES = (0, 13, 40, 3_000, 9_999)
"""A result, an error of the tool, and an input that is refused, small and larger."""


class Load:
    """Clients that call a server until it is gone, and remember what was answered."""

    def __init__(self, served, wanted):
        self._served = served
        self._left = wanted
        self._changed = threading.Condition()
        self.answered = []
        self.asked = 0
        self._threads = [threading.Thread(target=self._call) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _call(self):
        # What a dead server leaves of an answer cannot be read: it was not answered.
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            self._served.connect() as line,
        ):
            for number in itertools.count():
                token = f"{random.getrandbits(96):024x}"
                with self._changed:
                    self.asked += 1
                line.send(raw.called("load_echo", token=token, size=SIZES[number % len(SIZES)]))
                answer = line.read()
                result = json.loads(answer.body)["result"]
                assert len(answer.body) == int(answer.headers["content-length"])
                assert result.get("isError") or result["structuredContent"]["token"] == token
                with self._changed:
                    self.answered.append(token)
                    self._left -= 1
                    self._changed.notify_all()

    def until_enough(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self._left <= 0, raw.PATIENCE)

    def join(self):
        for thread in self._threads:
            thread.join(raw.PATIENCE)
            assert not thread.is_alive()


def kill_two(folder):
    """Two servers on one log, each killed after some of its answers."""
    args = ("--audit", "log", "--log-level", "error")
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(raw.Served("load.py", args=args, cwd=folder)) for _ in "12"]
        loads = [Load(served, random.randint(1, MAX_ANSWERS)) for served in begun]
        for served, load in zip(begun, loads, strict=True):
            load.until_enough()
            assert served.end(signal.SIGKILL) == -signal.SIGKILL
            load.join()
    return loads


def kept(folder):
    """The token of every record."""
    store, before = open_store(folder / "log"), None
    try:
        while page := store.log(Filter(), limit=1_000, before=before, with_payloads=True):
            yield from (json.loads(record.input.json)["token"] for record in page)
            before = (page[-1].at, page[-1].id)
    finally:
        store.close()


def test_servers_that_are_killed_under_load_lose_no_answered_call_and_keep_none_twice(tmp_path):
    (tmp_path / "load.py").write_text(TOOLS, "utf-8")
    loads = [load for _ in range((KILLS + 1) // 2) for load in kill_two(tmp_path)]
    answered = [token for load in loads for token in load.answered]
    records = collections.Counter(kept(tmp_path))
    assert len(answered) >= KILLS
    assert [token for token in answered if records[token] != 1] == []
    assert max(records.values()) == 1
    # What is on record beside them was under way: at most one call of each client.
    assert len(answered) <= len(records) <= sum(load.asked for load in loads)
    assert len(records) - len(answered) <= CLIENTS * len(loads)
    told = health_of(tmp_path / "log" / "journal")
    assert (told.lost, told.refused) == (0, 0)
