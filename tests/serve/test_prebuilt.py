"""Deep arguments and answers go past the SDK; all others through it."""

from __future__ import annotations

import json
import re
import sys

import orjson
import pytest

import piped
import raw
from callpact.schema.bounds import MAX_VALUE_DEPTH
from callpact.serve.mcp.prebuilt import Prebuilt, set_aside, take_out


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def message(arguments):
    params = {"name": "t", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def test_deep_arguments_wait_in_the_scope():
    scope, found = {}, message({"value": nested(900)})
    body = set_aside(scope, found, b"[" * 900)
    assert orjson.loads(body)["params"]["arguments"] == {}
    assert scope["callpact.arguments"] is found["params"]["arguments"]


def test_other_bodies_stay_as_they_are():
    for arguments in ({"value": nested(20)}, {"value": [[] for _ in range(500)]}, None):
        scope, found = {}, message(arguments)
        body = orjson.dumps(found)
        assert set_aside(scope, found, body) is body
        assert scope == {}


def test_deep_structured_content_is_taken_out_and_shallow_stays():
    Prebuilt()
    shallow = {"structuredContent": {"a": nested(20)}}
    assert take_out(shallow) is shallow
    assert take_out({"structuredContent": nested(900), "content": []}) == {
        "structuredContent": {},
        "content": [],
    }


# --- the whole way --------------------------------------------------------------------------

MIRROR = """
from typing import Any

from callpact import tool


@tool
def mirror(value: list[Any]) -> dict[str, Any]:
    return {"value": value}
"""
DEEPEST = MAX_VALUE_DEPTH - 2


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "mirrors.py"
    path.write_text(MIRROR)
    return path


def deep_call(levels):
    asked = raw.message("tools/call", name="mirrors_mirror", arguments={"value": []})
    text = json.dumps(asked).replace('"value": []', '"value": ' + "[" * levels + "]" * levels)
    return text.encode()


def levels_in(result):
    return len(re.search(r'"value":(\[+)', json.dumps(result, separators=(",", ":")))[1])


def asked_over_http(tools, *calls):
    with raw.Served(tools) as served, served.connect() as line:
        return [line.ask(call, **raw.routed("tools/call", "mirrors_mirror")).json for call in calls]


def asked_over_stdio(tools, *calls):
    with piped.Piped(tools) as served:
        return [(served.send(call + b"\n"), served.read())[1] for call in calls]


@pytest.mark.parametrize("ask", [asked_over_http, asked_over_stdio], ids=["http", "stdio"])
@pytest.mark.parametrize("levels", [200, DEEPEST])
def test_deep_arguments_and_answers_go_through(tools, ask, levels):
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5_000))  # For the reader of this test.
    answer, too_deep = ask(tools, deep_call(levels), deep_call(1_500))
    assert levels_in(answer["result"]["structuredContent"]) == levels
    assert too_deep["error"]["code"] == -32700
