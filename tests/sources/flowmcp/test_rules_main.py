"""The rules of `main`: each kept, each broken; the whole report is compared, not a part of it."""

from __future__ import annotations

import pytest

import kit

changed, told, GONE = kit.changed, kit.told, kit.GONE


def test_a_file_that_keeps_every_rule_has_no_findings():
    assert told(changed()) == set()
    assert told(changed(), "compat") == set()


@pytest.mark.parametrize(
    ("pointer", "value", "code"),
    [
        ("/colour", "red", "VAL003"),
        ("/namespace", GONE, "VAL010"),
        ("/namespace", 7, "VAL010"),
        ("/namespace", "", "VAL011"),
        ("/namespace", "CoinGecko", "VAL011"),
        ("/namespace", "web3_data", "VAL011"),
        ("/namespace", "2fast", "VAL011"),
        ("/namespace", "weather\n", "VAL011"),
        ("/name", GONE, "VAL012"),
        ("/name", ["A"], "VAL012"),
        ("/name", " ", "VAL012"),
        ("/name", "forecasts", "VAL094"),
        ("/name", "Weather Forecasts", "VAL094"),
        ("/description", GONE, "VAL013"),
        ("/description", "", "VAL013"),
        ("/description", {}, "VAL013"),
        ("/version", GONE, "VAL014"),
        ("/version", 4, "VAL014"),
        ("/version", "4.0", "VAL014"),
        ("/version", "v4.0.0", "VAL014"),
        ("/version", "5.0.0", "VAL014"),
        ("/version", "2.0.0", "VAL014"),
        ("/version", "1.2.0", "VAL014"),
        ("/version", "3.0.0", "VAL096"),
        ("/schemaVersion", GONE, "VAL080"),
        ("/schemaVersion", "1.0", "VAL081"),
        ("/schemaVersion", None, "VAL081"),
        ("/schemaHash", GONE, "VAL082"),
        ("/schemaHash", "a1b2c3", "VAL083"),
        ("/schemaHash", "A1B2C3D4", "VAL083"),
        ("/schemaHash", 12345678, "VAL083"),
        ("/schemaHash", "00000000", "VAL084"),
        ("/root", GONE, "VAL015"),
        ("/root", "", "VAL015"),
        ("/root", "http://api.example.com", "VAL085"),
        ("/root", "https://user@api.example.com", "VAL085"),
        ("/root", "https://api.example.com/a b", "VAL085"),
        ("/root", 5, "VAL085"),
        ("/root", "https://api.example.com/", "VAL086"),
        ("/root", "https://api.example.com?key=1", "VAL153"),
        ("/root", "https://api.example.com/a#b", "VAL153"),
        ("/tools", GONE, "VAL016"),
        ("/tools", [], "VAL016"),
        ("/tools", {}, "VAL128"),
        ("/docs", "https://example.com", "VAL020"),
        ("/tags", {"a": 1}, "VAL021"),
        ("/requiredServerParams", "KEY", "VAL022"),
        ("/requiredLibraries", "ethers", "VAL025"),
        ("/headers", ["Accept"], "VAL023"),
        ("/sharedLists", {"ref": "a"}, "VAL024"),
        ("/termsOfService", "example.com", "VAL125"),
        ("/termsOfService", 5, "VAL125"),
        ("/termsOfServiceCheckedAt", "28.02.2026", "VAL125"),
        ("/termsOfServiceCheckedAt", "2026-13-01", "VAL125"),
        ("/termsOfServiceLanguage", "eng", "VAL125"),
        ("/dataLicense", "CC-BY", "VAL125"),
        ("/dataLicenseName", "", "VAL125"),
        ("/skills", "full-audit", "VAL150"),
        ("/skills", ["Full Audit"], "VAL150"),
        ("/skills", {"Full Audit": {}}, "VAL150"),
        ("/skills", [5], "VAL150"),
        ("/meta", [], "VAL124"),
    ],
)
def test_a_field_that_breaks_its_rule_is_told_at_its_place(pointer, value, code):
    broken = told(changed((pointer, value)), file="Forecasts.mjs")
    if pointer == "/requiredServerParams":  # Then nothing is declared that the tool uses.
        broken = {found for found in broken if found[0] != "VAL089"}
    assert broken == {(code, pointer)}


@pytest.mark.parametrize(
    ("pointer", "value", "code", "path"),
    [
        ("/docs", ["https://a.b", 5], "VAL020", "/docs/1"),
        ("/tags", ["ok", None], "VAL021", "/tags/1"),
        ("/tags", ["ok", "cacheTtlDaily"], "VAL097", "/tags/1"),
        ("/tags", ["ok", "a_b"], "VAL097", "/tags/1"),
        ("/requiredServerParams", ["WEATHER_KEY", ""], "VAL022", "/requiredServerParams/1"),
        ("/requiredServerParams", ["WEATHER_KEY", "A-B"], "VAL151", "/requiredServerParams/1"),
        ("/requiredLibraries", ["ethers", 1], "VAL025", "/requiredLibraries/1"),
        ("/requiredLibraries", ["ethers", "left-pad"], "SEC020", "/requiredLibraries/1"),
        ("/headers/X-Count", 5, "VAL023", "/headers/X-Count"),
        ("/headers/X-Two", "a\r\nHost: evil", "VAL129", "/headers/X-Two"),
        ("/headers/X-Snow", "\u2603", "VAL129", "/headers/X-Snow"),
        ("/headers/X Y", "a", "VAL129", "/headers/X Y"),
        ("/headers/A~1B", "a", "VAL129", "/headers/A~1B"),
        ("/headers/X-Key", "{{SERVER_PARAM:OTHER}}", "VAL089", "/headers/X-Key"),
        ("/headers/X-Key", "Bearer {{OTHER}}", "VAL089", "/headers/X-Key"),
        ("/headers/X-Key", "Bearer {{WEATHER_KEY}}", "VAL090", "/headers/X-Key"),
        ("/root", "https://a.b/{{WEATHER_KEY}}", "VAL090", "/root"),
        ("/root", "https://a.b/{{OTHER}}", "VAL089", "/root"),
    ],
)
def test_a_member_that_breaks_its_rule_is_told_at_its_place(pointer, value, code, path):
    assert told(changed((pointer, value))) == {(code, path)}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/namespace", "weather"),
        ("/version", "4.99.100"),
        ("/schemaVersion", "10.20.30"),
        ("/root", "https://api.example.com:8443/v1/a@b"),
        ("/root", "https://a.b/{{SERVER_PARAM:WEATHER_KEY}}"),
        ("/docs", []),
        ("/tags", GONE),
        ("/headers", {}),
        ("/headers/X-Empty", ""),
        ("/headers/X-Latin", "caf\u00e9"),
        ("/requiredLibraries", ["axios", "ccxt", "moment", "indicatorts", "@erc725/erc725.js"]),
        ("/termsOfService", None),
        ("/termsOfService", "no-tos-found"),
        ("/termsOfServiceLanguage", "multi"),
        ("/dataLicenseName", GONE),
        ("/skills", ["full-audit"]),
        ("/skills", {"full-audit": {"file": "a.mjs"}}),
        ("/resources", {}),
        ("/prompts", {}),
        ("/sharedLists", []),
    ],
)
def test_what_the_format_allows_is_not_told(pointer, value):
    assert told(changed((pointer, value))) == set()


@pytest.mark.parametrize("more", ["resources", "skills"])
def test_tools_may_be_empty_beside_resources_or_skills(more):
    value = ["audit"] if more == "skills" else {"a": {}}
    main = changed(("/tools", {}), (f"/{more}", value), ("/root", GONE))
    assert not {code for code, _ in told(main)} & {"VAL128", "VAL015"}


def test_routes_are_the_old_name_of_tools():
    main = changed(("/routes", kit.MAIN["tools"]), ("/tools", GONE))
    assert told(main) == {("VAL018", "/routes")}
    assert list(kit.checked(main).manifest["tools"]) == ["getForecast"]
    assert "routes" not in kit.checked(main).manifest


def test_tools_and_routes_together_are_refused():
    assert told(changed(("/routes", {}))) == {("VAL017", "/routes")}


def test_eight_tools_are_enough():
    tools = {f"get{index}": kit.tool() for index in range(8)}
    assert told(changed(("/tools", tools))) == set()
    assert told(changed(("/tools", {**tools, "get8": kit.tool()}))) == {("VAL031", "/tools")}


@pytest.mark.parametrize("allowed", [{"left-pad"}, ["*"], ("a", "left-pad")])
def test_a_library_is_allowed_by_name_or_with_all_others(allowed):
    main = changed(("/requiredLibraries", ["left-pad"]))
    assert told(main, libraries=allowed) == set()


def test_a_root_may_be_missing_only_if_hooks_make_every_request():
    main = changed(("/root", ""))
    code = "export const handlers = () => ({ getForecast: { executeRequest: f } })"
    assert told(main, code=code) == {("VAL147", "/root")}
    assert kit.worst(main, "VAL147", "compat", code=code) == "warning"
    for other in ("getOther: { executeRequest: f }", "getForecast: { preRequest: f }"):
        code = f"export const handlers = () => ({{ {other} }})"
        assert told(main, code=code) == {("VAL015", "/root")}


@pytest.mark.parametrize(
    ("file", "codes"),
    [
        ("Forecasts.mjs", set()),
        ("", set()),
        ("providers/weather/Forecasts.mjs", set()),
        ("C:\\flows\\providers\\weather\\Forecasts.mjs", set()),
        ("providers/weather/deep/Forecasts.mjs", set()),
        ("my/folder/Forecasts.mjs", set()),
        ("forecasts.mjs", {"VAL093"}),
        ("Weather-Forecasts.mjs", {"VAL093"}),
        ("Forecasts.js", {"VAL093"}),
        ("providers/rain/Forecasts.mjs", {"VAL019"}),
        ("providers/rain/forecasts.mjs", {"VAL019", "VAL093"}),
    ],
)
def test_the_file_and_its_folder_have_their_names(file, codes):
    assert {code for code, _ in told(changed(), file=file)} == codes


def test_the_namespace_shared_is_kept_for_lists():
    main = changed(("/namespace", "shared"))
    assert told(main, file="Forecasts.mjs") == {("VAL149", "/namespace")}


@pytest.mark.parametrize(
    ("version", "word"), [("2.0.0", "FlowMCP 2"), ("1.2.0", "FlowMCP 1"), ("3.0.0", "4.x.y")]
)
def test_an_older_version_is_told_what_it_is(version, word):
    findings = kit.checked(changed(("/version", version))).findings
    assert word in findings[0].message


def test_the_hash_of_what_is_not_json_is_told_by_its_code():
    from callpact.sources.flowmcp.check.rules.manifest_rules import hash_hits

    declared = {"schemaHash": "00000000"}
    assert [hit[:2] for hit in hash_hits([])] == [("HSH-002", "")]
    assert [h[:2] for h in hash_hits({**declared, "a": float("nan")})] == [("HSH-003", "/a")]
    assert [h[:2] for h in hash_hits({**declared, "a": [object()]})] == [("HSH-004", "/a/0")]
