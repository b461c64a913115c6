"""The journal keeps each line with one write, loses what it cannot write, and says so."""

import logging
import os
import shutil
import stat
import subprocess
import sys
import threading

import pytest

from callpact.audit import Record
from callpact.audit.journal.file_locks import hold
from callpact.audit.journal.lines import decode_line, encode_line
from callpact.audit.journal.segments import Journal, segments
from callpact.errors import UsageError


def record(number):
    return Record(f"call-{number}", 1_000 + number, 0.5, "shop.price")


def line(number):
    return encode_line(record(number))


def lines(folder):
    return [text for path in segments(folder) for text in path.read_bytes().split(b"\n") if text]


def ids(folder):
    return [found.id for text in lines(folder) if (found := decode_line(text)) is not None]


def test_a_line_is_in_its_file_when_append_returns(tmp_path):
    journal = Journal(tmp_path / "journal")
    for number in range(3):
        assert journal.append(line(number))
        assert ids(tmp_path / "journal") == [f"call-{n}" for n in range(number + 1)]
    assert journal.lost == 0


def test_only_the_user_can_read_the_folder_and_the_files(tmp_path):
    before = os.umask(0)
    try:
        Journal(tmp_path / "journal").append(line(1))
    finally:
        os.umask(before)
    (segment,) = segments(tmp_path / "journal")
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700


def test_a_segment_is_left_when_it_is_large_and_when_somebody_asks(tmp_path):
    journal = Journal(tmp_path, max_segment_bytes=2 * len(line(1)))
    for number in range(5):
        journal.append(line(number))
    assert len(segments(tmp_path)) == 3
    journal.rotate()
    journal.rotate()  # Nothing was written since: there is nothing to leave.
    journal.append(line(5))
    assert len(segments(tmp_path)) == 4
    assert ids(tmp_path) == [f"call-{n}" for n in range(6)]


def test_a_segment_is_held_as_long_as_it_is_written(tmp_path):
    journal = Journal(tmp_path)
    journal.append(line(1))
    (segment,) = segments(tmp_path)
    with segment.open() as other:
        assert not hold(other.fileno())
        journal.rotate()
        assert hold(other.fileno())


def test_threads_write_whole_lines(tmp_path):
    journal = Journal(tmp_path, max_segment_bytes=5_000)

    def work(first):
        for number in range(first, first + 200):
            journal.append(line(number))

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    wanted = {f"call-{f + n}" for f in (0, 1000, 2000, 3000) for n in range(200)}
    assert sorted(ids(tmp_path)) == sorted(wanted)


def test_a_folder_that_cannot_be_made_costs_records_and_comes_back(tmp_path, caplog):
    (tmp_path / "journal").write_text("in the way")
    journal = Journal(tmp_path / "journal")
    with caplog.at_level(logging.ERROR, "callpact.audit"):
        assert [journal.append(line(n)) for n in range(3)] == [False] * 3
    assert journal.lost == 3
    assert len(caplog.records) == 1  # Once a minute at most.
    (tmp_path / "journal").unlink()
    assert journal.append(line(3))
    assert ids(tmp_path / "journal") == ["call-3"]


def test_lines_of_a_segment_that_somebody_removed_are_written_again(tmp_path):
    journal = Journal(tmp_path)
    for number in range(4):
        journal.append(line(number))
    (segment,) = segments(tmp_path)
    segment.unlink()
    journal.rotate()
    (again,) = segments(tmp_path)
    assert again.read_bytes() == b"".join(map(line, range(4)))
    assert journal.lost == 0


def test_only_lines_that_no_store_has_are_written_again(tmp_path):
    taken = {}
    journal = Journal(tmp_path / "journal", taken=lambda name: taken.get(name, 0))
    for number in range(4):
        journal.append(line(number))
    (segment,) = segments(tmp_path / "journal")
    taken[segment.name] = len(line(0)) * 3
    shutil.rmtree(tmp_path / "journal")
    journal.rotate()
    (again,) = segments(tmp_path / "journal")
    assert again.read_bytes() == line(3)
    journal.close()
    assert journal.health().lost == 0


def test_former_segments_that_are_removed_before_a_store_has_them_are_counted(tmp_path):
    journal = Journal(tmp_path / "journal", taken=lambda _: 0)
    for number in range(6):
        journal.append(line(number))
        if number in {1, 3}:
            journal.rotate()
    first = segments(tmp_path / "journal")[0]
    journal.store(first.name)
    shutil.rmtree(tmp_path / "journal")
    journal.rotate(3_600)
    assert journal.lost == 2  # The first segment is in the store, the last is written again.
    assert journal.health().lost == 2
    assert len(segments(tmp_path / "journal")) == 1


def test_a_store_that_is_removed_too_is_counted(tmp_path):
    journal = Journal(tmp_path / "journal", taken=lambda _: None)
    for number in range(6):
        journal.append(line(number))
        if number in {1, 3}:
            journal.rotate()
    for each in segments(tmp_path / "journal")[:2]:
        journal.store(each.name)
    shutil.rmtree(tmp_path / "journal")
    journal.append(line(6))
    journal.close()
    assert (journal.lost, journal.health().lost) == (4, 4)
    [left] = segments(tmp_path / "journal")
    assert left.read_bytes() == b"".join(map(line, (4, 5, 6)))


def test_after_close_a_line_is_lost_and_counted(tmp_path):
    journal = Journal(tmp_path)
    journal.append(line(1))
    journal.close()
    assert not journal.append(line(2))
    assert journal.lost == 1
    assert ids(tmp_path) == ["call-1"]


def test_fsync_keeps_lines_as_well(tmp_path):
    journal = Journal(tmp_path, durability="fsync")
    assert journal.append(line(1))
    assert ids(tmp_path) == ["call-1"]


def test_an_unknown_durability_is_refused(tmp_path):
    with pytest.raises(UsageError, match="durability"):
        Journal(tmp_path, durability="always")


LIMITED = """
import resource, sys
from pathlib import Path
from callpact.audit.journal.segments import Journal
from callpact.audit.journal.lines import encode_line
from callpact.audit.record import Record
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal = Journal(Path(sys.argv[1]))
kept = [n for n in range(200) if journal.append(encode_line(Record(f"call-{n}", n, 0.5, "a.b")))]
print(journal.lost, *kept)
"""


def test_a_file_that_takes_half_a_line_spoils_no_other_line(tmp_path):
    """A limit on the size of files: the write at the limit is short, and the next one fails."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lost, *kept = map(int, done.stdout.split())
    assert lost == 200 - len(kept) > 0
    assert ids(tmp_path) == [f"call-{n}" for n in kept]
    assert len(kept) > 100


def fill(path):
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


@pytest.fixture
def small_disk(make_disk):
    """A file system of 64 kB."""
    return make_disk("64k")


def test_a_full_disk_costs_records_until_there_is_room(small_disk, caplog):
    journal = Journal(small_disk / "journal")
    kept = [n for n in range(10) if journal.append(line(n))]
    fill(small_disk / "other")
    with caplog.at_level(logging.ERROR, "callpact.audit"):
        kept += [n for n in range(10, 300) if journal.append(line(n))]
    lost = journal.lost
    assert lost == 300 - len(kept) > 0
    assert len(caplog.records) == 1
    assert "No space" in caplog.text or "bytes were written" in caplog.text
    (small_disk / "other").unlink()
    kept += [n for n in range(300, 320) if journal.append(line(n))]
    assert journal.lost == lost
    assert ids(small_disk / "journal") == [f"call-{n}" for n in kept]
    journal.close()


FORKED = """
import os, sys
from pathlib import Path
from callpact.audit.journal.segments import Journal
from callpact.audit.journal.lines import encode_line
from callpact.audit.record import Record
def line(n): return encode_line(Record(f"call-{n}", n, 0.5, "a.b"))
journal = Journal(Path(sys.argv[1]))
journal.append(line(0))
child = os.fork()
journal.append(line(1 if child else 2))
if child:
    os.waitpid(child, 0)
    journal.append(line(3))
"""


def test_a_forked_process_writes_a_segment_of_its_own(tmp_path):
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    subprocess.run(command, timeout=60, check=True)
    parent, child = segments(tmp_path)
    assert [decode_line(text).id for text in parent.read_bytes().splitlines()] == [
        "call-0",
        "call-1",
        "call-3",
    ]
    assert [decode_line(text).id for text in child.read_bytes().splitlines()] == ["call-2"]
