"""What is particular to the SQLite store: its file, its versions, its size, and what goes wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from generated import BEGIN, DAY, HOUR, counted, naive, naive_log, naive_rates, records, value
from hypothesis import given
from hypothesis import strategies as st

from callpact.audit import migrations, sql_rollups, sqlite_file
from callpact.audit.histogram import (
    bucket_of,
    merged,
    one_in,
    packed,
    pieces,
    quantiles,
    spans,
    summed,
    unpacked,
)
from callpact.audit.indexer import Indexer
from callpact.audit.journal import Journal, segments
from callpact.audit.lines import encode_line
from callpact.audit.record import Record, payload_of
from callpact.audit.sql_rollups import PENDING
from callpact.audit.sql_rows import UNITS
from callpact.audit.sqlite import ROLLUPS_KEPT, SqliteStore
from callpact.audit.sqlite_file import SqliteFile
from callpact.audit.store import Filter, Store
from callpact.errors import InvalidConfig, UsageError

SAMPLE = list(records(600))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "audit.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    yield store
    store.close()


# The file and its versions


def test_it_is_a_store(store):
    kept: Store = store
    assert kept.add(SAMPLE) == len(SAMPLE)


def test_a_new_file_is_made_for_many_readers_and_gives_space_back(path, store):
    assert value(path, "PRAGMA journal_mode") == "wal"
    assert value(path, "PRAGMA auto_vacuum") == 2  # incremental
    assert value(path, "PRAGMA user_version") == len(migrations.STEPS)
    assert store._file.number("foreign_keys") == 1


def test_records_outlive_the_process_that_kept_them(path):
    first = SqliteStore(path)
    first.add(SAMPLE)
    first.close()
    again = SqliteStore(path)
    assert again.find(SAMPLE[3].id) == SAMPLE[3]
    assert again.add(SAMPLE) == 0
    assert counted(again) == naive(SAMPLE)
    again.close()


@pytest.mark.parametrize("version", range(len(migrations.STEPS) + 1))
def test_a_file_of_every_earlier_version_is_brought_to_the_latest(tmp_path, version):
    old = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    migrations.migrate(old, "audit.db", migrations.STEPS[:version])
    assert migrations.version_of(old) == version
    old.close()
    store = SqliteStore(tmp_path / "audit.db")
    assert store.add(SAMPLE) == len(SAMPLE)
    assert counted(store) == naive(SAMPLE)
    new = SqliteStore(tmp_path / "new.db")
    assert _schema(store) == _schema(new)
    store.close()
    new.close()


def _schema(store):
    return set(store._file.execute("SELECT type, name, sql FROM sqlite_master"))


def test_a_step_that_fails_leaves_the_version_before_it(tmp_path):
    def broken(connection):
        connection.execute("CREATE TABLE half (a)")
        raise ArithmeticError

    connection = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    with pytest.raises(ArithmeticError):
        migrations.migrate(connection, "audit.db", (*migrations.STEPS, broken))
    assert migrations.version_of(connection) == len(migrations.STEPS)
    assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchall()
    connection.close()
    SqliteStore(tmp_path / "audit.db").close()


def test_steps_are_run_once_each_and_in_order(tmp_path):
    ran = []
    steps = [lambda connection, n=n: ran.append(n) for n in range(4)]
    connection = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    migrations.migrate(connection, "audit.db", steps[:2])
    migrations.migrate(connection, "audit.db", steps)
    migrations.migrate(connection, "audit.db", steps)
    connection.close()
    assert ran == [0, 1, 2, 3]


def test_a_file_of_a_later_version_is_refused(path, store):
    store._file.execute(f"PRAGMA user_version = {len(migrations.STEPS) + 1}")
    with pytest.raises(InvalidConfig, match="later") as refused:
        SqliteStore(path)
    assert str(path) in str(refused.value)


def test_a_database_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "shop.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE orders (id)")
    other.commit()
    other.close()
    with pytest.raises(InvalidConfig, match="not an audit log"):
        SqliteStore(path)
    assert value(path, "SELECT group_concat(name) FROM sqlite_master") == "orders"


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but more than a hundred bytes of something else. " * 4)
    before = path.read_bytes()
    with pytest.raises(InvalidConfig, match="no SQLite database"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "logs").write_text("")
    with pytest.raises(UsageError, match="folder"):
        SqliteStore(tmp_path / "logs" / "audit.db")


# What goes wrong


@pytest.fixture
def impatient(path):
    """A store that waits a twentieth of a second for others, and knows when it gave up."""

    class Impatient(SqliteStore):
        gave_up = threading.Event()

        def add(self, records):
            try:
                return super().add(records)
            except UsageError:
                self.gave_up.set()
                raise

    store = Impatient(SqliteFile(path, wait=0.05))
    yield store
    store.close()


@pytest.fixture
def other(path, impatient):
    """Another connection to the same file."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def test_a_file_locked_by_another_process_is_told_and_nothing_is_half_written(other, impatient):
    impatient.add(SAMPLE[:100])
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UsageError, match=r"locked by another process for 0\.05 s"):
        impatient.add(SAMPLE)
    with pytest.raises(UsageError, match="locked"):
        impatient.retention(older_than=BEGIN + 2 * DAY)
    assert counted(impatient) == naive(SAMPLE[:100])
    assert len(impatient.log(Filter(), limit=1_000)) == 100
    other.execute("ROLLBACK")
    assert impatient.add(SAMPLE) == len(SAMPLE) - 100
    assert counted(impatient) == naive(SAMPLE)


def test_a_journal_outlives_a_locked_file_and_is_indexed_later(tmp_path, other, impatient):
    journal = Journal(tmp_path / "journal")
    for record in SAMPLE[:200]:
        assert journal.append(encode_line(record))
    other.execute("BEGIN IMMEDIATE")
    with Indexer(tmp_path / "journal", impatient) as indexer:
        assert impatient.gave_up.wait(30)
        assert len(segments(tmp_path / "journal")) == 1
        assert other.execute("SELECT count(*) FROM calls").fetchone() == (0,)
        other.execute("ROLLBACK")
        assert indexer.flush()
    assert indexer.indexed == 200
    assert (indexer.refused, indexer.unreadable) == (0, 0)
    assert [r.id for r in impatient.log(Filter(), limit=1_000)] == [
        r.id for r in naive_log(SAMPLE[:200], Filter())
    ]
    journal.close()


def test_a_full_disk_is_told_and_keeps_all_of_a_batch_or_nothing(store):
    store.add(SAMPLE[:100])
    pages = store._file.number("page_count")
    store._file.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
    with pytest.raises(UsageError, match="disk is full"):
        store.add(SAMPLE)
    assert counted(store) == naive(SAMPLE[:100])
    store._file.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert store.add(SAMPLE) == len(SAMPLE) - 100
    assert counted(store) == naive(SAMPLE)


def test_a_file_that_may_not_be_written_is_told():
    if os.geteuid() != 0:
        pytest.skip("only root can become a user without rights")
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        SqliteStore(folder / "audit.db").close()
        os.seteuid(65534)
        try:
            with pytest.raises(UsageError, match="read-only"):
                SqliteStore(folder / "audit.db")
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(folder)


def test_a_damaged_file_is_told(path):
    store = SqliteStore(path)
    store.add(SAMPLE)
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(UsageError, match="damaged"):
        SqliteStore(path).log(Filter())


def test_a_closed_store_says_so(store):
    store.close()
    with pytest.raises(UsageError):
        store.add(SAMPLE)


def test_what_notes_are_not_kept_by_is_refused(store):
    with pytest.raises(UsageError, match="caller"):
        store.notes(Filter(caller="agent"))


# Several processes

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from generated import records
from callpact.audit.sqlite import SqliteStore

kept = list(records(600))
sys.stdin.readline()
store = SqliteStore(sys.argv[1])
print(sum(store.add(kept[begin : begin + 60]) for begin in range(0, 600, 60)))
"""


def test_processes_that_keep_the_same_records_keep_and_count_each_once(path):
    command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, encoding="utf-8", **pipes) as first,
        subprocess.Popen(command, encoding="utf-8", **pipes) as second,
    ):
        for process in (first, second):
            process.stdin.write("\n")
            process.stdin.flush()
        new = [int(process.communicate(timeout=60)[0]) for process in (first, second)]
    assert sum(new) == 600
    store = SqliteStore(path)
    assert counted(store) == naive(SAMPLE)
    assert len(store.log(Filter(), limit=1_000)) == 600
    store.close()


def test_names_that_another_process_gave_are_used(path, store):
    other = SqliteStore(path)
    for begin in range(0, 600, 100):
        (store if begin % 200 else other).add(SAMPLE[begin : begin + 100])
    assert counted(store) == counted(other) == naive(SAMPLE)
    assert value(path, "SELECT count(*) - count(DISTINCT identity) FROM cells") == 0
    other.close()


# Rollups that wait


def test_records_are_rolled_up_when_enough_of_them_wait(path, store):
    many = list(records(PENDING + 1_500, payloads=False))
    for begin in range(0, len(many), 1_000):
        store.add(many[begin : begin + 1_000])
    rolled_up = value(path, "SELECT sum(calls) FROM rollups WHERE unit = 0")
    assert PENDING <= rolled_up < len(many)
    assert counted(store) == naive(many)


def test_rollups_of_days_alone_wait_longer(path, store, monkeypatch):
    monkeypatch.setattr(sql_rollups, "PENDING", 100)
    monkeypatch.setattr(sql_rollups, "PENDING_DAYS", 250)
    counted = []
    for begin in range(0, 300, 100):
        store.add(SAMPLE[begin : begin + 100])
        counted.append(
            tuple(
                value(path, f"SELECT coalesce(sum(calls), 0) FROM rollups WHERE unit = {unit}")
                for unit in (0, 4, 5, 7)
            )
        )
    assert counted == [(100, 100, 0, 0), (200, 200, 0, 0), (300, 300, 300, 300)]


def test_what_is_small_is_kept_with_its_record_and_what_is_not_once_an_hour(path, store):
    small, large = payload_of(b'{"a":1}'), payload_of(b'"' + b"x" * 300 + b'"')
    huge = payload_of(b'"' + b"x" * 5_000 + b'"')
    for number, at in enumerate((BEGIN, BEGIN + 1, BEGIN + HOUR, BEGIN + DAY)):
        for answer in (small, large, huge):
            record = Record(
                id=f"{number} {answer.size}", at=at, ms=1, tool="a.b", input=small, output=answer
            )
            store.add([record])
            assert store.find(record.id) == record
    sizes = "SELECT group_concat(size || ':' || uses, ' ') FROM (SELECT * FROM payloads ORDER BY size, id)"
    assert value(path, sizes) == "302:2 302:1 302:1 5002:3 5002:1"


def test_records_are_counted_once_when_numbers_begin_again(store):
    for day in range(3):
        some = [msgspec.structs.replace(r, at=r.at + 10 * day * DAY) for r in SAMPLE]
        store.add(some)
        assert counted(store) == naive(some * (day + 1))
        assert store.retention(older_than=BEGIN + 10 * day * DAY + 9 * DAY) == len(some)


# Size and retention


def test_a_record_takes_less_than_400_bytes_beyond_its_payloads(path, store):
    many = list(records(20_000, payloads=False, days=2, tools=60, callers=40))
    for begin in range(0, len(many), 1_000):
        store.add(many[begin : begin + 1_000])
    assert store.size / len(many) < 400


def test_equal_payloads_are_kept_once_until_their_last_record_goes(path, store):
    json = payload_of(b'{"text":"' + b"abc" * 2_000 + b'"}')
    kept = [
        Record(id=str(n), at=BEGIN + n, ms=1, tool="a.b", input=json, output=json) for n in range(5)
    ]
    kept[4] = msgspec.structs.replace(kept[4], output=None)
    store.add(kept[:3])
    store.add(kept[3:])
    assert value(path, "SELECT count(*) FROM payloads") == 1
    assert value(path, "SELECT length(json) FROM payloads") < 1_000
    store.retention(older_than=BEGIN + 4)
    assert store.find("4") == kept[4]
    store.retention(older_than=BEGIN + 5)
    assert value(path, "SELECT count(*) FROM payloads") == 0


def test_hashes_with_the_same_beginning_are_different_payloads(store):
    first, second = (payload_of(b'"%s"' % (letter * 300)) for letter in (b"a", b"b"))
    second = msgspec.structs.replace(second, sha256=first.sha256[:40] + second.sha256[40:])
    record = Record(id="1", at=BEGIN, ms=1, tool="a.b", input=first, output=second)
    store.add([record])
    store.add([msgspec.structs.replace(record, id="2", input=second, output=first)])
    assert store.find("1") == record
    assert (store.find("2").input, store.find("2").output) == (second, first)


def test_what_is_let_go_of_is_given_back_to_the_disk(path, store):
    store.add(SAMPLE)
    store.retention()
    before = path.stat().st_size
    store.retention(older_than=BEGIN + 2 * DAY)
    assert path.stat().st_size < before * 2 // 3
    assert store._file.number("freelist_count") == 0


def test_rollups_go_when_they_are_old_themselves(store):
    store.add(SAMPLE)
    store.retention(older_than=BEGIN + DAY + ROLLUPS_KEPT)
    left = [record for record in SAMPLE if record.at >= BEGIN + DAY]
    assert counted(store) == naive(left)
    assert store.log(Filter()) == []


def test_a_log_of_what_waits_for_its_days_is_read_at_once(store, monkeypatch):
    monkeypatch.setattr(sql_rollups, "PENDING", 100)
    store.add(SAMPLE)
    rows, asked = store._file.rows, []
    monkeypatch.setattr(store._file, "rows", lambda *told: asked.append(told) or rows(*told))
    for where in (Filter(gate="input"), Filter(version="1.*")):
        asked.clear()
        found = store.log(where, limit=5)
        assert [r.id for r in found] == [r.id for r in naive_log(SAMPLE, where)[:5]]
        assert len(asked) <= 3


@pytest.mark.parametrize("left", range(len(UNITS)))
def test_a_retention_that_is_cut_off_among_rollups_leaves_counts_of_callers(
    store, monkeypatch, left
):
    """Those of most callers are all without the others, which must not be more."""
    store.add(SAMPLE)
    change, cut_off = store._file.change, iter([False] * left + [True])

    def until_killed(sql, parameters=()):
        if sql.startswith("DELETE FROM rollups") and next(cut_off):
            raise KeyboardInterrupt
        return change(sql, parameters)

    monkeypatch.setattr(store._file, "change", until_killed)
    with pytest.raises(KeyboardInterrupt):
        store.retention(older_than=BEGIN + DAY + ROLLUPS_KEPT)
    for by in ("tool", "gate", "key", "hour"):
        rates = store.rates(Filter(caller="*-*"), by)
        assert all(rate.calls >= rate.failed >= rate.rejected >= 0 for rate in rates)
        assert all(rate.p50 >= 0 for rate in rates)


def test_a_size_that_even_rollups_exceed_empties_the_store_and_ends(store):
    store.add(SAMPLE)
    assert store.retention(larger_than=0) == len(SAMPLE)
    assert store.rates(Filter(), "tool") == store.log(Filter()) == []
    assert store.add(SAMPLE) == len(SAMPLE)


def test_what_comes_late_is_found_though_older_records_are_gone(store):
    store.add(SAMPLE)
    store.retention(older_than=BEGIN + 2 * DAY)
    late = msgspec.structs.replace(SAMPLE[0], id="late", at=BEGIN + 5 * HOUR)
    store.add([late])
    left = [*(r for r in SAMPLE if r.at >= BEGIN + 2 * DAY), late]
    for where in (Filter(), Filter(tool=late.tool), Filter(caller="*"), Filter(outcome="ok")):
        found = [record.id for record in store.log(where, limit=500)]
        assert found == [record.id for record in naive_log(left, where)]


def test_the_trend_of_what_is_gone_is_told_from_its_rollups(store):
    store.add(SAMPLE)
    store.retention(older_than=BEGIN + 30 * DAY)
    assert store.log(Filter()) == []
    last = max(record.at for record in SAMPLE) // HOUR * HOUR
    expected = Counter(r.tool for r in SAMPLE if r.at >= last - 23 * HOUR)
    trend = store.trend(Filter(), "tool")
    assert {tool: sum(counts) for tool, counts in trend.counts.items()} == expected
    assert store.trend(Filter(tool="no.such"), "tool").counts == {}


def test_the_window_of_a_caller_over_what_is_gone_is_of_whole_hours(store):
    store.add(SAMPLE)
    store.retention(older_than=BEGIN + DAY + HOUR)
    where = Filter(since=BEGIN + 18 * HOUR + 7, until=BEGIN + 30 * HOUR, caller="*-*")
    hours = Filter(since=BEGIN + 18 * HOUR, until=BEGIN + 30 * HOUR, caller="*-*")
    counts = {rate.group: rate.calls for rate in store.rates(where, "tool")}
    expected = naive_rates(SAMPLE, hours, "tool")
    assert counts == {group: counts[0] for group, counts in expected.items()}


# Histograms and windows

DURATIONS = st.floats(0.001, 1e8, allow_nan=False)


@given(st.lists(DURATIONS, min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_within_a_few_per_cent(durations, share):
    histogram = sum(one_in(bucket_of(ms)) for ms in durations)
    rank = next(
        ms for n, ms in enumerate(sorted(durations), 1) if n / len(durations) >= share - 1e-12
    )
    assert quantiles(histogram, share) == [pytest.approx(rank, rel=0.035, abs=0.001)]


@given(st.lists(DURATIONS), st.lists(DURATIONS))
def test_histograms_are_merged_by_adding(first, second):
    one = sum(one_in(bucket_of(ms)) for ms in first)
    two = sum(one_in(bucket_of(ms)) for ms in second)
    assert unpacked(packed(one)) == one
    assert unpacked(merged(packed(one), packed(two))) == one + two
    assert summed(packed(one_in(bucket_of(ms))) for ms in (*first, *second)) == one + two


@pytest.mark.parametrize("ms", [float("inf"), 1e300, float("nan"), -5.0, 0.0])
def test_what_is_no_sensible_duration_has_a_bucket_all_the_same(store, ms):
    store.add([Record(id="1", at=BEGIN, ms=ms, tool="a.b")])
    assert store.rates(Filter(), "tool")[0].calls == 1
    assert store.find("1") is not None


@given(
    since=st.none() | st.integers(BEGIN - 3 * DAY, BEGIN + 3 * DAY),
    until=st.none() | st.integers(BEGIN - 3 * DAY, BEGIN + 3 * DAY),
    at=st.integers(BEGIN - 4 * DAY, BEGIN + 4 * DAY),
    finest=st.booleans(),
)
def test_a_time_is_in_one_piece_of_a_window_or_not_in_the_window(since, until, at, finest):
    found = pieces(since, until, finest=finest)
    inside = (since is None or at >= since) and (until is None or at < until)
    assert sum(piece.begin <= at < piece.end for piece in found) == inside
    units = {"day": DAY, "hour": HOUR, "record": 1}
    for piece in found:
        if since is not None:
            assert piece.begin % units[piece.unit] == 0
        if until is not None:
            assert piece.end % units[piece.unit] == 0
    assert not finest or all(piece.unit != "day" for piece in found)


@given(
    since=st.integers(BEGIN - 3 * DAY, BEGIN),
    length=st.integers(0, 60 * DAY),
    most=st.integers(1, 30),
    unit=st.sampled_from([HOUR, DAY]),
)
def test_a_window_is_parted_into_equal_spans_without_a_gap(since, length, most, unit):
    parts = spans(since, since + length, most, unit)
    units = max(since, since + length - 1) // unit - since // unit + 1
    step = min(size for size in range(1, units + 1) if -(-units // size) <= most)
    assert (parts.step, len(parts)) == (step * unit, -(-units // step))
    assert parts.start % unit == parts.step % unit == parts.stop % unit == 0
    assert (parts.stop - parts.start) % parts.step == 0
    assert parts.start <= since < parts.start + parts.step
    # The last one ends where the window does.
    assert 0 <= parts.stop - max(since + 1, since + length) < unit


def test_waiting_for_another_process_is_bounded():
    assert 0 < sqlite_file.BUSY_SECONDS <= 60
