"""`callpact diff`: its report, its JSON, its exit codes."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

import command_line

run = command_line.run
OLD = """
from typing import Literal
from callpact import tool

@tool
def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    "The price of an item."
    return 1.0
"""
WIDER = OLD.replace('"USD"]', '"USD", "CHF"]')


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes files by their names below an empty folder."""
    monkeypatch.chdir(tmp_path)

    def write(**texts):
        for folder, text in texts.items():
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "shop.py").write_text(text, "utf-8")

    return write


def test_a_wider_input_is_not_breaking_and_proved(project, run):
    project(old=OLD, new=WIDER)
    done = run("diff", "old/shop.py", "new/shop.py")
    assert done.code == 0
    assert 'non-breaking input /currency: value "CHF" was added (proved compatible)' in done.out
    assert "suggested bump: minor" in done.out


def test_a_breaking_change_has_exit_code_one_and_shows_a_value(project, run):
    project(old=WIDER, new=OLD)
    done = run("diff", "old/shop.py", "new/shop.py")
    assert done.code == 1
    assert "accepted before, refused now:" in done.out
    assert '"currency":"CHF"' in done.out


def test_json_holds_every_change_with_its_class(project, run):
    project(old=WIDER, new=OLD)
    done = run("diff", "old/shop.py", "new/shop.py", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["bump"], found["breaking"], found["unproved"]) == ("major", True, [])
    (change,) = found["changes"]
    example = change.pop("example")
    assert example["currency"] == "CHF"
    assert change == {
        "tool": "shop.price",
        "side": "input",
        "path": "/currency",
        "change": 'value "CHF" was dropped',
        "class": "breaking",
        "bump": "major",
        "decided": "refuted",
    }


def test_equal_contracts_have_no_change(project, run):
    project(old=OLD, new=OLD.replace("1.0", "2.0"))
    done = run("diff", "old/shop.py", "new/shop.py")
    assert (done.code, done.out) == (0, "no change\n")


def test_files_of_other_names_are_compared_by_the_names_of_tools(project, run, tmp_path):
    project(old=OLD, new=WIDER)
    (tmp_path / "new" / "shop.py").rename(tmp_path / "new" / "market.py")
    done = run("diff", "old/shop.py", "new/market.py")
    assert done.code == 0
    assert "suggested bump: minor" in done.out


def test_texts_of_a_schema_cannot_control_the_terminal(project, run):
    project(old=OLD, new=OLD.replace('"USD"]', '"USD", "\\x1b[31m[red]"]'))
    done = run("diff", "old/shop.py", "new/shop.py")
    assert "\x1b[31m" not in done.out
    assert "[red]" in done.out


def test_a_source_that_is_not_there_is_an_error(project, run):
    project(old=OLD)
    assert run("diff", "old/shop.py", "new/shop.py").code == 2


def test_sources_are_named_as_arguments_only(project, run):
    project(old=OLD, new=OLD)
    done = run("diff", "old/shop.py", "new/shop.py", "-s", "old/shop.py")
    assert done.code == 2
    assert "leave out --source" in done.err


def test_mcp_servers_are_compared_by_their_definitions(project, run):
    project(old=WIDER, new=OLD)
    served = [
        "mcp:"
        + shlex.join(
            [sys.executable, "-m", "callpact", "serve", "--stdio", "--audit", "off", "-s", file]
        )
        for file in ("old/shop.py", "new/shop.py")
    ]
    done = run("diff", *served, "--json")
    assert done.code == 1
    (change,) = json.loads(done.out)["changes"]
    assert (change["path"], change["example"]["currency"]) == ("/currency", "CHF")
