"""Seed 002, row by row: a FlowMCP file, and the fields of its `main`."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import command_line
import schema_file as kit

run = command_line.run
HERE = Path(__file__).parent


rule, codes, loads, breaks = kit.rule, kit.codes, kit.loads, kit.breaks
changed, _at, Caller = kit.changed, kit.at, kit.Caller
GONE, GOOD, TOOL, PROFILES, HANDLERS = kit.GONE, kit.GOOD, kit.TOOL, kit.PROFILES, kit.HANDLERS
GUIDE = kit.GUIDE


# --- schema file structure ------------------------------------------------------------------


@pytest.mark.requirement("002.file.main")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_file_without_main_is_not_loaded(profile):
    assert loads(GOOD, profile)
    others = [
        "",
        "// nothing",
        HANDLERS % "",
        kit.exported(GOOD, "data"),
        kit.exported(GOOD, "Main"),
    ]
    for text in others:
        assert {code for code, _ in codes(text, profile=profile)} == {"VAL001"}
        assert not loads(text, profile)
    for value in ([], "main", 5, None):
        assert {code for code, _ in codes(kit.exported(value), profile=profile)} == {"VAL002"}


@pytest.mark.requirement("002.file.handlers-optional")
def test_a_file_may_have_hooks_or_not(tmp_path):
    assert codes(GOOD) == codes(GOOD, code=HANDLERS % "") == set()
    assert Caller(tmp_path, GOOD, {"id": "btc"}).call().data == {"id": "btc"}
    unhooked = Caller(tmp_path, GOOD, {"id": "btc"}, code=HANDLERS % "other: {}")
    assert unhooked.call().data == {"id": "btc"}


@pytest.mark.requirement("002.file.handlers-function")
@pytest.mark.parametrize("profile", PROFILES)
def test_handlers_is_a_function(profile):
    for good in ("() => ({})", "function () { return {} }", "( { libraries } ) => { return {} }"):
        assert codes(GOOD, code=f"export const handlers = {good}\n", profile=profile) == set()
    for bad in ("{}", "{ getTokenPrice: {} }", "[]", "'text'", "5", "null"):
        found = codes(GOOD, code=f"export const handlers = {bad}\n", profile=profile)
        assert {code for code, _ in found} == {"VAL004"}


@pytest.mark.requirement("002.file.declarative")
def test_everything_about_a_tool_comes_from_main(tmp_path):
    main = changed(("/tags", ["defi", "tvl"]), ("/schemaVersion", "2.3.4"))
    tool = Caller(tmp_path, main).tool
    assert tool.id == "token-prices.getTokenPrice"
    assert tool.description == "Get the current price of a token"
    assert (tool.tags, tool.version, tool.kind) == (("defi", "tvl"), "2.3.4", "query")
    assert tool.contract.input["required"] == ["id"]
    assert tool.contract.output["properties"].keys() == {"id", "price"}


# --- why two separate exports ---------------------------------------------------------------

ENDLESS = "export const handlers = ( () => { while ( true ) {} } )()\n"


@pytest.mark.requirement("002.why.no-execution")
@pytest.mark.requirement("002.loading.read")
def test_a_file_that_would_never_end_is_read_checked_hashed_and_loaded(tmp_path):
    checked = kit.checked(GOOD, code=ENDLESS)
    assert checked.findings == ()
    assert checked.hash == GOOD["schemaHash"]
    assert Caller(tmp_path, GOOD, code=ENDLESS).tool.id == "token-prices.getTokenPrice"


def _canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.requirement("002.why.stringify")
@pytest.mark.requirement("002.required.schema-hash-value")
def test_the_hash_is_that_of_the_canonical_form_without_itself():
    plain = {key: value for key, value in GOOD.items() if key != "schemaHash"}
    expected = hashlib.sha256(_canonical(plain).encode()).hexdigest()[:8]
    assert kit.checked(GOOD).hash == kit.checked(plain).hash == expected
    turned = dict(reversed(GOOD.items()))
    assert json.dumps(turned) != json.dumps(GOOD)
    assert codes(turned) == set()
    assert breaks({**GOOD, "description": "Other."}, "VAL084", "/schemaHash")


@pytest.mark.requirement("002.why.no-imports")
@pytest.mark.requirement("002.constraint.imports")
@pytest.mark.requirement("002.loading.scan")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "statement",
    ["import x from 'y'", "import 'y'", 'import { a } from "y";', "import * as z from 'y'"],
)
def test_import_statements_reject_a_file(statement, profile):
    before = f"{statement}\n{kit.exported(GOOD)}"
    after = kit.exported(GOOD, code=f"{statement}\n")
    for text in (before, after):
        found = kit.checked(text, profile).findings
        assert ("SEC001", "error") in {(f.code, f.severity) for f in found}
        assert not loads(text, profile)
    assert kit.checked(before, profile).findings[0].line == 1


@pytest.mark.requirement("002.why.libraries-declared")
@pytest.mark.requirement("002.libraries.none")
def test_libraries_are_declared_or_not_needed():
    for declared in ([], ["ethers"]):
        assert codes(_at("/requiredLibraries", declared)) == set()


# --- the main export ------------------------------------------------------------------------


def _with(written):
    """A file with something written where a text stood, and its place."""
    text = kit.exported(_at("/meta/searchHint", "HERE"))
    at = text.index('"HERE"')
    line, column = text.count("\n", 0, at) + 1, at - text.rindex("\n", 0, at)
    return text.replace('"HERE"', written), line, column


@pytest.mark.requirement("002.constraint.json")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "written",
    [
        rule("002.main.no-functions", ["() => 1", "function () {}", "async x => x", "{ f() {} }"]),
        rule(
            "002.main.no-dynamic-values",
            [
                "price",
                "1 + 1",
                "Math.max(1, 2)",
                "`${ price }`",
                "a ? 1 : 2",
                "{ [a]: 1 }",
                "[...a]",
            ],
        ),
        rule("002.main.no-dates", ["new Date()", "Date.now()", "new Date('2026-01-01')"]),
        rule("002.main.no-undefined", ["undefined", "void 0", "{ a: undefined }"]),
        rule(
            "002.main.round-trip",
            ["NaN", "Infinity", "-Infinity", "10n", "/a/g", "Symbol('a')", "[1,,2]", "new Map()"],
        ),
    ],
)
def test_main_is_plain_data(written, profile):
    for value in written:
        text, line, column = _with(value)
        found = kit.checked(text, profile).findings
        assert [(f.code, f.severity) for f in found] == [("SEC017", "error")], value
        assert found[0].line == line
        assert column <= found[0].column <= column + len(value)
        assert not loads(text, profile)


@pytest.mark.requirement("002.main.round-trip")
@pytest.mark.parametrize(
    "written", ["null", "true", "-1.5e-3", "'it\\'s \\u00fc'", '"two"', "[1, [2], {}]", "{ a: 1, }"]
)
def test_whatever_json_can_say_is_data(written):
    found = kit.checked(_with(written)[0]).findings
    assert {"SEC017", "VAL001", "VAL002"}.isdisjoint(f.code for f in found)


@pytest.mark.requirement("002.main.no-imports")
@pytest.mark.parametrize("written", ["import('x')", "require('x')", "await import('x')"])
@pytest.mark.parametrize("profile", PROFILES)
def test_main_imports_nothing(written, profile):
    text, line, _ = _with(written)
    found = [f for f in kit.checked(text, profile).findings if f.severity == "error"]
    assert found
    assert {f.line for f in found} == {line}
    assert not loads(text, profile)


# --- required fields ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "good", "bad"),
    [
        rule(
            "002.required.namespace",
            "/namespace",
            ["a", "a1", "a-1"],
            [(GONE, "VAL010", "error"), (5, "VAL010", "error"), ("", "VAL011", "error")],
        ),
        rule(
            "002.required.name",
            "/name",
            ["SmartContractExplorer"],
            [(GONE, "VAL012", "error"), (5, "VAL012", "error"), ("explorer", "VAL094", "warning")],
        ),
        rule(
            "002.required.description",
            "/description",
            ["What this schema does. In two sentences."],
            [(GONE, "VAL013", "error"), (5, "VAL013", "error"), ("", "VAL013", "error")],
        ),
        rule(
            "002.required.version",
            "/version",
            ["4.0.0", "4.12.3"],
            [(bad, "VAL014", "error") for bad in (GONE, "2.0.0", "5.0.0", "4.0", "v4.0.0", 4)],
        ),
        rule(
            "002.required.schema-version",
            "/schemaVersion",
            ["1.0.0", "0.0.1", "12.3.45"],
            [
                (GONE, "VAL080", "warning"),
                *((bad, "VAL081", "error") for bad in ("1.0", "v1.0.0", "1.0.0-beta", 1, "")),
            ],
        ),
        rule(
            "002.required.schema-hash",
            "/schemaHash",
            [GOOD["schemaHash"]],
            [
                (GONE, "VAL082", "warning"),
                ("a1b2c3d4", "VAL084", "error"),
                *((bad, "VAL083", "error") for bad in ("A1B2C3D4", "a1b2c3d", "a1b2c3d45", "", 5)),
            ],
        ),
        rule(
            "002.required.root",
            "/root",
            ["https://api.example.com"],
            [
                (GONE, "VAL015", "error"),
                (5, "VAL085", "error"),
                ("api.example.com", "VAL085", "error"),
            ],
        ),
        rule(
            "002.required.tools",
            "/tools",
            [{"a": kit.tool()}],
            [(bad, "VAL016", "error") for bad in (GONE, [], "tools", None)],
        ),
    ],
)
def test_a_required_field_is_there_and_has_its_form(pointer, good, bad):
    for value in good:
        assert codes(_at(pointer, value)) == set()
    for value, code, compat in bad:
        assert breaks(_at(pointer, value), code, pointer, compat)


@pytest.mark.requirement("002.required.version-3")
@pytest.mark.requirement("002.constraint.version")
@pytest.mark.parametrize("profile", PROFILES)
def test_version_3_is_taken_with_a_warning_and_older_ones_are_not(profile):
    assert codes(_at("/version", "3.0.0"), "warning", profile) == {("VAL096", "/version")}
    assert loads(_at("/version", "3.0.0"), profile)
    assert codes(_at("/version", "4.0.0"), "warning", profile) == set()
    for old in ("2.0.0", "1.2.0"):
        assert codes(_at("/version", old), profile=profile) == {("VAL014", "/version")}


@pytest.mark.requirement("002.required.schema-version-initial")
def test_a_schema_without_its_version_begins_with_1_0_0(tmp_path):
    migrated = Caller(tmp_path, _at("/schemaVersion", GONE), profile="compat")
    assert migrated.tool.version == "1.0.0"
    assert Caller(tmp_path, _at("/schemaVersion", "7.8.9")).tool.version == "7.8.9"


@pytest.mark.requirement("002.required.schema-hash-generated")
def test_the_hash_that_checking_gives_is_the_one_to_write():
    bare = _at("/schemaHash", GONE)
    made = kit.checked(bare).hash
    assert re.fullmatch(r"[0-9a-f]{8}", made)
    assert codes({**bare, "schemaHash": made}) == set()


@pytest.mark.requirement("002.required.schema-hash-snapshot")
def test_a_published_schema_has_a_snapshot_named_by_its_hash_and_version(
    tmp_path, monkeypatch, run
):
    monkeypatch.chdir(tmp_path)
    place, file = tmp_path / "contracts/grading-data/schemas/token-prices", tmp_path / kit.FILE

    def publish(main):
        file.write_text(kit.exported(main), "utf-8")
        return run("publish", "-s", kit.FILE, "--name", "tokens", "--profile", "strict").code

    assert publish(GOOD) == 0
    first = f"{GOOD['schemaHash']}--v1.0.0.mjs"
    assert (place / first).read_bytes() == file.read_bytes()
    assert publish(_at("/description", "Other.")) == 2
    assert [path.name for path in place.iterdir()] == [first]
    raised = changed(("/description", "Other."), ("/schemaVersion", "1.0.1"))
    assert publish(raised) == 0
    second = f"{raised['schemaHash']}--v1.0.1.mjs"
    assert {path.name for path in place.iterdir()} == {first, second}


@pytest.mark.requirement("002.required.root-resources")
@pytest.mark.requirement("002.constraint.root-required")
@pytest.mark.requirement("002.required.tools-empty")
def test_root_may_be_missing_only_where_there_are_no_tools():
    bare = changed(("/root", GONE), ("/tools", {}), ("/resources", {"guide": GUIDE}))
    assert codes(bare) == set()
    skilled = changed(("/root", GONE), ("/tools", {}), ("/skills", ["full-contract-audit"]))
    assert codes(skilled) == set()
    with_tools = changed(("/root", GONE), ("/resources", {"guide": GUIDE}))
    assert breaks(with_tools, "VAL015", "/root")
    assert breaks(_at("/tools", {}), "VAL128", "/tools", "warning")


# --- two version axes -----------------------------------------------------------------------


@pytest.mark.requirement("002.axes.spec")
@pytest.mark.requirement("002.axes.schema")
def test_the_two_versions_go_their_own_ways():
    assert codes(changed(("/version", "4.1.1"), ("/schemaVersion", "9.0.2"))) == set()
    assert codes(_at("/version", "9.0.2")) == {("VAL014", "/version")}


@pytest.mark.requirement("002.axes.example")
def test_the_header_of_the_seed_has_every_field_and_a_hash_that_is_not_its_own():
    header = {
        "namespace": "etherscan",
        "name": "GetContractEthereum",
        "description": "Fetch verified contract source by address",
        "version": "4.0.0",
        "schemaVersion": "1.0.0",
        "schemaHash": "a1b2c3d4",
        "root": "https://api.etherscan.io",
        "tools": {"getContract": kit.tool()},
        "meta": kit.META,
    }
    file = "GetContractEthereum.mjs"
    assert breaks(header, "VAL084", "/schemaHash", file=file)
    assert codes(kit.hashed(header), file=file) == set()


# --- optional fields ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "good", "bad"),
    [
        rule(
            "002.optional.docs",
            "/docs",
            [[], ["https://docs.example.com"]],
            [("https://docs.example.com", "VAL020", "error"), (None, "VAL020", "error")],
        ),
        rule(
            "002.optional.terms-of-service",
            "/termsOfService",
            [None, "https://example.com/terms"],
            [(5, "VAL125", "warning"), ("ask us", "VAL125", "warning")],
        ),
        rule(
            "002.optional.terms-checked-at",
            "/termsOfServiceCheckedAt",
            [None, "2026-02-28"],
            [("28.02.2026", "VAL125", "warning"), ("2026-13-01", "VAL125", "warning")],
        ),
        rule(
            "002.optional.terms-language",
            "/termsOfServiceLanguage",
            [None, "en", "de", "multi"],
            [("english", "VAL125", "warning"), ("EN", "VAL125", "warning")],
        ),
        rule(
            "002.optional.data-license",
            "/dataLicense",
            [None, "https://example.com/licence"],
            [(5, "VAL125", "warning"), ("CC-BY", "VAL125", "warning")],
        ),
        rule(
            "002.optional.data-license-name",
            "/dataLicenseName",
            [None, "CC-BY-SA-4.0", "Public Domain"],
            [(5, "VAL125", "warning"), ({}, "VAL125", "warning")],
        ),
        rule(
            "002.optional.tags",
            "/tags",
            [[], ["defi", "tvl"]],
            [("defi", "VAL021", "error"), ({}, "VAL021", "error")],
        ),
        rule(
            "002.optional.required-server-params",
            "/requiredServerParams",
            [[], ["ETHERSCAN_API_KEY"]],
            [("ETHERSCAN_API_KEY", "VAL022", "error"), (None, "VAL022", "error")],
        ),
        rule(
            "002.optional.required-libraries",
            "/requiredLibraries",
            [[], ["ethers"]],
            [("ethers", "VAL025", "error"), ({"ethers": "6"}, "VAL025", "error")],
        ),
        rule(
            "002.optional.headers",
            "/headers",
            [{}, {"Accept": "application/json", "X-API-Version": "2024-01"}],
            [([], "VAL023", "error"), ("Accept: text/plain", "VAL023", "error")],
        ),
        rule(
            "002.optional.shared-lists",
            "/sharedLists",
            [[]],
            [({}, "VAL024", "error"), ("evmChains", "VAL024", "error")],
        ),
        rule(
            "002.optional.resources",
            "/resources",
            [{}, {"guide": GUIDE}, {"guide": GUIDE, "faq": GUIDE}],
            [([], "RES001", "error"), ("guide.md", "RES001", "error")],
        ),
        rule(
            "002.optional.meta",
            "/meta",
            [kit.META],
            [(GONE, "VAL100", "warning"), (True, "VAL124", "error")],
        ),
    ],
)
def test_an_optional_field_may_be_absent_or_has_its_form(pointer, good, bad):
    if pointer != "/meta":
        assert pointer.strip("/") not in GOOD
    for value in good:
        assert codes(_at(pointer, value)) == set()
    for value, code, compat in bad:
        assert breaks(_at(pointer, value), code, pointer, compat)


@pytest.mark.requirement("002.optional.docs")
@pytest.mark.requirement("002.optional.tags")
@pytest.mark.requirement("002.optional.required-server-params")
@pytest.mark.requirement("002.optional.required-libraries")
@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("docs", "VAL020"),
        ("tags", "VAL021"),
        ("requiredServerParams", "VAL022"),
        ("requiredLibraries", "VAL025"),
    ],
)
def test_a_list_of_texts_holds_texts_only(field, code):
    for value in (5, None, ["text"]):
        assert breaks(_at(f"/{field}", [value]), code, f"/{field}/0")


@pytest.mark.requirement("002.optional.meta")
def test_the_metadata_may_stand_at_every_tool_instead():
    own = changed(("/meta", GONE), (f"{TOOL}/meta", kit.META))
    assert codes(own) == set()
    one_of_two = changed(("/tools/other", kit.tool()), main=own)
    assert breaks(one_of_two, "VAL100", "/tools/other/meta", "warning")


@pytest.mark.requirement("002.optional.defaults")
def test_without_any_optional_field_a_tool_can_be_called(tmp_path):
    optional = {"docs", "tags", "requiredServerParams", "requiredLibraries", "headers"}
    assert not GOOD.keys() & {*optional, "sharedLists", "resources", "routes", "termsOfService"}
    caller = Caller(tmp_path, GOOD, {"id": "btc"})
    assert caller.call().data == {"id": "btc"}
    assert caller.tool.tags == ()
    assert caller.requests[0].headers == {}


@pytest.mark.requirement("002.optional.headers")
@pytest.mark.requirement("002.headers.sent")
def test_default_headers_go_with_the_requests_of_every_tool(tmp_path):
    headers = {"Accept": "application/json", "X-API-Version": "2024-01"}
    main = changed(("/headers", headers), ("/tools/other", kit.tool()))
    caller = Caller(tmp_path, main, {})
    for name in ("token-prices.getTokenPrice", "token-prices.other"):
        caller.call(name=name)
    assert [request.headers for request in caller.requests] == [headers, headers]


@pytest.mark.requirement("002.optional.headers-override")
@pytest.mark.parametrize("spelling", ["Accept", "accept", "ACCEPT"])
def test_a_header_of_a_tool_takes_the_place_of_the_default(tmp_path, spelling):
    defaults = ("/headers", {"Accept": "application/json", "X-Trace": "1"})
    main = changed(defaults, (f"{TOOL}/headers", {spelling: "text/csv"}))
    caller = Caller(tmp_path, main, {})
    caller.call()
    sent = {name.lower(): value for name, value in caller.requests[0].headers.items()}
    assert sent == {"accept": "text/csv", "x-trace": "1"}
    assert len(caller.requests[0].headers) == 2


# --- deprecated fields ----------------------------------------------------------------------


def _routed(version="4.0.0"):
    routes = {"getTokenPrice": kit.tool()}
    return changed(("/tools", GONE), ("/routes", routes), ("/version", version))


@pytest.mark.requirement("002.deprecated.routes")
@pytest.mark.requirement("002.deprecated.timeline")
@pytest.mark.requirement("002.loading.validate")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("version", ["3.0.0", "3.1.0", "3.2.0", "4.0.0"])
def test_routes_are_tools_with_a_warning_in_every_version(tmp_path, version, profile):
    assert ("VAL018", "/routes") in codes(_routed(version), "warning", profile)
    caller = Caller(tmp_path, _routed(version), {"id": "btc"}, profile=profile)
    assert caller.call(name="token-prices.getTokenPrice").data == {"id": "btc"}


@pytest.mark.requirement("002.deprecated.both")
@pytest.mark.requirement("002.constraint.tools-and-routes")
@pytest.mark.requirement("002.loading.validate")
@pytest.mark.parametrize("routes", [{}, {"other": kit.tool()}])
def test_tools_and_routes_together_are_an_error(routes):
    assert breaks(_at("/routes", routes), "VAL017", "/routes")
