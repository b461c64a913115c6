"""The rules of parameters: position, values and placeholders, primitives and options."""

from __future__ import annotations

import pytest

import kit

changed, told, tool, parameter = kit.changed, kit.told, kit.tool, kit.parameter
with_tool, TOOL, GONE = kit.with_tool, kit.TOOL, kit.GONE
ONE = f"{TOOL}/parameters/0"
POSITION, Z, VALUE = f"{ONE}/position", f"{ONE}/z", f"{ONE}/position/value"
PRIMITIVE, OPTIONS = f"{Z}/primitive", f"{Z}/options"
OPTION = f"{OPTIONS}/0"


def fixed(pointer, value):
    """A tool with one fixed parameter, changed at one place."""
    return changed((TOOL, tool(parameter("city", "Oslo"))), (f"{ONE}{pointer}", value))


def z(primitive, *options, value=None):
    """A tool whose one parameter has this `z`, with tests that give it a value, or nothing."""
    tests = kit.cases() if value is None else kit.cases(city=value)
    return with_tool(parameter("city", "{{USER_PARAM}}", "query", primitive, *options), tests=tests)


def hits(main):
    """What is told about the parameter itself."""
    return {found for found in told(main) if found[1].startswith(ONE)}


@pytest.mark.parametrize(
    ("pointer", "value", "code", "place"),
    [
        ("/position", GONE, "VAL040", ""),
        ("/position", "city", "VAL040", ""),
        ("/z", GONE, "VAL040", ""),
        ("/z", ["string()"], "VAL040", ""),
        ("/kind", "text", "VAL077", "/kind"),
        ("/position/name", "text", "VAL077", "/position/name"),
        ("/z/description", "text", "VAL077", "/z/description"),
        ("/position/key", GONE, "VAL041", "/position/key"),
        ("/position/key", "", "VAL041", "/position/key"),
        ("/position/key", 5, "VAL041", "/position/key"),
        ("/position/key", "pager_limit", "VAL098", "/position/key"),
        ("/position/key", "City", "VAL098", "/position/key"),
        ("/position/key", "query.cond", "VAL098", "/position/key"),
        ("/position/value", GONE, "VAL042", "/position/value"),
        ("/position/value", 5, "VAL042", "/position/value"),
        ("/position/location", GONE, "VAL043", "/position/location"),
        ("/position/location", "header", "VAL043", "/position/location"),
        ("/position/location", [], "VAL043", "/position/location"),
        ("/z/primitive", GONE, "VAL044", "/z/primitive"),
        ("/z/primitive", 5, "VAL044", "/z/primitive"),
        ("/z/options", GONE, "VAL045", "/z/options"),
        ("/z/options", "optional()", "VAL045", "/z/options"),
        ("/z/options", [5], "VAL045", "/z/options/0"),
    ],
)
def test_a_field_that_breaks_its_rule_is_told_at_its_place(pointer, value, code, place):
    assert told(fixed(pointer, value)) == {(code, f"{ONE}{place}")}


@pytest.mark.parametrize("block", [None, [], "city", 5])
def test_a_parameter_is_an_object(block):
    assert told(with_tool(block)) == {("VAL040", ONE)}


def test_a_parameter_may_have_a_description():
    assert told(fixed("/description", "The city")) == set()


def test_a_missing_primitive_and_bad_options_are_told_together():
    main = changed((TOOL, tool(parameter("city", "Oslo"))), (Z, {"options": [1]}))
    assert told(main) == {("VAL044", PRIMITIVE), ("VAL045", OPTION)}


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        ("{{SERVER_PARAM:WEATHER_KEY}}", set()),
        ("key {{SERVER_PARAM:WEATHER_KEY}}", set()),
        ("{{SERVER_PARAM:OTHER}}", {"VAL089"}),
        ("{{SERVER_PARAM:}}", {"VAL089"}),
        ("{{WEATHER_KEY}}", {"VAL090"}),
        ("{{stations:alias}}", {"VAL047"}),
        ("{{not closed", {"VAL091"}),
        ("Oslo", set()),
        ("", set()),
    ],
)
def test_a_value_that_no_caller_gives(value, codes):
    assert told(with_tool(parameter("city", value))) == {(code, VALUE) for code in codes}


@pytest.mark.parametrize(
    ("value", "codes", "names"),
    [
        ("{{USER_PARAM}}", set(), ["city"]),
        ("name:{{USER_PARAM}}", set(), ["city"]),
        ("{{CITY}}", {"VAL091"}, ["city"]),
        ("{{CITY}}", {"VAL091"}, ["CITY"]),
        ("name:{{CITY}}~", {"VAL091"}, ["CITY"]),
        ("{{LAT}},{{LON}}", {"VAL091", "VAL131"}, ["LAT", "LON"]),
    ],
)
def test_a_value_that_the_caller_gives_is_tested_under_its_names(value, codes, names):
    tests = kit.cases(**dict.fromkeys(names, "Oslo"))
    main = with_tool(parameter("city", value), tests=tests)
    assert told(main) == {(code, VALUE) for code in codes}


def test_one_key_for_two_things_that_the_caller_gives_is_told():
    twice = (parameter(), parameter("city", "{{USER_PARAM}}", "query"))
    main = with_tool(*twice, tests=kit.cases(city="Oslo"))
    assert told(main) == {("VAL130", f"{TOOL}/parameters")}
    assert told(with_tool(parameter("id", "1"), parameter("id", "2"))) == set()


@pytest.mark.parametrize(
    ("value", "primitive", "options", "is_right"),
    [
        ("Oslo", "string()", ["min(4)"], True),
        ("Oslo", "string()", ["min(5)"], False),
        ("Oslo", "string()", ["length(3)"], False),
        ("json", "enum(json,xml)", [], True),
        ("yaml", "enum(json,xml)", [], False),
        ("12.5", "number()", ["max(13)"], True),
        ("12.5", "number()", ["max(12)"], False),
        ("twelve", "number()", [], False),
        ("1_000", "number()", [], False),
        ("true", "boolean()", [], True),
        ("yes", "boolean()", [], False),
        ("a,b", "array()", [], True),
    ],
)
def test_a_fixed_value_passes_its_own_z(value, primitive, options, is_right):
    main = with_tool(parameter("city", value, "query", primitive, *options))
    assert told(main) == (set() if is_right else {("VAL088", VALUE)})


# --- z --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("primitive", "value"),
    [
        ("string()", "a"),
        ("number()", 1),
        ("boolean()", True),
        ("enum(a,b)", "a"),
        ("enum(1)", "1"),
        ("array()", ["a"]),
        ("object()", {"a": 1}),
    ],
)
def test_six_primitives_are_known(primitive, value):
    assert hits(z(primitive, value=value)) == set()


@pytest.mark.parametrize(
    ("primitive", "code"),
    [
        ("", "VAL044"),
        ("string", "VAL044"),
        ("String()", "VAL044"),
        ("integer()", "VAL044"),
        ("string(5)", "VAL044"),
        ("string() ", "VAL044"),
        ("enum()", "VAL046"),
        ("enum(,)", "VAL046"),
        ("string({{stations:alias}})", "VAL047"),
        ("enum({{stations}})", "VAL047"),
        ("enum({{stations:alias}},{{stations:alias}})", "VAL047"),
        ("enum({{stations:alias}})", "VAL048"),
        ("enum(a, b)", "VAL134"),
        ("enum('a','b')", "VAL134"),
        ("enum(a,,b)", "VAL134"),
        ("enum(a,b,a)", "VAL134"),
    ],
)
def test_a_primitive_that_cannot_be_used_is_told(primitive, code):
    assert code in {found for found, _ in hits(z(primitive, "optional()"))}
    assert {place for _, place in hits(z(primitive, "optional()"))} == {PRIMITIVE}


@pytest.mark.parametrize(
    ("primitive", "options"),
    [
        ("number()", ["min(1)", "max(5)"]),
        ("number()", ["min(-1.5)", "max(1e3)"]),
        ("number()", ["min(3)", "max(3)"]),
        ("string()", ["min(0)", "max(5)"]),
        ("string()", ["length(5)"]),
        ("array()", ["length(2)", "min(1)"]),
        ("number()", ["optional()", "default(10)", "min(1)"]),
        ("string()", ["default()"]),
        ("string()", ["default(a (b), c)"]),
        ("boolean()", ["default(true)"]),
        ("enum(a,b)", ["default(b)"]),
        ("array()", ["default(a,b)"]),
        ("object()", ['default({"a":1})']),
    ],
)
def test_options_that_can_be_used_are_not_told(primitive, options):
    assert hits(z(primitive, "optional()", *options)) == set()


@pytest.mark.parametrize(
    ("primitive", "option", "code", "place"),
    [
        ("string()", "email()", "VAL045", OPTION),
        ("string()", "min", "VAL045", OPTION),
        ("string()", "min(a)", "VAL045", OPTION),
        ("string()", "min(-1)", "VAL045", OPTION),
        ("string()", "max(1.5)", "VAL045", OPTION),
        ("number()", "min()", "VAL045", OPTION),
        ("number()", "min(1_0)", "VAL045", OPTION),
        ("number()", "max(Infinity)", "VAL045", OPTION),
        ("string()", "optional(true)", "VAL045", OPTION),
        ("number()", "optional(), default(5)", "VAL160", OPTION),
        ("string()", "regex([)", "VAL045", OPTION),
        ("string()", f"regex({'a' * 1001})", "VAL045", OPTION),
        ("string()", "default({{stations:alias}})", "VAL047", OPTION),
        ("string()", "regex(^a+$)", "VAL095", OPTION),
        ("string()", "regex(/^a+$/i)", "VAL095", OPTION),
        ("enum()", "values(a,b)", "VAL095", OPTION),
        ("enum(a,b)", "values(a,b)", "VAL132", OPTION),
        ("boolean()", "min(1)", "VAL132", OPTION),
        ("number()", "length(5)", "VAL132", OPTION),
        ("number()", "regex(a)", "VAL132", OPTION),
        ("object()", "length(5)", "VAL132", OPTION),
        ("number()", "default(many)", "VAL133", OPTIONS),
        ("boolean()", "default(maybe)", "VAL133", OPTIONS),
        ("enum(a,b)", "default(c)", "VAL133", OPTIONS),
    ],
)
def test_an_option_that_cannot_be_used_is_told(primitive, option, code, place):
    found = hits(z(primitive, option, "optional()"))
    assert (code, place) in found
    assert {told_code for told_code, _ in found} <= {code, "VAL095"}


@pytest.mark.parametrize(
    "options",
    [
        ["min(5)", "max(4)"],
        ["length(3)", "max(2)"],
        ["min(4)", "length(3)"],
        ["min(1)", "min(9)", "max(5)"],
    ],
)
def test_options_that_no_value_can_keep_are_told(options):
    assert hits(z("string()", "optional()", *options)) == {("VAL045", OPTIONS)}


@pytest.mark.parametrize("options", [["min(5)", "default(4)"], ["default(4)", "min(5)"]])
def test_a_default_is_held_to_the_other_options_in_any_order(options):
    assert hits(z("number()", *options)) == {("VAL133", OPTIONS)}
    assert (
        hits(z("number()", *options[:1], "default(6)", "min(5)")) - {("VAL133", OPTIONS)} == set()
    )


def test_a_z_too_long_to_be_remembered_is_read_the_same():
    values = ",".join(f"value{index}" for index in range(100))
    assert hits(z(f"enum({values})", "optional()")) == set()
    assert hits(z(f"enum({values},value1)", "optional()")) == {("VAL134", PRIMITIVE)}


# --- lists ----------------------------------------------------------------------------------

USES = {"ref": "stations", "version": "1.2.0"}


def listed(primitive, *options, value="oslo", reference=USES):
    """What is told about an enum that refers to a list that is declared and there."""
    block = parameter("city", "{{USER_PARAM}}", "query", primitive, *options)
    tests = [*kit.cases(city=value)[:2], {"_description": "Another", "city": "rome"}]
    main = changed((TOOL, tool(block, tests=tests)), ("/sharedLists", [reference]))
    return told(main, lists=[kit.STATIONS])


@pytest.mark.parametrize(
    ("primitive", "options", "found"),
    [
        ("enum({{stations:alias}})", [], set()),
        ("enum(paris,{{stations:alias}})", [], set()),
        ("enum({{stations:alias}},{{stations:code}})", ["default(OSL)"], set()),
        ("enum({{stations:alias}})", ["default(paris)"], {("VAL133", OPTIONS)}),
        ("enum({{stations:alais}})", [], {("VAL049", PRIMITIVE)}),
        ("enum({{station:alias}})", [], {("VAL048", PRIMITIVE), ("VAL075", "/sharedLists/0")}),
    ],
)
def test_an_enum_takes_its_values_from_a_declared_list(primitive, options, found):
    assert listed(primitive, *options) == found


def test_the_values_of_a_list_are_what_tests_may_give():
    assert listed("enum({{stations:alias}})", value="bern") == set()
    wrong = {("TST004", f"{TOOL}/tests/{index}/city") for index in (0, 1)}
    assert listed("enum({{stations:alias}})", value="paris") == wrong
    # Null is left out, numbers are texts as JavaScript writes them.
    heights = listed("enum({{stations:height}},rome)", value="1.5")
    assert heights == set()


def test_a_filter_is_applied_before_the_values_are_taken():
    some = {**USES, "filter": {"key": "isOpen", "value": True}}
    found = listed("enum({{stations:alias}})", value="lima", reference=some)
    assert found == {("TST004", f"{TOOL}/tests/2/city")}
    none = {**USES, "filter": {"key": "alias", "value": "paris"}}
    found = listed("enum({{stations:alias}})", reference=none)
    assert found == {("VAL046", PRIMITIVE)}


def test_values_that_repeat_a_list_are_told():
    repeated = z("enum(rome,lima,oslo,bern)", "optional()")
    assert {code for code, _ in told(repeated, lists=[kit.STATIONS])} == {"VAL107", "TST008"}
    other = z("enum(rome,lima,oslo)", "optional()")
    assert {code for code, _ in told(other, lists=[kit.STATIONS])} == {"TST008"}
