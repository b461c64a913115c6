"""The wire form of plain HTTP: what a client accepts, and what is never sent."""

from __future__ import annotations

import json

import pytest

from callpact.codes import CODES
from callpact.envelope import http_envelope, local_envelope
from callpact.errors import restored
from callpact.tool import Contract, Tool
from callpact.wire.rest import (
    ENVELOPE,
    content_type,
    encode_error,
    encode_refusal,
    encode_result,
    prefers_envelope,
)


async def handler(arguments, context):
    return arguments


TOOL = Tool(id="t.x", description="", contract=Contract(), handler=handler)


@pytest.mark.parametrize(
    ("accept", "whole"),
    [
        (ENVELOPE, True),
        (f"{ENVELOPE}, */*", True),
        (f"{ENVELOPE.upper()} ; q=0.3, text/html", True),
        (f"application/json;q=0.5, {ENVELOPE}", True),
        (f"application/json, {ENVELOPE}", False),
        (f"{ENVELOPE};q=0", False),
        (f"{ENVELOPE};q=x", False),
        ("application/json", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_the_envelope_is_for_who_prefers_it(accept, whole):
    assert prefers_envelope(accept) is whole


def test_the_cookies_of_an_upstream_stay_out_of_the_envelope():
    envelope = http_envelope(
        1, status_code=200, headers={}, content_type="text/plain", set_cookie=["secret"]
    )
    answer = encode_result(envelope, TOOL, whole=True)
    assert json.loads(answer.body)["meta"]["statusCode"] == 200
    assert b"secret" not in answer.body


@pytest.mark.parametrize("kind", ["text/html\r\nX: y", "nonsense", "a b/c", "é/é", "", "x/" + "\n"])
def test_a_content_type_that_is_none_is_never_a_header(kind):
    envelope = http_envelope(b"x", status_code=200, headers={}, content_type=kind)
    assert content_type(b"x", envelope, TOOL) in {"application/octet-stream", "text/html"}
    assert b"\n" not in dict(encode_result(envelope, TOOL).headers)[b"content-type"]


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_status_and_the_shape_of_an_error(code):
    answer = encode_error(restored(code, "no", path="/a"), TOOL)
    assert answer.status == CODES[code].http
    assert json.loads(answer.body) == {"error": {"code": code, "message": "no", "path": "/a"}}
    assert (b"retry-after" in dict(answer.headers)) is (
        answer.status == 503 or code == "idempotency_key_in_use"
    )


def test_a_refusal_of_any_status_has_a_code():
    for status in range(400, 600):
        assert json.loads(encode_refusal(status, "no"))["error"]["code"]


@pytest.mark.parametrize("data", [None, 2**80, "é\u2028", [1.5], {"a": b"x".decode()}])
def test_the_body_is_the_data_as_json(data):
    assert json.loads(encode_result(local_envelope(data, "t.x"), TOOL).body) == data


def test_what_json_cannot_carry_is_an_error_of_the_tool():
    answer = encode_result(local_envelope({"a": "\ud800"}, "t.x"), TOOL)
    assert answer.status == 502
    assert json.loads(answer.body)["error"]["code"] == "output_validation_failed"
