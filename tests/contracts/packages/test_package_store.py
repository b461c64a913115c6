"""Published packages: atomic under a crash at every step, one winner of two, damage is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from callpact.contracts.packages.package_store import ARTIFACT_TYPE, PackageStore
from callpact.contracts.packages.package_version import FIRST, PackageVersion, selected_version
from callpact.errors import InvalidConfig, UsageError
from kill_points import killed_everywhere

FOLDER = {".lock", "blobs", "index.json", "oci-layout"}
REF = "org.opencontainers.image.ref.name"
NEXT = FIRST.bumped("minor")
STORE = """
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST

NEXT = FIRST.bumped("minor")

def first(folder):
    PackageStore(folder / "c").publish("shop", FIRST, b"[1]", newest=None, created="")

def second(folder):
    PackageStore(folder / "c").publish("shop", NEXT, b"[2]", newest=FIRST, created="")

def both(folder):
    first(folder)
    second(folder)

def nothing(folder):
    pass

def back(folder):
    PackageStore(folder / "c").roll_back("shop", FIRST, at="noon")
"""
RACER = """
import sys
from pathlib import Path
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST
from callpact.errors import UsageError

print("ready", flush=True)
sys.stdin.readline()
try:
    PackageStore(Path(sys.argv[1])).publish(
        "shop", FIRST.bumped("minor"), sys.argv[2].encode(), newest=FIRST, created=""
    )
except UsageError as error:
    print(error)
else:
    print("won")
"""


@pytest.fixture
def store(tmp_path):
    """A store with one version."""
    made = PackageStore(tmp_path / "contracts")
    assert made.publish("shop", FIRST, b"[1]", newest=None, created="")
    return made


@pytest.mark.parametrize(
    ("before", "work"), [("nothing", "first"), ("first", "second"), ("both", "back")]
)
def test_work_killed_before_any_line_leaves_the_former_index_or_the_new_one(tmp_path, before, work):
    script = f"{STORE}\nprepare, work = {before}, {work}"
    folders = killed_everywhere(tmp_path / "killed", script)
    states = {"nothing": None, "first": b"[1]", "second": b"[2]", "both": b"[2]", "back": b"[1]"}
    found = [contents(PackageStore(folder / "c")) for folder in folders]
    turn = found.index(states[work])
    assert found == [states[before]] * turn + [states[work]] * (len(found) - turn)
    assert 0 < turn < len(found) - 1

    names = {}
    exec(STORE, names)
    for folder in folders:
        names[work](folder)
        assert contents(PackageStore(folder / "c")) == states[work]
        assert {each.name for each in (folder / "c").iterdir()} == FOLDER


def contents(store):
    """The contracts of the newest version, or None if nothing is published."""
    return store.resolve("shop").contracts if store.read_index().names else None


def test_a_rollback_withdraws_later_versions_and_can_be_taken_back(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    assert store.roll_back("shop", FIRST, at="noon") == (NEXT,)
    assert store.roll_back("shop", FIRST, at="later") == ()
    assert store.resolve("shop").version == store.resolve("shop", "^1").version == FIRST
    assert store.resolve("shop", str(NEXT)).contracts == b"[2]"
    assert store.read_index().versions("shop")[NEXT].withdrawn == "noon"

    assert store.roll_back("shop", NEXT, at="evening") == ()
    assert store.resolve("shop").version == NEXT


def test_a_withdrawn_version_keeps_its_number(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    store.roll_back("shop", FIRST, at="noon")
    with pytest.raises(UsageError, match="never changes"):
        store.publish("shop", NEXT, b"[3]", newest=FIRST, created="")
    after = NEXT.bumped("minor")
    assert store.publish("shop", after, b"[3]", newest=FIRST, created="")
    assert store.resolve("shop").version == after


def test_a_rollback_to_a_version_that_is_not_published_is_refused(store):
    before = (store.folder / "index.json").read_bytes()
    with pytest.raises(UsageError, match=r"no shop@1\.1\.0 is published; there is 1\.0\.0"):
        store.roll_back("shop", NEXT, at="noon")
    assert (store.folder / "index.json").read_bytes() == before


def test_entries_of_an_index_that_another_tool_wrote_are_known_by_their_manifests(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    path = store.folder / "index.json"
    index = json.loads(path.read_text("utf-8"))
    for entry in index["manifests"]:  # As skopeo copies them.
        del entry["artifactType"]
        entry["annotations"] = {REF: entry["annotations"][REF]}
    index["manifests"][1]["artifactType"] = ARTIFACT_TYPE
    other = {**index["manifests"][0], "digest": f"sha256:{'0' * 64}"}
    path.write_text(json.dumps({**index, "manifests": [*index["manifests"], other]}), "utf-8")

    assert store.read_index().names == ("shop",)
    assert {*store.read_index().versions("shop")} == {FIRST, NEXT}
    assert store.resolve("shop").contracts == b"[2]"
    assert store.roll_back("shop", FIRST, at="noon") == (NEXT,)
    assert store.resolve("shop").contracts == b"[1]"
    assert other in json.loads(path.read_text("utf-8"))["manifests"]


def test_members_of_the_index_that_other_tools_wrote_stay(store):
    path = store.folder / "index.json"
    index = json.loads(path.read_text("utf-8"))
    image = {
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": f"sha256:{'0' * 64}",
        "size": 7,
        "platform": {"architecture": "arm64", "os": "linux"},
        "annotations": {REF: "other", "com.example.note": "kept"},
    }
    index["manifests"][0] |= {"urls": ["https://example.com/a"]}
    index["manifests"][0]["annotations"]["com.example.note"] = "kept"
    index = {
        **index,
        "annotations": {"com.example.owner": "ops"},
        "manifests": [*index["manifests"], image],
    }
    path.write_text(json.dumps(index), "utf-8")

    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    written = json.loads(path.read_text("utf-8"))
    assert written["manifests"][:2] == index["manifests"]
    assert {**written, "manifests": []} == {**index, "manifests": []}

    store.roll_back("shop", FIRST, at="noon")
    store.roll_back("shop", NEXT, at="evening")
    assert json.loads(path.read_text("utf-8")) == written


def test_a_second_reference_to_a_version_is_the_same_version(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    path = store.folder / "index.json"
    index = json.loads(path.read_text("utf-8"))
    tag = {name: index["manifests"][1][name] for name in ("mediaType", "digest", "size")}
    tagged = {**tag, "annotations": {REF: "production"}}  # As skopeo adds a tag.
    path.write_text(json.dumps({**index, "manifests": [*index["manifests"], tagged]}), "utf-8")

    assert [*store.read_index().versions("shop")] == [FIRST, NEXT]
    store.roll_back("shop", FIRST, at="noon")
    assert store.resolve("shop").version == FIRST
    store.roll_back("shop", NEXT, at="noon")
    assert store.resolve("shop").version == NEXT


def test_two_manifests_of_one_version_are_refused(store, tmp_path):
    other = PackageStore(tmp_path / "other")
    other.publish("shop", FIRST, b"[9]", newest=None, created="")
    entry = json.loads((other.folder / "index.json").read_text("utf-8"))["manifests"][0]
    path = store.folder / "index.json"
    index = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**index, "manifests": [*index["manifests"], entry]}), "utf-8")
    with pytest.raises(InvalidConfig, match=r"two manifests are shop@1\.0\.0"):
        store.resolve("shop")


def test_of_two_publishers_at_once_one_wins_and_the_other_is_told(store):
    command = [sys.executable, "-c", RACER, str(store.folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([*command, text], **pipes) for text in ("[2]", "[3]")]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    texts = [racer.communicate(timeout=30)[0].strip() for racer in racers]
    assert texts.count("won") == 1
    assert any("somebody else published" in text for text in texts)
    assert store.resolve("shop").contracts == (b"[2]" if texts[0] == "won" else b"[3]")


def test_a_version_after_one_that_is_no_longer_the_newest_is_refused(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    with pytest.raises(UsageError, match=r"the newest one of shop is 1\.1\.0; nothing was written"):
        store.publish("shop", NEXT.bumped("minor"), b"[3]", newest=FIRST, created="")


def test_the_same_contracts_are_a_no_op_and_others_are_refused(store):
    before = (store.folder / "index.json").read_bytes()
    assert not store.publish("shop", FIRST, b"[1]", newest=FIRST, created="later")
    with pytest.raises(UsageError, match="never changes"):
        store.publish("shop", FIRST, b"[2]", newest=FIRST, created="")
    assert (store.folder / "index.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("index.json", b"{", b"x"),
        ("index.json", b'"size":', b'"size":1'),
        ("index.json", b"sha256:", b"sha256:../../"),
        ("index.json", b'title":"shop"', b'title":"../shop"'),
        ("index.json", b'version":"1.0.0"', b'version":"one"'),
        ("oci-layout", b"1.0.0", b"2.0.0"),
    ],
)
def test_a_damaged_or_newer_store_is_refused(store, name, old, new):
    path = store.folder / name
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(InvalidConfig):
        store.resolve("shop")


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_changed_or_missing_blob_is_refused(store, damage):
    for path in (store.folder / "blobs" / "sha256").iterdir():
        if path.read_bytes() == b"[1]":
            path.write_bytes(b"[9]") if damage == "changed" else path.unlink()
    with pytest.raises(InvalidConfig, match="digest" if damage == "changed" else "missing"):
        store.resolve("shop")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("latest", (2, 0, 0)),
        ("^1", (1, 3, 0)),
        ("1", (1, 3, 0)),
        ("~1.2", (1, 2, 4)),
        ("1.2", (1, 2, 4)),
        ("^1.2.4", (1, 3, 0)),
        ("~1", (1, 3, 0)),
        ("1.2.3", (1, 2, 3)),
        ("1.2.9", None),
        ("^3", None),
    ],
)
def test_the_newest_version_of_a_range_is_selected(wanted, found):
    texts = [(1, 2, 3), (1, 2, 4), (1, 3, 0), (2, 0, 0)]
    expected = None if found is None else PackageVersion(*found)
    assert selected_version(wanted, [PackageVersion(*each) for each in texts]) == expected


@pytest.mark.parametrize("wanted", ["", "x", "1.2.3.4", "../1", ">=1", "01", "1" * 99])
def test_another_range_is_refused(wanted):
    with pytest.raises(UsageError):
        selected_version(wanted, [FIRST])
