"""Checking a whole file: what is told, where, how bad, and what a source gets to load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kit
from callpact.schema import schema_hash
from callpact.sources import check_text
from callpact.sources.flowmcp.check.file_check import MAX_FINDINGS, read_list
from callpact.sources.flowmcp.check.rule_table import RULES
from callpact.sources.flowmcp.check.rules.hook_rules import hook_hits
from callpact.sources.flowmcp.read.literal import MAX_FILE_BYTES

changed, checked, told, MAIN, TOOL = kit.changed, kit.checked, kit.told, kit.MAIN, kit.TOOL
HOOKS = "export const handlers = ( { sharedLists } ) => ({ getForecast: { preRequest: f } })"


def only(main, profile="strict", **given):
    (found,) = checked(main, profile, **given).findings
    return found


# --- what a source gets ---------------------------------------------------------------------


def test_a_file_without_errors_can_be_loaded():
    main = changed()
    found = checked(main, code=HOOKS)
    assert found.manifest == main
    assert found.hash == main["schemaHash"]
    assert found.handlers == kit.exported(main, code=HOOKS).index("export const handlers")
    assert found.findings == found.unplaced == ()


def test_an_error_forbids_to_load_and_a_warning_does_not():
    main = changed((f"{TOOL}/output", kit.GONE))
    assert only(main).severity == "warning"
    assert checked(main).manifest == main
    main = changed(("/namespace", "No"))
    assert checked(main).manifest is None


def test_the_profile_decides_how_bad_a_deviation_is():
    main = changed(("/schemaHash", kit.GONE))
    assert only(main, "strict").severity == "error"
    assert only(main, "compat").severity == "warning"
    assert checked(main, "compat").manifest == main


def test_what_a_profile_does_not_report_is_not_told():
    main = kit.with_tool(preload={"enabled": True, "ttl": 60})
    assert [(f.code, f.severity) for f in checked(main).findings] == [("VAL064", "info")]
    assert checked(main, "compat").findings == ()


@pytest.mark.parametrize(
    ("main", "hash"),
    [
        ({}, "44136fa3"),
        ({"b": 1, "a": 2, "schemaHash": "deadbeef"}, "d3626ac3"),
        (
            "{namespace:'demo',name:'Demo',version:'4.0.0',schemaVersion:'1.0.0',root:'https://api.example.com',tools:{}}",
            "cd2731b9",
        ),
        (
            "{n:[1.0,0.1,1e21,1e-7,-0,1e20],s:'ü/\"\\\\\\n\\u2028\\x7f\\x01',t:true,z:null}",
            "196dfb0e",
        ),
        ("{'10':1,'9':2,a:3,B:4,'é':5,'😀':6,'～':7}", "7d35abb0"),
        ("{nested:{schemaHash:'kept'}}", "2587b21b"),
    ],
)
def test_the_hash_of_a_file_agrees_with_the_public_vectors(main, hash):
    text = f"export const main = {main}" if isinstance(main, str) else kit.exported(main)
    assert checked(text).hash == hash


def test_a_hash_that_is_wrong_is_told_with_the_right_one():
    main = changed(("/schemaHash", "00000000"))
    assert schema_hash(main) in only(main).message


# --- places ---------------------------------------------------------------------------------


def test_findings_have_the_line_and_the_column_of_what_they_are_about():
    text = "// A file\r\nexport const main = {\r\n  namespace: 'No', name: 'A',\r\n  tools: {}\r\n}"
    places = {f.code: (f.line, f.column) for f in checked(text).findings}
    assert places["VAL011"] == (3, 3)
    assert places["VAL128"] == (4, 3)
    assert places["VAL013"] == (2, 21)  # What is missing is missing in `main`.


def test_findings_are_in_the_order_of_the_file():
    found = checked(
        changed(("/name", "a"), ("/tags", ["A"]), ("/root", "x"), ("/docs", 1))
    ).findings
    assert [(f.line, f.column) for f in found] == sorted((f.line, f.column) for f in found)
    assert len(found) == 4


def test_findings_say_file_code_place_and_what_to_do():
    found = only(changed(("/namespace", "No")), file="Forecasts.mjs")
    assert (found.place, found.code, found.path) == ("Forecasts.mjs", "VAL011", "/namespace")
    assert found.message.endswith(RULES["VAL011"].remedy)
    assert "'No'" in found.message


def test_without_places_the_findings_are_the_same():
    found = checked(changed(("/name", "a"), ("/tags", ["A"])))
    assert {(f.code, f.path, f.message) for f in found.unplaced} == {
        (f.code, f.path, f.message) for f in found.findings
    }
    assert [f.line for f in found.unplaced] == [None, None]


def test_a_hit_in_code_has_its_place_in_the_whole_file():
    code = f"{HOOKS}\n\n  const a = eval( '1' )\n"
    text = kit.exported(changed(), code=code)
    found = only(text)
    line = text[: text.index("eval")].count("\n") + 1
    assert (found.code, found.line, found.column) == ("SEC003", line, 13)
    assert found.severity == "error"


def test_words_in_data_are_not_code():
    main = changed((f"{TOOL}/description", "import eval( process.env )"))
    assert checked(main).findings == ()
    assert (
        checked(changed((f"{TOOL}/output/schema/properties/import", {"type": "string"}))).findings
        == ()
    )


def test_an_alias_of_the_data_has_the_places_of_the_data():
    text = kit.exported(changed(("/name", "a")), "schema") + "export const main = schema\n"
    found = {f.code: f.line for f in checked(text).findings}
    assert found == {"VAL140": 1, "VAL094": 3}


# --- files that are something else ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("", "VAL001", "main"),
        ("nothing", "VAL001", "main"),
        ("export const a = 1", "VAL001", "`a`"),
        ("export const main = []", "VAL002", "array"),
        ("export const main = 'a'", "VAL002", "'a'"),
        ("export const main = { a: b }", "SEC017", "`b`"),
        ("export const main = { a: new Date() }", "SEC017", "Date"),
        ("export const main = { a: undefined }", "SEC017", "undefined"),
        ("export const main = { a: 1", "SEC017", "ends"),
        ("export const main = { a() {} }", "SEC017", "method"),
        ("export const list = { meta: {} }", "VAL001", "shared list"),
        ("export const skill = { name: `a` }", "VAL001", "a skill"),
        ("export const agent = { a: b }", "VAL001", "an agent"),
        ("export const schema = { flowMCP: '1.2.0', routes: {} }", "VAL001", "'1.2.0'"),
        ("export const schema = { handlers: [ a => a ] }", "VAL001", "FlowMCP 1"),
        ("import a from 'b'\nexport const schema = { a }", "VAL001", "FlowMCP 1"),
        ("const schema = { flowMCP: '1.0.0' }\nexport { schema }", "VAL001", "main"),
        (f"export const main = {{ a: '{'x' * MAX_FILE_BYTES}' }}", "VAL135", "bytes"),
        ("\ud800", "VAL001", "main"),
    ],
)
def test_what_is_no_schema_file_is_told_what_it_is(text, code, word):
    found = checked(text)
    assert found.manifest is None
    told_of = [f for f in found.findings if f.code == code]
    assert len(told_of) == 1
    assert word in told_of[0].message
    assert told_of[0].line


def test_an_import_is_told_once_at_its_place():
    text = f"import fs from 'fs'\n{kit.exported(changed())}"
    assert (only(text).code, only(text).line, only(text).column) == ("SEC001", 1, 1)


def test_another_export_is_told_and_ignored():
    text = f"{kit.exported(changed())}\nexport const schema = main\n"
    assert only(text).code == "VAL140"
    assert checked(text).manifest == changed()


@pytest.mark.parametrize("value", ["{}", "'a'", "[ 1 ]", "null", "5", "`a`"])
def test_handlers_are_a_function(value):
    found = told(changed(), code=f"export const handlers = /* ( */ {value}")
    assert found == {("VAL004", "")}


@pytest.mark.parametrize(
    "value", ["() => ({})", "( { sharedLists } ) => {}", "function () {}", "async a => a", "made"]
)
def test_what_may_be_a_function_is_left_to_who_runs_it(value):
    assert told(changed(), code=f"export const handlers = {value}") == set()


def test_main_inside_of_schema_is_lifted_with_a_warning():
    main = changed()
    inside = {key: value for key, value in main.items() if key not in {"tools", "schemaHash"}}
    text = kit.exported({"main": inside, "tools": main["tools"]}, "schema")
    found = checked(text, "compat")
    assert {f.code for f in found.findings} == {"VAL148", "VAL082"}
    assert found.manifest == {**inside, "tools": main["tools"]}
    assert kit.worst(text, "VAL148", "strict") == "error"
    broken = kit.exported({"main": {**inside, "name": "a"}, "tools": {"getA": 5}}, "schema")
    lines = {f.code: f.line for f in checked(broken).findings}
    assert broken.splitlines()[lines["VAL094"] - 1].strip() == '"name": "a",'
    assert broken.splitlines()[lines["VAL126"] - 1].strip() == '"getA": 5'


# --- limits ---------------------------------------------------------------------------------


def test_of_too_many_findings_the_worst_are_told_and_the_rest_is_counted():
    tags = ["A"] * 500
    found = checked(changed(("/tags", tags), ("/namespace", "No")), "compat").findings
    assert len(found) == MAX_FINDINGS
    assert {f.code for f in found} == {"VAL097", "VAL011", "VAL019", "VAL152"}
    # 500 tags, the namespace and the folder that is named otherwise.
    (rest,) = (f for f in found if f.code == "VAL152")
    assert rest.message.startswith(f"{502 - (MAX_FINDINGS - 1)} more")


def test_what_breaks_rules_without_end_cannot_be_loaded():
    found = checked(changed(("/tags", ["A"] * 20_000)), "compat")
    assert found.manifest is None
    assert [f.code for f in found.findings if f.severity == "error"] == ["VAL154"]


def test_every_error_counts_however_many_warnings_there_are():
    tools = {"getA": kit.tool(method="PATCH")}
    main = changed(("/tags", ["A"] * 900), ("/tools", tools))
    assert checked(main, "compat").manifest is None


# --- secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "main",
    [
        changed(("/root", "https://me:s3cr3t@api.example.com/")),
        changed(("/root", "http://api.example.com?key=s3cr3t")),
        changed(("/headers/X-Key", "s3cr3t\n")),
        changed(("/headers/X-Key", ["s3cr3t"])),
        kit.with_tool(kit.parameter("key", "s3cr3t", "query", "number()")),
        kit.with_tool(kit.parameter("key", "s3cr3t", "query", "enum(a,b)")),
    ],
)
def test_what_may_be_a_secret_is_not_shown(main):
    findings = checked(main).findings
    assert findings
    assert not any("s3cr3t" in found.message for found in findings)


def test_long_values_are_cut_and_lines_stay_lines():
    found = only(changed(("/name", "a\n" * 10_000)))
    assert len(found.message) < 400
    assert "\n" not in found.message


@pytest.mark.parametrize(
    ("main", "path"),
    [
        (changed(("/description", "half \ud83d")), "/description"),
        (changed(("/tags", ["a", "\udc00"])), "/tags/1"),
        (
            kit.with_tool(kit.parameter("city", "\ud83d"), method="GET"),
            f"{TOOL}/parameters/0/position/value",
        ),
        (changed(("/tools", {"get\ud83d": kit.tool()})), "/tools"),
    ],
)
def test_half_a_character_is_told_and_never_printed(main, path):
    found = checked(main, "compat")
    assert ("VAL157", path) in {(f.code, f.path) for f in found.findings}
    assert found.manifest is None
    for finding in found.findings:
        (finding.path + finding.message).encode()


def test_whole_characters_beyond_the_first_plane_are_fine():
    assert told(changed(("/description", "\U0001f600"))) == set()


# --- laws -----------------------------------------------------------------------------------

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
WORDS = st.sampled_from(
    [
        "",
        "a",
        "{{USER_PARAM}}",
        "{{SERVER_PARAM:A}}",
        "{{A}}",
        "{{a:b}}",
        "enum()",
        "enum(a,b)",
        "string()",
        "min(1)",
        "default(x)",
        "regex([)",
        "regex((a+)+$)",
        "values(a)",
        "integer",
        "insert",
        "body",
        "GET",
        "/{{a}}",
        "/:a",
        "https://",
        "1.0.0",
        "stations",
        "sqlite",
        "url",
    ]
)
NAMES = st.sampled_from(
    [
        "position",
        "z",
        "key",
        "value",
        "options",
        "tools",
        "routes",
        "meta",
        "sharedLists",
        "filter",
        "ref",
        "version",
        "output",
        "schema",
        "properties",
        "items",
        "type",
        "tests",
        "preload",
        "headers",
        "resources",
        "skills",
        "root",
        "source",
        "a/b~c",
        "",
        "_description",
    ]
)
JSON = st.recursive(
    SCALARS | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def pointers(value, path=""):
    yield path
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    for key, inner in parts:
        yield from pointers(inner, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")


PLACES = sorted(pointers(MAIN))[1:]


@st.composite
def mutated(draw):
    main = kit.changed(("/sharedLists", [{"ref": "stations", "version": "1.2.0"}]))
    for pointer in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4)):
        try:
            main = kit.put(main, (pointer, draw(JSON | st.just(kit.GONE))))
        except (KeyError, IndexError, TypeError, ValueError):
            continue  # An earlier change took the place away.
    return main


def holds(found, text):
    """What is true of whatever checking gives."""
    places = kit.every_place(text)
    for finding in found.findings:
        assert finding.code in {rule.code for rule in RULES.values()}
        assert (finding.line, finding.column) in places
        assert "\n" not in finding.message
    assert len(found.findings) <= MAX_FINDINGS
    is_error = any(finding.severity == "error" for finding in found.findings)
    assert (found.manifest is None) == is_error


def stand_where_they_say(found, main):
    """Each finding is told where its path stands; of what is missing, where it should stand."""
    places = kit.places_in(main)
    for finding in found.findings:
        path = finding.path
        while path not in places:
            path = path.rpartition("/")[0]
        assert (finding.line, finding.column) == places[path], finding


@given(mutated(), st.sampled_from(["strict", "compat"]))
def test_any_change_of_a_file_is_checked_to_the_end(main, profile):
    text = kit.exported(main, code=HOOKS)
    found = kit.checked(text, profile, lists=[kit.STATIONS])
    holds(found, text)
    stand_where_they_say(found, main)


@given(mutated())
def test_what_strict_takes_compat_takes(main):
    strict, compat = checked(main, "strict"), checked(main, "compat")
    assert strict.manifest is None or compat.manifest is not None
    assert len(compat.unplaced) <= len(strict.unplaced)


@given(JSON, JSON)
def test_any_data_is_checked_to_the_end(main, tool):
    wide = {**MAIN, "tools": {"getA": tool, "getB": kit.tool(tool)}}
    for data, profile in ((main, "strict"), (wide, "compat")):
        text = kit.exported(data)
        found = check_text(text, file="", profile=profile, lists={}, libraries=())
        holds(found, text)
        stand_where_they_say(found, data)


TEXTS = st.text(max_size=40) | st.text(
    alphabet="export const main={}[]'\"`:,/*\n\\$1a", max_size=60
)


@given(TEXTS, TEXTS)
def test_any_text_is_checked_to_the_end(first, second):
    for text in (first, f"export const main = {{{first}}}\n{second}", f"{first}\n{HOOKS}{second}"):
        holds(check_text(text, file="A.mjs", profile="compat", lists={}, libraries=()), text)


@given(TEXTS, JSON)
def test_any_list_file_is_read_to_the_end(text, data):
    for given_text in (text, kit.exported(data, "list"), f"export const list = {{{text}}}"):
        read = read_list(given_text, "a.mjs")
        assert (read.list is None) == any(f.severity == "error" for f in read.findings)


@given(st.integers(0, 10**6), st.text(max_size=30))
def test_the_hash_is_blind_to_the_order_of_keys(seed, value):
    members = list({**MAIN, "description": value}.items())
    order = sorted(members, key=lambda member: hash((seed, member[0])))
    assert checked(dict(order)).hash == checked(dict(members)).hash


# --- hooks ----------------------------------------------------------------------------------

WRONG = """\
// Hooks
export const handlers = () => ({
    getForecast: { preRequest: ( { struct } ) => ({ struct }), postRequst: f },
    getNothing: {}
})
"""


def looked(code, profile="strict", main=None):
    text = main or kit.exported(changed(), code=code)
    return check_text(text, file=kit.FILE, profile=profile, lists={}, hook_rules=hook_hits)


def test_hooks_are_looked_at_if_that_is_asked_for():
    line = kit.exported(changed()).count("\n")
    hooks = WRONG.splitlines()[2]
    found = looked(WRONG).findings
    assert [(each.code, each.severity, each.path, each.line, each.column) for each in found] == [
        ("SEC101", "error", TOOL, line + 3, hooks.index("{ struct })") + 1),
        ("VAL161", "warning", TOOL, line + 3, hooks.index("postRequst") + 1),
        ("VAL005", "warning", "", line + 4, 5),
    ]
    assert "did you mean 'postRequest'" in found[1].message
    assert checked(changed(), code=WRONG).findings == ()


def test_the_profile_decides_how_bad_a_wrong_return_is():
    usual = "export const handlers = () => ({ getForecast: { preRequest: () => ({ struct: 1 }) } })"
    wrong = usual.replace("struct", "answer")
    for code, profile, severity in (
        (usual, "strict", "error"),
        (usual, "compat", "warning"),
        (wrong, "strict", "error"),
        (wrong, "compat", "warning"),
    ):
        (found,) = looked(code, profile).findings
        assert (found.code, found.severity) == ("SEC101", severity)


def test_an_error_in_a_hook_forbids_nothing_to_be_loaded():
    code = "export const handlers = () => ({ getForecast: { preRequest: () => fetch( 1 ) } })"
    found = looked(code)
    assert [each.code for each in found.findings] == ["SEC100"]
    assert found.manifest == changed()


def test_hooks_of_a_file_that_is_no_data_are_not_looked_at():
    assert {
        each.code for each in looked("", main="export const main = f()\n" + WRONG).findings
    } == {"SEC017"}


def test_hooks_that_break_rules_without_end_are_told_as_any_file():
    keys = ", ".join(f"a{index}: 1" for index in range(15_000))
    found = looked(f"export const handlers = () => ({{ {keys} }})").findings
    assert len(found) == MAX_FINDINGS
    assert {"VAL154", "VAL152", "VAL005"} == {each.code for each in found}
