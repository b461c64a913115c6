"""What is told when a file's hooks are opened in the sandbox, and where."""

from __future__ import annotations

import asyncio

import pytest

from callpact.sandbox import HookLimits
from callpact.sandbox.packs.library import keep
from callpact.sources import check_text
from callpact.sources.flowmcp.catalogue import opened_hits
from callpact.sources.flowmcp.check.file_check import read_list
from callpact.sources.flowmcp.check.rules.hook_rules import hook_hits
from callpact.sources.flowmcp.hooks.file_hooks import CatalogueHooks

MAIN = """\
export const main = {
    namespace: 'weather', name: 'Weather', description: 'Weather.', version: '4.0.0',
    root: 'https://api.example.com',
    tools: {
        getCity: {
            method: 'GET', path: '/cities', description: 'A city.', parameters: [],
            tests: [ { _description: 'A capital' } ]
        }
    }
}
"""
LINES = MAIN.count("\n")
NEEDS = MAIN.replace("    tools:", "    requiredLibraries: [ 'moment' ],\n    tools:")
LIST = """\
export const list = {
    meta: {
        name: 'cities', version: '1.0.0', description: 'Cities.',
        fields: [ { key: 'code', type: 'string', description: 'Short name.' } ]
    },
    entries: [ { code: 'BE' } ]
}
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """One compiled guest for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen-" in base.name else base) / "user-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


@pytest.fixture
def opened(tmp_path):
    """The findings about a file that has hooks, beside those of its data, before and after."""

    def opened_(code, main=MAIN, profile="compat"):
        lists = {"cities": read_list(LIST, "cities.mjs").list}
        checked = check_text(
            f"{main}export const handlers = {code}",
            file="Weather.mjs",
            profile=profile,
            lists=lists,
            hook_rules=hook_hits,
        )

        async def go():
            hooks = CatalogueHooks(
                lists, profile, packs=tmp_path / "packs", limits=HookLimits(load_seconds=0.5)
            )
            try:
                async with asyncio.timeout(30):
                    return await opened_hits(hooks, checked)
            finally:
                await hooks.aclose()

        found = checked.findings_with(asyncio.run(go()), profile)
        assert {*checked.findings} <= {*found}
        return [each for each in found if each not in checked.findings]

    return opened_


def only(found):
    (finding,) = found
    return finding


def test_nothing_is_told_of_hooks_that_can_be_opened(opened):
    assert opened("() => ({ getCity: { postRequest: ( { response } ) => ({ response }) } })") == []
    assert opened("() => ({})") == []


def test_a_factory_that_throws_is_told_with_its_line(opened):
    found = only(opened("() => {\n  const a = 1\n  throw new Error( 'no way' )\n}"))
    assert (found.code, found.severity, found.line) == ("SEC104", "error", LINES + 3)
    assert "no way" in found.message


def test_code_that_is_no_javascript_is_told_with_its_line(opened):
    found = only(opened("() => ({\n  getCity: { postRequest: ) }\n})"))
    assert (found.code, found.line) == ("SEC104", LINES + 2)
    assert "SyntaxError" in found.message


@pytest.mark.parametrize(
    "code",
    [
        "() => { for ( ;; ) {} }",
        "() => null",
        "async () => ({})",
        "() => ({})\nawait new Promise( () => {} )",
    ],
)
def test_a_factory_that_does_not_come_to_hooks_is_told(opened, code):
    found = only(opened(code))
    assert (found.code, found.line) == ("SEC104", LINES + 1)


def test_handlers_that_are_no_function_are_told(opened):
    assert only(opened("( 5 )")).code == "VAL004"


def test_code_that_changes_main_is_told(opened):
    found = only(opened("() => { main.root = 'https://other.example.com' ; return {} }"))
    assert (found.code, found.severity) == ("VAL162", "error")


def test_keys_are_those_that_the_factory_really_returns(opened):
    found = opened("() => ({ [ `get${ 'X' }` ]: {}, getCity: { [ 'pre' + 'Requst' ]: () => 1 } })")
    assert [(each.code, each.path, each.line) for each in found] == [
        ("VAL005", "", LINES + 1),
        ("VAL161", "/tools/getCity", LINES + 1),
    ]
    assert "'getX'" in found[0].message
    assert "'preRequst'" in found[1].message


def test_what_the_code_shows_already_is_told_once_and_there(opened):
    assert opened("() => ({ getX: {}, getCity: { preRequst: () => 1 } })") == []


def test_a_function_beside_a_hook_may_be_used_by_it(opened):
    hooks = "{ [ 'a' ]: () => 1, postRequest() { return this.a() } }"
    assert opened(f"() => ({{ getCity: {hooks} }})") == []


def test_the_factory_gets_the_lists_that_the_file_refers_to(opened):
    main = MAIN.replace(
        "    tools:", "    sharedLists: [ { ref: 'cities', version: '1.0.0' } ],\n    tools:"
    )
    found = only(opened("( { sharedLists } ) => ({ [ sharedLists.cities[ 0 ].code ]: {} })", main))
    assert found.code == "VAL005"
    assert "'BE'" in found.message


def test_a_library_that_is_not_there_is_told_where_it_is_required(opened):
    found = only(opened("() => ({})", NEEDS))
    line = NEEDS[: NEEDS.index("requiredLibraries")].count("\n") + 1
    assert (found.code, found.path, found.line) == ("SEC103", "/requiredLibraries", line)
    assert "callpact libs add moment" in found.message


@pytest.mark.parametrize(
    ("script", "spoils"),
    [
        (b"throw new Error( 'not here' )", False),
        (b"var __callpact_pack = {}", True),
    ],
)
def test_a_library_that_cannot_be_loaded_is_told(opened, tmp_path, script, spoils):
    pack = keep(tmp_path / "packs", "moment", "1.0.0", script, esbuild="", integrity="", built="")
    if spoils:
        pack.path.write_bytes(script.replace(b"{}", b"[]"))
    found = only(opened("() => ({})", NEEDS))
    assert (found.code, found.path) == ("SEC103", "/requiredLibraries")
    assert "moment" in found.message


def test_a_file_that_cannot_be_loaded_is_not_opened(opened):
    assert opened("() => { throw 1 }", MAIN.replace("'GET'", "'FETCH'")) == []
    assert opened("() => { eval( '1' ) ; throw 1 }") == []


def test_an_error_in_a_hook_does_not_hide_what_opening_tells(opened):
    code = "() => { throw 1 ; return { getCity: { preRequest: () => fetch( 1 ) } } }"
    assert only(opened(code)).code == "SEC104"
