"""No secret stands in a line of the journal: by its value, by its place, by its header."""

import asyncio
import base64
import dataclasses
import json
import random
import sys
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_record import KEY, PASSWORD, SECRET_INPUT, Foreign, finished, raw, recorded, tool, written

from callpact import Catalog, Contract, Identity, Runtime, Tool, ToolError
from callpact.audit import Recorder
from callpact.audit.journal.segments import Journal
from callpact.audit.record import MAX_PAYLOAD_BYTES, payload_of
from callpact.audit.redaction import Mask
from callpact.context import LogLine
from callpact.discovery import discovery_tools
from callpact.envelope import (
    LocalResponseMeta,
    ResponseEnvelope,
    http_envelope,
    mcp_envelope,
)
from callpact.errors import InvalidInput, Issue, UnknownTool
from callpact.observers import CallFinished
from callpact.schema import Change
from callpact.secrets import Secrets
from callpact.secrets.masker import MIN_MASKED
from callpact.tool import Call


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


@dataclasses.dataclass
class Held:
    text: str


PLANTED = [
    {"a": KEY},
    {"a": [{"b": f"Bearer {KEY}!"}]},
    {KEY: 1},
    {"a": json.dumps({"key": KEY})},
    {"a": json.dumps({"b": json.dumps({"key": KEY})})},
    {"a": json.dumps({"b": json.dumps([KEY], ensure_ascii=False)}, ensure_ascii=False)},
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
    recorded(
        tmp_path,
        finished(value, value),
        finished(value, envelope=envelope),
        finished(value, envelope=None, error=failed),
        finished({}, envelope=None, error=ToolError(KEY, f"no {KEY}", path=f"/{KEY}")),
        CallFinished("1", KEY, value, 1, 0.5, None, UnknownTool(KEY)),
        secrets=[Secrets({"OTHER": "nothing-of-it"}), Secrets({"KEY": KEY})],
    )
    assert_hidden(tmp_path, KEY)


@pytest.mark.parametrize("value", PLANTED, ids=range(len(PLANTED)))
def test_a_secret_shows_in_none_of_many_lines(tmp_path, value):
    """Each place alone: what is found beside it must not be why it is hidden."""
    failed = ToolError("full", "No room")
    told = {"io.modelcontextprotocol/serverInfo": {"name": KEY, "version": KEY}}
    events = [
        finished(value, {}),
        finished({}, value),
        finished(value, envelope=None, error=failed),
        finished(value, envelope=None, error=InvalidInput(lambda: [Issue("type", "no", "/a")])),
        finished({}, {}, logs=[LogLine("info", json.dumps(KEY)), LogLine(KEY, "x" * 995 + KEY)]),
        finished({}, envelope=None, error=failed, logs=[LogLine("info", KEY)]),
        finished({}, envelope=mcp_envelope(1, is_error=False, content=[], meta_ext=told)),
        finished({}, envelope=None, error=ToolError("full", json.dumps(KEY))),
    ]
    others = Secrets({str(n): f"{n:x}-nothing-of-it" for n in range(20)})
    for number, event in enumerate(events):
        recorded(tmp_path / str(number), event, secrets=[others, Secrets({"KEY": KEY})])
        assert_hidden(tmp_path / str(number), KEY)


secret_texts = st.text(st.characters(codec="utf-8"), min_size=MIN_MASKED, max_size=20)


@given(known=st.lists(secret_texts, min_size=1, max_size=12), data=st.data())
def test_whatever_the_secrets_are_each_is_found_where_it_stands(known, data):
    mask = Mask([Secrets({str(number): value for number, value in enumerate(known)})])
    value, around = data.draw(st.sampled_from(known)), data.draw(st.text(max_size=20))
    for text in (value, around + value, value + around, json.dumps([around, value])):
        assert mask.finds(text)
        assert mask.finds(json.dumps(text, ensure_ascii=False))
        assert mask.finds(json.dumps(json.dumps(text, ensure_ascii=False), ensure_ascii=False))


def test_what_is_no_secret_stays(tmp_path):
    secrets = Secrets({"KEY": KEY})
    (record,) = recorded(tmp_path, finished({"a": f"x {KEY} y", "b": 1}, {}), secrets=secrets)
    assert json.loads(record.input.json) == {"a": "x *** y", "b": 1}


def test_a_secret_that_is_a_number_is_hidden(tmp_path):
    recorded(tmp_path, finished({"pin": 1234567890}, {}), secrets=Secrets({"PIN": "1234567890"}))
    assert b"1234567890" not in raw(tmp_path)


def test_a_secret_that_is_learned_later_is_hidden_from_then_on(tmp_path):
    secrets = Secrets(environ={"KEY": KEY}, keys=["KEY"])
    journal = Journal(tmp_path)
    recorder = Recorder(journal, secrets=secrets)
    recorder(finished({"a": 1}, {}))
    assert secrets.get("KEY") == KEY
    recorder(finished({"a": KEY}, {}))
    assert_hidden(tmp_path, KEY)


def test_secrets_that_come_later_are_hidden_from_then_on(tmp_path):
    journal = Journal(tmp_path)
    recorder = Recorder(journal)
    recorder(finished({"a": 1}, {}))
    recorder.hide(Secrets({"KEY": KEY}))
    recorder(finished({"a": KEY}, {}))
    recorder(finished({"a": 2}, {}))
    assert_hidden(tmp_path, KEY)
    assert [record.input.size for record in written(tmp_path)] == [7, 11, 7]


def test_what_is_known_of_tools_stays_known_until_there_is_a_new_secret(tmp_path):
    recorder = Recorder(Journal(tmp_path), secrets=Secrets({"KEY": KEY}))
    tools = [dataclasses.replace(tool(), id=f"shop.{name}") for name in ("search", "price")]
    for each in tools * 2:
        recorder(msgspec.structs.replace(finished({}, {}, tool=each), tool_id=each.id))
    assert [known.tool for known in recorder._tools.values()] == tools
    recorder.hide(Secrets({"OTHER": PASSWORD}))
    assert not recorder._tools


IDENTITY = ("id", "tool", "version", "caller", "client", "via", "parent")


@pytest.mark.parametrize("is_configured", [False, True])
@pytest.mark.parametrize(
    "word", ["shop.search", "alice-of-sales", "call-0001", "2.1.0-rc1", "desk 2"]
)
def test_what_identifies_a_call_is_never_masked(tmp_path, word, is_configured):
    kept = dataclasses.replace(
        tool(contract=Contract(input=SECRET_INPUT)), id="shop.search", version="2.1.0-rc1"
    )
    event = msgspec.structs.replace(
        finished({"token": word, "user": word}, word, tool=kept),
        call_id="call-0001",
        parent_id="call-0001",
        tool_id="shop.search",
        identity=Identity("alice-of-sales"),
        client_name="desk 2",
        via="desk 2",
    )
    secrets = Secrets({"KEY": word}) if is_configured else ()
    [record] = recorded(tmp_path, event, secrets=secrets)
    told = [getattr(record, name) for name in IDENTITY]
    assert told == [
        *("call-0001", "shop.search", "2.1.0-rc1", "alice-of-sales", "desk 2", "desk 2"),
        "call-0001",
    ]
    assert record.output.json == '"***"'
    assert json.loads(record.input.json) == {"token": "***", "user": "***"}


@pytest.mark.parametrize("word", ["schema_validation_failed", "user", "type", "/user"])
def test_the_cause_of_an_error_is_never_masked_by_what_was_sent(tmp_path, word):
    kept = tool(contract=Contract(input=SECRET_INPUT))
    issues = [Issue("type", f"not {word}", "/user")]
    failed = InvalidInput(lambda: issues)
    event = finished({"token": word, "user": 1}, envelope=None, error=failed, tool=kept)
    [record] = recorded(tmp_path, event)
    assert record.key == "schema_validation_failed:/user:type"
    assert (record.code, record.path, record.issues[0].code) == (
        "schema_validation_failed",
        "/user",
        "type",
    )
    assert record.message == "not ***"


def test_a_secret_in_a_name_that_no_tool_has_is_hidden(tmp_path):
    event = CallFinished("1", f"get {KEY}", {}, 1, 0.5, None, UnknownTool("x"))
    [record] = recorded(tmp_path, event, secrets=Secrets({"KEY": KEY}))
    assert record.tool == "get ***"


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


@pytest.mark.parametrize("value", [{"hunter2": 1}, 4815000.0])
def test_keys_and_whole_numbers_that_the_schema_marks_are_not_echoed(tmp_path, value):
    kept = tool(contract=Contract(input=SECRET_INPUT))
    recorded(tmp_path, finished({"token": value}, "hunter2 and 4815000", tool=kept))
    shown = b"4815000" if isinstance(value, float) else b"hunter2"
    assert shown not in raw(tmp_path)


def test_what_is_sent_where_an_object_is_due_is_hidden(tmp_path):
    kept = tool(contract=Contract(input=SECRET_INPUT))
    error = InvalidInput(lambda: [Issue("type", "Input must be an object")])
    recorded(tmp_path, finished([{"token": PASSWORD}], envelope=None, error=error, tool=kept))
    assert_hidden(tmp_path, PASSWORD)


def test_very_many_odd_secrets_of_one_call_are_not_compared_with_each_other(tmp_path):
    chance = random.Random(3)
    odd = ["".join(chance.choices('abcdefghij"\\/~%+= é', k=600)) for _ in range(100)]
    kept = tool(contract=Contract(input={"properties": {"p": {"items": _SECRET}}}))
    steps = 0

    def count(_frame, event, _argument):
        nonlocal steps
        steps += event == "call"

    sys.setprofile(count)
    try:
        recorded(tmp_path, finished({"p": odd}, {"echo": odd[7]}, tool=kept))
    finally:
        sys.setprofile(None)
    # Each of some thousand forms with each other would be millions.
    assert steps < 300_000
    assert odd[7][:100].encode() not in raw(tmp_path)


@pytest.mark.parametrize("value", ["hunter2", 918273645, 12.75, ["hunter2"], "sk/live~1"])
def test_a_short_word_or_a_number_that_the_schema_marks_is_not_echoed(tmp_path, value):
    kept = tool(contract=Contract(input=SECRET_INPUT))
    shown = value[0] if isinstance(value, list) else value
    pointer = str(shown).replace("~", "~0").replace("/", "~1")
    recorded(
        tmp_path,
        finished({"token": value}, f"it was {shown}", tool=kept),
        finished({"token": value}, {"it": shown}, tool=kept),
        finished(
            *({"token": value}, None),
            envelope=None,
            error=ToolError("no", f"{shown} is wrong", path=f"/a/{pointer}"),
            tool=kept,
        ),
    )
    assert str(shown).encode() not in raw(tmp_path)
    assert pointer.encode() not in raw(tmp_path)


_SECRET = {"type": "string", "writeOnly": True}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"p": {"$anchor": "pw", **_SECRET}}, "properties": {"b": {"$ref": "#pw"}}},
        {
            "$defs": {"p": {"$dynamicAnchor": "pw", **_SECRET}},
            "properties": {"b": {"$dynamicRef": "#pw"}},
        },
        {
            "$id": "https://a.b/root",
            "$defs": {"p": {"$id": "other", **_SECRET}},
            "properties": {"b": {"$ref": "other"}},
        },
        {
            "$id": "https://a.b/root",
            "$defs": {
                "p": {"type": "integer"},
                "q": {
                    "$id": "other",
                    "properties": {"c": {"$ref": "#/$defs/p"}},
                    "$defs": {"p": _SECRET},
                },
            },
            "properties": {"b": {"$ref": "other"}},
        },
        {"properties": {"b": {"contentSchema": {"properties": {"c": _SECRET}}}}},
        {"properties": {"b": {"propertyNames": {"format": "password"}}}},
        {
            "properties": {"b": {"propertyNames": {"$ref": "#/$defs/p"}}},
            "$defs": {"p": {"allOf": [{"format": "password"}]}},
        },
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"b": {}},
            "dependencies": {"b": {"properties": {"b": _SECRET}}},
        },
    ],
    ids=[
        *("anchor", "dynamic anchor", "id", "pointer below an id", "content", "names"),
        *("names by reference", "dependencies"),
    ],
)
def test_what_a_schema_marks_in_a_roundabout_way_is_hidden(tmp_path, schema):
    kept = tool(contract=Contract(input={"type": "object", **schema}))
    values = [PASSWORD, {"c": PASSWORD}, json.dumps({"c": PASSWORD}), {PASSWORD: 1}]
    if "contentSchema" in schema["properties"]["b"]:
        values = values[1:3]  # Only what is in the content is marked.
    for number, value in enumerate(values):
        recorded(tmp_path / str(number), finished({"b": value}, {}, tool=kept))
        assert PASSWORD.encode() not in raw(tmp_path / str(number))


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
        {"text": "curl -H 'Authorization: Bearer abc.def' http://a.b"},
        {"text": 'curl -H "Cookie: a=b; c=abc.def" http://a.b'},
        {"text": "sent {'Authorization': 'Bearer abc.def', 'Accept': '*'}"},
        {"text": "sent [(b'authorization', b'Bearer abc.def')]"},
        {"text": 'it said: Authorization: Digest username="a", response="abc.def"'},
        {"text": "HTTP_COOKIE=abc.def"},
        {"text": '{"Authorization": "Bearer abc.def"}'},
        {"text": '{"Authorization": {"value": ["abc.def"]}}'},
        {"text": 'told: {"a": "{\\"Authorization\\": \\"Bearer abc.def\\"}"}'},
        {"headers": ["Accept", "*/*", "Authorization", "Bearer abc.def", "Host", "a.b"]},
        {"set_cookie": "abc.def"},
        {"setCookie": ["abc.def"]},
        {"text": "Invalid Authorization header: Bearer abc.def"},
        {"text": "no Authorization: it was Bearer abc.def"},
        {"text": "environ: {'HTTP_COOKIE': 'sid=abc.def', 'X-Authorization': 'abc.def'}"},
        {"text": 'it sent {"set-cookie": ["a=1", "sid=abc.def"]}'},
        {"text": 'it sent {"Authorization": "Digest a=\\"b\\", response=\\"abc.def\\""}'},
        {"text": "'Authorization' => 'Bearer abc.def'"},
        {"text": '"Authorization": Bearer abc.def'},
        {"text": "`Authorization`: `Bearer abc.def`"},
        {"text": "authorization_header: abc.def"},
        {"text": "Set-Cookie2: abc.def"},
        {"text": "cookies={'sid': 'abc.def'}"},
        {"cookies": {"sid": "abc.def"}},
        {"headers": [{"Name": "Authorization", "Value": "abc.def"}]},
    ],
    ids=range(31),
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
        finished({}, envelope=None, error=ToolError("wrong", repr(value))),
        finished({}, envelope=None, error=ToolError("wrong", json.dumps(value))),
    )
    assert b"abc.def" not in raw(tmp_path)


def test_a_header_whose_name_comes_last_is_not_on_record(tmp_path):
    value = {"headers": [{"value": "abc.def", "header": "Authorization"}]}
    recorded(tmp_path, finished(value, json.dumps(value)))
    assert b"abc.def" not in raw(tmp_path)


def test_json_in_a_text_is_json_still(tmp_path):
    inner = json.dumps({"note": "my cookie: choc", "price": 5})
    (record,) = recorded(tmp_path, finished({"text": inner}, {}))
    assert json.loads(json.loads(record.input.json)["text"]) == {
        "note": "my cookie: ***",
        "price": 5,
    }


def test_of_a_quoted_header_only_what_is_in_its_quotes_is_hidden(tmp_path):
    text = "curl -H 'Authorization: Bearer abc.def' http://a.b said {'cookie': 'a=b', 'n': 1}"
    (record,) = recorded(tmp_path, finished({}, envelope=None, error=ToolError("no", text)))
    assert record.message == (
        "curl -H 'Authorization: ***' http://a.b said {'cookie': '***', 'n': 1}"
    )


@pytest.mark.parametrize("depth", [300, 900, 2_000, 100_000])
def test_a_header_in_a_deep_text_is_hidden_and_its_call_on_record(tmp_path, depth):
    text = f'{"[" * depth}{{"Cookie": "abc.def"}}{"]" * depth}'
    error = ToolError("no", text)
    events = [finished({"a": text}, {}), finished({}, envelope=None, error=error)]
    assert [record.code for record in recorded(tmp_path, *events)] == [None, "no"]
    assert b"abc.def" not in raw(tmp_path)


@pytest.mark.parametrize("text", ['"' * 50_000, "\\" * 50_000, "authorization " * 5_000])
def test_a_text_made_to_be_searched_for_long_is_not(text):
    mask = Mask([])
    assert len(mask.text(f"{text} authorization: {text}")) <= 1_000


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
        finished(value, value, tool=kept, logs=[LogLine("info", "for Ann Example")]),
        finished(value, envelope=None, error=failed, tool=kept),
        **options,
    )
    assert b"Ann" not in raw(tmp_path)
    assert first.input == first.output == payload_of(b'{"name":"Ann Example"}', hashes_only=True)
    assert second.key == "schema_validation_failed:/*:type"


def test_hashes_only_holds_for_names_that_no_tool_has(tmp_path):
    error = UnknownTool("bank.payy")
    event = CallFinished("1", "bank_payy", {"to": "WOMBAT"}, 1, 0.5, None, error)
    (record,) = recorded(tmp_path, event, hashes_only=["bank.*"])
    assert b"WOMBAT" not in raw(tmp_path)
    assert (record.tool, record.code, record.input.size) == ("bank_payy", "tool_not_found", 15)


def test_hashes_only_tells_the_names_of_the_contract_and_no_others(tmp_path):
    schema = {
        "properties": {"cards": {"additionalProperties": {"properties": {"a/b": {}}}}},
        "additionalProperties": False,
    }
    kept = tool(contract=Contract(input=schema), annotations={"audit": "hashes"})
    issues = [Issue("type", "no", "/cards/4111-1111/a~1b"), Issue("type", "no", "/Ann/7")]
    envelope = ResponseEnvelope(1, LocalResponseMeta("a", 1), (), (Change("/Ann", "cast", 1),))
    first, second = recorded(
        tmp_path,
        finished({}, envelope=None, error=InvalidInput(lambda: issues), tool=kept),
        finished({}, envelope=envelope, tool=kept),
    )
    assert [note.path for note in (*first.issues, *second.changes)] == [
        *("/cards/*/a~1b", "/*/*", "/*"),
    ]
    assert first.path == "/cards/*/a~1b"


@pytest.mark.parametrize("word", ["alice-of-sales", "shop.search", "callpact.call_tool"])
def test_a_call_through_call_tool_is_found_by_its_caller_whatever_it_was_given(tmp_path, word):
    async def search(arguments, context):
        return {"echo": arguments["token"]}

    inner = Tool(
        id="shop.search",
        description="Search",
        contract=Contract(input={"type": "object", "properties": {"token": {"writeOnly": True}}}),
        handler=search,
    )
    shop = Runtime(Catalog([inner]))
    recorder = Recorder(Journal(tmp_path))
    door = Runtime(Catalog([inner, *discovery_tools(shop)]), [recorder])
    call = Call(
        "callpact.call_tool", {"name": "shop.search", "arguments": {"token": word}}, via="http"
    )
    asyncio.run(door.call(call, Identity("alice-of-sales")))
    [record] = written(tmp_path)
    assert (record.tool, record.caller, record.via) == (
        "callpact.call_tool",
        "alice-of-sales",
        "http",
    )
    assert word not in record.output.json
