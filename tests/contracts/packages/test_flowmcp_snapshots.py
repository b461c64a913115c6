"""Snapshots of FlowMCP files: their names, what refuses one, hostile names, a crash at every step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callpact import Catalog, from_flowmcp
from callpact.audit.journal.file_locks import hold
from callpact.contracts.packages.flowmcp_snapshots import (
    new_snapshots,
    published_catalog,
    read_snapshots,
)
from callpact.contracts.packages.package_form import encode_contracts, published_contracts
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST
from callpact.errors import InvalidConfig, UsageError
from callpact.testing import StubTransport
from kill_points import killed_everywhere
from schema_file import FILE, GONE, GOOD, HANDLERS, TOOL, changed, exported

PLACE = Path("grading-data", "schemas", "token-prices")
HOOK = HANDLERS % "getTokenPrice: { postRequest: async ( { response } ) => ({ response }) }"
PUBLISHER = """
from pathlib import Path
from callpact import Catalog, from_flowmcp
from callpact.contracts.packages.flowmcp_snapshots import new_snapshots, read_snapshots
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST

files = read_snapshots(Catalog(from_flowmcp(FILE)))

def prepare(folder):
    pass

def work(folder):
    PackageStore(folder).publish(
        "tokens", FIRST, b"[1]", newest=None, created="",
        files=lambda: new_snapshots(files, folder),
    )
"""


@pytest.fixture
def snapshots(tmp_path):
    """Writes FlowMCP files, and reads them as snapshots."""

    def read(*files):
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        for name, text in files:
            (folder / name).write_text(text, "utf-8")
        found = [from_flowmcp(folder / name, transport=StubTransport(None)) for name, _ in files]
        return tuple(each for tools in found for each in read_snapshots(Catalog(tools)))

    return read


@pytest.fixture
def keep(tmp_path, snapshots):
    """Writes the snapshots of files, and returns the paths of the new ones."""

    def written(*files):
        found = new_snapshots(snapshots(*files), tmp_path)
        for path, data in found.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
        return [*found]

    return written


def one(*changes, code="", file=FILE):
    return file, exported(changed(*changes), code=code)


VERSION = "/schemaVersion"


def test_a_snapshot_has_the_bytes_of_its_file_and_is_written_once(keep, tmp_path):
    text = exported(GOOD, code=HOOK).replace("\n", "\r\n")
    path = PLACE / f"{GOOD['schemaHash']}--v1.0.0.mjs"
    assert keep((FILE, text)) == [path]
    assert (tmp_path / path).read_bytes() == text.encode()
    assert keep((FILE, text)) == []


def test_the_hash_is_computed_and_not_the_declared_one(snapshots):
    (found,) = snapshots(one(("/schemaHash", GONE)))
    assert found.hash == GOOD["schemaHash"]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ((f"{TOOL}/description", "Other."), HOOK, "its content changed"),
        ((VERSION, "1.0.0"), HOOK.replace("response })", "response: 1 })"), "code of its hooks"),
        ((VERSION, "1.0.0"), "", "code of its hooks"),
        ((VERSION, "1.0.0"), f"// note\n{HOOK}", "its text (not its data) changed"),
    ],
)
def test_a_changed_file_needs_another_version(keep, change, code, words):
    keep(one(code=HOOK))
    with pytest.raises(UsageError) as refused:
        keep(one(change, code=code))
    assert words in str(refused.value)
    assert f"{FILE}: " in str(refused.value)
    assert "schemaVersion is still 1.0.0; raise schemaVersion" in str(refused.value)
    (path,) = keep(one(change, (VERSION, "1.0.1"), code=code))
    assert path.name.endswith("--v1.0.1.mjs")


def test_files_of_one_namespace_are_told_apart_by_their_names(keep):
    other = one(("/name", "Other"), file="Other.mjs")
    assert len(keep(one(), other)) == 2
    with pytest.raises(UsageError, match=r"Other\.mjs: its content changed"):
        keep(one(), one(("/name", "Other"), ("/description", "New."), file="Other.mjs"))


def test_every_changed_file_is_named(keep):
    keep(one(), one(("/name", "Other"), file="Other.mjs"))
    with pytest.raises(UsageError) as refused:
        keep(
            one(("/description", "New.")),
            one(("/name", "Other"), ("/description", "New."), file="Other.mjs"),
        )
    assert len(str(refused.value).splitlines()) == 2


def test_two_files_of_one_name_and_version_need_the_same_bytes(keep):
    assert len(keep(one(), one(file="Copy.mjs"))) == 1
    with pytest.raises(UsageError, match=r"is token-prices/Third 1\.0\.0 too, with other content"):
        keep(
            one(("/name", "Third")),
            one(("/name", "Third"), ("/description", "New."), file="Copy.mjs"),
        )


def test_a_file_without_a_version_has_no_snapshot(keep, snapshots):
    file = one((VERSION, GONE))
    assert [each.version for each in snapshots(file)] == [""]
    assert keep(file) == []


@pytest.mark.parametrize(
    "change",
    [
        ("/namespace", "../../up"),
        ("/namespace", "/up"),
        ("/namespace", "up\n"),
        ("/namespace", ""),
        ("/namespace", 1),
        (VERSION, "1.0.0/../../../x"),
        (VERSION, "1.0"),
        (VERSION, "1.0.0\n"),
        (VERSION, 1),
    ],
)
def test_names_of_a_file_that_changed_after_it_was_loaded_never_lead_elsewhere(tmp_path, change):
    (tmp_path / FILE).write_text(exported(GOOD), "utf-8")
    catalog = Catalog(from_flowmcp(tmp_path / FILE, transport=StubTransport(None)))
    (tmp_path / FILE).write_text(exported(changed(change)), "utf-8")
    with pytest.raises(InvalidConfig, match=FILE):
        read_snapshots(catalog)


@pytest.mark.parametrize("text", [None, "export const main = 1", "\x00", "export const a = f()"])
def test_a_file_that_is_no_schema_file_any_more_is_refused(tmp_path, text):
    (tmp_path / FILE).write_text(exported(GOOD), "utf-8")
    catalog = Catalog(from_flowmcp(tmp_path / FILE, transport=StubTransport(None)))
    (tmp_path / FILE).unlink() if text is None else (tmp_path / FILE).write_text(text, "utf-8")
    with pytest.raises(InvalidConfig, match=FILE):
        read_snapshots(catalog)


def test_a_namespace_that_is_no_name_of_a_folder_is_an_error(keep):
    with pytest.raises(InvalidConfig, match="at most 200"):
        keep(one(("/namespace", "a" * 300)))


@pytest.mark.parametrize("text", ["", exported(GOOD), exported(changed(("/namespace", "x")))])
def test_a_damaged_snapshot_is_refused(keep, tmp_path, text):
    (tmp_path / PLACE).mkdir(parents=True)
    (tmp_path / PLACE / "00000000--v1.0.0.mjs").write_text(text, "utf-8")
    with pytest.raises(InvalidConfig, match=r"00000000--v1.*; restore this snapshot from version"):
        keep(one())


def test_a_snapshot_is_read_and_never_run(keep):
    endless = "export const handlers = ( () => { while ( true ) {} } )()\n"
    keep(one(code=endless))
    assert keep(one(code=endless)) == []


def test_published_tools_find_their_snapshots_by_their_digests(keep, tmp_path):
    keep(one())
    (file,) = (tmp_path / PLACE).iterdir()
    source = tmp_path / "source" / FILE
    catalog = Catalog(from_flowmcp(source, transport=StubTransport(None)))
    store = PackageStore(tmp_path)
    contracts = encode_contracts(published_contracts(catalog, Path()))
    store.publish("tokens", FIRST, contracts, newest=None, created="")
    package = store.resolve("tokens")
    assert [tool.source for tool in published_catalog(package, tmp_path)] == [f"flowmcp:{file}"]
    file.unlink()
    (tool,) = published_catalog(package, tmp_path)
    assert tool.source.startswith("flowmcp:sha256:")


def test_a_publisher_killed_before_any_line_leaves_whole_snapshots_and_the_next_one_goes_on(
    tmp_path,
):
    source, seen = tmp_path / FILE, set()
    source.write_text(exported(GOOD), "utf-8")
    script, names = PUBLISHER.replace("FILE", repr(str(source))), {}
    exec(script, names)
    for folder in killed_everywhere(tmp_path / "killed", script):
        store = PackageStore(folder)
        found = [path.read_bytes() for path in folder.rglob("*.mjs")]
        is_listed = bool(store.read_index().versions("tokens"))
        assert found in ([], [source.read_bytes()])
        seen.add((bool(found), is_listed))
        names["work"](folder)
        assert len([*folder.rglob("*.mjs")]) == 1
        assert store.resolve("tokens").contracts == b"[1]"
    assert seen == {(False, False), (True, False), (True, True)}


def test_snapshots_are_compared_while_the_folder_is_locked(tmp_path):
    store = PackageStore(tmp_path)

    def files():
        fd = os.open(tmp_path / ".lock", os.O_RDWR)
        try:
            assert not hold(fd)
        finally:
            os.close(fd)
        return {Path("a", "b.mjs"): b"x"}

    assert store.publish("tokens", FIRST, b"[1]", newest=None, created="", files=files)
    assert (tmp_path / "a" / "b.mjs").read_bytes() == b"x"


def test_a_refused_snapshot_publishes_nothing(tmp_path):
    def files():
        raise UsageError("changed")

    store = PackageStore(tmp_path)
    with pytest.raises(UsageError, match="changed"):
        store.publish("tokens", FIRST, b"[1]", newest=None, created="", files=files)
    assert store.read_index().names == ()
    assert not [*(tmp_path / "blobs" / "sha256").iterdir()]
