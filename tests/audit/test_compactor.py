"""What is in the journal comes into the store: all of it, once, whatever dies meanwhile."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from callpact.audit import Health, Record, health_of
from callpact.audit.journal.file_locks import hold
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal, segments
from callpact.audit.store import Overtaken
from callpact.audit.store import compactor as compacting
from callpact.audit.store.compactor import Compactor
from callpact.errors import UsageError


class MemoryStore:
    """Keeps records by id, as a store must; fails as often as it is told to."""

    def __init__(self, failures=0, refuses=()):
        self.records = {}
        self.offsets = {}
        self.added = 0
        self.failures = failures
        self.refuses = set(refuses)
        self.refusal = ValueError("not this one")
        self.failed = threading.Event()

    is_eager = True

    def taken(self):
        return self.offsets

    def add(self, records, moved=None):
        if self.failures:
            self.failures -= 1
            self.failed.set()
            raise OSError("locked")
        if any(record.id in self.refuses for record in records):
            self.failed.set()
            raise self.refusal
        new = [record for record in records if record.id not in self.records]
        self.added += len(records)
        self.records.update({record.id: record for record in new})
        if moved is not None:
            if moved.before != self.offsets:
                raise Overtaken
            self.offsets = moved.after
        return len(new)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(compacting, "SECONDS_BETWEEN_PASSES", 0.01)


def record(number):
    return Record(f"call-{number}", 1_000 + number, 0.5, "shop.price")


def write(journal, numbers):
    for number in numbers:
        assert journal.append(encode_line(record(number)))


def left(folder):
    """What is there, but for the counts of what could not be kept."""
    return [path.name for path in folder.iterdir() if path.name not in {"health", "lock"}]


def names(numbers):
    return [f"call-{number}" for number in numbers]


def test_what_is_written_is_in_the_store_after_a_flush(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore()
    with Compactor(tmp_path, store) as compactor:
        for first in (0, 50, 100):
            write(journal, range(first, first + 50))
            assert compactor.flush()
            assert list(store.records) == names(range(first + 50))
    assert store.records["call-7"] == record(7)
    assert store.added == compactor.added == 150  # Nothing was read twice.


def test_what_is_there_when_it_closes_is_in_the_store(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore()
    write(journal, range(10))
    Compactor(tmp_path, store).start().close()
    assert list(store.records) == names(range(10))


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path):
    with Compactor(tmp_path / "later", MemoryStore()) as compactor:
        assert compactor.flush()
        journal = Journal(tmp_path / "later")
        write(journal, [1])
        assert compactor.flush()
        assert compactor.added == 1


def test_a_segment_that_is_left_goes_and_one_that_is_written_stays(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore()
    with Compactor(tmp_path, store) as compactor:
        write(journal, range(5))
        assert compactor.flush()
        assert len(segments(tmp_path)) == 1
        journal.rotate()
        assert compactor.flush()
        assert left(tmp_path) == []
        write(journal, range(5, 8))
        assert compactor.flush()
    assert list(store.records) == names(range(8))


def test_a_segment_goes_when_it_is_old_though_its_process_writes_on(tmp_path, monkeypatch):
    journal, store = Journal(tmp_path), MemoryStore()
    with Compactor(tmp_path, store) as compactor:
        write(journal, range(3))
        assert compactor.flush()
        journal.rotate(older_than=3_600)
        assert len(segments(tmp_path)) == 1
        monkeypatch.setattr(compacting, "MAX_SEGMENT_SECONDS", 0.0)
        assert compactor.flush()
        assert left(tmp_path) == []
        write(journal, range(3, 6))
        assert compactor.flush()
        assert left(tmp_path) == []
        assert list(store.records) == names(range(6))
    assert journal.lost == 0


def test_it_goes_on_where_another_stopped(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore()
    write(journal, range(5))
    Compactor(tmp_path, store).start().close()
    write(journal, range(5, 9))
    second = Compactor(tmp_path, store).start()
    second.close()
    assert second.added == 4
    assert list(store.records) == names(range(9))
    assert store.added == 9


def test_a_torn_last_line_of_a_dead_process_is_passed_over(tmp_path):
    whole = encode_line(record(1))
    (tmp_path / "00000000000000000001-7.jsonl").write_bytes(whole + encode_line(record(2))[:-9])
    store = MemoryStore()
    with Compactor(tmp_path, store) as compactor:
        assert compactor.flush()
    assert list(store.records) == ["call-1"]
    assert compactor.unreadable == 1
    assert left(tmp_path) == []


def test_a_last_line_that_only_lacks_its_end_counts(tmp_path):
    (tmp_path / "00000000000000000001-7.jsonl").write_bytes(encode_line(record(1))[:-1])
    store = MemoryStore()
    Compactor(tmp_path, store).start().close()
    assert list(store.records) == ["call-1"]


def test_a_torn_line_in_a_segment_that_is_written_waits_for_its_end(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore()
    write(journal, [1])
    (segment,) = segments(tmp_path)
    text = encode_line(record(2))
    with Compactor(tmp_path, store) as compactor, segment.open("ab", buffering=0) as file:
        file.write(text[:20])
        assert compactor.flush()
        assert list(store.records) == ["call-1"]
        file.write(text[20:])
        assert compactor.flush()
    assert list(store.records) == ["call-1", "call-2"]
    assert compactor.unreadable == 0


def test_lines_longer_than_a_batch_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(compacting, "BATCH_BYTES", 64)
    journal, store = Journal(tmp_path), MemoryStore()
    long = Record("long", 1, 0.5, "shop.price", message="x" * 1_000)
    write(journal, range(3))
    journal.append(encode_line(long))
    write(journal, range(3, 5))
    Compactor(tmp_path, store).start().close()
    assert sorted(store.records) == sorted([*names(range(5)), "long"])
    assert store.records["long"] == long


def test_a_store_that_fails_is_tried_again_and_nothing_is_lost(tmp_path, caplog):
    journal, store = Journal(tmp_path), MemoryStore(failures=10)
    write(journal, range(5))
    with Compactor(tmp_path, store) as compactor:
        assert store.failed.wait(10)
        write(journal, range(5, 10))
        assert compactor.flush()
    assert sorted(store.records) == names(range(10))
    assert compactor.refused == 0
    assert len(caplog.records) == 1


def test_a_store_that_stays_broken_keeps_nobody_waiting_for_ever(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore(failures=10**9)
    write(journal, range(5))
    with Compactor(tmp_path, store) as compactor:
        assert not compactor.flush(timeout=0.05)
    store.failures = 0
    Compactor(tmp_path, store).start().close()
    assert list(store.records) == names(range(5))


def test_one_record_that_the_store_refuses_keeps_no_other_out(tmp_path):
    journal, store = Journal(tmp_path), MemoryStore(refuses=["call-0", "call-3"])
    write(journal, range(6))
    with Compactor(tmp_path, store) as compactor:
        assert compactor.flush()
    assert sorted(store.records) == names([1, 2, 4, 5])
    assert compactor.refused == 2
    aside = (tmp_path / "refused.log").read_bytes().splitlines()
    assert [json.loads(line)["id"] for line in aside] == ["call-0", "call-3"]
    assert health_of(tmp_path) == Health(refused=2)


def test_a_store_with_little_room_refuses_no_record_for_good(tmp_path):
    """What is small may still be taken: that what is large is not does not make it wrong."""
    journal, store = Journal(tmp_path), MemoryStore(refuses=names([1]))
    store.refusal = UsageError("database or disk is full")
    write(journal, range(3))
    with Compactor(tmp_path, store) as compactor:
        assert store.failed.wait(30)
        assert not compactor.flush(0.2)
        store.refuses.clear()
        assert compactor.flush()
        assert sorted(store.records) == names(range(3))
    assert compactor.refused == 0
    assert not (tmp_path / "refused.log").exists()


def test_two_compactors_share_a_folder(tmp_path):
    journals = [Journal(tmp_path, max_segment_bytes=300) for _ in range(2)]
    store, lock = MemoryStore(), threading.Lock()

    class Shared:
        is_eager = True

        def taken(self):
            return store.taken()

        def add(self, records, moved=None):
            with lock:
                return store.add(records, moved)

    with Compactor(tmp_path, Shared()) as first, Compactor(tmp_path, Shared()) as second:
        for number in range(0, 400, 2):
            write(journals[0], [number])
            write(journals[1], [number + 1])
        assert first.flush()
        assert second.flush()
        assert sorted(store.records) == sorted(names(range(400)))
    assert store.added == first.added + second.added == 400


def test_a_journal_hears_of_a_removed_segment_once_its_file_is_unlocked(tmp_path, monkeypatch):
    """A journal may wait for that file while it holds the lock of its own that `store` needs."""
    journal, original, free = Journal(tmp_path), Journal.store, []
    write(journal, [1])
    (name,) = (path.name for path in tmp_path.glob("*-*"))
    segment = os.open(tmp_path / name, os.O_RDONLY)

    def store(told, segment_name):
        if segment_name == name:
            free.append(hold(segment))
        original(told, segment_name)

    monkeypatch.setattr(Journal, "store", store)
    with Compactor(tmp_path, MemoryStore()) as compactor:
        journal.rotate()
        assert compactor.flush()
    os.close(segment)
    assert free == [True]


LOAD = Path(__file__).with_name("load_until_killed.py")


def test_kill_9_at_any_moment_loses_no_answered_call_and_keeps_none_twice(tmp_path):
    """Pairs of processes record and index into one store; both are killed, twelve times."""
    done = subprocess.run(
        [sys.executable, LOAD, tmp_path, "12"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == 24
    assert told["answered"] > 24
    assert told["missing"] == []
    assert told["twice"] == []
    assert told["seen"] is True  # With what waits in the journal, as without.
    # At most the one call of each process that was on record and not answered yet.
    assert 0 <= told["records"] - told["answered"] <= told["kills"]
    assert told["left"] == []


READ = Path(__file__).with_name("compact_until_killed.py")


def test_two_compactors_and_two_readers_that_are_killed_count_exactly(tmp_path):
    done = subprocess.run(
        [sys.executable, READ, tmp_path, "8"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] >= 5
    assert told["answers"] >= 1
    assert told["wrong"] == []
    assert told["written"] == told["seen"] == told["kept"] == told["distinct"]
    assert told["newest"] == f"call-{told['written'] - 1}"
    assert told["left"] == 0
