"""What the PostgreSQL store holds: odd texts, days apart, a bounded size."""

from __future__ import annotations

import pytest
from generated import BEGIN, DAY, HOUR, counted, naive_log, records

from callpact.audit import Note, Record
from callpact.audit.store import Filter
from callpact.errors import UsageError

SAMPLE = list(records(600))


@pytest.fixture
def store(postgres):
    return postgres


# Texts that PostgreSQL would not take as they are


def test_texts_with_nul_and_other_control_characters_are_kept_as_they_are(store):
    odd = "a\x00b\x01c\x01a\x01b\x00"
    kept = Record(
        id=f"id {odd}",
        at=BEGIN,
        ms=1,
        tool=f"x.{odd}",
        version=odd,
        gate="find",
        code="unknown_tool",
        key=f"unknown_tool:{odd}:",
        message=odd,
        path=odd,
        caller=odd,
        warnings=(Note("type", f"/{odd}"),),
        parent=odd,
    )
    store.add([kept])
    assert store.find(kept.id) == kept
    assert [rate.group for rate in store.rates(Filter(tool=kept.tool), "tool")] == [kept.tool]
    assert [cause.message for cause in store.causes(Filter(caller=odd))] == [odd]


def test_texts_that_are_too_long_for_an_index_are_kept_and_found(store):
    long = "ü" * 20_000
    kept = [
        Record(id=f"{long}{n}", at=BEGIN + n, ms=1, tool=f"x.{long}", caller=long, version=long)
        for n in range(3)
    ]
    store.add(kept[:2])
    store.add(kept[2:])
    assert store.rates(Filter(), "caller")[0].calls == 3
    assert store.log(Filter(caller=long)) == naive_log(kept, Filter())
    assert store.find(kept[1].id) == kept[1]
    assert store.add(kept) == 0


# Days, size and retention


def days_of(server, url):
    return {name for name in server.tables(url) if name.startswith("calls_")}


def test_each_day_has_partitions_that_go_when_the_day_is_over(server, url, store):
    store.add(SAMPLE)
    assert days_of(server, url) == {"calls_20260901", "calls_20260902", "calls_20260903"}
    store.retention(older_than=BEGIN + DAY + 5 * HOUR)
    assert "calls_20260901" not in days_of(server, url)
    left = [record for record in SAMPLE if record.at >= BEGIN + DAY]
    assert len(store.log(Filter(), limit=1_000)) == len(left)
    assert store.find(left[0].id) == left[0]
    # What comes late makes the day anew.
    assert store.add(SAMPLE[:2]) == 2
    assert "calls_20260901" in days_of(server, url)
    assert store.find(SAMPLE[0].id) == SAMPLE[0]


def test_the_last_day_goes_too_when_it_is_old(server, url, store):
    store.add(SAMPLE)
    assert store.retention(older_than=BEGIN + 100 * DAY) == len(SAMPLE)
    assert days_of(server, url) == set()
    assert counted(store) == {}
    assert store.add(SAMPLE) == len(SAMPLE)


def test_a_day_that_another_process_let_go_of_is_made_anew(postgres_store, url, store):
    store.add(SAMPLE[:10])
    other = postgres_store(url)
    other.retention(older_than=BEGIN + 100 * DAY)
    other.close()
    try:
        store.add(SAMPLE)
    except UsageError:
        store.add(SAMPLE)
    assert len(store.log(Filter(), limit=1_000)) == len(SAMPLE)


def test_a_size_of_nothing_empties_the_store_and_ends(store):
    store.add(SAMPLE)
    assert store.retention(larger_than=0) == len(SAMPLE)
    assert store.rates(Filter(), "tool") == store.log(Filter()) == []
    assert store.add(SAMPLE) == len(SAMPLE)
