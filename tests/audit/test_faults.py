"""What goes wrong around a log costs no call, no other record, and never goes unsaid."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from callpact import Call, Contract, Runtime, Tool
from callpact.audit import Health, Record, health_of, open_store, record_calls
from callpact.audit.journal import segments as journals
from callpact.audit.journal.health import add_health
from callpact.audit.journal.lines import LineHead, encode_head, encode_line
from callpact.audit.journal.segments import Journal, segments
from callpact.audit.record import payload_of
from callpact.audit.store import Filter
from callpact.audit.store import compactor as compacting
from callpact.audit.store.compactor import Compactor
from callpact.audit.store.parquet import ParquetStore


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(compacting, "SECONDS_BETWEEN_PASSES", 0.01)
    monkeypatch.setattr(compacting, "MAX_SECONDS_BETWEEN_TRIES", 0.1)


@pytest.fixture
def small_disk(make_disk):
    """A file system of 1 MB."""
    return make_disk("1m")


def fill(path):
    """Take all the room there is."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 512):
            pass


def record(number, at=None, **more):
    return Record(f"call-{number}", 1_000 + number if at is None else at, 0.5, "shop.price", **more)


def large(number):
    """One that takes room in a store, however well it is packed."""
    return record(number, input=payload_of(json.dumps(os.urandom(2_000).hex()).encode()))


def write(journal, records):
    for each in records:
        assert journal.append(encode_line(each))


def kept(store):
    return sorted(int(found.id.removeprefix("call-")) for found in store.log(Filter(), limit=9_999))


# --- a full disk ----------------------------------------------------------------------------


def test_a_store_on_a_full_disk_gets_all_records_once_there_is_room(small_disk, tmp_path, caplog):
    journal, store = Journal(tmp_path / "journal"), ParquetStore(small_disk)
    write(journal, map(record, range(10)))
    with (
        caplog.at_level(logging.ERROR, "callpact.audit"),
        Compactor(tmp_path / "journal", store) as compactor,
    ):
        assert compactor.flush()
        fill(small_disk / "other")
        write(journal, map(large, range(10, 60)))
        assert not compactor.flush(1.0)
        assert len(caplog.records) == 1  # Once a minute at most.
        (small_disk / "other").unlink()
        assert compactor.flush()
        assert kept(store) == list(range(60))
    assert "full" in caplog.text
    assert (compactor.refused, journal.lost) == (0, 0)
    store.close()


def test_a_journal_on_a_full_disk_makes_room_by_what_is_indexed(small_disk, tmp_path):
    """What was lost meanwhile is counted, also for those who come later."""
    journal, store = Journal(small_disk / "journal"), ParquetStore(tmp_path)
    tries = [journal.append(encode_line(large(number))) for number in range(400)]
    lost = tries.count(False)
    assert lost == journal.lost > 0
    journal.close()
    assert health_of(small_disk / "journal").lost == lost
    with Compactor(small_disk / "journal", store) as compactor:
        assert compactor.flush()
    assert kept(store) == [number for number, is_kept in enumerate(tries) if is_kept]
    assert segments(small_disk / "journal") == []
    later = Journal(small_disk / "journal")
    assert later.append(encode_line(record(1)))
    assert (later.lost, later.health()) == (0, Health(lost=lost, unreadable=compactor.unreadable))
    later.close()
    store.close()


# --- clocks ---------------------------------------------------------------------------------

HOUR_NS = 3_600 * 10**9


@pytest.mark.parametrize("jump", [-24 * HOUR_NS, 24 * HOUR_NS])
def test_a_clock_that_jumps_costs_no_record(tmp_path, jump):
    """A process names a segment by its clock, which is set while it runs."""
    journal, store = Journal(tmp_path / "journal"), ParquetStore(tmp_path)
    write(journal, map(record, range(3)))
    (segment,) = segments(tmp_path / "journal")
    begin, _, end = segment.name.partition("-")
    segment.rename(segment.with_name(f"{int(begin) + jump:020}-{end}"))
    write(journal, map(record, range(3, 6)))
    with Compactor(tmp_path / "journal", store) as compactor:
        assert compactor.flush()
        journal.rotate()
        write(journal, map(record, range(6, 9)))
        assert compactor.flush()
        assert kept(store) == list(range(9))
    assert journal.lost == 0
    store.close()


def test_records_of_any_time_are_kept(tmp_path):
    journal, store = Journal(tmp_path / "journal"), ParquetStore(tmp_path)
    now = time.time_ns() // 1_000_000
    times = [now, now - 10**10, now + 10**10, 0, 1, now + 1, now - 1]
    write(journal, [record(number, at) for number, at in enumerate(times)])
    with Compactor(tmp_path / "journal", store) as compactor:
        assert compactor.flush()
    assert [found.at for found in store.log(Filter())] == sorted(times, reverse=True)
    store.close()


# --- several processes ----------------------------------------------------------------------

PROCESS = """
import asyncio, sys
from callpact import Call, Contract, Runtime, Tool
from callpact.audit.log import record_calls

async def echo(arguments, context):
    return arguments

async def main():
    tool = Tool(id="shop.price", description="", contract=Contract(), handler=echo)
    with record_calls(sys.argv[1]) as recorder:
        runtime = Runtime([tool], [recorder])
        sys.stdin.readline()
        for number in range(int(sys.argv[2]), int(sys.argv[2]) + 400):
            await runtime.call(Call("shop.price", {"n": number}, f"call-{number}"))

asyncio.run(main())
"""


def test_processes_that_share_a_folder_keep_each_call_once_and_leave_nothing(tmp_path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(first)], stdin=subprocess.PIPE) for first in (0, 400, 800)
    ]
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    store = ParquetStore(tmp_path)
    with Compactor(tmp_path / "journal", store) as compactor:
        assert compactor.flush()
    assert kept(store) == list(range(1_200))
    assert segments(tmp_path / "journal") == []
    store.close()


def test_processes_add_to_one_count(tmp_path):
    def count():
        for _ in range(200):
            while True:
                with contextlib.suppress(BlockingIOError):
                    add_health(tmp_path, lost=1, refused=2)
                    break

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert health_of(tmp_path) == Health(lost=600, refused=1_200)


# --- what somebody did to the folder --------------------------------------------------------


async def echo(arguments, _context):
    return arguments


def call(recorder, numbers):
    tool = Tool(id="shop.price", description="", contract=Contract(), handler=echo)
    runtime = Runtime([tool], [recorder])

    async def main():
        for number in numbers:
            await runtime.call(Call("shop.price", {"n": number}, f"call-{number}"))

    asyncio.run(main())


@pytest.mark.parametrize("removed", [".", "journal", "store"])
@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_folder_that_is_removed_while_serving_costs_no_record(
    tmp_path, monkeypatch, removed, is_compacted
):
    monkeypatch.setattr(journals, "_SECONDS_BETWEEN_LOOKS", 0.0)
    log = tmp_path / "log"
    with record_calls(log) as recorder:
        call(recorder, range(300))
        if is_compacted:
            store = ParquetStore(log)
            with Compactor(log / "journal", store) as compactor:
                assert compactor.flush()
            store.close()
            assert (log / "store" / "manifest.json").exists()
        shutil.rmtree(log / removed, ignore_errors=removed == "store")
        call(recorder, range(300, 350))
        assert recorder.lost == 0
    store = open_store(log)
    assert kept(store) == list(range(350))
    assert health_of(log / "journal").is_well
    store.close()


def test_records_that_were_in_files_of_a_removed_folder_are_counted_as_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "_SECONDS_BETWEEN_LOOKS", 0.0)
    log = tmp_path / "log"
    with record_calls(log) as recorder:
        call(recorder, range(300))
        recorder._journal.rotate()
        store = ParquetStore(log)
        with Compactor(log / "journal", store) as compactor:
            assert compactor.flush()
        store.close()
        assert segments(log / "journal") == []
        call(recorder, range(300, 320))
        shutil.rmtree(log)
        call(recorder, range(320, 350))
        assert recorder.health().lost == 300
    store = open_store(log)
    assert kept(store) == list(range(300, 350))
    assert health_of(log / "journal") == Health(lost=300)
    store.close()


WHOLE = encode_line(record(1))
HEAD = encode_head(LineHead("shop.price"))
NO_RECORDS = [
    b"\x00\xff\xfe",
    b"no JSON at all",
    WHOLE[: len(WHOLE) // 2],
    WHOLE[len(WHOLE) // 2 : -1],
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b'{"id":1,"at":"now","ms":null,"tool":[]}',
    b"[[[[" * 5_000,
    b"[" + HEAD + b"]",
    b"[" + HEAD + b',"call-1",1,0.5,"",null,null,null,null,{"a":\xff},1]',
    b"[" + HEAD + b',"call-1",1,0.5,"",null,null,null,null,{"a":},1]',
    b'[{"tool":"a.b"},[]]',
    b'[{"tool":"a.b"},[[],"local",null,{},1]]',
    b'[{"tool":"a.b"},[["call-1",1,0.5,"",null,null,null,null],"local",null,{"a":\xff},1]]',
    b'{"id":"call-1","at":1,"ms":1,"tool":"a.b","input":{"sha256":"","size":1,"json":"\\ud800"}}',
]


@pytest.mark.parametrize("line", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_a_line_that_is_no_record_costs_no_other_and_is_counted(tmp_path, line, caplog):
    folder = tmp_path / "journal"
    folder.mkdir()
    ends = [encode_line(record(0)), line + b"\n", encode_line(record(2)), line]
    (folder / "00000000000000000001-1.jsonl").write_bytes(b"".join(ends))
    store = ParquetStore(tmp_path)
    with caplog.at_level(logging.ERROR, "callpact.audit"), Compactor(folder, store) as compactor:
        assert compactor.flush()
    assert kept(store) == [0, 2]
    assert compactor.unreadable == 2
    assert health_of(folder) == Health(unreadable=2)
    assert "2 lines" in caplog.text
    assert segments(folder) == []
    store.close()


def test_a_damaged_count_begins_anew(tmp_path):
    for damage in (b"", b"x" * 100, b"1 2"):
        (tmp_path / "health").write_bytes(damage)
        assert health_of(tmp_path) == Health()
        add_health(tmp_path, lost=1)
        assert health_of(tmp_path) == Health(lost=1)
