"""The limits of the stdio door with small values: many requests, large answers, nobody who reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading

import mcp_types as types
import pytest
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

import piped
import raw
from callpact.serve.stdio.stdio_server import LineLimits, serve_lines

LEGACY, MODERN, PATIENCE, READY = piped.LEGACY, piped.MODERN, piped.PATIENCE, piped.READY
Wire, encoded = piped.Wire, piped.encoded
ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])
PARSE, INTERNAL = -32700, -32603


def serving(question, tools, **limits):
    """Serve tools of the SDK over pipes in this process; the client runs in a thread."""

    async def call_tool(context, params):
        text = await tools[params.name](context, params.arguments)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=False)

    async def go():
        given, sending = os.pipe()
        reading, taken = os.pipe()
        limits.setdefault("leaving_seconds", 0.1)
        listen = ListenHandler(InMemorySubscriptionBus())
        server = Server("t", on_call_tool=call_tool, on_subscriptions_listen=listen)
        running = asyncio.create_task(serve_lines(server, given, taken, LineLimits(**limits)))
        wire = Wire(sending, reading)
        wire.loop, wire.given = asyncio.get_running_loop(), given
        try:
            return await asyncio.to_thread(question, wire)
        finally:
            wire.hang_up()
            await asyncio.wait_for(running, PATIENCE)
            for descriptor in (given, reading, taken):
                os.close(descriptor)

    return asyncio.run(asyncio.wait_for(go(), 2 * PATIENCE))


async def say(context, arguments):
    return arguments["text"]


async def large(context, arguments):
    return "x" * arguments["size"]


def is_idle(wire):
    """True if nothing more is taken from us, for a while."""
    return not select.select([], [wire.sending], [], 0.5)[1]


def flood(wire, lines):
    """Send until nothing is taken any more; gives what is left."""
    rest = b"".join(map(encoded, lines))
    os.set_blocking(wire.sending, False)
    try:
        while rest and not is_idle(wire):
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(wire.sending, rest[:4096]) :]
    finally:
        os.set_blocking(wire.sending, True)
    return rest


@ERAS
@pytest.mark.parametrize("what", ["requests", "bad lines"])
def test_of_a_client_that_does_not_read_only_so_much_is_read_and_then_all_is_answered(era, what):
    many = 1_500

    def question(wire):
        wire.open(era)
        asked = [wire.call("say", era=era, text="x" * 1_000) for _ in range(many)]
        lines = asked if what == "requests" else [b"bad" * 400 + b"\n"] * 3_000
        size = sum(len(encoded(line)) for line in lines)
        rest = flood(wire, lines)
        # Two pipes, what is under way, and a chunk; not more.
        assert 0 < size - len(rest) < 600_000
        sender = threading.Thread(target=wire.send, args=[rest])
        sender.start()
        told = [wire.read() for _ in lines]
        sender.join(PATIENCE)
        if what == "requests":
            assert sorted(answer["id"] for answer in told) == [one["id"] for one in asked]
            assert all("result" in answer for answer in told)
        else:
            assert {answer["error"]["code"] for answer in told} == {PARSE}
        wire.send(wire.call("say", era=era, text="last"))
        return "last" in str(wire.read()["result"])

    assert serving(question, {"say": say}, requests=20)


class Counting:
    """A tool that counts how many calls of it run at once."""

    def __init__(self):
        self.running = self.most = 0

    async def __call__(self, context, arguments):
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1
        return ""


@ERAS
def test_requests_beyond_the_most_wait_and_none_is_lost(era):
    count = Counting()

    def question(wire):
        wire.open(era)
        asked = [wire.call("count", era=era) for _ in range(100)]
        wire.send(*asked)
        told = [wire.read() for _ in asked]
        assert {answer["id"] for answer in told} == {one["id"] for one in asked}
        return all("result" in answer for answer in told)

    assert serving(question, {"count": count}, requests=3)
    assert count.most == 3


@ERAS
def test_large_requests_beyond_the_most_bytes_wait(era):
    count = Counting()

    def question(wire):
        wire.open(era)
        asked = [wire.call("count", era=era, text="x" * 10_000) for _ in range(20)]
        sender = threading.Thread(target=wire.send, args=asked)
        sender.start()
        told = [wire.read() for _ in asked]
        sender.join(PATIENCE)
        return all("result" in answer for answer in told)

    assert serving(question, {"count": count}, requests_bytes=15_000)
    assert count.most == 2


@ERAS
def test_a_cancelled_request_makes_room_for_another(era):
    async def hang(context, arguments):
        await asyncio.Event().wait()

    def question(wire):
        wire.open(era)
        for _ in range(20):
            asked = wire.call("hang", era=era)
            params = {"requestId": asked["id"]}
            wire.send(asked)
            wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        wire.send(wire.call("say", era=era, text="last"))
        return "last" in str(wire.read()["result"])

    assert serving(question, {"hang": hang, "say": say}, requests=2)


def test_what_the_client_is_asked_is_heard_however_much_is_under_way():
    schema = {"type": "object", "properties": {}}

    async def ask(context, arguments):
        return (await context.session.elicit_form("May I?", schema)).action

    def question(wire):
        hello = raw.initialize(0)
        hello["params"]["capabilities"] = {"elicitation": {"form": {}}}
        wire.send(hello, READY)
        assert wire.read()["id"] == 0
        asked, other = wire.call("ask", era=LEGACY), wire.call("ask", era=LEGACY)
        wire.send(asked)
        asking = wire.read()
        assert asking["method"] == "elicitation/create"
        wire.send(other)
        refused = wire.read()
        assert (refused["id"], refused["error"]["code"]) == (other["id"], INTERNAL)
        wire.send({"jsonrpc": "2.0", "id": asking["id"], "result": {"action": "decline"}})
        answer = wire.read()
        assert answer["id"] == asked["id"]
        return answer["result"]["content"][0]["text"]

    assert serving(question, {"ask": ask}, requests=1) == "decline"


@ERAS
def test_an_answer_that_nobody_reads_stops_nothing_but_the_wire(era):
    size = 5 << 20

    def question(wire):
        wire.open(era)
        asked = [wire.call("large", era=era, size=size), wire.call("say", era=era, text="b")]
        wire.send(*asked)
        assert wire.is_told()
        # The loop is alive though the answer does not fit.
        alive = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, True), wire.loop)
        assert alive.result(PATIENCE)
        told = {answer["id"]: answer for answer in (wire.read(), wire.read())}
        first, second = [told[one["id"]]["result"]["content"][0]["text"] for one in asked]
        return (len(first), second)

    assert serving(question, {"large": large, "say": say}) == (size, "b")


@ERAS
def test_a_client_that_hangs_up_with_answers_unread_lets_it_end(era):
    def question(wire):
        wire.open(era)
        wire.send(*[wire.call("large", era=era, size=300_000) for _ in range(3)])
        return wire.is_told()

    assert serving(question, {"large": large})


@ERAS
def test_a_client_that_hangs_up_and_reads_on_gets_all_that_is_answered(era):
    size = 3 << 20

    def question(wire):
        wire.open(era)
        asked = [wire.call("large", era=era, size=size) for _ in range(3)]
        wire.send(*asked)
        wire.hang_up()
        told = [wire.read() for _ in asked]
        assert {answer["id"] for answer in told} == {one["id"] for one in asked}
        return {len(answer["result"]["content"][0]["text"]) for answer in told}

    assert serving(question, {"large": large}, leaving_seconds=PATIENCE) == {size}


@ERAS
def test_a_call_that_takes_longer_than_its_client_talks_is_answered(era):
    wires = []

    async def outlast(context, arguments):
        hung_up = select.poll()
        hung_up.register(wires[0].given, 0)  # Told of the end alone, not of what could be read.
        assert await asyncio.to_thread(hung_up.poll, PATIENCE * 1_000)
        for _ in range(20):  # Time to see it.
            await asyncio.sleep(0)
        return "late"

    def question(wire):
        wires.append(wire)
        wire.open(era)
        wire.send(wire.call("outlast", era=era))
        wire.hang_up()
        return wire.read()["result"]["content"][0]["text"]

    assert serving(question, {"outlast": outlast}, leaving_seconds=PATIENCE) == "late"


def test_a_client_that_listens_and_hangs_up_is_not_waited_for():
    def question(wire):
        wire.send(raw.message("subscriptions/listen", notifications={"toolsListChanged": True}))
        return wire.read()["method"]

    # It ends within PATIENCE all the same.
    told = serving(question, {}, leaving_seconds=100 * PATIENCE)
    assert told == "notifications/subscriptions/acknowledged"


@ERAS
def test_an_answer_that_is_no_json_is_an_error_and_the_next_one_comes(era):
    async def half(context, arguments):
        return "\ud800"

    def question(wire):
        wire.open(era)
        asked = wire.call("half", era=era)
        wire.send(asked)
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (asked["id"], INTERNAL)
        wire.send(wire.call("say", era=era, text="last"))
        return "last" in str(wire.read()["result"])

    assert serving(question, {"half": half, "say": say})
