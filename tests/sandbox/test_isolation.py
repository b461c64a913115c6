"""What code in the sandbox can reach: nothing of the host, nothing of other files, and nothing of
what an earlier call did.
"""

from __future__ import annotations

import json
import platform
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from callpact.sandbox.load import HooksRefused
from callpact.sandbox.steps import Done, StepFailed

FILE = """export const main = {}
export const handlers = ( { sharedLists, libraries } ) => { let calls = 0; return { tool: { %s } } }
"""

ECMASCRIPT = """
    Object Function Error EvalError RangeError ReferenceError SyntaxError TypeError URIError
    InternalError AggregateError SuppressedError Iterator Array parseInt parseFloat isNaN isFinite
    decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape Infinity NaN undefined
    eval Number Boolean String Math Reflect Symbol DisposableStack AsyncDisposableStack globalThis
    BigInt Date RegExp JSON Proxy Map Set WeakMap WeakSet ArrayBuffer Uint8ClampedArray Int8Array
    Uint8Array Int16Array Uint16Array Int32Array Uint32Array BigInt64Array BigUint64Array
    Float16Array Float32Array Float64Array DataView Promise
"""


def run(engine, body, argument="{}", *, before="", lists="{}"):
    """The data that a hook with this body returns."""
    source = FILE % f"probe: async ( input ) => {{ {body} }}" + before
    step = engine.open(source, main="{}", lists=lists).begin("tool", "probe", argument)
    assert isinstance(step, Done), step
    return json.loads(step.data)


@pytest.mark.parametrize(
    "name",
    ["process", "require", "module", "global", "Deno", "Bun", "XMLHttpRequest", "WebSocket",
     "Worker", "python", "std", "os", "bjson", "print", "load", "read", "WebAssembly",
     "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "crypto", "performance",
     "setTimeout", "setInterval", "setImmediate", "queueMicrotask", "TextEncoder", "TextDecoder",
     "structuredClone", "atob", "btoa", "DOMException", "navigator", "scriptArgs"],
)  # fmt: skip
def test_a_global_of_other_hosts_is_absent(engine, name):
    assert run(engine, f"return typeof {name}") == "undefined"


def test_globals_are_those_of_ecmascript_and_the_listed_ones(engine):
    found = set(run(engine, "return Object.getOwnPropertyNames( globalThis )"))

    ecmascript = set(ECMASCRIPT.split())
    ours = {"URL", "URLSearchParams", "Buffer", "Headers", "Response", "fetch", "AbortSignal",
            "AbortController", "console"}  # fmt: skip
    assert found <= ecmascript | ours
    assert {"URL", "URLSearchParams", "Buffer", "fetch", "console"} <= found


@pytest.mark.parametrize(
    "name",
    ["fs", "node:fs", "std", "qjs:std", "os", "qjs:os", "crypto", "hooks.mjs", "./hooks.mjs",
     "file:///etc/passwd", "https://example.com/x.js", "data:text/javascript,export default 1"],
)  # fmt: skip
def test_nothing_can_be_imported_by_a_hook(engine, name):
    body = f"try {{ await import( {json.dumps(name)} ); return 'imported' }} catch( e ) {{ return e.name }}"
    assert run(engine, body) != "imported"


@pytest.mark.parametrize(
    "body",
    [
        "return Function( 'return typeof process + typeof require' )()",
        "return ( async () => {} ).constructor( 'return typeof process + typeof require' )()",
        "return [].at.constructor( 'return typeof process + typeof require' )()",
        "return ( 0, eval )( 'typeof process + typeof require' )",
        "return new ( class extends Function {} )( 'return typeof process + typeof require' )()",
    ],
)
def test_functions_made_from_text_reach_the_guest_alone(engine, body):
    assert run(engine, body) == "undefinedundefined"


def test_the_driver_is_in_no_scope_stack_or_caller(engine):
    body = """
        const names = new Set( Object.getOwnPropertyNames( Function( 'return this' )() ) )
        function self() { try { return typeof self.caller } catch( e ) { return e.name } }
        const hits = [ 'start', 'take', 'settle', 'tell', 'load', 'effect', 'log', 'hooks', 'waiting',
            'libraries', 'installGlobals', 'driver', '__callpact_pack' ].filter( ( n ) => names.has( n ) )
        return { hits, caller: self(), thisType: typeof this, stack: new Error( 'x' ).stack }"""
    found = run(engine, body)

    assert found["hits"] == []
    assert found["caller"] in {"TypeError", "undefined", "object"}
    assert not re.search(r"/(?:root|home|usr|tmp|site-packages)|\.py", found["stack"])


def test_arguments_of_a_hook_carry_nothing_but_data(engine):
    body = """
        const seen = [], queue = [ input ]
        while( queue.length ) { const v = queue.pop()
            if( typeof v === 'function' ) { seen.push( 'function' ) }
            if( v && typeof v === 'object' ) {
                if( Object.getPrototypeOf( v ) !== Object.prototype && !Array.isArray( v ) ) { seen.push( 'proto' ) }
                queue.push( ...Object.values( v ) ) } }
        return seen"""
    assert run(engine, body, '{"a":{"__proto__":{"x":1},"constructor":1},"b":[{}]}') == []


@pytest.mark.parametrize(
    "write",
    ["sharedLists.l = 1", "sharedLists.l.push( 1 )", "sharedLists.l[0].a.b = 2",
     "delete sharedLists.l[0].a", "sharedLists.more = 1", "libraries.x = 1"],
)  # fmt: skip
def test_shared_lists_and_libraries_cannot_be_written(engine, write):
    body = f"try {{ {write}; return 'written' }} catch( e ) {{ return e.name }}"
    lists = '{"l":[{"a":{"b":1}}]}'
    source = FILE % f"probe: async () => {{ 'use strict'; {body} }}"

    step = engine.open(source, main="{}", lists=lists).begin("tool", "probe", "{}")

    assert step == Done('"TypeError"')


POLLUTE = """pollute: async () => {
    calls += 1
    Object.prototype.polluted = 'yes'; Array.prototype.evil = 1
    Object.prototype.then = undefined
    Array.prototype.push = () => { throw 1 }
    Object.defineProperty( Object.prototype, 'toJSON', { value() { return 'hijacked' } } )
    Object.defineProperty( Array.prototype, '0', { set() { throw 1 }, get() { return 'mine' } } )
    JSON.stringify = () => 'hijacked'; JSON.parse = () => 'hijacked'
    Promise.prototype.then = () => { throw 1 }
    Promise.resolve = () => { throw 1 }
    Reflect.apply = () => 'hijacked'; Object.keys = () => [ 'x' ]
    String.prototype.slice = () => 'hijacked'
    Symbol.prototype.x = 1
    globalThis.leftover = 'here'; globalThis.console = null
    return 'ok' },
read: async () => ( { calls, polluted: `${ ( {} ).polluted }`, evil: `${ [].evil }`, leftover: typeof leftover,
    json: JSON.stringify( { a: [ 1 ] } ), logs: typeof console } )"""
CLEAN = {
    "calls": 0, "polluted": "undefined", "evil": "undefined", "leftover": "undefined",
    "json": '{"a":[1]}', "logs": "object",
}  # fmt: skip


def test_what_a_call_does_to_prototypes_and_json_does_not_reach_the_next_call(engine):
    realm = engine.open(FILE % POLLUTE, main="{}", lists="{}")
    other = engine.open(FILE % POLLUTE.replace("calls", "count").replace("count,", "calls: 0,")
                        .replace("count += 1", ""), main="{}", lists="{}")  # fmt: skip

    for _ in range(3):
        step = realm.begin("tool", "pollute", "{}")
        # Its own result may be garbled, but it is answered.
        assert isinstance(step, Done | StepFailed)
        assert json.loads(realm.begin("tool", "read", "{}").data) == CLEAN
        assert json.loads(other.begin("tool", "read", "{}").data) == CLEAN


def test_a_polluted_module_is_answered_right_all_the_same(engine):
    before = """
        Array.prototype.push = () => { throw 1 }; Promise.prototype.then = () => { throw 1 }
        JSON.parse = JSON.stringify = () => 'hijacked'; Object.keys = () => [ 'x' ]
        Reflect.apply = () => 'hijacked'; String.prototype.slice = () => 'hijacked'
        Array.prototype[ Symbol.iterator ] = () => { throw 1 }"""

    assert run(engine, "return { got: input.a }", '{"a":[1,2]}', before=before) == {"got": [1, 2]}


def test_a_module_that_breaks_even_the_engine_s_json_is_refused(engine):
    # The engine's own JSON.stringify writes to the arrays that it makes.
    before = "Object.defineProperty( Array.prototype, '0', { set() { throw 1 } } )"

    with pytest.raises(HooksRefused) as caught:
        run(engine, "return 1", before=before)

    assert caught.value.name == "Crashed"
    assert run(engine, "return 1") == 1


def test_images_are_restored_to_machines_of_other_realms(engine):
    realms = [
        engine.open(
            FILE.replace("let calls = 0", f"const name = 'realm {at}'; let calls = 0")
            % "probe: async () => [ name, calls++ ]",
            main="{}",
            lists="{}",
        )
        for at in range(5)
    ]

    for _ in range(3):
        for at, realm in enumerate(realms):
            assert json.loads(realm.begin("tool", "probe", "{}").data) == [f"realm {at}", 0]


def test_memory_of_an_earlier_call_is_gone_from_a_restored_machine(engine):
    """The next tenant gets the bytes of its image, wherever the one before wrote."""
    realm = engine.open(FILE % "probe: async ( { text } ) => text.length", main="{}", lists="{}")
    secret = "secret-of-the-first-caller"
    assert realm.begin("tool", "probe", json.dumps({"text": secret})) == Done(str(len(secret)))

    machine = engine.machines.lend(realm.image)
    try:
        assert secret.encode() not in machine.read(0, machine.size)
    finally:
        engine.machines.take_back(machine)


def test_random_numbers_repeat_after_each_restore(engine):
    """Nothing random crosses into the guest; hooks must not make keys."""
    realm = engine.open(FILE % "probe: async () => Math.random()", main="{}", lists="{}")
    first, second = (realm.begin("tool", "probe", "{}") for _ in range(2))
    assert first == second


def test_the_clock_is_the_host_s(engine):
    import time

    assert abs(run(engine, "return Date.now()") / 1000 - time.time()) < 60


# Threads (the ticker), time, locks and memory; nothing that names a file, a host or a program.
# Numbers for x86-64 and arm64.
HARMLESS = {
    "brk": (12, 214), "clock_getres": (229, 114), "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115), "exit": (60, 93), "exit_group": (231, 94),
    "futex": (202, 98), "getpid": (39, 172), "getrandom": (318, 278), "gettid": (186, 178),
    "madvise": (28, 233), "mmap": (9, 222), "mprotect": (10, 226), "mremap": (25, 216),
    "munmap": (11, 215), "nanosleep": (35, 101), "prctl": (157, 167), "pselect6": (270, 72),
    "restart_syscall": (219, 128), "rseq": (334, 293), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124), "select": (23, None), "set_robust_list": (273, 99),
    "sigaltstack": (131, 132),
}  # fmt: skip
MACHINES = {"x86_64": 0, "aarch64": 1}

FILTERED_CHILD = """
    import ctypes, json, os, struct, sys
    from pathlib import Path
    from callpact.sandbox.engine import Engine
    from callpact.sandbox.hook_limits import HookLimits

    _, cache, file, allowed, extra = sys.argv
    engine = Engine(Path(cache), HookLimits(seconds=0.2))
    realm = engine.open(Path(file).read_text(encoding="utf-8"), main="{}", lists="{}")
    for kind in ("calm", "loop"):  # what is loaded lazily is loaded now, the ticker's thread as well
        realm.begin("tool", kind, "{}")

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filters", ctypes.c_char_p)]

    def step(code, true, false, value):
        return struct.pack("HBBI", code, true, false, value)

    numbers = json.loads(allowed)
    filters = step(0x20, 0, 0, 0)  # load the number of the system call
    for at, number in enumerate(numbers):
        filters += step(0x15, len(numbers) - at, 0, number)  # allowed: jump to the end
    filters += step(0x06, 0, 0, 0x80000000) + step(0x06, 0, 0, 0x7FFF0000)  # kill, allow
    program = Program(len(filters) // 8, filters)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    # All threads, not this one alone: seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC)
    number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    assert libc.syscall(number, 1, 1, ctypes.byref(program)) == 0, ctypes.get_errno()
    for kind in sorted(realm.hooks["tool"]):
        realm.begin("tool", kind, "{}")
    if extra:
        os.open("/dev/null", os.O_RDONLY)
    libc._exit(7)
"""
HOSTILE = """
    calm: async () => 1,
    imports: async () => { for( const m of [ 'fs', 'file:///etc/passwd', 'https://example.com', 'os' ] ) {
        try { await import( m ) } catch( e ) {} } },
    loop: async () => { for( ;; ) {} },
    memory: async () => { const a = []; for( ;; ) { a.push( new Uint8Array( 1 << 20 ).fill( 1 ) ) } },
    regex: async () => /^(a+)+$/.test( 'a'.repeat( 50 ) + '!' ),
    fetches: async () => fetch( 'https://example.com/' ),
    functions: async () => Function( 'return typeof process' )(),
    stack: async () => { const f = () => f() + 1; return f() },
    random: async () => [ Math.random(), Date.now() ],
"""


def filtered(hooks_cache, tmp_path, extra=""):
    """How a process ends that runs hostile code and dies of any other system call."""
    source = tmp_path / "hostile.mjs"
    source.write_text(FILE % HOSTILE, encoding="utf-8")
    column = MACHINES[platform.machine()]
    allowed = [row[column] for row in HARMLESS.values() if row[column] is not None]
    arguments = [str(hooks_cache), str(source), json.dumps(allowed), extra]
    command = [sys.executable, "-c", textwrap.dedent(FILTERED_CHILD), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="system calls are filtered by Linux")
@pytest.mark.skipif(platform.machine() not in MACHINES, reason="numbers of x86-64 and arm64 only")
def test_hostile_code_makes_no_file_network_or_process_call(hooks_cache, tmp_path):
    ended = filtered(hooks_cache, tmp_path)
    assert (ended.returncode, ended.stderr) == (7, "")
    # The filter is no dummy: a process that opens a file dies of it.
    assert filtered(hooks_cache, tmp_path, "open").returncode == -signal.SIGSYS
