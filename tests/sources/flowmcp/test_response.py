"""Answers of upstreams: read as declared, statuses as errors, E-codes in FlowMCP's form."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import time
from email.utils import formatdate

import pytest

import calls
from callpact.errors import Failed, ToolError, UpstreamError
from callpact.net import Response
from callpact.sources.flowmcp.http.response import read_response
from callpact.sources.response_body import MAX_SHOWN
from callpact.wire import flowmcp

Shop, answered, main, parameter, tool = (
    calls.Shop,
    calls.answered,
    calls.main,
    calls.parameter,
    calls.tool,
)
PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
OUTPUTS = {
    "json": {"mimeType": "application/json", "schema": {"type": "object"}},
    "png": {"mimeType": "image/png", "schema": {"type": "string", "format": "base64"}},
    "text": {"mimeType": "text/plain", "schema": {"type": "string"}},
}


@pytest.fixture
def shop(tmp_path):
    """A tool with this output, whose upstream answers with this."""

    def make(*answer, output=None, method="GET", **headers):
        own = {} if output is None else {"output": OUTPUTS[output]}
        given = answer[0] if answer and callable(answer[0]) else answered(*answer, **headers)
        return Shop(tmp_path, main({"getIt": tool(method=method, **own)}), answer=given)

    return make


# --- success --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 226])
def test_every_2xx_is_a_success_with_the_meta_of_http(shop, status):
    made = shop('{"a": 1}', status, "application/json", X_Rate="9")
    envelope = made.call()
    assert envelope.data == {"a": 1}
    assert envelope.meta.source == "http"
    assert envelope.meta.status_code == status
    assert envelope.meta.content_type == "application/json"
    assert envelope.meta.headers["x-rate"] == "9"
    assert made.rendered() == {"status": True, "messages": [], "data": {"a": 1}}


@pytest.mark.parametrize(
    ("status", "body", "output"),
    [(204, "", None), (204, "", "json"), (205, "", None), (202, "", None), (201, "", "json")],
)
def test_an_answer_without_content_is_null(shop, status, body, output):
    assert shop(body, status, None, output=output).call().data is None


def test_null_for_a_declared_object_is_a_warning(shop):
    assert [issue.code for issue in shop("", 204, None, output="json").call().warnings] == ["type"]


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/ld+json", "text/html", "text/plain", None, "", "nonsense"],
)
def test_json_is_read_whatever_the_upstream_calls_it(shop, kind):
    assert shop('{"a": 1}', 200, kind).call().data == {"a": 1}


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (" \n[1, 2]\t", [1, 2]),
        ("7", 7),
        ('"text"', "text"),
        ("null", None),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 12345678901234567890123}', {"a": 12345678901234567890123}),
        ('"\\ud83d\\ude00 \\u0000"', "\U0001f600 \0"),
        (codecs.BOM_UTF8 + b'{"a": 1}', {"a": 1}),
    ],
)
def test_json_is_read_as_it_stands(shop, body, data):
    assert shop(body).call().data == data


def test_half_a_character_does_not_cost_the_answer(shop):
    # Upstreams cut texts in the middle of an emoji; JSON.parse takes that.
    data = shop('{"text": "cut \\ud83d", "n": [1, 2.5]}').call().data
    assert data["n"] == [1, 2.5]
    assert data["text"].startswith("cut ")


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("application/json; charset=utf-8", "utf-8"),
        ("application/json; charset=UTF-8", "utf-8"),
        ('application/json;charset="utf-8"', "utf-8"),
        ("application/json; charset=utf-8", "utf-8-sig"),
        ("application/json; charset=iso-8859-1", "latin-1"),
        ("application/json; charset=ISO-8859-1", "utf-8"),  # Mislabelled: JSON is UTF-8.
        ("application/json; charset=windows-1252", "cp1252"),
        ("application/json; charset=utf-16", "utf-16"),
        ("application/json; charset=utf-16le", "utf-16-le"),
        ("application/json; charset=shift_jis", "utf-8"),
        ("application/json; charset=unheard-of", "utf-8"),
        ("application/json; charset=", "utf-8"),
    ],
)
def test_json_is_read_in_its_encoding(shop, kind, encoding):
    body = '{"größe": "é"}'.encode(encoding)
    assert shop(body, 200, kind).call().data == {"größe": "é"}


@pytest.mark.parametrize(
    ("kind", "encoding", "text"),
    [
        ("text/plain", "utf-8", "größe €"),
        ("text/plain", "utf-8-sig", "größe €"),
        (None, "utf-8", "größe €"),
        ("text/plain; charset=iso-8859-1", "latin-1", "größe"),
        ("text/plain; charset=windows-1252", "cp1252", "größe €"),
        ("text/plain; charset=utf-16", "utf-16", "größe €"),
        ("text/plain; charset=shift_jis", "shift_jis", "日本"),
        ("text/plain; charset=gb2312", "gb2312", "中文"),
        ("text/plain; charset=koi8-r", "koi8-r", "мир"),
        ("text/html; charset=utf-8", "utf-8", "<p>é</p>"),
    ],
)
def test_text_is_read_in_its_encoding(shop, kind, encoding, text):
    envelope = shop(text.encode(encoding), 200, kind, output="text").call()
    assert (envelope.data, envelope.warnings) == (text, ())


def test_text_that_is_json_stays_text(shop):
    assert shop('{"a": 1}', output="text").call().data == '{"a": 1}'


def test_a_png_is_delivered_as_base64(shop):
    made = shop(PNG, 200, "image/png", output="png")
    envelope = made.call()
    assert base64.b64decode(envelope.data) == PNG
    assert envelope.warnings == ()
    assert made.rendered()["data"] == base64.b64encode(PNG).decode()


def test_cookies_are_kept_apart(shop):
    envelope = shop("{}", 200, "application/json", Set_Cookie="a=b").call()
    assert envelope.meta.set_cookie == ["a=b"]
    assert "set-cookie" not in envelope.meta.headers


# --- unreadable: E003 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "output"),
    [
        ("", "application/json", None),
        ("<html>", "text/html", None),
        ('{"a": 1', "application/json", "json"),
        ('{"a": 1} x', "application/json", None),
        ("{'a': 1}", "application/json", None),
        ("[NaN]", "application/json", None),
        ("[Infinity]", "application/json", None),
        ("[1e999]", "application/json", None),
        ("[01]", "application/json", None),
        (b'{"a": "\xff"}', "application/json", None),
        (b'{"a": "\xff"}', "application/json; charset=unheard-of", None),
        (PNG, "image/png", None),
        (b"\xff\xfe\xfa", "text/plain", "text"),
        (b"abc", "text/plain; charset=unheard-of", "text"),
        (b"abc", "text/plain; charset=hex", "text"),
        (b"abc", "text/plain; charset=rot13", "text"),
        (b"\\x41", "text/plain; charset=unicode_escape", "text"),
        (b"abc", "text/plain; charset=punycode", "text"),
        (b"abc", "text/plain; charset=idna", "text"),
        ("[" * 200_000, "application/json", None),
    ],
)
def test_a_body_that_cannot_be_read_is_an_error_that_says_what_came(shop, body, kind, output):
    made = shop(body, 200, kind, output=output)
    error = made.failure()
    assert (type(error), error.code) == (UpstreamError, "upstream_error")
    assert error.details["reason"] == "unreadable"
    assert error.details["statusCode"] == 200
    assert kind in error.message
    (message,) = made.rendered()["messages"]
    assert message.startswith("E003 getIt: API returned a body that is ")


def test_an_encoding_that_takes_quadratic_time_is_not_used(shop):
    # No clock is asked: decoding this as punycode would take hours.
    body = b"a" * 3_000_000 + b"-" + b"z9" * 3_000_000
    made = shop(body, 200, "text/plain; charset=punycode", output="text")
    assert made.failure().details["reason"] == "unreadable"


# --- statuses: E001 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status", [300, 301, 304, 400, 401, 403, 404, 409, 418, 429, 500, 503, 599]
)
def test_any_other_status_is_an_error_with_what_came(shop, status):
    made = shop('{"why": "so"}', status, "application/problem+json")
    error = made.failure()
    assert (error.code, error.message) == ("upstream_error", f"API returned {status}")
    assert error.details == {
        "statusCode": status,
        "contentType": "application/problem+json",
        "body": '{"why": "so"}',
    }
    assert made.rendered() == {
        "status": False,
        "messages": [f"E001 getIt: API returned {status}"],
        "data": None,
    }


@pytest.mark.parametrize("output", [None, "json", "png", "text"])
def test_a_status_is_an_error_whatever_is_declared(shop, output):
    assert shop("no", 404, "text/plain", output=output).failure().details["statusCode"] == 404


def test_an_error_without_a_body_has_none_in_its_details(shop):
    assert "body" not in shop("", 500, None).failure().details


def test_of_a_long_body_the_beginning_is_shown(shop):
    shown = shop("é" * 100_000, 500, "text/plain").failure().details["body"]
    assert len(shown.encode()) <= MAX_SHOWN
    assert shown == "é" * (MAX_SHOWN // 2)


def test_a_body_that_is_not_text_can_be_shown_all_the_same(shop):
    assert json.dumps(shop(PNG * 1_000, 500, "image/png").failure().details)


@pytest.mark.parametrize(("value", "seconds"), [("0", 0), ("120", 120), (" 5 ", 5)])
def test_retry_after_in_seconds_is_told_at_once(shop, value, seconds):
    assert shop("", 429, None, Retry_After=value).failure().details["retryAfter"] == seconds


def test_retry_after_as_a_date_is_told_in_seconds(shop):
    date = formatdate(time.time() + 3_600, usegmt=True)
    assert 3_500 < shop("", 503, None, Retry_After=date).failure().details["retryAfter"] <= 3_600


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", ""])
def test_a_retry_after_that_says_nothing_is_left_out(shop, value):
    assert "retryAfter" not in shop("", 429, None, Retry_After=value).failure().details


# --- the other E-codes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            UpstreamError("cannot be reached", details={"reason": "dns"}),
            "E002 getIt: cannot be reached",
        ),
        (Failed("address_not_allowed", "a private address"), "E002 getIt: a private address"),
        (ToolError("own_code", "their fault"), "E005 getIt: their fault"),
        (
            RuntimeError("a bug"),
            "E005 getIt: 'shop.getIt' failed unexpectedly; the error was logged",
        ),
    ],
)
def test_a_failure_of_the_transport_has_its_code(shop, error, message):
    def fail(_request):
        raise error

    assert shop(fail).rendered() == {"status": False, "messages": [message], "data": None}


def test_a_call_that_takes_too_long_is_told_as_one(shop):
    async def wait(_request):
        await asyncio.Event().wait()

    made = shop(wait)
    error = made.failure(deadline=time.time() * 1000 + 50)
    assert error.code == "timeout"
    assert flowmcp.encode_error(error, "getIt")["messages"][0].startswith("E002 getIt: ")


def test_every_issue_of_bad_input_is_a_message(tmp_path):
    made = Shop(tmp_path, main({"getIt": tool(parameter("a"), parameter("n", "number()"))}))
    answer = made.rendered({"n": "7", "x": 1})
    assert (answer["status"], answer["data"]) == (False, None)
    assert len(answer["messages"]) == 3
    assert all(message.startswith("E004 getIt: ") for message in answer["messages"])


def test_a_missing_key_is_e006(tmp_path):
    made = Shop(tmp_path, main(requiredServerParams=["KEY"]), secrets={})
    (message,) = made.rendered()["messages"]
    assert message.startswith("E006 getIt: ")
    assert "KEY" in message


def test_an_unknown_tool_is_e008(tmp_path):
    error = Shop(tmp_path, main()).failure(name="shop.getThat")
    (message,) = flowmcp.encode_error(error, "getThat")["messages"]
    assert message.startswith("E008 getThat: ")


def test_output_that_is_held_back_is_e009(shop):
    error = shop("[]", output="json").failure(policy="reject")
    assert flowmcp.encode_error(error, "getIt")["messages"][0].startswith("E009 getIt: ")


# --- the function ---------------------------------------------------------------------------


def test_an_answer_is_read_without_a_content_type():
    envelope = read_response(Response(200, {}, b"[1]"), "application/json")
    assert (envelope.data, envelope.meta.content_type) == ([1], "")
