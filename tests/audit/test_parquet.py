"""What is particular to the store of files: its manifest, what a reader sees, what is damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import msgspec
import pytest
from generated import BEGIN, DAY, counted, naive, naive_log, records

from callpact.audit import Record, open_store
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal
from callpact.audit.store import Filter, Moved, Overtaken, parquet
from callpact.audit.store.compactor import Compactor
from callpact.audit.store.manifest import read_manifest
from callpact.audit.store.parquet import ParquetStore
from callpact.errors import InvalidConfig, UsageError

SAMPLE = list(records(600))


@pytest.fixture
def store(tmp_path):
    store = ParquetStore(tmp_path)
    yield store
    store.close()


def files(store):
    return sorted(path.name for path in store.folder.glob("*.parquet"))


def listed(store):
    return sorted(file.name for file in read_manifest(store.folder).files)


def one(number, at=BEGIN, **more):
    return Record(id=f"call-{number}", at=at + number, ms=1.0, tool="shop.price", **more)


# --- files and the manifest -----------------------------------------------------------------


def test_each_day_of_a_batch_is_a_file(store):
    store.add(SAMPLE)
    assert [name[:10] for name in files(store)] == ["2026-09-01", "2026-09-02", "2026-09-03"]
    assert files(store) == listed(store)
    assert all(path.stat().st_mode & 0o077 == 0 for path in store.folder.glob("*.parquet"))


def test_small_files_of_a_day_become_one(store):
    for number in range(parquet.MAX_SMALL_FILES + 1):
        store.add([one(number)])
    assert len(files(store)) == 2
    assert files(store) == listed(store)
    assert len(store.log(Filter())) == parquet.MAX_SMALL_FILES + 1


def test_a_day_that_is_over_is_one_file_and_today_is_left(store):
    now = time.time_ns() // 1_000_000
    for number in range(3):
        store.add([one(number), one(10 + number, at=now)])
    store.tidy()
    assert sorted(file.rows for file in read_manifest(store.folder).files) == [1, 1, 1, 3]
    assert files(store) == listed(store)
    assert len(store.log(Filter())) == 6


def test_a_file_that_a_killed_process_left_is_removed_and_never_counts(store):
    store.add(SAMPLE[:10])
    (left,) = files(store)
    (store.folder / "2026-09-01-1-1.parquet").write_bytes((store.folder / left).read_bytes())
    assert len(store.log(Filter())) == 10
    store.add(SAMPLE[10:12])
    assert files(store) == listed(store)
    assert len(store.log(Filter())) == 12


def test_records_and_how_far_their_journal_is_read_are_kept_together(store):
    assert store.add(SAMPLE[:5], Moved({}, {"1.jsonl": 500})) == 5
    assert store.taken() == {"1.jsonl": 500}
    with pytest.raises(Overtaken):
        store.add(SAMPLE[5:9], Moved({}, {"1.jsonl": 900}))
    assert store.add([], Moved({"1.jsonl": 500}, {})) == 0
    assert store.taken() == {}
    assert len(store.log(Filter())) == 5


def test_a_record_that_cannot_be_kept_keeps_nothing_of_its_batch(store):
    broken = msgspec.structs.replace(SAMPLE[5], at=1 << 70)
    with pytest.raises(OverflowError):
        store.add([*SAMPLE[:5], broken])
    assert store.rates(Filter(), "tool") == []


def test_records_outlive_the_process_that_kept_them(tmp_path, store):
    store.add(SAMPLE)
    again = ParquetStore(tmp_path)
    assert again.find(SAMPLE[3].id) == SAMPLE[3]
    assert again.add(SAMPLE) == 0
    assert counted(again) == naive(SAMPLE)
    again.close()


def test_a_manifest_of_another_version_is_refused(tmp_path, store):
    store.add(SAMPLE[:1])
    (store.folder / "manifest.json").write_text('{"version": 2}', "utf-8")
    with pytest.raises(InvalidConfig, match="format 2"):
        ParquetStore(tmp_path)


# --- what a reader sees ---------------------------------------------------------------------


def test_a_record_is_visible_as_soon_as_it_is_in_the_journal(tmp_path, store):
    store.add(SAMPLE[:300])
    journal = Journal(tmp_path / "journal")
    for number, record in enumerate(SAMPLE[300:310], 301):
        assert journal.append(encode_line(record))
        assert store.find(record.id) == record
        assert len(store.log(Filter(), limit=1_000)) == number
        assert counted(store) == naive(SAMPLE[:number])
    journal.close()


def test_answers_stay_the_same_while_lines_become_files(tmp_path, store):
    journal = Journal(tmp_path / "journal")
    other = ParquetStore(tmp_path)
    compactor = Compactor(tmp_path / "journal", other)
    for end in range(100, 601, 100):
        for record in SAMPLE[end - 100 : end]:
            journal.append(encode_line(record))
        before = store.log(Filter(), limit=1_000, with_payloads=True)
        assert compactor.flush()
        assert store.log(Filter(), limit=1_000, with_payloads=True) == before
        assert before == naive_log(SAMPLE[:end], Filter())
    compactor.close()
    other.close()
    journal.close()


def test_lines_that_are_written_again_count_once(tmp_path, store):
    """The journal is removed while a reader has its lines, and the lines come again."""
    journal = Journal(tmp_path / "journal")
    for number in range(5):
        journal.append(encode_line(one(number)))
    assert len(store.log(Filter())) == 5
    shutil.rmtree(tmp_path / "journal")
    journal.rotate(3_600)
    assert len(store.log(Filter())) == 5
    journal.close()


def test_a_line_that_is_still_written_is_not_read(tmp_path, store):
    journal = Journal(tmp_path / "journal")
    journal.append(encode_line(one(1)))
    os.write(journal._fd, encode_line(one(2))[:20])
    assert [record.id for record in store.log(Filter())] == ["call-1"]
    journal.close()


@pytest.mark.parametrize("limit", ["MAX_WAITING_BYTES", "MAX_WAITING_LINES"])
def test_more_of_the_journal_than_one_question_reads_is_told(tmp_path, store, monkeypatch, limit):
    monkeypatch.setattr(parquet, limit, 500 if "BYTES" in limit else 5)
    journal = Journal(tmp_path / "journal")
    for number in range(20):
        journal.append(encode_line(one(number)))
        if number % 7 == 0:
            journal.rotate()
    journal.close()
    for _ in range(3):
        assert 0 < len(store.log(Filter())) < 20
        assert store.unread > 0


def test_a_reader_needs_no_right_to_write(tmp_path, store):
    store.add(SAMPLE[:10])
    for path in (store.folder / "manifest.json", *store.folder.glob("*.parquet")):
        path.chmod(0o400)
    lock = store.folder / "lock"
    lock.unlink()
    reader = ParquetStore(tmp_path)
    assert len(reader.log(Filter())) == 10
    assert not lock.exists()
    reader.close()


@pytest.mark.parametrize("name", ["it's", 'a "log"', "a[b]*?", "$1; DROP TABLE waiting", "ü ü"])
def test_a_folder_may_have_any_name(tmp_path, name):
    store = ParquetStore(tmp_path / name)
    store.add(SAMPLE[:20])
    store.add(SAMPLE[20:40])
    assert len(store.log(Filter())) == 40
    store.close()


@pytest.mark.parametrize("text", ["' OR 1=1 --", "$1", "'; DROP TABLE waiting; --", "%", "_", "!"])
def test_texts_of_a_filter_are_values_and_never_sql(store, text):
    store.add([one(1, caller=text), one(2, caller="ada")])
    assert [record.id for record in store.log(Filter(caller=text))] == ["call-1"]
    assert [rate.calls for rate in store.rates(Filter(caller=f"{text}*"), "tool")] == [1]
    assert store.find(text) is None
    assert store.ids_like(text, text) == []


def test_files_elsewhere_are_out_of_reach_of_the_database(tmp_path, store):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", "utf-8")
    for sql in (
        f"SELECT * FROM read_csv('{tmp_path / 'other.csv'}')",
        f"COPY (SELECT 1) TO '{tmp_path / 'made.parquet'}'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
    ):
        with pytest.raises(parquet.duckdb.Error):
            store._run_text(sql)
    assert not (tmp_path / "made.parquet").exists()


# --- damage ---------------------------------------------------------------------------------


def damaged(path, how):
    data = path.read_bytes()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "noise":
            path.write_bytes(data[:4] + os.urandom(len(data) - 8) + data[-4:])
        case "gone":
            path.unlink()


@pytest.mark.parametrize("how", ["empty", "cut", "noise", "gone"])
def test_a_damaged_file_is_left_out_and_reported(tmp_path, store, how, caplog):
    store.add(SAMPLE)
    first = files(store)[0]
    damaged(store.folder / first, how)
    left = [record for record in SAMPLE if record.at >= BEGIN + DAY]
    reader = ParquetStore(tmp_path)
    assert counted(reader) == naive(left)
    assert len(reader.log(Filter(), limit=1_000)) == len(left)
    assert reader.find(SAMPLE[0].id) is None
    assert set(reader.damaged) == {first}
    assert first in caplog.text
    # It keeps no new record out, of its own day or another.
    assert reader.add([one(1), one(2, at=BEGIN + 9 * DAY)]) == 2
    assert len(reader.log(Filter(), limit=1_000)) == len(left) + 2
    reader.close()


@pytest.mark.parametrize("how", ["empty", "cut", "noise", "gone"])
def test_a_compactor_goes_on_beside_a_damaged_file(tmp_path, store, how):
    store.add(SAMPLE)
    for name in files(store):
        damaged(store.folder / name, how)
    other = ParquetStore(tmp_path)
    late = [msgspec.structs.replace(record, id=f"late-{record.id}") for record in SAMPLE]
    for begin in range(0, 600, 30):
        assert other.add(late[begin : begin + 30]) == 30
    other.tidy()
    assert counted(other) == naive(late)
    assert len(other.damaged) == 3
    other.close()


# --- without DuckDB -------------------------------------------------------------------------

WITHOUT = """
import asyncio, sys
sys.modules["duckdb"] = None
from callpact import Call, Contract, Runtime, Tool
from callpact.audit.log import record_calls, open_store

async def echo(arguments, context):
    return arguments

async def main():
    tool = Tool(id="shop.price", description="", contract=Contract(), handler=echo)
    with record_calls(sys.argv[1]) as recorder:
        await Runtime([tool], [recorder]).call(Call("shop.price", {"n": 1}, "call-1"))

asyncio.run(main())
open_store(sys.argv[1])
"""


def test_without_duckdb_calls_are_on_record_and_a_question_says_what_to_install(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "UsageError" in run.stderr
    assert "pip install 'callpact[audit]'" in run.stderr
    store = open_store(tmp_path)
    assert [record.id for record in store.log(Filter())] == ["call-1"]
    store.close()


def test_a_closed_log_says_so(store):
    store.add(SAMPLE[:1])
    store.close()
    with pytest.raises(UsageError):
        store.log(Filter())
