"""Hostile hooks, family by family: each is stopped by its limit, the process lives, and the next
call on the same engine gives the right answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine
from callpact.sandbox.load import HooksRefused
from callpact.sandbox.steps import Done, StepFailed

TIME = {"Timeout"}
MEMORY = {"MemoryLimit"}
STACK = {"StackOverflow"}
EITHER = TIME | MEMORY  # which comes first depends on the machine

ATTACKS = {
    # Loops that never end.
    "endless loop": ("for( ;; ) {}", TIME),
    "endless loop that catches and finally-s everything": (
        "for( ;; ) { try { for( ;; ) {} } catch( e ) {} finally { continue } }",
        TIME,
    ),
    "endless microtasks": ("for( ;; ) { await null }", TIME),
    "endless chain of promises": (
        "const again = () => Promise.resolve().then( again ); return again()",
        TIME | {"MemoryLimit"},  # Each promise keeps the one before.
    ),
    "getter of a proxy that never returns": (
        "return new Proxy( { a: 1 }, { get() { for( ;; ) {} } } )",
        TIME,
    ),
    "toJSON that never returns": ("return { toJSON() { for( ;; ) {} } }", TIME),
    "thenable that never returns": ("return { then() { for( ;; ) {} } }", TIME),
    "error whose message never returns": (
        "throw { get message() { for( ;; ) {} } }",
        TIME,
    ),
    "iterator without an end": (
        "const all = { *[Symbol.iterator]() { for( ;; ) { yield 1 } } }; for( const x of all ) {}",
        TIME,
    ),
    # Loops inside the engine, where no script runs.
    "catastrophic regular expression": ("return /^(a+)+$/.test( 'a'.repeat( 50 ) + '!' )", TIME),
    "indexOf over a giant length": (
        "return Array.prototype.indexOf.call( { length: 2 ** 53 - 1 }, 1 )",
        TIME,
    ),
    "fill over a giant length": (
        "return Array.prototype.fill.call( { length: 2 ** 53 - 1 }, 0 )",
        EITHER,
    ),
    "join over a giant length": ("return new Array( 2 ** 32 - 1 ).join()", EITHER),
    "sort again and again": (
        "const a = Array.from( { length: 20000 }, ( _, i ) => `${ i * 7919 }` ); for( ;; ) { a.sort() }",
        TIME,
    ),
    "power of big integers": ("return `${ 9n ** ( 9n ** 8n ) }`.length", EITHER | {"RangeError"}),
    # Memory.
    "objects without an end": (
        "const a = []; for( ;; ) { a.push( { x: 'y'.repeat( 1000 ) + a.length } ) }",
        EITHER,
    ),
    "string that doubles": (
        "let s = 'abcdefgh'; for( ;; ) { s += s; s.charCodeAt( s.length - 1 ) }",
        MEMORY | {"RangeError", "InternalError"},
    ),
    "typed arrays without an end": (
        "const a = []; for( ;; ) { a.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) }",
        EITHER,
    ),
    "array of the greatest length": ("return new Array( 2 ** 32 - 1 ).fill( 0 ).length", EITHER),
    "map without an end": (
        "const m = new Map(); for( let i = 0; ; i++ ) { m.set( i, i ) }",
        EITHER,
    ),
    "memory error that is caught again and again": (
        "const a = []; for( ;; ) { try { for( ;; ) { a.push( new Array( 1000 ).fill( 1 ) ) } } catch( e ) {} }",
        EITHER,
    ),
    "one giant buffer": ("return new ArrayBuffer( 2 ** 31 ).byteLength", MEMORY | {"RangeError"}),
    "result of 60 MB": ("return 'x'.repeat( 60e6 )", MEMORY | {"OutputLimit"}),
    # The stack.
    "recursion without an end": ("const f = () => f() + 1; return f()", STACK),
    "recursion in a getter": ("const o = { get a() { return this.a } }; return o.a", STACK),
    "nesting that JSON.stringify must follow": (
        "let o = {}; for( let i = 0; i < 1e5; i++ ) { o = { o } } return JSON.stringify( o ).length",
        STACK | EITHER | {"RangeError"},
    ),
    "nesting that JSON.parse must follow": (
        "return JSON.parse( '['.repeat( 1e6 ) + ']'.repeat( 1e6 ) ).length",
        STACK | EITHER | {"RangeError", "SyntaxError"},
    ),
    "nesting that the regular expression compiler must follow": (
        "return new RegExp( '('.repeat( 1e5 ) + ')'.repeat( 1e5 ) ).test( '' )",
        STACK | EITHER | {"RangeError", "SyntaxError"},
    ),
    "nesting that the parser must follow": (
        "return ( 0, eval )( '('.repeat( 1e5 ) + '1' + ')'.repeat( 1e5 ) )",
        STACK | EITHER | {"RangeError", "SyntaxError"},
    ),
    # Waiting.
    "wait on shared memory": (
        "return Atomics.wait( new Int32Array( new SharedArrayBuffer( 4 ) ), 0, 0 )",
        {"ReferenceError"},
    ),
}

FILE = """export const main = {{}}
export const handlers = () => ( {{ tool: {{ attack: async ( input ) => {{ {body} }} }} }} )
"""
GOOD = """export const main = {}
export const handlers = () => ( { tool: { sum: async ( { items } ) => items.reduce( ( a, b ) => a + b, 0 ) } } )
"""


def resident_bytes():
    """What the process has in memory now; Linux only, elsewhere nothing is claimed."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def assert_next_call_works(engine):
    good = engine.open(GOOD, main="{}", lists="{}")
    for items in ([1, 2, 3], [40, 2]):
        argument = json.dumps({"items": items})
        assert good.begin("tool", "sum", argument) == Done(str(sum(items)))
    assert engine.machines.lent == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_hook_is_stopped_and_the_next_call_works(engine, name):
    body, expected = ATTACKS[name]
    realm = engine.open(FILE.format(body=body), main="{}", lists="{}")
    before = resident_bytes()

    outcome = realm.begin("tool", "attack", "{}")

    assert isinstance(outcome, StepFailed), outcome
    assert outcome.name in expected, outcome
    assert resident_bytes() - before < 80 << 20
    assert_next_call_works(engine)


def test_memory_that_ends_before_the_time_is_told_as_such(hooks_cache):
    body, _ = ATTACKS["endless chain of promises"]
    engine = Engine(hooks_cache, HookLimits(seconds=60, memory_bytes=20 << 20))
    realm = engine.open(FILE.format(body=body), main="{}", lists="{}")
    outcome = realm.begin("tool", "attack", "{}")
    assert (outcome.name, "20 MiB" in outcome.message) == ("MemoryLimit", True)
    engine.close()


LOADING = {
    "loop at the top of the module": ("for( ;; ) {}", "() => ( {} )", "Timeout"),
    "microtasks at the top of the module": ("for( ;; ) { await null }", "() => ( {} )", "Timeout"),
    "promises that nobody awaits": (
        "const again = () => { Promise.resolve().then( again ) }; again()",
        "() => ( {} )",
        "Timeout",
    ),
    "promises that hold one another": (
        "const again = () => Promise.resolve().then( again ); again()",
        "() => ( {} )",
        "Timeout or MemoryLimit",  # Whichever comes first on this machine.
    ),
    "memory at the top of the module": (
        "const a = []; for( ;; ) { a.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) }",
        "() => ( {} )",
        "MemoryLimit",
    ),
    "recursion at the top of the module": (
        "const f = () => f() + 1; f()",
        "() => ( {} )",
        "StackOverflow",
    ),
    "loop in the factory": ("", "() => { for( ;; ) {} }", "Timeout"),
    "recursion in the factory": (
        "",
        "() => { const f = () => f() + 1; return f() }",
        "StackOverflow",
    ),
    "proxy whose keys never come": (
        "",
        "() => new Proxy( {}, { ownKeys() { for( ;; ) {} } } )",
        "Timeout",
    ),
    "getter of a tool that never returns": (
        "",
        "() => ( { get tool() { for( ;; ) {} } } )",
        "Timeout",
    ),
    "getter of a hook that never returns": (
        "",
        "() => ( { tool: { get attack() { for( ;; ) {} } } } )",
        "Timeout",
    ),
    "toJSON of main that never returns": (
        "main.toJSON = () => { for( ;; ) {} }",
        "() => ( {} )",
        "Timeout",
    ),
    "error whose stack never comes": (
        "throw { get stack() { for( ;; ) {} } }",
        "() => ( {} )",
        "Timeout",
    ),
}


@pytest.mark.parametrize("name", LOADING)
def test_a_file_that_attacks_while_it_loads_is_refused_and_the_next_call_works(engine, name):
    code, factory, expected = LOADING[name]

    with pytest.raises(HooksRefused) as caught:
        engine.open(
            f"export const main = {{}}\n{code}\nexport const handlers = {factory}",
            main="{}",
            lists="{}",
        )

    assert caught.value.name in expected.split(" or ")
    assert_next_call_works(engine)


def test_promises_that_fill_the_memory_while_a_file_loads_are_refused_in_good_time(hooks_cache):
    engine = Engine(hooks_cache, HookLimits(load_seconds=60, memory_bytes=20 << 20))
    try:
        with pytest.raises(HooksRefused) as caught:
            engine.open(
                "export const main = {}\n"
                "const again = () => Promise.resolve().then( again ); again()\n"
                "export const handlers = () => ( {} )",
                main="{}",
                lists="{}",
            )
        assert caught.value.name == "MemoryLimit"
    finally:
        engine.close()
