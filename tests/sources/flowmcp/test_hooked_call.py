"""The flow of a call with hooks: what each is given, what it may give back, how it fails."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calls
from callpact.context import Identity
from callpact.errors import CallError, Timeout
from callpact.sandbox import HookLimits
from callpact.schema import schema_hash
from callpact.tool import Call
from callpact.wire import flowmcp

HERE = Path(__file__).parent


parameter, tool, answered, KEY = calls.parameter, calls.tool, calls.answered, calls.KEY
pre, instead, post = calls.pre, calls.instead, calls.post
META = {
    "isReadOnly": True,
    "isConcurrencySafe": True,
    "isDestructive": False,
    "searchHint": "it",
    "aliases": [],
    "alwaysLoad": False,
}
PROFILES = ("strict", "compat")
ID = "shop.getIt"
MARK = "callpact-secret-"


def _file(*parameters, profile="compat", tools=None, **fields):
    """`main` with one tool that has these parameters; with a hash and more for `strict`."""
    tests = [{"_description": f"Case {n}", "id": "7"} for n in range(3)]
    output = {"mimeType": "application/json", "schema": {"type": "object", "properties": {}}}
    own = fields.pop("tool", {})
    made = tool(*(parameters or [parameter("id")]), tests=tests, output=output, **own)
    data = calls.main(tools or {"getIt": made}, meta=META, **fields)
    return {**data, "schemaHash": schema_hash(data)} if profile == "strict" else data


@pytest.fixture
def hooked(tmp_path):
    """Makes a shop whose only tool has the hooks of a text; closes what it opened."""
    made = []

    def make(hooks, *parameters, answer=None, around="", profile="compat", **fields):
        given_ = {key: fields.pop(key) for key in ("hook_limits", "hook_hosts") if key in fields}
        code = (
            f"export const handlers = ( {{ sharedLists, libraries }} ) => ({{\n"
            f"    getIt: {{ {hooks} }}\n}})\n{around}"
        )
        folder = tmp_path / str(len(made))
        folder.mkdir()
        data = _file(*parameters, profile=profile, **fields)
        shop = calls.Shop(folder, data, code=code, answer=answer, profile=profile, **given_)
        assert not shop.errors, shop.errors
        made.append(shop)
        return shop

    yield make
    for shop in made:
        asyncio.run(shop.tools.aclose())


def failed(shop, hook, *, arguments=None, sends=0):
    """The error of a call that a hook broke: it names the tool and the hook; E005 for clients."""
    error = shop.failure({"id": "7"} if arguments is None else arguments)
    assert error.code == "handler_error"
    assert f"The hook {hook} of 'getIt' failed: " in error.message
    assert error.details["hook"] == hook
    (message,) = flowmcp.encode_error(error, "getIt")["messages"]
    assert message.startswith("E005 getIt: ")
    assert len(shop.transport.requests) == sends
    return error


# --- what hooks are given -------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_pre_request_is_given_the_request_and_the_checked_arguments(hooked, profile):
    seen = "JSON.stringify( { struct, payload, n: arguments.length } )"
    body = f"struct.headers = {{ Seen: {seen} }}; return {{ struct, payload }}"
    hooks = "preRequest: async function ( { struct, payload } ) { " + body + " }"
    shop = hooked(
        hooks,
        parameter("id"),
        parameter("days", "number()", "default(3)"),
        parameter("fixed", value="yes"),
        profile=profile,
        headers={"Accept": "application/json"},
    )
    shop.call({"id": "a b"})
    (sent,) = shop.transport.requests
    assert json.loads(sent.headers["Seen"]) == {
        "struct": {
            "url": "https://api.example.com/it?id=a+b&days=3&fixed=yes",
            "method": "GET",
            "headers": {"Accept": "application/json"},
            "body": None,
        },
        "payload": {"id": "a b", "days": 3},
        "n": 1,
    }


def test_execute_request_is_given_the_shapes_of_the_seed_under_strict(hooked):
    shop = hooked(instead("return { response: { struct, payload } }"), profile="strict")
    assert shop.call({"id": "7"}).data == {
        "struct": {
            "url": "https://api.example.com/it?id=7",
            "method": "GET",
            "headers": {},
            "body": None,
        },
        "payload": {"id": "7"},
    }


def test_execute_request_is_given_the_shapes_of_real_files_too_under_compat(hooked):
    shop = hooked(instead("return { response: { struct, payload } }"), requiredServerParams=["KEY"])
    url = "https://api.example.com/it?id=7"
    struct = {"url": url, "method": "GET", "headers": {}, "body": None}
    assert shop.call({"id": "7"}).data == {
        "struct": {**struct, "status": True, "messages": [], "data": None},
        "payload": {
            "id": "7",
            **struct,
            "userParams": {"id": "7"},
            "serverParams": {"KEY": "{{SERVER_PARAM:KEY}}"},
        },
    }


@pytest.mark.parametrize("profile", PROFILES)
def test_post_request_is_given_the_answer_the_request_and_the_arguments(hooked, profile):
    shop = hooked(
        post("return { response: { response, url: struct.url, payload } }"),
        answer=answered({"price": 1.5}),
        profile=profile,
    )
    envelope = shop.call({"id": "7"})
    assert envelope.data == {
        "response": {"price": 1.5},
        "url": "https://api.example.com/it?id=7",
        "payload": {"id": "7"},
    }
    assert envelope.to_wire()["meta"]["source"] == "http"


@pytest.mark.parametrize("profile", PROFILES)
def test_later_hooks_see_what_pre_request_gave_back(hooked, profile):
    hooks = [
        pre("return { struct, payload: { ...payload, extra: [ 1 ] } }"),
        instead("return { response: payload.extra }"),
        post("return { response: { was: response, extra: payload.extra, url: struct.url } }"),
    ]
    shop = hooked(", ".join(hooks), profile=profile)
    envelope = shop.call({"id": "7"})
    assert envelope.data == {"was": [1], "extra": [1], "url": "https://api.example.com/it?id=7"}
    assert envelope.to_wire()["meta"]["source"] == "local"
    assert shop.transport.requests == []


# --- what hooks may give back ---------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_changed_payload_makes_the_request_anew(hooked, profile):
    shop = hooked(pre("return { struct, payload: { id: 'x y' } }"), profile=profile)
    assert shop.path({"id": "7"}) == "/it?id=x+y"


@pytest.mark.parametrize("profile", PROFILES)
def test_an_edited_request_wins_over_a_changed_payload(hooked, profile):
    shop = hooked(
        pre("struct.url += '&a=1'; return { struct, payload: { id: 'other' } }"), profile=profile
    )
    assert shop.path({"id": "7"}) == "/it?id=7&a=1"


@pytest.mark.parametrize("struct", ["{}", "{ ...struct, note: 1 }", "{ url: struct.url }"])
def test_what_is_no_part_of_the_request_is_no_edit_of_it(hooked, struct):
    shop = hooked(pre(f"return {{ struct: {struct}, payload: {{ id: 'x' }} }}"))
    assert shop.path({"id": "7"}) == "/it?id=x"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_hook_may_edit_address_method_headers_and_body(hooked, profile):
    body = (
        "struct.url = 'https://api.example.com/other'; struct.method = 'POST'; "
        "struct.headers = { 'X-Count': 7, 'X-Is': true }; struct.body = { a: [ 1 ] }; "
        "return { struct, payload }"
    )
    request = hooked(pre(body), profile=profile).sent({"id": "7"})
    assert (request.method, request.url) == ("POST", "https://api.example.com/other")
    headers = {"X-Count": "7", "X-Is": "true", "Content-Type": "application/json"}
    assert request.headers == headers
    assert json.loads(request.body) == {"a": [1]}


def test_what_a_hook_leaves_out_of_the_request_stays_as_it_was(hooked):
    shop = hooked(
        pre("return { struct: { headers: { A: 'b' } }, payload }"),
        parameter("id", location="body"),
        tool={"method": "POST"},
    )
    request = shop.sent({"id": "7"})
    assert (request.method, request.url) == ("POST", "https://api.example.com/it")
    assert json.loads(request.body) == {"id": "7"}
    assert request.headers["A"] == "b"


POSTED = {"tool": {"method": "POST"}}


def test_a_text_is_sent_as_it_is_unless_it_is_said_to_be_json(hooked):
    raw = "struct.headers = { 'content-type': 'text/xml' }; struct.body = '<a>é</a>'; return { struct, payload }"
    request = hooked(pre(raw), **POSTED).sent({"id": "7"})
    assert request.body == "<a>é</a>".encode()
    assert request.headers == {"content-type": "text/xml"}
    quoted = "struct.body = 'a'; return { struct, payload }"
    assert hooked(pre(quoted), **POSTED).sent({"id": "7"}).body == b'"a"'


def test_a_body_may_be_taken_away(hooked):
    body = "struct.body = null; return { struct, payload }"
    assert (
        hooked(pre(body), parameter("id", location="body"), **POSTED).sent({"id": "7"}).body is None
    )


def test_a_body_of_a_get_is_refused_under_strict_and_left_out_under_compat(hooked):
    body = "struct.body = { a: 1 }; return { struct, payload }"
    assert hooked(pre(body)).sent({"id": "7"}).body is None
    assert "GET has no body" in failed(hooked(pre(body), profile="strict"), "preRequest").message


def test_pre_request_may_leave_out_a_key_under_compat_only(hooked):
    for given_back, path in (
        ("{ struct: { ...struct, url: struct.url + '&a=1' } }", "/it?id=7&a=1"),
        ("{ payload: { id: 'x' } }", "/it?id=x"),
    ):
        assert hooked(pre(f"return {given_back}")).path({"id": "7"}) == path
        shop = hooked(pre(f"return {given_back}"), profile="strict")
        error = failed(shop, "preRequest")
        assert error.details["reason"] == "SEC101"
        assert "it must return { struct, payload }" in error.message


def test_execute_request_may_fill_the_struct_under_compat_only(hooked):
    body = instead("struct.data = { a: 1 }; return { struct }")
    assert hooked(body).call({"id": "7"}).data == {"a": 1}
    error = failed(hooked(body, profile="strict"), "executeRequest")
    assert error.details["reason"] == "SEC101"
    assert "it must return { response }, it returned { struct }" in error.message


def test_a_struct_without_data_is_null(hooked):
    assert hooked(instead("return { struct: {} }")).call({"id": "7"}).data is None


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("[ 'No such city', 'Try another' ]", "No such city; Try another"),
        ("'No such city'", "No such city"),
        ("[ 5, null ]", "it says no reason"),
        ("undefined", "it says no reason"),
    ],
)
def test_a_struct_that_says_it_failed_is_an_error_with_its_messages(hooked, messages, told):
    body = f"struct.status = false; struct.messages = {messages}; return {{ struct }}"
    assert failed(hooked(instead(body)), "executeRequest").message.endswith(f"failed: {told}")


def test_a_response_wins_over_a_struct(hooked):
    body = "struct.status = false; struct.data = 1; return { struct, response: 2 }"
    assert hooked(instead(body)).call({"id": "7"}).data == 2


@pytest.mark.parametrize("value", ["null", "0", "''", "[]", "[ { a: [] } ]", "false", "'text'"])
def test_a_response_may_be_any_json(hooked, value):
    expected = {"''": "", "'text'": "text", "[ { a: [] } ]": [{"a": []}]}
    told = expected[value] if value in expected else json.loads(value)
    for hooks in (
        instead(f"return {{ response: {value} }}"),
        post(f"return {{ response: {value} }}"),
    ):
        data = hooked(hooks).call({"id": "7"}).data
        assert (data, type(data)) == (told, type(told))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("hook", [pre, instead, post])
@pytest.mark.parametrize("value", ["null", "[]", "5", "'text'", "true"])
def test_what_is_no_object_is_no_result(hooked, profile, hook, value):
    shop = hooked(hook(f"return {value}"), profile=profile)
    name = hook("").partition(":")[0]
    error = failed(shop, name, sends=1 if hook is post else 0)
    assert error.details["reason"] == "SEC101"
    assert "it must return an object" in error.message


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "value", ["", "return undefined", "return () => 1", "return Symbol( 'a' )"]
)
def test_nothing_or_a_function_is_no_result(hooked, profile, value):
    error = failed(hooked(post(value), profile=profile), "postRequest", sends=1)
    assert error.details["reason"] == "NotJSON"
    assert "it returned " in error.message


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("value", ["{}", "{ struct, payload }", "{ response: undefined }"])
def test_post_request_must_give_a_response(hooked, profile, value):
    error = failed(hooked(post(f"return {value}"), profile=profile), "postRequest", sends=1)
    assert error.details["reason"] == "SEC101"
    assert "it must return { response }" in error.message


@pytest.mark.parametrize(
    "edit",
    [
        "struct.url = 5",
        "struct.url = null",
        "struct.method = 'PATCH'",
        "struct.method = 'get'",
        "struct.headers = 'a: b'",
        "struct.headers = [ 'a' ]",
        "struct.headers = { a: { b: 1 } }",
        "struct.headers = { a: null }",
        "struct.headers = { 'a b': 'c' }",
        "struct.headers = { a: 'b\\r\\nc: d' }",
        "struct = []",
        "payload = 'text'",
        "payload = null",
    ],
)
def test_a_request_that_none_can_be_is_the_hooks_fault(hooked, edit):
    failed(hooked(pre(f"{edit}; return {{ struct, payload }}")), "preRequest")


def test_a_payload_that_leaves_its_place_in_the_path_is_the_hooks_fault(hooked):
    shop = hooked(
        pre("return { struct, payload: { id: '..' } }"),
        parameter("id", location="insert"),
        tool={"path": "/a/{{id}}/b"},
    )
    assert "must not be a step of the path" in failed(shop, "preRequest").message


def test_a_number_that_javascript_cannot_hold_is_not_made_null(hooked):
    body = parameter("any", "object()", location="body")
    shop = hooked(pre("return { struct, payload }"), body, **POSTED)
    assert shop.rejected({"any": {"a": 10**400}}) == {("maximum", "")}
    shop = hooked(post("return { response }"), answer=answered('{"a":1' + "0" * 400 + "}"))
    assert "too large for JavaScript" in failed(shop, "postRequest", sends=1).message


# --- hooks that break -----------------------------------------------------------------------

SMALL = HookLimits(seconds=0.3, memory_bytes=32 << 20, output_bytes=100_000, effects=3)
BREAKING = {
    "while ( true ) {}": ("Timeout", "0.3 s"),
    "try { while ( true ) {} } finally { while ( true ) {} }": ("Timeout", "0.3 s"),
    "const a = []; while ( true ) a.push( new ArrayBuffer( 4e6 ) )": ("MemoryLimit", "32 MiB"),
    "const f = () => f() + 1; f()": ("StackOverflow", "stack"),
    "return { response: 'x'.repeat( 200000 ) }": ("OutputLimit", "100000 bytes"),
    "await new Promise( () => {} )": ("NeverSettled", "promise"),
    "return { response: 10n }": ("NotJSON", "JSON"),
    "const a = {}; a.a = a; return { response: a }": ("NotJSON", "JSON"),
    "throw new RangeError( 'Too far' )": ("RangeError", "Too far"),
    "throw 'only a text'": ("Error", "only a text"),
    "throw null": ("Error", ""),
}


@pytest.mark.parametrize("body", BREAKING)
def test_a_hook_that_breaks_fails_its_call_and_not_the_next(hooked, body):
    reason, words = BREAKING[body]
    shop = hooked(
        post(f"if ( payload.id === 'bad' ) {{ {body} }} return {{ response: 1 }}"),
        hook_limits=SMALL,
    )
    error = failed(shop, "postRequest", arguments={"id": "bad"}, sends=1)
    assert error.details["reason"] == reason
    assert words in error.message
    assert shop.call({"id": "good"}).data == 1


def test_an_error_is_shown_with_the_line_of_the_file(hooked):
    shop = hooked(post("\n\n      throw new Error( 'here' )\n"))
    text = (Path(shop.tool.source.removeprefix("flowmcp:"))).read_text("utf-8").split("\n")
    error = failed(shop, "postRequest", sends=1)
    line, column = error.details["line"], error.details["column"]
    assert "throw new Error( 'here' )" in text[line - 1]
    assert error.message.endswith(f"Error: here (shop/Shop.mjs:{line}:{column})")


def test_a_long_message_is_cut(hooked):
    error = failed(hooked(post("throw new Error( 'x'.repeat( 5000 ) )")), "postRequest", sends=1)
    assert 500 < len(error.message) < 1500
    assert "x…" in error.message


@pytest.mark.parametrize(
    ("around", "reason"),
    [
        ("main.root = 'https://evil.example'", "MainChanged"),
        ("main.tools.getIt.path = '/x'", "MainChanged"),
        ("throw new TypeError( 'while loading' )", "TypeError"),
        ("while ( true ) {}", "Timeout"),
        ("await new Promise( () => {} )", "NeverSettled"),
        ("this is no code", "SyntaxError"),
    ],
)
def test_a_file_whose_code_cannot_be_opened_fails_its_calls(hooked, around, reason):
    limits = HookLimits(load_seconds=0.3)
    shop = hooked(post("return { response }"), around=around, hook_limits=limits)
    for _ in range(2):
        assert failed(shop, "handlers").details["reason"] == reason


def test_a_factory_that_throws_is_told_with_its_line(hooked):
    shop = hooked(f"a: ( () => {{ throw new Error( 'no factory' ) }} )(), {post('')}")
    error = failed(shop, "handlers")
    assert error.details["line"] > 0
    assert f"Error: no factory (shop/Shop.mjs:{error.details['line']}:" in error.message


def test_hooks_keep_nothing_from_call_to_call(hooked):
    shop = hooked(
        instead("globalThis.n = ( globalThis.n ?? 0 ) + 1; return { response: n }")
        .replace("globalThis", "Object")
        .replace("response: n", "response: Object.n")
    )
    assert [shop.call({"id": "7"}).data for _ in range(3)] == [1, 1, 1]


def test_tools_of_a_file_without_hooks_run_none_of_its_code(hooked, tmp_path):
    code = "throw new Error( 'was run' )\n"
    tools = {
        name: tool(parameter("id"), tests=[{"_description": "a", "id": "7"}])
        for name in ("getIt", "other")
    }
    shop = hooked(post("return { response }"), around=code, tools=tools, answer=answered({"a": 1}))
    assert shop.call({"id": "7"}, "shop.other").data == {"a": 1}
    error = shop.failure({"id": "7"}, ID)
    assert (error.code, error.details["reason"]) == ("handler_error", "Error")


# --- console, deadlines, cancellation -------------------------------------------------------


def test_console_lines_go_to_the_logger_of_the_tool_without_secrets(hooked, caplog):
    caplog.set_level(logging.DEBUG, "callpact.tool.shop.getIt")
    body = (
        "console.log( 'at', struct.headers[ 'X-Key' ] ); console.debug( 1 ); console.info( { a: 1 } );"
        "console.warn( 'w' ); console.error( new Error( 'e' ) );"
        "console.log( struct.headers[ 'X-Key' ].slice( 0, -3 ) ); return { struct, payload }"
    )
    shop = hooked(
        pre(body), requiredServerParams=["KEY"], headers={"X-Key": "{{SERVER_PARAM:KEY}}"}
    )
    shop.call({"id": "7"})
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines[0] == ("INFO", "preRequest: at {{SERVER_PARAM:KEY}}")
    assert lines[1:4] == [
        ("DEBUG", "preRequest: 1"),
        ("INFO", 'preRequest: {"a":1}'),
        ("WARNING", "preRequest: w"),
    ]
    assert lines[4][0] == "ERROR"
    assert "Error: e" in lines[4][1]
    assert KEY not in caplog.text
    assert MARK not in caplog.text


def test_lines_of_a_hook_that_fails_are_kept(hooked, caplog):
    caplog.set_level(logging.INFO, "callpact.tool.shop.getIt")
    failed(hooked(post("console.log( 'before' ); throw new Error( 'x' )")), "postRequest", sends=1)
    assert [record.getMessage() for record in caplog.records] == ["postRequest: before"]


def test_a_deadline_ends_a_call_whose_hook_still_runs(hooked):
    shop = hooked(
        post("if ( payload.id === 'bad' ) while ( true ) {} return { response: 1 }"),
        hook_limits=HookLimits(seconds=2),
    )
    shop.call({"id": "good"})
    error = shop.failure({"id": "bad"}, deadline=(time.time() + 0.2) * 1000)
    assert isinstance(error, Timeout)
    assert shop.call({"id": "good"}).data == 1


def test_a_cancelled_call_leaves_the_next_alone(hooked):
    asked = asyncio.Event()

    async def answer(_request):
        asked.set()
        await asyncio.Event().wait()

    shop = hooked(
        instead("if ( payload.id === 'bad' ) await fetch( struct.url ); return { response: 1 }"),
        answer=answer,
    )

    async def story():
        call = asyncio.create_task(shop.runtime.execute(ID, {"id": "bad"}))
        async with asyncio.timeout(10):
            await asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return (await shop.runtime.execute(ID, {"id": "good"})).data

    assert asyncio.run(story()) == 1


def test_calls_at_the_same_time_each_get_their_own_answer(hooked):
    shop = hooked(post("return { response: payload.id }"))

    async def story():
        async with asyncio.timeout(30):
            made = [shop.runtime.execute(ID, {"id": str(n)}) for n in range(60)]
            return [envelope.data for envelope in await asyncio.gather(*made)]

    assert asyncio.run(story()) == [str(n) for n in range(60)]


def test_looping_hooks_of_one_caller_do_not_keep_another_one_waiting(hooked):
    shop = hooked(
        post("if ( payload.id === 'bad' ) while ( true ) {} return { response: 1 }"),
        hook_limits=HookLimits(seconds=0.2),
    )
    greedy, modest = Identity("greedy"), Identity("modest")

    async def story():
        ended = []

        async def loop():
            with pytest.raises(CallError, match="it ran longer than"):
                await shop.runtime.call(Call(ID, {"id": "bad"}), greedy)
            ended.append(True)

        async with asyncio.timeout(60):
            tasks = [asyncio.create_task(loop()) for _ in range(90)]
            while not ended:
                await asyncio.sleep(0.001)
            before = len(ended)
            envelope = await shop.runtime.call(Call(ID, {"id": "good"}), modest)
            assert envelope.data == 1
            # Those that ran when the call came and those of the next turn; a slow machine adds some.
            assert len(ended) - before < 24
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(story())


# --- the identity hook ----------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.just(10**400) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
IDENTITY = "getIt: { preRequest: async ( { struct, payload } ) => ({ struct, payload }) }"
SPREAD = "getIt: { preRequest: async ( { struct, payload } ) => ({ struct: { ...struct }, payload: { ...payload } }) }"


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The same tool without hook, with one that changes nothing, and with one that copies."""
    body = [parameter("any", "object()", location="body"), parameter("n", "number()")]
    data = _file(*body, parameter("text"), tool={"method": "POST"})
    shops = []
    for code in ("", IDENTITY, SPREAD):
        handlers = f"export const handlers = () => ({{ {code} }})\n" if code else ""
        folder = tmp_path_factory.mktemp("twin")
        shops.append(calls.Shop(folder, data, code=handlers))
    yield shops
    for shop in shops:
        asyncio.run(shop.tools.aclose())


@settings(max_examples=60)
@given(
    st.dictionaries(TEXTS, JSON, max_size=3),
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    TEXTS,
)
def test_a_hook_that_changes_nothing_changes_nothing(twins, any_, number, text):
    arguments = {"any": any_, "n": number, "text": text}

    def request(shop):
        try:
            made = shop.sent(arguments)
        except CallError as error:
            return error.code, [issue.path for issue in error.issues or ()]
        return made.method, made.url, made.headers, made.body

    plain, identity, spread = map(request, twins)
    assert identity == plain
    assert spread == plain
