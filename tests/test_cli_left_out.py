"""`callpact list` and `callpact check` of a FlowMCP file that has only resources (VAL165)."""

from __future__ import annotations

import json

import pytest

import calls
import command_line
import kit

run = command_line.run

ABOUT = {"source": "markdown", "origin": "inline", "name": "about.md", "description": "About"}
NOT_LOADED = "the file has no tools, only resources: nothing of it is loaded"


def file(namespace, tools, **fields):
    """A FlowMCP file that has no other findings."""
    name = namespace.title()
    main = calls.main(tools, namespace=namespace, name=name, meta=kit.META, **fields)
    return calls.exported(kit.hashed(main))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Guide.mjs has only resources; Shop.mjs has a tool."""
    guide = file("guide", {}, resources={"about": ABOUT})
    (tmp_path / "Guide.mjs").write_text(guide, "utf-8")
    (tmp_path / "Shop.mjs").write_text(file("shop", {"getIt": kit.tool()}), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_reports_a_file_with_only_resources_beside_the_tools_of_others(folder, run):
    done = run("list", "--json", "-s", f"flowmcp:{folder}")
    assert done.code == 0
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["shop.getIt"]
    assert "Guide.mjs: VAL165" in done.err
    assert NOT_LOADED in done.err
    assert "Shop.mjs" not in done.err


def test_list_of_nothing_but_resources_fails_and_says_why(folder, run):
    done = run("list", "-s", "Guide.mjs")
    assert (done.code, done.out) == (2, "")
    first, last = done.err.splitlines()
    assert first.startswith(f"warning: Guide.mjs: VAL165 {NOT_LOADED}")
    assert last == "error: no tool could be loaded"


@pytest.mark.parametrize("profile", ["strict", "compat"])
def test_check_reports_a_file_with_only_resources_as_not_loaded(folder, run, profile):
    done = run("check", "--json", "--profile", profile, folder)
    guide, shop = (json.loads(line) for line in done.out.splitlines())
    assert done.code == 0
    assert (shop["verdict"], shop["issues"]) == ("ok", [])
    assert (guide["verdict"], guide["tools"]) == ("warning", [])
    (issue,) = guide["issues"]
    assert (issue["code"], issue["severity"], issue["path"]) == ("VAL165", "warning", "/resources")
    assert issue["message"].startswith(NOT_LOADED)


def test_the_table_of_check_has_the_finding_and_counts_the_file_as_a_warning(folder, run):
    done = run("check", folder, "--warnings")
    row, count = (line for line in done.out.splitlines() if "VAL165" in line)
    assert row.split()[:2] == ["warning", "VAL165"]
    assert count.split()[:4] == ["VAL165", "warning", "1", "1"]
    assert done.out.endswith("\n2 files: 1 ok, 1 with warnings, 0 with errors\n")
