"""`callpact diff`: its report, its JSON, its exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from itertools import pairwise

import pytest

import command_line
from schema_file import FILE, GOOD, TOOL, changed, exported, hashed, parameter

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


@pytest.mark.parametrize("names", [("old", "new"), ("new", "old")])
def test_a_side_that_could_not_be_loaded_in_full_is_exit_code_2(names, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    other = hashed({**GOOD, "namespace": "shop"})
    for name, second in zip(
        names, (other, changed((f"{TOOL}/method", "SEND"), main=other)), strict=True
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_text(exported(GOOD), "utf-8")
        (tmp_path / name / "Shop.mjs").write_text(exported(second), "utf-8")
    done = run("diff", "old", "new")
    assert done.code == 2
    assert "shop.getTokenPrice" in done.out
    assert f"not everything of {names[1]} could be loaded; the comparison is incomplete" in done.err


def with_parameter(block):
    return changed((f"{TOOL}/parameters", [parameter("id", location="insert"), block]))


def git(folder, *words):
    own = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *own, *words]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return done.stdout.decode()


def test_the_versions_of_a_file_in_a_repository_are_compared(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    repository = tmp_path / "catalogue"
    repository.mkdir()
    git(repository, "init", "--quiet")
    unit = parameter("unit", primitive="enum(EUR,USD)", options=["default(EUR)"])
    united = with_parameter(unit)
    versions = {
        "1.0.0": GOOD,
        "1.0.1": changed((f"{TOOL}/description", "Get a price")),
        "1.1.0": united,
        "1.1.1": with_parameter({**unit, "z": {**unit["z"], "options": []}}),
    }
    for version, main in versions.items():
        text = exported(changed(("/schemaVersion", version), main=main))
        (repository / FILE).write_text(text, "utf-8")
        git(repository, "add", FILE)
        git(repository, "commit", "--quiet", "-m", version)
    commits = git(repository, "log", "--format=%h", "--reverse", "--", FILE).split()
    found = []
    for commit in pairwise(commits):
        for name, each in zip(("old", "new"), commit, strict=True):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / FILE).write_text(git(repository, "show", f"{each}:{FILE}"), "utf-8")
        done = run("diff", "old", "new", "--json")
        report = json.loads(done.out)
        found.append((report["bump"], done.code, report["violations"]))
    assert found == [
        ("patch", 0, []),
        ("minor", 0, []),
        (
            "major",
            1,
            [
                "token-prices/TokenPrices: schemaVersion 1.1.0 → 1.1.1 is patch, its changes are major"
            ],
        ),
    ]
