"""The fakes that tests of others use."""

from __future__ import annotations

import asyncio

import pytest

from callpact.errors import InvalidInput, ToolError, UpstreamError, UsageError
from callpact.net import Request, Response, Transport
from callpact.testing import StubTransport, as_response

ASKED = Request("GET", "https://api.example/x")


def sent(respond, request=ASKED, **options):
    return asyncio.run(StubTransport(respond).send(request, **options))


def test_a_plain_mapping_stands_for_an_answer():
    answer = sent(lambda _: {"status": 200, "contentType": "application/json", "body": '{"ä":1}'})
    assert answer == Response(200, {"content-type": "application/json"}, '{"ä":1}'.encode())


def test_bytes_headers_and_cookies_are_taken_as_a_real_transport_gives_them():
    answer = sent(lambda _: {"body": b"\xff", "headers": {"X-Rate": "1", "Set-Cookie": "a=1"}})
    assert answer == Response(200, {"x-rate": "1"}, b"\xff", ("a=1",))


def test_a_response_is_passed_on():
    given = Response(404)
    assert sent(lambda _: given) is given


def test_an_async_respond_is_awaited():
    async def respond(request):
        await asyncio.sleep(0)
        return {"body": request.method}

    assert sent(respond, deadline=1.0).body == b"GET"


def test_requests_are_kept_in_their_order():
    async def story():
        transport: Transport = StubTransport(lambda _: {})
        other = Request("POST", "https://api.example/y", {"X": "1"}, b"body")
        await transport.send(ASKED)
        await transport.send(other)
        await transport.aclose()
        assert transport.requests == [ASKED, other]

    asyncio.run(story())


@pytest.mark.parametrize(
    "error",
    [UpstreamError("gone", details={"reason": "reset"}), ToolError("x", "y"), ZeroDivisionError()],
)
def test_what_respond_raises_is_raised(error):
    def respond(_):
        raise error

    with pytest.raises(type(error)) as caught:
        sent(respond)
    assert caught.value is error


def test_a_header_that_does_not_stay_one_line_is_refused_like_by_a_real_transport():
    transport = StubTransport(lambda _: {})
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(transport.send(Request("GET", "https://api.example/", {"X": "a\nb"})))
    assert caught.value.path == "/headers/X"
    assert transport.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        {"statusCode": 200},
        {"status": "200"},
        {"status": 100},
        {"status": 600},
        {"body": {"a": 1}},
        {"body": None},
    ],
)
def test_an_answer_of_another_shape_is_wrong_use(answer):
    with pytest.raises(UsageError):
        as_response(answer)
