"""The rules of tests: how many, what they say, and that their values would be taken."""

from __future__ import annotations

import pytest

import kit

told, with_tool, parameter, cases = kit.told, kit.with_tool, kit.parameter, kit.cases
TESTS = f"{kit.TOOL}/tests"
CITY = parameter()
DAYS = parameter("days", "{{USER_PARAM}}", "query", "number()", "min(1)", "max(9)", "optional()")
UNIT = parameter("unit", "{{USER_PARAM}}", "query", "enum(celsius,kelvin)")


@pytest.mark.parametrize("value", [kit.GONE, [], {}, None, "none"])
def test_a_tool_without_tests_is_refused_under_strict(value):
    main = kit.changed((kit.TOOL, kit.tool()), (TESTS, value))
    assert told(main) == {("TST001", TESTS)}
    is_taken = value in (kit.GONE, [])
    assert kit.worst(main, "TST001", "compat") == ("warning" if is_taken else "error")


@pytest.mark.parametrize(
    ("count", "found"), [(1, {("VAL138", TESTS)}), (2, {("VAL138", TESTS)}), (3, set())]
)
def test_three_tests_are_enough_and_one_is_the_least(count, found):
    main = with_tool(tests=cases()[:count])
    assert told(main) == found
    assert kit.checked(main).manifest is not None


@pytest.mark.parametrize("value", [None, 5, "Oslo", []])
def test_a_test_is_an_object(value):
    main = with_tool(tests=[*cases(), value])
    assert told(main) == {("VAL156", f"{TESTS}/3")}


@pytest.mark.parametrize("value", [None, "", 5, kit.GONE])
def test_a_test_says_what_it_shows(value):
    tests = kit.put(cases(), ("/0/_description", value))
    assert told(with_tool(tests=tests)) == {("TST002", f"{TESTS}/0/_description")}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"city": "Oslo"}, {("TST008", "")}),
        ({"city": "Oslo", "days": 9}, set()),
        ({"days": 1}, {("TST003", "/0/city")}),
        ({"city": 5, "days": 1}, {("TST004", "/0/city")}),
        ({"city": "Oslo", "days": "1"}, {("TST004", "/0/days")}),
        ({"city": "Oslo", "days": True}, {("TST004", "/0/days")}),
        ({"city": "Oslo", "days": 0}, {("TST004", "/0/days")}),
        ({"city": "Oslo", "days": 10}, {("TST004", "/0/days")}),
        ({"city": "Oslo", "days": None}, {("TST004", "/0/days")}),
        ({"city": "Oslo", "days": 1, "format": "json"}, {("TST006", "/0/format")}),
        ({"city": "Oslo", "days": 1, "key": "x"}, {("TST006", "/0/key")}),
    ],
)
def test_a_test_gives_what_a_call_would_take(given, found):
    tests = [{"_description": "This", **given}, *cases(city="Rome")[1:]]
    block = (
        CITY,
        DAYS,
        parameter("format", "json"),
        parameter("key", "{{SERVER_PARAM:WEATHER_KEY}}"),
    )
    assert told(with_tool(*block, tests=tests)) == {(code, TESTS + path) for code, path in found}


@pytest.mark.parametrize(
    ("primitive", "options", "right", "wrong"),
    [
        ("string()", ["min(2)"], "ab", "a"),
        ("string()", ["max(2)"], "ab", "abc"),
        ("string()", ["length(2)"], "\U0001f600\U0001f600", "abc"),
        ("string()", ["regex(^[a-z]+$)"], "ab", "A"),
        ("number()", ["min(1.5)"], 1.5, 1),
        ("boolean()", [], False, "false"),
        ("enum(1,2)", [], "1", 1),
        ("enum(A,B)", [], "A", "a"),
        ("enum()", ["values(A,B)"], "A", "C"),
        ("array()", [], ["a"], "a"),
        ("array()", ["length(2)"], ["a", "b"], ["a"]),
        ("object()", [], {"a": 1}, [1]),
    ],
)
def test_values_are_held_to_primitive_and_options(primitive, options, right, wrong):
    block = parameter("city", "{{USER_PARAM}}", "query", primitive, *options)

    def broken(value):
        main = with_tool(block, tests=cases(city=value))
        return {path for code, path in told(main) if code == "TST004"}

    assert broken(right) == set()
    assert broken(wrong) == {f"{TESTS}/{index}/city" for index in range(3)}


def test_tests_use_more_than_one_value_of_an_enum():
    assert told(with_tool(UNIT, tests=cases(unit="kelvin"))) == {("TST007", TESTS)}
    both = [*cases(unit="kelvin")[:2], {"_description": "Other", "unit": "celsius"}]
    assert told(with_tool(UNIT, tests=both)) == set()
    single = parameter("unit", "{{USER_PARAM}}", "query", "enum(kelvin)")
    assert told(with_tool(single, tests=cases(unit="kelvin"))) == set()


def test_tests_of_a_tool_with_broken_parameters_are_not_judged():
    found = told(with_tool({"position": 5}, tests=cases(city="Oslo")))
    assert found == {("VAL040", f"{kit.TOOL}/parameters/0")}


def test_the_nearest_name_is_suggested():
    (found,) = kit.checked(
        with_tool(CITY, tests=[*cases(city="Oslo"), *cases(city="A", ctiy="B")[:1]])
    ).findings
    assert found.code == "TST006"
    assert "did you mean 'city'?" in found.message
