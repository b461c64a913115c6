"""Hooks of files: when their code runs, with which lists and libraries, and why they cannot."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

import calls
from callpact import sandbox as hooks
from callpact.errors import CallError
from callpact.runtime import Runtime
from callpact.sandbox.load import HooksRefused
from callpact.sandbox.packs.library import INDEX, keep
from callpact.sources.flowmcp.hooks.file_hooks import CatalogueHooks, FileHooks, Unhooked

HERE = Path(__file__).parent


answered, parameter, tool = calls.answered, calls.parameter, calls.tool
TELLING = "executeRequest: async ( { struct, payload } ) => ({ response: %s })"
PLAIN = {"getIt": tool(), "other": tool()}
CITIES = calls.a_list(
    "cities",
    entries=[{"slug": "oslo", "code": "OSL"}, {"slug": "bern"}, {"slug": "lima", "code": "LIM"}],
)


def handlers(hooks, before=""):
    return (
        f"export const handlers = ( {{ sharedLists, libraries }} ) => {{\n{before}\n"
        f"return {{ getIt: {{ {hooks} }} }} }}\n"
    )


@pytest.fixture
def shop(tmp_path):
    """Makes a shop of one file with hooks; closes what it opened."""
    made = []

    def make(code, tools=None, *, answer=None, lists=(), **fields):
        options = ("packs", "libraries", "hook_limits", "profile")
        given = {key: fields.pop(key) for key in options if key in fields}
        folder = tmp_path / f"shop-{len(made)}"
        folder.mkdir()
        data = calls.main(tools or PLAIN, **fields)
        made.append(calls.Shop(folder, data, code=code, answer=answer, lists=lists, **given))
        return made[-1]

    yield make
    for each in made:
        asyncio.run(each.tools.aclose())


@pytest.fixture
def packs(tmp_path):
    """Keeps scripts as packs in a folder, by the names of their libraries."""
    folder = tmp_path / "libs"

    def add(**scripts):
        for name, script in scripts.items():
            keep(folder, name, "1.0.0", script.encode(), esbuild="", integrity="", built="")
        return folder

    return add


def disabled(made):
    return {tool.name: tool.disabled and tool.disabled.reason for tool in made.tools}


# --- shared lists ---------------------------------------------------------------------------


def test_a_hook_has_the_filtered_entries_of_its_lists_and_no_other_list(shop):
    filtered = {"ref": "cities", "version": "1.0.0", "filter": {"key": "code", "exists": True}}
    made = shop(
        handlers(TELLING % "{ names: Object.keys( sharedLists ), cities: sharedLists.cities }"),
        lists=[CITIES, calls.a_list("colours", entries=[{"name": "red"}])],
        sharedLists=[filtered],
    )
    assert made.call(name="shop.getIt").data == {
        "names": ["cities"],
        "cities": [{"slug": "oslo", "code": "OSL"}, {"slug": "lima", "code": "LIM"}],
    }


@pytest.mark.parametrize(
    "change",
    [
        "sharedLists.cities = []",
        "sharedLists.more = []",
        "delete sharedLists.cities",
        "sharedLists.cities.push( {} )",
        "sharedLists.cities[ 0 ] = {}",
        "sharedLists.cities.length = 0",
        "sharedLists.cities.reverse()",
        "sharedLists.cities[ 0 ].slug = 'x'",
        "sharedLists.cities[ 0 ].more = 1",
        "delete sharedLists.cities[ 0 ].slug",
        "libraries.x = 1",
    ],
)
def test_lists_and_libraries_cannot_be_changed(shop, change):
    body = f"executeRequest: async () => {{ try {{ {change} }} catch ( error ) {{ return {{ response: error.name }} }} return {{ response: sharedLists }} }}"
    made = shop(handlers(body), lists=[CITIES], sharedLists=[{"ref": "cities", "version": "1.0.0"}])
    assert made.call(name="shop.getIt").data == "TypeError"


def test_a_factory_that_changes_a_list_fails(shop):
    made = shop(
        handlers(TELLING % "1", before="sharedLists.cities[ 0 ].slug = 'x'"),
        lists=[CITIES],
        sharedLists=[{"ref": "cities", "version": "1.0.0"}],
    )
    error = made.failure(name="shop.getIt")
    assert (error.code, error.details["hook"], error.details["reason"]) == (
        "handler_error",
        "handlers",
        "TypeError",
    )


def test_without_lists_and_libraries_both_are_empty(shop):
    made = shop(handlers(TELLING % "[ Object.keys( sharedLists ), Object.keys( libraries ) ]"))
    assert made.call(name="shop.getIt").data == [[], []]


# --- libraries ------------------------------------------------------------------------------

TINY = "globalThis.__callpact_pack = { twice: ( n ) => 2 * n }"


def test_a_hook_has_its_libraries_by_the_names_of_their_packages(shop, packs):
    folder = packs(tiny=TINY, moment="globalThis.__callpact_pack = () => 'now'", unasked=TINY)
    told = "[ Object.keys( libraries ).sort(), libraries[ 'tiny' ].twice( 4 ), libraries.moment() ]"
    made = shop(
        handlers(TELLING % told),
        packs=folder,
        libraries=["tiny"],
        requiredLibraries=["tiny", "moment"],
    )
    assert disabled(made) == {"getIt": None, "other": None}
    assert made.call(name="shop.getIt").data == [["moment", "tiny"], 8, "now"]


def test_a_missing_library_disables_the_tools_with_hooks_and_says_how_to_get_it(shop, packs):
    made = shop(
        handlers(TELLING % "1"),
        packs=packs(tiny=TINY),
        libraries=["tiny", "left-pad"],
        requiredLibraries=["tiny", "left-pad", "moment"],
    )
    told = disabled(made)
    assert told["other"] is None
    assert "callpact libs add left-pad moment" in told["getIt"]
    assert "tiny" not in told["getIt"]
    error = made.failure(name="shop.getIt")
    assert error.code == "handler_error"
    assert made.call(name="shop.other").data == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [("talib", "native code"), ("canvas", "native code"), ("http", "a part of Node")],
)
def test_a_library_that_can_never_run_disables_with_that_reason(shop, packs, name, why):
    made = shop(
        handlers(TELLING % "1"),
        packs=packs(tiny=TINY),
        libraries=["*"],
        requiredLibraries=[name, "left-pad"],
    )
    told = disabled(made)
    assert name in told["getIt"]
    assert why in told["getIt"]
    assert "libs add" not in told["getIt"]
    assert told["other"] is None


def test_a_pack_that_was_changed_is_not_run(shop, packs):
    folder = packs(tiny=TINY)
    made = shop(
        handlers(TELLING % "libraries.tiny.twice( 1 )"),
        packs=folder,
        libraries=["tiny"],
        requiredLibraries=["tiny"],
    )
    (folder / "tiny-1.0.0.js").write_text(TINY.replace("2", "3"), "utf-8")
    error = made.failure(name="shop.getIt")
    assert (error.code, error.details["hook"]) == ("handler_error", "handlers")
    assert "is not what was built" in error.message


def test_a_pack_that_fails_is_told_with_its_name(shop, packs):
    made = shop(
        handlers(TELLING % "1"),
        packs=packs(tiny="throw new Error( 'needs a window' )"),
        libraries=["tiny"],
        requiredLibraries=["tiny"],
    )
    error = made.failure(name="shop.getIt")
    assert error.details["reason"] == "LibraryFailed"
    assert "'tiny'" in error.message
    assert "needs a window" in error.message


def test_a_folder_of_packs_that_cannot_be_trusted_disables_and_stops_nothing_else(shop, packs):
    folder = packs(tiny=TINY)
    (folder / INDEX).write_text("no index", "utf-8")
    made = shop(
        handlers(TELLING % "1"), packs=folder, libraries=["tiny"], requiredLibraries=["tiny"]
    )
    told = disabled(made)
    assert "is not an index of packs" in told["getIt"]
    assert told["other"] is None
    assert made.call(name="shop.other").data == {}
    without = shop(handlers(TELLING % "1"), packs=folder)
    assert without.call(name="shop.getIt").data == 1


def test_a_file_without_hooks_needs_no_packs_of_its_libraries(shop, tmp_path):
    made = shop("", packs=tmp_path / "none", libraries=["tiny"], requiredLibraries=["tiny"])
    assert disabled(made) == {"getIt": None, "other": None}


# --- what is not installed ------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["wasmtime", "quickjs_rs"])
def test_without_the_extra_tools_with_hooks_are_disabled_and_the_others_run(
    shop, monkeypatch, missing
):
    find = hooks.find_spec
    monkeypatch.setattr(hooks, "find_spec", lambda name: None if name == missing else find(name))
    made = shop(handlers(TELLING % "1"))
    told = disabled(made)
    assert "pip install 'callpact[hooks]'" in told["getIt"]
    assert told["other"] is None
    assert made.failure(name="shop.getIt").code == "handler_error"
    assert made.call(name="shop.other").data == {}


# --- when code runs, and for how long -------------------------------------------------------

TEXT = "export const main = {}\nexport const handlers = () => ({ a: {}, b: 1 })\n"
AT = TEXT.index("export const handlers")


def test_loading_starts_nothing(tmp_path):
    hooks = CatalogueHooks({}, "compat", packs=tmp_path)
    found = hooks.of_file("A.mjs", TEXT, AT, ["a", "b", "c"], [])
    assert isinstance(found, FileHooks)
    assert found.tools == {"a", "b"}
    assert "pool" not in vars(hooks)
    assert hooks.of_file("A.mjs", TEXT, AT, ["a", "c"], ["moment"]) == Unhooked(
        frozenset({"a"}), "Its hooks need moment, which `callpact libs add moment` builds"
    )


def test_the_code_of_a_file_is_run_once_for_all_its_calls(tmp_path):
    async def story():
        hooks = CatalogueHooks({}, "compat", packs=tmp_path)
        found = hooks.of_file("A.mjs", TEXT, AT, ["a"], [])
        assert await found.open() is await found.open()
        await hooks.aclose()

    asyncio.run(story())


def test_the_factory_is_called_once(shop):
    # Whatever a hook counts is forgotten; what the factory counts, it counted once.
    made = shop(
        "export const handlers = ( { sharedLists } ) => { handlers.n = ( handlers.n ?? 0 ) + 1; "
        "return { getIt: { executeRequest: async () => ({ response: handlers.n }) } } }\n"
    )
    assert [made.call(name="shop.getIt").data for _ in range(3)] == [1, 1, 1]


def test_a_call_after_closing_is_refused_and_starts_nothing(shop):
    for is_used in (True, False):
        made = shop(handlers(TELLING % "1"))

        async def story(made=made, is_used=is_used):
            runtime = Runtime(made.tools)
            if is_used:
                assert (await runtime.execute("shop.getIt", {})).data == 1
            await made.tools.aclose()
            with pytest.raises(CallError) as caught:
                await runtime.execute("shop.getIt", {})
            await made.tools.aclose()
            return caught.value.code

        assert asyncio.run(story()) == "handler_error"


def test_closing_frees_the_machines_of_the_engine(tmp_path):
    async def story():
        hooks = CatalogueHooks({}, "compat", packs=tmp_path)
        await hooks.of_file("A.mjs", TEXT, AT, ["a"], []).open()
        machines = hooks._engine.machines
        assert machines._idle
        await hooks.aclose()
        return machines._idle, machines.lent

    assert asyncio.run(story()) == ([], 0)


@pytest.mark.parametrize("begin", ["", "\ufeff", "// a comment\n", "/* é 😀 */\n"])
def test_main_as_the_engine_sees_it_is_main_as_read(tmp_path, begin):
    main = {
        "a": [1.0, -0.0, 1e21, 1e-7, 0.1],
        "10": 1,
        "9": 2,
        "s": 'é/"\\\n\u2028\x7f😀',
        "n": None,
    }
    text = f"{begin}export const main = {json.dumps(main, ensure_ascii=False)}\nexport const handlers = () => ({{ a: {{}} }})\n"

    async def story():
        hooks = CatalogueHooks({}, "compat", packs=tmp_path)
        found = hooks.of_file("A.mjs", text, text.index("export const handlers"), ["a"], [])
        try:
            return (await found.open()).hooks
        finally:
            await hooks.aclose()

    assert asyncio.run(story()) == {"a": frozenset()}


def test_packs_are_told_apart_by_their_hash(shop, packs):
    """Two loadings with different packs of one name each get their own."""
    data = []
    for script in (TINY, TINY.replace("2 *", "3 *")):
        folder = packs(tiny=script)
        digest = hashlib.sha256(script.encode()).hexdigest()
        assert digest in (folder / INDEX).read_text("utf-8")
        made = shop(
            handlers(TELLING % "libraries.tiny.twice( 1 )"),
            packs=folder,
            libraries=["tiny"],
            requiredLibraries=["tiny"],
        )
        data.append(made.call(name="shop.getIt").data)
    assert data == [2, 3]


def test_a_file_whose_code_fails_is_run_once(tmp_path):
    text = "export const main = {}\nexport const handlers = () => { throw new Error( 'no' ) }\n"

    async def story():
        hooks = CatalogueHooks({}, "compat", packs=tmp_path)
        found = hooks.of_file("A.mjs", text, text.index("export const handlers"), ["a"], [])
        refusals = []
        for _ in range(2):
            with pytest.raises(HooksRefused) as caught:
                await found.open()
            refusals.append(caught.value)
        await hooks.aclose()
        assert refusals[0] is refusals[1]

    asyncio.run(story())
