"""Reading the data of a `.mjs` file: what is data, what is not, and where that shows."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from callpact.errors import InvalidManifest
from callpact.sources.flowmcp.read.literal import MAX_FILE_BYTES, read_exports

HEAD = "export const main = "


def read(literal):
    return read_exports(HEAD + literal).values["main"]


def refused(text):
    with pytest.raises(InvalidManifest) as caught:
        read_exports(text)
    return caught.value


def place(literal):
    """Line and column of a refusal, columns counted from where the literal begins."""
    error = refused(HEAD + literal)
    return error.line, error.column - (len(HEAD) if error.line == 1 else 0)


# --- data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("{}", {}),
        ("[]", []),
        ("{ a: 1 }", {"a": 1}),
        ("{ 'a b': 1, \"c\": 2, $d: 3, _e: 4, f1: 5 }", {"a b": 1, "c": 2, "$d": 3, "_e": 4, "f1": 5}),
        ("{ größe: 1, ключ: 2 }", {"größe": 1, "ключ": 2}),
        ("{ true: 1, null: 2, in: 3, get: 4, async: 5, export: 6 }",
         {"true": 1, "null": 2, "in": 3, "get": 4, "async": 5, "export": 6}),
        ("[ 'a', \"b\", `c` ]", ["a", "b", "c"]),
        ("[ true, false, null ]", [True, False, None]),
        ("{ a: [ { b: [ [] ] } ] }", {"a": [{"b": [[]]}]}),
        ("'a text alone'", "a text alone"),
        ("7", 7),
        ("null", None),
    ],
)  # fmt: skip
def test_every_kind_of_data_is_read(literal, value):
    assert read(literal) == value


@pytest.mark.parametrize(
    "literal",
    ["{ a: 1, }", "{ a: 1 , /* c */ }", "{ a: 1, // c\n }", "{ a: 1,\n\n}", "{ a /* : */ : 1, }"],
)
def test_one_comma_may_trail_in_an_object_whatever_stands_behind_it(literal):
    assert read(literal) == {"a": 1}


@pytest.mark.parametrize("literal", ["[ 1, ]", "[1,]", "[ 1, /* c */ ]", "[ 1 //,,\n, ]"])
def test_one_comma_may_trail_in_an_array(literal):
    assert read(literal) == [1]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"'it\'s'", "it's"),
        (r'"say \"hi\""', 'say "hi"'),
        ("'say \"hi\"'", 'say "hi"'),
        ('"it\'s"', "it's"),
        (r"'\b\t\n\v\f\r'", "\b\t\n\v\f\r"),
        (r"'\0'", "\0"),
        (r"'\0a'", "\0a"),
        ("'\\0\u0663'", "\0\u0663"),  # A digit of another script is no octal digit.
        (r"'\x41\u0042\u{43}\u{1F600}'", "ABC\U0001f600"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\ud83d'", "\ud83d"),
        (r"'\q\/\-\`'", "q/-`"),
        ("'one \\\nline'", "one line"),
        ("'one \\\r\nline'", "one line"),
        ("'one \\\u2028line'", "one line"),
        ("'\u2028 and \u2029 stay'", "\u2028 and \u2029 stay"),
        ("'a // b /* c */'", "a // b /* c */"),
        ("'a, ]} b'", "a, ]} b"),
        ("'__proto__'", "__proto__"),
        ("'\x7f and \x01'", "\x7f and \x01"),
        ('"\ttab"', "\ttab"),
        ("''", ""),
        ("`a ${ 'b'`".replace("${ 'b'", "$ { b } $"), "a $ { b } $"),
        ("`two\nlines`", "two\nlines"),
        ("`two\r\nlines`", "two\nlines"),
        ("`two\rlines`", "two\nlines"),
        (r"`\${ a } \` \n`", "${ a } ` \n"),
        ("`$`", "$"),
        ("`'\"`", "'\""),
    ],
)
def test_texts_mean_what_javascript_says(written, meant):
    assert read(f"[ {written} ]") == [meant]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("-7", -7),
        ("- 7", -7),
        ("-/* c */7", -7),
        ("1.50", 1.5),
        ("1.0", 1),
        (".5", 0.5),
        ("5.", 5),
        ("-.5e1", -5),
        ("1e3", 1000),
        ("1E-3", 0.001),
        ("1e+2", 100),
        ("0.1", 0.1),
        ("9007199254740991", 2**53 - 1),
        ("9007199254740993", 2**53),  # Beyond 2^53 a number is the nearest double.
        ("12345678901234567890", 12345678901234567000.0),
        ("1e21", 1e21),
        ("5e-324", 5e-324),
        ("1e-400", 0),
    ],
)
def test_numbers_are_those_of_javascript(written, value):
    assert read(f"[ {written} ]") == [value]


@pytest.mark.parametrize("written", ["1.0", "1e3", "-0", "5.", "9007199254740992", "-0.0"])
def test_a_whole_number_is_an_integer_however_it_is_written(written):
    assert type(read(f"[ {written} ]")[0]) is int


def test_keys_that_are_array_indexes_come_first_in_ascending_order():
    written = "{ b: 0, 10: 1, '9': 2, a: 3, 0: 4, '01': 5, 4294967294: 6, 4294967295: 7, '-1': 8 }"
    assert list(read(written)) == ["0", "9", "10", "4294967294", "b", "a", "01", "4294967295", "-1"]


def test_array_indexes_come_first_in_objects_inside_as_well():
    assert (
        json.dumps(read("[ { a: { x: 1, 2: 1, 1: 1 } } ]")) == '[{"a": {"1": 1, "2": 1, "x": 1}}]'
    )


@pytest.mark.parametrize(
    ("digits", "key"),
    [
        ("123456789012345", "123456789012345"),
        ("12345678901234567", "12345678901234568"),
        ("1234567890123456789012", "1.2345678901234568e+21"),
        ("9" * 400, "Infinity"),
    ],
)
def test_an_integer_key_is_the_text_of_its_double(digits, key):
    assert read(f"{{ {digits}: 1 }}") == {key: 1}


def test_of_two_equal_keys_the_last_value_counts_at_the_first_place():
    found = read("{ a: 1, b: 2, 'a': { c: 3 } }")
    assert list(found.items()) == [("a", {"c": 3}), ("b", 2)]


def test_equal_keys_are_found_however_they_are_written():
    assert read(r"{ ab: 1, '\u0061b': 2, 1: 3, '1': 4 }") == {"1": 4, "ab": 2}


# --- around the data ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffexport const main = { a: 1 }",
        "// first\n/* second\n * line */ export const main = { a: 1 }",
        "export/*c*/const/*c*/main/*c*/=/*c*/{/*c*/a/*c*/:/*c*/1/*c*/}/*c*/;/*c*/",
        "export const main = { // one\r\n a: 1 // two\r\n}\r\n",
        "export const main = // }\n{ a: /* } */ 1 }",
        "export\nconst\tmain\r\n=\n\n{ a: 1 }\n;\n",
        "export const main={a:1}",
        "export const main = {\u00a0a\u2003:\u30001\u2028}\u2029",
        "export const main = { a: 1 } // the end",
        "export const main = { a: 1 } /* the\nend */",
        "export const main = { /**/ a: 1 /***/ /* * / **/ }",
        "export const main = { a: 1 } // line\u2028",
    ],
)
def test_comments_and_white_space_may_stand_everywhere(text):
    assert read_exports(text).values == {"main": {"a": 1}}


def test_every_data_export_is_read():
    found = read_exports(
        "export const main = { a: 1 }\nexport const extra = [ 2 ];export const c = 3"
    )
    assert found.values == {"main": {"a": 1}, "extra": [2], "c": 3}


def test_an_export_may_be_another_name_of_an_earlier_one():
    found = read_exports("export const main = { a: 1 }\nexport const schema = main\n")
    assert found.values == {"main": {"a": 1}, "schema": {"a": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "export const main = { a: 1 }\nexport const handlers = () => ({})\n",
        "export const main = { a: 1 };\n\n// hooks\nexport const handlers = f",
        "export const main = { a: 1 };export const handlers = f",
        "export const main = { a: 1 }\r\n\r\nexport const handlers= function () {}",
        "export const main = { a: 1 }\n/* \nexport const handlers = g\n*/\nexport  const  handlers  =  f",
        "export const main = { a: 1 }\nexport const handlers = `\nexport const handlers = f`",
    ],
)
def test_code_begins_at_handlers_and_is_not_looked_at(text):
    found = read_exports(text)
    assert found.values == {"main": {"a": 1}}
    assert text[found.handlers :].split()[:3] == [
        "export",
        "const",
        text[found.handlers :].split()[2],
    ]
    assert "handlers" in text[found.handlers : found.handlers + 30]
    assert text.count("main", found.handlers) == 0


def test_a_file_without_hooks_has_no_code():
    assert (
        read_exports("export const main = { handlers: 'export const handlers = f' }").handlers
        is None
    )


@pytest.mark.parametrize(
    "inside",
    [
        "'\\\nexport const handlers = f'",
        "`\nexport const handlers = f`",
        "1 /*\nexport const handlers = f */",
    ],
)
def test_words_inside_of_data_are_not_where_code_begins(inside):
    found = read_exports(f"export const main = {{ a: {inside} }}")
    assert found.handlers is None
    assert list(found.values["main"]) == ["a"]


def test_an_export_whose_name_begins_like_handlers_is_no_code():
    found = read_exports("export const main = {}\nexport const handlersOf = { a: 1 }")
    assert (found.values["handlersOf"], found.handlers) == ({"a": 1}, None)


def test_the_text_of_a_literal_that_is_stringified_is_data():
    written = "{ body: JSON.stringify( { a: [ 1.0, 'é', '\\u2028', 1e21, -0 ], 2: null, 1: true } ), b: 1 }"
    assert read(written) == {"body": '{"1":true,"2":null,"a":[1,"é","\u2028",1e+21,0]}', "b": 1}


# --- what is not data -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "column", "words"),
    [
        ("{ a: function () {} }", 6, "function"),
        ("{ a: async () => 1 }", 6, "function"),
        ("{ a: () => 1 }", 6, "function"),
        ("{ a: ( x ) => 1 }", 6, "function"),
        ("{ a: x => 1 }", 6, "function"),
        ("{ a() {} }", 3, "method"),
        ("{ get a() {} }", 3, "method"),
        ("{ async a() {} }", 3, "method"),
        ("{ *a() {} }", 3, "key"),
        ("{ a: class {} }", 6, "class"),
        ("{ a: new Date() }", 6, "Date"),
        ("{ a: Date.now() }", 6, "Date"),
        ("{ a: undefined }", 6, "undefined"),
        ("{ a: NaN }", 6, "NaN"),
        ("{ a: -NaN }", 7, "number"),
        ("{ a: Infinity }", 6, "Infinity"),
        ("{ a: -Infinity }", 7, "number"),
        ("{ a: 1e999 }", 6, "beyond"),
        ("{ a: f() }", 6, "call"),
        ("{ a: process.env.A }", 6, "process"),
        ("{ a: other }", 6, "name `other`"),
        ("{ a }", 3, "variable"),
        ("{ a, b: 1 }", 3, "variable"),
        ("{ ...a }", 3, "spread"),
        ("{ a: [ ...b ] }", 8, "spread"),
        ("{ [ a ]: 1 }", 3, "computed"),
        ("{ a: `b ${ c }` }", 6, "template"),
        ("{ a: `b${c}` }", 6, "template"),
        ("{ a: 1n }", 6, "BigInt"),
        ("{ a: 017 }", 6, "octal"),
        ("{ a: 08 }", 6, "octal"),
        ("{ a: 0x1f }", 6, "decimal"),
        ("{ a: 0b1 }", 6, "decimal"),
        ("{ a: 0o7 }", 6, "decimal"),
        ("{ a: 1_000 }", 6, "decimal"),
        ("{ a: 1.2.3 }", 6, "decimal"),
        ("{ a: 1e }", 6, "decimal"),
        ("{ a: +1 }", 6, "`+`"),
        ("{ a: !0 }", 6, "`!`"),
        ("{ a: --1 }", 7, "number"),
        ("{ a: 1 + 1 }", 8, "literals"),
        ("{ a: 'b' + 'c' }", 10, "literals"),
        ("{ a: /b/ }", 6, "`/`"),
        ("{ a: 'b }", 6, "quote"),
        ("{ a: 'b\nc' }", 6, "quote"),
        ("{ a: `b }", 6, "quote"),
        (r"{ a: '\8' }", 6, "escape"),
        (r"{ a: '\101' }", 6, "escape"),
        (r"{ a: '\01' }", 6, "escape"),
        (r"{ a: '\x4' }", 6, "escape"),
        (r"{ a: '\u12' }", 6, "escape"),
        (r"{ a: '\u{110000}' }", 6, "escape"),
        (r"{ a: `\1` }", 6, "escape"),
        ("{ __proto__: 1 }", 3, "__proto__"),
        ("{ '__proto__': 1 }", 3, "__proto__"),
        (r"{ '\u005f_proto__': 1 }", 3, "__proto__"),
        ("{ 1.5: 1 }", 3, "integer"),
        ("{ 0x1: 1 }", 3, "integer"),
        ("{ 01: 1 }", 3, "integer"),
        ("{ 1n: 1 }", 3, "integer"),
        ("{ ½: 1 }", 3, "key"),
        ("{ a²: 1 }", 3, "key"),
        ("{ #a: 1 }", 3, "key"),
        ("{ `a`: 1 }", 3, "key"),
        ("{ a: 1 b: 2 }", 8, "`,`"),
        ("{ a 1 }", 5, "`:`"),
        ("{ a: }", 6, "`}`"),
        ("{ , }", 3, "comma"),
        ("{ /* c */ , }", 11, "comma"),
        ("{ a: 1,, }", 8, "comma"),
        ("[ , ]", 3, "hole"),
        ("[ /* c */ , 1 ]", 11, "hole"),
        ("[ 1,, 2 ]", 5, "hole"),
        ("[ 1, /* c */ , ]", 14, "hole"),
        ("[ 1 2 ]", 5, "`,`"),
        ("[ 1 }", 5, "`]`"),
        ("{ a: 1 ]", 8, "`}`"),
        ("{ a: 1", 7, "ends"),
        ("[ 1", 4, "ends"),
        ("", 1, "ends"),
        ("{ a: /* 1 }", 6, "comment"),
        ("( { a: 1 } )", 1, "function"),
        ("{ a: 1 } as const", 10, "goes on"),
        ("Object.freeze( {} )", 1, "Object"),
        ("JSON.parse( '{}' )", 1, "JSON"),
        ("{ a: JSON.stringify( b ) }", 22, "name `b`"),
        ("{ a: JSON.stringify( {}, null, 2 ) }", 24, "one literal"),
        ("{ a: JSON.stringify() }", 21, "`)`"),
        ("{ a: JSON.stringify }", 6, "member"),
        ("{ a: JSON.stringify( JSON.stringify( 1 ) ) }", 22, "inside of another"),
    ],
)
def test_what_is_not_data_is_refused_where_it_stands(literal, column, words):
    error = refused(HEAD + literal)
    assert (error.line, error.column - len(HEAD)) == (1, column)
    assert words in error.message


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("import fs from 'fs'\nexport const main = {}", 1, 1),
        ("export const main = {}\nimport fs from 'fs'", 2, 1),
        ("const a = 1\nexport const main = {}", 1, 1),
        ("'use strict'\nexport const main = {}", 1, 1),
        ("#!/usr/bin/env node\nexport const main = {}", 1, 1),
        ("export default {}", 1, 1),
        ("export let main = {}", 1, 1),
        ("export { main }", 1, 1),
        ("export const { main } = {}", 1, 14),
        ("export const in = {}", 1, 14),
        ("export const ½ = {}", 1, 14),
        ("export const main == {}", 1, 19),
        ("export const main => {}", 1, 19),
        ("export const main", 1, 18),
        ("export const main = {}\nmain.a = 5", 2, 1),
        ("export const main = {};\n\n  main.a = 5", 3, 3),
        ("export const main = {}\nObject.assign( main, {} )", 2, 1),
        ("export const main = {}\nfunction f() {}", 2, 1),
        ("export const main = {}\nexport const main = {}", 2, 1),
        ("export const main = {}\nexport const b = main.a", 2, 22),
        ("export const main = {}, b = 1", 1, 23),
        # A new line does not end an expression that can go on.
        ("export const main = {}\n( 1 )", 2, 1),
        ("export const main = []\n[ 0 ]", 2, 1),
        ("export const main = {}\n.a", 2, 1),
        ("export const main = {}\n`a`", 2, 1),
        ("export const main = {}\n/ 2", 2, 1),
        ("export const main = 1\n+ 1", 2, 1),
        ("export const main = 1\n? 1 : 2", 2, 1),
        ("export const main = 1\n== 1", 2, 1),
        ("export const main = 1\n, 2", 2, 1),
        ("export const main = 'a'\nin main", 2, 1),
        ("export const main = {} export const b = 1", 1, 24),
        ("export const main = {} /* no line end */ export const b = 1", 1, 42),
        # Data stands before code.
        ("export const handlers = f\nexport const main = {}", 1, 1),
        ("export const handlers = {}", 1, 1),
        ("", 1, 1),
        ("// nothing", 1, 1),
        # Lines end as JavaScript has it.
        ("// a\r\n// b\rexport const main = { a: b }", 3, 26),
        ("// a\u2028// b\u2029\nexport const main = { a: b }", 4, 26),
        ("\ufeffexport const main = { a: b }", 1, 26),
        ("export const main = {\r\n  a: 1,\r\n  b: c\r\n}", 3, 6),
        ("export const main = { a: `\n\n`, b: c }", 3, 7),
    ],
)
def test_what_does_not_belong_into_a_file_is_refused_where_it_stands(text, line, column):
    error = refused(text)
    assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize("after", ["( 1 )", "[ 0 ]", ".a", "`a`", "/ 2", "+ 1", "? 1 : 2", ", 2"])
def test_an_expression_that_goes_on_is_told_as_one(after):
    assert "goes on" in refused(f"export const main = {{}}\n{after}").message


def test_a_comment_between_two_exports_may_hold_the_line_end():
    found = read_exports("export const main = {} /*\n*/ export const b = 1")
    assert found.values == {"main": {}, "b": 1}


# --- limits ---------------------------------------------------------------------------------


def test_data_may_nest_64_levels_and_no_deeper():
    assert read("[" * 64 + "]" * 64)
    error = refused(HEAD + "[" * 65 + "]" * 65)
    assert (error.line, error.column) == (1, len(HEAD) + 65)
    assert "64 levels" in error.message


def test_objects_and_arrays_nest_alike():
    assert read("{a:[" * 32 + "]}" * 32)
    assert "64 levels" in refused(HEAD + "{a:[" * 32 + "[" + "]" + "]}" * 32).message


def test_empty_structures_count_as_levels():
    assert "64 levels" in refused(HEAD + "[" * 64 + "{}" + "]" * 64).message


def test_a_file_may_have_512_kib_and_no_byte_more():
    padding = MAX_FILE_BYTES - len(HEAD + "''")
    assert len(read("'" + "x" * padding + "'")) == padding
    assert f"{MAX_FILE_BYTES:,} bytes" in refused(HEAD + "'" + "x" * (padding + 1) + "'").message


def test_bytes_are_counted_not_characters():
    assert "bytes" in refused(HEAD + "'" + "é" * (MAX_FILE_BYTES // 2) + "'").message


REPEATED = {
    "blanks": (" ", ""),
    "line ends": ("\n", ""),
    "openers": ("[", ""),
    "open objects": ("{a:", ""),
    "single quotes": ("'", ""),
    "both quotes": ("'\"", ""),
    "escaped quotes": ("'\\", ""),
    "escaped double quotes": ('"\\', ""),
    "comments that open": ("/*", ""),
    "stars": ("*", ""),
    "slashes": ("/", ""),
    "letters": ("a", ""),
    "words": ("a ", ""),
    "digits": ("1", ""),
    "commas": (",", ""),
    "commas and blanks": (", ", ""),
    "dollars in a template": ("$", ""),
    "backticks": ("`", ""),
    "members": ("a:1,", "{"),
    "members of objects": ("a:[1],", "{"),
    "integers as keys": ("1:1,", "{"),
    "items": ("1,", "["),
    "texts": ("'a',", "["),
    "calls": ("JSON.stringify(1),", "["),
    "calls in calls": ("JSON.stringify(", ""),
    "exports": ("1\nexport const a =", ""),
    "hooks": ("\nexport const handlers", ""),
    "escapes": ("\\n", "'"),
    "beginnings of escapes": ("\\u", "'"),
    "minus signs": ("-", ""),
}


@pytest.mark.parametrize("name", REPEATED)
def test_half_a_megabyte_of_the_same_ends(name):
    # No clock is asked: what needs quadratic time would need minutes here.
    piece, before = REPEATED[name]
    text = HEAD + before + piece * (500_000 // len(piece))
    with suppress(InvalidManifest):
        assert read_exports(text).values


def test_many_equal_keys_among_many_others_end():
    others = "".join(f"k{index}:1," for index in range(30_000))
    found = read("{" + others + "a:[1]," * 20_000 + "}")
    assert len(found) == 30_001
