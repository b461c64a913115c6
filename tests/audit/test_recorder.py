"""Every call is one masked line in the journal, whatever it held and whatever became of it."""

import asyncio
import json

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_record import (
    KEY,
    LIMIT,
    PASSWORD,
    SECRET_INPUT,
    Foreign,
    call,
    echo,
    finished,
    raw,
    recorded,
    tool,
    written,
)

from callpact import Call, CallError, Contract, Identity, Runtime, Tool, ToolError
from callpact.audit import Payload, Record, Recorder
from callpact.audit.journal.recorder import hash_contract
from callpact.audit.journal.segments import Journal
from callpact.audit.record import (
    MAX_PAYLOAD_BYTES,
    MAX_RECORDED_ISSUES,
    MAX_RECORDED_TEXT,
    MAX_RECORDED_TRACE,
    payload_of,
)
from callpact.context import LogLine
from callpact.envelope import (
    HTTPResponseMeta,
    LocalResponseMeta,
    ResponseEnvelope,
    http_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.errors import AccessDenied, InvalidInput, Issue, OutputRejected, UnknownTool
from callpact.observers import CallFinished
from callpact.schema import Change
from callpact.secrets import Secrets


def test_a_result_is_on_record_with_all_there_is(tmp_path):
    contract = Contract(output={"type": "object"}, policy="warn")
    kept = tool(contract=contract, kind="query", version="1.2.0")
    each = Call(
        *("shop.search", {"q": "é"}, "call-9", "call-8"),
        via="mcp 2026-07-28",
        client_name="claude-code 2.1.0",
    )
    (record,) = call(tmp_path, [kept], [each])
    assert record == Record(
        "call-9",
        record.at,
        record.ms,
        "shop.search",
        "query",
        "1.2.0",
        hash_contract(contract),
        "warn",
        source="local",
        caller="ann",
        client="claude-code 2.1.0",
        via="mcp 2026-07-28",
        parent="call-8",
        input=Payload("", 10, '{"q":"é"}'),
        output=Payload("", 10, '{"q":"é"}'),
    )
    assert record.at > 1_600_000_000_000
    assert 0 < record.ms < 60_000


def test_a_refusal_is_on_record_with_its_input_its_issues_and_its_key(tmp_path):
    kept = tool(contract=Contract(input=LIMIT))
    (record,) = call(tmp_path, [kept], [Call("shop.search", {"limit": 80})])
    assert (record.gate, record.code, record.path) == (
        "input",
        "schema_validation_failed",
        "/limit",
    )
    assert record.key == "schema_validation_failed:/limit:maximum"
    assert [(note.code, note.path) for note in record.issues] == [("maximum", "/limit")]
    assert record.message == record.issues[0].message
    assert "50" in record.message
    assert record.input == Payload("", 12, '{"limit":80}')
    assert record.output is None


def test_an_answer_that_the_contract_refused_is_on_record_without_secrets(tmp_path):
    async def answer(_arguments, _context):
        return {"price": "free", "note": f"by {KEY}"}

    contract = Contract(output={"properties": {"price": {"type": "number"}}}, policy="reject")
    kept = tool(answer, contract=contract)
    (record,) = call(tmp_path, [kept], [Call("shop.search", {})], secrets=Secrets({"KEY": KEY}))
    assert (record.gate, record.code) == ("output", "output_validation_failed")
    assert json.loads(record.output.json) == {"price": "free", "note": "by ***"}
    assert [(note.code, note.path) for note in record.issues] == [("type", "/price")]


def test_the_policy_on_record_is_the_one_that_was_in_force(tmp_path):
    kept = tool(contract=Contract(output={"type": "object"}, policy="warn"))
    calls = [Call("shop.search", {}), Call("shop.search", {}, policy="reject")]
    assert [record.policy for record in call(tmp_path, [kept], calls)] == ["warn", "reject"]


LOGS = [LogLine("info", "asked"), LogLine("warning", "asked again")]
SERVER = {"io.modelcontextprotocol/serverInfo": {"name": "weather", "version": "2.0"}}


@pytest.mark.parametrize("secrets", [(), Secrets({"KEY": KEY})])
@pytest.mark.parametrize("more", [{}, {"policy": "reject", "count": 3, "parent_id": "call-0"}])
def test_a_line_that_is_made_quickly_gives_the_record_that_care_gives(tmp_path, more, secrets):
    """The same events, plain and with a header in them: that one is not made quickly."""
    issues = (Issue("type", "must be text", "/items/3/name"), Issue("required", "is missing"))
    failed = InvalidInput(lambda: issues)
    ends = [
        {"data": {"a": [1, None, "é"]}},
        {"envelope": http_envelope(1, status_code=203, headers={}, content_type="a/b")},
        {"envelope": mcp_envelope(1, is_error=True, content=[])},
        {"envelope": ResponseEnvelope(1, LocalResponseMeta("a", 1), issues)},
        {
            "envelope": ResponseEnvelope(
                1, LocalResponseMeta("a", 1), (), (Change("/a", "cast", 1),)
            )
        },
        {"envelope": None, "error": failed},
        {"envelope": None, "error": OutputRejected(lambda: issues)},
        {"envelope": None, "error": AccessDenied()},
        {"envelope": None, "error": ToolError("full", "No room", path="/a")},
        {"envelope": None, "error": UnknownTool("shop.search"), "tool": None},
        {"envelope": mcp_envelope(1, is_error=False, content=[], meta_ext=SERVER)},
        {"data": 1, "logs": LOGS, "client_name": "cursor 1.4"},
        {"envelope": None, "error": failed, "logs": LOGS},
        {"envelope": None, "error": ToolError("full", "No room"), "logs": LOGS},
        {"envelope": None},
    ]
    quick, careful = [
        recorded(
            tmp_path / name,
            *[finished({"via": words}, identity=Identity("ann"), **end, **more) for end in ends],
            secrets=secrets,
        )
        for name, words in (("quick", "the door"), ("careful", "Cookie"))
    ]
    for name, begin in (("quick", b"["), ("careful", b"{")):
        assert {line[:1] for line in raw(tmp_path / name).splitlines()} == {begin}
    for one, other in zip(quick, careful, strict=True):
        assert json.loads(one.input.json) == {"via": "the door"}
        assert msgspec.structs.replace(one, input=None) == msgspec.structs.replace(
            other, input=None
        )


def test_what_was_refused_is_on_record_even_if_it_is_a_piece_of_broken_json(tmp_path):
    pieces = [{"a": orjson.Fragment(b"{\n")}, orjson.Fragment(b"]")]
    calls = [Call("shop.search", piece) for piece in pieces] + [Call("shop.none", pieces[0])]
    kept = call(tmp_path, [tool()], calls)
    assert [record.gate for record in kept] == ["input", "input", "find"]
    assert all(json.loads(record.input.json) for record in kept)


def test_each_gate_leaves_one_record(tmp_path):
    async def fail(_arguments, _context):
        raise ToolError("out_of_stock", "None left")

    async def wrong(_arguments, _context):
        return {"n": "x"}

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [
        Tool(id="a.fails", description="", contract=Contract(), handler=fail),
        Tool(id="a.closed", description="", contract=Contract(), handler=echo, access=["admin"]),
        Tool(
            id="a.wrong",
            description="",
            contract=Contract(output=schema, policy="reject"),
            handler=wrong,
        ),
    ]
    ids = ["a.missing", "a.closed", "a.fails", "a.wrong"]
    records = call(tmp_path, tools, [Call(name, {}) for name in ids])
    assert [record.tool for record in records] == ids
    assert [record.gate for record in records] == ["find", "access", "handler", "output"]
    assert [record.key for record in records] == [
        "tool_not_found::",
        "access_denied::",
        "out_of_stock::",
        "output_validation_failed:/n:type",
    ]
    assert records[0].kind == records[0].contract == ""


def test_the_source_and_the_status_are_those_of_the_answer(tmp_path):
    http = http_envelope(1, status_code=203, headers={"a": "b"}, content_type="text/plain")
    odd = ResponseEnvelope(1, HTTPResponseMeta("odd", {}, ""))
    mcp = mcp_envelope(1, is_error=False, content=[])
    records = recorded(tmp_path, *[finished(envelope=each) for each in (http, odd, mcp)])
    assert [(r.source, r.status) for r in records] == [("http", 203), ("http", None), ("mcp", None)]


def test_warnings_and_changes_are_on_record_within_bounds(tmp_path):
    warnings = tuple(Issue("type", "x" * 5_000, f"/{n}") for n in range(80))
    changes = (Change("/a", "replaced", 1, invented=True), Change("/b", "converted", "1"))
    envelope = ResponseEnvelope({}, LocalResponseMeta("a", 1), warnings, changes)
    (record,) = recorded(tmp_path, finished(envelope=envelope))
    assert len(record.warnings) == MAX_RECORDED_ISSUES
    assert {len(note.message) for note in record.warnings} == {1_000}
    assert [(c.code, c.path, c.message) for c in record.changes] == [
        ("replaced", "/a", "invented"),
        ("converted", "/b", ""),
    ]


def test_a_subscription_is_on_record_with_its_count(tmp_path):
    (record,) = recorded(tmp_path, finished({}, envelope=None, count=7))
    assert (record.count, record.output, record.gate) == (7, None, None)


def test_what_is_too_large_is_cut_and_hashed_whole(tmp_path):
    data = ["é" * MAX_PAYLOAD_BYTES]
    (record,) = recorded(tmp_path, finished({}, data))
    assert record.output == payload_of(json.dumps(data, ensure_ascii=False).encode())
    assert record.output.is_cut


def test_equal_contracts_have_one_hash_and_others_another():
    one, same = Contract(input=LIMIT), Contract(input=json.loads(json.dumps(LIMIT)))
    others = [Contract(), Contract(input=LIMIT, input_policy="tolerant"), Contract(output=LIMIT)]
    assert hash_contract(one) == hash_contract(same)
    assert len({hash_contract(contract) for contract in (one, *others)}) == 4


# --- whatever it holds ----------------------------------------------------------------------

texts = st.text(st.characters(), max_size=30)  # Half characters, too.
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**4999, max_value=10**5000),
    st.floats(),
    texts,
    st.binary(max_size=20),
    st.builds(object),
    st.builds(Foreign, texts),
    st.just(KEY),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(texts, st.integers(), st.binary(max_size=3)), inner, max_size=3),
        st.tuples(inner),
        st.frozensets(st.integers(), max_size=2),
    ),
    max_leaves=8,
)
issues = st.builds(Issue, texts, texts, texts, values, values)
envelopes = st.builds(
    ResponseEnvelope,
    values,
    st.sampled_from([LocalResponseMeta("a.b", 1), HTTPResponseMeta(None, {}, ""), None, "odd"]),
    st.lists(issues, max_size=2).map(tuple),
    st.lists(st.builds(Change, texts, texts, values, st.booleans()), max_size=2).map(tuple),
)
errors = st.one_of(
    st.builds(ToolError, texts, texts, path=st.none() | texts),
    st.builds(UnknownTool, texts),
    st.just(AccessDenied()),
    st.lists(issues, max_size=3).map(lambda found: InvalidInput(lambda: found)),
    st.lists(issues, max_size=3).map(lambda found: OutputRejected(lambda: found)),
)
events = st.builds(
    CallFinished,
    texts,
    texts,
    values,
    st.integers(min_value=0, max_value=2**53),
    st.floats(),
    st.none() | envelopes,
    st.none() | errors,
    st.none() | st.builds(Identity, texts),
    st.none() | texts,
    st.none() | st.integers(min_value=0, max_value=2**53),
    st.none()
    | st.sampled_from(
        [
            tool(),
            tool(contract=Contract(input=SECRET_INPUT, output=SECRET_INPUT)),
            tool(annotations={"audit": "hashes"}),
        ]
    ),
    texts,
)


@given(event=events)
def test_any_call_gives_exactly_one_line_that_is_a_record(tmp_path_factory, event):
    (record,) = recorded(tmp_path_factory.mktemp("j"), event, secrets=Secrets({"KEY": KEY}))
    assert record.gate == event.gate
    assert record.at == event.started
    assert record.input is not None
    for payload in (record.input, record.output):
        if payload is not None and payload.json is not None and not payload.is_cut:
            json.loads(payload.json)


@pytest.mark.parametrize("duration", [float("nan"), float("inf"), float("-inf"), 1e300])
@pytest.mark.parametrize("error", [None, AccessDenied()])
def test_a_time_that_is_no_number_leaves_a_record(tmp_path, duration, error):
    envelope = None if error else local_envelope(1, "a.b")
    event = CallFinished("i", "a.b", {}, 1, duration, envelope, error, tool=tool())
    (record,) = recorded(tmp_path, event)
    assert record.gate == event.gate


def test_an_error_is_on_record_even_beside_an_answer(tmp_path):
    (record,) = recorded(tmp_path, finished({}, {}, error=AccessDenied()))
    assert record.gate == "access"


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


def test_what_is_nested_without_end_or_cannot_be_shown_is_told(tmp_path):
    endless = {}
    endless["a"] = endless
    deep = []
    for _ in range(100_000):
        deep = [deep]
    records = recorded(
        tmp_path, *[finished(value, {}) for value in (endless, deep, {"a": Broken()})]
    )
    assert json.loads(records[0].input.json) == {"a": "…"}
    assert records[1].input.json.startswith("[[[")
    assert json.loads(records[2].input.json) == {"a": "<Broken>"}


def test_bytes_are_told_as_their_wire_form(tmp_path):
    (record,) = recorded(tmp_path, finished({}, b"\x00\xff"))
    assert json.loads(record.output.json) == {"data": "AP8=", "encoding": "base64"}


def test_a_journal_that_cannot_be_written_fails_no_call(tmp_path):
    (tmp_path / "journal").write_text("in the way")
    journal = Journal(tmp_path / "journal")
    runtime = Runtime([tool()], observers=[Recorder(journal)])
    envelope = asyncio.run(runtime.call(Call("shop.search", {"a": 1}), None))
    assert envelope.data == {"a": 1}
    assert journal.lost == 1
    assert runtime.observer_failures == 0


# --- unexpected exceptions ------------------------------------------------------------------


async def look_up(arguments, _context):
    return {"tea": 3}[arguments["product"]]


async def subscribe_to_nothing(_arguments, _context):
    yield 1
    raise OSError("the line is gone")


class Unshowable(Exception):
    def __str__(self):
        raise ValueError


def crashed(folder, handler, arguments=None, **more):
    """The record of a call whose handler breaks."""
    options = {name: more.pop(name) for name in ("secrets", "hashes_only") if name in more}
    [record] = call(folder, [tool(handler, **more)], [Call("shop.search", arguments)], **options)
    return record


def test_an_unexpected_exception_is_on_record_with_its_type_place_and_traceback(tmp_path):
    record = crashed(tmp_path, look_up, {"product": "oil"})
    assert (record.gate, record.code, record.path) == ("handler", "handler_error", None)
    assert record.message == "KeyError: 'oil'"
    assert record.key == f"handler_error:{__name__}:look_up:KeyError"
    first, *_, last = record.trace.split("\n")
    assert (first, last) == ("Traceback (most recent call last):", "KeyError: 'oil'")
    assert 'return {"tea": 3}[arguments["product"]]' in record.trace


def test_the_place_of_an_exception_is_in_the_code_of_the_tool_and_not_of_a_library(tmp_path):
    async def parse(_arguments, _context):
        return json.loads("{")

    record = crashed(tmp_path, parse)
    place = f"{__name__}:{parse.__qualname__}"
    assert record.key == f"handler_error:{place}:json.decoder.JSONDecodeError"
    assert record.message.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert "raw_decode" in record.trace


def test_an_exception_of_a_subscription_is_on_record_too(tmp_path):
    feed = tool(subscribe_to_nothing, kind="subscription")
    journal = Journal(tmp_path)
    runtime = Runtime([feed], [Recorder(journal)])

    async def read():
        with pytest.raises(CallError):
            _ = [each async for each in runtime.subscribe("shop.search")]

    asyncio.run(read())
    journal.close()
    [record] = written(tmp_path)
    assert (record.count, record.message) == (1, "OSError: the line is gone")
    assert record.key == f"handler_error:{__name__}:subscribe_to_nothing:OSError"


def test_secrets_in_an_exception_and_its_causes_are_masked(tmp_path):
    async def log_in(arguments, _context):
        try:
            raise ValueError(f"{KEY} was refused for {arguments['login']['password']}")
        except ValueError as error:
            raise RuntimeError(f"no login with {PASSWORD}") from error

    sent = {"login": {"password": PASSWORD}}
    contract = Contract(input=SECRET_INPUT)
    record = crashed(tmp_path, log_in, sent, secrets=Secrets({"KEY": KEY}), contract=contract)
    assert record.message == "RuntimeError: no login with ***"
    assert "ValueError: *** was refused for ***" in record.trace
    assert "The above exception was the direct cause" in record.trace
    everything = raw(tmp_path).decode()
    assert PASSWORD not in everything
    assert "Zq7" not in everything


def test_of_a_tool_that_is_kept_as_hashes_only_the_type_and_place_are_on_record(tmp_path):
    record = crashed(tmp_path, look_up, {"product": "oil"}, hashes_only=["shop.*"])
    assert (record.message, record.trace, record.logs) == ("KeyError", None, ())
    assert record.key == f"handler_error:{__name__}:look_up:KeyError"
    assert b"oil" not in raw(tmp_path)


@pytest.mark.parametrize("depth", [1, 5_000])
def test_an_exception_without_measure_is_cut_and_no_secret_with_it(tmp_path, depth):
    async def burst(_arguments, _context):
        def deeper(left):
            if left:
                deeper(left - 1)
            raise ValueError("x" * (MAX_RECORDED_TEXT - 10) + KEY + "y" * 1_000_000)

        deeper(depth)

    record = crashed(tmp_path, burst, secrets=Secrets({"KEY": KEY}))
    assert len(record.message) <= MAX_RECORDED_TEXT
    assert len(record.trace) <= MAX_RECORDED_TRACE
    assert "sk-Zq7" not in raw(tmp_path).decode()
    assert "deeper" in record.key


def test_an_exception_that_cannot_be_shown_is_on_record_by_its_type(tmp_path):
    async def fail(_arguments, _context):
        raise Unshowable

    record = crashed(tmp_path, fail)
    assert record.message.startswith(f"{__name__}.Unshowable: <exception str() failed>")


def test_the_caller_of_a_broken_tool_sees_nothing_of_the_exception():
    seen = []
    runtime = Runtime([tool(look_up)], [seen.append])
    with pytest.raises(CallError) as caught:
        asyncio.run(runtime.execute("shop.search", {"product": "oil"}))
    assert "oil" not in f"{caught.value} {caught.value!r} {caught.value.__dict__}"
    assert caught.value.__suppress_context__
    [event] = seen
    assert (event.crash.type, event.crash.message) == ("KeyError", "'oil'")
