"""Every revision of the protocol with a handshake is served; what is newer than it stands beside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent / "behaviour.py"
PATIENCE = 30


def asked(revision, *requests):
    """What a server over stdio answers to a client of a revision, by the id of the request."""
    hello = {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    lines = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *({"id": number, **request} for number, request in enumerate(requests, 1)),
    ]
    command = [sys.executable, "-m", "callpact", "serve", "--stdio", "-s", str(TOOLS)]
    done = subprocess.run(
        [*command, "--audit", "off"],
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    return {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_client_of_a_revision_lists_calls_and_reads_results_and_errors_as_text(revision):
    listing = {"method": "tools/list"}
    adding = {
        "method": "tools/call",
        "params": {"name": "behaviour_add", "arguments": {"a": 1, "b": 2}},
    }
    wrong = {"method": "tools/call", "params": {"name": "behaviour_add", "arguments": {"a": 1}}}
    told = asked(revision, listing, adding, wrong)
    assert told[0]["result"]["protocolVersion"] == revision
    tools = {tool["name"]: tool for tool in told[1]["result"]["tools"]}
    assert tools["behaviour_add"]["inputSchema"]["required"] == ["a", "b"]
    added = told[2]["result"]
    assert json.loads(added["content"][0]["text"]) == {"sum": 3}
    assert added["structuredContent"] == {"sum": 3}
    error = json.loads(told[3]["result"]["content"][0]["text"])["error"]
    assert (told[3]["result"]["isError"], error["path"]) == (True, "/b")


def test_a_client_of_a_revision_that_nobody_knows_is_offered_the_latest_with_a_handshake():
    assert asked("1999-01-01")[0]["result"]["protocolVersion"] == "2025-11-25"
