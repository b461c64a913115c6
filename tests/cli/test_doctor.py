"""`doctor`, `list` and `check`: which file asks for which key, where it is sent, what is missing."""

from __future__ import annotations

import json

import pytest

import calls
import command_line
from terminal import on_terminal

run = command_line.run
VALUE = "the-value-of-the-key"


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """A file that asks for a key, and one that asks for none."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
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


def parts(text):
    """The lines of each part of the page, by its title."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith((" ", "KEY", "SHOP_KEY", "SERVER")):
            lines = found[line] = []
        elif line.strip():
            lines.append(line.strip())
    return found


def test_one_page_names_sources_keys_clients_and_the_audit_log(catalogue, run):
    page = parts(run("doctor", "-s", "shop").out)
    assert list(page) == ["Sources", "Tools", "Clients", "Audit log"]
    assert page["Sources"] == ["shop: 2 tools"]
    assert "keys that are not set or not granted: SHOP_KEY" in page["Tools"]
    assert page["Clients"] == ["none is set up; `callpact install CLIENT` does it"]
    assert page["Audit log"] == [
        f"calls are recorded in {catalogue / 'data' / 'callpact' / 'audit'}"
    ]


def test_files_that_are_left_out_are_named_and_the_report_is_not_printed_twice(catalogue, run):
    for number in range(30):
        (catalogue / "shop" / f"Bad{number}.mjs").write_text("export const main = {", "utf-8")
    done = run("doctor", "-s", "shop")
    assert done.code == 1
    lines = parts(done.out)["Left out"]
    assert len(lines) == 11
    assert lines[0].startswith("shop/Bad0.mjs: ")
    assert lines[-1] == "20 more findings; `callpact list` and `callpact check` show them"
    assert done.err == ""


def test_missing_lists_and_libraries_come_with_the_line_that_mends_them(catalogue, run):
    for name in ("One", "Two"):
        needy = calls.main(
            {"get": calls.tool()},
            name=name,
            namespace=name.lower(),
            requiredLibraries=["left-pad"],
            sharedLists=[{"ref": "cities", "version": "1.0.0"}],
        )
        (catalogue / "shop" / f"{name}.mjs").write_text(calls.exported(needy), "utf-8")
    lines = parts(run("doctor", "-s", "shop").out)["Lists and libraries"]
    assert lines == [
        "list 'cities', for 2 files: write lists = \"DIR\" in the table of the source, or --lists DIR",
        (
            "library 'left-pad', for 2 files: write libraries = [\"left-pad\"] in the table of the source, "
            "or --allow-library left-pad"
        ),
    ]


def test_clients_that_are_set_up_are_listed_with_what_keeps_them_from_starting(
    catalogue, run, monkeypatch
):
    monkeypatch.setenv("SHOP_KEY", VALUE)
    (catalogue / "callpact.toml").write_text(
        '[sources.shop]\nref = "flowmcp:shop"\nkeys = ["SHOP_KEY"]\n', "utf-8"
    )
    for client in ("codex", "claude-code"):
        assert run("install", client, "--yes", "--name", "tea").code == 0
    (catalogue / "home" / ".gemini").mkdir()
    (catalogue / "home" / ".gemini" / "settings.json").write_text(
        '{"mcpServers": {"x": {}}}', "utf-8"
    )
    done = run("doctor")
    assert parts(done.out)["Clients"] == [
        f"Claude Code: tea ({catalogue / '.mcp.json'}), set up",
        f"Codex: tea ({catalogue / 'home' / '.codex' / 'config.toml'}), set up",
    ]
    assert done.code == 0
    (catalogue / "callpact.toml").rename(catalogue / "other.toml")
    done = run("doctor", "-c", "other.toml")
    assert done.code == 1
    assert parts(done.out)["Clients"][1].endswith(f"{catalogue / 'callpact.toml'} is not there")
    (catalogue / ".mcp.json").write_text("{", "utf-8")
    assert "cannot be read" in parts(run("doctor", "-c", "other.toml").out)["Clients"][0]


def test_sources_that_cannot_be_loaded_do_not_keep_the_page_from_being_printed(catalogue, run):
    done = run("doctor", "-s", "missing.py")
    assert done.code == 1
    page = parts(done.out)
    assert page["Sources"] == ["error: there is no file missing.py"]
    assert "Audit log" in page
    (catalogue / "callpact.toml").write_text(
        '[sources.a]\nref = "missing.py"\n[sources.b]\nref = "flowmcp:shop"\n', "utf-8"
    )
    lines = parts(run("doctor").out)["Sources"]
    assert lines == ["a (missing.py): there is no file missing.py", "b (flowmcp:shop): 2 tools"]


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}], ids=["colour", "no colour"])
@pytest.mark.parametrize("columns", [80, 120])
def test_the_page_is_wrapped_between_words(catalogue, run, columns, more):
    data = str(catalogue / "data")
    shown = on_terminal("doctor", "-s", "shop", columns=columns, XDG_DATA_HOME=data, **more)
    prose = [line for line in shown.text.splitlines() if str(catalogue) not in line]
    assert max(map(len, prose)) <= columns
    whole = " ".join(run("doctor", "-s", "shop").out.split())
    reason = whole.partition("1 tool: ")[2].partition(" keys that")[0]
    assert reason in " ".join(shown.text.split())
