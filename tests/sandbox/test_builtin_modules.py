"""`crypto`, `zlib` and `Intl` of hooks: Node's results, within the limits of the sandbox.

`node-results.json` are expressions and their values in Node 20 and 24, which agree on all of them;
of an error, its class and code.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from pathlib import Path

import pytest

from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine
from callpact.sandbox.js.builtin_modules import needed_modules, node_module
from callpact.sandbox.js.time_zones import read_zones, zone_texts
from callpact.sandbox.steps import Done, StepFailed

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "node-results.json").read_text("utf-8"))
ALL = ("crypto", "intl", "zlib")
RUNNER = """export const main = {}
export const handlers = ( { libraries } ) => {
    const { crypto, zlib } = libraries
    const sum = ( bytes ) => [ bytes.length, crypto.createHash( 'md5' ).update( bytes ).digest( 'hex' ) ]
    return { t: {
        one: async ( { code } ) => eval( `( ${ code } )` ),
        all: async ( codes ) => {
            const results = []
            for( const code of codes ) {
                try { results.push( await eval( `( ${ code } )` ) ) }
                catch( error ) { results.push( { throws: error.name, code: error.code ?? null } ) }
            }
            return results
        }
    } }
}
"""


@pytest.fixture(scope="module")
def patient(hooks_cache):
    engine = Engine(hooks_cache, HookLimits(seconds=60, load_seconds=60))
    yield engine
    assert engine.machines.lent == 0
    engine.close()


@pytest.fixture(scope="module")
def realm(patient):
    return patient.open(RUNNER, main="{}", lists="{}", modules=ALL)


def value(realm, code):
    step = realm.begin("t", "one", json.dumps({"code": code}))
    assert isinstance(step, Done), step
    return json.loads(step.data)


def thrown(realm, code):
    step = realm.begin("t", "one", json.dumps({"code": code}))
    assert isinstance(step, StepFailed), step
    return step


def test_recorded_expressions_give_what_node_gives(realm):
    step = realm.begin("t", "all", json.dumps([code for code, _ in RECORDED]))
    assert isinstance(step, Done), step
    pairs = zip(RECORDED, json.loads(step.data), strict=True)
    wrong = [(code, expected, came) for (code, expected), came in pairs if expected != came]
    assert not wrong


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("crypto.createCipheriv( 'aes-256-gcm' )", "crypto in hooks has no createCipheriv"),
        ("crypto.subtle.digest( 'SHA-256', Buffer.from( '' ) )", "has no subtle.digest"),
        ("crypto.createHash( 'sha3-256' )", "'sha3-256'; hooks have md5, sha1"),
        ("zlib.gzipSync( 'a' )", "zlib in hooks has no gzipSync; it has inflateRawSync"),
        ("zlib.brotliDecompressSync( 'a' )", "brotliDecompressSync"),
        ("new Intl.NumberFormat( 'de-DE' )", "Intl.NumberFormat does not exist in hooks"),
        ("( 1 ).toLocaleString( 'de-DE' )", "Number.prototype.toLocaleString"),
        ("new Intl.DateTimeFormat( 'fr-FR' )", "locale 'fr-FR': it has en-US and de-DE"),
        ("new Intl.DateTimeFormat( 'de-DE', { era: 'short' } )", "no era"),
        (
            "new Intl.DateTimeFormat( 'en', { hour: 'numeric', second: 'numeric' } )",
            "hour and second",
        ),
        (
            "new Date( 0 ).toLocaleString( 'de', { timeZone: 'Europe/Berlin', timeZoneName: 'long' } )",
            "use 'shortOffset' or 'longOffset'",
        ),
        ("new Intl.DateTimeFormat( 'de' ).formatRange( 0, 1 )", "formatRange"),
    ],
)
def test_what_hooks_do_not_have_is_named(realm, code, names):
    assert names in thrown(realm, code).message


def test_a_small_input_does_not_become_a_large_output(realm):
    packed = zlib.compress(bytes(64 << 20), 9)
    code = f"zlib.inflateSync( Buffer.from( '{packed.hex()}', 'hex' ) )"
    failed = thrown(realm, code)
    assert failed.name in {"RangeError", "MemoryLimit"}
    assert value(realm, "1 + 1") == 2


def test_unpacking_that_takes_too_long_ends_with_the_time_limit(hooks_cache):
    engine = Engine(hooks_cache, HookLimits(seconds=0.05))
    realm = engine.open(RUNNER, main="{}", lists="{}", modules=ALL)
    packed = zlib.compress(os.urandom(300) * 20_000, 0)
    code = f"zlib.inflateSync( Buffer.from( '{packed[:3_000_000].hex()}', 'hex' ) )"
    assert thrown(realm, code).name in {"Timeout", "Error"}
    assert thrown(realm, "( () => { for( ;; ) crypto.randomBytes( 65536 ) } )()").name == "Timeout"
    engine.close()


def test_random_bytes_differ_from_call_to_call_and_within_one(realm):
    code = (
        "[ crypto.randomUUID(), crypto.randomUUID(), crypto.randomBytes( 32 ).toString( 'hex' ) ]"
    )
    seen = [text for _ in range(50) for text in value(realm, code)]
    assert len(set(seen)) == len(seen)


def test_random_bytes_are_spread_over_all_values(realm):
    digits = "".join(
        value(realm, "crypto.randomBytes( 20000 ).toString( 'hex' )") for _ in range(3)
    )
    counts = [bytes.fromhex(digits).count(byte) for byte in range(256)]
    assert min(counts) > 120  # of 234 expected
    assert max(counts) < 360


@pytest.mark.parametrize("size", [65_537, 1e9, 0.5])
def test_random_bytes_are_bounded(realm, size):
    assert "65536" in thrown(realm, f"crypto.randomBytes( {size} )").message


def test_random_bytes_do_not_exist_while_a_file_is_loaded(patient):
    source = RUNNER.replace("return { t", "crypto.randomUUID(); return { t")
    with pytest.raises(Exception, match="while a hook is called"):
        patient.open(source, main="{}", lists="{}", modules=ALL)


def test_modules_are_frozen_and_leave_nothing_to_the_next_call(realm):
    assert thrown(realm, "( crypto.createHash = 1, 'use strict' )").name == "TypeError"
    value(realm, "( Date.prototype.toLocaleString = () => 'x', Intl.DateTimeFormat = null, 1 )")
    assert value(realm, "new Date( 0 ).toLocaleDateString( 'de' )") == "1.1.1970"


def test_a_realm_without_modules_has_none_of_them(patient):
    source = RUNNER.replace(
        "const { crypto, zlib } = libraries", "const names = Object.keys( libraries )"
    )
    realm = patient.open(source, main="{}", lists="{}")
    code = "[ typeof Intl, typeof inflateRawSync, typeof _node_, names ]"
    assert value(realm, code) == ["undefined", "undefined", "undefined", []]


def test_modules_add_these_globals_and_no_other(patient):
    source = """export const main = {}
    export const handlers = () => ( { t: { one: () => Object.getOwnPropertyNames( globalThis ) } } )"""
    plain, rich = (
        set(
            json.loads(
                patient.open(source, main="{}", lists="{}", modules=modules)
                .begin("t", "one", "{}")
                .data
            )
        )
        for modules in ((), ALL)
    )
    unpacking = {"inflateRawSync", "inflateSync", "gunzipSync", "unzipSync"}
    assert rich - plain == {"Intl", "_node_", *unpacking}
    assert plain <= rich


@pytest.mark.parametrize(
    ("text", "libraries", "modules"),
    [
        ("", (), ()),
        ("", ("ethers", "zlib"), ("zlib",)),
        ("", ("node:crypto", "crypto", "fs"), ("crypto",)),
        ("new Intl.DateTimeFormat()", (), ("intl",)),
        ("date.toLocaleDateString( 'de' )", ("zlib",), ("intl", "zlib")),
        ("const Intlx = toLocaleStringy", (), ()),
    ],
)
def test_a_file_has_the_modules_that_it_names(text, libraries, modules):
    assert needed_modules(text, libraries) == modules


def test_only_some_modules_of_node_exist():
    assert [node_module(name) for name in ("crypto", "node:zlib", "node:fs", "zlibx", "node:")] == [
        "crypto", "zlib", None, None, None,
    ]  # fmt: skip


def test_every_zone_of_the_system_has_a_rule_that_is_understood(realm):
    codes = [
        f"new Intl.DateTimeFormat( 'en', {{ timeZone: '{name}', timeZoneName: 'longOffset' }} ).format( 4102444800000 )"
        for name in zone_texts()
    ]
    step = realm.begin("t", "all", json.dumps(codes))
    answers = json.loads(step.data)
    assert len(answers) > 300
    assert all(re.fullmatch(r"\d+/\d+/\d+, GMT[+-]\d\d:\d\d", answer) for answer in answers)


def test_a_zone_file_that_is_broken_is_left_out(tmp_path):
    for name, content in {
        "Good": struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
        + bytes(6 + 4)
        + struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
        + struct.pack(">lBB", 3600, 0, 0)
        + b"ABC\0\n<+01>-1\n",
        "Short": b"TZif2",
        "Old": struct.pack(">4sc15x6l", b"TZif", b"\0", 0, 0, 0, 0, 1, 4) + bytes(10),
    }.items():
        (tmp_path / name).write_bytes(content)
    texts = read_zones(["Good", "Short", "Old", "Absent"], [str(tmp_path)])
    assert texts == {"Good": f"<+01>-1;{-(2**53)};3600"}
