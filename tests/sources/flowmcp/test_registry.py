"""Registries and repositories: which files of a checkout are sources, and what is said of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import calls
from callpact import from_flowmcp
from callpact.errors import SourceRefused
from callpact.sources.flowmcp.read import registry as registries
from callpact.sources.flowmcp.read.catalogue_files import find_files

SCHEMA = calls.exported(calls.main())
OTHER = calls.exported(calls.main(namespace="other"))
CONFIG = "export default { testEnvironment: 'node' }"


@pytest.fixture
def checkout(tmp_path):
    """Makes a folder of files; a registry is given as data."""

    def make(files, registry=None):
        root = tmp_path / "checkout"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        if registry is not None:
            is_text = isinstance(registry, str)
            (root / "registry.json").write_text(
                registry if is_text else json.dumps(registry), "utf-8"
            )
        return root

    return make


def listing(*paths, key="schemaPath", **others):
    return {"schemas": [{key: path} for path in paths], **others}


def names(root):
    found = find_files([root])
    return [each.path.relative_to(root).as_posix() for each in found if each.trouble is None]


def troubles(root):
    found = (each.trouble for each in find_files([root]))
    return [(each.code, each.severity, each.path) for each in found if each is not None]


REPOSITORY = {
    "package.json": "{}",
    "jest.config.mjs": CONFIG,
    ".eslintrc.mjs": CONFIG,
    "scripts/build.mjs": "import fs from 'fs'",
    "archive/v3/Old.mjs": SCHEMA,
    "tests/a.test.mjs": CONFIG,
    "node_modules/x/index.mjs": CONFIG,
    ".github/a.mjs": CONFIG,
    "schemas/providers/shop/Shop.mjs": SCHEMA,
    "schemas/providers/shop/scripts/Inner.mjs": OTHER,
}


def test_at_the_root_of_a_repository_archive_scripts_and_configuration_are_no_sources(checkout):
    root = checkout(REPOSITORY)
    assert names(root) == [
        "schemas/providers/shop/Shop.mjs",
        "schemas/providers/shop/scripts/Inner.mjs",
    ]
    assert [found for found in from_flowmcp(root).report if found.severity == "error"] == []


def test_a_folder_that_is_no_repository_may_have_any_names(checkout):
    root = checkout({"archive/A.mjs": SCHEMA, "scripts/B.mjs": OTHER})
    assert names(root) == ["archive/A.mjs", "scripts/B.mjs"]


@pytest.mark.parametrize("key", ["schemaPath", "file"])
def test_a_registry_says_which_files_are_sources(checkout, key):
    root = checkout(
        REPOSITORY, listing("schemas/providers/shop/Shop.mjs", "archive/v3/Old.mjs", key=key)
    )
    assert names(root) == ["archive/v3/Old.mjs", "schemas/providers/shop/Shop.mjs"]


def test_a_file_beside_those_of_a_registry_is_told_and_not_loaded(checkout):
    files = {
        "providers/shop/Shop.mjs": SCHEMA,
        "providers/other/New.mjs": OTHER,
        "providers/shop/skills/audit.mjs": "export const skill = {}",
        "tools/Helper.mjs": CONFIG,
        "Build.mjs": CONFIG,
    }
    root = checkout(files, listing("providers/shop/Shop.mjs"))
    assert names(root) == ["providers/shop/Shop.mjs"]
    assert troubles(root) == [("CAT006", "warning", "")]
    tools = from_flowmcp(root)
    assert [tool.id for tool in tools] == ["shop.getIt"]
    (told,) = (found for found in tools.report if found.code == "CAT006")
    assert (Path(told.place).name, told.is_left_out) == ("New.mjs", True)


def test_lists_of_a_catalogue_with_a_registry_are_found(checkout):
    root = checkout(
        {"providers/A.mjs": SCHEMA, "_lists/colours.mjs": "export const list = {}"},
        listing(
            "providers/A.mjs", shared=[{"file": "_lists/colours.mjs"}, {"file": "_lists/no.mjs"}]
        ),
    )
    assert names(root) == ["_lists/colours.mjs", "providers/A.mjs"]
    assert troubles(root) == [("CAT003", "error", "/shared/1/file")]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"schemaPath": "a/Gone.mjs"}, "no such file"),
        ({"schemaPath": "../Secret.mjs"}, "leads out"),
        ({"schemaPath": "a/../../Secret.mjs"}, "leads out"),
        ({"schemaPath": "a\\..\\..\\Secret.mjs"}, "leads out"),
        ({"schemaPath": "/etc/Secret.mjs"}, "leads out"),
        ({"schemaPath": "C:/Secret.mjs"}, "leads out"),
        ({"schemaPath": "a/Link.mjs"}, "symbolic link"),
        ({"schemaPath": "a/Folder/Secret.mjs"}, "symbolic link"),
        ({"schemaPath": "a/\0.mjs"}, "leads out"),
        ({"schemaPath": "a/readme.md"}, "no .mjs file"),
        ({"schemaPath": 7}, "got 7"),
        ({"file": ""}, "got ''"),
        ({}, "schemaPath"),
        ("a/A.mjs", "schemaPath"),
    ],
)
def test_an_entry_that_leads_nowhere_or_out_is_told_and_the_others_are_loaded(
    checkout, tmp_path, entry, words
):
    (tmp_path / "Secret.mjs").write_text(OTHER, "utf-8")
    root = checkout({"a/A.mjs": SCHEMA, "a/readme.md": ""})
    (root / "a" / "Link.mjs").symlink_to(tmp_path / "Secret.mjs")
    (root / "a" / "Folder").symlink_to(tmp_path)
    (root / "registry.json").write_text(
        json.dumps({"schemas": [{"schemaPath": "a/A.mjs"}, entry]}), "utf-8"
    )
    tools = from_flowmcp(root)
    assert [tool.id for tool in tools] == ["shop.getIt"]
    (told,) = (found for found in tools.report if found.severity == "error")
    assert (told.code, Path(told.place).name) == ("CAT004", "registry.json")
    assert told.path.startswith("/schemas/1/")
    assert words in told.message


@pytest.mark.parametrize(
    "registry",
    ["{", "[]", "{}", '{"schemas": {}}', "null", "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_a_registry_that_cannot_be_used_is_told_and_the_folder_is_read(checkout, registry):
    root = checkout({"a/A.mjs": SCHEMA, "archive/B.mjs": OTHER}, registry)
    assert names(root) == ["a/A.mjs"]
    assert troubles(root) == [("CAT001", "warning", "")]


def test_a_registry_may_not_be_too_large(checkout, monkeypatch):
    monkeypatch.setattr(registries, "MAX_REGISTRY_BYTES", 30)
    root = checkout({"a/A.mjs": SCHEMA}, listing("a/A.mjs", more="x" * 50))
    assert troubles(root) == [("CAT001", "warning", "")]


def test_a_registry_without_entries_holds_no_files(checkout):
    with pytest.raises(SourceRefused):
        find_files([checkout({"a/A.mjs": SCHEMA}, listing())])


def test_a_file_that_is_listed_twice_is_found_once(checkout):
    root = checkout({"a/A.mjs": SCHEMA}, listing("a/A.mjs", "a//A.mjs", "./a/A.mjs"))
    assert names(root) == ["a/A.mjs"]


def test_a_file_that_is_named_is_taken_whatever_a_registry_says(checkout):
    root = checkout({"a/A.mjs": SCHEMA, "archive/B.mjs": OTHER}, listing("a/A.mjs"))
    assert [os.fspath(each.path) for each in find_files([root / "archive/B.mjs"])] == [
        os.fspath(root / "archive/B.mjs")
    ]
