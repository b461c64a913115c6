"""The worked example: its story in two processes, and its socket bus among hostile peers."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from callpact import Catalog, Contract, InvalidInput, Runtime, Tool, UpstreamError, local_envelope
from callpact.protocol import MAX_EVENT_BYTES, PendingRequestMap, build_call_handler

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "basket"
READER = {"id": "anna", "scopes": ["rates:read"]}


@pytest.fixture
def folder():
    # Not tmp_path: the path of a socket has some hundred characters at the most.
    with TemporaryDirectory(prefix="cp-") as name:
        yield Path(name)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    for name in ("socket_bus", "rates"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    buses = importlib.import_module("socket_bus")
    return SimpleNamespace(buses=buses, rates=importlib.import_module("rates"))


# --- the story ------------------------------------------------------------------------------


def part(shown, title):
    return shown.split(title, 1)[1].split("\n\n", 1)[0]


def test_the_story_is_told_in_two_processes_and_nothing_is_left_of_it(folder):
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(EXAMPLE / "main.py")],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout
    assert "102.0 euros are 110.16 USD" in part(shown, "One call, three tools")
    rejected = part(shown, "Rejected there, raised here")
    assert "InvalidInput" in rejected
    for name in ("amount", "to", "form"):
        assert f"Property '{name}'" in rejected
    access = part(shown, "Everybody may ask for a quote")
    assert access.count("AccessDenied") == 2
    assert access.count("86.7 GBP") == 1
    deadline = part(shown, "A deadline crosses")
    assert "Timeout" in deadline
    assert "has stopped rates.convert" in deadline
    watched = part(shown, "A subscription")
    assert "1.08, 1.09, 1.1\n" in watched
    assert "has stopped rates.watch" in watched
    assert list(folder.iterdir()) == []


def test_the_rates_process_ends_with_its_standard_input_though_a_peer_is_still_there(folder):
    async def go():
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLE / "rates.py"),
            str(folder / "s"),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        try:
            assert await process.stdout.readline() == b"listening\n"
            reader, writer = await asyncio.open_unix_connection(folder / "s")
            writer.write(line(request("1", "rates.convert", {"amount": 1, "to": "XAU"})))
            writer.write(line(request("2", "rates.convert", {"amount": 1, "to": "USD"})))
            assert json.loads(await reader.readline())["requestId"] == "2"
            process.stdin.close()
            rest = await reader.read()
            writer.close()
            said = await process.stderr.read()
            return rest, said, await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert in_time(go()) == (b"", b"", 0)


# --- a hostile peer that is asked -----------------------------------------------------------


def in_time(story):
    return asyncio.run(asyncio.wait_for(story, 30))


def line(event):
    return json.dumps(event).encode() + b"\n"


def request(request_id, tool_id, arguments, **others):
    event = {"type": "call.requested", "requestId": request_id, "operationId": tool_id}
    return {**event, "input": arguments, "identity": READER, **others}


def answer(request_id, data, **others):
    output = local_envelope(data, "far.tool").to_wire()
    return line({"type": "call.responded", "requestId": request_id, "output": output, **others})


@asynccontextmanager
async def asking(example, folder, script):
    """Calls to a peer that serves the namespace `far` and does what the script says."""
    peers = set()

    async def play(reader, writer):
        try:
            await script(reader, writer)
        finally:
            writer.close()

    def meet(reader, writer):
        peers.add(asyncio.create_task(play(reader, writer)))

    server = await asyncio.start_unix_server(meet, folder / "s")
    try:
        async with example.buses.open_bus(folder / "s", far=["far"]) as bus:
            yield PendingRequestMap(bus)
        await asyncio.gather(*peers)
    finally:
        server.close()


async def asked(reader):
    """The id of the next request that the peer hears."""
    while (event := json.loads(await reader.readline()))["type"] != "call.requested":
        pass
    return event["requestId"]


def serve_near(calls, handler):
    tool = Tool(id="near.tool", description="", contract=Contract(), handler=handler)
    runtime = Runtime(Catalog([tool]))
    calls.bus.subscribe("call.requested", build_call_handler(runtime, calls, namespaces=["near"]))


async def near(_arguments, _context):
    return "near"


@pytest.mark.parametrize(
    "garbage",
    [
        b"tea\n",
        b"\n",
        b"\xff\x00\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"type": "call.responded"}\n',
        b'{"type": "call.responded", "requestId": 7, "output": 7}\n',
        b'{"type": "call.responded", "requestId": "", "output": 7}\n',
        b'{"type": "call.stolen", "requestId": "1"}\n',
        answer("of nobody", "stolen"),
    ],
    ids=lambda garbage: repr(garbage[:40]),
)
def test_garbage_from_the_peer_breaks_neither_the_call_nor_the_connection(example, folder, garbage):
    async def script(reader, writer):
        for number in range(2):
            request_id = await asked(reader)
            writer.write(garbage + answer(request_id, number))
        await reader.read()

    async def go():
        async with asking(example, folder, script) as calls:
            return [(await calls.call("far.tool")).data for _ in range(2)]

    assert in_time(go()) == [0, 1]


def test_a_response_with_a_raw_value_ends_its_call_and_no_other(example, folder):
    heard = []

    async def script(reader, writer):
        request_id = await asked(reader)
        writer.write(line({"type": "call.responded", "requestId": request_id, "output": 42}))
        heard.append(json.loads(await reader.readline()))
        assert heard[0]["requestId"] == request_id
        writer.write(answer(await asked(reader), "good"))
        await reader.read()

    async def go():
        async with asking(example, folder, script) as calls:
            with pytest.raises(UpstreamError) as refused:
                await calls.call("far.tool")
            return refused.value, (await calls.call("far.tool")).data, calls.pending_count

    error, data, waiting = in_time(go())
    assert error.code == "upstream_error"
    assert (data, waiting) == ("good", 0)
    # Whoever streams such answers would go on for ever if it were not told.
    assert heard[0]["type"] == "call.aborted"


@pytest.mark.parametrize(
    "last_words",
    [b"", b'{"type": "call.resp', b"x" * (MAX_EVENT_BYTES + 2)],
    ids=["nothing", "half a line", "a line that is too long"],
)
def test_what_waits_for_a_peer_ends_with_it_while_near_calls_go_on(example, folder, last_words):
    async def script(reader, writer):
        await asked(reader)
        await asked(reader)
        writer.write(last_words)
        if len(last_words) > MAX_EVENT_BYTES:
            await reader.read()  # The other side hangs up.

    async def go():
        async with asking(example, folder, script) as calls:
            serve_near(calls, near)
            both = (calls.call("far.tool"), calls.call("far.tool"))
            errors = await asyncio.gather(*both, return_exceptions=True)
            with pytest.raises(UpstreamError):  # At once: there is nobody to wait for.
                await calls.call("far.tool")
            return errors, (await calls.call("near.tool")).data, calls.pending_count

    errors, data, waiting = in_time(go())
    assert [type(error) for error in errors] == [UpstreamError, UpstreamError]
    assert (data, waiting) == ("near", 0)


def test_a_subscription_whose_peer_hangs_up_ends_in_an_error_not_quietly(example, folder):
    async def script(reader, writer):
        writer.write(answer(await asked(reader), "first", seq=0))

    async def go():
        async with asking(example, folder, script) as calls:
            async with aclosing(calls.subscribe("far.tool")) as envelopes:
                first = await anext(envelopes)
                with pytest.raises(UpstreamError):
                    await anext(envelopes)
            return first.data, calls.pending_count

    assert in_time(go()) == ("first", 0)


def test_a_peer_neither_hears_of_near_calls_nor_can_answer_them(example, folder):
    heard = []

    async def go():
        near_id = asyncio.get_running_loop().create_future()
        release = asyncio.Event()

        async def wait(_arguments, context):
            near_id.set_result(context.call_id)
            await release.wait()
            return "true"

        async def script(reader, writer):
            writer.write(answer(await near_id, "forged"))
            heard.append(json.loads(await reader.readline()))
            writer.write(answer(heard[0]["requestId"], "far"))
            heard.append(await reader.readline())

        async with asking(example, folder, script) as calls:
            serve_near(calls, wait)
            near_call = asyncio.create_task(calls.call("near.tool"))
            await near_id
            far = await calls.call("far.tool")  # Answered after the forged line, in its order.
            assert not near_call.done()
            release.set()
            return far.data, (await near_call).data

    assert in_time(go()) == ("far", "true")
    assert [heard[0]["operationId"], *heard[1:]] == ["far.tool", b""]


def test_a_peer_may_ask_in_turn_and_what_it_asked_for_stops_when_it_hangs_up(example, folder):
    async def go():
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def wait(_arguments, _context):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async def script(_reader, writer):
            writer.write(line(request("1", "near.tool", {})))
            await begun.wait()

        async with asking(example, folder, script) as calls:
            serve_near(calls, wait)
            await stopped.wait()

    in_time(go())


def test_a_request_that_is_too_long_for_a_line_is_refused_and_never_sent(example, folder):
    async def script(reader, writer):
        writer.write(answer(await asked(reader), "short"))
        await reader.read()

    async def go():
        async with asking(example, folder, script) as calls:
            with pytest.raises(InvalidInput):
                await calls.call("far.tool", {"text": "x" * MAX_EVENT_BYTES})
            return (await calls.call("far.tool")).data, calls.pending_count

    assert in_time(go()) == ("short", 0)


def test_a_peer_that_reads_nothing_does_not_hold_up_the_end(example, folder):
    async def go():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def script(_reader, _writer):
            await ended.wait()

        async with asking(example, folder, script) as calls:
            # Heard when the line is with the socket, which takes a part of it.
            calls.bus.subscribe("call.requested", lambda _event: begun.set())
            call = asyncio.create_task(calls.call("far.tool", {"text": "x" * 10_000_000}))
            call.add_done_callback(lambda _call: ended.set())
            await begun.wait()
        with pytest.raises(UpstreamError):
            await call

    in_time(go())


# --- a hostile peer that asks ---------------------------------------------------------------


@asynccontextmanager
async def asked_by_peers(example, folder, count=1):
    """Raw connections to the rates, served in this process."""
    async with example.buses.serve_buses(folder / "s", example.rates.welcome):
        peers = [await asyncio.open_unix_connection(folder / "s") for _ in range(count)]
        try:
            yield peers
        finally:
            for _, writer in peers:
                writer.close()


GOOD = {"amount": 100, "to": "USD"}


@pytest.mark.parametrize(
    "garbage",
    [
        b"tea\n",
        b"\n",
        line(request("", "rates.convert", GOOD)),
        line(request("x" * 201, "rates.convert", GOOD)),
        line(request("1", "tea.convert", GOOD)),
        line({"type": "call.aborted", "requestId": "of nobody"}),
        answer("of nobody", "stolen"),
    ],
    ids=lambda garbage: repr(garbage[:70]),
)
def test_garbage_from_whoever_asks_is_not_answered_and_breaks_nothing(example, folder, garbage):
    async def go():
        async with asked_by_peers(example, folder) as [(reader, writer)]:
            writer.write(garbage + line(request("good", "rates.convert", GOOD)))
            return json.loads(await reader.readline())

    said = in_time(go())
    assert (said["type"], said["requestId"]) == ("call.responded", "good")
    assert said["output"]["data"] == {"amount": 108.0, "currency": "USD"}


def test_a_request_that_cannot_be_read_is_told_so_if_it_has_an_id(example, folder):
    async def go():
        async with asked_by_peers(example, folder) as [(reader, writer)]:
            writer.write(line(request("bad", "rates.convert", GOOD, deadline="soon")))
            return json.loads(await reader.readline())

    said = in_time(go())
    assert (said["type"], said["requestId"], said["code"]) == (
        "call.error",
        "bad",
        "EXECUTION_ERROR",
    )


def test_a_caller_is_told_when_the_other_side_cannot_read_its_request(example, folder):
    async def go():
        buses, rates = example.buses, example.rates
        async with (
            buses.serve_buses(folder / "s", rates.welcome),
            buses.open_bus(folder / "s", far=["rates"]) as bus,
        ):
            calls = PendingRequestMap(bus)
            # An id so long cannot be read on the other side.
            with pytest.raises(UpstreamError):
                await calls.call("rates.convert", GOOD, parent_request_id="x" * 300)
            return calls.pending_count

    assert in_time(go()) == 0


def test_what_was_asked_for_stops_when_whoever_asked_hangs_up(example, folder):
    async def go():
        async with asked_by_peers(example, folder, 2) as [(_, gone), (reader, writer)]:
            gold = {"amount": 1, "to": "XAU"}
            gone.write(line(request("1", "rates.convert", gold)))
            gone.close()
            writer.write(line(request("2", "rates.stopped", {})))
            return json.loads(await reader.readline())

    said = in_time(go())
    assert said["requestId"] == "2"
    assert said["output"]["data"] == {"tool_id": "rates.convert", "deadline": None}


def test_a_line_too_long_ends_its_own_connection_only(example, folder):
    async def go():
        async with asked_by_peers(example, folder, 2) as [(hostile, flood), (reader, writer)]:
            flood.write(b"x" * (MAX_EVENT_BYTES + 2))
            ended = await hostile.read()
            writer.write(line(request("1", "rates.convert", GOOD)))
            return ended, json.loads(await reader.readline())["requestId"]

    assert in_time(go()) == (b"", "1")


def test_a_peer_with_too_many_open_requests_is_hung_up_on(example, folder):
    async def go():
        async with asked_by_peers(example, folder) as [(reader, writer)]:
            for number in range(example.buses.MAX_OPEN + 1):
                writer.write(line(request(f"{number}", "nobody.serves", {})))
            return await reader.read()

    assert in_time(go()) == b""


def test_peers_hear_only_what_they_asked_for(example, folder):
    async def go():
        async with asked_by_peers(example, folder, 2) as peers:
            said = []
            for number, (reader, writer) in enumerate(peers):
                writer.write(line(request(f"{number}", "rates.convert", GOOD)))
                said.append(json.loads(await reader.readline())["requestId"])
            return said

    assert in_time(go()) == ["0", "1"]
