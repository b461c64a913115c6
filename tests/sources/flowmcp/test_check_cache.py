"""What checking gave is kept, and used for unchanged files only."""

from __future__ import annotations

import asyncio
import stat

import pytest

from callpact import from_flowmcp
from callpact.runtime import Runtime
from callpact.sources.flowmcp.build import source
from callpact.testing import StubTransport

FILE = """
export const main = {
    namespace: 'tea',
    name: 'Tea',
    description: 'Tea.',
    version: '4.0.0',
    root: 'https://api.example.com',
    tools: {
        getTea: {
            method: 'GET',
            path: '/tea',
            description: 'Get %s tea',
            parameters: [],
            tests: [ { _description: 'one' } ]
        }
    }
}
"""


@pytest.fixture
def checked(monkeypatch):
    """The files that were really checked."""
    seen = []
    check = source.check_text

    def counted(text, **options):
        seen.append(options["file"])
        return check(text, **options)

    monkeypatch.setattr(source, "check_text", counted)
    return seen


def _load(folder, cache, **options):
    transport = StubTransport(lambda request: {"status": 200, "body": "{}"})
    return from_flowmcp(folder, transport=transport, cache=cache, **options)


def _outcome(tools):
    return [(t.id, t.description, t.contract.input, t.disabled) for t in tools], tools.report


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "catalogue"
    folder.mkdir()
    (folder / "Tea.mjs").write_text(FILE % "good", "utf-8")
    (folder / "Bad.mjs").write_text("export const main = { a: f() }", "utf-8")
    return folder


def test_unchanged_files_are_not_checked_again_and_load_the_same(folder, tmp_path, checked):
    first = _outcome(_load(folder, tmp_path / "cache"))
    assert len(checked) == 2
    checked.clear()
    assert _outcome(_load(folder, tmp_path / "cache")) == first
    assert checked == []
    assert any(finding.severity == "error" and finding.line for finding in first[1])


def test_a_changed_file_is_checked_again_and_only_that(folder, tmp_path, checked):
    _load(folder, tmp_path / "cache")
    checked.clear()
    (folder / "Tea.mjs").write_text(FILE % "better", "utf-8")
    (tool,) = _load(folder, tmp_path / "cache")
    assert tool.description == "Get better tea"
    assert checked == [str(folder / "Tea.mjs")]


def test_another_profile_other_libraries_or_lists_are_another_outcome(folder, tmp_path, checked):
    _load(folder, tmp_path / "cache")
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "colours.mjs").write_text(
        "export const list = { meta: { name: 'colours', version: '1.0.0', description: 'c', "
        "fields: [ { key: 'name', type: 'string', description: 'n' } ] }, "
        "entries: [ { name: 'red' } ] }",
        "utf-8",
    )
    for options in ({"profile": "strict"}, {"libraries": ["left-pad"]}, {"lists": lists}):
        checked.clear()
        _load(folder, tmp_path / "cache", **options)
        assert len(checked) == 2


def test_without_a_folder_nothing_is_kept(folder, tmp_path, checked):
    for _ in range(2):
        checked.clear()
        _load(folder, None)
        assert len(checked) == 2
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x91" * 100, b"\x81\xa1a\x01"])
def test_a_cache_that_cannot_be_read_is_no_cache(folder, tmp_path, checked, damage):
    cache = tmp_path / "cache"
    first = _outcome(_load(folder, cache))
    (kept,) = cache.iterdir()
    kept.write_bytes(damage)
    checked.clear()
    assert _outcome(_load(folder, cache)) == first
    assert len(checked) == 2


def test_a_cache_is_readable_by_nobody_else(folder, tmp_path):
    cache = tmp_path / "cache"
    _load(folder, cache)
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(folder, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", "utf-8")
    assert len(_load(folder, blocked / "cache")) == 1


def test_a_tool_that_was_kept_is_called_as_one_that_was_checked(tmp_path):
    folder = tmp_path / "catalogue"
    folder.mkdir()
    parameter = (
        "[ { position: { key: 'cup', value: '{{CUP}}', location: 'query' }, "
        "z: { primitive: 'number()', options: [ 'max(9)' ] } } ]"
    )
    text = (FILE % "good").replace("parameters: []", f"parameters: {parameter}")
    (folder / "Tea.mjs").write_text(text, "utf-8")
    seen = []
    for _ in range(2):
        transport = StubTransport(lambda request: {"status": 200, "body": "{}"})
        (tool,) = from_flowmcp(folder, transport=transport, cache=tmp_path / "cache", secrets={})
        runtime = Runtime([tool])
        asyncio.run(runtime.execute("tea.getTea", {"CUP": "7"}))
        seen.append(
            (transport.requests, tool.contract.input, tool.contract.input_policy, tool.examples)
        )
    checked, kept = seen
    assert kept == checked
    assert kept[0][0].url == "https://api.example.com/tea?cup=7"
