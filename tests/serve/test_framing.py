"""The framing of HTTP over real sockets: what is ambiguous is refused, and its connection closed."""

from __future__ import annotations

import json
from pathlib import Path

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.serve.http.framing import (
    MAX_CHUNK_LINE_BYTES,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_REQUEST_LINE_BYTES,
    Framing,
)
from callpact.serve.jsonrpc import RequestRefused
from raw import Served, called, message, routed, works

TOOLS = Path(__file__).with_name("behaviour.py")
BODY = json.dumps(message()).encode()
ROUTED = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in routed().items())
JSON = f"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{ROUTED}"


@pytest.fixture(scope="module")
def served():
    with Served(TOOLS) as process:
        yield process
        assert process.warnings == []


@pytest.fixture
def line(served):
    with served.connect() as connection:
        yield connection


def post(headers="", body=BODY, *, start="POST /mcp HTTP/1.1", host="Host: localhost\r\n"):
    """A request in bytes, with these headers beside those that every good one has."""
    return f"{start}\r\n{host}{JSON}{headers}\r\n".encode("latin-1") + body


LENGTH = f"Content-Length: {len(BODY)}\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
WHOLE = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
GOOD = post(LENGTH)

REFUSED = {
    # The method
    "CONNECT to a path": (post(LENGTH, start="CONNECT /mcp HTTP/1.1"), 400),
    "a method that is none": (post(LENGTH, start="FETCH /mcp HTTP/1.1"), 400),
    # Where the body ends
    "both lengths": (post(LENGTH + CHUNKED), 400),
    "both lengths, chunked first": (post(CHUNKED + LENGTH, WHOLE), 400),
    "both lengths, in odd cases": (post("content-LENGTH: 0\r\ntransfer-ENCODING: Chunked\r\n"), 400),
    "both lengths, the coding unknown": (post(LENGTH + "Transfer-Encoding: x\r\n"), 400),
    "two lengths": (post(LENGTH + "Content-Length: 3\r\n"), 400),
    "the same length twice": (post(LENGTH + LENGTH), 400),
    "a list of lengths": (post(f"Content-Length: {len(BODY)}, {len(BODY)}\r\n"), 400),
    "a length with a sign": (post(f"Content-Length: +{len(BODY)}\r\n"), 400),
    "a negative length": (post("Content-Length: -1\r\n"), 400),
    "a length with a space": (post("Content-Length: 1 1\r\n"), 400),
    "a length in hexadecimal": (post("Content-Length: 0x10\r\n"), 400),
    "a length with a point": (post("Content-Length: 1.0\r\n"), 400),
    "a length with a separator": (post("Content-Length: 1_0\r\n"), 400),
    "a length in other digits": (post("Content-Length: \xb2\r\n"), 400),
    "an empty length": (post("Content-Length:\r\n"), 400),
    "a length of a thousand digits": (post(f"Content-Length: {'9' * 1_000}\r\n"), 400),
    "an unknown coding": (post("Transfer-Encoding: gzip\r\n"), 501),
    "two codings": (post("Transfer-Encoding: gzip, chunked\r\n"), 501),
    "chunked is not last": (post("Transfer-Encoding: chunked, gzip\r\n"), 501),
    "chunked twice": (post(CHUNKED + CHUNKED, WHOLE), 501),
    "chunked with a parameter": (post("Transfer-Encoding: chunked;q=1\r\n", WHOLE), 501),
    "chunked with a vertical tab": (post("Transfer-Encoding: \x0bchunked\r\n", WHOLE), 400),
    "identity": (post("Transfer-Encoding: identity\r\n"), 501),
    "an empty coding": (post("Transfer-Encoding:\r\n"), 501),
    "chunked in HTTP/1.0": (post(CHUNKED, WHOLE, start="POST /mcp HTTP/1.0"), 400),
    # Chunks
    "a chunk without a size": (post(CHUNKED, b"\r\nabc\r\n0\r\n\r\n"), 400),
    "a size that is none": (post(CHUNKED, b"xyz\r\nabc\r\n0\r\n\r\n"), 400),
    "a size with 0x": (post(CHUNKED, b"0x3\r\nabc\r\n0\r\n\r\n"), 400),
    "a size with a sign": (post(CHUNKED, b"+3\r\nabc\r\n0\r\n\r\n"), 400),
    "a negative size": (post(CHUNKED, b"-3\r\nabc\r\n0\r\n\r\n"), 400),
    "a size with a separator": (post(CHUNKED, b"1_0\r\nabc\r\n0\r\n\r\n"), 400),
    "a size with a space before": (post(CHUNKED, b" 3\r\nabc\r\n0\r\n\r\n"), 400),
    "a size with a space after": (post(CHUNKED, b"3 \r\nabc\r\n0\r\n\r\n"), 400),
    "a size of too many digits": (post(CHUNKED, b"f" * 17 + b"\r\nabc"), 400),
    "a size that ends with LF": (post(CHUNKED, b"3\nabc\r\n0\r\n\r\n"), 400),
    "a size that ends with CR": (post(CHUNKED, b"3\rabc\r\n0\r\n\r\n"), 400),
    "a chunk longer than its size": (post(CHUNKED, b"3\r\nabcd\r\n0\r\n\r\n"), 400),
    "a chunk that ends with LF": (post(CHUNKED, b"3\r\nabc\n0\r\n\r\n"), 400),
    "an endless extension": (post(CHUNKED, b"3;" + b"x" * MAX_CHUNK_LINE_BYTES), 400),
    "an extension with NUL": (post(CHUNKED, b"3;\x00\r\nabc\r\n0\r\n\r\n"), 400),
    "an extension with LF": (post(CHUNKED, b"3;a\nb\r\nabc\r\n0\r\n\r\n"), 400),
    "a trailer that is none": (post(CHUNKED, WHOLE[:-2] + b"abc\r\n\r\n"), 400),
    "a trailer with a space": (post(CHUNKED, WHOLE[:-2] + b"a : b\r\n\r\n"), 400),
    "a folded trailer": (post(CHUNKED, WHOLE[:-2] + b"a: b\r\n c\r\n\r\n"), 400),
    "a trailer that ends with LF": (post(CHUNKED, WHOLE[:-2] + b"a: b\n\r\n"), 400),
    "endless trailers": (post(CHUNKED, WHOLE[:-2] + b"a: b\r\n" * 12_000), 431),
    "too many trailers": (post(CHUNKED, WHOLE[:-2] + b"a: b\r\n" * 101 + b"\r\n"), 431),
    # Lines and headers
    "lines that end with LF": (post(LENGTH).replace(b"\r\n", b"\n"), 400),
    "one line that ends with LF": (post("A: b\nC: d\r\n" + LENGTH), 400),
    "the first line ends with LF": (GOOD.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"), 400),
    "the last line ends with LF": (b"GET /mcp HTTP/1.1\r\nHost: localhost\n\n", 400),
    "an empty line of LF": (b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\n", 400),
    "a line that ends with CR": (post("A: b\rC: d\r\n" + LENGTH), 400),
    "a CR before the end": (post(LENGTH + "A: b\r\r\n"), 400),
    "a CR before the end of trailers": (post(CHUNKED, WHOLE[:-2] + b"a: b\r\r\n\r\n"), 400),
    "two CR": (post("A: b\r\r\n" + LENGTH), 400),
    "a folded header": (post("A: b\r\n c\r\n" + LENGTH), 400),
    "a header folded with a tab": (post("A: b\r\n\tc\r\n" + LENGTH), 400),
    "a folded length": (post(f"Content-Length:\r\n {len(BODY)}\r\n"), 400),
    "a fold before the first header": (post(LENGTH, host=" Host: localhost\r\n"), 400),
    "a line of spaces": (post("  \r\n" + LENGTH), 400),
    "a space before the colon": (post(f"Content-Length : {len(BODY)}\r\n"), 400),
    "a tab before the colon": (post(f"Content-Length\t: {len(BODY)}\r\n"), 400),
    "a space in a name": (post("A b: c\r\n" + LENGTH), 400),
    "no colon": (post("Abc\r\n" + LENGTH), 400),
    "no name": (post(": b\r\n" + LENGTH), 400),
    "a name with a bracket": (post("A(b): c\r\n" + LENGTH), 400),
    "a name that is not ASCII": (post("\xc4: c\r\n" + LENGTH), 400),
    "NUL in a value": (post("A: b\x00c\r\n" + LENGTH), 400),
    "NUL in a name": (post("A\x00b: c\r\n" + LENGTH), 400),
    "a control character in a value": (post("A: b\x1bc\r\n" + LENGTH), 400),
    "DEL in a value": (post("A: b\x7fc\r\n" + LENGTH), 400),
    "too many headers": (post("A: b\r\n" * MAX_HEADERS + LENGTH), 431),
    "headers that are too large": (post(f"A: {'b' * MAX_HEADER_BYTES}\r\n" + LENGTH), 431),
    "headers without end": (post(f"A: {'b' * MAX_HEADER_BYTES}")[:-2], 431),
    # The first line
    "a target that is too long": (post(LENGTH, start=f"POST /{'a' * 9_000} HTTP/1.1"), 414),
    "a target without end": (b"POST /" + b"a" * MAX_REQUEST_LINE_BYTES, 414),
    "a method without end": (b"A" * (MAX_REQUEST_LINE_BYTES + 1), 414),
    "two spaces": (post(LENGTH, start="POST  /mcp HTTP/1.1"), 400),
    "a tab": (post(LENGTH, start="POST\t/mcp HTTP/1.1"), 400),
    "a space at the end": (post(LENGTH, start="POST /mcp HTTP/1.1 "), 400),
    "a space at the start": (post(LENGTH, start=" POST /mcp HTTP/1.1"), 400),
    "a space in the target": (post(LENGTH, start="POST /m cp HTTP/1.1"), 400),
    "NUL in the target": (post(LENGTH, start="POST /m\x00cp HTTP/1.1"), 400),
    "a target that is not ASCII": (post(LENGTH, start="POST /m\xe4cp HTTP/1.1"), 400),
    "a fragment": (post(LENGTH, start="POST /mcp#a HTTP/1.1"), 400),
    "no version": (post(LENGTH, start="POST /mcp"), 400),
    "half a version": (post(LENGTH, start="POST /mcp HTTP/1"), 400),
    "a version in lower case": (post(LENGTH, start="POST /mcp http/1.1"), 400),
    "HTTP/0.9": (post(LENGTH, start="POST /mcp HTTP/0.9"), 505),
    "HTTP/1.2": (post(LENGTH, start="POST /mcp HTTP/1.2"), 505),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "a method with a bracket": (post(LENGTH, start="PO(ST /mcp HTTP/1.1"), 400),
    "two empty lines before": (b"\r\n\r\n" + GOOD, 400),
    "CONNECT": (post(LENGTH, start="CONNECT localhost:80 HTTP/1.1"), 400),
    "a target without a slash": (post(LENGTH, start="POST mcp HTTP/1.1"), 400),
    "an asterisk": (post(LENGTH, start="POST * HTTP/1.1"), 400),
    "a target at another host": (post(LENGTH, start="POST http://evil.example/mcp HTTP/1.1"), 400),
    "a target with user info": (post(LENGTH, start="POST http://a@localhost/mcp HTTP/1.1"), 400),
    "another scheme": (post(LENGTH, start="POST ftp://localhost/mcp HTTP/1.1"), 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
    "something": (b"hello\r\n\r\n", 400),
    # Host and Expect
    "no Host": (post(LENGTH, host=""), 400),
    "two Hosts": (post(LENGTH, host="Host: localhost\r\nHost: localhost\r\n"), 400),
    "an unknown expectation": (post(LENGTH + "Expect: 200-ok\r\n"), 417),
    "two expectations": (post(LENGTH + "Expect: 100-continue\r\nExpect: x\r\n"), 417),
}  # fmt: skip
HOSTS = [
    "user@localhost", "user:pass@localhost:80", "localhost@evil.example", "localhost:80@evil.example",
    "127.0.0.1:8420@evil.example", "@localhost", "localhost:x", "localhost:80:80", "localhost:99999",
    "localhost:-1", "localhost/", "localhost/mcp", "localhost?", "localhost#", "http://localhost",
    "localhost, evil.example", "localhost evil.example", "[::1", "::1", "[::1]x", "[::1]:x", "[", "[]",
    "[evil.example]", "local\xe4host", "localhost\\", '"localhost"', "<localhost>",
]  # fmt: skip
REFUSED |= {f"Host: {host}": (post(LENGTH, host=f"Host: {host}\r\n"), 400) for host in HOSTS}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_is_refused_and_its_connection_ended(served, line, name):
    data, status = REFUSED[name]
    line.send(data)
    answer = line.read()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert answer.error["code"] == -32600
    assert answer.json["id"] is None
    assert line.file.read() == b""  # No second answer: nothing of it was taken for a request.
    with served.connect() as other:
        assert works(other)


@pytest.mark.parametrize("name", ["both lengths", "a folded header", "two Hosts", "something"])
def test_good_requests_before_a_bad_one_are_answered(line, name):
    data, status = REFUSED[name]
    line.send(called("behaviour_say", text="1") + called("behaviour_say", text="2") + data)
    assert [line.read().result["structuredContent"] for _ in range(2)] == ["1", "2"]
    assert line.read().status == status
    assert line.is_ended()


def test_nothing_after_a_refused_request_is_run(served, line):
    smuggled = called("behaviour_wait", key="smuggled")
    line.send(post(LENGTH + CHUNKED, b"0\r\n\r\n") + smuggled)
    assert line.read().status == 400
    assert line.file.read() == b""


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        b"\r\n" + GOOD,
        post(CHUNKED, WHOLE),
        post("transfer-encoding:Chunked\r\n", WHOLE),
        post(CHUNKED, b"%X;a=b;c\r\n%b\r\n000\r\n\r\n" % (len(BODY), BODY)),
        post(CHUNKED, b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"),
        post(CHUNKED, WHOLE[:-2] + b"A: b\r\nContent-Length: 3\r\n\r\n"),
        post(f"Content-Length:\t{len(BODY)} \t\r\n"),
        post(f"Content-Length: 000{len(BODY)}\r\n"),
        post(LENGTH + "A:\r\nB: \t \r\nC: \xe4\r\n"),
        post(LENGTH, start="POST http://localhost/mcp HTTP/1.1"),
        post(LENGTH, start="POST HTTP://LOCALHOST/mcp HTTP/1.1"),
        post(LENGTH, start="POST /mcp?a=b HTTP/1.1"),
        post(LENGTH + "A: b\r\n" * (MAX_HEADERS - 8)),
        post(LENGTH, host="Host: localhost:65535\r\n"),
        post(LENGTH, host="hOST:[::1]:\r\n"),
        post(
            LENGTH + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
        ),
        post(CHUNKED + "UPGRADE:websocket\r\nConnection: upgrade\r\n", WHOLE),
    ],
    ids=range(18),
)
def test_what_is_clear_is_read_however_it_is_cut(line, data):
    line.send(data)
    assert line.read().result["tools"]
    for start in range(0, len(data), 100):
        line.send(data[start : start + 100])
    assert line.read().result["tools"]


def test_a_client_that_asks_whether_it_may_go_on_is_told_so(line):
    line.send(post(LENGTH + "Expect: 100-Continue\r\n", b""))
    assert line.file.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert line.file.readline() == b"\r\n"
    line.send(BODY)
    assert line.read().result["tools"]


def test_http_1_0_is_read_and_its_connection_ended(line):
    line.send(post(LENGTH, start="POST /mcp HTTP/1.0"))
    answer = line.read()
    assert answer.result["tools"]
    assert line.is_ended()


def test_a_client_that_sends_much_more_can_still_read_why_it_was_refused(line):
    line.send(post(LENGTH + CHUNKED) + b"x" * 3_000_000)
    assert line.read().status == 400


# --- laws ----------------------------------------------------------------------------------------


def fed(pieces):
    """What a parser gets, and the status of the refusal."""
    framing, passed = Framing(), b""
    for piece in pieces:
        try:
            passed += framing.feed(piece)
        except RequestRefused as refused:
            return passed + bytes(framing.passed), refused.status
    return passed, None


MESSAGES = st.sampled_from([GOOD, post(CHUNKED, WHOLE), *(data for data, _ in REFUSED.values())])


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_it_does_not_matter_how_bytes_are_cut(messages, data):
    whole = b"".join(messages)[:30_000]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    passed, status = fed(pieces)
    expected, expected_status = fed([whole])
    assert status == expected_status
    assert passed == expected


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.binary(max_size=30), st.integers(0, 2_000))
def test_a_parser_finds_the_same_requests_in_what_passes(messages, noise, at):
    whole = b"".join(messages)
    passed, _ = fed([whole[:at] + noise + whole[at:]])
    parser = h11.Connection(h11.SERVER, MAX_HEADER_BYTES * 2)
    if passed:  # Nothing would be the end.
        parser.receive_data(passed)
    while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        if isinstance(event, h11.EndOfMessage):
            parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            parser.send(h11.EndOfMessage())
            if parser.our_state is h11.MUST_CLOSE:
                break
            parser.start_next_cycle()
