"""Files of earlier versions answer as before. What is in them is written here as it was then."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

import msgspec
import pytest
from generated import BEGIN, DAY, HOUR, naive_causes, naive_log, naive_rates, records

from callpact.audit import migrations
from callpact.audit.histogram import bucket_of, one_in, packed
from callpact.audit.record import Note
from callpact.audit.sqlite import SqliteStore
from callpact.audit.store import Filter

# Before version 4 a record told no client, and one of no tool did not count as rejected.
SAMPLE = [
    msgspec.structs.replace(record, client="")
    for record in records(400, payloads=False)
    if record.gate != "find"
]
GROUPS = ("tool", "namespace", "caller", "gate", "code", "key", "version", "via", "hour")
CELL = ("tool", "kind", "version", "contract", "policy", "source", "via", "gate", "code", "key")
WHERES = (
    Filter(),
    Filter(outcome="failed"),
    Filter(tool="shop.*"),
    Filter(since=BEGIN + 5 * HOUR, until=BEGIN + 2 * DAY),
    Filter(caller="agent-1", via="*"),
    Filter(caller="*", gate="input"),
)
MORE = (
    {"path": "/a", "message": 'a "word"', "count": 3, "status": 404},
    {"parent": bytes.fromhex("1f0c9a2e77b14c3d8e5f123456789abc")},
    {"parent": "call-7"},
    {"notes": '[[{"code":"type","path":"/a"}],[],[{"code":"filled","before":"1"}]]'},
    {"given": '{"tool":"made.up","caller":null}'},
    {"ms": 12.5, "bucket": bucket_of(12.5), "flags": 8},
)
"""Columns of a call as version 2 kept them, and what a record tells by them."""
MORE_TOLD = (
    MORE[0],
    {"parent": "1f0c9a2e-77b1-4c3d-8e5f-123456789abc"},
    {"parent": "call-7"},
    {"issues": (Note("type", "/a"),), "changes": (Note("filled", before="1"),)},
    {"tool": "made.up", "caller": None},
    {"ms": 12.5, "tool_error": True},
)


def write_version_1(path, kept, gone_before=None):
    """A file of version 1 with these records and their rollups; without those that are gone."""
    file = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(file, "audit.db", migrations.STEPS[:1])
    cells, callers = {}, {}
    sums = defaultdict(list)
    for number, record in enumerate(kept, 1):
        names = tuple(getattr(record, name) for name in CELL)
        if names not in cells:
            cells[names] = len(cells) + 1
            file.execute(
                f"INSERT INTO cells (id, identity, namespace, {', '.join(CELL)}) "
                f"VALUES ({', '.join('?' * 13)})",
                (cells[names], repr(names), record.namespace, *names),
            )
        if record.caller not in callers:
            callers[record.caller] = len(callers) + 1
            row = (callers[record.caller], record.caller)
            file.execute("INSERT INTO callers VALUES (?, ?)", row)
        cell, caller = cells[names], callers[record.caller]
        if record.message is not None:
            row = (record.message, record.at, cell)
            file.execute("UPDATE cells SET message = ?, message_at = ? WHERE id = ?", row)
        hour, day = record.at // HOUR * HOUR, record.at // DAY * DAY
        for unit, start in ((0, hour), (4, day)):
            sums[unit, 0, start, 0].append(record)
            sums[unit | 1, 0, start, cell].append(record)
            sums[unit | 2, caller, start, 0].append(record)
        sums[7, caller, day, cell].append(record)
        if gone_before is None or record.at >= gone_before:
            flags = 4 if record.warnings and record.gate is None else 0
            file.execute(
                "INSERT INTO calls (rowid, id, at, ms, bucket, cell, caller, flags, path, message, "
                "status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(number, bytes.fromhex(record.id.replace("-", "")), record.at, record.ms),
                    *(bucket_of(record.ms), cell, caller, flags),
                    *(record.path, record.message, record.status),
                ),
            )
    if gone_before is not None:
        file.execute("INSERT INTO meta VALUES ('gone_before', ?)", (gone_before,))
    for key, those in sums.items():
        counts = (
            len(those),
            sum(r.gate is not None for r in those),
            sum(r.gate in {"access", "input"} for r in those),
            sum(r.gate is None and bool(r.warnings) for r in those),
            min(r.at for r in those),
            max(r.at for r in those),
        )
        histogram = packed(sum(one_in(bucket_of(r.ms)) for r in those))
        row = (*key, *counts, histogram)
        file.execute("INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    file.close()


def assert_answers(store, kept, *, left=None):
    # What is gone is counted by days.
    whole_days = (*(w for w in WHERES if w.since is None), Filter(since=BEGIN + DAY))
    for where in WHERES if left is None else whole_days:
        for by in GROUPS:
            if by == "hour" and where.caller is not None and left is not None:
                continue  # Hours of a caller are counted from records.
            expected = naive_rates(kept, where, by)
            rates = {
                r.group: (r.calls, r.failed, r.rejected, r.warned) for r in store.rates(where, by)
            }
            assert rates == {group: counts[:4] for group, counts in expected.items()}, (where, by)
            for rate in store.rates(where, by):
                times = pytest.approx(expected[rate.group][4:], rel=0.035)
                assert (rate.p50, rate.p95, rate.p99) == times
        causes = [(c.tool, c.key, c.calls, c.of, c.first, c.last) for c in store.causes(where)]
        assert causes == [
            (c.tool, c.key, c.calls, c.of, c.first, c.last) for c in naive_causes(kept, where)[:100]
        ]
        found = [record.id for record in store.log(where, limit=1_000)]
        assert found == [record.id for record in naive_log(left or kept, where)]


def test_a_file_of_version_1_answers_as_before(tmp_path, caplog):
    write_version_1(tmp_path / "audit.db", SAMPLE)
    store = SqliteStore(tmp_path / "audit.db")
    assert "audit.db' is brought from version 1 to 5" in caplog.text
    caplog.clear()
    SqliteStore(tmp_path / "audit.db").close()
    SqliteStore(tmp_path / "another.db").close()
    assert not caplog.text
    assert_answers(store, SAMPLE)
    for record in SAMPLE[::50]:
        bare = msgspec.structs.replace(record, issues=(), warnings=(), changes=())
        assert store.find(record.id) == bare
    store.close()


def test_what_is_gone_from_a_file_of_version_1_is_still_counted(tmp_path):
    end = BEGIN + DAY
    write_version_1(tmp_path / "audit.db", SAMPLE, gone_before=end)
    store = SqliteStore(tmp_path / "audit.db")
    store_left = [record for record in SAMPLE if record.at >= end]
    assert_answers(store, SAMPLE, left=store_left)
    store.close()


@pytest.mark.parametrize("told", MORE)
def test_all_that_a_file_of_version_2_says_of_a_call_is_still_told(tmp_path, told):
    path, record = tmp_path / "audit.db", SAMPLE[7]
    write_version_1(path, SAMPLE[:20])
    file = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(file, "audit.db", migrations.STEPS[:2])
    changed = ", ".join(f"{name} = ?" for name in told)
    kept_id = bytes.fromhex(record.id.replace("-", ""))
    file.execute(f"UPDATE calls SET {changed} WHERE id = ?", (*told.values(), kept_id))
    file.close()
    store = SqliteStore(path)
    expected = {"issues": (), "warnings": (), "changes": ()} | MORE_TOLD[MORE.index(told)]
    assert store.find(record.id) == msgspec.structs.replace(record, **expected)
    store.close()


def test_callers_of_a_file_of_version_3_are_told_apart_by_their_client_from_then_on(tmp_path):
    write_version_1(tmp_path / "audit.db", SAMPLE[:50])
    file = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    migrations.migrate(file, "audit.db", migrations.STEPS[:3])
    file.close()
    store = SqliteStore(tmp_path / "audit.db")
    again = [msgspec.structs.replace(r, at=r.at + DAY, client="cursor 1.4") for r in SAMPLE[:50]]
    assert store.add(again) == 50
    rates = {rate.group: rate.calls for rate in store.rates(Filter(), "client")}
    assert rates == {"": 50, "cursor 1.4": 50}
    callers = {rate.group: rate.calls for rate in store.rates(Filter(), "caller")}
    assert callers == {
        group: sums[0] for group, sums in naive_rates(again * 2, Filter(), "caller").items()
    }
    store.close()


def test_records_of_a_file_of_version_3_that_wait_to_be_rolled_up_are_counted(tmp_path):
    write_version_1(tmp_path / "audit.db", SAMPLE)
    file = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    migrations.migrate(file, "audit.db", migrations.STEPS[:3])
    file.execute("DELETE FROM rollups")
    file.execute("UPDATE meta SET value = 0 WHERE name IN ('rolled_up', 'rolled_up_days')")
    file.close()
    store = SqliteStore(tmp_path / "audit.db")
    assert_answers(store, SAMPLE)
    earlier = msgspec.structs.replace(SAMPLE[0], id="late", at=BEGIN - 5 * DAY)
    store.add([earlier])
    assert_answers(store, [earlier, *SAMPLE])
    store.retention()
    assert_answers(store, [earlier, *SAMPLE])
    store.close()


def test_hours_of_calls_of_a_file_of_version_4_are_known_when_their_records_are_gone(tmp_path):
    write_version_1(tmp_path / "audit.db", SAMPLE)
    file = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    migrations.migrate(file, "audit.db", migrations.STEPS[:4])
    file.close()
    store = SqliteStore(tmp_path / "audit.db")
    store.retention(older_than=BEGIN + 9 * DAY)
    assert store.log(Filter()) == []
    assert_hours(store, SAMPLE)
    store.close()


def test_hours_that_were_gone_before_version_5_are_left_out(tmp_path):
    end = BEGIN + DAY + 9 * HOUR
    write_version_1(tmp_path / "audit.db", SAMPLE, gone_before=end)
    store = SqliteStore(tmp_path / "audit.db")
    assert_hours(store, [record for record in SAMPLE if record.at >= end])
    # Of these, callers are told by whole days.
    for caller in ("agent-*", "*-*"):
        where = Filter(since=BEGIN + 18 * HOUR + 7, until=BEGIN + 30 * HOUR, caller=caller)
        days = Filter(since=BEGIN, until=BEGIN + 2 * DAY, caller=caller)
        counts = {rate.group: rate.calls for rate in store.rates(where, "tool")}
        expected = naive_rates(SAMPLE, days, "tool")
        assert counts == {group: counts[0] for group, counts in expected.items()}
    store.close()


def assert_hours(store, kept):
    for where in (
        Filter(tool="shop.*", caller="agent-1"),
        Filter(tool="*.s*", caller="*-*"),
        Filter(outcome="ok", caller="agent-*"),
        Filter(tool="*e*", via="http"),
    ):
        expected = naive_rates(kept, where, "hour")
        rates = store.rates(where, "hour")
        assert {r.group: (r.calls, r.failed, r.rejected, r.warned) for r in rates} == {
            group: counts[:4] for group, counts in expected.items()
        }, where
        for rate in rates:
            times = pytest.approx(expected[rate.group][4:], rel=0.035)
            assert (rate.p50, rate.p95, rate.p99) == times


def test_records_are_added_to_a_file_of_version_1(tmp_path):
    write_version_1(tmp_path / "audit.db", SAMPLE[:250])
    store = SqliteStore(tmp_path / "audit.db")
    assert store.add(SAMPLE) == len(SAMPLE) - 250
    assert_answers(store, SAMPLE)
    store.retention()
    assert_answers(store, SAMPLE)
    again = [msgspec.structs.replace(record, at=record.at + 1) for record in SAMPLE[:9]]
    assert store.add(again) == 9  # The same ids, at another time.
    store.close()
