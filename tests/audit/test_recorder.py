"""Every call is one masked line in the journal, whatever it held and whatever became of it."""

import asyncio
import base64
import dataclasses
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact import Call, CallError, Contract, Identity, Runtime, Tool, ToolError
from callpact.audit.journal import Journal, decode_line, segments
from callpact.audit.record import MAX_PAYLOAD_BYTES, MAX_RECORDED_ISSUES, Record, payload_of
from callpact.audit.recorder import Recorder, hash_contract
from callpact.envelope import (
    HTTPResponseMeta,
    LocalResponseMeta,
    ResponseEnvelope,
    http_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.errors import AccessDenied, InvalidInput, Issue, OutputRejected, UnknownTool
from callpact.finished import CallFinished
from callpact.schema import Change
from callpact.secrets import Secrets

KEY = 'sk-Zq7"\\é7Lw9Xe'
"""A secret that JSON, Python and URLs each write in their own way."""
PASSWORD = "correct-horse-battery"
LIMIT = {"type": "object", "properties": {"limit": {"type": "integer", "maximum": 50}}}


async def echo(arguments, _context):
    return arguments


def tool(handler=echo, **more):
    contract = more.pop("contract", Contract())
    return Tool(id="shop.search", description="", contract=contract, handler=handler, **more)


def finished(arguments=None, data=None, **more):
    envelope = more.pop("envelope", local_envelope(data, "shop.search"))
    more = {"tool": tool(), "via": "http", **more}
    return CallFinished("call-1", "shop.search", arguments, 1_000, 0.25, envelope, **more)


def raw(folder):
    return b"".join(path.read_bytes() for path in segments(folder))


def written(folder):
    lines = raw(folder).split(b"\n")
    assert lines.pop() == b""
    records = [decode_line(line) for line in lines]
    assert None not in records
    return records


def recorded(folder, *events, **options):
    journal = Journal(folder)
    recorder = Recorder(journal, **options)
    for event in events:
        recorder(event)
    journal.close()
    assert journal.lost == 0
    records = written(folder)
    assert len(records) == len(events)
    return records


def call(folder, tools, calls, **options):
    """Run calls under a runtime; their records."""
    journal = Journal(folder)
    runtime = Runtime(tools, observers=[Recorder(journal, **options)])

    async def main():
        for each in calls:
            try:
                await runtime.call(each, Identity("ann"))
            except CallError:
                continue

    asyncio.run(main())
    journal.close()
    assert runtime.observer_failures == 0
    return written(folder)


def test_a_result_is_on_record_with_all_there_is(tmp_path):
    contract = Contract(output={"type": "object"}, policy="warn")
    kept = tool(contract=contract, kind="query", version="1.2.0")
    each = Call("shop.search", {"q": "é"}, "call-9", "call-8", via="mcp 2026-07-28")
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
        via="mcp 2026-07-28",
        parent="call-8",
        input=payload_of('{"q":"é"}'.encode()),
        output=payload_of('{"q":"é"}'.encode()),
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
    assert record.input == payload_of(b'{"limit":80}')
    assert record.output is None


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


# --- secrets --------------------------------------------------------------------------------


def forms(secret):
    """A secret as it may be found in a file, also in JSON within JSON, and part of it."""
    once = json.dumps(secret, ensure_ascii=False)[1:-1]
    written = {secret, once, json.dumps(once, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]}
    written |= {json.dumps(json.dumps(secret)[1:-1])[1:-1], repr(secret)[1:-1], quote(secret, "")}
    encoded = base64.b64encode(secret.encode()).decode()
    return {form.encode() for form in written} | {encoded.rstrip("=")[:-1].encode()}


def assert_hidden(folder, secret):
    data = raw(folder)
    assert data
    for form in forms(secret):
        assert form not in data
    assert secret[: len(secret) // 2 + 2].encode() not in data


class Foreign:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return f"<{'.' * 190}{self.text}>"


@dataclasses.dataclass
class Held:
    text: str


PLANTED = [
    {"a": KEY},
    {"a": [{"b": f"Bearer {KEY}!"}]},
    {KEY: 1},
    {"a": json.dumps({"key": KEY})},
    {"a": f"https://x.y/?key={quote(KEY, '')}&z=1"},
    {"a": base64.b64encode(f"user:{KEY}".encode()).decode()},
    {"a": KEY.encode()},
    {"a": b"\xff" + KEY.encode(), "nan": float("nan")},
    {"a": Foreign(KEY)},
    {"a": Foreign(KEY), "half": "\ud800"},
    {"a": Held(KEY)},
    {Foreign(KEY): 1},
    {"a": {KEY, "other"}},
    {"a": "x" * (MAX_PAYLOAD_BYTES - 15) + KEY},
    {"a": repr({"k": KEY})},
    KEY,
    KEY.encode(),
]


@pytest.mark.parametrize("value", PLANTED, ids=range(len(PLANTED)))
def test_a_known_secret_shows_nowhere(tmp_path, value):
    issues = [Issue("type", f"{'x' * 990}{KEY}", f"/{KEY}"), Issue(KEY, KEY)]
    envelope = ResponseEnvelope(
        value, LocalResponseMeta("a", 1), tuple(issues), (Change(f"/{KEY}", "filled", KEY),)
    )
    failed = InvalidInput(lambda: issues)
    identity = Identity(KEY)
    recorded(
        tmp_path,
        finished(value, value),
        finished(value, envelope=envelope, identity=identity, parent_id=KEY),
        finished(value, envelope=None, error=failed),
        finished({}, envelope=None, error=ToolError(KEY, f"no {KEY}", path=f"/{KEY}")),
        CallFinished(KEY, KEY, value, 1, 0.5, None, UnknownTool(KEY), via=KEY),
        secrets=[Secrets({"OTHER": "nothing-of-it"}), Secrets({"KEY": KEY})],
    )
    assert_hidden(tmp_path, KEY)


def test_what_is_no_secret_stays(tmp_path):
    secrets = Secrets({"KEY": KEY})
    (record,) = recorded(tmp_path, finished({"a": f"x {KEY} y", "b": 1}, {}), secrets=secrets)
    assert json.loads(record.input.json) == {"a": "x *** y", "b": 1}


def test_a_secret_that_is_a_number_is_hidden(tmp_path):
    recorded(tmp_path, finished({"pin": 1234567890}, {}), secrets=Secrets({"PIN": "1234567890"}))
    assert b"1234567890" not in raw(tmp_path)


def test_a_secret_that_is_learned_later_is_hidden_from_then_on(tmp_path):
    secrets = Secrets(environ={"KEY": KEY})
    journal = Journal(tmp_path)
    recorder = Recorder(journal, secrets=secrets)
    recorder(finished({"a": 1}, {}))
    assert secrets.get("KEY") == KEY
    recorder(finished({"a": KEY}, {}))
    assert_hidden(tmp_path, KEY)


def test_calls_whose_ids_hold_a_secret_are_still_told_apart(tmp_path):
    events = [
        CallFinished(f"{KEY}-{number}", "a.b", {}, 1, 0.5, local_envelope(1, "a.b"))
        for number in range(2)
    ]
    first, second = recorded(tmp_path, *events, secrets=Secrets({"KEY": KEY}))
    assert first.id != second.id


SECRET_INPUT = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "login": {
            "type": "object",
            "properties": {"password": {"type": "string", "format": "password"}},
        },
        "token": {"$ref": "#/$defs/token"},
    },
    "$defs": {"token": {"writeOnly": True}},
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"login": {"password": PASSWORD}},
        {"token": PASSWORD},
        {"token": {"deep": [PASSWORD]}},
        {"tok": PASSWORD},
        {"login": json.dumps({"password": PASSWORD})},
        json.dumps({"token": PASSWORD}),
        PASSWORD,
        {"token": PASSWORD, "odd": float("nan"), "half": "\udc00"},
        {"token": PASSWORD, "user": PASSWORD},
    ],
    ids=range(9),
)
def test_what_the_schema_marks_shows_nowhere_nor_does_its_echo(tmp_path, arguments):
    kept = tool(contract=Contract(input=SECRET_INPUT), argument_aliases={"tok": "token"})
    echoes = [] if isinstance(arguments, str) else [finished(arguments, arguments, tool=kept)]
    error = ToolError("wrong", f"{PASSWORD} is wrong" if echoes else "wrong")
    recorded(tmp_path, *echoes, finished(arguments, envelope=None, error=error, tool=kept))
    assert_hidden(tmp_path, PASSWORD)


def test_beside_what_the_schema_marks_all_stays(tmp_path):
    kept = tool(
        contract=Contract(input=SECRET_INPUT, output={"properties": {"key": {"writeOnly": True}}})
    )
    event = finished({"user": "ann", "token": PASSWORD}, {"key": "12", "n": 1}, tool=kept)
    (record,) = recorded(tmp_path, event)
    assert json.loads(record.input.json) == {"user": "ann", "token": "***"}
    assert json.loads(record.output.json) == {"key": "***", "n": 1}


def test_a_tool_that_endless_values_are_sent_to_hides_them_in_time(tmp_path):
    endless = []
    endless += [endless, endless, PASSWORD]
    kept = tool(contract=Contract(input=SECRET_INPUT))
    recorded(tmp_path, finished({"token": endless}, {}, tool=kept))
    assert_hidden(tmp_path, PASSWORD)


@pytest.mark.parametrize(
    "value",
    [
        {"headers": {"Authorization": "Bearer abc.def"}},
        {"headers": {"set-COOKIE": ["sid=abc.def"]}},
        {"cookie": {"sid": "abc.def"}},
        {"headers": [["Proxy-Authorization", "abc.def"]]},
        {"headers": [{"name": "Cookie", "value": "abc.def"}]},
        {"text": "GET / HTTP/1.1\r\nCookie: abc.def\r\n\r\n"},
    ],
    ids=range(6),
)
def test_headers_that_carry_secrets_are_never_on_record(tmp_path, value):
    envelope = http_envelope(
        value,
        status_code=200,
        headers={"Authorization": "abc.def"},
        content_type="a/b",
        set_cookie=["abc.def"],
    )
    error = ToolError("wrong", "Authorization: abc.def")
    recorded(
        tmp_path,
        finished(value, envelope=envelope),
        finished(value, envelope=None, error=error),
    )
    assert b"abc.def" not in raw(tmp_path)


@pytest.mark.parametrize(
    ("options", "more"),
    [({"hashes_only": ["shop.*"]}, {}), ({}, {"annotations": {"audit": "hashes"}})],
    ids=["by pattern", "by annotation"],
)
def test_hashes_only_keeps_no_word_of_what_was_sent(tmp_path, options, more):
    kept = tool(**more)
    value = {"name": "Ann Example"}
    failed = InvalidInput(lambda: [Issue("type", "got 'Ann Example'", "/name")])
    first, second = recorded(
        tmp_path,
        finished(value, value, tool=kept),
        finished(value, envelope=None, error=failed, tool=kept),
        **options,
    )
    assert b"Ann" not in raw(tmp_path)
    assert first.input == first.output == payload_of(b'{"name":"Ann Example"}', hashes_only=True)
    assert second.key == "schema_validation_failed:/name:type"


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
