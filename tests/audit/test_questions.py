"""The questions of a program: the same answers as on the command line, as values."""

from __future__ import annotations

import contextlib
import dataclasses

from generated import BEGIN, HOUR
from msgspec.structs import replace

from callpact.audit import (
    Filter,
    Note,
    Record,
    advice_of,
    compare,
    open_store,
    replay_of,
    waiting,
)
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal
from callpact.audit.record import error_key, payload_of
from callpact.audit.store.compactor import Compactor
from callpact.tool import Contract, Tool

LIMITED = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "maximum": 50}},
}


async def _unused(arguments, context):
    raise AssertionError(arguments)


def tool_of(schema):
    return Tool(
        id="shop.search", description="Find.", contract=Contract(input=schema), handler=_unused
    )


def called(number, limit, **more):
    is_refused = limit > 50
    refusal = {
        "gate": "input",
        "code": "schema_validation_failed",
        "key": error_key("schema_validation_failed", "/limit", "maximum"),
        "issues": (Note("maximum", "/limit", "limit must be ≤ 50"),),
    }
    return Record(
        id=f"1f0c9a2e-77b1-4c3d-8e5f-{10**11 + number}",
        at=BEGIN + number,
        ms=1.0,
        tool="shop.search",
        input=payload_of(b'{"limit":%d}' % limit),
        **(refusal if is_refused else {}),
        **more,
    )


def filled(folder, *records):
    store = open_store(folder)
    store.add(records)
    return contextlib.closing(store)


def test_two_sets_of_calls_stand_side_by_side(tmp_path):
    old = [called(n, 80 if n == 0 else 5, version="1.0.0") for n in range(10)]
    new = [called(n, 80 if n % 2 else 5, version="1.1.0") for n in range(10, 20)]
    with filled(tmp_path, *old, *new) as store:
        found = compare(store, Filter(version="1.0.0"), Filter(version="1.1.0"))
    assert [rate.rate for rate in (*found.before, *found.after)] == [0.1, 0.5]
    assert [cause.rate for cause in (*found.causes_before, *found.causes_after)] == [0.1, 0.5]


def test_advice_and_replays_are_of_the_calls_that_are_meant(tmp_path):
    early, late = called(0, 60), called(HOUR, 80)
    with filled(tmp_path, early, late, called(1, 5)) as store:
        [every] = advice_of(store, tool_of(LIMITED)).relaxations
        [first] = advice_of(store, tool_of(LIMITED), Filter(until=BEGIN + HOUR)).relaxations
        assert (every.saved, first.saved) == (2, 1)
        wider = {**LIMITED, "properties": {"limit": {"type": "integer", "maximum": 70}}}
        changed = replay_of(store, [tool_of(wider)])
        assert (changed.now_admitted, changed.now_refused) == (1, 0)
        other = dataclasses.replace(tool_of(wider), id="shop.other")
        assert replay_of(store, [other], Filter(outcome="failed")).gone == 2


def test_calls_under_a_former_id_are_calls_of_the_tool(tmp_path):
    renamed = dataclasses.replace(tool_of(LIMITED), id="shop.find", aliases=("shop.search",))
    late = replace(called(2, 70), tool="shop.find")
    with filled(tmp_path, called(0, 60), called(1, 5), late) as store:
        report = advice_of(store, renamed)
        assert (report.calls, report.refused, report.saved) == (3, 2, 2)
        assert report.relaxations[0].samples == ("60", "70")
        every = replay_of(store, [renamed])
        assert (every.calls, every.gone, every.now_refused) == (3, 0, 0)
        for name in ("shop.find", "shop.search", renamed.wire_name):
            assert replay_of(store, [renamed], Filter(tool=name)) == every


def test_what_waits_in_a_journal_is_counted_and_answered_for(tmp_path):
    journal = tmp_path / "journal"
    assert waiting(journal, {}) == 0
    with contextlib.closing(Journal(journal)) as writer:
        assert writer.append(encode_line(called(1, 5)))
        assert writer.append(encode_line(called(2, 5)))
        with contextlib.closing(open_store(tmp_path)) as store:
            assert waiting(journal, store.taken()) == 2
            assert len(store.log(Filter())) == 2
            assert writer.append(encode_line(called(3, 5)))
            assert len(store.log(Filter())) == 3
            with Compactor(journal, store) as compactor:
                assert compactor.flush()
            assert waiting(journal, store.taken()) == 0
            assert len(store.log(Filter())) == 3
