"""The file `NAME.curate.toml`: the keys of a source's table in a file of their own."""

from __future__ import annotations

import asyncio

import pytest

from callpact.app import Options, Session
from callpact.config import configuration_of
from callpact.errors import InvalidConfig
from callpact.sources.curate_file import MAX_CURATE_BYTES, CurationTable, read_curate_file
from watched import configure, first
from watched import run as watch

SHOP = '''
from callpact import tool

@tool(tags=["read"])
async def price(item: str, limit: int = 3) -> str:
    """The price of an item."""
    return f"{item} {limit}"

@tool
async def remove(item: str) -> str:
    """Remove an item."""
    return item
'''
TABLE = '[sources.shop]\nref = "python:shop.py"\n'
CURATED = """
namespace = "store"
[select]
tags = ["read"]
[tools.price]
name = "get_price"
rename = { limit = "most" }
"""


def load(folder, table="", file=None, name="shop.curate.toml"):
    (folder / "shop.py").write_text(SHOP, "utf-8")
    (folder / "callpact.toml").write_text(TABLE + table, "utf-8")
    if file is not None:
        (folder / name).write_text(file, "utf-8")

    async def go():
        async with Session(Options(config=folder / "callpact.toml")) as session:
            await session.load()
            return session.catalog

    return asyncio.run(go())


def refused(folder, table="", file=None) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load(folder, table, file)
    return str(caught.value)


def ids(catalog):
    return [tool.id for tool in catalog]


def test_the_file_beside_the_configuration_curates_its_source(tmp_path):
    catalog = load(tmp_path, file=CURATED)
    assert ids(catalog) == ["store.get_price"]
    assert "most" in catalog.find("shop.price").contract.input["properties"]


def test_a_file_can_be_named_in_the_table(tmp_path):
    assert ids(load(tmp_path, 'curate = "mine.toml"', CURATED, "mine.toml")) == ["store.get_price"]
    (tmp_path / "mine.toml").unlink()
    assert "mine.toml: no such file" in refused(tmp_path, 'curate = "mine.toml"')


def test_without_a_file_nothing_is_curated(tmp_path):
    assert ids(load(tmp_path)) == ["shop.price", "shop.remove"]


def test_sources_of_the_command_line_have_no_such_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (wanted,) = configuration_of(["python:shop.py"]).wanted(["python:shop.py"])
    assert wanted.curate_file is None


def test_a_table_and_the_file_complement_one_another(tmp_path):
    table = 'deny = ["shop.nothing"]\n[sources.shop.tools.remove]\nname = "drop"\n'
    catalog = load(tmp_path, table, 'allow = ["shop.*"]\n[tools.price]\nname = "get"')
    assert ids(catalog) == ["shop.get", "shop.drop"]


@pytest.mark.parametrize(
    ("table", "file", "key"),
    [
        ('[sources.shop.tools.price]\nname = "a"', '[tools.price]\nname = "b"', "tools.price"),
        ('namespace = "a"', 'namespace = "b"', "namespace"),
        ('allow = ["shop.*"]', 'allow = ["shop.price"]', "allow"),
        ('deny = ["a"]', 'deny = ["b"]', "deny"),
        ('select = { tags = ["read"] }', 'select = { operations = ["price"] }', "select"),
        ('exclude = { tags = ["read"] }', "exclude = { deprecated = true }", "exclude"),
    ],
)
def test_a_key_of_both_is_an_error(tmp_path, table, file, key):
    told = refused(tmp_path, table, file)
    assert f"shop.curate.toml: '{key}' is also in the table [sources.shop]" in told


def test_tables_of_both_for_one_tool_are_an_error_under_any_name(tmp_path):
    told = refused(
        tmp_path, '[sources.shop.tools.price]\nname = "a"', '[tools."shop.price"]\nname = "b"'
    )
    assert "shop.curate.toml: tools.shop.price: 'shop.price' has the table" in told
    assert "sources.shop.tools.price already" in told


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("[tools.prise]", "shop.curate.toml: tools.prise: the source has no such tool"),
        ('[select]\ntags = ["red"]', "shop.curate.toml: select.tags: 'red' fits no tool"),
        ("[tools.price]\nrename = { limt = 'n' }", "tools.price.rename: 'shop.price' has no"),
        ("[tools.price]\nnam = 'x'", "shop.curate.toml: tools.price.nam is not known"),
        ("[select]\ntag = []", "select.tag is not known; known here: tags"),
        ("ref = 'x'", "ref is not known; known here: allow"),
        ("x =", "shop.curate.toml: not TOML"),
        ("[tools.price]\nrename = { limit = 'a b' }", "tools.price.rename.limit"),
        ("[tools.price]\nfields = []", "tools.price.fields"),
    ],
)
def test_an_error_names_the_file_and_the_place(tmp_path, file, words):
    told = refused(tmp_path, file=file)
    assert words in told
    assert str(tmp_path) in told


def test_a_file_has_a_limit_of_size(tmp_path):
    path = tmp_path / "a.curate.toml"
    path.write_bytes(b"#" * MAX_CURATE_BYTES)
    assert read_curate_file(path) == CurationTable()
    path.write_bytes(b"#" * (MAX_CURATE_BYTES + 1))
    with pytest.raises(InvalidConfig, match="larger than 10,000,000 bytes"):
        read_curate_file(path)


def test_a_source_with_a_broken_file_does_not_affect_others(tmp_path):
    table = '[sources.other]\nref = "python:shop.py:price"\n'
    assert ids(load(tmp_path, table.replace(":price", ""), "x =")) == [
        "other.price",
        "other.remove",
    ]


def test_a_file_that_comes_changes_or_goes_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first(tmp_path, "shop.py", SHOP)
    configure(tmp_path, TABLE)
    file = tmp_path / "shop.curate.toml"

    async def story(at):
        assert await at.call("shop.price", {"item": "tea"}) == "tea 3"
        file.write_text("[tools.price]\ndefaults = { limit = 7 }", "utf-8")
        await at.log.until("shop.curate.toml changed")
        assert await at.call("shop.price", {"item": "tea"}) == "tea 7"
        file.write_text("[tools.price]\ndefaults = { limt = 7 }", "utf-8")
        await at.log.until("did you mean 'limit'")
        assert await at.call("shop.price", {"item": "tea"}) == "tea 7"
        file.write_text("[tools.price]\ndefaults = { limit = 8 }", "utf-8")
        await at.log.until("is whole again")
        assert await at.call("shop.price", {"item": "tea"}) == "tea 8"
        file.unlink()
        await at.log.until("shop.curate.toml changed: python:shop.py was read again", count=3)
        assert await at.call("shop.price", {"item": "tea"}) == "tea 3"

    watch(story)
