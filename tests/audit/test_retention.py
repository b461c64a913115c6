"""Old records go, and never so many that a wrong clock could be the reason, before a day has passed."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from callpact.audit import Health, Held, Record, health_of, held_retention, record_calls
from callpact.audit import log as opening
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal, segments
from callpact.audit.store import Filter
from callpact.audit.store.parquet import ParquetStore
from callpact.audit.store.retention import keep, keep_segments

DAY = 86_400_000
NOW = 1_788_264_000_000


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def store(tmp_path):
    store = ParquetStore(tmp_path)
    yield store
    store.close()


def fill(store, days):
    """One record on each of these days before now."""
    store.add([Record(f"{day}", NOW - day * DAY, 1.0, "shop.price") for day in days])


def left(store):
    return sorted(int(record.id) for record in store.log(Filter(), limit=1_000))


def test_a_day_that_is_just_over_goes_at_once(store, journal):
    fill(store, range(93))
    assert keep(store, journal, NOW, keep_days=90) == 2
    assert left(store) == list(range(91))
    assert held_retention(journal) is None


def test_a_clock_far_ahead_removes_nothing_and_is_told(store, journal, caplog):
    fill(store, range(30))
    ahead = NOW + 400 * DAY
    with caplog.at_level(logging.WARNING, "callpact.audit"):
        assert keep(store, journal, ahead, keep_days=90) == 0
        assert keep(store, journal, ahead + 3_600_000, keep_days=90) == 0
    assert left(store) == list(range(30))
    assert held_retention(journal).at == ahead
    assert "is the clock of this machine right?" in caplog.text
    # The clock is right again.
    assert keep(store, journal, NOW, keep_days=90) == 0
    assert held_retention(journal) is None
    assert keep(store, journal, ahead + 2 * DAY, keep_days=90) == 0
    assert left(store) == list(range(30))


def test_a_log_of_one_day_is_no_exception(store, journal):
    fill(store, [0])
    assert keep(store, journal, NOW + 400 * DAY, keep_days=90) == 0
    assert left(store) == [0]


def test_what_is_still_wanted_after_a_day_is_removed(store, journal):
    fill(store, range(200))
    assert keep(store, journal, NOW, keep_days=90) == 0
    assert keep(store, journal, NOW + DAY - 1, keep_days=90) == 0
    assert held_retention(journal).at == NOW
    assert keep(store, journal, NOW + DAY, keep_days=90) == 110
    assert held_retention(journal) is None


def test_a_large_part_of_the_log_is_held_though_none_of_it_is_late(store, journal):
    fill(store, range(7))
    assert keep(store, journal, NOW, keep_days=4) == 0
    assert held_retention(journal) == Held(NOW, NOW - 4 * DAY, 2, held_retention(journal).size)


def test_a_log_of_few_days_loses_its_oldest_day_every_day(store, journal):
    fill(store, [0, 1, 2])
    assert keep(store, journal, NOW, keep_days=1) == 1
    assert left(store) == [0, 1]


def test_by_size_the_oldest_go_at_once(store, journal):
    fill(store, range(10))
    assert keep(store, journal, NOW, keep_days=90, keep_bytes=store.size // 2) == 5
    assert left(store) == list(range(5))


def test_a_run_that_was_noted_by_a_clock_ahead_begins_anew(store, journal):
    fill(store, range(200))
    keep(store, journal, NOW + 400 * DAY, keep_days=90)
    assert keep(store, journal, NOW, keep_days=90) == 0
    assert held_retention(journal).at == NOW


def test_a_start_with_the_clock_a_year_ahead_keeps_the_log(tmp_path, journal, monkeypatch):
    store = ParquetStore(tmp_path)
    now = time.time_ns() // 1_000_000
    store.add([Record(str(n), now - n * DAY, 1.0, "shop.price") for n in range(20)])
    store.close()
    tidied = threading.Event()
    monkeypatch.setattr(opening, "_START_SECONDS", 0.0)
    monkeypatch.setattr(opening, "_now", lambda: now + 400 * DAY)
    monkeypatch.setattr(ParquetStore, "tidy", lambda _: tidied.set())
    with record_calls(tmp_path):
        assert tidied.wait(30)
    assert held_retention(journal) is not None
    store = ParquetStore(tmp_path)
    assert len(store.log(Filter())) == 20
    store.close()


# --- a journal that nothing moves -----------------------------------------------------------


def write(journal, day):
    with_line = Journal(journal)
    with_line.append(encode_line(Record(f"{day}", NOW, 1.0, "shop.price")))
    name = with_line._name
    with_line.close()
    at = (NOW - day * DAY) / 1_000
    os.utime(journal / name, (at, at))


def test_segments_that_nothing_moves_go_when_they_are_old(journal, caplog):
    for day in (92, 91, 1, 0):
        write(journal, day)
    open_one = Journal(journal)
    open_one.append(encode_line(Record("open", NOW, 1.0, "shop.price")))
    with caplog.at_level(logging.WARNING, "callpact.audit"):
        assert keep_segments(journal, NOW, keep_days=91.5) == 1
    assert len(segments(journal)) == 4
    assert health_of(journal) == Health(lost=1)
    assert "1 records were removed" in caplog.text
    open_one.close()


def test_segments_that_nothing_moves_are_kept_when_the_clock_is_wrong(journal):
    for day in (2, 1, 0):
        write(journal, day)
    assert keep_segments(journal, NOW + 400 * DAY, keep_days=90) == 0
    assert len(segments(journal)) == 3
    assert held_retention(journal) is not None


def test_the_oldest_segments_go_where_nothing_moves_too_many(journal):
    for day in (3, 2, 1):
        write(journal, day)
    size = segments(journal)[0].stat().st_size
    assert keep_segments(journal, NOW, keep_days=90, keep_bytes=2 * size) == 1
    assert len(segments(journal)) == 2
