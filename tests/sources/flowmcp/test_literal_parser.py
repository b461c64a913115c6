"""The careful reader: the place of every value, and agreement with the fast one."""

from __future__ import annotations

import pytest

from callpact.errors import InvalidManifest
from callpact.sources.flowmcp.read.literal import _NotPlainError, _read_fast, read_exports
from callpact.sources.flowmcp.read.literal_parser import (
    line_starts,
    place_of,
    read_carefully,
    stringify,
)


def places(text):
    """What stands at each place, up to the end of its line."""
    found = read_carefully(text).places
    return {key: text[offset:].splitlines()[0] for key, offset in found.items()}


def test_every_value_has_a_place_by_its_json_pointer():
    text = "export const main = {\n  a: 1,\n  'b/c~d': [\n    true,\n    { e: null }\n  ]\n}"
    assert places(text) == {
        ("main", ""): "{",
        ("main", "/a"): "a: 1,",
        ("main", "/b~1c~0d"): "'b/c~d': [",
        ("main", "/b~1c~0d/0"): "true,",
        ("main", "/b~1c~0d/1"): "{ e: null }",
        ("main", "/b~1c~0d/1/e"): "e: null }",
    }


def test_the_place_of_a_member_is_its_key_and_of_an_item_its_value():
    text = "export const main = { /* a */ a : /* b */ 1, b: [ /* c */ 2 ] }"
    found = places(text)
    assert found["main", "/a"].startswith("a :")
    assert found["main", "/b/0"].startswith("2 ]")


def test_of_equal_keys_only_the_last_has_places():
    text = "export const main = { a: { x: 1, y: [ 2 ] },\n b: 3,\n a: { z: 4 } }"
    found = places(text)
    assert {pointer for _, pointer in found} == {"", "/a", "/a/z", "/b"}
    assert found["main", "/a"] == "a: { z: 4 } }"


def test_equal_keys_inside_of_equal_keys_leave_no_place_behind():
    text = "export const main = { a: { b: { c: 1 }, b: { d: 1 } },\n a: { b: 1 } }"
    found = places(text)
    assert {pointer for _, pointer in found} == {"", "/a", "/a/b"}
    assert found["main", "/a/b"] == "b: 1 } }"


def test_a_key_that_looks_like_the_pointer_of_another_keeps_its_place():
    text = "export const main = { a: { b: 1 },\n 'a/b': 2,\n a: 3 }"
    assert places(text)["main", "/a~1b"] == "'a/b': 2,"


def test_what_is_inside_of_a_stringified_literal_has_no_place():
    text = (
        "export const main = { a: JSON.stringify( { b: [ 1 ] } ), c: [ JSON.stringify( [ 2 ] ) ] }"
    )
    assert {pointer for _, pointer in places(text)} == {"", "/a", "/c", "/c/0"}


def test_places_are_told_apart_by_export():
    text = "export const main = { a: 1 }\nexport const extra = { a: 2 }"
    found = places(text)
    assert found["main", "/a"] == "a: 1 }"
    assert found["extra", "/a"] == "a: 2 }"


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("abc", 0, (1, 1)),
        ("abc", 3, (1, 4)),
        ("a\nb", 2, (2, 1)),
        ("a\r\nb", 3, (2, 1)),
        ("a\rb", 2, (2, 1)),
        ("a\u2028b\u2029c", 4, (3, 1)),
        ("\n\n", 2, (3, 1)),
        ("\ufeffab", 2, (1, 2)),
        ("é😀b", 2, (1, 3)),
        ("a\x0bb\x85c", 4, (1, 5)),  # No line ends in JavaScript.
    ],
)
def test_lines_and_columns_are_counted_from_one(text, offset, expected):
    assert place_of(line_starts(text), offset) == expected


PLAIN = """// A file as most are.
export const main = {
    namespace: 'shop',   // 'quoted' in a comment
    name: "Prices",
    root: 'https://example.com',
    requiredServerParams: [],
    tools: {
        getPrice: {
            method: 'GET', path: '/price/:id', /* , */
            parameters: [
                { position: { key: 'id', value: '{{USER_PARAM}}', location: 'insert' }, z: { primitive: 'string()', options: [ 'min(1)', 'regex(^\\\\d+$)' ] } },
            ],
            output: { mimeType: 'application/json', schema: { type: 'object', properties: { '1': { type: 'number' }, "a-b": { type: 'string' } } } },
            tests: [ { _description: 'It\\'s one', id: '7', limit: -1.5 } ],
        },
    },
}


export const handlers = ( { sharedLists } ) => ( { getPrice: { postRequest: async () => { } } } )
"""


def test_the_fast_reader_takes_what_most_files_hold():
    fast, careful = _read_fast(PLAIN), read_carefully(PLAIN)
    assert fast.values == careful.values
    assert fast.handlers == careful.handlers == PLAIN.index("export const handlers")
    assert fast.values["main"]["tools"]["getPrice"]["tests"] == [
        {"_description": "It's one", "id": "7", "limit": -1.5}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "export const main = { a: `b` }",
        "export const main = { a: .5 }",
        "export const main = { a: 12345678901234567 }",
        "export const main = { 7: 1 }",
        "export const main = {\u00a0}",
        "export const main = 'a'",
        "export const main = {}\nexport const b = {}",
        "export const main = { a: '\x01' }",
        "export const main = { a: '__proto__' }",
    ],
)
def test_what_the_fast_reader_leaves_is_read_with_care(text):
    with pytest.raises(_NotPlainError):
        _read_fast(text)
    assert read_exports(text).values == read_carefully(text).values


@pytest.mark.parametrize(
    "text",
    [
        "export const main = { a: 1 b: 2 }",
        "export const main = { ½: 1 }",
        "export const main = { 01: 1 }",
        "export const main = { a: [ 1 2 ] }",
        "export const main = { a: 01 }",
        "export const main = { a: tr/**/ue }",
        "export const main = { a: 1/**/2 }",
        "export const main = { a: 'b''c' }",
        "export const main = { 'a'b: 1 }",
        "export const main = { a: b: 1 }",
        "export const main = [ 1 ], [ 2 ]",
        "export const main = [ /**/, ]",
        "export const main = { a: 1 } }",
        "export const main = { a: 1 } // \u2028 }",
        "export const main = { get a: 1 }",
        "export const handlers = { a: 1 }",
        "export const new = { a: 1 }",
        "export const main = { a: /* }",
        "export const main = { a: /*/ 1 }",
        "export const main = { a: '\\",
    ],
)
def test_the_fast_reader_takes_nothing_that_is_refused_with_care(text):
    with pytest.raises(InvalidManifest):
        read_carefully(text)
    with pytest.raises(_NotPlainError):
        _read_fast(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ({"b": 1, "a": [True, False, None]}, '{"b":1,"a":[true,false,null]}'),
        ([1.0, 0.1, 1e21, 1e-7, -0.0, 10**20], "[1,0.1,1e+21,1e-7,0,100000000000000000000]"),
        (['é/"\\\n\u2028\x7f\x01'], '["é/\\"\\\\\\n\u2028\x7f\\u0001"]'),
    ],
)
def test_stringify_writes_what_json_stringify_writes(value, text):
    assert stringify(value) == text
