"""`audit drift`, `audit advice` and `replay`: which tools they judge, and what they say of others."""

from __future__ import annotations

import json

import pytest

import asked
from asked import MARKET, SHOP, called, lines, on_terminal, record_calls

ask = asked.ask
log = asked.log

HASHED = 'namespace="market", annotations={"audit": "hashes"}'


def test_answers_that_are_kept_as_hashes_are_not_said_to_keep_the_contract(ask, tmp_path):
    source = tmp_path / "market.py"
    hashed = MARKET.replace('namespace="market"', HASHED)
    source.write_text(hashed.replace('"price": "12.5"', '"price": 12.5'), "utf-8")
    lacking = [("market.ticker", {"number": 70})] * 2
    there = record_calls(tmp_path / "log", source, lacking)
    answer = ask("audit", "drift", "-s", source, *there)
    assert (answer.code, answer.out) == (0, "")
    # A field that is missing is no warning under `warn`.
    assert answer.err == "the outputs of 1 tool could not be judged: kept as hashes\n"
    [told] = lines(ask("audit", "drift", "-s", source, "--json", *there))
    assert (told["proof"]["checked"], told["proof"]["lost"]) == (0, {"hashed": 2})


def test_what_is_noted_beside_hashes_is_told_in_one_line(ask, tmp_path):
    source = tmp_path / "market.py"
    source.write_text(MARKET.replace('namespace="market"', HASHED), "utf-8")
    there = record_calls(tmp_path / "log", source, [("market.ticker", {"number": 70})])
    told = ask("audit", "drift", "-s", source, *there).out.splitlines()
    assert any(line.startswith("  /price  (first: ") for line in told)
    assert "  1 output could not be judged again: 1 kept as hashes" in told


def test_answers_of_which_some_cannot_be_judged_keep_the_contract_as_far_as_is_known(ask, tmp_path):
    source = tmp_path / "shop.py"
    source.write_text(SHOP, "utf-8")
    calls = [("shop.product_search", {"query": query}) for query in ("tea", "x" * 70_000)]
    there = record_calls(tmp_path / "log", source, calls)
    kept = "the outputs of 1 tool keep the contract, as far as they could be judged: some are cut\n"
    assert ask("audit", "drift", "-s", source, *there).err == kept
    nothing = "nothing to advise for 1 tool, as far as inputs could be judged: some are cut\n"
    assert ask("audit", "advice", "-s", source, *there).err == nothing


def test_inputs_that_are_kept_as_hashes_are_not_said_to_need_nothing(ask, tmp_path):
    source = tmp_path / "market.py"
    source.write_text(MARKET.replace('namespace="market"', HASHED), "utf-8")
    there = record_calls(tmp_path / "log", source, [("market.ticker", {"number": "x"})])
    answer = ask("audit", "advice", "market.ticker", "-s", source, *there)
    assert answer.err == "the inputs of 1 tool could not be judged: kept as hashes\n"


def test_a_tool_without_an_output_schema_has_no_contract_to_keep(ask, tmp_path):
    source = tmp_path / "open.py"
    source.write_text(
        """from typing import Any
from callpact import tool

@tool(namespace="open")
def anything() -> Any:
    return 1
""",
        "utf-8",
    )
    there = record_calls(tmp_path / "log", source, [("open.anything", {})])
    assert ask("audit", "drift", "-s", source, *there).err == "1 tool without an output schema\n"


# --- names ----------------------------------------------------------------------------------

RENAMED = MARKET.replace("def ticker(", "def price(").replace(
    'namespace="market"', 'namespace="market", aliases=["market.ticker"]'
)
JUDGES = ("drift", "advice")


def test_a_tool_that_was_renamed_is_found_by_its_former_id(ask, tmp_path):
    source, renamed = tmp_path / "market.py", tmp_path / "renamed.py"
    source.write_text(MARKET, "utf-8")
    renamed.write_text(RENAMED, "utf-8")
    calls = [("market.ticker", {"number": n}) for n in (70, "x", 1)]
    there = record_calls(tmp_path / "log", source, calls)
    for name in ("market.ticker", "market.price", "market.*", "*.price", "*.ticker"):
        [told] = lines(ask("audit", "drift", name, "-s", renamed, "--json", *there))
        assert (told["tool"], told["answers"]) == ("market.price", 2)
        assert len(told["findings"]) == 2
        [told] = lines(ask("audit", "advice", name, "-s", renamed, "--json", *there))
        assert (told["tool"], told["calls"], told["refused"]) == ("market.price", 3, 1)
    assert "cannot be judged" not in ask("audit", "drift", "-s", renamed, *there).err
    told = json.loads(ask("replay", "--against", renamed, "--json", *there).out)
    assert (told["gone"], told["now_refused"], told["admitted"]) == (0, 0, 2)


def test_calls_of_tools_that_are_gone_would_be_refused_now(ask, tmp_path):
    source, other = tmp_path / "market.py", tmp_path / "shop.py"
    source.write_text(MARKET, "utf-8")
    other.write_text(SHOP, "utf-8")
    calls = [("market.ticker", {"number": n}) for n in (70, "x", 1)]
    there = record_calls(tmp_path / "log", source, calls)
    told = ask("replay", "--against", other, *there).out.splitlines()
    assert "2 of 2 let in then would be refused now" in told
    assert "  2 × market.ticker  tool_not_found::" in told
    assert "3 calls of tools that are not in the sources: market.ticker" in told


def test_calls_of_a_tool_that_came_later_would_pass_now(ask, tmp_path):
    source, other = tmp_path / "market.py", tmp_path / "shop.py"
    source.write_text(MARKET, "utf-8")
    other.write_text(SHOP, "utf-8")
    calls = [("market.ticker", {"number": n}) for n in (70, "x", 1)]
    there = record_calls(tmp_path / "log", other, calls)
    told = ask("replay", "--against", source, *there).out.splitlines()
    assert "2 of 3 refused then would pass now" in told
    assert "  2 × market.ticker  tool_not_found::" in told


@pytest.mark.parametrize("command", JUDGES)
def test_a_pattern_that_no_tool_fits_is_told(ask, log, tmp_path, command):
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    there = log(called(1, tool="shop.product_search"))
    answer = ask("audit", command, "zz*", "-s", "shop.py", *there)
    assert (answer.code, answer.out) == (2, "")
    assert "there is no tool that fits 'zz*'" in answer.err


@pytest.mark.parametrize("command", JUDGES)
def test_a_pattern_of_tools_without_a_call_is_told(ask, log, tmp_path, command):
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    there = log(called(1))
    answer = ask("audit", command, "shop.product*", "-s", "shop.py", *there)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "no call on record is of a tool that fits 'shop.product*'\n"


@pytest.mark.parametrize("command", JUDGES)
def test_a_name_that_a_caller_made_up_is_no_tool_that_is_gone(ask, log, tmp_path, command):
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    missing = {"gate": "find", "code": "tool_not_found", "key": "tool_not_found::"}
    there = log(
        called(1, tool="shop.product_search"),
        called(2, tool="made.up", **missing),
        called(3, tool="shop.gone"),
        called(4, tool="shop.gone", **missing),
    )
    told = ask("audit", command, "-s", "shop.py", *there).err
    assert "1 tool on record cannot be judged: not in the sources" in told


@pytest.mark.parametrize("command", JUDGES)
def test_json_is_one_object_for_each_tool(ask, command):
    told = ask("audit", command, "--help").out.replace("│", "")
    assert "One JSON object for each tool" in " ".join(told.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_the_header_of_a_report_is_above_its_rows_on_a_terminal(tmp_path, columns):
    source = tmp_path / "shop.py"
    source.write_text(SHOP, "utf-8")
    calls = [("shop.product_search", {"query": "tea", "limit": 80})]
    there = record_calls(tmp_path / "log", source, calls)
    _, header, row, *_ = on_terminal(columns, "audit", "advice", "-s", source, *there)
    assert header.index("ARGUMENT") == row.index("/limit")
    assert header.index("REFUSED") + len("REFUSED") == row.index("1 ") + 1


# --- namespaces that come from the names of files -------------------------------------------

UNNAMED = SHOP.replace('namespace="shop", ', "")
TAKEN = "'shop' on record is taken for 'looser'"


def unnamed(tmp_path, text=UNNAMED):
    """Calls of a tool whose namespace is the name of its file, and the same file with another."""
    (tmp_path / "shop.py").write_text(UNNAMED, "utf-8")
    calls = [("shop.product_search", {"query": "tea", "limit": n}) for n in (5, 80)]
    there = record_calls(tmp_path / "log", tmp_path / "shop.py", calls)
    other = tmp_path / "looser.py"
    other.write_text(text.replace("le=50", "le=100"), "utf-8")
    return other, there


def test_a_replay_matches_tools_whose_namespace_came_from_another_file_name(ask, tmp_path):
    other, there = unnamed(tmp_path)
    for options in ((), ("--tool", "shop.product_search")):
        answer = ask("replay", "--against", other, *options, *there)
        assert "0 of 1 let in then would be refused now" in answer.out
        assert "1 of 1 refused then would pass now" in answer.out
        assert answer.err.count(TAKEN) == 1
    told = json.loads(ask("replay", "--against", other, "--json", *there).out)
    assert (told["gone"], told["now_refused"], told["now_admitted"]) == (0, 0, 1)


def test_drift_and_advice_match_tools_whose_namespace_came_from_another_file_name(ask, tmp_path):
    other, there = unnamed(tmp_path)
    for tool in ((), ("shop.product_search",), ("shop.*",), ("looser.*",)):
        drift = ask("audit", "drift", *tool, "-s", other, *there)
        assert (drift.code, drift.out) == (0, "")
        assert TAKEN in drift.err
        assert "the outputs of 1 tool keep the contract" in drift.err
        [told] = lines(ask("audit", "advice", *tool, "-s", other, "--json", *there))
        assert (told["tool"], told["calls"]) == ("looser.product_search", 2)
        assert (told["refused"], told["outdated"]) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        SHOP.replace('namespace="shop"', 'namespace="looser_shop"'),
        UNNAMED.replace("product_search", "order"),
    ],
    ids=["a namespace that was given", "another name"],
)
def test_a_tool_that_is_another_is_not_taken_for_one_on_record(ask, tmp_path, text):
    other, there = unnamed(tmp_path, text)
    answer = ask("replay", "--against", other, *there)
    assert "is taken for" not in answer.err
    assert "2 calls of tools that are not in the sources: shop.product_search" in answer.out


def test_of_two_files_with_the_same_tools_none_is_taken(ask, tmp_path):
    other, there = unnamed(tmp_path)
    third = tmp_path / "third.py"
    third.write_text(UNNAMED, "utf-8")
    answer = ask("replay", "--against", other, "--against", third, *there)
    assert "is taken for" not in answer.err
    assert "not in the sources: shop.product_search" in answer.out
