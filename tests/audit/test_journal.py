"""The journal keeps each line with one write, loses what it cannot write, and says so."""

import logging
import os
import stat
import subprocess
import sys
import threading

import pytest

from callpact.audit import journal as journal_module
from callpact.audit.files import hold
from callpact.audit.journal import Journal, segments
from callpact.audit.lines import decode_line, encode_line
from callpact.audit.record import Record
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


def test_a_segment_that_somebody_removed_is_counted_as_lost(tmp_path):
    journal = Journal(tmp_path)
    for number in range(4):
        journal.append(line(number))
    (segment,) = segments(tmp_path)
    segment.unlink()
    journal.rotate()
    assert journal.lost == 4
    assert journal.append(line(4))
    assert ids(tmp_path) == ["call-4"]


def test_of_a_segment_that_is_removed_what_was_not_seen_before_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "_SECONDS_BETWEEN_LOOKS", 0)
    journal = Journal(tmp_path)
    for number in range(4):  # Each looks at what stands before it.
        journal.append(line(number))
    segments(tmp_path)[0].unlink()
    assert journal.append(line(4))
    assert journal.lost == 1
    assert ids(tmp_path) == ["call-4"]


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
from callpact.audit.journal import Journal
from callpact.audit.lines import encode_line
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
from callpact.audit.journal import Journal
from callpact.audit.lines import encode_line
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
