"""The way to upstreams: every fault ends as promised, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import socket
import subprocess
import sys
import time
import tracemalloc
import zlib
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

import faults
from callpact.errors import (
    CallError,
    Failed,
    InvalidConfig,
    InvalidInput,
    Timeout,
    UpstreamError,
    UsageError,
)
from callpact.execution import LoopThread
from callpact.net import AddressRules, HttpTransport, Limits, Request, Response, retry_after
from callpact.net.address import Refused, kind_of, place_of
from callpact.net.decode import MAX_GZIP_MEMBERS, Body, TooLarge, Undecodable
from callpact.net.exchange import SessionPool
from callpact.net.redirect import next_request, redirected
from callpact.net.transport import Upstreams

HERE = Path(faults.__file__).parent
LONG = 10.0


def limits_of(**hurry):
    """Small sizes, and time enough for everything but what is said."""
    seconds = dict.fromkeys(("connect", "first_byte", "idle", "total"), LONG) | hurry
    return Limits(
        body_bytes=1_000_000,
        decoded_bytes=3_000_000,
        headers=50,
        header_bytes=8_000,
        **{f"{phase}_seconds": value for phase, value in seconds.items()},
    )


PATIENT = Limits(total_seconds=LONG)
QUERY = "key=sk-hidden-in-the-query"
HEADERS = {"X-Key": "sk-hidden-in-a-header", "Authorization": "Bearer sk-hidden-as-well"}


def descriptors():
    """How many files and sockets are open, where the system tells."""
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0


@asynccontextmanager
async def scene(limits=PATIENT, **options):
    """A fault server and a transport that may reach it; in the end nothing of it is left."""
    before = descriptors()
    async with asyncio.timeout(3 * LONG), faults.Faults() as server:
        allow = [server.here, *options.pop("allow", ())]
        transport = HttpTransport(limits, allow, **options)
        try:
            yield server, transport
        finally:
            assert [
                pool._turns._lanes for pool in transport._pools.values() if pool._turns._lanes
            ] == []
            await transport.aclose()
        server.release()
        await server.until_open(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert descriptors() <= before  # Fewer, if what an earlier test left behind was freed.


def get(server, path, method="GET", body=None, **headers):
    url = server.url(f"{path}{'&' if '?' in path else '?'}{QUERY}")
    return Request(method, url, HEADERS | headers, body, ("X-Api-Key",))


async def failure(transport, request, **options):
    with pytest.raises(CallError) as caught:
        await transport.send(request, **options)
    return caught.value


def shown(error):
    return f"{error!r} {error} {json.dumps(error.details)} {error.__cause__} {error.__context__}"


# --- every fault ----------------------------------------------------------------------------

ANSWERED = [
    ("/ok", b"ok"),
    ("/http10", b"to the end"),
    ("/no-length", b"to the end"),
    ("/informed", b"ok"),
    ("/closes-idle", b"ok"),
    ("/answers-twice", b"ok"),
    ("/nowhere", b"stay"),
    ("/redirect-with-drip", b"ok"),
    ("/status?code=204", b""),
    ("/status?code=304", b""),
    ("/large?size=1000000", b"x" * 1_000_000),
    ("/count?left=5", b"ok"),
    ("/encoded?as=empty-gzip", b""),
    *(
        (f"/encoded?as={name}", faults.TEXT)
        for name in (
            "gzip",
            "x-gzip",
            "deflate",
            "bare-deflate",
            "br",
            "identity",
            "members",
            "two",
        )
    ),
]

BROKEN = [
    ("/reset", {"reason": "reset"}),
    ("/close", {"reason": "reset"}),
    ("/reset-in-head", {"reason": "reset"}),
    ("/close-in-head", {"reason": "reset"}),
    ("/reset-in-body", {"reason": "reset", "statusCode": 200}),
    ("/too-long", {"reason": "reset", "statusCode": 200}),
    ("/cut-chunks", {"reason": "reset", "statusCode": 200}),
    ("/silent", {"reason": "timeout", "phase": "first_byte", "seconds": 0.3}),
    ("/stalls", {"reason": "timeout", "phase": "idle", "seconds": 0.3, "statusCode": 200}),
    ("/drip", {"reason": "timeout", "phase": "total", "seconds": 0.5}),
    ("/drip-head", {"reason": "timeout", "phase": "total", "seconds": 0.5}),
    ("/drip-chunks", {"reason": "timeout", "phase": "total", "seconds": 0.5}),
    ("/drip-informed", {"reason": "timeout", "phase": "total", "seconds": 0.5}),
    ("/not-http", {"reason": "protocol"}),
    ("/upgrade", {"reason": "protocol", "statusCode": 101}),
    ("/two-lengths", {"reason": "protocol"}),
    ("/bad-length", {"reason": "protocol"}),
    ("/bad-chunks", {"reason": "protocol"}),
    ("/204-with-body", {"reason": "protocol"}),
    ("/too-short", {"reason": "protocol"}),
    ("/long-header", {"reason": "too_large", "limit": "header_bytes", "value": 8_000}),
    ("/endless-header", {"reason": "too_large", "limit": "header_bytes", "value": 8_000}),
    ("/endless-headers", {"reason": "too_large", "limit": "headers", "value": 50}),
    (
        "/wide-head",
        {"reason": "too_large", "limit": "header_bytes", "value": 8_000, "statusCode": 200},
    ),
    *(
        (
            path,
            {"reason": "too_large", "limit": limit, "value": value, "statusCode": 200},
        )
        for path, limit, value in (
            ("/large?size=1000001", "body_bytes", 1_000_000),
            ("/announces", "body_bytes", 1_000_000),
            ("/large-chunked", "body_bytes", 1_000_000),
            ("/bomb?as=gzip", "decoded_bytes", 3_000_000),
            ("/bomb?as=br", "decoded_bytes", 3_000_000),
        )
    ),
    ("/cut-and-gone", {"reason": "encoding", "statusCode": 200}),
    *(
        (f"/encoded?as={name}", {"reason": "encoding", "statusCode": 200})
        for name in (
            "three",
            "unknown",
            "mislabelled-gzip",
            "mislabelled-br",
            "mislabelled-deflate",
            "cut-gzip",
            "cut-gzip-checksum",
            "cut-deflate",
            "cut-br",
            "cut-member",
            "bad-checksum",
            "after-gzip",
            "after-deflate",
            "after-br",
            "members-bomb",
        )
    ),
    ("/loop", {"reason": "redirect", "statusCode": 302}),
    ("/count?left=6", {"reason": "redirect", "statusCode": 302}),
    ("/redirect?to=ftp://example.com/", {"reason": "redirect", "statusCode": 302}),
    ("/redirect?to=file:///etc/passwd", {"reason": "redirect", "statusCode": 302}),
    ("/redirect?to=javascript:alert(1)", {"reason": "redirect", "statusCode": 302}),
    ("/redirect?to=http://", {"reason": "redirect", "statusCode": 302}),
    ("/redirect?to=http://[::1", {"reason": "redirect", "statusCode": 302}),
    ("/redirect?to=/ok|/cookie", {"reason": "redirect", "statusCode": 302}),
]


@pytest.mark.parametrize(("path", "body"), ANSWERED, ids=[path for path, _ in ANSWERED])
def test_an_odd_but_whole_answer_is_an_answer_and_the_next_request_is_untouched(path, body):
    async def story():
        async with scene(limits_of()) as (server, transport):
            assert (await transport.send(get(server, path))).body == body
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story())


@pytest.mark.parametrize(("path", "details"), BROKEN, ids=[path for path, _ in BROKEN])
def test_a_fault_ends_as_its_error_tells_nothing_and_leaves_the_next_request_alone(
    path, details, caplog
):
    caplog.set_level(logging.DEBUG)

    async def story():
        hurry = {details["phase"]: details["seconds"]} if "phase" in details else {}
        async with scene(limits_of(**hurry)) as (server, transport):
            error = await failure(transport, get(server, path))
            assert type(error) is UpstreamError
            assert error.code == "upstream_error"
            assert error.details == details
            assert "127.0.0.1" in error.message
            assert "sk-hidden" not in shown(error)
            assert error.__context__ is None
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story(), debug=True)
    assert "sk-hidden" not in caplog.text


def test_every_fault_of_the_server_is_tried():
    tried = {path.partition("?")[0] for path, _ in (*ANSWERED, *BROKEN)}
    elsewhere = {
        "/line",
        "/cookie",
        "/latin",
        "/dies-once",
        "/dies-when-reused",
        "/talks-on",
        "/never-reads",
        "/answers-early",
        "/held",
        "/script",
    }
    assert tried | elsewhere == set(faults.FAULTS)


def test_any_status_is_an_answer():
    async def story():
        async with scene() as (server, transport):
            for code in range(200, 600):
                answer = await transport.send(get(server, f"/status?code={code}"))
                assert answer.status == code

    asyncio.run(story())


PIECES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 302 Found\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n",
            b"HTTP/9.9 200 OK\r\n",
            b"Content-Length: 5\r\n",
            b"Content-Length: -1\r\n",
            b"Content-Length: 5, 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Content-Encoding: gzip\r\n",
            b"Content-Encoding: deflate\r\n",
            b"Content-Encoding: br\r\n",
            b"Location: /ok\r\n",
            b"Location: \xff\xfe//[\r\n",
            b"Location: http://[::1%25]:x/\r\n",
            b"Set-Cookie: \x01=\x02\r\n",
            b" folded\r\n",
            b": no name\r\n",
            b"\r\n",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"ffffffffffffffffffff\r\n",
            b"hello",
        ]
    ),
)


@given(st.lists(PIECES, max_size=8))
def test_whatever_bytes_come_there_is_an_answer_or_an_error_of_ours(pieces):
    async def story():
        async with scene() as (server, transport):
            request = get(server, f"/script?hex={b''.join(pieces).hex()}")
            try:
                answer = await transport.send(request)
            except (UpstreamError, Failed) as error:
                assert "sk-hidden" not in shown(error)  # noqa: PT017 - both outcomes are right
            else:
                json.dumps([answer.headers, answer.set_cookie], ensure_ascii=False).encode()
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story())


# --- answers --------------------------------------------------------------------------------


def test_headers_are_lower_case_and_joined_and_cookies_stand_apart():
    async def story():
        async with scene() as (server, transport):
            answer = await transport.send(get(server, "/cookie"))
            assert answer == Response(
                200,
                {"content-length": "2", "vary": "x, y"},
                b"ok",
                ("a=1; Path=/", "b=2"),
            )

    asyncio.run(story())


def test_a_header_in_latin_1_is_text():
    async def story():
        async with scene() as (server, transport):
            answer = await transport.send(get(server, "/latin"))
            assert answer.headers["x-name"] == "Müller"

    asyncio.run(story())


def test_cookies_of_one_call_never_ride_on_the_next(monkeypatch):
    async def story():
        async with scene() as (server, transport):
            await transport.send(get(server, "/cookie"))
            await transport.send(get(server, "/ok"))
            assert server.connections == 1
            assert server.requests[1].header("cookie") is None

    asyncio.run(story())


def test_what_is_sent_is_what_the_request_says():
    async def story():
        async with scene() as (server, transport):
            request = Request(
                "put",
                server.url("/ok?a=%2F+%20&b=ä b#part"),
                {"X-One": " 1\t", "content-type": "application/json"},
                b'{"a":1}',
            )
            await transport.send(request)
            asked = server.requests[0]
            assert asked.method == "PUT"
            assert asked.target == "/ok?a=%2F+%20&b=%C3%A4%20b"
            assert asked.body == b'{"a":1}'
            assert asked.header("x-one") == "1"
            assert asked.header("content-type") == "application/json"
            assert asked.header("accept-encoding") == "gzip, deflate, br"
            assert asked.header("user-agent").startswith("callpact/")
            assert asked.header("host") == server.here

    asyncio.run(story())


def test_what_frames_a_message_is_not_left_to_the_caller():
    async def story():
        async with scene() as (server, transport):
            headers = {
                "Host": "elsewhere",
                "Content-Length": "1",
                "Transfer-Encoding": "chunked",
                "Connection": "close",
                "Expect": "100-continue",
                "Upgrade": "x",
            }
            await transport.send(get(server, "/ok", "POST", b"whole", **headers))
            asked = server.requests[0]
            assert asked.body == b"whole"
            assert asked.header("host") == server.here
            for name in ("transfer-encoding", "connection", "expect", "upgrade", "content-type"):
                assert asked.header(name) is None

    asyncio.run(story())


def test_a_head_request_has_an_answer_without_body():
    async def story():
        async with scene() as (server, transport):
            answer = await transport.send(get(server, "/ok", "HEAD"))
            assert (answer.body, answer.headers["content-length"]) == (b"", "2")
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story())


def test_a_head_request_needs_no_encoding_that_is_known():
    async def story():
        async with scene() as (server, transport):
            answer = await transport.send(get(server, "/encoded?as=unknown", "HEAD"))
            assert (answer.status, answer.body) == (200, b"")

    asyncio.run(story())


def test_a_large_body_is_sent_whole():
    async def story():
        async with scene() as (server, transport):
            body = bytes(range(256)) * 10_000
            await transport.send(get(server, "/ok", "POST", body))
            assert server.requests[0].body == body

    asyncio.run(story())


def test_neither_proxies_nor_passwords_of_the_environment_are_used(monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n", "utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    async def story():
        async with faults.Faults() as proxy, scene() as (server, transport):
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://{proxy.here}")
            await transport.send(Request("GET", server.url("/ok")))
            assert server.requests[0].header("authorization") is None
            assert proxy.requests == []

    asyncio.run(story())


# --- connections ----------------------------------------------------------------------------


def test_a_connection_is_kept_for_the_next_request():
    async def story():
        async with scene() as (server, transport):
            for _ in range(5):
                assert (await transport.send(get(server, "/line"))).body == b"1"

    asyncio.run(story())


def test_bytes_that_nobody_asked_for_end_the_connection_and_are_no_answer():
    async def story():
        async with scene() as (server, transport):
            assert (await transport.send(get(server, "/talks-on"))).body == b"ok"
            await server.until_open(0)
            assert (await transport.send(get(server, "/line"))).body == b"2"

    asyncio.run(story())


def test_an_upstream_that_does_not_read_the_body_is_left_in_time_and_nothing_is_kept_of_it():
    async def story():
        async with scene(limits_of(total=0.5)) as (server, transport):
            before = descriptors()
            error = await failure(transport, get(server, "/never-reads", "POST", bytes(20_000_000)))
            assert error.details == {"reason": "timeout", "phase": "total", "seconds": 0.5}
            await asyncio.sleep(0)  # The loop closes a socket one turn after its end.
            # The server's end of it is open still; ours is not.
            assert descriptors() <= before + 1

    asyncio.run(story())


@pytest.mark.parametrize("header", ["X: 1", "Connection: close"])
def test_an_answer_to_a_body_that_was_not_read_is_an_answer_and_the_connection_ends(header):
    async def story():
        async with scene() as (server, transport):
            before = descriptors()
            path = f"/answers-early?with={header}"
            answer = await transport.send(get(server, path, "POST", bytes(20_000_000)))
            assert (answer.status, answer.body) == (413, b"no")
            await asyncio.sleep(0)
            assert descriptors() <= before + 1

    asyncio.run(story())


def test_closing_does_not_wait_for_an_upstream_that_does_not_read():
    async def story():
        async with scene() as (server, transport):
            request = get(server, "/never-reads", "POST", bytes(20_000_000))
            asking = asyncio.create_task(transport.send(request))
            await server.until_asked(1)
            async with asyncio.timeout(LONG / 2):
                await transport.aclose()
            with pytest.raises(UpstreamError) as caught:
                await asking
            assert caught.value.details == {"reason": "reset"}

    asyncio.run(story())


def test_connections_that_have_ended_are_not_counted():
    async def story():
        async with scene(Limits(connections=1, total_seconds=LONG)) as (server, transport):
            for _ in range(3):
                await transport.send(get(server, "/closes-idle"))
                await server.until_open(0)
            for _ in range(2):
                assert (await transport.send(get(server, "/line"))).body == b"4"

    asyncio.run(story())


def test_an_upstream_whose_queue_is_full_is_left_in_time():
    async def story():
        async with (
            faults.Deaf() as deaf,
            scene(limits_of(connect=0.3), allow=[f"127.0.0.1:{deaf.port}"]) as (
                _,
                transport,
            ),
        ):
            error = await failure(transport, Request("GET", f"http://127.0.0.1:{deaf.port}/"))
            assert error.details == {"reason": "timeout", "phase": "connect", "seconds": 0.3}

    asyncio.run(story())


def test_a_port_where_nobody_listens_is_told():
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with scene(allow=[f"127.0.0.1:{port}"]) as (_, transport):
            error = await failure(transport, Request("GET", f"http://127.0.0.1:{port}/"))
            assert error.details == {"reason": "connect", "errno": "ECONNREFUSED"}

    asyncio.run(story())


def test_a_name_that_nobody_knows_is_told():
    async def nobody(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async def story():
        async with scene(lookup=nobody) as (_, transport):
            error = await failure(transport, Request("GET", "http://nobody.example/"))
            assert error.details == {"reason": "connect"}
            assert "'nobody.example'" in error.message

    asyncio.run(story())


def test_no_more_requests_are_under_way_at_one_host_than_the_limit():
    async def story():
        limits = Limits(connections_per_host=2, waiting=1, total_seconds=LONG)
        async with (
            faults.Faults() as other,
            scene(limits, allow=[other.here]) as (
                server,
                transport,
            ),
        ):
            first = [asyncio.create_task(transport.send(get(server, "/held"))) for _ in range(2)]
            await server.until_asked(2)
            queued = asyncio.create_task(transport.send(get(server, "/ok")))
            await asyncio.sleep(0)
            error = await failure(transport, get(server, "/ok"))
            assert error.details == {"reason": "queue", "limit": "waiting", "value": 1}
            # Another host does not wait for this one.
            assert (await transport.send(get(other, "/ok"))).body == b"ok"
            assert len(server.requests) == 2
            server.release()
            assert [r.body for r in await asyncio.gather(*first, queued)] == [b"ok"] * 3
            assert server.connections == 2
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story())


def test_no_more_requests_are_under_way_in_all_than_the_limit():
    async def story():
        limits = Limits(connections=2, waiting=0, total_seconds=LONG)
        async with (
            faults.Faults() as other,
            scene(limits, allow=[other.here]) as (
                server,
                transport,
            ),
        ):
            first = [
                asyncio.create_task(transport.send(get(server, "/held"))),
                asyncio.create_task(transport.send(get(other, "/held"))),
            ]
            await server.until_asked(1)
            await other.until_asked(1)
            error = await failure(transport, get(other, "/ok"))
            assert error.details["reason"] == "queue"
            server.release()
            other.release()
            await asyncio.gather(*first)
            assert (await transport.send(get(other, "/ok"))).body == b"ok"

    asyncio.run(story())


def test_a_request_that_stops_waiting_leaves_its_place_in_the_queue():
    async def story():
        limits = Limits(connections_per_host=1, waiting=1, total_seconds=LONG)
        async with scene(limits) as (server, transport):
            first = asyncio.create_task(transport.send(get(server, "/held")))
            await server.until_asked(1)
            for _ in range(3):
                queued = asyncio.create_task(transport.send(get(server, "/ok")))
                await asyncio.sleep(0)
                queued.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await queued
            last = asyncio.create_task(transport.send(get(server, "/ok")))
            await asyncio.sleep(0)
            server.release()
            assert [(await task).body for task in (first, last)] == [b"ok", b"ok"]

    asyncio.run(story())


def test_who_stops_waiting_for_all_gives_the_turn_at_the_host_back():
    async def story():
        limits = Limits(connections=1, connections_per_host=1, total_seconds=LONG)
        async with (
            faults.Faults() as other,
            scene(limits, allow=[other.here]) as (
                server,
                transport,
            ),
        ):
            first = asyncio.create_task(transport.send(get(server, "/held")))
            await server.until_asked(1)
            queued = [asyncio.create_task(transport.send(get(other, "/ok"))) for _ in range(2)]
            await asyncio.sleep(0)
            queued[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued[0]
            server.release()
            await first
            assert (await queued[1]).body == b"ok"

    asyncio.run(story())


def test_idle_connections_are_kept_up_to_the_limit():
    async def story():
        limits = Limits(connections=2, total_seconds=LONG)
        async with (
            faults.Faults() as second,
            faults.Faults() as third,
            scene(limits, allow=[second.here, third.here]) as (first, transport),
        ):
            for server in (first, second, third):
                await transport.send(get(server, "/ok"))
            await third.until_open(0)
            assert (first.open, second.open) == (1, 1)

    asyncio.run(story())


def test_a_cancelled_request_reaches_the_upstream_as_an_end():
    async def story():
        async with scene() as (server, transport):
            asking = asyncio.create_task(transport.send(get(server, "/silent")))
            await server.until_asked(1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await server.until_open(0)
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story())


def test_closing_ends_what_is_under_way_and_a_closed_transport_says_so():
    async def story():
        async with scene() as (server, transport):
            asking = asyncio.create_task(transport.send(get(server, "/silent")))
            await server.until_asked(1)
            await transport.aclose()
            with pytest.raises(UpstreamError) as caught:
                await asking
            assert caught.value.details == {"reason": "reset"}
            await transport.aclose()
            with pytest.raises(UsageError):
                await transport.send(get(server, "/ok"))

    asyncio.run(story())


def test_closing_ends_who_waits_for_a_turn_and_who_waits_for_a_name():
    is_looked_up = asyncio.Event()

    async def slow(host, port):
        is_looked_up.set()
        await asyncio.Event().wait()

    async def story():
        limits = Limits(connections_per_host=1, total_seconds=LONG)
        async with scene(limits, lookup=slow) as (server, transport):
            asking = [asyncio.create_task(transport.send(get(server, "/silent")))]
            await server.until_asked(1)
            asking.append(asyncio.create_task(transport.send(get(server, "/ok"))))
            for host in ("one", "one", "two"):
                url = f"http://{host}.example:{server.port}/"
                asking.append(asyncio.create_task(transport.send(Request("POST", url))))
            await is_looked_up.wait()
            await transport.aclose()
            errors = await asyncio.gather(*asking, return_exceptions=True)
            assert [type(error) for error in errors] == [UpstreamError] * 5
            assert [error.details for error in errors] == [{"reason": "reset"}] * 5

    asyncio.run(story())


def test_each_event_loop_has_its_own_connections_and_closing_ends_them_all():
    async def story():
        async with scene() as (server, transport):
            thread = LoopThread()
            for _ in range(2):
                sending = asyncio.to_thread(thread.run, transport.send(get(server, "/line")))
                assert (await sending).body == b"1"
                assert (await transport.send(get(server, "/line"))).body == b"2"
            await transport.aclose()
            await server.until_open(0)
            await asyncio.to_thread(thread.stop)
            await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(story())


# --- one retry ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "get"])
def test_a_connection_that_dies_before_any_byte_is_tried_once_more(method):
    async def story():
        async with scene() as (server, transport):
            answer = await transport.send(get(server, "/dies-once", method))
            assert answer.status == 200
            assert len(server.requests) == 2

    asyncio.run(story())


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS"])
def test_what_may_not_be_repeated_is_sent_once(method):
    async def story():
        async with scene() as (server, transport):
            error = await failure(transport, get(server, "/dies-once", method))
            assert error.details == {"reason": "reset"}
            assert len(server.requests) == 1

    asyncio.run(story())


def test_there_is_one_retry_not_two():
    async def story():
        async with scene() as (server, transport):
            await failure(transport, get(server, "/close"))
            assert len(server.requests) == 2

    asyncio.run(story())


@pytest.mark.parametrize("path", ["/close-in-head", "/reset-in-head", "/reset-in-body", "/silent"])
def test_there_is_no_retry_after_a_byte_or_in_silence(path):
    async def story():
        async with scene(limits_of(first_byte=0.5)) as (server, transport):
            await failure(transport, get(server, path))
            assert len(server.requests) == 1

    asyncio.run(story())


def test_a_kept_connection_that_died_is_replaced():
    async def story():
        async with scene() as (server, transport):
            for expected in (b"1", b"2", b"3"):
                answer = await transport.send(get(server, "/dies-when-reused"))
                assert answer.body == expected

    asyncio.run(story())


def test_a_name_that_is_known_at_the_second_try_is_reached():
    tries = []

    async def forgetful(host, port):
        tries.append(host)
        if len(tries) == 1:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return ["127.0.0.1"]

    async def story():
        async with scene(lookup=forgetful, allow=["127.0.0.0/8"]) as (server, transport):
            url = f"http://api.example:{server.port}/ok"
            assert (await transport.send(Request("GET", url))).body == b"ok"
            assert tries == ["api.example", "api.example"]

    asyncio.run(story())


# --- deadlines ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/silent", "/drip", "/drip-head", "/stalls", "/held"])
def test_a_deadline_ends_everything_and_is_a_timeout(path):
    async def story():
        async with scene() as (server, transport):
            deadline = time.time() * 1_000 + 150
            error = await failure(transport, get(server, path), deadline=deadline)
            assert type(error) is Timeout
            assert error.details == {"deadline": deadline}
            assert "sk-hidden" not in shown(error)
            assert (await transport.send(get(server, "/ok"))).body == b"ok"

    asyncio.run(story())


def test_after_the_deadline_nothing_is_sent():
    async def story():
        async with scene() as (server, transport):
            error = await failure(transport, get(server, "/ok"), deadline=time.time() * 1_000 - 1)
            assert type(error) is Timeout
            assert server.requests == []

    asyncio.run(story())


def test_waiting_for_a_turn_ends_with_the_deadline():
    async def story():
        async with scene(Limits(connections=1)) as (server, transport):
            first = asyncio.create_task(transport.send(get(server, "/held")))
            await server.until_asked(1)
            deadline = time.time() * 1_000 + 100
            error = await failure(transport, get(server, "/ok"), deadline=deadline)
            assert type(error) is Timeout
            assert len(server.requests) == 1
            server.release()
            await first

    asyncio.run(story())


def test_a_deadline_beyond_the_limit_leaves_the_limit_in_force():
    async def story():
        async with scene(limits_of(total=0.3)) as (server, transport):
            deadline = (time.time() + LONG) * 1_000
            error = await failure(transport, get(server, "/drip"), deadline=deadline)
            assert error.details == {"reason": "timeout", "phase": "total", "seconds": 0.3}

    asyncio.run(story())


def test_an_answer_in_time_is_not_touched_by_the_deadline():
    async def story():
        async with scene() as (server, transport):
            deadline = time.time() * 1_000 + 5_000
            assert (await transport.send(get(server, "/ok"), deadline=deadline)).body == b"ok"

    asyncio.run(story())


# --- redirects ------------------------------------------------------------------------------

SENT = {
    "Authorization": "Bearer x",
    "Cookie": "a=1",
    "Proxy-Authorization": "Basic y",
    "X-Authorization": "w",
    "X-Api-Key": "z",
    "X-Plain": "p",
    "Content-Type": "text/plain",
}


def request_of(method, body=b"body"):
    return Request(method, "https://one.example/a", SENT, body, ("x-api-key",))


@pytest.mark.parametrize(
    ("code", "method", "becomes"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "DELETE", "GET"),
        (303, "HEAD", "HEAD"),
        (303, "GET", "GET"),
        (301, "PUT", "PUT"),
        (302, "DELETE", "DELETE"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (307, "PUT", "PUT"),
    ],
)
def test_method_and_body_follow_a_redirect_as_in_fetch(code, method, becomes):
    place = place_of("https://one.example/a")
    found = next_request(request_of(method), code, place, place_of("https://one.example/b"))
    assert found.method == becomes
    is_kept = method == becomes
    assert found.body == (b"body" if is_kept else None)
    assert ("Content-Type" in found.headers) is is_kept


@pytest.mark.parametrize(
    "target",
    [
        "https://two.example/",
        "https://one.example:8443/",
        "http://one.example/",
        "https://a.one.example/",
    ],
)
def test_credentials_do_not_leave_their_origin(target):
    place = place_of("https://one.example/a")
    found = next_request(request_of("GET"), 302, place, place_of(target))
    assert found.headers == {"X-Plain": "p", "Content-Type": "text/plain"}


def test_credentials_stay_within_their_origin():
    place = place_of("https://one.example/a")
    same = place_of("https://ONE.example:443/b")
    found = next_request(request_of("GET"), 302, place, same)
    assert found.headers == SENT
    # What is secret is known at the hops that follow, too.
    last = next_request(found, 302, same, place_of("https://two.example/"))
    assert last.headers == {"X-Plain": "p", "Content-Type": "text/plain"}


@pytest.mark.parametrize(
    ("code", "target", "follows"),
    [
        (307, "https://two.example/", False),
        (308, "https://two.example/", False),
        (307, "https://one.example/b", True),
        (303, "https://two.example/", True),  # A GET: the body stays behind.
    ],
)
def test_a_body_with_credentials_does_not_leave_its_origin(code, target, follows):
    place = place_of("https://one.example/a")
    request = Request("POST", "https://one.example/a", {}, b"password", (), has_secret_body=True)
    if follows:
        found = next_request(request, code, place, place_of(target))
        assert found.has_secret_body is (found.body is not None)
        return
    with pytest.raises(UpstreamError) as caught:
        next_request(request, code, place, place_of(target))
    assert caught.value.details["reason"] == "redirect"
    assert "another origin" in caught.value.message


def test_credentials_that_were_dropped_do_not_come_back():
    async def story():
        async with faults.Faults() as other, scene(allow=[other.here]) as (server, transport):
            back = other.url(f"/redirect?to={server.url('/ok')}").replace("&", "%26")
            request = get(server, f"/redirect?to={back}", **SENT)
            assert (await transport.send(request)).body == b"ok"
            secret = ("authorization", "cookie", "proxy-authorization", "x-authorization")
            for name in (*secret, "x-api-key"):
                assert server.requests[0].header(name) is not None
                assert other.requests[0].header(name) is None
                assert server.requests[1].header(name) is None
            assert server.requests[1].header("x-plain") == "p"

    asyncio.run(story())


def test_a_redirect_of_a_post_sends_a_get_over_the_same_connection():
    async def story():
        async with scene() as (server, transport):
            request = get(server, "/redirect?code=303&to=/ok", "POST", b"body")
            assert (await transport.send(request)).body == b"ok"
            assert [(a.method, a.body) for a in server.requests] == [
                ("POST", b"body"),
                ("GET", b""),
            ]
            assert server.connections == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/x", "https://one.example/x"),
        ("x?y=1", "https://one.example/a/x?y=1"),
        ("?y", "https://one.example/a/b?y"),
        ("//two.example/x", "https://two.example/x"),
        ("https://two.example", "https://two.example/"),
        (" /x ", "https://one.example/x"),
        ("/ü ü", "https://one.example/%C3%BC%20%C3%BC"),
        ("../../../x", "https://one.example/x"),
        ("#part", "https://one.example/a/b?q"),
        ("/\\two.example", "https://one.example/%5Ctwo.example"),
    ],
)
def test_a_location_is_read_against_the_url_that_sent_it(location, leads_to):
    place = place_of("https://one.example/a/b?q")
    assert redirected(place, 302, [location]).url == leads_to


def test_a_redirect_never_leads_from_https_down_to_http():
    with pytest.raises(UpstreamError) as caught:
        redirected(place_of("https://one.example/"), 302, ["http://one.example/"])
    assert caught.value.details == {"reason": "redirect", "statusCode": 302}
    assert redirected(place_of("http://a.example/"), 302, ["https://a.example/"]).port == 443


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://2130706433/",
        "http://user:password@127.0.0.1/",
        "//10.0.0.1/",
    ],
)
def test_each_hop_is_asked_about(target):
    async def story():
        async with scene() as (server, transport):
            error = await failure(transport, get(server, f"/redirect?to={target}"))
            assert (type(error), error.code) == (Failed, "address_not_allowed")
            assert "sk-hidden" not in shown(error)
            assert len(server.requests) == 1

    asyncio.run(story())


# --- addresses ------------------------------------------------------------------------------

REFUSED = [
    "http://127.0.0.1/",
    "http://127.255.255.254/",
    "http://0.0.0.0/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://169.254.169.254/",
    "http://192.0.0.1/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001:db8::1]/",
    "http://[2002:7f00:1::]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    "http://[4000::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://api.localhost/",
    "http://localhost.localdomain/",
    "http://ip6-localhost/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0x/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://127.0.0.01/",
    "http://1.2.3.4.5/",
    "http://999.1.1.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://loc\u00adalhost/",
    "http://a\u200db.example/",
    "http://127.0.0.1%2f.example/",
    "http://%6c%6f%63%61%6c%68%6f%73%74/",
    "http://user@api.example/",
    "http://user:password@api.example/",
    "http://api.example@127.0.0.1/",
    "http://api.example:80@127.0.0.1/",
    "http://api.example\\@127.0.0.1/",
    "http://api.example\\.127.0.0.1/",
    "http://api.example:0/",
    "http://api.example:65536/",
    "http://api.example:8o/",
    "http://api.example:80:80/",
    "http://api.example../",
    "http://.example/",
    "http://a..example/",
    "http://-a.example/",
    "http://api example/",
    "http://api.\nexample/",
    "http://[127.0.0.1]/",
    "http://[::1/",
    "http://::1/",
    "http:///path",
    "http:path",
    "http:/path",
    "//api.example/",
    "/path",
    "",
    "ftp://api.example/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "http+unix://socket/",
    " http://127.0.0.1/",
]


async def nobody_asks(host, port):
    raise AssertionError(f"{host} was looked up")


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_is_refused_however_it_is_written(url):
    async def story():
        transport = HttpTransport(lookup=nobody_asks)
        error = await failure(transport, Request("GET", url))
        await transport.aclose()
        assert (type(error), error.code) == (Failed, "address_not_allowed")
        assert "password" not in shown(error)

    asyncio.run(story())


def test_the_error_names_the_host_and_how_to_allow_it_and_never_the_url():
    async def story():
        transport = HttpTransport()
        error = await failure(transport, Request("GET", "http://10.1.2.3:81/path?key=value"))
        await transport.aclose()
        assert error.message == (
            "'10.1.2.3' may not be reached: it is a private address; if this is meant, allow it by "
            'name: hosts = ["10.1.2.3:81"]'
        )
        assert error.details == {"host": "10.1.2.3"}

    asyncio.run(story())


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00::1"],
)
def test_public_addresses_are_none_of_the_refused(address):
    assert kind_of(ip_address(address)) is None
    AddressRules().check_place(address, 443)


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (["localhost"], "http://localhost:1234/"),
        (["localhost:1234"], "http://localhost:1234/"),
        (["LocalHost:1234"], "http://localhost.:1234/"),
        (["127.0.0.1"], "http://127.0.0.1:5/"),
        (["127.0.0.1:5"], "http://127.0.0.1:5/"),
        (["10.0.0.0/8"], "http://10.20.30.40/"),
        (["::1"], "http://[::1]:9/"),
        (["[::1]:9"], "http://[0::1]:9/"),
        (["fd00::/8"], "http://[fd12::1]/"),
        (["bücher.localhost"], "http://xn--bcher-kva.localhost/"),
    ],
)
def test_what_is_named_is_allowed(hosts, url):
    place = place_of(url)
    AddressRules(hosts).check_place(place.host, place.port)


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (["localhost:1234"], "http://localhost:1235/"),
        (["localhost"], "http://other.localhost/"),
        (["localhost"], "http://127.0.0.1/"),
        (["127.0.0.1:5"], "http://127.0.0.1:6/"),
        (["127.0.0.1"], "http://127.0.0.2/"),
        (["10.0.0.0/8"], "http://11.0.0.1.nip.localhost/"),
        (["10.0.0.0/8"], "http://192.168.0.1/"),
        (["10.0.0.0/8"], "http://[::ffff:10.0.0.1]/"),
        (["0.0.0.0/0"], "http://[::1]/"),
    ],
)
def test_what_is_not_named_stays_refused(hosts, url):
    place = place_of(url)
    with pytest.raises(Refused):
        AddressRules(hosts).check_place(place.host, place.port)


@pytest.mark.parametrize(
    "entry",
    [
        "http://localhost",
        "*.internal",
        "10.0.0.1/8",
        "a b",
        "",
        "localhost:0",
        "localhost:x",
        "u@h",
        "127.1",
    ],
)
def test_an_entry_that_is_no_host_and_no_range_is_told(entry):
    with pytest.raises(InvalidConfig) as caught:
        AddressRules([entry])
    assert "10.0.0.0/8" in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.5",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:5",
    ],
)
def test_a_public_name_that_leads_to_a_private_address_is_refused(address):
    async def lookup(host, port):
        return [address]

    async def story():
        async with faults.Faults() as server:
            transport = HttpTransport(PATIENT, lookup=lookup)
            url = f"http://api.example:{server.port}/ok?{QUERY}"
            error = await failure(transport, Request("GET", url))
            await transport.aclose()
            assert (type(error), error.code) == (Failed, "address_not_allowed")
            assert error.details == {"host": "api.example"}
            # What a name resolves to inside a network is not a stranger's business.
            assert address not in shown(error)
            assert server.connections == 0

    asyncio.run(story())


def test_the_address_at_the_other_end_is_asked_about_before_anything_is_written():
    async def story():
        async with faults.Faults() as server:
            pool = SessionPool(PATIENT, AddressRules(), None)
            # As if nobody had asked about the literal address, which no resolver sees.
            with pytest.raises(Failed) as caught:
                await pool.exchange(get(server, "/ok"), place_of(server.url("/ok")))
            assert caught.value.code == "address_not_allowed"
            await pool.close()
            await server.until_open(0)
            assert server.requests == []

    asyncio.run(story())


def test_of_several_addresses_only_the_allowed_ones_are_connected_to():
    async def lookup(host, port):
        return ["::ffff:127.0.0.1", "127.0.0.2", "127.0.0.1"]

    async def story():
        async with scene(lookup=lookup) as (server, transport):
            url = f"http://api.example:{server.port}/ok"
            assert (await transport.send(Request("GET", url))).body == b"ok"

    asyncio.run(story())


def test_the_address_that_was_asked_about_is_the_one_connected_to():
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]
    asked = []

    async def rebinding(host, port):
        asked.append(host)
        return answers[len(asked) - 1]

    async def story():
        async with scene(lookup=rebinding) as (server, transport):
            url = f"http://api.example:{server.port}/closes-idle"
            # 127.0.0.1 is allowed, 127.0.0.2 is not: one lookup decides, and is connected to.
            assert (await transport.send(Request("GET", url))).body == b"ok"
            assert asked == ["api.example"]
            await server.until_open(0)
            # A new connection within the life of that lookup goes to the same address.
            assert (await transport.send(Request("GET", url))).body == b"ok"
            assert asked == ["api.example"]

    asyncio.run(story())


def test_a_name_of_this_machine_is_looked_up_and_reached_only_if_it_is_allowed():
    async def story():
        async with scene() as (server, transport):
            url = f"http://localhost:{server.port}/ok"
            # The server's address is allowed, so the name that leads to it is, too.
            assert (await transport.send(Request("GET", url))).body == b"ok"
            strict = HttpTransport(PATIENT)
            error = await failure(strict, Request("GET", url))
            await strict.aclose()
            assert error.code == "address_not_allowed"
            named = HttpTransport(PATIENT, [f"localhost:{server.port}"])
            assert (await named.send(Request("GET", url))).body == b"ok"
            await named.aclose()

    asyncio.run(story())


@given(st.text(max_size=40), st.sampled_from(["http://", "https://", "", "http:", "HTTP://a"]))
def test_any_text_is_a_place_in_one_spelling_or_is_refused(text, scheme):
    try:
        place = place_of(scheme + text)
    except Refused:
        return
    assert place_of(place.url) == place
    assert place.url.isascii()
    assert not set(place.url) & set(' \\"<>\r\n\t\0')
    # The reader of URLs that connects sees the same host and port.
    seen = URL(place.url, encoded=True)
    assert (seen.raw_host, seen.port) == (place.host, place.port)


# --- headers that do not stay one line ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "one\r\nX-B: two"),
        ("X-A", "one\ntwo"),
        ("X-A", "one\rtwo"),
        ("X-A", "nul\0"),
        ("X-A", "bell\7"),
        ("X-A", "del\x7f"),
        ("X-A", "snow \u2603"),
        ("X-A", "half \ud800"),
        ("X-A", 7),
        ("X A", "v"),
        ("X-A\r\nX-B", "v"),
        ("X-A:", "v"),
        ("X-Ä", "v"),
        ("", "v"),
    ],
)
def test_a_header_that_does_not_stay_one_line_is_refused_before_anything_is_sent(name, value):
    async def story():
        async with scene() as (server, transport):
            with pytest.raises(InvalidInput) as caught:
                await transport.send(
                    Request("GET", server.url("/ok"), {"X-Good": "1", name: value})
                )
            (issue,) = caught.value.issues
            assert issue.path.startswith("/headers/")
            assert "X-Good" not in issue.message
            assert str(value) not in issue.message.replace("value", "") or value == "v"
            assert "\r" not in issue.message
            assert "\n" not in issue.message
            assert server.connections == 0

    asyncio.run(story())


def test_every_bad_header_is_named():
    async def story():
        transport = HttpTransport()
        with pytest.raises(InvalidInput) as caught:
            await transport.send(
                Request("G T", "https://api.example/", {"X-A": "a\n", "X/B": "b", "X-C": "c\0"})
            )
        await transport.aclose()
        assert [issue.path for issue in caught.value.issues] == [
            "/method",
            "/headers/X-A",
            "/headers/X~1B",
            "/headers/X-C",
        ]

    asyncio.run(story())


@pytest.mark.parametrize("method", ["CONNECT", "trace", "GET /\r\n", ""])
def test_a_method_that_cannot_be_sent_is_refused(method):
    async def story():
        transport = HttpTransport()
        with pytest.raises(InvalidInput) as caught:
            await transport.send(Request(method, "https://api.example/"))
        await transport.aclose()
        assert caught.value.path == "/method"

    asyncio.run(story())


def test_a_body_that_is_not_bytes_is_wrong_use():
    async def story():
        transport = HttpTransport()
        with pytest.raises(UsageError):
            await transport.send(Request("POST", "https://api.example/", {}, "text"))
        await transport.aclose()

    asyncio.run(story())


def test_a_request_and_an_answer_do_not_show_what_they_hold():
    request = Request("GET", f"https://api.example/path?{QUERY}", HEADERS, b"sk-hidden-body")
    answer = Response(200, {"x": "sk-hidden"}, b"sk-hidden", ("sk-hidden",))
    assert "sk-hidden" not in f"{request} {request!r} {answer} {answer!r}"
    assert "api.example" in repr(request)


# --- upstreams by another address -----------------------------------------------------------


def test_what_is_meant_for_one_root_goes_to_another_and_the_request_is_unchanged():
    async def story():
        async with faults.Faults() as server:
            transport = HttpTransport(
                PATIENT, upstreams={"https://api.example.com": f"http://{server.here}"}
            )
            request = Request("GET", f"https://API.example.com:443/ok?{QUERY}")
            assert (await transport.send(request)).body == b"ok"
            assert request.url == f"https://API.example.com:443/ok?{QUERY}"
            assert server.requests[0].target == f"/ok?{QUERY}"
            assert server.requests[0].header("host") == server.here
            await transport.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "goes_to"),
    [
        ("https://api.example/v1", "http://localhost:1/mock"),
        ("https://api.example/v1?q", "http://localhost:1/mock?q"),
        ("https://api.example/v1/x", "http://localhost:1/mock/x"),
        ("https://api.example/v10/x", "http://localhost:2/v10/x"),
        ("https://api.example", "http://localhost:2/"),
        ("https://api.example?q", "http://localhost:2/?q"),
        ("https://api.example/v1/deep/x", "https://[::1]:3/x"),
        ("https://api.example:8443/v1", "https://api.example:8443/v1"),
        ("http://api.example/v1", "http://api.example/v1"),
        ("https://api.example.org/v1", "https://api.example.org/v1"),
    ],
)
def test_the_longest_root_that_fits_at_a_whole_segment_decides(url, goes_to):
    upstreams = Upstreams(
        {
            "https://api.example": "http://localhost:2/",
            "https://api.example/v1/": "http://localhost:1/mock/",
            "https://api.example/v1/deep": "https://[::1]:3",
        }
    )
    assert upstreams.instead_of(place_of(url)).url == goes_to
    assert set(upstreams.hosts) == {"localhost:1", "localhost:2", "[::1]:3"}


def test_a_redirect_to_a_mapped_root_stays_with_the_other_address():
    async def story():
        async with faults.Faults() as server:
            transport = HttpTransport(
                PATIENT, upstreams={"https://api.example": f"http://{server.here}"}
            )
            for location in ("/ok", "https://api.example/ok", server.url("/ok")):
                url = f"https://api.example/redirect?to={location}"
                assert (await transport.send(Request("GET", url))).body == b"ok"
            await transport.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(
    "root", ["api.example", "https://u:password@api.example", "https://a/?q", ""]
)
def test_a_root_that_cannot_be_mapped_is_told(root):
    with pytest.raises(InvalidConfig) as caught:
        HttpTransport(upstreams={root: "http://localhost:1"})
    assert "password" not in str(caught.value)


# --- Retry-After ----------------------------------------------------------------------------

NOON = 1_767_268_800.0  # 2026-01-01 12:00:00 UTC


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 2026 12:01:30 GMT", 90.0),
        ("Thursday, 01-Jan-26 12:01:30 GMT", 90.0),
        ("Thu Jan  1 12:01:30 2026", 90.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("1e3", None),
        ("9" * 50, None),
        ("٣", None),
        ("Thu, 99 Jan 2026 12:01:30 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms(value, seconds):
    assert retry_after({"retry-after": value}, NOON) == seconds


def test_a_date_without_a_zone_is_gmt_wherever_the_machine_stands(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after({"retry-after": "Thu Jan  1 12:01:30 2026"}, NOON) == 90.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_retry_after_there_is_no_wait():
    assert retry_after({}, NOON) is None


@pytest.mark.parametrize("code", [429, 503])
def test_a_wish_to_be_asked_later_is_an_answer_like_any_other(code):
    async def story():
        async with scene() as (server, transport):
            path = f"/status?code={code}&with=Retry-After: 3600"
            answer = await transport.send(get(server, path))
            assert (answer.status, retry_after(answer.headers, NOON)) == (code, 3_600.0)
            assert len(server.requests) == 1

    asyncio.run(story())


# --- decoding -------------------------------------------------------------------------------

SQUEEZED = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
}


def fed(names, data, sizes=(), limits=PATIENT):
    body = Body(names, limits)
    for size in sizes:
        body.feed(data[:size])
        data = data[size:]
    body.feed(data)
    return body.end(may_be_empty=False)


@given(
    st.binary(max_size=300),
    st.lists(st.sampled_from(sorted(SQUEEZED)), max_size=2),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_decoding_undoes_encoding_wherever_it_is_cut_into_pieces(data, names, sizes):
    squeezed = data
    for name in names:
        squeezed = SQUEEZED[name](squeezed)
    assert fed([", ".join(names)], squeezed, sizes) == data
    assert fed(names, squeezed, sizes) == data


@given(st.binary(max_size=100), st.sampled_from(sorted(SQUEEZED)), st.data())
def test_an_encoding_that_is_cut_short_is_never_a_success(data, name, draw):
    squeezed = SQUEEZED[name](data)
    cut = draw.draw(st.integers(0, len(squeezed) - 1))
    with pytest.raises(Undecodable):
        fed([name], squeezed[:cut])


@pytest.mark.parametrize("name", sorted(SQUEEZED))
def test_an_encoding_that_goes_on_after_its_end_is_never_a_success(name):
    squeezed = SQUEEZED[name](b"data")
    for sizes in ((), (len(squeezed),), (len(squeezed) - 1, 1)):
        with pytest.raises(Undecodable):
            fed([name], squeezed + b"more", sizes)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 65_792, 66_050, 200_000])
def test_a_body_is_whole_wherever_the_decoder_pauses(size):
    for squeeze in (*SQUEEZED.values(), faults.raw_deflate):
        name = next((n for n, s in SQUEEZED.items() if s is squeeze), "deflate")
        squeezed = squeeze(bytes(size))
        assert fed([name], squeezed) == bytes(size)
        assert fed([name], squeezed, [1] * len(squeezed)) == bytes(size)


@pytest.mark.parametrize("name", sorted(SQUEEZED))
def test_a_bomb_is_never_held_in_memory(name):
    squeezed = SQUEEZED[name](bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            fed([name], squeezed, limits=Limits(decoded_bytes=1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_what_grows_between_two_encodings_is_counted():
    # Empty blocks of deflate: the inner encoding gives nothing, however much it is fed.
    inner = b"\x00\x00\x00\xff\xff" * 1_000_000
    squeezed = gzip.compress(inner)
    assert len(squeezed) < 10_000
    with pytest.raises(TooLarge):
        fed(["deflate, gzip"], squeezed, limits=Limits(decoded_bytes=1_000_000))


def test_a_body_of_many_small_members_ends():
    assert fed(["gzip"], gzip.compress(b"x") * MAX_GZIP_MEMBERS) == b"x" * MAX_GZIP_MEMBERS
    with pytest.raises(Undecodable):
        fed(["gzip"], gzip.compress(b"x") * (MAX_GZIP_MEMBERS + 1))


def test_a_limit_of_encodings_can_be_zero():
    with pytest.raises(Undecodable):
        Body(["gzip"], Limits(encodings=0))


# --- limits and the extra -------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"body_bytes": 0},
        {"total_seconds": -1},
        {"total_seconds": float("inf")},
        {"total_seconds": float("nan")},
        {"headers": 1.5},
        {"waiting": -1},
        {"connections": True},
        {"idle_seconds": "1"},
    ],
)
def test_a_limit_that_limits_nothing_is_told(wrong):
    with pytest.raises(InvalidConfig) as caught:
        Limits(**wrong)
    assert next(iter(wrong)) in str(caught.value)


def test_headers_are_counted():
    async def story():
        for most, is_answered in ((21, True), (20, False)):
            async with scene(Limits(headers=most, total_seconds=LONG)) as (server, transport):
                if is_answered:
                    answer = await transport.send(get(server, "/wide-head"))
                    assert len(answer.headers) == most
                else:
                    error = await failure(transport, get(server, "/wide-head"))
                    assert error.details == {
                        "reason": "too_large",
                        "limit": "headers",
                        "value": most,
                    }

    asyncio.run(story())


def test_without_redirects_the_first_is_one_too_many():
    async def story():
        async with scene(Limits(redirects=0, total_seconds=LONG)) as (server, transport):
            error = await failure(transport, get(server, "/redirect?to=/ok"))
            assert error.details == {"reason": "redirect", "statusCode": 302}

    asyncio.run(story())


def run_python(code, **env):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        env=os.environ | env,
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("absent", ["aiohttp", "brotli"])
def test_without_the_extra_the_module_imports_and_the_error_holds_the_install_line(absent):
    code = f"""
import sys
sys.modules[{absent!r}] = None
import callpact, callpact.net, callpact.testing
try:
    callpact.net.HttpTransport()
except callpact.errors.SourceRefused as error:
    print(error)
"""
    assert "pip install 'callpact[flowmcp]'" in run_python(code)


def test_importing_the_module_does_not_import_aiohttp():
    code = "import sys, callpact.net, callpact.testing; print('aiohttp' in sys.modules)"
    assert run_python(code) == "False\n"


# --- TLS ------------------------------------------------------------------------------------

TLS = """
import asyncio, ssl, sys
from pathlib import Path
sys.path.insert(0, ".")
from faults import Faults
from callpact.net import HttpTransport, Limits, Request
from callpact.errors import CallError

def descriptors():
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0

async def tell(transport, url):
    try:
        print((await transport.send(Request("GET", url))).body.decode())
    except CallError as error:
        print(error.details)

async def main(folder):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    async def refuse(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
        writer.close()
        await writer.wait_closed()
    limits = Limits(total_seconds=5, connect_seconds=0.5)
    other = await asyncio.start_server(refuse, "127.0.0.1", 0)
    rude = "127.0.0.1:%d" % other.sockets[0].getsockname()[1]
    async with other, Faults() as plain, Faults(tls=context) as server:
        allow = [server.here, plain.here, rude, "other.example"]
        async def lookup(host, port):
            return ["127.0.0.1"]
        async with HttpTransport(limits, allow, lookup=lookup) as transport:
            await tell(transport, server.url("/ok"))
            await tell(transport, server.url("/line"))
            await tell(transport, server.url("/redirect?to=" + plain.url("/ok")))
            await tell(transport, plain.url("/redirect?to=" + server.url("/ok")))
            await tell(transport, server.url("/drip-head").replace("127.0.0.1", "other.example"))
            await tell(transport, f"https://{rude}/")
            await tell(transport, f"https://{plain.here}/ok")
            await tell(transport, server.url("/ok").replace("https", "http"))
            await tell(transport, server.url("/reset-in-body"))
            # The server says it will close, and does not: our end goes all the same.
            await asyncio.sleep(0)
            before = descriptors()
            await tell(transport, server.url("/answers-early?with=Connection:close"))
            await asyncio.sleep(0)
            print(descriptors() - before <= 1)
            server.release()
        await server.until_open(0)

asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else FOLDER))
"""


def certificate(folder):
    """A certificate of 127.0.0.1, signed by itself."""
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "faults")])
    now = dt.datetime.now(dt.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def test_over_tls_requests_are_answered_and_every_doubt_is_an_error(tmp_path):
    certificate(tmp_path)
    code = TLS.replace("FOLDER", repr(str(tmp_path)))
    trusted = run_python(code, SSL_CERT_FILE=str(tmp_path / "cert.pem")).splitlines()
    tls = "{'reason': 'tls'}"
    assert trusted == [
        "ok",
        "1",
        "{'reason': 'redirect', 'statusCode': 302}",
        "ok",
        tls,  # A certificate of another name.
        tls,  # Something else than TLS.
        "{'reason': 'timeout', 'phase': 'connect', 'seconds': 0.5}",  # No TLS, no word.
        "{'reason': 'reset'}",  # TLS where none was spoken to.
        "{'reason': 'reset', 'statusCode': 200}",
        "no",
        "True",  # The server's end alone is open.
    ]
    assert run_python(code, SSL_CERT_FILE=os.devnull).splitlines()[0] == tls
