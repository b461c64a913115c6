"""The stdio door as bytes: whatever a client writes, the next line is answered."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

import piped
import raw

LEGACY, MODERN, PATIENCE, READY = piped.LEGACY, piped.MODERN, piped.PATIENCE, piped.READY
SERVE, Wire, encoded = piped.SERVE, piped.Wire, piped.encoded
TOOLS = Path(__file__).parent / "behaviour.py"
ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])
PARSE, INVALID = -32700, -32600
LIMIT = 4 << 20
Served = partial(piped.Piped, TOOLS)


@pytest.fixture(scope="module")
def both():
    """A server that was opened in each era."""
    with Served() as modern, Served() as legacy:
        legacy.open(LEGACY)
        yield {MODERN: modern, LEGACY: legacy}


# --- messages ---------------------------------------------------------------------------------


def nested(levels):
    return b"[" * levels + b"]" * levels


ASKED = raw.message()
MESSAGES = {
    "half": (b'{"jsonrpc": "2.0", "id": 1, "meth', PARSE),
    "no json": (b"hello", PARSE),
    "twice": (json.dumps(ASKED).encode() * 2, PARSE),
    "not a number": (json.dumps(raw.message(x=float("nan"))).encode(), PARSE),
    "infinite": (json.dumps(raw.message(x=float("inf"))).encode(), PARSE),
    "out of range": (json.dumps(ASKED).replace("1", "1e999", 1).encode(), PARSE),
    "half a character": (json.dumps(raw.message(x="\ud800")).encode(), PARSE),
    "no utf-8": (json.dumps(raw.message(x="?")).encode().replace(b"?", b"\xff"), PARSE),
    "utf-16": (json.dumps(ASKED).encode("utf-16"), PARSE),
    "a byte order mark inside": (b"\xef\xbb\xbf" + json.dumps(ASKED).encode(), PARSE),
    "a zero": (b"\0", PARSE),
    "a single quote": (b"{'jsonrpc': '2.0'}", PARSE),
    "too deep": (
        json.dumps(raw.message(x=0)).encode().replace(b'"x": 0', b'"x": ' + nested(1_023)),
        PARSE,
    ),
    "far too deep": (nested(100_000), PARSE),
    "deep without end": (b'{"a":' * 100_000, PARSE),
    "too long": (b'"' + b"x" * LIMIT + b'"', INVALID),
    "a text": (b'"hello"', INVALID),
    "nothing": (b"null", INVALID),
    "a batch": (json.dumps([ASKED, ASKED]).encode(), INVALID),
    "an empty batch": (b"[]", INVALID),
    "an empty object": (b"{}", INVALID),
    "no version": (b'{"method": "ping", "id": null}', INVALID),
    "no method": (b'{"jsonrpc": "2.0"}', INVALID),
    "id is null": (json.dumps({**ASKED, "id": None}).encode(), INVALID),
    "id is an object": (json.dumps({**ASKED, "id": {}}).encode(), INVALID),
    "id is a list": (json.dumps({**ASKED, "id": [1]}).encode(), INVALID),
    "id is true": (json.dumps({**ASKED, "id": True}).encode(), INVALID),
    "id is a fraction": (json.dumps({**ASKED, "id": 1.5}).encode(), INVALID),
    "a result that is a text": (b'{"jsonrpc": "2.0", "id": 1, "result": "x"}', INVALID),
    "an error that is a text": (b'{"jsonrpc": "2.0", "id": 1, "error": "x"}', INVALID),
}


def assert_refused(answer, code):
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", None)
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]


@ERAS
@pytest.mark.parametrize("name", MESSAGES)
def test_a_bad_line_is_an_error_of_the_protocol_and_the_next_one_works(both, era, name):
    line, code = MESSAGES[name]
    both[era].send(line + b"\n")
    assert_refused(both[era].read(), code)
    both[era].assert_works(era)


@ERAS
def test_bad_lines_before_all_others_are_answered_in_order_and_decide_nothing(era):
    with Served() as served:
        sender = threading.Thread(
            target=served.send, args=[line + b"\n" for line, _ in MESSAGES.values()]
        )
        sender.start()
        for _, code in MESSAGES.values():
            assert_refused(served.read(), code)
        sender.join(PATIENCE)
        served.open(era)
        served.assert_works(era)


@ERAS
@pytest.mark.parametrize(
    "bad",
    [
        {"jsonrpc": "1.0"},
        {"method": 5},
        {"params": []},
        {"params": "x"},
    ],
)
@pytest.mark.parametrize("id", [7, "seven", 10**30])
def test_an_error_names_the_request_if_that_can_be_read(both, era, bad, id):
    both[era].send({**ASKED, "id": id, **bad})
    answer = both[era].read()
    assert (answer["id"], answer["error"]["code"]) == (id, INVALID)
    both[era].assert_works(era)


@ERAS
def test_a_list_is_answered_under_an_id_of_any_size(both, era):
    asked = raw.message() if era == MODERN else {**ASKED, "params": {}}
    both[era].send({**asked, "id": 10**30})
    answer = both[era].read()
    assert answer["id"] == 10**30
    assert answer["result"]["tools"]


@ERAS
def test_what_has_no_answer_gets_none(both, era):
    nobody = [
        {"jsonrpc": "2.0", "method": "notifications/nosuch"},
        {"jsonrpc": "2.0", "id": 12_345, "result": {}},
        {"jsonrpc": "2.0", "id": 12_345, "error": {"code": 1, "message": "x"}},
        # Who cannot read a line says so; to complain about that would go on for good.
        {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE, "message": "x"}},
        {"jsonrpc": "2.0", "error": {"code": PARSE, "message": "x"}},
        {"jsonrpc": "2.0", "id": None, "error": "x"},
    ]
    both[era].send(*nobody)
    both[era].assert_works(era)


@ERAS
def test_lines_may_be_empty_and_end_as_on_windows_and_begin_with_a_mark(era):
    with Served() as served:
        served.send(b"\xef\xbb\xbf\r\n\n \t\n\r\n")
        if era == LEGACY:
            served.send(json.dumps(raw.initialize()).encode() + b"\r\n", b"\n")
            assert "result" in served.read()
        asked = served.call("behaviour_add", era=era, a=1, b=2)
        served.send(b"  " + json.dumps(asked).encode() + b" \r\n")
        assert served.read()["id"] == asked["id"]
        assert served.hang_up() == []


def test_a_mark_may_stand_before_the_first_message():
    with Served() as served:
        served.send(b"\xef\xbb\xbf" + encoded(raw.message("tools/list")))
        assert served.read()["result"]["tools"]


def test_integers_of_any_size_stay_what_they_are(both):
    wire = both[MODERN]
    for number in (2**53 + 1, 2**63, 2**64, -(10**40)):
        wire.send(wire.call("behaviour_add", a=number, b=0))
        assert wire.read()["result"]["structuredContent"] == {"sum": number}


def test_requests_with_the_same_id_are_each_answered(both):
    wire = both[MODERN]
    asked = [{**wire.call("behaviour_say", text=text), "id": 5} for text in ("a", "b")]
    wire.send(*asked)
    told = [wire.read() for _ in asked]
    assert [answer["id"] for answer in told] == [5, 5]
    assert {answer["result"]["structuredContent"] for answer in told} == {"a", "b"}


# --- length -----------------------------------------------------------------------------------


def padded(message, size):
    data = json.dumps(message).encode()
    return data + b" " * (size - len(data)) + b"\n"


@ERAS
def test_a_line_of_the_longest_is_read_and_one_byte_more_is_not(both, era):
    wire = both[era]
    asked = wire.call("behaviour_add", era=era, a=1, b=2)
    wire.send(padded(asked, LIMIT))
    assert wire.read()["id"] == asked["id"]
    wire.send(padded(asked, LIMIT + 1))
    answer = wire.read()
    assert_refused(answer, INVALID)
    assert f"{LIMIT:,}" in answer["error"]["message"]
    wire.assert_works(era)


@ERAS
@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
def test_a_line_without_end_is_refused_while_it_comes_and_never_held_whole(era):
    with Served() as served:
        served.open(era)
        served.assert_works(era)
        before = served.most_memory()
        served.send(b'{"a": "' + b"x" * (LIMIT + 1))
        assert_refused(served.read(), INVALID)
        for _ in range(60):
            served.send(b"x" * (1 << 20))
        served.send(b'"}\n')
        served.assert_works(era)
        assert served.most_memory() - before < 4 * LIMIT


# --- where lines come from, and how they end ----------------------------------------------------


def test_a_last_line_needs_no_end_and_half_a_line_is_told():
    asked = raw.message("tools/list", number=3)
    for line, wanted in ((json.dumps(asked).encode(), 3), (b'{"jsonrpc": "2', None)):
        with Served() as served:
            served.send(line)
            (told,) = map(json.loads, served.hang_up())
            assert told["id"] == wanted
            assert ("error" in told) == (wanted is None)


@ERAS
def test_what_is_asked_just_before_the_end_is_answered(era):
    with Served() as served:
        served.open(era)
        asked = [served.call("behaviour_add", era=era, a=n, b=0) for n in range(50)]
        served.send(*asked)
        told = [json.loads(line) for line in served.hang_up()]
    assert sorted(answer["id"] for answer in told) == [one["id"] for one in asked]
    assert all(answer["result"]["isError"] is False for answer in told)


@ERAS
def test_a_file_is_read_to_its_end_and_a_file_is_written(tmp_path, era):
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    wire = Wire(-1, -1)
    first = [raw.initialize(0), READY] if era == LEGACY else []
    lines = [*first, wire.call("behaviour_add", era=era, a=1, b=2), b"bad\n"]
    asked.write_bytes(b"".join(map(encoded, lines)))
    with (
        asked.open("rb") as given,
        answered.open("wb") as taken,
        Served(stdin=given, stdout=taken) as served,
    ):
        assert served.wait() == 0, served.errors
    told = [json.loads(line) for line in answered.read_text("utf-8").splitlines()]
    assert {answer["id"] for answer in told} == {None, 1} | ({0} if era == LEGACY else set())


def test_nothing_to_read_ends_it_at_once():
    with Served(stdin=subprocess.DEVNULL) as served:
        assert served.line() == b""
        assert served.wait() == 0


def test_a_terminal_is_read_until_its_user_ends_it():
    ours, theirs = pty.openpty()
    try:
        with Served(stdin=theirs) as served:
            served.sending = ours
            served.assert_works()
            assert os.get_blocking(theirs)  # Others use this terminal too.
            served.send(b"bad\n")
            assert_refused(served.read(), PARSE)
            served.send(b"\x04")
            assert served.line() == b""
            assert served.wait() == 0
    finally:
        os.close(ours)
        os.close(theirs)


FED = '''
import asyncio
from pathlib import Path

from callpact import tool

@tool
async def fed(pipe: str) -> str:
    """Give what comes through a pipe."""
    return await asyncio.to_thread(Path(pipe).read_text)
'''
SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)


@SIGNALS
@ERAS
def test_a_signal_ends_it_and_calls_under_way_are_told(number, code, era):
    with Served() as served:
        served.open(era)
        held = served.call("behaviour_wait", era=era, key="signal")
        served.send(held)
        served.send(served.call("behaviour_until", era=era, key="signal", place="begun"))
        assert not served.read()["result"]["isError"]
        served.process.send_signal(number)
        told = served.read()
        assert (told["id"], told["error"]["code"]) == (held["id"], -32603)
        assert "stopped" in told["error"]["message"]
        assert served.line() == b""
        assert served.wait() == code
        assert b"Traceback" not in served.errors


@SIGNALS
def test_a_signal_ends_it_also_while_nothing_is_read(number, code):
    with Served() as served:
        served.assert_works()
        served.process.send_signal(number)
        assert served.wait() == code
        assert b"Traceback" not in served.errors


def test_a_call_has_its_time_after_a_signal(tmp_path):
    (tmp_path / "t.py").write_text(FED, "utf-8")
    os.mkfifo(tmp_path / "pipe")
    with piped.Piped(tmp_path / "t.py") as served:
        served.send(served.call("t_fed", pipe=str(tmp_path / "pipe")))
        with (tmp_path / "pipe").open("w", encoding="utf-8") as pipe:  # Once it is read.
            served.process.send_signal(signal.SIGTERM)
            pipe.write("tea")
        assert served.read()["result"]["structuredContent"] == "tea"
        assert served.wait() == 0


def test_a_client_that_hangs_up_and_still_reads_is_told_of_calls_that_were_broken_off():
    with Served() as served:
        held = served.call("behaviour_wait", key="hung up")
        served.send(held)
        (line,) = served.hang_up()
        assert json.loads(line)["error"]["code"] == -32603
        assert json.loads(line)["id"] == held["id"]


def test_a_client_that_closed_its_ear_ends_it_though_it_could_go_on_asking():
    with Served() as served:
        served.assert_works()
        served.process.stdout.close()
        served.send(served.call("behaviour_add", a=1, b=2))
        assert served.process.wait(PATIENCE) == 0
        served.wait()
        assert b"Traceback" not in served.errors


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_one_of_both_streams_it_says_so(closed):
    command = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *SERVE, str(TOOLS)],
        stdin=subprocess.PIPE,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert b"standard input" in done.stderr
    assert b"Traceback" not in done.stderr


# --- what others print --------------------------------------------------------------------------

LOUD = '''
import os, subprocess, sys
from callpact import tool

@tool
def loud() -> str:
    """Print in every way there is, and try to read what is not for it."""
    print("printed")
    sys.__stdout__.write("printed below")
    sys.__stdout__.flush()
    os.write(1, b"printed by a library\\n")
    subprocess.run(["sh", "-c", "echo printed by a child; cat"], check=True, timeout=20)
    return sys.stdin.read() + os.read(0, 10).decode()
'''


@ERAS
def test_the_protocol_has_both_streams_to_itself(tmp_path, era):
    (tmp_path / "loud.py").write_text(LOUD, "utf-8")
    with piped.Piped(tmp_path / "loud.py") as served:
        served.open(era)
        for _ in range(3):
            asked = served.call("loud_loud", era=era)
            served.send(asked)
            answer = served.read()
            assert (answer["id"], answer["result"]["isError"]) == (asked["id"], False)
            # What it read was empty; the next line was still there for us.
            assert answer["result"]["structuredContent"] == (
                "" if era == MODERN else {"result": ""}
            )
        assert served.hang_up() == []
        printed = ["printed\n", "printed below", "printed by a library", "printed by a child"]
        assert all(served.errors.count(text.encode()) >= 3 for text in printed)


# --- the official client ------------------------------------------------------------------------


@ERAS
def test_the_official_client_gets_each_of_many_answers_whole(era):
    texts = [chr(97 + n % 26) * (n * 997 % 70_000) for n in range(200)]

    async def go():
        parameters = StdioServerParameters(
            command=SERVE[0], args=[*SERVE[1:], str(TOOLS)], env=dict(os.environ)
        )
        async with Client(parameters, mode=era) as client:
            calls = [client.call_tool("behaviour_say", {"text": text}) for text in texts]
            return [result.structured_content for result in await asyncio.gather(*calls)]

    told = asyncio.run(asyncio.wait_for(go(), 2 * PATIENCE))
    assert told == (texts if era == MODERN else [{"result": text} for text in texts])
