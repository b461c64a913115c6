"""`audit drift`, `audit advice` and `replay`: what they say of tools that they cannot judge."""

from __future__ import annotations

import asked
from asked import MARKET, SHOP, lines, record_calls

ask = asked.ask

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
    assert answer.err == "the answers of 1 tool could not be judged: kept as hashes\n"
    [told] = lines(ask("audit", "drift", "-s", source, "--json", *there))
    assert (told["proof"]["checked"], told["proof"]["lost"]) == (0, {"hashed": 2})


def test_what_is_noted_beside_hashes_is_told_in_one_line(ask, tmp_path):
    source = tmp_path / "market.py"
    source.write_text(MARKET.replace('namespace="market"', HASHED), "utf-8")
    there = record_calls(tmp_path / "log", source, [("market.ticker", {"number": 70})])
    told = ask("audit", "drift", "-s", source, *there).out.splitlines()
    assert any(line.startswith("  /price  (first: ") for line in told)
    assert "  1 answer could not be judged again: 1 kept as hashes" in told


def test_answers_of_which_some_cannot_be_judged_keep_the_contract_as_far_as_is_known(ask, tmp_path):
    source = tmp_path / "shop.py"
    source.write_text(SHOP, "utf-8")
    calls = [("shop.product_search", {"query": query}) for query in ("tea", "x" * 70_000)]
    there = record_calls(tmp_path / "log", source, calls)
    kept = "the answers of 1 tool keep the contract, as far as they could be judged: some are cut\n"
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
