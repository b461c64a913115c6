"""The rules of a tool's tests: their number, their descriptions, and values that a call accepts."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from callpact.schema.issues.wording import cut, shown
from callpact.sources.flowmcp.check.rules.hit import Hit, Hits, at, got, is_text, items, members
from callpact.sources.flowmcp.check.rules.parameter_rules import Given, Parameters

ENOUGH_TESTS = 3
"""Tests that a tool should have; one is the least (seed 002)."""


def hits_in_tests(tests: Any, path: str, parameters: Parameters) -> Hits:
    """Breaches in the tests of a tool."""
    if not isinstance(tests, list) or not tests:
        key = "TST001" if tests is UNSET or tests == [] else "TST001:form"
        words = "`tests` must be a list with a test at least"
        yield Hit(key, path, f"{words}, {got(tests)}")
        return
    if len(items(tests)) < ENOUGH_TESTS:
        words = f"there should be {ENOUGH_TESTS} tests, got {len(items(tests))}"
        yield Hit("VAL138", path, words)
    names = {name: g for g in parameters.given for name in (g.alias, g.name) if name}
    required = [given for given in parameters.given if given.z.is_required]
    for index, test in enumerate(items(tests)):
        place = f"{path}/{index}"
        if not isinstance(test, dict):
            yield Hit("VAL156", place, f"a test must be an object, {got(test)}")
            continue
        description = members(test).get("_description", UNSET)
        if not is_text(description):
            words = f"`_description` must be a text, {got(description)}"
            yield Hit("TST002", f"{place}/_description", words)
        if parameters.is_known:
            yield from _value_hits(members(test), place, names, required)
    if parameters.is_known:
        yield from _coverage_hits(items(tests), path, names, parameters)


def _value_hits(
    test: dict[str, Any], path: str, names: dict[str, Given], required: list[Given]
) -> Hits:
    for key, value in test.items():
        if key == "_description":
            continue
        given = names.get(key)
        if given is None:
            words = f"'{cut(key)}' is nothing that the caller can give"
            yield Hit("TST006", at(path, key), words, (key, names))
            continue
        wrong = given.z.violation(value)
        if wrong is not None:
            yield Hit("TST004", at(path, key), f"'{cut(key)}' {wrong}, got {shown(value)}")
    for given in required:
        if given.name not in test and given.alias not in test:
            yield Hit("TST003", at(path, given.name), f"'{cut(given.name)}' must be given")


def _coverage_hits(
    tests: list[Any], path: str, names: dict[str, Given], parameters: Parameters
) -> Hits:
    used: dict[str, list[Any]] = {}
    for test in tests:
        for key, value in members(test).items():
            if key in names:
                used.setdefault(names[key].name, []).append(value)
    optional = [given.name for given in parameters.given if not given.z.is_required]
    for given in parameters.given:
        values = used.get(given.name)
        if given.z.values and len(given.z.values) > 1 and values and _is_one(values):
            words = f"the tests give only one value for '{cut(given.name)}'"
            yield Hit("TST007", path, words)
    if optional and not any(name in used for name in optional):
        yield Hit("TST008", path, "no test gives an optional parameter")


def _is_one(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)
