"""`callpact lint`: every kind of source, its forms, its exit codes."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

import command_line
from callpact.contracts import LINT_RULES

run = command_line.run
ROOT = Path(__file__).resolve().parents[3]
FUNCTION = """
from callpact import tool

@tool
def price(item: str, limit: int = 10) -> float:
    "The price of an item."
    return 1.0
"""
DATA_TOOL = """
from callpact import data_tool
from callpact.schema import PropertyNumber, PropertyString

async def handler(props, context):
    return {"price": 1}

price = data_tool(
    "price",
    {"item": PropertyString(required=True)},
    {"price": PropertyNumber()},
    handler,
    namespace="shop",
    description="The price of an item.",
)
"""
OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "shop", "version": "1"},
    "servers": [{"url": "https://shop.example.com"}],
    "paths": {
        "/price": {
            "get": {
                "operationId": "price",
                "summary": "The price of an item.",
                "parameters": [
                    {"name": "item", "in": "query", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": {"description": "A price."}},
            }
        }
    },
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(FUNCTION, "utf-8")
    return tmp_path


def served(file):
    words = ("-m", "callpact", "serve", "--stdio", "--audit", "off", "-s", str(file))
    return "mcp:" + shlex.join([sys.executable, *words])


def issues(done):
    tools = [json.loads(line) for line in done.out.splitlines()]
    return [(issue["code"], issue["path"]) for tool in tools for issue in tool["issues"]]


@pytest.mark.parametrize("kind", ["function", "data tool", "OpenAPI", "MCP server"])
def test_tools_of_every_source_are_read_by_the_same_rules(kind, shop, run):
    (shop / "data.py").write_text(DATA_TOOL, "utf-8")
    (shop / "shop.json").write_text(json.dumps(OPENAPI), "utf-8")
    refs = {
        "function": "shop.py",
        "data tool": "data.py",
        "OpenAPI": "shop.json",
        "MCP server": served("shop.py"),
    }
    done = run("lint", refs[kind], "--json", "--select", "LNT010,LNT051")
    assert done.code == 1
    found = issues(done)
    assert ("LNT010", "/item") in found
    assert ("LNT051", "/item") in found


def test_flowmcp_files_are_read_without_the_descriptions_that_loading_makes_up(run):
    done = run("lint", str(ROOT / "examples" / "weather"), "--json")
    assert done.code == 1
    assert ("LNT010", "/stationId") in issues(done)


def test_text_names_the_tool_the_place_and_the_remedy(shop, run):
    done = run("lint", "shop.py")
    assert done.code == 1
    assert "price\n" in done.out
    assert "warning  LNT010  /item   property 'item' has no description" in done.out
    assert LINT_RULES["LNT010"].remedy in done.out
    assert "1 tool, 1 with findings: 0 errors, 2 warnings, 2 infos" in done.out
    assert "LNT051" not in done.out
    assert "2 infos not shown" in done.err
    assert "LNT051" in run("lint", "shop.py", "--info").out


def test_json_has_one_object_for_each_tool(shop, run):
    done = run("lint", "shop.py", "--json", "--select", "LNT010")
    tool = json.loads(done.out)
    assert (tool["tool"], tool["verdict"]) == ("shop.price", "warning")
    assert tool["issues"][0] == {
        "code": "LNT010",
        "severity": "warning",
        "path": "/item",
        "message": "property 'item' has no description",
        "remedy": LINT_RULES["LNT010"].remedy,
    }


def test_annotations_name_the_file(shop, run):
    done = run("lint", "shop.py", "--format", "github", "--select", "LNT010")
    assert done.code == 1
    first = done.out.splitlines()[0]
    assert first.startswith("::warning file=shop.py,line=1,col=1,title=LNT010::shop.price /item: ")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--ignore", "lnt010"], 0),
        (["--ignore", "LNT01", "--fail-on", "info"], 1),
        (["--ignore", "LNT"], 0),
        (["--select", "LNT051"], 0),
        (["--select", "LNT051", "--fail-on", "info"], 1),
        (["--fail-on", "error"], 0),
        (["--fail-on", "never"], 0),
    ],
)
def test_the_exit_code_follows_the_severity_and_the_selected_codes(options, code, shop, run):
    assert run("lint", "shop.py", *options).code == code


def test_sources_of_the_configuration_are_read_without_arguments(shop, run):
    (shop / "callpact.toml").write_text('[sources.shop]\nref = "python:shop.py"\n', "utf-8")
    assert run("lint").code == 1
    assert run("lint", "-s", "shop.py", "--ignore", "LNT010").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["shop.py", "-s", "shop.py"],
        ["shop.py", "--ignore", "LNT9"],
        ["shop.py", "--select", ""],
        ["shop.py", "--json", "--format", "github"],
        ["missing.py"],
    ],
)
def test_wrong_use_has_exit_code_two(arguments, shop, run):
    assert run("lint", *arguments).code == 2


def test_texts_of_a_source_cannot_control_the_terminal(shop, run):
    (shop / "shop.py").write_text(
        FUNCTION.replace('"The price of an item."', '"p\\x1b[31mrice"'), "utf-8"
    )
    done = run("lint", "shop.py", "--info")
    assert "\x1b[31m" not in done.out
