"""Files with hooks: what is loaded, what is refused, and what comes of a call."""

from __future__ import annotations

import hashlib
import json
import sys

import pytest

from callpact.errors import InvalidConfig, UsageError
from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine
from callpact.sandbox.load import HooksRefused
from callpact.sandbox.packs.library import Pack
from callpact.sandbox.realm import Pending
from callpact.sandbox.steps import Done, Effect, Log, Reply, StepFailed

MAIN = '{"name":"Größe","n":1}'
FETCH = "fetch( 'https://example.com/' )"
HEAD = 'export const main = { name: "Größe", n: 1 }\n'


def open_file(engine, code, *, main=MAIN, lists="{}", head=HEAD, packs=()):
    return engine.open(head + code, main=main, lists=lists, packs=packs)


def open_hook(engine, body):
    return open_file(
        engine, f"export const handlers = () => ( {{ tool: {{ hook: async ( input ) => {{ {body} }} }} }} )"
    )  # fmt: skip


def call(engine, body, argument="{}"):
    return open_hook(engine, body).begin("tool", "hook", argument)


def refusal(engine, code, **more):
    with pytest.raises(HooksRefused) as caught:
        open_file(engine, code, **more)
    assert engine.machines.lent == 0
    return caught.value


def limited(hooks_cache, **limits):
    return Engine(hooks_cache, HookLimits(**limits))


# What is loaded.


def test_a_realm_names_the_hooks_of_each_tool(engine):
    realm = open_file(
        engine,
        """export const handlers = ( { sharedLists } ) => ( {
            one: { preRequest: async () => 1, postRequest() { return 2 } },
            two: { executeRequest: ( x ) => x, note: 'text', list: [], nothing: null },
            three: {}, four: 4, five: null } )""",
    )

    assert realm.hooks == {
        "one": {"preRequest", "postRequest"},
        "two": {"executeRequest"},
        "three": frozenset(),
    }


def test_what_is_no_function_cannot_be_called_as_a_hook(engine):
    realm = open_file(engine, "export const handlers = () => ( { tool: { hook: 'text' } } )")

    for tool, kind in (("tool", "hook"), ("tool", "constructor"), ("toString", "call")):
        with pytest.raises(UsageError):
            realm.begin(tool, kind, "{}")


def test_a_hook_gets_its_tool_as_this_and_the_lists_of_its_file(engine):
    realm = open_file(
        engine,
        """export const handlers = ( { sharedLists, libraries } ) => ( { tool: { factor: 3,
            async hook( { n } ) { return [ n * this.factor, sharedLists.chains[ 0 ].id, Object.keys( libraries ) ] } } } )""",
        lists='{"chains":[{"id":"eth"}]}',
    )

    assert realm.begin("tool", "hook", '{"n":5}') == Done('[15,"eth",[]]')


def test_a_module_may_await_what_is_settled_at_once(engine):
    code = "const value = await Promise.resolve( 5 )\nexport const handlers = () => ( { tool: { hook: () => value } } )"
    assert open_file(engine, code).begin("tool", "hook", "{}") == Done("5")


def test_hooks_start_from_what_stood_after_the_factory(engine):
    realm = open_file(
        engine,
        "export const handlers = () => { const cache = [ 1 ]; return { tool: { hook: () => cache.push( 1 ) } } }",
    )

    assert [realm.begin("tool", "hook", "{}") for _ in range(3)] == [Done("2")] * 3


# What is refused.


@pytest.mark.parametrize(
    ("code", "name", "place"),
    [
        ("throw new RangeError( 'no' )\nexport const handlers = () => ( {} )", "RangeError", (2, 7)),
        ("const f = () => {\n  null.x }\nf()\nexport const handlers = () => ( {} )", "TypeError", (3, 3)),
        ("await new Promise( () => {} )\nexport const handlers = () => ( {} )", "NeverSettled", (0, 0)),
        ("await fetch( 'https://example.com/' )\nexport const handlers = () => ( {} )", "NeverSettled", (0, 0)),
        ("throw 'words'", "Error", (0, 0)),
        ("throw undefined", "Error", (0, 0)),
        ("export const other = 1", "NoHandlers", (0, 0)),
        ("export const handlers = { tool: {} }", "NoFactory", (0, 0)),
        ("export const handlers = () => {\n    throw new Error( 'no' ) }", "Error", (3, 11)),
        ("export const handlers = () => null", "NoHooks", (0, 0)),
        ("export const handlers = () => [ {} ]", "NoHooks", (0, 0)),
        ("export const handlers = () => 'text'", "NoHooks", (0, 0)),
        ("export const handlers = async () => ( { tool: {} } )", "NoHooks", (0, 0)),
        ("export const handlers = () => ( { get tool() { throw new EvalError( 'x' ) } } )", "EvalError", None),
        ("export const handlers = () => new Proxy( {}, { ownKeys() { throw new EvalError( 'x' ) } } )", "EvalError", None),
        ("import fs from 'fs'\nexport const handlers = () => ( {} )", "ReferenceError", (0, 0)),
        ("import * as self from 'hooks.mjs'\nexport const handlers = () => ( {} )", "ReferenceError", (0, 0)),
    ],
)  # fmt: skip
def test_a_file_that_fails_while_it_loads_is_refused_with_its_own_line(engine, code, name, place):
    refused = refusal(engine, code)

    assert refused.name == name
    assert (
        place is None
        or (refused.line, refused.column)[: 1 if place[0] else 2] == place[: 1 if place[0] else 2]
    )


def test_a_syntax_error_has_the_line_of_the_file(engine):
    refused = refusal(engine, "export const handlers = () => ( {\n  a: 1,\n  b: = 2 } )")
    assert (refused.name, refused.line) == ("SyntaxError", 4)


def test_text_that_is_open_at_its_end_does_not_swallow_what_is_appended(engine):
    assert refusal(engine, "export const handlers = () => ( {} ) /* open").name == "SyntaxError"
    assert (
        refusal(engine, "export const handlers = () => ( {} ); const a = `open").name
        == "SyntaxError"
    )
    assert open_file(engine, "export const handlers = () => ( { tool: {} } ) // end").hooks


@pytest.mark.parametrize(
    "code",
    [
        "main.n = 2\nexport const handlers = () => ( {} )",
        "export const handlers = () => { main.more = 1; return {} }",
        "await null; delete main.n\nexport const handlers = () => ( {} )",
        "Promise.resolve().then( () => { main.n = 2 } )\nexport const handlers = () => ( {} )",
    ],
)
def test_a_file_whose_code_changes_main_is_refused(engine, code):
    assert refusal(engine, code).name == "MainChanged"


def test_a_main_that_is_not_the_one_that_was_read_is_refused(engine):
    refused = refusal(engine, "export const handlers = () => ( {} )", main='{"n":1}')
    assert refused.name == "MainChanged"


def test_text_that_is_no_unicode_is_refused(engine):
    assert refusal(engine, "// \ud800\nexport const handlers = () => ( {} )").name == "SyntaxError"


# What comes of a call.


@pytest.mark.parametrize(
    ("body", "data"),
    [
        ("return input", {"a": [1, "ü", None, True, 1.5]}),
        ("return null", None),
        ("return 0", 0),
        ("return ''", ""),
        ("return { a: undefined, b: () => 1, c: NaN }", {"c": None}),
        ("return new Date( 0 )", "1970-01-01T00:00:00.000Z"),
        ("return { '__proto__': 1, 'constructor': 2 }", {"constructor": 2}),
    ],
)
def test_a_result_is_what_json_stringify_makes_of_it(engine, body, data):
    argument = '{"a":[1,"ü",null,true,1.5]}'
    assert json.loads(call(engine, body, argument).data) == data


@pytest.mark.parametrize(
    "body",
    [
        "",
        "return undefined",
        "return () => 1",
        "return Symbol( 'x' )",
        "return 10n",
        "return { a: [ 10n ] }",
        "const a = {}; a.a = a; return a",
        "return { toJSON() { return undefined } }",
        "return { toJSON() { throw new Error( 'x' ) } }",
    ],
)
def test_a_result_that_is_not_json_fails_in_its_own_name(engine, body):
    failed = call(engine, body)
    assert isinstance(failed, StepFailed)
    assert failed.name == "NotJSON"


@pytest.fixture
def new_process():
    """The recursion limit of a process that has met no deep value yet."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("levels", [990, 1_500])
@pytest.mark.parametrize("leaf", ["''", "'\\ud83d'"], ids=["text", "half a character"])
@pytest.mark.usefixtures("new_process")
def test_a_result_that_nests_deep_is_a_result_also_if_it_is_the_first_one(engine, levels, leaf):
    # How deep a value may be is for those who read it: the gate refuses what is too deep.
    ended = call(
        engine, f"let o = {leaf}; for( let i = 0; i < {levels}; i++ ) {{ o = [ o ] }} return o"
    )
    assert isinstance(ended, Done)
    assert ended.data.startswith("[" * levels + '"')


def test_a_result_that_nests_deeper_than_its_stack_is_a_failure_and_the_next_call_works(
    hooks_cache,
):
    engine = limited(hooks_cache, seconds=20)  # A busy machine must not stop it before.
    failed = call(engine, "let o = []; for( let i = 0; i < 20000; i++ ) { o = [ o ] } return o")
    assert isinstance(failed, StepFailed)
    assert failed.name == "StackOverflow"
    assert call(engine, "return 1") == Done("1")


@pytest.mark.parametrize(
    ("body", "name", "message"),
    [
        ("throw new RangeError( 'too far' )", "RangeError", "too far"),
        ("throw Object.assign( new Error( 'm' ), { name: 'MyError' } )", "MyError", "m"),
        ("throw 'words'", "Error", "words"),
        ("throw null", "Error", "null"),
        ("throw { code: 'E1' }", "Error", "E1"),
        ("throw { get name() { throw 1 }, get message() { throw 2 } }", "Error", ""),
        ("throw { name: { toString() { throw 1 } }, message: 5 }", "Error", "5"),
        ("await Promise.reject( new TypeError( 'later' ) )", "TypeError", "later"),
        ("throw new Error( 'x'.repeat( 1e5 ) )", "Error", "x" * 2000),
    ],
)
def test_a_hook_that_throws_fails_with_its_own_name_and_words(engine, body, name, message):
    failed = call(engine, body)
    assert isinstance(failed, StepFailed)
    assert (failed.name, failed.message) == (name, message)


def test_a_failure_has_the_line_of_the_file(engine):
    realm = open_file(
        engine,
        "export const handlers = () => ( { tool: {\n"
        "  direct: async () => { throw new Error( 'x' ) },\n"
        "  deep: async ( { a } ) => a.map(\n"
        "     ( i ) => i.b.c ),\n"
        "  ours: async () => new URL( 'nonsense' ) } } )",
    )

    lines = [realm.begin("tool", kind, '{"a":[{}]}').line for kind in ("direct", "deep", "ours")]
    assert lines == [3, 5, 6]


def test_halves_of_surrogate_pairs_go_in_escaped_and_come_out_replaced(engine):
    assert call(engine, "return input.a.charCodeAt( 0 )", '{"a":"\\ud800"}') == Done("55296")
    assert json.loads(call(engine, "return [ '\\u{1F600}'.slice( 0, 1 ) ]").data) == ["\ufffd"]
    assert json.loads(call(engine, r"return '\\ud800 \u{1F600}'").data) == "\\ud800 \U0001f600"
    assert call(engine, "throw new Error( 'a\\ud800' )").message == "a\ufffd"
    assert call(engine, "console.log( '\\udfff' ); return 1").logs == (Log("log", "\ufffd"),)


def test_lone_surrogates_of_an_effect_become_replacement_characters(engine):
    body = r"await fetch( 'https://example.com/', { method: 'POST', body: '\ud800 \\\\ud800 \u{1F600}' } )"
    step = call(engine, body)
    assert step.effects[0].data["text"] == "\ufffd \\\\ud800 \U0001f600"
    step.drop()


def test_a_promise_that_nothing_settles_is_a_failure(engine):
    failed = call(engine, "await new Promise( () => {} )")
    assert isinstance(failed, StepFailed)
    assert failed.name == "NeverSettled"


def test_more_promises_than_the_guest_runs_at_once_are_run_to_the_end(hooks_cache):
    engine = limited(hooks_cache, seconds=20)
    assert call(engine, "let i = 0; for( ; i < 250000; i++ ) { await null } return i") == Done(
        "250000"
    )
    engine.close()


def test_an_argument_that_is_not_json_is_the_caller_s_mistake(engine):
    realm = open_hook(engine, "return 1")
    for argument in ("{", "", "undefined"):
        with pytest.raises(UsageError):
            realm.begin("tool", "hook", argument)
    assert engine.machines.lent == 0


def test_large_arguments_and_results_cross_whole(engine):
    text = json.dumps({"items": [{"i": i, "t": "ü" * 10} for i in range(4000)]}, ensure_ascii=False)
    step = call(engine, "return input", text)
    assert json.loads(step.data) == json.loads(text)


# Limits, each in its own words.


@pytest.mark.parametrize(
    ("limits", "call_of", "name", "words"),
    [
        ({"seconds": 0.1}, ("for( ;; ) {}",), "Timeout", "0.1 s"),
        ({"output_bytes": 1000}, ("return 'x'.repeat( 1000 )",), "OutputLimit", "1000 bytes"),
        ({"output_bytes": 1 << 20}, ("return 'x'.repeat( 4e6 )",), "OutputLimit", "1 MiB"),
        ({"input_bytes": 1 << 10}, ("return 1", json.dumps("x" * 2000)), "InputLimit", "1 KiB"),
        ({"effects": 3}, (f"for( let i = 0; i < 4; i++ ) {{ {FETCH} }}",), "TooManyEffects", "3"),
        ({"effects": 3}, (f"for( let i = 0; i < 100; i++ ) {{ {FETCH} }} await null",), "TooManyEffects", "3"),
        ({"effects": 3}, (f"for( let i = 0; i < 4; i++ ) {{ {FETCH} }} return 1",), "TooManyEffects", "3"),
        ({"memory_bytes": 20 << 20}, ("const a = []; for( ;; ) { a.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) }",), "MemoryLimit", "20 MiB"),
        ({}, ("const f = () => f() + 1; return f()",), "StackOverflow", "2 MiB"),
    ],
)  # fmt: skip
def test_a_broken_limit_is_named_and_told(hooks_cache, limits, call_of, name, words):
    engine = limited(hooks_cache, **limits)

    failed = call(engine, *call_of)

    assert isinstance(failed, StepFailed)
    assert failed.name == name
    assert words in failed.message
    assert call(engine, "return 1") == Done("1")
    assert engine.machines.lent == 0
    engine.close()


@pytest.mark.parametrize(
    "limits",
    [{"seconds": 0}, {"seconds": float("inf")}, {"seconds": True}, {"effects": -1},
     {"memory_bytes": 1 << 20}, {"output_bytes": float("nan")}],
)  # fmt: skip
def test_a_limit_that_cannot_be_kept_is_refused(limits):
    with pytest.raises(InvalidConfig):
        HookLimits(**limits)


def test_console_lines_come_with_the_outcome_within_their_limits(hooks_cache):
    engine = limited(hooks_cache, log_lines=3, log_characters=20)

    done = call(engine, "console.log( 'a' ); console.error( 'b\\n' ); return 1")
    failed = call(engine, "console.warn( 'c' ); throw new Error( 'x' )")
    long = call(engine, "for( let i = 0; i < 9; i++ ) { console.log( 'x'.repeat( 15 ) ) } return 1")

    assert done == Done("1", (Log("log", "a"), Log("error", "b\n")))
    assert failed.logs == (Log("warn", "c"),)
    assert [len(log.text) for log in long.logs] == [15, 5]
    engine.close()


# Effects.


REPLY = {"status": 200, "statusText": "", "url": "", "headers": [], "text": "yes"}


def test_effects_are_data_and_are_settled_in_any_order(engine):
    step = call(
        engine,
        """const [ a, b ] = await Promise.all( [ fetch( 'https://a.example/' ), fetch( 'https://b.example/' ) ] )
           return [ a.status, b.status ]""",
    )
    assert isinstance(step, Pending)
    assert [(effect.id, effect.kind, effect.data["url"]) for effect in step.effects] == [
        (1, "fetch", "https://a.example/"),
        (2, "fetch", "https://b.example/"),
    ]

    step = step.resume([Reply(2, REPLY | {"status": 202})])
    assert isinstance(step, Pending)
    assert step.effects == ()

    assert step.resume([Reply(1, REPLY | {"status": 201})]) == Done("[201,202]")


def test_several_effects_are_settled_in_one_step(engine):
    step = call(
        engine,
        """const all = await Promise.all( [ 1, 2, 3 ].map( ( n ) => fetch( `https://example.com/${ n }` ) ) )
           return Promise.all( all.map( ( r ) => r.text() ) )""",
    )
    replies = [
        Reply(effect.id, REPLY | {"text": effect.data["url"][-1]}) for effect in step.effects
    ]
    assert step.resume(replies[::-1]) == Done('["1","2","3"]')


def test_a_refused_effect_is_a_type_error_with_the_host_s_words(engine):
    step = call(engine, "await fetch( 'https://example.com/' )")
    failed = step.resume([Reply(1, refusal="not from here, \ud800")])
    assert (failed.name, failed.line > 0) == ("TypeError", True)
    assert "not from here" in failed.message

    step = call(
        engine, "try { await fetch( 'https://example.com/' ) } catch( e ) { return e.message }"
    )
    assert json.loads(step.resume([Reply(1, refusal="no")]).data) == "no"


def test_effects_that_nobody_awaits_do_not_keep_a_hook_from_its_end(engine):
    assert call(engine, "fetch( 'https://example.com/' ); return 1") == Done("1")
    step = call(
        engine, "fetch( 'https://a.example/' ); await fetch( 'https://b.example/' ); return 2"
    )
    assert step.resume([Reply(2, REPLY)]) == Done("2")
    assert engine.machines.lent == 0


def test_replies_to_unknown_effects_change_nothing(engine):
    step = call(engine, "return ( await fetch( 'https://example.com/' ) ).text()")
    step = step.resume([Reply(99, REPLY), Reply(-1, REPLY)])
    assert isinstance(step, Pending)
    assert step.resume([Reply(1, REPLY)]) == Done('"yes"')


def test_a_hook_that_waits_for_more_than_its_effects_never_settles(engine):
    step = call(engine, "await fetch( 'https://example.com/' ); await new Promise( () => {} )")
    assert step.resume([Reply(1, REPLY)]).name == "NeverSettled"


def test_effects_of_all_steps_count_together(hooks_cache):
    engine = limited(hooks_cache, effects=2)
    step = call(engine, "for( ;; ) { await fetch( 'https://example.com/' ) }")
    step = step.resume([Reply(1, REPLY)])
    assert step.resume([Reply(2, REPLY)]).name == "TooManyEffects"
    engine.close()


def test_guest_time_of_all_steps_counts_together(hooks_cache):
    """A hook that uses most of its time in each step does not get it anew."""
    engine = limited(hooks_cache, seconds=0.3)
    step = call(
        engine,
        """for( ;; ) { const end = Date.now() + 50; while( Date.now() < end ) {}
           await fetch( 'https://example.com/' ) }""",
    )
    steps = 0
    while isinstance(step, Pending):
        steps += 1
        step = step.resume([Reply(effect.id, REPLY) for effect in step.effects])
    assert step.name == "Timeout"
    assert steps <= 7
    engine.close()


def test_a_reply_that_is_too_large_ends_the_call(hooks_cache):
    engine = limited(hooks_cache, input_bytes=10_000)
    step = call(engine, "return ( await fetch( 'https://example.com/' ) ).text()")
    assert step.resume([Reply(1, REPLY | {"text": "x" * 10_000})]).name == "InputLimit"
    assert engine.machines.lent == 0
    engine.close()


def test_a_dropped_call_gives_its_machine_back_and_cannot_go_on(engine):
    step = call(engine, "await fetch( 'https://example.com/' )")
    assert engine.machines.lent == 1
    step.drop()
    step.drop()
    assert engine.machines.lent == 0
    with pytest.raises(UsageError):
        step.resume([Reply(1, REPLY)])


def test_a_step_is_resumed_once(engine):
    step = call(engine, "return ( await fetch( 'https://example.com/' ) ).text()")
    assert step.resume([Reply(1, REPLY)]) == Done('"yes"')
    with pytest.raises(UsageError):
        step.resume([Reply(1, REPLY)])


def test_a_reply_that_is_no_json_data_leaves_the_call_where_it_was(engine):
    step = call(engine, "return ( await fetch( 'https://example.com/' ) ).text()")
    with pytest.raises(TypeError):
        step.resume([Reply(1, object())])
    assert step.resume([Reply(1, REPLY)]) == Done('"yes"')


def test_effects_carry_data_of_the_moment_they_were_asked(engine):
    step = call(
        engine,
        "const headers = { a: '1' }; const p = fetch( 'https://example.com/', { headers } ); headers.a = '2'; await p",
    )
    assert isinstance(step.effects[0], Effect)
    assert ["a", "1"] in step.effects[0].data["headers"]
    step.drop()


# Machines.


def test_a_machine_that_grew_is_not_used_again(engine):
    grow = "const a = []; for( let i = 0; i < 8; i++ ) { a.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) } return a.length"
    realm = open_hook(engine, grow)
    for _ in range(6):
        # 8 MiB six times over would be more than a memory that only grows may have.
        assert realm.begin("tool", "hook", "{}") == Done("8")


def test_realms_cost_little_beside_the_base_that_they_share(engine):
    realm = open_hook(engine, "return 1")
    assert realm.image.base is open_hook(engine, "return 2").image.base
    assert realm.image.own_bytes < realm.image.size / 3


def test_a_closed_engine_says_so(hooks_cache):
    engine = limited(hooks_cache)
    realm = open_hook(engine, "return 1")
    engine.close()
    with pytest.raises(UsageError):
        realm.begin("tool", "hook", "{}")


def make_pack(tmp_path, name, script):
    file = tmp_path / f"{name}.js"
    file.write_text(script, encoding="utf-8")
    file.chmod(0o600)
    digest = hashlib.sha256(script.encode()).hexdigest()
    return Pack(name, "1.0.0", digest, len(script.encode()), file)


def test_libraries_of_packs_are_loaded_once_and_seen_by_the_factory(engine, tmp_path):
    tmp_path.chmod(0o700)
    packs = [
        make_pack(tmp_path, "twice", "var __callpact_pack = ( n ) => n * 2"),
        make_pack(tmp_path, "names", "globalThis.__callpact_pack = { list: [ 'a' ] }"),
    ]
    code = """export const handlers = ( { libraries } ) => ( { tool: { hook: async ( { n } ) =>
        [ libraries.twice( n ), libraries.names.list, typeof __callpact_pack ] } } )"""

    first = open_file(engine, code, packs=packs)
    second = open_file(engine, code, packs=packs)

    assert first.begin("tool", "hook", '{"n":4}') == Done('[8,["a"],"undefined"]')
    assert first.image.base is second.image.base
    assert open_hook(engine, "return typeof self").begin("tool", "hook", "{}") == Done(
        '"undefined"'
    )


def test_a_library_that_fails_is_named(engine, tmp_path):
    tmp_path.chmod(0o700)
    pack = make_pack(tmp_path, "broken", "throw new Error( 'needs a browser' )")

    refused = refusal(engine, "export const handlers = () => ( {} )", packs=[pack])

    assert refused.name == "LibraryFailed"
    assert "'broken'" in refused.message
    assert "needs a browser" in refused.message
