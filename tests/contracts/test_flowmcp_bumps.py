"""Every rule of FlowMCP's guide for versions, and where our own table decides instead."""

from __future__ import annotations

import copy
import json

import pytest

import command_line
from callpact import Catalog, Contract, Tool, from_flowmcp
from callpact.contracts import (
    FLOWMCP_BUMPS,
    Prover,
    diff_catalogs,
    is_flowmcp,
    with_flowmcp_bumps,
)
from callpact.schema import schema_hash
from callpact.testing import StubTransport
from schema_file import FILE, GONE, GOOD, LIST, TOOL, changed, exported, parameter, tool

run = command_line.run
FIRST = f"{TOOL}/parameters/0"
FIELDS = f"{TOOL}/output/schema/properties"
UNIT = parameter("unit", primitive="enum(EUR,USD)", options=["default(EUR)"])
CHAIN = parameter("chain", primitive="enum({{evmChains:alias}})", options=["optional()"])
KEYED = [
    ("/requiredServerParams", ["SHOP_KEY"]),
    (f"{TOOL}/parameters", [parameter("id", location="insert"), parameter("key", "{{SERVER_PARAM:SHOP_KEY}}")]),
]  # fmt: skip
LISTED = changed(
    ("/sharedLists", [{"ref": "evmChains", "version": "1.0.0"}]),
    (f"{TOOL}/parameters", [parameter("id", location="insert"), CHAIN]),
)
SHORTER = {**LIST, "entries": LIST["entries"][:1]}


@pytest.fixture(scope="module")
def prover():
    with Prover() as made:
        yield made


def write(folder, main, entries=LIST):
    (folder / "_lists").mkdir(parents=True)
    (folder / "_lists" / "evm-chains.mjs").write_text(exported(entries, "list"), "utf-8")
    (folder / FILE).write_text(exported(main), "utf-8")
    return Catalog(from_flowmcp(folder / FILE, transport=StubTransport(None)))


@pytest.fixture
def compare(tmp_path, prover):
    """Writes two files, and compares their tools."""

    def found(old, new, before=LIST, after=LIST):
        catalogs = write(tmp_path / "old", old, before), write(tmp_path / "new", new, after)
        assert all(map(is_flowmcp, catalogs))
        return with_flowmcp_bumps(diff_catalogs(*catalogs, prover=prover), *catalogs)

    return found


def with_parameter(block):
    return changed((f"{TOOL}/parameters", [parameter("id", location="insert"), block]))


TWO = changed(("/tools/getOther", tool(description="Another.")))
MORE = changed((f"{FIELDS}/volume", {"type": "number", "description": "Of a day"}))
UNITED = with_parameter(UNIT)
# the rule, old file, new file, bump; the other direction is another row
ROWS = [
    ("rename or remove a tool", TWO, GOOD, "major"),
    ("add a tool", GOOD, TWO, "minor"),
    ("rename or remove a parameter", UNITED, GOOD, "major"),
    ("add an optional parameter", GOOD, UNITED, "minor"),
    ("add a required parameter", GOOD, with_parameter(parameter("unit")), "major"),
    ("rename or remove an output field", MORE, GOOD, "major"),
    ("add an output field", GOOD, MORE, "minor"),
    ("change a default", UNITED, with_parameter({**UNIT, "z": {**UNIT["z"], "options": ["default(USD)"]}}), "minor"),
    ("change a meaning", GOOD, changed((f"{TOOL}/path", "/v2/price/{{id}}")), "minor"),
    ("change a meaning", GOOD, changed(("/root", "https://api.example.com/v2")), "minor"),
    ("change `requiredServerParams`", GOOD, changed(*KEYED), "minor"),
    ("change `requiredServerParams`", changed(*KEYED), GOOD, "minor"),
    ("wording", GOOD, changed((f"{TOOL}/description", "Get a price")), "patch"),
    ("wording", GOOD, changed((f"{FIELDS}/price/description", "In USD")), "patch"),
]  # fmt: skip


@pytest.mark.requirement("002.required.schema-version-bump")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[3]}")
def test_a_change_has_the_bump_of_flowmcps_rule(row, compare):
    rule, old, new, bump = row
    found = compare(old, new)
    assert (found.bump, found.rules) == (bump, "FlowMCP")
    assert rule in {change.rule for change in found.changes}
    assert (rule, bump) in {(each.change, each.bump) for each in FLOWMCP_BUMPS}


@pytest.mark.parametrize(("before", "after"), [(LIST, SHORTER), (SHORTER, LIST)])
def test_an_entry_of_a_shared_list_is_a_patch(before, after, compare):
    found = compare(LISTED, LISTED, before, after)
    assert found.bump == "patch"
    assert {change.rule for change in found.changes} == {"list entry"}
    assert found.violations == ()


def test_every_rule_has_a_row():
    assert {row[0] for row in ROWS} | {"list entry"} == {rule.change for rule in FLOWMCP_BUMPS}


@pytest.mark.parametrize(
    ("old", "new", "bump"),
    [
        (UNITED, with_parameter(parameter("unit", primitive="enum(EUR)", options=["default(EUR)"])), "major"),
        (with_parameter(parameter("n", primitive="number()", options=["max(5)"])), with_parameter(parameter("n", primitive="number()", options=["max(9)"])), "minor"),
        (GOOD, changed((f"{FIELDS}/price/type", "string")), "major"),
    ],
)  # fmt: skip
def test_a_change_that_flowmcp_does_not_name_is_classified_by_the_table(old, new, bump, compare):
    found = compare(old, new)
    assert found.bump == bump
    assert "" in {change.rule for change in found.changes}


@pytest.mark.requirement("002.required.schema-version-bump")
@pytest.mark.parametrize(
    ("version", "violations"),
    [
        ("1.0.0", ["token-prices/TokenPrices: its content changed, and schemaVersion is still 1.0.0 (minor)"]),
        ("0.9.0", ["token-prices/TokenPrices: its content changed, and schemaVersion 1.0.0 → 0.9.0 is not higher (minor)"]),
        ("1.0.1", ["token-prices/TokenPrices: schemaVersion 1.0.0 → 1.0.1 is patch, its changes are minor"]),
        ("1.1.0", []),
        ("2.0.0", []),
    ],
)  # fmt: skip
def test_a_version_that_was_not_raised_enough_is_a_violation(version, violations, compare):
    new = copy.deepcopy({**MORE, "schemaVersion": version})
    found = compare(GOOD, {**new, "schemaHash": schema_hash(new)})
    assert list(found.violations) == violations


def test_equal_files_have_neither_changes_nor_violations(compare):
    found = compare(GOOD, GOOD)
    assert (found.changes, found.violations) == ((), ())


def test_other_tools_are_none_of_flowmcp():
    async def handler(arguments, context):
        return None

    other = Tool(id="shop.price", description="", contract=Contract(), handler=handler)
    assert not is_flowmcp(Catalog([other]))
    assert not is_flowmcp(Catalog([]))


def test_the_report_says_which_rules_were_applied(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "old", GOOD)
    write(tmp_path / "new", MORE)
    done = run("diff", "old", "new")
    assert done.code == 0
    assert "output /volume: the property was added" in done.out
    assert " (FlowMCP: add an output field)\n" in done.out
    assert "suggested bump: minor, by FlowMCP's rules\n" in done.out
    assert "schemaVersion is still 1.0.0 (minor)" in done.err
    found = json.loads(run("diff", "old", "new", "--json").out)
    assert (found["rules"], found["bump"], len(found["violations"])) == ("FlowMCP", "minor", 1)
    assert found["changes"][0]["rule"] == "add an output field"


def test_a_file_that_is_gone_leaves_its_tools_to_the_table(tmp_path, prover):
    catalogs = write(tmp_path / "old", GOOD), write(tmp_path / "new", TWO)
    (tmp_path / "new" / FILE).unlink()
    found = with_flowmcp_bumps(diff_catalogs(*catalogs, prover=prover), *catalogs)
    assert found.bump == "minor"


def test_the_output_of_a_tool_may_go(compare):
    found = compare(GOOD, changed((f"{TOOL}/output", GONE)))
    assert found.bump == "major"
