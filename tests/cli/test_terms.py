"""`callpact show` of a FlowMCP tool: its documentation, terms and licence (seed 002)."""

from __future__ import annotations

import json

import pytest

import calls
import command_line

run = command_line.run

TERMS = {
    "docs": ["https://docs.example.com", "https://docs.example.com/more"],
    "termsOfService": "https://example.com/terms",
    "termsOfServiceCheckedAt": "2026-05-18",
    "termsOfServiceLanguage": "en",
    "dataLicense": "https://example.com/licence",
    "dataLicenseName": "CC-BY-SA-4.0",
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    def make(**fields):
        (tmp_path / "Shop.mjs").write_text(calls.exported(calls.main(**fields)), "utf-8")
        monkeypatch.chdir(tmp_path)

    return make


def facts(shown):
    lines = (line.strip().partition("  ") for line in shown.splitlines())
    return {label: value.strip() for label, _, value in lines}


@pytest.mark.requirement("002.optional.docs")
@pytest.mark.requirement("002.optional.terms-of-service")
@pytest.mark.requirement("002.optional.data-license")
def test_show_prints_docs_terms_and_licence_of_a_file(shop, run):
    shop(**TERMS)
    shown = facts(run("show", "shop.getIt", "-s", "Shop.mjs").out)
    assert shown["docs"] == "https://docs.example.com, https://docs.example.com/more"
    assert shown["terms"] == "https://example.com/terms (checked 2026-05-18, language en)"
    assert shown["data licence"] == "CC-BY-SA-4.0, https://example.com/licence"


def test_show_as_json_has_them_under_the_names_of_the_file(shop, run):
    shop(**TERMS)
    assert json.loads(run("show", "shop.getIt", "-s", "Shop.mjs", "--json").out)["terms"] == TERMS


@pytest.mark.parametrize(
    "fields",
    [{}, dict.fromkeys(TERMS) | {"docs": []}, {"termsOfService": 7, "dataLicenseName": ["x"]}],
)
def test_what_a_file_does_not_say_is_not_printed(shop, run, fields):
    shop(**fields)
    shown = run("show", "shop.getIt", "-s", "Shop.mjs").out
    assert facts(shown).keys().isdisjoint({"docs", "terms", "data licence"})
    assert "terms" not in json.loads(run("show", "shop.getIt", "-s", "Shop.mjs", "--json").out)


def test_each_of_them_may_stand_alone(shop, run):
    shop(dataLicenseName="Public Domain", termsOfService="https://example.com/terms")
    shown = facts(run("show", "shop.getIt", "-s", "Shop.mjs").out)
    assert (shown["terms"], shown["data licence"]) == ("https://example.com/terms", "Public Domain")
    assert "docs" not in shown
