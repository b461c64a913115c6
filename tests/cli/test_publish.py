"""`callpact publish`, and `callpact diff` of published versions."""

from __future__ import annotations

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
def shop(tmp_path, monkeypatch):
    """Writes the file of the tools; the folder is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "shop.py").write_text(text, "utf-8")
        return tmp_path

    return write


def test_the_first_version_is_one_and_the_same_contracts_are_published_once(shop, run):
    shop(SHOP)
    assert run(*COMMAND).out == "shop@1.0.0: 1 contract published\n"
    assert run(*COMMAND).out == "shop@1.0.0: as published\n"
    assert run(*COMMAND, "--version", "1.0.0").out == "shop@1.0.0: as published\n"


def test_the_suggested_step_is_taken_and_a_smaller_one_refused(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(WIDER)
    refused = run(*COMMAND, "--bump", "patch")
    assert refused.code == 2
    assert "need a minor step, and 1.0.1 is patch" in refused.err
    assert "shop@1.1.0: 1 contract published" in run(*COMMAND).out
    shop(SHOP)
    assert "shop@2.0.0" in run(*COMMAND).out


def test_a_change_of_code_only_is_a_patch(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(SHOP.replace("return 1.0", "return 2.0"))
    assert "shop@1.0.1" in run(*COMMAND).out


def test_a_published_version_never_changes(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(WIDER)
    for more in ((), ("--dry-run",)):
        refused = run(*COMMAND, "--version", "1.0.0", *more)
        assert refused.code == 2
        assert "it never changes" in refused.err


def test_a_dry_run_writes_nothing(shop, run):
    folder = shop(SHOP)
    assert "would be published" in run(*COMMAND, "--dry-run").out
    assert not (folder / "contracts").exists()


@pytest.mark.parametrize("name", ["../shop", "Shop", "", "a" * 65])
def test_a_name_that_is_no_name_of_a_package_is_refused(shop, run, name):
    shop(SHOP)
    assert run("publish", "-s", "shop.py", "--name", name).code == 2


def test_diff_takes_published_versions_and_folders(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(WIDER)
    run(*COMMAND)
    assert "suggested bump: minor" in run("diff", "shop@1.0.0", "shop@latest").out
    assert run("diff", "shop@^1", "shop.py").out == "no change\n"
    assert run("diff", "contracts", "shop.py").out == "no change\n"
    assert run("diff", "shop@9", "shop.py").code == 2
