"""The globals of hooks: what Node's own do with the same cases, and what reaches the host."""

from __future__ import annotations

import json
import random
import re
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine
from callpact.sandbox.realm import Pending
from callpact.sandbox.steps import Done, Log, Reply, StepFailed
from nodejs import node

# Runs a list of cases; the same text in Node and in the guest.
RUNNER = r"""
const plain = (value) => {
    if (typeof value === 'bigint') return `${value}n`
    if (typeof value === 'number' && (Object.is(value, -0) || !Number.isFinite(value)))
        return Object.is(value, -0) ? '-0' : `${value}`
    if (value === undefined) return { is: 'undefined' }
    if (typeof value === 'string' && !value.isWellFormed()) return { is: 'text', of: escape(value) }
    if (typeof value === 'function') return { is: 'function' }
    if (value instanceof Uint8Array) return { is: 'bytes', hex: Buffer.from(value).toString('hex') }
    if (value instanceof ArrayBuffer) return plain(new Uint8Array(value))
    if (value instanceof URL) return { is: 'URL', href: value.href }
    if (value instanceof URLSearchParams || value instanceof Headers) return [...value]
    if (Array.isArray(value)) return value.map(plain)
    if (value !== null && typeof value === 'object')
        return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]))
    return value
}
// Other codes are Node's own affair.
const told = ({ name, code }) => ({
    throws: name,
    code: /^ERR_(INVALID_URL|INVALID_TUPLE|UNKNOWN_ENCODING|OUT_OF_RANGE)$/.test(code) ? code : null,
})
const attempt = (act) => {
    try { return plain(act()) } catch (error) { return told(error) }
}
const look = (url) => [
    url.href, url.origin, url.protocol, url.username, url.password, url.host, url.hostname,
    url.port, url.pathname, url.search, url.hash, [...url.searchParams],
]
const step = (target, [name, ...values]) =>
    typeof target[name] === 'function' ? target[name](...values) : (target[name] = values[0])
const kinds = {
    url: ({ input, base }) => look(new URL(input, base ?? undefined)),
    set({ input, steps }) {
        const url = new URL(input)
        const params = url.searchParams
        return steps.map((one) => [
            attempt(() => one[0] === 'params' ? step(params, one.slice(1)) : (step(url, one), null)),
            look(url), [...params], params === url.searchParams,
        ])
    },
    params({ init, steps }) {
        const params = new URLSearchParams(init)
        return [[...params], ...steps.map((one) => [
            attempt(() => step(params, one)), [...params], params.toString(), params.size,
        ])]
    },
    read: ({ text, from }) => [Buffer.from(text, from), Buffer.byteLength(text, from)],
    write: ({ hex, to, span }) => Buffer.from(hex, 'hex').toString(to, ...span),
    number: ({ hex, name, offset }) => Buffer.from(hex, 'hex')[name](offset),
    headers({ init, steps }) {
        const headers = new Headers(init)
        return steps.map((one) => [attempt(() => step(headers, one)), [...headers]])
    },
    js: ({ code }) => (0, eval)(code),
}
const answer = async (cases) => {
    const answers = []
    for (const one of cases) {
        try { answers.push(plain(await kinds[one.kind](one))) }
        catch (error) { answers.push(told(error)) }
    }
    return answers
}
"""

SERVE = """
require('readline').createInterface({ input: process.stdin }).on('line', async (line) => {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\\n`)
})
"""
HOOKS = """
export const main = {}
%s
export const handlers = () => ({
    globals: { postRequest: async ({ response }) => ({ response: await answer(response) }) },
})
"""
# What is tried here takes time on a busy machine; that limits hold is tried elsewhere.
LIMITS = HookLimits(seconds=60, load_seconds=60, log_characters=100_000)


@pytest.fixture(scope="module")
def patient(hooks_cache):
    engine = Engine(hooks_cache, LIMITS)
    yield engine
    assert engine.machines.lent == 0
    engine.close()


@pytest.fixture(scope="module")
def guest(patient):
    """Runs cases in the guest."""
    realm = patient.open(HOOKS % RUNNER, main="{}", lists="{}")

    def ask(cases):
        step = realm.begin("globals", "postRequest", json.dumps({"response": cases}))
        assert isinstance(step, Done), step
        return json.loads(step.data)["response"]

    return ask


@pytest.fixture(scope="module")
def oracle():
    """Runs cases in one Node process."""
    with subprocess.Popen(
        [node(), "--no-warnings", "-e", RUNNER + SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:

        def ask(cases):
            bound = threading.Timer(60, process.kill)
            bound.start()
            process.stdin.write(json.dumps(cases) + "\n")
            process.stdin.flush()
            answers = process.stdout.readline()
            bound.cancel()
            return json.loads(answers)

        yield ask
        process.stdin.close()
        process.wait(timeout=10)


@pytest.fixture(scope="module")
def differ(guest, oracle):
    """The cases that come out differently, with both answers."""

    def compare(cases):
        pairs = zip(cases, guest(cases), oracle(cases), strict=True)
        return [(case, ours, theirs) for case, ours, theirs in pairs if ours != theirs]

    return compare


def words(text):
    return text.split()


FEW = settings(max_examples=30)  # each holds many cases


# --- what URLs are made of --------------------------------------------------------------------

SCHEMES = ["http:", "https:", "HTTP:", "ws:", "wss:", "ftp:", "file:", "foo:", "a+b.c-1:", ""]
SLASHES = ["//", "//", "//", "/", "", "///", "\\\\", "/\\"]
USERS = [*words("u@ u:p@ u:@ :p@ @ a@b@ u:p:q@ é@ u%41@ [@"), "a b|^@", "", "", "", ""]
HOSTS = [
    *words(
        "a example.com EXAMPLE.com a%41b%2e%2E localhost LOCALHOST C: C| a_b a..b -a a. . .. a*b a~b a!b "
        "a$b a&b a(b a+b a,b a;b a=b a'b a`b a\"b a{b a^b a|b a<b a@b a\\b a%20b a%00 a%2fb a%40b % %zz "
        "%5B xn--e-9fa 1.2.3.4 1.2.3 1.2 256 0x7f.1 0X7F.1 0300.1 09 0x 0x. 1. 1.. .1 a.1 a.0x1 a.0xg "
        "1.2.3.4.5 256.1 1.256.1 256.1.1.1 1.2.3.256 4294967295 4294967296 0x100000000 00000000000000000000001 "
        "99999999999999999999 1.0x.3 1.2.3.08 [::1] [::] [1:2:3:4:5:6:7:8] [1:2:3:4:5:6:7] "
        "[1:2:3:4:5:6:7:8:9] [::1.2.3.4] [::1.2.3.256] [::1.2.3] [::01.2.3.4] [1::2::3] [1:::2] [:1] "
        "[1:2:3:4:5:6:1.2.3.4] [1.2.3.4::] [0:0:1:0:0:0:0:0] [0:1:0:1:0:1:0:1] [1:0:0:2:0:0:0:3] "
        "[0:0:0:0:0:0:0:1] [ABCD:ef::0] [12345::] [::g] [ [::1 ::1] [::1]x [::%31]"
    ),
    *("a b", "a\tb", "", ""),
]
PORTS = [*words(":80 :443 :0 :00080 :65535 :65536 :x :8x : :21 :1:2"), "", "", "", ""]
PATHS = [
    *words(
        "/ /a /a/b /. /.. /./ /../ /a/../b /a/./b /%2e /%2E%2e/x /.%2e /%2e./ /... /.a // ///a /a//b \\ "
        '\\a\\.. /C: /C|/x /C:/../.. /c| /C|x /é /😀 /%zz /{} /^`"<>| a a/b .. . ../x ../../.. C|/a C: '
        "/..//x /.//x /a/.. ././/"
    ),
    *("/a b", "\t/a", "/a\n", "/\x00\x7f~", "/a%2fb/..", "/'()*!", "", "", ""),
]
QUERIES = [
    *words("? ?a=b ?a'b ?é ?a=b&c=d+e ?%zz ?😀\ud800 ?^`{}| ?? ?\\ ?%41+%2B ?a=1&a=2&&b ?=&=x"),
    *('?"<>', "?a b", "", "", ""),
]
FRAGMENTS = ["", "", "", "#", "#a", "#a b", '#é`{}<>"', "#a#b", "#'?/\\", "#\ud800"]
ENDS = ["", "", "", " ", "\n", "\x01"]
BASES = [
    *words("http://h/p/q?r#s https://u:p@h:81/a/b/ ws://x file:///C:/x/y file:///C: file://h/a"),
    *words("foo:/a/b foo://h/a foo://h foo:///p"),
]
NOISE = st.text("abC:/\\.%2e?#@[]|0x1 \t\n&=+;~^{}\"'<>`\x00\x7f", max_size=12)
# Characters outside ASCII may stand anywhere but in a host.
UNICODE = st.text("aé😀\ud800 %+&='\u2028", max_size=6)


def written_from(*parts):
    return st.tuples(*map(st.sampled_from, parts)).map("".join)


def is_taken_for_a_drive(written, base="") -> bool:
    """Node keeps a first segment such as `C:x` of a file where only `C:` is a drive letter."""
    is_file = "file:" in written.lower() or (base or "").startswith("file:")
    _, colon, after = re.sub(r"[\t\n\r]", "", written).partition(":")
    return is_file and bool(re.search(r"[A-Za-z][:|][^/\\?#]", after if colon else written))


LOCATIONS = written_from(
    ENDS, SCHEMES, SLASHES, USERS, HOSTS, PORTS, PATHS, QUERIES, FRAGMENTS, ENDS
)
REFERENCES = LOCATIONS | written_from(PATHS, QUERIES, FRAGMENTS) | NOISE
READINGS = st.fixed_dictionaries(
    {
        "kind": st.just("url"),
        "input": REFERENCES | st.tuples(REFERENCES, st.just("?"), UNICODE).map("".join),
        "base": st.none() | st.sampled_from(BASES),
    }
).filter(lambda case: not is_taken_for_a_drive(case["input"], case["base"]))


def test_urls_are_read_as_node_reads_them(differ):
    dice = random.Random(1)
    parts = (ENDS, SCHEMES, SLASHES, USERS, HOSTS, PORTS, PATHS, QUERIES, FRAGMENTS)
    inputs = [f"http://{host}/" for host in HOSTS]
    inputs += [f"{scheme}//h{path}" for scheme in SCHEMES for path in PATHS]
    inputs += [f"{scheme}//{user}" for scheme in SCHEMES for user in USERS]
    inputs += [path + query for path in PATHS for query in ("", "?", "?a")]
    inputs += ["".join(map(dice.choice, parts)) for _ in range(1000)]
    cases = [
        {"kind": "url", "input": written, "base": base}
        for written in inputs
        for base in [None, dice.choice(BASES)]
        if not is_taken_for_a_drive(written, base)
    ]
    assert differ(cases) == []


@FEW
@given(st.lists(READINGS, min_size=1, max_size=20))
def test_any_reference_is_resolved_as_node_resolves_it(differ, cases):
    assert differ(cases) == []


# --- URLs that are changed, and their parameters ----------------------------------------------

NAMES = st.sampled_from(["a", "b", "", "é", "a b", "__proto__"])
ASCII_FORMS = st.lists(
    st.sampled_from(
        words("a b = & + % %41 %c3%a9 %ff %e2%82 %ED%A0%80 %f0%9f%98%80 ? %2 ! ' ( ) ~ * - \x00")
    ),
    max_size=8,
).map("".join)
UNICODE_FORMS = st.lists(
    st.sampled_from(words("a = & + %41 %c3%a9 %f0%9f%98%80 é 😀 \ud800 ? ! ' ( ) ~")),
    max_size=8,
).map("".join)
VALUES = ASCII_FORMS | UNICODE_FORMS
CHANGES = st.one_of(
    st.tuples(st.just("append"), NAMES, VALUES),
    st.tuples(st.just("set"), NAMES, VALUES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("delete"), NAMES, st.sampled_from(["", "b", "x y"])),
    st.tuples(st.just("has"), NAMES),
    st.tuples(st.just("has"), NAMES, st.sampled_from(["", "b"])),
    st.tuples(st.just("get"), NAMES),
    st.tuples(st.just("getAll"), NAMES),
    st.sampled_from(
        [("sort",), ("toString",), ("append", "a"), ("get",), ("set", "a"), ("delete",)]
    ),
)
PARTS = {
    "href": ["http://x:80/?a#b", "foo:", "nope"],
    "protocol": [*SCHEMES, "http", "https", "wss:x", "file", "bar", "h\ttp", "1:"],
    "username": ["", "u", "é@:/%41"],
    "password": ["", "p", "?#[]|"],
    "host": ["", "h:1", "h:65536", "h:80/x", "h:443", "h?y", "h#", "h\\z", "@", ":1", *HOSTS],
    "hostname": ["", "h", "h:1", "h/x", *HOSTS],
    "port": [*words("80 443 21 8080x x 65536 0 -1 1.5 000021"), "", " 80", "\t9"],
    "pathname": [*PATHS, "?#"],
    "search": [*QUERIES, "a", "#"],
    "hash": [*FRAGMENTS, "a", "?"],
}
SETTERS = st.one_of(
    st.tuples(st.just("href"), LOCATIONS),
    st.tuples(st.sampled_from(["username", "password", "search", "hash"]), UNICODE | NOISE),
    st.tuples(st.just("host"), written_from(HOSTS, PORTS, ["", "", "/x", "?y", "#", "\\z", "@"])),
    st.tuples(st.just("pathname"), written_from(PATHS, QUERIES, FRAGMENTS)),
    st.sampled_from([(name, value) for name, values in PARTS.items() for value in values]),
    CHANGES.map(lambda change: ("params", *change)),
)
STARTS = [
    *words("http://h/p?a=b&b=1&a#c https://u:p@h:81/ http://h:443 file:///C:/a file://h/x ws://x"),
    *words("foo://h/a?q foo://u@h:1/ foo://h:80 blob:https://a/b foo:///a"),
    "data:x  ?a#b",
]
CHANGED = st.fixed_dictionaries(
    {
        "kind": st.just("set"),
        "input": st.sampled_from(STARTS),
        "steps": st.lists(SETTERS, min_size=1, max_size=4),
    }
)
PARAMETERS = st.fixed_dictionaries(
    {
        "kind": st.just("params"),
        "init": VALUES
        | st.dictionaries(VALUES, VALUES, max_size=4)
        | st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=4)
        | st.sampled_from([None, 5, True, [["a"]], [["a", "b", "c"]], [5], ["ab"], [[]]]),
        "steps": st.lists(CHANGES, max_size=4),
    }
)


def leads_to_a_known_deviation(case) -> bool:
    """An empty host for a URL that has none, and a host for a path that begins with `//`."""
    is_hostless = case["input"].startswith(("blob:", "data:", "foo:/a"))
    for name, *values in case["steps"]:
        if name == "href":
            is_hostless = True
        if name in {"host", "hostname"} and is_hostless:
            return True
        if name in {"pathname", "href"} and "//" in values[0].split(":", 1)[-1][2:]:
            return True
        if is_taken_for_a_drive(f"file:{values[0] if values else ''}"):
            return True
    return False


def test_each_part_of_a_url_is_set_as_in_node(differ):
    cases = [
        {"kind": "set", "input": start, "steps": [[name, value]]}
        for start in [*STARTS, "foo:/a"]
        for name, values in PARTS.items()
        for value in values
    ]
    assert differ([case for case in cases if not leads_to_a_known_deviation(case)]) == []


@FEW
@given(
    st.lists(
        CHANGED.filter(lambda case: not leads_to_a_known_deviation(case)), min_size=1, max_size=8
    )
)
def test_a_url_and_its_parameters_change_together_as_in_node(differ, cases):
    assert differ(cases) == []


@FEW
@given(st.lists(PARAMETERS, min_size=1, max_size=10))
def test_search_parameters_read_and_write_forms_as_node_does(differ, cases):
    assert differ(cases) == []


# --- bytes and headers ------------------------------------------------------------------------

ENCODINGS = st.sampled_from(words("utf8 utf-8 hex base64 base64url latin1 binary ascii UTF8 ucs9"))
LATIN = st.text(st.characters(max_codepoint=255), max_size=12)
READS = ["Int8", "UInt8", "Uint8"] + [
    f"{name}{order}"
    for name in words("Int16 UInt16 Int32 UInt32 Uint32 BigInt64 BigUInt64 BigUint64 Float Double")
    for order in ("LE", "BE")
]
BYTES = st.one_of(
    st.fixed_dictionaries({"kind": st.just("read"), "text": LATIN, "from": ENCODINGS}),
    st.fixed_dictionaries(
        {
            "kind": st.just("read"),
            "text": st.text("ABab01+/-_= \n!é", max_size=16),
            "from": st.sampled_from(["base64", "base64url"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("read"),
            "text": st.text("0123aAfFg é", max_size=12),
            "from": st.just("hex"),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("read"),
            "text": st.text("aé€😀\ud800\udc00", max_size=8),
            "from": st.sampled_from(["utf8", "latin1", "ascii", "hex", None]),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("write"),
            "hex": st.binary(max_size=12).map(bytes.hex)
            | st.lists(
                st.sampled_from(
                    words("41 c3 a9 e2 82 ac f0 9f 98 80 ed a0 ff c0 f4 90 ef bb bf e0")
                ),
                max_size=9,
            ).map("".join),
            "to": ENCODINGS,
            "span": st.sampled_from(
                [[], [], [], [1], [1, 3], [-1, 99], [2, 1], [None, 2], ["1"], [0.9, 2.9]]
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("number"),
            "hex": st.binary(max_size=12).map(bytes.hex),
            "name": st.sampled_from(READS).map("read{}".format),
            "offset": st.sampled_from([0, 0, 0, 1, 2, 4, -1, 0.5, "0", None]),
        }
    ),
)
HEADER_NAMES = st.sampled_from(
    [*words("a A b X-Y set-cookie Set-Cookie content-type é €"), "a b", ""]
)
HEADER_VALUES = st.sampled_from([*words("1 a,b é € a=b;c"), "", " x ", "\tx\r\n", "x\ny", "\x00"])
HEADERS = st.fixed_dictionaries(
    {
        "kind": st.just("headers"),
        "init": st.dictionaries(HEADER_NAMES, HEADER_VALUES, max_size=3)
        | st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=3)
        | st.sampled_from([None, "x", 5, [["a"]], [["a", "b", "c"]], [5]]),
        "steps": st.lists(
            st.tuples(st.sampled_from(["append", "set"]), HEADER_NAMES, HEADER_VALUES)
            | st.tuples(st.sampled_from(["get", "has", "delete"]), HEADER_NAMES)
            | st.sampled_from([("getSetCookie",), ("get",), ("append", "a")]),
            min_size=1,
            max_size=5,
        ),
    }
)


@FEW
@given(st.lists(BYTES, min_size=1, max_size=30))
def test_bytes_are_read_and_written_as_node_does(differ, cases):
    assert differ(cases) == []


@FEW
@given(st.lists(HEADERS, min_size=1, max_size=15))
def test_headers_are_kept_as_node_keeps_them(differ, cases):
    assert differ(cases) == []


# --- single sentences of JavaScript -----------------------------------------------------------

SENTENCES = """
URL.canParse('x'), URL.canParse('x', 'http://y')
[URL.canParse('http://a'), URL.canParse('http://['), URL.parse('::'), URL.parse('a', 'http://b').href]
new URL()
URL('http://a')
new URL('http://a', undefined).href
new URL('http://a', null)
new URL('b', new URL('http://a/c')).href
new URL({ toString: () => 'http://a' }).href
new URL(Symbol('a'))
(() => { try { new URL('x', 'y') } catch (e) { return [e.code, e.message, e.input, e.base, e instanceof TypeError] } })()
JSON.stringify({ u: new URL('http://a/?b#c') })
`${new URL('http://a/b c')}`
Object.prototype.toString.call(new URL('http://a')) + Object.prototype.toString.call(new URLSearchParams())
Object.keys(new URL('http://a'))
URL.prototype.href
(() => { 'use strict'; new URL('http://a').origin = 'b' })()
(() => { 'use strict'; new URL('http://a').searchParams = 'b' })()
(() => { const u = new URL('http://a'); u.href = 'nope' })()
(() => { const u = new URL('http://a/?x=1'); const p = u.searchParams; u.href = 'http://b/?y=2'; return [[...p], p === u.searchParams] })()
(() => { const u = new URL('http://a/?x=1'); u.searchParams.delete('x'); return [u.href, u.search] })()
(() => { const u = new URL("http://a/?x='1'"); u.searchParams.append('é', "'"); return u.href })()
(() => { const u = new URL('data:x'); u.searchParams.set('a', 1); return u.href })()
(() => { const u = new URL('http://a/?x=~'); u.searchParams; return u.href })()
new URLSearchParams(new URLSearchParams('a=1&a=2')).toString()
(() => { const a = new URLSearchParams('a=1'); const b = new URLSearchParams(a); b.set('a', 2); return [`${a}`, `${b}`] })()
new URLSearchParams(new Map([['a', 'b'], ['c', 5]])).toString()
new URLSearchParams(undefined).toString()
new URLSearchParams({ a: undefined, b: null, c: [1, 2], d: {} }).toString()
new URLSearchParams({ [Symbol('a')]: 1 }).toString()
new URLSearchParams({ '\\ud800': 1, '\\ufffd': 2, x: 3 }).toString()
new URLSearchParams(Object.create({ inherited: 1 })).toString()
new URLSearchParams((function* () { yield ['a', 'b'] })()).toString()
new URLSearchParams([new Set(['a', 'b'])]).toString()
new URLSearchParams('??a').toString()
(() => { const out = []; new URLSearchParams('a=1&b=2').forEach(function (v, k, p) { out.push(v, k, p.size, this.x) }, { x: 7 }); return out })()
new URLSearchParams('a').forEach(5)
[[...new URLSearchParams('a=1&b=2').keys()], [...new URLSearchParams('a=1&b=2').values()], [...new URLSearchParams('a=1').entries()]]
URLSearchParams.prototype[Symbol.iterator] === URLSearchParams.prototype.entries
(() => { const p = new URLSearchParams('a=1&b=2&c=3'); const out = []; for (const [k] of p) { out.push(k); p.delete(k) } return out })()
(() => { const p = new URLSearchParams('z=1&ﬃ=2&🌈=3&a=4&z=0'); p.sort(); return p.toString() })()
URLSearchParams.prototype.get.call({}, 'a')
new URLSearchParams('a=1&a=2&b=3').size
[new URLSearchParams('a=1&a=2').has('a', '2'), new URLSearchParams('a=1').has('a', 2), new URLSearchParams('a=1').has('a', undefined)]
(() => { const p = new URLSearchParams('a=1&a=2'); p.delete('a', undefined); return p.toString() })()
Buffer.from([1, 257, -1, 2.9, '5', NaN, null])
Buffer.from(new Uint8Array([1, 2]))
Buffer.from(new Uint16Array([257, 2]))
Buffer.from({ length: 2, 0: 5 })
Buffer.from({ length: 'x' })
Buffer.from({})
Buffer.from(null)
Buffer.from(5)
Buffer.from()
Buffer.from(new String('ab'))
Buffer.from({ type: 'Buffer', data: [1, 2] })
Buffer.from(JSON.parse(JSON.stringify(Buffer.from('ab'))))
JSON.stringify(Buffer.from('ab'))
(() => { const m = new ArrayBuffer(4); const b = Buffer.from(m, 1, 2); b[0] = 9; return [new Uint8Array(m), b.length] })()
(() => { const a = Buffer.from('ab'); const b = Buffer.from(a); b[0] = 0; return a })()
Buffer.from(new ArrayBuffer(2), 3)
(() => { const a = Buffer.from('abcd'); const b = a.slice(1, 3); b[0] = 48; return [a, b, Buffer.isBuffer(b)] })()
(() => { const a = Buffer.from('abcd'); const b = a.subarray(-2); b[0] = 48; return [a, b, Buffer.isBuffer(b)] })()
[Buffer.alloc(3), Buffer.alloc(3, 1), Buffer.alloc(5, 'ab'), Buffer.alloc(5, 'YWI=', 'base64'), Buffer.alloc(1, 'ab'), Buffer.alloc(7, Buffer.from('xyz'))]
Buffer.alloc(2, '')
Buffer.alloc(2, 257)
Buffer.alloc(2, 'zz', 'hex')
Buffer.alloc(-1)
Buffer.alloc('1')
Buffer.alloc(NaN)
Buffer.alloc(0)
Buffer.concat([Buffer.from('ab'), new Uint8Array([99])])
Buffer.concat([Buffer.from('ab'), Buffer.from('cd')], 3)
Buffer.concat([Buffer.from('ab')], 4)
Buffer.concat([])
Buffer.concat([[1]])
Buffer.concat('ab')
[Buffer.isBuffer(Buffer.alloc(1)), Buffer.isBuffer(new Uint8Array(1)), Buffer.isBuffer(null)]
[Buffer.byteLength('é'), Buffer.byteLength('é', 'latin1'), Buffer.byteLength('YQ==', 'base64'), Buffer.byteLength('abc', 'hex'), Buffer.byteLength(new ArrayBuffer(3)), Buffer.byteLength(new DataView(new ArrayBuffer(4), 1)), Buffer.byteLength('é', 'nope')]
Buffer.byteLength(5)
Buffer.from('ab').equals(new Uint8Array([97, 98]))
Buffer.from('ab').equals(Buffer.from('ac'))
Buffer.from('ab').equals([97, 98])
Buffer.from('ab') instanceof Uint8Array
Buffer.from('a').toString(null)
Buffer.from('a').toString('')
Buffer.from('a', '').toString()
Buffer.from('héllo').toString('hex').toUpperCase()
`${Buffer.from('héllo')}`
Buffer.from('ab') + ''
Buffer.from('ab').map((x) => x + 1)
Buffer.from('\\ufeffa').toString()
[...Buffer.from('ab')]
new Headers({ b: 1, A: 2 }).get('B')
[...new Headers([['b', '1'], ['a', '2'], ['B', '3']])]
[[...new Headers({ b: 1, a: 2 }).keys()], [...new Headers({ b: 1, a: 2 }).values()]]
(() => { const a = new Headers({ x: 1 }); const b = new Headers(a); b.append('x', 2); return [[...a], [...b]] })()
(() => { const out = []; new Headers({ b: 1, A: 2 }).forEach(function (v, k, h) { out.push(v, k, h.has('a'), this.x) }, { x: 7 }); return out })()
(() => { const h = new Headers(); h.append('Set-Cookie', 'a'); h.append('set-cookie', 'b'); return [h.get('set-cookie'), h.getSetCookie(), [...new Headers(h)]] })()
new Headers({ a: Symbol('b') })
Headers.prototype.get.call({}, 'a')
Object.prototype.toString.call(new Headers()) + Object.prototype.toString.call(new Response())
(() => { const r = new Response('a', { status: 404, statusText: 'No', headers: { B: 'c' } }); return [r.status, r.ok, r.statusText, r.url, [...r.headers], r.bodyUsed] })()
(() => { const r = new Response(); return [r.status, r.ok, [...r.headers], r.bodyUsed] })()
new Response('é\\ud800').text()
new Response('\\ufeffa').text()
new Response('{"a":[1]}').json()
new Response('{').json()
new Response('é').arrayBuffer()
new Response(new Uint8Array([0xef, 0xbb, 0xbf, 0x61, 0xff])).text()
new Response(new Uint16Array([1, 2]).subarray(1)).arrayBuffer()
new Response(new DataView(new ArrayBuffer(3), 1)).arrayBuffer()
new Response(new URLSearchParams({ a: 'b c' })).text()
[...new Response(new URLSearchParams({ a: 'b c' })).headers]
[...new Response('a', { headers: { 'content-type': 'x/y' } }).headers]
(async () => { const r = new Response('a'); await r.text(); return [r.bodyUsed, await r.text()] })()
(async () => { const r = new Response('a'); const c = r.clone(); return [await r.text(), await c.text(), c.headers === r.headers] })()
(async () => { const r = new Response('a'); await r.text(); r.clone() })()
(async () => { const r = new Response(); return [await r.text(), await r.text(), r.bodyUsed] })()
new Response('a', { status: 99 })
new Response('a', { status: 204 })
new Response(null, { status: 204 }).status
(() => { const r = new Response('a'); const was = r.status; try { r.status = 5 } catch {} return [was, r.status] })()
(() => { const c = new AbortController(); const before = c.signal.aborted; c.abort(); return [before, c.signal.aborted, c.signal.reason.name] })()
(() => { const c = new AbortController(); c.abort('why'); c.abort('again'); return c.signal.reason })()
(() => { const c = new AbortController(); c.abort('why'); return AbortSignal.any([new AbortController().signal, c.signal]).reason })()
[AbortSignal.timeout(1000).aborted, AbortSignal.abort(5).reason, AbortSignal.timeout(1000).reason]
AbortSignal.abort().throwIfAborted()
AbortSignal.timeout(1000).throwIfAborted()
new AbortSignal()
fetch('/x')
fetch('http://u:p@x/')
fetch('http://x/', { body: 'a' })
fetch('http://x/', { method: 'HEAD', body: 'a' })
fetch('http://x/', { method: 'TRACE' })
fetch('http://x/', { method: 'a b' })
fetch('http://x/', { headers: { 'a b': 'c' } })
fetch('http://x/', { headers: { a: 'c\\nd: e' } })
fetch('http://x/', { signal: AbortSignal.abort('no') }).catch((reason) => reason)
fetch('http://x/', { signal: AbortSignal.abort() })
""".strip().splitlines()


@pytest.mark.parametrize("code", SENTENCES)
def test_what_a_hook_writes_means_what_it_means_in_node(differ, code):
    assert differ([{"kind": "js", "code": code}]) == []


def sentence(code):
    return {"kind": "js", "code": code}


REFUSED = {"throws": "TypeError", "code": "ERR_INVALID_URL"}
DEVIATIONS = {
    "names in other scripts need tables that are not here; they are refused": (
        sentence("new URL('http://é.example/').href"),
        REFUSED,
    ),
    "setting such a name is refused aloud": (
        sentence("(() => { const u = new URL('http://a'); u.hostname = 'é'; return u.href })()"),
        REFUSED,
    ),
    "what they are in punycode is not checked": (
        sentence("new URL('http://xn--a/').href"),
        "http://xn--a/",
    ),
    "nothing but a fragment goes with an opaque base (URL Standard, no scheme state)": (
        {"kind": "url", "input": "a#b", "base": "data:x"},
        REFUSED,
    ),
    "a drive letter is two characters long (URL Standard, shorten a path)": (
        sentence("new URL('file:///C:x/..').href"),
        "file:///",
    ),
    "an empty host may be set (URL Standard, host state)": (
        sentence("(() => { const u = new URL('foo:/a'); u.host = ''; return u.href })()"),
        "foo:///a",
    ),
    "a host is not followed by a dot segment (URL Standard, serializer)": (
        sentence(
            "(() => { const u = new URL('foo:/.//p'); u.host = 'h:1'; return [u.href, u.host] })()"
        ),
        ["foo://h:1//p", "h:1"],
    ),
    "bytes that are no UTF-8 do not spoil the text around them": (
        sentence("[...new URLSearchParams('😀%ff')]"),
        [["😀\ufffd", ""]],
    ),
    "base64 skips characters outside Latin-1 as it skips others": (
        sentence("Buffer.from('YQ😀YQ', 'base64').toString('hex')"),
        "610610",
    ),
    "there is no DOMException": (sentence("AbortSignal.abort().reason.constructor.name"), "Error"),
    "signals are inert": (
        sentence(
            "(() => { const c = new AbortController(); let heard = 0;"
            "c.signal.addEventListener('abort', () => { heard += 1 }); c.abort(); return heard })()"
        ),
        0,
    ),
    "a signal made of others does not follow them": (
        sentence(
            "(() => { const c = new AbortController(); const s = AbortSignal.any([c.signal]);"
            "c.abort(); return s.aborted })()"
        ),
        False,
    ),
    "headers are iterated as they are when it begins": (
        sentence(
            "(() => { const h = new Headers({ a: 1 }); const seen = [];"
            "for (const [name] of h) { seen.push(name); h.set('b', '2') } return seen })()"
        ),
        ["a"],
    ),
    "a Buffer cannot be written to but by index": (
        sentence("typeof Buffer.alloc(1).writeUInt8"),
        "undefined",
    ),
    "a body is no stream": (sentence("typeof new Response('a').body"), "undefined"),
}


@pytest.mark.parametrize("reason", DEVIATIONS)
def test_what_differs_from_node_is_known_and_has_a_reason(guest, oracle, reason):
    case, ours = DEVIATIONS[reason]
    assert guest([case]) == [ours]
    assert oracle([case]) != [ours], "Node does so too: no deviation any more"


def test_a_host_in_another_script_is_refused_in_words(guest):
    code = "(() => { try { new URL('http://münchen.example/') } catch (error) { return error.message } })()"
    (message,) = guest([sentence(code)])
    assert "'münchen.example' is not ASCII" in message
    assert "xn--" in message


# --- what reaches the host --------------------------------------------------------------------

ASKED = """
export const main = {}
export const handlers = () => ({
    globals: { executeRequest: async ({ payload }) => ({ response: await (0, eval)(payload.code) }) },
})
"""


@pytest.fixture(scope="module")
def run(patient):
    """Evaluates a sentence; effects are answered one by one. Gives the effects and the last step."""
    realm = patient.open(ASKED, main="{}", lists="{}")

    def go(code, *replies):
        argument = json.dumps({"payload": {"code": code}})
        step = realm.begin("globals", "executeRequest", argument)
        asked, answers = [], list(replies)
        while isinstance(step, Pending):
            asked += [(effect.kind, effect.data) for effect in step.effects]
            if not answers:
                step.drop()
                return asked, None
            step = step.resume([answers.pop(0)(effect.id) for effect in step.effects])
        return asked, step

    return go


def replied(**reply):
    return lambda number: Reply(id=number, data={"status": 200, "headers": [], **reply})


def refused(words):
    return lambda number: Reply(id=number, refusal=words)


TEXT = ["content-type", "text/plain;charset=UTF-8"]
FORM = ["content-type", "application/x-www-form-urlencoded;charset=UTF-8"]


def asks(url="http://a/", method="GET", headers=(), **body):
    return {"url": url, "method": method, "headers": list(headers), **body}


REQUESTS = {
    "'https://a.example/b c?d=é#f'": asks("https://a.example/b%20c?d=%C3%A9"),
    "new URL('http://a')": asks(),
    "'http://a', { method: 'post', body: 'é' }": asks(method="POST", headers=[TEXT], text="é"),
    "'http://a', { method: 'patch' }": asks(method="patch"),
    "'http://a', { headers: { B: ' 1 ', a: 2 } }": asks(headers=[["a", "2"], ["b", "1"]]),
    "'http://a', { headers: [['b', 1], ['B', 2]] }": asks(headers=[["b", "1, 2"]]),
    "'http://a', { headers: new Headers({ C: 'd' }) }": asks(headers=[["c", "d"]]),
    "'http://a', { method: 'PUT', body: new URLSearchParams({ a: 'b c' }) }": asks(
        method="PUT", headers=[FORM], text="a=b+c"
    ),
    "'http://a', { method: 'PUT', body: '{}', headers: { 'Content-Type': 'a/json' } }": asks(
        method="PUT", headers=[["content-type", "a/json"]], text="{}"
    ),
    "'http://a', { method: 'POST', body: new Uint8Array([0, 255]) }": asks(
        method="POST", base64="AP8="
    ),
    "'http://a', { method: 'POST', body: new Uint8Array([1, 2, 3]).buffer }": asks(
        method="POST", base64="AQID"
    ),
    "'http://a', { method: 'POST', body: Buffer.from('xab').subarray(1) }": asks(
        method="POST", base64="YWI="
    ),
    "'http://a', { method: 'POST', body: { a: 1 } }": asks(
        method="POST", headers=[TEXT], text="[object Object]"
    ),
    "'http://a', { method: 'POST', body: '' }": asks(method="POST", headers=[TEXT], text=""),
    "'http://a', { method: 'POST', body: null }": asks(method="POST"),
    "'http://a', { method: 'POST', body: 'a\\ud800' }": asks(
        method="POST", headers=[TEXT], text="a\ufffd"
    ),
    "'http://a', { signal: AbortSignal.timeout(1) }": asks(),
    "{ url: 'http://a', method: 'PUT', headers: { a: 'b' }, body: 'c' }": asks(
        method="PUT", headers=[["a", "b"], TEXT], text="c"
    ),
    "{ url: 'http://a', method: 'PUT' }, { method: 'DELETE' }": asks(method="DELETE"),
}


@pytest.mark.parametrize("code", REQUESTS)
def test_a_fetch_asks_the_host_for_this_request(run, code):
    asked, _ = run(f"fetch({code})")
    assert asked == [("fetch", REQUESTS[code])]


def test_a_reply_is_read_as_a_response(run):
    _, step = run(
        "fetch('http://a').then(async (r) => [r.status, r.ok, r.statusText, r.url, r.headers.get('X-Y'),"
        "r.headers.getSetCookie(), r.bodyUsed, await r.clone().text(), await r.json(), r.bodyUsed])",
        replied(
            status=201,
            statusText="Made",
            url="http://a/b",
            headers=[["x-Y", "1"], ["X-y", "2"], ["set-cookie", "c"], ["set-cookie", "d"]],
            text='{"é":1}',
        ),
    )
    assert json.loads(step.data)["response"] == [
        *(201, True, "Made", "http://a/b", "1, 2", ["c", "d"], False, '{"é":1}', {"é": 1}, True)
    ]


def test_a_reply_of_bytes_is_read_as_bytes_and_as_text(run):
    _, step = run(
        "fetch('http://a').then(async (r) => [[...new Uint8Array(await r.clone().arrayBuffer())], await r.text()])",
        replied(status=500, base64="YcOp/w=="),
    )
    assert json.loads(step.data)["response"] == [[0x61, 0xC3, 0xA9, 0xFF], "aé\ufffd"]


def test_a_reply_without_a_body_reads_as_empty(run):
    _, step = run("fetch('http://a').then((r) => r.text())", replied(status=204))
    assert json.loads(step.data)["response"] == ""


def test_a_refused_request_is_a_type_error_in_the_words_of_the_host(run):
    code = "fetch('http://a').catch((error) => [error instanceof TypeError, error.message])"
    _, step = run(code, refused("not there"))
    assert json.loads(step.data)["response"] == [True, "not there"]


def test_requests_made_together_are_asked_together(run):
    asked, _ = run("Promise.all([fetch('http://a'), fetch('http://b')])")
    assert [data["url"] for _, data in asked] == ["http://a/", "http://b/"]


def test_a_request_that_is_none_is_never_asked(run):
    asked, step = run("fetch('no url')")
    assert asked == []
    assert isinstance(step, StepFailed)
    assert (step.name, step.message) == ("TypeError", "Failed to parse URL from no url")


# Not String.prototype.concat: the driver's template literals are joined with it.
def test_a_hook_that_spoils_every_prototype_spoils_no_request_and_no_line(run):
    code = """
        const own = Object.defineProperty, names = Object.getOwnPropertyNames
        const root = Object.prototype, text = String.prototype, { iterator } = Symbol
        const spoilt = () => { throw new Error('spoilt') }
        const kept = { fetch, console, log: console.log }
        const owners = [
            Array, Array.prototype, String, String.prototype, RegExp.prototype, Object, Reflect, JSON,
            Object.prototype, Function.prototype, Uint8Array, Uint8Array.prototype, Map.prototype,
            Object.getPrototypeOf(Uint8Array.prototype), Number, Number.prototype,
            Headers, Headers.prototype, URL, URL.prototype, URLSearchParams.prototype, globalThis,
        ].map((owner) => [owner, names(owner)])
        for (let i = 0; i < owners.length; i += 1) {
            const owner = owners[i][0], keys = owners[i][1]
            for (let n = 0; n < keys.length; n += 1) {
                if (owner === text && keys[n] === 'concat') continue
                try { own(owner, keys[n], { value: spoilt, configurable: true }) } catch {}
            }
            // With one on Object.prototype any object were a list of pairs.
            if (owner !== root) own(owner, iterator, { value: spoilt, configurable: true })
            try { own(owner, 'toJSON', { value: () => 'spoilt', configurable: true }) } catch {}
        }
        kept.log('a', 1, null)
        kept.fetch('http://a/b c/../d?é', { method: 'post', headers: { B: 'c' }, body: 'é' })
    """
    asked, step = run(code, replied(text="b"))
    request = asks("http://a/d?%C3%A9", "POST", [["b", "c"], TEXT], text="é")
    assert asked == [("fetch", request)]
    assert step.logs == (Log("log", "a 1 null"),)


LINES = {
    "console.log('a', 1, -0, 0.5, NaN, 1n, true, null, undefined, Symbol('x'))": (
        "log",
        "a 1 -0 0.5 NaN 1n true null undefined Symbol(x)",
    ),
    "console.info({ a: [1, 'b'] }, [])": ("info", '{"a":[1,"b"]} []'),
    "console.warn(() => 1, function f() {}, class A {})": (
        "warn",
        "[Function (anonymous)] [Function: f] [class A]",
    ),
    "console.error(new RangeError('x'))": ("error", "RangeError: x"),
    "console.debug()": ("debug", ""),
    "console.log((() => { const a = {}; a.a = a; return a })(), { b: 1n })": (
        "log",
        "[object] [object]",
    ),
    "console.log({ get a() { throw 1 } }, { toJSON: () => undefined })": (
        "log",
        "[object] [object]",
    ),
    "console.log('a'.repeat(20000), 'b')": ("log", "a" * 10_000 + "…"),
}


@pytest.mark.parametrize("code", LINES)
def test_the_console_writes_lines_for_the_host(run, code):
    _, step = run(f"({code}, null)")
    assert step.logs == (Log(*LINES[code]),)


def test_console_functions_work_without_their_object(run):
    _, step = run("(() => { const { warn } = console; warn('a'); return typeof warn('b') })()")
    assert step.logs == (Log("warn", "a"), Log("warn", "b"))
    assert json.loads(step.data) == {"response": "undefined"}


# --- the global object ------------------------------------------------------------------------

GLOBALS = words(
    "AbortController AbortSignal Buffer Headers Response URL URLSearchParams console fetch"
)


def test_globals_can_be_replaced_but_are_not_enumerated(guest):
    code = f"{json.dumps(GLOBALS)}.map((name) => Object.getOwnPropertyDescriptor(globalThis, name))"
    (found,) = guest([sentence(code)])
    flags = {"writable": True, "enumerable": False, "configurable": True}
    assert [{name: one[name] for name in flags} for one in found] == [flags] * len(GLOBALS)


def test_nothing_is_global_besides_these_and_the_language(guest, oracle):
    (ours,) = guest([sentence("Object.getOwnPropertyNames(globalThis)")])
    (language,) = oracle(
        [
            sentence(
                "process.getBuiltinModule('vm').runInNewContext('Object.getOwnPropertyNames(globalThis)')"
            )
        ]
    )
    # V8 counts the console in; QuickJS throws an error of its own when its memory is full.
    own = {*language, "InternalError"} - {"console"}
    assert sorted(set(ours) - own) == GLOBALS


# --- long texts -------------------------------------------------------------------------------

# Each would take minutes if it took the square of its length.
LONG = """
URL.canParse('http://' + '[]'.repeat(N) + ':1/')
URL.canParse('http://' + '[:]'.repeat(N) + ':1/')
URL.canParse('http://' + 'a@'.repeat(N) + 'h/')
URL.canParse('http://' + '1.'.repeat(N))
URL.canParse('http://[' + '0:'.repeat(N) + ']')
URL.canParse('http://h:' + '0'.repeat(N) + '1')
URL.canParse(' '.repeat(N) + 'x' + ' '.repeat(N) + 'x')
URL.canParse('http://h/' + 'a/'.repeat(N) + '../'.repeat(N))
URL.canParse('http://h/' + '.%2e/%2E'.repeat(N))
URL.canParse('http://h/?' + 'é '.repeat(N) + '#' + 'a<'.repeat(N))
URL.canParse('http://h/' + 'a\\n'.repeat(N))
new URLSearchParams('a=1&'.repeat(N)).toString().length > N
new URLSearchParams('%ff%'.repeat(N)).toString().length > N
new URLSearchParams(Object.fromEntries(Array.from({ length: N }, (_, i) => [`k${i}`, i]))).size === N
(() => { const u = new URL('http://h'); for (let i = 0; i < N; i += 1) u.searchParams.append('a', 'b'); return u.href.length > N })()
Buffer.from('a!'.repeat(N), 'base64').length > 0
Buffer.from('\\u{1f600}é'.repeat(N)).toString().length === 3 * N
Buffer.alloc(N, 'éa\\xff', 'latin1').toString().length === N
new Headers({ a: 'b' + ' '.repeat(N) }).get('a') === 'b'
(console.log('a'.repeat(N), Array.from({ length: N }, () => 'b')), true)
""".strip().splitlines()


@pytest.fixture(scope="module")
def hasty(hooks_cache):
    engine = Engine(hooks_cache, HookLimits(seconds=8))
    yield engine.open(HOOKS % RUNNER, main="{}", lists="{}")
    engine.close()


@pytest.mark.parametrize("code", LONG)
def test_long_texts_take_time_in_proportion(hasty, code):
    case = sentence(f"globalThis.N = 50_000; {code}")
    step = hasty.begin("globals", "postRequest", json.dumps({"response": [case]}))
    assert isinstance(step, Done), step
    assert json.loads(step.data)["response"] in ([True], [False])
