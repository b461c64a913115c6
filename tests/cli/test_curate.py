"""`callpact curate`: the first file to curate a source with."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import command_line
from callpact.app import Options, Session
from callpact.cli.curate import GROUPED_FROM, first_file
from callpact.sources.curate_file import CurationTable
from callpact.tool import Contract, Origin, Tool

run = command_line.run
SHOP = '''
from typing import Annotated

from pydantic import BaseModel, Field

from callpact import tool

class Price(BaseModel):
    amount: int
    currency: str

@tool(tags=["money"], annotations={"readOnlyHint": True})
async def price(
    item: Annotated[str, Field(description='The "item".')],
    limit: Annotated[int, Field(description="At\\nmost.")] = 3,
) -> list[Price]:
    """The price of an item.

    With a \\\\ and "quotes" and \\"\\"\\" three of them.
    """
    return [Price(amount=limit, currency="EUR")]

@tool(annotations={"readOnlyHint": False})
async def remove() -> str:
    """Remove all.

      Indented.
    """
    return ""
'''
TABLE = '[sources.shop]\nref = "python:shop.py"\n'


@pytest.fixture
def at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    (tmp_path / "callpact.toml").write_text(TABLE, "utf-8")
    return tmp_path


def load(folder):
    """The tools of the folder; handlers and contracts with projections differ in each load."""

    async def go():
        async with Session(Options(config=folder / "callpact.toml")) as session:
            await session.load()
            return [dataclasses.replace(tool, handler=_nothing) for tool in session.catalog]

    return asyncio.run(go())


async def _nothing(arguments, context):
    return None


def uncommented(text, *left_out):
    lines = [line for line in text.split("\n") if not line.startswith(left_out or ("\0",))]
    return re.sub(r"(?m)^#(?! )", "", "\n".join(lines))


def test_the_first_file_names_every_tool_and_changes_nothing(at, run):
    before = load(at)
    result = run("curate", "shop")
    assert not result.code
    assert "wrote shop.curate.toml: 2 tools" in result.err
    text = (at / "shop.curate.toml").read_text("utf-8")
    assert tomllib.loads(text) == {"tools": {"shop.price": {}, "shop.remove": {}}}
    assert load(at) == before


def test_every_setting_of_the_first_file_is_the_one_of_today(at, run):
    before = load(at)
    run("curate", "shop")
    file = at / "shop.curate.toml"
    text = file.read_text("utf-8")
    assert "# tags: money" in text
    assert '#fields = ["amount", "currency"]' in text
    assert '#describe.item = "The \\"item\\"."  # string' in text
    assert "# integer, optional" in text
    file.write_text(uncommented(text, "#[select]", "#tags", "#operations", "#fields"), "utf-8")
    assert load(at) == before
    file.write_text(uncommented(text, "#tags"), "utf-8")
    assert [tool.id for tool in load(at)] == ["shop.price", "shop.remove"]


def test_a_file_is_not_replaced_without_force(at, run):
    file = at / "shop.curate.toml"
    file.write_text("# mine", "utf-8")
    result = run("curate", "shop")
    assert result.code == 2
    assert "exists already; --force replaces it" in result.err
    assert file.read_text("utf-8") == "# mine"
    assert not run("curate", "shop", "--force").code
    assert "[tools." in file.read_text("utf-8")


def test_the_file_is_written_where_the_option_or_the_table_says(at, run):
    assert not run("curate", "shop", "--output", "here.toml").code
    assert (at / "here.toml").exists()
    (at / "callpact.toml").write_text(f'{TABLE}curate = "there.toml"\n', "utf-8")
    assert not run("curate", "shop").code
    assert (at / "there.toml").exists()
    assert run("curate", "shop", "-o", "none/there.toml").code == 2


def test_the_first_file_has_the_tools_that_the_table_selects_and_does_not_change(at, run):
    more = 'exclude = { tags = ["money"] }\n[sources.shop.tools.remove]\nname = "drop"\n'
    (at / "callpact.toml").write_text(TABLE + more, "utf-8")
    assert not run("curate", "shop").code
    text = (at / "shop.curate.toml").read_text("utf-8")
    assert "price" not in text
    assert "# shop.remove has a table [sources.shop.tools.…] already." in text
    assert [tool.id for tool in load(at)] == ["shop.drop"]


def test_a_broken_file_of_before_can_be_replaced(at, run):
    (at / "shop.curate.toml").write_text("x =", "utf-8")
    assert not run("curate", "shop", "--force").code


def test_an_unknown_source_is_an_error_with_the_nearest_name(at, run):
    result = run("curate", "shp")
    assert result.code == 2
    assert "no source 'shp'; did you mean 'shop'?" in result.err


def make(number, *tags, **fields):
    return Tool(
        **{"id": f"api.t{number}", "description": "Does.", "handler": _nothing}
        | {"contract": Contract(), "tags": tags}
        | fields
    )


def test_many_tools_are_grouped_by_tag():
    tools = [make(number, f"tag{number % 2}") for number in range(GROUPED_FROM - 1)]
    assert "# ---" not in first_file("api", tools)
    text = first_file("api", [*tools, make(99)])
    headings = [line for line in text.split("\n") if line.startswith("# ---")]
    assert headings == ["# --- tag0 ---", "# --- tag1 ---", "# --- without a tag ---"]
    assert list(tomllib.loads(text)["tools"])[:2] == ["api.t0", "api.t2"]


def test_the_file_shows_the_request_of_a_tool():
    tool = make(1, "a", origin=Origin("GET", "/pets/{id}", "getPet", deprecated=True))
    text = first_file("api", [tool])
    assert "# GET /pets/{id}; tags: a; deprecated" in text
    assert '#methods = ["GET"]' in text
    assert "#deprecated = false" in text


WORDS = st.text(st.characters(codec=None), max_size=20)


@given(words=WORDS, tag=WORDS.filter(bool), argument=WORDS, source=WORDS)
def test_no_text_of_a_source_breaks_the_file(words, tag, argument, source):
    clean = argument.encode("utf-8", "replace").decode()
    schema = {"properties": {clean: {"description": words.encode("utf-8", "replace").decode()}}}
    tool = make(1, tag, description=words, contract=Contract(input=schema))
    text = first_file(source, [tool])
    assert tomllib.loads(text) == {"tools": {"api.t1": {}}}
    table = CurationTable.model_validate(tomllib.loads(uncommented(text))).tools["api.t1"]
    assert table.description == words.encode("utf-8", "replace").decode()
    assert table.describe == {clean: schema["properties"][clean]["description"]}
