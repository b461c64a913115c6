"""`callpact packages`: the list of versions and the way back, and `publish` after it."""

from __future__ import annotations

import json

import pytest

import command_line

run = command_line.run
SHOP = """
from typing import Literal
from callpact import tool

@tool
def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    "The price of an item."
    return 1.0
"""
WIDER = SHOP.replace('"USD"]', '"USD", "CHF"]')
COMMAND = ("publish", "-s", "shop.py", "--name", "shop")


@pytest.fixture
def shop(tmp_path, monkeypatch, run):
    """A folder with the versions 1.0.0 and 1.1.0 of the package, the current one."""
    monkeypatch.chdir(tmp_path)
    for text in (SHOP, WIDER):
        (tmp_path / "shop.py").write_text(text, "utf-8")
        assert run(*COMMAND).code == 0
    return tmp_path


def listed(run, *args):
    found = json.loads(run("packages", "list", "--json", *args).out)
    return {f"{each['name']}@{each['version']}": bool(each["withdrawn"]) for each in found}


def test_versions_are_listed_the_newest_first(shop, run):
    lines = run("packages", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["PACKAGE", "shop@1.1.0", "shop@1.0.0"]
    assert all("offered" in line and "sha256:" in line for line in lines[1:])
    assert run("packages", "list", "shop").out.splitlines() == lines


def test_a_rollback_withdraws_later_versions_and_a_new_version_gets_a_new_number(shop, run):
    done = run("packages", "rollback", "shop@1.0.0")
    assert done.out == "shop@1.1.0: withdrawn\nshop@1.0.0: offered\n"
    assert listed(run) == {"shop@1.1.0": True, "shop@1.0.0": False}
    assert run("diff", "shop@^1", "shop@1.1.0").out.splitlines()[-1].endswith("bump: minor")

    published = run(*COMMAND).out
    assert 'value "CHF" was added' in published  # Compared with the version that is offered.
    assert "shop@1.2.0: 1 contract published" in published
    assert listed(run) == {"shop@1.2.0": False, "shop@1.1.0": True, "shop@1.0.0": False}


def test_a_rollback_is_taken_back_by_another(shop, run):
    run("packages", "rollback", "shop@1.0.0")
    assert run("packages", "rollback", "shop@1.1.0").out == "shop@1.1.0: offered\n"
    assert listed(run) == {"shop@1.1.0": False, "shop@1.0.0": False}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("rollback", "shop"), "a version is NAME@VERSION"),
        (("rollback", "shop@^1"), "a version is MAJOR.MINOR.PATCH"),
        (("rollback", "shop@3.0.0"), "no shop@3.0.0 is published; there is 1.0.0, 1.1.0"),
        (("rollback", "shoe@1.0.0"), "there is no package 'shoe'"),
        (("rollback", "../shop@1.0.0"), "the name of a package"),
        (("list", "shoe"), "there is no package 'shoe'; there is shop"),
    ],
)
def test_what_does_not_exist_is_an_error_that_says_so(shop, run, args, words):
    failed = run("packages", *args)
    assert failed.code == 2
    assert words in failed.err


def test_a_folder_without_packages_is_empty_and_is_not_made(shop, run):
    assert "no packages in other" in run("packages", "list", "--packages", "other").err
    assert run("packages", "rollback", "shop@1.0.0", "--packages", "other").code == 2
    assert not (shop / "other").exists()


def test_two_published_versions_are_compared_on_recorded_calls(shop, run):
    for currency in ("EUR", "USD", "CHF", "XXX"):
        run("call", "-s", "shop.py", "shop.price", "item=tea", f"currency={currency}")
    versions = ("--from", "shop@1.0.0", "--against", "shop@1.1.0")
    found = run("replay", *versions).out.splitlines()
    assert found[0] == "4 recorded calls; nothing was run"
    assert "0 of 2 let in then would be refused now" in found
    assert "1 of 2 refused then would pass now" in found
    assert "0 of 3 outputs that kept the contract then would break it now" in found
    back = json.loads(run("replay", "--from", "shop@1.1.0", "--against", "shop@~1.0", "--json").out)
    assert (back["now_refused"], back["now_admitted"]) == (1, 0)
    assert run("replay", "--from", "shop@7", "--against", "shop@1").code == 2
