"""Deep arguments and answers go past the SDK; all others through it."""

from __future__ import annotations

import orjson

from callpact.serve.deep_parts import DeepAnswer, set_aside, take_out


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
    DeepAnswer()
    shallow = {"structuredContent": {"a": nested(20)}}
    assert take_out(shallow) is shallow
    assert take_out({"structuredContent": nested(900), "content": []}) == {
        "structuredContent": {},
        "content": [],
    }
