"""Calls that are answered without the SDK: the answers are those that the SDK would give."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callpact import Catalog, Context, Identity, Runtime, Tool, ToolError, local_envelope, tool
from callpact.envelope import MCPResponseMeta, ResponseEnvelope
from callpact.serve import Authentication, BearerToken, Door, identify, serve_http
from callpact.serve.mcp import direct_calls, session_calls
from callpact.serve.stdio.stdio_server import serve_lines
from callpact.sources import from_functions
from callpact.tool import Contract

ERA = "2026-07-28"
META = "io.modelcontextprotocol"
ADA, EVE = "ada-0123456789abcdef", "eve-0123456789abcdef"
CLIENT = {"name": "probe", "version": "1"}


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(access=["admin"])
async def secret() -> str:
    """For administrators."""
    return "tea"


@tool
async def anything(kind: str):
    """Give something of a kind."""
    values = {
        "text": "é\u2028 ",
        "object": {"a": [1, None, True], "é": {"": 0.1}},
        "list": ["x", 2],
        "null": None,
        "bytes": b"\x00\xff",
        "huge": 10**400,
        "surrogate": "\ud800",
        "deep": nested(300),
        "large": [{"row": number, "text": "x" * 100} for number in range(3000)],
    }
    return values[kind]


@tool
async def fail(how: str) -> int:
    """Fail."""
    if how == "tool":
        raise ToolError("sold_out", "No tea left", path="/how")
    if how == "output":
        return "no number"  # pyright: ignore[reportReturnType]
    raise RuntimeError("the password is tea")


@tool(timeout=0.05)
async def slow() -> None:
    """Take longer than it may."""
    await asyncio.sleep(20)


@tool
async def talk(context: Context) -> str:
    """Report progress, which needs the client."""
    await context.progress(1, 2)
    return "said"


async def _relayed(arguments, context):
    block = {"type": "text", "text": 5} if arguments.get("bad") else {"type": "text", "text": "5"}
    meta = MCPResponseMeta(is_error=False, content=[block])
    return ResponseEnvelope([block], meta)


RELAYED = Tool(
    id="t.relayed",
    description="Blocks of another server.",
    contract=Contract(),
    handler=_relayed,
    uses_client=False,
)
ROUTED = Tool(
    id="t.routed",
    description="An argument that is repeated in a header.",
    contract=Contract(
        input={
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }
    ),
    handler=lambda arguments, context: asyncio.sleep(0, local_envelope(arguments, "t.routed")),
    uses_client=False,
)
TOOLS = (*from_functions(add, secret, anything, fail, slow, talk, namespace="t"), RELAYED, ROUTED)


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


async def _pass(context, call_next):
    return await call_next(context)


@contextlib.asynccontextmanager
async def served(*, direct, rendering="mcp"):
    """Serve over HTTP with two tokens; yields the address."""
    tokens = (
        BearerToken.of(ADA, Identity("ada", ("admin",))),
        BearerToken.of(EVE, Identity("eve")),
    )
    async with Runtime(Catalog(TOOLS)) as runtime:
        door = Door(runtime, name="house", version="3", identity=identify, rendering=rendering)
        if not direct:
            door.server.middleware.append(_pass)
        assert door.has_direct_calls is direct
        place = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(
            serve_http(
                door.server,
                port=0,
                authentication=Authentication(tokens),
                on_ready=place.set_result,
            )
        )
        try:
            yield await place
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            await door.aclose()


def request(name, arguments=None, *, token=ADA, drop=(), headers=(), meta=(), params=(), more=()):
    """The headers and the body of a call, with changes."""
    body = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": name,
            **({} if arguments is None else {"arguments": arguments}),
            "_meta": {
                f"{META}/protocolVersion": ERA,
                f"{META}/clientInfo": CLIENT,
                f"{META}/clientCapabilities": {},
                **dict(meta),
            },
            **dict(params),
        },
        **dict(more),
    }
    sent = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": ERA,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
        **dict(headers),
    }
    return {key: value for key, value in sent.items() if key not in drop}, body


async def ask(session, address, sent):
    headers, body = sent
    pairs = [
        (key, one)
        for key, value in headers.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    async with session.post(address, data=json.dumps(body), headers=pairs) as response:
        kind = response.headers.get("content-type", "")
        text = await response.text()
        if "event-stream" in kind:
            events = [line[6:] for line in text.split("\r\n") if line.startswith("data: ")]
            return response.status, kind, [json.loads(event) for event in events]
        return response.status, kind, json.loads(text) if text else text


def steady(answer):
    """An answer without the ids and times that differ from run to run."""
    status, kind, body = answer
    text = re.sub(r"[\w-]{22,}", "<id>", json.dumps(body, sort_keys=True))
    return status, kind, re.sub(r'(deadline\\?": ?)[\d.]+', r"\g<1>0", text)


KNOWN = [
    request("t_add", {"a": 1, "b": 2}),
    request("t.add", {"a": 1, "b": 2}),
    request("t_add", {"a": "x", "b": 2}),
    request("t_add", {}),
    request("t_add"),
    request("t_secret", {}),
    request("t_secret", {}, token=EVE),
    *(
        request("t_anything", {"kind": kind})
        for kind in ("text", "object", "list", "null", "bytes", "huge", "surrogate", "deep")
    ),
    request("t_fail", {"how": "tool"}),
    request("t_fail", {"how": "output"}),
    request("t_fail", {"how": "crash"}),
    request("t_slow", {}),
    request("t_relayed", {}),
    request("t_relayed", {"bad": True}),
    request("t_add", {"a": 1, "b": 2}, more={"id": "seven"}),
    request("t_add", {"a": 1, "b": 2}, meta={f"{META}/clientInfo": None}),
    request("t_add", {"a": 1, "b": 2}, meta={"progressToken": 3, "vendor/id": {"a": 1}}),
]
"""Calls that the direct way takes."""
OTHERS = [
    request("t_talk", {}),
    request("t_talk", {}, meta={"progressToken": 3}),
    request("t_add", {"a": 1, "b": 2}, meta={"progressToken": 0.5}),
    request("t_add", {"a": 1, "b": 2}, meta={"progressToken": True}),
    request("t_add", {"a": 1, "b": 2}, meta={"other": 1}),
    request("t_add", {"a": 1, "b": 2}, meta={f"{META}/logLevel": "debug"}),
    request("t_none", {}),
    request("t_routed", {"region": "eu"}),
    request("t_routed", {"region": "eu"}, headers={"Mcp-Param-Region": "eu"}),
    request("t_routed", {"region": "eu"}, headers={"Mcp-Param-Region": "us"}),
    request("t_add", {"a": 1, "b": 2}, headers={"Mcp-Param-Region": "us"}),
    request("t_add", {"a": 1, "b": 2}, headers={"Mcp-Name": "t_secret"}),
    request("t_add", {"a": 1, "b": 2}, headers={"Mcp-Name": ["t_add", "t_add"]}),
    request("t_add", {"a": 1, "b": 2}, headers={"Mcp-Name": "=?base64?dF9hZGQ=?="}),
    request("t_add", {"a": 1, "b": 2}, headers={"Mcp-Method": "tools/list"}),
    request("t_add", {"a": 1, "b": 2}, drop=["Mcp-Name"]),
    request("t_add", {"a": 1, "b": 2}, drop=["Mcp-Method"]),
    request("t_add", {"a": 1, "b": 2}, drop=["MCP-Protocol-Version"]),
    request("t_add", {"a": 1, "b": 2}, headers={"MCP-Protocol-Version": "2031-01-01"}),
    request("t_add", {"a": 1, "b": 2}, headers={"Accept": "application/json"}),
    request("t_add", {"a": 1, "b": 2}, headers={"Accept": "text/plain"}),
    request("t_add", {"a": 1, "b": 2}, headers={"Accept": "*/*"}),
    request("t_add", {"a": 1, "b": 2}, drop=["Authorization"]),
    request("t_add", [1, 2]),
    request("t_add", {"a": 1, "b": 2}, meta={f"{META}/protocolVersion": "2031-01-01"}),
    request("t_add", {"a": 1, "b": 2}, meta={f"{META}/clientInfo": {"name": 5}}),
    request("t_add", {"a": 1, "b": 2}, meta={f"{META}/clientInfo": "probe"}),
    request("t_add", {"a": 1, "b": 2}, meta={f"{META}/clientCapabilities": []}),
    request("t_add", {"a": 1, "b": 2}, params={"_meta": {}}),
    request("t_add", {"a": 1, "b": 2}, params={"_meta": None}),
    request("t_add", {"a": 1, "b": 2}, params={"name": None}),
    request("t_add", {"a": 1, "b": 2}, params={"requestState": "x"}),
    request("t_add", {"a": 1, "b": 2}, params={"task": {"ttl": 5}}),
    request("t_add", {"a": 1, "b": 2}, more={"params": []}),
    request("t_add", {"a": 1, "b": 2}, more={"extra": 1}),
    request("t_add", {"a": 1, "b": 2}, more={"id": True}),
    request("t_add", {"a": 1, "b": 2}, more={"method": "ping"}),
]
"""Requests that only the SDK judges."""


async def _both(requests, **options):
    answers = []
    for direct in (True, False):
        async with served(direct=direct, **options) as address, aiohttp.ClientSession() as session:
            answers.append([steady(await ask(session, address, sent)) for sent in requests])
    return answers


@pytest.mark.parametrize("rendering", ["mcp", "flowmcp"])
def test_every_answer_is_the_one_of_the_sdk(rendering, caplog):
    caplog.set_level(logging.CRITICAL)
    ours, theirs = asyncio.run(_both([*KNOWN, *OTHERS], rendering=rendering))
    for sent, mine, other in zip([*KNOWN, *OTHERS], ours, theirs, strict=True):
        assert mine == other, sent


def test_a_large_result_comes_in_the_same_pages():
    ours, theirs = asyncio.run(_both([request("t_anything", {"kind": "large"})]))
    assert ours == theirs
    assert "callpact/page" in ours[0][2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "arguments": JSON,
        "meta": st.dictionaries(
            st.sampled_from(
                [f"{META}/{key}" for key in ("protocolVersion", "clientInfo", "clientCapabilities")]
                + ["progressToken", "x"]
            ),
            JSON,
            max_size=2,
        ),
        "params": st.dictionaries(st.sampled_from(["name", "arguments", "_meta", "x"]), JSON),
        "more": st.dictionaries(st.sampled_from(["id", "params", "x"]), JSON, max_size=1),
        "drop": st.lists(st.sampled_from(["Accept", "Mcp-Name", "Mcp-Method"]), max_size=1),
    },
)


@settings(max_examples=12)
@given(st.lists(CHANGES, min_size=1, max_size=40))
def test_any_request_gets_the_same_answer_either_way(changes):
    arguments = {"arguments": {"a": 1, "b": 2}}
    requests = [request("t_add", **{**arguments, **change}) for change in changes]
    ours, theirs = asyncio.run(_both(requests))
    assert ours == theirs


def _is_direct(monkeypatch, requests):
    """Whether each request is answered without the SDK."""
    taken = []
    original = Door.answer

    async def answer(door, direct):
        taken[-1] = True
        return await original(door, direct)

    monkeypatch.setattr(Door, "answer", answer)

    async def run():
        async with served(direct=True) as address, aiohttp.ClientSession() as session:
            for sent in requests:
                taken.append(False)
                await ask(session, address, sent)

    asyncio.run(run())
    return taken


def test_only_known_requests_for_quiet_tools_are_answered_directly(monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL)
    taken = _is_direct(monkeypatch, [*KNOWN, *OTHERS])
    assert taken == [True] * len(KNOWN) + [False] * len(OTHERS)


def test_a_call_with_an_idempotency_key_is_not_answered_directly():
    keyed = {"callpact/idempotencyKey": "one"}
    body = request("t_add", {"a": 1, "b": 2})[1]
    assert direct_calls.read_call(body) is not None
    assert direct_calls.read_call(request("t_add", {"a": 1, "b": 2}, meta=keyed)[1]) is None
    body = request("t_add", {"a": 1, "b": 2}, params={"_meta": keyed})[1]
    assert direct_calls.read_handshake_call(body, HANDSHAKE, "") is None


# --- over stdio -------------------------------------------------------------------------------


async def _lines(requests, *, direct, modern):
    """The answers to requests over two pipes, by their ids; the first exchange is the SDK's."""
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    first = request("t_add", {"a": 0, "b": 0}, more={"id": "first"})[1]
    if not modern:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
        first = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": hello}
    async with Runtime(Catalog(TOOLS)) as runtime:
        door = Door(runtime, name="house", version="3", identity=Identity("ada", ("admin",)))
        door.writes_lines = True
        if not direct:
            door.server.middleware.append(_pass)
        serving = asyncio.ensure_future(serve_lines(door.server, their_in, their_out))
        with os.fdopen(our_in, "rb") as answers, os.fdopen(our_out, "wb", 0) as pipe:
            pipe.write(json.dumps(first).encode() + b"\n")
            await asyncio.to_thread(answers.readline)
            if not modern:
                pipe.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            found = []
            for number, sent in enumerate(requests):
                pipe.write(json.dumps({**sent, "id": number}).encode() + b"\n")
                answer = {}
                while answer.get("id") != number:  # Other lines are progress.
                    answer = json.loads(await asyncio.to_thread(answers.readline))
                found.append(answer)
        await serving
        os.close(their_in)
        os.close(their_out)
    return found


@pytest.mark.parametrize("modern", [True, False])
def test_every_answer_over_stdio_is_the_one_of_the_sdk(modern, caplog):
    caplog.set_level(logging.CRITICAL)
    requests = [body for _, body in [*KNOWN, *OTHERS] if body["id"] is not True]
    if not modern:
        requests += [without_meta(body) for body in requests]
    ours, theirs = (
        asyncio.run(_lines(requests, direct=direct, modern=modern)) for direct in (True, False)
    )
    for sent, mine, other in zip(requests, ours, theirs, strict=True):
        assert steady((0, "", mine)) == steady((0, "", other)), sent


def without_meta(body):
    params = body["params"]
    if not isinstance(params, dict):
        return body
    return {**body, "params": {key: value for key, value in params.items() if key != "_meta"}}


@pytest.fixture
def taken(monkeypatch):
    """The calls that are answered without the SDK."""
    calls = []
    original = Door.answer

    async def answer(door, direct):
        calls.append(direct.call)
        return await original(door, direct)

    monkeypatch.setattr(Door, "answer", answer)
    return calls


@pytest.mark.parametrize("modern", [True, False])
def test_calls_over_stdio_are_answered_directly(modern, taken):
    body = request("t_add", {"a": 1, "b": 2})[1]
    sent = body if modern else without_meta(body)
    asyncio.run(_lines([sent], direct=True, modern=modern))
    assert [call.via for call in taken] == [f"mcp {ERA if modern else '2025-11-25'}"]


def test_an_id_is_free_again_over_stdio_once_its_call_has_ended(taken):
    lines = [json.dumps(request("t_add", {"a": 1, "b": b})[1]) for b in range(3)]
    assert [each["id"] for each in asyncio.run(_exchanged(lines))] == [7, 7, 7]
    assert [call.tool_id for call in taken] == ["t_add"] * 2  # The first one decides the era.


def test_a_second_handshake_over_stdio_counts_from_its_confirmation_on(taken):
    def hello(era):
        params = {"protocolVersion": era, "capabilities": {}, "clientInfo": CLIENT}
        return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params})

    ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    call = json.dumps(without_meta(request("t_add", {"a": 1, "b": 2})[1]))
    lines = [hello("2025-11-25"), ready, call, hello("2025-06-18"), call, ready, call]
    asyncio.run(_exchanged(lines))
    assert [each.via for each in taken] == ["mcp 2025-11-25", "mcp 2025-06-18"]


async def _exchanged(lines):
    """The responses to lines over stdio, each sent when the one before it has its response."""
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    async with Runtime(Catalog(TOOLS)) as runtime:
        door = Door(runtime)
        door.writes_lines = True
        serving = asyncio.ensure_future(serve_lines(door.server, their_in, their_out))
        found = []
        with os.fdopen(our_in, "rb") as answers, os.fdopen(our_out, "wb", 0) as pipe:
            for line in lines:
                pipe.write(line.encode() + b"\n")
                if "id" in json.loads(line):
                    found.append(json.loads(await asyncio.to_thread(answers.readline)))
        await serving
        os.close(their_in)
        os.close(their_out)
    return found


# --- sessions over HTTP -----------------------------------------------------------------------

HANDSHAKE = "2025-11-25"


def in_session(sent, opened, **headers):
    """A request as a client of the handshake era sends it in its session."""
    given, body = sent
    kept = {key: value for key, value in given.items() if not key.startswith("Mcp-")}
    return {**kept, "MCP-Protocol-Version": HANDSHAKE, **opened, **headers}, body


def message(method, **params):
    """A notification, with the headers of a call."""
    return request("")[0], {"jsonrpc": "2.0", "method": method, "params": params}


async def opened_session(session, address):
    """Open a session; returns its header."""
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    headers, _ = in_session(request(""), {})
    async with session.post(address, json=opening, headers=headers) as response:
        await response.read()
        opened = {"Mcp-Session-Id": response.headers["mcp-session-id"]}
    await ask(session, address, in_session(message("notifications/initialized"), opened))
    # The SDK handles messages in order: it has noted the handshake when it answers this one.
    ping = request("", more={"method": "ping", "params": {}})
    await ask(session, address, in_session(ping, opened))
    return opened


def messages(answer):
    """Status and messages of an answer, in either form."""
    status, _, body = answer
    return steady((status, "", body if isinstance(body, list) else [body]))


async def _in_sessions(requests, *, direct):
    async with served(direct=direct) as address, aiohttp.ClientSession() as session:
        opened = await opened_session(session, address)
        return [
            messages(await ask(session, address, in_session(sent, opened))) for sent in requests
        ]


SESSION_REQUESTS = [
    *(
        [headers, without_meta(body)]
        for headers, body in KNOWN
        if headers["Authorization"][7:] == ADA
    ),
    *([headers, without_meta(body)] for headers, body in OTHERS if "Authorization" in headers),
    request("t_add", {"a": 1, "b": 2}, params={"_meta": {"progressToken": 3, "vendor/id": "x"}}),
    request("t_add", {"a": 1, "b": 2}, params={"_meta": {"progressToken": []}}),
    request("t_add", {"a": 1, "b": 2}, params={"_meta": []}),
    request("t_add", {"a": 1, "b": 2}, params={"_meta": {"vendor/deep": nested(250)}}),
    request("t_add", {"a": 1, "b": 2}, headers={"Accept": ["application/json", "text/plain"]}),
    *(
        request("t_add", {"a": 1, "b": 2}, params={"_meta": {}}, headers={"Content-Type": kind})
        for kind in ("Application/JSON", "application/json; charset=utf-8")
    ),
]


def test_every_answer_in_a_session_is_the_one_of_the_sdk(caplog):
    caplog.set_level(logging.CRITICAL)
    ours, theirs = (
        asyncio.run(_in_sessions(SESSION_REQUESTS, direct=direct)) for direct in (True, False)
    )
    for sent, mine, other in zip(SESSION_REQUESTS, ours, theirs, strict=True):
        assert mine == other, sent


@settings(max_examples=8)
@given(st.lists(CHANGES, min_size=1, max_size=30))
def test_any_request_in_a_session_gets_the_same_answer_either_way(changes):
    arguments = {"arguments": {"a": 1, "b": 2}}
    requests = [request("t_add", **{**arguments, **change}) for change in changes]
    requests = [(headers, without_meta(body)) for headers, body in requests] + requests
    ours, theirs = (asyncio.run(_in_sessions(requests, direct=direct)) for direct in (True, False))
    assert ours == theirs


async def _kinds(*requests):
    """Status and content type of the answers in one session, and the sessions of the server."""
    async with served(direct=True) as address, aiohttp.ClientSession() as session:
        opened = await opened_session(session, address)
        return [(await ask(session, address, in_session(sent, opened)))[:2] for sent in requests]


ADDING = (request("t_add")[0], without_meta(request("t_add", {"a": 1, "b": 2})[1]))


def test_a_call_in_a_session_is_answered_as_json_without_the_sdk():
    talking = (ADDING[0], without_meta(request("t_talk", {})[1]))
    assert asyncio.run(_kinds(ADDING, talking)) == [
        (200, "application/json"),
        (200, "text/event-stream"),
    ]


def test_a_session_is_renewed_through_the_sdk(monkeypatch):
    monkeypatch.setattr(session_calls, "RENEW_SECONDS", -1.0)
    assert asyncio.run(_kinds(ADDING)) == [(200, "text/event-stream")]


def test_a_session_is_its_openers_alone_and_ends_with_delete():
    async def run():
        async with served(direct=True) as address, aiohttp.ClientSession() as session:
            opened = await opened_session(session, address)
            mine = in_session(ADDING, opened)
            theirs = in_session(ADDING, opened, Authorization=f"Bearer {EVE}")
            found = [(await ask(session, address, sent))[0] for sent in (mine, theirs, mine)]
            headers = {key: value for key, value in mine[0].items() if key != "Content-Type"}
            async with session.delete(address, headers=headers) as response:
                found.append(response.status)
            return [*found, (await ask(session, address, mine))[0]]

    assert asyncio.run(run()) == [200, 404, 200, 200, 404]


@pytest.mark.parametrize("other", ["path", "revision", "caller"])
def test_a_session_stays_when_a_request_beside_it_is_not_found(other):
    async def run():
        async with served(direct=True) as address, aiohttp.ClientSession() as session:
            opened = await opened_session(session, address)
            headers, body = in_session(ADDING, opened)
            if other == "path":
                address_then = address + "/elsewhere"
            elif other == "revision":
                address_then = address
                named, body = request("", more={"method": "no/such"})
                headers = {**named, "Mcp-Method": "no/such", **opened}
            else:
                address_then = address
                headers = {**headers, "Authorization": f"Bearer {EVE}"}
            async with session.post(address_then, json=body, headers=headers) as response:
                found = response.status
            return found, (await ask(session, address, in_session(ADDING, opened)))[:2]

    assert asyncio.run(run()) == (404, (200, "application/json"))


def test_a_second_handshake_in_a_session_counts_from_its_confirmation_on():
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    again = request("", more={"method": "initialize", "params": hello})
    newer = {"MCP-Protocol-Version": "2025-06-18"}

    async def run():
        async with served(direct=True) as address, aiohttp.ClientSession() as session:
            opened = await opened_session(session, address)

            async def kind(sent, **headers):
                return (await ask(session, address, in_session(sent, opened, **headers)))[1]

            await kind(again)
            found = [await kind(ADDING)]
            await kind(message("notifications/initialized"), **newer)
            await kind(request("", more={"method": "ping", "params": {}}), **newer)
            return [*found, await kind(ADDING), await kind(ADDING, **newer)]

    streamed = "text/event-stream"
    assert asyncio.run(run()) == [streamed, streamed, "application/json"]


@pytest.mark.parametrize("how", ["cancelled", "cancelled as text", "ended", "gone"])
def test_a_call_in_a_session_ends_with_its_cancellation_or_its_session(how):
    async def run():
        async with hanging() as (address, seen, go_on), aiohttp.ClientSession() as session:
            opened = await opened_session(session, address)
            sent = in_session((ADDING[0], without_meta(request("t_wait", {})[1])), opened)
            asking = asyncio.ensure_future(ask(session, address, sent))
            async with asyncio.timeout(20):
                while "begun" not in seen:
                    await asyncio.sleep(0.01)
                if how == "gone":  # Its end is none of the call's.
                    asking.cancel()
                    await asyncio.sleep(0.3)
                    go_on.set()
                    return seen, None
                if how != "ended":
                    cancelled = 7 if how == "cancelled" else "7"  # One id to the SDK.
                    cancel = message("notifications/cancelled", requestId=cancelled)
                    await ask(session, address, in_session(cancel, opened))
                else:
                    headers = {k: v for k, v in sent[0].items() if k != "Content-Type"}
                    await (await session.delete(address, headers=headers)).read()
                return seen, await asking

    seen, answer = asyncio.run(run())
    if how == "gone":
        assert seen == ["begun"]
    else:
        assert seen == ["begun", "cancelled"]
        if how == "ended":
            assert answer == (200, "text/event-stream", [])
        else:
            assert answer[2]["error"] == {"code": -32800, "message": "Request cancelled"}


# --- calls that take long ---------------------------------------------------------------------


@contextlib.asynccontextmanager
async def hanging():
    """A server with one tool that waits; yields the address and how its calls went."""
    seen, go_on = [], asyncio.Event()

    async def wait() -> str:
        seen.append("begun")
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            go_on.set()
            raise
        return "done"

    async with Runtime(Catalog(from_functions(wait, namespace="t"))) as runtime:
        door = Door(runtime)
        place = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve_http(door.server, port=0, on_ready=place.set_result))
        try:
            yield await place, seen, go_on
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


def test_a_client_that_leaves_ends_its_call():
    async def run():
        async with hanging() as (address, seen, go_on), aiohttp.ClientSession() as session:
            asking = asyncio.ensure_future(ask(session, address, request("t_wait", {})))
            async with asyncio.timeout(20):
                while "begun" not in seen:
                    await asyncio.sleep(0.01)
                asking.cancel()
                await go_on.wait()
            return seen

    assert asyncio.run(run()) == ["begun", "cancelled"]


def test_a_long_call_is_a_stream_with_pings(monkeypatch):
    monkeypatch.setattr(direct_calls, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(direct_calls, "PING_SECONDS", 0.02)

    async def run():
        async with hanging() as (address, _, go_on), aiohttp.ClientSession() as session:
            headers, body = request("t_wait", {})
            async with (
                asyncio.timeout(20),
                session.post(address, json=body, headers=headers) as response,
            ):
                lines = [await response.content.readline()]
                go_on.set()
                lines += (await response.content.read()).splitlines()
                return response.headers["content-type"], lines

    kind, lines = asyncio.run(run())
    assert kind == "text/event-stream"
    assert lines[0] == b": ping\r\n"
    (event,) = (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
    assert event["id"] == 7
    assert event["result"]["content"] == [{"type": "text", "text": '"done"'}]


class _Broken(Runtime):
    """A runtime with a fault of ours."""

    async def call(self, *args, **more):
        raise LookupError("inside")


def test_a_fault_of_ours_is_an_internal_error_without_its_text(caplog):
    async def go():
        door = Door(_Broken(Catalog(from_functions(add, namespace="t"))), name="t", version="1")
        read = direct_calls.ReadCall("t_add", {"a": 1, "b": 2}, ERA, "probe 1")
        return await door.answer(door.direct({"type": "http", "headers": []}, read))

    with caplog.at_level(logging.ERROR):
        answer = asyncio.run(go())
    assert answer == {"error": {"code": -32603, "message": "Internal error"}}
    assert "inside" in caplog.text
