"""Names in a store: bounded, whoever invents them, and gone with the last use."""

from __future__ import annotations

import msgspec
import pytest
from generated import BEGIN, DAY, counted, naive, records, value

from callpact.audit import sql_rows as rows
from callpact.audit.record import Note, Record
from callpact.audit.sql_names import (
    MAX_CALLERS,
    MAX_CAUSES,
    MAX_CLIENTS,
    MAX_UNKNOWN_NAMES,
    OTHERS,
)
from callpact.audit.sqlite import ROLLUPS_KEPT, SqliteStore
from callpact.audit.store import Filter

SAMPLE = list(records(600))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "audit.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    yield store
    store.close()


# Names that callers invent


def unknown(number):
    return Record(
        id=str(number),
        at=BEGIN + number,
        ms=1,
        tool=f"invented.name{number}",
        gate="find",
        code="tool_not_found",
        message="no such tool",
        key="tool_not_found::",
    )


def test_invented_tools_share_one_name_when_there_are_too_many(path, store):
    many = [unknown(number) for number in range(MAX_UNKNOWN_NAMES + 300)]
    known = Record(id="known", at=BEGIN, ms=1, tool="shop.search")
    for begin in range(0, len(many), 200):
        store.add(many[begin : begin + 200])
    store.add([known])
    store.retention()
    counts = counted(store)
    assert counts[OTHERS] == 300
    assert counts["invented.name7"] == counts["shop.search"] == 1
    assert len(counts) == MAX_UNKNOWN_NAMES + 2
    assert value(path, "SELECT count(*) FROM cells") < 2 * MAX_UNKNOWN_NAMES + 50
    # The record itself tells what it was called.
    assert store.find(many[-1].id) == many[-1]
    assert store.log(Filter(tool=OTHERS), limit=1) == [many[-1]]
    [cause] = store.causes(Filter(tool=OTHERS))
    assert (cause.calls, cause.of) == (300, 300)
    # A name that was counted for itself is so again.
    store.add([msgspec.structs.replace(unknown(7), at=BEGIN + DAY)])
    assert counted(store)["invented.name7"] == 2


def test_invented_paths_share_one_cause_and_place_when_there_are_too_many(store):
    def refused(number):
        path = f"/invented{number}"
        return Record(
            id=str(number),
            at=BEGIN + number,
            ms=1,
            tool="shop.search",
            gate="input",
            code="schema_validation_failed",
            path=path,
            key=f"schema_validation_failed:{path}:additionalProperties",
            issues=(Note("additionalProperties", path, "not known"),),
        )

    many = [refused(number) for number in range(MAX_CAUSES + 50)]
    store.add(many)
    causes = {cause.key: cause.calls for cause in store.causes(Filter(), limit=10_000)}
    assert len(causes) == MAX_CAUSES + 1
    assert causes[f"schema_validation_failed:{OTHERS}:"] == 50
    notes = {note.path: note.calls for note in store.notes(Filter(), limit=10_000)}
    assert len(notes) == MAX_CAUSES + 1
    assert notes[OTHERS] == 50
    assert store.find(many[-1].id) == many[-1]


def test_callers_share_one_name_when_there_are_too_many(path, store):
    store.add([Record(id="1", at=BEGIN, ms=1, tool="a.b", caller="first")])
    store._file.execute(
        "INSERT INTO callers (name) WITH RECURSIVE n (i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 'invented' || i FROM n",
        (MAX_CALLERS - 1,),
    )
    late = [Record(id=str(n), at=BEGIN + n, ms=1, tool="a.b", caller=f"late{n}") for n in (2, 3)]
    again = Record(id="4", at=BEGIN + 4, ms=1, tool="a.b", caller="first")
    store.add([*late, again])
    assert value(path, "SELECT count(*) FROM callers") == MAX_CALLERS + 1
    counts = {rate.group: rate.calls for rate in store.rates(Filter(), "caller")}
    assert counts == {OTHERS: 2, "first": 2}
    assert store.log(Filter()) == [again, *reversed(late), store.find("1")]


def test_clients_share_one_name_when_there_are_too_many(path, store):
    def by(number, client, caller=None):
        return Record(
            id=str(number), at=BEGIN + number, ms=1, tool="a.b", caller=caller, client=client
        )

    many = [by(number, f"invented {number}") for number in range(MAX_CLIENTS + 20)]
    store.add(many[:500])
    store.add(many[500:])
    # One that is counted already is so for other callers, too.
    known = by(5_000, "invented 7", "ann")
    store.add([known])
    assert value(path, "SELECT count(DISTINCT client) FROM callers") == MAX_CLIENTS + 1
    counts = {rate.group: rate.calls for rate in store.rates(Filter(), "client")}
    assert (counts[OTHERS], counts["invented 7"]) == (20, 2)
    assert {rate.group: rate.calls for rate in store.rates(Filter(), "caller")} == {
        "": MAX_CLIENTS + 20,
        "ann": 1,
    }
    assert store.log(Filter(), limit=3) == [known, *many[:-3:-1]]
    assert store.log(Filter(client=OTHERS), limit=1) == many[-1:]


def names_kept(path):
    return {
        table: value(path, f"SELECT count(*) FROM {table}")
        for table in ("cells", "places", "callers")
    }


def test_names_go_with_the_last_that_was_counted_of_them(path, store):
    store.add(SAMPLE)
    empty = dict.fromkeys(("cells", "places", "callers"), 0)
    full = names_kept(path)
    store.retention(older_than=BEGIN + 10 * DAY)
    assert all(kept >= full[table] for table, kept in names_kept(path).items())
    store.retention(older_than=BEGIN + 10 * DAY + ROLLUPS_KEPT)
    assert names_kept(path) == empty


def test_names_that_rollups_have_stay(path, store):
    old = Record(id="old", at=BEGIN, ms=1, tool="old.tool", caller="old")
    new = Record(id="new", at=BEGIN + DAY, ms=1, tool="new.tool", caller="new")
    store.add([old, new])
    store.retention(older_than=BEGIN + DAY + ROLLUPS_KEPT)
    assert counted(store) == {"new.tool": 1}
    assert value(path, "SELECT group_concat(name) FROM callers") == "new"
    assert value(path, "SELECT count(*) FROM cells WHERE tool = 'old.tool'") == 0


def test_names_of_records_that_wait_to_be_rolled_up_stay(store):
    store.add(SAMPLE)
    with store._engine.writing():
        store._keeper._naming.remove_unused()
    assert counted(store) == naive(SAMPLE)
    assert len(store.log(Filter(), limit=1_000)) == len(SAMPLE)


def test_names_that_another_process_removed_are_given_again(path, store):
    store.add(SAMPLE)
    other = SqliteStore(path)
    other.retention(older_than=BEGIN + 10 * DAY + ROLLUPS_KEPT)
    other.close()
    late = [msgspec.structs.replace(r, at=r.at + 20 * DAY) for r in SAMPLE]
    assert store.add(late) == len(late)
    assert counted(store) == naive(late)
    assert len(store.log(Filter(), limit=1_000)) == len(late)


def test_names_that_are_there_already_are_looked_up_at_once(path, store, monkeypatch):
    """For a store over a network each statement is a journey."""
    store.add(SAMPLE)
    other = SqliteStore(path)
    row, asked = other._file.row, []
    monkeypatch.setattr(other._file, "row", lambda *told: asked.append(told) or row(*told))
    late = [msgspec.structs.replace(r, at=r.at + 20 * DAY) for r in SAMPLE]
    other.add(late)
    callers = {(record.caller, record.client) for record in SAMPLE}
    cells = {rows.cell_of(record) for record in SAMPLE}
    assert len(asked) <= len(callers) + 10 < len(cells)
    other.close()
    assert counted(store) == naive([*SAMPLE, *late])


def test_what_was_invented_makes_room_when_it_goes(store):
    store.add([unknown(number) for number in range(MAX_UNKNOWN_NAMES + 1)])
    store.retention(older_than=BEGIN + DAY + ROLLUPS_KEPT)
    store.add([msgspec.structs.replace(unknown(5_000), at=BEGIN + 2 * DAY)])
    assert counted(store) == {"invented.name5000": 1}
