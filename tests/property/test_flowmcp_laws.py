"""Laws of FlowMCP files over random data, texts, declarations, arguments and answers."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st

from callpact import from_flowmcp
from callpact.errors import CallError, InvalidManifest
from callpact.runtime import Runtime
from callpact.secrets.masker import MIN_MASKED
from callpact.sources.flowmcp.read.literal import _NotPlainError, _read_fast, read_exports
from callpact.sources.flowmcp.read.literal_parser import in_key_order, read_carefully, stringify
from callpact.testing import StubTransport
from callpact.wire import flowmcp
from kit import every_place
from nodejs import node

# --- data, written as JavaScript ------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["it's", '"', "\\", "\n", "\u2028", "a/*b", "//", "{{USER_PARAM}}", "__proto__", "`${x}`", "\0"]
)
NUMBERS = (
    st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -0.0, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 2**60, 0.1])
)
KEYS = TEXTS.filter(lambda key: key != "__proto__") | st.sampled_from(
    ["a", "b", "if", "größe", "$x", "0", "7", "10", "01", "4294967294", "4294967295"]
)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


class Writer:
    """Writes data as JavaScript, each time in another style."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def file(self, value) -> str:
        pick = self.dice.choice
        begin = pick(["", "\ufeff", "// first\n", "/* a\n * b */\n", "\n\n"])
        end = pick(["", ";", "\n", ";\n", " // end", "\n/* end */"])
        return f"{begin}export const main{self.gap()}={self.gap()}{self.value(value)}{end}"

    def gap(self) -> str:
        gaps = ["", "", "", " ", "\n", "\t", "\r\n", "/* c */", "// c\n", "/* '\" */", "\u00a0"]
        return self.dice.choice(gaps)

    def value(self, value) -> str:
        if isinstance(value, dict):
            members = [f"{self.key(k)}{self.gap()}:{self.value(v)}" for k, v in value.items()]
            return self.gap() + self.joined("{", members, "}") + self.gap()
        if isinstance(value, list):
            return self.gap() + self.joined("[", [self.value(v) for v in value], "]") + self.gap()
        if isinstance(value, str):
            return self.gap() + self.text(value, "'\"`") + self.gap()
        if isinstance(value, bool) or value is None:
            return self.gap() + json.dumps(value) + self.gap()
        return self.gap() + self.number(value) + self.gap()

    def joined(self, opening, parts, closing) -> str:
        trailing = self.dice.choice(["", ","]) if parts else ""
        return opening + self.gap() + ",".join(parts) + trailing + self.gap() + closing

    def key(self, key) -> str:
        if key.isascii() and key.isidentifier() and self.dice.random() < 0.7:
            return self.gap() + key
        if key.isdigit() and key.isascii() and str(int(key)) == key and len(key) < 16:
            return self.gap() + self.dice.choice([key, f"'{key}'"])
        return self.gap() + self.text(key, "'\"")

    def number(self, value) -> str:
        written = self.dice.choice([repr(value), stringify(value)])
        if isinstance(value, int) and self.dice.random() < 0.3:
            written += self.dice.choice([".", ".0", ".00", "e0", "E+0"])
        return written

    def text(self, value, quotes) -> str:
        quote = self.dice.choice(quotes)
        return quote + "".join(self.letter(letter, quote) for letter in value) + quote

    def letter(self, letter, quote) -> str:
        point = ord(letter)
        short = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
        written = [f"\\u{{{point:x}}}"]
        if point < 0x10000:
            written.append(f"\\u{point:04X}")
        if point < 0x100:
            written.append(f"\\x{point:02x}")
        if letter in short:
            written.append(short[letter])
        if letter not in {quote, "\\", "\n", "\r", "$"} and self.dice.random() < 0.9:
            return letter
        if letter in {quote, "\\", "$"}:
            written.append("\\" + letter)
        return self.dice.choice(written)


def ordered(value):
    """The data with members in the order of JavaScript, numbers as one double each."""
    if isinstance(value, dict):
        return in_key_order({key: ordered(item) for key, item in value.items()})
    if isinstance(value, list):
        return [ordered(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value


def same(left, right) -> bool:
    return json.dumps(ordered(left)).replace("-0.0", "0.0") == json.dumps(ordered(right)).replace(
        "-0.0", "0.0"
    )


@given(DATA, st.randoms(use_true_random=False))
def test_data_reads_back_however_it_is_written(value, dice):
    text = Writer(dice).file(value)
    assert same(read_exports(text).values["main"], value)
    assert same(read_carefully(text).values["main"], value)


@given(DATA, st.randoms(use_true_random=False))
def test_every_place_of_data_is_known_and_points_at_it(value, dice):
    text = Writer(dice).file(value)
    found = read_carefully(text)

    def pointers(part, path):
        yield path
        if isinstance(part, dict):
            for key, item in part.items():
                yield from pointers(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
        if isinstance(part, list):
            for index, item in enumerate(part):
                yield from pointers(item, f"{path}/{index}")

    assert {path for _, path in found.places} == set(pointers(value, ""))
    assert all(0 <= offset < len(text) for offset in found.places.values())


# --- any text -------------------------------------------------------------------------------

PIECES = [
    *"{}[](),:;.'\"`/\\$-+=*?#@ \n\r\t\u2028\ufeff\u00a0\x01\x7f½²é",
    *("'a'", '"b"', "`c`", "a", "b:", "1", "0:", "01", "1.5", "1e3", "1n", "-0", "0x1", "12345678901234567"),
    *("true", "null", "undefined", "NaN", "...", "=>", "__proto__", "'__proto__'", "get ", "async "),
    *("//c\n", "/*c*/", "/*", "*/", "\\u0061", "'\\x41'", "'\\8'", "`${a}`", "'\\\n'", "\r\n", "in "),
    *("JSON.stringify(", "export const handlers = ", "\nexport const handlers = f", "export const b ="),
]  # fmt: skip


@st.composite
def scraps(draw):
    """Text that looks like a file for a while."""
    pieces = draw(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=14))
    return draw(st.sampled_from(["export const main = ", "export const main = {", ""])) + "".join(
        pieces
    )


@st.composite
def damaged(draw):
    """A good file with a few changes."""
    text = Writer(draw(st.randoms(use_true_random=False))).file(draw(DATA))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at] + draw(st.sampled_from(["", *PIECES])) + text[at + draw(st.integers(0, 2)) :]
        )
    return text


@settings(max_examples=300)
@given(scraps() | damaged() | st.text())
def test_any_text_is_read_or_refused_with_a_place_inside_of_it(text):
    try:
        found = read_exports(text)
    except InvalidManifest as error:
        assert (error.line, error.column) in every_place(text)  # noqa: PT017 - both ends are right
        assert error.message  # noqa: PT017 - as above
    else:
        assert found.values
        assert found.handlers is None or text[found.handlers :].startswith("export")


@settings(max_examples=300)
@given(scraps() | damaged())
def test_the_fast_reader_and_the_careful_one_say_the_same(text):
    try:
        fast = _read_fast(text)
    except _NotPlainError:
        return
    careful = read_carefully(text)
    assert stringify(fast.values) == stringify(careful.values)
    assert fast.handlers == careful.handlers


# --- Node -----------------------------------------------------------------------------------

ORACLE = """
import vm from 'node:vm'
import { readFileSync } from 'node:fs'
const answers = []
for( const text of JSON.parse( readFileSync( 0, 'utf8' ) ) ) {
    try {
        const module = new vm.SourceTextModule( text )
        await module.link( () => { throw new Error( 'no imports' ) } )
        await module.evaluate( { timeout: 1000 } )
        answers.push( JSON.stringify( module.namespace.main ) ?? 'undefined' )
    } catch( error ) { answers.push( null ) }
}
console.log( JSON.stringify( answers ) )
"""


def asked(texts: list[str]) -> list[str | None]:
    """What Node makes of `main` in each text, as JSON; None if it is no JavaScript."""
    command = [
        node(),
        "--experimental-vm-modules",
        "--no-warnings",
        "--input-type=module",
        "-e",
        ORACLE,
    ]
    done = subprocess.run(
        command, input=json.dumps(texts).encode(), capture_output=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


@cache
def generated(kind: str) -> list[str]:
    dice = random.Random(kind)
    writer = Writer(dice)
    made = [writer.file(_random_data(dice, 4)) for _ in range(300)]
    if kind == "damaged":
        for index, text in enumerate(made):
            at = dice.randrange(len(text))
            made[index] = text[:at] + dice.choice(PIECES) + text[at + dice.randint(0, 2) :]
    return made


def _random_data(dice, depth):
    kinds = ["text", "number", "constant"] + ["object", "array"] * (2 if depth else 0)
    kind = dice.choice(kinds)
    if kind == "object":
        keys = ["a", "b", "10", "9", "01", "größe", "x y", "$", "4294967295", "in", "'"]
        return {dice.choice(keys): _random_data(dice, depth - 1) for _ in range(dice.randint(0, 4))}
    if kind == "array":
        return [_random_data(dice, depth - 1) for _ in range(dice.randint(0, 4))]
    if kind == "text":
        letters = "ab'\"\\`$\n\r\t\0\u2028é😀\ud800"
        return "".join(dice.choice(letters) for _ in range(dice.randint(0, 5)))
    if kind == "number":
        return dice.choice(
            [0, -1, 7, 1.5, 1e21, 1e-7, 2**53 + 2, -0.1, 123456789012345680000, 5e-324]
        )
    return dice.choice([True, False, None])


def test_node_reads_the_same_data():
    texts = generated("whole")
    for text, answer in zip(texts, asked(texts), strict=True):
        assert stringify(read_exports(text).values["main"]) == answer, text


def test_nothing_is_read_that_node_would_read_otherwise():
    texts = generated("damaged")
    read = 0
    for text, answer in zip(texts, asked(texts), strict=True):
        try:
            found = read_exports(text)
        except InvalidManifest:
            continue
        if found.handlers is None and "main" in found.values:
            read += 1
            assert stringify(found.values["main"]) == answer, text
    assert read > 30  # Damage often does no harm: else nothing would have been compared.


# --- loading and calling --------------------------------------------------------------------

BASE = {
    "namespace": "demo",
    "name": "Demo",
    "description": "For a demonstration",
    "version": "4.0.0",
    "schemaVersion": "1.0.0",
    "root": "https://api.example.com/{{KEY}}",
    "requiredServerParams": ["KEY"],
    "headers": {"Accept": "application/json", "X-Key": "{{SERVER_PARAM:KEY}}"},
    "sharedLists": [{"ref": "colours", "version": "1.0.0", "filter": {"key": "hex", "exists": True}}],
    "tools": {
        "getIt": {
            "method": "GET",
            "path": "/a/{{id}}/:kind",
            "description": "Gets it",
            "parameters": [
                {"position": {"key": "id", "value": "{{USER_PARAM}}", "location": "insert"}, "z": {"primitive": "string()", "options": ["min(1)", "max(9)"]}},
                {"position": {"key": "kind", "value": "x{{USER_PARAM}}", "location": "insert"}, "z": {"primitive": "enum(a,{{colours:name}})", "options": ["optional()"]}},
                {"position": {"key": "n", "value": "{{USER_PARAM}}", "location": "query"}, "z": {"primitive": "number()", "options": ["optional()", "default(3)", "min(1)"]}},
                {"position": {"key": "r", "value": "{{CITY}}", "location": "query"}, "z": {"primitive": "string()", "options": ["regex(/^a/i)"]}},
                {"position": {"key": "two", "value": "{{A}}-{{B}}", "location": "query"}, "z": {"primitive": "string()", "options": ["optional()"]}},
                {"position": {"key": "k", "value": "{{KEY}}", "location": "query"}, "z": {"primitive": "string()", "options": []}},
            ],
            "tests": [{"_description": "One", "id": "x", "r": "abc"}],
            "output": {"mimeType": "application/json", "schema": {"type": "object", "properties": {"a": {"type": "string", "nullable": True, "enum": ["x"]}, "l": {"type": "array", "items": {"type": "number"}}}}},
        },
        "putIt": {
            "method": "PUT",
            "path": "/b",
            "description": "Puts it",
            "headers": {"X-Two": "2"},
            "parameters": [
                {"position": {"key": "o", "value": "{{USER_PARAM}}", "location": "body"}, "z": {"primitive": "object()", "options": ["optional()"]}},
                {"position": {"key": "l", "value": "{{USER_PARAM}}", "location": "body"}, "z": {"primitive": "array()", "options": ["default([])"]}},
                {"position": {"key": "b", "value": "{{USER_PARAM}}", "location": "body"}, "z": {"primitive": "boolean()", "options": ["default(true)"]}},
            ],
            "tests": [{"_description": "One"}],
        },
    },
}  # fmt: skip
LIST = {
    "meta": {
        "name": "colours",
        "version": "1.0.0",
        "description": "Colours",
        "fields": [
            {"key": "name", "type": "string", "description": "Name"},
            {"key": "hex", "type": "string", "description": "Hex", "optional": True},
        ],
    },
    "entries": [{"name": "red", "hex": "f00"}, {"name": "none", "hex": None}],
}
VALUES = [
    *(None, True, 0, -1, 1.5, 10**21, "", "a", "é", "a\nb", "a b", "x" * 300, [], {}, [1], {"a": 1}, ["a"]),
    *("{{USER_PARAM}}", "{{}}", "{{ }}", "{{X", "{{KEY}}", "{{X}}{{Y}}", "{{USER_PARAM}}{{X}}{{Y}}"),
    *("{{SERVER_PARAM:KEY}}", "{{SERVER_PARAM: KEY }}", "{{SERVER_PARAM:}}", "{{SERVER_PARAM:NO}}"),
    *("string()", "number()", "boolean()", "array()", "object()", "enum()", "enum(,)", "enum({{colours:hex}})"),
    *("default()", "default(null)", "default(x)", "default({)", "default([1,2])", 'default({"a":1})'),
    *("min(1e3)", "min(-1)", "max(0)", "length(3)", "values(a,b)", "optional", " optional() "),
    *("regex(()", "regex((?=a)a)", "regex(/\\d+/g)", "regex([)", "regex(a{1,99999})"),
    *("/..", "/a?b=:id", "/{{id}}{{kind}}", "/.{{id}}", "//{{id}}", "/{id}", "/a#b", "https://h"),
    *("GET", "POST", "DELETE", "insert", "query", "body", "image/png", "text/plain", "integer", "string"),
    *({"type": "string"}, {"type": "array", "items": {"type": "object"}}, ["KEY", "KEY"], ["A-B"]),
]  # fmt: skip


def _ways(value, way=()):
    yield way
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _ways(item, (*way, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _ways(item, (*way, index))


@st.composite
def declarations(draw):
    """The declaration above with one or two places changed."""
    made = copy.deepcopy(BASE)
    for _ in range(draw(st.integers(1, 2))):
        ways = [way for way in _ways(made) if way]
        *above, last = draw(st.sampled_from(ways))
        place = made
        for step in above:
            place = place[step]
        new = copy.deepcopy(draw(st.sampled_from(VALUES)))
        what = draw(st.sampled_from(["put", "put", "put", "drop", "add"]))
        if what == "drop":
            del place[last]
        elif what == "add" and isinstance(place, list):
            place.append(new)
        elif what == "add":
            place[new if isinstance(new, str) else "x"] = copy.deepcopy(place[last])
        else:
            place[last] = new
    return made


@cache
def folder() -> Path:
    """A catalogue for all examples of this process; it goes when the process does."""
    made = tempfile.TemporaryDirectory(prefix="callpact-laws-")
    folder.keep = made
    home = Path(made.name)
    (home / "_lists").mkdir()
    (home / "_lists" / "colours.mjs").write_text(f"export const list = {json.dumps(LIST)}")
    (home / "demo").mkdir()
    return home


SECRET = "k-secret-1"
ARGUMENTS = [
    {},
    {"id": "x", "r": "abc"},
    {"id": "..", "r": "abc"},
    {"id": "a/b", "CITY": "Abc", "A": "1", "B": "2", "n": 5, "kind": "red"},
    {"X": "1", "Y": "2", "id": "i", "r": "ab"},
    {"o": {"x": [10**30, 1.0]}, "l": [None], "b": False},
]


def loaded(data, respond=None, **given):
    home = folder()
    (home / "demo" / "Demo.mjs").write_text(f"export const main = {json.dumps(data)}", "utf-8")
    transport = StubTransport(respond or (lambda _: {"status": 200, "body": '{"a": "x"}'}))
    return from_flowmcp(
        home, **{"secrets": {"KEY": SECRET}, "transport": transport} | given
    ), transport


def outcome(runtime, name, arguments):
    """The envelope or the error of a call."""
    try:
        return asyncio.run(runtime.execute(name, arguments))
    except CallError as error:
        return error


@settings(max_examples=200)
@given(declarations(), st.sampled_from(["compat", "compat", "strict"]))
def test_what_was_loaded_can_be_called(data, profile):
    tools, transport = loaded(data, profile=profile)
    runtime = Runtime(tools)
    for made in tools:
        assert made.contract.input["type"] == "object"
        for arguments in ARGUMENTS:
            found = outcome(runtime, made.id, arguments)
            code = getattr(found, "code", None)
            assert code in {None, "schema_validation_failed", "server_param_missing"}, found
    for request in transport.requests:
        parts = urlsplit(request.url)
        assert parts.scheme == "https"
        assert request.url.isascii()
        assert not any(letter.isspace() for letter in request.url)
        assert "callpact-secret" not in f"{request.url}{request.headers}{request.body}"


@settings(max_examples=200)
@given(declarations())
def test_every_file_that_is_not_loaded_is_told_why(data):
    tools, _ = loaded(data)
    errors = [found for found in tools.report if found.severity == "error"]
    assert tools or errors or not data.get("tools")
    assert all(found.code and found.line for found in errors)


# --- requests -------------------------------------------------------------------------------


def plain_tool(*places, method="POST"):
    path = "".join(f"/{key}/{{{{{key}}}}}" for key, location in places if location == "insert")
    return {
        **BASE,
        "root": "https://api.example.com",
        "tools": {
            "doIt": {
                "method": method,
                "path": path + "/end",
                "description": "Does it",
                "parameters": [
                    {
                        "position": {"key": key, "value": "{{USER_PARAM}}", "location": location},
                        "z": {"primitive": "string()", "options": []},
                    }
                    for key, location in places
                ],
                "tests": [{"_description": "One"}],
            }
        },
    }


ANY_TEXT = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["..", ".", "%2e", "a/../b", "?#&"]
)


def _holds_step(text):
    """True if some server may take a part of the text for `.` or `..`."""
    while (decoded := unquote(text)) != text:
        text = decoded
    for sign in ";?#\0":
        text = text.replace(sign, "/;")
    parts = text.replace("\\", "/").split("/")
    return any(part in {".", ".."} for part in parts)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_every_text_arrives_in_its_place_and_nowhere_else(first, second, asked_for, body):
    places = (("a", "insert"), ("b", "insert"), ("q", "query"), ("s", "body"))
    tools, transport = loaded(plain_tool(*places))
    given_ = {"a": first, "b": second, "q": asked_for, "s": body}
    found = outcome(Runtime(tools), "demo.doIt", given_)
    if {first, second} & {""} or _holds_step(first) or _holds_step(second):
        assert found.code == "schema_validation_failed"
        assert transport.requests == []
        return
    (request,) = transport.requests
    parts = urlsplit(request.url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.example.com", "")
    assert [unquote(part) for part in parts.path.split("/")] == ["", "a", first, "b", second, "end"]
    assert parse_qsl(parts.query, keep_blank_values=True, separator="&") == [("q", asked_for)]
    assert json.loads(request.body) == {"s": body}
    assert request.url.isascii()


# --- answers --------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(JSON)
def test_an_answer_is_delivered_unchanged_whatever_is_declared(data):
    answer = {"status": 200, "body": json.dumps(data)}
    tools, _ = loaded({**BASE, "requiredServerParams": ["KEY"]}, lambda _: answer)
    found = outcome(Runtime(tools), "demo.getIt", {"id": "x", "r": "abc"})
    assert found.data == data
    assert found.changes == ()
    assert flowmcp.encode_result(found) == {"status": True, "messages": [], "data": data}


@given(st.binary(max_size=60), st.sampled_from([200, 204, 404, 500]), st.sampled_from(
    ["application/json", "text/plain; charset=latin-1", "x; charset=utf-16", "", "x; charset=punycode"]
))  # fmt: skip
def test_any_answer_is_data_or_an_upstream_error(body, status, kind):
    answer = {"status": status, "contentType": kind, "body": body}
    tools, _ = loaded(BASE, lambda _: answer)
    found = outcome(Runtime(tools), "demo.getIt", {"id": "x", "r": "abc"})
    assert getattr(found, "code", "upstream_error") == "upstream_error"


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=255, blacklist_categories=["Cc"]), min_size=MIN_MASKED, max_size=40),
    st.sampled_from([200, 401]),
    st.sampled_from(["plain", "json", "slashes", "ascii", "latin"]),
)  # fmt: skip
def test_a_secret_never_comes_back(secret, status, form):
    secret = f"\u00d1{secret}\u00d1"  # Such letters stand in no name of ours, which may show.
    quoted = json.dumps(secret, ensure_ascii=form != "plain")
    quoted = quoted.replace("/", "\\/") if form == "slashes" else quoted
    body = f'{{"echo": {quoted}, "in": [{quoted}]}}'.encode(
        "latin-1" if form == "latin" else "utf-8"
    )
    kind = "application/json; charset=latin-1" if form == "latin" else "application/json"
    answer = {"status": status, "contentType": kind, "body": body, "headers": {"X-Echo": secret}}
    tools, transport = loaded(BASE, lambda _: answer, secrets={"KEY": secret})
    found = outcome(Runtime(tools), "demo.getIt", {"id": "x", "r": "abc"})
    assert transport.requests[0].headers["X-Key"] == secret
    seen = [repr(found), str(found)]
    if isinstance(found, CallError):
        seen += [json.dumps(found.details), json.dumps(flowmcp.encode_error(found, "getIt"))]
        values = [found.details["body"]]
    else:
        values = [found.data["echo"], *found.data["in"], *found.meta.headers.values()]
        seen.append(json.dumps(found.to_wire()))
    assert all(secret not in value for value in values)
    assert all(quoted[1:-1] not in text for text in seen)
