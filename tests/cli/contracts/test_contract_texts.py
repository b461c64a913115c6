"""`callpact docs` and `callpact types`: their files, their standard output, their exit codes."""

from __future__ import annotations

import json

import pytest

import command_line

run = command_line.run
SHOP = """
from typing import Annotated
from pydantic import Field
from callpact import tool

@tool
def price(item: str) -> float:
    "The price of an item."
    return 1.0

@tool
def code(item: str) -> Annotated[str, Field(pattern="{pattern}")]:
    "The code of an item."
    return "a"
"""


@pytest.fixture(autouse=True)
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP.replace("{pattern}", "^a$"), "utf-8")
    (tmp_path / "odd.py").write_text(SHOP.replace("{pattern}", "(?i)a"), "utf-8")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("typescript", "export type ShopPriceOutput = number;"),
        ("zod", "export const ShopPriceOutput = z.number();"),
        ("pydantic", "class ShopPriceOutput(RootModel[Any]):"),
        ("jsonschema", '"ShopPriceOutput"'),
    ],
)
def test_types_are_written_in_each_language(run, language, words):
    done = run("types", "shop.price", "--to", language, "-s", "shop.py")
    assert done.code == 0
    assert words in done.out
    assert "ShopCodeOutput" not in done.out
    assert "ShopPriceInput" not in done.out


def test_types_of_arguments_are_added_and_a_file_is_written(run, tmp_path):
    done = run("types", "--to", "jsonschema", "--input", "--out", "types.json", "-s", "shop.py")
    assert (done.code, done.out) == (0, "")
    found = json.loads((tmp_path / "types.json").read_text("utf-8"))
    assert sorted(found["$defs"]) == [
        "ShopCodeInput",
        "ShopCodeOutput",
        "ShopPriceInput",
        "ShopPriceOutput",
    ]


def test_a_keyword_that_zod_cannot_express_names_tool_and_keyword(run):
    done = run("types", "--to", "zod", "-s", "odd.py")
    assert done.code == 2
    assert "odd.code" in done.err
    assert "'pattern'" in done.err
    assert done.out == ""


def test_docs_of_one_namespace_go_to_standard_output(run):
    done = run("docs", "-s", "shop.py")
    assert done.code == 0
    assert "## shop.price" in done.out


def test_docs_of_several_namespaces_need_a_folder(run, tmp_path):
    done = run("docs", "-s", "shop.py", "-s", "odd.py")
    assert done.code == 2
    assert "--out" in done.err
    done = run("docs", "-s", "shop.py", "-s", "odd.py", "--out", "pages", "--format", "html")
    assert done.code == 0
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["odd.html", "shop.html"]
