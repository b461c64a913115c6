"""Packs: names, the index, hashes and permissions, and what a pack finds in the sandbox."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from importlib.resources import files

import pytest

from callpact.sandbox.engine import Engine
from callpact.sandbox.load import HooksRefused
from callpact.sandbox.packs.library import (
    INDEX,
    PackRefused,
    drop,
    installed,
    is_name,
    keep,
    load,
    user_packs,
)
from callpact.sandbox.realm import Pending
from callpact.sandbox.steps import Done, Reply

SCRIPT = b'globalThis.__callpact_pack = { greet: ( name ) => "hello " + name };\n'


def made(directory, name="greeter", version="1.2.3", script=SCRIPT):
    return keep(
        directory, name, version, script, esbuild="0", integrity="sha512-x", built="2026-01-01"
    )


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ethers", "xml2js", "trading-signals", "@erc725/erc725.js", "@thanpolas/univ3prices"]
)
def test_names_of_npm_are_names(name):
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/x",
        "@a",
        "@/b",
        "@a/",
        "@a/b/c",
        "@../x",
        "@a/..",
        "@a/../b",
        ".hidden",
        "-flag",
        "--flag",
        "a b",
        "a\n",
        "a\0",
        "a+b",
        "a\\b",
        "a:b",
        "C:x",
        "Ethers",
        "é",
        "x" * 215,
        "*/",
    ],
)
def test_what_could_leave_the_directory_or_become_an_option_is_no_name(name, tmp_path):
    assert not is_name(name)
    with pytest.raises(PackRefused):
        made(tmp_path / "libs", name)
    assert not (tmp_path / "libs").exists()


@pytest.mark.parametrize(
    "version", ["", "1", "latest", "1.2.3/../../x", "../1.2.3", "1.2.3\n", "^1.0.0"]
)
def test_only_an_exact_version_is_kept(version, tmp_path):
    with pytest.raises(PackRefused):
        made(tmp_path / "libs", version=version)


# --- keeping and reading --------------------------------------------------------------------


def test_a_kept_pack_is_found_and_read_as_it_was(tmp_path):
    kept = made(tmp_path)
    assert installed(tmp_path) == {"greeter": kept}
    assert kept.sha256 == hashlib.sha256(SCRIPT).hexdigest()
    assert kept.size == len(SCRIPT)
    assert load(installed(tmp_path)["greeter"]) == SCRIPT.decode()


def test_a_scoped_name_stays_in_the_directory(tmp_path):
    pack = made(tmp_path, "@scope/name")
    assert pack.path.parent == tmp_path
    assert installed(tmp_path)["@scope/name"] == pack


def test_the_index_says_where_a_pack_comes_from(tmp_path):
    made(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text("utf-8"))
    entry = index["packs"]["greeter"]
    assert entry["sha256"] == hashlib.sha256(SCRIPT).hexdigest()
    assert {key: entry[key] for key in ("version", "size", "esbuild", "integrity", "built")} == {
        "version": "1.2.3",
        "size": len(SCRIPT),
        "esbuild": "0",
        "integrity": "sha512-x",
        "built": "2026-01-01",
    }


def test_another_version_takes_the_place_of_the_one_before(tmp_path):
    old = made(tmp_path)
    new = made(tmp_path, version="2.0.0-rc.1", script=SCRIPT + b"// new\n")
    assert installed(tmp_path) == {"greeter": new}
    assert not old.path.exists()
    assert load(new).endswith("// new\n")


def test_the_same_version_built_again_is_read_with_its_new_hash(tmp_path):
    made(tmp_path)
    made(tmp_path, script=SCRIPT + b"// again\n")
    assert load(installed(tmp_path)["greeter"]).endswith("// again\n")


def test_a_dropped_pack_is_gone_and_the_others_stay(tmp_path):
    pack, other = made(tmp_path), made(tmp_path, "other")
    assert drop(tmp_path, "greeter") == pack
    assert not pack.path.exists()
    assert installed(tmp_path) == {"other": other}
    assert drop(tmp_path, "greeter") is None


def test_without_a_directory_there_are_no_packs(tmp_path):
    assert installed(tmp_path / "none") == {}
    assert drop(tmp_path / "none", "greeter") is None


def test_the_directory_of_the_user_is_where_data_belongs(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_packs() == tmp_path / "callpact" / "libs"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_packs() == tmp_path / ".local" / "share" / "callpact" / "libs"


def test_nothing_but_packs_and_the_index_is_left_behind(tmp_path):
    made(tmp_path)
    made(tmp_path, "other")
    assert {path.name for path in tmp_path.iterdir()} == {
        INDEX,
        "greeter-1.2.3.js",
        "other-1.2.3.js",
    }


# --- what is not trusted --------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [SCRIPT + b" ", SCRIPT[:-1], b"", SCRIPT.replace(b"hello", b"hallo")]
)
def test_a_pack_that_was_changed_is_refused_by_name_and_with_a_remedy(content, tmp_path):
    pack = made(tmp_path)
    pack.path.write_bytes(content)
    with pytest.raises(PackRefused) as refused:
        load(installed(tmp_path)["greeter"])
    assert str(pack.path) in str(refused.value)
    assert "callpact libs add greeter" in str(refused.value)


def test_a_pack_that_is_missing_is_refused_with_a_remedy(tmp_path):
    pack = made(tmp_path)
    pack.path.unlink()
    with pytest.raises(PackRefused, match="callpact libs add greeter"):
        load(pack)


def test_a_pack_is_not_read_through_a_link(tmp_path):
    pack = made(tmp_path / "libs")
    elsewhere = tmp_path / "same.js"
    pack.path.rename(elsewhere)
    pack.path.symlink_to(elsewhere)
    with pytest.raises(PackRefused):
        load(pack)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"format": 1}',
        '{"format": 2, "packs": {}}',
        '{"format": 1, "packs": {"a": {}}}',
        '{"format": 1, "packs": {}, "more": 1}',
    ],
)
def test_an_index_that_is_none_is_refused(text, tmp_path):
    made(tmp_path)
    (tmp_path / INDEX).write_text(text, "utf-8")
    with pytest.raises(PackRefused, match="callpact libs add"):
        installed(tmp_path)


@pytest.mark.parametrize(
    ("name", "version"), [("../../etc/passwd", "1.2.3"), ("a", "1.2.3/../../x"), ("A", "1.2.3")]
)
def test_an_index_cannot_lead_out_of_the_directory(name, version, tmp_path):
    made(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text("utf-8"))
    entry = index["packs"].pop("greeter")
    index["packs"][name] = {**entry, "version": version}
    (tmp_path / INDEX).write_text(json.dumps(index), "utf-8")
    with pytest.raises(PackRefused):
        installed(tmp_path)


def test_only_the_user_may_read_and_write_what_is_kept(tmp_path):
    before = os.umask(0)
    try:
        pack = made(tmp_path / "libs")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (pack.path.parent, pack.path)}
    assert modes == {pack.path.parent: 0o700, pack.path: 0o600}
    assert stat.S_IMODE((pack.path.parent / INDEX).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_may_write_is_refused(mode, tmp_path):
    libs = tmp_path / "libs"
    made(libs)
    libs.chmod(mode)
    with pytest.raises(PackRefused, match="chmod go-w"):
        installed(libs)
    with pytest.raises(PackRefused):
        made(libs, "other")


@pytest.mark.parametrize("name", [INDEX, "greeter-1.2.3.js"])
def test_a_file_that_others_may_write_is_refused(name, tmp_path):
    made(tmp_path)
    (tmp_path / name).chmod(0o620)
    with pytest.raises(PackRefused, match="chmod go-w"):
        load(installed(tmp_path)["greeter"])


def test_a_pack_beyond_the_limit_is_not_kept(tmp_path):
    with pytest.raises(PackRefused, match="16,777,216"):
        made(tmp_path, script=b" " * ((16 << 20) + 1))


# --- in the sandbox -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(hooks_cache):
    engine = Engine(hooks_cache)
    yield engine
    engine.close()


def hook_step(engine, body, *packs):
    """The first step of a hook with this body, which finds its libraries in `libraries`."""
    source = (
        "export const main = {};\n"
        "export const handlers = ( { libraries } ) => ( { t: { executeRequest: async () => {"
        f"{body}\n}} }} }} )"
    )
    realm = engine.open(source, main="{}", lists="{}", packs=packs)
    return realm.begin("t", "executeRequest", "{}")


def result_of(engine, body, *packs):
    step = hook_step(engine, body, *packs)
    assert isinstance(step, Done), step
    return json.loads(step.data)


@pytest.fixture
def pack(tmp_path):
    return made(tmp_path)


def test_a_hook_finds_its_library_under_the_name_of_npm(engine, tmp_path):
    pack = made(tmp_path, "@scope/greeter")
    assert (
        result_of(engine, "return libraries[ '@scope/greeter' ].greet( 'Ada' )", pack)
        == "hello Ada"
    )


def test_the_global_of_a_pack_is_taken_away(engine, pack):
    assert result_of(engine, "return '__callpact_pack' in globalThis", pack) is False


def test_a_changed_pack_does_not_reach_the_sandbox(engine, tmp_path):
    pack = made(tmp_path, "changed")
    pack.path.write_bytes(SCRIPT.replace(b"hello", b"owned"))
    with pytest.raises(PackRefused):
        hook_step(engine, "return 1", pack)


def test_a_library_that_throws_while_it_loads_is_named(engine, tmp_path):
    pack = made(tmp_path, "broken", script=b"throw new Error( 'no DOM here' )")
    with pytest.raises(HooksRefused, match="broken") as refused:
        hook_step(engine, "return 1", pack)
    assert "no DOM here" in str(refused.value)


GLOBALS = (
    "self TextEncoder TextDecoder DOMException atob btoa structuredClone queueMicrotask "
    "setTimeout clearTimeout setInterval clearInterval"
)


def test_the_globals_of_libraries_are_in_realms_with_packs_alone(engine, pack):
    body = f"return '{GLOBALS}'.split( ' ' ).filter( ( name ) => name in globalThis )"
    assert result_of(engine, body) == []
    assert result_of(engine, body, pack) == GLOBALS.split()


def test_there_is_no_randomness_of_browsers_or_node(engine, pack):
    assert (
        result_of(engine, "return [ typeof crypto, typeof process, typeof require ]", pack)
        == ["undefined"] * 3
    )


@pytest.mark.parametrize("text", ["", "abc", "hé€𝄞", "\0\x7f\x80\u07ff\u0800\uffff\U0010ffff"])
def test_text_becomes_utf8_and_comes_back(engine, pack, text):
    body = (
        f"const text = {json.dumps(text)}; const bytes = new TextEncoder().encode( text );"
        "return [ [ ...bytes ], new TextDecoder().decode( bytes ),"
        "new TextDecoder( 'utf8', { fatal: true } ).decode( bytes.buffer ) ]"
    )
    assert result_of(engine, body, pack) == [list(text.encode()), text, text]


@pytest.mark.parametrize(
    "data", [b"\xff", b"a\xc3", b"\xe2\x82z", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xc0\xaf"]
)
def test_broken_utf8_is_replaced_or_refused_as_the_standard_says(engine, pack, data):
    body = (
        f"const bytes = Uint8Array.from( {list(data)} ); let thrown = 'nothing';"
        "try { new TextDecoder( 'utf-8', { fatal: true } ).decode( bytes ) } catch( error ) { thrown = error.name }"
        "return [ new TextDecoder().decode( bytes ), thrown ]"
    )
    # Python replaces by the same rule: once for each longest beginning of a sound sequence.
    assert result_of(engine, body, pack) == [data.decode("utf-8", "replace"), "TypeError"]


def test_a_byte_order_mark_is_left_out_unless_it_is_asked_for(engine, pack):
    body = (
        "const bytes = Uint8Array.from( [ 0xef, 0xbb, 0xbf, 0x61 ] );"
        "return [ {}, { ignoreBOM: true } ].map( ( o ) => new TextDecoder( 'utf-8', o ).decode( bytes ).length )"
    )
    assert result_of(engine, body, pack) == [1, 2]


def test_text_is_encoded_into_what_there_is_room_for(engine, pack):
    body = (
        "const target = new Uint8Array( 4 ); const done = new TextEncoder().encodeInto( 'a€€', target );"
        "return [ done.read, done.written, [ ...target ] ]"
    )
    assert result_of(engine, body, pack) == [2, 4, [0x61, *"€".encode()]]


def test_base64_goes_both_ways_and_refuses_what_is_none(engine, pack):
    body = (
        "const name = ( work ) => { try { return work() } catch( error ) { return error.name } };"
        "return [ btoa( 'a\\xff' ), atob( ' Yf8= ' ).charCodeAt( 1 ), name( () => btoa( '€' ) ), name( () => atob( 'a' ) ), name( () => atob( 'a_==' ) ) ]"
    )
    error = "InvalidCharacterError"
    assert result_of(engine, body, pack) == ["Yf8=", 255, error, error, error]


def test_copies_keep_kinds_and_cycles_and_refuse_functions(engine, pack):
    body = (
        "const value = { d: new Date( 5 ), m: new Map( [ [ 1, { a: 1 } ] ] ), b: Uint8Array.from( [ 1, 2 ] ), l: [ 1, , 3 ] };"
        "value.me = value; const copy = structuredClone( value ); let thrown = 'nothing';"
        "try { structuredClone( { f: () => 1 } ) } catch( error ) { thrown = error.name }"
        "return [ copy !== value, copy.me === copy, copy.d.getTime(), copy.m.get( 1 ).a, copy.m.get( 1 ) !== value.m.get( 1 ),"
        "[ ...copy.b ], copy.b.buffer !== value.b.buffer, 1 in copy.l, thrown ]"
    )
    expected = [True, True, 5, 1, True, [1, 2], True, False, "DataCloneError"]
    assert result_of(engine, body, pack) == expected


# --- timers ---------------------------------------------------------------------------------


def asked_of(step):
    assert isinstance(step, Pending), step
    return [(effect.kind, effect.data["ms"]) for effect in step.effects]


def test_many_timers_ask_the_host_for_the_first_one_alone(engine, pack):
    body = (
        "const now = Date.now(); Date.now = () => now; const seen = [];"
        "return new Promise( ( done ) => {"
        "setTimeout( ( x ) => { seen.push( x ); done( seen ) }, 9000, 'late' );"
        "for( let i = 0; i < 50; i++ ) { setTimeout( () => seen.push( i ), 5000 ) } } )"
    )
    step = hook_step(engine, body, pack)
    assert asked_of(step) == [("sleep", 5000)]
    step = step.resume([Reply(step.effects[0].id)])
    # Nothing moves this clock: what is left is still 9 s away.
    assert asked_of(step) == [("sleep", 9000)]
    step = step.resume([Reply(step.effects[0].id)])
    assert json.loads(step.data) == [*range(50), "late"]


def test_timers_that_were_cleared_never_run(engine, pack):
    body = (
        "const seen = []; const a = setTimeout( () => seen.push( 'a' ), 10 ); clearTimeout( a );"
        "const b = setInterval( () => { seen.push( 'b' ); if( seen.length === 2 ) { clearInterval( b ) } }, 10 );"
        "return new Promise( ( done ) => setTimeout( () => done( seen ), 35 ) )"
    )
    step = hook_step(engine, body, pack)
    while isinstance(step, Pending):
        assert {kind for kind, _ in asked_of(step)} == {"sleep"}
        step = step.resume([Reply(effect.id) for effect in step.effects])
    assert json.loads(step.data) == ["b", "b"]


def test_a_timer_that_no_call_outlives_is_not_asked_for(engine, pack):
    assert result_of(engine, "setTimeout( () => {}, 300000 ); return 'done'", pack) == "done"


def test_a_timer_that_a_library_set_while_it_loaded_holds_no_other_one_back(engine, tmp_path):
    script = b"setTimeout( () => {}, 1 ); globalThis.__callpact_pack = {}"
    pack = made(tmp_path, "early", script=script)
    body = "return new Promise( ( done ) => setTimeout( () => done( 'mine' ), 20 ) )"
    step = hook_step(engine, body, pack)
    while isinstance(step, Pending):
        step = step.resume([Reply(effect.id) for effect in step.effects])
    assert json.loads(step.data) == "mine"


def test_a_callback_that_throws_is_logged_and_ends_nothing(engine, pack):
    body = (
        "queueMicrotask( () => { throw new Error( 'oops' ) } ); await null; await null; return 'on'"
    )
    step = hook_step(engine, body, pack)
    assert step.data == '"on"'
    assert [log.level for log in step.logs] == ["error"]
    assert "oops" in step.logs[0].text


# --- Node's own modules ---------------------------------------------------------------------


@pytest.fixture
def modules(tmp_path):
    """What stands in for Node's modules in a pack, as a library of its own."""
    text = files("callpact.sandbox.js").joinpath("pack_modules.js").read_text("utf-8")
    script = f"( () => {{ const module = {{}};\n{text}\nglobalThis.__callpact_pack = module.exports }} )()"
    return made(tmp_path / "modules", "modules", script=script.encode())


def test_what_only_node_has_throws_when_it_is_used_and_says_what(engine, modules):
    body = (
        "const words = ( work ) => { try { return work() } catch( error ) { return error.message } };"
        "const crypto = libraries.modules( 'crypto' ); const { Transform } = libraries.modules( 'stream' );"
        "class Heir extends Transform {} ;"
        "return [ words( () => crypto.randomBytes( 8 ) ), words( () => crypto.randomUUID() ), words( () => new Heir() ), 'webcrypto' in crypto ]"
    )
    random, uuid, heir, has_webcrypto = result_of(engine, body, modules)
    assert "'crypto.randomBytes'" in random
    assert "'crypto.randomUUID'" in uuid
    assert "'stream.Transform'" in heir
    assert has_webcrypto is False


def test_events_reach_listeners_in_order_and_once_where_asked(engine, modules):
    body = (
        "const { EventEmitter } = libraries.modules( 'events' ); const seen = [];"
        "function Old() { EventEmitter.call( this ) } libraries.modules( 'util' ).inherits( Old, EventEmitter );"
        "const old = new Old(); const off = () => seen.push( 'off' );"
        "old.on( 'x', ( v ) => seen.push( 'on' + v ) ).once( 'x', ( v ) => seen.push( 'once' + v ) ).prependListener( 'x', off );"
        "old.emit( 'x', 1 ); old.off( 'x', off ); old.emit( 'x', 2 ); let thrown = '';"
        "try { old.emit( 'error', new Error( 'unheard' ) ) } catch( error ) { thrown = error.message }"
        "return [ seen, old.emit( 'y' ), old.listenerCount( 'x' ), thrown, Object.keys( old ) ]"
    )
    expected = [["off", "on1", "once1", "on2"], False, 1, "unheard", []]
    assert result_of(engine, body, modules) == expected


def test_callbacks_become_promises(engine, modules):
    body = (
        "const { promisify } = libraries.modules( 'util' );"
        "const half = promisify( ( n, done ) => n % 2 ? done( new Error( 'odd' ) ) : done( null, n / 2 ) );"
        "return [ await half( 4 ), await half( 3 ).catch( ( error ) => error.message ) ]"
    )
    assert result_of(engine, body, modules) == [2, "odd"]
