"""Hooks by their code alone: what is certain is told where it stands, and nothing else is."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.sources.flowmcp.check.rules.hook_rules import hook_hits
from callpact.sources.flowmcp.read.literal_parser import line_starts
from callpact.sources.flowmcp.read.outline import Outline

MAIN = {"tools": {"getA": {}, "getB": {}, "get-c": {}}, "resources": {"places": {}}}
BEGIN = "export const main = {}\n// ${'`\nexport const handlers = "
CODE = st.text(alphabet="'`/\\${}()[]*,;:=>.\n ar", max_size=40)
SIGNS = """return { } ( ) [ ] => , : ; getA ... ` preRequest async function struct 'a' fetch if
    /* */ / $"""
WORDS = st.tuples(
    st.sampled_from(["", " ", "\n"]),
    st.lists(
        st.sampled_from(SIGNS.split()),
        max_size=40,
    ),
).map(lambda drawn: drawn[0].join(drawn[1]))


def offset(text, hit):
    return line_starts(text)[hit.line - 1] + hit.column - 1


def hits(code, main=MAIN):
    """The key of each hit, and the word or sign that it points at."""
    text = BEGIN + code
    start = text.index("export const handlers")
    found = hook_hits(text, start, main)
    return [(hit.key, re.match(r"'?[\w$]+'?|.", text[offset(text, hit) :])[0]) for hit in found]


def in_hook(kind, body):
    """The hits of a hook whose function has a body."""
    return hits(f"() => ({{ getA: {{ {kind}: async ( {{ struct }} ) => {{ {body} }} }} }})")


# --- keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "() => ({ getX: {} })",
        "( { sharedLists, libraries } ) => ({ getA: {}, getX: { preRequest: f } })",
        "( deps ) => { const a = { b: 1 } ; return { getA, getX: {} } }",
        "deps => ({ ...base, [ name ]: {}, getX })",
        "() => ({ getA: made( [ 1, { getY: 1 } ] ), getX() {} })",
        "function ( deps ) { return { getX: {} } }",
        "async function made( deps ) { return { getX: {} } }",
        "() => { if ( a ) { return { getA: {} } } return { getX: {} } }",
        "() => { const f = ( x ) => { return { getY: 1 } } ; return ( { getX: {} } ) ; }",
        "() => ({ /* getY: {} */ getX: {} }); // { getZ: {} }",
        "() => ({ getX: {} })\nexport const other = 1",
    ],
)
def test_a_key_that_is_no_tool_is_told(code):
    assert hits(code) == [("VAL005", "getX")]


def test_a_key_may_be_a_text():
    assert hits("() => ({ 'getA': {}, 'get-c': {}, 'getX': {} })") == [("VAL005", "'getX'")]


@pytest.mark.parametrize(
    "code",
    [
        "() => ({ getA: {}, 'get-c': {}, places: {} })",
        "() => ({})",
        "() => { return {} }",
        "() => ({ ...getX })",
        "() => ({ [ getX ]: {} })",
        "() => ({ get getX() { return {} } })",
        "() => ({ 'get\\x58': {} })",
        "() => ({ async 'getX'() {} })",
        "() => ({ getX: {} }).made",
        "() => ({ getX: {} })\n  [ 'made' ]",
        "() => wrapped( { getX: {} } )",
        "() => { return\n{ getX: 1 } }",
        "() => { return /* \n */ { getX } }",
        "() => { return { getX: {} }.made }",
        "() => { return { getX: {} }\n  .made }",
        "() => { return { getX: {} } || other }",
        "() => { return { getX: {} }\n in other }",
        "() => { return ( { getX: {} }, other ) }",
        "() => { return [ { getX: {} } ] }",
        "() => { const made = { getX: {} } ; return made }",
        "() => { const f = () => { return { getX: {} } } ; return f() }",
        "() => { function f( a ) { return { getX: {} } } return f() }",
        "() => { const a = { f( b ) { return { getX: {} } } } ; return a.f() }",
        "() => { const a = { if( b ) { return { getX: {} } } } ; return a.if() }",
        "() => { class A { f() { return { getX: {} } } } return new A() }",
        "() => { class A { static if( b ) { return { getX: {} } } } return A.if() }",
        "() => { list.map( ( a ) => { return { getX: a } } ) ; return made }",
        "() => { const a = `${ f( () => { return { getX: 1 } } ) }` ; return b }",
        "() => { try { return { getX: {} } } finally { return {} } }",
        "() => { a.return ( { getX: {} } ) }",
        "() => { 'return { getX }' ; // return { getX }\n }",
        "made( { getX: {} } )",
        "( { getX: {} } )",
        "other",
        "() => ({ getX: {} }",
        "() => ({ getX: ( ] })",
        "",
    ],
)
def test_what_may_be_no_key_is_not_told(code):
    assert hits(code) == []


@pytest.mark.parametrize(
    "code",
    [
        "() => ({ getA: { preRequst: f } })",
        "() => ({ getA: { preRequst() {}, postRequest: f } })",
        "() => ({ getA: { async preRequst( a ) { return { b } } } })",
        "() => ({ getA: { ...base, 'executeRequest': f, preRequst } })",
    ],
)
def test_a_key_that_is_no_hook_is_told(code):
    assert hits(code) == [("VAL161", "preRequst")]


def test_a_hook_outside_of_an_object_is_told():
    assert hits("() => ({ getA: async ( { struct } ) => ({ struct }) })") == [("VAL161", "getA")]
    assert hits("() => ({ getA( a ) {}, getB: function () {} })") == [
        ("VAL161", "getA"),
        ("VAL161", "getB"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "() => ({ getA: { preRequest: f, executeRequest: g, postRequest: h } })",
        "() => ({ getA: made( { preRequst: f } ), getB: preRequst })",
        "() => ({ getA: { preRequst: f }.other, getB: f || { preRequst: 1 } })",
        "() => ({ getA: { helper() {}, postRequest( a ) { return this.helper( a ) } } })",
        "() => ({ getA: { [ preRequst ]: f, ...preRequst } })",
        "() => ({ places: { byCity: { postRequest: f } } })",
    ],
)
def test_keys_that_may_be_reached_are_not_told(code):
    assert hits(code) == []


def test_what_was_probably_meant_is_suggested_and_the_tool_is_named():
    text = "export const handlers = () => ({ getA: { preRequst: f }, getAA: {} })"
    first, second = hook_hits(text, 0, MAIN)
    assert first.path == "/tools/getA"
    assert first.meant == ("preRequst", ("preRequest", "executeRequest", "postRequest"))
    assert second.meant[0] == "getAA"
    assert {*second.meant[1]} == {"getA", "getB", "get-c", "places"}


def test_tools_under_their_old_name_are_tools():
    text = "export const handlers = () => ({ getA: { b: 1 }, getX: {} })"
    found = [*hook_hits(text, 0, {"routes": {"getA": {}}})]
    assert [(hit.key, hit.path) for hit in found] == [("VAL161", "/routes/getA"), ("VAL005", "")]


# --- what hooks return ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "keys", "rule"),
    [
        # Seed 002, Handler Types; what compat takes besides: design, decision 1 and FlowMCP 24.
        ("preRequest", "struct, payload", None),
        ("preRequest", "struct", "SEC101:usual"),
        ("preRequest", "payload", "SEC101:usual"),
        ("preRequest", "response", "SEC101"),
        ("executeRequest", "response", None),
        ("executeRequest", "struct", "SEC101:usual"),
        ("executeRequest", "struct, response", None),
        ("executeRequest", "payload", "SEC101"),
        ("postRequest", "response", None),
        ("postRequest", "response, struct, payload", None),
        ("postRequest", "struct, payload", "SEC101"),
        ("postRequest", "", "SEC101"),
    ],
)
def test_a_hook_must_return_what_its_kind_returns(kind, keys, rule):
    expected = [] if rule is None else [(rule, "{")]
    assert in_hook(kind, f"return {{ {keys} }}") == expected
    assert in_hook(kind, f"return ({{ {keys} }}) ;") == expected
    assert in_hook(kind, f"if ( a ) {{ b() }} else return {{ {keys} }} ; c()") == expected
    pairs = keys.replace(",", ": [ 1, { a } ],") + (": b" if keys else "")
    for function in (
        f"async () => ({{ {pairs} }})",
        f"a => ({{ {pairs} }})",
        f"async function () {{ return {{ {pairs} }} }}",
    ):
        assert hits(f"() => ({{ getA: {{ {kind}: {function} }} }})") == expected
    method = f"async {kind}( {{ struct }} ) {{ return {{ {pairs} }} }}"
    assert hits(f"() => ({{ getA: {{ {method}, }} }})") == expected


@pytest.mark.parametrize(
    "body",
    [
        "if ( a ) { return { b } }",
        "if ( a ) return { b } ; else return { response }",
        "if ( a ) {} else { return { b } }",
        "for ( const a of c ) { while ( d ) { return { b } } }",
        "for await ( const a of c ) { return { b } }",
        "try { return { b } } catch ( error ) { throw error }",
        "try { a() } catch { return { b } }",
        "try { a() } catch ( error ) { return { b } }",
        "do { return { b } } while ( a )",
        "switch ( a ) { case 1: return { b } ; default: return { response } }",
        "{ return { b } }",
        "const c = a.map( ( d ) => { return { response } } )\nreturn { b }\n",
        "const r = /}return{/ ; return { b }",
        "const t = `}${ { c } }` ; return { 'b': `${ c }` }",
        "return { b, }\nfunction c() { return { d } }",
    ],
)
def test_every_return_of_the_hook_itself_is_looked_at(body):
    assert in_hook("postRequest", body) == [("SEC101", "{")]


@pytest.mark.parametrize(
    "body",
    [
        "return { ...answer }",
        "return { [ key ]: 1 }",
        "return { b, ...answer }",
        "return { toJSON() { return { response } } }",
        "return { get response() { return 1 } }",
        "return { 'respons\\x65': 1 }",
        "return { \\u0072esponse: 1 }",
        "return { b }.c",
        "return { b } ?? c",
        "return ( { b } ).c",
        "return a ? { b } : { response }",
        "return Object.assign( {}, { b } )",
        "return answer",
        "return",
        "return\n{ b }",
        "list.map( ( a ) => { return { b } } ) ; return { response }",
        "const f = function ( a ) { return { b } } ; return f()",
        "const o = { f( a ) { return { b } }, catch( a ) { return { b } } } ; return o.f()",
        "class A { for( a ) { return { b } } } ; return new A().for( 1 )",
        "try { return { b } } finally { return { response } }",
        "const text = 'return { b }' ; /* return { b } */ return { response: text }",
    ],
)
def test_a_return_that_may_be_right_is_not_told(body):
    assert in_hook("postRequest", body) == []


@pytest.mark.parametrize(
    "hook",
    [
        "postRequest: made( () => ({ b }) )",
        "postRequest: () => ({ b }).c",
        "postRequest: () => ({ b })[ c ]",
        "postRequest: ( () => ({ b }) )",
        "postRequest: async ( a ) => answer( { b } )",
        "postRequest: () => {}",
        "postRequest: function* () { return { b } }",
        "* postRequest() { return { b } }",
        "get postRequest() { return { b } }",
        "[ postRequest ]: () => ({ b })",
        "postRequest: null",
        "postRequest",
    ],
)
def test_what_may_be_no_hook_is_not_looked_at(hook):
    assert hits(f"() => ({{ getA: {{ {hook} }} }})") == []


def test_what_compat_takes_is_told_once_for_each_hook():
    body = "if ( a ) { return { struct } } return { struct }"
    assert in_hook("preRequest", body) == [("SEC101:usual", "{")]
    assert in_hook("postRequest", body) == [("SEC101", "{"), ("SEC101", "{")]


def test_the_message_names_hook_and_tool_and_both_shapes():
    text = "export const handlers = () => ({ getA: { postRequest: () => ({ data: 1 }) } })"
    (found,) = hook_hits(text, 0, MAIN)
    for part in ("postRequest", "'getA'", "{ response }", "{ data }"):
        assert part in found.message
    assert found.path == "/tools/getA"
    assert offset(text, found) == text.index("{ data")


# --- fetch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["preRequest", "postRequest"])
@pytest.mark.parametrize(
    "body",
    [
        "const a = await fetch( struct.url )",
        "await Promise.all( list.map( ( a ) => fetch( a ) ) )",
        "return fetch?.( a )",
        "const get = fetch",
        "a = `${ await fetch( b ) }`",
    ],
)
def test_fetch_outside_of_execute_request_is_told(kind, body):
    assert in_hook(kind, body) == [("SEC100", "fetch")]
    assert in_hook("executeRequest", body) == []


def test_fetch_in_a_hook_that_is_one_expression_is_told():
    assert hits("() => ({ getA: { preRequest: ( a ) => fetch( a ) } })") == [("SEC100", "fetch")]


@pytest.mark.parametrize(
    "body",
    [
        "'fetch( a )' // fetch( a )",
        "await libraries.axios.fetch( a )",
        "client\n  . fetch( a )",
        "typeof fetch === 'function'",
        "prefetch( a ) ; fetch$( a )",
        "const a = { fetch: 1 }",
        "const a = { fetch( b ) { return b } }",
        "const fetch = 1 ; fetch( a )",
        "let fetch ; fetch( a )",
        "function fetch( a ) {} fetch( a )",
        "const { fetch } = libraries ; fetch( a )",
        "const [ fetch ] = list ; fetch( a )",
        "list.map( ( fetch ) => fetch( a ) )",
        "list.map( ( a, fetch = b ) => fetch( a ) )",
    ],
)
def test_what_may_be_another_fetch_is_not_told(body):
    assert in_hook("preRequest", body) == []


def test_a_fetch_that_the_factory_is_given_may_be_another():
    hook = "getA: { preRequest: () => { fetch( a ) } }"
    assert hits(f"( {{ libraries }} ) => ({{ {hook} }})") == [("SEC100", "fetch")]
    assert hits(f"( {{ fetch }} ) => ({{ {hook} }})") == []


def test_fetch_beside_the_hooks_is_not_told():
    code = "() => { const get = ( a ) => fetch( a ) ; return { getA: { preRequest: get } } }"
    assert hits(code) == []


# --- laws -----------------------------------------------------------------------------------


@given(CODE | WORDS, st.sampled_from(["", "({ ", "({ getA: { ", "{ ", "{ return { "]))
def test_any_code_is_taken(code, begin):
    hits(f"() => {begin}{code}")
    closing = {"(": ")", "{": "}"}
    end = "".join(closing[sign] for sign in reversed(begin) if sign in closing)
    hits(f"() => {begin}{code}{end}")
    hits(f"() => ({{ getA: {{ preRequest: () => {{ {code} }} }} }})")


@given(CODE | WORDS)
def test_offsets_point_into_the_code(code):
    text = f"{BEGIN}() => ({{ getA: {{ preRequest() {{ {code} }} }}, getX: {{}} }})"
    start = text.index("export const handlers")
    assert all(start < offset(text, hit) < len(text) for hit in hook_hits(text, start, MAIN))


UNITS = """a, a:1, a:{}, getA:{}, getA:{preRequest(){}}, preRequest(){}, preRequest:()=>({}),
    return{}; return{response}; return({}) { } {} () (){} if(a){ if(a){} else{ async [a]:1, ...a,
    'a':1, fetch( fetch() x=fetch; typeof_fetch; fetch, a:fetch, function function(){} => a=> ()=>({
    return return( /* /**/ ` `${ `${a}` / " \\ $ finally ({ }{ a:() catch{return{}} fetch(){},"""
AROUND = [
    ("", ""),
    ("({ ", " })"),
    ("({ getA: { ", " } })"),
    ("({ getA: { preRequest: () => { ", " } } })"),
    ("({ getA: { postRequest: () => ({ ", " }) } })"),
]


@pytest.mark.parametrize("unit", UNITS.split())
@pytest.mark.parametrize(("begin", "end"), AROUND)
def test_large_hostile_code_is_looked_at_in_one_pass(unit, begin, end):
    # Anything but one pass over 40,000 characters would take minutes.
    text = unit.replace("_", " ") * (40_000 // len(unit))
    closing = {"(": ")", "[": "]", "{": "}"}
    open_ = [closing[sign] for sign in reversed(unit) if sign in closing]
    for more in ("", "".join(open_) * (40_000 // len(unit))):
        code = f"export const handlers = () => {begin}{text}{more}{end}"
        for _ in itertools.islice(hook_hits(code, 0, MAIN), 10_000):
            pass


def test_code_that_is_too_large_to_be_looked_at_is_told():
    assert hits(f"() => ({{ getX: {{}} }}) // {'a' * 256 * 1024}") == [("VAL163", "export")]


@pytest.mark.parametrize(
    ("code", "is_whole"),
    [
        ("( [ { } ] )", True),
        ("( '(' /* [ */ )", True),
        ("{ ( }", False),
        ("( ]", False),
        ("{ {} ", False),
        ("}", False),
    ],
)
def test_an_outline_is_whole_if_its_brackets_match(code, is_whole):
    assert Outline(code, 0).is_whole is is_whole


@given(CODE | WORDS)
def test_an_outline_keeps_the_offsets_of_any_text(code):
    assert len(Outline(code, 0).code) == len(code)
