"""The table of codes: complete, and as bad as the seeds and the design have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callpact.sources import flowmcp
from callpact.sources.flowmcp.check.rule_table import _TABLE, ELSEWHERE, RULES

SOURCE = Path(flowmcp.__file__).parent
RANK = {None: 0, "info": 1, "warning": 2, "error": 3}
KEY = re.compile(r'"((?:VAL|RES|LST|TST|SEC)\d{3}(?::[a-z]+)?|HSH-\d{3})"')


def test_every_code_stands_once_in_the_table():
    assert len(RULES) == len(_TABLE.strip().splitlines())


def test_what_the_rules_give_is_what_the_table_has():
    files = [*SOURCE.glob("check/rules/*.py"), SOURCE / "read/scan.py", SOURCE / "read/exports.py"]
    files.append(SOURCE / "check/file_check.py")
    given = {key for file in files for key in KEY.findall(file.read_text("utf-8"))}
    assert given == set(RULES) - ELSEWHERE


def test_no_rule_is_worse_in_compat_than_in_strict():
    assert [k for k, rule in RULES.items() if RANK[rule.compat] > RANK[rule.strict]] == []


def test_every_row_says_what_holds_what_to_do_and_who_says_so():
    for rule in RULES.values():
        assert rule.meaning
        assert rule.remedy
        assert rule.source.startswith(("000 ", "002 ", "FlowMCP ", "own"))


def test_a_code_that_flowmcp_uses_twice_is_reported_as_flowmcp_writes_it():
    assert RULES["VAL060:preload"].code == "VAL060"
    assert RULES["VAL060"].code == "VAL060"
    assert RULES["SEC101:usual"].code == "SEC101"


@pytest.mark.parametrize(
    ("key", "strict", "compat"),
    [
        # Seed 002 says `required`, compat assumes 1.0.0 and computes the hash.
        ("VAL080", "error", "warning"),
        ("VAL082", "error", "warning"),
        ("VAL083", "error", "error"),
        ("VAL084", "error", "error"),
        ("VAL100", "error", "warning"),
        # Seed 000: a fifth level is rejected; compat ignores it when data is checked.
        ("VAL063", "error", "warning"),
        ("VAL120", "error", "warning"),
        ("VAL121", "error", "warning"),
        # Design, decision 1.
        ("VAL030", "error", "warning"),
        ("VAL050", "error", "warning"),
        ("VAL091", "error", "warning"),
        ("VAL097", "error", "warning"),
        ("VAL098", "error", "warning"),
        ("VAL123", "error", "warning"),
        # What real files do everywhere.
        ("VAL090", "error", "warning"),
        ("VAL092", "error", "info"),
        ("VAL093", "error", "warning"),
        ("VAL094", "error", "warning"),
        # Seed 002: missing keys cause a runtime error; a `return` that is seen may not be reached.
        ("SEC101", "error", "warning"),
        ("SEC101:usual", "error", "warning"),
        ("SEC100", "error", "error"),
        ("VAL005", "warning", "warning"),
        ("VAL161", "warning", "warning"),
        # Said to be an alias with a warning by seed 002 itself.
        ("VAL018", "warning", "warning"),
        ("VAL096", "warning", "warning"),
        ("VAL036", "warning", "warning"),
        # What is not forgiven.
        ("VAL011", "error", "error"),
        ("VAL073", "error", "error"),
        ("VAL085", "error", "error"),
        ("VAL087", "error", "error"),
        ("VAL089", "error", "error"),
        ("VAL099", "error", "error"),
        ("SEC001", "error", "error"),
        # Seed 002 forbids them; what hooks have built in does no harm.
        ("SEC001:builtin", "error", "warning"),
        ("SEC020", "error", "error"),
        ("SEC020:builtin", "error", "warning"),
        ("SEC017", "error", "error"),
    ],
)
def test_severities_are_those_of_the_seeds_and_the_design(key, strict, compat):
    assert (RULES[key].strict, RULES[key].compat) == (strict, compat)
