"""The static scan: it sees code, all of it, and nothing but code; in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.sources.flowmcp.read.literal_parser import line_starts
from callpact.sources.flowmcp.read.scan import blank, hooked_tools, scan, uses_hook

CODE = st.text(alphabet="'\"`/\\${}()[]*;=>\n\r ai.x1\u2028", max_size=60)


def codes(text, kind="schema"):
    return [hit.key.partition(":")[0] for hit in scan(text, kind)]


def offset(text, hit):
    return line_starts(text)[hit.line - 1] + hit.column - 1


def word(hit):
    return hit.message.partition("'")[2].partition("' must not")[0]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import fs from 'fs'", "SEC001"),
        ("const a = await import('x')", "SEC001"),
        ("import\t( x )", "SEC001"),
        ("import.meta.url", "SEC001"),
        ("const a = { ...import('x') }", "SEC001"),
        ("require('x')", "SEC002"),
        ("require /* c */ ( 'x' )", "SEC002"),
        ("eval('1')", "SEC003"),
        ("( 0, eval )('1')", "SEC003"),
        ("Function('return 1')", "SEC004"),
        ("x = new  Function", "SEC005"),
        ("process.env.KEY", "SEC006"),
        ("process?.env", "SEC006"),
        ("process [ 'env' ]", "SEC006"),
        ("process/**/.env", "SEC006"),
        ("child_process", "SEC007"),
        ("fs.readFileSync( a )", "SEC008"),
        ("x = { a: node:fs }", "SEC009"),
        ("fs/promises", "SEC010"),
        ("globalThis.x", "SEC011"),
        ("const g = globalThis", "SEC011"),
        ("global.x", "SEC012"),
        ("__dirname", "SEC013"),
        ("__filename", "SEC014"),
        ("setTimeout( f, 1 )", "SEC015"),
        ("setInterval( f, 1 )", "SEC016"),
        ("new WebSocket( a )", "VAL141"),
        ("new XMLHttpRequest()", "VAL141"),
        ("\\u0065val('1')", "VAL142"),
    ],
)
def test_a_forbidden_word_in_code_is_found(text, code):
    assert codes(text) == [code]
    assert codes(f"const a = 1 // c\n{text}") == [code]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("const p = process", "SEC006"),
        ("run( process )", "SEC006"),
        ("const a = { process }", "SEC006"),
        ("return { a: process }", "SEC006"),
        ("[ ...process ]", "SEC006"),
        ("a ? process : b", "SEC006"),
        ("a ? b : process", "SEC006"),
        ("switch( a ) { case process: b() }", "SEC006"),
        ("typeof process", "SEC006"),
        ("`${ process }`", "SEC006"),
        ("x => process", "SEC006"),
        ("process()", "SEC006"),
        ("const { env } = process", "SEC006"),
        ("( { a = process } ) => a", "SEC006"),
        ("( a, b = { process } ) => a", "SEC006"),
        ("if( process ) { a() }", "SEC006"),
        ("for( const a of process ) { a() }", "SEC006"),
        ("{ const process = 1 } ; process", "SEC006"),
        ("const a = ( process ) => 1 ; process", "SEC006"),
        ("const a = process => process, b = process", "SEC006"),
        ("class A { process() {} ; b() { return process } }", "SEC006"),
        ("( { process } = a )", "SEC006"),
        ("process ( ; ]", "SEC006"),
        ("const f = function process() { return process.a } ; process", "SEC006"),
        ("run( class process {} ) ; process", "SEC006"),
        ("const { readFileSync } = fs", "SEC008"),
        ("const F = Function ; F( 'return 1' )", "SEC004"),
        ("x instanceof Function", "SEC004"),
        ("Function.prototype", "SEC004"),
        ("new Function( 'return 1' )", "SEC005"),
        ("( () => {} ).constructor( 'return 1' )", "SEC005"),
        ("a.b . constructor( 'return 1' )", "SEC005"),
        ("a?.constructor( 'return 1' )", "SEC005"),
        ("const F = a.constructor", "SEC005"),
        ("a[ 'constructor' ]( 'return 1' )", "SEC005"),
        ("a[`constructor`]", "SEC005"),
        ("const { constructor } = () => {}", "SEC005"),
        ("const { name, constructor: F } = () => {}", "SEC005"),
        ("const { process: p } = globalThis", "SEC011"),
        ("globalThis['process']", "SEC011"),
        ("const g = globalThis ; g.process", "SEC011"),
        ("const g = global ; g.process", "SEC012"),
        ("const r = require", "SEC002"),
        ("const later = setTimeout", "SEC015"),
        ("const { WebSocket: W } = { WebSocket }", "VAL141"),
        ("console.log( a )", "VAL164"),
        ("const { log } = console", "VAL164"),
        ("console[ 'log' ]( a )", "VAL164"),
    ],
)
def test_a_forbidden_name_is_found_however_it_is_taken(text, code):
    assert codes(text) == [code]


@pytest.mark.parametrize(
    "text",
    [
        "data.process ; data?.process ; data . process ; data\n  .process",
        "const a = { process: 1, fs: 2, Function: 3, console: 4 }",
        "const a = { process() { return 1 }, async fs( b ) { return b }, get global() { return 1 } }",
        "class A { process() {} ; static fs() {} ; #process ; b() { return this.#process } }",
        "const { process } = payload ; process.a",
        "const { a: process } = payload ; run( process )",
        "const { a: [ process = 1 ], ...fs } = payload ; run( process, fs )",
        "let a = 1, process = 2 ; process",
        "let a = { b: 1 }, { process } = c ; process",
        "( { process } ) => ({ process })",
        "( { process = 1 } = {} ) => process",
        "process => process.a",
        "async process => process.a",
        "async ( a, ...process ) => process.a",
        "function run( process ) { return process }",
        "const a = { run( { process } ) { return process } }",
        "function process( a ) { return a } ; process( 1 )",
        "function* process( a ) { yield a } ; process( 1 )",
        "const f = async function process() { return process.a }",
        "try { a() } catch ( process ) { run( process ) }",
        "for( const process of list ) { run( process ) }",
        "for( const [ key, process ] of list ) run( process )",
        "() => { if( a ) { var process = 1 } ; return process }",
        "const process = 1 ; const a = () => ({ b: () => process })",
        "process: for( const a of b ) { continue }",
        "'process' ; /process/.test( a ) ; `process` // process",
        "class A extends B { constructor() { super() } }",
        "a.constructor.name ; a?.constructor?.name",
        "a.constructor === Object && Object !== a.b.constructor",
        "const words = [ 'constructor' ]",
        "offset.fs ; fsx ; $process ; preprocess( a ) ; consoles.log",
    ],
)
def test_members_keys_and_names_of_the_code_itself_are_no_hits(text):
    assert codes(text) == []


def test_names_declared_without_end_are_looked_at_in_linear_time():
    assert codes("process=>" * 100_000 + "1 ; a") == []
    assert codes("let a=1" + ",process" * 50_000 + ";") == []
    assert codes("[" * 50_000 + "process" + "]" * 50_000) == ["SEC006"]


@pytest.mark.parametrize(
    "text",
    [
        "// import x from 'y'",
        "/* eval( process.env ) */",
        "'import( x )'",
        '"require( x )"',
        "'it\\'s eval( x )'",
        "'a\\\nimport b'",
        "`global.api and \\` eval( x )`",
        "x = /eval\\(import['\"`]/g",
        "return /process.env/.test( a )",
        "a => /[/]eval(x)/",
        "x = a / b / c",
        "data.process.name",
        "data?.global.name",
        "important = requireAll( evaluate )",
        "getFunction( a ) ; $import ; import_ ; processed.x",
        "const a = { import: 1, eval : 2 }",
        "",
    ],
)
def test_words_that_are_not_code_or_not_a_use_are_no_hits(text):
    assert codes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "`a ${ import( 'x' ) } b`",
        "`${ `${ eval( 1 ) }` }`",
        "`${ { a: '}' } } ${ eval( 1 ) }`",
        "x = /[`'\"]/ ; eval( 1 )",
        "x = a / 'b' ; eval( 1 )",
        "x = i++ / 2 ; eval( 1 ) / 3",
        "x = ( a ) / 2 ; eval( 1 ) / 3",
        "'open ; not closed\n eval( 1 )",
        "/* c */ eval( 1 ) // c",
        "x = '\\\\' ; eval( 1 )",
    ],
)
def test_code_next_to_texts_is_still_seen(text):
    assert len(codes(text)) == 1


def test_hits_come_in_the_order_of_the_text_with_their_offsets():
    text = "// eval\nfs.a ; import( x ) ; fs.b"
    assert [(offset(text, hit), word(hit)) for hit in scan(text)] == [
        (text.index("fs.a"), "fs"),
        (text.index("import"), "import"),
        (text.index("fs.b"), "fs"),
    ]


def test_what_stands_before_the_code_is_not_looked_at():
    text = "{ import } eval( 1 )"
    assert [(hit.key, offset(text, hit)) for hit in scan(text, "schema", 10)] == [("SEC003", 11)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("function a() {}", "SEC200"),
        ("a => a", "SEC201"),
        ("async", "SEC202"),
        ("await b", "SEC202"),
        ("`a ${ b }`", "SEC203"),
        ("import a", "SEC204"),
        ("eval( a )", "SEC204"),
    ],
)
def test_a_list_may_use_less_than_a_schema(text, code):
    assert codes(text, "list") == [code]


def test_texts_and_comments_of_a_list_may_say_anything():
    assert codes("'function => async ${' // import\n`await`", "list") == []


# --- hooks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "( {} ) => ({ getA: { preRequest } })",
        "() => { const getA = {} ; return { getA } }",
        "() => ({ b: {}, getA, c: {} })",
        "() => ({ 'getA': {} })",
        '() => ({ "getA" : {} })',
        "() => { const h = {} ; h[ 'getA' ] = {} ; return h }",
        "() => ({ getA( a ) {} })",
        "() => { h.getA = {} ; return h }",
        "() => ({ [ name ]: {} })",
        "() => Object.fromEntries( names )",
    ],
)
def test_a_tool_whose_name_can_be_a_key_is_hooked(code):
    text = f"export const main = {{ getA: 1 }}\nexport const handlers = {code}"
    assert hooked_tools(text, text.index("export const handlers"), ["getA"]) == {"getA"}


@pytest.mark.parametrize(
    "code",
    [
        "() => ({ getB: {} })",
        "() => ({ getAll: {}, forgetA: {}, $getA: {} })",
        "() => ({}) // getA: {}",
        "() => ({ getB: { a: getA + 1 } })",
        "() => ({ getB: { a: x ? [ y ] : [] } })",
    ],
)
def test_a_tool_that_the_code_does_not_name_is_not_hooked(code):
    text = f"export const main = {{ getA: 1 }}\nexport const handlers = {code}"
    assert hooked_tools(text, text.index("export const handlers"), ["getA", ""]) == frozenset()


def test_many_names_are_found_as_a_few_are():
    names = [f"get{index}" for index in range(40)]
    code = "() => ({ " + ", ".join(f"{name}: {{}}" for name in names[::2]) + " })"
    assert hooked_tools(code, 0, names) == set(names[::2])
    assert hooked_tools(code, 0, names[:4]) == {"get0", "get2"}


def test_a_kind_of_hook_is_seen_in_code_alone():
    assert uses_hook("() => ({ a: { executeRequest: f } })", 0, "executeRequest")
    assert not uses_hook("() => ({ a: {} }) // executeRequest", 0, "executeRequest")


# --- laws -----------------------------------------------------------------------------------


@given(CODE)
def test_blanking_keeps_every_offset_and_adds_nothing(text):
    code = blank(text)
    assert len(code) == len(text)
    assert all(new in {old, " "} for old, new in zip(text, code, strict=True))


@given(CODE, CODE)
def test_the_scan_takes_any_text(first, second):
    text = f"{first}import{second}eval"
    assert all(
        text[offset(text, hit) :].startswith(("import", "eval"))
        for hit in scan(text, "list")
        if hit.key == "SEC204" and word(hit) != "\\u"
    )


@pytest.mark.parametrize(
    "unit",
    [
        "'\"",
        "`",
        "`${",
        "`${{",
        "/",
        "= /[",
        "(/[",
        "/ ",
        "=/a",
        "/*",
        "\\",
        "'\\",
        "a ",
        "}/",
        "new ",
        "{[",
        ",[ ",
        "$",
        "`$",
        "process ",
        "return/ ",
        "'`/\"\\${}",
        "fs. ",
        "\n",
    ],
)
def test_a_large_hostile_file_is_scanned_in_one_pass(unit):
    # Anything but one pass over 100,000 characters would take minutes.
    text = unit * (100_000 // len(unit)) + " import"
    assert len(blank(text)) == len(text)
    scan(text, "list")
    hooked_tools(text, 0, ["a", "b"])
