"""callpact.toml: what it may say, and what is told when it says something else."""

from __future__ import annotations

import dataclasses

import pytest

from callpact.config import Configuration
from callpact.config_file import MAX_BYTES, AuditConfig, SourceConfig, read_config
from callpact.errors import InvalidConfig
from callpact.sources.curate_file import RulesConfig, ToolConfig
from callpact.sources.curation import Curation, ToolCuration
from callpact.sources.selection import SelectionRules


def write(folder, text):
    path = folder / "callpact.toml"
    path.write_text(text, "utf-8")
    return path


def problem(folder, text) -> str:
    path = write(folder, text)
    with pytest.raises(InvalidConfig) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def test_a_full_table_is_read(tmp_path):
    path = write(
        tmp_path,
        """
        [sources.shop]
        ref = "python:shop.py"
        policy = "reject"
        allow = ["shop.*"]
        deny = ["shop.delete_*"]
        timeout = 10
        """,
    )
    shop = read_config(path).sources["shop"]
    assert shop == SourceConfig(
        ref="python:shop.py",
        policy="reject",
        allow=["shop.*"],
        deny=["shop.delete_*"],
        timeout=10.0,
    )


def test_all_but_the_reference_may_be_left_out(tmp_path):
    shop = read_config(write(tmp_path, '[sources.shop]\nref = "python:shop.py"')).sources["shop"]
    assert (shop.policy, shop.allow, shop.deny, shop.timeout) == (None, [], [], None)


CURATED = """
[sources.shop]
ref = "python:shop.py"
namespace = "store"

[sources.shop.tools."shop.price"]
name = "get_price"
aliases = ["preis"]
title = "Price"
description = "The price."
append_description = "In euros."
policy = "reject"
input_policy = "tolerant"
timeout = 5
tags = ["money"]
scopes = ["shop:read"]
read_only = true
hidden = { currency = "EUR" }
defaults = { limit = 10 }
rename = { item = "name" }
describe = { item = "Its name." }
fields = ["amount"]
enabled = false

[sources.shop.select]
tags = ["money"]
paths = ["/prices/*"]
methods = ["GET"]
operations = ["get*"]
deprecated = false

[sources.shop.exclude]
tags = ["old"]
"""


def test_the_curation_of_a_source_is_read_whole(tmp_path):
    path = write(tmp_path, CURATED)
    (wanted,) = Configuration(read_config(path), path).wanted()
    assert wanted.curation == Curation(
        place="sources.shop",
        namespace="store",
        select=SelectionRules(
            tags=("money",),
            paths=("/prices/*",),
            methods=("GET",),
            operations=("get*",),
            deprecated=False,
        ),
        exclude=SelectionRules(tags=("old",)),
        tools={
            "shop.price": ToolCuration(
                name="get_price",
                aliases=["preis"],
                title="Price",
                description="The price.",
                append_description="In euros.",
                policy="reject",
                input_policy="tolerant",
                timeout=5.0,
                tags=["money"],
                scopes=["shop:read"],
                read_only=True,
                hidden={"currency": "EUR"},
                defaults={"limit": 10},
                rename={"item": "name"},
                describe={"item": "Its name."},
                fields=["amount"],
                enabled=False,
            )
        },
    )


def test_the_audit_log_is_the_same_without_a_file_and_with_an_empty_table():
    table = dict(AuditConfig()) | {"hashes_only": ()}
    assert dataclasses.asdict(Configuration().audit) == table


def test_the_keys_of_a_curated_tool_are_those_of_its_curation():
    fields = {field.name for field in dataclasses.fields(ToolCuration)}
    assert fields == set(ToolConfig.model_fields)
    fields = {field.name for field in dataclasses.fields(SelectionRules)}
    assert fields == set(RulesConfig.model_fields)


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ('nam = "x"', "nam", "append_description"),
        ('name = "a b"', "name", "got 'a b'"),
        ('policy = "strict"', "policy", "got 'strict'"),
        ("timeout = 0", "timeout", "got 0"),
        ("hidden = 1", "hidden", "got 1"),
        ('enabled = "no"', "enabled", "got 'no'"),
    ],
)
def test_a_wrong_key_of_a_curated_tool_is_told_with_its_place(tmp_path, line, key, words):
    told = problem(tmp_path, f'[sources.a]\nref = "a"\n[sources.a.tools.price]\n{line}')
    assert f"sources.a.tools.price.{key}" in told
    assert words in told


def test_a_namespace_is_one_part_of_an_id(tmp_path):
    assert "sources.a.namespace" in problem(tmp_path, '[sources.a]\nref = "a"\nnamespace = "a.b"')


def test_an_empty_file_names_no_source(tmp_path):
    assert read_config(write(tmp_path, "")).sources == {}


def test_bad_toml_is_told_with_its_line(tmp_path):
    assert "line 2" in problem(tmp_path, "[sources.shop]\nref = python:shop.py")


@pytest.mark.parametrize(
    ("text", "key", "known"),
    [
        ('[sources.shop]\nref = "a"\npolcy = "cast"', "sources.shop.polcy", "policy"),
        ('[source.shop]\nref = "a"', "source", "sources"),
    ],
)
def test_an_unknown_key_is_told_with_the_known_ones(tmp_path, text, key, known):
    told = problem(tmp_path, text)
    assert f"{key} is not known" in told
    assert known in told.partition("known here:")[2]


def test_a_missing_reference_is_told(tmp_path):
    assert "sources.shop.ref is required" in problem(tmp_path, "[sources.shop]")


@pytest.mark.parametrize(
    ("line", "key", "got"),
    [
        ('policy = "strict"', "policy", "'strict'"),
        ("timeout = 0", "timeout", "0"),
        ("timeout = 3601", "timeout", "3601"),
        ("timeout = nan", "timeout", "nan"),
        ('timeout = "10"', "timeout", "'10'"),
        ("timeout = true", "timeout", "True"),
        ('allow = "shop.*"', "allow", "'shop.*'"),
        ("allow = [1]", "allow.0", "1"),
    ],
)
def test_a_wrong_value_is_told_with_its_key_and_what_came(tmp_path, line, key, got):
    told = problem(tmp_path, f'[sources.shop]\nref = "a"\n{line}')
    assert f"sources.shop.{key}: " in told
    assert told.endswith(f"got {got}")


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    told = problem(tmp_path, '[sources.a]\n[sources.b]\nref = "x"\nfoo = 1')
    assert "sources.a.ref" in told
    assert "sources.b.foo" in told


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidConfig, match="no such file"):
        read_config(tmp_path / "nosuch.toml")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_config(tmp_path)


def test_a_file_that_is_not_text_is_told(tmp_path):
    path = tmp_path / "callpact.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_config(path)


def test_a_file_beyond_the_limit_is_not_read(tmp_path):
    path = write(tmp_path, "#" * (MAX_BYTES + 1))
    with pytest.raises(InvalidConfig, match="larger than"):
        read_config(path)
