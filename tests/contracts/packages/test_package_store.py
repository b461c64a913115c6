"""Published packages: atomic under a crash at every step, one winner of two, damage is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST, PackageVersion, selected_version
from callpact.errors import InvalidConfig, UsageError

REF = "org.opencontainers.image.ref.name"
NEXT = FIRST.bumped("minor")
PUBLISHER = """
import os, signal, sys
from pathlib import Path
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import FIRST

folder, last = Path(sys.argv[1]), int(sys.argv[2])
steps = []

def step(name):
    steps.append(name)
    if len(steps) == last:
        os.kill(os.getpid(), signal.SIGKILL)

PackageStore(folder).publish(
    "shop", FIRST.bumped("minor"), b"[2]", newest=FIRST, created="", on_step=step
)
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


def test_a_publisher_killed_at_any_step_leaves_the_old_or_the_new_version(tmp_path):
    is_killed, last, seen = True, 0, []
    while is_killed:
        last += 1
        made = PackageStore(tmp_path / str(last))
        made.publish("shop", FIRST, b"[1]", newest=None, created="")
        command = [sys.executable, "-c", PUBLISHER, str(made.folder), str(last)]
        code = subprocess.run(command, timeout=30, check=False).returncode
        is_killed = code == -signal.SIGKILL
        assert is_killed or code == 0
        found = made.resolve("shop")
        assert (found.version, found.contracts) in {(FIRST, b"[1]"), (NEXT, b"[2]")}
        seen.append(found.version)
        if found.version == FIRST:
            assert made.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
        assert made.resolve("shop").contracts == b"[2]"
    assert last > 9
    assert {*seen} == {FIRST, NEXT}
    assert seen == sorted(seen)


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


def test_a_rollback_that_breaks_off_at_any_step_leaves_the_old_or_the_new_index(tmp_path):
    steps = 0
    for last in range(1, 5):
        made = PackageStore(tmp_path / str(last))
        made.publish("shop", FIRST, b"[1]", newest=None, created="")
        made.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
        seen = []

        def step(name, seen=seen, last=last):
            seen.append(name)
            if len(seen) == last:
                raise KeyboardInterrupt

        try:
            made.roll_back("shop", FIRST, at="noon", on_step=step)
        except KeyboardInterrupt:
            steps += 1
        assert made.resolve("shop").version == (NEXT if "renamed index.json" not in seen else FIRST)
        made.roll_back("shop", FIRST, at="noon")
        assert made.resolve("shop").version == FIRST
    assert steps == 3


def test_entries_of_an_index_that_another_tool_wrote_are_known_by_their_manifests(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    path = store.folder / "index.json"
    index = json.loads(path.read_text("utf-8"))
    for entry in index["manifests"]:  # As skopeo copies them.
        del entry["artifactType"]
        entry["annotations"] = {REF: entry["annotations"][REF]}
    other = {**index["manifests"][0], "digest": f"sha256:{'0' * 64}"}
    path.write_text(json.dumps({**index, "manifests": [*index["manifests"], other]}), "utf-8")

    assert store.read_index().names == ("shop",)
    assert {*store.read_index().versions("shop")} == {FIRST, NEXT}
    assert store.resolve("shop").contracts == b"[2]"
    assert store.roll_back("shop", FIRST, at="noon") == (NEXT,)
    assert store.resolve("shop").contracts == b"[1]"
    assert other in json.loads(path.read_text("utf-8"))["manifests"]


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
    assert any("it never changes" in text for text in texts)
    assert store.resolve("shop").contracts == (b"[2]" if texts[0] == "won" else b"[3]")


def test_a_version_after_one_that_is_no_longer_the_newest_is_refused(store):
    store.publish("shop", NEXT, b"[2]", newest=FIRST, created="")
    with pytest.raises(UsageError, match="somebody else published"):
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
