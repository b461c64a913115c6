"""Loading: folders and files, ids and names, lists, what is disabled, and what the report says."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

import calls
from callpact import from_flowmcp
from callpact.catalog import Catalog
from callpact.errors import CallError, SourceRefused
from callpact.runtime import Runtime
from callpact.sources import Opening
from callpact.sources.flowmcp.build.source import FlowMCPSource, open_flowmcp
from callpact.testing import StubTransport

HERE = Path(__file__).parent


Shop, a_list, exported, main, parameter, tool = (
    calls.Shop,
    calls.a_list,
    calls.exported,
    calls.main,
    calls.parameter,
    calls.tool,
)
COLOURS = a_list(entries=[{"name": "red", "hex": "f00"}, {"name": "blue"}])
WITH_LIST = main(
    {"getIt": tool(parameter("a", "enum({{colours:name}})"))},
    sharedLists=[{"ref": "colours", "version": "1.0.0"}],
)


@pytest.fixture
def put(tmp_path):
    """Write files below a folder: data as `main` (lists as `list`), texts as they are."""

    def write(**files):
        for name, held in files.items():
            *folders, stem = name.split("__")
            folder = tmp_path.joinpath(*folders)
            folder.mkdir(parents=True, exist_ok=True)
            text = held
            if isinstance(held, dict):
                text = exported(held, "list" if "meta" in held and "entries" in held else "main")
            path = folder / f"{stem}.mjs"
            if isinstance(text, bytes):
                path.write_bytes(text)
            else:
                path.write_text(text, "utf-8")
        return tmp_path

    return write


SEEDS = Path(__file__).parents[2] / "contract" / "seeds"


def load(path, **given):
    answer = {"status": 200, "contentType": "application/json", "body": "{}"}
    return from_flowmcp(
        path, **{"transport": StubTransport(lambda _: answer), "secrets": {}} | given
    )


def ids(tools):
    return [tool.id for tool in tools]


def told(tools, severity):
    return {
        (Path(found.place).name, found.code) for found in tools.report if found.severity == severity
    }


# --- files ----------------------------------------------------------------------------------


def test_every_file_of_a_folder_is_loaded_in_order(put):
    folder = put(
        b__B=main(namespace="b"),
        a__A=main(namespace="a"),
        a__deep__er__C=main(namespace="c"),
        D=main(),
    )
    assert ids(load(folder)) == ["shop.getIt", "a.getIt", "c.getIt", "b.getIt"]


def test_one_file_can_be_loaded_by_its_path(put):
    folder = put(A=main(namespace="a"), B=main(namespace="b"))
    assert ids(load(folder / "B.mjs")) == ["b.getIt"]
    assert ids(load(str(folder / "B.mjs"))) == ["b.getIt"]


def test_dependencies_tests_snapshots_and_other_files_are_left_alone(put):
    folder = put(A=main(), node_modules__x__B=main(namespace="b"), tests__C=main(namespace="c"))
    snapshots = folder / "contracts" / "grading-data" / "schemas" / "d"
    snapshots.mkdir(parents=True)
    (snapshots / "00000000--v1.0.0.mjs").write_bytes((folder / "A.mjs").read_bytes())
    (folder / "notes.md").write_text("export const main = {}")
    (folder / "D.js").write_text("export const main = {}")
    tools = load(folder)
    assert ids(tools) == ["shop.getIt"]
    assert {Path(found.place).name for found in tools.report} == {"A.mjs"}


def test_a_path_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(SourceRefused, match="does not exist"):
        load(tmp_path / "nothing")


def test_a_folder_without_a_file_is_refused(tmp_path):
    with pytest.raises(SourceRefused, match="holds no"):
        load(tmp_path)


BAD = {
    "Code": ("export const main = { a: f() }", "SEC017"),
    "Nothing": ("", "VAL001"),
    "Cut": ("export const main = { namespace: 'a", "SEC017"),
    "Imports": ("import fs from 'fs'\nexport const main = {}", "SEC001"),
    "Flat": ("export const schema = { namespace: 'a', flowMCP: '1.2.0', routes: {} }", "VAL001"),
    "Version2": (exported(main(version="2.0.0")), "VAL014"),
    "Version1": (exported(main(version="1.2.0")), "VAL014"),
    "Nine": (exported(main({f"get{i}": tool() for i in range(9)})), "VAL031"),
    "Both": (exported(main(routes={})), "VAL017"),
    "Plain": (exported(main(root="http://api.example.com")), "VAL085"),
    "Body": (exported(main({"getIt": tool(parameter("a", location="body"))})), "VAL087"),
    "Library": (exported(main(requiredLibraries=["left-pad"])), "SEC020"),
    "Untested": (exported(main({"getIt": tool(tests={})})), "TST001"),
    "Large": ("export const main = { a: '" + "x" * 600_000 + "' }", "VAL135"),
    "Latin": ("export const main = { a: 'é' }".encode("latin-1"), "VAL155"),
    "Deep": ("export const main = " + "[" * 1_000 + "]" * 1_000, "SEC017"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_told_with_its_rule_and_leaves_the_others(put, name):
    text, code = BAD[name]
    folder = put(**{"shop__Good": main(), f"zoo__{name}": text, "zoo__Last": main(namespace="zoo")})
    tools = load(folder)
    assert ids(tools) == ["shop.getIt", "zoo.getIt"]
    errors = [found for found in tools.report if found.severity == "error"]
    assert code in {found.code for found in errors}
    assert {Path(found.place).name for found in errors} == {f"{name}.mjs"}
    assert all(found.line >= 1 and found.column >= 1 for found in errors)


def test_all_bad_files_at_once_leave_the_good_one(put):
    tools = load(put(**{f"bad__{name}": text for name, (text, _) in BAD.items()}, Good=main()))
    assert ids(tools) == ["shop.getIt"]
    errors = {Path(found.place).stem for found in tools.report if found.severity == "error"}
    assert errors == set(BAD)


def test_a_file_that_cannot_be_read_leaves_the_others(put):
    folder = put(A=main())
    (folder / "Broken.mjs").symlink_to(folder / "nowhere.mjs")
    (folder / "Folder.mjs").mkdir()
    (folder / "Folder.mjs" / "Inside.mjs").write_text(exported(main(namespace="inside")))
    tools = load(folder)
    assert ids(tools) == ["shop.getIt", "inside.getIt"]
    assert told(tools, "error") == {("Broken.mjs", "VAL155")}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes among its files")
def test_a_pipe_is_not_waited_for(put):
    folder = put(A=main())
    os.mkfifo(folder / "Pipe.mjs")
    tools = load(folder)
    assert ids(tools) == ["shop.getIt"]
    assert told(tools, "error") == {("Pipe.mjs", "VAL155")}


def test_links_to_folders_are_not_followed_without_end(put):
    folder = put(sub__A=main())
    (folder / "sub" / "again").symlink_to(folder, target_is_directory=True)
    assert ids(load(folder)) == ["shop.getIt"]


def test_the_line_ends_and_the_mark_of_a_file_do_not_matter(put):
    text = exported(main({"getIt": tool(parameter("a", value="one"))}))
    folder = put(A="\ufeff" + text.replace("\n", "\r\n"))
    assert ids(load(folder)) == ["shop.getIt"]


def test_a_file_of_version_3_is_loaded_with_a_warning(put):
    tools = load(put(A=main(version="3.0.0")))
    assert ids(tools) == ["shop.getIt"]
    assert ("A.mjs", "VAL096") in told(tools, "warning")


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0"])
def test_older_versions_are_refused_with_what_to_do(put, version):
    (error,) = [
        f for f in load(put(A=main(version=version), B=main())).report if f.severity == "error"
    ]
    assert version in error.message
    assert "4" in error.message


def test_routes_are_tools_with_a_warning(put):
    data = main(routes={"getIt": tool()})
    del data["tools"]
    tools = load(put(A=data))
    assert ids(tools) == ["shop.getIt"]
    assert ("A.mjs", "VAL018") in told(tools, "warning")


def test_the_profile_decides_what_is_an_error(put):
    folder = put(A=main({"get_it": tool()}))
    assert ids(load(folder)) == ["shop.get_it"]
    strict = load(folder, profile="strict")
    assert ids(strict) == []
    assert ("A.mjs", "VAL030") in told(strict, "error")


# --- names ----------------------------------------------------------------------------------


def test_a_tool_is_found_by_id_by_wire_name_and_by_the_name_of_the_seed(put):
    folder = put(providers__shop__SmallThings=main(namespace="my-shop"))
    tools = load(folder)
    runtime = Runtime(tools)
    for name in ("my-shop.getIt", "getIt_my-shop", "my-shop/SmallThings::getIt"):
        assert asyncio.run(runtime.execute(name)).data == {}
    with pytest.raises(CallError) as caught:
        asyncio.run(runtime.execute("my-shop/Other::getIt"))
    assert caught.value.code == "tool_not_found"


@pytest.mark.parametrize(
    ("name", "tool_id", "wire"),
    [
        ("getIt", "shop.getIt", "getIt_shop"),
        ("get_it", "shop.get_it", "get_it_shop"),
        ("get-it", "shop.get-it", "get-it_shop"),
        ("get it!", "shop.get_it", "get_it__shop"),
        ("größe", "shop.gr_e", "gr__e_shop"),
    ],
)
def test_a_name_that_cannot_be_an_id_is_made_one(put, name, tool_id, wire):
    (only,) = load(put(A=main({name: tool()})))
    assert (only.id, only.wire_name, only.aliases) == (tool_id, wire, (f"shop/A::{name}",))


def test_a_wire_name_has_at_most_64_characters_and_stays_the_same(put):
    folder = put(A=main({"get" + "Long" * 20 + suffix: tool() for suffix in "AB"}))
    first, second = load(folder)
    assert len(first.wire_name) == len(second.wire_name) == 64
    assert first.wire_name != second.wire_name
    assert [tool.wire_name for tool in load(folder)] == [first.wire_name, second.wire_name]


def test_two_files_that_share_a_name_are_told_apart_and_told(put):
    tools = load(put(x__First=main(), y__Second=main({"getIt": tool(), "getThat": tool()})))
    assert ids(tools) == ["shop.First.getIt", "shop.Second.getIt", "shop.getThat"]
    assert [tool.wire_name for tool in tools] == [
        "getIt_First_shop",
        "getIt_Second_shop",
        "getThat_shop",
    ]
    assert told(tools, "warning") >= {("First.mjs", ""), ("Second.mjs", "")}
    runtime = Runtime(tools)
    assert asyncio.run(runtime.execute("shop/First::getIt")).data == {}
    assert asyncio.run(runtime.execute("shop/Second::getIt")).data == {}
    assert "shop.getIt" not in runtime.catalog


def test_the_same_file_twice_is_an_error_that_names_both_and_leaves_the_rest(put):
    tools = load(put(x__Same=main(), y__Same=main(), z__Other=main(namespace="other")))
    assert ids(tools) == ["shop.Same.getIt", "other.getIt"]
    (error,) = [found for found in tools.report if found.severity == "error"]
    assert str(Path("y", "Same.mjs")) in error.place
    assert str(Path("x", "Same.mjs")) in error.message
    assert len(Catalog(tools)) == 2


def test_two_names_that_become_one_in_a_file_are_an_error_and_never_a_crash(put):
    tools = load(put(A=main({"get it": tool(), "get!it": tool(), "getThat": tool()})))
    assert len(Catalog(tools)) == 2
    assert "shop.getThat" in ids(tools)
    assert [found.severity for found in tools.report].count("error") == 1


def test_a_tool_that_is_called_as_another_was_renamed_is_an_error(put):
    tools = load(put(A=main(), B=main(), C=main({"getIt_A": tool()})))
    assert len(Catalog(tools)) == len(tools) == 2
    assert [found.severity for found in tools.report].count("error") == 1


# --- what a tool says of itself -------------------------------------------------------------


def test_a_tool_says_where_it_is_from_and_what_it_is(put):
    folder = put(
        Shop=main(
            {"getIt": tool(), "putIt": tool(method="PUT"), "dropIt": tool(method="DELETE")},
            tags=["things"],
            schemaVersion="2.1.0",
        )
    )
    get, change, drop = load(folder)
    assert (get.description, get.title, get.tags, get.version) == (
        "Does it",
        "Shop: getIt",
        ("things",),
        "2.1.0",
    )
    assert get.source == f"flowmcp:{folder / 'Shop.mjs'}"
    assert (get.kind, change.kind, drop.kind) == ("query", "mutation", "mutation")
    assert get.annotations["readOnlyHint"] is True
    assert (drop.annotations["readOnlyHint"], drop.annotations["destructiveHint"]) == (False, True)


def test_meta_says_what_the_method_does_not(put):
    meta = {
        "isReadOnly": True,
        "isConcurrencySafe": True,
        "isDestructive": False,
        "searchHint": "it",
        "aliases": [],
        "alwaysLoad": False,
    }
    (only,) = load(put(A=main({"search": tool(method="POST", meta=meta)})))
    assert (only.annotations["readOnlyHint"], only.annotations["destructiveHint"]) == (True, False)


# --- what is disabled -----------------------------------------------------------------------


def test_a_tool_without_its_key_is_disabled_with_the_name_of_the_key(put):
    folder = put(A=main(requiredServerParams=["SHOP_KEY", "OTHER_KEY"]))
    (only,) = load(folder, secrets={"OTHER_KEY": "x"})
    assert only.disabled.code == "server_param_missing"
    assert "SHOP_KEY" in only.disabled.reason
    with pytest.raises(CallError) as caught:
        asyncio.run(Runtime([only]).execute("shop.getIt"))
    assert caught.value.code == "server_param_missing"


def test_an_empty_key_is_a_missing_one(put):
    (only,) = load(put(A=main(requiredServerParams=["KEY"])), secrets={"KEY": ""})
    assert only.disabled.code == "server_param_missing"


def test_a_key_comes_from_what_is_given_before_the_environment(put, monkeypatch):
    monkeypatch.setenv("SHOP_KEY", "from the environment")
    folder = put(
        A=main(
            {"getIt": tool(parameter("k", value="{{SHOP_KEY}}"))}, requiredServerParams=["SHOP_KEY"]
        )
    )
    for secrets, sent in (({}, "from the environment"), ({"SHOP_KEY": "given"}, "given")):
        transport = StubTransport(lambda _: {"body": "{}"})
        (only,) = load(folder, secrets=secrets, keys=["SHOP_KEY"], transport=transport)
        assert only.disabled is None
        asyncio.run(Runtime([only]).execute("shop.getIt"))
        assert parse_qsl(urlsplit(transport.requests[0].url).query) == [("k", sent)]


HOOKS = "export const handlers = ( { sharedLists } ) => ( { getIt: { postRequest: async ( { response } ) => ( { response } ) } } )"


def test_a_tool_whose_hooks_cannot_run_is_disabled_and_its_neighbours_are_not(put):
    data = main({"getIt": tool(), "getThat": tool()}, requiredLibraries=["moment"])
    folder = put(A=exported(data, code=HOOKS))
    tools = load(folder, packs=folder / "no-packs")
    hooked, plain = tools
    assert (hooked.disabled.code, plain.disabled) == ("handler_error", None)
    assert "callpact libs add moment" in hooked.disabled.reason
    with pytest.raises(CallError) as caught:
        asyncio.run(Runtime(tools).execute("shop.getIt"))
    assert caught.value.code == "handler_error"
    assert asyncio.run(Runtime(tools).execute("shop.getThat")).data == {}


def test_a_library_that_is_allowed_is_named_where_it_is_needed(put):
    text = exported(main(requiredLibraries=["left-pad"]), code=HOOKS)
    folder = put(A=text, B=main(namespace="other"))
    assert ids(load(folder)) == ["other.getIt"]
    for libraries in (["left-pad"], ["*"]):
        hooked, _ = load(folder, libraries=libraries)
        assert "left-pad" in hooked.disabled.reason


# --- shared lists ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    ["_lists__colours", "_shared__colours", "shop___lists__colours", "shop__deep___lists__colours"],
)
def test_lists_are_found_in_the_catalogue(put, where):
    (only,) = load(put(**{where: COLOURS, "shop__deep__A": WITH_LIST}))
    assert only.contract.input["properties"]["a"]["enum"] == ["red", "blue"]


@pytest.mark.parametrize("up", [1, 2, 3])
def test_lists_are_found_up_to_three_levels_above(put, up):
    folder = put(_lists__colours=COLOURS, a__b__c__A=WITH_LIST)
    below = folder.joinpath(*"abc"[:up])
    assert len(load(below)) == 1


def test_lists_are_found_above_a_file_that_is_named(put, monkeypatch):
    folder = put(_lists__colours=COLOURS, providers__shop__A=WITH_LIST)
    assert len(load(folder / "providers" / "shop" / "A.mjs")) == 1
    monkeypatch.chdir(folder / "providers" / "shop")
    assert len(load("A.mjs")) == 1
    assert len(load(".")) == 1


def test_lists_may_be_given_and_come_first(put, tmp_path_factory):
    folder = put(A=WITH_LIST, _lists__colours=COLOURS)
    other = tmp_path_factory.mktemp("other")
    own = a_list(entries=[{"name": "green"}])
    (other / "c.mjs").write_text(exported(own, "list"))
    tools = load(folder, lists=other)
    assert tools[0].contract.input["properties"]["a"]["enum"] == ["green"]
    assert ("colours.mjs", "LST002") in told(tools, "warning")


def test_a_folder_of_lists_that_is_given_and_found_is_read_once(put, monkeypatch):
    folder = put(A=WITH_LIST, _lists__colours=COLOURS)
    monkeypatch.chdir(folder)
    tools = load(folder, lists="_lists")
    assert len(tools) == 1
    assert ("colours.mjs", "LST002") not in told(tools, "warning")


def test_lists_that_are_no_folder_are_refused(put):
    with pytest.raises(SourceRefused, match="not a folder"):
        load(put(A=main()), lists="nowhere")


def test_a_list_that_is_missing_is_an_error_of_the_file_that_needs_it(put):
    tools = load(put(A=WITH_LIST, B=main(namespace="other")))
    assert ids(tools) == ["other.getIt"]
    assert told(tools, "error") == {("A.mjs", "VAL072")}


def test_a_list_with_an_error_is_told_and_is_no_list(put):
    broken = {**COLOURS, "entries": []}
    tools = load(put(A=WITH_LIST, _lists__colours=broken, B=main(namespace="other")))
    assert ids(tools) == ["other.getIt"]
    assert told(tools, "error") == {("A.mjs", "VAL072"), ("colours.mjs", "LST006")}


@pytest.mark.parametrize(
    ("version", "loaded"), [("1.0.0", True), ("1.9.0", True), ("2.0.0", False), ("0.1.0", False)]
)
def test_a_list_of_the_same_major_version_is_taken(put, version, loaded):
    data = {**WITH_LIST, "sharedLists": [{"ref": "colours", "version": version}]}
    assert len(load(put(A=data, _lists__colours=COLOURS))) == loaded


def test_exactly_that_version_is_taken_under_strict(put):
    data = {**WITH_LIST, "sharedLists": [{"ref": "colours", "version": "1.9.0"}]}
    tools = load(put(A=data, _lists__colours=COLOURS), profile="strict")
    assert ("A.mjs", "VAL123") in told(tools, "error")


def test_lists_cannot_be_changed():
    from callpact.sources import check_text
    from callpact.sources.flowmcp.check.file_check import read_list

    found = read_list(exported(COLOURS, "list"), "colours.mjs").list
    checked = check_text(exported(WITH_LIST), file="A.mjs", lists={"colours": found})
    entries = checked.shared_lists["colours"]
    assert [dict(entry) for entry in entries] == COLOURS["entries"]
    with pytest.raises(TypeError):
        entries[0]["name"] = "green"
    with pytest.raises((TypeError, AttributeError)):
        entries.append({})


# --- the complete example of seed 002 -------------------------------------------------------

EXAMPLE = SEEDS.joinpath("SmartContractExplorer.mjs").read_text("utf-8")
CHAINS = a_list(
    "evmChains",
    entries=[
        {"alias": "ethereum", "etherscanAlias": "eth"},
        {"alias": "other", "etherscanAlias": None},
    ],
)
ADDRESS = "0x" + "a1" * 20


@pytest.mark.parametrize("lists", [{"_lists__evm": CHAINS}, {}])
def test_the_example_is_loaded_as_it_is_printed_with_or_without_its_list(put, lists):
    tools = load(put(etherscan__SmartContractExplorer=EXAMPLE, **lists))
    assert ids(tools) == ["etherscan.getContractAbi", "etherscan.getSourceCode"]
    assert told(tools, "error") == set()
    missing = {"TST001"} if lists else {"TST001", "VAL072"}
    assert missing < {found.code for found in tools.report if found.severity == "warning"}


def test_under_strict_the_example_lacks_the_tests_that_its_seed_asks_for(put):
    tools = load(put(etherscan__SmartContractExplorer=EXAMPLE), profile="strict")
    assert ids(tools) == []
    assert {"TST001", "VAL072"} < {code for _, code in told(tools, "error")}


def test_a_list_that_only_a_hook_names_is_missed(put):
    code = "export const handlers = ( { sharedLists } ) => ({ getIt: { postRequest: () => ({ response: sharedLists.colours }) } })"
    hooked = exported(main(sharedLists=[{"ref": "colours", "version": "1.0.0"}]), code=code)
    tools = load(put(A=hooked))
    assert told(tools, "error") == {("A.mjs", "VAL072")}


def test_the_example_with_tests_is_loaded_and_called(put):
    tested = EXAMPLE.replace(
        "method: 'GET',",
        f"tests: [ {{ _description: 'One', address: '{ADDRESS}' }} ], method: 'GET',",
    )
    folder = put(etherscan__SmartContractExplorer=tested, _lists__evm=CHAINS)
    answer = {"status": "1", "message": "OK", "result": "[]", "key": "my-etherscan-key"}
    transport = StubTransport(lambda _: {"status": 200, "body": json.dumps(answer)})
    tools = load(folder, secrets={"ETHERSCAN_API_KEY": "my-etherscan-key"}, transport=transport)
    abi, source = tools
    assert (abi.id, abi.wire_name) == ("etherscan.getContractAbi", "getContractAbi_etherscan")
    assert list(abi.contract.input["properties"]) == ["address"]
    assert (abi.disabled, source.disabled) == (None, None)
    runtime = Runtime(tools)
    name = "etherscan/SmartContractExplorer::getContractAbi"
    envelope = asyncio.run(runtime.execute(name, {"address": ADDRESS}))
    assert envelope.data == {**answer, "key": "***"}
    (sent,) = transport.requests
    assert sent.url == (
        "https://api.etherscan.io/api?module=contract&action=getabi"
        f"&address={ADDRESS}&apikey=my-etherscan-key"
    )
    assert sent.headers == {"Accept": "application/json"}
    with pytest.raises(CallError) as caught:
        asyncio.run(runtime.execute(name, {"address": ADDRESS[:-1]}))
    assert [(issue.code, issue.path) for issue in caught.value.issues] == [
        ("minLength", "/address")
    ]


def test_the_example_without_its_key_is_disabled(put):
    tested = EXAMPLE.replace("method: 'GET',", "tests: [ { _description: 'One' } ], method: 'GET',")
    tools = load(put(etherscan__SmartContractExplorer=tested, _lists__evm=CHAINS))
    assert {tool.disabled.code for tool in tools} == {"server_param_missing"}


# --- the source -----------------------------------------------------------------------------


def test_the_source_loads_what_its_opening_names_and_can_be_closed(put):
    folder = put(_lists__colours=COLOURS, providers__A=WITH_LIST)

    async def story():
        source = open_flowmcp(Opening("providers", folder=folder))
        assert isinstance(source, FlowMCPSource)
        tools = await source.load()
        await source.aclose()
        return ids(tools)

    assert asyncio.run(story()) == ["shop.getIt"]


def test_a_source_that_never_loaded_can_be_closed():
    asyncio.run(open_flowmcp(Opening("nowhere")).aclose())


def test_loading_needs_no_network_and_no_event_loop(put):
    tools = from_flowmcp(put(A=main()))
    assert ids(tools) == ["shop.getIt"]
    asyncio.run(tools.aclose())


@pytest.mark.parametrize("is_on", [True, False])
def test_the_garbage_collector_is_left_as_it_was(put, is_on):
    folder = put(A=main())
    was_on = gc.isenabled()
    try:
        (gc.enable if is_on else gc.disable)()
        load(folder)
        assert gc.isenabled() is is_on
        with pytest.raises(SourceRefused):
            load(folder / "nosuch")
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_a_folder_of_lists_alone_is_refused(put):
    with pytest.raises(SourceRefused, match="holds no"):
        load(put(_lists__colours=COLOURS))
