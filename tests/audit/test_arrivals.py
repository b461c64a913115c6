"""What came into a store since the last look."""

from __future__ import annotations

import msgspec
from generated import records

from callpact.audit.arrivals import Arrivals
from callpact.audit.sqlite import SqliteStore
from callpact.audit.store import Filter


def test_two_calls_of_one_id_both_arrive(tmp_path):
    [first] = records(1)
    again = msgspec.structs.replace(first, at=first.at + 5)
    store = SqliteStore(tmp_path / "audit.db")
    arrivals = Arrivals(tmp_path / "audit.db")
    store.add([first, again])
    assert [record.at for record in arrivals.new(store, Filter())] == [first.at, again.at]
    assert arrivals.new(store, Filter()) == []
    arrivals.close()
    store.close()
