"""Seed 002, row by row: hooks, names, limits, the steps of loading, the complete example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import schema_file as kit
from callpact import CallError, from_flowmcp
from callpact.sources.flowmcp.check.file_check import read_list

HERE = Path(__file__).parent


rule, codes, loads, breaks = kit.rule, kit.codes, kit.loads, kit.breaks
changed, _at, Caller = kit.changed, kit.at, kit.Caller
GOOD, TOOL, PROFILES, HANDLERS, KEY = kit.GOOD, kit.TOOL, kit.PROFILES, kit.HANDLERS, kit.KEY
GUIDE = kit.GUIDE


# --- rules of hooks -------------------------------------------------------------------------


@pytest.mark.requirement("002.rules.optional")
@pytest.mark.requirement("002.loading.register")
def test_a_tool_without_hooks_makes_the_request_that_is_declared(tmp_path):
    hooked = (
        HANDLERS % "other: { preRequest: async ( { struct, payload } ) => ({ struct, payload }) }"
    )
    main = _at("/tools/other", kit.tool())
    caller = Caller(tmp_path, main, {"id": "btc"}, code=hooked)
    assert caller.call(name="token-prices.getTokenPrice").data == {"id": "btc"}
    assert [r.url for r in caller.requests] == ["https://api.example.com/v1/price/btc"]
    changing = "other: { preRequest: async ( { struct, payload } ) => ({ struct: { ...struct, url: struct.url + '?a=1' }, payload }) }"
    caller = Caller(tmp_path, main, {"id": "btc"}, code=HANDLERS % changing)
    caller.call(name="token-prices.getTokenPrice")
    caller.call(name="token-prices.other")
    plain, hooked = (request.url for request in caller.requests)
    assert hooked == f"{plain}?a=1"


def _hook(body):
    return HANDLERS % f"getTokenPrice: {{ postRequest: async ( {{ response }} ) => {{ {body} }} }}"


@pytest.mark.requirement("002.rules.no-imports")
@pytest.mark.requirement("002.loading.scan")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("const x = await import( 'node:os' )", "SEC001"),
        ("const x = await import(`x`)", "SEC001"),
        ("const x = import ( 'x' )", "SEC001"),
        ("const fs = require( 'fs' )", "SEC002"),
    ],
)
def test_hooks_import_nothing(body, code, profile):
    text = kit.exported(GOOD, code=_hook(body))
    (found,) = (f for f in kit.checked(text, profile).findings if f.severity == "error")
    assert found.code == code
    assert found.line == text.count("\n")
    assert not loads(text, profile)


@pytest.mark.requirement("002.rules.no-globals")
@pytest.mark.requirement("002.loading.scan")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("use", "code"),
    [
        ("fs.readFileSync( '/etc/passwd' )", "SEC008"),
        ("process.env.KEY", "SEC006"),
        ("process[ 'env' ]", "SEC006"),
        ("process", "SEC006"),
        ("{ process }", "SEC006"),
        ("fs", "SEC008"),
        ("Function", "SEC004"),
        ("( () => {} ).constructor( 'return 1' )", "SEC005"),
        ("globalThis[ 'process' ]", "SEC011"),
        ("eval( '1' )", "SEC003"),
        ("Function( 'return 1' )()", "SEC004"),
        ("new Function( 'return 1' )", "SEC005"),
        ("setTimeout( () => 1, 1 )", "SEC015"),
        ("setInterval( () => 1, 1 )", "SEC016"),
        ("new XMLHttpRequest()", "VAL141"),
        ("new WebSocket( 'wss://x' )", "VAL141"),
    ],
)
def test_hooks_use_no_forbidden_global(use, code, profile):
    text = kit.exported(GOOD, code=_hook(f"const x = {use}"))
    errors = {f.code for f in kit.checked(text, profile).findings if f.severity == "error"}
    assert code in errors
    assert not loads(text, profile)


@pytest.mark.requirement("002.loading.scan-target")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "body",
    [
        "// import x from 'y'; eval( process.env )",
        "/* setTimeout( fs.x ) */ return { response }",
        "return { response: 'import x, require( y ), eval( z )' }",
        "return { response: `new Function( process.env )` }",
        "const { process, fs } = response; return { response: response.process.eval }",
        "return { response: { setTimeout: 1, 'global.x': 2 } }",
    ],
)
def test_comments_texts_and_members_are_no_use_of_a_global(body, profile):
    assert codes(GOOD, profile=profile, code=_hook(f"{body}\n")) == set()


@pytest.mark.requirement("002.loading.scan-target")
def test_words_in_the_data_of_main_are_no_code():
    words = "import process.env eval( setTimeout require( fs.x global.y"
    assert codes(_at(f"{TOOL}/description", words)) == set()


# --- naming conventions ---------------------------------------------------------------------

LOWER = ["a", "a1", "a-b", "coingecko-com"], ["A", "1a", "-a", "a_b", "a.b", "a b", "ä", "a\n"]
CAMEL = ["a", "aB", "getContractAbi", "a1"], ["A", "1a", "a-b", "a_b", "a b", "a.b", "ä", "a\n"]
PASCAL = ["A", "A1", "SmartContractExplorer"], ["a", "1A", "A-b", "A_b", "A b", "Ä", "A\n"]


def _named_tool(name):
    return _at("/tools", {name: kit.tool()})


def _named_resource(name):
    return _at("/resources", {name: GUIDE})


def _named_key(key):
    tests = [{"_description": "One", "id": "btc", key: "x"}] * 3
    parameters = [kit.parameter("id", location="insert"), kit.parameter(key)]
    return kit.with_tool(parameters=parameters, tests=tests)


@pytest.mark.parametrize(
    ("named", "pattern", "code", "compat"),
    [
        rule("002.naming.namespace", lambda n: _at("/namespace", n), LOWER, "VAL011", "error"),
        rule("002.constraint.namespace", lambda n: _at("/namespace", n), LOWER, "VAL011", "error"),
        rule("002.naming.schema", lambda n: _at("/name", n), PASCAL, "VAL094", "warning"),
        rule("002.naming.tool", _named_tool, CAMEL, "VAL030", "warning"),
        rule("002.constraint.tool-name", _named_tool, CAMEL, "VAL030", "warning"),
        rule("002.naming.resource", _named_resource, CAMEL, "RES017", "error"),
        rule("002.naming.parameter", _named_key, CAMEL, "VAL098", "warning"),
        rule("002.naming.tag", lambda n: _at("/tags", [n]), LOWER, "VAL097", "warning"),
    ],
)
def test_a_name_keeps_its_pattern(named, pattern, code, compat):
    good, bad = pattern
    for name in good:
        assert codes(named(name)) == set(), name
    for name in bad:
        assert {found for found, _ in codes(named(name))} <= {code, "VAL127"}, name
        assert codes(named(name)), name
    told = {found for found, _ in codes(named(bad[3]), compat, "compat")}
    assert code in told
    assert loads(named(bad[3]), "compat") == (compat == "warning")


@pytest.mark.requirement("002.naming.file")
def test_a_file_is_named_in_pascal_case():
    for good in ("A.mjs", "SmartContractExplorer.mjs", "some/folder/A1.mjs"):
        assert codes(GOOD, file=good) == set()
    for bad in ("a.mjs", "smart-contracts.mjs", "Smart_Contracts.mjs", "A.js", "A.b.mjs"):
        assert breaks(GOOD, "VAL093", "", "warning", file=bad)


@pytest.mark.requirement("002.naming.skill")
def test_a_skill_is_named_in_lowercase_and_hyphens():
    for good in ("a", "full-contract-audit", "a" * 64):
        assert codes(_at("/skills", [good])) == set()
    for bad in ("A", "1a", "-a", "a_b", "a b", "", "a" * 65):
        assert {code for code, _ in codes(_at("/skills", [bad]))} == {"VAL150"}, bad


@pytest.mark.requirement("002.naming.list")
def test_a_list_is_named_in_camel_case():
    def found(name, profile):
        text = kit.exported({**kit.LIST, "meta": {**kit.LIST["meta"], "name": name}}, "list")
        return [(f.code, f.severity) for f in read_list(text, "list.mjs", profile).findings]

    good, bad = CAMEL
    for name in good:
        assert found(name, "strict") == []
    for name in bad:
        assert found(name, "strict") == [("VAL145", "error")]
        assert found(name, "compat") == [("VAL145", "warning")]


# --- constraints ----------------------------------------------------------------------------


@pytest.mark.requirement("002.constraint.tools")
@pytest.mark.requirement("002.required.tools")
def test_a_file_has_at_most_eight_tools():
    tools = {f"tool{number}": kit.tool() for number in range(9)}
    eight = dict(list(tools.items())[:8])
    assert codes(_at("/tools", eight)) == set()
    assert breaks(_at("/tools", tools), "VAL031", "/tools")


@pytest.mark.requirement("002.constraint.resources")
@pytest.mark.requirement("002.optional.resources")
def test_a_file_has_at_most_two_resources():
    resources = dict.fromkeys(("first", "second", "third"), GUIDE)
    assert breaks(_at("/resources", resources), "RES005", "/resources")
    del resources["third"]
    assert codes(_at("/resources", resources)) == set()


# --- loading --------------------------------------------------------------------------------


@pytest.mark.requirement("002.loading.read")
def test_a_file_that_cannot_be_read_leaves_the_others_alone(tmp_path):
    good = _at("/namespace", "good")
    (tmp_path / "Good.mjs").write_text(kit.exported(good), "utf-8")
    (tmp_path / "Binary.mjs").write_bytes(b"\xff\xfe export const main = {}")
    (tmp_path / "Broken.mjs").write_text("export const main = { namespace: ", "utf-8")
    (tmp_path / "Empty.mjs").write_text("", "utf-8")
    tools = from_flowmcp(tmp_path, profile="strict", transport=kit.answering("{}"))
    assert [tool.id for tool in tools] == ["good.getTokenPrice"]
    errors = {Path(f.place).name for f in tools.report if f.severity == "error"}
    assert errors == {"Binary.mjs", "Broken.mjs", "Empty.mjs"}


@pytest.mark.requirement("002.loading.import")
@pytest.mark.requirement("002.loading.extract")
def test_main_is_taken_from_the_text_and_nothing_is_run(tmp_path):
    marker = tmp_path / "ran"
    code = HANDLERS % f"a: ( () => {{ throw new Error( '{marker}' ) }} )()"
    caller = Caller(tmp_path, GOOD, {"id": "btc"}, code=code + "this is ( no JavaScript at all\n")
    assert caller.call().data == {"id": "btc"}
    beside = f"{kit.exported(GOOD)}\nexport const schema = {{ a: 1 }}\n"
    assert codes(beside) == set()
    assert {code for code, _ in codes(beside, "warning")} == {"VAL140"}


@pytest.mark.requirement("002.loading.order")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_findings_of_every_step_are_told_at_once(profile):
    main = changed(
        ("/namespace", "Bad"),
        ("/requiredLibraries", ["left-pad"]),
        ("/sharedLists", [{"ref": "missing", "version": "1.0.0"}]),
    )
    use = "eval( sharedLists.missing )"
    found = {code for code, _ in codes(main, profile=profile, code=_hook(use))}
    assert found == {"SEC003", "VAL011", "SEC020", "VAL072"}


# --- the complete example -------------------------------------------------------------------

EXAMPLE = (HERE / "seeds" / "SmartContractExplorer.mjs").read_text("utf-8")
EXAMPLE_FILE = "SmartContractExplorer.mjs"
ADDRESS = "0x" + "ab" * 20
TESTED_EXAMPLE = re.sub(
    r"(description: 'Returns the)",
    f"tests: [ {{ _description: 'One', address: '{ADDRESS}' }} ], \\1",
    EXAMPLE,
)
ABI = {"status": "1", "message": "OK", "result": "[]"}


def _example(folder, answer=ABI, **given):
    return Caller(
        folder,
        TESTED_EXAMPLE,
        answer,
        profile="compat",
        file=EXAMPLE_FILE,
        secrets={"ETHERSCAN_API_KEY": KEY},
        **given,
    )


@pytest.mark.requirement("002.example.incomplete")
def test_the_complete_example_lacks_four_things_that_the_seed_requires():
    missing = {("VAL080", "/schemaVersion"), ("VAL082", "/schemaHash"), ("VAL100", "/meta")}
    untested = {("TST001", f"/tools/{name}/tests") for name in ("getContractAbi", "getSourceCode")}
    assert codes(EXAMPLE, file=EXAMPLE_FILE) == missing | untested
    assert codes(EXAMPLE, profile="compat", file=EXAMPLE_FILE) == set()
    assert missing | untested < codes(EXAMPLE, "warning", "compat", file=EXAMPLE_FILE)


@pytest.mark.requirement("002.example.two-exports")
@pytest.mark.requirement("002.example.no-imports")
@pytest.mark.requirement("002.example.no-libraries")
def test_with_tests_the_example_loads_under_compat_and_its_hook_runs(tmp_path):
    assert codes(TESTED_EXAMPLE, profile="compat", file=EXAMPLE_FILE) == set()
    tools = {tool.name: tool for tool in _example(tmp_path).tools}
    assert tools.keys() == {"getContractAbi", "getSourceCode"}
    assert [tool.disabled for tool in tools.values()] == [None, None]
    first = {"SourceCode": "contract A {}", "ABI": "[]", "ContractName": "A"}
    first |= {"CompilerVersion": "v0.8", "OptimizationUsed": "1", "Runs": "200"}
    answered = _example(tmp_path, {"status": "1", "result": [first]})
    assert answered.call({"address": ADDRESS}, "etherscan.getSourceCode").data == {
        "contractName": "A",
        "compilerVersion": "v0.8",
        "optimizationUsed": True,
        "sourceCode": "contract A {}",
        "abi": "[]",
    }
    needing = TESTED_EXAMPLE.replace("requiredLibraries: []", "requiredLibraries: [ 'left-pad' ]")
    assert not loads(needing, "compat", file=EXAMPLE_FILE)
    importing = f"import x from 'y'\n{TESTED_EXAMPLE}"
    assert not loads(importing, "compat", file=EXAMPLE_FILE)


@pytest.mark.requirement("002.example.two-tools")
@pytest.mark.requirement("002.example.fixed")
@pytest.mark.requirement("002.example.server")
def test_the_tools_of_the_example_differ_in_what_they_send_unasked(tmp_path):
    no_hooks = TESTED_EXAMPLE[: TESTED_EXAMPLE.index("export const handlers")]
    caller = Caller(
        tmp_path,
        no_hooks,
        ABI,
        profile="compat",
        file=EXAMPLE_FILE,
        secrets={"ETHERSCAN_API_KEY": KEY},
    )
    for name in ("getContractAbi", "getSourceCode"):
        caller.call({"address": ADDRESS}, f"etherscan/SmartContractExplorer::{name}")
    addresses = [
        f"https://api.etherscan.io/api?module=contract&action={action}&address={ADDRESS}&apikey={KEY}"
        for action in ("getabi", "getsourcecode")
    ]
    assert [request.url for request in caller.requests] == addresses
    assert [request.method for request in caller.requests] == ["GET", "GET"]
    assert [request.headers for request in caller.requests] == [{"Accept": "application/json"}] * 2
    for tool in caller.tools:
        assert tool.contract.input["properties"].keys() == {"address"}


@pytest.mark.requirement("002.example.user")
def test_an_address_has_42_characters(tmp_path):
    caller = _example(tmp_path)
    name = "etherscan.getContractAbi"
    assert caller.call({"address": ADDRESS}, name).data == ABI
    for wrong in (ADDRESS[:-1], ADDRESS + "0"):
        with pytest.raises(CallError) as caught:
            caller.call({"address": wrong}, name)
        assert (caught.value.code, caught.value.path) == ("schema_validation_failed", "/address")
    for hidden in ("module", "action", "apikey"):
        with pytest.raises(CallError) as caught:
            caller.call({"address": ADDRESS, hidden: "x"}, name)
        assert caught.value.code == "schema_validation_failed"
    assert len(caller.requests) == 1


@pytest.mark.requirement("002.example.list")
def test_the_list_of_the_example_holds_chains_with_an_alias():
    lists = kit.checked(TESTED_EXAMPLE, "compat", file=EXAMPLE_FILE).shared_lists
    assert [entry["alias"] for entry in lists["evmChains"]] == ["ETHEREUM", "POLYGON"]
    assert not loads(TESTED_EXAMPLE, "strict", file=EXAMPLE_FILE, lists=())
    using = TESTED_EXAMPLE.replace(
        "const [ first ]", "const chains = sharedLists.evmChains ; const [ first ]"
    )
    assert not loads(using, "compat", file=EXAMPLE_FILE, lists=())


@pytest.mark.requirement("002.example.no-hook")
@pytest.mark.requirement("002.example.output")
def test_the_raw_answer_is_returned_and_compared_with_the_declared_output(tmp_path):
    name = "etherscan.getContractAbi"
    good = _example(tmp_path).call({"address": ADDRESS}, name)
    assert (good.data, good.warnings) == (ABI, ())
    other = {**ABI, "result": [{"type": "function"}]}
    warned = _example(tmp_path, other).call({"address": ADDRESS}, name)
    assert warned.data == other
    assert [(issue.code, issue.path) for issue in warned.warnings] == [("type", "/result")]
