"""Deep arguments and answers go past the SDK; all others through it."""

from __future__ import annotations

import json
import re
import sys

import orjson
import pytest

import piped
import raw
from callpact.schema.limits import MAX_VALUE_DEPTH
from callpact.serve.prebuilt import Prebuilt, set_aside, take_out


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


@pytest.mark.parametrize("levels", [200, DEEPEST])
def test_deep_arguments_and_answers_go_through_http(tools, levels):
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5_000))  # For the reader of this test.
    with raw.Served(tools) as served, served.connect() as line:
        answer = line.ask(deep_call(levels), **raw.routed("tools/call", "mirrors_mirror"))
        assert levels_in(answer.result["structuredContent"]) == levels
        too_deep = line.ask(deep_call(1_500), **raw.routed("tools/call", "mirrors_mirror"))
        assert too_deep.error["code"] == -32700


@pytest.mark.parametrize("levels", [200, DEEPEST])
def test_deep_arguments_and_answers_go_through_stdio(tools, levels):
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5_000))
    with piped.Piped(tools) as served:
        served.send(deep_call(levels) + b"\n")
        assert levels_in(served.read()["result"]["structuredContent"]) == levels
