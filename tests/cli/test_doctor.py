"""`doctor`, `list` and `check`: which file asks for which key, where it is sent, what is missing."""

from __future__ import annotations

import json

import pytest

import calls
import command_line

run = command_line.run
VALUE = "the-value-of-the-key"


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """A file that asks for a key, and one that asks for none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOP_KEY", raising=False)
    (tmp_path / "shop").mkdir()
    own = {"buy": calls.tool(calls.parameter("k", value="{{SHOP_KEY}}"))}
    keyed = calls.main(own, name="Keyed", requiredServerParams=["SHOP_KEY"])
    (tmp_path / "shop" / "Keyed.mjs").write_text(calls.exported(keyed), "utf-8")
    plain = calls.main({"look": calls.tool()}, name="Plain")
    (tmp_path / "shop" / "Plain.mjs").write_text(calls.exported(plain), "utf-8")
    return tmp_path


def row(text):
    """The row of the table of keys."""
    [line] = [line for line in text.splitlines() if line.startswith("SHOP_KEY ")]
    return " ".join(line.split())


def test_a_list_shows_which_file_asks_for_which_key_and_where_it_is_sent(catalogue, run):
    done = run("list", "-s", "shop")
    assert row(done.out) == "SHOP_KEY api.example.com shop/Keyed.mjs not granted"
    as_json = [json.loads(line) for line in run("list", "-s", "shop", "--json").out.splitlines()]
    assert [tool.get("keys") for tool in as_json] == [{"SHOP_KEY": "api.example.com"}, None]


def test_a_key_that_is_granted_is_shown_with_the_hosts_it_is_bound_to(catalogue, run, monkeypatch):
    monkeypatch.setenv("SHOP_KEY", VALUE)
    done = run("list", "-s", "shop", "--key", "SHOP_KEY@*.example.com")
    assert row(done.out) == "SHOP_KEY *.example.com shop/Keyed.mjs granted"
    assert VALUE not in done.out + done.err
    shown = run("show", "shop.buy", "-s", "shop", "--key", "SHOP_KEY").out
    assert "SHOP_KEY to api.example.com" in shown


def test_check_shows_which_file_asks_for_which_key_and_where_it_is_sent(catalogue, run):
    assert row(run("check", "shop").out) == "SHOP_KEY api.example.com shop/Keyed.mjs"
    lines = run("check", "shop", "--json").out.splitlines()
    told = [json.loads(line).get("keys") for line in lines]
    assert told == [{"SHOP_KEY": "api.example.com"}, None]


def test_doctor_says_what_keeps_a_tool_from_being_called_and_what_to_do(
    catalogue, run, monkeypatch
):
    monkeypatch.setenv("SHOP_KEY", VALUE)
    done = run("doctor", "-s", "shop")
    assert done.code == 1
    assert "2 tools, 1 of them disabled" in done.out
    assert '`keys = ["SHOP_KEY"]`' in done.out
    assert row(done.out) == "SHOP_KEY api.example.com shop/Keyed.mjs not granted"
    assert VALUE not in done.out + done.err


def test_doctor_is_content_where_all_can_be_called(catalogue, run, monkeypatch):
    monkeypatch.setenv("SHOP_KEY", VALUE)
    done = run("doctor", "-s", "shop", "--key", "SHOP_KEY")
    assert done.code == 0
    assert "2 tools, 0 of them disabled" in done.out


def test_a_key_option_reaches_the_server_of_a_client(catalogue, run, monkeypatch):
    monkeypatch.setenv("SHOP_KEY", VALUE)
    done = run("install", "cursor", "--print", "-s", "shop", "--key", "SHOP_KEY@x.example")
    [server] = json.loads(done.out)["mcpServers"].values()
    at = server["args"].index("--key")
    assert server["args"][at + 1] == "SHOP_KEY@x.example"
    assert VALUE not in done.out
