"""Rules and tests are tied in both directions, as far as reading the files can tell."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent


def _table():
    spec = importlib.util.spec_from_file_location("requirements_table", HERE / "requirements.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.REQUIREMENTS


def _named_in(path):
    """The ids that a test file names, each with the test function that carries it.

    By `@pytest.mark.requirement(id)`, or by `rule(id, …)` among the cases of a `parametrize`.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in (call for decorator in node.decorator_list for call in ast.walk(decorator)):
            if isinstance(mark, ast.Call) and mark.args and _names_a_rule(mark.func):
                yield ast.literal_eval(mark.args[0]), node.name


def _names_a_rule(function):
    return ast.unparse(function).endswith("mark.requirement") or ast.unparse(function) == "rule"


def _named():
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for key, test in _named_in(path):
            found[key].append(f"{path.relative_to(TESTS)}::{test}")
    return found


TABLE = _table()
NAMED = _named()


def test_every_id_stands_once():
    assert [key for key, count in Counter(row.id for row in TABLE).items() if count > 1] == []


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_a_row_is_complete(row):
    assert re.fullmatch(r"00[0-4]\.[a-z0-9-]+\.[a-z0-9-]+", row.id)
    assert row.seed == row.id[:3]
    assert row.sentence.endswith(".")
    assert row.status in {"held", "divergent", "deferred"}
    assert bool(row.note) == (row.status != "held")


def test_every_rule_that_is_held_or_ruled_otherwise_has_a_test_that_names_it():
    due = [row.id for row in TABLE if row.status != "deferred"]
    assert [key for key in due if not NAMED.get(key)] == []


def test_no_test_names_a_rule_that_still_waits():
    waiting = {row.id for row in TABLE if row.status == "deferred"}
    assert {key: tests for key, tests in NAMED.items() if key in waiting} == {}


def test_every_id_that_a_test_names_is_in_the_table():
    known = {row.id for row in TABLE}
    assert {key: tests for key, tests in NAMED.items() if key not in known} == {}


def test_only_tests_name_rules():
    assert [t for tests in NAMED.values() for t in tests if "::test_" not in t] == []


def test_the_rows_of_a_seed_stand_in_its_own_file():
    files = {path.stem.removeprefix("seed_") for path in (HERE / "seeds").glob("seed_*.py")}
    assert {row.seed for row in TABLE} == files >= {"000", "001", "002", "004"}
