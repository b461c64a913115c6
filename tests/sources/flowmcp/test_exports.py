"""What a file exports: keys that stand twice are told, and the last of them counts."""

from __future__ import annotations

import pytest

from callpact.sources import check_text
from callpact.sources.flowmcp.check.file_check import read_list

REPEATED = {
    "in main": ("{ namespace: 'a',\n  name: 'A', name: 'B' }", "/name", (2, 14)),
    "inside": ("{ tools: { a: { path: '/a', path: '/b' } } }", "/tools/a/path", (1, 49)),
    "quoted": ("{ 'a': 1, a: 2 }", "/a", (1, 31)),
    "an integer": ("{ 1: 'a', '1': 'b' }", "/1", (1, 31)),
    "with escapes": (r"{ 'a\'b': 1, 'a\x27b': 2 }", "/a'b", (1, 34)),
    "in an item": ("{ tags: [ { b: 1, b: 2 } ] }", "/tags/0/b", (1, 39)),
}


def findings(literal, profile):
    found = check_text(f"export const main = {literal}", file="A.mjs", profile=profile, lists={})
    return [f for f in found.findings if f.code == "VAL158"]


@pytest.mark.parametrize("name", REPEATED)
def test_a_key_that_stands_twice_is_told_where_it_stands_again(name):
    literal, path, place = REPEATED[name]
    (told,) = findings(literal, "strict")
    assert (told.path, (told.line, told.column)) == (path, place)
    assert told.severity == "error"


def test_compat_takes_the_last_of_two_equal_keys_with_a_warning():
    (told,) = findings("{ name: 'A', name: 'B' }", "compat")
    assert told.severity == "warning"
    assert "'name'" in told.message


@pytest.mark.parametrize(
    "literal",
    [
        "{ a: { x: 1 }, b: { x: 1 } }",
        "[ { x: 1 }, { x: 1 } ]",
        "{ a: 'x: 1, x: 2' }",
        "{ a: JSON.stringify({ x: 1, x: 2 }) }",
    ],
)
def test_equal_keys_of_different_objects_are_nothing(literal):
    assert findings(f"{{ held: {literal} }}", "strict") == []


def test_a_key_that_stands_twice_in_a_list_is_told():
    text = "export const list = { meta: { name: 'a', name: 'b' }, entries: [] }"
    found = read_list(text, "a.mjs", "strict")
    assert [f.path for f in found.findings if f.code == "VAL158"] == ["/meta/name"]
