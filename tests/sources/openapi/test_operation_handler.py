"""Responses, event streams and pages: what a call of an operation returns."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from callpact.catalog import Catalog
from callpact.context import Context
from callpact.envelope import HTTPResponseMeta
from callpact.errors import Failed, InvalidConfig, InvalidTool, Timeout, UpstreamError
from callpact.net import Limits
from callpact.runtime import Runtime
from callpact.sources import from_openapi
from callpact.sources.openapi.operation_handler import operation_handler
from callpact.sources.openapi.operation_settings import OperationSettings
from callpact.sources.openapi.operations import ResponseDeclaration
from callpact.sources.openapi.pagination import next_link, read_pagination
from callpact.sources.openapi.server_events import MAX_EVENT_BYTES, EventReader
from callpact.testing import StubTransport
from callpact.tool import Contract, Tool
from echo_upstream import PATIENCE, Echo, Sent, a_parameter, an_operation


def answered(sent, operation=None, arguments=None, settings=None):
    """The envelope of an answer."""

    async def run():
        async with Echo(lambda _: sent) as echo:
            return await echo.call(operation or an_operation(), arguments or {}, settings)

    return asyncio.run(run())


# --- responses -------------------------------------------------------------------------------


@pytest.mark.requirement("001.openapi.json-is-parsed")
@pytest.mark.requirement("001.openapi.text-is-text")
@pytest.mark.requirement("001.openapi.rest-is-bytes")
@pytest.mark.requirement("001.migration.from-openapi")
@pytest.mark.parametrize(
    ("sent", "data"),
    [
        (Sent({"a": 1}), {"a": 1}),
        (Sent(b'{"a": 1}', kind="application/problem+json; charset=utf-8"), {"a": 1}),
        (Sent(b"\xef\xbb\xbf[1]", kind="application/json"), [1]),
        (Sent(b"null", kind="application/json"), None),
        (Sent("é", kind="text/plain; charset=utf-8"), "é"),
        (Sent("é".encode("latin-1"), kind="text/plain; charset=iso-8859-1"), "é"),
        (Sent("<a/>", kind="text/xml"), "<a/>"),
        (Sent(b"\x89PNG", kind="image/png"), b"\x89PNG"),
        (Sent(b"bytes"), b"bytes"),
        (Sent(status=204), None),
        (Sent(status=202), None),
    ],
)
def test_the_data_of_a_success_has_the_form_of_its_type(sent, data):
    envelope = answered(sent)
    assert envelope.data == data
    assert isinstance(envelope.meta, HTTPResponseMeta)
    assert envelope.meta.status_code == sent.status


def test_the_envelope_has_headers_and_cookies_of_the_response():
    envelope = answered(Sent({}, headers={"X-Total": "7", "Set-Cookie": "a=b"}))
    assert envelope.meta.headers["x-total"] == "7"
    assert envelope.meta.set_cookie == ["a=b"]


@pytest.mark.requirement("001.openapi.headers-joined")
def test_repeated_headers_are_joined_with_a_comma():
    envelope = answered(Sent({}, headers={"X-Tag": "a", "x-tag": "b"}))
    assert envelope.meta.headers["x-tag"] == "a, b"


@pytest.mark.requirement("001.openapi.content-type-may-be-empty")
def test_without_a_content_type_it_is_the_empty_text():
    assert answered(Sent(b"bytes")).meta.content_type == ""
    assert answered(Sent({})).meta.content_type == "application/json"


@pytest.mark.requirement("001.openapi.error-status-raises")
@pytest.mark.requirement("001.migration.from-openapi")
@pytest.mark.parametrize("status", [304, 400, 404, 418, 500, 599])
def test_another_status_is_an_upstream_error_with_its_body(status):
    body = "x" * 5_000
    with pytest.raises(UpstreamError) as caught:
        answered(Sent("" if status == 304 else body, status=status, kind="text/plain"))
    error = caught.value
    assert error.message.startswith(f"HTTP {status}")
    assert error.details["statusCode"] == status
    assert error.details.get("body", "") == ("" if status == 304 else "x" * 2_000)
    assert error.details["contentType"] == "text/plain"


def test_an_error_says_how_long_to_wait():
    with pytest.raises(UpstreamError) as caught:
        answered(Sent({"slow": 1}, status=429, headers={"Retry-After": "30"}))
    assert caught.value.message == "HTTP 429: Too Many Requests"
    assert caught.value.details["retryAfter"] == 30


def test_json_that_is_none_is_an_upstream_error():
    with pytest.raises(UpstreamError) as caught:
        answered(Sent("<html>", kind="application/json"))
    assert caught.value.details["reason"] == "unreadable"


def test_a_status_that_is_not_declared_is_a_warning():
    declared = (ResponseDeclaration(status="200"), ResponseDeclaration(status="4XX"))
    operation = an_operation(responses=declared)
    assert answered(Sent({}), operation).warnings == ()
    (issue,) = answered(Sent({}, status=201), operation).warnings
    assert (issue.code, issue.message) == ("status", "The status 201 is not declared")
    wide = an_operation(responses=(ResponseDeclaration(status="2XX"),))
    assert answered(Sent({}, status=201), wide).warnings == ()


def test_the_request_accepts_the_declared_types_of_successes():
    content = {"text/html": True, "application/vnd.x+json": True}
    declared = (
        ResponseDeclaration(status="200", content=content),
        ResponseDeclaration(status="404", content={"application/problem+json": True}),
    )

    async def run():
        async with Echo() as echo:
            await echo.call(an_operation(responses=declared), {})
            return echo.last.headers["accept"]

    assert asyncio.run(run()) == "application/vnd.x+json, */*;q=0.1"


def test_a_redirect_is_followed_like_fetch():
    async def run(status, method):
        async with Echo() as echo:
            moved = Sent(status=status, headers={"Location": "/there"})
            echo.answer = lambda request: moved if request.path == "/" else Sent({"ok": 1})
            await echo.call(an_operation(method=method), {})
            return [(each.method, each.path) for each in echo.arrived]

    assert asyncio.run(run(302, "GET")) == [("GET", "/"), ("GET", "/there")]
    assert asyncio.run(run(303, "POST")) == [("POST", "/"), ("GET", "/there")]
    assert asyncio.run(run(307, "POST")) == [("POST", "/"), ("POST", "/there")]


def test_a_redirect_to_an_address_that_is_not_allowed_is_refused():
    with pytest.raises(Failed) as caught:
        answered(Sent(status=302, headers={"Location": "http://10.0.0.1/"}))
    assert caught.value.code == "address_not_allowed"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"server": "/relative"}, "set `server`"),
        ({"server": "ftp://x.example"}, "set `server`"),
        ({"path": "/{missing}", "server": "https://x.example"}, "'{missing}'"),
        ({"path": "/#Action=x", "server": "https://x.example"}, "'#'"),
    ],
)
def test_an_operation_without_a_possible_request_is_refused_at_load(more, words):
    with pytest.raises(InvalidTool) as caught:
        operation_handler(an_operation(**more), StubTransport(lambda _: {}), OperationSettings())
    assert words in str(caught.value)


def test_the_settings_replace_the_server():
    transport = StubTransport(lambda _: {"body": "x", "contentType": "text/plain"})
    operation = an_operation(path="/pets", server="https://old.example/v1")
    handler = operation_handler(
        operation, transport, OperationSettings(server="https://new.example/v2/")
    )
    asyncio.run(handler({}, Context("c", "t.t")))
    assert transport.requests[0].url == "https://new.example/v2/pets"


def test_a_204_is_not_cast_into_an_invented_object():
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}

    async def run():
        async with Echo(lambda _: Sent(status=204)) as echo:
            tool = Tool(
                id="shop.delete",
                description="",
                contract=Contract(output=schema),
                handler=echo.handler(an_operation(method="DELETE")),
            )
            async with Runtime(Catalog([tool])) as runtime:
                return await runtime.execute("shop.delete", {})

    envelope = asyncio.run(run())
    assert envelope.data is None
    assert [issue.code for issue in envelope.warnings] == ["type"]


# --- event streams ---------------------------------------------------------------------------

STREAM = (
    b"\xef\xbb\xbf: a comment\r\n"
    b'data: {"n": 1}\r\n\r\n'
    b"event: tick\rid: 7\rdata: first\rdata:second\rdata\r\r"
    b"retry: 10\nunknown: x\nevent: lost\n\n"
    b"data: [DONE]\n\n"
    b"data: without an end"
)
EVENTS = [({"n": 1}, "", ""), ("first\nsecond\n", "tick", "7"), ("[DONE]", "", "7")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_read_wherever_the_stream_is_cut(size):
    reader = EventReader()
    pieces = [STREAM[place : place + size] for place in range(0, len(STREAM), size)]
    found = [event for piece in pieces for event in reader.feed(piece)]
    assert [(event.data, event.name, event.id) for event in found] == [
        (json.dumps(data) if isinstance(data, dict) else data, name, number)
        for data, name, number in EVENTS
    ]


def test_an_endless_event_is_refused():
    lines = (b"data: " + b"x" * (MAX_EVENT_BYTES // 50) + b"\n") * 100
    with pytest.raises(UpstreamError) as caught:
        list(EventReader().feed(lines))
    assert caught.value.details["reason"] == "too_large"
    with pytest.raises(UpstreamError):
        list(EventReader().feed(b"x" * (MAX_EVENT_BYTES + 1)))


def streamed(write, *, limits=None, arguments=None, **context):
    """The envelopes of a subscription, and the error that it ended with."""

    async def run():
        found, error = [], None
        async with Echo(lambda _: write, **(limits or {})) as echo:
            operation = an_operation(a_parameter("query", "q"), server=echo.root)
            handler = operation_handler(
                operation, echo.transport, OperationSettings(), is_stream=True
            )
            try:
                async for each in handler(arguments or {}, Context("c", "t.t", **context)):
                    found.append(each)
            except Failed as raised:
                error = raised
            return found, error, echo.last

    return asyncio.run(run())


def stream_of(*pieces, head=b"Content-Type: text/event-stream; charset=utf-8", wait=None):
    async def write(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + head + b"\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if wait is not None:
            await wait.wait()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return write


def test_each_event_is_an_envelope():
    found, error, request = streamed(stream_of(STREAM[:40], STREAM[40:]), arguments={"q": "x"})
    assert error is None
    assert [
        (
            each.data,
            each.meta.headers.get("sse-event", ""),
            each.meta.headers.get("last-event-id", ""),
        )
        for each in found
    ] == EVENTS
    assert {each.meta.content_type for each in found} == {"text/event-stream; charset=utf-8"}
    assert request.target == "/?q=x"
    assert request.headers["accept"] == "text/event-stream"


@pytest.mark.parametrize(
    ("schema", "data"),
    [({"type": "string"}, [{"n": "1"}]), ({"properties": {"n": {"type": "integer"}}}, [{"n": 1}])],
)
def test_a_schema_of_text_is_that_of_the_stream_and_not_of_its_events(schema, data):
    content = {"text/event-stream": {"schema": schema}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": "https://shop.example"}],
        "paths": {
            "/ticks": {
                "get": {
                    "operationId": "ticks",
                    "responses": {"200": {"description": "", "content": content}},
                }
            }
        },
    }
    sent = {"body": b'data: {"n": "1"}\n\n', "contentType": "text/event-stream"}

    async def run():
        source, tools = await from_openapi(document, transport=StubTransport(lambda _: sent))
        async with Runtime(Catalog(tools)) as runtime:
            found = [each.data async for each in runtime.subscribe("shop.ticks", {})]
        await source.aclose()
        return found

    assert asyncio.run(run()) == data


def test_a_silent_stream_ends_with_the_deadline_or_the_limit():
    write = stream_of(b"data: 1\n\n", wait=asyncio.Event())
    found, error, _ = streamed(write, limits={"stream_idle_seconds": 0.2})
    assert [each.data for each in found] == [1]
    assert error.details["phase"] == "stream_idle"
    write = stream_of(b"data: 1\n\n", wait=asyncio.Event())
    found, error, _ = streamed(write, deadline=(time.time() + 0.5) * 1_000)
    assert [each.data for each in found] == [1]
    assert isinstance(error, Timeout)


def test_a_subscriber_may_leave_at_any_time():
    async def run():
        gone = asyncio.Event()

        async def endless(writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            try:
                while not writer.is_closing():
                    writer.write(b"data: 1\n\n")
                    await writer.drain()
                    await asyncio.sleep(0)
            finally:
                gone.set()

        async with Echo(lambda _: endless) as echo:
            operation = an_operation(server=echo.root)
            handler = operation_handler(
                operation, echo.transport, OperationSettings(), is_stream=True
            )
            events = handler({}, Context("c", "t.t"))
            assert (await anext(events)).data == 1
            await events.aclose()
            async with asyncio.timeout(PATIENCE):
                await gone.wait()

    asyncio.run(run())


def test_an_answer_that_is_no_stream_is_one_envelope_or_an_error():
    async def plain(writer):
        writer.write(Sent({"a": 1}).data())
        await writer.drain()

    found, error, _ = streamed(plain)
    assert ([each.data for each in found], error) == ([{"a": 1}], None)

    async def refused(writer):
        writer.write(Sent({"a": 1}, status=503, headers={"Retry-After": "1"}).data())
        await writer.drain()

    found, error, _ = streamed(refused)
    assert found == []
    assert (error.details["statusCode"], error.details["retryAfter"]) == (503, 1)


def test_a_stream_that_is_encoded_or_cut_off_is_an_error():
    head = b"Content-Type: text/event-stream\r\nContent-Encoding: gzip"
    assert streamed(stream_of(b"x", head=head))[1].details["reason"] == "encoding"

    async def cut(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n")
        writer.write(b"Content-Type: text/event-stream\r\n\r\n9\r\ndata: 1\n\n\r\n")
        await writer.drain()

    found, error, _ = streamed(cut)
    assert [each.data for each in found] == [1]
    assert error.details["reason"] == "reset"


def test_a_transport_that_cannot_stream_is_read_whole():
    transport = StubTransport(lambda _: {"body": STREAM, "contentType": "text/event-stream"})
    operation = an_operation(server="https://x.example")
    handler = operation_handler(operation, transport, OperationSettings(), is_stream=True)

    async def run():
        return [each.data async for each in handler({}, Context("c", "t.t"))]

    assert asyncio.run(run()) == [data for data, _, _ in EVENTS]


# --- pages -----------------------------------------------------------------------------------

ITEMS = list(range(25))


def paged(rule, answer, *parameters, arguments=None):
    """The envelope of merged pages, and the requests."""
    settings = OperationSettings(pagination=read_pagination(rule))

    async def run():
        async with Echo(answer) as echo:
            operation = an_operation(*parameters, path="/items")
            return await echo.call(operation, arguments or {}, settings), echo.arrived

    return asyncio.run(run())


def by_link(request):
    start = int(request.query.rpartition("=")[2] or 0)
    headers = {"Link": '</items?start=0>; rel="first"'}
    if start + 10 < len(ITEMS):
        headers["Link"] += f', <?start={start + 10}>; title="a, b"; rel="x next"'
    return Sent(ITEMS[start : start + 10], headers=headers)


def test_pages_are_fetched_only_under_a_rule():
    envelope, requests = paged([], by_link)
    assert (envelope.data, envelope.warnings, len(requests)) == (ITEMS[:10], (), 1)


def test_links_lead_to_all_pages_and_the_envelope_says_so():
    envelope, requests = paged({"style": "link"}, by_link)
    assert envelope.data == ITEMS
    assert [each.target for each in requests] == ["/items", "/items?start=10", "/items?start=20"]
    assert [issue.message for issue in envelope.warnings] == ["25 items of 3 pages were merged"]


@pytest.mark.parametrize(
    ("limit", "number"), [({"max_pages": 2}, 20), ({"max_items": 11}, 20), ({"max_items": 1}, 10)]
)
def test_limits_end_the_pages_and_the_envelope_says_so(limit, number):
    envelope, _ = paged({"style": "link", **limit}, by_link)
    assert envelope.data == ITEMS[:number]
    assert [issue.code for issue in envelope.warnings] == ["merged_pages", "more_pages"]


def test_a_link_to_another_origin_is_not_followed():
    def elsewhere(request):
        return Sent([1], headers={"Link": "<http://127.0.0.1:1/items>; rel=next"})

    with pytest.raises(UpstreamError) as caught:
        paged({"style": "link"}, elsewhere)
    assert caught.value.details["reason"] == "pagination"


def test_a_link_to_the_same_page_ends():
    envelope, requests = paged(
        {"style": "link"}, lambda _: Sent([1], headers={"Link": "</items?a=1>; rel=next"})
    )
    assert len(requests) == 2
    assert envelope.warnings[1].code == "more_pages"


def by_cursor(request):
    start = int(request.query.partition("=")[2] or 0)
    following = start + 10 if start + 10 < len(ITEMS) else None
    return Sent({"data": {"items": ITEMS[start : start + 10]}, "next": following})


def test_a_cursor_of_the_answer_is_the_argument_of_the_next_call():
    rule = {"style": "cursor", "parameter": "after", "cursor": "/next", "items": "/data/items"}
    envelope, requests = paged(rule, by_cursor, a_parameter("query", "after"))
    assert envelope.data == {"data": {"items": ITEMS}, "next": None}
    assert [each.query for each in requests] == ["", "after=10", "after=20"]


def test_the_last_item_may_be_the_cursor():
    def answer(request):
        start = int(request.query.rpartition("=")[2] or -1) + 1
        found = [{"id": number} for number in ITEMS[start : start + 10]]
        return Sent({"data": found, "has_more": start + 10 < len(ITEMS)})

    rule = {
        "style": "cursor",
        "parameter": "starting_after",
        "cursor": "/data/-1/id",
        "more": "/has_more",
        "items": "/data",
    }
    envelope, requests = paged(rule, answer, a_parameter("query", "starting_after"))
    assert [each["id"] for each in envelope.data["data"]] == ITEMS
    assert envelope.data["has_more"] is False
    assert len(requests) == 3


@pytest.mark.parametrize(("style", "step"), [("page", 1), ("offset", 10)])
def test_numbers_count_pages_or_items(style, step):
    def answer(request):
        number = int(request.query.rpartition("=")[2] or (1 if style == "page" else 0))
        start = (number - 1) * 10 if style == "page" else number
        return Sent(ITEMS[start : start + 10])

    envelope, requests = paged(
        {"style": style, "parameter": "n"}, answer, a_parameter("query", "n")
    )
    assert envelope.data == ITEMS
    first = 1 if style == "page" else 0
    asked = [int(each.query.rpartition("=")[2]) for each in requests[1:]]
    assert asked[0] == first + step


def test_a_rule_is_only_for_the_tools_that_it_names():
    rules = [{"style": "link", "tools": ["list*"]}]
    envelope, requests = paged(rules, by_link)
    assert (len(envelope.data), len(requests)) == (10, 1)
    envelope, requests = paged([{"style": "link", "tools": ["te*"]}], by_link)
    assert (len(envelope.data), len(requests)) == (25, 3)


def test_a_page_without_items_is_an_error():
    with pytest.raises(UpstreamError):
        paged({"style": "link", "items": "/data"}, by_link)


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"style": "magic"},
        {"style": "page"},
        {"style": "cursor", "parameter": "x"},
        {"style": "link", "items": "data"},
        {"style": "link", "max_pages": 0},
        {"style": "link", "max_pages": "many"},
        {"style": "link", "max_items": True},
        {"style": "link", "tools": 7},
        {"style": "link", "colour": "red"},
    ],
)
def test_rules_that_cannot_be_used_are_refused(rule):
    with pytest.raises(InvalidConfig):
        read_pagination(rule)


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ("", None),
        ("<a>; rel=next", "a"),
        ('<a>; rel="prev", <b>; rel="last next"', "b"),
        ("<a,b>;rel=NEXT", "a,b"),
        ('<a>; title=", <c>; rel=next"; rel=prev', None),
        ("<a", None),
        ("," * 10_000, None),
        ("<a>; x" + " " * 50_000 + "!", None),
        ("<a>" + ";x" * 20_000 + '; rel="', None),
        ("<" * 10_000, None),
    ],
)
def test_the_next_link_is_found_in_its_header(header, target):
    assert next_link(header) == target


def test_limits_of_streams_are_limits_of_the_transport():
    assert Limits().stream_idle_seconds == 300
